"""Everything ``tuner run`` does between its words and its tables, for tests."""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from modelled import NoNvrtc
from run_documents import answered

from tuner.database.runs import Store
from tuner.devices.sensors import open_clocks, open_meter
from tuner.devices.simulated.device import SimulatedDevice
from tuner.devices.simulated.time_model import Warming
from tuner.kernel_files.catalog import Catalog
from tuner.measurement.measurer import TrialMeasurer
from tuner.measurement.settle import WarmUp
from tuner.search import session
from tuner.search.answer import SearchOutcome
from tuner.search.driver import TrialEvent
from tuner.search.request import Request, choose_run_clocks, conditions_of, make_task, resolve
from tuner.search.setup import MeasurementSetup, open_setup

REQUEST = Request(workloads=("scan-lf:N=4",), policy="random", objective="energy", seed=3)


def tune(
    request: Request,
    store: Store,
    *,
    spec: str = "sim:k40c",
    observer: Callable[[TrialEvent], None] = lambda _: None,
    tell: Callable[[str], None] = lambda _: None,
    resume: bool = False,
    insisted: bool = False,
) -> SearchOutcome:
    """Everything `tuner run` does between its words and its tables."""
    with open_setup(spec, request) as setup:
        return tune_on(setup, request, store, observer=observer, tell=tell, resume=resume, insisted=insisted)


def tune_on(
    setup: MeasurementSetup,
    request: Request,
    store: Store,
    *,
    observer: Callable[[TrialEvent], None] = lambda _: None,
    tell: Callable[[str], None] = lambda _: None,
    resume: bool = False,
    insisted: bool = False,
) -> SearchOutcome:
    """The same on a device that is open already."""
    pairs, _ = resolve(Catalog.load(), request.workloads, setup.device)
    clocks_mhz = choose_run_clocks(request, setup.clocks)
    task = make_task(request, pairs, setup.device, clocks_mhz)
    limits = replace(task.limits, begun_s=math.inf)  # a busy machine shortens no modelled run
    conditions = conditions_of(request, pairs, setup.device, clocks_mhz)
    return session.run_task(
        replace(task, limits=limits),
        conditions,
        device=setup.device,
        measurer=setup.measurer,
        store=store,
        observer=observer,
        tell=tell,
        resume=resume,
        insisted=insisted,
        document=lambda _: answered(None, conditions.names),
    )


@contextmanager
def warming_setup(request: Request, seed: int, warming: Warming) -> Iterator[MeasurementSetup]:
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
