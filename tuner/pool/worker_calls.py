"""The workers of a pool, and calls to them; all answers of Dask are translated here."""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tuner.kernel_files.source_folder import PackageBuild, own_build
from tuner.model.errors import InputError, PoolError, PoolLostError, TunerError, WorkerLostError
from tuner.pool.places import PoolPlace, open_remote, parse_place
from tuner.pool.schedulers import open_local, open_slurm

if TYPE_CHECKING:
    from distributed import Client


_FIRST_S = 60.0  # until the first worker is there
_OTHERS_S = 60.0  # from then on, until as many are there as were asked for
_POLL_S = 0.5
_WHOLE_INFO = -1  # of Scheduler.identity: all workers, not some
_SILENT_S = 60.0  # without a heartbeat, which comes every second or so, until a worker counts as frozen
_SCHEDULER_S = 30.0  # for an answer of the scheduler
_LOOK_S = 1.0  # that counts, at most, of the time between two looks: this process may have been frozen itself
_CLOSE_S = 15.0  # for workers to end what they do
_CLOSE_SILENT_S = 3.0  # likewise of silence: who closes waits for nobody that is frozen


@dataclass(frozen=True)
class PoolWorker:
    """A process that owns one GPU.

    Attributes:
        address: where it listens; another process has another one.
        name: tells workers apart; it stays when the process is started anew.
    """

    address: str
    name: str


@dataclass
class _Call:
    """A call to one worker that has not ended.

    Attributes:
        address: of the worker.
        task: a future of Dask.
        lease_s: how long it may take.
        left_s: of that, as far as somebody looked.
    """

    address: str
    task: Any
    lease_s: float
    left_s: float


