"""The HTTP face: its answers, and who may ask."""

import contextlib
import http.client
import json
import logging
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from served_service import PATIENCE_S, Answer, ServedService, ask, connected, served

from tuner.daemon.http.access import caller_of, cross_site_fault, group_of
from tuner.daemon.http.server import open_loopback
from tuner.daemon.interface import Peer
from tuner.daemon.settings import TuningTable
from tuner.daemon.tokens import Tokens
from tuner.model.errors import DeviceUnavailableError, InputError, StoreError
from tuner.model.jobs import JobSpec, JobState, Origin
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


NOT_FOUND, WRONG = (404, "unknown-path"), (422, "input")
ASCII = "must be a kernel and its sizes in ASCII"


@pytest.mark.parametrize(
    ("asked", "document", "refusal", "says"),
    [
        ("GET /v1/best?workload=fft:N=64", None, (400, "input"), ""),
        ("GET /v1/best", None, WRONG, "workload: is needed"),
        ("GET /v1/best?workload=", None, WRONG, f"workload.0: {ASCII}"),
        ("GET /v1/best?workload=a%0Ab", None, WRONG, f"workload.0: {ASCII}"),
        ("GET /v1/best?workload=scan-lf&colour=red", None, WRONG, "colour: is not known here"),
        ("GET /v1/best?workload=a&objective=x", None, WRONG, "must be one of time, energy, edp, ed2p"),
        ("GET /v1/best?workload=a&device=x", None, WRONG, "device: must be cuda:N or sim:NAME"),
        ("GET /v1/best?workload=scan-lf&device=replay:/etc/passwd", None, WRONG, "device: must be"),
        ("GET /v1/best?workload=scan-lf&max_slowdown=nan", None, WRONG, ""),
        ("GET /v1/best?" + "&".join(["workload=scan-lf"] * 17), None, WRONG, ""),
        ("GET /v1/jobs/99999", None, (404, "unknown-job"), ""),
        ("GET /v1/jobs/99999/events", None, (404, "unknown-job"), ""),
        ("GET /v1/jobs/0", None, WRONG, ""),
        ("GET /v1/jobs/x", None, WRONG, "number: must be a whole number"),
        (f"GET /v1/jobs/{2**63}", None, WRONG, f"number: must be at most {2**63 - 1}"),
        ("GET /v1/jobs?limit=501", None, WRONG, ""),
        ("GET /v1/jobs/", None, NOT_FOUND, ""),
        ("GET /docs", None, NOT_FOUND, ""),
        ("GET /v1/jobs/../../etc/passwd", None, NOT_FOUND, ""),
        ("DELETE /v1/jobs", None, (405, "wrong-method"), ""),
        ("POST /v1/jobs", b"{", WRONG, "body: is no JSON"),
        ("POST /v1/jobs", b"\xff", (400, "input"), "the body is no JSON that can be read"),
        ("POST /v1/jobs", [1], WRONG, "body: must be an object"),
        ("POST /v1/jobs", {"workloads": []}, WRONG, "workloads: must hold at least 1"),
        ("POST /v1/jobs", {"workloads": ["fft:N=2"]}, (400, "input"), ""),
        ("POST /v1/jobs", {"workloads": ["ünï"]}, WRONG, f"workloads.0: {ASCII}"),
        ("POST /v1/jobs", {**JOB, "priority": float("inf")}, WRONG, ""),
        (
            "POST /v1/jobs",
            {**JOB, "clocks": "Off"},
            WRONG,
            "clocks: must be off, auto, all, a list in MHz",
        ),
        ("POST /v1/jobs", {**JOB, "options": {"budget": "a secret"}}, WRONG, "options.budget"),
        (
            "POST /v1/jobs",
            {**JOB, "options": {"window_s": 1e9}},
            WRONG,
            "options.window_s: must be at most 600",
        ),
        ("POST /v1/jobs", {**JOB, "options": {"kernel_files": ["/etc/passwd"]}}, WRONG, ""),
        ("POST /v1/jobs", {**JOB, "source": "__global__ void f() {}"}, WRONG, ""),
        ("POST /v1/jobs", {**JOB, "\ud800": 1}, WRONG, ""),
        ("POST /v1/jobs", b"[" * 60_000, (400, "input"), ""),
        ("POST /v1/jobs", b"9" * 60_000, (400, "input"), ""),
    ],
)
def test_wrong_requests_are_refused(
    api: ServedService, asked: str, document: object, refusal: tuple[int, str], says: str
) -> None:
    """Each wrong request has its status, its kind, and the one shape of errors.

    What is wrong is said in words of this program: not how it was found, and not again what was sent.
    """
    method, target = asked.split(" ", 1)
    answer = api.ask(method, target, document, {"Content-Type": "application/json"})
    message = answer.document["error"]["message"]

    assert (answer.status, answer.kind) == refusal
    assert says in message
    assert not any(word in message for word in ("Input", "String", "pattern", "parsing", "a secret"))


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


