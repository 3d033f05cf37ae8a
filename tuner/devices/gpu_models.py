"""The simulated GPUs and their parameters.

Limits, clocks, lanes, peak bandwidth, caches and power limits are the vendor's data sheets, and for the K20c,
K40c, GTX 680 and GTX 580 Table III of "Multi-Kernel Auto-Tuning on GPUs: Performance and Energy-Aware
Optimization"; the Jetson TX1's are section II of "Performance Tuning for GPU-Embedded Systems" and the Jetson
clocks those their drivers list. ``bandwidth`` is what a copy reaches of the peak. The powers of the H200 are
fitted to one H200 (idle 122 W, 630-640 W at memory- or compute-bound load); those of the others share out
idle power and power limit in proportions known of their memory and process. Voltages are typical of the
process. The seven watts of a ``PowerModel`` stand in its order: idle, clock, active, memory, transport,
issue, limit.
None of these powers is a claim about a particular board.
"""

from dataclasses import dataclass, replace
from typing import Literal

from tuner.model.errors import UnknownNameError, suggestion
from tuner.model.jobs import DeviceIdentity, DeviceLimits
from tuner.space.occupancy import device_limits

# --- The parameters of a simulated GPU, as values.
#
# Powers are stated as watts at full rate, top clock and top voltage, so that each can be held against a data
# sheet or a measurement.


@dataclass(frozen=True)
class VoltageCurve:
    """Supply voltage against SM clock: flat up to a knee, then a straight line to the top clock.

    Attributes:
        low_v: volts up to the knee.
        high_v: volts at the top clock.
        knee_mhz: where the voltage starts to rise.
        top_mhz: highest clock.
    """

    low_v: float
    high_v: float
    knee_mhz: float
    top_mhz: float

    def volts(self, clock_mhz: float) -> float:
        """Supply voltage at a clock."""
        if clock_mhz <= self.knee_mhz:
            return self.low_v
        rise = (clock_mhz - self.knee_mhz) / (self.top_mhz - self.knee_mhz)
        return self.low_v + rise * (self.high_v - self.low_v)

    def squared(self, clock_mhz: float) -> float:
        """(V(f) / V(top))**2: joules of one switching event against those at the top clock."""
        return (self.volts(clock_mhz) / self.high_v) ** 2


@dataclass(frozen=True)
class PowerModel:
    """Watts of the parts of a GPU at top clock, each at its full rate.

    Attributes:
        idle_w: with a context and nothing to do, at the lowest clock: leakage, memory refresh, board.
        clock_w: clock tree and leakage that follow V(f)^2 f even when idle.
        active_w: SM clocks that run only while blocks are resident; follows V(f)^2 f.
        memory_w: device memory and its interface at ``bandwidth``; does not see the SM voltage.
        transport_w: moving those bytes through L2 and crossbar; joules follow V(f)^2.
        issue_w: all SMs issuing at full rate; joules follow V(f)^2.
        limit_w: power limit; above it the GPU lowers its clock.
        hold_s: how long a load that needs more gets it, before the clock is lowered.
        least_limit_w: the lowest power limit that can be set; None where none can.
    """

    idle_w: float
    clock_w: float
    active_w: float
    memory_w: float
    transport_w: float
    issue_w: float
    limit_w: float
    hold_s: float = 0.0
    least_limit_w: float | None = None


@dataclass(frozen=True)
class SensorModel:
    """Model of the response of the GPU's power reading to its true power.

    Attributes:
        name: of the reading; ``simulated-`` stands before it.
        kind: ``counter`` gives joules, ``ring`` and ``stream`` give watts.
        period_s: time between fresh samples.
        capacitance_s: time constant of a first-order lag (C of equation (6) of "Multi-Kernel Auto-Tuning on
            GPUs: Performance and Energy-Aware Optimization"), 0 for none.
        window_s: length of the mean a sample is taken over, 0 for none.
        noise: relative standard deviation of a sample.
        scope: what the sensor sees.
    """

    name: str
    kind: Literal["counter", "ring", "stream"]
    period_s: float
    capacitance_s: float = 0.0
    window_s: float = 0.0
    noise: float = 0.0
    scope: str = "gpu"


