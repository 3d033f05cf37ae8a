"""Everything ``tuner run`` does between its words and its tables, for tests."""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from unittest import mock

from modelled import NoNvrtc

from tuner.database.runs import Store
from tuner.devices.sensors import open_clocks, open_meter
from tuner.devices.simulated.device import SimulatedDevice
from tuner.devices.simulated.time_model import Warming
from tuner.kernel_files.catalog import Catalog
from tuner.measurement.measurer import TrialMeasurer
from tuner.measurement.settle import WarmUp
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
