"""A trained model as a document and as a C header: what is picked stays the same, and damage is told."""

import ctypes
import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.model.errors import InputError
from tuner.model.expressions.callables import Expression
from tuner.model.plan import Configuration
from tuner.model.typed import sealed
from tuner.prediction.c_selector import c_selector
from tuner.prediction.methods import FlatTree
from tuner.prediction.model import Accuracy, SelectionModel, TrainedDevice
from tuner.prediction.portfolio import Portfolio, SizeFeature, portfolio_of
from tuner.prediction.training_set import TrainingSet

SIZES = [(h, w) for h in (3, 40, 500, 6000) for w in (5, 70, 900, 11000)]


def best(h: int, w: int, dtype: str) -> int:
    return (256 if w > 4 * h else 64 if h * w > 10**6 else 32) * (2 if dtype == "float64" else 1)


def data() -> TrainingSet:
    return TrainingSet.of(
        (
            {"H": h, "W": w, "dtype": dtype},
            Configuration({"B": b, "fused": b > 64}),
            1.0 if b == best(h, w, dtype) else 2.0,
            0.0,
        )
        for h, w in SIZES
        for dtype in ("float32", "float64")
        for b in (32, 64, 128, 256, 512)
    )


def trained_model(conditions: Sequence[str] = ()) -> SelectionModel:
    found = data()
    portfolio = portfolio_of(found)
    accuracy = Accuracy(32, 0.9, (0.9, 0.9375, 1.0), 1.01, 1.2, (1.0, 1.0, 1.0), 1.0)
    return SelectionModel(
        kernel="mv-mul",
        source="f" * 64,
        device=TrainedDevice("NVIDIA H200", "GPU-1", "580.1", "13.0", modelled=False),
        objective="time",
        method="forest",
        date="2026-11-23T12:00:00+00:00",
        trials=found.trials,
        inputs=tuple(one.sizes for one in found.inputs),
        ranges=found.ranges(),
        accuracy=accuracy,
        forest_accuracy=None,
        portfolio=portfolio,
        conditions=tuple(conditions) or ("True",) * len(portfolio.versions),
    )


MODEL = trained_model()
CONDITIONS = (
    "W % 4 == 0 and dtype == 'float32'",
    "ceil_div(H, 64) <= 65535 and not (H <= 1024 and W >= 4096)",
    "dtype in ('float64', 'int8') or 2 <= next_pow2(W // 3) <= 512",
    "gcd(H, 16) > 1 if W > 100 else H * W <= 2**20",
    "min(H, W, 77) == 77 and dtype not in ('int8',)",
)
CONDITIONED = trained_model(CONDITIONS[: len(MODEL.portfolio.versions)])


def picked(model: SelectionModel, sizes: dict[str, int | str]) -> int:
    """The place of the version for an input; -1 where none is allowed."""
    selection = model.select(sizes)
    return -1 if selection is None else model.portfolio.versions.index(selection[0])


def test_it_picks_what_was_best() -> None:
    """At every trained input the tree finds the best version."""
    for one in data().inputs:
        best_here = one.configurations[int(one.costs.argmin())]
        selection = MODEL.select(one.sizes)
        assert selection is not None
        assert selection[0] == best_here
    judged = "for 94 % of 32 left-out inputs, of whose spaces"
    assert MODEL.claim == f"within 5 % of the best measured {judged} none was measured whole"
    model = replace(MODEL, accuracy=replace(MODEL.accuracy, whole=3))
    assert model.claim == f"within 5 % of the best {judged} 3 were measured whole"
    older = {name: value for name, value in model.document().items() if name != "checksum"}
    del older["accuracy"]["whole"]
    assert SelectionModel.of(sealed(older)).claim == MODEL.claim


def test_a_document_is_the_model_again() -> None:
    """Everything is kept through JSON; the file is small."""
    text = json.dumps(MODEL.document(), sort_keys=True)  # as the database keeps it
    again = SelectionModel.of(json.loads(text))
    assert again.document() == MODEL.document()
    assert list(again.ranges) == list(MODEL.ranges) == ["H", "W", "dtype"]
    assert again.inputs == MODEL.inputs
    assert len(text) < 16 * 1024
    assert all(again.select(one) == MODEL.select(one) for one in MODEL.inputs)


