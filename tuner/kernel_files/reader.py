"""Reads a kernel file (TOML, schema, names, sources) into a recipe; errors name the key."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.config.argument_schema import ScalarArgument
from tuner.config.chain_reader import ChainReader
from tuner.config.pragma_file import SUFFIXES, line_of, read_pragma_file
from tuner.config.problem_reader import read_problem
from tuner.config.recipe import Recipe, Rule, StatedAnswer, WorkRecipe
from tuner.config.row_names import row_names
from tuner.config.size_reader import read_sizes
from tuner.expressions.callables import PythonExpression
from tuner.expressions.expression import is_free_name
from tuner.kernel_files.argument_reader import ArgumentReader
from tuner.kernel_files.document import argument_key, read_document
from tuner.kernel_files.formulas import Formula, Place, named, parsed
from tuner.kernel_files.measured_answers import MeasuredAnswers, read_measured
from tuner.kernel_files.schema import KernelDocument, WorkTable
from tuner.kernel_files.short_files import default_name
from tuner.kernel_files.source_folder import SourceFolder, SourceTexts, split_includes
from tuner.kernel_files.stage_reader import StageReader
from tuner.kernel_files.tunable_reader import TunableReader, declarations
from tuner.model.plan import Source

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
        self.names = [*self.fixed, *self.declared, *document.derived, *self.functions, *self.row_names]
        self.name = document.kernel.name or default_name(path, self.at("[kernel] name"))
        self.chains = ChainReader(self.at, document, self.names)
        self._check_names()
        self.sources = sources or SourceFolder(
            path.parent, document.kernel.headers, self.at("[kernel] headers"), texts
        )
        folders, self.options = split_includes(document.kernel.options, None if sources else path.parent)
        self.sources.include([*document.kernel.include_paths, *folders], self.at("[kernel] include_paths"))

    def at(self, key: str) -> Place:
        key = argument_key(key) if self.document.arguments else key
        line = line_of(key, self.lines)
        return Place(str(self.path) if line is None else f"{self.path}, line {line}", key)

    def recipe(self) -> Recipe:
        document = self.document
        derived = self._derived()
        tunables = TunableReader(self.at, self.declared, self.fixed, derived)
        reader = self._argument_reader()
        buffers, arguments = reader.read(document.argument)
        values = {one.scalar: one.value for one in document.argument if isinstance(one, ScalarArgument)}
        problem, files = read_problem(
            self.at, document.problem, buffers, self.fixed, self.sources.folder, values=values
        )
        stages, reference = self._stage_reader(reader.symbols(document.argument)).launches(arguments)
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
            default=tunables.assigned(document.default, "[default]"),
            stated=self._stated(tunables),
            measured=self._measured(derived),
            buffers=buffers,
            stages=self.chains.checked(stages),
            loops=self.chains.loops([buffer.name for buffer in buffers]),
            problem=problem,
            work=None if document.work is None else self._work(document.work),
            min_occupancy=None if document.occupancy is None else document.occupancy.min,
            analytical=document.kernel.analytical is not False,
            extends=tuple(document.kernel.extends),
            reference=reference,
            reference_files=files,
        )

    def _stated(self, tunables: TunableReader) -> tuple[StatedAnswer, ...]:
        given = self.document.analytical
        tables = {"[analytical]": given} if isinstance(given, Mapping) and given else {}
        if self.document.kernel.analytical == "default":
            tables = {"[default]": self.document.default}
        elif isinstance(given, list):
            tables = {f"[[analytical]] #{number}": one for number, one in enumerate(given, 1)}
        for table, one in tables.items():
            if not one:
                raise self.at(table).error("holds nothing: give every tunable a value")
        return tuple(StatedAnswer(table, tunables.assigned(one, table)) for table, one in tables.items())

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
            tunables={name: one.values for name, one in self.declared.items()},
            fixed=self.fixed,
            derived=derived,
        )

    def _argument_reader(self) -> ArgumentReader:
        return ArgumentReader(
            self.at,
            list(self.sizes),
            self.names,
            self.sources.folder,
            self.chains.step_names,
            restores=bool(self.chains.tables),
        )

    def _stage_reader(self, symbols: Mapping[str, tuple[str, str]]) -> StageReader:
        return StageReader(
            at=self.at,
            document=self.document,
            name=self.name,
            tunables=self.declared,
            sizes=self.sizes,
            names=self.names,
            chains=self.chains,
            sources=self.sources,
            symbols=symbols,
            options=self.options,
        )

    def _check_names(self) -> None:
        taken = {"batch": "the batch"}
        tables: dict[str, Iterable[str]] = {
            "problem.sizes": self.sizes,
            **{one.table: [] for one in self.declared.values()},
            "derived": self.document.derived,
            "argument": self.row_names,
        }
        for name, one in self.declared.items():
            tables[one.table] = [*tables[one.table], name]
        for table, names in tables.items():
            for name in names:
                self._take(self.at(f"[{table}] {name}"), name, f"[{table}]", taken)
        for loop, its in self.chains.tables.items():
            own, table = dict(taken), self.chains.place(loop).key
            self._take(self.at(f"{table} index"), its.index, f"the index of {table}", own)
            for name in its.derived:
                self._take(self.at(f"{table[:-1]}.derived] {name}"), name, table, own)

    def _take(self, place: Place, name: str, owner: str, taken: dict[str, str]) -> None:
        if not is_free_name(name):
            raise place.error("this name is a word of the expression language; choose another")
        if name in taken:
            raise place.error(f"the name is taken by {taken[name]}; choose another")
        taken[name] = owner

    def _derived(self) -> dict[str, Formula]:
        known = [*self.fixed, *self.declared]
        derived = named(self.at, "[derived]", self.document.derived, known)
        known += derived
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
