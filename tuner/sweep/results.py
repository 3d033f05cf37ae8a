"""What became of the jobs of a sweep."""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tuner.sweep.jobs import SweepJob

End = Literal["finished", "known", "failed"]
_COPIED = ("time_s", "time_s_uncertainty", "energy_j", "energy_j_uncertainty", "clock_mhz", "power_limit_w")
_AGAINST = ("slowdown", "slowdown_interval", "energy_saving", "energy_saving_interval")
_NOT_MEASURED = ("recorded", "modelled")
_MEASURED = "measured"


@dataclass(frozen=True)
class JobResult:
    """How a job of a sweep has ended.

    Attributes:
        end: ``finished`` now; ``known``: an answer under the same conditions was there; ``failed``.
        reason: why it failed, for people.
        run: its run in the database.
        seconds: for which it held a lane in this sweep.
        answer: see ``answer_of``; None without one.
        device: of this machine where it ran, or the model of another GPU; empty where the job names it.
    """

    job: SweepJob
    end: End
    reason: str = ""
    run: int | None = None
    seconds: float = 0.0
    answer: Mapping[str, Any] | None = None
    device: str = ""

    @property
    def kind(self) -> str:
        """What its numbers are: ``modelled``, ``recorded``, both, ``measured``; empty without an answer."""
        if self.answer is None:
            return ""
        return ", ".join(word for word in _NOT_MEASURED if self.answer.get(word)) or _MEASURED


@dataclass
class SweepReport:
    """A sweep as a whole.

    Attributes:
        path: of the file, as it was named.
        where: jobs ran, for people.
        jobs: of the file.
        results: of jobs that have ended, in that order.
        wall_s: from the first job's start to the end.
        interrupted: whether jobs are left because the user stopped it.
        trouble: why else jobs are left; empty where none are.
    """

    path: str
    where: str
    jobs: Sequence[SweepJob]
    results: list[JobResult] = field(default_factory=list)
    wall_s: float = 0.0
    interrupted: bool = False
    trouble: str = ""

    @property
    def counts(self) -> Counter[str]:
        """How many jobs ended in each way."""
        return Counter(result.end for result in self.results)

    @property
    def failed(self) -> list[JobResult]:
        """Jobs without an answer, in the order of the file."""
        return [one for one in self.in_order() if one.end == "failed"]

    @property
    def left(self) -> int:
        """Jobs that have not ended."""
        return len(self.jobs) - len(self.results)

    def in_order(self) -> list[JobResult]:
        """The results in the order of the file."""
        by_key = {result.job.key: result for result in self.results}
        return [by_key[job.key] for job in self.jobs if job.key in by_key]

    def document(self) -> dict[str, Any]:
        """The report as ``--json`` writes it."""
        return {
            "sweep": self.path,
            "where": self.where,
            "jobs": len(self.jobs),
            **{end: self.counts[end] for end in ("finished", "known", "failed")},
            "left": self.left,
            "interrupted": self.interrupted,
            "trouble": self.trouble,
            "wall_s": self.wall_s,
            "results": [_row(result) for result in self.in_order()],
        }


def answer_of(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a sweep keeps of the document of a run: its answer, what that saves, what the search took.

    Args:
        document: as ``tuner run --json`` writes it.

    Returns:
        None where nothing valid was measured.
    """
    best = document.get("best")
    if not best:
        return None
    against = document.get("against_default") or {}
    return {
        "configurations": best["configurations"],
        **{name: best.get(name) for name in _COPIED},
        **{name: against.get(name) for name in _AGAINST},
        "trials": document["space"]["measured"],
        "device": document.get("device"),
        "tuning_energy_j": document.get("tuning_energy_j"),
        "tuning_energy_j_uncertainty": document.get("tuning_energy_j_uncertainty"),
        "search_s": document.get("wall_s"),
        "modelled": document["modelled"],
        "recorded": document.get("recorded"),
    }


def change_of(result: JobResult) -> tuple[float, float | None] | None:
    """What an answer changes against the default, and half of its 95 % interval; None where unknown.

    Of the objective ``time`` the change of the time, of the others that of the joules; less is better.
    """
    if result.answer is None:
        return None
    name, sign = ("slowdown", 1.0) if result.job.objective == "time" else ("energy_saving", -1.0)
    value = result.answer[name]
    return None if value is None else (sign * value, result.answer[f"{name}_interval"])


def median_change(results: Sequence[JobResult]) -> float | None:
    """The median of ``change_of``; None where no result has one."""
    changes = [change[0] for change in map(change_of, results) if change is not None]
    return statistics.median(changes) if changes else None


def kinds_of(results: Sequence[JobResult]) -> list[str]:
    """What numbers of results are, each kind once; see ``JobResult.kind``."""
    return list(dict.fromkeys(one.kind for one in results if one.kind))


def label_of(kind: str) -> str:
    """What stands in brackets behind numbers of a kind, such as ``(modelled)``; empty for those measured."""
    return "" if kind in ("", _MEASURED) else f"({kind})"


def _row(result: JobResult) -> dict[str, Any]:
    job = result.job
    return {
        "group": job.group,
        "workloads": list(job.workloads),
        "objective": job.objective,
        "device": job.device,
        "ran_on": result.device or job.device,
        "options": dict(job.options),
        "end": result.end,
        "reason": result.reason,
        "run": result.run,
        "seconds": result.seconds,
        "answer": result.answer,
    }
