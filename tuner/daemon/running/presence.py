"""Whether others compute on a GPU: what NVML, a Jetson's kernel or the simulated GPUs tell."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner import registry
from tuner.devices import occupants
from tuner.errors import SensorUnavailableError

DEVFREQ = Path("/sys/class/devfreq")


@dataclass(frozen=True)
class Presence:
    """What a look at a GPU gave.

    Attributes:
        busy: others compute on it.
        why: who or what; of a free GPU, why nobody can tell (empty where somebody can). The same as long as
            it is the same: whoever tells it on tells it once.
        figure: how much of it now; empty where that is not measured.
    """

    busy: bool
    why: str = ""
    figure: str = ""


FREE = Presence(busy=False)


class Watcher:
    """Looks at GPUs; holds what it needs for that open.

    Args:
        others_allowed: processes of others on a GPU that do not count.
        busy_percent: load that counts, on a GPU on which nothing of ours runs.
        library: path of libnvidia-ml.so.1, or None for the one the system loader finds.
        devfreq: the kernel's class of devices with a scalable clock.
    """

    def __init__(
        self,
        others_allowed: int = 0,
        busy_percent: float = 10.0,
        library: str | None = None,
        devfreq: Path = DEVFREQ,
    ) -> None:
        self._allowed = others_allowed
        self._busy_percent = busy_percent
        self._library = library
        self._devfreq = devfreq
        self._opened: dict[str, Any] = {}

    def look(self, device: str, uuid: str, ours: int, our_load: bool = False) -> Presence:
        """Who else is on a GPU now.

        Processes are counted, not named: in a container they have other numbers than the driver knows.

        Args:
            device: as named, e.g. ``cuda:0``.
            uuid: as NVML has it.
            ours: how many of our own processes compute on it; while there are any, its load is ours too.
            our_load: so it is where our process has just left: it is told as a mean over the past.
        """
        our_load = our_load or ours > 0
        if device.startswith("sim:"):
            return self._counted(len(occupants.present(device)), ours)
        if not device.startswith("cuda"):
            return FREE  # a recording
        try:
            users = self._users(uuid)
        except SensorUnavailableError as error:
            return self._on_a_jetson(str(error), our_load=our_load)
        count, percent = users.processes(), users.load_percent()
        if count is None and percent is None:
            self._opened.pop(uuid).close()  # of a driver that was replaced, only a new one answers
            return self._on_a_jetson("NVML tells neither its processes nor its load", our_load=our_load)
        seen = FREE if count is None else self._counted(count, ours)
        if seen.busy or percent is None or our_load:
            return seen
        return self._loaded(percent)

    def close(self) -> None:
        """Close what is open."""
        for users in self._opened.values():
            users.close()
        self._opened.clear()

    def _users(self, uuid: str) -> Any:  # noqa: ANN401 - power's class, reached by name
        if uuid not in self._opened:
            self._opened[uuid] = registry.load("nvml", "users")(uuid, self._library)
        return self._opened[uuid]

    def _counted(self, count: int, ours: int) -> Presence:
        others = count - ours - self._allowed
        if others <= 0:
            return FREE
        who = "processes" if others > 1 else "process"
        return Presence(busy=True, why=f"{others} {who} of others on the GPU")

    def _loaded(self, percent: float) -> Presence:
        if percent < self._busy_percent:
            return FREE
        return Presence(busy=True, why="it is loaded, and not by us", figure=f"{percent:.0f} %")

    def _on_a_jetson(self, why: str, *, our_load: bool) -> Presence:
        """By the kernel's own figure, where the board has one."""
        percent = registry.load("load", "jetson")(self._devfreq)
        if percent is None:
            return Presence(busy=False, why=why)
        return FREE if our_load else self._loaded(percent)
