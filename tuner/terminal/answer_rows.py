"""The answers that are served: what they take, what they gain, and whether they still hold."""

from tuner.client.values import ServedAnswer
from tuner.model.run_document import Changes
from tuner.report.trials_table import energy_of, interval
from tuner.report.words import MODELLED, moment, percent_with_interval, with_moments, with_uncertainty
from tuner.terminal.listing import Column, Listing, Row, row
from tuner.terminal.rows import configurations
from tuner.terminal.state import LiveState

_LEAST = 14  # characters of the column that is cut
_COLUMNS = (
    Column("workloads", least=_LEAST),
    Column("for", rank=1),
    Column("device", rank=3),
    Column("time", right=True),
    Column("energy", right=True),
    Column("vs default", right=True, rank=2),
    Column("state"),
    Column("of", rank=4),
)


def answer_listing(state: LiveState) -> Listing:
    """A row per answer, the newest first."""
    answers = sorted(state.answers, key=lambda one: one["at"], reverse=True)
    stale = sum(bool(one["stale"]) for one in answers)
    title = f"answers: {len(answers)} served, {stale} stale" if answers else "answers"
    return Listing(title, _COLUMNS, tuple(map(_answer, answers)), empty="no answer is stored yet")


def _answer(answer: ServedAnswer) -> Row:
    best, against = answer["best"], answer["against_default"]
    workloads = " + ".join(answer["workloads"])
    modelled = f" {MODELLED}" if answer["modelled"] else ""
    saving, gains = None, "–"
    if against is not None and "energy_saving" in against:
        saving = -against["energy_saving"]
        gains = percent_with_interval(saving, against.get("energy_saving_interval"))
    cells = (
        workloads,
        answer["objective"],
        f"{answer['device']}{modelled}",
        with_uncertainty(best.get("time_s"), interval(best.get("time_s_uncertainty")), "s"),
        energy_of(best),
        gains,
        "stale" if answer["stale"] else "fresh",
        moment(answer["at"]),
    )
    values = (
        workloads,
        cells[1],
        cells[2],
        best.get("time_s"),
        best.get("energy_j"),
        saving,
        cells[6],
        answer["at"],
    )
    key = f"{answer['run']} {workloads} {cells[1]} {cells[2]}"
    return row(key, cells, values, _details(answer), "bad" if answer["stale"] else "")


def _details(answer: ServedAnswer) -> str:
    """Configuration and clock; changes against the default; why it is stale."""
    values = {name: one["configuration"] for name, one in answer["workloads"].items()}
    clock, against, saving = answer["clock_mhz"], answer["against_default"], answer["saving"]
    parts = ["clock as found" if clock is None else f"clock {clock} MHz"]
    if answer["power_limit_w"] is not None:
        parts.append(f"power limit {answer['power_limit_w']} W")
    if against is not None:
        parts.append(f"against the default: {_changes(against)}")
    if saving is not None:
        saved = with_uncertainty(saving["energy_j"], saving["energy_j_interval"], "J")
        parts.append(f"one use saves {saved}")
    parts += [MODELLED] if answer["modelled"] else []
    parts.append(f"run {answer['run']}")
    stale = [f"stale: {with_moments(reason)}" for reason in answer["stale"]]
    return "\n".join((configurations(values), "; ".join([*stale, *parts])))


def _changes(against: Changes) -> str:
    parts = [f"time {percent_with_interval(against['slowdown'], against.get('slowdown_interval'))}"]
    if "energy_saving" in against:
        energy = percent_with_interval(-against["energy_saving"], against.get("energy_saving_interval"))
        parts.insert(0, f"energy {energy}")
    return ", ".join(parts)
