"""From the words of `tuner run` to a plan: what is refused, and what an answer is bound to."""

from dataclasses import replace

import pytest
from fake_setup import FakeClocks
from modelled import device

from tuner.kernel_files.catalog import Catalog
from tuner.measurement.measurer import TrialMeasurer
from tuner.model.errors import ClockError, InputError
from tuner.model.run_document import RunConditions
from tuner.search.plan import SearchPlan, choose_run_clocks, plan_search, resolve
from tuner.search.request import SearchRequest
from tuner.search.setup import MeasurementSetup


def test_defaults_are_right() -> None:
    """A request of nothing is one that can be run."""
    SearchRequest().check()


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (SearchRequest(objective="speed"), "--objective: unknown objective 'speed'"),
        (SearchRequest(policy="lucky"), "--policy: unknown policy 'lucky'; choose from exhaustive"),
        (SearchRequest(clocks="full"), "--clocks: 'full' is not a choice of clocks"),
        (SearchRequest(objective="time", max_slowdown=0.1), "--max-slowdown: limits a search for energy"),
        (
            SearchRequest(objective="time", runs_per_day=1e308),
            "--runs-per-day: 1e.308: write a number above 0",
        ),
        (
            SearchRequest(objective="time", runs_per_day=1e-200, pay_back_days=1e-200),
            "the product is too small",
        ),
    ],
)
def test_wrong_words_are_refused_before_a_device_is_opened(request_: SearchRequest, says: str) -> None:
    """What is wrong everywhere needs no device to be found out."""
    with pytest.raises(InputError, match=says):
        request_.check()


def test_workloads_keep_their_order() -> None:
    """Workloads come back as they were named, with batches that fit the device and no notice."""
    pairs, notices = resolve(Catalog.load(), ("fft:N=128", "scan-lf:N=64,batch=100"), device("k40c"))

    assert [str(workload) for _, workload in pairs] == ["fft:N=128", "scan-lf:N=64"]
    assert [kernel.name for kernel, _ in pairs] == ["fft", "scan-lf"]
    assert pairs[1][1].batch == 100
    assert notices == []


def test_same_workload_twice_is_refused() -> None:
    """A co-run holds a workload once, whatever its batch."""
    with pytest.raises(InputError, match="scan-lf:N=64: named more than once"):
        resolve(Catalog.load(), ("scan-lf:N=64", "scan-lf:N=64,batch=8"), device("k40c"))


def test_same_kernel_at_two_sizes_is_two_workloads() -> None:
    """Two sizes of one kernel run together."""
    pairs, _ = resolve(Catalog.load(), ("scan-lf:N=64", "scan-lf:N=128"), device("k40c"))

    assert len(pairs) == 2


def test_clocks_as_found_need_no_control() -> None:
    """--clocks off asks nothing of the device."""
    assert choose_run_clocks(SearchRequest(clocks="off"), None) == ()


def test_clocks_come_highest_first() -> None:
    """The descent starts at the highest clock, so that is the order."""
    assert choose_run_clocks(SearchRequest(clocks="all"), FakeClocks()) == (875, 810, 745, 666)
    assert choose_run_clocks(SearchRequest(clocks="666,875"), FakeClocks()) == (875, 666)


@pytest.mark.parametrize(("reason", "says"), [("no permission", "no permission"), ("", "cannot be set here")])
def test_clocks_without_control_say_why(reason: str, says: str) -> None:
    """Where no clock can be set the reason and the way out are in the message."""
    with pytest.raises(ClockError, match=rf"--clocks all: .*{says}.*use --clocks off"):
        choose_run_clocks(SearchRequest(clocks="all"), None, reason)


def test_clockless_gpu_is_refused() -> None:
    """A control that offers no clocks is as good as none."""
    clocks = FakeClocks()
    clocks.supported_mhz = lambda: ()  # type: ignore[method-assign]
    with pytest.raises(ClockError, match="offers no clocks"):
        choose_run_clocks(SearchRequest(clocks="all"), clocks)


def planned(request: SearchRequest) -> SearchPlan:
    """The plan of a request on a K40c whose clocks can be set, for one workload unless it names others."""
    gpu = device("k40c")
    measurer = TrialMeasurer(gpu, None, None, None, seed=0, needs_energy=False)
    setup = MeasurementSetup(gpu, measurer, FakeClocks(), "", None, request.window_s or 0.5, ())
    request = replace(request, workloads=request.workloads or ("scan-lf:N=64",))
    return plan_search(request, Catalog.load(), setup)


def fingerprint(request: SearchRequest) -> RunConditions:
    return planned(request).conditions.record()


@pytest.mark.parametrize(
    "other",
    [
        SearchRequest(workloads=("scan-lf:N=128",)),
        SearchRequest(workloads=("scan-lf:N=64,batch=7",)),
        SearchRequest(objective="energy"),
        SearchRequest(max_slowdown=0.05),
        SearchRequest(policy="random"),
        SearchRequest(seed=1),
        SearchRequest(min_occupancy=0.25),
        SearchRequest(window_s=1.0),
        SearchRequest(energy_precision=0.02),
    ],
)
def test_another_question_is_another_run(other: SearchRequest) -> None:
    """What decides which trials are made, or how, is part of what --resume must find again."""
    assert fingerprint(other) != fingerprint(SearchRequest())


@pytest.mark.parametrize("other", [SearchRequest(budget=3), SearchRequest(time_limit_s=1.0)])
def test_limits_may_change_when_a_run_is_resumed(other: SearchRequest) -> None:
    """A larger budget continues the same run."""
    assert fingerprint(other) == fingerprint(SearchRequest())


def test_clocks_are_part_of_the_conditions() -> None:
    """A search over clocks is another one than a search without."""
    assert fingerprint(SearchRequest(clocks="875,810"))["clocks"] == "875,810"
    assert fingerprint(SearchRequest())["clocks"] == "off"


def test_plan_takes_over_every_choice() -> None:
    """Objective, policy, seed, clocks and limits of the request are those of the plan."""
    request = SearchRequest(
        workloads=("scan-lf:N=64",),
        objective="edp",
        policy="random",
        seed=5,
        budget=9,
        time_limit_s=3.0,
        clocks="875",
    )
    plan = planned(request)

    conditions = plan.conditions
    assert (conditions.objective, conditions.policy, conditions.seed) == ("edp", "random", 5)
    assert (plan.clocks_mhz, plan.request) == ((875,), request)
    assert [str(item.workload) for item in plan.spaces(device("k40c"))] == ["scan-lf:N=64"]
