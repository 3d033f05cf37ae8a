"""Arguments of launches against the parameters of the functions that take them.

Types are those of the source, or of the mangled name. Sizes are those of compiled code, and count most.
"""

import functools
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import NamedTuple

import numpy as np

from tuner.kernel_files.cuda_source.signatures import Parameter, dtype_of, parameters_in, parameters_of
from tuner.kernel_files.cuda_source.tokens import group_end, tokens_of
from tuner.model.errors import InputError
from tuner.model.plan import Plan, Scalar, Stage, StructValue, TensorMap

_LANES = re.compile(r"(u?(?:char|short|int|long|longlong)|float|double|(?:__)?half|(?:__)?nv_bfloat16)[1-4]")
_MACRO = re.compile(r"^(?:-D|--define-macro=)\s*([A-Za-z_]\w*)=([A-Za-z_:].*)$", re.MULTILINE)
HALVES = {"half2": "float16", "__half2": "float16", "nv_bfloat162": "bfloat16", "__nv_bfloat162": "bfloat16"}
_ATOMIC = re.compile(r"atomic(Add|Sub|Min|Max|And|Or|Xor|Inc|Dec)(_block|_system)?")
_ADDRESS_BYTES = 8
_TENSOR_MAP_BYTES = 128
_BASES = {"uchar": "unsigned char", "ushort": "unsigned short", "uint": "unsigned", "ulong": "unsigned long"}
C_TYPES = {
    "bool": "bool",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned int",
    "int64": "long long",
    "uint64": "unsigned long long",
    "float16": "__half",
    "bfloat16": "__nv_bfloat16",
    "float32": "float",
    "float64": "double",
    "complex64": "float2",
    "complex128": "double2",
}


_SIGNATURES = 64  # kept: the configurations of a kernel are instances of one function


class Remark(NamedTuple):
    """Something about a kernel file.

    Attributes:
        level: ``error``, ``warning`` where it may be meant so, or ``note`` where nothing can be told.
        text: argument, what is there and what would be right.
    """

    level: str
    text: str


def signature_of(stage: Stage, demangled_name: str | None = None) -> Sequence[Parameter] | None:
    """The parameters of a stage's function.

    Args:
        stage: with source and entry.
        demangled_name: of the compiled function, whose types count; None for those of the source.

    Returns:
        None where neither tells, as for a function of a header.
    """
    if stage.source.language != "cuda":
        return None
    types = None if demangled_name is None else _of_name(demangled_name)
    if types is None:
        macros = _MACRO.findall("\n".join(stage.options))  # types may be among them
        defined = "".join(f"#define {name} {value}\n" for name, value in macros)
        return _written(defined + stage.source.text, stage.entry)
    written = _written(stage.source.text, stage.entry.partition("<")[0])  # names only: one for all instances
    if written is None or len(types) != len(written):
        return types
    return [
        replace(compiled, name=parameter.name) for compiled, parameter in zip(types, written, strict=True)
    ]


def findings(
    plan: Plan,
    stage: Stage,
    parameters: Sequence[Parameter] | None,
    sizes: Sequence[tuple[str, int]] | None = None,
) -> list[Remark]:
    """Return the mismatches between the arguments of a stage and the parameters of its function.

    Args:
        plan: whose buffers the arguments name.
        stage: the launch.
        parameters: of the function; None where the source does not tell.
        sizes: of the parameters of the compiled function: ``f`` for floating-point numbers, ``u`` for
            integers and addresses, ``b`` for structs; and bytes. None where nothing was compiled.
    """
    if sizes is not None and (parameters is None or len(parameters) != len(sizes)):
        parameters = [Parameter("", "", pointer=False, const=False, dtype=None)] * len(sizes)
    if parameters is None:
        return []
    where = f"{stage.entry} ({PurePath(stage.source.path).name})"
    if len(stage.arguments) != len(parameters):
        listed = ", ".join(f"{parameter} {parameter.name}".strip() for parameter in parameters) or "none"
        return [
            Remark(
                "error",
                f"{_counted(len(stage.arguments))} for {where}, which takes {len(parameters)}: {listed}",
            )
        ]
    dtypes = {buffer.name: buffer.dtype for buffer in plan.buffers}
    remarks = []
    rows = zip(stage.arguments, parameters, strict=True)
    for number, (argument, parameter) in enumerate(rows, 1):
        size = None if sizes is None else sizes[number - 1]
        trouble = _trouble(argument, parameter, dtypes, size)
        if trouble is not None:
            level, text = trouble
            name = _name(argument) or parameter.name
            subject = f"argument {number}" + (f" ({name})" if name else "")
            expected = f"{parameter} {parameter.name}".strip()
            takes = f", which takes '{expected}'" if expected else ""
            if level == "note":  # the same for all instantiations of a template
                function = f"{stage.entry.split('<')[0]} ({PurePath(stage.source.path).name})"
                remarks.append(Remark(level, f"{subject} of {function} {text}"))
            else:
                remarks.append(Remark(level, f"{subject} of {where}{takes}: {text}"))
    return remarks + _accumulated(plan, stage, parameters)


