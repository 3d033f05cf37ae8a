"""``tuner run``, ``explain`` and ``worker``: tune workloads that run together."""

import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from tuner.cli import completion
from tuner.cli.db import reading
from tuner.cli.main import orderly_stop
from tuner.cli.options import (
    database_option,
    device_option,
    kernel_option,
    named_database,
    search_options,
    with_files,
)
from tuner.cli.output import console, echo, json_option, series_option, write_json
from tuner.model.errors import InputError, RunInterrupted

if TYPE_CHECKING:
    from tuner.kernel_files.catalog import Catalog
    from tuner.report.rows import Table
    from tuner.search.answer import Outcome
    from tuner.search.request import SearchRequest


_ITS_OWN = ("balance", "json_path", "kernel_files")  # options that the proposed command has not, or anew


def show_balance(
    request: "SearchRequest",
    device_spec: str | None,
    database: Path | None,
    *,
    json_path: str | None,
    allow_simulated: bool,
) -> None:
    """Measure, and print solo times with the command that uses what is proposed.

    Args:
        request: what the user asked for.
        device_spec: see ``open_device``.
        database: as named; only read, for the best known configurations.
        json_path: where the result goes as JSON; None for nowhere.
        allow_simulated: see ``open_device``.

    Raises:
        InputError: a lone workload, a recording, or a request that cannot be.
        DeviceError: a workload failed.
    """
    from tuner.database.connection import holds_something
    from tuner.kernel_files.catalog import Catalog
    from tuner.report.layout import rendered
    from tuner.report.lists import balance_lines
    from tuner.search.setup import open_setup
    from tuner.search.together import balance, balance_document

    request.check()
    catalog = Catalog.load(request.kernel_files)
    timed = replace(
        request,
        objective="time",
        max_slowdown=None,
        clocks="off",
        power_limits="off",
        joules=False,
        sensor=None,
        scope="gpu",
    )
    stored = database is None or holds_something(database)  # what is missing is made by the run to come
    with (
        orderly_stop(),
        reading(database) if stored else nullcontext() as store,
        open_setup(device_spec, timed, allow_simulated=allow_simulated) as setup,
    ):
        balanced = balance(setup, request, catalog, store, lambda text: echo(text, err=True))
        document = balance_document(setup, balanced)
    command = shlex.join(["tuner", "run", *balanced.specs, *_options(request.kernel_files)])
    for notice in balanced.notices:
        echo(f"notice: {notice}", err=True)
    if json_path is not None:
        write_json(json_path, document | {"command": command})
    out = console(json_path)
    out.print(rendered(list(balance_lines(document, command, out.width))))


def _options(kernel_files: Sequence[Path]) -> Iterator[str]:
    """The options of this command as they were given."""
    for file in kernel_files:
        yield from ("--kernel", str(file))
    ctx = click.get_current_context()
    for parameter in ctx.command.params:
        name = parameter.name or ""
        given = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if not isinstance(parameter, click.Option) or not given or name in _ITS_OWN:
            continue
        yield parameter.opts[0]
        if not parameter.is_flag:
            yield str(ctx.params[name])


_LETTERS = ("S", "P", "L", "r", "shuffle")
_LEGEND = (
    "of a block: S elements in shared memory, P elements of each thread, L threads, r radix;"
    " of a multiprocessor: B_a blocks and W_SM warps at once"
)
_KIB = 1024


