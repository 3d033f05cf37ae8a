"""Loading, launches, rounds, windows and pulses of the CUDA device, over a CuPy of virtual time."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fake_cuda import LIMITS, ROWS, FakeCompiler, N, fake_device, plan, scan
from fake_cupy import DeviceArray, FakeCupy, Kernel
from tuner.power.base import LoadSource

from tuner.compiler.compiler import CompiledStage
from tuner.devices.cuda.arrays import is_cold, rotation_sets
from tuner.devices.cuda.code import CodeCache
from tuner.devices.cuda.device import CudaDevice, PulsePlayer, median_and_spread, uncertainty
from tuner.devices.cuda.rounds import WARM_S
from tuner.model.errors import CompileError, DeviceError
from tuner.model.plan import Buffer, LaunchDemands, Plan, Resources, Scratch, Stage, TensorMap
from tuner.model.trial import FlagKind, Status


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> tuple[FakeCupy, CudaDevice]:
    return fake_device(monkeypatch)


@pytest.fixture
def cp(fake: tuple[FakeCupy, CudaDevice]) -> FakeCupy:
    return fake[0]


@pytest.fixture
def device(fake: tuple[FakeCupy, CudaDevice]) -> CudaDevice:
    return fake[1]


def test_identity(device: CudaDevice) -> None:
    """A CUDA device names its GPU, driver and compiler, and is not modelled."""
    identity = device.identity
    assert (identity.spec, identity.name, identity.uuid) == ("cuda:0", "Fake GPU", "GPU-1")
    assert (identity.driver, identity.runtime, identity.modelled) == ("580.1", "12.9", False)
    assert device.limits == LIMITS
    assert device.describe() == (identity, LIMITS)
    as_source: LoadSource = device
    assert as_source.now_s() > 0.0
    device.close()


def test_rounds_of_two_workloads(cp: FakeCupy, device: CudaDevice) -> None:
    """Workloads start together and a round ends with the slower; the window holds whole rounds."""
    record = device.run([plan("scan"), plan("slow", kernel="other")], 0.5)
    assert [result.status for result in record.results] == [Status.OK, Status.OK]
    assert record.results[0].time_s == pytest.approx(1e-3)
    assert record.results[1].time_s == pytest.approx(3e-3)
    assert record.makespan_s == pytest.approx(3e-3)
    assert record.makespan_spread_s == pytest.approx(0, abs=1e-9)
    assert record.end_s - record.start_s == pytest.approx(record.rounds * 3e-3)
    assert record.end_s - record.start_s == pytest.approx(0.5, abs=0.02)
    assert record.flags == ()
    assert cp.most_queued_s < 0.15  # a few replays and the burst, never the window


def test_stages_run_in_order(cp: FakeCupy, device: CudaDevice) -> None:
    """The stages of a workload follow each other within its time."""
    record = device.run([plan("scan", "slow")], 0.1)
    assert record.results[0].time_s == pytest.approx(4e-3)
    assert cp.kernels["scan"].runs == cp.kernels["slow"].runs


def test_short_rounds_are_unrolled(cp: FakeCupy, device: CudaDevice) -> None:
    """Rounds of microseconds are replayed by the hundred, so that replays last milliseconds."""
    record = device.run([plan("quick")], 0.02)
    assert record.makespan_s == pytest.approx(5e-6)
    assert record.end_s - record.start_s == pytest.approx(0.02, abs=0.006)
    assert record.end_s - record.start_s == pytest.approx(record.rounds * 5e-6)
    assert cp.most_queued_s < 0.03


@pytest.mark.parametrize("window_s", [0.003, 0.012, 0.048])
def test_graphs_are_on_the_device_before_they_are_timed(
    monkeypatch: pytest.MonkeyPatch, window_s: float
) -> None:
    """First launches of graphs take the host longer than a tiny kernel's rounds: the device would wait."""
    cp, device = fake_device(monkeypatch, replace(LIMITS, l2_bytes=2**22))
    cp.host_call_s = 2e-6
    cp.kernels["quick"].seconds = 1.3e-6
    record = device.run([plan("quick", rows=4)], window_s)
    assert sum(len(graph.kernels) for graph in cp.graphs) > 1000
    assert record.makespan_s == pytest.approx(1.3e-6, rel=1e-3)
    assert all(end_s < record.start_s for _, end_s in cp.idle)


