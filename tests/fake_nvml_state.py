"""Builds the fake NVML of ``tests/fake_nvml`` and plays its GPUs: power, clocks, failures, calls seen."""

import atexit
import ctypes
import functools
import mmap
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pynvml
import pytest

SOURCES = Path(__file__).parent / "fake_nvml"
UUID = "GPU-00000000-1111-2222-3333-444444444444"
SECOND_UUID = "GPU-55555555-6666-7777-8888-999999999999"
CLOCKS_MHZ = (1980, 1500, 900, 345)
NOT_SUPPORTED, NO_PERMISSION, GPU_IS_LOST, UNKNOWN = 3, 4, 15, 999
# in the order of CALLS in state.h
CALLS = (
    *("energy", "ring", "instant", "average", "usage", "clock", "reasons", "supported", "set", "reset"),
    *("applications", "set_applications", "reset_applications", "processes", "persistence", "mig"),
    *("temperature", "limit", "set_limit", "identity", "capability", "virtualization", "restriction", "load"),
    *("profiles", "set_profile"),
)
_U32, _U64, _I32 = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int32


class _Sample(ctypes.Structure):
    _fields_ = [("stamp_us", _U64), ("milliwatts", _U64)]


class _Segment(ctypes.Structure):
    _fields_ = [
        *((name, _U64) for name in ("start_us", "busy_us", "period_us")),
        *((name, _U32) for name in ("milliwatts", "idle_milliwatts")),
    ]


class Sensor(ctypes.Structure):
    """The twin of ``struct sensor``: how a reading is made of the true power."""

    _fields_ = [
        *((name, _U64) for name in ("period_us", "window_us", "lag_us", "phase_us", "stopped_us")),
        *((name, _U32) for name in ("noise_milliwatts", "spare")),
    ]


class Gpu(ctypes.Structure):
    """The twin of ``struct gpu`` in state.h, where the fields are explained."""

    _fields_ = [
        ("uuid", ctypes.c_char * 96),
        ("name", ctypes.c_char * 96),
        *((call, _I32) for call in CALLS),
        *((name, _U32 * len(CALLS)) for name in ("counts", "fail_from", "fail_until")),
        ("fail_with", _I32 * len(CALLS)),
        *((name, _U32) for name in ("calls", "lost_from", "call_us", "architecture", "clock_mhz")),
        ("memory_mhz", _U32 * 2),
        ("clock_count", _U32),
        ("clocks_mhz", _U32 * 256),
        ("reason_bits", _U64),
        ("millijoules", _U64),
        *((name, _U32) for name in ("instant_milliwatts", "average_milliwatts", "usage_milliwatts")),
        ("module", _I32),
        *((name, _U32) for name in ("rest_milliwatts", "ring_count")),
        ("samples", _Sample * 256),
        *((f"{name}_sensor", Sensor) for name in ("counter", "ring", "instant", "average", "usage")),
        *((name, _U32) for name in ("segment_count", "ring_length")),
        ("segments", _Segment * 1024),
        *((name, _U32) for name in ("locked_min_mhz", "locked_max_mhz")),
        *((name, _U32) for name in ("sets", "resets", "reset_failures_left")),
        *((name, _U32) for name in ("app_memory_mhz", "app_clock_mhz")),
        *((name, _U32) for name in ("default_app_memory_mhz", "default_app_clock_mhz")),
        *((name, _U32) for name in ("app_sets", "app_resets", "disobedient", "capped_mhz", "before_mhz")),
        *((name, _U64) for name in ("settle_us", "changed_us")),
        ("process_count", _U32),
        ("pids", _U32 * 16),
        *((name, _U32) for name in ("persistence_mode", "mig_mode", "temperature_c", "load_percent")),
        *((name, _U32) for name in ("capability_major", "capability_minor")),
        *((name, _U32) for name in ("virtualization_mode", "restricted")),
        *((f"{name}_milliwatts", _U32) for name in ("limit", "enforced_limit", "least_limit", "most_limit")),
        ("default_limit_milliwatts", _U32),
        ("limit_sets", _U32),
        ("limit_step_milliwatts", _U32),
        *((name, _U32) for name in ("profile_bits", "requested_profiles")),
    ]


