"""The GPUs as they were when they were asked last, and whether it is time to ask them again."""

from collections.abc import Sequence
from dataclasses import replace

from tuner.daemon.apart import apart
from tuner.daemon.process.machine import Found, driver_signs, restore_and_ask


class Gpus:
    """What is known of the devices of this machine.

    Args:
        found: at the start.
        wanted: devices that were named; empty for every GPU.
    """

    def __init__(self, found: Found, wanted: Sequence[str]) -> None:
        self._found = found
        self._wanted = tuple(wanted)

    async def ask(self, known: Sequence[str], running: Sequence[str]) -> Found:
        """Ask devices again who they are.

        Args:
            known: those that are tuned on.
            running: those on which a job runs, which are left alone: nobody takes their driver away.
        """
        specs = [*known, *self._found.absent] if self._wanted else []
        found = await apart(restore_and_ask, specs, running)
        self._found = replace(self._found, signs=self._found.signs | found.signs)
        return found

    def driver_came(self, known: Sequence[str]) -> bool:
        """True, once, where more of a driver is there than at the start, and a GPU is missing.

        A sandbox opens only what was there when it was made, so that not to find a GPU may say nothing.

        Args:
            known: the devices that are tuned on.
        """
        lacking = self._found.stands_in or self._found.absent or not known
        new = driver_signs() - self._found.signs
        if not lacking or not new:
            return False
        self._found = replace(self._found, signs=self._found.signs | new)
        return True
