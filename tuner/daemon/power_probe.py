"""Reads power, clock, temperature and users of GPUs, in a child process of the daemon: drivers may hang."""

from collections.abc import Mapping
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from tuner.joules.watching import Gpu, ReadingRow, WatchedReading, opened, present_clock, readable_clocks
from tuner.model.errors import SensorUnavailableError, TunerError
from tuner.power.base import ClockControl
from tuner.power.nvml.library import GpuUsers, Thermometer

if TYPE_CHECKING:
    from tuner.client.answer_values import PowerSample

_LEAST_S = 0.5  # between two samples of a counter, which costs to be read


class PowerProbe:
    """Keeps the sensors of GPUs open between samples. It sets nothing.

    Every method takes and returns plain values: it is called from another process.
    """

    def __init__(self) -> None:
        self._opened: dict[str, _OpenedGpu] = {}

    def read(self, gpus: Mapping[str, tuple[str, str, str]]) -> dict[str, "PowerSample"]:
        """One sample of each GPU.

        Args:
            gpus: device -> UUID, driver and name.

        Returns:
            Device -> what ``docs/daemon-api.md`` has of it; ``failure`` says why where it cannot be read.
        """
        return {
            device: self._read(device, Gpu(uuid, uuid, driver, name))
            for device, (uuid, driver, name) in gpus.items()
        }

    def close(self) -> None:
        """Close what is open."""
        for gpu in self._opened.values():
            gpu.close()
        self._opened.clear()

    def _read(self, device: str, gpu: Gpu) -> "PowerSample":
        try:
            if device not in self._opened:
                self._opened[device] = _OpenedGpu(gpu)
            return self._opened[device].sample()
        except TunerError as error:
            if device in self._opened:
                self._opened.pop(device).close()  # after a change of driver, only a new session answers
            return {"failure": str(error)}


class _OpenedGpu:
    """The open sensors of one GPU."""

    def __init__(self, gpu: Gpu) -> None:
        self._failure = ""
        with ExitStack() as stack:
            self._clocks: ClockControl | None = stack.enter_context(readable_clocks(gpu))
            self._thermometer = stack.enter_context(closing(Thermometer(gpu.gpu)))
            self._users = _users(gpu, stack)
            self._readings = self._power(gpu, stack)
            self._stack = stack.pop_all()

    def _power(self, gpu: Gpu, stack: ExitStack) -> list[WatchedReading]:
        """Readings of its power; none where no sensor answers."""
        try:
            samplers = stack.enter_context(opened(gpu, (), interval_s=_LEAST_S))
        except SensorUnavailableError as error:
            self._failure = str(error)
            return []
        return [WatchedReading(sampler) for sampler in samplers]

    def sample(self) -> "PowerSample":
        """One sample; mean watts are those since the last one."""
        clock = present_clock(self._clocks)
        return {
            "clock_mhz": clock.mhz,
            "throttle_reasons": list(clock.throttle_reasons),
            "temperature_c": self._thermometer.read(),
            "processes": None if self._users is None else self._users.processes(),
            "load_percent": None if self._users is None else self._users.load_percent(),
            **self._watts(),
        }

    def _watts(self) -> "PowerSample":
        for reading in self._readings:
            reading.poll(at_once=True)
        row = _best([reading.row() for reading in self._readings])
        if row is None:
            return {"failure": self._failure}
        return {
            "watts": row.shown_w if row.watts is None else row.watts,
            "reading": row.info.name,
            "scope": row.info.scope,
            "failure": row.failure,
        }

    def close(self) -> None:
        """Release everything."""
        self._stack.close()


def _best(rows: list[ReadingRow]) -> ReadingRow | None:
    """The reading that tells power now: a counter's mean since the last sample, where one answers."""
    return min(
        rows,
        key=lambda row: (bool(row.failure), row.info.kind != "counter", row.watts is None),
        default=None,
    )


def _users(gpu: Gpu, stack: ExitStack) -> GpuUsers | None:
    try:
        users = GpuUsers(gpu.gpu)
    except SensorUnavailableError:
        return None
    stack.callback(users.close)
    return users
