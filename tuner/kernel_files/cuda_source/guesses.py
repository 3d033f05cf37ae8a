"""Facts of CUDA C++ text beside signatures: roles of arrays, macros, axes, symbols, used names."""

import functools
import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from tuner.kernel_files.cuda_source.signatures import dtype_of, global_functions
from tuner.kernel_files.cuda_source.tokens import (
    Token,
    defined_macros,
    group_end,
    tokens_of,
    without_comments,
)
from tuner.model.plan import BufferRole

# --- The names that CUDA C++ text uses and does not declare: what macros may stand for.

_TEMPLATES = re.compile(r"\btemplate\s*<([^;{}>]*)>")
_WORD = re.compile(r"[A-Za-z_]\w*")
_BEFORE_BRACKET = re.compile(r"([A-Za-z_]\w*)\s*[(#\\]")  # or before a directive or a continued line
_TYPE = (
    r"(?:bool|signed|unsigned|auto|void|class|typename|\w+_t"
    r"|u?(?:char|short|int|long)[1-4]?|(?:float|double|(?:__)?half|(?:__)?nv_bfloat16)[1-4]?)"
)
_DECLARED = re.compile(
    rf"\b{_TYPE}(?:\s+{_TYPE})*(?:\s+const)?[\s*&]+(?:(?:const|__restrict__|__restrict)\s+)*([A-Za-z_]\w*)"
)


def used_names(*texts: str, among: Collection[str] | None = None) -> frozenset[str]:
    """The names that a source uses without declaring them, as variables, (template) parameters or kernels.

    A macro may stand for these; a macro of a declared name would break its declaration.
    """
    naming = texts if among is None else [text for text in texts if _mentions(text, tuple(among))]
    parts = [_names_in(text) for text in naming]
    words = frozenset().union(*(words for words, _, _ in parts))
    if among is not None:
        words &= frozenset(among)
    names = words.difference(*(declared for _, declared, _ in parts))
    if all(names.isdisjoint(functions) for _, _, functions in parts):
        return names  # no kernel: those take ten times as long to find as all else
    declaring = [text for text in texts if "__global__" in text or _mentions(text, tuple(names))]
    return names.difference(function.name for function in global_functions("\n".join(declaring)))


@functools.lru_cache(maxsize=128)  # sources of a kernel share their headers
def _mentions(text: str, names: tuple[str, ...]) -> bool:
    """True where a text has one of some names, as most headers have none."""
    return any(name in text and re.search(rf"\b{name}\b", text) for name in names)


@functools.lru_cache(maxsize=256)  # headers are shared by many kernels
def _names_in(text: str) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """All names in a text, those behind a type or of template parameters, and those that may be functions."""
    text = without_comments(text, keep_strings=False)
    templates = {name for parameters in set(_TEMPLATES.findall(text)) for name in _names(parameters)}
    return (
        frozenset(_WORD.findall(text)),
        frozenset(_DECLARED.findall(text)) | templates,
        frozenset(_BEFORE_BRACKET.findall(text)),
    )


def _names(parameters: str) -> tuple[str, ...]:
    """The names of template parameters, without types and default values."""
    words = (_WORD.findall(part.partition("=")[0]) for part in split_outside_brackets(parameters))
    return tuple(part[-1] for part in words if part)


