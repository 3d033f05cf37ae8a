"""Structs as parameters in files with pragmas, and tunables that such files do not use."""

import struct
from pathlib import Path

import pytest
from pragma_files import FIRST

from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_document import expanded
from tuner.kernel_files.pragmas.expansion import expansion
from tuner.kernel_files.source_checks import unused_names
from tuner.model.plan import StructValue

P = "#pragma tuner"
TUNED = f"{P} values 1, 2\n#define A 1\n"
STRUCT = f"{TUNED}struct S {{ int n; float a; }};\n"
KERNEL = (
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
    text = f"{FIRST}{P} {pragma}\n{STRUCT}{KERNEL}"
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
    (tmp_path / "k.cu").write_text(f"{FIRST}{P} value s = {{}}\n{TUNED}struct S {{}};\n{KERNEL}")
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
