"""Kernel files: from TOML to workloads, spaces and plans.

``load_kernel_file`` reads and validates everything that does not depend on a configuration and parses every
expression once; ``KernelFile.plan`` then only evaluates. Every trouble is a ``KernelFileError`` that names
the file, the key and what would be right.
"""

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from tuner.kernel_files.formulas import Environment, Formula, Location, derived_for, with_derived
from tuner.kernel_files.measured_answers import MeasuredAnswer
from tuner.kernel_files.recipe import Recipe, SizeCondition, TableValues
from tuner.kernel_files.schema import Argument, BufferArgument
from tuner.kernel_files.short_files import SUFFIXES, assumed_work
from tuner.kernel_files.sizes import SizeValues, chosen, combinations, described, without_optional
from tuner.kernel_files.source_folder import kernels_root
from tuner.kernel_files.stage_recipe import BufferRecipe, BufferTable
from tuner.model.errors import (
    ConditionError,
    EmptySpaceError,
    InputError,
    KernelFileError,
    UnknownNameError,
    suggestion,
)
from tuner.model.expressions.operations import NoValue
from tuner.model.plan import (
    DENSE,
    PLACE,
    SM_SHARE,
    STREAM_PRIORITY,
    Configuration,
    Plan,
    ProblemSpec,
    RowLayout,
    Stage,
    TunableValue,
    Work,
    Workload,
    with_place,
    without_place,
)
from tuner.model.records import WorkloadName
from tuner.space.large_spaces import space_of
from tuner.space.space import Space

# --- Names by which expressions of a kernel file tell how the rows of arrays lie in memory.
#
# They are there where an array has ``row_pitch`` or ``in_place``: ``x_pitch`` for an array x, ``row_align``
# and ``in_place``.

ROW_ALIGN = "row_align"
"""Name of the alignment of rows that lie apart, in elements: 1, 2, 4, 8 or 16. Else 0."""
IN_PLACE = "in_place"
"""Name of the flag that the output takes the place of its input."""

_MOST_ALIGNED = 16  # no access is wider than 16 elements, and code is compiled for each alignment


def pitch_name(buffer: str) -> str:
    """The name of the elements from one row of an array to the next."""
    return f"{buffer}_pitch"


def row_names(arguments: Sequence[Argument]) -> list[str]:
    """The names that the arrays of a kernel file bring."""
    buffers = [argument for argument in arguments if isinstance(argument, BufferArgument)]
    pitches = [pitch_name(argument.buffer) for argument in buffers if argument.row_pitch]
    shared = [IN_PLACE] if any(argument.in_place is not None for argument in buffers) else []
    return [*pitches, *([ROW_ALIGN] if pitches else []), *shared]


def check_rows(
    location: Location, argument: BufferArgument, shape: Sequence[Formula], allowed: Collection[str]
) -> None:
    """Refuse an array without rows, or with some whose length not only ``allowed`` names decide.

    Raises:
        KernelFileError: the first axis is not the batch or the only one, or a row depends on a tunable.
    """
    if not argument.row_pitch:
        return
    if shape[0].expression.text != "batch" or len(shape) == 1:
        raise location.error(f'{argument.buffer} needs a shape of rows, as ["batch", "N"]')
    names = frozenset[str]().union(*(axis.expression.names for axis in shape[1:]))
    beyond = ", ".join(sorted(names.difference(allowed)))
    if beyond:
        raise location.error(f"the length of a row depends on {beyond}; sizes alone may decide it")


