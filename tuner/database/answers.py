"""Stored answers: the one that is true here and now, or the newest with the reasons it is stale."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.database import Store, StoredRun
from tuner.database.conditions import staleness
from tuner.model import DeviceIdentity


@dataclass(frozen=True)
class Answer:
    """A stored run that answers, and why it need not be true any more (empty when it is)."""

    run: StoredRun
    stale: tuple[str, ...]


def find_answer(
    store: Store,
    names: Sequence[str],
    objective: str,
    *,
    device: DeviceIdentity,
    sources: Mapping[str, str],
    batches: Mapping[str, int],
    clocks_as_found: bool = False,
) -> Answer | None:
    """The newest fresh answer, of finished runs first; failing that the newest stale one; None without any.

    A run that was stopped early has tried less: it answers only where no finished one does.

    Args:
        store: the database.
        names: the co-running workloads.
        objective: as stored (name, with its slowdown limit).
        device: the present GPU.
        sources: kernel name -> present hash.
        batches: batches asked for, by workload.
        clocks_as_found: take only answers that set no clock.
    """
    for uuid in (device.uuid, None):  # this GPU's answers first; others are stale by definition
        answers = [
            Answer(run, tuple(staleness(run.conditions, device=device, sources=sources, batches=batches)))
            for run in store.answered(names, objective, uuid)
            if not (clocks_as_found and run.conditions["clocks"] != "off")
        ]
        if answers:
            return min(answers, key=lambda answer: (bool(answer.stale), answer.run.status != "finished"))
    return None
