"""The arguments of a kernel: arrays that are copied to files for the worker, scalars, constant memory."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tuner.config.argument_schema import DTYPES
from tuner.cuda_source.parameters import Parameter
from tuner.cuda_source.signatures import parameters_of
from tuner.expressions.expression import is_free_name
from tuner.kernel_tuner.parameters import UserValue
from tuner.model.errors import InputError, UnsupportedError
from tuner.python.host_arrays import HostArray, copied_to_host, is_array


@dataclass(frozen=True)
class GivenArray:
    """An array argument.

    Attributes:
        name: of the buffer, which is that of the parameter where the source tells it.
        array: what the user gave, on the host.
        const: True where the source says that the kernel does not write it.
    """

    name: str
    array: HostArray
    const: bool = False

    @property
    def stored(self) -> HostArray:
        """The array as a buffer holds it: contiguous, of a known type, with one axis and element at least."""
        array = np.ascontiguousarray(self.array)
        if not array.size:
            array = np.zeros(1, array.dtype)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        if array.dtype.name not in DTYPES:
            array = array.reshape(-1).view(np.uint8)
        return array.reshape(array.shape or (1,))


@dataclass(frozen=True)
class GivenScalar:
    """A scalar argument; ``value`` is what the user gave."""

    name: str
    value: "np.generic[Any]"


Given = GivenArray | GivenScalar


def read_arguments(arguments: UserValue, kernel_name: str, source: str | None) -> tuple[Given, ...]:
    """The arguments of a kernel in the order of its parameters.

    Args:
        arguments: NumPy, CuPy or PyTorch arrays, and NumPy scalars.
        kernel_name: as given, with template arguments.
        source: text of the kernel, for names; None where it is not known yet.

    Raises:
        InputError: one is neither, or holds Python objects.
        UnsupportedError: one is an object that stands for several arguments.
    """
    if not isinstance(arguments, list | tuple):
        raise InputError(f"arguments: must be a list, not {type(arguments).__name__}")
    declared = _declared(kernel_name, source or "")
    names = named_parameters(declared, len(arguments))
    given = tuple(
        _given(f"arguments[{i}]", name, value, const=const)
        for i, (value, (name, const)) in enumerate(zip(arguments, names, strict=True))
    )
    if declared is not None:
        trouble = _differing(given, declared)
        if trouble:  # a warning, as Kernel Tuner gives: by #if a source may have another signature
            warnings.warn(f"arguments: {kernel_name} {trouble}", stacklevel=4)
    return given


def read_constants(cmem_args: Mapping[UserValue, UserValue] | None) -> tuple[GivenArray, ...]:
    """The arrays of ``cmem_args``, by the names of their symbols.

    Raises:
        InputError: it is no dict of arrays or scalars by name.
    """
    if cmem_args is None:
        return ()
    if not isinstance(cmem_args, Mapping):
        raise InputError(f"cmem_args: must be a dict of symbol -> array, not {type(cmem_args).__name__}")
    given = []
    for name, value in cmem_args.items():
        argument = f"cmem_args[{name!r}]"
        if not isinstance(name, str) or not is_free_name(name):
            raise InputError(f"{argument}: is not the name of a symbol")
        one = _given(argument, name, value, const=True)
        array = one.array if isinstance(one, GivenArray) else np.atleast_1d(np.asarray(one.value))
        given.append(GivenArray(name, array, const=True))
    return tuple(given)


def _declared(kernel_name: str, source: str) -> list[Parameter] | None:
    """The parameters of a kernel as its source has them; None where that is unclear."""
    try:
        return parameters_of(source, kernel_name)
    except InputError:  # a name that a macro or a generator makes
        return None


def named_parameters(declared: Sequence[Parameter] | None, count: int) -> list[tuple[str, bool]]:
    """Name of every parameter, and whether it points to constants; made-up names where that is unclear."""
    names = [one.name for one in declared or ()]
    if len(set(names)) == len(names) == count and all(map(is_free_name, names)):
        return [(one.name, one.const) for one in declared or ()]
    return [(f"argument{i}", False) for i in range(count)]


def _differing(given: Sequence[Given], declared: Sequence[Parameter]) -> str:
    """In what arguments are not those of the signature; empty where they are."""
    if len(given) != len(declared):
        names = ", ".join(one.name or "(unnamed)" for one in declared)
        return f"takes {len(declared)} ({names}), and {len(given)} are given"
    for one, parameter in zip(given, declared, strict=True):
        array = isinstance(one, GivenArray)
        dtype = one.array.dtype if isinstance(one, GivenArray) else one.value.dtype
        if array != parameter.pointer:
            what = "a pointer" if parameter.pointer else "a value"
            return f"takes {what} as {parameter.name}, and {'an array' if array else 'a scalar'} is given"
        if parameter.dtype in DTYPES and not _same_numbers(dtype, np.dtype(parameter.dtype)):
            return f"takes {parameter.dtype} as {parameter.name}, and {dtype} is given"
    return ""


def _same_numbers(one: "np.dtype[Any]", other: "np.dtype[Any]") -> bool:
    """Whether numbers have the same bits: signs of whole numbers do not count, nor pairs, nor structs."""
    if one.names is not None:
        return True
    sizes = [dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize for dtype in (one, other)]
    real = [dtype.kind in "fc" for dtype in (one, other)]
    return sizes[0] == sizes[1] and real[0] == real[1]


def on_host(value: UserValue) -> UserValue:
    """An array of CuPy, PyTorch or another library as NumPy's; everything else as it is."""
    return copied_to_host(value) if is_array(value) else value


def save(arrays: Sequence[GivenArray], folder: Path) -> dict[str, Path]:
    """Write arrays to files that the worker reads; name -> file."""
    paths = {one.name: folder / f"{one.name}.npy" for one in arrays}
    for one in arrays:
        np.save(paths[one.name], one.stored, allow_pickle=False)
    return paths


def restored(given: GivenArray, array: HostArray) -> HostArray:
    """What a kernel left in a buffer, in the type and shape of the argument."""
    values = array.reshape(-1).view(given.array.dtype.newbyteorder("="))
    return values[: given.array.size].reshape(given.array.shape)


def _given(argument: str, name: str, value: UserValue, *, const: bool) -> Given:
    if isinstance(value, dict) and hasattr(value, "select_for_configuration"):
        raise UnsupportedError(
            f"{argument}: {type(value).__name__} is not supported; tune one precision at a time, with a"
            " parameter that the source uses for its types"
        )
    plain = on_host(value)
    if isinstance(plain, np.ndarray):
        if plain.dtype.hasobject:
            raise InputError(f"{argument}: an array of Python objects cannot be given to a kernel")
        return GivenArray(name, plain, const=const)
    if isinstance(plain, np.generic):
        return GivenScalar(name, plain)
    raise InputError(
        f"{argument}: {type(value).__name__} is neither an array nor a NumPy scalar; write numpy.int32(...),"
        " numpy.float32(...), as the kernel declares it"
    )
