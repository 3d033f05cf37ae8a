"""Implementations found by name."""

import pytest

from tuner.model import registry
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
