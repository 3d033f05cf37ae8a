"""The model of time, sharing and power against what is known and what must hold."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from modelled import ELEMENTS, REGISTERS, device, joules, makespan, scan

import tuner
from tuner.compiler.ptx_walk import UNITS
from tuner.devices.gpu_models import gpu_model, gpu_names
from tuner.devices.simulated.device import SimulatedDevice
from tuner.devices.simulated.resources import StageArithmetic, per_clock
from tuner.devices.simulated.time_model import RoundModel, describe
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import CompileError
from tuner.model.plan import (
    Buffer,
    Configuration,
    LibraryCall,
    Operand,
    Plan,
    Resources,
    Scalar,
    Source,
    Stage,
    TensorMap,
    Work,
)
from tuner.model.trial import Trial
from tuner.recordings.files import RecordingFile

# One H200, driver 580.159, clocks as found (1980 MHz): a warp-chunk scan of 2**26 floats, launched back to
# back. P, L, extra shared bytes (a quarter of the occupancy), milliseconds, millijoules.
MEASURED = [
    (32, 256, 0, 0.1306, 75.7),
    (32, 512, 0, 0.1312, 76.5),
    (16, 128, 0, 0.1302, 77.1),
    (32, 32, 0, 0.1288, 77.4),
    (16, 32, 0, 0.1279, 78.2),
    (8, 64, 0, 0.1279, 78.6),
    (8, 1024, 0, 0.1294, 81.4),
    (4, 128, 0, 0.1282, 83.3),
    (4, 512, 0, 0.1405, 88.4),
    (8, 256, 110_000, 0.1604, 83.1),
    (4, 32, 0, 0.3161, 111.0),
]


def agreement(modelled: Sequence[float], measured: Sequence[float]) -> float:
    """Spearman's rank correlation."""
    from scipy.stats import spearmanr  # noqa: PLC0415 - takes a third of a second, of one process

    return float(spearmanr(modelled, measured).statistic)


def test_rank_correlation_with_an_h200() -> None:
    """Time and energy of sim:h200 order eleven scans much as one H200 did, and come near it."""
    sim = device()
    plans = [scan(P, L, shared_bytes=shared) for P, L, shared, _, _ in MEASURED]
    times = [makespan(sim, plan) * 1e3 for plan in plans]
    energies = [joules(sim, plan) * 1e3 for plan in plans]
    assert agreement(times, [row[3] for row in MEASURED]) >= 0.9
    assert agreement(energies, [row[4] for row in MEASURED]) >= 0.85
    assert times == pytest.approx([row[3] for row in MEASURED], rel=0.2)
    assert energies == pytest.approx([row[4] for row in MEASURED], rel=0.15)


@pytest.mark.parametrize(
    ("name", "least"), [("scan-lf:N=512", 0.7), ("tridiag-wm:N=512", 0.75), ("fft:N=2048", 0.75)]
)
def test_rank_correlation_with_recorded_spaces(name: str, least: float) -> None:
    """Beyond 2 % above the fastest, sim:h200 orders configurations of held-out sizes much as an H200 did."""
    space = RecordingFile(Path(tuner.__file__).parent / "recordings" / "h200.zip").space((name,))
    (workload,) = space.workloads
    catalog, gpu = Catalog.load(), gpu_model("h200")
    problem, model = replace(catalog.workload(name), batch=workload.batch), RoundModel(gpu)
    pairs = []
    for candidate in workload.candidates:
        plan = catalog.kernel(workload.kernel).plan(problem, candidate.configuration)
        (launch,), (stage,) = candidate.launches, plan.stages
        taken = Resources(launch.registers_per_thread, launch.shared_bytes - stage.shared_bytes)
        assert not model.misfit(plan, [taken])
        modelled = model.round([plan], gpu.clocks_mhz[0])
        measured_s = space.look(Trial((candidate.configuration,))).makespan_s
        assert measured_s is not None
        pairs.append((measured_s, modelled.ends_s[0]))
    fastest = min(pairs)[0]
    beyond = [pair for pair in pairs if pair[0] > 1.02 * fastest]
    assert agreement(*zip(*beyond, strict=True)) >= least


