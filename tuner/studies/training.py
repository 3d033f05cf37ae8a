"""Measures a kernel at many inputs, each as far as it teaches something, and keeps what was learned.

Every input is a run of its own, stored like any other. The first inputs are looked at by drawing
configurations at random; at later ones those are measured that a forest, grown on all trials so far, ranks
first, and some at random. So neighbours' results are used, and no space is measured whole.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tuner import registry
from tuner.database.ledger import Ledger
from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.size_condition import written_out
from tuner.model.errors import InputError, RunInterrupted
from tuner.model.records import RunStatus, canonical
from tuner.prediction.accuracy import LeftOut
from tuner.prediction.method import Predictor
from tuner.prediction.model import SelectionModel
from tuner.prediction.training_set import Sizes, TrainingSet
from tuner.search.request import Request
from tuner.search.setup import MeasurementSetup
from tuner.search.tuning import ProgressListener, Strategy, TuningResult, tune
from tuner.space.search_view import Candidate
from tuner.studies.learning import METHODS, accuracies, feature_table, model_of, predictors, ranking
from tuner.training.trials import StoredTrials

POLICIES = ("predicted", "hill-climbing", "random", "exhaustive")
SHARE = 0.2  # of a space that is measured at an input, unless asked for otherwise
LEAST_EVALUATIONS = 8
_FIRST_SHARE = 6  # one input of so many is looked at without a model
_LEAST_FIRST = 4


@dataclass(frozen=True)
class TrainingRequest:
    """What is to be trained.

    Attributes:
        kernel: name.
        inputs: sizes of each.
        objective: ``time``, ``energy`` or ``edp``.
        policy: how an input is looked at: one of ``POLICIES``.
        evaluations: trials at an input; None for a fifth of its space, 8 at least.
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


class TrainingListener(ProgressListener, Protocol):
    """Hears how a training comes on, beside its runs."""

    def begins(self, number: int, total: int, workload: str) -> None:
        """An input is looked at."""

    def ended(self, number: int, total: int, tuned: TuningResult) -> None:
        """An input was looked at."""

    def judged(self, number: int, total: int) -> None:
        """So many inputs were left out and predicted."""


@dataclass(frozen=True)
class Training:
    """What came of a training.

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

    Args:
        request: what is to be trained.
        setup: open device.
        catalog: where the kernel is.
        store: the database.
        listener: hears how it comes on.

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
        self._table = feature_table(self._kernel, setup.device.limits)
        self._stored = StoredTrials(store, self._kernel, setup.device.identity, request.objective)
        self._ended: list[TuningResult] = []

    def train(self) -> Training:
        """Measure the inputs that were not measured yet, learn, judge, and keep the model.

        A training that was interrupted goes on where it ended: its runs are in the database.

        Raises:
            InputError: nothing was valid, or scikit-learn is not installed.
            KeyboardInterrupt, RunInterrupted: it was interrupted; what was measured is stored.
        """
        request, kernel = self._request, self._kernel
        known = self.measure()
        data = self._stored.all()
        if data is None:
            raise InputError(f"{kernel.name}: no trial was valid; nothing can be learned")
        left_out = accuracies(self._table, kernel, data, request.method, self._listener.judged)
        learned = predictors(self._table, kernel, data, request.method)
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
            looked_at=len(self._ended),
            known=known,
            evaluations=sum(len(tuned.outcome.trials) for tuned in self._ended),
            seconds=sum(tuned.outcome.wall_s for tuned in self._ended),
        )

    def measure(self) -> int:
        """Measure the inputs that were not measured yet; returns how many were.

        Raises:
            KeyboardInterrupt, RunInterrupted: it was interrupted; what was measured is stored.
        """
        known = 0
        for number, sizes in enumerate(self._request.inputs, start=1):
            data = self._stored.all()
            valid = data is not None and any(one.sizes == sizes for one in data.inputs)
            if valid and self._stored.is_done(sizes):
                known += 1
            else:
                self._look_at(number, sizes, _of_others(data, sizes))
        return known

    def _look_at(self, number: int, sizes: Sizes, data: TrainingSet | None) -> None:
        """Measure some configurations of an input, as one run."""
        request, total = self._request, len(self._request.inputs)
        workload = self._kernel.workload(sizes)
        self._listener.begins(number, total, str(workload))
        guided = request.policy == "predicted"
        asked = Request(
            (str(workload),),
            objective=request.objective,
            policy="random" if guided else request.policy,
            seed=request.seed,
            budget=None if guided else request.evaluations,
            **request.search,
        )
        strategy = None
        if guided:
            predictor = self._predictor(data)
            size = len(self._kernel.space(workload))
            count = _evaluations(request, size, first=predictor is None)
            strategy = _strategy(self._kernel, sizes, predictor, count, seed=request.seed + number)
        tuned = tune(
            self._setup,
            asked,
            self._catalog,
            self._store,
            self._listener,
            resume=True,
            strategy=strategy,
            confirm=request.confirm,
        )
        self._ended.append(tuned)
        self._listener.ended(number, total, tuned)
        if tuned.outcome.status is RunStatus.INTERRUPTED:
            raise RunInterrupted(
                f"interrupted at input {number} of {total}; the same command goes on from here"
            )

    def _predictor(self, data: TrainingSet | None) -> Predictor | None:
        """What ranks the configurations of the next input; None while too few were looked at."""
        first = max(_LEAST_FIRST, len(self._request.inputs) // _FIRST_SHARE)
        if data is None or len(data.inputs) < first:
            return None
        return ranking(self._table, self._kernel, data, self._request.method)


def _of_others(data: TrainingSet | None, sizes: Sizes) -> TrainingSet | None:
    """The trials of other inputs; an interrupted run goes on with what it began with."""
    inputs = () if data is None else tuple(one for one in data.inputs if one.sizes != sizes)
    return TrainingSet(inputs) if inputs else None


def model_key(model: SelectionModel) -> str:
    """What a model of a kernel is kept by: an objective on a GPU has one."""
    return canonical([model.objective, model.device.uuid])


def _evaluations(request: TrainingRequest, size: int, *, first: bool) -> int:
    """Trials of an input; twice as many where no model ranks yet."""
    count = request.evaluations
    if count is None:
        count = max(LEAST_EVALUATIONS, round(SHARE * size))
    return min(size, 2 * count if first else count)


def _strategy(
    kernel: KernelFile, sizes: Sizes, predictor: Predictor | None, count: int, *, seed: int
) -> Strategy:
    rank: Callable[[Sequence[Candidate]], Sequence[float]] | None = None
    if predictor is not None:

        def rank(candidates: Sequence[Candidate]) -> Sequence[float]:
            written = [written_out(kernel.recipe, one.configuration) for one in candidates]
            scores = predictor.scores(sizes, written)
            return [float(score) for score in np.asarray(scores)]

    policy = registry.load("training", "predicted")

    def search(search: Any) -> Any:  # noqa: ANN401 - a policy
        return policy(search, rank, count, seed)

    return Strategy("predicted", {"evaluations": count}, search)
