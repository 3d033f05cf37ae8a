"""Conditions over the sizes alone: rules with the tunables known, the same in Python, and in C."""

import ctypes
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.size_condition import ALWAYS, is_allowed, size_condition, written_out
from tuner.model.errors import ExpressionError, InputError
from tuner.model.expressions.array_expressions import reduced
from tuner.model.expressions.callables import Expression
from tuner.model.plan import Workload
from tuner.prediction.c_selector import CConditions

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
