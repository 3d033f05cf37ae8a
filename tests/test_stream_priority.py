"""Stream priorities of workloads that run together: the tunable, the streams, and what is bound to them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from cli_process import tuner
from fake_cuda import fake_device, plan
from fake_cupy import FakeCupy
from hypothesis import given
from hypothesis import strategies as st
from test_solo_bests import TWO, _Contending
from tuning_runs import CallbackListener

from tuner.database.ranking import allowed
from tuner.database.runs import Store
from tuner.devices.base import Check
from tuner.devices.cuda.device import CudaDevice
from tuner.kernel_files.catalog import Catalog, kernel_of
from tuner.kernel_files.kernel_file import with_places
from tuner.measurement.measurer import AnswerChecks
from tuner.model.errors import InputError, KernelFileError, RunInterrupted
from tuner.model.objective import Objective
from tuner.model.plan import STREAM_PRIORITY, Configuration, Plan, Source, with_place, without_place
from tuner.model.records import RunStatus
from tuner.model.trial import Status, Trial
from tuner.report.answer import comparisons
from tuner.report.details import detail_lines
from tuner.report.html.report import run_page
from tuner.search.plan import resolve, searched_places
from tuner.search.replaying import stored_space
from tuner.search.request import SearchRequest
from tuner.search.session import TrialEvent
from tuner.search.setup import open_setup
from tuner.search.together import SoloBests, at_equal_places, at_places
from tuner.search.tuning import tune

SPEC = "scan-lf:N=4"


@pytest.fixture
def catalog() -> Catalog:
    return Catalog.load(())


# --- the tunable ---------------------------------------------------------------------------------


def test_priorities_multiply_a_space_and_change_no_code(catalog: Catalog) -> None:
    """Each configuration is there at every priority; the default has the lowest, and stages stay alike."""
    kernel, workload = catalog.kernel("scan-lf"), catalog.workload(SPEC)
    several = with_places(kernel, {STREAM_PRIORITY: range(3)})
    assert len(several.space(workload)) == 3 * len(kernel.space(workload))
    assert several.default(workload) == Configuration({**kernel.default(workload), STREAM_PRIORITY: 0})
    assert several.fingerprint == kernel.fingerprint
    bare = kernel.default(workload)
    plans = [several.plan(workload, Configuration({**bare, STREAM_PRIORITY: level})) for level in range(3)]
    assert [one.stream_priority for one in plans] == [0, 1, 2]
    assert {one.stages for one in plans} == {kernel.plan(workload, bare).stages}


def test_a_kernel_without_a_default_begins_at_the_lowest_priority() -> None:
    """The first configuration of such a space is its default."""
    document = {
        "kernel": {"name": "k", "source": "k.cu"},
        "arguments": {"x": "inout float32[4]"},
        "tunables": {"B": [64, 32]},
        "launch": {"grid": 1, "block": "B"},
    }
    source = Source("k.cu", "__global__ void k(float* x) {}")
    kernel = with_places(kernel_of(document, {"k.cu": source}, label="k"), {STREAM_PRIORITY: range(2)})
    assert kernel.default(kernel.workload({})) == Configuration({"B": 64, STREAM_PRIORITY: 0})


def test_the_name_is_taken(catalog: Catalog) -> None:
    """A kernel with something of that name is refused, by file, key and option."""
    kernel = with_places(catalog.kernel("scan-lf"), {STREAM_PRIORITY: range(2)})
    with pytest.raises(KernelFileError, match=r"kernel\.toml: \[tunables\] stream_priority.*--stream-prior"):
        with_places(kernel, {STREAM_PRIORITY: range(2)})


@pytest.mark.parametrize(
    ("specs", "device", "words"),
    [
        ((SPEC,), "sim:k40c", "scan-lf:N=4 is alone"),
        ((SPEC, "fft:N=4"), "sim:k40c", "simulated devices know no priorities"),
    ],
)
def test_where_priorities_mean_nothing_they_are_refused(
    specs: Sequence[str], device: str, words: str
) -> None:
    """A workload alone and a modelled GPU: the message names the option, and the exit code is 2."""
    result = tuner("run", *specs, "--device", device, "--stream-priorities", "2")
    assert result.exit_code == 2
    assert f"--stream-priorities 2: {words}" in result.stderr


def test_a_recording_has_what_was_recorded(catalog: Catalog) -> None:
    """Priorities are no choice where nothing runs."""
    specs = ("scan-lf:N=256",)
    with open_setup("replay:h200", SearchRequest(workloads=specs, objective="time")) as setup:
        pairs, _ = resolve(catalog, specs, setup.device)
        with pytest.raises(InputError, match="replay:h200 has what was recorded"):
            searched_places(SearchRequest(stream_priorities=2), [*pairs, *pairs], setup.device)


def test_a_kernel_has_no_tunable_of_that_name() -> None:
    """Its values would be other code, and answers are checked once for all priorities."""
    document = {
        "kernel": {"name": "k", "source": "k.cu"},
        "arguments": {"x": "inout float32[4]"},
        "tunables": {STREAM_PRIORITY: [0, 1]},
        "launch": {"grid": 1, "block": 32},
    }
    source = Source("k.cu", "__global__ void k(float* x) {}")
    with pytest.raises(KernelFileError, match=r"k: \[tunables\] stream_priority: is the name of"):
        kernel_of(document, {"k.cu": source}, label="k")


# --- on the device -------------------------------------------------------------------------------


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> tuple[FakeCupy, CudaDevice]:
    return fake_device(monkeypatch)


def _two(*priorities: int) -> list[Plan]:
    plans = [plan("scan"), plan("slow", kernel="other")]
    return [replace(one, stream_priority=level) for one, level in zip(plans, priorities, strict=True)]


def _streams_of(cp: FakeCupy, entry: str) -> set[int]:
    return {stream.priority for stream in cp.kernels[entry].streams}


def test_streams_have_the_priorities_of_their_workloads(fake: tuple[FakeCupy, CudaDevice]) -> None:
    """CUDA counts downwards: the most urgent stream has the lowest number; the times stay those measured."""
    cp, device = fake
    record = device.run(_two(2, 0), 0.1)
    assert [one.status for one in record.results] == [Status.OK, Status.OK]
    assert record.makespan_s == pytest.approx(3e-3)
    assert -2 in _streams_of(cp, "scan")
    assert -2 not in _streams_of(cp, "slow")


def test_another_priority_is_another_round(fake: tuple[FakeCupy, CudaDevice]) -> None:
    """Graphs hold the priorities they were captured with: others are captured anew, the same ones kept."""
    cp, device = fake
    device.run(_two(1, 0), 0.1)
    captured = len(cp.graphs)
    device.run(_two(1, 0), 0.1)
    assert len(cp.graphs) == captured
    device.run(_two(0, 1), 0.1)
    assert len(cp.graphs) > captured
    assert _streams_of(cp, "slow") >= {0, -1}


def test_streams_without_graphs_keep_their_priorities(fake: tuple[FakeCupy, CudaDevice]) -> None:
    """Where nothing can be captured, launches go into the same streams one by one."""
    cp, device = fake
    cp.capture_works = False
    record = device.run(_two(0, 3), 0.1)
    assert record.results[0].status is Status.OK
    assert _streams_of(cp, "slow") == {-3}


# --- what is bound to configurations -------------------------------------------------------------


class _CountingDevice:
    def __init__(self) -> None:
        self.checked: list[Plan] = []

    def check(self, plan: Plan, seed: int) -> Check:
        del seed
        self.checked.append(plan)
        return Check(Status.OK)


def test_an_answer_is_checked_once_at_whatever_priority(catalog: Catalog) -> None:
    """A priority changes no answer."""
    kernel, workload = (
        with_places(catalog.kernel("scan-lf"), {STREAM_PRIORITY: range(2)}),
        catalog.workload(SPEC),
    )
    bare = without_place(kernel.default(workload))
    plans = [kernel.plan(workload, Configuration({**bare, STREAM_PRIORITY: level})) for level in (0, 1)]
    device: Any = _CountingDevice()
    checks = AnswerChecks(device, 0)
    checks.make(checks.missing(plans[:1]))
    assert checks.missing(plans) == []
    assert [one.status for one in checks.of(plans)] == [Status.OK, Status.OK]
    assert len(device.checked) == 1


def test_stored_answers_with_priorities_are_served(catalog: Catalog) -> None:
    """The kernel file, which knows no priorities, judges the rest; wrong values stay refused."""
    kernel, workload = catalog.kernel("scan-lf"), catalog.workload(SPEC)
    values = {**kernel.default(workload), STREAM_PRIORITY: 1}
    assert allowed(kernel, workload, values) == Configuration(values)
    assert allowed(kernel, workload, {**values, "P": 3}) is None


# --- a run ---------------------------------------------------------------------------------------


class _Unmodelled:
    """A simulated device that says it is none."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self.identity = replace(device.identity, modelled=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)


