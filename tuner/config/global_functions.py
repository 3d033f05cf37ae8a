"""The ``__global__`` functions of CUDA C++ text, found without a compiler."""

import re
from dataclasses import dataclass

_SKIPPED = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_CALLED = re.compile(r"([A-Za-z_]\w*)\s*\(")
_TEMPLATE = re.compile(r"\btemplate\s*<([^;{}]*)>[\w\s(),]*$")
_TEMPLATES = re.compile(r"\btemplate\s*<([^;{}>]*)>")
_WORD = re.compile(r"[A-Za-z_]\w*")
_TYPE = (
    r"(?:bool|signed|unsigned|auto|void|class|typename|\w+_t"
    r"|u?(?:char|short|int|long)[1-4]?|(?:float|double|(?:__)?half|(?:__)?nv_bfloat16)[1-4]?)"
)
_DECLARED = re.compile(
    rf"\b{_TYPE}(?:\s+{_TYPE})*(?:\s+const)?[\s*&]+(?:(?:const|__restrict__|__restrict)\s+)*([A-Za-z_]\w*)"
)


@dataclass(frozen=True)
class GlobalFunction:
    """A ``__global__`` function.

    Attributes:
        name: its name.
        template_parameters: names of its template parameters, in order; those with a default value, too.
    """

    name: str
    template_parameters: tuple[str, ...] = ()


def global_functions(text: str) -> tuple[GlobalFunction, ...]:
    """The ``__global__`` functions of a source, each name once, in their order."""
    text = without_comments(text)
    found: dict[str, GlobalFunction] = {}
    for match in re.finditer(r"\b__global__\b", text):
        name = _name_after(text, match.end())
        if name is not None:
            found.setdefault(name, GlobalFunction(name, _parameters_before(text[: match.start()])))
    return tuple(found.values())


def without_comments(text: str) -> str:
    """The text with a blank for every comment and every string."""
    return _SKIPPED.sub(" ", text)


def used_names(text: str) -> frozenset[str]:
    """The names that a source uses without declaring them, as variables, (template) parameters or kernels.

    A macro may stand for these; a macro of a declared name would break its declaration.
    """
    text = without_comments(text)
    templates = (name for match in _TEMPLATES.finditer(text) for name in _names(match[1]))
    kernels = (function.name for function in global_functions(text))
    return frozenset(_WORD.findall(text)).difference(_DECLARED.findall(text), templates, kernels)


def _name_after(text: str, start: int) -> str | None:
    """The name of the function: the first that a parenthesis follows, attributes apart."""
    while (match := _CALLED.search(text, start)) is not None:
        if not match[1].startswith("__"):
            return match[1]
        start = _closing(text, match.end())
    return None


def _closing(text: str, start: int) -> int:
    depth = 1
    for place in range(start, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth == 0:
            return place + 1
    return len(text)


def _parameters_before(text: str) -> tuple[str, ...]:
    match = _TEMPLATE.search(text)
    return () if match is None else _names(match[1])


def _names(parameters: str) -> tuple[str, ...]:
    """The names of template parameters, without types and default values."""
    words = (_WORD.findall(part.partition("=")[0]) for part in _split(parameters))
    return tuple(one[-1] for one in words if one)


def _split(text: str) -> list[str]:
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
