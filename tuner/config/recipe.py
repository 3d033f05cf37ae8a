"""A kernel file with all expressions parsed, for ``KernelFile.plan``."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from tuner.config.argument_recipes import BufferRecipe, BufferTable
from tuner.config.library_stage import LibraryStageRecipe
from tuner.config.stage_recipe import StageRecipe
from tuner.expressions.arithmetic import NoValue
from tuner.expressions.expression import Expression
from tuner.kernel_files.formulas import Environment, Formula, Place, with_derived
from tuner.kernel_files.input_reader import FileRecipe
from tuner.kernel_files.measured_answers import MeasuredAnswers
from tuner.kernel_files.recipe import BETWEEN, LoopRecipe, written_out
from tuner.kernel_files.sizes import SizeValues
from tuner.model.errors import KernelFileError
from tuner.model.plan import Buffer, ProblemSpec, Stage, TunableValue, Work
from tuner.space.values import Condition


@dataclass(frozen=True)
class ConditionRecipe:
    """When a tunable has a value.

    Attributes:
        when: the condition.
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
        """What an environment holds for the tunable where it has no value."""
        if self.otherwise is not None:
            return self.otherwise.value(env)
        return self.condition.no_value

    def holds(self, env: Environment) -> bool:
        """Whether the tunable has a value, by the tunables above."""
        return bool(self.when.value(with_derived(env, self.derived)))


@dataclass(frozen=True)
class Rule:
    """A condition that configurations must satisfy.

    Attributes:
        expression: the condition; of a variant's, true where the variant's own is false.
        text: as the file writes it.
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


@dataclass(frozen=True)
class StatedAnswer:
    """An analytical answer that a kernel file states.

    Attributes:
        table: what messages call its table.
        values: of the tunables, as of ``Recipe.default``.
    """

    table: str
    values: Mapping[str, Formula | str | None]


@dataclass(frozen=True)
class Recipe:
    """Everything a kernel file says.

    Values of ``default`` are formulas, or texts that are values themselves; None for tunables with a
    condition for which none is given. ``stated`` has the analytical answers that the file states, the
    preferred one first, and ``measured`` those of a file that come before them. ``work`` is None where the
    file states none, and ``stream_priority`` where priorities are not searched. ``extends`` names kernels
    that this one is taken for at sizes and types that they refuse.
    """

    place: Place
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
    default: Mapping[str, Formula | str | None]
    buffers: tuple[BufferRecipe, ...]
    stages: tuple[StageRecipe | LibraryStageRecipe, ...]
    loops: Mapping[str, LoopRecipe]
    problem: ProblemSpec
    work: WorkRecipe | None
    min_occupancy: float | None
    analytical: bool = True
    stated: tuple[StatedAnswer, ...] = ()
    measured: MeasuredAnswers | None = None
    reference: StageRecipe | None = None
    reference_files: Mapping[tuple[str, str], FileRecipe] = field(default_factory=dict)
    stream_priority: Formula | None = None
    extends: tuple[str, ...] = ()

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
        further = [one.sha256 for one in (function, self.measured) if one is not None]
        return (*(file.hashed.sha256 for file in files), *further)

    def priority(self, env: Environment) -> int:
        """Priority of the workload's stream, 0 for the least urgent."""
        return 0 if self.stream_priority is None else self.stream_priority.whole(env, least=0)

    def launches(self, env: Environment) -> tuple[Stage, ...]:
        """The stages whose ``when`` holds, those of loops once for every step.

        Raises:
            KernelFileError: none is left, or one cannot be launched.
        """
        stages = written_out(self.stages, self.loops, env, BufferTable(self.buffers, env))
        if not stages:
            raise KernelFileError(f"{self.place.path}: [[stage]] when: every stage is left out")
        if all(stage.setup for stage in stages):
            raise KernelFileError(f"{self.place.path}: [[stage]] setup: no stage is left that runs launch")
        return stages

    def arrays(self, env: Environment, stages: Sequence[Stage]) -> tuple[Buffer, ...]:
        """The buffers of one configuration, without scratch arrays that none of its stages takes.

        Arrays that take turns with an output between the steps of a loop follow.
        """
        taken = frozenset().union(*(stage.buffers for stage in stages))
        evaluated = [
            buffer.evaluated(env)
            for buffer in self.buffers
            if buffer.role not in ("scratch", "zeroed") or buffer.name in taken
        ]
        between = [
            replace(buffer, name=buffer.name + BETWEEN, role="scratch")
            for buffer in evaluated
            if buffer.name + BETWEEN in taken
        ]
        return (*evaluated, *between)
