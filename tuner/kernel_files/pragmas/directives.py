"""The tuning pragmas of a source: found, and taken apart into lists and clauses."""

import functools
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.kernel_files.cuda_source.guesses import struct_fields
from tuner.kernel_files.cuda_source.signatures import GlobalFunction, Parameter, global_functions
from tuner.model.errors import KernelFileError

# --- The text of pragmas in parts: lists, clauses with brackets, values of tunables.

MOST_VALUES = 1000
_MOST_DIGITS = 400
_LARGEST = 2**63 - 1
_NAME = r"[A-Za-z_]\w*"
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_NUMBER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|\d+)")
_FRACTION = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?")
_WORDS = {"true": True, "false": False}

Value = int | float | bool


@dataclass(frozen=True)
class ValueList:
    """The values of a tunable, as a pragma states them.

    Attributes:
        name: of the tunable; empty where the pragma does not say it.
        when: the condition, an expression; empty without one.
        otherwise: value where the condition is false; None where the pragma does not say it.
    """

    name: str
    values: tuple[Value, ...]
    when: str = ""
    otherwise: Value | None = None


def split_list(text: str) -> list[str]:
    """The parts between commas that stand in no brackets and no quotes; none of an empty text.

    Raises:
        ValueError: a bracket or a quote is not closed.
    """
    parts, open_brackets, quote = [""], [], ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in _PAIRS:
            open_brackets.append(letter)
        elif letter in _PAIRS.values() and (not open_brackets or _PAIRS[open_brackets.pop()] != letter):
            raise ValueError(f"{letter} closes no bracket")
        if letter == "," and not open_brackets and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    if open_brackets:
        raise ValueError(f"{open_brackets[-1]} is not closed")
    if quote:
        raise ValueError(f"{quote} is not closed")
    parts = [part.strip() for part in parts]
    if parts == [""]:
        return []
    if "" in parts:
        raise ValueError("there is nothing between two commas, or behind the last")
    return parts


def clauses(text: str) -> list[tuple[str, str]]:
    """The clauses ``name(...)`` of a pragma, each with what stands in its brackets.

    Raises:
        ValueError: there is something else.
    """
    parts, rest = [], text.strip()
    while rest:
        match = re.match(rf"({_NAME})\s*\(", rest)
        if match is None:
            raise ValueError(f"{rest.split()[0]!r} is no clause; write NAME(...)")
        inside, rest = _inside(rest[match.end() - 1 :])
        parts.append((match[1], inside))
        rest = rest.lstrip(", \t")
    return parts


def _inside(text: str) -> tuple[str, str]:
    """Return the text in the bracket that a text begins with, and the text after it."""
    depth, quote = 0, ""
    for index, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        else:
            depth += (letter == "(") - (letter == ")")
            if depth == 0:
                return text[1:index].strip(), text[index + 1 :].strip()
    raise ValueError("( is not closed")


def one_value(text: str) -> Value:
    """A number, ``true`` or ``false``; suffixes and brackets of C are left out.

    Raises:
        ValueError: it is something else.
    """
    bare = text.strip()
    while bare.startswith("(") and bare.endswith(")"):
        bare = bare[1:-1].strip()
    if bare in _WORDS:
        return _WORDS[bare]
    bare = bare.replace("'", "")
    if len(bare) > _MOST_DIGITS:
        raise ValueError(f"a number has {len(bare)} digits; at most {_MOST_DIGITS} are read")
    if re.fullmatch(r"[+-]?0\d+[uUlL]*", bare):
        raise ValueError(f"{text.strip()!r} is octal in C++; write it without the leading 0")
    whole = re.fullmatch(rf"({_NUMBER.pattern})[uUlL]{{0,3}}", bare)
    if whole:
        number = int(whole[1], 0) if "x" in whole[1].lower() else int(whole[1])
        if abs(number) > _LARGEST:
            raise ValueError(f"{number} has more than 63 bits")
        return number
    fraction = re.fullmatch(rf"({_FRACTION.pattern})[fF]?", bare)
    if fraction:
        if math.isinf(float(fraction[1])):
            raise ValueError(f"{bare} is beyond all numbers of type double")
        return float(fraction[1])
    hint = ""
    if "=" in bare:
        hint = "; a name stands before a colon, as P: 1, 2"
    elif " " in bare:
        hint = "; write commas between values"
    raise ValueError(f"{text.strip()!r} is no number, true or false{hint}")


