"""Problems, of user kernels, too: right answers pass, and every kind of wrong one fails."""

import tracemalloc
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest
from examples import FEW
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tuner.model.errors import KernelFileError, UncheckableError, UnknownNameError
from tuner.model.plan import Buffer, ProblemSpec
from tuner.problems.base import Norm, Problem, agreement, poison, sample_rows, take_rows
from tuner.problems.lookup import NAMES, problem_for
from tuner.problems.tridiagonal import MARGIN, NORM, solve

Rows = dict[str, NDArray[Any]]
BUILT_IN = ("scan", "tridiagonal", "fft")
seeds = st.integers(0, 2**32 - 1)
problem_names = st.sampled_from(BUILT_IN)
lengths = st.sampled_from([2, 3, 64, 100, 512, 4096])


def buffers(name: str, batch: int, N: int) -> list[Buffer]:
    dtype = "complex64" if name == "fft" else "float32"
    inputs = "abcd" if name == "tridiagonal" else "x"
    given = [Buffer(letter, dtype, (batch, N), "in") for letter in inputs]
    return [*given, Buffer("answer", dtype, (batch, N), "out")]


def right_answer(name: str, inputs: Rows) -> Any:
    """The float64 answer rounded to single precision, by other routes than the problems take."""
    if name == "scan":
        return np.cumsum(inputs["x"], axis=1, dtype=np.float64).astype(np.float32)
    if name == "fft":
        N = inputs["x"].shape[1]
        mirrored = np.fft.ifft(inputs["x"].astype(np.complex128), axis=1) * N
        return np.take(mirrored, -np.arange(N) % N, axis=1).astype(np.complex64)
    return thomas(**{key: value.astype(np.float64) for key, value in inputs.items()}).astype(np.float32)


def thomas(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any], d: NDArray[Any]) -> Any:
    c, x = c.copy(), d.copy()
    for i in range(b.shape[1]):
        pivot = b[:, i] - (a[:, i] * c[:, i - 1] if i else 0)
        x[:, i] = (d[:, i] - (a[:, i] * x[:, i - 1] if i else 0)) / pivot
        c[:, i] = c[:, i] / pivot
    for i in range(b.shape[1] - 2, -1, -1):
        x[:, i] -= c[:, i] * x[:, i + 1]
    return x


def case(name: str, seed: int, N: int, batch: int = 5) -> tuple[Problem, Rows, Rows]:
    problem = problem_for(ProblemSpec(name))
    inputs = problem.inputs(np, np.random.default_rng(seed), buffers(name, batch, N), {"N": N})
    return problem, inputs, {"answer": right_answer(name, inputs)}


def verdicts(problem: Problem, inputs: Rows, outputs: Rows) -> list[bool]:
    sizes = {"N": 0}
    return [problem.compare(inputs, outputs, sizes).ok, problem.residual(np, inputs, outputs, sizes).ok]


@given(problem_names, seeds, lengths)
def test_right_answers_pass(name: str, seed: int, N: int) -> None:
    """The answer rounded to the buffers' precision passes both checks, whatever the inputs."""
    assert verdicts(*case(name, seed, N)) == [True, True]


@pytest.mark.parametrize(
    ("name", "solve32"),
    [
        ("scan", lambda x: np.cumsum(x, axis=1, dtype=np.float32)),
        ("tridiagonal", thomas),
    ],
)
def test_serial_single_precision_passes(name: str, solve32: Callable[..., NDArray[Any]]) -> None:
    """A serial solver that rounds every step to single precision is right."""
    problem, inputs, _ = case(name, 1, 4096, batch=64)
    answer = solve32(**inputs)
    assert answer.dtype == np.float32
    assert verdicts(problem, inputs, {"answer": answer}) == [True, True]


