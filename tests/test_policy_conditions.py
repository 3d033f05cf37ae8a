"""Policies over a space whose tunables have conditions: neighbours, lines and features."""

import numpy as np
from policy_driver import candidate
from small_spaces import forms, recorded_forms
from tuner.policies.descent import Order, Ranks
from tuner.policies.surrogate.features import encoding

from tuner.model.plan import Configuration
from tuner.recordings.files import document, space_of
from tuner.search.replaying import prepared

CANDIDATES = [candidate(1.0, int(values["L"]), 0, **values) for values in forms()]
CONFIGURATIONS = [one.configuration for one in CANDIDATES]


def found(text: str) -> int:
    """The place of the configuration that is shown so."""
    return [str(configuration) for configuration in CONFIGURATIONS].index(text)


def near(text: str) -> list[str]:
    """The neighbours of a configuration, as they are shown."""
    grid = Ranks(CANDIDATES, forms().tunables)
    return [str(configuration) for configuration in grid.neighbours(CONFIGURATIONS[found(text)])]


def test_neighbours_change_one_tunable_and_what_follows_from_it() -> None:
    """Another form is a neighbour at the first of its own values, and keeps what both forms have."""
    assert near("form=plain L=64 radix=4") == [
        "form=plain L=64 radix=2",
        "form=plain L=128 radix=4",
        "form=plain L=256 radix=4",
        "form=ring L=64 slots=2 lag=1",
        "form=tree L=64 radix=4 how=shuffle",
    ]
    assert near("form=ring L=64 slots=4 lag=2") == [
        "form=plain L=64 radix=2",
        "form=ring L=64 slots=4 lag=1",
        "form=ring L=64 slots=4 lag=3",
        "form=ring L=64 slots=8 lag=2",
        "form=ring L=128 slots=4 lag=2",
        "form=ring L=256 slots=4 lag=2",
        "form=tree L=64 radix=2",
    ]
    assert near("form=tree L=64 radix=4 how=shared") == [
        "form=plain L=64 radix=4",
        "form=ring L=64 slots=2 lag=1",
        "form=tree L=64 radix=2",
        "form=tree L=64 radix=4 how=shuffle",
        "form=tree L=128 radix=4 how=shared",
    ]


def test_every_form_is_reached_from_every_other() -> None:
    """Steps from neighbour to neighbour lead to all of the space."""
    grid = Ranks(CANDIDATES, forms().tunables)
    reached, left = {CONFIGURATIONS[0]}, [CONFIGURATIONS[0]]
    while left:
        new = set(grid.neighbours(left.pop())) - reached
        reached |= new
        left += new
    assert reached == set(CONFIGURATIONS)


def test_no_value_is_below_all_values_of_a_line() -> None:
    """Greedy descends from the largest value to none; a configuration without one lies on the line, too."""
    order = Order(CANDIDATES)
    assert set(order.tunables) == {"form", "L", "slots", "lag", "radix", "how"}
    line = [nearest for nearest, *_ in order.line(CONFIGURATIONS[found("form=plain L=64 radix=2")], "slots")]
    assert [values.get("slots") for values in line] == [8, 4, 2, None]
    assert line[-1] == CONFIGURATIONS[found("form=plain L=64 radix=2")]


def test_no_value_is_equally_far_from_all_values_of_a_tunable() -> None:
    """The surrogate compares what both configurations have: a value that one of them lacks says nothing."""
    encoded = encoding(CONFIGURATIONS)
    assert [tunable.name for tunable in encoded.tunables] == ["form", "L", "radix", "slots", "lag", "how"]
    for tunable in encoded.tunables:
        if None in tunable.ranks:
            assert tunable.ranks[None] == len(tunable.ranks) - 1
            for part in tunable.parts:
                np.testing.assert_allclose(np.linalg.norm(part[:-1] - part[-1], axis=1), 0.5)
    features = encoded.features(encoded.codes(CONFIGURATIONS))
    assert len({row.tobytes() for row in features}) == len(CONFIGURATIONS)


def test_permutations_are_apart_by_how_far_their_items_moved() -> None:
    """A swap of neighbours is nearer than a reversal, which is one; other texts are one apart."""
    (order,) = encoding([Configuration({"order": text}) for text in ("i,j,k", "j,i,k", "k,j,i")]).tunables
    (part,) = order.parts
    np.testing.assert_allclose(np.linalg.norm(part[1:] - part[0], axis=1), [0.5, 1.0])
    (how,) = encoding([Configuration({"how": text}) for text in ("i,j", "j,k", "k,i")]).tunables
    (part,) = how.parts
    np.testing.assert_allclose(np.linalg.norm(part[1:] - part[0], axis=1), [1.0, 1.0])


def test_a_recording_keeps_what_has_no_value() -> None:
    """Written, read and made ready again, the space holds the same configurations."""
    recorded = recorded_forms()
    again = space_of(document(recorded))
    assert again == recorded
    (item,) = prepared(again)
    assert list(item.space) == CONFIGURATIONS
    assert item.default == CONFIGURATIONS[0]
    assert CONFIGURATIONS[-1] in item.space
