"""Joules of a training, as a callback of Hugging Face's ``Trainer`` and of Lightning's."""

from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from tuner.joules.energy_meter import KEPT, EnergyMeter
from tuner.joules.regions import Region

LEAST_S = 1.0
"""Of a region of steps: sensors resolve it, and the GPU is waited for no more often."""


class TrainingCallback:
    """Callback that measures a training; neither library is imported, and it takes the events of both.

    Hugging Face: ``Trainer(..., callbacks=[TrainingCallback(tuner.energy())])``. Lightning's trainer wants a
    class of its own: ``class Joules(TrainingCallback, lightning.Callback): pass``.

    Steps are measured in regions of a second
    or more. One in which the trainer evaluates or saves is cancelled, so that they hold steps alone; the
    region of the training holds everything.

    Args:
        meter: measures, ``tuner.energy(device=local_rank)`` where each GPU has a process; its log is told of
            the regions ``train`` and ``steps``.

    Attributes:
        train: region of the latest training; its ``count`` has the steps. None before the first.
        steps: the latest thousand regions of steps; ``each_j`` of one is joules per step.
    """

    def __init__(self, meter: EnergyMeter) -> None:
        self.train: Region | None = None
        self.steps: deque[Region] = deque(maxlen=KEPT)
        self._meter = meter
        self._training = ExitStack()
        self._block = ExitStack()
        self._region: Region | None = None  # of steps, while one is open
        self._count = self._all = 0  # steps in it, and in the training

    def on_train_begin(self, *_: object, **__: object) -> None:
        """Begin to measure a training; one that an exception has ended without a word is forgotten."""
        self._abandon()
        self.steps.clear()
        self._all = 0
        self.train = self._training.enter_context(self._meter("train"))

    def on_step_begin(self, *_: object, **__: object) -> None:
        """Begin a region of steps, unless one is open."""
        if self._region is None:
            self._count = 0
            self._region = self._block.enter_context(self._meter("steps"))

    def on_step_end(self, *_: object, **__: object) -> None:
        """Count a step, and end a region that is long enough."""
        if self._region is None:
            return
        self._count += 1
        self._all += 1
        if self._region.seconds >= LEAST_S:
            region, self._region = self._region, None
            region.count = self._count
            self._block.close()
            self.steps.append(region)

    def on_prediction_step(self, *_: object, **__: object) -> None:
        """Leave a region of steps out that holds something else."""
        if self._region is not None:
            self._region.cancel()
            self._region = None
            self._block.close()

    def on_train_end(self, *_: object, **__: object) -> None:
        """End the training."""
        self.on_prediction_step()
        if self.train is not None and not self.train.ended and self._all:
            self.train.count = self._all
        self._training.close()

    def on_exception(self, *arguments: object, **_: object) -> None:
        """End the training that failed; Lightning calls it, Hugging Face's trainer does not."""
        if self.train is not None and not self.train.ended:
            self.train.add_note(f"failed: it ended with {type(arguments[-1]).__name__}")
        self.on_train_end()

    def flush(self) -> None:
        """Wait until the meter's log has all regions that have ended."""
        self._meter.flush()

    on_train_start = on_train_begin
    on_train_batch_start = on_step_begin
    on_train_batch_end = on_step_end
    on_validation_start = on_save = on_save_checkpoint = on_prediction_step

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Take every other event, and do nothing."""
        if name.startswith("on_"):
            return _nothing
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __str__(self) -> str:
        return "no training yet" if self.train is None else str(self.train)

    def _abandon(self) -> None:
        self.on_prediction_step()
        if self.train is not None and not self.train.ended and not self.train.cancelled:
            self.train.cancel()
        self._training.close()


def _nothing(*_: Any, **__: Any) -> None:  # noqa: ANN401 - whatever an event has
    """Do nothing."""
