"""Phases of a whole run, by folded stacks of `py-spy`: seconds in which Python was at work, by process.

Samples of threads that wait are left out, so a phase's seconds are the interpreter's, not the wall's; phases
of two processes, and of a process's threads, lie beside each other.

    pip install '.[cuda13]' py-spy
    RUN="tuner run scan-lf:N=1024 --objective time --policy exhaustive"
    $RUN && py-spy record -r 400 --subprocesses -t -f raw -o now.raw -- $RUN
    python benchmarks/warm_profile.py [before=before.raw] now=now.raw --out warm-profile-h200.json
"""

from collections import Counter
from pathlib import Path

from provenance import command_line, provenance, save

RATE_HZ = 400
PHASES = (  # the first whose word is in a frame, from the outermost frame on
    ("import", ("_find_and_load", "site>")),
    ("context", ("make_context",)),
    ("answer check", ("CudaDevice.check", "CudaDevice.prepare", "AnswerKernels")),
    ("windows", ("CudaDevice.run", "CudaDevice._rounds")),
    ("contenders in turn", ("Session._confirm",)),
    ("storing a trial", ("Session._record",)),
    ("measuring a trial", ("TrialMeasurer.measure",)),
    ("compile, load cubins", ("Compilation._work", "Session._compile_defaults")),
    ("read kernel files", ("Catalog.", "read_ahead", "prepared_workloads")),
    ("messages between processes", ("_receive", "_send")),
)


def main() -> None:
    """Print and write the phases of each file."""
    parser = command_line(__doc__)
    parser.add_argument("stacks", nargs="+", metavar="NAME=FILE")
    parser.add_argument("--taken-on", default="this machine", help="GPU and driver, if elsewhere")
    options = parser.parse_args()
    named = [word.split("=", 1) for word in options.stacks]
    found = {name: phases(Path(path).read_text().splitlines()) for name, path in named}
    rows = sorted({row for each in found.values() for row in each})
    print(f"| process | phase | {' | '.join(found)} |\n| --- | --- |{' ---: |' * len(found)}")
    for process, phase in rows:
        seconds = " | ".join(f"{each[process, phase]:.2f} s" for each in found.values())
        print(f"| {process} | {phase} | {seconds} |")
    listed = {name: [[*row, each[row]] for row in rows if each[row]] for name, each in found.items()}
    origin = {"provenance": provenance(), "taken_on": options.taken_on, "rate_hz": RATE_HZ}
    save(options.out, {**origin, "process_phase_s": listed})


def phases(lines: list[str]) -> Counter[tuple[str, str]]:
    """Seconds by process and phase of lines ``frame;frame count``."""
    seconds: Counter[tuple[str, str]] = Counter()
    for line in lines:
        stack, count = line.rsplit(" ", 1)
        frames = stack.split(";")
        process = "worker" if sum(frame.startswith("process ") for frame in frames) > 1 else "command"
        named = (
            phase
            for frame in frames
            if not frame.startswith(("process ", "thread "))
            for phase, words in PHASES
            if any(word in frame for word in words)
        )
        seconds[process, next(named, "other")] += int(count)
    return Counter({row: round(count / RATE_HZ, 3) for row, count in seconds.items()})


if __name__ == "__main__":
    main()
