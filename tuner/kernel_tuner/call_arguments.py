"""Arguments, ``tune_params``, device and sources of a call."""

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from tuner.devices.cuda.probe import driver_problem
from tuner.kernel_files.cuda_source.signatures import Parameter, parameters_of
from tuner.kernel_files.schema import DTYPES
from tuner.kernel_files.source_folder import folders_sha256
from tuner.model.errors import DeviceUnavailableError, ExpressionError, InputError, UnsupportedError
from tuner.model.expressions.callables import Expression, is_free_name
from tuner.model.plan import Source, TunableValue
from tuner.python.arguments import HostArray, copied_to_host, is_array
from tuner.system.untrusted.build_texts import macro_value
from tuner.system.untrusted.reading import TEXT_BYTES, read_text

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


# --- Kernel sources: texts, files, lists of files and generators, and the macros of a configuration.

LANGUAGES = ("CUDA", "CUPY", "NVCUDA", "PYCUDA")
"""Values of ``lang`` that mean CUDA."""

_MAX_NAME = 250
_NO_NAME = re.compile(r"[(){};\\\n]")  # a text with one of these is source code, not the name of a file
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
_UNROLL = "loop_unroll_factor"
_GRID_NAMES = ("grid_size_x", "grid_size_y", "grid_size_z")
_ARCHITECTURE = re.compile(r"^--?(arch|gpu-architecture|gencode|generate-code|code|gpu-code)\b")
_INCLUDE_PATH = re.compile(r"^(?:-I|--include-path(?:=|$))(.*)$")
_HOST_OPTIMISATION = re.compile(r"^-O\d?$")

SourceGenerator = Callable[[dict[str, Any]], str]


