"""Configurations counted at many sizes together are those of the spaces of each."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.reader import configuration_counts
from tuner.model.errors import EmptySpaceError, ExpressionError
from tuner.model.expressions.callables import Expression
from tuner.model.plan import TunableValue
from tuner.space.enumeration import Condition
from tuner.space.space import Space, count_configurations

TUNABLES: Mapping[str, tuple[TunableValue, ...]] = {
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
CONDITIONS = {"slots": ("form == 'ring' and N > 4", "P")}
RULES = ("P * L <= N * 16", "bytes <= 16", "not many or L == 32", "N > 1", "slots * width <= 16 or N > 8")


def length(rules: Sequence[str], case: Mapping[str, TunableValue]) -> int:
    """Of the space of a case; 0 where the rules allow nothing."""
    try:
        return len(Space.build(TUNABLES, rules, case, DERIVED, conditions()))
    except EmptySpaceError:
        return 0


def conditions() -> dict[str, Condition]:
    return {
        name: Condition(Expression(when), Expression(otherwise))
        for name, (when, otherwise) in CONDITIONS.items()
    }


def counted(rules: Sequence[str], cases: Sequence[Mapping[str, TunableValue]]) -> list[int]:
    derived = {name: Expression(text) for name, text in DERIVED.items()}
    return count_configurations(TUNABLES, [Expression(rule) for rule in rules], cases, derived, conditions())


@given(
    st.lists(st.sampled_from(RULES), unique=True),
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
