"""Joules from the begin of a run to its end, pauses in which nobody looked included."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from power_source import IDLE_W, Source
from tuner.power.base import Sample, SensorInfo, SpentEnergy
from tuner.power.energy.meter import SamplingMeter, SpentTotal
from tuner.power.sensors.simulated import SimulatedSampler
from tuning_runs import REQUEST, tune

from tuner.database.runs import Store
from tuner.devices.simulated.device import SimulatedDevice
from tuner.model.objective import COVERAGE
from tuner.search.document import _tuning_energy

STREAM = SensorInfo("s", "stream", "gpu", period_s=0.1)
COUNTER = SensorInfo("c", "counter", "gpu", period_s=0.1)


def samples(watts: Callable[[float], float], looked: Sequence[tuple[float, float]]) -> list[Sample]:
    """Samples every 0.1 s in the times that somebody looked."""
    return [
        Sample(begin_s + 0.1 * i, watts(begin_s + 0.1 * i))
        for begin_s, end_s in looked
        for i in range(round((end_s - begin_s) / 0.1) + 1)
    ]


def covers(spent: SpentEnergy | None, truth_j: float) -> bool:
    assert spent is not None
    return abs(spent.joules - truth_j) <= COVERAGE * spent.sigma_j + 1e-9 * truth_j


@given(
    st.lists(st.tuples(st.floats(0.3, 5.0), st.sampled_from([50.0, 400.0, 600.0])), min_size=1, max_size=8)
)
def test_a_counter_has_counted_in_pauses_too(pieces: list[tuple[float, float]]) -> None:
    """However long nobody looks, and whatever the GPU does meanwhile, what a counter counted is known."""
    source = Source()
    source.draw(0.05, IDLE_W)
    meter = SamplingMeter(SimulatedSampler(source, "counter"), None, source.now_s)
    for seconds, watts in pieces:
        with meter.recording():
            source.draw(0.3, 300.0)
        source.draw(seconds, watts)
    with meter.recording():
        source.draw(1.0, IDLE_W)
    spent = meter.spent()

    assert spent is not None
    assert spent.unseen_s <= 0.2
    truth_j = source.joules(0.05, source.now_s())
    assert spent.joules == pytest.approx(truth_j, abs=0.15 * 600.0)


def test_pauses_of_a_reading_of_power_are_idle_and_said() -> None:
    """Two loads of 2 s at 500 W and 8 s of idle that nobody saw: near the truth, and its doubt is stated."""
    looked = [(0.0, 2.0), (10.0, 12.5)]
    total = SpentTotal(0.0)
    total.add(samples(lambda s: 500.0 if s <= 2.0 or 10.0 <= s <= 12.0 else 60.0, looked), STREAM)
    spent = total.spent(14.5, STREAM)

    assert spent is not None
    assert spent.unseen_s == pytest.approx(10.0)
    assert spent.unseen_j == pytest.approx(60.0 * 10.0 + 440.0 * 0.5)
    assert covers(spent, 500.0 * 4.0 + 60.0 * 10.5)
    assert 0.0 < spent.unseen_sigma_j < spent.sigma_j


def test_without_idle_a_pause_takes_the_power_before_it() -> None:
    """A reading that never saw the GPU idle knows no better."""
    total = SpentTotal(0.0)
    total.add(samples(lambda _: 500.0, [(0.0, 2.0), (4.0, 5.0)]), STREAM)
    spent = total.spent(5.0, STREAM)

    assert spent is not None
    assert spent.joules == pytest.approx(2500.0)
    assert spent.sigma_j == pytest.approx(0.05 * 1000.0)


def test_a_counter_that_is_reset_loses_one_step() -> None:
    """The driver is loaded anew between two samples: that step is unseen, and nothing is negative."""
    total = SpentTotal(0.0)
    total.add([Sample(0.1 * i, 1000.0 + 10.0 * i) for i in range(11)], COUNTER)
    total.add([Sample(1.0 + 0.1 * i, 10.0 * i) for i in range(1, 11)], COUNTER)
    spent = total.spent(2.0, COUNTER)

    assert spent is not None
    assert spent.joules == pytest.approx(200.0, rel=0.05)
    assert spent.unseen_s == pytest.approx(0.1)


def test_what_cannot_be_is_no_energy() -> None:
    """Numbers that are none, absurd power, and samples of before the start or out of order are left out."""
    good = [Sample(0.1 * i, 100.0) for i in range(11)]
    bad = [Sample(-1.0, 900.0), Sample(1.05, math.nan), Sample(1.06, 1e9), Sample(0.2, 700.0)]
    total, counted = SpentTotal(0.0), SpentTotal(0.0)
    total.add([*bad[:1], *good, *bad[1:]], STREAM)
    counted.add([*(Sample(one.time_s, 100.0 * one.time_s) for one in good), bad[1]], COUNTER)

    for found in (total.spent(1.0, STREAM), counted.spent(1.0, COUNTER)):
        assert found is not None
        assert found.joules == pytest.approx(100.0)
    assert SpentTotal(0.0).spent(1.0, STREAM) is None


@pytest.mark.parametrize("spec", ["sim:h200", "sim:k40c", "sim:jetson-tx1"])
def test_tuning_costs_all_joules_between_begin_and_end(
    spec: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a run is said to cost is what the modelled GPU drew, gaps and short windows included."""
    devices: list[SimulatedDevice] = []
    drawn: dict[str, float] = {"joules": 0.0}
    begin = SimulatedDevice.__init__

    def remember(self: SimulatedDevice, *arguments: object, **options: object) -> None:
        begin(self, *arguments, **options)  # type: ignore[arg-type]
        devices.append(self)
        pass_time = self._timeline.pass_time

        def counted(seconds: float, watts: float) -> None:
            drawn["joules"] += max(0.0, seconds) * watts
            pass_time(seconds, watts)

        self._timeline.pass_time = counted  # type: ignore[method-assign]

    monkeypatch.setattr(SimulatedDevice, "__init__", remember)
    outcome = tune(replace(REQUEST, policy="random", budget=12), store, spec=spec)
    record = _tuning_energy(outcome)

    assert len(devices) == 1
    assert record["tuning_energy_j"] == pytest.approx(drawn["joules"], rel=0.004)
