"""The units: well formed, hardened, in agreement with the code, and in the wheel."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tuner.power.clocks.actuator import ClockConfig, load_config
from tuner.power.clocks.clockd import TTL_S, _parser
from tuner.power.clocks.clockd_client import SOCKET

from tuner.client import default_sockets

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
UNITS = ROOT / "systemd"
SERVICE, JETSON = UNITS / "tuner-clockd.service", UNITS / "tuner-clockd.service.d" / "jetson.conf"
DAEMON = UNITS / "tuner.service"
NAMES = (
    *("tuner-clockd.service", "tuner-clockd.socket", "tuner.service", "tuner.socket"),
    "tuner-worker@.service",
)
WORST_EXPOSURE = {"tuner-worker@.service": 2.0}  # it reaches other hosts

needs_analyze = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")


def settings(*paths: Path) -> dict[str, list[str]]:
    """Values by name of a unit and its drop-ins; an empty one takes back what came before."""
    found: dict[str, list[str]] = {}
    for line in "\n".join(path.read_text() for path in paths).splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found[name] = [*found.get(name, []), value] if value else []
    return found


@pytest.fixture(params=["server", "jetson", "tcp"])
def installed(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with the units as they are installed, for programs that are here."""
    for name in ("tuner", "tuner-clockd"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\n")
        program.chmod(0o700)
    for name in NAMES:
        (tmp_path / name).write_text((UNITS / name).read_text().replace("/opt/tuner/bin/", f"{tmp_path}/"))
    for drop_in in UNITS.glob(f"*.service.d/{request.param}.conf"):
        (tmp_path / drop_in.parent.name).mkdir()
        shutil.copy(drop_in, tmp_path / drop_in.parent.name)
    return tmp_path


def analyzed(*words: str | Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    variables = {**os.environ, **environment}
    return subprocess.run(
        ["systemd-analyze", *words], check=False, capture_output=True, text=True, env=variables
    )


@needs_analyze
def test_units_are_well_formed(installed: Path) -> None:
    """The units hold no setting that systemd warns of."""
    outcome = analyzed("verify", *(installed / name for name in NAMES))

    assert [line for line in outcome.stderr.splitlines() if "tuner" in line] == []


@needs_analyze
def test_user_units_are_well_formed(tmp_path: Path) -> None:
    """The units of a user hold no setting that systemd warns of."""
    for path in (UNITS / "user").iterdir():
        (tmp_path / path.name).write_text(path.read_text().replace("/opt/tuner/bin/tuner", "/bin/true"))
    outcome = analyzed("--user", "verify", *tmp_path.iterdir(), XDG_RUNTIME_DIR=str(tmp_path))

    assert [line for line in outcome.stderr.splitlines() if "tuner" in line] == []


@needs_analyze
@pytest.mark.parametrize("service", ["tuner-clockd.service", "tuner.service", "tuner-worker@.service"])
def test_units_are_hardened(installed: Path, service: str) -> None:
    """What systemd calls the exposure of each service stays low: on a server, on a Jetson, with TCP."""
    outcome = analyzed("security", "--offline=true", "--no-pager", installed / service)
    if "unrecognized option" in outcome.stderr:
        pytest.skip("systemd-analyze is too old to judge units that do not run")
    exposure = re.search(r"Overall exposure level.*: ([0-9.]+)", outcome.stdout)

    assert exposure is not None, outcome.stderr
    assert float(exposure[1]) <= WORST_EXPOSURE.get(service, 1.5)


@pytest.mark.parametrize("name", ["ExecStart", "ExecStartPre", "ExecStopPost"])
def test_commands_exist(name: str) -> None:
    """The helper takes the options that the unit gives it."""
    (command,) = settings(SERVICE)[name]
    program, *options = command.split()

    assert program.lstrip("-") == "/opt/tuner/bin/tuner-clockd"
    assert _parser().parse_args(options).command == ("serve" if name == "ExecStart" else "restore")


def test_every_end_is_cleaned_up_after() -> None:
    """Whatever ends the service, clocks are restored; the journal lives as long, and the loop is watched."""
    found = settings(SERVICE)

    assert found["RuntimeDirectory"] == ["tuner"]
    assert found["RuntimeDirectoryPreserve"] == ["yes"]
    assert found["Restart"] == ["on-failure"]
    assert 3 * TTL_S >= float(found["WatchdogSec"][0]) > TTL_S / 2


def test_the_daemon_is_nobody_and_ends_in_time() -> None:
    """The daemon has no capability, and is told of its end alone and in time."""
    found = settings(DAEMON)

    assert found["CapabilityBoundingSet"] == []
    assert (found["User"], found["Group"]) == (["tuner"], ["tuner"])
    assert (found["Type"], found["NotifyAccess"], found["KillMode"]) == (["notify"], ["main"], ["mixed"])
    assert float(found["TimeoutStopSec"][0]) > 10
    assert re.search(r"^u tuner - ", (UNITS / "tuner.sysusers.conf").read_text(), re.MULTILINE)


@pytest.mark.parametrize("folder", [UNITS, UNITS / "user"])
def test_clients_cannot_end_the_units(folder: Path) -> None:
    """No unit is given up after some starts, and no service stays down because of how it ended."""
    for unit in (*folder.glob("*.socket"), *folder.glob("*.service")):
        found = settings(unit)
        assert found["StartLimitIntervalSec"] == ["0"], unit
        if unit.suffix == ".service":
            assert found["Restart"] == ["always" if "worker" in unit.name else "on-failure"]
            assert "RestartPreventExitStatus" not in found
        else:
            triggers = int(found["TriggerLimitBurst"][0])
            assert triggers > 100


def test_directories_of_the_services_are_apart() -> None:
    """The daemon owns no directory that root trusts: the helper's journal is in another one."""
    assert settings(DAEMON)["RuntimeDirectory"] != settings(SERVICE)["RuntimeDirectory"]


def test_the_daemons_sockets_are_where_clients_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sockets of system and user are those that a client tries by itself, closed to all others."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", "%t")
    monkeypatch.delenv("TUNER_SOCKET", raising=False)
    system, user = settings(UNITS / "tuner.socket"), settings(UNITS / "user/tuner.socket")

    assert (system["SocketMode"], system["SocketGroup"]) == (["0660"], ["tuner"])
    assert user["SocketMode"] == ["0600"]
    assert [user["ListenStream"], system["ListenStream"]] == [[str(path)] for path in default_sockets()]


def test_a_worker_is_not_the_daemon() -> None:
    """Who has a pool's key runs code as a user that reaches no result of the daemon."""
    found, lines = settings(UNITS / "tuner-worker@.service"), (UNITS / "tuner.sysusers.conf").read_text()

    assert (found["User"], found["Group"]) == (["tuner-worker"], ["tuner-worker"])
    assert "m tuner-worker tuner-clocks" in lines.splitlines()
    shared = {"StateDirectory", "CacheDirectory", "RuntimeDirectory"} & set(found)
    assert not any(found[name] == settings(DAEMON)[name] for name in shared)


def test_the_loopback_is_opened_on_request_alone() -> None:
    """Without the drop-in the daemon reaches no network; with it the loopback, and nothing beyond."""
    tcp = UNITS / "tuner.service.d/tcp.conf"

    assert settings(DAEMON)["PrivateNetwork"] == ["yes"]
    assert settings(DAEMON, tcp)["IPAddressDeny"] == ["any"]
    assert settings(tcp)["IPAddressAllow"] == ["localhost"]


def test_the_socket_is_where_clients_look() -> None:
    """Socket unit and client mean the same path, in the directory that all may enter."""
    found = settings(UNITS / "tuner-clockd.socket")

    assert found["ListenStream"] == [str(SOCKET)]
    assert (found["SocketMode"], found["SocketGroup"], found["DirectoryMode"]) == (
        ["0660"],
        ["tuner-clocks"],
        ["0755"],
    )
    tmpfiles = (UNITS / "tuner.tmpfiles.conf").read_text()
    assert re.search(rf"^d {SOCKET.parent} 0755 root root -$", tmpfiles, re.MULTILINE)


def test_who_may_ask_may_not_set_clocks() -> None:
    """The two sockets have groups of their own, both are made, and the daemon is in that of the clocks."""
    asked, clocks = settings(UNITS / "tuner.socket"), settings(UNITS / "tuner-clockd.socket")
    lines = (UNITS / "tuner.sysusers.conf").read_text().splitlines()

    assert (*asked["SocketGroup"], *clocks["SocketGroup"]) == ("tuner", "tuner-clocks")
    assert {"g tuner - -", "g tuner-clocks - -", "m tuner tuner-clocks"} <= set(lines)


def test_drivers_of_every_age_are_reached() -> None:
    """The device ACL has both names that drivers give to /dev/nvidia0, and the control device."""
    names = {"char-nvidia rw", "char-nvidia-frontend rw", "char-nvidiactl rw"}

    assert names == set(settings(SERVICE)["DeviceAllow"])
    assert names | {"char-nvidia-uvm rw", "char-nvidia-caps rw"} == set(settings(DAEMON)["DeviceAllow"])


def test_compile_children_may_confine_themselves() -> None:
    """The filter lets Landlock's system calls through; systemd 252 does not count them to @system-service."""
    names = set(" ".join(settings(DAEMON)["SystemCallFilter"]).split())

    assert names >= {"landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"}


def test_a_jetson_needs_no_capability() -> None:
    """On a Jetson the helper has no capability at all, and of /sys it may write the GPU alone."""
    found = settings(SERVICE, JETSON)

    assert found["CapabilityBoundingSet"] == []
    assert found["ProtectKernelTunables"] == ["yes"]
    assert all(path.startswith("-/sys/devices/") for path in found["ReadWritePaths"])


def test_the_example_configuration_holds(tmp_path: Path) -> None:
    """The example rules nothing as it is shipped, and is right when its entries are taken into use."""
    example = UNITS / "clockd.toml"
    assert load_config(example) == ClockConfig()
    used = tmp_path / "clockd.toml"
    used.write_text(re.sub(r'^# (["[])', r"\1", example.read_text(), flags=re.MULTILINE))

    assert load_config(used).rules("GPU-1").limits_mhz == (345, 1755)
    assert len(load_config(used).baseline) == 1


def test_everything_is_packaged() -> None:
    """Each file beside the units is matched by a pattern of the package data."""
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    shipped = {path for pattern in data["tuner.systemd"] for path in UNITS.glob(pattern)}

    assert shipped == {path for path in UNITS.rglob("*") if path.is_file()}
