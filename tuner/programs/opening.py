"""Sensors and controls of the GPU that a program runs on, opened for a search, and one run that goes on."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NoReturn

from tuner.devices.base import Check, RunRecord
from tuner.devices.gpu_users import require_exclusive_gpu
from tuner.devices.sensors import open_clocks, open_power_limits, restore_stale_clocks
from tuner.joules.traces import Recorder, running
from tuner.joules.watching import THIS_HOST, Gpu, gpu_for, opened, opened_host, others_in_sight
from tuner.measurement.settle import SettingLock
from tuner.model.errors import (
    ClockError,
    CompileError,
    DeviceError,
    DeviceUnavailableError,
    InputError,
    SensorUnavailableError,
)
from tuner.model.jobs import DeviceIdentity
from tuner.model.objective import Objective
from tuner.model.plan import Plan, Progress, Resources
from tuner.model.trial import Status
from tuner.power.base import ClockControl, PowerSampler
from tuner.power.clocks.control import LeasedPowerProfile, open_power_profiles
from tuner.programs.beats import check_readings
from tuner.programs.measuring import ProgramMeasurer, TracedRuns
from tuner.programs.phases import WINDOW_S, PhaseMeasurer, StepWindows
from tuner.programs.program import AS_FOUND, PROFILE, Program
from tuner.search.plan import choose_run_clocks, choose_run_limits
from tuner.search.request import SearchRequest
from tuner.search.setup import MeasurementSetup


class BystandingDevice:
    """Implements ``Device`` for programs, which open the GPU themselves: a name, and a clock.

    Attributes:
        identity: of the GPU.
    """

    limits = None

    def __init__(self, identity: DeviceIdentity) -> None:
        self.identity = identity

    def resources(
        self, plans: Sequence[Plan], progress: Progress | None = None
    ) -> list[tuple[Resources, ...] | CompileError]:
        """Nothing is compiled."""
        del progress
        return [() for _ in plans]

    def check(self, plan: Plan, seed: int) -> Check:  # noqa: ARG002 - programs tell by themselves
        """Programs check their answers."""
        return Check(Status.OK)

    def run(self, plans: Sequence[Plan], window_s: float) -> RunRecord:  # noqa: ARG002 - none runs
        """No kernel runs here."""
        self._refuse()

    def run_single(self, plans: Sequence[Plan], window_s: float) -> RunRecord:  # noqa: ARG002 - as above
        """No kernel runs here."""
        self._refuse()

    def sm_units(self) -> tuple[int, int]:
        """Nothing is shared out."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise DeviceError(f"{self.identity.name}: programs run beside it, and no kernels on it")

    def free_memory_bytes(self) -> int:
        """Nobody asks."""
        return 0

    def now_s(self) -> float:
        """Monotonic time."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def resume_at(self, ended_s: float) -> None:
        """A real clock needs nothing."""

    def own_processes(self) -> int:
        """None computes."""
        return 0

    def abort(self) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Nothing is held."""


