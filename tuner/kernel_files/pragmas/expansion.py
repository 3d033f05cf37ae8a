"""Expansion of a source with tuning pragmas to a kernel file and a source without them."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
    LaunchStatement,
    OverlapError,
    Statements,
    SyntaxTree,
    edited,
    kernel_below,
    keywords,
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
    directives = [one for one in source.directives if one.family == "kernel"]
    if not directives:
        return
    said: dict[str, list[str]] = {}
    last = directives[0]
    try:
        for last in directives:
            _read(last, said, statements, tunables)
        function = kernel_below(source, last)
        _add_launch(last, LaunchStatement(last, function, {}), said, statements)
    except ValueError as e:
        raise source.error(last, e) from e


def _read(
    directive: Directive,
    said: dict[str, list[str]],
    statements: Statements,
    tunables: list[PragmaTunable],
) -> None:
    for key, inside in clauses(directive.text):
        if key not in _KEYS:
            raise ValueError(f"unknown clause {key}; known here: {', '.join(_KEYS)}")
        if key == "tune":
            tunables.append(_tunable(directive, inside))
        elif key == "default":
            tunables.append(_with_default(tunables.pop() if tunables else None, inside))
        elif key == "set":
            match = _EQUATION.fullmatch(inside)
            if match is None:
                raise ValueError("write set(NAME = EXPRESSION)")
            statements.derived[match[1]] = _expression(match[2])
        elif key in ("restriction", "restrictions"):
            statements.rules += [_expression(one) for one in split_list(inside)]
        else:
            said.setdefault(key.replace("buffers", "buffer"), []).extend(map(_expression, split_list(inside)))


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


def _with_default(tunable: PragmaTunable | None, inside: str) -> PragmaTunable:
    if tunable is None:
        raise ValueError("default(...) follows no tune(...)")
    value = one_value(inside)
    if value not in tunable.values:
        raise ValueError(f"{inside} is none of the values of {tunable.name}")
    return PragmaTunable(tunable.directive, tunable.name, tunable.values, value)


def _expression(text: str) -> str:
    for theirs, ours in _FUNCTIONS:
        text = text.replace(theirs, ours)
    return re.sub(r"!(?!=)", "not ", text).strip()


def _add_launch(
    directive: Directive, launch: LaunchStatement, said: dict[str, list[str]], statements: Statements
) -> None:
    if "problem_size" not in said and "grid_size" not in said:
        raise ValueError("has neither problem_size(...) nor grid_size(...)")
    if "block_size" not in said:
        raise ValueError("has no block_size(...)")
    block = said["block_size"]
    divisors = said.get("grid_divisor", block)
    extents = said.get("problem_size", [])
    padded = [*divisors, *["1"] * (len(extents) - len(divisors))]
    grid = said.get("grid_size") or [
        f"ceil_div({extent}, {divisor})" for extent, divisor in zip(extents, padded, strict=False)
    ]
    keys: dict[str, Any] = {
        "grid": grid if len(grid) > 1 else grid[0],
        "block": block if len(block) > 1 else block[0],
    }
    launch.keys.update(keys)
    statements.launches.append(launch)
    used = set(re.findall(r"[A-Za-z_]\w*", " ".join([*extents, *grid, *said.get("buffer", [])])))
    for parameter in launch.function.parameters:
        if not parameter.pointer and parameter.name in used:
            statements.problem["sizes"].setdefault(parameter.name, {"from": 1, "to": _LARGEST})
    roles = {one.name: "in" if one.const else "inout" for one in launch.function.parameters if one.pointer}
    for text in said.get("buffer", []):
        match = _BUFFER.fullmatch(text)
        if match is None or match[1] not in roles:
            raise ValueError(f"{text!r} is no array of the kernel with its length, as A[n]")
        statements.arguments.setdefault(match[1], f"{roles[match[1]]} [{match[2]}]")
        statements.lines[f"[arguments] {match[1]}"] = directive.line


# --- The expansion: a kernel file, and a source without pragmas.

_ALL = (*OF_TUNABLES, *OF_ALTERNATIVES, "unroll", "tile", *keywords())


@dataclass(frozen=True)
class Expansion:
    """Kernel file and plain source that a source with tuning pragmas expands to.

    Attributes:
        document: the kernel file, as tables and lists; ``kernel.source`` is the name of the source.
        text: the source without the pragmas, its tunables as macros; lines keep their numbers by ``#line``.
        lines: key of the kernel file -> line of the pragma that states it.
        notes: what was assumed, in words.
    """

    document: Mapping[str, Any]
    text: str
    lines: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def expansion(path: Path, text: str) -> Expansion:
    """Expand a source with tuning pragmas.

    Args:
        path: of the source; messages begin with it.
        text: CUDA C++.

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
    tunables.sort(key=lambda one: one.directive.start)
    _check_names(source, tunables, statements)
    edits = [edit for tunable in tunables for edit in tunable.edits]
    changed = {(edit.start, edit.end) for edit in edits}  # insertions may begin there, too
    edits += [instead_of(source, one) for one in source.directives if (one.start, one.end) not in changed]
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
    found = [alternative(tree, selection) for selection in selections]
    source = tree.source
    nest: list[Any] = []  # tiles above the same loop
    for place, directive in enumerate(source.directives):
        if directive.family != OWN:
            continue
        if directive.keyword in OF_TUNABLES:
            found.append(declared_tunable(tree, directive))
        elif directive.keyword == "unroll":
            found.append(unrolled_loop(tree, directive))
        elif directive.keyword == "tile":
            nest.append(directive)
            below = source.directives[place + 1 :][:1]
            if not below or below[0].keyword != "tile" or source.code[directive.end : below[0].start].strip():
                found += tiled_loops(tree, nest, statements.problem["sizes"])
                nest = []
    return [one.under(_condition(selections, one.directive.start)) for one in found]


