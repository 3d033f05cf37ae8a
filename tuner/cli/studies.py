"""``tuner compare``: policies compared with the exhaustive ground truth."""

import os
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli.lifecycle import orderly_stop
from tuner.cli.options import database_option, kernel_option, search_option
from tuner.cli.output import console, echo, json_option, writable, write_json
from tuner.model.errors import InputError, RunInterrupted

if TYPE_CHECKING:
    from tuner.comparing.choices import Group
    from tuner.model.objective import Objective
    from tuner.model.records import Conditions
    from tuner.model.run_document import RunDocument
    from tuner.report.progress import CompareProgress
    from tuner.search.answer import SearchOutcome
    from tuner.search.request import Request
    from tuner.search.task import Task
    from tuner.studies.comparison import Play, Rules
    from tuner.studies.measured_spaces import Truth


_REPLAY = "replay:"
_SEEDS = 10  # fewer say little about a policy that draws at random
_BUDGET = 200  # evaluations: a policy that has not ended by then was not worth running on the GPUs at hand


@dataclass
class _ComparisonSetup:
    """What there is so far, also when the user stops it."""

    objective: "Objective"
    truths: list["Truth"] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    plays: list["Play"] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    status: str = "interrupted"

    def take(self, truth: "Truth") -> None:
        """Keep a ground truth, or the reason why no policy can be compared on it."""
        reason = truth.unusable(self.objective)
        if reason:
            self.left_out.append(reason)
            return
        self.truths.append(truth)
        if truth.missing:
            self.notices.append(
                f"{truth.name}: {truth.missing:,} trials of its space are not known and count as failed"
            )


@click.command()
@click.argument("workloads", nargs=-1, metavar="[WORKLOAD]...")
@click.option(
    "--policies",
    "policy_words",
    metavar="LIST",
    help="Names, separated by commas; name:option=value sets an option of a policy. Default: all of them.",
)
@click.option(
    "--seeds",
    type=click.IntRange(min=1, max=10_000),
    metavar="N",
    default=_SEEDS,
    show_default=True,
    help="Searches of each policy on each space, each with another seed.",
)
@search_option("objective", default="time", text="What to minimise: time, energy, edp or ed2p.")
@click.option(
    "--device",
    metavar="SPEC",
    default="replay:h200",
    show_default=True,
    help="replay:h200 or replay:FILE; on cuda:N, sim:NAME an exhaustive run is the ground truth.",
)
@search_option("budget", default=_BUDGET, text="Maximum evaluations of a search.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1, max=1024),
    metavar="N",
    help="Processes for the evaluation. Default: one per CPU.",
)
@click.option("--plot", "plot_path", metavar="FILE", callback=writable, help="Draw it: .png, .svg or .pdf.")
@search_option("sensor")
@kernel_option
@database_option
@json_option
def compare(
    workloads: tuple[str, ...],
    *,
    policy_words: str | None,
    seeds: int,
    objective: str,
    device: str,
    budget: int,
    jobs: int | None,
    plot_path: str | None,
    sensor: str | None,
    kernel_files: tuple[Path, ...],
    database: Path | None,
    json_path: str | None,
) -> None:
    """Compare policies with the best of all trials.

    A WORKLOAD is a kernel at a problem size, e.g. fft:N=1024; a bare kernel such as fft stands for all its
    sizes, and a+b for workloads that run together. Without any, all spaces of a recording are taken. On a GPU
    or a simulated one every trial is measured first, once: the run is kept in the database.
    """
    from tuner.comparing.choices import policies
    from tuner.model.objective import of_one_cost
    from tuner.studies.comparison import Rules

    rules = Rules(policies(policy_words), seeds, objective, budget)
    _check_plot(plot_path)
    found = _ComparisonSetup(of_one_cost(objective, "tuner compare"))
    if seeds < _SEEDS:
        found.notices.append(
            f"--seeds {seeds}: fewer than {_SEEDS} say little of policies that draw at random"
        )
    try:
        with orderly_stop(), _progress(objective) as progress:
            if device.startswith(_REPLAY):
                _recorded(found, workloads, device)
                _announce([truth.group for truth in found.truths], rules, progress)
            else:
                asked = _request(objective, sensor, kernel_files)
                _measured(found, workloads, asked, progress, rules=rules, device=device, database=database)
            _play(found, rules, jobs or os.cpu_count() or 1, progress)
        found.status = "finished"
    except RunInterrupted:
        found.notices.append(
            "interrupted: this is what was known; the figures of an operation are of those sizes on which all"
            " searches of every policy shown had ended"
        )
    _tell(found, rules, json_path, plot_path)


