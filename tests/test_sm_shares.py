"""Shares of the multiprocessors of workloads that run together: how they are laid, streams, refusals."""

import ctypes
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_cuda import LIMITS, fake_device, plan
from fake_cupy import FakeCupy
from hypothesis import given
from hypothesis import strategies as st
from tuning_runs import CallbackListener

from tuner.database.runs import Store
from tuner.devices.cuda.device import CudaDevice
from tuner.devices.cuda.driver import DriverCallError, DriverCalls
from tuner.devices.cuda.lanes import SmShares
from tuner.devices.gpu_models import gpu_model
from tuner.devices.simulated.time_model import RoundModel, describe, finish_times, on_multiprocessors
from tuner.kernel_files.catalog import Catalog
from tuner.measurement.measurer import AnswerChecks
from tuner.model.errors import InputError
from tuner.model.plan import SM_SHARE, Plan, Resources
from tuner.model.trial import FlagKind, Status
from tuner.report.answer import comparisons
from tuner.search.plan import searched_places
from tuner.search.replaying import stored_space
from tuner.search.request import SearchRequest
from tuner.search.setup import open_setup
from tuner.search.tuning import tune
from tuner.space.occupancy import shared_out, sm_unit


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


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> tuple[FakeCupy, CudaDevice]:
    return fake_device(monkeypatch)


def _two(*shares: int, priority: int = 0) -> list[Plan]:
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
    record = device.run(_two(32, 0, priority=1), 0.1)
    assert [one.status for one in record.results] == [Status.OK, Status.OK]
    assert record.makespan_s == pytest.approx(3e-3)
    assert (FlagKind.NO_GRAPH in {flag.kind for flag in record.flags}) is not captured
    assert (_used(cp, "scan"), _used(cp, "slow")) == ({32}, {100})
    assert {stream.priority for stream in cp.library.green_streams.values()} == {-1}


def test_a_share_of_all_is_none(fake: tuple[FakeCupy, CudaDevice]) -> None:
    """The stream of such a workload is an ordinary one, and so is that of a lone workload with a share."""
    cp, device = fake
    device.run(_two(32, 132), 0.1)
    assert _used(cp, "slow") == {None}
    device.run(_two(32, 0)[:1], 0.1)
    assert None in _used(cp, "scan")


def test_contexts_are_freed(fake: tuple[FakeCupy, CudaDevice]) -> None:
    """Another split is other contexts; many are not kept, and none is when the device is closed."""
    cp, device = fake
    most = 0
    for first in range(8, 128, 8):
        for second in range(8, 128, 24):
            assert device.run(_two(first, second), 0.0).results[0].status is Status.OK
            most = max(most, len(cp.library.green))
    assert 40 < most < 60
    device.run(_two(8, 0), 0.1)
    device.close()
    assert cp.library.green == cp.library.green_streams == {}


@pytest.mark.parametrize(("entry", "cooperative", "blocks"), [("scan", False, 64 * 8), ("nap", True, None)])
def test_grids_that_stay_are_cut_to_the_share(
    fake: tuple[FakeCupy, CudaDevice], entry: str, cooperative: bool, blocks: int | None
) -> None:
    """A resident grid has the blocks that the share holds; a cooperative one that is larger is refused."""
    cp, device = fake
    first, second = _two(64, 0)
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
    plain = _two(64, 0)[0]
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
    record = device.run(_two(32, 0), 0.1)
    assert [one.status for one in record.results] == [Status.LAUNCH_ERROR] * 2
    assert words in record.results[0].detail
    assert device.run(_two(0, 0), 0.1).results[0].status is Status.OK


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
