"""Complaints of pydantic in the words of this program."""

from typing import TYPE_CHECKING, Any

from tuner.model.errors import suggestion

if TYPE_CHECKING:
    from pydantic import BaseModel

_SIMPLE = {
    "missing": "is needed",
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
}


def worded(name: str, detail: Any, model: "type[BaseModel] | None") -> str:  # noqa: ANN401 - a dict of pydantic
    """Word one detail of ``ValidationError.errors()``; ``model`` has the keys that may stand beside it."""
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden" and model is not None:
        keys = [field.alias or name for name, field in model.model_fields.items()]
        return f"unknown key{suggestion(name, keys)}; known here: {', '.join(keys)}"
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if kind == "too_short":
        least = context["min_length"]
        return f"must be a list of at least {'one' if least == 1 else least}"
    if kind == "string_pattern_mismatch":
        return f"{detail['input']!r} does not have the form {context['pattern']}"
    if kind == "literal_error":
        choices = context["expected"].replace("'", "").replace(" or ", ", ").split(", ")
        choices = [{"True": "true", "False": "false"}.get(choice, choice) for choice in choices]
        text = str(detail["input"])
        return f"{text!r} is not one of {', '.join(choices)}{suggestion(text, choices)}"
    text = str(context["error"] if kind == "value_error" else detail["msg"])
    return text[0].lower() + text[1:]
