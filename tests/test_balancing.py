"""What co-running brings, and ``tuner run --balance``: workloads that take about equally long alone."""

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_process import tuner
from tuning_runs import REQUEST, tune

from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.measurement.base import ComparisonTarget
from tuner.measurement.measurer import TrialMeasurer
from tuner.measurement.paired import CoRunComparison, compared, summed
from tuner.model.errors import DeviceError, RunInterrupted
from tuner.model.plan import Configuration, Plan
from tuner.model.records import RunStatus
from tuner.model.trial import Energy, Measurement, Status, Trial, WorkloadResult
from tuner.search import together
from tuner.search.option_checks import SearchLimits
from tuner.search.request import SearchRequest
from tuner.search.session import Session
from tuner.search.setup import MeasurementSetup, open_setup
from tuner.search.together import MOST_APART, Balance, Scale, SoloTime, apart, balance, proposal, scale_of

CATALOG = Catalog.load()
BATCH = Scale("batch", range(1, 2**62))
DEVICE = ("--device", "sim:k40c")


class _Timed(TrialMeasurer):
    """Takes so many seconds for a problem of each kernel, and for a launch, however little it does."""

    problem_s: Mapping[str, float]
    launch_s = 0.0
    status = Status.OK

    def measure(
        self, trial: Trial, plans: Sequence[Plan], target: ComparisonTarget | None = None
    ) -> Measurement:
        del trial, target
        (plan,) = plans
        work_s = self.problem_s[plan.workload.kernel] * plan.workload.batch
        time_s = max(self.launch_s, work_s / len(plan.stages)) * len(plan.stages)
        return Measurement((WorkloadResult(self.status, time_s, detail="why"),), time_s, 0.0, 1e-3 * time_s)


@pytest.fixture
def setup() -> Iterator[MeasurementSetup]:
    with open_setup("sim:k40c", SearchRequest(objective="time")) as opened:
        yield opened


def _balanced(
    setup: MeasurementSetup, times: Mapping[str, float], specs: Sequence[str], **more: Any
) -> Balance:
    measurer = _Timed(setup.device)
    measurer.problem_s = times
    for name, value in more.items():
        setattr(measurer, name, value)
    return balance(replace(setup, measurer=measurer), SearchRequest(tuple(specs)), CATALOG, None)


def _times(*seconds: float, batch: int = 64) -> list[SoloTime]:
    workload = CATALOG.workload(f"scan-lf:N=64,batch={batch}")
    return [SoloTime(workload, Configuration({}), None, one, 0.0) for one in seconds]


@pytest.mark.parametrize("ratio", [2.1, 3.0, 7.0, 50.0, 1000.0])
def test_a_proposal_brings_times_together(ratio: float) -> None:
    """Where time is as the batch, one proposal is within the factor, whatever the ratio was."""
    times = _times(1e-3 * ratio, 1e-3, 1e-3 * ratio**0.5, batch=3000)

    values = proposal(times, [BATCH] * 3)

    after = [one.time_s * values.get(place, 3000) / 3000 for place, one in enumerate(times)]
    assert max(after) / min(after) <= MOST_APART


def test_what_cannot_be_scaled_is_come_to() -> None:
    """A workload without a batch stays, and the others come to it, up or down."""
    assert proposal(_times(1e-3, 8e-3), [None, BATCH]) == {1: 8}
    assert proposal(_times(8e-3, 1e-3), [None, BATCH]) == {1: 512}
    assert proposal(_times(8e-3, 1e-3), [None, None]) == {}


def test_a_batch_of_one_is_come_to() -> None:
    """One problem that takes longest cannot be made shorter: the other batch grows to it."""
    assert proposal(_times(64e-3, 1e-3, batch=1), [BATCH, BATCH]) == {1: 64}


@pytest.mark.parametrize(
    ("spec", "scale"),
    [
        ("scan-lf:N=1024", "batch"),
        ("fft:N=64,batch=3", "batch"),
        ("streamcluster:N=4096,DIM=4,K=3", "CALLS"),
        ("lud:N=512", None),
    ],
)
def test_what_scales_a_workload(spec: str, scale: str | None) -> None:
    """The batch where launches or work follow it; else a size that only repeats launches; else nothing."""
    workload = CATALOG.workload(spec)
    found = scale_of(CATALOG.kernel(workload.kernel), workload)

    assert (None if found is None else found.name) == scale


def test_repeats_have_the_values_of_the_kernel_file() -> None:
    """A size with a list takes one of its values, the nearest as a factor."""
    workload = CATALOG.workload("streamcluster:N=4096,DIM=4,K=3")
    scale = scale_of(CATALOG.kernel("streamcluster"), workload)
    assert scale is not None

    assert [scale.nearest(workload, factor) for factor in (0.01, 0.4, 1.0, 3.0, 3.5, 99.0)] == [
        *(3, 3, 10, 10, 100, 100),
    ]


