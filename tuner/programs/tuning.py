"""From a program to its answer: sensors and controls are opened, and it is searched like a kernel."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from tuner.database.runs import Store
from tuner.devices.base import Check, RunRecord, SystemClock
from tuner.devices.gpu_users import require_exclusive_gpu
from tuner.devices.sensors import is_jetson, open_clocks, open_power_limits, restore_stale_clocks
from tuner.joules.traces import Recorder, running
from tuner.joules.watching import THIS_HOST, Gpu, gpu_for, opened, opened_host, others_in_sight
from tuner.kernel_files.source_folder import own_build
from tuner.measurement.settle import SettingLock
from tuner.model.errors import (
    ClockError,
    CompileError,
    DeviceError,
    DeviceUnavailableError,
    InputError,
    SensorUnavailableError,
    TunerError,
)
from tuner.model.jobs import DeviceIdentity
from tuner.model.objective import Objective, described, normalised_scope
from tuner.model.plan import Plan, ProblemSpec, Progress, Resources, Work
from tuner.model.records import Conditions
from tuner.model.trial import Status
from tuner.power.base import ClockControl, PowerSampler
from tuner.power.clocks.control import LeasedPowerProfile, open_power_profiles
from tuner.programs.beats import check_readings
from tuner.programs.measuring import ProgramMeasurer, TracedRuns
from tuner.programs.phases import WINDOW_S, PhaseMeasurer, StepWindows
from tuner.programs.program import AS_FOUND, PROFILE, Program
from tuner.recordings.values import RecordedKernel
from tuner.search.answer import PAIRS, Outcome
from tuner.search.candidates import PreparedWorkload
from tuner.search.option_checks import LimitReachedError
from tuner.search.plan import SearchPlan, choose_run_clocks, choose_run_limits
from tuner.search.request import SearchRequest
from tuner.search.session import Session
from tuner.search.setup import MeasurementSetup
from tuner.search.tuning import RunListener
from tuner.space.occupancy import candidate


class BystandingDevice(SystemClock):
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
        spec = device_spec or ("cuda:0" if gpu.uuid or is_jetson() else "host")
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


# --- A program planned as one workload, each trial a whole run.

_RUNS = 10  # of a program without tunables: six settings, and the best in turn with the default
_MOST_RUNS = 40  # that are made unasked
_WINDOWS = 12  # of a run that goes on, each of which takes seconds
_AT_THE_END = 2 * PAIRS
_LEAST = 2 + _AT_THE_END  # the default and another setting

Opener = Callable[
    [str | None, SearchRequest, Program, Callable[[str], None]], AbstractContextManager[MeasurementSetup]
]
"""Opens what a program is measured with, as ``opening.open_runs`` does."""


def tune_program(
    program: Program,
    request: SearchRequest,
    listener: RunListener,
    opener: Opener,
    *,
    device: str | None = None,
    database: Path | None = None,
    resume: bool = False,
) -> Outcome:
    """Search the clocks, power limits and tunables of a program; trials are stored as they end.

    Args:
        program: what runs.
        request: options of the search; its budget counts all runs, those of the end too.
        listener: hears how it comes on.
        opener: opens sensors and controls.
        device: see ``open_runs``.
        database: None for the user's own.
        resume: continue the newest unfinished run under the same conditions.

    Raises:
        InputError: options that cannot be, or the program fails as it stands.
        ClockError: clocks or power limits were asked for that cannot be set.
        DeviceUnavailableError: there is no such GPU.
    """
    request.check()
    space = program.space()
    usual = _WINDOWS if program.phase else min(_MOST_RUNS, _RUNS + len(space) - 1)
    runs = request.budget or usual
    if runs < _LEAST:
        raise InputError(
            f"--budget {runs}: the default, another setting and {PAIRS} turns of both take {_LEAST} runs"
        )
    if program.phase and resume:
        raise InputError("--resume: a run that has ended does not go on; leave --phase or --resume out")
    if len(space) == 1 and request.clocks == request.power_limits == "off":
        raise InputError(
            f"{program.command[0]}: there is nothing to choose; give --clocks, --power-limits,"
            " --power-profiles, --tunable or --env"
        )
    with Store(database) as store, opener(device, request, program, listener.told) as setup:
        plan = _plan(program, replace(request, budget=runs - _AT_THE_END), setup)
        measurer = setup.measurer
        if not isinstance(measurer, PhaseMeasurer):
            return Session(plan, setup, store, listener).run(resume=resume, insisted=resume)
        try:
            plan = measurer.begun(
                plan,
                () if setup.clocks is None else setup.clocks.supported_mhz(),
                () if setup.power_limits is None else setup.power_limits.supported_w(),
            )
            outcome = Session(plan, setup, store, listener).run()
            measurer.keep(outcome)
        except LimitReachedError as end:
            more = "" if "marked" in str(end) else "; run more steps, or give a shorter --window"
            raise InputError(f"--phase {program.phase}: nothing was measured: {end}{more}") from end
        except TunerError as error:
            listener.told(f"beware: {error}; the program goes on at its usual clock")
            raise
        return outcome


def _plan(program: Program, request: SearchRequest, setup: MeasurementSetup) -> SearchPlan:
    """The search of a program, every choice made."""
    kernel = RecordedKernel(program.workload.kernel, "", {}, None, program.fingerprint)
    space, workload = program.space(), program.workload
    clocks_mhz = choose_run_clocks(request, setup.clocks, setup.no_clocks)
    power_limits_w = choose_run_limits(request, setup.power_limits, setup.no_power_limits)
    unit = program.phase if program.counted is None else program.counted.unit
    rate = f"{unit}/s" if unit else ""
    work = Work(0.0, 0.0, rate_units=1.0 if rate else 0.0, rate_name=rate, rate_scale=1.0)
    prepared = PreparedWorkload(
        workload=workload,
        kernel=kernel,
        space=space,
        plans={each: Plan(workload, each, (), (), ProblemSpec("program"), work) for each in space},
        candidates=tuple(candidate(each, (), {}, work=work) for each in space),
        default=space[0],
        min_occupancy=0.0,
        pruned={},
        compile_errors=(),
    )
    counted = program.phase or (program.counted.name if program.counted else "")
    notices = [f"times and joules are per unit of work, by {counted}"] if counted else []
    conditions = Conditions(
        workloads=((str(workload), workload.batch),),
        sources={kernel.name: kernel.fingerprint},
        device=setup.device.identity,
        objective=described(
            request.objective, request.max_slowdown, normalised_scope(request.scope), bound="the default"
        ),
        policy=request.policy,
        seed=request.seed,
        clocks="auto" if request.clocks == "auto" else ",".join(map(str, clocks_mhz)) or "off",
        settings={
            "energy_precision": request.energy_precision,
            **({"power_limits_w": list(power_limits_w)} if power_limits_w else {}),
            **request.search_settings,
            "sensor": setup.sensor,
            "program": program.document(),
        },
        content=own_build().content,
    )
    return SearchPlan(
        request,
        ((kernel, workload),),
        clocks_mhz,
        power_limits_w,
        conditions,
        tuple(notices),
        programs=(prepared,),
    )
