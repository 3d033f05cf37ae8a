"""What CUDA kernels have, and each value of the examples, on a real GPU: held to references, and measured."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pairwise import pairwise

from tuner.devices.cuda.device import CudaDevice
from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.plan import Configuration, Plan
from tuner.model.trial import Status

pytestmark = pytest.mark.gpu

HEAD = """
[kernel]
name = "feature"
source = "feature.cu"
[problem]
name = "expression"
tolerance = 1e-3
[problem.sizes]
N = [1048576]
[tunables]
L = [128]
[work]
bytes = "8 * N"
operations = "N"
"""
X = '[[argument]]\nbuffer = "x"\ndtype = "float32"\nshape = ["batch", "N"]\nrole = "in"\n'
Y = '[[argument]]\nbuffer = "y"\ndtype = "float32"\nshape = ["batch", "N"]\nrole = "out"\n'
COUNT = '[[argument]]\nscalar = "count"\ndtype = "int32"\nvalue = "N"\n'
ONE = '[launch]\ngrid = "N // L"\nblock = "L"\n'
PlanOf = Callable[[str, str, str, str], Plan]


@pytest.fixture
def plan_of(tmp_path: Path) -> PlanOf:
    """A plan of a source, the entry or nothing, the reference of y, and the rest of a kernel file."""

    def made(code: str, entry: str, reference: str, text: str) -> Plan:
        (tmp_path / "feature.cu").write_text(code)
        head = HEAD.replace('"feature.cu"\n', f'"feature.cu"\nentry = "{entry}"\n') if entry else HEAD
        (tmp_path / "kernel.toml").write_text(f"{head}[problem.reference]\ny = '''{reference}'''\n{text}")
        kernel = load_kernel_file(tmp_path / "kernel.toml")
        workload = kernel.workload({"N": 2**20})
        return kernel.plan(workload, kernel.default(workload))

    return made


def assert_right(device: CudaDevice, plan: Plan) -> float:
    """The plan's answers are right, before and after it is measured; seconds of a run."""
    for _ in range(2):
        check = device.check(plan, 3)
        assert check.status is Status.OK, check.detail
        record = device.run([plan], 0.05)
        assert record.results[0].status is Status.OK, record.results[0].detail
    assert record.makespan_s is not None
    return record.makespan_s


def test_constant_and_device_variables(device: CudaDevice, plan_of: PlanOf) -> None:
    """Arrays are copied to a __constant__ and a __device__ variable, also to one in a namespace."""
    code = """
    __constant__ float scale[1];
    namespace more { __device__ float shift[1]; }
    template <int L> __global__ void f(const float* x, float* y) {
        int i = blockIdx.x * L + threadIdx.x;
        y[i] = scale[0] * x[i] + more::shift[0];
    }
    """
    constant = '[[argument]]\nbuffer = "scale"\ndtype = "float32"\nshape = [1]\nrole = "constant"\n'
    shift = constant.replace('"scale"', '"shift"') + 'symbol = "more::shift"\n'
    assert_right(device, plan_of(code, "f<{L}>", "scale * x + shift", X + Y + constant + shift + ONE))


def test_variable_that_is_too_small(device: CudaDevice, plan_of: PlanOf) -> None:
    """A variable that does not hold its array is refused with both sizes."""
    code = """
    __constant__ float scale[3];
    __global__ void f(const float* x, float* y) { y[0] = scale[1] * x[0]; }
    """
    constant = '[[argument]]\nbuffer = "scale"\ndtype = "float32"\nshape = [5]\nrole = "constant"\n'
    check = device.check(plan_of(code, "f", "x", X + Y + constant + ONE), 3)
    assert check.status is Status.LAUNCH_ERROR
    assert "the variable scale has 12 bytes, and the argument scale that fills it has 20" in check.detail


