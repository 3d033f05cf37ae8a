"""The content key of a run: equal wherever the run is stored, and whatever its number is there."""

import hashlib
from collections.abc import Iterable, Sequence

RUN_COLUMNS = ("objective", "status", "started_at", "ended_at", "conditions", "answer")
TRIAL_COLUMNS = (
    *("number", "trial", "measurement", "confirmed", "status"),
    *("makespan_s", "energy_j", "ended_at"),
)


def content_key(run: Sequence[object], trials: Iterable[Sequence[object]]) -> str:
    """SHA-256 over all that a run says: conditions with the GPU, times, answer and every trial.

    Args:
        run: its ``RUN_COLUMNS``, as stored.
        trials: their ``TRIAL_COLUMNS``, as stored, in the order of their numbers.
    """
    digest = hashlib.sha256(ascii(tuple(run)).encode())
    for trial in trials:
        digest.update(ascii(tuple(trial)).encode())
    return digest.hexdigest()
