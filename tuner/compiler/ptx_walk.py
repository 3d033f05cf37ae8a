"""The arithmetic that one thread of compiled code executes: its PTX is walked with the arguments of a launch.

Integers are computed, as far as they follow from arguments, places of the thread and constants; so loops
over sizes are gone through as often as on a GPU. What is read from memory, and floating-point numbers, are
unknown: a branch that depends on them falls through, and is taken the next time it is met. A loop whose
counter moves evenly, as the cost of its laps does, is skipped to its last lap. Divisions count as one
operation, and addresses and moves as none, so that hardware does no less.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tuner.compiler.ptx import functions

MOST_STEPS = 200_000
"""Instructions that are gone through for one launch: half a second of Python."""

UNITS = ("fp32", "fp64", "fp16", "tensor64", "tensor32", "tensor16", "tensor8", "tensor4", "tensor1")
"""Units of counts: lanes of a multiprocessor, or tensor cores by the bits of their operands."""

ISSUED = "issued"
"""Counts of instructions that are arithmetic, or reach memory."""

REQUESTS = "requests"
"""Counts of loads, stores and atomic operations, shared memory included, parameters and constants not."""

_STATEMENT = re.compile(r"(?:@(!?)(%[\w$]+)\s+)?([a-z][\w.:]*)\s*(.*)", re.DOTALL)
_BRACES = "{} \t\r\n"  # those of inline assembly stand before and behind one another
_NO_STATEMENT = re.compile(
    r"//[^\n]*|^\s*\.loc\b[^\n]*", re.MULTILINE
)  # a line of the source ends at no semicolon
_LABEL = re.compile(r"\s*([\w$]+):(?!:)")
_OPCODE = re.compile(r"(?:^|[;{}:])\s*(?:@!?%[\w$]+\s+)?([a-z]\w*(?:\.[\w:]+)+)", re.MULTILINE)
_PARAMETER = re.compile(r"\.param\s[^,)]*?([\w$]+)(?:\[\d+\])?\s*(?=[,)\n])")
_ARITHMETIC = {
    *("add", "sub", "mul", "fma", "mad", "div", "sqrt", "rsqrt"),
    *("rcp", "ex2", "lg2", "sin", "cos", "tanh"),
}
_INTEGER_PRODUCTS = ("mul", "mad", "dp4a", "dp2a")  # sums and bits may be joined, or be parts of addresses
_LANES = {
    "f32": ("fp32", 1),
    "f32x2": ("fp32", 2),
    "f64": ("fp64", 1),
    "f16": ("fp16", 1),
    "bf16": ("fp16", 1),
    "f16x2": ("fp16", 2),
    "bf16x2": ("fp16", 2),
}
_MEMORY = ("ld", "st", "atom", "red", "ldmatrix", "stmatrix", "wmma")
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_MATRIX_BITS = {
    "f16": 16,
    "bf16": 16,
    "tf32": 32,
    "f64": 64,
    "s8": 8,
    "u8": 8,
    "e4m3": 8,
    "e5m2": 8,
    "s4": 4,
    "u4": 4,
    "e2m1": 4,
    "b1": 1,
}
_HALF_BITS = 16  # multiplied where only the type of the sums is named
_WARP = 32
_WARPGROUP = 128
_INTEGER = re.compile(r"[busp](?:8|16|32|64|red)$")
_SYMBOL_ADDRESS = 1 << 44
_NEVER = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}
_COMPARED: dict[str, Callable[[int, int], bool]] = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lo": lambda a, b: a < b,
    "ls": lambda a, b: a <= b,
    "hi": lambda a, b: a > b,
    "hs": lambda a, b: a >= b,
}
_COMPUTED: dict[str, Callable[..., int]] = {
    "mov": lambda a: a,
    "cvta": lambda a: a,
    "cvt": lambda a: a,
    "neg": lambda a: -a,
    "not": lambda a: ~a,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "min": min,
    "max": max,
    "mad": lambda a, b, c: a * b + c,
    "abs": abs,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": lambda a, n: a << min(n, 64),
    "shr": lambda a, n: a >> min(n, 64),
    "div": lambda a, b: 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "rem": lambda a, b: 0 if b == 0 else abs(a) % abs(b) * (1 if a >= 0 else -1),
    "bfe": lambda a, at, bits: (a >> at) & ((1 << bits) - 1),
}
Operand = int | str


class _Instruction(NamedTuple):
    """A decoded statement; ``target`` of branches is the place it leads to, of calls the function."""

    name: str
    parts: tuple[str, ...]
    guard: str
    negated: bool
    operands: tuple[Operand, ...]
    counts: tuple[tuple[str, int], ...]
    target: int | str | None = None


class Place(NamedTuple):
    """Which thread is walked, in which launch: x, y and z of each."""

    thread: tuple[int, ...]
    block: tuple[int, ...]
    threads: tuple[int, ...]
    blocks: tuple[int, ...]


def counted(ptx: str) -> Counter[str]:
    """Operations by unit of all instructions of an excerpt, each once."""
    counts: Counter[str] = Counter()
    for body in functions(ptx).values():
        for opcode, times in Counter(_OPCODE.findall(body.partition("{")[2])).items():
            counts.update({name: times * count for name, count in _counts(_parts(opcode))})
    return counts


def executed(
    ptx: str, arguments: tuple[int | None, ...], place: Place, most_steps: int = MOST_STEPS
) -> Counter[str]:
    """Operations by unit that a thread executes.

    Args:
        ptx: an excerpt (``tuner.compiler.ptx``).
        arguments: values of the parameters, in order; None where a value is not known.
        place: the thread.
        most_steps: instructions after which it is left.
    """
    bodies = functions(ptx)
    if not bodies:
        return Counter()
    entry = next(iter(bodies))
    heads = {name: body.partition("{")[0] for name, body in bodies.items()}
    # without what it returns, which stands in brackets before
    parameters = {name: _PARAMETER.findall(head[head.rfind("(") :]) for name, head in heads.items()}
    walk = _Walk({name: _decoded(body) for name, body in bodies.items()}, parameters, place, most_steps)
    walk.function(entry, dict(zip(parameters[entry], arguments, strict=False)))
    return walk.counts


@dataclass
class _Lap:
    """State at a backward branch when it was last taken."""

    compared: tuple[int, int]
    registers: dict[str, int | None]
    counts: Counter[str]
    number: int = 1  # those that were skipped count
    steps: tuple[int, int] | None = None  # of what was compared, in this lap
    cost: Counter[str] | None = None  # of this lap
    growth: Counter[str] | None = None  # how much more that was than of the one before


@dataclass
class _Walk:
    programs: Mapping[str, list[_Instruction]]
    parameters: Mapping[str, Sequence[str]]
    place: Place
    steps: int
    counts: Counter[str] = field(default_factory=Counter)
    entered: list[str] = field(default_factory=list)

    def function(self, name: str, parameters: Mapping[str, int | None]) -> None:
        """Go through a function from its beginning, unless it calls itself."""
        if name in self.entered:
            return
        self.entered.append(name)
        self._walk(name, parameters)
        self.entered.pop()

    def _walk(self, name: str, parameters: Mapping[str, int | None]) -> None:
        program = self.programs[name]
        registers: dict[str, int | None] = self._places()
        comparisons: dict[str, tuple[str, int, int]] = {}
        met: set[int] = set()
        laps: dict[int, _Lap] = {}
        at = 0
        while at < len(program) and self.steps > 0:
            self.steps -= 1
            instruction = program[at]
            at += 1
            condition = self._held(instruction, registers)
            if instruction.name == "bra":
                jumps = condition if condition is not None else at in met
                met.add(at)
                if not jumps:
                    laps.pop(at, None)
                elif isinstance(instruction.target, int):
                    if instruction.target < at:
                        self._skip(at, instruction, registers, comparisons, laps)
                    at = instruction.target
                continue
            if condition is False:
                continue
            if instruction.name in ("ret", "exit"):
                return
            for unit, amount in instruction.counts:
                self.counts[unit] += amount
            if instruction.name == "call":
                self._call(instruction, registers)
            else:
                _compute(instruction, registers, comparisons, parameters)

    def _call(self, instruction: _Instruction, registers: Mapping[str, int | None]) -> None:
        """Go through the function that is called, if it is there, with what was stored for it."""
        name = str(instruction.target)
        if name in self.programs:
            words = _split(str(instruction.operands[-1]).strip("()"))
            values = [registers.get(f"[{word}]") for word in words]
            self.function(name, dict(zip(self.parameters[name], values, strict=False)))

    def _places(self) -> dict[str, int | None]:
        registers: dict[str, int | None] = {}
        for name, values in zip(("tid", "ctaid", "ntid", "nctaid"), self.place, strict=True):
            registers |= {f"%{name}.{axis}": value for axis, value in zip("xyz", values, strict=True)}
        x, y, z = self.place.thread
        width, height, _ = self.place.threads
        return registers | {"%laneid": (x + width * (y + height * z)) % _WARP, "WARP_SZ": _WARP}

    @staticmethod
    def _held(instruction: _Instruction, registers: Mapping[str, int | None]) -> bool | None:
        """Return True if an instruction is executed; None if that is undetermined."""
        if not instruction.guard:
            return True
        value = registers.get(instruction.guard)
        return None if value is None else bool(value) != instruction.negated

    def _skip(
        self,
        at: int,
        instruction: _Instruction,
        registers: dict[str, int | None],
        comparisons: Mapping[str, tuple[str, int, int]],
        laps: dict[int, _Lap],
    ) -> None:
        """Go to the last but one lap of a loop whose counter moves evenly, as the cost of its laps does."""
        if instruction.guard not in comparisons or registers.get(instruction.guard) is None:
            return
        name, a, b = comparisons[instruction.guard]
        lap = laps.get(at)
        laps[at] = now = _Lap((a, b), dict(registers), Counter(self.counts))
        if lap is None:
            return
        now.number = lap.number + 1
        now.steps = (a - lap.compared[0], b - lap.compared[1])
        now.cost = _less(self.counts, lap.counts)
        if lap.cost is None or now.steps != lap.steps:
            return
        now.growth = _less(now.cost, lap.cost)
        grows = any(now.growth.values())
        if grows and now.growth != lap.growth:
            return
        laps_left = _laps_left(
            _NEVER[name] if instruction.negated else name, a - b, now.steps[0] - now.steps[1]
        )
        if laps_left < 1:
            return
        if grows:  # it may end to do so, as in bands of matrices
            laps_left = min(laps_left, now.number)
        for register, value in registers.items():
            before = lap.registers.get(register)
            if value is not None and before is not None:
                registers[register] = value + laps_left * (value - before)
        for unit, cost in now.cost.items():
            self.counts[unit] += laps_left * cost + laps_left * (laps_left + 1) // 2 * now.growth[unit]
        compared = a + laps_left * now.steps[0], b + laps_left * now.steps[1]
        laps[at] = _Lap(compared, dict(registers), Counter(self.counts), now.number + laps_left)


def _less(counts: Counter[str], other: Counter[str]) -> Counter[str]:
    """The difference of two counts, which may be negative."""
    return Counter({unit: counts[unit] - other[unit] for unit in counts | other})


def _laps_left(name: str, apart: int, step: int) -> int:
    """Return the number of times a comparison still holds as the difference ``apart`` changes by ``step``."""
    if name in ("gt", "ge"):
        name, apart, step = {"gt": "lt", "ge": "le"}[name], -apart, -step
    if name == "ne":
        return -apart // step - 1 if step and -apart % step == 0 and -apart // step > 0 else 0
    if step <= 0 or name == "eq":
        return 0
    return max(0, -(apart // step) - 1 if name == "lt" else -apart // step)


def _compute(
    instruction: _Instruction,
    registers: dict[str, int | None],
    comparisons: dict[str, tuple[str, int, int]],
    parameters: Mapping[str, int | None],
) -> None:
    """Write the result of an instruction; of what is not known, that it is not."""
    if not instruction.operands or instruction.name in ("red", "bar", "barrier"):
        return
    target, *sources = instruction.operands
    values = [item if isinstance(item, int) else registers.get(item) for item in sources]
    if instruction.name == "st":
        if "param" in instruction.parts:
            registers[str(target).replace("+0]", "]")] = values[0]
        return
    known_values = [value for value in values if value is not None]
    result: int | None = None
    kind = instruction.parts[-1]
    if instruction.name == "ld" and "param" in instruction.parts:
        result = parameters.get(str(sources[0]).strip("[]").removesuffix("+0"))
    elif instruction.name == "selp" and len(values) == 3 and values[2] is not None:  # noqa: PLR2004 - a, b, predicate
        result = values[0] if values[2] else values[1]
    elif not _INTEGER.match(kind) or len(known_values) < len(values):
        pass
    elif instruction.name == "setp":
        result = _compare(instruction, target, [_read(value, kind) for value in known_values], comparisons)
    elif instruction.name in _COMPUTED and "hi" not in instruction.parts:
        try:
            result = int(_COMPUTED[instruction.name](*(_read(value, kind) for value in known_values)))
        except (TypeError, ValueError, OverflowError):  # other operands than the table has
            result = None
        result = None if result is None else _stored(instruction, result)
    for name in str(target).strip("{}").split(","):
        registers[name.strip()] = result


def _stored(instruction: _Instruction, value: int) -> int | None:
    """A result as a register holds it: signed, of the width of the instruction."""
    kind = instruction.parts[-2] if instruction.name == "cvt" else instruction.parts[-1]
    if kind == "pred":
        return value & 1
    if not _INTEGER.match(kind):  # a floating-point number
        return None
    half = 1 << (_width(kind) * (2 if "wide" in instruction.parts else 1) - 1)
    return (value + half) % (2 * half) - half


def _compare(
    instruction: _Instruction,
    target: Operand,
    values: list[int],
    comparisons: dict[str, tuple[str, int, int]],
) -> int | None:
    name = instruction.parts[1]
    if len(values) != 2 or name not in _COMPARED:  # noqa: PLR2004 - joined with a predicate
        comparisons.pop(str(target), None)
        return None
    plain = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(name, name)
    comparisons[str(target)] = plain, values[0], values[1]
    return int(_COMPARED[name](*values))


def _read(value: int, kind: str) -> int:
    """A value as an instruction of a type takes it."""
    return value & ((1 << _width(kind)) - 1) if kind.startswith("u") and value < 0 else value


def _width(kind: str) -> int:
    return 1 if kind == "pred" else int(kind[1:])


def _decoded(body: str) -> list[_Instruction]:
    """The statements of a function, with labels resolved."""
    text = _NO_STATEMENT.sub("", body.partition("{")[2])
    labels: dict[str, int] = {}
    instructions: list[_Instruction] = []
    for piece in text.split(";"):
        statement = piece.lstrip(_BRACES)
        while (label := _LABEL.match(statement)) is not None:
            labels[label[1]] = len(instructions)
            statement = statement[label.end() :].lstrip(_BRACES)
        match = _STATEMENT.match(statement)
        if match is not None:
            instructions.append(_instruction(*match.groups(default="")))
    return [
        instruction._replace(target=labels.get(str(instruction.target)))
        if instruction.name == "bra"
        else instruction
        for instruction in instructions
    ]


def _instruction(negated: str, guard: str, opcode: str, rest: str) -> _Instruction:
    parts = _parts(opcode)
    words = _split(rest)
    target = None
    if parts[0] in ("bra", "call"):
        target = next((word for word in words if not word.startswith(("(", "%"))), None)
    operands = tuple(_operand(word) for word in words)
    return _Instruction(parts[0], parts, guard, bool(negated), operands, tuple(_counts(parts)), target)


def _parts(opcode: str) -> tuple[str, ...]:
    return tuple(re.split(r"[.:]+", opcode))


def _operand(text: str) -> Operand:
    plain = text.rstrip("U")
    if re.fullmatch(r"-?\d+|0x[0-9a-fA-F]+", plain):
        return int(plain, 0) if plain.startswith("0x") else int(plain)
    return _SYMBOL_ADDRESS if re.fullmatch(r"[A-Za-z_]\w*", text) and text != "WARP_SZ" else text


def _split(text: str) -> list[str]:
    """Operands at commas outside of braces, brackets and parentheses."""
    parts, depth = [""], 0
    for sign in text:
        depth += {"{": 1, "[": 1, "(": 1, "}": -1, "]": -1, ")": -1}.get(sign, 0)
        if sign == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts if part.strip()]


def _counts(parts: tuple[str, ...]) -> list[tuple[str, int]]:
    """Operations of an instruction by unit, for one thread."""
    name, kind = parts[0], parts[-1]
    shape = _SHAPE.search(".".join(parts))
    if "mma" in parts or "mma_async" in parts:
        bits = [_MATRIX_BITS[part] for part in parts if part in _MATRIX_BITS]
        threads = _WARPGROUP if name == "wgmma" else _WARP
        if shape is None:
            return [(ISSUED, 1)]
        products = math.prod(map(int, shape.groups())) // threads
        return [(f"tensor{min(bits, default=_HALF_BITS)}", products), (ISSUED, 1)]
    if name in _ARITHMETIC and kind in _LANES:
        unit, lanes = _LANES[kind]
        return [(unit, lanes), (ISSUED, 1)]
    if name in _INTEGER_PRODUCTS and kind in ("s32", "u32") and "wide" not in parts:
        return [(ISSUED, 1)]
    if name not in _MEMORY or "param" in parts:
        return []
    return [(ISSUED, 1)] if "const" in parts else [(ISSUED, 1), (REQUESTS, 1)]
