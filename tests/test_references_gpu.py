"""Inputs and references of kernel files on a real GPU: what each way to state what is right finds."""

from pathlib import Path

import numpy as np
import pytest

from tuner.devices.base import Check
from tuner.devices.cuda.device import CudaDevice
from tuner.devices.worker import WorkerDevice
from tuner.kernel_files.catalog import load_kernel_file
from tuner.model.errors import UncheckableError
from tuner.model.plan import Plan
from tuner.model.trial import Status

pytestmark = pytest.mark.gpu

SEED = 11
N, NNZ = 3000, 40_000

CODE = """
#define PARAMETERS \\
    const int* offsets, const int* columns, const float* values, const float* x, float* y, int rows

// Rows of a sparse matrix times x; MODE says what goes wrong.
enum { RIGHT, OFF, UNWRITTEN, HALF };

template <int MODE>
__global__ void spmv(PARAMETERS) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows || MODE == UNWRITTEN || (MODE == HALF && row % 2)) return;
    float sum = 0;
    for (int k = offsets[row]; k < offsets[row + 1]; ++k) sum += values[k] * x[columns[k]];
    y[row] = MODE == OFF && row == rows - 1 ? sum + 1 : sum;
}

__global__ void naive(PARAMETERS) {
    if (threadIdx.x || blockIdx.x) return;
    for (int row = 0; row < rows; ++row) {
        double sum = 0;
        for (int k = offsets[row]; k < offsets[row + 1]; ++k) sum += (double)values[k] * x[columns[k]];
        y[row] = sum;
    }
}

__global__ void hollow(PARAMETERS) {
    if (threadIdx.x == 0) y[0] = offsets[0] + columns[0] + values[0] + x[0] + rows;
}
"""
KERNEL = """
[kernel]
name = "sparse"
source = "sparse.cu"
entry = "spmv<{{MODE}}>"

[problem]
{problem}

[problem.sizes]
N = [{rows}]
nnz = [{nnz}]

{tables}

[[argument]]
buffer = "offsets"
dtype = "int32"
shape = ["N + 1"]
role = "in"
input = '{offsets}'

[[argument]]
buffer = "columns"
dtype = "int32"
shape = ["nnz"]
role = "in"
input = "integers(0, N)"

[[argument]]
buffer = "values"
dtype = "float32"
shape = ["nnz"]
role = "in"
input = "normal(0, 2)"

[[argument]]
buffer = "x"
dtype = "float32"
shape = ["N"]
role = "in"
input = '{x}'

[[argument]]
buffer = "y"
dtype = "float32"
shape = ["N"]
role = "out"

[[argument]]
scalar = "rows"
dtype = "int32"
value = "N"

[tunables]
MODE = ["RIGHT", "OFF", "UNWRITTEN", "HALF"]

[launch]
grid = "ceil_div(N, 128)"
block = 128
"""
PYTHON = """
import numpy as np

def right(offsets, columns, values, x, N):
    assert offsets[0] == 0 and offsets[-1] == len(columns) and (np.diff(offsets) >= 0).all()
    assert 0 <= columns.min() and columns.max() < N
    products = np.append(values * x[columns].astype(np.float64), 0.0)
    return np.add.reduceat(products, offsets[:-1]) * (np.diff(offsets) > 0)

def on_device(offsets, columns, values, x):
    import cupy
    sums = cupy.zeros(len(offsets) - 1)
    rows = cupy.searchsorted(offsets, cupy.arange(len(columns)), side="right") - 1
    cupy.add.at(sums, rows, values.astype(float) * x[columns])
    return sums

def residual(offsets, columns, values, x, y, N):
    return abs(right(offsets, columns, values, x, N) - y).max() / abs(values).max()

def broken(x):
    raise KeyError("no reference today")
"""
FORMS = {
    "function": ('reference_function = "reference.py:right"', ""),
    "cupy": ('reference_function = "reference.py:on_device"\nreference_arrays = "cupy"', ""),
    "entry": ('reference_entry = "naive"', "[reference_launch]\ngrid = 1\nblock = 32"),
    "law": ('law = "reference.py:residual"\ntolerance = 1e-4', ""),
    "consistent": ("", ""),
}


def plans(
    folder: Path,
    problem: str,
    tables: str = "",
    *,
    x: str = "uniform(-1, 1)",
    offsets: str = "csr_offsets(nnz)",
) -> dict[str, Plan]:
    """Plans by mode."""
    (folder / "sparse.cu").write_text(CODE)
    (folder / "reference.py").write_text(PYTHON)
    text = KERNEL.format(problem=problem, tables=tables, rows=N, nnz=NNZ, x=x, offsets=offsets)
    (folder / "kernel.toml").write_text(text)
    kernel = load_kernel_file(folder / "kernel.toml")
    workload = kernel.workload({"N": N, "nnz": NNZ})
    found = {str(one["MODE"]): kernel.plan(workload, one) for one in kernel.space(workload)}
    assert len(found) == 4
    return found


def ok(check: Check) -> None:
    assert check.status is Status.OK, check.detail


@pytest.mark.parametrize("form", FORMS)
def test_wrong_answers_are_found(device: CudaDevice, tmp_path: Path, form: str) -> None:
    """Each way to state what is right passes a right sparse product and finds three wrong ones."""
    modes = plans(tmp_path, *FORMS[form])
    ok(device.check(modes["RIGHT"], SEED))
    for mode, words in (
        ("OFF", "allowed"),
        ("UNWRITTEN", "output 'y' was not written: "),
        ("HALF", f"output 'y' was not written in {N // 2} of {N} elements"),
    ):
        check = device.check(modes[mode], SEED)
        assert check.status is Status.WRONG_ANSWER, (mode, check.detail)
        assert words in check.detail
    ok(device.check(modes["RIGHT"], SEED))
    assert all(result.status is Status.OK for result in device.run([modes["RIGHT"]], 0.05).results)


