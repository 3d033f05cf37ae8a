"""Reads the clocks and power limits of this machine; sets none."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tuner.interfaces.power import ClockReading
from tuner.model.errors import ClockError

from ..nvml import clocks as nvml_clocks
from ..nvml.power_limit import NvmlPowerLimitActuator
from . import control as controls
from .actuator import ClockActuator, ClockPaths
from .journal import JournalPlace, directories, is_undone, places
from .ownership import owner_of
from .settings import POWER_LIMIT

_UNREAD = ClockReading(None)
_T = TypeVar("_T")


@dataclass(frozen=True)
class PowerLimitState:
    """One GPU's power limit.

    Attributes:
        gpu: UUID.
        limit_w: as it is set now; None where it cannot be read.
        default_w: of the driver; None where it cannot be read.
        supported_w: limits that may be set, in whole watts, highest first.
        owner: who owns it, for people; empty where nobody does.
        announced_w: the limit that the journal says is set; None where it says nothing.
        stale: True where the journal's owner is gone: ``tuner clocks restore`` acts on it.
        trouble: what could not be read, and why.
    """

    gpu: str
    limit_w: float | None = None
    default_w: float | None = None
    supported_w: tuple[int, ...] = ()
    owner: str = ""
    announced_w: int | None = None
    stale: bool = False
    trouble: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClockState:
    """One GPU's clock.

    Attributes:
        control: how it can be set.
        gpu: what that control knows the GPU by.
        name: the GPU for people; empty where it does not answer.
        reading: present clock and throttle reasons.
        supported_mhz: clocks that can be set, highest first.
        setting: what can be read of lock or limits, in the words of the control (``Actuator.before``).
        owner: who owns the clock, for people; empty where nobody does.
        announced_mhz: the clock that the journal says is set; None where it says nothing.
        stale: True where the journal's owner is gone: ``tuner clocks restore`` acts on it.
        trouble: what could not be read, and why.
    """

    control: str
    gpu: str
    name: str = ""
    reading: ClockReading = _UNREAD
    supported_mhz: tuple[int, ...] = ()
    setting: Mapping[str, Any] = field(default_factory=dict)
    owner: str = ""
    announced_mhz: int | None = None
    stale: bool = False
    trouble: tuple[str, ...] = ()


def survey(where: ClockPaths | None = None) -> list[ClockState]:
    """The GPUs of this machine and those a journal names, whether they answer or not.

    Raises:
        ClockError: there is no GPU whose clocks can be read; the message says why.
        InputError: the administrator's file is wrong.
    """
    where = where or controls.SYSTEM
    folders = directories(where.directory)
    states, reasons = [], []
    with ExitStack() as opened:
        found = controls.actuators(where)
        for actuator in found:
            if isinstance(actuator, ClockError):
                reasons.append(str(actuator))
            else:
                opened.callback(actuator.close)
        states += [_held(_state(one), folders) for one in found if not isinstance(one, ClockError)]
    seen = {(state.control, state.gpu) for state in states}
    journals = {(place.control, place.gpu) for folder in folders for place in places(folder)}
    lost = {
        (nvml_clocks.CONTROL if control == POWER_LIMIT else control, gpu) for control, gpu in journals
    } - seen
    why = tuple(reasons) or ("not found on this machine",)
    for control, gpu in sorted(lost):
        states.append(_held(ClockState(control, gpu, trouble=why), folders))
    if not states:
        raise ClockError(f"no GPU whose clocks can be read: {'; '.join(reasons)}")
    return states


def _state(actuator: ClockActuator) -> ClockState:
    trouble: list[str] = []
    reading = _told(actuator.read, trouble) or _UNREAD
    supported = _told(actuator.supported, trouble) or ()
    setting = (_told(actuator.before, trouble) if supported else None) or {}
    return ClockState(
        actuator.control, actuator.gpu, actuator.name, reading, supported, setting, trouble=tuple(trouble)
    )


def _told(read: Callable[[], _T], trouble: list[str]) -> _T | None:
    """What a read says; None, and why, where it fails."""
    try:
        return read()
    except ClockError as error:
        if str(error) not in trouble:
            trouble.append(str(error))
        return None


def _held(state: ClockState, folders: Iterable[Path]) -> ClockState:
    """A state with what locks and journals say of it."""
    said = _said(state.control, state.gpu, folders)
    return replace(
        state,
        owner=said.owner,
        announced_mhz=said.announced,
        stale=said.stale,
        trouble=tuple(dict.fromkeys((*state.trouble, *said.trouble))),
    )


def survey_power_limits(where: ClockPaths | None = None) -> list[PowerLimitState]:
    """The power limits that can be set on this machine, and those a journal names.

    Raises:
        InputError: the administrator's file is wrong.
    """
    where = where or controls.SYSTEM
    folders = directories(where.directory)
    states: dict[str, PowerLimitState] = {}
    for actuator in controls.limit_actuators(where):
        with closing(actuator):
            states[actuator.gpu] = _limit(actuator)
    for folder in folders:
        for place in places(folder):
            if place.control == POWER_LIMIT and place.gpu not in states:
                states[place.gpu] = PowerLimitState(place.gpu, trouble=("not found on this machine",))
    return [_limited(state, folders) for state in states.values()]


def _limit(actuator: NvmlPowerLimitActuator) -> PowerLimitState:
    trouble: list[str] = []
    limit_w, default_w = _told(actuator.read_w, trouble), _told(actuator.default_w, trouble)
    supported = _told(actuator.supported, trouble) or ()
    return PowerLimitState(actuator.gpu, limit_w, default_w, supported, trouble=tuple(trouble))


def _limited(state: PowerLimitState, folders: Iterable[Path]) -> PowerLimitState:
    """A state with what locks and journals say of it."""
    said = _said(POWER_LIMIT, state.gpu, folders)
    trouble = tuple(dict.fromkeys((*state.trouble, *said.trouble)))
    return replace(state, owner=said.owner, announced_w=said.announced, stale=said.stale, trouble=trouble)


@dataclass(frozen=True)
class _JournalState:
    """What locks and journals say of a setting."""

    owner: str
    announced: int | None
    stale: bool
    trouble: tuple[str, ...]


def _said(control: str, gpu: str, folders: Iterable[Path]) -> _JournalState:
    owner, announced, stale, trouble = "", None, False, list[str]()
    for folder in folders:
        place = JournalPlace(folder, control, gpu)
        entry = _told(place.read, trouble)
        owns = _told(partial(owner_of, place), trouble) or ""
        owner = owner or owns
        if entry is not None and not is_undone(entry):
            announced, stale = entry.new, not owns
    return _JournalState(owner, announced, stale, tuple(trouble))
