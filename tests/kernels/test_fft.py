"""The transforms under one contract: any length, way and shape, right on the host, each problem by itself."""

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import host_build
import numpy as np
import numpy.typing as npt
import pytest
from compiled_stages import compiled_stages
from examples import FEW
from host_build import CHECKED, FLAGS, ORDERS, Order
from hypothesis import given
from hypothesis import strategies as st
from kernel_plans import DEFAULT, STATED, Sizes, Values, kernel_of, large_batch, plan_of

from tuner.application.keys import ArrayForm, workload_for
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import UnknownNameError
from tuner.model.plan import Configuration, Plan, TunableValue
from tuner.problems.base import poison
from tuner.problems.lookup import problem_for

Array = npt.NDArray[Any]
Arrays = dict[str, Array]

SIZES = [2**k for k in range(1, 14)]  # of the kernel `fft`
COMPLEX, REAL, WAYS = ("complex64", "complex128"), ("float32", "float64"), ("forward", "inverse")
ROUNDING = {"complex64": 2.0**-24, "float32": 2.0**-24, "complex128": 2.0**-53, "float64": 2.0**-53}
LONGEST = 2**24
DRAWN: Values = {"drawn": True}  # at random

needs_compiler = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


class Case(NamedTuple):
    """Problems for a kernel; the first configuration with such values, ``DEFAULT``, ``STATED`` or ``DRAWN``.

    What is stated is that of a large batch.
    """

    kernel: str
    sizes: Sizes
    batch: int = 1
    values: Values = DEFAULT
    flags: tuple[str, ...] = FLAGS

    def __str__(self) -> str:
        return f"{self.kernel} {self.batch} of {dict(self.sizes)} {dict(self.values)}"

    def plan(self) -> Plan:
        kernel = kernel_of(self.kernel)
        workload = kernel.workload(self.sizes, self.batch)
        if self.values is DRAWN:
            space = kernel.space(workload)
            drawn = np.random.default_rng(int(self.sizes["N"])).integers(len(space))
            return kernel.plan(workload, space[int(drawn)])
        if self.values is STATED:
            stated = plan_of(self.kernel, self.sizes, large_batch(self.sizes), STATED)
            return kernel.plan(workload, stated.configuration)
        return plan_of(self.kernel, self.sizes, self.batch, self.values)


def case(kernel: str, N: int, way: str = "forward", dtype: str = "", batch: int = 1, **more: Any) -> Case:
    """Rows of one length."""
    numbers = {"dtype": dtype} if dtype else {}
    return Case(kernel, {"N": N, "direction": way, **numbers}, batch, **more)


def both_ways(kernel: str, N: int) -> list[Case]:
    """The default one way, and a random configuration the other way; types take turns."""
    dtypes = COMPLEX if kernel == "fft-any" else REAL
    return [
        case(kernel, N, way, dtypes[(k + N) % 2], 5, values=DRAWN if k else DEFAULT)
        for k, way in enumerate(WAYS)
    ]


def sizes_of(plan: Plan) -> dict[str, int | str]:
    return dict(plan.workload.sizes)


def inputs_of(plan: Plan, seed: int = 1) -> Arrays:
    """Random problems."""
    inputs = problem_for(plan.problem).inputs(np, np.random.default_rng(seed), plan.buffers, sizes_of(plan))
    return {name: np.asarray(array) for name, array in inputs.items()}


def transformed(
    plan: Plan, inputs: Mapping[str, Array], order: Order = "shuffle", flags: Any = FLAGS
) -> Array:
    return host_build.run_plan_on_host(plan, inputs, order=order, flags=flags)["y"]


def right(plan: Plan, x: Array) -> Array:
    """Transforms of rows by NumPy, in extended precision where it has that."""
    N, inverse = int(sizes_of(plan)["N"]), sizes_of(plan)["direction"] == "inverse"
    exact = x.astype(np.clongdouble if x.dtype.kind == "c" else np.longdouble)
    if plan.workload.kernel.startswith("fft-real"):
        return np.asarray(np.fft.irfft(exact, N, axis=1) if inverse else np.fft.rfft(exact, axis=1))
    return np.asarray((np.fft.ifft if inverse else np.fft.fft)(exact, axis=1))


