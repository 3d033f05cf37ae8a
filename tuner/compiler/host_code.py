"""Code of the host in the source of a kernel: left out where NVRTC says that it is none of the device's.

NVRTC compiles no function and no variable without an execution or memory space, and names the line of each.
What nvcc takes as it is, a file with ``main``, so compiles here without a change; lines keep their numbers.
"""

import re
from collections.abc import Sequence

from tuner.kernel_files.cuda_source.tokens import spans_of

Texts = tuple[tuple[str, str], ...]
"""Name and text of a source, which is the first, and its headers."""

_OF_HOST = re.compile(
    r"^(.+)\((\d+)\): error: A (function|namespace scope variable) without (?:execution|memory) space"
    r" annotations[^\n]*\n([^\n]*)\n([ \t]*)\^",
    re.MULTILINE,
)
_NOT_FOUND = re.compile(
    r'^(.+)\((\d+)\): (?:catastrophic )?error: (?:could not|cannot) open source file "', re.MULTILINE
)
_USING = re.compile(r'^(.+)\((\d+)\): error: namespace "std" has no member "\w+"\n[ \t]*using ', re.MULTILINE)
_LAUNCHES = re.compile(r"<<<|\bmain\s*\(")
_OF_DEVICE = re.compile(r"\b__(?:global|device|constant)__\b")
_LINE = re.compile(r"[ \t]*#[ \t]*line[ \t]+(\d+)")
_OPEN, _CLOSE = frozenset("({["), frozenset(")}]")


_OWN_HEADER = re.compile(r'[ \t]*#[ \t]*include[ \t]*"')


def without_host_code(texts: Texts, log: str) -> Texts | None:
    """The texts without what a log calls code of the host; None where it calls nothing so.

    Headers in angle brackets that are not there count, too, in a file that launches kernels: they may be the
    host's.
    """
    places: dict[str, list[tuple[int, int, str]]] = {}
    for name, line, kind, shown, caret in _OF_HOST.findall(log):
        places.setdefault(name, []).append((int(line), len(caret) - (len(shown) - len(shown.lstrip())), kind))
    if _LAUNCHES.search(texts[0][1]):
        for name, line in (*_NOT_FOUND.findall(log), *_USING.findall(log)):
            places.setdefault(name, []).append((int(line), 0, ""))
    changed = tuple((name, _blanked(text, places.get(name, ()))) for name, text in texts)
    return None if changed == texts else changed


def _blanked(text: str, places: Sequence[tuple[int, int, str]]) -> str:
    """The text with spaces for the statements at some lines and columns behind their indent."""
    if not places:
        return text
    starts = _line_starts(text)
    spans = spans_of(text)
    for line, column, kind in places:
        if line not in starts:
            continue
        begin = starts[line]
        end = text.find("\n", begin)
        row = text[begin : end if end >= 0 else len(text)]
        if not kind:
            if _OWN_HEADER.match(row):  # may hold what the kernel's code depends on
                continue
            text = text[:begin] + " " * len(row) + text[begin + len(row) :]
            continue
        offset = begin + len(row) - len(row.lstrip()) + max(0, column)
        first, last = _statement(spans, offset, kind)
        if _OF_DEVICE.search(text, first, last):  # an error in what it is made of has led NVRTC there
            continue
        text = text[:first] + re.sub(r"[^\n]", " ", text[first:last]) + text[last:]
    return text


def _line_starts(text: str) -> dict[int, int]:
    """The offset of each line, by the number that ``#line`` gives it."""
    starts: dict[int, int] = {}
    number, offset = 1, 0
    for line in text.splitlines(keepends=True):
        starts[number] = offset
        offset += len(line)
        stated = _LINE.match(line)
        number = int(stated[1]) if stated else number + 1
    return starts


def _statement(spans: Sequence[tuple[int, int, str]], offset: int, kind: str) -> tuple[int, int]:
    """First and last offset of the declaration that an offset lies in."""
    at = next((i for i, (_, end, _) in enumerate(spans) if end > offset), len(spans) - 1)
    first = at
    depth = 0
    while first > 0:
        sign = spans[first - 1][2]
        depth += (sign in _CLOSE) - (sign in _OPEN)
        if depth < 0 or (depth == 0 and sign == ";") or sign == "}":
            break
        if sign == ":" and spans[first - 2][2] in ("public", "private", "protected"):
            break
        first -= 1
    depth, last = 0, at
    while last < len(spans):
        sign = spans[last][2]
        depth += (sign in _OPEN) - (sign in _CLOSE)
        if depth < 0:
            last -= 1
            break
        if depth == 0 and (sign == ";" or (sign == "}" and kind == "function")):
            break
        last += 1
    return spans[first][0], spans[min(last, len(spans) - 1)][1]