def test_sizes_keep_their_order_in_a_database_that_sorts_keys() -> None:
    """Parameters of the C function, and the sizes of inputs, are in the kernel's order after a round trip."""
    ranges = {"rows": (3, 6000), "columns": (5, 7)}
    inputs: tuple[dict[str, int | str], ...] = ({"rows": 3, "columns": 5}, {"rows": 6000, "columns": 7})
    features = (SizeFeature((("rows", 1),)),)
    leaf = FlatTree(*(np.array([value]) for value in (-1, 0.0, 0, 0, 0.0)))
    portfolio = Portfolio(MODEL.portfolio.versions[:1], features, leaf, ((0,),))
    model = replace(MODEL, ranges=ranges, inputs=inputs, portfolio=portfolio, conditions=("True",))
    again = SelectionModel.of(json.loads(json.dumps(model.document(), sort_keys=True)))
    assert again.inputs == inputs
    assert "(long long rows, long long columns)" in c_selector(again)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"H": 3, "W": 5, "dtype": "float32"}, ""),
        (
            {"H": 2, "W": 5, "dtype": "float32"},
            "H=2 is outside 3 to 6000; the nearest trained input is H=3,W=5",
        ),
        ({"H": 3, "W": 5, "dtype": "int8"}, "dtype=int8 was not trained"),
    ],
)
def test_inputs_outside_the_trained_range_are_told(sizes: dict[str, int | str], words: str) -> None:
    """A version is picked all the same, with what to know."""
    selection = MODEL.select(sizes)
    assert selection is not None
    assert selection[0] in MODEL.portfolio.versions
    assert words in selection[1]
    assert bool(selection[1]) is bool(words)


def test_a_missing_size_is_told() -> None:
    """Nothing is guessed."""
    with pytest.raises(InputError, match="size dtype is missing"):
        MODEL.select({"H": 3, "W": 5})


