"""Cholesky, LU and QR factorisations."""

import math
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from tuner.application.functions import Call, flag, place
from tuner.application.keys import Array
from tuner.linalg.composed import Finish, Matrices, Recipe, on_host, perform
from tuner.linalg.operations import (
    MATRIX_AXES,
    ROUTES,
    as_matrices,
    called,
    check_matrices,
    column_major,
    compact,
    is_batched,
    route,
    row_major,
    run,
    set_diagonal,
)
from tuner.linalg.products import Blas, gemm, only, squares
from tuner.linalg.residuals import RESIDUAL, of_cholesky, of_qr, refuse_residuals
from tuner.model.plan import BufferView, LibraryCall, Operand, Scalar

BLOCK = 256
"""Reflections applied at once; the last ones come first, so that zeros are left out."""


def form_q(call: Call, blas: Blas, factors: Array, tau: Array, out: Array) -> None:
    """Write the first columns of Q.

    A block of reflections is ``I - V T V'`` with ``T^-1 = striu(V' V) + diag(1 / tau)``; see Joffrain, Low,
    Quintana-Orti, van de Geijn and Van Zee, "Accumulating Householder transformations, revisited" (2006).

    Args:
        call: which call.
        blas: multiplies.
        factors: of LAPACK's form, column-major: element (i, j) is ``factors[j, i]``, (reflections, rows).
        tau: (reflections,).
        out: C-contiguous, (rows, columns), with as many columns as reflections or more.
    """
    cp, (count, rows), columns = call.cp, factors.shape, out.shape[1]
    out.fill(0)
    out.reshape(-1)[: columns * columns : columns + 1] = 1
    for first in reversed(range(0, count, BLOCK)):
        scales = tau[first : first + BLOCK]
        width = len(scales)
        vectors = cp.empty((width, rows - first), factors.dtype)  # V', a row for each reflection
        vectors[...] = cp.triu(factors[first : first + width, first:], 1)
        _set_diagonal(vectors, 1)
        vectors *= (scales != 0)[:, None]  # one that does nothing is left out
        triangle = cp.empty((width, width), factors.dtype)
        blas.multiply(vectors, vectors.T, triangle)
        _set_diagonal(triangle, 1 / cp.where(scales == 0, 1, scales))
        part = out[first:, first:]
        product = cp.empty((columns - first, width), factors.dtype).T
        blas.multiply(vectors, part, product)
        blas.solve(triangle, product, lower=False)
        blas.multiply(vectors.T, product, part, alpha=-1, beta=1)


def _set_diagonal(matrix: Array, values: Array) -> None:
    """Put values onto the diagonal of a C-contiguous matrix that has no more rows than columns."""
    matrix.reshape(-1)[:: matrix.shape[1] + 1][: len(matrix)] = values


MODES = ("full", "economic", "r", "raw")

TALL = 2  # times as many rows as columns
LEAST_PART = 128  # rows that a batched kernel takes
PROBES = 8
ALLOWED_PROBE = 8  # units of roundoff, times n: those of A - Q R, by columns of norm 1


def cholesky(
    a: Any,  # noqa: ANN401 - an array on the GPU
    lower: bool = False,
    *,
    check: bool | str = True,
) -> Array:
    """Cholesky factors, as ``scipy.linalg.cholesky``.

    Args:
        a: symmetric positive definite, (..., n, n), float32 or float64; one triangle is read.
        lower: whether the result is L of ``a = L L'``, else R of ``a = R' R``; the same triangle is read.
        check: whether to wait for the GPU and look for failures; without it, factors of a matrix that is not
            positive definite are unspecified. ``residual`` multiplies a vector, too: 12 n² operations beside
            n³ / 3, and two copies of a.

    Returns:
        (..., n, n), with zeros in the other triangle.

    Raises:
        LinAlgError: a matrix is not positive definite; the message names the first, and the minor. Or a
            backward error is too large.
        InputError: an argument cannot be used, or n is beyond the kernels.
    """
    measure = of_cholesky(lower=bool(lower))
    return perform("cholesky", _cholesky, {"a": a}, lower, check=check, measure=measure)


