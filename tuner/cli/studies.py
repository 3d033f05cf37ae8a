"""``tuner sweep``, ``train`` and ``compare``: many searches."""

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli.main import orderly_stop
from tuner.cli.options import (
    NamedPath,
    database_option,
    device_option,
    kernel_option,
    named_database,
    search_option,
    with_files,
)
from tuner.cli.output import console, echo, json_option, writable, write_json
from tuner.cli.remote import client_of, socket_option
from tuner.model.errors import DaemonAbsentError, DaemonUnavailableError, InputError, RunInterrupted
from tuner.model.options import SearchOptions

if TYPE_CHECKING:
    from tuner.devices.base import Device
    from tuner.kernel_files.kernel_file import KernelFile
    from tuner.model.objective import Objective
    from tuner.pool.places import PoolPlace
    from tuner.prediction.training_set import Sizes
    from tuner.report.progress import CompareProgress
    from tuner.search.request import SearchRequest
    from tuner.studies.comparison import Play, Rules
    from tuner.studies.scores import Truth
    from tuner.studies.sweep import Backend
    from tuner.studies.sweep_file import SweepFile


_REPLAY = "replay:"
_SEEDS = 10  # fewer say little about a policy that draws at random
_BUDGET = 200  # evaluations: a policy that has not ended by then was not worth running on the GPUs at hand


