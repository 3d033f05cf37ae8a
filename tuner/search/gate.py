"""Kernels before and after a change, in turn, until it is known which are worse: ``tuner gate``.

*Old* and *new* both run here and now; a stored time is held against nothing. A side is files and a
configuration:

- *new* is the files that are here, with the configuration that is pinned here; where nothing is pinned, or
  they do not allow it any more, with their default.
- *old* is the files before the change, with the configuration that was pinned then, or their default. Those
  files are of a base (another checkout), the files here where these are still what the pinned answer was
  measured with, or the copy of them that the document of a run keeps.

A lock file pins nothing for files that have changed since, as it serves nothing then; but where they are held
against those that it was written for.

Where both sides are the same files with the same configuration, nothing is measured.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

from tuner.database.answer_lock import AnswerLock, LockedAnswer, covers
from tuner.database.best_known import DatabaseSource
from tuner.database.ranking import AnswerQuery, allowed, served_answer
from tuner.database.runs import Store
from tuner.devices.gpu_users import ContentionProbe
from tuner.kernel_files.catalog import Catalog, load_kernel_file, origin
from tuner.kernel_files.kernel_file import KernelFile
from tuner.measurement.measurer import TrialMeasurer
from tuner.measurement.paired import NO_WORSE, UNDECIDED, WORSE, Ratio, anytime_ratio, decided, join
from tuner.model.errors import InputError, KernelFileError
from tuner.model.jobs import DeviceIdentity
from tuner.model.objective import Objective
from tuner.model.plan import Configuration, Plan, TunableValue, Workload
from tuner.model.records import WorkloadName
from tuner.model.run_document import KernelRecord, RunDocument
from tuner.model.trial import SPOILING, FlagKind, Measurement, Trial
from tuner.search.candidates import fit_batches
from tuner.search.setup import MeasurementSetup
from tuner.search.stored import stored_document

UNCHANGED, NEW = "unchanged", "new"  # verdicts without a measurement

_LOOK = 1.1  # turns from one look to the next: looking takes the longer the more there are
_TOLD = SPOILING | {FlagKind.POWER_LIMIT, FlagKind.SENSORS_DIFFER, FlagKind.NO_ENERGY}


# --- Turns of two sides until every margin is decided.


@dataclass(frozen=True)
class CostChange:
    """A cost of the new side by that of the old one.

    Attributes:
        objective: ``time`` or ``energy``.
        margin: that it may be higher by, relative.
        verdict: ``no worse``, ``worse`` or ``undecided``.
        old: of a round, in s or J; None where nothing was measured.
        new: the same.
        change: relative; None where nothing was measured.
        interval: half of its interval, which holds at all looks together; None where that is not known.
    """

    objective: str
    margin: float
    verdict: str
    old: float | None = None
    new: float | None = None
    change: float | None = None
    interval: float | None = None


@dataclass(frozen=True)
class Gated:
    """The verdict on workloads that run together; one, mostly.

    Attributes:
        workload: their names.
        verdict: ``no worse``, ``worse``, ``undecided``; ``unchanged`` or ``new`` without a measurement.
        why: in a sentence.
        costs: changes of what has a margin.
        turns: of old and new.
        device_s: time of the device that they took.
        notes: what to know of the sides and of the windows.
    """

    workload: str
    verdict: str
    why: str
    costs: tuple[CostChange, ...] = ()
    turns: int = 0
    device_s: float = 0.0
    notes: tuple[str, ...] = ()


Turn = tuple[Measurement, Measurement]
"""Measurements of the old and the new side."""


def compared(
    measure: Callable[[bool], Measurement],
    margins: Mapping[str, float],
    now_s: Callable[[], float],
    limit_s: float,
) -> Gated:
    """Measure old, new, new, old until it is known of every cost on which side of its margin it is.

    The first measurement of each side does not count: answers are checked, and the GPU warms. It ends at the
    first cost that is surely worse, where all are at their margins, and before the limit.

    Args:
        measure: measures the new side, or the old one for False.
        margins: by the names of objectives, relative.
        now_s: the time of the device.
        limit_s: of its time.
    """
    begun_s = now_s()
    first = {new: measure(new) for new in (False, True)}
    failed = _failed(first, now_s() - begun_s, NO_WORSE)
    if failed is not None:
        return failed
    turns: list[Turn] = []
    passed_s, look, verdicts = 0.0, 0.0, set[str]()
    while verdicts != {NO_WORSE} and WORSE not in verdicts:
        before_s = now_s()
        for order in ((False, True), (True, False)):
            turn = {new: measure(new) for new in order}
            if (failed := _failed(turn, now_s() - begun_s, UNDECIDED)) is not None:
                return failed
            turns.append((turn[False], turn[True]))
        passed_s = now_s() - begun_s
        is_last = passed_s + now_s() - before_s > limit_s
        if len(turns) < look and not is_last:
            continue
        look = len(turns) * _LOOK
        ratios = {name: anytime_ratio(turns, Objective(name)) for name in margins}
        found = {name: _verdict(ratios[name], margin) for name, margin in margins.items()}
        verdicts = set(found.values())
        at = [_is_at(ratios[name], margins[name]) for name, one in found.items() if one == UNDECIDED]
        if is_last or (at and all(at)):
            break
    costs = tuple(_change(turns, *one) for one in margins.items())
    verdict = next(one for one in (WORSE, UNDECIDED, NO_WORSE) if one in verdicts)
    names = " and ".join(cost.objective for cost in costs if cost.verdict == verdict)
    why = {
        WORSE: f"{names} beyond the margin",
        UNDECIDED: f"{names} at the margin, or too unsure within the time limit",
        NO_WORSE: f"{names} within the margin",
    }
    return Gated("", verdict, why[verdict], costs, len(turns), passed_s, tuple(_flags(turns)))


def _failed(sides: Mapping[bool, Measurement], passed_s: float, without_old: str) -> Gated | None:
    """The verdict where a side does not run; None where both do.

    Args:
        sides: what was measured of each.
        passed_s: since the begin.
        without_old: the verdict where only the old one does not run.
    """
    failed = {new: side for new, side in sides.items() if not side.ok or side.makespan_s is None}
    if not failed:
        return None
    side = failed.get(True, failed.get(False))
    detail = next((result.detail for result in side.results if result.detail), "") if side else ""
    status = f"{side.status.value if side else ''}{detail and f': {detail}'}"
    if len(failed) == len(sides):
        return Gated("", UNDECIDED, f"neither side runs here: {status}", device_s=passed_s)
    if True in failed:
        return Gated("", WORSE, f"the new one does not run: {status}", device_s=passed_s)
    return Gated("", without_old, f"the old one does not run here: {status}", device_s=passed_s)


def _verdict(ratio: Ratio | None, margin: float) -> str:
    return UNDECIDED if ratio is None else decided(ratio.value - 1.0, ratio.interval, margin)


def _is_at(ratio: Ratio | None, margin: float) -> bool:
    """True for a ratio that no number of turns can decide: it may drift from one side to the other."""
    if ratio is None or not math.isfinite(ratio.interval):
        return False
    drift = math.sqrt(ratio.interval**2 - ratio.turns_interval**2)
    return abs(ratio.value - 1.0 - margin) + ratio.turns_interval < drift


def _change(turns: Sequence[Turn], name: str, margin: float) -> CostChange:
    objective = Objective(name)
    ratio = anytime_ratio(turns, objective)
    verdict = _verdict(ratio, margin)
    if ratio is None:
        return CostChange(name, margin, verdict)
    old, new = (_finite(objective.known(join(side))) for side in zip(*turns, strict=True))
    return CostChange(name, margin, verdict, old, new, ratio.value - 1.0, _finite(ratio.interval))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _flags(turns: Sequence[Turn]) -> Iterator[str]:
    """Yield what spoilt windows, each with their number."""
    windows = [window for turn in turns for window in turn]
    told = {flag.kind: flag.detail for window in windows for flag in window.flags if flag.kind in _TOLD}
    for kind, detail in told.items():
        count = sum(kind in window.flag_kinds for window in windows)
        yield f"{kind.value} in {count} of {len(windows)} windows: {detail}"


# --- What is pinned, and the files before a change.


@dataclass(frozen=True)
class PinnedAnswer:
    """An answer that a lock file, a run or a database has.

    Attributes:
        told: where it is from.
        configurations: by the names of workloads, which run together.
        batches: by the names of workloads.
        sources: fingerprints of the kernels that it was measured with.
        kept: copies of their files, by their names.
        bound: True of a lock file, which serves no other files than those.
    """

    told: str
    configurations: Mapping[str, Mapping[str, TunableValue]]
    batches: Mapping[str, int]
    sources: Mapping[str, str]
    kept: Mapping[str, KernelRecord]
    bound: bool = False

    @property
    def specs(self) -> tuple[str, ...]:
        """Its workloads with their batches."""
        return tuple(str(WorkloadName.parse(name).with_batch(batch)) for name, batch in self.batches.items())


def pinned_of_run(document: RunDocument, told: str) -> PinnedAnswer:
    """The answer of a run.

    Raises:
        InputError: it has none.
    """
    best = document["best"]
    if best is None:
        raise InputError(f"--against {told}: it has no answer; `tuner history` lists the runs")
    workloads = document["workloads"]
    return PinnedAnswer(
        told,
        best["configurations"],
        {workload["name"]: workload["batch"] for workload in workloads},
        document.get("sources") or {},
        {
            WorkloadName.parse(workload["name"]).kernel: record
            for workload in workloads
            if (record := workload.get("kernel_file")) and not document.get("merged_from")
        },
    )


def pinned_of_store(
    store: Store, catalog: Catalog, spec: str, identity: DeviceIdentity, objective: str
) -> PinnedAnswer:
    """The answer of a workload alone that a database serves; one for the objective goes before others.

    Raises:
        InputError: it has none.
    """
    workload = catalog.workload(spec)
    kernel = catalog.kernel(workload.kernel)
    query = AnswerQuery(
        *((workload,), {kernel.name: kernel}, {kernel.name: kernel.fingerprint}, objective, identity),
        any_timing=True,
    )
    answers = DatabaseSource(store).of_set([str(workload)])
    served = served_answer(query, answers) or served_answer(replace(query, objective=""), answers)
    run = None if served is None else store.run(served.answer.run)
    if run is None:
        raise InputError(f"--against: no answer of {workload} is stored for {identity.name}")
    return pinned_of_run(stored_document(store, run), f"run {run.id}")


def pinned_of_lock(
    lock: AnswerLock | None, specs: tuple[str, ...], identity: DeviceIdentity, objective: str
) -> PinnedAnswer | None:
    """The answer that a lock file has for workloads on a GPU; None where it has none.

    Args:
        lock: the file; None where there was none.
        specs: the workloads that run together, with the batches of the answer that goes before others.
        identity: of the GPU.
        objective: whose answer goes before others of these batches.
    """
    if lock is None:
        return None
    names = sorted(str(WorkloadName.parse(spec).without_batch()) for spec in specs)
    answers = (one for one in _locked_for(lock, identity) if [*one.names] == names)
    answer = min(
        answers, key=lambda one: ({*one.specs} != {*specs}, one.objective != objective), default=None
    )
    if answer is None:
        return None
    return PinnedAnswer(
        lock.path.name,
        {one.name: one.configuration for one in answer.workload},
        {one.name: one.batch for one in answer.workload},
        {WorkloadName.parse(one.name).kernel: one.kernel for one in answer.workload},
        {},
        bound=True,
    )


def locked_sets(
    locks: Sequence[AnswerLock | None], specs: Sequence[str], identity: DeviceIdentity
) -> list[tuple[str, ...]]:
    """Workloads, with batches, that lock files have answers of for a GPU, as far as they are asked for.

    Of those that both have, the batches are those of the file as it is.

    Args:
        locks: the file as it is, and as it was; None where there was none.
        specs: workloads, and kernels whose workloads are all meant; empty for all there are.
        identity: of the GPU.

    Raises:
        InputError: they have none of one that is asked for.
    """
    known: dict[tuple[str, ...], tuple[str, ...]] = {}
    for lock in locks:
        answers = [] if lock is None else _locked_for(lock, identity)
        known |= {one.specs: one.names for one in answers if one.names not in {*known.values()}}
    sets: dict[tuple[str, ...], None] = {} if specs else dict.fromkeys(known)
    for spec in specs:
        name = str(WorkloadName.parse(spec).without_batch())
        found = [one for one, names in known.items() if names == (name,) or _is_of(names, name)]
        found = [one for one in found if one == (spec,)] or found
        if not found:
            raise InputError(f"--against: no answer of {spec} is locked for {identity.name}")
        sets |= dict.fromkeys(found)
    if not sets:
        raise InputError(f"--against: no answer is locked for {identity.name}")
    return list(sets)


def _is_of(names: tuple[str, ...], kernel: str) -> bool:
    return kernel in {WorkloadName.parse(name).kernel for name in names}


def _locked_for(lock: AnswerLock, identity: DeviceIdentity) -> list[LockedAnswer]:
    return [one for one in lock.answers if one.is_of(identity) and covers(one.driver, identity.driver)]


class Base(NamedTuple):
    """A checkout of the files before a change.

    Attributes:
        told: what it is called.
        folder: of it.
        here: the folder that it stands for.
        pinned: True where its files must be those of the pinned answers.
    """

    told: str
    folder: Path
    here: Path
    pinned: bool = False

    def path_of(self, path: Path) -> Path | None:
        """The place of a file before the change; None of a file that is no part of the checkout."""
        path = path.resolve()
        return self.folder / path.relative_to(self.here) if path.is_relative_to(self.here) else None

    def name_of(self, path: Path) -> str:
        """A file's path as messages show it: of a file before the change, that within the checkout."""
        before = path.is_relative_to(self.folder)
        return f"{path.relative_to(self.folder)} of {self.told}" if before else str(path)


