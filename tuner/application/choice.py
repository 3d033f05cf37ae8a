"""The configuration of a kernel: the caller's, the daemon's, the best stored one, or the default.

Kernels that nobody tuned have the answers that their files state. The rules of the analytical model are not
asked: what they choose was measured against no default, and asking them compiles many candidates.
"""

import atexit
import contextlib
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.client.answer_values import Use
from tuner.client.client import Client
from tuner.database.answer_lock import in_force
from tuner.database.answers import StoredAnswer
from tuner.database.best_known import ORIGINS, DatabaseSource, best_of_part
from tuner.database.ranking import AnswerQuery, ServedAnswer, passed_over, served_answer
from tuner.database.runs import Store
from tuner.devices.cuda.direct import DirectGpu
from tuner.devices.gpu_models import limits_of
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import (
    DaemonError,
    DaemonRefusedError,
    InputError,
    KernelFileError,
    StoreError,
    TunerError,
)
from tuner.model.jobs import DeviceIdentity
from tuner.model.plan import Configuration, RowLayout, TunableValue, Workload
from tuner.model.records import WorkloadName
from tuner.model.run_document import Best
from tuner.search.candidates import TraitReader

# --- Asks the daemon for the best configuration, and reports uses to it.
#
# A caller of kernels never waits long for it, and never sees its troubles.

_LOG = logging.getLogger(__name__)

_ANSWER_S = 0.05  # the daemon answers within milliseconds; compiling, which follows, takes longer than this
_TELL_S = 0.2  # for telling uses; also what the end of a process may be held up
_LATER_S = 60.0  # a daemon that was in trouble is not asked again before
_EVERY_S = 60.0  # between tellings of uses
_MOST_TALLIES = 4096  # as many as the daemon counts; what is worked out after that is not counted


class LaunchCount:
    """Launches of a configuration: a launch adds to ``count`` and does nothing else."""

    __slots__ = ("count", "told")

    def __init__(self) -> None:
        self.count = 0
        self.told = 0