def test_cliffs() -> None:
    """Tiny blocks, a lone block per SM, spills and little in flight cost time, as they did on a GPU."""
    sim = device()
    good = makespan(sim, scan(8, 128))
    tiny = makespan(sim, scan(4, 32))
    alone = makespan(sim, scan(8, 1024, shared_bytes=150_000))
    spilled = makespan(sim, scan(16, 1024, declared=Resources(64, 128, spill_bytes=64)))
    assert tiny > 2.0 * good
    assert alone > 1.2 * good
    assert spilled > 1.2 * good
    thin = [makespan(sim, scan(8, 256, shared_bytes=shared)) for shared in (0, 55_000, 110_000, 220_000)]
    assert thin == sorted(thin)
    assert thin[-1] > 1.5 * thin[0]


def test_fat_threads_draw_less_at_the_same_bandwidth() -> None:
    """Fewer, fatter threads move the same bytes in the same time for fewer joules."""
    sim = device()
    fat, thin = scan(32, 64), scan(4, 128)
    assert makespan(sim, fat) == pytest.approx(makespan(sim, thin), rel=0.02)
    assert joules(sim, fat) < 0.95 * joules(sim, thin)


@pytest.mark.parametrize("name", ["v100", "a100", "h100", "h200"])
def test_memory_bound_energy_has_an_inner_minimum(name: str) -> None:
    """On server GPUs memory-bound work costs least between the lowest clock and the highest."""
    sim = device(name)
    costs = {}
    for mhz in sim.gpu.clocks_mhz:
        sim.set_clock_mhz(mhz)
        costs[mhz] = joules(sim, scan(8, 128))
    best = min(costs, key=lambda mhz: costs[mhz])
    assert sim.gpu.clocks_mhz[0] > best > sim.gpu.clocks_mhz[-1]
    assert costs[best] < 0.9 * costs[sim.gpu.clocks_mhz[0]]
    assert costs[best] < 0.9 * costs[sim.gpu.clocks_mhz[-1]]


def test_power_limit_lowers_the_clock() -> None:
    """Work that would draw more than the limit does so for 0.3 s, then at a lower clock, and says so."""
    sim = device()
    hot = scan(8, 128, work=Work(bytes=8 * ELEMENTS, operations=64 * ELEMENTS))
    short = sim.run([hot], 0.1)
    assert sim.power_segments(short.start_s)[0][2] > 700.0
    assert (sim.clock_mhz, sim.throttle_reasons) == (1980, ())
    record = sim.run([hot], 1.0)
    (_, over_s, over_w), (_, _, held_w) = sim.power_segments(record.start_s)
    assert over_s - record.start_s == pytest.approx(0.25, abs=0.002)
    assert over_w > 700.0 >= held_w
    assert (record.makespan_s or 0.0) > (short.makespan_s or 0.0)
    assert sim.clock_mhz < 1980
    assert "sw-power-cap" in sim.throttle_reasons
    sim.run([scan(8, 128)], 0.1)
    assert sim.clock_mhz == 1980
    assert not sim.throttle_reasons


def test_stages_of_a_plan_add_up() -> None:
    """Two passes through device memory take about twice as long as one."""
    one = scan(8, 128)
    tmp = replace(one.buffers[1], name="tmp", role="scratch")
    first = replace(one.stages[0], arguments=("x", "tmp"))
    second = replace(one.stages[0], name="second", arguments=("tmp", "y"))
    two = replace(
        one, stages=(first, second), buffers=(*one.buffers, tmp), configuration=Configuration({"passes": 2})
    )
    sim = device()
    assert 1.4 < makespan(sim, two) / makespan(sim, one) < 2.2


def changed(plan: Plan, name: str, **stage: Any) -> Plan:
    """The plan with other keys of its only stage, under a name of its own."""
    return replace(
        plan, stages=(replace(plan.stages[0], **stage),), configuration=Configuration({"form": name})
    )


def test_a_resident_grid_is_cut_to_what_fits() -> None:
    """Units beyond the resident blocks are walked over: the same work, without starting a block for each."""
    sim = device()
    small = scan(2, 32)
    walking = changed(small, "resident", resident=True)
    (resources,) = sim.resources([walking])
    assert not isinstance(resources, CompileError)
    launch = describe(walking, 0, resources[0], sim.gpu)
    assert launch.units == small.stages[0].blocks
    assert launch.blocks == launch.occupancy.blocks_per_sm * sim.limits.multiprocessors
    assert makespan(sim, walking) < makespan(sim, small)
    assert joules(sim, walking) < joules(sim, small)
    large = scan(16, 128)
    assert makespan(sim, changed(large, "resident", resident=True)) == pytest.approx(
        makespan(sim, large), rel=0.05
    )


