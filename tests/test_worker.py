"""The worker: candidates that hang, crash or raise cost one result; devices are chosen and described."""

import os
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tuner.devices import choice
from tuner.devices.base import Device
from tuner.devices.choice import describe_devices, open_device
from tuner.devices.cuda.probe import driver_problem, nvidia_card, nvidia_device_file
from tuner.devices.simulated.device import SimulatedDevice
from tuner.devices.worker import WorkerDevice
from tuner.model.errors import DeviceError, DeviceUnavailableError, UncheckableError, UnknownNameError
from tuner.model.plan import Configuration, Plan, ProblemSpec, Resources, Source, Stage, Work, Workload
from tuner.model.trial import Status

SERVED = '''
import os, signal
from tuner.devices.cuda.probe import driver_problem, nvidia_card, nvidia_device_file
from tuner.devices.simulated.device import SimulatedDevice
from tuner.model.errors import DeviceUnavailableError, UncheckableError
from tuner.devices.base import Check, RunRecord
from tuner.model.trial import Status, WorkloadResult


class Moody:
    """Behaves as the kernel of a plan is named."""

    def __init__(self, pid_file, built_most=99):
        self.model = SimulatedDevice("k40c")
        self.identity, self.limits = self.model.identity, self.model.limits
        with open(pid_file, "a") as file:
            print(os.getpid(), file=file)
        if len(open(pid_file).readlines()) > built_most:
            raise DeviceUnavailableError("the GPU fell off the bus")

    def describe(self):
        return self.identity, self.limits

    def check(self, plan, seed):
        return Check(self.act(plan.workload.kernel), f"seed {seed}")

    def prepare(self, plan, seed):
        if plan.workload.kernel == "no-reference":
            raise UncheckableError("reference.py:right: raised ValueError: no data (line 3)")
        self.act(plan.workload.kernel.removeprefix("reference-"))

    def run(self, plans, window_s):
        results = tuple(WorkloadResult(self.act("co-" + plan.workload.kernel), window_s) for plan in plans)
        return RunRecord(results, makespan_s=window_s, rounds=1)

    def act(self, mood):
        if mood.endswith("hangs"):
            while True:
                signal.pause()
        if mood.endswith("segfaults"):
            os.kill(os.getpid(), signal.SIGSEGV)
        if mood.endswith("raises"):
            raise ValueError("a mood")
        if mood == "context-lost" or mood == "co-context-lost-together":
            return Status.CRASHED
        return Status.OK

    def free_memory_bytes(self):
        return 12345

    def pulse(self, pulses):
        if len(pulses) > 2:
            os.kill(os.getpid(), signal.SIGSEGV)
        return self.model.pulse(pulses)

    def close(self):
        pass
'''


def plan(kernel: str) -> Plan:
    stage = Stage(
        name="main",
        source=Source("k.cu", "__global__ void k() {}"),
        entry="k",
        options=(),
        grid=(1, 1, 1),
        block=(32, 1, 1),
        shared_bytes=0,
        arguments=(),
        declared=Resources(8),
    )
    return Plan(
        Workload(kernel, (("N", 64),), 1),
        Configuration({"P": 2}),
        (stage,),
        (),
        ProblemSpec("consistent"),
        Work(1, 1),
    )