def test_rounds_of_some_milliseconds_take_turns(cp: FakeCupy, device: CudaDevice) -> None:
    """Rounds that are long but shorter than the window fill it one by one, whatever the rotation."""
    cp.kernels["slow"].seconds = 0.02
    record = device.run([plan("slow")], 0.3)
    assert record.rounds == 15
    assert record.makespan_s == pytest.approx(0.02)
    assert record.flags == ()


def test_long_rounds_are_not_repeated_needlessly(cp: FakeCupy, device: CudaDevice) -> None:
    """Of a round longer than the window three make it, after two that warm the device."""
    record = device.run([plan("very_slow")], 0.1)
    assert record.rounds == 3
    assert record.makespan_s == pytest.approx(0.5)
    assert cp.kernels["very_slow"].runs <= 5


@pytest.mark.parametrize(
    ("entries", "seconds"),
    [(("rest",), 4e-5), (("rest", "rest"), 9e-5), (("rest", "quick"), 1e-3), (("rest", "scan"), 4e-3)],
)
def test_window_opens_on_a_settled_device(
    cp: FakeCupy, device: CudaDevice, entries: tuple[str, ...], seconds: float
) -> None:
    """The device is kept busy from the warm-up through the window, for the constant's time before it."""
    cp.host_call_s = 2e-6
    cp.kernels[entries[0]].seconds = seconds
    record = device.run([plan(entry, kernel=str(i)) for i, entry in enumerate(entries)], 1.2)
    assert record.flags == ()
    idle = [end_s for begin_s, end_s in cp.idle if end_s - begin_s > 50e-6]
    assert all(end_s < record.start_s - 0.95 * WARM_S for end_s in idle)
    assert record.makespan_s == pytest.approx(seconds, rel=1e-6)


@pytest.mark.parametrize(("window_s", "most"), [(0.09, 1.3), (0.3, 1.4), (1.2, 1.25)])
def test_warm_up_is_a_part_of_a_short_window(
    cp: FakeCupy, device: CudaDevice, window_s: float, most: float
) -> None:
    """A sixth of a window for times, a third of one for joules, and 0.2 s at most."""
    cp.host_call_s = 2e-6
    begun_s = cp.now_s
    device.run([plan("scan"), plan("scan", kernel="other")], window_s)
    assert cp.now_s - begun_s < most * window_s


@pytest.mark.parametrize("slowest", [5e-6, 40e-6, 2e-4, 1e-3, 5e-3])
def test_own_times_are_parts_of_the_makespan(cp: FakeCupy, device: CudaDevice, slowest: float) -> None:
    """Workloads are timed while the host is ahead: their launches take turns, their times do not show it."""
    cp.host_call_s = 4e-6
    cp.kernels["rest"].seconds = slowest
    cp.kernels["nap"].seconds = slowest / 4
    plans = [plan("nap"), plan("rest", kernel="b"), plan("nap", kernel="c"), plan("rest", kernel="d")]
    record = device.run(plans, 5000 * slowest if slowest < 1e-4 else 0.3)
    assert record.makespan_s is not None
    assert record.makespan_s == pytest.approx(slowest)
    times = [result.time_s for result in record.results]
    assert times == pytest.approx([slowest / 4, slowest, slowest / 4, slowest])
    assert all((time_s or 0) <= record.makespan_s * 1.001 for time_s in times)


def test_all_that_is_timed_is_in_the_window(cp: FakeCupy, device: CudaDevice) -> None:
    """Own times and makespan come from the same rounds: the device runs without a gap and ends with it."""
    cp.host_call_s = 2e-6
    record = device.run([plan("scan"), plan("scan", kernel="other")], 0.3)
    assert cp.busy_until_s == pytest.approx(record.end_s, abs=1e-4)
    assert all(end_s < record.start_s for _, end_s in cp.idle)