def old_kernel(
    kernel: KernelFile, pinned: PinnedAnswer | None, base: Base | None, folder: Path
) -> KernelFile | None:
    """The kernel before the change; None of a kernel that is new.

    Args:
        kernel: as it is here.
        pinned: what it is held against; None for its default.
        base: the files before the change; None where they are those of ``pinned``.
        folder: where files that a run keeps are written to.

    Raises:
        InputError: the files before the change are not known.
    """
    if base is not None:
        path = base.path_of(kernel.path)
        if path is None and origin(kernel.path) != "file":  # of the catalogue, whatever the change
            return kernel
        if path is None:
            raise InputError(f"{kernel.path}: is not below {base.here}, which {base.told} is held against")
        found = load_kernel_file(path) if path.exists() else None
        known = None if pinned is None else pinned.sources.get(kernel.name)
        if base.pinned and known is not None and (found is None or found.fingerprint != known):
            raise InputError(
                f"{kernel.name}: its answer was locked with other files than those of {base.told}, the commit"
                " that last wrote the lock, or in a shallow clone the newest; name --base REVISION"
            )
        return found
    if pinned is None:
        raise InputError(f"{kernel.name}: nothing to hold it against; name --base or --against")
    known = pinned.sources.get(kernel.name)
    if known == kernel.fingerprint:
        return kernel
    kept = _kept(pinned.kept.get(kernel.name), Path(mkdtemp(dir=folder)) / kernel.name)
    if kept is None or kept.fingerprint != known:
        raise InputError(
            f"{kernel.name}: its files have changed since {pinned.told}, which does not keep all of them;"
            " --base REVISION takes them from git"
        )
    return kept


