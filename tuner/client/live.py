"""The stream of everything, through restarts of the daemon."""

import math
import time
from collections.abc import Callable, Iterator

from tuner.client.messages import Message, messages
from tuner.client.transport import Transport
from tuner.client.values import LiveEvent, read_event
from tuner.model.errors import DaemonUnavailableError

SILENCE_S = 45.0
"""Three of the daemon's signs of life, one every 15 s."""

_PAUSE_S = 0.1  # before the first attempt to find the daemon again ...
_LONGEST_PAUSE_S = 2.0  # ... and, doubling, at most


class Pauses:
    """Waits for a daemon that went away, longer each time, up to a limit in all.

    Args:
        patience_s: longest time without a word of the daemon.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._pause_s = _PAUSE_S
        self._heard_s = time.monotonic()

    def heard(self) -> None:
        """Note a word of the daemon."""
        self._pause_s = _PAUSE_S
        self._heard_s = time.monotonic()

    def wait(self, trouble: Exception) -> None:
        """Wait before the next attempt.

        Raises:
            Exception: the trouble, where it has lasted too long.
        """
        if time.monotonic() - self._heard_s + self._pause_s > self._patience_s:
            raise trouble
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)


def live_events(
    transport: Transport,
    *,
    power: bool,
    patience_s: float,
    away: Callable[[DaemonUnavailableError], None] | None = None,
) -> Iterator[LiveEvent]:
    """Everything, and on from where it was after the daemon went away; see ``Client.watch``."""
    target = f"/v1/events{'?power=true' if power else ''}"
    pauses, place = Pauses(patience_s if away is None else math.inf), ""
    while True:
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": place} if place else {})}
        try:
            for message in messages(transport.stream(target, headers, SILENCE_S)):
                pauses.heard()
                if message is not None:
                    place = message.id or place
                    yield _event(message, transport)
                    pauses.heard()  # a caller may have taken its time
            trouble = DaemonUnavailableError(f"the daemon at {transport.address} ended its stream")
        except DaemonUnavailableError as error:
            trouble = error
        if away is not None:
            away(trouble)
        pauses.wait(trouble)


def _event(message: Message, transport: Transport) -> LiveEvent:
    try:
        return read_event(LiveEvent, message.data)
    except ValueError as error:
        raise transport.misunderstood(f"the event {message.data!r:.120}: {error}") from error
