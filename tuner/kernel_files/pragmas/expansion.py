"""Expansion of a source with tuning pragmas to a kernel file and a source without them."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tuner.kernel_files.cuda_source.signatures import Parameter, parameters_of
from tuner.kernel_files.pragmas.directives import (
    OWN,
    Directive,
    PragmaSource,
    Value,
    clauses,
    one_value,
    read_pragmas,
    split_list,
    what_to_write,
)
from tuner.kernel_files.pragmas.loops import tiled_loops, unrolled_loop
from tuner.kernel_files.pragmas.syntax import (
    STATEMENT_KEYWORDS,
    LaunchStatement,
    OverlapError,
    Statements,
    SyntaxTree,
    edited,
    kernel_below,
    merge,
    read_statements,
    scalar_text,
)
from tuner.kernel_files.pragmas.tunables import ALTERNATIVE_KEYWORDS as OF_ALTERNATIVES
from tuner.kernel_files.pragmas.tunables import TUNABLE_KEYWORDS as OF_TUNABLES
from tuner.kernel_files.pragmas.tunables import (
    PragmaTunable,
    Selection,
    alternative,
    declared_tunable,
    instead_of,
    read_selections,
)
from tuner.model.errors import InputError, suggestion
from tuner.system.untrusted.reading import TomlTable, TomlValue

# --- Kernel Launcher's pragmas, ``#pragma kernel tune(...) block_size(...) ...``, as the same statements.
#
# A clause means what it means there: ``tune`` a tunable whose first value is the default, ``set`` a derived
# name, ``problem_size`` over ``grid_divisor`` (else the block) the grid. Its sizes are parameters of the
# kernel: each is a size of the same name, of any value.

_LARGEST = 2**31 - 1
_KEYS = (
    *("tune", "set", "problem_size", "block_size", "grid_size", "grid_divisor", "buffers", "buffer"),
    *("tuning_key", "restriction", "restrictions", "default"),
)
_FUNCTIONS = (("div_ceil(", "ceil_div("), ("&&", " and "), ("||", " or "))
_BUFFER = re.compile(r"([A-Za-z_]\w*)\s*\[(.+)\]", re.DOTALL)
_EQUATION = re.compile(r"([A-Za-z_]\w*)\s*=(?!=)\s*(.*)", re.DOTALL)


def read_kernel_launcher(source: PragmaSource, statements: Statements, tunables: list[PragmaTunable]) -> None:
    """Add what Kernel Launcher's pragmas of a source say, if it has any.

    Raises:
        KernelFileError: a clause is unknown or has another form.
    """
    directives = [directive for directive in source.directives if directive.family == "kernel"]
    if not directives:
        return
    stated: dict[str, list[str]] = {}
    last = directives[0]
    try:
        for last in directives:
            _read(last, stated, statements, tunables)
        function = kernel_below(source, last)
        _add_launch(last, LaunchStatement(last, function, {}), stated, statements)
    except ValueError as e:
        raise source.error(last, e) from e


def _read(
    directive: Directive,
    stated: dict[str, list[str]],
    statements: Statements,
    tunables: list[PragmaTunable],
) -> None:
    for key, inside in clauses(directive.text):
        if key not in _KEYS:
            raise ValueError(f"unknown clause {key}; known here: {', '.join(_KEYS)}")
        if key == "tune":
            tunables.append(_tunable(directive, inside))
        elif key == "default":
            if not tunables:
                raise ValueError("default(...) follows no tune(...)")
            tunable, value = tunables.pop(), one_value(inside)
            if value not in tunable.values:
                raise ValueError(f"{inside} is none of the values of {tunable.name}")
            tunables.append(replace(tunable, default=value))
        elif key == "set":
            match = _EQUATION.fullmatch(inside)
            if match is None:
                raise ValueError("write set(NAME = EXPRESSION)")
            statements.derived[match[1]] = _expression(match[2])
        elif key in ("restriction", "restrictions"):
            statements.rules += [_expression(condition) for condition in split_list(inside)]
        else:
            stated.setdefault(key.replace("buffers", "buffer"), []).extend(
                map(_expression, split_list(inside))
            )


def _tunable(directive: Directive, inside: str) -> PragmaTunable:
    match = _EQUATION.fullmatch(inside)
    if match is None:
        raise ValueError("write tune(NAME = VALUE, VALUE)")
    values: list[Value | str] = []
    for part in split_list(match[2]):
        quoted = len(part) > 1 and part[0] == part[-1] == '"'
        values.append(part[1:-1] if quoted else one_value(part))
    if not values:
        raise ValueError(f"{match[1]} has no values")
    return PragmaTunable(directive, match[1], tuple(values), values[0], edits=())


def _expression(text: str) -> str:
    for theirs, ours in _FUNCTIONS:
        text = text.replace(theirs, ours)
    return re.sub(r"!(?!=)", "not ", text).strip()


def _add_launch(
    directive: Directive, launch: LaunchStatement, stated: dict[str, list[str]], statements: Statements
) -> None:
    if "problem_size" not in stated and "grid_size" not in stated:
        raise ValueError("has neither problem_size(...) nor grid_size(...)")
    if "block_size" not in stated:
        raise ValueError("has no block_size(...)")
    block = stated["block_size"]
    divisors = stated.get("grid_divisor", block)
    extents = stated.get("problem_size", [])
    padded = [*divisors, *["1"] * (len(extents) - len(divisors))]
    grid = stated.get("grid_size") or [
        f"ceil_div({extent}, {divisor})" for extent, divisor in zip(extents, padded, strict=False)
    ]
    launch.keys["grid"] = grid if len(grid) > 1 else grid[0]
    launch.keys["block"] = block if len(block) > 1 else block[0]
    statements.launches.append(launch)
    used = set(re.findall(r"[A-Za-z_]\w*", " ".join([*extents, *grid, *stated.get("buffer", [])])))
    for parameter in launch.function.parameters:
        if not parameter.pointer and parameter.name in used:
            statements.sizes.setdefault(parameter.name, {"from": 1, "to": _LARGEST})
    roles = {
        parameter.name: "in" if parameter.const else "inout"
        for parameter in launch.function.parameters
        if parameter.pointer
    }
    for text in stated.get("buffer", []):
        match = _BUFFER.fullmatch(text)
        if match is None or match[1] not in roles:
            raise ValueError(f"{text!r} is no array of the kernel with its length, as A[n]")
        statements.arguments.setdefault(match[1], f"{roles[match[1]]} [{match[2]}]")
        statements.lines[f"[arguments] {match[1]}"] = directive.line


# --- The expansion: a kernel file, and a source without pragmas.

_ALL = (*OF_TUNABLES, *OF_ALTERNATIVES, "unroll", "tile", *STATEMENT_KEYWORDS)


@dataclass(frozen=True)
class Expansion:
    """Kernel file and plain source that a source with tuning pragmas expands to.

    Attributes:
        document: the kernel file, as tables and lists; ``kernel.source`` is the name of the source.
        text: the source without the pragmas, its tunables as macros; lines keep their numbers by ``#line``.
        lines: key of the kernel file -> line of the pragma that states it.
        notes: what was assumed, in words.
    """

    document: TomlTable
    text: str
    lines: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def expansion(path: Path, text: str) -> Expansion:
    """Expand a source with tuning pragmas; messages begin with its path.

    Raises:
        KernelFileError: a pragma is unknown, in the wrong place, contradicts another, or cannot be
            carried out; the message names line and column.
    """
    source = read_pragmas(path, text)
    _check_keywords(source)
    tree = SyntaxTree(source)
    selections = read_selections(source)
    statements = read_statements(source)
    tunables = _tunables(tree, selections, statements)
    read_kernel_launcher(source, statements, tunables)
    tunables.sort(key=lambda tunable: tunable.directive.start)
    _check_names(source, tunables, statements)
    edits = [edit for tunable in tunables for edit in tunable.edits]
    changed = {(edit.start, edit.end) for edit in edits}  # insertions may begin there, too
    edits += [
        instead_of(source, directive)
        for directive in source.directives
        if (directive.start, directive.end) not in changed
    ]
    try:
        transformed = edited(source.text, edits)
    except OverlapError as e:
        raise source.error(e.place, e) from e
    return _Writer(tree, selections, statements, tunables).expansion(transformed)


def _check_keywords(source: PragmaSource) -> None:
    for directive in source.directives:
        if directive.family == OWN and directive.keyword not in _ALL:
            word = directive.keyword or directive.text.split(" ")[0]
            raise source.error(
                directive, f"unknown pragma{suggestion(word, _ALL)}; known are {', '.join(_ALL)}"
            )
    if not source.directives:
        raise source.error(0, "the source has no #pragma tuner; docs/pragmas.md tells them")


def _tunables(
    tree: SyntaxTree, selections: Sequence[Selection], statements: Statements
) -> list[PragmaTunable]:
    """All tunables, with the conditions of the alternatives that they stand in."""
    tunables = [alternative(tree, selection) for selection in selections]
    source = tree.source
    nest: list[Directive] = []  # tiles above the same loop
    for index, directive in enumerate(source.directives):
        if directive.family != OWN:
            continue
        if directive.keyword in OF_TUNABLES:
            tunables.append(declared_tunable(tree, directive))
        elif directive.keyword == "unroll":
            tunables.append(unrolled_loop(tree, directive))
        elif directive.keyword == "tile":
            nest.append(directive)
            below = source.directives[index + 1 :][:1]
            if not below or below[0].keyword != "tile" or source.code[directive.end : below[0].start].strip():
                tunables += tiled_loops(tree, nest, statements.sizes)
                nest = []
    return [tunable.under(_condition(selections, tunable.directive.start)) for tunable in tunables]


def _condition(selections: Sequence[Selection], byte: int) -> str:
    conditions = [text for selection in selections if (text := selection.condition(byte))]
    return " and ".join(conditions)


def _check_names(source: PragmaSource, tunables: Sequence[PragmaTunable], statements: Statements) -> None:
    seen: dict[str, int] = {}
    for tunable in tunables:
        if tunable.name in seen:
            raise source.error(
                tunable.directive, f"{tunable.name} is a tunable already, in line {seen[tunable.name]}"
            )
        if tunable.name in statements.sizes or tunable.name in statements.derived:
            raise source.error(tunable.directive, f"{tunable.name} is a size or a derived name already")
        seen[tunable.name] = tunable.directive.line


class _Writer:
    """Writes the kernel file that a source means."""

    def __init__(
        self,
        tree: SyntaxTree,
        selections: Sequence[Selection],
        statements: Statements,
        tunables: Sequence[PragmaTunable],
    ) -> None:
        self._tree = tree
        self._source = tree.source
        self._selections = selections
        self._statements = statements
        self._tunables = tunables
        self._notes: list[str] = []
        table = statements.other.get("arguments")
        self._other_arguments = table if isinstance(table, Mapping) else {}  # of ``toml`` pragmas
        self._blank = tree.source.blank.decode(errors="replace")

    def expansion(self, text: str) -> Expansion:
        statements = self._statements
        tunables = self._tunables
        kernel: TomlTable = {"source": self._source.path.name}
        if options := [tunable.option for tunable in tunables if tunable.option]:
            kernel["options"] = options
        sizes: TomlTable = {"sizes": statements.sizes} if statements.sizes else {}
        document: TomlTable = {"kernel": kernel, "problem": sizes | statements.problem, "arguments": {}}
        document["tunables"] = {tunable.name: tunable.table() for tunable in tunables}
        document |= {"derived": statements.derived} if statements.derived else {}
        document |= {"constraints": {"rules": statements.rules}} if statements.rules else {}
        document["default"] = {tunable.name: tunable.default for tunable in tunables}
        document |= self._launches(kernel)
        arguments = document["arguments"] = self._arguments()
        lines = {f"[tunables] {tunable.name}": tunable.directive.line for tunable in tunables}
        lines |= {f"[tunables.{tunable.name}]": tunable.directive.line for tunable in tunables}
        other = dict(statements.other)
        if self._other_arguments:  # without those that the document has because of them
            other["arguments"] = {
                name: text
                for name, text in self._other_arguments.items()
                if name in statements.arguments or name not in arguments
            }
        try:
            merge(document, _without_options(document, other))
        except ValueError as e:
            pragmas = [directive for directive in self._source.directives if directive.keyword == "toml"]
            key = str(e).split(" ")[0].rpartition(".")[2]
            wrong = next((directive for directive in pragmas if key in directive.text), pragmas[0])
            raise self._source.error(wrong, e) from e
        document = {key: value for key, value in document.items() if value or key == "problem"}
        return Expansion(document, text, statements.lines | lines, tuple(dict.fromkeys(self._notes)))

    def _launches(self, kernel: TomlTable) -> TomlTable:
        """``[launch]``, whose entry is stated in ``[kernel]``, or ``[[stage]]`` tables."""
        launches = self._statements.launches
        if not launches:
            raise self._source.error(
                self._source.directives[0],
                "no #pragma tuner launch grid(...) stands above a __global__ function",
            )
        conditions = [_condition(self._selections, launch.directive.start) for launch in launches]
        if len(launches) == 1 and not conditions[0] and not {"when", "setup", "name"} & set(launches[0].keys):
            kernel["entry"] = self._entry(launches[0])
            return {"launch": launches[0].keys}
        stages: list[TomlTable] = []
        for launch, condition in zip(launches, conditions, strict=True):
            if {"repeat", "index"} & set(launch.keys):
                raise self._source.error(
                    launch.directive,
                    "repeat(...) is for a single launch; loops of several stand in a kernel.toml",
                )
            when = launch.keys.get("when", "")
            parts = [f"({part})" if when and condition else part for part in (when, condition) if part]
            stage: TomlTable = {"name": launch.function.name, "entry": self._entry(launch)}
            stage |= {key: value for key, value in launch.keys.items() if key != "when"}
            stage |= {"when": " and ".join(map(str, parts))} if parts else {}
            stages.append(stage | {"arguments": [parameter.name for parameter in launch.function.parameters]})
        return {"stage": stages}

    def _entry(self, launch: LaunchStatement) -> str:
        """The entry: sizes, tunables and derived names fill the template; others stay as declared.

        It begins with the namespaces around the launch.
        """
        names = {
            *self._statements.sizes,
            *self._statements.derived,
            *(tunable.name for tunable in self._tunables),
        }
        arguments = []
        for parameter in launch.function.template:
            if parameter.name in names:
                arguments.append(f"{{{parameter.name}}}")
            elif parameter.default:
                arguments.append(parameter.default)
            elif parameter.is_type:
                arguments.append("float")
                self._notes.append(f"{parameter.name} of {launch.function.name} is taken as float")
            else:
                raise self._source.error(
                    launch.directive,
                    f"{parameter.name}, a template parameter of {launch.function.name}, is no size,"
                    " tunable or derived name and has no default",
                )
        name = self._tree.namespaces(launch.directive.end) + launch.function.name
        return name + (f"<{', '.join(arguments)}>" if arguments else "")

    def _parameters(self, launch: LaunchStatement) -> list[Parameter]:
        """Parameters with the types of the instance."""
        if not launch.function.template:
            return list(launch.function.parameters)
        entry = self._entry(launch)
        try:
            return parameters_of(self._blank, entry)
        except InputError:
            return list(launch.function.parameters)

    def _arguments(self) -> TomlTable:
        """``[arguments]`` in the order of the parameters; values of sizes are found by their names."""
        stated = {**self._other_arguments, **self._statements.arguments}
        arguments: TomlTable = {}
        for launch in self._statements.launches:
            for parameter in self._parameters(launch):
                name = parameter.name
                if name in arguments:
                    continue
                text = stated.pop(name, None)
                if text is None and not parameter.pointer and name in self._statements.sizes:
                    text = f"= {name}"
                if text is None:
                    raise self._source.error(launch.directive, self._missing(launch, parameter))
                arguments[name] = self._typed(launch, text, parameter)
        apart = {name: text for name, text in stated.items() if str(text).startswith("constant ")}
        for name in stated.keys() - apart.keys():
            line = self._statements.lines[f"[arguments] {name}"]
            directive = next(other for other in self._source.directives if other.line == line)
            raise self._source.error(
                directive, f"{name} is no parameter of the kernels below{suggestion(name, arguments)}"
            )
        return {**arguments, **apart}

    def _typed(self, launch: LaunchStatement, text: TomlValue, parameter: Parameter) -> TomlValue:
        if not isinstance(text, str):
            return text
        role, _, rest = text.partition(" ")
        if parameter.pointer and rest.startswith("[") and parameter.dtype:
            return f"{role} {parameter.dtype}{rest}"
        if text.startswith("=") and not parameter.dtype:
            what = what_to_write(parameter, self._blank, self._statements.sizes)
            raise self._source.error(
                launch.directive, f"{parameter.name} of {launch.function.name} has no type: {what}"
            )
        return scalar_text(text, parameter) if parameter.dtype else text

    def _missing(self, launch: LaunchStatement, parameter: Parameter) -> str:
        what = what_to_write(parameter, self._blank, self._statements.sizes)
        return f"parameter {parameter.name} of {launch.function.name} is not declared; {what}"


def _without_options(document: TomlTable, other: Mapping[str, TomlValue]) -> TomlTable:
    """Return the tables of ``toml`` pragmas, after moving compiler options and rules to the document's."""
    rest: TomlTable = {
        key: dict(value) if isinstance(value, Mapping) else value for key, value in other.items()
    }
    for table, key in (("kernel", "options"), ("constraints", "rules")):
        own, further = document.get(table), rest.get(table)
        if isinstance(own, dict) and isinstance(further, dict):
            values, more = own.get(key), further.get(key)
            if isinstance(values, list) and isinstance(more, list):
                own[key] = values + more
                del further[key]
    default, further = document.get("default"), rest.get("default")
    if isinstance(default, dict) and isinstance(further, dict):
        for name in further:
            default.pop(name, None)  # what a pragma states comes before what the source has
    return rest


def toml_text(document: Mapping[str, TomlValue]) -> str:
    """A document as TOML: a list of tables stands as ``[[name]]``, and deeper tables stand in braces."""
    parts = []
    for name, value in document.items():
        if isinstance(value, Mapping):
            parts.append(_table(f"[{name}]", value))
        elif isinstance(value, Sequence) and not isinstance(value, str):
            parts += [_table(f"[[{name}]]", item) for item in value if isinstance(item, Mapping)]
        else:
            parts.append(f"{name} = {_value(value)}\n")
    return "\n".join(parts)


def _table(heading: str, table: Mapping[str, TomlValue]) -> str:
    return "\n".join([heading, *(f"{key} = {_value(value)}" for key, value in table.items())]) + "\n"


def _value(value: TomlValue) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_value(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False)
