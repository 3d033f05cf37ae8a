"""Metrics, and the dashboard that shows them."""

import asyncio
import contextlib
import copy
import http.client
import json
import re
import shutil
import socket
import subprocess
import sys
import urllib.parse
from pathlib import Path
from typing import Any

import pytest
from cli_process import tuner
from daemon_machine import Machine, machine
from fake_service import queued_job
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families as parsed
from served_service import UnixConnection, ask
from starlette.types import Message, Receive, Scope, Send

from tuner.daemon.http.server import LatencyObserver, route
from tuner.daemon.metrics import Metrics
from tuner.model.jobs import JobSpec

__all__ = ["machine"]  # a fixture

# --- what Prometheus sees of the daemon, and the dashboard that shows it --------------------------


DASHBOARD = Path(__file__).parent.parent / "systemd" / "grafana-dashboard.json"
GPU = "GPU-00000000-0000-4000-8000-000000000001"
# Prometheus knows of every process, and the dashboard shows three of them.
OF_A_PROCESS = re.compile(r"process_\w+")


@pytest.fixture
def metrics() -> Metrics:
    """Of a daemon that has done one of everything."""
    one = Metrics("1.2")
    one.device(GPU, "cuda:0", "NVIDIA H200", modelled=False)
    one.trials.labels(GPU, "ok").inc()
    one.spent(GPU, 2.0, 300.0)
    one.saved(GPU, 50.0, 5.0)
    one.sensed(GPU, 400.0, 1980.0)
    one.not_restored.labels(GPU).inc()
    one.endings.labels("finished").inc()
    one.store_errors.inc()
    one.best.labels("nearest").inc()
    one.request("/v1/best", 200, 0.0015)
    return one


