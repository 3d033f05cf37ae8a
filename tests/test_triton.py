"""Triton itself without a GPU: its own specialisation, compilation in children, whole searches."""

import importlib
import json
import os
import runpy
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.cli.main import main
from tuner.compiler.compiler import CompiledStage, Compiler
from tuner.compiler.contract import plan_resources
from tuner.compiler.ptx_walk import Place, executed
from tuner.compiler.triton_server import type_of_triton
from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.formulas import Location
from tuner.kernel_files.triton_source import number_dtype, specialised, triton_function
from tuner.model.elements import element_dtype
from tuner.model.errors import CompileError, CompilerUnavailableError, InputError
from tuner.model.plan import Buffer, BufferView, Plan, Source, Stage, StageArgument
from tuner.model.plan import Scalar as Number
from tuner.python.kernel import Kernel

pytestmark = pytest.mark.triton

DATA = Path(__file__).parent / "data" / "triton"
EXAMPLES = Path(__file__).parents[1] / "examples"
TYPES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp32": "float32",
    "fp64": "float64",
    "i1": "bool",
    "i32": "int32",
    "i64": "int64",
    "i8": "int8",
    "u8": "uint8",
}


class Address:
    """A tensor, as far as its specialisation goes."""

    def __init__(self, dtype: str, address: int) -> None:
        self.dtype, self._address = dtype, address

    def data_ptr(self) -> int:
        return self._address

    def __repr__(self) -> str:
        return f"{self.dtype} at {self._address}"


EDGES = [0, 1, 2, -1, 16, -16, 17, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, 2**63, 2**64 - 1]
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(EDGES),
    st.integers(-1000, 1000),
    st.integers(-(2**27), 2**58).map(lambda n: 16 * n),
    st.floats(-100, 100, width=32),
    st.builds(Address, st.sampled_from(sorted(TYPES)), st.sampled_from([0, 4, 8, 16, 256, 264])),
)


def argument_of(value: object, dtype: str) -> tuple[StageArgument | None, dict[str, Buffer]] | None:
    """A value as a kernel file has it; None for one that it cannot have."""
    if isinstance(value, Address):
        buffer = Buffer("x", TYPES[value.dtype], (64,), "in")
        offset, rest = divmod(value.data_ptr() % 16, element_dtype(buffer.dtype).itemsize)
        return None if dtype or rest else (BufferView("x", offset), {"x": buffer})
    if value is None:
        return None if dtype else (None, {})
    assert isinstance(value, bool | int | float)
    own = dtype or number_dtype(value)
    kind = "f" if own == "bfloat16" else np.dtype(own).kind
    if {bool: "b", int: "iu", float: "f"}[type(value)].find(kind) < 0:
        return None  # the reader refuses it
    return Number(own, int(value) if isinstance(value, bool) else value), {}


@pytest.mark.parametrize("name", ["bare", "annotated", "wide", "unspecialised", "unaligned", "mixed"])
@given(values=st.lists(VALUES, min_size=4, max_size=4))
@settings(deadline=None)
def test_specialisation_is_that_of_triton(name: str, values: list[Any]) -> None:
    """For each argument, type, divisor and what is a constant are what Triton's own function says."""
    jit: Any = importlib.import_module("triton.runtime.jit")
    compiler: Any = importlib.import_module("triton.compiler.compiler")
    target: Any = importlib.import_module("triton.backends.compiler")
    if str(DATA) not in sys.path:
        sys.path.insert(0, str(DATA))
    theirs: Any = getattr(importlib.import_module("signatures"), name)
    backend = compiler.make_backend(target.GPUTarget("cuda", 90, 32))
    bind = jit.create_function_from_signature(theirs.signature, theirs.params, backend)
    path = DATA / "signatures.py"
    ours = triton_function(Source(str(path), path.read_text()), name, Location(str(path), "entry"))
    constants = {one.name: 64 for one in ours.constants}

    _, found, _ = bind(*values, **constants)

    for one, value, (kind, key) in zip(ours.passed, values, found, strict=False):
        argument = argument_of(value, one.dtype)
        if argument is None:
            continue
        own = specialised(one, *argument)
        told = type_of_triton(own.dtype) if own.dtype else "constexpr"
        assert told == kind, (one, value)
        assert kind == "constexpr" or (own.alignment == 16) == (key == "D"), (one, value)