def test_struct_by_value(device: CudaDevice, plan_of: PlanOf) -> None:
    """A struct with gaps between its fields is passed by value."""
    code = """
    struct Parameters { bool negative; double factor; short shift; float2 pair; };
    __global__ void f(const float* x, float* y, Parameters p, int count) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < count) y[i] = (p.negative ? -1 : 1) * p.factor * x[i] + p.shift + p.pair.x;
    }
    """
    struct = (
        '[[argument]]\nscalar = "p"\n[argument.fields]\nnegative = "bool = true"\nfactor = "float64 = 1.5"\n'
    )
    struct += 'shift = "int16 = 7"\npair = "complex64 = 2"\n'
    assert_right(device, plan_of(code, "f", "9 - 1.5 * x", X + Y + struct + COUNT + ONE))


def test_halves(device: CudaDevice, plan_of: PlanOf) -> None:
    """The headers of half precision are found, and scalars of these types are passed."""
    code = """
    #include <cuda_fp16.h>
    #include <cuda_bf16.h>
    __global__ void f(const float* x, float* y, __half a, __nv_bfloat16 b) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        y[i] = __half2float(a) * x[i] + __bfloat162float(b);
    }
    """
    values = '[[argument]]\nscalar = "a"\ndtype = "float16"\nvalue = 1.5\n'
    values += '[[argument]]\nscalar = "b"\ndtype = "bfloat16"\nvalue = -2.5\n'
    assert_right(device, plan_of(code, "f", "1.5 * x - 2.5", X + Y + values + ONE))


def test_tensor_cores(device: CudaDevice, plan_of: PlanOf) -> None:
    """A warp multiplies tiles of 16 x 16 with the unit matrix on tensor cores."""
    code = """
    #include <cuda_fp16.h>
    #include <mma.h>
    using namespace nvcuda;
    __global__ void f(const float* x, float* y) {
        __shared__ __half tile[256], unit[256];
        long first = 256l * blockIdx.x;
        for (int i = threadIdx.x; i < 256; i += 32) {
            tile[i] = __float2half(x[first + i]);
            unit[i] = __float2half(i / 16 == i % 16 ? 2.0f : 0.0f);
        }
        __syncwarp();
        wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> b;
        wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
        wmma::fill_fragment(c, 0.0f);
        wmma::load_matrix_sync(a, tile, 16);
        wmma::load_matrix_sync(b, unit, 16);
        wmma::mma_sync(c, a, b, c);
        wmma::store_matrix_sync(y + first, c, 16, wmma::mem_row_major);
    }
    """
    launch = '[launch]\ngrid = "N // 256"\nblock = 32\nmin_architecture = 70\n'
    assert_right(device, plan_of(code, "f", "2 * x", X + Y + launch))


GRID_SYNC = """
#include <cooperative_groups.h>
__global__ void f(const float* x, float* tmp, float* y, int count) {
    int stride = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = first; i < count; i += stride) tmp[i] = 2 * x[i];
    cooperative_groups::this_grid().sync();
    for (int i = first; i < count; i += stride) y[i] = tmp[count - 1 - i];
}
"""
SCRATCH = '[[argument]]\nbuffer = "tmp"\ndtype = "float32"\nshape = ["batch", "N"]\nrole = "scratch"\n'
COUNTED = X.replace("[[argument]]", '[[argument]]\ninput = "range()"')


@pytest.mark.parametrize("resident", [False, True])
def test_cooperative_launch(device: CudaDevice, plan_of: PlanOf, resident: bool) -> None:
    """Blocks wait for each other, checked, captured and replayed; a resident grid is cut to what fits."""
    grid = '"N // L"' if resident else "64"
    launch = f'[launch]\ngrid = {grid}\nblock = "L"\ncooperative = true\nresident = {str(resident).lower()}\n'
    text = COUNTED + SCRATCH + Y + COUNT + launch
    assert_right(device, plan_of(GRID_SYNC, "f", "2 * (N - 1) - 2 * x", text))


def test_cooperative_grid_that_does_not_fit(device: CudaDevice, plan_of: PlanOf) -> None:
    """A cooperative grid that the device does not hold is refused with the numbers."""
    launch = '[launch]\ngrid = "N // L"\nblock = "L"\ncooperative = true\n'
    check = device.check(plan_of(GRID_SYNC, "f", "2 * x", X + SCRATCH + Y + COUNT + launch), 3)
    assert check.status is Status.LAUNCH_ERROR
    assert "a cooperative grid of 8192 blocks is more than the " in check.detail