def test_a_resident_grid_that_fits_is_not_cut() -> None:
    """Where all units are resident at once the launch is the plain one."""
    sim = device()
    few = changed(scan(8, 64), "plain", grid=(132, 1, 1))
    assert makespan(sim, changed(few, "resident", resident=True)) == makespan(sim, few)


@pytest.mark.parametrize("cluster", [1, 5, 16])
def test_a_resident_grid_is_made_of_whole_clusters(cluster: int) -> None:
    """Blocks of a cluster run at the same time, so the grid is cut to a multiple of them."""
    sim = device()
    plan = changed(scan(8, 128), "clusters", resident=True, cluster=cluster, grid=(cluster * 10_000, 1, 1))
    (resources,) = sim.resources([plan])
    assert not isinstance(resources, CompileError)
    launch = describe(plan, 0, resources[0], sim.gpu)
    held = launch.occupancy.blocks_per_sm * sim.limits.multiprocessors
    assert launch.blocks % cluster == 0
    assert held - cluster < launch.blocks <= held


def test_zeroed_arrays_cost_their_bytes_and_a_launch() -> None:
    """Setting an array to zero is part of the run."""
    sim = device()
    plain = scan(8, 128)
    flags = Buffer("flags", "uint32", (4,), "zeroed")
    like_y = replace(plain.buffers[1], name="sums", role="zeroed")
    some = replace(plain, buffers=(*plain.buffers, flags), configuration=Configuration({"zeroed": 1}))
    much = replace(plain, buffers=(*plain.buffers, like_y), configuration=Configuration({"zeroed": 2}))
    assert makespan(sim, some) - makespan(sim, plain) == pytest.approx(sim.gpu.launch_s, rel=0.01)
    assert 1.4 < makespan(sim, much) / makespan(sim, plain) < 1.6
    cleared = replace(plain.buffers[1], cleared=True)
    output = replace(plain, buffers=(plain.buffers[0], cleared), configuration=Configuration({"zeroed": 3}))
    assert 1.4 < makespan(sim, output) / makespan(sim, plain) < 1.6


def test_tensor_maps_cost_nothing() -> None:
    """How an array is addressed changes no time of the model."""
    sim = device()
    plain = scan(8, 128)
    boxes = TensorMap("x", "float32", (1024, 65536), (256, 1))
    assert makespan(sim, changed(plain, "boxes", arguments=(boxes, "y"))) == makespan(sim, plain)


def test_a_light_footprint_leaves_room() -> None:
    """Two kernels that hold an eighth of the SMs each overlap; two that fill them hardly do."""
    sim = device()
    base = scan(8, 64)
    few = replace(
        base,
        stages=(replace(base.stages[0], grid=(132 * 4, 1, 1)),),
        work=Work(bytes=132 * 4 * 64 * 64, operations=1.0),
    )
    twin = replace(few, workload=replace(few.workload, kernel="twin"))
    assert makespan(sim, few, twin) < 1.1 * makespan(sim, few)
    full, other = scan(8, 128), scan(8, 128, kernel="twin")
    assert makespan(sim, full, other) > 1.8 * makespan(sim, full)


# --- laws ----------------------------------------------------------------------------------------

plans = st.builds(
    lambda P, L, operations, steps, shared: scan(
        P,
        L,
        work=Work(bytes=8.0 * ELEMENTS, operations=operations * ELEMENTS, steps=steps),
        shared_bytes=shared,
    ),
    st.sampled_from(sorted(REGISTERS)),
    st.sampled_from([32, 64, 128, 256]),
    st.floats(0.1, 500.0),
    st.integers(0, 40),
    st.sampled_from([0, 512, 8192, 40_000]),
)
names = st.sampled_from(gpu_names())


def declared_to_fit(plan: Plan) -> Plan:
    """The plan with registers any GPU of the table can launch."""
    stage = plan.stages[0]
    return replace(plan, stages=(replace(stage, declared=Resources(min(63, REGISTERS[64]), 128)),))


@given(name=names, plan=plans)
def test_time_does_not_rise_with_the_clock(name: str, plan: Plan) -> None:
    """A higher clock never makes a plan slower."""
    sim = device(name)
    times = []
    for mhz in sim.gpu.clocks_mhz:
        sim.set_clock_mhz(mhz)
        times.append(makespan(sim, declared_to_fit(plan)))
    assert all(fast <= slow * (1 + 1e-9) for fast, slow in itertools.pairwise(times))


