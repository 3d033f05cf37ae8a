"""Candidates that hang, crash or answer wrongly beside good ones: the run goes on and names them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cli_process import FAULTY, TX1, document, rows, tuner

from tuner.devices.choice import OpenedDevice
from tuner.devices.simulated.device import Faults, SimulatedDevice
from tuner.devices.worker import WorkerDevice
from tuner.model.plan import Plan
from tuner.model.trial import Status

MODES = {0: "ok", 1: "crashed", 2: "wrong-answer", 3: "wrong-answer", 4: "timeout"}
WORKLOAD = "faulty:N=256"


def told(plan: Plan) -> Status:
    """What becomes of a plan: as its mode says; kernels without modes are good."""
    return Status(MODES[int(plan.configuration.get("mode", 0))])


def install(monkeypatch: pytest.MonkeyPatch, faults: Faults) -> None:
    """Let `--device sim:NAME` fail as told."""

    def opened(spec: str, seed: int = 0, *, run_timeout_s: float = 60.0, **others: object) -> OpenedDevice:
        del others
        return OpenedDevice(SimulatedDevice(spec, seed, faults=faults, timeout_s=run_timeout_s), "")

    monkeypatch.setattr("tuner.search.setup.open_device", opened)


def by_mode(found: dict[str, Any]) -> dict[int, set[str]]:
    ends: dict[int, set[str]] = {}
    for trial in found["trials"]:
        ends.setdefault(trial["configurations"][WORKLOAD]["mode"], set()).add(trial["status"])
    return ends


@pytest.mark.parametrize("policy", ["exhaustive", "random"])
def test_every_fault_costs_one_trial(policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way to fail is told apart and named with its configuration; the answer is a good one."""
    install(monkeypatch, Faults(told))
    path = tmp_path / "run.json"
    words = (WORKLOAD, "--kernel", FAULTY, *TX1, "--policy", policy, "--database", tmp_path / "tuner.db")
    result = tuner("run", *words, "--json", path, "--verbose")
    found = json.loads(path.read_text())

    assert result.exit_code == 0
    assert by_mode(found) == {mode: {status} for mode, status in MODES.items()}
    assert found["best"]["configurations"][WORKLOAD]["mode"] == 0
    assert found["space"]["failed"] == 4
    shown = " ".join(result.stdout.split())
    for mode in (1, 4):
        assert f"failed: {MODES[mode]}: {WORKLOAD} [L=256 mode={mode}]: told to fail" in shown
    alike = "failed: 2 × wrong-answer: {} [L=256 mode={}]: told to fail the same: L=256 mode={}"
    assert any(alike.format(WORKLOAD, *modes) in shown for modes in ((2, 3), (3, 2)))


def test_fault_in_company_is_pinned_on_the_guilty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a co-run the failing workload is named, its partner stays ok, and both get an answer."""
    install(monkeypatch, Faults(told))
    words = ("run", "scan-lf:N=4", WORKLOAD, "--kernel", FAULTY, *TX1, "--policy", "random")
    found = document(*words, "--budget", "20", "--database", tmp_path / "tuner.db")
    failed = [trial for trial in found["trials"] if trial["status"] != "ok"]

    assert failed
    assert all(trial["workloads"]["scan-lf:N=4"]["status"] == "ok" for trial in failed)
    assert all(trial["workloads"][WORKLOAD]["status"] == trial["status"] for trial in failed)
    assert found["best"]["status"] == "ok"
    assert found["best"]["configurations"][WORKLOAD]["mode"] == 0


def test_fault_that_only_company_brings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workloads that are right alone and hang together cost that trial, and it is said that they were."""

    def together(plans: Sequence[Plan]) -> list[Status]:
        hangs = len(plans) > 1 and plans[1].configuration["L"] == 128  # the default of faulty
        return [Status.TIMEOUT if hangs else Status.OK for _ in plans]

    install(monkeypatch, Faults(told, together))
    words = ("run", "scan-lf:N=4", WORKLOAD, "--kernel", FAULTY, *TX1, "--policy", "exhaustive")
    path = tmp_path / "run.json"
    result = tuner(*words, "--database", tmp_path / "tuner.db", "--json", path)
    found = json.loads(path.read_text())

    assert result.exit_code == 0
    assert found["default"]["status"] == "timeout"
    assert found["best"]["configurations"][WORKLOAD] == {"L": 256, "mode": 0}
    assert "each workload passed its check alone" in " ".join(result.stdout.split())


