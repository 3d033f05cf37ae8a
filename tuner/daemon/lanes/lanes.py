"""The lanes of all devices."""

import asyncio
from collections.abc import Mapping

from tuner.daemon.jobs.board import Board
from tuner.daemon.lanes.budgets import Budgets
from tuner.daemon.lanes.gates import Gates, Look, Wall
from tuner.daemon.lanes.lane import Lane, Launch
from tuner.daemon.lanes.office import Office
from tuner.daemon.situation import Situation


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
