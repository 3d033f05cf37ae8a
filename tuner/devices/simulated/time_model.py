"""The time of a single kernel launch on a modelled GPU, and the virtual time of a simulated device.

A launch is bound by whichever is slowest: device memory, what passes L2 and crossbar, instruction issue, the
single-precision lanes, the shared memory of the SMs, the rate at which blocks are started, or the life of its
blocks (Little's law: so many bytes or instructions are in flight, and each block lives so long). Bounds near
each other add up a little: they are joined by a p-norm. Caches are cold: buffers rotate past the L2. Only
what blocks of one launch hand to each other stays there. What a launch asks for is told by ``launch_model``.

The constants of a block's life, of shared memory and of bytes in flight were fitted to recorded times of an
H200 at half of the recorded sizes; `docs/simulated-devices.md` tells how the others compare.
"""

import math
from collections import deque
from dataclasses import dataclass

from tuner.devices.gpu_values import GpuModel
from tuner.devices.simulated.launch_model import WORD, LaunchModel

_PIECES = 16384
_WARM_STEP_S = 0.25  # of a piece of time in which the temperature is taken to be steady
# Cycles of a block's life beside its loads.
_START_CYCLES = 530.0  # start, first addresses, last stores
_SHUFFLE_CYCLES = 28.0
_BARRIER_CYCLES = 150.0
_BARRIER_CYCLES_PER_WARP = 5.0
_EXCHANGE_CYCLES_PER_WORD = 0.7  # a warp's words through shared memory, one warp after the other
_STRAGGLER_CYCLES_PER_WARP = 90.0  # a block holds its place until its slowest warp has ended
_ILP = 3.0
_BASE_REGISTERS = 5.0  # addresses and counters; the others can wait for loads
_SHARED_LANES = 32  # words an SM stores, loads or shuffles per clock
_TILE_BYTES = 4096  # of a block; larger ones scatter the traffic over more DRAM pages
_TILE_LOSS = 0.005  # of the bandwidth for each doubling past it
_CROWD = 9.0  # bytes in flight by those that hide the latency; more only open more DRAM pages
_CROWD_LOSS = 0.02  # of the bandwidth for each doubling past it
_HANDED_LOSS = 0.45  # of a launch whose blocks wait for what others hand to them
_NORM = 8.0


@dataclass(frozen=True)
class Warming:
    """How a modelled GPU warms under load, and how much more it draws when it is warm.

    Attributes:
        idle_c: its temperature while nothing has run, in degrees Celsius.
        kelvin_per_watt: how much warmer it is in the end for each watt above idle power.
        time_s: time constant.
        per_kelvin: relative rise of its power.
    """

    idle_c: float
    kelvin_per_watt: float
    time_s: float
    per_kelvin: float


class Timeline:
    """A clock that moves only when told, and the power of each piece of time that passed.

    The last 16384 pieces are kept, far more than one recording spans.

    Args:
        idle_w: power at which a GPU that warms stays at ``Warming.idle_c``.
        warming: how the GPU warms; None for one whose power does not depend on its temperature.
    """

    def __init__(self, idle_w: float = 0.0, warming: Warming | None = None) -> None:
        self.now_s = 0.0
        self._idle_w = idle_w
        self._warming = warming
        self._kelvin = 0.0  # above the idle GPU
        self._pieces: deque[tuple[float, float, float]] = deque(maxlen=_PIECES)

    @property
    def temperature_c(self) -> float | None:
        """Temperature of the GPU; None where none is modelled."""
        return None if self._warming is None else self._warming.idle_c + self._kelvin

    def pass_time(self, seconds: float, watts: float) -> None:
        """Let virtual time pass at constant power, that of a GPU at its idle temperature."""
        warming = self._warming
        if warming is None:
            self._append(seconds, watts)
            return
        steps = max(1, math.ceil(seconds / _WARM_STEP_S))
        decay = math.exp(-seconds / steps / warming.time_s)
        end = warming.kelvin_per_watt * (watts - self._idle_w)
        for _ in range(steps):
            self._append(seconds / steps, watts * (1.0 + warming.per_kelvin * self._kelvin))
            self._kelvin = end + (self._kelvin - end) * decay

    def _append(self, seconds: float, watts: float) -> None:
        if seconds <= 0:
            return
        start, self.now_s = self.now_s, self.now_s + seconds
        if self._pieces and self._pieces[-1][2] == watts:
            start = self._pieces.pop()[0]
        self._pieces.append((start, self.now_s, watts))

    def since(self, since_s: float, before_w: float) -> list[tuple[float, float, float]]:
        """(start, end, watts) pieces from ``since_s`` to now, in order, without gaps.

        Args:
            since_s: where the first piece starts.
            before_w: power before the oldest piece that is kept.
        """
        found: list[tuple[float, float, float]] = []
        for start, end, watts in reversed(self._pieces):
            if end <= since_s:
                break
            found.append((max(start, since_s), end, watts))
        found.reverse()
        oldest = found[0][0] if found else self.now_s
        if since_s < oldest:
            found.insert(0, (since_s, oldest, before_w))
        return found


@dataclass(frozen=True)
class Demand:
    """What one launch asks of the GPU at one clock, running alone.

    Attributes:
        seconds: time of the launch.
        shares: busy fraction, in [0, 1], of memory, issue, lanes, block dispatch, and the SMs' places for
            warps, registers, shared memory and blocks.
    """

    seconds: float
    shares: tuple[float, ...]


