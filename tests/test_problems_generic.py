"""Problems of user kernels, planes, columns and convolutions: right answers pass, and wrong ones fail."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest
from examples import FEW
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tuner.model.errors import KernelFileError, UncheckableError
from tuner.model.plan import Buffer, ProblemSpec
from tuner.problems.base import Norm, Problem, agreement, poison, sample_rows, take_rows
from tuner.problems.lookup import problem_for

Rows = dict[str, NDArray[Any]]


def verdicts(problem: Problem, inputs: Rows, outputs: Rows) -> list[bool]:
    sizes = {"N": 30}
    return [problem.compare(inputs, outputs, sizes).ok, problem.residual(np, inputs, outputs, sizes).ok]


MIXED = (
    Buffer("a", "float32", (40, 30), "in"),
    Buffer("k", "int32", (40, 30), "in"),
    Buffer("w", "float32", (30,), "in"),
    Buffer("out", "float32", (40, 30), "out"),
    Buffer("total", "int32", (40, 30), "out"),
)
STATED = (("out", "a * w + N"), ("total", "2 * k"))


def mixed() -> tuple[Problem, Rows, Rows]:
    problem = problem_for(ProblemSpec("expression", reference=STATED))
    inputs = problem.inputs(np, np.random.default_rng(5), MIXED, {"N": 30})
    return problem, inputs, {"out": inputs["a"] * inputs["w"] + np.float32(30), "total": 2 * inputs["k"]}


def test_expression_judges_every_output_element_by_element() -> None:
    """Outputs that follow their expressions pass, with sizes and shared arrays in them."""
    problem, inputs, outputs = mixed()
    assert not problem.needs_baseline
    assert problem.residual(np, inputs, outputs, {"N": 30}).ok
    rows = sample_rows(40, 0)
    assert problem.compare(take_rows(inputs, rows, 2), take_rows(outputs, rows, 2), {"N": 30}).ok


@FEW
@given(st.sampled_from(["out", "total"]), st.integers(0, 39), st.integers(0, 29))
def test_expression_finds_one_wrong_element(name: str, row: int, column: int) -> None:
    """One element of one output that is off by one fails, and is named."""
    problem, inputs, outputs = mixed()
    outputs[name][row, column] += 1
    for deviation in (
        problem.compare(inputs, outputs, {"N": 30}),
        problem.residual(np, inputs, outputs, {"N": 30}),
    ):
        assert (deviation.ok, deviation.row) == (False, row)
        assert name in str(deviation)


@pytest.mark.parametrize("name", ["out", "total"])
def test_expression_finds_an_unwritten_output(name: str) -> None:
    """An output that keeps its poison fails, real or whole."""
    problem, inputs, outputs = mixed()
    poison(outputs[name][7])
    assert verdicts(problem, inputs, outputs) == [False, False]


def test_expression_must_state_every_output() -> None:
    """An output without an expression, or an expression without output, is refused."""
    problem = problem_for(ProblemSpec("expression", reference=STATED[:1]))
    with pytest.raises(KernelFileError, match=r"'out'.*'total'"):
        problem.inputs(np, np.random.default_rng(0), MIXED, {})


def test_expression_with_an_unknown_name_is_an_input_error() -> None:
    """A reference that names neither a buffer nor a size is the kernel file's fault."""
    problem = problem_for(ProblemSpec("expression", reference=(("out", "a + q"),)))
    with pytest.raises(UncheckableError, match="'q'"):
        problem.compare({"a": np.ones((2, 2), np.float32)}, {"out": np.ones((2, 2), np.float32)}, {})


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "float16", "int32", "uint8", "bool"])
def test_user_inputs_follow_their_dtype(dtype: str) -> None:
    """Real and complex parts fill [-1, 1), whole numbers 0 to 15, booleans take both values."""
    problem = problem_for(ProblemSpec("consistent"))
    given = (Buffer("x", dtype, (50, 40), "in"), Buffer("y", dtype, (50, 40), "out"))
    x = problem.inputs(np, np.random.default_rng(0), given, {})["x"]
    low, high = {"b": (0, 1), "i": (0, 15), "u": (0, 15)}.get(x.dtype.kind, (-1, 1))
    assert x.dtype.name == dtype
    for part in (x.real, x.imag) if x.dtype.kind == "c" else (x,):
        assert float(part.min()) == pytest.approx(low, abs=0.02)
        assert float(part.max()) == pytest.approx(high, abs=0.02)


def test_consistent_needs_another_run() -> None:
    """Without a reference, only agreement with the outputs of another run tells right from wrong."""
    problem = problem_for(ProblemSpec("consistent"))
    y, n = np.random.default_rng(0).random((30, 20), np.float32), np.arange(30)
    assert problem.needs_baseline
    assert problem.norm(y) is Norm.ELEMENT
    assert agreement(y, y * np.float32(1 + 1e-6), None, "y").ok
    assert agreement(n, n.copy(), None, "n").ok
    changed = n.copy()
    changed[11] += 1
    deviation = agreement(n, changed, None, "n")
    assert (deviation.ok, deviation.row) == (False, 11)
    assert (problem.allowed(y), problem.allowed(n)) == (100 * 2.0**-24, 0.0)


def test_consistent_finds_poison() -> None:
    """NaN never agrees, not even with itself, and an incomplete baseline is told by itself."""
    problem = problem_for(ProblemSpec("consistent"))
    whole, holed = {"y": np.ones((4, 8), np.float32)}, {"y": np.ones((4, 8), np.float32)}
    poison(holed["y"][2])
    for reference, answer in ((whole, holed), (holed, whole), (holed, holed)):
        assert not agreement(reference["y"], answer["y"], None, "y").ok
    assert verdicts(problem, {}, whole) == [True, True]
    assert verdicts(problem, {}, holed) == [False, False]