@dataclass(frozen=True)
class KernelSources:
    """Source code of a kernel, from which the text of each configuration is made.

    Attributes:
        first: the text that is compiled, or what generates it from the parameters.
        label: what messages call it.
        folders: where includes are looked for.
        listed: files that follow the first in a list: name -> text.
        include_paths: absolute folders of further headers.
    """

    first: str | SourceGenerator
    label: str
    folders: tuple[Path, ...]
    listed: Mapping[str, str] = field(default_factory=dict)
    include_paths: tuple[str, ...] = ()
    _made: dict[Any, Source] = field(default_factory=dict, repr=False, compare=False)

    @property
    def text(self) -> str | None:
        """The text, where it does not depend on the configuration."""
        return None if callable(self.first) else self.first

    def source(self, params: Parameters, factors: Mapping[str, str]) -> Source:
        """The translation unit of a configuration; configurations share those that are the same.

        Args:
            params: of the configuration.
            factors: loop unroll factors, which are constants of the language and no macros, as
                ``#pragma unroll`` takes no macro; "0" takes the pragma away.

        Raises:
            InputError: the generator fails, or returns no text.
        """
        key = (tuple(params.items()) if callable(self.first) else (), tuple(factors.items()))
        if key not in self._made:
            text = self._text(params)
            source = Source(
                self.label,
                with_factors(text, factors),
                self._headers(text, factors),
                self.include_paths,
                self.include_sha256,
            )
            self._made[key] = self._made.setdefault(source, source)  # one object for the same text
        return self._made[key]

    @cached_property
    def include_sha256(self) -> str:
        """Of all files below the include paths."""
        return folders_sha256([Path(path) for path in self.include_paths])

    def _text(self, params: Parameters) -> str:
        if not callable(self.first):
            return self.first
        text = called(self.first, "kernel_source", dict(params))
        if not isinstance(text, str):
            raise InputError(f"kernel_source: the function returned {type(text).__name__}, not a text")
        return text

    def _headers(self, text: str, factors: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        found = {name: without_pragmas(one, factors) for name, one in self.listed.items()}
        left = [text, *self.listed.values()]
        while left:
            for name in _INCLUDE.findall(left.pop()):
                path = next((folder / name for folder in self.folders if (folder / name).is_file()), None)
                if name not in found and path is not None:
                    found[name] = _read(path)
                    left.append(found[name])
        return tuple(found.items())


def read_sources(kernel_source: UserValue, lang: UserValue) -> KernelSources:
    """The sources of a call.

    Args:
        kernel_source: a text, a file, a function of the parameters, or a list whose others are files.
        lang: the language, or None to tell it from the text.

    Raises:
        InputError: a file cannot be read, or it is something else.
        UnsupportedError: the language is not CUDA.
    """
    check_language(lang)
    items = list(kernel_source) if isinstance(kernel_source, list | tuple) else [kernel_source]
    if not items:
        raise InputError("kernel_source: the list is empty")
    paths = [_path(item) for item in items]
    folders = tuple(dict.fromkeys([*(path.parent for path in paths if path is not None), Path()]))
    listed: dict[str, str] = {}
    for item, path in zip(items[1:], paths[1:], strict=True):
        if path is None:
            raise InputError("kernel_source: what follows the first of a list must be names of files")
        listed[str(item)] = listed[path.name] = _read(path)
    first, path = items[0], paths[0]
    if callable(first) and path is None:
        if lang is None:
            raise InputError('kernel_source: is a function; say lang="CUDA" with it, as for Kernel Tuner')
        return KernelSources(first, getattr(first, "__name__", "kernel_source"), folders, listed)
    if path is None and not isinstance(first, str):
        raise InputError(f"kernel_source: {type(first).__name__} is neither a text, a file nor a function")
    text = first if path is None else _read(path)
    if lang is None and "__global__" not in text:
        language = "OpenCL" if "__kernel" in text else "C or Fortran"
        raise UnsupportedError(
            f"lang: the source has no __global__ function, so it would be {language}, which is not supported"
        )
    return KernelSources(text, "kernel_source" if path is None else str(path), folders, listed)


def check_language(lang: UserValue) -> None:
    """Take what means CUDA.

    Raises:
        UnsupportedError: it is another language.
    """
    if lang is not None and str(lang).upper() not in LANGUAGES:
        raise UnsupportedError(f"lang: {lang!r} is not supported; kernels are CUDA here: lang='CUDA' or None")


def compiler_options_of(options: UserValue) -> tuple[str, ...]:
    """Options for NVRTC: without the architecture, which is the device's, and ``-O``, which is the host's.

    Raises:
        InputError: they are no list of texts.
    """
    if options is None:
        return ()
    if not isinstance(options, list | tuple) or not all(isinstance(option, str) for option in options):
        raise InputError(f"compiler_options: must be a list of texts, not {options!r}")
    return tuple(
        option
        for option in options
        if not _ARCHITECTURE.match(option) and not _HOST_OPTIMISATION.match(option)
    )


def split_includes(options: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Absolute folders of ``-I`` options, as far as they are there, and the options that are left."""
    folders, others = [], []
    left = iter(options)
    for option in left:
        match = _INCLUDE_PATH.match(option)
        if match is None:
            others.append(option)
        else:
            folders.append(Path(match[1] or next(left, "")))
    return tuple(str(folder.resolve()) for folder in folders if folder.is_dir()), tuple(others)


def macros_of(
    defines: Mapping[UserValue, UserValue] | None,
    params: Parameters,
    grid: Sequence[int],
    block: Mapping[str, int],
) -> dict[str, str]:
    """The macros of a configuration.

    Args:
        defines: name -> text, value or function of the parameters; None for Kernel Tuner's own: grid, block,
            every parameter, and ``kernel_tuner``.
        params: of the configuration.
        grid: blocks along x, y and z.
        block: threads along the axes, by their names.

    Raises:
        InputError: a name is no identifier, or a function fails.
    """
    if defines is None:
        own = {**dict(zip(_GRID_NAMES, grid, strict=True)), **block, **params, "kernel_tuner": 1}
        return {name: macro_value(value) for name, value in own.items()}
    macros = {}
    for name, value in defines.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise InputError(f"defines: {name!r} is not a name")
        made = called(value, f"defines[{name!r}]", dict(params)) if callable(value) else value
        macros[name] = replaced(made, params) if isinstance(value, str) else macro_value(made)
    return macros


def split_factors(macros: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Loop unroll factors, and the macros that are left."""
    factors = {name: value for name, value in macros.items() if _UNROLL in name}
    return factors, {name: value for name, value in macros.items() if name not in factors}


def with_factors(text: str, factors: Mapping[str, str]) -> str:
    """The text that is compiled, with loop unroll factors as constants."""
    constants = [f"constexpr int {name} = {value};\n" for name, value in factors.items() if value != "0"]
    lines = f"{''.join(constants)}#line 1\n" if constants else ""
    return lines + without_pragmas(text, factors)


def without_pragmas(text: str, factors: Mapping[str, str]) -> str:
    """A text without the pragmas of the loop unroll factors that are "0"."""
    for name in (name for name, value in factors.items() if value == "0"):
        text = re.sub(rf"(?m)^[ \t]*#[ \t]*pragma[ \t]+unroll[ \t]+{re.escape(name)}[ \t]*$", "", text)
    return text


def _path(item: UserValue) -> Path | None:
    """The file that an item names; None for source code and functions."""
    if isinstance(item, Path):
        return item
    if isinstance(item, str) and len(item) <= _MAX_NAME and not _NO_NAME.search(item):
        return Path(item)
    return None


def _read(path: Path) -> str:
    try:
        return read_text(path, TEXT_BYTES)
    except (OSError, ValueError) as error:
        raise InputError(f"kernel_source: {path}: cannot be read: {error}") from error
