"""The space of configurations: what it holds, in which order, and how it fails."""

import itertools
import tracemalloc
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.reader import configuration_counts
from tuner.model.errors import (
    ConditionError,
    EmptySpaceError,
    ExpressionError,
    InputError,
    NoValueError,
    UnknownNameError,
)
from tuner.model.expressions.callables import Expression
from tuner.model.plan import Configuration, TunableValue
from tuner.space.space import Condition, Space, count_configurations

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


CONDITIONAL: Mapping[str, tuple[int | bool | str, ...]] = {
    "form": ("plain", "ring", "tree"),
    "P": (1, 2, 4),
    "slots": (2, 4, 8),  # of form ring
    "lag": (1, 3),  # of form ring, where slots are many
    "wide": (True, False),  # of form tree, or where P is 1
}
CONDITIONS = {
    "slots": ("form == 'ring'", "P"),
    "lag": ("many", None),
    "wide": ("form == 'tree' or P == 1", "false"),
}
CONDITIONAL_DERIVED = {"many": "form == 'ring' and slots * P > 8", "room": "slots - lag if many else P"}
CONDITIONAL_RULES = (
    "slots >= P",
    "form != 'ring' or room > 0",
    "not many or lag < slots - 1",
    "wide or P < 4",
    "room != N",
    "slots != 2 or form != 'ring'",
)


def conditional(rules: Sequence[str], N: int) -> Space:
    """A space in which tunables have a value here and there."""
    conditions = {
        name: Condition(Expression(when), None if otherwise is None else Expression(otherwise))
        for name, (when, otherwise) in CONDITIONS.items()
    }
    return Space.build(CONDITIONAL, rules, {"N": N}, CONDITIONAL_DERIVED, conditions)


def conditional_by_hand(rules: Sequence[str], N: int) -> list[dict[str, int | bool | str]]:
    """The same by a loop over the product: what has no value is one of its values only, and then goes."""
    found = []
    for values in itertools.product(*CONDITIONAL.values()):
        env: dict[str, Any] = dict(zip(CONDITIONAL, values, strict=True))
        absent = [] if env["form"] == "ring" else ["slots"]
        many = env["form"] == "ring" and env["slots"] * env["P"] > 8
        absent += [] if many else ["lag"]
        absent += [] if env["form"] == "tree" or env["P"] == 1 else ["wide"]
        if any(env[name] != CONDITIONAL[name][0] for name in absent):
            continue
        configuration = {name: value for name, value in env.items() if name not in absent}
        seen = {"slots": env["P"], "wide": False} | configuration
        room = seen["slots"] - seen["lag"] if many else seen["P"]
        seen |= {"N": N, "many": many, "room": room}
        if all(Expression(rule).evaluate(seen) for rule in rules):
            found.append(configuration)
    return found


@given(st.lists(st.sampled_from(CONDITIONAL_RULES), unique=True), st.integers(1, 4))
def test_conditional_tunables_have_a_value_where_their_condition_is_true(rules: list[str], N: int) -> None:
    """The space is what brute force finds, in its order; nothing stands twice; each is found again."""
    whole = conditional(rules, N)
    assert [dict(configuration) for configuration in whole] == conditional_by_hand(rules, N)
    assert whole.cartesian_size == len(conditional_by_hand([], N))
    assert len(set(whole)) == len(whole)
    assert [whole.index(whole[i]) for i in range(len(whole))] == list(range(len(whole)))


def test_a_value_too_many_or_too_few_is_not_in_a_conditional_space() -> None:
    """A configuration names exactly the tunables whose conditions are true."""
    whole = conditional((), 1)
    plain = {"form": "plain", "P": 2}
    assert plain in whole
    assert {**plain, "slots": 4} not in whole
    assert {"form": "ring", "P": 2, "slots": 4} in whole
    assert {"form": "ring", "P": 2} not in whole
    assert {"form": "ring", "P": 4, "slots": 4, "lag": 1} in whole
    assert {"form": "ring", "P": 4, "slots": 4} not in whole


def test_a_rule_that_comes_to_a_tunable_without_a_value() -> None:
    """Such a rule is an error that names the condition and a configuration, unless a branch goes round it."""
    with pytest.raises(NoValueError) as error:
        conditional(["lag > 0"], 1)
    assert "'lag > 0': lag has no value here: it has one where many (in form=plain P=1)" in str(error.value)
    with pytest.raises(NoValueError, match="doubled has no value here: expression 'lag \\* 2': lag has no"):
        Space.build(
            {"a": [1, 2], "lag": [3]},
            ["doubled > 0"],
            derived={"doubled": "lag * 2"},
            conditions={"lag": Condition(Expression("a == 2"))},
        )
    assert len(conditional(["not many or lag > 0"], 1)) == len(conditional((), 1))


def test_a_derived_name_lacks_a_value_only_where_it_comes_to_one() -> None:
    """Configurations with the same tunables are told apart: one may need what the other never looks at."""
    whole = Space.build(
        {"a": [1, 2, 3], "b": [5, 6]},
        ["a == 2 or d < 6"],
        derived={"d": "1 if a == 3 else b"},
        conditions={"b": Condition(Expression("a == 1"))},
    )
    assert [dict(c) for c in whole] == [{"a": 1, "b": 5}, {"a": 2}, {"a": 3}]


