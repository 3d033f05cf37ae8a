"""Hands the program hostile files: does it write elsewhere, hang, take memory or let a terminal be driven?

Options of NVRTC in all spellings, includes, TOML and JSON that are deep or huge, bombs, headers of NumPy that
lie, pipes and devices in the place of files, poisoned caches, escapes in names and errors, sources that keep
a compiler busy. Each is run as a process of its own, whose tree is measured. Where NVRTC is at work, its time
and memory are stated apart: they are bounded by the limits of compile children.

    python benchmarks/hostile_files.py --out benchmarks/results/hostile-files.json
"""

import collections
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from provenance import command_line, provenance, save

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from hostile_files import CHECK, CUBINS, RUN, HostileFile, hostile_files, kernel

MOST_SECONDS = 5.0
MOST_BYTES = 300 * 10**6
COMPILE_SECONDS = 75.0  # the time-out of one compilation is 60 s
PATIENCE_S = 180.0
INTERVAL_S = 0.02
OWN = re.compile(r"home(/.*)?|work/(cache(/.*)?|runs\.db.*|.*\.(toml|zip))")  # what commands may write
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_PROGRAM = (sys.executable, "-c", "from tuner.__main__ import main; main()")


@dataclass
class Outcome:
    """What one file came to."""

    kind: str
    name: str
    code: int = 0
    seconds: float = 0.0  # without those in which other programs held its processor
    peak_bytes: int = 0
    compiles: bool = False
    wrong: list[str] = field(default_factory=list)
    said: str = ""


def main() -> int:
    """Try all, print a table, write it; 1 where a target is missed."""
    parser = command_line(__doc__)
    parser.add_argument("--kind", help="only those whose kind has this word")
    parser.add_argument("--jobs", type=int, default=2, help="files tried at a time")
    options = parser.parse_args()
    usual = {name: usual_outcome(command) for name, command in (("check", CHECK), ("run", RUN))}
    wanted = [one for one in hostile_files() if not options.kind or options.kind in one.kind]
    outcomes = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for number, outcome in enumerate(pool.map(tried, wanted), 1):
            outcomes.append(outcome)
            print(
                f"{number}/{len(wanted)} {outcome.kind}, {outcome.name}: {outcome.wrong or 'held'}",
                flush=True,
            )
    found = summary(outcomes, usual)
    show(found)
    save(options.out, {"provenance": provenance(), **found})
    return 1 if found["missed"] else 0


def usual_outcome(command: Sequence[str]) -> Outcome:
    """What an honest kernel takes with the same command."""
    honest = HostileFile(
        "honest", command[0], lambda folder, _: kernel(folder), tuple(command), (0,), True, True
    )
    return tried(honest)


def tried(hostile: HostileFile) -> Outcome:
    """Run one; what is slow is run again, as others use this machine, too."""
    outcome = _tried(hostile)
    if outcome.wrong and all("seconds" in wrong for wrong in outcome.wrong):
        again = _tried(hostile)
        outcome = again if again.seconds < outcome.seconds else outcome
    return outcome


def _tried(hostile: HostileFile) -> Outcome:
    with tempfile.TemporaryDirectory() as root:
        top = Path(root)
        for name in ("home", "work", "theirs"):
            (top / name).mkdir()
        victim = top / "theirs/victim"
        victim.write_text("precious\n")
        hostile.make(top / "work", victim)
        outcome = Outcome(hostile.kind, hostile.name, compiles=hostile.compiles)
        if hostile.kind == "poisoned cache":
            run(hostile.command, top, Outcome("", ""))
            poison(top / "work" / CUBINS, top / "work/poison", hostile.name)
        before = contents(top)
        output = run(hostile.command, top, outcome)
        judge(hostile, outcome, output, changed(before, contents(top)))
    return outcome


