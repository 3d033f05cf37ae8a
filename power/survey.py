"""The clocks of this machine as they are: read, never set."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tuner.errors import ClockError, ClockPermissionError
from tuner.interfaces import ClockReading
from tuner.owner import is_alive, pid_of

from . import controls
from .actuator import Actuator, Where
from .journal import Entry, Place, directories, is_undone, places
from .ownership import owner_of

_UNREAD = ClockReading(None)


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


def survey(where: Where | None = None) -> list[ClockState]:
    """The GPUs of this machine and those a journal names, whether they answer or not.

    Raises:
        ClockError: there is no GPU whose clocks can be read; the message says why.
        InputError: the administrator's file is wrong.
    """
    where = where or controls.SYSTEM
    folders = directories(where.directory)
    states, reasons = [], []
    for actuator in controls.actuators(where):
        if isinstance(actuator, ClockError):
            reasons.append(str(actuator))
            continue
        try:
            states.append(_held(_state(actuator), folders))
        finally:
            actuator.close()
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

    def tried(read: Any, otherwise: Any) -> Any:  # noqa: ANN401 - three reads of three types
        try:
            return read()
        except ClockError as error:
            trouble.append(str(error))
            return otherwise

    reading = tried(actuator.read, _UNREAD)
    supported = tried(actuator.supported_mhz, ())
    setting = tried(actuator.before, {}) if supported else {}
    return ClockState(
        actuator.control, actuator.gpu, actuator.name, reading, supported, setting, trouble=tuple(trouble)
    )


def _held(state: ClockState, folders: Iterable[Path]) -> ClockState:
    """A state with what locks and journals say of it."""
    for folder in folders:
        place = Place(folder, state.control, state.gpu)
        trouble = list(state.trouble)
        entry = _entry(place, trouble)
        owner = _owner(place, entry, trouble)
        state = replace(state, owner=state.owner or owner, trouble=tuple(trouble))
        if entry is not None and not is_undone(entry):
            state = replace(state, announced_mhz=entry.new_mhz, stale=not owner)
    return state


def _entry(place: Place, trouble: list[str]) -> Entry | None:
    try:
        return place.read()
    except ClockError as error:
        trouble.append(str(error))
        return None


def _owner(place: Place, entry: Entry | None, trouble: list[str]) -> str:
    """Who holds the lock; where this user may not see that, whom the journal names, if that lives."""
    try:
        return owner_of(place)
    except ClockPermissionError as error:
        if entry is not None and is_alive(entry.owner):
            return f"process {pid_of(entry.owner)}"
        trouble.append(str(error))
    except ClockError as error:
        trouble.append(str(error))
    return ""
