"""Hostile pages and hostile texts, in a real browser."""

import asyncio
import contextlib
import http.server
import socket
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser_rig import WHY_NOT, browser_page, expect, launched
from fake_service import FakeService
from served_page import served_page
from served_service import ServedService, connected, served

from tuner.daemon.interface import Peer, stream_text
from tuner.model.jobs import JobSpec, JobState

pytestmark = [pytest.mark.browser, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "-")]

ATTACK = (Path(__file__).parent / "hostile_page.html").read_bytes()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as browser:
        yield browser


@pytest.fixture
def daemon() -> Iterator[ServedService]:
    with served() as running:
        running.wait(running.service.submit(JobSpec(("scan-lf:N=64",)), Peer()))
        yield running


@contextlib.contextmanager
def hostile_site() -> Iterator[str]:
    """A web site of somebody else, on another port of this machine."""

    class Site(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(ATTACK)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://localhost:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@contextlib.contextmanager
def forwarded(path: Path) -> Iterator[int]:
    """The port of a Unix socket that is forwarded, as by ``ssh -L PORT:SOCKET``."""
    opened: list[socket.socket] = []

    class Forward(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with connected(path) as there:
                opened.extend((self.request, there))
                back = threading.Thread(target=copied, args=(there, self.request))
                back.start()
                copied(self.request, there)
                back.join()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Forward) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()
        for one in opened:  # the browser keeps connections for later
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def copied(source: socket.socket, target: socket.socket) -> None:
    """Copy what comes until its end."""
    with contextlib.suppress(OSError):
        while piece := source.recv(65_536):
            target.sendall(piece)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def attacked(page: Any, site: str, at: str) -> dict[str, str]:
    """What became of each attack on an origin."""
    page.goto(f"{site}/?at={at}")
    page.wait_for_function("document.title === 'done'")
    said: dict[str, str] = page.evaluate("window.said")
    return said


def test_a_hostile_page_gets_nothing_through_a_forwarded_socket(daemon: ServedService, browser: Any) -> None:
    """Whatever a page tries on a forwarded socket, it reads nothing, and no job and no count changes."""
    page = browser_page(browser)
    with hostile_site() as site, forwarded(daemon.path) as port:
        said = attacked(page, site, f"http://localhost:{port}")
    page.context.close()

    assert "open" not in said["events"]
    assert said["image"] == "refused"
    assert said["frame"] == "opaque"
    assert said["read"].startswith("refused")
    assert said["json"].startswith("refused")
    assert daemon.service.rows[1].state is JobState.QUEUED
    assert len(daemon.service.rows) == 1
    assert daemon.service.asked == []


def test_a_hostile_page_gets_nothing_from_an_open_page(daemon: ServedService, browser: Any) -> None:
    """In the browser that has the cookie another site can neither read nor change anything, nor frame it."""
    page = browser_page(browser)
    with served_page(daemon.path) as served_here, hostile_site() as site:
        page.goto(served_here.link, wait_until="domcontentloaded")
        said = attacked(page, site, served_here.origin)
    page.context.close()

    assert "open" not in said["events"]
    assert said["frame"] == "opaque"
    assert said["read"].startswith("refused")
    assert daemon.service.rows[1].state is JobState.QUEUED
    assert len(daemon.service.rows) == 1
    assert daemon.service.asked == []


MARKUP = '<img src=x onerror="document.title=\'broken in\'"><script>document.title="broken in"</script>'
WHEN = "2026-01-02T03:04:05+00:00"
RIGHT_TO_LEFT = "\u202egnihton\u202c" + "w" * 200


class HostileService(FakeService):
    """A daemon in which every text that somebody can choose is markup."""

    async def follow(self, place: str = "", *, power: bool = False) -> Any:
        del place, power
        job = {
            "id": 1,
            "kind": "tune",
            "device": MARKUP,
            "workloads": [MARKUP, RIGHT_TO_LEFT],
            "objective": MARKUP,
            "policy": MARKUP,
            "clocks": MARKUP,
            "options": {"max_slowdown": 0.05},
            "origin": "client",
            "priority": 0.0,
            "state": "running",
            "reason": MARKUP,
            "run": 1,
            "attempts": 1,
            "trials": 1,
            "submitter": 0,
            "created_at": WHEN,
            "started_at": WHEN,
            "ended_at": None,
        }
        device = {
            "spec": MARKUP,
            "name": MARKUP,
            "driver": MARKUP,
            "modelled": True,
            "job": None,
            "holds": MARKUP,
        }
        device |= {"spent_today_s": 1.0, "spent_today_j": 1.0, "budget_s": 0.0, "budget_j": 0.0}
        trial = {
            "run": 1,
            "number": 1,
            "trial": 1,
            "repeat": 0,
            "confirming": False,
            "cost": None,
            "best": None,
            "unit": "J",
            "joules": 1.0,
            "expected": 2,
            "status": "wrong-answer",
            "detail": MARKUP,
            "configurations": {MARKUP: {MARKUP: MARKUP}},
            "clock_set_mhz": None,
            "power_limit_w": None,
            "time_s": None,
            "time_s_uncertainty": 0.0,
            "energy_j": None,
            "energy_j_uncertainty": None,
            "watts": None,
            "clock_mhz": None,
            "modelled": True,
            "flags": [MARKUP],
        }
        good = {
            **trial,
            "trial": 2,
            "status": "ok",
            "detail": "",
            "time_s": 1e-3,
            "energy_j": 0.1,
            "cost": 0.1,
        }
        status = {"version": MARKUP, "queue": {"running": 1, "queued": 0, "paused": 0}, "notices": [MARKUP]}
        status |= {"troubles": [MARKUP], "windows": {"open": False, "summary": MARKUP}}
        summary = {"best": {**good, "time_s_uncertainty": 0.0}, "against_default": None, "modelled": True}
        sample = {"device": MARKUP, "at": WHEN, "watts": 1.0, "clock_mhz": None, "reading": MARKUP}
        sample |= {"throttle_reasons": [MARKUP], "temperature_c": None, "others": 1, "failure": ""}
        told = [
            ("begin", {"instance": "0123abcd", "resumed": False}),
            ("status", status),
            ("device", device),
            ("job", job),
            ("trial", trial),
            ("trial", good),
            ("told", {"sentence": MARKUP}),
            ("answer", {"summary": summary}),
            ("power", sample),
        ]
        for kind, data in told:
            yield stream_text(kind, {"kind": kind, "at": WHEN, "job": 1, "data": data})
        await asyncio.Event().wait()


def test_no_text_becomes_markup(browser: Any) -> None:
    """Names, labels, reasons and errors that are markup are shown as they are, and run nothing."""
    with served(service=HostileService()) as daemon, served_page(daemon.path) as served_here:
        page = browser_page(browser, viewport={"width": 360, "height": 800})
        page.goto(served_here.link, wait_until="domcontentloaded")
        expect(page.locator("#trials tr")).to_have_count(2)
        expect(page.locator("#sentences")).to_contain_text("<script>")
        expect(page.locator("#jobs")).to_contain_text(RIGHT_TO_LEFT)
        page.fill("#f-workloads", MARKUP.replace(" ", "\u00a0"))
        page.click("#submit button")
        expect(page.locator("#submit .error", has_text="must be")).to_be_visible()

        assert page.title() == "tuner"
        assert page.locator("main img, main script, header script").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.context.close()
