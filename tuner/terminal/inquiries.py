"""What a view asks of the daemon beside its stream, in threads: a slow daemon does not stop the keys."""

import threading
from collections.abc import Callable
from typing import Any

from tuner.client.client import Client
from tuner.client.values import ServedAnswer
from tuner.model.errors import TunerError
from tuner.terminal.job_changes import changed
from tuner.terminal.state import Data
from tuner.terminal.stored_trials import stored_trials


class Inquiries:
    """Requests of a view; what comes back is handed to the view.

    Args:
        client: of the daemon.
        in_thread: does work in a thread.
        in_view: called in such a thread, calls a function of the view.
    """

    def __init__(
        self, client: Client, in_thread: Callable[[Callable[[], None]], None], in_view: Callable[..., Any]
    ) -> None:
        self._client = client
        self._in_thread = in_thread
        self._in_view = in_view
        self._asking = threading.Lock()

    def answers(self, take: Callable[[list[ServedAnswer]], None]) -> None:
        """Ask for the answers that are served, unless that is being done."""

        def work() -> None:
            with self._asking:
                try:
                    answers = self._client.archive.answers()
                except TunerError:
                    return  # the stream says why; they are asked for again when the daemon is back
            self._in_view(take, answers)

        if not self._asking.locked():
            self._in_thread(work)

    def trials(self, run: int, take: Callable[[list[Data]], None], say: Callable[[str, bool], None]) -> None:
        """Ask for the stored trials of a run; what prevents it is said."""

        def work() -> None:
            try:
                trials = list(stored_trials(self._client, run))
            except TunerError as error:
                self._in_view(say, str(error), False)
                return
            self._in_view(take, trials)

        self._in_thread(work)

    def change(self, verb: str, job: int, say: Callable[[str, bool], None]) -> None:
        """Have a job changed; what became of it is said."""
        self._in_thread(lambda: self._in_view(say, *changed(self._client, verb, job)))