def _kept(record: KernelRecord | None, folder: Path) -> KernelFile | None:
    """The kernel of the files that a run keeps; None where they are not whole."""
    if record is None or not record["path"]:
        return None
    try:
        for name, text in record["files"].items():
            place = (folder / name).resolve()
            if place.is_relative_to(folder.resolve()):
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text, encoding="utf-8", newline="")
        return load_kernel_file(folder / Path(record["path"]).name)
    except (KernelFileError, OSError, ValueError):  # names that are none
        return None


# --- Both sides of a comparison.


class Case(NamedTuple):
    """Workloads that run together, and what they are held against.

    Attributes:
        specs: the workloads.
        old: pinned before the change; None for defaults.
        new: pinned here; None for defaults.
    """

    specs: tuple[str, ...]
    old: PinnedAnswer | None = None
    new: PinnedAnswer | None = None


@dataclass(frozen=True)
class Gate:
    """Compares cases on an open device.

    Attributes:
        setup: opened for them.
        catalog: the kernels that are here.
        base: the files before the change; None where pinned answers tell them.
        folder: for files that runs keep.
        margins: by the names of objectives.
        limit_s: time of the device for each case.
    """

    setup: MeasurementSetup
    catalog: Catalog
    base: Base | None
    folder: Path
    margins: Mapping[str, float]
    limit_s: float

    def verdicts(self, cases: Sequence[Case]) -> Iterator[Gated]:
        """The verdict on each case, one after another.

        Raises:
            DeviceError, PowerError: the GPU, or its sensor, has gone.
            InputError: kernels or sizes that cannot be, or files before the change that are not known.
        """
        measurer = self.setup.measurer
        if not isinstance(measurer, TrialMeasurer):
            raise InputError(
                f"--device {self.setup.device.identity.spec}: it was measured already, and runs nothing"
            )
        for case in cases:
            yield self._verdict(case, measurer)

    def _verdict(self, case: Case, measurer: TrialMeasurer) -> Gated:
        workloads = self.catalog.workload_set(case.specs)
        kernels = [self.catalog.kernel(workload.kernel) for workload in workloads]
        pairs = list(zip(kernels, workloads, strict=True))
        workloads, notes = fit_batches(pairs, self.setup.device.free_memory_bytes())
        name = " + ".join(kernel.spec_of(one) for kernel, one in zip(kernels, workloads, strict=True))
        old_kernels = [old_kernel(kernel, case.old, self.base, self.folder) for kernel in kernels]
        old_pin = self._served(case.old, old_kernels, notes)
        new_pin = self._served(case.new, kernels, notes)
        new_side, old_side = list[Plan](), list[Plan]()
        unchanged = True
        for kernel, old, workload in zip(kernels, old_kernels, workloads, strict=True):
            try:
                before = None if old is None else old.workload(dict(workload.sizes), workload.batch)
            except InputError:  # the size was not there
                before = None
            if old is None or before is None:
                return Gated(name, NEW, f"{workload} was not there before the change")
            configurations = [
                _configuration(*side, notes) for side in ((old, before, old_pin), (kernel, workload, new_pin))
            ]
            unchanged &= old.fingerprint == kernel.fingerprint and len(set(configurations)) == 1
            old_side.append(old.plan(before, configurations[0]))
            new_side.append(kernel.plan(workload, configurations[1]))
        if unchanged:
            return Gated(name, UNCHANGED, "the same files and the same configuration", notes=tuple(notes))
        return self._compared(name, notes, {False: old_side, True: new_side}, measurer)

    def _served(
        self, pinned: PinnedAnswer | None, kernels: Sequence[KernelFile | None], notes: list[str]
    ) -> PinnedAnswer | None:
        """The pinned answer; None, with a note, where a lock file serves these files nothing."""
        if pinned is None or not pinned.bound or self.base is None or self.base.pinned:
            return pinned
        changed = [one for one in kernels if one and pinned.sources.get(one.name) != one.fingerprint]
        notes += [
            f"{pinned.told} pins other files than {self.base.name_of(one.path)}, and serves nothing until"
            " `tuner lock`: defaults are measured"
            for one in changed
        ]
        return None if changed else pinned

    def _compared(
        self, name: str, notes: Sequence[str], sides: Mapping[bool, Sequence[Plan]], measurer: TrialMeasurer
    ) -> Gated:
        device, others = self.setup.device, dict[str, None]()
        measurers = {False: measurer, True: measurer.beside()}
        trials = {new: Trial(tuple(plan.configuration for plan in side)) for new, side in sides.items()}
        probe = ContentionProbe()

        def measure(new: bool) -> Measurement:
            measured = measurers[new].measure(trials[new], sides[new])
            looked = probe.look(device.identity.spec, device.identity.uuid, device.own_processes())
            if looked.busy:
                others[looked.reason] = None
            return measured

        try:
            gated = compared(measure, self.margins, device.now_s, self.limit_s)
        finally:
            probe.close()
        modelled = ["modelled"] if device.identity.modelled else []
        return replace(gated, workload=name, notes=(*modelled, *notes, *gated.notes, *others))


def _configuration(
    kernel: KernelFile, workload: Workload, pinned: PinnedAnswer | None, notes: list[str]
) -> Configuration:
    """The configuration of a side; a note is added where its files do not allow the pinned one."""
    values = None if pinned is None else pinned.configurations.get(str(workload))
    if pinned is None or values is None:
        return kernel.default(workload)
    configuration = allowed(kernel, workload, values)
    if configuration is None:
        told = f"{kernel.path} does not allow the configuration of {pinned.told}"
        notes.append(f"{told}: its default is measured")
    return configuration or kernel.default(workload)
