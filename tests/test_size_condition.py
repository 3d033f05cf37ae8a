"""Sizes of kernel files, and conditions over them: with the tunables known, in Python, and in C."""

import ctypes
import pickle
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_texts import Load, loader, text_of

from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.size_condition import ALWAYS, is_allowed, size_condition, written_out
from tuner.kernel_files.sizes import combinations, count_combinations, listed
from tuner.model.errors import ExpressionError, InputError, KernelFileError, UnknownNameError
from tuner.model.expressions.array_expressions import reduced
from tuner.model.expressions.callables import Expression
from tuner.model.plan import Workload
from tuner.prediction.c_selector import CConditions
from tuner.problems.lookup import problem_for
from tuner.search.candidates import fit_batches

CATALOG = Catalog.load()


def some_sizes(kernel: KernelFile, seed: int) -> dict[str, int | str]:
    """Sizes all over their ranges, small ones above all."""
    found = {}
    for place, (name, values) in enumerate(kernel.sizes.items()):
        index = (seed * 7919 + place * 104729) % (min(len(values), 5000) if isinstance(values, range) else 97)
        found[name] = values[index % len(values)]
    return found


LONG_RULES = (  # for an expression
    "fft-2d",
    "fft-any",
    "fft-columns",
    "fft-convolution",
    "fft-long",
    "fft-real",
    "fft-real-long",
    "gemm-batched",
    "potrf",
    "potrf-batched",
    "scan-flags",
    "scan-long",
    "scan-offsets",
    "trsm-batched",
)


def workload_at(kernel: KernelFile, seed: int) -> Workload | None:
    """A workload of some sizes; None of sizes that the kernel refuses."""
    try:
        return kernel.workload(some_sizes(kernel, seed))
    except InputError:
        return None


@pytest.mark.parametrize("name", sorted(CATALOG.kernels))
def test_a_condition_is_that_of_the_kernel(name: str) -> None:
    """Configurations of some sizes are allowed at others as their conditions say."""
    kernel = CATALOG.kernel(name)
    workloads = [found for seed in range(4) if (found := workload_at(kernel, seed)) is not None]
    listed = [one for workload in workloads for one in list(kernel.space(workload))[::29][:3]]
    told, long = set(), 0
    for configuration in dict.fromkeys(listed):
        written = written_out(kernel.recipe, configuration)
        text = size_condition(kernel.recipe, written)
        if text is None:
            assert name in LONG_RULES
            long += 1
            if long == 2:  # none is held to anything
                break
            continue
        condition = Expression(text)
        for workload in workloads:
            allowed = is_allowed(kernel, workload, written)
            assert bool(condition.evaluate(dict(workload.sizes))) is allowed, (configuration, workload)
            told.add(allowed)
    assert True in told or name in LONG_RULES


def test_a_kernel_without_conditions_is_always_allowed() -> None:
    """There is nothing to ask of the sizes."""
    kernel = CATALOG.kernel("transpose-naive")
    assert size_condition(kernel.recipe, {"BLOCK_X": 16, "BLOCK_Y": 16}) == ALWAYS


NUMBERS = st.recursive(
    st.one_of(st.sampled_from(["N", "M", "K", "two", "t"]), st.integers(0, 70).map(str)),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner).map(" ".join).map("({})".format),
        st.tuples(st.sampled_from(["min", "max", "ceil_div", "gcd"]), inner, inner).map(
            lambda parts: f"{parts[0]}({parts[1]}, {parts[2]})"
        ),
        inner.map("abs({})".format),
    ),
    max_leaves=6,
)
COMPARED = st.tuples(NUMBERS, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), NUMBERS).map(" ".join)
CONDITIONS = st.recursive(
    st.one_of(COMPARED, st.sampled_from(["d == 'a'", "d in ('b', 'c')", "K in (1, N, 3)", "is_pow2(N)"])),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([" and ", " or "]), inner).map("".join).map("({})".format),
        inner.map("(not {})".format),
        st.tuples(inner, inner, inner).map(lambda parts: f"({parts[0]} if {parts[1]} else {parts[2]})"),
        st.tuples(inner, inner, inner).map(lambda parts: f"select({', '.join(parts)})"),
    ),
    max_leaves=5,
)
KNOWN, FORMULAS = {"two": 2, "t": 5}, {"K": "M * two + 1"}
SIZES = [(n, m, d) for n in (1, 7, 64, 1000) for m in (1, 12, 777) for d in ("a", "b")]


def value(text: str, n: int, m: int, d: str) -> bool | None:
    """Of an expression with everything known; None where it has no result."""
    try:
        return bool(Expression(text).evaluate({"N": n, "M": m, "d": d, "K": 2 * m + 1, **KNOWN}))
    except ExpressionError:
        return None


