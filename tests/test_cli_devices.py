"""``tuner devices`` and ``tuner doctor``: where trials can run, what is missing, and what to mend."""

import json
from pathlib import Path
from typing import Any

import pytest
from cli_process import tuner

from tuner.cli import doctor as checks
from tuner.cli.doctor import Finding, Surroundings
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


# --- tuner doctor ---------------------------------------------------------------------------------


GOOD = Finding("driver", "ok", "NVIDIA driver 580")
NOTE = Finding("clocks", "note", "[may not] be set", "ask")
WARNING = Finding("monitors", "warning", "jtop polls", "stop jtop")
ERROR = Finding("database", "error", "damaged", "move it aside")


def found(monkeypatch: pytest.MonkeyPatch, *findings: Finding) -> None:
    monkeypatch.setattr(checks, "examine", lambda _around: iter(findings))


@pytest.mark.parametrize(
    ("findings", "code"), [((GOOD,), 0), ((GOOD, NOTE, WARNING), 0), ((GOOD, ERROR, WARNING), 1), ((), 0)]
)
def test_the_exit_code_says_whether_to_mend(
    findings: tuple[Finding, ...], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error is 1; warnings and notes leave 0; each finding and remedy is printed."""
    found(monkeypatch, *findings)
    result = tuner("doctor")

    assert result.exit_code == code
    for finding in findings:
        assert f"{finding.check}: {finding.text}" in result.stdout
        assert not finding.remedy or f"-> {finding.remedy}" in result.stdout


def test_the_last_line_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last line says how many errors, warnings and notes there are, one of a kind in the singular."""
    found(monkeypatch, GOOD, NOTE, WARNING, NOTE)

    assert tuner("doctor").stdout.splitlines()[-1] == "0 errors, 1 warning, 2 notes"


def test_json_has_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The document holds every finding; with - it has standard output for itself."""
    found(monkeypatch, GOOD, ERROR)
    result = tuner("doctor", "--json", "-")
    document = json.loads(result.stdout)

    assert result.exit_code == 1
    assert document["worst"] == "error"
    assert [row["check"] for row in document["findings"]] == ["driver", "database"]
    tuner("doctor", "--json", tmp_path / "doctor.json")
    assert json.loads((tmp_path / "doctor.json").read_text()) == document


def test_the_database_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--database is the one examined."""
    seen: list[Surroundings] = []

    def examine(around: Surroundings) -> list[Finding]:
        seen.append(around)
        return [GOOD]

    monkeypatch.setattr(checks, "examine", examine)
    tuner("doctor", "--database", tmp_path / "other.db")

    assert [around.database for around in seen] == [tmp_path / "other.db"]


def test_this_machine() -> None:
    """The doctor ends on any machine without a traceback."""
    result = tuner("doctor")

    assert result.exit_code in (0, 1)
    assert "database: " in result.stdout
