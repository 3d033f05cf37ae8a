"""Kernel files of Triton as far as no Triton is needed: functions read as text, specialisation, refusals."""

import importlib
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from tuner.compiler.compiler import Compiler
from tuner.kernel_files.build_record import build_record
from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.drafting import drafted
from tuner.kernel_files.formulas import Location
from tuner.kernel_files.triton_source import (
    TritonFunction,
    imported_modules,
    reached_parameters,
    specialised,
    triton_function,
)
from tuner.model.errors import CompileError, CompilerUnavailableError, InputError, KernelFileError
from tuner.model.plan import (
    Buffer,
    BufferView,
    Configuration,
    LaunchDemands,
    Plan,
    Resources,
    Source,
    Specialisation,
    StageArgument,
)
from tuner.model.plan import Scalar as Number
from tuner.recordings.exchange.exported_run import build_of

DATA = Path(__file__).parent / "data" / "triton"
EXAMPLES = Path(__file__).parents[1] / "examples" / "triton"
SOFTMAX = """
import triton
import triton.language as tl


@triton.jit
def row_max(x):
    return tl.max(x, axis=0)


@triton.jit
def softmax(out, inp, cols, BLOCK: tl.constexpr, SCALE: tl.constexpr = 1.0, flag=None):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(inp + row * cols + at, mask=at < cols, other=-float("inf"))
    e = tl.exp(x - row_max(x))
    here = out + row * cols
    tl.store(here + at, e / tl.sum(e, axis=0), mask=at < cols)


def plain(out, inp, cols):
    pass
"""
FILE = """
kernel.source = "softmax.py"
kernel.entry = "softmax"
problem.sizes = { rows = [64], cols = [1000] }

[arguments]
out = "out float32[rows, cols]"
inp = "in float32[rows, cols]"
cols = "int32 = cols"

[tunables]
BLOCK = [1024, 2048]
num_warps = [2, 4]

[launch]
grid = "rows"
"""


def written(folder: Path, edits: dict[str, str] | None = None, source: str = SOFTMAX) -> Path:
    text = FILE
    for old, new in (edits or {}).items():
        assert old in text, old
        text = text.replace(old, new)
    (folder / "softmax.py").write_text(source)
    (folder / "softmax.toml").write_text(text)
    return folder / "softmax.toml"


def default_plan(file: Path) -> Plan:
    kernel = load_kernel_file(file)
    (workload,) = kernel.workloads()
    return kernel.plan(workload, kernel.default(workload))


def function(name: str, file: str = "signatures.py") -> TritonFunction:
    return triton_function(Source(file, (DATA / file).read_text()), name, Location(file, "entry"))


def test_a_plan_is_told_what_triton_would_find(tmp_path: Path) -> None:
    """Constants and options come from tunables of their names, types and divisors from the arguments."""
    (stage,) = default_plan(written(tmp_path)).stages

    assert stage.entry == "softmax"
    assert stage.options == ("num_warps=2", "num_stages=3", "num_ctas=1", "enable_fp_fusion=true")
    assert stage.block == (64, 1, 1)
    assert stage.arguments == ("out", "inp", Number("int32", 1000))
    assert stage.specialisation == (
        Specialisation("out", "*float32", 16),
        Specialisation("inp", "*float32", 16),
        Specialisation("cols", "int32"),
        Specialisation("flag"),
        Specialisation("BLOCK", constant=1024),
    )


@pytest.mark.parametrize(
    ("edits", "config"),
    [
        ({}, {"BLOCK": 1024, "num_warps": 2, "num_stages": 3}),
        (
            {
                "num_warps = [2, 4]": "maxnreg = [64]",
                "[launch]": '[derived]\nSCALE = "BLOCK / 2"\n\n[launch]',
            },
            {"BLOCK": 1024, "SCALE": 512.0, "num_warps": 4, "num_stages": 3, "maxnreg": 64},
        ),
        (
            {"BLOCK = [1024, 2048]": "", "[launch]": '[derived]\nBLOCK = "2 * cols"\n\n[launch]'},
            {"num_warps": 2, "num_stages": 3},
        ),
    ],
)
def test_a_build_record_has_what_a_config_holds(
    tmp_path: Path, edits: dict[str, str], config: dict[str, object]
) -> None:
    """Options, and constants that tunables decide: those of sizes are passed by who launches."""
    kernel = load_kernel_file(written(tmp_path, edits))
    (workload,) = kernel.workloads()
    record = build_record(kernel, workload, kernel.default(workload))
    assert record is not None
    assert record["config"] == {**config, "num_ctas": 1, "enable_fp_fusion": True}