@contextmanager
def open_runs(
    device_spec: str | None,
    request: SearchRequest,
    program: Program,
    tell: Callable[[str], None],
    ended: Callable[[int], object] = int,
) -> Iterator[MeasurementSetup]:
    """Open sensors and controls of the GPU that a program runs on, and close them on every way out.

    A program that is tuned in phases is started here, and its end is waited for.

    Args:
        device_spec: ``cuda:N``, a UUID or NVML's index; None for ``cuda:0``, or the first.
        request: whose objective, sensor, scope, clocks and power limits are wanted.
        program: what runs.
        tell: takes a sentence for the user.
        ended: takes the exit code of a program that was tuned in phases.

    Raises:
        InputError: the objective needs joules, and no power sensor answers.
        DeviceUnavailableError: there is no such GPU.
    """
    needs_energy = Objective(request.objective).needs_energy
    wanted = [request.sensor] if request.sensor else []
    with ExitStack() as stack:
        gpu = gpu_for(device_spec, wanted, "tuner program run", request.scope)
        spec = device_spec or ("host" if gpu is THIS_HOST else "cuda:0")
        identity = DeviceIdentity(spec, gpu.name, str(gpu.gpu), gpu.driver, "", modelled=False)
        device = BystandingDevice(identity)
        samplers: tuple[PowerSampler, ...] = ()
        try:
            samplers = (
                *stack.enter_context(opened(gpu, wanted)),
                *stack.enter_context(opened_host(request.scope)),
            )
        except (SensorUnavailableError, DeviceUnavailableError) as error:
            if needs_energy:
                raise InputError(f"--objective {request.objective}: {error}; use --objective time") from error
            tell(f"no energy is measured: {error}")
        clocks = limits = None
        no_clocks = no_limits = "there is no GPU"
        if gpu is not THIS_HOST:
            restore_stale_clocks()
            clocks, no_clocks = open_clocks(device)
            if request.power_limits != "off":
                limits, no_limits = open_power_limits(device)
            _tell_of_others(gpu, tell)
        profiles = power_profiles(gpu) if PROFILE in program.tunables else None
        for control in (clocks, limits, profiles):
            if control is not None:
                stack.callback(control.close)
        numbers = {}
        if profiles is not None:
            if profiles.sets_clocks and request.clocks != "off":
                raise InputError(
                    f"--clocks {request.clocks}: a Jetson's power modes set clocks, too: leave one out"
                )
            wanted_profiles = [str(name) for name in program.tunables[PROFILE] if name != AS_FOUND]
            numbers = {name: profiles.number(name) for name in wanted_profiles}
        setting, readable = SettingLock(clocks, limits, profiles), _readable(clocks)
        measurer: ProgramMeasurer
        if program.phase:
            choose_run_clocks(request, clocks, no_clocks)  # what cannot be is told before anything runs
            choose_run_limits(request, limits, no_limits)
            check_readings(program.phase, [sampler.info for sampler in samplers])
            command = stack.enter_context(
                running(program.rendered(program.space()[0])[0], Recorder(samplers, readable), ended)
            )
            windows = StepWindows(command, program.phase, request.window_s or WINDOW_S, tell)
            measurer = PhaseMeasurer(program, windows, setting, request.max_slowdown, tell=tell)
        else:
            measurer = ProgramMeasurer(
                program,
                TracedRuns(program, gpu, samplers, readable),
                setting,
                precision=request.energy_precision,
                needs_energy=needs_energy,
                tell=tell,
                profiles=numbers,
            )
        stack.callback(measurer.close)
        sensor = samplers[0].info.name if samplers else None
        yield MeasurementSetup(device, measurer, clocks, no_clocks, sensor, 0.0, (), limits, no_limits)


def power_profiles(gpu: Gpu) -> LeasedPowerProfile:
    """Control of a GPU's power profiles.

    Raises:
        InputError: it has none that may be set.
    """
    try:
        return open_power_profiles(gpu.gpu)
    except ClockError as error:
        raise InputError(f"--power-profiles: {error}; leave it out") from error


def _tell_of_others(gpu: Gpu, tell: Callable[[str], None]) -> None:
    """Warn of who else runs on the GPU, and of other GPUs that a program may use."""
    try:
        require_exclusive_gpu(gpu.gpu)
    except DeviceError as error:
        tell(f"beware: {error}")
    if others := others_in_sight(gpu):
        tell(
            f"beware: joules and clocks are those of {gpu.name} alone, and the program may use"
            f" {others} more; CUDA_VISIBLE_DEVICES={gpu.uuid} shows it this one alone"
        )


def _readable(clocks: ClockControl | None) -> ClockControl | None:
    """A control that tells the clock; None where it does not."""
    if clocks is None:
        return None
    try:
        clocks.read()
    except ClockError:
        return None
    return clocks
