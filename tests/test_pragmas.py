# ruff: noqa: E501 - files stand on as few lines as they can be read on
"""Each tuning pragma means keys of a kernel file; structs as parameters."""

import re
import struct
from pathlib import Path
from typing import Any

import pytest
from cli_process import document, tuner
from pragma_files import FIRST

from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_document import expanded
from tuner.kernel_files.pragmas.expansion import expansion
from tuner.kernel_files.source_checks import unused_names
from tuner.model.plan import StructValue

P = "#pragma tuner"
DEVICE = ("--device", "sim:h200")
BASE = f"""\
{P} problem(N = [64, 128], W = 1..8192, MODE = ["plain", "fast"], batch = 2, tolerance = 1e-4, optional = [W])
{P} input x: float32[N] = uniform(-1, 1)
{P} inout y: float32[batch, N]
{P} scratch t: float32[N]
{P} zeroed z: int32[1]
{P} constant table: float32[4]
{P} value n = N * 2
{P} value w: int64 = W
{P} check y = 2 * x + 1
{P} derived PER = A * 2
{P} constraint A * W <= 8192
{P} constraint PER > 0
{P} toml kernel.family = "blas"
{P} toml work.bytes = "8 * N"
"""
KERNEL = "__global__ void k(const float* x, float* y, float* t, int* z, int n, long long w, int N) {"


def document_of(text: str) -> dict[str, Any]:
    return dict(expansion(Path("k.cu"), text).document)


def test_statements_are_the_tables_of_a_kernel_file() -> None:
    """Sizes, arrays, values, checks, derived names, rules and other keys stand where a kernel file has them."""
    launch = f"{P} launch grid(ceil_div(N, 64), batch) block(32, 2) shared_bytes(4 * A) registers(64)\n"
    found = document_of(
        f"{BASE}{P} values 1, 2\n#define A 1\n__constant__ float table[4];\n{launch}{KERNEL} }}\n"
    )
    assert found["kernel"] == {"source": "k.cu", "entry": "k", "family": "blas"}
    sizes = {"N": [64, 128], "W": {"from": 1, "to": 8192}, "MODE": ["plain", "fast"]}
    assert found["problem"] == {
        "sizes": sizes,
        "batch": 2,
        "tolerance": 1e-4,
        "optional": ["W"],
        "reference": {"y": "2 * x + 1"},
    }
    assert found["arguments"] == {
        "x": "in float32[N] = uniform(-1, 1)",
        "y": "inout float32[batch, N]",
        "t": "scratch float32[N]",
        "z": "zeroed int32[1]",
        "n": "int32 = N * 2",
        "w": "int64 = W",
        "N": "int32 = N",
        "table": "constant float32[4]",
    }
    assert found["derived"] == {"PER": "A * 2"}
    assert found["constraints"] == {"rules": ["A * W <= 8192", "PER > 0"]}
    assert found["work"] == {"bytes": "8 * N"}
    assert found["tunables"] == {"A": [1, 2]}
    assert found["default"] == {"A": 1}
    assert found["launch"] == {
        "grid": ["ceil_div(N, 64)", "batch"],
        "block": [32, 2],
        "shared_bytes": "4 * A",
        "registers": 64,
    }


