"""``tuner.linalg``: what arguments may be, what results are, and what is refused."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import host_build
import numpy as np
import pytest
import scipy.linalg
from fake_cupy import DeviceArray
from fake_linalg import HostCompiler, HostKernel, LinalgCupy, linalg_cupy
from linalg_cases import N, each, near, positive, random
from numpy.linalg import LinAlgError

from tuner import linalg
from tuner.model.errors import DeviceError, InputError

ANY: Any = linalg  # for arguments that types forbid
pytestmark = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


@pytest.fixture
def cp(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> LinalgCupy:
    return linalg_cupy(monkeypatch, tmp_path)


def test_results_are_arrays_of_their_own(cp: LinalgCupy) -> None:
    """They fill their memory, row by row or column by column, which is no memory of an argument."""
    a, b, wide = cp.asarray(positive(3)), cp.asarray(random(3, N, 2)), cp.asarray(random(3, 2, N))
    vector, lu, raw = cp.asarray(random(3, N, 1))[0, :, 0], linalg.lu_factor(b), linalg.qr(b, "raw")
    results: list[Any] = [
        *(linalg.cholesky(a, lower) for lower in (False, True)),
        *(*lu, *linalg.lu_factor(wide), *linalg.lu(b), *raw[0], raw[1]),
        *(one for mode in ("full", "economic", "r") for one in linalg.qr(b, mode)),
        *(linalg.solve(a, right, assume_a=kind) for right in (b, vector) for kind in ("gen", "pos")),
        *(linalg.solve_triangular(a, b, lower=lower) for lower in (False, True)),
        *(linalg.trsm(a, wide, side="right", lower=lower) for lower in (False, True)),
        *(
            linalg.gemm(a, b),
            linalg.gemm(a, a),
            linalg.trsm(a, b, alpha=0),
            linalg.lu_solve(linalg.lu_factor(a), b),
        ),
    ]
    for one in results:
        assert one.flags.c_contiguous or one.swapaxes(-1, -2).flags.c_contiguous
        assert not any(np.shares_memory(one, given) for given in (a, b, wide, vector))


ONES = np.ones(N).view(DeviceArray)
RESIDUALS: list[tuple[str, Callable[[Any, Any], Any]]] = [
    ("substituted", lambda a, b: linalg.solve(a, b, check="residual")),
    ("substituted", lambda a, _: linalg.solve(a, ONES, assume_a="pos", lower=True, check="residual")),
    ("substituted", lambda a, b: linalg.solve_triangular(a, b, 1, lower=True, check="residual")),
    ("substituted", lambda a, b: linalg.solve_triangular(a / 8, b, unit_diagonal=True, check="residual")),
    ("potrf", lambda a, _: linalg.cholesky(a, check="residual")),
    ("potrf", lambda a, _: linalg.cholesky(a, lower=True, check="residual")),
    ("geqrf", lambda a, _: linalg.qr(a, check="residual")),
    ("geqrf", lambda _, b: linalg.qr(b, "economic", check=True)),
]


@pytest.mark.parametrize(("kernel", "call"), RESIDUALS)
def test_residuals(
    cp: LinalgCupy, monkeypatch: pytest.MonkeyPatch, kernel: str, call: Callable[[Any, Any], Any]
) -> None:
    """Right results pass; a wrong one is refused with its place in the batch, its order and its error."""
    a, b = cp.asarray(positive(2, 2)), cp.asarray(random(2, 2, N, 3))
    call(a, b)
    call(a[:0], b[:0])
    launch = HostKernel.launch

    def spoiled(own: HostKernel, grid: Any, block: Any, args: Any) -> None:
        launch(own, grid, block, args)
        if own.stage.entry.startswith(kernel):
            np.asarray(args[2 if kernel == "substituted" else 0]).reshape(4, -1)[2] += 1  # of matrix (1, 0)

    monkeypatch.setattr(HostKernel, "launch", spoiled)
    words = rf"matrix \(1, 0\): of order {N}: backward error .*, more than .* \(1 of 4\)$"
    with pytest.raises(LinAlgError, match=words):
        call(a, b)


@pytest.mark.parametrize("name", ["solve", "solve_triangular", "cholesky", "lu_factor", "qr"])
def test_checks_that_there_are_not(cp: LinalgCupy, name: str) -> None:
    """Another word than those of a call is refused."""
    a = cp.asarray(positive(2))
    given = (a, a) if name.startswith("solve") else (a,)
    with pytest.raises(InputError, match=f"tuner.linalg.{name}: check is 'all'; it must be True or False"):
        getattr(linalg, name)(*given, check="all")


def test_factors_of_zero_read_nothing(cp: LinalgCupy) -> None:
    """As in BLAS: NaN and infinity do not pass where alpha or beta is zero."""
    a, b = cp.asarray(np.full((2, N, N), np.nan)), cp.asarray(np.full((N, 2), np.inf))
    zeros = np.zeros((2, N, 2))
    zeros_of_blas: tuple[Any, ...] = (0, np.float32(-0.0), False)
    for zero in zeros_of_blas:
        assert near(linalg.gemm(a, b, alpha=zero, beta=zero, c=b), zeros)
        assert near(linalg.trsm(a, b, alpha=zero), zeros)
    assert near(linalg.gemm(a, b, alpha=0, beta=2, c=cp.asarray(zeros + 1)), zeros + 2)


@pytest.mark.parametrize("trans", [0, False, "N", 1, True, 2, "T", "C", np.int64(1)])
def test_transposes_as_blas_names_them(cp: LinalgCupy, trans: Any) -> None:
    """Letters and numbers mean the same in every call, on either side."""
    a, b = random(N, N) + 3 * np.eye(N), random(N, N, seed=1)
    turned = trans in {1, 2, "T", "C"}
    of, lower = (a.T if turned else a), np.tril(a)
    lower = lower.T if turned else lower
    given = cp.asarray(a), cp.asarray(b)
    assert near(linalg.gemm(*given, trans_a=trans), of @ b)
    assert near(linalg.gemm(*given[::-1], trans_b=trans), b @ of)
    assert near(linalg.trsm(*given, trans_a=trans), np.linalg.solve(lower, b))
    assert near(linalg.trsm(*given, trans_a=trans, side="right"), np.linalg.solve(lower.T, b.T).T)
    assert near(ANY.solve_triangular(*given, trans, lower=1), np.linalg.solve(lower, b))


def test_pivots_are_rows_of_wide_matrices(cp: LinalgCupy) -> None:
    """Also where infinities make NaN of the rows that fill a matrix up."""
    a = np.broadcast_to(random(3, N), (3, N, 3, N)).copy()
    for row, column in np.ndindex(3, N):
        a[row, column, row, column] = np.inf
    with np.errstate(invalid="ignore"):
        p, lower, upper = linalg.lu(cp.asarray(a))
        product = lower @ upper
    _, pivots = linalg.lu_factor(cp.asarray(a), check=False)
    assert ((np.arange(3) <= pivots) & (pivots < 3)).all()
    assert np.array_equal(p.sum(axis=-1), np.ones((3, N, 3)))
    assert not np.isfinite(product).all(axis=(-2, -1)).any()


@pytest.mark.parametrize("dtype", [np.int8, np.int64])
def test_pivots_of_others(cp: LinalgCupy, dtype: Any) -> None:
    """They may have passed through another library, and another type of whole numbers."""
    a, b = random(2, N, N), random(2, N, 2)
    lu, pivots = linalg.lu_factor(cp.asarray(a))
    held = cp.asarray(np.asarray(pivots).astype(dtype))
    piv = SimpleNamespace(held=held, __dlpack__=None, __dlpack_device__=lambda: (2, 0))
    assert near(linalg.lu_solve([lu, piv], cp.asarray(b)), np.linalg.solve(a, b))


def test_copies_that_do_not_fit(cp: LinalgCupy) -> None:
    """Memory that runs out is an error of the device, as with apply."""
    a = cp.asarray(positive(4))
    cp.memory_bytes = cp.allocated_bytes + a.nbytes - 1
    with pytest.raises(DeviceError, match=r"^tuner\.linalg\.cholesky: copies and results do not fit"):
        linalg.cholesky(a)


class NeedsGradient:
    """PyTorch's tensors with gradients do not give their memory away."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        raise RuntimeError("use detach")