def _accumulated(plan: Plan, stage: Stage, parameters: Sequence[Parameter]) -> list[Remark]:
    """Warnings of outputs that nothing sets before atomic operations of a stage change them."""
    begun = {buffer.name for buffer in plan.buffers if buffer.role == "out" and not buffer.cleared}
    for earlier in itertools.takewhile(lambda one: one is not stage, plan.stages):
        begun -= {_name(argument) for argument in earlier.arguments}
    rows = zip(stage.arguments, parameters, strict=True)
    function = f"{stage.entry} of {PurePath(stage.source.path).name}"
    changed = _atomically_changed(stage.source.text, stage.entry.partition("<")[0].rpartition("::")[2])
    return [
        Remark(
            "warning",
            f"{argument} has the role out, and {function}{_at(stage, line)} changes what is in it by an"
            " atomic operation; '= constant(0)' behind its shape sets it to zero before every run",
        )
        for argument, parameter in rows
        if isinstance(argument, str) and argument in begun and (line := changed.get(parameter.name))
    ]


def _at(stage: Stage, line: int) -> str:
    """A line of a source for messages; empty where pragmas were expanded in it."""
    return "" if "#line" in stage.source.text else f", line {line},"


@functools.lru_cache(maxsize=_SIGNATURES)
def _atomically_changed(text: str, function: str) -> dict[str, int]:
    """The names that atomic operations of a function change, depending on what was there: name -> line."""
    tokens = tokens_of(text) if _ATOMIC.search(text) else []  # few sources have one
    changed: dict[str, int] = {}
    for start, (token, after) in enumerate(itertools.pairwise(tokens)):
        if token.text != function or after.text != "(":
            continue
        body = group_end(tokens, start + 1)
        if body >= len(tokens) or tokens[body].text != "{":
            continue
        inner = tokens[body : group_end(tokens, body)]
        for at, one in enumerate(inner):
            if _ATOMIC.fullmatch(one.text):
                named = next((t for t in inner[at + 1 : at + 6] if t.text not in ("(", "&", "*")), one)
                changed.setdefault(named.text, named.line)
    return changed


@functools.lru_cache(maxsize=_SIGNATURES)
def _written(source_text: str, entry: str) -> tuple[Parameter, ...] | None:
    """The parameters that a source declares for a function; None where it does not tell."""
    try:
        return tuple(parameters_of(source_text, entry, sole=True))
    except InputError:
        return None


@functools.lru_cache(maxsize=_SIGNATURES)
def _listed(parameters: str) -> tuple[Parameter, ...]:
    return tuple(parameters_in(parameters))


def _of_name(name: str) -> tuple[Parameter, ...] | None:
    """The parameters in a demangled name: those of the last group of parentheses, which ends it."""
    depth = 0
    for index in range(len(name) - 1, -1, -1):
        depth += (name[index] == ")") - (name[index] == "(")
        if depth <= 0:
            return _listed(name[index + 1 : -1]) if name[index] == "(" else None
    return None


def _counted(count: int) -> str:
    return "1 argument" if count == 1 else f"{count} arguments"


def _name(argument: object) -> str:
    return argument if isinstance(argument, str) else str(getattr(argument, "buffer", ""))


