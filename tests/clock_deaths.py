"""Dies at every single line of setting and restoring a clock or a power limit, as SIGKILL does; a program.

It is one of its own as it forks some hundred times, which is slow in a large process.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from fake_actuator import Holder
from fake_nvml_state import UUID, fake_nvml, library
from jetson_trees import build, limits_hz
from tuner.power.clocks import clockd, devfreq, journal
from tuner.power.clocks.actuator import Actuator, ClockPaths
from tuner.power.clocks.control import restore_stale
from tuner.power.clocks.devfreq import DevfreqActuator
from tuner.power.nvml import clocks
from tuner.power.nvml.clocks import NvmlPowerLimitActuator

STEPS = {str(module.__file__) for module in (clockd, devfreq, journal, clocks)}
SURVIVED = 7


class Setting(NamedTuple):
    """Something that is set and restored.

    Attributes:
        open: its actuator.
        value: to set.
        present: what is set now.
        where: it is found.
    """

    open: Callable[[], Actuator]
    value: int
    present: Callable[[], object]
    where: ClockPaths


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


def die_at_any_line(setting: Setting) -> None:
    """Die at each line of setting and restoring, and check that the next start finds the way back."""
    run_dir = setting.where.directory
    assert run_dir is not None
    before, left_set = setting.present(), 0
    line, status = 0, 0
    while status == 0:
        line += 1
        pid = os.fork()
        if pid == 0:
            try:
                holder = Holder(setting.open, run_dir)
                die_at(line)
                holder.set(setting.value)
                holder.leases.drop("client")
            finally:
                os._exit(SURVIVED)
        _, status = os.waitpid(pid, 0)
        left_set += setting.present() != before
        outcomes = restore_stale(setting.where)

        assert setting.present() == before, line
        assert {outcome.state for outcome in outcomes} <= {"restored", "undone"}
        assert [path.suffix for path in run_dir.glob("*")] in ([], [".lock"]), line
    assert os.waitstatus_to_exitcode(status) == SURVIVED
    assert left_set > line / 8, f"{left_set} of {line}: the test was not looking where it matters"


def clock_limits(folder: Path) -> Setting:
    """The clock limits of a fake Jetson."""
    sysfs, nothing = build(folder, "agx-orin"), folder / "nothing"
    where = ClockPaths(str(nothing), sysfs / "class/devfreq", nothing, folder / "run", nothing)
    return Setting(lambda: DevfreqActuator("board", root=where.devfreq), 612, lambda: limits_hz(sysfs), where)


def main(folder: Path) -> None:
    """A clock first, then a power limit."""
    for name in ("clock", "limit"):
        (folder / name).mkdir()
    die_at_any_line(clock_limits(folder / "clock"))
    with fake_nvml(folder / "limit") as state:
        nothing = folder / "nothing"
        where = ClockPaths(library(), nothing, nothing, folder / "limit" / "run", nothing)
        die_at_any_line(
            Setting(lambda: NvmlPowerLimitActuator(UUID), 450, lambda: state.limit_milliwatts, where)
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
