"""The forms of ``--clocks``."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.model.errors import ClockError, InputError
from tuner.search.option_checks import choose_clocks

K40C = (875, 810, 745, 666)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("off", ()),
        ("all", K40C),
        ("745,875", (875, 745)),
        ("700:820", (810, 745)),
        ("600:900:100", (875, 745)),
    ],
)
def test_forms(text: str, expected: tuple[int, ...]) -> None:
    """Each form of the option gives supported clocks, highest first."""
    assert choose_clocks(text, K40C) == expected


@pytest.mark.parametrize("text", ["fast", "", "1:2:3:4", "900:600", "-5", "600:900:0", "8e2", "875,"])
def test_other_texts_are_refused_with_the_forms(text: str) -> None:
    """What is not a choice of clocks is answered with the forms that are."""
    with pytest.raises(InputError, match="off, auto, all, a list"):
        choose_clocks(text, K40C)


def test_unsupported_clock_names_the_nearest() -> None:
    """A clock the GPU lacks is answered with what it has."""
    with pytest.raises(InputError, match=r"does not have 800 MHz; it has 4 from 666 to 875 MHz.*810"):
        choose_clocks("800", K40C)


def test_empty_range_says_what_there_is() -> None:
    """A range between two clocks is an error, not an empty search."""
    with pytest.raises(InputError, match="no clock in that range"):
        choose_clocks("820:870", K40C)


def test_gpu_without_clocks() -> None:
    """Asking for clocks where none can be set says how to go on."""
    with pytest.raises(ClockError, match="--clocks off"):
        choose_clocks("all", ())


@given(st.sets(st.integers(100, 2000), min_size=1), st.integers(1, 300))
def test_range_keeps_the_step(supported: set[int], step: int) -> None:
    """Clocks of a range are supported, falling, at least a step apart, and include the highest."""
    chosen = choose_clocks(f"100:2000:{step}", tuple(supported))

    assert set(chosen) <= supported
    assert chosen[0] == max(supported)
    assert all(a - b >= step for a, b in itertools.pairwise(chosen))
