"""CUDA C++ text as tokens, and the variables that it declares."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tuner.model.plan import Source

_TOKEN = re.compile(
    r"""
      (?P<space>\s+|\\\n)
    | (?P<comment>//(?:\\\n|[^\n])*|/\*.*?(?:\*/|\Z))
    | (?P<raw>(?:u8|[uUL])?R"(?P<fence>[^()\\\s]{0,16})\(.*?(?:\)(?P=fence)"|\Z))
    | (?P<text>(?:u8|[uUL])?(?:"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?))
    | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
    | (?P<word>[A-Za-z_]\w*)
    | (?P<sign>::|\.\.\.|->|[=!<>]=|&&|\|\||.)
    """,
    re.VERBOSE | re.DOTALL,
)
_DIRECTIVE = re.compile(r"^[ \t]*\#(?:\\\n|/\*.*?(?:\*/|\Z)|[^\n])*", re.MULTILINE | re.DOTALL)
_DEFINE = re.compile(r"\s*\#\s*define\s+([A-Za-z_]\w*)(\(?)(.*)", re.DOTALL)
_COMMENT = re.compile(r'//[^\n]*|/\*.*?(?:\*/|\Z)|("(?:\\.|[^"\\\n])*"?)', re.DOTALL)
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}
_ENDS = (";", "__global__")


class Token(NamedTuple):
    """One token.

    Attributes:
        kind: ``word``, ``number``, ``text`` or ``sign``.
        text: as written.
        line: number of its line, from 1.
    """

    kind: str
    text: str
    line: int


def without_comments(text: str, *, keep_strings: bool = True) -> str:
    """The text with a space for every comment, and for every string if asked; lines keep their numbers."""
    return _COMMENT.sub(lambda m: (keep_strings and m[1]) or " " + "\n" * m[0].count("\n"), text)


def tokens_of(text: str) -> list[Token]:
    """The tokens of a text; directives of the preprocessor are none."""
    return [token for token, _ in _placed(text)]


def spans_of(text: str) -> list[tuple[int, int, str]]:
    """First and last offset of each token of a text, and the token as written."""
    return [(end - len(token.text), end, token.text) for token, end in _placed(text)]


def _placed(text: str) -> list[tuple[Token, int]]:
    """The tokens of a text, each with the offset of its end."""
    tokens = []
    position, line = 0, 1
    beginning = True  # of a line, but for spaces and comments
    while position < len(text):
        directive = _DIRECTIVE.match(text, text.rfind("\n", 0, position) + 1) if beginning else None
        match = None if directive and text[position] == "#" else _TOKEN.match(text, position)
        if match is None:
            end = directive.end() if directive else position + 1
        else:
            kind, end = match.lastgroup or "", match.end()
            if kind not in ("space", "comment"):
                tokens.append((Token("text" if kind in ("raw", "fence") else kind, match[0], line), end))
                beginning = False
            elif "\n" in match[0]:
                beginning = beginning or kind == "space"
        line += text.count("\n", position, end)
        position = end
    return tokens


def defined_macros(text: str) -> dict[str, str]:
    """Return a source's macros without parameters: name -> body; the first definition of a name counts."""
    macros: dict[str, str] = {}
    for name, body, _ in _definitions(text):
        macros.setdefault(name, body)
    return macros


def always_defined(text: str) -> set[str]:
    """Macros without parameters that a source defines under no condition."""
    return {name for name, _, depth in _definitions(text) if depth == 0}


_CONSTANT = re.compile(
    r"\b(?:constexpr|const)\s+(?:(?:static|const|unsigned|signed|long|short)\s+)*\w+\s+(\w+)\s*"
    r"(?:=\s*\d\w*\s*;|\{\s*\d\w*\s*\}\s*;)"
)


def fixed_constants(text: str) -> set[str]:
    """Names of constants that a source, comments and functions of the host apart, gives a literal value."""
    placed = _placed(text)
    tokens = [token for token, _ in placed]
    for first, opening, last in reversed(bodies_of(tokens)):
        if not {"__global__", "__device__"} & {token.text for token in tokens[first:opening]}:
            text = text[: placed[opening][1]] + text[placed[last][1] - 1 :]
    return {found[1] for found in _CONSTANT.finditer(text)}


_INSIDE = frozenset({"const", "noexcept", "override", ")"})  # before the brace of a function's body


def bodies_of(tokens: Sequence[Token]) -> list[tuple[int, int, int]]:
    """Of every function with a body: where its declaration begins, and the braces of the body."""
    found = []
    index = 1
    while index < len(tokens):
        if tokens[index].text == "{" and tokens[index - 1].text in _INSIDE:
            end = group_end(tokens, index)
            found.append((declared_from(tokens, index), index, end - 1))
            index = end
        else:
            index += 1
    return found


def declared_from(tokens: Sequence[Token], place: int) -> int:
    """The beginning of the statement around a place."""
    return next((i + 1 for i in range(place - 1, -1, -1) if tokens[i].text in (";", "}", "{")), 0)


def undecided_macros(text: str) -> set[str]:
    """Macros that a source defines in several ways, each under a condition."""
    bodies: dict[str, set[str]] = {}
    for name, body, _ in _definitions(text):
        bodies.setdefault(name, set()).add(body)
    return {name for name, several in bodies.items() if len(several) > 1} - always_defined(text)


def _definitions(text: str) -> Iterator[tuple[str, str, int]]:
    """Name and body of each macro without parameters, and the conditions that it is defined under."""
    depth = 0
    for directive in _DIRECTIVE.finditer(text):
        word = re.sub(r"^\s*#\s*", "", directive[0])
        depth += word.startswith("if") - word.startswith("endif")
        match = _DEFINE.match(directive[0].replace("\\\n", " "))
        if match is not None and not match[2]:
            body = re.sub(r"/\*.*?\*/|//.*", " ", match[3], flags=re.DOTALL)
            yield match[1], body.strip(), depth


def group_end(tokens: Sequence[Token], start: int) -> int:
    """The place behind the bracket that closes the one at ``start``.

    Where nothing closes it before the declaration ends, the place of that end.
    """
    opening = tokens[start].text
    closing, depth, index = _CLOSING[opening], 0, start
    while index < len(tokens):
        sign = tokens[index].text
        if sign in _ENDS and opening != "{":
            return index
        if opening == "<" and sign in ("(", "["):
            index = group_end(tokens, index)
            continue
        depth += (sign == opening) - (sign == closing)
        index += 1
        if depth == 0:
            break
    return index


def split(tokens: Sequence[Token]) -> list[list[Token]]:
    """The parts between commas that stand in no bracket; none where there is no token."""
    parts: list[list[Token]] = [[]]
    depth, valued = 0, False
    for token in tokens:
        if token.text in ("(", "[", "{") or (token.text == "<" and not valued):
            depth += 1
        elif token.text in (")", "]", "}") or (token.text == ">" and not valued):
            depth = max(0, depth - 1)
        elif token.text == "=" and depth == 0:
            valued = True
        if token.text == "," and depth == 0:
            parts.append([])
            valued = False
        else:
            parts[-1].append(token)
    return parts if tokens else []


# --- Local variables of CUDA C++ text, told apart where several have one name.

_NO_TYPE = frozenset({"return", "else", "case", "goto", "delete", "new", "throw", "using", "typedef", "do"})
_BEHIND_NAME = frozenset({"=", ";", ",", "[", "(", "{", ":"})
_BEFORE_BLOCK = frozenset({")", ";", "}", "else", "do", ":"})
_HEADED = frozenset({"for", "while", "if", "switch"})


def head_end(tokens: Sequence[Token], start: int) -> int:
    """The bracket that closes the one at ``start``, whatever statements are between."""
    depth = 0
    for index in range(start, len(tokens)):
        depth += (tokens[index].text == "(") - (tokens[index].text == ")")
        if depth == 0:
            return index
    return len(tokens)


def statement_end(tokens: Sequence[Token], start: int) -> int:
    """The place behind the statement that begins at ``start``."""
    index = start
    while index < len(tokens):
        word = tokens[index].text
        if index == start and word in _HEADED:
            opening = next((i for i in range(index, len(tokens)) if tokens[i].text == "("), index)
            end = statement_end(tokens, head_end(tokens, opening) + 1)
            return statement_end(tokens, end + 1) if _text_at(tokens, end) == "else" else end
        if word == "{":
            index = group_end(tokens, index)
            if start == index or tokens[start].text == "{":
                return index
        elif word in (";", "}"):
            return index + 1
        else:
            index += 1
    return len(tokens)


def told_apart(body: Sequence[Token], taken: Iterable[str] = ()) -> list[Token]:
    """The tokens of a function's body, with a name of its own for each variable.

    The second ``i`` is called ``i__2``, wherever it is seen.

    Args:
        body: without the brace that opens it.
        taken: names of parameters.
    """
    counts = dict.fromkeys(taken, 1)
    scopes: list[tuple[int, dict[str, str]]] = [(len(body), {})]  # where each ends, and its names
    begins, declared = {0}, set[int]()  # places of statements, and of names that they declare
    renamed: list[Token] = []
    for index, token in enumerate(body):
        while len(scopes) > 1 and scopes[-1][0] <= index:
            scopes.pop()
        before = body[index - 1].text if index else ";"
        if token.text == "{":
            scopes.append((group_end(body, index), {}))
            begins |= {index + 1} if index in begins or before in _BEFORE_BLOCK else set()
        elif token.text in _HEADED:
            opening = next((i for i in range(index, len(body)) if body[i].text == "("), index)
            begins |= {opening + 1, head_end(body, opening) + 1}
            if token.text == "for":
                scopes.append((statement_end(body, index), {}))
        elif token.text in (";", "}", "else", "do"):
            begins.add(index + 1)
        elif token.kind == "word" and index in begins:
            declared |= _declared_at(body, index)
        if index in declared:
            counts[token.text] = counts.get(token.text, 0) + 1
            same = counts[token.text]
            scopes[-1][1][token.text] = token.text if same == 1 else f"{token.text}__{same}"
        known = None
        if token.kind == "word" and before not in (".", "->", "::"):
            known = next((names[token.text] for _, names in reversed(scopes) if token.text in names), None)
        renamed.append(token if known is None else token._replace(text=known))
    return renamed


def _declared_at(tokens: Sequence[Token], start: int) -> set[int]:
    """The places of the names that a statement declares, if it is a declaration: ``float a = 1, *b``."""
    index, words = start, 0
    while index < len(tokens):
        token = tokens[index]
        following = _text_at(tokens, index + 1)
        if token.text in _NO_TYPE or token.text in _HEADED:
            return set()
        if token.kind == "word" and words and following in _BEHIND_NAME:
            break
        if token.kind == "word":
            words += token.text not in ("const", "volatile", "static", "__shared__") or not words
        elif token.text == "<":
            index = group_end(tokens, index) - 1
        elif token.text not in ("::", "*", "&") or not words:
            return set()
        index += 1
    found = {index}
    while index < len(tokens) and tokens[index].text not in (";", ":", ")", "}"):
        if tokens[index].text in ("(", "[", "{"):
            index = group_end(tokens, index)
            continue
        if tokens[index].text == ",":
            index += 1
            while _text_at(tokens, index) in ("*", "&", "const", "__restrict__"):
                index += 1
            found.add(index)
        index += 1
    return {place for place in found if place < len(tokens) and tokens[place].kind == "word"}


def _text_at(tokens: Sequence[Token], index: int) -> str:
    return tokens[index].text if index < len(tokens) else ""


# --- The variables, the textures and the pragmas of CUDA C++ text.

_VARIABLE = re.compile(r"\b__(?:constant|device|managed)__\b(?P<rest>[^;{}()=]*)[;={]")
_ALIGNMENT = re.compile(r"(?:__align__|alignas)\s*\([^()]*\)")
_PARAMETERS = re.compile(r"<[^<>]*>")  # of templates
_NAME = re.compile(r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*$")
_TEXTURE = re.compile(r"\bcudaTextureObject_t\b|\bcudaSurfaceObject_t\b|\btexture\s*<")


def declared_symbols(source: Source) -> tuple[str, ...]:
    """Names of the ``__constant__`` and ``__device__`` variables of a source and its headers."""
    names: dict[str, None] = {}
    for text in (source.text, *(text for _, text in source.headers)):
        for match in _VARIABLE.finditer(_ALIGNMENT.sub("", without_comments(text))):
            for declarator in _PARAMETERS.sub("", match["rest"]).split(","):
                name = _NAME.search(declarator.strip())
                if name is not None:
                    names[name[1]] = None
    return tuple(names)


def texture_line(text: str) -> int:
    """The first line that uses texture or surface objects; 0 where none does."""
    match = _TEXTURE.search(without_comments(text))
    return 0 if match is None else text.count("\n", 0, match.start()) + 1


def names_word(source: Source, word: str) -> bool:
    """Return True if a source or one of its headers contains a word outside comments."""
    texts = (source.text, *(text for _, text in source.headers))
    return any(re.search(rf"\b{word}\b", without_comments(text)) for text in texts)


def has_pragmas(text: str) -> bool:
    """Return True if a source has a tuning pragma of this tuner, the paper or Kernel Launcher."""
    pattern = r"^\ufeff?[ \t]*#[ \t]*pragma[ \t]+(?:tuner|erange|kernel(?:_tuner)?)\b"
    return re.search(pattern, text, re.MULTILINE) is not None