@given(CONDITIONS)
def test_what_is_left_has_the_same_value(text: str) -> None:
    """Known names are gone; where the whole has a result, what is left has the same."""
    left = reduced(text, KNOWN, FORMULAS)
    assert not Expression(left).names & {"two", "t", "K"}
    for one in SIZES:
        whole = value(text, *one)
        assert whole is None or value(left, *one) is whole


def test_names_in_a_circle_end() -> None:
    """A kernel file refuses them; here they are left as they are."""
    assert Expression(reduced("a > N", {}, {"a": "b + 1", "b": "a - 1"})).names >= {"N"}


def test_c_has_the_value_of_python(tmp_path: Path) -> None:
    """Of many conditions, each at many sizes."""
    texts: list[str] = []

    @given(CONDITIONS)
    def collect(text: str) -> None:
        texts.append(text)

    collect()
    conditions = CConditions("t", ["d"])
    written = [
        conditions.written(reduced(text, {}, {"K": "M * 2 + 1", "two": "2", "t": "5"})) for text in texts
    ]
    cases = "".join(f"case {place}: return {one};\n" for place, one in enumerate(written))
    source, library = tmp_path / "c.c", tmp_path / "c.so"
    source.write_text(
        "\n".join(conditions.helpers())
        + "\nint holds(int place, long long N, long long M, const char *d) {\n"
        + f"(void)N; (void)M; (void)d; switch (place) {{\n{cases}default: return -1; }}\n}}\n"
    )
    subprocess.run(["gcc", "-std=c99", "-O0", "-shared", "-fPIC", "-o", library, source], check=True)
    holds = ctypes.CDLL(str(library)).holds
    holds.argtypes = [ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong, ctypes.c_char_p]
    compared = 0
    for place, text in enumerate(texts):
        for n, m, d in SIZES:
            whole = value(text, n, m, d)
            if whole is not None:
                assert bool(holds(place, n, m, d.encode())) is whole, (text, written[place], n, m, d)
                compared += 1
    assert compared > len(texts)


# --- Sizes of kernel files: lists, ranges, and those a workload may leave out.

TEXT = text_of("sums")


@pytest.fixture
def load(tmp_path: Path) -> Load:
    return loader("sums", tmp_path)


@pytest.fixture
def kernel(load: Load) -> KernelFile:
    """The kernel of the text above."""
    return load(TEXT)


# --- ranges --------------------------------------------------------------------------------------


@pytest.mark.parametrize("N", [2, 3, 777, 1000, "999"])
def test_any_whole_number_of_a_range_is_a_size(kernel: KernelFile, N: int | str) -> None:
    """Both ends and all between are taken, as numbers or as the text of a command line."""
    workload = kernel.workload({"N": N})
    assert dict(workload.sizes)["N"] == int(N)
    assert workload.batch == 2**20 // int(N)
    assert str(workload) == f"sums:N={N}"


@pytest.mark.parametrize("N", [1, 1001, -2, 2.0, True, "0x10", "007", "64.0", "", "9" * 5000, "²"])
def test_what_is_not_in_a_range_is_refused(kernel: KernelFile, N: Any) -> None:
    """The message names the size and its range."""
    with pytest.raises(UnknownNameError, match=r"choose N from the whole numbers from 2 to 1000$"):
        kernel.workload({"N": N})


def test_a_missing_range_is_asked_for(kernel: KernelFile) -> None:
    """A workload without it is refused, with an example."""
    with pytest.raises(UnknownNameError, match="size N is missing, as in sums:N=2; choose N from the whole"):
        kernel.workload({})


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (range(2, 17), (2, 4, 8, 16)),
        (range(3, 18), (3, 4, 8, 16, 17)),
        (range(5, 7), (5, 6)),
        (range(1, 2), (1,)),
        ((7, 3), (7, 3)),
    ],
)
def test_a_range_is_listed_by_powers_of_two_and_ends(values: Any, shown: tuple[int, ...]) -> None:
    """Listings and checks take those of a range, and every value of a list."""
    assert listed(values) == shown


@pytest.mark.parametrize(
    ("sizes", "shown"),
    [
        ({"H": range(1, 1025), "form": ("a", "b")}, [(1 << i, form) for i in range(11) for form in "ab"]),
        ({"H": range(1, 1025), "W": range(3, 50)}, [(h, w) for h in (1, 32, 1024) for w in (3, 16, 49)]),
        ({"H": range(1, 2**53), "W": range(7, 8)}, [(1, 7), (2**26, 7), (2**53 - 1, 7)]),
        ({}, [()]),
        (
            {"dtype": tuple("abcde"), "form": tuple("ie"), "operator": tuple("+*&|")},
            [
                ("a", "i", "+"),
                ("a", "e", "+"),
                *((t, "i", "+") for t in "bcde"),
                *(("a", "i", o) for o in "*&|"),
            ],
        ),
    ],
)
def test_several_ranges_are_listed_by_fewer_values(sizes: Any, shown: list[tuple[Any, ...]]) -> None:
    """One range has its powers of two; several have their ends and one between. Many texts vary alone."""
    found = [tuple(one.values()) for one in combinations(sizes)]
    assert sorted(found) == sorted(shown)
    assert count_combinations(sizes) == len(shown)


