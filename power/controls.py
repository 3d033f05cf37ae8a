"""Which clock control a GPU has, and what there is to restore on this machine."""

from collections.abc import Callable
from pathlib import Path

from tuner.errors import ClockError
from tuner.interfaces import ClockControl

from . import devfreq, nvml_clocks
from .actuator import NO_RULES, Actuator, Rules, Where
from .clock_config import load
from .clocks import GuardedClocks
from .journal import Entry, Place, directories, runtime_directory
from .nvml_library import NvmlGpu
from .ownership import Outcome, Ownership, Undo
from .ownership import restore_stale as _restore_stale

CONTROLS = (nvml_clocks.CONTROL, devfreq.CONTROL)
SYSTEM = Where()


def open_actuator(
    control: str, gpu: str | int, where: Where = SYSTEM, rules: Rules | Callable[[str], Rules] = NO_RULES
) -> Actuator:
    """Open a GPU by the name of its control; changes nothing.

    Raises:
        ClockError: no such control, no driver or no such GPU.
    """
    if control == nvml_clocks.CONTROL:
        return nvml_clocks.NvmlActuator(gpu, library=where.library, rules=rules)
    if control == devfreq.CONTROL:
        return devfreq.DevfreqActuator(gpu, root=where.devfreq, rules=rules)
    raise ClockError(f"no clock control is called {control!r}; there are {' and '.join(CONTROLS)}")


def choose_actuator(gpu: str | int, where: Where = SYSTEM) -> Actuator:
    """The control of a GPU: NVML if it can set clocks, else devfreq if the board has it, else NVML to read.

    On a Jetson NVML may open and then answer nothing, so that opening says little.

    Args:
        gpu: UUID, NVML's index, or a devfreq node. A board with devfreq has one GPU: it is that one.
        where: where clocks are found.

    Raises:
        ClockError: neither knows the GPU; the message says why.
        InputError: the administrator's file is wrong.
    """
    rules = load(where.config).rules
    reasons = []
    nvml: Actuator | None = None
    try:
        nvml = open_actuator(nvml_clocks.CONTROL, gpu, where, rules)
        if nvml.supported_mhz():
            return nvml
    except ClockError as error:
        reasons.append(str(error))
    try:
        board = open_actuator(devfreq.CONTROL, gpu, where, rules)
    except ClockError as error:
        reasons.append(str(error))
        if nvml is None:
            raise ClockError("; ".join(reasons)) from error
        return nvml
    if nvml is not None:
        nvml.close()
    return board


def open_control(gpu: str | int, where: Where | None = None) -> ClockControl:
    """Clock control of a GPU; opening changes nothing.

    Where this process may not set clocks and ``tuner-clockd`` answers, that is asked to; else this process
    does it, under guard.

    Raises:
        ClockError: neither NVML nor devfreq knows the GPU.
        InputError: the administrator's file is wrong.
    """
    where = where or SYSTEM
    actuator = choose_actuator(gpu, where)
    try:
        if actuator.supported_mhz() and not actuator.permitted():
            from .lease import LeasedClocks, helper_answers  # noqa: PLC0415 - who may set clocks needs none of it

            if helper_answers(where.socket):
                return LeasedClocks(actuator, where.socket)
    except BaseException:
        actuator.close()
        raise
    return GuardedClocks(actuator, runtime_dir=where.directory, options=options(where))


def options(where: Where) -> tuple[str, ...]:
    """The options of a guardian that must look for clocks elsewhere than on this system."""
    found = [] if where.library is None else ["--library", str(Path(where.library).absolute())]
    if where.devfreq != SYSTEM.devfreq:
        found += ["--devfreq", str(where.devfreq.absolute())]
    return tuple(found)


def undo(where: Where = SYSTEM) -> Undo:
    """A function that undoes what a journal entry of any control announces."""

    def undone(entry: Entry) -> list[str]:
        actuator = open_actuator(entry.control, entry.gpu, where)
        try:
            if actuator.gpu != entry.gpu:
                raise ClockError(f"{entry.gpu} is not here; this board has {actuator.gpu}")
            return actuator.restore(entry.old, entry.new_mhz)
        finally:
            actuator.close()

    return undone


def actuators(where: Where | None = None) -> list[Actuator | ClockError]:
    """The GPUs of this machine, each with its control, or why it has none; the caller closes them.

    Raises:
        InputError: the administrator's file is wrong.
    """
    where = where or SYSTEM
    found: dict[str, Actuator | ClockError] = {}
    for gpu in range(NvmlGpu.count(where.library)) or ("board",):
        try:
            actuator = choose_actuator(gpu, where)
        except ClockError as error:
            found.setdefault(str(gpu), error)
            continue
        if actuator.gpu in found:
            actuator.close()
        else:
            found[actuator.gpu] = actuator
    return list(found.values())


def restore_stale(where: Where | None = None) -> list[Outcome]:
    """Restore what processes left set that were killed with their guardians; to be called at a start.

    A GPU whose owner lives is left alone; a failure is logged, keeps its journal entry and stops no other.
    Only what the journal announces is touched.
    """
    where = where or SYSTEM
    try:
        directory = where.directory or runtime_directory()
    except ClockError:  # no place for journals: none was written
        return []
    return _restore_stale(directory, undo(where))


def restore_all(where: Where | None = None) -> list[Outcome]:
    """As ``restore_stale``, and for root's journals too, which root alone can act on; for an order."""
    where = where or SYSTEM
    folders = directories(where.directory)
    return [outcome for folder in folders for outcome in _restore_stale(folder, undo(where))]


def reset(gpu: str | int, where: Where | None = None) -> None:
    """Give a GPU's clock back to driver and configuration, whoever set it; for an explicit order only.

    The journal of a dead owner, an unreadable one too, is removed when that is done.

    Raises:
        ClockError: no such GPU, a living process owns its clocks (it is named), or the reset failed.
        InputError: the administrator's file is wrong; nothing was reset.
    """
    where = where or SYSTEM
    actuator = choose_actuator(gpu, where)
    try:
        place = Place(where.directory or runtime_directory(), actuator.control, actuator.gpu)
        ownership = Ownership(place, undo(where))
        ownership.take(settle=False)
        try:
            actuator.reset()
            ownership.clear()
        finally:
            ownership.give_up()
    finally:
        actuator.close()