def errors(y: Array, reference: Array) -> Any:
    """Relative L2 error of each row."""
    return np.linalg.norm(y - reference, axis=1) / np.linalg.norm(reference, axis=1)


def allowed(plan: Plan) -> float:
    """What a row may err by: roundings, more of them where a large prime is convolved."""
    rounding = ROUNDING[plan.buffers[0].dtype]
    if plan.workload.kernel == "fft":
        return min(6 * rounding, 1e-7 * math.log2(int(sizes_of(plan)["N"])))
    if "long" in plan.workload.kernel:
        return (14 if len(plan.stages) > 2 else 8) * rounding
    return (5 if "Mixed" in plan.stages[0].entry else 12) * rounding


# --- answers -------------------------------------------------------------------------------------

INSIDE = {"way": "inside"}
ROWS = ("fft", "fft-any", "fft-real", "fft-long", "fft-real-long")
WALK = case("fft-long", 8505, batch=5, values={"r": 21, "load": "bulk", "split": True}, flags=CHECKED)
CASES = [
    # Of one stage and of several, without and with idle threads; odd and even.
    *(one for N in (2, 30, 31, 97, 105, 243, 520, 1000) for one in both_ways("fft-any", N)),
    *(one for N in (3, 37, 74, 60, 105, 1000, 1040) for one in both_ways("fft-real", N)),
    # Large primes p, alone and in columns: by p - 1 points, few columns changing hands first, and by 2 p - 1.
    *(one for N in (83, 211, 222, 333, 415) for one in both_ways("fft-any", N)),
    *(case("fft-any", N, "inverse", dtype, 3, flags=CHECKED) for N in (41, 333, 415) for dtype in COMPLEX),
    *(
        case("fft-any", 222, way, dtype, 3, values={"way": "columns", "split": False}, flags=CHECKED)
        for way, dtype in zip(WAYS, COMPLEX, strict=True)
    ),
    case("fft-any", 222, values={"way": "whole"}),
    case("fft-any", 1517),  # 37 and 41
    *(case("fft-any", N, dtype="complex128", batch=3) for N in (58, 186)),  # radices 29 and 31
    *(
        case("fft-any", 1480, way, dtype, values={"split": True})
        for way, dtype in zip(WAYS, COMPLEX, strict=True)
    ),
    *(one for N in (111, 167, 415, 422, 666, 888) for one in both_ways("fft-real", N)),
    *(case("fft-real", 2063, way, dtype, 2, flags=CHECKED) for way, dtype in zip(WAYS, REAL, strict=True)),
    *(
        case("fft-real", 83, way, dtype, 3, values={"way": "whole"}, flags=CHECKED)
        for way in WAYS
        for dtype in REAL
    ),
    *(case("fft-real", N, "inverse", "float64", 3, flags=CHECKED) for N in (222, 666, 830)),
    # Opposite frequencies meet through shared memory, or in a thread with twice the smallest radix of points.
    *(
        case("fft-real", 128, way, "", 5, values={"r": 8, "P": points, "tile": False}, flags=CHECKED)
        for way in WAYS
        for points in (8, 16)
    ),
    case("fft-long", 8193, batch=3),
    case(
        "fft-long",
        8193,
        "inverse",
        "complex128",
        1,
        values={"skew": 2, "split1": True, "split2": True, "bounded": True},
    ),
    case("fft-long", 8232, "inverse", "complex128", 3),
    case("fft-long", 8232, values={"skew": 3, "C1": 16, "C2": 4}),
    case("fft-long", 10000, dtype="complex128", values=STATED),
    case("fft-long", 10**6, values=STATED),  # columns and rows of 1000 points
    case("fft-long", 409600, "inverse", "complex128", values=STATED),
    case("fft-long", 10007, "inverse", batch=3, values=STATED),
    case("fft-long", 3**9, "inverse", batch=3),
    case("fft-long", 23 * 23 * 31, dtype="complex128"),  # 31 is no radix of complex128
    case("fft-long", 20480, values={"skew": 2, "split2": True}),
    case("fft-long", 8748, values={"r": 27, "load": "prefetch", "split": True}),
    case("fft-long", 9000, "inverse", "complex128", 3, values={"load": "bulk"}),
    case("fft-long", 15625, "inverse", batch=5, values={"load": "bulk"}),  # odd rows
    WALK,  # several odd rows of a block
    # A large prime in the columns, another in the rows; by p - 1 and by 2 p - 1 points, alone or not.
    case("fft-long", 592, batch=3, flags=CHECKED),
    case("fft-long", 37 * 41 * 6, "inverse", batch=2, values={"split1": True, "split2": True}, flags=CHECKED),
    case("fft-long", 47 * 59 * 4, "inverse", "complex128", 2, flags=CHECKED),
    *(case("fft-long", N, way) for N, way in zip((5 * 2003, 101 * 103), WAYS, strict=True)),
    case("fft-long", 10624, dtype="complex128", values=STATED),
    case("fft-long", 29 * 37 * 41, dtype="complex128"),  # 29 is a radix beside large primes
    *(case("fft-long", N, dtype=dtype, values=INSIDE) for N in (28 * 1787, 53 * 2797) for dtype in COMPLEX),
    case("fft-long", 592, "inverse", values={"way": "whole"}),
    *(case("fft-real-long", N, way) for N in (300, 8193, 10000, 3**9) for way in WAYS),
    *(case("fft-real-long", 23 * 31 * 13, way, "float64") for way in WAYS),  # 31 is no radix of float64
    *(
        case("fft-real-long", 592, way, batch=3, flags=CHECKED) for way in WAYS
    ),  # half as many complex numbers
    *(case("fft-real-long", 2018, way, "float64", 2, flags=CHECKED) for way in WAYS),
    # Odd: half of the columns and of the rows, large primes in both or in one, by either algorithm.
    *(
        case("fft-real-long", N, way, batch=2, flags=CHECKED)
        for N in (37 * 83, 3 * 59, 5 * 5 * 37)
        for way in WAYS
    ),
    *(
        case("fft-real-long", N, way, "float64", 2, values={"split1": True, "split2": True}, flags=CHECKED)
        for N in (37 * 41 * 27, 5 * 5 * 9 * 83 * 37)
        for way in WAYS
    ),
    *(case("fft-real-long", N, way, "float64", values=STATED) for N in (5 * 2003, 47 * 59) for way in WAYS),
    *(case("fft-real-long", 1009, way, "float64", 2, flags=CHECKED) for way in WAYS),  # M >= 3 N / 2
    *(case("fft-real-long", 63 * 2111, way, dtype, values=INSIDE) for way in WAYS for dtype in REAL),
    *(case("fft-real-long", 89 * 1447, way, "float64", values=INSIDE) for way in WAYS),
    case("fft-real-long", 29 * 37 * 41, "inverse", "float64"),
    case("fft-real-long", 2 * 17**3, "forward", "float64", 3),  # 2 N2 even and odd columns
    case("fft-real-long", 5 * 7 * 11 * 13, "inverse", batch=3),  # odd columns and rows
    case("fft-real-long", 12342, "inverse", "float64", 3),
    case("fft-real-long", 20480, batch=3),  # tiles that begin before a row's first frequency
    case("fft-real-long", 126 * 130, "forward", "float64", 3, values={"C1": 4}),  # a lane has no neighbour
    case("fft-real-long", 23 * 23 * 31, values={"r1": 31}),  # a thread has a column
    case("fft-real-long", 20480, values={"split1": True, "split2": True, "bounded": True}),
    case("fft-real-long", 20480, "inverse", "float64", 1, values={"skew": 2, "split2": True}),
    case("fft-real-long", 10000, "forward", "float64", values=STATED),
    case("fft-real-long", 16384, values={"form": "passes", "P1": 16}),  # opposite frequencies in one thread
    case("fft-real-long", 16384, "inverse", values=STATED),  # a block holds the row
    case("fft-real-long", 32768, values={"form": "whole"}),
    case("fft-real-long", 17496, "inverse", "float64", 3, values={"form": "whole", "split": True}),
    case("fft-real-long", 10007, "inverse", batch=3, values=STATED),
    *(case("fft-real-long", 10**6, way, values=STATED) for way in WAYS),  # columns and rows of 1000 points
    case("fft-real-long", 75000, values=STATED),  # columns of two stages
    case("fft-real-long", 2**20, "inverse", "float64", values=STATED),
    case("fft-real-long", 4096, batch=2, values={"r1": 8, "P1": 8, "C1": 8}, flags=CHECKED),  # padded words
    # Of columns, planes and convolutions what the samples of all kernels have not: a radix before, and large
    # primes on both axes, by either algorithm; no thread reads what another has not yet written.
    Case("fft-columns", {"N": 2048, "W": 5}, 3, {"A": 16}, CHECKED),
    Case(
        "fft-columns",
        {"N": 2500, "W": 3, "direction": "inverse", "dtype": "complex128"},
        3,
        {"A": 10},
        CHECKED,
    ),
    Case("fft-columns", {"N": 37, "W": 9, "direction": "inverse"}, 3, flags=CHECKED),
    Case("fft-2d", {"M": 83, "N": 59, "direction": "inverse", "dtype": "complex128"}, 3, flags=CHECKED),
    Case("fft-2d", {"M": 111, "N": 74, "direction": "inverse", "dtype": "complex128"}, 3, flags=CHECKED),
    Case("fft-2d", {"M": 37, "N": 333}, 2, flags=CHECKED),
    Case("fft-2d", {"M": 1024, "N": 8, "direction": "inverse"}, 3, {"A": 4}, CHECKED),
    Case("fft-2d", {"M": 30, "N": 6}, 3, {"A": 5}, CHECKED),
    Case("fft-convolution", {"N": 899}, 3, flags=CHECKED),
]