def samples(metrics: Metrics, text: bytes | None = None) -> dict[tuple[str, ...], float]:
    """Values by name and label values."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in parsed((text or metrics.render()).decode())
        for sample in family.samples
    }


def test_times_alone_have_no_joules() -> None:
    metrics = Metrics("1.2")
    metrics.device(GPU, "cuda:0", "NVIDIA H200", modelled=False)
    metrics.spent(GPU, 2.0, 0.0)
    seen = samples(metrics)
    assert (seen["tuner_tuning_seconds_total", GPU], ("tuner_tuning_joules_total", GPU) in seen) == (
        2.0,
        False,
    )


def test_what_was_told_is_scraped(metrics: Metrics) -> None:
    """Every figure arrives under its name, with the UUID of its GPU."""
    metrics.trials.labels(GPU, "timeout").inc()
    queued = [queued_job(number, JobSpec(("scan-lf:N=4",))) for number in (1, 2, 3)]
    seen = samples(metrics, metrics.render(queued, fresh=4, stale=1, followers=5))

    assert seen["tuner_trials_total", GPU, "ok"] == seen["tuner_trials_total", GPU, "timeout"] == 1
    assert seen["tuner_tuning_seconds_total", GPU] == 2.0
    assert seen["tuner_tuning_joules_total", GPU] == 300.0
    assert seen["tuner_expected_saved_joules_total", GPU] == 50.0
    assert seen["tuner_expected_saved_joules_uncertainty_total", GPU] == 5.0
    assert seen["tuner_gpu_power_watts", GPU] == 400.0
    assert seen["tuner_gpu_clock_hertz", GPU] == 1.98e9
    assert seen["tuner_clock_restore_failures_total", GPU] == 1
    assert seen["tuner_job_endings_total", "finished"] == 1
    assert seen["tuner_job_endings_total", "crashed"] == seen["tuner_job_endings_total", "refused"] == 0
    assert seen["tuner_best_requests_total", "nearest"] == 1
    assert seen["tuner_request_seconds_count", "200", "/v1/best"] == 1
    assert seen["tuner_request_seconds_bucket", "200", "0.002", "/v1/best"] == 1
    assert seen["tuner_request_seconds_bucket", "200", "0.001", "/v1/best"] == 0
    assert (seen["tuner_jobs", "queued"], seen["tuner_jobs", "running"]) == (3, 0)
    assert ("tuner_jobs", "finished") not in seen
    assert (seen["tuner_queue_waiting",], seen["tuner_followers",], seen["tuner_store_errors_total",]) == (
        3,
        5,
        1,
    )
    assert (seen["tuner_answers", "fresh"], seen["tuner_answers", "stale"]) == (4, 1)
    assert seen["tuner_gpu_info", "cuda:0", GPU, "false", "NVIDIA H200"] == 1
    assert seen["tuner_build_info", "1.2"] == 1
    assert seen["process_resident_memory_bytes",] > 0


def test_what_nobody_reads_any_more_is_not_shown(metrics: Metrics) -> None:
    """Power and clock of an idle GPU are absent, for nobody reads them then; ending twice changes nothing."""
    metrics.idle(GPU)
    metrics.idle(GPU)
    seen = samples(metrics)

    assert ("tuner_gpu_power_watts", GPU) not in seen
    assert ("tuner_gpu_clock_hertz", GPU) not in seen


def test_a_gpu_has_its_counters_before_the_first_trial() -> None:
    """Counters of a known GPU begin at zero, so that Prometheus sees the first step."""
    metrics = Metrics("1")
    metrics.device("sim:h200", "sim:h200", "NVIDIA H200", modelled=True)
    seen = samples(metrics)

    assert seen["tuner_trials_total", "sim:h200", "ok"] == 0
    assert seen["tuner_clock_restore_failures_total", "sim:h200"] == 0
    assert seen["tuner_gpu_info", "sim:h200", "sim:h200", "true", "NVIDIA H200"] == 1


def test_two_daemons_in_one_process_do_not_mix(metrics: Metrics) -> None:
    """There is no global register."""
    other = Metrics("2")
    other.endings.labels("finished").inc()
    other.endings.labels("finished").inc()

    assert samples(metrics)["tuner_job_endings_total", "finished"] == 1


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), max_size=20))
def test_counters_never_fall(told: list[tuple[float, float]]) -> None:
    """Whatever is told, a counter only grows: an answer that is worse than the default saves nothing."""
    metrics = Metrics("1")
    metrics.device(GPU, "cuda:0", "a GPU", modelled=False)
    before = 0.0
    for joules, uncertainty_j in told:
        metrics.saved(GPU, joules, uncertainty_j)
        now = samples(metrics)["tuner_expected_saved_joules_total", GPU]
        assert now == pytest.approx(before + max(0.0, joules))
        before = now


def exported(metrics: Metrics) -> dict[str, str]:
    """Type by name of family, as in the text."""
    return dict(re.findall(r"^# TYPE (\w+) (\w+)$", metrics.render().decode(), re.MULTILINE))


def shown() -> set[str]:
    """Names of families in the queries of the dashboard."""
    board = json.loads(DASHBOARD.read_text())
    queries = [query["expr"] for panel in board["panels"] for query in panel.get("targets", ())]
    queries += [
        variable["query"]["query"] for variable in board["templating"]["list"] if variable["type"] == "query"
    ]
    names = set(re.findall(r"\b(?:tuner|process)_\w+", " ".join(queries)))
    return {re.sub(r"^(tuner_request_seconds)_(bucket|count|sum)$", r"\1", name) for name in names}


def test_the_dashboard_shows_what_is_exported(metrics: Metrics) -> None:
    """Every metric has its place on the dashboard, and the dashboard asks for no other."""
    names = set(exported(metrics))

    assert shown() <= names
    assert {name for name in names - shown() if not OF_A_PROCESS.fullmatch(name)} == set()


def test_each_metric_is_on_its_page(metrics: Metrics) -> None:
    """The page names what is exported, each in a row of its own, and nothing else."""
    page = (DASHBOARD.parent.parent / "docs" / "daemon-operation.md").read_text()
    rows = re.findall(r"^\| (`(?:tuner|process)_.*?) \|", page, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]

    assert sorted(named) == sorted(exported(metrics))


def test_names_follow_the_rules_of_prometheus(metrics: Metrics) -> None:
    """Base units in names, ``_total`` for counters and for nothing else, a help text for everything."""
    text = metrics.render().decode()
    for name, kind in exported(metrics).items():
        assert name.endswith("_total") == (kind == "counter")
        assert not re.search(r"_(ms|milliseconds|mhz|kwh|percent)\b", name)
        assert re.search(rf"^# HELP {name} \S", text, re.MULTILINE)
    assert "_created" not in text


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    """Each panel has a number and a place of its own."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (place["x"] + right, place["y"] + down)
            for right in range(place["w"])
            for down in range(place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("/v1/best", "/v1/best"),
        ("/v1/jobs/12", "/v1/jobs/{id}"),
        ("/v1/jobs/12/events", "/v1/jobs/{id}/events"),
        ("/v1/jobs/12/other", "other"),
        ("/v1/jobs/../12", "other"),
        ("/12", "other"),
        ("", "other"),
    ],
)
def test_a_path_is_counted_by_its_route(path: str, label: str) -> None:
    """Whatever clients send, there are only so many series."""
    assert route(path) == label


