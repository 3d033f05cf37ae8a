"""placeholder"""

from collections.abc import Sequence
from .rating import Criterion, Rated

BYTES_IN_FLIGHT = 160 * 1024


def server_rule(rated: Sequence[Rated]) -> tuple[Criterion, ...]:
    """The criteria of the server rule."""
    del rated
    return (
        Criterion(
            "fewer passes over memory", lambda o: (len(o.launches),), lambda o: f"{len(o.launches)} launches"
        ),
        Criterion(
            "enough bytes in flight",
            lambda o: (o.bytes_in_flight < BYTES_IN_FLIGHT,),
            lambda o: f"{o.bytes_in_flight / 1024:.0f} KiB",
        ),
        Criterion(
            "fewer elements per thread",
            lambda o: (o.elements_per_thread,),
            lambda o: f"P = {o.elements_per_thread}",
        ),
        Criterion("fewer steps", lambda o: (o.steps,), lambda o: f"{o.steps:g} steps"),
        Criterion("more warps", lambda o: (-min(o.W_SM),), lambda o: f"{min(o.W_SM)} warps"),
    )