def test_own_times_are_medians_over_the_window(cp: FakeCupy, device: CudaDevice) -> None:
    """A workload that is slow in a few rounds of a window has the time of the others, with a spread."""
    kernel, rounds = cp.kernels["nap"], 0

    def work(*_: object) -> None:
        nonlocal rounds
        rounds += 1
        kernel.seconds = 8e-4 if rounds % 10 == 0 else 2e-4

    kernel.action = work
    record = device.run([plan("nap"), plan("scan", kernel="other")], 0.3)
    assert record.makespan_s == pytest.approx(1e-3)
    assert record.results[0].time_s == pytest.approx(2e-4)
    assert record.results[1].time_s == pytest.approx(1e-3)


def test_a_lone_workload_is_one_stream(cp: FakeCupy, device: CudaDevice) -> None:
    """Launches of a lone workload follow one another, with no fork, no join and no event in their graphs."""
    device.run([plan("quick")], 0.02)
    assert len(cp.kernels["quick"].streams) == 1
    assert {len(graph.actions) - len(graph.kernels) for graph in cp.graphs} == {0}


@pytest.mark.parametrize(("seconds", "rounds"), [(2e-5, 18), (1e-3, 6), (5e-3, 1)])
def test_events_are_in_graphs_of_single_rounds(
    cp: FakeCupy, device: CudaDevice, seconds: float, rounds: int
) -> None:
    """Graphs of several rounds hold launches, forks and joins only; they are short, since forks are dear."""
    cp.kernels["rest"].seconds = cp.kernels["nap"].seconds = seconds
    device.run([plan("rest"), plan("nap", kernel="other")], 0.1)
    sizes = {len(graph.kernels) // 2 for graph in cp.graphs}
    assert max(sizes) <= rounds
    assert 1 in sizes
    for graph in cp.graphs:
        assert graph.stamps == (3 if len(graph.kernels) == 2 else 0)


@pytest.mark.parametrize("seconds", [3e-6, 3e-5, 3e-4, 2e-3, 2e-2])
@pytest.mark.parametrize("workloads", [1, 3])
def test_short_windows(cp: FakeCupy, device: CudaDevice, seconds: float, workloads: int) -> None:
    """Of 3 ms there are five rounds or more in as many replays, and little is spent beside them."""
    cp.host_call_s = 2e-6
    cp.kernels["rest"].seconds = seconds
    plans = [plan("rest", kernel=str(index)) for index in range(workloads)]
    for plan_ in plans:
        device.check(plan_, 1)
    begun_s = cp.now_s
    record = device.run(plans, 3e-3)
    outside_s = cp.now_s - begun_s - (record.end_s - record.start_s)
    assert record.makespan_s == pytest.approx(seconds)
    assert record.rounds >= 5
    assert record.end_s - record.start_s == pytest.approx(max(3e-3, 5 * seconds), rel=0.35)
    assert outside_s < 8e-3 + 2.5 * seconds
    again_s = cp.now_s
    longer = device.run(plans, 12e-3)
    assert cp.now_s - again_s - (longer.end_s - longer.start_s) < 4.5e-3 + 1.5 * seconds


@pytest.mark.parametrize("window_s", [3e-3, 0.012, 0.048])
def test_first_launches_of_graphs_are_not_timed(cp: FakeCupy, device: CudaDevice, window_s: float) -> None:
    """Hundreds of sets are in several graphs: the slow first launch of each is no part of a window."""
    cp.kernels["rest"].seconds = 2e-5
    cp.first_launch_s = 5e-4
    record = device.run([plan("rest", rows=1)], window_s)
    assert len(cp.graphs) > 1
    assert record.makespan_s == pytest.approx(2e-5)
    assert record.makespan_spread_s == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("window_s", [3e-3, 0.012, 0.048])
def test_graphs_are_long_after_a_slow_first_round(cp: FakeCupy, device: CudaDevice, window_s: float) -> None:
    """A single round takes longer than one of many: graphs of as few as it asks for would be all gaps."""
    kernel = cp.kernels["rest"]
    cp.graph_gap_s = 3e-6

    def work(*_: object) -> None:
        kernel.seconds = 5e-5 if kernel.runs < 5 else 2e-6

    kernel.action = work
    record = device.run([plan("rest", rows=1)], window_s)
    assert record.makespan_s == pytest.approx(2e-6, rel=0.02)


def test_graphs_are_kept_and_arrays_are_not(cp: FakeCupy, device: CudaDevice) -> None:
    """Windows of the same plans are replayed from the same graphs; the memory behind them is given back."""
    first, second = plan("nap"), plan("rest", kernel="other")
    device.run([first], 3e-3)
    captured = len(cp.graphs)
    device.run([second], 3e-3)
    both = len(cp.graphs)
    device.run([first], 12e-3)
    assert 0 < captured < both == len(cp.graphs)
    device.run([first], 0.3)
    assert len(cp.graphs) > both  # replays that are long enough for a long window
    device.close()
    assert cp.allocated_bytes == 0


def test_replays_are_of_the_arrays_in_use(cp: FakeCupy, device: CudaDevice) -> None:
    """Graphs of arrays that are gone are not replayed for new ones."""
    wide = plan("scan", rows=2 * ROWS)
    device.run([plan("scan")], 0.02)
    device.close()
    device.run([wide], 0.02)
    device.close()
    cp.kernels["scan"].runs = 0
    record = device.run([plan("scan")], 0.02)
    assert record.results[0].status is Status.OK
    assert cp.kernels["scan"].runs >= record.rounds


@pytest.mark.parametrize(("workloads", "seconds", "flagged"), [(1, 2e-5, 0), (3, 1e-4, 1), (3, 2e-4, 0)])
def test_rounds_too_short_to_be_measured_truly(
    cp: FakeCupy, device: CudaDevice, workloads: int, seconds: float, flagged: int
) -> None:
    """A co-run of which starting and joining is more than a hundredth is flagged, never a lone workload."""
    cp.kernels["rest"].seconds = seconds
    record = device.run([plan("rest", kernel=str(index)) for index in range(workloads)], 0.05)
    assert [flag.kind for flag in record.flags] == [FlagKind.SHORT_ROUND] * flagged
    assert all("about 1.2 us of 100.0 us a round" in flag.detail for flag in record.flags)


def test_workloads_start_in_the_order_of_the_trial(cp: FakeCupy, device: CudaDevice) -> None:
    """A graph replays the branches behind a join in reverse: there they are captured in reverse."""
    cp.kernels["rest"].seconds = cp.kernels["nap"].seconds = 2e-4
    device.run([plan("rest"), plan("nap", kernel="other")], 0.05)
    several = [graph.kernels for graph in cp.graphs if len(graph.kernels) > 2]
    assert several
    for names in several:
        assert names[:4] == ["rest", "nap", "nap", "rest"]


def test_capture_that_fails(cp: FakeCupy, device: CudaDevice) -> None:
    """Without CUDA graphs rounds are launched one by one, and the record says so."""
    cp.capture_works = False
    record = device.run([plan("scan"), plan("scan", kernel="other")], 0.2)
    assert record.makespan_s == pytest.approx(1e-3)
    assert [flag.kind for flag in record.flags] == [FlagKind.NO_GRAPH]
    cp.capture_works = True
    assert device.run([plan("scan")], 0.1).flags == ()


def test_arrays_rotate_past_the_l2(cp: FakeCupy, device: CudaDevice) -> None:
    """Between two uses of an array three times the L2 are touched, and all sets hold the inputs."""
    seen: dict[int, np.ndarray[Any, Any]] = {}

    def look(x: DeviceArray, *_: object) -> None:
        seen.setdefault(x.ctypes.data, np.array(x))

    cp.kernels["scan"].action = look
    device.run([plan("scan", rows=16)], 0.05)  # 16 KiB a set against 128 KiB of L2
    assert len(seen) == 24
    first, *others = seen.values()
    assert all(np.array_equal(first, other) for other in others)
    assert np.isfinite(first).all()


def test_long_rounds_need_few_sets(cp: FakeCupy, device: CudaDevice) -> None:
    """Of hundreds of small sets a long round uses some: to capture all would take longer than a window."""
    cp.kernels["rest"].seconds = 2e-3
    device.run([plan("rest", rows=1)], 3e-3)  # 1 KiB a set: 384 of them
    assert len(cp.graphs) == 64
    cp.kernels["rest"].seconds = 2e-5
    device.run([plan("rest", rows=1, kernel="other")], 3e-3)
    assert sum(len(graph.kernels) for graph in cp.graphs[64:]) == 384


def test_in_place_runs_begin_anew(cp: FakeCupy, device: CudaDevice) -> None:
    """What a run overwrites holds fresh inputs when the next run begins."""
    first: list[float] = []

    def double(x: DeviceArray, *_: object) -> None:
        first.append(float(abs(x).max()))
        np.multiply(x, 2, out=x)

    cp.kernels["scan"].action = double
    for _ in range(2):
        del first[:]
        device.run([plan("scan", role="inout")], 0.05)
        assert first[0] <= 1.0


@pytest.mark.parametrize(
    ("one_set", "l2_bytes", "available", "sets", "cold"),
    [
        (512 << 20, 50 << 20, 100 << 30, 2, True),
        (10 << 20, 50 << 20, 100 << 30, 15, True),
        (40 << 30, 50 << 20, 100 << 30, 1, True),
        (40 << 10, 50 << 20, 100 << 30, 1024, False),
        (8 << 10, 50 << 20, 100 << 30, 64, False),
        (10 << 20, 50 << 20, 100 << 20, 5, False),
    ],
)
def test_rotation_sets(one_set: int, l2_bytes: int, available: int, sets: int, cold: bool) -> None:
    """Sets go round past three times the L2, within half of the memory."""
    assert rotation_sets(one_set, l2_bytes, available) == sets
    assert is_cold(sets, one_set, l2_bytes) is cold


def test_median_and_spread() -> None:
    """The spread is half the 16-84 % range, which outliers do not move."""
    middle, spread = median_and_spread([*range(101)])
    assert (middle, spread) == (50, 34)
    assert median_and_spread([*range(100), 10**6]) == (50, 34)


def test_uncertainty_of_independent_values() -> None:
    """Of values without memory it is their deviation by the root of their number, give or take."""
    rng = np.random.default_rng(3)
    found = [uncertainty(rng.normal(1.0, 0.01, 400).tolist()) for _ in range(200)]
    assert np.median(found) == pytest.approx(0.01 / np.sqrt(400), rel=0.2)


def test_uncertainty_sees_a_drift() -> None:
    """Neighbours that resemble each other count once: the scatter of blocks is kept, not averaged away."""
    drifting = np.repeat(np.random.default_rng(4).normal(1.0, 0.01, 8), 50)
    naive = np.std(drifting) / np.sqrt(len(drifting))
    assert uncertainty(drifting.tolist()) > 5 * naive
    assert uncertainty([1.0] * 100) == 0.0


def test_uncertainty_of_few_values() -> None:
    """One value tells nothing; two are widened by Student's factor for one degree of freedom, 1.84."""
    assert uncertainty([]) == uncertainty([1.0]) == 0.0
    assert uncertainty([1.0, 1.2]) == pytest.approx(1.837 * 0.1, rel=1e-3)


class Played:
    """A GPU whose load lasts as long as it is told, and a player on its clock."""

    def __init__(self) -> None:
        self.asked_ns: list[int] = []
        self.kernel = Kernel(self.load, 0.0)
        self.cp = FakeCupy({"load": self.kernel})
        code = CodeCache(self.cp, FakeCompiler(), LIMITS)
        self.player = PulsePlayer(self.cp, code, lambda: self.cp.now_s, self.sleep)

    def load(self, duration_ns: np.uint64) -> None:
        assert isinstance(duration_ns, np.uint64)
        self.asked_ns.append(int(duration_ns))
        self.kernel.seconds = int(duration_ns) * 1e-9

    def sleep(self, seconds: float) -> None:
        self.cp.now_s += seconds


def test_pulses_are_played_in_order() -> None:
    """Each pulse is busy and then idle for as long as asked, and is reported as it was."""
    gpu = Played()

    played = gpu.player.play([(0.05, 0.1), (0.2, 0.0)])

    assert [end - begin for begin, end in played] == pytest.approx([0.05, 0.2])
    assert played[1][0] - played[0][1] == pytest.approx(0.1)
    assert gpu.asked_ns[1:] == [50_000_000, 200_000_000]


def test_long_pulses_are_made_of_short_launches() -> None:
    """No launch lasts longer than a second, and together they last as long as the pulse."""
    gpu = Played()

    ((begin, end),) = gpu.player.play([(2.5, 0.0)])

    assert end - begin == pytest.approx(2.5)
    assert max(gpu.asked_ns) <= 1_000_000_000


def test_all_multiprocessors_are_loaded() -> None:
    """The grid is what the GPU holds at a time: more would outlast the pulse."""
    gpu = Played()

    gpu.player.play([(0.01, 0.0)])

    assert gpu.kernel.grids == {(gpu.kernel.blocks_per_sm * LIMITS.multiprocessors, 1, 1)}


def test_a_gpu_that_cannot_be_loaded_is_an_error() -> None:
    """A launch that the driver refuses is told as what it is."""
    gpu = Played()
    gpu.kernel.seconds = -1.0

    with pytest.raises(DeviceError, match="cannot be loaded for a calibration"):
        gpu.player.play([(0.01, 0.0)])


SMS = LIMITS.multiprocessors


def staged(base: Plan, **changes: Any) -> Plan:
    """The plan with changes to its only stage."""
    return replace(base, stages=(replace(base.stages[0], **changes),))


@pytest.mark.parametrize(
    ("grid", "launched"),
    [
        ((10**6, 1, 1), (SMS * 4, 1, 1)),
        ((SMS * 4, 1, 1), (SMS * 4, 1, 1)),
        ((77, 1, 1), (77, 1, 1)),
        ((10**6, 3, 1), (SMS * 4 // 3, 3, 1)),
        ((10**6, 10**3, 1), (1, 10**3, 1)),
    ],
)
def test_resident_grid(
    cp: FakeCupy, device: CudaDevice, grid: tuple[int, int, int], launched: tuple[int, int, int]
) -> None:
    """A resident grid has the blocks that the device holds at a time, and never more than it asks for."""
    cp.kernels["scan"].blocks_per_sm = 4
    resident = staged(plan("scan", grid=grid), resident=True)
    assert device.check(resident, 1).status is Status.OK
    assert device.run([resident], 0.01).results[0].status is Status.OK
    assert cp.kernels["scan"].grids == {launched}


def test_other_grids_are_left(cp: FakeCupy, device: CudaDevice) -> None:
    """A grid that is not resident is launched whole, even after the same code was."""
    for resident in (True, False):
        device.check(staged(plan("scan", grid=(10**6, 1, 1)), resident=resident), 1)
    assert cp.kernels["scan"].grids == {(SMS * 8, 1, 1), (10**6, 1, 1)}


def test_resident_grid_with_much_shared_memory(cp: FakeCupy, device: CudaDevice) -> None:
    """Shared memory is asked for before the device is asked how many blocks it holds."""
    large = staged(plan("scan", grid=(10**6, 1, 1), shared_bytes=100 * 1024), resident=True)
    assert device.check(large, 1).status is Status.OK
    assert cp.kernels["scan"].attributes == {"shared": 100 * 1024}


def test_block_that_never_fits(cp: FakeCupy, device: CudaDevice) -> None:
    """A resident stage whose block fits on no multiprocessor is refused."""
    cp.kernels["scan"].blocks_per_sm = 0
    check = device.check(staged(plan("scan"), resident=True), 1)
    assert check.status is Status.LAUNCH_ERROR
    assert "no block of 32 threads fits" in check.detail


@pytest.mark.parametrize(("cluster", "attributes"), [(4, {15: 2}), (8, {15: 2}), (16, {14: 1, 15: 2})])
def test_clusters(cp: FakeCupy, device: CudaDevice, cluster: int, attributes: dict[int, int]) -> None:
    """Clusters are balanced over the device, and those above eight blocks asked for."""
    kernel = cp.kernels["scan"]
    kernel.cluster, kernel.clusters = cluster, 7
    clustered = staged(plan("scan", grid=(1600, 1, 1)), cluster=cluster)
    assert device.check(clustered, 1).status is Status.OK
    assert kernel.attributes == attributes
    assert kernel.grids == {(1600, 1, 1)}


@pytest.mark.parametrize(("blocks", "launched"), [(1600, 7 * 16), (32, 32)])
def test_resident_clusters(cp: FakeCupy, device: CudaDevice, blocks: int, launched: int) -> None:
    """A resident grid of clusters has the clusters that the device holds at the same time."""
    kernel = cp.kernels["scan"]
    kernel.cluster, kernel.clusters = 16, 7
    clustered = staged(plan("scan", grid=(blocks, 1, 1)), cluster=16, resident=True)
    assert device.check(clustered, 1).status is Status.OK
    assert kernel.grids == {(launched, 1, 1)}


@pytest.mark.parametrize(
    ("grid", "clusters", "words"),
    [
        (64, (8, 0), "no cluster of 8 blocks of 32 threads and 0 bytes of dynamic shared memory fits"),
        (60, (8, 9), "a grid of 60 blocks is not made of clusters of 8"),
        (64, (4, 9), "clusters of 8, and the source has __cluster_dims__(4)"),
        (64, (0, 9), "clusters of 8, and the source has __cluster_dims__(0)"),
    ],
)
def test_clusters_that_cannot_be(
    cp: FakeCupy, device: CudaDevice, grid: int, clusters: tuple[int, int], words: str
) -> None:
    """Clusters that do not fit, do not fill the grid or are not the source's are refused clearly."""
    kernel = cp.kernels["scan"]
    kernel.cluster, kernel.clusters = clusters
    check = device.check(staged(plan("scan", grid=(grid, 1, 1)), cluster=8), 1)
    assert check.status is Status.LAUNCH_ERROR
    assert words in check.detail
    assert (
        device.check(plan("double", problem="expression", reference=(("y", "2 * x"),)), 1).status is Status.OK
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"min_architecture": 100}, "needs compute capability 10.0; the device has 9.0"),
        ({"min_architecture": 120}, "needs compute capability 12.0; the device has 9.0"),
    ],
)
def test_architecture(device: CudaDevice, changes: dict[str, int], words: str) -> None:
    """A stage for newer devices is refused before it is compiled."""
    check = device.check(staged(plan("wrong_syntax"), **changes), 1)
    assert check.status is Status.LAUNCH_ERROR
    assert words in check.detail
    assert device.check(staged(plan("scan"), min_architecture=90), 1).status is Status.OK


