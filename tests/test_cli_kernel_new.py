"""``tuner kernels new`` and the compiled part of ``tuner kernels check``."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tuner.cli.main import main
from tuner.kernel_files.cuda_source.guesses import constant_symbols, macros_of, role_of
from tuner.kernel_files.cuda_source.tokens import fixed_constants, tokens_of

SCALE = r"""
#ifndef TILE
#define TILE 16
#endif
#define TWICE 2
template <typename T, int P>
__global__ void scale(const T* a, double* b, float* c, long n, float alpha) {
    const int first = (blockIdx.x * block_size_x + threadIdx.x) * P;
#if use_shared == 1
    __shared__ float tile[TILE];
#endif
    for (int k = 0; k < P; ++k)
        if (first + k < n) {
            b[first + k] = TWICE * alpha * a[first + k];
            c[first + k] += 1.0f;
        }
}
"""
FILTER = r"""
constexpr int taps = 3;
__constant__ float weights[taps][taps];
extern "C" __global__ void filter(const float* image, float* out, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) out[y * width + x] = weights[0][0] * image[y * width + x];
}
"""


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["kernels", *map(str, arguments)])


def written(folder: Path, text: str, name: str = "scale.cu") -> Path:
    """A source, and the kernel file that is made for it."""
    source = folder / name
    source.write_text(text)
    result = run("new", source)
    assert result.exit_code == 0, result.output
    return source.with_suffix(".toml")


def test_a_new_file_is_well_formed(tmp_path: Path) -> None:
    """Roles, sizes, macros and the block follow from the source; it is compiled and passes its check."""
    file = written(tmp_path, SCALE)
    text = file.read_text()
    for line in (
        'kernel.entry = "scale<float, {P}>"',
        "sizes.N = [1048576]",
        'a = "in float32[N]"',
        'b = "out float64[N]"',
        'c = "inout float32[N]"',
        'n = "int64 = N"',
        'alpha = "float32 = 1"  # GUESS: its value is not told',
        "P = [1, 2, 4, 8]",
        "TILE = [8, 16, 32]  # GUESS: the values to try",
        "use_shared = [0, 1]",
        "TILE = 16",
        "block_size_x = 256",
    ):
        assert line in text
    assert "TWICE" not in text  # makes no tile, block or index
    target = tmp_path / "check.json"
    result = run("check", file, "--arch", "sm_90", "--json", target)
    assert result.exit_code == 0, result.output
    document = json.loads(target.read_text())
    assert [(one["architecture"], one["error"]) for one in document["compiled"]] == [("sm_90", None)]
    assert document["warnings"] == document["errors"] == []
    assert "only compared with each other" in result.stdout


def test_a_new_file_replaces_none(tmp_path: Path) -> None:
    """Unless told to."""
    file = written(tmp_path, SCALE)
    file.write_text("mine")
    refused = run("new", tmp_path / "scale.cu")
    assert (refused.exit_code, file.read_text()) == (2, "mine")
    assert "--force replaces it" in refused.stderr
    assert run("new", tmp_path / "scale.cu", "--force").exit_code == 0


def test_what_cannot_be_told_is_left_open(tmp_path: Path) -> None:
    """A struct and an unknown element type are named in the output, and where they stand."""
    source = tmp_path / "odd.cu"
    source.write_text("__global__ void odd(Params p, void* out, __half2* in, int n) { out[0] = in[0]; }")
    result = run("new", source)
    text = source.with_suffix(".toml").read_text()
    assert '# p = "..."  # FILL IN: Params: structs are written as { field' in text
    assert 'in_ = "in float16[1, 2]"' in text
    assert "to fill in: arguments.p: Params" in result.output
    assert "guessed: arguments.out: void is not known" in result.output


STEP = """
struct Step { float dt, damping; int n; };
#define THREADS 128
__global__ void step(float* x, Step s) {
    int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < s.n) x[i] += s.dt * s.damping;
}
"""
GUARDED = STEP.replace("#define THREADS 128", "#ifndef THREADS\n#define THREADS 128\n#endif")


def test_a_struct_of_the_source(tmp_path: Path) -> None:
    """Its fields become a table; one called n is a size, and the file is well formed."""
    file = written(tmp_path, GUARDED, "step.cu")
    line = 's = { dt = "float32 = 1", damping = "float32 = 1", n = "int32 = N" }'
    assert f"{line}  # GUESS: the values of its fields" in file.read_text()
    result = run("check", file, "--arch", "sm_90", "--strict")
    assert result.exit_code == 0, result.output
    assert f"next: tuner run --kernel {file}" in result.output


def test_constants_of_the_host_are_no_constants_of_a_kernel() -> None:
    text = "int main() { const int K = 3; }\n__global__ void f() { const int J = 2; }\nconstexpr int I = 1;"
    assert fixed_constants(text) == {"I", "J"}


def test_a_macro_that_the_source_defines_itself(tmp_path: Path) -> None:
    """No tunable is made of it, and one made by hand is refused: every value would be the same code."""
    text = written(tmp_path, STEP, "step.cu").read_text()
    assert 'grid = "ceil_div(N, 128)"' in text
    assert "# Fixed by the source: THREADS = 128." in text
    file = tmp_path / "step.toml"
    text = text.replace("[tunables]", "[tunables]\nTHREADS = [64, 128]")
    file.write_text(text.replace("[default]", "[default]\nTHREADS = 64"))
    result = run("check", file, "--no-compile")
    assert result.exit_code == 2
    assert (
        "THREADS: step.cu defines it itself, so that every value compiles to the same code" in result.stderr
    )


@pytest.mark.parametrize(
    "definition",
    ["constexpr int THREADS = 128;", "static constexpr unsigned THREADS = 128;", "const int THREADS{0x80};"],
)
def test_a_constant_that_the_source_defines_itself(tmp_path: Path, definition: str) -> None:
    """Where nothing passes a tunable on, a constant of its name would be the value of all."""
    text = written(tmp_path, STEP.replace("#define THREADS 128", definition), "step.cu").read_text()
    file = tmp_path / "step.toml"
    text = text.replace("[tunables]", "[tunables]\nTHREADS = [64, 128]")
    file.write_text(text.replace("[default]", "[default]\nTHREADS = 64"))
    result = run("check", file, "--no-compile")
    assert result.exit_code == 2
    assert "THREADS: step.cu defines it itself" in result.stderr
    assert "make it a macro with #define between #ifndef THREADS and #endif" in result.stderr


def test_two_axes_and_a_symbol(tmp_path: Path) -> None:
    """The size along x is the last axis; a constant array is a line of its own."""
    text = written(tmp_path, FILTER, "filter.cu").read_text()
    for line in (
        'image = "in float32[HEIGHT, WIDTH]"',
        'weights = "constant float32[3, 3]"',
        'grid = ["ceil_div(WIDTH, block_size_x)", "ceil_div(HEIGHT, block_size_y)"]',
        'rules = ["block_size_x * block_size_y <= 1024"]',
    ):
        assert line in text


@pytest.mark.parametrize(
    ("text", "words", "trouble"),
    [
        ("int main() {}", (), "has no __global__ function"),
        (SCALE + FILTER, (), "has 2 kernels; choose one: --kernel scale or --kernel filter"),
        (SCALE, ("--kernel", "skale"), "did you mean 'scale'"),
    ],
)
def test_a_source_without_the_kernel(tmp_path: Path, text: str, words: tuple[str, ...], trouble: str) -> None:
    """The message lists those that are there."""
    (tmp_path / "scale.cu").write_text(text)
    result = run("new", tmp_path / "scale.cu", *words)
    assert result.exit_code == 2
    assert trouble in result.stderr


def test_how_arrays_are_used() -> None:
    """An array is an output where each use of it is an assignment."""
    text = "void f(float* a, float* b, float* c, float* d) { a[i] = b[i][0] + c[0]; c[1]++; g(d); a[2] = 1; }"
    assert [role_of(tokens_of(text), [name]) for name in "abcd"] == ["out", "in", "inout", "inout"]


def test_macros_that_others_define() -> None:
    """Those of guards around headers, and of conditions that the source decides, are none."""
    text = (
        "#ifndef HEADER_H\n#define HEADER_H\n#define A 1\n#if A && B == 2\nint x = TILE;\n#endif\n#endif\nB"
    )
    assert {name: macro.values for name, macro in macros_of(text, []).items()} == {"B": (0, 2)}
    chosen = "#ifdef WG\n#define B WG\n#else\n#define B 16\n#endif\nint b = B;"
    assert {name: macro.first for name, macro in macros_of(chosen, []).items()} == {"WG": 16}
    assert [(name, axes) for name, _, axes in constant_symbols("__constant__ int n;")] == [("n", ("1",))]


@pytest.mark.parametrize(
    ("old", "new", "level", "words"),
    [
        (
            'n = "int64 = N"',
            'n = "int32 = N"',
            2,
            "argument 4 (n) of scale<float, 1> (scale.cu), which takes",
        ),
        ('"out float64[N]"', '"out float32[N]"', 2, "argument 2 (b) of scale<float, 1>"),
        ('"in float32[N]"', '"in int32[N]"', 2, "'const float* a': it is an array of int32; dtype 'float32'"),
        ('alpha = "float32 = 1"', 'alpha = "in float32[N]"', 2, "a scalar of dtype 'float32' would be right"),
        ('a = "in float32[N]"', 'a = "float32 = 1"', 2, "an array of dtype 'float32' would be right"),
        ('alpha = "float32 = 1"', "", 2, "4 arguments for scale<float, 1> (scale.cu), which takes 5"),
        ('n = "int64 = N"', 'n = "uint64 = N"', 0, "Warning: "),
        ("[tunables]", "[tunables]\nidle = [1, 2]", 0, "[tunables] idle: nothing uses it"),
        ("[default]", "[derived]\nhalf = 'N // 2'\n[default]", 0, "[derived] half: nothing uses it"),
        ("[default]", "[derived]\n'half(x)' = 'x // 2'\n[default]", 0, "[derived] half(x): nothing uses it"),
        ("kernel.entry", 'kernel.options = ["-DIDLE=1"]\nkernel.entry', 0, "no source uses the macro IDLE"),
    ],
)
def test_what_does_not_fit_the_signature(tmp_path: Path, old: str, new: str, level: int, words: str) -> None:
    """Errors for what cannot be, warnings for what may be meant; strict takes both as errors."""
    file = written(tmp_path, SCALE)
    text = file.read_text()
    assert old in text
    text = text.replace(old, new, 1)
    file.write_text(text.replace("[default]", "[default]\nidle = 1") if "idle =" in new else text)
    result = run("check", file, "--no-compile")
    assert result.exit_code == level, result.output
    assert words in result.stderr
    assert run("check", file, "--no-compile", "--strict").exit_code == 2


def test_types_without_a_dtype_are_told_once(tmp_path: Path) -> None:
    """They are no warnings: nothing is wrong with them; instantiations of a template are one function."""
    source = "template <typename T> struct Pair { T x, y; };\ntemplate <typename T, int P>\n__global__ void "
    source += "pairs(const Pair<T>* in, void* out) { ((Pair<T>*)out)[threadIdx.x] = in[threadIdx.x]; }"
    (tmp_path / "pairs.cu").write_text(source)
    file = tmp_path / "pairs.toml"
    file.write_text(
        'kernel = { name = "pairs", source = "pairs.cu", entry = "pairs<{select(wide == 1, \'double\', '
        "'float')}, {P}>\" }\n"
        'problem = { name = "consistent", sizes = { N = [64], wide = [0, 1] } }\n'
        "arguments = { a = \"in {select(wide == 1, 'complex128', 'complex64')}[N]\", "
        "b = \"out {select(wide == 1, 'complex128', 'complex64')}[N]\" }\n"
        "tunables = { P = [1, 2] }\nlaunch = { grid = 1, block = 64 }\n"
    )
    result = run("check", file, "--arch", "sm_90", "--strict")
    assert result.exit_code == 0, result.output
    lines = [line.split(": ", 1)[1] for line in result.stdout.splitlines() if "not compared" in line]
    assert lines == [
        "argument 1 (a) of pairs (pairs.cu) is not compared: no dtype is known for const Pair<...>*",
        "argument 2 (b) of pairs (pairs.cu) is not compared: no dtype is known for void*",
    ]
    assert "Warning" not in result.stderr
    (tmp_path / "pairs.cu").write_text(source.replace("void* out", "void* out, int n"))
    result = run("check", file, "--no-compile")
    assert result.exit_code == 2
    assert result.stderr.count("2 arguments for pairs<float, 1> (pairs.cu), which takes 3") == 1
    assert "pairs<double" not in result.stderr


def test_a_source_that_does_not_compile(tmp_path: Path) -> None:
    """The error has the architectures and the compiler's first error."""
    file = written(tmp_path, SCALE.replace("TWICE * alpha", "TWICE beta alpha"))
    result = run("check", file, "--arch", "sm_80", "--arch", "sm_90")
    assert result.exit_code == 2
    assert "does not compile for sm_80 sm_90" in result.stderr
    assert "scale.cu(14): error: expected a" in result.stderr
    assert "--arch sm90" in run("check", file, "--arch", "sm90").stderr
    unserved = run("check", file, "--arch", "sm_9")
    assert unserved.exit_code == 2
    assert "--arch sm_9: NVRTC serves sm_" in unserved.stderr


