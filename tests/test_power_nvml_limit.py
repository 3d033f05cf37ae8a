"""Power limits through NVML: never above what was found, journalled, restored, left where others set them."""

import itertools
import json
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from fake_actuator import Holder, restored_by
from fake_nvml_state import NO_PERMISSION, NOT_SUPPORTED, UUID, State, library
from hypothesis import given
from hypothesis import strategies as st
from tuner.power.base import PowerLimitControl
from tuner.power.clocks import control
from tuner.power.clocks.actuator import ClockPaths, ClockRules, load_config
from tuner.power.clocks.control import open_power_limits, survey_power_limits
from tuner.power.clocks.journal import HeldError, SettingJournal
from tuner.power.nvml.clocks import NvmlPowerLimitActuator

from tuner.model.errors import ClockError, ClockLostError, ClockPermissionError, ClockRefusedError, InputError

LOST, UNKNOWN = 15, 999
NO_RULES = ClockRules()


@pytest.fixture
def limit(nvml: State) -> Iterator[NvmlPowerLimitActuator]:
    assert nvml.limit_sets == 0
    actuator = NvmlPowerLimitActuator(UUID)
    yield actuator
    actuator.close()


@pytest.fixture
def where(nvml: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClockPaths:
    """Everything in a folder of the test."""
    assert nvml.gpu_count
    found = ClockPaths(
        library(), tmp_path / "nothing", tmp_path / "clockd.toml", tmp_path / "run", tmp_path / "clockd.sock"
    )
    monkeypatch.setattr(control, "SYSTEM", found)
    return found


def watts(nvml: State) -> float:
    return float(nvml.limit_milliwatts) / 1e3


def holder(run_dir: Path, rules: ClockRules = NO_RULES) -> Holder:
    """Who sets this GPU under rules, and restores from the journal alone."""
    kind = NvmlPowerLimitActuator
    return Holder(lambda: kind(UUID, rules=lambda _: rules), run_dir, restored_by(kind))


# --- what may be set -------------------------------------------------------------------------------


def test_reading_changes_nothing(nvml: State, limit: NvmlPowerLimitActuator) -> None:
    """Opening, listing, reading and looking at what is there call no setter; limits come highest first."""
    assert limit.supported() == tuple(range(700, 199, -1))
    assert (limit.read_w(), limit.default_w()) == (700.0, 700.0)
    assert limit.before() == {"limit_mw": 700_000}
    assert nvml.limit_sets == 0


@given(
    least=st.integers(50_000, 300_000),
    most=st.integers(300_000, 900_000),
    default=st.integers(300_000, 900_000),
    found=st.integers(300_000, 900_000),
)
def test_no_limit_is_above_what_was_found(least: int, most: int, default: int, found: int) -> None:
    """Whatever the driver says: none above default or limit as found, none outside of the range."""
    actuator = object.__new__(NvmlPowerLimitActuator)
    actuator._gpu = StatedLimits(least, most, default)  # type: ignore[assignment]  # what it asks of NVML
    listed = actuator._range(found)

    assert all(least <= 1000 * one <= min(most, default, found) for one in listed)
    assert all(a - b == 1 for a, b in itertools.pairwise(listed))


class StatedLimits:
    """NVML and a GPU as far as a range of limits asks for them."""

    handle = None

    def __init__(self, least: int, most: int, default: int) -> None:
        self._range, self._default = [least, most], default
        self.nvml = self

    def nvmlDeviceGetPowerManagementLimitConstraints(self, _: None) -> list[int]:  # noqa: N802 - NVML's name
        return self._range

    def nvmlDeviceGetPowerManagementDefaultLimit(self, _: None) -> int:  # noqa: N802 - NVML's name
        return self._default


def test_a_lower_limit_that_was_found_is_not_exceeded(nvml: State) -> None:
    """An administrator's limit of 500 W stays the highest, also while this run holds a lower one."""
    nvml.limit_milliwatts = 500_000
    with closing(NvmlPowerLimitActuator(UUID)) as actuator:
        assert actuator.supported()[0] == 500
        actuator.before()
        actuator.set(300)
        assert actuator.supported()[0] == 500
        with pytest.raises(ClockRefusedError, match="is 300 W: it is not set to 501 W"):
            actuator.set(501)
        assert watts(nvml) == 300
        assert actuator.restore({"limit_mw": 500_000}, 300) == []
    assert watts(nvml) == 500


def test_a_limit_that_was_lowered_meanwhile_is_not_raised(nvml: State, limit: NvmlPowerLimitActuator) -> None:
    """What was found is looked at again when it is set."""
    limit.before()
    nvml.limit_milliwatts = 400_000
    with pytest.raises(ClockRefusedError, match="is 400 W: it is not set to 600 W"):
        limit.set(600)

    assert (watts(nvml), nvml.limit_sets) == (400, 0)


def test_the_administrators_range_holds(nvml: State, tmp_path: Path) -> None:
    """Limits outside of it are neither listed as allowed nor set."""
    one = holder(tmp_path / "run", ClockRules(power_limits_w=(300, 500)))
    for value in (299, 501):
        with pytest.raises(ClockError, match=rf"no power limit of {value} W that may be set; near it are"):
            one.set(value)
    one.set(500)
    assert watts(nvml) == 500
    assert one.end()
    assert watts(nvml) == 700


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[power_limits]\n"*" = [200, 600]', ""),
        ('[power_limits]\n"*" = [600, 200]', "power_limits.*: [600, 200] is not [lowest, highest] in W"),
        ("power_limits = 3", "power_limits must be a table of ranges"),
        ('[power_limit]\n"*" = [200, 600]', "unknown key 'power_limit'; there may be [baseline], [limits],"),
    ],
)
def test_the_administrators_file(tmp_path: Path, text: str, says: str) -> None:
    """A range in watts; anything else is refused with file and key."""
    path = tmp_path / "clockd.toml"
    path.write_text(text)
    if says:
        with pytest.raises(InputError, match=r"clockd\.toml") as caught:
            load_config(path)
        assert says in str(caught.value)
    else:
        assert load_config(path).rules(UUID).power_limits_w == (200, 600)


