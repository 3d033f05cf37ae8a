"""``--power-limits``: what may be chosen, what is held for a trial, and what a run says of it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import recorded_samples as samples
from cli_process import document, refused, tuner
from fake_setup import PLANS, FakeClocks, FakeMeter, Watched, trial_of
from modelled import NoNvrtc, scan
from tuner.power.base import ClockReading

from tuner.devices.replay import RecordedPowerLimits, ReplayDevice
from tuner.devices.simulated.device import SimulatedDevice, SimulatedPowerLimits
from tuner.measurement.measurer import TrialMeasurer
from tuner.model.errors import ClockError, ClockLostError, InputError
from tuner.model.trial import FlagKind, GpuSetting, Trial
from tuner.recordings.values import RecordedSpace
from tuner.search.option_checks import choose_power_limits

H200_W = tuple(range(700, 199, -1))
H200 = ("--device", "sim:h200")
FOR_ENERGY = ("--objective", "energy")
CHOSEN = ("run", "tridiag-wm:N=256", *H200, *FOR_ENERGY, "--power-limits", "300:700:200")


# --- the option ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("off", ()),
        ("all", tuple(range(700, 199, -10))),
        ("400,650", (650, 400)),
        ("600:625", (625, 615, 605)),
        ("300:700:150", (700, 550, 400)),
    ],
)
def test_forms(text: str, expected: tuple[int, ...]) -> None:
    """Each form of the option gives limits that may be set, highest first; a range 10 W apart."""
    assert choose_power_limits(text, H200_W) == expected


@pytest.mark.parametrize("text", ["auto", "", "1:2:3:4", "700:600", "-5", "600:700:0", "6e2", "700W"])
def test_other_texts_are_refused_with_the_forms(text: str) -> None:
    """What is no choice of power limits is answered with the forms that are."""
    with pytest.raises(InputError, match=r"--power-limits: .*off, all, a list"):
        choose_power_limits(text, H200_W)


def test_limits_that_may_not_be_set_are_refused() -> None:
    """Above the default, below the range, or where there are none: each says what there is."""
    with pytest.raises(InputError, match=r"not have 750 W; it has 501 from 200 to 700 W.* 700"):
        choose_power_limits("600,750", H200_W)
    with pytest.raises(InputError, match="no power limit in that range; it has 501 from 200 to 700 W"):
        choose_power_limits("50:150", H200_W)
    with pytest.raises(ClockError, match="--power-limits off"):
        choose_power_limits("all", ())


# --- held for a trial --------------------------------------------------------------------------------


class FakePowerLimits:
    """Power limits that tell when they are set and given back; ``lost`` once told so."""

    def __init__(self, events: list[str]) -> None:
        self.events = events
        self.lost = False

    def supported_w(self) -> tuple[int, ...]:
        return (225, 200)

    def read_w(self) -> float:
        if self.lost:
            raise ClockLostError("the guardian is gone")
        return 225.0

    @contextmanager
    def locked(self, watts: int) -> Iterator[None]:
        self.events.append(f"{watts} W")
        try:
            yield
        finally:
            self.events.append("limit restored")

    def close(self) -> None:
        pass


def measuring(**readings: Any) -> tuple[TrialMeasurer, FakePowerLimits]:
    clocks = FakeClocks()
    limits = FakePowerLimits(clocks.events)
    return TrialMeasurer(Watched(), FakeMeter(**readings), clocks, limits=limits), limits


def test_a_limit_is_held_from_trial_to_trial() -> None:
    """Clock and limit change apart, and both are given back at the end."""
    measurer, limits = measuring(clocks=[ClockReading(745.0)] * 4)
    with measurer:
        for setting in ((745, 200), (745, 200), (745, None), (None, 225)):
            measurer.measure(Trial(trial_of(PLANS).configurations, *setting), PLANS)

    assert limits.events == ["745", "200 W", "limit restored", "restored", "225 W", "limit restored"]


def test_an_error_gives_both_back() -> None:
    """Whatever passes through the measurer, nothing stays set."""
    measurer, limits = measuring()
    limits.lost = True
    with pytest.raises(ClockLostError, match="the guardian is gone"):
        measurer.measure(Trial(trial_of(PLANS).configurations, 745, 200), PLANS)

    assert limits.events == ["745", "200 W", "restored", "limit restored"]


def test_a_limit_that_cannot_be_set_is_an_error() -> None:
    """A trial that asks for one is not measured without it."""
    with pytest.raises(ClockError, match="a trial asks for a power limit of 200 W"):
        TrialMeasurer(Watched()).measure(Trial(trial_of(PLANS).configurations, None, 200), PLANS)


def test_what_a_limit_holds_back_is_not_measured_again() -> None:
    """A clock below the one set is the limit's doing, and another window has it too."""
    device, limited = Watched(), ClockReading(666.0, ("sw-power-cap",), 200.0)
    limits = FakePowerLimits([])
    with TrialMeasurer(device, FakeMeter([limited] * 9), FakeClocks(), window_s=0.5, limits=limits) as one:
        measurement = one.measure(Trial(trial_of(PLANS).configurations, 875, 200), PLANS)

    assert measurement.flag_kinds >= {FlagKind.THROTTLED, FlagKind.OFF_CLOCK}
    assert measurement.passing == frozenset()


