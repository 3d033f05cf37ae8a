import contextlib
import json
import logging
from collections.abc import Iterator

import pytest
from served_service import ServedService, ask, connected, served

from tuner.daemon.settings import TuningTable
from tuner.model.errors import DeviceUnavailableError, StoreError
from tuner.model.jobs import JobState, Origin
from tuner.model.options import JOB_OPTIONS

JOB = {"workloads": ["scan-lf:N=1024"]}


@pytest.fixture(scope="module")
def api() -> Iterator[ServedService]:
    with served() as running:
        yield running


@pytest.fixture
def broken(api: ServedService) -> Iterator[ServedService]:
    yield api
    api.service.broken = None


def test_best_is_told_with_where_it_comes_from(api: ServedService) -> None:
    """A question reaches the service as it was asked, with who asked, and its reply comes back whole."""
    answer = api.ask(
        "GET",
        "/v1/best?workload=scan-lf:N=64&workload=scan-ks:N=128,batch=2&objective=edp&device=sim:jetson-tx1"
        "&max_slowdown=0.05&clocks_as_found=true&count=3",
    )

    question, peer = api.service.asked[-1]
    assert question.workloads == ("scan-lf:N=64", "scan-ks:N=128,batch=2")
    assert (question.objective, question.device) == ("edp", "sim:jetson-tx1")
    assert (question.max_slowdown, question.clocks_as_found, question.count) == (0.05, True, 3.0)
    assert peer.uid is not None
    assert peer.pid is not None
    assert answer.status == 200
    assert answer.document["origin"] == "stored"
    assert set(answer.document["workloads"]) == set(question.workloads)
    assert answer.document["stale"] == []


def test_a_response_is_sent_whole(api: ServedService) -> None:
    """Head and body arrive with one piece, so that a client wakes once."""
    with contextlib.closing(connected(api.path)) as connection:
        connection.sendall(b"GET /v1/best?workload=scan-lf:N=64 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head, _, body = connection.recv(65_536).partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 200")
    assert f"content-length: {len(body)}".encode() in head
    assert json.loads(body)["origin"] == "stored"


def test_the_head_of_a_quiet_stream_does_not_wait(api: ServedService) -> None:
    """A stream without an event begins at once."""
    number = api.ask("POST", "/v1/jobs", JOB).document["id"]
    with contextlib.closing(connected(api.path)) as connection:
        target = f"/v1/jobs/{number}/events?after={2**62}"
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")


def test_a_job_is_submitted_listed_and_changed(api: ServedService) -> None:
    """A job goes its way: queued with its order, paused, queued again, ended, and the list knows."""
    options = {"budget": 20, "max_slowdown": 0.1, "seed": 2**63 - 1}
    order = {**JOB, "objective": "time", "policy": "random", "device": "cuda:0", "options": options}
    made = api.ask("POST", "/v1/jobs", {**order, "priority": 2.5})
    number = made.document["id"]

    assert made.status == 201
    assert {**order, "clocks": "off"}.items() <= made.document.items()
    assert made.document["origin"] == "client"
    assert made.document["priority"] == 2.5
    assert api.service.rows[number].spec.options == options
    for verb, state in (("pause", "paused"), ("resume", "queued"), ("cancel", "cancelled")):
        changed = api.ask("POST", f"/v1/jobs/{number}/{verb}")
        assert (changed.status, changed.document["state"]) == (200, state)
    assert api.ask("GET", f"/v1/jobs/{number}").document["state"] == "cancelled"
    listed = api.ask("GET", f"/v1/jobs?state=cancelled&state=failed&limit=1&before={number + 1}").document
    assert [job["id"] for job in listed["jobs"]] == [number]


def test_what_a_submission_leaves_out_is_as_the_daemon_has_it(api: ServedService) -> None:
    """Objective, policy and clocks that a client does not name are those of daemon.toml."""
    made = api.ask("POST", "/v1/jobs", JOB).document

    tuning = TuningTable()
    assert (made["objective"], made["policy"], made["clocks"]) == (
        tuning.objective,
        tuning.policy,
        tuning.clocks,
    )


def test_the_options_of_a_job_are_those_of_an_order(api: ServedService) -> None:
    """The interface offers each option that an order may have, and no other."""
    schemas = api.ask("GET", "/openapi.json").document["components"]["schemas"]

    assert set(schemas["Options"]["properties"]) == set(JOB_OPTIONS)
    assert set(schemas["JobAnswer"]["properties"]["state"]["enum"]) == {state.value for state in JobState}
    assert set(schemas["JobAnswer"]["properties"]["origin"]["enum"]) == {origin.value for origin in Origin}


def test_uses_are_counted(api: ServedService) -> None:
    """Reported uses reach the service; the answer says nothing."""
    answer = api.ask("POST", "/v1/uses", {"uses": [{"workloads": ["scan-lf:N=8"], "count": 40}]})

    question, _ = api.service.asked[-1]
    assert (answer.status, answer.body) == (204, b"")
    assert (question.workloads, question.count) == (("scan-lf:N=8",), 40.0)