@dataclass(frozen=True)
class GpuModel:
    """One GPU as the simulated device sees it.

    Attributes:
        name: short name, as in ``sim:k40c``.
        product: vendor's name.
        limits: inputs of the occupancy equations.
        clocks_mhz: SM clocks that can be set, highest first.
        bandwidth: bytes/s a copy reaches, not the data sheet's peak.
        crossbar_bytes: bytes per SM clock that reach the SMs; ``bandwidth`` falls with the clock below it.
        fp32_lanes: single-precision lanes of an SM.
        issue_per_clock: warp instructions an SM issues per clock.
        alu_cycles: latency of a dependent arithmetic instruction.
        memory_latency_s: part of a load's latency spent outside the SM clock domain.
        memory_latency_cycles: part spent inside it.
        dispatch_cycles: SM clocks between two blocks started anywhere on the GPU.
        launch_s: time a kernel launch costs in a graph.
        power: watts of its parts.
        voltage: supply voltage against clock.
        sensors: the power readings, best first; empty where the board has none.
    """

    name: str
    product: str
    limits: DeviceLimits
    clocks_mhz: tuple[int, ...]
    bandwidth: float
    crossbar_bytes: float
    fp32_lanes: int
    power: PowerModel
    voltage: VoltageCurve
    sensors: tuple[SensorModel, ...]
    issue_per_clock: float = 4.0
    alu_cycles: float = 4.5
    memory_latency_s: float = 300e-9
    memory_latency_cycles: float = 400.0
    dispatch_cycles: float = 1.2
    launch_s: float = 2e-6


def _limits(capability: tuple[int, int], sms: int, memory_mib: int, l2_kib: int) -> DeviceLimits:
    return device_limits(
        capability, multiprocessors=sms, memory_bytes=memory_mib * 2**20, l2_bytes=l2_kib * 2**10
    )


def _steps(top_mhz: float, bottom_mhz: float, step_mhz: float) -> tuple[int, ...]:
    """Clocks from top to bottom in equal steps, cut to whole megahertz as the drivers print them."""
    count = round((top_mhz - bottom_mhz) / step_mhz)
    return tuple(int(top_mhz - step_mhz * i + 1e-6) for i in range(count + 1))


def _ina3221(scope: str) -> SensorModel:
    """The INA3221 of the Jetson boards, averaging over its conversion time, read ten times a second."""
    return SensorModel("stream", kind="stream", period_s=0.1, window_s=0.1, noise=0.004, scope=scope)


_HOPPER_SENSORS = (  # of one H200, measured under a known load: see docs/lab/power.md
    SensorModel("counter", kind="counter", period_s=0.1, noise=0.0005),
    SensorModel("ring", kind="ring", period_s=0.02, capacitance_s=0.0132, noise=0.003),
    SensorModel("instant", kind="stream", period_s=0.1, window_s=0.025, noise=0.003),
    SensorModel("average", kind="stream", period_s=0.1, window_s=1.0, noise=0.0005),
)


# --- The simulated GPUs.

