"""A first kernel file for a CUDA C++ source: ``tuner kernels new``.

The compiler is asked what the source leaves undefined and which axes its code uses, launches of the host are
read where there are some, and what nobody tells is guessed: its line in the file says ``# GUESS``.
"""

import ast
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tuner.kernel_files.cuda_source.arguments import HALVES
from tuner.kernel_files.cuda_source.c_expressions import (
    SIZEOF,
    Node,
    Sum,
    divided,
    multiplied,
    names_in,
    number,
    of_file,
    parsed_text,
    substituted,
    sum_of,
    text_of,
    with_names,
    written_sum,
)
from tuner.kernel_files.cuda_source.guesses import Macro, constant_symbols, macros_of, role_of, struct_fields
from tuner.kernel_files.cuda_source.indexing import AXES, Indexing
from tuner.kernel_files.cuda_source.launches import Launch, launches_in, values_of
from tuner.kernel_files.cuda_source.signatures import (
    GlobalFunction,
    Parameter,
    defined_functions,
    dtype_of,
    global_functions,
    parameters_of,
)
from tuner.kernel_files.cuda_source.tokens import always_defined
from tuner.kernel_files.short_files import NAME_PATTERN
from tuner.kernel_files.source_checks import GUESS
from tuner.model.errors import InputError, suggestion
from tuner.model.expressions.callables import is_free_name


def quoted(text: str) -> str:
    """A text as TOML has it."""
    return json.dumps(text, ensure_ascii=False)


# --- What the compiler answers.


class Answer(NamedTuple):
    """The compiler on an entry.

    Attributes:
        log: its errors; empty where it compiles.
        registers: of a thread's place that the code reads, as ``tid.x`` and ``ntid.y``.
        dynamic_shared: it uses ``extern __shared__`` memory.
        most_threads: of a block; None where the source says nothing.
        cooperative: its blocks wait for all others.
    """

    log: str
    registers: frozenset[str] = frozenset()
    dynamic_shared: bool = False
    most_threads: int | None = None
    cooperative: bool = False


Ask = Callable[[str, tuple[str, ...], str], Answer | None]
"""(entry, options, text behind the source) -> answer; None where there is no compiler."""

_UNDEFINED = re.compile(r'\((\d+)\): error: identifier "([A-Za-z_]\w*)" is undefined\n([^\n]*)\n([ \t]*)\^')
_INCOMPLETE = re.compile(r"TunerBytes<(?:\([^)]*\))?(\d+)")
_ROUNDS = 12
_MOST_THREADS = 1024

# --- A kernel file in the making.


@dataclass
class Line:
    """A line of a kernel file: its value, and in words what of it is a guess."""

    value: str
    guess: str = ""
    note: str = ""

    def __str__(self) -> str:
        comment = f"  {GUESS}: {self.guess}" if self.guess else (f"  # {self.note}" if self.note else "")
        return self.value + comment


@dataclass
class Draft:
    """A kernel file in the making.

    Attributes:
        missing: what must be filled in before the file can be read.
    """

    source: str
    function: GlobalFunction
    entry: Line | None = None
    options: Line | None = None
    sizes: dict[str, Line] = field(default_factory=dict)
    arguments: dict[str, Line] = field(default_factory=dict)
    tunables: dict[str, Line] = field(default_factory=dict)
    default: dict[str, int | bool] = field(default_factory=dict)
    rules: list[str] = field(default_factory=list)
    launch: dict[str, Line] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def toml(self) -> str:
        """The file."""
        look = f"Look at the lines with {GUESS}, and take the word out."
        lines = [
            f"# From {self.function.name} of {self.source}. {look}",
            f"kernel.source = {quoted(self.source)}",
        ]
        lines += [f"kernel.entry = {self.entry}"] if self.entry else []
        lines += [f"kernel.options = {self.options}"] if self.options else []
        lines += ["", "[problem]", *(f"sizes.{name} = {line}" for name, line in self.sizes.items())]
        outs = [name for name, line in self.arguments.items() if line.value.startswith(('"out', '"inout'))]
        lines.append(
            f'# reference.{outs[0] if outs else "y"} = "..."  # an expression of the inputs;'
            " without it answers are only compared"
        )
        for title, table in (("arguments", self.arguments), ("tunables", self.tunables)):
            lines += (
                ["", f"[{title}]", *(f"{name} = {line}" for name, line in table.items())] if table else []
            )
        if self.rules:
            lines += ["", "[constraints]", f"rules = {json.dumps(self.rules)}"]
        if self.default:
            lines += ["", "[default]"]
            lines += [f"{name} = {json.dumps(value)}" for name, value in self.default.items()]
        lines += ["", "[launch]", *(f"{name} = {line}" for name, line in self.launch.items())]
        lines += [f"# FILL IN: {text}" for text in self.missing if not text.startswith("arguments.")]
        return "\n".join(lines) + "\n"

    @property
    def guesses(self) -> list[str]:
        """All guesses, in words."""
        tables = {
            "kernel": {
                name: line for name, line in (("entry", self.entry), ("options", self.options)) if line
            },
            "sizes": self.sizes,
            "arguments": self.arguments,
            "tunables": self.tunables,
            "launch": self.launch,
        }
        return [
            f"{table}.{name}: {line.guess}"
            for table, lines in tables.items()
            for name, line in lines.items()
            if line.guess
        ]


# --- Names that say what they are for.

_SIZE = (
    r"n|m|k|nx|ny|nz|size|length|len|count|total|elements|width|height|depth|rows|cols|columns|dim|w|h"
    r"|(?:n|num|number)_?(?:of_?)?(?:elements|items|points|rows|cols|columns|particles|bodies|samples|values)?"
    r"|\w*_?(?:size|count|length|width|height)|n_\w+|num_\w+"
)
_BLOCK = (
    r"(?:n_?)?(?:threads?|block|blocks?_?(?:size|dim)|block_?dim|threads_?per_?block|num_?threads|bs|tpb|wg_?size"
    r"|work_?group_?size|tile|tile_?(?:size|dim|width)|bdim|nthreads|nt)(?:_?[xyz])?|b[xyz]|b"
)
_SMALL = r"\w*(?:radius|taps|halo|order|degree)|filter_?\w*|mask_?\w*|kernel_?(?:size|width|height|radius)|r"
_FIRST_AXIS = r"\w*(?:height|rows)|(?:\w*_)?(?:ny|m|h)"  # of two sizes, the one along y
_SPATIAL = r"N?[XYZ]|WIDTH|HEIGHT|DEPTH"
_BLOCKS = ([32, 64, 128, 256, 512, 1024], [1, 2, 4, 8, 16], [1, 2, 4])
_SIDES = ([8, 16, 32, 64, 128], [1, 2, 4, 8, 16, 32], [1, 2, 4])
_SQUARES = [8, 16, 32]
_FACTORS = [1, 2, 4, 8]
_VECTOR = re.compile(r"(u?char|u?short|u?int|u?long(?:long)?|float|double)([1-4])")
_LANES = {
    "float": "float32",
    "double": "float64",
    "char": "int8",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "longlong": "int64",
}
_WHOLE = ("int32", "uint32", "int64", "uint64")
_REAL = (
    r"_?(?:real|float|scalar|number|data|value|elem|element)?_?(?:t|type|fp|x)?\d*|fp|dtype|real\w*|float\w*"
)
_C_NAMES = {
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned",
    "uint64": "unsigned long",
}
_OF_SYMBOLS = re.compile(r"__constant__|ToSymbol|FromSymbol|GetSymbolAddress")
_OF_BLOCK = re.compile(r"blockDim\.([xyz])")


