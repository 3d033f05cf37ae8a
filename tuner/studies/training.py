"""Training: a kernel measured at many inputs, each as far as it teaches something.

Every input is a run of its own, stored like any other. The first inputs are looked at by drawing
configurations at random; at later ones those are measured that a forest, grown on all trials so far, ranks
first, and some at random. So neighbours' results are used, and no space is measured whole.
"""

import math
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, Protocol

import numpy as np

from tuner.database.ledger import Ledger
from tuner.database.ranking import sizes_named
from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.schema import MAX_SIZE
from tuner.kernel_files.size_condition import is_allowed, written_out
from tuner.model.errors import InputError, RunInterrupted, suggestion
from tuner.model.jobs import DeviceIdentity
from tuner.model.objective import Objective, timing_of
from tuner.model.options import BACK_TO_BACK
from tuner.model.plan import Configuration, Workload
from tuner.model.records import PROTOCOL, RunStatus, StoredRun
from tuner.model.trial import Measurement, Trial
from tuner.model.typed import canonical
from tuner.policies.independent import predicted, sweep
from tuner.prediction.methods import Predictor
from tuner.prediction.model import LeftOut, SelectionModel
from tuner.prediction.portfolio import Portfolio
from tuner.prediction.training_set import Sizes, TrainingSet
from tuner.search.answer import Outcome
from tuner.search.plan import SearchPlan, plan_search
from tuner.search.request import SearchRequest
from tuner.search.session import SearchListener, Session
from tuner.search.setup import MeasurementSetup
from tuner.space.search_view import Candidate, Policy, Search
from tuner.studies.learning import METHODS, accuracies, feature_table, model_of, predictors, ranking

_DONE = (RunStatus.FINISHED, RunStatus.LIMITED)
_Trial = tuple[Sizes, Configuration, float, float]


class StoredTrials:
    """All trials of a kernel alone on a GPU, with clocks and power limit as found.

    Taken are runs by the present sources, driver and CUDA, of the kernel file's own batch at each input, for
    whatever objective, as far as their trials have the cost that is asked for. A run that is done is read
    once, so that a training may ask again after every input. Configurations are written out.

    Args:
        store: the database.
        kernel: the kernel.
        device: the GPU.
        objective: name; costs are in its unit.
    """

    def __init__(self, store: Store, kernel: KernelFile, device: DeviceIdentity, objective: str) -> None:
        self._store = store
        self._kernel = kernel
        self._device = device
        self._objective = Objective(objective)
        self._read: dict[int, list[_Trial]] = {}

    def all(self) -> TrainingSet | None:
        """The trials, the newest runs last; None without any."""
        runs = self._store.answered_alone(self._kernel.name)
        comparable = [run for run in runs if _is_comparable(run, self._kernel, self._device)]
        try:
            return TrainingSet.of(trial for run in reversed(comparable) for trial in self._trials_of(run))
        except InputError:
            return None

    def is_done(self, sizes: Sizes) -> bool:
        """Return True if a run of an input that ``all`` has seen went to its end, and was not interrupted."""
        return any(trials and trials[0][0] == sizes for trials in self._read.values())

    def _trials_of(self, run: StoredRun) -> list[_Trial]:
        if run.id in self._read:
            return self._read[run.id]
        trials = list(_trials(self._store, self._kernel, run, self._objective))
        if run.status in _DONE:
            self._read[run.id] = trials
        return trials


def _is_comparable(run: StoredRun, kernel: KernelFile, device: DeviceIdentity) -> bool:
    conditions = run.conditions
    measured_on = conditions["device"]
    return bool(
        conditions["sources"].get(kernel.name) == kernel.fingerprint
        and conditions["clocks"] == "off"
        and not conditions["settings"].get("power_limits_w")
        and timing_of(conditions["objective"]) == BACK_TO_BACK
        and conditions["protocol"] == PROTOCOL
        and all(measured_on[name] == getattr(device, name) for name in ("uuid", "driver", "runtime"))
    )