_JETSONS = (
    GpuModel(
        name="jetson-tx1",
        product="NVIDIA Jetson TX1",
        limits=_limits((5, 3), 2, 4096, 256),
        clocks_mhz=_steps(998.4, 76.8, 76.8),
        bandwidth=20.0e9,  # of 25.6 GB/s LPDDR4, shared with the CPU
        crossbar_bytes=64.0,
        fp32_lanes=128,
        # the module: 2.5-2.6 W idle at VDD_IN, 10-15 W budget
        power=PowerModel(2.6, 0.5, 0.6, 1.6, 0.8, 5.5, 15.0),
        voltage=VoltageCurve(0.82, 1.13, 384.0, 998.4),
        sensors=(_ina3221("VDD_IN"),),
        alu_cycles=6.0,
        memory_latency_s=400e-9,
        memory_latency_cycles=250.0,
        dispatch_cycles=16.0,
        launch_s=12e-6,
    ),
    GpuModel(
        name="jetson-nano",
        product="NVIDIA Jetson Nano",
        limits=_limits((5, 3), 1, 4096, 256),
        clocks_mhz=_steps(921.6, 76.8, 76.8),
        bandwidth=19.0e9,  # of 25.6 GB/s LPDDR4
        crossbar_bytes=48.0,
        fp32_lanes=128,
        power=PowerModel(1.8, 0.3, 0.4, 1.5, 0.7, 2.8, 10.0),
        voltage=VoltageCurve(0.82, 1.10, 384.0, 921.6),
        sensors=(_ina3221("POM_5V_IN"),),
        alu_cycles=6.0,
        memory_latency_s=400e-9,
        memory_latency_cycles=250.0,
        dispatch_cycles=32.0,
        launch_s=12e-6,
    ),
    GpuModel(
        name="jetson-xavier",
        product="NVIDIA Jetson AGX Xavier",
        limits=_limits((7, 2), 8, 32768, 512),
        clocks_mhz=(1377, 1338, 1236, 1198, 1032, 905, 828, 675, 624, 522, 420, 318, 216, 114),
        bandwidth=112.0e9,  # of 136.5 GB/s LPDDR4x
        crossbar_bytes=256.0,
        fp32_lanes=64,
        power=PowerModel(6.0, 1.0, 1.2, 5.0, 2.5, 20.0, 50.0),
        voltage=VoltageCurve(0.66, 1.05, 520.0, 1377.0),
        sensors=(_ina3221("module"),),
        memory_latency_s=420e-9,
        memory_latency_cycles=350.0,
        dispatch_cycles=5.0,
        launch_s=8e-6,
    ),
    GpuModel(
        name="jetson-orin",
        product="NVIDIA Jetson AGX Orin",
        limits=_limits((8, 7), 16, 65536, 4096),
        clocks_mhz=(1300, *_steps(1236.75, 114.75, 102.0)),
        bandwidth=175.0e9,  # of 204.8 GB/s LPDDR5
        crossbar_bytes=384.0,
        fp32_lanes=128,
        # the rail of GPU and SoC: 3.2 W idle; the DRAM itself is fed elsewhere
        power=PowerModel(3.2, 0.8, 1.0, 4.0, 4.0, 24.0, 60.0),
        voltage=VoltageCurve(0.60, 0.95, 420.0, 1300.5),
        sensors=(_ina3221("VDD_GPU_SOC"),),
        memory_latency_s=420e-9,
        memory_latency_cycles=350.0,
        dispatch_cycles=3.0,
        launch_s=6e-6,
    ),
)

