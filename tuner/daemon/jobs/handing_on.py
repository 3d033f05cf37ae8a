"""What attempts tell, on its way to followers: in order, and into the database what is to outlive the day."""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from tuner.daemon.jobs.following import Following
from tuner.daemon.jobs.storage import Storage
from tuner.errors import JobError, StoreError
from tuner.model.jobs import Event

STORED = ("run", "told", "answer")
"""Kinds of events that are stored, beside changes of state: few, and of use to who comes later."""

_MOST_WAITING = 1000  # events; beyond it progress is left out
_RETRY_S = 1.0  # until the database is asked again
_LOG = logging.getLogger(__name__)


class HandingOn:
    """Hands events on, one after the other.

    Args:
        storage: where some are kept.
        following: who hears them.
    """

    def __init__(self, storage: Storage, following: Following) -> None:
        self._storage = storage
        self._following = following
        self._waiting: deque[tuple[int, str, Mapping[str, Any]]] = deque()
        self._pump: asyncio.Task[None] | None = None

    def tell(self, job: int, kind: str, data: Mapping[str, Any]) -> None:
        """Hand on an event; returns at once."""
        if kind not in STORED and not self._waiting:
            self._following.publish(_progress(job, kind, data))
            return
        if kind not in STORED and len(self._waiting) >= _MOST_WAITING:
            return
        self._waiting.append((job, kind, data))
        if self._pump is None:
            self._pump = asyncio.get_running_loop().create_task(self._hand_on())

    async def done(self) -> None:
        """Return when all that was told before is handed on, however long the database lets that wait."""
        if self._pump is not None:
            await asyncio.shield(self._pump)

    def close(self) -> None:
        """Hand nothing more on."""
        self._waiting.clear()
        if self._pump is not None:
            self._pump.cancel()

    async def _hand_on(self) -> None:
        try:
            while self._waiting:
                job, kind, data = self._waiting[0]
                event = await self._stored(job, kind, data) if kind in STORED else _progress(job, kind, data)
                self._following.publish(event)
                self._waiting.popleft()
        finally:
            self._pump = None

    async def _stored(self, job: int, kind: str, data: Mapping[str, Any]) -> Event:
        while True:
            try:
                return await self._storage.run(lambda books: books.jobs.event(job, kind, data))
            except StoreError:  # noqa: PERF203 - that is what it is tried again for
                await asyncio.sleep(_RETRY_S)
            except JobError as error:  # those who listen hear it all the same
                _LOG.warning("job %d: %s is not kept: %s", job, kind, error)
                return _progress(job, kind, data)


def _progress(job: int, kind: str, data: Mapping[str, Any]) -> Event:
    at = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    return Event(None, job, kind, at, data)
