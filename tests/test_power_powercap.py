"""Energy of packages and DRAM from powercap zones: which are found, wraps, and zones that go."""

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from powercap_trees import RANGE_UJ, build, played, zone
from sampler_rigs import HandClock
from tuner.power.sensors import powercap

from tuner.errors import PowerError, SensorUnavailableError
from tuner.interfaces import Reading

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


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    """No zone, and a file that is no number or may not be read, are reasons with a name."""
    (none,) = readings(tmp_path, HandClock()).values()
    with pytest.raises(SensorUnavailableError, match="no RAPL zone"):
        none.open()
    folder = zone(tmp_path, "intel-rapl:0", "package-0")
    (folder / "energy_uj").unlink()
    with pytest.raises(SensorUnavailableError, match="energy_uj: No such file"):
        readings(tmp_path, HandClock())["powercap:package"].open()
