"""How a power reading follows power, in words."""

from tuner.interfaces import Response
from tuner.report.units import si


def response_words(response: Response) -> str:
    """A response with its constant and where that comes from, e.g. ``lag, C = 13.0 ms, assumed``."""
    words = {
        "identity": "shows power as it is",
        "lag": f"lag, C = {si(response.capacitance_s, 's', 3)}",
        "boxcar": f"mean over {si(response.window_s, 's', 3)}",
        "ramp": f"running mean over {si(response.window_s, 's', 3)}",
    }[response.kind]
    return f"{words}, {response.origin}"


def is_corrected(response: Response) -> bool:
    """True where correction changes what a reading shows."""
    return response.kind in ("lag", "ramp")
