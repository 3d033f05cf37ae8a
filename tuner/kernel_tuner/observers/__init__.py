"""Kernel Tuner's observers: other names for what results have in any case, and no code beside the runs."""

from collections.abc import Mapping
from typing import ClassVar

from tuner.kernel_tuner.call_arguments import UserValue
from tuner.model.errors import InputError, UnsupportedError


class Observed(str):
    """A metric that is left out where the device does not tell what it is made of."""

    __slots__ = ()


class Observer:
    """Keys that an observer adds to results.

    Args:
        observables: those that are wanted.
        save_all: all readings beside their mean, which nobody keeps here.

    Attributes:
        known: of all that this observer can add, key -> text over a result, as a metric is.
        adds: those that are wanted.

    Raises:
        InputError: the observables are no list of texts.
        UnsupportedError: one is not measured here, or all readings are wanted.
    """

    known: ClassVar[Mapping[str, str]]

    def __init__(self, observables: UserValue, *, save_all: UserValue = False) -> None:
        name = type(self).__name__
        if not isinstance(observables, list | tuple) or not all(isinstance(one, str) for one in observables):
            raise InputError(f"{name}: observables must be a list of texts, not {observables!r}")
        other = next((one for one in observables if one not in self.known), None)
        if other is not None:
            raise UnsupportedError(f"{name}: {other!r} is not supported; choose from {', '.join(self.known)}")
        if save_all:
            raise UnsupportedError(f"{name}: save_all is not supported: a result has one number of each")
        self.adds = {key: Observed(self.known[key]) for key in observables}


def metrics_of(observers: UserValue) -> dict[str, Observed]:
    """The keys that observers add to results, as metrics.

    Raises:
        InputError: they are no list.
        UnsupportedError: one is of another kind, such as one of the caller's own.
    """
    if observers is None:
        return {}
    if not isinstance(observers, list | tuple):
        raise InputError(f"observers: must be a list, not {type(observers).__name__}")
    for one in observers:
        if not isinstance(one, Observer):
            raise UnsupportedError(
                f"observers: {getattr(one, '__name__', type(one).__name__)} is not supported; those of"
                " tuner.kernel_tuner.observers are, and joules need none: objective='energy'"
            )
    return {key: text for one in observers for key, text in one.adds.items()}
