"""The tables of a sweep: intervals, and what kind of numbers they are."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tuner.report.layout import PlainConsole
from tuner.studies.sweep import JobResult, SweepReport
from tuner.studies.sweep_file import SweepJob
from tuner.studies.sweep_progress import show_sweep

ANSWER: Mapping[str, Any] = {
    "time_s": 127.6e-6,
    "time_s_uncertainty": 0.1e-6,
    "energy_j": 75.15e-3,
    "energy_j_uncertainty": 0.3e-3,
    "slowdown": 0.1,
    "slowdown_interval": 0.01,
    "energy_saving": 0.2,
    "energy_saving_interval": 0.02,
    "trials": 40,
}


def result(number: int, group: str = "scans", **kind: Any) -> JobResult:
    """A job that has ended with the answer, on a device of a kind."""
    job = SweepJob(group, (f"scan-lf:N={number}",), "energy", "sim:h200" if kind else "cuda:0")
    return JobResult(job, "finished", run=number, seconds=2.0, answer={**ANSWER, **kind})


def failed(number: int) -> JobResult:
    return JobResult(SweepJob("scans", (f"scan-lf:N={number}",)), "failed", reason="why")


def shown(capsys: pytest.CaptureFixture[str], results: Sequence[JobResult], width: int = 160) -> list[str]:
    """The report as lines, without space around them."""
    jobs = [one.job for one in results]
    show_sweep(SweepReport("sweep.toml", "played", jobs, list(results)), PlainConsole(width=width))
    return [line.strip() for line in capsys.readouterr().out.splitlines()]


def line_of(lines: Sequence[str], begin: str) -> str:
    """The one line that begins so, its words a space apart."""
    (line,) = (line for line in lines if line.startswith(begin))
    return " ".join(line.split())


def test_intervals_are_those_of_the_report_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Times and joules have half of their 95 % interval, 1.96 standard uncertainties, and it says so."""
    lines = shown(capsys, [result(64)])

    assert "127.60 ± 0.20 µs 75.15 ± 0.59 mJ -20.0 ± 2.0 % 40 64" in line_of(lines, "scan-lf:N=64")
    assert "± is 95 %" in lines


def test_numbers_that_were_measured_have_no_label(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither heads nor rows speak of a kind where all are measured."""
    lines = shown(capsys, [result(4), result(8), failed(16)])

    assert not any(word in line for line in lines for word in ("modelled", "recorded", "measured", "numbers"))


@pytest.mark.parametrize(
    ("kind", "label"),
    [
        ({"modelled": True}, "(modelled)"),
        ({"recorded": "a file"}, "(recorded)"),
        ({"recorded": "a file", "modelled": True}, "(recorded, modelled)"),
    ],
)
def test_heads_say_what_all_numbers_are(
    kind: Mapping[str, Any], label: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The heads of time, energy, changes and their median have the label; wall time is measured."""
    lines = [" ".join(line.split()) for line in shown(capsys, [result(4, **kind), failed(8)])]
    labelled = [line for line in lines if label in line]

    assert labelled == [
        f"workloads device objective time {label} energy {label} against the default {label} trials run",
        f"group device objective jobs answered before failed median change {label} tuning took (wall time)",
    ]


def test_a_narrow_console_loses_no_number_and_no_label(capsys: pytest.CaptureFixture[str]) -> None:
    """Where columns have no room, each number stands behind its head, and no line is wider."""
    lines = shown(capsys, [result(4, modelled=True)], width=80)
    text = " ".join(" ".join(lines).split())

    assert "workloads scan-lf:N=4 device sim:h200 objective energy" in text
    assert "time (modelled) 127.60 ± 0.20 µs energy (modelled) 75.15 ± 0.59 mJ" in text
    assert "against the default (modelled) -20.0 ± 2.0 %" in text
    assert "median change (modelled) -20.0 %" in text
    assert all(len(line) <= 80 for line in lines[:-2])


def test_rows_say_what_their_numbers_are_where_kinds_differ(capsys: pytest.CaptureFixture[str]) -> None:
    """Each job has its kind, and each group those of its jobs; a job without an answer has none."""
    lines = shown(capsys, [result(4), result(8, "models", modelled=True), failed(16)])

    assert "cuda:0 energy measured 127.60 ± 0.20 µs" in line_of(lines, "scan-lf:N=4")
    assert "sim:h200 energy modelled 127.60 ± 0.20 µs" in line_of(lines, "scan-lf:N=8")
    assert "energy – – – –" in line_of(lines, "scan-lf:N=16")
    assert "scans cuda:0 energy measured 1 0 0 -20.0 % 2.0 s" in map(" ".join, map(str.split, lines))
    assert line_of(lines, "models") == "models sim:h200 energy modelled 1 0 0 -20.0 % 2.0 s"


def test_json_has_standard_uncertainties() -> None:
    """What programs read is as in the document of a run."""
    one = result(4)
    (row,) = SweepReport("sweep.toml", "played", [one.job], [one]).document()["results"]

    assert (row["answer"]["time_s_uncertainty"], row["answer"]["energy_j_uncertainty"]) == (0.1e-6, 0.3e-3)