@pytest.mark.parametrize(
    ("pragma", "code", "values", "default"),
    [
        ("erange 64, 512, 2", "#define A 256", [64, 128, 256, 512], 256),
        ("erange A: 3, 100, 3", "#define A (27)", [3, 9, 27, 81], 27),
        ("range 1, 7, 3", "constexpr int A = 4;", [1, 4, 7], 4),
        ("range -2, 0", "static const int A = -1;", [-2, -1, 0], -1),
        ("values 1, 2, 4", "const unsigned A = 4u;", [1, 2, 4], 4),
        ("values 0x10, 32", "constexpr auto A = 0x20;", [16, 32], 32),
        ("values true, false", "constexpr bool A = false;", [True, False], False),
        ("values 0.5, 1.5", "#define A 1.5 // more", [0.5, 1.5], 1.5),
        ("values 1, 2", "struct S {\n  static constexpr int A = 2;\n};", [1, 2], 2),
        ("values 1, 2", "template <int A = 2> __device__ int f() { return A; }", [1, 2], 2),
        ("values 1, 2 when N > 64 otherwise 2", "#define A 1", {"values": [1, 2], "when": "N > 64", "otherwise": 2}, 1),
    ],
)  # fmt: skip
def test_tunables_begin_with_what_the_source_has(
    pragma: str, code: str, values: object, default: object
) -> None:
    """The values are those of the pragma, the default is the value below it."""
    text = (
        code.replace("struct S {\n", f"struct S {{\n{P} {pragma}\n")
        if "struct" in code
        else f"{P} {pragma}\n{code}"
    )
    first = f"{P} problem(N = [64])\n{P} output y: float32[N]\n{P} check default\n"
    found = document_of(f"{first}{text}\n{P} launch grid(1) block(1)\n__global__ void k(float* y) {{ }}\n")
    assert found["tunables"] == {"A": values}
    assert found["default"] == {"A": default}
    assert type(found["default"]["A"]) is type(default)


def test_a_pragma_right_below_a_tunable_define_is_taken_out_too() -> None:
    """The ``#endif`` behind the ``#define`` is inserted where the next pragma begins."""
    text = f"{BASE}{P} values 1, 2\n#define A 1\n{P} launch grid(N) block(32)\n{KERNEL} }}\n"
    assert "#pragma" not in expansion(Path("k.cu"), text).text


def test_the_paper_writes_ranges_without_a_prefix() -> None:
    """``#pragma erange`` and ``#pragma range`` are the same with ``tuner`` and without."""
    rest = (
        f"{P} problem(N = [64])\n{P} output y: float32[N]\n{P} check default\n"
        f"{P} launch grid(P) block(L)\n__global__ void k(float* y) {{ }}\n"
    )
    text = f"{P} erange 64, 512, 2\n#define L 256\n{P} range 1, 4\n#define P 2\n{rest}"
    short = text.replace(f"{P} erange", "#pragma erange").replace(f"{P} range", "#pragma range")
    assert "#pragma erange" in short
    assert document_of(short) == document_of(text)


@pytest.mark.parametrize(
    ("check", "key", "value"),
    [
        ('function "reference.py:name"', "reference_function", "reference.py:name"),
        ('law "laws.py:residual"', "law", "laws.py:residual"),
        ('entry "naive"', "reference_entry", "naive"),
        ("default", "name", "consistent"),
    ],
)
def test_checks_of_all_forms(check: str, key: str, value: str) -> None:
    """A Python function, a law, a naive kernel, or answers compared with each other."""
    text = (
        f"{P} problem(N = [64])\n{P} output y: float32[N]\n{P} check {check}\n{P} values 1, 2\n#define A 1\n"
    )
    found = document_of(f"{text}{P} launch grid(1) block(1)\n__global__ void k(float* y) {{ }}\n")
    assert found["problem"][key] == value


def test_kernels_of_one_name_are_told_apart_by_namespace() -> None:
    """The entry names the namespaces around the launch; parameters are those of the function below it."""
    text = f"""\
{P} problem(N = [64])
{P} output y: float32[N]
{P} check default
namespace a {{ __global__ void k(const int* q) {{ }} }}
namespace b::c {{
namespace {{
{P} launch grid(1) block(N)
__global__ void k(float* y, int N) {{ }}
}}
}}
"""
    found = document_of(text)
    assert found["kernel"]["entry"] == "b::c::k"
    assert list(found["arguments"]) == ["y", "N"]