class Advisor:
    """Asks the daemon, and reports uses once a minute and at the end of the process.

    Args:
        connect: makes a client with a time-out in seconds.
        every_s: between tellings.
        at_once: uses in one request, at most.
    """

    def __init__(
        self,
        connect: Callable[[float], Client] = lambda timeout_s: Client(timeout_s=timeout_s),
        every_s: float = _EVERY_S,
        at_once: int = 256,
    ) -> None:
        self._connect = connect
        self._at_once = at_once
        self._every_s = every_s
        self._not_before_s = -float("inf")
        self._said = False
        self._devices: dict[str, str] = {}
        self._tallies: dict[Use, LaunchCount] = {}
        self._lock = threading.Lock()
        self._telling = threading.Lock()
        self._ended = threading.Event()
        self._process = 0

    def best(
        self, workload: Workload, device: DeviceIdentity, objective: str, *, count: float
    ) -> Best | None:
        """The daemon's answer for a workload alone, with clocks as found; None without one.

        Args:
            workload: the kernel at its problem, with its batch.
            device: the GPU; the daemon may know it by another number.
            objective: ``time`` or ``energy``.
            count: uses of the answer; 0 for one that is only looked at.
        """
        use = self._use(workload, device, objective)
        if use is None:
            return None
        try:
            return self._connect(_ANSWER_S).best(
                *use.workloads, objective=objective, device=use.device, clocks_as_found=True, count=count
            )
        except TunerError as error:
            self._note(error)
            return None

    def tally(self, workload: Workload, device: DeviceIdentity) -> LaunchCount:
        """Return the counter of launches for which ``best`` was called with a count of one."""
        use = self._use(workload, device, "time") if self._devices else None
        with self._lock:
            if use is None or (use not in self._tallies and len(self._tallies) >= _MOST_TALLIES):
                return LaunchCount()
            if self._process != os.getpid():  # the first one, also after a fork
                self._process = os.getpid()
                self._tallies.clear()
                threading.Thread(target=self._tell_now_and_then, name="tuner-uses", daemon=True).start()
                atexit.register(self.tell)
            tally = self._tallies.setdefault(use, LaunchCount())
            tally.told += 1  # the daemon counted the question
            return tally

    def tell(self) -> None:
        """Report new uses to the daemon; failed reports are repeated next time."""
        if self._process != os.getpid():  # a fork: what was counted before it is its parent's to tell
            return
        with self._telling, contextlib.suppress(TunerError):
            with self._lock:
                counted = [(use, tally, tally.count - tally.told) for use, tally in self._tallies.items()]
            new = iter([(use, tally, uses) for use, tally, uses in counted if uses > 0])
            while batch := list(itertools.islice(new, self._at_once)):
                self._connect(_TELL_S).used(*(replace(use, count=float(uses)) for use, _, uses in batch))
                with self._lock:
                    for _, tally, uses in batch:
                        tally.told += uses

    def close(self) -> None:
        """Tell what there is, and nothing more after that."""
        self.tell()
        self._ended.set()
        atexit.unregister(self.tell)

    def _tell_now_and_then(self) -> None:
        while not self._ended.wait(self._every_s):
            self.tell()

    def _use(self, workload: Workload, device: DeviceIdentity, objective: str) -> Use | None:
        """A question as the daemon counts it; None where it has not that GPU, or there is no daemon."""
        if time.monotonic() < self._not_before_s:
            return None
        if device.uuid not in self._devices:
            self._look()
        if device.uuid not in self._devices:
            return None
        spec = str(WorkloadName.parse(str(workload)).with_batch(workload.batch))
        return Use((spec,), objective, self._devices[device.uuid], None, clocks_as_found=True)

    def _look(self) -> None:
        """Learn by which names the daemon knows its GPUs."""
        try:
            client = self._connect(_ANSWER_S)
            path = client.address.path
            if path is not None and not path.exists():
                return  # most machines have no daemon: nothing to say
            rows = client.status().get("devices", [])
            self._devices = {str(row["uuid"]): str(row["spec"]) for row in rows}
        except (TunerError, OSError) as error:
            self._note(error)
        except (LookupError, TypeError) as error:
            self._note(DaemonError(f"its status is invalid: {error!r}"))

    def _note(self, error: Exception) -> None:
        """Say once what the trouble is; a daemon in trouble is left alone for a while."""
        if isinstance(error, InputError | DaemonRefusedError):
            _LOG.debug("the daemon gave no answer: %s", error)
            return
        self._not_before_s = time.monotonic() + _LATER_S
        level = logging.DEBUG if self._said else logging.INFO
        self._said = True
        _LOG.log(level, "configurations are chosen without the daemon: %s", error)


# --- The configuration that a call gets, and where it comes from.

DEFAULT = "default"
"""Asks for the kernel file's default, and is its origin."""
GIVEN = "given"
"""Origin of a configuration of the caller."""

# Origins: of what the model's rules choose, which was measured against no default and is not taken, and of
# answers that rest on measurements of other workloads.
_RULES = "analytical"
_LENT = ("predicted", "nearest")
_SAME = ("uuid", "driver", "runtime")  # of a GPU: what the daemon measured with must be what is here


@dataclass(frozen=True)
class Chosen:
    """A configuration and where it comes from.

    Attributes:
        configuration: values of the kernel's tunables.
        origin: ``given``, ``default``, which stored run it is the answer of, or what the daemon says of it.
        known: False for a default or the answer of another size, taken for want of a better one.
        unmeasured: an answer that nobody measured on this GPU for this workload.
    """

    configuration: Configuration
    origin: str
    known: bool = True
    unmeasured: bool = False

    def __str__(self) -> str:
        return f"{self.configuration} ({self.origin})"


