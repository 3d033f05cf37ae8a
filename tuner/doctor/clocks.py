"""Checks of the GPUs' clocks: what holds them back, what was left set, and who may set them."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

from tuner import registry
from tuner.doctor.finding import Finding
from tuner.errors import ClockError

_MEND = "tuner clocks restore"


def clocks(where: Any, *, expected: bool) -> Iterator[Finding]:  # noqa: ANN401 - a plugin's dataclass
    """Per GPU: is it throttled, did a process that is gone leave its clock set, may this one set it?

    Nothing is set to find out.

    Args:
        where: where clocks are found (``Where``).
        expected: this machine has a GPU, so that finding none is wrong.
    """
    try:
        states = registry.load("clock-care", "survey")(where)
    except ClockError as error:
        if expected:
            yield Finding(
                "clocks", "error", str(error), "see whether nvidia-smi answers; reboot after an update"
            )
        else:
            yield Finding("clocks", "note", str(error))
        return
    for state in states:
        yield from _state(state)
    yield from _permissions(where)


def _state(state: Any) -> Iterator[Finding]:  # noqa: ANN401
    check = f"clock of {state.name or state.gpu}"
    for trouble in state.trouble:
        yield Finding(check, "warning", trouble, "see `tuner clocks show`")
    if state.stale:
        left = f"left at {state.announced_mhz} MHz by a process that is gone"
        yield Finding(check, "error", left, _MEND)
    elif state.owner:
        yield Finding(check, "warning", f"held by {state.owner}", "wait for it, or end it")
    if state.reading.mhz is None:
        return
    now = f"{state.reading.mhz:.0f} MHz now"
    if state.reading.throttle_reasons:
        reasons = ", ".join(state.reading.throttle_reasons)
        yield Finding(
            check, "warning", f"{now}, held back by {reasons}", "let it rest, see to cooling and power"
        )
    else:
        yield Finding(check, "ok", f"{now}, not throttled")


def _permissions(where: Any) -> Iterator[Finding]:  # noqa: ANN401
    helper: bool | None = None
    for actuator in registry.load("clock-care", "actuators")(where):
        if isinstance(actuator, ClockError):
            continue  # told by the survey
        with closing(actuator):
            permitted = actuator.permitted()
            if helper is None and not permitted:
                helper = registry.load("clock-care", "helper-answers")(where.socket)
            yield _permission(actuator, permitted=permitted, helper=bool(helper))


def _permission(actuator: Any, *, permitted: bool, helper: bool) -> Finding:  # noqa: ANN401
    check = f"--clocks on {actuator.name}"
    try:
        count = len(actuator.supported_mhz())
    except ClockError as error:
        return Finding(check, "note", str(error))
    if not count:
        return Finding(check, "note", "this GPU has no clocks that can be set")
    if permitted:
        return Finding(check, "ok", f"this user may set its {count} clocks")
    if helper:
        return Finding(check, "ok", f"tuner-clockd answers and sets its {count} clocks for this user")
    return Finding(
        check,
        "note",
        "this user may not set clocks, and tuner-clockd does not answer",
        "for --clocks install tuner-clockd, or be root (in a container with --cap-add SYS_ADMIN)",
    )
