"""Small JSON files that are trusted: a checksum over what they say tells whether they still say it."""

from collections.abc import Collection, Mapping
from typing import Any

from tuner.model.records import digest
from tuner.model.typed import UnfitError

_SEAL = "checksum"


def sealed(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document with its checksum: SHA-256 of the canonical JSON of everything else."""
    return {**document, _SEAL: digest(dict(document))}


def unsealed(document: object, keys: Collection[str], *, earlier: bool = False) -> dict[str, Any]:
    """A document without its checksum, which is verified.

    Args:
        document: what JSON has.
        keys: of the document, all of them.
        earlier: accept one without a checksum, as earlier versions wrote it.

    Raises:
        UnfitError: it is another one, or has changed since it was written.
    """
    if not isinstance(document, dict):
        raise UnfitError("it holds no object")
    known = {name: value for name, value in document.items() if name != _SEAL}
    if known.keys() != set(keys):
        odd = sorted(known.keys() ^ set(keys))
        raise UnfitError(f"{odd[0]!r:.40} is {'not known' if odd[0] in known else 'missing'}")
    if _SEAL not in document and earlier:
        return known
    try:
        right = document.get(_SEAL) == digest(known)
    except (ValueError, RecursionError):  # a number that is not finite: never written
        right = False
    if not right:
        raise UnfitError("its checksum is not that of what it says")
    return known
