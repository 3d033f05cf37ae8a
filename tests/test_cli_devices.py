"""``tuner devices``: where trials can run, and what is missing."""

import json
from pathlib import Path

import pytest
from cli_process import document, tuner

from tuner.devices.gpu_models import gpu_names
from tuner.recordings.files import SHIPPED


@pytest.fixture(autouse=True)
def _no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.devices.choice.driver_problem", lambda: "no NVIDIA driver (a test)")


def test_every_simulated_gpu_is_listed() -> None:
    """All simulated GPUs are there, each labelled as modelled, with limits and clocks."""
    rows = {row["device"]: row for row in document("devices")["devices"]}

    assert rows.keys() >= {f"sim:{name}" for name in gpu_names()}
    for name in gpu_names():
        row = rows[f"sim:{name}"]
        assert row["modelled"] is True
        assert row["limits"]["multiprocessors"] > 0
        assert row["clocks_mhz"] == sorted(row["clocks_mhz"], reverse=True)
        assert "modelled" in row["name"]


def test_what_is_missing_is_said() -> None:
    """Without a driver the line of CUDA says so; a board without a power sensor says that."""
    rows = {row["device"]: row for row in document("devices")["devices"]}

    assert rows["cuda"]["missing"] == ["no NVIDIA driver (a test)"]
    assert rows["cuda"]["name"] is None
    assert rows["cuda"]["limits"] is None
    assert rows["sim:gtx680"]["sensor"] == ""
    assert any("no power sensor" in reason for reason in rows["sim:gtx680"]["missing"])
    assert rows["sim:k40c"]["missing"] == []
    assert "gpu" in rows["sim:k40c"]["sensor"]


def test_shipped_recordings_are_listed() -> None:
    """Every shipped recording is a device of one line: its GPU, the day, its limits, nothing missing."""
    rows = {row["device"]: row for row in document("devices")["devices"]}
    row = rows["replay:h200"]

    assert row["name"] == "NVIDIA H200"
    assert row["recorded"] == "2026-11-21"
    assert row["modelled"] is False
    assert row["limits"]["multiprocessors"] == 132
    assert row["missing"] == []
    assert rows["replay:h200-applications"]["recorded"] == "2026-11-26"
    assert rows["replay:h100"]["name"] == "NVIDIA H100 80GB HBM3"
    assert rows["sim:k40c"]["recorded"] is None
    assert "NVIDIA H200 (recorded)" in " ".join(tuner("devices").stdout.split())


def test_table_shows_the_same(tmp_path: Path) -> None:
    """The table has a line for each device of the document."""
    path = tmp_path / "devices.json"
    result = tuner("devices", "--json", path)
    shown = " ".join(result.stdout.split())

    assert result.exit_code == 0
    assert len(json.loads(path.read_text())["devices"]) == len(gpu_names()) + 1 + len(SHIPPED)
    for text in ("sim:k40c", "(modelled)", "875 810 745", "998 MHz", "has no power sensor"):
        assert text in shown
