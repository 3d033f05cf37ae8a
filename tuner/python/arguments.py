"""The arguments of a kernel as the caller has them: arrays and values, held against the signature."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.config.argument_schema import DTYPES
from tuner.cuda_source.parameters import Parameter
from tuner.cuda_source.signatures import global_functions, parameters_of
from tuner.expressions.expression import is_free_name
from tuner.model.elements import BFLOAT16
from tuner.model.errors import InputError, suggestion
from tuner.python.host_arrays import HostArray, gpu_of, is_array, on_host

_WHOLE = "biu"
_PLAIN = {bool: "bool", int: "int32", float: "float32"}


@dataclass(frozen=True)
class ArrayArgument:
    """An array that is handed over as a pointer.

    Attributes:
        name: of the parameter.
        values: on the host, C-contiguous.
        const: True where the source says that the kernel does not write it.
        gpu: number of the GPU that it was on; None for the host.
    """

    name: str
    values: HostArray
    const: bool
    gpu: int | None = None


@dataclass(frozen=True)
class ValueArgument:
    """A number that is handed over by value.

    Attributes:
        name: of the parameter.
        dtype: NumPy's name of its type.
        value: a number, or an expression over sizes and tunables.
    """

    name: str
    dtype: str
    value: bool | int | float | str


@dataclass(frozen=True)
class StructValueArgument:
    """A struct that is handed over by value.

    Attributes:
        name: of the parameter.
        fields: in their order: name -> ``"DTYPE = VALUE"``, as in a kernel file.
        value: as it was given.
    """

    name: str
    fields: Mapping[str, str]
    value: np.void


KernelArgument = ArrayArgument | ValueArgument | StructValueArgument


def gpu_of_arrays(arguments: Sequence[KernelArgument]) -> int | None:
    """The number of the GPU that arrays are on; None where all are on the host.

    Raises:
        InputError: they are on several.
    """
    placed = {
        one.name: one.gpu for one in arguments if isinstance(one, ArrayArgument) and one.gpu is not None
    }
    if len(set(placed.values())) > 1:
        listed = ", ".join(f"{name} is on GPU {gpu}" for name, gpu in placed.items())
        raise InputError(f"arguments: the arrays are on several GPUs ({listed}); put them on one")
    return next(iter(placed.values()), None)


def entry_of(source: str, name: object, label: str) -> str:
    """The name expression of the kernel: the one given, or the only ``__global__`` function of the source.

    Raises:
        InputError: it is no text, or none is given and the source has none or several.
    """
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise InputError(f"{label}: name must be the name of a function, not {name!r}")
    if name is not None:
        return name.strip()
    found = [function.name for function in global_functions(source)]
    if len(found) != 1:
        what = f"{len(found)} __global__ functions: {', '.join(found)}" if found else "no __global__ function"
        raise InputError(f"{label}: name is needed: the source has {what}")
    return found[0]


def read_arguments(
    arguments: Mapping[str, Any] | Sequence[Any], source: str, entry: str
) -> tuple[KernelArgument, ...]:
    """The arguments in the order of the parameters.

    Args:
        arguments: by name, or in the order of the parameters.
        source: CUDA C++, whose signature they are held against; a signature that cannot be read is not.
        entry: the name expression of the function.

    Raises:
        InputError: number, names or types are not those of the signature, or a value cannot be handed over.
    """
    function = entry.partition("<")[0].rpartition("::")[2].strip()
    parameters = parameters_of(source, entry) if global_functions(source) else None
    named = _named(arguments, parameters, function)
    if parameters is None:
        return tuple(_argument(name, value, None) for name, value in named.items())
    if len(named) != len(parameters):
        wanted = ", ".join(one.name or "(unnamed)" for one in parameters)
        raise InputError(
            f"arguments: {function} takes {len(parameters)} ({wanted}), and {len(named)} are given"
        )
    order = _order(named, parameters, function)
    return tuple(_argument(name, named[name], one) for name, one in zip(order, parameters, strict=True))


def _named(
    arguments: Mapping[Any, Any] | Sequence[Any], parameters: Sequence[Parameter] | None, function: str
) -> dict[str, Any]:
    if isinstance(arguments, Mapping):
        for name in arguments:
            if not isinstance(name, str) or not is_free_name(_usable(name)):
                raise InputError(f"arguments: {name!r} is no name of a parameter")
        return {_usable(name): value for name, value in arguments.items()}
    if isinstance(arguments, str) or not hasattr(arguments, "__len__"):
        raise InputError(
            f"arguments: must be a list in the order of {function}'s parameters, or a dict of name -> value,"
            f" not {type(arguments).__name__}"
        )
    names = [_usable(one.name) for one in parameters or ()]
    if len(names) != len(arguments) or not all(map(is_free_name, names)):
        names = [f"argument{i}" for i in range(len(arguments))]
    return dict(zip(names, arguments, strict=True))


def _usable(name: str) -> str:
    """The name of a parameter in expressions and functions: ``in_`` for ``in``, which is Python's own."""
    return name if is_free_name(name) or not is_free_name(f"{name}_") else f"{name}_"


def _order(named: Mapping[str, Any], parameters: Sequence[Parameter], function: str) -> list[str]:
    """Names of the given in the order of the parameters; as given where the parameters have other names."""
    names = [_usable(one.name) for one in parameters]
    if set(named) == set(names):
        return names
    if any(name.startswith("argument") for name in named):  # given as a list
        return list(named)
    unknown = next(name for name in named if name not in names)
    raise InputError(
        f"arguments: {function} has no parameter {unknown!r}{suggestion(unknown, names)};"
        f" it has {', '.join(names)}"
    )


