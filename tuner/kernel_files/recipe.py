"""A kernel file with all expressions parsed: its loops of launches, written out, and everything it says."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from tuner.kernel_files.formulas import Environment, Formula, Location, with_derived
from tuner.kernel_files.input_reader import FileRecipe
from tuner.kernel_files.measured_answers import MeasuredAnswers
from tuner.kernel_files.sizes import SizeValues
from tuner.kernel_files.stage_recipe import AnyStageRecipe, BufferRecipe, BufferTable, StageRecipe
from tuner.model.errors import KernelFileError
from tuner.model.expressions.callables import Expression
from tuner.model.expressions.operations import NoValue
from tuner.model.plan import (
    OWN_ROLES,
    Buffer,
    BufferView,
    ProblemSpec,
    Stage,
    StageArgument,
    TensorMap,
    TunableValue,
    Work,
)
from tuner.space.space import Condition

# --- Loops of launches, written out.

MAX_LAUNCHES = 10_000
"""Stages of one run; a graph of so many takes tens of megabytes."""

BETWEEN = " (between steps)"
"""Follows the name of an output: the array that takes turns with it."""

_OUTPUTS = ("out", "inout")


@dataclass(frozen=True)
class LoopRecipe:
    """A loop whose steps are not counted yet.

    Attributes:
        index: name of a step's number.
        swaps: pairs of buffers: a step reads the first and writes the second.
        derived: named expressions of a step, in their order.
    """

    location: Location
    repeat: Formula
    index: str
    swaps: tuple[tuple[str, str], ...]
    derived: Mapping[str, Formula] = field(default_factory=dict)

    @cached_property
    def varying(self) -> frozenset[str]:
        """The names whose values depend on the step."""
        names = {self.index}
        for name, formula in self.derived.items():
            if not names.isdisjoint(formula.expression.names):
                names.add(name)
        return frozenset(names)

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

    def swapped(self, first: Buffer, second: Buffer, count: int) -> "_SwappedPair":
        """Two arrays that change places from step to step.

        Raises:
            KernelFileError: they differ, may not be written, or the result of the last step is not in an
                output.
        """
        key = f"swap of {first.name} and {second.name}"
        if (first.dtype, first.shape) != (second.dtype, second.shape):
            raise self.location.error(
                f"{key}: {first.dtype} {list(first.shape)} is no {second.dtype} {list(second.shape)};"
                " they must have the same type and shape"
            )
        if second.role == "in" or (first.role == "in" and second.role != "out"):
            raise self.location.error(
                f"{key}: the roles are {first.role} and {second.role}; a step reads the first and writes the"
                " second, so that in and out can be swapped, and any that are not in"
            )
        odd = count % 2 == 1
        if second.role == "out" and (first.role == "in" or (first.role in OWN_ROLES and not odd)):
            return _SwappedPair(first.name, second.name, count, keeps_first=True)
        last, other = (second, first) if odd else (first, second)
        if last.role not in _OUTPUTS and other.role in _OUTPUTS:
            raise self.location.error(
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


def written_out(
    stages: Sequence[AnyStageRecipe],
    loops: Mapping[str, LoopRecipe],
    env: Environment,
    buffers: Mapping[str, Buffer],
) -> tuple[Stage, ...]:
    """The stages of a run in order, those of loops once for every step.

    Raises:
        KernelFileError: an expression has no result, a stage cannot be launched, or there are too many.
    """
    run: list[Stage] = []
    ended: dict[str, int] = {}
    for name, body in itertools.groupby(stages, key=lambda stage: stage.loop):
        if name:
            _Steps(loops[name], tuple(body), env, buffers).put(run, ended)
            continue
        for recipe in body:
            if recipe.when is not None and not recipe.when.value(env):
                continue
            stage = recipe.evaluated(env, buffers)
            if stage is not None:
                _put(stage, [ended.get(predecessor.name) for predecessor in recipe.after], run)
                ended[recipe.name] = len(run) - 1
    return tuple(run)


class _Steps:
    """The steps of one loop; what is the same in all of them is evaluated once."""

    def __init__(
        self,
        loop: LoopRecipe,
        body: tuple[AnyStageRecipe, ...],
        env: Environment,
        buffers: Mapping[str, Buffer],
    ) -> None:
        self._loop = loop
        self._body = body
        self._env = loop.with_constants(env)
        self._buffers = buffers
        self._varying = [recipe.varying(loop.varying) for recipe in body]
        # a stage by the names of the file, and on the arrays of a step; None where there is nothing to do
        self._stages: dict[tuple[int, tuple[tuple[str, str], ...]], tuple[Stage | None, Stage | None]] = {}

    def put(self, run: list[Stage], ended: dict[str, int]) -> None:
        """Add the stages of all steps to a run, and note where those of each name ended last."""
        loop, names_of_body = self._loop, {recipe.name for recipe in self._body}
        count = loop.repeat.whole(self._env, least=1)
        too_long = loop.location.error(
            f"repeat: {loop.repeat} is {count}; a run has at most {MAX_LAUNCHES} launches"
        )
        if count > MAX_LAUNCHES:
            raise too_long
        pairs = [loop.swapped(self._buffers[a], self._buffers[b], count) for a, b in loop.swaps]
        steps: list[dict[str, int]] = []
        for step in range(count):
            now: dict[str, int] = {}
            steps.append(now)
            try:
                stages = self._step(step, pairs)
            except KernelFileError as error:
                raise KernelFileError(f"{error} (in step {step} of {loop.location.key})") from error
            for recipe, stage in stages:
                after = [
                    (steps[step - other.before] if other.name in names_of_body else ended).get(other.name)
                    for other in recipe.after
                    if other.before <= step
                ]
                _put(stage, after, run)
                now[recipe.name] = len(run) - 1
            ended.update(now)
            if len(run) > MAX_LAUNCHES:
                raise too_long

    def _step(self, step: int, pairs: Sequence[_SwappedPair]) -> list[tuple[AnyStageRecipe, Stage]]:
        env = self._env
        self._loop.put_step(step, env)
        # (name, array that stands for it) of those that stand for another array in this step
        arrays = tuple((name, array) for pair in pairs for name, array in pair.at(step) if name != array)
        launched: list[tuple[AnyStageRecipe, Stage]] = []
        for number, recipe in enumerate(self._body):
            if recipe.when is not None and not recipe.when.value(env):
                continue
            key = number, arrays
            stage, renamed = self._stages.get(key, (None, None))
            if key not in self._stages or self._varying[number]:
                if stage is None:
                    stage = recipe.evaluated(env, self._buffers)
                else:
                    stage = recipe.stepped(stage, self._varying[number], env, self._buffers)
                renamed = _renamed(stage, dict(arrays)) if stage and arrays else stage
                self._stages[key] = stage, renamed
            if renamed is not None:
                launched.append((recipe, renamed))
        return launched


def _put(stage: Stage, after: Sequence[int | None], run: list[Stage]) -> None:
    waits = tuple(sorted({index for index in after if index is not None}))
    run.append(stage.changed(after=waits) if waits else stage)


def _renamed(stage: Stage, arrays: Mapping[str, str]) -> Stage:
    """A stage on other arrays, by the names it knows them by."""
    arguments: list[StageArgument] = []
    for argument in stage.arguments:
        if isinstance(argument, str):
            arguments.append(arrays.get(argument, argument))
        elif isinstance(argument, BufferView | TensorMap) and argument.buffer in arrays:
            arguments.append(replace(argument, buffer=arrays[argument.buffer]))
        else:
            arguments.append(argument)
    library = stage.library
    if library is not None:
        operands = tuple(
            (letter, replace(operand, buffer=arrays.get(operand.buffer, operand.buffer)))
            for letter, operand in library.operands
        )
        library = replace(library, operands=operands)
    return stage.changed(arguments=tuple(arguments), library=library)


# --- A kernel file with all expressions parsed, for ``KernelFile.plan``.


@dataclass(frozen=True)
class ConditionRecipe:
    """When a tunable has a value.

    Attributes:
        otherwise: what stands for the tunable where it is false; None where nothing may.
        derived: the derived names that the condition needs.
    """

    when: Formula
    otherwise: Formula | None
    derived: Mapping[str, Formula]

    @property
    def condition(self) -> Condition:
        """The same for a space."""
        return Condition(self.when.expression, None if self.otherwise is None else self.otherwise.expression)

    def instead(self, env: Environment) -> TunableValue | NoValue:
        """Return the value of the tunable in an environment if it has none of its own."""
        if self.otherwise is not None:
            return self.otherwise.value(env)
        return self.condition.no_value

    def holds(self, env: Environment) -> bool:
        """Return True if the tunable has a value, by the tunables above."""
        return bool(self.when.value(with_derived(env, self.derived)))


@dataclass(frozen=True)
class Rule:
    """A condition that configurations must satisfy.

    Attributes:
        expression: the condition; of a variant's, true where the variant's own is false.
        where: the condition of its variant; empty outside of variants.
    """

    expression: Expression
    text: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.text} (where {self.where})" if self.where else self.text


@dataclass(frozen=True)
class WorkRecipe:
    """Formulas of the work; ``rate_name`` and ``rate_scale`` are those of ``Work``."""

    bytes: Formula
    operations: Formula
    steps: Formula
    rate_units: Formula
    rate_name: str
    rate_scale: float

    def evaluated(self, env: Environment) -> Work:
        """The work of one configuration."""
        return Work(
            bytes=float(self.bytes.number(env, least=0)),
            operations=float(self.operations.number(env, least=0)),
            steps=float(self.steps.number(env, least=0)),
            rate_units=float(self.rate_units.number(env, least=0)),
            rate_name=self.rate_name,
            rate_scale=self.rate_scale,
        )


TableValues = Mapping[str, Formula | str | None]
"""Of tunables: formulas, or texts that are values; None where a condition needs a value that is not there."""

SizeCondition = tuple[Formula, Mapping[str, Formula]]
"""A condition over sizes and batch, and the derived names in it."""


@dataclass(frozen=True)
class Recipe:
    """Everything a kernel file says.

    ``stated`` has the analytical answers that the file states, by the names of their tables and the preferred
    one first, ``stated_when`` where those with a condition hold, and ``measured`` those of a file that come
    before them. ``work`` is None where the file states
    none, and ``place`` the tunables that say where a workload runs beside others, where these are searched.
    ``extends`` names kernels that this one is taken for at sizes and types that they refuse or leave to
    others; ``leaves`` is where this one does. ``uncalled`` names derived names with parameters that
    nothing calls.
    """

    location: Location
    name: str
    description: str
    family: str
    sizes: Mapping[str, SizeValues]
    optional: tuple[str, ...]
    batch: Formula
    tunables: Mapping[str, tuple[TunableValue, ...]]
    conditions: Mapping[str, ConditionRecipe]
    derived: Mapping[str, Formula]
    roles: Mapping[str, str]
    rules: tuple[Rule, ...]
    spills: bool
    default: TableValues
    buffers: tuple[BufferRecipe, ...]
    stages: tuple[AnyStageRecipe, ...]
    loops: Mapping[str, LoopRecipe]
    problem: ProblemSpec
    work: WorkRecipe | None
    min_occupancy: float | None
    analytical: bool = True
    stated: Mapping[str, TableValues] = field(default_factory=dict)
    stated_when: Mapping[str, SizeCondition] = field(default_factory=dict)
    measured: MeasuredAnswers | None = None
    reference: StageRecipe | None = None
    reference_files: Mapping[tuple[str, str], FileRecipe] = field(default_factory=dict)
    place: tuple[str, ...] = ()
    extends: tuple[str, ...] = ()
    leaves: SizeCondition | None = None
    uncalled: tuple[str, ...] = ()

    @cached_property
    def checked_problem(self) -> ProblemSpec:
        """The problem with the hashes of its files.

        Raises:
            KernelFileError: one cannot be read any more.
        """
        files = tuple((name, file.hashed) for name, file in self.reference_files.items())
        return replace(self.problem, files=files)

    @property
    def data_hashes(self) -> tuple[str, ...]:
        """SHA-256 of every file of data, of functions and of measured answers.

        Raises:
            KernelFileError: one cannot be read any more.
        """
        inputs = (buffer.input.files for buffer in self.buffers if buffer.input is not None)
        files = [*itertools.chain.from_iterable(inputs), *self.reference_files.values()]
        function = self.problem.function
        further = [source.sha256 for source in (function, self.measured) if source is not None]
        return (*(file.hashed.sha256 for file in files), *further)

    def launches(self, env: Environment) -> tuple[Stage, ...]:
        """The stages whose ``when`` holds, those of loops once for every step.

        Raises:
            KernelFileError: none is left, or one cannot be launched.
        """
        stages = written_out(self.stages, self.loops, env, BufferTable(self.buffers, env))
        if not stages:
            raise KernelFileError(f"{self.location.path}: [[stage]] when: every stage is left out")
        if all(stage.setup for stage in stages):
            raise KernelFileError(f"{self.location.path}: [[stage]] setup: no stage is left that runs launch")
        return stages

    def arrays(self, env: Environment, stages: Sequence[Stage]) -> tuple[Buffer, ...]:
        """The buffers of one configuration, without scratch arrays that none of its stages takes.

        Arrays that take turns with an output between the steps of a loop follow.

        Raises:
            KernelFileError: nothing fills a table, or a set-up stage beside one takes more than its own.
        """
        used = frozenset().union(*(stage.buffers for stage in stages))
        evaluated = [
            buffer.evaluated(env)
            for buffer in self.buffers
            if buffer.role not in OWN_ROLES or buffer.name in used
        ]
        self._check_tables(evaluated, [stage for stage in stages if stage.setup])
        between = [
            replace(buffer, name=buffer.name + BETWEEN, role="scratch")
            for buffer in evaluated
            if buffer.name + BETWEEN in used
        ]
        return (*evaluated, *between)

    def _check_tables(self, buffers: Sequence[Buffer], setup: Sequence[Stage]) -> None:
        """Refuse tables that are no matter of the sizes alone, so that one serves all arrays."""
        of_caller = {buffer.name for buffer in buffers if buffer.role not in OWN_ROLES}
        for table in (buffer for buffer in buffers if buffer.role == "table" and buffer.elements):
            where = f"{self.location.path}: [[argument]] buffer = {table.name!r}: role = 'table'"
            if not any(table.name in stage.buffers for stage in setup):
                raise KernelFileError(f"{where}: no stage with setup = true takes it, to fill it")
            for stage in setup:
                taken = sorted(of_caller & {*stage.buffers, *(buffer for _, buffer in stage.symbols)})
                if taken:
                    raise KernelFileError(
                        f"{where}: the set-up stage {stage.name!r} takes {', '.join(taken)}; beside a table,"
                        " set-up stages take tables and scratch alone"
                    )
