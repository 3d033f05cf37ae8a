"""Kernel files: what they become, and that every mistake names the file, the key and what would be right."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuner.kernel_files.catalog import Catalog, load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile, with_stream_priorities
from tuner.kernel_files.schema import json_schema
from tuner.model.errors import EmptySpaceError, InputError, KernelFileError, UnknownNameError
from tuner.model.plan import STREAM_PRIORITY, Buffer, Configuration, Resources, Scalar

TEXT = """
[kernel]
name = "rows"
description = "Sums of rows"
family = "scan"
source = "rows.cu"
headers = ["shared"]
entry = "rows<{N}, {P * 2}, {shuffle}, {mode}>"
options = ["--std=c++17", "-DP={P}"]
[problem]
name = "scan"
batch = "2**12 // N"
tolerance = 1e-5
[problem.sizes]
N = [64, 128]
kind = ["up", "down"]
[[argument]]
buffer = "x"
dtype = "float32"
shape = ["batch", "N"]
role = "inout"
[[argument]]
scalar = "rows"
dtype = "int32"
value = "batch"
[[argument]]
scalar = "scale"
dtype = "float32"
value = "1 / N"
[[argument]]
buffer = "partial"
dtype = "float64"
shape = ["batch * G"]
role = "scratch"
[tunables]
P = [2, 4, 8]
L = [32, 64]
shuffle = [true, false]
mode = ["fast", "slow"]
[derived]
G = "ceil_div(N, P * L)"
H = "G + 1"
[roles]
elements_per_thread = "P"
threads_per_block = "L"
[constraints]
rules = ["P * L <= 2 * N", "kind == 'up' or not shuffle"]
[default]
P = 4
L = "min(64, N // 2)"
shuffle = "kind == 'up'"
mode = "fast"
[launch]
grid = ["batch", "G", 1]
block = ["L", 2]
shared_bytes = "0 if shuffle else 4 * L"
[work]
bytes = "8 * N * batch"
operations = "N * batch"
steps = "log2(N)"
rate = "MData/s"
rate_units = "N * batch"
[resources]
registers = "16 + 2 * P"
[occupancy]
min = 0.5
"""

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a kernel file beside a source and headers."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "rows.cu").write_text("// rows\n")
    (tmp_path / "own.cuh").write_text("// own\n")
    (tmp_path / "shared" / "own.cuh").write_text("// hidden by the one beside the file\n")
    (tmp_path / "shared" / "step.cuh").write_text("// step\n")

    def write_text(text: str) -> Path:
        path = tmp_path / "kernel.toml"
        path.write_text(text)
        return path

    return write_text


@pytest.fixture
def kernel(write: Write) -> KernelFile:
    """The kernel of the text above."""
    return load_kernel_file(write(TEXT))


def first(kernel: KernelFile, **values: Any) -> Configuration:
    workload = kernel.workload({"N": 64, "kind": "up"})
    return Configuration({**kernel.default(workload), **values})


def test_what_a_file_says(kernel: KernelFile) -> None:
    """The plain facts of a file are attributes."""
    assert (kernel.name, kernel.description, kernel.family) == ("rows", "Sums of rows", "scan")
    assert kernel.sizes == {"N": (64, 128), "kind": ("up", "down")}
    assert kernel.tunables["shuffle"] == (True, False)
    assert kernel.roles == {"elements_per_thread": "P", "threads_per_block": "L"}
    assert kernel.min_occupancy == 0.5
    assert kernel.path.name == "kernel.toml"


def test_workloads(kernel: KernelFile) -> None:
    """A workload has every size in the file's order and the file's batch unless another is given."""
    workload = kernel.workload({"kind": "down", "N": 128})
    assert str(workload) == "rows:N=128,kind=down"
    assert workload.batch == 32
    assert kernel.workload({"kind": "up", "N": "64"}, batch=3).sizes == (("N", 64), ("kind", "up"))
    assert kernel.workload({"kind": "up", "N": 64}, batch=3).batch == 3
    assert len(kernel.workloads()) == 4


@pytest.mark.parametrize(
    ("sizes", "trouble"),
    [
        ({"N": 65, "kind": "up"}, "rows has no N=65; choose N from 64, 128"),
        ({"N": 64}, "size kind is missing, as in rows:N=64,kind=up; choose kind from up, down"),
        ({"N": 64, "kind": "up", "kin": 3}, "unknown size 'kin'; choose from N, kind, batch; did you mean"),
    ],
)
def test_sizes_outside_the_file(kernel: KernelFile, sizes: dict[str, Any], trouble: str) -> None:
    """A size the file does not have is refused with those it has."""
    with pytest.raises(UnknownNameError) as error:
        kernel.workload(sizes)
    assert trouble in str(error.value)


def test_batches_are_whole_and_positive(kernel: KernelFile) -> None:
    """A batch below one is refused."""
    with pytest.raises(InputError, match="batch is 0"):
        kernel.workload({"N": 64, "kind": "up"}, batch=0)


def test_the_space_obeys_the_rules(kernel: KernelFile) -> None:
    """Rules see sizes and tunables; the default configuration is in the space of every workload."""
    for workload in kernel.workloads():
        space = kernel.space(workload)
        assert kernel.default(workload) in space
        assert all(kernel.broken_rule(workload, configuration) is None for configuration in space)
    down = kernel.workload({"N": 64, "kind": "down"})
    assert not any(configuration["shuffle"] for configuration in kernel.space(down))
    assert kernel.default(down)["shuffle"] is False
    assert kernel.broken_rule(down, first(kernel)) == "kind == 'up' or not shuffle"


def test_a_plan_has_every_expression_evaluated(kernel: KernelFile) -> None:
    """Entry, options, geometry, arguments, buffers, declared resources and work follow from the values."""
    workload = kernel.workload({"N": 64, "kind": "up"}, batch=10)
    plan = kernel.plan(workload, first(kernel, L=32, shuffle=False))
    (stage,) = plan.stages
    assert stage.entry == "rows<64, 8, false, fast>"
    assert stage.options == ("--std=c++17", "-DP=4")
    assert (stage.grid, stage.block, stage.shared_bytes) == ((10, 1, 1), (32, 2, 1), 128)
    assert stage.arguments == ("x", Scalar("int32", 10), Scalar("float32", 1 / 64), "partial")
    assert plan.buffers == (
        Buffer("x", "float32", (10, 64), "inout"),
        Buffer("partial", "float64", (10,), "scratch"),
    )
    assert stage.declared == Resources(24, compiled=False)
    assert (plan.work.bytes, plan.work.steps, plan.work.rate_units) == (5120, 6, 640)
    assert (plan.work.rate_name, plan.work.rate_scale) == ("MData/s", 1e6)
    assert (plan.problem.name, plan.problem.tolerance) == ("scan", 1e-5)
    assert stage.source.text == "// rows\n"
    assert dict(stage.source.headers) == {"own.cuh": "// own\n", "step.cuh": "// step\n"}


def test_plans_share_one_source(kernel: KernelFile) -> None:
    """The source is read once, so that ten thousand plans hold one copy of it."""
    workload = kernel.workload({"N": 64, "kind": "up"})
    sources = {id(kernel.plan(workload, c).stages[0].source) for c in kernel.space(workload)}
    assert len(sources) == 1


@pytest.mark.parametrize(
    ("rate", "scale"), [("MRows/s", 1e6), ("GFLOPS", 1e9), ("Trials/s", 1.0), ("kB/s", 1e3), ("", 1.0)]
)
def test_scale_of_the_rate(write: Write, rate: str, scale: float) -> None:
    """A prefix before a capital letter scales the rate; the same letter within a word does not."""
    kernel = load_kernel_file(write(TEXT.replace("MData/s", rate)))
    workload = kernel.workload({"N": 64, "kind": "up"})
    assert kernel.plan(workload, first(kernel)).work.rate_scale == scale


STAGES = """
[[stage]]
name = "up"
entry = "up<{P}>"
grid = "batch"
block = "L"
arguments = ["x", "partial"]
registers = 20
[[stage]]
name = "down"
source = "down.cu"
entry = "down"
grid = "batch"
block = "L"
when = "G > 1"
"""


def staged(text: str = STAGES) -> str:
    """The file above with stages instead of one launch."""
    before, _, after = TEXT.partition("[launch]")
    after = after.partition("[work]")[2]
    lines = [line for line in before.splitlines() if not line.startswith("entry")]
    return "\n".join([*lines, text]) + "[work]" + after


def test_stages(write: Write, tmp_path: Path) -> None:
    """Stages have their own source, arguments and registers, and are left out where ``when`` is false."""
    (tmp_path / "down.cu").write_text("// down\n")
    kernel = load_kernel_file(write(staged()))
    assert kernel.stages == ("up", "down")

    workload = kernel.workload({"N": 128, "kind": "up"})
    two = kernel.plan(workload, first(kernel, P=2, L=32))
    assert [stage.name for stage in two.stages] == ["up", "down"]
    assert two.stages[0].arguments == ("x", "partial")
    assert two.stages[0].declared == Resources(20, compiled=False)
    assert two.stages[1].declared == Resources(20, compiled=False)  # 16 + 2 * P of [resources]
    assert two.stages[1].source.text == "// down\n"
    assert len(two.stages[1].arguments) == 4

    one = kernel.plan(workload, first(kernel, P=4, L=64))
    assert [stage.name for stage in one.stages] == ["up"]


def test_a_plan_needs_a_stage(write: Write) -> None:
    """A configuration for which every stage is left out is an error that names it."""
    text = staged(STAGES.partition('[[stage]]\nname = "down"')[0] + 'when = "P > 100"\n')
    kernel = load_kernel_file(write(text))
    with pytest.raises(KernelFileError, match=r"every stage is left out \(at rows:N=64,kind=up \[P=4"):
        kernel.plan(kernel.workload({"N": 64, "kind": "up"}), first(kernel))


def test_without_a_default_table_the_first_configuration_counts(write: Write) -> None:
    """A file without [default] starts from the first configuration of the space."""
    before, _, after = TEXT.partition("[default]")
    kernel = load_kernel_file(write(before + "[launch]" + after.partition("[launch]")[2]))
    workload = kernel.workload({"N": 64, "kind": "down"})
    assert kernel.default(workload) == kernel.space(workload)[0]


def test_a_default_takes_derived_names_of_the_tunables_above(write: Write) -> None:
    """[default] may use derived names that need no tunable that is still to come."""
    text = TEXT.replace('H = "G + 1"', 'H = "G + 1"\nhalf = "16 * P // 2"')
    kernel = load_kernel_file(write(text.replace('L = "min(64, N // 2)"', 'L = "half"')))
    assert kernel.default(kernel.workload({"N": 64, "kind": "up"}))["L"] == 32
    with pytest.raises(KernelFileError, match=r"\[default\] L: expression 'half \+ G': unknown name 'G'"):
        load_kernel_file(write(text.replace('L = "min(64, N // 2)"', 'L = "half + G"')))


LOADING: list[tuple[str, str, str]] = [
    ("[tunables]", "[tunables", "not valid TOML"),
    ("P = [2, 4, 8]", f"P = [2, {2**63}]", "tunables.P: a whole number has more than 63 bits"),
    ("N = [64, 128]", f"N = [64, {-(2**63)}]", "problem.sizes.N: a whole number has more than 63 bits"),
    ('"rows.cu"', '"rows.cu\\u0000"', "[kernel] source: "),
    ('"rows.cu"', f'"{"r" * 5000}.cu"', "cannot be read: File name too long"),
    ('["shared"]', '["shared\\u0000"]', "[kernel] headers: no such folder"),
    ('["shared"]', f'["{"s" * 5000}"]', "[kernel] headers: no such folder"),
    ('"up", "down"', '"up", ""', "[problem.sizes] kind: no workload can name ''"),
    ('"up", "down"', '"up", " up"', "[problem.sizes] kind: no workload can name ' up'"),
    ('"up", "down"', '"up", "a,b"', "[problem.sizes] kind: no workload can name 'a,b'"),
    ('"up", "down"', '"up", "a=b"', "[problem.sizes] kind: no workload can name 'a=b'"),
    ('"up", "down"', '"up", "a\\nb"', "[problem.sizes] kind: no workload can name 'a\\nb'"),
    ("[launch]", "[lanch]", "[lanch]: unknown key; did you mean 'launch'?; known here: kernel, problem"),
    ("block = ", "blok = ", "[launch] blok: unknown key; did you mean 'block'?"),
    ("block = ", "blok = ", "[launch] blok: unknown key; did you mean 'block'?"),
    ('role = "inout"', 'role = "inot"', "[[argument]] 1 role: 'inot' is not one of in, out, inout, scratch"),
    ('role = "inout"', 'role = "in"', "[[argument]]: no buffer has role"),
    ('dtype = "int32"', 'dtype = "int"', "[[argument]] 2 (rows) dtype: 'int' is not one of"),
    (
        'shape = ["batch", "N"]',
        'shape = ["batch", {}]',
        "[[argument]] 1 shape, item 2: must be a whole number or text",
    ),
    ('buffer = "partial"', 'buffer = "x"', "[[argument]] 4 (x): an argument of this name stands above"),
    ("min = 0.5", "min = 1.5", "[occupancy] min: input should be less than or equal to 1"),
    ("min = 0.5", 'min = "half"', "[occupancy] min: must be a number"),
    ('name = "rows"', 'name = "Rows 1"', "[kernel] name: 'Rows 1' does not have the form"),
    ('family = "scan"', "family = 3", "[kernel] family: must be text"),
    ('source = "rows.cu"', "", "[kernel] source: no CUDA C++ file is named here"),
    ('source = "rows.cu"', 'source = "none.cu"', "none.cu: cannot be read: No such file"),
    ('headers = ["shared"]', 'headers = ["hidden"]', "[kernel] headers: no such folder"),
    ("{shuffle}", "{shuffle", "[kernel] entry: braces of"),
    ("{shuffle}", "shuffle}", "[kernel] entry: braces of"),
    ("{shuffle}", "{shufle}", "[kernel] entry: expression 'shufle': unknown name 'shufle'"),
    ("-DP={P}", "-DP={}", "[kernel] options: expression '': not an expression"),
    ("P = [2, 4, 8]", "P = []", "[tunables] P: must be a list of at least one"),
    ("P = [2, 4, 8]", "P = [2, 2]", "[tunables]: P: value 2 stands twice"),
    ("P = [2, 4, 8]", "P = [[2]]", "[tunables] P, item 1: must be true or false or a whole number"),
    ("P = [2, 4, 8]", "P = 2", "[tunables] P: must be a list"),
    ("L = [32, 64]", "L = [32, 64]\nmax = [1]", "[tunables]: 'max' is not a name"),
    ("L = [32, 64]", "L = [32, 64]\nN = [1]", "[tunables] N: the name is taken by [problem.sizes]"),
    ("L = [32, 64]", "L = [32, 64]\nbatch = [1]", "[tunables] batch: the name is taken by the batch"),
    ("N = [64, 128]", f"N = {list(range(9000))}", "[problem.sizes]: 18000 combinations of sizes"),
    ("N = [64, 128]", "N = [64, 64]", "[problem.sizes] N: a value stands twice"),
    ("N = [64, 128]", "N = [64.5]", "[problem.sizes] N, item 1: must be a whole number or text"),
    ("N = [64, 128]", "if = [64]", "[problem.sizes] if: this name is a word of the expression language"),
    (
        'batch = "2**12 // N"',
        'batch = "2**12 // P"',
        "[problem] batch: expression '2**12 // P': unknown name 'P'",
    ),
    (
        'name = "scan"',
        'name = "scam"',
        "[problem] name: 'scam' is not one of scan, segmented-scan, tridiagonal, fft",
    ),
    ("tolerance = 1e-5", "tolerance = 0", "[problem] tolerance: input should be greater than 0"),
    ('name = "scan"', 'name = "expression"', '[problem.reference] and name = "expression" in [problem] need'),
    (
        'G = "ceil_div',
        'G = "H + ceil_div',
        "[derived] G: expression 'H + ceil_div(N, P * L)': H stands below; a name may use those above it",
    ),
    (
        '= "P"\nthreads',
        '= "Q"\nthreads',
        "[roles] elements_per_thread: 'Q' is no tunable; choose from P, L, shuffle",
    ),
    ('= "P"\nthreads', '= "mode"\nthreads', "the values of mode are text; a role needs numbers"),
    ("elements_per_thread =", "elements_per_tread =", "unknown key; did you mean 'elements_per_thread'"),
    (
        '"P * L <= 2 * N"',
        '"P.x <= N"',
        "[constraints] rules, item 1: expression 'P.x <= N': attribute access",
    ),
    ('"P * L <= 2 * N"', "\"__import__('os')\"", "call of __import__ is not allowed"),
    ('mode = "fast"', "", "[default]: a value is missing for mode"),
    (
        'mode = "fast"',
        'mode = "fast"\nQ = 3',
        "[default] Q: no such tunable; choose from P, L, shuffle, mode",
    ),
    ('mode = "fast"', 'mode = "fats"', "[default] mode: expression 'fats': unknown name 'fats'"),
    ('steps = "log2(N)"', 'steps = "log2(N"', "[work] steps: expression 'log2(N': not an expression"),
    ("[work]", "[wrk]", "[wrk]: unknown key; did you mean 'work'?"),
    ('registers = "16 + 2 * P"', "", "[resources] registers: is needed"),
]


@pytest.mark.parametrize(("old", "new", "trouble"), LOADING)
def test_mistakes_found_when_loading(write: Write, old: str, new: str, trouble: str) -> None:
    """A mistake is reported with the file, the key and what would be right."""
    assert old in TEXT
    path = write(TEXT.replace(old, new))
    with pytest.raises(KernelFileError) as error:
        load_kernel_file(path)
    assert trouble in str(error.value)
    assert str(path) in str(error.value)


EVALUATING: list[tuple[str, str, str]] = [
    ('"L", 2]', '"L", 32]', "[launch] block: 'L', '32' makes 2048 threads; a block has at most 1024"),
    (
        '"L", 2]',
        '"L / 2", 2]',
        "[launch] block: 'L / 2' is 32.0, which is not a whole number; // and ceil_div()",
    ),
    ('"G", 1]', '"N * 2000", 1]', "[launch] grid: 'N * 2000' is 128000; it must be from 1 to 65535"),
    ('"G", 1]', '"G - 1", 1]', "it must be from 1 to 65535"),
    ('"G", 1]', '"shuffle", 1]', "[launch] grid: 'shuffle' is true, which is not a whole number"),
    ("4 * L", "4 * L - 400", ""),
    ("0 if shuffle", "-1 if shuffle", "[launch] shared_bytes: '-1 if shuffle else 4 * L' is -1"),
    ('value = "batch"', 'value = "2**31"', "[[argument]] 2 (rows) value: '2**31' is 2147483648"),
    (
        'value = "1 / N"',
        'value = "1 / (N - 64)"',
        "[[argument]] 3 (scale) value: expression '1 / (N - 64)': division",
    ),
    ('value = "1 / N"', 'value = "mode"', "'mode' is the text 'fast', not a number"),
    ('["batch * G"]', '["batch / G"]', "[[argument]] 4 (partial) shape: 'batch / G' is 64.0"),
    ('bytes = "8 * N * batch"', 'bytes = "-8 * N"', "[work] bytes: '-8 * N' is -512; it must be at least 0"),
    ('registers = "16 + 2 * P"', 'registers = "P - 4"', "[resources] registers: 'P - 4' is 0"),
    ("{P * 2}", "{P / 2}", "[kernel] entry: 'P / 2' is 2.0; // and ceil_div()"),
]


@pytest.mark.parametrize(("old", "new", "trouble"), EVALUATING)
def test_mistakes_found_in_a_plan(write: Write, old: str, new: str, trouble: str) -> None:
    """What cannot be launched is reported with the key, the values and the configuration."""
    assert old in TEXT
    kernel = load_kernel_file(write(TEXT.replace(old, new)))
    workload = kernel.workload({"N": 64, "kind": "up"})
    configuration = first(kernel, L=64)
    if not trouble:
        assert kernel.plan(workload, configuration).stages[0].shared_bytes == 0
        return
    with pytest.raises(KernelFileError) as error:
        kernel.plan(workload, configuration)
    assert trouble in str(error.value)
    assert "(at rows:N=64,kind=up [P=4 L=64 shuffle=1 mode=fast])" in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "trouble"),
    [
        ("P = 4\n", "P = 5\n", "[default] P: 5 at rows:N=64,kind=up is not a value of P (2, 4, 8)"),
        ("\"kind == 'up'\"", "true", '[default]: P=4 L=32 shuffle=1 mode=fast breaks the rule "kind =='),
        ("N // 2)", "N // (P - 4))", "[default] L: expression 'min(64, N // (P - 4))': division by zero"),
    ],
)
def test_a_default_that_is_not_in_the_space(write: Write, old: str, new: str, trouble: str) -> None:
    """A default outside its value list, or against a rule, is reported with the rule."""
    assert old in TEXT
    kernel = load_kernel_file(write(TEXT.replace(old, new)))
    with pytest.raises(KernelFileError) as error:
        _ = [kernel.default(workload) for workload in kernel.workloads()]
    assert trouble in str(error.value)


STATED = """[analytical]
P = 2
L = "64 if N > 64 else 32"
shuffle = "kind == 'up'"
mode = "slow"
[launch]
"""


def test_the_stated_analytical_answer(write: Write) -> None:
    """[analytical] is evaluated as [default] is; a file without it states none."""
    kernel = load_kernel_file(write(TEXT.replace("[launch]\n", STATED)))
    workload = kernel.workload({"N": 64, "kind": "down"})
    stated = kernel.stated(workload)
    assert stated is not None
    assert dict(stated) == {"P": 2, "L": 32, "shuffle": False, "mode": "slow"}
    assert load_kernel_file(write(TEXT)).stated(workload) is None


@pytest.mark.parametrize(
    ("old", "new", "trouble"),
    [
        ("P = 2\n", "", "[analytical]: a value is missing for P"),
        ("P = 2\n", "Q = 8\n", "[analytical] Q: no such tunable; choose from P, L, shuffle, mode"),
        ("P = 2\n", "P = 5\n", "[analytical] P: 5 at rows:N=64,kind=up is not a value of P (2, 4, 8)"),
        ("P = 2\n", "P = 8\n", "[analytical]: P=8 L=32 shuffle=1 mode=slow breaks the rule"),
        ("[launch]", "[launch]\n", "[analytical] and analytical = false in [kernel] contradict each other"),
    ],
)
def test_wrong_analytical_answers(write: Write, old: str, new: str, trouble: str) -> None:
    """The table, the tunable and what would be right are named."""
    text = TEXT.replace("[launch]\n", STATED.replace(old, new))
    if "contradict" in trouble:
        text = text.replace('family = "scan"', 'family = "scan"\nanalytical = false')
    with pytest.raises(KernelFileError) as error:
        load_kernel_file(write(text)).stated(load_kernel_file(write(text)).workload({"N": 64, "kind": "up"}))
    assert trouble in str(error.value)


def test_the_default_as_analytical_answer(write: Write) -> None:
    """It is stated as [analytical] would state it, and the rules answer where it cannot be launched."""
    kernel = load_kernel_file(
        write(TEXT.replace('family = "scan"', 'family = "scan"\nanalytical = "default"'))
    )
    workload = kernel.workload({"N": 64, "kind": "up"})
    assert kernel.stated_answers(workload, "NVIDIA H200") == (kernel.default(workload),)
    assert kernel.rule_roles == kernel.roles


@pytest.mark.parametrize(
    ("key", "change", "trouble"),
    [
        ("default", "[analytical]", "and analytical = 'default' in [kernel] contradict each other"),
        ("default", "no [default]", "analytical = 'default' in [kernel] needs [default]"),
        ("defualt", "", "'defualt' is not one of true, false, default; did you mean 'default'?"),
    ],
)
def test_wrong_words_for_the_analytical_answer(write: Write, key: str, change: str, trouble: str) -> None:
    """The key and what would be right are named."""
    text = TEXT.replace('family = "scan"', f'family = "scan"\nanalytical = "{key}"')
    if change == "[analytical]":
        text = text.replace("[launch]\n", STATED)
    if change == "no [default]":
        text = re.sub(r"\[default\]\n(?:\w.*\n)+", "", text)
    with pytest.raises(KernelFileError) as error:
        load_kernel_file(write(text))
    assert trouble in str(error.value)


SEVERAL = STATED.replace("[analytical]", "[[analytical]]").replace("[launch]\n", "")
SEVERAL += SEVERAL.replace("P = 2", "P = 4") + SEVERAL + "[launch]\n"


def test_several_analytical_answers(write: Write) -> None:
    """[[analytical]] states them in order of preference; of equal ones the first counts."""
    kernel = load_kernel_file(write(TEXT.replace("[launch]\n", SEVERAL)))
    workload = kernel.workload({"N": 64, "kind": "down"})
    assert [one["P"] for one in kernel.stated_answers(workload, "")] == [2, 4]
    assert kernel.stated(workload) == kernel.stated_answers(workload, "")[0]
    assert list(kernel.recipe.stated) == [f"[[analytical]] #{i}" for i in (1, 2, 3)]
    several = with_stream_priorities(kernel, 2)
    assert [one[STREAM_PRIORITY] for one in several.stated_answers(workload, "")] == [0, 0]


@pytest.mark.parametrize(
    ("old", "new", "trouble"),
    [
        ("P = 4\n", "", "[[analytical]] #2: a value is missing for P"),
        ("P = 4\n", "Q = 8\n", "[[analytical]] #2 Q: no such tunable; choose from P, L, shuffle, mode"),
        ("P = 4\n", "P = []\n", "[[analytical]] #2 P: must be a whole number or a number or true or false"),
        ("P = 4\n", "P = 5\n", "[[analytical]] #2 P: 5 at rows:N=64,kind=up is not a value of P (2, 4, 8)"),
        ("P = 4\n", "P = 8\n", "[[analytical]] #2: P=8 L=32 shuffle=1 mode=slow breaks the rule"),
        (
            "[launch]",
            "[[analytical]]\n[launch]",
            "[[analytical]] #4: holds nothing: give every tunable a value",
        ),
    ],
)
def test_wrong_lists_of_analytical_answers(write: Write, old: str, new: str, trouble: str) -> None:
    """The table is named by its place in the list."""
    path = write(TEXT.replace("[launch]\n", SEVERAL.replace(old, new)))
    with pytest.raises(KernelFileError) as error:
        load_kernel_file(path).stated(load_kernel_file(path).workload({"N": 64, "kind": "up"}))
    assert trouble in str(error.value)


@pytest.mark.parametrize(
    ("given", "trouble"),
    [
        ("3", "[analytical]: must be a table"),
        ("[]", "[analytical]: must be a list of at least one"),
        ("[{ P = 2 }, 3]", "[[analytical]] #2: must be a table"),
    ],
)
def test_analytical_answers_that_are_no_tables(write: Write, given: str, trouble: str) -> None:
    """A table, or a list of tables, would be right."""
    with pytest.raises(KernelFileError) as error:
        load_kernel_file(write(f"analytical = {given}\n{TEXT}"))
    assert str(error.value).endswith(trouble)


def test_rules_that_leave_nothing(write: Write) -> None:
    """An empty space names the workload, the rule and the file."""
    kernel = load_kernel_file(write(TEXT.replace("P * L <= 2 * N", "P * L > 100 * N")))
    with pytest.raises(
        EmptySpaceError, match=r"rows:N=64,kind=up: the rule 'P \* L > 100 \* N' .*kernel.toml"
    ):
        kernel.space(kernel.workload({"N": 64, "kind": "up"}))


def test_rules_without_result(write: Write) -> None:
    """A rule that divides by zero somewhere is an error of the file."""
    kernel = load_kernel_file(write(TEXT.replace("P * L <= 2 * N", "N // (P - 2) > 0")))
    workload = kernel.workload({"N": 64, "kind": "up"})
    with pytest.raises(KernelFileError, match=r"\[constraints\] rules: .*division by zero"):
        kernel.space(workload)
    with pytest.raises(KernelFileError, match=r"\[constraints\] rules: .*division by zero"):
        kernel.broken_rule(workload, first(kernel, P=2))


@pytest.mark.parametrize(
    ("stage", "trouble"),
    [
        (
            'arguments = ["y"]',
            "[[stage]] 1 (up) arguments: no argument is called 'y'; choose from x, rows",
        ),
        ("nam = 1", "[[stage]] 1 nam: unknown key; did you mean 'name'?"),
        ('when = "Q"', "[[stage]] 1 (up) when: expression 'Q': unknown name 'Q'"),
        ('source = "none.cu"', "[[stage]] 1 (up) source: "),
    ],
)
def test_mistakes_in_stages(write: Write, stage: str, trouble: str) -> None:
    """Mistakes in stages name the stage."""
    lines = f'[[stage]]\nname = "up"\nentry = "up"\ngrid = 1\nblock = 32\n{stage}\n'
    with pytest.raises(KernelFileError) as error:
        load_kernel_file(write(staged(lines)))
    assert trouble in str(error.value)


def test_stages_and_launch_exclude_each_other(write: Write) -> None:
    """A file has [launch] or [[stage]] tables."""
    with pytest.raises(KernelFileError, match="stand instead of"):
        load_kernel_file(write(TEXT + STAGES))
    with pytest.raises(KernelFileError, match=r"\[launch\], or \[\[stage\]\] tables"):
        load_kernel_file(write(staged("")))


def test_references_are_checked(write: Write) -> None:
    """Expressions of [problem.reference] are over input buffers, one for every output."""
    text = TEXT.replace('name = "scan"\nbatch', 'name = "expression"\nbatch')
    good = text.replace("[[argument]]", '[problem.reference]\nx = "2 * x + N"\n[[argument]]', 1)
    assert load_kernel_file(write(good)).problem.reference == (("x", "2 * x + N"),)
    for old, trouble in (('x = "2', 'z = "2'), ("* x", "* partial")):
        with pytest.raises(KernelFileError, match=r"\[problem.reference\]"):
            load_kernel_file(write(good.replace(old, trouble)))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing, binary, oversized or foreign file is an error that names it."""
    with pytest.raises(KernelFileError, match=r"none.toml: cannot be read: No such file"):
        load_kernel_file(tmp_path / "none.toml")
    with pytest.raises(KernelFileError, match="is not a file"):
        load_kernel_file(tmp_path)
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises(KernelFileError, match="is not a file"):
        load_kernel_file(tmp_path / "pipe.toml")
    for name, content, trouble in (
        ("binary.toml", b"\xff\xfe\x00", "is not UTF-8 text"),
        ("large.toml", b"#" * (2**20 + 1), "larger than 1 MiB"),
        ("empty.toml", b"", r"\[kernel\]: is needed"),
        (
            "deep.toml",
            b"a = " + b"[" * 3000 + b"]" * 3000,
            r"deep.toml: not valid TOML: .*nested too deeply",
        ),
        ("digits.toml", b"a = " + b"1" * 5000, r"digits.toml: not valid TOML: .*5000 digits"),
        ("hexadecimal.toml", b"a.b = [0x" + b"f" * 5000 + b"]", r"hexadecimal.toml: a.b: a whole number"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(KernelFileError, match=trouble):
            load_kernel_file(tmp_path / name)
    catalog = Catalog.load(search_path=[tmp_path])
    assert len(catalog.broken) == 7
    assert not catalog.kernels


STRANGE = [
    "3",
    "-1",
    "1e400",
    "nan",
    "true",
    "''",
    "'x'",
    "[]",
    "{}",
    "[[1]]",
    "[{}]",
    "1979-05-27",
    "{ a = 1 }",
]


@pytest.mark.parametrize("line", [i for i, text in enumerate(TEXT.splitlines()) if " = " in text])
def test_no_value_escapes_the_error_tree(write: Write, line: int) -> None:
    """Whatever value stands at whichever key, the file works or ends in an error of the package."""
    for strange in STRANGE:
        lines = TEXT.splitlines()
        lines[line] = f"{lines[line].partition(' = ')[0]} = {strange}"
        try:
            kernel = load_kernel_file(write("\n".join(lines)))
            workload = kernel.workloads()[0]
            kernel.plan(workload, kernel.default(workload))
            kernel.plan(workload, kernel.space(workload)[0])
        except InputError as error:
            assert str(error)  # noqa: PT017 - some of these values are right


def test_many_mistakes_are_listed_together(write: Write) -> None:
    """Up to five wrong keys are reported at once, each on its own line."""
    with pytest.raises(KernelFileError) as error:
        load_kernel_file(write('[kernel]\nname = "x"\n[a]\n[b]\n[c]\n[d]\n[e]\n[f]\n'))
    lines = str(error.value).splitlines()
    assert len(lines) == 6
    assert lines[-1].endswith("more")


def test_the_schema_describes_every_key() -> None:
    """Editors complete from the JSON Schema: every key of every table has a description."""
    schema = json_schema()
    tables = [schema, *schema["$defs"].values()]
    assert len(tables) > 10
    for table in tables:
        assert table["description"]
        assert table["additionalProperties"] is False
        for name, key in table["properties"].items():
            table_of_key = schema["$defs"].get(key.get("$ref", "").rpartition("/")[2], {})
            assert key.get("description") or table_of_key.get("description"), f"{table['title']} {name}"
