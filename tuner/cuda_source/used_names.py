"""The names that CUDA C++ text uses and does not declare: what macros may stand for."""

import re
from collections.abc import Collection

from tuner.cuda_source.signatures import global_functions
from tuner.cuda_source.tokens import without_comments

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


def used_names(text: str, among: Collection[str] | None = None) -> frozenset[str]:
    """The names that a source uses without declaring them, as variables, (template) parameters or kernels.

    A macro may stand for these; a macro of a declared name would break its declaration.

    Args:
        text: CUDA C++.
        among: the names that are asked for; None for all.
    """
    text = without_comments(text, keep_strings=False)
    words = frozenset(_WORD.findall(text))
    if among is not None:
        words &= frozenset(among)
    if not words:
        return words
    templates = (name for match in _TEMPLATES.finditer(text) for name in _names(match[1]))
    found = words.difference(_DECLARED.findall(text), templates)
    if found.isdisjoint(_BEFORE_BRACKET.findall(text)):
        return found  # no kernel: those take ten times as long to find as all else
    return found.difference(function.name for function in global_functions(text))


def _names(parameters: str) -> tuple[str, ...]:
    """The names of template parameters, without types and default values."""
    words = (_WORD.findall(part.partition("=")[0]) for part in split_outside_brackets(parameters))
    return tuple(one[-1] for one in words if one)


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
