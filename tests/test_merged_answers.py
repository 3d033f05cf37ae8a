"""Answers of merged runs: served where their kernel is here, ranked without the clocks of hosts."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from answering_scene import H200, TWIN, Answers, conditions, refresh, shipped, store_run

from tuner.daemon.interface import Question
from tuner.database import Store
from tuner.database.best_known import DatabaseSource, best_known
from tuner.database.faults import mirror_of
from tuner.database.integrity.checksums import TABLES, row_checksum
from tuner.database.merging import merge_file
from tuner.database.ranking import AnswerQuery
from tuner.model import DeviceIdentity

NAME = "scan-lf:N=1024"
NEAR = "scan-lf:N=512"
OTHER_SOURCES: dict[str, Any] = {"sources": {"scan-lf": "0" * 64}}


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Store]:
    """The database of another host."""
    with Store(tmp_path / "there.db") as store:
        yield store


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Store]:
    """This host's."""
    with Store(tmp_path / "here.db") as store:
        yield store


def merge(here: Store, there: Store) -> None:
    """Take over what the other host has."""
    assert not merge_file(here.database, there.path, source="host-b").refused


def query(name: str = NAME, device: DeviceIdentity = H200) -> AnswerQuery:
    """A question of this host."""
    workload = shipped().workload(name)
    kernel = shipped().kernel(workload.kernel)
    return AnswerQuery((workload,), {kernel.name: kernel}, {kernel.name: kernel.fingerprint}, "", device)


def set_times(store: Store, run: int, at: str) -> None:
    """Let a run have been measured by a host with another clock."""
    names = TABLES["runs"].all_columns
    for path in (store.path, mirror_of(store.path)):
        with closing(sqlite3.connect(path)) as connection, connection:
            (row,) = connection.execute(f"SELECT {', '.join(names)} FROM runs WHERE id = ?", (run,))  # noqa: S608
            values = dict(zip(names, row, strict=True)) | {"started_at": at, "ended_at": at}
            del values["checksum"]
            connection.execute(
                "UPDATE runs SET started_at = ?, ended_at = ?, checksum = ? WHERE id = ?",
                (at, at, row_checksum("runs", *values.values()), run),
            )


@pytest.mark.parametrize(("device", "stale"), [(H200, False), (TWIN, True)], ids=["this GPU", "its twin"])
def test_answers_of_kernels_that_are_here_are_served(
    here: Store, there: Store, device: DeviceIdentity, stale: bool
) -> None:
    """A merged answer is served like one of this database, and says that it was merged."""
    store_run(there, [NAME], device)
    merge(here, there)
    found = best_known(query(), DatabaseSource(here)).stored
    assert found is not None
    assert "merged from host-b" in found.answer.told
    assert bool(found.stale) is stale


@pytest.mark.parametrize("asked", [NAME, NEAR])
def test_answers_of_other_sources_are_known_and_never_served(here: Store, there: Store, asked: str) -> None:
    """A run whose kernel is not here is in the history, and serves neither its size nor a near one."""
    store_run(there, [NAME], H200, bound=OTHER_SOURCES)
    merge(here, there)
    assert [run.conditions["sources"] for run in here.history()] == [OTHER_SOURCES["sources"]]
    found = best_known(query(asked), DatabaseSource(here))
    assert found.stored is None
    assert found.origin == "default"


def test_an_own_answer_of_other_sources_is_still_served_as_stale(here: Store, there: Store) -> None:
    """What changes here after its own run was measured is no reason to forget it."""
    own = store_run(here, [NAME], H200, bound=OTHER_SOURCES)
    store_run(there, [NAME], H200, bound=OTHER_SOURCES, place=3)
    merge(here, there)
    found = best_known(query(), DatabaseSource(here)).stored
    assert found is not None
    assert found.answer.run == own
    assert found.stale


def test_the_daemon_does_not_serve_answers_of_other_sources(here: Store, there: Store) -> None:
    """The daemon does not keep them in memory; an own answer of the same workload is served."""
    store_run(there, [NAME], H200, bound=OTHER_SOURCES)
    own = store_run(here, [NAME], H200, place=1)
    merge(here, there)
    answers = Answers(shipped(), {H200.spec: H200})
    refresh(answers.answerer, here)
    assert [answer.run for answer in answers.answerer.snapshot.index.answers] == [own]
    assert answers.reply(Question((NAME,))).run == own


def test_the_daemon_tunes_what_was_merged_only_where_it_is_asked_for(here: Store, there: Store) -> None:
    """The stale answer of another GPU is no reason for a job until somebody uses it."""
    store_run(there, [NAME], TWIN)
    merge(here, there)
    answers = Answers(shipped(), {H200.spec: H200})
    refresh(answers.answerer, here)
    assert not answers.backlog.candidates()
    assert answers.reply(Question((NAME,))).stale
    assert [one.spec.workloads for one in answers.backlog.candidates()] == [(NAME,)]


@pytest.mark.parametrize("at", ["1999-01-01T00:00:00.000+00:00", "2999-01-01T00:00:00.000+00:00"])
def test_the_clock_of_a_host_neither_wins_nor_loses(here: Store, there: Store, at: str) -> None:
    """A run that was measured here after a merge goes before the merged one, whatever its host's clock."""
    set_times(there, store_run(there, [NAME], H200), at)
    merge(here, there)
    found = best_known(query(), DatabaseSource(here)).stored
    assert found is not None
    assert found.answer.at == at
    own = store_run(here, [NAME], H200, place=2)
    found = best_known(query(), DatabaseSource(here)).stored
    assert found is not None
    assert found.answer.run == own


@pytest.mark.parametrize("at", ["1999-01-01T00:00:00.000+00:00", "2999-01-01T00:00:00.000+00:00"])
def test_a_run_that_has_begun_never_learns_of_a_merge(here: Store, there: Store, at: str) -> None:
    """What a run knew when it began is what it knows when it is resumed; the next run knows more."""
    set_times(there, store_run(there, [NAME], TWIN), at)
    run = here.begin(conditions([NAME], H200))
    merge(here, there)
    assert not list(here.finished_before(run, "scan-lf", "energy"))
    later = here.begin(conditions([NAME], H200))
    assert len(list(here.finished_before(later, "scan-lf", "energy"))) == 1