@pytest.mark.parametrize(
    "changes", [{"cluster": 1, "arguments": (TensorMap("x", "float32", (N, ROWS), (32, 8)),)}, {"cluster": 2}]
)
def test_forms_of_newer_devices(monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]) -> None:
    """Clusters and tensor maps are refused below compute capability 9.0, whatever the stage states."""
    _, device = fake_device(monkeypatch, replace(LIMITS, compute_capability=(8, 7)))
    check = device.check(staged(plan("scan", grid=(2, 1, 1)), **changes), 1)
    assert check.status is Status.LAUNCH_ERROR
    assert "needs compute capability 9.0; the device has 8.7" in check.detail


def test_static_and_dynamic_shared_memory(cp: FakeCupy, device: CudaDevice) -> None:
    """Both kinds count: 48 KiB are exceeded together, and so is what a block may have."""
    limit = LIMITS.shared_bytes_per_block
    assert device.check(plan("sharing", shared_bytes=47 * 1024), 1).status is Status.OK
    assert cp.kernels["sharing"].attributes == {}
    assert device.check(plan("sharing", shared_bytes=47 * 1024 + 4), 1).status is Status.OK
    assert cp.kernels["sharing"].attributes == {"shared": 47 * 1024 + 4}
    assert device.check(plan("sharing", shared_bytes=limit - 1024), 1).status is Status.OK
    check = device.check(plan("sharing", shared_bytes=limit - 1020), 1)
    assert check.status is Status.LAUNCH_ERROR
    assert f"{limit + 4} bytes of shared memory per block; the device has {limit}" in check.detail


