"""Values and configurations as the tables of ``tuner kernels`` show them."""

from collections.abc import Iterable
from typing import Any


def extremes(values: Iterable[Any]) -> str:
    """First and last of a list, as ``64..4096``; of none ``-``."""
    shown = [str(value) for value in values] or ["-"]
    return shown[0] if len(set(shown)) == 1 else f"{shown[0]}..{shown[-1]}"


def listed(values: Iterable[Any]) -> str:
    """Values beside each other, booleans as TOML writes them."""
    return " ".join(str(value).lower() if isinstance(value, bool) else str(value) for value in values)


def configuration_text(values: dict[str, Any]) -> str:
    """A configuration, as ``P=2 L=64``."""
    return " ".join(f"{name}={listed([value])}" for name, value in values.items())
