"""The document of a run, its trials and its power over time: what is taken for one, every reader can read."""

import copy
import gzip
import io
import json
import re
import sqlite3
from contextlib import closing
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cli_process import tuner
from hypothesis import given
from hypothesis import strategies as st
from json_places import places, with_value
from rich.console import Console

from tuner.model.errors import InputError, StoreError
from tuner.model.plan import Configuration
from tuner.model.records import measurement_from, measurement_record, trial_from, trial_record
from tuner.model.run_document import RunDocument, run_document
from tuner.model.trial import (
    MOST_POINTS,
    Energy,
    Flag,
    Measurement,
    PowerSeries,
    Status,
    Trial,
    WorkloadResult,
    mean_powers,
    series_of,
    unpacked,
)
from tuner.model.typed import UnfitError, canonical
from tuner.model.typed import document as parsed
from tuner.recordings.exchange.exported_run import run_of_document
from tuner.report.answer import within_slowdown
from tuner.report.diff import diff_report
from tuner.report.html.report import pair_page, run_page
from tuner.report.run_report import run_report
from tuner.report.trials_table import csv_of, ranked_trials, selected

EARLIER = Path(__file__).parent / "data" / "tuner-0.1.db.gz"
NUMBERS = (0, -1, 1, 2**70, True, 1e-300, 1e300, float("nan"), float("inf"), 10**400)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from(NUMBERS)
    | st.floats()
    | st.text(max_size=4)
    | st.just("x" * 9999),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


@cache
def documents(folder: Path) -> tuple[Any, ...]:
    """Documents of runs of every kind, as JSON has them."""
    database, joint, front = folder / "tuner.db", folder / "joint.json", folder / "front.json"
    common = ("--device", "sim:h200", "--database", database, "--budget", "6")
    several = ("scan-lf:N=4", "fft:N=4", "--clocks", "auto", "--runs-per-day", "1000", "--solo-bests", "2")
    assert tuner("run", *several, *common, "--json", joint).exit_code == 0
    alone = ("scan-lf:N=4", "--objective", "pareto", "--power-limits", "all", "--with-series")
    assert tuner("run", *alone, *common, "--json", front).exit_code == 0
    earlier = folder / "earlier.db"
    earlier.write_bytes(gzip.decompress(EARLIER.read_bytes()))
    with closing(sqlite3.connect(earlier)) as connection:
        stored = [text for (text,) in connection.execute("SELECT answer FROM runs WHERE answer IS NOT NULL")]
    found = tuple(map(json.loads, (joint.read_text(), front.read_text(), *stored)))
    names = ("priorities", "configurations", "both")
    parts = {
        "repeats": 3,
        **{name: dict(found[0]["against_default"]) for name in names},
    }  # of real GPUs alone
    found[0]["solo_best_priorities"] = {
        "tried": 4,
        "equal": copy.deepcopy(found[0]["default"]),
        "against_equal": parts,
    }
    return found


@pytest.fixture(scope="module")
def every_kind(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    return documents(tmp_path_factory.mktemp("documents"))


def read_everywhere(document: RunDocument, other: RunDocument) -> None:
    """Have every reader of a document read it."""
    console = Console(file=io.StringIO(), width=80)
    console.print(run_report(document, 80, verbose=True))
    console.print(diff_report(document, other, ("A", "B"), 80))
    console.print(diff_report(other, document, ("A", "B"), 80))
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    run_page(document, now)
    pair_page(other, document, ("A", "B"), now)
    csv_of(document, selected(document, ranked_trials(document), sort="rank", where=None, status=None))
    for read in (lambda: within_slowdown(document, 0.05), lambda: run_of_document(document, "run 1")):
        try:
            found = read()
        except InputError:
            continue
        if isinstance(found, dict):
            run_report(found, 80, verbose=True)


def test_every_document_of_a_run_is_one(every_kind: tuple[Any, ...]) -> None:
    """Runs of today and of 0.1 pass the check unchanged, and everything reads them."""
    for document in every_kind:
        before = copy.deepcopy(document)
        assert run_document(document) is document
        assert document == before
        read_everywhere(document, document)


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (("front",), "x", "answer.front is 'x', not a list"),
        (("space",), None, "answer.space is None, not an object"),
        (("solo_bests",), "x", "answer.solo_bests is 'x', not an object"),
        (("solo_best_priorities", "tried"), -1, "answer.solo_best_priorities.tried is -1"),
        (
            ("solo_best_priorities", "equal", "configurations"),
            {},
            "solo_best_priorities.equal.configurations lacks",
        ),
        (("break_even", "cost"), "x", "answer.break_even.cost is 'x', not a finite number"),
        (
            ("against_default", "slowdown"),
            {},
            "against_default.slowdown is an object, not a finite number",
        ),
        (("best", "time_s"), float("nan"), "answer.best.time_s is nan, not a finite number"),
        (("best", "energy_j"), True, "answer.best.energy_j is True, not a finite number"),
        (("wall_s",), 1e300, "answer.wall_s is 1e+300, not of a size that was ever measured"),
        (("best", "configurations"), {}, "answer.best.configurations lacks"),
        (("workloads", 0, "best"), None, "answer.workloads[0].best is missing"),
    ],
)
def test_the_key_is_named(every_kind: tuple[Any, ...], place: tuple[Any, ...], value: Any, says: str) -> None:
    """A refusal says which key is wrong, and what would be right."""
    with pytest.raises(UnfitError, match=re.escape(says)):
        run_document(with_value(every_kind[0], place, value), "answer")


def test_a_product_of_spaces_may_be_larger_than_an_integer_of_sqlite(every_kind: tuple[Any, ...]) -> None:
    """Eight workloads of 1,000 configurations have 10^24 together."""
    large = with_value(every_kind[0], ("space", "size"), 10**24)
    assert run_document(parsed(json.dumps(large))) == large