def _cholesky(call: Call, matrices: Array, lower: bool) -> tuple[Recipe, Finish] | Array:
    lower = flag(call, "lower", lower)
    lead, _ = square_shape(call, matrices, "potrf")
    if not matrices.size:
        return call.cp.zeros(matrices.shape, matrices.dtype)
    recipe = Recipe(call, {"a": matrices})
    given = recipe.given("a")
    factor = potrf(recipe, call, given.turned if lower else given, out=True)

    def finish(made: Sequence[Array], check: bool) -> Array:
        if check:
            refuse_indefinite(made[-1], lead)
        return made[0].swapaxes(-1, -2) if lower else made[0]

    del factor
    return recipe, finish


def potrf(recipe: Recipe, call: Call, source: Matrices, *, out: bool) -> Matrices:
    """Cholesky factors in memory of their own: column-major, or of the transposed matrices row-major.

    Args:
        recipe: of the call; ``info`` becomes a result of it.
        call: which call.
        source: (..., n, n), of which one triangle is read, that on and above the diagonal.
        out: whether the factors are a result of the call, too.

    Returns:
        Of the shape of the source, with zeros below the diagonal.
    """
    n, batch = source.shape[-1], math.prod(source.lead)
    factor = recipe.array("factor", *source.shape, out=out)
    info = recipe.array("info", batch, dtype="int32", out=True)
    found = route(call, "potrf", n)
    if found.batched or batch == 1:
        recipe.move(source, factor, part="UPPER")
        recipe.kernel(found.kernel, n, batch, {"A": factor.buffer, "info": info.buffer})
        return factor
    whole = recipe.array("whole", 1, n, n)  # one behind another of odd order
    for number in range(batch):
        recipe.move(source, whole, part="UPPER", number=number)
        arrays: dict[str, str | BufferView] = {"A": whole.buffer, "info": BufferView(info.buffer, number)}
        recipe.kernel(found.kernel, n, 1, arrays)
        recipe.move(whole, factor, into=number)
    return factor


def refuse_indefinite(info: Array, lead: tuple[int, ...]) -> None:
    """Wait for the GPU, and refuse matrices that are not positive definite.

    Raises:
        LinAlgError: the message names the first, and the minor.
    """
    found = first_failure(info)
    if found is not None:
        where, minor = found
        raise np.linalg.LinAlgError(
            f"{place(where, lead)}{minor}-th leading minor of the array is not positive definite"
        )


def lu_factor(a: Any, *, check: bool = True) -> tuple[Array, Array]:  # noqa: ANN401 - an array on the GPU
    """LU factors with partial pivoting, as ``scipy.linalg.lu_factor``.

    Args:
        a: (..., m, n), float32 or float64.
        check: whether to wait for the GPU and warn of singular matrices.

    Returns:
        lu: (..., m, n): U on and above the diagonal, below it L, whose diagonal of ones is not stored.
        piv: (..., min(m, n)), int32, from 0: row i was exchanged with row ``piv[i]``.

    Raises:
        InputError: the argument cannot be used, or m or n is beyond the kernels.

    Warns:
        scipy.linalg.LinAlgWarning: a matrix has a pivot that is exactly zero.
    """
    factors, pivots = perform("lu_factor", _lu_factor, {"a": a}, check=check)
    return factors, pivots


def _lu_factor(call: Call, matrices: Array) -> tuple[Recipe, Finish] | tuple[Array, Array]:
    check_matrices(call, "a", matrices)
    lead, (m, n) = tuple(matrices.shape[:-2]), matrices.shape[-2:]
    least = min(m, n)
    if not matrices.size:
        check_order(call, "getrf", max(m, n))
        zeros = call.cp.zeros
        return zeros(matrices.shape, matrices.dtype), zeros((*lead, least), "int32")
    recipe = Recipe(call, {"a": matrices})
    getrf(recipe, call, recipe.given("a"), out=True)

    def finish(made: Sequence[Array], check: bool) -> tuple[Array, Array]:
        factors, pivots, info = made
        found = first_failure(info) if check else None
        if found is not None:
            _warn(f"{place(found[0], lead)}Diagonal number {found[1]} is exactly zero. Singular matrix.")
        return factors.swapaxes(-1, -2), pivots

    return recipe, finish