@pytest.mark.parametrize(
    ("edits", "options"),
    [
        ({"[tunables]": "[tunables]\nmaxnreg = [64, 0]"}, ("num_warps=2", "maxnreg=64")),
        ({"[tunables]": "[tunables]\nmaxnreg = [0, 64]"}, ("num_warps=2",)),
        (
            {
                "num_warps = [2, 4]": "W = [8]",
                "kernel.entry": 'kernel.options = ["num_warps={W}"]\nkernel.entry',
            },
            ("num_warps=8",),
        ),
        (
            {"kernel.entry": 'kernel.options = ["enable_fp_fusion=false"]\nkernel.entry'},
            ("num_warps=2", "enable_fp_fusion=false"),
        ),
        (
            {"num_warps = [2, 4]": "", "[launch]": '[derived]\nnum_warps = "BLOCK // 512"\n[launch]'},
            ("num_warps=2",),
        ),
    ],
)
def test_options_are_tunables_derived_names_or_stated(
    tmp_path: Path, edits: dict[str, str], options: tuple[str, ...]
) -> None:
    """A name with a value, or an option of the file, sets an option of Triton."""
    (stage,) = default_plan(written(tmp_path, edits)).stages

    assert set(options) <= set(stage.options)
    assert ("maxnreg" in str(options)) == ("maxnreg" in str(stage.options))


