"""What the daemon reads of GPUs for those who watch, on a fake NVML."""

import asyncio
import importlib
import os
import signal
from collections.abc import Iterator
from inspect import signature
from pathlib import Path

import pytest
from fake_nvml_state import UUID, State, fake_nvml, follow_real_time, h200_at

from tuner.daemon.machine import PowerChild
from tuner.daemon.power_probe import PowerProbe

GPUS = {"cuda:0": (UUID, "580", "NVIDIA H200")}


@pytest.fixture
def nvml(tmp_path: Path) -> Iterator[State]:
    with h200_at(tmp_path, 250.0) as state:
        follow_real_time(state)
        state.millijoules = 1
        yield state


def test_a_sample_has_power_clock_temperature_and_users(nvml: State) -> None:
    """All that a GPU tells is read at once, and nothing is set."""
    nvml.process_count, nvml.temperature_c, nvml.load_percent = 3, 54, 80
    probe = PowerProbe()
    first = probe.read(GPUS)["cuda:0"]
    second = probe.read(GPUS)["cuda:0"]
    while second["watts"] is None:
        second = probe.read(GPUS)["cuda:0"]
    probe.close()

    for sample in (first, second):
        assert (sample["processes"], sample["temperature_c"], sample["load_percent"]) == (3, 54.0, 80.0)
        assert sample["clock_mhz"] == nvml.clock_mhz
        assert sample["failure"] == ""
    assert second["watts"] == pytest.approx(250.0, rel=0.2)
    assert (second["reading"] or "").startswith("nvml")
    assert (nvml.sets, nvml.resets, nvml.limit_sets) == (0, 0, 0)


def test_a_gpu_that_cannot_be_read_says_why(nvml: State) -> None:
    """One that is unknown has a reason, and the others are read all the same."""
    del nvml
    probe = PowerProbe()
    samples = probe.read({**GPUS, "cuda:1": ("GPU-none", "580", "lost")})
    probe.close()

    assert samples["cuda:0"]["failure"] == ""
    assert any(word in (samples["cuda:1"]["failure"] or "") for word in ("GPU-none", "lost"))


def test_the_child_is_asked_again_after_it_died() -> None:
    """A driver that takes the child with it costs one sample; the next one has a child of its own."""

    async def read() -> set[str]:
        child = PowerChild("contention_probes:PlayedPower")
        pids = []
        try:
            for _ in range(2):
                pids.append(str((await child.read(GPUS))["cuda:0"]["reading"]))
                os.kill(int(pids[-1]), signal.SIGKILL)
                await asyncio.to_thread(os.waitid, os.P_PID, int(pids[-1]), os.WEXITED | os.WNOWAIT)
        finally:
            child.close()
        return set(pids)

    assert len(asyncio.run(read())) == 2
    module, _, name = signature(PowerChild).parameters["probe"].default.partition(":")
    assert getattr(importlib.import_module(module), name) is PowerProbe


def test_without_a_power_sensor_the_rest_is_told(tmp_path: Path) -> None:
    """Where no reading of power answers, clock, temperature and users are told all the same, with why."""
    with fake_nvml(tmp_path) as state:
        state.process_count = 2
        probe = PowerProbe()
        sample = probe.read(GPUS)["cuda:0"]
        probe.close()

    assert sample["processes"] == 2
    assert "no power reading of NVIDIA H200 can be used" in (sample["failure"] or "")
