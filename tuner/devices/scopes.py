"""What energy is counted of: the GPU, and with it the processors and the memory of its host."""

import time
from collections.abc import Callable, Iterator, Sequence

from tuner import registry
from tuner.errors import InputError, SensorUnavailableError, UnknownNameError
from tuner.interfaces import PowerSampler, Reading, SensorInfo

GPU = "gpu"
HOST = ("package", "dram")
"""What a host has beside its GPUs, in the order of a sum."""

_POWERCAP = "powercap"
_SHORT = {"cpu": HOST}
SCOPES = (GPU, *_SHORT, *HOST)
"""Words of ``--scope``."""


def parts_of(scope: str) -> tuple[str, ...]:
    """The parts of a scope such as ``gpu+cpu``, each once, the GPU first.

    ``cpu`` is all packages, and DRAM where the host counts it apart: as ``cpu`` itself until it is opened.

    Raises:
        UnknownNameError: a part is none of ``SCOPES``.
        InputError: a part is named twice.
    """
    words = [word.strip() for word in scope.split("+")]
    for word in words:
        if word not in SCOPES:
            raise UnknownNameError(
                f"--scope {scope}: {word or 'nothing'!r} is none of {', '.join(SCOPES)}; join them with +,"
                " as in gpu+cpu"
            )
    spelt = [part for word in words for part in _SHORT.get(word, (word,))]
    twice = next((part for part in spelt if spelt.count(part) > 1), None)
    if twice is not None:
        raise InputError(f"--scope {scope}: {twice} would be counted twice")
    return tuple(sorted(words, key=(GPU, "cpu", *HOST).index))


def normalised(scope: str) -> str:
    """The scope as every user of it writes it: parts in their order, joined by ``+``.

    Raises:
        InputError: see ``parts_of``.
    """
    return "+".join(parts_of(scope))


def is_of_host(info: SensorInfo) -> bool:
    """True for a reading of what the host has beside its GPUs."""
    return info.name.startswith(f"{_POWERCAP}:")


def host_readings(now: Callable[[], float] = time.monotonic) -> list[Reading]:
    """The energy readings of this host beside its GPUs; each is found by opening it."""
    readings: list[Reading] = registry.load("readings", _POWERCAP)(0, responses=lambda _: None, now=now)
    return readings


def host_samplers(
    scope: str, parts: Sequence[str], now: Callable[[], float] = time.monotonic
) -> Iterator[PowerSampler]:
    """Open the samplers of the host's parts of a scope; the caller closes them.

    Args:
        scope: as the user wrote it, for messages.
        parts: of the scope, see ``parts_of``; the GPU's is passed over.
        now: clock of the samples, in seconds.

    Raises:
        InputError: the host does not count a part, or this user may not read it.
    """
    wanted = [part for part in parts if part != GPU]
    if not wanted:
        return
    known = {reading.name.partition(":")[2]: reading for reading in host_readings(now)}
    for part in wanted:
        for name in _SHORT.get(part, (part,)):
            if name == "dram" and part == "cpu" and name not in known:
                continue  # counted with the package, or by nobody
            yield _opened(scope, name, known)


def _opened(scope: str, name: str, known: dict[str, Reading]) -> PowerSampler:
    reading = known.get(name) or (known.get("") if len(known) == 1 else None)
    if reading is None:
        there = ", ".join(sorted(known)) or "nothing"
        raise InputError(f"--scope {scope}: this host does not count {name}; it counts {there}")
    try:
        return reading.open()
    except SensorUnavailableError as error:
        raise InputError(f"--scope {scope}: {error}; --scope gpu counts the GPU alone") from error