def test_several_launches_are_stages_in_their_order() -> None:
    """Each launch is a stage with its own arguments; those in a case run only with it."""
    text = f"""\
{P} problem(N = [64])
{P} input x: float32[N]
{P} scratch t: float32[N]
{P} output y: float32[N]
{P} check default
{P} select FORM
{P} case one
{P} launch grid(1) block(1)
__global__ void whole(const float* x, float* y) {{ }}
{P} case two
{P} launch grid(2) block(1)
__global__ void first(const float* x, float* t) {{ }}
{P} launch name("again") grid(3) block(1) when(N > 1)
__global__ void second(const float* t, float* y) {{ }}
{P} end
"""
    found = document_of(text)
    assert found["tunables"] == {"FORM": ["one", "two"]}
    assert [(one["entry"], one["when"], one["arguments"]) for one in found["stage"]] == [
        ("whole", "FORM == 'one'", ["x", "y"]),
        ("first", "FORM == 'two'", ["x", "t"]),
        ("second", "(N > 1) and (FORM == 'two')", ["t", "y"]),
    ]
    assert [one["name"] for one in found["stage"]] == ["whole", "first", "again"]


LAUNCHER = """\
#pragma kernel tune(threads_per_block=32, 64, 128, 256, 512, 1024) default(64)
#pragma kernel block_size(threads_per_block)
#pragma kernel problem_size(n)
#pragma kernel buffers(A[n], B[n], C[n])
template <typename T, int threads_per_block>
__global__ void vector_add(int n, T *C, const T *A, const T *B) {
    int i = blockIdx.x * threads_per_block + threadIdx.x;
    if (i < n) C[i] = A[i] + B[i];
}
"""


def test_the_pragmas_of_kernel_launcher_are_read(tmp_path: Path) -> None:
    """The example of its documentation is a kernel; clauses may also stand on one line."""
    found = document_of(LAUNCHER)
    assert found["kernel"]["entry"] == "vector_add<float, {threads_per_block}>"
    assert found["tunables"] == {"threads_per_block": [32, 64, 128, 256, 512, 1024]}
    assert found["default"] == {"threads_per_block": 64}
    assert found["launch"] == {"grid": "ceil_div(n, threads_per_block)", "block": "threads_per_block"}
    assert found["arguments"] == {
        "n": "int32 = n",
        "C": "inout float32[n]",
        "A": "in float32[n]",
        "B": "in float32[n]",
    }
    (tmp_path / "k.cu").write_text(LAUNCHER)
    assert load_kernel_file(tmp_path / "k.cu").name == "k"
    more = "#pragma kernel tune(P=1, 2) set(PER=P * 2) restriction(P <= 2 && n > 0) grid_divisor(threads_per_block * P)\n"
    again = document_of(more + LAUNCHER)
    assert again["derived"] == {"PER": "P * 2"}
    assert again["constraints"] == {"rules": ["P <= 2  and  n > 0"]}
    assert again["launch"]["grid"] == "ceil_div(n, threads_per_block * P)"


def test_a_file_with_pragmas_is_checked_expanded_and_tuned(tmp_path: Path) -> None:
    """One file is a workload; what ``expand`` writes to a folder is the same kernel without pragmas."""
    path = tmp_path / "axpb.cu"
    path.write_text(
        f"{P} problem(N = [1024])\n{P} input x: float32[N]\n{P} output y: float32[N]\n{P} check y = 2 * x + 1\n"
        f"{P} erange 64, 256, 2\n#define L 128\n{P} launch grid(ceil_div(N, L)) block(L)\n"
        "__global__ void axpb(const float* x, float* y, int N) {\n  int i = blockIdx.x * L + threadIdx.x;\n"
        "  if (i < N) y[i] = 2 * x[i] + 1;\n}\n"
    )
    checked = tuner("kernels", "check", path)
    assert checked.exit_code == 0, checked.stderr
    assert "axpb:N=1024" in checked.stdout
    shown = tuner("kernels", "expand", path)
    assert "L = [64, 128, 256]" in shown.stdout
    run = document("run", f"{path}:N=1024", *DEVICE, "--database", tmp_path / "db.sqlite")
    assert run
    path.write_text(path.read_text().replace("128\n", "100\n"))
    refused = tuner("kernels", "check", path)
    assert refused.exit_code == 2
    assert f"{path}, line 5, column 1: #pragma tuner erange: L is 100 in the source" in refused.stderr


