"""Finds the tuning pragmas of a source: outside comments and strings, with their places in bytes."""

import functools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.cuda_source.signatures import GlobalFunction, global_functions
from tuner.model.errors import KernelFileError

OWN = "tuner"
OF_KERNEL_LAUNCHER = ("kernel", "kernel_tuner")
OF_THE_PAPER = ("erange", "range")  # G-ADAPT writes them without a prefix
MOST_DIRECTIVES = 2000

# Places are bytes: the source is looked at as one letter for each byte of UTF-8.
_PIECE = re.compile(
    r"""
      (?P<comment>//(?:\\\r?\n|[^\n])*|/\*.*?(?:\*/|\Z))
    | (?P<raw>(?:u8|[uUL])?R"(?P<fence>[^()\\\s]{0,16})\(.*?(?:\)(?P=fence)"|\Z))
    | (?P<text>"(?:\\\r?.|[^"\\\n])*"?|'(?:\\\r?.|[^'\\\n])*'?)
    | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
    | (?P<operator>\b_Pragma\s*\(\s*"\s*(?P<quoted>\w+))
    | (?P<word>[A-Za-z_]\w*)
    | (?P<directive>^[ \t]*\#(?:\\\r?\n|/\*.*?(?:\*/|\Z)
        |//(?:\\\r?\n|[^\n])*|"(?:\\.|[^"\\\n])*"?|'\\?.'|[^\n])*\n?)
    | (?P<late>\#[ \t]*pragma[ \t]+(?P<pragma>\w+))
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*"?)|//.*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_SPLIT = re.compile(r"\s*#\s*(\w*)\s*(.*)", re.DOTALL)
_BYTE_ORDER_MARK = "\ufeff".encode()
_KERNELS_ONLY = ("__CUDACC_RTC__", "__CUDA_ARCH__", "__CUDACC__")


@dataclass(frozen=True)
class Directive:
    """One tuning pragma.

    Attributes:
        family: ``tuner``, or ``kernel`` for Kernel Launcher's.
        keyword: what it is, as ``erange``; empty for Kernel Launcher's, whose clauses say it.
        text: what follows, on one line and without comments.
        line: number of its line, from 1.
        column: of the ``#``, from 1.
        start: its first byte.
        end: the byte behind its last line.
        guards: the conditions of the preprocessor around it, outermost first.
        branches: where these begin: two pragmas under the same ones have the same places.
    """

    family: str
    keyword: str
    text: str
    line: int
    column: int
    start: int
    end: int
    guards: tuple[str, ...] = ()
    branches: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.family} {self.keyword}".strip()


@dataclass(frozen=True)
class PragmaSource:
    """A source with tuning pragmas.

    Attributes:
        path: what messages begin with.
        text: as UTF-8.
        directives: in their order.
        blank: the text with spaces for the pragmas: the same places, and the same lines.
        code: the same with spaces for comments and all directives of the preprocessor, too.
        conditions: of the preprocessor: where each stands, and what it says.
    """

    path: Path
    text: bytes
    directives: tuple[Directive, ...]
    blank: bytes
    code: bytes
    conditions: tuple[tuple[int, str], ...] = ()

    @functools.cached_property
    def words(self) -> frozenset[str]:
        """All words outside pragmas, also those of comments and texts."""
        return frozenset(re.findall(r"\w+", self.blank.decode("latin-1")))

    @functools.cached_property
    def defined(self) -> Mapping[str, int]:
        """How often a macro is defined or undefined."""
        pattern = r"^[ \t]*#[ \t]*(?:define|undef)[ \t]+(\w+)"
        return Counter(re.findall(pattern, self.blank.decode("latin-1"), re.MULTILINE))

    @functools.cached_property
    def functions(self) -> tuple[GlobalFunction, ...]:
        """The ``__global__`` functions."""
        return tuple(global_functions(self.blank.decode(errors="replace")))

    def place(self, byte: int) -> tuple[int, int]:
        """Line and column of a byte, from 1."""
        start = self.text.rfind(b"\n", 0, byte) + 1
        column = len(self.text[start:byte].decode(errors="replace")) + 1
        return self.text.count(b"\n", 0, byte) + 1, column

    def error(self, at: Directive | int, message: object) -> KernelFileError:
        """An error that names the file, the line and the column of a pragma or of a byte."""
        line, column = (at.line, at.column) if isinstance(at, Directive) else self.place(at)
        pragma = f"#pragma {at}: " if isinstance(at, Directive) else ""
        return KernelFileError(f"{self.path}, line {line}, column {column}: {pragma}{message}")


def has_pragmas(text: str) -> bool:
    """Whether a source has a tuning pragma of this tuner, the paper or Kernel Launcher."""
    pattern = r"^\ufeff?[ \t]*#[ \t]*pragma[ \t]+(?:tuner|erange|kernel(?:_tuner)?)\b"
    return re.search(pattern, text, re.MULTILINE) is not None


def read_pragmas(path: Path, text: str) -> PragmaSource:
    """The pragmas of a source.

    Args:
        path: what messages begin with.
        text: CUDA C++.

    Raises:
        KernelFileError: a pragma stands where whether it counts is decided only when compiling, or as
            ``_Pragma``, or there are too many.
    """
    data = text.encode()
    letters = data.decode("latin-1")
    if data.startswith(_BYTE_ORDER_MARK):  # it stands before the first line, not in it
        letters = letters.replace(letters[:3], "   ", 1)
    blank, code = bytearray(data), bytearray(data)
    found: list[Directive] = []
    guards: list[str] = []
    branches: list[int] = []
    conditions: list[tuple[int, str]] = []
    wrong: list[tuple[int, str]] = []
    line, counted = 1, 0
    for piece in _PIECE.finditer(letters):
        kind = piece.lastgroup
        if kind in ("comment", "directive"):
            _erase(code, piece.start(), piece.end())
        wrong += _misplaced(piece)
        if kind != "directive":
            continue
        line += letters.count("\n", counted, piece.start())
        counted = piece.start()
        word, rest = _parts(piece[0])
        directive = _directive(piece, rest, line, guards, branches) if word == "pragma" else None
        if directive is not None:
            found.append(directive)
            _erase(blank, piece.start(), piece.end())
        if _follow(guards, branches, word, rest, piece.start()):
            conditions.append((piece.start(), rest))
    source = PragmaSource(path, data, tuple(found), bytes(blank), bytes(code), tuple(conditions))
    for place, message in wrong[:1]:
        raise source.error(place, message)
    if len(found) > MOST_DIRECTIVES:
        raise source.error(found[MOST_DIRECTIVES], f"more than {MOST_DIRECTIVES} pragmas")
    for directive in found:
        _check_guards(source, directive)
    return source


def _misplaced(piece: re.Match[str]) -> Iterator[tuple[int, str]]:
    """What is wrong with a pragma that is not the only thing on its line."""
    hidden = re.search(r'_Pragma\s*\(\s*"\s*(\w+)', piece[0]) if piece.lastgroup == "directive" else None
    quoted = hidden[1] if hidden else piece["quoted"] or ""
    if _family(quoted):
        yield (
            piece.start(),
            f'_Pragma("{quoted} ...") is not read; write #pragma {quoted} on a line of its own',
        )
    if _family(piece["pragma"] or ""):
        yield piece.start(), "a pragma stands alone on its line; put comments behind it"


def _erase(text: bytearray, start: int, end: int) -> None:
    for place in range(start, end):
        if text[place] not in b"\r\n":
            text[place] = 0x20


def _parts(directive: str) -> tuple[str, str]:
    """Word and rest of a directive, on one line and without comments."""
    joined = re.sub(r"\\\r?\n", " ", directive)
    match = _SPLIT.match(_COMMENT.sub(lambda m: m[1] or " ", joined))
    return (match[1], match[2].strip()) if match else ("", "")


def _family(word: str) -> str:
    if word in OF_KERNEL_LAUNCHER:
        return "kernel"
    return OWN if word == OWN or word in OF_THE_PAPER else ""


def _directive(
    piece: re.Match[str], rest: str, line: int, guards: Sequence[str], branches: Sequence[int]
) -> Directive | None:
    word, text = _word(rest)
    family = _family(word)
    if not family:
        return None
    keyword = word if word in OF_THE_PAPER else ""
    if word == OWN:
        keyword, text = _word(text)
    indent = len(piece[0]) - len(piece[0].lstrip(" \t"))
    decoded = " ".join(text.encode("latin-1").decode(errors="replace").split())
    around = tuple(guards), tuple(branches)
    return Directive(family, keyword, decoded, line, indent + 1, piece.start(), piece.end(), *around)


def _word(text: str) -> tuple[str, str]:
    match = re.match(r"(\w*)\s*(.*)", text, re.DOTALL)
    return (match[1], match[2]) if match else ("", text)


def _follow(guards: list[str], branches: list[int], word: str, rest: str, place: int) -> bool:
    """Keep the conditions that the text stands under, and where; returns whether a condition begins."""
    if word in ("if", "ifdef", "ifndef"):
        guards.append(f"#{word} {rest}")
        branches.append(place)
        return True
    if word in ("else", "elif", "elifdef", "elifndef") and guards:
        guards[-1] = f"#{word} {rest}".strip()
        branches[-1] = place
        return word != "else"
    if word == "endif" and guards:
        guards.pop()
        branches.pop()
    return False


def _check_guards(source: PragmaSource, directive: Directive) -> None:
    for guard in directive.guards:
        word, _, name = guard.partition(" ")
        known = name in _KERNELS_ONLY
        if not (word == "#ifndef" and not known) and not (word == "#ifdef" and known):
            raise source.error(
                directive, f"stands under {guard}, which is decided when compiling; move it out of there"
            )


def guarded_names(guards: Sequence[str]) -> set[str]:
    """The macros of ``#ifndef`` among conditions."""
    return {guard.split()[1] for guard in guards if guard.startswith("#ifndef ") and len(guard.split()) > 1}
