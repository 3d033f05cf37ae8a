"""The units: well formed, hardened, in agreement with the code, and in the wheel."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tuner.power.clocks import clockd
from tuner.power.clocks import config as clock_config
from tuner.power.clocks.clockd_protocol import SOCKET

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
UNITS = ROOT / "systemd"
SERVICE, JETSON = UNITS / "tuner-clockd.service", UNITS / "tuner-clockd.service.d" / "jetson.conf"
WORST_EXPOSURE = 1.5

needs_analyze = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")


def settings(*paths: Path) -> dict[str, list[str]]:
    """Values by name of a unit and its drop-ins; an empty one takes back what came before."""
    found: dict[str, list[str]] = {}
    for line in "\n".join(path.read_text() for path in paths).splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found[name] = [*found.get(name, []), value] if value else []
    return found


@pytest.fixture(params=["server", "jetson"])
def installed(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with the units as they are installed, for programs that are here."""
    program = tmp_path / "tuner-clockd"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    for path in (SERVICE, UNITS / "tuner-clockd.socket"):
        (tmp_path / path.name).write_text(path.read_text().replace("/opt/tuner/bin/", f"{tmp_path}/"))
    if request.param == "jetson":
        shutil.copytree(JETSON.parent, tmp_path / JETSON.parent.name)
    return tmp_path


@needs_analyze
def test_units_are_well_formed(installed: Path) -> None:
    """The units hold no setting that systemd warns of."""
    units = [installed / "tuner-clockd.service", installed / "tuner-clockd.socket"]
    outcome = subprocess.run(
        ["systemd-analyze", "verify", *units], check=False, capture_output=True, text=True
    )

    assert [line for line in outcome.stderr.splitlines() if "tuner" in line] == []


@needs_analyze
def test_units_are_hardened(installed: Path) -> None:
    """What systemd calls the exposure of the root helper stays low, on a Jetson too."""
    outcome = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", installed / "tuner-clockd.service"],
        check=False,
        capture_output=True,
        text=True,
    )
    if "unrecognized option" in outcome.stderr:
        pytest.skip("systemd-analyze is too old to judge units that do not run")
    exposure = re.search(r"Overall exposure level.*: ([0-9.]+)", outcome.stdout)

    assert exposure is not None, outcome.stderr
    assert float(exposure[1]) <= WORST_EXPOSURE


@pytest.mark.parametrize("name", ["ExecStart", "ExecStartPre", "ExecStopPost"])
def test_commands_exist(name: str) -> None:
    """The helper takes the options that the unit gives it."""
    (command,) = settings(SERVICE)[name]
    program, *options = command.split()

    assert program.lstrip("-") == "/opt/tuner/bin/tuner-clockd"
    assert clockd._parser().parse_args(options).command == ("serve" if name == "ExecStart" else "restore")


def test_every_end_is_cleaned_up_after() -> None:
    """Whatever ends the service, clocks are restored; the journal lives as long, and the loop is watched."""
    found = settings(SERVICE)

    assert found["RuntimeDirectory"] == ["tuner"]
    assert found["RuntimeDirectoryPreserve"] == ["yes"]
    assert found["Restart"] == ["on-failure"]
    assert 3 * clockd.TTL_S >= float(found["WatchdogSec"][0]) > clockd.TTL_S / 2


def test_the_socket_is_where_clients_look() -> None:
    """Socket unit and client mean the same path, in the directory that all may enter."""
    found = settings(UNITS / "tuner-clockd.socket")

    assert found["ListenStream"] == [str(SOCKET)]
    assert (found["SocketMode"], found["SocketGroup"], found["DirectoryMode"]) == (
        ["0660"],
        ["tuner"],
        ["0755"],
    )
    assert re.search(r"^g tuner - -$", (UNITS / "tuner.sysusers.conf").read_text(), re.MULTILINE)
    tmpfiles = (UNITS / "tuner.tmpfiles.conf").read_text()
    assert re.search(rf"^d {SOCKET.parent} 0755 root root -$", tmpfiles, re.MULTILINE)


def test_drivers_of_every_age_are_reached() -> None:
    """The device ACL has both names that drivers give to /dev/nvidia0, and the control device."""
    allowed = settings(SERVICE)["DeviceAllow"]

    assert {"char-nvidia rw", "char-nvidia-frontend rw", "char-nvidiactl rw"} == set(allowed)


def test_a_jetson_needs_no_capability() -> None:
    """On a Jetson the helper has no capability at all, and of /sys it may write the GPU alone."""
    found = settings(SERVICE, JETSON)

    assert found["CapabilityBoundingSet"] == []
    assert found["ProtectKernelTunables"] == ["yes"]
    assert all(path.startswith("-/sys/devices/") for path in found["ReadWritePaths"])


def test_the_example_configuration_holds(tmp_path: Path) -> None:
    """The example rules nothing as it is shipped, and is right when its entries are taken into use."""
    example = UNITS / "clockd.toml"
    assert clock_config.load(example) == clock_config.ClockConfig()
    used = tmp_path / "clockd.toml"
    used.write_text(re.sub(r'^# (")', r"\1", example.read_text(), flags=re.MULTILINE))

    assert clock_config.load(used).rules("GPU-1").limits_mhz == (345, 1755)
    assert len(clock_config.load(used).baseline) == 1


def test_everything_is_packaged() -> None:
    """Each file beside the units is matched by a pattern of the package data."""
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    shipped = {path for pattern in data["tuner.systemd"] for path in UNITS.glob(pattern)}

    assert shipped == {path for path in UNITS.rglob("*") if path.is_file()}
