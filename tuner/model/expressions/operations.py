"""Arithmetic, operators and functions of expressions, for scalars and for NumPy arrays.

Scalars are bool, int, float, complex and str of Python; arrays are bool, int64, float64, complex128, str, or
object where no narrower type holds all values exactly. Arrays take the NumPy function only when neither
overflow nor rounding can make it differ from the Python function; otherwise every element goes through that.
"""

import functools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

MAX_INT = 2**63 - 1
EXACT_FLOAT = 2**53  # whole numbers up to here are exact in float64

Value = Any  # a scalar or an array
PLAIN = frozenset({bool, int, float, str})
_KINDS = {bool: "b", int: "i", float: "f", str: "U", complex: "c"}
_MERGED = {"bb": np.bool_, "ii": np.int64, "ff": np.float64, "cc": np.complex128}  # by the kinds of two parts


class TroubleError(Exception):
    """Error in an expression, without its text; never leaves ``Expression``."""


class MissingError(TroubleError):
    """A name stands for ``NoValue``."""


@dataclass(frozen=True)
class NoValue:
    """Stands for a value in an environment; an expression that comes to it fails and says why."""

    reason: str


@dataclass(frozen=True)
class Operation:
    """An operation on two values.

    Attributes:
        word: the operator, for messages.
        scalar: what the operation means.
        vector: the same on arrays; None where NumPy may round another way.
        safe: for the largest magnitudes of two whole operands: ``vector`` cannot overflow or round; None
            where it never does.
        divides: the second operand must not be zero.
        takes_text: two texts may be compared.
        picks: the result is one of the operands, with its type.
    """

    word: str
    scalar: Callable[[Any, Any], Any]
    vector: Callable[[Any, Any], Any] | None = None
    safe: Callable[[int, int], bool] | None = None
    divides: bool = False
    takes_text: bool = False
    picks: bool = False


@dataclass(frozen=True)
class Function:
    """A function of one number: what it means, and the same on arrays of the kinds listed."""

    word: str
    scalar: Callable[[Any], Any]
    vector: Callable[[Any], Any] | None = None
    kinds: str = "if"


