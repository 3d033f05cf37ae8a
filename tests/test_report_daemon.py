"""``tuner report --daemon``: all answers of a machine on one page."""

import io
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from cli_process import tuner
from hypothesis import given
from hypothesis import strategies as st
from json_places import places, with_value
from rich.console import Console
from scripted_daemon import Request, ScriptedDaemon, answer, best

from tuner.client import Client
from tuner.client.answer_values import ServedAnswer, Status, read
from tuner.model.errors import DaemonError
from tuner.model.run_document import Best
from tuner.model.typed import typed
from tuner.report.html.report import machine_page
from tuner.report.lists import show_best, show_status

TRIAL = {"time_s": 1e-3, "energy_j": 0.5, "energy_j_uncertainty": 1e-3, "power_w": 500.0}
SERVED = {
    "run": 9,
    "at": "2026-01-01T00:00:00+00:00",
    "device": "cuda:0",
    "modelled": False,
    "objective": "energy",
    "workloads": {"scan-lf:N=4": {"batch": 1, "configuration": {"P": 1}}},
    "clock_mhz": None,
    "power_limit_w": None,
    "stale": ["driver was 1, is 2"],
    "best": TRIAL,
    "default": {**TRIAL, "energy_j": 0.7},
    "against_default": {"slowdown": 0.1, "energy_saving": 0.3, "energy_saving_interval": 0.01},
    "saving": None,
}
METRICS = """# HELP tuner_expected_saved_joules_total Expected
tuner_expected_saved_joules_total{gpu="GPU-1"} 1.5e3
tuner_expected_saved_joules_uncertainty_total{gpu="GPU-1"} 20.0
tuner_tuning_joules_total{gpu="GPU-1"} 7.0
"""
STATUS = {
    "version": "1.2.3",
    "devices": [{"spec": "cuda:0", "name": "NVIDIA H200", "uuid": "GPU-1", "modelled": False, "job": 4711}],
    "troubles": [],
}


def daemon(request: Request) -> bytes:
    """A daemon with one answer that is stale."""
    found: dict[str, Any] = {"/v1/status": STATUS, "/v1/answers": {"answers": [SERVED]}}
    if request.path == "/metrics":
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(METRICS)
        return head + METRICS.encode()
    return answer(found[request.path])


def test_savings_are_read_from_the_metrics(tmp_path: Path) -> None:
    """By GPU, with half of their intervals."""
    with ScriptedDaemon(tmp_path / "s", daemon) as started:
        assert Client(started.path).savings() == {"GPU-1": (1500.0, 20.0)}


def test_the_page_names_answers_their_state_and_savings(tmp_path: Path) -> None:
    """Fresh and stale with reasons, savings with intervals, all in one file."""
    out = tmp_path / "daemon.html"
    with ScriptedDaemon(tmp_path / "s", daemon) as started:
        told = tuner("report", "--daemon", "--socket", started.path, "--output", out)

    text = out.read_text()
    assert told.exit_code == 0, told.stderr
    for words in (
        "1,500 ± 20 J",
        "-30.0 ± 1.0 %",
        ">stale<",
        "driver was 1, is 2",
        ">4711<",
        "tunerd 1.2.3",
    ):
        assert words in text, words


def test_without_a_daemon_nothing_is_written(tmp_path: Path) -> None:
    """The reason is told, and there is no file."""
    out = tmp_path / "daemon.html"
    found = tuner("report", "--daemon", "--socket", tmp_path / "none", "--output", out)

    assert found.exit_code != 0
    assert "daemon" in found.stderr
    assert not out.exists()


JUNK = st.recursive(
    st.none() | st.booleans() | st.sampled_from((0, -1, 2**70, 1e-300, 1e300, 1e59)) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


@pytest.mark.parametrize("troubles", [5, "x", [5], {"a": 1}])
def test_an_odd_status_is_no_traceback(tmp_path: Path, troubles: object) -> None:
    """What listens there is named, and what it said that no daemon says."""
    odd = answer({**STATUS, "troubles": troubles})
    with ScriptedDaemon(tmp_path / "s", lambda _: odd) as started:
        for words in (("status",), ("report", "--daemon", "--output", "-")):
            told = tuner(*words, "--socket", started.path)
            assert told.exit_code == DaemonError.exit_code
            assert "it.troubles" in told.stderr


@given(st.data())
def test_no_answer_of_a_daemon_makes_a_reader_raise(data: st.DataObject) -> None:
    """With any value in any place, what a daemon says is refused or can be shown."""
    said = {
        "status": STATUS,
        "best": best(origin="stored", run=9, answer=SERVED, device=STATUS["devices"][0]),
        "answer": SERVED,
    }
    place = data.draw(st.sampled_from(list(places(said))), "place")
    changed = with_value(said, place, data.draw(JUNK, "value"))
    try:
        typed(Status, changed["status"])
        typed(ServedAnswer, changed["answer"])
        found = read(Best, changed["best"])
    except (ValueError, TypeError):
        return
    console = Console(file=io.StringIO(), width=80)
    show_status(changed["status"], console)
    show_best(found, console)
    machine_page(changed["status"], [changed["answer"]], {}, datetime(2026, 1, 1, tzinfo=timezone.utc))
