"""Stand for what asks a GPU's driver in a child of the daemon; they import next to nothing."""

import os
import signal
from collections.abc import Collection
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


class PlayedPower:
    """Reads of every GPU which process has read it."""

    def read(self, gpus: Collection[str]) -> dict[str, dict[str, str]]:
        """The number of this process, in place of watts."""
        return {device: {"reading": str(os.getpid())} for device in gpus}
