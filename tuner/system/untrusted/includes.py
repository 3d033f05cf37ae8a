"""Files that a CUDA source may ``#include``: headers beside it, of its include paths, and CUDA's own.

NVRTC opens whatever a path leads to, and its messages show lines of it. So every ``#include`` and
``__has_include`` of a source and of the headers that it reaches is looked at before it is compiled. The look
errs on the strict side: text in comments and strings counts, unless its line is a comment.
"""

import functools
import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tuner.model.errors import InputError
from tuner.system.untrusted.reading import SOURCE_BYTES, TEXT_BYTES, read_bytes

_SPLICE = re.compile(r"\\[ \t]*(?:\r\n|\r|\n)")
_DIRECTIVE = re.compile(r"#|%:|\b__has_include(?:_next)?\b")
_WORD = re.compile(r"(?:include|include_next|import|embed)\b")
_SPACE = " \t\v\f\r"
_QUOTES = {'"': '"', "<": ">"}
_COMMENT_LINE = re.compile(r"[ \t]*//")
_LONGEST_NAME = 4096  # PATH_MAX
_MOST_FILES = 20_000


class RefusedIncludeError(InputError):
    """A source includes what is not among its own headers."""


@dataclass(frozen=True)
class Include:
    """A name that a text includes, or asks for by ``__has_include``.

    Attributes:
        name: as written; empty where a macro makes it.
        quoted: in quotes: looked for beside the including file first.
        line: number of the line, from 1, roughly where lines are continued.
        asked: by ``__has_include``.
    """

    name: str
    quoted: bool
    line: int
    asked: bool = False


@functools.lru_cache(maxsize=64)  # headers are shared by many kernels
def included(text: str) -> tuple[Include, ...]:
    """All names that a text includes, wherever they stand in it; in time that grows with its length."""
    text = text.replace("??=", "#").replace("??/", "\\")  # trigraphs
    text = _SPLICE.sub("", text)
    return tuple(_Scan(text).includes())


_ODD = re.compile("[\0\ud800-\udfff]")  # a null ends a text in C, and a surrogate has no place in UTF-8


def check_includes(path: str, text: str, headers: Sequence[tuple[str, str]], folders: Sequence[str]) -> None:
    """Refuse a source that reaches a file which is not its own, or of which a compiler would see a part.

    Args:
        path: of the source, for messages.
        text: the source.
        headers: (include name, text) of the headers handed over as text.
        folders: absolute folders that headers are looked for in.

    Raises:
        RefusedIncludeError: it does; the message names the file, the line and the name.
    """
    for name, body in ((path, text), *headers):
        odd = _ODD.search(body)
        if odd:
            what = "a null" if odd[0] == "\0" else "half a character"
            raise RefusedIncludeError(f"{name}: character {odd.start()} is {what}: it is no text")
    _Walk(dict(headers), [os.path.realpath(folder) for folder in folders]).look(path, text)