def check_in_place(
    location: Location, argument: BufferArgument, buffers: Mapping[str, BufferArgument]
) -> None:
    """Refuse an output that cannot take the place of what it names.

    Raises:
        KernelFileError: the array is no output, or names no input of its own type and shape.
    """
    if argument.in_place is None:
        return
    if argument.role != "out":
        raise location.error(f"only an out array takes the place of another, and this is {argument.role}")
    other = buffers.get(argument.in_place)
    if other is None or other.role != "in":
        choices = ", ".join(buffer.buffer for buffer in buffers.values() if buffer.role == "in")
        raise location.error(f"no in array is called {argument.in_place!r}; choose from {choices}")
    if (argument.dtype, argument.shape) != (other.dtype, other.shape):
        raise location.error(f"{other.buffer} has another type or shape")


def row_values(buffers: Sequence[BufferRecipe], env: Environment, layout: RowLayout) -> dict[str, int | bool]:
    """The values of the names for a call's arrays.

    Raises:
        InputError: the kernel file does not say that rows may lie apart, or that it works in place.
    """
    pitches = dict(layout.pitches)
    values: dict[str, int | bool] = {}
    for buffer in buffers:
        if buffer.row_pitch:
            length = math.prod(axis.whole(env, least=1) for axis in buffer.shape[1:])
            values[pitch_name(buffer.name)] = pitches.pop(buffer.name, length)
    if pitches:
        raise InputError(f"rows of {', '.join(pitches)} must follow each other")
    if values:
        values[ROW_ALIGN] = math.gcd(_MOST_ALIGNED, *values.values()) if layout.pitches else 0
    if any(buffer.in_place is not None for buffer in buffers):
        values[IN_PLACE] = layout.in_place
    elif layout.in_place:
        raise InputError("outputs must be arrays of their own")
    return values


# --- Values for the tunables of a workload, found one by one: those of a table, or those of a caller.


def constants(recipe: Recipe, workload: Workload, layout: RowLayout = DENSE) -> dict[str, TunableValue]:
    """The names for expressions that no configuration decides: sizes, batch and rows.

    Raises:
        InputError: arrays of this layout are not taken.
    """
    sizes: dict[str, TunableValue] = {**dict(workload.sizes), "batch": workload.batch}
    return {**sizes, **row_values(recipe.buffers, sizes, layout)}


class Assignment:
    """A configuration in the making.

    Attributes:
        env: the sizes, the batch, and of every tunable so far its value or what stands for it; with derived
            names of these.
    """

    def __init__(self, recipe: Recipe, workload: Workload) -> None:
        self._recipe = recipe
        self._workload = workload
        self._values: dict[str, TunableValue] = {}
        self.env: dict[str, TunableValue | NoValue] = {**dict(workload.sizes), "batch": workload.batch}

    @property
    def configuration(self) -> Configuration:
        """The values in the order of declaration."""
        values = self._values
        return Configuration([(name, values[name]) for name in self._recipe.tunables if name in values])

    def take_table(self, values: TableValues, table: str) -> Configuration:
        """The values of ``[default]``, or of a table of an analytical answer.

        Raises:
            KernelFileError: one is not in its list, or is missing.
        """
        recipe, path = self._recipe, self._recipe.location.path
        for name, formula in values.items():
            if not self._has_value(name):
                continue
            if formula is None:
                condition = recipe.conditions[name].when
                raise Location(path, table).error(
                    f"a value is missing for {name}, whose condition {condition} is true at {self._workload}"
                )
            if isinstance(formula, str):
                value: TunableValue = formula
            else:  # the derived names that it uses need no tunable still to come, and stay as they are
                for other, derived in derived_for(formula.expression.names, recipe.derived).items():
                    if other not in self.env:
                        self.env[other] = derived.value_or_none(self.env)
                value = formula.value(self.env)
            if value not in recipe.tunables[name]:
                listed = ", ".join(map(str, recipe.tunables[name]))
                raise Location(path, f"{table} {name}").error(
                    f"{value!r} at {self._workload} is not a value of {name} ({listed})"
                )
            self._set(name, value)
        return self.configuration

    def take(self, values: Mapping[str, TunableValue]) -> Configuration:
        """The caller's values; those of tunables that have none are left out.

        Raises:
            UnknownNameError: they name what is no tunable.
            InputError: they lack a tunable, or have a value that is not in the kernel file.
        """
        tunables, conditions = self._recipe.tunables, self._recipe.conditions
        for name in values:
            if name not in tunables:
                raise UnknownNameError(
                    f"configuration: {self._recipe.name} has no tunable {name!r}; choose from "
                    f"{', '.join(tunables)}{suggestion(str(name), tunables)}"
                )
        always = [name for name in tunables if name not in conditions]
        missing = [name for name in always if name not in values]
        if missing:
            raise InputError(
                f"configuration: {', '.join(missing)} missing; it names all of {', '.join(always)}"
            )
        for name, choices in tunables.items():
            if not self._has_value(name):
                continue
            if name not in values:
                raise InputError(
                    f"configuration: {name} missing; with {self.configuration} its condition "
                    f"{conditions[name].when} is true"
                )
            if values[name] not in choices:
                listed = ", ".join(map(str, choices))
                raise InputError(f"configuration: {name} is {values[name]!r}; choose from {listed}")
            self._set(name, values[name])
        return self.configuration

    def _has_value(self, name: str) -> bool:
        """Return True if a tunable has a value, by those above; else put its substitute into ``env``."""
        condition = self._recipe.conditions.get(name)
        if condition is None or condition.holds(self.env):
            return True
        self.env[name] = condition.instead(self.env)
        return False

    def _set(self, name: str, value: TunableValue) -> None:
        """A value as the file writes it: 8 for NumPy's 8."""
        choices = self._recipe.tunables[name]
        self.env[name] = self._values[name] = choices[choices.index(value)]


