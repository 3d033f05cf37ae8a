"""Stored answers: what an answer is bound to, why it is stale, and what measuring it again has shown.

Which of several answers is served is decided in ``tuner.database.ranking``.
"""

import functools
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any, cast

from tuner.model.jobs import DeviceIdentity
from tuner.model.objective import TIMED, timing_of
from tuner.model.options import SINGLE
from tuner.model.plan import TunableValue
from tuner.model.records import PROTOCOL, RunStatus, StoredRun, WorkloadName
from tuner.model.run_document import AnswerDocument, AnswerTrial, RunConditions, SampleDocument, TrialDocument

ANALYSIS_VERSION = 2
"""Of the analytical model and what is kept of it; raised when either changes."""

_AHEAD = timedelta(hours=1)  # so far in the future a sample was not made: the clock was wrong then


def staleness(
    stored: RunConditions,
    *,
    device: DeviceIdentity,
    sources: Mapping[str, str],
    batches: Mapping[str, int],
) -> list[str]:
    """Return the reasons why a stored answer may no longer be true; empty when it is fresh.

    Args:
        stored: the record of the conditions a run was made under.
        device: the present GPU with its driver and CUDA.
        sources: kernel name -> present hash of its sources; empty for a kernel that is not known.
        batches: workload -> batch asked for now, the kernel file's where none is named.
    """
    recorded = stored.get("device", {})
    reasons = [
        f"{label} was {recorded.get(field) or 'unknown'}, is {getattr(device, field) or 'unknown'}"
        for field, label in (("uuid", "GPU"), ("name", "GPU name"), ("driver", "driver"), ("runtime", "CUDA"))
        if recorded.get(field) != getattr(device, field)
    ]
    before = stored.get("sources", {})
    reasons += [
        f"the source of {kernel} has changed"
        if hashed
        else f"{kernel} is unknown here: `tuner kernels add FILE` makes it known"
        for kernel, hashed in sources.items()
        if before.get(kernel) != hashed
    ]
    measured = dict(stored.get("workloads", []))
    tuned = {**measured, **stored.get("asked", {})}
    reasons += [
        f"{name} was tuned for a batch of {tuned.get(name)}, is asked for {batch}"
        for name, batch in batches.items()
        if batch not in (tuned.get(name), measured.get(name))
    ]
    if stored.get("protocol") != PROTOCOL:
        reasons.append("another version of tuner measured it, in another way")
    return reasons


@dataclass(frozen=True)
class SampleHistory:
    """Summary of the samples of an answer.

    Attributes:
        drifted: why they contradict it; empty where they do not.
        at: when it was last measured again, UTC, ISO 8601; empty where never.
        verdict: of the last sample that counts: ``inside``, ``above``, ``below`` or ``failed``; empty
            without one.
    """

    drifted: str = ""
    at: str = ""
    verdict: str = ""

    @classmethod
    def of(cls, documents: Iterable[SampleDocument]) -> "SampleHistory":
        """Return the history that samples give, the oldest first."""
        return functools.reduce(cls.after, documents, cls())

    @property
    def doubted(self) -> bool:
        """True where one more sample decides."""
        return not self.drifted and self.verdict not in ("", "inside")

    def after(self, document: SampleDocument) -> "SampleHistory":
        """Return the history with one more sample."""
        at, verdict = str(document.get("at", "")), str(document.get("verdict", "void"))
        if verdict == "void":
            return replace(self, at=at)
        twice = verdict != "inside" and verdict == self.verdict
        why = self.drifted or (f"drifted: {document.get('told', verdict)}" if twice else "")
        return SampleHistory(why, at, verdict)

    def due(self, ended_at: str, now: datetime, every_hours: float) -> bool:
        """Return True if the answer is due to be measured again.

        Args:
            ended_at: when its run ended, UTC, ISO 8601.
            now: the present.
            every_hours: time between samples; 0 for never.
        """
        if every_hours <= 0.0 or self.drifted:
            return False
        if self.doubted:
            return True
        try:
            last = datetime.fromisoformat(self.at or ended_at)
        except ValueError:
            return True
        if last.tzinfo is None:
            last = last.replace(tzinfo=timezone.utc)
        return now - last >= timedelta(hours=every_hours) or last - now > _AHEAD


