"""Dies at every single line of setting and restoring a clock, as SIGKILL deals it; a program.

It is one of its own as it forks some hundred times, which is slow in a large process.
"""

import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from fake_actuator import Holder
from jetson_trees import build, limits_hz
from tuner.power.clocks import clockd_leases, devfreq, journal, ownership
from tuner.power.clocks.actuator import ClockPaths
from tuner.power.clocks.controls import restore_stale
from tuner.power.clocks.devfreq import DevfreqActuator

STEPS = {str(module.__file__) for module in (clockd_leases, devfreq, journal, ownership)}
SURVIVED = 7


def die_at(line: int) -> None:
    """End this process, without another word, before the so-manieth line of the modules looked at."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if frame.f_code.co_filename not in STEPS:
            return None
        if event == "line":
            count += 1
            if count == line:
                os._exit(0)
        return trace

    sys.settrace(trace)


def die_at_any_line(folder: Path) -> None:
    """Die at each line of setting and restoring a clock, and check that the next start finds the way back."""
    sysfs = build(folder, "agx-orin")
    before, left_set = limits_hz(sysfs), 0
    nothing, run_dir = folder / "nothing", folder / "run"
    where = ClockPaths(str(nothing), sysfs / "class/devfreq", nothing, run_dir, nothing)
    line, status = 0, 0
    while status == 0:
        line += 1
        pid = os.fork()
        if pid == 0:
            try:
                holder = Holder(lambda: DevfreqActuator("board", root=where.devfreq), run_dir)
                die_at(line)
                holder.set(612)
                holder.leases.drop("client")
            finally:
                os._exit(SURVIVED)
        _, status = os.waitpid(pid, 0)
        left_set += limits_hz(sysfs) != before
        outcomes = restore_stale(where)

        assert limits_hz(sysfs) == before, line
        assert {outcome.state for outcome in outcomes} <= {"restored", "undone"}
        assert [path.suffix for path in run_dir.glob("*")] in ([], [".lock"]), line
    assert os.waitstatus_to_exitcode(status) == SURVIVED
    assert left_set > line / 4, "the test was not looking where it matters"


if __name__ == "__main__":
    die_at_any_line(Path(sys.argv[1]))
