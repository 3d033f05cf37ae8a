"""Arguments of Python calls that are of another type than they should be."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tuner.errors import InputError


def check_dicts(**given: Any) -> None:  # noqa: ANN401 - whatever the caller passes
    """Refuse what is neither None nor a dict.

    Raises:
        InputError: one is something else; the message names it.
    """
    for name, value in given.items():
        if value is not None and not isinstance(value, Mapping):
            raise InputError(f"{name}: must be a dict by name, not {type(value).__name__}")


def check_list(name: str, value: Any) -> None:  # noqa: ANN401 - whatever the caller passes
    """Refuse what cannot be gone through, and a text, which would be taken letter by letter.

    Raises:
        InputError: it is one of these; the message begins with the name.
    """
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        raise InputError(f"{name}: must be a list, not {value!r}")


def check_number(name: str, value: Any) -> None:  # noqa: ANN401 - whatever the caller passes
    """Refuse what is neither None nor a real number.

    Raises:
        InputError: it is something else; the message begins with the name.
    """
    if value is not None and not isinstance(value, int | float | np.integer | np.floating):
        raise InputError(f"{name}: must be a number, not {value!r}")