def _check_plot(path: str | None) -> None:
    """Refuse a plot that cannot be drawn before the evaluation begins."""
    if path is None:
        return
    from tuner.report.power_plot import FORMATS, need_matplotlib

    if Path(path).suffix not in FORMATS:
        raise InputError(f"--plot {path}: the name must end in one of {', '.join(FORMATS)}")
    need_matplotlib()


def _progress(objective: str) -> "CompareProgress":
    from tuner.report.progress import CompareProgress

    return CompareProgress(objective)


def _request(objective: str, sensor: str | None, kernel_files: Sequence[Path]) -> "Request":
    from tuner.search.request import Request

    return Request(objective=objective, sensor=sensor, kernel_files=kernel_files)


def _announce(
    groups: Sequence["Group"], rules: "Rules", progress: "CompareProgress", before: str = ""
) -> None:
    """Say how much is going to be done."""
    from tuner.studies.compare_report import plan

    if groups:
        progress.told(plan(groups, rules) + before)


def _recorded(found: _ComparisonSetup, words: Sequence[str], device: str) -> None:
    """Take the ground truths of a recording."""
    from tuner.comparing.choices import recorded_groups
    from tuner.recordings.opening import open_recording
    from tuner.studies.measured_spaces import Truth

    recording = open_recording(device.removeprefix(_REPLAY))
    for group in recorded_groups(words, recording.names, device):
        found.take(Truth(group, recording.space(group), "recorded"))


def _measured(
    found: _ComparisonSetup,
    words: Sequence[str],
    request: "Request",
    progress: "CompareProgress",
    *,
    rules: "Rules",
    device: str,
    database: Path | None,
) -> None:
    """Take the ground truths of exhaustive runs, and make those that the database lacks."""
    from tuner.comparing.choices import TOGETHER, catalog_groups
    from tuner.database.runs import Store
    from tuner.kernel_files.catalog import Catalog
    from tuner.search.document import WallTime, document
    from tuner.studies.ground_truth import TruthProgress, measured

    catalog = Catalog.load(request.kernel_files)
    watch = TruthProgress(progress.compiled, progress.measured, progress.warming)

    def describe(
        task: "Task", conditions: "Conditions", outcome: "SearchOutcome", prepare_s: float
    ) -> "RunDocument":
        return document(task, conditions, outcome, WallTime(prepare_s, outcome.wall_s), with_trials=False)

    with Store(database) as store:
        groups = catalog_groups(words, catalog)
        _announce(groups, rules, progress, "; before, every trial is measured that no stored run has")
        for number, group in enumerate(groups, start=1):
            progress.space(TOGETHER.join(group), number, len(groups))
            truth = measured(
                group, request, device, catalog=catalog, store=store, watch=watch, describe=describe
            )
            found.take(truth)


def _play(found: _ComparisonSetup, rules: "Rules", jobs: int, progress: "CompareProgress") -> None:
    """Evaluate all policies on all spaces."""
    from tuner.studies.comparison import play_all

    if not found.truths:
        raise InputError("\n".join(found.left_out))
    progress.searches([len(truth.trials) for truth in found.truths], len(rules.policies) * rules.seeds)
    playing = play_all([truth.space for truth in found.truths], rules, jobs)
    with closing(playing):
        for play in playing:
            found.plays.append(play)
            where, who = found.truths[play.job.space].name, rules.policies[play.job.policy].label
            progress.searched(play.job.space, f"{who} on {where}")


def _tell(found: _ComparisonSetup, rules: "Rules", json_path: str | None, plot_path: str | None) -> None:
    """Write, draw and print the results so far, and end with the right exit code."""
    from tuner.studies.compare_report import show_comparison
    from tuner.studies.ground_truth import provenance
    from tuner.studies.scores import document

    notices = [*found.notices, *(f"left out: {reason}" for reason in found.left_out)]
    record = document(
        found.truths, found.plays, rules, status=found.status, provenance=provenance(), notices=notices
    )
    try:
        if json_path is not None:
            write_json(json_path, record)
        if plot_path is not None and any(operation["policies"] for operation in record["operations"]):
            from tuner.studies.compare_report import draw_comparison

            draw_comparison(record, Path(plot_path))
    finally:  # a full disk costs no tables
        show_comparison(record, console(json_path))
    if found.status == "interrupted":
        sys.exit(RunInterrupted.exit_code)
    if any(play.error for play in found.plays):
        echo("Error: a policy raised; the lines above say which, on what and why", err=True)
        sys.exit(1)
