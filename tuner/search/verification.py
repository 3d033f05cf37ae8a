"""Verifies the answer of another GPU of the kind on this one, in place of a search.

The default, the answer and a rival that tied with it are measured turn by turn, as contenders are at the end
of a search. The answer holds where it ties with the lowest; what was measured is then an answer of this GPU.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuner.database.answers import StoredAnswer, stored_answer
from tuner.measurement.base import TrialStore
from tuner.model.objective import Objective
from tuner.model.plan import Configuration
from tuner.model.records import Conditions, RunStatus, StoredRun
from tuner.model.run_document import RunDocument, TrialDocument, Verdict
from tuner.model.trial import Measurement, Trial
from tuner.search.answer import SearchOutcome
from tuner.space.search_view import Search

POLICY = "verify"
"""In the place of a policy's name, in runs that verify."""

NOTHING_TO_VERIFY = (
    "no finished run on another GPU of this kind is stored that could be verified: this is a search"
)

_VERDICTS = {True: "verified", False: "refuted", None: "not verified"}

RIVALS = 1
"""Contenders that tied with the answer there, of which so many are measured here too.

Each costs as much as the answer. What lost to the answer turn by turn there is no rival.
"""


@dataclass(frozen=True)
class VerifiableAnswer:
    """An answer of another GPU of the kind, under the conditions of a run.

    Attributes:
        run: its number.
        gpu: UUID of the GPU that it is of.
        answer: configurations and setting.
        rivals: further trials that may cost as little.
    """

    run: int
    gpu: str
    answer: Trial
    rivals: tuple[Trial, ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """What a run that verifies is bound to."""
        return {"verified_run": self.run, "verified_gpu": self.gpu}

    def trials(self, search: Search) -> Generator[list[Trial], list[Measurement], Trial | None]:
        """The policy: the answer, then its rivals, as far as they are in the space of this run."""
        known = [
            {one: one for one in (default, *(each.configuration for each in candidates))}
            for candidates, default in zip(search.candidates, search.defaults, strict=True)
        ]
        limits_w = search.power_limits_w or (None,)
        trials = [  # with the tunables in the order of this run, which a stored answer has lost
            replace(trial, configurations=tuple(map(dict.__getitem__, known, trial.configurations)))
            for trial in (self.answer, *self.rivals)
            if trial.clock_mhz in search.clocks
            and trial.power_limit_w in limits_w
            and all(one in space for one, space in zip(trial.configurations, known, strict=True))
        ]
        measured = yield trials
        costs = dict(zip(trials, map(search.cost, measured), strict=True))
        return min(costs, key=costs.__getitem__, default=None)


def verifiable_answer(store: TrialStore, conditions: Conditions) -> VerifiableAnswer | None:
    """The answer of another GPU of the kind that a run may verify; None without one.

    It is of a finished run of the same workloads, batches, objective, clocks and power limits, on a GPU of
    the same model, driver and CUDA, with the present sources. That of a search goes before one that was
    verified itself, as it knows more rivals; then the newest.

    Args:
        store: the database.
        conditions: of the run.
    """
    found = [
        (run.conditions["policy"] == POLICY, -run.id, run, document, best)
        for run in store.answered(conditions.names, conditions.objective)
        if (answer := stored_answer(run)) is not None
        and (document := run.answer) is not None
        and (best := document["best"]) is not None
        and verifiable(answer, run, conditions)
    ]
    if not found:
        return None
    _, _, run, document, best = min(found, key=lambda one: one[:2])
    trials = [trial for trial, _ in store.trials(run.id, conditions.names)]
    trial, rivals = _answer_and_rivals(document, best, trials, conditions.names)
    return VerifiableAnswer(run.id, run.conditions["device"]["uuid"], trial, rivals)


def verifiable(answer: StoredAnswer, run: StoredRun, conditions: Conditions) -> bool:
    """True for an answer that is stale under some conditions for its GPU alone."""
    if answer.status is not RunStatus.FINISHED or answer.uuid == conditions.device.uuid:
        return False
    device = replace(conditions.device, uuid=answer.uuid)
    settings = run.conditions.get("settings", {})
    return (
        answer.on(device)
        and not answer.reasons(device, conditions.sources, dict(conditions.workloads))
        and answer.conditions["clocks"] == conditions.clocks
        and settings.get("power_limits_w") == conditions.settings.get("power_limits_w")
        and not conditions.device.recorded
    )


def _answer_and_rivals(
    document: RunDocument, best: TrialDocument, trials: Sequence[Trial], names: tuple[str, ...]
) -> tuple[Trial, tuple[Trial, ...]]:
    """The answer of a run, and the trials that may cost as little."""
    others = [trials[number - 1] for number in document.get("tied", ()) if 0 < number <= len(trials)]
    fastest, default = document.get("fastest"), document["default"]
    if document.get("max_slowdown") is not None and fastest is not None:
        others.insert(0, _trial(fastest, names))  # what the slowdown is held against
    answer = _trial(best, names)
    known = {answer} if default is None else {answer, _trial(default, names)}
    rivals = [trial for trial in dict.fromkeys(others) if trial not in known]
    return answer, tuple(rivals[:RIVALS])


def _trial(record: TrialDocument, names: tuple[str, ...]) -> Trial:
    configurations = tuple(Configuration(record["configurations"][name]) for name in names)
    return Trial(configurations, record.get("clock_mhz"), record.get("power_limit_w"))


def verdict(verified: VerifiableAnswer, outcome: SearchOutcome, precision: float) -> Verdict:
    """Whether an answer holds on this GPU, as the document of the run has it.

    Args:
        verified: the answer.
        outcome: of the run that has verified it.
        precision: within which costs are the same.

    Returns:
        ``run`` and ``gpu`` of the answer, ``held`` (None where the run was ended before it was known), its
        ``ratio`` to the lowest cost here with ``ratio_interval`` (half of the 95 % interval), and ``told``.
    """
    held, ratio, told = _judged(verified, outcome, precision)
    value, interval = (None, None) if ratio is None else ratio
    return {
        "run": verified.run,
        "gpu": verified.gpu,
        "held": held,
        "ratio": value,
        "ratio_interval": interval,
        "told": f"{_VERDICTS[held]}: the answer of {verified.gpu} (run {verified.run}) {told}",
    }


def _judged(
    verified: VerifiableAnswer, outcome: SearchOutcome, precision: float
) -> tuple[bool | None, tuple[float, float] | None, str]:
    if outcome.status is not RunStatus.FINISHED:
        return None, None, "is not judged: the run was ended before"
    cost = Objective(outcome.objective.name)
    joined = outcome.paired.joined()
    if verified.answer not in joined:
        return False, None, "does not run here as it did there: a search is needed"
    lowest = next(iter(outcome.paired.rivals(outcome.objective)), verified.answer)
    ratio = outcome.paired.ratio(verified.answer, lowest, cost)
    known = (1.0, 0.0) if lowest == verified.answer or ratio is None else (ratio.value, ratio.interval)
    if verified.answer in outcome.paired.tied(outcome.objective, precision):
        return True, known, "holds on this GPU, turn by turn with the default and its rivals"
    winner = "the default" if outcome.default == _place(outcome, lowest) else "a rival"
    more = f"{100 * (known[0] - 1):.2g} ± {100 * known[1]:.2g} %"
    return False, known, f"is not the best here: it costs {more} more than {winner}; a search is needed"


def _place(outcome: SearchOutcome, trial: Trial) -> int | None:
    return next((place for place, (one, _) in enumerate(outcome.trials) if one == trial), None)
