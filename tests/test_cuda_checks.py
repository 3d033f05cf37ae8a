"""Answer checks and failures of the CUDA device, over a CuPy of virtual time."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_cuda import ROWS, N, fake_device, plan
from fake_cupy import DeviceArray, FakeCupy

from tuner.devices.cuda.code import CodeCache
from tuner.devices.cuda.device import CudaDevice
from tuner.model.errors import CompilerUnavailableError, UncheckableError
from tuner.model.plan import Buffer, Plan
from tuner.model.trial import Status
from tuner.problems.base import Deviation
from tuner.problems.scans import Scan


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> tuple[FakeCupy, CudaDevice]:
    return fake_device(monkeypatch)


@pytest.fixture
def cp(fake: tuple[FakeCupy, CudaDevice]) -> FakeCupy:
    return fake[0]


@pytest.fixture
def device(fake: tuple[FakeCupy, CudaDevice]) -> CudaDevice:
    return fake[1]


def test_right_answer(device: CudaDevice) -> None:
    """A right answer is ok, whatever the seed, and its error is told."""
    for seed in range(5):
        check = device.check(plan("scan"), seed)
        assert check.status is Status.OK
        assert "allowed" in check.detail


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("half", "allowed"),
        ("clobber", "wrote to buffer 'x', whose role is 'in'"),
        ("nothing", "allowed"),
        ("meddle", "wrote to buffer 'x'"),
        ("off", "(problem 17)"),
        ("overrun", "wrote outside of buffer 'y'"),
    ],
)
def test_wrong_answer(device: CudaDevice, entry: str, words: str) -> None:
    """Unwritten, clobbered, locally wrong and overrun arrays are wrong answers, even after a right one."""
    assert device.check(plan("scan"), 1).status is Status.OK
    check = device.check(plan(entry), 2)
    assert check.status is Status.WRONG_ANSWER
    assert words in check.detail
    assert device.check(plan("scan"), 3).status is Status.OK


def test_arrays_without_elements_need_nothing(device: CudaDevice) -> None:
    """A table that a configuration has no use for is neither filled nor looked at; the answer is right."""
    given = plan("scan")
    given = replace(given, buffers=(*given.buffers, Buffer("table", "complex64", (0,), "table")))
    assert device.check(given, 1).status is Status.OK
    assert device.run([given], 1e-3).makespan_s


def test_in_place_answer(device: CudaDevice) -> None:
    """A buffer that is read and written is compared with what it held before."""
    assert device.check(plan("scan", role="inout"), 1).status is Status.OK
    assert device.check(plan("scan", "scan", role="inout"), 1).status is Status.WRONG_ANSWER


def test_answer_by_agreement(device: CudaDevice) -> None:
    """Where only the default can judge, its plan runs first on the same inputs."""
    default = plan("scan", problem="consistent")
    assert device.check(default, 1).status is Status.OK
    same = plan("slow", problem="consistent", baseline=default)
    assert device.check(same, 2).status is Status.OK
    other = plan("double", problem="consistent", baseline=default)
    assert device.check(other, 2).status is Status.WRONG_ANSWER


def test_nothing_is_compared_where_nothing_is_said(device: CudaDevice) -> None:
    """Any answer is ok, inputs may be written, but nothing outside of the arrays."""
    for entry in ("scan", "half", "clobber"):
        assert device.check(plan(entry, problem="unchecked"), 1).status is Status.OK
    check = device.check(plan("overrun", problem="unchecked"), 1)
    assert (check.status, check.detail) == (Status.WRONG_ANSWER, "wrote outside of buffer 'y'")


def test_outputs_of_one_run(device: CudaDevice, tmp_path: Path) -> None:
    """Arrays as a run leaves them are written to files; a failure is a status."""
    check = device.outputs(plan("scan", problem="unchecked"), 1, ["x", "y"], str(tmp_path))
    assert check.status is Status.OK
    x, y = (np.load(tmp_path / f"{name}.npy") for name in "xy")
    assert np.allclose(np.cumsum(x, axis=1, dtype=np.float64), y, atol=1e-3)
    assert device.outputs(plan("wrong_syntax"), 1, ["y"], str(tmp_path)).status is Status.COMPILE_ERROR


@pytest.mark.parametrize(
    ("bad", "status", "words"),
    [
        (plan("wrong_syntax"), Status.COMPILE_ERROR, "expected a ';'"),
        (plan("broken"), Status.LAUNCH_ERROR, "image is invalid"),
        (plan("refused"), Status.LAUNCH_ERROR, "too many resources"),
        (plan("scan", block=(2048, 1, 1)), Status.LAUNCH_ERROR, "2048 threads per block"),
        (plan("scan", grid=(0, 1, 1)), Status.LAUNCH_ERROR, "grid (0, 1, 1)"),
        (plan("scan", grid=(2**31, 1, 1)), Status.LAUNCH_ERROR, "grid (2147483648, 1, 1)"),
        (plan("scan", shared_bytes=2**20), Status.LAUNCH_ERROR, "1048576 bytes of shared memory"),
    ],
)
def test_refusals(device: CudaDevice, bad: Plan, status: Status, words: str) -> None:
    """What cannot be compiled, loaded or launched is a status of that workload alone; the device goes on."""
    check = device.check(bad, 1)
    assert check.status is status
    assert words in check.detail
    record = device.run([plan("scan", kernel="good"), bad], 0.05)
    assert [result.status for result in record.results] == [Status.OK, status]
    assert record.results[0].time_s is None
    assert words in record.results[1].detail
    assert record.makespan_s is None
    assert device.run([plan("scan")], 0.05).results[0].status is Status.OK


def test_shared_memory_opt_in(cp: FakeCupy, device: CudaDevice) -> None:
    """More than 48 KiB of shared memory are asked for before the launch."""
    assert device.check(plan("scan", shared_bytes=100 * 1024), 1).status is Status.OK
    assert cp.kernels["scan"].attributes == {"shared": 100 * 1024}


def test_illegal_access_loses_the_context(device: CudaDevice) -> None:
    """A sticky error is a crash, of this plan and of everything after it until the worker is replaced."""
    assert device.check(plan("illegal"), 1).status is Status.CRASHED
    check = device.check(plan("scan"), 1)
    assert check.status is Status.CRASHED
    assert "the CUDA context is lost" in check.detail
    record = device.run([plan("scan"), plan("scan", kernel="other")], 0.1)
    assert [result.status for result in record.results] == [Status.CRASHED, Status.CRASHED]
    device.close()


def test_memory_is_given_back_when_it_runs_short(cp: FakeCupy, device: CudaDevice) -> None:
    """Arrays of workloads that do not run make room; what is still too large is a launch error."""
    cp.memory_bytes = 12 * ROWS * N * 4
    for kernel in ("a", "b", "c", "d", "e", "f", "g"):
        assert device.check(plan("scan", kernel=kernel), 1).status is Status.OK
    check = device.check(plan("scan", rows=16 * ROWS), 1)
    assert check.status is Status.LAUNCH_ERROR
    assert "do not fit" in check.detail
    assert device.check(plan("scan"), 1).status is Status.OK


def test_arrays_of_other_shapes_make_room(cp: FakeCupy, device: CudaDevice) -> None:
    """A buffer whose shape follows a tunable is kept for the present configuration only."""
    cp.memory_bytes = 16 * ROWS * N * 4
    for scratch in range(ROWS * N, ROWS * N + 20):
        part = plan("ignoring", scratch=scratch)
        assert device.check(part, 1).status is Status.OK
        assert device.run([part], 0.01).results[0].status is Status.OK
    assert device.check(plan("scan", kernel="other"), 1).status is Status.OK
    held = cp.allocated_bytes
    for scratch in range(ROWS * N, ROWS * N + 5):
        device.check(plan("ignoring", scratch=scratch), 1)
    assert cp.allocated_bytes <= held + 5 * 4


def test_evicted_arrays_of_partners_stay(cp: FakeCupy, device: CudaDevice) -> None:
    """Another configuration of one workload takes nothing of the others."""
    partner = plan("reading", kernel="partner")
    seen: list[float] = []
    cp.kernels["reading"].action = lambda x, *_: seen.append(float(abs(x).max()))
    device.check(partner, 1)
    device.check(plan("ignoring", scratch=7), 1)
    device.run([plan("ignoring", scratch=8), partner], 0.01)
    assert len(seen) > 3
    assert set(seen) == {seen[0]}


def test_inputs_are_loaded_by_shape(cp: FakeCupy, device: CudaDevice) -> None:
    """An input whose shape follows a tunable is filled although its workload has run before."""
    seen: list[float] = []
    cp.kernels["reading"].action = lambda x, *_: seen.append(float(abs(x).max()))
    for rows in (ROWS, 2 * ROWS):
        device.run([plan("reading", rows=rows, batch=ROWS)], 0.01)
        assert 0.5 < seen[-1] <= 1.0


def test_inputs_that_were_written_to_are_loaded_anew(cp: FakeCupy, device: CudaDevice) -> None:
    """What a wrong kernel leaves in the inputs is not what the next one is timed with."""
    seen: list[float] = []
    cp.kernels["reading"].action = lambda x, *_: seen.append(float(abs(x).max()))
    assert device.check(plan("clobber"), 1).status is Status.WRONG_ANSWER
    device.run([plan("reading")], 0.01)
    assert min(seen) > 0.5


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (plan("scan", problem="tridiagonal"), "[problem] name = 'tridiagonal' needs four real inputs"),
        (plan("scan", batch=ROWS + 1), "buffer = 'x': shape [64, 128] holds 64 problems"),
        (plan("scan", problem="sort"), "unknown problem 'sort'"),
        (plan("scan", problem="expression", reference=(("y", "x + q"),)), "'q'"),
    ],
)
def test_problem_that_does_not_fit_is_refused(device: CudaDevice, bad: Plan, words: str) -> None:
    """What the problem refuses is no configuration's fault: it is raised in its words, the device goes on."""
    with pytest.raises(UncheckableError, match=re.escape(words)):
        device.check(bad, 1)
    assert device.check(plan("scan"), 1).status is Status.OK