def _argument(name: str, value: Any, parameter: Parameter | None) -> KernelArgument:  # noqa: ANN401 - the caller's
    label = f"arguments: {name}"
    if is_array(value) and parameter is not None and not parameter.pointer and np.ndim(value) == 0:
        value = on_host(value, label)[0]
    if isinstance(value, np.void):
        return _struct(name, value, label)
    if is_array(value):
        return _array(name, value, parameter, label)
    if parameter is not None and parameter.pointer:
        raise InputError(f"{label}: {_declared(parameter)} is a pointer; give an array, not {value!r}")
    dtype = _value_dtype(value, parameter, label)
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, bool | int | float | str):
        raise InputError(f"{label}: {type(value).__name__} is neither an array nor a number")
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{label}: {value} is not finite; numbers that are passed by value must be")
    if isinstance(value, float) and _kind(dtype) in "iub":
        raise InputError(f"{label}: {value} is no whole number, and the parameter is {dtype}")
    if isinstance(value, int) and _kind(dtype) in "iu":
        bounds = np.iinfo(dtype)
        if not bounds.min <= value <= bounds.max:
            raise InputError(f"{label}: {value} does not fit {dtype}; give a NumPy scalar of a wider type")
    return ValueArgument(name, dtype, value)


def _array(name: str, value: Any, parameter: Parameter | None, label: str) -> ArrayArgument:  # noqa: ANN401 - same
    values = on_host(value, label)
    if values.dtype.name not in DTYPES:
        raise InputError(f"{label}: {values.dtype} is not one of {', '.join(DTYPES)}")
    if parameter is None:
        return ArrayArgument(name, values, const=False, gpu=gpu_of(value))
    if not parameter.pointer:
        raise InputError(f"{label}: {_declared(parameter)} is passed by value; give a number, not an array")
    if parameter.dtype == BFLOAT16:
        raise InputError(f"{label}: arrays of bfloat16 are taken by kernel files only")
    if parameter.dtype not in (None, values.dtype.name) and not _same_bits(parameter.dtype, values):
        raise InputError(
            f"{label}: the array is {values.dtype}, and the source says {_declared(parameter)};"
            f" give an array of {parameter.dtype}"
        )
    return ArrayArgument(name, values, parameter.const, gpu_of(value))


def _same_bits(declared: str | None, values: HostArray) -> bool:
    """Whether a kernel may read these values as the declared type: pairs of floats, other signs."""
    if declared not in DTYPES:
        return False
    wanted, given = np.dtype(declared), values.dtype
    if given.kind == "c":
        return wanted == np.dtype(f"float{given.itemsize * 4}")
    if wanted.kind == "c":  # float2 of floats
        return given == np.dtype(f"float{wanted.itemsize * 4}") and values.size % 2 == 0
    return _same_size_whole(wanted, given)


def _same_size_whole(one: "np.dtype[Any]", other: "np.dtype[Any]") -> bool:
    return one.kind in _WHOLE and other.kind in _WHOLE and one.itemsize == other.itemsize


def _kind(dtype: str) -> str:
    """NumPy's letter for a kind of numbers."""
    return "f" if dtype == BFLOAT16 else np.dtype(dtype).kind


def _struct(name: str, value: np.void, label: str) -> StructValueArgument:
    """A structured scalar of NumPy, whose fields are plain and laid out as C lays them out.

    Raises:
        InputError: they are not.
    """
    dtype = value.dtype
    fields = {} if dtype.names is None else {key: dtype[key] for key in dtype.names}
    plain = all(one.name in DTYPES and one.kind in _WHOLE + "f" for one in fields.values())
    if not fields or not plain or not all(map(is_free_name, fields)):
        raise InputError(f"{label}: {dtype} is no struct of numbers")
    if not all(np.isfinite(value[key]) for key in fields):
        raise InputError(f"{label}: {value} is not finite")
    in_c = np.dtype(list(fields.items()), align=True)
    if (dtype.fields, dtype.itemsize) != (in_c.fields, in_c.itemsize):
        raise InputError(
            f"{label}: its fields do not lie as those of a struct do; its dtype needs align=True"
        )
    return StructValueArgument(
        name, {key: f"{one.name} = {_literal(value[key])}" for key, one in fields.items()}, value
    )


def _literal(value: "np.generic[Any]") -> str:
    plain = value.item()
    return str(plain).lower() if isinstance(plain, bool) else repr(plain)


def _value_dtype(value: Any, parameter: Parameter | None, label: str) -> str:  # noqa: ANN401 - same
    declared = None if parameter is None else parameter.dtype
    if isinstance(value, np.generic):
        given = value.dtype.name
        if declared in DTYPES and declared != BFLOAT16 and _same_size_whole(np.dtype(declared), value.dtype):
            return declared  # its values are checked against the type
        if parameter is not None and declared not in (None, given):
            raise InputError(
                f"{label}: {given} is given, and the source says {_declared(parameter)};"
                f" give numpy.{declared}({value})"
            )
        return given
    if isinstance(value, str):
        if declared is None:
            raise InputError(f"{label}: the type of {value!r} is not known; give a NumPy scalar")
        return declared
    plain = _PLAIN.get(type(value))
    if plain is None:
        raise InputError(f"{label}: {type(value).__name__} is neither an array nor a number")
    return declared or plain


def _declared(parameter: Parameter) -> str:
    const = "const " if parameter.const else ""
    return f"{const}{parameter.type}{'*' if parameter.pointer else ''} {parameter.name}".strip()