def environment(
    recipe: Recipe, workload: Workload, configuration: Configuration, layout: RowLayout = DENSE
) -> Environment:
    """The names for expressions of a launch: sizes, batch, rows, tunables and derived names.

    Raises:
        InputError: arrays of this layout are not taken.
    """
    env: dict[str, TunableValue | NoValue] = dict(constants(recipe, workload, layout))
    env.update(configuration.items())
    for name, condition in recipe.conditions.items():
        if name not in env:
            env[name] = condition.instead(env)
    return with_derived(env, recipe.derived)


@dataclass(frozen=True)
class KernelFile:
    """One kernel of the catalogue.

    Attributes:
        text_sha256: hash of the file's text.
        answers_of: fingerprint of the kernel with the data that it was tuned on; empty if this one has it.
    """

    path: Path
    recipe: Recipe
    text_sha256: str = ""
    answers_of: str = ""

    def __post_init__(self) -> None:
        """Refuse a tunable whose name has a meaning of its own."""
        for name in PLACE:
            if name in self.recipe.tunables and name not in self.recipe.place:
                raise _taken(self.path, name)

    @property
    def name(self) -> str:
        """Name on the command line."""
        return self.recipe.name

    @property
    def description(self) -> str:
        """One line for people."""
        return self.recipe.description

    @property
    def family(self) -> str:
        """Kind of problem it solves, e.g. ``scan``."""
        return self.recipe.family

    @property
    def min_occupancy(self) -> float | None:
        """Occupancy a configuration must reach, 0 to 1; None where the file states none."""
        return self.recipe.min_occupancy

    @property
    def sizes(self) -> Mapping[str, SizeValues]:
        """Problem sizes: name -> values a workload may take."""
        return self.recipe.sizes

    @property
    def optional(self) -> tuple[str, ...]:
        """Sizes that may be left out; they take the first of their values."""
        return self.recipe.optional

    @property
    def tunables(self) -> Mapping[str, tuple[TunableValue, ...]]:
        """The tunables: name -> values."""
        return self.recipe.tunables

    @property
    def conditions(self) -> Mapping[str, str]:
        """Tunables that do not always have a value -> the condition, as the file writes it."""
        return {name: condition.when.expression.text for name, condition in self.recipe.conditions.items()}

    @property
    def roles(self) -> Mapping[str, str]:
        """Role, e.g. ``elements_per_thread`` -> name of the tunable that plays it."""
        return self.recipe.roles

    @property
    def rule_roles(self) -> Mapping[str, str] | None:
        """The roles as the analytical rules are told them; None where they have no answer for the kernel."""
        return self.roles if self.recipe.analytical else None

    @property
    def rules(self) -> tuple[str, ...]:
        """Conditions of the space, as the file writes them; those of variants with where they hold."""
        return tuple(map(str, self.recipe.rules))

    @property
    def source_to_expand(self) -> str | None:
        """Argument of ``tuner kernels expand`` if macros are those of expanded pragmas, else None."""
        if self.path.suffix not in SUFFIXES:
            return None
        return self.name if self.path.is_relative_to(kernels_root()) else self.path.name

    @property
    def spills(self) -> bool:
        """True if configurations that spill registers, or use local memory, are tried."""
        return self.recipe.spills

    @property
    def problem(self) -> ProblemSpec:
        """Specification of the right answers and of their check."""
        return self.recipe.problem

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the launches, in their order."""
        return tuple(stage.name for stage in self.recipe.stages)

    @property
    def fingerprint(self) -> str:
        """Hash of the kernel file and of all files it names, data too: answers are bound to it.

        Raises:
            KernelFileError: a data file cannot be read any more.
        """
        if self.answers_of:
            return self.answers_of
        recipe = self.recipe
        parts = [self.text_sha256, *(stage.source.sha256 for stage in recipe.stages), *recipe.data_hashes]
        if recipe.reference is not None:
            parts.append(recipe.reference.source.sha256)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def workload(self, sizes: Mapping[str, int | str], batch: int | None = None) -> Workload:
        """This kernel at one problem.

        Args:
            sizes: a value for every size that is not optional; text that reads like one of the values is
                that value.
            batch: independent problems; None for the file's default.

        Raises:
            UnknownNameError: a size is missing, unknown, or has a value that is not in the file.
            InputError: the batch is not a whole number above zero.
        """
        for name in sizes:
            if name not in self.sizes:
                raise UnknownNameError(
                    f"{self.name}: unknown size {name!r}; choose from {', '.join([*self.sizes, 'batch'])}"
                    f"{suggestion(name, self.sizes)}"
                )
        defaults = {name: self.sizes[name][0] for name in self.optional}
        all_sizes = defaults | dict(sizes)
        values = {name: self._size(name, all_sizes) for name in self.sizes}
        if batch is None:
            batch = self.recipe.batch.whole(values, least=1)
        if type(batch) is not int or batch < 1:
            raise InputError(f"{self.name}: batch is {batch}; it must be a whole number of at least 1")
        implied = tuple(name for name, default in defaults.items() if values[name] == default)
        return Workload(self.name, tuple(values.items()), batch, implied)

    def spec_of(self, workload: Workload) -> str:
        """A workload of this kernel as commands take it, with a batch only where that is not the file's."""
        name = WorkloadName.parse(str(workload))
        usual = self.workload(dict(workload.sizes)).batch
        return str(name if workload.batch == usual else name.with_batch(workload.batch))

    def workloads(self) -> list[Workload]:
        """Combinations of sizes with the file's batch: every one, of ranges ends and powers of two.

        Of several ranges, each stands at its ends and between them.
        """
        shown = without_optional(self.sizes, self.optional)
        return [self.workload(sizes) for sizes in combinations(shown)]

    def space(self, workload: Workload) -> Space:
        """Every configuration the rules allow; of very many, a sample (``Space.is_sample``).

        Raises:
            EmptySpaceError: they allow none; the message names the rule.
            KernelFileError: a rule has no result, or nothing was found that all rules allow.
        """
        recipe = self.recipe
        try:
            derived = {name: formula.expression for name, formula in recipe.derived.items()}
            conditions = {name: condition.condition for name, condition in recipe.conditions.items()}
            rules = [rule.expression for rule in recipe.rules]
            return space_of(recipe.tunables, rules, constants(recipe, workload), derived, conditions)
        except EmptySpaceError as e:
            raise EmptySpaceError(f"{workload}: {e}; the rules are in {self.path}") from e
        except ConditionError as e:
            raise recipe.conditions[e.tunable].when.location.error(f"{e} (at {workload})") from e
        except InputError as e:
            raise self._rules_place.error(f"{e} (at {workload})") from e

    def default(self, workload: Workload) -> Configuration:
        """The configuration to start from: ``[default]``, or the first of the space where there is none.

        Raises:
            KernelFileError: a value is not in its list or is missing, or a rule forbids the configuration.
        """
        if workload not in self._defaults:
            table = self.recipe.default
            self._defaults[workload] = (
                self._of_table(workload, table, "[default]") if table else self.space(workload)[0]
            )
        return self._defaults[workload]

    @cached_property
    def _defaults(self) -> dict[Workload, Configuration]:
        """The default configurations: plans ask for them again and again."""
        return {}

    def stated(self, workload: Workload) -> Configuration | None:
        """The first of ``stated_answers`` for any GPU; None where the file states none."""
        return next(iter(self.stated_answers(workload, "")), None)

    def leaves(self, workload: Workload) -> bool:
        """True where the file says that a kernel which extends this one is the better choice."""
        return self.recipe.leaves is not None and self._holds(self.recipe.leaves, workload)

    def _holds(self, condition: SizeCondition, workload: Workload) -> bool:
        formula, derived = condition
        return bool(formula.value(with_derived(constants(self.recipe, workload), derived)))

    def stated_answers(self, workload: Workload, gpu: str | None) -> tuple[Configuration, ...]:
        """The analytical answers that the file states, in order of preference, each once.

        First come those that were measured at these sizes: on the GPU of this product name, then for any.
        With None those of all GPUs come, as the file has them. Devices need not be able to launch all.

        Raises:
            KernelFileError: a value is not in its list or is missing, or a rule forbids a configuration.
        """
        when = self.recipe.stated_when
        answers = [
            self._of_table(workload, values, table)
            for table, values in self.recipe.stated.items()
            if table not in when or self._holds(when[table], workload)
        ]
        measured = self.recipe.measured
        if measured is not None and measured.hold(constants(self.recipe, workload)):
            rows = measured.at(dict(workload.sizes), gpu)
            answers = [*(self.of_row(workload, row) for row in rows), *answers]
        return tuple(dict.fromkeys(answers))

    def of_row(self, workload: Workload, answer: MeasuredAnswer) -> Configuration:
        """The configuration of a measured answer.

        Raises:
            KernelFileError: a tunable is missing or has no value at these sizes, or a rule forbids it; the
                message names file and line.
        """
        try:
            configuration = self.configuration(workload, answer.values)
        except InputError as error:
            raise answer.location.error(error) from error
        for name in answer.values:
            if name not in configuration:
                condition = self.conditions[name]
                raise answer.location.error(f"{name} has a value, but its condition {condition} is false")
        return configuration

    def _of_table(self, workload: Workload, values: TableValues, table: str) -> Configuration:
        configuration = Assignment(self.recipe, workload).take_table(values, table)
        broken = self.broken_rule(workload, configuration)
        if broken is not None:
            location = Location(str(self.path), table)
            raise location.error(f"{configuration} breaks the rule {broken!r} at {workload}")
        return configuration

    def configuration(self, workload: Workload, values: Mapping[str, TunableValue]) -> Configuration:
        """Values as the file writes them: 8 for NumPy's 8. Those of tunables that have none are left out.

        Raises:
            UnknownNameError: they name what is no tunable.
            InputError: they lack a tunable, have a value that is not in the file, or break a rule.
        """
        configuration = Assignment(self.recipe, workload).take(values)
        rule = self.broken_rule(workload, configuration)
        if rule is not None:
            raise InputError(f"configuration: {configuration} breaks the rule {rule!r} at {workload}")
        return configuration

    def allowed(self, workload: Workload, values: Mapping[str, TunableValue]) -> Configuration | None:
        """The configuration of some values; None where they are none of the workload, or nobody knows."""
        try:
            return self.configuration(workload, values)
        except InputError:  # a rule without a result, too
            return None

    def broken_rule(
        self, workload: Workload, configuration: Configuration, layout: RowLayout = DENSE
    ) -> str | None:
        """The first rule that forbids a configuration for arrays of some layout, or None.

        Raises:
            KernelFileError: a rule has no result.
        """
        try:
            env = environment(self.recipe, workload, configuration, layout)
            return next((str(rule) for rule in self.recipe.rules if not rule.expression.evaluate(env)), None)
        except InputError as e:
            raise self._rules_place.error(e) from e

    def plan(self, workload: Workload, configuration: Configuration, layout: RowLayout = DENSE) -> Plan:
        """Evaluate every expression for one configuration, for arrays of some layout.

        Raises:
            KernelFileError: an expression has no result, or the result cannot be launched.
            InputError: arrays of this layout are not taken.
        """
        baseline = None
        if self.problem.name == "consistent":  # only the default configuration's answer can judge this one
            default = self.default(workload)
            baseline = None if configuration == default else self._default_plan(workload, default)
        recipe = self.recipe
        try:
            env = environment(self.recipe, workload, configuration, layout)
            stages = recipe.launches(env)
            buffers = recipe.arrays(env, stages)
            return Plan(
                workload=workload,
                configuration=configuration,
                stages=stages,
                buffers=buffers,
                problem=recipe.checked_problem,
                work=assumed_work(buffers) if recipe.work is None else recipe.work.evaluated(env),
                baseline=baseline,
                reference=self._reference(workload),
                **{name: int(configuration[name]) for name in recipe.place},
            )
        except KernelFileError as e:
            raise KernelFileError(f"{e} (at {workload} [{configuration}])") from e

    @cached_property
    def _default_plans(self) -> dict[Workload, Plan]:
        return {}

    def _default_plan(self, workload: Workload, default: Configuration) -> Plan:
        """The plan that others are judged by; evaluated once, as a chain may be long."""
        plan = self._default_plans.get(workload)
        if plan is None:
            plan = self.plan(workload, default)
            self._default_plans.clear()  # a space is enumerated for one workload at a time
            self._default_plans[workload] = plan
        return plan

    def _reference(self, workload: Workload) -> Plan | None:
        """The plan of the naive kernel, with the tunables of the default configuration.

        It is launched once, as in the first step of a loop.
        """
        recipe = self.recipe
        if recipe.reference is None:
            return None
        default = self.default(workload)
        env = environment(recipe, workload, default)
        if recipe.reference.loop:
            loop = recipe.loops[recipe.reference.loop]
            env = loop.with_constants(env)
            loop.put_step(0, env)
        stages = (recipe.reference.evaluated(env, BufferTable(recipe.buffers, env)),)
        buffers = recipe.arrays(env, stages)
        return Plan(workload, default, stages, buffers, recipe.checked_problem, Work(0.0, 0.0))

    def launches(self, workload: Workload, configuration: Configuration) -> tuple[Stage, ...]:
        """The launches of one configuration.

        Raises:
            KernelFileError: an expression has no result, or the result cannot be launched.
        """
        try:
            return self.recipe.launches(environment(self.recipe, workload, configuration))
        except InputError as e:
            raise Location(str(self.path), "[launch]").error(f"{e} (at {workload} [{configuration}])") from e

    @property
    def example(self) -> str:
        """The kernel at the first value of each size that is needed, as ``scan-lf:N=64``."""
        needed = [f"{name}={values[0]}" for name, values in self.sizes.items() if name not in self.optional]
        return f"{self.name}:{','.join(needed)}" if needed else self.name

    @property
    def _rules_place(self) -> Location:
        tables = ["[constraints]", *(["[variant]"] if any(rule.where for rule in self.recipe.rules) else [])]
        return Location(str(self.path), f"{' or '.join(tables)} rules")

    def _size(self, name: str, sizes: Mapping[str, int | str]) -> int | str:
        values = self.sizes[name]
        if name not in sizes:
            if not isinstance(values, range) and len(values) == 1:
                return values[0]
            raise UnknownNameError(
                f"{self.name}: size {name} is missing, as in {self.example}; "
                f"choose {name} from {described(values)}"
            )
        value = chosen(values, sizes[name])
        if value is None:
            raise UnknownNameError(
                f"{self.name} has no {name}={sizes[name]}; choose {name} from {described(values)}"
            )
        return value


