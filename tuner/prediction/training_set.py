"""Measurements of a kernel at many inputs, and the features that models learn from."""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.model.errors import InputError
from tuner.model.plan import Configuration, TunableValue

# --- Numbers that tell how a configuration meets an input: what a model learns from.
#
# Beside the sizes, their product, ratios and alignment, and the tunables, these are the geometry of its
# launches (blocks, waves over the device, the part of the last wave that is used) and how sizes and tunables
# fit: their ratio, the smaller of the two, and the share of work that is useful where a size is cut in pieces
# of a tunable.

Array = NDArray[np.float32]
SizeValues = Mapping[str, int | str]

_STAGES = 2  # launches of a run whose geometry is told; more are much like these
_SM_THREADS = 2048.0
_MOST_RATIOS = 48
_ALIGNED = 64  # elements: rows of a multiple of that lie as well as they can
_MOST_ROWS = 200_000  # that are kept


@dataclass(frozen=True)
class LaunchGeometry:
    """One launch, as its kernel file states it."""

    blocks: int
    threads: int
    shared_bytes: int = 0


Geometry = Callable[[SizeValues, Configuration], Sequence[LaunchGeometry]]
"""The launches of a configuration at an input; empty where they are not known."""


class FeatureTable:
    """Makes rows of features, the same columns for every input of a kernel.

    Args:
        sizes: names of the sizes with the texts that they take; none for numbers.
        tunables: names with all their values.
        multiprocessors: of the device.
        geometry: of launches; None where nothing is known of them.
    """

    def __init__(
        self,
        sizes: Mapping[str, Sequence[str]],
        tunables: Mapping[str, Sequence[TunableValue]],
        multiprocessors: int,
        geometry: Geometry | None = None,
    ) -> None:
        self._sizes = {name: tuple(texts) for name, texts in sizes.items()}
        self._tunables = {name: tuple(values) for name, values in tunables.items()}
        self._multiprocessors = max(1, multiprocessors)
        self._geometry = geometry
        self._rows: dict[tuple[tuple[tuple[str, int | str], ...], Configuration], list[float]] = {}
        numbers = [
            name
            for name, values in self._tunables.items()
            if all(isinstance(value, int) and not isinstance(value, bool) and value > 0 for value in values)
        ]
        self._numbers = [size for size, texts in self._sizes.items() if not texts]
        self._pairs = list(itertools.product(self._numbers, numbers))[:_MOST_RATIOS]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        found = []
        for name, texts in self._sizes.items():
            found += [f"{name}={text}" for text in texts] or [f"log2 {name}"]
        found += ["log2 of all"] if self._numbers else []
        found += [f"log2 {one}/{other}" for one, other in itertools.combinations(self._numbers, 2)]
        found += [f"alignment of {name}" for name in self._numbers]
        for name, values in self._tunables.items():
            found += [f"{name}={value}" for value in values] if _is_text(values) else [name]
        for size, name in self._pairs:
            found += [f"log2 {size}/{name}", f"useful {size}/{name}", f"least {size}/{name}"]
        if self._geometry is not None:
            for stage in range(_STAGES):
                found += [
                    f"{what} {stage}" for what in ("blocks", "threads", "shared", "waves", "tail", "work")
                ]
        return tuple(found)

    def rows(self, sizes: SizeValues, configurations: Sequence[Configuration]) -> Array:
        """A row for each configuration at an input, float32."""
        fixed: list[float] = []
        for name, texts in self._sizes.items():
            value = sizes[name]
            fixed += [float(str(value) == text) for text in texts] or [_log2(value)]
        logarithms = [_log2(sizes[name]) for name in self._numbers]
        fixed += [math.fsum(logarithms)] if logarithms else []
        fixed += [one - other for one, other in itertools.combinations(logarithms, 2)]
        fixed += [_log2(math.gcd(int(sizes[name]), _ALIGNED)) for name in self._numbers]
        key = tuple(sizes.items())
        table = [[*fixed, *self._known_of(key, sizes, configuration)] for configuration in configurations]
        return np.array(table, dtype=np.float32).reshape(len(configurations), len(self.names))

    def _known_of(
        self, key: tuple[tuple[str, int | str], ...], sizes: SizeValues, configuration: Configuration
    ) -> list[float]:
        """``_of``, made once: leaving inputs out asks for the same rows again and again."""
        result = self._rows.get((key, configuration))
        if result is None:
            if len(self._rows) >= _MOST_ROWS:
                self._rows.clear()
            result = self._rows[key, configuration] = self._of(sizes, configuration)
        return result

    def _of(self, sizes: SizeValues, configuration: Configuration) -> list[float]:
        values = dict(configuration)
        result: list[float] = []
        for name, listed in self._tunables.items():
            value = values.get(name)
            if _is_text(listed):
                result += [float(value == text) for text in listed]
            else:
                result.append(
                    -1.0 if value is None else _log2(value) if _is_positive(listed) else float(value)
                )
        for size, name in self._pairs:
            number, piece = sizes[size], values.get(name)
            if isinstance(number, int) and isinstance(piece, int) and number > 0 and piece > 0:
                useful = number / (-(-number // piece) * piece)
                result += [math.log2(number / piece), useful, math.log2(min(number, piece))]
            else:
                result += [0.0, 0.0, 0.0]
        if self._geometry is not None:
            result += self._launched(sizes, self._geometry(sizes, configuration))
        return result

    def _launched(self, sizes: SizeValues, launches: Sequence[LaunchGeometry]) -> list[float]:
        work = sum(math.log2(value) for value in sizes.values() if isinstance(value, int) and value > 0)
        result: list[float] = []
        for stage in range(_STAGES):
            if stage >= len(launches):
                result += [-1.0] * 6
                continue
            one = launches[stage]
            at_once = self._multiprocessors * max(1.0, _SM_THREADS // max(1, one.threads))
            waves = one.blocks / at_once
            result += [
                math.log2(max(1, one.blocks)),
                math.log2(max(1, one.threads)),
                math.log2(1.0 + one.shared_bytes),
                math.log2(waves) if waves > 0.0 else -30.0,
                waves / math.ceil(waves) if waves > 0.0 else 0.0,
                work - math.log2(max(1, one.blocks * one.threads)),
            ]
        return result


def _log2(value: object) -> float:
    return math.log2(value) if isinstance(value, (int, float)) and value > 0 else float(bool(value))


def _is_text(values: Sequence[TunableValue]) -> bool:
    return any(isinstance(value, str) for value in values)


def _is_positive(values: Sequence[TunableValue]) -> bool:
    """Return True if all values are positive numbers: forests split their logarithm alike, rounding less."""
    numbers = [value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    return len(numbers) == len(values) and min(numbers, default=0) > 0


NEAR = 0.02  # relative difference in every size, below which two inputs are copies of each other

Sizes = dict[str, int | str]


@dataclass(frozen=True)
class InputTrials:
    """The trials of one input.

    Attributes:
        sizes: of the problem, by name.
        configurations: those that were measured, each once.
        costs: in the objective's unit, in the same order; infinity for one that failed.
        sigmas: relative standard uncertainties of the costs.
    """

    sizes: Sizes
    configurations: tuple[Configuration, ...]
    costs: NDArray[np.float64]
    sigmas: NDArray[np.float64]

    @property
    def lowest(self) -> float:
        """The lowest cost."""
        return float(self.costs.min())

    @property
    def slowdowns(self) -> NDArray[np.float64]:
        """Costs by the lowest."""
        return self.costs / self.lowest

    def is_tie(self, place: int, missed: float = 1.0) -> bool:
        """Return True if a configuration costs no more than the best, within two standard deviations.

        Args:
            place: of the configuration.
            missed: what the best of these trials costs by the best there is.
        """
        best = int(self.costs.argmin())
        sigma = math.hypot(float(self.sigmas[place]), float(self.sigmas[best]))
        return bool(missed * self.slowdowns[place] <= 1.0 + 2.0 * sigma)

    def place(self, configuration: Configuration) -> int | None:
        """Return the index of a configuration; None if it was not measured."""
        return self.configurations.index(configuration) if configuration in self.configurations else None

    def is_near(self, sizes: Sizes) -> bool:
        """Return True if an input is a copy: the same texts, and sizes that differ by less than 2 %."""
        for name, value in self.sizes.items():
            other = sizes.get(name)
            if isinstance(value, int) and isinstance(other, int) and value > 0 and other > 0:
                if abs(math.log(value / other)) > NEAR:
                    return False
            elif value != other:
                return False
        return True


@dataclass(frozen=True)
class TrainingSet:
    """Trials of a kernel at different inputs.

    Attributes:
        inputs: those with a valid trial.
    """

    inputs: tuple[InputTrials, ...]

    @classmethod
    def of(cls, trials: Iterable[tuple[Sizes, Configuration, float, float]]) -> "TrainingSet":
        """Trials grouped by their inputs; of a configuration that is there again the surest counts.

        Of equally sure ones the last does: a search ends most trials after a window of some milliseconds, and
        should not replace what a longer window told.

        Args:
            trials: sizes, configuration, cost and relative standard uncertainty of each.

        Raises:
            InputError: no trial was valid.
        """
        found: dict[tuple[tuple[str, int | str], ...], dict[Configuration, tuple[float, float]]] = {}
        for sizes, configuration, cost, sigma in trials:
            of_input = found.setdefault(tuple(sizes.items()), {})
            known = of_input.get(configuration)
            if known is None or not math.isfinite(known[0]) or sigma <= known[1]:
                of_input[configuration] = (cost, sigma)
        inputs = tuple(
            InputTrials(
                dict(key),
                tuple(measured),
                np.array([cost for cost, _ in measured.values()]),
                np.array([sigma for _, sigma in measured.values()]),
            )
            for key, measured in found.items()
            if any(math.isfinite(cost) for cost, _ in measured.values())
        )
        if not inputs:
            raise InputError("there is nothing to learn from: no input has a valid trial")
        return cls(inputs)

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """All configurations that were valid at some input, in the order of their first trial."""
        return tuple(
            dict.fromkeys(
                configuration
                for one in self.inputs
                for configuration, cost in zip(one.configurations, one.costs, strict=True)
                if math.isfinite(cost)
            )
        )

    @property
    def trials(self) -> int:
        """Number of trials."""
        return sum(len(one.configurations) for one in self.inputs)

    def without(self, left_out: InputTrials) -> "TrainingSet":
        """The set without an input and its copies."""
        return TrainingSet(tuple(one for one in self.inputs if not one.is_near(left_out.sizes)))

    def ranges(self) -> dict[str, tuple[int, int] | tuple[str, ...]]:
        """Least and greatest value of every size, or the texts that were seen."""
        result: dict[str, tuple[int, int] | tuple[str, ...]] = {}
        for name in self.inputs[0].sizes:
            values: Sequence[int | str] = [one.sizes[name] for one in self.inputs]
            numbers = [value for value in values if isinstance(value, int)]
            texts = tuple(sorted({str(value) for value in values}))
            result[name] = (min(numbers), max(numbers)) if len(numbers) == len(values) else texts
        return result