@pytest.mark.parametrize("form", ["function", "entry", "law"])
def test_a_wrong_answer_that_comes_first(device: CudaDevice, tmp_path: Path, form: str) -> None:
    """The first answer of a workload is judged, too."""
    modes = plans(tmp_path, *FORMS[form])
    assert device.check(modes["OFF"], SEED + 1).status is Status.WRONG_ANSWER
    ok(device.check(modes["RIGHT"], SEED + 1))


def test_files(device: CudaDevice, tmp_path: Path) -> None:
    """Inputs and right outputs come from files; one that changes refuses the run."""
    rng = np.random.default_rng(0)
    offsets = np.sort(rng.integers(0, NNZ + 1, N + 1)).astype(np.int32)
    offsets[[0, -1]] = 0, NNZ
    x = rng.random(N).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "matrix.npz", offsets=offsets)
    given = {"x": 'file("x.npy")', "offsets": 'file("matrix.npz", "offsets")'}
    modes = plans(tmp_path, *FORMS["function"], **given)
    ok(device.check(modes["RIGHT"], SEED))
    assert device.check(modes["OFF"], SEED).status is Status.WRONG_ANSWER
    modes = plans(
        tmp_path, "", "[problem.reference]\ny = '2 * file(\"x.npy\") + where(x > 2, 1, 0)'", **given
    )
    assert device.check(modes["RIGHT"], SEED).status is Status.WRONG_ANSWER
    np.save(tmp_path / "x.npy", 2 * x)
    with pytest.raises(UncheckableError, match="has changed since"):
        device.check(modes["RIGHT"], SEED + 1)


def test_references_at_fault(device: CudaDevice, tmp_path: Path) -> None:
    """A function that raises and a naive kernel that leaves its output refuse the run."""
    broken = plans(tmp_path, 'reference_function = "reference.py:broken"')
    with pytest.raises(UncheckableError, match=r"raised KeyError: 'no reference today' \(line"):
        device.check(broken["RIGHT"], SEED)
    hollow = plans(tmp_path, 'reference_entry = "hollow"', "[reference_launch]\ngrid = 1\nblock = 32")
    with pytest.raises(UncheckableError, match="reference_entry 'hollow': output 'y' was not written in"):
        device.check(hollow["RIGHT"], SEED)
    missing = plans(tmp_path, 'reference_entry = "nobody"', "[reference_launch]\ngrid = 1\nblock = 32")
    with pytest.raises(UncheckableError, match="reference_entry 'nobody'"):
        device.check(missing["RIGHT"], SEED)
    ok(device.check(plans(tmp_path, *FORMS["function"])["RIGHT"], SEED))


def test_in_a_worker(tmp_path: Path) -> None:
    """A worker makes references apart from checks; one at fault is raised there."""
    worker = WorkerDevice("cuda:0", run_timeout_s=20.0)
    try:
        modes = plans(tmp_path, *FORMS["entry"])
        ok(worker.check(modes["RIGHT"], SEED))
        assert worker.check(modes["OFF"], SEED).status is Status.WRONG_ANSWER
        broken = plans(tmp_path, 'reference_function = "reference.py:broken"')
        with pytest.raises(UncheckableError, match="no reference today"):
            worker.check(broken["RIGHT"], SEED)
        ok(worker.check(modes["RIGHT"], SEED))
    finally:
        worker.close()


def test_checks_stay_fast(device: CudaDevice, tmp_path: Path) -> None:
    """Once the reference is there, a check of a small kernel takes a few milliseconds."""
    modes = plans(tmp_path, *FORMS["function"])
    ok(device.check(modes["RIGHT"], SEED))
    assert min(device.check(modes["RIGHT"], SEED).seconds for _ in range(5)) < 0.02


def test_bfloat16(device: CudaDevice, tmp_path: Path) -> None:
    """Arrays of bfloat16 are drawn, and compared as numbers: one more in the exponent is twice the number."""
    (tmp_path / "twice.cu").write_text(
        "__global__ void twice(const unsigned short* x, unsigned short* y, int n) {\n"
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i < n) y[i] = x[i] + (OFF && i == 77 ? 0x100 : 0x80);\n"
        "}\n"
    )
    (tmp_path / "kernel.toml").write_text(
        '[kernel]\nname = "twice"\nsource = "twice.cu"\n'
        "[problem.sizes]\nN = [100000]\n"
        '[problem.reference]\ny = "2 * x"\n'
        '[arguments]\nx = "in bfloat16[N] = uniform(0.5, 1)"\ny = "out bfloat16[N]"\nn = "int32 = N"\n'
        "[tunables]\nOFF = [0, 1]\n"
        '[launch]\ngrid = "ceil_div(N, 256)"\nblock = 256\n'
    )
    kernel = load_kernel_file(tmp_path / "kernel.toml")
    workload = kernel.workload({"N": 100_000})
    right, wrong = (kernel.plan(workload, one) for one in kernel.space(workload))
    ok(device.check(right, SEED))
    check = device.check(wrong, SEED)
    assert check.status is Status.WRONG_ANSWER, check.detail
