"""Arguments, ``tune_params`` and device of a call."""

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from tuner.devices.cuda.probe import driver_problem
from tuner.kernel_files.cuda_source.signatures import Parameter, parameters_of
from tuner.kernel_files.schema import DTYPES
from tuner.model.errors import DeviceUnavailableError, ExpressionError, InputError, UnsupportedError
from tuner.model.expressions.callables import Expression, is_free_name
from tuner.model.plan import TunableValue
from tuner.python.arguments import HostArray, copied_to_host, is_array
from tuner.system.untrusted.build_texts import macro_value

# --- ``tune_params`` and the texts over them: values of this tuner's kinds, and expressions without ``eval``.

Parameters = Mapping[str, TunableValue]
"""The values of one configuration by name."""

UserValue = Any
"""Whatever a caller gave; it is checked, with a message that names the argument."""

PLACEHOLDER = "kernel_tuner"
"""Stands for the parameters of a call that has none, as a space needs one; Kernel Tuner's macro."""

_FORBIDDEN = ("grid_size_x", "grid_size_y", "grid_size_z", "time")
_SPECIAL = ("nvml_", "tegra_", "cuda_sm_percentage")
_TOKEN = re.compile(r"([A-Za-z0-9_]+)")


def tunables_of(tune_params: Mapping[str, Sequence[Any]]) -> dict[str, tuple[TunableValue, ...]]:
    """The value lists of a space, NumPy scalars as Python's and repeated values once.

    Raises:
        InputError: it is no mapping, a name cannot be used, or a list is empty.
        UnsupportedError: a name sets the GPU's clocks or its share, or a value is no number, truth value or
            text.
    """
    if not isinstance(tune_params, Mapping):
        raise InputError(f"tune_params: must be a dict of lists, not {type(tune_params).__name__}")
    tunables: dict[str, tuple[TunableValue, ...]] = {}
    for name, values in tune_params.items():
        _check_name(name)
        if isinstance(values, str) or not hasattr(values, "__iter__"):
            raise InputError(f"tune_params[{name!r}]: must be a list of values, not {values!r}")
        listed = tuple(dict.fromkeys(_value(name, value) for value in values))
        if not listed:
            raise InputError(f"tune_params[{name!r}]: the list of values is empty")
        tunables[name] = listed
    return tunables or {PLACEHOLDER: (1,)}


def configuration_of(params: Mapping[str, Any]) -> dict[str, tuple[TunableValue, ...]]:
    """The space of one configuration, of the ``params`` of ``run_kernel``.

    Raises:
        InputError, UnsupportedError: as `tunables_of`.
    """
    if not isinstance(params, Mapping):
        raise InputError(f"params: must be a dict, not {type(params).__name__}")
    return tunables_of({name: [value] for name, value in params.items()})


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not is_free_name(name):
        raise InputError(f"tune_params: {name!r} is not a name, or is a word of Python or of expressions")
    if name in _FORBIDDEN:
        raise InputError(f"tune_params: {name!r} is a name of results; Kernel Tuner forbids it too")
    if name.startswith(_SPECIAL):
        raise UnsupportedError(
            f"tune_params[{name!r}] is not supported: it is no tunable of the kernel. GPU clocks are searched"
            " by `tuner run --clocks` and tuner.tune(clocks=...)"
        )


def _value(name: str, value: UserValue) -> TunableValue:
    plain = value.item() if isinstance(value, np.generic) else value
    if not isinstance(plain, bool | int | float | str):
        raise UnsupportedError(
            f"tune_params[{name!r}]: {value!r} is not supported; values are numbers, truth values or texts"
        )
    return plain


# --- texts over parameters -----------------------------------------------------------------------


@lru_cache(maxsize=1024)
def parsed(text: str) -> Expression:
    """The expression of a text.

    Raises:
        ExpressionError: it is none.
    """
    return Expression(" ".join(text.split()))


def evaluated(text: str, values: Mapping[str, UserValue], argument: str) -> UserValue:
    """The value of a text of the caller, as Python would compute it; nothing is ever executed.

    Args:
        text: an expression over the names of ``values``.
        values: of the configuration, or of one result.
        argument: what messages call it.

    Raises:
        InputError: it is no expression, or has no result; the message names the argument.
    """
    try:
        return parsed(text).evaluate(values)
    except ExpressionError as error:
        raise InputError(f"{argument}: {error}; a function of the parameters may stand there too") from error


def number(value: UserValue, argument: str) -> float | int:
    """A finite real number.

    Raises:
        InputError: it is none.
    """
    plain = value.item() if isinstance(value, np.generic) else value
    if not isinstance(plain, int | float) or not np.isfinite(plain):
        raise InputError(f"{argument}: gives {value!r}, which is no number")
    return plain


def called(
    function: Callable[..., UserValue], argument: str, *args: UserValue, **kwargs: UserValue
) -> UserValue:
    """Call a user's function and return its result.

    Raises:
        InputError: it raises; the message names the argument.
    """
    try:
        return function(*args, **kwargs)
    except Exception as error:
        raise InputError(f"{argument}: the function raised {type(error).__name__}: {error}") from error


def replaced(text: str, params: Parameters) -> str:
    """A text in which every word that is the name of a parameter is replaced by its value."""
    return "".join(macro_value(params[part]) if part in params else part for part in _TOKEN.split(text))