class State(ctypes.Structure):
    """The twin of ``struct state``; names of the first GPU's fields are names here too."""

    _anonymous_ = ("first",)
    _fields_ = [
        ("first", Gpu),
        ("second", Gpu),
        ("init", _I32),
        ("gpu_count", _U32),
        ("time_us", _U64),
        ("stamp_offset_us", ctypes.c_int64),
        ("driver", ctypes.c_char * 80),
        ("version", ctypes.c_char * 80),
        ("cuda", _I32),
        ("spare", _U32),
    ]


class PlayedClock:
    """Time of a fake GPU that moves when told, in seconds; from here on the GPU does not follow real time.

    Args:
        state: whose time.
        time_s: where it starts.
    """

    def __init__(self, state: State, time_s: float = 1000.0) -> None:
        self._state = state
        self.set(time_s)

    def __call__(self) -> float:
        """Present time."""
        return float(self._state.time_us) / 1e6

    def wall(self) -> float:
        """Present time as the stamps of the ring show it."""
        return float(self._state.time_us + self._state.stamp_offset_us) / 1e6

    def set(self, time_s: float) -> None:
        """Make it ``time_s``."""
        self._state.time_us = round(time_s * 1e6)

    def advance(self, duration_s: float) -> None:
        """Let time pass."""
        self._state.time_us += round(duration_s * 1e6)


