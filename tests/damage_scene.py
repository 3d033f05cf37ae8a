"""A database with something of everything, damaged and read by the real code: is anything wrong, or lost?"""

import asyncio
import json
import random
import re
import shutil
import traceback
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from answering_scene import TX1, Answers, conditions, document, first_values, shipped
from cli_process import tuner
from damage_files import BACKUP, KINDS, NAMES, TARGETS, Files, Row, damaged, files_of, had, places_of, write

from tuner.daemon.jobs.board import Board
from tuner.daemon.jobs.events import Subscriptions
from tuner.database.answers import SampleHistory, stored_answer
from tuner.database.best_known import DatabaseSource
from tuner.database.connection import Database, holds_something
from tuner.database.integrity.check import check_copies
from tuner.database.jobs import Jobs
from tuner.database.ledger import Ledger
from tuner.database.runs import Store
from tuner.database.storage import Repositories, Storage
from tuner.model.errors import TunerError
from tuner.model.jobs import JobSpec, JobState, Origin
from tuner.model.records import RunStatus
from tuner.model.trial import Energy, Measurement, Status, Trial, WorkloadResult

SETS = (("scan-lf:N=4",), ("scan-lf:N=64",), ("fft:N=4",), ("scan-lf:N=4", "fft:N=4"))
DAYS = [f"2026-11-{day:02}" for day in range(1, 8)]
_MOST = 40  # numbers that are asked for: all runs and jobs, and some more
_RECOVERED = "the daemon ended in the middle"


@dataclass(frozen=True)
class Scene:
    """A database as it was written, and as it was before.

    Attributes:
        files: contents.
        old: the same, some transactions earlier.
        served: what the real code serves of it, by table and key.
        earlier: what it served of each row before, while the database was written.
        places: of each copy, where each row is.
    """

    files: Files
    old: Files
    served: dict[Row, str]
    earlier: dict[Row, set[str]]
    places: dict[str, dict[Row, Any]]