@given(problem_names, seeds, lengths, st.data())
def test_one_wrong_element_fails(name: str, seed: int, N: int, data: st.DataObject) -> None:
    """An element off by a hundredth of its row's largest magnitude fails, wherever it is."""
    problem, inputs, outputs = case(name, seed, N)
    row, column = data.draw(st.integers(0, 4)), data.draw(st.integers(0, N - 1))
    answer = outputs["answer"]
    answer[row, column] += 1e-2 * abs(answer[row]).max()
    assert verdicts(problem, inputs, outputs) == [False, False]
    assert problem.compare(inputs, outputs, {}).row == row
    assert problem.residual(np, inputs, outputs, {}).row == row


def swap_problems(answer: NDArray[Any]) -> None:
    answer[[1, 3]] = answer[[3, 1]]


def swap_elements(answer: NDArray[Any]) -> None:
    answer[2, [0, -1]] = answer[2, [-1, 0]]


def leave_out_problem(answer: NDArray[Any]) -> None:
    poison(answer[4])


def zero_problem(answer: NDArray[Any]) -> None:
    answer[0] = 0


def one_nan(answer: NDArray[Any]) -> None:
    answer[3, -1] = np.nan


def one_infinity(answer: NDArray[Any]) -> None:
    answer[3, 0] = np.inf


def huge(answer: NDArray[Any]) -> None:
    answer[1] = 3e38


def repeat_problem(answer: NDArray[Any]) -> None:
    answer[2] = answer[1]


def scale(answer: NDArray[Any]) -> None:
    answer *= np.float32(1.001)


DAMAGES = (
    swap_problems,
    swap_elements,
    leave_out_problem,
    zero_problem,
    one_nan,
    one_infinity,
    huge,
    repeat_problem,
    scale,
)


@pytest.mark.parametrize("damage", DAMAGES)
@FEW
@given(name=problem_names, seed=seeds, N=st.sampled_from([64, 512]))
def test_damaged_answers_fail(damage: Callable[[NDArray[Any]], None], name: str, seed: int, N: int) -> None:
    """Swapped, missing, repeated, scaled and non-finite problems fail both checks."""
    problem, inputs, outputs = case(name, seed, N)
    damage(outputs["answer"])
    assert verdicts(problem, inputs, outputs) == [False, False]


@pytest.mark.parametrize("name", BUILT_IN)
def test_whole_array_check_reaches_every_chunk(name: str) -> None:
    """The residual names a wrong problem that lies beyond the first chunk."""
    problem, inputs, outputs = case(name, 2, 64, batch=20_000)
    assert problem.residual(np, inputs, outputs, {}).ok
    outputs["answer"][17_001, 5] *= 1.5
    deviation = problem.residual(np, inputs, outputs, {})
    assert (deviation.ok, deviation.row) == (False, 17_001)


@pytest.mark.parametrize("name", BUILT_IN)
def test_temporaries_do_not_grow_with_the_batch(name: str) -> None:
    """Making inputs and checking them takes the same extra memory for four times the problems."""

    def extra(batch: int) -> int:
        tracemalloc.start()
        problem = problem_for(ProblemSpec(name))
        inputs = problem.inputs(np, np.random.default_rng(0), buffers(name, batch, 64), {})
        made = sum(array.nbytes for array in inputs.values())
        problem.residual(np, inputs, {"answer": next(iter(inputs.values()))}, {})
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return int(peak - made)

    assert extra(2**16) < 1.1 * extra(2**14)


@given(seeds)
@FEW
def test_tridiagonal_inputs_keep_the_margin_the_bound_needs(seed: int) -> None:
    """Every row is dominant by MARGIN, its norm below NORM, and the diagonal takes both signs."""
    _, inputs, _ = case("tridiagonal", seed, 64)
    a, b, c = (abs(inputs[key].astype(np.float64)) for key in "abc")
    assert (b - a - c).min() > MARGIN - 1e-6
    assert (a + b + c).max() < NORM + 1e-6
    assert not inputs["a"][:, 0].any()
    assert not inputs["c"][:, -1].any()
    assert {1.0, -1.0} == set(np.sign(inputs["b"]).ravel().tolist())


