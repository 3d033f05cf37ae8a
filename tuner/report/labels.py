"""What numbers are that no GPU gave just now: modelled, or recorded."""

from collections.abc import Mapping
from typing import Any

MODELLED = "modelled"
RECORDED = "recorded"


def label(document: Mapping[str, Any]) -> str:
    """``modelled``, ``recorded``, both, or nothing for numbers that were measured now.

    Args:
        document: of a run; those stored before there were recordings lack the key.
    """
    words = [RECORDED] if document.get("recorded") else []
    return ", ".join([*words, MODELLED] if document["modelled"] else words)


def note(document: Mapping[str, Any]) -> str:
    """What stands beside the name of the GPU; empty for numbers that were measured now."""
    modelled = f"{MODELLED}: a simulated device made these numbers, no GPU ran"
    if not document.get("recorded"):
        return modelled if document["modelled"] else ""
    recorded = f"{RECORDED} ({document['recorded']}): nothing ran now, and no contender was measured again"
    return f"{recorded}; {modelled}" if document["modelled"] else recorded
