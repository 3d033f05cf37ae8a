"""Tunables that pragmas declare, alternative code included, and the edits for them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tree_sitter import Node

from tuner.kernel_files.cuda_source.tokens import group_end, tokens_of
from tuner.kernel_files.pragmas.directives import (
    Directive,
    PragmaSource,
    Value,
    ValueList,
    guarded_names,
    named,
    one_value,
    value_list,
)
from tuner.kernel_files.pragmas.syntax import Edit, SyntaxTree, child_of

TUNABLE_KEYWORDS = ("erange", "range", "values")
PREFIX = "TUNER_"  # of macros that carry the value of a declared name
_LARGEST_INT, _LARGEST_UNSIGNED = 2**31 - 1, 2**32 - 1
_INITIALISED = ("init_declarator", "optional_parameter_declaration")


@dataclass(frozen=True)
class PragmaTunable:
    """A tunable, and how the source gets its value.

    Attributes:
        values: in their order; texts for alternatives.
        default: what the source has.
        when: condition, an expression; empty where it always has a value.
        otherwise: its value where the condition is false.
        option: of the compiler, where it is no macro of the tunable's name and no template argument.
        edits: of the source.
    """

    directive: Directive
    name: str
    values: tuple[Value | str, ...]
    default: Value | str
    when: str = ""
    otherwise: Value | str | None = None
    option: str = ""
    edits: tuple[Edit, ...] = ()

    def under(self, condition: str) -> "PragmaTunable":
        """The tunable where a condition holds as well."""
        if not condition:
            return self
        when = f"({self.when}) and ({condition})" if self.when else condition
        return replace(self, when=when)

    def table(self) -> list[Value | str] | dict[str, list[Value | str] | Value | str]:
        """Return the entry of the tunable in ``[tunables]``."""
        if not self.when:
            return list(self.values)
        otherwise = self.default if self.otherwise is None else self.otherwise
        return {"values": list(self.values), "when": self.when, "otherwise": otherwise}


def read_list(source: PragmaSource, directive: Directive, keyword: str, text: str) -> ValueList:
    """``value_list`` with the place of the pragma in its messages.

    Raises:
        KernelFileError: the text has another form.
    """
    try:
        return value_list(keyword, text)
    except ValueError as e:
        raise source.error(directive, e) from e


def instead_of(source: PragmaSource, directive: Directive, *lines: str) -> Edit:
    """Lines in the place of a pragma; empty ones follow, so that those below keep their numbers.

    A ``#line`` among them is to see to that itself.
    """
    numbered = any(line.startswith("#line ") for line in lines)
    count = 0 if numbered else source.text.count(b"\n", directive.start, directive.end)
    text = "\n" * max(0, count - len(lines))
    return Edit(directive.start, directive.end, "".join(f"{line}\n" for line in lines) + text)


def guarded(name: str, value: Value) -> tuple[str, str, str]:
    """Lines that define a macro unless the compiler is told its value."""
    return f"#ifndef {name}", f"#define {name} {_literal(value)}", "#endif"


def check_free(source: PragmaSource, directive: Directive, name: str) -> None:
    """Refuse a macro whose name the source uses.

    Raises:
        KernelFileError: it does.
    """
    if name in source.words:
        raise source.error(directive, f"the source has the name {name} already; choose another")


def declared_tunable(tree: SyntaxTree, directive: Directive) -> PragmaTunable:
    """The tunable of ``erange``, ``range`` or ``values``: a macro, a constant or a template parameter below.

    Raises:
        KernelFileError: below stands nothing of these, or not of this name, or its value is none of the list.
    """
    source = tree.source
    stated = read_list(source, directive, directive.keyword, directive.text)
    nodes = tree.behind(directive)
    define = next((node for node in nodes if node.type in ("preproc_def", "preproc_ifdef")), None)
    if define is not None:
        return _macro(tree, directive, stated, define)
    for node in nodes:
        if node.type == "template_declaration":
            return _template_parameter(tree, directive, stated, node)
        if node.type in ("declaration", "optional_parameter_declaration", "field_declaration"):
            return _constant(tree, directive, stated, node)
    names = f" {stated.name}" if stated.name else ""
    raise source.error(
        directive, f"no #define, constant or template parameter{names} with a default stands below it"
    )


def _macro(tree: SyntaxTree, directive: Directive, stated: ValueList, node: Node) -> PragmaTunable:
    source = tree.source
    around = ""
    if node.type == "preproc_ifdef":  # the source leaves room for the macro already
        name_node = node.child_by_field_name("name")
        around = tree.text(name_node) if name_node is not None else ""
        inner = child_of(node, "preproc_def")
        if inner is None or not tree.text(node).lstrip().startswith("#ifndef"):
            raise source.error(directive, "no #define stands below it")
        node = inner
    name_node, value_node = node.child_by_field_name("name"), node.child_by_field_name("value")
    name = "" if name_node is None else tree.text(name_node)
    _check_name(source, directive, stated, name)
    times = source.defined[name]
    if times > 1:
        raise source.error(
            directive, f"{name} is defined or undefined {times} times; a tunable is defined once"
        )
    default = _default(tree, directive, stated, name, value_node, typed=True)
    above = [source.code[: node.start_byte].decode(errors="replace")]
    above += [
        text for byte, text in source.conditions if byte < directive.start and byte not in directive.branches
    ]
    if any(re.search(rf"\b{name}\b", text) for text in above):
        raise source.error(directive, f"{name} is used above its #define; give the macro another name")
    _check_guard(tree, directive, name, node)
    edits: tuple[Edit, ...] = (instead_of(source, directive),)
    if name not in {around, *guarded_names(directive.guards)}:
        edits = (
            instead_of(source, directive, f"#ifndef {name}"),
            Edit(_line_end(source, node), _line_end(source, node), "#endif\n"),
        )
    return PragmaTunable(directive, name, stated.values, default, stated.when, stated.otherwise, edits=edits)


def _check_guard(tree: SyntaxTree, directive: Directive, name: str, define: Node) -> None:
    """Refuse other code under the ``#ifndef`` of the macro: it is left out where a value is given."""
    guard: Node | None = define
    while guard is not None:
        guarded_name = guard.child_by_field_name("name") if guard.type == "preproc_ifdef" else None
        if guarded_name is not None and tree.text(guarded_name) == name:
            own = (define.start_byte, guarded_name.start_byte)
            if any(
                child.is_named and child.type != "comment" and child.start_byte not in own
                for child in guard.children
            ):
                raise tree.source.error(
                    directive, f"more than the #define stands under #ifndef {name}; move it behind #endif"
                )
        guard = guard.parent


