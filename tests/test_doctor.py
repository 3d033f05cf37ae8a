"""What the doctor finds: each trouble named with its remedy, nothing set, nothing made."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fake_nvml_state import UUID, State, follow_real_time, h200_at
from jetson_trees import build, write
from tuner.power.clocks.devfreq import PowerModes
from tuner.power.clocks.journal import Ownership, SettingJournal

from tuner.cli import doctor as checks
from tuner.cli.doctor import Finding, Surroundings, examine, jetson, worst
from tuner.compiler.triton_server import TESTED
from tuner.database.files import mirror_of
from tuner.database.integrity.check import check_database, check_mirror
from tuner.database.runs import Store
from tuner.model.errors import StoreError
from tuner.system.ownership import this_process

NO_CUDA = "libcuda-of-no-machine.so.1"
COMPATIBLE = b"nvidia,p3737-0000+p3701-0000\0nvidia,tegra234\0"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The tree of a machine with nothing in it."""
    for folder in ("proc", "sys", "dev", "etc", "var", "run"):
        (tmp_path / "root" / folder).mkdir(parents=True)
    return tmp_path / "root"


@pytest.fixture
def around(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    monkeypatch.setattr("tuner.devices.cuda.probe.driver_problem", lambda: "no driver (a test)")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Surroundings(
        root=root,
        libcuda=NO_CUDA,
        journals=tmp_path / "journals",
        database=tmp_path / "state" / "tuner.db",
        cache=tmp_path / "cache",
        look_s=0.05,
    )


@pytest.fixture
def nvml(tmp_path: Path) -> Iterator[State]:
    """An idle H200 in good order."""
    with h200_at(tmp_path, 120.0) as state:
        follow_real_time(state)
        state.millijoules = 1
        yield state


def of(found: list[Finding], check: str) -> list[Finding]:
    return [finding for finding in found if check in finding.check]


def only(found: list[Finding], check: str) -> Finding:
    (finding,) = of(found, check)
    return finding


def process(root: Path, pid: int, *words: str, name: str = "") -> None:
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True)
    (folder / "comm").write_text(f"{(name or Path(words[0]).name)[:15]}\n")
    (folder / "cmdline").write_bytes(b"\0".join(word.encode() for word in words) + b"\0")


@pytest.mark.parametrize(
    ("rules", "severity", "says"),
    [
        ('[limits]\n"*" = [345, 1755]\n', "ok", "is understood"),
        ("[limits]\n* = 1\n", "error", "clockd.toml"),
        ('[users.alcie.limits]\n"*" = [1, 2]\n', "warning", 'users."alcie": there is no such user'),
    ],
)
def test_the_administrators_rules(around: Surroundings, rules: str, severity: str, says: str) -> None:
    """A file that cannot be understood, or rules for nobody, is told, on a machine without a GPU too."""
    write(around.root / "etc/tuner/clockd.toml", rules)
    found = only(list(examine(around)), "clock rules")
    assert (found.severity, says in found.text) == (severity, True)


# --- as a whole ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("nvml")
def test_a_good_gpu_has_nothing_to_mend(around: Surroundings, nvml: State) -> None:
    """On a GPU in good order there is no error and no warning, its sensor is named, and nothing was set."""
    found = [f for f in examine(around) if f.check not in ("driver", "CuPy")]

    assert worst(found) in ("ok", "note"), [f for f in found if f.severity not in ("ok", "note")]
    assert any("nvml-energy-counter (gpu) is taken" in f.text for f in found)
    assert any("not throttled" in f.text for f in found)
    assert (nvml.sets, nvml.resets, nvml.app_sets, nvml.app_resets) == (0, 0, 0, 0)
    assert (nvml.locked_min_mhz, nvml.locked_max_mhz) == (0, 0)


def test_a_machine_without_a_gpu_is_no_error(around: Surroundings) -> None:
    """Where there is no GPU that is a note: simulated devices work."""
    found = list(examine(around))

    assert "simulated" in only(found, "driver").text
    assert only(found, "power").severity == "note"
    assert worst(found) != "error", [f for f in found if f.severity == "error"]


