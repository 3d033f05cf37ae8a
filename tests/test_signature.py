"""Parameters of ``__global__`` functions, read without a compiler."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.config.signature import Parameter, dtype_of, parameters_of

SOURCE = """
// __global__ void commented(int x)
extern "C" __global__ void __launch_bounds__(256, 2) first(float* __restrict__ c, const float *a,
    double const* b, const int n, unsigned long long k = 3, float4 v, T x[16], const unsigned int* idx)
{ }
template <int P, typename T = float>
__global__ void second(T*, int) {}
__device__ void helper(int y) {}
namespace spaces { __global__ void third(void) { first<<<1, 1>>>(0); } }
"""


def test_parameters_of_a_function() -> None:
    """Names, types, pointers and const, in order."""
    found = parameters_of(SOURCE, "first")

    assert found is not None
    assert found[0] == Parameter("c", "float", pointer=True, const=False, dtype="float32")
    assert [(p.name, p.dtype, p.pointer, p.const) for p in found[1:]] == [
        ("a", "float32", True, True),
        ("b", "float64", True, True),
        ("n", "int32", False, True),
        ("k", "uint64", False, False),
        ("v", None, False, False),
        ("x", None, True, False),
        ("idx", "uint32", True, True),
    ]


def test_parameters_without_names_and_without_any() -> None:
    """A parameter may have no name, a function no parameter."""
    found = parameters_of(SOURCE, "second")

    assert found is not None
    assert [(p.name, p.type, p.pointer) for p in found] == [("", "T", True), ("", "int", False)]
    assert parameters_of(SOURCE, "third") == ()


@pytest.mark.parametrize("name", ["commented", "helper", "nothing"])
def test_what_is_no_kernel_has_none(name: str) -> None:
    """Comments, device functions and unknown names."""
    assert parameters_of(SOURCE, name) is None


@pytest.mark.parametrize(
    ("type_", "dtype"),
    [
        ("int", "int32"),
        ("long long int", "int64"),
        ("unsigned", "uint32"),
        ("std::int64_t", "int64"),
        ("T", None),
    ],
)
def test_types_of_numpy(type_: str, dtype: str | None) -> None:
    """Types of C++ by NumPy's names."""
    assert dtype_of(type_) == dtype


@given(st.text(alphabet="__global__ void f(int*&<>[]{},;=\"/'\n) x", max_size=120))
def test_any_text_is_read_without_an_error(text: str) -> None:
    """What cannot be read has no parameters, or some; nothing is raised."""
    parameters_of(text + " __global__ void f(int x) {}", "f")
