"""What was measured of a kernel at many inputs: the material of a model."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.model.errors import InputError
from tuner.model.plan import Configuration

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

    def is_tie(self, place: int) -> bool:
        """Whether a configuration costs no more than the best, as far as measured: by two deviations."""
        best = int(self.costs.argmin())
        sigma = math.hypot(float(self.sigmas[place]), float(self.sigmas[best]))
        return bool(self.slowdowns[place] <= 1.0 + 2.0 * sigma)

    def place(self, configuration: Configuration) -> int | None:
        """Where a configuration is; None where it was not measured."""
        return self.configurations.index(configuration) if configuration in self.configurations else None

    def is_near(self, sizes: Sizes) -> bool:
        """Whether an input is a copy of this one: the same texts, and sizes that differ by less than 2 %."""
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
        """How many there are."""
        return sum(len(one.configurations) for one in self.inputs)

    def without(self, left_out: InputTrials) -> "TrainingSet":
        """The set without an input and its copies."""
        return TrainingSet(tuple(one for one in self.inputs if not one.is_near(left_out.sizes)))

    def ranges(self) -> dict[str, tuple[int, int] | tuple[str, ...]]:
        """Least and greatest value of every size, or the texts that were seen."""
        found: dict[str, tuple[int, int] | tuple[str, ...]] = {}
        for name in self.inputs[0].sizes:
            values: Sequence[int | str] = [one.sizes[name] for one in self.inputs]
            numbers = [value for value in values if isinstance(value, int)]
            texts = tuple(sorted({str(value) for value in values}))
            found[name] = (min(numbers), max(numbers)) if len(numbers) == len(values) else texts
        return found
