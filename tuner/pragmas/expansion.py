"""A source with tuning pragmas as what it means: a kernel file, and a source without them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.cuda_source.parameters import Parameter
from tuner.cuda_source.signatures import parameters_of
from tuner.model.errors import InputError, suggestion
from tuner.pragmas.alternatives import KEYWORDS as OF_ALTERNATIVES
from tuner.pragmas.alternatives import Selection, alternative, read_selections
from tuner.pragmas.directives import OWN, PragmaSource, read_pragmas
from tuner.pragmas.edits import OverlapError, edited
from tuner.pragmas.kernel_launcher import read_kernel_launcher
from tuner.pragmas.statements import (
    LaunchStatement,
    Statements,
    keywords,
    merge,
    read_statements,
    scalar_text,
)
from tuner.pragmas.structs import what_to_write
from tuner.pragmas.syntax import SyntaxTree
from tuner.pragmas.tiling import tiled_loops
from tuner.pragmas.tunables import KEYWORDS as OF_TUNABLES
from tuner.pragmas.tunables import PragmaTunable, declared_tunable, instead_of
from tuner.pragmas.unrolling import unrolled_loop

_ALL = (*OF_TUNABLES, *OF_ALTERNATIVES, "unroll", "tile", *keywords())


@dataclass(frozen=True)
class Expansion:
    """What a source with tuning pragmas means.

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
    """What a source with tuning pragmas means.

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
        """What ``toml`` pragmas say of arguments."""
        table = self._said.other.get("arguments")
        return table if isinstance(table, Mapping) else {}

    def _other(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """What ``toml`` pragmas say, without the arguments that stand in the document because of them."""
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
    """What ``toml`` pragmas say, its compiler options and rules added to those of other pragmas."""
    rest = {key: dict(value) if isinstance(value, Mapping) else value for key, value in other.items()}
    for table, key in (("kernel", "options"), ("constraints", "rules")):
        inner = rest.get(table)
        if isinstance(inner, dict) and isinstance(inner.get(key), list) and key in document.get(table, {}):
            document[table][key] = [*document[table][key], *inner.pop(key)]
    for key, value in dict(rest.get("default", {})).items():
        document.get("default", {}).pop(key, value)
    return rest
