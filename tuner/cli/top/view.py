"""The view of the daemon in a terminal: panes, dialogs, style."""

from collections.abc import Callable, Collection
from dataclasses import replace

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.markup import escape
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static

from tuner.cli.top import live_state
from tuner.cli.top.live_state import (
    ANSWERS,
    CANCEL,
    CONSEQUENCES,
    DEVICES,
    HEAD,
    JOBS,
    TRIALS,
    EventReader,
    Inquiries,
    LiveSearch,
    LiveState,
    pause_or_resume,
    question,
    why_not,
)
from tuner.cli.top.view_rows import (
    Arrangement,
    Listing,
    Row,
    TrialRows,
    aligned,
    answer_listing,
    arranged,
    device_listing,
    fitted,
    gap,
    job_listing,
    line,
)
from tuner.client.answer_values import ServedAnswer, TrialData
from tuner.client.client import Client
from tuner.model.errors import TunerError
from tuner.model.jobs import Job, JobState
from tuner.system.untrusted.reading import plain, plain_line

# --- A question before a job is changed, and the keys.

HELP = """\
 1 2 3 4   tab    devices, jobs, trials, answers
 ↑ ↓   j k        move; g and G: first and last row
 enter            on a job: show its trials
 c                cancel a job, after a question
 p                pause or resume a job, after a question
 s   S            sort by the next column; turn the order
 /                filter the rows; esc shows all again
 ?                these keys
 q                quit

c and p are for the chosen job, for the job that runs on the
chosen device, or for the job whose trials are shown.
± is half of a 95 % interval. Times and joules are of one
round of all workloads. ★ is the best trial so far."""


class Confirmation(ModalScreen[bool]):
    """Asks whether a job is to be changed; yes is never the default.

    Args:
        question: what is to be done.
        consequence: what happens then.
    """

    BINDINGS = [  # noqa: RUF012 - textual's own
        Binding("y", "answer(True)", "yes"),
        Binding("n,escape,q", "answer(False)", "no"),
    ]

    def __init__(self, question: str, consequence: str) -> None:
        super().__init__()
        self._text = f"{question}\n{consequence}\n\ny  yes     n  no"

    def compose(self) -> ComposeResult:
        """The question."""
        with Vertical(classes="dialog"):
            yield Static(self._text, markup=False)

    def action_answer(self, agreed: bool) -> None:
        """Answer, and go back."""
        self.dismiss(agreed)


class Help(ModalScreen[None]):
    """The keys, until one is pressed."""

    BINDINGS = [Binding("escape,q,question_mark,enter,space", "dismiss", "back")]  # noqa: RUF012 - textual's own

    def compose(self) -> ComposeResult:
        """The keys."""
        with Vertical(classes="dialog") as box:
            box.border_title = "keys"
            yield Static(HELP, markup=False)


# --- The first lines of the view: which daemon, what it does, and what is wrong.


def headline(state: LiveState, address: str) -> str:
    """The daemon, and its work in a few words."""
    counts = state.status.get("queue") or {}
    work = [f"{count} {name}" for name, count in counts.items() if count] or ["no jobs"]
    version = f" {state.status['version']}" if state.status.get("version") else ""
    windows = (state.status.get("windows") or {}).get("summary", "")
    tuning = f", tuning window {windows}" if windows and not str(windows).startswith("none") else ""
    return plain_line(f"tuner top: daemon{version} at {address}, {', '.join(work)}{tuning}")


def warning(state: LiveState) -> str:
    """Return the reason that the daemon is away, else its problems; empty for none."""
    troubles = [*map(str, state.status.get("troubles") or ()), state.not_understood]
    if state.away:
        troubles = [f"the daemon is away, and is looked for: {state.away}"]
    return plain_line("; ".join(filter(None, troubles)).replace("\n", "; "))


# --- A part of the view: a table with the details of its chosen row.

MOST_ROWS = 200
"""Rows of a table: those first in its order."""

_STYLES = {"best": "bold green", "bad": "red"}


class RowTable(DataTable[Text]):
    """A table that is moved through by the keys of `less`, too."""

    BINDINGS = [  # noqa: RUF012 - textual's own
        Binding("j", "cursor_down", "down", show=False),
        Binding("k", "cursor_up", "up", show=False),
        Binding("g", "scroll_top", "first", show=False),
        Binding("G", "scroll_bottom", "last", show=False),
    ]

    def on_focus(self) -> None:
        """The keys come here: the cursor is shown."""
        self.show_cursor = True

    def on_blur(self) -> None:
        """They go elsewhere: the row has its own colour again."""
        self.show_cursor = False