# --- modelled and recorded GPUs ----------------------------------------------------------------------


def test_a_modelled_gpu_lowers_its_clock_under_a_limit() -> None:
    """Under a lower limit a load runs slower at fewer watts; afterwards it is as before."""
    device = SimulatedDevice("v100", 0, NoNvrtc(), noise=0.0)
    limits = SimulatedPowerLimits(device)
    plans = [scan(8, 256)]

    def run() -> tuple[float, int]:
        return device.run(plans, 0.1).makespan_s or 0.0, device.clock_mhz

    free = run()
    with limits.locked(100):
        assert (limits.read_w(), device.power_limit_w) == (100.0, 100.0)
        slower = run()
    assert slower[0] >= free[0]
    assert slower[1] < free[1]
    assert run() == free
    assert limits.read_w() == limits.supported_w()[0] == 300


def test_a_modelled_gpu_refuses_other_limits() -> None:
    """None above the default, none below the range, and none at all on a board without."""
    limits = SimulatedPowerLimits(SimulatedDevice("v100", 0, NoNvrtc()))
    for watts in (301, 99):
        with pytest.raises(ClockError, match=f"no power limit of {watts} W"), limits.locked(watts):
            pass
    with pytest.raises(ClockError, match="cannot be set"):
        SimulatedPowerLimits(SimulatedDevice("jetson-tx1", 0, NoNvrtc()))


def limited_space() -> RecordedSpace:
    """Trials at two power limits; those at the lower one need less energy."""
    whole = samples.space()
    low = [samples.measured(4e-3, 0.25), samples.measured(1.1e-3, 0.15), samples.measured(3e-3, 0.08)]
    return replace(
        whole,
        trials={
            **{replace(trial, power_limit_w=700): found for trial, found in whole.trials.items()},
            **{
                replace(trial, power_limit_w=400): found
                for trial, found in zip(whole.trials, low, strict=True)
            },
        },
    )


def test_recorded_limits_can_be_chosen(tmp_path: Path) -> None:
    """They are read back as they were written, offered, and nothing else is."""
    file = samples.written(tmp_path / "a.zip", limited_space())
    device = ReplayDevice(f"replay:{file.path}")
    limits = RecordedPowerLimits(device)

    assert device.space == limited_space()
    assert limits.supported_w() == (700, 400)
    assert limits.read_w() == 700
    with limits.locked(400):
        assert device.setting == GpuSetting(None, 400)
    with pytest.raises(ClockError, match="a power limit of 500 W was not recorded"):
        limits.locked(500)
    limits.close()

    words = ("run", "--device", f"replay:{file.path}", "--database", tmp_path / "db")
    found = document(*words, *FOR_ENERGY, "--power-limits", "all", "--policy", "exhaustive")
    assert (found["best"]["power_limit_w"], found["best"]["energy_j"]) == (400, 0.08)
    missing = tuner(*words)
    assert missing.exit_code == 2
    assert "recorded at 700, 400 W only; use --power-limits all" in " ".join(missing.stderr.split())


def test_recordings_without_limits_are_as_before(tmp_path: Path) -> None:
    """Their documents have no column of limits, and none can be asked for."""
    file = samples.written(tmp_path / "a.zip", samples.space())
    refused(
        tmp_path / "db",
        ("--device", f"replay:{file.path}", "--power-limits", "all"),
        "all its trials were recorded with power limits as found",
        code=1,
    )


# --- a run -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the database of one run."""
    path = tmp_path_factory.mktemp("limits")
    result = tuner(*CHOSEN, "--database", path / "tuner.db", "--json", path / "run.json")
    assert result.exit_code == 0, result.stderr
    (path / "report.txt").write_text(result.stdout)
    return path


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Any]:
    """The document of this run."""
    return dict(json.loads((folder / "run.json").read_text()))