def getrf(recipe: Recipe, call: Call, source: Matrices, *, out: bool) -> tuple[Matrices, Matrices]:
    """LU factors of matrices that are not empty, small ones filled up with zeros to squares.

    Of wide matrices the left square is factored, and the rest follows.

    Args:
        recipe: of the call; ``info`` becomes the last result of it.
        call: which call.
        source: (..., m, n).
        out: whether factors and pivots are results of the call, too.

    Returns:
        Column-major factors (..., n, m), and pivots from 0, (..., min(m, n)).

    Raises:
        InputError: no kernel takes matrices as large.
    """
    m, n = source.shape[-2:]
    check_order(call, "getrf", max(m, n))
    factors = recipe.array("lu", *source.lead, n, m, out=out)
    if m < n and not is_batched("getrf", n):
        return factors, _wide_getrf(recipe, call, source, factors)
    return factors, _square_getrf(recipe, call, source, factors, out=out)


def _wide_getrf(recipe: Recipe, call: Call, source: Matrices, factors: Matrices) -> Matrices:
    """Factors of the left square, then the rows of U right of it; returns pivots, which are a result."""
    m = source.shape[-2]
    left = recipe.array("left", *source.lead, m, m)
    pivots = _square_getrf(recipe, call, source.seen(lambda one: one[..., :m]), left, out=True)
    order = recipe.exchanges(pivots.seen(lambda one: one.reshape(-1, m)), m, m)
    wide = order.seen(lambda one: one.reshape(*source.lead, m))
    recipe.move(source.turned, factors, order=wide)
    for at in np.ndindex(*source.lead):
        one = factors.at(at)
        recipe.move(left.at(at), one.seen(lambda rows: rows[:m]))
        right = Operand(one.buffer, one.begin + m * m, m)
        operands = (("a", Operand(one.buffer, one.begin, m)), ("b", right))
        recipe.library(LibraryCall("trsm", recipe.dtype, operands, m, one.shape[0] - m, unit=True))
    return pivots


def _square_getrf(recipe: Recipe, call: Call, source: Matrices, factors: Matrices, *, out: bool) -> Matrices:
    """Factors in their place, (..., n, m); returns pivots."""
    m, n = source.shape[-2:]
    least, batch = min(m, n), math.prod(source.lead)
    found = route(call, "getrf", max(m, n))
    order, height = (max(m, n),) * 2 if found.batched else (n, m)
    settled = recipe.array("piv", *source.lead, least, dtype="int32", out=out)
    info = recipe.array("info", batch, dtype="int32", out=True)
    square = m == n
    pivots = settled if square else recipe.array("getrf pivots", batch, order, dtype="int32")
    pivots = pivots.seen(lambda one: one.reshape(batch, order))
    at_once = found.batched or batch == 1
    fits = at_once and (order, height) == (n, m)
    whole = factors if fits else recipe.array("whole", batch if at_once else 1, order, height)
    from_none = found.batched and square  # the kernel numbers rows from 0, if told to, and reads other arrays
    is_read = from_none and (recipe.is_read(source) or recipe.is_read(source.turned))
    for number in [None] if at_once else range(batch):
        if not is_read:
            recipe.move(source.turned, whole, number=number)
        first = number or 0
        arrays: dict[str, str | BufferView] = {
            "A": whole.buffer,
            "ipiv": BufferView(pivots.buffer, first * order),
            "info": BufferView(info.buffer, first),
        }
        turned = Scalar("bool", is_read and not source.turned.contiguous)
        read = source.buffer if is_read else whole.buffer
        last = (Scalar("int32", 0), read, turned) if from_none else ()
        recipe.kernel(found.kernel, order, batch if at_once else 1, arrays, rows=height, last=last)
        if whole is not factors:
            recipe.move(whole.seen(lambda one: one[..., :n, :m]), factors, into=first)
    if not from_none:
        recipe.settle(pivots, settled, info, m)
    return settled


