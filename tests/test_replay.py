"""Recorded spaces as a device: what a trial gave is given again, in virtual time; and the one we ship."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import recorded_samples as samples
from tuner.power.base import ClockControl
from tuning_runs import tune

import tuner
from tuner.database.runs import Store
from tuner.devices.base import Device
from tuner.devices.choice import open_device
from tuner.devices.replay import RecordedClocks, ReplayDevice
from tuner.kernel_files.catalog import Catalog
from tuner.model import registry
from tuner.model.errors import ClockError, CompileError, EmptySpaceError, InputError
from tuner.model.objective import COVERAGE, Objective
from tuner.model.plan import STREAM_PRIORITY, Configuration, Resources, with_place
from tuner.model.trial import Status, Trial, WindowScatter, stated
from tuner.recordings.files import open_recording
from tuner.recordings.values import RecordedSpace, search_of
from tuner.search.plan import choose_run_clocks, plan_search, resolve
from tuner.search.replaying import changed, measured_as, prepared, workload_of
from tuner.search.request import SearchRequest
from tuner.search.setup import open_setup
from tuner.search.together import SoloBests
from tuner.studies.comparison import play

TIME = SearchRequest(workloads=("scan-lf:N=64",), objective="time", policy="exhaustive")


@pytest.fixture
def spec(tmp_path: Path) -> str:
    """A device of three recorded trials with joules."""
    return f"replay:{samples.written(tmp_path / 'a.zip', samples.space()).path}"


def test_it_is_a_device(spec: str) -> None:
    """Checks, runs and resources of plans are those recorded; virtual time goes by the recorded windows."""
    device: Device = ReplayDevice(spec)
    (item,) = prepared(ReplayDevice(spec).space)
    plans = [item.plans[candidate.configuration] for candidate in item.candidates]
    record = device.run(plans[:1], 5.0)
    (stages, *_) = device.resources(plans)

    assert device.check(plans[0], 1).status is Status.OK
    assert record.makespan_s == 3e-3
    assert record.results[0].status is Status.OK
    assert record.start_s == 0.0
    assert record.end_s == pytest.approx(0.2)
    assert device.now_s() == record.end_s
    assert stages == (Resources(20, 128),)
    assert device.limits == samples.LIMITS
    assert device.free_memory_bytes() == samples.LIMITS.memory_bytes
    device.resume_at(9.0)
    device.resume_at(1.0)
    device.sleep(0.5)
    assert device.now_s() == 9.5
    device.close()


def test_what_was_not_recorded_fails_and_says_so(spec: str) -> None:
    """Another configuration has no check, no resources and no time."""
    device = ReplayDevice(spec)
    (item,) = prepared(device.space)
    known = item.plans[item.candidates[0].configuration]
    other = replace(known, configuration=Configuration((("L", 7), ("store", "direct"))))
    (error,) = device.resources([other])

    assert device.check(other, 0).detail == "not recorded"
    assert device.run([other], 0.1).results[0].detail == "not recorded"
    assert device.run([other], 0.1).makespan_s is None
    assert isinstance(error, CompileError)


def test_no_answer_of_it_passes_for_a_measured_one(spec: str) -> None:
    """It has the GPU's name, but the day of the recording, and a UUID that no GPU has."""
    identity = open_device(spec).device.identity

    assert (identity.name, identity.spec, identity.recorded) == ("NVIDIA H200", spec, "2026-11-21")
    assert identity.uuid != samples.GPU.uuid
    assert not identity.modelled


def test_no_answer_of_another_recording_passes_for_one_of_it(tmp_path: Path) -> None:
    """A file that was replaced is another GPU to the database, so that no run goes on with its trials."""
    path = samples.written(tmp_path / "a.zip", samples.space()).path
    before, again = (ReplayDevice(f"replay:{path}").identity for _ in range(2))
    slower = [samples.measured(time_s) for time_s in (3e-3, 1.1e-3, 2e-3)]
    samples.written(path, samples.space(results=slower))

    assert before == again
    assert ReplayDevice(f"replay:{path}").identity.uuid != before.uuid


@pytest.mark.parametrize("window", [10**400, -1, "long", None])
def test_an_odd_window_of_a_recording_is_that_of_its_trials(window: object) -> None:
    """Provenance is free words: what is no number of seconds there is not taken for the window."""
    one = samples.space(provenance={"window_s": window})

    assert measured_as(one)["window_s"] == 0.2


