"""What a job's process is told, and how it says that it has ended; plain values that JSON has."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tuner.model.jobs import Order

Status = Literal["finished", "limited", "interrupted", "busy", "refused", "unavailable", "crashed"]


@dataclass(frozen=True)
class Errand:
    """One attempt at a job.

    Attributes:
        job: its number; the run in the database is bound to it.
        order: what to do; its device is filled in.
        database: where trials go.
        kernel_directories: folders of kernel files beside those shipped; looked at again, as they may have
            changed since the daemon looked.
        below: the first directory that is looked at; those above it are taken as trusted.
        idle_test: give way as soon as others compute on the GPU.
        others_allowed: processes of others on the GPU that do not count.
        sample: of a job that measures again: the trial as ``tuner.model.records.trial_record`` writes it.
    """

    job: int
    order: Order
    database: Path
    kernel_directories: tuple[Path, ...] = ()
    below: Path = Path("/")
    idle_test: bool = True
    others_allowed: int = 0
    sample: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Ending:
    """How an attempt ended.

    Attributes:
        status: ``finished``; ``limited`` by the order's own limits, an end too; ``interrupted`` because it
            was told to; ``busy`` because others came; ``refused`` where trying again will not help;
            ``unavailable`` where it may: no device, sensor, clock or room on the disk just now; ``crashed``.
        message: why, for people; empty where it finished.
        run: its run in the database.
        seconds: that windows took on the GPU in this attempt, on the device's clock.
        joules: that this attempt took, as far as they were measured.
        sample: what was measured again, as ``tuner.model.records.measurement_record`` writes it.
        clocks_left: GPUs whose clocks could not be given back at once, as their control knows them.
    """

    status: Status
    message: str = ""
    run: int | None = None
    seconds: float = 0.0
    joules: float = 0.0
    sample: Mapping[str, Any] | None = None
    clocks_left: tuple[str, ...] = ()