@given(st.data())
def test_no_reader_raises(every_kind: tuple[Any, ...], data: st.DataObject) -> None:
    """With any value in any place a document is refused, or read by every reader."""
    document = data.draw(st.sampled_from(every_kind), "document")
    place = data.draw(st.sampled_from(list(places(document))), "place")
    changed = with_value(document, place, data.draw(JSON, "value"))
    try:
        found = run_document(changed)
    except UnfitError:
        return
    read_everywhere(found, document)


values = st.one_of(st.booleans(), st.integers(-(2**31), 2**31), st.text(max_size=5))
configurations = st.dictionaries(st.text(min_size=1, max_size=3), values, min_size=1, max_size=4).map(
    Configuration
)
positive = st.floats(1e-9, 1e9)
energies = st.builds(
    Energy,
    *(positive, positive, positive, st.text(max_size=5), st.text(max_size=5)),
    degrees=st.none() | positive,
    idle_watts=st.none() | positive,
    idle_uncertainty_w=positive,
)
measurements = st.builds(
    Measurement,
    st.lists(
        st.builds(
            WorkloadResult, st.sampled_from(Status), st.none() | positive, positive, st.text(max_size=9)
        ),
        min_size=1,
        max_size=3,
    ).map(tuple),
    st.none() | positive,
    energy=st.none() | energies,
    rounds=st.integers(0, 10**6),
    clock_mhz=st.none() | positive,
    flags=st.lists(st.text(max_size=5).map(Flag.parse), max_size=2).map(tuple),
    modelled=st.booleans(),
    temperature_c=st.none() | positive,
)


@given(measurements)
def test_measurement_survives_json(measurement: Measurement) -> None:
    """What is stored comes back equal, through JSON text."""
    assert measurement == measurement_from(json.loads(canonical(measurement_record(measurement))))


@given(configurations, configurations, *[st.none() | st.integers(1, 3000)] * 2)
def test_trial_survives_json(
    a: Configuration, b: Configuration, clock_mhz: int | None, power_limit_w: int | None
) -> None:
    """A trial comes back equal and with the same hash, though the text has its keys sorted."""
    trial = Trial((a, b), clock_mhz, power_limit_w)
    restored = trial_from(json.loads(canonical(trial_record(trial, ("x", "y")))), ("x", "y"))

    assert trial == restored
    assert hash(trial) == hash(restored)


@pytest.mark.parametrize("record", [{}, {"results": 3}, {"results": [{"status": "odd"}]}])
def test_foreign_measurement_is_refused(record: dict[str, object]) -> None:
    """A record of another shape is a StoreError, not a half-made measurement."""
    with pytest.raises(StoreError, match="not understood"):
        measurement_from(record)


def test_a_measurement_without_a_temperature_is_readable() -> None:
    """Databases of versions that kept none open; and one without a temperature is stored as these were."""
    record = measurement_record(Measurement((WorkloadResult(Status.OK, 1.0),), 1.0))

    assert "temperature_c" not in record
    assert measurement_from(record).temperature_c is None


def test_an_energy_without_idle_power_is_readable() -> None:
    """Trials stored before idle power was measured are read, and have no net joules."""
    energy = Energy(2.0, 0.1, 200.0, "counter", "gpu")
    record = json.loads(canonical(measurement_record(Measurement((), 0.01, energy=energy))))
    for key in ("degrees", "idle_watts", "idle_uncertainty_w"):
        del record["energy"][key]

    restored = measurement_from(record).energy

    assert restored == energy
    assert energy.net_joules is None
    assert energy.net_uncertainty_j is None


points = st.lists(st.tuples(st.floats(-10, 1e4), st.floats(0, 2e3)), min_size=1, max_size=40).map(sorted)


@given(points)
def test_series_come_back_to_four_digits(found: list[tuple[float, float]]) -> None:
    """A packed series gives times to 0.1 ms, and power to four digits of the highest, back."""
    series = series_of(found)

    again = unpacked(series.packed())

    highest = max(series.watts)
    assert again.times_s == pytest.approx(series.times_s, abs=5.1e-5)
    assert again.watts == pytest.approx(series.watts, abs=max(0.51e-3 * highest, 1e-4))


def test_series_take_few_bytes() -> None:
    """A sample takes less than six bytes where power moves by tens of watts between samples."""
    series = series_of([(0.1 * i, 600.0 + 30.0 * (i % 3)) for i in range(100)])

    assert len(series.packed()) <= 540


def test_long_series_are_joined() -> None:
    """Of more samples than a series holds, neighbours become their mean."""
    series = series_of([(0.001 * i, float(i % 2)) for i in range(2 * MOST_POINTS)])

    assert len(series.watts) == MOST_POINTS
    assert set(series.watts) == {0.5}


def test_counters_are_mean_powers() -> None:
    """From tick to tick; a counter that restarts leaves a gap."""
    ticks = [(0.0, 100.0), (0.1, 160.0), (0.1, 170.0), (0.2, 5.0), (0.4, 125.0)]

    times_s, watts = zip(*mean_powers(ticks), strict=True)
    assert times_s == (0.0, 0.2)
    assert watts == pytest.approx((600.0, 600.0))


def test_nothing_is_an_empty_text() -> None:
    """Without samples there is no text."""
    assert series_of([]).packed() == ""
    assert unpacked("") == PowerSeries((), ())


@pytest.mark.parametrize("text", ["?", "AA==", "/////w==", "AAIC", "gICAgICAgICAgIAB"])
def test_damaged_series_are_refused(text: str) -> None:
    """A text that no series was packed into is an error, not numbers."""
    with pytest.raises(ValueError, match="a power series"):
        unpacked(text)
