"""Spaces too large to be listed: drawn configurations, their neighbours, and propagated rules."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tuner.model.errors import ExpressionError, InputError, SpaceSizeError, UnknownNameError
from tuner.model.expressions.callables import Expression
from tuner.model.plan import Configuration, TunableValue
from tuner.space.space import Column, Condition, Enumeration, Mask, Space, checked_lists, row_count

# --- Propagates rules: what a rule allows of its first tunables, before the others have values.
#
# A combination of some tunables has *support* in a rule if values of the rule's other tunables complete it.
# What has none is dropped as soon as it is known, so that growing a space by samples seldom ends where
# nothing is allowed. See Rossi, van Beek and Walsh, "Handbook of Constraint Programming" (2006), chapter 3.

MOST = 2**18  # combinations of a rule's tunables, up to which it is propagated


@dataclass(frozen=True)
class Support:
    """The combinations of some tunables that have support in a rule.

    Attributes:
        names: of the tunables, in the order of the space.
        strides: of a combination's number: the sum of (position + 1) x stride, as -1 is no value.
        supported: by that number.
    """

    names: tuple[str, ...]
    strides: tuple[int, ...]
    supported: Mask

    def holds(self, columns: Mapping[str, Column]) -> Mask:
        """Rows whose combination has support; all of ``names`` have columns."""
        return np.asarray(self.supported[_numbers([columns[name] for name in self.names], self.strides)])


def supports(enumeration: Enumeration) -> dict[Expression, list[Support]]:
    """The supports of each rule by its first tunable, its first two, and so on; the last is by all of them.

    A rule over more than `MOST` combinations has none, and neither has one without a result where it is
    alone: others may keep it from such values.

    Raises:
        EmptySpaceError: a rule allows nothing.
    """
    by_rule: dict[Expression, list[Support]] = {}
    for axis, rules in enumeration.rules_at.items():
        for rule in rules if axis >= 0 else ():
            alone = enumeration.alone(rule, MOST)
            lengths = [len(values) + 1 for values in alone.lists.values()]
            if math.prod(lengths) > MOST:
                continue
            try:
                allowed = alone.columns()
            except ExpressionError:
                continue
            by_rule[rule] = _prefixes(tuple(alone.lists), lengths, allowed, alone.conditions)
    return by_rule


def _prefixes(
    names: tuple[str, ...],
    lengths: Sequence[int],
    allowed: Sequence[Column],
    conditions: Mapping[str, Condition],
) -> list[Support]:
    """Return the values a rule allows of its first tunables, its first two, ...; not where all are.

    Those of all its tunables are the last, in any case.
    """
    supports = []
    for count in range(1, len(names) + 1):
        strides = tuple(math.prod(lengths[axis + 1 : count]) for axis in range(count))
        supported = np.zeros(math.prod(lengths[:count]), dtype=np.bool_)
        supported[_numbers(allowed[:count], strides)] = True
        possible = math.prod(length - 1 for length in lengths[:count])
        conditional = not conditions.keys().isdisjoint(names[:count])
        if conditional or count == len(names) or int(supported.sum()) < possible:
            supports.append(Support(names[:count], strides, supported))
    return supports


def _numbers(columns: Sequence[Column], strides: Sequence[int]) -> npt.NDArray[np.int64]:
    total = np.zeros(len(columns[0]), dtype=np.int64)
    for column, stride in zip(columns, strides, strict=True):
        total += (column.astype(np.int64) + 1) * stride
    return total


# --- Draws configurations that the rules allow.

WIDTH = 2**15  # rows kept of a partial product
GROWTH = 16  # times as many, after all values of the next tunable
ROUNDS = 8  # growths at most, while fewer rows are found than are wanted
PAIRS = 2**16  # rows tried at most to make changes of one tunable possible by another's
BRANCHES = 64  # completions kept of a change that gives other tunables a value

Positions = npt.NDArray[np.int32]  # (configurations, tunables) in the value lists; -1 is no value
Choice = Callable[[int, int], npt.NDArray[np.int64]]
"""Which rows are kept: takes how many there are, and how many of them are kept; in order."""

_log = logging.getLogger(__name__)


class SpaceSampler:
    """Draws from a space, and looks around in it.

    Args:
        enumeration: of the space.
        width: rows kept of a partial product.

    Raises:
        EmptySpaceError: a rule allows nothing.
    """

    def __init__(self, enumeration: Enumeration, width: int = WIDTH) -> None:
        self._enumeration = enumeration
        self._width = width
        self._names = list(enumeration.lists)
        by_rule = supports(enumeration)
        self._tables = {rule: found[-1] for rule, found in by_rule.items()}
        self._supports: dict[str, list[Support]] = {name: [] for name in self._names}
        for found in by_rule.values():
            for support in found[:-1]:
                self._supports[support.names[-1]].append(support)
        self._tied = self._ties()

    def sample(self, count: int, draw: "np.random.Generator") -> tuple[Positions, float]:
        """So many different configurations in the order of the space, or as many as some growths find.

        The number of configurations in the space is estimated, too, by how many rows were left for each that
        was kept: Knuth, "Estimating the efficiency of backtrack programs" (1975), with many rows at a time.
        """

        def some(rows: int, number: int) -> npt.NDArray[np.int64]:
            return np.sort(draw.choice(rows, number, replace=False))

        drawn = np.zeros((0, len(self._names)), dtype=np.int32)
        sizes: list[float] = []
        while len(drawn) < count and len(sizes) < ROUNDS:
            columns, size = self._grown(some)
            sizes.append(size)
            rows = _stacked(columns)
            rows = rows[some(len(rows), min(len(rows), count))]
            drawn = np.unique(np.vstack([drawn, rows]), axis=0)
        if len(drawn) > count:
            drawn = drawn[some(len(drawn), count)]
        return drawn, float(np.mean(sizes))

    def first(self) -> Positions:
        """The first configuration in the order of the space; none where the first rows lead nowhere."""
        columns, _ = self._grown(lambda _, number: np.arange(number))
        return _stacked(columns)[:1]

    def _grown(self, choice: Choice) -> tuple[dict[str, Column], float]:
        """The rows that are left in the end, and how many the whole space has by them."""
        columns: dict[str, Column] = {}
        weight = 1.0
        for axis, name in enumerate(self._names):
            rows = row_count(columns)
            most = max(1, min(self._width, GROWTH * self._width // len(self._enumeration.lists[name])))
            if rows > most:
                columns = _taken(columns, choice(rows, most))
                weight *= rows / most
            columns = self._enumeration.extended(columns, min(rows, most), name)
            for support in self._supports[name]:
                columns = _taken(columns, np.flatnonzero(support.holds(columns)))
            columns = self._enumeration.filtered(columns, self._enumeration.rules_at.get(axis, []))
            if not row_count(columns):
                return dict.fromkeys(self._names, np.zeros(0, dtype=np.int16)), 0.0
        return columns, weight * row_count(columns)

    # --- neighbours ------------------------------------------------------------------------------

    def neighbours(self, present: npt.NDArray[np.int32]) -> Positions:
        """Configurations that differ from one in a single tunable, and what follows from that.

        Where the new value gives others a value, they take the first that the rules allow. Where the rules
        forbid a change, another tunable of the same rule is changed, too, as little as possible.

        Args:
            present: its positions, shape (tunables,).

        Returns:
            One configuration for each new value of a tunable, where there is one.
        """
        moves = [
            (axis, position)
            for axis, values in enumerate(self._enumeration.lists.values())
            for position in range(len(values))
            if present[axis] >= 0 and position != present[axis]
        ]
        rows = np.repeat(present[None, :], len(moves), axis=0)
        for number, (axis, position) in enumerate(moves):
            rows[number, axis] = position
        try:
            alone, settled = self._settled(rows, np.arange(len(moves)))
            forbidden = np.setdiff1d(np.arange(len(moves)), settled)
            pairs, numbers = self._pairs(present, [(int(n), *moves[n]) for n in forbidden])
            both, _ = self._settled(pairs, numbers)
        except ExpressionError as error:
            _log.warning("neighbours are left out: %s", error)
            return rows[:0]
        return np.unique(np.vstack([alone, both]), axis=0)

    def allows(self, positions: npt.NDArray[np.int32]) -> bool:
        """Return True if values satisfy all conditions and rules; positions, shape (tunables,)."""
        settled, _ = self._settled(positions[None, :], np.zeros(1, dtype=np.int64))
        return len(settled) > 0 and bool((settled[0] == positions).all())

    def _pairs(
        self, present: npt.NDArray[np.int32], moves: list[tuple[int, int, int]]
    ) -> tuple[Positions, npt.NDArray[np.int64]]:
        """Each change with every change of another tunable of its rules, the least first; and its number."""
        lengths = [len(values) for values in self._enumeration.lists.values()]
        pairs = [
            (number, abs(other_position - int(present[other])), axis, position, other, other_position)
            for number, axis, position in moves
            for other in self._tied[axis]
            if present[other] >= 0
            for other_position in range(lengths[other])
            if other_position != present[other]
        ]
        pairs = sorted(pairs)[:PAIRS]
        rows = np.repeat(present[None, :], len(pairs), axis=0)
        for row, (_, _, axis, position, other, other_position) in zip(rows, pairs, strict=True):
            row[axis], row[other] = position, other_position
        return rows, np.array([pair[0] for pair in pairs], dtype=np.int64)

    def _settled(
        self, rows: Positions, moves: npt.NDArray[np.int64]
    ) -> tuple[Positions, npt.NDArray[np.int64]]:
        """Rows with values for what they give a value, under all rules: the first of each move.

        Args:
            rows: positions, -1 where a tunable had no value.
            moves: the number of each row's move, rising.

        Returns:
            One row per move that is allowed, and the numbers of these.
        """
        start = {name: rows[:, axis] for axis, name in enumerate(self._names)}
        columns: dict[str, Column] = {}
        for axis, name in enumerate(self._names):
            column = start[name]
            active = self._enumeration.active(name, columns, len(moves))
            if active is not None:
                column = np.where(active, column, -1)
                new = active & (column < 0)
                if new.any():
                    count = len(self._enumeration.lists[name])
                    repeats = np.where(new, count, 1)
                    values = np.repeat(column, repeats)
                    values[np.repeat(new, repeats)] = np.tile(np.arange(count), int(new.sum()))
                    order = np.repeat(np.arange(len(moves)), repeats)
                    columns, start, moves = _taken(columns, order), _taken(start, order), moves[order]
                    column = values
            columns[name] = column
            allowed = self._allowed(columns, self._enumeration.rules_at.get(axis, []), len(moves))
            if (moves[BRANCHES:] == moves[:-BRANCHES]).any():  # a move has more rows than are kept
                allowed &= _places_in_groups(moves, allowed) < BRANCHES
            if not allowed.all():
                columns, start, moves = _taken(columns, allowed), _taken(start, allowed), moves[allowed]
        numbers, first = np.unique(moves, return_index=True)
        return _stacked(columns)[first], numbers

    def _allowed(self, columns: Mapping[str, Column], rules: list[Expression], rows: int) -> Mask:
        allowed = np.ones(rows, dtype=np.bool_)
        for rule in rules:
            table = self._tables.get(rule)
            some = np.flatnonzero(allowed)
            if table is not None:
                allowed &= table.holds(columns)
            elif len(some):
                part = columns if len(some) == rows else _taken(columns, some)
                allowed[some] = self._enumeration.holds(rule, part, len(some))
        return allowed

    def _ties(self) -> list[list[int]]:
        """Per tunable, those that a rule ties to it."""
        tied: list[set[int]] = [set() for _ in self._names]
        for rules in self._enumeration.rules_at.values():
            for rule in rules:
                scope = {self._names.index(name) for name in self._enumeration.scope(rule)}
                for axis in scope:
                    tied[axis] |= scope - {axis}
        return [sorted(axes) for axes in tied]


def _taken(columns: Mapping[str, Column], rows: npt.NDArray[np.int64] | Mask) -> dict[str, Column]:
    return {name: column[rows] for name, column in columns.items()}


def _stacked(columns: Mapping[str, Column]) -> Positions:
    return np.stack([column.astype(np.int32) for column in columns.values()], axis=1)


def _places_in_groups(groups: npt.NDArray[np.int64], counted: Mask) -> npt.NDArray[np.int64]:
    """Return the number of counted rows before each row in its group; rows of a group are adjacent."""
    before: npt.NDArray[np.int64] = np.cumsum(counted) - counted
    _, first, members = np.unique(groups, return_index=True, return_counts=True)
    return np.asarray(before - np.repeat(before[first], members))


# --- Spaces of which only some configurations are listed, as there are too many.

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
        """Return True if a configuration is in the space, listed or not."""
        try:
            positions = self.order(configuration)
        except UnknownNameError:
            return False
        count = sum(position >= 0 for position in positions)
        return count == len(configuration) and self._sampler.allows(np.array(positions, dtype=np.int32))

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
        return Configuration({name: values[position] for (name, values), position in placed if position >= 0})


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
    arguments = (lists, rules, constants, derived, conditions)
    enumeration = Enumeration(*arguments, max_rows=listed)
    try:
        return Space(lists, enumeration.columns(), enumeration.product())
    except SpaceSizeError:
        sampler = SpaceSampler(Enumeration(*arguments))
    positions, size = sampler.sample(drawn, np.random.default_rng(0))
    if size <= listed:  # rules that need many tunables left more on the way than in the end
        enumeration = Enumeration(*arguments, max_rows=ON_THE_WAY)
        with suppress(SpaceSizeError):
            return Space(lists, enumeration.columns(), enumeration.product())
    positions = np.unique(np.vstack([positions, sampler.first()]), axis=0)
    if not len(positions):
        raise InputError(
            "none of the combinations drawn satisfies all rules; state each rule over as few tunables as it"
            " needs, and those joined by `and` one by one, or shorten value lists"
        )
    return SampledSpace(lists, positions, enumeration.product(), size, sampler)
