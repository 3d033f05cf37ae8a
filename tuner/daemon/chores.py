"""What is done a while after there was a reason to, once for all reasons that came until then."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

_LOG = logging.getLogger(__name__)


class Chores:
    """Timers by name; without a reason, none runs."""

    def __init__(self) -> None:
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def soon(self, name: str, within_s: float, chore: Callable[[], Awaitable[None]]) -> None:
        """Do a chore after so many seconds, unless it is going to be done anyway."""
        if name not in self._timers and not self._closed:
            loop = asyncio.get_running_loop()
            self._timers[name] = loop.call_later(within_s, self._begin, name, chore)

    def close(self) -> None:
        """Do nothing more of what is not begun."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _begin(self, name: str, chore: Callable[[], Awaitable[None]]) -> None:
        del self._timers[name]
        task = asyncio.get_running_loop().create_task(self._do(name, chore))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _do(self, name: str, chore: Callable[[], Awaitable[None]]) -> None:
        try:
            await chore()
        except Exception:  # noqa: BLE001 - a chore ends nothing
            _LOG.exception("%s: an error of the daemon", name)
