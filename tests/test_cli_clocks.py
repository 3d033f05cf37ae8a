"""``tuner clocks``: what is shown of the clocks of this machine, and what is given back."""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from cli_process import document, tuner
from clock_kills import children
from fake_nvml_state import SECOND_UUID, UUID, State, library
from jetson_trees import build, limits_hz, set_limits_hz
from tuner.power.clocks import control
from tuner.power.clocks.actuator import ClockPaths
from tuner.power.clocks.journal import SettingJournal

from tuner.system.ownership import BootRecord

HOLDER = """
import signal, sys
from pathlib import Path
from tuner.power.clocks.actuator import ClockPaths
from tuner.power.clocks.control import open_control, open_power_limits

where = ClockPaths(library=sys.argv[1], devfreq=Path(sys.argv[2]), directory=Path(sys.argv[3]))
opened = open_power_limits if sys.argv[6] == "limit" else open_control
control = opened(sys.argv[4], where)
with control.locked(int(sys.argv[5])):
    print("set", flush=True)
    signal.pause()
"""
LOST = 15
LOWEST, HIGHEST = 306_000_000, 1_300_500_000


@pytest.fixture(autouse=True)
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClockPaths:
    """Clocks are found in a folder of the test, and nowhere on this machine."""
    found = ClockPaths(
        library=library(),
        devfreq=tmp_path / "sys/class/devfreq",
        config=tmp_path / "clockd.toml",
        directory=tmp_path / "run",
        socket=tmp_path / "clockd.sock",
    )
    monkeypatch.setattr(control, "SYSTEM", found)
    return found


