"""What energy is counted of: the GPU, and with it the processors and the memory of its host."""

import time
from collections.abc import Callable, Iterator, Sequence

from tuner import registry
from tuner.interfaces.power import PowerSampler, Reading, SensorInfo
from tuner.model.errors import InputError, SensorUnavailableError, UnknownNameError

GPU = "gpu"
HOST = ("package", "dram")
"""What a host has beside its GPUs, in the order of a sum."""

_SOURCES = ("powercap", "hwmon")
_GRACE = "grace"  # a processor with its memory: what package and DRAM are of other hosts
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
    shown = scope or "''"
    for word in words:
        if word not in SCOPES:
            raise UnknownNameError(
                f"--scope {shown}: {word!r} is none of {', '.join(SCOPES)}; join them with +, as in gpu+cpu"
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
    return info.name.startswith(tuple(f"{name}:" for name in _SOURCES))


def host_readings(now: Callable[[], float] = time.monotonic) -> list[Reading]:
    """The energy readings of this host beside its GPUs; each is found by opening it."""
    return [
        reading
        for name in _SOURCES
        for reading in registry.load("readings", name)(0, responses=lambda _: None, now=now)
    ]


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
    readings = host_readings(now)
    known = {reading.name.partition(":")[2]: reading for reading in readings}
    for part in wanted:
        names = _SHORT.get(part, (part,))
        if part in _SHORT and HOST[0] not in known and _GRACE in known:
            names = (_GRACE,)
        for name in names:
            if name == "dram" and part in _SHORT and name not in known:
                continue  # counted with the package, or by nobody
            yield _opened(scope, name, known, readings)


def _opened(scope: str, name: str, known: dict[str, Reading], readings: Sequence[Reading]) -> PowerSampler:
    there = ", ".join(sorted(word for word in known if word))
    reading = known.get(name) or (None if there else readings[0])
    if reading is None:
        raise InputError(f"--scope {scope}: this host does not count {name}; it counts {there}")
    try:
        return reading.open()
    except SensorUnavailableError as error:
        raise InputError(f"--scope {scope}: {error}; --scope gpu counts the GPU alone") from error
