"""What is read of a GPU beside its power and clocks: health and temperature."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_nvml_state import NO_PERMISSION, UUID, State, fake_nvml, lose
from jetson_trees import write
from tuner.power.nvml.library import Thermometer, health

from tuner.model.errors import SensorUnavailableError


@pytest.fixture
def nvml(tmp_path: Path) -> Iterator[State]:
    with fake_nvml(tmp_path) as state:
        yield state


def test_facts_of_a_gpu(nvml: State) -> None:
    """Every fact that NVML tells is there, under its UUID and its index alike; nothing is set."""
    nvml.process_count, nvml.pids[0] = 1, 77
    facts = health(UUID)

    assert (facts.uuid, facts.name, facts.index, facts.driver) == (UUID, "NVIDIA H200", 0, "580.159")
    assert (facts.persistence, facts.mig, facts.temperature_c) == (True, False, 40.0)
    assert facts.processes == (77,)
    assert health(0) == facts
    assert (nvml.sets, nvml.resets) == (0, 0)


def test_what_is_withheld_is_none(nvml: State) -> None:
    """A fact that the board or the permissions withhold is None, not a failure."""
    nvml.processes = nvml.persistence = nvml.mig = nvml.temperature = NO_PERMISSION
    facts = health(UUID)

    assert (facts.processes, facts.persistence, facts.mig, facts.temperature_c) == (None, None, None, None)
    assert facts.name == "NVIDIA H200"


def test_a_gpu_that_is_not_there(nvml: State) -> None:
    """Neither a wrong UUID nor a lost GPU crosses the border as an exception of the binding."""
    with pytest.raises(SensorUnavailableError, match="GPU-other"):
        health("GPU-other")
    lose(nvml)
    with pytest.raises(SensorUnavailableError, match="lost"):
        health(UUID)


def test_temperature_of_a_card(nvml: State, tmp_path: Path) -> None:
    """A card's temperature is NVML's; one that it withholds is None."""
    thermometer = Thermometer(UUID, thermal=tmp_path)
    assert thermometer.read() == 40.0
    nvml.temperature = NO_PERMISSION
    assert thermometer.read() is None
    thermometer.close()


@pytest.mark.parametrize(
    ("kind", "millidegrees", "celsius"),
    [("GPU-therm", "46500", 46.5), ("gpu-thermal", "51000", 51.0), ("gpu-thermal", "-256000", None)],
)
def test_temperature_of_a_board(
    nvml: State, tmp_path: Path, kind: str, millidegrees: str, celsius: float | None
) -> None:
    """Where NVML does not answer, it is that of the kernel's zone of the GPU; a gated one is None."""
    nvml.init = 9
    write(tmp_path / "thermal_zone0/type", "CPU-therm")
    write(tmp_path / "thermal_zone0/temp", "99000")
    write(tmp_path / "thermal_zone1/type", kind)
    write(tmp_path / "thermal_zone1/temp", millidegrees)
    thermometer = Thermometer(0, thermal=tmp_path)

    assert thermometer.read() == celsius
    (tmp_path / "thermal_zone1/temp").unlink()
    assert thermometer.read() is None
    thermometer.close()
