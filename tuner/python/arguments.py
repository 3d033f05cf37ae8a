"""The arguments and references of a kernel as the caller has them, held against the signature."""

import fcntl
import inspect
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.kernel_files.cuda_source.signatures import Parameter, global_functions, parameters_of
from tuner.kernel_files.schema import DTYPES
from tuner.model.elements import BFLOAT16, bfloat16_values
from tuner.model.errors import InputError, suggestion
from tuner.model.expressions.callables import is_free_name
from tuner.system.ownership import held_folder

# --- Arrays of NumPy, CuPy, PyTorch and others as NumPy arrays on the host.

HostArray = npt.NDArray[Any]
_ON_GPU = (2, 13)  # DLPack's kDLCUDA and kDLCUDAManaged


def is_array(value: object) -> bool:
    """True for what ``on_host`` takes: arrays, and not scalars."""
    if isinstance(value, np.ndarray):
        return True
    if isinstance(value, np.generic | bool | int | float | complex | str | bytes):
        return False
    return any(hasattr(value, name) for name in ("__dlpack__", "__cuda_array_interface__", "__array__"))


def gpu_of(value: Any) -> int | None:  # noqa: ANN401 - an array of any library
    """Number of the GPU that an array is on; None for the host, and where the array does not tell."""
    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack_device__"):
        return None
    try:
        kind, number = value.__dlpack_device__()
    except Exception:  # noqa: BLE001 - whatever a library raises: it does not tell
        return None
    return int(number) if int(kind) in _ON_GPU else None


def on_host(value: Any, label: str) -> HostArray:  # noqa: ANN401 - an array of any library
    """A C-contiguous NumPy array of the same values; a copy where the array lies on a GPU.

    Args:
        value: an array of NumPy, of CuPy, of PyTorch, or of whatever has ``__array__`` or DLPack.
        label: what messages call it.

    Raises:
        InputError: it cannot be copied, is empty, or holds Python objects.
    """
    try:
        copied = copied_to_host(value)
        array = np.ascontiguousarray(copied, copied.dtype.newbyteorder("=")).reshape(copied.shape or (1,))
    except Exception as error:  # whatever a library raises
        raise InputError(f"{label}: {type(value).__name__} cannot be copied to the host: {error}") from error
    if array.dtype.hasobject:
        raise InputError(f"{label}: an array of Python objects cannot be given to a kernel")
    if not array.size:
        raise InputError(f"{label}: is empty: shape {array.shape}")
    return array


def copied_to_host(value: Any) -> HostArray:  # noqa: ANN401 - same
    """An array of any library as NumPy's, in whatever layout; NumPy's own is not copied.

    Args:
        value: see ``is_array``. What a library raises passes through.
    """
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "detach") and hasattr(value, "cpu"):  # PyTorch
        numbers = value.float() if is_bfloat16(value) else value
        return np.asarray(numbers.detach().cpu().numpy())
    if hasattr(value, "get") and hasattr(value, "__cuda_array_interface__"):  # CuPy
        return np.asarray(value.get())
    if hasattr(value, "__dlpack__"):
        with suppress(BufferError, RuntimeError, TypeError):  # of a GPU: another way may do
            return np.from_dlpack(value)
    if hasattr(value, "copy_to_host"):  # Numba
        return np.asarray(value.copy_to_host())
    return np.asarray(value)


def is_bfloat16(value: Any) -> bool:  # noqa: ANN401 - an array of any library
    """True for a tensor of PyTorch whose type NumPy lacks."""
    return str(getattr(value, "dtype", "")) == "torch.bfloat16"


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
        bits: of bfloat16, which NumPy lacks, as uint16.
    """

    name: str
    values: HostArray
    const: bool
    gpu: int | None = None
    bits: bool = False

    @property
    def dtype(self) -> str:
        """Type of the elements, as kernel files name it."""
        return BFLOAT16 if self.bits else self.values.dtype.name

    @property
    def numbers(self) -> HostArray:
        """The values as NumPy has them: of bfloat16 in float32."""
        numbers: HostArray = bfloat16_values(self.values) if self.bits else self.values
        return numbers


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
        argument.name: argument.gpu
        for argument in arguments
        if isinstance(argument, ArrayArgument) and argument.gpu is not None
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
        return tuple(read_argument(name, value, None) for name, value in named.items())
    if len(named) != len(parameters):
        wanted = ", ".join(parameter.name or "(unnamed)" for parameter in parameters)
        raise InputError(
            f"arguments: {function} takes {len(parameters)} ({wanted}), and {len(named)} are given"
        )
    order = _order(named, parameters, function)
    return tuple(read_argument(name, named[name], one) for name, one in zip(order, parameters, strict=True))


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
    names = [_usable(parameter.name) for parameter in parameters or ()]
    if len(names) != len(arguments) or not all(map(is_free_name, names)):
        names = [f"argument{i}" for i in range(len(arguments))]
    return dict(zip(names, arguments, strict=True))


def _usable(name: str) -> str:
    """The name of a parameter in expressions and functions: ``in_`` for ``in``, which is Python's own."""
    return name if is_free_name(name) or not is_free_name(f"{name}_") else f"{name}_"