def test_consistent_without_output_is_refused() -> None:
    """A kernel that writes nothing cannot be checked."""
    with pytest.raises(KernelFileError, match="role 'out'"):
        problem_for(ProblemSpec("consistent")).validate(MIXED[:3])


@pytest.mark.parametrize(
    ("shape", "fits"),
    [
        ((40, 30), True),
        ((30,), True),
        ((1,), True),
        ((40, 1), True),
        ((39, 30), False),
        ((1, 30), False),
        ((40, 29), False),
        ((40,), False),
        ((2, 40, 30), False),
    ],
)
def test_expression_takes_inputs_of_rows_or_for_every_row(shape: tuple[int, ...], fits: bool) -> None:
    """An input has the output's rows or goes with each of them; another is refused with key and shapes."""
    buffers = (Buffer("a", "float32", shape, "in"), Buffer("out", "float32", (40, 30), "out"))
    problem = problem_for(ProblemSpec("expression", reference=(("out", "2 * a"),)))
    if not fits:
        with pytest.raises(KernelFileError, match=r"\[problem.reference\] out: 'a' of shape"):
            problem.validate(buffers)
        return
    problem.validate(buffers)
    inputs = problem.inputs(np, np.random.default_rng(0), buffers, {})
    outputs = {"out": np.broadcast_to(2 * inputs["a"], (40, 30)).copy()}
    assert problem.residual(np, inputs, outputs, {}).ok
    rows = sample_rows(40, 0)
    assert problem.compare(take_rows(inputs, rows, 2), take_rows(outputs, rows, 2), {}).ok


Array: TypeAlias = Any
SHAPES = {"fft-columns": (3, 12, 10), "fft-2d": (3, 12, 12), "fft-convolution": (3, 60)}


def buffers(name: str) -> list[Buffer]:
    """An input, the spectrum of a filter where there is one, and an output."""
    shape = SHAPES[name]
    extra = [Buffer("spectrum", "complex64", shape[1:], "in")] if name == "fft-convolution" else []
    return [Buffer("x", "complex64", shape, "in"), *extra, Buffer("y", "complex64", shape, "out")]


def right(name: str, inputs: dict[str, Array], direction: str) -> Array:
    """By sums over the matrix of the transform, in double precision."""
    x = inputs["x"].astype(np.complex128)
    sign = 1 if direction == "inverse" else -1

    def matrix(n: int, way: int) -> Array:
        whole = np.exp(way * 2j * np.pi * np.outer(np.arange(n), np.arange(n)) / n)
        return whole / n if way > 0 else whole

    if name == "fft-convolution":
        n = x.shape[1]
        return x @ (matrix(n, -1) * inputs["spectrum"]) @ matrix(n, 1)
    found = np.einsum("km,bmn->bkn", matrix(x.shape[1], sign), x)
    return found @ matrix(x.shape[2], sign) if name == "fft-2d" else found


def transposed(y: Array) -> None:
    y[1] = y[1].T.copy() if y.ndim == 3 else y[1, ::-1].copy()


def columns_swapped(y: Array) -> None:
    y[..., [2, 3]] = y[..., [3, 2]]


def one_off(y: Array) -> None:
    y.reshape(len(y), -1)[2, -1] += 0.1 * abs(y[2]).max()


def not_written(y: Array) -> None:
    y.reshape(len(y), -1)[0, 7] = np.nan


CASES = [
    (name, direction)
    for name in SHAPES
    for direction in (("forward", "inverse") if name != "fft-convolution" else ("forward",))
]


@pytest.mark.parametrize("damage", [transposed, columns_swapped, one_off, not_written])
@pytest.mark.parametrize(("name", "direction"), CASES)
def test_right_answers_pass_and_damaged_ones_fail(
    name: str, direction: str, damage: Callable[[Array], None]
) -> None:
    """The answer in single precision passes both checks; swapped, missing and wrong numbers fail both."""
    if name == "fft-columns" and damage is transposed:
        damage = columns_swapped  # its planes are no squares
    problem, sizes = problem_for(ProblemSpec(name)), {"direction": direction}
    inputs = problem.inputs(np, np.random.default_rng(4), buffers(name), sizes)
    answer = right(name, inputs, direction).astype(np.complex64)
    for judge in (problem.compare, lambda *given: problem.residual(np, *given)):
        assert judge(inputs, {"y": answer}, sizes).ok
        wrong = answer.copy()
        damage(wrong)
        assert not judge(inputs, {"y": wrong}, sizes).ok


@pytest.mark.parametrize("name", SHAPES)
def test_arrays_of_another_form_are_refused(name: str) -> None:
    """Buffers without the axes of the problem are refused with those it needs."""
    flat = [Buffer(one.name, one.dtype, (6,), one.role) for one in buffers(name)]
    with pytest.raises(KernelFileError, match=r"needs .* of shape \[batch"):
        problem_for(ProblemSpec(name)).validate(flat)


@pytest.mark.parametrize(("name", "shape"), [("fft-columns", (4000, 2, 5)), ("fft-2d", (4000, 2, 1))])
def test_short_transforms_are_granted_the_rounding_of_the_test(name: str, shape: tuple[int, ...]) -> None:
    """Of transforms of two points in double precision every right answer passes, of thousands."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    y = np.fft.fft(x, axis=1)
    sizes: dict[str, int | str] = {
        "N": 2,
        "W": shape[2],
        "M": 2,
        "direction": "forward",
        "dtype": "complex128",
    }
    assert problem_for(ProblemSpec(name)).residual(np, {"x": x}, {"y": y}, sizes).ok