class Pane(Vertical):
    """A titled table of rows, and below it the details of the row under the cursor.

    Args:
        name: of the pane, which is its id, too.
        number: the key that leads to it.
    """

    def __init__(self, name: str, number: int) -> None:
        super().__init__(id=name, classes="pane")
        self.number = number
        self.arrangement = Arrangement()
        self._listing = Listing(name, (), ())
        self._rows: list[Row] = []
        self._drawn: object = None

    def compose(self) -> ComposeResult:
        """The table, and the details."""
        yield RowTable(cursor_type="row", cell_padding=0, show_cursor=False)
        yield Static("", classes="details", markup=False)

    @property
    def table(self) -> RowTable:
        """The table."""
        return self.query_one(RowTable)

    @property
    def columns(self) -> int:
        """Characters of a line of the table."""
        return max(self.table.size.width - 1, 1)  # the scroll bar

    @property
    def listed_columns(self) -> int:
        """Number of columns of the table, shown or left out."""
        return len(self._listing.columns)

    @property
    def chosen(self) -> Row | None:
        """The row under the cursor; None where there is none."""
        place = self.table.cursor_row
        return self._rows[place] if 0 <= place < len(self._rows) else None

    def show(self, listing: Listing) -> None:
        """Draw a listing in the chosen arrangement; the cursor stays on its row, or on the first."""
        self._listing = listing
        rows = arranged(listing.rows, self.arrangement)
        shown = rows[:MOST_ROWS]
        first = f"first {len(shown)} of {len(rows):,}" if len(shown) < len(rows) else ""
        chosen = ", ".join(filter(None, (self.arrangement.words(listing.columns), first)))
        title = listing.title[:1].upper() + listing.title[1:]
        self.border_title = escape(f"[{self.number}] {f'({chosen}) ' if chosen else ''}{title}")
        self.border_subtitle = escape(listing.caption)
        drawn = (listing.columns, shown, self.columns, bool(rows))
        if drawn != self._drawn:
            self._drawn = drawn
            self._draw(listing, shown)
        self._show_details()

    def _draw(self, listing: Listing, rows: list[Row]) -> None:
        table, width = self.table, self.columns
        chosen, place = self.chosen, table.cursor_row
        at_first, above = place <= 0, table.scroll_y
        self._rows = rows
        widths = fitted(listing.columns, rows, width)
        table.clear(columns=True)
        for column, size in widths:
            head = aligned(listing.columns[column].name, size, right=listing.columns[column].right)
            table.add_column(Text(head), width=size + gap(width))
        for row in rows:
            style = _STYLES.get(row.style, "")
            table.add_row(*(Text(cell, style) for cell in line(row, listing.columns, widths)))
        if chosen is not None and not at_first:  # who is at the first row sees what comes
            now = next((number for number, row in enumerate(rows) if row.key == chosen.key), place)
            table.move_cursor(row=now, scroll=False)
            table.scroll_to(y=above + now - place, animate=False, immediate=True)

    def _show_details(self) -> None:
        filtered = "no row has it; / and enter show all" if self.arrangement.text else ""
        chosen = self.chosen
        words = chosen.details if chosen is not None else filtered or self._listing.empty
        self.query_one(".details", Static).update(words)

    def on_data_table_row_highlighted(self) -> None:
        """Another row is under the cursor."""
        self._show_details()


# --- The view.

STYLE = """
Screen { layout: vertical; overflow: hidden; background: ansi_default; }
#headline { height: 1; text-style: bold; text-overflow: ellipsis; text-wrap: nowrap; }
#warning { height: auto; max-height: 3; color: ansi_red; text-style: bold; display: none; }
#filter { dock: bottom; height: 1; margin-bottom: 1; display: none; border: none; }
.pane { border: round ansi_bright_black; border-title-style: bold; height: 1fr; min-height: 4; }
.pane:focus-within { border: round ansi_green; }
.pane .details { height: auto; max-height: 3; color: ansi_bright_black; }
RowTable { height: 1fr; background: ansi_default; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; }
#devices { height: auto; }
#trials { height: 2fr; }
#devices RowTable { height: auto; max-height: 13; }
RowTable:nocolor > .datatable--cursor { text-style: reverse; }
RowTable > .datatable--header { background: ansi_default; color: ansi_cyan; text-style: none; }
.-low .pane { display: none; }
.-low #devices RowTable { max-height: 5; }
.-low #devices .details { max-height: 2; }
.-low #devices, .-low .pane.-shown { display: block; }
Question, Help { align: center middle; background: transparent; }
.dialog { width: auto; max-width: 76; height: auto; border: round ansi_yellow; padding: 0 1; }
.dialog Static { width: auto; max-width: 72; }
"""


