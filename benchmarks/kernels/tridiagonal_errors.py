"""Errors of the tridiagonal kernels, which do not pivot, beside LAPACK's gtsv, which does: on the host.

The kernels' own code, compiled by g++ (tests/host_build.py), in their default configurations: no GPU is
needed, and rounding is that of the source; a GPU contracts products and sums otherwise, which changes digits
and no power of ten. 16 systems of each kind. ``forward`` is the largest error of an unknown by the largest
unknown, against answers refined in long double; ``backward`` is what the check of ``tuner.tridiagonal.solve``
looks at.

    python benchmarks/kernels/tridiagonal_errors.py [--sizes 100 1000 5000] [--out FILE]
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import lapack

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests")]

import host_build  # noqa: E402 - behind its path
from provenance import command_line, provenance, save  # noqa: E402

from tuner.kernel_files.catalog import Catalog  # noqa: E402
from tuner.problems.tridiagonal import defects  # noqa: E402

SYSTEMS = 16
KERNELS = ("tridiag-wm", "tridiag-lf", "tridiag-cr", "tridiag-pcr", "tridiag-large")
Bands = tuple[Any, Any, Any, Any]


def _random(n: int, draw: Callable[[np.random.Generator, tuple[int, int]], tuple[Any, Any, Any]]) -> Bands:
    rng = np.random.default_rng(n)
    a, b, c = draw(rng, (SYSTEMS, n))
    return a, b, c, rng.uniform(-1, 1, (SYSTEMS, n))


def _dominant(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Any, Any, Any]:
    a, c = rng.uniform(-1, 1, (2, *shape))
    return a, abs(a) + abs(c) + 0.05, c


def _constant(a: float, b: float, c: float) -> Callable[..., tuple[Any, Any, Any]]:
    return lambda _, shape: tuple(np.full(shape, value) for value in (a, b, c))


KINDS: dict[str, Callable[..., tuple[Any, Any, Any]]] = {
    "dominant: |b| >= |a| + |c| + 0.05": _dominant,
    "second differences: -1, 2, -1": _constant(-1, 2, -1),
    "uniform in [-1, 1), no order": lambda rng, shape: tuple(rng.uniform(-1, 1, (3, *shape))),
    "small diagonal: 1, 0.1, 1": _constant(1, 0.1, 1),
    "tiny diagonal: 1, 1e-5, 1": _constant(1, 1e-5, 1),
    "zero diagonal: 1, 0, 1": _constant(1, 0, 1),
}


def right_answer(a: Any, b: Any, c: Any, d: Any) -> Any:
    """Answers in float64, refined three times by residuals in long double."""
    a, b, c, d = (band.astype(np.float64) for band in (a, b, c, d))
    x = gtsv(a, b, c, d).astype(np.longdouble)
    for _ in range(3):
        defect = d - b * x
        defect[:, 1:] -= a[:, 1:] * x[:, :-1]
        defect[:, :-1] -= c[:, :-1] * x[:, 1:]
        x += gtsv(a, b, c, defect.astype(np.float64))
    return x


def gtsv(a: Any, b: Any, c: Any, d: Any) -> Any:
    """LAPACK's answers, row by row: Gaussian elimination with partial pivoting."""
    solve = lapack.dgtsv if b.dtype == np.float64 else lapack.sgtsv
    return np.stack([solve(a[k, 1:], b[k], c[k, :-1], d[k])[3] for k in range(len(b))])


def _row(kind: str, kernel: str, bands: Bands, x: Any, right: Any) -> dict[str, Any]:
    with np.errstate(all="ignore"):
        forward = abs(x - right).max(axis=1) / abs(right).max(axis=1)
        defect, size = defects(*bands, x, periodic=False)
        backward = defect / size
    return {
        "kind": kind,
        "kernel": kernel,
        "n": x.shape[1],
        "dtype": x.dtype.name,
        "forward": _number(forward.max()),
        "backward": _number(backward.max()),
    }


def _number(value: float) -> float | str:
    """A number of JSON, which knows neither NaN nor infinity."""
    return float(f"{value:.3g}") if np.isfinite(value) else str(value)


def main() -> None:
    """Compute the table."""
    parser = command_line(__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[100, 1000, 5000])
    parser.add_argument("--types", nargs="*", default=["float32", "float64"], choices=["float32", "float64"])
    options = parser.parse_args()
    catalog, rows = Catalog.load(), []
    for n in options.sizes:
        for dtype in options.types:
            plans = {}
            for name in KERNELS:
                kernel = catalog.kernel(name)
                span = kernel.sizes["N"]
                if n in span:
                    workload = kernel.workload({"N": n, "dtype": dtype}, SYSTEMS)
                    plans[name] = kernel.plan(workload, kernel.default(workload))
            host_build.build_plans(list(plans.values()))
            for kind, draw in KINDS.items():
                a, b, c, d = (band.astype(dtype) for band in _random(n, draw))
                a[:, 0] = c[:, -1] = 0
                right = right_answer(a, b, c, d)
                bands = (a, b, c, d)
                answers = {"gtsv": gtsv(a, b, c, d)}
                for name, plan in plans.items():
                    inputs = dict(zip("abcd", (a, b, c, d), strict=True))
                    answers[name] = host_build.run_plan_on_host(plan, inputs)["x"]
                for name, x in answers.items():
                    rows.append(_row(kind, name, bands, x, right))
                    print(*rows[-1].values(), flush=True)
    save(options.out, {"provenance": provenance(), "systems": SYSTEMS, "rows": rows})


if __name__ == "__main__":
    main()
