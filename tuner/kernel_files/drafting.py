"""A first kernel file, written from the signature of a kernel: ``tuner kernels new``."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tuner.kernel_files.cuda_source.arguments import HALVES
from tuner.kernel_files.cuda_source.guesses import (
    axes_of,
    block_names,
    constant_symbols,
    fixed_numbers,
    macros_to_set,
    named_like,
    role_of,
    struct_fields,
)
from tuner.kernel_files.cuda_source.signatures import (
    GlobalFunction,
    Parameter,
    global_functions,
    parameters_of,
)
from tuner.kernel_files.short_files import NAME_PATTERN
from tuner.model.errors import InputError, suggestion
from tuner.model.expressions.callables import is_free_name

# --- A kernel file in the making, and its text: what a first kernel file is written from.

AXIS_NAMES = "xyz"


@dataclass
class Draft:
    """A kernel file in the making.

    Attributes:
        notes: what the user should look at, in words.
        missing: what must be filled in before the file can be read.
    """

    source: str
    function: GlobalFunction
    text: str
    entry: str = ""
    sizes: dict[str, list[int]] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)
    tunables: dict[str, list[int | bool]] = field(default_factory=dict)
    default: dict[str, int | bool] = field(default_factory=dict)
    block: list[str] = field(default_factory=list)
    grid: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def toml(self) -> str:
        """The file."""
        lines = [
            f"# From {self.function.name} of {self.source}: check the lines with comments.",
            f"kernel.source = {quoted(self.source)}",
        ]
        if self.entry:
            lines.append(f"kernel.entry = {quoted(self.entry)}")
        lines += ["", "[problem]"]
        lines += [f"sizes.{name} = {values}  # sizes to tune for" for name, values in self.sizes.items()]
        out = next((n for n, text in self.arguments.items() if text.startswith(("out ", "inout "))), "y")
        lines.append(
            f'# reference.{out} = "..."  # an expression of the inputs; without it answers are only compared'
        )
        lines += ["", "[arguments]", *(f"{name} = {text}" for name, text in self._argument_lines())]
        if self.tunables:
            lines += ["", "[tunables]"]
            lines += [f"{name} = {json.dumps(values)}" for name, values in self.tunables.items()]
        if len(self.block) > 1 and not all(name.isdecimal() for name in self.block):
            lines += ["", "[constraints]", f"rules = [{quoted(' * '.join(self.block) + ' <= 1024')}]"]
        if self.default:
            lines += ["", "[default]"]
            lines += [f"{name} = {json.dumps(value)}" for name, value in self.default.items()]
        lines += ["", "[launch]", f"grid = {_listed(self.grid)}  # blocks: is every element reached?"]
        if self.block != [f"block_size_{axis}" for axis in AXIS_NAMES[: len(self.block)]]:
            lines.append(f"block = {_listed(self.block)}  # threads")
        lines += [f"# FILL IN: {text}" for text in self.missing if text.startswith(("kernel.", "tunables:"))]
        return "\n".join(lines) + "\n"

    def _argument_lines(self) -> list[tuple[str, str]]:
        lines = []
        for name, text in self.arguments.items():
            if text.startswith("FILL IN"):
                lines.append((f"# {name}", f'"..."  # {text}'))
                continue
            value, _, comment = text.partition("  # ")
            line = value if value.startswith("{") else quoted(value)
            lines.append((name, line + (f"  # {comment}" if comment else "")))
        return lines


def quoted(text: str) -> str:
    """A text as TOML has it."""
    return json.dumps(text, ensure_ascii=False)


def _listed(texts: Sequence[str]) -> str:
    return quoted(texts[0]) if len(texts) == 1 else json.dumps(list(texts))


# --- The draft of a kernel, from its signature.

_SIZE = (
    r"n|m|k|nx|ny|nz|size|length|len|count|total|elements|width|height|depth|rows|cols|columns|dim|w|h"
    r"|(?:n|num|number)_?(?:of_?)?(?:elements|items|points|rows|cols|columns|particles|bodies|samples|values)?"
    r"|\w*_?(?:size|count|length|width|height)|n_\w+|num_\w+"
)
_FIRST_AXIS = r"\w*(?:height|rows)|(?:\w*_)?(?:ny|m|h)"  # of two sizes, the one along y
_BLOCK = (
    r"(?:threads?|block|blocks?_?size|block_?dim|threads_?per_?block|num_?threads|bs|tpb"
    r"|tile|tile_?size|tile_?dim)"
)
_PER_THREAD = r"\w*(?:per_?thread|coarsen\w*|work|items)|elements?"
_BLOCKS = ([32, 64, 128, 256, 512, 1024], [1, 2, 4, 8, 16], [1, 2, 4])
_FACTORS = [1, 2, 4, 8]
_VECTOR = re.compile(r"(u?char|u?short|u?int|u?long(?:long)?|float|double)([1-4])")
_WHOLE = ("int32", "uint32", "int64", "uint64")


def drafted(text: str, source: Path, kernel: str | None = None) -> Draft:
    """A kernel file for a source.

    Args:
        text: of the source.
        source: its path; the file names it relative to itself.
        kernel: which ``__global__`` function; None for the only one.

    Raises:
        InputError: there is no such function, or several and none is named.
    """
    function = _chosen(text, source, kernel)
    draft = Draft(source.name, function, text)
    several = len(global_functions(text)) > 1
    arguments = ["float" if parameter.is_type else f"{{{parameter.name}}}" for parameter in function.template]
    typed = any(parameter.is_type for parameter in function.template)
    filled = f"{function.name}<{', '.join(arguments)}>" if arguments else function.name
    draft.entry = filled if several or typed else ""
    if typed:
        draft.notes.append("kernel.entry: the template's types are guessed as float")
    parameters = parameters_of(text, filled)
    _add_sizes(draft, [*parameters, *_fields(draft, parameters)])
    _add_tunables(draft)
    _add_arguments(draft, parameters)
    _add_launch(draft)
    if not re.match(NAME_PATTERN, source.stem.lower().replace("_", "-")):
        draft.missing.append('kernel.name = "..."  # the name of the file is no name of a kernel')
    draft.notes = list(dict.fromkeys(draft.notes))
    return draft


def _fields(draft: Draft, parameters: Sequence[Parameter]) -> list[Parameter]:
    """The fields of the structs that are passed by value."""
    return [
        Parameter(name, dtype, pointer=False, const=False, dtype=dtype)
        for parameter in parameters
        if not parameter.pointer and parameter.dtype is None
        for name, dtype in (
            struct_fields(draft.text, parameter.type.removeprefix("struct ").strip()) or {}
        ).items()
    ]


def _chosen(text: str, source: Path, kernel: str | None) -> GlobalFunction:
    functions = global_functions(text)
    names = [function.name for function in functions]
    if not functions:
        raise InputError(f"{source}: has no __global__ function")
    if kernel is None and len(functions) > 1:
        raise InputError(
            f"{source}: has {len(names)} kernels; choose one: --kernel {' or --kernel '.join(names)}"
        )
    function = next((function for function in functions if kernel in (None, function.name)), None)
    if function is None:
        raise InputError(
            f"{source}: no __global__ function is called {kernel!r}; there is {', '.join(names)}"
            f"{suggestion(str(kernel), names)}"
        )
    return function


def _is_size(parameter: Parameter) -> bool:
    whole = parameter.dtype in _WHOLE and not parameter.pointer
    return whole and re.fullmatch(_SIZE, parameter.name, re.IGNORECASE) is not None


def _add_sizes(draft: Draft, parameters: Sequence[Parameter]) -> None:
    carriers = [parameter.name for parameter in parameters if _is_size(parameter)]
    template = [
        parameter.name for parameter in draft.function.template if parameter.name in ("N", "SIZE", "LENGTH")
    ]
    names = [name.upper() for name in carriers] if len(carriers) > 1 else ["N"] * len(carriers)
    names = list(dict.fromkeys([*template, *names])) or ["N"]
    if not carriers and not template:
        draft.notes.append("sizes.N: no parameter tells the problem size; N is a guess")
    draft.sizes = {
        name: [1048576] if len(names) == 1 and axes_of(draft.text) == 1 else [1024] for name in names
    }


def _size_of(draft: Draft, name: str) -> str:
    """The size that a parameter carries."""
    return name.upper() if name.upper() in draft.sizes else next(iter(draft.sizes))


def _add_tunables(draft: Draft) -> None:
    template = [
        parameter
        for parameter in draft.function.template
        if not parameter.is_type and parameter.name not in draft.sizes
    ]
    for parameter in template:
        draft.tunables[parameter.name] = _values(
            parameter.name, parameter.default, is_bool=parameter.kind == "bool"
        )
    for name, default in macros_to_set(draft.text).items():
        if name in draft.sizes or name in draft.tunables:
            continue
        draft.tunables[name] = _values(name, default)
        if default.isdecimal() and int(default) in draft.tunables[name]:
            draft.default[name] = int(default)
        draft.notes.append(f"tunables.{name}: a macro of the source; its values are guessed")


def _values(name: str, default: str, *, is_bool: bool = False) -> list[int | bool]:
    """Values to try of a tunable, by its name and the default that the source gives."""
    if is_bool:
        return [True, False]
    if default.isdecimal() and int(default) > 0:
        number = int(default)
        return sorted({max(1, number // 4), max(1, number // 2), number, number * 2})
    if name.lower().startswith(("use_", "enable_")):
        return [0, 1]
    axis = name.lower()[-1]
    if re.fullmatch(_BLOCK + r"(?:_?[xyz])?", name, re.IGNORECASE):
        if "tile" in name.lower():
            return [8, 16, 32]
        return list(_BLOCKS[max(0, AXIS_NAMES.find(axis))] if f"_{axis}" in name.lower() else _BLOCKS[0])
    return list(_FACTORS)


def _add_arguments(draft: Draft, parameters: Sequence[Parameter]) -> None:
    roles = {
        parameter.name: "in" if parameter.const else role_of(draft.text, parameter.name)
        for parameter in parameters
        if parameter.pointer
    }
    if not set(roles.values()) & {"out", "inout"}:
        roles |= {
            parameter.name: "inout" for parameter in parameters if parameter.pointer and not parameter.const
        }
    for number, parameter in enumerate(parameters, 1):
        name = parameter.name or f"argument{number}"
        if not is_free_name(name) and is_free_name(f"{name}_"):  # a word of expressions
            name = f"{name}_"
        if not parameter.pointer:
            _add_scalar(draft, name, parameter)
            continue
        dtype, lanes = _element(parameter)
        if dtype is None:
            dtype = "float32"
            draft.notes.append(f"arguments.{name}: points to {parameter.type}; float32 is a guess")
        shape = ", ".join([*_shape(draft), *([str(lanes)] if lanes > 1 else [])])
        draft.arguments[name] = f"{roles[parameter.name]} {dtype}[{shape}]  # is this its shape?"
    for name, dtype, axes in constant_symbols(draft.text):
        if dtype is None:
            _leave_open(draft, name, "a __constant__ struct: as an array of bytes, 'constant uint8[...]'")
        else:
            draft.arguments[name] = f"constant {dtype}[{', '.join(axes)}]"


def _element(parameter: Parameter) -> tuple[str | None, int]:
    """The element type of an array, and how many of it make one of the kernel's vectors."""
    if parameter.type in HALVES:
        return HALVES[parameter.type], 2
    vector = _VECTOR.fullmatch(parameter.type)
    if parameter.dtype is not None or vector is None:
        return parameter.dtype, 1
    names = {"float": "float32", "double": "float64", "char": "int8", "short": "int16", "int": "int32"}
    base = vector[1]
    dtype = names.get(base.removeprefix("u") if base.startswith("u") else base, "int64")
    return ("u" + dtype if base.startswith("u") else dtype), int(vector[2])


