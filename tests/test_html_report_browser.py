"""``tuner report`` in a real browser: `make test-browser`."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from report_pages import LONG, MARKUP, complete, odd_runs, ordinary

from tuner.model.units import si, with_uncertainty
from tuner.report.html.report import asset, notebook_frame, pair_page, run_page
from tuner.report.trials_table import ranked_trials, values_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.browser

NOW = datetime(2026, 11, 26, tzinfo=timezone.utc)
ODD = dict(odd_runs())
PANELS = (
    *("answer", "sure", "settings", "left-out", "convergence", "time-energy", "effects", "heat-map"),
    *("parallel", "power", "trials", "repeat", "provenance", "clock", "limit", "co-run"),
)
VIOLATIONS = (
    "window.violations = []; document.addEventListener('securitypolicyviolation',"
    " event => window.violations.push(event.violatedDirective + ' ' + event.sample))"
)


@dataclass
class Shown:
    """A page that is drawn, and what the browser saw on the way."""

    page: "Page"
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def panel(self, name: str) -> "Locator":
        return self.page.locator(f"[data-panel='{name}']").first

    def is_clean(self) -> bool:
        """No message, no request but the file, nothing that the policy forbade, no chart that failed."""
        assert self.messages == []
        assert len(self.requests) == 1
        assert self.page.evaluate("window.violations") == []
        assert self.page.evaluate("document.documentElement.dataset.failed") == "0"
        return True


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """Debian's chromium, driven by Playwright."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("needs chromium: apt-get install chromium")
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=found)
        yield chromium
        chromium.close()


@pytest.fixture
def show(browser: "Browser", tmp_path: Path) -> "Iterator[Callable[..., Shown]]":
    """Opens a page from disk without a network, and waits until every chart is drawn."""
    contexts = []

    def opened(text: str, **options: Any) -> Shown:
        file = tmp_path / "report.html"
        file.write_text(text, encoding="utf-8")
        context = browser.new_context(offline=True, **options)
        contexts.append(context)
        context.add_init_script(VIOLATIONS)
        shown = Shown(context.new_page())
        shown.page.on("console", lambda message: shown.messages.append(message.text))
        shown.page.on("pageerror", lambda error: shown.messages.append(str(error)))
        shown.page.on("request", lambda request: shown.requests.append(request.url))
        shown.page.goto(file.as_uri())
        shown.page.wait_for_selector("html[data-ready]")
        return shown

    yield opened
    for context in contexts:
        context.close()


def test_all_panels_are_drawn(show: Callable[..., Shown]) -> None:
    """A co-run with searched clocks and limits has every panel, and each chart has something in it."""
    shown = show(run_page(complete(), NOW))

    assert shown.is_clean()
    for name in PANELS:
        assert shown.panel(name).is_visible(), name
    for chart in shown.page.locator(".chart").all():
        assert chart.locator("svg path, canvas").count() > 0
    assert shown.page.locator(".chart.empty").count() == 0


@pytest.mark.parametrize("kind", ODD)
def test_odd_runs_are_drawn(show: Callable[..., Shown], kind: str) -> None:
    """Nothing fails, is fetched, is forbidden or is wider than the window, whatever a run is like."""
    shown = show(run_page(ODD[kind], NOW), viewport={"width": 390, "height": 800}, color_scheme="dark")

    assert shown.is_clean()
    assert shown.page.title() != "pwned"
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_markup_in_tooltips_stays_text(show: Callable[..., Shown]) -> None:
    """What is shown of a trial under the pointer is text, too."""
    shown = show(run_page(ODD["markup"], NOW))
    panel = shown.panel("time-energy")
    panel.scroll_into_view_if_needed()
    tip = panel.locator(".tip")

    for mark in reversed(panel.locator("svg path").all()):
        box = mark.bounding_box()
        if box is None or max(box["width"], box["height"]) > 20 or min(box["width"], box["height"]) < 4:
            continue
        shown.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        if tip.count():
            break

    assert MARKUP in tip.inner_text()
    assert shown.is_clean()
    assert shown.page.title() != "pwned"


def test_a_trial_of_several_names_has_one_mark(show: Callable[..., Shown]) -> None:
    """The answer that is also the fastest keeps its own mark, and the legend has both names."""
    shown = show(run_page(ordinary(), NOW))

    names = shown.panel("time-energy").locator("svg text").all_text_contents()
    assert "answer, fastest, least energy" in names
    assert "fastest" not in names


