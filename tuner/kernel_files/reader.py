"""Reading of a kernel file (TOML, schema, names, sources) into a recipe; errors name the key.

Stages call arguments, arrays, values, structs and tensor maps, by their names.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.kernel_files.build_command import ARCHITECTURE, OUTPUT, SOURCE
from tuner.kernel_files.formulas import (
    Formula,
    Location,
    NamedFunctions,
    Template,
    derived_for,
    known_names,
    named,
    parsed,
    signature,
    uncalled,
)
from tuner.kernel_files.input_reader import FileRecipe, InputRecipe, file_sha256, read_file, read_input
from tuner.kernel_files.kernel_document import argument_key, read_document
from tuner.kernel_files.kernel_file import KernelFile, check_in_place, check_rows, constants, row_names
from tuner.kernel_files.measured_answers import MeasuredAnswers, read_measured
from tuner.kernel_files.recipe import Recipe, Rule, SizeCondition, TableValues, WorkRecipe
from tuner.kernel_files.schema import (
    DTYPES,
    MAPPED_DTYPES,
    NONE,
    Argument,
    BufferArgument,
    KernelDocument,
    ProblemTable,
    ScalarArgument,
    SizeRange,
    StructArgument,
    TensorMapArgument,
    WorkTable,
)
from tuner.kernel_files.short_files import SUFFIXES, default_name, line_of, read_pragma_file
from tuner.kernel_files.sizes import SizeValues, count_combinations, is_text, without_optional
from tuner.kernel_files.source_folder import SourceFolder, SourceTexts, split_includes
from tuner.kernel_files.stage_reader import ChainReader, StageReader
from tuner.kernel_files.stage_recipe import (
    ArgumentRecipe,
    BufferRecipe,
    ScalarRecipe,
    StructRecipe,
    TensorMapRecipe,
    known_dtype,
)
from tuner.kernel_files.tunable_reader import TunableReader, declarations
from tuner.model.errors import ExpressionError, InputError, suggestion
from tuner.model.expressions.array_expressions import ArrayExpression
from tuner.model.expressions.callables import Expression, PythonExpression, is_free_name
from tuner.model.plan import BufferRole, ProblemSpec, PythonFunction, Source, TunableValue, Workload
from tuner.space.space import count_configurations

WHEN = "when"  # key of analytical answers that is no tunable

# --- Arguments, by the names that stages call them.

Arguments = dict[str, ArgumentRecipe]
_ZEROS = re.compile(r"\s*constant\(\s*0(\.0*)?\s*\)\s*")


@dataclass(frozen=True)
class ArgumentReader:
    """Parses the arguments of one document.

    Attributes:
        at: makes the location of a key.
        sizes: names that the types of arrays may use.
        names: names that everything else may use.
        folder: paths of data are relative to it.
        step_names: names of loops, which the values of scalars may use, too.
        restores: whether ``inout`` arrays are restored unless the file says otherwise.
    """

    at: Callable[[str], Location]
    sizes: Collection[str]
    names: Collection[str]
    folder: Path
    step_names: Collection[str] = ()
    restores: bool = False

    def read(self, tables: Sequence[Argument]) -> tuple[tuple[BufferRecipe, ...], Arguments]:
        """The arrays, and all that a stage can take by name, in the order of the file.

        Raises:
            KernelFileError: a key is wrong, a name stands twice, or no array is written.
        """
        keys = {f"[[argument]] {number} ({_name(a)})": a for number, a in enumerate(tables, 1)}
        buffers = {a.buffer: self._buffer(key, a) for key, a in keys.items() if isinstance(a, BufferArgument)}
        by_name = {a.buffer: a for a in keys.values() if isinstance(a, BufferArgument)}
        arguments: Arguments = {}
        for key, argument in keys.items():
            name = _name(argument)
            if name in arguments:
                raise self.at(key).error("an argument of this name stands above")
            if isinstance(argument, ScalarArgument):
                stepped = [*self.names, *self.step_names]
                types = (*DTYPES, NONE) if argument.dtype == NONE else DTYPES
                dtype = self._dtype(f"{key} dtype", argument.dtype, types, self.names)
                value = Formula(self.at(f"{key} value"), argument.value, stepped)
                arguments[name] = ScalarRecipe(name, dtype, value)
            elif isinstance(argument, StructArgument):
                arguments[name] = self._struct(key, argument)
            elif isinstance(argument, TensorMapArgument):
                arguments[name] = self._tensor_map(key, argument, buffers)
            else:
                check_in_place(self.at(f"{key} in_place"), argument, by_name)
                arguments[name] = name
        constants = {buffer for _, buffer in self.symbols(tables).values()}
        arguments = {name: argument for name, argument in arguments.items() if name not in constants}
        if not any(buffer.role in ("out", "inout") for buffer in buffers.values()):
            raise self.at("[[argument]]").error('no buffer has role "out" or "inout"; nothing can be checked')
        return tuple(buffers.values()), arguments

    def symbols(self, tables: Sequence[Argument]) -> dict[str, tuple[str, str]]:
        """Of the arrays that are no parameters: key of the argument -> variable of the source, and array."""
        return {
            f"[[argument]] {number} ({_name(a)})": (a.symbol or a.buffer, a.buffer)
            for number, a in enumerate(tables, 1)
            if isinstance(a, BufferArgument) and a.role == "constant"
        }

    def _struct(self, key: str, argument: StructArgument) -> StructRecipe:
        fields = []
        for name, text in argument.fields.items():
            location = self.at(f"{key} fields.{name}")
            dtype, equals, value = (part.strip() for part in text.partition("="))
            if not (equals and value):
                raise location.error(
                    f'{text!r} does not have the form "TYPE = EXPRESSION", as in "int32 = N"'
                )
            template = self._dtype(f"{key} fields.{name}", dtype, DTYPES, self.names)
            fields.append(
                ScalarRecipe(name, template, Formula(location, value, [*self.names, *self.step_names]))
            )
        return StructRecipe(argument.scalar, tuple(fields))

    def _buffer(self, key: str, argument: BufferArgument) -> BufferRecipe:
        shape = tuple(Formula(self.at(f"{key} shape"), axis, self.names) for axis in argument.shape)
        dtype = self._dtype(f"{key} dtype", argument.dtype, DTYPES, self.sizes)
        role: BufferRole = "in" if argument.role == "constant" else argument.role
        if argument.restored is not None and role != "inout":
            raise self.at(f"{key} restored").error(
                f"only an inout array is restored, and this is {argument.role}"
            )
        restored = self.restores if argument.restored is None else argument.restored
        check_rows(self.at(f"{key} row_pitch"), argument, shape, [*self.sizes, "batch"])
        return BufferRecipe(
            *(argument.buffer, role, dtype, shape),
            input=self._input(key, argument, role),
            restored=restored and role == "inout",
            row_pitch=argument.row_pitch,
            in_place=argument.in_place,
            cleared=self._cleared(key, argument, role),
        )

    def _cleared(self, key: str, argument: BufferArgument, role: BufferRole) -> bool:
        """Return True if an output begins with zeros."""
        cleared = (
            role == "out" and argument.input is not None and _ZEROS.fullmatch(argument.input) is not None
        )
        if cleared and (argument.row_pitch or argument.in_place):
            what = (
                "rows may lie apart" if argument.row_pitch else f"memory may be that of {argument.in_place}"
            )
            raise self.at(f"{key} input").error(f"an array whose {what} is not set to zero")
        return cleared

    def _input(self, key: str, argument: BufferArgument, role: BufferRole) -> InputRecipe | None:
        if argument.input is None:
            return None
        location = self.at(f"{key} input")
        if role == "out" and _ZEROS.fullmatch(argument.input):
            return None
        if role not in ("in", "inout"):
            zeros = "; out takes constant(0): zeros before every run" if role == "out" else ""
            raise location.error(
                f"the array has the role {argument.role!r}; only in and inout are given values{zeros}"
            )
        return read_input(location, argument.input, [*self.sizes, "batch"], self.folder)

    def _tensor_map(
        self, key: str, argument: TensorMapArgument, buffers: Mapping[str, BufferRecipe]
    ) -> TensorMapRecipe:
        if argument.buffer not in buffers:
            raise self.at(f"{key} buffer").error(
                f"no buffer is called {argument.buffer!r}; choose from {', '.join(buffers)}"
                f"{suggestion(argument.buffer, buffers)}"
            )

        def pair(field: str, values: Sequence[int | str]) -> tuple[Formula, Formula]:
            inner, outer = (Formula(self.at(f"{key} {field}"), value, self.names) for value in values)
            return inner, outer

        return TensorMapRecipe(
            location=self.at(key),
            buffer=buffers[argument.buffer],
            element=self._dtype(f"{key} element", argument.element, MAPPED_DTYPES, self.names),
            dims=pair("dims", argument.dims),
            box=pair("box", argument.box),
            promotion=Formula(self.at(f"{key} promotion"), argument.promotion, self.names),
        )

    def _dtype(self, key: str, text: str, dtypes: tuple[str, ...], names: Collection[str]) -> Template:
        location = self.at(key)
        template = Template(location, text, names)
        if template.is_plain:
            known_dtype(location, text, dtypes)
        return template


def _name(argument: Argument) -> str:
    if isinstance(argument, ScalarArgument | StructArgument):
        return argument.scalar
    return argument.tensor_map if isinstance(argument, TensorMapArgument) else argument.buffer


# --- The recipe of a kernel file.


def configuration_counts(kernel: KernelFile, workloads: Sequence[Workload]) -> list[int]:
    """The lengths of the spaces of workloads, counted together; no space is made.

    Returns:
        A count for each; 0 where the rules allow nothing.

    Raises:
        InputError: a rule has no result, the rules allow nothing at all, or too much is left.
    """
    recipe = kernel.recipe
    return count_configurations(
        recipe.tunables,
        [rule.expression for rule in recipe.rules],
        [constants(recipe, workload) for workload in workloads],
        {name: formula.expression for name, formula in recipe.derived.items()},
        {name: condition.condition for name, condition in recipe.conditions.items()},
    )


ReferenceFiles = dict[tuple[str, str], FileRecipe]


def read_problem(
    at: Callable[[str], Location],
    problem: ProblemTable,
    buffers: Sequence[BufferRecipe],
    fixed: Collection[str],
    folder: Path,
    *,
    scalars: Sequence[ScalarArgument],
) -> tuple[ProblemSpec, ReferenceFiles]:
    """The problem, and the files of data that its expressions name; what is right may use ``scalars``.

    Raises:
        KernelFileError: an output has no expression, a name is unknown, or a file cannot be used.
    """
    files: ReferenceFiles = {}
    written = [b.name for b in buffers if b.role in ("out", "inout")]
    read = [b.name for b in buffers if b.role in ("in", "inout")]
    scalars = [one for one in scalars if one.scalar not in {*read, *fixed}]
    values = {one.scalar: one.value for one in scalars}
    reference = {name: _written_out(text, values) for name, text in problem.reference.items()}
    for name, text in reference.items():
        location = at(f"[problem.reference] {name}")
        if name not in written:
            raise location.error(f"no output buffer is called so; choose from {', '.join(written)}")
        files |= {
            file: read_file(location, *file, folder) for file in _check_names(location, text, [*read, *fixed])
        }
    missing = [name for name in written if name not in problem.reference]
    if problem.reference and missing:
        raise at("[problem.reference]").error(f"an expression is missing for {', '.join(missing)}")
    spec = ProblemSpec(
        problem.kind,
        problem.tolerance,
        tuple(reference.items()),
        function=_function(at, problem, folder),
        entry=problem.reference_entry or "",
        scalars=tuple(
            (one.scalar, str(one.value))
            for one in scalars
            if problem.kind in ("function", "law") and {*Expression(str(one.value)).names} <= {*fixed}
        ),
    )
    return spec, files


_NAME_OR_TEXT = re.compile(r"""("[^"]*"|'[^']*')|(?<![\w.])[A-Za-z_]\w*\b(?!\s*\()""")


