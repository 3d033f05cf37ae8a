"""The CUDA device and its worker on a real GPU: answers, rounds, windows, failures, hangs, joules.

``pytest -m gpu tests/test_cuda_gpu.py -x`` is the quick look at a new machine.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from tuner.devices.base import Check
from tuner.devices.choice import describe_devices, open_device
from tuner.devices.cuda.device import CudaDevice
from tuner.devices.cuda.driver import DriverCalls
from tuner.devices.cuda.lanes import Lanes
from tuner.devices.cuda.launches import Launch
from tuner.devices.cuda.rounds import WARM_S, ReplayBuilder
from tuner.devices.sensors import open_clocks, open_meter
from tuner.devices.worker import WorkerDevice
from tuner.kernel_files.catalog import Catalog
from tuner.measurement.measurer import TrialMeasurer
from tuner.measurement.window import suggested_window_s
from tuner.model.plan import Buffer, Configuration, Plan, ProblemSpec, Scalar, Source, Stage, Work, Workload
from tuner.model.trial import Status, Trial

pytestmark = pytest.mark.gpu

ROWS, N = 2**16, 256
LONGEST_ROW = 2**24  # elements of a row of the catalogue here; longer ones have tests of their own

CODE = """
// one warp per row of N = 256 floats; MODE says what goes wrong
enum { RIGHT, UNWRITTEN, OFF, OVERRUN, ILLEGAL, HANG };

template <int MODE>
__global__ void rows(const float* x, float* y, int count) {
    if (MODE == HANG) for (volatile int i = 0; ; ++i) {}
    if (MODE == ILLEGAL) y += 1ll << 40;
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= count || (MODE == UNWRITTEN && row == count / 2)) return;
    float carry = 0;
    for (int i = lane; i < 256; i += 32) {
        float value = x[row * 256ll + i];
        for (int step = 1; step < 32; step *= 2) {
            float other = __shfl_up_sync(~0u, value, step);
            if (lane >= step) value += other;
        }
        y[row * 256ll + i] = carry + value + (MODE == OFF && row == count - 1 ? 1.f : 0.f);
        carry += __shfl_sync(~0u, value, 31);
    }
    if (MODE == OVERRUN && row == count - 1) y[count * 256ll + lane] = 0;
}

