"""How benchmarks against NVIDIA's libraries measure rows: one after another, written as they come."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linalg_operations import Case

from tuner.model.errors import TunerError

LEAST_S = 1.0  # of a row's search
Document = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """What rows have in common.

    Attributes:
        cp: CuPy.
        opened: compiles what a row begins with.
        measured: the row, from what was opened and from seconds for its search.
        line: of the row, for the terminal.
        budget_s: for a row, with its search.
        ends_s: on the monotonic clock; rows that would begin later are left out.
        out: where the document is written after every row; None for nowhere.
        ahead: open a row in another thread while the one before is measured. Not where Python is busy with
            it: the thread that measures would wait for the interpreter between its events.
    """

    cp: Any
    opened: Callable[[Case], Any]
    measured: Callable[[Any, float], Document]
    line: Callable[[Document], str]
    budget_s: float
    ends_s: float
    out: Path | None
    ahead: bool = True

    def rows(self, cases: Sequence[Case], document: Document) -> int:
        """Measure all rows into a document; the exit code."""
        thread = ThreadPoolExecutor(1)
        opening: Future[Any] | None = None
        try:
            for place, case in enumerate(cases):
                left_s = self.ends_s - time.monotonic()
                if left_s <= 0:
                    document["left_out"] = [vars(one) for one in cases[place:]]
                    break
                budget_s = max(LEAST_S, min(self.budget_s, left_s / (len(cases) - place)))
                begun_s = time.monotonic()
                try:
                    opened = (opening or thread.submit(self.opened, case)).result()
                except TunerError as error:
                    _failed(document, case, str(error))
                    opened = None
                following = cases[place + 1 : place + 2] if self.ahead else []
                opening = thread.submit(self.opened, following[0]) if following else None
                if opened is not None:
                    waited_s = time.monotonic() - begun_s
                    self._row(case, opened, max(LEAST_S, budget_s - waited_s), document)
                write(self.out, document)
        except KeyboardInterrupt:
            print("interrupted; the rows so far are kept", file=sys.stderr)
            return 130
        finally:
            thread.shutdown(wait=False, cancel_futures=True)
            write(self.out, document)
        return 0

    def _row(self, case: Case, opened: Any, budget_s: float, document: Document) -> None:
        refusals = (self.cp.cuda.driver.CUDADriverError, self.cp.cuda.runtime.CUDARuntimeError)
        try:
            row = self.measured(opened, budget_s)
        except (TunerError, RuntimeError, MemoryError, ValueError, *refusals) as error:
            _failed(document, case, f"{type(error).__name__}: {error}")
        else:
            document["rows"].append(row)
            print(self.line(row), flush=True)
        self.cp.get_default_memory_pool().free_all_blocks()


def _failed(document: Document, case: Case, why: str) -> None:
    document["failed"].append({**vars(case), "why": why})
    print(f"{case}: {why}", flush=True)


def write(path: Path | None, document: Document) -> None:
    """The document as JSON."""
    if path is not None:
        path.write_text(json.dumps(document, indent=1) + "\n")


def summary(document: Document) -> str:
    """How many rows there are, and what became of them."""
    rows = document["rows"]
    met = sum(row["met"] is True for row in rows)
    asked = sum(row["met"] is not None for row in rows)
    wrong = sum(bool(row["wrong"]) or not row["correct"] for row in rows)
    return (
        f"{len(rows)} rows: {met} of {asked} targets met; {wrong} with wrong answers;"
        f" {len(document['failed'])} failed; {len(document['left_out'])} left out for want of time"
    )


def seconds(text: str) -> float:
    """Of an option.

    Raises:
        argparse.ArgumentTypeError: they are not finite, or not above 0.
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} are no seconds; they must be above 0")
    return value


def order(least: int, most: int) -> Callable[[str], int]:
    """Makes orders of matrices of an option's words.

    Raises:
        argparse.ArgumentTypeError: a word is no whole number within the limits.
    """

    def parsed(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is no order; orders are {least} to {most}")
        return int(text)

    return parsed
