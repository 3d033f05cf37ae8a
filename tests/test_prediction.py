"""Prediction for inputs that nobody tuned: training sets, features, methods, accuracy, versions."""

import math
import random
import sys
from collections.abc import Mapping
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.model.errors import InputError
from tuner.model.plan import Configuration
from tuner.prediction.methods import (
    FlatTree,
    GAdaptPredictor,
    SinglePredictor,
    forest_of,
    regression_tree,
)
from tuner.prediction.model import Accuracy, leave_one_out
from tuner.prediction.portfolio import MOST_VERSIONS, inputs_between, portfolio_of, size_features
from tuner.prediction.training_set import FeatureTable, InputTrials, LaunchGeometry, Sizes, TrainingSet

TUNABLES = {"B": (32, 64, 128, 256), "form": ("rows", "columns")}
CONFIGURATIONS = [Configuration({"B": b, "form": form}) for b, form in product(*TUNABLES.values())]


def cost(sizes: Mapping[str, int | str], configuration: Configuration) -> float:
    """A kernel with a form for each shape, whose best block grows with the width."""
    h, w = int(sizes["H"]), int(sizes["W"])
    right = "rows" if w >= h else "columns"
    best = 32 if w < 256 else 256
    away = abs(math.log2(int(configuration["B"]) / best))
    return h * w * (1.0 + 0.2 * away) * (1.0 if configuration["form"] == right else 1.5)


def trained(count: int = 40, seed: int = 1, share: float = 1.0) -> TrainingSet:
    draw = random.Random(seed)  # noqa: S311 - a seeded experiment
    inputs: list[Sizes] = [
        {"H": round(2 ** draw.uniform(4, 12)), "W": round(2 ** draw.uniform(4, 12))} for _ in range(count)
    ]
    return TrainingSet.of(
        (sizes, configuration, cost(sizes, configuration), 0.001)
        for sizes, configuration in product(inputs, CONFIGURATIONS)
        if draw.random() < share
    )