def test_every_alternative_is_compiled(tmp_path: Path) -> None:
    """A text tunable chooses other code: a mistake in it is an error, though the default compiles."""
    source = tmp_path / "twice.cu"
    source.write_text(
        "#pragma tuner problem(N = 64)\n"
        "#pragma tuner inout y: float32[N]\n"
        "#pragma tuner launch grid(1) block(64)\n"
        "__global__ void twice(float* y, int N)\n"
        "{\n"
        "#pragma tuner select FORM\n"
        "#pragma tuner case sum\n"
        "    if (threadIdx.x < N) y[threadIdx.x] += y[threadIdx.x];\n"
        "#pragma tuner case product\n"
        "    if (threadIdx.x < N) y[threadIdx.x] *= two;\n"
        "#pragma tuner end\n"
        "}\n"
    )
    result = run("check", source, "--arch", "sm_90")

    assert result.exit_code == 2
    assert 'twice.cu(10): error: identifier "two" is undefined' in result.stderr
    source.write_text(source.read_text().replace("two", "2.0f"))
    assert run("check", source, "--arch", "sm_90").exit_code == 0


def test_a_source_with_pragmas_is_a_kernel_file_itself(tmp_path: Path) -> None:
    """A second kernel of the same name would stand beside it, without its tunables."""
    source = tmp_path / "k.cu"
    source.write_text("#pragma tuner values 1, 2\n#define P 1\n__global__ void k(float* x) { x[0] = P; }\n")
    result = run("new", source)
    assert result.exit_code == 2
    assert f"is a kernel file itself: `tuner kernels check {source}`" in result.output
    assert not source.with_suffix(".toml").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + SCALE.encode(),
        SCALE.replace("\n", "\r\n").encode(),
        ("// gr\xf6\xdfer \xb5" + SCALE).encode("latin-1"),
    ],
    ids=["BOM", "CRLF", "Latin-1"],
)
def test_text_of_other_editors_is_read(tmp_path: Path, content: bytes) -> None:
    """A source may begin with a BOM, end its lines as Windows does, and have comments in Latin-1."""
    source = tmp_path / "scale.cu"
    source.write_bytes(content)
    assert run("new", source).exit_code == 0
    checked = run("check", source.with_suffix(".toml"), "--arch", "sm_90")
    assert checked.exit_code == 0, checked.output
    assert "guesses not looked at: lines " in checked.output


