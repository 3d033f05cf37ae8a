"""``kernel_tuner.accuracy``: arguments in several precisions, and the error that each of them brings."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tuner.kernel_tuner.call_arguments import UserValue, called, evaluated, on_host
from tuner.kernel_tuner.observers import Observed, Observer
from tuner.model.errors import InputError

Errors = Callable[[Any, Any], Any]
"""Of a right array and a given one, both of float64."""

_PRECISIONS = {"half": np.float16, "float": np.float32, "double": np.float64}
_OTHER_NAMES = {
    **dict.fromkeys(("f16", "float16", "__half"), np.float16),
    **dict.fromkeys(("f32", "float32", "single"), np.float32),
    **dict.fromkeys(("f64", "float64"), np.float64),
}


class Tunable(dict[Any, Any]):
    """An argument of which each configuration takes one of several arrays.

    Args:
        param_key: name of the parameter whose values are keys of ``arrays``; or a text over parameters, or a
            function of their dict, that gives such a key.
        arrays: by value; or a list, whose keys are 0, 1, ...

    Raises:
        InputError: they are neither.
    """

    def __init__(self, param_key: UserValue, arrays: UserValue) -> None:
        if not isinstance(arrays, list | tuple | Mapping):
            raise InputError(f"{type(self).__name__}: arrays: must be a dict or a list, not {arrays!r}")
        super().__init__(arrays if isinstance(arrays, Mapping) else enumerate(arrays))
        self.param_key = param_key

    def select_for_configuration(self, params: Mapping[str, Any]) -> UserValue:
        """The array of a configuration.

        Raises:
            InputError: there is none.
        """
        key, name = self.param_key, type(self).__name__
        if callable(key):
            value = called(key, f"{name}: param_key", dict(params))
        else:
            value = params[key] if key in params else evaluated(key, params, f"{name}: param_key")
        if value not in self:
            raise InputError(f"{name}: no array for {value!r}; there is one for {', '.join(map(str, self))}")
        return self[value]

    __call__ = select_for_configuration


class TunablePrecision(Tunable):
    """An argument in several precisions.

    Args:
        param_key: see ``Tunable``.
        array: of any library, in whatever precision.
        dtypes: a dict of value -> type of NumPy, or a list of names of types; None for half, float and
            double.

    Raises:
        InputError: a type is none, or the array.
    """

    def __init__(self, param_key: UserValue, array: UserValue, dtypes: UserValue = None) -> None:
        found = dtypes or _PRECISIONS
        if not isinstance(found, Mapping):
            found = {name: _dtype(name) for name in found}
        plain = on_host(array)
        if not isinstance(plain, np.ndarray | np.generic):
            raise InputError(f"TunablePrecision: array: {type(array).__name__} is none")
        super().__init__(param_key, {name: plain.astype(dtype) for name, dtype in found.items()})


def _dtype(name: UserValue) -> "np.dtype[Any]":
    known = _PRECISIONS | _OTHER_NAMES
    try:
        return np.dtype(known.get(name, name))
    except TypeError as error:
        raise InputError(f"TunablePrecision: dtypes: {name!r} is no type of NumPy") from error


# --- errors of outputs ---------------------------------------------------------------------------


def _bounded(right: UserValue, least: float) -> UserValue:
    return np.maximum(np.abs(right), least)


def _errors(least: float) -> Mapping[str, Errors]:
    """Errors by name; relative ones divide by ``least`` at least."""
    return {
        "mse": lambda a, b: np.mean((a - b) ** 2),
        "rmse": lambda a, b: np.sqrt(np.mean((a - b) ** 2)),
        "nrmse": lambda a, b: np.sqrt(np.mean((a - b) ** 2) / np.mean(a**2)),
        "rmsre": lambda a, b: np.sqrt(np.mean(((a - b) / _bounded(a, least)) ** 2)),
        "rmsle": lambda a, b: np.sqrt(np.mean((np.log10(a + least) - np.log10(b + least)) ** 2)),
        "mae": lambda a, b: np.mean(np.abs(a - b)),
        "mre": lambda a, b: np.mean(np.abs(a - b) / _bounded(a, least)),
        "male": lambda a, b: np.mean(np.abs(np.log10(a + least) - np.log10(b + least))),
        "max": lambda a, b: np.max(np.abs(a - b)),
        "max rel": lambda a, b: np.max(np.abs(a - b) / _bounded(a, least)),
    }


_LONG_NAMES = {
    "mean squared error": "mse",
    "root mean squared error": "rmse",
    "absolute error": "mae",
    "relative error": "mre",
    "maximum error": "max",
    "maximum relative error": "max rel",
}


class AccuracyObserver(Observer):
    """The error of each configuration's outputs against ``answer``, under a key of results.

    With it, no configuration is wrong for its answer: the error is what tells.

    Args:
        metric: name of an error, or a function of a right array and a given one; None for ``rmse``.
        key: of results.
        atol: what relative errors divide by at least.

    Raises:
        InputError: there is no such error.
    """

    def __init__(self, metric: UserValue = None, key: str = "error", *, atol: float = 1e-8) -> None:
        name = metric or "rmse"
        known = _errors(atol)
        if not callable(name):
            short = _LONG_NAMES.get(str(name).lower(), str(name).lower())
            if short not in known:
                names = ", ".join((*known, *_LONG_NAMES))
                raise InputError(f"AccuracyObserver: no error {name!r}; choose from {names}")
            name = known[short]
        self.key, self.metric = key, name
        self.adds = {key: Observed(key)}

    def error(self, answers: Sequence[Any], outputs: Sequence[Any]) -> float:
        """The largest error of the outputs that have an answer."""
        pairs = [(a, b) for a, b in zip(answers, outputs, strict=True) if a is not None and b is not None]
        return max(
            float(
                called(
                    self.metric,
                    "AccuracyObserver: metric",
                    np.asarray(a, np.float64).reshape(-1),
                    np.asarray(b, np.float64).reshape(-1),
                )
            )
            for a, b in pairs
        )
