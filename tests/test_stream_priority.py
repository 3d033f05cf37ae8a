"""Stream priorities and shares of the multiprocessors of workloads that run together."""

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_process import tuner
from fake_cuda import LIMITS, fake_device, plan
from fake_cupy import FakeCupy
from hypothesis import given
from hypothesis import strategies as st
from test_solo_bests import TWO, _Contending
from tuning_runs import CallbackListener

from tuner.database.ranking import allowed
from tuner.database.runs import Store
from tuner.devices.base import Check
from tuner.devices.cuda.device import CudaDevice
from tuner.devices.cuda.driver import DriverCallError, DriverCalls
from tuner.devices.cuda.lanes import SmShares
from tuner.devices.gpu_models import gpu_model
from tuner.devices.simulated.time_model import RoundModel, describe, finish_times, on_multiprocessors
from tuner.kernel_files.catalog import Catalog, kernel_of
from tuner.kernel_files.kernel_file import with_places
from tuner.measurement.measurer import AnswerChecks
from tuner.model.errors import InputError, KernelFileError, RunInterrupted
from tuner.model.objective import Objective
from tuner.model.plan import (
    SM_SHARE,
    STREAM_PRIORITY,
    Configuration,
    Plan,
    Resources,
    Source,
    with_place,
    without_place,
)
from tuner.model.records import RunStatus
from tuner.model.trial import FlagKind, Status, Trial
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
from tuner.space.occupancy import shared_out, sm_unit

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


# --- Shares of the multiprocessors of workloads that run together: how they are laid, streams, refusals.


@given(
    shares=st.lists(st.integers(0, 40), min_size=2, max_size=5),
    unit=st.sampled_from([1, 2, 4, 8]),
    units=st.integers(1, 16),
)
def test_shares_are_laid_round_the_gpu(shares: list[int], unit: int, units: int) -> None:
    """Each has as many units as it asks for; none is in two before all are in one; others have the rest."""
    laid = shared_out([share * unit for share in shares], unit, units)
    own = [set(one) for share, one in zip(shares, laid, strict=True) if share and one]
    assert all(len(one) == share for share, one in zip(shares, laid, strict=True) if 0 < share < units)
    assert not any(one for share, one in zip(shares, laid, strict=True) if share >= units)
    taken = sum(shares)
    if taken <= units:
        assert sum(map(len, own)) == len(set().union(*own))
    rest = set(range(taken, units + 1)) if 0 < taken < units else set()
    assert all(set(one) == rest for share, one in zip(shares, laid, strict=True) if not share)
    assert not any(one & rest for one in own)


@pytest.mark.parametrize(("capability", "unit"), [((6, 1), 1), ((7, 5), 2), ((8, 9), 4), ((12, 0), 8)])
def test_units(capability: tuple[int, int], unit: int) -> None:
    """They are those of CUDA's documentation; the driver is held against them when it splits."""
    assert sm_unit(replace(LIMITS, compute_capability=capability)) == unit


# --- on the device, over a fake driver ------------------------------------------------------------


def _two_kernels(*shares: int, priority: int = 0) -> list[Plan]:
    plans = [plan("scan"), plan("slow", kernel="other")]
    return [
        replace(one, sm_share=share, stream_priority=priority)
        for one, share in zip(plans, shares, strict=True)
    ]


def _used(cp: FakeCupy, entry: str) -> set[int | None]:
    return {stream.multiprocessors for stream in cp.kernels[entry].streams}


@pytest.mark.parametrize("captured", [True, False])
def test_streams_run_on_their_shares(fake: tuple[FakeCupy, CudaDevice], captured: bool) -> None:
    """The rest of 132 multiprocessors is 100, what is left over by the split included; priorities stay."""
    cp, device = fake
    cp.capture_works = captured
    record = device.run(_two_kernels(32, 0, priority=1), 0.1)
    assert [one.status for one in record.results] == [Status.OK, Status.OK]
    assert record.makespan_s == pytest.approx(3e-3)
    assert (FlagKind.NO_GRAPH in {flag.kind for flag in record.flags}) is not captured
    assert (_used(cp, "scan"), _used(cp, "slow")) == ({32}, {100})
    assert {stream.priority for stream in cp.library.green_streams.values()} == {-1}