def _trouble(
    argument: object, parameter: Parameter, dtypes: Mapping[str, str], size: tuple[str, int] | None
) -> tuple[str, str] | None:
    """Level and text of what is wrong with an argument; what the compiler says decides about values."""
    by_type = _type_trouble(argument, parameter, dtypes) if parameter.type else None
    by_size = None if size is None else _size_trouble(argument, *size)
    if by_size is not None:
        return by_type if by_type is not None and by_type[0] == "error" else ("error", by_size)
    certain = size is not None and isinstance(argument, Scalar) and not parameter.pointer
    return None if certain and by_type is not None and by_type[0] == "error" else by_type


def _size_trouble(argument: object, kind: str, size: int) -> str | None:
    """Return the mismatch of an argument with a parameter of compiled code; None if there is none."""
    if isinstance(argument, Scalar):
        passed, what = _bytes(argument.dtype), f"a value of {argument.dtype}"
        if passed == size and kind == "f" and not argument.dtype.startswith("float"):
            return f"it is {what}, for a floating-point number"
        if passed == size and kind == "u" and argument.dtype in ("float32", "float64", "complex64"):
            return f"it is {what}, for an integer"
    elif isinstance(argument, StructValue):
        passed, what = len(argument.bytes), "a struct"
    elif isinstance(argument, TensorMap):
        passed, what = _TENSOR_MAP_BYTES, "a tensor map"
    else:
        passed, what = _ADDRESS_BYTES if kind != "f" else 0, "an array"
    return None if size in (0, passed) else f"it is {what}, and the compiled code takes {size} bytes"


def _type_trouble(
    argument: object, parameter: Parameter, dtypes: Mapping[str, str]
) -> tuple[str, str] | None:
    if isinstance(argument, TensorMap):  # the source may have a struct of its own for it
        is_map = parameter.dtype is None and not parameter.pointer
        return (
            None if is_map else ("error", "it is a tensor map; const __grid_constant__ CUtensorMap takes it")
        )
    name = _name(argument)
    if name:
        dtype = dtypes.get(name)
        if not parameter.pointer:
            right = f"a scalar of dtype {parameter.dtype!r}" if parameter.dtype else "a value"
            return "error", f"it is an array; {right} would be right"
        return None if dtype is None else _compared(dtype, parameter, "an array")
    if parameter.pointer:
        right = f" of dtype {parameter.dtype!r}" if parameter.dtype else ""
        return "error", f"it is a value; an array{right} would be right"
    if not isinstance(argument, Scalar):
        return None  # a struct, whose layout the source alone tells
    return _compared(argument.dtype, parameter, "a value")


def _compared(dtype: str, parameter: Parameter, what: str) -> tuple[str, str] | None:
    expected = _element(parameter)
    if expected is None and "*" in parameter.type:
        addresses = dtype in ("int64", "uint64")
        return (
            None if addresses else ("error", f"it is {what} of {dtype}; addresses, of uint64, would be right")
        )
    if expected is None:
        unknown = replace(parameter, type=re.sub(r" ?<.*", "<...>", parameter.type))
        return None if parameter.type == "" else ("note", f"is not compared: no dtype is known for {unknown}")
    if dtype in (expected, *_parts(expected)) or expected in _parts(dtype):
        return None
    source = C_TYPES.get(dtype, dtype)
    text = f"it is {what} of {dtype}; dtype {expected!r}, or {source} in the source, would be right"
    if {dtype[:3], expected[:3]} <= {"int", "uin", "boo"} and _bytes(dtype) == _bytes(expected):
        return "warning", text
    return "error", text


def _element(parameter: Parameter) -> str | None:
    """The dtype of the elements; of a vector such as float4, of its parts."""
    if parameter.dtype is not None:
        return parameter.dtype
    lanes = _LANES.fullmatch(parameter.type)
    if lanes is None:
        return HALVES.get(parameter.type)
    return dtype_of(_BASES.get(lanes[1], lanes[1].replace("longlong", "long long")))


def _parts(dtype: str) -> tuple[str, ...]:
    """Other dtypes of the same bytes: the parts of complex numbers, and the bits of bfloat16."""
    return {"complex64": ("float32",), "complex128": ("float64",), "bfloat16": ("uint16",)}.get(dtype, ())


def _bytes(dtype: str) -> int:
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