_PAPER = (
    GpuModel(
        name="k20c",
        product="Tesla K20c",
        limits=_limits((3, 5), 13, 4800, 1280),
        clocks_mhz=(758, 705, 666, 640, 614),
        bandwidth=150.0e9,  # of 208 GB/s, with ECC
        crossbar_bytes=416.0,
        fp32_lanes=192,
        power=PowerModel(40.0, 8.0, 15.0, 40.0, 15.0, 110.0, 225.0, least_limit_w=150.0),
        voltage=VoltageCurve(0.875, 1.00, 600.0, 758.0),
        sensors=(SensorModel("stream", kind="stream", period_s=0.015, capacitance_s=0.833, noise=0.003),),
        alu_cycles=9.5,
        memory_latency_s=200e-9,
        memory_latency_cycles=260.0,
        dispatch_cycles=4.0,
        launch_s=4e-6,
    ),
    GpuModel(
        name="k40c",
        product="Tesla K40c",
        limits=_limits((3, 5), 15, 11520, 1536),
        clocks_mhz=(875, 810, 745, 666),
        bandwidth=205.0e9,  # of 288 GB/s, with ECC
        crossbar_bytes=480.0,
        fp32_lanes=192,
        power=PowerModel(45.0, 10.0, 18.0, 50.0, 20.0, 125.0, 235.0, least_limit_w=180.0),
        voltage=VoltageCurve(0.90, 1.06, 640.0, 875.0),
        sensors=(SensorModel("stream", kind="stream", period_s=0.015, capacitance_s=0.79, noise=0.003),),
        alu_cycles=9.5,
        memory_latency_s=200e-9,
        memory_latency_cycles=260.0,
        dispatch_cycles=4.0,
        launch_s=4e-6,
    ),
    GpuModel(
        name="gtx680",
        product="GeForce GTX 680",
        limits=_limits((3, 0), 8, 2048, 512),
        clocks_mhz=(1058,),
        bandwidth=150.0e9,  # of 192 GB/s
        crossbar_bytes=256.0,
        fp32_lanes=192,
        power=PowerModel(25.0, 8.0, 15.0, 35.0, 15.0, 115.0, 195.0),
        voltage=VoltageCurve(0.99, 1.16, 700.0, 1058.0),
        sensors=(),  # "no built-in power sensor": footnote of Table IV
        alu_cycles=9.5,
        memory_latency_s=180e-9,
        memory_latency_cycles=260.0,
        dispatch_cycles=5.0,
        launch_s=4e-6,
    ),
    GpuModel(
        name="gtx580",
        product="GeForce GTX 580",
        limits=_limits((2, 0), 16, 1536, 768),
        clocks_mhz=(1594,),  # shader clock, twice that of the schedulers
        bandwidth=160.0e9,  # of 192.4 GB/s
        crossbar_bytes=256.0,
        fp32_lanes=32,
        power=PowerModel(38.0, 15.0, 25.0, 40.0, 20.0, 140.0, 244.0),
        voltage=VoltageCurve(0.96, 1.06, 1200.0, 1594.0),
        sensors=(),
        issue_per_clock=1.0,
        alu_cycles=20.0,
        memory_latency_s=180e-9,
        memory_latency_cycles=500.0,
        dispatch_cycles=6.0,
        launch_s=5e-6,
    ),
)

_SERVERS = (
    GpuModel(
        name="v100",
        product="Tesla V100-SXM2-16GB",
        limits=_limits((7, 0), 80, 16160, 6144),
        clocks_mhz=_steps(1530.0, 135.0, 7.5),
        bandwidth=800.0e9,  # of 900 GB/s HBM2
        crossbar_bytes=900.0,
        fp32_lanes=64,
        power=PowerModel(40.0, 15.0, 18.0, 45.0, 40.0, 260.0, 300.0, least_limit_w=100.0),
        voltage=VoltageCurve(0.71, 1.05, 800.0, 1530.0),
        sensors=(SensorModel("stream", kind="stream", period_s=0.02, window_s=0.01, noise=0.003),),
        memory_latency_s=220e-9,
        memory_latency_cycles=300.0,
    ),
    GpuModel(
        name="a100",
        product="NVIDIA A100-SXM4-80GB",
        limits=_limits((8, 0), 108, 81920, 40960),
        clocks_mhz=_steps(1410.0, 210.0, 15.0),
        bandwidth=1750.0e9,  # of 2039 GB/s HBM2e
        crossbar_bytes=1900.0,
        fp32_lanes=64,
        power=PowerModel(55.0, 25.0, 20.0, 84.0, 80.0, 300.0, 400.0, least_limit_w=100.0),
        voltage=VoltageCurve(0.70, 1.03, 750.0, 1410.0),
        sensors=(SensorModel("stream", kind="stream", period_s=0.1, window_s=0.025, noise=0.003),),
        memory_latency_s=300e-9,
        memory_latency_cycles=400.0,
    ),
    GpuModel(
        name="h100",
        product="NVIDIA H100 80GB HBM3",
        limits=_limits((9, 0), 132, 81559, 51200),
        clocks_mhz=_steps(1980.0, 345.0, 15.0),
        bandwidth=3000.0e9,  # of 3352 GB/s HBM3
        crossbar_bytes=2900.0,
        fp32_lanes=128,
        power=PowerModel(65.0, 50.0, 25.0, 125.0, 144.0, 500.0, 700.0, least_limit_w=200.0),
        voltage=VoltageCurve(0.67, 1.05, 1000.0, 1980.0),
        sensors=(
            SensorModel("stream", kind="stream", period_s=0.1, window_s=0.025, noise=0.003),
        ),  # POWER_INSTANT
    ),
    GpuModel(
        name="h200",
        product="NVIDIA H200",
        limits=_limits((9, 0), 132, 143771, 61440),
        clocks_mhz=_steps(1980.0, 345.0, 15.0),
        bandwidth=4292.0e9,  # a copy, measured; 4.8 TB/s HBM3e
        crossbar_bytes=3300.0,
        fp32_lanes=128,
        power=PowerModel(70.0, 52.0, 25.0, 172.0, 206.0, 500.0, 700.0, hold_s=0.3, least_limit_w=200.0),
        voltage=VoltageCurve(0.67, 1.05, 1000.0, 1980.0),
        sensors=_HOPPER_SENSORS,
    ),
)

