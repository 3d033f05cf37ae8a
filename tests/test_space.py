"""The space of configurations: what it holds, in which order, and how it fails."""

import itertools
import tracemalloc
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import EmptySpaceError, ExpressionError, InputError, UnknownNameError
from tuner.model import Configuration
from tuner.space import Space

TUNABLES: Mapping[str, tuple[int | bool | str, ...]] = {
    "P": (2, 4, 8),
    "L": (32, 64, 128),
    "shuffle": (True, False),
    "mode": ("fast", "slow"),
}
RULES = ("N <= P * L", "not shuffle or S <= 4", "mode == 'fast' or P > 2")


def space() -> Space:
    return Space.build(TUNABLES, RULES, {"N": 256}, {"S": "N // L"})


def by_hand() -> list[Configuration]:
    """The same space by a loop over the product."""
    return [
        Configuration(tuple(zip(TUNABLES, values, strict=True)))
        for values in itertools.product(*TUNABLES.values())
        if int(values[0]) * int(values[1]) >= 256
        and (not values[2] or 256 // int(values[1]) <= 4)
        and (values[3] == "fast" or int(values[0]) > 2)
    ]


def test_the_space_is_the_filtered_product_in_order() -> None:
    """Configurations are exactly those the rules allow, the first tunable moving slowest."""
    assert list(space()) == by_hand()
    assert len(space()) == len(by_hand())
    assert space().cartesian_size == 36


def test_items_indices_and_membership_agree() -> None:
    """space[i], iteration, index and ``in`` speak of the same configurations."""
    whole = space()
    assert [whole[i] for i in range(len(whole))] == list(whole)
    assert [whole.index(configuration) for configuration in whole] == list(range(len(whole)))
    assert whole[-1] == list(whole)[-1]
    assert whole[1:3] == list(whole)[1:3]
    assert all(configuration in whole for configuration in whole)
    with pytest.raises(IndexError):
        whole[len(whole)]


@pytest.mark.parametrize(
    "strange",
    [
        {"P": 2, "L": 32, "shuffle": False, "mode": "fast"},
        {"P": 3, "L": 128, "shuffle": False, "mode": "fast"},
        {"P": 8, "L": 128, "shuffle": False},
        {"P": 8, "L": 128, "shuffle": False, "mode": "fast", "x": 1},
        {"P": 8, "L": 128, "shuffle": False, "mood": "fast"},
    ],
    ids=["forbidden", "no such value", "too few", "too many", "other name"],
)
def test_what_is_not_in_the_space(strange: Mapping[str, int | bool | str]) -> None:
    """A configuration the rules forbid, or of other names or values, is not in the space."""
    assert strange not in space()
    with pytest.raises(UnknownNameError, match="is not in the space"):
        space().index(strange)


def test_values_keep_their_types() -> None:
    """Booleans, numbers and text come out as they went in."""
    assert {name: type(value) for name, value in space()[0].items()} == {
        "P": int,
        "L": int,
        "shuffle": bool,
        "mode": str,
    }
    mixed = Space.build({"x": [1, 0.5]}, ["x < 2"])
    assert [type(c["x"]) for c in mixed] == [int, float]


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.lists(st.sampled_from(["a0 < 3", "a0 + last != 3", "last % 2 == 0 or a0 > 1", "m > 1"]), max_size=3),
)
def test_neighbours_are_those_at_distance_one(lengths: list[int], rules: list[str]) -> None:
    """Hamming neighbours differ in one tunable; adjacent ones by one step of its list; order is kept."""
    tunables = {f"a{i}": tuple(range(1, length + 1)) for i, length in enumerate(lengths)}
    derived = {"last": f"a{len(lengths) - 1}", "m": "last * a0"}
    try:
        whole = Space.build(tunables, rules, derived=derived)
    except EmptySpaceError:
        return
    for configuration in itertools.islice(whole, 0, None, max(1, len(whole) // 4)):
        near = {other: [n for n in tunables if other[n] != configuration[n]] for other in whole}
        hamming = [other for other, changed in near.items() if len(changed) == 1]
        steps = [o for o in hamming if abs(int(o[near[o][0]]) - int(configuration[near[o][0]])) == 1]
        assert whole.neighbours(configuration) == hamming
        assert whole.neighbours(configuration, "adjacent") == steps


def test_neighbours_of_a_foreign_value() -> None:
    """Neighbours of a configuration with a value that no list has is an error."""
    with pytest.raises(UnknownNameError):
        space().neighbours({**space()[0], "P": 5})


def test_a_million_points_stay_small() -> None:
    """A product of 10^7 under rules is enumerated in chunks: memory follows what is left, not the product."""
    tunables = {f"a{i}": list(range(10)) for i in range(7)}
    rules = ["a0 == a1", "a2 <= a6 and a5 != 3", "a1 + a3 < 6", "(a4 + a6) % 5 == 0"]
    tracemalloc.start()
    try:
        whole = Space.build(tunables, rules)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    expected = sum(
        1
        for a0, a2, a3, a4, a5, a6 in itertools.product(range(10), repeat=6)
        if a2 <= a6 and a5 != 3 and a0 + a3 < 6 and (a4 + a6) % 5 == 0
    )
    assert whole.cartesian_size == 10**7
    assert len(whole) == expected
    assert peak < 60e6


def test_the_rule_that_emptied_the_space_is_named() -> None:
    """When nothing is left the error quotes the rule after which nothing was, and the constants."""
    with pytest.raises(EmptySpaceError, match=r"'P > L' removes the last configuration \(with N=64\)"):
        Space.build({"P": [1, 2], "L": [4]}, ["P > 1", "P > L", "P + L < 0"], {"N": 64})
    with pytest.raises(EmptySpaceError, match="'N > 64' allows no configuration"):
        Space.build({"P": [1, 2]}, ["N > 64"], {"N": 64})


@pytest.mark.parametrize(
    ("tunables", "trouble"),
    [
        ({"P": []}, "P: its value list is empty"),
        ({"P": [1, 2, 1]}, "P: value 1 stands twice"),
        ({"P": [1, 1.0]}, "stands twice"),
        ({"P": [1, "a"]}, "mix number and str"),
        ({"P": [1, True]}, "mix bool and number"),
        ({"P": [float("nan")]}, "not a finite number"),
        ({"min": [1]}, "'min' is not a name"),
        ({"a b": [1]}, "'a b' is not a name"),
        ({}, "at least one tunable"),
        ({f"a{i}": range(100) for i in range(10)}, "2\\*\\*62"),
        ({f"a{i}": range(100) for i in range(4)}, "more than 10,000,000"),
    ],
)
def test_value_lists_that_make_no_space(tunables: dict[str, list[int]], trouble: str) -> None:
    """Value lists that are empty, doubled, mixed, or too many are refused with the name of the tunable."""
    with pytest.raises(InputError, match=trouble):
        Space.build(tunables)


def test_rules_with_unknown_names() -> None:
    """A rule or derived value over unknown names is refused before anything is enumerated."""
    with pytest.raises(ExpressionError, match="unknown name 'Q'"):
        Space.build({"P": [1]}, ["Q > 1"])
    with pytest.raises(ExpressionError, match=r"unknown name 'shufle'.*did you mean 'shuffle'"):
        Space.build({"shuffle": [True]}, [], {}, {"D": "not shufle"})
    with pytest.raises(InputError, match="'P' is given twice"):
        Space.build({"P": [1]}, [], {}, {"P": "2"})
    with pytest.raises(ExpressionError, match="division by zero"):
        Space.build({"P": [1, 0]}, ["4 % P == 0"])
