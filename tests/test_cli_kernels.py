"""``tuner kernels``: what it prints, what it writes, and how it fails."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tuner.cli.main import main
from tuner.kernel_files.build_record import kernel_record
from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.schema import json_schema
from tuner.model.plan import Workload

TEXT = """
[kernel]
name = "my-rows"
description = "Sums of [all] rows"
family = "sums"
source = "rows.cu"
entry = "rows<{N}, {P}>"
[problem]
batch = "1024 // N"
[problem.sizes]
N = [64, 128]
[[argument]]
buffer = "x"
dtype = "float32"
shape = ["batch", "N"]
role = "inout"
[tunables]
P = [2, 4]
L = [32, 64, 128]
shuffle = [true, false]
[roles]
elements_per_thread = "P"
[constraints]
rules = ["P * L <= 2 * N"]
[default]
P = 2
L = "N // 2"
shuffle = true
[launch]
grid = "batch"
block = "L"
[work]
bytes = "N"
operations = "N"
[occupancy]
min = 0.5
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kernel file, in a home without other kernel files."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "rows.cu").write_text("// rows\n")
    path = tmp_path / "rows.toml"
    path.write_text(TEXT)
    return path


@pytest.fixture
def _no_shipped_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty catalogue: to list the shipped one counts thousands of configurations."""
    monkeypatch.setattr("tuner.kernel_files.catalog.kernels_root", lambda: tmp_path / "shipped")


@pytest.fixture
def _two_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first and the last size of a kernel: to count at all of 500 sizes takes seconds."""
    workloads = KernelFile.workloads

    def ends(kernel: KernelFile) -> list[Workload]:
        return workloads(kernel)[:: max(1, len(workloads(kernel)) - 1)]

    monkeypatch.setattr(KernelFile, "workloads", ends)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["kernels", *map(str, arguments)])


def document(*arguments: str | Path) -> Any:
    """What a command writes with ``--json -``, which must be all there is on standard output."""
    result = run(*arguments, "--json", "-")
    assert result.exit_code == 0
    return json.loads(result.stdout)


@pytest.mark.usefixtures("_two_sizes")
def test_list_shows_every_kernel(file: Path) -> None:
    """The list has a line per kernel with family, sizes, tunables, number of configurations and origin."""
    result = run("list", "--kernel", file)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    for kernel in ("scan-lf", "tridiag-wm", "fft", "fft-large"):
        assert [line for line in lines if f" {kernel} " in f" {line} "], kernel
    (line,) = [line for line in lines if "my-rows" in line]
    for word in ("sums", "N=64..128", "P L shuffle", "6..10", "file"):
        assert word in line


@pytest.mark.usefixtures("_no_shipped_kernels")
def test_list_as_a_document(file: Path) -> None:
    """The document has the configurations of each size, and the values of each tunable."""
    rows = {row["name"]: row for row in document("list", "--kernel", file)["kernels"]}
    assert [size["configurations"] for size in rows["my-rows"]["workloads"]] == [6, 10]
    assert rows["my-rows"]["tunables"]["shuffle"] == [True, False]


@pytest.mark.usefixtures("_no_shipped_kernels")
def test_ranges_and_optional_sizes_are_shown(file: Path) -> None:
    """A range is shown by its ends, in brackets what may be left out; the document has what the file says."""
    sizes = 'N = { from = 65, to = 129 }\nform = ["up", "down"]'
    file.write_text(
        TEXT.replace("N = [64, 128]", sizes).replace("[problem]", '[problem]\noptional = ["form"]')
    )
    for command in (["list"], ["show", "my-rows"]):
        assert "N=65…129 [form=up|down]" in " ".join(run(*command, "--kernel", file).stdout.split())

    shown = document("show", "my-rows", "--kernel", file)
    assert shown["sizes"] == {"N": {"from": 65, "to": 129}, "form": ["up", "down"]}
    assert shown["optional"] == ["form"]
    assert [row["workload"] for row in shown["workloads"]] == [
        *("my-rows:N=65", "my-rows:N=65,form=down", "my-rows:N=128", "my-rows:N=128,form=down"),
        *("my-rows:N=129", "my-rows:N=129,form=down"),
    ]