@pytest.mark.usefixtures("nvml")
def test_nothing_is_made(around: Surroundings, tmp_path: Path) -> None:
    """Neither database nor directories nor journals appear."""
    before = {path for path in tmp_path.rglob("*") if path != tmp_path / "nvml-state"}
    list(examine(around))
    after = {path for path in tmp_path.rglob("*") if path != tmp_path / "nvml-state"}

    assert after == before


def test_a_check_that_fails_stops_no_other(around: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that cannot be made is an error of its own; the rest is examined."""

    def broken(_root: Path) -> Iterator[Finding]:
        raise OSError("out of order")
        yield

    monkeypatch.setattr("tuner.cli.doctor.jetson", broken)
    found = list(examine(around))

    assert "out of order" in only(found, "jetson").text
    assert of(found, "database")


# --- the GPU -------------------------------------------------------------------------------------


def spoilt(around: Surroundings, check: str) -> list[Finding]:
    return [f for f in of(list(examine(around)), check) if f.severity not in ("ok", "note")]


@pytest.mark.parametrize(
    ("facts", "says", "severity"),
    [
        ({"persistence_mode": 0}, "persistence mode is off", "warning"),
        ({"mig_mode": 1}, "MIG is on", "error"),
        ({"temperature_c": 86}, "86 °C", "warning"),
    ],
)
def test_the_state_of_a_gpu_matters(
    around: Surroundings, nvml: State, facts: dict[str, int], says: str, severity: str
) -> None:
    """What makes measurements worse is told with a remedy."""
    for field, value in facts.items():
        setattr(nvml, field, value)
    (finding,) = spoilt(around, "NVML 0")

    assert says in finding.text
    assert finding.severity == severity
    assert finding.remedy


def test_other_processes_are_named(around: Surroundings, nvml: State, root: Path) -> None:
    """Processes that compute on the GPU are listed with their names; those of other containers without."""
    nvml.process_count = 2
    nvml.pids[:2] = (4242, 4343)
    process(root, 4242, "/usr/bin/trainer", "--big")
    (finding,) = spoilt(around, "NVML 0")

    assert "4242 (trainer)" in finding.text
    assert "4343 (not visible here)" in finding.text


@pytest.mark.parametrize(("version", "severity"), [("3.6.0", "ok"), ("3.10.1", "note")])
def test_a_triton_that_no_test_is_run_with_is_told(
    around: Surroundings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, severity: str
) -> None:
    """The version is named with those that are tested."""
    information = tmp_path / f"triton-{version}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: triton\nVersion: {version}\n")
    monkeypatch.syspath_prepend(tmp_path)
    (finding,) = (one for one in examine(around) if one.check == "Triton")

    assert finding.severity == severity
    assert version in finding.text
    assert TESTED in finding.text


def test_throttling_is_told(around: Surroundings, nvml: State) -> None:
    """A GPU that is held back now is a warning with the reason."""
    nvml.reason_bits = 0x4
    (finding,) = spoilt(around, "clock of")

    assert "sw-power-cap" in finding.text


def test_a_gpu_without_power_readings(around: Surroundings, nvml: State) -> None:
    """A GPU none of whose readings answers must be told, with each reason."""
    nvml.energy = nvml.ring = nvml.instant = nvml.average = nvml.usage = 3
    (finding,) = spoilt(around, "power of")

    assert finding.severity == "error"
    assert "nvml-power-ring" in finding.text


def test_an_uncalibrated_reading_is_told(around: Surroundings, nvml: State) -> None:
    """Without a counter the reading taken should be calibrated; the remedy is the command that does it."""
    nvml.energy = 3
    (finding,) = spoilt(around, "power of")

    assert finding.severity == "warning"
    assert "not calibrated" in finding.text
    assert "tuner power calibrate" in finding.remedy


@pytest.mark.usefixtures("nvml")
def test_a_damaged_calibration_is_told(around: Surroundings, tmp_path: Path) -> None:
    """A file of calibrations that cannot be read is named; the readings are examined all the same."""
    write(tmp_path / "state/tuner/sensors.json", "{")
    found = list(examine(around))

    assert only(found, "calibrations").severity == "error"
    assert "sensors.json" in only(found, "calibrations").text
    assert any("is taken" in finding.text for finding in found)


def test_a_driver_that_does_not_answer(around: Surroundings, nvml: State, root: Path) -> None:
    """A GPU that is there while NVML is not is an error, unlike no GPU at all."""
    nvml.init = 18
    write(root / "sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de")
    write(root / "sys/bus/pci/devices/0000:01:00.0/class", "0x030200")
    found = list(examine(around))

    assert only(found, "clocks").severity == "error"
    assert only(found, "driver").severity == "error"


# --- clocks --------------------------------------------------------------------------------------


def journal(around: Surroundings, owner: str) -> None:
    assert around.journals is not None
    place = SettingJournal(around.journals, "nvml", UUID)
    place.directory.mkdir()
    place.write(owner, {"setting": "lock"}, 900)


@pytest.mark.usefixtures("nvml")
def test_a_clock_left_set_must_be_mended(around: Surroundings) -> None:
    """A journal whose owner is gone is an error, and `tuner clocks restore` the remedy."""
    boot = this_process().partition(":")[0]
    journal(around, f"{boot}:999999999:1")
    (finding,) = spoilt(around, "clock of")

    assert finding.severity == "error"
    assert "900 MHz" in finding.text
    assert finding.remedy == "tuner clocks restore"


@pytest.mark.usefixtures("nvml")
def test_a_clock_that_is_held_is_told(around: Surroundings) -> None:
    """A journal whose owner lives says that somebody measures."""
    assert around.journals is not None
    ownership = Ownership(SettingJournal(around.journals, "nvml", UUID), lambda _entry: [])
    ownership.take()
    ownership.announce({"setting": "lock"}, 900)
    (finding,) = spoilt(around, "clock of")
    ownership.clear()
    ownership.give_up()

    assert finding.severity == "warning"
    assert f"process {os.getpid()}" in finding.text


@pytest.mark.usefixtures("nvml")
def test_a_damaged_journal_is_told(around: Surroundings) -> None:
    """A journal that cannot be read is told with what to do."""
    journal(around, this_process())
    assert around.journals is not None
    (around.journals / f"nvml-{UUID}.json").write_text("{")
    found = spoilt(around, "clock of")

    assert any("unreadable" in finding.text for finding in found)


@pytest.mark.usefixtures("nvml")
def test_a_wrong_file_of_the_administrator_is_told(around: Surroundings) -> None:
    """A clockd.toml that cannot be understood is an error that names it, and stops no other check."""
    write(around.root / "etc/tuner/clockd.toml", "[limits")
    found = list(examine(around))

    assert "clockd.toml" in only(found, "clocks").text
    assert only(found, "clocks").severity == "error"
    assert of(found, "database")


@pytest.mark.usefixtures("nvml")
def test_who_may_set_clocks(around: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the permission, and without the helper, --clocks is not to be had; that is no error."""
    monkeypatch.setattr("tuner.power.nvml.clocks._capabilities", lambda: 0)
    findings = list(examine(around))
    for check in ("--clocks", "--power-limits"):
        finding = only(findings, check)
        assert finding.severity == "note"
        assert f"for {check} install tuner-clockd" in finding.remedy
    monkeypatch.setattr("tuner.power.nvml.clocks._capabilities", lambda: 1 << 21)
    finding = only(list(examine(around)), "--power-limits")
    assert (finding.severity, finding.text) == ("ok", "this user may set its 501 power limits, 200 to 700 W")


# --- software ------------------------------------------------------------------------------------


def test_a_missing_driver_is_told(root: Path) -> None:
    """A GPU on the bus without a driver is an error."""
    write(root / "sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de")
    write(root / "sys/bus/pci/devices/0000:01:00.0/class", "0x030000")
    (finding,) = checks.driver(root, NO_CUDA)

    assert finding.severity == "error"
    assert "install the NVIDIA driver" in finding.remedy


@pytest.mark.parametrize(
    ("installed", "severity", "says"),
    [
        ({}, "note", "not installed"),
        ({"cupy-cuda12x": "13.6", "numpy": "2"}, "ok", "cupy-cuda12x 13.6"),
        ({"cupy-cuda12x": "13.6", "cupy-cuda13x": "13.6"}, "error", "several"),
        ({"cupy-cuda13x": "13.6"}, "error", "needs CUDA 13, and the driver serves CUDA 12"),
        ({"cupy": "13.6"}, "ok", "cupy 13.6"),
    ],
)
def test_cupy_must_fit(
    installed: dict[str, str], severity: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One CuPy, and one that the driver serves."""
    monkeypatch.setattr(checks, "_cuda_of_driver", lambda _library: 12)
    (finding,) = checks.cupy(installed)

    assert finding.severity == severity
    assert says in finding.text


def test_an_installed_cupy_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its own metadata, wherever Python looks for packages."""
    write(tmp_path / "cupy_cuda12x-13.6.dist-info/METADATA", "Name: cupy-cuda12x\nVersion: 13.6")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "nowhere"), str(tmp_path)])

    assert [finding.text for finding in checks.cupy(libcuda=NO_CUDA)] == ["cupy-cuda12x 13.6"]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler to build a libcuda with")