def normal(value: Value, name: str) -> Value:
    """A value of the environment as a scalar of Python, or as an array of one of the working types."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        kind = value.dtype.kind
        if kind in "bUO":
            return value
        if kind in "iu" and (value.dtype != np.uint64 or _magnitude(value) <= MAX_INT):
            return value.astype(np.int64, copy=False)
        if kind in "fc":
            return value.astype(np.float64 if kind == "f" else np.complex128, copy=False)
    elif isinstance(value, bool | int | float | str | complex):
        return value
    elif isinstance(value, NoValue):
        raise MissingError(f"{name} has no value here: {value.reason}")
    raise TroubleError(f"{name} has no value an expression can use ({type(value).__name__})")


def finite(value: Value) -> Value:
    """The scalar itself, when it is finite and, if whole, has at most 63 bits."""
    if isinstance(value, int):
        if -MAX_INT <= value <= MAX_INT:
            return value
        raise TroubleError("a whole number has more than 63 bits")
    if not math.isfinite(abs(value)):
        raise TroubleError("a result is not finite")
    return value


def truth(value: Value) -> Value:
    """A bool, or an array of them: numbers are true when they are not zero."""
    if value is True or value is False:
        return value
    if kind_of(value) == "U":
        raise TroubleError("text is not a condition; compare it with == or !=")
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "O":
            value = np.frompyfunc(truth, 1, 1)(value)
        return value.astype(np.bool_, copy=False)
    return bool(value)


def inverted(value: Value) -> Value:
    """``not`` of what ``truth`` returned."""
    return ~value if isinstance(value, np.ndarray) else not value


def merged(where: np.ndarray[Any, Any], body: Value, orelse: Value) -> Value:
    """An array with ``body`` where the mask is true and ``orelse`` elsewhere, each as long as its part."""
    dtype = _MERGED.get(kind_of(body) + kind_of(orelse))
    result = np.empty(where.shape, dtype=dtype or object)
    for mask, part in ((where, body), (~where, orelse)):
        result[mask] = part.astype(result.dtype) if isinstance(part, np.ndarray) else part
    return result if dtype else _narrowed(result)


def _narrowed(boxed: np.ndarray[Any, Any]) -> Value:
    """An array of Python objects in the narrowest type that holds all of them exactly."""
    kinds = {type(item) for item in boxed.flat}
    for kind, dtype in ((bool, np.bool_), (int, np.int64), (float, np.float64), (complex, np.complex128)):
        if kinds == {kind}:
            return boxed.astype(dtype)
    return boxed.astype(np.str_) if kinds == {str} else boxed


def kind_of(value: Value) -> str:
    """The kind letter of NumPy for scalars and arrays alike."""
    if isinstance(value, np.ndarray):
        kind: str = value.dtype.kind
        return kind
    return _KINDS[type(value)]


def _magnitude(value: Value) -> int:
    """Largest absolute value of a whole scalar or array, rounded down where it holds fractions."""
    if not isinstance(value, np.ndarray):
        return abs(int(value))
    return max(abs(int(value.max())), abs(int(value.min()))) if value.size else 0


def _is_whole(value: Value) -> bool:
    return value.dtype.kind == "i" if isinstance(value, np.ndarray) else type(value) is int


def _numbers(value: Value) -> Value:
    """Booleans count as 0 and 1 in arithmetic, as they do in Python."""
    if isinstance(value, np.ndarray):
        return value.astype(np.int64) if value.dtype.kind == "b" else value
    return int(value) if isinstance(value, bool) else value


def apply(op: Operation, left: Value, right: Value) -> Value:
    """The operation on two scalars, or element by element.

    Raises:
        TroubleError: the operation has no result for these values.
    """
    if type(left) is int and type(right) is int:  # nearly always
        return _apply_numbers(op, left, right)
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return _apply_arrays(op, left, right)
    return _apply_scalars(op, left, right)


def apply_unary(function: Function, value: Value) -> Value:
    """The function of a scalar, or of every element.

    Raises:
        TroubleError: the function has no result for this value.
    """
    if not isinstance(value, np.ndarray):
        return _apply_scalar_function(function, value)
    value = _numbers(value)
    if function.vector is None or value.dtype.kind not in function.kinds:
        return _each(lambda item: _apply_scalar_function(function, item), value)
    with np.errstate(all="ignore"):
        result = function.vector(value)
    return _all_finite(result)


def _apply_scalar_function(function: Function, value: Value) -> Value:
    if isinstance(value, str):
        raise TroubleError(f"{function.word} of text; text can only be compared")
    try:
        return finite(function.scalar(value))
    except (OverflowError, TypeError, ValueError):
        raise TroubleError(f"{function.word}({value}) has no result") from None


def _apply_scalars(op: Operation, left: Value, right: Value) -> Value:
    left_text, right_text = isinstance(left, str), isinstance(right, str)
    if left_text or right_text:
        _check_text(op, same=left_text and right_text)
        return op.scalar(left, right)
    return _apply_numbers(op, left, right)


def _apply_numbers(op: Operation, left: Value, right: Value) -> Value:
    try:
        result = op.scalar(left, right)
    except ZeroDivisionError:
        raise TroubleError(f"division by zero in {left} {op.word} {right}") from None
    except (OverflowError, TypeError, ValueError):
        raise TroubleError(f"{left} {op.word} {right} has no result") from None
    return finite(result)


def _check_text(op: Operation, *, same: bool) -> None:
    if not op.takes_text:
        raise TroubleError(f"text in {op.word}; text can only be compared with ==, != and in")
    if not same:
        raise TroubleError(f"{op.word} compares text with a number")


def _apply_arrays(op: Operation, left: Value, right: Value) -> Value:
    kinds = kind_of(left) + kind_of(right)
    if "U" in kinds and "O" not in kinds:
        _check_text(op, same=kinds == "UU")
    if op.vector is not None and "O" not in kinds and _is_exact(op, left, right, kinds):
        return _vectorised(op, op.vector, left, right)
    if not isinstance(right, np.ndarray):
        return _each(lambda item: _apply_scalars(op, item, right), left)
    if not isinstance(left, np.ndarray):
        return _each(lambda item: _apply_scalars(op, left, item), right)
    if "O" not in kinds:
        return _each_pair(lambda a, b: _apply_scalars(op, a, b), left, right)
    boxed = np.frompyfunc(lambda a, b: _apply_scalars(op, a, b), 2, 1)(
        left.astype(object), right.astype(object)
    )
    return _narrowed(np.asarray(boxed, dtype=object))


def _each(function: Callable[[Any], Any], values: np.ndarray[Any, Any]) -> Value:
    """A Python function of every element, called once for each value that occurs."""
    if values.dtype.kind == "O":
        return _narrowed(np.asarray(np.frompyfunc(function, 1, 1)(values), dtype=object))
    distinct, where = np.unique(values, return_inverse=True)
    results = np.empty(len(distinct), dtype=object)
    results[:] = [function(item) for item in distinct.tolist()]
    return _narrowed(results)[where.reshape(values.shape)]


def _each_pair(
    function: Callable[[Any, Any], Any], left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]
) -> Value:
    """A Python function of every two elements, called once for each pair that occurs."""
    left, right = np.broadcast_arrays(left, right)
    lefts, at_left = np.unique(left.ravel(), return_inverse=True)
    rights, at_right = np.unique(right.ravel(), return_inverse=True)
    pairs, where = np.unique(at_left * len(rights) + at_right, return_inverse=True)
    results = np.empty(len(pairs), dtype=object)
    each = np.divmod(pairs, max(1, len(rights)))
    results[:] = list(map(function, lefts[each[0]].tolist(), rights[each[1]].tolist()))
    return _narrowed(results)[where.reshape(left.shape)]


def _is_exact(op: Operation, left: Value, right: Value, kinds: str) -> bool:
    if op.picks and kinds[0] != kinds[1]:
        return False
    if set(kinds) <= {"f", "c", "U"}:
        return True
    if op.safe is None and set(kinds) <= {"b", "i"}:
        return True
    whole = [_magnitude(v) if k in "bi" else 0 for v, k in zip((left, right), kinds, strict=True)]
    return op.safe(*whole) if op.safe and set(kinds) <= {"b", "i"} else max(whole) <= EXACT_FLOAT


def _vectorised(op: Operation, vector: Callable[[Any, Any], Any], left: Value, right: Value) -> Value:
    left, right = _numbers(left), _numbers(right)
    if op.divides and not np.all(right):
        raise TroubleError(f"division by zero in {op.word}")
    try:
        if _is_whole(left) and _is_whole(right):
            result = vector(left, right)  # warns of nothing: no operand to divide by is zero
        else:
            with np.errstate(all="ignore"):
                result = vector(left, right)
    except (TypeError, ValueError):  # no order of complex numbers; shapes that do not broadcast
        raise TroubleError(f"{op.word} has no result for these arrays") from None
    return _all_finite(result)


def _all_finite(result: np.ndarray[Any, Any]) -> Value:
    if result.dtype.kind in "fc" and not np.isfinite(result).all():
        raise TroubleError("a result is not finite")
    return result


MAX_EXPONENT = 64
MAX_FACTORED = 2**24  # numbers that are factored


def _power(base: Value, exponent: Value) -> Value:
    if abs(exponent) > MAX_EXPONENT:
        raise TroubleError(f"exponent {exponent} is beyond {MAX_EXPONENT}")
    result = base**exponent
    if isinstance(result, complex) and not isinstance(base, complex):
        raise TroubleError(f"{base} ** {exponent} has no result")
    return result


def _ceil_div(left: Value, right: Value) -> Value:
    if not (isinstance(left, int) and isinstance(right, int)):
        raise TroubleError(f"ceil_div({left}, {right}) takes whole numbers")
    return -(-left // right)


def _gcd(left: Value, right: Value) -> Value:
    if not (isinstance(left, int) and isinstance(right, int)):
        raise TroubleError(f"gcd({left}, {right}) takes whole numbers")
    return math.gcd(left, right)


def _balanced_factor(number: Value, count: Value) -> Value:
    whole = isinstance(number, int) and isinstance(count, int)
    if not whole or not 1 <= number <= MAX_FACTORED or not 1 <= count <= MAX_EXPONENT:
        raise TroubleError(
            f"balanced_factor({number}, {count}) takes a whole number up to {MAX_FACTORED}"
            f" and how many factors, up to {MAX_EXPONENT}"
        )
    return _largest_factor(int(number), int(count))


@functools.lru_cache(maxsize=2**16)  # rules ask the same of many configurations
def _largest_factor(number: int, count: int) -> int:
    """The largest of ``count`` factors of a number, where it is as small as it can be."""
    if count == 1 or number == 1:
        return number
    low = (d for d in range(1, math.isqrt(number) + 1) if number % d == 0)
    divisors = {d for pair in ((d, number // d) for d in low) for d in pair}
    least = (d for d in sorted(divisors) if d**count >= number)
    return next(d for d in least if _largest_factor(number // d, count - 1) <= d)


def _index_of(order: Value, item: Value) -> Value:
    """Return the index of an item in a permutation, a text of items separated by commas."""
    items = order.split(",") if isinstance(order, str) else []
    if item not in items:
        raise TroubleError(f"index_of: {item!r} is no item of {order!r}")
    return items.index(item)


def _ceil_div_arrays(left: Value, right: Value) -> Value:
    if kind_of(left) != "i" or kind_of(right) != "i":
        raise TroubleError("ceil_div takes whole numbers")
    return -(-left // right)


def _log2(value: Value) -> Value:
    """A whole number for powers of two, so that it can stand in an entry or a shape."""
    if is_pow2(value):
        return int(value).bit_length() - 1
    return math.log2(value)


def is_pow2(value: Value) -> bool:
    """True for 1, 2, 4, 8, ...; False for every other number."""
    whole = int(value)
    return whole == value and whole > 0 and whole & (whole - 1) == 0


def _next_pow2(value: Value) -> Value:
    """The smallest power of two that is not below the value; 1 for all below."""
    return 1 if value <= 1 else 1 << (math.ceil(value) - 1).bit_length()


def _power_arrays(base: Value, exponent: Value) -> Value:
    if np.any(np.abs(exponent) > MAX_EXPONENT):
        raise TroubleError(f"an exponent is beyond {MAX_EXPONENT}")
    return np.power(base, exponent)


def _whole(rounding: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def rounded(values: Value) -> Value:
        if values.dtype.kind == "i":
            return values
        if not np.all(np.abs(values) < MAX_INT):  # false for what is not finite, too
            raise TroubleError("a whole number has more than 63 bits")
        return rounding(values).astype(np.int64)

    return rounded


EQUAL = Operation("==", operator.eq, np.equal, takes_text=True)
OPERATIONS: dict[str, Operation] = {
    "Add": Operation("+", operator.add, np.add, lambda a, b: a + b <= MAX_INT),
    "Sub": Operation("-", operator.sub, np.subtract, lambda a, b: a + b <= MAX_INT),
    "Mult": Operation("*", operator.mul, np.multiply, lambda a, b: a * b <= MAX_INT),
    "Div": Operation(
        "/", operator.truediv, np.true_divide, lambda a, b: max(a, b) <= EXACT_FLOAT, divides=True
    ),
    "FloorDiv": Operation("//", operator.floordiv, np.floor_divide, divides=True),
    "Mod": Operation("%", operator.mod, np.mod, divides=True),
    "Pow": Operation("**", _power, _power_arrays, lambda _a, _b: False),  # whole powers one by one
    "Eq": EQUAL,
    "NotEq": Operation("!=", operator.ne, np.not_equal, takes_text=True),
    "Lt": Operation("<", operator.lt, np.less),
    "LtE": Operation("<=", operator.le, np.less_equal),
    "Gt": Operation(">", operator.gt, np.greater),
    "GtE": Operation(">=", operator.ge, np.greater_equal),
}
BINARY_FUNCTIONS: dict[str, Operation] = {
    "ceil_div": Operation("ceil_div", _ceil_div, _ceil_div_arrays, divides=True),
    "gcd": Operation("gcd", _gcd, np.gcd),
    "balanced_factor": Operation("balanced_factor", _balanced_factor),
    "index_of": Operation("index_of", _index_of, takes_text=True),
    "min": Operation("min", min, np.minimum, picks=True),
    "max": Operation("max", max, np.maximum, picks=True),
}
UNARY_FUNCTIONS: dict[str, Function] = {
    "abs": Function("abs", abs, np.abs, "ifc"),
    "log2": Function("log2", _log2, np.log2, "f"),
    "ceil": Function("ceil", math.ceil, _whole(np.ceil)),
    "floor": Function("floor", math.floor, _whole(np.floor)),
    "int": Function("int", int, _whole(np.trunc)),
    "is_pow2": Function("is_pow2", is_pow2),
    "next_pow2": Function("next_pow2", _next_pow2),
}