def test_a_lower_limit_saves_energy(found: dict[str, Any]) -> None:
    """The answer was measured at its limit; the default at the highest."""
    assert found["space"]["power_limits_w"] == [700, 500, 300]
    assert found["settings"]["power_limits_w"] == [700, 500, 300]
    assert found["default"]["power_limit_w"] == 700
    assert found["best"]["power_limit_w"] < 500
    assert found["best"]["power_w"] <= 1.05 * found["best"]["power_limit_w"]
    assert found["against_default"]["energy_saving"] > 0.2
    assert found["best"]["clock_mhz"] is None


def test_the_curve_is_of_the_answer_over_its_limits(found: dict[str, Any]) -> None:
    """Each point is a trial, against the highest limit; the saving per slowdown follows from its ratios."""
    curve = found["power_limit_curve"]
    alike = {
        one["power_limit_w"]: one
        for one in found["trials"]
        if one["configurations"] == found["best"]["configurations"] and one["status"] == "ok"
    }

    assert [point["power_limit_w"] for point in curve] == sorted(alike, reverse=True)
    assert (curve[0]["time_ratio"], curve[0]["joules_ratio"]) == (1.0, 1.0)
    for point in curve:
        assert point["joules"] == alike[point["power_limit_w"]]["energy_j"]
        assert point["kind"] == "measured"
        slower = point["time_ratio"] - 1.0
        if point["saving_per_slowdown"] is None:
            assert slower <= point["time_ratio_interval"]
        else:
            assert point["saving_per_slowdown"] == pytest.approx((1.0 - point["joules_ratio"]) / slower)


@pytest.mark.parametrize(("words", "limits_w"), [((), [700]), (("--joules",), [700, 300])])
def test_for_time_alone_the_highest_limit_is_taken(
    tmp_path: Path, words: tuple[str, ...], limits_w: list[int]
) -> None:
    """Windows for time alone end before a limit acts: a lower one would seem to cost no time."""
    chosen = (*H200, "--power-limits", "300,700", "--policy", "random", "--budget", "9", *words)
    storing = ("--objective", "time", "--database", tmp_path / "tuner.db")
    made = document("run", "scan-lf:N=4", *chosen, *storing)

    assert made["space"]["power_limits_w"] == limits_w
    assert {one["power_limit_w"] for one in made["trials"]} == set(limits_w)
    assert made["best"]["power_limit_w"] == 700


def test_the_report_names_the_limit(folder: Path, found: dict[str, Any]) -> None:
    """In the answer, the table of limits and that of trials; what the limit does is no warning."""
    text = " ".join((folder / "report.txt").read_text().split())
    stored = " ".join(tuner("show", "1", "--database", folder / "tuner.db").stdout.split())
    limit = found["best"]["power_limit_w"]

    assert f"{found['best']['clock_seen_mhz']:.0f} MHz as found power limit {limit} W" in text
    assert "power limits of this configuration (modelled; against 700 W; ± is 95 %)" in text
    assert "energy power power limit" in stored
    for told in (text, stored):
        assert "beware: throttled" not in told
        assert "beware: power-limit" not in told
        assert "power-limited:" not in told


def test_what_is_stored_names_the_limit(folder: Path, found: dict[str, Any]) -> None:
    """The database, its trials by an expression, and a run that is resumed have it."""
    shown = document("show", "1", "--database", folder / "tuner.db", "--where", "power_limit_w < 700")
    assert {one["power_limit_w"] for one in shown["trials"]} <= {500, 300}
    assert shown["best"]["power_limit_w"] == found["best"]["power_limit_w"]
    best = tuner("best", "tridiag-wm:N=256", *H200, *FOR_ENERGY, "--database", folder / "tuner.db")
    assert f"power limit {found['best']['power_limit_w']} W" in " ".join(best.stdout.split())
    again = tuner(*CHOSEN, "--database", folder / "tuner.db", "--resume")
    assert "nothing to resume" in again.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--power-limits", "fast"), "not a choice of power limits"),
        (("--power-limits", "900"), "does not have 900 W"),
        (("--power-limits", "10:90"), "no power limit in that range"),
    ],
)
def test_wrong_choices_are_refused(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    """They end with exit code 2 and say what would be right."""
    refused(tmp_path / "db", ("tridiag-wm:N=256", *H200, *words), says)


def test_a_board_without_limits_says_so(tmp_path: Path) -> None:
    """A Jetson has modes, and no limit that NVML could set."""
    words = ("scan-lf:N=4", "--device", "sim:jetson-tx1", "--power-limits", "all")
    said = ("the power limit of this GPU cannot be set", "sudo nvpmodel -m MODE", "--power-limits off")
    refused(tmp_path / "db", words, *said, code=1)
