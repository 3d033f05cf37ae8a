"""A backup, another host, a restore: how long, what is lost, and what clients of the daemon feel meanwhile.

Three parts, each a row or a table of the JSON:

move: a daemon over a database of so many trials answers random questions; it is backed up, restored into
another state directory, and a second daemon there is asked the same. Every row of every table is compared.

latency: times of /v1/best, asked one after another at a steady pace: beside the daemon's own backup of the
day, and then in turns without and beside `tuner db backup`.

kills: SIGKILL at random instants of a backup, a restore and a rotation of dated backups. Afterwards every
file must be as a whole what it was before, or what it was to be.

    python benchmarks/backups.py --out benchmarks/results/backups.json [--trials 1000000] [--kills 200]
"""

import argparse
import os
import random
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from datetime import date
from hashlib import blake2b
from pathlib import Path
from typing import Any

from merging import make
from provenance import command_line, provenance, save

from tuner.client import Client
from tuner.database.backup import back_up, restore
from tuner.database.connection import Database
from tuner.database.files import connect_to_read, mirror_of
from tuner.database.integrity.checksums import TABLES, quoted
from tuner.database.jobs import Jobs
from tuner.database.ledger import Ledger
from tuner.database.runs import Store
from tuner.model.errors import TunerError
from tuner.model.jobs import JobSpec, JobState, Origin
from tuner.model.records import RunStatus

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from answering_scene import conditions, document
from daemon_scene import MODELLED, Scene

PATIENCE_S = 600.0
START_S = 3600.0  # on a busy machine
LIMIT_S = 60.0
"""For a backup, and for a restore, of a million trials."""
MOST_SLOWER = 2.0
"""Of the 99th percentile of /v1/best beside a backup."""
_KERNELS = ("scan-lf", "scan-ks", "fft", "tridiag-cr", "tridiag-pcr")
_SIZES = range(2, 10)  # exponents
_PACE_S = 0.02  # between two questions
_KILLED_TRIALS = 4000
_TUNER = (sys.executable, "-c", "from tuner.__main__ import main; main()")


def main() -> None:
    """Do the parts, print them, write the JSON."""
    parser = command_line(__doc__)
    parser.add_argument("--trials", type=int, default=1_000_000)
    parser.add_argument("--questions", type=int, default=500)
    parser.add_argument("--turns", type=int, default=3, help="of a phase without and one with a backup")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--folder", type=Path, help="where the databases are made; gigabytes")
    parser.add_argument("--made", type=Path, help="a backup of such a database, in place of making one")
    options = parser.parse_args()
    parts: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        if options.trials:
            parts |= moved(Path(folder), options)
        if options.kills:
            parts["kills"] = killed(Path(folder), options.kills)
    protocol = {
        "trials": options.trials,
        "limit_s": LIMIT_S * options.trials / 1_000_000,
        "most_slower": MOST_SLOWER,
        "killed_trials": _KILLED_TRIALS,
    }
    save(options.out, {"provenance": provenance(), "protocol": protocol, **parts})


# --- Moved to another host, and what clients feel of the backup.