# --- requests as browsers send them for pages of other sites, over the Unix socket and the loopback


EVIL = "http://evil.example"
PAGES = {
    "another origin": {"Origin": EVIL},
    "a sandboxed page": {"Origin": "null"},
    "another program's page on this machine": {"Origin": "http://localhost:3000"},
    "an image or a link": {"Sec-Fetch-Site": "cross-site"},
    "another port": {"Sec-Fetch-Site": "same-site"},
    "what no browser sends yet": {"Sec-Fetch-Site": "elsewhere"},
    "a rebound name": {"Host": "evil.example", "Sec-Fetch-Site": "same-origin"},
    "a rebound name with a port": {"Host": "evil.example:8750"},
    "a name that begins right": {"Host": "localhost.evil.example"},
    "a name that resolves to the loopback": {"Host": "127.0.0.1.nip.io"},
    "no name": {"Host": ""},
}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
TARGETS = (
    "/v1/best?workload=scan-lf",
    "/v1/status",
    "/v1/jobs",
    "/v1/jobs/1/cancel",
    "/v1/jobs/1/events",
    "/metrics",
)


@pytest.fixture(scope="module")
def paged() -> Iterator[ServedService]:
    with served() as running:
        running.wait(running.service.submit(JobSpec(("scan-lf:N=64",)), Peer()))
        yield running


def status_of(paged: ServedService, method: str, target: str, headers: dict[str, str]) -> int:
    """The status of a request that is written by hand, as no library sends some of these."""
    head = "".join(f"{name}: {text}\r\n" for name, text in {"Host": "localhost", **headers}.items())
    with contextlib.closing(connected(paged.path)) as connection:
        connection.sendall(f"{method} {target} HTTP/1.1\r\n{head}Content-Length: 0\r\n\r\n".encode())
        return int(connection.recv(65_536).split(b" ", 2)[1])


@pytest.mark.parametrize("page", PAGES)
def test_the_socket_refuses_what_a_page_of_another_site_sends(paged: ServedService, page: str) -> None:
    """Over the Unix socket no method of any path is open to a page, and nothing has changed."""
    statuses = {status_of(paged, method, target, PAGES[page]) for method in METHODS for target in TARGETS}

    assert statuses == {403}
    assert paged.service.rows[1].state is JobState.QUEUED


def test_a_refusal_says_why_and_opens_nothing(paged: ServedService) -> None:
    """The answer has the one shape of errors, and no header that would let a page read it."""
    answer = paged.ask("POST", "/v1/jobs/1/cancel", headers={"Origin": EVIL})

    assert (answer.status, answer.kind) == (403, "unauthorised")
    assert "Origin" in answer.document["error"]["message"]
    assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize(
    "headers",
    [{}, {"Host": "127.0.0.1:8750"}, {"Host": "[::1]"}, {"Sec-Fetch-Site": "none"}, {"Host": "LOCALHOST"}],
)
def test_the_socket_answers_programs_and_who_types_its_address(
    paged: ServedService, headers: dict[str, str]
) -> None:
    """Local names with any port, and a request that no page made, pass."""
    assert status_of(paged, "GET", "/v1/status", headers) == 200


def test_the_loopback_refuses_pages_that_have_the_token() -> None:
    """Over TCP a page is refused whatever else it shows."""
    with served(tcp=True) as paged:
        assert paged.tcp is not None
        headers = {"Authorization": f"Bearer {paged.token}", "Origin": EVIL}
        assert paged.ask("GET", "/v1/status", headers=headers).status == 403


