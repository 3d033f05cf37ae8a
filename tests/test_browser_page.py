"""The live page in a real browser, with a daemon behind it."""

import contextlib
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser_rig import WHY_NOT, Watched, browser_page, expect, killed, launched, pace, watched
from daemon_machine import Machine

pytestmark = [pytest.mark.browser, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "-")]

WORKLOAD = "scan-lf:N=256"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def live(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """A daemon, and its page in a browser; trials take a few hundredths of a second."""
    folder = tmp_path_factory.mktemp("machine")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        pace(folder, monkeypatch, 0.02)
        with contextlib.closing(Machine(folder)) as machine:
            machine.start()
            with watched(browser, machine) as live:
                yield live


def submit(page: Any, **fields: str) -> None:
    """Fill the form and send it; the rest is empty."""
    for name in ("workloads", "policy", "clocks", "budget", "max_slowdown", "priority"):
        page.fill(f"#f-{name}", fields.get(name, ""))
    page.click("#submit button")


def test_a_search_from_the_form_to_its_answer(live: Watched) -> None:
    """What is submitted runs, its trials appear as they end, and its answer stands in the table at last."""
    page = live.page
    expect(page.locator("#connection")).to_have_text("live")
    expect(page.locator("#devices h3")).to_contain_text("NVIDIA Jetson TX1")
    page.select_option("#f-objective", "energy")
    submit(page, workloads=WORKLOAD, policy="random", budget="12")
    expect(page.locator("#submitted")).to_contain_text("job 1 is queued")
    expect(page.locator("#trials tr").first).to_be_visible()
    expect(page.locator("#search-state")).to_contain_text("trials")
    expect(page.locator("#answers tr")).to_contain_text(WORKLOAD)
    expect(page.locator("#answers tr .number").nth(1)).to_contain_text("±")
    expect(page.locator("#jobs .state.finished")).to_have_count(1)
    expect(page.locator("#pareto canvas")).to_be_visible()
    expect(page.locator("#pareto-text")).to_contain_text("modelled")


@pytest.mark.parametrize(
    ("fields", "field", "says"),
    [
        ({}, "workloads", "must hold at least 1"),
        ({"workloads": "no-such-kernel:N=4"}, "workloads", "no-such-kernel"),
        ({"workloads": WORKLOAD, "policy": "no-such"}, "policy", "no-such"),
        ({"workloads": WORKLOAD, "clocks": "Off"}, "clocks", "must be off, auto, all"),
        ({"workloads": WORKLOAD, "budget": "-3"}, "budget", "must be at least"),
        ({"workloads": WORKLOAD, "budget": "many"}, "budget", "must be a number"),
    ],
)
def test_errors_stand_under_their_fields(
    live: Watched, fields: dict[str, str], field: str, says: str
) -> None:
    """What the daemon refuses is told at the field that it is about, which has the focus then."""
    submit(live.page, **fields)

    expect(live.page.locator(f"#e-{field}")).to_contain_text(says)
    expect(live.page.locator(f"#f-{field}")).to_be_focused()
    expect(live.page.locator(f"#f-{field}")).to_have_attribute("aria-invalid", "true")


def test_jobs_are_changed_after_a_question(live: Watched) -> None:
    """Pause, resume and cancel ask first; a no changes nothing, and the keyboard is enough."""
    page = live.page
    submit(page, workloads="scan-lf:N=1024", policy="random", budget="5000")
    row = page.locator("#jobs tr", has_text="scan-lf:N=1024")
    expect(row.locator(".state")).to_have_text("running")
    row.get_by_role("button", name="Pause").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#confirm")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#confirm")).to_be_hidden()
    expect(row.locator(".state")).to_have_text("running")
    for verb, state in (("Pause", "paused"), ("Resume", "running"), ("Cancel", "cancelled")):
        row.get_by_role("button", name=verb).click()
        page.click("#confirm-yes")
        expect(row.locator(".state")).to_have_text(state)


def test_the_page_outlives_the_daemon(live: Watched) -> None:
    """A daemon that is killed is told of; when another takes its place the page is whole again by itself."""
    page, machine = live.page, live.machine
    submit(page, workloads="scan-lf:N=2048", policy="random", budget="5000")
    row = page.locator("#jobs tr", has_text="scan-lf:N=2048")
    expect(row.locator(".state")).to_have_text("running")
    expect(page.locator("#trials tr").nth(3)).to_be_visible()
    killed(machine.processes[-1])
    expect(page.locator("#connection")).to_contain_text("does not answer")
    before = int(page.locator("#trials tr").first.locator("td").first.inner_text().split()[0])
    machine.start()
    expect(page.locator("#connection")).to_have_text("live")
    expect(row.locator(".state")).to_have_text("running")
    expect(page.locator("#trials tr").first.locator("td").first).not_to_have_text(re.compile(rf"^{before}\b"))
    row.get_by_role("button", name="Cancel").click()
    page.click("#confirm-yes")
    expect(row.locator(".state")).to_have_text("cancelled")


@pytest.mark.parametrize("width", [360, 1920])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_the_screen(live: Watched, browser: Any, width: int, scheme: str) -> None:
    """From a telephone to a large screen the page itself never scrolls sideways."""
    with contextlib.closing(
        browser.new_context(storage_state=live.page.context.storage_state(), color_scheme=scheme)
    ) as context:
        page = context.new_page()
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(live.served.origin, wait_until="domcontentloaded")
        expect(page.locator("#jobs tr").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_every_control_has_a_name(live: Watched) -> None:
    """A screen reader has a name for each control, picture and table, and headings in their order."""
    unnamed = live.page.evaluate(
        """() => [...document.querySelectorAll('button, input, select, [role=img], [role=region], dialog')]
          .filter((one) => !(one.getAttribute('aria-label') || one.labels?.length || one.textContent.trim()
            || document.getElementById(one.getAttribute('aria-labelledby'))?.textContent.trim()))
          .map((one) => one.outerHTML)"""
    )
    levels = live.page.evaluate(
        "[...document.querySelectorAll('h1, h2, h3')].map((one) => Number(one.tagName[1]))"
    )

    assert unnamed == []
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_the_browser_has_nothing_to_complain_of(live: Watched) -> None:
    """No error of a script and no violation of the content policy; refusals of requests are the daemon's."""
    assert [fault for fault in live.faults if "Failed to load resource" not in fault] == []


def test_a_used_link_is_refused_in_a_browser(live: Watched, browser: Any) -> None:
    """Another browser gets nothing by the link, and nothing without it."""
    page = browser_page(browser)
    for target in (live.served.link, live.served.origin):
        response = page.goto(target)
        assert response.status in (401, 403)
        assert "tuner open" in page.inner_text("body")
    page.context.close()
    assert Path(live.machine.database).exists()
