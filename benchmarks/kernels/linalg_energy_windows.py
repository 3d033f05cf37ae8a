"""Joules of contenders of linalg_energy.py: windows by turns, what is restored taken off.

A window runs a contender again and again for some tenths of a second, its inputs restored before each run. A
window that only restores, and one in which nothing runs, belong to every round of windows: what they take is
subtracted. All windows of a round are compared with each other.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from math import hypot
from typing import Any

import numpy as np
from linalg_contest import QUICK, QUICK_MS, Machine
from linalg_rows import Contender
from linalg_sets import AnySets
from scipy import stats

from tuner.joules import Region, RegionEnergy

COVERED = 0.95
SIGMAS = 1.96  # standard uncertainties to either side cover that
RESTORING, IDLE = "restoring", "idle"
_LEAD = 0.25  # of a window, before it: the power of what ran before has settled
_REST_S = 0.3  # before a window without work


Meter = AbstractContextManager[Region]
"""What ``tuner.energy`` gives."""


@dataclass
class Window:
    """What a window took, for each run in it; of an idle one for each second.

    Attributes:
        seconds: of a run.
        joules: of a run.
        sigma_j: standard uncertainty of the joules.
    """

    seconds: float
    joules: float
    sigma_j: float


@dataclass
class Windows:
    """Windows of all contenders.

    Attributes:
        of: by name; the windows of a round have the same place.
        counted: devices, scopes and sensors.
        notes: what was not as it should be.
    """

    of: dict[str, list[Window]]
    counted: list[dict[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def measured_windows(
    machine: Machine,
    contenders: Sequence[Contender],
    sets: AnySets,
    meter: Meter,
    *,
    count: int,
    window_s: float,
) -> Windows:
    """Windows of contenders, of restoring, and of nothing, in an order drawn anew in every round.

    Args:
        machine: the GPU.
        contenders: that run.
        sets: the arrays they work on.
        meter: of energy.
        count: rounds.
        window_s: how long a window is, about.
    """
    loops: dict[str, Callable[[], Any]] = {RESTORING: loop_of(machine, sets, None)}
    loops |= {one.name: loop_of(machine, sets, one) for one in contenders}
    runs = {name: max(1, round(window_s / run_s(machine, loop))) for name, loop in loops.items()}
    found = Windows({name: [] for name in (*loops, IDLE)})
    rng = random.Random(len(loops))  # noqa: S311 - an order
    for _ in range(count):
        for name in rng.sample([*loops, IDLE], len(loops) + 1):
            if name == IDLE:
                machine.cp.cuda.runtime.deviceSynchronize()
                time.sleep(_REST_S)
                energy, times = _window(meter, partial(time.sleep, window_s)), window_s
            else:
                repeat(loops[name], 1 + int(_LEAD * runs[name]))
                energy, times = _window(meter, partial(repeat, loops[name], runs[name])), runs[name]
            window = Window(energy.seconds / times, energy.joules / times, energy.uncertainty_j / times)
            found.of[name].append(window)
            _note(found, energy)
    return found


def repeat(loop: Callable[[], Any], count: int) -> None:
    """Run something several times."""
    for _ in range(count):
        loop()


def _note(found: Windows, energy: RegionEnergy) -> None:
    parts = [{"device": part.device, "scope": part.scope, "sensor": part.sensor} for part in energy.parts]
    found.counted += [part for part in parts if part not in found.counted]
    found.notes += [note for note in energy.notes if note not in found.notes]


def _window(meter: Meter, work: Callable[[], None]) -> RegionEnergy:
    with meter as region:
        work()
    return region.result()


def loop_of(machine: Machine, sets: AnySets, contender: Contender | None) -> Callable[[], Any]:
    """Restores all sets and works on them: one graph where it can be captured."""

    def both(stream: Any) -> None:
        with stream:
            sets.restore()
        if contender is not None and contender.enqueue is not None:
            contender.enqueue(stream)

    current = machine.cp.cuda.get_current_stream
    graph = machine.graph(both) if contender is None or contender.graph else None
    if graph is None:
        return lambda: both(current())
    return lambda: graph.launch(current())


def run_s(machine: Machine, loop: Callable[[], Any]) -> float:
    """Seconds of a run, from a few; of one that takes long, from fewer."""
    times: list[float] = []
    while len(times) < QUICK and sum(times) < QUICK_MS:
        times.append(machine.timer.once(loop))
    return max(1e-6, 1e-3 * min(times))


@dataclass(frozen=True)
class Figure:
    """A mean of windows with half of its 95 % interval."""

    value: float
    half: float

    @staticmethod
    def of(values: Sequence[float], sigmas: Sequence[float]) -> "Figure":
        """The wider of two intervals: of what the sensors state, and of how windows scatter (Student's t)."""
        count = len(values)
        stated = SIGMAS * hypot(*sigmas) / count
        if count < 2:
            return Figure(float(values[0]), stated)
        t = float(stats.t.ppf((1 + COVERED) / 2, count - 1))
        scattered = t * float(np.std(values, ddof=1)) / count**0.5
        return Figure(float(np.mean(values)), max(stated, scattered))

    def shown(self) -> dict[str, float]:
        """For JSON."""
        return {"value": self.value, "half": self.half}


@dataclass(frozen=True)
class Taken:
    """What a run takes, round by round, without what is restored.

    Attributes:
        seconds: of a run.
        gross_j: joules of a run.
        net_j: these without the joules of the idle GPU.
        sigmas_j: standard uncertainties of ``gross_j``.
        net_sigmas_j: same of ``net_j``.
    """

    seconds: list[float]
    gross_j: list[float]
    net_j: list[float]
    sigmas_j: list[float]
    net_sigmas_j: list[float]


def taken(windows: Mapping[str, Sequence[Window]], name: str, places: slice) -> Taken:
    """Of a contender, in some rounds.

    Raises:
        ValueError: a run takes no time beyond that of what is restored.
    """
    found = Taken([], [], [], [], [])
    together = zip(
        *(windows[one][places] for one in (name, RESTORING, IDLE)),
        strict=True,
    )
    for run, restoring, idle in together:
        seconds = run.seconds - restoring.seconds
        if seconds <= 0:
            raise ValueError(f"{name} takes no longer than restoring; --window must be longer")
        sigma_j = hypot(run.sigma_j, restoring.sigma_j)
        found.seconds.append(seconds)
        found.gross_j.append(run.joules - restoring.joules)
        found.sigmas_j.append(sigma_j)
        found.net_j.append(found.gross_j[-1] - idle.joules * seconds)
        found.net_sigmas_j.append(hypot(sigma_j, idle.sigma_j * seconds))
    return found