def _order(named: Mapping[str, Any], parameters: Sequence[Parameter], function: str) -> list[str]:
    """Names of the given in the order of the parameters; as given where the parameters have other names."""
    names = [_usable(parameter.name) for parameter in parameters]
    if set(named) == set(names):
        return names
    if any(name.startswith("argument") for name in named):  # given as a list
        return list(named)
    unknown = next(name for name in named if name not in names)
    raise InputError(
        f"arguments: {function} has no parameter {unknown!r}{suggestion(unknown, names)};"
        f" it has {', '.join(names)}"
    )


def read_argument(name: str, value: Any, parameter: Parameter | None = None) -> KernelArgument:  # noqa: ANN401 - the caller's
    """An argument as it is handed over.

    Raises:
        InputError: it cannot be, or is not of the type of the parameter.
    """
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
    if is_bfloat16(value):
        if parameter is not None and not (parameter.pointer and parameter.dtype in (None, BFLOAT16)):
            raise InputError(f"{label}: the array is bfloat16, and the source says {_declared(parameter)}")
        const = parameter is not None and parameter.const
        bits = np.ascontiguousarray(values.view(np.uint16)[..., 1::2])  # the upper halves: they are exact
        return ArrayArgument(name, bits, const, gpu_of(value), bits=True)
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
    """Return True if a kernel may read these values as the declared type: pairs of floats, other signs."""
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
    """A structured scalar of NumPy, whose fields are plain and laid out as C lays them out."""
    dtype = value.dtype
    fields = {} if dtype.names is None else {key: dtype[key] for key in dtype.names}
    plain = all(field.name in DTYPES and field.kind in _WHOLE + "f" for field in fields.values())
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


_SHARED = Path("/dev/shm")  # noqa: S108 - a file system in memory; folders in it are private
_PREFIX = "tuner-arrays-"
_ROOM = 2  # times the bytes that are wanted
_YOUNG_S = 60.0  # a folder is locked at once after it is made


@contextmanager
def data_folder(wanted_bytes: int, shared: Path = _SHARED) -> Iterator[Path]:
    """A private folder, which goes on every way out; those of killed processes go before.

    Its process holds a lock on it: the lock ends with the process, wherever it ran.

    Args:
        wanted_bytes: of the files that are written to it.
        shared: a file system in memory, if it is there.
    """
    memory = shared if shared.is_dir() and os.access(shared, os.W_OK) else None
    for place in {memory or _temporary(), _temporary()}:
        _remove_left_over(place)
    roomy = memory is not None and shutil.disk_usage(memory).free > _ROOM * wanted_bytes
    base = memory if roomy else None
    with (
        tempfile.TemporaryDirectory(prefix=_PREFIX, dir=base, ignore_cleanup_errors=True) as folder,
        held_folder(Path(folder)),
    ):
        yield Path(folder)


def _temporary() -> Path:
    return Path(tempfile.gettempdir())


def _remove_left_over(place: Path) -> None:
    """Remove folders of this user that no process holds."""
    with suppress(OSError):
        for folder in place.glob(f"{_PREFIX}*"):
            with suppress(OSError):
                status = folder.lstat()
                if status.st_uid == os.getuid() and time.time() - status.st_mtime > _YOUNG_S:
                    _remove_unless_held(folder)


def _remove_unless_held(folder: Path) -> None:
    """Remove a folder whose lock is free.

    Raises:
        OSError: it is held, or is no folder.
    """
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def expected_outputs(
    reference: Any,  # noqa: ANN401 - what the caller gave
    arguments: Sequence[KernelArgument],
    outputs: Sequence[str],
    complete: Sequence[str] = (),
) -> dict[str, HostArray | str]:
    """The right values of every output: arrays, or expressions as in ``[problem.reference]``.

    Args:
        reference: a function that returns the outputs, or returns nothing and writes its copies of them; or
            the outputs themselves. It is called with arguments by name where its parameters have their names,
            else with all of them, or with those that are read, in order. Outputs are one array, a tuple in
            the order of ``outputs``, or a dict by name; or expressions instead of arrays. None for nothing.
        arguments: of the kernel.
        outputs: names of the arrays that the kernel writes.
        complete: those that it writes without reading them.

    Raises:
        InputError: the function raises, or an output is missing, or of another shape, or not finite.
    """
    if reference is None:
        return {}
    if callable(reference):
        reference = _called(reference, arguments, outputs, complete)
    found = _by_name(reference, outputs)
    arrays = {argument.name: argument for argument in arguments if isinstance(argument, ArrayArgument)}
    return {
        name: value if isinstance(value, str) else _checked(name, value, arrays[name])
        for name, value in found.items()
    }