def _line_end(source: PragmaSource, node: Node) -> int:
    """The byte behind the last line of a directive of the preprocessor."""
    if source.blank[node.end_byte - 1 : node.end_byte] == b"\n":
        return node.end_byte
    end = source.blank.find(b"\n", node.end_byte)
    if end < 0:
        raise source.error(node.start_byte, "the file ends in this line; end it with a new line")
    return end + 1


def _constant(tree: SyntaxTree, directive: Directive, stated: ValueList, node: Node) -> PragmaTunable:
    """A constant with an initialiser, or a template parameter that the pragma stands before."""
    source = tree.source
    written = source.code[node.start_byte : node.end_byte].decode(errors="replace")
    if node.type != "optional_parameter_declaration" and not re.search(r"\bconst(?:expr)?\b", written):
        raise source.error(
            directive, f"{written.split(';')[0].strip()!r} is no constant; write constexpr before it"
        )
    holders = [child for child in [node, *node.children] if child.type in _INITIALISED]
    if node.type == "field_declaration":  # of a class
        holders = node.children_by_field_name("declarator") and [node]
    if len(holders) != 1 or written.count(",") or node.has_error:
        raise source.error(
            directive,
            f"{written.split(';')[0].strip()!r} is not one name with a value, as constexpr int P = 4;",
        )
    holder = holders[0]
    name_node = holder.child_by_field_name("declarator")
    value_node = holder.child_by_field_name("value") or holder.child_by_field_name("default_value")
    name = "" if name_node is None else tree.text(name_node)
    if not name.isidentifier() or value_node is None or value_node.type == "argument_list":
        raise source.error(
            directive,
            f"{written.split(';')[0].strip()!r} has no value to begin with, as constexpr int P = 4;",
        )
    _check_name(source, directive, stated, name)
    return _replaced(tree, directive, stated, name, value_node, typed=_is_deduced(tree, node))


