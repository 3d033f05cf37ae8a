"""A first kernel file for a function of Triton: ``tuner kernels new`` of a Python file, read as text.

Arrays are parameters whose address is loaded from or stored to; sizes are what indices are held against. What
no text tells, as types and values to try, is guessed, and its line says so.
"""

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeGuard

from tuner.kernel_files.draft_code import Draft, Line, quoted
from tuner.kernel_files.formulas import Location
from tuner.kernel_files.triton_source import (
    LOADS,
    STORES,
    TritonParameter,
    assignments,
    called_name,
    functions_in,
    literal,
    number_dtype,
    reached_parameters,
    triton_function,
)
from tuner.kernel_files.triton_stage import OPTIONS
from tuner.model.plan import Source, TunableValue

_STRIDE = re.compile(r".*stride.*", re.IGNORECASE)
_FRACTION = re.compile(r"(\w+_)?(eps|epsilon|alpha|beta|scale|lr|p)", re.IGNORECASE)
_GROUP = re.compile(r".*group.*", re.IGNORECASE)
_ROWS, _SIZE = 4096, 1000
_WHOLE_ROW, _ALONE, _SEVERAL = [1024, 2048, 4096], [256, 512, 1024, 2048], [32, 64, 128]
_VALUES = "the values"


def drafted_triton(text: str, source: Path, kernel: str | None) -> Draft:
    """A kernel file for a Python file.

    Args:
        text: of the file.
        source: its path; the file names it relative to itself.
        kernel: which function; None for the only one that no other calls.

    Raises:
        KernelFileError: there is no such function, or several and none is named.
    """
    read = Source(str(source), text, language="triton")
    function = triton_function(read, kernel, Location(str(source), "--kernel"))
    node = next(one for one in functions_in(text) if one.name == function.name)
    draft = Draft(source.name, function, entry=Line(quoted(function.name)))
    counted = _counted(node)  # an address is added to, and nothing else
    arrays = reached_parameters(read, function.name, LOADS) - counted
    written = reached_parameters(read, function.name) - counted
    numbers = [one for one in function.passed if one.name not in arrays | written]
    values = {one.name: number for one in numbers if (number := _number(one)) is not None}
    strides = [one.name for one in numbers if _STRIDE.fullmatch(one.name)]
    sizes = [one.name for one in numbers if one.name not in (*strides, *values)]
    reading = _Reading(node, [one.name for one in function.constants], sizes)
    for name in sizes:
        draft.sizes[name] = Line(f"[{_SIZE}]", _VALUES)
    shapes = {one.name: reading.shape(one.name) for one in function.passed if one.name in arrays | written}
    if reading.rows:
        draft.sizes[reading.rows] = Line(f"[{_ROWS}]", _VALUES)
    for one in function.passed:
        if one.name in shapes:
            roles = {(True, False): "out", (True, True): "inout", (False, True): "in"}
            role = roles[one.name in written, one.name in arrays]
            axes = ", ".join(shapes[one.name] or ["FILL IN"])
            draft.arguments[one.name] = Line(quoted(f"{role} float32[{axes}]"), "the type and the shape")
            if not shapes[one.name]:
                draft.missing.append(f"arguments.{one.name}: its shape")
        elif one.name in strides:
            draft.arguments[one.name] = _stride(one.name, strides, shapes, reading)
        elif one.name in values:
            draft.arguments[one.name] = values[one.name]
        else:
            draft.arguments[one.name] = Line(quoted(f"{one.dtype or 'int32'} = {one.name}"))
    _add_tunables(draft, node, reading, function.constants, function.heuristics or frozenset())
    grid = reading.grid()
    told = json.dumps(grid[0] if len(grid) == 1 else grid or "FILL IN")
    draft.launch["grid"] = Line(told, "the programs" if grid else "")
    if not grid:
        draft.missing.append("launch.grid: how many programs are launched")
    return draft


def _counted(node: ast.FunctionDef) -> set[str]:
    """Names that are multiplied, divided, compared or counted to, so that they are numbers."""
    found: set[str] = set()
    for one in ast.walk(node):
        if isinstance(one, ast.BinOp) and not isinstance(one.op, ast.Add | ast.BitAnd | ast.BitOr):
            found |= {name.id for name in (one.left, one.right) if isinstance(name, ast.Name)}
        elif isinstance(one, ast.Compare) and not isinstance(one.ops[0], ast.Is | ast.IsNot):
            found |= {name.id for name in (one.left, *one.comparators) if isinstance(name, ast.Name)}
        elif isinstance(one, ast.Call) and called_name(one) in ("cdiv", "range", "min", "max", "minimum"):
            found |= {name.id for name in one.args if isinstance(name, ast.Name)}
    return found