class _Scan:
    def __init__(self, text: str) -> None:
        self._text = text
        self._closed = [match.start() for match in re.finditer(r"\*/", text)]
        self._lines = [0, *(match.end() for match in re.finditer(r"[\r\n]", text))]
        self._skipped: dict[int, int] = {}

    def includes(self) -> Iterator[Include]:
        line, counted = 1, 0
        for match in _DIRECTIVE.finditer(self._text):
            conditional = match[0].startswith("__")
            at = self._after_space(match.end())
            if conditional:
                if self._text[at : at + 1] != "(":
                    continue
                at = self._after_space(at + 1)
            else:
                word = _WORD.match(self._text, at)
                if word is None or self._is_comment(match.start()):
                    continue
                at = self._after_space(word.end())
            line, counted = line + self._text.count("\n", counted, match.start()), match.start()
            include = self._name(at, line, conditional)
            if (
                include.name or not conditional
            ):  # asked of a macro, it tells of a header whether it is there, no more
                yield include

    def _name(self, at: int, line: int, conditional: bool) -> Include:
        opened = self._text[at : at + 1]
        if opened in _QUOTES:
            end = self._text.find(_QUOTES[opened], at + 1, at + 1 + _LONGEST_NAME)
            name = self._text[at + 1 : end] if end > 0 else ""
            if "\n" not in name:
                return Include(name or "?", opened == '"', line, conditional)
        return Include("", quoted=False, line=line, asked=conditional)

    def _is_comment(self, at: int) -> bool:
        """Return True if a position is behind ``//``, with no end of another comment between."""
        start = self._lines[bisect_right(self._lines, at) - 1]
        closed = bisect_left(self._closed, start)
        ended = closed < len(self._closed) and self._closed[closed] < at
        return not ended and _COMMENT_LINE.match(self._text, start) is not None

    def _after_space(self, at: int) -> int:
        """The place behind spaces and comments."""
        passed = []
        while True:
            if at in self._skipped:
                at = self._skipped[at]
                break
            passed.append(at)
            begun = at
            while at < len(self._text) and self._text[at] in _SPACE:
                at += 1
            if self._text.startswith("/*", at):
                index = bisect_left(self._closed, at + 2)
                if index < len(self._closed):
                    at = self._closed[index] + 2
            if at == begun:
                break
        self._skipped.update(dict.fromkeys(passed, at))
        return at


@dataclass
class _Walk:
    headers: dict[str, str]
    roots: list[str]
    seen: set[str] = field(default_factory=set)

    def look(self, path: str, text: str) -> None:
        pending = [(path, text, "")]
        read = len(text)
        while pending:
            path, text, folder = pending.pop()
            for header in (each for include in included(text) for each in self._found(path, include, folder)):
                if header in self.seen:
                    continue
                self.seen.add(header)
                inner = self._text(header)
                read += len(inner)
                if len(self.seen) > _MOST_FILES or read > 16 * SOURCE_BYTES:
                    raise RefusedIncludeError(
                        f"{path}: includes more than {16 * SOURCE_BYTES // 2**20} MiB of headers"
                    )
                pending.append((header, inner, "" if header in self.headers else os.path.dirname(header)))  # noqa: PTH120

    def _found(self, path: str, include: Include, folder: str) -> list[str]:
        """The header handed over and the file of a root that may be meant; none of what may be CUDA's."""
        where = f"{path}, line {include.line}: " + ("__has_include" if include.asked else "#include")
        if not include.name:
            raise RefusedIncludeError(
                f'{where} of a macro cannot be looked at; write the name of the header, as #include "name.h"'
            )
        passed = [include.name] if include.name in self.headers else []
        if passed and not folder:
            return passed
        if include.name.startswith("/") or "\0" in include.name:
            raise RefusedIncludeError(
                f"{where} {include.name!r} is a path from the root; name its folder in include_paths, and"
                " include it by the name that it has there"
            )
        folders = [folder, *self.roots] if include.quoted and folder else self.roots
        for root in folders:
            file = os.path.join(root, include.name)  # noqa: PTH118 - thousands of headers
            if os.path.exists(file):  # noqa: PTH110 - same
                return [*passed, self._inside(where, include, file)]
        if passed:
            return passed
        if ".." in include.name.split("/"):
            raise RefusedIncludeError(
                f"{where} {include.name!r} leads out of the folders of this kernel; name the folder that it"
                " is in in include_paths"
            )
        return []

    def _inside(self, where: str, include: Include, file: str) -> str:
        target = os.path.realpath(file)
        if not any(target.startswith(f"{root}/") for root in self.roots):
            raise RefusedIncludeError(
                f"{where} {include.name!r} leads to {target}, out of the folders of this kernel; name the"
                " folder that it is in in include_paths"
            )
        return target

    def _text(self, header: str) -> str:
        if header in self.headers:
            return self.headers[header]
        try:
            return read_bytes(Path(header), 16 * TEXT_BYTES).decode(errors="replace")
        except (OSError, ValueError) as error:
            raise RefusedIncludeError(f"{header}: cannot be included: {error}") from error