def test_short_kernels_are_measured_until_they_are_near(setup: MeasurementSetup) -> None:
    """A launch takes its time however small the batch is: what is proposed was measured, and is balanced."""
    times = {"scan-lf": 1e-7, "fft": 1e-4}

    found = _balanced(setup, times, ("scan-lf:N=64,batch=16", "fft:N=64,batch=64"), launch_s=1e-4)

    assert apart(found.before) == pytest.approx(64)
    assert found.balanced
    assert apart(found.after) <= MOST_APART
    assert found.after[0].time_s == max(1e-4, 1e-7 * found.after[0].workload.batch)


def test_memory_bounds_a_proposal(setup: MeasurementSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches that are proposed fit into half of the free memory together."""
    monkeypatch.setattr(type(setup.device), "free_memory_bytes", lambda _: 2**20)

    found = _balanced(setup, {"scan-lf": 1e-9, "lud": 1.0}, ("scan-lf:N=64,batch=16", "lud:N=64"))

    assert not found.balanced
    assert found.after[0].workload.batch * 64 * 4 * 2 <= 2**19
    assert "no batch that fits brings it nearer" in found.advice[0]


def test_sizes_are_named_where_nothing_else_helps(setup: MeasurementSetup) -> None:
    """Chains without a batch are left, and the report names the sizes to change, and the direction."""
    found = _balanced(
        setup, {"lud": 1.0, "streamcluster": 1e-5}, ("lud:N=64", "streamcluster:N=64,DIM=4,K=3")
    )

    long, brief = found.advice
    assert long == "lud:N=64 takes too long, and it has no batch and no repeats: choose a smaller N"
    assert brief.startswith(
        "streamcluster:N=64,DIM=4,K=3 takes too briefly, and no CALLS of 10, 3, 100 brings"
    )
    assert brief.endswith("it nearer: choose a larger N or DIM or K")


def test_a_failure_is_told(setup: MeasurementSetup) -> None:
    """A workload that fails alone ends the measuring with its name, its status and why."""
    with pytest.raises(DeviceError, match=r"scan-lf:N=64 \[.*\] failed alone: timeout: why"):
        _balanced(setup, {"scan-lf": 1.0}, ("scan-lf:N=64", "fft:N=64"), status=Status.TIMEOUT)


# --- the command ---------------------------------------------------------------------------------


def test_the_command_that_is_proposed_is_balanced(tmp_path: Path) -> None:
    """Times have units and say that they are modelled; the printed command keeps options, and is balanced."""
    path, db = tmp_path / "balance.json", tmp_path / "tuner.db"
    limit = ("--objective", "energy", "--max-slowdown", "5%")
    words = ("scan-lf:N=1024", "tridiag-wm:N=512", *DEVICE, *limit, "--database", db)

    result = tuner("run", *words, "--balance", "--json", path)

    found = json.loads(path.read_text())
    assert result.exit_code == 0, result.output
    assert (found["balanced"], found["modelled"]) == (True, True)
    assert found["apart"] > MOST_APART >= found["proposed_apart"]
    assert "solo times as asked for (modelled; ± is 95 %): the longest is 2.5" in result.output
    assert " ms  default  " in result.output
    assert f"use: {found['command']}" in result.output
    command = shlex.split(found["command"])
    assert command[:2] == ["tuner", "run"]
    assert command[command.index("--max-slowdown") + 1] == "0.05"
    assert "--json" not in command
    assert not db.exists(), "nothing is stored"
    again = tuner(*command[1:], "--balance")
    assert "solo times are within a factor of 2: there is nothing to balance" in again.output
    assert "use:" not in again.output
    assert again.exit_code == 0


def test_stored_answers_are_measured(tmp_path: Path) -> None:
    """A workload that was tuned alone has the configuration of that run."""
    path, db = tmp_path / "balance.json", ("--database", str(tmp_path / "tuner.db"))
    tuned = tmp_path / "run.json"
    assert tuner("run", "fft:N=64", *DEVICE, *db, "--budget", "4", "--json", tuned).exit_code == 0

    assert tuner("run", "scan-lf:N=64", "fft:N=64", *DEVICE, *db, "--balance", "--json", path).exit_code == 0

    first, second = json.loads(path.read_text())["workloads"]
    assert (first["run"], second["run"]) == (None, 1)
    assert second["configuration"] == json.loads(tuned.read_text())["best"]["configurations"]["fft:N=64"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("scan-lf:N=64", *DEVICE), "--balance: scan-lf:N=64 is alone; name the workloads that run with it"),
        (("scan-lf:N=64", "fft:N=64", *DEVICE, "--resume"), "leave one of them out"),
        (("scan-lf:N=64", "--device", "replay:h200"), "--balance: replay:h200 was measured already"),
        (("scan-lf:N=64", "fft:M=64", *DEVICE), "unknown size 'M'"),
    ],
)
def test_bad_input_is_refused(words: Sequence[str], why: str) -> None:
    """What cannot be balanced ends with exit code 2 and why."""
    result = tuner("run", *words, "--balance")

    assert result.exit_code == 2, result.output
    assert why in result.output


# --- What co-running brings: the answer together, and its workloads one after another.

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
