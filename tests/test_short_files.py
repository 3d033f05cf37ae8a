"""What a kernel file may leave out, and what then stands in its place; one-line arguments."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tuner.cli.main import main
from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.cuda_source.guesses import used_names
from tuner.kernel_files.cuda_source.signatures import global_functions
from tuner.kernel_files.kernel_document import expanded
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.schema import json_schema
from tuner.model.errors import KernelFileError
from tuner.model.plan import Scalar

SOURCE = """
// __global__ void not_this(int block_size_x);
extern "C" __global__ void vector_add(const float* a, const float* b, float* c, int n)
{
    for (int k = 0; k < elements; ++k) {
        const int i = (blockIdx.x * elements + k) * block_size_x + threadIdx.x;
        if (i < n) c[i] = a[i] + b[i];
    }
}
"""
TEXT = """
[kernel]
source = "vector_add.cu"
[problem]
sizes.N = [1048576, 67108864]
reference.c = "a + b"
[arguments]
a = "in float32[N]"
b = "in float32[N]"
c = "out float32[N]"
n = "int32 = N"
[tunables]
block_size_x = [64, 128, 256, 512, 1024]
elements = [1, 2, 4, 8]
[launch]
grid = "ceil_div(N, block_size_x * elements)"
"""


def written(folder: Path, text: str = TEXT, source: str = SOURCE, name: str = "kernel.toml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vector_add.cu").write_text(source)
    (folder / name).write_text(text)
    return folder / name


def read(folder: Path, text: str = TEXT, source: str = SOURCE) -> KernelFile:
    return load_kernel_file(written(folder / "vector_add", text, source))


def options(kernel: KernelFile, **tunables: int | bool | str) -> tuple[str, ...]:
    workload = kernel.workload({name: values[0] for name, values in kernel.sizes.items()})
    configuration = kernel.configuration(workload, {**kernel.default(workload), **tunables})
    return kernel.plan(workload, configuration).stages[0].options


def test_a_vector_addition_takes_fifteen_lines(tmp_path: Path) -> None:
    """The minimal file is checked and tuned on a simulated device, which says what work it assumes."""
    assert len(TEXT.split("\n")) - 2 <= 15
    path = str(written(tmp_path / "vector_add"))
    checked = CliRunner().invoke(main, ["kernels", "check", path, "--arch", "sm_90"])
    assert checked.exit_code == 0, checked.output
    assert "kernel vector-add is well formed" in checked.output
    words = ["run", "vector-add:N=1048576", "--kernel", path, "--device", "sim:h200", "--budget", "2"]
    run = CliRunner().invoke(main, [*words, "--database", str(tmp_path / "runs.db")])
    assert run.exit_code == 0, run.output
    told = " ".join(run.output.split())
    assert "vector-add: its file states no [work]; modelled times are lower bounds" in told
    assert "vector-add: its file states no default; its first configuration stands for it" in told


def test_a_modelled_run_says_that_work_chooses(tmp_path: Path) -> None:
    path = written(tmp_path / "vector_add")
    path.write_text(path.read_text() + '\n[work]\nbytes = "12 * N"\noperations = "N"\n')
    words = ["run", "vector-add:N=1048576", "--kernel", str(path), "--device", "sim:h200", "--budget", "2"]
    run = CliRunner().invoke(main, [*words, "--database", str(tmp_path / "runs.db")])
    assert "vector-add: modelled by the [work] of its file; without it" in " ".join(run.output.split())


def test_what_stands_for_what_is_left_out(tmp_path: Path) -> None:
    """Name, entry, block, macros, work, problem and threshold follow from the rest."""
    kernel = read(tmp_path)
    workload = kernel.workload({"N": 1048576})
    plan = kernel.plan(workload, kernel.default(workload))
    (stage,) = plan.stages
    assert (kernel.name, kernel.problem.name, kernel.min_occupancy) == ("vector-add", "expression", None)
    assert (stage.entry, stage.block, stage.grid) == ("vector_add", (64, 1, 1), (16384, 1, 1))
    assert stage.options == ("-Dblock_size_x=64", "-Delements=1")
    assert stage.arguments == ("a", "b", "c", Scalar("int32", 1048576))
    assert (plan.work.bytes, plan.work.operations, plan.work.assumed) == (12 * 1048576, 0, True)
    assert [(b.name, b.role, b.shape) for b in plan.buffers][2] == ("c", "out", (1048576,))


@pytest.mark.parametrize(
    ("name", "folder", "expected"),
    [("kernel.toml", "Vector_Add", "vector-add"), ("my_sum.toml", "anything", "my-sum")],
)
def test_the_name_is_that_of_folder_or_file(tmp_path: Path, name: str, folder: str, expected: str) -> None:
    """A kernel.toml is called as its folder, another file as itself."""
    assert load_kernel_file(written(tmp_path / folder, name=name)).name == expected


def test_macros_are_for_what_nothing_mentions(tmp_path: Path) -> None:
    """Options and entries keep a name to themselves; so does a source that declares it or lacks it."""
    template = SOURCE.replace('extern "C"', "template <int elements>")
    assert options(read(tmp_path, source=template)) == ("-Dblock_size_x=64",)
    text = TEXT.replace("[problem]", 'options = ["-Delements={elements + 1}"]\n[problem]')
    assert options(read(tmp_path, text)) == ("-Delements=2", "-Dblock_size_x=64")
    flags = TEXT.replace(
        "[launch]", 'flag = [true, false]\nkind = ["float", "double"]\nidle = [1, 2]\n[launch]'
    )
    source = SOURCE.replace("if (i < n)", "if (flag && sizeof(kind) && n < N)")
    assert options(read(tmp_path, flags, source), flag=True)[2:] == (
        "-Dflag=1",
        "-Dkind=float",
        "-DN=1048576",
    )
    declared = SOURCE.replace("int n)", "unsigned int N)").replace("i < n", "i < N")
    assert options(read(tmp_path, source=declared)) == ("-Dblock_size_x=64", "-Delements=1")


def test_functions_of_a_source() -> None:
    """Attributes, template parameters with defaults, comments and strings are told apart from names."""
    text = """
    template <typename T, int P = (1 > 0), Pair<int, int> pair>
    __global__ void __launch_bounds__(max(P, 2)) first(T* x) { text("__global__ void no()"); }
    /* __global__ void no(); */
    extern "C" __launch_bounds__(32, 2) __global__ void second(int* y);
    __global__ void second(int* y) {}
    """
    found = {one.name: [parameter.name for parameter in one.template] for one in global_functions(text)}
    assert found == {"first": ["T", "P", "pair"], "second": []}
    assert global_functions("__global__ lost") == []
    assert used_names("int a; f(b, float* c, unsigned int d) // e\n") == {
        "int",
        "f",
        "b",
        "float",
        "unsigned",
    }
    assert used_names("__global__ void k(int n) { n + L + b; }", among=("L", "k", "n", "N")) == {"L"}
    assert used_names("int a;", among=()) == frozenset()
    templates = "template <Kind K, Kind W = max(1, 2)> __device__ int f() { return K + L; }"
    assert used_names(templates, among=("K", "W", "L")) == {"L"}
    assert used_names("N + M;", "int N;", among=("N", "M")) == {"M"}  # a header declares N
    assert used_names("K void N(int);", "#define K __global__", among=("N",)) == frozenset()


def test_templates_are_filled_in_by_name(tmp_path: Path) -> None:
    """A template whose parameters are sizes, tunables or derived names needs no entry."""
    source = SOURCE.replace('extern "C"', "template <int elements, int N = 3>")
    kernel = read(tmp_path, source=source)
    workload = kernel.workload({"N": 1048576})
    assert kernel.plan(workload, kernel.default(workload)).stages[0].entry == "vector_add<1, 1048576>"


ARGUMENTS = [
    ("in float32[N]", {"dtype": "float32", "shape": ["N"], "role": "in"}),
    ("zeroed int32[max(N, 2), 16]", {"dtype": "int32", "shape": ["max(N, 2)", "16"], "role": "zeroed"}),
    ("in {dtype} [N]", {"dtype": "{dtype}", "shape": ["N"], "role": "in"}),
    (
        "in int32[N+1] = csr_offsets(8 * N)",
        {"dtype": "int32", "shape": ["N+1"], "role": "in", "input": "csr_offsets(8 * N)"},
    ),
]


@pytest.mark.parametrize(("text", "expected"), ARGUMENTS)
def test_one_line_arrays(text: str, expected: dict[str, object]) -> None:
    """A line holds what a table of [[argument]] holds."""
    assert expanded({"a": text}) == [{"buffer": "a", **expected}]


def test_one_line_values() -> None:
    """A value is a type and an expression; the comparison in it is part of it."""
    assert expanded({"n": "int32 = N", "f": "bool=N == 2"}) == [
        {"scalar": "n", "dtype": "int32", "value": "N"},
        {"scalar": "f", "dtype": "bool", "value": "N == 2"},
    ]


def test_structs_and_values_in_references(tmp_path: Path) -> None:
    """A table of fields is a struct; a reference may name a value, and a function of its name stays one."""
    fields = {"dt": "float32 = 0.5", "n": "int32 = N"}
    assert expanded({"p": fields}) == [{"scalar": "p", "fields": fields}]
    text = TEXT.replace('n = "int32 = N"', 'n = "int32 = N"\nalpha = "float32 = N + 1"\nabs = "float32 = 2"')
    kernel = read(
        tmp_path,
        text.replace('"a + b"', '"alpha * abs(a) + b"'),
        SOURCE.replace("int n)", "int n, float alpha, float abs)"),
    )
    assert kernel.problem.reference == (("c", "(N + 1) * abs(a) + b"),)


MISTAKES = [
    ('a = "in float32[N]"', "a = 3", "[arguments] a: must be text; write an array as"),
    ('a = "in float32[N]"', 'a = "float32[N]"', "[arguments] a: an array begins with one of in, out, inout"),
    ('a = "in float32[N]"', 'a = "inn float32[N]"', "not with 'inn'; did you mean 'in'?"),
    (
        'a = "in float32[N]"',
        'a = "in float32"',
        "[arguments] a: 'in float32' is no value; an array has a shape",
    ),
    ('a = "in float32[N]"', 'a = "in float32[N"', "[arguments] a: 'in float32[N': the bracket of the shape"),
    ('a = "in float32[N]"', 'a = "in float32[]"', "[arguments] a: 'in float32[]': an axis is empty"),
    ('a = "in float32[N]"', 'a = "in float32[N] 3"', "[arguments] a: '3' follows the shape"),
    ('a = "in float32[N]"', 'a = ""', "[arguments] a: '' is neither an array nor a value"),
    ('a = "in float32[N]"', 'a = "in float31[N]"', "[arguments] a: 'float31' is not one of bool"),
    ('a = "in float32[N]"', 'a = "in float32[M]"', "[arguments] a: expression 'M': unknown name 'M'"),
    ('n = "int32 = N"', 'n = "int33 = N"', "[arguments] n: 'int33' is not one of bool"),
    ('n = "int32 = N"', 'n = "int32 ="', "[arguments] n: 'int32 =' is no value"),
    ('n = "int32 = N"', 'n = "int32 = M"', "[arguments] n: expression 'M': unknown name 'M'"),
    ('c = "out float32[N]"', 'c = "in float32[N]"', '[arguments]: no buffer has role "out"'),
    ("[arguments]", '[[argument]]\nscalar = "z"\n[arguments]', "[arguments]: stands instead of [[argument]]"),
    (
        "block_size_x = [",
        "block_size_y = [",
        "[launch] block: is needed, unless a tunable is called block_size_x",
    ),
    (
        'source = "vector_add.cu"',
        'source = "vector_add.cu"\nentry = "k<{M}>"',
        "[kernel] entry: expression 'M': unknown name",
    ),
]


@pytest.mark.parametrize(("old", "new", "message"), MISTAKES)
def test_mistakes_name_the_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    """Every mistake names table and argument as the file has them."""
    with pytest.raises(KernelFileError) as error:
        read(tmp_path, TEXT.replace(old, new))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("int x;", "[kernel] entry: is needed, as vector_add.cu has no __global__ function"),
        (SOURCE + "__global__ void other() {}", "has 2 __global__ functions: vector_add, other"),
        (
            SOURCE.replace('extern "C"', "template <int Q>"),
            "Q, a template parameter of vector_add, is no size",
        ),
    ],
)
def test_entries_that_cannot_be_told(tmp_path: Path, source: str, message: str) -> None:
    """An entry is needed where the source does not settle it."""
    with pytest.raises(KernelFileError) as error:
        read(tmp_path, source=source)
    assert message in str(error.value)


def test_a_folder_that_is_no_name(tmp_path: Path) -> None:
    """A name is needed where folder or file have none that a command line could hold."""
    with pytest.raises(
        KernelFileError, match=r"\[kernel\] name: is needed, as 'my sum' is no name of a kernel"
    ):
        load_kernel_file(written(tmp_path / "my sum"))


def test_the_schema_knows_one_line_arguments() -> None:
    """Editors complete [arguments]; nothing but the source has to be there."""
    schema = json_schema()
    (line,) = schema["properties"]["arguments"]["patternProperties"].values()
    assert {"type": "string"} in line["anyOf"]
    assert schema["required"] == ["kernel"]