DRAWN_EVERY_S = 1.0
ANSWERS_EVERY_S = 60.0  # they go stale without an event

_PANES = (DEVICES, JOBS, TRIALS, ANSWERS)


class TerminalView(App[None]):
    """Devices, jobs, trials and answers of the daemon, until the user leaves.

    Args:
        client: of the daemon; asked for answers, and told what the user wants done with jobs.
        events: of the daemon.
    """

    TITLE = "tuner top"
    CSS = STYLE
    ENABLE_COMMAND_PALETTE = False
    VERTICAL_BREAKPOINTS = [(0, "-low"), (34, "-high")]  # noqa: RUF012 - textual's own
    BINDINGS = [  # noqa: RUF012 - textual's own
        Binding("1", "pane(1)", "panes", key_display="1-4"),
        *(Binding(str(number), f"pane({number})", show=False) for number in range(2, 5)),
        Binding("tab", "next_pane(1)", "next", show=False, priority=True),
        Binding("shift+tab", "next_pane(-1)", "previous", show=False, priority=True),
        Binding("c", "cancel", "cancel"),
        Binding("p", "pause", "pause/resume"),
        Binding("s", "sort", "sort"),
        Binding("S", "turn", "turn", show=False),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("escape", "unfilter", "show all", show=False),
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("q", "quit", "quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
    ]

    def __init__(self, client: Client, events: EventReader) -> None:
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"
        self.state = LiveState()
        self._trial_rows = TrialRows()
        self._client = client
        self._events = events
        self._chosen: int | None = None  # the job whose trials are shown; None for the one that runs
        self._current = JOBS
        self._inquiries = Inquiries(client, self._in_thread, self.call_from_thread)

    # --- what is drawn ----------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """Two lines of words, the panes, the filter and the keys."""
        yield Static("", id="headline", markup=False)
        yield Static("", id="warning", markup=False)
        for number, name in enumerate(_PANES, start=1):
            yield Pane(name, number)
        yield Input(id="filter", placeholder="show rows with ... (enter; esc for all)", compact=True)
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        """Begin to follow the daemon."""
        self._events.start()
        self.set_interval(DRAWN_EVERY_S, self.catch_up)
        self.set_interval(ANSWERS_EVERY_S, self.ask_for_answers)
        self._enter(JOBS)
        self.ask_for_answers()

    def on_unmount(self) -> None:
        """Follow no more: the daemon need not sample power for this view."""
        self._events.close()

    def on_resize(self) -> None:
        """Fit the tables to another width."""
        self.call_after_refresh(self.draw, live_state.ALL)

    def catch_up(self) -> None:
        """Take in what has come, and draw what has changed."""
        changed: set[str] = set()
        for event in self._events.take():
            if isinstance(event, TunerError):
                self.state.away = str(event)
                changed.add(HEAD)
            else:
                changed |= self.state.take(event)
        if ANSWERS in changed:
            self.ask_for_answers()
        self.draw(changed)

    def draw(self, parts: Collection[str]) -> None:
        """Draw parts of the view anew, those that are shown."""
        if HEAD in parts:
            self._static("headline").update(headline(self.state, str(self._client.address)))
            trouble = warning(self.state)
            self._static("warning").update(trouble)
            self._static("warning").display = bool(trouble)
        for pane in (self._pane(name) for name in _PANES if name in parts):
            if pane.display and pane.table.size.width:
                pane.show(self._listing(pane))

    def _listing(self, pane: Pane) -> Listing:
        """Return the present contents of a pane."""
        if pane.id == DEVICES:
            return device_listing(self.state, pane.columns)
        if pane.id == JOBS:
            return job_listing(self.state)
        if pane.id == TRIALS:
            self._ask_for_trials()
            return self._trial_rows.listing(self.state, self._chosen)
        return answer_listing(self.state)

    def _static(self, name: str) -> Static:
        return self.screen_stack[0].query_one(f"#{name}", Static)

    def _pane(self, name: str) -> Pane:
        return self.screen_stack[0].query_one(f"#{name}", Pane)

    # --- panes, order and filter ------------------------------------------------------------------------

    def _enter(self, name: str) -> None:
        """Give a pane the keys; on a low terminal it takes the place of the one before."""
        if name != DEVICES:
            for other in _PANES:
                self._pane(other).set_class(other == name, "-shown")
        self._current = name
        self.query_one("#filter", Input).display = False
        self._pane(name).table.focus()
        self.call_after_refresh(self.draw, (name,))  # when it has its size

    def on_descendant_focus(self) -> None:
        """The mouse may have chosen another pane."""
        focused = (name for name in _PANES if self._pane(name).table.has_focus)
        self._current = next(focused, self._current)

    def action_pane(self, number: int) -> None:
        """Go to a pane."""
        self._enter(_PANES[number - 1])

    def action_next_pane(self, step: int) -> None:
        """Go to the next pane, or to the one before."""
        if len(self.screen_stack) == 1:  # no question is open
            self._enter(_PANES[(_PANES.index(self._current) + step) % len(_PANES)])

    def action_sort(self) -> None:
        """Sort the pane by its next column."""
        pane = self._pane(self._current)
        pane.arrangement = pane.arrangement.sorted_by_next(pane.listed_columns)
        self.draw((self._current,))

    def action_turn(self) -> None:
        """Turn the order of the pane."""
        pane = self._pane(self._current)
        pane.arrangement = pane.arrangement.turned()
        self.draw((self._current,))

    def action_filter(self) -> None:
        """Ask for a text that rows must have."""
        box = self.query_one("#filter", Input)
        box.value = self._pane(self._current).arrangement.text
        box.display = True
        box.focus()

    def action_unfilter(self) -> None:
        """Show all rows of the pane."""
        self._filter("")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Filter the pane."""
        self._filter(event.value)

    def _filter(self, text: str) -> None:
        self.query_one("#filter", Input).display = False
        pane = self._pane(self._current)
        pane.arrangement = replace(pane.arrangement, text=text.strip())
        pane.table.focus()
        self.draw((self._current,))

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(Help())

    # --- jobs -------------------------------------------------------------------------------------------

    def on_data_table_row_selected(self) -> None:
        """Show the trials of the job under the cursor."""
        job = self._job() if self._current in (JOBS, DEVICES) else None
        if job is not None:
            self._chosen = job.id
            self.draw((TRIALS,))
            self._enter(TRIALS)

    def _job(self) -> Job | None:
        """The job that the user means, in the present pane; None where there is none."""
        row = self._pane(self._current).chosen
        if self._current == TRIALS:
            return self.state.shown_job(self._chosen)
        if row is None:
            return None
        if self._current == JOBS:
            return self.state.jobs.get(int(row.key))
        running = self.state.devices.get(row.key, {}).get("job") if self._current == DEVICES else None
        return self.state.jobs.get(running) if isinstance(running, int) else None

    def action_cancel(self) -> None:
        """Cancel a job, after a question."""
        self._change(CANCEL, self._job())

    def action_pause(self) -> None:
        """Pause a job, or resume one that is paused, after a question."""
        job = self._job()
        self._change(pause_or_resume(job), job)

    def _change(self, verb: str, job: Job | None) -> None:
        refusal = why_not(verb, job)
        if job is None or refusal:
            self._say(refusal, False)
            return

        def answered(agreed: bool | None) -> None:
            if agreed:
                self._inquiries.change(verb, job.id, self._say)

        self.push_screen(Confirmation(question(verb, job), CONSEQUENCES[verb]), answered)

    def _say(self, words: str, done: bool) -> None:
        self.notify(plain(words), severity="information" if done else "warning", markup=False)

    # --- what is asked for -------------------------------------------------------------------------------

    def ask_for_answers(self) -> None:
        """Ask for the answers that are served."""
        self._inquiries.answers(self._take_answers)

    def _take_answers(self, answers: list[ServedAnswer]) -> None:
        self.state.answers = list(answers)
        self.draw((ANSWERS,))

    def _ask_for_trials(self) -> None:
        """Ask for the trials of the job that is shown, where the stream has none: it does not run."""
        job = self.state.shown_job(self._chosen)
        if job is None or job.run is None or job.state == JobState.RUNNING:
            return
        search = self.state.search(job.id)
        if not search.trials and not search.asked:
            search.asked = True
            self._inquiries.trials(job.run, lambda trials: self._take_trials(search, trials), self._say)

    def _take_trials(self, search: LiveSearch, trials: list[TrialData]) -> None:
        for trial in trials:
            search.take(trial)
        self.draw((TRIALS,))

    def _in_thread(self, work: Callable[[], None]) -> None:
        # what comes back when the view has ended cannot be shown, and is no error
        self.run_worker(work, thread=True, exit_on_error=False)
