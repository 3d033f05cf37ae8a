"""Clocks and power limits beside any policy, which knows of neither."""

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace

from tuner.model.objective import GAIN
from tuner.model.plan import Configuration
from tuner.model.trial import Measurement, Status, Trial
from tuner.space.search_view import ClockPoint, Policy, Search

from .clock_model import LEAST_POINTS, ClockLine, ClockModel, fit_points
from .descent import LEADERS, Answer, Attempt, Memory, cheapest, recalled, relayed, rivals, too_slow
from .greedy import lowered

# --- Clocks: configurations at a promising clock, clocks by a model, and the answer's curve.

MOST_MODELLED = 40  # modelled points of a curve, at most


def curve(measured: Mapping[int, Measurement], clocks_mhz: Sequence[int]) -> list[ClockPoint]:
    """The measured clocks, and modelled ones between the lowest and the highest of them.

    Nothing is modelled below `LEAST_POINTS` clocks, nor from a clock on at which the GPU was at its power
    limit: there it runs at a lower clock than the one set.

    Args:
        measured: of the same configurations, by the clock set in MHz.
        clocks_mhz: that could be set, highest first; so are the points.
    """
    valid = {
        mhz: measurement
        for mhz, measurement in measured.items()
        if measurement.status is Status.OK and measurement.makespan_s
    }
    points = [_measured(mhz, measurement) for mhz, measurement in valid.items()]
    fitted = fit_points(valid)
    if len({mhz for mhz, _ in fitted}) >= LEAST_POINTS:
        ceiling = min(
            (mhz for mhz, measurement in valid.items() if measurement.at_power_limit), default=math.inf
        )
        between = [m for m in clocks_mhz if min(valid) < m < min(max(valid), ceiling) and m not in valid]
        modelled = between[:: 1 + len(between) // MOST_MODELLED]
        points += _modelled(ClockModel(fitted), modelled) if modelled else []
    return sorted(points, key=lambda point: -point.clock_mhz)


def _measured(mhz: int, measurement: Measurement) -> ClockPoint:
    energy = measurement.energy
    return ClockPoint(
        clock_mhz=mhz,
        time_s=measurement.makespan_s or 0.0,
        time_uncertainty_s=measurement.makespan_uncertainty_s,
        joules=None if energy is None else energy.joules,
        joules_uncertainty=None if energy is None else energy.uncertainty_j,
        measured=True,
    )


def _modelled(model: ClockModel, clocks_mhz: Sequence[int]) -> list[ClockPoint]:
    prediction = model.at(clocks_mhz)
    rows = zip(
        clocks_mhz,
        prediction.time_s,
        prediction.time_relative,
        prediction.joules,
        prediction.joules_relative,
        strict=True,
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


ROUNDS = 2  # greatest number of searches of configurations: again only if the best clock or limit is far away
FAR = 0.25  # of natural logarithms: from so far away, other configurations may be the best
_SAME = 0.05  # of natural logarithms: between clocks so near, configurations keep their order


def steered(search: Search, *, inner: Policy) -> Attempt:
    """Search configurations by a policy and clocks by a model of time and power.

    1. The default configurations (or the cheapest ones that are known) are measured at a few clocks, and then
       at those that may be the cheapest by the model.
    2. The policy searches the configurations at the clock found; it is told one clock.
    3. The cheapest configurations are measured at other clocks in the same way, beginning from that one.
       Others that were near are measured at their best clock; one that is cheaper there is searched, too.
    4. Where the clock has moved far, the policy searches once more.

    The model chooses what is measured, and nothing else: the answer is a trial that was measured.
    """
    measured: dict[Trial, Measurement] = {}
    if search.size == 0:
        return None
    yield from recalled(_steps(search, inner, measured), measured)
    best = cheapest(search, measured)
    if best is not None:
        _tell(search, measured, best)
    return best


def _steps(search: Search, inner: Policy, measured: Mapping[Trial, Measurement]) -> Attempt:
    start = cheapest(search, search.prior) or Trial(search.defaults, search.clocks[0])
    yield from ClockLine(search, start, measured).settle()
    first = cheapest(search, measured)
    clock_mhz = search.clocks_mhz[0] if first is None or first.clock_mhz is None else first.clock_mhz
    for _ in range(ROUNDS):
        at_clock = replace(search, clocks_mhz=(clock_mhz,), prior={**search.prior, **measured})
        yield from inner(at_clock)
        best = yield from _leaders(search, measured, clock_mhz)
        if best is None or best.clock_mhz is None or abs(math.log(best.clock_mhz / clock_mhz)) < FAR:
            return best
        clock_mhz = best.clock_mhz
    return None


def _leaders(search: Search, measured: Mapping[Trial, Measurement], clock_mhz: int) -> Attempt:
    """Search the clocks of the cheapest configurations, and of those that are cheaper at theirs."""
    settled: set[tuple[Configuration, ...]] = set()
    best = cheapest(search, measured)
    while best is not None and best.clock_mhz is not None and len(settled) < LEADERS:
        yield from ClockLine(search, best, measured).settle(best.clock_mhz)
        settled.add(best.configurations)
        best = cheapest(search, measured) or best
        if best.configurations in settled:
            for mhz in _elsewhere(search, measured, best, clock_mhz):
                here = {trial: result for trial, result in measured.items() if trial.clock_mhz == clock_mhz}
                for rival in rivals(search, here):
                    yield [replace(rival, clock_mhz=mhz)]
            best = cheapest(search, measured) or best
        if best.configurations in settled:
            break
    return best


def _elsewhere(
    search: Search, measured: Mapping[Trial, Measurement], best: Trial, clock_mhz: int
) -> list[int]:
    """Clocks at which rivals of the best trial may be cheaper than it.

    That is its own where it is not the one at which all were compared; and the next lower one where it is too
    slow there, as a configuration that is faster than it may still be allowed.
    """
    clocks_mhz = []
    if best.clock_mhz is not None and abs(math.log(best.clock_mhz / clock_mhz)) > _SAME:
        clocks_mhz.append(best.clock_mhz)
    line = ClockLine(search, best, measured).measured
    lower = next((mhz for mhz in line if mhz < (best.clock_mhz or 0)), None)
    if lower is not None and too_slow(line[lower], search.cost):
        clocks_mhz.append(lower)
    return clocks_mhz


def _tell(search: Search, measured: Mapping[Trial, Measurement], best: Trial) -> None:
    """Tell how many clocks were measured, and why no more."""
    clocks = {trial.clock_mhz for trial in measured}
    line = ClockLine(search, best, measured)
    search.tell(
        f"clocks auto: {len(clocks)} of {len(search.clocks_mhz)} clocks measured,"
        f" {len(line.measured)} of them of the cheapest configurations: {_why_no_more(search, line)}"
    )


def _why_no_more(search: Search, line: ClockLine) -> str:
    if len(line.measured) == len(search.clocks_mhz):
        return "there are no others"
    if line.promising() is not None:
        return "the most that a search takes"
    if not line.is_modelled:
        return "too few are valid for a model of the others"
    if search.payback is not None:
        return "no other is expected to pay for its measurement"
    return f"no other may save more than {100 * GAIN:g} %, as modelled from these"


# --- Power limits: any policy at the highest, then lower limits of the cheapest trials.

FAR_BELOW = 0.75  # times the limit of the search: below, other configurations may be the best
BINDS = 0.98  # a limit that is higher than mean power by less than the rest may bind, as power swings


def limited(search: Search, *, inner: Policy) -> Attempt:
    """Search configurations and clocks by a policy, and power limits of what it finds.

    A limit acts only on a load that would draw more. So the policy searches at the highest limit; then lower
    limits of its cheapest trial are descended, those alone that are below what it draws. Trials that were
    near are measured at the limit found; one that is cheaper there is descended, too. Where the limit found
    is far below, the policy searches once more, at that limit.

    ``inner`` is told no limits.
    """
    measured: dict[Trial, Measurement] = {}
    if search.size == 0:
        return None
    ended = False
    try:
        yield from recalled(_limit_steps(search, inner, measured), measured)
        ended = True
    finally:  # also where the budget ends it
        if measured and len(search.power_limits_w) > 1:
            search.tell(_told(search, measured, ended=ended))
    return cheapest(search, measured)


def _told(search: Search, measured: Mapping[Trial, Measurement], *, ended: bool) -> str:
    """Return what is known of the power limits, in a sentence."""
    limits = sorted({trial.power_limit_w or 0 for trial in measured}, reverse=True)
    if len(limits) == 1 and ended:
        return f"power limits: only {limits[0]} W measured, as the cheapest trials draw less than the others"
    if len(limits) == 1:
        return f"beware: no power limit below {limits[0]} W was tried before the search ended"
    return (
        f"power limits: {len(limits)} of {len(search.power_limits_w)} measured"
        f" ({', '.join(map(str, limits))} W); one above what a trial draws changes nothing"
    )


def _limit_steps(search: Search, inner: Policy, measured: Mapping[Trial, Measurement]) -> Attempt:
    limit_w = search.power_limits_w[0]
    for _ in range(ROUNDS):
        yield from _at(limit_w, search, inner, measured)
        best = yield from _limit_leaders(search, measured, limit_w)
        if best is None or (best.power_limit_w or 0) >= FAR_BELOW * limit_w:
            return best
        limit_w = best.power_limit_w or limit_w
    return None


def _at(
    limit_w: int, search: Search, inner: Policy, measured: Mapping[Trial, Measurement]
) -> Generator[list[Trial], list[Measurement], None]:
    """Run a policy at one power limit, of which it does not know."""

    def there(trials: Sequence[Trial]) -> list[Trial]:
        return [replace(trial, power_limit_w=limit_w) for trial in trials]

    prior = {
        replace(trial, power_limit_w=None): measurement
        for trial, measurement in {**search.prior, **measured}.items()
        if trial.power_limit_w == limit_w
    }
    told = replace(search, power_limits_w=(), prior=prior, expect=lambda trials: search.expect(there(trials)))

    def answer(batch: list[Trial]) -> Answer:
        return (yield there(batch))

    yield from relayed(inner(told), answer)


def _limit_leaders(search: Search, measured: Mapping[Trial, Measurement], limit_w: int) -> Attempt:
    """Descend the limits of the cheapest trial, and of those that are cheaper at the limit found."""
    settled: set[Trial] = set()
    best = cheapest(search, measured)
    while best is not None and len(settled) < LEADERS:
        anywhere = replace(best, power_limit_w=None)
        if anywhere in settled:
            break
        settled.add(anywhere)
        memory = Memory(search)
        yield from memory.cost(best)
        yield from lowered(memory, best, _binding(search, best, measured[best]))
        best = cheapest(search, measured) or best
        if best.power_limit_w != limit_w:
            here = {trial: result for trial, result in measured.items() if trial.power_limit_w == limit_w}
            for rival in rivals(search, here):
                yield [replace(rival, power_limit_w=best.power_limit_w)]
            best = cheapest(search, measured) or best
    return best


def _binding(search: Search, trial: Trial, measurement: Measurement) -> list[Trial]:
    """A trial, and it at the lower limits that are below what it draws."""
    watts = math.inf if measurement.energy is None else measurement.energy.watts
    present_w = trial.power_limit_w or 0
    lower = [limit_w for limit_w in search.power_limits_w if limit_w < present_w and BINDS * limit_w < watts]
    return [trial, *(replace(trial, power_limit_w=limit_w) for limit_w in lower)]