def lu(
    a: Any,  # noqa: ANN401 - an array on the GPU
    permute_l: bool = False,
    *,
    p_indices: bool = False,
) -> tuple[Array, ...]:
    """``a = P L U``, as ``scipy.linalg.lu``.

    Args:
        a: (..., m, n), float32 or float64.
        permute_l: return ``P L`` and U.
        p_indices: return P as row numbers p, so that ``a = L[p] U``.

    Returns:
        P (..., m, m) or (..., m) of int32, L (..., m, k), U (..., k, n), k = min(m, n).

    Raises:
        InputError: the argument cannot be used, or m or n is beyond the kernels.
    """
    with called("lu", a=a) as (call, given):
        permute_l, p_indices = flag(call, "permute_l", permute_l), flag(call, "p_indices", p_indices)
        matrices, pivots = lu_factor(given, check=False)
        cp, lead, (m, n) = call.cp, tuple(matrices.shape[:-2]), matrices.shape[-2:]
        least = min(m, n)
        upper, lower = (cp.empty((*lead, *shape), matrices.dtype) for shape in ((least, n), (m, least)))
        upper[...] = cp.triu(matrices[..., :least, :])
        lower[...] = cp.tril(matrices[..., :, :least], -1)
        lower[...] += cp.eye(m, least, dtype=matrices.dtype)
        rows = cp.broadcast_to(cp.arange(m, dtype="int32"), (math.prod(lead), m))
        order = perform("lu", _order, {}, m, also={"piv": pivots}) if pivots.size else rows
        inverse = cp.empty(order.shape, "int32")
        inverse[...] = cp.argsort(order, axis=1)  # row i of a is row inverse[i] of L U
        inverse = inverse.reshape(*lead, m)
        if permute_l:
            moved = cp.take_along_axis(lower, inverse[..., None], axis=-2)
            return call.returned(moved), call.returned(upper)
        order = inverse
        if not p_indices:
            order = cp.zeros((*lead, m, m), matrices.dtype)
            order[...] = inverse[..., None] == cp.arange(m)
        return call.returned(order), call.returned(lower), call.returned(upper)


def _order(call: Call, pivots: Array, rows: int) -> tuple[Recipe, Finish]:
    """Row numbers after the exchanges, (batch, rows): row i is what row ``result[:, i]`` was."""
    recipe, count = Recipe(call, {"piv": pivots}), pivots.shape[-1]
    flat = recipe.given("piv").seen(lambda one: one.reshape(-1, count))
    recipe.exchanges(flat, count, rows, out=True)
    return recipe, only


def qr(
    a: Any,  # noqa: ANN401 - an array on the GPU
    mode: str = "full",
    *,
    check: bool | str = False,
) -> tuple[Any, ...]:
    """``a = Q R``, as ``scipy.linalg.qr``; by Householder reflections but for tall matrices.

    Q is formed as ``I - V T V'`` with ``T^-1 = striu(V' V) + diag(1 / tau)``, of large matrices block by
    block; see ``tuner.linalg.factorisations``. Of wide matrices the left square is factored.

    Tall matrices in economic mode, of more than 128 rows and at least twice as many as columns, are factored
    by Cholesky's factors of A'A, R with no negative number on its diagonal. The call waits for the GPU, and
    looks at the errors: Q'Q is to be I, and Q R to be A by each column, to 8 √n units of roundoff. Where the
    condition is above some 10² in float32 or 10⁴ in float64, columns by their norms, that takes more
    factorisations, in float64. Where the errors are still too large, as of columns of zeros, of a rank of a
    few, or of numbers near the ends of their range, all matrices of the call are factored by reflections,
    which takes many times as long.

    Args:
        a: (..., m, n), float32 or float64.
        mode: ``full``, ``economic``, ``r`` or ``raw``.
        check: True or ``residual`` to wait for the GPU and multiply Q R by a vector, of the modes ``full``
            and ``economic``: 8 m n operations beside 2 m n² - 2 n³ / 3 and those that form Q.

    Returns:
        ``(Q, R)``: (..., m, m) and (..., m, n); economic (..., m, k) and (..., k, n), k = min(m, n).
        ``(R,)`` for ``r``. ``((qr, tau), R)`` for ``raw``: LAPACK's factors (..., m, n), tau (..., k), and
        R (..., k, n).

    Raises:
        LinAlgError: a backward error is too large.
        InputError: an argument cannot be used, or m or n is beyond the kernels; m is not if the mode is
            economic and n at most 8192.
    """
    shape: Any = getattr(a, "shape", None)
    known = isinstance(shape, tuple) and len(shape) >= MATRIX_AXES
    tried = known and mode == "economic" and check is False and is_tall(shape)
    found = _tall(a) if tried else ()  # without borrowing the array first
    if found:
        return found
    with called("qr", a=a) as (call, matrices):
        check_matrices(call, "a", matrices)
        checked = check == RESIDUAL or flag(call, "check", check)
        if mode not in MODES:
            raise call.wrong(f"mode is {mode!r}; it must be one of {', '.join(MODES)}")
        if mode == "economic" and is_tall(matrices.shape):
            found = (() if tried else _tall(matrices)) or _shifted(matrices)
            found = found or _positive(call, *_by_tree(call, matrices))
        found = found or _by_reflections(call, matrices, mode)
        if checked and mode in {"full", "economic"}:
            refuse_residuals(call, of_qr, (matrices,), found)
        made = [call.returned(one) for one in found]
        return ((made[0], made[1]), made[2]) if mode == "raw" else tuple(made)


