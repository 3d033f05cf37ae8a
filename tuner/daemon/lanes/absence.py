"""Jobs whose device is not here: they wait until it comes back, and say so."""

import contextlib
from collections import Counter
from collections.abc import Collection, Iterable

from tuner.daemon.jobs.board import Board
from tuner.errors import TunerError
from tuner.model.jobs import Job, State


async def tell_absence(board: Board, devices: Collection[str]) -> None:
    """Give jobs that no lane takes the reason why, and take it from those whose device is back."""
    for job in tuple(board.jobs):
        here, absent = job.order.device in devices, f"device {job.order.device} is not here"
        if job.state is State.QUEUED and here == (job.reason == absent):
            with contextlib.suppress(TunerError):  # it was cancelled just now, or is told the next time
                await board.change(job.id, State.QUEUED, "" if here else absent, of=(State.QUEUED,))


def absences(jobs: Iterable[Job], devices: Collection[str]) -> list[str]:
    """Devices that are not here and waited for, for people."""
    lacking = Counter(
        job.order.device for job in jobs if job.state is State.QUEUED and job.order.device not in devices
    )
    return [
        f"{count} {'wait' if count > 1 else 'waits'} for device {device}, which is not here"
        for device, count in sorted(lacking.items())
    ]