def test_every_route_has_its_times() -> None:
    """What the interface publishes is timed under its own name."""
    document = json.loads((DASHBOARD.parent.parent / "docs" / "openapi.json").read_text())
    for path in document["paths"]:
        assert route(re.sub(r"\{\w+\}", "7", path)) != "other"


def test_requests_are_timed_when_their_answer_begins() -> None:
    """Status and route of an answer are told once, with the time it took."""
    heard = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert (scope["path"], await receive()) == ("/v1/jobs/3", {})
        await send({"type": "http.response.start", "status": 404})
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> Message:
        return {}

    async def send(message: Message) -> None:
        assert message

    asyncio.run(LatencyObserver(app, lambda *told: heard.append(told))({"path": "/v1/jobs/3"}, receive, send))
    ((label, status, seconds),) = heard

    assert (label, status) == ("/v1/jobs/{id}", 404)
    assert 0.0 <= seconds < 60.0


# --- the shipped alerts

ALERTS = DASHBOARD.with_name("prometheus-alerts.yml")
RUNBOOK = DASHBOARD.parent.parent / "docs" / "howto" / "alerts.md"
ANSWERED = 'tuner_request_seconds_bucket{{route="/v1/best",le="{}"}}'
WELL = {  # values of 600 steps, as promtool writes them
    'up{job="tuner"}': "1x600",
    'tuner_clock_restore_failures_total{gpu="G"}': "1x600",
    "tuner_database_rows_isolated": "0x600",
    "tuner_store_errors_total": "3x600",
    "tuner_database_last_full_check_timestamp_seconds": "0x600",
    'tuner_troubles{subject="database"}': "0x600",
    'tuner_troubles{subject="kernels"}': "0x600",
    'tuner_job_endings_total{status="crashed"}': "2x600",
    'tuner_job_endings_total{status="finished"}': "0+1x600",
    **{ANSWERED.format(le): "0+100x600" for le in ("0.01", "0.1", "1", "+Inf")},
    'tuner_token_expiry_timestamp_seconds{token="ci"}': "1000000000x600",
    'probe_ssl_earliest_cert_expiry{job="tuner-pool"}': "1000000000x600",
    'probe_ssl_earliest_cert_expiry{job="web"}': "0x600",
}
CAUSES = {
    "": {"tuner_store_errors_total": "3x520 4x79", "up": "1x599 0"},  # one error, one missed scrape
    "TunerDown": {'up{job="tuner"}': "1x590 0x9"},
    "TunerClockNotRestored": {'tuner_clock_restore_failures_total{gpu="G"}': "1x590 2x9"},
    "TunerRowsLost": {"tuner_database_rows_isolated": "0x590 1x9"},
    "TunerStoreErrors": {"tuner_store_errors_total": "3x580 4+1x19"},
    "TunerDatabaseUnchecked": {"tuner_database_last_full_check_timestamp_seconds": "60x600"},
    "TunerTrouble": {'tuner_troubles{subject="kernels"}': "0x580 2x19"},
    "TunerJobsFail": {'tuner_job_endings_total{status="crashed"}': "2x560 3x9 5x29"},
    "TunerSlowAnswers": {ANSWERED.format(le): "0x600" for le in ("0.01", "0.1")},
    "TunerTokenEndsSoon": {'tuner_token_expiry_timestamp_seconds{token="ci"}': "600000x600"},
    "TunerCertificateEndsSoon": {'probe_ssl_earliest_cert_expiry{job="tuner-pool"}': "1200000x600"},
}


