"""The language of kernel files: what it computes, what it refuses, and that it cannot be abused."""

import pickle
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tuner.kernel_files.formulas import (
    MAX_CALLS,
    Formula,
    Location,
    NamedFunctions,
    is_call,
    named,
    with_derived,
)
from tuner.model.errors import ExpressionError, KernelFileError
from tuner.model.expressions.callables import Expression, is_free_name
from tuner.model.expressions.parser import FUNCTIONS, MAX_LENGTH

NAMES = ("a", "b", "c")


def numbers() -> st.SearchStrategy[str]:
    """Texts of numeric expressions over a, b and c, with operations that can fail among them."""
    leaves = st.one_of(st.sampled_from(NAMES), st.integers(0, 40).map(str), st.just("1.5"))
    return st.recursive(leaves, _extended, max_leaves=8)


def _extended(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = st.sampled_from(["+", "-", "*", "/", "//", "%", "<", "==", "and", "or"])
    calls = st.sampled_from(["min", "max", "ceil_div", "gcd"])
    single = st.sampled_from(
        [
            *("-{}", "not {}", "abs({})", "floor({})", "ceil({})", "log2({})", "is_pow2({})"),
            "next_pow2({})",
        ]
    )
    return st.one_of(
        st.tuples(inner, operators, inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(calls, inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
        st.tuples(single, inner).map(lambda t: f"({t[0].format(t[1])})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} < {t[1]} <= {t[2]})"),
    )


def outcome(expression: Expression, env: dict[str, Any]) -> Any:
    try:
        return expression.evaluate(env)
    except ExpressionError:
        return ExpressionError


@given(numbers(), st.lists(st.tuples(*[st.integers(-9, 70)] * 3), min_size=1, max_size=6))
def test_arrays_give_what_scalars_give(text: str, rows: list[tuple[int, int, int]]) -> None:
    """An expression over columns equals the same expression row by row, and fails when a row fails."""
    expression = Expression(text)
    by_row = [outcome(expression, dict(zip(NAMES, row, strict=True))) for row in rows]
    columns = dict(zip(NAMES, np.array(rows, dtype=np.int16).T, strict=True))
    together = outcome(expression, columns)

    if ExpressionError in by_row:
        assert together is ExpressionError
    else:
        assert together is not ExpressionError
        assert np.broadcast_to(together, len(rows)).tolist() == by_row


@given(st.integers(-(2**63) + 1, 2**63 - 1), st.integers(-(2**63) + 1, 2**63 - 1))
def test_whole_numbers_are_exact_or_refused(left: int, right: int) -> None:
    """Products, sums and differences in arrays are exact up to 63 bits and never wrap around."""
    for operator, exact in (("*", left * right), ("+", left + right), ("-", left - right)):
        got = outcome(Expression(f"a {operator} b"), {"a": np.array([left]), "b": np.array([right])})
        if abs(exact) > 2**63 - 1:
            assert got is ExpressionError
        else:
            assert got.tolist() == [exact]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("ceil_div(7, 2)", 4),
        ("gcd(12, 18) + gcd(0, 7) + gcd(-4, 6)", 15),
        ("next_pow2(1) + next_pow2(5) + next_pow2(64) + next_pow2(64.5) + next_pow2(-3)", 202),
        ("balanced_factor(1000, 3) + balanced_factor(210, 2) + balanced_factor(7, 3)", 32),
        ("balanced_factor(8192, 4) + balanced_factor(5040, 1) + balanced_factor(1, 2)", 5057),
        ("ceil_div(batch * N, P * 256)", 65536),
        ("2**26 // N", 65536),
        ("-P ** 2", -16),
        ("-7 // 2", -4),
        ("-7 % 4", 1),
        ("7 / 2", 3.5),
        ("log2(N)", 10),
        ("ceil(log2(100))", 7),
        ("select(shuffle, 0, 4 * N)", 0),
        ("mode == 'fast' and not shuffle", False),
        ("mode in ('slow', 'fast')", True),
        ("P not in (1, 2, 3)", True),
        ("1 < P <= 4 != N", True),
        ("1 if false else 2", 2),
        ("N and P", True),
        ("min(N, P, 2)", 2),
        ("int(7 / 2) + floor(-0.5) + ceil(0.5) + abs(-3)", 6),
        ("is_pow2(N) and not is_pow2(0) and not is_pow2(6)", True),
        ("true + true", 2),
    ],
)
def test_values(text: str, value: object) -> None:
    """Each operator and function gives the value and the type that its definition says."""
    env = {"N": 1024, "P": 4, "batch": 65536, "shuffle": True, "mode": "fast"}
    got = Expression(text).evaluate(env)
    assert got == value
    assert type(got) is type(value)


def test_the_untaken_side_is_not_evaluated() -> None:
    """A condition guards its branches, element by element in arrays as well."""
    columns = {"P": np.array([0, 1, 2], dtype=np.int16)}
    assert Expression("8 // P if P > 0 else -1").evaluate(columns).tolist() == [-1, 8, 4]
    assert Expression("P > 0 and 8 // P > 4").evaluate(columns).tolist() == [False, True, False]
    assert Expression("P == 0 or 8 // P > 4").evaluate(columns).tolist() == [True, True, False]
    assert Expression("select(P > 0, 8 // P, 'none')").evaluate(columns).tolist() == ["none", 8, 4]


def test_text_columns_are_compared() -> None:
    """Text-valued tunables work with ==, != and in, alone or as columns."""
    columns = {"mode": np.array(["fast", "slow", "off"])}
    assert Expression("mode in ('fast', 'off')").evaluate(columns).tolist() == [True, False, True]
    assert Expression("mode != 'fast'").evaluate(columns).tolist() == [False, True, True]


def test_numpy_scalars_and_float_arrays_are_values() -> None:
    """NumPy scalars count as Python ones; arrays are computed in float64 and complex128."""
    assert Expression("a + 1").evaluate({"a": np.int16(3)}) == 4
    assert type(Expression("a").evaluate({"a": np.float32(0.5)})) is float
    assert Expression("a * b ** 2").evaluate({"a": 2.0, "b": np.ones((2, 3), np.float32)}).dtype == np.float64
    assert Expression("abs(a * a)").evaluate({"a": np.array([1j], np.complex64)}).tolist() == [1.0]


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ("P.real", "attribute access is not allowed"),
        ("P[0]", "indexing is not allowed"),
        ("(lambda: 1)()", "is not allowed; functions:"),
        ("__import__('os')", "call of __import__ is not allowed"),
        ("open('x')", "functions: ceil_div"),
        ("loge(P)", "did you mean 'log2'"),
        ("[x for x in P]", "a comprehension is not allowed"),
        ("(P := 3)", "assignment is not allowed"),
        ("(1, 2)", "a tuple outside of 'in"),
        ("f'{P}'", "a formatted string is not allowed"),
        ("b'x'", "b'x' is not allowed"),
        ("None", "None is not allowed"),
        ("1j", "1j is not allowed"),
        ("P & 1", "operator BitAnd is not allowed"),
        ("~P", "operator ~ is not allowed"),
        ("P is 1", "comparison Is is not allowed"),
        ("P in N", "needs a list of values"),
        ("min", "min is a function"),
        ("min(1)", "min takes 2 or more values"),
        ("log2(1, 2)", "log2 takes 1 values"),
        ("max(1, b=2)", "max takes 2 or more"),
        ("P +", "not an expression"),
        ("", "not an expression"),
        ("\0", "not an expression"),
        ("P; N", "not an expression"),
        ("1" * 400, "more than 63 bits"),
        ("P + " * 300 + "P", "1201 characters, at most 1000"),
        ("-" * 200 + "P", "nested more than 60 levels"),
    ],
)
def test_what_is_not_in_the_language(text: str, trouble: str) -> None:
    """Anything but the allowed nodes is refused when the expression is read, by its word."""
    with pytest.raises(ExpressionError) as error:
        Expression(text)
    assert trouble in str(error.value)