def _places(value: object, path: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _places(inner, (*path, key))
    elif isinstance(value, list) and value:
        for place, inner in enumerate(value):
            yield from _places(inner, (*path, place))
    else:
        yield path


PLACES = list(_places(MODEL.document()))


@given(st.sampled_from(PLACES), st.sampled_from([None, -1, 10**30, float("nan"), "x", [], {}, True]))
def test_a_changed_document_is_refused(path: tuple[Any, ...], value: object) -> None:
    """Whatever is changed: the checksum tells."""
    document: Any = json.loads(json.dumps(MODEL.document()))
    holder = document
    for step in path[:-1]:
        holder = holder[step]
    if holder[path[-1]] == value:
        return
    holder[path[-1]] = value
    with pytest.raises(InputError, match="trained model"):
        SelectionModel.of(document)


@given(st.sampled_from(PLACES), st.sampled_from([None, -1, 10**30, "x", [], {}, True, 0, 2.5]))
def test_a_sealed_document_of_nonsense_is_refused_or_selects(path: tuple[Any, ...], value: object) -> None:
    """Even with a right checksum nothing worse than an error comes of nonsense."""
    document: Any = json.loads(json.dumps(MODEL.document()))
    del document["checksum"]
    if path == ("checksum",):
        return
    holder = document
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    try:
        model = SelectionModel.of(sealed(document))
        model.select({"H": 3, "W": 5, "dtype": "float32"})
    except InputError:
        return
    assert model.portfolio.versions


@pytest.mark.parametrize("document", [None, [], {}, {"format": 1}, "x"])
def test_what_is_no_model_is_refused(document: object) -> None:
    """An error of ours, whatever it is."""
    with pytest.raises(InputError, match="trained model"):
        SelectionModel.of(document)


# --- the header ----------------------------------------------------------------------------------

Select = Callable[[int, int, bytes], int]


@pytest.fixture(scope="module", params=["always", "conditions"])
def model(request: pytest.FixtureRequest) -> SelectionModel:
    """A model whose versions are allowed everywhere, and one with conditions."""
    return MODEL if request.param == "always" else CONDITIONED


@pytest.fixture(scope="module")
def select(model: SelectionModel, tmp_path_factory: pytest.TempPathFactory) -> Select:
    """The header's function, compiled with all warnings as errors by a C and a C++ compiler."""
    folder = tmp_path_factory.mktemp("selector")
    (folder / "selector.h").write_text(c_selector(model))
    pick = "int pick(long long h, long long w, const char *d) { return mv_mul_select(h, w, d); }"
    strict = ("-Wall", "-Wextra", "-Wconversion", "-Werror", "-O1", "-shared", "-fPIC")
    for compiler, suffix, standard in (("gcc", "c", "-std=c99"), ("g++", "cpp", "-std=c++11")):
        linkage = 'extern "C" ' if suffix == "cpp" else ""
        source, library_file = folder / f"pick.{suffix}", folder / f"{suffix}.so"
        source.write_text(f'#include "selector.h"\n{linkage}{pick}\n')
        subprocess.run([compiler, standard, *strict, "-o", library_file, source], check=True)
    library = ctypes.CDLL(str(folder / "c.so"))
    library.pick.argtypes = [ctypes.c_longlong, ctypes.c_longlong, ctypes.c_char_p]
    found: Select = library.pick
    return found


@given(st.integers(1, 2**40), st.integers(1, 2**40), st.sampled_from(["float32", "float64", "int8", ""]))
def test_c_picks_what_python_picks(select: Select, model: SelectionModel, h: int, w: int, dtype: str) -> None:
    """The same version at every input, whatever the size."""
    if model is CONDITIONED:  # beyond 63 bits Python refuses, and C wraps
        h, w = h % 2**31 + 1, w % 2**31 + 1
    assert select(h, w, dtype.encode()) == picked(model, {"H": h, "W": w, "dtype": dtype})


@given(st.integers(1, 5000), st.integers(1, 5000), st.sampled_from(["float32", "float64", "int8"]))
def test_an_allowed_version_is_picked(h: int, w: int, dtype: str) -> None:
    """Never one whose condition is false; the first in the order of the leaf that is allowed."""
    sizes: dict[str, int | str] = {"H": h, "W": w, "dtype": dtype}
    allowed = [bool(Expression(text).evaluate(sizes)) for text in CONDITIONS]
    order = CONDITIONED.portfolio.order(sizes)
    assert picked(CONDITIONED, sizes) == next((place for place in order if allowed[place]), -1)


@given(st.integers(-3, 3), st.integers(1, 3000))
def test_c_and_python_agree_at_thresholds(select: Select, model: SelectionModel, step: int, w: int) -> None:
    """Beside every threshold of a feature, too."""
    tree, features = model.portfolio.tree, model.portfolio.features
    for node in range(len(tree.feature)):
        feature = features[tree.feature.item(node)] if tree.feature.item(node) >= 0 else None
        if feature is None or feature.text:
            continue
        bound = 2.0 ** tree.threshold.item(node)
        powers = dict(feature.powers)
        h = bound / w if powers.get("W") == 1 else bound * w if powers.get("W") == -1 else bound
        sizes: dict[str, int | str] = {"H": max(1, round(h) + step), "W": w, "dtype": "float32"}
        assert select(int(sizes["H"]), w, b"float32") == picked(model, sizes)


def test_the_header_says_what_it_is_made_from() -> None:
    """Device, accuracy, range, and tables of the tunables that are numbers."""
    header = c_selector(MODEL, [["-DB=1"]] * len(MODEL.portfolio.versions))
    for text in (
        "mv-mul on NVIDIA H200, time:",
        MODEL.claim,
        "H = 3 to 6000; W = 5 to 11000; dtype in float32, float64",
        "static const int mv_mul_B[",
        '"-DB=1"',
    ):
        assert text in header
    assert "Modelled" not in header
    assert "kernels expand" not in header
    several = c_selector(MODEL, [["-DB=1"]] * len(MODEL.portfolio.versions), expanded="mv.cu")
    assert "with the source of `tuner kernels expand mv.cu`" in several
    modelled = replace(MODEL, device=replace(MODEL.device, modelled=True, name="x */ y"))
    assert "Modelled" in c_selector(modelled)
    assert "x */ y" not in c_selector(modelled)


@pytest.mark.parametrize("name", ["größe", "int", "class"])
def test_sizes_without_a_name_in_c_are_refused(name: str) -> None:
    """A header with them would not compile."""
    with pytest.raises(InputError, match="no name in C"):
        c_selector(replace(MODEL, ranges={name: (1, 2)}))


@pytest.mark.parametrize("option", ["-DA=1 -ccbin x", "-DA=$(x)", '-DA="x"', "-DA=1,2", "-DA=a;b", "-DA=\n"])
def test_options_that_would_not_stay_one_word_are_refused(option: str) -> None:
    """Programs split the table at blanks, shells and nvcc read more into it: what is none of it says so."""
    count = len(MODEL.portfolio.versions)
    with pytest.raises(InputError, match="cannot stand in the table"):
        c_selector(MODEL, [["-DB=1", option]] * count)
    assert '"-DB=1 --diag-suppress=1,2"' in c_selector(MODEL, [["-DB=1", "--diag-suppress=1,2"]] * count)


def test_names_and_numbers_are_those_of_c(tmp_path: Path) -> None:
    """Texts in UTF-8, kernels that begin with a digit, and large numbers compile and pick right."""
    texts = ("größe", "a /*b*/", "\\", '"??/')
    features = tuple(SizeFeature((("T", 1),), text) for text in texts)
    columns = (0, -1, 1, -1, 2, -1, 3, -1, -1), (0.5,) * 9, (2, 0, 4, 0, 6, 0, 8, 0, 0)
    right = (1, 0, 3, 0, 5, 0, 7, 0, 0)  # where a text is equal
    tree = FlatTree(*map(np.array, (*columns, right, (0, 0, 0, 1, 0, 2, 0, 3, 4))))
    versions = tuple(
        Configuration({"B": 2**40 + place, "C": -place, "select": place, "options": 1}) for place in range(5)
    )
    orders = tuple((place, *(other for other in range(5) if other != place)) for place in range(5))
    portfolio = Portfolio(versions, features, tree, orders)
    model = replace(
        MODEL,
        kernel="2mm",
        ranges={"T": texts},
        inputs=({"T": texts[0]},),
        portfolio=portfolio,
        conditions=("True",) * 5,
    )
    assert SelectionModel.of(model.document()).portfolio.versions == versions
    (tmp_path / "selector.h").write_text(
        c_selector(model, entries={"k": dict.fromkeys(range(5), 'k<"größe">')})
    )
    lines = [
        '#include "selector.h"',
        "int pick(const char *text);",
        "long long number(int place);",
        "int pick(const char *text) { return _2mm_select(text); }",
        "long long number(int place) { return _2mm_B[place] + _2mm_C[place]; }",
    ]
    strict = ("-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Werror", "-shared", "-fPIC")
    for compiler, suffix, standard in (("g++", "cpp", "-std=c++11"), ("gcc", "c", "-std=c99")):
        (tmp_path / f"pick.{suffix}").write_text("\n".join(lines) + "\n")
        files = str(tmp_path / "c.so"), str(tmp_path / f"pick.{suffix}")
        subprocess.run([compiler, standard, *strict, "-o", *files], check=True)
    library = ctypes.CDLL(str(tmp_path / "c.so"))
    library.number.restype = ctypes.c_longlong
    assert library.number(3) == 2**40
    for place, text in enumerate((*texts, "", "grö", "größer")):
        assert library.pick(text.encode()) == picked(model, {"T": text}) == min(place, 4)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"features": [{"powers": {"dtype": 1}}]}, "compares a text and a number"),
        ({"features": [{"powers": {"H": 1}, "text": "x"}]}, "compares a text and a number"),
        ({"ranges": {"H": [1, 2], "W": [], "dtype": ["x"]}}, "'W' has no values"),
        ({"accuracy": {**MODEL.document()["accuracy"], "within": [1]}}, "an accuracy has 1 shares"),
        ({"tree": {"left": [1, 2, 0], "right": [2, 2, 0]}}, "two parents"),
    ],
)
def test_models_that_have_no_meaning_are_refused(change: dict[str, Any], why: str) -> None:
    """A checksum does not make sense of them."""
    document: Any = json.loads(json.dumps(MODEL.document()))
    del document["checksum"]
    if "tree" in change:
        columns = {"feature": [0, 0, -1], "threshold": [0.0] * 3, "value": [0.0] * 3}
        change = {"tree": {**columns, **change["tree"]}}
    with pytest.raises(InputError, match=why):
        SelectionModel.of(sealed({**document, **change}))