def moved(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The parts move and latency."""
    places = [folder / name for name in ("here", "there")]
    for place in places:
        place.mkdir()
    file, dice = folder / "tuner.backup", random.Random(0)  # noqa: S311 - questions, no secret
    asked = [f"{dice.choice(_KERNELS)}:N={2 ** dice.choice(_SIZES)}" for _ in range(options.questions)]
    row: dict[str, Any] = {"load": os.getloadavg()[0]}
    with Scene(places[0], (MODELLED,), bare=True) as here:
        fill(here.database, options.trials, options.made)
        row["ready_s"] = timed(lambda: begin(here))
        latency = felt(here, folder / "beside.backup", asked, options.turns)
        before = replies(here.client(PATIENCE_S), asked)
        here.stop()
        row["backup"] = command("backup", "--database", here.database, "--output", file)
        row["file_mb"] = file.stat().st_size / 1e6
        row["rows"] = counts(here.database)
        with Scene(places[1], (MODELLED,), bare=True) as there:
            row["restore"] = command("restore", file, "--database", there.database)
            row["rows_lost"] = sum(row["rows"].values()) - sum(counts(there.database).values())
            row["same_rows"] = (
                content(here.database) == content(there.database) == content(mirror_of(there.database))
            )
            row["restored_ready_s"] = timed(lambda: begin(there))
            after = replies(there.client(PATIENCE_S), asked)
    row |= {
        "questions": len(asked),
        "answered_otherwise": sum(a != b for a, b in zip(before, after, strict=True)),
    }
    print(
        f"{options.trials:,} trials, {row['file_mb']:.0f} MB: backup {row['backup']['seconds']:.1f} s"
        f" ({row['backup']['cpu_s']:.1f} s of CPU), restore {row['restore']['seconds']:.1f} s"
        f" ({row['restore']['cpu_s']:.1f} s), {row['rows_lost']} rows lost, daemon ready after"
        f" {row['restored_ready_s']:.1f} s (before: {row['ready_s']:.1f} s),"
        f" {row['answered_otherwise']} of {len(asked)} answers differ",
        flush=True,
    )
    for name, phase in latency["phases"].items():
        told = f"p50 {phase['p50_ms']:.1f} ms, p99 {phase['p99_ms']:.1f} ms of {phase['count']} answers"
        print(f"/v1/best {name:16s}: {told}", flush=True)
    return {"move": row, "latency": latency}


def fill(path: Path, trials: int, made: Path | None) -> None:
    """A database with so many trials, and answers to the questions, jobs, uses and models beside them."""
    if made is not None:
        with made.open("rb") as source:
            restore(source, str(made), path)
    else:
        make(path, trials)
    with Database(path) as database:
        jobs, ledger, store = Jobs(database), Ledger(database), Store(database)
        for place, name in enumerate(f"{kernel}:N={2**size}" for kernel in _KERNELS for size in _SIZES):
            store.end(store.begin(conditions([name])), RunStatus.FINISHED, document([name], place=place))
            ledger.add_uses({name: 1.0 + place})
            ledger.remember_model("scan-lf", name, {"v": "x" * 900})
            job = jobs.add(JobSpec((name,)), origin=Origin.CLIENT, priority=0.0)
            jobs.change(job.id, JobState.CANCELLED, reason="by a client")  # nothing is measured meanwhile


def begin(scene: Scene) -> None:
    """Start the daemon, and return when it answers: it reads every row before."""
    scene.launch()
    if not scene.until(lambda: is_ready(scene), START_S):
        raise SystemExit(f"the daemon does not answer: {scene.log.read_text(errors='replace')[-4000:]}")


def is_ready(scene: Scene) -> bool:
    """Whether the daemon answers."""
    with suppress(TunerError):
        return bool(scene.client(PATIENCE_S).status())
    return False


def replies(client: Client, asked: list[str]) -> list[dict[str, Any]]:
    """What the daemon answers, without what tells of the moment."""
    return [asdict(client.best(name, device=MODELLED)) for name in asked]


def felt(scene: Scene, file: Path, asked: list[str], turns: int) -> dict[str, Any]:
    """Times of answers, without and with a backup beside, as long as that takes."""
    times: dict[str, list[float]] = {"beside the daily": [], "without": [], "beside": []}
    client, lasted_s = scene.client(PATIENCE_S), 10.0
    ask_until(client, asked, times["beside the daily"], lambda: any(scene.state.glob("*.backup-????-??-??")))
    for _ in range(turns):
        ask_until(client, asked, times["without"], over_after(lasted_s))
        begin_s = time.perf_counter()
        words = ["db", "backup", "--database", str(scene.database), "--output", str(file)]
        process = subprocess.Popen([*_TUNER, *words], stdout=subprocess.DEVNULL)
        ask_until(client, asked, times["beside"], lambda: process.poll() is not None)  # noqa: B023
        lasted_s = time.perf_counter() - begin_s
        if process.returncode:
            raise SystemExit(f"the backup ended with {process.returncode}")
    phases = {name: percentiles(values) for name, values in times.items()}
    slower = {name: phases[name]["p99_ms"] / phases["without"]["p99_ms"] for name in times}
    return {"turns": turns, "phases": phases, "p99_slower": slower}


def over_after(seconds: float) -> Callable[[], bool]:
    """True from so many seconds on."""
    until_s = time.perf_counter() + seconds
    return lambda: time.perf_counter() > until_s


def ask_until(client: Client, asked: list[str], times: list[float], over: Callable[[], bool]) -> None:
    """Ask at a steady pace, and note how long each answer took."""
    while not over():
        begin_s = time.perf_counter()
        client.best(random.choice(asked), device=MODELLED)  # noqa: S311 - a question, no secret
        times.append(time.perf_counter() - begin_s)
        time.sleep(_PACE_S)


def percentiles(times: list[float]) -> dict[str, float]:
    """Of times in seconds."""
    hundredths = statistics.quantiles(times, n=100)
    return {"count": len(times), "p50_ms": 1e3 * hundredths[49], "p99_ms": 1e3 * hundredths[98]}


def timed(act: Callable[[], object]) -> float:
    """How long something takes, in seconds."""
    begin_s = time.perf_counter()
    act()
    return time.perf_counter() - begin_s


def command(*words: str | Path) -> dict[str, float]:
    """Seconds of a command, and seconds of CPU."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = timed(lambda: subprocess.run([*_TUNER, "db", *map(str, words)], check=True))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": seconds, "cpu_s": cpu_s, "peak_mb": after.ru_maxrss * 1024 / 1e6}