def _number(one: TritonParameter) -> Line | None:
    """The value of a number that is no size: of its default, or of one that is called as fractions are."""
    if isinstance(one.default, int | float):
        value = one.default if isinstance(one.default, float) else int(one.default)
        return Line(quoted(f"{one.dtype or number_dtype(one.default)} = {value}"))
    if one.dtype.startswith(("float", "bfloat", "bool")) or (not one.dtype and _FRACTION.fullmatch(one.name)):
        return Line(quoted(f"{one.dtype or 'float32'} = 1"), "the value")
    return None


def _stride(name: str, strides: Sequence[str], shapes: Mapping[str, list[str]], reading: "_Reading") -> Line:
    """A stride of the array that is indexed by it: elements lie in the order of C."""
    array = next((one for one in shapes if name in reading.address_names(one)), "")
    own = [one for one in strides if one in reading.address_names(array)]
    axes = shapes.get(array, [])
    inner = axes[own.index(name) + 1 :] if own and len(own) in (len(axes), len(axes) - 1) else None
    if inner is None:
        return Line(quoted("int32 = 1"), "nothing tells it")
    return Line(quoted(f"int32 = {' * '.join(inner) or 1}"), f"rows of {array} without gaps")


def _add_tunables(
    draft: Draft,
    node: ast.FunctionDef,
    reading: "_Reading",
    constants: Sequence[TritonParameter],
    given: frozenset[str],
) -> None:
    stated = _configurations(node)
    open_blocks = [one for one in constants if one.name not in stated and not one.has_default]
    for one in constants:
        if one.name in given or (one.has_default and one.name not in stated):
            continue
        whole = reading.held_whole(one.name)
        if one.name in stated:
            line = Line(str(stated[one.name]).replace("True", "true").replace("False", "false"))
        elif whole:
            line = Line(str(_WHOLE_ROW), _VALUES)
        elif _GROUP.fullmatch(one.name):
            line = Line("[1, 8]", _VALUES)
        else:
            line = Line(str(_ALONE if len(open_blocks) == 1 else _SEVERAL), _VALUES)
        draft.tunables[one.name] = line
        if whole:
            draft.rules.append(f"{one.name} >= {whole}")
    loops = any(isinstance(one, ast.For) for one in ast.walk(node))
    usual = {"num_warps": [4, 8], **({"num_stages": [2, 3, 4]} if loops else {})}
    for name in OPTIONS:
        if name in stated:
            draft.tunables[name] = Line(str(stated[name]))
        elif name in usual:
            draft.tunables[name] = Line(str(usual[name]), _VALUES)


def _configurations(node: ast.FunctionDef) -> dict[str, list[TunableValue]]:
    """Values that ``@triton.autotune`` lists as literals, by name."""
    found: dict[str, list[TunableValue]] = {}
    calls = [one for decorator in node.decorator_list for one in ast.walk(decorator)]
    for call in calls:
        if not isinstance(call, ast.Call) or called_name(call) != "Config":
            continue
        options = {str(one.arg): literal(one.value)[0] for one in call.keywords if one.arg in OPTIONS}
        table = call.args[0] if call.args and isinstance(call.args[0], ast.Dict) else ast.Dict([], [])
        pairs = zip(table.keys, table.values, strict=True)
        constants = {str(literal(key)[0]): literal(value)[0] for key, value in pairs}
        for name, value in {**constants, **options}.items():
            values = found.setdefault(name, [])
            values += [value] if value is not None and value not in values else []
    return found


