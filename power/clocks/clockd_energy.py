"""Energy counters of processors that only root may read, read by ``tuner-clockd`` for its group.

Reads of such counters in quick succession have told secrets of other programs (PLATYPUS, CVE-2020-8694): that
is why the kernel keeps them for root. The helper reads none unless the administrator's file says
``[powercap] read = true``, none more often than every 20 ms, and only packages and DRAM by name.
"""

import time
from collections.abc import Callable
from pathlib import Path

from tuner.model.errors import ClockError, ClockLostError, PowerError

from .clockd_client import SetterConnection, reach
from .clockd_protocol import SOCKET, ClockRefusal, ClockRequest

LEAST_S = 0.02
"""Between two reads of one zone."""

_ADVICE = "the administrator allows it by [powercap] read = true in /etc/tuner/clockd.toml"


class RareReads:
    """Reads zones by name, each at most every ``LEAST_S``: in between the last value is told again.

    Args:
        allowed: tells whether the administrator allows it; asked once.
        folders: finds the folder of each zone that may be read, by its name.
        now: monotonic clock in seconds.
    """

    def __init__(
        self,
        allowed: Callable[[], bool],
        folders: Callable[[], dict[str, Path]],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._allowed = allowed
        self._folders = folders
        self._now = now
        self._known: dict[str, tuple[float, int]] = {}

    def microjoules(self, zone: str) -> int:
        """The counter of a zone.

        Raises:
            ClockRefusal: it may not be read, is not there, or cannot be read.
        """
        if not self._allowed():
            raise ClockRefusal("permission", f"tuner-clockd reads no energy: {_ADVICE}")
        read_s, value = self._known.get(zone, (-LEAST_S, 0))
        if self._now() - read_s < LEAST_S:
            return value
        folder = self._folders().get(zone)
        if folder is None:
            raise ClockRefusal("clock", f"this host does not count {zone}")
        try:
            value = int((folder / "energy_uj").read_text())
        except (OSError, ValueError) as error:
            raise ClockRefusal("clock", f"{folder / 'energy_uj'}: {error}") from error
        self._known[zone] = self._now(), value
        return value


class HelperCounter:
    """A zone's counter, read through the helper.

    Args:
        zone: its name.
        path: the helper's socket.

    Raises:
        PowerError: the helper is not there, or may not or does not read it.
    """

    def __init__(self, zone: str, path: Path = SOCKET) -> None:
        self._zone = zone
        self._path = path
        self._connection: SetterConnection | None = None
        try:
            self.read()
        except BaseException:
            self.close()
            raise

    def read(self) -> int:
        """Microjoules; a connection that the helper has ended for silence is made anew.

        Raises:
            PowerError: the helper is gone, or does not read it any more.
        """
        try:
            try:
                return self._asked()
            except ClockLostError:
                self.close()
                return self._asked()
        except (ClockError, KeyError, TypeError, ValueError) as error:
            raise PowerError(f"{self._zone} through tuner-clockd: {error}") from error

    def close(self) -> None:
        """End the connection; twice is fine."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _asked(self) -> int:
        if self._connection is None:
            self._connection = SetterConnection(reach(self._path))
        return int(self._connection.ask(ClockRequest("energy", zone=self._zone))["uj"])
