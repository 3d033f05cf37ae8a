"""How long a measuring window must be for a sensor."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tuner.power.base import Response, SensorInfo

from tuner.measurement.window import suggested_window_s

COUNTER = SensorInfo("counter", "counter", "gpu", period_s=0.1)
RING = SensorInfo("ring", "ring", "gpu", period_s=0.02, response=Response("lag", 0.017))
K40 = SensorInfo("stream", "stream", "gpu", period_s=0.015, response=Response("lag", 0.79))
TILES = SensorInfo("stream", "stream", "gpu", period_s=0.1, response=Response("boxcar", window_s=0.1))
MEAN = SensorInfo("stream", "stream", "gpu", period_s=0.1, response=Response("ramp", window_s=1.0))


@pytest.mark.parametrize(
    ("info", "precision", "window_s"),
    [
        (None, 0.01, 0.012),
        (COUNTER, 0.01, 0.79),
        (COUNTER, 0.02, 0.5),
        (COUNTER, 0.005, 1.49),
        (RING, 0.01, 0.5),
        (K40, 0.01, 2.22),
        (K40, 0.02, 1.11),
        (TILES, 0.01, 0.9),
        (MEAN, 0.01, 2.0),
        (COUNTER, 0.0001, 10.0),
    ],
)
def test_suggested_window(info: SensorInfo | None, precision: float, window_s: float) -> None:
    """A window is as long as ticks, samples, lags and means need for the precision, within bounds."""
    assert suggested_window_s(info, precision) == pytest.approx(window_s, abs=0.01)


@given(st.sampled_from((COUNTER, RING, K40, TILES, MEAN)), st.floats(1e-4, 0.4), st.floats(1.0, 2.0))
def test_more_precision_is_never_shorter(info: SensorInfo, precision: float, looser: float) -> None:
    """A wider interval never asks for a longer window."""
    assert suggested_window_s(info, precision) >= suggested_window_s(info, min(precision * looser, 0.5))
