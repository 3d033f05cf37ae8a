"""Gates of a measurer: the host's turns, and other users of the GPU."""

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tuner.devices.base import Device
from tuner.measurement.base import Measurer, TrialGate
from tuner.model.errors import RunInterrupted
from tuner.model.trial import Measurement, Trial
from tuner.system.ownership import BoardTurns
from tuner.system.signals import StopRequest

if TYPE_CHECKING:
    from tuner.devices.gpu_users import ContentionProbe

_LOG = logging.getLogger(__name__)


def passed(
    gates: Sequence[TrialGate], trial: Trial | None, measure: Callable[[], Measurement]
) -> Measurement:
    """Measure behind gates: the first is passed first, and left last."""
    if not gates:
        return measure()
    gates[0].before(trial)
    measurement = None
    try:
        measurement = passed(gates[1:], trial, measure)
    finally:
        gates[0].after(measurement)
    return measurement


class TurnGate:
    """Waits for the GPU's turn among those of its host, whose load would disturb its joules.

    Args:
        turns: of the GPUs of the host.
        alone: joules are measured, which load on other GPUs disturbs; times it does not.
    """

    def __init__(self, turns: BoardTurns, *, alone: bool) -> None:
        self._turns = turns
        self._alone = alone
        self._turn = ExitStack()

    def before(self, trial: Trial | None) -> None:  # noqa: ARG002 - whatever runs, it runs in a turn
        """Wait for the turn."""
        self._turn.enter_context(self._turns.turn(alone=self._alone))

    def after(self, measurement: Measurement | None) -> None:  # noqa: ARG002 - the turn has ended
        """Give the turn to another GPU."""
        self._turn.close()


class ContentionGate:
    """Looks before and after each trial who is on the GPU, and stops where others are.

    Args:
        stop: the request to stop the process.
        probe: looks for others; None to look for none.
        spent: hears after each measurement what the run has taken: seconds of windows, and joules.

    Attributes:
        others: who came; empty while none has.
        joules: that were spent, as far as they were measured.
    """

    def __init__(
        self, stop: StopRequest, probe: "ContentionProbe | None", spent: Callable[[float, float], None]
    ) -> None:
        self._stop = stop
        self._probe = probe
        self._spent = spent
        self._watched: tuple[Device, Measurer] | None = None
        self._logged = ""
        self.others = ""
        self.joules = 0.0

    def watch(self, device: Device, measurer: Measurer) -> None:
        """Begin to look after a device, and the measurer on it that has this gate."""
        self._watched = device, measurer

    @property
    def windows_s(self) -> float:
        """Length of all windows so far."""
        return 0.0 if self._watched is None else self._watched[1].windows_s

    def before(self, trial: Trial | None) -> None:
        """Look who is on the GPU.

        Raises:
            RunInterrupted: others are on the GPU; the clock is given back, the worker gone.
            KeyboardInterrupt: the process is to stop.
        """
        self._stop.check()
        if trial is not None:  # idle power is read right behind a trial
            self._check_users()

    def after(self, measurement: Measurement | None) -> None:
        """Note what was spent, and look for others again; raises as ``before`` does."""
        if measurement is None:
            return
        self.joules += measurement.energy_total_j
        self._spent(self.windows_s, self.joules)
        self._check_users()

    def leave(self) -> None:
        """Give back the clock and the GPU; nothing is measured afterwards."""
        if self._watched is not None:
            device, measurer = self._watched
            measurer.close()
            device.close()

    def _check_users(self) -> None:
        """Stop where others are on the GPU."""
        if self._probe is None or self._watched is None:
            return
        device, _ = self._watched
        contention = self._probe.look(device.identity.spec, device.identity.uuid, device.own_processes())
        if contention.busy:
            self.others = contention.reason
            self.leave()
            raise RunInterrupted(contention.reason)
        if contention.reason != self._logged:
            self._logged = contention.reason
            _LOG.warning("other users of the GPU are unknown: %s", contention.reason)