def value_list(keyword: str, text: str) -> ValueList:
    """Return the values that ``erange``, ``range`` or ``values`` states.

    Raises:
        ValueError: it has another form, or no values or too many.
    """
    name, text = named(text)
    text, otherwise = _cut(text, "otherwise")
    text, when = _cut(text, "when")
    parts = split_list(text)
    values = tuple(map(one_value, parts)) if keyword == "values" else _series(keyword, parts)
    if not values:
        raise ValueError("there are no values")
    if len(values) > MOST_VALUES:
        raise ValueError(f"there are {len(values)} values; at most {MOST_VALUES} can be tuned")
    if len(set(map(str, values))) < len(values):
        raise ValueError("a value is there twice")
    if len({isinstance(value, bool) for value in values}) > 1:
        raise ValueError("numbers and true or false are mixed")
    return ValueList(name, values, when, None if not otherwise else one_value(otherwise))


def named(text: str) -> tuple[str, str]:
    """The name that a pragma begins with, ``NAME:``, and the rest."""
    match = re.match(rf"({_NAME})\s*:(?!:)\s*(.*)", text)
    return (match[1], match[2]) if match else ("", text)


def _cut(text: str, word: str) -> tuple[str, str]:
    match = re.search(rf"\b{word}\b", text)
    if match is None:
        return text, ""
    rest = text[match.end() :].strip()
    if not rest:
        raise ValueError(f"nothing follows {word!r}")
    return text[: match.start()].strip(), rest


def _series(keyword: str, parts: list[str]) -> tuple[int, ...]:
    numbers = [one_value(part) for part in parts]
    if not all(type(number) is int for number in numbers) or len(numbers) not in (2, 3):
        third = "BASE" if keyword == "erange" else "STEP"
        raise ValueError(f"write FIRST, LAST[, {third}] with whole numbers")
    first, last, step = (int(number) for number in (*numbers, 2 if keyword == "erange" else 1)[:3])
    if first > last:
        raise ValueError(f"the range is empty: it begins with {first} and ends with {last}")
    if keyword == "range":
        if step < 1:
            raise ValueError(f"the step is {step}; it must be at least 1")
        if (last - first) // step + 1 > MOST_VALUES:
            raise ValueError(
                f"there are {(last - first) // step + 1} values; at most {MOST_VALUES} can be tuned"
            )
        return tuple(range(first, last + 1, step))
    if first < 1 or step < 2:  # noqa: PLR2004
        raise ValueError("FIRST must be at least 1, and BASE at least 2")
    values = [first]
    while values[-1] * step <= last:
        values.append(values[-1] * step)
    return tuple(values)


# --- The directives of a source.

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
        column: of the ``#``, from 1.
        start: its first byte.
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
        """Number of times each macro is defined or undefined."""
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