def _written_out(text: str, values: Mapping[str, int | float | str | None]) -> str:
    """An expression with the values of arguments in place of their names, but not in quotes."""
    return _NAME_OR_TEXT.sub(lambda match: f"({values[match[0]]})" if match[0] in values else match[0], text)


def _check_names(location: Location, text: str, known: Collection[str]) -> tuple[tuple[str, str], ...]:
    """The files of an expression, which is one over elements or over whole arrays."""
    expression: Expression | ArrayExpression
    try:
        try:
            expression = Expression(text)
        except ExpressionError:
            expression = ArrayExpression(text)
    except ExpressionError as e:
        words = [name for name in known if not is_free_name(name) and re.search(rf"\b{name}\b", text)]
        hint = f"; {words[0]!r} cannot stand in one: call the argument {words[0]}_" if words else ""
        raise location.error(f"{e}{hint}") from e
    known_names(location, text, expression.names, known)
    return expression.files if isinstance(expression, ArrayExpression) else ()


def _function(at: Callable[[str], Location], problem: ProblemTable, folder: Path) -> PythonFunction | None:
    key = "law" if problem.law else "reference_function"
    text = problem.law or problem.reference_function
    if text is None:
        return None
    file, _, name = text.rpartition(":")
    path = (folder / file).absolute()
    try:
        return PythonFunction(str(path), name, file_sha256(path), problem.reference_arrays)
    except InputError as e:
        raise at(f"[problem] {key}").error(e) from e


