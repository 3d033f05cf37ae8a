"""A database with something of everything, damaged and read by the real code: is anything wrong, or lost?"""

import asyncio
import json
import random
import shutil
import traceback
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from answering_scene import TX1, Answers, conditions, document, first_values, shipped
from cli_process import tuner
from damage_files import KINDS, TARGETS, Files, Row, damaged, files_of, had, places_of, write

from tuner.daemon.queue.board import Board
from tuner.daemon.queue.subscriptions import Subscriptions
from tuner.database import Database, Jobs, Ledger, Store, check_copies
from tuner.database.answers import stored_answer
from tuner.database.best_known import DatabaseSource
from tuner.database.storage import Repositories, Storage
from tuner.errors import TunerError
from tuner.model import Energy, Measurement, RunStatus, Status, Trial, WorkloadResult
from tuner.model.jobs import JobSpec, JobState, Origin

SETS = (("scan-lf:N=4",), ("scan-lf:N=64",), ("fft:N=4",), ("scan-lf:N=4", "fft:N=4"))
DAYS = [f"2026-11-{day:02}" for day in range(1, 8)]
_RECOVERED = "the daemon ended in the middle"


@dataclass(frozen=True)
class Scene:
    """A database as it was written, and as it was before.

    Attributes:
        files: contents.
        old: the same, some transactions earlier.
        served: what the real code serves of it, by table and key; of the older state too.
        places: of each copy, where each row is.
    """

    files: Files
    old: Files
    served: dict[Row, str]
    served_old: dict[Row, str]
    places: dict[str, dict[Row, Any]]


@dataclass
class Outcome:
    """What became of one damage.

    Attributes:
        wrong: rows that are served as they never were, and older states of which nothing was said.
        lost: rows that one copy had and that are not served.
        refused: the message of a start that failed.
        traceback: of an exception that is none of ours.
        isolated: rows kept aside.
        older: rows served in an earlier state, which was said.
        missed: the check found nothing, and the repair did.
        changed: the check has changed a file.
    """

    kind: str
    target: str
    logs: bool
    wrong: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    refused: str = ""
    traceback: str = ""
    isolated: int = 0
    repaired: int = 0
    older: int = 0
    missed: bool = False
    changed: bool = False

    @property
    def bad(self) -> bool:
        """True where something happened that must not."""
        return bool(self.wrong or self.lost or self.refused or self.traceback or self.changed)


def scene(folder: Path, *, logs: bool, size: int = 1) -> Scene:
    """Write a database by the real code.

    Args:
        folder: a new one for what is needed meanwhile.
        logs: copy the files while they are open, so that the last transactions are only in the logs.
        size: so many times as many rows.
    """
    folder.mkdir(parents=True)
    path = folder / "tuner.db"
    with Database(path) as database:
        _fill(database, size, 0)
    old = files_of(folder)
    with Database(path) as database:
        _fill(database, size, 1)
        files = files_of(folder) if logs else {}
    files = files or files_of(folder)
    shutil.rmtree(folder)
    folder.mkdir()
    places = {copy: places_of(files, copy, folder) for copy in ("main", "mirror")}
    write(files, folder / "now")
    write(old, folder / "then")
    now, then = (_served(folder / name / "tuner.db")[0] for name in ("now", "then"))
    shutil.rmtree(folder)
    return Scene(files, old, now, then, places)


def _fill(database: Database, size: int, turn: int) -> None:
    store, jobs, ledger = Store(database), Jobs(database), Ledger(database)
    for number in range(3 * size):
        for names in SETS:
            place = 3 * size * turn + number
            run = store.begin(conditions(names))
            for trial in range(4):
                configurations = tuple(first_values(name)[trial] for name in names)
                seconds = 0.01 + 1e-5 * place + 1e-3 * trial + 1e-4 * len(names)
                measured = Measurement(
                    tuple(WorkloadResult(Status.OK, seconds) for _ in names),
                    seconds,
                    energy=Energy(seconds * 100, 0.01, 100.0, "sensor", "gpu"),
                )
                store.add(run, trial + 1, Trial(configurations), measured, names)
                if not trial:
                    store.confirm(run, {1: replace(measured, repeats=3)})
            if number % 3 != 1:
                answer = document(names, place=place, joules=1 + 0.1 * place) | {"notices": ["x" * 3000]}
                store.end(run, RunStatus.FINISHED, answer)
                ledger.add_sample(run, {"verdict": "inside", "told": f"{run}", "cost": 1.0 + run})
            job = jobs.add(JobSpec(names, options={"budget": place + 1}, device=TX1.spec), origin=Origin.CLIENT)
            for state in ((), (JobState.RUNNING,), (JobState.RUNNING, JobState.FINISHED))[number % 3]:
                jobs.change(job.id, state, run=run, started=state is JobState.RUNNING)
            jobs.event(job.id, "told", {"sentence": f"job {job.id}"})
            ledger.add_uses({f"question {place} of {names}": 1.5 + place})
        values = dict(first_values("scan-lf:N=4")[number])
        ledger.remember_analytical(
            f"key {turn} {number}",
            {"configuration": values, "rule": "embedded", "considered": 7 + number, "default": values},
        )
    for day in DAYS[turn::2]:
        ledger.spend(day, TX1.uuid, 10.5 + turn, 1000.25)


# --- reading -----------------------------------------------------------------------------------------


@cache
def _answers() -> Answers:
    return Answers(shipped(), {TX1.spec: TX1})


def _served(path: Path) -> tuple[dict[Row, str], list[str], int]:
    """Everything that a daemon and the commands serve, what was said of repairs, and rows kept aside."""
    return asyncio.run(_served_by_daemon(path))


