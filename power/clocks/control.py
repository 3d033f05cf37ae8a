"""The controls of a GPU's clock and power limit: chosen, read, held through a lease, and restored.

``tuner-clockd`` or a guardian restores what is held in any case.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Generic, TypeVar

from tuner.model.errors import ClockError, ClockLostError, InputError

from ..base import (
    CLOCKS,
    POWER_LIMIT,
    POWER_LIMITS,
    POWER_PROFILE,
    ClockControl,
    ClockReading,
    GpuSettingKind,
    PowerLimitControl,
    SettingState,
    kind_of,
)
from ..nvml import clocks as nvml_clocks
from ..nvml.clocks import NvmlPowerLimitActuator, NvmlPowerProfileActuator, is_rounded
from ..nvml.library import NvmlGpu
from . import devfreq
from .actuator import (
    Actuator,
    ClockActuator,
    ClockPaths,
    ProfileActuator,
    Ruling,
    demand,
    load_config,
    no_ruling,
)
from .clockd_client import (
    PATIENCE_S,
    Answer,
    ClockRequest,
    SetterConnection,
    SetterLink,
    helper_answers,
    reach,
    setting_request,
)
from .guardian import hire
from .journal import (
    HANDOVER_S,
    HeldError,
    JournalEntry,
    Ownership,
    RestoreOutcome,
    SettingJournal,
    Undo,
    directories,
    is_undone,
    journals,
    owner_of,
    runtime_directory,
)
from .journal import restore_stale as _restore_stale

# --- Settings of a GPU that are held through a lease.

_RENEWALS_PER_TTL = 4.0  # three may be late
_LOG = logging.getLogger(__name__)
_A = TypeVar("_A", bound=Actuator)


class LeasedSetting(Generic[_A]):
    """A setting of a GPU; opening and reading change nothing, and reach nobody.

    The lease is the connection, from the first ``locked`` until ``close``: nobody else sets it between two
    blocks either. A thread renews it. When the other side is gone, or has ended the lease because this
    process slept for too long, ``demand_held`` and the end of ``locked`` raise a ClockLostError: what was
    measured meanwhile was measured at no known setting.

    Args:
        actuator: reads the setting and tells what can be set, and is never asked to set it; closed with this
            control.
        connect: reaches who sets it.
        patience_s: how long an answer may take.
        renewals: of the lease, in the time that the other side lets this one be silent.
    """

    def __init__(
        self,
        actuator: _A,
        connect: Callable[[], SetterLink],
        *,
        patience_s: float = PATIENCE_S,
        renewals: float = _RENEWALS_PER_TTL,
    ) -> None:
        self._actuator = actuator
        self._connect = connect
        self._patience_s = patience_s
        self._renewals = renewals
        self._lease: _LeaseThread | None = None
        self._value: int | None = None

    def demand_held(self) -> None:
        """Raise a ClockLostError where a value was asked for that is no longer held."""
        lease = self._lease
        if self._value is not None and lease is not None:
            lease.demand_held()

    @contextlib.contextmanager
    def locked(self, value: int) -> Iterator[None]:
        """Hold the GPU at a value while the block runs and restore what was there on every way out.

        Whether the GPU follows is for the measurer to see, under load.

        Args:
            value: MHz of a clock, watts of a power limit, ID of a power profile.

        Raises:
            ClockPermissionError: it may not be set by whom this user may ask.
            ClockError: the value is not supported or not allowed, another process holds this GPU's setting,
                the lease was lost in the middle, or it could not be set or restored.
            InputError: the administrator's file is wrong.
        """
        actuator = self._actuator
        if self._value is not None:
            kind = kind_of(actuator.control)
            raise ClockError(
                f"the {kind.value} of {actuator.gpu} is held at {self._value} {kind.unit} already"
            )
        demand(actuator, value)
        lease = self._leased()
        try:
            self._value = value
            lease.ask(setting_request(actuator.control, actuator.gpu, value))
            yield
        except BaseException:
            self._release(lease, quietly=True)
            raise
        self._release(lease, quietly=False)

    def close(self) -> None:
        """End the lease, which restores what is still held, and release everything."""
        lease, self._lease = self._lease, None
        try:
            if lease is not None:
                lease.close()
        finally:
            self._actuator.close()

    def _leased(self) -> "_LeaseThread":
        """The lease, or a new one where the old one was lost."""
        if self._lease is not None and self._lease.lost is not None:
            lease, self._lease = self._lease, None
            lease.close()
        if self._lease is None:
            what = kind_of(self._actuator.control).value
            connection = SetterConnection(self._connect(), self._patience_s)
            self._lease = _LeaseThread(connection, what, self._renewals)
        return self._lease

    def _release(self, lease: "_LeaseThread", *, quietly: bool) -> None:
        self._value = None
        try:
            answer = lease.ask(ClockRequest("reset"))
        except ClockError as error:
            if not quietly:
                raise
            _LOG.error("%s", error)
            return
        for what in answer.get("left", ()):
            _LOG.warning("%s: %s", self._actuator.gpu, what)


class LeasedClocks(LeasedSetting[ClockActuator]):
    """Implements ``tuner.power.base.ClockControl``; see ``LeasedSetting``."""

    def supported_mhz(self) -> tuple[int, ...]:
        """See ``ClockControl.supported_mhz``; without those that the administrator does not allow.

        Raises:
            InputError: the administrator's file is wrong.
        """
        return self._actuator.supported()

    def read(self) -> ClockReading:
        """See ``ClockControl.read``.

        Raises:
            ClockLostError: the clock that was asked for is no longer held.
            ClockError: the GPU stopped answering.
        """
        self.demand_held()
        return self._actuator.read()


class LeasedPowerLimit(LeasedSetting[NvmlPowerLimitActuator]):
    """Implements ``tuner.power.base.PowerLimitControl``; see ``LeasedSetting``."""

    _supported_w: tuple[int, ...] | None = None

    def supported_w(self) -> tuple[int, ...]:
        """See ``PowerLimitControl.supported_w``; as they were when they were first asked for.

        Raises:
            ClockError: the GPU stopped answering.
            InputError: the administrator's file is wrong.
        """
        if self._supported_w is None:
            self._supported_w = self._actuator.supported()
        return self._supported_w

    def read_w(self) -> float:
        """See ``PowerLimitControl.read_w``.

        Raises:
            ClockLostError: the limit that was asked for is no longer held, or another program has changed it.
            ClockError: the GPU stopped answering.
        """
        self.demand_held()
        watts, set_w = self._actuator.read_w(), self._value
        if set_w is not None and not is_rounded(watts, set_w):
            raise ClockLostError(
                f"the power limit is {watts:g} W, not the {set_w} W that were set: another program changed it"
            )
        return watts


class LeasedPowerProfile(LeasedSetting[ProfileActuator]):
    """A power profile that is held; see ``LeasedSetting``."""

    @property
    def sets_clocks(self) -> bool:
        """See ``ProfileActuator.sets_clocks``."""
        return self._actuator.sets_clocks

    def names(self) -> dict[str, int]:
        """See ``ProfileActuator.names``."""
        return self._actuator.names()

    def number(self, name: str) -> int:
        """The value of a profile.

        Raises:
            InputError: none of that name may be set; the message says why, or which may.
        """
        names = self._actuator.names()
        if name not in names:
            why = self._actuator.why_not(name) or f"choose from {', '.join(names)}"
            raise InputError(f"power profile {name} cannot be set on {self._actuator.name}: {why}")
        return names[name]


class _LeaseThread:
    """A connection that a thread keeps alive; whatever breaks it is remembered.

    Args:
        connection: to who sets.
        what: is set, for people.
        renewals: in the time that the other side lets this one be silent.

    Attributes:
        lost: why the lease has ended; None while it holds.
    """

    def __init__(self, connection: SetterConnection, what: str, renewals: float) -> None:
        self.lost: str | None = None
        self._what = what
        self._connection = connection
        self._turn = threading.Lock()
        self._ended = threading.Event()
        try:
            self._interval_s = connection.greeted_s() / renewals
        except BaseException:
            connection.close()
            raise
        self._thread = threading.Thread(target=self._renew, name="clock-lease", daemon=True)
        self._thread.start()

    def ask(self, request: ClockRequest) -> Answer:
        """See ``SetterConnection.ask``; a broken connection ends the lease, which restores what was set."""
        with self._turn:
            self._demand_not_lost()
            try:
                return self._connection.ask(request)
            except ClockLostError as error:
                self.lost = str(error)
                self._connection.hang_up()  # one that hangs finds that out when it goes on
                raise ClockLostError(f"the {self._what} is not held: {error}") from error
            except ClockError:
                raise
            except BaseException:  # Ctrl-C before the answer: the next one would be taken for another's
                self.lost = "it was interrupted"
                self._connection.hang_up()
                raise

    def demand_held(self) -> None:
        """Raise a ClockLostError if the lease has ended; costs no conversation while it holds."""
        if self.lost is None and self._connection.has_news():
            self.ask(ClockRequest("renew"))  # hears why
        self._demand_not_lost()

    def close(self) -> None:
        """End the lease, and come back when what was set is restored."""
        self._ended.set()
        try:
            with self._turn:
                if self.lost is None:
                    self.lost = "the lease was given up"
                    self._connection.leave()
        except ClockLostError as error:
            _LOG.error("%s", error)
        finally:
            self._connection.close()
            self._thread.join()

    def _demand_not_lost(self) -> None:
        if self.lost is not None:
            raise ClockLostError(f"the {self._what} is not held: {self.lost}")

    def _renew(self) -> None:
        try:
            while not self._ended.wait(self._interval_s):
                self.ask(ClockRequest("renew"))
        except ClockError as error:
            if not self._ended.is_set():
                _LOG.warning("%s", error)


# --- Controls: opened by name, and restored where something is left set.

CONTROLS = (nvml_clocks.CONTROL, devfreq.CONTROL, POWER_LIMIT, POWER_PROFILE)
SYSTEM = ClockPaths()


def open_actuator(
    control: str, gpu: str | int, where: ClockPaths = SYSTEM, rules: Ruling = no_ruling
) -> Actuator:
    """Open a setting of a GPU by the name of its control; changes nothing.

    Raises:
        ClockError: no such control, no driver or no such GPU.
    """
    if control == POWER_LIMIT:
        return NvmlPowerLimitActuator(gpu, library=where.library, rules=rules)
    if control == POWER_PROFILE:
        return _profile_actuator(gpu, where, rules)
    if control == nvml_clocks.CONTROL:
        return nvml_clocks.NvmlActuator(gpu, library=where.library, rules=rules)
    if control == devfreq.CONTROL:
        return devfreq.DevfreqActuator(gpu, root=where.devfreq, rules=rules)
    raise ClockError(f"no control is called {control!r}; there are {', '.join(CONTROLS)}")


def choose_actuator(gpu: str | int, where: ClockPaths = SYSTEM) -> ClockActuator:
    """The control of a GPU: NVML if it can set clocks, else devfreq if the board has it, else NVML to read.

    On a Jetson NVML may open and then answer nothing, so that opening says little. The administrator's file
    is read when it is asked which clocks may be set, and not by who only reads the present one.

    Args:
        gpu: UUID, NVML's index, or a devfreq node. A board with devfreq has one GPU: it is that one.
        where: where clocks are found.

    Raises:
        ClockError: neither knows the GPU; the message says why.
    """
    rules = _rules(where)
    reasons = []
    nvml = None
    try:
        nvml = nvml_clocks.NvmlActuator(gpu, library=where.library, rules=rules)
        if nvml.listed():
            return nvml
    except ClockError as error:
        reasons.append(str(error))
    try:
        board = devfreq.DevfreqActuator(gpu, root=where.devfreq, rules=rules)
    except ClockError as error:
        reasons.append(str(error))
        if nvml is None:
            raise ClockError("; ".join(reasons)) from error
        return nvml
    if nvml is not None:
        nvml.close()
    return board


def _profile_actuator(gpu: str | int, where: ClockPaths, rules: Ruling) -> ProfileActuator:
    """The power profiles of a GPU: on a board with nvpmodel its modes, else those of NVML."""
    if devfreq.has_modes(where.devfreq):
        return devfreq.NvpmodelActuator(gpu, devfreq=where.devfreq, rules=rules)
    return NvmlPowerProfileActuator(gpu, library=where.library, rules=rules)


def _rules(where: ClockPaths) -> Ruling:
    """The administrator's rules for this user, read when they are first asked for."""
    return cache(lambda name: load_config(where.config).rules(name, os.getuid()))