def _trials(store: Store, kernel: KernelFile, run: StoredRun, objective: Objective) -> Iterator[_Trial]:
    ((name, batch),) = run.conditions["workloads"]
    try:
        workload = kernel.workload(sizes_named(name))
    except (InputError, ValueError):  # of a size that the kernel takes no more
        return
    if workload.batch != batch:
        return
    for trial, measurement in store.best_known(run.id, [name]):
        if objective.needs_energy and measurement.ok and measurement.energy is None:
            continue  # an estimate
        configuration = kernel.allowed(workload, trial.configurations[0])
        if configuration is not None:
            cost, sigma = objective.cost(measurement), objective.relative_uncertainty(measurement)
            yield dict(workload.sizes), written_out(kernel.recipe, configuration), cost, sigma


POLICIES = ("predicted", "hill-climbing", "random", "exhaustive")
SHARE = 0.2  # of a space that is measured at an input, unless asked for otherwise
LEAST_EVALUATIONS = 8
_FIRST_SHARE = 6  # one input of so many is looked at without a model
_LEAST_FIRST = 4
_WHOLE_SHARE = 12  # the space of one input of so many is measured whole: it tells what the others miss
_LEAST_WHOLE = 2
_LARGEST_WHOLE = 1000  # configurations of a space


@dataclass(frozen=True)
class TrainingRequest:
    """Request for a training.

    Attributes:
        kernel: name.
        inputs: sizes of each.
        objective: ``time``, ``energy`` or ``edp``.
        policy: how an input is looked at: one of ``POLICIES``.
        evaluations: trials at an input, and no more; None for a fifth of its space, 8 at least, for some
            whole spaces, and for the versions at every input.
        method: of prediction: one of ``METHODS``.
        seed: of what is drawn.
        search: further options of the runs.
        confirm: whether the contenders of a run are measured again; not needed where windows are full.
    """

    kernel: str
    inputs: Sequence[Sizes]
    objective: str = "time"
    policy: str = "predicted"
    evaluations: int | None = None
    method: str = "forest"
    seed: int = 0
    search: Mapping[str, Any] = field(default_factory=dict)
    confirm: bool = True

    def check(self) -> None:
        """Refuse what cannot be trained.

        Raises:
            InputError: no input, or an unknown policy or method.
        """
        if not self.inputs:
            raise InputError("there is no input to train on; see --inputs")
        if self.policy not in POLICIES:
            raise InputError(f"--policy {self.policy}: choose from {', '.join(POLICIES)}")
        if self.method not in METHODS:
            raise InputError(f"--method {self.method}: choose from {', '.join(METHODS)}")


class TrainingListener(SearchListener, Protocol):
    """Hears how a training comes on, beside its runs."""

    def begins(self, number: int, total: int, workload: str) -> None:
        """An input is looked at."""

    def ended(self, number: int, total: int, outcome: Outcome) -> None:
        """An input was looked at."""

    def judged(self, number: int, total: int) -> None:
        """So many inputs were left out and predicted."""


@dataclass(frozen=True)
class Training:
    """Result of a training.

    Attributes:
        model: what was learned.
        data: all trials that it was learned from.
        left_out: by method, what was predicted for each input from the others.
        looked_at: inputs that this training measured.
        known: inputs that were measured before.
        evaluations: trials of this training.
        seconds: that its runs took.
    """

    model: SelectionModel
    data: TrainingSet
    left_out: Mapping[str, Sequence[LeftOut]]
    looked_at: int
    known: int
    evaluations: int
    seconds: float


