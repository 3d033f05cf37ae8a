"""A kernel file with all expressions parsed, for ``KernelFile.plan``."""

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from tuner.config.argument_recipes import BufferRecipe, BufferTable, ParameterRecipe, parameter, values_of
from tuner.config.formulas import Environment, Formula, Place, Template
from tuner.config.input_reader import FileRecipe
from tuner.config.library_stage import LibraryStageRecipe
from tuner.config.loops import BETWEEN, LoopRecipe, Predecessor, written_out
from tuner.config.sizes import SizeValues
from tuner.errors import ExpressionError, KernelFileError, NoValueError
from tuner.expressions import Expression, NoValue
from tuner.model import (
    Buffer,
    ProblemSpec,
    Resources,
    Source,
    Stage,
    TensorMap,
    TunableValue,
    Work,
)
from tuner.space import Condition

MAX_GRID = (2**31 - 1, 65535, 65535)  # CUDA C++ Programming Guide, technical specifications
MAX_BLOCK = (1024, 1024, 64)
MAX_THREADS = 1024
MAX_SHARED_BYTES = 2**20  # above that of any GPU; the device's own limit is applied by pruning
CLUSTER_ARCHITECTURE = 90  # clusters and tensor maps came with it
MAX_CLUSTER = 16  # beyond 8 the device must be asked to allow it
MAX_ARCHITECTURE = 1000
MAX_STREAM = 7
_STEPPED = ("block", "grid", "shared_bytes", "arguments")


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
class StageRecipe:
    """One launch whose geometry is not evaluated yet.

    Attributes:
        arguments: names of buffers, or what is passed by value.
        when: None for always.
        registers: None where the file declares no resources.
        symbols: (variable of the source, buffer) pairs.
        setup: launched once for the arrays, before runs.
        macros: tunables and sizes that the source gets as macros.
    """

    place: Place
    name: str
    source: Source
    entry: Template
    options: tuple[Template, ...]
    grid: tuple[Formula, ...]
    block: tuple[Formula, ...]
    shared_bytes: Formula
    arguments: tuple[ParameterRecipe, ...]
    min_architecture: Formula
    resident: Formula
    cluster: Formula
    when: Formula | None
    registers: Formula | None
    static_shared_bytes: Formula | None
    symbols: tuple[tuple[str, str], ...]
    cooperative: Formula
    setup: bool
    loop: str = ""
    stream: Formula | None = None
    after: tuple[Predecessor, ...] = ()
    macros: tuple[str, ...] = ()

    def varying(self, index: str) -> frozenset[str]:
        """See ``StageSource.varying``."""
        values = [formula for argument in self.arguments for formula in values_of(argument)]
        used = {
            "grid": self.grid,
            "block": self.block,
            "shared_bytes": (self.shared_bytes,),
            "arguments": values,
        }
        return frozenset(
            field
            for field, formulas in used.items()
            if any(index in formula.expression.names for formula in formulas)
        )

    def evaluated(self, env: Environment, buffers: Mapping[str, Buffer]) -> Stage:
        """The launch of one configuration, and of the first step of its loop.

        Raises:
            KernelFileError: the geometry is beyond what CUDA can launch, or a view beyond its array.
        """
        changing = {field: self._field(field, env, buffers) for field in _STEPPED}
        cluster = self.cluster.whole(env, 1, MAX_CLUSTER)
        self._check_cluster(cluster, changing["grid"])
        least = self.min_architecture.whole(env, 0, MAX_ARCHITECTURE)
        if cluster > 1 or any(isinstance(argument, TensorMap) for argument in changing["arguments"]):
            least = max(least, CLUSTER_ARCHITECTURE)
        return Stage(
            name=self.name,
            source=self.source,
            entry=self.entry.fill(env),
            options=(*(option.fill(env) for option in self.options), *self._defined(env)),
            declared=self._declared(env),
            min_architecture=least,
            resident=bool(self.resident.number(env)),
            cluster=cluster,
            symbols=self.symbols,
            cooperative=bool(self.cooperative.number(env)),
            setup=self.setup,
            stream=0 if self.stream is None else self.stream.whole(env, 0, MAX_STREAM),
            **changing,
        )

    def stepped(
        self, stage: Stage, fields: Collection[str], env: Environment, buffers: Mapping[str, Buffer]
    ) -> Stage:
        """See ``StageSource.stepped``.

        Raises:
            KernelFileError: as ``evaluated``.
        """
        changed = {field: self._field(field, env, buffers) for field in fields}
        if "grid" in changed:
            self._check_cluster(stage.cluster, changed["grid"])
        return replace(stage, **changed)

    def _defined(self, env: Environment) -> list[str]:
        """NVRTC options of the macros; a tunable without a value has none."""
        values = ((name, env[name]) for name in self.macros)
        return [
            f"-D{n}={int(v) if isinstance(v, bool) else v}" for n, v in values if not isinstance(v, NoValue)
        ]

    def _field(self, field: str, env: Environment, buffers: Mapping[str, Buffer]) -> Any:  # noqa: ANN401
        """One of the fields that may differ from step to step."""
        if field == "arguments":
            return tuple(parameter(item, env, buffers) for item in self.arguments)
        if field == "shared_bytes":
            return self.shared_bytes.whole(env, 0, MAX_SHARED_BYTES)
        if field == "grid":
            return _extent(self.grid, env, MAX_GRID)
        block = _extent(self.block, env, MAX_BLOCK)
        if math.prod(block) > MAX_THREADS:
            formulas = ", ".join(map(str, self.block))
            raise self.block[0].place.error(
                f"{formulas} makes {math.prod(block)} threads; a block has at most {MAX_THREADS}"
            )
        return block

    def _check_cluster(self, cluster: int, grid: tuple[int, int, int]) -> None:
        if grid[0] % cluster:
            raise self.cluster.place.error(f"a grid of {grid[0]} blocks is not made of clusters of {cluster}")

    def _declared(self, env: Environment) -> Resources | None:
        if self.registers is None:
            return None
        shared = 0 if self.static_shared_bytes is None else self.static_shared_bytes.whole(env, least=0)
        return Resources(self.registers.whole(env, least=1), shared, compiled=False)


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
class Recipe:
    """Everything a kernel file says.

    ``default`` values are formulas, or texts that are values themselves; None for tunables with a condition
    for which none is given. ``work`` is None where the file states none.
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
    reference: StageRecipe | None = None
    reference_files: Mapping[tuple[str, str], FileRecipe] = field(default_factory=dict)

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
        """SHA-256 of every file of data and of functions.

        Raises:
            KernelFileError: one cannot be read any more.
        """
        inputs = (buffer.input.files for buffer in self.buffers if buffer.input is not None)
        files = [*itertools.chain.from_iterable(inputs), *self.reference_files.values()]
        function = self.problem.function
        return (*(file.hashed.sha256 for file in files), *(() if function is None else (function.sha256,)))

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


def with_derived(env: Environment, derived: Mapping[str, Formula]) -> Environment:
    """An environment with derived names; one that comes to a tunable without a value has none itself."""
    values = dict(env)
    for name, formula in derived.items():
        values[name] = _value_or_none(formula, values)
    return values


def _value_or_none(formula: Formula, env: Environment) -> TunableValue | NoValue:
    try:
        value: TunableValue = formula.expression.evaluate(env)
    except NoValueError as e:
        return NoValue(str(e))
    except ExpressionError as e:
        raise formula.place.error(e) from e
    return value


def _extent(
    formulas: tuple[Formula, ...], env: Environment, most: tuple[int, int, int]
) -> tuple[int, int, int]:
    values = [formula.whole(env, 1, limit) for formula, limit in zip(formulas, most, strict=False)]
    x, y, z = (*values, 1, 1)[:3]
    return x, y, z