@pytest.fixture
def pids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where hosted devices write their process ids; none may be alive at the end."""
    (tmp_path / "moody_device.py").write_text(SERVED)
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "pids"
    yield path
    assert not [pid for pid in started(path) if alive(pid)]


def started(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def hosted(pids: Path) -> Iterator[WorkerDevice]:
    # two seconds are a hang's cost; every other call answers at once
    device = WorkerDevice(
        "cuda:7", target="moody_device:Moody", args=(str(pids),), run_timeout_s=2.0, reference_s=0.5
    )
    yield device
    device.close()


def test_hosted_device_answers(hosted: WorkerDevice, pids: Path) -> None:
    """A hosted device's identity, limits, checks, runs and memory are what it says, from one process."""
    device: Device = hosted
    model = SimulatedDevice("k40c")
    assert device.identity == model.identity
    assert device.limits == model.limits
    check = device.check(plan("good"), 41)
    assert (check.status, check.detail) == (Status.OK, "seed 41")
    record = device.run([plan("good"), plan("fine")], 0.25)
    assert [result.status for result in record.results] == [Status.OK, Status.OK]
    assert record.makespan_s == 0.25
    assert device.free_memory_bytes() == 12345
    assert started(pids) == [hosted.pid]
    assert hosted.pid != os.getpid()


def test_pulses_are_played_by_the_hosted_device(hosted: WorkerDevice) -> None:
    """The worker plays pulses and tells when they were; one that dies of them is an error, and replaced."""
    assert hosted.pulse([(0.5, 0.25), (1.0, 0.0)]) == [(0.0, 0.5), (0.75, 1.75)]

    with pytest.raises(DeviceError, match="killed by SIGSEGV"):
        hosted.pulse([(0.1, 0.1)] * 3)
    assert hosted.pulse([(0.5, 0.0)]) == [(0.0, 0.5)]


@pytest.mark.parametrize(
    ("mood", "status", "detail"),
    [
        ("hangs", Status.TIMEOUT, "no answer within 2 s"),
        ("segfaults", Status.CRASHED, "killed by SIGSEGV"),
        ("raises", Status.CRASHED, "ValueError: a mood"),
    ],
)
def test_bad_candidate_costs_one_check(
    hosted: WorkerDevice, pids: Path, mood: str, status: Status, detail: str
) -> None:
    """A candidate that hangs, crashes or raises is a status; the next check runs in another process."""
    first = hosted.pid
    check = hosted.check(plan(mood), 1)
    assert check.status is status
    assert detail in check.detail
    assert check.seconds > 0
    assert hosted.pid is None
    assert first is not None
    assert not alive(first)
    assert hosted.check(plan("good"), 2).status is Status.OK
    assert len(started(pids)) == 2


@pytest.mark.parametrize(("mood", "status"), [("hangs", Status.TIMEOUT), ("segfaults", Status.CRASHED)])
def test_bad_co_run_costs_one_run(hosted: WorkerDevice, pids: Path, mood: str, status: Status) -> None:
    """What takes a co-run down is the status of all its workloads; the next run works."""
    record = hosted.run([plan("good"), plan(mood)], 0.0)
    assert [result.status for result in record.results] == [status, status]
    assert record.makespan_s is None
    assert record.end_s > record.start_s
    assert hosted.run([plan("good")], 0.1).results[0].status is Status.OK
    assert len(started(pids)) == 2


@pytest.mark.parametrize(
    ("kernel", "detail"),
    [
        ("no-reference", r"raised ValueError: no data \(line 3\)"),
        ("reference-hangs", "the reference was not made within 0.5 s"),
        ("reference-segfaults", "the reference cannot be made: .*killed by SIGSEGV"),
    ],
)
def test_a_reference_at_fault_is_no_status(pids: Path, kernel: str, detail: str) -> None:
    """A reference that raises, hangs or crashes refuses the run: no configuration is blamed for it."""
    hurried = WorkerDevice("cuda:7", target="moody_device:Moody", args=(str(pids),), reference_s=0.5)
    with closing(hurried) as device:
        stated = replace(plan(kernel), problem=ProblemSpec("function"))
        with pytest.raises(UncheckableError, match=detail):
            device.check(stated, 1)
        assert device.check(replace(plan("good"), problem=ProblemSpec("function")), 1).status is Status.OK


