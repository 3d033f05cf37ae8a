"""The arguments of a kernel: arrays that are copied to files for the worker, scalars, constant memory."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.config.argument_schema import DTYPES
from tuner.errors import InputError, UnsupportedError
from tuner.expressions import is_free_name
from tuner.kernel_tuner.parameters import UserValue

HostArray = NDArray[Any]

_PARAMETER = re.compile(r"([A-Za-z_][A-Za-z_0-9]*)\s*(?:\[[^\]]*\])?\s*$")
_CONST = re.compile(r"\bconst\b")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


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
    parameters = parameters_of(kernel_name, source or "", len(arguments))
    return tuple(
        _given(f"arguments[{i}]", name, value, const=const)
        for i, (value, (name, const)) in enumerate(zip(arguments, parameters, strict=True))
    )


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


def parameters_of(kernel_name: str, source: str, count: int) -> list[tuple[str, bool]]:
    """Name of every parameter, and whether it points to constants; made-up names where that is unclear."""
    unknown = [(f"argument{i}", False) for i in range(count)]
    plain = re.escape(kernel_name.split("<", maxsplit=1)[0].strip())
    found = re.search(rf"\b{plain}\s*\(([^)]*)\)\s*\{{", _COMMENT.sub(" ", source))
    if found is None:
        return unknown
    declared = found[1].split(",")
    matched = [_PARAMETER.search(one.strip()) for one in declared]
    names = [match[1] for match in matched if match is not None]
    free = len(set(names)) == len(names) == count and all(map(is_free_name, names))
    if not free or len(declared) != count:
        return unknown
    return [(name, bool(_CONST.search(one))) for name, one in zip(names, declared, strict=True)]


def on_host(value: UserValue) -> UserValue:
    """An array of CuPy or PyTorch as NumPy's; everything else as it is."""
    if isinstance(value, np.ndarray | np.generic):
        return value
    if hasattr(value, "detach") and hasattr(value, "cpu"):  # PyTorch
        return value.detach().cpu().numpy()
    if hasattr(value, "get") and hasattr(value, "dtype"):  # CuPy
        return value.get()
    return value


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