def test_setup_stage(device: CudaDevice, plan_of: PlanOf) -> None:
    """What a slow set-up stage leaves is found by every run, and the stage is in no time."""
    code = """
    __global__ void prepare(const float* x, float* tmp, int count) {
        for (int i = threadIdx.x; i < count; i += blockDim.x) tmp[i] = 3 * x[i];  // one block: slow
    }
    __global__ void f(const float* tmp, float* y) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        y[i] = tmp[i] + 1;
    }
    """
    slow = '[[stage]]\nname = "prepare"\nentry = "prepare"\ngrid = 1\nblock = 32\n'
    slow += 'arguments = ["x", "tmp", "count"]\n'
    run = '[[stage]]\nname = "run"\nentry = "f"\ngrid = "N // L"\nblock = "L"\narguments = ["tmp", "y"]\n'
    text = X + SCRATCH + Y + COUNT
    without = assert_right(device, plan_of(code, "", "3 * x + 1", f"{text}{slow}setup = true\n{run}"))
    every_time = assert_right(device, plan_of(code, "", "3 * x + 1", f"{text}{slow}{run}"))
    assert without < every_time / 5


def test_much_shared_memory_and_a_grid_of_three_axes(device: CudaDevice, plan_of: PlanOf) -> None:
    """More than 48 KiB of shared memory, and grids and blocks along x, y and z."""
    code = """
    __global__ void f(const float* x, float* y) {
        extern __shared__ float room[];
        int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
        int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
        int threads = blockDim.x * blockDim.y * blockDim.z;
        for (int i = thread; i < 16384; i += threads) room[i] = x[block * 16384 + i];
        __syncthreads();
        for (int i = thread; i < 16384; i += threads) y[block * 16384 + i] = 2 * room[i];
    }
    """
    launch = '[launch]\ngrid = ["N // 16384 // 8", 4, 2]\nblock = ["L // 8", 4, 2]\nshared_bytes = 65536\n'
    assert_right(device, plan_of(code, "f", "2 * x", X + Y + launch))


def test_parts_of_cub(device: CudaDevice, plan_of: PlanOf) -> None:
    """A block reduces with cub."""
    code = """
    #include <cub/cub.cuh>
    template <int L> __global__ void f(const float* x, float* y) {
        typedef cub::BlockReduce<float, L> Reduce;
        __shared__ typename Reduce::TempStorage room;
        __shared__ float total;
        int i = blockIdx.x * L + threadIdx.x;
        float sum = Reduce(room).Sum(x[i]);
        if (threadIdx.x == 0) total = sum;
        __syncthreads();
        y[i] = x[i] + 0 * total;
    }
    """
    assert_right(device, plan_of(code, "f<{L}>", "x", X + Y + ONE))


FOLDER = Path(__file__).parents[1] / "examples"
NAMES = sorted(path.parent.name for path in FOLDER.glob("*/kernel.toml"))
SEED = 0


def sample(kernel: KernelFile, more: dict[str, int | str]) -> list[Plan]:
    workload = kernel.workload({"N": kernel.sizes["N"][1]} | more)
    rows = [dict(configuration.items()) for configuration in kernel.space(workload)]
    chosen = pairwise(rows, first=[dict(kernel.default(workload).items())], together=1)
    return [kernel.plan(workload, Configuration(list(row.items()))) for row in chosen]


@pytest.mark.parametrize("name", [*NAMES, "matmul,float16"])
def test_values_answer_rightly(name: str, device: CudaDevice) -> None:
    """The default agrees with the reference, and every value of a tunable does, too."""
    folder, _, dtype = name.partition(",")
    kernel = load_kernel_file(FOLDER / folder / "kernel.toml")
    plans = sample(kernel, {"dtype": dtype} if dtype else {})
    device.prepare(plans[0], SEED)
    for plan in plans:
        check = device.check(plan, SEED)
        assert check.status is Status.OK, f"{plan.label()}: {check.detail}"