def test_conditions_that_cannot_be() -> None:
    """A condition takes the tunables above, and has a result."""
    for when in ("b > 1", "c > 1", "later"):
        with pytest.raises(InputError, match=r"b: .* needs a tunable that is not declared above it"):
            Space.build(
                {"a": [1], "b": [1], "c": [1]},
                derived={"later": "c + 1"},
                conditions={"b": Condition(Expression(when))},
            )
    with pytest.raises(ConditionError, match="division by zero") as error:
        Space.build({"a": [1, 0], "b": [1]}, conditions={"b": Condition(Expression("1 // a > 0"))})
    assert error.value.tunable == "b"


def test_rules_may_guard_a_condition() -> None:
    """A condition needs a result only where the rules before it hold; else the product counts every value."""
    whole = Space.build(
        {"a": [2, 0], "b": [1, 5, 6]}, ["a > 0"], conditions={"b": Condition(Expression("1 // a > 0"))}
    )
    assert [dict(configuration) for configuration in whole] == [{"a": 2}]
    assert whole.cartesian_size == 6


def test_a_conditional_space_of_a_million_points() -> None:
    """Rows without a value are grown in chunks, too, and the product counts no dead axis."""
    tunables = {"form": ["plain", "deep"]} | {f"a{i}": list(range(10)) for i in range(6)}
    conditions = {f"a{i}": Condition(Expression("form == 'deep'")) for i in range(6)}
    whole = Space.build(tunables, conditions=conditions)
    assert len(whole) == whole.cartesian_size == 10**6 + 1
    assert whole[0] == Configuration({"form": "plain"})
    assert len(whole[1]) == 7


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


def test_too_many_are_refused_before_memory_is_taken() -> None:
    """Where no rule can remove a combination, the count is known before the combinations are made."""
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="more than 10,000,000"):
            Space.build({f"a{i}": range(8) for i in range(12)})
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()


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


# --- configurations counted at many sizes together are those of the spaces of each -----------------


COUNTED: Mapping[str, tuple[TunableValue, ...]] = {
    "form": ("plain", "ring"),
    "P": (1, 2, 4),
    "slots": (2, 4),
    "L": (32, 64),
}
DERIVED = {
    "width": "8 if dtype == 'float64' else 4",
    "bytes": "P * width",
    "many": "form == 'ring' and slots * P > 4",
}
COUNTED_CONDITIONS = {"slots": ("form == 'ring' and N > 4", "P")}
COUNTED_RULES = (
    "P * L <= N * 16",
    "bytes <= 16",
    "not many or L == 32",
    "N > 1",
    "slots * width <= 16 or N > 8",
)


def length(rules: Sequence[str], case: Mapping[str, TunableValue]) -> int:
    """Of the space of a case; 0 where the rules allow nothing."""
    try:
        return len(Space.build(COUNTED, rules, case, DERIVED, conditions()))
    except EmptySpaceError:
        return 0


def conditions() -> dict[str, Condition]:
    return {
        name: Condition(Expression(when), Expression(otherwise))
        for name, (when, otherwise) in COUNTED_CONDITIONS.items()
    }


def counted(rules: Sequence[str], cases: Sequence[Mapping[str, TunableValue]]) -> list[int]:
    derived = {name: Expression(text) for name, text in DERIVED.items()}
    return count_configurations(COUNTED, [Expression(rule) for rule in rules], cases, derived, conditions())


@given(
    st.lists(st.sampled_from(COUNTED_RULES), unique=True),
    st.lists(
        st.fixed_dictionaries({"N": st.integers(1, 16), "dtype": st.sampled_from(["float32", "float64"])}),
        min_size=1,
        max_size=5,
    ),
)
def test_counts_are_the_lengths_of_spaces(rules: list[str], cases: list[Mapping[str, TunableValue]]) -> None:
    """Each case has the count of its own space, whatever else is counted beside it."""
    expected = [length(rules, case) for case in cases]
    if any(expected):
        assert counted(rules, cases) == expected
    else:
        with pytest.raises(EmptySpaceError):
            counted(rules, cases)


def test_a_rule_without_a_result_is_told() -> None:
    """A case in which a rule cannot be evaluated fails the count: who asks looks at each case then."""
    with pytest.raises(ExpressionError, match="division by zero"):
        counted(["P // (N - 3) >= 0"], [{"N": 4, "dtype": "float32"}, {"N": 3, "dtype": "float32"}])


@pytest.mark.parametrize("name", ["fft-real", "linear-recurrence", "scan-long"])
def test_rules_may_ask_how_rows_lie(name: str) -> None:
    """Kernels whose rows may lie apart are counted together too, as their spaces are with dense rows."""
    kernel = Catalog.load().kernel(name)
    workloads = kernel.workloads()[::40]
    assert configuration_counts(kernel, workloads) == [len(kernel.space(one)) for one in workloads]