# --- set and restored ------------------------------------------------------------------------------


def test_a_limit_is_journalled_set_and_restored(nvml: State, tmp_path: Path) -> None:
    """The entry names what was found; another value goes back there first; at the end nothing is left."""
    run_dir = tmp_path / "run"
    one = holder(run_dir)
    one.set(450)
    entry = SettingJournal(run_dir, "powerlimit", UUID).read()
    assert entry is not None
    assert (entry.old, entry.new) == ({"limit_mw": 700_000}, 450)
    assert watts(nvml) == 450
    one.set(600)
    assert watts(nvml) == 600
    assert one.end()
    assert watts(nvml) == 700


def test_a_limit_of_another_is_left(nvml: State, limit: NvmlPowerLimitActuator) -> None:
    """What is no longer as it was set was changed by somebody else: it stays, and is told."""
    limit.before()
    limit.set(450)
    nvml.limit_milliwatts = 550_000

    (left,) = limit.restore({"limit_mw": 700_000}, 450)
    assert left == "the power limit is 550 W, not the 450 W that were set: left so"
    assert watts(nvml) == 550


def test_a_limit_of_a_fraction_of_a_watt_is_restored(nvml: State, limit: NvmlPowerLimitActuator) -> None:
    """The whole watts below a limit are not the limit."""
    nvml.limit_milliwatts = 600_400
    old = limit.before()
    limit.set(600)
    assert limit.restore(old, 600) == []
    assert nvml.limit_milliwatts == 600_400


def test_a_driver_that_rounds_is_obeyed(nvml: State, limit: NvmlPowerLimitActuator) -> None:
    """Within a percent it is the same limit, and is restored."""
    nvml.limit_step_milliwatts = 4_000
    limit.before()
    limit.set(450)
    assert watts(nvml) == 448
    assert limit.restore({"limit_mw": 700_000}, 450) == []
    assert watts(nvml) == 700


def test_a_driver_that_does_something_else_is_not(nvml: State, limit: NvmlPowerLimitActuator) -> None:
    """A limit far from the one asked for is taken back at once."""
    nvml.limit_step_milliwatts = 100_000
    limit.before()
    with pytest.raises(ClockError, match="cannot be set to 450 W: the driver made it 400 W"):
        limit.set(450)
    assert watts(nvml) == 700


@pytest.mark.parametrize(
    ("code", "error", "says"),
    [
        (NO_PERMISSION, ClockPermissionError, "or use --power-limits off"),
        (NOT_SUPPORTED, ClockRefusedError, "this GPU or driver cannot do that; use --power-limits off"),
        (UNKNOWN, ClockError, "cannot be set to 450 W"),
    ],
)
def test_a_driver_that_refuses(
    nvml: State, tmp_path: Path, code: int, error: type[ClockError], says: str
) -> None:
    """Each refusal says what to do; nothing is set, and no journal is left."""
    nvml.set_limit = code
    one = holder(tmp_path / "run")
    with pytest.raises(error, match=says):
        one.set(450)
    assert watts(nvml) == 700
    assert one.end()


