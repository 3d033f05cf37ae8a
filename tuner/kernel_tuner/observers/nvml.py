"""``kernel_tuner.observers.nvml``: joules, watts, clock and temperature of a GPU."""

from collections.abc import Mapping
from typing import ClassVar

from tuner.kernel_tuner.call_arguments import UserValue
from tuner.kernel_tuner.observers import Observer


class NVMLObserver(Observer):
    """Energy in J, power in W, clock in MHz and temperature in degrees Celsius under NVML's keys.

    The GPU is that of the call, its clocks are not set, and windows last as long as the sensor needs: the
    other parameters mean nothing here.
    """

    known: ClassVar[Mapping[str, str]] = {
        "nvml_energy": "energy",
        "nvml_power": "power",
        "core_freq": "clock_mhz",
        "temperature": "temperature_c",
    }

    def __init__(  # noqa: PLR0917 - the parameters of Kernel Tuner, in its order
        self,
        observables: UserValue,
        device: UserValue = None,
        save_all: UserValue = False,
        nvidia_smi_fallback: UserValue = None,
        use_locked_clocks: UserValue = False,
        continuous_duration: UserValue = 1,
    ) -> None:
        del device, nvidia_smi_fallback, use_locked_clocks, continuous_duration
        super().__init__(observables, save_all=save_all)
