"""``kernel_tuner.observers.pmt``: the meter of PMT that reads the GPU."""

from collections.abc import Mapping
from typing import ClassVar

from tuner.kernel_tuner.call_arguments import UserValue
from tuner.kernel_tuner.observers import Observer
from tuner.model.errors import UnsupportedError


class PMTObserver(Observer):
    """Joules and watts of the GPU as ``nvidia_energy`` and ``nvidia_power``; PMT's other meters raise."""

    known: ClassVar[Mapping[str, str]] = {"nvidia_energy": "energy", "nvidia_power": "power"}

    def __init__(
        self,
        observable: UserValue = None,
        use_continuous_observer: UserValue = False,
        continuous_duration: UserValue = 1,
    ) -> None:
        del use_continuous_observer, continuous_duration
        listed = observable if isinstance(observable, list | dict) else [observable]
        meters = [one[0] if isinstance(one, tuple) else one for one in listed]
        for meter in meters:
            if meter != "nvidia":
                raise UnsupportedError(
                    f"PMTObserver: the meter {meter!r} is not supported: a trial has the joules of the GPU,"
                    " which are those of 'nvidia'"
                )
        super().__init__(list(self.known))
