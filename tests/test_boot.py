"""Whether the machine was rebooted: what two records say."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.system.ownership import BootRecord, was_rebooted

THEN = BootRecord("one", on_host=True, since_boot_s=1000.0, at_s=1_700_000_000.0)
SECONDS = st.floats(0.0, 1e9)


def test_the_present_is_of_this_boot() -> None:
    """A record of now and another of now agree; time passes in both of its clocks."""
    first, second = BootRecord.present(), BootRecord.present()
    assert first.boot_id == second.boot_id != ""
    assert second.since_boot_s >= first.since_boot_s > 0.0
    assert was_rebooted(first) is False


@given(SECONDS, st.floats(-1e9, 1e9))
def test_the_same_boot_id_is_the_same_boot(later_s: float, jump_s: float) -> None:
    """Whatever the wall clock says."""
    now = replace(THEN, since_boot_s=THEN.since_boot_s + later_s, at_s=THEN.at_s + jump_s)
    assert was_rebooted(THEN, now) is False


@given(SECONDS, st.floats(-1e9, 1e9), st.booleans(), st.booleans())
def test_containers_tell_nothing(running_s: float, jump_s: float, then: bool, now: bool) -> None:
    """Where one of both was in a container, another boot id may be the container's."""
    before = replace(THEN, on_host=then)
    after = BootRecord("two", on_host=now and not then, since_boot_s=running_s, at_s=THEN.at_s + jump_s)
    assert was_rebooted(before, after) is None


@pytest.mark.parametrize(
    ("since_boot_s", "later_s", "rebooted"),
    [
        (20.0, 60.0, True),  # it runs for less than then
        (20.0, -3600.0, True),  # and the wall clock was set back
        (5000.0, 9000.0, True),  # it runs for longer, and started after the record
        (1060.0, 60.0, None),  # as long as the same kernel would: the boot id alone is different
    ],
)
def test_a_reboot_shows_in_a_clock(since_boot_s: float, later_s: float, rebooted: bool | None) -> None:
    """On the machine itself, another boot id and one of both clocks tell a reboot."""
    now = BootRecord("two", on_host=True, since_boot_s=since_boot_s, at_s=THEN.at_s + later_s)
    assert was_rebooted(THEN, now) is rebooted


def test_no_boot_id_is_no_boot() -> None:
    """Two kernels that tell none are not the same for that."""
    nameless = replace(THEN, boot_id="", on_host=False)
    assert was_rebooted(nameless, nameless) is None