_TABLE = {gpu.name: gpu for gpu in (*_JETSONS, *_PAPER, *_SERVERS)}


_FURTHER = {"2": 1.02, "3": 0.985, "4": 1.08, "5": 0.995, "6": 1.01, "7": 0.98, "8": 1.03}
"""Watts of further GPUs of a kind against those of the first; made up, and no claim about any board."""


def _scaled(power: PowerModel, factor: float) -> PowerModel:
    """The watts of all parts times a factor; limits stay."""
    parts = ("idle_w", "clock_w", "active_w", "memory_w", "transport_w", "issue_w")
    return replace(power, **{name: factor * getattr(power, name) for name in parts})


def gpu_names() -> tuple[str, ...]:
    """Short names of the GPUs that can be simulated."""
    return tuple(_TABLE)


def gpu_model(name: str) -> GpuModel:
    """The parameters of one GPU.

    Args:
        name: short name, e.g. ``jetson-tx1``; ``sim:jetson-tx1`` is the same. ``jetson-tx1.2`` to ``.8`` are
            further GPUs of the kind, whose watts differ by some percent.

    Raises:
        UnknownNameError: no such GPU; the message lists the choices and the nearest of them.
    """
    key = name.removeprefix("sim:").lower()
    if key in _TABLE:
        return _TABLE[key]
    kind, _, number = key.rpartition(".")
    if kind in _TABLE and number in _FURTHER:
        gpu = _TABLE[kind]
        return replace(gpu, name=key, power=_scaled(gpu.power, _FURTHER[number]))
    hint = suggestion(key, _TABLE)
    if kind in _TABLE:
        hint = f"; further GPUs like {kind} are {kind}.{min(_FURTHER)} to {kind}.{max(_FURTHER)}"
    raise UnknownNameError(f"no simulated GPU {name!r}; choose from {', '.join(_TABLE)}{hint}")


def stand_in(device: DeviceIdentity) -> str | None:
    """The simulated device that has a GPU's limits; None where its model is not known."""
    if device.modelled:
        return device.spec
    return next((f"sim:{name}" for name in gpu_names() if gpu_model(name).product == device.name), None)


def serving(capability: tuple[int, int]) -> str:
    """The newest simulated device, where it has a compute capability; empty where it has not."""
    name = max(reversed(gpu_names()), key=lambda each: gpu_model(each).limits.compute_capability)
    return f"sim:{name}" if gpu_model(name).limits.compute_capability >= capability else ""


def limits_of(device: DeviceIdentity) -> DeviceLimits | None:
    """The limits of a GPU's model; None where it is not known."""
    product = device.name.removesuffix(" (modelled)")
    return next((gpu_model(n).limits for n in gpu_names() if gpu_model(n).product == product), None)