MAX_WORKLOADS = 10_000  # commands list them all


def read_sizes(problem: ProblemTable, at: Callable[[str], Location]) -> dict[str, SizeValues]:
    """The values that workloads may take, by the names of the sizes.

    Raises:
        KernelFileError: a value stands twice or cannot be named, there are too many combinations, or what is
            optional is no size.
    """
    sizes: dict[str, SizeValues] = {
        name: range(table.first, table.last + 1) if isinstance(table, SizeRange) else tuple(table)
        for name, table in problem.sizes.items()
    }
    _check_sizes(sizes, problem.optional, at)
    return sizes


def _check_sizes(
    sizes: Mapping[str, SizeValues], optional: Sequence[str], at: Callable[[str], Location]
) -> None:
    for name, values in sizes.items():
        if isinstance(values, range):
            continue  # as long as it may be
        if len(set(map(str, values))) < len(values):
            raise at(f"[problem.sizes] {name}").error("a value stands twice")
        unnamed = next((value for value in values if isinstance(value, str) and not is_text(value)), None)
        if unnamed is not None:
            raise at(f"[problem.sizes] {name}").error(
                f"no workload can name {unnamed!r}: a text is not empty, is printable, has no spaces"
                " around it, and neither ',' nor '='"
            )
    for name in optional:
        location = at("[problem] optional")
        if optional.count(name) > 1:
            raise location.error(f"{name} stands twice")
        if name not in sizes:
            choices = ", ".join(sizes) or "there is none"
            raise location.error(f"no size is called {name!r}; choose from {choices}")
    combinations = count_combinations(without_optional(sizes, optional))
    if combinations > MAX_WORKLOADS:
        raise at("[problem.sizes]").error(
            f"{combinations} combinations of sizes, at most {MAX_WORKLOADS} are allowed"
        )


