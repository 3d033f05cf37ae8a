"""Stands for what asks a GPU's driver who is on it, in the child of a daemon; imports next to nothing."""

import os
import signal
from pathlib import Path

from tuner.devices.gpu_users import Contention


class Played:
    """Acts as the UUID says; one that is a path is a pipe that somebody must write to first."""

    def __init__(self, others_allowed: int, busy_percent: float) -> None:
        self._rules = (others_allowed, busy_percent)

    def look(self, device: str, uuid: str, ours: int, our_load: bool) -> Contention:
        """Answer, hang or fail."""
        if uuid == "hangs":
            signal.pause()
        if uuid == "dies":
            os.abort()
        if uuid == "raises":
            raise AttributeError("no such function")
        if uuid == "pid":
            return Contention(busy=False, reason=str(os.getpid()))
        if uuid.startswith("/"):
            Path(uuid).read_text()
        assert not our_load
        return Contention(busy=bool(ours), reason=f"{device} {uuid} {self._rules}")
