"""Targets of requests: a path and its query."""

from collections.abc import Mapping
from urllib.parse import urlencode

from tuner.model.errors import InputError


def target(path: str, query: Mapping[str, object]) -> str:
    """A path with its query; what is None is left out.

    Raises:
        InputError: a value holds bytes that are no text.
    """
    given = {name: value for name, value in query.items() if value is not None}
    try:
        return f"{path}?{urlencode(given, doseq=True)}"
    except UnicodeEncodeError as error:
        raise InputError(f"{error.object!r:.120} holds bytes that are no text") from error