@pytest.fixture
def compiler(tmp_path: Path) -> Iterator[Compiler]:
    with Compiler("sm_90", tmp_path / "cache", jobs=2) as made:
        yield made


def kernel_in(folder: Path, source: str, edits: dict[str, str] | None = None) -> Plan:
    """The default plan of a kernel file around a source."""
    text = (
        'kernel.source = "k.py"\nproblem.sizes.n = [1000]\n'
        '[arguments]\nout = "out float32[n]"\nn = "int32 = n"\n'
        '[tunables]\nBLOCK = [256, 512]\nnum_warps = [4]\n[launch]\ngrid = "ceil_div(n, BLOCK)"\n'
    )
    for old, new in (edits or {}).items():
        assert old in text
        text = text.replace(old, new)
    (folder / "k.py").write_text(source)
    (folder / "k.toml").write_text(text)
    kernel = load_kernel_file(folder / "k.toml")
    (workload,) = kernel.workloads()
    return kernel.plan(workload, kernel.default(workload))


FILL = """
import triton
import triton.language as tl
{more}

@triton.jit
def k(out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, {value}, mask=at < n)
"""


def filled(value: str = "1.0", more: str = "") -> str:
    return FILL.format(value=value, more=more)


def compiled(compiler: Compiler, stage: Stage) -> CompiledStage:
    (answer,) = compiler.compile([stage])
    assert isinstance(answer, CompiledStage), answer
    return answer


def test_a_function_compiles_with_what_its_launch_must_have(compiler: Compiler, tmp_path: Path) -> None:
    """Registers come from ptxas, threads, shared memory and hidden parameters from Triton."""
    plan = kernel_in(tmp_path, filled())

    (answer,) = plan_resources(compiler, [plan])

    assert not isinstance(answer, CompileError)
    (own,) = answer
    assert own.registers_per_thread > 0
    assert own.code
    assert own.demands is not None
    assert own.demands.threads == 128
    assert own.demands.cluster == 1
    assert len(own.demands.scratch) in (1, 2)


def test_warps_beyond_the_option_count(tmp_path: Path) -> None:
    """Where some warps load for others, a block has more threads than 32 times num_warps."""
    x = np.zeros((128, 128), np.float16)
    kernel = Kernel(
        jitted("warps_apart"),
        arguments={"c": x, "a": x, "b": x, "N": 128},
        grid=1,
        outputs=["c"],
        tunables={"BLOCK": [128], "num_warps": [4]},
    )
    file = kernel.kernel_file(tmp_path)
    (workload,) = file.workloads()
    plan = file.plan(workload, file.default(workload))
    with Compiler("sm_100", tmp_path / "cache") as own:
        (answer,) = plan_resources(own, [plan])

    assert plan.stages[0].threads_per_block == 128
    assert not isinstance(answer, CompileError)
    assert plan.as_compiled(answer).stages[0].threads_per_block > 128
    assert answer[0].demands is not None
    assert answer[0].demands.scratch[0].block_bytes >= 256  # for two descriptors


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (filled("missing(at)"), ["k.py, line 9", "missing"]),
        (
            filled(more="import no_such_package_here"),
            ["cannot be imported", "no_such_package_here", "name an interpreter"],
        ),
        (filled(more="raise SystemExit(3)"), ["cannot be imported", "SystemExit"]),
        (filled(more="1 / 0"), ["cannot be imported", "ZeroDivisionError"]),
        (filled(more="big = bytearray(64 * 2**30)"), ["cannot be imported", "MemoryError"]),
        (filled(more="open('/etc/tuner-was-here', 'w')"), ["cannot be imported", "denied"]),
        (filled(more="import os\nos.kill(os.getpid(), 6)"), ["SIGABRT"]),
        (filled(more="import sys\nsys.modules.clear()"), ["unexpected exception in the child process: "]),
        (filled("OTHER", "OTHER = 3.0"), ["global variable"]),
        (
            filled("1", "jit = lambda f: f").replace("@triton.jit", "@jit"),
            ["without @triton.jit"],
        ),
        (filled().replace("(out,", "(out: '*fp16',"), ["annotated as *fp16", "float32 *"]),
    ],
)
def test_what_fails_costs_one_stage(
    compiler: Compiler, tmp_path: Path, source: str, words: list[str]
) -> None:
    """Whatever a file does, its stages have an error of one line, and others compile afterwards."""
    bad, good = tmp_path / "bad", tmp_path / "good"
    bad.mkdir()
    good.mkdir()
    stage = kernel_in(bad, source).stages[0]

    answers = compiler.compile([stage, kernel_in(good, filled()).stages[0]])

    assert isinstance(answers[0], CompileError)
    assert [word for word in words if word not in str(answers[0])] == [], str(answers[0])
    assert "\n" not in str(answers[0])
    assert isinstance(answers[1], CompiledStage)


