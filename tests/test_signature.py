"""Signatures, arithmetic and launches of CUDA C++ text, as kernel files need them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.kernel_files.cuda_source.c_expressions import of_file, parsed_text, sum_of, text_of, written_sum
from tuner.kernel_files.cuda_source.indexing import Indexing
from tuner.kernel_files.cuda_source.launches import launches_in
from tuner.kernel_files.cuda_source.signatures import (
    Parameter,
    TemplateParameter,
    defined_functions,
    dtype_of,
    global_functions,
    parameters_in,
    parameters_of,
)
from tuner.kernel_files.cuda_source.tokens import defined_macros, tokens_of
from tuner.model.errors import InputError
from tuner.model.expressions.callables import Expression

SOURCE = r"""
#define KERNEL extern "C" __global__
#define SQUARE(x) \
    __global__ void in_a_macro(int x) {}
using real = float;
typedef unsigned char byte;
// __global__ void comment(int x) {}
/* __global__ void comment_too(int x) {} */
const char* text = "__global__ void text(int x) {}";
namespace a { namespace b {
template <typename T, int P = (4 > 2 ? 1 : 2), class U = double, bool = true>
__global__ void __launch_bounds__(256, 2) __attribute__((noinline))
saxpy(const T* __restrict__ x, T *y, U a,
      int count = 3 /* several, of course */, const real& r = 1.f, byte* const b = nullptr,
      T* const* rows, float (&tile)[16], float4 v[], ns::Foo<int, 3> foo, unsigned long long, const float)
{ }
}}
KERNEL void none(void) {}
extern "C" { void __global__ BOUNDS(32) wide(long n, unsigned u, size_t z, __half* h, void* q); }
template __global__ void saxpy<float>(int);
__global__ [[maybe_unused]] void last(
    __grid_constant__ const CUtensorMap m, std::complex<float>* c,
    const int *const __restrict__ i) noexcept {}
