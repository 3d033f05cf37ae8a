"""The page's server: who may ask it, what it hands on, and what it does without a daemon."""

import contextlib
import hashlib
import http.client
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_process import tuner
from served_page import Page, served_page
from served_service import PATIENCE_S, ServedService, served

from tuner.cli.page import app
from tuner.cli.page.app import HOST, assets, listen, open_browser
from tuner.cli.page.upstream import Session, is_another_user
from tuner.daemon.interface import Peer
from tuner.model.jobs import JobSpec, JobState

JOB = {"workloads": ["scan-lf:N=64"]}
TARGETS = ("/", "/assets/page.js", "/v1/status", "/v1/events", "/v1/jobs", "/nowhere")
EVIL = "http://evil.example"
UPLOT = {  # uPlot 1.6.32 as npm has it
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
FOLDER = Path(app.__file__).parent / "assets"


@pytest.fixture(scope="module")
def daemon() -> Iterator[ServedService]:
    with served() as running:
        running.wait(running.service.submit(JobSpec(("scan-lf:N=64",)), Peer()))
        yield running


@pytest.fixture(scope="module")
def page(daemon: ServedService) -> Iterator[Page]:
    with served_page(daemon.path) as running:
        running.enter()
        yield running


# --- who may ask -------------------------------------------------------------------------------------


def test_the_link_is_good_for_one_browser(daemon: ServedService) -> None:
    """The first gets a cookie that no script and no other site can use; the next is refused."""
    with served_page(daemon.path) as page:
        wrong = page.ask("GET", "/open/wrong")
        first = page.enter()
        again = page.ask("GET", f"/open/{page.session.link}")

    assert (wrong.status, again.status) == (403, 403)
    assert (first.status, first.headers["location"]) == (303, "/")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(first.headers["set-cookie"].split("; "))
    assert "set-cookie" not in again.headers


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Cookie": "tuner-1=x"}, 401),
        ({"cookie": "="}, 401),
        ({"known": "", "Host": "evil.example"}, 403),
        ({"known": "", "Host": "127.0.0.1.nip.io"}, 403),
        ({"known": "", "Origin": EVIL}, 403),
        ({"known": "", "Origin": "null"}, 403),
        ({"known": "", "Origin": "http://127.0.0.1:1"}, 403),
        ({"known": "", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"known": "", "Sec-Fetch-Site": "same-site"}, 403),
    ],
)
def test_nothing_is_read_by_others(page: Page, headers: dict[str, str], status: int) -> None:
    """Without the cookie, under another name or for another site nothing is answered, the files neither."""
    known = page.cookie if "known" in headers else {}
    sent = {name: text for name, text in headers.items() if name != "known"}

    assert {page.ask("GET", target, headers={**known, **sent}).status for target in TARGETS} == {status}


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"Cookie": ""}, 401),
        ({"Origin": EVIL}, 403),
        ({"Origin": ""}, 403),
        ({"X-Tuner-CSRF": ""}, 403),
        ({"X-Tuner-CSRF": "wrong"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "evil.example"}, 403),
    ],
)
def test_a_change_needs_all_proofs(
    daemon: ServedService, page: Page, changes: dict[str, str], status: int
) -> None:
    """Where the cookie, the origin, the word or the type is missing or wrong, nothing is changed."""
    count = len(daemon.service.rows)
    for target in ("/v1/jobs", "/v1/jobs/1/cancel"):
        assert page.ask("POST", target, JOB, {**page.writing, **changes}).status == status
    assert (len(daemon.service.rows), daemon.service.rows[1].state) == (count, JobState.QUEUED)


def test_every_answer_forbids_what_the_page_does_not_need(page: Page) -> None:
    """All answers, refusals too, have the policy that lets nothing in but the page's own files."""
    for target, headers in (("/", page.cookie), ("/", {}), ("/assets/page.js", page.cookie), ("/x", {})):
        answer = page.ask("GET", target, headers=headers)
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"


ESTABLISHED, FIN_WAIT, TIME_WAIT = 1, 5, 6


@pytest.mark.parametrize(
    ("user", "state", "another"),
    [
        (0, ESTABLISHED, False),
        (os.geteuid(), ESTABLISHED, False),
        (os.geteuid() or 4711, FIN_WAIT, os.geteuid() == 0),
        (4711, ESTABLISHED, True),
        (0, FIN_WAIT, True),
        (0, TIME_WAIT, True),
        (None, None, True),
    ],
)
def test_a_socket_of_another_user_is_known(
    tmp_path: Path, user: int | None, state: int | None, another: bool
) -> None:
    """The kernel's table tells whose the other end is, and not of one that is closed, which is nobody's."""
    table = tmp_path / "tcp"
    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
    end = f"00000000:00000000 00:00000000 00000000 {user or 0:5d}        0 1\n"
    row = f"   0: 0100007F:9C40 0100007F:222E {state or 0:02X} {end}"
    table.write_text(head + (row if user is not None else ""))

    assert is_another_user(("127.0.0.1", 40_000), ("127.0.0.1", 8750), [table]) is another
    assert not is_another_user(("127.0.0.1", 40_000), ("127.0.0.1", 8750), [tmp_path / "none"])


