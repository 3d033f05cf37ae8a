"""What a worker of a pool holds, in this process: one setup, of one run at a time."""

from collections.abc import Iterator

import pytest

from tuner.errors import PoolError
from tuner.pool.worker_setup import SetupOrder, call_setup, close_setup, describe_setup, stop_setup
from tuner.search.request import Request

FIRST, SECOND = (
    SetupOrder(name, Request(objective="time"), "sim:jetson-tx1") for name in ("first", "second")
)


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """This process is no worker afterwards."""
    yield
    close_setup()


def test_worker_measures_for_one_run_at_a_time() -> None:
    """A worker that another living run has is refused; that of a run that has died is taken over."""
    describe_setup(FIRST, ())
    with pytest.raises(PoolError, match="another run"):
        describe_setup(SECOND, ("first", "second"))
    assert describe_setup(SECOND, ("second",)).value.identity.spec == "sim:jetson-tx1"
    with pytest.raises(PoolError, match="another run"):
        call_setup(FIRST, "device", "now_s")


def test_setup_that_was_given_back_is_opened_again() -> None:
    """A call opens the setup anew, where it was closed; its virtual clock goes on."""
    before = call_setup(FIRST, "device", "sleep", 5.0)
    stop_setup("second")  # of another run: nothing happens
    assert call_setup(FIRST, "device", "now_s").setup == before.setup
    stop_setup("first")
    after = call_setup(FIRST, "device", "now_s")
    assert after.setup == before.setup + 1
    assert after.value >= before.totals.now_s >= 5.0