def _condition(selections: Sequence[Selection], byte: int) -> str:
    conditions = [text for one in selections if (text := one.condition(byte))]
    return " and ".join(conditions)


def _check_names(source: PragmaSource, tunables: Sequence[PragmaTunable], statements: Statements) -> None:
    seen: dict[str, int] = {}
    for tunable in tunables:
        if tunable.name in seen:
            raise source.error(
                tunable.directive, f"{tunable.name} is a tunable already, in line {seen[tunable.name]}"
            )
        if tunable.name in statements.problem["sizes"] or tunable.name in statements.derived:
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
        self._said = statements
        self._tunables = tunables
        self._notes: list[str] = []
        self._blank = tree.source.blank.decode(errors="replace")

    def expansion(self, text: str) -> Expansion:
        said = self._said
        document: dict[str, Any] = {"kernel": {"source": self._source.path.name}}
        options = [one.option for one in self._tunables if one.option]
        if options:
            document["kernel"]["options"] = options
        problem = {key: value for key, value in said.problem.items() if value != {}}
        document |= {"problem": problem, "arguments": {}}
        document["tunables"] = {one.name: one.table() for one in self._tunables}
        document |= {"derived": said.derived} if said.derived else {}
        document |= {"constraints": {"rules": said.rules}} if said.rules else {}
        document["default"] = {one.name: one.default for one in self._tunables}
        self._write_launches(document)
        document["arguments"] = self._arguments()
        lines = {f"[tunables] {one.name}": one.directive.line for one in self._tunables}
        lines |= {f"[tunables.{one.name}]": one.directive.line for one in self._tunables}
        try:
            merge(document, _without_options(document, self._other(document)))
        except ValueError as e:
            stated = [one for one in self._source.directives if one.keyword == "toml"]
            key = str(e).split(" ")[0].rpartition(".")[2]
            wrong = next((one for one in stated if key in one.text), stated[0])
            raise self._source.error(wrong, e) from e
        document = {key: value for key, value in document.items() if value or key == "problem"}
        return Expansion(document, text, said.lines | lines, tuple(dict.fromkeys(self._notes)))

    def _write_launches(self, document: dict[str, Any]) -> None:
        launches = self._said.launches
        if not launches:
            raise self._source.error(
                self._source.directives[0],
                "no #pragma tuner launch grid(...) stands above a __global__ function",
            )
        conditions = [_condition(self._selections, one.directive.start) for one in launches]
        if len(launches) == 1 and not conditions[0] and not {"when", "setup", "name"} & set(launches[0].keys):
            document["kernel"]["entry"] = self._entry(launches[0])
            document["launch"] = launches[0].keys
            return
        document["stage"] = []
        for launch, condition in zip(launches, conditions, strict=True):
            if {"repeat", "index"} & set(launch.keys):
                raise self._source.error(
                    launch.directive,
                    "repeat(...) is for a single launch; loops of several stand in a kernel.toml",
                )
            when = launch.keys.get("when", "")
            when = " and ".join(f"({one})" if when and condition else one for one in (when, condition) if one)
            keys = {key: value for key, value in launch.keys.items() if key != "when"}
            document["stage"].append(
                {
                    "name": launch.function.name,
                    "entry": self._entry(launch),
                    **keys,
                    **({"when": when} if when else {}),
                    "arguments": [one.name for one in launch.function.parameters],
                }
            )

    def _entry(self, launch: LaunchStatement) -> str:
        """The entry: sizes, tunables and derived names fill the template; others stay as declared.

        It begins with the namespaces around the launch.
        """
        known = {*self._said.problem["sizes"], *self._said.derived, *(one.name for one in self._tunables)}
        arguments = []
        for one in launch.function.template:
            if one.name in known:
                arguments.append(f"{{{one.name}}}")
            elif one.default:
                arguments.append(one.default)
            elif one.is_type:
                arguments.append("float")
                self._notes.append(f"{one.name} of {launch.function.name} is taken as float")
            else:
                raise self._source.error(
                    launch.directive,
                    f"{one.name}, a template parameter of {launch.function.name}, is no size, tunable or"
                    " derived name and has no default",
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

    def _told(self) -> Mapping[str, Any]:
        """Return the ``[arguments]`` of ``toml`` pragmas."""
        table = self._said.other.get("arguments")
        return table if isinstance(table, Mapping) else {}

    def _other(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the tables of ``toml`` pragmas, without arguments that the document has because of them."""
        rest = {
            name: text
            for name, text in self._told().items()
            if name in self._said.arguments or name not in document["arguments"]
        }
        other = dict(self._said.other)
        return {**other, "arguments": rest} if self._told() else other

    def _arguments(self) -> dict[str, Any]:
        """``[arguments]`` in the order of the parameters; values of sizes are found by their names."""
        stated = {**self._told(), **self._said.arguments}
        found: dict[str, Any] = {}
        for launch in self._said.launches:
            for parameter in self._parameters(launch):
                name = parameter.name
                if name in found:
                    continue
                text = stated.pop(name, None)
                if text is None and not parameter.pointer and name in self._said.problem["sizes"]:
                    text = f"= {name}"
                if text is None:
                    raise self._source.error(launch.directive, self._missing(launch, parameter))
                found[name] = self._typed(launch, text, parameter)
        apart = {name: text for name, text in stated.items() if str(text).startswith("constant ")}
        for name in stated.keys() - apart.keys():
            line = self._said.lines[f"[arguments] {name}"]
            directive = next(one for one in self._source.directives if one.line == line)
            raise self._source.error(
                directive, f"{name} is no parameter of the kernels below{suggestion(name, found)}"
            )
        return {**found, **apart}

    def _typed(self, launch: LaunchStatement, text: object, parameter: Parameter) -> object:
        if not isinstance(text, str):
            return text
        role, _, rest = text.partition(" ")
        if parameter.pointer and rest.startswith("[") and parameter.dtype:
            return f"{role} {parameter.dtype}{rest}"
        if text.startswith("=") and not parameter.dtype:
            what = what_to_write(parameter, self._blank, self._said.problem["sizes"])
            raise self._source.error(
                launch.directive, f"{parameter.name} of {launch.function.name} has no type: {what}"
            )
        return scalar_text(text, parameter) if parameter.dtype else text

    def _missing(self, launch: LaunchStatement, parameter: Parameter) -> str:
        what = what_to_write(parameter, self._blank, self._said.problem["sizes"])
        return f"parameter {parameter.name} of {launch.function.name} is not declared; {what}"


def _without_options(document: dict[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of ``toml`` pragmas, after moving compiler options and rules to the document's."""
    rest = {key: dict(value) if isinstance(value, Mapping) else value for key, value in other.items()}
    for table, key in (("kernel", "options"), ("constraints", "rules")):
        inner = rest.get(table)
        if isinstance(inner, dict) and isinstance(inner.get(key), list) and key in document.get(table, {}):
            document[table][key] = [*document[table][key], *inner.pop(key)]
    for key, value in dict(rest.get("default", {})).items():
        document.get("default", {}).pop(key, value)
    return rest


def toml_text(document: Mapping[str, Any]) -> str:
    """A document of tables and lists as TOML.

    Args:
        document: table -> its keys; a list of tables stands as ``[[name]]``. Deeper tables stand in braces.
    """
    parts = []
    for name, value in document.items():
        if isinstance(value, Mapping):
            parts.append(_table(f"[{name}]", value))
        elif isinstance(value, Sequence) and not isinstance(value, str):
            parts += [_table(f"[[{name}]]", item) for item in value]
        else:
            parts.append(f"{name} = {_value(value)}\n")
    return "\n".join(parts)


def _table(heading: str, table: Mapping[str, Any]) -> str:
    return "\n".join([heading, *(f"{key} = {_value(value)}" for key, value in table.items())]) + "\n"


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_value(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False)
