"""Launches of a kernel file, before their expressions are evaluated."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.config.argument_recipes import ParameterRecipe, parameter, values_of
from tuner.expressions.arithmetic import NoValue
from tuner.kernel_files.formulas import Environment, Formula, Place, Template
from tuner.kernel_files.recipe import Predecessor
from tuner.model.arguments import TensorMap
from tuner.model.plan import Buffer, Resources, Source, Stage
from tuner.untrusted.compiler_options import RefusedOptionError, check_name_expression, check_options

MAX_GRID = (2**31 - 1, 65535, 65535)  # CUDA C++ Programming Guide, technical specifications
MAX_BLOCK = (1024, 1024, 64)
MAX_THREADS = 1024
MAX_SHARED_BYTES = 2**20  # above that of any GPU; the device's own limit is applied by pruning
CLUSTER_ARCHITECTURE = 90  # clusters and tensor maps came with it
MAX_CLUSTER = 16  # beyond 8 the device must be asked to allow it
MAX_ARCHITECTURE = 1000
MAX_STREAM = 7
_STEPPED = ("block", "grid", "shared_bytes", "moved_bytes")


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
    moved_bytes: Formula | None = None

    def varying(self, names: Collection[str]) -> frozenset[str | int]:
        """See ``StageSource.varying``."""
        used: dict[str | int, Sequence[Formula]] = {
            "grid": self.grid,
            "block": self.block,
            "shared_bytes": (self.shared_bytes,),
            "moved_bytes": () if self.moved_bytes is None else (self.moved_bytes,),
            **{place: tuple(values_of(argument)) for place, argument in enumerate(self.arguments)},
        }
        return frozenset(
            field
            for field, formulas in used.items()
            if any(not formula.expression.names.isdisjoint(names) for formula in formulas)
        )

    def evaluated(self, env: Environment, buffers: Mapping[str, Buffer]) -> Stage:
        """The launch of one configuration, and of the first step of its loop.

        Raises:
            KernelFileError: the geometry is beyond what CUDA can launch, or a view beyond its array.
        """
        changing = {field: self._field(field, env) for field in _STEPPED}
        arguments = tuple([parameter(item, env, buffers) for item in self.arguments])
        cluster = self.cluster.whole(env, 1, MAX_CLUSTER)
        self._check_cluster(cluster, changing["grid"])
        least = self.min_architecture.whole(env, 0, MAX_ARCHITECTURE)
        if cluster > 1 or any(isinstance(argument, TensorMap) for argument in arguments):
            least = max(least, CLUSTER_ARCHITECTURE)
        entry = self.entry.fill(env)
        options = (*(option.fill(env) for option in self.options), *self._defined(env))
        self._check(entry, options)
        return Stage(
            name=self.name,
            source=self.source,
            entry=entry,
            options=options,
            arguments=arguments,
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
        self, stage: Stage, fields: Collection[str | int], env: Environment, buffers: Mapping[str, Buffer]
    ) -> Stage:
        """See ``StageSource.stepped``.

        Raises:
            KernelFileError: as ``evaluated``.
        """
        arguments = list(stage.arguments)
        changed: dict[str, Any] = {}
        for key in fields:
            if isinstance(key, int):
                arguments[key] = parameter(self.arguments[key], env, buffers)
            else:
                changed[key] = self._field(key, env)
        if "grid" in changed:
            self._check_cluster(stage.cluster, changed["grid"])
        return stage.changed(arguments=tuple(arguments), **changed)

    def _check(self, entry: str, options: tuple[str, ...]) -> None:
        """Refuse what the compiler must not be given, now that all expressions have their values."""
        try:
            check_options(options, self.source.include_paths)
        except RefusedOptionError as e:
            raise (self.options[0].place if self.options else self.place).error(e) from e
        try:
            check_name_expression(entry)
        except RefusedOptionError as e:
            raise self.entry.place.error(e) from e

    def _defined(self, env: Environment) -> list[str]:
        """NVRTC options of the macros; a tunable without a value has none."""
        values = ((name, env[name]) for name in self.macros)
        return [
            f"-D{n}={int(v) if isinstance(v, bool) else v}" for n, v in values if not isinstance(v, NoValue)
        ]

    def _field(self, field: str, env: Environment) -> Any:  # noqa: ANN401
        """One of the fields that may differ from step to step."""
        if field == "moved_bytes":
            return None if self.moved_bytes is None else float(self.moved_bytes.number(env, least=0))
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


def _extent(
    formulas: tuple[Formula, ...], env: Environment, most: tuple[int, int, int]
) -> tuple[int, int, int]:
    values = [formula.whole(env, 1, limit) for formula, limit in zip(formulas, most, strict=False)]
    x, y, z = (*values, 1, 1)[:3]
    return x, y, z
