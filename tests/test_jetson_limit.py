"""The power limit of a Jetson: the current limit of a rail that its kernel states."""

from pathlib import Path

import pytest
from jetson_trees import build, rail_files, write
from tuner.power.clocks.devfreq import DevfreqActuator, JetsonPowerLimit
from tuner.power.sensors.rails import choices


def limit_of(sysfs: Path, rail: str, milliamperes: int | str) -> Path:
    """State a limit for a rail; the file it is in."""
    current = rail_files(sysfs, rail)[1]
    path = current.with_name(current.name.replace("_input", "_max"))
    write(path, milliamperes)
    return path


def read(sysfs: Path) -> tuple[float | None, str]:
    return JetsonPowerLimit(sysfs).read()


def test_the_limit_of_the_input_is_stated_with_its_scope(tmp_path: Path) -> None:
    """3 A at 5 V are 15 W of the total input; the GPU rail's limit beside it is another matter."""
    sysfs = build(tmp_path, "orin-nx")
    millivolts = int(rail_files(sysfs, "VDD_IN")[0].read_text())
    limit_of(sysfs, "VDD_CPU_GPU_CV", 2000)
    limit_of(sysfs, "VDD_IN", 3000)
    scope = choices(["VDD_IN"])[0].scope

    assert read(sysfs)[0] == pytest.approx(3e-3 * millivolts)
    assert read(sysfs)[1] == scope
    reading = DevfreqActuator("GPU-of-cuda", root=sysfs / "class/devfreq").read()
    assert (reading.power_limit_w, reading.limit_scope) == read(sysfs)


@pytest.mark.parametrize("stated", [32760, 0, -5, "none"])
def test_what_is_no_limit_is_none(stated: int | str, tmp_path: Path) -> None:
    """The end of the chip's scale, nothing, and what is no number."""
    sysfs = build(tmp_path, "orin-nx")
    assert read(sysfs) == (None, "gpu"), "no file"
    limit_of(sysfs, "VDD_IN", stated)
    assert read(sysfs) == (None, "gpu")
    limit_of(sysfs, "VDD_CPU_GPU_CV", 2000)
    assert read(sysfs)[1] == choices(["VDD_CPU_GPU_CV"])[0].scope


def test_a_limit_is_read_once_a_second(tmp_path: Path) -> None:
    """Each read is a transfer on a slow bus; a mode that is changed is seen a second later."""
    sysfs = build(tmp_path, "orin-nx")
    path = limit_of(sysfs, "VDD_IN", 3000)
    now = [0.0]
    limit = JetsonPowerLimit(sysfs, lambda: now[0])
    first = limit.read()
    write(path, 2000)

    assert limit.read() == first
    now[0] = 1.0
    assert limit.read()[0] == pytest.approx((first[0] or 0.0) * 2 / 3)