def test_zeroed_arrays_need_not_hold_the_batch(file: Path) -> None:
    """Arrays that nobody judges may have any shape."""
    flags = '[[argument]]\nbuffer = "flags"\ndtype = "uint32"\nshape = [1, 1]\nrole = "zeroed"\n[tunables]'
    file.write_text(SAXPY.replace("[tunables]", flags))
    assert run("check", file, "--no-compile").exit_code == 0


@pytest.mark.usefixtures("_no_shipped_kernels")
def test_list_reports_broken_files_aside(file: Path, tmp_path: Path) -> None:
    """A broken file of the user's folder is a warning on standard error, and in the document."""
    folder = tmp_path / "config" / "tuner" / "kernels.d"
    folder.mkdir(parents=True)
    (folder / "bad.toml").write_text("[kernel\n")
    result = run("list", "--kernel", file)
    assert result.exit_code == 0
    assert "my-rows" in result.stdout
    assert "bad.toml: not valid TOML" in result.stderr
    assert "bad.toml" in document("list")["broken"][0]


@pytest.mark.usefixtures("_no_shipped_kernels")
def test_list_goes_on_where_rules_leave_nothing(file: Path) -> None:
    """A kernel whose rules allow nothing at a size is listed with zero configurations and the reason."""
    file.write_text(TEXT.replace("P * L <= 2 * N", "P * L < N"))
    (row,) = [r for r in document("list", "--kernel", file)["kernels"] if r["name"] == "my-rows"]
    assert [size["configurations"] for size in row["workloads"]] == [0, 2]
    assert "'P * L < N' removes the last configuration" in row["workloads"][0]["note"]


def test_show_tells_everything(file: Path) -> None:
    """One kernel is shown with values, roles, rules, and per size its configurations and default."""
    result = run("show", "my-rows", "--kernel", file)
    assert result.exit_code == 0
    for text in (
        "Sums of [all] rows",
        "2 4   (elements_per_thread)",
        "true false",
        "P * L <= 2 * N",
        "at least 50%",
        "P=2 L=64 shuffle=true",
    ):
        assert text in result.stdout

    shown = document("show", "my-rows", "--kernel", file)
    assert shown["workloads"][1] == {
        "workload": "my-rows:N=128",
        "batch": 8,
        "configurations": 10,
        "note": "",
        "default": {"P": 2, "L": 64, "shuffle": True},
    }
    assert shown["roles"] == {"elements_per_thread": "P"}


def test_check_evaluates_every_plan(file: Path, tmp_path: Path) -> None:
    """A good file is reported size by size; the same facts go to the JSON file."""
    target = tmp_path / "facts.json"
    result = run("check", file, "--no-compile", "--json", target)
    assert result.exit_code == 0
    assert "kernel my-rows is well formed" in result.stdout
    rows = json.loads(target.read_text())["workloads"]
    assert [(row["configurations"], row["product"]) for row in rows] == [(6, 12), (10, 12)]
    assert rows[0]["threads_per_block"] == [32, 64]
    assert rows[0]["launches"] == [1]
    assert rows[0]["analytical"] == []


WRONG_SECOND = """[[analytical]]
P = 2
L = "N // 2"
shuffle = true
[[analytical]]
P = 2
L = 128
shuffle = true
[launch]"""


@pytest.mark.parametrize(
    ("old", "new", "trouble"),
    [
        ('block = "L"', 'blocks = "L"', "[launch] blocks: unknown key; did you mean 'block'?"),
        ('block = "L"', 'block = "L // 128"', "[launch] block: 'L // 128' is 0"),
        ("P * L <= 2 * N", "P * L < N", "my-rows:N=64: the rule 'P * L < N' removes"),
        ('L = "N // 2"', "L = 128", "[default]: P=2 L=128 shuffle=1 breaks the rule"),
        ("[launch]", WRONG_SECOND, "[[analytical]] #2: P=2 L=128 shuffle=1 breaks the rule"),
    ],
)
def test_check_of_a_wrong_file_is_an_input_error(file: Path, old: str, new: str, trouble: str) -> None:
    """Anything wrong in any configuration ends with exit code 2 and its place."""
    file.write_text(TEXT.replace(old, new))
    result = run("check", file, "--no-compile")
    assert result.exit_code == 2
    assert trouble in result.stderr


