"""Accuracy of a method for unseen inputs: leave-one-out over the inputs.

G-ADAPT, section V: the model is built from all other inputs and predicts the one that is left out. Copies of
that input, whose sizes differ by less than 2 %, are left out with it.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tuner.model.plan import Configuration
from tuner.prediction.methods import Predictor
from tuner.prediction.portfolio import Allowed, Portfolio
from tuner.prediction.training_set import InputTrials, TrainingSet

Learn = Callable[[TrainingSet], Mapping[str, Predictor]]
"""Learns from trials by several methods: name -> predictor."""


class Missed(NamedTuple):
    """Distance of the best trial of an input from the best of its space.

    Attributes:
        factor: what it costs by that; 1 where the whole space was measured.
        whole: it was.
    """

    factor: float = 1.0
    whole: bool = False


LIMITS = (0.02, 0.05, 0.10)
FIRST = 4  # predicted configurations that are measured at the first use


@dataclass(frozen=True)
class LeftOut:
    """Prediction for an input that was left out.

    Attributes:
        sizes: of the input.
        slowdown: cost of the predicted configuration by the best.
        exact: it costs no more than the best, as far as measured.
        best_of_first: the same of the best of the first predicted ones, measured.
        configuration: what was predicted.
        whole: the whole space of the input was measured.
    """

    sizes: dict[str, int | str]
    slowdown: float
    exact: bool
    best_of_first: float
    configuration: Configuration
    whole: bool = False


@dataclass(frozen=True)
class Accuracy:
    """Of all inputs that were left out, one by one.

    Attributes:
        inputs: how many.
        exact: share predicted as well as the best, as far as measured.
        within: share within each of ``LIMITS`` of the best.
        mean: slowdown, arithmetic mean.
        worst: slowdown.
        within_of_first: as ``within``, of the best of the first four, measured.
        mean_of_first: as ``mean``, likewise.
        whole: inputs whose space was measured whole; others are judged by what that says of the best. With
            none, the best is that of the trials.
    """

    inputs: int
    exact: float
    within: tuple[float, ...]
    mean: float
    worst: float
    within_of_first: tuple[float, ...]
    mean_of_first: float
    whole: int = 0

    @classmethod
    def of(cls, found: Sequence[LeftOut]) -> "Accuracy":
        """The accuracy of predictions; of none, not a number."""
        slowdowns = [one.slowdown for one in found]
        first = [one.best_of_first for one in found]
        return cls(
            len(found),
            _share(one.exact for one in found),
            tuple(_share(one.slowdown <= 1.0 + limit or one.exact for one in found) for limit in LIMITS),
            float(np.mean(slowdowns)) if found else math.nan,
            max(slowdowns, default=math.nan),
            tuple(_share(value <= 1.0 + limit for value in first) for limit in LIMITS),
            float(np.mean(first)) if found else math.nan,
            sum(one.whole for one in found),
        )


def leave_one_out(
    data: TrainingSet,
    learn: Learn,
    allowed: Allowed | None = None,
    missed: Callable[[InputTrials], Missed] | None = None,
) -> Iterator[dict[str, LeftOut]]:
    """Predict every input from the others, by every method.

    A prediction is one of the configurations that were measured at the input: of others nobody knows what
    they cost. Where the version that a portfolio picks was not measured, it is not judged. Inputs without
    others that are no copies are passed over.

    Args:
        data: what was measured.
        learn: makes predictors from the trials of the other inputs.
        allowed: tells of any input what is allowed there; without it, what was measured.
        missed: tells how far the best trial of an input is from the best of its space; without it, the best
            trial is the best.
    """
    for one in data.inputs:
        others = data.without(one)
        if others.inputs:
            learned = learn(others).items()
            found = one.configurations if allowed is None else allowed(one.sizes)
            of_best = Missed() if missed is None else missed(one)
            yield {
                name: _predicted(one, method, of_best)
                for name, method in learned
                if _can_be_judged(one, method, found)
            }


def _can_be_judged(one: InputTrials, predictor: Predictor, allowed: Collection[Configuration]) -> bool:
    """Return True if the predicted configuration was measured."""
    if not isinstance(predictor, Portfolio):
        return True
    picked = predictor.picked(one.sizes, allowed)
    return picked is not None and one.place(picked) is not None


def _predicted(one: InputTrials, predictor: Predictor, missed: Missed) -> LeftOut:
    scores = predictor.scores(one.sizes, one.configurations)
    order = np.argsort(scores, kind="stable")
    slowdowns = one.slowdowns * missed.factor
    first = int(order[0])
    return LeftOut(
        one.sizes,
        float(slowdowns[first]),
        one.is_tie(first, missed.factor),
        float(slowdowns[order[:FIRST]].min()),
        one.configurations[first],
        missed.whole,
    )


def _share(values: Iterable[bool]) -> float:
    listed = list(values)
    return sum(listed) / len(listed) if listed else math.nan
