"""``tuner devices``: where trials can run, and what is missing."""

import json
from typing import Any

import pytest
from cli_process import tuner

from tuner.devices.gpu_models import gpu_names
from tuner.recordings.files import SHIPPED


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """The rows of the document by their devices, and what the table shows beside it."""
    path = tmp_path_factory.mktemp("devices") / "devices.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tuner.devices.choice.driver_problem", lambda: "no NVIDIA driver (a test)")
        result = tuner("devices", "--json", path)
    assert result.exit_code == 0
    rows = json.loads(path.read_text())["devices"]
    assert len(rows) == len(gpu_names()) + 1 + len(SHIPPED)
    return {row["device"]: row for row in rows}, " ".join(result.stdout.split())


@pytest.fixture
def rows(told: tuple[dict[str, Any], str]) -> dict[str, Any]:
    return told[0]


def test_every_simulated_gpu_is_listed(rows: dict[str, Any]) -> None:
    """All simulated GPUs are there, each labelled as modelled, with limits and clocks."""
    assert rows.keys() >= {f"sim:{name}" for name in gpu_names()}
    for name in gpu_names():
        row = rows[f"sim:{name}"]
        assert row["modelled"] is True
        assert row["limits"]["multiprocessors"] > 0
        assert row["clocks_mhz"] == sorted(row["clocks_mhz"], reverse=True)
        assert "modelled" in row["name"]


def test_what_is_missing_is_said(rows: dict[str, Any]) -> None:
    """Without a driver the line of CUDA says so; a board without a power sensor says that."""
    assert rows["cuda"]["missing"] == ["no NVIDIA driver (a test)"]
    assert rows["cuda"]["name"] is None
    assert rows["cuda"]["limits"] is None
    assert rows["sim:gtx680"]["sensor"] == ""
    assert any("no power sensor" in reason for reason in rows["sim:gtx680"]["missing"])
    assert rows["sim:k40c"]["missing"] == []
    assert "gpu" in rows["sim:k40c"]["sensor"]


def test_shipped_recordings_are_listed(rows: dict[str, Any]) -> None:
    """Every shipped recording is a device of one line: its GPU, the day, its limits, nothing missing."""
    row = rows["replay:h200"]

    assert row["name"] == "NVIDIA H200"
    assert row["recorded"] == "2026-11-21"
    assert row["modelled"] is False
    assert row["limits"]["multiprocessors"] == 132
    assert row["missing"] == []
    assert rows["replay:h200-applications"]["recorded"] == "2026-11-26"
    assert rows["replay:h100"]["name"] == "NVIDIA H100 80GB HBM3"
    assert rows["sim:k40c"]["recorded"] is None


def test_table_shows_the_same(told: tuple[dict[str, Any], str]) -> None:
    """The table has a line for each device of the document."""
    for text in ("sim:k40c", "(modelled)", "875 810 745", "998 MHz", "has no power sensor"):
        assert text in told[1]
    assert "NVIDIA H200 (recorded)" in told[1]