def test_the_driver_is_asked_for_its_cuda(tmp_path: Path) -> None:
    """The version that the driver serves is read without starting it."""
    (tmp_path / "cuda.c").write_text("int cuDriverGetVersion(int *v) { *v = 13010; return 0; }\n")
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, tmp_path / "cuda.c"], check=True)

    assert checks._cuda_of_driver(str(library)) == 13
    assert checks._cuda_of_driver(NO_CUDA) is None


# --- the host ------------------------------------------------------------------------------------


def test_monitors_are_found(root: Path) -> None:
    """Programs that poll the GPU are known by their name, their path, or their script."""
    process(root, 10, "/usr/bin/dcgm-exporter", "-f", "x")
    process(root, 11, "/usr/bin/python3", "/usr/local/bin/jtop")
    process(root, 12, "/opt/nvidia_gpu_exporter")
    process(root, 13, "bash", "-c", "echo dcgm-exporter")
    process(root, 14, "/usr/bin/python3", "-m", "nvitop")
    (root / "proc" / "15").mkdir()
    found = list(checks.monitors(root / "proc"))

    assert [(f.severity, f.text.partition(" ")[0]) for f in found] == [
        ("warning", "dcgm-exporter"),
        ("warning", "jtop"),
        ("warning", "nvidia_gpu_exporter"),
        ("warning", "nvitop"),
    ]
    assert "process 10" in found[0].text