@pytest.mark.parametrize("text", ["P.real", "None", "~P", "P is 4"])
def test_a_refusal_names_every_function(text: str) -> None:
    """What the language is made of is told with all its functions."""
    with pytest.raises(ExpressionError) as error:
        Expression(text)
    assert str(error.value).endswith(f"and {' '.join(FUNCTIONS)}")


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ("N / (P - 4)", "division by zero in 1024 / 0"),
        ("N % 0", "division by zero"),
        ("M + 1", "unknown name 'M' (known: N, P, mode)"),
        ("mod == 'x'", "did you mean 'mode'"),
        ("9 ** 9 ** 9", "exponent 387420489 is beyond 64"),
        ("10 ** 60", "more than 63 bits"),
        ("(-8) ** 0.5", "has no result"),
        ("1e308 * 10", "not finite"),
        ("log2(0)", "log2(0) has no result"),
        ("mode * 1000", "text in *"),
        ("mode == 1", "compares text with a number"),
        ("mode and P", "text is not a condition"),
        ("abs(mode)", "abs of text"),
        ("ceil_div(N, 1.5)", "takes whole numbers"),
        ("gcd(N, 1.5)", "takes whole numbers"),
        ("balanced_factor(N, 1.5)", "takes a whole number up to 16777216 and how many factors"),
        ("balanced_factor(2**25, P)", "takes a whole number up to 16777216 and how many factors"),
        ("next_pow2(2**62 + 1)", "a whole number has more than 63 bits"),
    ],
)
@pytest.mark.parametrize("columns", [False, True], ids=["scalars", "columns"])
def test_what_has_no_result(text: str, trouble: str, *, columns: bool) -> None:
    """Every failed evaluation quotes the expression and the trouble; in columns the trouble is the same."""
    env: dict[str, Any] = {"N": 1024, "P": 4, "mode": "fast"}
    with pytest.raises(ExpressionError) as error:
        Expression(text).evaluate({k: np.array([v, v]) for k, v in env.items()} if columns else env)
    assert f"expression {text!r}" in str(error.value)
    if not columns:
        assert trouble in str(error.value)


