"""The kernels of answer checks, on the host: each against the same in NumPy."""

from collections.abc import Mapping
from typing import Any

import host_build
import numpy as np
import pytest
from fake_cuda import FakeCompiler, answer_kernels
from fake_cupy import DeviceArray, FakeCupy

from tuner.devices.cuda.answer_check import Laws
from tuner.devices.cuda.answer_kernels import AnswerKernels, Rows, worst_row
from tuner.model.errors import CompileError, CompilerUnavailableError
from tuner.model.plan import Buffer, ProblemSpec
from tuner.problems.base import Draw, Norm, agreement
from tuner.problems.lookup import problem_for
from tuner.problems.tridiagonal import MARGIN, solve

pytestmark = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")

DTYPES = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)


@pytest.fixture(scope="module")
def cp() -> FakeCupy:
    return FakeCupy(answer_kernels())


@pytest.fixture(scope="module")
def kernels(cp: FakeCupy) -> AnswerKernels:
    return AnswerKernels(cp, FakeCompiler())


def on_device(values: Any) -> Any:
    """An array as CuPy has it."""
    return np.ascontiguousarray(values).view(DeviceArray)


def drawn(kernels: AnswerKernels, shape: tuple[int, ...], dtype: str, draw: Draw, seed: int = 1) -> Any:
    array = on_device(np.empty(shape, dtype))
    kernels.fill(array, draw, seed)
    return array


def values(dtype: str, shape: tuple[int, ...]) -> Any:
    """Numbers of all signs that the type has, none of them large."""
    rng = np.random.default_rng(3)
    if np.dtype(dtype).kind in "bu":
        return rng.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)
    if np.dtype(dtype).kind == "i":
        return rng.integers(-100, 100, shape).astype(dtype)
    parts = rng.standard_normal((2, *shape))
    return (parts[0] + 1j * parts[1] if np.dtype(dtype).kind == "c" else parts[0]).astype(dtype)


def worst(kernels: AnswerKernels, slot: int) -> tuple[float, int]:
    return worst_row(kernels.read()[slot])


# --- inputs --------------------------------------------------------------------------------------


def test_values_are_those_of_splitmix64(kernels: AnswerKernels) -> None:
    """The sequence of seed 0 is the published one, and another seed gives another."""
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    got = drawn(kernels, (4,), "float64", Draw(low=0.0, width=1.0), seed=0)
    assert got.tolist() == [(value >> 11) * 2.0**-53 for value in published]
    assert (
        drawn(kernels, (4,), "float64", Draw(), seed=9).tolist()
        != drawn(kernels, (4,), "float64", Draw()).tolist()
    )


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
def test_reals_are_spread_evenly(kernels: AnswerKernels, dtype: str) -> None:
    """Parts of numbers are uniform in [-1, 1]: mean, variance and range are right within four deviations."""
    got = drawn(kernels, (100, 200), dtype, Draw())
    parts = got.view(got.real.dtype).astype(np.float64).ravel()
    assert abs(parts.mean()) < 4 / np.sqrt(3 * parts.size)
    assert parts.var() == pytest.approx(1 / 3, rel=0.05)
    assert -1 <= parts.min() < -0.99
    assert 0.99 < parts.max() <= 1
    assert len(np.unique(parts)) > (1000 if dtype == "float16" else 0.99 * parts.size)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "complex128"])
def test_normal_values(kernels: AnswerKernels, dtype: str) -> None:
    """Parts are standard normal and not correlated with each other, an odd number of them too."""
    got = drawn(kernels, (101, 199), dtype, Draw("normal", 0.0, 1.0))
    parts = got.view(got.real.dtype).astype(np.float64).ravel()
    assert abs(parts.mean()) < 4 / np.sqrt(parts.size)
    assert parts.var() == pytest.approx(1, rel=0.05)
    assert (abs(parts) > 3).mean() == pytest.approx(0.0027, abs=0.0015)
    assert abs(np.corrcoef(parts[:-1:2], parts[1::2])[0, 1]) < 4 / np.sqrt(parts.size / 2)


@pytest.mark.parametrize("dtype", [name for name in DTYPES if np.dtype(name).kind in "biu"])
def test_whole_numbers(kernels: AnswerKernels, dtype: str) -> None:
    """Whole numbers take every value of their range and no other."""
    width = 2 if dtype == "bool" else 16
    got = drawn(kernels, (3000,), dtype, Draw("whole", 0, width))
    assert sorted(set(got.astype(int).tolist())) == list(range(width))


@pytest.mark.parametrize(
    ("dtype", "bound"), [("int8", 2**7), ("int16", 2**15), ("int32", 2**31), ("int64", 2**31)]
)
def test_whole_numbers_of_the_whole_range(kernels: AnswerKernels, dtype: str, bound: int) -> None:
    """The range of a type reaches from its least to its largest number."""
    got = drawn(kernels, (20000,), dtype, Draw("whole", -bound, 2 * bound)).astype(np.float64)
    assert -bound <= got.min() < -0.99 * bound
    assert 0.99 * bound - 1 < got.max() < bound


