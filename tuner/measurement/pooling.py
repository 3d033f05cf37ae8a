"""Several measuring windows of one trial, joined into one measurement."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from scipy.special import fdtri

from tuner.model import Energy, Measurement, Part, WorkloadResult, contracted, expanded

# Bursts are taken to differ by more than their own uncertainties explain where chance would make them so in
# 40 % of cases. Were it rarer, intervals of three bursts that do differ a little would cover less than 93 %;
# were it less rare, those of bursts that do not would cover 98 % and more.
_LIKELY = 0.6
_MANY = 1e6  # degrees of freedom of an uncertainty that is known


def join(bursts: Sequence[Measurement]) -> Measurement:
    """Means over bursts, with the uncertainty within them, or that between them where it is larger.

    Within: the bursts' own uncertainties, as of independent values. Between: the standard error of the mean,
    with Student's t for so few bursts; it takes the place of the other where the bursts differ by more than
    that explains, as when a GPU warms up.

    Returns:
        The joined measurement; the first failed burst where one failed.
    """
    failed = next((burst for burst in bursts if not burst.ok or burst.makespan_s is None), None)
    if failed is not None:
        return failed
    makespans = [(burst.makespan_s or 0.0, burst.makespan_uncertainty_s, None) for burst in bursts]
    makespan_s, makespan_u, _ = joined_mean(makespans)
    clocks = [burst.clock_mhz for burst in bursts if burst.clock_mhz is not None]
    return replace(
        bursts[-1],
        results=tuple(map(_result, zip(*(burst.results for burst in bursts), strict=True))),
        makespan_s=makespan_s,
        makespan_spread_s=statistics.fmean(burst.makespan_spread_s for burst in bursts),
        makespan_uncertainty_s=makespan_u,
        bursts=sum(burst.bursts for burst in bursts),
        energy=_energy([burst.energy for burst in bursts]),
        rounds=sum(burst.rounds for burst in bursts),
        window_s=math.fsum(burst.window_s for burst in bursts),
        clock_mhz=statistics.median(clocks) if clocks else None,
        flags=tuple(dict.fromkeys(flag for burst in bursts for flag in burst.flags)),
        check_s=math.fsum(burst.check_s for burst in bursts),
        energy_total_j=math.fsum(burst.energy_total_j for burst in bursts),
    )


def _result(same: Sequence[WorkloadResult]) -> WorkloadResult:
    """One workload's part in all bursts."""
    times = [result.time_s for result in same if result.time_s is not None]
    spread_s = statistics.fmean(result.spread_s for result in same)
    return replace(same[-1], time_s=statistics.fmean(times) if times else None, spread_s=spread_s)


def _energy(energies: Sequence[Energy | None]) -> Energy | None:
    known = [energy for energy in energies if energy is not None]
    if len(known) < len(energies):
        return None
    joules, uncertainty_j, degrees = joined_mean([(e.joules, e.uncertainty_j, e.degrees) for e in known])
    watts = statistics.fmean(energy.watts for energy in known)
    return replace(known[-1], joules=joules, uncertainty_j=uncertainty_j, degrees=degrees, watts=watts)


def joined_mean(values: Sequence[tuple[float, float, float | None]]) -> tuple[float, float, float | None]:
    """Mean of (value, uncertainty, degrees of freedom) with its own, see ``join``."""
    count = len(values)
    mean = statistics.fmean(value for value, _, _ in values)
    own = [contracted(uncertainty, degrees) for _, uncertainty, degrees in values]
    within = [Part(part.variance / count**2, part.degrees) for part in own]
    uncertainty, degrees = expanded(within)
    if count == 1:
        return mean, uncertainty, degrees
    between = Part(statistics.variance(value for value, _, _ in values) / count, count - 1)
    sure = math.fsum(part.variance for part in within)
    chance = float(fdtri(count - 1, _MANY if degrees is None else degrees, _LIKELY))
    if between.variance > sure * chance:
        return mean, *expanded([between])
    return mean, uncertainty, degrees
