"""Stored answers: the newest one that is true here and now, or the newest with the reasons it is stale."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.conditions import staleness
from tuner.database import Store, StoredRun
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
    """The newest fresh answer; failing that the newest stale one; None when nothing is stored.

    Args:
        store: the database.
        names: the co-running workloads.
        objective: as stored (name, with its slowdown limit).
        device: the present GPU.
        sources: kernel name -> present hash.
        batches: batches the user named, by workload.
        clocks_as_found: take only answers that set no clock.
    """
    for uuid in (device.uuid, None):  # this GPU's answers first; others are stale by definition
        newest: Answer | None = None
        for run in store.answered(names, objective, uuid):
            if clocks_as_found and run.conditions["clocks"] != "off":
                continue
            reasons = staleness(run.conditions, device=device, sources=sources, batches=batches)
            if not reasons:
                return Answer(run, ())
            newest = newest or Answer(run, tuple(reasons))
        if newest is not None:
            return newest
    return None