def test_nested_comparisons_cannot_multiply_work() -> None:
    """An operand that is used twice counts twice, so nesting cannot grow time beyond the bound."""
    text = "1"
    for _ in range(25):
        text = f"(0 < {text} < 2)"
    with pytest.raises(ExpressionError, match="more than 2000 operations"):
        Expression(text)


def test_arrays_of_different_shape_are_refused() -> None:
    """Columns that do not belong together end in an error of this package."""
    with pytest.raises(ExpressionError):
        Expression("a + b").evaluate({"a": np.arange(3), "b": np.arange(4)})


def test_names_and_equality() -> None:
    """An expression lists the names it needs, equals one of the same text and survives a pipe."""
    expression = Expression("ceil_div(batch * N, P) if shuffle else min(N, 2)")
    assert expression.names == {"batch", "N", "P", "shuffle"}
    again = pickle.loads(pickle.dumps(expression))  # noqa: S301 - made on this line
    assert again == expression
    assert hash(again) == hash(expression)
    assert again.evaluate({"batch": 3, "N": 4, "P": 5, "shuffle": True}) == 3


def test_names_a_file_may_give() -> None:
    """Words of the language and of Python are not free names."""
    assert is_free_name("P")
    assert not any(is_free_name(name) for name in ("min", "true", "if", "a b", "2x", "é", ""))


# --- named expressions with parameters -----------------------------------------------------------


def named_of(texts: Mapping[str, str]) -> dict[str, Formula]:
    return named(lambda key: Location("some.toml", key), "[derived]", texts, NAMES, NamedFunctions())