def given(kernel: KernelFile, workload: Workload, values: Mapping[str, TunableValue]) -> Chosen:
    """The caller's configuration.

    Raises:
        UnknownNameError: it names what is no tunable.
        InputError: it lacks a tunable, has a value that is not in the kernel file, or breaks a rule.
    """
    return Chosen(kernel.configuration(workload, values), GIVEN)


def for_layout(kernel: KernelFile, workload: Workload, layout: RowLayout, found: Chosen) -> Chosen:
    """A configuration chosen for contiguous arrays, or the default where a rule forbids it for others.

    Raises:
        InputError: the caller gave it, or the default is forbidden as well.
    """
    broken = kernel.broken_rule(workload, found.configuration, layout)
    if broken is None:
        return found
    default = kernel.default(workload)
    if found.origin == GIVEN or kernel.broken_rule(workload, default, layout) is not None:
        raise InputError(
            f"configuration: {found.configuration} breaks the rule {broken!r} at {workload} for rows that lie"
            " apart; it is allowed for contiguous arrays"
        )
    return Chosen(default, f"{DEFAULT}, as rows lie apart; else {found.origin}", known=False)


def choose(
    kernel: KernelFile,
    workload: Workload,
    device: DeviceIdentity,
    database: Path,
    advisor: Advisor | None = None,
    *,
    count: float = 1.0,
) -> Chosen:
    """The best known configuration of a workload alone, with clocks as found.

    What the lock file that is in force holds comes first, then what the daemon has stored for time, then what
    the database has stored for time, then for other objectives, then what the daemon has stored for energy,
    then what a trained model predicts, then what they know of other sizes. Of each the first by
    ``tuner.database.ranking`` is taken; stored answers that are stale for more than their batch are left out.

    Args:
        kernel: the kernel.
        workload: the kernel at its problem.
        device: the GPU.
        database: where runs are stored; it need not exist.
        advisor: knows what the daemon says; None where nobody is asked.
        count: uses that the daemon is told of; 0 where the choice is only looked at.

    Raises:
        KernelFileError: nothing is stored and the default breaks a rule.
    """
    query = _query(kernel, workload, device)
    locked = _locked(query)
    if locked is not None:
        return locked
    said = None if advisor is None else advisor.best(workload, device, "time", count=count)
    if said is not None and (chosen := _served(said, kernel, workload, device)) is not None:
        return chosen
    stored, lent = _of_database(query, database)
    if stored is not None:
        return stored
    if said is not None and advisor is not None:
        other = advisor.best(workload, device, "energy", count=0.0)
        chosen = None if other is None else _served(other, kernel, workload, device)
        unmeasured = _said(said, kernel, workload) if said.origin in _LENT else None
        answers = [answer for answer in (chosen, unmeasured, lent) if answer is not None]
        lent = next((answer for answer in answers if answer.known), answers[0] if answers else None)
    return lent or Chosen(kernel.default(workload), DEFAULT, known=False)


def _served(best: Best, kernel: KernelFile, workload: Workload, device: DeviceIdentity) -> Chosen | None:
    """Return the daemon's stored configuration; None if it is not fresh here or not valid for the kernel."""
    placed = best.workloads.get(str(workload))
    here = all(best.device.get(name) == getattr(device, name) for name in _SAME)
    if placed is None or not placed.fresh or not here or placed.source != kernel.fingerprint:
        return None
    return _said(best, kernel, workload)


def _said(best: Best, kernel: KernelFile, workload: Workload) -> Chosen | None:
    placed = best.workloads.get(str(workload))
    configuration = None if placed is None else kernel.allowed(workload, placed.configuration)
    if placed is None or configuration is None or placed.origin == _RULES:
        return None
    origin = f"{placed.origin}, says the daemon: {placed.details}, for {best.objective}"
    unmeasured = placed.origin in _LENT
    return Chosen(configuration, origin, known=placed.origin != "nearest", unmeasured=unmeasured)