def test_template_arguments_are_named_as_a_launch_takes_them(tmp_path: Path) -> None:
    """As macros they would break the source: ``template <int 4>``."""
    example = Path(__file__).parents[1] / "examples/vector-add/kernel.toml"
    run = tuner(
        "run", "--kernel", example, "--objective", "time", *DEVICE, "--database", tmp_path / "db.sqlite"
    )
    assert re.search(r"^launch: vector_add<\d+, \d+, \d+>(   |$)", run.stdout, re.MULTILINE)
    exported = tuner("export", "1", "--database", tmp_path / "db.sqlite")
    assert exported.stdout == "\n"
    header = tuner("export", "1", "--format", "header", "--database", tmp_path / "db.sqlite").stdout
    assert "#define TUNED_block_size_x" in header
    assert "launch vector_add<" in exported.stderr


def test_a_shipped_kernel_is_expanded_by_its_name(tmp_path: Path) -> None:
    """What the answer of a run names can be pasted, wherever the package is."""
    words = ("mvmul:H=1024,W=1024", *DEVICE, "--policy", "random", "--budget", "1", "--objective", "time")
    run = tuner("run", *words, "--database", tmp_path / "db.sqlite")
    assert "source: what tuner kernels expand mvmul writes launch: mvmul<" in " ".join(run.stdout.split())
    assert tuner("kernels", "expand", "mvmul").stdout.startswith("# kernel.toml\n")
    assert "unknown kernel 'mvmull'" in tuner("kernels", "expand", "mvmull").stderr


def test_flags_of_an_answer_are_those_of_the_expanded_source(tmp_path: Path) -> None:
    """Alternatives have a macro of their own, template arguments stand in the launch."""
    path = tmp_path / "axpb.cu"
    path.write_text(
        f"{P} problem(N = [1024])\n{P} input x: float32[N]\n{P} output y: float32[N]\n{P} check y = 2 * x + 1\n"
        f"{P} values 64\n#define L 64\n{P} launch grid(ceil_div(N, L * Q)) block(L)\n{P} values 2\n"
        "template <int Q = 2>\n__global__ void axpb(const float* x, float* y, int N) {\n"
        "  for (int q = 0; q < Q; ++q) {\n    int i = (blockIdx.x * Q + q) * L + threadIdx.x;\n"
        f"{P} select FORM\n{P} case plain\n    if (i < N) y[i] = 2 * x[i] + 1;\n{P} case fused\n"
        f"    if (i < N) y[i] = fmaf(2.0f, x[i], 1.0f);\n{P} end\n  }}\n}}\n"
    )
    database = ("--database", tmp_path / "db.sqlite")
    run = tuner("run", f"{path}:N=1024", *DEVICE, *database)
    assert run.exit_code == 0, run.stderr
    exported = tuner("export", "1", *database)
    assert re.fullmatch("-DTUNER_FORM=[01] -DL=64\n", exported.stdout)
    use = f"use: {exported.stdout.strip()} source: what tuner kernels expand axpb.cu writes launch: axpb<2>"
    assert use in " ".join(run.stdout.split())
    assert "tuner kernels expand axpb.cu" in exported.stderr
    assert "launch axpb<2>" in exported.stderr
    header = tuner("export", "1", "--format", "header", *database).stdout
    assert "#define TUNED_FORM " in header
    assert "#define Q " not in header
    assert "#define TUNER_FORM " in header


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    """Exit code 2 and one line."""
    path = tmp_path / "k.cu"
    path.write_text(
        f"{P} problem(N = [64])\n{P} output y: float32[N]\n{P} check default\n{P} values 1, 2\n#define A 1\n"
        f"{P} launch grid(1) block(64)\n__global__ void k(float* y) {{ y[0] = A; }}\n"
    )
    refused = tuner("kernels", "expand", path, "--output", path / "folder")
    assert refused.exit_code == 2
    assert "cannot be written: Not a directory" in refused.stderr


