"""The fake NVML shows what it was scripted to: other tests rest on it."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest
from fake_nvml_state import (
    GPU_IS_LOST,
    NO_PERMISSION,
    SECOND_UUID,
    UUID,
    PlayedClock,
    State,
    count,
    fail,
    fake_nvml,
    lose,
    script,
    sensors_of_h200,
    users,
)


@pytest.fixture
def nvml(tmp_path: Path) -> Iterator[State]:
    """A GPU at 100 W until 1000 s and at 500 W from then on, opened."""
    with fake_nvml(tmp_path) as state:
        script(state, (0.0, 100.0), (1000.0, 500.0))
        sensors_of_h200(state, noise_w=0.0)
        pynvml.nvmlInit()
        yield state
        pynvml.nvmlShutdown()
        assert users() == 0


@pytest.fixture
def gpu(nvml: State) -> Any:
    """Its handle."""
    assert nvml.gpu_count == 1
    return pynvml.nvmlDeviceGetHandleByUUID(UUID)


def power_fields(gpu: Any) -> tuple[float, float]:
    """Average and instant power in watts."""
    wanted = [pynvml.NVML_FI_DEV_POWER_AVERAGE, pynvml.NVML_FI_DEV_POWER_INSTANT]
    average, instant = (value.value.uiVal * 1e-3 for value in pynvml.nvmlDeviceGetFieldValues(gpu, wanted))
    return average, instant


def test_a_step_is_seen_as_each_sensor_would(nvml: State, gpu: Any) -> None:
    """Counter: its joules; ring: a lag; instant: a short mean; average: a ramp over a second."""
    clock = PlayedClock(nvml, 1000.45)
    millijoules = pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
    _, samples = pynvml.nvmlDeviceGetSamples(gpu, pynvml.NVML_TOTAL_POWER_SAMPLES, 0)
    shown = {sample.timeStamp: sample.sampleValue.uiVal * 1e-3 for sample in samples}

    assert millijoules == round((1000 * 100 + 0.413 * 500) * 1e3)  # the tick at 1000.413
    assert len(samples) == 119
    for stamp_us, watts in shown.items():
        after_s = stamp_us * 1e-6 - 1000.0
        lag = 500.0 - 400.0 * math.exp(-after_s / 0.013) if after_s > 0 else 100.0
        assert watts == pytest.approx(lag, abs=8.0)
    assert power_fields(gpu) == pytest.approx((100.0 + 400.0 * 0.431, 500.0))
    clock.set(1000.11)
    assert power_fields(gpu)[1] == pytest.approx(500.0)
    clock.set(1000.02)
    assert power_fields(gpu)[1] == pytest.approx(100.0)


def test_a_square_wave_has_its_mean(nvml: State, gpu: Any) -> None:
    """The counter sums a square wave's busy and idle times."""
    script(nvml, (0.0, 0.0), (1000.0, 600.0, 100.0, 0.03, 0.1))
    PlayedClock(nvml, 1002.013)

    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) == pytest.approx(
        (20 * (0.03 * 600 + 0.07 * 100) + 0.013 * 600) * 1e3, abs=1
    )


def test_calls_fail_by_number(nvml: State, gpu: Any) -> None:
    """The n-th call from now fails as told and those after it do not; a lost GPU stays lost."""
    fail(nvml, "usage", NO_PERMISSION, nth=2, times=2)
    ends = []
    for _ in range(4):
        try:
            pynvml.nvmlDeviceGetPowerUsage(gpu)
            ends.append(0)
        except pynvml.NVMLError as error:  # noqa: PERF203 - four calls
            ends.append(error.value)
    assert ends == [0, NO_PERMISSION, NO_PERMISSION, 0]
    assert count(nvml, "usage") == 4

    lose(nvml, nth=2)
    pynvml.nvmlDeviceGetPowerUsage(gpu)
    for call in (pynvml.nvmlDeviceGetPowerUsage, pynvml.nvmlDeviceGetTotalEnergyConsumption):
        with pytest.raises(pynvml.NVMLError) as caught:
            call(gpu)
        assert caught.value.value == GPU_IS_LOST


def clock_mhz(gpu: Any) -> int:
    return int(pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM))


def test_clocks_settle_or_do_not_follow(nvml: State, gpu: Any) -> None:
    """A lock is reached after the time to settle, as far as a cap allows, and not by a disobedient GPU."""
    clock = PlayedClock(nvml)
    nvml.settle_us = 200_000
    pynvml.nvmlDeviceSetGpuLockedClocks(gpu, 900, 900)
    assert clock_mhz(gpu) == 1980
    clock.advance(0.1)
    assert clock_mhz(gpu) == 1440
    clock.advance(0.1)
    assert clock_mhz(gpu) == 900
    nvml.capped_mhz = 600
    assert clock_mhz(gpu) == 600
    nvml.capped_mhz, nvml.disobedient = 0, 1
    assert clock_mhz(gpu) == 1980
    assert (nvml.locked_max_mhz, nvml.sets) == (900, 1)


def test_application_clocks_are_set_and_reset(nvml: State, gpu: Any) -> None:
    """Application clocks of the list are taken, others refused, and a reset brings the default back."""
    pynvml.nvmlDeviceSetApplicationsClocks(gpu, 3201, 900)
    assert pynvml.nvmlDeviceGetApplicationsClock(gpu, pynvml.NVML_CLOCK_SM) == 900
    assert clock_mhz(gpu) == 900
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceSetApplicationsClocks(gpu, 3201, 901)
    pynvml.nvmlDeviceResetApplicationsClocks(gpu)

    assert clock_mhz(gpu) == 1980
    assert (nvml.app_sets, nvml.app_resets) == (2, 1)


def test_two_gpus_are_apart(nvml: State, gpu: Any) -> None:
    """What happens to one GPU does not to the other."""
    nvml.gpu_count = 2
    second = pynvml.nvmlDeviceGetHandleByUUID(SECOND_UUID)
    lose(nvml)
    nvml.process_count, nvml.second.process_count, nvml.second.pids[0] = 0, 1, 4711

    assert pynvml.nvmlDeviceGetCount() == 2
    assert pynvml.nvmlDeviceGetIndex(second) == 1
    assert [process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(second)] == [4711]
    with pytest.raises(pynvml.NVMLError):
        pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)