def test_status_and_metrics_are_passed_on(api: ServedService) -> None:
    """The daemon's state is JSON, in which infinity is null; figures are Prometheus' text."""
    status, metrics = api.ask("GET", "/v1/status"), api.ask("GET", "/metrics")

    assert status.document["state"] == "idle"
    assert status.document["longest_s"] is None
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert b"tuner_jobs 0" in metrics.body


@pytest.mark.parametrize(
    ("method", "target", "document", "refusal"),
    [
        ("GET", "/v1/best?workload=fft:N=64", None, (400, "input")),
        ("GET", "/v1/best", None, (422, "input")),
        ("GET", "/v1/best?workload=scan-lf&colour=red", None, (422, "input")),
        ("GET", "/v1/best?workload=scan-lf&device=replay:/etc/passwd", None, (422, "input")),
        ("GET", "/v1/best?workload=scan-lf&max_slowdown=nan", None, (422, "input")),
        ("GET", "/v1/best?" + "&".join(["workload=scan-lf"] * 17), None, (422, "input")),
        ("GET", "/v1/jobs/99999", None, (404, "unknown-job")),
        ("GET", "/v1/jobs/99999/events", None, (404, "unknown-job")),
        ("GET", "/v1/jobs/0", None, (422, "input")),
        ("GET", "/v1/jobs/9223372036854775808", None, (422, "input")),
        ("GET", "/v1/jobs?limit=501", None, (422, "input")),
        ("GET", "/v1/jobs/", None, (404, "unknown-path")),
        ("GET", "/docs", None, (404, "unknown-path")),
        ("GET", "/v1/jobs/../../etc/passwd", None, (404, "unknown-path")),
        ("DELETE", "/v1/jobs", None, (405, "wrong-method")),
        ("POST", "/v1/jobs", b"{", (422, "input")),
        ("POST", "/v1/jobs", [1], (422, "input")),
        ("POST", "/v1/jobs", {"workloads": []}, (422, "input")),
        ("POST", "/v1/jobs", {"workloads": ["fft:N=2"]}, (400, "input")),
        ("POST", "/v1/jobs", {**JOB, "priority": float("inf")}, (422, "input")),
        ("POST", "/v1/jobs", {**JOB, "options": {"budget": "20"}}, (422, "input")),
        ("POST", "/v1/jobs", {**JOB, "options": {"kernel_files": ["/etc/passwd"]}}, (422, "input")),
        ("POST", "/v1/jobs", {**JOB, "source": "__global__ void f() {}"}, (422, "input")),
        ("POST", "/v1/jobs", {**JOB, "\ud800": 1}, (422, "input")),
        ("POST", "/v1/jobs", b"[" * 60_000, (400, "input")),
        ("POST", "/v1/jobs", b"9" * 60_000, (400, "input")),
    ],
)
def test_wrong_requests_are_refused(
    api: ServedService, method: str, target: str, document: object, refusal: tuple[int, str]
) -> None:
    """Each wrong request has its status, its kind, and the one shape of errors."""
    answer = api.ask(method, target, document, {"Content-Type": "application/json"})

    assert (answer.status, answer.kind) == refusal


def test_an_error_names_the_field(api: ServedService) -> None:
    """A client learns where its request is wrong, and not again what it sent."""
    answer = api.ask("POST", "/v1/jobs", {**JOB, "options": {"budget": "a secret"}})

    message = answer.document["error"]["message"]
    assert "options.budget" in message
    assert "a secret" not in message


@pytest.mark.parametrize(
    ("method", "target", "document", "says"),
    [
        ("GET", "/v1/best?workload=", None, "workload.0: must be a kernel and its sizes in ASCII"),
        ("GET", "/v1/best?workload=a%0Ab", None, "workload.0: must be a kernel and its sizes in ASCII"),
        ("GET", "/v1/best", None, "workload: is needed"),
        ("GET", "/v1/best?workload=a&device=x", None, "device: must be cuda:N or sim:NAME"),
        ("GET", "/v1/best?workload=a&objective=x", None, "must be one of time, energy, edp, ed2p"),
        ("GET", "/v1/best?workload=a&colour=red", None, "colour: is not known here"),
        ("GET", "/v1/jobs/9223372036854775808", None, "number: must be at most 9223372036854775807"),
        ("GET", "/v1/jobs/x", None, "number: must be a whole number"),
        ("POST", "/v1/jobs", b"{", "body: is no JSON"),
        ("POST", "/v1/jobs", b"\xff", "the body is no JSON that can be read"),
        ("POST", "/v1/jobs", [1], "body: must be an object"),
        ("POST", "/v1/jobs", {"workloads": []}, "workloads: must hold at least 1"),
        ("POST", "/v1/jobs", {"workloads": ["ünï"]}, "workloads.0: must be a kernel and its sizes in ASCII"),
        ("POST", "/v1/jobs", {**JOB, "clocks": "Off"}, "clocks: must be off, auto, all, a list in MHz"),
        ("POST", "/v1/jobs", {**JOB, "options": {"window_s": 1e9}}, "options.window_s: must be at most 600"),
    ],
)
def test_a_refusal_says_what_would_be_right(
    api: ServedService, method: str, target: str, document: object, says: str
) -> None:
    """What is wrong in a request is said in words of this program, and nothing of how it was found."""
    answer = api.ask(method, target, document, {"Content-Type": "application/json"})
    message = answer.document["error"]["message"]

    assert says in message
    assert not any(word in message for word in ("Input", "String", "pattern", "parsing"))


