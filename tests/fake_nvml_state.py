"""Builds the fake NVML of ``tests/fake_nvml`` and plays its GPU: readings to show, calls to see."""

import atexit
import ctypes
import functools
import mmap
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pynvml
import pytest

SOURCE = Path(__file__).parent / "fake_nvml" / "nvml.c"
UUID = "GPU-00000000-1111-2222-3333-444444444444"
CALLS = ("init", "energy", "ring", "instant", "usage", "clock", "reasons", "supported", "set", "reset")
CLOCKS_MHZ = (1980, 1500, 900, 345)


class _Sample(ctypes.Structure):
    _fields_ = [("stamp_us", ctypes.c_uint64), ("milliwatts", ctypes.c_uint64)]


class State(ctypes.Structure):
    """The twin of ``struct state`` in nvml.c, where the fields are explained."""

    _fields_ = [
        ("uuid", ctypes.c_char * 96),
        ("name", ctypes.c_char * 96),
        *((call, ctypes.c_int32) for call in CALLS),
        ("architecture", ctypes.c_uint32),
        ("clock_mhz", ctypes.c_uint32),
        ("memory_mhz", ctypes.c_uint32 * 2),
        ("clock_count", ctypes.c_uint32),
        ("clocks_mhz", ctypes.c_uint32 * 256),
        ("reason_bits", ctypes.c_uint64),
        ("millijoules", ctypes.c_uint64),
        ("tick_us", ctypes.c_uint64),
        ("watts", ctypes.c_uint64),
        ("instant_milliwatts", ctypes.c_uint32),
        ("usage_milliwatts", ctypes.c_uint32),
        ("ring_count", ctypes.c_uint32),
        ("samples", _Sample * 256),
        ("locked_min_mhz", ctypes.c_uint32),
        ("locked_max_mhz", ctypes.c_uint32),
        ("sets", ctypes.c_uint32),
        ("resets", ctypes.c_uint32),
        ("reset_failures_left", ctypes.c_uint32),
    ]


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
    subprocess.run([compiler, *flags, "-o", target, str(SOURCE)], check=True)
    assert ctypes.CDLL(target).fakeStateSize() == ctypes.sizeof(State), "State is not struct state"
    return target


@contextmanager
def fake_nvml(folder: Path) -> Iterator[State]:
    """Let NVML be the fake, in this process and those it starts; yields the state of its one GPU."""
    path = library()
    file = folder / "nvml-state"
    file.write_bytes(bytes(ctypes.sizeof(State)))
    with file.open("r+b") as stream:
        state = State.from_buffer(mmap.mmap(stream.fileno(), 0))
    state.uuid, state.name, state.architecture = UUID.encode(), b"NVIDIA H200", 9
    state.memory_mhz[:] = (2201, 3201)
    state.clock_mhz, state.clock_count = CLOCKS_MHZ[0], len(CLOCKS_MHZ)
    state.clocks_mhz[: len(CLOCKS_MHZ)] = CLOCKS_MHZ
    real = pynvml.nvmlLib
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAKE_NVML_STATE", str(file))
        patch.setattr(pynvml, "nvmlLib", ctypes.CDLL(path))
        patch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        yield state
    assert pynvml.nvmlLib is real


def fill_ring(state: State, samples: Sequence[tuple[int, int]]) -> None:
    """Put (stamp in us, milliwatts) samples into the ring."""
    for index, (stamp_us, milliwatts) in enumerate(samples):
        state.samples[index].stamp_us, state.samples[index].milliwatts = stamp_us, milliwatts
    state.ring_count = len(samples)
