"""Several measuring windows of one trial, joined into one measurement."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from tuner.model.trial import Energy, Flag, FlagKind, Measurement, WorkloadResult
from tuner.model.uncertainty import Part, contracted, expanded

# Repeats are taken to differ by more than their own uncertainties explain where chance would make them so in
# 40 % of cases. Were it rarer, intervals of three repeats that do differ a little would cover less than 93 %;
# were it less rare, those of repeats that do not would cover 98 % and more.
_LIKELY = 0.6
_SURELY = 0.99  # of repeats that scatter by more than those of other trials
_KEPT_SERIES = 3  # of power, of the first repeats
_MANY = 1e6  # degrees of freedom of an uncertainty that is known


def join(repeats: Sequence[Measurement]) -> Measurement:
    """Means over repeats, with the uncertainty within them, or that between them where it is larger.

    Within: the repeats' own uncertainties, as of independent values. Between: the standard error of the mean,
    with Student's t for so few repeats; it takes the place of the other where the repeats differ by more than
    that explains, as when a GPU warms up.

    Returns:
        The joined measurement; the first failed repeat where one failed.
    """
    failed = next((repeat for repeat in repeats if not repeat.ok or repeat.makespan_s is None), None)
    if failed is not None:
        return failed
    makespans = [(repeat.makespan_s or 0.0, repeat.makespan_uncertainty_s, None) for repeat in repeats]
    makespan_s, makespan_u, _ = joined_mean(makespans)
    clocks = [repeat.clock_mhz for repeat in repeats if repeat.clock_mhz is not None]
    warm = [repeat.temperature_c for repeat in repeats if repeat.temperature_c is not None]
    return replace(
        repeats[-1],
        results=tuple(map(_result, zip(*(repeat.results for repeat in repeats), strict=True))),
        makespan_s=makespan_s,
        makespan_spread_s=statistics.fmean(repeat.makespan_spread_s for repeat in repeats),
        makespan_uncertainty_s=makespan_u,
        repeats=sum(repeat.repeats for repeat in repeats),
        energy=_energy([repeat.energy for repeat in repeats]),
        rounds=sum(repeat.rounds for repeat in repeats),
        window_s=math.fsum(repeat.window_s for repeat in repeats),
        clock_mhz=statistics.median(clocks) if clocks else None,
        temperature_c=statistics.fmean(warm) if warm else None,
        flags=_flags(repeats),
        check_s=math.fsum(repeat.check_s for repeat in repeats),
        energy_total_j=math.fsum(repeat.energy_total_j for repeat in repeats),
        power=tuple(one for repeat in repeats for one in repeat.power)[:_KEPT_SERIES],
    )


def _flags(repeats: Sequence[Measurement]) -> tuple[Flag, ...]:
    """The flags of all repeats; of several powers at the limit the last."""
    flags = dict.fromkeys(flag for repeat in repeats for flag in repeat.flags)
    limited = [flag for flag in flags if flag.kind is FlagKind.POWER_LIMIT]
    return tuple(flag for flag in flags if flag not in limited[:-1])


def _result(same: Sequence[WorkloadResult]) -> WorkloadResult:
    """One workload's part in all repeats."""
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


def joined_mean(
    values: Sequence[tuple[float, float, float | None]], scatter: Part | None = None
) -> tuple[float, float, float | None]:
    """Mean of (value, uncertainty, degrees of freedom) with its own, see ``join``.

    Args:
        values: at least one.
        scatter: relative variance of one value from one repeat to another, where many tell of it. It takes
            the place of these few's own scatter, unless that is larger by more than chance.
    """
    count = len(values)
    mean = statistics.fmean(value for value, _, _ in values)
    own = [contracted(uncertainty, degrees) for _, uncertainty, degrees in values]
    within = [Part(part.variance / count**2, part.degrees) for part in own]
    uncertainty, degrees = expanded(within)
    if count == 1 and scatter is None:
        return mean, uncertainty, degrees
    from scipy.special import fdtri  # noqa: PLC0415 - takes 0.2 s, which the first trial need not wait for

    own_scatter = None
    if count > 1:  # statistics.variance is exact in fractions, which takes a tenth of a search's time
        squares = math.fsum((value - mean) ** 2 for value, _, _ in values)
        own_scatter = Part(squares / (count - 1), count - 1)
    known = None if scatter is None else Part(scatter.variance * mean**2, scatter.degrees)
    if known is None or (
        own_scatter is not None
        and own_scatter.variance > known.variance * float(fdtri(count - 1, known.degrees or _MANY, _SURELY))
    ):
        known = own_scatter
    if known is None:
        return mean, uncertainty, degrees
    between = Part(known.variance / count, known.degrees)
    sure = math.fsum(part.variance for part in within)
    chance = float(fdtri(between.degrees or _MANY, _MANY if degrees is None else degrees, _LIKELY))
    if between.variance > sure * chance:
        return mean, *expanded([between])
    return mean, uncertainty, degrees


def scaled_energy(energy: Energy, factor: float, uncertainty: float, time_factor: float = 1.0) -> Energy:
    """Joules scaled; watts are scaled so that the time of a round is.

    Args:
        energy: with the uncertainty of its windows.
        factor: of joules.
        uncertainty: of the factor, relative; it is added to that of the joules.
        time_factor: of the time of a round.
    """
    joules, power = energy.joules * factor, factor / time_factor
    own = contracted(energy.uncertainty_j * factor, energy.degrees)
    uncertainty_j, degrees = expanded([own, Part((joules * uncertainty) ** 2)])
    if energy.uncertainty_j * factor > uncertainty_j:  # few degrees, which a known part makes seem more
        uncertainty_j, degrees = energy.uncertainty_j * factor, energy.degrees
    return replace(
        energy,
        joules=joules,
        uncertainty_j=uncertainty_j,
        degrees=degrees,
        watts=energy.watts * power,
        idle_watts=None if energy.idle_watts is None else energy.idle_watts * power,
        idle_uncertainty_w=energy.idle_uncertainty_w * power,
    )
