"""The feed: events of all jobs and devices in one order, the newest of which are kept for who comes back."""

import secrets
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tuner.daemon.interface import FeedEvent, encode
from tuner.daemon.jobs.events import Subscription

KEPT_BYTES = 2**22
"""Of the newest events: an hour of trials, or minutes of the fastest simulated ones."""

_EVENT_BYTES = 256  # of an event's objects beside its body
_INSTANCE_BYTES = 4


class EventFeed:
    """Sends events to all followers, and keeps the newest ones.

    Events are encoded once, however many follow.

    Args:
        kept_bytes: of the events that are kept.

    Attributes:
        instance: tells the numbers of this feed from those of an earlier daemon's.
    """

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self.instance = secrets.token_hex(_INSTANCE_BYTES)
        self._kept_bytes = kept_bytes
        self._bytes = 0
        self._kept: deque[FeedEvent] = deque()
        self._followers: set[Subscription[FeedEvent]] = set()
        self._last = 0
        self._closed = False

    @property
    def last(self) -> int:
        """Number of the newest event that is kept or was; 0 before the first."""
        return self._last

    @property
    def count(self) -> int:
        """How many follow."""
        return len(self._followers)

    def publish(self, kind: str, body: Mapping[str, Any], *, keep: bool = True) -> None:
        """Send an event.

        Args:
            kind: of the event.
            body: what JSON has.
            keep: number it, and send it again to followers who come back.
        """
        if not keep and not self._followers:
            return
        event = FeedEvent(None, kind, encode(body))
        if keep:
            self._last += 1
            event = replace(event, id=self._last, place=self.place(self._last))
            self._kept.append(event)
            self._bytes += _EVENT_BYTES + len(event.body)
            while self._bytes > self._kept_bytes:
                self._bytes -= _EVENT_BYTES + len(self._kept.popleft().body)
        for follower in self._followers:
            follower.put(event)

    def since(self, number: int) -> list[FeedEvent] | None:
        """Events after a number; None where they are not all there any more, or never were."""
        first = self._last - len(self._kept)
        if not first <= number <= self._last:
            return None
        return [event for event in self._kept if event.id is not None and event.id > number]

    def follow(self) -> Subscription[FeedEvent]:
        """Begin to buffer events, until ``leave``."""
        follower = Subscription[FeedEvent]()
        if self._closed:
            follower.close()
        self._followers.add(follower)
        return follower

    def leave(self, follower: Subscription[FeedEvent]) -> None:
        """Drop a follower."""
        self._followers.discard(follower)

    def close(self) -> None:
        """End all streams: the daemon stops."""
        self._closed = True
        for follower in self._followers:
            follower.close()

    # --- places in the feed ---------------------------------------------------------------------------

    def place(self, number: int) -> str:
        """The id of an event for clients."""
        return f"{self.instance}-{number}"

    def number(self, place: str) -> int | None:
        """The number of a place; None for a place in another daemon's feed, or for none."""
        instance, _, number = place.partition("-")
        if instance != self.instance or not (number.isascii() and number.isdecimal()):
            return None
        return int(number)
