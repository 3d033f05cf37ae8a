"""Expressions of kernel files, Python functions in their place, and the digests of both."""

import dis
import hashlib
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from tuner.model.errors import ExpressionError, InputError, NoValueError
from tuner.model.expressions.operations import MissingError, NoValue, TroubleError, Value
from tuner.model.expressions.parser import MAX_LENGTH, MAX_MADE, RESERVED, parse

# --- The expressions of kernel files: arithmetic, comparisons and conditions over names, and nothing else.
#
# An expression is parsed once into closures. Evaluation takes Python scalars, or NumPy arrays and then works
# element by element with the same results: whole numbers stay exact (at most 63 bits), ``and``, ``or``,
# ``not`` and comparisons give booleans, and the side of a condition that is not taken is not evaluated. A
# service may read kernel files of strangers, so length, nesting, exponents and the size of results are
# bounded.


class Expression:
    """One parsed expression.

    Attributes:
        text: what the kernel file says.
        names: the names it needs a value for.
    """

    __slots__ = ("_evaluate", "_written", "names", "text")

    def __init__(self, text: str, written: str = "") -> None:
        """Parse ``text``, which may be made of one that was ``written``: messages then show that.

        Raises:
            ExpressionError: it is not in the language, too long or nested too deeply.
        """
        self.text, self._written = text, written
        try:
            self._evaluate, self.names = parse(text, MAX_MADE if written else MAX_LENGTH)
        except TroubleError as e:
            raise ExpressionError(f"expression {_shown(written or text)}: {e}") from None

    def evaluate(self, env: Mapping[str, Value]) -> Value:
        """Value of the expression with the names bound by ``env``.

        Args:
            env: scalars, or arrays of one shape.

        Returns:
            A bool, int, float or str; an array (bool, int64, float64, str) where a name it uses is one.

        Raises:
            NoValueError: it comes to a name that stands for ``NoValue``.
            ExpressionError: a name is not bound, or an operation has no result (division by zero, text in
                arithmetic, more than 63 bits).
        """
        try:
            return self._evaluate(env)
        except TroubleError as e:
            kind = NoValueError if isinstance(e, MissingError) else ExpressionError
            raise kind(f"expression {_shown(self._written or self.text)}: {e}") from None
        except ValueError:  # raised by NumPy's broadcasting
            raise ExpressionError(
                f"expression {_shown(self._written or self.text)}: its arrays differ in shape"
            ) from None

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, Expression) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)

    def __reduce__(self) -> tuple[type, tuple[str, ...]]:
        return Expression, (self.text, self._written)  # closures do not cross a pipe

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"


def is_free_name(name: str) -> bool:
    """True when a kernel file may give this name to a size, tunable or derived value."""
    return name.isidentifier() and name.isascii() and name not in RESERVED


def _shown(text: str) -> str:
    return repr(text if len(text) <= 120 else f"{text[:117]}...")  # noqa: PLR2004 - one line of a terminal


# --- Digests of Python functions: their code, and all that it uses.

_DEEPEST = 12  # of functions that use functions, and of objects in objects
_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME")
_MOST = 10_000  # values; of others the type counts
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

_Each = Callable[[Iterable[object]], list[bytes]]


def function_digest(value: object) -> str:
    """Hex digest of a function: its code, defaults, captured values, and the globals that it names.

    Other values are told by what they hold: arrays by every element, sets in any order, objects by their
    attributes where their text has an address. It is another one for another version of Python.
    """
    return _Digests().of(value, 0)


class _Digests:
    """Digests of values by their identity, so that each is looked at once and circles end."""

    def __init__(self) -> None:
        self._digests: dict[int, tuple[object, str]] = {}  # with the value, whose identity is then its own

    def of(self, value: object, depth: int) -> str:
        """The digest of a value that stands so deep in the one that is asked for."""
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        if id(value) in self._digests:
            return self._digests[id(value)][1]
        if depth > _DEEPEST or len(self._digests) > _MOST:
            return kind
        self._digests[id(value)] = (value, kind)
        digest = hashlib.sha256(kind.encode())
        for part in _parts(value, lambda inner: [self.of(item, depth + 1).encode() for item in inner]):
            digest.update(b"\0" + part)
        self._digests[id(value)] = (value, digest.hexdigest())
        return digest.hexdigest()


