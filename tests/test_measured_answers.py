"""Answers of a kernel file that were measured at some sizes, which stand in a file beside it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.devices.choice import open_device
from tuner.kernel_files.catalog import Catalog, kernel_of, load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile, with_places
from tuner.model.errors import KernelFileError
from tuner.model.plan import STREAM_PRIORITY, Source
from tuner.search.candidates import prepare
from tuner.system.untrusted.reading import load_toml

KERNEL = """
[kernel]
name = "rows"
source = "rows.cu"
entry = "rows"
[problem]
name = "unchecked"
batch = "256"
[problem.sizes]
N = { from = 2, to = 4096 }
dtype = ["float32", "float64"]
[arguments]
x = "inout {dtype}[batch, N]"
[tunables]
L = [32, 64, 128]
fast = [true, false]
K = { values = [1, 2], when = "fast" }
[derived]
total = "N * batch"
[constraints]
rules = ["L <= N"]
[analytical]
L = 32
fast = false
[measured]
file = "best.csv"
when = "total >= 2**10"
[launch]
grid = "batch"
block = "L"
"""
ROWS = """N,dtype,L,fast,K
100,float32,64,true,2
100,float32,32,false,
100,float64,32,true,1
"""

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes the kernel beside its source, and a file of answers."""
    (tmp_path / "rows.cu").write_text('extern "C" __global__ void rows(float* x) {}\n')
    (tmp_path / "kernel.toml").write_text(KERNEL)

    def written(rows: str) -> Path:
        (tmp_path / "best.csv").write_text(rows)
        return tmp_path / "kernel.toml"

    return written


def answers(kernel: KernelFile, batch: int, **sizes: int | str) -> list[str]:
    return [str(one) for one in kernel.stated_answers(kernel.workload(sizes, batch), "")]


def test_rows_come_before_the_table(write: Write) -> None:
    """At their sizes, where the condition holds, rows are the first answers, in their order, each once."""
    kernel = load_kernel_file(write(ROWS))
    assert answers(kernel, 16, N=100, dtype="float32") == ["L=64 fast=1 K=2", "L=32 fast=0"]
    assert answers(kernel, 16, N=100, dtype="float64") == ["L=32 fast=1 K=1", "L=32 fast=0"]
    assert answers(kernel, 2, N=100, dtype="float32") == ["L=32 fast=0"]
    assert answers(kernel, 16, N=101, dtype="float32") == ["L=32 fast=0"]


FOR_GPUS = """N,dtype,gpu,L,fast,K
100,float32,,64,true,2
100,float32,H100,32,true,1
100,float32,T4,64,false,
100,float32,H100,64,true,1
100,float32,,32,false,
"""


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", ["L=32 fast=1 K=1", "L=64 fast=1 K=1", "L=64 fast=1 K=2", "L=32 fast=0"]),
        ("Tesla T4", ["L=64 fast=0", "L=64 fast=1 K=2", "L=32 fast=0"]),
        (
            "nvidia h100 80gb hbm3 mig 1g.10gb",
            ["L=32 fast=1 K=1", "L=64 fast=1 K=1", "L=64 fast=1 K=2", "L=32 fast=0"],
        ),
        ("NVIDIA GH100", ["L=64 fast=1 K=2", "L=32 fast=0"]),
        ("", ["L=64 fast=1 K=2", "L=32 fast=0"]),
        (None, ["L=64 fast=1 K=2", "L=32 fast=1 K=1", "L=64 fast=0", "L=64 fast=1 K=1", "L=32 fast=0"]),
    ],
)
def test_rows_for_a_gpu_come_first(write: Write, gpu: str | None, expected: list[str]) -> None:
    """A word of the product name picks rows, which come before those for any; other GPUs' do not count."""
    kernel = load_kernel_file(write(FOR_GPUS))
    workload = kernel.workload({"N": 100, "dtype": "float32"}, 16)
    assert [str(one) for one in kernel.stated_answers(workload, gpu)] == expected


def test_a_tunable_that_is_called_gpu(write: Write) -> None:
    """Its column has its values, and every row is for any GPU."""
    path = write(ROWS.replace("K", "gpu"))
    path.write_text(KERNEL.replace("K = {", "gpu = {"))
    kernel = load_kernel_file(path)
    assert answers(kernel, 16, N=100, dtype="float32") == ["L=64 fast=1 gpu=2", "L=32 fast=0"]


@pytest.mark.parametrize(
    ("spec", "expected"), [("sim:h100", "L=32 fast=1 K=1"), ("sim:h200", "L=64 fast=1 K=2")]
)
def test_a_device_takes_the_rows_of_its_name(write: Write, spec: str, expected: str) -> None:
    """What is prepared for a device states the answer for it first."""
    kernel = load_kernel_file(write(FOR_GPUS))
    workload = kernel.workload({"N": 100, "dtype": "float32"}, 16)
    device = open_device(spec).device
    (found,) = prepare([(kernel, workload)], device)
    assert str(found.stated[0]) == expected


def test_how_a_file_may_be_written(write: Write) -> None:
    """A byte order mark, other line ends, blank lines, quotes and blanks around words change nothing."""
    given = answers(load_kernel_file(write(ROWS)), 16, N=100, dtype="float32")
    odd = "\ufeff" + ROWS.replace("\n", "\r\n").replace("100,float32,64", '\r\n 100 ,"float32", 64') + "\r\n"
    assert answers(load_kernel_file(write(odd)), 16, N=100, dtype="float32") == given