def _query(kernel: KernelFile, workload: Workload, device: DeviceIdentity) -> AnswerQuery:
    return AnswerQuery(
        workloads=(workload,),
        kernels={kernel.name: kernel},
        sources={kernel.name: kernel.fingerprint},
        objective="time",
        device=device,
        limits=limits_of(device),
        clocks_as_found=True,
        any_timing=True,
    )


def _locked(query: AnswerQuery) -> Chosen | None:
    """Return the configuration of the lock file that is in force; None without one.

    Raises:
        InputError: the file cannot be read, or is frozen and has an answer that is not served.
    """
    lock = in_force()
    if lock is None:
        return None
    told = dict[str, None]()
    for objective in (query.objective, ""):
        found, reasons = lock.served(replace(query, objective=objective))
        if found is not None:
            return _chosen(found)
        told |= dict.fromkeys(reasons)
    for why in told:
        _LOG.warning("%s", why)
    return None


def _of_database(query: AnswerQuery, database: Path) -> tuple[Chosen | None, Chosen | None]:
    """Return the database's stored configuration and, without it, its answer by other sizes or the model."""
    try:
        if not database.exists():
            return None, None
        with Store(database) as store:
            source = DatabaseSource(store)
            answers = source.of_set([*query.batches])
            stored = _stored(query, answers)
            for why in passed_over(replace(query, objective=""), answers, None) if stored is None else ():
                _LOG.warning("%s", why)
            return stored, None if stored is not None else _lent(query, source)
    except (StoreError, OSError) as error:
        _LOG.warning("stored configurations are not used: %s", error)
        return None, None


def _stored(query: AnswerQuery, answers: Sequence[StoredAnswer]) -> Chosen | None:
    for objective in (query.objective, ""):
        found = served_answer(replace(query, objective=objective), answers, fresh=True)
        if found is not None:
            return _chosen(found)
    return None


def _chosen(found: ServedAnswer) -> Chosen:
    ((name, batch),) = found.answer.batches.items()
    origin = f"{found.answer.told}, for {found.answer.objective} at a batch of {batch}"
    return Chosen(found.configurations[name], origin)


def _lent(query: AnswerQuery, source: DatabaseSource) -> Chosen | None:
    (workload,) = query.workloads
    try:
        part = best_of_part(query, workload, source, origins={*ORIGINS} - {_RULES})
    except KernelFileError:  # of the default, which the daemon may know a way around
        return None
    if part is None or part.origin == "default":
        return None
    known = part.origin == "predicted"
    return Chosen(part.configuration, f"{part.origin}: {part.details}", known=known, unmeasured=True)


# --- Answers for kernels that nobody tuned: those that their files state.


class UntunedAnswers:
    """The first answer of a kernel file that a GPU can launch, by what the file declares."""

    def __init__(self) -> None:
        self._told = False
        self._lock = threading.Lock()

    def answer(self, kernel: KernelFile, workload: Workload, gpu: DirectGpu) -> Chosen | None:
        """The answer that the kernel file states; None where it states nothing that fits the GPU.

        The first question of a process is logged as a warning that tells how to tune.
        """
        self._tell(workload)
        try:
            stated = kernel.stated_answers(workload, gpu.identity.name)
            reader = TraitReader(kernel, workload, gpu.limits, 0.0, stated)
            fitting = (one for one in stated if reader.of(one).candidate is not None)
            found = next(fitting, None)
        except KernelFileError as error:
            _LOG.info("%s: no stated answer: %s", workload, error)
            return None
        if found is None:
            return None
        return Chosen(found, "stated by its kernel file; not measured on this GPU", unmeasured=True)

    def _tell(self, workload: Workload) -> None:
        with self._lock:
            level = logging.DEBUG if self._told else logging.WARNING
            self._told = True
        _LOG.log(
            level,
            "%s was not tuned on this GPU: its configuration is chosen without measuring;"
            " to measure: tuner run %s,batch=%d --objective time",
            *(workload, workload, workload.batch),
        )
