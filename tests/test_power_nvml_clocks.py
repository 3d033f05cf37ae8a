"""Clocks through NVML: locked ones, application clocks, what is restored and what is left."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_actuator import Holder, restored_by
from fake_nvml_state import CLOCKS_MHZ, NO_PERMISSION, NOT_SUPPORTED, UUID, State, fail
from tuner.power.clocks import clockd
from tuner.power.clocks.actuator import ClockRules
from tuner.power.nvml import clocks as nvml_setting
from tuner.power.nvml.clocks import NvmlActuator

from tuner.model.errors import ClockError, ClockPermissionError, ClockRefusedError

KEPLER, PASCAL, HOPPER = 2, 4, 9
LOST, UNKNOWN = 15, 999
NO_RULES = ClockRules()


@pytest.fixture
def gpu(nvml: State) -> Iterator[NvmlActuator]:
    assert setters(nvml) == 0
    actuator = NvmlActuator(UUID)
    yield actuator
    actuator.close()


@pytest.fixture
def old_gpu(nvml: State) -> Iterator[NvmlActuator]:
    """A Kepler at application clocks that are not the default."""
    nvml.architecture, nvml.app_clock_mhz = KEPLER, 1500
    actuator = NvmlActuator(UUID)
    yield actuator
    actuator.close()


def holder(run_dir: Path, rules: ClockRules = NO_RULES) -> Holder:
    """Who sets this GPU under rules, and restores from the journal alone."""
    kind = NvmlActuator
    return Holder(lambda: kind(UUID, rules=lambda _: rules), run_dir, restored_by(kind))


def setters(nvml: State) -> int:
    return int(nvml.sets + nvml.resets + nvml.app_sets + nvml.app_resets)


@pytest.mark.parametrize("architecture", [0, KEPLER, PASCAL, HOPPER])
def test_reading_changes_nothing(nvml: State, architecture: int) -> None:
    """Opening, listing, reading and looking at what is there call no setter; clocks come highest first."""
    nvml.architecture = architecture
    actuator = NvmlActuator(UUID)

    assert actuator.supported() == CLOCKS_MHZ
    assert actuator.read().mhz == 1980.0
    actuator.before()
    actuator.permitted()
    actuator.close()
    assert setters(nvml) == 0


def test_the_enforced_power_limit_is_read_with_the_clock(nvml: State, gpu: NvmlActuator) -> None:
    """The enforced limit counts, not the one asked for; a GPU that tells none still has a clock."""
    nvml.limit_milliwatts, nvml.enforced_limit_milliwatts = 700_000, 650_500
    assert (gpu.read().power_limit_w, gpu.read().limit_scope) == (650.5, "gpu")
    fail(nvml, "limit", NOT_SUPPORTED, times=9)
    assert (gpu.read().power_limit_w, gpu.read().mhz) == (None, 1980.0)


def test_the_temperature_is_read_with_the_clock(nvml: State, gpu: NvmlActuator) -> None:
    """Degrees Celsius of the chip; a GPU that does not tell them still has a clock."""
    nvml.temperature_c = 47
    assert gpu.read().temperature_c == 47.0
    nvml.temperature = NOT_SUPPORTED
    assert (gpu.read().temperature_c, gpu.read().mhz) == (None, 1980.0)


def test_idle_and_our_own_lock_are_no_throttling(nvml: State, gpu: NvmlActuator) -> None:
    """Of the reason bits those count that hold a clock back."""
    nvml.reason_bits = 0x1 | 0x2
    assert gpu.read().throttle_reasons == ()
    nvml.reason_bits = 0x4 | 0x40 | 0x1
    assert gpu.read().throttle_reasons == ("sw-power-cap", "hw-thermal-slowdown")


def test_what_cannot_be_read_is_none(nvml: State, gpu: NvmlActuator) -> None:
    """A board without clock readings has none to show; a lost GPU is an error."""
    nvml.clock = nvml.reasons = NOT_SUPPORTED
    assert gpu.read().mhz is None
    nvml.clock = LOST
    with pytest.raises(ClockError, match="GPU is lost"):
        gpu.read()


@pytest.mark.parametrize(
    ("architecture", "call"), [(HOPPER, "supported"), (PASCAL, "supported"), (PASCAL, "applications")]
)
def test_clocks_that_cannot_be_set_are_not_offered(
    nvml: State, tmp_path: Path, architecture: int, call: str
) -> None:
    """Boards without a list, or old ones without application clocks, have no clocks to set, and say so."""
    nvml.architecture = architecture
    setattr(nvml, call, NOT_SUPPORTED)
    with closing(NvmlActuator(UUID)) as actuator:
        assert actuator.listed() == actuator.supported() == ()
    with pytest.raises(ClockError, match="--clocks off"):
        holder(tmp_path).set(900)
    assert setters(nvml) == 0


def test_a_list_that_fails_is_an_error(nvml: State, gpu: NvmlActuator) -> None:
    """A GPU that fails to list its clocks is not one that has none."""
    fail(nvml, "supported", UNKNOWN)
    with pytest.raises(ClockError, match="cannot be listed"):
        gpu.supported()
    assert gpu.supported() == CLOCKS_MHZ


def test_an_unsupported_clock_names_its_neighbours(nvml: State, tmp_path: Path) -> None:
    """A clock the GPU has not is refused before anything is set, with those near it."""
    with pytest.raises(ClockError, match="near it are 345, 900, 1500"):
        holder(tmp_path).set(901)
    assert setters(nvml) == 0


def test_limits_of_the_administrator_hold(nvml: State, tmp_path: Path) -> None:
    """Clocks outside the configured limits are neither offered nor set."""
    rules = ClockRules(limits_mhz=(900, 1500))
    with closing(NvmlActuator(UUID, rules=lambda _: rules)) as actuator:
        assert actuator.supported() == (1500, 900)
    with pytest.raises(ClockError, match="no clock of 1980 MHz"):
        holder(tmp_path, rules).set(1980)
    assert setters(nvml) == 0


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (NO_PERMISSION, pytest.raises(ClockPermissionError, match="as root")),
        (NOT_SUPPORTED, pytest.raises(ClockRefusedError, match="use --clocks off")),
    ],
)
@pytest.mark.parametrize("architecture", [KEPLER, HOPPER])
def test_a_refused_clock_is_nothing_to_restore(
    nvml: State, tmp_path: Path, refusal: int, error: AbstractContextManager[object], architecture: int
) -> None:
    """What the driver refuses leaves no journal, is not reset, and the message says what to do."""
    nvml.architecture, nvml.set, nvml.set_applications = architecture, refusal, refusal
    asked = holder(tmp_path)
    with error:
        asked.set(900)
    assert asked.end()
    assert setters(nvml) == 1


def test_the_baseline_returns_after_a_reset(nvml: State, tmp_path: Path) -> None:
    """NVML tells no lock: where the administrator configured one, it is locked again, and only then."""
    held = holder(tmp_path, ClockRules(baseline_mhz=(345, 1500)))
    held.set(900)
    assert (nvml.locked_min_mhz, nvml.locked_max_mhz) == (900, 900)
    assert held.end()
    assert (nvml.locked_min_mhz, nvml.locked_max_mhz) == (345, 1500)
    assert (nvml.resets, nvml.sets) == (1, 2)


def test_a_baseline_that_fails_keeps_the_journal(
    nvml: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reset without its baseline is half a restore; the rest is done later, from the journal alone."""
    monkeypatch.setattr(clockd, "_PAUSE_S", 0.0)
    held = holder(tmp_path, ClockRules(baseline_mhz=(345, 1500)))
    held.set(900)
    fail(nvml, "set", UNKNOWN, times=3)
    with pytest.raises(ClockError, match="baseline of 345 to 1500 MHz"):
        held.leases.reset("client")
    assert len(list(tmp_path.glob("*.json"))) == 1

    assert held.end()
    assert (nvml.locked_min_mhz, nvml.locked_max_mhz) == (345, 1500)