def open_control(gpu: str | int, where: ClockPaths | None = None) -> ClockControl:
    """Clock control of a GPU; opening it changes nothing, and asks nobody who may set clocks.

    Raises:
        ClockError: neither NVML nor devfreq knows the GPU.
    """
    where = where or SYSTEM
    actuator = choose_actuator(gpu, where)
    return LeasedClocks(actuator, partial(_setter, actuator, where))


def open_power_limits(gpu: str | int, where: ClockPaths | None = None) -> PowerLimitControl:
    """Control of a GPU's power limit; opening it changes nothing, and asks nobody who may set it.

    Raises:
        HeldError: somebody holds it, so that the limit as found, which bounds what may be set, is not seen.
        ClockError: NVML does not know the GPU, or none of its power limits can be set.
    """
    where = where or SYSTEM
    actuator = choose_limit_actuator(gpu, where)
    try:
        _demand_free(actuator.control, actuator.gpu, directories(where.directory))
    except ClockError:
        actuator.close()
        raise
    return LeasedPowerLimit(actuator, partial(_setter, actuator, where))


def choose_limit_actuator(gpu: str | int, where: ClockPaths = SYSTEM) -> NvmlPowerLimitActuator:
    """The power limit of a GPU.

    Raises:
        ClockError: NVML does not know the GPU, or none of its power limits can be set; the message says why.
    """
    try:
        actuator = NvmlPowerLimitActuator(gpu, library=where.library, rules=_rules(where))
    except ClockError as error:
        raise ClockError(f"power limits are set through NVML: {error}") from error
    try:
        if actuator.listed():
            return actuator
        why = ClockError(f"the driver lets no power limit of {actuator.name} be set")
    except ClockError as error:
        why = error
    actuator.close()
    raise why


