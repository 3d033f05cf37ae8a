"""Digests of Python functions that are the same in every process: no addresses, no order of sets."""

import dis
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

_DEEPEST = 12  # of functions that use functions, and of objects in objects
_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME")
_MOST = 10_000  # values; of others the type counts
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

_Each = Callable[[Iterable[object]], list[bytes]]


def function_digest(value: object) -> str:
    """Hex digest of a function: its code, defaults, captured values, and the globals that it names.

    Other values are told by what they hold: arrays by every element, sets in any order, objects by their
    attributes where their text has an address. It is another one for another version of Python.

    Args:
        value: a function, or what one may use: numbers, texts, arrays, collections, objects.
    """
    return _Digests().of(value, 0)


class _Digests:
    """Digests of values by their identity, so that each is looked at once and circles end."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, str]] = {}  # with the value, whose identity is then its own

    def of(self, value: object, depth: int) -> str:
        """The digest of a value that stands so deep in the one that is asked for."""
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        if id(value) in self._known:
            return self._known[id(value)][1]
        if depth > _DEEPEST or len(self._known) > _MOST:
            return kind
        self._known[id(value)] = (value, kind)
        digest = hashlib.sha256(kind.encode())
        for part in _parts(value, lambda inner: [self.of(one, depth + 1).encode() for one in inner]):
            digest.update(b"\0" + part)
        self._known[id(value)] = (value, digest.hexdigest())
        return digest.hexdigest()


def _parts(value: object, each: _Each) -> Iterable[bytes]:  # noqa: PLR0911 - one of each kind
    """What decides a value."""
    if isinstance(value, set | frozenset):
        return sorted(each(value))
    if isinstance(value, Mapping):
        return each(part for item in value.items() for part in item)
    if isinstance(value, list | tuple):
        return each(value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return (f"{value.dtype.str} {value.shape}".encode(), value.tobytes())
    if isinstance(value, CodeType):
        return each((value.co_code.hex(), value.co_names, value.co_varnames, value.co_consts))
    if isinstance(value, FunctionType):
        return each(_used_by(value))
    if isinstance(value, MethodType):
        return each((value.__func__, value.__self__))
    if isinstance(value, partial):
        return each((value.func, value.args, value.keywords))
    if isinstance(value, type | ModuleType | BuiltinFunctionType | np.ufunc):
        name = getattr(value, "__qualname__", value.__name__)
        return (f"{getattr(value, '__module__', '')}.{name}".encode(),)
    return _of_object(value, each)


def _used_by(function: FunctionType) -> list[object]:
    """Code, defaults and captured values of a function, and the globals that it names."""
    cells = [_content(cell) for cell in function.__closure__ or ()]
    names = sorted(_names(function.__code__) & function.__globals__.keys())
    known = [(name, function.__globals__[name]) for name in names]
    return [function.__code__, function.__defaults__, function.__kwdefaults__, cells, known]


def _names(code: CodeType) -> set[str]:
    """Names of globals in a function and the functions in it."""
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    own = {one.argval for one in dis.get_instructions(code) if one.opname in _GLOBAL}
    return own.union(*map(_names, inner))


def _content(cell: Any) -> object:  # noqa: ANN401 - types.CellType, whose content is anything
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _of_object(value: object, each: _Each) -> list[bytes]:
    text = repr(value)
    plain = _ADDRESS.sub("", text)
    if plain == text and not callable(value):
        return [plain.encode()]
    if callable(wrapped := getattr(value, "__wrapped__", None)):  # what was compiled, or is cached
        return each((wrapped,))
    called = type(value).__call__ if callable(value) else None
    own = getattr(value, "__dict__", {})
    slots = [getattr(value, name, None) for name in getattr(type(value), "__slots__", ())]
    return [plain.encode() * (plain == text), *each((called, own, slots))]
