"""The scan as a problem: both forms and every type are judged by their own law."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from long_scans import FORMS, OPERATORS, WAYS, scanned_rows
from numpy.typing import NDArray

from tuner.model.errors import KernelFileError
from tuner.model.plan import Buffer, ProblemSpec
from tuner.problems.lookup import problem_for
from tuner.problems.scans import PrefixOperator

SCAN = problem_for(ProblemSpec("scan"))
DTYPES = ("float32", "float64", "int32", "int64", "int8")
Rows = NDArray[Any]

dtypes, forms = st.sampled_from(DTYPES), st.sampled_from(FORMS)
lengths, seeds = st.sampled_from([2, 3, 64, 1000, 8192]), st.integers(0, 2**32 - 1)


def buffers(dtype: str, N: int) -> list[Buffer]:
    return [Buffer("x", dtype, (5, N), "in"), Buffer("y", dtype, (5, N), "out")]


def case(dtype: str, form: str, N: int, seed: int) -> tuple[Rows, Rows]:
    """Inputs and their right answer, element by element in extended precision or the type itself."""
    x = SCAN.inputs(np, np.random.default_rng(seed), buffers(dtype, N), {})["x"]
    sums = np.cumsum(x, axis=1, dtype=np.longdouble if x.dtype.kind == "f" else x.dtype)
    if form == "exclusive":
        sums = np.concatenate([np.zeros_like(sums[:, :1]), sums[:, :-1]], axis=1)
    return x, sums.astype(dtype)


def verdicts(x: Rows, y: Rows, form: str) -> list[bool]:
    sizes = {"form": form}
    return [
        SCAN.compare({"x": x}, {"y": y}, sizes).ok,
        SCAN.residual(np, {"x": x}, {"y": y}, sizes).ok,
    ]


@given(dtypes, forms, lengths, seeds)
def test_right_sums_pass(dtype: str, form: str, N: int, seed: int) -> None:
    """What is right to its type passes both checks, also where whole numbers wrap."""
    assert verdicts(*case(dtype, form, N, seed), form) == [True, True]


@given(dtypes, forms, lengths, seeds, st.data())
def test_one_wrong_sum_fails(dtype: str, form: str, N: int, seed: int, data: st.DataObject) -> None:
    """A sum off by one, or by a hundredth of the row's largest, fails both checks wherever it is."""
    x, y = case(dtype, form, N, seed)
    place = data.draw(st.integers(0, 4)), data.draw(st.integers(0, N - 1))
    y[place] += 1 if y.dtype.kind == "i" else 1e-2 * max(abs(y[place[0]]).max(), abs(x).max())
    assert verdicts(x, y, form) == [False, False]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
def test_the_other_form_fails(dtype: str, form: str) -> None:
    """Sums that start one element early or late are wrong."""
    (other,) = set(FORMS) - {form}
    assert verdicts(*case(dtype, other, 64, 1), form) == [False, False]


def test_whole_inputs_wrap_and_use_every_bit() -> None:
    """Inputs of int32 cover its range to the last bit, so that sums leave it."""
    x = SCAN.inputs(np, np.random.default_rng(0), buffers("int32", 8192), {})["x"]
    assert x.min() < -(2**30)
    assert x.max() > 2**30
    assert 0.45 < (x & 1).mean() < 0.55
    assert abs(np.cumsum(x.astype(np.int64), axis=1)).max() > 2**31


def test_an_unknown_form_is_not_judged() -> None:
    """A form the problem does not know is an error, and no inclusive one."""
    with pytest.raises(
        KernelFileError, match=r"\[problem.sizes\] form: 'upwards' is neither 'inclusive' nor"
    ):
        verdicts(*case("float32", "inclusive", 64, 1), "upwards")


@pytest.mark.parametrize("made", ["float32", "uint32", "complex64"])
def test_types_that_do_not_fit_each_other_are_refused(made: str) -> None:
    """Whole numbers are summed to signed whole numbers only."""
    given_, made_ = Buffer("x", "int32", (5, 64), "in"), Buffer("y", made, (5, 64), "out")
    with pytest.raises(KernelFileError, match="both real, or both signed whole numbers"):
        SCAN.validate([given_, made_])


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int64", "uint32", "complex64"])
def test_every_operator_is_judged(operator: str, dtype: str) -> None:
    """By any operator, in any form and direction, what is right passes and one wrong value fails.

    Rows are longer than the pieces that checks go by.
    """
    for form, way in itertools.product(FORMS, WAYS):
        sizes = {"form": form, "operator": operator, "direction": way}
        given_ = [Buffer("x", dtype, (2, 40_001), "in"), Buffer("y", dtype, (2, 40_001), "out")]
        x = SCAN.inputs(np, np.random.default_rng(3), given_, sizes)["x"]
        y = np.ascontiguousarray(scanned_rows(x, operator, form, way).astype(dtype))
        assert SCAN.compare({"x": x}, {"y": y}, sizes).ok
        assert SCAN.residual(np, {"x": x}, {"y": y}, sizes).ok
        y[1, 20_000] = 1 - y[1, 20_000] if operator in ("and", "or", "xor") else y[1, 20_000] + 1
        assert not SCAN.compare({"x": x}, {"y": y}, sizes).ok
        assert not SCAN.residual(np, {"x": x}, {"y": y}, sizes).ok


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("dtype", ["float32", "int32", "uint32", "complex64"])
def test_what_an_exclusive_scan_begins_with_changes_nothing(operator: str, dtype: str) -> None:
    """The neutral element leaves whatever it is joined with as it is."""
    x = np.array((0, 1) if operator in ("and", "or", "xor") else (1, 2, 100), dtype)
    rule = PrefixOperator(operator)
    neutral = np.full(len(x), rule.neutral(x.dtype), dtype)
    assert (rule.join(np, neutral, x) == x).all()
    assert (rule.join(np, x, neutral) == x).all()


def test_long_sums_are_allowed_what_parts_lose() -> None:
    """The allowance stops to grow with a row; that of products does not."""
    lengths_ = (2**14, 2**24)
    for operator, grows in (("sum", False), ("product", True)):
        scan = SCAN.at({"operator": operator})
        one, other = (scan.allowed(np.broadcast_to(np.float32(0), (1, N))) for N in lengths_)
        assert (other > one) is grows


def test_an_unknown_operator_is_not_judged() -> None:
    """An operator the problem does not know is an error, and no sum."""
    with pytest.raises(KernelFileError, match=r"\[problem.sizes\] operator: 'mean' is neither 'sum' nor"):
        SCAN.at({"operator": "mean"})
