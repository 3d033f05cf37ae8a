"""The thread that reads the daemon's events for a view."""

import threading
from collections.abc import Iterator
from pathlib import Path

from scripted_daemon import PATIENCE_S, Request, ScriptedDaemon, UnfinishedAnswer, error, event, stream

from tuner.cli.top.live_state import EventReader
from tuner.client import Client, Event
from tuner.model.errors import DaemonAbsentError, DaemonRefusedError, TunerError


def threads() -> list[threading.Thread]:
    """Those that read."""
    return [thread for thread in threading.enumerate() if thread.name == "events"]


def end() -> None:
    """Return when none reads any more."""
    for thread in threads():
        thread.join(PATIENCE_S)
    assert not threads()


def taken(reader: EventReader) -> Iterator[Event | TunerError]:
    """What it reads, as it comes."""
    while threads():
        yield from reader.take()


def test_it_asks_for_power_and_ends_when_it_is_closed(tmp_path: Path) -> None:
    """The stream is the one that has power sampled; after closing nothing is looked for any more."""
    began = UnfinishedAnswer(stream(event(None, "begin", resumed=False), whole=False))
    with ScriptedDaemon(tmp_path / "s", lambda _: began) as daemon:
        reader = EventReader(Client(daemon.path))
        reader.start()
        first = next(taken(reader))
        reader.close()
    end()

    assert isinstance(first, Event)
    assert [(request.path, request.query) for request in daemon.asked] == [
        ("/v1/events", {"power": ["true"]})
    ]


def test_it_looks_for_a_daemon_that_is_not_there(tmp_path: Path) -> None:
    """Each absence is told, and the daemon that comes is followed."""
    reader = EventReader(Client(tmp_path / "s"))
    reader.start()
    assert isinstance(next(taken(reader)), DaemonAbsentError)
    with ScriptedDaemon(
        tmp_path / "s", lambda _: UnfinishedAnswer(stream(event(None, "begin"), whole=False))
    ):
        assert next(one for one in taken(reader) if isinstance(one, Event)).kind == "begin"
        reader.close()
    end()


def test_a_refusal_is_told_and_tried_again(tmp_path: Path) -> None:
    """Too many followers need not last: after a pause the stream is asked for anew."""
    said = [error("too-many", "64 followers already", 429), stream(event(None, "begin"), whole=False)]

    def script(_: Request) -> bytes | None:
        return said.pop(0) if said else None

    with ScriptedDaemon(tmp_path / "s", script) as daemon:
        reader = EventReader(Client(daemon.path), pause_s=0.0)
        reader.start()
        told = taken(reader)
        assert isinstance(next(told), DaemonRefusedError)
        assert isinstance(next(told), Event)
        reader.close()
    end()