def shown(params: Mapping[str, object]) -> str:
    """Values as messages have them."""
    return ", ".join(f"{name}={value}" for name, value in params.items())


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

    @property
    def forms(self) -> "tuple[GivenArray, ...]":
        """The arrays that configurations take for it."""
        return (self,)

    def of(self, params: Parameters) -> "GivenArray":
        """The array that a configuration takes."""
        del params
        return self


@dataclass(frozen=True)
class GivenChoice(GivenArray):
    """An array argument of which each configuration takes one of several forms.

    Attributes:
        options: the arrays as they were given, and as they are kept; ``array`` is the first.
        select: the given one of the parameters of a configuration.
        key: what decides it: ``param_key``.
    """

    options: tuple[tuple[UserValue, GivenArray], ...] = field(kw_only=True)
    select: Callable[[Parameters], UserValue] = field(kw_only=True)
    key: UserValue = field(kw_only=True)

    @property
    def forms(self) -> tuple[GivenArray, ...]:
        """The arrays that configurations take for it."""
        return tuple(kept for _, kept in self.options)

    def of(self, params: Parameters) -> GivenArray:
        """The array that a configuration takes.

        Raises:
            InputError: there is none for its values.
        """
        chosen = self.select(dict(params))
        return next(kept for given, kept in self.options if given is chosen)


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
        if isinstance(one, GivenChoice):
            continue
        if parameter.dtype in DTYPES and not _same_numbers(dtype, np.dtype(parameter.dtype)):
            return f"takes {parameter.dtype} as {parameter.name}, and {dtype} is given"
    return ""


def _same_numbers(one: "np.dtype[Any]", other: "np.dtype[Any]") -> bool:
    """Return True if two types have the same bits; signs of integers, pairs and structs do not matter."""
    if one.names is not None:
        return True
    sizes = [dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize for dtype in (one, other)]
    real = [dtype.kind in "fc" for dtype in (one, other)]
    return sizes[0] == sizes[1] and real[0] == real[1]


def on_host(value: UserValue) -> UserValue:
    """An array of CuPy, PyTorch or another library as NumPy's; everything else as it is."""
    return copied_to_host(value) if is_array(value) else value


def save(arrays: Sequence[GivenArray], folder: Path) -> dict[str, Path]:
    """Write arrays to files that the worker reads; name of each form -> file."""
    forms = [form for one in arrays for form in one.forms]
    paths = {form.name: folder / f"{form.name}.npy" for form in forms}
    for form in forms:
        np.save(paths[form.name], form.stored, allow_pickle=False)
    return paths


def restored(given: GivenArray, array: HostArray) -> HostArray:
    """Return the contents of a buffer after a run, in the type and shape of the argument."""
    values = array.reshape(-1).view(given.array.dtype.newbyteorder("="))
    return values[: given.array.size].reshape(given.array.shape)


def _given(argument: str, name: str, value: UserValue, *, const: bool) -> Given:
    if isinstance(value, Mapping) and hasattr(value, "select_for_configuration"):
        return _choice(argument, name, value, const=const)
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


def _choice(argument: str, name: str, value: UserValue, *, const: bool) -> GivenChoice:
    """An argument by a ``Tunable``."""
    options = []
    for i, (key, array) in enumerate(value.items()):
        kept = _given(f"{argument}[{key!r}]", f"{name}.{i}", array, const=const)
        if not isinstance(kept, GivenArray):
            raise UnsupportedError(f"{argument}[{key!r}]: {type(value).__name__} of scalars is not supported")
        options.append((array, kept))
    if not options:
        raise InputError(f"{argument}: {type(value).__name__} holds no array")
    return GivenChoice(
        name,
        options[0][1].array,
        const,
        options=tuple(options),
        select=value.select_for_configuration,
        key=getattr(value, "param_key", None),
    )


class NotComputed:
    """Stand-in for what a kernel would have written, on a device that computes nothing: it has no numbers."""

    def __init__(self, device: str) -> None:
        self._device = device

    def __repr__(self) -> str:
        return f"NotComputed({self._device!r})"

    def __array__(self, *_args: object, **_kwargs: object) -> NoReturn:
        """Have no numbers.

        Raises:
            DeviceUnavailableError: always.
        """
        raise DeviceUnavailableError(f"run_kernel: {self._device} computes nothing; its numbers need a GPU")


# --- The device of a call: a GPU by number, or one by name; a model where there is no GPU, with a warning.


def device_spec(device: UserValue) -> str | None:
    """Return the device spec for ``device``; None for the modelled device that replaces a missing GPU.

    Args:
        device: number of a GPU, or a name such as ``cuda:1`` or ``sim:h200``.

    Raises:
        InputError: it is neither.
    """
    if isinstance(device, str) and device:
        return device
    if not isinstance(device, int) or isinstance(device, bool) or device < 0:
        raise InputError(f"device: must be the number of a GPU, or a name such as 'sim:h200', not {device!r}")
    why = driver_problem()
    if why is None:
        return f"cuda:{device}"
    warnings.warn(f"device: no GPU answers ({why}): every number is modelled", stacklevel=4)
    return None


def ignored_platform(platform: UserValue) -> None:
    """Say that a platform of OpenCL means nothing here."""
    if platform:
        warnings.warn(f"platform: {platform!r} is ignored: kernels are CUDA here", stacklevel=4)
