"""Power of a modelled GPU: what it draws idle and the joules its work costs, by SM clock.

Idle power plus activity times V(f)^2 f, plus joules per byte of device memory (which does not see the SM
voltage) and per byte through L2 and crossbar and per instruction (which do, by V(f)^2). Work costs joules
however fast it is done; only idle and clock power cost by the second. So fewer instructions for the same
bytes draw less power at the same bandwidth, and for memory-bound work the joules have a minimum between the
lowest clock (which lasts long) and the highest (which wastes voltage).
"""

from tuner.devices.gpu_values import GpuModel
from tuner.devices.simulated.launch_model import Launch


def idle_watts(gpu: GpuModel, clock_mhz: float) -> float:
    """Power with a context alive and nothing running, at an SM clock."""
    return gpu.power.idle_w + gpu.power.clock_w * _switching(gpu, clock_mhz)


def active_watts(gpu: GpuModel, clock_mhz: float) -> float:
    """Power while blocks are resident, before any work is counted."""
    return idle_watts(gpu, clock_mhz) + gpu.power.active_w * _switching(gpu, clock_mhz)


def load_watts(gpu: GpuModel, clock_mhz: float) -> float:
    """Power with every multiprocessor issuing arithmetic at full rate."""
    issue_w = gpu.power.issue_w * _switching(gpu, clock_mhz)
    return min(gpu.power.limit_w, active_watts(gpu, clock_mhz) + issue_w)


def work_joules(launch: Launch, gpu: GpuModel, clock_mhz: float) -> float:
    """Joules of the bytes and instructions of one launch, beside ``active_watts``."""
    power = gpu.power
    square = gpu.voltage.squared(clock_mhz)
    top_hz = gpu.clocks_mhz[0] * 1e6
    issue_rate = gpu.issue_per_clock * gpu.limits.warp_size * gpu.limits.multiprocessors * top_hz
    per_byte = (power.memory_w + power.transport_w * square) / gpu.bandwidth
    per_instruction = power.issue_w * square / issue_rate
    return launch.bytes * per_byte + launch.instructions * per_instruction


def _switching(gpu: GpuModel, clock_mhz: float) -> float:
    """V(f)^2 f against its value at the top clock."""
    return gpu.voltage.squared(clock_mhz) * clock_mhz / gpu.clocks_mhz[0]
