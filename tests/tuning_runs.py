"""Everything ``tuner run`` does between its words and its tables, for tests."""

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from tuner.config.catalog import Catalog
from tuner.database import Store
from tuner.search import session
from tuner.search.answer import SearchOutcome
from tuner.search.request import Request, choose_run_clocks, conditions_of, make_task, resolve
from tuner.search.setup import MeasurementSetup, open_setup
from tuner.search.trial_event import TrialEvent

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
    with ExitStack() as stack:
        setup: MeasurementSetup = stack.enter_context(open_setup(spec, request))
        pairs, _ = resolve(Catalog.load(), request.workloads, setup.device)
        clocks_mhz = choose_run_clocks(request, setup.clocks)
        task = make_task(request, pairs, setup.device, clocks_mhz)
        limits = replace(task.limits, begun_s=math.inf)  # a busy machine shortens no modelled run
        return session.run(
            replace(task, limits=limits),
            conditions_of(request, pairs, setup.device, clocks_mhz),
            device=setup.device,
            measurer=setup.measurer,
            store=store,
            observer=observer,
            tell=tell,
            resume=resume,
            insisted=insisted,
            document=lambda outcome: {"answer": outcome.answer},
        )
