"""Parameters of CUDA C++ functions: their names, and the dtypes of their C types."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.cuda_source.tokens import Token, group_end, split, tokens_of

_QUALIFIERS = frozenset(
    {
        *("const", "volatile", "restrict", "__restrict__", "__restrict", "__const__", "__grid_constant__"),
        *("register", "struct", "class", "union", "enum", "typename", "constexpr"),
    }
)
_SIGNS = frozenset({"signed", "unsigned"})
BUILT_IN = frozenset(
    {"bool", "char", "short", "int", "long", "float", "double", "void", "auto", "wchar_t", *_SIGNS}
)
_WHOLE = {"char": 8, "short": 16, "int": 32, "long": 64, "longlong": 64}  # bits under Linux
_DTYPES = {
    "bool": "bool",
    "float": "float32",
    "double": "float64",
    "size_t": "uint64",
    "ptrdiff_t": "int64",
    "uchar": "uint8",
    "ushort": "uint16",
    "uint": "uint32",
    "ulong": "uint64",
    "half": "float16",
    "__half": "float16",
    "nv_bfloat16": "bfloat16",
    "__nv_bfloat16": "bfloat16",
    "float2": "complex64",
    "double2": "complex128",
    "cuComplex": "complex64",
    "cuFloatComplex": "complex64",
    "cuDoubleComplex": "complex128",
    "complex<float>": "complex64",
    "complex<double>": "complex128",
    **{f"{sign}int{bits}_t": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_MAX_ALIASES = 8  # of a type that is an alias of an alias; ends circles


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function.

    Attributes:
        name: empty where it has none.
        type: type as text, without ``const`` and ``__restrict__``; of a pointer, what it points to.
        pointer: whether it is a pointer, a reference or an array.
        const: whether the value, or what the pointer points to, is ``const``.
        dtype: element type as NumPy names it (and ``bfloat16``); None for any other, as ``void`` or a struct.
    """

    name: str
    type: str
    pointer: bool
    const: bool
    dtype: str | None

    def __str__(self) -> str:
        return f"{'const ' * (self.const and self.pointer)}{self.type}{'*' * self.pointer}"


def parameters_in(text: str) -> list[Parameter]:
    """The parameters of a list of types, as a demangler writes it: ``float const*, int``."""
    parts = split(tokens_of(text))
    return [one for one in (parameter_of(part, {}) for part in parts) if one is not None]


def dtype_of(type_text: str) -> str | None:
    """The dtype of a C type, as ``float32`` of ``float``; None where NumPy has no single one."""
    words = type_text.replace("std::", "").replace("cuda::", "").replace("thrust::", "").split()
    if not words or not set(words) & (_WHOLE.keys() | _SIGNS):
        return _DTYPES.get("".join(words))
    sign = "u" if "unsigned" in words else ""
    rest = [word for word in words if word not in _SIGNS]
    if len(rest) > 1 and rest != ["long", "long"]:
        rest = [word for word in rest if word != "int"]
    bits = _WHOLE.get("".join(rest) or "int")
    return None if bits is None else f"{sign}int{bits}"


def parameter_of(part: Sequence[Token], aliases: Mapping[str, str]) -> Parameter | None:
    """The parameter of some tokens; None for the ``void`` of an empty list."""
    words = _declaration(part)
    if words in ([], ["void"]):
        return None
    name = ""
    brackets = words.index("[") if "[" in words else None
    if "(" in words:  # a pointer to a function or a reference to an array
        inner = words[words.index("(") :]
        name = next((word for word in inner if word.isidentifier() and word not in _QUALIFIERS), "")
        first = " ".join(words[: words.index("(")])
        return Parameter(name, f"{first} ()", pointer=True, const="const" in words, dtype=None)
    if brackets is not None:
        words = words[:brackets]
    name, words = _without_name(words)
    if brackets is not None:
        words = [*words, "*"]
    for _ in range(_MAX_ALIASES):
        if not any(word in aliases and aliases[word] for word in words):
            break
        words = [text for word in words for text in (aliases.get(word) or word).split()]
    return _typed(name, words)


def _declaration(part: Sequence[Token]) -> list[str]:
    """The words of a parameter up to its default value, without attributes."""
    words: list[str] = []
    place = 0
    while place < len(part) and part[place].text != "=":
        text = part[place].text
        following = part[place + 1].text if place + 1 < len(part) else ""
        if text == "[" and following == "[":
            place = group_end(part, place)
        elif text in ("__attribute__", "__align__", "alignas") and following == "(":
            place = group_end(part, place + 1)
        else:
            words += ["&", "&"] if text == "&&" else [text]
            place += 1
    return words


def _without_name(words: list[str]) -> tuple[str, list[str]]:
    """The name that ends a declaration, and the type before it."""
    types = [word for word in words if word.isidentifier() and word not in _QUALIFIERS]
    last = words[-1] if words else ""
    unnamed = (
        not last.isidentifier()
        or last in _QUALIFIERS
        or last in BUILT_IN
        or len(types) < 2  # noqa: PLR2004 - a type and a name
        or words[-2:-1] == ["::"]
    )
    return ("", words) if unnamed else (last, words[:-1])


def _typed(name: str, words: Sequence[str]) -> Parameter:
    marks = [i for i, word in enumerate(words) if word in ("*", "&") and ">" not in words[i:]]
    pointee = list(words[: marks[-1]] if marks else words)
    outer = [word for word in pointee if word not in _QUALIFIERS]
    text = " ".join(outer)
    for sign in ("::", "<", ">", ",", "*", "&"):
        text = text.replace(f" {sign} ", sign).replace(f" {sign}", sign)
    text = text.replace("< ", "<").replace(":: ", "::").replace(",", ", ").lstrip(":")
    return Parameter(name, text.strip(), bool(marks), "const" in pointee, dtype_of(text.replace(", ", ",")))
