"""The lanes of all devices.

Jobs whose device is not here: they wait until it comes back, and say so.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from tuner.daemon.devices.admission import Gates, Look, Wall
from tuner.daemon.devices.budgets import Budgets
from tuner.daemon.devices.queue import Lane, Launch
from tuner.daemon.devices.results import Office
from tuner.daemon.queue.board import Board
from tuner.daemon.state import Situation
from tuner.errors import TunerError
from tuner.model.jobs import JobRecord, JobState


class Lanes:
    """One per device, by its name."""

    def __init__(self, by_device: Mapping[str, Lane]) -> None:
        self._lanes = dict(by_device)

    def __getitem__(self, device: str) -> Lane:
        """The lane of a device."""
        return self._lanes[device]

    @property
    def running(self) -> list[int]:
        """Numbers of the jobs that run."""
        return [lane.running.id for lane in self._lanes.values() if lane.running is not None]

    @property
    def holds(self) -> list[str]:
        """Why next jobs do not start, each reason once."""
        return sorted({lane.holds for lane in self._lanes.values() if lane.holds})

    def runs(self, device: str) -> bool:
        """True where a job runs on a device."""
        return device in self._lanes and self._lanes[device].running is not None

    def idle(self, device: str) -> bool:
        """True where no job runs on a device or waits for it."""
        return device in self._lanes and self._lanes[device].idle

    def begin(self) -> list[asyncio.Task[None]]:
        """Do jobs; returns a task per device, which ends after ``stop``."""
        return [asyncio.create_task(lane.live(), name=device) for device, lane in self._lanes.items()]

    def look(self) -> None:
        """Something has changed that may concern them."""
        for lane in self._lanes.values():
            lane.look()

    def stop(self, reason: str) -> None:
        """Begin nothing more, and stop what runs; its jobs wait again, for that reason."""
        for lane in self._lanes.values():
            lane.stop(reason)


def lanes(
    situation: Situation,
    *,
    board: Board,
    budgets: Budgets,
    office: Office,
    launch: Launch,
    look: Look,
    wall: Wall,
) -> Lanes:
    """The lanes of the devices that there are; ``Lane`` and ``Gates`` say what they need.

    Args:
        situation: settings and devices.
        board: of jobs.
        budgets: what was spent.
        office: whom lanes ask and tell.
        launch: starts an attempt.
        look: asks who else is on a GPU.
        wall: local time.
    """

    def lane(device: str) -> Lane:
        uuid = situation.uuid(device)
        gates = Gates(
            device, uuid, settings=lambda: situation.settings, budgets=budgets, look=look, wall=wall
        )
        return Lane(device, board, gates, office, launch)

    return Lanes({device: lane(device) for device in situation.devices})


async def tell_absence(board: Board, devices: Collection[str]) -> None:
    """Give jobs that no lane takes the reason why, and take it from those whose device is back."""
    for job in tuple(board.jobs):
        here, absent = job.spec.device in devices, f"device {job.spec.device} is not here"
        if job.state is JobState.QUEUED and here == (job.reason == absent):
            with contextlib.suppress(TunerError):  # it was cancelled just now, or is told the next time
                await board.change(job.id, JobState.QUEUED, "" if here else absent, of=(JobState.QUEUED,))


def absences(jobs: Iterable[JobRecord], devices: Collection[str]) -> list[str]:
    """Devices that are not here and waited for, for people."""
    lacking = Counter(
        job.spec.device for job in jobs if job.state is JobState.QUEUED and job.spec.device not in devices
    )
    return [
        f"{count} {'wait' if count > 1 else 'waits'} for device {device}, which is not here"
        for device, count in sorted(lacking.items())
    ]