def test_trials_are_sorted_and_filtered(show: Callable[..., Shown]) -> None:
    """A head sorts; conditions and words filter; flags are those of the configuration."""
    shown = show(run_page(ordinary(), NOW))
    table = shown.panel("trials")

    def rows() -> list[str]:
        texts: list[str] = table.locator("tbody tr").all_inner_texts()
        return texts

    assert len(rows()) == 12
    assert "\tanswer, fastest, least energy, repeated\t1\t1\t" in rows()[0]
    table.get_by_label("filter").fill("P>=4 staged")
    assert len(rows()) == 2
    assert all("staged" in row for row in rows())
    for sentence in ("P >= 4 and load == 'staged'", "P>=4 load=staged time>0 time_s>0 number>0 trial>0"):
        table.get_by_label("filter").fill(sentence)
        assert len(rows()) == 2, sentence
    table.get_by_label("filter").fill("Q>=4")
    assert rows() == []
    assert "no trial has Q; choose from number" in table.inner_text()
    table.get_by_label("filter").fill("timeout")
    assert "ran for 60 s" in rows()[0]
    table.get_by_label("filter").fill("")
    table.get_by_role("button", name="time").click()
    assert "1.000 ms" in rows()[0]


@pytest.mark.parametrize("workloads", [("scan:N=64",), ("scan:N=64", "fft:N=2")])
def test_conditions_have_the_names_of_the_command(
    show: Callable[..., Shown], workloads: tuple[str, ...]
) -> None:
    """The filter knows the same names of a trial as ``tuner show --where``."""
    document = ordinary(*workloads)
    table = show(run_page(document, NOW)).panel("trials")
    table.get_by_label("filter").fill("no-such-name=1")
    told = table.locator(".controls").inner_text().partition("choose from ")[2]

    assert sorted(told.split(", ")) == sorted(values_of(document, ranked_trials(document)[0]))


def test_two_runs_are_drawn_side_by_side(show: Callable[..., Shown]) -> None:
    """Both have their panels, beside each other; the ratios stand above."""
    shown = show(pair_page(ordinary(run=1), ordinary(run=2), ("run 1", "run 2"), NOW))

    assert shown.is_clean()
    boxes = [one.bounding_box() for one in shown.page.locator("[data-run]").all()]
    assert len(boxes) == 2
    assert boxes[0] is not None
    assert boxes[1] is not None
    assert boxes[0]["y"] == boxes[1]["y"]
    assert shown.panel("ratios").locator("svg path").count() > 0


def test_a_frame_of_a_notebook_draws_the_same(show: Callable[..., Shown], browser: "Browser") -> None:
    """The scripts run within the frame, and reach nothing around it."""
    del show
    page = browser.new_page()
    page.set_content(f"<title>notebook</title>{notebook_frame(ODD['markup'])}")

    page.frame_locator("iframe").locator("html[data-ready][data-failed='0']").wait_for()

    assert page.title() == "notebook"
    page.close()


def test_colours_change_and_paper_is_white(show: Callable[..., Shown]) -> None:
    """The button changes the scheme, and a dark page prints on white."""
    shown = show(run_page(ordinary(), NOW), color_scheme="dark")

    def background() -> str:
        return str(shown.page.evaluate("getComputedStyle(document.body).backgroundColor"))

    dark = background()
    shown.page.get_by_role("button", name="light or dark").click()
    assert background() != dark
    shown.page.get_by_role("button", name="light or dark").click()
    assert background() == dark
    assert shown.page.pdf()[:5] == b"%PDF-"
    shown.page.emulate_media(media="print")
    assert background() == "rgb(255, 255, 255)"
    assert shown.is_clean()


def test_without_scripts_the_answer_stands_there(browser: "Browser", tmp_path: Path) -> None:
    """Text and tables need no script."""
    (tmp_path / "x.html").write_text(run_page(ordinary(f"{LONG}:N=1"), NOW))
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((tmp_path / "x.html").as_uri())

    assert "the default" in page.locator("[data-panel='answer']").inner_text()
    assert "Scripts are off" in page.locator("footer").inner_text()
    context.close()


def test_numbers_are_written_as_in_the_text_report(browser: "Browser") -> None:
    """Units of the scripts are those of ``tuner.report.layout``."""
    values = [0.0, 1.23456e-9, 0.00123, 0.99996, 1.5, 123.456, 99999.5]
    pairs = [(0.771, 0.0012), (-0.0002, 0.0055), (1234.6, 12.0), (3.2e-6, 1e-8), (2.0, 0.0)]
    page = browser.new_page()
    found = page.evaluate(
        f"([values, pairs]) => {{ {asset('units.js')}"
        " return [values.map(v => si(v, 's')), pairs.map(([v, h]) => withInterval(v, h, 'J'))] }",
        [values, pairs],
    )
    page.close()

    assert found[0] == [si(value, "s") for value in values]
    assert found[1] == [with_uncertainty(value, half, "J") for value, half in pairs]
