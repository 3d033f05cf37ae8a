"""The workers of a pool: who they are, and calls to them. All answers of Dask are translated here."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, InvalidStateError, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tuner.errors import InputError, PoolError, PoolLostError, TunerError, WorkerLostError
from tuner.pool.local import open_local
from tuner.pool.places import PoolPlace, is_loopback, parse_place
from tuner.pool.remote import open_remote
from tuner.pool.slurm import open_slurm

if TYPE_CHECKING:
    from distributed import Client

_FIRST_S = 60.0  # until the first worker is there
_OTHERS_S = 60.0  # from then on, until as many are there as were asked for
_POLL_S = 0.5
_WHOLE_INFO = -1  # of Scheduler.identity: all workers, not some


@dataclass(frozen=True)
class PoolWorker:
    """A process that owns one GPU.

    Attributes:
        address: where it listens; another process has another one.
        name: tells workers apart; it stays when the process is started anew.
    """

    address: str
    name: str


class Workers:
    """The workers of a scheduler of Dask that have one thread and the resource ``GPU``.

    Futures are those of ``concurrent.futures``. Their errors are of this package's tree: WorkerLostError
    where the worker has gone, PoolLostError where the scheduler has, PoolError for what is not foreseen.

    Args:
        client: connected.
        device: what all workers are to open; empty where each knows its own.
    """

    def __init__(self, client: "Client", device: str = "") -> None:
        self.device = device
        self._client = client
        self._present: dict[str, PoolWorker] = {}
        self._left_out: dict[str, str] = {}
        self._pinned: dict[Future[Any], tuple[str, Any]] = {}

    @property
    def present(self) -> Mapping[str, PoolWorker]:
        """The workers by address, as ``refresh`` found them."""
        return dict(self._present)

    @property
    def left_out(self) -> Mapping[str, str]:
        """Workers of the scheduler that are not of the pool, by address, and why."""
        return dict(self._left_out)

    @property
    def name(self) -> str:
        """What the scheduler calls this process."""
        return str(self._client.id)

    def living(self) -> tuple[str, ...]:
        """Names of all processes that have work done by the scheduler.

        Raises:
            PoolLostError: the scheduler does not answer.
        """

        def names(dask_scheduler: Any) -> tuple[str, ...]:  # noqa: ANN401 - sent by value: it may not have us
            return tuple(dask_scheduler.clients)

        try:
            found: tuple[str, ...] = self._client.run_on_scheduler(names)
        except Exception as error:  # as of refresh
            raise _lost(_text(error)) from error
        return found

    def refresh(self) -> None:
        """Ask the scheduler who is there; calls to workers that have gone fail.

        Raises:
            PoolLostError: the scheduler does not answer.
        """
        if self._client.status != "running":
            raise _lost(f"the connection is {self._client.status}")
        try:
            # Client.scheduler_info may return what a timer of the client wrote meanwhile: no workers.
            scheduler: Any = self._client.scheduler
            found = self._client.sync(scheduler.identity, n_workers=_WHOLE_INFO)["workers"]
        except Exception as error:  # Dask tells of a lost scheduler in many ways
            raise _lost(_text(error)) from error
        self._present, self._left_out = {}, {}
        for address, facts in found.items():
            why = _misfit(address, facts)
            if why:
                self._left_out[address] = why
            else:
                self._present[address] = PoolWorker(address, str(facts.get("name", "")))
        for answer, (address, task) in list(self._pinned.items()):
            if address not in self._present:
                self._settle(answer, error=WorkerLostError(f"the worker at {address} is lost"))
                task.cancel()

    def submit(
        self,
        function: Callable[..., Any],
        *args: object,
        worker: str | None = None,
    ) -> Future[Any]:
        """Call a function in a worker, which does one thing after another.

        Args:
            function: of a module that the worker has too.
            args: picklable.
            worker: address; None for any. A call to one worker fails when ``refresh`` finds it gone; a call
                to any is made again elsewhere, at most three times.
        """
        answer: Future[Any] = Future()
        try:
            task = self._client.submit(
                function,
                *args,
                pure=False,
                workers=None if worker is None else [worker],
                allow_other_workers=False,
                resources={"GPU": 1},
            )
        except Exception as error:  # as above
            raise _lost(_text(error)) from error
        if worker is not None:
            self._pinned[answer] = (worker, task)
        task.add_done_callback(partial(self._hand_over, answer))
        return answer

    def call(self, function: Callable[..., Any], *args: object, worker: str) -> Any:  # noqa: ANN401 - of the function
        """Call a function in one worker, and wait.

        Raises:
            WorkerLostError: the worker has gone.
            PoolLostError: the scheduler has gone.
            TunerError: what the function raised.
        """
        answer = self.submit(function, *args, worker=worker)
        self.refresh()
        while not answer.done():
            wait([answer], timeout=_POLL_S)
            self.refresh()
        return answer.result()

    def run_everywhere(self, function: Callable[..., Any], *args: object) -> None:
        """Call a function in all workers at once, also in those that are busy; errors are not told."""
        if self._client.status != "running":
            return  # workers end without their scheduler
        with suppress(Exception):  # whoever has gone need not be told
            self._client.run(function, *args, workers=list(self._present), on_error="ignore", wait=True)

    def wait_for(self, count: int, timeout_s: float) -> None:
        """Wait until so many workers are there, or the time is over."""
        until = time.monotonic() + timeout_s
        self.refresh()
        while len(self._present) < count and time.monotonic() < until:
            time.sleep(_POLL_S / 5)
            self.refresh()

    def _hand_over(self, answer: Future[Any], task: Any) -> None:  # noqa: ANN401 - a future of Dask
        """Called in a thread of Dask when a task has ended."""
        try:
            value = task.result()
        except TunerError as error:
            self._settle(answer, error=error)
        except BaseException as error:  # noqa: BLE001 - goes to whoever waits
            self._settle(answer, error=_translated(error))
        else:
            self._settle(answer, value)

    def _settle(self, answer: Future[Any], value: object = None, *, error: Exception | None = None) -> None:
        """Give an answer, once: what a worker sends after it was given up is not heard."""
        self._pinned.pop(answer, None)
        with suppress(InvalidStateError):
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(value)


def _translated(error: BaseException) -> Exception:
    """What an error of a task means."""
    from distributed import CancelledError  # noqa: PLC0415 - only where --on is used
    from distributed.comm.core import CommClosedError  # noqa: PLC0415 - as above
    from distributed.scheduler import KilledWorker  # noqa: PLC0415 - as above

    if isinstance(error, KilledWorker):
        return WorkerLostError(f"several workers were lost with it: {error}")
    if isinstance(error, CancelledError | CommClosedError):
        return _lost(_text(error))
    return PoolError(_text(error))


def _lost(why: str) -> PoolLostError:
    return PoolLostError(f"the scheduler of the pool does not answer any more ({why})")


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


@contextmanager
def open_workers(on: str, *, device: str | None = None) -> Iterator[Workers]:
    """Start or find the workers of a pool, and end those that were started here on every way out.

    Args:
        on: ``local[:N]``, ``dask://HOST:PORT`` or ``slurm``.
        device: what every worker opens, for simulated devices; None where each has a GPU of its own.

    Raises:
        InputError: the place cannot be, Dask is not installed, or TLS is missing.
        PoolError: no worker came in time.
    """
    place = parse_place(on)
    require_dask(f"--on {on}")
    with ExitStack() as stack:
        client, count = _connected(stack, on, place, device)
        workers = Workers(client, device or "")
        workers.wait_for(1, _FIRST_S)
        workers.wait_for(count, _OTHERS_S)
        if not workers.present:
            reasons = "; ".join(f"{at}: {why}" for at, why in workers.left_out.items())
            raise PoolError(f"--on {on}: no worker came within {_FIRST_S:g} s{reasons and f' ({reasons})'}")
        yield workers


def require_dask(what: str) -> None:
    """Make sure that the extra is installed.

    Args:
        what: needs it.

    Raises:
        InputError: it is not.
    """
    try:
        import cryptography  # noqa: F401, PLC0415 - makes the certificates
        import distributed  # noqa: F401, PLC0415 - only where --on is used
    except ImportError as error:
        raise InputError(
            f"{what}: {error.name} is not installed; pip install 'gpu-tuner[dask]' brings it"
        ) from error
    for name in [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]:
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what matters is told in our own words


def _connected(stack: ExitStack, on: str, place: PoolPlace, device: str | None) -> tuple["Client", int]:
    """A client of the place's scheduler, and how many workers are expected there."""
    if place.kind == "local":
        return stack.enter_context(open_local(on, place.workers, device))
    if place.kind == "slurm":
        return stack.enter_context(open_slurm(on))
    return stack.enter_context(open_remote(on, place))


def _misfit(address: str, facts: Mapping[str, Any]) -> str:
    """Why a worker is not one of a pool; empty where it is."""
    if facts.get("nthreads") != 1 or not facts.get("resources", {}).get("GPU"):
        return "start it by `tuner worker`, or with --nthreads 1 --resources GPU=1"
    scheme, _, rest = address.partition("://")
    if scheme != "tls" and not is_loopback(rest.rpartition(":")[0].strip("[]")):
        return "it talks without TLS off its host"
    return ""