@pytest.mark.usefixtures("old_gpu")
def test_application_clocks_return_to_what_they_were(nvml: State, tmp_path: Path) -> None:
    """A board older than Volta is set by application clocks, which can be read: those before come back."""
    held = holder(tmp_path)
    held.set(900)
    assert (nvml.app_memory_mhz, nvml.app_clock_mhz) == (3201, 900)
    assert held.end()
    assert (nvml.app_memory_mhz, nvml.app_clock_mhz) == (3201, 1500)
    assert (nvml.sets, nvml.resets, nvml.app_resets) == (0, 0, 0)


@pytest.mark.usefixtures("old_gpu")
def test_application_clocks_are_restored_from_the_journal(
    nvml: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be restored at once can be later, from the journal alone."""
    monkeypatch.setattr(clockd, "_PAUSE_S", 0.0)
    held = holder(tmp_path)
    held.set(900)
    fail(nvml, "set_applications", UNKNOWN, times=3)
    with pytest.raises(ClockError, match="could not be restored"):
        held.leases.reset("client")
    assert nvml.app_clock_mhz == 900

    assert held.end()
    assert nvml.app_clock_mhz == 1500


def test_application_clocks_of_somebody_else_are_left(nvml: State, old_gpu: NvmlActuator) -> None:
    """Application clocks that are not what was set any more are not ours to restore; that is told."""
    old = old_gpu.before()
    old_gpu.set(900)
    nvml.app_clock_mhz = 345

    (told,) = old_gpu.restore(old, 900)

    assert "not what was set (900 MHz)" in told
    assert nvml.app_clock_mhz == 345
    assert nvml.app_sets == 1


def test_application_clocks_that_do_not_return_are_an_error(
    old_gpu: NvmlActuator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that says yes and restores nothing is found out by reading back."""
    old = old_gpu.before()
    old_gpu.set(900)
    monkeypatch.setattr(old_gpu._gpu.nvml, "nvmlDeviceSetApplicationsClocks", lambda *_: None)
    with pytest.raises(ClockError, match=r"did not become \(3201, 1500\) again"):
        old_gpu.restore(old, 900)


@pytest.mark.parametrize(
    "old",
    [
        {},
        {"setting": "locked"},
        {"setting": "locked", "baseline_mhz": 7},
        {"setting": "application", "memory_mhz": "many", "graphics_mhz": 1},
    ],
)
def test_a_journal_that_is_not_understood_changes_nothing(
    nvml: State, gpu: NvmlActuator, old: dict[str, Any]
) -> None:
    """An entry of another version or of a broken disk is an error, and no setter is called."""
    with pytest.raises(ClockError, match="is not understood"):
        gpu.restore(old, 900)
    assert setters(nvml) == 0


def test_a_reset_is_for_whoever_set_it(nvml: State, gpu: NvmlActuator, old_gpu: NvmlActuator) -> None:
    """An explicit reset unlocks, or gives application clocks their defaults."""
    nvml.locked_max_mhz = 900
    gpu.reset()
    old_gpu.reset()
    assert (nvml.locked_max_mhz, nvml.app_clock_mhz) == (0, 1980)


@pytest.mark.parametrize(
    ("mask", "architecture", "permitted"),
    [(0x1FF, HOPPER, False), (1 << 21, HOPPER, True), (0, PASCAL, False)],
)
def test_who_may_set(
    nvml: State, monkeypatch: pytest.MonkeyPatch, mask: int, architecture: int, permitted: bool
) -> None:
    """The driver asks for CAP_SYS_ADMIN; that is told without setting anything."""
    nvml.architecture = architecture
    monkeypatch.setattr(nvml_setting, "_capabilities", lambda: mask)
    actuator = NvmlActuator(UUID)
    assert actuator.permitted() == permitted
    actuator.close()
    assert setters(nvml) == 0


def test_capabilities_are_those_of_this_process() -> None:
    """What the kernel says of this process is understood."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (told,) = (line.split()[1] for line in lines if line.startswith("CapEff:"))
    assert nvml_setting._capabilities() == int(told, 16)


def test_rules_sort_and_limit() -> None:
    """Allowed clocks come highest first, once, and both ends of a range are in it."""
    rules = ClockRules(limits_mhz=(900, 1500))
    assert rules.allowed([345, 1500, 900, 900, 1980]) == (1500, 900)
    assert replace(rules, limits_mhz=None).allowed([1, 2]) == (2, 1)
    assert rules.allowed([]) == ()