# --- Places beside each other as tunables of workloads that run together.
#
# Blocks that wait are dispatched by the priority of their stream, so that of kernels which run at the same
# time the urgent ones get free multiprocessors first (CUDA C++ Programming Guide, "Stream Priorities"). A
# share of the multiprocessors keeps blocks of others away, or a workload's own blocks from all of them
# ("Green Contexts"). Alone, a workload has neither: no kernel file has these tunables of its own.

_OPTIONS = {STREAM_PRIORITY: "--stream-priorities", SM_SHARE: "--sm-shares"}
_MOST = {STREAM_PRIORITY: 5, SM_SHARE: 4096}  # as of the options, and as no GPU has


def with_places(kernel: KernelFile, places: Mapping[str, Sequence[int]]) -> KernelFile:
    """A kernel file whose configurations also have a place beside other workloads.

    Args:
        kernel: the file; sources and fingerprint stay as they are.
        places: values by names of ``PLACE``, the default first: priorities, of which the highest is the most
            urgent, and shares in multiprocessors, 0 for what others leave.

    Raises:
        KernelFileError: the file has something else of such a name.
    """
    recipe = kernel.recipe
    for name in places:
        if name in {*recipe.tunables, *recipe.derived, *recipe.sizes}:
            raise _taken(kernel.path, name)
    location = Location(str(kernel.path), "[tunables]")
    first = {name: Formula(location, values[0], ()) for name, values in places.items()}
    several = replace(
        recipe,
        tunables={**recipe.tunables, **{name: tuple(values) for name, values in places.items()}},
        default={**recipe.default, **first} if recipe.default else {},
        stated={table: {**values, **first} for table, values in recipe.stated.items()},
        measured=recipe.measured
        and replace(recipe.measured, further={name: values[0] for name, values in places.items()}),
        place=tuple(places),
    )
    return replace(kernel, recipe=several)


def _taken(path: Path, name: str) -> KernelFileError:
    """The error of a file that has a name of ``PLACE`` for something of its own."""
    location = Location(str(path), f"[tunables] {name}")
    return location.error(f"is the name of the tunable of {_OPTIONS[name]}; choose another name")


def stored_configuration(
    kernel: KernelFile, workload: Workload, values: Mapping[str, TunableValue]
) -> Configuration:
    """The values of a stored trial as the kernel file writes them, with a place beside others if it has one.

    Raises:
        InputError: they are no configuration of the workload; whoever wrote them had another kernel.
    """
    configuration = kernel.configuration(workload, without_place(Configuration(values)))
    place = {name: values[name] for name in PLACE if name in values}
    for name, value in place.items():
        if type(value) is not int or not 0 <= value <= _MOST[name]:
            raise InputError(f"configuration: {name} is {value!r}; it must be 0 to {_MOST[name]}")
    return with_place(configuration, place)
