"""`tuner top` with textual's Pilot: panes, keys, questions, and a daemon that goes away and comes back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from run_documents import answered
from scripted_daemon import Request, ScriptedDaemon, answer, error, stream
from scripted_daemon import event as as_sent
from scripted_daemon import job as job_document
from terminal_scene import device, event, job, served_answer, told, trial
from textual.pilot import Pilot

from tuner.cli.top.live_state import EventReader
from tuner.cli.top.view import TerminalView
from tuner.client import Client, Event
from tuner.model.errors import DaemonUnavailableError, TunerError

SMALL, LARGE = (80, 24), (140, 45)
PATIENCE_S = 60.0  # for what must come


STORED = {
    "number": 1,
    "status": "ok",
    "confirmed": True,
    "bursts": 3,
    "configurations": {"fft:N=64": {"P": 2}},
    "workloads": {"fft:N=64": {"status": "ok", "time_s": 0.5, "detail": ""}},
    "clock_mhz": 1200,
    "clock_seen_mhz": 1199.0,
    "time_s": 0.5,
    "time_s_uncertainty": 0.001,
    "energy_j": 7.0,
    "energy_j_uncertainty": 0.01,
    "power_w": 14.0,
    "flags": [],
}
FAILED = {
    "number": 2,
    "status": "crash",
    "confirmed": False,
    "workloads": {"fft:N=64": {"status": "crash", "time_s": None, "detail": "signal 11"}},
}


def plays(test: Callable[[Path], Awaitable[None]]) -> Callable[[Path], None]:
    """Make a test of a coroutine function that takes ``tmp_path``."""

    def played(tmp_path: Path) -> None:
        asyncio.run(asyncio.wait_for(test(tmp_path), PATIENCE_S))

    played.__doc__ = test.__doc__
    return played


class HandFedEvents(EventReader):
    """Events that a test gives a view by hand."""

    def __init__(self, events: Iterable[Event | TunerError]) -> None:
        self.waiting = list(events)
        self.closed = False

    def start(self) -> None:
        pass

    def take(self) -> list[Event | TunerError]:
        taken, self.waiting = self.waiting, []
        return taken

    def close(self) -> None:
        self.closed = True


class Shown:
    """A view that is driven by a test, and what stands on its screen."""

    def __init__(self, view: TerminalView, pilot: Pilot[None], events: HandFedEvents) -> None:
        self.view, self.pilot, self.events = view, pilot, events

    async def tell(self, *events: Event | TunerError) -> None:
        self.events.waiting += events
        self.view.catch_up()
        await self.pilot.pause()

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def until(self, words: str) -> None:
        """Wait for words on the screen."""
        while words not in self.text:  # `plays` ends what takes too long
            await self.pilot.pause()

    @property
    def lines(self) -> list[str]:
        strips = self.view.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip) for strip in strips]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def script(request: Request) -> bytes:
    """A daemon whose jobs can be cancelled, and which serves one answer."""
    if request.method == "POST":
        _, _, _, number, verb = request.path.split("/")
        if verb == "pause":
            return error("not-yours", "job 1 is ada's", 403)
        return answer(job_document(int(number), state="cancelled" if verb == "cancel" else "queued"))
    if request.path == "/v1/runs/2":
        return answer(answered(None, ["fft:N=512"]))
    if request.path == "/v1/runs/2/trials":
        return answer({"trials": [STORED, {**STORED, **FAILED}], "next": None})
    return answer({"answers": [served_answer()]})


@contextlib.asynccontextmanager
async def shown(
    folder: Path, size: tuple[int, int] = SMALL, events: Iterable[Event] | None = None
) -> AsyncIterator[tuple[Shown, ScriptedDaemon]]:
    """A view of a daemon at work."""
    feed = HandFedEvents(told() if events is None else events)
    with ScriptedDaemon(folder / "s", script) as daemon:
        view = TerminalView(Client(daemon.path), feed)
        async with view.run_test(size=size, notifications=True) as pilot:
            screen = Shown(view, pilot, feed)
            await view.workers.wait_for_complete()
            await screen.tell()
            yield screen, daemon
    assert feed.closed


@plays
async def test_a_small_terminal_shows_devices_and_one_other_pane(tmp_path: Path) -> None:
    """At 80 × 24 the jobs stand below the devices, and keys put another pane in their place."""
    async with shown(tmp_path) as (view, _):
        assert len(view.lines) == 24
        assert all(len(line) == 80 for line in view.lines)
        assert "cuda:0" in view.text
        assert "sim:jetson-tx1 modelled" in view.text
        assert "[2] Jobs: 1 running, 1 queued" in view.text
        assert "Answers" not in view.text
        await view.press("3")
        assert "28.038 ± 0.090 ms" in view.text
        assert "Jobs" not in view.text
        await view.press("tab")
        assert "500.0 ± 2.0 mJ" in view.text
        await view.press("shift+tab", "shift+tab")
        assert "[2] Jobs" in view.text


@plays
async def test_a_large_terminal_shows_all_panes(tmp_path: Path) -> None:
    """At 140 × 45 nothing needs a key."""
    async with shown(tmp_path, LARGE) as (view, _):
        titles = ("[1] Devices", "[2] Jobs", "[3] Trials of job 1", "[4] Answers: 1 served")
        for words in (*titles, "-31.0 ± 0.6 %"):
            assert words in view.text


@plays
async def test_many_devices_are_scrolled_through(tmp_path: Path) -> None:
    """On a small terminal the chosen device is shown with its details, and the jobs keep their room."""
    devices = [device(f"cuda:{number}", holds=f"reason {number}") for number in range(10)]
    async with shown(tmp_path, SMALL, devices) as (view, _):
        await view.press("1", "G")
        assert "cuda:9" in view.text
        assert "reason 9" in view.text
        assert "cuda:0" not in view.text
        assert "[2] Jobs" in view.text


@plays
async def test_trials_of_a_job_that_has_ended_are_asked_for(tmp_path: Path) -> None:
    """Enter on a job shows its trials; those that are stored have the form of those that are told."""
    async with shown(tmp_path) as (view, daemon):
        await view.press("j", "j", "enter")
        await view.until("7.000 ± 0.020 J")
        assert "Trials of job 3, failed (modelled)" in view.text
        assert "1 3×" in view.text
        assert "1200 MHz" in view.text
        assert "crash: signal 11" in view.text
        await view.tell(job(3, state="failed", run=2))
        assert [request.path for request in daemon.asked].count("/v1/runs/2") == 1


@plays
async def test_a_job_is_cancelled_after_a_question(tmp_path: Path) -> None:
    """No is no; yes asks the daemon, and its answer is told."""
    async with shown(tmp_path) as (view, daemon):
        await view.press("j", "c")
        assert "Cancel job 2" in view.text
        await view.press("n")
        assert "POST" not in {request.method for request in daemon.asked}
        await view.press("c", "y")
        await view.until("job 2 is cancelled")
        assert "/v1/jobs/2/cancel" in {request.path for request in daemon.asked}


@plays
async def test_pause_and_resume_are_one_key(tmp_path: Path) -> None:
    """The same key resumes a paused job; a refusal is told, and an ended job is not asked for."""
    async with shown(tmp_path) as (view, daemon):
        await view.press("3", "p")
        assert "Pause job 1" in view.text
        await view.press("y")
        await view.until("job 1 is ada's")
        await view.tell(job(1, state="paused", run=1))
        await view.press("p", "y")
        await view.until("job 1 is queued")
        assert "/v1/jobs/1/resume" in {request.path for request in daemon.asked}
        await view.tell(job(1, state="finished", run=1))
        await view.press("p")
        await view.until("no job to pause: job")


@plays
async def test_a_device_stands_for_the_job_that_runs_on_it(tmp_path: Path) -> None:
    """Keys for jobs work on the pane of devices, and say where there is none."""
    async with shown(tmp_path) as (view, _):
        await view.press("1", "c")
        await view.until("no job to cancel: choose one")
        await view.press("j", "c")
        assert "Cancel job 1" in view.text
        await view.press("tab", "2", "q")  # a question takes its own keys only
        assert "Cancel job 1" not in view.text
        assert view.view.is_running
        await view.press("enter")
        assert "[3] Trials of job 1" in view.text


@plays
async def test_rows_are_sorted_and_filtered_by_keys(tmp_path: Path) -> None:
    """The title says the order and the filter; escape shows all rows again."""
    async with shown(tmp_path) as (view, _):
        await view.press("3", "s", "s", "S")
        assert "(by time ↓)" in view.text
        await view.press("slash", *"768", "enter")
        assert "with “768”" in view.text
        assert " 11 " not in view.text
        await view.press("escape")
        assert "with" not in view.text
        await view.press("slash", "x", "x", "enter")
        assert "no row has it" in view.text


@plays
async def test_the_cursor_stays_on_its_row(tmp_path: Path) -> None:
    """Trials that come above a chosen one do not move it; who is at the first row sees what comes."""
    async with shown(tmp_path) as (view, _):
        await view.press("3")
        await view.tell(trial(14))
        assert view.view._pane("trials").chosen.key == "1-14"  # type: ignore[union-attr]
        await view.press("j", "j")
        await view.tell(trial(15), trial(16))
        assert view.view._pane("trials").chosen.key == "1-12"  # type: ignore[union-attr]


@plays
async def test_a_daemon_that_goes_away_is_told_of(tmp_path: Path) -> None:
    """The warning has the reason, what was known stays, and the next word of a daemon takes it away."""
    async with shown(tmp_path) as (view, _):
        await view.tell(DaemonUnavailableError("no daemon listens at /s"))
        assert "the daemon is away, and is looked for: no daemon listens at /s" in view.text
        assert "cuda:0" in view.text
        await view.tell(event("begin", resumed=False), device("cuda:1"))
        assert "away" not in view.text
        assert "cuda:0" not in view.text
        assert "cuda:1" in view.text


@plays
async def test_texts_of_the_daemon_are_no_markup(tmp_path: Path) -> None:
    """Names, reasons and filters are shown as they are, whatever stands in them."""
    hostile = "[red]x[/] [@click=app.quit]y"
    events = [job(1, workloads=[hostile], state="running", reason="[/]"), device(job=1, name=hostile)]
    async with shown(tmp_path, LARGE, events) as (view, _):
        assert "[3] Trials of job 1: none yet" in view.text
        assert hostile in view.text
        assert "running ([/])" in view.text
        await view.press("c")
        assert f"Cancel job 1 ({hostile})?" in view.text
        await view.press("n", "slash", *"[/]", "enter")
        assert "with “[/]”" in view.text


@plays
async def test_help_names_the_keys(tmp_path: Path) -> None:
    """The question mark shows all keys, and fits a small terminal."""
    async with shown(tmp_path) as (view, _):
        await view.press("question_mark")
        assert "pause or resume a job, after a question" in view.text
        assert "★ is the best trial so far" in view.text
        await view.press("q")
        assert "[2] Jobs" in view.text


def test_no_color_means_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With NO_COLOR no colour is sent to the terminal; the row under the cursor is still told apart."""
    monkeypatch.setenv("NO_COLOR", "1")

    @plays
    async def drawn(folder: Path) -> None:
        async with shown(folder) as (view, _):
            strips = view.view.screen._compositor.render_strips()
            styles = [s.style for strip in strips for s in strip.apply_filter(*_filter(view)) if s.style]
            colours = {style.color.name for style in styles if style.color} | {
                style.bgcolor.name for style in styles if style.bgcolor
            }
            assert colours <= {"default"}
            assert any(style.reverse for style in styles)

    drawn(tmp_path)


