"""How far what Rodinia's kernels leave is from right, by the laws of our kernels or in float64."""

import importlib.util
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.plan import Plan
from tuner.problems.base import Deviation
from tuner.problems.lookup import problem_for

Array = NDArray[Any]
Arrays = Mapping[str, Array]
Judge = Callable[[Arrays], Deviation]

MODULUS = 2**31 - 1  # INT_MAX, of the generator of its particle filter
POINT = np.dtype(
    {
        "names": ["weight", "coord", "assign", "cost"],
        "formats": [np.float32, np.uint64, np.int64, np.float32],
        "offsets": [0, 8, 16, 24],
        "itemsize": 32,
    }
)
"""The struct Point of its streamcluster, as C lays it out on 64-bit Linux."""

_FILTER_ALLOWED = 1e-10  # as kernels/particle-filter/kernel.toml has it, for its reasons
_GAIN_ALLOWED = 1e-4  # as kernels/streamcluster/kernel.toml has it


def law_judge(plan: Plan, inputs: Arrays, outputs: Callable[[Arrays], Arrays]) -> Judge:
    """By what the kernel file of ours says is right; ``outputs`` names arrays as it does."""
    sizes = {**dict(plan.workload.sizes), "batch": plan.workload.batch}
    problem = problem_for(plan.problem)
    return lambda arrays: problem.residual(np, inputs, outputs(arrays), sizes)


def gain_judge(kernel: KernelFile, plan: Plan, inputs: Arrays) -> Judge:
    """Savings and sums of the last call, of which alone the work array still tells."""
    sizes = {name: int(value) for name, value in plan.workload.sizes}
    n, centres, calls = sizes["N"], sizes["K"], sizes["CALLS"]
    known: dict[str, Array] = {}

    def judge(arrays: Arrays) -> Deviation:
        if not known:
            reference = beside(kernel, "reference.py")
            known.update(reference.gains(**inputs, N=n, K=centres, CALLS=calls))
        work = arrays["work"][: n * (centres + 1)].reshape(n, centres + 1).astype(np.float64)
        saving, gain = known["saving"][-1], known["gain"][-1]
        sums = -work.sum(axis=0)  # what closing a centre costs, and what switching saves, are negative there
        wrong = (arrays["switched"] != 0) != (saving > 0)
        near = saving <= _GAIN_ALLOWED * saving.max()  # rounding may decide of a point at its limit
        return worst(
            {
                "savings": float(np.abs(-work[:, centres] - saving).max() / saving.max()),
                "sums": float(np.abs(sums - gain).max() / gain.max()),
                "points that wrongly switch or stay": float((wrong & ~near).sum()),
            },
            _GAIN_ALLOWED,
        )

    return judge


def tracked(kernel: KernelFile, inputs: Arrays) -> dict[str, Array]:
    """Places after a move, their distribution and the points at which it is searched, in float64."""
    laws = beside(kernel, "laws.py")
    x, y = laws.moved(inputs["x"], inputs["y"])
    cdf = np.cumsum(laws.weights(inputs["frame"], x, y))
    return {"arrayX": x, "arrayY": y, "CDF": cdf / cdf[-1], "u": (np.arange(len(x)) + 0.5) / len(x)}


def naive_judge(given: Arrays) -> Judge:
    """Places that are not those of the first particle whose distribution reaches u."""
    found = np.minimum(np.searchsorted(given["CDF"], given["u"]), len(given["u"]) - 1)

    def judge(arrays: Arrays) -> Deviation:
        wrong = (arrays["xj"] != given["arrayX"][found]) | (arrays["yj"] != given["arrayY"][found])
        return worst({"wrong places": float(wrong.sum())}, _FILTER_ALLOWED)

    return judge


def filter_judge(plan: Plan, given: Arrays) -> Judge:
    """Each step of a frame, from what the step before left.

    The first u is drawn by one thread and read by all blocks, with no barrier between blocks (a race of
    Rodinia's): a block finds the new one or the one before, 0 here. Either is less than 1 / N, which is all
    that is asked. In the same way one thread adds up weights that other blocks divide by their sum. It comes
    to them long after that where all blocks are on the GPU at a time; where it does not, the distribution is
    wrong, and told so.
    """
    n, high = len(given["xj"]), int(dict(plan.workload.sizes)["H"])

    def judge(arrays: Arrays) -> Deviation:
        x, y, cdf, u = (arrays[name] for name in ("arrayX", "arrayY", "CDF", "u"))
        right_x, right_y = _moved(given)
        right = np.cumsum(_weights(given, x, y, high).astype(np.longdouble))
        first = u - np.arange(n) / n
        found = np.minimum(np.searchsorted(cdf, u), n - 1)
        return worst(
            {
                "moves": float(max(_relative(x, right_x), _relative(y, right_y))),
                "distribution": float(np.abs(cdf - right / right[-1]).max()),
                "wrong points of the search": float((~((first > -1e-12) & (first < 1 / n + 1e-12))).sum()),
                "wrong places": float(((arrays["xj"] != x[found]) | (arrays["yj"] != y[found])).sum()),
            },
            _FILTER_ALLOWED,
        )

    return judge


def _moved(given: Arrays) -> tuple[Array, Array]:
    """Its moves: a linear congruential generator in 32 bits, and Box-Muller."""
    state, drawn = given["seed"].astype(np.int64), []
    for _ in range(4):
        state = (state * 1103515245 + 12345 + 2**31) % 2**32 - 2**31  # of an int that overflows
        state = np.sign(state) * (np.abs(state) % MODULUS)
        drawn.append(np.abs(state / MODULUS))
    normal = [np.sqrt(-2 * np.log(drawn[i])) * np.cos(2 * np.pi * drawn[i + 1]) for i in (0, 2)]
    return given["xj"] + 1.0 + 5.0 * normal[0], given["yj"] - 2.0 + 2.0 * normal[1]


def _weights(given: Arrays, x: Array, y: Array, high: int) -> Array:
    """Likelihoods; a pixel outside of the frame is another one of it, or the first, as its index has it."""
    frame, offsets = given["frame"].astype(np.int64), given["offsets"].reshape(-1, 2).astype(np.int64)
    column, row = np.trunc(x).astype(np.int64), np.trunc(y).astype(np.int64)
    total = np.zeros(len(x), np.int64)
    for dy, dx in offsets:
        place = np.abs((column + dx) * high + row + dy)
        pixel = frame[np.where(place >= frame.size, 0, place)]
        total += (pixel - 100) ** 2 - (pixel - 228) ** 2
    return np.exp(total / (50.0 * len(offsets))) / len(x)


def _relative(values: Array, right: Array) -> float:
    return float(np.abs(values - right).max() / np.abs(right).max())


def worst(errors: Mapping[str, float], allowed: float) -> Deviation:
    """The largest of some errors, NaN first."""
    name = max(errors, key=lambda one: np.nan_to_num(errors[one], nan=np.inf))
    return Deviation(float(np.nan_to_num(errors[name], nan=np.inf)), allowed, name, 0)


@cache
def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        f"rodinia_{path.parent.name}_{path.stem}".replace("-", "_"), path
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def beside(kernel: KernelFile, name: str) -> ModuleType:
    """A Python file beside a kernel file."""
    return _module(Path(kernel.path).with_name(name))