HELPER = "import triton\n\n@triton.jit\ndef f(x):\n    return x * {}\n"


def test_a_changed_function_of_another_module_is_compiled_anew(tmp_path: Path) -> None:
    """The text of the file alone does not decide what it compiles to."""
    helper = "import triton\n\n@triton.jit\ndef f(x):\n    return x * {}\n"
    source = filled("f(at)", "from helper_of_k import f")
    codes = []
    for factor in ("2", "3", "2"):
        (tmp_path / "helper_of_k.py").write_text(helper.format(factor))
        os.utime(tmp_path / "helper_of_k.py", ns=(0, int(factor)))
        with Compiler("sm_90", tmp_path / "cache") as own:
            codes.append(compiled(own, kernel_in(tmp_path, source).stages[0]).cubin)

    assert codes[0] == codes[2] != codes[1]


def test_what_fails_is_tried_again(tmp_path: Path) -> None:
    """An error may be of the moment: another process asks again, and keeps what it gets."""
    rule = f"{{'BLOCK': lambda a: int(open({str(tmp_path / 'block')!r}).read())}}"
    source = filled().replace("@triton.jit", f"@triton.heuristics({rule})\n@triton.jit")
    stage = kernel_in(tmp_path, source, {"BLOCK = [256, 512]\n": "", "ceil_div(n, BLOCK)": "4"}).stages[0]
    for content in ("", "256"):
        (tmp_path / "block").write_text(content)
        with Compiler("sm_90", tmp_path / "cache") as own:
            (answer,) = own.compile([stage])
        assert isinstance(answer, CompiledStage) == bool(content), answer


def test_a_closed_compiler_starts_nothing(tmp_path: Path) -> None:
    """What is asked after its end is refused, and no process is left."""
    with Compiler("sm_90", tmp_path / "cache") as own:
        compiled(own, kernel_in(tmp_path, filled()).stages[0])
    with pytest.raises(CompilerUnavailableError, match="is closed"):
        own.compile([kernel_in(tmp_path, filled("2.0")).stages[0]])


def test_files_with_modules_of_the_same_names(tmp_path: Path) -> None:
    """Each file has its own helper, in any order, where one process compiles all of them."""
    stages = []
    for factor in ("2.0", "3.0"):
        folder = tmp_path / factor
        (folder / "inside").mkdir(parents=True)
        (folder / "inside" / "helper_of_k.py").write_text(HELPER.format(factor))
        stages.append(kernel_in(folder, filled("f(at)", "from inside.helper_of_k import f")).stages[0])
    codes = []
    for order in ((0, 1, 0), (1, 0, 1)):
        with Compiler("sm_90", tmp_path / f"{order}", jobs=1) as own:
            codes.append([compiled(own, stages[place]).cubin for place in order])

    (two, three, again), others = codes
    assert two == again != three
    assert others == [three, two, three]