def counting(base: Plan) -> Plan:
    """The plan with a third array, of counters that begin at zero."""
    buffers = (*base.buffers, Buffer("counters", "int32", (4,), "zeroed"))
    return replace(staged(base, arguments=("x", "y", "counters")), buffers=buffers)


def test_zeroed_buffers(cp: FakeCupy, device: CudaDevice) -> None:
    """Counters are zero before every run: in the check, which poisons, in graphs, and in single rounds."""

    def count(x: DeviceArray, y: DeviceArray, counters: DeviceArray) -> None:
        assert counters.tolist() == [0, 0, 0, 0]
        counters += 1
        y[...] = np.cumsum(x.astype(np.float64), axis=1)

    cp.kernels["scan"].action = count
    counted = counting(plan("scan"))
    for _ in range(2):
        check = device.check(counted, 1)
        assert check.status is Status.OK, check.detail
    for plans in ([counted], [counted, plan("double", kernel="other")]):
        record = device.run(plans, 0.05)
        assert [result.status for result in record.results] == [Status.OK] * len(plans)
        assert record.flags == ()
    assert cp.kernels["scan"].runs > 50


def test_zeroed_outputs(cp: FakeCupy, device: CudaDevice) -> None:
    """An output that the kernel file sets to zero is so before every run, as atomic operations need it."""

    def add(x: DeviceArray, y: DeviceArray, *_: object) -> None:
        assert not y.any()
        y += np.cumsum(x.astype(np.float64), axis=1)

    cp.kernels["scan"].action = add
    base = plan("scan")
    cleared = replace(base, buffers=(base.buffers[0], replace(base.buffers[1], cleared=True)))
    for _ in range(2):
        check = device.check(cleared, 1)
        assert check.status is Status.OK, check.detail
    assert device.run([cleared], 0.05).results[0].status is Status.OK
    assert cp.kernels["scan"].runs > 20