def test_a_client_whose_socket_takes_both_families_is_this_user(daemon: ServedService) -> None:
    """Sockets for IPv4 and IPv6 in one, as of Java, stand in a table of their own."""
    with served_page(daemon.path) as page, socket.socket(socket.AF_INET6) as both:
        both.settimeout(PATIENCE_S)
        both.connect((f"::ffff:{HOST}", page.port))
        both.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert both.recv(12) == b"HTTP/1.1 401"


def test_a_client_that_has_left_burns_no_link(daemon: ServedService) -> None:
    """Who sends the link and resets its connection before it is accepted opens nothing."""
    listener = listen(None)
    session = Session(listener.getsockname()[1])
    gone = socket.create_connection(listener.getsockname())
    gone.sendall(f"GET /open/{session.link} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    gone.close()  # it waits to be accepted, and is nobody's
    with served_page(daemon.path, listening=(listener, session)) as page:
        assert page.enter().status == 303


def test_requests_that_never_end_keep_nobody_out(daemon: ServedService) -> None:
    """Connections with the half of a head are closed after a while, and whoever comes then gets in."""
    with served_page(daemon.path, request_timeout_s=0.1) as page, contextlib.ExitStack() as stack:
        for _ in range(64):
            half = stack.enter_context(socket.create_connection((HOST, page.port), PATIENCE_S))
            half.sendall(b"GET / HTTP/1.1\r\nHost:")
            stack.callback(half.recv, 1)  # until it is closed
        stack.close()

        assert page.enter().status == 303


# --- what is handed on -------------------------------------------------------------------------------


def test_the_page_is_filled_and_complete(page: Page) -> None:
    """The page has the word for changes, and names only files that are there."""
    text = page.ask("GET", "/", headers=page.cookie).body.decode()
    named = re.findall(r'(?:src|href)="/assets/([^"]+)"', text)

    assert f'content="{page.session.csrf}"' in text
    assert set(named) <= set(assets())
    assert "http" not in re.sub(r"<!--.*?-->", "", text)


def test_jobs_pass_both_ways(daemon: ServedService, page: Page) -> None:
    """A submission reaches the daemon, its refusals come back as they are, and so does what is asked for."""
    made = page.ask("POST", "/v1/jobs", JOB, page.writing)
    wrong = page.ask("POST", "/v1/jobs", {"workloads": ["fft:N=2"]}, page.writing)
    cancelled = page.ask("POST", f"/v1/jobs/{made.document['id']}/cancel", {}, page.writing)

    assert (made.status, cancelled.document["state"]) == (201, "cancelled")
    assert (wrong.status, wrong.document["error"]["message"][:14]) == (400, "unknown kernel")
    assert page.ask("GET", "/v1/answers?stale=false", headers=page.cookie).document["answers"][0]["run"] == 1
    assert page.ask("GET", "/v1/runs/1/trials?limit=1", headers=page.cookie).document["count"] == 1
    assert page.ask("GET", "/v1/runs/2", headers=page.cookie).document["error"]["kind"] == "unknown-run"
    assert daemon.service.rows[made.document["id"]].submitter is not None


def test_a_daemon_behind_a_port_is_shown_with_its_token(tmp_path: Path) -> None:
    """Over TCP the server sends the daemon's token, which the browser never sees."""
    with served(tcp=True) as daemon:
        assert daemon.tcp is not None
        (tmp_path / "token").write_text(daemon.token)
        with served_page(f"http://127.0.0.1:{daemon.tcp.port}", tmp_path / "token") as page:
            page.enter()
            shown = page.ask("GET", "/", headers=page.cookie).body.decode()
            made = page.ask("POST", "/v1/jobs", JOB, page.writing)

    assert made.status == 201
    assert daemon.token not in shown


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/metrics", 404),
        ("GET", "/v1/best?workload=scan-lf", 404),
        ("GET", "/openapi.json", 404),
        ("GET", "/v1/jobs/1/events", 404),
        ("POST", "/v1/uses", 404),
        ("POST", "/v1/jobs/1/../2/cancel", 404),
        ("GET", "/assets/..%2f__init__.py", 404),
        ("GET", "/assets/index.html", 404),
        ("GET", "/v1/events?after=%0a", 400),
        ("PUT", "/v1/jobs", 405),
    ],
)
def test_nothing_else_is_handed_on(page: Page, method: str, target: str, status: int) -> None:
    """Only the routes that the page needs lead to the daemon, and only its own files are served."""
    document: object = {} if method == "POST" else None

    assert page.ask(method, target, document, page.writing).status == status


