"""Everything ``tuner run`` does between its words and its tables, for tests."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from modelled import NoNvrtc

from tuner.database.runs import Store
from tuner.devices.sensors import open_clocks, open_meter
from tuner.devices.simulated.device import SimulatedDevice
from tuner.devices.simulated.time_model import Warming
from tuner.kernel_files.catalog import Catalog
from tuner.measurement.measurer import TrialMeasurer
from tuner.measurement.settle import WarmUp
from tuner.model.plan import Plan, Workload
from tuner.model.trial import Energy, Measurement, Status, Trial, WorkloadResult
from tuner.search.answer import Outcome
from tuner.search.option_checks import SearchLimits
from tuner.search.plan import plan_search
from tuner.search.request import SearchRequest
from tuner.search.session import Session, TrialEvent
from tuner.search.setup import MeasurementSetup, open_setup

REQUEST = SearchRequest(workloads=("scan-lf:N=4",), policy="random", objective="energy", seed=3)


def tune(
    request: SearchRequest,
    store: Store,
    *,
    spec: str = "sim:k40c",
    observer: Callable[[TrialEvent], None] = lambda _: None,
    tell: Callable[[str], None] = lambda _: None,
    resume: bool = False,
    insisted: bool = False,
) -> Outcome:
    """Everything `tuner run` does between its words and its tables."""
    with open_setup(spec, request) as setup:
        return tune_on(setup, request, store, observer=observer, tell=tell, resume=resume, insisted=insisted)


def tune_on(
    setup: MeasurementSetup,
    request: SearchRequest,
    store: Store,
    *,
    observer: Callable[[TrialEvent], None] = lambda _: None,
    tell: Callable[[str], None] = lambda _: None,
    resume: bool = False,
    insisted: bool = False,
) -> Outcome:
    """The same on a device that is open already."""
    plan = plan_search(request, Catalog.load(), setup)
    session = Session(plan, setup, store, CallbackListener(observer, tell))
    with mock.patch.object(SearchLimits, "ends_s", math.inf):  # a busy machine shortens no modelled run
        return session.run(resume=resume, insisted=insisted)


@dataclass(frozen=True)
class CallbackListener:
    """A listener of two functions."""

    measured: Callable[[TrialEvent], None] = lambda _: None
    told: Callable[[str], None] = lambda _: None

    def compiled(self, done: int, total: int) -> None:
        """Configurations are compiled."""


class FormulaMeasurer:
    """Measures by a formula that a test has, at 200 W, and with hardly a doubt."""

    notices = ()
    unsure, watts, window_s = 1e-4, 200.0, 0.1

    def __init__(self) -> None:
        self.windows_s = 0.0

    def measured(self, times: Sequence[float], makespan_s: float) -> Measurement:
        """A measurement of workloads with these times of their own."""
        self.windows_s += self.window_s
        joules = self.watts * makespan_s
        return Measurement(
            tuple(WorkloadResult(Status.OK, time_s) for time_s in times),
            makespan_s,
            0.0,
            self.unsure * makespan_s,
            energy=Energy(joules, self.unsure * joules, self.watts, "a sensor", "gpu"),
            rounds=100,
            window_s=self.window_s,
        )

    def measure_otherwise(self, trial: Trial, plans: Sequence[Plan]) -> Measurement:
        """All take as long by the other timing."""
        del plans
        return self.measured([1e-3 for _ in trial.configurations], 1e-3)

    def measure_idle(self, clock_mhz: int | None) -> float:
        """None is drawn."""
        del clock_mhz
        return 0.0

    def with_idle(self, measurement: Measurement, clock_mhz: int | None) -> Measurement:
        """The same measurement."""
        del clock_mhz
        return measurement

    def spent(self) -> Any:
        """Nobody has asked."""
        return None

    def recall(self, trials: Sequence[tuple[Trial, Measurement]], workloads: Sequence[Workload]) -> None:
        """There is nothing to remember."""

    def close(self) -> None:
        """Nothing is open."""


@contextmanager
def warming_setup(request: SearchRequest, seed: int, warming: Warming) -> Iterator[MeasurementSetup]:
    """A setup on a modelled H200 that is idle at first and draws more as it warms."""
    device = SimulatedDevice("h200", seed, NoNvrtc(), warming=warming)
    clocks, _ = open_clocks(device)
    meter, _ = open_meter(device, clocks)
    assert meter is not None
    with ExitStack() as stack:
        for opened in (device, meter):
            stack.callback(opened.close)
        measurer = stack.enter_context(
            TrialMeasurer(
                device,
                meter,
                clocks,
                seed=seed,
                needs_energy=True,
                warm_up=WarmUp(device.now_s),
                precision=request.energy_precision,
                thrifty=True,
            )
        )
        yield MeasurementSetup(device, measurer, clocks, "", meter.info.name, measurer.window_s, ())