def test_lost_context_replaces_the_worker(hosted: WorkerDevice, pids: Path) -> None:
    """A device that reports a crash itself is not used again: its context is gone."""
    assert hosted.check(plan("context-lost"), 1).status is Status.CRASHED
    assert hosted.run([plan("context-lost-together")], 0.0).results[0].status is Status.CRASHED
    assert hosted.check(plan("good"), 1).status is Status.OK
    assert len(started(pids)) == 3


def test_a_worker_that_dies_between_two_calls_blames_no_kernel(hosted: WorkerDevice, pids: Path) -> None:
    """The next one knows no plan by its number: it gets them whole, and goes on."""
    good = plan("good")
    assert [hosted.check(good, seed).status for seed in (1, 2)] == [Status.OK] * 2
    (pid,) = started(pids)
    descriptor = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    assert select.select([descriptor], [], [], 30.0)[0]
    os.close(descriptor)

    assert hosted.check(good, 3).status is Status.OK
    assert hosted.run([good], 0.0).results[0].status is Status.OK
    assert len(started(pids)) == 2


def test_worker_that_cannot_be_restarted(pids: Path) -> None:
    """A device that is gone after a crash is an error that says so, not a status."""
    device = WorkerDevice("cuda:7", target="moody_device:Moody", args=(str(pids), 1))
    assert device.check(plan("segfaults"), 1).status is Status.CRASHED
    with pytest.raises(DeviceUnavailableError, match="fell off the bus"):
        device.check(plan("good"), 1)
    device.close()


def test_worker_that_cannot_start(pids: Path) -> None:
    """A hosted device that cannot be built raises what it raised, or says that it died."""
    with pytest.raises(DeviceUnavailableError, match="fell off the bus"):
        WorkerDevice("cuda:7", target="moody_device:Moody", args=(str(pids), 0))
    with pytest.raises(
        DeviceUnavailableError, match=r"cuda:7: the worker cannot be started: .*exit status 5"
    ):
        WorkerDevice("cuda:7", target="os:_exit", args=(5,))


def test_closed_worker(hosted: WorkerDevice) -> None:
    """A closed device starts no other worker."""
    hosted.close()
    hosted.close()
    assert hosted.pid is None
    with pytest.raises(DeviceError, match="cuda:7: the device is closed"):
        hosted.check(plan("good"), 1)


def test_open_simulated_device() -> None:
    """A simulated device is opened by name, in this process, without a notice."""
    device, notice = open_device("sim:k40c", seed=3)
    assert isinstance(device, SimulatedDevice)
    assert device.identity.spec == "sim:k40c"
    assert notice == ""
    device.close()


@pytest.mark.parametrize("spec", ["gpu:0", "cuda:x", "cuda:-1", "sim", "", "sim:k4oc"])
def test_unknown_device(spec: str) -> None:
    """A device that is none is refused with the choices."""
    with pytest.raises(UnknownNameError, match=r"cuda:N or one of .*sim:jetson-tx1|did you mean 'k40c'"):
        open_device(spec)


def test_no_driver_falls_back_to_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a driver the Jetson TX1 is modelled, and the notice says so and why."""
    monkeypatch.setattr(choice, "driver_problem", lambda: "no NVIDIA driver (not here)")
    device, notice = open_device(None)
    assert device.identity.spec == "sim:jetson-tx1"
    assert "no NVIDIA driver (not here)" in notice
    assert "modelled" in notice
    device.close()


def test_gpu_that_does_not_open_falls_back_to_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver without a usable GPU falls back too, unless that GPU was named."""

    def refuse(*_: object, **__: object) -> WorkerDevice:
        raise DeviceUnavailableError("cuda:0: CuPy cannot be imported")

    monkeypatch.setattr(choice, "driver_problem", lambda: None)
    monkeypatch.setattr(choice, "nvidia_device_file", lambda: None)
    monkeypatch.setattr(choice, "WorkerDevice", refuse)
    device, notice = open_device("auto")
    assert device.identity.modelled
    assert "CuPy cannot be imported" in notice
    device.close()
    with pytest.raises(DeviceUnavailableError, match="CuPy"):
        open_device("cuda:0")


