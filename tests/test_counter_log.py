"""The referee's log of NVML's energy counter, on the fake NVML."""

import importlib
import sys
import time
from pathlib import Path

import pynvml
import pytest
from fake_nvml_state import UUID, fake_nvml, library, script, sensors_of_h200

WATTS = 300.0
TICKS = 6


def test_the_log_reads_the_power_of_a_steady_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ticks of the counter, dated by the reads around them, give the power between them."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(Path(library()).parent))
    log = importlib.import_module("referee")

    with fake_nvml(tmp_path) as state:
        sensors_of_h200(state)
        script(state, (0.0, WATTS))
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        with log.counter_log(UUID) as end:
            start_s = time.monotonic()
            for _ in range(TICKS):
                last = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
                while pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) == last:
                    pass
            ticks = end()
        pynvml.nvmlShutdown()
    watts, sigma_w = log.power_of(ticks, start_s, time.monotonic())

    assert len(ticks) >= TICKS - 1
    assert 0.0 < sigma_w < 0.05 * WATTS
    assert watts == pytest.approx(WATTS, abs=4.0 * sigma_w)
    sys.modules.pop("referee")