def open_power_profiles(gpu: str | int, where: ClockPaths | None = None) -> LeasedPowerProfile:
    """Control of a GPU's power profile; opening it changes nothing, and asks nobody who may set it.

    Raises:
        ClockError: nobody knows the GPU, or it has no power profiles.
        InputError: the administrator's file is wrong.
    """
    where = where or SYSTEM
    actuator = _profile_actuator(gpu, where, _rules(where))
    with ExitStack() as unless_right:
        unless_right.callback(actuator.close)
        if not actuator.supported():
            raise ClockError(
                f"{actuator.name} has no power profile that may be set: Jetsons have, and GPUs since"
                " Blackwell"
            )
        actuator.before()  # what could not be given back is told now
        unless_right.pop_all()
    return LeasedPowerProfile(actuator, partial(_setter, actuator, where))


def _setter(actuator: Actuator, where: ClockPaths) -> SetterLink:
    """The way to who sets clocks and power limits: the helper where it answers, else a guardian.

    Users who may set clocks themselves go to the helper too, so that all are in one queue. Root needs no
    helper: it keeps its locks and journals in the same place.
    """
    if isinstance(actuator, devfreq.DevfreqActuator | devfreq.NvpmodelActuator):  # a mode sets clocks, too
        other = devfreq.CONTROL if actuator.control == POWER_PROFILE else POWER_PROFILE
        _demand_free(other, actuator.gpu, directories(where.directory))
    if not (os.geteuid() == 0 and actuator.permitted()) and helper_answers(where.socket):
        return reach(where.socket)
    _demand_free(actuator.control, actuator.gpu, _others(where))
    return hire(where)