def test_alerts_ask_for_what_is_exported_and_have_a_runbook(metrics: Metrics) -> None:
    """Every alert has a cause in the test below, and a heading in the runbook."""
    text = ALERTS.read_text()
    names = re.findall(r"- alert: (\w+)", text)
    asked = set(re.findall(r"\btuner_\w+", text.split("rules:")[1]))

    assert {re.sub(r"_bucket$", "", name) for name in asked} <= set(exported(metrics))
    assert ["", *names] == sorted(CAUSES, key=["", *names].index)
    assert re.findall(r"^## (\w+)$", RUNBOOK.read_text(), re.MULTILINE) == names


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool, of Debian's package prometheus")
@pytest.mark.parametrize("alert", CAUSES)
def test_an_alert_fires_for_its_cause_alone(tmp_path: Path, alert: str) -> None:
    """At the end of 600 minutes, in the last of which the cause came, no other alert fires."""
    minutes = 60 if alert == "TunerDatabaseUnchecked" else 1  # which takes weeks
    values = {**WELL, **CAUSES[alert]}
    fires = [{"labels": f'{{alertname="{alert}"}}', "value": 1}] if alert else []
    case = {
        "interval": f"{minutes}m",
        "input_series": [{"series": name, "values": text} for name, text in values.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": f"{599 * minutes}m",
                "exp_samples": fires,
            }
        ],
    }
    file = tmp_path / "case.yml"  # JSON is YAML
    file.write_text(
        json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": f"{minutes}m", "tests": [case]})
    )
    done = subprocess.run(
        ["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr


# --- the shipped Grafana dashboard: Grafana's own types know every key of it, and every panel has its place


if sys.version_info >= (3, 11):
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

BOARD = json.loads((Path(__file__).parent.parent / "systemd" / "grafana-dashboard.json").read_text("utf-8"))
COLUMNS = 24
SECTIONS = [
    "Devices",
    "Jobs",
    "Answers",
    "Savings",
    "Daemon",
]  # those of the live page, and what only a scrape sees

needs_types = pytest.mark.skipif(sys.version_info < (3, 11), reason="Grafana's types need Python 3.11")


def unknown_keys(dashboard: dict[str, Any]) -> list[str]:
    """Paths of what Grafana's types do not give back: keys that they lack, values that they change."""
    register_default_plugins()
    return list(_lost(dashboard, json.loads(JSONEncoder().encode(Dashboard.from_json(dashboard))), ""))


def _lost(sent: Any, back: Any, path: str) -> list[str]:
    if isinstance(sent, dict) and isinstance(back, dict):
        missing = [f"{path}.{key}" for key in sent if key not in back]
        return missing + [
            text for key in sent if key in back for text in _lost(sent[key], back[key], f"{path}.{key}")
        ]
    if isinstance(sent, list) and isinstance(back, list) and len(sent) == len(back):
        pairs = enumerate(zip(sent, back, strict=True))
        return [text for index, (one, other) in pairs for text in _lost(one, other, f"{path}[{index}]")]
    return [] if sent == back else [path]


@needs_types
def test_grafana_knows_every_key() -> None:
    """The dashboard comes back whole from the types that Grafana publishes for its dashboards and panels."""
    assert unknown_keys(BOARD) == []


@needs_types
@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda board: board.update(timezones=""), ".timezones"),
        (lambda board: board["panels"][1].update(tittle="GPUs"), ".panels[1].tittle"),
        (
            lambda board: board["panels"][1]["targets"][0].update(expression=""),
            ".panels[1].targets[0].expression",
        ),
        (lambda board: board["panels"][3]["fieldConfig"]["defaults"].update(units="watt"), ".panels[3]"),
    ],
)
def test_a_key_that_grafana_lacks_is_noticed(change: Any, path: str) -> None:
    """The check above names a key that is misspelt, of the board, a panel, a query or a field."""
    board = copy.deepcopy(BOARD)
    change(board)

    (found,) = unknown_keys(board)

    assert found.startswith(path)


def test_the_rows_are_the_sections_of_the_page() -> None:
    """Rows stand in the order of the sections, open, and no panel stands above the first."""
    rows = [panel for panel in BOARD["panels"] if panel["type"] == "row"]

    assert [row["title"] for row in rows] == SECTIONS
    assert not any(row["collapsed"] or row["panels"] for row in rows)
    assert BOARD["panels"][0] is rows[0]


