"""What becomes of jobs whose attempts cannot go on: waits that grow, and an end for those that only crash."""

import asyncio
from dataclasses import dataclass

from tuner.daemon.running.errand import Ending
from tuner.model.jobs import Job, State

MOST_CRASHES = 4
"""In a row, without a new trial between them: then the job is at fault, and not what happened to it."""

_FIRST_WAIT_S = 2.0  # after an attempt that failed
LONGEST_WAIT_S = 600.0
"""What is mended is noticed after so long at the latest."""

_LONGEST_DOUBLING = 16  # beyond any wait


def wait_s(failures: int) -> float:
    """How long to wait after so many failures in a row."""
    return min(_FIRST_WAIT_S * 2.0 ** min(failures - 1, _LONGEST_DOUBLING), LONGEST_WAIT_S)


@dataclass
class _Record:
    """How a job, or all on a device, failed so far.

    Attributes:
        failures: attempts in a row that could not go on.
        crashes: attempts in a row that crashed without a new trial.
        rests_until_s: the loop's time before which it is not tried again.
    """

    failures: int = 0
    crashes: int = 0
    rests_until_s: float = 0.0


class Failures:
    """Of one device; forgotten when the daemon ends: that may have been the reason."""

    def __init__(self) -> None:
        self._jobs: dict[int, _Record] = {}
        self._device = _Record()

    def rests_until_s(self, job: Job) -> float:
        """The loop's time before which a job that failed is not tried again."""
        return max(self._jobs.get(job.id, _Record()).rests_until_s, self._device.rests_until_s)

    def forget(self, job: Job) -> None:
        """It has come to an end."""
        self._jobs.pop(job.id, None)

    def forget_jobs(self) -> None:
        """None is left."""
        self._jobs.clear()

    def judge(self, job: Job, ending: Ending, why: str, trials: int) -> tuple[State, str]:
        """The state that follows from an ending, and the reason for people.

        Args:
            job: that was tried.
            ending: of the attempt.
            why: it was stopped; empty where it ended by itself.
            trials: new ones that it stored.
        """
        if ending.status in ("finished", "limited"):
            self.forget(job)
            self._device = _Record()
            return State.FINISHED, ending.message
        if ending.status == "refused":
            self.forget(job)
            return State.FAILED, ending.message
        if ending.status == "busy" or why:
            self._device = _Record()
            return State.QUEUED, f"the GPU is busy: {ending.message}" if ending.status == "busy" else why
        return self._failed(job, ending, trials)

    def _failed(self, job: Job, ending: Ending, trials: int) -> tuple[State, str]:
        """What becomes of a job whose attempt could not go on."""
        now_s = asyncio.get_running_loop().time()
        record = self._jobs.setdefault(job.id, _Record())
        if trials:  # each attempt that gets on is one less: that comes to an end by itself
            record.failures = record.crashes = 0
        record.failures += 1
        record.crashes += ending.status == "crashed"
        if record.crashes >= MOST_CRASHES:
            self.forget(job)
            return State.FAILED, f"{record.crashes} attempts crashed, the last: {ending.message}"
        record.rests_until_s = now_s + wait_s(record.failures)
        if ending.status == "unavailable":  # that concerns the others, too
            self._device.failures += 1
            self._device.rests_until_s = now_s + wait_s(self._device.failures)
        return State.QUEUED, f"{ending.message}; tried again in {wait_s(record.failures):.0f} s"