@needs_compiler
@pytest.mark.parametrize("case", CASES, ids=str)
def test_answers_are_right_to_rounding(case: Case) -> None:
    """Answers pass both checks of their problem, which refuse a wrong number; rows err by a few roundings."""
    plan = case.plan()
    inputs, problem, sizes = inputs_of(plan), problem_for(plan.problem), sizes_of(plan)
    y = transformed(plan, inputs, "reverse" if case.batch > 1 else "shuffle", case.flags)
    wrong = y.copy()
    wrong[(-1,) * y.ndim] += abs(y).max()
    for answer, is_right in ((y, True), (wrong, False)):
        assert problem.compare(inputs, {"y": answer}, sizes).ok is is_right
        assert problem.residual(np, inputs, {"y": answer}, sizes).ok is is_right
    if case.kernel in ROWS:
        assert errors(y, right(plan, inputs["x"])).max() <= allowed(plan)
    if case.kernel == "fft-real-long" and sizes["direction"] == "forward":  # what is real is real
        assert not y[:, 0].imag.any()
        assert int(sizes["N"]) % 2 == 1 or not y[:, -1].imag.any()


WHOLE = (1,)
SPOILT: list[tuple[Case, tuple[int, ...], Any]] = [  # a case, a place in it, and what a NaN there spoils
    *((one, (3, 1), (3,)) for N in (30, 97) for one in both_ways("fft-any", N)),
    *((one, (3, 1), (3,)) for N in (37, 60, 74, 167) for one in both_ways("fft-real", N)),
    *((case("fft-long", N, batch=3), (1, 7), WHOLE) for N in (8232, 10007, 37 * 41 * 6)),
    (WALK._replace(flags=FLAGS), (1, 7), WHOLE),
    *(
        (case("fft-real-long", N, way, batch=3), (1, 7), WHOLE)
        for N in (1200, 1009, 592, 1517)
        for way in WAYS
    ),
    (Case("fft-columns", {"N": 30, "W": 9}, 3), (1, 3, 4), (1, slice(None), 4)),
    (Case("fft-2d", {"M": 30, "N": 6}, 3, {"A": 5}), (1, 3, 4), WHOLE),
    (Case("fft-convolution", {"N": 30}, 3), (1, 3), WHOLE),
]