def test_a_module_that_changes_meanwhile_is_not_kept(tmp_path: Path) -> None:
    """What an edited helper makes is refused; the text that was read makes its own code afterwards."""
    (tmp_path / "helper_of_k.py").write_text(HELPER.format("2.0"))
    first = kernel_in(tmp_path, filled("f(at)", "from helper_of_k import f")).stages[0]
    second = replace(first, options=("num_warps=8", *first.options[1:]))
    with Compiler("sm_90", tmp_path / "cache") as own:
        compiled(own, first)  # the key of the function is known
        (tmp_path / "helper_of_k.py").write_text(HELPER.format("3.25"))
        (edited,) = own.compile([second])
    (tmp_path / "helper_of_k.py").write_text(HELPER.format("2.0"))
    with Compiler("sm_90", tmp_path / "cache") as own, Compiler("sm_90", tmp_path / "new") as new:
        assert compiled(own, second).cubin == compiled(new, second).cubin

    assert "has changed since it was read" in str(edited)


def test_comments_in_latin_1(compiler: Compiler, tmp_path: Path) -> None:
    """A file that says its encoding is taken as Python takes it."""
    kernel_in(tmp_path, filled())
    source = "# coding: latin-1\n# caf\u00e9\n" + filled()
    (tmp_path / "k.py").write_text(source, encoding="latin-1")
    kernel = load_kernel_file(tmp_path / "k.toml")
    (workload,) = kernel.workloads()
    assert compiled(compiler, kernel.plan(workload, kernel.default(workload)).stages[0]).cubin


def test_a_changed_constant_is_compiled_anew(tmp_path: Path) -> None:
    """A global constexpr is part of what is compiled."""
    codes = []
    for value in ("2.0", "3.0"):
        source = filled("OTHER", f"OTHER = tl.constexpr({value})")
        with Compiler("sm_90", tmp_path / "cache") as own:
            codes.append(compiled(own, kernel_in(tmp_path, source).stages[0]).cubin)

    assert codes[0] != codes[1]


def test_a_file_that_changed_since_it_was_read_is_refused(compiler: Compiler, tmp_path: Path) -> None:
    """What is compiled is what was fingerprinted."""
    stage = kernel_in(tmp_path, filled()).stages[0]
    (tmp_path / "k.py").write_text(filled("2.0"))

    (answer,) = compiler.compile([stage])

    assert isinstance(answer, CompileError)
    assert "has changed since it was read" in str(answer)


def test_another_interpreter_compiles_where_it_is_named(tmp_path: Path) -> None:
    """The application's interpreter makes the same code."""
    plain = kernel_in(tmp_path, filled()).stages[0]
    lines = f'kernel.source = "k.py"\nkernel.language = "triton"\nkernel.build = ["{sys.executable}"]'
    edits = {'kernel.source = "k.py"': lines}
    named = kernel_in(tmp_path, filled(), edits).stages[0]
    assert named.build == (sys.executable,)
    with Compiler("sm_90", tmp_path / "one") as one, Compiler("sm_90", tmp_path / "other") as other:
        assert compiled(one, plain).cubin == compiled(other, named).cubin


def test_heuristics_see_the_arguments(compiler: Compiler, tmp_path: Path) -> None:
    """A constant that a heuristic gives follows from arguments, shapes and other constants."""
    rules = (
        "{'BLOCK': lambda a: 256 if a['n'] % 256 == 232 else 512,"
        " 'TWICE': lambda a: 2 * a['BLOCK'] + a['out'].shape[0] + a['num_warps']}"
    )
    source = filled("TWICE").replace("@triton.jit", f"@triton.heuristics({rules})\n@triton.jit")
    source = source.replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr, TWICE: tl.constexpr")
    fixed = filled("1516").replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr, TWICE: tl.constexpr = 1")
    without = {"BLOCK = [256, 512]\n": "", "ceil_div(n, BLOCK)": "4"}
    by_rule = compiled(compiler, kernel_in(tmp_path, source, without).stages[0])
    plain = compiled(compiler, kernel_in(tmp_path, fixed, {"ceil_div(n, BLOCK)": "4"}).stages[0])

    assert "44BD8000" in by_rule.ptx or str(0x44BD8000) in by_rule.ptx  # 1516 as a float
    assert by_rule.resources.registers_per_thread == plain.resources.registers_per_thread