def _called(
    function: Callable[..., Any],
    arguments: Sequence[KernelArgument],
    outputs: Sequence[str],
    complete: Sequence[str],
) -> Any:  # noqa: ANN401 - anything
    """The function's answer for copies of the arguments; these copies, where it returns nothing."""
    given = {
        argument.name: argument.numbers if isinstance(argument, ArrayArgument) else argument.value
        for argument in arguments
    }
    values = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in given.items()}
    arrays = [argument.name for argument in arguments if isinstance(argument, ArrayArgument)]
    in_order = (
        list(given),
        [name for name in arrays if name not in outputs],
        [name for name in arrays if name not in complete],
        [name for name in given if name not in outputs],
    )
    args, named = _call(function, values, in_order)
    try:
        result = function(*args, **named)
    except Exception as error:  # a function of the user's may raise anything
        raise InputError(f"reference: the function raises {type(error).__name__}: {error}") from error
    if result is not None:
        return result
    if all(np.array_equal(values[name], given[name]) for name in outputs):
        raise InputError(
            "reference: the function returned None, and changed no output in place; return the right outputs"
        )
    return {name: values[name] for name in outputs}


def _call(
    function: Callable[..., Any], values: Mapping[str, Any], in_order: Sequence[Sequence[str]]
) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of a call: by name where the parameters are the kernel's, else as many as it has, in order.

    Raises:
        InputError: the function has other parameters, and another number of them.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # built in
        return [values[name] for name in in_order[1]], {}
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return [], dict(values)
    kinds = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY
    needed = [
        parameter
        for parameter in parameters
        if parameter.default is inspect.Parameter.empty and parameter.kind is not kinds[0]
    ]
    if needed and all(one.name in values and one.kind not in kinds for one in needed):
        return [], {
            parameter.name: values[parameter.name] for parameter in parameters if parameter.name in values
        }
    if not needed and any(parameter.kind is kinds[0] for parameter in parameters):
        return list(values.values()), {}
    for names in in_order:
        if len(names) == len(needed) and not any(one.name in values for one in needed):
            return [values[name] for name in names], {}
    raise InputError(
        f"reference: the function takes {', '.join(one.name for one in needed) or 'nothing'}; name its"
        f" parameters as those of the kernel ({', '.join(values)}), or let it take all, or the arrays that"
        f" are read ({', '.join(in_order[1]) or 'none'}), in order"
    )


def _by_name(reference: Any, outputs: Sequence[str]) -> dict[str, Any]:  # noqa: ANN401 - same
    if isinstance(reference, Mapping):
        result = dict(reference)
    elif isinstance(reference, str) or is_array(reference):
        result = dict(zip(outputs, [reference], strict=False))
    elif isinstance(reference, list | tuple):
        result = dict(zip(outputs, reference, strict=False))
        if len(reference) > len(outputs):
            raise InputError(f"reference: {len(reference)} outputs for {len(outputs)}: {', '.join(outputs)}")
    else:
        raise InputError(
            f"reference: {type(reference).__name__} is neither an array, a tuple or dict of arrays, an"
            " expression, nor a function that returns one of these"
        )
    unknown = [name for name in result if name not in outputs]
    missing = [name for name in outputs if name not in result]
    if unknown:
        raise InputError(f"reference: {unknown[0]!r} is no output; the outputs are {', '.join(outputs)}")
    if missing:
        raise InputError(
            f"reference: nothing is said of the output {missing[0]!r}; name what the kernel writes, as"
            f" outputs={list(result) or outputs[:1]!r}, or return all of {', '.join(outputs)}"
        )
    return result


def _checked(name: str, value: Any, output: ArrayArgument) -> HostArray:  # noqa: ANN401 - same
    label = f"reference: {name}"
    array = on_host(np.asarray(value) if not is_array(value) else value, label)
    if array.size == output.values.size == 1:
        array = array.reshape(output.values.shape)
    if array.shape != output.values.shape:
        raise InputError(f"{label} has the shape {array.shape}; the output has {output.values.shape}")
    given, wanted = array.dtype, output.numbers.dtype
    if given.kind not in "biufc" or (given.kind == "c" and wanted.kind != "c"):
        raise InputError(f"{label} is {given}; the output is {wanted}")
    with np.errstate(all="ignore"):
        converted = array.astype(wanted)
    if wanted.kind in "biu" and not np.array_equal(converted, array):
        raise InputError(f"{label} is {given} with values that {wanted} does not hold")
    if wanted.kind in "fc" and not np.isfinite(converted).all():
        raise InputError(f"{label} is not finite everywhere (NaN or infinity, in {wanted})")
    return np.ascontiguousarray(converted)