def test_headers_of_a_program_have_no_fault() -> None:
    """What tuner.Client and curl send is no page's."""
    assert cross_site_fault({b"host": b"localhost", b"accept": b"application/json"}) == ""


NOBODY = 65_534
STRANGER = 54_321  # an id that no user and no group has here
# The interpreter itself may lie where only root can read: it is loaded before the user changes.
ASKS = """
import os, socket, sys
path, group, *extra = sys.argv[1:]
os.setgroups(list(map(int, extra)))
os.setgid(int(group))
os.setuid(65534)
connection = socket.socket(socket.AF_UNIX)
connection.connect(path)
connection.sendall(b"GET /v1/status HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
print(connection.recv(12).decode())
"""


def asked_by_nobody(api: ServedService, group: int, *extra: int) -> "subprocess.CompletedProcess[str]":
    """What the user nobody hears, as a member of these groups."""
    command = [sys.executable, "-I", "-S", "-c", ASKS, str(api.path), *map(str, (group, *extra))]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


class Wire:
    """A connection whose other end is whom a test says."""

    def __init__(self, uid: int, gid: int, groups: list[int] | None, family: int = socket.AF_UNIX) -> None:
        self.family = family
        self._credentials = struct.pack("3i", 1, uid, gid)
        self._groups = groups

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes:
        assert level == socket.SOL_SOCKET
        if option == socket.SO_PEERCRED:
            return self._credentials[:size]
        if self._groups is None:
            raise OSError(92, "Protocol not available")
        return struct.pack(f"{len(self._groups)}I", *self._groups)


def wire(uid: int, gid: int, groups: list[int] | None) -> socket.socket:
    """A connection whose other end is whom a test says."""
    return cast("socket.socket", Wire(uid, gid, groups))


@given(
    st.sampled_from([0, os.geteuid(), STRANGER, NOBODY]),
    st.integers(0, 5),
    st.lists(st.integers(0, 5)),
    st.none() | st.integers(0, 5),
)
def test_the_socket_s_group_decides(uid: int, gid: int, groups: list[int], owner: int | None) -> None:
    """Root, the own user and members of the group that owns the socket are admitted, and nobody else."""
    caller = caller_of(wire(uid, gid, groups), owner)

    assert caller.peer.uid == uid
    assert caller.admitted == (uid in (0, os.geteuid()) or owner in (gid, *groups))


def test_the_group_of_nobody_is_no_group() -> None:
    """The id that the kernel shows instead of ids it cannot show admits nobody: it can be anybody's."""
    assert not caller_of(wire(STRANGER, NOBODY, [NOBODY]), NOBODY).admitted


def test_groups_are_looked_up_where_the_kernel_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a kernel without SO_PEERGROUPS the groups of the user count, and a user without a name has none."""
    monkeypatch.setattr(os, "getgrouplist", lambda _name, gid: [gid, 777])
    root = caller_of(wire(1, 1, None), 777)  # user 1 has a name on any Linux
    assert root.admitted
    assert not caller_of(wire(STRANGER, 1, None), 777).admitted


def test_the_group_of_a_socket_is_that_of_its_file(tmp_path: Path) -> None:
    """A Unix socket with a file has its group; others have none."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        assert group_of(listener) == (tmp_path / "s").stat().st_gid
        (tmp_path / "s").unlink()
        assert group_of(listener) is None
    with socket.socket() as other:
        assert group_of(other) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as somebody else")
@pytest.mark.parametrize(
    ("group", "extra", "heard"),
    [(NOBODY, [], "HTTP/1.1 403"), (STRANGER, [], "HTTP/1.1 200"), (NOBODY, [STRANGER], "HTTP/1.1 200")],
)
def test_another_user_is_refused_unless_of_the_group(group: int, extra: list[int], heard: str) -> None:
    """Even where the socket's mode lets everybody in, only members of its group are answered."""
    with served(mode=0o666, gid=STRANGER) as api:
        done = asked_by_nobody(api, group, *extra)

    assert (done.stdout.strip(), done.stderr) == (heard, "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as somebody else")
