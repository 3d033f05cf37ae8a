"""Threads for what may hang: nobody waits for them when the process ends, as for those of a pool."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


def apart(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
    """Call a function in a thread of its own; what it returns or raises is that of the future."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(set_it: Callable[[], None]) -> None:
        if not future.done():  # nobody awaits it any more
            set_it()

    def work() -> None:
        try:
            outcome = partial(future.set_result, function(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it is whoever awaits the future whom it concerns
            outcome = partial(future.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=work, name=getattr(function, "__name__", "apart"), daemon=True).start()
    return future
