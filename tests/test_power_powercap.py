"""Energy from powercap zones and hwmon files: which are found, wraps, and zones that go."""

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from powercap_trees import RANGE_UJ, build, played, zone
from sampler_rigs import HandClock
from tuner.power.base import Reading
from tuner.power.sensors import hwmon, powercap

from tuner.model.errors import PowerError, SensorUnavailableError

WATTS = {"package-0": 100.0, "package-1": 60.0, "dram": 10.0, "psys": 250.0}


def readings(sysfs: Path, clock: HandClock) -> dict[str, Reading]:
    found = powercap.readings(0, responses=lambda _: None, now=clock, sysfs=sysfs)
    return {reading.name: reading for reading in found}


def joules(reading: Reading, clock: HandClock, seconds: float) -> float:
    """What a reading counts in some time that it is polled in."""
    with closing(reading.open()) as sampler:
        clock.time_s += 0.05
        first = sampler.poll()[0]
        for _ in range(round(seconds / 0.05)):
            clock.time_s += 0.05
            last = sampler.poll()[0]
    return last.value - first.value


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> HandClock:
    clock = HandClock()
    monkeypatch.setattr(powercap, "SysfsAttribute", played(WATTS, clock))
    return clock


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, {"package", "dram"}),
        ({"packages": 2}, {"package", "package-0", "package-1", "dram", "dram-0", "dram-1"}),
        ({"dram": False, "psys": True}, {"package", "psys"}),
        ({"mmio": True}, {"package", "dram"}),
    ],
)
def test_zones_are_found_once(
    options: dict[str, Any], names: set[str], tmp_path: Path, clock: HandClock
) -> None:
    """Packages and DRAM are summed over sockets; parts of packages, and repeated ones, are left out."""
    found = readings(build(tmp_path, **options), clock)

    assert set(found) == {f"powercap:{name}" for name in names}


def test_sockets_are_added(tmp_path: Path, clock: HandClock) -> None:
    """The joules of all packages are the sum of each one's, and the platform's are in no sum."""
    found = readings(build(tmp_path, 2, psys=True), clock)

    assert joules(found["powercap:package"], clock, 2.0) == pytest.approx(320.0, rel=1e-6)
    assert joules(found["powercap:package-1"], clock, 2.0) == pytest.approx(120.0, rel=1e-6)
    assert joules(found["powercap:dram"], clock, 2.0) == pytest.approx(40.0, rel=1e-6)
    with closing(found["powercap:package"].open()) as sampler:
        assert sampler.info.scope == "package"


