"""Requests as browsers send them for pages of other sites, over the Unix socket and the loopback."""

import contextlib
from collections.abc import Iterator

import pytest
from served_service import ServedService, connected, served

from tuner.daemon.http.access import cross_site_fault
from tuner.daemon.interface import Peer
from tuner.model.jobs import JobSpec, JobState

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
def api() -> Iterator[ServedService]:
    with served() as running:
        running.wait(running.service.submit(JobSpec(("scan-lf:N=64",)), Peer()))
        yield running


def status_of(api: ServedService, method: str, target: str, headers: dict[str, str]) -> int:
    """The status of a request that is written by hand, as no library sends some of these."""
    head = "".join(f"{name}: {text}\r\n" for name, text in {"Host": "localhost", **headers}.items())
    with contextlib.closing(connected(api.path)) as connection:
        connection.sendall(f"{method} {target} HTTP/1.1\r\n{head}Content-Length: 0\r\n\r\n".encode())
        return int(connection.recv(65_536).split(b" ", 2)[1])


@pytest.mark.parametrize("page", PAGES)
def test_the_socket_refuses_what_a_page_of_another_site_sends(api: ServedService, page: str) -> None:
    """Over the Unix socket no method of any path is open to a page, and nothing has changed."""
    statuses = {status_of(api, method, target, PAGES[page]) for method in METHODS for target in TARGETS}

    assert statuses == {403}
    assert api.service.rows[1].state is JobState.QUEUED


def test_a_refusal_says_why_and_opens_nothing(api: ServedService) -> None:
    """The answer has the one shape of errors, and no header that would let a page read it."""
    answer = api.ask("POST", "/v1/jobs/1/cancel", headers={"Origin": EVIL})

    assert (answer.status, answer.kind) == (403, "unauthorised")
    assert "Origin" in answer.document["error"]["message"]
    assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize(
    "headers",
    [{}, {"Host": "127.0.0.1:8750"}, {"Host": "[::1]"}, {"Sec-Fetch-Site": "none"}, {"Host": "LOCALHOST"}],
)
def test_the_socket_answers_programs_and_who_types_its_address(
    api: ServedService, headers: dict[str, str]
) -> None:
    """Local names with any port, and a request that no page made, pass."""
    assert status_of(api, "GET", "/v1/status", headers) == 200


def test_the_loopback_refuses_pages_that_have_the_token() -> None:
    """Over TCP a page is refused whatever else it shows."""
    with served(tcp=True) as api:
        assert api.tcp is not None
        headers = {"Authorization": f"Bearer {api.tcp.token}", "Origin": EVIL}
        assert api.ask("GET", "/v1/status", headers=headers).status == 403


def test_headers_of_a_program_have_no_fault() -> None:
    """What tuner.Client and curl send is no page's."""
    assert cross_site_fault({b"host": b"localhost", b"accept": b"application/json"}) == ""