class _Urgent(_Contending):
    """The second workload ends late beside the other unless its stream is the more urgent one."""

    def measure(self, trial: Any, plans: Sequence[Plan], target: Any = None) -> Any:
        measured = super().measure(trial, plans, target)
        levels = [one.get(STREAM_PRIORITY, 0) for one in trial.configurations]
        late = len(levels) > 1 and levels[1] <= levels[0]
        assert measured.makespan_s is not None
        return replace(measured, makespan_s=measured.makespan_s * (1.5 if late else 1.0))

    def measure_otherwise(self, trial: Any, plans: Sequence[Plan]) -> Any:
        return self.measure(trial, plans)


def _tuned(
    request: SearchRequest,
    store: Store,
    *,
    resume: bool = False,
    measured: Callable[[TrialEvent], None] = lambda _: None,
) -> Any:
    with open_setup("sim:k40c", request) as setup:
        own = replace(setup, measurer=_Urgent(0.2, 256), device=_Unmodelled(setup.device))
        return tune(own, request, Catalog.load(), store, CallbackListener(measured), resume=resume)


def test_a_run_finds_priorities_and_holds_them_against_solo_bests(store: Store, catalog: Catalog) -> None:
    """Solo bests are tried at all priorities; the run is exported with its priorities.

    By the formula workloads take 1.02 ms alone, and 1.8 times as long at equal priorities. Priorities save a
    third, and other configurations make 1.12 ms of 1.2 × 1.02.
    """
    request = replace(TWO, policy="bayesian", budget=150, solo_bests=100, stream_priorities=2)
    outcome = _tuned(request, store)
    document = outcome.document
    levels = [one[STREAM_PRIORITY] for one in document["best"]["configurations"].values()]
    assert levels == [0, 1]
    together = document["solo_bests"]["configurations"].values()
    assert [one[STREAM_PRIORITY] for one in together] == [0, 1]
    assert document["against_solo_bests"]["slowdown"] == pytest.approx(1.12 / 1.224 - 1, abs=1e-3)
    priorities = document["solo_best_priorities"]
    assert priorities["tried"] == 4
    assert [one[STREAM_PRIORITY] for one in priorities["equal"]["configurations"].values()] == [0, 0]
    parts = priorities["against_equal"]
    changes = {name: parts[name]["slowdown"] for name in ("priorities", "configurations", "both")}
    expected = {"priorities": -1 / 3, "configurations": 1.12 / 1.224 - 1, "both": 1.12 / 1.836 - 1}
    assert changes == pytest.approx(expected, abs=1e-3)
    assert document["settings"]["stream_priorities"] == 2
    alone = [run for run in store.history() if len(run.conditions["workloads"]) == 1]
    assert len(alone) == 2
    assert all("stream_priorities" not in run.conditions["settings"] for run in alone)
    space = stored_space(store, catalog, document["run"]).space
    assert {one[STREAM_PRIORITY] for trial in space.trials for one in trial.configurations} == {0, 1}
    lines = [" ".join(line.split()) for line in comparisons(document, 400)]
    rows = [line for line in lines if line.startswith("solo bests together")]
    assert [row.split(" -")[0] for row in rows] == [
        "solo bests together, best priorities",
        "solo bests together, equal priorities",
    ]
    assert any("priorities alone change time by -33.3" in line for line in lines)
    assert any("4 combinations of priorities" in line for line in detail_lines(document))
    page = run_page(document, datetime(2026, 1, 1, tzinfo=timezone.utc))
    assert "solo bests together, best priorities" in page
    document["solo_bests"] = priorities["equal"]
    lines = comparisons(document, 400)
    assert any("best at equal priorities, of 4 combinations" in line for line in lines)
    assert not any("priorities alone" in line for line in lines)


