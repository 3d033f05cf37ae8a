"""The curve of one trial's configurations over the clock, for the report: measured and modelled points."""

import math
from collections.abc import Mapping, Sequence

from tuner.model.trial import Measurement, Status
from tuner.space.search_view import ClockPoint

from .line import fit_points
from .model import LEAST_POINTS, ClockModel

MOST_MODELLED = 40
"""Modelled points of a curve, at most."""


def curve(measured: Mapping[int, Measurement], clocks_mhz: Sequence[int]) -> list[ClockPoint]:
    """The measured clocks, and modelled ones between the lowest and the highest of them.

    Nothing is modelled below `LEAST_POINTS` clocks, nor from a clock on at which the GPU was at its power
    limit: there it runs at a lower clock than the one set.

    Args:
        measured: of the same configurations, by the clock set in MHz.
        clocks_mhz: that could be set.

    Returns:
        Points, highest clock first.
    """
    valid = {mhz: one for mhz, one in measured.items() if one.status is Status.OK and one.makespan_s}
    points = [_measured(mhz, one) for mhz, one in valid.items()]
    fitted = fit_points(valid)
    if len({mhz for mhz, _ in fitted}) >= LEAST_POINTS:
        ceiling = min((mhz for mhz, one in valid.items() if one.at_power_limit), default=math.inf)
        between = [m for m in clocks_mhz if min(valid) < m < min(max(valid), ceiling) and m not in valid]
        chosen = between[:: 1 + len(between) // MOST_MODELLED]
        points += _modelled(ClockModel(fitted), chosen) if chosen else []
    return sorted(points, key=lambda point: -point.clock_mhz)


def _measured(mhz: int, one: Measurement) -> ClockPoint:
    energy = one.energy
    return ClockPoint(
        clock_mhz=mhz,
        time_s=one.makespan_s or 0.0,
        time_uncertainty_s=one.makespan_uncertainty_s,
        joules=None if energy is None else energy.joules,
        joules_uncertainty=None if energy is None else energy.uncertainty_j,
        measured=True,
    )


def _modelled(model: ClockModel, clocks_mhz: Sequence[int]) -> list[ClockPoint]:
    found = model.at(clocks_mhz)
    rows = zip(
        clocks_mhz, found.time_s, found.time_relative, found.joules, found.joules_relative, strict=True
    )
    return [
        ClockPoint(
            clock_mhz=mhz,
            time_s=float(time_s),
            time_uncertainty_s=float(time_s * unsure_time),
            joules=float(joules) if math.isfinite(joules) else None,
            joules_uncertainty=float(joules * unsure_joules) if math.isfinite(joules) else None,
            measured=False,
        )
        for mhz, time_s, unsure_time, joules, unsure_joules in rows
    ]