def test_complex_tridiagonal_systems_are_judged_as_real_ones() -> None:
    """Inputs are dominant in every phase, a single-precision solver is right, a wrong number is not."""
    wide = [Buffer(name, "complex64", (8, 300), "in") for name in "abcd"]
    problem = problem_for(ProblemSpec("tridiagonal"))
    inputs = problem.inputs(
        np, np.random.default_rng(5), [*wide, Buffer("x", "complex64", (8, 300), "out")], {}
    )
    a, b, c = (abs(inputs[key].astype(np.complex128)) for key in "abc")
    assert (b - a - c).min() > MARGIN - 1e-6
    assert abs(np.exp(1j * np.angle(inputs["b"])).mean()) < 0.1
    answer = thomas(**inputs)
    assert verdicts(problem, inputs, {"answer": answer}) == [True, True]
    answer[3, 7] *= 1.01j
    assert verdicts(problem, inputs, {"answer": answer}) == [False, False]


def test_tridiagonal_reference_ignores_coefficients_outside_the_matrix() -> None:
    """What stands at a[0] and c[N-1] has no part in the system."""
    _, inputs, outputs = case("tridiagonal", 7, 64)
    inputs["a"][:, 0] = inputs["c"][:, -1] = 1e6
    np.testing.assert_allclose(solve(**inputs), outputs["answer"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", BUILT_IN)
def test_inputs_are_drawn_afresh_and_repeat_with_the_seed(name: str) -> None:
    """One seed gives the same values again, and another gives others, in every problem of the batch."""
    first, again, other = (case(name, seed, 64)[1] for seed in (1, 1, 2))
    for key, values in first.items():
        np.testing.assert_array_equal(values, again[key])
        assert (values[:, 1:-1] != other[key][:, 1:-1]).any(axis=1).all()
        assert len({row.tobytes() for row in values}) == len(values)


@pytest.mark.parametrize("name", BUILT_IN)
def test_tolerance_of_the_kernel_file_replaces_the_bound(name: str) -> None:
    """A wider tolerance accepts, and zero tolerance refuses, what rounding explains."""
    _, inputs, outputs = case(name, 3, 512)
    rough = {"answer": outputs["answer"] * np.float32(1.001)}
    assert verdicts(problem_for(ProblemSpec(name, tolerance=1e-2)), inputs, rough) == [True, True]
    assert verdicts(problem_for(ProblemSpec(name, tolerance=0.0)), inputs, outputs) == [False, False]


@pytest.mark.parametrize("name", BUILT_IN)
def test_double_precision_is_held_to_its_own_rounding(name: str) -> None:
    """In double precision an answer rounded to single is wrong."""
    wide = [Buffer(b.name, {"f": "float64", "c": "complex128"}[b.dtype[0]], b.shape, b.role)
            for b in buffers(name, 3, 64)]  # fmt: skip
    problem = problem_for(ProblemSpec(name))
    inputs = problem.inputs(np, np.random.default_rng(0), wide, {})
    assert {array.dtype.name for array in inputs.values()} <= {"float64", "complex128"}
    narrow = right_answer(name, inputs)
    assert verdicts(problem, inputs, {"answer": narrow.astype(wide[-1].dtype)}) == [False, False]


@pytest.mark.parametrize("name", BUILT_IN)
def test_in_place_problems_are_accepted(name: str) -> None:
    """A kernel may overwrite its last input: the checks are given its values from before."""
    *rest, last, answer = buffers(name, 2, 64)
    del answer
    inout = [*rest, Buffer(last.name, last.dtype, last.shape, "inout")]
    inputs = problem_for(ProblemSpec(name)).inputs(np, np.random.default_rng(0), inout, {})
    assert list(inputs) == [buffer.name for buffer in inout]


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("wrong", ["number", "dtype", "shape"])
def test_buffers_of_another_problem_are_refused(name: str, wrong: str) -> None:
    """A kernel file whose arguments do not fit its problem is told what would."""
    fit = buffers(name, 2, 64)
    out = fit[-1]
    unfit = {
        "number": fit[1:],
        "dtype": [*fit[:-1], Buffer(out.name, "int32", out.shape, "out")],
        "shape": [*fit[:-1], Buffer(out.name, out.dtype, (2, 32), "out")],
    }[wrong]
    with pytest.raises(KernelFileError, match=r"\[problem\].*needs.*shape \[batch, N\]"):
        problem_for(ProblemSpec(name)).inputs(np, np.random.default_rng(0), unfit, {})


def test_unknown_problem_lists_the_choices() -> None:
    """A wrong name is answered with the right ones."""
    with pytest.raises(UnknownNameError, match=", ".join(NAMES)):
        problem_for(ProblemSpec("sort"))


@given(st.integers(1, 10_000), seeds)
def test_sample_has_the_first_and_the_last_problem(batch: int, seed: int) -> None:
    """Sampled rows are distinct, sorted, within the batch, and always hold both ends."""
    rows = sample_rows(batch, seed)
    assert (rows[0], rows[-1]) == (0, batch - 1)
    assert (np.diff(rows) > 0).all()
    assert len(rows) > 10 or batch < 1000
    np.testing.assert_array_equal(rows, sample_rows(batch, seed))


def test_taken_rows_leave_shared_arrays_whole() -> None:
    """Arrays with fewer axes than the problems' are coefficients of all of them."""
    matrix, weights = np.arange(12).reshape(4, 3), np.arange(3)
    taken = take_rows({"x": matrix, "w": weights}, np.array([0, 3]), 2)
    np.testing.assert_array_equal(taken["x"], matrix[[0, 3]])
    np.testing.assert_array_equal(taken["w"], weights)
    assert take_rows({"w": weights}, np.array([0, 3]), 2)["w"] is weights


# --- Problems of user kernels, planes, columns and convolutions: right answers pass, and wrong ones fail.


def generic_verdicts(problem: Problem, inputs: Rows, outputs: Rows) -> list[bool]:
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
    assert generic_verdicts(problem, inputs, outputs) == [False, False]


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
    assert generic_verdicts(problem, {}, whole) == [True, True]
    assert generic_verdicts(problem, {}, holed) == [False, False]


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
    generic_buffers = (Buffer("a", "float32", shape, "in"), Buffer("out", "float32", (40, 30), "out"))
    problem = problem_for(ProblemSpec("expression", reference=(("out", "2 * a"),)))
    if not fits:
        with pytest.raises(KernelFileError, match=r"\[problem.reference\] out: 'a' of shape"):
            problem.validate(generic_buffers)
        return
    problem.validate(generic_buffers)
    inputs = problem.inputs(np, np.random.default_rng(0), generic_buffers, {})
    outputs = {"out": np.broadcast_to(2 * inputs["a"], (40, 30)).copy()}
    assert problem.residual(np, inputs, outputs, {}).ok
    rows = sample_rows(40, 0)
    assert problem.compare(take_rows(inputs, rows, 2), take_rows(outputs, rows, 2), {}).ok


Array: TypeAlias = Any
SHAPES = {"fft-columns": (3, 12, 10), "fft-2d": (3, 12, 12), "fft-convolution": (3, 60)}


def generic_buffers(name: str) -> list[Buffer]:
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
    inputs = problem.inputs(np, np.random.default_rng(4), generic_buffers(name), sizes)
    answer = right(name, inputs, direction).astype(np.complex64)
    for judge in (problem.compare, lambda *given: problem.residual(np, *given)):
        assert judge(inputs, {"y": answer}, sizes).ok
        wrong = answer.copy()
        damage(wrong)
        assert not judge(inputs, {"y": wrong}, sizes).ok


@pytest.mark.parametrize("name", SHAPES)
def test_arrays_of_another_form_are_refused(name: str) -> None:
    """Buffers without the axes of the problem are refused with those it needs."""
    flat = [Buffer(one.name, one.dtype, (6,), one.role) for one in generic_buffers(name)]
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
