"""A log of NVML's energy counter, made by a process of its own; no code of the meter is in it."""

import math
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import NamedTuple

POLL_S = 0.002


class Tick(NamedTuple):
    """A new value of the counter: when it was surely not there yet, when it was, and the value."""

    before_s: float
    after_s: float
    joules: float

    @property
    def time_s(self) -> float:
        """The middle of the two."""
        return (self.before_s + self.after_s) / 2.0


def log_counter(uuid: str, connection: Connection) -> None:
    """Poll a GPU's counter until told to stop, and hand over its ticks; runs in a process of its own."""
    import pynvml  # noqa: PLC0415 - not on a machine without a GPU

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    ticks: list[Tick] = []
    asked_s, last = time.monotonic(), pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    connection.send("ready")
    while not connection.poll():
        now_s = time.monotonic()
        value = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        if value != last:
            ticks.append(Tick(asked_s, time.monotonic(), value / 1e3))
            last = value
        asked_s = now_s
        time.sleep(POLL_S)
    connection.send(ticks)


@contextmanager
def counter_log(uuid: str) -> Iterator[Callable[[], list[Tick]]]:
    """A log that runs; calling what is handed out ends it and gives its ticks."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=log_counter, args=(uuid, there), daemon=True)
    process.start()
    there.close()  # so that the end of the process is seen
    here.recv()

    def end() -> list[Tick]:
        here.send("stop")
        ticks: list[Tick] = here.recv()
        return ticks

    try:
        yield end
    finally:
        process.join(1.0)
        process.kill()


def power_of(ticks: Sequence[Tick], start_s: float, end_s: float) -> tuple[float, float]:
    """Mean power between the first tick and the last of a time, and its uncertainty by their dates."""
    inside = [tick for tick in ticks if start_s <= tick.before_s and tick.after_s <= end_s]
    first, last = inside[0], inside[-1]
    span_s = last.time_s - first.time_s
    watts = (last.joules - first.joules) / span_s
    dates_s = math.hypot(*((tick.after_s - tick.before_s) / math.sqrt(12.0) for tick in (first, last)))
    return watts, watts * dates_s / span_s