def test_measurements_come_back_as_recorded(spec: str, tmp_path: Path) -> None:
    """A run sees times and joules of the recording, each trial once, and confirms nothing.

    The recorded uncertainties are the windows' own; what is told of them is about minutes. A recorded GPU had
    been at work for long: no drift is assumed.
    """
    with Store(tmp_path / "db") as store:
        outcome = tune(replace(TIME, objective="energy"), store, spec=spec)
    expected = samples.space().trials

    assert outcome.status == "finished"
    assert {trial: replace(m, ended_s=0.0) for trial, m in outcome.trials} == {
        trial: stated(m, WindowScatter(drift=0.0)) for trial, m in expected.items()
    }
    assert outcome.answer is not None
    assert outcome.trials[outcome.answer][0].configurations[0]["L"] == 128
    assert outcome.windows_s == pytest.approx(0.6)
    assert outcome.joules == pytest.approx(60.0)
    assert not outcome.paired.repeats


def test_a_failed_trial_stays_a_failed_one(tmp_path: Path) -> None:
    """Recorded failures cost infinity, with their words, and end no search."""
    results = (samples.failed(Status.WRONG_ANSWER, "off by one"), samples.measured(1e-3), samples.failed())
    path = samples.written(tmp_path / "a.zip", samples.space(results=results)).path
    with Store(tmp_path / "db") as store:
        outcome = tune(TIME, store, spec=f"replay:{path}")

    assert outcome.status == "finished"
    assert [m.status for _, m in outcome.trials].count(Status.OK) == 1
    assert outcome.trials[0][1].results[0].detail == "off by one"


def test_a_space_with_holes_is_searched(tmp_path: Path) -> None:
    """A joint space of which only some combinations were recorded answers the others as failed."""
    pair = (samples.workload(), samples.workload("scan-ks:N=64", (64, 128)))
    diagonal = zip(pair[0].candidates, pair[1].candidates, strict=False)
    trials = {Trial((a.configuration, b.configuration)): samples.measured(1e-3, lanes=2) for a, b in diagonal}
    path = samples.written(
        tmp_path / "a.zip", replace(samples.space(), workloads=pair, trials=trials, sensor="")
    ).path
    with Store(tmp_path / "db") as store:
        outcome = tune(replace(TIME, workloads=()), store, spec=f"replay:{path}")

    assert len(outcome.trials) == 6
    assert sum(m.ok for _, m in outcome.trials) == 2
    assert {r.detail for _, m in outcome.trials for r in m.results} == {"", "not recorded"}


def test_a_run_goes_on_where_it_was_stopped(spec: str, tmp_path: Path) -> None:
    """A limited run is resumed: what was looked up is not looked up again, and virtual time goes on."""
    with Store(tmp_path / "db") as store:
        tune(replace(TIME, time_limit_s=0.3), store, spec=spec)
        outcome = tune(replace(TIME, time_limit_s=10.0), store, spec=spec, resume=True)

    assert outcome.resumed == 2
    assert len(outcome.trials) == 3
    assert outcome.trials[-1][1].ended_s == pytest.approx(0.6)


def test_recorded_clocks_can_be_chosen(tmp_path: Path) -> None:
    """--clocks offers the clocks that were recorded; nothing is set, and others are refused."""
    one = samples.space(clocks_mhz=(1980, 1200))
    spec = f"replay:{samples.written(tmp_path / 'a.zip', one).path}"
    with open_setup(spec, replace(TIME, clocks="all")) as setup:
        assert choose_run_clocks(replace(TIME, clocks="all"), setup.clocks) == (1980, 1200)
    device = ReplayDevice(spec)
    clocks: ClockControl = RecordedClocks(device)
    assert clocks.read().mhz == 1980
    with clocks.locked(1200):
        assert clocks.read().mhz == 1200
    with pytest.raises(ClockError, match="1500 MHz was not recorded"):
        clocks.locked(1500)
    clocks.close()


