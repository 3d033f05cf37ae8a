"""Objectives to minimise, what energy is counted of, and the choice of the answer among measured trials."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tuner.model.errors import InputError, UnknownNameError
from tuner.model.options import BACK_TO_BACK, SINGLE
from tuner.model.trial import Measurement, Trial

PARETO = "pareto"
NAMES = ("time", "energy", "edp", "ed2p", PARETO)
UNITS = {"time": "s", "energy": "J", "edp": "J·s", "ed2p": "J·s²", PARETO: "J·s"}
TIME_EXPONENT = {"time": 1, "energy": 0, "edp": 1, "ed2p": 2, PARETO: 1}
"""Of the makespan in the cost, by the name of the objective; but for time, joules are the other factor."""
COVERAGE = 1.96  # an interval of ± 1.96 standard uncertainties covers 95 % of a normal distribution
GAIN = 0.005  # of the lowest cost: less is worth neither going on with a search nor changing the default
TIE = 0.01
"""Of the shortest time: times that differ by less are the same, and a rule chooses.

The wider it is, the oftener GPUs of one kind agree. The answer is slower than the fastest by so much at most,
or by the interval where that is wider.
"""

Rank = Callable[[Trial], tuple[object, ...]]
"""The order of trials among those that tie: that of the space."""

_ESTIMATED = 0.2  # relative uncertainty of estimated joules: so far may powers of configurations differ


@dataclass(frozen=True)
class Objective:
    """A number to minimise, made from a measurement.

    Attributes:
        name: ``time`` (s), ``energy`` (J), ``edp`` (J·s) or ``ed2p`` (J·s²), all of one round; ``pareto`` for
            the front of time and energy, of which the energy-delay product is the cost where one number is
            needed: the trial that it is least of is on the front.
        limit_s: trials with a longer makespan cost infinity (``--max-slowdown``); None for no limit.
    """

    name: str
    limit_s: float | None = None

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise UnknownNameError(f"unknown objective {self.name!r}; choose from {', '.join(NAMES)}")

    @property
    def needs_energy(self) -> bool:
        """True when a measurement without joules has no cost."""
        return self.name != "time"

    @property
    def is_front(self) -> bool:
        """True where time and energy are minimised at once."""
        return self.name == PARETO

    def cost(self, measurement: Measurement) -> float:
        """The number to minimise; infinity for a failed trial, one over the limit, or one without joules.

        Of a trial that was spared a window for joules it is an estimate.
        """
        makespan_s = measurement.makespan_s
        if not measurement.ok or makespan_s is None or not math.isfinite(makespan_s):
            return math.inf
        if self.limit_s is not None and makespan_s > self.limit_s:
            return math.inf
        if self.name == "time":
            return makespan_s
        joules = measurement.estimated_j if measurement.energy is None else measurement.energy.joules
        if joules is None or not math.isfinite(joules):
            return math.inf
        return joules * makespan_s**self.time_exponent

    def known(self, measurement: Measurement) -> float:
        """The cost, as far as it was measured: infinity where it is an estimate."""
        estimated = self.needs_energy and measurement.energy is None
        return math.inf if estimated else self.cost(measurement)

    def margin(self, precision: float) -> float:
        """Costs that differ by so much of the lowest are the same; of joules that is what was asked for."""
        return precision if self.needs_energy else TIE

    @property
    def time_exponent(self) -> int:
        """Exponent of the makespan in the cost."""
        return TIME_EXPONENT[self.name]

    def uncertainty(self, measurement: Measurement) -> float:
        """Standard uncertainty of the cost, in its unit."""
        cost = self.cost(measurement)
        if not math.isfinite(cost) or cost == 0.0 or measurement.makespan_s is None:
            return 0.0
        relative_time = measurement.makespan_uncertainty_s / measurement.makespan_s
        if self.name == "time":
            return cost * relative_time
        if measurement.energy is None:
            return cost * _ESTIMATED
        relative_energy = measurement.energy.uncertainty_j / measurement.energy.joules
        return cost * math.hypot(relative_energy, self.time_exponent * relative_time)

    def relative_uncertainty(self, measurement: Measurement) -> float:
        """Standard uncertainty of the cost, by the cost; 0 where there is none."""
        cost = self.cost(measurement)
        return self.uncertainty(measurement) / cost if math.isfinite(cost) and cost > 0 else 0.0


def of_one_cost(name: str, user: str) -> Objective:
    """The objective of something that needs one cost.

    Args:
        name: of the objective.
        user: what needs it, such as ``tuner compare``.

    Raises:
        UnknownNameError: there is no such objective.
        InputError: it has two costs.
    """
    objective = Objective(name)
    if objective.is_front:
        others = ", ".join(other for other in NAMES if other != PARETO)
        raise InputError(f"--objective {name}: {user} needs one cost; choose from {others}")
    return objective


OF_SINGLES = " of single launches"
"""Behind the name of an objective whose times are those of single launches."""

TIMED = {BACK_TO_BACK: "rounds back to back", SINGLE: "single launches with a cold L2"}
"""Timings in words."""


def described(
    name: str,
    max_slowdown: float | None,
    scope: str = "gpu",
    timing: str | None = BACK_TO_BACK,
    bound: str = "the fastest",
) -> str:
    """The words an answer is stored under: the objective, what it is of, and the slowdown limit.

    So answers of different timings are never those of one objective.
    """
    of = f" of {scope}" if scope != "gpu" and Objective(name).needs_energy else ""
    singles = OF_SINGLES if timing == SINGLE else ""
    within = "" if max_slowdown is None else f" within {max_slowdown:.2%} of {bound}"
    return f"{name}{of}{singles}{within}"


def timing_of(objective: str) -> str:
    """The timing of an answer, by the words it is stored under."""
    return SINGLE if OF_SINGLES in objective else BACK_TO_BACK


def choose(
    objective: Objective,
    trials: Sequence[tuple[Trial, Measurement]],
    repeatability: float = 0.0,
    precision: float = 0.0,
    *,
    rank: Rank | None = None,
    kept: Trial | None = None,
) -> int | None:
    """The answer of a run that measured nothing again: of the trials that tie (``tied``) that of the rule.

    Returns:
        Index into ``trials``, or None when no trial has a finite cost.
    """
    ties = [trials[i] for i in tied(objective, trials, repeatability, precision)]
    if objective.name == "time" and rank is not None:  # what is known less surely would make it slower
        ties = within([*ties], TIE)
    chosen = by_rule(objective, dict(ties), rank, kept)
    return None if chosen is None else [trial for trial, _ in trials].index(chosen)


def by_rule(
    objective: Objective, ties: Mapping[Trial, Measurement], rank: Rank | None, kept: Trial | None = None
) -> Trial | None:
    """The answer among trials that tie, the same on every GPU of a kind, rank and restart.

    A stored answer that is among them is kept. Of the others, where joules tie, those count whose times are
    the shortest, within ``TIE``; of these the first in order.

    Args:
        objective: what is minimised.
        ties: trials with their measurements.
        rank: their order; None for the fastest, as of a recording, which is the same everywhere.
        kept: the stored answer; None without one.

    Returns:
        One of them; None where there is none.
    """
    if kept in ties:
        return next(trial for trial in ties if trial == kept)  # with its tunables as they were declared
    if rank is None:
        return min(ties, key=lambda trial: ties[trial].makespan_s or 0.0, default=None)
    alike = within([*ties.items()], TIE) if objective.needs_energy else ties
    return min(dict(alike), key=rank, default=None)


def within(trials: Sequence[tuple[Trial, Measurement]], margin: float) -> list[tuple[Trial, Measurement]]:
    """Those of some trials that take at most so much longer than the fastest, as a share."""
    longest_s = (1.0 + margin) * min((known.makespan_s or 0.0 for _, known in trials), default=0.0)
    return [pair for pair in trials if (pair[1].makespan_s or 0.0) <= longest_s]


def tied(
    objective: Objective,
    trials: Sequence[tuple[Trial, Measurement]],
    repeatability: float = 0.0,
    precision: float = 0.0,
) -> list[int]:
    """The trials whose 95 % interval overlaps that of the lowest cost: a tie, which a rule breaks.

    A trial that is known less surely than the lowest gains nothing by it: it counts with the interval of the
    lowest. One that is known more surely loses nothing: within ``Objective.margin`` costs are the same.

    Args:
        objective: what is minimised.
        trials: to choose from.
        repeatability: relative standard uncertainty that a cost has because trials were measured at
            different times.
        precision: costs that differ by so much of the lowest are a tie; for an objective with joules.

    Returns:
        Indices into ``trials``; none when no trial has a finite cost.
    """
    costs = [objective.known(measurement) for _, measurement in trials]
    finite = [i for i, cost in enumerate(costs) if math.isfinite(cost)]
    if not finite:
        return []
    unsure = {i: math.hypot(objective.uncertainty(trials[i][1]), repeatability * costs[i]) for i in finite}
    lowest = min(finite, key=lambda i: costs[i])
    ceiling = costs[lowest] + COVERAGE * unsure[lowest]

    near = costs[lowest] * (1.0 + objective.margin(precision))

    def ties(i: int) -> bool:
        if costs[i] <= near:
            return True
        return costs[i] - COVERAGE * min(unsure[i], unsure[lowest]) <= ceiling

    return [i for i in finite if ties(i)]


# --- What energy is counted of: the GPU, and with it the processors and the memory of its host.

GPU = "gpu"
HOST = ("package", "dram")
"""Parts of a host beside its GPUs, in the order of a sum."""

ABBREVIATED = {"cpu": HOST}
SCOPES = (GPU, *ABBREVIATED, *HOST)
"""Words of ``--scope``."""


def scope_parts(scope: str) -> tuple[str, ...]:
    """The parts of a scope such as ``gpu+cpu``, each once, the GPU first.

    ``cpu`` is all packages, and DRAM where the host counts it apart: as ``cpu`` itself until it is opened.

    Raises:
        UnknownNameError: a part is none of ``SCOPES``.
        InputError: a part is named twice.
    """
    words = [word.strip() for word in scope.split("+")]
    quoted = scope or "''"
    for word in words:
        if word not in SCOPES:
            raise UnknownNameError(
                f"--scope {quoted}: {word!r} is none of {', '.join(SCOPES)}; join them with +, as in gpu+cpu"
            )
    spelt = [part for word in words for part in ABBREVIATED.get(word, (word,))]
    twice = next((part for part in spelt if spelt.count(part) > 1), None)
    if twice is not None:
        raise InputError(f"--scope {scope}: {twice} would be counted twice")
    return tuple(sorted(words, key=(GPU, "cpu", *HOST).index))


def normalised_scope(scope: str) -> str:
    """The scope as every user of it writes it: parts in their order, joined by ``+``.

    Raises:
        InputError: see ``scope_parts``.
    """
    return "+".join(scope_parts(scope))