def test_every_panel_has_a_place_in_its_section() -> None:
    """Panels lie within Grafana's columns and below the row before them; a row is as wide as the board."""
    top = 0
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= COLUMNS, panel["title"]
        assert place["h"] > 0
        assert place["y"] >= top, panel["title"]
        if panel["type"] == "row":
            assert (place["x"], place["w"], place["h"]) == (0, COLUMNS, 1)
            top = place["y"] + 1


def test_every_panel_asks_the_chosen_source() -> None:
    """A panel has a title of its own, and queries with letters of their own to the chosen source."""
    panels = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
    source = {"type": "prometheus", "uid": "${datasource}"}

    assert len({panel["title"] for panel in panels}) == len(panels)
    for panel in panels:
        queries = panel["targets"]
        assert queries, panel["title"]
        assert len({query["refId"] for query in queries}) == len(queries), panel["title"]
        assert all(asked["datasource"] == source for asked in [panel, *queries]), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]


# --- a real Prometheus


NEVER_YET = {  # metrics with labels, of what a new daemon has not done
    *("tuner_best_requests_total", "tuner_tuning_joules_total", "tuner_troubles"),
    *(
        "tuner_gpu_power_watts",
        "tuner_gpu_clock_hertz",
        "tuner_user_jobs_waiting",
        "tuner_user_device_seconds",
    ),
}


@pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="needs prometheus, of Debian's package of that name"
)
def test_prometheus_scrapes_the_daemon(machine: Machine, tmp_path: Path) -> None:
    """With a token it reads every metric and the shipped rules, and goes on when the token is rotated."""
    machine.settings.write_text(machine.settings.read_text().replace("[tcp]", "[tcp]\nport = 0"))
    machine.database.parent.mkdir()
    secret, state = tmp_path / "secret", ("--state", machine.database.parent)
    assert tuner("token", "add", "prometheus", secret, "--days", "3", *state).exit_code == 0
    machine.start()
    (port,) = re.findall(r"\d+", machine.client().status()["TCP"])
    job = {
        "job_name": "tuner",
        "authorization": {"credentials_file": str(secret)},
        "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
    }
    (tmp_path / "prometheus.yml").write_text(  # JSON is YAML
        json.dumps(
            {
                "global": {
                    "scrape_interval": "500ms",
                    "scrape_timeout": "500ms",
                    "evaluation_interval": "1s",
                },
                "rule_files": [str(ALERTS)],
                "scrape_configs": [job],
            }
        )
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        own = free.getsockname()[1]
    with (tmp_path / "prometheus.log").open("w") as log:
        prometheus = subprocess.Popen(
            [
                *("prometheus", f"--config.file={tmp_path}/prometheus.yml"),
                f"--web.listen-address=127.0.0.1:{own}",
                f"--storage.tsdb.path={tmp_path}/data",
            ],
            stdout=log,
            stderr=log,
        )
    try:

        def told(path: str) -> Any:
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", own, timeout=60)) as connection:
                return ask(connection, "GET", f"/api/v1/{path}").document["data"]

        def await_series(query: str) -> list[Any]:
            while True:
                machine.give_a_moment()
                assert prometheus.poll() is None, (tmp_path / "prometheus.log").read_text()
                with contextlib.suppress(OSError, ValueError):  # it begins
                    found: list[Any] = told(f"query?query={urllib.parse.quote(query)}")["result"]
                    if found:
                        return found

        await_series('up{job="tuner"} == 1')
        assert await_series("count(tuner_build_info)")[0]["value"][1] == "1"
        (alert,) = await_series('ALERTS{alertname="TunerTokenEndsSoon"}')
        assert (alert["metric"]["token"], alert["metric"]["alertstate"]) == ("prometheus", "pending")
        known = {re.sub("_(bucket|count|sum)$", "", name) for name in told("label/__name__/values")}
        with contextlib.closing(UnixConnection(machine.socket)) as connection:
            text = ask(connection, "GET", "/metrics").body.decode()
        assert set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE)) - known <= NEVER_YET

        made = await_series("tuner_token_expiry_timestamp_seconds")[0]["value"][1]
        assert tuner("token", "rotate", "prometheus", secret, "--keep-hours", "0", *state).exit_code == 0
        await_series(f"tuner_token_expiry_timestamp_seconds > {made}")
        await_series('up{job="tuner"} == 1')
    finally:
        prometheus.kill()
        prometheus.wait()