def drafted(
    text: str, source: Path, kernel: str | None = None, *, ask: Ask, beside: Iterable[str] = ()
) -> Draft:
    """A kernel file for a source.

    Args:
        text: of the source.
        source: its path; the file names it relative to itself.
        kernel: which ``__global__`` function, with its parameters where several have the name; None for the
            only one.
        ask: the compiler.
        beside: texts of files beside it, which may launch the kernel.

    Raises:
        InputError: there is no such function, or several and none is named.
    """
    function = _chosen(text, source, kernel)
    return _Drafting(text, source, function, ask, beside).draft


def _chosen(text: str, source: Path, kernel: str | None) -> GlobalFunction:
    functions = defined_functions(text) or global_functions(text)
    if not functions:
        raise InputError(f"{source}: has no __global__ function")
    names = [function.name for function in functions]
    called = [str(one) if names.count(one.name) > 1 else one.qualified for one in functions]
    if kernel is None and len(functions) > 1:
        choices = " or ".join(f"--kernel {quoted(name) if '(' in name else name}" for name in called)
        raise InputError(f"{source}: has {len(names)} kernels; choose one: {choices}")
    wanted = "".join((kernel or "").split())
    fitting = [
        one
        for one in functions
        if kernel is None or wanted in (one.name, one.qualified, "".join(str(one).split()))
    ]
    if not fitting:
        raise InputError(
            f"{source}: no __global__ function is called {kernel!r}; there is {', '.join(called)}"
            f"{suggestion(str(kernel), called)}"
        )
    if len(fitting) > 1:
        choices = " or ".join(f"--kernel {quoted(str(one))}" for one in fitting)
        raise InputError(f"{source}: {len(fitting)} kernels are called {kernel}; choose one: {choices}")
    return fitting[0]


