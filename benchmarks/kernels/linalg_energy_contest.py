"""One row of linalg_energy.py: choose by the first half of the windows, report the second."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot
from statistics import mean
from typing import Any

from linalg_contest import Field, Machine, field_of
from linalg_energy_windows import IDLE, Figure, Meter, Taken, Windows, measured_windows, taken
from linalg_hybrid import HybridFound, hybrid_found
from linalg_large_contest import Opened, opened
from linalg_large_libraries import LargeLibraries
from linalg_large_operations import LargeCase
from linalg_large_sets import LargeSets
from linalg_operations import Case
from linalg_rows import Contender, shown
from linalg_search import Searcher, Space, as_json
from linalg_sets import Sets


@dataclass(frozen=True)
class EnergyBegin(Opened):
    """What a row begins with; of a batch, inputs are drawn on the device."""

    def sets(self, cp: Any) -> LargeSets | Sets:
        """The arrays on the device."""
        if isinstance(self.space.case, LargeCase):
            return self.on(cp)
        return Sets(cp, self.space.plans[self.space.item.default])


def begin_of(searcher: Searcher, case: Case, *, hybrid: bool = False) -> EnergyBegin:
    """Compile what a row begins with; of one large matrix with the hybrid scheme, where it is asked for.

    Raises:
        TunerError: nothing is left of the space.
    """
    if isinstance(case, LargeCase):
        found = opened(searcher, case, hybrid=hybrid)
        return EnergyBegin(found.space, found.first, found.inputs, found.hybrid)
    space, first = searcher.opened(case)
    return EnergyBegin(space, first, {})


def energy_contest(
    machine: Machine,
    libraries: LargeLibraries,
    begin: EnergyBegin,
    meter: Meter,
    *,
    budget_s: float,
    hybrid_s: float,
    count: int,
    window_s: float,
) -> dict[str, Any]:
    """A row: the library, the kernel by default, its fastest and most thrifty configuration, and hybrid.

    Args:
        machine: the GPU.
        libraries: the peers.
        begin: what is compiled.
        meter: of energy.
        budget_s: for the search of the kernel.
        hybrid_s: for that of the hybrid scheme.
        count: windows of each.
        window_s: how long one is, about.
    """
    begun_s = time.monotonic()
    space, sets = begin.space, begin.sets(machine.cp)
    forms = (
        libraries.factorizations(space.case, sets)
        if isinstance(sets, LargeSets)
        else [
            form for form in libraries.forms(space.case, sets) if form.restore is None
        ]  # as windows restore
    )
    field = field_of(machine, space, begin.first, sets, forms=forms, ends_s=begun_s + budget_s)
    hybrid: HybridFound | None = None
    if begin.hybrid is not None and isinstance(sets, LargeSets):
        hybrid = hybrid_found(machine, begin.hybrid, sets, hybrid_s)
    beside = None if hybrid is None else hybrid.best
    running = [*field.right_peers[:1], *field.right_own, *([] if beside is None else [beside])]
    found = measured_windows(machine, running, sets, meter, count=count, window_s=window_s)
    row: dict[str, Any] = {
        "operation": space.case.operation,
        "n": space.case.n,
        "dtype": space.case.dtype,
        "batch": sets.batch,
        "windows": count // 2,
        "window_s": window_s,
        "flops": _flops(space),
        "configurations": {"measured": len(field.own), "candidates": len(space.item.candidates)},
        "counted": found.counted,
        "notes": [*found.notes, *([] if beside is None else _uncounted(found))],
        "peers_tried": [shown(one, sets.count) for one in field.peers],
        "wrong": [shown(one, sets.count) for one in field.finalists if not one.right],
    }
    if hybrid is not None:
        row["hybrid_tried"] = hybrid.facts(sets.count)
    row |= figures(space, field, found, half=count // 2, sets=sets.count, hybrid=beside)
    return {**row, "seconds": round(time.monotonic() - begun_s, 2)}


def _uncounted(found: Windows) -> list[str]:
    """A note where joules of the CPU are not counted."""
    if any(part["scope"] != "gpu" for part in found.counted):
        return []
    return ["the joules of the CPU, which factors the panels of hybrid, are not counted (--scope gpu+cpu)"]


def _flops(space: Space) -> float:
    return float(space.plans[space.item.default].work.operations)


def figures(
    space: Space, field: Field, found: Windows, *, half: int, sets: int, hybrid: Contender | None = None
) -> dict[str, Any]:
    """Of the second half of the rounds, of what the first half has chosen."""
    choosing, reporting = slice(0, half), slice(half, 2 * half)
    flops = _flops(space)
    own = field.right_own
    first = {one.name: taken(found.of, one.name, choosing) for one in own}
    chosen = {
        "peer": next(iter(field.right_peers), None),
        "default": next((one for one in own if one.configuration == space.item.default), None),
        "fastest": min(own, key=lambda one: mean(first[one.name].seconds), default=None),
        "thriftiest": min(own, key=lambda one: mean(first[one.name].gross_j), default=None),
        "hybrid": hybrid,
    }
    row: dict[str, Any] = {}
    for name, one in chosen.items():
        if one is None:
            row[name] = None
            continue
        row[name] = _figures(taken(found.of, one.name, reporting), flops, sets)
        row[name] |= {"name": one.name, "configuration": as_json(one.configuration), "graph": one.graph}
    idle = found.of[IDLE][reporting]
    row["idle_w"] = Figure.of([one.joules for one in idle], [one.sigma_j for one in idle]).shown()
    peer, thriftiest = chosen["peer"], chosen["thriftiest"]
    row["same"] = chosen["fastest"] is thriftiest
    row["gain"] = row["net_gain"] = None
    if peer is not None and thriftiest is not None:
        ours, theirs = (taken(found.of, one.name, reporting) for one in (thriftiest, peer))
        row["gain"] = _gain(theirs.gross_j, theirs.sigmas_j, ours.gross_j, ours.sigmas_j)
        row["net_gain"] = _gain(theirs.net_j, theirs.net_sigmas_j, ours.net_j, ours.net_sigmas_j)
    return row


def _figures(run: Taken, flops: float, sets: int) -> dict[str, Any]:
    """Of one run on one set."""
    seconds = [one / sets for one in run.seconds]
    row: dict[str, Any] = {"us": 1e6 * mean(seconds)}
    for word, joules, sigmas in (
        ("", run.gross_j, run.sigmas_j),
        ("net_", run.net_j, run.net_sigmas_j),
    ):
        of_set = [one / sets for one in joules]
        of_sigmas = [one / sets for one in sigmas]
        row[f"{word or 'gross_'}j"] = Figure.of(of_set, of_sigmas).shown()
        watts = [one / at for one, at in zip(of_set, seconds, strict=True)]
        row[f"{word}w"] = Figure.of(
            watts, [one / at for one, at in zip(of_sigmas, seconds, strict=True)]
        ).shown()
        row[f"{word}gflops_per_w"] = _inverse(1e-9 * flops, of_set, of_sigmas)
    return row


def _inverse(above: float, joules: Sequence[float], sigmas: Sequence[float]) -> dict[str, float] | None:
    """Something by joules; None where they are not above 0."""
    if min(joules) <= 0:
        return None
    values = [above / one for one in joules]
    return Figure.of(
        values, [value * sigma / one for value, sigma, one in zip(values, sigmas, joules, strict=True)]
    ).shown()


def _gain(
    theirs: Sequence[float], their_sigmas: Sequence[float], ours: Sequence[float], our_sigmas: Sequence[float]
) -> dict[str, float] | None:
    """The library's joules by the kernel's, round by round; None where they are not above 0."""
    if min(*theirs, *ours) <= 0:
        return None
    ratios = [one / other for one, other in zip(theirs, ours, strict=True)]
    relative = [
        hypot(sigma / one, other_sigma / other)
        for one, sigma, other, other_sigma in zip(theirs, their_sigmas, ours, our_sigmas, strict=True)
    ]
    return Figure.of(ratios, [ratio * one for ratio, one in zip(ratios, relative, strict=True)]).shown()
