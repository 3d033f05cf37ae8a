"""A trained model as a document: what was learned, of what, on which GPU, and how well it predicts."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tuner.model.errors import ExpressionError, InputError
from tuner.model.expressions.callables import Expression
from tuner.model.jobs import DeviceIdentity
from tuner.model.plan import Configuration, TunableValue
from tuner.model.typed import sealed, unsealed
from tuner.prediction.methods import FlatTree, Predictor
from tuner.prediction.portfolio import MOST_VERSIONS, Allowed, Portfolio, SizeFeature
from tuner.prediction.training_set import InputTrials, Sizes, TrainingSet

# --- Accuracy of a method for unseen inputs: leave-one-out over the inputs.
#
# G-ADAPT, section V: the model is built from all other inputs and predicts the one that is left out. Copies
# of that input, whose sizes differ by less than 2 %, are left out with it.

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


FORMAT = 2
_MOST_FEATURES = 256
_DEEPEST = 64  # of a tree
_MOST_TRAINED = 10_000
_LARGEST_LOGARITHM = 1000.0  # to base 2, of products of sizes
_KEYS = (
    *("format", "kernel", "source", "device", "objective", "method", "date", "trials", "sizes", "inputs"),
    *("ranges", "accuracy", "forest_accuracy", "versions", "conditions", "features", "tree", "orders"),
)


@dataclass(frozen=True)
class TrainedDevice:
    """The GPU that a model was trained on."""

    name: str
    uuid: str
    driver: str
    runtime: str
    modelled: bool

    @classmethod
    def of(cls, identity: DeviceIdentity) -> "TrainedDevice":
        """Of a device."""
        return cls(*(getattr(identity, attribute.name) for attribute in fields(cls)))


@dataclass(frozen=True)
class SelectionModel:
    """Versions of a kernel with the tree that picks one, and what they were learned from.

    Attributes:
        kernel: name.
        source: hash of the kernel file and its sources.
        device: where it was trained.
        objective: ``time``, ``energy`` or ``edp``.
        method: that scored configurations which were not measured.
        date: of the training, UTC, ISO 8601.
        trials: that it was learned from.
        inputs: that it was trained on.
        ranges: least and greatest value of every size, or its texts; sizes in the kernel's order.
        accuracy: of the selection, inputs left out one by one.
        forest_accuracy: of the method's own first prediction, likewise; None where it was not judged.
        portfolio: versions and tree.
        conditions: for which sizes each version is allowed, an expression; None where only the kernel tells.
    """

    kernel: str
    source: str
    device: TrainedDevice
    objective: str
    method: str
    date: str
    trials: int
    inputs: tuple[Sizes, ...]
    ranges: Mapping[str, tuple[int, int] | tuple[str, ...]]
    accuracy: Accuracy
    forest_accuracy: Accuracy | None
    portfolio: Portfolio
    conditions: tuple[str | None, ...]

    def select(
        self, sizes: Mapping[str, int | str], allowed: Callable[[Configuration], bool] | None = None
    ) -> tuple[Configuration, str] | None:
        """The version for an input; one outside the trained range is told with the nearest trained one.

        Args:
            sizes: of the input.
            allowed: whether a version is allowed there; without it, its condition tells.

        Returns:
            The version, and what of the input lies outside the trained range, in words, empty within it; None
            where no version is allowed.

        Raises:
            InputError: a size is missing.
        """
        missing = [name for name in self.ranges if name not in sizes]
        if missing:
            raise InputError(f"{self.kernel}: size {missing[0]} is missing")
        for place in self.portfolio.order(sizes):
            version = self.portfolio.versions[place]
            if self._is_allowed(place, sizes) and (allowed is None or allowed(version)):
                return version, self._outside(sizes)
        return None

    def _is_allowed(self, place: int, sizes: Mapping[str, int | str]) -> bool:
        condition = self._conditions[place]
        try:
            return condition is None or bool(condition.evaluate(sizes))
        except ExpressionError:  # as where a rule of the kernel has no result
            return False

    @cached_property
    def _conditions(self) -> tuple[Expression | None, ...]:
        return tuple(None if text in (None, "True") else Expression(text) for text in self.conditions)

    def _outside(self, sizes: Mapping[str, int | str]) -> str:
        found = []
        for name, values in self.ranges.items():
            size = sizes[name]
            if isinstance(size, int) and isinstance(values[0], int) and isinstance(values[-1], int):
                if not values[0] <= size <= values[-1]:
                    found.append(f"{name}={size} is outside {values[0]} to {values[-1]}")
            elif str(size) not in values:
                found.append(f"{name}={size} was not trained")
        if not found:
            return ""
        nearest = min(self.inputs, key=lambda one: _distance(one, sizes))
        shown = ",".join(f"{name}={value}" for name, value in nearest.items())
        return f"{', '.join(found)}; the nearest trained input is {shown}"

    @property
    def claim(self) -> str:
        """Accuracy of the model, in words."""
        share = self.accuracy.within[1]
        if not self.accuracy.inputs or math.isnan(share):
            if len(self.inputs) == 1:
                return "its accuracy is not known: it was trained on one input"
            return "its accuracy is not known: at no left-out input was the version measured that it picks"
        judged = f"{100 * share:.0f} % of {self.accuracy.inputs} left-out inputs"
        whole = self.accuracy.whole
        best = "the best" if whole else "the best measured"
        spaces = f"{whole or 'none'} {'were' if whole > 1 else 'was'} measured whole"
        return f"within 5 % of {best} for {judged}, of whose spaces {spaces}"

    def document(self) -> dict[str, Any]:
        """As JSON has it, with a checksum."""
        portfolio = self.portfolio
        forest = None if self.forest_accuracy is None else asdict(self.forest_accuracy)
        return sealed(
            {
                "format": FORMAT,
                "kernel": self.kernel,
                "source": self.source,
                "device": asdict(self.device),
                "objective": self.objective,
                "method": self.method,
                "date": self.date,
                "trials": self.trials,
                "sizes": list(self.ranges),  # a database sorts the keys of objects
                "inputs": [[one[name] for name in self.ranges] for one in self.inputs],
                "ranges": {name: list(values) for name, values in self.ranges.items()},
                "accuracy": rounded(asdict(self.accuracy)),
                "forest_accuracy": None if forest is None else rounded(forest),
                "versions": [dict(version) for version in portfolio.versions],
                "conditions": list(self.conditions),
                "features": [
                    {"powers": dict(feature.powers), **({"text": feature.text} if feature.text else {})}
                    for feature in portfolio.features
                ],
                "tree": portfolio.tree.document(),
                "orders": [list(order) for order in portfolio.orders],
            }
        )

    @classmethod
    def of(cls, document: object) -> "SelectionModel":
        """A model from JSON.

        Raises:
            InputError: it is no model of this format, or was changed.
        """
        try:
            return _decoded(unsealed(document, _KEYS))
        except InputError as e:
            raise InputError(f"trained model: {e}") from e
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as e:
            raise InputError(f"trained model: it is damaged or was changed: {e}") from e


def _distance(one: Sizes, sizes: Mapping[str, int | str]) -> float:
    total = 0.0
    for name, value in one.items():
        size = sizes[name]
        if isinstance(value, int) and isinstance(size, int) and value > 0 and size > 0:
            total += math.log(value / size) ** 2
        else:
            total += 100.0 * (str(value) != str(size))
    return total


def rounded(values: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers to four places; none for what is not a number."""

    def short(value: object) -> object:
        if isinstance(value, float):
            return None if math.isnan(value) else round(value, 4)
        return [short(one) for one in value] if isinstance(value, (list, tuple)) else value

    return {name: short(value) for name, value in values.items()}


