"""The parameters of a simulated GPU, as values.

Powers are stated as watts at full rate, top clock and top voltage, so that each can be held against a data
sheet or a measurement.
"""

from dataclasses import dataclass
from typing import Literal

from tuner.model.device import DeviceLimits


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
    """How the GPU's power reading answers to its true power.

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
