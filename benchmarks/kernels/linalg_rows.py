"""What is timed in linalg_peers.py, and the rows that tables are made of."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from cold_timing import median, outside_interval, spread
from linalg_forms import Form
from linalg_search import Space, as_json

from tuner.model.plan import Configuration
from tuner.problems.base import Deviation


@dataclass
class Contender:
    """What is timed.

    Attributes:
        name: its key.
        run: works on all sets.
        prepare: restores them; not timed.
        deviation: of its answers; None where they were not looked at.
        quick_ms: of all sets, before the rounds.
        trouble: why it does not run, or empty.
        configuration: of the kernel; None for a library.
        form: of the library.
        graph: whether the sets are one CUDA graph.
        times_ms: of the rounds.
        enqueue: puts the work on all sets into a stream; None where it does not run.
    """

    name: str
    run: Callable[[], None]
    prepare: Callable[[], None]
    deviation: Deviation | None = None
    quick_ms: float = inf
    trouble: str = ""
    configuration: Configuration | None = None
    form: Form | None = None
    graph: bool = True
    times_ms: Sequence[float] = ()
    enqueue: Callable[[Any], None] | None = None

    @property
    def right(self) -> bool:
        """Its answers were looked at, and are right."""
        return self.deviation is not None and bool(self.deviation.ok)

    def half_ms(self, second: bool) -> Sequence[float]:
        """The times that choose, or those that are reported."""
        middle = len(self.times_ms) // 2
        return self.times_ms[middle:] if second else self.times_ms[:middle]


def shown(contender: Contender, sets: int) -> dict[str, Any]:
    """A contender that was tried."""
    row: dict[str, Any] = {"name": contender.name}
    if contender.trouble:
        return {**row, "trouble": contender.trouble}
    row |= {"us": 1e3 * contender.quick_ms / sets, "graph": contender.graph}
    if contender.deviation is not None:
        row |= {"error": contender.deviation.error, "what": contender.deviation.what}
        row |= {"allowed": contender.deviation.allowed, "correct": contender.right}
    return row


def compared(
    space: Space, own: Sequence[Contender], peers: Sequence[Contender], sets: int, copy_gb_s: float | None
) -> dict[str, Any]:
    """Own figures, those of the best peer, and ratios; with the rate of a copy also how near it they are.

    ``peer_same_layout`` is the best peer whose arrays lie in memory as the kernel's do.
    """
    right = {one.configuration: one for one in own if one.right}
    peer = _fastest(peers)
    alike = _fastest([one for one in peers if one.form is not None and not one.form.turned])
    row: dict[str, Any] = {"peer": None if peer is None else timed(peer, sets)}
    row["peer_same_layout"] = None if alike is None else timed(alike, sets)
    forms = {
        "default": right.get(space.item.default),
        "analytical": right.get(space.analytical),
        "best": _fastest(list(right.values())),
    }
    for name, one in forms.items():
        if one is None:
            row[name] = None
            continue
        row[name] = {**timed(one, sets), "configuration": as_json(one.configuration)}
        if copy_gb_s is not None and one.configuration is not None:
            moved = space.plans[one.configuration].work.bytes
            row[name]["roofline"] = moved / (1e3 * row[name]["us"] * copy_gb_s)
        if peer is not None:
            row[name]["ratio"] = _ratio(peer, one)
        if alike is not None:
            row[name]["ratio_same_layout"] = _ratio(alike, one)
    best = row["best"]
    row["correct"] = best is not None
    ratio = None if best is None or peer is None else best["ratio"]["median"]
    row["met"] = None if ratio is None else space.case.target.met(ratio)
    return row


def _fastest(contenders: Sequence[Contender]) -> Contender | None:
    """By the first half of the rounds, of which nothing else is reported."""
    known = [one for one in contenders if one.times_ms]
    return min(known, key=lambda one: median(list(one.half_ms(second=False))), default=None)


def timed(contender: Contender, sets: int) -> dict[str, Any]:
    """Figures of a contender, by the second half of its rounds."""
    times = [1e3 * ms / sets for ms in contender.half_ms(second=True)]
    row: dict[str, Any] = {"us": median(times), "spread_us": spread(times), "rounds": len(times)}
    row["graph"] = contender.graph
    if contender.form is not None:
        row |= {"name": contender.form.name, "form": contender.form.settings}
    if contender.deviation is not None:
        row |= {"error": contender.deviation.error, "what": contender.deviation.what}
        row["correct"] = contender.right
    return row


def _ratio(peer: Contender, own: Contender) -> dict[str, float]:
    """Median of the ratios of the rounds, and its 95 % interval by the sign test."""
    pairs = zip(peer.half_ms(second=True), own.half_ms(second=True), strict=True)
    ratios = sorted(one / other for one, other in pairs)
    edge = outside_interval(len(ratios))
    return {"median": median(ratios), "low": ratios[edge], "high": ratios[-1 - edge]}