@dataclass(frozen=True)
class StoredAnswer:
    """The answer of a stored run.

    Attributes:
        run: its number.
        status: of the run; ``finished`` where its search came to its end.
        at: when it ended, UTC, ISO 8601.
        objective: as stored, with the slowdown limit.
        max_slowdown: of the objective.
        batches: the co-running workloads, in the order of the run, with the batches that were measured.
        conditions: what the answer is bound to.
        configurations: workload -> values.
        clock_mhz: that it sets; None for as found.
        answer: times, joules and intervals, as the run's document has them.
        samples: what measuring it again has shown.
        power_limit_w: that it sets; None for as found.
        merged_from: where the run was merged from; empty where it was measured for this database.
        host: of the GPU, where a pool has told it; else empty.
        locked: the lock file that it is from, which has no run; else empty.
    """

    run: int
    status: RunStatus
    at: str
    objective: str
    max_slowdown: float | None
    batches: Mapping[str, int]
    conditions: RunConditions
    configurations: Mapping[str, Mapping[str, TunableValue]]
    clock_mhz: int | None
    answer: AnswerDocument
    samples: SampleHistory = field(default_factory=SampleHistory)
    power_limit_w: int | None = None
    merged_from: str = ""
    host: str = ""
    locked: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The co-running workloads, in the order of the run."""
        return tuple(self.batches)

    @property
    def together(self) -> tuple[str, ...]:
        """The co-running workloads, sorted."""
        return tuple(sorted(self.batches))

    @property
    def asked(self) -> dict[str, int]:
        """Workload -> batch that the run was asked for, before it was capped to fit the memory."""
        return {**self.batches, **self.conditions.get("asked", {})}

    @property
    def finished(self) -> bool:
        """True where the search came to its end: one that was stopped early has tried less."""
        return self.status is RunStatus.FINISHED

    @property
    def clocks_as_found(self) -> bool:
        """True where the run set no clock and no power limit."""
        return bool(self.conditions["clocks"] == "off") and self.power_limit_w is None

    @property
    def as_found(self) -> bool:
        """True where the answer itself sets no clock and no power limit."""
        return self.clock_mhz is None and self.power_limit_w is None

    @property
    def uuid(self) -> str:
        """Of the GPU that was measured."""
        return str(self.conditions["device"]["uuid"])

    @property
    def refuted(self) -> str:
        """Message of a failed verification: this is only the best of the verified trials; empty otherwise."""
        verification = self.answer.get("verification")
        return verification["told"] if verification and verification["held"] is False else ""

    @property
    def timing(self) -> str:
        """Timing of its trials; ``back-to-back`` comes first in order."""
        return timing_of(self.objective)

    @property
    def told(self) -> str:
        """The run in words; a timing that need not be the one that is expected is told."""
        merged = f", merged from {self.merged_from}" if self.merged_from else ""
        timed = f", {TIMED[SINGLE]}" if self.timing == SINGLE else ""
        if self.locked:
            return f"{self.locked}, measured on {self.at}{timed}"
        ended = "" if self.finished else f", which was {self.status}"
        return f"run {self.run} of {self.at}{ended}{timed}{merged}"

    def on(self, device: DeviceIdentity) -> bool:
        """True on this GPU, or another of its model: what was tuned for another model need not even start."""
        measured = self.conditions["device"]
        return bool(measured["name"] == device.name and measured["modelled"] == device.modelled)

    def of_other_sources(self, sources: Mapping[str, str]) -> bool:
        """True for a merged answer of sources that are not here: what it tuned may be another kernel.

        Args:
            sources: kernel -> present hash of its sources.
        """
        before = self.conditions["sources"]
        return bool(self.merged_from) and any(
            before.get(kernel) != sources.get(kernel, "") for kernel in self.kernels
        )

    @property
    def kernels(self) -> list[str]:
        """Of the workloads, sorted."""
        return sorted({WorkloadName.parse(name).kernel for name in self.names})

    def reasons(
        self, device: DeviceIdentity, sources: Mapping[str, str], batches: Mapping[str, int]
    ) -> list[str]:
        """Return the reasons why the answer may no longer be true; empty if it is fresh.

        Args:
            device: the GPU that it is asked for.
            sources: kernel -> present hash of its sources.
            batches: workload -> batch asked for; empty to leave batches out.
        """
        present = {kernel: sources.get(kernel, "") for kernel in self.kernels}
        stale = staleness(self.conditions, device=device, sources=present, batches=batches)
        return [*stale, *filter(None, [self.samples.drifted, self.refuted])]


def stored_answer(run: StoredRun, samples: Sequence[SampleDocument] = ()) -> StoredAnswer | None:
    """The answer of a run; None where it has none.

    Args:
        run: as stored.
        samples: of its answer, the oldest first.
    """
    document = run.answer
    best = None if document is None else document["best"]
    if document is None or best is None:
        return None
    batches, default = dict(run.conditions["workloads"]), document["default"]
    return StoredAnswer(
        run=run.id,
        status=run.status,
        at=run.ended_at or run.started_at,
        objective=run.objective,
        max_slowdown=document.get("max_slowdown"),
        batches=batches,
        conditions=cast("RunConditions", _shared(run.conditions)),
        configurations={name: dict(best["configurations"][name]) for name in batches},
        clock_mhz=best["clock_mhz"],
        answer={
            "status": document["status"],
            "modelled": document["modelled"],
            "timing": timing_of(run.objective),
            "against_default": document.get("against_default"),
            "trade_off": document.get("trade_off"),
            "repeatability": document.get("repeatability"),
            "verification": document.get("verification"),
            "best": _trial(best),
            "default": None if default is None else _trial(default),
        },
        samples=SampleHistory.of(samples),
        power_limit_w=best.get("power_limit_w"),
        merged_from="" if run.origin is None else run.origin.source or "another database",
        host=(best.get("gpu") or {}).get("host", ""),
    )


def _shared(document: Any) -> Any:  # noqa: ANN401 - of any form
    """The same document, its texts kept once however many have them: answers name the same GPU, sources."""
    if type(document) is str:
        return sys.intern(document)
    if isinstance(document, dict):
        return {_shared(key): _shared(value) for key, value in document.items()}
    return [_shared(value) for value in document] if isinstance(document, list) else document


def _trial(trial: TrialDocument) -> AnswerTrial:
    return {
        "time_s": trial["time_s"],
        "time_s_uncertainty": trial.get("time_s_uncertainty"),
        "energy_j": trial["energy_j"],
        "energy_j_uncertainty": trial.get("energy_j_uncertainty"),
        "power_w": trial.get("power_w"),
        "sensor": trial.get("sensor"),
        "scope": trial.get("scope"),
        "clock_seen_mhz": trial.get("clock_seen_mhz"),
        "bursts": trial.get("bursts"),
        "window_s": trial.get("window_s"),
        "flags": trial.get("flags"),
    }


def analytical_key(name: str, device: DeviceIdentity, source: str, version: int = ANALYSIS_VERSION) -> str:
    """Return the key of an analytical answer: it depends on the GPU model, on no driver or single board."""
    model = device.name.removesuffix(" (modelled)")
    return f"{name} | {model} | {source} | {version}"