async def _served_by_daemon(path: Path) -> tuple[dict[Row, str], list[str], int]:
    storage, told = Storage(path), list[str]()
    storage.put_right = lambda found: told.extend(found.lines)
    board = Board(storage, Subscriptions(), lambda: None)
    try:
        await board.load()
        index = await storage.run(lambda books: _answers().answerer.read(books.store))
        found = await storage.run(_everything)
        for answer in index.answers:
            found["index", answer.run] = repr(answer)
        for job in board.jobs:
            found["board", job.id] = repr(replace(job, trials=0))
        aside = await storage.run(lambda books: len(books.database.isolated()))
    finally:
        await storage.close()
    return found, told, aside


def _everything(books: Repositories) -> dict[Row, str]:
    store, ledger, found = books.store, books.ledger, dict[Row, str]()
    source = DatabaseSource(store)
    for run in store.history():
        found["runs", run.id] = repr(replace(run, trials=0))
        answer = stored_answer(run)
        if answer is not None:
            found["answer", run.id] = repr(answer)
    for names in SETS:
        for answer in source.of_set(names):
            found["best", answer.run] = repr(replace(answer, samples=type(answer.samples)()))
    for run_id in range(1, 200):
        names = SETS[(run_id - 1) % len(SETS)]
        for trial, measured in store.trials(run_id, names):
            number = round((measured.makespan_s or 0) * 1e3) - 9
            found["trials", run_id, number] = repr((trial, measured))
        for one in store.best_known(run_id, names)[:1]:
            found["confirmed", run_id, one[1].repeats] = repr(one)
        for sample in ledger.samples(run_id):
            found["samples", run_id] = repr(sample)
    for job in books.jobs.jobs():
        found["jobs", job.id] = repr(replace(job, trials=0))
    for number in range(1, 200):
        for event in books.jobs.events(number):
            if event.data.get("reason") != _RECOVERED:
                found["job_events", event.id] = repr(event)
    found |= {("uses", key): repr(count) for key, count in ledger.uses().items()}
    found |= {("analytical", key): repr(one) for key, one in ledger.analytical().items()}
    for day in DAYS:
        if any(spent := ledger.spent(day, TX1.uuid)):
            found["spending", day, TX1.uuid] = repr(spent)
    return found


def _history(path: Path) -> dict[Row, str]:
    result = tuner("history", "--database", path, "--limit", "1000", "--json", "-")
    if result.exit_code:
        raise TunerError(f"history: {result.stderr}")
    return {("history", run["run"]): repr({**run, "trials": 0}) for run in json.loads(result.stdout)["runs"]}


# --- one damage --------------------------------------------------------------------------------------


def attempt(scene: Scene, folder: Path, rng: random.Random, kind: str = "", target: str = "") -> Outcome:
    """Damage the files, read them in one of several ways, and compare with what was written.

    Args:
        scene: the database.
        folder: a new one.
        rng: chooses.
        kind: of damage; empty for any.
        target: what is damaged; empty for any.
    """
    kind, target = kind or rng.choice(KINDS), target or rng.choice(TARGETS)
    outcome = Outcome(kind, target, any(name.endswith("-wal") for name in scene.files))
    files = damaged(scene.files, scene.old, kind, target, rng)
    write(files, folder)
    try:
        _look(scene, files, folder, outcome, rng)
    except TunerError as error:
        outcome.refused = str(error)
    except Exception:  # noqa: BLE001 - that is what is looked for
        outcome.traceback = traceback.format_exc()
    return outcome


def _look(scene: Scene, files: Files, folder: Path, outcome: Outcome, rng: random.Random) -> None:
    path, told = folder / "tuner.db", list[str]()
    checked = check_copies(path) if any(files.values()) else None
    outcome.changed = files_of(folder) != files
    first = rng.choice(("daemon", "history", "repair"))
    if first == "history" and any(files.values()):
        _compare(scene, _history(path), outcome, told=True)
    if first == "repair":
        with Database(path, lambda found: told.extend(found.lines)) as database:
            database.examine()
    found, said, outcome.isolated = _served(path)
    told += said
    outcome.repaired = len(told)
    outcome.missed = checked is not None and checked.whole and bool(told) and first != "history"
    _compare(scene, found, outcome, told=bool(told) or first == "history")
    kept = set[Row]().union(*(had(scene.places[copy], scene.files, files) for copy in ("main", "mirror")))
    outcome.lost += [f"{row}" for row in sorted(map(_as_served, kept), key=repr) if row not in found]
    if checked is not None:
        _compare(scene, _history(path), outcome, told=True)
        if not check_copies(path).whole:
            outcome.wrong.append("the check is not content after the repair")


def _as_served(row: Row) -> Row:
    """How a row of the files is named among what is served: samples by their run."""
    return ("samples", _run_of_sample(int(str(row[1])))) if row[0] == "samples" else row


def _run_of_sample(number: int) -> int:
    """Of three times the sets in a row, the first and the last have samples."""
    group, place = divmod(number - 1, 2 * len(SETS))
    return 3 * len(SETS) * group + place + 1 + (len(SETS) if place >= len(SETS) else 0)


def _compare(scene: Scene, found: dict[Row, str], outcome: Outcome, *, told: bool) -> None:
    for row, value in found.items():
        if value == scene.served.get(row) or (row[0] == "history" and row not in scene.served):
            continue
        if value == scene.served_old.get(row) and told:
            outcome.older += 1
        elif row[0] in ("index", "board") and told:  # of several answers another is the best that is left
            twin = "answer" if row[0] == "index" else "jobs"
            if _without_samples(value) != _without_samples(scene.served.get((twin, *row[1:]), "")):
                outcome.older += 1
        else:
            outcome.wrong.append(f"{row}: {value[:200]}")


def _without_samples(answer: str) -> str:
    return answer.partition("samples=SampleHistory")[0]