def test_a_kernel_that_is_no_file_has_no_file_beside_it() -> None:
    """A document with sources of its own cannot name answers."""
    source = Source("rows.cu", 'extern "C" __global__ void rows(float* x) {}')
    with pytest.raises(KernelFileError, match="this kernel is no file"):
        kernel_of(load_toml(KERNEL), {"rows.cu": source}, label="rows")


def test_rows_have_the_lowest_stream_priority(write: Write) -> None:
    """A tunable that no file has of its own does not make rows incomplete."""
    kernel = with_places(load_kernel_file(write(ROWS)), {STREAM_PRIORITY: (0, 1)})
    found = kernel.stated_answers(kernel.workload({"N": 100, "dtype": "float32"}, 16), "")
    assert [one[STREAM_PRIORITY] for one in found] == [0, 0]


def test_other_rows_are_another_fingerprint(write: Write) -> None:
    """Answers that were chosen by a file are bound to it."""
    first = load_kernel_file(write(ROWS)).fingerprint
    assert load_kernel_file(write(ROWS.replace("64,true,2", "64,true,1"))).fingerprint != first
    assert load_kernel_file(write(ROWS)).fingerprint == first


@pytest.mark.parametrize(
    ("old", "new", "trouble"),
    [
        ("N,dtype", "N,dtipe", "line 1: the column 'dtipe' is neither a size nor a tunable nor gpu"),
        ("N,dtype", "N,N", "line 1: the column 'N' stands twice"),
        ("64,true,2", "65,true,2", "line 2: L is '65'; choose from 32, 64, 128"),
        ("64,true,2", "64,1,2", "line 2: fast is '1'; choose from true, false"),
        ("64,true,2", "64,true", "line 2: has 4 values; the columns are N, dtype, L, fast, K"),
        ("100,float64", "1,float64", "line 4: N is '1', which is no size of the kernel"),
        ("100,float64", "100,double", "line 4: dtype is 'double', which is no size of the kernel"),
        (
            ROWS,
            "N,gpu,L\n100,H 100,64\n",
            "line 2: gpu is 'H 100'; write a word of the product name with a number, as H100",
        ),
        (ROWS, "N,gpu,L\n100,NVIDIA,64\n", "line 2: gpu is 'NVIDIA'"),
        (ROWS, "N,dtype\n", "line 1: no column is a tunable; the tunables are L, fast, K"),
        (ROWS, "L,fast\n", "line 1: no column is a size; the sizes are N, dtype"),
        (ROWS, "N,L\n", "line 1: holds no answers"),
        (ROWS, "", "line 1: no column is a size"),
        ("100,float64", f"{'1' * 5000},float64", "line 4: N is '1"),
        ("100,float64", "\u0661\u0660\u0660,float64", "line 4: N is"),
        ("true,1", "true," + "1" * 200_000, "line 4: field larger than field limit"),
    ],
)
def test_wrong_files(write: Write, old: str, new: str, trouble: str) -> None:
    """File and line are named, and what would be right."""
    path = write(ROWS.replace(old, new))
    with pytest.raises(KernelFileError) as error:
        load_kernel_file(path)
    assert f"{path.parent / 'best.csv'}: {trouble}" in str(error.value)


@pytest.mark.parametrize(
    ("rows", "trouble"),
    [
        ("100,float32,128,true,1\n", "line 2: configuration: L=128 fast=1 K=1 breaks the rule 'L <= N'"),
        ("100,float32,64,true,\n", "line 2: configuration: K missing"),
        ("100,float32,64,false,2\n", "line 2: K has a value, but its condition fast is false"),
    ],
)
def test_rows_that_are_no_configuration(write: Write, rows: str, trouble: str) -> None:
    """A row against a rule, or without a value, is told with its line when it is asked for."""
    kernel = load_kernel_file(write("N,dtype,L,fast,K\n" + rows))
    with pytest.raises(KernelFileError) as error:
        answers(kernel, 16, N=100, dtype="float32")
    assert trouble in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "trouble"),
    [
        ("best.csv", "../best.csv", "[measured] file: '../best.csv'"),
        ("best.csv", "other.csv", "[measured] file: "),
        ("total >=", "P >=", "[measured] when: "),
        ('entry = "rows"', 'entry = "rows"\nanalytical = false', "contradict each other"),
    ],
)
def test_wrong_tables(write: Write, old: str, new: str, trouble: str) -> None:
    """A file elsewhere or missing, an unknown name and a contradiction are refused with their key."""
    path = write(ROWS)
    text = path.read_text().replace(old, new)
    if "contradict" in trouble:
        text = text.replace("[analytical]\nL = 32\nfast = false\n", "")
    path.write_text(text)
    with pytest.raises(KernelFileError) as error:
        load_kernel_file(path)
    assert trouble in str(error.value)


CATALOG = Catalog.load()
MEASURED = [name for name in CATALOG.names if CATALOG.kernel(name).recipe.measured]


@pytest.mark.parametrize("name", MEASURED)
def test_rows_of_the_catalogue(name: str) -> None:
    """Every row is a configuration at its sizes, and none stands twice."""
    kernel = CATALOG.kernel(name)
    measured = kernel.recipe.measured
    assert measured is not None
    for key in measured.rows:
        longest = {name: values[-1] for name, values in kernel.sizes.items() if isinstance(values, range)}
        workload = kernel.workload(longest | dict(zip(measured.sizes, key, strict=True)))
        for row in measured.at(dict(workload.sizes), gpu=None):
            kernel.plan(workload, kernel.of_row(workload, row))
        for gpu in {row.gpu for row in measured.rows[key]}:
            rows = measured.at(dict(workload.sizes), gpu)
            own = rows[: sum(row.gpu == gpu for row in measured.rows[key])]
            assert len({kernel.of_row(workload, row) for row in own}) == len(own)