def _others(where: ClockPaths) -> list[Path]:
    """Directories of journals but this user's own, whose lock is to be taken."""
    own = where.directory or runtime_directory()
    return [folder for folder in directories(where.directory) if folder != own]


def _demand_free(control: str, gpu: str, folders: Iterable[Path]) -> None:
    """Refuse a setting that is held under the lock of a directory, as far as this user can see that."""
    for folder in folders:
        journal = SettingJournal(folder, control, gpu)
        try:
            owner = owner_of(journal)
        except ClockError:  # nobody tells this user
            continue
        if owner:
            raise HeldError(journal, owner)


def undo(where: ClockPaths = SYSTEM) -> Undo:
    """A function that undoes what a journal entry of any control announces."""

    def undone(entry: JournalEntry) -> list[str]:
        actuator = open_actuator(entry.control, entry.gpu, where)
        try:
            if actuator.gpu != entry.gpu:
                raise ClockError(f"{entry.gpu} is not here; this board has {actuator.gpu}")
            return actuator.restore(entry.old, entry.new)
        finally:
            actuator.close()

    return undone


def actuators(where: ClockPaths | None = None) -> list[ClockActuator | ClockError]:
    """The GPUs of this machine, each with its control, or why it has none; the caller closes them."""
    where = where or SYSTEM
    by_gpu: dict[str, ClockActuator | ClockError] = {}
    for gpu in range(NvmlGpu.count(where.library)) or ("board",):
        try:
            actuator = choose_actuator(gpu, where)
        except ClockError as error:
            by_gpu.setdefault(str(gpu), error)
            continue
        if actuator.gpu in by_gpu:
            actuator.close()
        else:
            by_gpu[actuator.gpu] = actuator
    return list(by_gpu.values())


