"""The table of a training: how well each method predicts inputs it has not seen."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tuner.report.progress import RunProgress

if TYPE_CHECKING:
    from tuner.search.tuning import TuningResult


_TITLES = (
    "method",
    "inputs",
    "exact",
    "within 2 %",
    "5 %",
    "10 %",
    "mean",
    "worst",
    "best of 4 within 5 %",
    "mean",
)


class TrainingProgress(RunProgress):
    """The progress of a training: the input, its run, and the inputs that were left out."""

    def __init__(self, objective: str) -> None:
        super().__init__(objective)
        self._input = ""

    def begins(self, number: int, total: int, workload: str) -> None:
        """An input is looked at."""
        self._input = f"{workload} ({number}/{total}): "
        self._compiled, self._measuring = 0, False

    def ended(self, number: int, total: int, tuned: "TuningResult") -> None:
        """An input was looked at."""
        self.told(f"input {number} of {total}: {_line(tuned)}")
        self._input = ""

    def judged(self, number: int, total: int) -> None:
        """So many inputs were left out and predicted."""
        self._show("leaving inputs out", number, total, "")

    def _show(self, phase: str, done: int, total: int | None, detail: str) -> None:
        super()._show(f"{self._input}{phase}", done, total, detail)


def _line(tuned: "TuningResult") -> str:
    """What came of one input."""
    outcome, document = tuned.outcome, tuned.document
    name, measured = document["workloads"][0]["name"], len(outcome.trials)
    best = document["best"]
    if best is None:
        return f"{name}: no valid trial of {measured}"
    values = best["configurations"][name]
    shown = " ".join(f"{key}={value}" for key, value in values.items())
    return f"{name}: {measured} trials, {shown}"


def show_training(document: Mapping[str, Any], console: Console) -> None:
    """Print what a training learned.

    Args:
        document: as ``--json`` has it.
        console: where.
    """
    kind = "modelled: a simulated device made the numbers" if document["device"]["modelled"] else "measured"
    console.print(
        Text(
            f"{document['kernel']} on {document['device']['name']}, {kind}; for {document['objective']}",
            style="bold",
        )
    )
    console.print(
        Text(
            f"{document['inputs']} inputs, {document['trials']} trials in all;"
            f" this training measured {document['looked_at']} inputs with {document['evaluations']} trials"
            f" in {document['seconds']:.1f} s, {document['known']} were known"
        )
    )
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in _TITLES:
        table.add_column(title, justify="left" if title == "method" else "right")
    for name, one in document["accuracy"].items():
        shares = (one["exact"], *one["within"])
        table.add_row(
            name,
            str(one["inputs"]),
            *map(_percent, shares),
            *map(_factor, (one["mean"], one["worst"])),
            _percent(one["within_of_first"][1]),
            _factor(one["mean_of_first"]),
        )
    console.print(table)
    console.print(
        Text("each input predicted from the others alone; mean and worst: its cost by that of the best")
    )
    for place, version in enumerate(document["versions"]):
        shown = " ".join(f"{key}={value}" for key, value in version.items())
        console.print(Text(f"version {place}: {shown}"))
    console.print(Text(f"kept: {document['claim']}"))


def _percent(share: float | None) -> str:
    return "–" if share is None or math.isnan(share) else f"{100 * share:.0f} %"


def _factor(value: float | None) -> str:
    return "–" if value is None or math.isnan(value) else f"{value:.3f}"
