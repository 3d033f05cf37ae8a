"""What a worker of a pool holds, in this process: one setup, of one run at a time."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tuner.kernel_files.package_build import PackageBuild, own_build
from tuner.model.errors import PoolError
from tuner.pool.worker import (
    SetupOrder,
    WorkOrder,
    ask_child,
    call_setup,
    dask_teardown,
    describe_setup,
    stop_setup,
)
from tuner.search.request import SearchRequest

FIRST, SECOND = (
    SetupOrder(name, SearchRequest(objective="time"), "sim:jetson-tx1") for name in ("first", "second")
)


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """This process is no worker afterwards."""
    yield
    dask_teardown(None)


def test_worker_measures_for_one_run_at_a_time() -> None:
    """A worker that another living run has is refused; that of a run that has died is taken over."""
    describe_setup(FIRST, ())
    with pytest.raises(PoolError, match="another run"):
        describe_setup(SECOND, ("first", "second"))
    assert describe_setup(SECOND, ("second",)).value.identity.spec == "sim:jetson-tx1"
    with pytest.raises(PoolError, match="another run"):
        call_setup(FIRST, "device", "now_s")


@pytest.mark.parametrize(
    "build", [PackageBuild("0.1.9", 3, ""), own_build()._replace(content="0" * 64), None]
)
def test_worker_refuses_a_driver_of_another_package(build: PackageBuild | None) -> None:
    """A driver of other content, or that tells none, has nothing measured; both builds are named."""
    order = replace(FIRST)
    vars(order).pop("build") if build is None else vars(order).update(build=build)
    order_of_sweep = WorkOrder("sweep")
    vars(order_of_sweep).update(build=build)
    for call in (
        lambda: describe_setup(order, ()),
        lambda: call_setup(order, "device", "now_s"),
        lambda: ask_child(order_of_sweep, (), ("pathlib:Path", "/"), "joinpath", "a"),
    ):
        with pytest.raises(PoolError, match=r"it has .*, and this is .*install the same package") as refused:
            call()
        assert str(build or "an older tuner") in str(refused.value)
        assert str(own_build()) in str(refused.value)


def test_setup_that_was_given_back_is_opened_again() -> None:
    """A call opens the setup anew, where it was closed; its virtual clock goes on."""
    before = call_setup(FIRST, "device", "sleep", 5.0)
    stop_setup("second")  # of another run: nothing happens
    assert call_setup(FIRST, "device", "now_s").setup == before.setup
    stop_setup("first")
    after = call_setup(FIRST, "device", "now_s")
    assert after.setup == before.setup + 1
    assert after.value >= before.totals.now_s >= 5.0
