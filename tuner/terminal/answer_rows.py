"""The answers that are served: what they take, what they gain, and whether they still hold."""

from tuner.report.trials_table import energy_of, interval
from tuner.report.words import MODELLED, moment, percent_with_interval, with_moments, with_uncertainty
from tuner.terminal.listing import Column, Listing, Row, row
from tuner.terminal.live_state import Data, LiveState
from tuner.terminal.trial_rows import configurations

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
    answers = sorted(state.answers, key=lambda one: str(one.get("at")), reverse=True)
    stale = sum(bool(one.get("stale")) for one in answers)
    title = f"answers: {len(answers)} served, {stale} stale" if answers else "answers"
    return Listing(title, _COLUMNS, tuple(map(_answer, answers)), empty="no answer is stored yet")


def _answer(answer: Data) -> Row:
    best, against = answer.get("best") or {}, answer.get("against_default") or {}
    workloads = " + ".join(answer.get("workloads") or {})
    modelled = f" {MODELLED}" if answer.get("modelled") else ""
    gains = (
        percent_with_interval(-against["energy_saving"], against.get("energy_saving_interval"))
        if ("energy_saving" in against)
        else ""
    )
    cells = (
        workloads,
        str(answer.get("objective")),
        f"{answer.get('device')}{modelled}",
        with_uncertainty(best.get("time_s"), interval(best.get("time_s_uncertainty")), "s"),
        energy_of(best),
        gains or "–",
        "stale" if answer.get("stale") else "fresh",
        moment(answer.get("at")),
    )
    values = (
        workloads,
        cells[1],
        cells[2],
        best.get("time_s"),
        best.get("energy_j"),
        None if not gains else -against["energy_saving"],
        cells[6],
        str(answer.get("at")),
    )
    key = f"{answer.get('run')} {workloads} {cells[1]} {cells[2]}"
    return row(key, cells, values, _details(answer, against), "bad" if answer.get("stale") else "")


def _details(answer: Data, against: Data) -> str:
    """Configuration and clock; changes against the default; why it is stale."""
    values = {name: one.get("configuration", {}) for name, one in (answer.get("workloads") or {}).items()}
    clock = answer.get("clock_mhz")
    parts = ["clock as found" if clock is None else f"clock {clock} MHz"]
    if answer.get("power_limit_w") is not None:
        parts.append(f"power limit {answer['power_limit_w']} W")
    if against:
        parts.append(f"against the default: {_changes(against)}")
    saving = answer.get("saving")
    if saving:
        saved = with_uncertainty(saving.get("energy_j"), saving.get("energy_j_interval"), "J")
        parts.append(f"one use saves {saved}")
    parts += [MODELLED] if answer.get("modelled") else []
    parts.append(f"run {answer.get('run')}")
    stale = [f"stale: {with_moments(str(reason))}" for reason in answer.get("stale") or ()]
    return "\n".join((configurations(values), "; ".join([*stale, *parts])))


def _changes(against: Data) -> str:
    parts = [f"time {percent_with_interval(against['slowdown'], against.get('slowdown_interval'))}"]
    if "energy_saving" in against:
        energy = percent_with_interval(-against["energy_saving"], against.get("energy_saving_interval"))
        parts.insert(0, f"energy {energy}")
    return ", ".join(parts)
