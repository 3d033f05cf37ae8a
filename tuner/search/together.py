"""Batches and repeats at which workloads take about equally long alone: ``tuner run --balance``.

A round lasts as long as its longest workload. Where that one takes much longer than the others, these hide
behind it, and their configurations hardly count.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.database.answers import stored_answer
from tuner.database.ranking import AnswerQuery, served_answer
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.measurement.base import TrialStore
from tuner.model.errors import DeviceError, InputError
from tuner.model.plan import Configuration, Workload
from tuner.model.run_document import device_document
from tuner.model.trial import Trial
from tuner.model.workload_name import WorkloadName
from tuner.search.candidates import fit_batches
from tuner.search.request import Request, conditions_of, resolve
from tuner.search.setup import MeasurementSetup
from tuner.search.workload_scale import Scale, changed, scale_of

MOST_APART = 2.0
"""The longest solo time by the shortest one, at most, of workloads that are balanced."""

_MOST_ROUNDS = 5  # of proposing and measuring: short kernels do not take half as long at half the batch
_CLOSE = 0.3  # doublings from the wanted time: worth no change

_Known = tuple[Configuration, int] | None  # a configuration, and the run that it is from


@dataclass(frozen=True)
class SoloTime:
    """How long a workload takes alone.

    Attributes:
        workload: with its batch.
        configuration: that was measured.
        run: number of the stored answer that the configuration is from; None for the default.
        time_s: of a round.
        uncertainty_s: standard uncertainty of it.
    """

    workload: Workload
    configuration: Configuration
    run: int | None
    time_s: float
    uncertainty_s: float


def spec_of(kernel: KernelFile, workload: Workload) -> str:
    """The workload as a command takes it, with its batch where that is not the kernel file's."""
    name = WorkloadName.parse(str(workload))
    usual = kernel.workload(dict(workload.sizes)).batch
    return str(name if workload.batch == usual else name.with_batch(workload.batch))


def apart(times: Sequence[SoloTime]) -> float:
    """The longest time by the shortest one."""
    return max(one.time_s for one in times) / min(one.time_s for one in times)


def proposal(times: Sequence[SoloTime], scales: Sequence[Scale | None]) -> dict[int, int]:
    """New values of scales, by the places of their workloads; none where nothing helps.

    Wanted is the geometric mean of the longest time and the shortest. Workloads without a scale, or whose
    scale is at its end, stay as they are, and the others come to them.
    """
    stuck = {place for place, scale in enumerate(scales) if scale is None}
    while True:
        held = [times[place].time_s for place in stuck] or [one.time_s for one in times]
        wanted_s = math.sqrt(min(held) * max(held))
        found: dict[int, int] = {}
        ended: set[int] = set()
        for place, scale in enumerate(scales):
            factor = wanted_s / times[place].time_s
            if place in stuck or scale is None or abs(math.log2(factor)) <= _CLOSE:
                continue
            value = scale.nearest(times[place].workload, factor)
            if value != scale.of(times[place].workload):
                found[place] = value
            elif abs(math.log2(factor)) > math.log2(MOST_APART) / 2:
                ended.add(place)
        if not ended:
            return found
        stuck |= ended


@dataclass(frozen=True)
class Balance:
    """Workloads as they are and as they are balanced.

    Attributes:
        kernels: of the workloads.
        before: solo times as asked for.
        after: solo times at the batches and repeats that are proposed; ``before`` where nothing is.
        scales: of the workloads; None where sizes would have to change.
        notices: what the user should know.
    """

    kernels: tuple[KernelFile, ...]
    before: tuple[SoloTime, ...]
    after: tuple[SoloTime, ...]
    scales: tuple[Scale | None, ...]
    notices: tuple[str, ...] = ()

    @property
    def balanced(self) -> bool:
        """True where the times are within ``MOST_APART``."""
        return apart(self.after) <= MOST_APART

    @property
    def specs(self) -> tuple[str, ...]:
        """What is proposed, as a command takes it."""
        return tuple(
            spec_of(kernel, one.workload) for kernel, one in zip(self.kernels, self.after, strict=True)
        )

    @property
    def advice(self) -> tuple[str, ...]:
        """Which sizes to change where batches and repeats do not suffice."""
        if self.balanced:
            return ()
        times = [one.time_s for one in self.after]
        ends = {max(times): ("long", "smaller"), min(times): ("briefly", "larger")}
        return tuple(
            f"{one.workload} takes too {ends[one.time_s][0]}, and {_stuck(scale)}: choose"
            f" {_sizes_of(one.workload, scale, ends[one.time_s][1])}"
            for one, scale in zip(self.after, self.scales, strict=True)
            if one.time_s in ends
        )


def _stuck(scale: Scale | None) -> str:
    if scale is None:
        return "it has no batch and no repeats"
    if isinstance(scale.values, range):
        return f"no {scale.name} that fits brings it nearer"
    return f"no {scale.name} of {', '.join(map(str, scale.values))} brings it nearer"


def _sizes_of(workload: Workload, scale: Scale | None, kind: str) -> str:
    name = "" if scale is None else scale.name
    sizes = [size for size, value in workload.sizes if isinstance(value, int) and size != name]
    return f"a {kind} {' or '.join(sizes)}" if sizes else "another workload"


