"""The hybrid scheme in rows of linalg_large.py and linalg_energy.py: panels by the CPU, updates by the GPU.

Its kernels are called as those of the GPU alone, with ``-hybrid`` behind. It is searched for a time of its
own and timed by itself, as a run may take many times as long as the others. No graph can hold it.
"""

import time
from dataclasses import dataclass
from typing import Any

from cold_timing import median, spread
from linalg_contest import ROUNDS, ROUNDS_MS, Machine, searched
from linalg_large_sets import LargeSets
from linalg_operations import Case
from linalg_rows import Contender, shown
from linalg_search import Searcher, Space, as_json

from tuner.devices.cuda.launches import CpuThreads
from tuner.model.errors import TunerError
from tuner.model.plan import Configuration

_LEAST_RUNS, _MOST_CHECKED = 3, 3


@dataclass(frozen=True)
class HybridBegin:
    """What is searched for the hybrid scheme of a row.

    Attributes:
        space: of the kernel.
        first: configurations that are measured first.
    """

    space: Space
    first: list[Configuration]


@dataclass(frozen=True)
class HybridFound:
    """What came of the search.

    Attributes:
        best: the fastest configuration that answers right; None where none does.
        tried: all that were measured.
    """

    best: Contender | None
    tried: list[Contender]

    def facts(self, sets: int) -> dict[str, Any]:
        """What a row says of the search."""
        wrong = [one for one in self.tried if one.deviation is not None and not one.right]
        troubles = sorted({one.trouble for one in self.tried if one.trouble})
        return {
            "measured": sum(not one.trouble for one in self.tried),
            "wrong": [shown(one, sets) for one in wrong],
            "troubles": troubles,
        }


def hybrid_begin(searcher: Searcher, case: Case) -> HybridBegin:
    """The hybrid kernel's space for a row of the GPU's kernel.

    Raises:
        TunerError: nothing is left of the space.
    """
    space, first = searcher.opened(Case(f"{case.operation}-hybrid", case.n, case.dtype))
    return HybridBegin(space, first)


def hybrid_found(machine: Machine, begin: HybridBegin, sets: LargeSets, budget_s: float) -> HybridFound:
    """Search the hybrid scheme; the default is measured however long it takes."""
    space = begin.space
    own = searched(machine, space, begin.first, sets, time.monotonic() + budget_s)
    for one in own:
        one.name = f"hybrid {one.name}"
    ranked = sorted((one for one in own if not one.trouble), key=lambda one: one.quick_ms)
    for one in ranked[:_MOST_CHECKED]:
        machine.check(space, one, sets)
        if one.right:
            return HybridFound(one, own)
    return HybridFound(None, own)


def hybrid_times(machine: Machine, found: HybridFound) -> dict[str, Any] | None:
    """Times of the best, of as many runs as fit into a second and a half, three at least."""
    best = found.best
    if best is None:
        return None
    runs = int(min(ROUNDS[1], max(_LEAST_RUNS, ROUNDS_MS / best.quick_ms)))
    times = [1e3 * machine.timer.once(best.run, best.prepare) for _ in range(runs)]
    row: dict[str, Any] = {"us": median(times), "spread_us": spread(times), "rounds": runs}
    row |= {"graph": best.graph, "configuration": as_json(best.configuration)}
    if best.deviation is not None:
        row |= {"error": best.deviation.error, "what": best.deviation.what, "correct": best.right}
    return row


def cpu_facts() -> dict[str, Any]:
    """The BLAS of the CPU and the threads it computes with where none are asked for."""
    threads = CpuThreads()
    try:
        count = threads.use(0)
    except TunerError as error:
        return {"trouble": str(error)}
    return {"blas": threads.name, "threads": count}
