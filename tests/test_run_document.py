"""The document of a run: what is taken for one, every reader can read."""

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

from tuner.model.errors import InputError
from tuner.model.run_document import RunDocument, run_document
from tuner.model.typed import UnfitError
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
