"""Answers of merged runs: served where their kernel is here, ranked without the clocks of hosts."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from answering_scene import H200, TWIN, Answers, conditions, document, refresh, shipped, store_run
from cli_process import tuner

from tuner.daemon.interface import Question
from tuner.database.best_known import DatabaseSource, best_known
from tuner.database.files import mirror_of
from tuner.database.integrity.checksums import TABLES, row_checksum
from tuner.database.merging import merge_file
from tuner.database.ranking import AnswerQuery
from tuner.database.runs import Store
from tuner.model.jobs import DeviceIdentity
from tuner.model.records import RunStatus

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
    assert not list(here.finished_before(run, "scan-lf", "time"))
    later = here.begin(conditions([NAME], H200))
    assert len(list(here.finished_before(later, "scan-lf", "time"))) == 1


# --- configurations that a kernel does not have ----------------------------------------------------

EVIL = "1 -ccbin /tmp/evil -DW=1"


def forged(there: Store, values: dict[str, Any], *names: str, **changes: Any) -> int:
    """Store the run of a host that says what no kernel has, under the right name and sources."""
    given = names or (NAME,)
    made = document(given)
    assert made["best"] is not None
    for configuration in made["best"]["configurations"].values():
        configuration.update(values)
    number = there.begin(conditions(given, H200, **changes))
    there.end(number, RunStatus.FINISHED, made)
    return number


@pytest.mark.parametrize(
    "values", [{"store": EVIL}, {"P": 3}, {"unknown": 1}, {"stream_priority": EVIL}], ids=str
)
@pytest.mark.parametrize("asked", [(NAME,), (NAME, "fft:N=1024")], ids=["alone", "together"])
def test_a_configuration_that_its_kernel_lacks_is_not_served(
    here: Store, there: Store, values: dict[str, Any], asked: tuple[str, ...]
) -> None:
    """It neither is the answer nor hides another one, and why is said."""
    own = store_run(here, list(asked), H200)
    forged(there, values, *asked)
    merge(here, there)
    workloads = tuple(map(shipped().workload, asked))
    kernels = {one.kernel: shipped().kernel(one.kernel) for one in workloads}
    found = best_known(
        AnswerQuery(workloads, kernels, {n: k.fingerprint for n, k in kernels.items()}, "", H200),
        DatabaseSource(here),
    )
    assert found.stored is not None
    assert found.stored.answer.run == own
    (why,) = found.passed_over
    assert "merged from host-b is not served: " in why
    assert next(iter(values)) in why


def test_the_daemon_neither_serves_it_nor_lets_it_hide_another(
    here: Store, there: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Of answers alike the newest is kept in memory: a forged one is none of them, and is in the log."""
    own = store_run(here, [NAME], H200)
    forged(there, {"store": EVIL})
    merge(here, there)
    answers = Answers(shipped(), {H200.spec: H200})
    refresh(answers.answerer, here)
    assert answers.reply(Question((NAME,))).run == own
    assert "merged from host-b is not served" in caplog.text
    assert EVIL in caplog.text


def test_commands_say_why_an_answer_is_not_served(here: Store, there: Store) -> None:
    """The run of a host whose answer was changed is served by none, with an own answer and without one."""
    name, where = "scan-lf:N=4", ("--device", "sim:h200", "--objective", "time")
    assert tuner("run", name, *where, "--budget", "2", "--database", there.path).exit_code == 0
    measured = there.run(1)
    assert measured is not None
    assert measured.answer is not None
    assert measured.answer["best"] is not None
    measured.answer["best"]["configurations"][name]["cap"] = EVIL
    device = DeviceIdentity(**measured.conditions["device"])
    number = there.begin(conditions([name], device, objective="time"))
    for place, (trial, gave) in enumerate(there.trials(1, [name]), start=1):
        there.add(number, place, trial, gave, [name])
    there.end(number, RunStatus.FINISHED, measured.answer)
    merge(here, there)

    def ranked_first(database: Path) -> str:
        said = tuner("best", name, *where, "--database", database)
        assert EVIL not in said.stdout
        return " ".join(said.stderr.split())

    assert "run 1 of" in ranked_first(here.path)
    assert "merged from host-b is not served: scan-lf:N=4: configuration: cap is" in ranked_first(here.path)
    exported = tuner("export", "1", "--database", here.path)
    assert (exported.exit_code, exported.stdout) == (2, "")
    assert "scan-lf:N=4: a configuration of its run is none of the kernel" in exported.stderr
