import itertools

from hypothesis import given
from hypothesis import strategies as st
from pairwise import pairs_of, pairwise

Rows = list[dict[str, int]]

FULL: Rows = [dict(zip("abcdef", values, strict=True)) for values in itertools.product(range(4), repeat=6)]


@st.composite
def spaces(draw: st.DrawFn) -> Rows:
    factors = draw(st.integers(1, 5))
    values = st.tuples(*[st.integers(0, 3)] * factors)
    return [dict(zip("abcde", row, strict=False)) for row in draw(st.lists(values, max_size=60))]


@given(spaces(), st.integers(0, 3))
def test_every_pair_that_occurs_is_in_the_sample(rows: Rows, seed: int) -> None:
    """Whatever the rules of a space leave, each two values that go together are tried together."""
    sample = pairwise(rows, seed=seed)
    assert {p for row in sample for p in pairs_of(row)} == {p for row in rows for p in pairs_of(row)}
    assert all(row in rows for row in sample)


@given(spaces(), st.integers(0, 3))
def test_every_row_of_the_sample_adds_a_pair(rows: Rows, seed: int) -> None:
    """No row is there for nothing, so that samples stay small."""
    seen: set[object] = set()
    for row in pairwise(rows, seed=seed):
        assert not set(pairs_of(row)) <= seen
        seen |= set(pairs_of(row))


def test_samples_are_small() -> None:
    """Six factors of four values, 4096 rows, need 16 rows at least and get fewer than twice as many."""
    assert 16 <= len(pairwise(FULL)) < 32


def test_a_seed_makes_the_sample() -> None:
    """The same seed gives the same sample, another seed another one."""
    assert pairwise(FULL, seed=1) == pairwise(FULL, seed=1) != pairwise(FULL, seed=2)


def test_rows_that_must_be_in_it_come_first() -> None:
    """What is wanted in any case is there, and spares others."""
    wanted = [{"a": 1, "b": 2}]
    assert pairwise([{"a": 0, "b": 0}, {"a": 1, "b": 2}], first=wanted) == [*wanted, {"a": 0, "b": 0}]
