"""The CUDA device over a fake CuPy, with kernels that behave well and badly.

The kernels of answer checks are the real ones, compiled for the host.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import host_build
import numpy as np
import pytest
from fake_cupy import DeviceArray, FakeCupy, Kernel
from fake_driver import FakeLibrary

from tuner.compiler.compiler import CompiledStage
from tuner.devices.cuda import device as cuda
from tuner.devices.cuda import probe
from tuner.devices.cuda.answer_kernels import ANSWER_KERNELS, answer_stage
from tuner.devices.cuda.driver import DriverCalls
from tuner.devices.cuda.rounds import RoundRunner
from tuner.model.errors import CompileError
from tuner.model.jobs import DeviceLimits
from tuner.model.plan import (
    Buffer,
    Configuration,
    Plan,
    ProblemSpec,
    Resources,
    Scalar,
    Source,
    Stage,
    Work,
    Workload,
)
from tuner.space.occupancy import device_limits

ROWS, N = 64, 128
LIMITS = device_limits((9, 0), multiprocessors=132, memory_bytes=2**30, l2_bytes=2**17)


class HostKernel(Kernel):
    """A kernel of answer checks, run on the host in no time."""

    def __init__(self, entry: str) -> None:
        super().__init__(lambda *_: None, 0.0)
        self._entry = entry

    def launch(self, grid: Sequence[int], block: Sequence[int], args: Sequence[Any]) -> None:
        plain = [np.asarray(arg) if isinstance(arg, DeviceArray) else arg for arg in args]
        host_build.run(answer_stage("fill").source, self._entry, tuple(grid), tuple(block), 0, plain)


@functools.cache
def answer_entries() -> list[str]:
    """The kernels of ``answers.cu``, which are compiled now."""
    entries = [answer_stage(name).entry for name in ANSWER_KERNELS]
    host_build.build(answer_stage("fill").source, entries)
    return entries


def answer_kernels() -> dict[str, Kernel]:
    """The kernels of ``answers.cu`` by entry."""
    return {entry: HostKernel(entry) for entry in answer_entries()}


class FakeCompiler:
    """Compiles an entry to a kernel of the same name."""

    nvrtc_version = "12.9"

    def compile(self, stages: Sequence[Stage]) -> list[CompiledStage | CompileError]:
        return [self._compiled(stage.entry) for stage in stages]

    def _compiled(self, entry: str) -> CompiledStage | CompileError:
        if entry == "wrong_syntax":
            return CompileError("line 3: expected a ';'")
        cubin = b"" if entry == "broken" else b"cubin"
        static_shared_bytes = 1024 if entry == "sharing" else 0
        return CompiledStage(cubin, entry, Resources(32, static_shared_bytes, architecture="sm_90"), "")

    def close(self) -> None:
        pass


def scan(x: DeviceArray, y: DeviceArray, rows: int) -> None:
    assert isinstance(rows, np.int32)
    assert rows == len(x)
    y[...] = np.cumsum(x.astype(np.float64), axis=1)


def plan(
    *entries: str,
    kernel: str = "scan",
    rows: int = ROWS,
    role: Any = "out",
    problem: str = "scan",
    shared_bytes: int = 0,
    scratch: int = 0,
    reference: tuple[tuple[str, str], ...] = (),
    batch: int | None = None,
    grid: tuple[int, int, int] = (1, 1, 1),
    block: tuple[int, int, int] = (32, 1, 1),
    baseline: Plan | None = None,
) -> Plan:
    """Stages that read x (rows of N) and write y, by names of kernels."""
    names = ("x", "x") if role == "inout" else ("x", "y")
    stages = tuple(
        Stage(
            name=entry,
            source=Source("k.cu", entry),
            entry=entry,
            options=(),
            grid=grid,
            block=block,
            shared_bytes=shared_bytes,
            arguments=(*names, Scalar("int32", rows)),
        )
        for entry in entries
    )
    shape = (rows, N)
    buffers: tuple[Buffer, ...] = (
        Buffer("x", "float32", shape, "in"),
        Buffer("y", "float32", shape, "out"),
    )
    if role == "inout":
        buffers = (Buffer("x", "float32", shape, "inout"),)
    if scratch:
        buffers = (*buffers, Buffer("tmp", "float32", (scratch,), "scratch"))
    return Plan(
        Workload(kernel, (("N", N),), rows if batch is None else batch),
        Configuration((("entry", "+".join(entries)), ("scratch", scratch))),
        stages,
        buffers,
        ProblemSpec(problem, reference=reference),
        Work(8.0 * rows * N, rows * N),
        baseline,
    )


def kernels(cp: Callable[[], FakeCupy]) -> dict[str, Kernel]:
    def illegal(*_: object) -> None:
        cp().dead = "cudaErrorIllegalAddress: an illegal memory access was encountered"

    def half(x: DeviceArray, y: DeviceArray, rows: int) -> None:
        y[: rows // 2] = np.cumsum(x[: rows // 2], axis=1)

    def clobber(x: DeviceArray, y: DeviceArray, _: int) -> None:
        x[...] = 0
        y[...] = 0

    def meddle(x: DeviceArray, y: DeviceArray, rows: int) -> None:
        scan(x, y, rows)
        x[rows // 3, 7] += 1

    def double(x: DeviceArray, y: DeviceArray, _: int) -> None:
        np.multiply(x, 2, out=y)

    def overrun(x: DeviceArray, y: DeviceArray, rows: int) -> None:
        scan(x, y, rows)
        raw: Any = y
        while raw.base is not None:
            raw = raw.base
        raw[-4096:-4000] = 0

    def off(x: DeviceArray, y: DeviceArray, rows: int) -> None:
        scan(x, y, rows)
        y[17, 5] += 1

    return {
        **answer_kernels(),
        "scan": Kernel(scan, 1e-3),
        "slow": Kernel(scan, 3e-3),
        "very_slow": Kernel(scan, 0.5),
        "quick": Kernel(lambda *_: None, 5e-6),
        "meddle": Kernel(meddle, 1e-3),
        "nothing": Kernel(lambda *_: None, 1e-3),
        "ignoring": Kernel(scan, 1e-3),
        "reading": Kernel(scan, 1e-3),
        "rest": Kernel(lambda *_: None, 1e-3),
        "nap": Kernel(lambda *_: None, 1e-4),
        "half": Kernel(half, 1e-3),
        "clobber": Kernel(clobber, 1e-3),
        "overrun": Kernel(overrun, 1e-3),
        "off": Kernel(off, 1e-3),
        "refused": Kernel(scan, -1.0),
        "illegal": Kernel(illegal, 1e-3),
        "double": Kernel(double, 1e-3),
        "broken": Kernel(scan, 1e-3),
        "wrong_syntax": Kernel(scan, 1e-3),
        "sharing": Kernel(scan, 1e-3),
    }


def fake_device(
    patch: pytest.MonkeyPatch, limits: DeviceLimits = LIMITS, compiler: FakeCompiler | None = None
) -> tuple[FakeCupy, cuda.CudaDevice]:
    """A CUDA device of virtual time, and the CuPy it stands on."""
    if host_build.COMPILER is None:
        pytest.skip("needs g++")
    made: list[FakeCupy] = []
    fake = FakeCupy(kernels(lambda: made[0]))
    made.append(fake)
    patch.setattr(probe, "open_cupy", lambda _: fake)
    patch.setattr(probe, "gpu_limits", lambda *_: limits)
    patch.setattr(probe, "gpu_name", lambda *_: "Fake GPU")
    patch.setattr(probe, "gpu_uuid", lambda _: "GPU-1")
    patch.setattr(probe, "driver_version", lambda _: "580.1")
    fake.library = FakeLibrary(fake)
    driver = DriverCalls(lambda: fake.library)
    patch.setattr(cuda, "DriverCalls", lambda: driver)
    patch.setattr(
        cuda,
        "RoundRunner",
        lambda module, driver, shares: RoundRunner(module, lambda: fake.now_s, driver, shares),
    )
    return fake, cuda.CudaDevice(0, compiler or FakeCompiler())  # type: ignore[arg-type]  # compiles what is asked here
