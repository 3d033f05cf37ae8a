"""What co-running brings: the answer together, and its workloads one after another."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from tuning_runs import REQUEST, tune

from tuner.database.runs import Store
from tuner.measurement.paired import CoRunComparison, compared, summed
from tuner.model.errors import RunInterrupted
from tuner.model.plan import Configuration
from tuner.model.records import RunStatus
from tuner.model.trial import Energy, Measurement, Status, Trial, WorkloadResult
from tuner.search import together
from tuner.search.request import SearchLimits
from tuner.search.session import Session

TRIAL = Trial((Configuration({"P": 4}), Configuration({"P": 8})))


def measured(
    time_s: float, joules: float | None = None, *, unsure: float = 1e-4, lanes: int = 1
) -> Measurement:
    """A measurement of a round, with relative uncertainties."""
    energy = None
    if joules is not None:
        energy = Energy(joules, unsure * joules, joules / time_s, "a sensor", "gpu")
    results = tuple(WorkloadResult(Status.OK, time_s) for _ in range(lanes))
    return Measurement(results, time_s, 0.0, unsure * time_s, energy=energy, rounds=10, window_s=10 * time_s)


def test_sums_of_lone_rounds() -> None:
    """Times and joules add; uncertainties of separate windows add in squares; power is that of the sum."""
    both = summed([measured(1e-3, 0.3, unsure=0.01), measured(3e-3, 0.5, unsure=0.02)])

    assert both.makespan_s == pytest.approx(4e-3)
    assert both.makespan_uncertainty_s == pytest.approx((1e-5**2 + 6e-5**2) ** 0.5)
    assert both.energy is not None
    assert both.energy.joules == pytest.approx(0.8)
    assert both.energy.uncertainty_j == pytest.approx((0.003**2 + 0.01**2) ** 0.5)
    assert both.energy.watts == pytest.approx(0.8 / 4e-3)
    assert len(both.results) == 2


def test_joules_are_needed_of_all() -> None:
    """Where one window had no joules there is no sum of them, and times are compared alone."""
    found = compared(TRIAL, [(measured(3e-3, 0.5, lanes=2), [measured(1e-3, 0.3), measured(3e-3)])])

    assert found is not None
    assert found.energy is None
    assert found.time.value == pytest.approx(0.75)


def test_drift_is_in_neither_ratio_nor_interval() -> None:
    """A GPU that gets slower by a tenth between repeats leaves the comparison alone."""
    repeats = [
        (
            measured(drift * 3e-3, drift * 0.7, lanes=2),
            [measured(drift * 1e-3, drift * 0.3), measured(drift * 3e-3, drift * 0.5)],
        )
        for drift in (1.0, 1.1, 1.2)
    ]

    found = compared(TRIAL, repeats)

    assert found is not None
    assert found.energy is not None
    assert found.time.value == pytest.approx(0.75)
    assert found.energy.value == pytest.approx(0.875)
    assert found.time.interval < 5e-4
    assert [one.makespan_s for one in found.alone] == pytest.approx([1.1e-3, 3.3e-3])


def test_what_failed_is_not_compared() -> None:
    """A workload that fails alone, or nothing measured at all, is no comparison."""
    failed = Measurement((WorkloadResult(Status.CRASHED),))

    assert compared(TRIAL, []) is None
    assert compared(TRIAL, [(measured(1e-3, lanes=2), [measured(1e-3), failed])]) is None


# --- in a run ------------------------------------------------------------------------------------

TWO = replace(REQUEST, workloads=("scan-lf:N=4", "fft:N=4"), budget=4)


@pytest.mark.parametrize("objective", ["energy", "time"])
def test_the_answer_is_held_against_its_workloads_in_turn(store: Store, objective: str) -> None:
    """A run of two workloads measures the answer's co-run and each workload alone, its cost counted."""
    outcome = tune(replace(TWO, objective=objective), store)

    found = outcome.co_run
    assert found is not None
    assert outcome.answer is not None
    answer = outcome.trials[outcome.answer][1]
    assert found.together.makespan_s == pytest.approx(answer.makespan_s, rel=0.01)
    assert len(found.alone) == 2
    assert found.in_turn.makespan_s == pytest.approx(sum(one.makespan_s or 0.0 for one in found.alone))
    slowest = max(one.makespan_s or 0.0 for one in found.alone)
    assert 0.98 * slowest / (found.in_turn.makespan_s or 1.0) < found.time.value < 1.1
    assert found.together.modelled
    joules = sum(one.energy_total_j for one in outcome.measurements)
    assert joules <= outcome.joules <= 1.5 * joules  # all that was measured, and idle power
    assert (joules > 0) == (objective == "energy")
    record = together.record_of(found, ["scan-lf:N=4", "fft:N=4"])
    assert record is not None
    assert record["workloads"]["fft:N=4"]["time_s"] == found.alone[1].makespan_s
    assert (record["energy_change"] is None) == (found.energy is None)


def test_a_lone_workload_is_not_compared(store: Store) -> None:
    """Of one workload there is nothing to compare."""
    assert tune(replace(REQUEST, budget=3), store).co_run is None


def test_the_time_limit_ends_the_comparison(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no time left nothing more is measured: complete repeats are compared, without one nothing."""
    asked: list[int | None] = []

    def counted(
        trial: Trial, measure: Callable[[int | None], Measurement], may_go_on: Callable[[], bool]
    ) -> CoRunComparison | None:
        def noted(place: int | None) -> Measurement:
            asked.append(place)
            return measure(place)

        return together.compare_in_turn(trial, noted, may_go_on)

    monkeypatch.setattr("tuner.search.session.compare_in_turn", counted)
    monkeypatch.setattr(Session, "out_of_time", property(lambda _: len(asked) >= 4))
    monkeypatch.setattr(SearchLimits, "check", lambda *_, **__: None)
    request = replace(TWO, budget=None, policy="analytical", time_limit_s=1000.0)

    outcome = tune(request, store)

    assert asked == [None, 0, 1, 1]
    assert outcome.co_run is not None
    assert outcome.co_run.together.repeats == 1
    monkeypatch.setattr(Session, "out_of_time", property(lambda _: True))
    assert tune(request, store).co_run is None


def test_an_interrupted_comparison_leaves_the_answer(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the workloads run alone ends the run with the confirmed answer."""

    def interrupted(*_: object) -> Measurement:
        raise RunInterrupted

    monkeypatch.setattr("tuner.search.session.compare_in_turn", interrupted)

    outcome = tune(TWO, store)

    assert outcome.status is RunStatus.INTERRUPTED
    assert outcome.answer is not None
    assert outcome.paired.repeats
    assert outcome.co_run is None
