"""Joules of the GPU and of its host together: scopes, sums of meters, traces and runs."""

import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from cli_process import tuner
from fake_nvml_state import State
from hypothesis import given
from hypothesis import strategies as st
from power_source import Source
from powercap_trees import build, played
from test_cli_clock_runs import gpu, nvml, run  # noqa: F401 - fixtures
from test_cli_power_trace import nvml as h200  # noqa: F401 - a fixture
from test_cli_power_trace import provenance, traced
from tuner.power.base import Meter
from tuner.power.energy.meter import SamplingMeter, SummedMeter
from tuner.power.sensors import powercap
from tuner.power.sensors.simulated import SimulatedSampler

from tuner.model.errors import InputError
from tuner.model.objective import scope_parts

WATTS = {"package-0": 80.0, "dram": 12.0}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host of 92 W."""
    sysfs = build(tmp_path / "sys")
    monkeypatch.setattr(powercap, "ROOT", str(sysfs))
    monkeypatch.setattr(powercap, "SysfsAttribute", played(WATTS, time.monotonic))
    return sysfs


@pytest.mark.parametrize(
    ("scope", "parts"),
    [
        ("gpu", ("gpu",)),
        ("gpu+cpu", ("gpu", "cpu")),
        ("cpu + gpu", ("gpu", "cpu")),
        ("dram+package+gpu", ("gpu", "package", "dram")),
    ],
)
def test_scopes_are_parts_in_their_order(scope: str, parts: tuple[str, ...]) -> None:
    """Parts may come in any order."""
    assert scope_parts(scope) == parts


@pytest.mark.parametrize("scope", ["", "gpu+", "npu", "gpu+gpu", "cpu+dram", "gpu+cpu+package"])
def test_scopes_that_cannot_be_are_refused(scope: str) -> None:
    """What is unknown, and what would be counted twice, is named."""
    with pytest.raises(InputError, match=r"--scope .*(none of|counted twice)"):
        scope_parts(scope)


@given(watts=st.lists(st.floats(5.0, 500.0), min_size=2, max_size=4))
def test_a_sum_adds_watts_and_variances(watts: list[float]) -> None:
    """Means are added, and independent uncertainties in quadrature."""
    sources = [Source() for _ in watts]

    def meter(number: int, source: Source) -> Meter:
        sampler = SimulatedSampler(source, kind="counter", period_s=0.1, noise=0.002, seed=number)
        return SamplingMeter(sampler, None, source.now_s)

    summed = SummedMeter([meter(number, source) for number, source in enumerate(sources)])
    with summed.recording() as recording:
        for source, power_w in zip(sources, watts, strict=True):
            source.draw(3.0, power_w)
    reading = recording.reading(0.5, 2.5)

    assert reading is not None
    assert reading.watts == pytest.approx(sum(watts), rel=0.01)
    assert reading.watts == pytest.approx(sum(part.watts for part in reading.parts))
    single = max(part.uncertainty_w for part in reading.parts)
    assert single <= reading.uncertainty_w * 1.2
    assert reading.uncertainty_w <= 2.0 * sum(part.uncertainty_w for part in reading.parts)
    assert recording.joules() == pytest.approx(3.0 * sum(watts), rel=0.1)
    spent = summed.spent()
    assert spent is not None
    assert spent.joules == pytest.approx(3.0 * sum(watts), rel=0.01)
    assert 0.0 < spent.sigma_j < 0.02 * spent.joules


@pytest.mark.usefixtures("h200", "host")
def test_a_trace_adds_the_host(tmp_path: Path) -> None:
    """Each part and the sum are told, with their uncertainty."""
    path = tmp_path / "trace.json"
    result = traced("--scope", "gpu+cpu", "--json", path)
    found = provenance(path)

    assert found["energy_scope"] == "gpu+package+dram"
    parts = [found[f"{part}_total_j"] for part in ("gpu", "package", "dram")]
    assert found["total_j"] == pytest.approx(sum(parts))
    assert parts[1:] == pytest.approx([watts * found["duration_s"] for watts in WATTS.values()], rel=0.05)
    assert abs(found["package_net_j"]) < 5 * found["package_net_j_uncertainty"] + 0.1
    for text in ("of gpu+package+dram", "  package ", "powercap:dram (dram; counts joules)"):
        assert text in result.stderr


@pytest.mark.usefixtures("host")
def test_a_host_alone_is_traced(tmp_path: Path) -> None:
    """No GPU is needed for the joules of the processors."""
    path = tmp_path / "trace.json"
    words = ("--idle", "0.2", "--scope", "cpu", "--json", path)
    result = tuner("power", "trace", *words, "--", sys.executable, "-c", "pass")

    assert result.exit_code == 0
    assert provenance(path)["energy_scope"] == "package+dram"


@pytest.mark.usefixtures("gpu", "host")
def test_a_run_counts_the_host(nvml: State, tmp_path: Path) -> None:  # noqa: F811 - a fixture
    """Joules of trials are those of GPU, package and DRAM, are stored as such, and are no plain answer."""
    del nvml
    words = ("--policy", "random", "--budget", "2", "--energy-precision", "20%", "--clocks", "off")
    result, document = run(tmp_path, *words, "--scope", "cpu+gpu", window_s="0.2")
    _, alone = run(tmp_path, *words, window_s="0.2")

    assert result.exit_code == 0, result.stderr
    best, single = document["best"], alone["best"]
    assert best["scope"] == "gpu+package+dram"
    assert best["sensor"] == "nvml-energy-counter+powercap:package+powercap:dram"
    assert best["power_w"] == pytest.approx(single["power_w"] + sum(WATTS.values()), rel=0.1)
    with closing(sqlite3.connect(tmp_path / "tuner.db")) as stored:
        objectives = [row[0] for row in stored.execute("SELECT objective FROM runs ORDER BY id")]
    assert objectives == ["energy of gpu+cpu", "energy"]


@pytest.mark.usefixtures("gpu")
def test_what_cannot_be_counted_ends_a_run(
    tmp_path: Path, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host without such a zone, and a file that only root may read, are told before anything runs."""
    (host / "class/powercap/intel-rapl:0:1/name").write_text("uncore\n")
    result, _ = run(tmp_path, "--scope", "gpu+dram")
    assert result.exit_code == 2
    assert "this host does not count dram; it counts package" in " ".join(result.stderr.split())

    monkeypatch.setattr(powercap, "ROOT", str(tmp_path / "nothing"))
    result, _ = run(tmp_path, "--scope", "gpu+cpu")
    assert result.exit_code == 2
    assert "no RAPL zone" in result.stderr


def test_simulated_and_recorded_devices_have_no_host() -> None:
    """The message says so, and what to leave out."""
    for device in ("sim:h200", "replay:h200"):
        result = tuner("run", "--device", device, "--scope", "gpu+cpu")
        assert result.exit_code == 2
        assert "--scope" in result.stderr
