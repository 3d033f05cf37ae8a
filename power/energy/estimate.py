"""What an estimate of mean power is before its parts are joined."""

from dataclasses import dataclass

from tuner.model import Part


@dataclass(frozen=True)
class Estimate:
    """Mean power between two times.

    Attributes:
        watts: the mean.
        parts: of its variance, in watts squared.
        begin_s: from when on it is the mean.
        end_s: until when.
        slope_w_s: drift of power, in watts by second.
        method: names a weaker way to get it.
    """

    watts: float
    parts: tuple[Part, ...]
    begin_s: float
    end_s: float
    slope_w_s: float = 0.0
    method: str = ""
