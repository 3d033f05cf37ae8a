"""Answer checks and failures of the CUDA device, over a CuPy of virtual time."""

import pytest
from fake_cuda import ROWS, N, fake_device, plan
from fake_cupy import FakeCupy

from tuner.devices.cuda import CudaDevice
from tuner.model import Plan, Status


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
        ("clobber", "allowed"),
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
    assert cp.shared_opt_in == {"scan": 100 * 1024}


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
