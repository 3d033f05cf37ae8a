"""What stored answers are bound to, and how the daemon sees that it has changed."""

from tuner.daemon.settings import Settings


def clock_reason(clock_mhz: int | None, settings: Settings) -> str:
    """Why an answer's clock may not be set any more; empty where it may, or where it sets none.

    Args:
        clock_mhz: that the answer sets.
        settings: what the administrator allows: ``[tuning] clocks``, those of sets, or any a client asks for.
    """
    if clock_mhz is None or settings.tuning.client_clocks:
        return ""
    choices = [settings.tuning.clocks, *(one.clocks for one in settings.set if one.clocks is not None)]
    if any(_holds(choice, clock_mhz) for choice in choices):
        return ""
    return f"it sets the GPU clock to {clock_mhz} MHz, and [tuning] clocks is {settings.tuning.clocks!r} now"


def _holds(choice: str, clock_mhz: int) -> bool:
    """True where a choice of clocks has this one: ``off``, ``all``, ``875,810`` or ``MIN:MAX[:STEP]``."""
    if choice in ("off", "all"):
        return choice == "all"
    if ":" in choice:
        low, high = (int(bound) for bound in choice.split(":")[:2])
        return low <= clock_mhz <= high
    return clock_mhz in {int(one) for one in choice.split(",")}