REFUSED = {
    "no such function": ({'"softmax"': '"softmx"'}, ["no function 'softmx'", "did you mean 'softmax'"]),
    "a function that is not jitted": (
        {'"softmax"': '"plain"'},
        ["plain of softmax.py is not jitted", "@triton.jit"],
    ),
    "a constant without values": ({"BLOCK =": "BLOK ="}, ["BLOCK, a tl.constexpr", "has no value", "'BLOK'"]),
    "a constant as an argument": (
        {'cols = "int32': 'BLOCK = "int32 = 64"\ncols = "int32', "BLOCK = [1024, 2048]": ""},
        ["BLOCK is a tl.constexpr", "takes no argument"],
    ),
    "an argument too few": ({'cols = "int32 = cols"\n': ""}, ["takes 4 arguments", "2 are given"]),
    "arguments in another order": (
        {'inp = "in float32[rows, cols]"\n': "", '= cols"\n': '= cols"\ninp = "in float32[rows, cols]"\n'},
        ["argument 2 is called cols, and parameter 2 of softmax is inp"],
    ),
    "an unknown option": (
        {"kernel.entry": 'kernel.options = ["num_wraps=4"]\nkernel.entry'},
        ["no option of Triton", "did you mean 'num_warps'"],
    ),
    "an option of NVRTC": (
        {"kernel.entry": 'kernel.options = ["-use_fast_math"]\nkernel.entry'},
        ["no option of Triton", "NAME=VALUE"],
    ),
    "an option that is stated twice": (
        {"kernel.entry": 'kernel.options = ["num_warps=4"]\nkernel.entry'},
        ["num_warps is stated twice"],
    ),
    "warps that are no power of two": ({"[2, 4]": "[3, 4]"}, ["num_warps is 3", "one of 1, 2, 4, 8, 16, 32"]),
    "a tunable that is called almost as an option": (
        {"num_warps = [2, 4]": "num_warp = [2, 4]"},
        ["the tunable num_warp is no tl.constexpr of softmax", "did you mean 'num_warps'"],
    ),
    "a block": ({'grid = "rows"': 'grid = "rows"\nblock = 64'}, ["block", "Triton decides it"]),
    "shared memory": (
        {'grid = "rows"': 'grid = "rows"\nshared_bytes = 64'},
        ["shared_bytes", "Triton decides it"],
    ),
    "headers": (
        {"kernel.entry": 'kernel.include_paths = ["."]\nkernel.entry'},
        ["include_paths", "CUDA C++"],
    ),
    "a type that Triton lacks": ({'"in float32': '"in complex64'}, ["Triton has no type complex64"]),
    "a struct": ({'cols = "int32 = cols"': 'cols = { a = "int32 = 1" }'}, ["structs and tensor maps"]),
    "a command beside the interpreter": (
        {"kernel.entry": 'kernel.build = ["python3", "-O"]\nkernel.language = "triton"\nkernel.entry'},
        ["the interpreter alone"],
    ),
    "an interpreter that is not there": (
        {"kernel.entry": 'kernel.build = ["no/python"]\nkernel.language = "triton"\nkernel.entry'},
        ["no/python is no program"],
    ),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_what_does_not_fit_is_refused(tmp_path: Path, case: str) -> None:
    """A file that no launch could be made of says which key is wrong, and what would be right."""
    edits, words = REFUSED[case]
    with pytest.raises(KernelFileError) as refused:
        default_plan(written(tmp_path, edits))

    assert str(tmp_path / "softmax.toml") in str(refused.value)
    assert [word for word in words if word not in str(refused.value)] == []


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def f(:\n", "is no Python: line 1"),
        ("__global__ void softmax(float *out) {}", "is no Python"),
        ("import triton\n@triton.jit\ndef softmax(*args): pass", "*args or **kwargs"),
        (SOFTMAX.replace("cols,", "cols: tl.int64,", 1), "annotated as int64, and its argument is int32"),
        (
            SOFTMAX.replace("inp,", "inp: tl.float32,", 1),
            "annotated as float32, and its argument is an array",
        ),
        (SOFTMAX.replace("flag=None", "flag=OTHER"), "takes 4 arguments"),
        (
            SOFTMAX.replace("cols, BLOCK: tl.constexpr", "cols=1e-6, BLOCK: tl.constexpr=64"),
            "cols of softmax is 1e-06 by default, and its argument is int32; float32 would be right",
        ),
    ],
)
def test_a_source_that_does_not_fit_is_refused(tmp_path: Path, source: str, words: str) -> None:
    """The message names what the source says."""
    with pytest.raises(KernelFileError) as refused:
        default_plan(written(tmp_path, source=source))

    assert words in str(refused.value)


def test_none_is_for_triton_alone(tmp_path: Path) -> None:
    """An argument may be None; a function of CUDA C++ cannot take that."""
    edits = {'cols = "int32 = cols"': 'cols = "int32 = cols"\nflag = "none"'}
    (stage,) = default_plan(written(tmp_path, edits)).stages
    assert Specialisation("flag") in stage.specialisation
    assert stage.arguments == ("out", "inp", Number("int32", 1000))

    (tmp_path / "a.cu").write_text("__global__ void softmax(float *out, float *inp, int cols, int flag) {}")
    cuda = {'"softmax.py"': '"a.cu"', 'grid = "rows"': 'grid = "rows"\nblock = 64'}
    with pytest.raises(KernelFileError, match="flag is none"):
        default_plan(written(tmp_path, edits | cuda))


INT = (Number("int32", 7), "int32", 1)
BUFFERS = {"x": Buffer("x", "float32", (64,), "in"), "y": Buffer("y", "bfloat16", (64,), "in")}


