"""The code of a kernel as drafts see it: launched by the host, instantiated, and asked of the compiler.

Macros and template parameters get a value each, so that the source compiles: of the launch, of the source, or
guessed by their names. A ``Draft`` holds the lines of the file, and which of them are guesses.
"""

import ast
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from tuner.kernel_files.cuda_source.arguments import C_TYPES
from tuner.kernel_files.cuda_source.c_expressions import (
    Node,
    Sum,
    calls_in,
    names_in,
    number,
    parsed_text,
    substituted,
    with_names,
)
from tuner.kernel_files.cuda_source.guesses import Macro, macros_of, struct_fields
from tuner.kernel_files.cuda_source.indexing import AXES, Indexing
from tuner.kernel_files.cuda_source.launches import Launch, inlined, launches_in, values_of
from tuner.kernel_files.cuda_source.signatures import (
    GlobalFunction,
    Parameter,
    defined_functions,
    dtype_of,
    parameters_of,
)
from tuner.kernel_files.cuda_source.tokens import told_apart
from tuner.kernel_files.source_checks import GUESS
from tuner.kernel_files.triton_source import TritonFunction


def quoted(text: str) -> str:
    """A text as TOML has it."""
    return json.dumps(text, ensure_ascii=False)


@dataclass
class Line:
    """A line of a kernel file: its value, and in words what of it is a guess."""

    value: str
    guess: str = ""

    def __str__(self) -> str:
        return self.value + (f"  {GUESS}: {self.guess}" if self.guess else "")


@dataclass
class Draft:
    """A kernel file in the making.

    Attributes:
        missing: what must be filled in before the file can be read.
        fixed: constants of the source that could be tunables.
    """

    source: str
    function: GlobalFunction | TritonFunction
    entry: Line | None = None
    options: Line | None = None
    sizes: dict[str, Line] = field(default_factory=dict)
    arguments: dict[str, Line] = field(default_factory=dict)
    tunables: dict[str, Line] = field(default_factory=dict)
    default: dict[str, int | bool] = field(default_factory=dict)
    rules: list[str] = field(default_factory=list)
    launch: dict[str, Line] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    fixed: dict[str, int] = field(default_factory=dict)

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
        outs = [
            name
            for name, line in self.arguments.items()
            if line.value.startswith(('"out', '"inout', '"restored'))
        ]
        lines.append(
            f'# reference.{outs[0] if outs else "y"} = "..."  # an expression of the inputs;'
            " without it answers are only compared"
        )
        for title, table in (("arguments", self.arguments), ("tunables", self.tunables)):
            lines += (
                ["", f"[{title}]", *(f"{name} = {line}" for name, line in table.items())] if table else []
            )
        if self.fixed:
            name, value = next(iter(self.fixed.items()))
            named = ", ".join(f"{name} = {value}" for name, value in self.fixed.items())
            lines += [
                f"# Fixed by the source: {named}. To tune one, leave room for it there by three lines",
                f"# (#ifndef {name}, #define {name} {value}, #endif), and draft again or add it here.",
            ]
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


# --- The code of a kernel, as drafts see it.


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
_BITS = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift, ast.RShift, ast.Invert)  # no file has them
_FUNCTIONS = {"ceil_div", "min", "max"}  # of kernel files, as C++ has them


# --- Names that say what they are for, and types.

SIZE = (
    r"n|m|k|nx|ny|nz|size|length|len|count|total|elements|width|height|depth|rows|cols|columns|dim|w|h"
    r"|(?:n|num|number)_?(?:of_?)?(?:elements|items|points|rows|cols|columns|particles|bodies|samples|values)?"
    r"|\w*_?(?:size|count|length|width|height)|n_\w+|num_\w+"
)
BLOCK = (
    r"(?:n_?)?(?:threads?|block|blocks?_?(?:size|dim)|block_?dim|threads_?per_?block|num_?threads|bs|tpb|wg_?size"
    r"|work_?group_?size|tile|tile_?(?:size|dim|width)|bdim|nthreads|nt)(?:_?[xyz])?|b[xyz]|b"
)
SMALL = r"\w*(?:radius|taps|halo|order|degree)|filter_?\w*|mask_?\w*|kernel_?(?:size|width|height|radius)|r"
WHOLE = ("int32", "uint32", "int64", "uint64")
_REAL = (
    r"_?(?:real|float|scalar|number|data|value|elem|element)?_?(?:t|type|fp|x)?\d*|fp|dtype|real\w*|float\w*"
)


