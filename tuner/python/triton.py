"""Functions of Triton in a Python program, as ``tuner.Kernel`` takes them; Triton is not imported here."""

import inspect
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tuner.kernel_files.formulas import Location
from tuner.kernel_files.schema import NONE
from tuner.kernel_files.source_folder import read_source
from tuner.kernel_files.triton_source import (
    TritonFunction,
    imported_modules,
    reached_parameters,
    triton_function,
)
from tuner.kernel_files.triton_stage import OPTIONS
from tuner.model.errors import InputError, suggestion
from tuner.model.plan import Source
from tuner.python.arguments import (
    ArrayArgument,
    KernelArgument,
    ValueArgument,
    is_array,
    read_argument,
)

_NOT_OF_CONFIGURATIONS = ("ir_override", "minRegAutoWS", "maxRegAutoWS")
_LIMIT = "maxnreg"


@dataclass(frozen=True)
class JittedKernel:
    """A function below ``@triton.jit``, with what decorators around it say.

    Attributes:
        function: its parameters.
        source: the file that it stands in.
        arguments: those that are passed, in the order of its parameters.
        constants: values of ``tl.constexpr`` parameters and of options that are no tunables.
        configs: the configurations of ``@triton.autotune``; none without it.
        cleared: arrays that are zeros before every run.
        restored: arrays that every run finds as they were given.
    """

    function: TritonFunction
    source: Source
    arguments: tuple[KernelArgument, ...]
    constants: Mapping[str, Any]
    configs: tuple[Mapping[str, Any], ...]
    cleared: tuple[str, ...]
    restored: tuple[str, ...] = ()

    @property
    def tunables(self) -> dict[str, list[Any]]:
        """Names of the tunables with all values that configurations give them."""
        values: dict[str, dict[Any, None]] = {}
        for one in self.configs:
            for name, value in one.items():
                values.setdefault(name, {})[value] = None
        return {name: list(found) for name, found in values.items()}

    def rules(self, tunables: Mapping[str, Any]) -> "list[Listed]":
        """A rule where the configurations of ``@triton.autotune`` are what may be tried, and no product."""
        own = self.tunables
        if tunables is not own and dict(tunables) != own:
            return []
        product = math.prod(map(len, own.values()))
        return [Listed(self.configs, list(own))] if self.configs and product > len(self.configs) else []

    def derived(self, tunables: Collection[str]) -> dict[str, Any]:
        """Named expressions of the values that are no tunables."""
        return {
            name: repr(value) if isinstance(value, str) else value
            for name, value in self.constants.items()
            if name not in tunables and value is not None
        }