def test_problem_that_breaks_is_a_status(device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception nobody thought of ends one check, and is told with its kind."""

    def broken(*_: object) -> Deviation:
        raise IndexError("index 7 is out of bounds")

    monkeypatch.setattr(Scan, "compare", broken)
    check = device.check(plan("scan"), 1)
    assert check.status is Status.LAUNCH_ERROR
    assert check.detail == "IndexError: index 7 is out of bounds"


def test_trouble_of_the_machine_is_raised(device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """What says nothing of a plan, such as a missing compiler, is no status of it."""

    def gone(*_: object) -> None:
        raise CompilerUnavailableError("no NVRTC")

    monkeypatch.setattr(CodeCache, "launches", gone)
    with pytest.raises(CompilerUnavailableError):
        device.check(plan("scan"), 1)


def test_shared_inputs_come_whole(cp: FakeCupy, device: CudaDevice) -> None:
    """Where all inputs are coefficients of every row, the sample takes rows of the output only."""

    def spread(x: DeviceArray, y: DeviceArray, _: int) -> None:
        y[...] = 2 * x

    cp.kernels["reading"].action = spread
    wide = plan("reading", problem="expression", reference=(("y", "2 * x"),))
    shared = replace(wide, buffers=(Buffer("x", "float32", (N,), "in"), wide.buffers[1]))
    assert device.check(shared, 1).status is Status.OK