def limit_actuators(where: ClockPaths | None = None) -> list[NvmlPowerLimitActuator]:
    """The power limits of this machine's GPUs that can be set; the caller closes them."""
    where = where or SYSTEM
    limits = []
    for gpu in range(NvmlGpu.count(where.library)):
        with contextlib.suppress(ClockError):
            limits.append(choose_limit_actuator(gpu, where))
    return limits


def restore_stale(where: ClockPaths | None = None) -> list[RestoreOutcome]:
    """Restore what processes left set that were killed with their guardians; to be called at a start.

    A GPU whose owner lives is left alone; a failure is logged, keeps its journal entry and stops no other.
    Only what the journal announces is touched.
    """
    where = where or SYSTEM
    try:
        directory = where.directory or runtime_directory()
    except ClockError:  # no place for journals: none was written
        return []
    outcomes = _restore_stale(directory, undo(where))
    for outcome in outcomes:
        if outcome.state == "restored":
            what = kind_of(outcome.control).name
            _LOG.warning("restored the %s of %s, which a killed tuner had left set", what, outcome.gpu)
    return outcomes


def restore_all() -> list[RestoreOutcome]:
    """As ``restore_stale``, and for root's journals too, which root alone can act on; for an order."""
    folders = directories(SYSTEM.directory)
    return [outcome for folder in folders for outcome in _restore_stale(folder, undo(SYSTEM))]


def reset(gpu: str | int, kind: GpuSettingKind = CLOCKS, where: ClockPaths | None = None) -> None:
    """Give a GPU's setting back to driver and configuration, whoever set it; for an explicit order only.

    A power limit becomes the driver's default, and no power profile is requested any more. The journal of a
    dead owner, an unreadable one too, is removed when that is done.

    Raises:
        ClockError: no such GPU or setting, a living process owns it (it is named), or the reset failed.
        InputError: the administrator's file is wrong; nothing was reset.
    """
    where = where or SYSTEM
    actuator: Actuator
    if kind is CLOCKS:
        actuator = choose_actuator(gpu, where)
    elif kind is POWER_LIMITS:
        actuator = choose_limit_actuator(gpu, where)
    else:
        actuator = _profile_actuator(gpu, where, _rules(where))
    try:
        _demand_free(actuator.control, actuator.gpu, _others(where))
        journal = SettingJournal(where.directory or runtime_directory(), actuator.control, actuator.gpu)
        ownership = Ownership(journal, undo(where), patience_s=HANDOVER_S)
        ownership.take(settle=False)
        try:
            actuator.reset()
            ownership.clear()
        finally:
            ownership.give_up()
    finally:
        actuator.close()


# --- Reads the clocks and power limits of this machine; sets none.

_UNREAD = ClockReading(None)
_T = TypeVar("_T")


@dataclass(frozen=True)
class GpuSettingState:
    """Present state of one setting of a GPU, its clock or its power limit.

    Attributes:
        control: how it can be set.
        gpu: what that control knows the GPU by.
        name: the GPU for people; empty where it does not answer.
        reading: present clock and throttle reasons; of a power limit the limit alone.
        supported: values that can be set, in the unit of the setting (``kind_of``), highest first.
        before: what can be read of the lock or limits of a clock (``Actuator.before``).
        default_w: the driver's power limit; None where it cannot be read, and of a clock.
        owner: who owns the setting, for people; empty where nobody does.
        announced: the value that the journal says is set; None where it says nothing.
        stale: True where the journal's owner is gone: ``tuner clocks restore`` acts on it.
        trouble: what could not be read, and why.
    """

    control: str
    gpu: str
    name: str = ""
    reading: ClockReading = _UNREAD
    supported: tuple[int, ...] = ()
    before: SettingState = field(default_factory=dict)
    default_w: float | None = None
    owner: str = ""
    announced: int | None = None
    stale: bool = False
    trouble: tuple[str, ...] = ()