SAXPY = (
    TEXT.replace('role = "inout"', 'role = "in"')
    .replace("[problem]", '[problem]\nname = "expression"')
    .replace(
        "[tunables]",
        '[[argument]]\nbuffer = "y"\ndtype = "float32"\nshape = ["batch", "N"]\nrole = "inout"\n[tunables]',
    )
    .replace("[launch]", '[problem.reference]\ny = "2 * x + y"\n[launch]')
)


def test_check_of_a_problem_that_fits(file: Path) -> None:
    """A file whose buffers are those of its problem passes."""
    file.write_text(SAXPY)
    result = run("check", file, "--no-compile")
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize(
    ("old", "new", "trouble"),
    [
        (
            '[problem.reference]\ny = "2 * x + y"\n',
            "",
            "[problem] name = 'tridiagonal' needs four real inputs",
        ),
        (
            'shape = ["batch", "N"]\nrole = "in"\n',
            'shape = ["2", "N"]\nrole = "in"\n',
            "[problem.reference] y: 'x' of shape [2, 64] cannot be taken element by element with 'y'",
        ),
        (
            '["batch", "N"]',
            '["N // 64", "N"]',
            "[[argument]] buffer = 'x': shape [1, 64] holds 1 problems and [problem] batch is 16",
        ),
    ],
)
def test_check_of_a_problem_that_does_not_fit(file: Path, old: str, new: str, trouble: str) -> None:
    """Buffers that are not those of the declared problem are refused, with file, key and what it needs."""
    text = SAXPY.replace(old, new)
    file.write_text(text if new else text.replace('"expression"', '"tridiagonal"'))
    result = run("check", file, "--no-compile")
    assert result.exit_code == 2
    assert f"Error: {file}: {trouble}" in result.stderr


@pytest.mark.parametrize(
    ("problem", "size", "words"),
    [
        ("scan", 'form = ["inclusive", "upwards"]', "form: 'upwards' is neither 'inclusive' nor 'exclusive'"),
        ("fft", 'direction = ["back"]', "direction: 'back' is neither 'forward' nor 'inverse'"),
    ],
)
def test_check_of_words_the_problem_does_not_know(file: Path, problem: str, size: str, words: str) -> None:
    """A size that decides what is computed has no other values than the problem knows."""
    text = TEXT.replace("[problem]", f'[problem]\nname = "{problem}"').replace("N = [64", f"{size}\nN = [64")
    file.write_text(text.replace("float32", "complex64") if problem == "fft" else text)
    result = run("check", file, "--no-compile")
    assert result.exit_code == 2
    assert f"Error: {file}: [problem.sizes] {words}" in result.stderr


ROWS = """
[kernel]
source = "rows.cu"
[problem.sizes]
N = [64]
M = [100]
[tunables]
B = [32, 64]
[arguments]
x = "in float32[N, M]"
y = "out float32[N, M]"
[launch]
grid = "N"
block = "B"
"""
SUMS = ROWS.replace('[N, M]"\n[launch]', '[N]"\n[launch]')
SQUARE = ROWS.replace("[100]", "[64]")
LARGE = ROWS.replace("[64]\nM = [100]", "[65536]\nM = [1048576]")
DOUBTFUL = ROWS.replace("[64]\nM = [100]", "[4096]\nM = [5000]")
KERNEL = "__global__ void f(const float* x, float* y) { y[B] = x[0]; }"
LISTED, OTHER = "(at rows:N=64,M=100)", "which the file does not list)"
FUNCTIONS = """
def right(x): return x + 1
def needy(x, w): return x
def leaves(x): raise SystemExit(3)
def dies(x): import os; os._exit(4)
def narrow(x, N): return x[:, :3]
def law(x, y): return 0.0
"""
SOFTMAX = (
    "exp(x - max(x, axis=1, keepdims=true)) / sum(exp(x - max(x, axis=1, keepdims=true)), 1, keepdims=true)"
)
SHAPES = "shapes do not fit: x has [64, 100], and sum(x, axis=1) has [64]; keepdims=true keeps an axis"