@click.command(short_help="Show the analytical model's choice and reasons; runs nothing.")
@click.argument(
    "workloads", nargs=-1, required=True, metavar="WORKLOAD...", shell_complete=completion.workloads
)
@device_option
@kernel_option
@click.option(
    "--rule",
    type=click.Choice(["embedded", "server"]),
    help="The rule. Default: embedded up to 20 multiprocessors, server above.",
)
@click.option(
    "--all", "show_all", is_flag=True, help="Compile and show all candidates, not only the first ten."
)
@json_option
def explain(
    workloads: tuple[str, ...],
    *,
    device: str | None,
    kernel_files: tuple[Path, ...],
    rule: str | None,
    show_all: bool,
    json_path: str | None,
) -> None:
    """Show what the analytical model chooses for each WORKLOAD on a GPU, and why; nothing is run.

    A WORKLOAD is a kernel at a problem size, e.g. scan-lf:N=1024. Its candidates that may be the best are
    compiled (once; the code is kept) and listed in the order of the rule, best first.
    """
    from tuner.model.units import si
    from tuner.report.layout import GAP, ReportLine, lines_of, rendered, table_lines
    from tuner.report.progress import RunProgress
    from tuner.search.explaining import SHOWN
    from tuner.search.explaining import explain as explained

    workloads, kernel_files = with_files(workloads, kernel_files)
    with RunProgress("time") as progress:
        document = explained(
            workloads,
            device,
            kernel_files,
            rule=rule,
            shown=None if show_all else SHOWN,
            progress=progress.compiled,
        )
    for notice in document["notices"]:
        echo(f"notice: {notice}", err=True)
    if json_path is not None:
        write_json(json_path, document)
    out = console(json_path)
    identity = document["device"]
    limits = "limits not known"
    if identity["compute_capability"] is not None:
        limits = (
            f"compute capability {'.'.join(map(str, identity['compute_capability']))},"
            f" {identity['multiprocessors']} multiprocessors of {identity['max_warps_per_sm']} warps and"
            f" {identity['max_blocks_per_sm']} blocks"
        )
    lines = lines_of(f"{identity['name']} ({identity['spec']}): {limits}", out.width)
    for workload in document["workloads"]:
        lines += [ReportLine(""), *lines_of(workload["workload"], out.width, "bold")]
        if workload["candidates"]:
            lines += table_lines(_candidates(workload["candidates"]), out.width, indent=GAP, head="dim")
            lines += lines_of(GAP + _LEGEND, out.width, "dim", GAP)
        pruned = "".join(f", {count} dropped: {reason}" for reason, count in workload["pruned"].items())
        count = workload["considered"] - workload["uncompiled"]
        number = f"{count:,} of {workload['considered']:,}" if workload["uncompiled"] else f"{count:,}"
        prepare, choose = (si(workload[key], "s") for key in ("prepare_s", "choose_s"))
        for line in (
            *workload["reasons"],
            f"{number} candidates, {workload['resources']}{pruned}",
            f"{prepare} for the space, {choose} to compile and choose; nothing was run",
        ):
            lines += lines_of(line, out.width)
    out.print(rendered(lines))


def _candidates(rows: "Sequence[Mapping[str, Any]]") -> "Table[Mapping[str, Any]]":
    """A row per candidate: the tunables that differ, launches side by side."""
    from tuner.model.plan import shown_values
    from tuner.report.rows import Column, Table, filled
    from tuner.report.trials_table import shown_value

    def launches(name: str, key: str, unit: str = "") -> Column[Mapping[str, Any]]:
        def text(row: Mapping[str, Any]) -> str:
            return " + ".join(f"{one[key]}{unit}" for one in row["launches"])

        return Column(name, text, number=True)

    def tunable(letter: str) -> Column[Mapping[str, Any]]:
        return Column(letter, lambda row: shown_value(row[letter]), number=True)

    def binding(row: Mapping[str, Any]) -> str:
        first, *others = dict.fromkeys(name for launch in row["launches"] for name in launch["binding"])
        return f"{first} +{len(others)}" if others else first

    def in_flight(row: Mapping[str, Any]) -> str:
        return f"{row['bytes_in_flight'] / _KIB:.0f} KiB" if row["bytes_in_flight"] else ""

    letters = [letter for letter in _LETTERS if len({row[letter] for row in rows}) > 1]
    columns: list[Column[Mapping[str, Any]]] = [
        *map(tunable, letters),
        launches("registers", "registers_per_thread"),
        launches("shared", "shared_bytes", " B"),
        launches("B_a", "B_a"),
        launches("W_SM", "W_SM"),
        Column("occupancy", lambda row: f"{100 * row['occupancy']:.3g} %", number=True, rank=1),
        Column("bound by", binding),
        *filled([Column[Mapping[str, Any]]("in flight", in_flight, number=True)], rows),
    ]
    configurations = [row["configuration"] for row in rows]
    others = [
        name
        for name in configurations[0]
        if not any(all(row[letter] == row["configuration"][name] for row in rows) for letter in _LETTERS)
        and len({configuration[name] for configuration in configurations}) > 1
    ]
    note = Column[Mapping[str, Any]](
        "others", lambda row: shown_values({name: row["configuration"][name] for name in others})
    )
    return Table(columns, rows, note if others else None)


