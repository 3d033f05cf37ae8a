"""Flags of a measurement: what a reader must know of it."""

from dataclasses import dataclass
from enum import Enum

_POWER_CAP = "sw-power-cap"  # NVML's name of the throttle reason of a GPU at its power limit


class FlagKind(Enum):
    """What a flag is about; the value begins its text."""

    THROTTLED = "throttled"  # the GPU was held back; the detail lists the reasons
    OFF_CLOCK = "off-clock"  # the clock seen is not the clock set
    UNSTEADY = "unsteady"  # the mean round is away from the median
    UNSETTLED = "unsettled"  # energy still changed when the warm-up ended
    NO_ENERGY = "no-energy"
    NO_GRAPH = "no-graph"  # the rounds were not replayed from a graph
    WARM_L2 = "warm-l2"  # the arrays do not reach past the second-level cache
    ALIASING = "aliasing"
    SENSOR_GAP = "sensor-gap"
    SENSOR_VALUES = "sensor-values"
    SENSOR_TIME = "sensor-time"
    SENSOR_RESET = "sensor-reset"
    UNCHECKED = "unchecked"
    OTHER = ""  # text of no known kind


_BY_TEXT = {kind.value: kind for kind in FlagKind if kind is not FlagKind.OTHER}


@dataclass(frozen=True)
class Flag:
    """One flag; its text is ``kind: detail``.

    Attributes:
        kind: what it is about.
        detail: for people; the whole text where the kind is ``OTHER``.
    """

    kind: FlagKind
    detail: str

    @classmethod
    def parse(cls, text: str) -> "Flag":
        """The flag of a stored text; ``str`` gives the same text back."""
        name, _, detail = text.partition(": ")
        if detail and name in _BY_TEXT:
            return cls(_BY_TEXT[name], detail)
        return cls(FlagKind.OTHER, text)

    def __str__(self) -> str:
        return self.detail if self.kind is FlagKind.OTHER else f"{self.kind.value}: {self.detail}"

    @property
    def at_power_limit(self) -> bool:
        """True for a GPU that was throttled by its power limit."""
        return self.kind is FlagKind.THROTTLED and _POWER_CAP in self.detail.split(", ")