def test_a_gpu_without_limits(nvml: State, where: ClockPaths) -> None:
    """Where the driver tells none, none can be opened, and the reason is told."""
    nvml.limit = NOT_SUPPORTED
    with pytest.raises(ClockError, match="lets no power limit of NVIDIA H200 be set"):
        open_power_limits(UUID)
    with pytest.raises(ClockError, match="power limits are set through NVML: "):
        open_power_limits("GPU-other")
    assert survey_power_limits(where) == []


def test_a_lost_gpu_keeps_its_journal(nvml: State, tmp_path: Path) -> None:
    """Until it is back: then the next start restores it."""
    one = holder(tmp_path / "run")
    one.set(450)
    nvml.lost_from = 1
    assert not one.end()
    nvml.lost_from = 0
    with closing(NvmlPowerLimitActuator(UUID)) as actuator:
        undone = control.undo(ClockPaths(library()))
        entry = SettingJournal(tmp_path / "run", "powerlimit", UUID).read()
        assert entry is not None
        assert undone(entry) == []
        assert actuator.read_w() == 700


# --- as a run uses it ------------------------------------------------------------------------------


@pytest.mark.usefixtures("where")
def test_a_run_holds_clock_and_limit_through_guardians(nvml: State) -> None:
    """Two, each with a journal of its own; what limits are offered stays as it was before."""
    limits: PowerLimitControl = open_power_limits(UUID)
    with closing(control.open_control(UUID)) as clocks, closing(limits):
        assert limits.supported_w()[0] == 700
        with clocks.locked(900), limits.locked(450):
            assert (nvml.locked_max_mhz, limits.read_w(), watts(nvml)) == (900, 450.0, 450)
            assert limits.supported_w()[0] == 700
        assert (nvml.locked_max_mhz, watts(nvml)) == (0, 700)


def test_a_second_run_is_told_who_holds_it(nvml: State, where: ClockPaths) -> None:
    """The power limit has one owner at a time; clocks are not its business."""
    with closing(open_power_limits(UUID)) as first, closing(open_power_limits(UUID)) as second:
        held = pytest.raises(ClockError, match=r"the power limit of .* is held by process")
        with first.locked(450), held, second.locked(300):
            pass
        (state,) = survey_power_limits(where)
        assert (state.announced, state.stale, state.default_w) == (None, False, 700.0)
        with first.locked(450):
            (state,) = survey_power_limits(where)
            assert (state.announced, state.stale, state.reading.power_limit_w) == (450, False, 450.0)
            assert state.owner.startswith("process ")
            with pytest.raises(HeldError, match=r"the power limit of .* is held by process"):
                open_power_limits(UUID)  # which would take 450 W for the limit as found
    assert watts(nvml) == 700


@pytest.mark.usefixtures("where")
def test_a_limit_that_was_lost_or_changed_meanwhile_is_told(
    nvml: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was measured under nobody's or another's limit is not used; the latter stays.

    Rounding is no change.
    """
    with closing(open_power_limits(UUID)) as limits:

        def measured() -> None:
            with monkeypatch.context() as patch, limits.locked(450):
                patch.setattr(limits, "demand_held", partial(_lost, "the guardian is gone"))
                limits.read_w()

        with pytest.raises(ClockLostError, match="the guardian is gone"):
            measured()
        assert watts(nvml) == 700
        with limits.locked(450):
            nvml.limit_milliwatts = 448_000
            assert limits.read_w() == 448
            nvml.limit_milliwatts = 600_000
            with pytest.raises(
                ClockLostError, match=r"is 600 W, not the 450 W that were set: another program"
            ):
                limits.read_w()
        assert limits.read_w() == 600
    assert watts(nvml) == 600


def _lost(why: str) -> None:
    raise ClockLostError(why)


@pytest.mark.usefixtures("where")
def test_a_start_says_which_setting_it_restored(
    nvml: State, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The journal's power limit is not called a clock."""
    SettingJournal(tmp_path / "run", "powerlimit", UUID).directory.mkdir()
    SettingJournal(tmp_path / "run", "powerlimit", UUID).write("a:1:1", {"limit_mw": 700_000}, 450)
    nvml.limit_milliwatts = 450_000
    assert [outcome.state for outcome in control.restore_stale()] == ["restored"]
    assert watts(nvml) == 700
    assert f"restored the power limit of {UUID}, which a killed tuner had left set" in caplog.text
    assert "the clocks of" not in caplog.text


def test_entries_of_earlier_versions_are_read(tmp_path: Path) -> None:
    """They name the clock ``new_mhz``."""
    place = SettingJournal(tmp_path, "nvml", UUID)
    record = {"control": "nvml", "gpu": UUID, "owner": "a:1:1", "old": {"a": 1}, "new_mhz": 900}
    place.path.write_text(json.dumps(record))

    entry = place.read()
    assert entry is not None
    assert entry.new == 900