@click.command()
@click.argument("workloads", nargs=-1, metavar="[WORKLOAD]...", shell_complete=completion.workloads)
@search_options()
@click.option("--resume", is_flag=True, help="Continue the newest unfinished run under the same conditions.")
@click.option(
    "--allow-simulated", is_flag=True, help="Model a device where the GPU of this machine does not answer."
)
@click.option(
    "--all-sizes",
    is_flag=True,
    help="Tune the kernels alone, at each size that their files list: a run each.",
)
@click.option(
    "--balance",
    is_flag=True,
    help="Measure each workload alone, and propose batches and repeats that bring their times within a factor"
    " of 2; search nothing.",
)
@click.option(
    "--exclusive-board",
    is_flag=True,
    help="Measure joules while runs on other GPUs of this host wait; for runs with databases of one folder.",
)
@click.option(
    "--on",
    metavar="PLACE",
    help="Measure on several GPUs of one kind at once: local or local:N of this host, dask://HOST:PORT of a"
    " running scheduler, or slurm within an allocation. Needs pip install distributed cryptography.",
)
@click.option(
    "-v", "--verbose", is_flag=True, help="Report everything: why, how sure, net of idle, where time went."
)
@device_option
@kernel_option
@database_option
@json_option
@series_option
def run(
    workloads: tuple[str, ...],
    *,
    json_path: str | None,
    with_series: bool,
    database: Path | None,
    device: str | None,
    kernel_files: tuple[Path, ...],
    resume: bool,
    allow_simulated: bool,
    all_sizes: bool,
    balance: bool,
    exclusive_board: bool,
    on: str | None,
    verbose: bool,
    **options: Any,  # noqa: ANN401 - those of a search, by name
) -> None:
    """Tune workloads that run at the same time on one GPU.

    A WORKLOAD is a kernel at a problem size, e.g. scan-lf:N=1024 or fft:N=512,batch=4096, or a kernel file at
    one, e.g. my.cu:N=4096 of a CUDA file with tuning pragmas. Without any, the kernels of --kernel are tuned
    at their first size, or with --all-sizes at each; without these, a scan, tridiagonal systems and an FFT of
    the catalogue run together.
    `tuner kernels list` shows what there is.
    """
    if on is None:
        from tuner.devices.early import worker_ahead

        click.get_current_context().with_resource(worker_ahead(device))
    from tuner.kernel_files.catalog import Catalog
    from tuner.kernel_files.source_checks import unseen_guesses
    from tuner.pool.opening import opener_on
    from tuner.report.progress import RunProgress
    from tuner.search.request import SearchRequest
    from tuner.search.tuning import run_request

    if with_series and json_path is None:
        raise InputError("--with-series: adds to what --json writes; name a file after --json")
    request = SearchRequest(*with_files(workloads, kernel_files), **options)
    if balance:
        if on is not None:
            raise InputError(f"--on {on}: --balance measures on one GPU; leave one of them out")
        if all_sizes:
            raise InputError("--balance: is of workloads that run together; leave --all-sizes out")
        if resume:
            raise InputError(
                "--balance: searches nothing that --resume could go on with; leave one of them out"
            )
        show_balance(request, device, database, json_path=json_path, allow_simulated=allow_simulated)
        return
    with orderly_stop():
        request.check()
        catalog = Catalog.load(request.kernel_files)
        for file in request.kernel_files:
            if guesses := unseen_guesses(file):
                echo(f"notice: {file}: {guesses}", err=True)
        others = {"--json": json_path is not None, "--resume": resume}
        requests = _each_size(request, catalog, others) if all_sizes else [request]
    failed = False
    for one in requests:
        with orderly_stop(), RunProgress(one.objective, verbose=verbose) as progress:
            for sentence in () if all_sizes else _sizes_left(request, catalog):
                progress.told(sentence)
            outcome = run_request(
                one,
                catalog,
                progress,
                device=device,
                database=database,
                resume=resume,
                allow_simulated=allow_simulated,
                exclusive_board=exclusive_board,
                opener=opener_on(on, progress.told, database, resume=resume),
            )
        show_outcome(outcome, json_path, with_series=with_series, verbose=verbose)
        failed = failed or bool(outcome.no_answer)
    if failed:
        sys.exit(1)


def show_outcome(
    outcome: "Outcome", json_path: str | None, *, with_series: bool = False, verbose: bool
) -> None:
    """Write and show what a run has found; after Ctrl-C the command ends with that."""
    from tuner.model.records import RunStatus
    from tuner.report.run_report import run_report
    from tuner.search.document import with_series as documented_series

    try:
        if json_path is not None:
            write_json(json_path, documented_series(outcome) if with_series else outcome.document)
    finally:  # a full disk costs no tables, and `| head` no file
        seen = outcome.told if _both_go_to_the_same_place(json_path) else ()
        out = console(json_path)
        database = named_database()
        out.print(run_report(outcome.document, out.width, verbose=verbose, seen=seen, database=database))
    if outcome.status is RunStatus.INTERRUPTED:
        sys.exit(RunInterrupted.exit_code)
    if outcome.no_answer:
        echo(f"Error: {outcome.no_answer}", err=True)