def test_a_resumed_run_goes_on_behind_the_priorities_it_has_tried(store: Store) -> None:
    """What a killed run has measured of the solo bests is not measured or screened again."""

    def interrupt(event: TrialEvent) -> None:
        if event.number == 5 and not event.confirming:
            raise RunInterrupted

    _tuned(replace(TWO, budget=2, solo_bests=100), store)
    request = replace(TWO, budget=12, stream_priorities=4)
    cut = _tuned(request, store, measured=interrupt)
    priorities = cut.document["solo_best_priorities"]
    assert (cut.status, priorities["tried"], priorities["against_equal"]) == (RunStatus.INTERRUPTED, 4, None)
    whole = _tuned(request, store, resume=True)
    assert whole.resumed == 5
    assert whole.document["solo_best_priorities"]["tried"] == 6
    assert [trial for trial, _ in whole.trials[:5]] == [trial for trial, _ in cut.trials]


def test_what_may_be_no_answer_is_still_a_rival() -> None:
    """Of solo bests that are all too slow or cost the same the fastest is the rival."""
    measurer = _Urgent(0.0, 256)
    trials = [Trial((Configuration({"B": level}),)) for level in range(3)]
    known = {trial: measurer.measured([1.0], 3.0 - index) for index, trial in enumerate(trials)}
    solo = SoloBests(trials[0], placed=tuple(trials[1:]))
    assert solo.rival(known, Objective("time", limit_s=0.5)) == trials[2]
    assert solo.rival({trials[1]: known[trials[1]]}, Objective("time")) == trials[1]
    assert solo.rival({}, Objective("time")) is SoloBests().rival(known, Objective("time")) is None