def test_gpu_with_a_broken_driver_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a GPU gets no modelled numbers unasked."""
    monkeypatch.setattr(choice, "driver_problem", lambda: "no NVIDIA driver (broken)")
    monkeypatch.setattr(choice, "nvidia_device_file", lambda: "/dev/nvidia0")
    with pytest.raises(DeviceUnavailableError, match=r"/dev/nvidia0.*broken.*--allow-simulated"):
        open_device(None)
    device, notice = open_device(None, allow_simulated=True)
    assert device.identity.modelled
    assert "broken" in notice
    device.close()


def test_card_without_a_driver_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A card on the PCI bus is no reason to refuse, and is named."""
    for address, vendor, kind in (
        ("0000:00:02.0", "0x8086", "0x030000"),
        ("0000:01:00.0", "0x10de", "0x030200"),
    ):
        (tmp_path / address).mkdir()
        (tmp_path / address / "vendor").write_text(f"{vendor}\n")
        (tmp_path / address / "class").write_text(f"{kind}\n")
    assert nvidia_card(tmp_path) == "0000:01:00.0"
    assert nvidia_card(tmp_path / "nothing") is None
    monkeypatch.setattr(choice, "driver_problem", lambda: "no NVIDIA driver (none)")
    monkeypatch.setattr(choice, "nvidia_device_file", lambda: None)
    monkeypatch.setattr(choice, "nvidia_card", lambda: "0000:01:00.0")
    device, notice = open_device(None)
    assert "the NVIDIA card 0000:01:00.0 has no driver here" in notice
    device.close()


@pytest.mark.parametrize(("name", "found"), [("nvidia0", True), ("nvhost-gpu", True), ("null", False)])
def test_device_files_of_gpus(tmp_path: Path, name: str, *, found: bool) -> None:
    """GPUs of servers and of Jetsons are told by their device files."""
    (tmp_path / name).touch()
    assert nvidia_device_file(tmp_path) == (str(tmp_path / name) if found else None)


def test_devices_are_described(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every simulated GPU is listed with limits, clocks and sensor, and what is missing with the reason."""
    monkeypatch.setattr(choice, "driver_problem", lambda: "no NVIDIA driver (not here)")
    reports = {report.spec: report for report in describe_devices()}
    assert reports["cuda"].missing == ("no NVIDIA driver (not here)",)
    assert reports["cuda"].limits is None
    k40c = reports["sim:k40c"]
    assert k40c.limits is not None
    assert k40c.limits.multiprocessors == 15
    assert k40c.identity is not None
    assert k40c.identity.modelled
    assert k40c.clocks_mhz == (875, 810, 745, 666)
    assert k40c.sensor == "simulated-stream (gpu)"
    assert k40c.missing == ()
    (reason,) = reports["sim:gtx580"].missing
    assert "no power sensor" in reason


@pytest.mark.parametrize(
    ("library", "mode", "expected"),
    [
        ("libno-such-driver.so.1", 0o666, "no NVIDIA driver"),
        (None, None, None),
        (None, 0o666, None),
    ],
)
def test_driver_problem(tmp_path: Path, library: str | None, mode: int | None, expected: str | None) -> None:
    """A missing driver is told apart from one that may work."""
    node = tmp_path / "nvidiactl"
    if mode is not None:
        node.touch(mode)
    problem = driver_problem(library or "libc.so.6", node)
    assert (problem or "").startswith(expected or "")
    assert (problem is None) == (expected is None)


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A control node that may not be opened is named."""
    denied: Callable[..., bool] = lambda *_: False  # noqa: E731 - root may open everything
    monkeypatch.setattr(os, "access", denied)
    node = tmp_path / "nvidiactl"
    node.touch()
    assert f"no permission to open {node}" in (driver_problem("libc.so.6", node) or "")