def test_a_share_of_all_is_none(fake: tuple[FakeCupy, CudaDevice]) -> None:
    """The stream of such a workload is an ordinary one, and so is that of a lone workload with a share."""
    cp, device = fake
    device.run(_two_kernels(32, 132), 0.1)
    assert _used(cp, "slow") == {None}
    device.run(_two_kernels(32, 0)[:1], 0.1)
    assert None in _used(cp, "scan")


def test_contexts_are_freed(fake: tuple[FakeCupy, CudaDevice]) -> None:
    """Another split is other contexts; many are not kept, and none is when the device is closed."""
    cp, device = fake
    most = 0
    for first in range(8, 128, 8):
        for second in range(8, 128, 24):
            assert device.run(_two_kernels(first, second), 0.0).results[0].status is Status.OK
            most = max(most, len(cp.library.green))
    assert 40 < most < 60
    device.run(_two_kernels(8, 0), 0.1)
    device.close()
    assert cp.library.green == cp.library.green_streams == {}


@pytest.mark.parametrize(("entry", "cooperative", "blocks"), [("scan", False, 64 * 8), ("nap", True, None)])
def test_grids_that_stay_are_cut_to_the_share(
    fake: tuple[FakeCupy, CudaDevice], entry: str, cooperative: bool, blocks: int | None
) -> None:
    """A resident grid has the blocks that the share holds; a cooperative one that is larger is refused."""
    cp, device = fake
    first, second = _two_kernels(64, 0)
    stage = replace(
        plan(entry).stages[0], grid=(4096, 1, 1), resident=not cooperative, cooperative=cooperative
    )
    record = device.run([replace(first, stages=(stage,)), second], 0.0)
    if blocks is None:
        assert record.results[0].status is Status.LAUNCH_ERROR
        assert "more than the 512 that the device holds at a time (64 multiproc" in record.results[0].detail
    else:
        assert cp.kernels[entry].grids == {(blocks, 1, 1)}


def test_answers_are_checked_on_the_share_of_a_grid_that_stays(fake: tuple[FakeCupy, CudaDevice]) -> None:
    """Its blocks are those that the share holds; whatever else runs on a share is checked once."""
    cp, device = fake
    plain = _two_kernels(64, 0)[0]
    staying = replace(plain, stages=(replace(plain.stages[0], grid=(4096, 1, 1), resident=True),))
    assert device.check(staying, 1).status is Status.OK
    assert cp.kernels["scan"].grids == {(512, 1, 1)}
    checks = AnswerChecks(device, 0)  # type: ignore[arg-type]  # what a worker adds is not used
    checks.make([plain, staying])
    others = [replace(one, sm_share=share) for one in (plain, staying) for share in (0, 32)]
    assert checks.missing(others) == others[3:]


@pytest.mark.parametrize(
    ("multiprocessors", "unit", "words"),
    [
        (0, 8, "sm_share: cuDeviceGetDevResource: CUDA_ERROR_NOT_SUPPORTED"),
        (132, 16, "sm_share: the driver splits multiprocessors by 16, not by 8"),
        (4, 8, "sm_share: the driver splits multiprocessors by nothing, not by 8"),
    ],
)
def test_refusals(fake: tuple[FakeCupy, CudaDevice], multiprocessors: int, unit: int, words: str) -> None:
    """A driver that shares nothing out ends a trial in its words; the next one runs."""
    cp, device = fake
    cp.library.multiprocessors, cp.library.unit = multiprocessors, unit
    record = device.run(_two_kernels(32, 0), 0.1)
    assert [one.status for one in record.results] == [Status.LAUNCH_ERROR] * 2
    assert words in record.results[0].detail
    assert device.run(_two_kernels(0, 0), 0.1).results[0].status is Status.OK


def test_an_old_driver() -> None:
    """The words name the CUDA that is needed."""
    old = SmShares(FakeCupy({}), DriverCalls(lambda: ctypes.CDLL(None)), 8)
    with pytest.raises(DriverCallError, match=r"this driver has no .*: it is older than CUDA 12"):
        old.shared_out([8, 0])