def test_dominant_systems(kernels: AnswerKernels) -> None:
    """Systems are dominant by the margin, as those that NumPy makes, with signs either way."""
    a, b, c = (drawn(kernels, (50, 33), "float32", Draw(), seed) for seed in range(3))
    before = [array.copy() for array in (a, b, c)]
    kernels.dominate(a, b, c, MARGIN)
    names = dict(zip("abcd", (*before, before[0]), strict=True))
    problem_for(ProblemSpec("tridiagonal")).settle(np, names)
    for given, right in zip((a, b, c), names.values(), strict=False):
        np.testing.assert_allclose(given, right, rtol=1e-6, atol=1e-7)
    assert (abs(b) - abs(a) - abs(c)).min() >= MARGIN - 1e-6
    assert 0.3 < (b < 0).mean() < 0.7


# --- what must not change ------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 8, 9, 1000, 4099])
def test_digest_tells_of_any_change(kernels: AnswerKernels, size: int) -> None:
    """One bit anywhere, and two bytes that change places, make another digest; the same bytes do not."""
    array = on_device(np.random.default_rng(size).integers(0, 256, size).astype(np.uint8))
    changed = []
    for place in {0, size // 2, size - 1}:
        other = array.copy()
        other[place] ^= 0x10
        changed.append(other)
    if size > 8:
        swapped = array.copy()
        swapped[:16] = np.roll(swapped[:16], 8)
        changed.append(swapped)
    slots = [kernels.digest(one) for one in (array, array.copy(), *changed)]
    found = kernels.read()[slots].tolist()
    assert found[0] == found[1]
    assert len(set(found)) == len(changed) + 1


@pytest.mark.parametrize("place", [None, 0, 4095, 4096, 5095, 5096, -1])
def test_guards(kernels: AnswerKernels, place: int | None) -> None:
    """A byte that changed in front or behind is counted, one of the array is not."""
    raw = on_device(np.full(1000 + 2 * 4096, 0xA5, np.uint8))
    if place is not None:
        raw[place] = 0
    expected = 0 if place in (None, 4096, 5095) else 1
    slot = kernels.guarded(raw, 4096)
    assert kernels.read()[slot] == expected


# --- comparisons ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("N", [5, 64, 9000])
def test_norms(kernels: AnswerKernels, dtype: str, N: int) -> None:
    """Errors of rows are those of NumPy in each norm, rows of several pieces too; equal arrays have none."""
    right = on_device(values(dtype, (6, N)))
    given = right.copy()
    given[4] = right[3]
    assert not (given == right).all()
    r, g = (np.asarray(array).astype(np.result_type(dtype, np.float64)) for array in (right, given))
    difference = abs(r - g)
    expected = {
        Norm.MAXIMUM: difference.max(axis=1) / abs(r).max(axis=1),
        Norm.EUCLIDEAN: np.sqrt((difference**2).sum(axis=1) / (abs(r) ** 2).sum(axis=1)),
        Norm.ELEMENT: (difference / np.maximum(abs(r), abs(r).mean(axis=1, keepdims=True))).max(axis=1),
        Norm.COUNT: (difference != 0).sum(axis=1),
    }
    rows = Rows(right.size, N)
    for norm, errors in expected.items():
        sums = kernels.magnitudes(right, rows) if norm is Norm.ELEMENT else None
        error, row = worst(kernels, kernels.compare(right, given, rows, norm, sums))
        assert error == pytest.approx(errors.max(), rel=1e-5)
        assert row == errors.argmax()
        assert worst(kernels, kernels.compare(right, right.copy(), rows, norm, sums)) == (0, 0)


def test_chunks_are_those_of_agreement(kernels: AnswerKernels) -> None:
    """Where rows are chunks, the last one shorter, the error is that of ``agreement`` chunk by chunk."""
    right = on_device(values("float32", (11, 700)))
    right[8:] *= 1000
    given = right.copy()
    given[9, 3] += 1
    rows = Rows(right.size, 4 * 700)
    slot = kernels.compare(right, given, rows, Norm.ELEMENT, kernels.magnitudes(right, rows))
    error, row = worst(kernels, slot)
    assert row == 2
    assert error == pytest.approx(agreement(right[8:], given[8:], None, "y").error, rel=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("norm", Norm)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_wrong(kernels: AnswerKernels, dtype: str, norm: Norm, bad: float) -> None:
    """One NaN or infinity anywhere is found in its row, however large the others are."""
    right = on_device(values(dtype, (4, 5000)))
    rows = Rows(right.size, 5000)
    for place in (0, 4999):
        given = right.copy()
        given[2, place] = bad
        sums = kernels.magnitudes(right, rows) if norm is Norm.ELEMENT else None
        error, row = worst(kernels, kernels.compare(right, given, rows, norm, sums))
        assert (error, row) == (1 if norm is Norm.COUNT else np.inf, 2)


def test_large_whole_numbers_differ(kernels: AnswerKernels) -> None:
    """Numbers of 64 bits that are equal in double precision are not taken for equal."""
    right = on_device(np.full((3, 40), 2**62, np.int64))
    given = right.copy()
    given[1, 7] += 1
    rows = Rows(right.size, 40)
    for norm in (Norm.MAXIMUM, Norm.COUNT):
        error, row = worst(kernels, kernels.compare(right, given, rows, norm))
        assert error > 0
        assert row == 1


# --- laws ----------------------------------------------------------------------------------------


def scan_case(dtype: str, form: str, N: int) -> tuple[str, Mapping[str, Any], Any, dict[str, Any]]:
    x = values(dtype, (7, N))
    if np.dtype(dtype).kind == "i":
        x = np.random.default_rng(1).integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (7, N)).astype(dtype)
    y = np.cumsum(x, axis=1, dtype=np.float64 if dtype.startswith("f") else dtype)
    y = (y - x if form == "exclusive" else y).astype(dtype)
    return "scan", {"x": x}, y, {"N": N, "form": form}


def system_case(dtype: str, N: int) -> tuple[str, Mapping[str, Any], Any, dict[str, Any]]:
    buffers = [Buffer(name, dtype, (7, N), "in") for name in "abcd"] + [Buffer("x", dtype, (7, N), "out")]
    problem = problem_for(ProblemSpec("tridiagonal"))
    inputs = problem.inputs(np, np.random.default_rng(2), buffers, {})
    return "tridiagonal", inputs, solve(*inputs.values()).astype(dtype), {"N": N}


def transform_case(dtype: str, direction: str, N: int) -> tuple[str, Mapping[str, Any], Any, dict[str, Any]]:
    x = values(dtype, (7, N))
    y = (np.fft.ifft if direction == "inverse" else np.fft.fft)(x, axis=1)
    return "fft", {"x": x}, y.astype(dtype), {"N": N, "direction": direction}


CASES = [
    *(
        scan_case(t, f, n)
        for t in ("float32", "float64", "int32", "int64")
        for f in ("inclusive", "exclusive")
        for n in (64, 5000)
    ),
    *(scan_case("int8", "inclusive", n) for n in (5, 200)),
    *(system_case(t, n) for t in ("float32", "float64") for n in (32, 5000)),
    *(
        transform_case(t, d, n)
        for t in ("complex64", "complex128")
        for d in ("forward", "inverse")
        for n in (64, 8192)
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[2].dtype}-{case[2].shape[1]}")
def test_laws_are_those_of_the_problems(
    cp: FakeCupy, kernels: AnswerKernels, case: tuple[str, Mapping[str, Any], Any, dict[str, Any]]
) -> None:
    """A law finds in right and wrong answers what the problem's own residual finds."""
    name, inputs, answer, sizes = case
    problem, laws = problem_for(ProblemSpec(name)), Laws(cp, kernels)
    given = {key: on_device(array) for key, array in inputs.items()}
    wrong = [answer.copy() for _ in range(5)]
    wrong[0][3, 0] += 1
    wrong[1][6, -1] += 1
    wrong[2][[1, 2]] = answer[[2, 1]]
    wrong[3][5] = 0
    wrong[4][4] = np.nan if answer.dtype.kind != "i" else answer[4] + 1
    for index, output in enumerate([answer, *wrong]):
        found = laws.judge(problem, given, {"y": on_device(output)}, sizes)
        right = problem.residual(np, inputs, {"y": output}, sizes)
        assert found.ok == right.ok == (index == 0), (found, right)
        assert (found.allowed, found.what) == (right.allowed, right.what)
        if index and answer.dtype.kind != "i":  # of whole numbers a wrong total is not counted by itself
            assert found.error == pytest.approx(right.error, rel=1e-5)
            assert found.row == right.row


def test_law_of_a_problem_without_one(cp: FakeCupy, kernels: AnswerKernels) -> None:
    """Under ``consistent`` only what is not finite breaks the law."""
    problem, laws = problem_for(ProblemSpec("consistent")), Laws(cp, kernels)
    y, z = on_device(values("float32", (5, 90))), on_device(values("int32", (9,)))
    assert laws.judge(problem, {}, {"y": y, "z": z}, {}).ok
    y[3, 1] = np.nan
    deviation = laws.judge(problem, {}, {"y": y, "z": z}, {})
    assert not deviation.ok
    assert (deviation.what, deviation.row) == ("y finite", 3)


def test_kernels_that_do_not_compile() -> None:
    """A compiler that refuses the kernels of checks is trouble of the machine, told at the first use."""

    class Refusing(FakeCompiler):
        def compile(self, stages: Any) -> Any:
            return [CompileError("line 1: no") for _ in stages]

    kernels = AnswerKernels(FakeCupy({}), Refusing())
    with pytest.raises(CompilerUnavailableError, match="no answers can be checked: line 1: no"):
        kernels.fill(on_device(np.zeros(4)), Draw(), 1)