@pytest.mark.parametrize(
    ("text", "stated", "level", "words"),
    [
        (ROWS, ("y", "x / sum(x, axis=1)"), "Error", f"{SHAPES}|{LISTED}"),
        (ROWS, ("y", "log(x - 2 + 0 * sum(x))"), "Error", f"the result is not finite|{LISTED}"),
        (ROWS, ("y", SOFTMAX), "", ""),
        (ROWS, ("y", "x > 0 ? x : 0"), "Error", "select(a, b, c) stands for a ? b : c"),
        (
            SQUARE,
            ("y", "x / sum(x, axis=1)"),
            "Warning",
            f"x has [64, 128], and sum(x, axis=1) has [64]|{OTHER}",
        ),
        (LARGE, ("y", "x / sum(x, axis=1)"), "Warning", f"shapes do not fit|{OTHER}"),
        (LARGE, ("y", SOFTMAX), "", ""),
        (DOUBTFUL, ("y", "x / sum(x, axis=1)"), "Error", "x has [4096, 5000]|(at rows:N=4096,M=5000)"),
        (SUMS, ("y", "sum(x, axis=0)"), "Error", "the result has shape [100], and y has [64]"),
        (ROWS, ("reference_function", "r.py:right"), "", ""),
        (ROWS, ("reference_function", "r.py:nothere"), "Error", "r.py: has no function 'nothere'"),
        (ROWS, ("reference_function", "broken.py:f"), "Error", "broken.py: cannot be imported: SyntaxError"),
        (ROWS, ("reference_function", "missing.py:f"), "Error", "missing.py: cannot be read: No such file"),
        (
            ROWS,
            ("reference_function", "asks.py:f"),
            "Warning",
            "ModuleNotFoundError: No module named 'no_such'",
        ),
        (ROWS, ("reference_function", "r.py:leaves"), "Error", "raised SystemExit: 3 (line 4)"),
        (ROWS, ("reference_function", "r.py:dies"), "Error", f"the reference: the child process|{LISTED}"),
        (
            ROWS,
            ("reference_function", "r.py:narrow"),
            "Error",
            "the result has shape [64, 3], and y has [64, 100]",
        ),
        (ROWS, ("law", "r.py:law"), "", ""),
        (ROWS, ("law", "r.py:needy"), "Error", "takes 'w', which is none of what it is called"),
    ],
)
def test_check_tries_the_reference(
    file: Path, text: str, stated: tuple[str, str], level: str, words: str
) -> None:
    """It makes a right answer for a small problem, or is told of with the shapes that do not fit."""
    key, value = stated
    table = f"[problem.reference]\ny = {value!r}\n" if key == "y" else f"[problem]\n{key} = {value!r}\n"
    file.write_text(text + table + ("tolerance = 0.001\n" if key == "law" else ""))
    files = {"r.py": FUNCTIONS, "broken.py": "def f(x:\n", "asks.py": "import no_such\n", "rows.cu": KERNEL}
    for name, code in files.items():
        file.with_name(name).write_text(code)
    result = run("check", file, "--no-compile")
    assert result.exit_code == (2 if level == "Error" else 0), result.stderr
    told = [line for line in result.stderr.splitlines() if "nothing uses it" not in line]
    assert bool(told) == bool(level), told
    assert not level or told[0].startswith(f"{level}: {file}: ")
    assert all(part in result.stderr for part in words.split("|"))


@pytest.mark.parametrize(
    ("body", "output", "words"),
    [
        (
            "atomicAdd(&y[x[0]], B);",
            "out int32[16]",
            "y has the role out, and f of rows.cu, line 2, changes what is in it",
        ),
        ("atomicMax(y + 3, B);", "out int32[16]", "by an atomic operation; '= constant(0)' behind its shape"),
        ("atomicAdd(&y[x[0]], B);", "out int32[16] = constant(0)", ""),
        ("atomicAdd(&y[x[0]], B);", "inout int32[16]", ""),
        ("y[B] = x[0]; atomicExch(&y[2], 1);", "out int32[16]", ""),
        ("y[B] = 1;", "out int32[16] = constant(1)", "out takes constant(0): zeros before every run"),
        ("y[B] = 1;", "out int32[16] = uniform(0, 1)", "only in and inout are given values; out takes"),
    ],
)
def test_check_of_outputs_that_begin_with_zeros(file: Path, body: str, output: str, words: str) -> None:
    """What atomic operations add to is set to zero by the kernel file, or told of."""
    file.write_text(ROWS.replace("in float32[N, M]", "in int32[N]").replace("out float32[N, M]", output))
    file.with_name("rows.cu").write_text(f"\n__global__ void f(const int* x, int* y) {{ {body} }}\n")
    result = run("check", file, "--no-compile")
    assert words in result.stderr
    assert bool(words) == ("role" in result.stderr)