class DraftedCode:
    """A kernel with a value for each name that its source leaves open."""

    def __init__(
        self, text: str, source: Path, function: GlobalFunction, ask: Ask, beside: Iterable[str]
    ) -> None:
        self.text, self.ask = text, ask
        self.names = [one.name for one in function.parameters]
        self.function = replace(function, body=tuple(told_apart(function.body, self.names)))
        self.draft = Draft(source.name, function)
        self.values: dict[str, int] = {}  # of tunables, to compile with and to launch by default
        self.sized: dict[str, int] = {}  # of macros and template parameters that are sizes, to compile with
        self.others: dict[str, str] = {}  # macros that are no tunables -> what they stand for
        self.guessed_types: list[str] = []
        self.open_types: list[str] = []  # of the template's, those that nothing tells
        self.symbols: dict[str, Node] = {}  # names of the kernel and of its host -> names of the file
        self.launch = self._launch_of(beside)
        functions = defined_functions(text)
        self.foreign = [range(one.line, one.last_line + 1) for one in functions if one.line != function.line]
        self.macros = macros_of(text, self.foreign)
        self.constants = {name: value for name, value in values_of(text).items() if name not in self.macros}
        self.indexing = Indexing(self.function.body, self.constants, function.parameters, inlined(text))
        self.reach: dict[str, tuple[Sum, Sum]] = {}  # axis -> blocks, and what they cover
        self.threads: dict[str, Sum] = {}  # axis -> threads of a block
        self.typed: dict[str, str] = {}  # template parameters that are types
        self.type_of = {one.name: one.type for one in function.parameters}
        self.passed: dict[str, Node] = {}  # parameters -> what the host passes
        self.allocated: dict[str, Node] = {}  # arrays -> the bytes that the host allocates
        self.stated: Mapping[str, Node] = {}  # names of the host -> what they are there
        self.called: Mapping[str, Node] = {}  # parameters of its function -> numbers of who calls that
        if self.launch is not None:
            self.stated, self.called = self.launch.values, self.launch.called
            nodes, names = self.launch.arguments, self.launch.names
            self.passed = {name: node for name, node in zip(self.names, nodes, strict=False) if name and node}
            sizes = zip(self.names, map(self.launch.bytes.get, names), strict=False)
            self.allocated = {name: size for name, size in sizes if size}
        self.answer: Answer | None = None
        self._add_template()
        self.answer = self._compiled()
        self.parameters = self._parameters()
        self.fields = {  # of structs that are passed by value, and their types
            one.name: struct_fields(self.text, struct_name(one)) or {}
            for one in self.parameters
            if not one.pointer and one.dtype is None
        }

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

    def _add_template(self) -> None:
        """A type or a value for each template parameter: of the launch, of its default, or guessed."""
        given = self.launch.template if self.launch else ()
        for place, parameter in enumerate(self.function.template):
            stated = given[place] if place < len(given) else parameter.default
            if parameter.is_type:
                known = dtype_of(stated) is not None or re.fullmatch(r"\w*float\d|\w*half\d?", stated)
                self.typed[parameter.name] = stated if known else "float"
                self.open_types += [] if known else [parameter.name]
                continue
            node = parsed_text(stated)
            value = number(node and substituted(node, {**self.constants, **self.stated}))
            self.macros[parameter.name] = Macro("" if value is None else str(value), parameter.kind == "bool")
            self.values[parameter.name] = value if value is not None else self._first_value(parameter.name)
            if node and value is not None:
                for name in names_in(node):
                    self.symbols[name] = parsed_text(parameter.name) or node

    def _first_value(self, name: str) -> int:
        macro = self.macros.get(name, Macro(""))
        if macro.first is not None:
            return macro.first
        sides = [16, 8, 4] if "tid.y" in self._registers() else [256, 4, 4]
        if name in self._names_of_block():
            return sides[0]
        if self._is_block_name(name):
            return sides[max(0, AXES.find(name.lower()[-1]))]
        if re.fullmatch(SMALL, name, re.IGNORECASE):
            return 3
        return 1024 if self._is_size_name(name) else 1

    def _is_block_name(self, name: str) -> bool:
        """Return True if a name is one of blocks; of tiles, only where no other is."""
        if not re.fullmatch(BLOCK, name, re.IGNORECASE):
            return False
        words = {token.text for token in self.function.body if token.kind == "word"}
        others = [word for word in words if len(word) > 1 and "tile" not in word.lower()]
        return "tile" not in name.lower() or not any(
            re.fullmatch(BLOCK, word, re.IGNORECASE) for word in others if word not in self.indexing.values
        )

    def _is_size_name(self, name: str) -> bool:
        """Return True if a name is the end of an index, or called as sizes are, and no extent of a block."""
        if name in self._names_of_block() or self._is_block_name(name):
            return False
        ends = {one for _, end, _ in self.indexing.ends for one in names_in(end)}
        return name in ends and re.fullmatch(rf"{SIZE}|{SMALL}", name, re.IGNORECASE) is not None

    def _names_of_block(self) -> set[str]:
        """Names that stand for the extent of the block, by the kernel's indices."""
        extents = [self.indexing.extent(axis) or {} for axis in AXES]
        return {name for one in extents for factors in one for name in factors if one == {(name,): 1}}

    def _options(self) -> tuple[str, ...]:
        template = {parameter.name for parameter in self.function.template}
        known = {**self.values, **self.sized, **self.others}
        return tuple(f"-D{name}={value}" for name, value in known.items() if name not in template)

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
            return f"(void (*)({', '.join(map(str, self.function.parameters))})){name}"
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
                plain = C_TYPES.get(dtype_of(name) or "", "__")
                if not plain.startswith("__"):
                    self.others[name] = plain
                elif re.fullmatch(_REAL, name, re.IGNORECASE):
                    self.others[name] = "float"
                    self.guessed_types.append(name)
                else:
                    self.draft.missing.append(f"kernel.source: nothing declares the type {name}")
                    return False
            elif self._is_foreign(int(line)):
                self.others[name] = str(self._first_value(name))
            else:
                self.macros.setdefault(name, Macro(""))
                self.values[name] = self._first_value(name)
        for name in [name for name in self.others if self._is_own(name, log)]:
            self.values[name] = int(self.others.pop(name))
            self.macros.setdefault(name, Macro(""))
        return found

    def _is_own(self, name: str, log: str) -> bool:
        """Return True if an undefined name is used outside of the other kernels, too."""
        lines = [int(line) for line, other, *_ in _UNDEFINED.findall(log) if other == name]
        return self.others[name].isdecimal() and not all(map(self._is_foreign, lines))

    def _is_foreign(self, line: int) -> bool:
        """Return True if a line of the source is one of another kernel."""
        return any(line in other for other in self.foreign)

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

    def _parameters(self) -> list[Parameter]:
        """The parameters, with types in the place of the template's."""
        found = parameters_of(self.text, self._entry(filled=True)) if self.typed else []
        return found if [one.name for one in found] == self.names else list(self.function.parameters)

    def _unknown_in(self, node: Node) -> set[str]:
        """The names of an expression that the file does not have, and functions that it cannot call."""
        bits = {ast.unparse(one) for one in ast.walk(node) if isinstance(getattr(one, "op", None), _BITS)}
        return (names_in(node) - {*self.values, *self.draft.sizes}) | (calls_in(node) - _FUNCTIONS) | bits

    def _number_of(self, expression: str) -> int:
        """The whole number that an expression of the source is, by the compiler; 0 where it does not tell."""
        tail = (
            f"\ntemplate <int> struct TunerBytes; __device__ TunerBytes<(int)({expression})> tuner_bytes;\n"
        )
        answer = self.ask(self._entry(filled=True), self._options(), tail)
        match = _INCOMPLETE.search(answer.log) if answer is not None else None
        return int(match[1]) if match is not None else 0

    def _of_host(self, node: Node, *, resolve: bool = True) -> Node:
        """An expression of the host in names of the file; ``resolve`` follows other names to their values."""
        values = {**self.constants, **self.stated} if resolve else {}
        kept = {name: value for name, value in values.items() if name not in self.values}
        return substituted(node, {**kept, **self.symbols})


def _is_type(before: str, behind: str) -> bool:
    """Return True if a name between two parts of a line declares another name."""
    declares = re.match(r"([*&]*)\s*(?:__restrict__\s*)?(\w+)\s*[,;)=\[>]", behind)
    if declares is None or declares[2] in ("and", "or", "if") or declares[2].isdecimal():
        return False
    begins = re.search(r"(?:^|[;{},]|\b(?:const|static|inline|typename|__\w+__))$", before)
    return begins is not None or (before.endswith(("(", "<")) and (not declares[1] or "__" in before))


def struct_name(parameter: Parameter) -> str:
    """The name of the struct that a parameter is."""
    return parameter.type.removeprefix("struct ").strip()