def run(command: Sequence[str], top: Path, outcome: Outcome) -> str:
    """Run a command of the program in a folder, and measure its tree of processes."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(top / "home"),
        "XDG_CACHE_HOME": str(top / "work/cache"),
        "TMPDIR": str(top / "home"),
        "COLUMNS": "200",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    begun = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [*_PROGRAM, *command],
            cwd=top / "work",
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        peaks, waited_s = [0], [0.0]
        over = threading.Event()
        watcher = threading.Thread(target=watch, args=(process.pid, peaks, waited_s, over))
        watcher.start()
        timer = threading.Timer(PATIENCE_S, end, args=(process.pid,))
        timer.start()
        outcome.code = process.wait()
        timer.cancel()
        over.set()
        watcher.join()
        outcome.seconds = time.monotonic() - begun - waited_s[0]
        outcome.peak_bytes = peaks[0]
        output.seek(0)
        return output.read(2**22).decode(errors="backslashreplace")


def end(pid: int) -> None:
    """Kill a process, and none that has its number later."""
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def watch(pid: int, peaks: list[int], waited_s: list[float], over: threading.Event) -> None:
    """Note the most memory of a process and its descendants, and how long others held its processor."""
    while not over.wait(INTERVAL_S):
        with contextlib.suppress(OSError, ValueError, IndexError):
            waited_s[0] = int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) * 1e-9
        own = tree(pid)
        peaks[0] = max(peaks[0], sum(map(memory_of, own)), *map(peak_of, own))


def tree(pid: int) -> set[int]:
    """A process and its descendants."""
    parents: dict[int, list[int]] = collections.defaultdict(list)
    for entry in os.listdir("/proc"):  # noqa: PTH208 - names alone
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                stat = Path(f"/proc/{entry}/stat").read_text(errors="replace")
                parents[int(stat.rpartition(")")[2].split()[1])].append(int(entry))
    found, left = set(), [pid]
    while left:
        one = left.pop()
        found.add(one)
        left += parents[one]
    return found


def memory_of(pid: int) -> int:
    """Bytes of a process; of shared pages its share."""
    with contextlib.suppress(OSError, TypeError):
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return int(re.search(r"^Pss: *(\d+)", text, re.MULTILINE)[1]) * 1024  # type: ignore[index]
    return 0


def peak_of(pid: int) -> int:
    """The most bytes that a process has had, so that what lies between two looks counts, too."""
    with contextlib.suppress(OSError, TypeError):
        text = Path(f"/proc/{pid}/status").read_text(errors="replace")
        return int(re.search(r"^VmHWM:\s*(\d+)", text, re.MULTILINE)[1]) * 1024  # type: ignore[index]
    return 0


def poison(cache: Path, poison: Path, name: str) -> None:
    """Put something else in the place of all that a cache holds."""
    data = poison.read_bytes()
    for path in cache.iterdir():
        path.unlink()
        if name == "pipes":
            os.mkfifo(path)
            continue
        path.write_bytes(data)
        if name.endswith("of others"):
            path.chmod(0o666)


def contents(top: Path) -> dict[str, tuple[int, int, str]]:
    """What is below a folder, but for what commands may write."""
    found = {}
    for path in top.rglob("*"):
        name = str(path.relative_to(top))
        if not OWN.fullmatch(name) or name.startswith("theirs"):
            status = path.lstat()
            text = path.read_text() if name.startswith("theirs/") and path.is_file() else ""
            found[name] = (status.st_mode, 0 if path.is_dir() else status.st_mtime_ns, text)
    return found


def changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Names of what is new, gone or written."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def judge(hostile: HostileFile, outcome: Outcome, output: str, written: list[str]) -> None:
    """Note what is wrong with an outcome."""
    outcome.said = output.strip()[:300]
    seconds = COMPILE_SECONDS if hostile.compiles else MOST_SECONDS
    if written:
        outcome.wrong.append(f"wrote {', '.join(written)}")
    if "root:x:0:0" in output:
        outcome.wrong.append("showed a file from elsewhere")
    if outcome.seconds > seconds:
        outcome.wrong.append(f"{outcome.seconds:.1f} seconds")
    if outcome.peak_bytes > MOST_BYTES and not hostile.compiles:
        outcome.wrong.append(f"{outcome.peak_bytes / 1e6:.0f} MB of memory")
    if _CONTROL.search(output):
        outcome.wrong.append(f"control characters: {_CONTROL.findall(output)[:5]}")
    if "Traceback" in output:
        outcome.wrong.append("a traceback")
    if outcome.code not in hostile.codes:
        outcome.wrong.append(f"exit code {outcome.code}")


def summary(outcomes: Sequence[Outcome], usual: dict[str, Outcome]) -> dict[str, Any]:
    """Counts by kind, the most of everything, and the targets that were missed."""
    kinds: dict[str, dict[str, Any]] = {}
    for one in outcomes:
        row = kinds.setdefault(
            one.kind,
            {"files": 0, "wrong": 0, "longest_s": 0.0, "most_mb": 0.0, "codes": collections.Counter()},
        )
        row["files"] += 1
        row["wrong"] += bool(one.wrong)
        row["longest_s"] = round(max(row["longest_s"], one.seconds), 2)
        row["most_mb"] = round(max(row["most_mb"], one.peak_bytes / 1e6))
        row["codes"][str(one.code)] += 1
    ours = [one for one in outcomes if not one.compiles]
    return {
        "targets": {
            "written": 0,
            "seconds": MOST_SECONDS,
            "bytes": MOST_BYTES,
            "compile_seconds": COMPILE_SECONDS,
        },
        "usual": {name: asdict(one) for name, one in usual.items()},
        "files": len(outcomes),
        "longest_s": round(max((one.seconds for one in ours), default=0.0), 2),
        "most_mb": round(max((one.peak_bytes for one in ours), default=0) / 1e6),
        "with_nvrtc": {
            "files": len(outcomes) - len(ours),
            "longest_s": round(max((one.seconds for one in outcomes if one.compiles), default=0.0), 2),
            "most_mb": round(max((one.peak_bytes for one in outcomes if one.compiles), default=0) / 1e6),
        },
        "missed": [f"{one.kind}, {one.name}: {'; '.join(one.wrong)}" for one in outcomes if one.wrong],
        "kinds": {kind: {**row, "codes": dict(row["codes"])} for kind, row in kinds.items()},
        "outcomes": [asdict(one) for one in outcomes],
    }


def show(found: dict[str, Any]) -> None:
    """The table by kind, and what was missed."""
    print(f"{'kind':26} {'files':>6} {'wrong':>6} {'longest':>9} {'memory':>9}  exit codes")
    for kind, row in found["kinds"].items():
        codes = ", ".join(f"{code}: {count}" for code, count in sorted(row["codes"].items()))
        line = f"{kind:26} {row['files']:6} {row['wrong']:6} {row['longest_s']:7.2f} s {row['most_mb']:6} MB"
        print(f"{line}  {codes}")
    for name, one in found["usual"].items():
        print(f"an honest kernel, {name}: {one['seconds']:.2f} s, {one['peak_bytes'] / 1e6:.0f} MB")
    nvrtc = found["with_nvrtc"]
    print(f"{found['files']} files, {len(found['missed'])} missed; without NVRTC at work at most")
    print(f"  {found['longest_s']} s, {found['most_mb']} MB; with it")
    print(f"  {nvrtc['longest_s']} s, {nvrtc['most_mb']} MB")


if __name__ == "__main__":
    sys.exit(main())
