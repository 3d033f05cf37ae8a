"""What the daemon tells the process of a job: the order, and where things are."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.daemon.running.errand import Errand
from tuner.daemon.settings import Settings
from tuner.jobs import Job


@dataclass(frozen=True)
class Places:
    """Where things are.

    Attributes:
        database: file of results.
        kernel_directories: trusted folders of kernel files beside those shipped.
    """

    database: Path
    kernel_directories: tuple[Path, ...] = ()


def errand(job: Job, settings: Settings, places: Places, sample: Mapping[str, Any] | None = None) -> Errand:
    """What an attempt at a job is told.

    Args:
        job: to be done.
        settings: in force now.
        places: where things are.
        sample: of a job that measures again: the trial.
    """
    return Errand(
        job=job.id,
        order=job.order,
        database=places.database,
        kernel_directories=places.kernel_directories,
        idle_test=settings.idle.test,
        others_allowed=settings.idle.others_allowed,
        sample=sample,
    )