class Listed:
    """A rule: only the configurations of a list, where they are no product of their values."""

    def __init__(self, configs: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._allowed = frozenset(tuple(one.get(name) for name in names) for one in configs)

    def __call__(self, values: Mapping[str, Any]) -> bool:
        """Return True for one of them."""
        return tuple(values[name] for name in self._names) in self._allowed


def is_jitted(source: object) -> bool:
    """True for a function of Triton, and what decorators of Triton make of one."""
    return any(one.__module__.partition(".")[0] == "triton" for one in type(source).__mro__)


def read_jitted(source: Any, name: object, given: Mapping[str, Any] | Sequence[Any]) -> JittedKernel:  # noqa: ANN401 - Triton has no types
    """Hold a function of Triton against the arguments that it is tuned on.

    Args:
        source: the function, perhaps below ``autotune`` and ``heuristics``.
        name: what the caller calls it; only None, as it has a name.
        given: values by the names of parameters, or in their order.

    Raises:
        InputError: it is in no file, or an argument is missing or cannot be handed over.
    """
    if name is not None:
        raise InputError(f"Kernel: a function of Triton has its name: leave out name={name!r}")
    configs: list[Any] = []
    cleared: list[str] = []
    restored: list[str] = []
    prune = None
    while not inspect.isfunction(getattr(source, "fn", None)):
        if hasattr(source, "configs"):
            configs, prune = list(source.configs), getattr(source, "early_config_prune", None)
            cleared = list(getattr(source, "reset_to_zero", None) or ())
            restored = list(getattr(source, "restore_value", None) or ())
            _check_hooks(source)
        if not hasattr(source, "fn"):
            raise InputError(f"Kernel: {source!r} is no function with @triton.jit")
        source = source.fn
    file, entry = _file_of(source.fn), source.fn.__name__
    text = read_source(file, "Kernel")
    read = Source(str(file), text, headers=imported_modules(file, text), language="triton")
    function = triton_function(read, entry, Location(f"kernel {entry}", "[kernel] entry"))
    values = _values(function, given)
    if prune is not None:
        configs = _pruned(configs, prune, values)
    written = reached_parameters(read, entry)
    constants = {
        key: value
        for key, value in values.items()
        if key in OPTIONS or key in {one.name for one in function.constants}
    }
    arguments = tuple(
        _passed(one.name, one.dtype, values[one.name], written)
        for one in function.passed
        if one.name in values
    )
    _check_types(constants)
    every = config_values(configs)
    return JittedKernel(function, read, arguments, constants, every, tuple(cleared), tuple(restored))


def _file_of(function: Any) -> Path:  # noqa: ANN401 - the caller's
    """The file of a function, which another process runs."""
    file = Path(inspect.getsourcefile(function) or "")
    if not file.is_file():
        raise InputError(
            f"Kernel: {function.__name__} is in no file ({file}); put it into a .py file, which a process"
            " that compiles can import"
        )
    if "<locals>" in function.__qualname__:
        raise InputError(
            f"Kernel: {function.__qualname__} is made inside a function; put it at the top of {file.name}"
        )
    return file.absolute()


def _check_hooks(autotuner: Any) -> None:  # noqa: ANN401 - Triton has no types
    """Refuse an autotuned function whose runs need code of the user's."""
    own = [one for one in autotuner.configs if getattr(one, "pre_hook", None) is not None]
    if (
        own
        or getattr(autotuner, "user_defined_pre_hook", False)
        or getattr(autotuner, "user_defined_post_hook", False)
    ):
        raise InputError(
            f"Kernel: {autotuner.base_fn.__name__ if hasattr(autotuner, 'base_fn') else 'the function'} is"
            " autotuned with a pre_hook or post_hook, which is not called here; give the function below"
            " @triton.autotune (its .fn), and tunables=..."
        )


def _values(function: TritonFunction, given: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    """Values by the names of parameters; of options, too."""
    names = [one.name for one in function.parameters]
    if not isinstance(given, Mapping):
        if isinstance(given, str) or not hasattr(given, "__len__"):
            raise InputError(
                f"arguments: must be a list in the order of {function.name}'s parameters, or a dict of"
                f" name -> value, not {type(given).__name__}"
            )
        if len(given) > len(names):
            raise InputError(f"arguments: {function.name} takes {len(names)}, and {len(given)} are given")
        given = dict(zip(names, given, strict=False))
    for name in given:
        if name not in names and name not in OPTIONS:
            raise InputError(
                f"arguments: {function.name} has no parameter {name!r}{suggestion(str(name), names)};"
                f" it has {', '.join(names)}"
            )
    for one in function.passed:
        if one.name not in given and not one.has_default:
            raise InputError(f"arguments: {function.name} needs {one.name}")
    return dict(given)


def _passed(name: str, dtype: str, value: Any, written: frozenset[str]) -> KernelArgument:  # noqa: ANN401 - the caller's
    """An argument by the rules of Triton: whole numbers as wide as they need to be, fractions in 32 bits."""
    if value is None:
        return ValueArgument(name, NONE, 0)
    if is_array(value) and np.ndim(value):
        found = read_argument(name, value)
        return replace(found, const=name not in written) if isinstance(found, ArrayArgument) else found
    plain = value.item() if isinstance(value, np.generic) else value
    if dtype and isinstance(plain, bool | int | float):
        return read_argument(name, np.dtype(dtype).type(plain))
    if type(plain) is int and not -(2**63) <= plain < 2**64:
        raise InputError(f"arguments: {name}: {plain} does not fit 64 bits")
    if type(plain) is int and not -(2**31) <= plain < 2**31:
        return read_argument(name, np.uint64(plain) if plain >= 2**63 else np.int64(plain))
    return read_argument(name, plain)


def _pruned(configs: list[Any], prune: Any, values: Mapping[str, Any]) -> list[Any]:  # noqa: ANN401 - Triton's
    """The configurations that the caller's own function leaves."""
    try:
        return list(prune(configs, dict(values)))
    except Exception as error:  # a function of the user's may raise anything
        raise InputError(f"Kernel: early_config_prune raises {type(error).__name__}: {error}") from error


def config_values(configs: Sequence[Any]) -> tuple[dict[str, Any], ...]:
    """Configurations as values of tunables; one without ``maxnreg`` has no limit where others have one.

    Raises:
        InputError: one has what is not tuned, or lacks what others have.
    """
    every = [
        {name: value for name, value in one.all_kwargs().items() if value is not None} for one in configs
    ]
    names = dict.fromkeys(name for one in every for name in one)
    for name in names:
        if name in _NOT_OF_CONFIGURATIONS:
            raise InputError(
                f"Kernel: a configuration of @triton.autotune has {name}, which is not supported"
            )
        if name != _LIMIT and any(name not in one for one in every):
            raise InputError(
                f"Kernel: some configurations of @triton.autotune have {name}, and others have not"
            )
    return tuple({name: one.get(name, 0) for name in names} for one in every)


def _check_types(constants: Mapping[str, Any]) -> None:
    for name, value in constants.items():
        if not isinstance(value, bool | int | float | str | None):
            raise InputError(
                f"arguments: {name}: {type(value).__name__} is no value of a constexpr: give a number, a text"
                " or None; a type is a text, as 'tl.float16'"
            )