def test_a_search_without_a_gpu(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`tuner run` searches a kernel of Triton on a simulated GPU; equal code is measured once."""
    database = tmp_path / "db.sqlite"
    arguments = ["run", "triton-softmax:rows=64,cols=1000", "--kernel"]
    arguments += [
        str(EXAMPLES / "triton/softmax.toml"),
        "--device",
        "sim:h200",
        "--database",
        str(database),
    ]
    main([*arguments, "--policy", "exhaustive", "--json", str(tmp_path / "run.json")], standalone_mode=False)
    told = capfd.readouterr()
    candidate = json.loads((tmp_path / "run.json").read_text())["workloads"][0]["candidates"][0]

    assert candidate["resources"][0]["demands"]["threads"] == candidate["threads_per_block"]
    assert "the code and launches of another" in told.out + told.err
    assert "BLOCK=1024" in told.out
    assert 'launch: softmax with triton.Config({"BLOCK": 1024}, num_warps=' in told.out
    left_out = int(told.out.partition("left out: ")[2].partition(" ")[0])
    assert f"all {15 - left_out} tried" in told.out

    written = tmp_path / "configs.py"
    words = ["export", "triton-softmax", "--format", "triton", "--output", str(written)]
    main([*words, "--database", str(database)], standalone_mode=False)
    configs = runpy.run_path(str(written))["configs"]
    function = runpy.run_path(str(EXAMPLES / "triton/softmax.py"))["softmax"]
    autotuned = importlib.import_module("triton").autotune(configs=configs, key=["cols"])(function)
    (config,) = autotuned.configs
    assert config.kwargs == {"BLOCK": 1024}
    assert f"num_warps={config.num_warps} num_stages={config.num_stages} num_ctas=1" in told.out


@pytest.mark.parametrize("name", ["attention", "fused_moe", "matmul", "rms-norm", "softmax"])
def test_a_check_of_the_examples(
    name: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tuner kernels check` compiles a default; without a GPU it names a simulated one that is new enough."""
    monkeypatch.setattr("tuner.devices.cuda.probe.driver_problem", lambda: "no driver (a test)")
    file = EXAMPLES / f"triton/{name}.toml"
    main(["kernels", "check", str(file), "--arch", "sm_80"], standalone_mode=False)

    told = capfd.readouterr().out
    assert "the default compiles for sm_80" in told
    assert "--device sim:h200" in told.partition("next: tuner run --kernel ")[2]


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_products_of_tensor_cores_are_counted(architecture: str, tmp_path: Path) -> None:
    """A walk of one thread's code comes to the products of the whole matrices."""
    kernel = load_kernel_file(EXAMPLES / "triton/matmul.toml")
    workload = kernel.workload({"N": 1024})
    (stage,) = kernel.plan(workload, kernel.default(workload)).stages
    with Compiler(architecture, tmp_path / "cache") as own:
        code = compiled(own, stage)
    place = Place((5, 0, 0), (3, 0, 0), stage.block, stage.grid)
    counts = executed(code.ptx, (1 << 40, 2 << 40, 3 << 40, 1024, 1024, 1024), place)

    assert counts["tensor16"] * stage.blocks * stage.threads_per_block == 1024**3


def jitted(name: str) -> Any:
    if str(DATA) not in sys.path:
        sys.path.insert(0, str(DATA))
    return getattr(importlib.import_module("kernels"), name)


def test_a_kernel_in_python_takes_an_autotuned_function(tmp_path: Path) -> None:
    """Configurations become tunables and a rule; what they reset is zeros before every run."""
    triton: Any = importlib.import_module("triton")
    configs = [triton.Config({"BLOCK": 256}, num_warps=2), triton.Config({"BLOCK": 512}, num_warps=4)]
    tuned = triton.autotune(configs=configs, key=["n"], reset_to_zero=["out"])(jitted("scaled_sum"))
    x = np.zeros(1000, np.float32)
    kernel = Kernel(
        tuned,
        arguments={"out": x, "x": x, "y": x, "n": 1000, "scale": 0.5, "negate": False},
        grid=lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),),
        outputs=["out"],
    )

    file = kernel.kernel_file(tmp_path)

    (workload,) = file.workloads()
    space = [dict(configuration.items()) for configuration in file.space(workload)]
    assert [(one["BLOCK"], one["num_warps"]) for one in space] == [(256, 2), (512, 4)]
    plan = file.plan(workload, file.default(workload))
    assert plan.stages[0].grid == (4, 1, 1)
    assert [(one.name, one.role, one.zeroed) for one in plan.buffers] == [
        ("out", "out", True),
        ("x", "in", False),
        ("y", "in", False),
    ]


