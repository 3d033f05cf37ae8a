"""``tuner.fft``, ``tuner.scan`` and ``tuner.tridiagonal`` on arrays as people have them."""

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import host_build
import numpy as np
import pytest
import scipy.fft
from fake_linalg import HostCompiler, LinalgCupy, linalg_cupy
from fake_torch import DlpackArray, FakeTorch, fake_torch
from numpy.linalg import LinAlgError

import tuner
from tuner.model.elements import bfloat16_bits, bfloat16_values
from tuner.model.errors import InputError
from tuner.problems.tridiagonal import solve, solve_periodic

ANY: Any = tuner  # for arguments that types forbid
pytestmark = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


@pytest.fixture
def cp(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> LinalgCupy:
    return linalg_cupy(monkeypatch, tmp_path)


def drawn(cp: LinalgCupy, shape: tuple[int, ...], dtype: str) -> Any:
    rng = np.random.default_rng(len(shape))
    values = rng.uniform(-4, 4, shape) + (1j * rng.uniform(-4, 4, shape) if dtype[0] == "c" else 0)
    return cp.asarray(values.astype(dtype))


def near(found: Any, right: Any, units: float = 64) -> bool:
    """Equal in shape and type, and by some units of roundoff of the largest number."""
    right = np.asarray(right)
    assert (found.shape, found.dtype.name) == (right.shape, right.dtype.name)
    if right.dtype.kind not in "fc":
        return bool((np.asarray(found) == right).all())
    most = abs(right[np.isfinite(right)]).max()
    return np.allclose(np.asarray(found), right, rtol=0, atol=units * np.finfo(right.dtype).eps * most)


# --- Transforms.

SHAPES = [((16,), -1), ((3, 16), -1), ((3, 16), 1), ((16, 3), 0), ((2, 16, 2), -2), ((2, 2, 16), 2)]


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft"])
def test_transforms(cp: LinalgCupy, name: str, shape: tuple[int, ...], axis: int) -> None:
    """Any axis, batch, length, norm and type, in the type that SciPy gives."""
    ours, right = getattr(tuner.fft, name), getattr(scipy.fft, name)
    types = ["float32"] if name == "rfft" else ["complex64", "float32"]
    for dtype in types:
        x = drawn(cp, shape, dtype)
        before = np.array(x)
        for options in ({}, {"norm": "ortho"}, {"norm": "forward"}, {"n": 10}, {"n": 2}, {"n": 1}):
            for _ in range(2):  # the second may go straight to the kernel
                assert near(ours(x, axis=axis, **options), right(before, axis=axis, **options))
        assert (x == before).all()


@pytest.mark.parametrize(
    ("given", "kept"),
    [("float16", "float32"), ("bool", "float64"), ("int32", "float64"), ("uint8", "float64")],
)
def test_types_that_are_converted(cp: LinalgCupy, given: str, kept: str) -> None:
    """Half precision is transformed in single, whole numbers in double precision."""
    x = drawn(cp, (2, 10), given)
    assert near(tuner.fft.rfft(x), scipy.fft.rfft(np.asarray(x).astype(kept)))


@pytest.mark.parametrize("name", ["fft2", "ifft2"])
def test_planes(cp: LinalgCupy, name: str) -> None:
    """Planes on any two axes, cut and filled up, one number high too."""
    ours, right = getattr(tuner.fft, name), getattr(scipy.fft, name)
    cases: list[tuple[tuple[int, ...], dict[str, Any]]] = [
        ((2, 4, 6), {}),
        ((4, 6), {"norm": "ortho"}),
        ((4, 2, 6), {"axes": (0, 2)}),
        ((2, 6, 4), {"axes": (2, 1), "norm": "forward"}),
        ((2, 9, 5), {"s": (4, 6)}),
        ((3, 1, 16), {}),
    ]
    for shape, options in cases:
        x = drawn(cp, shape, "complex64")
        for _ in range(2):
            assert near(ours(x, **options), right(np.asarray(x), **options))
    assert near(ours(drawn(cp, (4, 6), "float32")), right(np.asarray(drawn(cp, (4, 6), "float32"))))


def test_overwritten_arrays(cp: LinalgCupy) -> None:
    """Contiguous complex rows become their transforms; a result of another shape has its own memory."""
    for norm in ("backward", "ortho"):
        x = drawn(cp, (3, 16), "complex64")
        right = scipy.fft.fft(np.array(x), norm=norm)
        assert tuner.fft.fft(x, norm=norm, overwrite_x=True) is x
        assert near(x, right)
    assert not np.shares_memory(tuner.fft.fft(x, n=10, overwrite_x=True), x)
    line = np.asarray(drawn(cp, (64,), "complex64"))
    for steps in ((8 * line.itemsize, line.itemsize), (0, line.itemsize)):  # numbers in two rows
        shared = cp.asarray(np.lib.stride_tricks.as_strided(line, (4, 16), steps).view(type(x)))
        right = scipy.fft.fft(np.array(shared))
        assert near(tuner.fft.fft(shared, overwrite_x=True), right)
        assert near(scipy.fft.fft(np.asarray(shared)), right)


# --- Scans.

OPERATORS: dict[str, Any] = {
    "sum": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "xor": np.logical_xor,
}


def by_host(operator: str, x: Any, heads: Any, *, exclusive: bool, reverse: bool) -> Any:
    """What a scan along the last axis makes, segment by segment."""
    identity: dict[str, Any] = {"sum": 0, "product": 1, "xor": 0}
    if operator in ("min", "max"):
        limits = np.finfo(x.dtype) if x.dtype.kind == "f" else np.iinfo(x.dtype)
        ends = (np.inf, -np.inf) if x.dtype.kind == "f" else (limits.max, limits.min)
        identity[operator] = ends[operator == "max"]
    result = np.empty_like(x)
    for place in np.ndindex(x.shape[:-1]):
        borders = [0, *(i for i in range(1, x.shape[-1]) if heads[(*place, i)]), x.shape[-1]]
        for begin, end in itertools.pairwise(borders):
            part = x[(*place, slice(begin, end))][:: -1 if reverse else 1]
            made = OPERATORS[operator].accumulate(part).astype(x.dtype)
            made = np.concatenate([[identity[operator]], made[:-1]]).astype(x.dtype) if exclusive else made
            result[(*place, slice(begin, end))] = made[:: -1 if reverse else 1]
    return result


@pytest.mark.parametrize(("exclusive", "reverse"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize(
    ("operator", "dtype"), [("sum", "float32"), ("max", "float32"), ("min", "int64"), ("xor", "int32")]
)
@pytest.mark.parametrize("segments", [False, True])
def test_scans(  # noqa: PLR0917 - of tables
    cp: LinalgCupy, operator: str, dtype: str, exclusive: bool, reverse: bool, segments: bool
) -> None:
    """Every operator, form and direction, along any axis, with segments that bool or whole numbers begin."""
    x = drawn(cp, (2, 3, 20), dtype)
    flags = np.random.default_rng(0).uniform(size=x.shape) < 0.2
    right = by_host(operator, np.asarray(x), flags & segments, exclusive=exclusive, reverse=reverse)
    for axis in (-1, 1):
        for kind in ("bool", "int32") if segments else ("",):
            turned = np.moveaxis(x, -1, axis)
            heads = cp.asarray(np.moveaxis(flags, -1, axis).astype(kind)) if kind else None
            found = tuner.scan.accumulate(
                turned, operator, axis, exclusive=exclusive, reverse=reverse, heads=heads
            )
            assert near(np.moveaxis(found, axis, -1), right)


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_scans_by_the_names_of_numpy(cp: LinalgCupy, name: str) -> None:
    """Types and axes are NumPy's: whole numbers become 64 bits, and without an axis all is one row."""
    ours, right = getattr(tuner.scan, name), getattr(np, name)
    for dtype in ("float32", "int32", "bool", "uint8", "uint64"):
        x = drawn(cp, (3, 8), dtype)
        for options in ({}, {"axis": 0}, {"axis": 1}, {"axis": 1, "dtype": "float64"}, {"dtype": np.int64}):
            assert near(ours(x, **options), right(np.asarray(x), **options))


def test_logical_scans_of_bool(cp: LinalgCupy) -> None:
    """Truth values are joined as such, whole numbers as ones and zeros."""
    x = cp.asarray(np.random.default_rng(1).uniform(size=(3, 20)) < 0.2)
    for operator in ("and", "or"):
        right = getattr(np, f"logical_{operator}").accumulate(np.asarray(x), axis=1)
        assert near(tuner.scan.accumulate(x, operator), right)


@pytest.mark.parametrize("operator", OPERATORS)
def test_rows_of_one_element(cp: LinalgCupy, operator: str) -> None:
    """They are their own scans, and identities where they are left out."""
    x = drawn(cp, (3, 1), "int32")
    none = np.zeros(x.shape)
    for exclusive in (False, True):
        right = by_host(operator, np.asarray(x), none, exclusive=exclusive, reverse=False)
        assert near(tuner.scan.accumulate(x, operator, exclusive=exclusive), right)


# --- Tridiagonal systems.


def system(cp: LinalgCupy, matrix: tuple[int, ...], right: tuple[int, ...], dtype: str) -> list[Any]:
    a, c, d = (drawn(cp, shape, dtype) for shape in (matrix, matrix, right))
    return [a, (abs(a) + abs(c) + 1).astype(dtype), c[..., ::-1], d]


def exact(a: Any, b: Any, c: Any, d: Any, *, periodic: bool) -> Any:
    whole = np.broadcast_arrays(*(np.asarray(one) for one in (a, b, c, d)))
    n = d.shape[-1]
    if periodic and n < 3:
        matrices = np.zeros((*whole[0].shape, n), whole[3].dtype)
        for i in range(n):
            for part, to in zip(whole[:3], (i - 1, i, i + 1), strict=True):
                matrices[..., i, to % n] += part[..., i]
        return np.linalg.solve(matrices, whole[3][..., None])[..., 0]
    found = (solve_periodic if periodic else solve)(*(one.reshape(-1, n) for one in whole))
    return found.reshape(whole[0].shape)


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize(
    ("matrix", "right"),
    [
        ((20,), (20,)),
        ((3, 20), (3, 20)),
        ((2, 3, 20), (2, 3, 20)),
        ((20,), (5, 20)),  # five right sides of one matrix
        ((2, 1, 20), (2, 3, 20)),
        ((20,), (17, 20)),
        ((3, 20), (20,)),
        ((3, 1), (3, 1)),
        ((3, 2), (3, 2)),
    ],
)
def test_systems(cp: LinalgCupy, matrix: tuple[int, ...], right: tuple[int, ...], periodic: bool) -> None:
    """Any batch, right sides that share a matrix, one unknown and two; the check finds nothing."""
    for dtype in ("float32", "complex64") if matrix == (3, 20) else ("float32",):
        given = system(cp, matrix, right, dtype)
        before = [np.array(one) for one in given]
        for check in (False, True):
            found = tuner.tridiagonal.solve(*given, periodic=periodic, check=check)
            assert near(found, exact(*before, periodic=periodic).astype(dtype))
        assert all((one == was).all() for one, was in zip(given, before, strict=True))


def test_systems_of_any_length(cp: LinalgCupy) -> None:
    """The kernel goes by the number of unknowns: above 4096 it is another one."""
    given = system(cp, (1, 5000), (1, 5000), "float32")
    assert near(tuner.tridiagonal.solve(*given), exact(*given, periodic=False).astype("float32"))
    assert any("reduce_tiles" in entry for entry in HostCompiler.compiled)


def test_systems_that_need_pivoting(cp: LinalgCupy) -> None:
    """The check tells the first system whose residual is too large, its size, and what else solves it."""
    a, b, c, d = (cp.asarray(np.ones((2, 3, 64), np.float32)) for _ in range(4))
    b *= 4
    b[1, 2] = 0
    b[1, 2, 0] = 0
    tuner.tridiagonal.solve(a, b, c, d)
    words = r"tuner\.tridiagonal\.solve: matrix \(1, 2\): of 64 unknowns: backward error .* more than 6e-06"
    for check in (True, "residual"):
        with pytest.raises(LinAlgError, match=words + r" \(1 of 6\): .*gtsv2"):
            tuner.tridiagonal.solve(a, b, c, d, check=check)


# --- What holds for all.


def test_empty_batches(cp: LinalgCupy) -> None:
    """They give empty results of the shapes and types that they have otherwise, and run nothing."""
    x, z = drawn(cp, (0, 10), "float32"), drawn(cp, (2, 0, 10), "complex64")
    assert tuner.fft.fft(x).shape == (0, 10)
    assert tuner.fft.rfft(x).shape == (0, 6)
    assert tuner.fft.irfft(z).shape == (2, 0, 18)
    assert tuner.fft.fft2(drawn(cp, (0, 4, 6), "float32")).dtype == np.complex64
    assert tuner.scan.cumsum(x, axis=1).shape == (0, 10)
    assert tuner.tridiagonal.solve(*[x] * 4).shape == (0, 10)
    assert not HostCompiler.compiled


def test_arrays_with_gaps_and_at_odd_addresses(cp: LinalgCupy) -> None:
    """Whatever no kernel takes is copied."""
    wide = drawn(cp, (4, 40), "float32")
    for x in (
        wide[:, 3:23],
        wide[::2, ::2],
        wide.ravel()[1:21],
        wide[:, ::-2],
        wide[:, 1:2] + wide[:, :20] * 0,
    ):
        values = np.array(x)
        assert near(tuner.fft.rfft(x), scipy.fft.rfft(values))
        assert near(tuner.scan.cumsum(x, axis=-1), np.cumsum(values, axis=-1))
        assert near(tuner.fft.fft(x[..., :16].astype("complex64")), scipy.fft.fft(values[..., :16]))


def test_later_calls_go_straight_to_the_kernel(cp: LinalgCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a call does with arrays that a kernel takes as they are is worked out once."""
    x = drawn(cp, (3, 16), "complex64")
    tuner.fft.fft(x)
    tuner.scan.accumulate(x)
    planes = drawn(cp, (2, 4, 6), "complex64")
    tuner.fft.fft2(planes)
    monkeypatch.setattr("tuner.application.functions.called", None)
    assert near(tuner.fft.fft(x), scipy.fft.fft(np.asarray(x)))
    assert near(tuner.scan.accumulate(x), np.cumsum(np.asarray(x), axis=-1))
    assert near(tuner.fft.fft2(planes), scipy.fft.fft2(np.asarray(planes)))


def test_captures(cp: LinalgCupy) -> None:
    """A call would allocate in them: a first one and a later one say what may be captured."""
    x = drawn(cp, (3, 16), "complex64")
    stream = cp.cuda.Stream(non_blocking=True)
    for _ in range(2):
        stream.begin_capture()
        with stream, pytest.raises(InputError, match=r"captured into a CUDA graph: .* capture a tuner\.plan"):
            tuner.fft.fft(x)
        assert not stream.end_capture().works
        tuner.fft.fft(x)


def test_arrays_that_never_change(cp: LinalgCupy) -> None:
    """What is lent by a protocol is not overwritten, and comes back as an array of its library."""
    x = DlpackArray(drawn(cp, (3, 16), "complex64"))
    before = np.array(x.held)
    found = tuner.fft.fft(x, overwrite_x=True)
    assert isinstance(found, DlpackArray)
    assert near(found.held, scipy.fft.fft(before))
    assert (x.held == before).all()


def test_tensors(cp: LinalgCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results beside PyTorch's are tensors, one that was overwritten the tensor itself."""
    torch: FakeTorch = fake_torch(monkeypatch, cp)
    x = torch.of(drawn(cp, (2, 3, 16), "complex64"))
    for norm in (None, "ortho"):
        y = tuner.fft.fft(x, axis=0 if norm else -1, norm=norm)
        right = scipy.fft.fft(np.asarray(x.held), axis=0 if norm else -1, norm=norm)
        assert isinstance(y, type(x))
        assert near(y.held, right)
    flat = torch.of(drawn(cp, (3, 16), "complex64"))
    right = scipy.fft.fft(np.array(flat.held))
    assert tuner.fft.fft(flat, overwrite_x=True) is flat
    assert near(flat.held, right)


def test_tensors_of_bfloat16(cp: LinalgCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scans of them, with any axes, are such tensors."""
    torch: FakeTorch = fake_torch(monkeypatch, cp)
    values = np.random.default_rng(0).integers(0, 3, (2, 3, 20)).astype(np.float32)
    x = torch.of(cp.asarray(bfloat16_bits(values)))
    x.dtype = torch.bfloat16
    for axis in (2, 1):
        y = tuner.scan.cumsum(x, axis=axis)
        assert str(y.dtype) == "torch.bfloat16"
        assert (bfloat16_values(np.asarray(y.held)) == np.cumsum(values, axis=axis)).all()
    ones = tuner.scan.accumulate(x, "product", axis=0, exclusive=True)
    assert (bfloat16_values(np.asarray(ones.held))[0] == 1).all()


REFUSED: list[tuple[Callable[[Any], Any], str]] = [
    (lambda x: tuner.fft.fft(x, n=0), "tuner.fft.fft: n is 0; it must be a whole number from 1 to 16777216"),
    (lambda x: tuner.fft.rfft(x, n=2**70), f"tuner.fft.rfft: n is {2**70}; it must be a whole number from 1"),
    (lambda x: ANY.fft.fft(x, n=2.5), "tuner.fft.fft: n is 2.5; it must be a whole number"),
    (lambda x: tuner.fft.fft(x, axis=2), "tuner.fft.fft: axis is 2; it must be a whole number from -2 to 1"),
    (lambda x: tuner.fft.fft(x, norm="unitary"), "norm is 'unitary'; it must be 'backward', 'ortho' or"),
    (lambda x: ANY.fft.fft(x, norm=np.ones(2)), "norm is array([1., 1.]); it must be 'backward', 'ortho' or"),
    (lambda x: ANY.fft.fft(x, overwrite_x="yes"), "overwrite_x is 'yes'; it must be True or False"),
    (lambda x: tuner.fft.rfft(x.astype("complex64")), "x has dtype complex64; it must be of real numbers"),
    (lambda x: tuner.fft.fft(x.astype("longdouble")), "x has dtype float128, which no kernel transforms"),
    (lambda x: tuner.fft.fft(x[0, 0]), "tuner.fft.fft: x"),
    (lambda x: tuner.fft.irfft(x[:, :1]), "tuner.fft.irfft: n is 0; it must be"),
    (lambda x: tuner.fft.fft2(x[0]), "tuner.fft.fft2: x has shape (20,); it must have two axes"),
    (lambda x: tuner.fft.fft2(x, axes=(0, 0)), "axes is (0, 0); the two must differ"),
    (lambda x: ANY.fft.fft2(x, axes=1), "axes is 1; it must be two axes"),
    (lambda x: tuner.fft.fft2(x, s=(4,)), "s is (4,); it must be two lengths"),
    (
        lambda x: tuner.fft.fft(np.asarray(x).tolist()),
        "tuner.fft.fft: x is a builtins.list; it must be an array",
    ),
    (lambda x: tuner.scan.accumulate(x, "mean"), "operator is 'mean'; choose from sum, min, max, product"),
    (lambda x: tuner.scan.accumulate(x.astype("int8"), "xor"), "x has dtype int8; it must be one of float16"),
    (lambda x: tuner.scan.accumulate(x, heads=x), "heads has dtype float32; it must be bool or of whole"),
    (lambda x: tuner.scan.accumulate(x, heads=x[0] > 0), "heads has shape (20,); it must be (2, 20)"),
    (lambda x: tuner.scan.cumsum(x, dtype="complex128"), "dtype is 'complex128' for x of float32; choose"),
    (lambda x: tuner.scan.cumsum(x, dtype="what"), "dtype is 'what' for x of float32; choose from"),
    (lambda x: tuner.tridiagonal.solve(x, x[:, 1:], x, x), "the last axes do not go together: a (2, 20), b"),
    (lambda x: tuner.tridiagonal.solve(x, x, x, x.T[:, :1] + x[:1]), "the axes before the last do not go"),
    (lambda x: tuner.tridiagonal.solve(x, x.astype("complex128"), x, x), "b has dtype complex128; it must"),
    (lambda x: ANY.tridiagonal.solve(x, x, x, x, check="all"), "check is 'all'; it must be True or False"),
    (lambda x: ANY.tridiagonal.solve(x, x, x, x, check=np.ones(2)), "check is array([1., 1.]); it must be"),
]


@pytest.mark.parametrize(("call", "words"), REFUSED)
def test_refusals(cp: LinalgCupy, call: Callable[[Any], Any], words: str) -> None:
    """What cannot be used is refused by its name, before anything runs."""
    with pytest.raises(InputError, match=re.escape(words)):
        call(drawn(cp, (2, 20), "float32"))
    assert not HostCompiler.compiled
