"""What co-running brings: workloads run together, against the same ones run one after another."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tuner.measurement.paired import PairedRepeats, Ratio
from tuner.measurement.pooling import join
from tuner.model.objective import Objective
from tuner.model.trial import Energy, Measurement, Trial
from tuner.model.uncertainty import Part, contracted, expanded

_IN_TURN = Trial(())  # stands for the sum of the lone runs among paired repeats


@dataclass(frozen=True)
class CoRunComparison:
    """A trial, against its workloads one after another.

    Attributes:
        together: the trial.
        in_turn: sums over the workloads, each alone in a round of its own.
        alone: per workload, in the order of the trial.
        time: makespan of a round together, by the sum of the lone ones.
        energy: the same of joules; None without them.
    """

    together: Measurement
    in_turn: Measurement
    alone: tuple[Measurement, ...]
    time: Ratio
    energy: Ratio | None


def compared(
    trial: Trial, repeats: Sequence[tuple[Measurement, Sequence[Measurement]]]
) -> CoRunComparison | None:
    """The comparison from paired repeats.

    Args:
        trial: what was run together.
        repeats: of each, the trial and its workloads alone, measured soon after one another.

    Returns:
        The comparison; None where something failed.
    """
    parts = [one for together, alone in repeats for one in (together, *alone)]
    if not parts or any(not one.ok or one.makespan_s is None for one in parts):
        return None
    paired = PairedRepeats(tuple({trial: together, _IN_TURN: summed(alone)} for together, alone in repeats))
    time = paired.ratio(trial, _IN_TURN, Objective("time"))
    if time is None:
        return None
    joined = paired.joined()
    return CoRunComparison(
        together=joined[trial],
        in_turn=joined[_IN_TURN],
        alone=tuple(join(same) for same in zip(*(alone for _, alone in repeats), strict=True)),
        time=time,
        energy=paired.ratio(trial, _IN_TURN, Objective("energy")),
    )


def summed(alone: Sequence[Measurement]) -> Measurement:
    """Rounds of lone workloads one after another: sums of times and joules, of which none may have failed."""
    energies = [one.energy for one in alone if one.energy is not None]
    return replace(
        alone[0],
        results=tuple(result for one in alone for result in one.results),
        makespan_s=math.fsum(one.makespan_s or 0.0 for one in alone),
        makespan_spread_s=math.hypot(*(one.makespan_spread_s for one in alone)),
        makespan_uncertainty_s=math.hypot(*(one.makespan_uncertainty_s for one in alone)),
        energy=_energy(energies) if len(energies) == len(alone) else None,
        rounds=min(one.rounds for one in alone),
        window_s=math.fsum(one.window_s for one in alone),
        flags=tuple(dict.fromkeys(flag for one in alone for flag in one.flags)),
        check_s=math.fsum(one.check_s for one in alone),
        energy_total_j=math.fsum(one.energy_total_j for one in alone),
    )


def _energy(energies: Sequence[Energy]) -> Energy:
    joules = math.fsum(energy.joules for energy in energies)
    uncertainty_j, degrees = expanded([_variance(energy) for energy in energies])
    seconds = math.fsum(energy.joules / energy.watts for energy in energies if energy.watts)
    return replace(
        energies[0],
        joules=joules,
        uncertainty_j=uncertainty_j,
        watts=joules / seconds if seconds else 0.0,
        degrees=degrees,
    )


def _variance(energy: Energy) -> Part:
    return contracted(energy.uncertainty_j, energy.degrees)