HOST = """
#include <vector>
#include <not_here.h>
using std::vector;
static float* buffer; const int N = 64;
struct Pair { float x; Pair() : x(0) {} float twice() const { return 2 * x; } };
template <typename T> T half_of(T x) { return x / 2; }
void reference(float* y) { for (int i = 0; i < N; ++i) { y[i] = 1; } }
extern "C" { int helper(int a); }
"""


@pytest.mark.parametrize("lines", [0, 3, len(HOST.splitlines())])
def test_code_of_the_host_is_left_out(tmp_path: Path, lines: int) -> None:
    """A file with ``main`` is a kernel's source as it is; lines of errors stay those of the file."""
    host = "\n".join(HOST.splitlines()[:lines])
    kernel = "__global__ void one(float* y, int n) { int i = threadIdx.x; if (i < n) y[i] = i < 64; }\n"
    launch = 'int main() { float* d; cudaMalloc(&d, 256); one<<<1, 64>>>(d, 64); printf("%f", d[0]); }\n'
    assert "grid = 1" in written(tmp_path, f"{host}\n{kernel}{launch}", "one.cu").read_text()
    assert run("check", tmp_path / "one.toml", "--arch", "sm_90").exit_code == 0
    (tmp_path / "one.cu").write_text(f"{host}\n{kernel.replace('i < 64', 'nothing')}{launch}")
    refused = run("check", tmp_path / "one.toml", "--arch", "sm_90")
    assert refused.exit_code == 2
    assert f'one.cu({max(lines, 1) + 1}): error: identifier "nothing" is undefined' in refused.stderr
    assert ("vector, which it includes, is not here" in refused.stderr) == (lines > 0)