def _shape(draft: Draft) -> list[str]:
    """The sizes as axes, that along x last."""
    sizes = list(draft.sizes)
    if len(sizes) == 1:
        return sizes * min(2, axes_of(draft.text))
    if len(sizes) > 2 and not all(re.fullmatch(r"N?[XYZ]|WIDTH|HEIGHT|DEPTH", size) for size in sizes):  # noqa: PLR2004
        draft.notes.append("arguments: which sizes are the axes of each array is a guess")
        sizes = sizes[:2]
    first = [size for size in sizes if re.fullmatch(_FIRST_AXIS, size, re.IGNORECASE)]
    return [*first, *(size for size in sizes if size not in first)] if len(sizes) == 2 else sizes[::-1]  # noqa: PLR2004


def _add_scalar(draft: Draft, name: str, parameter: Parameter) -> None:
    if _is_size(parameter):
        draft.arguments[name] = f"{parameter.dtype} = {_size_of(draft, name)}"
    elif parameter.dtype is None:
        fields = _fields(draft, [parameter])
        if fields:
            _add_struct(draft, name, fields)
            return
        texture = parameter.type.startswith(("cudaTexture", "cudaSurface"))
        way = "are not supported" if texture else "are written as { field = 'TYPE = VALUE', ... }"
        _leave_open(draft, name, f"{parameter.type}: {'textures' if texture else 'structs'} {way}")
    else:
        draft.arguments[name] = f"{parameter.dtype} = 1  # which value?"
        draft.notes.append(f"arguments.{name}: its value is not known; 1 stands there")