@needs_compiler
@pytest.mark.parametrize(("case", "place", "spoilt"), SPOILT, ids=str)
def test_extreme_values_stay_in_their_problem(case: Case, place: tuple[int, ...], spoilt: Any) -> None:
    """NaN, infinity, large and denormal numbers in a row, column or plane leave the others as they are.

    Not a bit changes there; what has them is right if they are finite, and else has no number left.
    """
    plan = case.plan()
    inputs = inputs_of(plan)
    whole, N = transformed(plan, inputs), int(case.sizes["N"])
    finite = (1e37 if N < 100 else 1e35, 1e-37, 1e-41) if case.kernel in ROWS else ()
    for value in (np.nan, np.inf, *finite):
        x = inputs["x"].copy()
        if math.isfinite(value):
            x[spoilt] *= x.real.dtype.type(value)
        else:
            x[place] = value
        y = transformed(plan, {**inputs, "x": x})
        if math.isfinite(value):
            reference = right(plan, x)[spoilt]
            lost = 2.0**-149 * 8 * N if y.real.dtype == np.float32 else 0.0  # what denormal numbers round by
            off = np.linalg.norm(y[spoilt] - reference)
            assert off <= 1e-6 * np.linalg.norm(reference) + lost, (plan.label(), value)
        else:
            assert not np.isfinite(y[spoilt]).any()
        y[spoilt] = whole[spoilt]
        np.testing.assert_array_equal(y, whole)


