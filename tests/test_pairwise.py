import itertools

from hypothesis import given
from hypothesis import strategies as st
from pairwise import pairwise

Rows = list[dict[str, int]]

FULL: Rows = [dict(zip("abcdef", values, strict=True)) for values in itertools.product(range(4), repeat=6)]


def pairs_of(row: dict[str, int]) -> set[object]:
    return {*row.items(), *itertools.combinations(row.items(), 2)}


@st.composite
def spaces(draw: st.DrawFn) -> Rows:
    factors = draw(st.integers(1, 5))
    values = st.tuples(*[st.integers(0, 3)] * factors)
    return [dict(zip("abcde", row, strict=False)) for row in draw(st.lists(values, max_size=60))]


@given(spaces(), st.integers(0, 3))
def test_every_pair_that_occurs_is_in_the_sample(rows: Rows, seed: int) -> None:
    """Whatever the rules of a space leave, each two values that go together are tried together."""
    sample = pairwise(rows, seed=seed)
    assert set().union(*map(pairs_of, sample)) == set().union(*map(pairs_of, rows))
    assert all(row in rows for row in sample)


@given(spaces(), st.integers(0, 3))
def test_every_row_of_the_sample_adds_a_pair(rows: Rows, seed: int) -> None:
    """No row is there for nothing, so that samples stay small."""
    seen: set[object] = set()
    for row in pairwise(rows, seed=seed):
        assert not pairs_of(row) <= seen
        seen |= pairs_of(row)


def test_single_values_need_fewer_rows() -> None:
    """Four values of each factor are all in four rows."""
    sample = pairwise(FULL, together=1)
    assert len(sample) <= 6
    assert {item for row in sample for item in row.items()} == {item for row in FULL for item in row.items()}


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