def _is_deduced(tree: SyntaxTree, declaration: Node) -> bool:
    """Return True if the type of a declared name is deduced from its value."""
    typed = declaration.child_by_field_name("type")
    return typed is not None and "auto" in tree.text(typed)


def _replaced(
    tree: SyntaxTree, directive: Directive, stated: ValueList, name: str, value_node: Node, *, typed: bool
) -> PragmaTunable:
    """A declared name whose value becomes a macro."""
    default = _default(tree, directive, stated, name, value_node, typed=typed)
    if any(isinstance(value, float) for value in stated.values):
        raise tree.source.error(directive, f"{name} has fractions, which only a #define can carry")
    macro = PREFIX + name
    check_free(tree.source, directive, macro)
    edits = (
        instead_of(tree.source, directive, *guarded(macro, default)),
        Edit(value_node.start_byte, value_node.end_byte, macro),
    )
    option = f"-D{macro}={{{name}}}"
    return PragmaTunable(
        directive, name, stated.values, default, stated.when, stated.otherwise, option, edits
    )


def _template_parameter(
    tree: SyntaxTree, directive: Directive, stated: ValueList, node: Node
) -> PragmaTunable:
    source = tree.source
    parameters = child_of(node, "template_parameter_list")
    listed = [] if parameters is None else [child for child in parameters.children if child.is_named]
    named = {_parameter_name(tree, child): child for child in listed if child.type != "comment"}
    with_default = {
        name: child for name, child in named.items() if child.type == "optional_parameter_declaration"
    }
    name = stated.name or (next(iter(with_default)) if len(with_default) == 1 else "")
    if not name:
        several = ", ".join(with_default) or "none"
        raise source.error(
            directive,
            f"the template has these parameters with a default: {several}; write NAME: before the values",
        )
    if name not in with_default:
        choices = f"; it has {', '.join(filter(None, named))}" if any(named) else ""
        why = "has no default" if name in named else f"is no parameter of the template{choices}"
        raise source.error(directive, f"{name} {why}")
    parameter = with_default[name]
    value_node = parameter.child_by_field_name("default_value")
    if value_node is None:
        raise source.error(directive, f"{name} has no default")
    kernel = tree.text(node).partition("{")[0]
    if "__global__" not in kernel.split("(")[0]:
        return _replaced(tree, directive, stated, name, value_node, typed=_is_deduced(tree, parameter))
    default = _default(tree, directive, stated, name, value_node, typed=_is_deduced(tree, parameter))
    edits = (instead_of(source, directive),)
    return PragmaTunable(directive, name, stated.values, default, stated.when, stated.otherwise, edits=edits)


def _parameter_name(tree: SyntaxTree, node: Node) -> str:
    name = node.child_by_field_name("declarator") or child_of(node, "identifier", "type_identifier")
    return "" if name is None else tree.text(name)


def _check_name(source: PragmaSource, directive: Directive, stated: ValueList, name: str) -> None:
    if stated.name and stated.name != name:
        raise source.error(directive, f"below stands {name or 'no name'}, not {stated.name}")


def _default(
    tree: SyntaxTree, directive: Directive, stated: ValueList, name: str, node: Node | None, *, typed: bool
) -> Value:
    """The value that the source has; one of the list. It says the type where it is ``typed``."""
    source = tree.source
    text = "" if node is None else re.sub(r"//.*|/\*.*?\*/", " ", tree.text(node), flags=re.DOTALL)
    try:
        value = one_value(text)
    except ValueError as e:
        octal = f" ({e})" if "octal" in str(e) else ""
        raise source.error(
            directive,
            f"{name} is {text.strip()!r} in the source; a tunable begins as a number, true or false{octal}",
        ) from None
    same = next((listed for listed in stated.values if listed == value), None)
    if same is None:
        listed = ", ".join(map(_literal, stated.values))
        raise source.error(
            directive, f"{name} is {_literal(value)} in the source, which is none of the values {listed}"
        )
    if typed:
        try:
            _check_type(name, text.strip().strip("()").strip(), value, same)
        except ValueError as e:
            raise source.error(directive, e) from None
    return same


