"""Reads a kernel file (TOML, schema, names, sources) into a recipe; errors name the key."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner.config.argument_reader import ArgumentReader
from tuner.config.argument_recipes import ArgumentRecipe, ParameterRecipe
from tuner.config.argument_schema import ScalarArgument
from tuner.config.chain_reader import ChainReader, loop_tables
from tuner.config.chain_schema import LibraryStageTable, ViewTable
from tuner.config.document import argument_key, read_document
from tuner.config.formulas import Formula, Place, Template, parsed
from tuner.config.library_stage import LibraryStageRecipe
from tuner.config.problem_reader import read_problem
from tuner.config.problem_schema import SizeRange
from tuner.config.recipe import Recipe, Rule, StageRecipe, WorkRecipe
from tuner.config.schema import KernelDocument, LaunchTable, StageTable, WorkTable
from tuner.config.short_files import default_block, default_entry, default_name, with_macros
from tuner.config.sizes import SizeValues, is_text, listed
from tuner.config.source_folder import SourceFolder, SourceTexts
from tuner.config.source_text import symbols_of, texture_line
from tuner.config.tunable_reader import TunableReader, declarations
from tuner.errors import suggestion
from tuner.expressions import PythonExpression, is_free_name
from tuner.model import Source, TunableValue

MAX_WORKLOADS = 10_000  # commands list them all
_SCALES = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def read_recipe(path: Path) -> Recipe:
    """The recipe of a kernel file.

    Raises:
        KernelFileError: the file, its sources or its headers cannot be read, or a key is wrong.
    """
    return _Reader(path, read_document(path)).recipe()


def recipe_of(
    path: Path,
    document: KernelDocument,
    sources: Mapping[str, Source],
    functions: Mapping[str, Callable[..., Any]],
    restrictions: Sequence[Callable[..., Any]],
) -> Recipe:
    """The recipe of a document that is no file; see ``kernel_of``.

    Raises:
        KernelFileError: a key is wrong.
        InputError: a function has a parameter that is no size, tunable or derived name.
    """
    return _Reader(path, document, SourceTexts(sources), functions, restrictions).recipe()


class _Reader:
    """Parses the parts of one document; ``names`` is all that expressions of a launch may use.

    ``functions`` are further derived names, and ``restrictions`` further rules.
    """

    def __init__(
        self,
        path: Path,
        document: KernelDocument,
        sources: SourceTexts | None = None,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        restrictions: Sequence[Callable[..., Any]] = (),
    ) -> None:
        self.path = path
        self.document = document
        self.functions = functions or {}
        self.restrictions = restrictions
        self.declared = declarations(document, self.at)
        self.sizes: dict[str, SizeValues] = {
            name: range(given.first, given.last + 1) if isinstance(given, SizeRange) else tuple(given)
            for name, given in document.problem.sizes.items()
        }
        self._check_names()
        self._check_sizes()
        self.fixed = [*self.sizes, "batch"]
        self.names = [*self.fixed, *self.declared, *document.derived, *self.functions]
        self.name = document.kernel.name or default_name(path, self.at("[kernel] name"))
        self.chains = ChainReader(self.at, document, self.names)
        self.sources = sources or SourceFolder(
            path.parent, document.kernel.headers, self.at("[kernel] headers")
        )
        self.sources.include(document.kernel.include_paths, self.at("[kernel] include_paths"))
        self.symbols: dict[str, tuple[str, str]] = {}  # key of the argument -> variable and buffer

    def at(self, key: str) -> Place:
        return Place(str(self.path), argument_key(key) if self.document.arguments else key)

    def recipe(self) -> Recipe:
        document = self.document
        derived = self._derived()
        tunables = TunableReader(self.at, self.declared, self.fixed, derived)
        reader = ArgumentReader(
            self.at,
            list(self.sizes),
            self.names,
            self.sources.folder,
            self.chains.indices,
            restores=bool(self.chains.tables),
        )
        buffers, arguments = reader.read(document.argument)
        self.symbols = reader.symbols(document.argument)
        values = {one.scalar: one.value for one in document.argument if isinstance(one, ScalarArgument)}
        problem, files = read_problem(
            self.at, document.problem, buffers, self.fixed, self.sources.folder, values=values
        )
        stages, reference = self._launches(arguments)
        return Recipe(
            place=self.at("[kernel]"),
            name=self.name,
            description=document.kernel.description,
            family=document.kernel.family,
            sizes=self.sizes,
            optional=tuple(document.problem.optional),
            batch=Formula(self.at("[problem] batch"), document.problem.batch, list(self.sizes)),
            tunables={name: one.values for name, one in self.declared.items()},
            conditions=tunables.conditions,
            derived=derived,
            roles=tunables.roles(document.roles.model_dump(exclude_none=True)),
            rules=self._rules(),
            spills=document.constraints.spills,
            default=tunables.default(document.default),
            buffers=buffers,
            stages=self.chains.checked(stages),
            loops=self.chains.loops([buffer.name for buffer in buffers]),
            problem=problem,
            work=None if document.work is None else self._work(document.work),
            min_occupancy=None if document.occupancy is None else document.occupancy.min,
            reference=reference,
            reference_files=files,
        )

    # --- names and values ------------------------------------------------------------------------

    def _check_names(self) -> None:
        taken = {"batch": "the batch"}
        tables: dict[str, Iterable[str]] = {
            "problem.sizes": self.sizes,
            **{one.table: [] for one in self.declared.values()},
            "derived": self.document.derived,
            "loop": {table.index for table in loop_tables(self.document).values()},
        }
        for name, one in self.declared.items():
            tables[one.table] = [*tables[one.table], name]
        for table, names in tables.items():
            for name in names:
                place = self.at(f"[{table}] {name}")
                if not is_free_name(name):
                    raise place.error("this name is a word of the expression language; choose another")
                if name in taken:
                    raise place.error(f"the name is taken by {taken[name]}; choose another")
                taken[name] = f"[{table}]"

    def _check_sizes(self) -> None:
        for name, values in self.sizes.items():
            if isinstance(values, tuple) and len(set(map(str, values))) < len(values):
                raise self.at(f"[problem.sizes] {name}").error("a value stands twice")
            unnamed = next((value for value in values if isinstance(value, str) and not is_text(value)), None)
            if unnamed is not None:
                raise self.at(f"[problem.sizes] {name}").error(
                    f"no workload can name {unnamed!r}: a text is not empty, is printable, has no spaces"
                    " around it, and neither ',' nor '='"
                )
        optional = self.document.problem.optional
        for name in optional:
            place = self.at("[problem] optional")
            if optional.count(name) > 1:
                raise place.error(f"{name} stands twice")
            if name not in self.sizes:
                choices = ", ".join(self.sizes) or "there is none"
                raise place.error(f"no size is called {name!r}; choose from {choices}")
            if isinstance(self.sizes[name], range):
                raise place.error(f"{name} is a range, which has no first choice; give it a list of values")
        combinations = math.prod(len(listed(values)) for values in self.sizes.values())
        if combinations > MAX_WORKLOADS:
            raise self.at("[problem.sizes]").error(
                f"{combinations} combinations of sizes, at most {MAX_WORKLOADS} are allowed"
            )

    def _derived(self) -> dict[str, Formula]:
        known = [*self.fixed, *self.declared]
        derived = {}
        for name, value in self.document.derived.items():
            derived[name] = Formula(self.at(f"[derived] {name}"), value, known)
            known.append(name)
        for name, function in self.functions.items():
            derived[name] = Formula(self.at(name), PythonExpression(function, known, name), known)
        return derived

    def _rules(self) -> tuple[Rule, ...]:
        """Those of [constraints], then those of variants, each under its condition."""
        rules = [
            Rule(parsed(self.at(f"[constraints] rules, item {i}"), text, self.names), text)
            for i, text in enumerate(self.document.constraints.rules, 1)
        ]
        known = [name for name in self.names if name not in self.functions]
        for i, function in enumerate(self.restrictions):
            label = f"restrictions[{i}]"
            rules.append(Rule(PythonExpression(function, known, label), label))
        for name, variant in self.document.variant.items():
            parsed(self.at(f"[variant.{name}] when"), variant.when, self.names)
            for i, text in enumerate(variant.rules, 1):
                place = self.at(f"[variant.{name}] rules, item {i}")
                parsed(place, text, self.names)
                guarded = parsed(place, f"not ({variant.when}) or ({text})", self.names)
                rules.append(Rule(guarded, text, variant.when))
        return tuple(rules)

    # --- stages ----------------------------------------------------------------------------------

    def _launches(
        self, arguments: Mapping[str, ArgumentRecipe]
    ) -> tuple[tuple[StageRecipe | LibraryStageRecipe, ...], StageRecipe | None]:
        """The launches of a run, and that of the naive kernel; macros are for names that no run mentions."""
        stages, names = self._stages(arguments), [*self.declared, *self.sizes]
        entry = self.document.problem.reference_entry
        if entry is None:
            return with_macros(stages, names), None
        own = self.document.reference_launch
        launch = self.document.launch if own is None else LaunchTable(**own.model_dump())
        if launch is None:
            raise self.at("[reference_launch]").error("is needed for reference_entry")
        same_source = (s.symbols for s in stages if isinstance(s, StageRecipe))
        naive = replace(
            self._stage(None, "", launch, entry, arguments),
            symbols=next(same_source, ()),
            place=self.at("[launch]" if own is None else "[reference_launch]"),
            name=entry,
            entry=Template(self.at("[problem] reference_entry"), entry, self.names),
        )
        *launches, reference = with_macros([*stages, naive], names)
        return tuple(launches), reference if isinstance(reference, StageRecipe) else None

    def _stages(
        self, arguments: Mapping[str, ArgumentRecipe]
    ) -> tuple[StageRecipe | LibraryStageRecipe, ...]:
        document = self.document
        if document.launch is not None:
            entry = document.kernel.entry or self._only_entry()
            return self._with_symbols([self._stage(None, "", document.launch, entry, arguments)])
        tables = {"stage": (document.stage, None)} | {
            f"variant.{name}.stage": (variant.stage, variant.when)
            for name, variant in document.variant.items()
        }
        stages: list[StageRecipe | LibraryStageRecipe] = []
        for table, (launches, condition) in tables.items():
            for number, stage in enumerate(launches, 1):
                key = f"[[{table}]] {number} ({stage.name})"
                if isinstance(stage, LibraryStageTable):
                    called = self.chains.library_stage(stage, key, arguments)
                    stages.append(replace(called, when=self._when(condition, called)))
                else:
                    recipe = self._stage(stage, key, stage, stage.entry, arguments)
                    stages.append(replace(recipe, when=self._when(condition, recipe)))
        return self._with_symbols(stages)

    def _with_symbols(
        self, stages: Sequence[StageRecipe | LibraryStageRecipe]
    ) -> tuple[StageRecipe | LibraryStageRecipe, ...]:
        """The stages with the variables of their sources that buffers are copied to."""
        for key, (symbol, buffer) in self.symbols.items():
            stages = symbols_of(stages, symbol, buffer, self.at(key))
        return tuple(stages)

    def _only_entry(self) -> str:
        reference = self.document.problem.reference_entry
        apart = [] if reference is None else [reference.partition("<")[0]]
        source = self._source(None, "[kernel]")
        return default_entry(source, self.names, apart, self.at("[kernel] entry"))

    def _when(self, condition: str | None, stage: StageRecipe | LibraryStageRecipe) -> Formula | None:
        """The condition of a stage that is launched where that of its variant is true, too."""
        if condition is None:
            return stage.when
        text = condition if stage.when is None else f"({condition}) and ({stage.when.expression.text})"
        place = self.at(f"{stage.place.key} when")
        return Formula(place, text, self.chains.names_in(stage.loop))

    def _stage(
        self,
        stage: StageTable | None,
        key: str,
        launch: LaunchTable,
        entry: str,
        arguments: Mapping[str, ArgumentRecipe],
    ) -> StageRecipe:
        in_launch, in_kernel = key or "[launch]", key or "[kernel]"
        loop = self.chains.loop_of(stage, in_launch)
        stepped = self.chains.names_in(loop)

        def formula(field: str, value: TunableValue, *, known: Collection[str] = self.names) -> Formula:
            return Formula(self.at(f"{in_launch} {field}"), value, known)

        def extent(field: str, value: Any) -> tuple[Formula, ...]:  # noqa: ANN401 - one value or a list
            axes = value if isinstance(value, list) else [value]
            return tuple(formula(field, axis, known=stepped) for axis in axes)

        block = launch.block or default_block(self.declared, self.at(f"{in_launch} block"))
        registers, shared = self._declared(stage, in_launch)
        return StageRecipe(
            place=self.at(in_launch),
            name=stage.name if stage else self.name,
            source=self._source(stage, in_kernel),
            entry=Template(self.at(f"{in_kernel} entry"), entry, self.names),
            options=tuple(
                Template(self.at("[kernel] options"), option, self.names)
                for option in self.document.kernel.options
            ),
            grid=extent("grid", launch.grid),
            block=extent("block", block),
            shared_bytes=formula("shared_bytes", launch.shared_bytes, known=stepped),
            arguments=self._parameters(stage, key, arguments, loop),
            min_architecture=formula("min_architecture", launch.min_architecture),
            resident=formula("resident", launch.resident),
            cluster=formula("cluster", launch.cluster),
            when=formula("when", stage.when, known=stepped) if stage and stage.when is not None else None,
            registers=registers,
            static_shared_bytes=shared,
            loop=loop,
            stream=formula("stream", stage.stream if stage else 0),
            after=self.chains.predecessors(stage),
            symbols=(),
            cooperative=formula("cooperative", launch.cooperative),
            setup=bool(stage and stage.setup),
        )

    def _parameters(
        self, stage: StageTable | None, key: str, arguments: Mapping[str, ArgumentRecipe], loop: str
    ) -> tuple[ParameterRecipe, ...]:
        place = self.at(f"{key or '[launch]'} arguments")
        if stage is None or stage.arguments is None:
            found: tuple[ParameterRecipe, ...] = tuple(arguments.values())
        else:
            for name in stage.arguments:
                if isinstance(name, str) and name not in arguments:
                    raise place.error(self._no_argument(name, arguments))
            found = tuple(
                self.chains.view(item, place, arguments, loop)
                if isinstance(item, ViewTable)
                else arguments[item]
                for item in stage.arguments
            )
        self.chains.check_indices(found, place, loop)
        return found

    def _no_argument(self, name: str, arguments: Mapping[str, ArgumentRecipe]) -> str:
        """Why a name is no argument of a stage."""
        symbol = next((symbol for symbol, buffer in self.symbols.values() if buffer == name), None)
        if symbol is not None:
            return f"{name} has the role constant: it is the variable {symbol} of the source, no parameter"
        choices = ", ".join(arguments)
        return f"no argument is called {name!r}; choose from {choices}{suggestion(name, arguments)}"

    def _declared(self, stage: StageTable | None, key: str) -> tuple[Formula | None, Formula | None]:
        """Registers and static shared bytes: those of the stage, else those of [resources]."""
        found: list[Formula | None] = []
        for field in ("registers", "static_shared_bytes"):
            place, value = self.at(f"{key} {field}"), getattr(stage, field, None)
            if value is None:
                place = self.at(f"[resources] {field}")
                value = getattr(self.document.resources, field, None)
            found.append(None if value is None else Formula(place, value, self.names))
        return found[0], found[1]

    # --- problem, work, sources ------------------------------------------------------------------

    def _work(self, work: WorkTable) -> WorkRecipe:
        def formula(field: str) -> Formula:
            return Formula(self.at(f"[work] {field}"), getattr(work, field), self.names)

        prefixed = len(work.rate) > 1 and work.rate[0] in _SCALES and work.rate[1].isupper()
        return WorkRecipe(
            bytes=formula("bytes"),
            operations=formula("operations"),
            steps=formula("steps"),
            rate_units=formula("rate_units"),
            rate_name=work.rate,
            rate_scale=_SCALES[work.rate[0]] if prefixed else 1.0,
        )

    def _source(self, stage: StageTable | None, key: str) -> Source:
        own = stage.source if stage else None
        name = own or self.document.kernel.source
        if name is None:
            raise self.at(f"{key} source").error("no CUDA C++ file is named here or in [kernel]")
        place = self.at(f"{key} source" if own else "[kernel] source")
        source = self.sources.source(name, place)
        line = texture_line(source.text)
        if line:
            raise place.error(
                f"{source.path}, line {line}: texture objects are not supported; read the array through a"
                " const __restrict__ pointer or __ldg()"
            )
        return source
