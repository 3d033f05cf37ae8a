"""A question before a job is changed, and the keys."""

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

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