@pytest.mark.parametrize(
    ("name", "parameter", "argument", "dtype", "alignment", "constant"),
    [
        ("bare", "a", Number("int32", 7), "int32", 1, None),
        ("bare", "a", Number("int32", 1), "", 1, 1),
        ("bare", "a", Number("int32", 0), "int32", 16, None),
        ("bare", "a", Number("int64", 2**31), "int64", 16, None),
        ("bare", "a", Number("uint64", 2**64 - 1), "uint64", 1, None),
        ("bare", "a", Number("int32", -32), "int32", 16, None),
        ("bare", "a", Number("bool", 1), "bool", 1, None),
        ("bare", "a", Number("float32", 1.0), "float32", 1, None),
        ("bare", "a", None, "", 1, None),
        ("bare", "a", "x", "*float32", 16, None),
        ("bare", "a", BufferView("x", 4), "*float32", 16, None),
        ("bare", "a", BufferView("x", 3), "*float32", 1, None),
        ("bare", "a", BufferView("y", 8), "*bfloat16", 16, None),
        ("annotated", "a", Number("int32", 1), "int32", 1, None),
        ("annotated", "b", Number("int64", 64), "int64", 16, None),
        ("unspecialised", "a", Number("int32", 1), "int32", 1, None),
        ("unspecialised", "b", "x", "*float32", 1, None),
        ("unaligned", "a", Number("int32", 64), "int32", 1, None),
        ("unaligned", "a", Number("int32", 1), "", 1, 1),
        ("unaligned", "d", "x", "*float32", 1, None),
        ("mixed", "c", Number("int32", 64), "int32", 1, None),
    ],
)
def test_specialisation(  # noqa: PLR0917 - columns of a table
    name: str,
    parameter: str,
    argument: StageArgument | None,
    dtype: str,
    alignment: int,
    constant: int | None,
) -> None:
    """What code is compiled for of an argument is what Triton would find (test_triton.py asks it)."""
    one = next(one for one in function(name).parameters if one.name == parameter)

    found = specialised(one, argument, BUFFERS)

    assert found == Specialisation(parameter, dtype, alignment, constant)


@pytest.mark.parametrize(
    ("name", "arrays"),
    [
        ("scaled_sum", {"out"}),
        ("softmax", {"out"}),
        ("matmul", {"c"}),
        ("rms_norm", {"out"}),
        ("histogram", {"counts"}),
        ("gathered_rows", {"out"}),
    ],
)
def test_arrays_that_are_written(name: str, arrays: set[str]) -> None:
    """An array whose address reaches a store is written, through names, functions and descriptors."""
    source = Source("kernels.py", (DATA / "kernels.py").read_text())
    pointers = {"out", "x", "y", "inp", "a", "b", "c", "weight", "bias", "counts", "values", "table"}

    assert reached_parameters(source, name) & pointers == arrays


def test_an_address_that_leaves_the_file_counts_as_written() -> None:
    """Nobody knows what a function of another file does with an array."""
    text = "import triton\nfrom other import f\n\n@triton.jit\ndef k(a, b):\n    p = a + 1\n    f(p)\n"

    assert reached_parameters(Source("k.py", text), "k") == {"a"}


def test_a_launch_is_told_as_what_can_be_pasted(tmp_path: Path) -> None:
    """Constants that follow from tunables, and all options of Triton."""
    edits = {"BLOCK = [1024, 2048]": "HALF = [512]", "[launch]": '[derived]\nBLOCK = "2 * HALF"\n[launch]'}
    kernel = load_kernel_file(written(tmp_path, edits))
    (workload,) = kernel.workloads()
    default = kernel.default(workload)

    (line,) = build_of(default, build_record(kernel, workload, default)).launches()
    config = 'triton.Config({"BLOCK": 1024}, num_warps=2, num_stages=3, num_ctas=1)'
    assert line == f"softmax with {config}, HALF=512"


def test_modules_beside_a_file_are_part_of_it(tmp_path: Path) -> None:
    """A function in a module that is imported, at any remove, changes the fingerprint; other files do not."""
    (tmp_path / "inner.py").write_text("import triton\n\nA = 1\n")
    (tmp_path / "helpers.py").write_text("import triton\nfrom inner import A\n")
    (tmp_path / "unrelated.py").write_text("import triton\n")
    file = written(tmp_path, source=f"from helpers import A\n{SOFTMAX}")
    before = load_kernel_file(file).fingerprint
    assert [name for name, _ in imported_modules(tmp_path / "softmax.py", "import helpers")] == [
        "helpers.py",
        "inner.py",
    ]

    (tmp_path / "unrelated.py").write_text("import triton  # changed\n")
    assert load_kernel_file(file).fingerprint == before
    (tmp_path / "inner.py").write_text("import triton\n\nA = 2\n")
    assert load_kernel_file(file).fingerprint != before


