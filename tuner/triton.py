"""``tuner.triton``: Triton's ``@autotune`` with the answers of this tuner in force, in place.

``autotune`` takes the arguments of ``triton.autotune``, and what it makes is an ``Autotuner`` of Triton: it
looks its configuration up, has the call's own arguments tuned, or records them. ``install`` does the same to
functions that name ``triton.autotune``. Importing this module imports Triton.
"""

import copy
import inspect
import logging
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tuner.compiler.triton_server import usable_version
from tuner.kernel_files.triton_stage import OPTIONS
from tuner.model.errors import InputError, TunerError, suggestion
from tuner.model.plan import TunableValue
from tuner.python.triton import config_values
from tuner.python.triton_in_place import (
    MODES,
    Launch,
    argument_text,
    check_options,
    mode_of,
    problem_name,
    recorded_or_tuned,
    stored_values,
    tell,
)

usable_version(sys.executable)  # others are refused before anything of theirs is replaced
from triton.runtime.autotuner import Autotuner as TritonAutotuner  # noqa: E402 - as the line above says

_LOG = logging.getLogger(__name__)
_run_of_triton = TritonAutotuner.run
_OF_LAUNCHES = ("grid", "warmup")
_deciding = threading.RLock()

# How an argument is part of the key: by value, by what Triton compiles in of it, or by its type alone.
_EXACT, _SPECIALISED, _TYPED = range(3)


