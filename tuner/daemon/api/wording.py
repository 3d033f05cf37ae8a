"""Says what is wrong in a request, and what would be right, in words for those who wrote it."""

from collections.abc import Mapping
from typing import Any

from tuner.daemon.bounds import bound

_WORKLOAD = "must be a kernel and its sizes in ASCII without spaces, e.g. scan-lf:N=1024"
_FORMS = {
    "workload": _WORKLOAD,
    "workloads": _WORKLOAD,
    "device": "must be cuda:N or sim:NAME, e.g. cuda:0, or empty for the daemon's first",
    "policy": "must be the name of a search strategy, e.g. greedy: small letters, digits and -",
    "clocks": "must be off, all, a list in MHz or MIN:MAX[:STEP], e.g. 600,900",
    "sensor": "must be the name of a sensor: letters, digits and ._-",
}
"""By field, what a text must be."""

_TEXTS = ("string_pattern_mismatch", "string_too_short")
_LENGTHS = {
    "string_too_long": "must be of at most {max_length} characters",
    "too_long": "must hold at most {max_length}",
    "too_short": "must hold at least {min_length}",
}
_SIMPLE = {
    "missing": "is needed",
    "extra_forbidden": "is not known here; /openapi.json lists what is",
    "string_type": "must be text",
    "string_unicode": "must be text",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "has too many digits",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "json_invalid": "is no JSON",
}


def worded(fault: Mapping[str, Any]) -> str:
    """Where a fault is and what would be right; the value itself is not repeated.

    Args:
        fault: of ``ValidationError.errors()``, its place beginning with the part of the request.
    """
    place, *rest = fault["loc"]
    fields = [part for part in rest if isinstance(part, str)]
    if fault["type"] == "json_invalid":  # what follows is a count of characters
        fields = rest = []
    return f"{'.'.join(str(part)[:64] for part in rest) or place}: {_right(fields[-1:], fault)}"


def _right(field: list[str], fault: Mapping[str, Any]) -> str:
    kind, context = fault["type"], fault.get("ctx") or {}
    if kind in _TEXTS and field and field[0] in _FORMS:
        return _FORMS[field[0]]
    if kind in _LENGTHS:
        return _LENGTHS[kind].format(**context)
    if kind == "literal_error":
        return f"must be one of {context['expected'].replace(chr(39), '').replace(' or ', ', ')}"
    return bound(kind, context) or _SIMPLE.get(kind) or str(fault["msg"])