def test_tensor_maps(cp: FakeCupy, device: CudaDevice) -> None:
    """Every launch is handed the map of its own set of arrays, by value, beside the pointers."""
    seen: set[tuple[int, ...]] = set()

    def look(encoded: Any, x: DeviceArray, y: DeviceArray) -> None:
        words: Sequence[int] = np.frombuffer(encoded.tobytes(), np.uint64).tolist()
        assert words[0] == x.data.ptr
        seen.add(tuple(words[1:6]))
        y[...] = np.cumsum(x.astype(np.float64), axis=1)

    cp.kernels["scan"].action = look
    mapped = staged(plan("scan"), arguments=(TensorMap("x", "float32", (N, ROWS), (32, 8), 64), "x", "y"))
    assert device.check(mapped, 1).status is Status.OK
    assert device.run([mapped], 0.05).results[0].status is Status.OK
    assert seen == {(N, ROWS, 32, 8, 1)}


def test_tensor_map_that_cannot_be(device: CudaDevice) -> None:
    """A map that the driver refuses is a launch error of its workload, with the buffer's name."""
    mapped = staged(plan("scan"), arguments=(TensorMap("x", "float32", (N, ROWS), (3, 8)), "x", "y"))
    check = device.check(mapped, 1)
    assert check.status is Status.LAUNCH_ERROR
    assert "stage scan: no tensor map of buffer 'x'" in check.detail