@needs_compiler
@pytest.mark.parametrize("N", [300, 315, 262])
def test_parts_that_no_real_row_has_count_for_nothing(N: int) -> None:
    """Imaginary parts of frequency 0, and of N / 2, change nothing, whichever algorithm takes the length."""
    plan = case("fft-real-long", N, "inverse", batch=2).plan()
    x = inputs_of(plan)["x"]
    real = x.copy()
    real[:, 0] = real[:, 0].real
    if N % 2 == 0:
        real[:, -1] = real[:, -1].real
    assert (x != real).any()
    np.testing.assert_array_equal(transformed(plan, {"x": x}), transformed(plan, {"x": real}))


@needs_compiler
@pytest.mark.parametrize("dtype", COMPLEX)
def test_angles_of_the_longest_rows_are_exact(dtype: str) -> None:
    """The chirp of 2^24 - 3 points, whose angles are whole parts of 2^25 - 6, is right to rounding."""
    N, threads, blocks = LONGEST - 3, 256, 40
    plan = case("fft-long", N, dtype=dtype).plan()
    stage = next(stage for stage in plan.stages if stage.name == "chirp")
    made = np.zeros((2, blocks * threads), dtype)
    host_build.run(
        stage.source, stage.entry, (blocks, 1, 1), (threads, 1, 1), 0, list(made), options=stage.options
    )
    n = np.arange(blocks * threads, dtype=np.int64)
    angles = np.longdouble(1) * (n * n % (2 * N)) / N * np.arctan(np.longdouble(1)) * 4
    assert (angles > 6.28).any()
    roundings = 2 if dtype == "complex64" else 4  # the host multiplies by pi in double precision
    assert np.abs(made[1] - (np.cos(angles) - 1j * np.sin(angles))).max() <= roundings * ROUNDING[dtype]


# --- the kernel `fft`, in every order of its threads ---------------------------------------------


def features(configuration: Configuration) -> set[tuple[str, TunableValue]]:
    """What makes other code on the host: neither the block size nor a bound of registers does."""
    found = {(name, configuration[name]) for name in ("P", "r", "order", "shuffle", "padding")}
    points = int(configuration["P"]) * int(configuration["L"])
    return {*found, ("split", 2 * int(configuration["S"]) == points)}


@functools.cache
def sample(N: int) -> list[Configuration]:
    """The default and seeded random configurations that together have every feature of the space."""
    workload = kernel_of("fft").workload({"N": N})
    space = [
        configuration for configuration in kernel_of("fft").space(workload) if configuration["blocks"] == 0
    ]
    shuffled = [space[i] for i in np.random.default_rng(4 + N).permutation(len(space))]
    chosen = [kernel_of("fft").default(workload), *shuffled[:1]]
    unseen = set().union(*map(features, space)) - set().union(*map(features, chosen))
    while unseen:
        best = max(shuffled, key=lambda c: len(unseen & features(c)))
        chosen.append(best)
        unseen -= features(best)
    return list(dict.fromkeys(chosen))


def plan_at(N: int, batch: int, configuration: Configuration, way: str = "forward") -> Plan:
    return plan_of("fft", {"N": N, "direction": way}, batch, dict(configuration))


def plans(N: int, batch: int) -> list[Plan]:
    """Plans of the sample, in both directions by turns."""
    made = [plan_at(N, batch, c, WAYS[i % 2]) for i, c in enumerate(sample(N))]
    host_build.build_plans(made)
    return made