def _parts(value: object, each: _Each) -> Iterable[bytes]:  # noqa: PLR0911 - one of each kind
    """Return the parts of a value that decide its digest."""
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
    used = [(name, function.__globals__[name]) for name in names]
    return [function.__code__, function.__defaults__, function.__kwdefaults__, cells, used]


def _names(code: CodeType) -> set[str]:
    """Names of globals in a function and the functions in it."""
    inner = (item for item in code.co_consts if isinstance(item, CodeType))
    own = {item.argval for item in dis.get_instructions(code) if item.opname in _GLOBAL}
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


# --- Python functions in the place of expressions.

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class PythonExpression(Expression):
    """A function that stands for an expression.

    It is called with the values of one configuration: with a dict of all names where it has one parameter
    that is none of them, else with those that its parameters name.

    Args:
        function: returns a boolean, a number or text.
        known: the names it may ask for.
        label: what messages call it, e.g. ``restrictions[0]``.

    Attributes:
        text: the label.
        names: the names it needs a value for.
        digest: hex digest of its code and of the values that it uses, see ``function_digest``.

    Raises:
        InputError: it is not callable, or has a parameter that is none of ``known``.
    """

    __slots__ = ("_function", "_takes_all", "digest")

    def __init__(self, function: Callable[..., Any], allowed: Collection[str], label: str) -> None:
        if not callable(function):
            raise InputError(f"{label}: {function!r} is neither an expression nor a function")
        self.text = label
        self._function = function
        self._takes_all, self.names = _parameters(function, allowed, label)
        self.digest = function_digest(function)

    def evaluate(self, env: Mapping[str, Value]) -> Value:
        """The value for one configuration, or an array of values for columns of them, see ``Expression``.

        Raises:
            ExpressionError: the function raises, or returns what is no value.
        """
        values = {name: env[name] for name in self.names if not isinstance(env[name], NoValue)}
        columns = [value for value in values.values() if isinstance(value, np.ndarray)]
        if not columns:
            return self._one(values)
        rows = range(len(columns[0]))
        results = [
            self._one(
                {k: v[row] if isinstance(v, np.ndarray) else v for k, v in values.items()},
            )
            for row in rows
        ]
        return np.asarray(results)

    def _one(self, values: Mapping[str, Value]) -> bool | float | str:
        plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in values.items()}
        try:
            result = self._function(plain) if self._takes_all else self._function(**plain)
        except Exception as error:  # a function of the user's may raise anything
            raise ExpressionError(
                f"{self.text} raises {type(error).__name__}: {error} (at {plain})"
            ) from error
        result = result.item() if isinstance(result, np.generic) else result
        if not isinstance(result, bool | int | float | str):
            raise ExpressionError(
                f"{self.text} returns {type(result).__name__}; it must return a boolean, a number or text"
                f" (at {plain})"
            )
        return result

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PythonExpression):
            return NotImplemented
        return (self.text, self.digest) == (other.text, other.digest)

    def __hash__(self) -> int:
        return hash((self.text, self.digest))

    def __reduce__(self) -> tuple[type, tuple[str, ...]]:
        raise TypeError(f"{self.text}: a function of this program does not cross to another process")

    def __repr__(self) -> str:
        return f"PythonExpression({self.text!r})"


def _parameters(
    function: Callable[..., Any], allowed: Collection[str], label: str
) -> tuple[bool, frozenset[str]]:
    """Return (True if a function takes all values as one dict, the names it needs)."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # built in
        return True, frozenset(allowed)
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return False, frozenset(allowed)
    needed = [parameter for parameter in parameters if parameter.default is inspect.Parameter.empty]
    if len(needed) == 1 and needed[0].name not in allowed:
        return True, frozenset(allowed)
    unknown = [
        parameter.name
        for parameter in needed
        if parameter.name not in allowed or parameter.kind not in _BY_NAME
    ]
    if unknown or not needed:
        what = f"has a parameter {unknown[0]!r}" if unknown else "has no parameter"
        raise InputError(
            f"{label}: the function {what}; it takes one dict, or parameters among {', '.join(allowed)}"
        )
    return False, frozenset(parameter.name for parameter in parameters if parameter.name in allowed)
