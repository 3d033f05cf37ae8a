import asyncio
import contextlib
import http.client
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from fake_service import FakeService
from hypothesis import given
from hypothesis import strategies as st
from served_service import PATIENCE_S, ServedService, ask, connected, served

from tuner.daemon.http.responses import EventStream, event_text
from tuner.daemon.interface import Peer
from tuner.model.jobs import Event, JobSpec, JobState

ORDER = JobSpec(("scan-lf:N=64",))


@pytest.fixture
def api() -> Iterator[ServedService]:
    with served(followers=2) as running:
        yield running


@contextlib.contextmanager
def following(api: ServedService, target: str, **headers: str) -> Iterator[http.client.HTTPResponse]:
    """The answer to a request that goes on."""
    with contextlib.closing(api.connection()) as connection:
        connection.request("GET", target, headers=headers)
        yield connection.getresponse()


def blocks(response: http.client.HTTPResponse) -> Iterator[dict[str, str]]:
    """The events of a stream: field to text."""
    block: dict[str, str] = {}
    for line in response:
        text = line.decode().rstrip("\n")
        if text:
            name, _, value = text.partition(": ")
            block[name] = value
        else:
            yield block
            block = {}


def submitted(api: ServedService) -> int:
    return api.wait(api.service.submit(ORDER, Peer())).id


def test_a_stream_tells_the_past_then_the_present_and_ends_with_the_job(api: ServedService) -> None:
    """Stored events come with their ids, progress without, in order; the stream ends when the job has."""
    number = submitted(api)
    with following(api, f"/v1/jobs/{number}/events") as response:
        told = blocks(response)
        first = next(told)
        api.wait(api.service.tell(number, "trial", {"number": 1, "cost": float("inf")}, stored=False))
        trial = next(told)
        api.wait(api.service.change(number, JobState.CANCELLED))
        rest = list(told)

    assert response.headers["content-type"].startswith("text/event-stream")
    assert (first["id"], first["event"]) == ("1", "state")
    assert "id" not in trial
    assert '"cost":null' in trial["data"]
    assert [block["id"] for block in rest] == ["2"]


@pytest.mark.parametrize(
    ("target", "headers"),
    [("?after=2", {}), ("", {"Last-Event-ID": "2"}), ("?after=0", {"Last-Event-ID": "2"})],
)
def test_a_stream_goes_on_where_it_was(api: ServedService, target: str, headers: dict[str, str]) -> None:
    """Events up to the one named are not told again."""
    number = submitted(api)
    api.wait(api.service.change(number, JobState.PAUSED))
    api.wait(api.service.change(number, JobState.CANCELLED))
    with following(api, f"/v1/jobs/{number}/events{target}", **headers) as response:
        assert [block["id"] for block in blocks(response)] == ["3"]


def test_a_reader_who_left_is_noticed_behind_further_requests(api: ServedService) -> None:
    """Requests behind a stream keep its end from being read; what is sent next finds nobody there."""
    number = submitted(api)
    request = f"GET /v1/jobs/{number}/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connected(api.path) as connection:
        connection.sendall(request.encode() * 3)
        assert connection.recv(12) == b"HTTP/1.1 200"
    api.wait(api.service.tell(number, "trial", {}, stored=False))
    while api.server.server_state.connections or api.service.following:
        api.wait(asyncio.sleep(0.01))
    assert not len(api.server._server_limits.slots)


@pytest.mark.parametrize("last", ["x", "-1", "9223372036854775808"])
def test_a_wrong_last_event_is_refused(api: ServedService, last: str) -> None:
    """An id that cannot be one is the client's fault."""
    answer = api.ask("GET", f"/v1/jobs/{submitted(api)}/events", headers={"Last-Event-ID": last})

    assert (answer.status, answer.kind) == (422, "input")


def test_followers_are_limited_and_their_places_come_back(api: ServedService) -> None:
    """One user does not get all places; who leaves makes room, and the service is told to stop telling."""
    number = submitted(api)
    target = f"/v1/jobs/{number}/events"
    with following(api, target) as response:
        next(blocks(response))
        refused = api.ask("GET", target)
        assert (refused.status, refused.kind) == (429, "too-many")
        assert "retry-after" in refused.headers
        assert api.service.following == 1
        api.wait(api.service.change(number, JobState.CANCELLED))
        list(blocks(response))
    with following(api, target) as response:
        assert len(list(blocks(response))) == 2
    assert api.service.following == 0


def test_a_follower_that_leaves_is_noticed(api: ServedService) -> None:
    """A closed connection ends the telling, although the job goes on and says nothing."""
    number = submitted(api)
    left = threading.Event()
    events = api.service.events

    async def watched(number: int, after: int = 0) -> AsyncIterator[Event]:
        try:
            async for event in events(number, after):
                yield event
        finally:
            left.set()

    api.service.events = watched  # type: ignore[method-assign]  # the same, and it says when it is closed
    with following(api, f"/v1/jobs/{number}/events") as response:
        next(blocks(response))

    assert left.wait(PATIENCE_S)


def test_stopping_ends_streams(api: ServedService) -> None:
    """When the daemon stops, followers see the end of the stream, not a broken connection."""
    number = submitted(api)
    with following(api, f"/v1/jobs/{number}/events") as response:
        told = blocks(response)
        next(told)
        api.loop.call_soon_threadsafe(api.server.stop)

        assert list(told) == []


def test_others_are_answered_while_somebody_follows(api: ServedService) -> None:
    """A stream keeps nobody waiting."""
    number = submitted(api)
    with following(api, f"/v1/jobs/{number}/events") as response:
        next(blocks(response))
        with contextlib.closing(api.connection()) as connection:
            assert ask(connection, "GET", "/v1/status").status == 200


def test_silence_is_filled_with_comments() -> None:
    """While nothing happens, comments keep the connection alive; they end with the stream."""

    async def main() -> list[bytes]:
        service = FakeService()
        job = await service.submit(ORDER, Peer())
        sent: list[bytes] = []

        async def receive() -> Any:
            return await asyncio.get_running_loop().create_future()

        async def send(message: Any) -> None:
            sent.append(message.get("body", b""))
            if sent.count(b":\n\n") == 3 and not service.rows[job.id].state.ended:
                await service.change(job.id, JobState.CANCELLED)

        done: list[None] = []
        stream = EventStream(
            service.events(job.id), asyncio.Event(), lambda: done.append(None), event_text, keep_alive_s=0.001
        )
        await asyncio.wait_for(stream({}, receive, send), PATIENCE_S)
        assert len(done) == 1
        return sent

    sent = asyncio.run(main())
    assert sent.count(b":\n\n") >= 3
    assert sent[-1] == b""


@given(
    st.dictionaries(st.text(), st.text() | st.floats() | st.none() | st.lists(st.text())),
    st.none() | st.integers(0, 2**63 - 1),
)
def test_no_text_breaks_out_of_an_event(data: dict[str, Any], number: int | None) -> None:
    """Whatever an event holds, line ends and halves of characters too, it is one block of known lines."""
    text = event_text(Event("told", "now", 1, data, number)).decode()

    assert text.endswith("\n\n")
    names = [line.partition(": ")[0] for line in text[:-2].split("\n")]
    assert names == ["id", "event", "data"][number is None :]
    assert "\r" not in text
