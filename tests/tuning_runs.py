"""Everything ``tuner run`` does between its words and its tables, for tests."""

from collections.abc import Callable
from contextlib import ExitStack

from tuner.config.catalog import Catalog
from tuner.database import Store
from tuner.search import session
from tuner.search.driver import Measured
from tuner.search.request import Request, choose_run_clocks, conditions_of, make_task, resolve
from tuner.search.session import Outcome
from tuner.search.setup import Bench, open_bench

REQUEST = Request(workloads=("scan-lf:N=4",), policy="random", objective="energy", seed=3)


def tune(
    request: Request,
    store: Store,
    *,
    spec: str = "sim:k40c",
    observer: Callable[[Measured], None] = lambda _: None,
    tell: Callable[[str], None] = lambda _: None,
    resume: bool = False,
) -> Outcome:
    """Everything `tuner run` does between its words and its tables."""
    with ExitStack() as stack:
        bench: Bench = stack.enter_context(open_bench(spec, request))
        pairs, _ = resolve(Catalog.load(), request.workloads, bench.device)
        clocks_mhz = choose_run_clocks(request, bench.clocks)
        return session.run(
            make_task(request, pairs, bench.device, clocks_mhz),
            conditions_of(request, pairs, bench.device, clocks_mhz),
            device=bench.device,
            measurer=bench.measurer,
            store=store,
            observer=observer,
            tell=tell,
            resume=resume,
            document=lambda outcome: {"answer": outcome.answer},
        )