def counts(path: Path) -> dict[str, int]:
    """Rows by table."""
    connection = connect_to_read(path)
    try:
        return {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in TABLES}  # noqa: S608
    finally:
        connection.close()


def content(path: Path) -> str:
    """A digest of every row of every table."""
    digest, connection = blake2b(), connect_to_read(path)
    try:
        for table in TABLES.values():
            rows = f"SELECT {table.listed()} FROM {table.name} ORDER BY {quoted(table.key_columns)}"  # noqa: S608
            for row in connection.execute(rows):
                digest.update(ascii(row).encode())
    finally:
        connection.close()
    return digest.hexdigest()


# --- Killed at random instants.


def killed(folder: Path, kills: int) -> list[dict[str, Any]]:
    """A row for each of the three things."""
    path = folder / "killed" / "tuner.db"
    path.parent.mkdir()
    make(path, _KILLED_TRIALS)
    first = folder / "first.backup"
    back_up(path, first)
    old = content(path)
    with Database(path) as database:
        for day in (1, 2, 3):
            Ledger(database).add_uses({f"day {day}": 1.0})
            database.back_up(date(2026, 2, day))
    new = content(path)
    kept = folder / "kept"
    shutil.copytree(path.parent, kept)
    target, there = folder / "target.backup", folder / "there.db"
    scenes: tuple[tuple[str, Callable[[], object], Callable[[], str]], ...] = (
        ("backup", lambda: back_up(path, target), lambda: verdict(of_backup(target, there), old, new)),
        ("restore", lambda: put_back(first, path), lambda: verdict(of_database(path), new, old)),
        ("rotation", lambda: rotate(path), lambda: rotated(path, there, new)),
    )
    rows = []
    for number, (name, act, look) in enumerate(scenes):
        dice = random.Random(number)  # noqa: S311 - instants
        count = kills // len(scenes) + (number < kills % len(scenes))
        row = {"what": name, "killed": 0, "ended_before": 0, "old": 0, "new": 0, "lost_or_half": 0}
        lasts_s = 0.0
        while row["killed"] < count:
            shutil.rmtree(path.parent)
            shutil.copytree(kept, path.parent)
            shutil.copy(first, target)
            lasts_s, was_killed = killed_after(act, dice.uniform(0.0, lasts_s) if lasts_s else None, lasts_s)
            row["killed" if was_killed else "ended_before"] += 1
            row[look()] += 1
        row["lasts_s"] = lasts_s
        rows.append(row)
        print(row, flush=True)
    return rows


def killed_after(act: Callable[[], object], seconds: float | None, lasts_s: float) -> tuple[float, bool]:
    """Do something in a process that is killed after so long; None to let it end, and see how long it takes.

    Returns:
        How long it takes at most, as far as was seen; and whether it was killed before its end.
    """
    child, begin_s = os.fork(), time.perf_counter()
    if not child:
        with suppress(BaseException):
            act()
        os._exit(0)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    ended = not os.WIFSIGNALED(status)
    return max(lasts_s, time.perf_counter() - begin_s) if ended else lasts_s, not ended


def put_back(file: Path, path: Path) -> None:
    """Restore over what is there."""
    with file.open("rb") as source:
        restore(source, str(file), path, replace=True)


def rotate(path: Path) -> None:
    """The fourth day."""
    with Database(path) as database:
        database.back_up(date(2026, 2, 4))


def verdict(found: str, old: str, new: str) -> str:
    """The key of the row that counts this."""
    return {old: "old", new: "new"}.get(found, "lost_or_half")


def of_backup(file: Path, there: Path) -> str:
    """All that is in a backup, restored; its checksum is verified with that."""
    try:
        put_back(file, there)
    except Exception as error:  # noqa: BLE001 - whatever keeps it from being restored
        return str(error)
    return of_database(there)


def of_database(path: Path) -> str:
    """All that is in a database and its mirror, once somebody has opened it."""
    with Database(path) as database:
        if database.examine().isolated:
            return "rows were kept aside"
    found = {content(path), content(mirror_of(path))}
    return found.pop() if len(found) == 1 else "the mirror differs"


def rotated(path: Path, there: Path, new: str) -> str:
    """Three whole backups at least, and the database as it was."""
    kept = sorted(path.parent.glob("tuner.db.backup-????-??-??"))
    contents = [of_backup(file, there) for file in kept]
    whole = all(len(each) == len(new) for each in contents)
    if not whole or len(kept) < 3 or of_database(path) != new or new not in contents:
        return "lost_or_half"
    return "new" if kept[-1].name.endswith("-04") else "old"


if __name__ == "__main__":
    main()