@dataclass
class _Comparison:
    """Progress of a comparison, also when the user stops it."""

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
@search_option("budget", default=_BUDGET, text="Maximum trials of a search.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1, max=1024),
    metavar="N",
    help="Processes that search. Default: one per CPU.",
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
    from tuner.model.objective import of_one_cost
    from tuner.recordings.files import open_recording
    from tuner.report.progress import CompareProgress
    from tuner.search.request import SearchRequest
    from tuner.studies.comparison import Rules, policies, recorded_groups
    from tuner.studies.reports import plan
    from tuner.studies.scores import Truth

    rules = Rules(policies(policy_words), seeds, objective, budget)
    if plot_path is not None:
        from tuner.report.power_tables import check_picture

        check_picture(Path(plot_path))
    comparison = _Comparison(of_one_cost(objective, "tuner compare"))
    if seeds < _SEEDS:
        comparison.notices.append(
            f"--seeds {seeds}: fewer than {_SEEDS} say little of policies that draw at random"
        )
    try:
        with orderly_stop(), CompareProgress(objective) as progress:
            if device.startswith(_REPLAY):
                recording = open_recording(device.removeprefix(_REPLAY))
                for group in recorded_groups(workloads, recording.names, device):
                    comparison.take(Truth(group, recording.space(group), "recorded"))
                if comparison.truths:
                    progress.told(plan([truth.group for truth in comparison.truths], rules))
            else:
                request = SearchRequest(objective=objective, sensor=sensor, kernel_files=kernel_files)
                _measure(
                    comparison, workloads, request, progress, rules=rules, device=device, database=database
                )
            _play(comparison, rules, jobs or os.cpu_count() or 1, progress)
        comparison.status = "finished"
    except RunInterrupted:
        comparison.notices.append(
            "interrupted: this is what was known; the figures of an operation are of those sizes on which all"
            " searches of every policy shown had ended"
        )
    _show(comparison, rules, json_path, plot_path)


def _measure(
    comparison: _Comparison,
    words: Sequence[str],
    request: "SearchRequest",
    progress: "CompareProgress",
    rules: "Rules",
    *,
    device: str,
    database: Path | None,
) -> None:
    """Take the ground truths of exhaustive runs, and make those that the database lacks."""
    from tuner.database.runs import Store
    from tuner.kernel_files.catalog import Catalog
    from tuner.studies.comparison import TOGETHER, catalog_groups
    from tuner.studies.reports import plan
    from tuner.studies.scores import measured

    catalog = Catalog.load(request.kernel_files)
    with Store(database) as store:
        groups = catalog_groups(words, catalog)
        if groups:
            before = "; before, every trial is measured that no stored run has"
            progress.told(plan(groups, rules) + before)
        for number, group in enumerate(groups, start=1):
            progress.space(TOGETHER.join(group), number, len(groups))
            truth = measured(group, request, device, catalog=catalog, store=store, listener=progress)
            comparison.take(truth)


def _play(comparison: _Comparison, rules: "Rules", jobs: int, progress: "CompareProgress") -> None:
    """Evaluate all policies on all spaces."""
    from tuner.studies.comparison import play_all

    if not comparison.truths:
        raise InputError("\n".join(comparison.left_out))
    progress.searches([len(truth.trials) for truth in comparison.truths], len(rules.policies) * rules.seeds)
    playing = play_all([truth.space for truth in comparison.truths], rules, jobs)
    with closing(playing):
        for play in playing:
            comparison.plays.append(play)
            where, who = comparison.truths[play.job.space].name, rules.policies[play.job.policy].label
            progress.searched(play.job.space, f"{who} on {where}")


def _show(comparison: _Comparison, rules: "Rules", json_path: str | None, plot_path: str | None) -> None:
    """Write, draw and print the results so far, and end with the right exit code."""
    from tuner.studies.reports import show_comparison
    from tuner.studies.scores import document, provenance

    notices = [*comparison.notices, *(f"left out: {reason}" for reason in comparison.left_out)]
    record = document(
        comparison.truths,
        comparison.plays,
        rules,
        status=comparison.status,
        provenance=provenance(),
        notices=notices,
    )
    try:
        if json_path is not None:
            write_json(json_path, record)
        if plot_path is not None and any(operation["policies"] for operation in record["operations"]):
            from tuner.studies.reports import draw_comparison

            draw_comparison(record, Path(plot_path))
    finally:  # a full disk costs no tables
        show_comparison(record, console(json_path))
    if comparison.status == "interrupted":
        sys.exit(RunInterrupted.exit_code)
    if any(play.error for play in comparison.plays):
        echo("Error: a policy raised; the lines above say which, on what and why", err=True)
        sys.exit(1)


_DAEMON = "daemon"


@click.command(short_help="Run all jobs of a file: kernels, sizes, objectives, devices.")
@click.argument("file", type=NamedPath(dir_okay=False, path_type=Path), metavar="FILE.toml")
@click.option(
    "--on",
    "where",
    default=_DAEMON,
    show_default=True,
    metavar="WHERE",
    help="Where jobs run: daemon; this machine without a daemon, local in a lane for each GPU, local:N in"
    " N lanes; or the workers of dask://HOST:PORT or slurm, as with tuner run --on.",
)
@click.option("--dry-run", is_flag=True, help="Check and list the jobs; run nothing.")
@database_option
@socket_option
@json_option
def sweep(
    file: Path, *, where: str, dry_run: bool, database: Path | None, socket: str | None, json_path: str | None
) -> None:
    """Run every search that FILE.toml stands for, and report them as a whole.

    A job that a finished run has answered under the same conditions is not run again: the same command goes
    on with a sweep that was stopped. A job that fails does not stop the others. Exit code 0 when all jobs
    have an answer, 1 when some failed, 130 after Ctrl-C.
    """
    from tuner.studies.sweep_file import read_sweep

    place = _place(where)
    read = read_sweep(file)
    if dry_run:
        _check_jobs(read, place, socket)
        _list_jobs(read, json_path)
        return
    with orderly_stop(), ExitStack() as stack:
        backend = _backend(read, where, place, stack, database=database, socket=socket)
        code = _run(read, backend, json_path)
    sys.exit(code)


def _place(where: str) -> "PoolPlace | None":
    """Parse the place where jobs run without the daemon; None for the daemon."""
    from tuner.pool.places import parse_place

    if where == _DAEMON:
        return None
    try:
        return parse_place(where)
    except InputError as error:
        raise InputError(
            f"--on {where}: write daemon, local or local:N with N lanes, such as local:4,"
            " dask://HOST:PORT or slurm"
        ) from error


def _backend(
    read: "SweepFile",
    where: str,
    place: "PoolPlace | None",
    stack: ExitStack,
    *,
    database: Path | None,
    socket: str | None,
) -> "Backend":
    """Queues of the daemon, lanes of this machine, or workers of a pool, which the stack closes."""
    if place is None:
        from tuner.studies.sweep_jobs import DaemonQueues

        if named_database() is not None:
            raise InputError("--database: the daemon has its own; leave the option out, or use --on local")
        if read.kernel_files:
            keys = "the daemon reads kernels from its own directories; leave them out, or use --on local"
            raise read.refused([("[sweep] kernel_files", keys)])
        try:
            return DaemonQueues(client_of(socket))
        except DaemonAbsentError as error:
            raise DaemonAbsentError(f"{error}\n--on local runs a sweep without a daemon") from error
    if place.kind == "local":
        from tuner.studies.sweep_jobs import LocalLanes, lanes_for

        if place.workers is None:
            return lanes_for(read.jobs, database, read.kernel_files)
        return LocalLanes(place.workers, database, read.kernel_files)
    from tuner.studies.sweep_pool import open_pool_lanes

    return stack.enter_context(open_pool_lanes(where, database, read.kernel_files))


def _run(read: "SweepFile", backend: "Backend", json_path: str | None) -> int:
    """Run the sweep and show it; returns the exit code."""
    from tuner.studies.reports import SweepProgress, show_sweep
    from tuner.studies.sweep import RefusedJobsError, run_sweep

    try:
        with SweepProgress() as progress:
            report = run_sweep(read.jobs, backend, progress, str(read.path))
    except RefusedJobsError as error:
        raise read.refused(error.refused) from error
    try:
        if json_path is not None:
            write_json(json_path, report.document())
    finally:  # a full disk costs no tables
        show_sweep(report, console(json_path), named_database())
    if report.trouble:
        echo(f"Error: {report.trouble}", err=True)
    if report.interrupted:
        echo("interrupted; what has ended is stored", err=True)
        return RunInterrupted.exit_code
    return 1 if report.failed or report.left else 0


def _check_jobs(read: "SweepFile", place: "PoolPlace | None", socket: str | None) -> None:
    """Refuse jobs that name what is not there: by the daemon, where it would run them and answers.

    Raises:
        InputError: names the keys of the file.
    """
    from tuner.kernel_files.catalog import Catalog
    from tuner.studies.sweep import RefusedJobsError, check_workloads
    from tuner.studies.sweep_jobs import DaemonQueues, LocalDevices

    try:
        if place is None and not read.kernel_files:
            with suppress(DaemonUnavailableError):
                DaemonQueues(client_of(socket)).check(read.jobs)
                return
        catalog = Catalog.load(read.kernel_files)
        check_workloads(read.jobs, catalog)
        if place is not None and place.kind == "local":
            LocalDevices().check_all(read.jobs, catalog)
    except RefusedJobsError as error:
        raise read.refused(error.refused) from error


def _list_jobs(read: "SweepFile", json_path: str | None) -> None:
    if json_path is not None:
        jobs = [
            {
                "group": job.group,
                "workloads": list(job.workloads),
                "objective": job.objective,
                "device": job.device,
                "options": dict(job.options),
            }
            for job in read.jobs
        ]
        document = {
            "sweep": str(read.path),
            "jobs": jobs,
            "excluded": read.excluded,
            "repeated": read.repeated,
        }
        write_json(json_path, document)
    out = console(json_path)
    for job in read.jobs:
        out.print(f"{job.group}: {job.title}", soft_wrap=True)
    beside = [f"{read.excluded} excluded"] if read.excluded else []
    beside += [f"{read.repeated} named twice"] if read.repeated else []
    count = f"{len(read.jobs)} job{'s' if len(read.jobs) > 1 else ''}"
    out.print(", ".join([count, *beside]))


# --- ``tuner train``: measure a kernel at many inputs, and learn which configuration fits which.

_LEAST, _MOST = 2, 10_000


@click.command(short_help="Learn which configuration fits which size of a kernel.")
@click.argument("kernel", metavar="KERNEL")
@click.option(
    "--inputs", default="", metavar="RANGES", help="Where sizes are drawn from: H=2^4..2^16, W=[64, 100]."
)
@click.option(
    "--input", "listed", multiple=True, metavar="SIZES", help="An input, as H=100,W=7; repeated for more."
)
@click.option(
    "--limit", multiple=True, metavar="EXPR", help="What drawn inputs must satisfy, as H * W <= 2**28."
)
@click.option(
    "--count",
    type=click.IntRange(_LEAST, _MOST),
    metavar="N",
    default=48,
    show_default=True,
    help="Inputs that are drawn.",
)
@click.option(
    "--evaluations",
    type=click.IntRange(1),
    metavar="N",
    help="Trials at an input. Default: a fifth of its space, 8 at least.",
)
@click.option(
    "--policy",
    default="predicted",
    show_default=True,
    help="How an input is looked at: predicted (as learned so far), hill-climbing, random or exhaustive.",
)
@click.option(
    "--method", default="forest", show_default=True, help="Of prediction: forest, or g-adapt as in the paper."
)
@search_option("objective", default="time", text="What to minimise: time, energy, edp or ed2p.")
@search_option("seed", default=SearchOptions.seed)
@device_option
@kernel_option
@database_option
@json_option
def train(
    kernel: str,
    *,
    inputs: str,
    listed: tuple[str, ...],
    limit: tuple[str, ...],
    count: int,
    evaluations: int | None,
    policy: str,
    method: str,
    objective: str,
    seed: int,
    device: str | None,
    kernel_files: tuple[Path, ...],
    database: Path | None,
    json_path: str | None,
) -> None:
    """Train KERNEL, a kernel or a kernel file, on many inputs.

    Every input is tuned with a few trials, guided by what the inputs before it have taught. From all trials a
    model is learned that picks one of a few versions for sizes that nobody tuned. `tuner best`, `tuner.apply`
    and the daemon use it; `tuner export --format c-selector` writes it as a C header.

    The same command goes on after an interruption, and uses what other runs have stored.
    """
    from tuner.database.runs import Store
    from tuner.kernel_files.catalog import Catalog
    from tuner.model.objective import of_one_cost
    from tuner.prediction.model import Accuracy, rounded
    from tuner.search.request import SearchRequest
    from tuner.search.setup import open_setup
    from tuner.studies.reports import TrainingProgress, show_training
    from tuner.studies.training import Trainer, TrainingRequest

    (spec,), files = with_files((kernel,), kernel_files)
    catalog = Catalog.load(files)
    name, _, sizes = spec.partition(":")
    if sizes:
        raise InputError(f"{spec}: a training takes a kernel without sizes; write --input {sizes}")
    found = catalog.kernel(name)
    of_one_cost(objective, "tuner train")
    asked = SearchRequest(objective=objective, seed=seed, kernel_files=files)
    asked.check()
    with (
        orderly_stop(),
        TrainingProgress(objective) as progress,
        Store(database) as store,
        open_setup(device, asked, progress.warming) as setup,
    ):
        chosen = _inputs(found, setup.device, inputs, listed, limit, count=count, seed=seed)
        request = TrainingRequest(found.name, chosen, objective, policy, evaluations, method, seed)
        training = Trainer(request, setup, catalog, store, progress).train()
    if json_path is not None:
        model = training.model
        left_out = {
            name: [
                {**one.sizes, "slowdown": one.slowdown, "best_of_first": one.best_of_first}
                for one in predictions
            ]
            for name, predictions in training.left_out.items()
        }
        document = {
            "kernel": model.kernel,
            "device": asdict(model.device),
            "objective": model.objective,
            "method": model.method,
            "inputs": len(training.data.inputs),
            "trials": training.data.trials,
            "looked_at": training.looked_at,
            "known": training.known,
            "evaluations": training.evaluations,
            "seconds": training.seconds,
            "accuracy": {
                name: rounded(asdict(Accuracy.of(predictions)))
                for name, predictions in training.left_out.items()
            },
            "left_out": left_out,
            "versions": [dict(version) for version in model.portfolio.versions],
            "claim": model.claim,
        }
        write_json(json_path, document)
    show_training(training, console(json_path))


def _inputs(
    kernel: "KernelFile",
    device: "Device",
    ranges: str,
    listed: tuple[str, ...],
    limits: tuple[str, ...],
    *,
    count: int,
    seed: int,
) -> "list[Sizes]":
    """The inputs, drawn or listed; drawn ones fit into half of the free memory."""
    from tuner.model.expressions.callables import Expression
    from tuner.search.candidates import plan_bytes
    from tuner.studies.training import draw, drawn_sizes, listed_inputs

    if listed:
        if ranges:
            raise InputError("--inputs and --input: give one of them")
        return listed_inputs(kernel, listed)
    try:
        expressions = [Expression(limit) for limit in limits]
    except InputError as e:
        raise InputError(f"--limit: {e}") from e
    for expression in expressions:
        unknown = sorted(expression.names - set(kernel.sizes))
        if unknown:
            raise InputError(f"--limit {expression.text}: {kernel.name} has no size {unknown[0]!r}")
    room = device.free_memory_bytes() // 2

    def allowed(sizes: "Sizes") -> bool:
        try:
            if not all(expression.evaluate(sizes) for expression in expressions):
                return False
        except InputError as e:
            raise InputError(f"--limit: {e}") from e
        workload = kernel.workload(sizes)
        return plan_bytes(kernel.plan(workload, kernel.default(workload))) <= room

    found = draw(drawn_sizes(kernel, ranges), count, seed, allowed)
    if len(found) < _LEAST:
        raise InputError(
            f"--inputs: {len(found)} different inputs of {kernel.name} fit and are allowed; two are needed"
        )
    return found
