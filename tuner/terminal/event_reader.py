"""Events of the daemon, read in a thread, which a view takes when it draws."""

import threading
from collections import deque

from tuner.client.client import Client
from tuner.client.values import LiveEvent
from tuner.model.errors import TunerError

_PAUSE_S = 2.0  # after a refusal, such as "too many followers", which need not last


class _ClosedError(Exception):
    """Nobody takes events any more."""


class EventReader:
    """Reads everything that happens, power too, until it is closed; looks for a daemon that went away.

    The thread does not keep the process alive: where that ends, the stream is closed, and the daemon stops to
    sample power. Within a process it ends with the next event, one second later at most while the daemon is
    there.

    Args:
        client: of the daemon.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._events: deque[LiveEvent | TunerError] = deque()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def take(self) -> list[LiveEvent | TunerError]:
        """What has come since the last call, in its order: events, and why the daemon is away."""
        return [self._events.popleft() for _ in range(len(self._events))]

    def close(self) -> None:
        """Read no more."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            trouble = self._read()
            if trouble is not None:  # from here on all is told anew
                self._events.append(trouble)
                self._closed.wait(_PAUSE_S)

    def _read(self) -> TunerError | None:
        """Read until it is closed; returns what prevents it, such as a refusal."""
        try:
            for event in self._client.watch(power=True, away=self._away):
                if self._closed.is_set():
                    break
                self._events.append(event)
        except _ClosedError:
            return None
        except TunerError as error:
            return error
        return None

    def _away(self, trouble: TunerError) -> None:
        if self._closed.is_set():
            raise _ClosedError
        self._events.append(trouble)