def test_another_user_cannot_even_connect() -> None:
    """The mode of the socket keeps others out before a byte is read."""
    with served(gid=STRANGER) as api:
        done = asked_by_nobody(api, NOBODY)

    assert "PermissionError" in done.stderr


@pytest.fixture(scope="module")
def tcp() -> Iterator[ServedService]:
    with served(tcp=True) as running:
        yield running


def over_tcp(api: ServedService, host: str, **headers: str) -> Answer:
    assert api.tcp is not None
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", api.tcp.port, PATIENCE_S)) as connection:
        return ask(connection, "GET", "/v1/best?workload=scan-lf", headers={"Host": host, **headers})


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "[::1]:1"])
def test_the_token_opens_the_loopback(tcp: ServedService, host: str) -> None:
    """With the token any local name of the host will do; its holder is a user of its own."""
    assert tcp.tcp is not None
    answer = over_tcp(tcp, host, Authorization=f"Bearer {tcp.token}")

    assert answer.status == 200
    assert tcp.service.asked[-1][1].user == "token:tests"


@pytest.mark.parametrize("open_health", [False, True])
def test_probes_of_health_need_no_token_where_that_is_chosen(open_health: bool) -> None:
    """On the socket they never do; a web page is refused, and every other path asks for the token."""
    with served(tcp=True, open_health=open_health) as api:
        assert api.tcp is not None
        for path in ("/healthz", "/readyz"):
            assert (api.ask("GET", path).status, api.ask("GET", path).body) == (200, b"ok\n")
            for host, status in (("localhost", 200 if open_health else 401), ("a.example", 403)):
                connection = http.client.HTTPConnection("127.0.0.1", api.tcp.port, timeout=PATIENCE_S)
                with contextlib.closing(connection):
                    assert ask(connection, "GET", path, headers={"Host": host}).status == status
        assert over_tcp(api, "localhost").status == 401


def test_what_is_not_ready_says_why() -> None:
    """The process lives all the same."""
    with served() as api:
        api.service.waits = ["the database: no room", "no device is known"]
        answer = api.ask("GET", "/readyz")
        assert (answer.status, answer.kind) == (503, "not-ready")
        assert "the database: no room; no device is known" in answer.document["error"]["message"]
        assert api.ask("GET", "/healthz").status == 200


@pytest.mark.parametrize("given", [{}, {"Authorization": "Bearer "}, {"Authorization": "Bearer wrong"}])
def test_without_the_token_there_is_no_answer(tcp: ServedService, given: dict[str, str]) -> None:
    """A missing or wrong token is 401, and says how to send one."""
    answer = over_tcp(tcp, "localhost", **given)

    assert (answer.status, answer.kind) == (401, "unauthorised")
    assert answer.headers["www-authenticate"] == "Bearer"


def test_the_token_counts_only_as_a_bearer_s(tcp: ServedService) -> None:
    """The token under another scheme is no token, and one that begins right is not right."""
    assert tcp.tcp is not None
    token = tcp.token
    for value in (f"Basic {token}", token, f"Bearer {token[:-1]}", f"Bearer {token}x"):
        assert over_tcp(tcp, "localhost", Authorization=value).status == 401


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "", "localhost:"]
)
def test_another_host_is_refused_even_with_the_token(tcp: ServedService, host: str) -> None:
    """A page that had its name point here is stopped by the name that its browser sends."""
    assert tcp.tcp is not None
    answer = over_tcp(tcp, host, Authorization=f"Bearer {tcp.token}")

    assert (answer.status, answer.kind) == (403, "unauthorised")
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_the_token_says_nothing_on_the_unix_socket(tcp: ServedService) -> None:
    """On the Unix socket the kernel's word counts: a wrong token is not looked at."""
    assert tcp.ask("GET", "/v1/status", headers={"Authorization": "Bearer wrong"}).status == 200


def test_a_port_that_is_taken_is_refused() -> None:
    """An error names the key and the port."""
    first = open_loopback(0, Tokens())
    try:
        with pytest.raises(InputError, match=rf"tcp.port: .*{first.port}"):
            open_loopback(first.port, Tokens())
    finally:
        for listener in first.sockets:
            listener.close()