def test_constants_and_modules_of_pythonpath_are_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module of plain constants counts, and so does one that only ``PYTHONPATH`` leads to."""
    place = tmp_path / "app"
    (place / "common").mkdir(parents=True)
    monkeypatch.setenv("PYTHONPATH", str(place))
    (place / "common/ops.py").write_text("import triton\n")
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository/consts.py").write_text("SCALE = 1\n")
    text = "from common.ops import f\nfrom consts import SCALE\n"

    found = imported_modules(tmp_path / "repository/kernel.py", text)

    assert found == (("common/ops.py", "import triton\n"), ("consts.py", "SCALE = 1\n"))
    (place / "common-1.0.dist-info").mkdir()  # pip's
    assert imported_modules(tmp_path / "repository/kernel.py", text) == found[1:]


def test_an_interpreter_leaves_a_python_file_to_triton(tmp_path: Path) -> None:
    """``build`` with one word that is a Python names the interpreter that has Triton."""
    file = written(tmp_path, {"kernel.entry": f'kernel.build = ["{sys.executable}"]\nkernel.entry'})
    (stage,) = load_kernel_file(file).recipe.stages

    assert stage.source.language == "triton"


def test_modules_of_a_package_are_found_by_their_dots(tmp_path: Path) -> None:
    """A file of a package is imported as such: ``from .b import f`` and ``from package.b import f``."""
    package = tmp_path / "package"
    package.mkdir()
    for name in ("__init__", "b", "c"):
        (package / f"{name}.py").write_text("# triton\n")
    text = "from .b import f\nfrom package import c\n"

    names = [name for name, _ in imported_modules(package / "a.py", text)]

    assert names == ["package/__init__.py", "package/b.py", "package/c.py"]


def test_what_launches_share_makes_one_candidate() -> None:
    """Configurations with one code, launch and place are alike; any other is another one."""
    folder = Path(__file__).parents[1] / "examples" / "triton"
    kernel = load_kernel_file(folder / "softmax.toml")
    workload = kernel.workload({"rows": 64, "cols": 1000})

    def launched(code: str, *, share: int = 0, priority: int = 0, **values: int) -> tuple[object, ...]:
        plan = kernel.plan(workload, Configuration({"BLOCK": 1024, "num_warps": 4, "num_stages": 1} | values))
        return replace(plan, sm_share=share, stream_priority=priority).launched(
            [Resources(32, demands=LaunchDemands(128, 16), code=code)]
        )

    assert launched("a") == launched("a", num_stages=3) != ()
    assert launched("a") != launched("b")
    assert len({launched("a"), launched("a", share=64), launched("a", priority=1), ()}) == 4
    assert launched("") == ()


@pytest.mark.skipif("triton" in sys.modules, reason="Triton is here")
def test_without_triton_a_stage_says_what_to_install(tmp_path: Path) -> None:
    """Where the interpreter has no Triton, each stage is refused by name, and nothing is raised."""
    plan = default_plan(written(tmp_path))
    empty = tmp_path / "python"
    empty.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    empty.chmod(0o755)
    with Compiler("sm_90", tmp_path / "cache") as compiler:
        (answer,) = compiler.compile([plan.stages[0].changed(build=(str(empty),))])

    assert isinstance(answer, CompileError)
    assert f"{empty}: Triton cannot be imported" in str(answer)
    assert "pip install triton, or name an interpreter" in str(answer)


CHAIN = """
kernel.options = ["--use_fast_math"]
problem.sizes.n = [4096]
problem.reference.z = "2 * x + 1"

