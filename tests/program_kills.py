"""A scene of ``clock_kills``: ``tuner program exec`` holds clock and power limit, run after run."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clock_kills import GuardedScene, both_scene, nvml_scene

from tuner.devices.choice import open_device
from tuner.devices.sensors import open_clocks, open_power_limits
from tuner.measurement.settle import SettingLock
from tuner.model.jobs import DeviceIdentity
from tuner.model.trial import Energy, Trial
from tuner.programs.measuring import ProgramMeasurer, ProgramRun
from tuner.programs.program import Program
from tuner.programs.tuning import BystandingDevice, tune_program
from tuner.report.progress import RunProgress
from tuner.search.request import SearchRequest
from tuner.search.setup import MeasurementSetup

HOLDER = """
import ctypes, sys
from pathlib import Path

import pynvml
from tuner.cli import db, program
from tuner.cli.main import main
from tuner.joules import watching
from tuner.power.clocks import control
from tuner.power.clocks.actuator import ClockPaths

gpu, library, devfreq, directory, socket, settings = sys.argv[1:]
pynvml.nvmlLib = ctypes.CDLL(library)
nothing = Path(directory) / "nothing"
control.SYSTEM = ClockPaths(library, Path(devfreq), nothing, Path(directory), Path(socket))
database = str(Path(directory).parent / "tuner.db")
words = ["program", "exec", "--device", "0", "--use", "1", "--database", database, "--", "sleep", "0.02"]
if settings == "clock":  # chosen while a run goes on
    words = ["program", "run", "--device", "0", "--database", database, "--objective", "time", "--clocks"]
    words += ["1500,900", "--budget", "6", "--window", "0.02", "--phase", "step", "--", "sh", "-c"]
    words.append("echo here; for i in $(seq 1000); do echo step > $TUNER_MARKS; sleep 0.002; done")
else:
    print("here", flush=True)  # imports hold nothing
while True:
    try:
        main(words, prog_name="tuner")
    except SystemExit as end:
        if end.code:
            break
"""
"""Ends with the first command that a signal has ended."""


class ProgramScene(GuardedScene):
    """The command that holds, and its guardians."""

    script = HOLDER


@contextmanager
def phase_scene(folder: Path) -> Iterator[ProgramScene]:
    """The clock of a fake H200 is chosen while a program runs, which marks its steps."""
    with nvml_scene(folder) as scene:
        yield ProgramScene("program-phase", scene._gpu, scene._where, scene.changed, scene.settings)


@contextmanager
def program_scene(folder: Path) -> Iterator[ProgramScene]:
    """A run of a program is stored, whose answer is a clock and a power limit of a fake H200."""
    tune(folder / "tuner.db")
    with both_scene(folder) as scene:
        yield ProgramScene("program-exec", scene._gpu, scene._where, scene.changed, scene.settings)


def tune(database: Path) -> None:
    """Store a run of a program that costs least at 900 MHz and 400 W."""
    program = Program(("sleep", "0.02"))

    def run(trial: Trial, _most_s: float, _times: int) -> ProgramRun:
        joules = 3.0 * ((trial.clock_mhz or 0) + (trial.power_limit_w or 0))  # so that the limit binds
        return ProgramRun(10.0, Energy(joules, 0.001 * joules, joules / 10.0, "scripted", "gpu"), {})

    @contextmanager
    def opened(*_: object) -> Iterator[MeasurementSetup]:
        modelled, _notice = open_device("sim:h200")
        clocks, limits = open_clocks(modelled)[0], open_power_limits(modelled)[0]
        tries = ProgramMeasurer(
            program,
            run,
            SettingLock(clocks, limits),
            precision=0.01,
            needs_energy=True,
            tell=list[str]().append,
        )
        device = BystandingDevice(DeviceIdentity("cuda:0", "NVIDIA H200", "GPU-1", "1", "", modelled=False))
        yield MeasurementSetup(device, tries, clocks, "", "scripted", 0.0, (), limits)
        modelled.close()

    request = SearchRequest(objective="energy", clocks="1980,900", power_limits="700,400")
    with RunProgress("energy") as progress:
        tune_program(program, request, progress, opened, database=database)
