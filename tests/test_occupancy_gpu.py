"""Occupancy and compiled resources against the driver of a real GPU."""

from pathlib import Path
from typing import Any

import pytest

from tuner.compiler.compiler import CompiledStage, Compiler
from tuner.model.jobs import DeviceLimits
from tuner.model.plan import Source, Stage
from tuner.space.occupancy import device_limits, occupancy

pytestmark = pytest.mark.gpu

# Keeps LIVE values alive across a barrier, so that registers grow with it; STATIC bytes of shared memory.
KERNEL = """
template <int LIVE, int STATIC>
__global__ void hold(const float* in, float* out) {
    __shared__ float held[STATIC / 4 + 1];
    float value[LIVE];
    #pragma unroll
    for (int i = 0; i < LIVE; ++i) value[i] = in[i * blockDim.x + threadIdx.x];
    held[threadIdx.x % (STATIC / 4 + 1)] = value[0];
    __syncthreads();
    float sum = held[0];
    #pragma unroll
    for (int i = 0; i < LIVE; ++i) sum = sum * value[i] + value[LIVE - 1 - i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
"""
STATIC = (0, 1000, 8192)
KINDS = [  # live values, static bytes, most registers of a thread
    *((live, static, 255) for live in (1, 5, 8, 16, 24, 32, 48, 64) for static in STATIC),
    *((200, static, cap) for cap in range(24, 256, 12) for static in STATIC),
]
THREADS = (1, 32, 33, 64, 96, 128, 160, 192, 224, 256, 288, 320, 384, 512, 640, 736, 768, 992, 1024)
NUM_REGS, SHARED_SIZE_BYTES, LOCAL_SIZE_BYTES, MAX_DYNAMIC_SHARED_SIZE_BYTES = (
    4,
    1,
    3,
    8,
)  # CUfunction_attribute


@pytest.fixture(scope="module")
def of() -> DeviceLimits:
    """Limits of the first GPU, by its compute capability alone."""
    cupy = pytest.importorskip("cupy")
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    return device_limits(
        (properties["major"], properties["minor"]),
        multiprocessors=properties["multiProcessorCount"],
        memory_bytes=properties["totalGlobalMem"],
        l2_bytes=properties["l2CacheSize"],
    )


@pytest.fixture(scope="module")
def compiled(of: DeviceLimits, tmp_path_factory: pytest.TempPathFactory) -> list[CompiledStage]:
    """Kernels of many register counts and sizes of static shared memory."""
    cache: Path = tmp_path_factory.mktemp("cubins")
    stages = [
        Stage(
            name="hold",
            source=Source("hold.cu", KERNEL),
            entry=f"hold<{live}, {static}>",
            options=(f"--maxrregcount={cap}",),
            grid=(1, 1, 1),
            block=(32, 1, 1),
            shared_bytes=0,
            arguments=(),
        )
        for live, static, cap in KINDS
    ]
    with Compiler(of.architecture, cache) as compiler:
        results = compiler.compile(stages)
    kernels = [result for result in results if isinstance(result, CompiledStage)]
    assert len(kernels) == len(stages)
    return kernels


def function_of(kernel: CompiledStage) -> tuple[Any, int]:
    """The loaded function (kept alive by the caller) and its handle."""
    from cupy.cuda.function import Module  # noqa: PLC0415 - only where a GPU is

    module = Module()
    module.load(kernel.cubin)
    function = module.get_function(kernel.lowered_name)
    return (module, function), function.ptr


def test_limits_are_those_of_the_device(of: DeviceLimits) -> None:
    """The table's numbers are what the runtime says of this GPU."""
    from cupy.cuda import runtime  # noqa: PLC0415 - only where a GPU is

    properties = runtime.getDeviceProperties(0)
    assert of.warp_size == properties["warpSize"]
    assert of.max_threads_per_block == properties["maxThreadsPerBlock"]
    assert of.max_threads_per_sm == properties["maxThreadsPerMultiProcessor"]
    assert of.registers_per_sm == properties["regsPerMultiprocessor"]
    assert of.registers_per_block == properties["regsPerBlock"]
    assert of.shared_bytes_per_sm == properties["sharedMemPerMultiprocessor"]
    attributes = {97: of.shared_bytes_per_block, 106: of.max_blocks_per_sm, 111: of.shared_reserved_bytes}
    for attribute, expected in attributes.items():  # opt-in maximum, blocks per SM, reserved per block
        assert runtime.deviceGetAttribute(attribute, 0) == expected


def test_resources_of_the_log_are_those_of_the_driver(compiled: list[CompiledStage]) -> None:
    """Registers, static shared and local memory read from ptxas equal the loaded function's attributes."""
    from cupy.cuda import driver  # noqa: PLC0415 - only where a GPU is

    for kernel in compiled:
        _keep, handle = function_of(kernel)
        assert kernel.resources.registers_per_thread == driver.funcGetAttribute(NUM_REGS, handle)
        assert kernel.resources.static_shared_bytes == driver.funcGetAttribute(SHARED_SIZE_BYTES, handle)
        assert kernel.resources.local_bytes <= driver.funcGetAttribute(LOCAL_SIZE_BYTES, handle)


def test_blocks_are_those_of_the_driver(of: DeviceLimits, compiled: list[CompiledStage]) -> None:
    """Blocks equal cudaOccupancyMaxActiveBlocksPerMultiprocessor over registers, shared and threads."""
    from cupy.cuda import driver  # noqa: PLC0415 - only where a GPU is

    seen: set[tuple[int, int]] = set()
    reasons: set[str] = set()
    for kernel in compiled:
        registers, static = kernel.resources.registers_per_thread, kernel.resources.static_shared_bytes
        if (registers, static) in seen:
            continue
        seen.add((registers, static))
        _keep, handle = function_of(kernel)
        room = of.shared_bytes_per_block - static
        driver.funcSetAttribute(handle, MAX_DYNAMIC_SHARED_SIZE_BYTES, room)
        for threads in THREADS:
            for dynamic in (0, 1, 128, 1023, 1024, 4000, 10_000, 33_000, room // 2, room // 2 + 129, room):
                filled = occupancy(of, threads, registers, static + dynamic)
                reasons.update(filled.binding)
                expected = driver.occupancyMaxActiveBlocksPerMultiprocessor(handle, threads, dynamic)
                assert filled.blocks_per_sm == expected, (threads, registers, static, dynamic)
    assert len({registers for registers, _ in seen}) >= 15  # the sweep is a sweep
    assert reasons == {"blocks", "warps", "registers", "shared-memory"}
