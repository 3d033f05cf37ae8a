"""Other users of a GPU, by NVML, a Jetson's kernel or the simulated GPUs.

Processes are counted, not named: in a container they have other numbers than the driver knows.
"""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from tuner.model.errors import DeviceError, SensorUnavailableError
from tuner.power.nvml.library import GpuUsers, health
from tuner.system.ownership import is_alive, this_process

# --- The processes that use a simulated GPU, as NVML reports them for a real one.
#
# A simulated GPU is a model in the process that uses it, so that two processes are not in each other's way.
# Where $TUNER_SIMULATED_GPUS names a directory, each leaves a file there while it computes: others see it,
# and can tell how long it was in their way. Without that variable nothing is written or read.

VARIABLE = "TUNER_SIMULATED_GPUS"


class Occupant:
    """This process on one simulated GPU, from ``enter`` until ``leave``.

    Args:
        gpu: its name, with or without ``sim:``.
    """

    def __init__(self, gpu: str) -> None:
        self._gpu = gpu
        self._file: Path | None = None

    def enter(self) -> None:
        """Be seen by others; again is harmless, and so is a directory that cannot be written."""
        folder = _folder(self._gpu)
        if folder is None or self._file is not None:
            return
        file = folder / f"{os.getpid()}-{id(self)}"
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            draft = file.with_name(f".{file.name}")  # nobody reads half an identity
            draft.write_text(this_process(), encoding="utf-8")
            draft.replace(file)
            self._file = file

    def leave(self) -> None:
        """Be seen no more; again is harmless."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.unlink()


def present(gpu: str) -> list[str]:
    """Identities (``tuner.system.ownership``) of the living processes on a simulated GPU, each once.

    What killed ones left is removed.

    Args:
        gpu: its name, with or without ``sim:``.
    """
    folder = _folder(gpu)
    owners: dict[str, None] = {}
    for file in [] if folder is None else _files(folder):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            owner = file.read_text(encoding="utf-8")
            if is_alive(owner):
                owners[owner] = None
            else:
                file.unlink()
    return list(owners)


def is_present(gpu: str) -> bool:
    """True while this process is seen on a simulated GPU."""
    return this_process() in present(gpu)


def _folder(gpu: str) -> Path | None:
    directory = os.environ.get(VARIABLE)
    return Path(directory) / gpu.removeprefix("sim:") if directory else None


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError:
        return []


@dataclass(frozen=True)
class Contention:
    """The result of a look at a GPU.

    Attributes:
        busy: others compute on it.
        reason: who or what; of a free GPU, why that is unknown (empty where it is known). Stable between
            looks, so that it is reported once.
        load: a figure that differs with each look; empty where it is not measured.
    """

    busy: bool
    reason: str = ""
    load: str = ""


# --- Who else is on a GPU.

FREE = Contention(busy=False)


class ContentionProbe:
    """Looks for other users of GPUs; keeps the driver's library open between looks.

    Args:
        others_allowed: processes of others on a GPU that do not count.
        busy_percent: load that counts, on a GPU on which nothing of ours runs.
        library: path of libnvidia-ml.so.1, or None for the one the system loader finds.
        devfreq: the kernel's class of devices with a scalable clock; None for the usual place.
    """

    def __init__(
        self,
        others_allowed: int = 0,
        busy_percent: float = 10.0,
        library: str | None = None,
        devfreq: Path | None = None,
    ) -> None:
        self._allowed = others_allowed
        self._busy_percent = busy_percent
        self._library = library
        self._devfreq = devfreq
        self._opened: dict[str, GpuUsers] = {}

    def look(self, device: str, uuid: str, ours: int, our_load: bool = False) -> Contention:
        """Return the contention of a GPU by other processes now.

        Args:
            device: as named, e.g. ``cuda:0``.
            uuid: as NVML has it.
            ours: how many of our own processes compute on it; while there are any, its load is ours too.
            our_load: its load is, or may still be, ours: utilisation is a mean over the past.
        """
        our_load = our_load or ours > 0
        if device.startswith("sim:"):
            return self._by_count(len(present(device)), ours)
        if not device.startswith("cuda"):
            return FREE  # a recording
        try:
            users = self._users(uuid)
        except SensorUnavailableError as error:
            return self._on_a_jetson(str(error), our_load=our_load)
        count, percent = users.processes(), users.load_percent()
        if count is None and percent is None:
            self._opened.pop(uuid).close()  # after a change of driver, only a new session answers
            return self._on_a_jetson("NVML tells neither its processes nor its load", our_load=our_load)
        contention = FREE if count is None else self._by_count(count, ours)
        if contention.busy or percent is None or our_load:
            return contention
        return self._by_load(percent)

    def close(self) -> None:
        """Close what is open."""
        for users in self._opened.values():
            users.close()
        self._opened.clear()

    def _users(self, uuid: str) -> GpuUsers:
        if uuid not in self._opened:
            self._opened[uuid] = GpuUsers(uuid, self._library)
        return self._opened[uuid]

    def _by_count(self, count: int, ours: int) -> Contention:
        others = count - ours - self._allowed
        if others <= 0:
            return FREE
        who = "processes" if others > 1 else "process"
        return Contention(busy=True, reason=f"{others} {who} of others on the GPU")

    def _by_load(self, percent: float) -> Contention:
        if percent < self._busy_percent:
            return FREE
        return Contention(busy=True, reason="it is loaded, and not by us", load=f"{percent:.0f} %")

    def _on_a_jetson(self, reason: str, *, our_load: bool) -> Contention:
        """By the kernel's own figure, where the board has one."""
        from tuner.power.clocks.devfreq import DEVFREQ, load_percent  # noqa: PLC0415 - of Jetsons only

        percent = load_percent(self._devfreq or DEVFREQ)
        if percent is None:
            return Contention(busy=False, reason=reason)
        return FREE if our_load else self._by_load(percent)


def require_exclusive_gpu(gpu: str | int, ours: int = 0) -> float | None:
    """Make sure that nobody else computes on a GPU, as far as NVML reports.

    What others draw would be taken for the answer of the GPU's sensors.

    Args:
        gpu: UUID or NVML's index.
        ours: how many of its processes are our own.

    Returns:
        Degrees Celsius of its chip; None where NVML does not report it, as on a Jetson.

    Raises:
        DeviceError: others compute on it, or it is cut into instances.
    """
    try:
        facts = health(gpu)
    except SensorUnavailableError:
        return None
    if facts.mig:
        raise DeviceError(f"{facts.name}: MIG is on, and its sensors show all instances together")
    pids = facts.processes or ()
    if len(pids) > ours:
        who = "processes" if len(pids) > 1 else "process"
        raise DeviceError(
            f"{facts.name}: others compute on it, and what they draw would be taken for its sensors' answer"
            f" ({who} {', '.join(map(str, pids))}{', our own among them' if ours else ''}): end them, or wait"
        )
    return facts.temperature_c
