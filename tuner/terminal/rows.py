"""The trials of a job as they end: configuration, time and joules with their intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.client.values import Job
from tuner.model.objective import NAMES, UNITS, Objective
from tuner.model.plan import shown_values
from tuner.report.trials_table import energy_of, interval
from tuner.report.words import MODELLED, si, with_uncertainty
from tuner.terminal.listing import Column, Listing, Row, row
from tuner.terminal.state import Data, LiveSearch, LiveState

_LEAST = 14  # characters of the column that is cut
_COLUMNS = (
    Column("trial", right=True),
    Column("time", right=True),
    Column("energy", right=True),
    Column("power", right=True, rank=2),
    Column("clock", right=True, rank=1),
    Column("configuration", least=_LEAST),
)


@dataclass(slots=True)
class _RatedTrial:
    """A trial with what was made of it: time, cost by the objective of the job, and its row."""

    data: Data
    time_s: float | None
    cost: float | None
    row: Row | None = None
    starred: bool = False


class TrialRows:
    """The trials of the job that is shown; what was made of one is kept, for there may be thousands."""

    def __init__(self) -> None:
        self._job = 0
        self._known: dict[int, _RatedTrial] = {}

    def listing(self, state: LiveState, chosen: int | None) -> Listing:
        """A row per trial of a job, the newest first.

        Args:
            state: what the daemon has told.
            chosen: job that the user has chosen; None for the one that runs.
        """
        job = state.shown_job(chosen)
        if job is None:
            return Listing("trials", _COLUMNS, (), empty="no job has run yet")
        search = state.searches.get(job.id, LiveSearch())
        trials = self._of(job, search)
        best = _best(trials, job)
        rows = tuple(_row(one, job, starred=one is best) for one in reversed(trials))
        modelled = f" ({MODELLED})" if any(one.data.get("modelled") for one in trials) else ""
        title = f"trials of job {job.id}, {job.state}{modelled}: {' + '.join(job.workloads)}"
        caption = _caption(job, search, None if best is None else best.data)
        return Listing(title, _COLUMNS, rows, caption, _empty(job))

    def _of(self, job: Job, search: LiveSearch) -> list[_RatedTrial]:
        """The trials of a search in their order; those that are new or have changed are made anew."""
        before = self._known if self._job == job.id else {}
        self._job, self._known = job.id, {}
        for number, data in search.trials.items():
            known = before.get(number)
            if known is None or known.data is not data:
                known = _RatedTrial(data, _number(data.get("time_s")), _cost(data, job.objective))
            self._known[number] = known
        return list(self._known.values())


def _row(known: _RatedTrial, job: Job, *, starred: bool) -> Row:
    if known.row is None or known.starred is not starred:
        known.row, known.starred = _trial(known.data, job, starred=starred), starred
    return known.row


def _best(trials: Sequence[_RatedTrial], job: Job) -> _RatedTrial | None:
    """The trial of the lowest cost, among those within the limit of the job.

    A search with a limit tells other costs while it looks for the fastest.
    """
    slower = _number(job.options.get("max_slowdown"))
    fastest_s = min((one.time_s for one in trials if one.time_s is not None), default=0.0)
    limit_s = math.inf if slower is None else (1.0 + slower) * fastest_s
    found = None
    for one in trials:
        if one.cost is None or one.time_s is None or one.time_s > limit_s:
            continue
        if found is None or found.cost is None or one.cost < found.cost:
            found = one
    return found


def _cost(data: Data, objective: str) -> float | None:
    """What a job minimises; None where it was not measured, or is not known here."""
    time_s, energy_j = _number(data.get("time_s")), _number(data.get("energy_j"))
    if time_s is None or data.get("status") != "ok" or objective not in NAMES:
        return None
    if objective == "time":
        return time_s
    return None if energy_j is None else energy_j * time_s ** Objective(objective).time_exponent


def _empty(job: Job) -> str:
    return "no trial was stored" if job.ended and job.run is None else "no trial yet"


def _caption(job: Job, search: LiveSearch, best: Data | None) -> str:
    """How far the search is, as `tuner follow` says it."""
    parts = []
    if search.trials:
        expected = f" of {search.expected}" if search.expected and not job.ended else ""
        failed = sum(one.get("status") != "ok" for one in search.trials.values())
        parts.append(f"{len(search.trials):,}{expected} trials{f', {failed} failed' if failed else ''}")
    elif search.compiled is not None:
        parts.append("compiled {} of {}".format(*search.compiled))
    if best is not None:
        label = f" ({MODELLED})" if best.get("modelled") else ""
        parts.append(f"best {_amount(best, job.objective)}{label}")
    if search.joules:
        parts.append(f"{si(search.joules, 'J', 3)} spent")
    return ", ".join([*parts, *([search.told] if search.told and not job.ended else [])])


def _amount(data: Data, objective: str) -> str:
    """Time or joules with their interval; of another objective its value."""
    if objective == "energy":
        return energy_of(data)
    if objective == "time":
        return _time_of(data)
    return si(_cost(data, objective), UNITS[objective])


def _time_of(data: Data) -> str:
    return with_uncertainty(_number(data.get("time_s")), interval(data.get("time_s_uncertainty")), "s")


def _trial(data: Data, job: Job, *, starred: bool) -> Row:
    again = f" {data.get('repeat')}×" if data.get("confirming") else ""
    number = data.get("trial")
    configuration = configurations(data.get("configurations") or {})
    name = f"{'★ ' if starred else ''}{number}{again}"
    if data.get("status") != "ok":
        failed = ": ".join(str(data[name]) for name in ("status", "detail") if data.get(name))
        nothing = (name, "–", "–", "–", "–", f"{failed}; {configuration}")
        details = f"trial {number} {failed}\n{configuration}"
        return row(f"{job.id}-{number}", nothing, (number, None, None, None, None, failed), details, "bad")
    time_s, energy_j, watts = (_number(data.get(name)) for name in ("time_s", "energy_j", "watts"))
    mhz = data.get("clock_set_mhz") if data.get("clock_set_mhz") is not None else data.get("clock_mhz")
    cells = (
        name,
        _time_of(data),
        energy_of(data),
        si(watts, "W", 3),
        "–" if mhz is None else f"{mhz:.0f} MHz",
        configuration,
    )
    values = (number, time_s, energy_j, watts, mhz, configuration)
    return row(f"{job.id}-{number}", cells, values, _details(data, configuration), "best" if starred else "")


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _details(data: Data, configuration: str) -> str:
    """What there may be no room for: the whole configuration first."""
    parts = [si(data.get("watts"), "W", 3)] if data.get("watts") is not None else []
    if data.get("clock_set_mhz") is not None:
        parts.append(f"clock set to {data['clock_set_mhz']} MHz")
    elif data.get("clock_mhz") is not None:
        parts.append(f"clock as found, {data['clock_mhz']:.0f} MHz seen")
    if data.get("power_limit_w") is not None:
        parts.append(f"power limit {data['power_limit_w']} W")
    if data.get("confirming"):
        parts.append(f"a contender, repeat {data.get('repeat')}")
    parts += [MODELLED] if data.get("modelled") else []
    return "\n".join((configuration, ", ".join([*parts, *map(str, data.get("flags") or ())])))


def configurations(by_workload: Data) -> str:
    """The configuration of each workload; the name of one that is alone is left out."""
    if len(by_workload) == 1:
        return shown_values(next(iter(by_workload.values())))
    return "; ".join(f"{name}: {shown_values(values)}" for name, values in by_workload.items())
