"""Loops of a kernel file: their steps written out as plain stages, with swapped arrays and an order."""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from tuner.expressions.arithmetic import NoValue
from tuner.kernel_files.formulas import Environment, Formula, Place
from tuner.model.arguments import TensorMap
from tuner.model.chains import BufferView, LibraryCall
from tuner.model.errors import KernelFileError
from tuner.model.plan import Buffer, Stage, StageArgument, TunableValue

MAX_LAUNCHES = 10_000
"""Stages of one run; a graph of so many takes tens of megabytes."""

BETWEEN = " (between steps)"
"""Follows the name of an output: the array that takes turns with it."""

_OUTPUTS = ("out", "inout")


class StageSource(Protocol):
    """A stage that is not evaluated yet."""

    @property
    def place(self) -> Place:
        """Where it stands."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def loop(self) -> str:
        """The loop it is part of; empty for none."""

    @property
    def when(self) -> Formula | None:
        """Condition; None for always."""

    @property
    def after(self) -> tuple["Predecessor", ...]:
        """The stages that must have ended."""

    def varying(self, names: Collection[str]) -> frozenset[str | int]:
        """The fields and arguments that depend on names whose values differ from step to step."""

    def evaluated(self, env: Environment, buffers: Mapping[str, Buffer]) -> Stage | None:
        """The stage; None where a library would do nothing."""

    def stepped(
        self, stage: Stage, fields: Collection[str | int], env: Environment, buffers: Mapping[str, Buffer]
    ) -> Stage | None:
        """The stage in another step than the one it was evaluated for: some fields and arguments anew."""


@dataclass(frozen=True)
class Predecessor:
    """A stage that must have ended: the one of the same step, or of one so many steps before."""

    name: str
    before: int = 0

    @classmethod
    def parse(cls, text: str) -> "Predecessor":
        """``name``, or ``name@-1`` for the step before, up to ``name@-9``."""
        name, _, steps = text.rpartition("@-")
        return cls(name, int(steps)) if len(steps) == 1 and steps in "123456789" and name else cls(text)


@dataclass(frozen=True)
class LoopRecipe:
    """A loop whose steps are not counted yet.

    Attributes:
        place: the table.
        repeat: steps.
        index: name of a step's number.
        swaps: pairs of buffers: a step reads the first and writes the second.
        derived: named expressions of a step, in their order.
    """

    place: Place
    repeat: Formula
    index: str
    swaps: tuple[tuple[str, str], ...]
    derived: Mapping[str, Formula] = field(default_factory=dict)

    @cached_property
    def varying(self) -> frozenset[str]:
        """The names whose values depend on the step."""
        found = {self.index}
        for name, formula in self.derived.items():
            if not found.isdisjoint(formula.expression.names):
                found.add(name)
        return frozenset(found)

    def with_constants(self, env: Environment) -> dict[str, TunableValue | NoValue]:
        """An environment with the named expressions that are the same in all steps.

        Raises:
            KernelFileError: one has no result.
        """
        values = dict(env)
        for name, formula in self.derived.items():
            if name not in self.varying:
                values[name] = formula.value_or_none(values)
        return values

    def put_step(self, step: int, values: dict[str, TunableValue | NoValue]) -> None:
        """Put the number of a step, and the named expressions that depend on it, among the values.

        Raises:
            KernelFileError: one has no result.
        """
        values[self.index] = step
        for name, formula in self.derived.items():
            if name in self.varying:
                values[name] = formula.value_or_none(values)

    def names(self, count: int, buffers: Mapping[str, Buffer]) -> "Names":
        """Which arrays stand for the swapped names in each step.

        Raises:
            KernelFileError: the arrays of a pair differ, may not be written, or the result of the last step
                is not in an output.
        """
        return Names(tuple(self._pair(buffers[a], buffers[b], count) for a, b in self.swaps))

    def _pair(self, first: Buffer, second: Buffer, count: int) -> "_SwappedPair":
        key = f"swap of {first.name} and {second.name}"
        if (first.dtype, first.shape) != (second.dtype, second.shape):
            raise self.place.error(
                f"{key}: {first.dtype} {list(first.shape)} is no {second.dtype} {list(second.shape)};"
                " they must have the same type and shape"
            )
        if second.role == "in" or (first.role == "in" and second.role != "out"):
            raise self.place.error(
                f"{key}: the roles are {first.role} and {second.role}; a step reads the first and writes the"
                " second, so that in and out can be swapped, and any that are not in"
            )
        odd = count % 2 == 1
        if second.role == "out" and (first.role == "in" or (first.role in ("scratch", "zeroed") and not odd)):
            return _SwappedPair(first.name, second.name, count, keeps_first=True)
        last, other = (second, first) if odd else (first, second)
        if last.role not in _OUTPUTS and other.role in _OUTPUTS:
            raise self.place.error(
                f"{key}: after {count} steps the result lies in {last.name}, whose role is {last.role}, and"
                f" {other.name} is the output; make the steps {'even' if odd else 'odd'} in number"
            )
        return _SwappedPair(first.name, second.name, count, keeps_first=False)


@dataclass(frozen=True)
class _SwappedPair:
    """Two names that change places from step to step.

    Attributes:
        keeps_first: the first array is read by the first step only, and the last step writes to the second;
            an array more stands between them.
    """

    first: str
    second: str
    count: int
    keeps_first: bool

    def at(self, step: int) -> tuple[tuple[str, str], ...]:
        """(name, array that stands for it) of both in a step."""
        if not self.keeps_first:
            names = (self.first, self.second)
            return tuple(zip(names, names[::-1] if step % 2 else names, strict=True))
        return ((self.first, self._after(step)), (self.second, self._after(step + 1)))

    def _after(self, steps: int) -> str:
        """The array with the result of so many steps."""
        if steps == 0:
            return self.first
        return self.second if (self.count - steps) % 2 == 0 else self.second + BETWEEN


@dataclass(frozen=True)
class Names:
    """What stands for the swapped names of a loop."""

    pairs: tuple[_SwappedPair, ...]

    def at(self, step: int) -> tuple[tuple[str, str], ...]:
        """(name, array) in a step, of those that are another array."""
        return tuple((name, array) for pair in self.pairs for name, array in pair.at(step) if name != array)


def written_out(
    stages: Sequence[StageSource],
    loops: Mapping[str, LoopRecipe],
    env: Environment,
    buffers: Mapping[str, Buffer],
) -> tuple[Stage, ...]:
    """The stages of a run in order, those of loops once for every step.

    Raises:
        KernelFileError: an expression has no result, a stage cannot be launched, or there are too many.
    """
    found: list[Stage] = []
    ended: dict[str, int] = {}
    for name, body in itertools.groupby(stages, key=lambda stage: stage.loop):
        if name:
            _Steps(loops[name], tuple(body), env, buffers).put(found, ended)
            continue
        for recipe in body:
            if recipe.when is not None and not recipe.when.value(env):
                continue
            stage = recipe.evaluated(env, buffers)
            if stage is not None:
                _put(stage, [ended.get(one.name) for one in recipe.after], found)
                ended[recipe.name] = len(found) - 1
    return tuple(found)


class _Steps:
    """The steps of one loop; what is the same in all of them is evaluated once."""

    def __init__(
        self,
        loop: LoopRecipe,
        body: tuple[StageSource, ...],
        env: Environment,
        buffers: Mapping[str, Buffer],
    ) -> None:
        self._loop = loop
        self._body = body
        self._env = loop.with_constants(env)
        self._buffers = buffers
        self._varying = [recipe.varying(loop.varying) for recipe in body]
        self._known: dict[tuple[int, tuple[tuple[str, str], ...]], _StepStage] = {}

    def put(self, found: list[Stage], ended: dict[str, int]) -> None:
        """Add the stages of all steps to those found, and note where those of each name ended last."""
        loop, names_of_body = self._loop, {recipe.name for recipe in self._body}
        count = loop.repeat.whole(self._env, least=1)
        if count > MAX_LAUNCHES:
            raise self._too_long(count)
        names = loop.names(count, self._buffers)
        steps: list[dict[str, int]] = []
        for step in range(count):
            now: dict[str, int] = {}
            steps.append(now)
            for recipe, stage in self._step_told(step, names):
                after = [
                    (steps[step - one.before] if one.name in names_of_body else ended).get(one.name)
                    for one in recipe.after
                    if one.before <= step
                ]
                _put(stage, after, found)
                now[recipe.name] = len(found) - 1
            ended.update(now)
            if len(found) > MAX_LAUNCHES:
                raise self._too_long(count)

    def _too_long(self, count: int) -> KernelFileError:
        return self._loop.place.error(
            f"repeat: {self._loop.repeat} is {count}; a run has at most {MAX_LAUNCHES} launches"
        )

    def _step_told(self, step: int, names: Names) -> Iterator[tuple[StageSource, Stage]]:
        """The stages of a step; errors name it."""
        try:
            yield from self._step(step, names)
        except KernelFileError as error:
            raise KernelFileError(f"{error} (in step {step} of {self._loop.place.key})") from error

    def _step(self, step: int, names: Names) -> Iterator[tuple[StageSource, Stage]]:
        env = self._env
        self._loop.put_step(step, env)
        arrays = names.at(step)
        for number, recipe in enumerate(self._body):
            if recipe.when is not None and not recipe.when.value(env):
                continue
            key = number, arrays
            known = self._known.get(key)
            if known is None or self._varying[number]:
                if known is None or known.stage is None:
                    stage = recipe.evaluated(env, self._buffers)
                else:
                    stage = recipe.stepped(known.stage, self._varying[number], env, self._buffers)
                known = _StepStage(stage, _renamed(stage, dict(arrays)) if stage and arrays else stage)
                self._known[key] = known
            if known.renamed is not None:
                yield recipe, known.renamed


@dataclass(frozen=True)
class _StepStage:
    """A stage by the names of the file, and on the arrays of a step; None where there is nothing to do."""

    stage: Stage | None
    renamed: Stage | None


def _put(stage: Stage, after: Sequence[int | None], found: list[Stage]) -> None:
    waits = tuple(sorted({index for index in after if index is not None}))
    found.append(stage.changed(after=waits) if waits else stage)


def _renamed(stage: Stage, arrays: Mapping[str, str]) -> Stage:
    """A stage on other arrays, by the names it knows them by."""
    arguments = tuple(_renamed_argument(item, arrays) for item in stage.arguments)
    return stage.changed(arguments=arguments, library=_renamed_call(stage.library, arrays))


def _renamed_argument(item: StageArgument, arrays: Mapping[str, str]) -> StageArgument:
    if isinstance(item, str):
        return arrays.get(item, item)
    if isinstance(item, BufferView | TensorMap) and item.buffer in arrays:
        return replace(item, buffer=arrays[item.buffer])
    return item


def _renamed_call(call: LibraryCall | None, arrays: Mapping[str, str]) -> LibraryCall | None:
    if call is None:
        return None
    operands = tuple(
        (letter, replace(operand, buffer=arrays.get(operand.buffer, operand.buffer)))
        for letter, operand in call.operands
    )
    return replace(call, operands=operands)