def _by_reflections(call: Call, matrices: Array, mode: str) -> tuple[Array, ...]:
    """Q and R, R, or LAPACK's factors, tau and R; of wide matrices the left square is factored.

    Raises:
        InputError: no kernel takes matrices as large.
    """
    cp, lead, (m, n) = call.cp, tuple(matrices.shape[:-2]), matrices.shape[-2:]
    check_order(call, "geqrf", max(m, n))
    wide = 0 < m < n and not is_batched("geqrf", n)
    square = matrices[..., :m] if wide else matrices
    order, least = max(square.shape[-2:]), min(m, n)
    if matrices.size:
        factors, tau = run(call, "geqrf", column_major(call, square, order=order))
    else:
        factors = cp.zeros((math.prod(lead), order, order), matrices.dtype)
        tau = cp.zeros(factors.shape[:2], matrices.dtype)
    found = as_matrices(factors[:, : square.shape[-1], :m], lead)
    q = None
    if wide or mode in {"full", "economic"}:
        columns = m if mode == "full" else least
        if order and not is_batched("geqrf", order):
            q = _large_orthogonal(call, factors[:, :least, :m], tau[:, :least], columns)
        else:
            q = compact(_orthogonal(call, factors, tau)[:, :m, :columns])
        q = q.reshape(*lead, m, columns)
    if wide:
        square, found = found, cp.empty((*lead, n, m), matrices.dtype).swapaxes(-1, -2)
        found[..., :m] = square
        found[..., m:] = gemm(q, matrices[..., m:], trans_a=True)
    rows = m if mode in {"full", "r"} else least
    upper = cp.empty((*lead, rows, n), matrices.dtype)
    upper[...] = cp.triu(found[..., :rows, :])
    if mode == "r":
        return (upper,)
    if mode == "raw":
        return found, compact(tau[:, :least]).reshape(*lead, least), upper
    return q, upper


def _part(matrices: Array) -> int:
    """Rows that are factored together in a tree; all of them where no kernel takes a part of them."""
    m, n = map(int, matrices.shape[-2:])
    part = max(LEAST_PART, 4 * n)
    return part if part <= ROUTES["geqrf"][-1].most else m


