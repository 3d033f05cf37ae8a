"""Power of AMD GPUs and of Grace from hwmon files."""

from contextlib import closing
from pathlib import Path

import pytest
from sampler_rigs import HandClock
from tuner.power.base import Reading
from tuner.power.sensors import hwmon

from tuner.model.errors import PowerError, SensorUnavailableError

GRACE = ("Module", "Grace", "CPU", "SysIO")


def chip(root: Path, number: int, name: str, device: str, **files: int) -> Path:
    """A chip of hwmon with a file of microwatts, which is returned."""
    ((file, microwatts),) = files.items()
    target = root / "devices" / device
    target.mkdir(parents=True, exist_ok=True)
    folder = root / f"class/hwmon/hwmon{number}"
    folder.mkdir(parents=True)
    (folder / "device").symlink_to(target)
    (folder / "name").write_text(f"{name}\n")
    (folder / file).write_text(f"{microwatts}\n")
    return folder / file


def grace(root: Path, sockets: int = 2) -> Path:
    """A Grace superchip: four meters a socket."""
    for number in range(4 * sockets):
        socket, rail = divmod(number, 4)
        device = f"ACPI000D:{number:02}"
        file = chip(root, number, "power_meter", device, power1_average=(rail + 1) * 50_000_000)
        (root / f"devices/{device}/power1_oem_info").write_text(f"{GRACE[rail]} Power Socket {socket}\n")
        (file.parent / "power1_average_interval").write_text("50\n")
    return root


def readings(root: Path, clock: HandClock) -> dict[str, Reading]:
    found = hwmon.readings(0, responses=lambda _: None, now=clock, sysfs=root)
    return {reading.name: reading for reading in found}


def watts(reading: Reading, clock: HandClock) -> float:
    with closing(reading.open()) as sampler:
        for _ in range(10):
            clock.time_s += sampler.info.poll_interval_s
            found = sampler.poll()
            if found:
                return found[0].value
    raise AssertionError("no sample")


def test_the_meters_of_a_grace_are_named_by_what_they_see(tmp_path: Path) -> None:
    """Each rail summed over sockets, and each socket's; means over the interval that is told."""
    clock = HandClock()
    found = readings(grace(tmp_path), clock)

    assert {"hwmon:module", "hwmon:grace", "hwmon:cpu", "hwmon:sysio", "hwmon:grace-1"} <= set(found)
    assert watts(found["hwmon:grace"], clock) == pytest.approx(200.0)
    assert watts(found["hwmon:grace-1"], clock) == pytest.approx(100.0)
    with closing(found["hwmon:cpu"].open()) as sampler:
        assert (sampler.info.scope, sampler.info.period_s) == ("cpu", 0.05)
        assert sampler.info.response.window_s == 0.05


@pytest.mark.parametrize("file", ["power1_average", "power1_input"])
def test_amd_gpus_are_read_each(file: str, tmp_path: Path) -> None:
    """Two cards are two readings; nobody adds them."""
    clock = HandClock()
    for number, card in enumerate(("0000:03:00.0", "0000:83:00.0")):
        chip(tmp_path, number, "amdgpu", card, **{file: 250_000_000})
    chip(tmp_path, 7, "nvme", "nvme0", power1_input=5_000_000)
    found = readings(tmp_path, clock)

    assert set(found) == {"hwmon:amdgpu-0000:03:00.0", "hwmon:amdgpu-0000:83:00.0"}
    assert watts(found["hwmon:amdgpu-0000:83:00.0"], clock) == pytest.approx(250.0)


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    """No known chip, a file without a number, and one that goes."""
    clock = HandClock()
    (none,) = readings(tmp_path, clock).values()
    with pytest.raises(SensorUnavailableError, match="no AMD GPU and no Grace"):
        none.open()
    file = chip(tmp_path, 0, "amdgpu", "0000:03:00.0", power1_average=1)
    (card,) = readings(tmp_path, clock).values()
    with closing(card.open()) as sampler:
        file.write_text("off\n")
        with pytest.raises(PowerError, match="instead of a number"):
            sampler.poll()
    with pytest.raises(SensorUnavailableError, match="power1_average"):
        card.open()