_SCALES = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def read_recipe(path: Path) -> Recipe:
    """The recipe of a kernel file.

    Raises:
        KernelFileError: the file, its sources or its headers cannot be read, or a key is wrong.
    """
    if path.suffix not in SUFFIXES:
        return _Reader(path, read_document(path)).recipe()
    expansion, document = read_pragma_file(path)
    return _Reader(path, document, texts={path.name: expansion.text}, lines=expansion.lines).recipe()


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

    ``functions`` are further derived names, and ``restrictions`` further rules. ``texts`` are sources that
    are not read from their files, and ``lines`` those of the pragmas that state the keys.
    """

    def __init__(
        self,
        path: Path,
        document: KernelDocument,
        sources: SourceTexts | None = None,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        restrictions: Sequence[Callable[..., Any]] = (),
        *,
        texts: Mapping[str, str] | None = None,
        lines: Mapping[str, int] | None = None,
    ) -> None:
        self.path = path
        self.lines = lines or {}
        self.document = document
        self.functions = functions or {}
        self.restrictions = restrictions
        self.declared = declarations(document, self.at)
        self.sizes = read_sizes(document.problem, self.at)
        self.fixed = [*self.sizes, "batch"]
        self.row_names = row_names(document.argument)
        self.called = NamedFunctions()
        derived = [name for name in document.derived if not signature(name)[1]]
        self.names = [*self.fixed, *self.declared, *derived, *self.functions, *self.row_names]
        self.name = document.kernel.name or default_name(path, self.at("[kernel] name"))
        self.chains = ChainReader(self.at, document, self.names)
        self._check_names()
        self.sources = sources or SourceFolder(
            path.parent, document.kernel.headers, self.at("[kernel] headers"), texts
        )
        folders, self.options = split_includes(document.kernel.options, None if sources else path.parent)
        self.sources.include([*document.kernel.include_paths, *folders], self.at("[kernel] include_paths"))
        self.sources.system_headers = document.kernel.system_headers

    def at(self, key: str) -> Location:
        key = argument_key(key) if self.document.arguments else key
        line = line_of(key, self.lines)
        return Location(str(self.path) if line is None else f"{self.path}, line {line}", key)

    def recipe(self) -> Recipe:
        document = self.document
        derived = self._derived()
        tunables = TunableReader(self.at, self.declared, self.fixed, derived)
        reader = ArgumentReader(
            self.at,
            list(self.sizes),
            self.names,
            self.sources.folder,
            self.chains.step_names,
            restores=bool(self.chains.tables),
        )
        buffers, arguments = reader.read(document.argument)
        scalars = [one for one in document.argument if isinstance(one, ScalarArgument)]
        problem, files = read_problem(
            self.at, document.problem, buffers, self.fixed, self.sources.folder, scalars=scalars
        )
        stages, reference = StageReader(
            at=self.at,
            document=document,
            name=self.name,
            tunables=self.declared,
            sizes=self.sizes,
            names=self.names,
            chains=self.chains,
            sources=self.sources,
            symbols=reader.symbols(document.argument),
            options=self.options,
        ).launches(arguments)
        loops = self.chains.loops([buffer.name for buffer in buffers], self.called)
        return Recipe(
            location=self.at("[kernel]"),
            name=self.name,
            description=document.kernel.description,
            family=document.kernel.family,
            sizes=self.sizes,
            optional=tuple(document.problem.optional),
            batch=Formula(self.at("[problem] batch"), document.problem.batch, list(self.sizes)),
            tunables={name: declaration.values for name, declaration in self.declared.items()},
            conditions=tunables.conditions,
            derived=derived,
            roles=tunables.roles(document.roles.model_dump(exclude_none=True)),
            rules=self._rules(),
            spills=document.constraints.spills,
            default=tunables.assigned(document.default, "[default]"),
            stated=self._stated(tunables),
            stated_when=self._stated_when(derived),
            measured=self._measured(derived),
            buffers=buffers,
            stages=self.chains.checked(stages),
            loops=loops,
            problem=problem,
            work=None if document.work is None else self._work(document.work),
            min_occupancy=None if document.occupancy is None else document.occupancy.min,
            analytical=document.kernel.analytical is not False,
            extends=tuple(document.kernel.extends),
            leaves=self._size_condition("[kernel] leaves", document.kernel.leaves, derived),
            reference=reference,
            reference_files=files,
            uncalled=uncalled(self.called, [derived, *(loop.derived for loop in loops.values())]),
        )

    @property
    def _analytical(self) -> dict[str, Mapping[str, TunableValue]]:
        """The tables of analytical answers, as the file names them."""
        analytical, tables = self.document.analytical, dict[str, Mapping[str, TunableValue]]()
        if isinstance(analytical, list):
            tables |= {f"[[analytical]] #{number}": values for number, values in enumerate(analytical, 1)}
        elif analytical:
            tables["[analytical]"] = analytical
        if self.document.kernel.analytical == "default":
            tables["[default]"] = self.document.default
        return tables

    def _stated(self, tunables: TunableReader) -> dict[str, TableValues]:
        found: dict[str, TableValues] = {}
        for table, values in self._analytical.items():
            given = {name: value for name, value in values.items() if name != WHEN or name in self.declared}
            if not given:
                raise self.at(table).error("gives no tunable a value")
            found[table] = tunables.assigned(self._with_default(given), table)
        return found

    def _with_default(self, given: Mapping[str, TunableValue]) -> dict[str, TunableValue]:
        """An answer with the values of [default] that it leaves out, each below what stands above it there.

        Only what the answer computes otherwise than [default] stays where the answer has it.
        """
        default, entries = self.document.default, dict[str, TunableValue]()
        order = [*default]

        def put(name: str) -> None:
            for other in order[: order.index(name)] if name in default else []:
                if other not in entries and (other not in given or self._is_literal(other, given[other])):
                    put(other)
            entries[name] = given[name] if name in given else default[name]

        for name in [*given, *default]:
            if name not in entries:
                put(name)
        return entries

    def _is_literal(self, tunable: str, value: TunableValue) -> bool:
        return not isinstance(value, str) or (
            tunable in self.declared and value in self.declared[tunable].values
        )

    def _stated_when(self, derived: Mapping[str, Formula]) -> dict[str, SizeCondition]:
        tables = {} if WHEN in self.declared else self._analytical
        conditions = {
            table: self._size_condition(f"{table} {WHEN}", values.get(WHEN), derived)
            for table, values in tables.items()
        }
        return {table: condition for table, condition in conditions.items() if condition is not None}

    def _size_condition(
        self, key: str, text: TunableValue | None, derived: Mapping[str, Formula]
    ) -> SizeCondition | None:
        if text is None:
            return None
        formula = Formula(self.at(key), text, [*self.fixed, *derived])
        return formula, derived_for(formula.expression.names, derived)

    def _measured(self, derived: Mapping[str, Formula]) -> MeasuredAnswers | None:
        table = self.document.measured
        if table is None:
            return None
        if isinstance(self.sources, SourceTexts):
            raise self.at("[measured]").error("names a file beside a kernel file, and this kernel is no file")
        return read_measured(
            self.at,
            table,
            self.path.parent,
            sizes=self.sizes,
            tunables={name: declaration.values for name, declaration in self.declared.items()},
            fixed=self.fixed,
            derived=derived,
        )

    def _check_names(self) -> None:
        owners = {"batch": "the batch"}
        if self.document.kernel.build:
            owners |= dict.fromkeys((OUTPUT, ARCHITECTURE, SOURCE), "words of [kernel] build")
        tables: dict[str, Iterable[str]] = {
            "problem.sizes": self.sizes,
            **{declaration.table: [] for declaration in self.declared.values()},
            "derived": [signature(key)[0] for key in self.document.derived],
            "argument": self.row_names,
        }
        for name, declaration in self.declared.items():
            tables[declaration.table] = [*tables[declaration.table], name]
        for table, names in tables.items():
            for name in names:
                self._take(self.at(f"[{table}] {name}"), name, f"[{table}]", owners)
        for key in self.document.derived:
            own = dict(owners)
            for name in signature(key)[1]:
                self._take(self.at(f"[derived] {key}, {name}"), name, key, own)
        for loop, loop_table in self.chains.tables.items():
            own, table = dict(owners), self.chains.location(loop).key
            self._take(self.at(f"{table} index"), loop_table.index, f"the index of {table}", own)
            for name in loop_table.derived:
                self._take(self.at(f"{table[:-1]}.derived] {name}"), name, table, own)

    def _take(self, location: Location, name: str, owner: str, owners: dict[str, str]) -> None:
        if not is_free_name(name):
            raise location.error("this name is a word of the expression language; choose another")
        if name in owners:
            raise location.error(f"the name is taken by {owners[name]}; choose another")
        owners[name] = owner

    def _derived(self) -> dict[str, Formula]:
        allowed = [*self.fixed, *self.declared]
        derived = named(self.at, "[derived]", self.document.derived, allowed, self.called)
        allowed += derived
        for name, function in self.functions.items():
            derived[name] = Formula(self.at(name), PythonExpression(function, allowed, name), allowed)
        return derived

    def _rules(self) -> tuple[Rule, ...]:
        """Those of [constraints], then those of variants, each under its condition."""
        rules = [
            Rule(parsed(self.at(f"[constraints] rules, item {i}"), text, self.names), text)
            for i, text in enumerate(self.document.constraints.rules, 1)
        ]
        allowed = [name for name in self.names if name not in self.functions]
        for i, function in enumerate(self.restrictions):
            label = f"restrictions[{i}]"
            rules.append(Rule(PythonExpression(function, allowed, label), label))
        for name, variant in self.document.variant.items():
            parsed(self.at(f"[variant.{name}] when"), variant.when, self.names)
            for i, text in enumerate(variant.rules, 1):
                location = self.at(f"[variant.{name}] rules, item {i}")
                parsed(location, text, self.names)
                guarded = parsed(location, f"not ({variant.when}) or ({text})", self.names)
                rules.append(Rule(guarded, text, variant.when))
        return tuple(rules)

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
