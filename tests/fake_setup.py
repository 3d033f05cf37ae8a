"""What a measurer works with, watched: device, meter and clock control."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from modelled import NoNvrtc, scan
from tuner.power.base import ClockReading, PowerReading, Sample, SensorInfo, SpentEnergy

from tuner.devices.base import Check, RunRecord
from tuner.devices.simulated.device import Faults, SimulatedDevice
from tuner.model.errors import ClockPermissionError
from tuner.model.plan import Plan
from tuner.model.trial import Flag, FlagKind, Trial

PLANS = (scan(4, 256), scan(8, 128, kernel="other"))
NO_GRAPH = Flag(FlagKind.NO_GRAPH, "a test")
OTHER = (scan(16, 64), PLANS[1])


def trial_of(plans: Sequence[Plan], clock_mhz: int | None = None) -> Trial:
    return Trial(tuple(plan.configuration for plan in plans), clock_mhz)


class Watched(SimulatedDevice):
    """A simulated device that remembers what it was asked."""

    def __init__(self, faults: Faults | None = None) -> None:
        super().__init__("k40c", 0, NoNvrtc(), noise=0.0, faults=faults)
        self.checked: list[tuple[Plan, int]] = []
        self.run_clocks: list[int] = []

    def check(self, plan: Plan, seed: int) -> Check:
        self.checked.append((plan, seed))
        return super().check(plan, seed)

    def run(self, plans: Sequence[Plan], window_s: float) -> RunRecord:
        self.run_clocks.append(self._set_mhz)
        return replace(super().run(plans, window_s), flags=(NO_GRAPH,))


class FakeMeter:
    """Readings as they are handed in, one clock reading for each run."""

    info = SensorInfo("fake-counter", "counter", "gpu", period_s=0.1)
    problem = "the sensor was told to give nothing"

    def __init__(self, clocks: Sequence[ClockReading] = (), watts: float | None = 100.0) -> None:
        self.clocks = list(clocks)
        self.watts = watts
        self.uncertainty_w = 0.5
        self.windows: list[tuple[float, float]] = []
        self.recordings = 0
        self.notes: tuple[str, ...] = ()

    @contextmanager
    def recording(self) -> Iterator["FakeMeter"]:
        self.recordings += 1
        yield self

    def reading(self, start_s: float, end_s: float, round_s: float = 0.0) -> PowerReading | None:
        del round_s
        self.windows.append((start_s, end_s))
        if self.watts is None:
            return None
        return PowerReading(self.watts, self.uncertainty_w, "fake-counter", "gpu", self.notes)

    def clock(self, start_s: float, end_s: float) -> ClockReading:
        del start_s, end_s
        return self.clocks.pop(0) if self.clocks else ClockReading(875.0)

    def samples(self) -> list[Sample]:
        return []

    def joules(self) -> float:
        return 7.0

    def spent(self) -> SpentEnergy | None:
        return None

    def close(self) -> None:
        pass


class FakeClocks:
    """Clocks that count how often they are set and given back."""

    def __init__(self, denied: bool = False, seen: Sequence[ClockReading] = ()) -> None:
        self.events: list[str] = []
        self._denied = denied
        self._seen = list(seen)

    def supported_mhz(self) -> tuple[int, ...]:
        return (875, 810, 745, 666)

    def read(self) -> ClockReading:
        return self._seen.pop(0) if self._seen else ClockReading(None)

    @contextmanager
    def locked(self, mhz: int) -> Iterator[None]:
        if self._denied:
            raise ClockPermissionError("not yours to set")
        self.events.append(f"{mhz}")
        try:
            yield
        finally:
            self.events.append("restored")

    def close(self) -> None:
        pass