@pytest.mark.parametrize("key", ["row_pitch = true", 'in_place = "x"'])
def test_outputs_whose_memory_is_of_others_are_not_set_to_zero(file: Path, key: str) -> None:
    """Zeros would be written into what lies between rows, or into the input."""
    arrays = 'dtype = "float32"\nshape = ["batch", "N"]\n'
    tables = f"""[[argument]]\nbuffer = "x"\n{arrays}role = "in"
[[argument]]\nbuffer = "y"\n{arrays}role = "out"\ninput = "constant(0)"\n{key}\n[launch]"""
    text = ROWS.partition("[arguments]")
    file.write_text(text[0] + tables + text[2].partition("[launch]")[2])
    file.with_name("rows.cu").write_text(KERNEL)
    result = run("check", file, "--no-compile")
    assert result.exit_code == 2
    assert "is not set to zero" in result.stderr


@pytest.mark.parametrize(
    ("before", "words"),
    [
        (
            "__device__ int twice() { return 2 * B; }",
            'identifier "B" is undefined; B is a template parameter of f',
        ),
        (
            "#if B > 4\n#endif",
            "B: #if of rows.cu, line 1, takes it for 0, as it is a template parameter and no macro",
        ),
        ("#if defined(B) || __CUDA_ARCH__ > 700\n#endif", ""),
    ],
)
def test_check_of_tunables_that_are_template_parameters(file: Path, before: str, words: str) -> None:
    """They are no macros, which other functions and conditions of the source may take them for."""
    file.write_text(ROWS)
    file.with_name("rows.cu").write_text(f"{before}\ntemplate <int B> {KERNEL}\n")
    result = run("check", file, "--arch", "sm_90")
    assert words in result.stderr
    assert bool(words) == ("template" in result.stderr)


def test_schema_goes_to_standard_output_or_a_file(tmp_path: Path) -> None:
    """The JSON Schema is written whole to the place asked for."""
    target = tmp_path / "schema.json"
    assert json.loads(run("schema").stdout) == json_schema()
    assert run("schema", target).exit_code == 0
    assert json.loads(target.read_text()) == json_schema()


def called(*words: str | Path) -> str:
    told = CliRunner().invoke(main, [*map(str, words)], catch_exceptions=False)
    assert told.exit_code == 0, told.stderr
    return told.stdout


def test_an_added_file_is_known_by_name(file: Path, tmp_path: Path) -> None:
    """Every command reads it where it stands, changes included, until it is removed."""
    refused = ("kernels", "show", "my-rows")
    assert CliRunner().invoke(main, refused).exit_code == 2
    assert "`tuner kernels remove my-rows` undoes it" in called("kernels", "add", file)
    assert "added" in called("kernels", "list").partition("my-rows")[2].partition("\n")[0]
    assert "64..128" in called("kernels", "show", "my-rows") + called("kernels", "list")
    assert called("kernels", "add", "--list") == f"my-rows: {file}\n"

    file.write_text(TEXT.replace('"my-rows"', '"other"'))
    assert "its kernel is called other now" in called("kernels", "add", "--list")
    assert "other" in called("kernels", "show", "other")
    file.write_text("[kernel]")
    assert f"my-rows: {file} (" in called("kernels", "add", "--list")
    file.unlink()
    assert called("kernels", "add", "--list") == f"my-rows: {file} (gone)\n"
    assert "scan-lf" in called("kernels", "list")

    assert "stays as it is" in called("kernels", "remove", "my-rows")
    assert called("kernels", "add", "--list") == ""
    assert list((tmp_path / "config/tuner/kernels.d").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add",), "Missing argument 'FILE'"),
        (("add", "none.toml"), "none.toml: cannot be read"),
        (("add", "--list", "some.toml"), "--list: adds nothing; leave some.toml out"),
        (("remove", "my-row"), "my-row: was not added to"),
        (("remove", "../x"), "../x: was not added to"),
    ],
)
def test_what_cannot_be_added_or_removed_is_told(file: Path, words: tuple[str, ...], said: str) -> None:
    """The message says what is wrong, and nothing is written."""
    told = CliRunner().invoke(main, ["kernels", *words])
    assert (told.exit_code, said in told.stderr) == (2, True), told.stderr
    assert not (file.parent / "config").exists()


