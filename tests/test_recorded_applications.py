"""The recorded space of four applications that comes with the package."""

import math
from pathlib import Path

import pytest

import tuner
from tuner import registry
from tuner.comparing.evaluations import play
from tuner.model.objective import Objective
from tuner.recordings import RecordedSpace
from tuner.recordings.opening import open_recording
from tuner.recordings.values import search_of

KERNELS = {"streamcluster", "particle-filter", "lud", "hotspot"}


@pytest.fixture(scope="module")
def space() -> RecordedSpace:
    """All trials of the four."""
    recording = open_recording("h200-applications")
    return recording.space(max(recording.names, key=len))


def test_it_is_complete_and_small(space: RecordedSpace) -> None:
    """Every combination has a time and joules from a window of 0.5 s, in less than 2 MB."""
    assert {workload.kernel for workload in space.workloads} == KERNELS
    assert len(space.trials) == math.prod(len(workload.candidates) for workload in space.workloads) >= 500
    for measurement in space.trials.values():
        assert measurement.ok
        assert measurement.window_s >= 0.49  # whole rounds
        assert math.isfinite(Objective("time").cost(measurement))
        assert math.isfinite(Objective("energy").cost(measurement))
    folder = Path(tuner.__file__).parent / "recordings"
    assert (folder / "h200-applications.zip").stat().st_size < 2e6


def test_each_application_is_recorded_alone() -> None:
    """Solo bests are known from the same file."""
    recording = open_recording("h200-applications")
    alone = {names[0].partition(":")[0] for names in recording.names if len(names) == 1}
    assert alone == KERNELS


@pytest.mark.parametrize("objective", ["time", "energy"])
@pytest.mark.parametrize("policy", ["greedy", "auto"])
def test_thirty_trials_end_within_two_percent(space: RecordedSpace, policy: str, objective: str) -> None:
    """Of 600 trials at most 30 are measured, and the best of them is within 2 % of the least recorded."""
    cost = Objective(objective).cost
    played = play(registry.load("policy", policy), search_of(space, cost), space.look)

    assert len(played) <= 30
    least = min(map(cost, space.trials.values()))
    assert min(cost(measurement) for _, measurement in played) <= 1.02 * least