[arguments]
z = "out float32[n]"
y = "scratch float32[n]"
x = "in float32[n]"
count = "int32 = {count}"

[tunables]
BLOCK = [256, 512]

[loop.twice]
repeat = 2

[[stage]]
name = "double"
source = "double.py"
entry = "double"
arguments = ["y", {{ buffer = "x", offset = 1 }}, "count"]
grid = "ceil_div(n, BLOCK)"
loop = "twice"

[[stage]]
name = "one"
source = "one.cu"
entry = "one"
arguments = ["z", "y", "count"]
grid = "ceil_div(n, BLOCK)"
block = "BLOCK"
"""


def test_a_chain_has_stages_of_both_languages(tmp_path: Path) -> None:
    """Each stage has the options of its compiler; a number of a step is compiled in where it is 1."""
    (tmp_path / "double.py").write_text(
        "import triton\n\n@triton.jit\ndef double(y, x, n, BLOCK: tl.constexpr):\n    tl.store(y, x)\n"
    )
    (tmp_path / "one.cu").write_text(
        'extern "C" __global__ void one(float* z, const float* y, int n) { z[n] = y[n]; }'
    )
    (tmp_path / "chain.toml").write_text(CHAIN.format(count="16 + n"))
    double, again, one = default_plan(tmp_path / "chain.toml").stages

    assert double.source.language == "triton"
    assert double.options[0] == "num_warps=4"
    assert double.specialisation[1] == Specialisation("x", "*float32", 1)  # 4 bytes past a multiple of 16
    assert double.specialisation[2] == Specialisation("n", "int32", 16)
    assert double == again
    assert one.options == ("--use_fast_math",)
    assert one.block == (256, 1, 1)
    assert one.specialisation == ()

    text = CHAIN.format(count="1").replace(
        '"count"]\ngrid = "ceil_div(n, BLOCK)"\nblock', '"y2"]\ngrid = 1\nblock'
    )
    text = text.replace('count = "int32 = 1"', 'count = "int32 = step + 1"\ny2 = "int32 = n"')
    (tmp_path / "chain.toml").write_text(text)
    double, again, one = default_plan(tmp_path / "chain.toml").stages

    assert double.specialisation[2] == Specialisation("n", constant=1)
    assert double.arguments == ("y", BufferView("x", 1))
    assert again.specialisation[2] == Specialisation("n", "int32")
    assert again.arguments == ("y", BufferView("x", 1), Number("int32", 2))


TILED = """
import triton
import triton.language as tl

@triton.autotune(configs=[
    triton.Config({"TILE_M": 64, "TILE_N": 128, "TILE_K": 32}, num_warps=8),
    triton.Config({"TILE_M": 128, "TILE_N": 128, "TILE_K": 64}, num_warps=4),
], key=["M"])
@triton.jit
def product(c, a, b, M, N, K, stride_a, stride_k, alpha, beta=0.5, most=1000000, clip=True,
            TILE_M: tl.constexpr = 64, TILE_N: tl.constexpr = 64, TILE_K: tl.constexpr = 64):
    pid = tl.program_id(axis=0)
    row, column = pid // tl.cdiv(N, TILE_N), pid % tl.cdiv(N, TILE_N)
    i = (row * TILE_M + tl.arange(0, TILE_M)) % M
    j = column * TILE_N + tl.arange(0, TILE_N)
    k = tl.arange(0, TILE_K)
    left = a + i[:, None] * stride_a + k[None, :] * stride_k
    right = b + k[:, None] * N + j[None, :]
    total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    for step in range(tl.cdiv(K, TILE_K)):
        x = tl.load(left, mask=k[None, :] < K - step * TILE_K)
        total = tl.dot(x, tl.load(right, mask=k[:, None] < K - step * TILE_K), total)
        left += TILE_K * stride_k
        right += TILE_K * N
    here = c + i[:, None] * N + j[None, :]
    tl.store(here, alpha * total + beta * tl.load(here), mask=j[None, :] < N)