def survey(where: ClockPaths | None = None) -> list[GpuSettingState]:
    """The clocks of this machine's GPUs and of those a journal names, whether they answer or not.

    Raises:
        ClockError: there is no GPU whose clocks can be read; the message says why.
        InputError: the administrator's file is wrong.
    """
    where = where or SYSTEM
    states, reasons = [], []
    with ExitStack() as opened:
        listed = actuators(where)
        clocks = [actuator for actuator in listed if not isinstance(actuator, ClockError)]
        for clock in clocks:
            opened.callback(clock.close)
        reasons = [str(error) for error in listed if isinstance(error, ClockError)]
        for clock in clocks:
            trouble: list[str] = []
            reading = _attempt(clock.read, trouble) or _UNREAD
            supported = _attempt(clock.supported, trouble) or ()
            before = (_attempt(clock.before, trouble) if supported else None) or {}
            states.append(
                GpuSettingState(
                    *(clock.control, clock.gpu, clock.name, reading, supported, before),
                    trouble=tuple(trouble),
                )
            )
    folders = directories(where.directory)
    # A journal of a power limit or profile names a GPU too: NVML is how it would be read.
    known = {state.gpu for state in states}
    why = tuple(dict.fromkeys(reasons)) or ("not found on this machine",)
    lost = {
        (nvml_clocks.CONTROL if kind_of(journal.control) != CLOCKS else journal.control, journal.gpu)
        for folder in folders
        for journal in journals(folder)
        if journal.gpu not in known
    }
    states += [GpuSettingState(control, gpu, trouble=why) for control, gpu in sorted(lost)]
    if not states:
        raise ClockError(f"no GPU whose clocks can be read: {'; '.join(reasons)}")
    return [_with_journal(state, folders) for state in states]


def survey_power_limits(where: ClockPaths | None = None) -> list[GpuSettingState]:
    """The power limits that can be set on this machine, and those a journal names.

    Raises:
        InputError: the administrator's file is wrong.
    """
    where = where or SYSTEM
    states: dict[str, GpuSettingState] = {}
    for limit in limit_actuators(where):
        with closing(limit):
            trouble: list[str] = []
            reading = ClockReading(None, power_limit_w=_attempt(limit.read_w, trouble))
            default_w = _attempt(limit.default_w, trouble)
            supported = _attempt(limit.supported, trouble) or ()
            states[limit.gpu] = GpuSettingState(
                *(POWER_LIMIT, limit.gpu, limit.name, reading, supported),
                default_w=default_w,
                trouble=tuple(trouble),
            )
    folders = directories(where.directory)
    for folder in folders:
        for journal in journals(folder):
            if journal.control == POWER_LIMIT and journal.gpu not in states:
                lost = GpuSettingState(POWER_LIMIT, journal.gpu, trouble=("not found on this machine",))
                states[journal.gpu] = lost
    return [_with_journal(state, folders) for state in states.values()]


def _attempt(read: Callable[[], _T], trouble: list[str]) -> _T | None:
    """Return the result of a read; None if it fails, with the error added to ``trouble``."""
    try:
        return read()
    except ClockError as error:
        if str(error) not in trouble:
            trouble.append(str(error))
        return None


def _with_journal(state: GpuSettingState, folders: Iterable[Path]) -> GpuSettingState:
    """Add what locks and journals say of a setting."""
    owner, announced, stale, trouble = "", None, False, list(state.trouble)
    for folder in folders:
        journal = SettingJournal(folder, state.control, state.gpu)
        entry = _attempt(journal.read, trouble)
        owns = _attempt(partial(owner_of, journal), trouble) or ""
        owner = owner or owns
        if entry is not None and not is_undone(entry):
            announced, stale = entry.new, not owns
    return replace(state, owner=owner, announced=announced, stale=stale, trouble=tuple(trouble))
