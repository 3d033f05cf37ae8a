"""From a request to its outcome: what ``tuner run``, ``tuner.tune`` and the daemon's jobs have in common."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from tuner.database.answer_lock import LockedAnswer
from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import InputError, RunInterrupted
from tuner.model.objective import COVERAGE
from tuner.model.plan import Configuration
from tuner.model.records import RunStatus, WorkloadName
from tuner.model.trial import Trial
from tuner.model.units import with_uncertainty
from tuner.search.answer import Outcome
from tuner.search.plan import SearchPlan, plan_search, read_ahead
from tuner.search.request import SearchRequest
from tuner.search.session import SearchListener, Session
from tuner.search.setup import MeasurementSetup, open_setup
from tuner.search.together import solo_best
from tuner.search.verification import POLICY, VerifiableAnswer, verdict
from tuner.system.ownership import BoardTurns


def tune(
    setup: MeasurementSetup,
    request: SearchRequest,
    catalog: Catalog,
    store: Store,
    listener: SearchListener,
    *,
    resume: bool,
    insisted: bool = False,
) -> Outcome:
    """Plan a request on an open device, and search.

    With ``solo_bests`` each workload is tuned alone before, as a run of its own, where no such answer is
    stored.

    Raises:
        InputError: kernels, sizes or options that cannot be, or the run to resume has finished.
        ClockError: clocks or power limits were asked for that cannot be set.
        RunInterrupted: it was interrupted while a workload was tuned alone.
    """
    plan = plan_search(request, catalog, setup)
    if request.solo_bests is not None:
        tune_alone(plan, catalog, setup, store, listener)
    return Session(plan, setup, store, listener).run(resume=resume, insisted=insisted)


def tune_alone(
    plan: SearchPlan,
    catalog: Catalog,
    setup: MeasurementSetup,
    store: Store,
    listener: SearchListener,
) -> None:
    """Tune each workload of a plan alone that has no stored answer of its own; see ``tune``."""
    request, conditions = plan.request, plan.conditions
    workloads = [workload for _, workload in plan.workloads]
    if conditions.device.recorded:
        raise InputError(f"--solo-bests: {conditions.device.spec} was measured already; leave the option out")
    if len(workloads) == 1:
        raise InputError(f"--solo-bests: {workloads[0]} is alone; name the workloads that run with it")
    most = request.solo_bests or 1
    missing = [
        workload
        for workload in workloads
        if solo_best(store, workload, conditions, least_trials=most) is None
    ]
    for workload in missing:
        spec = str(WorkloadName.parse(str(workload)).with_batch(workload.batch))
        listener.told(f"solo bests: {spec} is tuned alone, within {most} trials")
        alone = replace(
            request, workloads=(spec,), budget=most, solo_bests=None, stream_priorities=1, sm_shares=1
        )
        if tune(setup, alone, catalog, store, listener, resume=True).status is RunStatus.INTERRUPTED:
            raise RunInterrupted(
                f"interrupted while {spec} was tuned alone; the same command goes on from here"
            )


def check_locked(
    locked: LockedAnswer,
    catalog: Catalog,
    device: str | None,
    listener: "RunListener",
) -> tuple[bool, str]:
    """Measure a locked answer turn by turn with the default; nothing is stored.

    Args:
        locked: the answer.
        catalog: where their kernels are.
        device: see ``open_device``.
        listener: hears how it comes on.

    Returns:
        Whether it holds: it runs, its results are right, and it costs no more than the default, as far as can
        be told; and that in words.
    """
    name = locked.objective.partition(" ")[0]
    request = SearchRequest(
        locked.specs,
        objective=name,
        timing=locked.timing,
        clocks="off" if locked.clock_mhz is None else str(locked.clock_mhz),
        power_limits="off" if locked.power_limit_w is None else str(locked.power_limit_w),
    )
    configurations = tuple(Configuration(one.configuration) for one in locked.workload)
    trial = Trial(configurations, locked.clock_mhz, locked.power_limit_w)
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        store = stack.enter_context(Store(Path(folder) / "check.db"))
        setup = stack.enter_context(open_setup(device, request, listener.warming))
        plan = plan_search(request, catalog, setup)
        answer = VerifiableAnswer(0, plan.conditions.device.uuid, trial)
        plan = plan.following(POLICY, answer.settings, answer.trials, (trial,))
        outcome = Session(plan, setup, store, listener).run()
    judged = verdict(answer, outcome, request.energy_precision)
    now = dict(outcome.trials).get(trial)
    if now is None or not judged["held"]:
        return False, judged["told"].partition(") ")[2]
    was, unit = (locked.time, "s") if locked.energy is None else (locked.energy, "J")
    value, half = (now.makespan_s, now.makespan_uncertainty_s)
    if now.energy is not None and unit == "J":
        value, half = now.energy.joules, now.energy.uncertainty_j
    return True, f"{with_uncertainty(value, COVERAGE * half, unit)}, was {was.text(unit)}"


class SetupOpener(Protocol):
    """Opens what a run measures with, as ``open_setup`` does."""

    def __call__(
        self,
        device_spec: str | None,
        request: SearchRequest,
        warming: Callable[[float, float], None] | None = None,
        *,
        allow_simulated: bool = False,
        turns: BoardTurns | None = None,
    ) -> AbstractContextManager[MeasurementSetup]:
        """Open a device for a request, and close it on every way out."""


class RunListener(SearchListener, Protocol):
    """Is notified of the progress of a run, its warm-up included."""

    def warming(self, watts: float, seconds: float) -> None:
        """A window of the warm-up has ended: its mean power, and seconds since the warm-up began."""


def run_request(
    request: SearchRequest,
    catalog: Catalog,
    listener: RunListener,
    *,
    device: str | None = None,
    database: Path | None = None,
    resume: bool = False,
    allow_simulated: bool = False,
    exclusive_board: bool = False,
    opener: SetupOpener = open_setup,
) -> Outcome:
    """Open the database and the device, tune, and close them on every way out, clocks first.

    What the user should know of the device is told before anything is searched.

    Args:
        request: what is asked for; checked here.
        catalog: where its kernels are.
        listener: hears how it comes on.
        device: see ``open_device``.
        database: None for the user's own.
        resume: continue the newest unfinished run under the same conditions.
        allow_simulated: see ``open_device``.
        exclusive_board: take turns with runs on other GPUs of this host with a database in this folder.
        opener: opens it; that of a pool where trials are measured on several GPUs.

    Raises:
        InputError: kernels, sizes or options that cannot be, or the run to resume has finished.
        DeviceUnavailableError: the device cannot be opened.
        ClockError: clocks were asked for that cannot be set.
        KeyboardInterrupt, RunInterrupted: it was interrupted before it had a result.
    """
    request.check()
    ended: list[Outcome] = []
    try:
        with ExitStack() as stack:
            store = stack.enter_context(Store(database))
            read_ahead(request, catalog, device)
            turns = stack.enter_context(BoardTurns(store.path.parent)) if exclusive_board else None
            setup = stack.enter_context(
                opener(device, request, listener.warming, allow_simulated=allow_simulated, turns=turns)
            )
            for notice in setup.notices:
                listener.told(notice)
            outcome = tune(setup, request, catalog, store, listener, resume=resume, insisted=True)
            outcome.told[:0] = setup.notices
            ended.append(outcome)
    except (KeyboardInterrupt, RunInterrupted):
        if not ended:  # else only the closing was interrupted
            raise
    return ended[0]