class _Drafting:
    """A draft as it grows: each step adds what the next ones use."""

    def __init__(
        self, text: str, source: Path, function: GlobalFunction, ask: Ask, beside: Iterable[str]
    ) -> None:
        self.text, self.function, self.ask = text, function, ask
        self.draft = Draft(source.name, function)
        self.values: dict[str, int] = {}  # of tunables, to compile with and to launch by default
        self.sized: dict[str, int] = {}  # of macros and template parameters that are sizes, to compile with
        self.others: dict[str, str] = {}  # macros that are no tunables -> what they stand for
        self.guessed_types: list[str] = []
        self.notes: dict[str, str] = {}  # of tunables
        self.symbols: dict[str, Node] = {}  # names of the kernel and of its host -> names of the file
        self.launch = self._launch_of(beside)
        functions = defined_functions(text)
        self.foreign = [range(one.line, one.last_line + 1) for one in functions if one.line != function.line]
        self.macros = macros_of(text, self.foreign)
        self.constants = {name: value for name, value in values_of(text).items() if name not in self.macros}
        self.indexing = Indexing(
            function.body, self.constants, [one.name for one in function.parameters if one.dtype in _WHOLE]
        )
        self.reach: dict[str, tuple[Sum, Sum]] = {}  # axis -> blocks, and what they cover
        self.typed: dict[str, str] = {}
        self._add_template()
        self.answer = self._compiled()
        self.parameters = self._parameters()
        self.fields = self._fields()
        self._add_entry()
        self._add_sizes()
        self._add_block_and_grid()
        self._add_arguments()
        self._add_tunables()
        self._end()

    def _named(self, launch: Launch) -> Launch:
        """The launch with template parameters in the place of the numbers that it gives them."""
        stated = zip(self.function.template, launch.template, strict=False)
        numbers = {int(text): one.name for one, text in stated if text.isdecimal() and int(text) > 1}
        sides = [
            tuple(node and with_names(node, numbers) for node in side) for side in (launch.grid, launch.block)
        ]
        shared = launch.shared and with_names(launch.shared, numbers)
        return replace(launch, grid=sides[0], block=sides[1], shared=shared) if numbers else launch

    def _launch_of(self, beside: Iterable[str]) -> Launch | None:
        defined = re.compile(rf"__global__[^;{{]*\b{re.escape(self.function.name)}\s*\(")
        for text in (self.text, *beside):
            if text is not self.text and defined.search(text):
                continue  # it launches its own kernel of that name
            fitting = (
                [one for one in launches_in(text) if one.kernel == self.function.name]
                if "<<<" in text
                else []
            )
            same = [one for one in fitting if len(one.arguments) == len(self.function.parameters)]
            same = same or (fitting if text is self.text else [])
            if same:
                return self._named(
                    max(same, key=lambda one: (None not in (*one.grid, *one.block), -one.line))
                )
        return None

    # --- templates, macros and what the compiler leaves undefined

    def _add_template(self) -> None:
        """A type or a value for each template parameter: of the launch, of its default, or guessed."""
        given = self.launch.template if self.launch else ()
        for place, parameter in enumerate(self.function.template):
            stated = given[place] if place < len(given) else parameter.default
            if parameter.is_type:
                known = dtype_of(stated) is not None or re.fullmatch(r"\w*float\d|\w*half\d?", stated)
                self.typed[parameter.name] = stated if known else "float"
                continue
            values = {} if self.launch is None else self.launch.values
            node = parsed_text(stated)
            value = number(substituted(node, {**self.constants, **values})) if node is not None else None
            self.macros[parameter.name] = Macro("" if value is None else str(value), parameter.kind == "bool")
            self.values[parameter.name] = value if value is not None else self._first_value(parameter.name)
            if node is not None and value is not None:
                for name in names_in(node):
                    self.symbols[name] = parsed_text(parameter.name) or node

    def _first_value(self, name: str) -> int:
        macro = self.macros.get(name, Macro(""))
        if macro.first is not None:
            return macro.first
        if name in self._names_of_block():
            return 16 if self._two_axes() else 256
        if self._is_block_name(name):
            return [16 if self._two_axes() else 256, 8 if self._two_axes() else 4, 4][
                max(0, AXES.find(name.lower()[-1])) if re.search(r"_?[xyz]$", name) else 0
            ]
        if re.fullmatch(_SMALL, name, re.IGNORECASE):
            return 3
        return 1024 if self._is_size_name(name) else 1

    def _is_block_name(self, name: str) -> bool:
        """Return True if a name is one of blocks; of tiles, only where no other is."""
        if not re.fullmatch(_BLOCK, name, re.IGNORECASE):
            return False
        words = {token.text for token in self.function.body if token.kind == "word"}
        others = [word for word in words if len(word) > 1 and "tile" not in word.lower()]
        return "tile" not in name.lower() or not any(
            re.fullmatch(_BLOCK, word, re.IGNORECASE) for word in others if word not in self.indexing.values
        )

    def _is_size_name(self, name: str) -> bool:
        """Return True if a name is the end of an index, or called as sizes are, and no extent of a block."""
        if name in self._names_of_block() or self._is_block_name(name):
            return False
        ends = {one for _, end in self.indexing.ends for one in names_in(end)}
        return name in ends and re.fullmatch(rf"{_SIZE}|{_SMALL}", name, re.IGNORECASE) is not None

    def _names_of_block(self) -> set[str]:
        """Names that stand for the extent of the block, by the kernel's indices."""
        extents = [self.indexing.extent(axis) for axis in AXES]
        return {factors[0] for one in extents if one for factors in one if len(one) == len(factors) == 1}

    def _two_axes(self) -> bool:
        return any(
            token.text == "threadIdx" and self.function.body[i + 2].text == "y"
            for i, token in enumerate(self.function.body[:-2])
        )

    def _options(self) -> tuple[str, ...]:
        names = {parameter.name for parameter in self.function.template}
        known = {**self.values, **self.sized}
        tuned = [f"-D{name}={value}" for name, value in known.items() if name not in names]
        return (*tuned, *(f"-D{name}={value}" for name, value in self.others.items()))

    def _entry(self, *, filled: bool) -> str:
        """The name expression; ``filled`` with values, else with the names of tunables."""
        arguments = [
            self.typed[one.name]
            if one.is_type
            else (self._literal(one.name) if filled else f"{{{one.name}}}")
            for one in self.function.template
        ]
        name = self.function.qualified + (f"<{', '.join(arguments)}>" if arguments else "")
        same = [one for one in defined_functions(self.text) if one.qualified == self.function.qualified]
        if len(same) > 1 and not arguments:  # an overload is told by its type
            types = ", ".join(
                ("const " * (one.const and one.pointer)) + one.type + "*" * one.pointer
                for one in self.function.parameters
            )
            return f"(void (*)({types})){name}"
        return name

    def _literal(self, name: str) -> str:
        kind = next(one.kind for one in self.function.template if one.name == name)
        value = {**self.values, **self.sized}[name]
        return str(bool(value)).lower() if kind == "bool" else str(value)

    def _compiled(self) -> Answer | None:
        """The answer of the compiler with a value for each name that it finds undefined."""
        for name, macro in self.macros.items():
            if macro.conditional:
                self.values.setdefault(name, self._first_value(name))
            elif macro.first is not None:
                self.values.setdefault(name, macro.first)
        answer = None
        for _ in range(_ROUNDS):
            answer = self.ask(self._entry(filled=True), self._options(), "")
            if answer is None or not answer.log or not self._define(answer.log):
                break
        return answer if answer is None or not answer.log else self._smaller(answer)

    def _define(self, log: str) -> bool:
        """Give a value to each undefined name of a log; False where there is none that a macro may be."""
        found = False
        for line, name, shown, caret in _UNDEFINED.findall(log):
            behind = shown[len(caret) + len(name) :].lstrip() if shown[len(caret) :].startswith(name) else ""
            if name in self.values or name in self.others or behind.startswith(("(", "::", "<")):
                continue
            found = True
            if _is_type(shown[: len(caret)].rstrip(), behind):
                plain = dtype_of(name)
                if plain is not None:
                    self.others[name] = _C_NAMES.get(plain, "float")
                elif re.fullmatch(_REAL, name, re.IGNORECASE):
                    self.others[name] = "float"
                    self.guessed_types.append(name)
                else:
                    self.draft.missing.append(f"kernel.source: nothing declares the type {name}")
                    return False
            elif any(int(line) in lines for lines in self.foreign):
                self.others[name] = str(self._first_value(name))
            else:
                self.macros.setdefault(name, Macro(""))
                self.values[name] = self._first_value(name)
                continue
        for name in [name for name in self.others if self._is_own(name, log)]:
            self.values[name] = int(self.others.pop(name))
            self.macros.setdefault(name, Macro(""))
        return found

    def _is_own(self, name: str, log: str) -> bool:
        """Return True if an undefined name is used outside of the other kernels, too."""
        lines = [int(line) for line, other, *_ in _UNDEFINED.findall(log) if other == name]
        return self.others[name].isdecimal() and any(
            not any(line in other for other in self.foreign) for line in lines
        )

    def _smaller(self, answer: Answer) -> Answer:
        """The answer to smaller values where the first do not compile, as of tiles too large for a block."""
        kept = dict(self.values)
        for factor in (2, 4, 8, 16):
            for name in self.values:
                if kept[name] > 1 and not self.macros[name].values:
                    self.values[name] = max(1, kept[name] // factor)
            smaller = self.ask(self._entry(filled=True), self._options(), "")
            if smaller is not None and not smaller.log:
                return smaller
        self.values = kept
        if self.draft.missing:  # says why
            return answer
        first = next((line for line in answer.log.splitlines() if re.search(r"\berror\b", line)), answer.log)
        self.draft.missing.append(f"kernel.source: does not compile: {first.strip()}")
        return answer

    def _parameters(self) -> list[Parameter]:
        if not any(self.typed):
            return list(self.function.parameters)
        found = parameters_of(self.text, self._entry(filled=True))
        same = [one.name for one in found] == [one.name for one in self.function.parameters]
        return found if same else list(self.function.parameters)

    def _fields(self) -> dict[str, dict[str, str]]:
        """Structs that are passed by value -> their fields and types."""
        return {
            one.name: struct_fields(self.text, one.type.removeprefix("struct ").strip()) or {}
            for one in self.parameters
            if not one.pointer and one.dtype is None
        }

    def _add_entry(self) -> None:
        several = len(global_functions(self.text)) > 1
        own = self._entry(filled=False)
        if several or self.typed or self.function.namespace or "(" in own:
            told = self.launch is not None and self.launch.template
            guess = f"{', '.join(self.typed)} as float" if self.typed and not told else ""
            if guess and any(kind != "float" for kind in self.typed.values()):
                guess = ""
            self.draft.entry = Line(quoted(own), guess)
        if self.others:
            options = [f"-D{name}={value}" for name, value in self.others.items()]
            guess = f"{', '.join(self.guessed_types)} as float" if self.guessed_types else ""
            self.draft.options = Line(json.dumps(options), guess)

    # --- sizes

    def _add_sizes(self) -> None:
        """Sizes: whole parameters that end an index, size an array or are called so, and macros likewise."""
        whole = [one.name for one in self.parameters if one.dtype in _WHOLE and not one.pointer]
        whole += [
            f"{name}.{one}"
            for name, fields in self.fields.items()
            for one, kind in fields.items()
            if kind in _WHOLE
        ]
        ends = {one for _, end in self.indexing.ends for one in names_in(self.indexing.resolved(end))}
        sized = self._host_sizes()
        carriers = [
            name
            for name in whole
            if name in ends or name in sized or re.fullmatch(_SIZE, name.rpartition(".")[2], re.IGNORECASE)
        ]
        macros = [name for name in self.values if self._is_size_name(name) and not self.macros[name].default]
        alone = len(carriers) == 1 and not macros
        for name in carriers:
            size = "N" if alone else name.rpartition(".")[2].upper()
            if not is_free_name(size) or size in self.values or size in self.constants:
                size = f"{size}_size" if is_free_name(f"{size}_size") else f"{size}_"
            self._map(name, size)
            told = self._host_value(name)
            self.draft.sizes.setdefault(size, self._size_line(name, told))
        for name in macros:
            self.sized[name] = self.values.pop(name)
            self.draft.sizes[name] = self._size_line(name, None, self.sized[name])
        if not self.draft.sizes:
            self._add_fixed_size()
        if not self.draft.sizes:
            name = "N" if is_free_name("N") and "N" not in {*self.values, *self.constants} else "elements"
            self.draft.sizes[name] = self._size_line(name, None, guess="no parameter tells the problem size")
        if self.launch is not None:
            for name, node in zip(self._parameter_names(), self.launch.arguments, strict=False):
                symbol = self.symbols.get(name)
                if symbol is not None and node is not None:
                    for host in names_in(node) if len(sum_of(node)) == 1 and number(node) is None else ():
                        if sum_of(node) == {(host,): 1}:
                            self.symbols.setdefault(host, symbol)

    def _add_fixed_size(self) -> None:
        """The extent that a source has fixed, as ``#define WIDTH 512``, where the kernel is given none."""
        used = {token.text for token in self.function.body}
        for name in [
            one for one in self.constants if one in used and re.fullmatch(_SIZE, one, re.IGNORECASE)
        ]:
            value = number(self.constants[name])
            if value is not None and value > 1 and name not in self._names_of_block():
                size = "N" if "N" not in self.constants and "N" not in self.values else f"{name}_size"
                self.draft.sizes[size] = Line(f"[{value}]", f"{name} of the source, which has no other value")
                self._map(name, size)
                del self.constants[name]  # so that indices name it
                return

    def _parameter_names(self) -> list[str]:
        return [one.name for one in self.function.parameters]

    def _map(self, name: str, symbol: str) -> None:
        node = parsed_text(symbol)
        if node is not None:
            self.symbols[name] = node

    def _host_sizes(self) -> set[str]:
        """Parameters whose argument the host uses for the grid or for the bytes of an array."""
        if self.launch is None:
            return set()
        nodes = [*self.launch.grid, *self.launch.bytes.values()]
        used = {one for node in nodes if node is not None for one in names_in(node)}
        reached = {
            one for name in used if name in self.launch.values for one in names_in(self.launch.values[name])
        }
        return {
            name
            for name, node in zip(self._parameter_names(), self.launch.arguments, strict=False)
            if node is not None and sum_of(node) in [{(one,): 1} for one in used | reached]
        }

    def _host_value(self, name: str) -> int | None:
        """The number that the host passes; None where it is not told."""
        if self.launch is None:
            return None
        stated = dict(zip(self._parameter_names(), self.launch.arguments, strict=False)).get(name)
        return None if stated is None else number(substituted(stated, self.launch.values))

    def _size_line(self, name: str, told: int | None, small: int = 0, guess: str = "") -> Line:
        if told is not None and told > 0:
            return Line(f"[{told}]")
        if re.fullmatch(_SMALL, name, re.IGNORECASE):
            return Line("[3]", "the size to tune for")
        axes = sum(f"ctaid.{axis}" in self._registers() for axis in AXES)
        scalars = sum(one.dtype in _WHOLE and not one.pointer for one in self.parameters)
        alone = axes == 1 and scalars <= 1 and not self.draft.sizes
        value = small if small not in (0, 1024) else (1048576 if alone else 1024)
        return Line(f"[{value}]", guess or "the size to tune for")

    def _registers(self) -> frozenset[str]:
        """Places that the code reads: as compiled, else as written."""
        if self.answer is not None and not self.answer.log:
            return self.answer.registers
        kinds = {"threadIdx": "tid", "blockIdx": "ctaid", "blockDim": "ntid", "gridDim": "nctaid"}
        body = self.function.body
        return frozenset(
            f"{kinds[token.text]}.{body[i + 2].text}"
            for i, token in enumerate(body[:-2])
            if token.text in kinds
        )

    # --- the launch

    def _axes(self) -> int:
        used = [axis for axis in AXES if {f"tid.{axis}", f"ctaid.{axis}"} & self._registers()]
        stated = 0
        if self.launch is not None:
            stated = max(
                (
                    place
                    for sides in (self.launch.grid, self.launch.block)
                    for place, node in enumerate(sides, 1)
                    if number(node) != 1
                ),
                default=1,
            )
        return max(AXES.find(used[-1]) + 1 if used else 1, stated)

    def _block_axes(self) -> int:
        """Axes along which a block has several threads."""
        used = [axis for axis in AXES if f"tid.{axis}" in self._registers()]
        return AXES.find(used[-1]) + 1 if used else 1

    def _add_block_and_grid(self) -> None:
        axes = self._axes()
        block = [self._block(axis) for axis in AXES[:axes]]
        grid = [self._grid(axis, block) for axis in AXES[:axes]]
        if not self.values and block[0].value.isdecimal():  # a file has a tunable
            block[0] = self._fixed("x", int(block[0].value), "")
        while len(block) > 1 and block[-1].value == grid[-1].value == "1":
            block.pop()
            grid.pop()
        self.draft.launch["grid"] = _joined(grid)
        usual = [f"block_size_{axis}" for axis in AXES[: len(block)]]
        if [line.value for line in block] != usual or any(line.guess for line in block):
            self.draft.launch["block"] = _joined(block)
        shared = self._shared([line.value for line in block])
        if shared is not None:
            self.draft.launch["shared_bytes"] = _joined([shared])
        if self.answer is not None and self.answer.cooperative:
            self.draft.launch["cooperative"] = Line("true")
        most = (self.answer.most_threads if self.answer is not None else None) or _MOST_THREADS
        if any(not line.value.isdecimal() for line in block) and (len(block) > 1 or most < _MOST_THREADS):
            sides = [f"({line.value})" if "//" in line.value else line.value for line in block]
            self.draft.rules.append(f"{' * '.join(sides)} <= {most}")
            whole = [re.fullmatch(r"(\w+) // (\w+)", line.value) for line in block]
            self.draft.rules += [f"{one[1]} % {one[2]} == 0" for one in whole if one is not None]

    def _block(self, axis: str) -> Line:
        """The threads along an axis: of the launch, else of the kernel's indices, else guessed."""
        free = f"ntid.{axis}" in self._registers()
        place = AXES.find(axis)
        if self.launch is not None:
            sides = self.launch.block
            node = sides[place] if place < len(sides) else parsed_text("1")
            if node is not None:
                return self._block_of_host(axis, node, free=free)
        if f"tid.{axis}" not in self._registers():
            return Line("1")
        return self._block_by_index(axis) or self._block_by_name(axis, free=free)

    def _block_by_index(self, axis: str) -> Line | None:
        """The threads along an axis that the kernel's indices ask for; None where they ask for none."""
        extent = self.indexing.extent(axis) or {}
        names = [factor for factors in extent for factor in factors]
        if any(_OF_BLOCK.fullmatch(name) for name in names):
            return self._open_block(axis)
        inner = self._own_factor(extent)
        if inner is not None:
            plain = len(names) == 1 or inner == f"block_size_{axis}"
            return Line(inner, "" if plain else f"of {' * '.join(names)}, {inner} is taken for the threads")
        if set(extent) == {()} and axis == "x":
            value = extent[()]
            names = [one for one, node in self.constants.items() if number(node) == value]
            used = {token.text for token in self.function.body}
            return self._fixed(axis, value, next((one for one in names if one in used), ""))
        if extent and all(name in self.values or name in self.symbols for name in names):
            return Line(text_of(substituted(written_sum(extent), self.symbols)))
        return None

    def _block_by_name(self, axis: str, *, free: bool) -> Line:
        """A tunable that is called as threads along an axis are; else one of its own."""
        like = next((name for name in self.values if _axis_name(name, axis)), None)
        like = like or (self._like_block() if axis == "x" else None)
        if like is not None:
            return Line(like, "" if free else f"only its name says that {like} is the threads along {axis}")
        return self._open_block(axis, "" if free else "nothing says how many threads")

    def _own_factor(self, extent: Sum) -> str | None:
        """The factor of an extent that is a block's, where only one can be."""
        if len(extent) != 1:
            return None
        ((factors, value),) = extent.items()
        named = [factor for factor in factors if factor in self.values]
        if value != 1 or len(named) != len(factors) or not named:
            return None
        steps = {name for _, step in self.indexing.steps for name in names_in(self.indexing.resolved(step))}
        for fitting in (
            [name for name in named if len(named) == 1],
            [
                name
                for name in named
                if re.fullmatch(_BLOCK, name, re.IGNORECASE) and "tile" not in name.lower()
            ],
            [name for name in named if name in steps],
        ):
            if len(fitting) == 1:
                return fitting[0]
        return None

    def _open_block(self, axis: str, guess: str = "", default: int | None = None) -> Line:
        """A tunable for the threads along an axis, which the code reads from the launch."""
        name = f"block_size_{axis}"
        place = AXES.find(axis)
        axes = self._block_axes()
        usual = ([256, 1, 1], [32, 8, 1], [32, 4, 2])[axes - 1]
        self.values.setdefault(name, default or usual[place])
        values = _BLOCKS[0] if axes == 1 else _SIDES[place]
        most = self.answer.most_threads if self.answer is not None else None
        bounded = [one for one in values if one <= (most or _MOST_THREADS)]
        self.values[name] = min(self.values[name], most or _MOST_THREADS)
        self.macros[name] = Macro(str(self.values[name]), values=tuple(bounded))
        self.symbols.setdefault(f"blockDim.{axis}", parsed_text(name) or written_sum({}))
        return Line(name, guess)

    def _block_of_host(self, axis: str, node: Node, *, free: bool) -> Line:
        """The threads along an axis of the host, whose names for them stand for these from now on."""
        own = self._of_host(node, resolve=False)
        host = next((name for name in names_in(own) if sum_of(own) == {(name,): 1}), "")
        known = self._known_block(own, self._of_host(node), host)
        line = Line(text_of(known)) if known is not None else self._new_block(axis, node, host, free=free)
        symbol = of_file(line.value)
        if host:
            self.symbols[f"alias {host}"] = symbol
            self._map(host, line.value)
        self._alias(axis, symbol)
        return line

    def _known_block(self, own: Node, resolved: Node, host: str) -> Node | None:
        """The threads that the host states, in names of the file; None where it has none for them."""
        for told in (own, resolved):
            if names_in(told) and names_in(told) <= {*self.values, *self.draft.sizes}:
                return told
        tied = next((name for name in self.values if host and _alike(name, host)), None)
        return self.symbols.get(f"alias {host}") if tied is None else parsed_text(tied)

    def _new_block(self, axis: str, node: Node, host: str, *, free: bool) -> Line:
        """The threads that the host states as a number, or by a name that nothing else has told."""
        value = number(self._of_host(node))
        inside = host in {token.text for token in self.function.body}
        fixed = inside or not free or (bool(self.indexing.shared) and not self._shared_by_block())
        if value == 1 or (value is not None and fixed and axis != "x"):
            return Line(str(value))
        if value is not None and fixed:
            return self._fixed(axis, value, host)
        line = self._open_block(axis, default=value)
        if value is not None or (free and host):
            return line
        like = None if free else self._like_block()
        shown = text_of(self._of_host(node, resolve=False))
        if like is not None:
            return Line(like, f"{shown} of the host is taken for {like}")
        return Line(line.value, f"{shown} of the host is not followed")

    def _like_block(self) -> str | None:
        return next((name for name in self.values if re.fullmatch(_BLOCK, name, re.IGNORECASE)), None)

    def _shared_by_block(self) -> bool:
        """Return True if the extents of all shared arrays are left to who launches."""
        extents = [node for nodes in self.indexing.shared.values() for node in nodes]
        return all(node is None for node in extents)

    def _fixed(self, axis: str, value: int, host: str) -> Line:
        """A tunable with one value: the threads that the source has fixed."""
        name = f"block_size_{axis}"
        self.values[name] = value
        if host in always_defined(self.text):
            self.notes[name] = (
                f"{host} of the source; with its #define between #ifndef and #endif it can be tuned"
            )
        self.macros[name] = Macro(str(value), values=(value,))
        return Line(name)

    def _alias(self, axis: str, symbol: Node) -> None:
        """Have ``block.x`` of the host and ``blockDim.x`` mean a name of the file."""
        self.symbols[f"blockDim.{axis}"] = symbol
        if self.launch is not None and self.launch.block_name:
            self.symbols[f"{self.launch.block_name}.{axis}"] = symbol
            if len(self.launch.block) == 1 and axis == "x":
                self.symbols.setdefault(self.launch.block_name, symbol)

    def _of_host(self, node: Node, *, resolve: bool = True) -> Node:
        """An expression of the host in names of the file; ``resolve`` follows other names to their values."""
        stated = {} if self.launch is None else self.launch.values
        values = {**self.constants, **stated} if resolve else {}
        kept = {name: value for name, value in values.items() if name not in self.values}
        return substituted(node, {**kept, **self.symbols})

    def _grid(self, axis: str, block: Sequence[Line]) -> Line:
        place = AXES.find(axis)
        if self.launch is not None:
            sides = self.launch.grid
            node = sides[place] if place < len(sides) else parsed_text("1")
            if node is not None:
                return self._grid_of_host(axis, node, block[place].value)
        if f"ctaid.{axis}" not in self._registers():
            return Line("1")
        told = self.indexing.covered(axis)
        sizes = list(self.draft.sizes)
        along = [*reversed(self._sizes_as_axes()), *sizes][: place + 1]
        guess = "" if told is not None and told[1] is not None else "the end of the indices is not told"
        if told is None:
            return Line(along[-1], "nothing says how many blocks")
        covered, end = told
        covers = substituted(written_sum(covered), self.symbols)
        if end is None:
            end = self.indexing.row_of(axis)
            guess = guess and "no index is held against an end"
        ends = (
            parsed_text(along[-1])
            if end is None
            else substituted(written_sum(_whole(sum_of(end))), self.symbols)
        )
        if told[1] is None and covered == {(): 1}:
            free = [name for name in sizes if not self._ends_a_loop(name)]
            ends = parsed_text(free[0] if free else sizes[0])
        left = names_in(ends) - {*self.values, *self.draft.sizes} if ends is not None else {"?"}
        if ends is None or left:
            ends, guess = parsed_text(along[-1]), "the end of the indices is not followed"
        if names_in(covers) - {*self.values, *self.draft.sizes}:
            return Line(f"ceil_div({along[-1]}, {block[place].value})", "what a block covers is not followed")
        strided = "nctaid.x" in self._registers() and axis == "x"
        assert ends is not None  # noqa: S101 - set above
        text = text_of(ends) if number(covers) == 1 else f"ceil_div({text_of(ends)}, {text_of(covers)})"
        self.reach[axis] = sum_of(of_file(text)), sum_of(ends)
        return Line(
            text, guess or ("" if not strided or number(covers) != 1 else "the grid strides over the rest")
        )

    def _ends_a_loop(self, size: str) -> bool:
        """Return True if a size ends an index that no block's number is in."""
        symbol = parsed_text(size)
        for left, right in self.indexing.ends:
            if symbol is not None and sum_of(
                substituted(self.indexing.resolved(right), self.symbols)
            ) == sum_of(symbol):
                return not any(name.startswith("blockIdx") for name in names_in(self.indexing.resolved(left)))
        return False

    def _grid_of_host(self, axis: str, node: Node, block: str) -> Line:
        resolved = self._of_host(node)
        threads = self.values.get(block)
        if threads is not None:  # (n + 255) / 256, 256
            divisor = parsed_text(block)
            for inner in _ceil_divs(resolved):
                if number(inner.args[1]) == threads and divisor is not None:
                    inner.args[1] = divisor
        left = names_in(resolved) - {*self.values, *self.draft.sizes}
        for name in sorted(left):
            told = self._number_of(name) if name.isidentifier() else 0
            if told:
                self._map(name, str(told))
                continue
            like = next((one for one in (*self.draft.sizes, *self.values) if _alike(one, name)), None)
            if like is None and is_free_name(re.sub(r"\W", "_", name).upper()):
                like = re.sub(r"\W", "_", name).upper()
                self.draft.sizes[like] = self._size_line(
                    name, None, guess=f"{name} of the host is not followed"
                )
            if like is not None:
                self._map(name, like)
        resolved = substituted(resolved, self.symbols)
        left = names_in(resolved) - {*self.values, *self.draft.sizes}
        along = self.indexing.covered(axis)
        if along is not None and not left:
            covers = substituted(written_sum(along[0]), self.symbols)
            self.reach[axis] = sum_of(resolved), _covered_by(resolved, covers)
        return Line(
            text_of(resolved), f"{', '.join(sorted(left))} of the host is not followed" if left else ""
        )

    def _shared(self, block: Sequence[str]) -> Line | None:
        """The bytes of dynamic shared memory."""
        node = None if self.launch is None else self.launch.shared
        uses = self.answer is not None and self.answer.dynamic_shared
        if node is not None and (number(node) != 0 or uses):
            resolved = self._of_host(node)
            left = names_in(resolved) - {*self.values, *self.draft.sizes}
            for name in left:
                if name.startswith(SIZEOF):
                    kind = self.typed.get(name.removeprefix(SIZEOF), "")
                    self._map(name, str(_bytes(dtype_of(kind) or "float32")))
            resolved = substituted(resolved, self.symbols)
            left = names_in(resolved) - {*self.values, *self.draft.sizes}
            if not left:
                text = text_of(resolved)
                return None if text == "0" else Line(text)
        if not uses and not self._extern_element():
            return None
        threads = " * ".join(name for name in block if name != "1") or "1"
        return Line(
            f"{threads} * {_bytes(self._extern_element() or 'float32')}",
            "an element of shared memory per thread",
        )

    def _extern_element(self) -> str | None:
        """The type of ``extern __shared__`` memory; None where the kernel has none."""
        words = [token.text for token in self.function.body]
        for index, word in enumerate(words):
            if word == "extern" and "__shared__" in words[index : index + 3]:
                first = words.index("__shared__", index) + 1
                kind = words[first : words.index("[", first) - 1] if "[" in words[first:] else []
                plain = " ".join(
                    self.typed.get(one, one) for one in kind if not one.startswith(("__align", "(", ")"))
                )
                return dtype_of(plain) or "float32"
        return None

    # --- arguments

    def _sizes_as_axes(self) -> list[str]:
        """The sizes as axes, that along x last."""
        sizes = list(self.draft.sizes)[:3]
        if len(sizes) == 1:
            return sizes * min(2, sum(f"ctaid.{axis}" in self._registers() for axis in AXES) or 1)
        sizes = sizes if all(re.fullmatch(_SPATIAL, one) for one in sizes) else sizes[:2]
        first = [size for size in sizes if re.fullmatch(_FIRST_AXIS, size, re.IGNORECASE)]
        return [*first, *(size for size in sizes if size not in first)] if len(sizes) == 2 else sizes[::-1]  # noqa: PLR2004 - a matrix

    def _add_arguments(self) -> None:
        body = list(self.function.body)
        roles = {
            one.name: "in" if one.const else role_of(body, one.name) for one in self.parameters if one.pointer
        }
        if not set(roles.values()) & {"out", "inout"}:
            roles |= {one.name: "inout" for one in self.parameters if one.pointer and not one.const}
        for place, parameter in enumerate(self.parameters, 1):
            name = parameter.name or f"argument{place}"
            taken = {*self.draft.sizes, *self.values} if parameter.pointer else set()
            if (not is_free_name(name) or name in taken) and is_free_name(
                f"{name}_"
            ):  # a word of expressions
                name = f"{name}_"
            if not parameter.pointer:
                self._add_scalar(name, parameter, place - 1)
                continue
            kind, lanes, guess = self._element(parameter)
            shape, told = self._shape(parameter, place - 1, kind, lanes)
            guess = ", ".join(filter(None, [guess, "" if told else "the shape"]))
            axes = ", ".join([*shape, *([str(lanes)] if lanes > 1 else [])])
            self.draft.arguments[name] = Line(quoted(f"{roles[parameter.name]} {kind}[{axes}]"), guess)
        used = {token.text for token in body}
        for name, dtype, extents in constant_symbols(self.text, kept={*self.values, *self.draft.sizes}):
            if name not in used and len(self.foreign) and name not in self.text_outside():
                continue
            if dtype is None:
                self._leave_open(name, "a __constant__ struct: as an array of bytes, 'constant uint8[...]'")
            else:
                shape = [self._extent(text) for text in extents]
                self.draft.arguments[name] = Line(quoted(f"constant {dtype}[{', '.join(shape)}]"))

    def text_outside(self) -> set[str]:
        """The words of the lines that are in no other kernel, and declare no constant."""
        lines = [
            line
            for place, line in enumerate(self.text.splitlines(), 1)
            if not any(place in other for other in self.foreign) and not _OF_SYMBOLS.search(line)
        ]
        return set(re.findall(r"\w+", "\n".join(lines)))

    def _element(self, parameter: Parameter) -> tuple[str, int, str]:
        """Element type of an array, how many make one of the kernel's elements, and what of it is guessed."""
        if parameter.type in HALVES or parameter.dtype is not None:
            return HALVES.get(parameter.type) or str(parameter.dtype), 1 + (parameter.type in HALVES), ""
        vector = _VECTOR.fullmatch(parameter.type)
        if vector is not None:
            return (
                _LANES[vector[1].removeprefix("u")].replace("i", "u" * (vector[1][0] == "u") + "i"),
                int(vector[2]),
                "",
            )
        name = parameter.type.removeprefix("struct ").strip()
        fields = struct_fields(self.text, name) or {}
        if len(set(fields.values())) == 1:
            return next(iter(fields.values())), len(fields), ""
        size = self._bytes_of(name)
        if size:
            return "uint8", size, f"the bytes of {name}"
        return "float32", 1, f"{parameter.type} is not known"

    def _bytes_of(self, name: str) -> int:
        """The bytes of a type, by the compiler; 0 where it does not tell."""
        return self._number_of(f"sizeof({name})")

    def _extent(self, text: str) -> str:
        """An extent in names of the file, with numbers for those of the source alone."""
        node = parsed_text(text)
        known = node is not None and not names_in(node) - {*self.values, *self.draft.sizes}
        return text if known else str(self._number_of(text) or text)

    def _number_of(self, expression: str) -> int:
        """The whole number that an expression of the source is, by the compiler; 0 where it does not tell."""
        tail = (
            f"\ntemplate <int> struct TunerBytes; __device__ TunerBytes<(int)({expression})> tuner_bytes;\n"
        )
        answer = self.ask(self._entry(filled=True), self._options(), tail)
        match = _INCOMPLETE.search(answer.log) if answer is not None else None
        return int(match[1]) if match is not None else 0

    def _shape(self, parameter: Parameter, place: int, kind: str, lanes: int) -> tuple[list[str], bool]:
        """The axes of an array, and whether something tells them."""
        known = {*self.values, *self.draft.sizes}
        candidates: list[Node] = []
        reached = self.indexing.elements(
            parameter.name, lambda name: name in self.symbols or name in known, self.reach
        )
        if reached is not None:
            candidates.append(substituted(reached, self.symbols))
        if self.launch is not None and place < len(self.launch.names):
            allocated = self.launch.bytes.get(self.launch.names[place])
            elements = None if allocated is None else self._allocated(allocated, kind, lanes)
            if elements is not None and not names_in(elements) - known:
                candidates.insert(0 if names_in(elements) or not candidates else 1, elements)
        for node in candidates:
            if not names_in(node) - known:
                total = sum_of(node)
                ((factors, value),) = total.items() if len(total) == 1 else (((), 0),)
                order = list(self.draft.sizes)
                axes = sorted(factors, key=lambda one: order.index(one) if one in order else len(order))
                if len(axes) > 2 and all(re.fullmatch(_SPATIAL, one) for one in axes):  # noqa: PLR2004 - x last
                    axes.reverse()
                else:
                    axes.sort(key=lambda one: not re.fullmatch(_FIRST_AXIS, one, re.IGNORECASE))
                if factors and value == 1:
                    return axes, True
                loose = any(len(one) > 1 for one in total) and any(part < 0 for part in total.values())
                return [text_of(node)], not loose  # products less a rest are no shape
        return self._sizes_as_axes(), False

    def _allocated(self, node: Node, kind: str, lanes: int) -> Node | None:
        """The elements of so many bytes."""
        own = substituted(self._of_host(node), self.symbols)
        total = sum_of(own)
        sizes = {factor for factors in total for factor in factors if factor.startswith(SIZEOF)}
        by: Sum = {(next(iter(sizes)),): 1} if len(sizes) == 1 else {(): _bytes(kind) * lanes}
        quotient = divided(total, by)
        return None if not quotient else written_sum(quotient)

    def _add_scalar(self, name: str, parameter: Parameter, place: int) -> None:
        symbol = self.symbols.get(parameter.name)
        if symbol is not None and parameter.dtype is not None:
            self.draft.arguments[name] = Line(quoted(f"{parameter.dtype} = {text_of(symbol)}"))
        elif parameter.dtype is None:
            fields = self.fields.get(parameter.name) or {}
            if fields:
                values = {
                    one: text_of(self.symbols[f"{parameter.name}.{one}"])
                    if f"{parameter.name}.{one}" in self.symbols
                    else "1"
                    for one in fields
                }
                lines = [f"{one} = {quoted(f'{kind} = {values[one]}')}" for one, kind in fields.items()]
                self.draft.arguments[name] = Line(f"{{ {', '.join(lines)} }}", "the values of its fields")
                return
            texture = parameter.type.startswith(("cudaTexture", "cudaSurface"))
            way = (
                "textures are not supported"
                if texture
                else "structs are written as { field = 'TYPE = VALUE', ... }"
            )
            self._leave_open(name, f"{parameter.type}: {way}")
        else:
            value, told = self._scalar_value(parameter, place)
            self.draft.arguments[name] = Line(
                quoted(f"{parameter.dtype} = {value}"), "" if told else "its value is not told"
            )

    def _scalar_value(self, parameter: Parameter, place: int) -> tuple[str, bool]:
        """The value that the host passes, as the file writes it, and whether it is told."""
        if self.launch is None or place >= len(self.launch.arguments):
            return "1", False
        node = self.launch.arguments[place]
        if node is None:
            return "1", False
        resolved = self._of_host(node)
        if names_in(resolved) - {*self.values, *self.draft.sizes}:
            return "1", False
        whole = parameter.dtype not in ("float32", "float64", "float16", "bfloat16")
        return text_of(resolved) if whole else _fraction(resolved), True

    def _leave_open(self, name: str, what: str) -> None:
        self.draft.arguments[f"# {name}"] = Line('"..."' + f"  # FILL IN: {what}")
        self.draft.missing.append(f"arguments.{name}: {what}")

    # --- tunables

    def _add_tunables(self) -> None:
        block = self.draft.launch.get("block")
        extents = re.sub(r"//\s*\w+", "", block.value) if block is not None else ""
        in_block = set(re.findall(r"\w+", extents))
        square = block is not None and any(block.value.count(quoted(name)) > 1 for name in in_block)
        read = [line.value for line in self.draft.arguments.values() if line.value.startswith('"in ')]
        axes = {axis for text in read for axis in re.findall(r"\w+(?=[,\]])", text)}
        for name, value in self.values.items():
            macro = self.macros.get(name, Macro(""))
            if name in axes and name not in in_block:  # another value would be another problem
                self.draft.sizes[name] = Line(f"[{value}]", "" if macro.default else "the size to tune for")
                continue
            if macro.is_bool:
                self.draft.tunables[name] = Line("[true, false]", "" if macro.default else "the values")
                self.draft.default[name] = bool(value)
                continue
            values = self._choices(name, value, macro, in_block=name in in_block, square=square)
            told = bool(macro.values)
            open_one = macro == Macro("") and name in self.text
            guess = "" if told else f"{'undefined in the source; ' if open_one else ''}the values to try"
            self.draft.tunables[name] = Line(json.dumps(values), guess, self.notes.get(name, ""))
            self.draft.default[name] = value

    def _choices(self, name: str, value: int, macro: Macro, *, in_block: bool, square: bool) -> list[int]:
        """Values to try of a tunable, its default among them."""
        if macro.values:
            return sorted({*macro.values, value})
        if in_block:
            axes = self.draft.launch["block"].value.split(",")
            place = next(i for i, axis in enumerate(axes) if name in re.findall(r"\w+", axis))
            lone = "[" not in self.draft.launch["block"].value
            usual = _SQUARES if square else _BLOCKS[0] if lone else _SIDES[min(place, 2)]
            return sorted({*usual, value})
        if macro.default:
            return sorted({max(1, value // 2), value, value * 2} if value > 1 else {1, 2, 4})
        return sorted({*_FACTORS, value} if value < 64 else {value // 2, value, value * 2})  # noqa: PLR2004 - a tile or a factor

    def _end(self) -> None:
        """Keep only values that the compiler takes, the others as by default; name what is still open."""
        if self.answer is not None and not self.answer.log:
            for name, line in self.draft.tunables.items():
                if line.value.startswith("[true") or self.macros[name].values == tuple(
                    json.loads(line.value)
                ):
                    continue
                if name.startswith("block_size_") and name not in self.text:
                    continue
                kept, default = [], self.values[name]
                for value in json.loads(line.value):
                    self.values[name] = value
                    answer = self.ask(self._entry(filled=True), self._options(), "")
                    if value == default or (answer is not None and not answer.log):
                        kept.append(value)
                self.values[name] = default
                line.value = json.dumps(kept)
        if not re.match(NAME_PATTERN, Path(self.draft.source).stem.lower().replace("_", "-")):
            self.draft.missing.append('kernel.name = "..."  # the name of the file is no name of a kernel')


def _is_type(before: str, behind: str) -> bool:
    """Return True if a name between two parts of a line declares another name."""
    declares = re.match(r"([*&]*)\s*(?:__restrict__\s*)?(\w+)\s*[,;)=\[>]", behind)
    if declares is None or declares[2] in ("and", "or", "if") or declares[2].isdecimal():
        return False
    begins = re.search(r"(?:^|[;{},]|\b(?:const|static|inline|typename|__\w+__))$", before)
    return begins is not None or (before.endswith(("(", "<")) and (not declares[1] or "__" in before))


def _joined(lines: Sequence[Line]) -> Line:
    values = [quoted(line.value) if not line.value.isdecimal() else line.value for line in lines]
    guess = "; ".join(dict.fromkeys(line.guess for line in lines if line.guess))
    return Line(values[0] if len(values) == 1 else f"[{', '.join(values)}]", guess)


def _whole(end: Sum) -> Sum:
    """An end without what is taken off it: blocks that reach ``n`` reach ``n - 1``."""
    return {factors: value for factors, value in end.items() if factors or value > 0} or end


def _alike(one: str, other: str) -> bool:
    """Return True if two names differ in case and underscores only."""
    return one.replace("_", "").lower() == other.replace("_", "").lower()


def _axis_name(name: str, axis: str) -> bool:
    return bool(re.fullmatch(_BLOCK, name, re.IGNORECASE)) and name.lower().endswith(axis)


def _bytes(dtype: str) -> int:
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize


def _covered_by(blocks: Node, covers: Node) -> Sum:
    """All that blocks of a width cover: the dividend, where the width divides something to make them."""
    for divide in _divisions(blocks):
        if sum_of(divide[1]) == sum_of(covers):
            return sum_of(divide[0])
    return sum_of(blocks) if sum_of(covers) == {(): 1} else multiplied(sum_of(blocks), sum_of(covers))


def _divisions(node: Node) -> list[tuple[Node, Node]]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
        return [(node.left, node.right)]
    return [(inner.args[0], inner.args[1]) for inner in _ceil_divs(node) if inner is node]


def _fraction(node: Node) -> str:
    return ast.unparse(node).replace("//", "/")


def _ceil_divs(node: Node) -> list[ast.Call]:
    return [
        inner
        for inner in ast.walk(node)
        if isinstance(inner, ast.Call) and ast.unparse(inner.func) == "ceil_div"
    ]
