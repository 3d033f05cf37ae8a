"""The settings of a GPU that are held for a run: its clocks, and its power limit."""

from dataclasses import dataclass

POWER_LIMIT = "powerlimit"  # how journal entries and requests name its control: letters alone


@dataclass(frozen=True)
class GpuSettingKind:
    """What messages call a setting.

    Attributes:
        name: of all of it.
        held: the name with its verb, as in "are held by".
        value: one value of it.
        unit: of a value.
        option: of ``tuner run`` that asks for it.
        reset: option of ``tuner clocks restore`` that gives it back whoever set it.
    """

    name: str
    held: str
    value: str
    unit: str
    option: str
    reset: str


CLOCKS = GpuSettingKind("clocks", "are held", "clock", "MHz", "--clocks", "--reset")
POWER_LIMITS = GpuSettingKind(
    "power limit", "is held", "power limit", "W", "--power-limits", "--reset-power-limit"
)


def kind_of(control: str) -> GpuSettingKind:
    """What a control sets."""
    return POWER_LIMITS if control == POWER_LIMIT else CLOCKS
