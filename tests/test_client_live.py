"""``tuner.Client`` on what is stored and on the stream of everything, against a scripted daemon."""

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from run_documents import answered, trial
from scripted_daemon import Request, ScriptedDaemon, answer, event, stream
from terminal_scene import served_answer

from tuner.client import Client
from tuner.model.errors import DaemonError, DaemonUnavailableError


def test_watching_goes_on_where_it_was(tmp_path: Path) -> None:
    """After the stream was cut the client asks again, with the place of the last event that had one."""
    said = [
        stream(event(None, "begin", resumed=False), b"id: aa-7\nevent: job\ndata: " + _job(), whole=False),
        stream(event(None, "begin", resumed=True)),
    ]
    with ScriptedDaemon(tmp_path / "s", lambda _: said.pop(0)) as daemon:
        watched = list(islice(Client(daemon.path).watch(power=True), 3))

    assert [one.kind for one in watched] == ["begin", "job", "begin"]
    assert watched[1].job == 1
    assert [request.headers.get("Last-Event-ID") for request in daemon.asked] == [None, "aa-7"]
    assert daemon.asked[0].query == {"power": ["true"]}


def _job() -> bytes:
    return b'{"kind": "job", "at": "2026-11-21T22:00:00+00:00", "job": 1, "data": {}}\n\n'


def test_a_daemon_that_stays_away_ends_the_watching(tmp_path: Path) -> None:
    """Patience has an end."""
    watched = Client(tmp_path / "s", patience_s=0.0).watch()
    with pytest.raises(DaemonUnavailableError, match="no daemon listens"):
        next(watched)


def test_an_event_that_is_none_is_told(tmp_path: Path) -> None:
    """What another program streams is no event."""
    with ScriptedDaemon(tmp_path / "s", lambda _: stream(b"data: {}\n\n")) as daemon:
        watched = Client(daemon.path).watch()
        with pytest.raises(DaemonError, match="does not answer as tunerd does"):
            next(watched)


def test_trials_are_read_page_by_page(tmp_path: Path) -> None:
    """The pages of a run make one list, and no page is asked for twice."""

    def page(request: Request) -> bytes:
        after = int(request.query["after"][0])
        return answer({"trials": [trial({}, number=after + 1)], "next": after + 1 if after < 2 else None})

    with ScriptedDaemon(tmp_path / "s", page) as daemon:
        numbers = [one["number"] for one in Client(daemon.path).archive.trials(4)]

    assert numbers == [1, 2, 3]
    assert {request.path for request in daemon.asked} == {"/v1/runs/4/trials"}


def test_what_is_stored_is_asked_for_by_its_routes(tmp_path: Path) -> None:
    """Each method asks its route with what was named, and gives what is listed there."""
    rows: Any = {
        **answered(None, ["a:N=1"]),
        "runs": [{"run": 2}],
        "answers": [served_answer()],
        "history": [],
        "samples": [{"verdict": "inside"}],
    }
    with ScriptedDaemon(tmp_path / "s", lambda _: answer(rows)) as daemon:
        client = Client(daemon.path)
        assert client.archive.runs("scan-lf:N=4", limit=5, before=9) == rows["runs"]
        assert client.archive.answers(stale=True) == [served_answer()]
        assert client.archive.history() == []
        assert client.archive.samples(2) == rows["samples"]
        assert client.archive.run(2) == rows
        assert client.power() == rows

    asked = [(request.path, request.query) for request in daemon.asked]
    assert asked[0] == ("/v1/runs", {"workload": ["scan-lf:N=4"], "limit": ["5"], "before": ["9"]})
    assert asked[1] == ("/v1/answers", {"stale": ["true"]})
    assert [path for path, _ in asked[2:]] == ["/v1/history", "/v1/runs/2/samples", "/v1/runs/2", "/v1/power"]


@pytest.mark.parametrize("said", [[1], {"runs": 3}, {"runs": [3]}])
def test_a_list_that_is_none_is_told(tmp_path: Path, said: object) -> None:
    """Answers of another form are no daemon's of this version."""
    serving = ScriptedDaemon(tmp_path / "s", lambda _: answer(said))
    with serving as daemon, pytest.raises(DaemonError, match="does not answer as tunerd does"):
        Client(daemon.path).archive.runs()
