"""Reading of launches and chains of a kernel file: stages, variants, loops, views, streams, libraries."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from tuner.kernel_files.build_command import ARCHITECTURE, OUTPUT, SOURCE, found_command
from tuner.kernel_files.cuda_source.tokens import declared_symbols, names_word, texture_line
from tuner.kernel_files.formulas import Formula, Location, NamedFunctions, Template, named
from tuner.kernel_files.recipe import LoopRecipe
from tuner.kernel_files.schema import (
    NONE,
    OPERANDS,
    ChainedTable,
    KernelDocument,
    LaunchTable,
    LibraryStageTable,
    LoopTable,
    OperandTable,
    StageTable,
    ViewTable,
)
from tuner.kernel_files.short_files import SUFFIXES, default_block, default_entry, with_macros
from tuner.kernel_files.source_folder import NamedFiles, SourceFolder, SourceTexts
from tuner.kernel_files.stage_recipe import (
    AnyStageRecipe,
    ArgumentRecipe,
    LibraryStageRecipe,
    OperandRecipe,
    ParameterRecipe,
    Predecessor,
    ScalarRecipe,
    StageRecipe,
    ViewRecipe,
    values_of,
)
from tuner.kernel_files.triton_stage import TritonRecipe, check_keys, triton_recipe
from tuner.model.errors import suggestion
from tuner.model.plan import Language, Source, TunableValue
from tuner.system.untrusted.compiler_options import RefusedOptionError, check_options

# --- Reads what makes stages a chain: loops, views of buffers, streams, and stages of libraries.

_LAUNCH = "launch"
_NUMBERS = ("m", "n", "k", "alpha", "beta", "inverse", "threads", "first")


class ChainReader:
    """Parses the chains of one document.

    Attributes:
        tables: the loops by name; that of ``[launch]`` is called so.
        step_names: what the loops name: the numbers of their steps, and expressions of these.
    """

    def __init__(
        self, at: Callable[[str], Location], document: KernelDocument, names: Collection[str]
    ) -> None:
        self._at = at
        self._names = names
        launch, self.tables = document.launch, dict(document.loop)
        self._in_launch = launch is not None and launch.repeat is not None
        if launch is not None and launch.repeat is not None:
            self.tables = {
                _LAUNCH: LoopTable(
                    repeat=launch.repeat, index=launch.index, swap=launch.swap, derived=launch.derived
                )
            }
        self.step_names = list(dict.fromkeys(name for loop in self.tables for name in self._own(loop)))

    def location(self, loop: str) -> Location:
        """The table of a loop."""
        return self._at("[launch]" if self._in_launch else f"[loop.{loop}]")

    def loops(self, buffers: Collection[str], functions: NamedFunctions) -> dict[str, LoopRecipe]:
        """The loops by name; their named expressions may call ``functions``.

        Raises:
            KernelFileError: an expression is wrong, or no array is called as one that is swapped.
        """
        recipes = {}
        for name, table in self.tables.items():
            location = self.location(name)
            for buffer in (buffer for pair in table.swap for buffer in pair):
                self._check_buffer(buffer, self._at(f"{location.key} swap"), buffers)
                if sum(pair.count(buffer) for pair in table.swap) > 1:
                    raise self._at(f"{location.key} swap").error(f"{buffer} stands twice")
            repeat = Formula(self._at(f"{location.key} repeat"), table.repeat, self._names)
            allowed = [*self._names, table.index]
            derived = named(self._at, f"{location.key[:-1]}.derived]", table.derived, allowed, functions)
            swaps = tuple((a, b) for a, b in table.swap)
            recipes[name] = LoopRecipe(location, repeat, table.index, swaps, derived)
        return recipes

    def loop_of(self, stage: ChainedTable | None, key: str) -> str:
        """The loop that a stage is part of; empty for none.

        Raises:
            KernelFileError: there is no such loop.
        """
        if stage is None:
            return _LAUNCH if self._in_launch else ""
        if stage.loop is not None and stage.loop not in self.tables:
            choices = ", ".join(self.tables) or "there is none"
            hint = suggestion(stage.loop, self.tables)
            raise self._at(f"{key} loop").error(
                f"no [loop] is called {stage.loop!r}; choose from {choices}{hint}"
            )
        return stage.loop or ""

    def names_in(self, loop: str) -> list[str]:
        """Return the names that expressions of stages in a loop may use."""
        return [*self._names, *self._own(loop)]

    def predecessors(self, stage: ChainedTable | None) -> tuple[Predecessor, ...]:
        """Return the predecessors of a stage, besides the stages of its own stream."""
        return () if stage is None else tuple(map(Predecessor.parse, stage.after))

    def view(
        self, table: ViewTable, location: Location, arguments: Mapping[str, ArgumentRecipe], loop: str
    ) -> ViewRecipe:
        """A view among the arguments of a stage.

        Raises:
            KernelFileError: there is no such array, or its offset is no expression.
        """
        self._check_buffer(table.buffer, location, [n for n, a in arguments.items() if isinstance(a, str)])
        return ViewRecipe(table.buffer, Formula(location, table.offset, self.names_in(loop)))

    def check_indices(self, arguments: Sequence[ParameterRecipe], location: Location, loop: str) -> None:
        """Refuse values that depend on the step of a loop that the stage is not in.

        Raises:
            KernelFileError: there is one.
        """
        own = self._own(loop)
        for value in (value for argument in arguments for value in values_of(argument)):
            foreign = value.expression.names & set(self.step_names).difference(own)
            if foreign:
                indices = {table.index for table in self.tables.values()}
                which = "numbers the steps of" if foreign <= indices else "belongs to"
                raise location.error(
                    f"{value.location.key} depends on {', '.join(sorted(foreign))}, which {which} a loop that"
                    " this stage is not in"
                )

    def library_stage(
        self, table: LibraryStageTable, key: str, arguments: Mapping[str, ArgumentRecipe]
    ) -> LibraryStageRecipe:
        """A stage that a library runs.

        Raises:
            KernelFileError: an expression is wrong, or there is no such array.
        """
        names = self.names_in(self.loop_of(table, key))
        buffers = [name for name, argument in arguments.items() if isinstance(argument, str)]
        matrices: dict[str, OperandRecipe] = {}
        for name in OPERANDS[table.library]:
            operand: OperandTable | ViewTable = getattr(table, name)
            if isinstance(operand, ViewTable):
                operand = OperandTable(buffer=operand.buffer, offset=operand.offset)
            location = self._at(f"{key} {name}")
            self._check_buffer(operand.buffer, location, buffers)
            matrices[name] = OperandRecipe(
                location,
                operand.buffer,
                Formula(location, operand.offset, names),
                None if operand.ld is None else Formula(location, operand.ld, names),
                Formula(location, operand.transposed, self._names),
            )
        numbers = {name: getattr(table, name) for name in _NUMBERS}
        return LibraryStageRecipe(
            location=self._at(key),
            table=table,
            matrices=matrices,
            numbers={
                name: Formula(self._at(f"{key} {name}"), value, names)
                for name, value in numbers.items()
                if value is not None
            },
            when=None if table.when is None else Formula(self._at(f"{key} when"), table.when, names),
            stream=Formula(self._at(f"{key} stream"), table.stream, self._names),
            after=self.predecessors(table),
        )

    def checked(self, stages: tuple[AnyStageRecipe, ...]) -> tuple[AnyStageRecipe, ...]:
        """The stages, when loops are made of stages that follow each other and all predecessors are known.

        Raises:
            KernelFileError: they are not.
        """
        closed: set[str] = set()
        current = ""
        for number, stage in enumerate(stages):
            if stage.loop != current:
                closed.add(current)
                current = stage.loop
                if current and current in closed:
                    raise self._at(f"{stage.location.key} loop").error(
                        f"the stages of [loop.{current}] do not follow each other"
                    )
            self._check_after(stage, stages[:number], stages)
        for name in self.tables:
            if name not in {stage.loop for stage in stages}:
                raise self.location(name).error('no stage is in this loop; write loop = "..." in [[stage]]')
        return stages

    def _check_after(
        self,
        stage: AnyStageRecipe,
        above: Sequence[AnyStageRecipe],
        stages: Sequence[AnyStageRecipe],
    ) -> None:
        location = self._at(f"{stage.location.key} after")
        for predecessor in stage.after:
            body = {other.name for other in stages if stage.loop and other.loop == stage.loop}
            if predecessor.before and predecessor.name not in body:
                listed = ", ".join(sorted(body)) or "there is none"
                raise location.error(
                    f"{predecessor.name}@-{predecessor.before}: no stage of this loop is called so ({listed})"
                )
            if not predecessor.before and predecessor.name not in {other.name for other in above}:
                later = predecessor.name in body
                hint = f"; {predecessor.name}@-1 is the one of the step before" if later else ""
                listed = ", ".join(dict.fromkeys(other.name for other in above)) or "there is none"
                raise location.error(f"no stage above is called {predecessor.name!r} ({listed}){hint}")

    def _check_buffer(self, name: str, location: Location, buffers: Collection[str]) -> None:
        if name not in buffers:
            raise location.error(
                f"no buffer is called {name!r}; choose from {', '.join(buffers)}{suggestion(name, buffers)}"
            )

    def _own(self, loop: str) -> list[str]:
        """The names of a loop; none without one."""
        return [self.tables[loop].index, *self.tables[loop].derived] if loop else []


_LANGUAGES: dict[str, Language] = {".ptx": "ptx", ".cubin": "cubin", ".py": "triton"}


@dataclass(frozen=True)
class StageReader:
    """Parses the launches of one document.

    Attributes:
        symbols: key of an argument -> variable of the source, and the buffer that fills it.
        options: of the compiler, without those that became include paths of the sources.
    """

    at: Callable[[str], Location]
    document: KernelDocument
    name: str
    tunables: Collection[str]
    sizes: Collection[str]
    names: Sequence[str]
    chains: ChainReader
    sources: SourceFolder | SourceTexts
    symbols: Mapping[str, tuple[str, str]]
    options: Sequence[str]

    def launches(
        self, arguments: Mapping[str, ArgumentRecipe]
    ) -> tuple[tuple[AnyStageRecipe, ...], StageRecipe | None]:
        """The launches of a run, and that of the naive kernel; macros are for names that no run mentions.

        Raises:
            KernelFileError: a key of a launch is wrong, or a source cannot be read.
        """
        stages, names = self._stages(arguments), [*self.tunables, *self.sizes]
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
            location=self.at("[launch]" if own is None else "[reference_launch]"),
            name=entry,
            entry=Template(self.at("[problem] reference_entry"), entry, self.names),
        )
        *launches, reference = with_macros([*stages, naive], names)
        return tuple(launches), reference if isinstance(reference, StageRecipe) else None

    def _stages(self, arguments: Mapping[str, ArgumentRecipe]) -> tuple[AnyStageRecipe, ...]:
        document = self.document
        if document.launch is not None:
            entry = document.kernel.entry
            if not entry:
                naive = document.problem.reference_entry
                apart = [] if naive is None else [naive.partition("<")[0]]
                source, _, _ = self._code(None, "[kernel]")
                if source.language not in ("cuda", "triton") and PurePath(source.path).suffix not in SUFFIXES:
                    raise self.at("[kernel] entry").error(f"is needed, as the source is {source.language}")
                entry = default_entry(source, self.names, apart, self.at("[kernel] entry"))
            return self._with_symbols([self._stage(None, "", document.launch, entry, arguments)])
        tables = {"stage": (document.stage, None)} | {
            f"variant.{name}.stage": (variant.stage, variant.when)
            for name, variant in document.variant.items()
        }
        stages: list[AnyStageRecipe] = []
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

    def _with_symbols(self, stages: Sequence[AnyStageRecipe]) -> tuple[AnyStageRecipe, ...]:
        """The stages with the variables of their sources that buffers are copied to."""
        for key, (symbol, buffer) in self.symbols.items():
            stages = _with_symbol(stages, symbol, buffer, self.at(key))
        return tuple(stages)

    def _when(self, condition: str | None, stage: AnyStageRecipe) -> Formula | None:
        """The condition of a stage that is launched where that of its variant is true, too."""
        if condition is None:
            return stage.when
        text = condition if stage.when is None else f"({condition}) and ({stage.when.expression.text})"
        location = self.at(f"{stage.location.key} when")
        return Formula(location, text, self.chains.names_in(stage.loop))

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

        def formula(field: str, value: TunableValue, *, allowed: Collection[str] = self.names) -> Formula:
            return Formula(self.at(f"{in_launch} {field}"), value, allowed)

        def extent(field: str, value: Any) -> tuple[Formula, ...]:  # noqa: ANN401 - one value or a list
            axes = value if isinstance(value, list) else [value]
            return tuple(formula(field, axis, allowed=stepped) for axis in axes)

        source, files, build = self._code(stage, in_kernel)
        if source.language == "triton":
            check_keys(self.document.kernel, launch, key, self.at)
        triton = self._triton(source, entry, key, stage, arguments)
        one_warp = 32  # the options tell how many
        block = (
            one_warp
            if triton
            else launch.block or default_block(self.tunables, self.at(f"{in_launch} block"))
        )
        registers, shared = self._declared(stage, in_launch)
        return StageRecipe(
            location=self.at(in_launch),
            name=stage.name if stage else self.name,
            source=source,
            files=files,
            build=build,
            entry=Template(self.at(f"{in_kernel} entry"), entry, self.names),
            options=() if triton else self._options(),
            grid=extent("grid", launch.grid),
            block=extent("block", block),
            shared_bytes=formula("shared_bytes", launch.shared_bytes, allowed=stepped),
            arguments=self._parameters(stage, key, arguments, loop, source.language),
            min_architecture=formula("min_architecture", launch.min_architecture),
            resident=formula("resident", launch.resident),
            cluster=formula("cluster", launch.cluster),
            when=formula("when", stage.when, allowed=stepped) if stage and stage.when is not None else None,
            registers=registers,
            static_shared_bytes=shared,
            loop=loop,
            stream=formula("stream", stage.stream if stage else 0),
            after=self.chains.predecessors(stage),
            symbols=(),
            cooperative=formula("cooperative", launch.cooperative),
            setup=bool(stage and stage.setup),
            moved_bytes=None
            if stage is None or stage.moved_bytes is None
            else formula("moved_bytes", stage.moved_bytes, allowed=stepped),
            macros=triton.names if triton else (),
            triton=triton,
        )

    def _triton(
        self,
        source: Source,
        entry: str,
        key: str,
        stage: StageTable | None,
        arguments: Mapping[str, ArgumentRecipe],
    ) -> TritonRecipe | None:
        """The function of a stage of Triton; None of other stages."""
        if source.language != "triton":
            return None
        named = arguments if stage is None or stage.arguments is None else stage.arguments
        options = self.at("[kernel] options")
        return triton_recipe(
            location=self.at(key or "[launch]"),
            entry_location=self.at(f"{key or '[kernel]'} entry"),
            source=source,
            entry=entry,
            options=[
                Template(options, option, self.names)
                for option in self.options
                if not (key and option.startswith("-"))  # of NVRTC, for other stages
            ],
            arguments=[one if isinstance(one, str) else one.buffer for one in named],
            names=self.names,
            tunables=() if key else self.tunables,
        )

    def _options(self) -> tuple[Template, ...]:
        """The options; those without expressions are looked at now, and all with their values."""
        location = self.at("[kernel] options")
        templates = tuple(Template(location, option, self.names) for option in self.options)
        if all(template.is_plain for template in templates):
            try:
                check_options(self.options, self.sources.include_paths)
            except RefusedOptionError as e:
                raise location.error(e) from e
        return templates

    def _parameters(
        self,
        stage: StageTable | None,
        key: str,
        arguments: Mapping[str, ArgumentRecipe],
        loop: str,
        language: str,
    ) -> tuple[ParameterRecipe, ...]:
        location = self.at(f"{key or '[launch]'} arguments")
        if stage is None or stage.arguments is None:
            parameters: tuple[ParameterRecipe, ...] = tuple(arguments.values())
        else:
            for name in stage.arguments:
                if isinstance(name, str) and name not in arguments:
                    raise location.error(self._no_argument(name, arguments))
            parameters = tuple(
                self.chains.view(item, location, arguments, loop)
                if isinstance(item, ViewTable)
                else arguments[item]
                for item in stage.arguments
            )
        self.chains.check_indices(parameters, location, loop)
        absent = [one.name for one in parameters if isinstance(one, ScalarRecipe) and one.dtype.begin == NONE]
        if absent and language != "triton":
            raise location.error(f"{absent[0]} is none, which a parameter of Triton alone can be")
        return parameters

    def _no_argument(self, name: str, arguments: Mapping[str, ArgumentRecipe]) -> str:
        """Return the message for a name that is no argument of a stage."""
        symbol = next((symbol for symbol, buffer in self.symbols.values() if buffer == name), None)
        if symbol is not None:
            return f"{name} has the role constant: it is the variable {symbol} of the source, no parameter"
        choices = ", ".join(arguments)
        return f"no argument is called {name!r}; choose from {choices}{suggestion(name, arguments)}"

    def _declared(self, stage: StageTable | None, key: str) -> tuple[Formula | None, Formula | None]:
        """Registers and static shared bytes: those of the stage, else those of [resources]."""
        formulas: list[Formula | None] = []
        for field in ("registers", "static_shared_bytes"):
            location, value = self.at(f"{key} {field}"), getattr(stage, field, None)
            if value is None:
                location = self.at(f"[resources] {field}")
                value = getattr(self.document.resources, field, None)
            formulas.append(None if value is None else Formula(location, value, self.names))
        return formulas[0], formulas[1]

    def _code(
        self, stage: StageTable | None, key: str
    ) -> tuple[Source, NamedFiles | None, tuple[Template, ...]]:
        """The source of a stage; the files that it may be one of; and the command that makes code of it."""
        kernel = self.document.kernel
        own = stage.source if stage else None
        name = own or kernel.source or ""
        location = self.at(f"{key} source" if own else "[kernel] source")
        suffix = PurePath(name).suffix
        python = len(kernel.build) == 1 and PurePath(kernel.build[0]).name.startswith("python")
        interpreted = python and suffix == ".py"
        language = kernel.language or (
            "ptx" if kernel.build and not interpreted else _LANGUAGES.get(suffix, "cuda")
        )
        if language == "triton":
            return self._of_triton(name, location), None, self._interpreter(name)
        if kernel.build and language not in ("ptx", "cubin"):
            raise self.at("[kernel] build").error(f"makes ptx or a cubin, and language is {language!r}")
        if language == "cuda":
            return self._source(stage, key), None, ()
        if isinstance(self.sources, SourceTexts):
            raise location.error(f"{language} is read from files beside a kernel file, and this is no file")
        if not name:
            raise location.error(f"no file is named here or in [kernel], and language is {language!r}")
        if language == "cubin" and self.options:
            raise self.at("[kernel] options").error("are for compilers, and a cubin is code already")
        if kernel.build:
            command, at = kernel.build[0], self.at("[kernel] build")
            if not Template(at, command, self.names).is_plain or not command:
                raise at.error(f"the program, {command!r}, is named, and is the same for all configurations")
            source = self.sources.built(name, language, command, location)
            words = [word.replace(f"{{{SOURCE}}}", PurePath(name).name) for word in kernel.build]
            names = [*self.names, OUTPUT, ARCHITECTURE]
            return source, None, tuple(Template(at, word, names) for word in words)
        template = Template(location, name, self.names)
        if template.is_plain:
            return self.sources.other(name, language, location), None, ()
        files = NamedFiles.found(template, name, self.sources, language)
        return files.whole, files, ()

    def _of_triton(self, name: str, location: Location) -> Source:
        if not name:
            raise location.error("no Python file is named here or in [kernel]")
        return self.sources.jitted(name, location)

    def _interpreter(self, source: str) -> tuple[Template, ...]:
        """The command of a stage of Triton: none, or the interpreter that has Triton."""
        build = self.document.kernel.build
        location = self.at("[kernel] build")
        if len(build) > 1:
            raise location.error('of Triton it is the interpreter alone, as in [".venv/bin/python"]')
        if not build:
            return ()
        found = found_command(build[0], (self.sources.folder / source).parent)
        if found is None:
            raise location.error(f"{build[0]} is no program")
        return (Template(location, found, ()),)

    def _source(self, stage: StageTable | None, key: str) -> Source:
        own = stage.source if stage else None
        name = own or self.document.kernel.source
        if name is None:
            raise self.at(f"{key} source").error("no CUDA C++ file is named here or in [kernel]")
        location = self.at(f"{key} source" if own else "[kernel] source")
        source = self.sources.source(name, location)
        line = texture_line(source.text)
        if line:
            raise location.error(
                f"{source.path}, line {line}: texture objects are not supported; read the array through a"
                " const __restrict__ pointer or __ldg()"
            )
        return source


def _with_symbol(
    stages: Sequence[AnyStageRecipe], symbol: str, buffer: str, location: Location
) -> list[AnyStageRecipe]:
    """The stages, those whose source declares a variable with the buffer that it is filled from.

    Where no declaration is found, as behind a macro, the sources that name the variable count.

    Raises:
        KernelFileError: no source names it.
    """
    name = symbol.rpartition("::")[2]
    sources = {stage.source.path: stage.source for stage in stages if isinstance(stage, StageRecipe)}
    having = {
        path
        for path, source in sources.items()
        if source.language != "cuda"
        or name in declared_symbols(source)  # else the compiler says what is there
    }
    having = having or {path for path, source in sources.items() if names_word(source, name)}
    if not having:
        variables = dict.fromkeys(
            variable for source in sources.values() for variable in declared_symbols(source)
        )
        paths = ", ".join(sources)
        choice = f"it has {', '.join(variables)}{suggestion(name, variables)}" if variables else "it has none"
        raise location.error(
            f"{paths}: no __constant__ or __device__ variable is called {symbol!r}; {choice}"
        )
    return [
        replace(stage, symbols=(*stage.symbols, (symbol, buffer)))
        if isinstance(stage, StageRecipe) and stage.source.path in having
        else stage
        for stage in stages
    ]
