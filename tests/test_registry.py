"""Implementations found by name, and the typed face of the power package."""

import inspect
from importlib import import_module

import pytest

from tuner import registry
from tuner.devices import power
from tuner.model.errors import UnknownNameError


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in registry.TABLE for name in registry.names(kind)]
)
def test_every_name_loads(kind: str, name: str) -> None:
    """Each entry of the table can be imported (a typo in a string fails here, not at a user's)."""
    assert callable(registry.load(kind, name))


def test_unknown_name_lists_the_choices() -> None:
    """A wrong name is answered with the right ones."""
    with pytest.raises(UnknownNameError, match="choose from exhaustive, random, greedy"):
        registry.load("policy", "gredy")


@pytest.mark.parametrize("name", power.TARGETS)
def test_the_face_of_power_fits_what_it_calls(name: str) -> None:
    """Each function has a target that can be imported and takes at least as many arguments."""
    module, _, attribute = power.TARGETS[name].partition(":")
    target = getattr(import_module(f"tuner.power.{module}"), attribute)
    taken = inspect.signature(target).parameters.values()
    given = inspect.signature(getattr(power, name)).parameters.values()

    assert len(taken) >= len(given)
    keywords = {one.name for one in given if one.kind is inspect.Parameter.KEYWORD_ONLY}
    assert keywords <= {one.name for one in taken}