def test_a_run_ends_where_its_working_directory_is_gone(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is removed while a run measures costs it nothing; its kernel file is kept."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    record = kernel_record(load_kernel_file(file.absolute()))
    assert record is not None
    assert record["path"] == str(file)


@pytest.mark.usefixtures("file")
def test_a_kernel_is_found_again_after_its_run(tmp_path: Path) -> None:
    """By the path that the run keeps; unknown, changed and gone are told where they are true."""
    path, database = tmp_path / "scale.toml", ("--database", tmp_path / "runs.db")
    (tmp_path / "scale.cu").write_text(
        'extern "C" __global__ void scale(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= L; }'
    )
    lines = ["[kernel]", 'source = "scale.cu"', "[problem]", "sizes.N = [64]", "[arguments]"]
    lines += ['x = "inout float32[N]"', 'n = "int32 = N"', "[tunables]", "L = [32, 64]", "[launch]"]
    path.write_text("\n".join([*lines, "grid = 1", 'block = "L"']))
    where = (*database, "--device", "sim:h200", "--objective", "time")
    made = json.loads(called("run", "--kernel", path, *where, "--json", "-"))
    kept = made["workloads"][0]["kernel_file"]
    assert (kept["path"], set(kept["files"])) == (str(path), {"scale.toml", "scale.cu"})
    assert kept["files"]["scale.toml"] == path.read_text()

    own = [line.replace("sizes.N = [64]", "sizes.N = [64, 32]") for line in lines]
    (tmp_path / "two.toml").write_text("\n".join([*own, "grid = 1", 'block = "L"']))
    first = CliRunner().invoke(main, ["run", str(tmp_path / "two.toml"), "--device", "sim:h200"])
    assert "two:N=64: the first of 2 sizes; --all-sizes tunes each" in first.stderr
    twice = ("two", "two", "--kernel", tmp_path / "two.toml")
    each = called("run", *twice, "--all-sizes", "--device", "sim:h200")
    assert [each.count(f"two:N={size} ·") for size in (64, 32)] == [1, 1]
    sweep = '[sweep]\nkernel_files = ["two.toml"]\n[[group]]\nname = "a"\nkernels = ["two"]\n'
    (tmp_path / "sweep.toml").write_text(sweep)
    listed = called("sweep", tmp_path / "sweep.toml", "--dry-run").splitlines()
    assert listed == ["a: two:N=64 time", "a: two:N=32 time", "2 jobs"]

    ask = ("best", "scale", *where)
    assert "stale" not in called(*ask)
    page = re.sub("<[^>]*>", "", called("report", "1", *database, "--output", "-"))
    assert f"tuner run scale:N=64 --kernel {path} --device sim:h200" in page
    recorded = ("db", "export", "--run", "1", *database, "--output", tmp_path / "run.zip")
    assert "without launches" not in called(*recorded)

    path.write_text(path.read_text() + "\n")
    assert "stale: the source of scale has changed" in called(*ask)
    assert f"its kernel has changed since ({path})" in called(*recorded)
    path.unlink()
    assert f"the file of run 1, {path}, is gone" in called(*recorded)
    told = CliRunner().invoke(main, [*map(str, ask)])
    assert told.exit_code == 2
    assert f"scale is unknown here: the file of run 1, {path}, is gone" in told.stderr
    assert "L=" in called("export", "1", *database) + called("show", "1", *database)
