"""The content key of a run: equal wherever the run is stored, and whatever its number is there."""

import hashlib
from collections.abc import Iterable, Sequence

RUN_COLUMNS = ("objective", "status", "started_at", "ended_at", "conditions", "answer")
TRIAL_COLUMNS = (
    *("number", "trial", "measurement", "confirmed", "status"),
    *("makespan_s", "energy_j", "ended_at"),
)


def content_key(run: Sequence[object], trials: Iterable[str]) -> str:
    """SHA-256 over all that a run says: conditions with the GPU, times, answer and every trial.

    Args:
        run: its ``RUN_COLUMNS``, as stored.
        trials: the literal of each, in the order of their numbers.
    """
    digest = hashlib.sha256(ascii(tuple(run)).encode())
    for trial in trials:
        digest.update(b"\n" + trial.encode())
    return digest.hexdigest()


def literal(trial: Sequence[object]) -> str:
    """A trial's ``TRIAL_COLUMNS`` as literals of Python in ASCII, with commas between them.

    Its checksum is that of this text between the number of its run and its version, in brackets.
    """
    return ascii(tuple(trial))[1:-1]
