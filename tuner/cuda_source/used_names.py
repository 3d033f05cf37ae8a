"""The names that CUDA C++ text uses and does not declare: what macros may stand for."""

import re
from collections.abc import Collection

from tuner.cuda_source.signatures import global_functions
from tuner.cuda_source.tokens import without_comments

_TEMPLATES = re.compile(r"\btemplate\s*<([^;{}>]*)>")
_WORD = re.compile(r"[A-Za-z_]\w*")
_BEFORE_BRACKET = r"\s*[(#\\]"  # or before a directive or a continued line
_TYPE = (
    r"(?:bool|signed|unsigned|auto|void|class|typename|\w+_t"
    r"|u?(?:char|short|int|long)[1-4]?|(?:float|double|(?:__)?half|(?:__)?nv_bfloat16)[1-4]?)"
)
_DECLARED = re.compile(
    rf"\b{_TYPE}(?:\s+{_TYPE})*(?:\s+const)?[\s*&]+(?:(?:const|__restrict__|__restrict)\s+)*([A-Za-z_]\w*)"
)
_OF_DECLARATION = re.compile(r"[\w\s*&]*")  # no declaration that the pattern finds has other characters


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
    asked = _any_of(words)
    lists = (match[1] for match in _TEMPLATES.finditer(text) if asked.search(match[1]))
    found = words.difference(_declared(text, asked), *map(_names, lists))
    if not found or re.search(_any_of(found).pattern + _BEFORE_BRACKET, text) is None:
        return found  # no kernel: those take ten times as long to find as all else
    return found.difference(function.name for function in global_functions(text))


def _any_of(words: Collection[str]) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(words)})\b")


def _declared(text: str, asked: re.Pattern[str]) -> set[str]:
    """The words that a text declares; only what stands right beside each is searched, which is little."""
    found: set[str] = set()
    backwards = text[::-1]
    for match in asked.finditer(text):
        before = _OF_DECLARATION.match(backwards, len(text) - match.end())
        behind = _OF_DECLARATION.match(text, match.end())
        if match[0] not in found and before and behind:
            found.update(_DECLARED.findall(text[len(text) - before.end() : behind.end()]))
    return found


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
