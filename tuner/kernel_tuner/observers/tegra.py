"""``kernel_tuner.observers.tegra``: the same of a Jetson."""

from collections.abc import Mapping
from typing import ClassVar

from tuner.kernel_tuner.call_arguments import UserValue
from tuner.kernel_tuner.observers import Observer


class TegraObserver(Observer):
    """Energy in J, power in W, clock in Hz and temperature in degrees Celsius under Tegra's keys.

    The paths of sensors mean nothing here: the board is known by itself.
    """

    known: ClassVar[Mapping[str, str]] = {
        "core_freq": "1e6 * clock_mhz",
        "tegra_temp": "temperature_c",
        "tegra_power": "power",
        "tegra_energy": "energy",
    }

    def __init__(
        self,
        observables: UserValue,
        save_all: UserValue = False,
        power_path: UserValue = "",
        temp_path: UserValue = "",
    ) -> None:
        del power_path, temp_path
        super().__init__(observables, save_all=save_all)
