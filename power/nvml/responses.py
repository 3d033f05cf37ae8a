"""How the power readings of NVML follow power, by what is published of each generation of GPUs.

Sources: for the K20 and K40 what stands below equation (6) of "Multi-Kernel Auto-Tuning on GPUs: Performance
and Energy-Aware Optimization"; for windows and periods from Kepler to Hopper "Part-time Power Measurements:
nvidia-smi's Lack of Attention" (2023); for which readings are means over a second NVML's reference. Ring and
instant power of Hopper are as two H200s showed them. A calibration of the very board replaces all of it.
"""

import re
from dataclasses import replace

from tuner.interfaces import Response

USAGE, INSTANT, AVERAGE, RING, COUNTER = (
    *("nvml-power-usage", "nvml-power-instant", "nvml-power-average"),
    *("nvml-power-ring", "nvml-energy-counter"),
)
_MAXWELL, _PASCAL, _TURING, _AMPERE, _ADA, _HOPPER = 3, 4, 6, 7, 8, 9  # NVML's numbers of architectures
_GA100 = ("A100", "A30", "A800")  # the Ampere chips whose power reading is no mean over a second
_LAGS = (("K20", 0.833), ("K40", 0.79))  # seconds
_LAG_SIGMA_S = 0.01  # values published for the K20 differ by 0.007 s, and boards of a model by as much
_M40 = "M40"  # the one Maxwell board that is no lag
_SECOND = Response("ramp", window_s=1.0, origin="published")
_QUARTER = Response("boxcar", window_s=0.025, origin="published", averages=False)  # of every 100 ms
_HALF = Response("boxcar", window_s=0.01, origin="published", averages=False)  # of every 20 ms
_M40_PART = Response("boxcar", window_s=0.014, origin="published", averages=False)  # of every 31 ms
_WHOLE = Response("boxcar", window_s=0.1, origin="published")  # every 100 ms
# Two H200s (driver 580.159) under a known load: C of 13.1 and 13.3 ms, and a delay of 3.5 and 3.1 ms; that
# boards differ by no more is a guess.
_HOPPER_RING = Response(
    "lag", capacitance_s=0.013, capacitance_sigma_s=0.001, delay_s=0.0033, delay_sigma_s=0.001
)
# The same two: one look every 100 ms at power through a lag of 13.8 and 15.3 ms, 18 and 11 ms late. As a
# boxcar, which is what is published of the H100 (21 to 25 ms), it would be of 31 and 39 ms, and fits worse.
_HOPPER_INSTANT = replace(_HOPPER_RING, delay_s=0.015, delay_sigma_s=0.005, averages=False)


def expected(name: str, product: str, architecture: int) -> Response:
    """The response of a reading before anyone has calibrated it.

    Args:
        name: of the reading.
        product: name of the GPU.
        architecture: NVML's number of it; 0 where it is unknown.
    """
    if name == COUNTER:
        return Response()
    lag_s = next((lag_s for board, lag_s in _LAGS if _is(product, board)), None)
    if lag_s is not None:
        sigma_s = _LAG_SIGMA_S
        return Response("lag", capacitance_s=lag_s, capacitance_sigma_s=sigma_s, origin="published")
    if name == RING:
        return _HOPPER_RING if architecture >= _HOPPER else Response()
    polled = _polled(name, product, architecture)
    return polled if architecture <= _HOPPER else replace(polled, origin="assumed")


def _polled(name: str, product: str, architecture: int) -> Response:
    """The response of a reading that is one number: what nvidia-smi shows, or a field."""
    if architecture < _PASCAL:  # K80, Maxwell: a lag nobody has published, except of the M40
        return _M40_PART if _is(product, _M40) else Response()
    if architecture < _TURING:
        return _HALF
    if architecture == _TURING:
        return _WHOLE
    if architecture == _AMPERE and any(_is(product, board) for board in _GA100):
        return _QUARTER
    if name != INSTANT:
        return _SECOND
    return _WHOLE if architecture in (_AMPERE, _ADA) else _HOPPER_INSTANT


def expected_period_s(name: str, product: str, architecture: int) -> float:
    """Expected time between two updates of a reading."""
    if name == RING:
        return 0.02
    if name == COUNTER:
        return 0.1
    if any(_is(product, board) for board, _ in _LAGS):
        return 0.015
    if _is(product, _M40):
        return 0.031
    return 0.02 if _PASCAL <= architecture < _TURING else 0.1


def _is(product: str, board: str) -> bool:
    """True for a board and its variants: K20 is in ``Tesla K20Xm``, but not in ``Quadro K2000``."""
    return re.search(rf"\b{board}[A-Za-z]*\b", product) is not None
