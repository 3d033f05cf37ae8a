"""Threads that are there before they are needed: a machine may have none left when they are."""

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor

from tuner.model.errors import ResourceError

_SHORT = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOBUFS)
_NICE = 10  # of a thread that gives way
_NO_THREAD = "can't start new thread"


class StartedThreads(ThreadPoolExecutor):
    """A pool whose threads are all made at once, so that no call ever needs a new one.

    A pool of the standard library makes threads when calls come. Where none can be made, the call fails
    and is done all the same, whenever there is a thread again.

    Raises:
        ResourceError: they cannot be made just now.
    """

    def __init__(self, count: int, name: str) -> None:
        super().__init__(count, thread_name_prefix=name)
        all_there = threading.Barrier(count + 1)
        try:
            for _ in range(count):
                self.submit(all_there.wait)  # none is idle before the last is there
        except (RuntimeError, MemoryError) as error:
            all_there.abort()
            self.shutdown(wait=False, cancel_futures=True)
            raise ResourceError(f"no thread can be made: {error}") from error
        all_there.wait()


def give_way() -> None:
    """Let this thread go after all others that want the processor, until it ends."""
    own = threading.get_native_id()
    os.setpriority(os.PRIO_PROCESS, own, max(_NICE, os.getpriority(os.PRIO_PROCESS, own)))


def is_shortage(error: BaseException) -> bool:
    """Return True if an error reports a momentary lack of threads, processes, descriptors or memory."""
    if isinstance(error, OSError):
        return error.errno in _SHORT
    if isinstance(error, RuntimeError):
        return _NO_THREAD in str(error)
    return isinstance(error, MemoryError | ResourceError)