def test_a_header_of_the_users_own_is_not_left_out(tmp_path: Path) -> None:
    """What the kernel means may depend on it, as ``#if FAST`` does, so its absence is an error."""
    kernel = "#if FAST\n#endif\n__global__ void one(float* y) { y[threadIdx.x] = 1; }\n"
    launch = "int main() { float* d; cudaMalloc(&d, 256); one<<<1, 64>>>(d); }\n"
    written(tmp_path, f"{kernel}{launch}", "one.cu")
    assert run("check", tmp_path / "one.toml", "--arch", "sm_90").exit_code == 0
    (tmp_path / "one.cu").write_text(f'#include "config.h"\n{kernel}{launch}')
    refused = run("check", tmp_path / "one.toml", "--arch", "sm_90")
    assert refused.exit_code == 2
    assert "config.h" in refused.stderr


def test_a_draft_asks_the_compiler_for_a_while_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has not answered by then is left as it is guessed, and one line says so."""
    monkeypatch.setattr("tuner.cli.kernels.DRAFT_S", 0.0)
    source = tmp_path / "scale.cu"
    source.write_text(SCALE)
    result = run("new", source)
    assert result.exit_code == 0
    assert result.stderr == "compiling took 0 s: no more is asked of the compiler\n"
    assert "use_shared = [0, 1]" in source.with_suffix(".toml").read_text()


def test_one_of_several_functions_is_asked_for(tmp_path: Path) -> None:
    """Overloads are told by their parameters, and a namespace is part of the entry."""
    text = "namespace a { __global__ void k(float* x) { x[0] = 1; }\n"
    (tmp_path / "k.cu").write_text(text + "__global__ void k(int* x, int n) { x[n] = 1; } }")
    refused = run("new", tmp_path / "k.cu")
    assert refused.exit_code == 2
    assert '--kernel "a::k(int*, int)"' in refused.stderr
    assert run("new", tmp_path / "k.cu", "--kernel", "a::k(int*,int)").exit_code == 0
    assert run("check", tmp_path / "k.toml", "--arch", "sm_90").exit_code == 0
    assert 'kernel.entry = "(void (*)(int*, int))a::k"' in (tmp_path / "k.toml").read_text()