class Trainer:
    """Trains one model.

    Raises:
        InputError: the request cannot be.
    """

    def __init__(
        self,
        request: TrainingRequest,
        setup: MeasurementSetup,
        catalog: Catalog,
        store: Store,
        listener: TrainingListener,
    ) -> None:
        request.check()
        self._request = request
        self._setup = setup
        self._catalog = catalog
        self._store = store
        self._listener = listener
        self._kernel = catalog.kernel(request.kernel)
        limits = setup.device.limits
        self._table = feature_table(self._kernel, None if limits is None else limits.multiprocessors)
        self._stored = StoredTrials(store, self._kernel, setup.device.identity, request.objective)
        self._ended: list[Outcome] = []

    def train(self) -> Training:
        """Measure the inputs that were not measured yet, learn, judge, and keep the model.

        A training that was interrupted goes on where it ended: its runs are in the database.

        Raises:
            InputError: nothing was valid, or scikit-learn is not installed.
            KeyboardInterrupt, RunInterrupted: it was interrupted; what was measured is stored.
        """
        request, kernel = self._request, self._kernel
        known = self.measure()
        data = self._learnable()
        learned = predictors(self._table, kernel, data, request.method)
        if self._completes and self._measure_versions(data, learned["versions"]):
            data = self._learnable()
            learned = predictors(self._table, kernel, data, request.method)
        guided = request.policy == "predicted"
        left_out = accuracies(self._table, kernel, data, request.method, self._listener.judged, guided=guided)
        model = model_of(
            kernel,
            self._setup.device.identity,
            data,
            learned=learned,
            left_out=left_out,
            objective=request.objective,
            method=request.method,
        )
        Ledger(self._store.database).remember_model(kernel.name, model_key(model), model.document())
        return Training(
            model,
            data,
            left_out,
            looked_at=len({str(outcome.document["workloads"][0]["name"]) for outcome in self._ended}),
            known=known,
            evaluations=sum(len(outcome.trials) for outcome in self._ended),
            seconds=sum(outcome.wall_s for outcome in self._ended),
        )

    @property
    def _completes(self) -> bool:
        """True where more than a share of each input's space is measured."""
        return self._request.policy == "predicted" and self._request.evaluations is None

    def _learnable(self) -> TrainingSet:
        data = self._stored.all()
        if data is None:
            raise InputError(f"{self._kernel.name}: no trial was valid; nothing can be learned")
        return data

    def measure(self) -> int:
        """Measure the inputs that were not measured yet; returns how many were.

        Raises:
            KeyboardInterrupt, RunInterrupted: it was interrupted; what was measured is stored.
        """
        measured_before = 0
        for number, sizes in enumerate(self._request.inputs, start=1):
            data = self._stored.all()
            valid = data is not None and any(one.sizes == sizes for one in data.inputs)
            if valid and self._stored.is_done(sizes):
                measured_before += 1
            else:
                # an interrupted run goes on with what it began with: the trials of other inputs
                others = () if data is None else tuple(one for one in data.inputs if one.sizes != sizes)
                self._measure_input(number, sizes, TrainingSet(others) if others else None)
        return measured_before

    def _measure_versions(self, data: TrainingSet, versions: Predictor) -> int:
        """Measure the versions at the inputs that lack some; returns at how many."""
        assert isinstance(versions, Portfolio)  # noqa: S101 - as predictors makes it
        looked_at = 0
        for number, sizes in enumerate(self._request.inputs, start=1):
            workload = self._kernel.workload(sizes)
            measured = {one for found in data.inputs if found.sizes == sizes for one in found.configurations}
            lacking = [
                version
                for version in versions.versions
                if measured and version not in measured and is_allowed(self._kernel, workload, version)
            ]
            if lacking:
                looked_at += 1
                plan = plan_search(self._search(workload, "random"), self._catalog, self._setup)
                strategy = partial(_listed, kernel=self._kernel, versions=lacking)
                self._run(number, workload, plan.following("versions", {"versions": len(lacking)}, strategy))
        return looked_at

    def _measure_input(self, number: int, sizes: Sizes, others: TrainingSet | None) -> None:
        """Measure some configurations of an input, as one run."""
        request = self._request
        workload = self._kernel.workload(sizes)
        guided = request.policy == "predicted"
        search = self._search(workload, "random" if guided else request.policy)
        plan = plan_search(search, self._catalog, self._setup)
        if guided:
            predictor = None
            if others is not None and looks_guided(request, len(others.inputs)):
                predictor = ranking(self._table, self._kernel, others, request.method)
            size = len(self._kernel.space(workload))
            count = evaluations_of(request, number, size, guided=predictor is not None)
            strategy = _strategy(self._kernel, sizes, predictor, count, seed=request.seed + number)
            plan = plan.following("predicted", {"evaluations": count}, strategy)
        self._run(number, workload, plan)

    def _search(self, workload: Workload, policy: str) -> SearchRequest:
        request = self._request
        return SearchRequest(
            (str(workload),),
            objective=request.objective,
            policy=policy,
            seed=request.seed,
            budget=None if request.policy == "predicted" else request.evaluations,
            **request.search,
        )

    def _run(self, number: int, workload: Workload, plan: SearchPlan) -> None:
        """Make one run, or go on with it."""
        request, total = self._request, len(self._request.inputs)
        self._listener.begins(number, total, str(workload))
        session = Session(plan, self._setup, self._store, self._listener)
        outcome = session.run(resume=True, confirm=request.confirm)
        self._ended.append(outcome)
        self._listener.ended(number, total, outcome)
        if outcome.status is RunStatus.INTERRUPTED:
            raise RunInterrupted(
                f"interrupted at input {number} of {total}; the same command goes on from here"
            )