def test_no_monitors(root: Path) -> None:
    """A quiet machine is told as one."""
    process(root, 10, "/usr/bin/bash")
    (finding,) = checks.monitors(root / "proc")

    assert finding.severity == "ok"


def test_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory must be writable, or its nearest parent, and have room; it is not made."""
    wanted = tmp_path / "a" / "b"
    (finding,) = checks.directory("state", wanted)
    assert finding.severity == "ok"
    assert not wanted.exists()

    (tmp_path / "a").touch()
    (finding,) = checks.directory("state", wanted)
    assert finding.severity == "error"

    for free_bytes, severity in ((2**20, "error"), (2**28, "warning"), (2**34, "ok")):
        usage = shutil.disk_usage(tmp_path)._replace(free=free_bytes)
        monkeypatch.setattr(shutil, "disk_usage", lambda _path, usage=usage: usage)
        (finding,) = checks.directory("state", tmp_path)
        assert finding.severity == severity


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_may_not_be_written(tmp_path: Path) -> None:
    """Permissions are looked at."""
    tmp_path.chmod(0o500)
    (finding,) = checks.directory("state", tmp_path / "x")

    assert finding.severity == "error"


def test_databases(tmp_path: Path) -> None:
    """A database is read whole, with and without a log; what is none, or damaged, is told."""
    path = tmp_path / "tuner.db"
    (finding,) = checks.database(path)
    assert finding.severity == "ok"
    assert not path.exists()

    Store(path).close()
    there = sorted(tmp_path.iterdir())
    assert check_database(path) == 0
    assert check_mirror(path) == ""
    assert sorted(tmp_path.iterdir()) == there
    with Store(path):
        assert check_database(path) == 0
        assert check_mirror(path) == ""

    path.write_bytes(path.read_bytes()[:4096] + b"\0" * 4096)
    (finding,) = checks.database(path)
    assert finding.severity == "warning"
    assert "its mirror is whole" in finding.text
    mirror_of(path).unlink()
    (finding,) = checks.database(path)
    assert finding.severity == "error"
    path.write_text("no database")
    with pytest.raises(StoreError, match="cannot be read"):
        check_database(path)
    path.write_bytes(b"")
    with pytest.raises(StoreError, match="no database of tuner"):
        check_database(path)


def test_mirrors(tmp_path: Path) -> None:
    """A mirror that is gone, cut off, behind, or another's is told, and left as it is."""
    path = tmp_path / "tuner.db"
    Store(path).close()
    mirror = mirror_of(path)
    whole = mirror.read_bytes()
    with Store(path) as store:
        store.database.write(lambda change: change.execute("DELETE FROM runs"))
    mirror.write_bytes(whole)
    assert "lacks 1 transactions" in check_mirror(path)
    os.truncate(mirror, 5000)
    assert "mirror" in check_mirror(path)
    Store(tmp_path / "other.db").close()
    mirror.write_bytes(mirror_of(tmp_path / "other.db").read_bytes())
    assert "another database" in check_mirror(path)
    mirror.unlink()
    assert "is not there" in check_mirror(path)
    fine, finding = checks.database(path)
    assert (fine.severity, finding.severity) == ("ok", "warning")
    assert not mirror.exists()