def read_pragmas(path: Path, text: str) -> PragmaSource:
    """The pragmas of a source; messages begin with its path.

    Raises:
        KernelFileError: a pragma stands where whether it counts is decided only when compiling, or as
            ``_Pragma``, or there are too many.
    """
    data = text.encode()
    letters = data.decode("latin-1")
    if data.startswith(_BYTE_ORDER_MARK):  # it stands before the first line, not in it
        letters = letters.replace(letters[:3], "   ", 1)
    blank, code = bytearray(data), bytearray(data)
    directives: list[Directive] = []
    guards: list[str] = []
    branches: list[int] = []
    conditions: list[tuple[int, str]] = []
    misplaced: list[tuple[int, str]] = []
    line, counted = 1, 0
    for piece in _PIECE.finditer(letters):
        kind = piece.lastgroup
        if kind in ("comment", "directive"):
            _erase(code, piece.start(), piece.end())
        misplaced += _misplaced(piece)
        if kind != "directive":
            continue
        line += letters.count("\n", counted, piece.start())
        counted = piece.start()
        word, rest = _parts(piece[0])
        directive = _directive(piece, rest, line, guards, branches) if word == "pragma" else None
        if directive is not None:
            directives.append(directive)
            _erase(blank, piece.start(), piece.end())
        if _follow(guards, branches, word, rest, piece.start()):
            conditions.append((piece.start(), rest))
    source = PragmaSource(path, data, tuple(directives), bytes(blank), bytes(code), tuple(conditions))
    for byte, message in misplaced[:1]:
        raise source.error(byte, message)
    if len(directives) > MOST_DIRECTIVES:
        raise source.error(directives[MOST_DIRECTIVES], f"more than {MOST_DIRECTIVES} pragmas")
    for directive in directives:
        for guard in directive.guards:
            word, _, name = guard.partition(" ")
            if (word, name in _KERNELS_ONLY) not in (("#ifndef", False), ("#ifdef", True)):
                raise source.error(
                    directive, f"stands under {guard}, which is decided when compiling; move it out of there"
                )
    return source


def _misplaced(piece: re.Match[str]) -> Iterator[tuple[int, str]]:
    """Yield position and error message of a pragma that is not alone on its line."""
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
    for byte in range(start, end):
        if text[byte] not in b"\r\n":
            text[byte] = 0x20


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


def _follow(guards: list[str], branches: list[int], word: str, rest: str, byte: int) -> bool:
    """Keep the conditions that the text stands under, and where; returns whether a condition begins."""
    if word in ("if", "ifdef", "ifndef"):
        guards.append(f"#{word} {rest}")
        branches.append(byte)
        return True
    if word in ("else", "elif", "elifdef", "elifndef") and guards:
        guards[-1] = f"#{word} {rest}".strip()
        branches[-1] = byte
        return word != "else"
    if word == "endif" and guards:
        guards.pop()
        branches.pop()
    return False


def guarded_names(guards: Sequence[str]) -> set[str]:
    """The macros of ``#ifndef`` among conditions."""
    return {guard.split()[1] for guard in guards if guard.startswith("#ifndef ") and len(guard.split()) > 1}


_FIELD = '{ FIELD = "int32 = EXPRESSION" }'


def what_to_write(parameter: Parameter, text: str, sizes: Collection[str]) -> str:
    """The pragma that would declare a parameter, with what to fill in; fields like sizes are filled."""
    value = f"#pragma tuner value {parameter.name}"
    if parameter.pointer:
        role = "input" if parameter.const else "output"
        return f"write #pragma tuner {role} {parameter.name}: {parameter.dtype or 'float32'}[N]"
    if parameter.dtype:
        return f"write {value} = N"
    if "ensorMap" in parameter.type:
        return "it is a tensor map, which an [[argument]] of a kernel.toml alone can state"
    name = parameter.type.partition("<")[0].rpartition("::")[2].strip()
    fields = struct_fields(text, name)
    if fields:
        by_letters = {size.lower(): size for size in reversed(list(sizes))}
        listed = ", ".join(
            f'{field} = "{dtype} = {by_letters.get(field.lower(), "EXPRESSION")}"'
            for field, dtype in fields.items()
        )
        return f"it is a struct; write {value} = {{ {listed} }}"
    if re.search(rf"\b(?:struct|class)\s[^;{{}}()]*?\b{re.escape(name)}\b", text):
        return f"it is a struct; write {value} = {_FIELD}, its fields in order, or {{}} where it has none"
    return f"write {value}: int32 = N of a number, and {value} = {_FIELD} of a struct, its fields in order"