class _Tuned:
    """Decisions of an autotuner, by the arguments of its launches."""

    def __init__(self, autotuner: Any, mode: str | None, options: Mapping[str, Any]) -> None:  # noqa: ANN401 - Triton has no types
        self._autotuner, self._options = autotuner, options
        self._mode, self._folder = mode_of(mode)
        self._jitted = autotuner.fn
        while not inspect.isfunction(getattr(self._jitted, "fn", None)):
            self._jitted = self._jitted.fn
        kinds = {one.name: _kind(one, autotuner.keys) for one in getattr(self._jitted, "params", ())}
        self._kinds = [kinds.get(name, _TYPED) for name in autotuner.arg_names]
        self._by_name = dict(zip(autotuner.arg_names, self._kinds, strict=True)) | dict.fromkeys(
            OPTIONS, _EXACT
        )
        self.kept: dict[tuple[Any, ...], tuple[Any, dict[str, Any]]] = {}

    def key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The parts of a launch that decide: keys, constants, types, and what is compiled in of others."""
        parts: list[Any] = []
        placed = True
        for value, kind in zip(args, self._kinds, strict=False):
            made = value.__class__
            if made is int:
                parts.append(value if kind == _EXACT else _whole(value, kind))
            elif made is float or value is None:
                parts.append((made, value) if kind == _EXACT else made)
            elif hasattr(value, "data_ptr"):
                parts += (value.dtype, value.data_ptr() % 16 == 0 or kind == _TYPED)
                if placed:
                    placed = False
                    parts.append(getattr(value, "device", None))
            else:
                parts.append((made, value) if kind == _EXACT else made)
        for name, value in kwargs.items():
            if name in _OF_LAUNCHES:
                continue
            kind = self._by_name.get(name, _EXACT)
            if hasattr(value, "data_ptr"):
                part: Any = (value.dtype, value.data_ptr() % 16 == 0 or kind == _TYPED)
                if placed:
                    placed = False
                    parts.append(getattr(value, "device", None))
            elif value.__class__ is int and kind != _EXACT:
                part = _whole(value, kind)
            else:
                part = (value.__class__, value) if kind == _EXACT else value.__class__
            parts.append((name, part))
        return tuple(parts)

    def decide(
        self, key: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """The configuration for a key that was not met before, with what it gives a launch.

        Raises:
            InputError: a parameter has two meanings, or pruning leaves no configuration.
        """
        with _deciding:
            if key not in self.kept:
                config = self._choose(args, kwargs)
                self.kept[key] = config, config.all_kwargs()
            return self.kept[key]

    def _choose(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - a Config
        own, name = self._autotuner, self._jitted.__name__
        arguments = dict(zip(own.arg_names, args, strict=False))
        twice = {*arguments, *kwargs} & {each for one in own.configs for each in one.all_kwargs()}
        if twice:
            raise InputError(
                f"{name}: {', '.join(sorted(twice))}: given by the call and by configs; leave it out of one"
            )
        own.nargs = arguments
        try:
            configs = own.prune_configs(kwargs) if len(own.configs) > 1 else list(own.configs)
        finally:
            own.nargs = None
        if not configs:
            raise InputError(f"{name}: early_config_prune leaves no configuration")
        if len(configs) == 1:
            return configs[0]
        arguments |= {one: value for one, value in kwargs.items() if one not in _OF_LAUNCHES}
        launch = Launch(name, arguments, kwargs.get("grid", (1,)), self._options)
        try:
            return self._answer(launch, configs) or configs[0]
        except (TunerError, OSError) as error:
            tell(f"{name}: the first configuration is used: {error}")
            return configs[0]

    def _answer(self, launch: Launch, configs: Sequence[Any]) -> Any:  # noqa: ANN401 - a Config
        """The configuration that is stored, or now tuned; None where there is none."""
        code = getattr(self._jitted, "cache_key", None)
        if code is None:
            raise InputError("it runs in Triton's interpreter, which nothing is tuned for")
        texts = []
        for one, value in sorted(launch.arguments.items()):
            kind = self._by_name.get(one, _EXACT)
            texts.append(argument_text(one, value, exact=kind == _EXACT, typed=kind == _TYPED))
        problem = problem_name(launch.name, [str(code), *texts])
        values = stored_values(problem, launch, needed=self._mode == MODES[0])
        found = None if values is None else _among(configs, values)
        if found is None and self._mode != MODES[0]:
            best = recorded_or_tuned(problem, self._plain(configs), launch, self._mode, self._folder)
            return None if best is None else _among(configs, best)
        if found is None and values is not None:
            told = ", ".join(f"{each}={value}" for each, value in values.items())
            raise InputError(f"the stored answer ({told}) is not among its configs")
        return found

    def _plain(self, configs: Sequence[Any]) -> Any:  # noqa: ANN401 - Triton has no types
        """The autotuner with the configurations that pruning has left."""
        function = copy.copy(self._autotuner)
        function.configs, function.early_config_prune = list(configs), None
        return function


def _among(configs: Sequence[Any], values: Mapping[str, TunableValue]) -> Any:  # noqa: ANN401 - a Config
    """The configuration of these values; None where there is none."""
    every = config_values(configs)
    return next((one for one, own in zip(configs, every, strict=True) if own == dict(values)), None)


def _kind(parameter: Any, keys: Sequence[str]) -> int:  # noqa: ANN401 - Triton has no types
    if parameter.name in keys or parameter.is_constexpr:
        return _EXACT
    return _TYPED if parameter.do_not_specialize else _SPECIALISED


def _whole(value: int, kind: int) -> int:
    """A number for all that is compiled in of a whole number: that it is 1, that 16 divides it, its width."""
    width = 0 if -(2**31) <= value < 2**31 else 4 if value < 2**63 else 8
    return width if kind == _TYPED else width + (1 if value == 1 else 2 if value % 16 == 0 else 0)


def _run(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - Triton has no types
    """Launch with the configuration that is in force; in the place of ``Autotuner.run``."""
    tuned = self.__dict__.get("_tuned")
    if tuned is None:
        tuned = self.__dict__.setdefault("_tuned", _Tuned(self, *_installed))
        _begun.add(self)
    key = tuned.key(args, kwargs)
    try:
        found = tuned.kept.get(key)
    except TypeError:  # a constant that cannot be hashed, as a list
        key = (repr(key),)
        found = tuned.kept.get(key)
    config, values = found or tuned.decide(key, args, kwargs)
    self.best_config = config
    if config.pre_hook is not None:
        config.pre_hook({**dict(zip(self.arg_names, args, strict=False)), **kwargs, **values})
    return self.fn.run(*args, **kwargs, **values)


class Autotuner(TritonAutotuner):  # type: ignore[misc]  # Triton has no types
    """An autotuner of Triton whose configurations come from here; ``autotune`` makes them."""

    run = _run


def autotune(
    configs: Sequence[Any],
    key: Sequence[str],
    *arguments: Any,  # noqa: ANN401 - those of Triton
    mode: str | None = None,
    **options: Any,  # noqa: ANN401 - those of Triton and of ``tuner.tune``
) -> Callable[[Any], Any]:
    """Decorate a jitted function, in the place of ``triton.autotune``.

    Args:
        configs: configurations that may be chosen; the first is used where there is no answer.
        key: names of arguments of whose values each has an answer of its own.
        arguments: further ones of ``triton.autotune``, by place.
        mode: ``lookup`` (the answer of the database), ``tune`` (also searches where there is none),
            ``record`` (also writes what is to be tuned into a folder; ``record:FOLDER``). None for that of
            the environment variable ``TUNER_TRITON``, else ``lookup``.
        options: further ones of ``triton.autotune``; and of ``tuner.tune``: ``device``, ``database``,
            ``objective``, ``budget``, ...

    Raises:
        InputError: an argument cannot be used; the message names it.
    """
    theirs = inspect.signature(TritonAutotuner.__init__).parameters
    own = {name: options.pop(name) for name in list(options) if name not in theirs}
    check_options(own, theirs)
    if mode is not None:
        mode_of(mode)
    if not configs:
        raise InputError("configs: none are given; write for example [triton.Config({'BLOCK': 256})]")

    def decorated(function: Any) -> Autotuner:  # noqa: ANN401 - Triton has no types
        names = getattr(function, "arg_names", None)
        if names is None:
            raise InputError(
                f"autotune: {getattr(function, '__name__', function)!r} is not jitted: write"
                " @triton.jit below it"
            )
        for one in key:
            if one not in names:
                raise InputError(f"key: the function has no parameter {one!r}{suggestion(one, names)}")
        places = dict(
            zip(("prune_configs_by", "reset_to_zero", "restore_value", *_AFTER), arguments, strict=False)
        )
        given = {"reset_to_zero": None, "restore_value": None, **places, **options}
        made = Autotuner(function, names, list(configs), list(key), **given)
        made._tuned = _Tuned(made, mode, own)  # noqa: SLF001 - where ``_run`` looks
        return made

    return decorated


_AFTER = ("pre_hook", "post_hook", "warmup", "rep", "use_cuda_graph", "do_bench", "cache_results")


# --- For code that names ``triton.autotune``.

_installed: tuple[str | None, Mapping[str, Any]] = None, {}
_begun: "weakref.WeakSet[Any]" = weakref.WeakSet()  # autotuners that were installed for


def _put(run: Callable[..., Any]) -> None:
    """Make something ``Autotuner.run``; what was decided for another is forgotten."""
    TritonAutotuner.run = run
    while _begun:
        vars(_begun.pop()).pop("_tuned", None)


class Installed:
    """An installation: its text says what was done, ``undo`` takes it back."""

    def __init__(self, mode: str) -> None:
        self._mode = mode

    def __str__(self) -> str:
        return (
            f"Autotuner.run of Triton is tuner's, in mode {self._mode}: for every function below"
            " @triton.autotune, decorated before or later; undo() gives Triton's own back"
        )

    def undo(self) -> None:
        """Give functions below ``@triton.autotune`` their own autotuner back."""
        _put(_run_of_triton)


def install(mode: str | None = None, **options: Any) -> Installed:  # noqa: ANN401 - those of ``tuner.tune``
    """Have all functions below ``@triton.autotune`` take their configurations from here.

    Args:
        mode: see ``autotune``.
        options: of ``tuner.tune``, see ``autotune``.

    Returns:
        What was done, to be shown or undone.

    Raises:
        InputError: an argument cannot be used; the message names it.
    """
    global _installed  # noqa: PLW0603 - one for all, as Triton's class is
    check_options(options)
    chosen, _ = mode_of(mode)
    _installed = mode, options
    _put(_run)
    done = Installed(chosen)
    _LOG.info("%s", done)
    return done
