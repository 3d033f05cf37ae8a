"""``tuner best``: the stored answer for workloads on the present device."""

import sys
from pathlib import Path

import click

from tuner.cli.options import database_option, device_option, fraction, kernel_option
from tuner.cli.output import console, json_option, write_json


@click.command(short_help="Print the best stored answer for workloads that run together.")
@click.argument("workloads", nargs=-1, required=True, metavar="WORKLOAD...")
@click.option("--objective", default="energy", show_default=True, help="time, energy, edp or ed2p.")
@click.option("--max-slowdown", callback=fraction, help="The limit that the runs were made under, e.g. 5%.")
@click.option("--clocks-as-found", is_flag=True, help="Only answers that set no GPU clock.")
@device_option
@kernel_option
@database_option
@json_option
def best(
    workloads: tuple[str, ...],
    *,
    objective: str,
    max_slowdown: float | None,
    clocks_as_found: bool,
    device: str | None,
    kernel_files: tuple[Path, ...],
    database: Path | None,
    json_path: str | None,
) -> None:
    """Print the best stored configurations for workloads that run together.

    The answer is fresh when GPU, driver, CUDA and kernel sources are those it was measured with; otherwise
    it is printed as stale, with the reasons. Exit code 1 when nothing is stored.
    """
    from tuner.answers import find_answer
    from tuner.catalog import Catalog
    from tuner.database import Store
    from tuner.objective import Objective, described
    from tuner.report.tables import show_run
    from tuner.request import asked_for

    Objective(objective)
    asked = asked_for(Catalog.load(kernel_files), workloads, device)
    with Store(database) as store:
        answer = find_answer(
            store,
            list(asked.batches),
            described(objective, max_slowdown),
            device=asked.device,
            sources=asked.sources,
            batches=asked.batches,
            clocks_as_found=clocks_as_found,
        )
    if answer is None or answer.run.answer is None:
        limit = "" if max_slowdown is None else f" --max-slowdown {100 * max_slowdown:g}%"
        words = f"{' '.join(workloads)} --objective {objective}{limit}"
        click.echo(f"nothing is stored: run `tuner run {words}`", err=True)
        sys.exit(1)
    out = console(json_path)
    if json_path is not None:
        write_json(json_path, {**answer.run.answer, "stale": list(answer.stale), "run": answer.run.id})
    out.print(f"run {answer.run.id} of {answer.run.started_at}", markup=False, highlight=False)
    show_run(answer.run.answer, out)
    for reason in answer.stale:
        out.print(f"stale: {reason}", markup=False, highlight=False)