__global__ void twice(float* x, int count) { // in place, through more shared memory than comes by itself
    extern __shared__ float held[];
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    held[blockDim.x * 24 + threadIdx.x] = i < count * 256ll ? x[i] : 0;
    __syncthreads();
    if (i < count * 256ll) x[i] = 2 * held[blockDim.x * 24 + threadIdx.x];
}
"""


def stage(entry: str, rows: int, names: tuple[str, ...], shared_bytes: int = 0) -> Stage:
    threads = rows * (N if entry == "twice" else 32)
    return Stage(
        name="only",
        source=Source("rows.cu", CODE),
        entry=entry,
        options=("--std=c++17",),
        grid=(-(-threads // 1024), 1, 1),
        block=(1024, 1, 1),
        shared_bytes=shared_bytes,
        arguments=(*names, Scalar("int32", rows)),
    )


def scan(mode: str = "RIGHT", kernel: str = "rows", rows: int = ROWS) -> Plan:
    return Plan(
        Workload(kernel, (("N", N),), rows),
        Configuration({"mode": mode}),
        (stage(f"rows<{mode}>", rows, ("x", "y")),),
        (buffer("x", "in", rows), buffer("y", "out", rows)),
        ProblemSpec("scan"),
        Work(8.0 * rows * N, rows * N),
    )


def twice() -> Plan:
    return Plan(
        Workload("twice", (("N", N),), ROWS),
        Configuration({}),
        (stage("twice", ROWS, ("x",), shared_bytes=100 * 1024),),
        (buffer("x", "inout", ROWS),),
        ProblemSpec("expression", reference=(("x", "2 * x"),)),
        Work(8.0 * ROWS * N, ROWS * N),
    )


def buffer(name: str, role: Literal["in", "out", "inout"], rows: int) -> Buffer:
    return Buffer(name, "float32", (rows, N), role)


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerDevice]:
    """The first GPU in a worker, with time enough for a check and no more."""
    opened = WorkerDevice("cuda:0", run_timeout_s=20.0)
    yield opened
    opened.close()


def test_identity(device: CudaDevice) -> None:
    """A GPU is known by name, UUID, driver and compiler."""
    identity = device.identity
    assert identity.name
    assert re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", identity.uuid)
    assert re.match(r"\d+\.\d+|CUDA \d+\.\d+", identity.driver)
    assert re.match(r"1[2-9]\.\d+", identity.runtime)
    assert not identity.modelled
    assert device.limits.l2_bytes > 0
    assert 0 < device.free_memory_bytes() <= device.limits.memory_bytes


def test_uuid_is_nvmls(device: CudaDevice) -> None:
    """NVML knows the GPU by the same UUID, or sensors would look at another one."""
    pynvml = pytest.importorskip("pynvml")
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(device.identity.uuid)
    assert pynvml.nvmlDeviceGetName(handle) == device.identity.name
    pynvml.nvmlShutdown()


@pytest.mark.parametrize(
    ("plan", "status"),
    [
        (scan(), Status.OK),
        (twice(), Status.OK),
        (scan("UNWRITTEN"), Status.WRONG_ANSWER),
        (scan("OFF"), Status.WRONG_ANSWER),
        (scan("OVERRUN"), Status.WRONG_ANSWER),
        (scan("NO_SUCH_MODE"), Status.COMPILE_ERROR),
    ],
    ids=lambda value: value.label() if isinstance(value, Plan) else value.value,
)
def test_answers(device: CudaDevice, plan: Plan, status: Status) -> None:
    """Right answers pass; one unwritten row, one row off by one, and a write past the end do not."""
    check = device.check(plan, 5)
    assert check.status is status, check.detail
    assert device.check(scan(), 6).status is Status.OK


def test_catalogue_answers(device: CudaDevice) -> None:
    """The default configuration of every kernel of rows is right in its shortest and a long row."""
    catalog = Catalog.load()
    wrong: list[tuple[str, Check]] = []
    for name in catalog.names:
        kernel = catalog.kernel(name)
        if kernel.path.suffix == ".cu" or kernel.family in (
            "application",
            "linalg",
        ):  # see the tests of their own
            continue
        smallest = {size: allowed[0] for size, allowed in kernel.sizes.items()}
        for size in (smallest["N"], min(kernel.sizes["N"][-1], LONGEST_ROW)):
            sizes = smallest | {"N": size}
            batch = max(1, min(1000, LONGEST_ROW // int(size)))
            workload = kernel.workload(sizes, batch)
            check = device.check(kernel.plan(workload, kernel.default(workload)), 7)
            if check.status is not Status.OK:
                wrong.append((str(workload), check))
    assert not wrong


def test_co_run(device: CudaDevice) -> None:
    """A co-run lasts at least as long as its slowest part and no longer than all after each other."""
    parts = [scan(), scan(kernel="other", rows=2 * ROWS), twice()]
    alone = [device.run([part], 0.1).makespan_s or 0.0 for part in parts]
    record = device.run(parts, 0.3)
    assert [result.status for result in record.results] == [Status.OK] * 3
    assert record.flags == ()
    assert record.makespan_s is not None
    assert 0.9 * max(alone) < record.makespan_s < 1.2 * sum(alone)
    assert record.makespan_uncertainty_s > 0
    for result, alone_s in zip(record.results, alone, strict=True):
        assert result.time_s is not None
        assert 0.8 * alone_s < result.time_s <= 1.02 * record.makespan_s


def test_own_times_repeat(device: CudaDevice) -> None:
    """Each workload has the same part of a co-run in window after window, whatever ran in between."""
    parts = [scan(), scan(kernel="other", rows=2 * ROWS), twice()]
    found = []
    for window_s in (0.3, 0.3, 0.003, 0.3):
        record = device.run(parts, window_s)
        assert record.makespan_s is not None
        found.append([(result.time_s or 0.0) / record.makespan_s for result in record.results])
        device.run(parts[:1], 0.02)
    for shares in found[1:]:
        assert shares == pytest.approx(found[0], abs=0.08)
    assert max(found[0]) > 0.95


@pytest.mark.parametrize("parts", [[scan(rows=1024)], [scan()], [scan(), scan(kernel="other"), twice()]])
def test_short_windows(device: CudaDevice, parts: list[Plan]) -> None:
    """A window of 3 ms has five rounds or more, and tells the makespan of a long one and how sure it is."""
    whole = device.run(parts, 0.3)
    short = [device.run(parts, 0.003) for _ in range(5)]
    assert whole.makespan_s is not None
    for record in short:
        assert record.rounds >= 5
        assert record.makespan_s is not None
        assert record.makespan_uncertainty_s < 0.05 * record.makespan_s
        assert record.makespan_s == pytest.approx(whole.makespan_s, rel=0.1)


def test_a_lone_workload_takes_as_long_as_its_launches(cp: Any, device: CudaDevice) -> None:
    """Rounds of a kernel of some microseconds last as long as launches back to back in one stream do."""
    plan = scan(rows=1024)
    record = device.run([plan], 0.3)
    assert record.makespan_s is not None
    back_to_back_s = launch_s(cp, plan)
    assert record.makespan_s < back_to_back_s + 1e-6


def launch_s(cp: Any, plan: Plan) -> float:
    """Seconds of a launch among 500, behind a long one that lets the host get ahead of the device."""
    (only,) = plan.stages
    module = cp.RawModule(code=CODE, options=("--std=c++17",), name_expressions=(only.entry,))
    function, stream = module.get_function(only.entry), cp.cuda.Stream(non_blocking=True)
    x, y = (cp.zeros((64, *plan.buffers[0].shape), cp.float32) for _ in range(2))
    begin, end = cp.cuda.Event(), cp.cuda.Event()
    many = cp.zeros((2**20, N), cp.float32)
    cp.cuda.runtime.deviceSynchronize()
    for _ in range(12):
        function((2**15,), (1024,), (many, many, cp.int32(2**20)), stream=stream)
    begin.record(stream)
    for index in range(500):
        arguments = (x[index % 64], y[index % 64], cp.int32(plan.workload.batch))
        function(only.grid, only.block, arguments, stream=stream)
    end.record(stream)
    end.synchronize()
    return float(cp.cuda.get_elapsed_time(begin, end)) * 1e-3 / 500


BUSY = """
extern "C" __global__ void busy(unsigned long long* first, int count) {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (threadIdx.x == 0) atomicMin(first, now);
    float value = threadIdx.x;
    for (int i = 0; i < count; ++i) value = value * 1.0001f + 0.5f;
    if (value == 0.25f) *first = 0;
}
"""


@pytest.mark.parametrize("replay_s", [1e-5, 1e-2])
def test_every_round_starts_in_the_order_of_the_trial(cp: Any, device: CudaDevice, replay_s: float) -> None:
    """Workloads that fill the GPU are served in their order, in samples and in each round of a graph."""
    sets, workloads = 8, 3
    first = cp.full((sets, workloads), 2**62, cp.uint64)
    function = cp.RawModule(code=BUSY).get_function("busy").kernel
    blocks = device.limits.multiprocessors * 8 * 3
    rotation = [
        [
            (
                Launch(
                    function,
                    (blocks, 1, 1),
                    (256, 1, 1),
                    0,
                    (first[place, lane : lane + 1].data, np.int32(9000)),
                ),
            )
            for lane in range(workloads)
        ]
        for place in range(sets)
    ]
    lanes = Lanes(cp, DriverCalls())
    lanes.open(workloads)
    cycle = ReplayBuilder(cp, lanes).cycle(rotation, 1e-3, replay_s, 1000)
    assert cycle.flag is None
    assert {replay.rounds for replay in cycle.replays} == {1 if replay_s < 1e-3 else sets * 2}
    for replay in (*cycle.replays, *cycle.samples):
        first[...] = 2**62
        cp.cuda.runtime.deviceSynchronize()
        replay.put()
        lanes.main.synchronize()
        seen = first.get()
        started = seen[seen[:, 0] < 2**62]
        assert len(started) == min(replay.rounds, sets)
        assert (np.diff(started.astype(np.int64), axis=1) > 0).all()


def test_window_is_full_of_rounds(device: CudaDevice) -> None:
    """Rounds times makespan is the window, and little is spent beside it."""
    device.run([scan()], 0.05)
    begun = time.monotonic()
    record = device.run([scan()], 1.2)
    wall_s = time.monotonic() - begun
    window_s = record.end_s - record.start_s
    assert begun < record.start_s < record.end_s < begun + wall_s
    assert window_s == pytest.approx(1.2, rel=0.1)
    assert record.makespan_s is not None
    assert record.rounds * record.makespan_s == pytest.approx(window_s, rel=0.02)
    assert record.makespan_spread_s < 0.05 * record.makespan_s
    assert 0 < record.makespan_uncertainty_s < 0.01 * record.makespan_s
    assert record.start_s - begun > WARM_S
    assert wall_s < 1.25 * window_s


def test_bad_candidates_cost_one_result(worker: WorkerDevice) -> None:
    """A kernel that hangs and one that writes out of bounds are statuses; the GPU goes on each time."""
    assert worker.check(scan(), 1).status is Status.OK
    for mode, status in (("ILLEGAL", Status.CRASHED), ("HANG", Status.TIMEOUT)):
        pid = worker.pid
        check = worker.check(scan(mode), 1)
        assert check.status is status, check.detail
        assert pid is not None
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        record = worker.run([scan(), scan(kernel="other")], 0.1)
        assert [result.status for result in record.results] == [Status.OK, Status.OK]


def test_measurement_with_joules(worker: WorkerDevice) -> None:
    """A trial on a GPU with a sensor has joules of a plausible power with an uncertainty."""
    clocks, _ = open_clocks(worker)
    meter, why = open_meter(worker, clocks)
    if meter is None:
        pytest.skip(why)
    plans = [scan(), scan(kernel="other")]
    trial = Trial(tuple(plan.configuration for plan in plans))
    with TrialMeasurer(worker, meter, clocks, suggested_window_s(meter.info)) as measurer:
        measurement = measurer.measure(trial, plans)
    meter.close()
    assert measurement.ok
    assert measurement.energy is not None
    assert 5 < measurement.energy.watts < 2000
    assert 0 < measurement.energy.uncertainty_j < 0.1 * measurement.energy.joules
    assert measurement.energy.joules == pytest.approx(
        measurement.energy.watts * measurement.window_s / measurement.rounds
    )
    assert measurement.energy_total_j > measurement.energy.joules * measurement.rounds * 0.8


def test_automatic_choice() -> None:
    """Where a GPU answers it is taken without a notice, and listed with nothing missing."""
    device, notice = open_device()
    assert (device.identity.spec, notice) == ("cuda:0", "")
    device.close()
    reports: dict[str, Any] = {report.spec: report for report in describe_devices()}
    assert reports["cuda:0"].limits == device.limits
    assert reports["cuda:0"].identity == device.identity


FAULTY = Path(__file__).parent / "faulty" / "kernel.toml"
ENDS = {0: "ok", 1: "crashed", 2: "wrong-answer", 3: "wrong-answer", 4: "timeout"}


def tuner(*words: str, folder: Path) -> tuple[dict[str, Any], str]:
    """Run `tuner run` in a process of its own and return its document and its tables."""
    outcome = subprocess.run(
        [
            *(sys.executable, "-c", "from tuner.__main__ import main; main()", "run", *words),
            *("--device", "cuda:0", "--objective", "time", "--trial-timeout", "5"),
            *("--kernel", str(FAULTY), "--database", folder / "tuner.db", "--json", folder / "run.json"),
        ],
        check=False,
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    return json.loads((folder / "run.json").read_text()), outcome.stdout


def test_every_fault_costs_one_trial(tmp_path: Path) -> None:
    """Each way to fail is told apart, the run goes on, and the answer is a good configuration."""
    document, tables = tuner("faulty:N=256", "--policy", "exhaustive", "--verbose", folder=tmp_path)
    ends = {trial["configurations"]["faulty:N=256"]["mode"]: trial["status"] for trial in document["trials"]}

    assert ends == ENDS
    assert document["best"]["configurations"]["faulty:N=256"]["mode"] == 0
    for mode in (1, 2, 3, 4):
        assert f"mode={mode}]" in tables


def test_faults_beside_a_good_workload(tmp_path: Path) -> None:
    """In a co-run the guilty workload is named, its partner is not, and both get an answer."""
    words = ("scan-lf:N=64", "faulty:N=256", "--policy", "random", "--budget", "25")
    document, _ = tuner(*words, folder=tmp_path)
    failed = [trial for trial in document["trials"] if trial["status"] != "ok"]

    assert failed
    for trial in failed:
        assert trial["status"] == ENDS[trial["configurations"]["faulty:N=256"]["mode"]]
    assert all(trial["workloads"]["scan-lf:N=64"]["status"] == "ok" for trial in failed)
    assert document["best"]["status"] == "ok"