def split_outside_brackets(text: str) -> list[str]:
    """The parts of a list, cut at the commas that stand in no brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "<([{") - (letter in ">)]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


# --- Guesses from the text: macros to set, roles of arrays, constant symbols, structs.

_GUARDED = re.compile(
    r"^[ \t]*#[ \t]*ifndef[ \t]+(\w+)\s*^[ \t]*#[ \t]*define[ \t]+\1[ \t]+([^\n]+)", re.MULTILINE
)
_CHOSEN = re.compile(  # #ifdef X, #define B X, ..., #else, #define B 16
    r"^[ \t]*#[ \t]*if(?:def[ \t]+|[ \t]+defined\s*\(?\s*)(\w+)\)?\s*"
    r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+\1\s*"
    r"(?:^[ \t]*#[ \t]*elif[^\n]*\s*^[ \t]*#[ \t]*define[ \t]+\2[ \t][^\n]*\s*)*"
    r"^[ \t]*#[ \t]*else\s*^[ \t]*#[ \t]*define[ \t]+\2[ \t]+(\d+)",
    re.MULTILINE,
)
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(el)?if\b(?!n?def)([^\n]*)", re.MULTILINE)
_LONGEST = 256  # tokens of a statement
_DEFINED = re.compile(r"\bdefined\s*\(?\s*\w+\s*\)?")
_COMPARED = re.compile(r"\b([A-Za-z_]\w*)\s*(?:[=!]=|[<>]=?)\s*(\d+)\b")
_NO_MACRO = frozenset({"defined", "and", "or", "not", "true", "false", "__has_include"})
_CONSTANT = re.compile(r"\bconst(?:expr)?\s+(?:unsigned\s+)?int\s+(\w+)\s*=\s*([^;{}]+);")
_CHANGED = frozenset({"+", "-", "*", "/", "%", "&", "|", "^"})


class Macro(NamedTuple):
    """A macro, or a parameter of a template, that who compiles a source chooses.

    Attributes:
        default: as the source states it; empty where it states none.
        is_bool: it is true or false.
        values: that the source tells apart; none where it does not.
        conditional: the preprocessor asks for it.
    """

    default: str
    is_bool: bool = False
    values: tuple[int, ...] = ()
    conditional: bool = False

    @property
    def first(self) -> int | None:
        """The value to begin with, where the source tells one."""
        if self.default.isdecimal():
            return int(self.default)
        return (1 if 1 in self.values else self.values[0]) if self.values else (1 if self.is_bool else None)


def macros_of(text: str, foreign: Sequence[range]) -> dict[str, Macro]:
    """Macros with a guarded definition, and those that conditions of the preprocessor compare.

    Args:
        text: of a source.
        foreign: lines of other kernels; what is used nowhere else is left out.
    """
    plain = without_comments(text, keep_strings=False)
    guarded = {match[1]: match[2].partition("//")[0].strip() for match in _GUARDED.finditer(plain)}
    chosen = {match[1]: (match[2], match[3]) for match in _CHOSEN.finditer(plain)}
    inner = {word for match in _CHOSEN.finditer(plain) for word in _WORD.findall(match[0])}
    defined = {name for name in defined_macros(text) if name not in guarded} | inner
    compared: dict[str, set[int]] = {}
    for match in _CONDITION.finditer(plain):
        condition = _DEFINED.sub(" ", match[2])
        for name in set(_WORD.findall(condition)) - _NO_MACRO - defined:
            values = {int(value) for one, value in _COMPARED.findall(condition) if one == name}
            compared.setdefault(name, set()).update(values or {0, 1})
    macros: dict[str, Macro] = {}
    for name, default in guarded.items():
        if default.strip("()").isdecimal():
            macros[name] = Macro(default.strip("()"), values=tuple(sorted(compared.get(name, ()))))
    for name, found in compared.items():
        others = found if len(found) > 1 else found | {1 if found == {0} else 0}
        macros.setdefault(name, Macro("", values=tuple(sorted(others)), conditional=True))
    macros |= {name: Macro(default) for name, (_, default) in chosen.items()}
    own = [
        line for place, line in enumerate(plain.splitlines(), 1) if not any(place in one for one in foreign)
    ]
    uses = re.findall(
        r"\w+", "\n".join(line for line in own if not re.match(r"\s*#\s*(?:ifndef|define)\s", line))
    )
    uses += re.findall(
        r"\w+", " ".join(body for name, body in defined_macros(text).items() if name not in guarded)
    )
    return {
        name: macro
        for name, macro in macros.items()
        if (name in uses or (name in chosen and chosen[name][0] in uses))
        and not name.startswith("__")
        and not name.startswith("CUDA")
    }


def role_of(
    tokens: Sequence[Token], names: Collection[str], given: Collection[int] = frozenset()
) -> BufferRole:
    """Return the role of an array that is not ``const``: ``out`` if each use of it is an assignment.

    Args:
        tokens: of a kernel's body.
        names: of the array, and of pointers into it.
        given: places of the tokens that tell where those point.
    """
    places = [i for i, token in enumerate(tokens) if token.text in names and i not in given]
    uses = [i for i in places if _is_use(tokens, i)]
    kinds = {_use(tokens, index) for index in uses}
    if kinds == {"written"} or (uses and _written_first(tokens, uses, names)):
        return "out"
    return "in" if kinds == {"read"} else "inout"


def _written_first(tokens: Sequence[Token], uses: Sequence[int], names: Collection[str]) -> bool:
    """Return True if every use is of one index, and the first gives what is there, whatever the others do."""
    if _use(tokens, uses[0]) != "written" or not overwritten(tokens[: uses[0] + _LONGEST], names, uses[0]):
        return False
    indices = {
        re.sub(r"__\d+\b", "", " ".join(one.text for one in tokens[index + 1 : group_end(tokens, index + 1)]))
        for index in uses
        if tokens[index + 1].text == "["
    }
    handed = any(tokens[index + 1].text != "[" for index in uses)
    return len(indices) == 1 and not handed and "else" not in {one.text for one in tokens[uses[0] : uses[-1]]}


def overwritten(tokens: Sequence[Token], names: Collection[str], start: int = 0) -> bool:
    """Return True if an array is given what is not made of it in the same statement, as a sort does."""
    for index, token in enumerate(tokens):
        if (
            index >= start
            and token.text in names
            and _is_use(tokens, index)
            and _use(tokens, index) == "written"
        ):
            end = next((i for i in range(index, len(tokens)) if tokens[i].text == ";"), len(tokens))
            start = next((i for i in range(index, end) if tokens[i].text == "="), end)
            if not any(one.text in names for one in tokens[start:end]):
                return True
    return False


def _is_use(tokens: Sequence[Token], index: int) -> bool:
    """Return True if the name is used in code, not in a parameter list or as a member."""
    before = tokens[index - 1].text if index else ""
    after = tokens[index + 1].text if index + 1 < len(tokens) else ""
    declared = before in ("*", "&", "__restrict__", "__restrict", "const") and after in (",", ")", "[")
    return before not in (".", "->") and not (declared and after != "[")


def _use(tokens: Sequence[Token], index: int) -> str:
    if index + 1 >= len(tokens) or tokens[index + 1].text != "[":
        return "handed on"
    behind = index + 1
    while behind < len(tokens) and tokens[behind].text == "[":
        behind = group_end(tokens, behind)
    before = tokens[index - 1].text if index else ""
    follows = [token.text for token in tokens[behind : behind + 2]]
    if before == "&" or follows[:1] in (["."], ["->"]):
        return "handed on"
    if follows[:1] == ["="]:
        return "written"
    changed = len(follows) > 1 and follows[0] in _CHANGED and follows[1] == "="
    counted = len(follows) > 1 and follows[0] == follows[1] and follows[0] in "+-"
    return "changed" if changed or counted else "read"


def constant_symbols(text: str, kept: Collection[str] = ()) -> list[tuple[str, str | None, tuple[str, ...]]]:
    """The ``__constant__`` arrays and values of a source: name, dtype (None of a struct), extents.

    Macros in extents are written out, but those that are ``kept``.
    """
    tokens = tokens_of(text)
    macros = dict(_CONSTANT.findall(without_comments(text, keep_strings=False))) | defined_macros(text)
    macros = {name: body for name, body in macros.items() if name not in kept}
    symbols = []
    for index, token in enumerate(tokens):
        if token.text != "__constant__":
            continue
        words = [following.text for following in tokens[index + 1 : index + 64]]
        words = words[: next((i for i, word in enumerate(words) if word in (";", "=", "{")), 0)]
        first = words.index("[") if "[" in words else len(words)
        if first > 1:
            kind = " ".join(word for word in words[: first - 1] if word not in ("const", "static"))
            symbols.append((words[first - 1], dtype_of(kind), _axes(words[first:], macros)))
    return symbols


def struct_fields(text: str, name: str) -> dict[str, str] | None:
    """The fields of a struct that a source defines, and their types as NumPy names them.

    None where it is not found, or a field is not a plain number.
    """
    tokens = [token.text for token in tokens_of(text)]
    for index, word in enumerate(tokens):
        if word != "struct" or "{" not in tokens[index : index + 8]:
            continue
        opening = tokens.index("{", index)
        closing = group_end(tokens_of(text), opening)
        if name not in (tokens[opening - 1], *tokens[closing : closing + 1]):
            continue
        return _plain_fields(tokens[opening + 1 : closing - 1])
    return None


def _plain_fields(words: Sequence[str]) -> dict[str, str] | None:
    fields: dict[str, str] = {}
    for line in " ".join(words).split(";"):
        if not line.strip():
            continue
        first, *others = line.split(",")
        kind, _, field = first.strip().rpartition(" ")
        dtype = dtype_of(kind)
        names = [field, *(other.strip() for other in others)]
        if dtype is None or not all(name.isidentifier() for name in names):
            return None
        fields |= dict.fromkeys(names, dtype)
    return fields or None


def _axes(words: Sequence[str], macros: Mapping[str, str]) -> tuple[str, ...]:
    """Extents between brackets, with macros of the source written out."""
    text = " ".join(words)
    for _ in range(4):
        text = _WORD.sub(lambda match: macros.get(match[0]) or match[0], text)
    return tuple(extent.replace(" ", "") for extent in re.findall(r"\[([^\[\]]+)\]", text)) or ("1",)