class Tensor:
    """A tensor of PyTorch, as far as it is asked."""

    ndim = 1

    def __init__(self, values: list[float], dtype: str) -> None:
        self.dtype, self._values = dtype, values

    def float(self) -> "Tensor":
        return Tensor(self._values, "torch.float32")

    def detach(self) -> "Tensor":
        return self

    cpu = detach

    def numpy(self) -> Any:
        assert self.dtype == "torch.float32", "NumPy has no such type"
        return np.asarray(self._values, np.float32)

    __array__ = numpy


def test_tensors_of_bfloat16_are_their_bits(tmp_path: Path) -> None:
    """An array that NumPy has no type for is handed over as its bits, and compared as numbers."""
    x = Tensor([1.0, -2.0, 0.5, 3.0], "torch.bfloat16")
    kernel = Kernel(
        jitted("scaled_sum"),
        arguments={"out": x, "x": x, "y": x, "n": 4, "scale": 1.0, "negate": True},
        grid=1,
        outputs=["out"],
        tunables={"BLOCK": [256]},
        reference=lambda x, y: -(x + y),
    )
    file = kernel.kernel_file(tmp_path)
    (workload,) = file.workloads()
    plan = file.plan(workload, file.default(workload))

    assert {one.name: one.dtype for one in plan.buffers} == dict.fromkeys(("out", "x", "y"), "bfloat16")
    assert plan.stages[0].specialisation[0].dtype == "*bfloat16"
    assert np.load(tmp_path / "x.npy").tolist() == [0x3F80, 0xC000, 0x3F00, 0x4040]
    assert np.load(tmp_path / "expected-out.npy").tolist() == [-2.0, 4.0, -1.0, -6.0]


def test_a_file_that_tunes_when_it_is_imported_is_told_so(compiler: Compiler, tmp_path: Path) -> None:
    """A program without its guard does not tune itself again in each process that compiles."""
    (answer,) = compiler.compile(
        [kernel_in(tmp_path, filled(more="import tuner\ntuner.tune('x')")).stages[0]]
    )

    assert isinstance(answer, CompileError)
    assert "may not tune" in str(answer)
    assert "__main__" in str(answer)


def misuses() -> dict[str, tuple[Any, dict[str, Any], str]]:
    triton: Any = importlib.import_module("triton")
    add, x = jitted("scaled_sum"), np.zeros(16, np.float32)
    arguments = {"out": x, "x": x, "y": x, "n": 16, "scale": 0.5, "negate": False}
    hooked = triton.Config({"BLOCK": 256}, pre_hook=print)
    return {
        "an argument is missing": (add, {"out": x}, "scaled_sum needs x"),
        "an unknown argument": (add, arguments | {"z": 1}, "no parameter 'z'"),
        "a hook": (triton.autotune(configs=[hooked], key=[])(add), arguments, "pre_hook"),
        "a type": (add, arguments | {"BLOCK": np.float32}, "no value of a constexpr"),
    }


@pytest.mark.parametrize("case", ["an argument is missing", "an unknown argument", "a hook", "a type"])
def test_what_a_kernel_in_python_refuses(case: str) -> None:
    """The message names the argument."""
    function, arguments, words = misuses()[case]
    with pytest.raises(InputError) as refused:
        Kernel(function, arguments=arguments, grid=1, tunables={"BLOCK": [256]})

    assert words in str(refused.value)


def test_versions_outside_the_tested_range_are_refused(
    monkeypatch: pytest.MonkeyPatch, compiler: Compiler, tmp_path: Path
) -> None:
    """Another version is named, with the range."""
    package = tmp_path / "other" / "triton"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('__version__ = "3.1.0"\n')
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={package.parent} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    stage = kernel_in(tmp_path, filled()).stages[0]

    (answer,) = compiler.compile([replace(stage, build=(str(python),))])

    assert isinstance(answer, CompileError)
    assert "Triton 3.1.0 is not among the versions that are tested, 3.4 to 3.9" in str(answer)
