"""The default: the analytical answer at once, then the search that suits the space."""

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from threading import Thread

from tuner.model.plan import PLACE
from tuner.model.trial import Measurement, Trial, stated
from tuner.model.units import si, with_uncertainty
from tuner.space.search_view import Search

from .analytical import analytical, first_compiled
from .descent import Attempt, cheapest, recalled
from .greedy import greedy
from .independent import exhaustive, random_sampling
from .stopping import paying

# Evidence: docs/lab/methodologies.md. Neither noise nor the cost of a trial changes the choice.
SMALL = 24  # trials: a Bayesian search ends after more than half of them
AHEAD = 128  # trials that may be compiled before the search asks for them
SWEEP_S = 5.0  # a space is measured whole where that takes no longer: about what a search needs to be sure

COVERAGE = 1.96  # standard uncertainties in half of a 95 % interval


def auto(search: Search, *, patience: float | None = None) -> Attempt:
    """Measure the analytical answer first, then go on with the policy that suits the space.

    * Up to `SMALL` trials are all measured, in random order where that may stop before its end: what has been
      seen then speaks for what has not.
    * Concurrent workloads, and clocks, are searched by `greedy`: a descent walks a product one factor at a
      time. It begins at the defaults, and again at the analytical answers where it does not get below them:
      workloads that share a GPU want other configurations than each of them alone.
    * Workloads whose streams have priorities or shares are searched by `bayesian`: what one is worth depends
      on those of all others, and a descent leaves a tunable at the first value that is worse.
    * Everything else is searched by `bayesian`, which measures all where that takes less than `SWEEP_S`.

    Args:
        search: what the policy is told.
        patience: as of `bayesian`; with a number, no space is measured whole.
    """
    if search.size == 0:
        return None
    measured: dict[Trial, Measurement] = {}
    yield from recalled(analytical(search), measured)
    for measurement in measured.values():
        search.tell(f"first answer: {_in_words(measurement)}{search.suffix}")
    if len(measured) < search.size:
        name, reason = _choice(search)
        search.tell(f"auto: {name}, because {reason}")
        yield from recalled(_part(name, search, measured, patience), measured)
    return cheapest(search, measured)


def first_expected(search: Search) -> list[Trial]:
    """Return the trials that the search compiles while its default is measured: see ``Search.expect``.

    Where a lone workload may be swept, these are its first ones all, and SciPy is imported meanwhile.
    """
    trials = first_compiled(search)
    if _choice(search)[0] == "bayesian" and not search.label and len(search.candidates) == 1:
        Thread(target=_import_surrogate, name="SciPy", daemon=True).start()
        trials += [Trial((each.configuration,)) for each in search.candidates[0][:AHEAD]]
    return list(dict.fromkeys(trials))


def _import_surrogate() -> None:
    """Import what `bayesian` uses; on a simulated GPU a short run ends before it fits anything."""
    for module in (f"{__package__}.bayesian", "scipy.linalg", "scipy.optimize", "scipy.special"):
        import_module(module)


def _choice(search: Search) -> tuple[str, str]:
    """The policy for a space, and why."""
    if search.size <= SMALL:
        return "exhaustive", f"{search.size} trials are no more than a search would measure"
    together, clocks = len(search.candidates), len(search.clocks_mhz)
    if together > 1:
        several = f"{together} workloads run together"
        if clocks <= 1 and any(name in tunables for tunables in search.tunables for name in PLACE):
            return "bayesian", f"{several}, and their streams have priorities or SM shares"
        return "greedy", several
    if clocks > 1:
        return "greedy", f"{clocks} clocks are searched with the configurations"
    about = "" if search.large_space(0) is None else "about "
    return "bayesian", f"one workload has {about}{search.size:,} configurations: the promising ones go first"


def _part(
    name: str, search: Search, measured: Mapping[Trial, Measurement], patience: float | None
) -> Attempt:
    """The search chosen."""
    informed = replace(search, prior={**search.prior, **measured})
    if name == "exhaustive":
        return exhaustive(search) if search.payback is None else paying(random_sampling(search), search)
    if name == "greedy":
        return paying(_descents(search, informed, dict(measured)), search)
    from .bayesian import bayesian  # noqa: PLC0415 - SciPy is imported only where it is used

    answered = next(iter(measured)).configurations
    sweep_s = SWEEP_S if patience is None else 0.0
    return bayesian(informed, patience=patience, sweep_s=sweep_s, answered=answered)


def _descents(search: Search, informed: Search, before: Mapping[Trial, Measurement]) -> Attempt:
    """Descend from the defaults, and from the first answer too where nothing cheaper than it was found.

    Both are one search that pays or does not: where it was stopped, no second descent begins.
    """
    first, descended = cheapest(search, before), dict[Trial, Measurement]()
    best = yield from recalled(greedy(search), descended)
    if first in (None, Trial(search.defaults, search.clocks[0])):
        return best
    if cheapest(search, {**before, **descended}) == first:
        search.tell("auto: greedy again, from the first answer, because nothing cheaper was found")
        best = yield from recalled(greedy(informed), descended)
    return best


def _in_words(measurement: Measurement) -> str:
    """Return the result of a measurement in words, for the user."""
    if not measurement.ok or measurement.makespan_s is None:
        return f"does not run ({measurement.status.value})"
    time, energy = si(measurement.makespan_s, "s"), stated(measurement).energy
    if energy is None:
        return time
    return f"{time}, {with_uncertainty(energy.joules, COVERAGE * energy.uncertainty_j, 'J')}"
