"""What to write for a parameter that no pragma declares: an array, a number or a struct."""

import re
from collections.abc import Collection

from tuner.cuda_source.guesses import struct_fields
from tuner.cuda_source.parameters import Parameter

_FIELD = '{ FIELD = "int32 = EXPRESSION" }'


def what_to_write(parameter: Parameter, text: str, sizes: Collection[str]) -> str:
    """The pragma that would declare a parameter, with what to fill in.

    Args:
        parameter: that is not declared.
        text: of the source, where structs are looked up.
        sizes: names that fields are compared with.
    """
    value = f"#pragma tuner value {parameter.name}"
    if parameter.pointer:
        role = "input" if parameter.const else "output"
        return f"write #pragma tuner {role} {parameter.name}: {parameter.dtype or 'float32'}[N]"
    if parameter.dtype:
        return f"write {value} = N"
    if "ensorMap" in parameter.type:
        return "it is a tensor map, which an [[argument]] of a kernel.toml alone can state"
    name = parameter.type.partition("<")[0].rpartition("::")[2].strip()
    fields = struct_fields(text, name)
    if fields:
        listed = ", ".join(f'{field} = "{dtype} = {_size(field, sizes)}"' for field, dtype in fields.items())
        return f"it is a struct; write {value} = {{ {listed} }}"
    if re.search(rf"\b(?:struct|class)\s[^;{{}}()]*?\b{re.escape(name)}\b", text):
        return f"it is a struct; write {value} = {_FIELD}, its fields in order, or {{}} where it has none"
    return f"write {value}: int32 = N of a number, and {value} = {_FIELD} of a struct, its fields in order"


def _size(field: str, sizes: Collection[str]) -> str:
    return next((size for size in sizes if size.lower() == field.lower()), "EXPRESSION")