@given(begin_uj=st.integers(0, RANGE_UJ - 1), seconds=st.floats(0.5, 20.0))
def test_a_wrap_is_a_wrap(begin_uj: int, seconds: float, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Joules do not depend on where the counter stood, also where it began at 0 again."""
    clock = HandClock()
    sysfs = build(tmp_path_factory.mktemp("powercap"), dram=False)
    near_uj = RANGE_UJ - begin_uj // 20_000  # a wrap lies in most of the times
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(powercap, "SysfsAttribute", played(WATTS, clock, near_uj))
        found = joules(readings(sysfs, clock)["powercap:package"], clock, seconds)

    assert found == pytest.approx(100.0 * 0.05 * round(seconds / 0.05), abs=1e-3)


def test_a_counter_that_was_reset_did_not_wrap(tmp_path: Path) -> None:
    """More power than any package draws shows a reset: the counter goes back, as the meter is to see."""
    folder, clock = zone(tmp_path, "intel-rapl:0", "package-0", energy_uj=50_000_000_000), HandClock()
    with closing(readings(tmp_path, clock)["powercap:package"].open()) as sampler:
        clock.time_s += 0.1
        sampler.poll()
        (folder / "energy_uj").write_text("10\n")
        clock.time_s += 0.1
        assert sampler.poll()[0].value < 0


def test_a_long_pause_is_known(tmp_path: Path, clock: HandClock) -> None:
    """The sampler says how seldom it may be read without losing a wrap."""
    with closing(readings(build(tmp_path), clock)["powercap:dram"].open()) as sampler:
        assert 30.0 < sampler.info.longest_pause_s < 33.0  # 65.7 kJ at 2 kW


def test_a_zone_that_vanishes_is_told(tmp_path: Path, clock: HandClock) -> None:
    """A driver that is unloaded ends the reading with an error that names the zone."""
    sysfs = build(tmp_path, dram=False)
    with closing(readings(sysfs, clock)["powercap:package"].open()) as sampler:
        shutil.rmtree(sysfs / "class/powercap/intel-rapl:0")
        clock.time_s += 0.1
        with pytest.raises(PowerError, match="intel-rapl:0"):
            sampler.poll()


@pytest.mark.parametrize(("range_uj", "energy_uj"), [(None, 1000), (0, 1000), (RANGE_UJ, 0)])
@pytest.mark.parametrize("packages", [1, 2])
def test_no_zone_is_left_out_of_a_sum(
    range_uj: int | None, energy_uj: int, packages: int, tmp_path: Path
) -> None:
    """A package that tells no range, or counts nothing, is refused with its file's name."""
    for number in range(packages - 1):
        zone(tmp_path, f"intel-rapl:{number}", f"package-{number}")
    last = f"package-{packages - 1}"
    folder = zone(tmp_path, f"intel-rapl:{packages - 1}", last, energy_uj, range_uj or 0)
    if range_uj is None:
        (folder / "max_energy_range_uj").unlink()
    found = readings(tmp_path, HandClock())

    with pytest.raises(
        SensorUnavailableError, match=f"{folder.name}/(max_)?energy_.*uj: (is missing or|reads) 0"
    ):
        found["powercap:package"].open()
    if packages > 1:
        found["powercap:package-0"].open().close()


def test_two_zones_of_one_name_are_both_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels before 5.3 call both dies of a package alike; what the second control repeats is left out."""
    clock = HandClock()
    for number in range(2):
        zone(tmp_path, f"intel-rapl:{number}", "package-0")
    zone(tmp_path, "intel-rapl-mmio:0", "package-0")
    monkeypatch.setattr(powercap, "SysfsAttribute", played(WATTS, clock))
    found = readings(tmp_path, clock)

    assert set(found) == {"powercap:package", "powercap:package-0", "powercap:package-0#2"}
    assert joules(found["powercap:package"], clock, 1.0) == pytest.approx(200.0, rel=0.01)


def test_a_zone_that_stands_still_is_told(tmp_path: Path) -> None:
    """Every zone counts all the time; one that does not would be left out of the sum."""
    clock = HandClock()
    for number in range(2):
        zone(tmp_path, f"intel-rapl:{number}", f"package-{number}")
    moving = tmp_path / "class/powercap/intel-rapl:0/energy_uj"
    with closing(readings(tmp_path, clock)["powercap:package"].open()) as sampler:
        for number in range(48):
            clock.time_s += 0.1
            moving.write_text(f"{10_000 * (number + 1)}\n")
            sampler.poll()
        clock.time_s += 0.5
        with pytest.raises(PowerError, match="intel-rapl:1/energy_uj stopped updating"):
            sampler.poll()


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    """No zone, and a file that is no number or may not be read, are reasons with a name."""
    (none,) = readings(tmp_path, HandClock()).values()
    with pytest.raises(SensorUnavailableError, match="no RAPL zone"):
        none.open()
    folder = zone(tmp_path, "intel-rapl:0", "package-0")
    (folder / "energy_uj").unlink()
    with pytest.raises(SensorUnavailableError, match="energy_uj: No such file"):
        readings(tmp_path, HandClock())["powercap:package"].open()


# --- Power of AMD GPUs and of Grace from hwmon files.

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


def hwmon_readings(root: Path, clock: HandClock) -> dict[str, Reading]:
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
    found = hwmon_readings(grace(tmp_path), clock)

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
    found = hwmon_readings(tmp_path, clock)

    assert set(found) == {"hwmon:amdgpu-0000:03:00.0", "hwmon:amdgpu-0000:83:00.0"}
    assert watts(found["hwmon:amdgpu-0000:83:00.0"], clock) == pytest.approx(250.0)


def test_a_reading_that_is_not_there_is_told(tmp_path: Path) -> None:
    """No known chip, a file without a number, and one that goes."""
    clock = HandClock()
    (none,) = hwmon_readings(tmp_path, clock).values()
    with pytest.raises(SensorUnavailableError, match="no AMD GPU and no Grace"):
        none.open()
    file = chip(tmp_path, 0, "amdgpu", "0000:03:00.0", power1_average=1)
    (card,) = hwmon_readings(tmp_path, clock).values()
    with closing(card.open()) as sampler:
        file.write_text("off\n")
        with pytest.raises(PowerError, match="instead of a number"):
            sampler.poll()
    with pytest.raises(SensorUnavailableError, match="power1_average"):
        card.open()