def _by_tree(call: Call, matrices: Array) -> tuple[Array, Array]:
    """Q and R of tall matrices: parts of their rows are factored, then the R of all parts, and so on.

    See Demmel, Grigori, Hoemmen and Langou, "Communication-optimal parallel and sequential QR and LU
    factorizations" (2012).
    """
    (*lead, m, n), part = matrices.shape, _part(matrices)
    if m <= part:
        return _by_reflections(call, matrices, "economic")
    parts = -(-m // part)
    filled = call.cp.zeros((*lead, parts * part, n), matrices.dtype)
    filled[..., :m, :] = matrices
    below, r = _by_reflections(call, filled.reshape(*lead, parts, part, n), "economic")
    above, r = _by_tree(call, r.reshape(*lead, parts * n, n))
    filled.reshape(*lead, parts, part, n)[...] = gemm(below, above.reshape(*lead, parts, n, n))
    return compact(filled[..., :m, :]), r


def _positive(call: Call, q: Array, r: Array) -> tuple[Array, Array]:
    """Q and R with no negative number on the diagonal of R, in their place."""
    signs = call.cp.where(r.diagonal(0, -2, -1) < 0, -1, 1).astype(r.dtype)
    q *= signs[..., None, :]
    r *= signs[..., None]
    return q, r


def is_tall(shape: Sequence[int]) -> bool:
    """Return True if Q of the first columns is found by Cholesky factorisations."""
    return 0 not in shape and shape[-2] >= TALL * shape[-1] and not is_batched("geqrf", shape[-2])


def _tall(a: Any) -> tuple[Any, ...]:  # noqa: ANN401 - an array on the GPU
    """Q and R of tall matrices by Cholesky factorisations; nothing if their errors are too large."""
    found: tuple[Any, ...] = perform("qr", _by_cholesky, {"a": a}, 0)
    return found


def _shifted(matrices: Array) -> tuple[Array, ...]:
    """The same of any condition: of float32 in float64, which holds the squares of most conditions."""
    wide = matrices.astype(np.float64, copy=False)
    found: tuple[Array, ...] = ()
    for shifts in (2,) if matrices.dtype == np.float64 else (1, 2):
        found = found or perform("qr", _by_cholesky, {"a": wide}, shifts)
    return tuple(one.astype(matrices.dtype, copy=False) for one in found)


def _by_cholesky(call: Call, matrices: Array, shifts: int) -> tuple[Recipe, Finish]:
    """Q and R of tall matrices, R with a positive diagonal; nothing if their errors are too large.

    CholeskyQR2 (Yamamoto, Nakatsukasa, Yanagisawa and Fukaya, "Roundoff error analysis of the CholeskyQR2
    algorithm", 2015): R of A'A, Q = A / R, and the same once more with Q. As Q'Q = I + E with E² below
    roundoff, the second factor is I + U, where U + U' = E. Shifted factors before (Fukaya, Kannan,
    Nakatsukasa, Yamamoto and Yanagisawa, "Shifted Cholesky QR", 2020) make A of any condition one that can be
    factored so; here they are relative to each column.

    The sums of the rows of |E| bound what Q lacks, and Q R is held to A by vectors of random signs, for
    libraries may divide by R with inverses of its blocks.

    Args:
        call: which call.
        matrices: (..., m, n).
        shifts: factorisations with a shift, before those without.
    """
    lead, (m, n) = tuple(matrices.shape[:-2]), matrices.shape[-2:]
    batch, u = math.prod(lead), float(np.finfo(matrices.dtype).eps) / 2
    check_order(call, "geqrf", min(m, _part(matrices)))
    recipe = Recipe(call, {"a": matrices})
    given = recipe.given("a")
    q, r = recipe.array("q", *lead, m, n, out=True), recipe.array("r", *lead, n, n, out=True)
    verdict = recipe.array("verdict", batch * (n + PROBES * PROBES), out=True)
    first, grams = recipe.array("first", *lead, m, n), recipe.array("grams", *lead, n, n)
    probes = recipe.array("probes", *lead, n, PROBES)
    factors: list[Matrices] = []
    recipe.move(given, first)
    for number in range(shifts + 2):
        for at in np.ndindex(*lead):
            recipe.multiply(first.at(at).turned, first.at(at), grams.at(at))
        if number == 0:
            recipe.probes(grams, probes)
        if number < shifts:
            recipe.shift(grams, (n + 16) * u)
        if number <= shifts:
            factors.append(potrf(recipe, call, grams, out=False))
            for at in np.ndindex(*lead):
                a, b = (Operand(one.buffer, one.at(at).begin, n) for one in (factors[-1], first))
                recipe.library(LibraryCall("trsm", recipe.dtype, (("a", a), ("b", b)), m=n, n=m))
    near, inverse = recipe.array("near", *lead, n, n), recipe.array("inverse", *lead, n, n)
    recipe.near_unit(grams, near, inverse, verdict)
    products = [recipe.array("product", *lead, n, n) for _ in range(shifts)] + [r]
    errors = verdict.seen(lambda one: one[batch * n :].reshape(batch, PROBES, PROBES))
    right, defect = recipe.array("right", n, PROBES), recipe.array("defect", m, PROBES)
    for number, at in enumerate(np.ndindex(*lead)):
        recipe.multiply(first.at(at), inverse.at(at), q.at(at))
        left = near
        for factor, product in zip(reversed(factors), products, strict=True):
            recipe.multiply(left.at(at), factor.at(at), product.at(at))
            left = product
        recipe.multiply(r.at(at), probes.at(at), right)
        recipe.multiply(given.at(at), probes.at(at), defect)
        recipe.multiply(q.at(at), right, defect, -1, 1)
        recipe.multiply(defect.turned, defect, errors.at((number,)))

    def finish(made: Sequence[Array], check: bool) -> tuple[Array, ...]:
        del check
        found = on_host(made[2])
        off, products = found[: batch * n], found[batch * n :].reshape(batch, PROBES, PROBES)
        right = products.diagonal(0, 1, 2) <= (ALLOWED_PROBE * n * u) ** 2
        return (made[0], made[1]) if (off**2 <= u * math.sqrt(n)).all() and right.all() else ()

    return recipe, finish


def _large_orthogonal(call: Call, factors: Array, tau: Array, columns: int) -> Array:
    """Q of column-major factors (batch, reflections, rows), row-major, (batch, rows, columns)."""
    blas = Blas(call)
    made = call.cp.empty((len(factors), factors.shape[-1], columns), factors.dtype)
    for number, out in enumerate(made):
        form_q(call, blas, factors[number], tau[number], out)
    return made


def _orthogonal(call: Call, factors: Array, tau: Array) -> Array:
    """Q of column-major factors, row-major, (batch, order, order)."""
    cp, (batch, order, _) = call.cp, factors.shape
    unit = cp.zeros(factors.shape, factors.dtype)
    set_diagonal(unit, 1)
    if not factors.size:
        return unit
    turned = cp.empty(factors.shape, factors.dtype)  # V', a row for each reflection
    turned[...] = cp.triu(factors, 1)
    turned += unit
    turned *= (tau != 0).reshape(batch, order, 1)  # one that does nothing is left out
    reflections = row_major(call, turned.swapaxes(-1, -2))
    triangle = squares(call, turned, reflections)
    set_diagonal(triangle, 1 / cp.where(tau == 0, 1, tau))
    solved = run(call, "trsm", triangle, reflections)  # the triangle's transpose is lower
    unit -= squares(call, solved, turned)
    return unit


def square_shape(call: Call, matrices: Array, operation: str) -> tuple[tuple[int, ...], int]:
    """Axes of the batch, and the order.

    Raises:
        InputError: the matrices are not square, or too large.
    """
    check_matrices(call, "a", matrices, square=True)
    n = int(matrices.shape[-1])
    check_order(call, operation, n)
    return tuple(matrices.shape[:-2]), n


def check_order(call: Call, operation: str, order: int) -> None:
    """Refuse matrices that no kernel takes.

    Raises:
        InputError: they are too large.
    """
    if order:
        route(call, operation, order)


def first_failure(info: Array) -> tuple[int, int] | None:
    """Number of the first matrix that failed, and its info; waits for the GPU."""
    host = on_host(info).reshape(-1)
    failed = np.flatnonzero(host)
    return (int(failed[0]), int(host[failed[0]])) if len(failed) else None


def _warn(message: str) -> None:
    from scipy.linalg import LinAlgWarning  # noqa: PLC0415 - takes long, and few matrices are singular

    level, frame = 1, sys._getframe()  # noqa: SLF001 - the caller's line is shown, whatever is between
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("tuner."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, LinAlgWarning, stacklevel=level)