def test_a_body_that_is_too_long_is_not_handed_on(page: Page) -> None:
    """The limit is the daemon's."""
    body = b'{"workloads": ["' + b"x" * 70_000
    headers = {**page.writing, "Content-Type": "application/json"}

    assert page.ask("POST", "/v1/jobs", body, headers).status == 413


@contextlib.contextmanager
def streamed(page: Page, target: str) -> Iterator[http.client.HTTPResponse]:
    """An answer that goes on, until the block ends."""
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        connection.request("GET", target, headers=page.cookie)
        with connection.getresponse() as response:
            yield response


def events(response: http.client.HTTPResponse, count: int) -> list[bytes]:
    """The first blocks of a stream."""
    blocks = [b""]
    while len(blocks) <= count:
        line = response.readline()
        if line == b"\n":
            blocks.append(b"")
        else:
            blocks[-1] += line
    return blocks[:count]


def test_the_stream_goes_on_where_the_daemon_s_ended(daemon: ServedService, page: Page) -> None:
    """When the daemon's stream ends the page is told, and the daemon is asked from the last place on."""
    with streamed(page, "/v1/events?power=true") as response:
        told = events(response, 4)

    assert [re.search(rb"event: (\w+)", block)[1] for block in told] == [b"begin", b"job", b"away", b"begin"]  # type: ignore[index]
    assert ("", True) in daemon.service.places
    assert ("0123abcd-1", True) in daemon.service.places


def test_without_a_daemon_the_page_says_so(tmp_path: Path) -> None:
    """What is asked is 503, and the stream tells of the absence until there is a daemon."""
    with served_page(tmp_path / "none") as page:
        page.enter()
        answer = page.ask("GET", "/v1/answers", headers=page.cookie)
        with streamed(page, "/v1/events") as response:
            (away,) = events(response, 1)

    assert (answer.status, answer.document["error"]["kind"]) == (503, "away")
    assert b"no daemon answers at" in away


# --- tuner open --------------------------------------------------------------------------------------


def test_a_port_in_use_is_named(daemon: ServedService) -> None:
    """A port that was asked for and is another's is said so; without a wish a free one is taken."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        result = tuner("open", "--no-browser", "--socket", daemon.path, "--port", str(port))

    assert result.exit_code == 2
    assert f"--port {port}: port {port} of 127.0.0.1 is in use" in result.stderr


def test_the_default_port_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the default port is taken any free one will do."""
    with listen(None) as first:
        monkeypatch.setattr(app, "DEFAULT_PORT", first.getsockname()[1])
        with listen(None) as second:
            assert second.getsockname()[1] != first.getsockname()[1]


def test_no_daemon_is_told_before_a_page_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a daemon the command ends with the words of the others."""
    monkeypatch.setattr("tuner.cli.remote.STARTING_S", 0.0)
    result = tuner("open", "--socket", tmp_path / "none")

    assert result.exit_code == 1
    assert "no daemon listens at" in result.stderr


def test_no_browser_is_no_error() -> None:
    """Without a display no browser is started: a text browser would take the terminal."""
    assert not open_browser("http://127.0.0.1:1/", {})


def test_the_link_is_printed(daemon: ServedService, monkeypatch: pytest.MonkeyPatch) -> None:
    """The link alone goes to standard output; the words beside it do not."""
    monkeypatch.setattr(app, "page_server", lambda *_: _EndedServer())
    result = tuner("open", "--socket", daemon.path)

    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/open/[\w-]{43}\n", result.stdout)
    assert "no browser can be started here" in result.stderr


class _EndedServer:
    async def serve(self, sockets: list[socket.socket]) -> None:
        """End at once, as after Ctrl-C."""


# --- the files ---------------------------------------------------------------------------------------


def test_uplot_is_the_published_one() -> None:
    """What is committed of uPlot is what npm has, with its licence."""
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (FOLDER / "uplot").iterdir()
    }
    licence = found.pop("LICENSE")

    assert found == UPLOT
    assert licence
    assert "MIT License" in (FOLDER / "uplot" / "LICENSE").read_text()


def test_no_text_of_the_daemon_is_read_as_html() -> None:
    """Our own scripts have none of the ways in which text becomes markup or code."""
    ways = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc|DOMParser"
    )

    assert [path.name for path in FOLDER.glob("*.js") if ways.search(path.read_text())] == []