@pytest.mark.parametrize(
    ("levels", "budget", "tried", "told"),
    [
        (2, 40, 4, None),
        (6, 80, 36, None),
        (6, 20, 10, "9 of 35 combinations"),
        (2, 4, 2, "1 of 3 combinations"),
        (2, 3, None, "0 of 3 combinations"),
    ],
)
def test_many_priorities_are_screened(
    store: Store, levels: int, budget: int, tried: int | None, told: str | None
) -> None:
    """Solo bests at other priorities take at most half of a budget, the fastest by single rounds."""
    _tuned(replace(TWO, budget=2, solo_bests=100), store)
    document = _tuned(replace(TWO, budget=budget, stream_priorities=levels), store).document
    priorities = document["solo_best_priorities"]
    assert (priorities and priorities["tried"]) == tried
    notices = [notice for notice in document["notices"] if "of the solo bests beside equal" in notice]
    assert [told in notice for notice in notices] == ([] if told is None else [True])
    if priorities:
        assert document["solo_bests"]["time_s"] < priorities["equal"]["time_s"]


@given(counts=st.lists(st.integers(0, 6), min_size=2, max_size=7), seed=st.integers(0, 9))
def test_all_priorities_are_tried_or_drawn(counts: list[int], seed: int) -> None:
    """Each combination comes once, the equal one apart; of many 1,024 at most are drawn, of every level."""
    names = ({STREAM_PRIORITY: range(count)} if count else {} for count in counts)
    spaces: Any = [SimpleNamespace(space=SimpleNamespace(tunables=one)) for one in names]
    plain = (
        with_place(Configuration({"B": 1}), {STREAM_PRIORITY: 0}) if count else Configuration({"B": 1})
        for count in counts
    )
    trial = Trial(tuple(plain))
    others = list(at_places(trial, spaces, seed))
    size = math.prod(max(1, count) for count in counts)
    assert trial not in others
    assert len(set(others)) == len(others) <= 1024
    assert len(others) == size - 1 or size > 1024
    assert all(at_equal_places(one) in (one, trial) for one in others)
    for place, count in enumerate(counts):
        seen = {one.configurations[place].get(STREAM_PRIORITY) for one in (trial, *others)}
        assert seen == (set(range(count)) if count else {None})