# --- a search ------------------------------------------------------------------------------------


SEARCHED = SearchRequest(sm_shares=4)


def _places(device: CudaDevice, request: SearchRequest = SEARCHED) -> dict[str, tuple[int, ...]]:
    pairs: Any = [("kernel", plan("scan").workload)] * 2
    opened: Any = device
    return searched_places(request, pairs, opened)


@pytest.mark.parametrize(
    ("multiprocessors", "words"),
    [
        (0, "cuDeviceGetDevResource: CUDA_ERROR_NOT_SUPPORTED; leave"),
        (15, "are split by 8, which leaves a single"),
    ],
)
def test_a_driver_that_shares_nothing_out_is_asked_first(
    fake: tuple[FakeCupy, CudaDevice], multiprocessors: int, words: str
) -> None:
    """The option is refused in its words before anything is measured."""
    cp, device = fake
    cp.library.multiprocessors = multiprocessors
    with pytest.raises(InputError, match=f"--sm-shares 4: .*{words}"):
        _places(device)


def test_shares_are_parts_of_all_multiprocessors(fake: tuple[FakeCupy, CudaDevice]) -> None:
    """They are rounded to units; none and all are among them."""
    _, device = fake
    assert _places(device) == {SM_SHARE: (0, 32, 64, 96, 132)}
    eight = _places(device, replace(SEARCHED, sm_shares=8))
    assert eight == {SM_SHARE: (0, 16, 32, 48, 64, 80, 96, 112, 132)}
    for levels in range(2, 9):  # one part and all others lie apart
        shares = _places(device, replace(SEARCHED, sm_shares=levels))[SM_SHARE]
        assert max(shares[1] + shares[-2], levels * shares[1]) <= 132 - 132 % 8


def test_a_run_finds_shares(tmp_path: Path) -> None:
    """The answer has shares, solo bests are tried with all, and what it says of them is of shares."""
    request = SearchRequest(workloads=("scan-lf:N=256", "lud:N=256"), objective="time", budget=60)
    catalog = Catalog.load(())
    with Store(tmp_path / "tuner.db") as store, open_setup("sim:h200", request) as setup:
        searched = replace(request, solo_bests=10, sm_shares=2)
        document = tune(
            setup, searched, catalog, store, CallbackListener(lambda _: None), resume=False
        ).document
        space = stored_space(store, catalog, document["run"]).space
    assert document["settings"]["sm_shares"] == [0, 64, 132]
    priorities = document["solo_best_priorities"]
    assert priorities is not None
    assert priorities["tried"] == 9
    assert {one[SM_SHARE] for trial in space.trials for one in trial.configurations} == {0, 64, 132}
    lines = [" ".join(line.split()) for line in comparisons(document, 400)]
    assert any("solo bests together, best SM shares" in line for line in lines) or any(
        "best at equal SM shares, of 9 combinations" in line for line in lines
    )


# --- the model -----------------------------------------------------------------------------------


LAUNCH = describe(
    plan("scan", grid=(4096, 1, 1), block=(256, 1, 1)),
    0,
    Resources(32, architecture="sm_90"),
    gpu_model("h200"),
)


@given(shares=st.lists(st.integers(0, 17).map(lambda units: 8 * units), min_size=2, max_size=4))
def test_a_share_is_no_faster_than_all_of_the_gpu(shares: list[int]) -> None:
    """Modelled, a launch on a part takes as long as on all at least, and keeps no more of the GPU busy."""
    gpu = gpu_model("h200")
    for sms in RoundModel(gpu).multiprocessors([replace(plan("scan"), sm_share=share) for share in shares]):
        assert 4 <= sms <= 132
        whole, part = (on_multiprocessors(LAUNCH, gpu, 1980, count) for count in (132, sms))
        assert part.seconds >= whole.seconds * (1 - 1e-9)
        assert all(
            share <= sms / 132 + 1e-9 for place, share in enumerate(part.shares) if place not in (0, 3)
        )
    assert finish_times([[on_multiprocessors(LAUNCH, gpu, 1980, 64)]] * 2) == pytest.approx(
        [on_multiprocessors(LAUNCH, gpu, 1980, 64).seconds] * 2, rel=0.05
    )
