"""Chains on a real GPU: swapped arrays, factorisations in place, libraries, side streams, long graphs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chain_samples import backward_error, dominant, lu_plan, stencil_plan, stencil_reference

from tuner.compiler.compiler import Compiler
from tuner.devices.cuda.code import CodeCache
from tuner.devices.cuda.device import CudaDevice
from tuner.devices.cuda.rounds import RoundRunner
from tuner.model.plan import (
    Buffer,
    Configuration,
    LibraryCall,
    Operand,
    Plan,
    ProblemSpec,
    Resources,
    Scalar,
    Source,
    Stage,
    Work,
    Workload,
)
from tuner.model.trial import Status

pytestmark = pytest.mark.gpu

DELAY = Source(
    "delay.cu",
    """
// one block that waits for so many microseconds and then adds to what it finds
__global__ void delay(float* x, float add) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); while (now - begin < 500000ull);
    x[threadIdx.x] = 2 * x[threadIdx.x] + add;
}
""",
)


@pytest.fixture(scope="module")
def once(device: CudaDevice) -> Iterator[Any]:
    """Runs a plan once on arrays of NumPy, and returns what they hold then, by name."""
    import cupy as cp  # noqa: PLC0415 - only where there is a GPU

    with Compiler(device.limits.architecture) as compiler:
        code, runner = CodeCache(cp, compiler, device.limits), RoundRunner(cp)

        def run(plan: Plan, given: dict[str, Any]) -> dict[str, Any]:
            arrays = {b.name: cp.zeros(b.shape, b.dtype) for b in plan.buffers}
            for name, values in given.items():
                arrays[name][...] = cp.asarray(values)
            launches = code.launches(plan, arrays)
            cp.cuda.runtime.deviceSynchronize()
            runner.once(launches)
            return {name: cp.asnumpy(array) for name, array in arrays.items()}

        yield run


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_a_stencil_that_swaps_its_arrays(device: CudaDevice, once: Any, tmp_path: Path, steps: int) -> None:
    """Its result is in the output for even and odd numbers of steps, and its input as it was."""
    u = np.random.default_rng(steps).uniform(-1, 1, (1, 65536)).astype(np.float32)
    plan = stencil_plan(tmp_path, 65536, steps, block=256)
    found = once(plan, {"u": u})
    np.testing.assert_allclose(found["v"], stencil_reference(u, steps), rtol=0, atol=2e-6)
    np.testing.assert_array_equal(found["u"], u)
    assert device.check(plan, 0).status is Status.OK
    record = device.run([plan], 0.02)
    assert record.results[0].status is Status.OK
    assert record.makespan_s is not None
    assert 0 < record.makespan_s < 1e-3


def test_five_hundred_steps_in_a_graph(device: CudaDevice, once: Any, tmp_path: Path) -> None:
    """A chain is a graph; a step takes a few microseconds, and 500 of them 500 times as long as one."""
    u = np.random.default_rng(5).uniform(-1, 1, (1, 65536)).astype(np.float32)
    plan = stencil_plan(tmp_path, 65536, 500, block=256)
    found = once(plan, {"u": u})
    np.testing.assert_allclose(found["v"], stencil_reference(u, 500), rtol=1e-4, atol=1e-3)
    record = device.run([plan], 0.1)
    assert record.results[0].status is Status.OK
    assert [str(flag) for flag in record.flags if "graph" in str(flag)] == []
    assert record.makespan_s is not None
    assert 500 * 0.5e-6 < record.makespan_s < 500 * 20e-6
    together = device.run([plan, stencil_plan(tmp_path, 1048576, 4, block=256)], 0.1)
    assert all(result.status is Status.OK for result in together.results)


@pytest.mark.parametrize(("by", "beside"), [("own", 0), ("library", 0), ("library", 1)])
def test_a_factorisation_in_place(
    device: CudaDevice, once: Any, tmp_path: Path, by: str, beside: int
) -> None:
    """Steps of own kernels, or with cuBLAS in one stream or two; every round begins with the input."""
    a = dominant(512)
    plan = lu_plan(tmp_path, n=512, block=32, by=by, beside=beside)
    found = once(plan, {"A": a})
    assert backward_error(a, found["A"]) < 1
    record = device.run([plan], 0.1)
    result = record.results[0]
    assert result.status is Status.OK
    assert [str(flag) for flag in record.flags if "graph" in str(flag)] == []
    assert result.time_s is not None
    assert 1e-5 < result.time_s < 0.1
    assert 0 < result.restore_s < result.time_s / 2
    pool = device._pool
    original = pool._originals[plan.workload, plan.buffers[0]]
    for arrays in pool.sets(plan, pool.held_sets([plan])):  # restored behind the last round
        np.testing.assert_array_equal(arrays["A"].get(), original.get())


def test_products_of_cublas(once: Any) -> None:
    """A product, a rank-k update and a solve of column-major matrices in double precision."""
    generator = np.random.default_rng(3)
    m, n, k = 96, 64, 48
    a, b, c = (generator.uniform(-1, 1, shape) for shape in ((m, k), (k, n), (m, n)))
    operands: tuple[tuple[str, Operand], ...] = (
        ("a", Operand("a", 3, m)),
        ("b", Operand("b", 0, n, transposed=True)),
        ("c", Operand("c", 0, m)),
    )
    gemm = LibraryCall("gemm", "float64", operands, m, n, k, alpha=-2.0, beta=0.5)
    found = once(
        library_plan(gemm, {"a": m * k + 3, "b": n * k, "c": m * n}),
        {"a": np.concatenate([np.zeros(3), a.T.ravel()]), "b": b.ravel(), "c": c.T.ravel()},
    )
    np.testing.assert_allclose(found["c"].reshape(n, m).T, -2 * a @ b + 0.5 * c, rtol=1e-12, atol=1e-12)

    triangle = np.tril(generator.uniform(0, 1, (m, m))) + m * np.eye(m)
    operands = (("a", Operand("a", 0, m)), ("b", Operand("b", 0, m)))
    trsm = LibraryCall("trsm", "float64", operands, m, n)
    found = once(library_plan(trsm, {"a": m * m, "b": m * n}), {"a": triangle.T.ravel(), "b": c.T.ravel()})
    np.testing.assert_allclose(triangle @ found["b"].reshape(n, m).T, c, rtol=1e-12, atol=1e-12)

    operands = (("a", Operand("a", 0, m)), ("c", Operand("c", 0, m)))
    syrk = LibraryCall("syrk", "float64", operands, m, m, k, fill="upper")
    found = once(library_plan(syrk, {"a": m * k, "c": m * m}), {"a": a.T.ravel()})
    product = found["c"].reshape(m, m).T
    np.testing.assert_allclose(np.triu(product), np.triu(a @ a.T), rtol=1e-12, atol=1e-12)
    assert not np.tril(product, -1).any()


@pytest.mark.parametrize("inverse", [False, True])
def test_a_transform_of_cufft(device: CudaDevice, once: Any, inverse: bool) -> None:
    """Several of them, in a graph as well."""
    x = np.random.default_rng(0).normal(size=(8, 256, 2)).astype(np.float32).view(np.complex64)[..., 0]
    call = LibraryCall(
        "fft", "complex64", (("a", Operand("a")), ("c", Operand("c"))), m=8, n=256, inverse=inverse
    )
    plan = library_plan(call, {"a": 8 * 256, "c": 8 * 256})
    found = once(plan, {"a": x.ravel()})
    right = np.fft.ifft(x) * 256 if inverse else np.fft.fft(x)
    np.testing.assert_allclose(found["c"].reshape(8, 256), right, rtol=0, atol=2e-4)
    record = device.run([plan], 0.02)
    assert record.results[0].status is Status.OK
    assert record.makespan_s is not None
    assert 1e-6 < record.makespan_s < 1e-3


@pytest.mark.parametrize("beside", [False, True])
def test_a_side_stream_runs_beside(device: CudaDevice, once: Any, beside: bool) -> None:
    """Two stages of half a millisecond each at once take half as long; a third waits for both."""
    plan = delays(beside=beside)
    found = once(plan, {})
    assert found["x"][0, 0] == 2 * 1 + 4
    assert found["y"][0, 0] == 2
    record = device.run([plan], 0.1)
    assert record.makespan_s == pytest.approx(1.0e-3 if beside else 1.5e-3, rel=0.1)


def delays(*, beside: bool) -> Plan:
    """X = 1 and y = 2, at once where that is asked for, then x = 2 x + 4."""

    def stage(name: str, array: str, add: float, **order: Any) -> Stage:
        return Stage(
            *(name, DELAY, "delay", (), (1, 1, 1), (32, 1, 1), 0),
            arguments=(array, Scalar("float32", add)),
            **order,
        )

    stages = (
        stage("first", "x", 1.0),
        stage("second", "y", 2.0, stream=int(beside)),
        stage("third", "x", 4.0, after=(1,)),
    )
    buffers = tuple(Buffer(name, "float32", (1, 32), "zeroed") for name in "xy")
    return chain(stages, (*buffers, Buffer("z", "float32", (1, 32), "out")), f"delays {beside}")


def library_plan(call: LibraryCall, elements: dict[str, int]) -> Plan:
    """One call; the last of its arrays is the output."""
    stage = Stage("call", Source("", ""), "", (), (1, 1, 1), (1, 1, 1), 0, (), library=call)
    last = list(elements)[-1]
    buffers = tuple(
        Buffer(name, call.dtype, (1, count), "inout" if name == last else "in")
        for name, count in elements.items()
    )
    return chain((stage,), buffers, f"{call.routine} {call.inverse}")


def chain(stages: tuple[Stage, ...], buffers: tuple[Buffer, ...], name: str) -> Plan:
    return Plan(
        Workload("chain", (("name", name),), 1),
        Configuration({}),
        stages,
        buffers,
        ProblemSpec("consistent"),
        Work(1.0, 1.0),
    )


def test_resources_of_chains(device: CudaDevice, tmp_path: Path) -> None:
    """Those of own kernels are compiled once each; those of libraries are not known."""
    (found,) = device.resources([lu_plan(tmp_path, n=512, block=32, by="library")])
    assert isinstance(found, tuple)
    assert isinstance(found[0], Resources)
    assert found[0].compiled
    assert not found[1].compiled