@given(name=names, plan=plans, factor=st.floats(1.0, 8.0))
def test_more_bytes_take_longer(name: str, plan: Plan, factor: float) -> None:
    """More bytes of device memory never take less time or energy."""
    fitting = declared_to_fit(plan)
    more = replace(fitting, work=replace(plan.work, bytes=plan.work.bytes * factor))
    assert makespan(device(name), more) >= makespan(device(name), fitting) * (1 - 1e-9)
    assert joules(device(name), more) >= joules(device(name), fitting) * (1 - 0.01)


@given(name=names, chosen=st.lists(plans, min_size=2, max_size=4))
def test_rounds_lie_between_longest_and_sum(name: str, chosen: list[Plan]) -> None:
    """A round lasts at least its slowest workload and all bytes, at most the workloads one by one.

    So it is at one clock: a power limit that binds for one workload slows those that run beside it, too.
    """
    gpu = gpu_model(name)
    unlimited = replace(gpu, power=replace(gpu.power, limit_w=math.inf))
    model, clock_mhz = RoundModel(unlimited), gpu.clocks_mhz[0]
    group = [
        replace(declared_to_fit(plan), workload=replace(plan.workload, kernel=f"k{index}"))
        for index, plan in enumerate(chosen)
    ]
    for plan in group:
        declared = plan.stages[0].declared
        assert declared is not None
        assert not model.misfit(plan, [declared])
    alone_s = [max(model.round([plan], clock_mhz).ends_s) for plan in group]
    ends_s = model.round(group, clock_mhz).ends_s
    assert max(ends_s) >= max(alone_s) * (1 - 1e-9)
    contention = 1 + 0.02 * (len(group) - 1)
    assert max(ends_s) <= contention * sum(alone_s) * (1 + 1e-9)
    assert max(ends_s) >= sum(plan.work.bytes for plan in group) / gpu.bandwidth
    assert all(end_s >= solo_s * (1 - 1e-9) for end_s, solo_s in zip(ends_s, alone_s, strict=True))


@given(name=names, plan=plans)
def test_power_stays_between_idle_and_limit(name: str, plan: Plan) -> None:
    """A load draws more than idle; at most the limit, or it runs at the lowest clock."""
    sim = device(name)
    record = sim.run([declared_to_fit(plan)], 1.0)
    idle, load = sim.power_segments(-1.0)[0][2], sim.power_segments(record.start_s)[-1][2]
    assert load > idle > 0
    assert load <= sim.gpu.power.limit_w or sim.clock_mhz == sim.gpu.clocks_mhz[-1]


@given(
    name=st.sampled_from(gpu_names()),
    unit=st.sampled_from(UNITS),
    work=st.tuples(st.floats(0, 1e12), st.floats(0, 1e15)),
    compiled=st.booleans(),
    place=st.integers(0, 10**6),
)
def test_no_unit_and_no_memory_is_faster_than_it_is(
    name: str, unit: str, work: tuple[float, float], compiled: bool, place: int
) -> None:
    """Fused operations by time stay below the peak of their unit, bytes by time below the bandwidth."""
    gpu, (bytes_, operations) = gpu_model(name), work
    clock_mhz = gpu.clocks_mhz[place % len(gpu.clocks_mhz)]
    lanes = gpu.fp32_lanes / per_clock(gpu, unit)
    own = StageArithmetic(1.0, lanes * operations, operations) if compiled else StageArithmetic(lanes)
    plan = scan(4, 128, work=Work(bytes_, 0.0 if compiled else operations, assumed=compiled))
    model = RoundModel(gpu)
    assert not model.misfit(plan, [Resources(16)], [own])
    took_s = model.round_at([plan], clock_mhz).ends_s[0]
    peak = per_clock(gpu, unit) * gpu.limits.multiprocessors * clock_mhz * 1e6
    assert operations / took_s <= peak
    assert bytes_ / took_s <= gpu.bandwidth


