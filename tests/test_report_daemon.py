"""``tuner report --daemon``: all answers of a machine on one page."""

from pathlib import Path
from typing import Any

from cli_process import tuner
from scripted_daemon import Request, ScriptedDaemon, answer, best, error, job

from tuner.client import Client
from tuner.client.answers import known_answers

TRIAL = {"time_s": 1e-3, "energy_j": 0.5, "energy_j_uncertainty": 1e-3, "power_w": 500.0}
STORED = {
    "best": TRIAL,
    "default": {**TRIAL, "energy_j": 0.7},
    "against_default": {"energy_saving": 0.3, "energy_saving_interval": 0.01},
}
METRICS = """# HELP tuner_expected_saved_joules_total Expected
tuner_expected_saved_joules_total{gpu="GPU-1"} 1.5e3
tuner_expected_saved_joules_uncertainty_total{gpu="GPU-1"} 20.0
tuner_tuning_joules_total{gpu="GPU-1"} 7.0
"""
STATUS = {
    "version": "1.2.3",
    "devices": [{"spec": "cuda:0", "name": "NVIDIA H200", "uuid": "GPU-1", "modelled": False, "job": 4}],
    "troubles": [],
}
JOBS = [
    job(5, state="running", run=None),
    job(4, state="finished", run=9),
    job(3, kind="sample", run=9),
    job(2, workloads=["gone:N=1"], state="finished", run=2),
    job(1, state="finished", run=1),  # of the same workloads as 4
]


def daemon(request: Request) -> bytes:
    """A daemon with one answer that is stale, and a kernel that is gone."""
    found: dict[str, Any] = {
        "/v1/status": STATUS,
        "/v1/jobs": {"jobs": [] if "before" in request.query else JOBS},
    }
    if request.path == "/metrics":
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(METRICS)
        return head + METRICS.encode()
    if request.path == "/v1/best":
        if request.query["workload"] == ["gone:N=1"]:
            return error("input", "no kernel 'gone'", 404)
        stale = ["driver was 1, is 2"]
        return answer(best(origin="stored", run=9, stale=stale, answer=STORED, device=STATUS["devices"][0]))
    return answer(found[request.path])


def test_answers_are_asked_for_once_and_count_as_no_use(tmp_path: Path) -> None:
    """Those of jobs that were tuned, the newest first; what is not served has its reason."""
    with ScriptedDaemon(tmp_path / "s", daemon) as started:
        found = known_answers(Client(started.path))

    assert [one.workloads for one in found] == [("scan-lf:N=4",), ("gone:N=1",)]
    assert found[0].best is not None
    assert found[0].best.run == 9
    assert (found[1].best, found[1].why) == (None, "no kernel 'gone'")
    asked = [request for request in started.asked if request.path == "/v1/best"]
    assert [request.query["count"] for request in asked] == [["0"], ["0"]]


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
        "no kernel",
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
