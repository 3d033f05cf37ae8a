"""Arithmetic of CUDA C++ as kernel files write it, and launches that stand on it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.kernel_files.cuda_source.c_expressions import of_file, parsed_text, sum_of, text_of, written_sum
from tuner.kernel_files.cuda_source.indexing import Indexing
from tuner.kernel_files.cuda_source.launches import launches_in
from tuner.kernel_files.cuda_source.signatures import defined_functions
from tuner.model.expressions.callables import Expression

NAMES = ("a", "b", "n")
SUMS = st.recursive(
    st.sampled_from(NAMES) | st.integers(0, 9).map(str),
    lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda part: f"({' '.join(part)})"),
    max_leaves=8,
)
VALUES = st.fixed_dictionaries({name: st.integers(1, 50) for name in NAMES})


@given(SUMS, VALUES)
def test_what_is_written_means_the_same(text: str, values: dict[str, int]) -> None:
    """Multiplied out, written and read again, an expression has the value that C gives it."""
    node = parsed_text(text)
    assert node is not None
    right = eval(text, {}, values)  # noqa: S307 - made above
    assert Expression(text_of(node)).evaluate(values) == right
    assert Expression(text_of(of_file(text_of(written_sum(sum_of(node)))))).evaluate(values) == right


@pytest.mark.parametrize(
    "text",
    [
        "(n + b - 1) / b",
        "(b + n - 1) / b",
        "(n - 1) / b + 1",
        "n / b + (n % b == 0 ? 0 : 1)",
        "n % b ? n / b + 1 : n / b",
        "n < b ? 1 : (n + b - 1) / b",
        "(int)ceil((float)n / b)",
        "ceil(n * 1.0 / b)",
        "iDivUp(n, b)",
        "static_cast<int>((n + b - 1) / b)",
    ],
)
@given(VALUES)
def test_forms_of_a_division_rounded_up(text: str, values: dict[str, int]) -> None:
    node = parsed_text(text)
    assert node is not None
    assert Expression(text_of(node)).evaluate(values) == -(-values["n"] // values["b"])


@pytest.mark.parametrize("text", ["x[0] = {1, 2}", "lambda", '"text"', "a ? b", "(", "f(a;b)"])
def test_what_is_no_arithmetic_is_nothing(text: str) -> None:
    assert parsed_text(text) is None


def test_a_launch_is_followed_to_what_it_stands_on() -> None:
    """Names of the launch's function count before those of the text, and the last value of a name."""
    text = """
    #define T 32
    const int n = 5;
    int up(int a, int b) { return (a + b - 1) / b; }
    void f(int m) { int n = 7; dim3 g; g.x = up(m, T); g.y = n; k<float, 4><<<g, dim3(T, n), 2 * n>>>(0); }
    """
    (launch,) = launches_in(text)
    assert (launch.kernel, launch.template, len(launch.grid)) == ("k", ("float", "4"), 2)
    assert launch.grid[0] is not None
    assert text_of(launch.grid[0]) == "ceil_div(m, T)"
    assert text_of(launch.values["n"]) == "7"


def test_a_chain_of_names_stays_small() -> None:
    """Each name stands for four others: what that is multiplied out is not waited for."""
    lines = "".join(f"int v{i} = v{i + 1} * v{i + 1} + v{i + 1} * v{i + 1} + v{i + 1};" for i in range(30))
    body = defined_functions(f"__global__ void k(float* x) {{ {lines} if (v0 < 9) x[v0] = blockIdx.x; }}")[
        0
    ].body
    assert Indexing(body, {}).covered("x") is None