def test_a_tree_that_is_too_deep_is_refused() -> None:
    """No training makes one, and a header of it would not compile."""
    columns: dict[str, list[float]] = {
        "feature": [*(-1 if place % 2 else 0 for place in range(200)), -1],
        "threshold": [0.0] * 201,
        "left": [*(0 if place % 2 else place + 1 for place in range(200)), 0],
        "right": [*(0 if place % 2 else place + 2 for place in range(200)), 0],
        "value": [0.0] * 201,
    }
    document: Any = json.loads(json.dumps(MODEL.document()))
    del document["checksum"]
    assert FlatTree.of(columns, 1).depth == 100
    with pytest.raises(InputError, match="a depth of 100"):
        SelectionModel.of(sealed({**document, "tree": columns}))


def test_one_version_needs_no_sizes() -> None:
    """The header of one version returns it; unused parameters are no warnings."""
    leaf = FlatTree(*(np.array([value]) for value in (-1, 0.0, 0, 0, 0.0)))
    portfolio = Portfolio(MODEL.portfolio.versions[:1], (SizeFeature((("H", 1),)),), leaf, ((0,),))
    model = replace(MODEL, portfolio=portfolio, conditions=("True",))
    assert "(void)H;" in c_selector(model)
    assert picked(model, {"H": 1, "W": 1, "dtype": "float32"}) == 0


@pytest.mark.parametrize(
    ("condition", "message"),
    [(None, "Python functions"), ("H / 2 > 1.5", "cannot be said"), ("log2(H) > 3", "cannot be said")],
)
def test_what_no_header_can_say_is_refused(condition: str | None, message: str) -> None:
    """The condition is named."""
    model = replace(MODEL, conditions=(condition, *MODEL.conditions[1:]))
    with pytest.raises(InputError, match=message):
        c_selector(model)


def test_files_are_small(tmp_path: Path) -> None:
    """Header and document are below 16 KiB."""
    path = tmp_path / "selector.h"
    path.write_text(c_selector(MODEL))
    assert path.stat().st_size < 16 * 1024