@given(
    name=st.sampled_from(gpu_names()),
    dtype=st.sampled_from(["float32", "float64", "complex64", "complex128"]),
    order=st.integers(1, 20_000),
)
def test_no_library_is_faster_than_its_unit(name: str, dtype: str, order: int) -> None:
    """Products of matrices stay below the peak of their precision; one of complex numbers is four."""
    gpu = gpu_model(name)
    operands = tuple((one, Operand("x")) for one in "abc")
    call = LibraryCall("gemm", dtype, operands, m=order, n=order, k=order)
    stage = scan(4, 128).stages[0].changed(library=call)
    plan = replace(scan(4, 128, work=Work(0.0, 0.0)), stages=(stage,))
    model = RoundModel(gpu)
    assert not model.misfit(plan, [Resources(0)])
    took_s = model.round_at([plan], gpu.clocks_mhz[0]).ends_s[0]
    unit = "fp64" if dtype in {"float64", "complex128"} else "fp32"
    products = order**3 * (4 if dtype.startswith("complex") else 1)
    peak = per_clock(gpu, unit) * gpu.limits.multiprocessors * gpu.clocks_mhz[0] * 1e6
    assert products / took_s <= peak


def test_a_rate_in_operations_is_work() -> None:
    """A kernel file that states fewer operations than its rate counts is no faster for that."""
    honest = scan(4, 128, work=Work(1e6, 1e12, rate_units=1e12, rate_name="GFlop/s"))
    other = scan(4, 128, work=Work(1e6, 0.0, rate_units=1e12, rate_name="GFlop/s"))
    assert makespan(device(), other) == makespan(device(), honest)


def test_doubles_are_as_slow_as_their_unit() -> None:
    """Without a compiler the arrays tell the precision."""
    plan = scan(4, 128, work=Work(1e6, 1e12))
    double = replace(plan, buffers=tuple(replace(one, dtype="float64") for one in plan.buffers))
    times = [makespan(device("jetson-tx1"), one) for one in (plan, double)]
    assert 28 * times[0] < times[1] <= 32 * times[0]


MATMUL = """
extern "C" __global__ void naive(float* c, const float* a, const float* b, int n) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  float sum = 0;
  for (int k = 0; k < n; k++) sum += a[y * n + k] * b[k * n + x];
  c[y * n + x] = sum;
}
"""
TENSORS = """
template <int N> __global__ void naive(float* c, const unsigned* a, const unsigned* b) {
  float s[4] = {};
  for (int k = 0; k < N; k += 8)
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
      "{%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]) : "r"(a[k]), "r"(a[k + 1]), "r"(b[k]));
  c[blockIdx.x * 32 + threadIdx.x] = s[0] + s[1] + s[2] + s[3];
}
"""


@pytest.mark.parametrize("gpu", ["jetson-tx1", "a100"])
def test_a_product_without_stated_work_stays_below_the_peak(gpu: str) -> None:
    """The loops of the compiled code are gone through, as nothing else tells what it computes."""
    n = 4096
    arrays = tuple(Buffer(name, "float32", (n, n), "out" if name == "c" else "in") for name in "cab")
    stage = Stage(
        *("naive", Source("k.cu", MATMUL), "naive", (), (n // 32, n // 8, 1), (32, 8, 1), 0),
        (*"cab", Scalar("int32", n)),
    )
    plan = replace(scan(4, 128), stages=(stage,), buffers=arrays, work=Work(12 * n * n, 0.0, assumed=True))
    sim = SimulatedDevice(gpu, noise=0.0)
    rate = 2 * n**3 / makespan(sim, plan)
    sim.close()
    peak = 2 * sim.gpu.fp32_lanes * sim.gpu.limits.multiprocessors * sim.gpu.clocks_mhz[0] * 1e6
    assert 0.05 * peak < rate < peak


def test_tensor_cores_are_faster_than_lanes_and_not_than_their_peak() -> None:
    """What multiplies matrices is counted as the products of its warp."""
    n, warps = 65536, 16384
    arrays = (
        Buffer("c", "float32", (warps * 32,), "out"),
        *(Buffer(x, "uint32", (n + 1,), "in") for x in "ab"),
    )
    stage = Stage(
        *("naive", Source("k.cu", TENSORS), f"naive<{n}>", (), (warps, 1, 1), (32, 1, 1), 0), tuple("cab")
    )
    plan = replace(scan(4, 128), stages=(stage,), buffers=arrays, work=Work(1e6, 0.0, assumed=True))
    sim = SimulatedDevice("a100", noise=0.0)
    rate = 2 * warps * (n // 8) * 16 * 8 * 8 / makespan(sim, plan)
    sim.close()
    per_lane = sim.gpu.limits.multiprocessors * sim.gpu.clocks_mhz[0] * 1e6
    assert 2 * sim.gpu.fp32_lanes * per_lane < rate < 2 * per_clock(sim.gpu, "tensor16") * per_lane
