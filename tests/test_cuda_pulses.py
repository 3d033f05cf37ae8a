"""Pulses of load on the CUDA device, over a CuPy of virtual time."""

import numpy as np
import pytest
from fake_cuda import LIMITS, FakeCompiler
from fake_cupy import FakeCupy, Kernel

from tuner.devices.cuda.code import CodeCache
from tuner.devices.cuda.device import PulsePlayer
from tuner.model.errors import DeviceError


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