# --- Jetson --------------------------------------------------------------------------------------


@pytest.fixture
def board(root: Path) -> Path:
    """A Jetson AGX Orin."""
    build(root, "agx-orin")
    (root / "proc/device-tree").mkdir()
    (root / "proc/device-tree/compatible").write_bytes(COMPATIBLE)
    write(root / "var/lib/nvpmodel/status", "pmode:0002 fmode:quiet")
    write(
        root / "etc/nvpmodel.conf",
        "< POWER_MODEL ID=0 NAME=MAXN >\nCPU_ONLINE CORE_0 1\n< POWER_MODEL ID=2 NAME=MODE_30W >\n",
    )
    return root


def test_power_modes(board: Path) -> None:
    """The mode is named; one that caps power is told."""
    mode, tool = jetson(board)
    assert mode.severity == "note"
    assert "MODE_30W" in mode.text
    assert tool.severity == "note"

    write(board / "var/lib/nvpmodel/status", "pmode:0000")
    write(board / "usr/bin/tegrastats", "")
    assert [f.severity for f in jetson(board)] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("status", "conf", "mode"),
    [
        (None, "", "no known mode"),
        ("nonsense", "", "no known mode"),
        ("pmode:0001", "", "mode 1"),
        ("pmode:0001", None, "mode 1"),
    ],
)
def test_power_modes_that_cannot_be_read(root: Path, status: str | None, conf: str | None, mode: str) -> None:
    """Missing or odd files give a number or nothing, never an exception."""
    if status is not None:
        write(root / "var/lib/nvpmodel/status", status)
    if conf is not None:
        write(root / "etc/nvpmodel.conf", conf)

    modes = PowerModes.read(root)
    assert modes.named(modes.present) == mode


def test_no_jetson(root: Path) -> None:
    """Elsewhere nothing is said of power modes."""
    assert list(jetson(root)) == []


def test_a_board_has_its_clock_examined(around: Surroundings, board: Path) -> None:
    """On a Jetson the clock is read from devfreq, and nothing is written there."""
    before = {path: path.read_bytes() for path in (board / "sys").rglob("*_freq")}
    found = list(examine(replace(around, root=board)))

    assert any("MHz now" in f.text for f in of(found, "clock of"))
    assert {path: path.read_bytes() for path in (board / "sys").rglob("*_freq")} == before
