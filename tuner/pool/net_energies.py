"""Energies of a pool's trials of which one may have the least net joules, for bounds on every GPU."""

from tuner.model.trial import AnchorRatio, Energy, GpuSetting, Measurement
from tuner.pool.scaling import scaled


class NetEnergies:
    """The trials with the least joules and watts, by clock and power limit.

    Net joules are J (1 - idle power / P): fewer joules J at less power P are fewer net joules, whatever a GPU
    draws when idle. A trial that another undercuts in both is not kept.
    """

    def __init__(self) -> None:
        self._kept: dict[GpuSetting, list[tuple[Energy, Measurement]]] = {}

    def add(self, setting: GpuSetting, measurement: Measurement) -> None:
        """Take note of a trial, if it was measured for joules.

        Args:
            setting: its clock and power limit.
            measurement: in home's units.
        """
        energy = measurement.energy
        if energy is None or energy.watts <= 0:
            return
        kept = self._kept.get(setting, [])
        if not any(_undercuts(one, energy) for one, _ in kept):
            others = [one for one in kept if not _undercuts(energy, one[0])]
            self._kept[setting] = [*others, (energy, measurement)]

    def at(self, setting: GpuSetting, ratio: AnchorRatio) -> tuple[Energy, ...]:
        """The energies at a setting, as another GPU would have them.

        Args:
            setting: clock and power limit.
            ratio: of that GPU over home.
        """
        found = (scaled(measurement, ratio).energy for _, measurement in self._kept.get(setting, ()))
        return tuple(energy for energy in found if energy is not None)


def _undercuts(one: Energy, other: Energy) -> bool:
    return one.joules <= other.joules and one.watts <= other.watts
