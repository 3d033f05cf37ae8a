"""The parameters of ``__global__`` functions, read from CUDA C++ text without a compiler."""

import re
from dataclasses import dataclass

from tuner.config.global_functions import split_outside_brackets, without_comments

_NAME = re.compile(r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*$")
_QUALIFIERS = re.compile(r"\b(?:const|volatile|__restrict__|__restrict|restrict|__grid_constant__|struct)\b")
_DTYPES = {
    "bool": "bool",
    "char": "int8",
    "signed char": "int8",
    "unsigned char": "uint8",
    "short": "int16",
    "unsigned short": "uint16",
    "int": "int32",
    "unsigned": "uint32",
    "unsigned int": "uint32",
    "long": "int64",
    "unsigned long": "uint64",
    "long long": "int64",
    "unsigned long long": "uint64",
    "size_t": "uint64",
    "half": "float16",
    "__half": "float16",
    "float": "float32",
    "double": "float64",
    "cuFloatComplex": "complex64",
    "cuComplex": "complex64",
    "cuDoubleComplex": "complex128",
    **{f"{sign}int{bits}_t": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


@dataclass(frozen=True)
class Parameter:
    """A parameter of a ``__global__`` function.

    Attributes:
        name: as the source has it; empty where it has none.
        type: without qualifiers and stars, e.g. ``unsigned int``.
        pointer: a pointer or an array.
        const: what it points to, or it itself, is not written.
        dtype: NumPy's name of the type or of what it points to; None where it has none.
    """

    name: str
    type: str
    pointer: bool
    const: bool
    dtype: str | None


def parameters_of(text: str, name: str) -> tuple[Parameter, ...] | None:
    """The parameters of a function in order; None where the text has no ``__global__`` function of the name.

    Args:
        text: CUDA C++.
        name: of the function, without namespaces and template arguments.
    """
    text = without_comments(text)
    for match in re.finditer(rf"\b{re.escape(name)}\s*\(", text):
        before = text[: match.start()]
        begin = max(before.rfind(";"), before.rfind("}"))
        if "__global__" in before[begin + 1 :]:
            inner = text[match.end() : _closing(text, match.end())]
            parts = [part.strip() for part in split_outside_brackets(inner)]
            return tuple(_parameter(part) for part in parts if part not in ("", "void"))
    return None


def _parameter(text: str) -> Parameter:
    text = text.partition("=")[0].strip()
    found = _NAME.search(text)
    name = found[1] if found else ""
    declared = text[: found.start()] if found else text
    type_ = " ".join(re.sub(r"[*&]", " ", _QUALIFIERS.sub(" ", declared)).split())
    if not type_ or name in _DTYPES:  # a parameter without a name
        type_, name = " ".join(f"{type_} {name}".split()), ""
    pointer = "*" in declared or "[" in text
    return Parameter(name, type_, pointer, bool(re.search(r"\bconst\b", declared)), dtype_of(type_))


def dtype_of(type_: str) -> str | None:
    """NumPy's name of a type of C++; None where it has none."""
    words = [word for word in type_.replace("std::", "").split() if word not in ("signed", "int")]
    plain = " ".join(words) or "int"
    return _DTYPES.get(type_) or _DTYPES.get(plain)


def _closing(text: str, start: int) -> int:
    depth = 1
    for place in range(start, len(text)):
        depth += (text[place] in "([{") - (text[place] in ")]}")
        if depth == 0:
            return place
    return len(text)