class _Reading:
    """Names and bounds of the indices of a function.

    Attributes:
        rows: name of the size that a program takes one of each time; empty where there is none.
    """

    def __init__(self, node: ast.FunctionDef, constants: Sequence[str], sizes: Sequence[str]) -> None:
        self._node, self._nodes = node, list(ast.walk(node))
        self._constants, self._sizes = constants, sizes
        self._values: dict[str, list[ast.expr]] = {}
        for target, value in assignments(node):
            for name in _names(target):
                self._values.setdefault(name, []).append(value)
        spanned = {name for name, value in self._assigned() if _calls(value, "arange", "range")}
        self._bounds: list[tuple[str, str]] = []  # an index, and a size that it is held against
        for one in self._nodes:
            if isinstance(one, ast.Compare):
                self._bound(sorted(_names(one.left) & spanned), one.comparators[0])
            elif _is(one, ast.Mod):
                self._bound(sorted(_names(one.left) & spanned), one.right)
        for name, value in self._assigned():
            for one in ast.walk(value) if name in spanned else ():
                if _is(one, ast.Mod):
                    self._bound([name], one.right)
            for call in _calls(value, "range"):  # for i in tl.range(first, end)
                self._bound([name], *call.args[:2])
        self.rows = ""

    def _bound(self, names: Iterable[str], *ends: ast.expr) -> None:
        sizes = [size for size in self._sizes if any(size in _names(end) for end in ends)]
        self._bounds += [(name, size) for name in names for size in sizes]

    def address_names(self, array: str) -> dict[str, tuple[int, int]]:
        """Names that addresses of an array are sums of, and where in the file they first are."""
        found: dict[str, tuple[int, int]] = {}

        def add(node: ast.expr) -> list[str]:
            names = [one for one in ast.walk(node) if isinstance(one, ast.Name) and one.id not in found]
            found.update((one.id, (one.lineno, one.col_offset)) for one in reversed(names))
            return [one.id for one in names]

        pending = []
        for call in _calls(self._node, *LOADS, *STORES):
            holders = [call.func, *call.args[:1]]
            if any(array in self._made_of(_names(one)) for one in holders):
                pending += [name for one in holders for name in add(one)]
        while pending:
            for value in self._values.get(pending.pop(), ()):
                pending += [name for name in add(value) if array in self._made_of({name})]
        return found

    def shape(self, array: str) -> list[str]:
        """Sizes that its indices are held against, or that its addresses mention; rows of programs before."""
        names = self.address_names(array)
        places = {size: names[size] for size in self._sizes if size in names}
        places |= {size: names[name] for name, size in reversed(self._bounds) if name in names}
        axes = sorted(places, key=places.__getitem__)
        by_program = [value for name, value in self._assigned() if name in names and _axes_in(value)]
        if any(not _names(value) & {*self._constants} for value in by_program):
            self.rows = "rows" if "rows" not in (*self._sizes, *self._constants) else "programs"
            axes.insert(0, self.rows)
        return axes

    def grid(self) -> list[str]:
        """Programs by axis; empty where nothing tells them."""
        extents = list[str]()
        for axis in range(1 + max((axis for one in self._nodes for axis in _axes_in(one)), default=-1)):
            begun = {name for name, value in self._assigned() if axis in _axes_in(value)}
            blocks = dict[str, None]()
            for name, size in sorted(self._bounds, key=lambda one: self._sizes.index(one[1])):
                if self._made_of({name}) & begun:
                    blocks |= dict.fromkeys(f"ceil_div({size}, {block})" for block in self._blocks_of(name))
            extents.append(" * ".join(blocks) or (self.rows if axis == 0 else ""))
        return extents if all(extents) else []

    def held_whole(self, block: str) -> str:
        """The size that a block must hold whole, as nothing goes on from it; else empty."""
        spans = _calls(self._node, "arange")
        uses = sum(_is_name(one, block) for one in self._nodes)
        if uses != sum(block in _names(one) for one in spans):
            return ""
        holders = {
            n
            for n, v in self._assigned()
            if any(one in spans and block in _names(one) for one in ast.walk(v))
        }
        return next((size for name, size in self._bounds if name in holders), "")

    def _assigned(self) -> Iterator[tuple[str, ast.expr]]:
        return ((name, value) for name, values in self._values.items() for value in values)

    def _made_of(self, names: set[str]) -> set[str]:
        """Names with all that their values mention, and so on; what is loaded is left out."""
        pending, seen = list(names), set(names)
        while pending:
            for value in self._values.get(pending.pop(), ()):
                new = (
                    set()
                    if isinstance(value, ast.Call) and called_name(value) == "load"
                    else _names(value) - seen
                )
                seen |= new
                pending += new
        return seen

    def _blocks_of(self, name: str) -> list[str]:
        """Constants that a number of programs is multiplied by, for an index or for what it begins at."""
        values = self._values.get(name, [])
        begins = [begin for value in values for each in _names(value) for begin in self._values.get(each, ())]
        for level in (values, begins):
            products = [one for value in level for one in ast.walk(value) if _is(one, ast.Mult)]
            if found := [each for each in self._constants if any(each in _names(one) for one in products)]:
                return found
        return []


def _calls(node: ast.AST, *names: str) -> list[ast.Call]:
    """Calls of functions whose names begin so."""
    return [one for one in ast.walk(node) if isinstance(one, ast.Call) and called_name(one).startswith(names)]


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _is(node: ast.AST, operator: type[ast.operator]) -> TypeGuard[ast.BinOp]:
    return isinstance(node, ast.BinOp) and isinstance(node.op, operator)


def _axes_in(node: ast.AST) -> set[int]:
    """Axes whose program a node asks for."""
    calls = _calls(node, "program_id")
    given = [one for call in calls for one in (*call.args, *(keyword.value for keyword in call.keywords))]
    return {one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, int)}
