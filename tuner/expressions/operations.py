"""The operators and functions of expressions, for scalars and for NumPy arrays."""

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tuner.expressions.arithmetic import (
    EXACT_FLOAT,
    MAX_INT,
    Function,
    Operation,
    TroubleError,
    Value,
    kind_of,
)

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
    """Where an item stands in a permutation, a text of items between commas."""
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