def test_strided_arrays_are_copied(cp: LinalgCupy) -> None:
    """Views, transposes and misaligned arrays give the answers of their copies, and stay as they are."""
    whole = random(2, 2 * N, 2 * N + 1)
    view = cp.asarray(whole)[:, ::2, 1::2]
    transposed = view.swapaxes(-1, -2)
    assert np.allclose(linalg.gemm(view, transposed), np.asarray(view) @ np.asarray(transposed))
    factors, _ = linalg.lu_factor(transposed)
    assert np.allclose(factors, each(lambda one: scipy.linalg.lu_factor(one)[0], np.asarray(transposed)))
    shifted = cp.asarray(whole).reshape(-1)[1 : 1 + N * N].reshape(N, N)
    assert np.allclose(linalg.gemm(shifted, shifted), np.asarray(shifted) @ np.asarray(shifted))
    assert np.array_equal(np.asarray(view), whole[:, ::2, 1::2])


def test_batches_of_many_axes(cp: LinalgCupy) -> None:
    """Copies follow four axes of a batch that do not follow each other; of more, arrays are copied first."""
    a = positive(4, 3, 4, 3, 4, 3)[::2, ::2, ::2, ::2, ::2, ::2]
    b = random(2, 1, 2, 1, 2, 2, N, 1)
    held, right = cp.asarray(a), cp.asarray(b)
    assert near(linalg.cholesky(held), each(scipy.linalg.cholesky, a))
    x = np.linalg.solve(a, np.broadcast_to(b, (*a.shape[:-2], N, 1)))
    assert near(linalg.solve(held, right), x)
    factors, pivots = linalg.lu_factor(held)
    assert near(linalg.lu_solve((factors, pivots), right), x)