def demand(launch: LaunchModel, gpu: GpuModel, clock_mhz: float) -> Demand:
    """Time and busy fractions of one launch alone on the GPU at an SM clock.

    The launch must fit: ``launch.occupancy.blocks_per_sm`` is at least 1.
    """
    hertz = clock_mhz * 1e6
    sms = gpu.limits.multiprocessors
    # the SM with the most blocks ends last; it matters while there are few of them
    imbalance = math.ceil(launch.blocks / sms) * sms / launch.blocks
    slots = gpu.issue_per_clock * gpu.limits.warp_size * sms * hertz
    lanes = gpu.fp32_lanes * sms * hertz
    latency = gpu.memory_latency_s + gpu.memory_latency_cycles / hertz
    memory = launch.bytes / bandwidth(gpu, clock_mhz) * _scatter(launch, gpu)
    handed = (
        (launch.bytes + launch.handed_bytes) / (gpu.crossbar_bytes * hertz) if launch.handed_bytes else 0.0
    )
    shared = launch.shared_words * launch.units * launch.threads / (_SHARED_LANES * sms * hertz) * imbalance
    issue = launch.instructions / slots * imbalance
    arithmetic = launch.operations / lanes * imbalance
    dispatch = launch.blocks * gpu.dispatch_cycles / hertz
    lives = _block_life(launch, gpu, hertz, latency) * _waves(launch, sms)
    parts = (memory, handed, issue, arithmetic, shared, dispatch, lives)
    norm = sum(part**_NORM for part in parts) ** (1 / _NORM)
    seconds = gpu.launch_s * launch.launches + latency + norm * (1.0 + _HANDED_LOSS * launch.waits)
    held = min(1.0, launch.blocks / (launch.occupancy.blocks_per_sm * sms))
    return Demand(
        seconds=seconds,
        shares=(
            memory / seconds,
            issue / seconds,
            arithmetic / seconds,
            dispatch / seconds,
            *(held * share for share in _footprint(launch, gpu)),
        ),
    )


def bandwidth(gpu: GpuModel, clock_mhz: float) -> float:
    """Bytes/s of device memory at an SM clock: the memory's own, and what L2 and crossbar carry, joined."""
    crossbar = gpu.crossbar_bytes * clock_mhz * 1e6
    return float((gpu.bandwidth**-_NORM + crossbar**-_NORM) ** (-1 / _NORM))


def _scatter(launch: LaunchModel, gpu: GpuModel) -> float:
    """How much longer device memory takes for traffic that is scattered: large tiles, and too much in flight.

    Little's law says how many bytes in flight hide the latency; what is beyond gains nothing.
    """
    sms = gpu.limits.multiprocessors
    latency = gpu.memory_latency_s + gpu.memory_latency_cycles / (gpu.clocks_mhz[0] * 1e6)
    blocks = min(launch.occupancy.blocks_per_sm, launch.blocks / sms)
    in_flight = blocks * launch.threads * min(_thread_bytes(launch), _room(launch))
    needed = gpu.bandwidth * latency / sms
    crowding = max(0.0, math.log2(max(in_flight, 1.0) / (_CROWD * needed)))
    doublings = max(0.0, math.log2(max(launch.bytes / launch.units, 1.0) / _TILE_BYTES))
    return (1.0 + _TILE_LOSS * doublings) * (1.0 + _CROWD_LOSS * crowding)


def _thread_bytes(launch: LaunchModel) -> float:
    """Bytes a thread reads for one unit of work."""
    return launch.read_bytes / (launch.units * launch.threads)


def _room(launch: LaunchModel) -> float:
    """Bytes of a thread that can wait for loads: its registers, without addresses and counters."""
    return float(WORD) * max(2.0, launch.registers - _BASE_REGISTERS)


def _block_life(launch: LaunchModel, gpu: GpuModel, hertz: float, latency: float) -> float:
    """Seconds one block holds its place on an SM: start, loads, dependent steps, slowest warp, stores."""
    turns = max(1.0, _thread_bytes(launch) / _room(launch))  # loads beyond its registers wait for a turn
    walked = math.ceil(launch.units / launch.blocks)  # units of work, one after the other
    step_cycles = _BARRIER_CYCLES_PER_WARP + _EXCHANGE_CYCLES_PER_WORD * launch.exchanged_words
    cycles = (
        _START_CYCLES
        + launch.instructions / (launch.blocks * launch.threads) * gpu.alu_cycles / _ILP
        + walked * launch.warp_steps * _SHUFFLE_CYCLES
        + walked * launch.block_steps * (_BARRIER_CYCLES + step_cycles * launch.warps)
        + (launch.warps - 1) * _STRAGGLER_CYCLES_PER_WARP
    )
    return latency * turns * walked + cycles / hertz


def _waves(launch: LaunchModel, sms: int) -> float:
    """Generations of resident blocks: whole while few, half a one of tail once they drift apart."""
    waves = launch.blocks / (launch.occupancy.blocks_per_sm * sms)
    return min(float(math.ceil(waves)), waves + 0.5)


def _footprint(launch: LaunchModel, gpu: GpuModel) -> tuple[float, float, float, float]:
    """Fractions of an SM's warps, registers, shared memory and block places the launch holds alone."""
    limits = gpu.limits
    blocks = launch.occupancy.blocks_per_sm
    return (
        min(1.0, blocks * launch.warps / limits.max_warps_per_sm),
        min(1.0, blocks * launch.threads * launch.registers / limits.registers_per_sm),
        min(1.0, blocks * launch.shared_bytes / limits.shared_bytes_per_sm),
        min(1.0, blocks / limits.max_blocks_per_sm),
    )
