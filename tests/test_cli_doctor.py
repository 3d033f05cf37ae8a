"""``tuner doctor``: findings, remedies, and an exit code for scripts."""

import json
from pathlib import Path

import pytest
from cli_process import tuner

from tuner.cli import doctor as checks
from tuner.cli.doctor import Finding, Surroundings

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