def test_calls_that_come_again_are_looked_up(cp: LinalgCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither arguments are checked anew nor plans made, whatever the values and addresses are."""
    a, b = random(3, N, N), random(3, N, 2)

    def run() -> list[Any]:
        held, right = cp.asarray(a + len(kept)), cp.asarray(b)
        kept.append((held, right))
        return [
            linalg.gemm(held, right),
            linalg.solve(held, right),
            linalg.cholesky(cp.asarray(positive(3)), lower=True),
            *linalg.lu_factor(held),
        ]

    def never(*_: object, **__: object) -> None:
        raise AssertionError

    kept: list[Any] = []
    run()
    monkeypatch.setattr("tuner.linalg.composed.called", never)
    monkeypatch.setattr("tuner.devices.cuda.direct.DirectGpu.program", never)
    product, solution, *_ = run()
    assert near(product, (a + 1) @ b)
    assert near(solution, np.linalg.solve(a + 1, b))
    singular = cp.asarray(np.zeros((3, N, N)))
    with pytest.raises(LinAlgError, match=r"^matrix 0: Matrix is singular: diagonal 1 of U"):
        linalg.solve(singular, cp.asarray(b))


def test_arrays_of_others(cp: LinalgCupy) -> None:
    """What has DLPack on the GPU, or the CUDA array interface, is taken without a copy."""
    a = positive(2)
    held = cp.asarray(a)
    by_dlpack = SimpleNamespace(held=held, __dlpack__=None, __dlpack_device__=lambda: (2, 0))
    assert near(linalg.cholesky(by_dlpack), each(scipy.linalg.cholesky, a))

    class Interface:
        __cuda_array_interface__ = held.__array_interface__
        __array_interface__ = held.__array_interface__

    assert near(linalg.cholesky(Interface()), each(scipy.linalg.cholesky, a))


@pytest.mark.parametrize(("lead", "n"), [((), 0), ((0,), N), ((2, 0), N), ((3,), 0)])
def test_nothing_to_do(cp: LinalgCupy, lead: tuple[int, ...], n: int) -> None:
    """Orders and batches of zero give empty results of the right shapes, and launch nothing."""
    a, b = cp.empty((*lead, n, n)), cp.empty((*lead, n, 2))
    assert linalg.cholesky(a).shape == (*lead, n, n)
    assert [one.shape for one in linalg.lu_factor(a)] == [(*lead, n, n), (*lead, n)]
    assert [one.shape for one in linalg.lu(a)] == [(*lead, n, n)] * 3
    assert [one.shape for one in linalg.qr(a)] == [(*lead, n, n)] * 2
    assert linalg.solve(a, b).shape == linalg.trsm(a, b).shape == (*lead, n, 2)
    assert linalg.solve_triangular(a, b).shape == linalg.gemm(a, b).shape == (*lead, n, 2)
    assert HostCompiler.compiled == []


def test_orders_of_one(cp: LinalgCupy) -> None:
    """Numbers are matrices, too."""
    a = np.array([[[4.0]], [[9.0]]])
    assert near(linalg.cholesky(cp.asarray(a)), np.sqrt(a))
    assert near(linalg.solve(cp.asarray(a), cp.asarray(np.array([36.0]))), np.array([[9.0], [4.0]]))
    q, r = linalg.qr(cp.asarray(a))
    assert np.allclose(q * r, a)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_stays_in_its_matrix(cp: LinalgCupy, bad: float) -> None:
    """NaN and infinity are found where LAPACK finds them, and spoil no other matrix."""
    a = positive(3)
    a[1, 2, 2] = bad
    found = linalg.cholesky(cp.asarray(a), check=False)
    assert np.allclose(found[[0, 2]], each(scipy.linalg.cholesky, a[[0, 2]]))
    if np.isnan(bad):
        with pytest.raises(LinAlgError, match=r"^matrix 1: 3-th leading minor"):
            linalg.cholesky(cp.asarray(a))
    factors, _ = linalg.lu_factor(cp.asarray(a), check=False)
    assert not np.isfinite(factors[1]).all()
    assert np.isfinite(factors[[0, 2]]).all()


def wrong_calls(cp: LinalgCupy) -> dict[str, tuple[Any, str]]:
    """What cannot be called, and what the message says."""
    a, b = cp.asarray(positive()), cp.asarray(random(N, 2))
    large, single = cp.asarray(np.broadcast_to(1.0, (32769, 32769))), b.astype("float32")
    most = "matrices of 32769 rows or columns are too large; the kernels of"
    return {
        "host": (lambda: ANY.qr(positive()), "a is a numpy.ndarray; it must be an array on a GPU"),
        "list": (lambda: ANY.qr([[1.0]]), "a is a builtins.list; it must be an array on a GPU"),
        "type": (lambda: ANY.qr(a.astype(int)), "a has dtype int64; it must be float32 or float64"),
        "complex": (lambda: ANY.qr(a.astype(complex)), "a has dtype complex128; it must be"),
        "mixed": (lambda: ANY.solve(a, single), "b has dtype float32; it must be float64 as a is"),
        "vector": (lambda: ANY.qr(b[:, 0]), r"a has shape \(5,\); it must be \(\.\.\., m, n\)"),
        "square": (lambda: ANY.cholesky(b), r"a has shape \(5, 2\); it must be \(\.\.\., n, n\)"),
        "rows": (lambda: ANY.solve(a, b[:3]), r"b has shape \(3, 2\); it must be \(5,\) or"),
        "batch": (
            lambda: ANY.gemm(cp.asarray(random(2, N, N)), cp.asarray(random(3, N, N))),
            r"do not go together: a \(2,\), b \(3,\)",
        ),
        "inner": (lambda: ANY.gemm(b, b), r"op\(a\) has 2 columns and op\(b\) has 5 rows"),
        "addend": (
            lambda: ANY.gemm(a, b, beta=1, c=a),
            r"c has shape \(5, 5\); it must be \(\.\.\., 5, 2",
        ),
        "no c": (lambda: ANY.gemm(a, b, beta=2), "beta is 2 and there is no c"),
        "mode": (lambda: ANY.qr(a, "reduced"), "mode is 'reduced'; it must be one of full, economic"),
        "assumed": (lambda: ANY.solve(a, b, assume_a="sym"), "assume_a is 'sym'; it must be 'gen' or"),
        "side": (lambda: ANY.trsm(a, b, side="up"), "side is 'up'; it must be 'left' or 'right'"),
        "trans": (lambda: ANY.solve_triangular(a, b, "X"), "trans is 'X'; it must be 0 or 'N', or 1, 2"),
        "pivots": (
            lambda: ANY.lu_solve((a, b), b),
            r"piv has dtype float64 and shape \(5, 2\); it must be whole numbers of shape \(5,\)",
        ),
        "half pivots": (lambda: ANY.lu_solve((a, b[:, 0]), b), "piv has dtype float64 and shape"),
        "no array": (lambda: ANY.qr(None), "a is a builtins.NoneType; it must be an array on a GPU"),
        "no b": (lambda: ANY.solve(a, None), "b is a builtins.NoneType; it must be an array"),
        "gradient": (
            lambda: ANY.qr(NeedsGradient()),
            "a cannot be read as an array on a GPU: use",
        ),
        "no alpha": (lambda: ANY.gemm(a, b, alpha=None), "alpha is None; it must be a real number"),
        "alpha": (lambda: ANY.trsm(a, b, alpha="2"), "alpha is '2'; it must be a real number"),
        "beta": (lambda: ANY.gemm(a, b, beta=1j, c=b), "beta is 1j; it must be a real number"),
        "lower": (lambda: ANY.cholesky(a, "U"), "lower is 'U'; it must be True or False"),
        "unit": (lambda: ANY.trsm(a, b, unit_diagonal=2), "unit_diagonal is 2; it must be True or"),
        "permuted": (lambda: ANY.lu(a, permute_l="no"), "permute_l is 'no'; it must be True or False"),
        "trans_a": (lambda: ANY.gemm(a, b, trans_a="n"), "trans_a is 'n'; it must be 0 or 'N', or 1"),
        "sides": (lambda: ANY.trsm(a, b, side=["right"]), r"side is \['right'\]; it must be 'left' or"),
        "right": (
            lambda: ANY.trsm(a, b, side="right"),
            r"b has shape \(5, 2\); it must be \(\.\.\., k, 5\) for side='right'",
        ),
        "left": (
            lambda: ANY.trsm(a, b[:, 0]),
            r"b has shape \(5,\); it must be \(\.\.\., 5, k\) for",
        ),
        "pair": (lambda: ANY.lu_solve(a, b), r"lu_and_piv must be the pair \(lu, piv\) of lu_factor"),
        "factors": (
            lambda: ANY.lu_solve((a, cp.asarray(np.arange(5))), b[:3]),
            r"b has shape \(3, 2\); it must be \(5,\) or \(\.\.\., 5, k\) for lu of",
        ),
        "host pivots": (lambda: ANY.lu_solve((a, np.arange(5)), b), "piv is a numpy.ndarray; it must be"),
        "large potrf": (lambda: ANY.cholesky(large), f"{most} potrf take up to 32768"),
        "large getrf": (lambda: ANY.lu_factor(large[:, :2]), f"{most} getrf take up to 32768"),
        "large geqrf": (lambda: ANY.qr(large[:2]), f"{most} geqrf take up to 32768"),
    }


def test_wrong_calls_are_refused(cp: LinalgCupy) -> None:
    """The message names the call, the argument and what would be right; nothing is launched."""
    for call, told in wrong_calls(cp).values():
        with pytest.raises(InputError, match=f"^tuner\\.linalg\\.[a-z_]+: .*{told}"):
            call()
    assert HostCompiler.compiled == []


def placed(cp: LinalgCupy, values: Any, beyond: int) -> Any:
    """An array whose address is so many bytes beyond a multiple of 16."""
    flat = cp.empty((values.size + 2,), values.dtype)
    begin = (beyond - flat.data.ptr) % 16 // values.itemsize
    array = flat[begin : begin + values.size].reshape(values.shape)
    array[...] = values
    return array


def test_a_call_on_other_alignments_is_another(cp: LinalgCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that loads in vectors gets copies of what lies between, whichever argument that is."""
    addresses: list[int] = []
    launch = HostKernel.launch

    def noted(self: HostKernel, grid: Sequence[int], block: Sequence[int], args: Sequence[Any]) -> None:
        if self.stage.name == "gemm-batched":
            addresses.extend(array.data.ptr % 16 for array in args[:2])
        launch(self, grid, block, args)

    monkeypatch.setattr(HostKernel, "launch", noted)
    a, b = random(2, 4, 4), random(2, 4, 4)
    for beyond in ((8, 0), (0, 8), (8, 8), (0, 0)):
        assert near(linalg.gemm(placed(cp, a, beyond[0]), placed(cp, b, beyond[1])), a @ b)
    assert addresses == [0] * 8


def test_pivots_of_any_strides(cp: LinalgCupy) -> None:
    """Every second element of a wider array is copied first."""
    a, b = positive(3), random(3, N, 2)
    lu, pivots = linalg.lu_factor(cp.asarray(a))
    wide = cp.empty((3, 2 * N), "int32")
    wide[..., ::2] = pivots
    assert near(linalg.lu_solve((lu, wide[..., ::2]), cp.asarray(b)), np.linalg.solve(a, b))


def test_batches_of_more_axes_than_a_copy_follows(cp: LinalgCupy) -> None:
    """One matrix serves them all, is factored once, and is the one that an error names."""
    a, sides = positive(1)[0], random(*(2,) * 6, N, 2)
    b = cp.asarray(sides).transpose(5, 4, 3, 2, 1, 0, 6, 7)
    factors = linalg.lu_factor(cp.asarray(a))
    assert near(linalg.lu_solve(factors, b), np.linalg.solve(a, np.asarray(b)))
    with pytest.raises(LinAlgError) as told:
        linalg.solve(cp.asarray(np.zeros_like(a)), b)
    with pytest.raises(LinAlgError) as same:
        linalg.solve(cp.asarray(np.zeros_like(a)), cp.asarray(sides))
    assert str(told.value) == str(same.value)