TUNED = f"{P} values 1, 2\n#define A 1\n"
STRUCT = f"{TUNED}struct S {{ int n; float a; }};\n"
STRUCT_KERNEL = (
    f"{P} launch grid(1) block(64)\n__global__ void k(const float* x, S s, float* y) {{ y[0] = x[0]; }}\n"
)
FIELDS = {"n": "int32 = N", "a": "float32 = 2"}


@pytest.mark.parametrize(
    "pragma",
    [
        "toml arguments.s = { n = 'int32 = N', a = 'float32 = 2' }",
        "toml arguments = { s = { n = 'int32 = N', a = 'float32 = 2' } }",
        'value s = { n = "int32 = N", a = "float32 = 2" }',
        'value s: { n = "int32 = N", a = "float32 = 2" }',
    ],
)
def test_a_table_of_fields_declares_a_struct(pragma: str, tmp_path: Path) -> None:
    """It stands in the order of the parameters, and is passed as the bytes of the struct."""
    text = f"{FIRST}{P} {pragma}\n{STRUCT}{STRUCT_KERNEL}"
    arguments = expansion(Path("k.cu"), text).document["arguments"]
    assert isinstance(arguments, dict)
    assert list(arguments) == ["x", "s", "y"]
    assert arguments["s"] == FIELDS
    (tmp_path / "k.cu").write_text(text)
    kernel = load_kernel_file(tmp_path / "k.cu")
    (stage,) = kernel.plan(kernel.workloads()[0], kernel.default(kernel.workloads()[0])).stages
    assert stage.arguments[1] == StructValue((("n", "int32"), ("a", "float32")), struct.pack("<if", 1024, 2))


def test_a_struct_without_fields_has_one_byte(tmp_path: Path) -> None:
    """As C++ has it of an empty class."""
    assert expanded({"s": {}}) == [{"scalar": "s", "fields": {"empty": "uint8 = 0"}}]
    (tmp_path / "k.cu").write_text(f"{FIRST}{P} value s = {{}}\n{TUNED}struct S {{}};\n{STRUCT_KERNEL}")
    kernel = load_kernel_file(tmp_path / "k.cu")
    (stage,) = kernel.plan(kernel.workloads()[0], kernel.default(kernel.workloads()[0])).stages
    assert stage.arguments[1] == StructValue((("empty", "uint8"),), b"\0")


@pytest.mark.parametrize(
    ("code", "body", "told"),
    [
        ("#define FOO 1", "", True),
        ("#ifndef FOO\n#define FOO 1\n#endif", "", True),
        ("constexpr int FOO = 1;", "", True),
        ("#include <cuda_fp16.h>\n" + f"{P} values 1, 2\n#define FOO 1", "/* FOO */", True),
        ("#define FOO 1", "y[0] = FOO;", False),
        ("constexpr int FOO = 1;", "y[0] = FOO;", False),
        ("#define FOO 1\n#if FOO > 1\n#endif", "", False),
        ("#define FOO 1\n#define J(a, b) a##b", "y[0] = J(FO, O);", False),
        ('#define FOO 1\n#include "other.h"', "", False),
        ('#define FOO 1\n#include "beside.cuh"', "", False),
        ("#define FOO 1\n#include <cub/cub.cuh>", "", False),
    ],
)
def test_a_tunable_that_is_only_defined_is_told(code: str, body: str, told: bool, tmp_path: Path) -> None:
    """Unless a header or pasted words may use it."""
    if "beside.cuh" in code:
        (tmp_path / "beside.cuh").write_text("__device__ int f() { return FOO; }\n")
    values = "" if code.startswith("#include") else f"{P} values 1, 2\n"
    head = f"{P} launch grid(1) block(64)\n__global__ void k(const float* x, float* y) {{ y[0] = x[0];"
    (tmp_path / "k.cu").write_text(f"{FIRST}{values}{code}\n{head} {body} }}\n")
    found = [line.partition(":")[0] for line in unused_names(load_kernel_file(tmp_path / "k.cu").recipe)]
    assert found == ["[tunables] FOO"] * told