@contextmanager
def holder(
    where: ClockPaths, gpu: str, value: int, setting: str = "clock"
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that holds a clock or a power limit, and the pid of its guardian."""
    words = (where.library, where.devfreq, where.directory, gpu, value, setting)
    command = [sys.executable, "-c", HOLDER, *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "set\n"
        try:
            yield process, next(children(process.pid))
        finally:
            process.kill()


@contextmanager
def left(where: ClockPaths, gpu: str, value: int, setting: str = "clock") -> Iterator[None]:
    """A clock or power limit that a killed process left set, its guardian killed with it."""
    with holder(where, gpu, value, setting) as (process, guardian):
        os.kill(guardian, signal.SIGKILL)
        process.kill()
    assert where.directory is not None
    (lock,) = where.directory.glob("*.lock")
    with lock.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # both are gone
    yield


def place(where: ClockPaths, control: str = "nvml", gpu: str = UUID) -> SettingJournal:
    assert where.directory is not None
    return SettingJournal(where.directory, control, gpu)


def shown(*words: str) -> str:
    result = tuner("clocks", "show", *words)
    assert result.exit_code == 0, result.stderr
    return " ".join(result.stdout.split())


def test_show_reads_and_sets_nothing(nvml: State, where: ClockPaths) -> None:
    """A GPU nobody holds is shown with clock and range; no setter is called, no journal or lock made."""
    (row,) = document("clocks", "show")["gpus"]

    assert (row["gpu"], row["name"], row["control"]) == (UUID, "NVIDIA H200", "nvml")
    assert (row["clock_mhz"], row["supported_mhz"]) == (1980.0, [1980, 1500, 900, 345])
    assert (row["owner"], row["announced_mhz"], row["stale"]) == (None, None, False)
    assert (row["throttle_reasons"], row["trouble"]) == ([], [])
    assert nvml.sets == nvml.resets == nvml.app_sets == nvml.app_resets == 0
    assert where.directory is not None
    assert not where.directory.exists()
    text = shown()
    for part in ("NVIDIA H200", "1980 MHz", "345 to 1980 MHz (4)", "NVML does not tell", "nobody", "nothing"):
        assert part in text


def test_show_names_owner_and_reasons(nvml: State, where: ClockPaths) -> None:
    """A held clock is shown with who holds it and what holds it back."""
    nvml.reason_bits = 0x4
    with holder(where, UUID, 900) as (process, _):
        (row,) = document("clocks", "show")["gpus"]
        text = shown()

    assert row["owner"] == f"process {process.pid}"
    assert (row["announced_mhz"], row["stale"]) == (900, False)
    for part in (f"process {process.pid}", "900 MHz (journal)", "sw-power-cap"):
        assert part in text


def test_show_tells_what_was_left_set(nvml: State, where: ClockPaths) -> None:
    """A clock whose owner is gone is told with what to do."""
    with left(where, UUID, 900):
        (row,) = document("clocks", "show")["gpus"]
        assert (row["owner"], row["announced_mhz"], row["stale"]) == (None, 900, True)
        assert "left at 900 MHz: run `tuner clocks restore`" in shown()
        assert nvml.locked_max_mhz == 900


def test_a_power_limit_is_shown_and_restored(nvml: State, where: ClockPaths) -> None:
    """With range and default, with its owner, as left by a killed one, and after it was restored."""
    assert "power limit 700 W, default 700 W, may be set to 200 to 700 W" in shown()
    with holder(where, UUID, 450, "limit") as (process, _):
        (row,) = document("clocks", "show")["gpus"]
        limit = row["power_limit"]
        assert (limit["limit_w"], limit["announced_w"], limit["stale"]) == (450.0, 450, False)
        assert (limit["owner"], row["owner"]) == (f"process {process.pid}", None)
        assert f"limit held by process {process.pid}" in shown()
    place(where, "powerlimit").lock.unlink()
    with left(where, UUID, 450, "limit"):
        assert "limit held by nobody; left at 450 W: run `tuner clocks restore`" in shown()
        assert document("clocks", "show")["gpus"][0]["power_limit"]["stale"]
        assert tuner("clocks", "restore").stdout == f"{UUID}: power limit restored\n"
    assert nvml.limit_milliwatts == 700_000


def test_a_power_limit_is_reset_by_order_only(nvml: State, where: ClockPaths) -> None:
    """The default comes back, whoever lowered it; a clock is left alone."""
    nvml.limit_milliwatts = 300_000
    nvml.locked_max_mhz = 900
    assert tuner("clocks", "restore").stdout == "nothing to restore\n"
    assert tuner("clocks", "restore", "--reset", UUID).exit_code == 0
    assert (nvml.limit_milliwatts, nvml.locked_max_mhz) == (300_000, 0)
    result = tuner("clocks", "restore", "--reset-power-limit", UUID)
    assert (result.exit_code, result.stdout) == (0, f"{UUID}: power limit reset\n")
    assert nvml.limit_milliwatts == 700_000
    with holder(where, UUID, 450, "limit") as (process, _):
        result = tuner("clocks", "restore", "--reset-power-limit", UUID)
        assert (result.exit_code, nvml.limit_milliwatts) == (1, 450_000)
        assert f"is held by process {process.pid}" in result.stderr


def test_show_of_one_gpu(nvml: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """--device takes CUDA's name or the table's; what is no GPU here is refused with the choices."""
    nvml.gpu_count = 2
    assert len(document("clocks", "show")["gpus"]) == 2
    (row,) = document("clocks", "show", "--device", SECOND_UUID)["gpus"]
    assert row["gpu"] == SECOND_UUID

    class Identity:
        uuid = UUID

    monkeypatch.setattr("tuner.devices.choice.identify", lambda _: Identity)
    (row,) = document("clocks", "show", "--device", "cuda:0")["gpus"]
    assert row["gpu"] == UUID
    result = tuner("clocks", "show", "--device", "GPU-7")
    assert (result.exit_code, f"choose from {UUID}, {SECOND_UUID}" in result.stderr) == (2, True)


def test_show_of_a_simulated_gpu() -> None:
    """Its clocks and power limits are those that searches on it choose from."""
    (row,) = document("clocks", "show", "--device", "sim:h200")["gpus"]
    assert (row["control"], row["clock_mhz"], row["supported_mhz"][-1]) == ("simulated", 1980, 345)
    assert (row["power_limit"]["limit_w"], row["power_limit"]["supported_w"][-1]) == (700, 200)
    (jetson,) = document("clocks", "show", "--device", "sim:jetson-orin")["gpus"]
    assert jetson["power_limit"] is None
    assert tuner("clocks", "show", "--device", "sim:no").exit_code == 2


def test_show_of_a_jetson(nvml: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where NVML opens and tells no clocks, the board's limits, governor and power gating are shown."""
    nvml.supported = nvml.clock = 3
    set_limits_hz(build(tmp_path, "agx-orin"), 612_000_000, 918_000_000)
    (row,) = document("clocks", "show")["gpus"]

    assert (row["gpu"], row["control"]) == ("17000000.gpu", "devfreq")
    assert row["setting"]["min_hz"] == 612_000_000
    assert "612 to 918 MHz, governor nvhost_podgov, railgate 1" in shown()
    monkeypatch.setattr("tuner.devices.choice.identify", lambda _: type("Identity", (), {"uuid": "GPU-orin"}))
    assert document("clocks", "show", "--device", "cuda:0")["gpus"] == [row]


def test_show_without_a_driver(tmp_path: Path) -> None:
    """No driver and no board is an error that says why; a board without NVML is shown."""
    result = tuner("clocks", "show")
    assert result.exit_code == 1
    assert "has no node of a Jetson's GPU" in result.stderr
    build(tmp_path, "nano")
    (row,) = document("clocks", "show")["gpus"]
    assert row["gpu"] == "57000000.gpu"


def test_show_of_a_lost_gpu(nvml: State, where: ClockPaths) -> None:
    """A GPU that answers no more is shown with the reason, and with what the journal says of it."""
    with left(where, UUID, 900):
        nvml.identity = LOST
        (row,) = document("clocks", "show")["gpus"]
        assert (row["gpu"], row["announced_mhz"], row["stale"]) == (UUID, 900, True)
        assert any("GPU is lost" in what for what in row["trouble"])
        assert "GPU is lost" in shown()


def test_show_of_a_lost_gpu_tells_its_power_limit(nvml: State, where: ClockPaths) -> None:
    """A limit that was left set is told, as `tuner clocks restore` cannot act on it yet."""
    with left(where, UUID, 450, "limit"):
        nvml.identity = LOST
        (row,) = document("clocks", "show")["gpus"]
        assert (row["gpu"], row["stale"], row["power_limit"]["stale"]) == (UUID, False, True)
        assert "limit held by nobody; left at 450 W: run `tuner clocks restore`" in shown()


def test_show_of_a_broken_journal(nvml: State, where: ClockPaths) -> None:
    """An unreadable journal is told, with what to do; the rest is shown."""
    place(where).directory.mkdir()
    place(where).path.write_text("{")
    text = shown()
    assert f"tuner clocks restore --reset {UUID}" in text
    assert "1980 MHz" in text
    assert nvml.resets == 0


def test_a_wrong_configuration_is_told(nvml: State, where: ClockPaths) -> None:
    """The administrator's file is refused with file and key, and nothing is set."""
    where.config.write_text('[limits]\n"*" = 7\n')
    for words in (("show",), ("restore", "--reset", UUID)):
        result = tuner("clocks", *words)
        assert result.exit_code == 2
        assert f"{where.config}: limits.*" in " ".join(result.stderr.split())
    assert nvml.resets == 0


def test_restore_where_nothing_is_left(nvml: State) -> None:
    """Without journals nothing is touched."""
    result = tuner("clocks", "restore")
    assert (result.exit_code, result.stdout) == (0, "nothing to restore\n")
    assert nvml.resets == 0


def test_restore_undoes_what_was_left(nvml: State, where: ClockPaths) -> None:
    """A stale journal is acted on once."""
    with left(where, UUID, 900):
        result = tuner("clocks", "restore")
        assert (result.exit_code, result.stdout) == (0, f"{UUID}: restored\n")
        assert nvml.locked_max_mhz == 0
        assert tuner("clocks", "restore").stdout == "nothing to restore\n"


def test_restore_of_a_jetson(where: ClockPaths, tmp_path: Path) -> None:
    """Limits come back; one that somebody else has changed is left, and that is told."""
    sysfs = build(tmp_path, "agx-orin")
    with left(where, "17000000.gpu", 612):
        set_limits_hz(sysfs, 612_000_000, 918_000_000)
        result = tuner("clocks", "restore")

    assert result.exit_code == 0
    assert "restored; max_freq is 918000000, and was 1300500000: left so" in result.stdout
    assert limits_hz(sysfs) == (LOWEST, 918_000_000)


def test_restore_leaves_a_living_owner(nvml: State, where: ClockPaths) -> None:
    """Neither restoring nor resetting takes a clock from a living process, which is named."""
    with holder(where, UUID, 900) as (process, _):
        result = tuner("clocks", "restore")
        assert (result.exit_code, result.stdout) == (
            0,
            f"{UUID}: held by process {process.pid}: left alone\n",
        )
        result = tuner("clocks", "restore", "--reset", UUID)
        assert result.exit_code == 1
        assert f"held by process {process.pid}: wait for it or end it" in result.stderr
        assert (nvml.locked_max_mhz, nvml.resets) == (900, 0)


def test_restore_that_fails_says_so(nvml: State, where: ClockPaths) -> None:
    """What cannot be restored is told, stays in the journal, and is the exit code."""
    with left(where, UUID, 900):
        nvml.reset = LOST
        result = tuner("clocks", "restore")
        assert result.exit_code == 1
        assert "not restored" in result.stderr
        assert "GPU is lost" in result.stderr
        assert place(where).path.exists()


@pytest.mark.parametrize("gpu", [UUID, "0"])
def test_reset_needs_no_journal(nvml: State, where: ClockPaths, gpu: str) -> None:
    """An explicit reset unlocks whatever was left, with the baseline of the configuration."""
    nvml.locked_min_mhz = nvml.locked_max_mhz = 900
    where.config.write_text('[baseline]\n"*" = [345, 1500]\n')
    result = tuner("clocks", "restore", "--reset", gpu)
    assert (result.exit_code, result.stdout) == (0, f"{gpu}: reset\n")
    assert (nvml.locked_min_mhz, nvml.locked_max_mhz) == (345, 1500)


def test_reset_mends_a_broken_journal(nvml: State, where: ClockPaths) -> None:
    """An unreadable journal fails to restore; the reset it asks for removes it."""
    place(where).directory.mkdir()
    place(where).path.write_text("{")
    nvml.locked_max_mhz = 900
    result = tuner("clocks", "restore")
    assert result.exit_code == 1
    assert f"--reset {UUID}" in result.stderr

    assert tuner("clocks", "restore", "--reset", UUID).exit_code == 0
    assert nvml.locked_max_mhz == 0
    assert not place(where).path.exists()


def test_reset_goes_on_past_a_failure(nvml: State) -> None:
    """Of several GPUs each is tried, and one that fails is the exit code."""
    result = tuner("clocks", "restore", "--reset", "GPU-7", "--reset", UUID)
    assert result.exit_code == 1
    assert "GPU-7: not reset" in result.stderr
    assert result.stdout == f"{UUID}: reset\n"
    assert nvml.resets == 1


def test_an_entry_of_before_a_reboot_is_told(
    nvml: State, where: ClockPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reboot resets clocks: its entries are removed, and nothing is set."""
    written = announced_in(place(where), BootRecord("earlier", on_host=True, since_boot_s=500.0, at_s=1e9))
    later = replace(BootRecord.present(), on_host=True, at_s=written.at_s + 60.0, since_boot_s=20.0)
    monkeypatch.setattr(BootRecord, "present", lambda: later)

    assert "nothing to undo: a reboot" in tuner("clocks", "restore").stdout
    assert nvml.resets == 0
    assert not place(where).path.exists()


def test_an_entry_of_a_container_is_restored(nvml: State, where: ClockPaths) -> None:
    """Another boot id on the same machine: a container's own. The clock is given back, and that is said."""
    announced_in(place(where), replace(BootRecord.present(), boot_id="its own", on_host=False))

    told = tuner("clocks", "restore").stdout
    assert "restored; it was set under another boot id" in told
    assert nvml.resets == 1
    assert not place(where).path.exists()


def announced_in(place: SettingJournal, written: BootRecord) -> BootRecord:
    """Announce a clock as another boot or container would have."""
    place.directory.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BootRecord, "present", lambda: written)
        place.write(f"{written.boot_id}:7:7", {"setting": "locked", "baseline_mhz": None}, 900)
    return written