@functools.cache
def library() -> str:
    """Path of the compiled fake; the test is skipped where there is no C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build the fake NVML with")
    folder = tempfile.mkdtemp(prefix="fake-nvml-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = f"{folder}/libnvidia-ml.so.1"
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-Wl,-soname,libfake-nvml.so"]
    sources = map(str, sorted(SOURCES.glob("*.c")))
    subprocess.run([compiler, *flags, "-o", target, *sources, "-lm"], check=True)
    assert ctypes.CDLL(target).fakeStateSize() == ctypes.sizeof(State), "State is not struct state"
    return target


@contextmanager
def fake_nvml(folder: Path) -> Iterator[State]:
    """Let NVML be the fake, in this process and those it starts; yields the state, an H200 of one GPU."""
    path = library()
    file = folder / "nvml-state"
    file.write_bytes(bytes(ctypes.sizeof(State)))
    with file.open("r+b") as stream:
        state = State.from_buffer(mmap.mmap(stream.fileno(), 0))
    state.gpu_count, state.driver, state.version, state.cuda = 1, b"580.159", b"13.580.159", 13000
    for gpu, uuid in ((state.first, UUID), (state.second, SECOND_UUID)):
        _default(gpu, uuid)
    real = pynvml.nvmlLib
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAKE_NVML_STATE", str(file))
        patch.setattr(pynvml, "nvmlLib", ctypes.CDLL(path))
        patch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        try:
            yield state
        finally:
            ctypes.CDLL(path).fakeForget()
    assert pynvml.nvmlLib is real


def _default(gpu: Gpu, uuid: str) -> None:
    """An idle H200 that one may read, but whose power readings show nothing yet."""
    gpu.uuid, gpu.name, gpu.architecture = uuid.encode(), b"NVIDIA H200", 9
    gpu.capability_major, gpu.restricted = 9, 1
    gpu.memory_mhz[:] = (2201, 3201)
    gpu.clock_mhz, gpu.clock_count = CLOCKS_MHZ[0], len(CLOCKS_MHZ)
    gpu.clocks_mhz[: len(CLOCKS_MHZ)] = CLOCKS_MHZ
    gpu.app_memory_mhz = gpu.default_app_memory_mhz = 3201
    gpu.app_clock_mhz = gpu.default_app_clock_mhz = CLOCKS_MHZ[0]
    gpu.module = NOT_SUPPORTED
    gpu.persistence_mode, gpu.temperature_c = 1, 40
    gpu.limit_milliwatts = gpu.enforced_limit_milliwatts = gpu.most_limit_milliwatts = 700_000
    gpu.least_limit_milliwatts, gpu.default_limit_milliwatts = 200_000, 700_000


def users() -> int:
    """How often this process has opened NVML without closing it again."""
    return int(ctypes.CDLL(library()).fakeUsers())


def fill_ring(gpu: Gpu | State, samples: Sequence[tuple[int, int]]) -> None:
    """Put (stamp in us, milliwatts) samples into the ring."""
    for index, (stamp_us, milliwatts) in enumerate(samples):
        gpu.samples[index].stamp_us, gpu.samples[index].milliwatts = stamp_us, milliwatts
    gpu.ring_count = len(samples)


def script(
    gpu: Gpu | State, *segments: tuple[float, float] | tuple[float, float, float, float, float]
) -> None:
    """Set the power curve.

    Args:
        gpu: whose.
        segments: (start in s, watts) of constant power, or (start, busy watts, idle watts, busy s, period s)
            of a square wave; each until the next. The first must start before a sensor looks back.
    """
    gpu.segment_count = len(segments)
    for slot, segment in zip(gpu.segments, segments, strict=False):
        start_s, watts, idle_w, busy_s, period_s = (*segment, 0.0, 0.0, 0.0)[:5]
        slot.start_us, slot.busy_us, slot.period_us = (round(t * 1e6) for t in (start_s, busy_s, period_s))
        slot.milliwatts, slot.idle_milliwatts = round(watts * 1e3), round(idle_w * 1e3)


def sensors_of_h200(gpu: Gpu | State, noise_w: float = 0.3) -> None:
    """Let every reading show the curve as those of an H200 do, at phases of their own.

    The counter ticks every 100 ms; the ring lags by 13 ms, one sample every 20 ms; instant power is a mean
    over 25 ms of every 100 ms; average and usage are means over the last second.
    """
    gpu.counter_sensor = Sensor(period_us=100_000, phase_us=13_000)
    gpu.ring_sensor, gpu.ring_length = Sensor(period_us=20_000, lag_us=13_000, phase_us=7_000), 119
    gpu.instant_sensor = Sensor(period_us=100_000, window_us=25_000, phase_us=31_000)
    gpu.average_sensor = Sensor(period_us=100_000, window_us=1_000_000, phase_us=31_000)
    gpu.usage_sensor = Sensor(period_us=100_000, window_us=1_000_000, phase_us=57_000)
    for sensor in (gpu.ring_sensor, gpu.instant_sensor, gpu.average_sensor, gpu.usage_sensor):
        sensor.noise_milliwatts = round(noise_w * 1e3)


@contextmanager
def h200_at(folder: Path, watts: float) -> Iterator[State]:
    """An H200 whose every reading answers, at a steady power."""
    with fake_nvml(folder) as state:
        script(state, (0.0, watts))
        sensors_of_h200(state)
        yield state


def follow_real_time(state: State) -> None:
    """Stamp the ring with the host's real-time clock."""
    state.stamp_offset_us = round((time.time() - time.monotonic()) * 1e6)


def fail(gpu: Gpu | State, call: str, result: int, *, nth: int = 1, times: int = 1) -> None:
    """Let a call of ``CALLS`` fail, the ``nth`` from now and as many ``times``, with a result of NVML."""
    index = CALLS.index(call)
    gpu.fail_from[index] = gpu.counts[index] + nth
    gpu.fail_until[index] = gpu.fail_from[index] + times - 1
    gpu.fail_with[index] = result


def lose(gpu: Gpu | State, nth: int = 1) -> None:
    """Let the GPU be lost from the ``nth`` call from now on."""
    gpu.lost_from = gpu.calls + nth


def count(gpu: Gpu | State, call: str) -> int:
    """How often a call of ``CALLS`` was made."""
    return int(gpu.counts[CALLS.index(call)])