def _check_type(name: str, written: str, value: Value, same: Value) -> None:
    """Refuse a number whose type is not that of the number in its place.

    Raises:
        ValueError: it has another one.
    """
    hexadecimal = written.lower().lstrip("+-").startswith("0x")
    if re.search(r"[uUlL]$", written) or (not hexadecimal and re.search(r"[\d.][fF]$", written)):
        raise ValueError(f"{name} is {written}, a number of another type; write it without the last letters")
    if hexadecimal and _LARGEST_INT < abs(value) <= _LARGEST_UNSIGNED:
        raise ValueError(f"{name} is {written}, a number of another type; write it without 0x, as {value}")
    if isinstance(value, float) is not isinstance(same, float):
        raise ValueError(
            f"{name} is {_literal(value)} in the source and {_literal(same)} in the list, of another type;"
            " write both alike"
        )


def _literal(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- Alternative code: ``select`` opens a choice, each ``case`` a piece of code, ``end`` closes it.

ALTERNATIVE_KEYWORDS = ("select", "case", "end")
MOST_CASES = 32


@dataclass
class Selection:
    """One choice between pieces of code: its ``select``, ``case`` (with names) and ``end`` pragmas."""

    opening: Directive
    name: str
    cases: list[tuple[Directive, str]] = field(default_factory=list)
    closing: Directive | None = None

    def pieces(self) -> list[tuple[Directive, str, int, int]]:
        """The ``case`` pragma of each piece of code, its name, its first byte and the byte behind it."""
        ends = [directive.start for directive, _ in self.cases[1:]]
        ends += [self.closing.start] if self.closing is not None else []
        return [
            (directive, name, directive.end, end)
            for (directive, name), end in zip(self.cases, ends, strict=True)
        ]

    def condition(self, byte: int) -> str:
        """The condition under which a byte is compiled, as an expression; empty outside the choice."""
        names = [name for _, name, start, end in self.pieces() if start <= byte < end]
        return f"{self.name} == '{names[0]}'" if names else ""


def read_selections(source: PragmaSource) -> list[Selection]:
    """The choices of a source, outer ones before those in their pieces.

    Raises:
        KernelFileError: they are not closed, have fewer than two cases, or names twice.
    """
    selections: list[Selection] = []
    still_open: list[Selection] = []
    for directive in source.directives:
        if directive.keyword not in ALTERNATIVE_KEYWORDS:
            continue
        if directive.keyword == "select":
            name = _name(source, directive, "NAME")
            if any(other.name == name for other in selections):
                raise source.error(directive, f"{name} is selected twice")
            selections.append(Selection(directive, name))
            still_open.append(selections[-1])
            continue
        if not still_open:
            raise source.error(directive, "no #pragma tuner select is open here")
        selection = still_open[-1]
        if directive.branches != selection.opening.branches:
            raise source.error(
                directive, f"stands under other conditions of the preprocessor than select {selection.name}"
            )
        if directive.keyword == "case":
            _add_case(source, directive, selection)
        else:
            if directive.text:
                raise source.error(directive, f"{directive.text!r} follows end; write it alone")
            selection.closing = directive
            still_open.pop()
            if len(selection.cases) < 2:  # noqa: PLR2004
                raise source.error(selection.opening, "has fewer than two cases")
    for selection in still_open:
        raise source.error(selection.opening, "is not closed; write #pragma tuner end")
    return selections


def alternative(tree: SyntaxTree, selection: Selection) -> PragmaTunable:
    """The tunable of a choice, whose values are the names of its pieces.

    Raises:
        KernelFileError: a piece begins or ends within a statement, or functions of a name differ in their
            signature.
    """
    for directive, name, start, end in selection.pieces():
        _check_whole(tree, directive, name, start, end)
    _check_signatures(tree, selection)
    macro = PREFIX + selection.name
    check_free(tree.source, selection.opening, macro)
    names = tuple(name for _, name in selection.cases)
    source = tree.source
    edits = [
        instead_of(
            source, selection.opening, f"#ifndef {macro}", f"#define {macro} 0  // {names[0]}", "#endif"
        )
    ]
    for number, (directive, name) in enumerate(selection.cases):
        word = "#elif" if number else "#if"
        edits.append(_condition_line(source, directive, f"{word} {macro} == {number}  // {name}"))
    if selection.closing is not None:
        edits.append(_condition_line(source, selection.closing, "#endif"))
    return PragmaTunable(
        selection.opening,
        selection.name,
        names,
        names[0],
        option=f"-D{macro}={{{_number(selection.name, names)}}}",
        edits=tuple(edits),
    )


def _condition_line(source: PragmaSource, directive: Directive, text: str) -> Edit:
    """A condition of the preprocessor; ``#line`` follows, as those in code that is left out do not count."""
    below = source.text.count(b"\n", 0, directive.end) + 1
    return instead_of(source, directive, text, f"#line {below}")


def _number(tunable: str, names: Sequence[str]) -> str:
    """The place of the chosen name, as an expression."""
    text = str(len(names) - 1)
    for number, name in reversed(list(enumerate(names[:-1]))):
        text = f"select({tunable} == '{name}', {number}, {text})"
    return text


def _name(source: PragmaSource, directive: Directive, what: str) -> str:
    name = named(directive.text)[0] or directive.text
    if not name.isidentifier():
        raise source.error(directive, f"write {directive.keyword} {what}, a name as in C")
    return name


def _add_case(source: PragmaSource, directive: Directive, selection: Selection) -> None:
    name = _name(source, directive, "NAME")
    if any(name == other for _, other in selection.cases):
        raise source.error(directive, f"{name} is there twice")
    if not selection.cases and source.code[selection.opening.end : directive.start].strip():
        raise source.error(selection.opening, "code stands before the first case")
    selection.cases.append((directive, name))
    if len(selection.cases) > MOST_CASES:
        raise source.error(directive, f"more than {MOST_CASES} cases")


def _check_whole(tree: SyntaxTree, directive: Directive, name: str, start: int, end: int) -> None:
    """Refuse a piece that cuts a statement or a declaration."""
    code = tree.source.code
    first = start + len(code[start:end]) - len(code[start:end].lstrip())
    last = start + len(code[start:end].rstrip())
    if first >= last:
        return  # nothing is an alternative, too
    node = tree.root.descendant_for_byte_range(first, last)
    whole = node is not None and (
        (node.start_byte == first and node.end_byte in range(last, end + 1))
        or all(
            child.end_byte <= first
            or child.start_byte >= last
            or (child.start_byte >= first and child.end_byte <= end)
            for child in node.children
        )
    )
    tokens = [token.text for token in tokens_of(code[first:last].decode(errors="replace"))]
    ended = tokens[-1:] in ([";"], ["}"]) or not tokens
    if not whole or not ended or not _closed(tokens):
        raise tree.source.error(
            directive, f"{name} begins or ends within a statement; a case holds whole ones"
        )


def _closed(tokens: Sequence[str]) -> bool:
    pairs = {")": "(", "]": "[", "}": "{"}
    still_open: list[str] = []
    for token in tokens:
        if token in pairs.values():
            still_open.append(token)
        elif token in pairs and (not still_open or still_open.pop() != pairs[token]):
            return False
    return not still_open


def _check_signatures(tree: SyntaxTree, selection: Selection) -> None:
    """Refuse functions of the same name that take or return something else."""
    seen: dict[str, tuple[str, str]] = {}
    for directive, case, start, end in selection.pieces():
        for name, signature in _signatures(tree.source.code[start:end].decode(errors="replace")).items():
            other = seen.setdefault(name, (case, signature))
            if other[1] != signature:
                raise tree.source.error(
                    directive,
                    f"{name} is {signature!r} here and {other[1]!r} in case {other[0]};"
                    " alternatives have one signature",
                )


def _signatures(text: str) -> dict[str, str]:
    """Functions that a text defines outside all brackets: name -> signature."""
    tokens = tokens_of(text)
    signatures: dict[str, str] = {}
    index = start = 0
    while index < len(tokens):
        sign = tokens[index].text
        if sign == ";":
            start = index + 1
        elif sign == "{":
            head = [token.text for token in tokens[start:index]]
            name = _function_name(head)
            if name:
                signatures[name] = " ".join(head)
            index = group_end(tokens, index)
            start = index
            continue
        index += 1
    return signatures


def _function_name(head: Sequence[str]) -> str:
    """The name before the last group of a head that ends with it; empty where it is no function."""
    depth = 0
    for index in range(len(head) - 1, -1, -1):
        depth += (head[index] == ")") - (head[index] == "(")
        if depth == 0:
            name = head[index - 1] if index and head[index] == "(" else ""
            return name if name.isidentifier() and name not in ("if", "for", "while", "switch") else ""
    return ""