def test_clocks_as_found_must_have_been_recorded(tmp_path: Path) -> None:
    """Where every trial has a clock that was set, --clocks off would find nothing, and says so."""
    path = samples.written(tmp_path / "a.zip", samples.space(clocks_mhz=(1980, 1200))).path
    says = "--clocks off: trials were recorded at 1980, 1200 MHz only; use --clocks all"
    with pytest.raises(InputError, match=says), open_setup(f"replay:{path}", TIME):
        pass
    with Store(tmp_path / "db") as store:
        outcome = tune(replace(TIME, clocks="all"), store, spec=f"replay:{path}")
    assert sorted({trial.clock_mhz or 0 for trial, _ in outcome.trials}) == [1200, 1980]
    assert all(measurement.ok for _, measurement in outcome.trials)


def test_clocks_that_were_not_recorded_are_refused(spec: str) -> None:
    """A space measured with clocks as found has none to choose."""
    request = replace(TIME, clocks="all")
    with open_setup(spec, request) as setup, pytest.raises(ClockError, match="with clocks as found"):
        choose_run_clocks(request, setup.clocks, setup.no_clocks)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"window_s": 1.0}, "--window 1.0: .* was measured already"),
        ({"sensor": "nvml"}, "--sensor nvml: .* was measured already"),
        ({"workloads": ("fft:N=64",)}, "fft:N=64 was not recorded; there are scan-lf:N=64"),
    ],
)
def test_what_a_recording_cannot_do_is_refused(spec: str, changes: dict[str, object], says: str) -> None:
    """Options of measuring, and workloads that are not in it, are errors before anything is looked up."""
    with pytest.raises(InputError, match=says), open_setup(spec, replace(TIME, **changes)):  # type: ignore[arg-type]
        pass


def test_energy_needs_recorded_joules(tmp_path: Path) -> None:
    """Without joules the spaces of the file that have some are named."""
    dry = samples.space(samples.workload("scan-lf:N=128"), [samples.measured(1e-3)] * 3)
    path = samples.written(tmp_path / "a.zip", samples.space(), dry).path
    request = replace(TIME, workloads=("scan-lf:N=128",), objective="edp")
    says = r"--objective edp: no joules .* of: scan-lf:N=64; use --objective time"
    with pytest.raises(InputError, match=says), open_setup(f"replay:{path}", request):
        pass
    alone = samples.written(tmp_path / "b.zip", dry).path
    says = "nor of any space of the file"
    with pytest.raises(InputError, match=says), open_setup(f"replay:{alone}", request):
        pass


def test_an_occupancy_can_be_asked_for(spec: str) -> None:
    """--min-occupancy drops recorded configurations below it; without it all are candidates."""
    space = ReplayDevice(spec).space
    (every,), (some,) = prepared(space), prepared(space, 0.9)

    assert [c.configuration["L"] for c in every.candidates] == [32, 64, 128]
    assert [c.configuration["L"] for c in some.candidates] == [64, 128]
    assert some.pruned == {"occupancy, as recorded": 1}
    with pytest.raises(EmptySpaceError, match="no recorded configuration reaches"):
        prepared(replace(space, workloads=(samples.workload(launches=False),)), 0.5)


def test_a_changed_kernel_is_said(tmp_path: Path) -> None:
    """A recording of other sources is replayed as it is, with a notice; the present ones give none."""
    catalog = Catalog.load()
    for fingerprint, notices in (("old", 1), (catalog.kernel("scan-lf").fingerprint, 0), ("", 0)):
        space = samples.space(samples.workload(fingerprint=fingerprint))
        path = samples.written(tmp_path / "a.zip", space).path
        _, found = resolve(catalog, (), ReplayDevice(f"replay:{path}"))

        assert len(found) == notices == len(changed(space, catalog))
        assert all("scan-lf has changed since it was recorded" in notice for notice in found)


def test_conditions_are_those_of_the_recording(spec: str) -> None:
    """Answers are bound to the recorded sources and batches, not to the present ones."""
    with open_setup(spec, TIME) as setup:
        conditions = plan_search(TIME, Catalog.load(), setup).conditions

    assert conditions.workloads == (("scan-lf:N=64", 1024),)
    assert conditions.sources == {"scan-lf": ""}
    assert conditions.device.recorded == "2026-11-21"


