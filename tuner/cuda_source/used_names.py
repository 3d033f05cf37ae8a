"""The names that CUDA C++ text uses and does not declare: what macros may stand for."""

import functools
import re
from collections.abc import Collection
from dataclasses import dataclass

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


def used_names(*texts: str, among: Collection[str] | None = None) -> frozenset[str]:
    """The names that a source uses without declaring them, as variables, (template) parameters or kernels.

    A macro may stand for these; a macro of a declared name would break its declaration.

    Args:
        texts: CUDA C++ of a source and its headers.
        among: the names that are asked for; None for all.
    """
    parts = [_names_in(text) for text in texts]
    words = frozenset().union(*(part.words for part in parts))
    if among is not None:
        words &= frozenset(among)
    found = words.difference(*(part.declared for part in parts))
    if all(found.isdisjoint(part.before_bracket) for part in parts):
        return found  # no kernel: those take ten times as long to find as all else
    return found.difference(function.name for function in global_functions("\n".join(texts)))


@dataclass(frozen=True)
class _TextNames:
    """The names in a text.

    Attributes:
        words: all.
        declared: behind a type, or as template parameters.
        before_bracket: that may be functions.
    """

    words: frozenset[str]
    declared: frozenset[str]
    before_bracket: frozenset[str]


@functools.lru_cache(maxsize=256)  # headers are shared by many kernels
def _names_in(text: str) -> _TextNames:
    text = without_comments(text, keep_strings=False)
    templates = {name for parameters in set(_TEMPLATES.findall(text)) for name in _names(parameters)}
    return _TextNames(
        frozenset(_WORD.findall(text)),
        frozenset(_DECLARED.findall(text)) | templates,
        frozenset(_BEFORE_BRACKET.findall(text)),
    )


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