class Workers:
    """The workers of a scheduler of Dask that have one thread and the resource ``GPU``.

    A worker is there when it has said that it has the package of this process (``source_folder.own_build``).
    Futures are those of ``concurrent.futures``. Their errors are of this package's tree: WorkerLostError
    where the worker has gone, PoolLostError where the scheduler has, PoolError for what is not foreseen.
    A worker has gone where its process has, where its heartbeats stay away, and where a call outlasts its
    lease. Of the last two the guard process is told to kill it and to start another.

    Args:
        client: connected.
        device: what all workers are to open; empty where each knows its own.
        silent_s: time without a heartbeat after which a worker is lost.
        clock: in seconds.
    """

    def __init__(
        self,
        client: "Client",
        device: str = "",
        *,
        silent_s: float = _SILENT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.device = device
        self._client = client
        self._silent_s = silent_s
        self._clock = clock
        self._looked_s = -math.inf
        self._present: dict[str, PoolWorker] = {}
        self._left_out: dict[str, str] = {}
        self._pinned: dict[Future[Any], _Call] = {}
        self._called: set[str] = set()
        self._builds: dict[str, Future[Any]] = {}
        self._heartbeats: dict[str, tuple[float, float]] = {}  # the last one, and silence since then

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
        """Name of this process at the scheduler."""
        return str(self._client.id)

    def living(self) -> tuple[str, ...]:
        """Names of all processes that have work done by the scheduler.

        Raises:
            PoolLostError: the scheduler does not answer.
        """

        def names(dask_scheduler: Any) -> tuple[str, ...]:  # noqa: ANN401 - sent by value: it may not have us
            return tuple(dask_scheduler.clients)

        asked = partial(self._client.run_on_scheduler, names, callback_timeout=_SCHEDULER_S)
        found: tuple[str, ...] = self._asked(asked)
        return found

    def refresh(self) -> None:
        """Ask the scheduler who is there; calls to workers that have gone fail.

        Raises:
            PoolLostError: the scheduler does not answer.
        """
        # Client.scheduler_info may return what a timer of the client wrote meanwhile: no workers.
        scheduler: Any = self._client.scheduler
        asked = {"n_workers": _WHOLE_INFO, "callback_timeout": _SCHEDULER_S}
        found = self._asked(lambda: self._client.sync(scheduler.identity, **asked))["workers"]
        look_s = min(self._clock() - self._looked_s, _LOOK_S)
        self._looked_s = self._clock()
        self._present, self._left_out = {}, {}
        self._heartbeats = {
            address: self._heartbeat(address, facts.get("last_seen", 0.0), look_s)
            for address, facts in found.items()
        }
        self._builds = {address: answer for address, answer in self._builds.items() if address in found}
        for address, facts in found.items():
            why = _misfit(address, facts)
            if not why and self._heartbeats[address][1] >= self._silent_s:
                why = f"it has not answered for {self._silent_s:g} s"
                self._start_anew(address)
            package = self._other_package(address)
            if why or package:
                self._left_out[address] = why or package or ""
            elif package is not None:
                self._present[address] = PoolWorker(address, str(facts.get("name", "")))
        for answer, call in list(self._pinned.items()):
            call.left_s -= look_s
            if call.address not in self._present:
                self._lose(answer, call, f"the worker at {call.address} is lost")
            elif call.left_s <= 0:
                self._lose(answer, call, f"the worker at {call.address} gave no answer in {call.lease_s:g} s")
                self._start_anew(call.address)

    def submit(
        self,
        function: Callable[..., Any],
        *args: object,
        worker: str | None = None,
        lease_s: float = math.inf,
    ) -> Future[Any]:
        """Call a function in a worker, which does one thing after another.

        Args:
            function: of a module that the worker has too.
            args: picklable.
            worker: address; None for any. A call to one worker fails when ``refresh`` finds it gone; a call
                to any is made again elsewhere, at most three times.
            lease_s: how long a call to one worker may take.
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
            self._pinned[answer] = _Call(worker, task, lease_s, lease_s)
            self._called.add(worker)
        task.add_done_callback(partial(self._hand_over, answer))
        return answer

    def wait(self, answer: Future[Any]) -> Any:  # noqa: ANN401 - of the function
        """Wait for a call and return its result.

        Raises:
            WorkerLostError: the worker has gone.
            PoolLostError: the scheduler has gone.
            TunerError: what the function raised.
        """
        self.refresh()
        while not answer.done():
            wait([answer], timeout=_POLL_S)
            self.refresh()
        return answer.result()

    def run_everywhere(self, function: Callable[..., Any], *args: object) -> None:
        """Call a function in all workers at once, also in those that are busy; errors are not told.

        Nobody is waited for who is frozen.
        """
        if self._client.status != "running":
            return  # workers end without their scheduler
        calls = {
            address: _in_background(self._client.run, function, *args, workers=[address], on_error="ignore")
            for address in self._present
        }
        until = self._clock() + _CLOSE_S
        with suppress(PoolLostError):
            while self._clock() < until:
                wait(calls.values(), timeout=_POLL_S)
                if all(map(self._waits_for_none, calls, calls.values())):
                    return
                self.refresh()

    def wait_for(self, count: int, timeout_s: float) -> None:
        """Wait until so many workers are there, or the time is over."""
        until = time.monotonic() + timeout_s
        self.refresh()
        while len(self._present) < count and time.monotonic() < until:
            time.sleep(_POLL_S / 5)
            self.refresh()

    def _asked(self, question: Callable[[], Any]) -> Any:  # noqa: ANN401 - its answer
        """Return the answer of the scheduler."""
        if self._client.status != "running":
            raise _lost(f"the connection is {self._client.status}")
        try:
            return question()
        except Exception as error:  # Dask tells of a lost scheduler in many ways
            raise _lost(_text(error)) from error

    def _heartbeat(self, address: str, last: float, look_s: float) -> tuple[float, float]:
        """The last heartbeat of a worker, and how long there was none, as far as somebody looked."""
        before, silent_s = self._heartbeats.get(address, (last, 0.0))
        return last, silent_s + look_s if last == before else 0.0

    def _other_package(self, address: str) -> str | None:
        """Return the difference of a worker's package from ours; empty if none, None before its answer."""

        def told() -> tuple[str, Sequence[Any]]:  # sent by value: another package may not have it
            import platform  # noqa: PLC0415 - as above

            from tuner.kernel_files.source_folder import own_build  # noqa: PLC0415 - as above

            return platform.node(), tuple(own_build())

        answer = self._builds.get(address)
        if answer is not None and not answer.done():
            return None
        given: Any = OSError()
        if answer is not None:
            given = answer.exception() or answer.result().get(address, given)
        if isinstance(given, OSError):  # not asked yet, or its connection was lost
            asked = partial(self._client.run, told, workers=[address], on_error="return")
            self._builds[address] = _in_background(asked)
            return None
        if isinstance(given, Exception):  # of a package that has no builds
            return own_build().misfit(None)
        host, build = given
        why = own_build().misfit(PackageBuild(*build))
        return why and f"host {host}: {why}"

    def _waits_for_none(self, address: str, answer: Future[Any]) -> bool:
        """Return True if a worker has answered, or will not."""
        silent_s = self._heartbeats.get(address, (0.0, math.inf))[1]
        return answer.done() or silent_s >= _CLOSE_SILENT_S

    def _start_anew(self, address: str) -> None:
        """Have the guard of a worker that this process has called kill it and start another, once."""
        if address in self._called:
            self._called.remove(address)
            restart = partial(self._client.restart_workers, raise_for_error=False)
            _in_background(restart, [address], timeout=_SCHEDULER_S)

    def _lose(self, answer: Future[Any], call: _Call, why: str) -> None:
        self._settle(answer, error=WorkerLostError(why))
        call.task.cancel()

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


def _in_background(function: Callable[..., Any], *args: object, **options: object) -> Future[Any]:
    """Call a function in a thread that nobody need wait for, not even the end of this process."""
    answer: Future[Any] = Future()

    def work() -> None:
        try:
            answer.set_result(function(*args, **options))
        except Exception as error:  # noqa: BLE001 - goes to whoever waits
            answer.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return answer


def _translated(error: BaseException) -> Exception:
    """Return the exception to raise for an error of a task."""
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
def open_workers(on: str, *, device: str | None = None, silent_s: float = _SILENT_S) -> Iterator[Workers]:
    """Start or find the workers of a pool, and end those that were started here on every way out.

    Args:
        on: ``local[:N]``, ``dask://HOST:PORT`` or ``slurm``.
        device: what every worker opens, for simulated devices; None where each has a GPU of its own.
        silent_s: see ``Workers``.

    Raises:
        InputError: the place cannot be, Dask is not installed, or TLS is missing.
        PoolError: no worker came in time.
    """
    place = parse_place(on)
    require_dask(f"--on {on}")
    with ExitStack() as stack:
        client, count = _connected(stack, on, place, device)
        workers = Workers(client, device or "", silent_s=silent_s)
        workers.wait_for(1, _FIRST_S)
        workers.wait_for(count, _OTHERS_S)
        if not workers.present:
            reasons = "; ".join(f"{at}: {why}" for at, why in workers.left_out.items())
            raise PoolError(f"--on {on}: no worker came within {_FIRST_S:g} s{reasons and f' ({reasons})'}")
        yield workers


def require_dask(what: str) -> None:
    """Make sure that the extra is installed.

    Raises:
        InputError: it is not.
    """
    try:
        import cryptography  # noqa: F401, PLC0415 - makes the certificates
        import distributed  # noqa: F401, PLC0415 - only where --on is used
    except ImportError as error:
        raise InputError(
            f"{what}: {error.name} is not installed; pip install distributed cryptography brings it"
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
    """Return the reason why a worker is unfit for a pool; empty if it is fit."""
    if facts.get("nthreads") != 1 or not facts.get("resources", {}).get("GPU"):
        return "start it by `tuner worker`, or with --nthreads 1 --resources GPU=1"
    return "" if address.startswith("tls://") else "it talks without TLS"
