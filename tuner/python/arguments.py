"""The arguments of a kernel as the caller has them: arrays and values, held against the signature."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.config.argument_schema import DTYPES
from tuner.config.global_functions import global_functions
from tuner.config.signature import Parameter, parameters_of
from tuner.errors import InputError, suggestion
from tuner.expressions import is_free_name
from tuner.python.host_arrays import HostArray, is_array, on_host

_PLAIN = {bool: "bool", int: "int32", float: "float32"}


@dataclass(frozen=True)
class ArrayArgument:
    """An array that is handed over as a pointer.

    Attributes:
        name: of the parameter.
        values: on the host, C-contiguous.
        const: True where the source says that the kernel does not write it.
    """

    name: str
    values: HostArray
    const: bool


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
class RecordArgument:
    """A struct that is handed over by value.

    Attributes:
        name: of the parameter.
        value: a structured NumPy scalar.
    """

    name: str
    value: np.void

    @property
    def fields(self) -> dict[str, str]:
        """Name of a field -> type and value, as kernel files have them."""
        names = self.value.dtype.names or ()
        return {name: f"{self.value[name].dtype.name} = {_text(self.value[name])}" for name in names}


KernelArgument = ArrayArgument | ValueArgument | RecordArgument


def entry_of(source: str, name: str | None, label: str) -> str:
    """The name expression of the kernel: the one given, or the only ``__global__`` function of the source.

    Raises:
        InputError: none is given, and the source has none or several.
    """
    if name is not None:
        return name
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
    parameters = parameters_of(source, function)
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
    by_value = parameter is None or not parameter.pointer
    if isinstance(value, np.ndarray) and value.dtype.names and value.size == 1 and by_value:
        value = value.reshape(-1)[0]
    if isinstance(value, np.void) and value.dtype.names and by_value:
        return _record(name, value, parameter, label)
    if is_array(value):
        return _array(name, value, parameter, label)
    if parameter is not None and parameter.pointer:
        raise InputError(f"{label}: {_declared(parameter)} is a pointer; give an array, not {value!r}")
    dtype = _value_dtype(value, parameter, label)
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, bool | int | float | str):
        raise InputError(f"{label}: {type(value).__name__} is neither an array nor a number")
    if isinstance(value, float) and np.dtype(dtype).kind in "iub":
        raise InputError(f"{label}: {value} is no whole number, and the parameter is {dtype}")
    if isinstance(value, int) and np.dtype(dtype).kind in "iu":
        bounds = np.iinfo(dtype)
        if not bounds.min <= value <= bounds.max:
            raise InputError(f"{label}: {value} does not fit {dtype}; give a NumPy scalar of a wider type")
    return ValueArgument(name, dtype, value)


def _record(name: str, value: np.void, parameter: Parameter | None, label: str) -> RecordArgument:
    if parameter is not None and parameter.dtype is not None:
        raise InputError(f"{label}: {_declared(parameter)} is no struct; give numpy.{parameter.dtype}(...)")
    for field in value.dtype.names or ():
        if value.dtype[field].kind not in "biuf":
            raise InputError(f"{label}: field {field!r} is {value.dtype[field]}; a field must be a number")
        if not np.isfinite(value[field]):
            raise InputError(f"{label}: field {field!r} is {value[field]}; it must be finite")
    return RecordArgument(name, value)


def _text(value: Any) -> str:  # noqa: ANN401 - a NumPy number
    return str(int(value)) if value.dtype.kind == "b" else repr(value.item())


def _array(name: str, value: Any, parameter: Parameter | None, label: str) -> ArrayArgument:  # noqa: ANN401 - same
    values = on_host(value, label)
    if values.dtype.name not in DTYPES:
        raise InputError(f"{label}: {values.dtype} is not one of {', '.join(DTYPES)}")
    if parameter is None:
        return ArrayArgument(name, values, const=False)
    if not parameter.pointer:
        raise InputError(f"{label}: {_declared(parameter)} is passed by value; give a number, not an array")
    if parameter.dtype not in (None, values.dtype.name) and not _same_size_complex(parameter, values):
        raise InputError(
            f"{label}: the array is {values.dtype}, and the source says {_declared(parameter)};"
            f" give an array of {parameter.dtype}"
        )
    return ArrayArgument(name, values, parameter.const)


def _same_size_complex(parameter: Parameter, values: HostArray) -> bool:
    """A pointer to floats may be handed complex numbers, which are pairs of them."""
    return values.dtype.kind == "c" and parameter.dtype == f"float{values.dtype.itemsize * 4}"


def _value_dtype(value: Any, parameter: Parameter | None, label: str) -> str:  # noqa: ANN401 - same
    declared = None if parameter is None else parameter.dtype
    if isinstance(value, np.generic):
        given = value.dtype.name
        if declared not in (None, given):
            assert parameter is not None  # noqa: S101 - for the type checker
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
