"""``tuner train``: measure a kernel at many inputs, and learn which configuration fits which."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner.cli.lifecycle import orderly_stop
from tuner.cli.options import database_option, device_option, kernel_option, search_option, with_files
from tuner.cli.output import console, json_option, write_json
from tuner.model.errors import InputError
from tuner.model.options import SearchOptions

if TYPE_CHECKING:
    from tuner.devices.base import Device
    from tuner.kernel_files.kernel_file import KernelFile
    from tuner.prediction.training_set import Sizes
    from tuner.studies.training import Training


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
    from tuner.report.training import TrainingProgress, show_training
    from tuner.search.request import Request
    from tuner.search.setup import open_setup
    from tuner.studies.training import Trainer, TrainingRequest

    (spec,), files = with_files((kernel,), kernel_files)
    catalog = Catalog.load(files)
    name, _, sizes = spec.partition(":")
    if sizes:
        raise InputError(f"{spec}: a training takes a kernel without sizes; write --input {sizes}")
    found = catalog.kernel(name)
    of_one_cost(objective, "tuner train")
    asked = Request(objective=objective, seed=seed, kernel_files=files)
    asked.check()
    with (
        orderly_stop(),
        TrainingProgress(objective) as progress,
        Store(database) as store,
        open_setup(device, asked, progress.warming) as setup,
    ):
        chosen = _inputs(found, setup.device, inputs, listed, limit, count=count, seed=seed)
        request = TrainingRequest(found.name, chosen, objective, policy, evaluations, method, seed)
        trained = Trainer(request, setup, catalog, store, progress).train()
    document = training_document(trained)
    if json_path is not None:
        write_json(json_path, document)
    show_training(document, console(json_path))


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
    from tuner.expressions.expression import Expression
    from tuner.search.candidates import plan_bytes
    from tuner.training.inputs import draw, drawn_sizes, listed_inputs

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


def training_document(training: "Training") -> dict[str, Any]:
    """What a training gave, as JSON has it."""
    from tuner.prediction.accuracy import Accuracy
    from tuner.prediction.model import rounded

    model = training.model
    return {
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
        "accuracy": {name: rounded(asdict(Accuracy.of(one))) for name, one in training.left_out.items()},
        "left_out": {
            name: [
                {**one.sizes, "slowdown": one.slowdown, "best_of_first": one.best_of_first}
                for one in left_out
            ]
            for name, left_out in training.left_out.items()
        },
        "versions": [dict(version) for version in model.portfolio.versions],
        "claim": model.claim,
    }
