"""A real browser, and a daemon on simulated devices whose trials take real time."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from daemon_machine import Machine
from served_page import Page, served_page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WHY_NOT = "" if CHROMIUM else "chromium is not installed"
PATIENCE_MS = 60_000  # for what must come; never waited for in full unless something is broken
# Each process that Python starts reads this: simulated devices then let real time pass too.
_PACED = """
import os, time
from tuner.devices.simulated import time_model

_pass_time = time_model.Timeline.pass_time

def pass_time(self, seconds, watts):
    _pass_time(self, seconds, watts)
    time.sleep(min(0.2, max(0.0, seconds) * float(os.environ["TUNER_PACE"])))

time_model.Timeline.pass_time = pass_time
"""


def expect(locator: Any) -> Any:
    """What Playwright expects of a locator, waited for with patience."""
    from playwright.sync_api import expect as expected  # noqa: PLC0415 - not there where browsers are not tested

    return expected(locator)


def browser_page(browser: Any, **options: Any) -> Any:
    """A page of a browser whose waits have patience."""
    page = browser.new_context(**options).new_page()
    page.set_default_timeout(PATIENCE_MS)
    return page


@contextlib.contextmanager
def launched() -> Iterator[Any]:
    """The browser."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    playwright.expect.set_options(timeout=PATIENCE_MS)
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


@dataclass
class Watched:
    """A page in a browser, with the page's server and the daemon behind it.

    Attributes:
        faults: what the browser's console and the page's scripts complained of.
    """

    machine: Machine
    served: Page
    page: Any
    faults: list[str]


@contextlib.contextmanager
def watched(browser: Any, machine: Machine) -> Iterator[Watched]:
    """Open the page of a machine's daemon in a browser, by the link."""
    with served_page(machine.socket) as served:
        page = browser_page(browser, viewport={"width": 1280, "height": 900})
        faults: list[str] = []
        page.on("console", lambda message: faults.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: faults.append(f"error: {error}"))
        page.goto(served.link, wait_until="domcontentloaded")
        yield Watched(machine, served, page, faults)
        page.context.close()


def pace(folder: Path, monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """Let simulated devices of processes started from now on take so much of their time in ours."""
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(_PACED)
    monkeypatch.setenv("PYTHONPATH", str(folder / "site"))
    monkeypatch.setenv("TUNER_PACE", str(factor))


def killed(process: "subprocess.Popen[str]") -> None:
    """Kill a daemon as the kernel would when memory is short."""
    process.kill()
    process.wait()
