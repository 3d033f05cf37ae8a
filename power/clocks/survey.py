"""Reads the clocks of this machine; sets none."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tuner.errors import ClockError
from tuner.interfaces import ClockReading

from . import controls
from .actuator import Actuator, ClockPaths
from .journal import JournalPlace, directories, is_undone, places
from .ownership import owner_of

_UNREAD = ClockReading(None)
_T = TypeVar("_T")


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
    lost = {(place.control, place.gpu) for folder in folders for place in places(folder)} - seen
    why = tuple(reasons) or ("not found on this machine",)
    for control, gpu in sorted(lost):
        states.append(_held(ClockState(control, gpu, trouble=why), folders))
    if not states:
        raise ClockError(f"no GPU whose clocks can be read: {'; '.join(reasons)}")
    return states


def _state(actuator: Actuator) -> ClockState:
    trouble: list[str] = []
    reading = _told(actuator.read, trouble) or _UNREAD
    supported = _told(actuator.supported_mhz, trouble) or ()
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
    for folder in folders:
        place = JournalPlace(folder, state.control, state.gpu)
        trouble = list(state.trouble)
        entry = _told(place.read, trouble)
        owner = _told(partial(owner_of, place), trouble) or ""
        state = replace(state, owner=state.owner or owner, trouble=tuple(trouble))
        if entry is not None and not is_undone(entry):
            state = replace(state, announced_mhz=entry.new_mhz, stale=not owner)
    return state
