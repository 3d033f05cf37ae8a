"""What is stored is served whole, a page at a time, and in one form."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from answering_scene import TX1, Answers, refresh, shipped
from served_service import ServedService, served
from service_rig import Rig, plays, settings, works
from stored_trials import NAME, store_sample, store_trials

from tuner.daemon.http.api_models import AnswerRow, HistoryRow, RunRow, TrialsAnswer
from tuner.daemon.interface import NoSuchRunError
from tuner.daemon.stored_runs import Archive
from tuner.database.runs import Store
from tuner.database.storage import Storage


async def archived(folder: Path) -> tuple[Rig, int]:
    """A service over a database with one finished run of four trials."""
    run = store_trials(folder / "tuner.db", 4, ended=True)
    rig = Rig(folder, settings())
    await rig.service.begin()
    return rig, run


@plays
async def test_trials_come_in_pages_with_what_the_search_saw(tmp_path: Path) -> None:
    """Every trial comes once, in order; of a contender both what the search saw and its repeats."""
    rig, run = await archived(tmp_path)
    first = await rig.service.archive.trials(run, 3)
    assert first["next"] is not None
    rest = await rig.service.archive.trials(run, 3, first["next"])
    trials = [*first["trials"], *rest["trials"]]

    assert [trial["number"] for trial in trials] == [1, 2, 3, 4]
    assert (first["count"], rest["next"]) == (4, None)
    assert [trial["confirmed"] for trial in trials] == [True, False, False, False]
    assert trials[0]["searched"] is not None
    assert (trials[0]["energy_j"], trials[0]["searched"]["energy_j"]) == (0.9, 1.0)
    assert trials[1]["searched"] is None
    assert (trials[3]["status"], trials[3]["energy_j"]) == ("wrong-answer", None)
    assert TrialsAnswer.model_validate(first).trials[0].energy_j_uncertainty
    await rig.service.end()
    await rig.storage.close()


@plays
async def test_a_run_is_told_without_its_trials(tmp_path: Path) -> None:
    """A list has rows, one run its document; neither holds all trials."""
    rig, run = await archived(tmp_path)
    (row,) = await rig.service.archive.runs((), 10)
    document = await rig.service.archive.run(run)

    assert RunRow.model_validate(row).run == run
    assert (row["workloads"], row["trials"], row["status"]) == ([NAME], 4, "finished")
    assert document["best"] is not None
    assert (document["run"], document["best"]["time_s"]) == (run, 0.01)
    assert "trials" not in document
    assert await rig.service.archive.runs(("scan-lf:N=8",), 10) == []
    assert await rig.service.archive.runs((), 10, run) == []
    await rig.service.end()
    await rig.storage.close()


@works()
async def test_a_run_that_goes_on_has_a_document(rig: Rig) -> None:
    """Before its answer a run has the keys that its conditions and trials give."""
    run = store_trials(rig.storage.path, 3)
    document = await rig.service.archive.run(run)

    assert document["best"] is None
    assert document["space"] == {"measured": 3, "failed": 1}


def test_answers_tell_why_they_are_stale_and_what_they_save(tmp_path: Path) -> None:
    """An answer has its saving with an interval; two samples outside on one side make it stale."""
    path = tmp_path / "tuner.db"
    run = store_trials(path, 4, ended=True)
    fresh = answers_of(path)
    store_sample(path, run, "above")
    store_sample(path, run, "above")
    stale = answers_of(path)

    (answer,) = fresh[False]
    assert fresh[True] == []
    assert AnswerRow.model_validate(answer).saving is not None
    assert answer["saving"]["energy_j"] == pytest.approx(0.5)
    assert answer["saving"]["energy_j_interval"] > 0
    assert stale[False] == []
    assert stale[True][0]["stale"] == ["drifted: it is above"]
    assert stale[True][0]["sample"] == "above"


def answers_of(path: Path) -> dict[bool, Any]:
    answers = Answers(shipped(), {TX1.spec: TX1})
    with Store(path) as store:
        refresh(answers.answerer, store)
    archive = Archive(cast("Storage", None), answers.answerer)  # answers are in memory
    return {stale: archive.answers(stale=stale) for stale in (False, True)}


@plays
async def test_the_history_of_an_answer_has_its_samples(tmp_path: Path) -> None:
    """Answers over time come newest first, with driver, saving and what measuring again has given."""
    rig, first = await archived(tmp_path)
    second = store_trials(rig.storage.path, 2, ended=True)
    store_trials(rig.storage.path, 2)  # without an answer
    store_sample(rig.storage.path, first, "inside")
    rows = await rig.service.archive.history((NAME,), 10)

    assert [row["run"] for row in rows] == [second, first]
    assert [HistoryRow.model_validate(row).samples[0].verdict for row in rows[1:]] == ["inside"]
    assert await rig.service.archive.samples(first) == rows[1]["samples"]
    assert rows[0]["samples"] == []
    await rig.service.end()
    await rig.storage.close()


@works()
async def test_a_run_that_is_not_there_is_told(rig: Rig) -> None:
    """No run, no trials and no samples of it."""
    for asked in (
        rig.service.archive.run(7),
        rig.service.archive.trials(7, 1),
        rig.service.archive.samples(7),
    ):
        with pytest.raises(NoSuchRunError, match="there is no run 7"):
            await asked


# --- over HTTP ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def api() -> Iterator[ServedService]:
    with served() as running:
        yield running


@pytest.mark.parametrize(
    ("target", "status", "kind"),
    [
        ("/v1/runs/2", 404, "unknown-run"),
        ("/v1/runs/2/trials", 404, "unknown-run"),
        ("/v1/runs/0", 422, "input"),
        ("/v1/runs?limit=501", 422, "input"),
        ("/v1/runs/1/trials?after=-1", 422, "input"),
        ("/v1/answers?stale=perhaps", 422, "input"),
        ("/v1/history?workload=", 422, "input"),
        ("/v1/power?colour=red", 200, None),
    ],
)
def test_wrong_questions_of_the_past_are_refused(
    api: ServedService, target: str, status: int, kind: str | None
) -> None:
    """What is not there is 404 with a kind of its own, what is no question 422."""
    answer = api.ask("GET", target)

    assert answer.status == status
    assert kind is None or answer.kind == kind


def test_a_follower_says_where_it_was(api: ServedService) -> None:
    """Last-Event-ID goes to the service as it came, and events carry their places."""
    answer = api.ask("GET", "/v1/events?power=true", headers={"Last-Event-ID": "0123abcd-7"})

    assert api.service.places[-1] == ("0123abcd-7", True)
    assert answer.body == b'event: begin\ndata: {}\n\nid: 0123abcd-1\nevent: job\ndata: {"job":1}\n\n'
    api.ask("GET", "/v1/events?after=0123abcd-9")
    assert api.service.places[-1] == ("0123abcd-9", False)
    assert api.ask("GET", "/v1/events", headers={"Last-Event-ID": "<script>"}).status == 422


def test_followers_of_everything_have_the_places_of_followers() -> None:
    """The limit of [limits] followers holds for both kinds of streams together."""
    with served(followers=1) as api:
        gate = api.wait(_event())

        async def held(place: str = "", *, power: bool = False) -> Any:
            del place, power
            await gate.wait()
            return
            yield

        api.service.follow = held  # type: ignore[method-assign]
        connection = api.connection()
        connection.request("GET", "/v1/events")
        assert connection.getresponse().status == 200
        assert api.ask("GET", "/v1/events").status == 429
        connection.close()


async def _event() -> asyncio.Event:
    return asyncio.Event()