def test_a_body_of_another_type_is_told_how_to_send_it(api: ServedService) -> None:
    """JSON that curl sends as a form is an object to whoever wrote it."""
    answer = api.ask("POST", "/v1/jobs", JOB, {"Content-Type": "text/plain"})
    assert answer.status == 422
    assert "sent with Content-Type: application/json" in answer.document["error"]["message"]


def test_a_wrong_method_learns_the_right_ones(api: ServedService) -> None:
    """405 names all methods of the path, not those of one route."""
    assert api.ask("PUT", "/v1/jobs").headers["allow"] == "GET, POST"


def test_an_ended_job_cannot_be_changed(api: ServedService) -> None:
    """What cannot be done now is a conflict; doing again what is done changes nothing."""
    number = api.ask("POST", "/v1/jobs", JOB).document["id"]
    first = api.ask("POST", f"/v1/jobs/{number}/cancel")
    again = api.ask("POST", f"/v1/jobs/{number}/cancel")
    paused = api.ask("POST", f"/v1/jobs/{number}/pause")

    assert first.document == again.document
    assert (paused.status, paused.kind) == (409, "not-now")


@pytest.mark.parametrize("target", ["/v1/best?workload=scan-lf", "/v1/status", "/v1/jobs/1", "/metrics"])
def test_only_a_database_that_fails_is_unavailable(broken: ServedService, target: str) -> None:
    """A StoreError is 503 with the time to come back; other trouble of the daemon is a conflict."""
    broken.service.broken = StoreError("database or disk is full")
    full = broken.ask("GET", target)
    broken.service.broken = DeviceUnavailableError("cuda:0 is lost")
    lost = broken.ask("GET", target)

    assert (full.status, full.kind, full.headers["retry-after"]) == (503, "store", "1")
    assert (lost.status, lost.kind) == (409, "not-now")


@pytest.mark.parametrize("target", ["/v1/best?workload=scan-lf", "/v1/status"])
def test_a_fault_of_the_daemon_says_so_and_the_server_lives(
    broken: ServedService, target: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception nobody thought of is 500 in our shape, without its text, which the log has."""
    broken.service.broken = KeyError("/secret/path")
    with caplog.at_level(logging.ERROR):
        answer = broken.ask("GET", target)
        broken.service.broken = None
        after = broken.ask("GET", target)

    assert (answer.status, answer.kind) == (500, "internal")
    assert "secret" not in answer.document["error"]["message"]
    assert "/secret/path" in caplog.text
    assert after.status == 200


def test_changing_calls_are_logged_with_who_made_them(
    api: ServedService, caplog: pytest.LogCaptureFixture
) -> None:
    """The log tells which user and process submitted and cancelled; questions are told at debug only."""
    with caplog.at_level(logging.INFO, logger="tuner.daemon.http"):
        number = api.ask("POST", "/v1/jobs", JOB).document["id"]
        api.ask("POST", f"/v1/jobs/{number}/cancel")
        api.ask("GET", f"/v1/jobs/{number}")

    texts = [record.getMessage() for record in caplog.records if record.name.startswith("tuner")]
    assert len(texts) == 2
    assert all(f"job {number} " in text and "user " in text and "process " in text for text in texts)


def test_a_connection_serves_many_requests(api: ServedService) -> None:
    """Requests follow each other on one connection, errors among them."""
    connection = api.connection()
    requests: list[tuple[str, str, object]] = [
        ("GET", "/v1/status", None),
        ("GET", "/nowhere", None),
        ("POST", "/v1/jobs", {"workloads": []}),
        ("POST", "/v1/jobs", b"x" * 70_000),
        ("GET", "/v1/status", None),
    ]
    statuses = [ask(connection, *request).status for request in requests]
    connection.close()

    assert statuses == [200, 404, 422, 413, 200]


def test_answers_do_not_say_what_serves_them(api: ServedService) -> None:
    """No header names the server's software."""
    assert {"server", "date", "x-powered-by"}.isdisjoint(api.ask("GET", "/v1/status").headers)
