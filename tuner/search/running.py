"""A run from a request to its result, with all that it opens: what ``tuner run`` and ``tuner.tune`` do."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import RunInterrupted
from tuner.search.request import Request
from tuner.search.setup import MeasurementSetup, open_setup
from tuner.search.tuning import ProgressListener, TuningResult, tune
from tuner.system.board_turns import BoardTurns


class SetupOpener(Protocol):
    """Opens what a run measures with, as ``open_setup`` does."""

    def __call__(
        self,
        device_spec: str | None,
        request: Request,
        warming: Callable[[float, float], None] | None = None,
        *,
        allow_simulated: bool = False,
        turns: BoardTurns | None = None,
    ) -> AbstractContextManager[MeasurementSetup]:
        """See ``open_setup``."""


class RunListener(ProgressListener, Protocol):
    """Hears how a run comes on, its warm-up too."""

    def warming(self, watts: float, seconds: float) -> None:
        """A window of the warm-up has ended: its mean power, and seconds since the warm-up began."""


def run(
    request: Request,
    catalog: Catalog,
    listener: RunListener,
    *,
    device: str | None = None,
    database: Path | None = None,
    resume: bool = False,
    insisted: bool = True,
    allow_simulated: bool = False,
    exclusive_board: bool = False,
    opened: Callable[[MeasurementSetup], None] = lambda _: None,
    opener: SetupOpener = open_setup,
) -> TuningResult:
    """Open the database and the device, tune, and close them on every way out, clocks first.

    What the user should know of the device is told before anything is searched.

    Args:
        request: what is asked for; checked here.
        catalog: where its kernels are.
        listener: hears how it comes on.
        device: see ``open_device``.
        database: None for the user's own.
        resume: continue the newest unfinished run under the same conditions.
        insisted: whether it is a user who wants to resume, see ``session.run``.
        allow_simulated: see ``open_device``.
        exclusive_board: take turns with runs on other GPUs of this host with a database in this folder.
        opened: is handed the open device before the search begins.
        opener: opens it; that of a pool where trials are measured on several GPUs.

    Raises:
        InputError: kernels, sizes or options that cannot be, or the run to resume has finished.
        DeviceUnavailableError: the device cannot be opened.
        ClockError: clocks were asked for that cannot be set.
        KeyboardInterrupt, RunInterrupted: it was interrupted before it had a result.
    """
    request.check()
    ended: list[TuningResult] = []
    try:
        with ExitStack() as stack:
            store = stack.enter_context(Store(database))
            turns = stack.enter_context(BoardTurns(store.path.parent)) if exclusive_board else None
            setup = stack.enter_context(
                opener(device, request, listener.warming, allow_simulated=allow_simulated, turns=turns)
            )
            for notice in setup.notices:
                listener.told(notice)
            opened(setup)
            tuned = tune(setup, request, catalog, store, listener, resume=resume, insisted=insisted)
            ended.append(replace(tuned, told=[*setup.notices, *tuned.told]))
    except (KeyboardInterrupt, RunInterrupted):
        if not ended:  # else only the closing was interrupted
            raise
    return ended[0]