def _filter(view: Shown) -> tuple[Any, Any]:
    from textual.color import Color  # noqa: PLC0415 - of this test alone
    from textual.filter import NoColor  # noqa: PLC0415 - of this test alone

    chosen = next(one for one in view.view._filters if isinstance(one, NoColor))
    return chosen, Color.parse("ansi_default")


# --- the daemon's own stream -----------------------------------------------------------------------


async def until(condition: Callable[[], bool], view: TerminalView, pilot: Pilot[None]) -> None:
    """Let the view draw until something is so."""
    while not condition():
        await pilot.pause()
        view.catch_up()


def test_the_view_goes_on_when_the_daemon_is_back(tmp_path: Path) -> None:
    """After the stream was cut the reader looks for the daemon, and takes up what another one tells."""
    began = as_sent(None, "begin", resumed=False)
    one = [as_sent(None, "job", **job_document(number, state="running")) for number in (1, 2)]
    said = [stream(began, one[0], whole=False), stream(began, one[1])]

    def reply(request: Request) -> bytes | None:
        if request.path != "/v1/events":
            return answer({"answers": []})
        return said.pop(0) if said else None

    @plays
    async def played(_: Path) -> None:
        with ScriptedDaemon(tmp_path / "s", reply) as daemon:
            view = TerminalView(Client(daemon.path), EventReader(Client(daemon.path)))
            async with view.run_test(size=SMALL) as pilot:
                await until(lambda: 2 in view.state.jobs, view, pilot)
                assert 1 not in view.state.jobs
                await until(lambda: len(daemon.asked) > 3, view, pilot)
        assert {"power": ["true"]} in [one.query for one in daemon.asked]

    played(tmp_path)