def _add_struct(draft: Draft, name: str, fields: Sequence[Parameter]) -> None:
    values = {field.name: _size_of(draft, field.name) if _is_size(field) else "1" for field in fields}
    lines = ", ".join(f"{field.name} = {quoted(f'{field.dtype} = {values[field.name]}')}" for field in fields)
    draft.arguments[name] = f"{{ {lines} }}  # which values?"
    draft.notes.append(f"arguments.{name}: the values of its fields are guesses")


def _leave_open(draft: Draft, name: str, what: str) -> None:
    draft.arguments[name] = f"FILL IN: {what}"
    draft.missing.append(f"arguments.{name}: {what}")


def _add_launch(draft: Draft) -> None:
    """Block by tunables of usual names, made where there are none; the grid by the sizes."""
    count = axes_of(draft.text)
    whole = named_like(draft.tunables, _BLOCK)
    fixed = fixed_numbers(draft.text)
    closed: list[str] = []
    stated_names = block_names(draft.text)
    for axis in range(count):
        one_axis = rf"(?:{_BLOCK}_?|b){AXIS_NAMES[axis]}"
        stated_name = stated_names.get(AXIS_NAMES[axis], "")
        if stated_name in draft.tunables and stated_name not in draft.default:
            draft.tunables[stated_name] = list([_BLOCKS[0], [8, 16, 32]][count > 1])
        own = stated_name if stated_name in draft.tunables else named_like(draft.tunables, one_axis)
        stated = None if own or whole else named_like(fixed, one_axis) or named_like(fixed, _BLOCK)
        if stated:
            draft.block.append(str(fixed[stated]))
            draft.notes.append(f"launch.block: {fixed[stated]}, as the source defines {stated}")
            closed.append(stated)
            continue
        name = own or whole or f"block_size_{AXIS_NAMES[axis]}"
        if name not in draft.tunables:
            if f"blockDim.{AXIS_NAMES[axis]}" not in draft.text and name not in draft.text:
                draft.notes.append(f"launch.block: nothing says how many threads along {AXIS_NAMES[axis]}")
            draft.tunables[name] = list(_BLOCKS[axis] if count == 1 or axis else [8, 16, 32, 64, 128])
        elif name in draft.block and name not in draft.default:  # a square
            draft.tunables[name] = [8, 16, 32]
        draft.block.append(name)
    if closed and not draft.tunables:
        draft.missing.append(
            f"tunables: none is open; with {closed[0]} between #ifndef {closed[0]} and #endif in the source,"
            f" {closed[0]} can be one: run this again then, with --force"
        )
    first = {name: draft.default.get(name, values[0]) for name, values in draft.tunables.items()}
    usual = [(256,), (32, 8), (32, 4, 2)][count - 1]
    first |= {
        name: value
        for name, value in zip(draft.block, usual, strict=True)
        if value in draft.tunables.get(name, []) and name not in draft.default
    }
    draft.default = first
    along = [*reversed(_shape(draft)), *draft.sizes][:count]
    along += [along[-1]] * (count - len(along))
    per_thread = [name for name in draft.tunables if re.fullmatch(_PER_THREAD, name, re.IGNORECASE)]
    for axis, (size, block) in enumerate(zip(along, draft.block, strict=True)):
        factors = [block, *([] if axis else [factor for factor in per_thread if factor not in draft.block])]
        draft.grid.append(f"ceil_div({size}, {' * '.join(factors)})")
