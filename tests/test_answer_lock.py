"""Lock files: what is written is read, in any order; what cannot be read is refused by its name."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.database.answer_lock import (
    LockedAnswer,
    LockedWorkload,
    Quantity,
    covers,
    driver_range,
    read,
    written,
)
from tuner.model.errors import InputError

PART = LockedWorkload("scan-lf:N=1024", 64, "c0ffee", {"L": 4, "unrolled": True})
ANSWER = LockedAnswer(
    (PART,), "NVIDIA H200", "580", "energy", Quantity(1.234e-5, 3e-8), "2026-11-29", "0.2.0", Quantity(0.0151)
)

texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
whole = st.integers(1, 2**31)
amounts = st.floats(1e-9, 1e6)
quantities = st.builds(Quantity.of, amounts, st.just(0.0) | amounts)
values = st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9) | texts
parts = st.builds(LockedWorkload, texts, whole, texts, st.dictionaries(texts, values, max_size=4))
answers = st.builds(
    LockedAnswer,
    st.lists(parts, min_size=1, max_size=3, unique_by=lambda one: one.name).map(tuple),
    texts,
    st.sampled_from(["580", "575.51 to 580", "model-3"]),
    st.sampled_from(["time", "energy", "energy of single launches", "edp"]),
    quantities,
    texts,
    texts,
    st.none() | quantities,
    st.none() | whole,
    st.none() | whole,
    st.booleans(),
)


@given(st.lists(answers, max_size=5), st.randoms(use_true_random=False))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, some: list[LockedAnswer], chance: Callable[..., None]
) -> None:
    """A file is read as what it was written from; the order of the answers changes nothing."""
    some = [one for i, one in enumerate(some) if not any(map(one.excludes, some[:i]))]
    path = tmp_path_factory.getbasetemp() / "any.lock"
    path.write_text(written(some), encoding="utf-8", newline="")
    found = read(path).answers
    assert sorted(found, key=repr) == sorted(some, key=repr)
    chance.shuffle(some)  # type: ignore[attr-defined]  # a Random
    assert written(some) == path.read_text(encoding="utf-8") == written(found)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text[:-5], "is damaged"),
        (lambda text: text.replace("gpu =", "<<<<<<< HEAD\ngpu ="), "line 5 has a conflict of a merge"),
        (lambda text: text + ">>>>>>> main\n", "line 20 has a conflict of a merge"),
        (
            lambda text: text + text.partition("form = 1\n")[2],
            "[[answer]] 1 and 2 are both of scan-lf:N=1024",
        ),
        (lambda text: text.replace("form = 1", "form = 2"), "is of form 2, and this version reads up to 1"),
        (lambda text: text.replace("form = 1", ""), "is no lock file"),
        (lambda text: text.replace("driver =", "drivers ="), "'drivers' is no key; did you mean 'driver'?"),
        (lambda text: text.replace("batch =", "batches ="), "workload: 'batches' is no key"),
        (lambda text: text.replace("µs", "µJ"), "[[answer]] 1: time is '12.34 ± 0.03 µJ'; write a number"),
        (lambda text: text.replace("12.34 ±", "0 ±"), "must be above 0"),
        (
            lambda text: text.replace('"12.34 ± 0.03 µs"', "{value = -1.0}"),
            "time is \"{'value': -1.0}\"; write",
        ),
        (lambda text: text.replace('"energy"', '"enrgy"'), "objective is 'enrgy'; known are time, energy"),
        (lambda text: text.replace("batch = 64\n", ""), "workload[0].batch is missing"),
        (lambda text: text.replace("= 64", "= 0"), "workload[0].batch is 0, less than 1"),
        (lambda text: text.replace('"580"', '"580 to 575"'), "driver is '580 to 575'; write a version"),
        (lambda text: text.replace("L = 4", "L = [4]"), "configuration.L is a list"),
        (lambda text: text.partition("\n[[")[0] + "answer = 3\n", "[[answer]] 1: is no table"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, change: Callable[[str], str], says: str) -> None:
    path = tmp_path / "tuner.lock"
    path.write_text(change(written([ANSWER])), encoding="utf-8")
    with pytest.raises(InputError) as refused:
        read(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert says in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no such lock file; `tuner lock` writes one"):
        read(tmp_path / "tuner.lock")


def test_a_range_of_drivers_holds_what_begins_as_its_ends_do() -> None:
    for driver, held, others in (
        ("580", ("580", "580.65", "580.159.03"), ("57", "579.99", "581", "5800", "model-3")),
        ("575.51 to 580", ("575.51", "575.64", "578", "580.159"), ("575.50", "581.1")),
        ("model-3", ("model-3",), ("model-2", "580")),
    ):
        assert all(covers(driver, version) for version in held)
        assert not any(covers(driver, version) for version in others)
    for version in ("580.159.03", "model-3"):
        assert covers(driver_range(version), version)


def test_answers_to_other_questions_stand_beside_each_other() -> None:
    for change in ({"gpu": "NVIDIA H100"}, {"driver": "575"}, {"objective": "time"}, {"clock_mhz": 990}):
        assert not ANSWER.excludes(replace(ANSWER, **change))
    assert not ANSWER.excludes(replace(ANSWER, workload=(replace(PART, batch=65),)))
    assert ANSWER.excludes(replace(ANSWER, driver="575 to 580.65", measured="2027-01-01"))
