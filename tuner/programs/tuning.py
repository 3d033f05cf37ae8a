"""From a program to its answer: planned as one workload, searched like kernels, each trial a whole run."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from tuner.database.runs import Store
from tuner.kernel_files.source_folder import own_build
from tuner.model.errors import InputError, TunerError
from tuner.model.objective import described, normalised_scope
from tuner.model.plan import Plan, ProblemSpec, Work
from tuner.model.records import Conditions
from tuner.programs.phases import PhaseMeasurer
from tuner.programs.program import Program
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