def test_workloads_are_the_listed_ones(kernel: KernelFile) -> None:
    """Every listed value of N with every form and type, each named once."""
    names = [str(workload) for workload in kernel.workloads()]
    assert len(names) == len(set(names)) == 10 * 2 * 3
    assert names[:2] == ["sums:N=2", "sums:N=2,dtype=float64"]


# --- optional sizes ------------------------------------------------------------------------------


def test_optional_sizes_take_their_first_value(kernel: KernelFile) -> None:
    """What is left out has the first value of its list, and expressions see it."""
    workload = kernel.workload({"N": 64})
    assert workload.sizes == (("N", 64), ("form", "inclusive"), ("dtype", "float32"))
    plan = kernel.plan(workload, kernel.default(workload))
    assert plan.stages[0].entry == "sums<float, 64>"
    assert {buffer.dtype for buffer in plan.buffers} == {"float32"}


def test_a_workload_has_one_name(kernel: KernelFile) -> None:
    """A size at its default is not shown, whether it was written or not; others are, in the file's order."""
    bare, written = kernel.workload({"N": 64}), kernel.workload({"form": "inclusive", "N": 64})
    assert bare == written
    assert hash(bare) == hash(written)
    assert str(bare) == str(written) == "sums:N=64"
    other = kernel.workload({"dtype": "int32", "N": 64})
    assert str(other) == "sums:N=64,dtype=int32"
    assert other != bare
    assert str(kernel.workload({"dtype": "int32", "N": 64, "form": "exclusive"})) == (
        "sums:N=64,form=exclusive,dtype=int32"
    )


def test_names_are_read_back(kernel: KernelFile) -> None:
    """The name of every workload names that workload again: answers are stored by it."""
    catalog = Catalog({kernel.name: kernel})
    for workload in kernel.workloads():
        assert catalog.workload(str(workload)) == workload
        assert str(catalog.workload(str(workload))) == str(workload)


def test_names_survive_copies(kernel: KernelFile) -> None:
    """A worker's copy, and a workload whose batch was capped, have the name of the original."""
    workload = kernel.workload({"N": 64})
    assert str(pickle.loads(pickle.dumps(workload))) == str(workload)  # noqa: S301 - its own
    assert str(replace(workload, batch=1)) == str(workload)
    (fitted,), (notice,) = fit_batches([(kernel, workload)], 2**20)
    assert str(fitted) == str(workload)
    assert notice.startswith("sums:N=64: batch capped")


def test_the_example_of_a_message_needs_no_optional_size(kernel: KernelFile) -> None:
    """A wrong spec is answered with the shortest right one."""
    with pytest.raises(Exception, match=r"as in sums:N=2$"):
        Catalog({kernel.name: kernel}).workload("sums:64")


# --- types by size -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("form", ["inclusive", "exclusive"])
def test_arrays_of_any_type_are_made_and_judged(kernel: KernelFile, dtype: str, form: str) -> None:
    """Inputs have the type of the workload, and references see sizes that are text."""
    workload = kernel.workload({"N": 8, "dtype": dtype, "form": form}, batch=3)
    plan = kernel.plan(workload, kernel.space(workload)[0])
    problem, sizes = problem_for(plan.problem), dict(workload.sizes)
    inputs = problem.inputs(np, np.random.default_rng(0), plan.buffers, sizes)
    right = inputs["x"] * np.asarray(1 if form == "inclusive" else 2, dtype)
    assert right.dtype == np.dtype(dtype)
    assert problem.residual(np, inputs, {"y": right}, sizes).ok
    assert not problem.residual(np, inputs, {"y": right + right.dtype.type(1)}, sizes).ok


def test_an_unknown_type_is_found_when_it_is_made(load: Load) -> None:
    """A template that gives no type names the key, the text and the workload."""
    kernel = load(TEXT.replace('dtype = "{dtype}"', 'dtype = "u{dtype}"', 1))
    right, wrong = kernel.workload({"N": 4, "dtype": "int32"}), kernel.workload({"N": 4})
    assert kernel.plan(right, kernel.default(right)).buffers[0].dtype == "uint32"
    with pytest.raises(KernelFileError, match=r"1 \(x\) dtype: 'ufloat32' is not one of .*at sums:N=4 "):
        kernel.plan(wrong, kernel.default(wrong))