def table(geometry: bool = True) -> FeatureTable:
    def launches(sizes: Mapping[str, int | str], configuration: Configuration) -> list[LaunchGeometry]:
        return [LaunchGeometry(-(-int(sizes["W"]) // int(configuration["B"])), int(configuration["B"]))]

    return FeatureTable({"H": (), "W": ()}, TUNABLES, 132, launches if geometry else None)


# --- training sets -------------------------------------------------------------------------------


def test_trials_are_grouped_by_input() -> None:
    """Of a configuration that is there again the surest counts, then the last; inputs need a valid trial."""
    one, other = CONFIGURATIONS[:2]
    data = TrainingSet.of(
        [
            ({"H": 8}, one, 2.0, 0.01),
            ({"H": 9}, one, math.inf, 0.0),
            ({"H": 8}, other, 4.0, 0.01),
            ({"H": 8}, one, 3.0, 0.01),
            ({"H": 8}, one, 5.0, 0.02),
        ]
    )
    assert [found.sizes for found in data.inputs] == [{"H": 8}]
    assert data.inputs[0].lowest == 3.0
    assert list(data.inputs[0].slowdowns) == pytest.approx([1.0, 4.0 / 3.0])
    assert data.trials == 2
    with pytest.raises(InputError, match="nothing to learn from"):
        TrainingSet.of([({"H": 9}, one, math.inf, 0.0)])


@pytest.mark.parametrize(
    ("sizes", "near"),
    [
        ({"H": 1000, "form": "a"}, True),
        ({"H": 1015, "form": "a"}, True),
        ({"H": 1030, "form": "a"}, False),
        ({"H": 1000, "form": "b"}, False),
    ],
)
def test_copies_of_an_input_are_left_out_with_it(sizes: Sizes, near: bool) -> None:
    """Less than 2 % in every size is a copy; another text is none."""
    one = InputTrials({"H": 1000, "form": "a"}, (CONFIGURATIONS[0],), np.ones(1), np.zeros(1))
    assert one.is_near(sizes) is near


def test_a_tie_is_told_by_uncertainty() -> None:
    """1 % more is a tie at 0.5 % each, and none at 0.1 %."""
    for sigma, tie in ((0.005, True), (0.001, False)):
        one = InputTrials({"H": 8}, tuple(CONFIGURATIONS[:2]), np.array([1.0, 1.01]), np.full(2, sigma))
        assert one.is_tie(1) is tie
        assert one.is_tie(0)


# --- features ------------------------------------------------------------------------------------


def test_features_have_a_name_each() -> None:
    """As many columns as names, the same for every input; geometry, ratios and useful shares are told."""
    features = table()
    rows = features.rows({"H": 100, "W": 65}, CONFIGURATIONS)
    named = dict(zip(features.names, rows[2], strict=True))  # B=64, rows

    assert rows.shape == (len(CONFIGURATIONS), len(features.names))
    assert named["log2 W"] == pytest.approx(math.log2(65))
    assert (named["form=rows"], named["form=columns"]) == (1.0, 0.0)
    assert named["log2 of all"] == pytest.approx(math.log2(6500))
    assert named["log2 H/W"] == pytest.approx(math.log2(100 / 65))
    assert (named["alignment of H"], named["alignment of W"]) == (2.0, 0.0)
    assert named["least W/B"] == 6.0
    assert named["useful W/B"] == pytest.approx(65 / 128)
    assert named["log2 W/B"] == pytest.approx(math.log2(65 / 64))
    assert named["blocks 0"] == 1.0
    assert named["tail 0"] == pytest.approx(2 / (132 * 32))
    assert named["blocks 1"] == -1.0


def test_tunables_without_a_value_are_features_too() -> None:
    """A tunable whose condition is false has a number of its own."""
    features = FeatureTable({"N": ()}, {"P": (1, 2), "ring": (4, 8)}, 8)
    rows = features.rows({"N": 7}, [Configuration({"P": 1}), Configuration({"P": 1, "ring": 4})])
    assert not np.isnan(rows).any()
    assert list(rows[0]) != list(rows[1])


# --- trees ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"left": [0]}, "different lengths"),
        ({"feature": [4, -1, -1]}, "not among the 2"),
        ({"left": [0, 0, 0]}, "not below its parent"),
        ({"right": [3, 0, 0]}, "not below its parent"),
        ({"value": [0, math.nan, 0]}, "not finite"),
        ({"feature": []}, "different lengths"),
        ({"threshold": "x"}, "no tree"),
    ],
)
def test_what_is_no_tree_is_refused(change: dict[str, object], words: str) -> None:
    """A damaged tree never loops and never asks for what is not there."""
    document: dict[str, object] = {
        "feature": [1, -1, -1],
        "threshold": [0.5, 0, 0],
        "left": [1, 0, 0],
        "right": [2, 0, 0],
        "value": [0, 1, 2],
    }
    assert FlatTree.of(document, 2).depth == 1
    with pytest.raises(InputError, match=words):
        FlatTree.of(document | change, 2)


# --- G-ADAPT -------------------------------------------------------------------------------------


def test_a_leaf_has_a_linear_model() -> None:
    """Two linear pieces are found exactly, as the paper's trees would."""
    rows = np.linspace(0.0, 10.0, 30)[:, None]
    targets = np.where(rows[:, 0] < 5.0, 2.0 * rows[:, 0] + 1.0, 100.0 - rows[:, 0])
    tree = regression_tree(rows, targets)
    for row, target in zip(rows, targets, strict=True):
        assert tree.predict(row) == pytest.approx(target, abs=1e-6)


@pytest.mark.parametrize("listed", [(64, 128, 256), (64, 128)], ids=["all", "but for a stand-in"])
def test_g_adapt_predicts_the_nearest_configuration(listed: tuple[int, ...]) -> None:
    """Of configurations that are there, the one with the values nearest to the predicted ones."""
    data = TrainingSet.of(
        ({"N": n}, Configuration({"B": b}), 1.0 if b == (64 if n < 100 else 256) else 2.0, 0.0)
        for n in (10, 20, 40, 200, 400, 800)
        for b in (64, 128, 256)
    )
    predictor = GAdaptPredictor(data, {"B": listed})
    found = [Configuration({"B": b}) for b in (64, 128, 256)]
    assert int(predictor.scores({"N": 15}, found).argmin()) == 0
    assert int(predictor.scores({"N": 600}, found).argmin()) == 2
    assert int(predictor.scores({"N": 600}, found[:2]).argmin()) == 1


# --- accuracy ------------------------------------------------------------------------------------


def test_methods_are_judged_by_inputs_they_have_not_seen() -> None:
    """A forest and its versions follow the shape; one configuration for all does not."""
    data, features = trained(24), table()

    def learn(others: TrainingSet) -> dict[str, object]:
        forest = forest_of(features, others, count=8)
        versions = portfolio_of(others, forest=forest, between=inputs_between(others, 60))
        return {"forest": forest, "versions": versions, "one for all": SinglePredictor(others)}

    found = list(leave_one_out(data, learn))  # type: ignore[arg-type]  # predictors of several kinds
    accuracy = {name: Accuracy.of([one[name] for one in found]) for name in found[0]}

    assert accuracy["forest"].within[2] >= 0.75
    assert accuracy["versions"].within[2] >= 0.75
    assert accuracy["one for all"].mean > 1.1 > accuracy["forest"].mean
    assert all(one.mean_of_first <= one.mean for one in accuracy.values())


def test_one_input_alone_cannot_be_judged() -> None:
    """There is nothing to predict it from: its accuracy is not a number."""
    data = trained(1)
    assert list(leave_one_out(data, lambda others: {"one": SinglePredictor(others)})) == []
    assert math.isnan(Accuracy.of([]).mean)


# --- versions ------------------------------------------------------------------------------------


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_few_versions_and_a_tree_follow_the_shape(h: int, w: int) -> None:
    """What was learned picks the right form wherever the shape is plain."""
    picked = dict(VERSIONS.versions[VERSIONS.order({"H": h, "W": w})[0]])
    if max(h, w) > 2 * min(h, w):
        assert picked["form"] == ("rows" if w > h else "columns")


VERSIONS = portfolio_of(trained(200))


@given(st.integers(0, 100))
def test_inputs_between_are_between(seed: int) -> None:
    """Within what was measured; sizes of a list keep its values."""
    sizes: list[Sizes] = [
        {"H": 3, "R": 1, "d": "a"},
        {"H": 1000, "R": 8, "d": "b"},
        {"H": 65536, "R": 4, "d": "a"},
    ]
    data = TrainingSet(
        tuple(InputTrials(one, (CONFIGURATIONS[0],), np.ones(1), np.zeros(1)) for one in sizes)
    )
    for one in inputs_between(data, 20, seed, listed=("R",)):
        assert 3 <= int(one["H"]) <= 65536
        assert one["R"] in (1, 4, 8)
        assert one["d"] in ("a", "b")


def test_versions_are_few_and_all_used() -> None:
    """Few, each the first of an order; every order is that of a leaf."""
    assert len(VERSIONS.versions) <= MOST_VERSIONS
    assert {order[0] for order in VERSIONS.orders} == set(range(len(VERSIONS.versions)))
    leaves = VERSIONS.tree.value[VERSIONS.tree.feature < 0]
    assert {int(value) for value in leaves} == set(range(len(VERSIONS.orders)))


def even(sizes: Sizes) -> list[Configuration]:
    """Of what is allowed: the wide one needs an even W."""
    return [WIDE, NARROW] if int(sizes["W"]) % 2 == 0 else [NARROW]


WIDE, NARROW, WORSE = (Configuration({"V": value}) for value in (2, 1, 4))


@given(st.integers(0, 1000))
def test_a_version_is_picked_where_it_is_allowed(seed: int) -> None:
    """The wide one is the fastest, and picked for even sizes alone, also for sizes in between."""
    widths = [6, 7, *sorted({8 + (seed + 1) * 7919 * k % 4993 for k in range(1, 13)})]
    data = TrainingSet.of(
        ({"W": w}, one, {WIDE: 1.0, NARROW: 1.5, WORSE: 3.0}[one], 0.0)
        for w in widths
        for one in [*even({"W": w}), WORSE]
    )
    versions = portfolio_of(data, allowed=lambda sizes: [*even(sizes), WORSE])
    for w in range(6, 5000, 83):
        assert versions.picked({"W": w}, even({"W": w})) == even({"W": w})[0]
    assert WORSE not in versions.versions
    assert versions.picked({"W": 7}, [WORSE]) is None


def test_what_was_not_measured_is_predicted() -> None:
    """Of partial sweeps, a predictor tells the rest: the versions are as good as of whole ones."""
    partial, whole = trained(80, share=0.4), trained(80)
    forest = forest_of(table(), partial, count=32)
    versions = portfolio_of(partial, forest=forest, between=inputs_between(partial, 200))
    losses = [
        cost(one.sizes, versions.versions[versions.order(one.sizes)[0]]) / one.lowest for one in whole.inputs
    ]
    assert np.mean(losses) < 1.1


@pytest.mark.parametrize(
    ("sizes", "names"),
    [
        ([{"N": 5}, {"N": 5}], []),
        ([{"N": 5}, {"N": 9}], [(("N", 1),)]),
        ([{"N": 5, "d": "a"}, {"N": 5, "d": "b"}], [(("d", 1),), (("d", 1),)]),
        (
            [{"H": 1, "W": 2}, {"H": 2, "W": 3}],
            [(("H", 1),), (("W", 1),), (("H", 1), ("W", 1)), (("H", 1), ("W", -1))],
        ),
    ],
)
def test_constant_sizes_are_no_features(sizes: list[Sizes], names: list[object]) -> None:
    """Only what varies is asked for."""
    data = TrainingSet(
        tuple(InputTrials(one, (CONFIGURATIONS[0],), np.ones(1), np.zeros(1)) for one in sizes)
    )
    assert [feature.powers for feature in size_features(data)] == names


def test_a_space_of_one_configuration_has_one_version() -> None:
    """Nothing is to be picked."""
    data = TrainingSet.of(({"N": n}, CONFIGURATIONS[0], 1.0, 0.0) for n in (1, 2, 3))
    assert portfolio_of(data).versions == (CONFIGURATIONS[0],)


def test_training_without_scikit_learn_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what to install, and what needs none."""
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    with pytest.raises(InputError, match=r"gpu-tuner\[train\].*g-adapt needs none"):
        forest_of(table(), trained(3))