def test_no_valid_trial_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When everything fails the run says so with exit code 1, and `tuner best` has nothing to serve."""
    install(monkeypatch, Faults({"faulty": Status.WRONG_ANSWER}))
    db, path = tmp_path / "tuner.db", tmp_path / "run.json"
    words = (WORKLOAD, "--kernel", FAULTY, *TX1, "--database", db)
    result = tuner("run", *words, "--policy", "exhaustive", "--json", path)
    found = json.loads(path.read_text())

    assert result.exit_code == 1
    assert "no trial was valid" in result.stderr
    assert found["best"] is None
    assert {trial["status"] for trial in found["trials"]} == {"wrong-answer"}
    assert rows(db) == len(found["trials"]) == 6
    assert tuner("best", *words).exit_code == 1


HOSTED = '''
import os, signal, time
from tuner.devices.base import Check, RunRecord
from tuner.model.jobs import DeviceIdentity; from tuner.model.trial import Status, WorkloadResult


class Hosted:
    """A device whose candidates really hang and crash, on the system's clock."""

    def __init__(self, pid_file, limits):
        self.limits = limits
        self.identity = DeviceIdentity("cuda:0", "test GPU", "GPU-0", "1", "12.9", False)
        with open(pid_file, "a") as file:
            print(os.getpid(), file=file)

    def describe(self):
        return self.identity, self.limits

    def prepare(self, plan, seed):
        pass

    def check(self, plan, seed):
        mode = plan.configuration["mode"]
        if mode == 4:
            while True:
                signal.pause()
        if mode == 1:
            os.kill(os.getpid(), signal.SIGSEGV)
        return Check(Status.WRONG_ANSWER if mode else Status.OK, "error 1 of 1" if mode else "")

    def run(self, plans, window_s):
        times = [plan.configuration["L"] * 1e-6 for plan in plans]
        now = time.monotonic()
        results = tuple(WorkloadResult(Status.OK, t) for t in times)
        return RunRecord(results, max(times), 0.0, 10, now, now + 10 * max(times))

    run_single = run

    def free_memory_bytes(self):
        return 1 << 30

    def close(self):
        pass
'''


def test_worker_that_hangs_or_dies_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real processes: one candidate loops, one crashes, two answer wrongly; no worker is left behind."""
    (tmp_path / "hosted_device.py").write_text(HOSTED)
    monkeypatch.syspath_prepend(tmp_path)
    pids = tmp_path / "pids"

    def opened(spec: str, seed: int = 0, *, run_timeout_s: float = 60.0, **others: object) -> OpenedDevice:
        del seed, others
        args = (str(pids), SimulatedDevice("h200").limits)
        worker = WorkerDevice(spec, target="hosted_device:Hosted", args=args, run_timeout_s=run_timeout_s)
        return OpenedDevice(worker, "")

    monkeypatch.setattr("tuner.search.setup.open_device", opened)
    words = (WORKLOAD, "--kernel", FAULTY, "--device", "cuda:0", "--objective", "time")
    found = document(
        *("run", *words, "--policy", "exhaustive", "--trial-timeout", "1"),
        *("--database", tmp_path / "tuner.db"),
    )

    assert by_mode(found) == {mode: {status} for mode, status in MODES.items()}
    assert found["best"]["configurations"][WORKLOAD] == {"L": 128, "mode": 0}
    assert found["modelled"] is False
    workers = [int(line) for line in pids.read_text().split()]
    assert 2 <= len(workers) <= 3, "the crash brought another; so does the time-out if a run follows"
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]