@dataclass
class Outcome:
    """What became of one damage.

    Attributes:
        wrong: rows that are served as they never were, and earlier states of which nothing was said.
        lost: rows that one copy had and that are not served.
        refused: the message of a start that failed.
        traceback: of an exception that is none of ours.
        isolated: rows kept aside.
        earlier: rows served in an earlier state, as nothing later was left; a repair was told.
        rolled_back: the same with nothing told: both logs lost their ends, as after a power cut.
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
    earlier: int = 0
    rolled_back: int = 0
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
    earlier: dict[Row, set[str]] = {}
    with Database(path) as database:
        _fill(database, size, 0, earlier)
    old = files_of(folder)
    with Database(path) as database:
        _fill(database, size, 1, earlier)
        database.back_up(date.fromisoformat(BACKUP[-10:]))
        files = files_of(folder) if logs else {}
    files = files or files_of(folder)
    shutil.rmtree(folder)
    folder.mkdir()
    places = {copy: places_of(files, copy, folder) for copy in ("main", "mirror")}
    write(files, folder / "now")
    served = _served(folder / "now/tuner.db")[0] | _history(folder / "now/tuner.db")
    shutil.rmtree(folder)
    return Scene(files, old, served, earlier, places)


def _fill(database: Database, size: int, turn: int, earlier: dict[Row, set[str]]) -> None:
    store, jobs, ledger = Store(database), Jobs(database), Ledger(database)

    def keep(run: int, names: tuple[str, ...], job: int = 0) -> None:
        """Remember what is served now, and will be another thing."""
        now: dict[Row, object] = {("runs", run): store.run(run) and replace(store.run(run), trials=0)}  # type: ignore[type-var]
        if known := store.best_known(run, names):
            now["confirmed", run] = known[0]
        if job:
            now["jobs", job] = replace(jobs.job(job), trials=0)  # type: ignore[type-var]
        for row, value in now.items():
            earlier.setdefault(row, set()).add(repr(value))

    for number in range(3 * size):
        for names in SETS:
            place = 3 * size * turn + number
            run = store.begin(conditions(names))
            keep(run, names)
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
                    keep(run, names)
                    store.confirm(run, {1: replace(measured, repeats=3)})
            if number % 3 != 1:
                answer = document(names, place=place, joules=1 + 0.1 * place) | {"notices": ["x" * 3000]}
                store.end(run, RunStatus.FINISHED, answer)
                ledger.add_sample(run, {"verdict": "inside", "told": f"{run}", "cost": 1.0 + run})
            job = jobs.add(
                JobSpec(names, options={"budget": place + 1}, device=TX1.spec), origin=Origin.CLIENT
            )
            for state in ((), (JobState.RUNNING,), (JobState.RUNNING, JobState.FINISHED))[number % 3]:
                keep(run, names, job.id)
                jobs.change(job.id, state, run=run, started=state is JobState.RUNNING)
            jobs.event(job.id, "told", {"sentence": f"job {job.id}"})
            ledger.add_uses({f"question {place} of {names}": 1.5 + place})
        values = dict(first_values("scan-lf:N=4")[number])
        ledger.remember_analytical(
            f"key {turn} {number}",
            {"configuration": values, "rule": "embedded", "considered": 7 + number, "default": values},
        )
        key = f"{turn} {number}"
        ledger.remember_model("scan-lf", key, {"key": key, "versions": [values]})
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
    board = Board(storage, Subscriptions(), lambda _: None)
    try:
        await board.load()
        index, _ = await storage.run(lambda books: _answers().answerer.read(books.store))
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
    found = _runs(books) | _trials(books) | _jobs(books)
    found |= {("uses", key): repr(count) for key, count in books.ledger.uses().items()}
    found |= {("analytical", key): repr(one) for key, one in books.ledger.analytical().items()}
    models = {("models", "scan-lf", one["key"]): repr(one) for one in books.ledger.models("scan-lf")}
    spent = {day: books.ledger.spent(day, TX1.uuid) for day in DAYS}
    return found | models | {("spending", day, TX1.uuid): repr(one) for day, one in spent.items() if any(one)}


def _runs(books: Repositories) -> dict[Row, str]:
    found: dict[Row, str] = {}
    for run in books.store.history():
        found["runs", run.id] = repr(replace(run, trials=0))
        answer = stored_answer(run)
        if answer is not None:
            found["answer", run.id] = repr(answer)
    source = DatabaseSource(books.store)
    for answer in (answer for names in SETS for answer in source.of_set(names)):
        found["best", answer.run] = repr(replace(answer, samples=SampleHistory()))
    return found


def _trials(books: Repositories) -> dict[Row, str]:
    found: dict[Row, str] = {}
    for run in range(1, _MOST):
        names = SETS[(run - 1) % len(SETS)]
        for pair in books.store.trials(run, names):
            found["trials", run, _number(pair[1])] = repr(pair)
        for pair in books.store.best_known(run, names):
            if _number(pair[1]) == 1:
                found["confirmed", run] = repr(pair)
        for sample in books.ledger.samples(run):
            found["samples", run] = repr(sample)
    return found


def _number(measured: Measurement) -> int:
    """Of a trial, which its time tells."""
    return round((measured.makespan_s or 0) * 1e3) - 9


def _jobs(books: Repositories) -> dict[Row, str]:
    found: dict[Row, str] = {("jobs", job.id): repr(replace(job, trials=0)) for job in books.jobs.jobs()}
    for number in range(1, _MOST):
        for event in books.jobs.events(number):
            if event.data.get("reason") != _RECOVERED:
                found["job_events", event.id] = repr(event)
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
    there = holds_something(path)
    checked = check_copies(path) if there else None
    outcome.changed = files_of(folder) != files
    kept = set[Row]().union(*(had(scene.places[copy], scene.files, files) for copy in ("main", "mirror")))
    kept = {_as_served(row) for row in kept} if files.keys() & NAMES.values() else set()  # else a new one
    first, seen = rng.choice(("daemon", "history", "repair")), dict[Row, str]()
    if first == "history" and there:
        seen = _history(path)
    if first == "repair":
        with Database(path, lambda found: told.extend(found.lines)) as database:
            database.examine()
    found, said, outcome.isolated = _served(path)
    told += said
    outcome.repaired = len(told)
    found |= _history(path)
    if there and not check_copies(path).whole:
        outcome.wrong.append("the check is not content after the repair")
    found_something = bool(told) or (checked is not None and not checked.whole)
    outcome.missed = checked is not None and checked.whole and bool(told)
    reading = _Reading(scene, found, kept, told=found_something)
    behind = checked is not None and not checked.whole
    for row, value in seen.items():  # before the repair, by a reader who asks no backup
        if behind and ("runs", row[1]) in scene.earlier and value != scene.served.get(row):
            outcome.earlier += 1
        else:
            _compare(reading, row, value, outcome)
    for row, value in found.items():
        _compare(reading, row, value, outcome)
    outcome.lost += [f"{row}" for row in sorted(kept, key=repr) if row not in found]


@dataclass(frozen=True)
class _Reading:
    """What was read of a database.

    Attributes:
        scene: as it was written.
        found: what is served.
        kept: rows that one copy has unchanged.
        told: whether anything was said to be wrong.
    """

    scene: Scene
    found: dict[Row, str]
    kept: set[Row]
    told: bool


def _compare(reading: _Reading, row: Row, value: str, outcome: Outcome) -> None:
    scene, found = reading.scene, reading.found
    twin = {"index": "answer", "board": "jobs"}.get(str(row[0]))
    if twin is not None:  # of several answers another may be the best that is left: as the row says
        if _without_samples(value) != _without_samples(found.get((twin, *row[1:]), "")):
            outcome.wrong.append(f"{row} is not as {twin}: {value[:200]}")
    elif value != scene.served.get(row) and not _lacks_its_run(reading, row, value):
        table = {"confirmed": "trials", "history": "runs"}.get(str(row[0]), row[0])
        base = ("runs", row[1]) if row[0] == "history" else row
        known = row[0] == "history" or value in scene.earlier.get(row, ())
        gone = (*((table, row[1], 1) if table == "trials" else (table, row[1])),) not in reading.kept
        if not (known and gone and (base == row or found.get(base) in scene.earlier.get(base, ()))):
            outcome.wrong.append(f"{row}: {value[:300]}")
        elif reading.told:
            outcome.earlier += 1
        else:
            outcome.rolled_back += 1


def _lacks_its_run(reading: _Reading, row: Row, value: str) -> bool:
    """True for a job as it was but for the GPU, which is that of its run, where nothing is left of that."""
    told, _, gpu = value.partition(", gpu=")
    run = re.search(r", run=(\d+)", told)
    return (
        row[0] == "jobs"
        and run is not None
        and ("runs", int(run[1])) not in reading.found
        and gpu == "'', placed='')"
        and reading.scene.served.get(row, "").startswith(f"{told}, gpu=")
    )


def _as_served(row: Row) -> Row:
    """How a row of the files is named among what is served: samples by their run."""
    return ("samples", _run_of_sample(int(str(row[1])))) if row[0] == "samples" else row


def _run_of_sample(number: int) -> int:
    """Of three times the sets in a row, the first and the last have samples."""
    group, place = divmod(number - 1, 2 * len(SETS))
    return 3 * len(SETS) * group + place + 1 + (len(SETS) if place >= len(SETS) else 0)


def _without_samples(answer: str) -> str:
    return answer.partition("samples=SampleHistory")[0]