def _accuracy(values: Mapping[str, Any]) -> Accuracy:
    def number(value: object) -> float:
        if value is None:
            return math.nan
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise InputError(f"an accuracy is {value!r:.40}")
        return float(value)

    def shares(listed: Sequence[object]) -> tuple[float, ...]:
        if len(listed) != len(LIMITS):
            raise InputError(f"an accuracy has {len(listed)} shares")
        return tuple(map(number, listed))

    return Accuracy(
        inputs=_whole(values["inputs"]),
        exact=number(values["exact"]),
        within=shares(values["within"]),
        mean=number(values["mean"]),
        worst=number(values["worst"]),
        within_of_first=shares(values["within_of_first"]),
        mean_of_first=number(values["mean_of_first"]),
        whole=_whole(values.get("whole", 0)),
    )


def _whole(value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise InputError(f"{value!r:.40} is no count")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise InputError(f"{value!r:.40} is no text")
    return value


def _size(value: object) -> int | str:
    if type(value) is int or isinstance(value, str):
        return value
    raise InputError(f"{value!r:.40} is no size")


def _decoded(document: Mapping[str, Any]) -> SelectionModel:
    if document["format"] != FORMAT:
        raise InputError(f"its format is {document['format']!r:.40}; this tuner reads {FORMAT}")
    ranges = _ranges(document)
    portfolio = _portfolio(document, ranges)
    conditions = tuple(_condition(one, ranges) for one in document["conditions"])
    if len(conditions) != len(portfolio.versions):
        raise InputError(f"it has {len(conditions)} conditions of {len(portfolio.versions)} versions")
    inputs = [tuple(map(_size, one)) for one in document["inputs"][:_MOST_TRAINED]]
    if not inputs or any(len(one) != len(ranges) for one in inputs):
        raise InputError("its inputs are not of its sizes")
    forest, device = document["forest_accuracy"], document["device"]
    return SelectionModel(
        kernel=_text(document["kernel"]),
        source=_text(document["source"]),
        device=TrainedDevice(
            **{name: _text(device[name]) for name in ("name", "uuid", "driver", "runtime")},
            modelled=bool(device["modelled"]),
        ),
        objective=_text(document["objective"]),
        method=_text(document["method"]),
        date=_text(document["date"]),
        trials=_whole(document["trials"]),
        inputs=tuple(dict(zip(ranges, one, strict=True)) for one in inputs),
        ranges=ranges,
        accuracy=_accuracy(document["accuracy"]),
        forest_accuracy=None if forest is None else _accuracy(forest),
        portfolio=portfolio,
        conditions=conditions,
    )


def _ranges(document: Mapping[str, Any]) -> dict[str, tuple[int, int] | tuple[str, ...]]:
    """By size, in the kernel's order."""
    ranges: dict[str, tuple[int, int] | tuple[str, ...]] = {}
    names = [_text(name) for name in document["sizes"]]
    if sorted(names) != sorted(document["ranges"]):
        raise InputError("its ranges are not of its sizes")
    for name in names:
        sizes = tuple(map(_size, document["ranges"][name]))
        if not sizes:
            raise InputError(f"{name!r:.40} has no values")
        whole = tuple(value for value in sizes if isinstance(value, int))
        if len(whole) == len(sizes) == 2:  # noqa: PLR2004 - least and greatest
            ranges[name] = (whole[0], whole[1])
        else:
            ranges[name] = tuple(map(_text, sizes))
    return ranges


def _portfolio(document: Mapping[str, Any], ranges: Mapping[str, Sequence[object]]) -> Portfolio:
    features = tuple(_feature(one, ranges) for one in document["features"])
    versions = tuple(_version(one) for one in document["versions"])
    if not 1 <= len(versions) <= MOST_VERSIONS or len(features) > _MOST_FEATURES:
        raise InputError(f"it has {len(versions)} versions and {len(features)} features")
    tree = FlatTree.of(document["tree"], len(features))
    if (np.abs(tree.threshold) > _LARGEST_LOGARITHM).any():
        raise InputError("a threshold of its tree is beyond all sizes")
    if tree.depth > _DEEPEST:
        raise InputError(f"its tree has a depth of {tree.depth}")
    orders = tuple(tuple(map(_whole, one)) for one in document["orders"])
    if any(sorted(order) != list(range(len(versions))) for order in orders):
        raise InputError("an order is not one of its versions")
    if not np.isin(tree.value[tree.feature < 0], np.arange(len(orders))).all():
        raise InputError("its tree picks an order that is not there")
    return Portfolio(versions, features, tree, orders)


def _condition(value: object, ranges: Collection[str]) -> str | None:
    if value is None:
        return None
    names = Expression(_text(value)).names - set(ranges)
    if names:
        raise InputError(f"a condition names {min(names)!r}, which is no size")
    return _text(value)


def _feature(values: Mapping[str, Any], ranges: Mapping[str, Sequence[object]]) -> SizeFeature:
    powers = tuple(values["powers"].items())
    if not powers or any(name not in ranges or power not in (1, -1) for name, power in powers):
        raise InputError("a feature is not made of its sizes")
    text = _text(values.get("text", ""))
    numbers = all(isinstance(value, int) for name, _ in powers for value in ranges[name])
    if numbers if text else not numbers:
        raise InputError("a feature compares a text and a number")
    return SizeFeature(powers, text)


def _version(values: Mapping[str, Any]) -> Configuration:
    found: dict[str, TunableValue] = {}
    for name, value in values.items():
        if not isinstance(value, (int, float, str)) or (
            isinstance(value, float) and not math.isfinite(value)
        ):
            raise InputError(f"a version has {name}={value!r:.40}")
        found[name] = value
    return Configuration(found)
