"""The feed: one order, bounded memory, and who comes back misses nothing that is kept."""

import asyncio

from tuner.daemon.live import EventFeed
from tuner.model.jobs import Event

TRIAL = Event.now("trial", {"text": "x" * 100})
POWER = Event.now("power", TRIAL.data)


def numbers(feed: EventFeed, after: int) -> list[int | None]:
    found = feed.since(after)
    assert found is not None
    return [event.id for event in found]


def test_who_comes_back_gets_what_was_missed() -> None:
    """Events after a place are there in order, and none where nothing was missed."""
    feed = EventFeed()
    for _ in range(5):
        feed.publish(TRIAL)

    assert numbers(feed, 2) == [3, 4, 5]
    assert numbers(feed, 5) == []
    assert feed.number(feed.place(3)) == 3


def test_memory_is_bounded_and_a_gap_is_seen() -> None:
    """Old events make room; from a place before them, or one that never was, the feed cannot go on."""
    feed = EventFeed(kept_bytes=10_000)
    for _ in range(1000):
        feed.publish(TRIAL)

    assert 0 < len(numbers(feed, 990)) <= 10
    assert feed.since(1) is None
    assert feed.since(1001) is None


def test_places_of_another_daemon_are_none() -> None:
    """A place of the daemon before, or text that is no place, is told from one of this feed."""
    feed = EventFeed()
    feed.publish(TRIAL)

    assert [feed.number(place) for place in ("00000000-1", "", feed.instance, f"{feed.instance}-x")] == [
        None
    ] * 4


def test_what_passes_is_not_kept_and_costs_nothing_where_nobody_follows() -> None:
    """Events that a later one replaces have no number, and are not even encoded without a follower."""
    feed = EventFeed()
    feed.publish(Event.now("power", {"text": object}), keep=False)
    follower = feed.follow()
    feed.publish(POWER, keep=False)

    assert feed.last == 0
    assert [event.id for event in asyncio.run(follower.take())[0]] == [None]


def test_a_slow_follower_holds_up_nobody_and_learns_of_it() -> None:
    """The buffer of a follower that does not read is bounded; it is then told to begin again."""
    feed = EventFeed()
    slow, other = feed.follow(), feed.follow()
    for _ in range(5000):
        feed.publish(TRIAL)
    events, behind, _ = asyncio.run(slow.take())

    assert behind
    assert len(events) < 1000
    assert feed.count == 2
    feed.leave(other)
    assert feed.count == 1