@pytest.mark.parametrize(
    ("name", "sizes", "shown"),
    [
        ("scan-lf:N=64", {"N": 64}, "scan-lf:N=64"),
        ("fft:N=64", {"N": 64, "radix": 2}, "fft:N=64"),
        ("convolution_A100", {"x": 4096, "y": 4096}, "convolution_A100"),
        ("plain", {}, "plain"),
    ],
)
def test_a_workload_keeps_the_name_it_was_recorded_under(
    name: str, sizes: dict[str, int | str], shown: str
) -> None:
    """Sizes that are not in the name are implied, whatever the kernel is called."""
    recorded = replace(samples.workload("x:N=1"), name=name, kernel=name.partition(":")[0], sizes=sizes)

    assert str(workload_of(recorded)) == shown
    assert dict(workload_of(recorded).sizes) == sizes


def test_other_tuners_spaces_are_tuned(tmp_path: Path) -> None:
    """A Kernel Tuner cache, without limits or launches, is searched to its best under its own name."""
    path = samples.cache_file(tmp_path / "cache.json")
    with Store(tmp_path / "db") as store:
        outcome = tune(replace(TIME, workloads=("convolution_kernel",)), store, spec=f"replay:{path}")

    assert outcome.answer is not None
    assert dict(outcome.trials[outcome.answer][0].configurations[0]) == {"block_size_x": 32, "layout": "row"}
    assert Objective("time").cost(outcome.trials[outcome.answer][1]) == pytest.approx(1e-3)


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
    """Solo bests are known from the same file, and those of the pairs."""
    recording = open_recording("h200-applications")
    alone = {names[0].partition(":")[0] for names in recording.names if len(names) == 1}
    assert alone == {*KERNELS, "matmul-split-k"}


@pytest.mark.parametrize("objective", ["time", "energy"])
def test_thirty_trials_end_at_the_least(space: RecordedSpace, objective: str) -> None:
    """Of 512 trials 30 are measured: the best of them is within 2 % of the least time, or its joules tie."""
    cost, known = Objective(objective).cost, Objective(objective).relative_uncertainty
    played = play(registry.load("policy", "auto"), search_of(space, cost), space.look, 30)

    least = min(space.trials.values(), key=cost)
    found = min((measurement for _, measurement in played), key=cost)
    tie = COVERAGE * (known(least) * cost(least) + known(found) * cost(found))
    assert cost(found) <= max(1.02 * cost(least), cost(least) + tie)


def test_priorities_gain_what_configurations_cannot(space: RecordedSpace) -> None:
    """The least time is far below that of any trial whose streams are alike."""
    cost = Objective("time").cost
    alike = [
        cost(measurement)
        for trial, measurement in space.trials.items()
        if len({one[STREAM_PRIORITY] for one in trial.configurations}) == 1
    ]
    assert min(map(cost, space.trials.values())) < 0.9 * min(alike)


def test_tuning_together_gains_beyond_solo_bests_with_priorities(space: RecordedSpace) -> None:
    """Solo bests take 4.15 ms at equal priorities, 3.66 at their best, and the search from there 3.44."""
    recording, cost = open_recording("h200-applications"), Objective("time").cost
    alone = {
        names[0].partition(":")[0]: recording.space(names) for names in recording.names if len(names) == 1
    }
    solo = []
    for workload in space.workloads:
        best, _ = min(alone[workload.kernel].trials.items(), key=lambda pair: cost(pair[1]))
        solo.append(with_place(best.configurations[0], {STREAM_PRIORITY: 0}))
    equal = replace(next(iter(space.trials)), configurations=tuple(solo))
    others = [
        trial
        for trial in space.trials
        if trial != equal
        and tuple(with_place(one, {STREAM_PRIORITY: 0}) for one in trial.configurations) == tuple(solo)
    ]
    rival = SoloBests(equal, placed=tuple(others)).rival(space.trials, Objective("time"))
    assert rival is not None
    assert 1 + len(others) == 16
    prior = {trial: space.trials[trial] for trial in (equal, *others)}
    search = replace(search_of(space, cost), prior=prior)
    played = play(registry.load("policy", "auto"), search, space.look, 30)
    answer_s = min(cost(measurement) for _, measurement in played)
    equal_s, rival_s = (cost(space.trials[trial]) for trial in (equal, rival))
    assert (equal_s, rival_s) == pytest.approx((4.15e-3, 3.66e-3), abs=1e-5)
    assert answer_s / rival_s - 1 == pytest.approx(-0.06, abs=0.003)