def _each_size(
    request: "SearchRequest", catalog: "Catalog", others: Mapping[str, bool]
) -> "list[SearchRequest]":
    """A request for each size of the kernels that are named.

    Args:
        request: names them.
        catalog: knows them.
        others: options that are for one run, and whether they are given.

    Raises:
        InputError: a size is named, no kernel is, or an option is for one run.
    """
    given = next((name for name, is_given in others.items() if is_given), None)
    if given is not None:
        raise InputError(
            f"{given}: is of one run, and --all-sizes makes several; `tuner sweep` goes on by itself"
        )
    sized = next((spec for spec in request.workloads if ":" in spec), None)
    if sized is not None:
        raise InputError(f"--all-sizes: {sized} names a size; leave it out, or the option")
    kernels = catalog.without_sizes(request.workloads)
    if not kernels:
        raise InputError("--all-sizes: names no kernel; add one, as in `tuner run --kernel FILE --all-sizes`")
    specs = list(dict.fromkeys(kernel.spec_of(one) for kernel in kernels for one in kernel.workloads()))
    echo(f"{len(specs)} sizes, a run each: {specs[0]} to {specs[-1]}", err=True)
    return [replace(request, workloads=(spec,)) for spec in specs]


def _sizes_left(request: "SearchRequest", catalog: "Catalog") -> Iterator[str]:
    """Yield which of several sizes are taken of kernels that are named without."""
    for kernel in catalog.without_sizes(request.workloads):
        sizes = len(kernel.workloads())
        if kernel.name in catalog.own and sizes > 1:
            yield f"{kernel.example}: the first of {sizes} sizes; --all-sizes tunes each"


def _both_go_to_the_same_place(json_path: str | None) -> bool:
    """True where tables stand below what was told on standard error: one terminal, or one file."""
    if json_path == "-":
        return True
    if sys.stdout is None or sys.stderr is None:
        return False
    try:
        return os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
    except OSError:  # no files at all, as in tests
        return False


@click.command(short_help="Measure on one GPU for the runs of another process (`tuner run --on`).")
@click.argument("scheduler")
@device_option
@click.option("--service", is_flag=True, help="Run workers as services: one for --device, else for each GPU.")
def worker(scheduler: str, *, device: str | None, service: bool) -> None:
    """Measure on one GPU for a run of `tuner run --on`, under a SCHEDULER of Dask.

    SCHEDULER is tls://HOST:PORT, with certificates in Dask's configuration. Start one for each GPU; without
    --device it takes the first that CUDA shows, so that `srun --gpus-per-task=1 tuner worker ...` gives each
    its own. It ends when the scheduler has gone; as a service it is started again, now and after a boot.
    """
    from tuner.pool.places import check_scheduler_address
    from tuner.pool.worker import serve
    from tuner.pool.worker_calls import require_dask

    require_dask("tuner worker")
    check_scheduler_address(scheduler)
    if service:
        _start_services(scheduler, device)
    else:
        serve(scheduler, device or "")


def _start_services(scheduler: str, device: str | None) -> None:
    from tuner.daemon.installing import steps
    from tuner.daemon.settings_file import wrong_device
    from tuner.devices.choice import list_gpus
    from tuner.pool.places import require_certificates

    if os.geteuid() != 0:
        raise InputError("--service: services of a machine are root's: sudo tuner worker")
    wrong = "" if device is None else wrong_device(device)
    if device is not None and (wrong or device.startswith("replay:")):
        raise InputError(f"--device: {wrong or f'{device} is a recording, which measures nothing'}")
    devices = [gpu.spec for gpu in list_gpus()] if device is None else [device]
    if not devices:
        raise InputError("--service: no GPU is here; name a device with --device")
    require_certificates("tuner worker", "worker")  # else each start would fail, which only the log says
    for step in steps.start_workers(steps.Site(Path(sys.prefix)), scheduler, devices):
        echo(step.words)
        step.action()
    echo("next: `systemctl status 'tuner-worker@*'`, `journalctl -u 'tuner-worker@*'`")