def odd_batch(N: int) -> int:
    """One problem more than two blocks of any configuration hold, as far as they share blocks."""
    return min(2 * max(2 * N, 512) // N + 1, 65)


@needs_compiler
@pytest.mark.parametrize("N", SIZES)
def test_transforms_are_right_in_every_order(N: int) -> None:
    """A sample of the space answers within 1e-7 log2 N, also in blocks that are not filled.

    A problem full of NaN leaves its neighbours in the same warp and block right.
    """
    for plan in plans(N, odd_batch(N)):
        x = inputs_of(plan, N)["x"]
        for order in ORDERS:
            assert errors(transformed(plan, {"x": x}, order), right(plan, x)).max() < allowed(plan), (
                plan.label(),
                order,
            )
        if N in (64, 1024):
            x[2] = np.nan
            off = errors(transformed(plan, {"x": x}), right(plan, x))
            assert np.isnan(off[2])
            assert np.delete(off, 2).max() < allowed(plan), plan.label()


@needs_compiler
@pytest.mark.parametrize("N", [2, 64, 512])
def test_single_problem_leaves_the_rest_of_its_block_alone(N: int) -> None:
    """A batch of one is transformed by blocks made for several, and nothing else is read or written."""
    for plan in plans(N, 1):
        x = inputs_of(plan, 2)["x"]
        assert errors(transformed(plan, {"x": x}, "reverse"), right(plan, x)).max() < allowed(plan), (
            plan.label()
        )


@needs_compiler
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("N", [64, 512, 8192])
def test_answers_pass_the_checks_of_their_problem(N: int, way: str) -> None:
    """What the kernel computes passes both checks of its problem, and none of the other direction."""
    plan = case("fft", N, way, batch=3).plan()
    inputs, problem = inputs_of(plan), problem_for(plan.problem)
    outputs = {"y": transformed(plan, inputs, "forward")}
    for asked in WAYS:
        sizes: dict[str, int | str] = {"N": N, "direction": asked}
        assert problem.compare(inputs, outputs, sizes).ok is (asked == way)
        assert problem.residual(np, inputs, outputs, sizes).ok is (asked == way)


seeds, ways = st.integers(0, 2**32 - 1), st.sampled_from(WAYS)
designs = st.sampled_from([64, 1024]).flatmap(lambda N: st.tuples(st.just(N), st.sampled_from(sample(N)[:3])))
Design = tuple[int, Configuration]


def rows(N: int, seed: int, count: int = 2) -> Array:
    parts = np.random.default_rng(seed).standard_normal((2, count, N))
    x: Array = (parts[0] + 1j * parts[1]).astype(np.complex64)
    return x


def of(design: Design, way: str, x: Array) -> tuple[Array, float]:
    """What a design makes of rows, and the error that a transform may have."""
    plan = plan_at(design[0], len(x), design[1], way)
    y = np.empty_like(x)
    poison(y)
    host_build.run_plan(plan, {"x": x, "y": y})
    return y, allowed(plan)


def distance(one: Array, other: Array) -> float:
    """Relative L2 distance of two arrays of rows."""
    return float(np.linalg.norm(one - other) / np.linalg.norm(other))


@needs_compiler
@FEW
@given(designs, seeds, ways)
def test_transform_and_inverse_cancel(design: Design, seed: int, way: str) -> None:
    """What is transformed there and back, by whatever configuration, is what it was."""
    x = rows(design[0], seed)
    y, bound = of(design, way, x)
    assert distance(of(design, WAYS[way == "forward"], y)[0], x) < 2 * bound


@needs_compiler
@FEW
@given(designs, seeds, ways, st.floats(-4, 4), st.floats(-4, 4))
def test_transforms_are_linear(design: Design, seed: int, way: str, real: float, imaginary: float) -> None:
    """The transform of x + c z is that of x plus c times that of z."""
    c = np.complex64(complex(real, imaginary))
    x, z = rows(design[0], seed), rows(design[0], seed + 1)
    (y, bound), (w, _), (both, _) = (of(design, way, one) for one in (x, z, x + c * z))
    assert distance(both, y + c * w) < 4 * bound


@needs_compiler
@FEW
@given(designs, seeds, ways)
def test_energy_is_kept(design: Design, seed: int, way: str) -> None:
    """Parseval's law: a row's norm grows by the root of N, or inversely shrinks by it."""
    x = rows(design[0], seed)
    y, bound = of(design, way, x)
    factor = np.sqrt(design[0] if way == "forward" else 1 / design[0])
    np.testing.assert_allclose(np.linalg.norm(y, axis=1), factor * np.linalg.norm(x, axis=1), rtol=bound)


@needs_compiler
@FEW
@given(designs, st.integers(0, 1023), ways)
def test_an_impulse_becomes_a_tone(design: Design, at: int, way: str) -> None:
    """Every single element comes out as the tone of its place, each frequency of it right to rounding."""
    N = design[0]
    x = np.zeros((1, N), np.complex64)
    x[0, at % N] = 1
    y, _ = of(design, way, x)
    turns = np.arange(N) * (at % N) % N / N
    tone = np.exp(-2j * np.pi * turns) if way == "forward" else np.exp(2j * np.pi * turns) / N
    assert abs(y[0] - tone).max() < 16 * ROUNDING["complex64"] * abs(tone[0])


@pytest.mark.parametrize("architecture", ["sm_53", "sm_87", "sm_90"])
def test_declared_resources_are_near_the_compiled_ones(architecture: str, cubins: Any) -> None:
    """Long transforms take a third more registers than declared at most, and no static shared memory."""
    chosen = [plan_at(8192, 1, configuration) for configuration in sample(8192)]
    results = compiled_stages([plan.stages[0] for plan in chosen], architecture, cubins)
    for plan, result in zip(chosen, results, strict=True):
        made, declared = result.resources, plan.stages[0].declared
        assert declared is not None
        assert made.static_shared_bytes == 0, plan.label()
        assert made.registers_per_thread <= declared.registers_per_thread * 1.35, plan.label()


# --- sizes, defaults and what is stated ----------------------------------------------------------


@pytest.mark.parametrize("name", ["fft-any", "fft-real"])
def test_all_lengths_have_a_default_and_an_answer_that_takes_more_memory(name: str) -> None:
    """Few rows and many; all lengths of the first type, and some of double precision."""
    kernel = kernel_of(name)
    lengths, (single, double) = kernel.sizes["N"], kernel.sizes["dtype"]
    for dtype, some in ((single, lengths), (double, [*lengths[::7], 6422, 7774])):
        for N in some:
            workload = kernel.workload({"N": N, "dtype": dtype}, 3 if N % 2 else 1000)
            answer, default = dict(kernel.stated_answers(workload, "")[-1]), dict(kernel.default(workload))
            assert default["split"] or not answer["split"]
            assert {**answer, "split": 0, "blocks": 0} == {**default, "split": 0, "blocks": 0}


LENGTHS = (2, 7, 37, 64, 289, 722, 1000, 1024, 1519, 2048, 2634, 4096)
LONG = (4093, 5000, 7378, 7386, 7595, 8192)


@pytest.mark.parametrize("dtype", COMPLEX)
def test_every_size_of_planes_has_a_default(dtype: str) -> None:
    """Lengths of every kind have a default that their rules allow, and planes a stated answer."""
    columns, planes, convolution = map(kernel_of, ("fft-columns", "fft-2d", "fft-convolution"))
    for N in (*LENGTHS, *LONG):
        for other in (1, 5, 64, 1000, 8192):
            workload = columns.workload({"N": N, "W": other, "dtype": dtype}, 3)
            assert columns.stated_answers(workload, "")[-1] == columns.default(workload)
            for M, width in ((N, max(2, other)), (max(2, other), N)):
                workload = planes.workload({"M": M, "N": width, "dtype": dtype}, 3)
                planes.default(workload)
                planes.stated(workload)
    for N in LENGTHS:
        convolution.default(convolution.workload({"N": N, "dtype": dtype}, 3))


def prime_factors(N: int) -> list[int]:
    found = next((d for d in range(2, math.isqrt(N) + 1) if N % d == 0), N)
    return [found] if found == N else [found, *prime_factors(N // found)]


def form_of(kernel: str, N: int, dtype: str, batch: int, way: str = "forward") -> TunableValue:
    """Of the first answer that is stated."""
    return plan_of(kernel, {"N": N, "dtype": dtype, "direction": way}, batch, STATED).configuration["form"]


@pytest.mark.parametrize(("dtype", "longest"), [("complex64", 20736), ("complex128", 10368)])
def test_rows_that_a_block_holds_are_stated_in_one_pass(dtype: str, longest: int) -> None:
    """Lengths of 2, 3, 5 and 7 that a block holds are stated so, and only where the batch is large."""
    smooth = [N for N in range(8193, longest + 1) if max(prime_factors(N)) <= 7]
    assert {form_of("fft-long", N, dtype, large_batch({"N": N})) for N in smooth} == {"whole"}
    others = (8192, longest + 1, 10007)
    assert {form_of("fft-long", N, dtype, large_batch({"N": N})) for N in others} == {"passes"}
    assert form_of("fft-long", 10000, dtype, 8) == "passes"


def test_real_rows_that_a_block_holds_are_stated_in_one_pass() -> None:
    """Even lengths of small primes are to 21780, or 13600 doubles, and powers of two; others are searched."""
    for N, dtype, form in (
        (8194, "float32", "passes"),  # 17 and 241
        (8750, "float32", "whole"),
        (16384, "float32", "whole"),
        (12288, "float64", "whole"),
        (16384, "float64", "whole"),
        (16464, "float32", "whole"),
        (20020, "float32", "whole"),  # 11 and 13
        (20020 // 2, "float64", "passes"),
        (22050, "float32", "passes"),
        (32768, "float32", "whole"),
        (13720, "float64", "passes"),
        (3**9, "float32", "passes"),  # odd
    ):
        for way in WAYS:
            stated = case("fft-real-long", N, way, dtype, values=STATED).plan()
            assert stated.configuration["form"] == form
            inside = 4 if way == "forward" else 3  # with a table, and what belongs to either half told apart
            assert len(stated.stages) == (1 if form == "whole" else 2 if N != 8194 else inside)
    kernel = kernel_of("fft-real-long")
    assert {one["form"] for one in kernel.space(kernel.workload({"N": 32768}, 1))} == {"passes", "whole"}


def test_fft_real_long_takes_rows_for_which_a_block_has_no_room() -> None:
    """Long rows of `fft-real` are this kernel's, odd ones and double precision too."""
    catalog = Catalog.load()
    for spec in ("fft-real:N=16384", "fft-real:N=8193,dtype=float64", "fft-real:N=10007,direction=inverse"):
        assert catalog.workload(spec).kernel == "fft-real-long"
    assert catalog.workload("fft-real:N=8192").kernel == "fft-real"


@pytest.mark.parametrize(
    ("kernel", "forms", "sizes", "workload"),
    [
        ("fft-real", [((3, 1000), "float32")], {}, "fft-real:N=1000"),
        ("fft-real", [((1001,), "float64")], {}, "fft-real:N=1001,dtype=float64"),
        ("fft-real", [((3, 501), "complex64")], {"N": 1000}, "fft-real:N=1000,direction=inverse"),
        ("fft-real", [((3, 501), "complex64")], {"N": 1001}, "fft-real:N=1001,direction=inverse"),
        ("fft-2d", [((30, 62), "complex64")], {}, "fft-2d:M=30,N=62"),
        ("fft-columns", [((4, 30, 9), "complex64")], {}, "fft-columns:N=30,W=9"),
        (
            "fft-convolution",
            [((4, 30), "complex128"), ((30,), "complex128")],
            {},
            "fft-convolution:N=30,dtype=complex128",
        ),
    ],
)
def test_arrays_tell_the_sizes(kernel: str, forms: Any, sizes: dict[str, int | str], workload: str) -> None:
    """By the formula of the shape; planes and stacks of them as they are; of frequencies N is given."""
    arrays = [ArrayForm(*form) for form in forms]
    assert str(workload_for(kernel_of(kernel), arrays, sizes)) == workload


def test_frequencies_need_the_length_of_their_row() -> None:
    """501 frequencies are those of 1000 or of 1001 numbers, so N is asked for."""
    with pytest.raises(UnknownNameError, match="size N is missing"):
        workload_for(kernel_of("fft-real"), [ArrayForm((3, 501), "complex64")], {"direction": "inverse"})
