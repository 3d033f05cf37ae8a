"""Alternative code: ``select`` opens a choice, each ``case`` a piece of code, ``end`` closes it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tuner.cuda_source.tokens import group_end, tokens_of
from tuner.pragmas.clauses import named
from tuner.pragmas.directives import Directive, PragmaSource
from tuner.pragmas.edits import Edit
from tuner.pragmas.syntax import SyntaxTree
from tuner.pragmas.tunables import PREFIX, PragmaTunable, check_free, instead_of

KEYWORDS = ("select", "case", "end")
MOST_CASES = 32


@dataclass
class Selection:
    """One choice between pieces of code.

    Attributes:
        opening: the ``select`` pragma.
        name: of the tunable.
        cases: the ``case`` pragmas with their names.
        closing: the ``end`` pragma.
    """

    opening: Directive
    name: str
    cases: list[tuple[Directive, str]] = field(default_factory=list)
    closing: Directive | None = None

    def pieces(self) -> list[tuple[str, int, int]]:
        """Name, first byte and the byte behind each piece of code."""
        ends = [directive.start for directive, _ in self.cases[1:]]
        ends += [self.closing.start] if self.closing is not None else []
        return [(name, one.end, end) for (one, name), end in zip(self.cases, ends, strict=True)]

    def condition(self, byte: int) -> str:
        """The condition under which a byte is compiled, as an expression; empty outside the choice."""
        found = [name for name, start, end in self.pieces() if start <= byte < end]
        return f"{self.name} == '{found[0]}'" if found else ""


def read_selections(source: PragmaSource) -> list[Selection]:
    """The choices of a source, outer ones before those in their pieces.

    Raises:
        KernelFileError: they are not closed, have fewer than two cases, or names twice.
    """
    found: list[Selection] = []
    still_open: list[Selection] = []
    for directive in source.directives:
        if directive.keyword not in KEYWORDS:
            continue
        if directive.keyword == "select":
            name = _name(source, directive, "NAME")
            if any(one.name == name for one in found):
                raise source.error(directive, f"{name} is selected twice")
            found.append(Selection(directive, name))
            still_open.append(found[-1])
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
            _check_cases(source, selection)
    for selection in still_open:
        raise source.error(selection.opening, "is not closed; write #pragma tuner end")
    return found


def alternative(tree: SyntaxTree, selection: Selection) -> PragmaTunable:
    """The tunable of a choice, whose values are the names of its pieces.

    Raises:
        KernelFileError: a piece begins or ends within a statement, or functions of a name differ in their
            signature.
    """
    for directive, (name, start, end) in zip(
        (one for one, _ in selection.cases), selection.pieces(), strict=True
    ):
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


def _check_cases(source: PragmaSource, selection: Selection) -> None:
    if len(selection.cases) < 2:  # noqa: PLR2004
        raise source.error(selection.opening, "has fewer than two cases")


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
            one.end_byte <= first
            or one.start_byte >= last
            or (one.start_byte >= first and one.end_byte <= end)
            for one in node.children
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
    for directive, (case, start, end) in zip(
        (one for one, _ in selection.cases), selection.pieces(), strict=True
    ):
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
    found: dict[str, str] = {}
    place = start = 0
    while place < len(tokens):
        sign = tokens[place].text
        if sign == ";":
            start = place + 1
        elif sign == "{":
            head = [one.text for one in tokens[start:place]]
            name = _function_name(head)
            if name:
                found[name] = " ".join(head)
            place = group_end(tokens, place)
            start = place
            continue
        place += 1
    return found


def _function_name(head: Sequence[str]) -> str:
    """The name before the last group of a head that ends with it; empty where it is no function."""
    depth = 0
    for place in range(len(head) - 1, -1, -1):
        depth += (head[place] == ")") - (head[place] == "(")
        if depth == 0:
            name = head[place - 1] if place and head[place] == "(" else ""
            return name if name.isidentifier() and name not in ("if", "for", "while", "switch") else ""
    return ""