def balance(
    setup: MeasurementSetup,
    request: Request,
    catalog: Catalog,
    store: TrialStore | None,
    progress: Callable[[str], None] = lambda _: None,
) -> Balance:
    """Measure each workload alone, and look for batches and repeats that bring the times together.

    Each has the configuration of its stored answer alone, or else its default. What is proposed was measured.

    Args:
        setup: open, for times.
        request: its workloads and objective.
        catalog: where its kernels are.
        store: the database; None without one.
        progress: takes a sentence before each measurement.

    Raises:
        InputError: a lone workload, a recording, or kernels and sizes that cannot be.
        DeviceError: a workload failed.
    """
    if setup.device.identity.recorded:
        raise InputError(f"--balance: {setup.device.identity.spec} was measured already; it runs nothing")
    pairs, notices = resolve(catalog, request.workloads, setup.device)
    if len(pairs) == 1:
        raise InputError(f"--balance: {pairs[0][1]} is alone; name the workloads that run with it")
    kernels = tuple(kernel for kernel, _ in pairs if isinstance(kernel, KernelFile))
    workloads = [workload for _, workload in pairs]
    known = [_known(setup, request, store, *pair) for pair in zip(kernels, workloads, strict=True)]

    def measured(place: int, workload: Workload) -> SoloTime:
        progress(f"balance: {spec_of(kernels[place], workload)} is measured alone")
        return _measured(setup, kernels[place], workload, known[place])

    before = tuple(measured(place, workload) for place, workload in enumerate(workloads))
    scales = tuple(scale_of(*pair) for pair in zip(kernels, workloads, strict=True))
    present = best = before
    for _ in range(_MOST_ROUNDS):
        values = {} if apart(best) <= MOST_APART else proposal(present, scales)
        proposed = _fitting(setup, kernels, present, scales, values)
        if proposed is None:
            break
        present = tuple(
            one if one.workload == workload else measured(place, workload)
            for place, (one, workload) in enumerate(zip(present, proposed, strict=True))
        )
        best = min(best, present, key=apart)
    return Balance(kernels, before, best, scales, (*setup.notices, *notices))


def _fitting(
    setup: MeasurementSetup,
    kernels: Sequence[KernelFile],
    times: Sequence[SoloTime],
    scales: Sequence[Scale | None],
    values: dict[int, int],
) -> list[Workload] | None:
    """The workloads with new values, in batches that fit the memory together; None where nothing changes."""
    workloads = [one.workload for one in times]
    for place, value in values.items():
        scale = scales[place]
        if scale is not None:
            workloads[place] = changed(kernels[place], workloads[place], scale.name, value)
    try:
        fitted, _ = fit_batches(list(zip(kernels, workloads, strict=True)), setup.device.free_memory_bytes())
    except InputError:  # such repeats need more arrays than there is memory
        return None
    return None if fitted == [one.workload for one in times] else fitted


def _known(
    setup: MeasurementSetup,
    request: Request,
    store: TrialStore | None,
    kernel: KernelFile,
    workload: Workload,
) -> _Known:
    """The configuration of the stored answer of a workload alone, with the number of its run; or nothing."""
    if store is None:
        return None
    device = setup.device
    objective = conditions_of(request, [(kernel, workload)], device).objective
    sources = {kernel.name: kernel.fingerprint}
    query = AnswerQuery(
        (workload,), {kernel.name: kernel}, sources, objective, device.identity, device.limits
    )
    runs = store.answered([str(workload)], objective, device.identity.uuid)
    answers = [answer for run in runs if (answer := stored_answer(run)) is not None]
    served = served_answer(query, answers, fresh=True)
    return None if served is None else (served.configurations[str(workload)], served.answer.run)


def _measured(setup: MeasurementSetup, kernel: KernelFile, workload: Workload, known: _Known) -> SoloTime:
    best = None if known is None else kernel.allowed(workload, known[0])
    configuration, run = (
        (kernel.default(workload), None) if known is None or best is None else (best, known[1])
    )
    measurement = setup.measurer.measure(Trial((configuration,)), [kernel.plan(workload, configuration)])
    if not measurement.ok or not measurement.makespan_s:
        detail = measurement.results[0].detail
        raise DeviceError(
            f"--balance: {workload} [{configuration}] failed alone: {measurement.status.value}"
            + (f": {detail}" if detail else "")
        )
    return SoloTime(workload, configuration, run, measurement.makespan_s, measurement.makespan_uncertainty_s)


def balance_document(setup: MeasurementSetup, found: Balance) -> dict[str, Any]:
    """The result as a JSON object; its keys are described in ``docs/run.md``."""
    same = found.after == found.before
    return {
        "device": device_document(setup.device.identity),
        "modelled": setup.device.identity.modelled,
        "most_apart": MOST_APART,
        "workloads": [_time_record(one) for one in found.before],
        "apart": apart(found.before),
        "proposed": None if same else [_time_record(one) for one in found.after],
        "proposed_apart": None if same else apart(found.after),
        "balanced": found.balanced,
        "advice": list(found.advice),
        "specs": list(found.specs),
        "notices": list(found.notices),
    }


def _time_record(one: SoloTime) -> dict[str, Any]:
    return {
        "name": str(one.workload),
        "batch": one.workload.batch,
        "configuration": dict(one.configuration),
        "run": one.run,
        "time_s": one.time_s,
        "time_s_uncertainty": one.uncertainty_s,
    }
