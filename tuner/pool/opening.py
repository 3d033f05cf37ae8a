"""A pool as what a run measures with."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tuner.database.runs import RESUMABLE, Store
from tuner.devices.choice import AUTO
from tuner.devices.kinds import PREFIX
from tuner.model.errors import InputError
from tuner.search.request import SearchRequest
from tuner.search.setup import MeasurementSetup, open_setup
from tuner.search.tuning import SetupOpener
from tuner.system.ownership import BoardTurns

_RECENT_RUNS = 100  # among which an unfinished one is looked for


@dataclass(frozen=True)
class _Clocks:
    """Clocks that home's GPU can be set to; it is home that sets them."""

    clocks_mhz: tuple[int, ...]

    def supported_mhz(self) -> tuple[int, ...]:
        """See ``SettableClocks``."""
        return self.clocks_mhz


@dataclass(frozen=True)
class _Limits:
    """Power limits that home's GPU can be set to; it is home that sets them."""

    limits_w: tuple[int, ...]

    def supported_w(self) -> tuple[int, ...]:
        """See ``SettableLimits``."""
        return self.limits_w


def opener_on(
    on: str | None, tell: Callable[[str], None], database: Path | None, *, resume: bool
) -> SetupOpener:
    """Return the function that opens the device of a run, or a pool in its place.

    Args:
        on: see ``open_workers``; None for one device of this host.
        tell: takes a sentence for the user.
        database: of the run; None for the user's own.
        resume: the GPU of the newest unfinished run is to be home.
    """
    if on is None:
        return open_setup
    preferred: list[str] = []
    if resume:
        with Store(database) as store:
            unfinished = (run for run in store.history(_RECENT_RUNS) if run.status in RESUMABLE)
            preferred = list(dict.fromkeys(run.conditions["device"]["uuid"] for run in unfinished))

    def opener(
        device_spec: str | None,
        request: SearchRequest,
        warming: Callable[[float, float], None] | None = None,
        *,
        allow_simulated: bool = False,
        turns: BoardTurns | None = None,
    ) -> AbstractContextManager[MeasurementSetup]:
        del warming  # the workers' own
        if turns is not None:
            raise InputError(
                f"--exclusive-board: with --on {on} the GPUs measure at once; leave one of them out"
            )
        if allow_simulated:
            raise InputError("--allow-simulated: with --on, name what is simulated by --device sim:NAME")
        return open_pool(on, device_spec, request, tell, preferred)

    return opener


@contextmanager
def open_pool(
    on: str,
    device_spec: str | None,
    request: SearchRequest,
    tell: Callable[[str], None],
    preferred: Sequence[str] = (),
) -> Iterator[MeasurementSetup]:
    """Open the workers of a pool for a request, and have them give back GPUs and clocks on every way out.

    Raises:
        InputError: options that cannot be together, and as of ``open_workers`` and ``open_setup``.
        PoolError: no worker came in time.
        TunerError: no worker can measure.
    """
    # a run on one GPU has no use for what a pool needs, asyncio among it
    from tuner.pool.home import HomeDevice, HomeMeasurer  # noqa: PLC0415 - as said above
    from tuner.pool.pool import Pool  # noqa: PLC0415 - same
    from tuner.pool.worker import SetupOrder  # noqa: PLC0415 - same
    from tuner.pool.worker_calls import open_workers  # noqa: PLC0415 - same

    device = None  # each worker has a GPU of its own
    if device_spec is not None and device_spec != AUTO:
        if device_spec.startswith(PREFIX):
            raise InputError(f"--device {device_spec}: was measured already; leave --on out")
        if not device_spec.startswith("sim:"):
            raise InputError(
                f"--device {device_spec}: with --on, each worker has its own GPU; leave --device out"
            )
        device = device_spec
    with ExitStack() as stack:
        workers = stack.enter_context(open_workers(on, device=device))
        pool = Pool(workers, SetupOrder(workers.name, request, device or ""), tell)
        stack.callback(pool.close)
        pool.open(preferred)
        home = HomeDevice(pool)
        stack.callback(home.close)
        facts = pool.crew.home.known
        yield MeasurementSetup(
            home,
            HomeMeasurer(pool),
            None if facts.clocks_mhz is None else _Clocks(facts.clocks_mhz),
            facts.no_clocks,
            facts.sensor,
            facts.window_s,
            facts.notices,
            None if facts.power_limits_w is None else _Limits(facts.power_limits_w),
            facts.no_power_limits,
            pool,
        )