def model_key(model: SelectionModel) -> str:
    """Return the key of a stored model of a kernel: an objective on a GPU has one."""
    return canonical([model.objective, model.device.uuid])


def looks_guided(request: TrainingRequest, measured: int) -> bool:
    """Return True if so many inputs are enough for a model that ranks the configurations of the next one."""
    return measured >= max(_LEAST_FIRST, len(request.inputs) // _FIRST_SHARE)


def evaluations_of(request: TrainingRequest, number: int, size: int, *, guided: bool) -> int:
    """Trials of an input: all of some spaces, and twice as many where no model ranks yet.

    Args:
        request: what is to be trained.
        number: of the input, from 1 on.
        size: of its space.
        guided: a model ranks it.
    """
    count = request.evaluations
    if count is None:
        if number <= max(_LEAST_WHOLE, len(request.inputs) // _WHOLE_SHARE) and size <= _LARGEST_WHOLE:
            return size
        count = max(LEAST_EVALUATIONS, round(SHARE * size))
    return min(size, count if guided else 2 * count)


def _listed(
    search: Search, kernel: KernelFile, versions: Sequence[Configuration]
) -> Generator[list[Trial], list[Measurement], Trial | None]:
    """Measure some configurations of one workload, which are written out."""
    (candidates,) = search.candidates
    wanted = frozenset(versions)
    listed = (one.configuration for one in candidates)
    chosen = [one for one in listed if written_out(kernel.recipe, one) in wanted]
    return (yield from sweep(search, [Trial((one,)) for one in chosen]))


def _strategy(
    kernel: KernelFile, sizes: Sizes, predictor: Predictor | None, count: int, *, seed: int
) -> Policy:
    rank: Callable[[Sequence[Candidate]], Sequence[float]] | None = None
    if predictor is not None:

        def rank(candidates: Sequence[Candidate]) -> Sequence[float]:
            written = [written_out(kernel.recipe, one.configuration) for one in candidates]
            scores = predictor.scores(sizes, written)
            return [float(score) for score in np.asarray(scores)]

    return partial(predicted, predictor=rank, evaluations=count, seed=seed)


# --- The inputs that a kernel is trained on: problem sizes drawn from ranges, or listed.

_NUMBER = r"\d+(?:(?:\^|\*\*)\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\s*\.\.\s*({_NUMBER})(?:\s+(log|lin))?")
_MOST_DIGITS = 16
_MOST_DRAWS = 200  # for one input that is allowed


@dataclass(frozen=True)
class DrawnSize:
    """Source of the values of a size.

    Attributes:
        name: of the size.
        low: least value of a range.
        high: greatest value of a range.
        logarithmic: of a range: whether values are spread evenly in their logarithm.
        values: those that are drawn from in place of a range.
    """

    name: str
    low: int = 1
    high: int = 1
    logarithmic: bool = True
    values: tuple[int | str, ...] = ()

    def value(self, share: float) -> int | str:
        """The value at a share of the way, from 0 to 1."""
        if self.values:
            return self.values[min(int(share * len(self.values)), len(self.values) - 1)]
        if self.logarithmic:
            drawn = self.low * math.pow(self.high / self.low, share)
        else:
            drawn = self.low + share * (self.high - self.low)
        return min(max(round(drawn), self.low), self.high)


def drawn_sizes(kernel: KernelFile, text: str) -> tuple[DrawnSize, ...]:
    """Return the sources of a kernel's sizes, from text such as ``H=2^4..2^16 log, K=[128, 256]``.

    Sizes that the text leaves out are drawn from all their values; ranges evenly in the logarithm.

    Raises:
        InputError: a size is unknown or twice, or its values have another form or are none of the kernel's.
    """
    stated: dict[str, str] = {}
    for part in _parts(text):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value:
            raise InputError(f"--inputs: {part.strip()!r} is not of the form H=16..65536 or H=[16, 64]")
        if name not in kernel.sizes:
            known = ", ".join(kernel.sizes) or "none"
            raise InputError(
                f"--inputs: {kernel.name} has no size {name!r}; it has {known}"
                f"{suggestion(name, kernel.sizes)}"
            )
        if name in stated:
            raise InputError(f"--inputs: {name} is there twice")
        stated[name] = value
    return tuple(_drawn(kernel, name, stated.get(name)) for name in kernel.sizes)


def _parts(text: str) -> list[str]:
    """The text cut at commas outside brackets."""
    return [part for part in re.split(r",(?![^\[]*\])", text) if part.strip()]


def _drawn(kernel: KernelFile, name: str, text: str | None) -> DrawnSize:
    values = kernel.sizes[name]
    if text is None:
        if name in kernel.optional:
            return DrawnSize(name, values=tuple(values[:1]))
        if isinstance(values, range):
            return DrawnSize(name, values[0], values[-1])
        return DrawnSize(name, values=tuple(values))
    span = _RANGE.fullmatch(text)
    if span is not None:
        low, high = _number(span[1]), _number(span[2])
        if low > high:
            raise InputError(f"--inputs: {name}={text}: the range is empty")
        if low < 1:
            raise InputError(f"--inputs: {name}={text}: a range begins with 1 or more")
        if isinstance(values, range):
            if low not in values or high not in values:
                raise InputError(f"--inputs: {name}={text}: {kernel.name} takes {values[0]} to {values[-1]}")
            return DrawnSize(name, low, high, span[3] != "lin")
        inside = tuple(value for value in values if isinstance(value, int) and low <= value <= high)
        if not inside:
            raise InputError(f"--inputs: {name}={text}: none of {kernel.name}'s values is in the range")
        return DrawnSize(name, values=inside)
    listed = text[1:-1].split(",") if text.startswith("[") and text.endswith("]") else [text]
    chosen = tuple(_number(one) if re.fullmatch(_NUMBER, one.strip()) else one.strip() for one in listed)
    for value in chosen:
        if value not in values and str(value) not in map(str, values):
            raise InputError(f"--inputs: {kernel.name} has no {name}={value}")
    return DrawnSize(name, values=chosen)


def _number(text: str) -> int:
    """A number, or a power of one."""
    base, _, power = text.strip().replace("**", "^").partition("^")
    if len(base) <= _MOST_DIGITS and len(power) <= 2:  # noqa: PLR2004 - digits of an exponent
        number: int = int(base) ** int(power or 1)
        if number <= MAX_SIZE:
            return number
    raise InputError(f"{text:.40}: is beyond all sizes; the largest is 2^53")


def draw(sizes: Sequence[DrawnSize], count: int, seed: int, allowed: Callable[[Sizes], bool]) -> list[Sizes]:
    """Different inputs, spread evenly: a scrambled Halton sequence.

    Returns:
        As many as there are; fewer where few are different and allowed.
    """
    from scipy.stats import qmc  # noqa: PLC0415 - takes a third of a second, and only training needs it

    drawn: dict[tuple[int | str, ...], Sizes] = {}
    sequence = qmc.Halton(max(1, len(sizes)), seed=seed)
    for _ in range(_MOST_DRAWS):
        for point in sequence.random(count):
            values = {size.name: size.value(share) for size, share in zip(sizes, point, strict=False)}
            key = tuple(values.values())
            if key not in drawn and allowed(values):
                drawn[key] = values
            if len(drawn) == count:
                return list(drawn.values())
        if math.prod(len(size.values) or size.high - size.low + 1 for size in sizes) <= len(drawn):
            break
    return list(islice(drawn.values(), count))


def listed_inputs(kernel: KernelFile, texts: Sequence[str]) -> list[Sizes]:
    """Inputs written out, each as ``H=100,W=7``.

    Raises:
        InputError: one is twice, or not of the kernel's sizes.
    """
    inputs: list[Sizes] = []
    for text in texts:
        sizes: dict[str, int | str] = {}
        for part in text.split(","):
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if not equals:
                raise InputError(f"--input {text}: {part.strip()!r} is not of the form SIZE=VALUE")
            if name in sizes:
                raise InputError(f"--input {text}: {name} is there twice")
            sizes[name] = _number(value) if re.fullmatch(_NUMBER, value) else value
        workload = kernel.workload(sizes)
        complete = dict(workload.sizes)
        if complete in inputs:
            raise InputError(f"--input {text}: is there twice")
        inputs.append(complete)
    return inputs