"""


def shown(parameters: list[Parameter]) -> list[tuple[str, str, str | None]]:
    return [(one.name, str(one), one.dtype) for one in parameters]


def test_the_functions_of_a_source_are_found() -> None:
    """Those in comments, texts and macros are none; an instantiation is no other function."""
    functions = global_functions(SOURCE)

    assert [one.name for one in functions] == ["saxpy", "none", "wide", "last"]
    assert functions[0].template == (
        TemplateParameter("T", "typename"),
        TemplateParameter("P", "int", "( 4 > 2 ? 1 : 2 )"),
        TemplateParameter("U", "typename", "double"),
        TemplateParameter("", "bool", "true"),
    )
    assert [parameter.name for parameter in functions[0].template] == ["T", "P", "U", ""]
    assert SOURCE.splitlines()[functions[0].line - 1].startswith("saxpy(")
    assert functions[1].parameters == ()


def test_an_entry_gives_types_to_the_template() -> None:
    """Types of the entry stand for those of the template, and default types where it names none."""
    assert shown(parameters_of(SOURCE, "a::b::saxpy<const float, 4>")) == [
        ("x", "const float*", "float32"),
        ("y", "float*", "float32"),
        ("a", "double", "float64"),
        ("count", "int", "int32"),
        ("r", "const float*", "float32"),
        ("b", "unsigned char*", "uint8"),
        ("rows", "const float**", None),
        ("tile", "float ()*", None),
        ("v", "float4*", None),
        ("foo", "ns::Foo<int, 3>", None),
        ("", "unsigned long long", "uint64"),
        ("", "float", "float32"),
    ]


def test_types_of_c_are_dtypes() -> None:
    """Whole numbers by their width under Linux; complex and half types by their usual names."""
    assert shown(parameters_of(SOURCE, "wide")) == [
        ("n", "long", "int64"),
        ("u", "unsigned", "uint32"),
        ("z", "size_t", "uint64"),
        ("h", "__half*", "float16"),
        ("q", "void*", None),
    ]
    assert shown(parameters_of(SOURCE, "last"))[1:] == [
        ("c", "std::complex<float>*", "complex64"),
        ("i", "const int*", "int32"),
    ]
    assert [dtype_of(t) for t in ("unsigned short int", "long long", "char", "long double", "void", "")] == [
        *("uint16", "int64", "int8", None, None, None)
    ]


def test_a_pointer_may_come_by_the_template() -> None:
    """A type parameter that is a pointer makes its parameter one."""
    source = "template <class T> __global__ void f(T x, T* y) {}"
    assert shown(parameters_of(source, "f<int*>")) == [("x", "int*", "int32"), ("y", "int**", None)]


def test_a_list_of_a_demangler_is_read() -> None:
    """It writes const behind the type, and no names."""
    found = parameters_in("float const*, unsigned int, std::complex<double>*, Pair<int, 2>")
    assert shown(found) == [
        ("", "const float*", "float32"),
        ("", "unsigned int", "uint32"),
        ("", "std::complex<double>*", "complex128"),
        ("", "Pair<int, 2>", None),
    ]


@pytest.mark.parametrize(
    ("source", "entry", "words"),
    [
        (SOURCE, None, "4 __global__ functions"),
        ("", None, "0 __global__ functions"),
        (SOURCE, "saxpi<1>", "did you mean 'saxpy'"),
    ],
)
def test_a_function_that_is_not_there_is_named(source: str, entry: str | None, words: str) -> None:
    """The message lists those that are."""
    with pytest.raises(InputError, match=words):
        parameters_of(source, entry)


def test_macros_without_parameters_are_read() -> None:
    """A body may go on in the next line; comments are no part of it."""
    assert defined_macros("#define A \\\n 3 // three\n#define F(x) x\n # define B\n") == {"A": "3", "B": ""}


PIECES = st.sampled_from(
    [
        *("__global__", "template", "typename", "<", ">", "(", ")", "[", "]", "{", "}", ",", ";", "=", "::"),
        *("const", "*", "&", "int", "float", "T", "void", "f", "x", "void(", "using", "typedef", "operator"),
        *('"t', "//", "/*", "*/", "#", "#define", "\\\n", 'R"(', "'c'", "...", "1.5e-3"),
    ]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(PIECES, max_size=40).map(" ".join) | st.text(max_size=60))
def test_any_text_is_read(text: str) -> None:
    """No text makes an error, and tokens have the lines they stand in."""
    for function in global_functions(text):
        assert function.name
        assert 1 <= function.line <= text.count("\n") + 1
    for token in tokens_of(text):
        assert token.text.split("\n")[0] in text.split("\n")[token.line - 1]
    parameters_in(text)
    defined_macros(text)


UNSURE = {
    "#ifdef D\n#define real double\n#else\n#define real float\n#endif\n": None,
    "#define real float\n#ifndef real\n#define real double\n#endif\n": "float32",  # the first as of an option
    "#ifndef real\n#define real float\n#endif\n": "float32",
    "struct a { typedef double real; }; struct b { typedef float real; };\n": None,
    "namespace a { using real = float; } namespace b { using real = float; }\n": "float32",
}


@pytest.mark.parametrize("before", UNSURE)
def test_a_name_of_several_types_has_no_dtype(before: str) -> None:
    """What conditions and scopes decide is not guessed."""
    (parameter,) = parameters_of(before + "__global__ void k(real* x) {}")
    assert (parameter.type == "real", parameter.dtype) == (UNSURE[before] is None, UNSURE[before])


def test_declarations_that_do_not_agree_can_be_refused() -> None:
    """Overloads and alternatives of conditions; names and ``const`` of values do not count."""
    several = "__global__ void k(float* x); __global__ void k(double* x) {}"
    assert parameters_of(several)[0].dtype == "float32"
    with pytest.raises(InputError, match="k is declared in 2 ways"):
        parameters_of(several, "k", sole=True)
    same = "__global__ void k(float*, int); __global__ void k(float x[], const int n) {}"
    assert [one.name for one in parameters_of(same, "k", sole=True)] == ["", ""]


def test_directives_between_statements_are_no_tokens() -> None:
    """Each from the first of its line, as long as its lines go on; behind a statement there is none."""
    text = "int a;\n #define B 1 \\\n + 2\nint c; /* d\n */ # e"
    assert [token.text for token in tokens_of(text)] == ["int", "a", ";", "int", "c", ";", "#", "e"]
    assert [token.line for token in tokens_of(text)] == [1, 1, 1, 4, 4, 4, 5, 5]


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
