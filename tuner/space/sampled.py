"""Spaces of which only some configurations are listed, as there are too many."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np

from tuner.expressions.expression import Expression
from tuner.model.errors import InputError, SpaceSizeError, UnknownNameError
from tuner.model.plan import Configuration, TunableValue
from tuner.space.enumeration import Enumeration
from tuner.space.sampling import Positions, SpaceSampler
from tuner.space.space import Space, checked_lists
from tuner.space.values import Condition

LISTED = 2**17  # configurations of a space that is listed as a whole: some 10 s until a search begins
ON_THE_WAY = 2**21  # combinations of some tunables, while it is found out whether so few are left in the end
DRAWN = 8192  # configurations of a larger one that are listed
_DIGITS = 2  # of an estimated size that mean something


class SampledSpace(Space):
    """A space that lists a sample of its configurations, and its first one.

    The sample is the same every time. Order, length, membership and positions are those of what is listed.
    """

    is_sample = True

    def __init__(
        self,
        tunables: Mapping[str, tuple[TunableValue, ...]],
        positions: Positions,
        cartesian_size: int,
        size: float,
        sampler: SpaceSampler,
    ) -> None:
        """Take what was drawn.

        Args:
            tunables: value lists by name.
            positions: of the configurations listed, in the order of the space.
            cartesian_size: combinations there are without rules.
            size: estimated number of configurations.
            sampler: of the space.
        """
        super().__init__(tunables, list(positions.T), cartesian_size)
        self._size = max(len(positions), rounded(size))
        self._sampler = sampler

    @property
    def size(self) -> int:
        """About how many configurations there are, to two digits."""
        return self._size

    def allows(self, configuration: Mapping[str, TunableValue]) -> bool:
        """Whether a configuration is one of the space, listed or not."""
        try:
            positions = self.order(configuration)
        except UnknownNameError:
            return False
        known = sum(place >= 0 for place in positions)
        return known == len(configuration) and self._sampler.allows(np.array(positions, dtype=np.int32))

    def neighbours(self, configuration: Mapping[str, TunableValue]) -> list[Configuration]:
        """Configurations that differ in a single tunable, and in what follows from that.

        Where the rules forbid a change, another tunable of the same rule is changed, too. They need not be
        listed.

        Args:
            configuration: of the space; it need not be listed.
        """
        present = np.array(self.order(configuration), dtype=np.int32)
        return [self._configuration(row) for row in self._sampler.neighbours(present)]

    def _configuration(self, row: Positions) -> Configuration:
        placed = zip(self.tunables.items(), row.tolist(), strict=True)
        return Configuration(tuple((name, values[place]) for (name, values), place in placed if place >= 0))


def rounded(size: float) -> int:
    """An estimated size to the digits that mean something."""
    return int(round(size, _DIGITS - 1 - math.floor(math.log10(max(size, 1.0)))))


def space_of(
    tunables: Mapping[str, Sequence[TunableValue]],
    rules: Sequence[Expression],
    constants: Mapping[str, TunableValue],
    derived: Mapping[str, Expression],
    conditions: Mapping[str, Condition],
    *,
    listed: int = LISTED,
    drawn: int = DRAWN,
) -> Space:
    """The space as `Space.build` makes it, or a sample of it where it is too large.

    Args:
        tunables: value lists by name.
        rules: expressions over tunables, constants and derived names.
        constants: values that are the same everywhere.
        derived: named expressions.
        conditions: of the tunables that do not always have a value.
        listed: configurations of a space that is listed as a whole.
        drawn: configurations that are listed of a larger one.

    Raises:
        EmptySpaceError, ExpressionError, InputError: as `Space.build`; or no configuration was found.
    """
    lists = checked_lists(tunables, conditions)
    given = (lists, rules, constants, derived, conditions)
    enumeration = Enumeration(*given, max_rows=listed)
    try:
        return Space(lists, enumeration.columns(), enumeration.product())
    except SpaceSizeError:
        sampler = SpaceSampler(Enumeration(*given))
    found = sampler.sample(drawn, np.random.default_rng(0))
    if found.size <= listed:  # rules that need many tunables left more on the way than in the end
        enumeration = Enumeration(*given, max_rows=ON_THE_WAY)
        with suppress(SpaceSizeError):
            return Space(lists, enumeration.columns(), enumeration.product())
    positions = np.unique(np.vstack([found.positions, sampler.first()]), axis=0)
    if not len(positions):
        raise InputError(
            "none of the combinations drawn satisfies all rules; state each rule over as few tunables as it"
            " needs, and those joined by `and` one by one, or shorten value lists"
        )
    return SampledSpace(lists, positions, enumeration.product(), found.size, sampler)
