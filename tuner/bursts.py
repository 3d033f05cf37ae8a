"""Several measuring windows of one trial, joined into one measurement."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from scipy.special import stdtrit

from tuner.model import Energy, Measurement, WorkloadResult

_ONE_SIGMA = 0.8413447460685429  # of the normal distribution, one-sided


def join(bursts: Sequence[Measurement]) -> Measurement:
    """Means over bursts, with the larger of the uncertainty between them and that within them.

    Between: the standard error of the mean, widened to the one-sigma width of Student's t for so few bursts.
    Within: the bursts' own uncertainties, as of independent values.

    Returns:
        The joined measurement; the first failed burst where one failed.
    """
    failed = next((burst for burst in bursts if not burst.ok or burst.makespan_s is None), None)
    if failed is not None:
        return failed
    makespan_s, makespan_u = _mean([(b.makespan_s or 0.0, b.makespan_uncertainty_s) for b in bursts])
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
    joules, uncertainty_j = _mean([(energy.joules, energy.uncertainty_j) for energy in known])
    watts = statistics.fmean(energy.watts for energy in known)
    return replace(known[-1], joules=joules, uncertainty_j=uncertainty_j, watts=watts)


def _mean(values: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Mean of (value, uncertainty) pairs, and its standard uncertainty."""
    count = len(values)
    mean = statistics.fmean(value for value, _ in values)
    within = math.hypot(*(uncertainty for _, uncertainty in values)) / count
    if count == 1:
        return mean, within
    error = statistics.stdev(value for value, _ in values) / math.sqrt(count)
    return mean, max(within, float(stdtrit(count - 1, _ONE_SIGMA)) * error)