class Asking(FakeCompiler):
    """Compiles to code that asks for more than its stage says."""

    def compile(self, stages: Sequence[Stage]) -> list[CompiledStage | CompileError]:
        demands = LaunchDemands(64, 60 * 1024, 2, (Scratch(), Scratch(128, 256)))
        return [CompiledStage(b"cubin", s.entry, Resources(32, demands=demands), "") for s in stages]


def test_launches_have_what_only_the_compiler_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamic shared memory, clusters, null pointers and scratch for every block come with the code."""
    cp, device = fake_device(monkeypatch, compiler=Asking())
    taken: list[tuple[int, int, int]] = []

    def asking(x: DeviceArray, y: DeviceArray, rows: int, null: int, scratch: DeviceArray) -> None:
        taken.append((int(null), scratch.nbytes >= 128 * 2 * 10, scratch.ctypes.data % 256))
        scan(x, y, rows)

    kernel = cp.kernels["scan"] = Kernel(asking, 1e-6)
    kernel.cluster, kernel.clusters = 2, 7
    assert device.check(plan("scan", grid=(10, 1, 1)), 1).status is Status.OK
    assert kernel.grids == {(20, 1, 1)}
    assert kernel.attributes == {"shared": 60 * 1024, 15: 2}
    assert set(taken) == {(0, True, 0)}


def test_more_than_the_device_has_is_refused_when_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shared memory that the compiler asks for counts as that of the stage does."""
    _, device = fake_device(monkeypatch, compiler=Asking())
    check = device.check(plan("scan", grid=(10, 1, 1), shared_bytes=200 * 1024), 1)
    assert check.status is Status.LAUNCH_ERROR
    assert f"{260 * 1024} bytes of shared memory per block" in check.detail
