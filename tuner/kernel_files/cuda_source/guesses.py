"""Facts of CUDA C++ text beside signatures: roles of arrays, macros, axes, symbols, used names."""

import functools
import re
from collections.abc import Collection, Mapping, Sequence

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
    parts = [_names_in(text) for text in texts]
    words = frozenset().union(*(words for words, _, _ in parts))
    if among is not None:
        words &= frozenset(among)
    names = words.difference(*(declared for _, declared, _ in parts))
    if all(names.isdisjoint(functions) for _, _, functions in parts):
        return names  # no kernel: those take ten times as long to find as all else
    return names.difference(function.name for function in global_functions("\n".join(texts)))


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


# --- Guesses from the text: macros to set, roles of arrays, block sizes and axes, constant symbols.

_GUARDED = re.compile(
    r"^[ \t]*#[ \t]*ifndef[ \t]+(\w+)\s*^[ \t]*#[ \t]*define[ \t]+\1[ \t]+([^\n]+)", re.MULTILINE
)
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:el)?if\b(?!n?def)([^\n]*)", re.MULTILINE)
_CONSTANT = re.compile(r"\bconst(?:expr)?\s+(?:unsigned\s+)?int\s+(\w+)\s*=\s*([^;{}]+);")
_CAPITALS = re.compile(r"[A-Z][A-Z0-9_]+")
_USUAL = re.compile(
    r"(?:block_size|tile_size|grid_size|work_per_thread|loop_unroll|unroll|vector|tile|use|num_threads)"
    r"(?:_[a-z0-9_]+)?|threads_per_block|\w+_per_thread"
)
_KNOWN = re.compile(
    r"NULL|NAN|INFINITY|HUGE_VALF?|EOF|M_\w+|CUDART_\w+|CU[DB]A?_\w+|CHAR_BIT|FLT_\w+|DBL_\w+"
    r"|U?(?:INT|CHAR|SHRT|LONG|LLONG)\w*_(?:MAX|MIN)|SIZE_MAX|RAND_MAX|T|N?DEBUG|WARP_SIZE"
)
_CHANGED = frozenset({"+", "-", "*", "/", "%", "&", "|", "^"})


def macros_to_set(text: str) -> dict[str, str]:
    """Macros that a source leaves to who compiles it: name -> its own default, empty where it has none."""
    guarded = {match[1]: match[2].partition("//")[0].strip() for match in _GUARDED.finditer(text)}
    defined = {name for name in defined_macros(text) if name not in guarded}
    plain = without_comments(text, keep_strings=False)
    conditions = {word for match in _CONDITION.finditer(plain) for word in _WORD.findall(match[1])}
    named = _plain_names(tokens_of(text)) & used_names(text)
    macros = {name: default for name, default in guarded.items() if not name.startswith("_")}
    for name in sorted(named | conditions, key=text.find):
        usual = _CAPITALS.fullmatch(name) or _USUAL.fullmatch(name) or name in conditions
        settled = name in defined or name == "defined" or name.startswith("_") or _KNOWN.fullmatch(name)
        if usual and not settled:
            macros.setdefault(name, "")
    return macros


def _plain_names(tokens: Sequence[Token]) -> set[str]:
    """Names that are no functions, no members and in no namespace."""
    names = set()
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        inside = before is not None and before.text in (".", "->", "::")
        called = after is not None and after.text in ("(", "::")
        if token.kind == "word" and not inside and not called:
            names.add(token.text)
    return names


def role_of(text: str, name: str) -> BufferRole:
    """Return the role of an array that is not ``const``: ``out`` if each use of it is an assignment."""
    tokens = tokens_of(text)
    uses = [i for i, token in enumerate(tokens) if token.text == name and _is_use(tokens, i)]
    kinds = {_use(tokens, index) for index in uses}
    if kinds == {"written"}:
        return "out"
    return "in" if kinds == {"read"} else "inout"


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


def block_names(text: str) -> dict[str, str]:
    """Names that stand for the extent of a block: ``{"x": "B"}`` for ``blockIdx.x * B + threadIdx.x``."""
    plain = without_comments(text)
    cast = r"(?:\([a-z_0-9 ]+\)\s*)?"
    names: dict[str, str] = {}
    for axis in "xyz":
        own = rf"blockIdx\.{axis}"
        product = rf"(?:{cast}{own}\s*\*\s*{cast}(\w+)|\b{cast}(\w+)\s*\*\s*{cast}{own})"
        match = re.search(rf"{product}\s*\+\s*threadIdx\.{axis}", plain)
        if match is not None:
            names[axis] = match[1] or match[2]
    return names


def axes_of(text: str) -> int:
    """Axes of the launch that a kernel asks for: 1, 2 or 3."""
    plain = without_comments(text, keep_strings=False)
    return next(
        (3 - i for i, axis in enumerate("zy") if re.search(rf"\b(?:thread|block)Idx\.{axis}", plain)), 1
    )


def constant_symbols(text: str) -> list[tuple[str, str | None, tuple[str, ...]]]:
    """The ``__constant__`` arrays and values of a source: name, dtype (None of a struct), extents."""
    tokens = tokens_of(text)
    macros = dict(_CONSTANT.findall(without_comments(text, keep_strings=False))) | defined_macros(text)
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


def fixed_numbers(text: str) -> dict[str, int]:
    """Whole numbers that a source defines itself and uses: macros that no ``#ifndef`` guards, constants."""
    numbers = dict(_CONSTANT.findall(without_comments(text, keep_strings=False))) | defined_macros(text)
    open_ones = macros_to_set(text)
    used = used_names(text)
    return {
        name: int(value)
        for name, value in numbers.items()
        if value.strip().isdecimal() and name in used and name not in open_ones
    }


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


def named_like(names: Collection[str], pattern: str) -> str | None:
    """The first of the names that a pattern matches wholly, in capitals or not."""
    return next((name for name in names if re.fullmatch(pattern, name, re.IGNORECASE)), None)
