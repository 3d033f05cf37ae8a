"""Energy counters through the helper: only when allowed, by name, and rarely."""

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from powercap_trees import build
from sampler_rigs import HandClock
from test_power_clockd import Client, Helper
from tuner.power.clocks.clockd import LEAST_S, RareReads
from tuner.power.clocks.clockd_client import ClockRequest
from tuner.power.sensors import powercap
from tuner.power.sensors.attributes import zones

from tuner.model.errors import PowerError, SensorUnavailableError


class EnergyHelper(Helper):
    """A helper of a host with two packages."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.allowed = True
        self.sysfs = build(folder / "sys", 2, psys=True)
        folders = {zone.name: zone.folder for zone in zones(self.sysfs) if zone.domain != "psys"}
        self.server._energy = RareReads(lambda: self.allowed, lambda: folders, lambda: self.time_s)

    def count(self, zone: str, microjoules: int) -> None:
        """Let a package's counter stand somewhere."""
        (self.sysfs / f"class/powercap/{zone}/energy_uj").write_text(str(microjoules))


@pytest.fixture
def helper(tmp_path: Path) -> Iterator[EnergyHelper]:
    made = EnergyHelper(tmp_path)
    yield made
    made.server._close()


@pytest.fixture
def client(helper: EnergyHelper) -> Iterator[Client]:
    with helper.connect() as made:
        yield made


def test_counters_are_read_by_name(helper: EnergyHelper, client: Client) -> None:
    """Packages and DRAM are told; what may change nothing holds no GPU."""
    helper.count("intel-rapl:1", 1234)

    assert helper.hear(client, ClockRequest("energy", zone="package-1")) == {"ok": True, "uj": 1234}
    assert len(helper.leases) == 0


def test_a_counter_is_not_read_faster(helper: EnergyHelper, client: Client) -> None:
    """Whoever asks sooner is told the same value again, on any connection."""
    request = ClockRequest("energy", zone="package-0")
    helper.count("intel-rapl:0", 1)
    assert helper.hear(client, request)["uj"] == 1
    helper.count("intel-rapl:0", 2)
    helper.time_s += LEAST_S / 2
    with helper.connect() as other:
        assert helper.hear(other, request)["uj"] == 1
    helper.time_s += LEAST_S
    assert helper.hear(client, request)["uj"] == 2


def test_nothing_is_read_unless_it_is_allowed(helper: EnergyHelper, client: Client) -> None:
    """The refusal names the file and the key."""
    helper.allowed = False
    answer = helper.hear(client, ClockRequest("energy", zone="package-0"))

    assert answer["code"] == "permission"
    assert "[powercap] read = true in /etc/tuner/clockd.toml" in answer["message"]


@pytest.mark.parametrize(
    "zone", ["psys", "core", "../../etc/passwd", "package-0/../dram-0", "package-00000", ""]
)
def test_other_names_are_refused(zone: str, helper: EnergyHelper, client: Client) -> None:
    """No path, and no other zone; the connection is closed."""
    assert helper.hear(client, ClockRequest("energy", zone=zone))["code"] == "malformed"


def test_a_zone_that_is_not_there_is_told(helper: EnergyHelper, client: Client) -> None:
    """The connection goes on."""
    assert "does not count dram-7" in helper.hear(client, ClockRequest("energy", zone="dram-7"))["message"]
    assert helper.hear(client, ClockRequest("energy", zone="dram-1"))["ok"]


def test_a_reading_goes_through_the_helper(helper: EnergyHelper, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a file is root's, the helper is asked, and asked anew after it has ended a silent connection."""

    class RootsFile:
        def __init__(self, path: Path) -> None:
            raise PowerError(f"{path}: Permission denied") from PermissionError()

    clock = HandClock()
    monkeypatch.setattr(powercap, "SysfsAttribute", RootsFile)
    monkeypatch.setattr(powercap, "HELPER", helper.path)
    readings = powercap.readings(0, responses=lambda _: None, now=clock, sysfs=helper.sysfs)
    (package,) = (reading for reading in readings if reading.name == "powercap:package-0")
    server = threading.Thread(target=helper.server.serve)
    server.start()
    try:
        with closing(package.open()) as sampler:
            helper.count("intel-rapl:0", 5_001_000)
            helper.time_s += 1.0
            clock.time_s += 1.0
            assert sampler.poll()[0].value == pytest.approx(5.0)
            helper.allowed = False
            clock.time_s += 1.0
            with pytest.raises(PowerError, match=r"through tuner-clockd: .*read = true"):
                sampler.poll()
        with pytest.raises(SensorUnavailableError, match=r"Permission denied; .*read = true"):
            package.open()
    finally:
        helper.server.stop()
        server.join()