@given(numbers(), numbers(), numbers(), st.tuples(*[st.integers(-9, 70)] * 3))
def test_a_call_is_the_expression_with_the_values_in_it(
    body: str, first: str, second: str, row: tuple[int, int, int]
) -> None:
    """Wherever the values of its parameters exist; and so through another function."""
    body = re.sub(r"\b[bc]\b", lambda match: {"b": "x", "c": "y"}[match[0]], body)
    body = f"({body}) if x < y else y"
    env: dict[str, Any] = dict(zip(NAMES, row, strict=True))
    assume(ExpressionError not in (outcome(Expression(first), env), outcome(Expression(second), env)))
    put_in = re.sub(r"\b[xy]\b", lambda match: f"({first if match[0] == 'x' else second})", body)
    assume(len(put_in) <= MAX_LENGTH)
    texts = {"f(x, y)": body, "g(u, v)": "f(v, u) if c == c else u", "z": f"g({second}, {first})"}
    found: Any
    try:
        found = with_derived(env, named_of(texts))["z"]
    except KernelFileError:
        found = ExpressionError
    assert found == outcome(Expression(put_in), env)


def test_a_call_is_evaluated_once() -> None:
    """However often it stands in a table, and so is each of its values."""
    texts = {
        "f(x)": "x * x",
        "p": "f(a + b) + f(a + b) + f( 3)",
        "q": "-f(a + b)",
        "r": "f(f(3))",
        "s": "f(p)",
    }
    formulas = named_of(texts)
    values = with_derived({"a": 1, "b": 2}, formulas)
    assert [values[name] for name in "pqrs"] == [27, -9, 81, 729]
    assert len([name for name in formulas if is_call(name)]) == 5  # a + b, f of it, of 3, of that, and of p
    again = pickle.loads(pickle.dumps(formulas["p"].expression))  # noqa: S301 - made on this line
    assert again.evaluate(values) == 27


@pytest.mark.parametrize("value", ["'x, )' if a == b else 'f(x'", "'x' if b in (a, 2) else ')'", '"x"'])
def test_values_with_texts_and_lists(value: str) -> None:
    """Commas, parentheses and names count only where they belong to the call."""
    values = with_derived({"a": 1, "b": 2}, named_of({"f(x)": "x if x != 'x' else 'x'", "z": f"f({value})"}))
    assert values["z"] == Expression(value).evaluate({"a": 1, "b": 2})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f(1)if a else b", 2),
        ("f(0)and f(2)or b", True),
        ("f(2) in(3,f(a))", True),
        ("-f(-b)*2", 2),
        ("f (\n a,)", 2),
        ("""f(3 if 'i\\'f(a)' == "i'f(a)" else 2)""", 4),
        ("min(" + ",".join(f"f(-{n})" for n in range(100)) + ")", -98),
    ],
)
def test_what_stands_beside_a_call(text: str, expected: int) -> None:
    """Whatever Python takes before and behind a call, with blanks or without, and names of any length."""
    for parameter in ("x", "a_parameter_whose_name_is_long"):
        formulas = named_of({f"f( {parameter} )": f"{parameter} + 1", "z": text})
        assert with_derived({"a": 1, "b": 2}, formulas)["z"] == expected


def test_little_text_cannot_make_many_calls() -> None:
    """Each function calls the one above twice, with other values: doublings end at a limit."""
    texts = {"f0(x)": "x + 1"} | {f"f{n}(x)": f"f{n - 1}(2 * x) + f{n - 1}(2 * x + 1)" for n in range(1, 40)}
    with pytest.raises(KernelFileError, match=f"has more than {MAX_CALLS} calls"):
        named_of(texts)
    with pytest.raises(KernelFileError, match="more than 60 calls in each other"):
        named_of({"f(x)": "x", "z": "f(" * 99 + "a" + ")" * 99})