"""
DRAFTS = {
    "softmax": (
        SOFTMAX.replace("row, at = tl.program_id(0), ", "row = tl.program_id(0)\n    at = "),
        [
            *('out = "out float32[rows, cols]"', 'inp = "in float32[rows, cols]"', 'cols = "int32 = cols"'),
            *("BLOCK = [1024, 2048, 4096]", 'rules = ["BLOCK >= cols"]', 'grid = "rows"'),
        ],
    ),
    "product": (
        TILED,
        [
            *('c = "inout float32[M, N]"', 'a = "in float32[M, K]"', 'b = "in float32[K, N]"'),
            *(
                'stride_a = "int32 = K"',
                'stride_k = "int32 = 1"',
                'alpha = "float32 = 1"',
                'beta = "float32 = 0.5"',
                'most = "int32 = 1000000"',
                'clip = "bool = 1"',
            ),
            *("TILE_M = [64, 128]", "TILE_N = [128]", "TILE_K = [32, 64]", "num_warps = [8, 4]"),
            'grid = "ceil_div(M, TILE_M) * ceil_div(N, TILE_N)"',
        ],
    ),
}


@pytest.mark.parametrize("name", DRAFTS)
def test_a_kernel_file_is_drafted(tmp_path: Path, name: str) -> None:
    """Roles, shapes, sizes, strides, values and programs are read from the text, and the file can be used."""
    source, lines = DRAFTS[name]
    (tmp_path / "k.py").write_text(source)
    draft = drafted(source, tmp_path / "k.py", name, ask=lambda *_: None)
    (tmp_path / "k.toml").write_text(draft.toml())

    written = {line.partition("  # GUESS")[0] for line in draft.toml().splitlines()}
    assert [line for line in lines if line not in written] == []
    assert default_plan(tmp_path / "k.toml").stages[0].entry == name


@pytest.mark.parametrize(
    "file", sorted([*DATA.glob("*.py"), *EXAMPLES.glob("*.py")]), ids=lambda file: file.stem
)
def test_any_function_has_a_draft(tmp_path: Path, file: Path) -> None:
    """A draft in which nothing is to be filled in can be used; what is to be is named."""
    text = file.read_text()
    (tmp_path / file.name).write_text(text)
    for one in re.findall(r"@triton\.jit.*\ndef (\w+)", text):
        draft = drafted(text, tmp_path / file.name, one, ask=lambda *_: None)
        (tmp_path / "k.toml").write_text(draft.toml())
        assert ("FILL IN" in draft.toml()) == bool(draft.missing)
        if not draft.missing:
            assert default_plan(tmp_path / "k.toml").stages[0].entry == one


@pytest.mark.parametrize(
    ("source", "kernel", "words"),
    [
        ("import triton\n", None, "has no function with @triton.jit"),
        (SOFTMAX, "softmx", "did you mean 'softmax'"),
        (SOFTMAX, "plain", "plain of k.py is not jitted"),
        ("def f(:", None, "is no Python"),
    ],
)
def test_what_no_draft_is_made_of(tmp_path: Path, source: str, kernel: str | None, words: str) -> None:
    """The message says which functions there are."""
    with pytest.raises(InputError, match=words):
        drafted(source, tmp_path / "k.py", kernel, ask=lambda *_: None)


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (None, "pip install triton, or name an interpreter"),
        ("3.1.0", "Triton 3.1.0 is not among"),
        ("4.0.0", "Triton 4.0.0"),
    ],
)
def test_in_place_refuses_what_no_test_is_run_with(
    monkeypatch: pytest.MonkeyPatch, version: str | None, words: str
) -> None:
    """Nothing of a Triton of another version is replaced; without Triton the message says how to get it."""
    package = None
    if version is not None:
        package = ModuleType("triton")
        vars(package)["__version__"] = version
    monkeypatch.setitem(sys.modules, "triton", package)
    monkeypatch.delitem(sys.modules, "tuner.triton", raising=False)
    with pytest.raises(CompilerUnavailableError, match=words):
        importlib.import_module("tuner.triton")
