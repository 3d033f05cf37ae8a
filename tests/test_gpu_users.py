"""A GPU is to be calibrated only while it has nothing else to do."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_nvml_state import UUID, State, fake_nvml

from tuner.devices.gpu_users import require_exclusive_gpu
from tuner.model.errors import DeviceError


@pytest.fixture
def nvml(tmp_path: Path) -> Iterator[State]:
    """A GPU of 41 degrees on which nobody computes."""
    with fake_nvml(tmp_path) as state:
        state.temperature_c = 41
        yield state


def test_an_idle_gpu_tells_its_temperature(nvml: State) -> None:
    """Nobody but ourselves is no company."""
    assert require_exclusive_gpu(UUID) == 41.0
    nvml.process_count, nvml.pids[0] = 1, 4711
    assert require_exclusive_gpu(UUID, ours=1) == 41.0


@pytest.mark.parametrize("ours", [0, 1])
def test_others_are_refused(nvml: State, ours: int) -> None:
    """One process more than our own is too many; all are told, since ours may have another number there."""
    nvml.process_count = ours + 1
    for slot in range(ours + 1):
        nvml.pids[slot] = 4711 + slot

    with pytest.raises(DeviceError, match=r"others compute on it.*4711.*end them, or wait") as caught:
        require_exclusive_gpu(UUID, ours)
    assert ("our own among them" in str(caught.value)) == bool(ours)


def test_instances_are_refused(nvml: State) -> None:
    """The sensors of a GPU that is cut into instances see all of them."""
    nvml.mig_mode = 1

    with pytest.raises(DeviceError, match="MIG is on"):
        require_exclusive_gpu(UUID)


def test_who_tells_nothing_has_no_company(nvml: State) -> None:
    """Where NVML knows no such GPU, as on a Jetson, nothing is known and nothing refused."""
    assert nvml.uuid
    assert require_exclusive_gpu("GPU-other") is None
