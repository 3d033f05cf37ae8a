"""Options that several commands share."""

import math
from pathlib import Path

import click

device_option = click.option(
    "--device",
    metavar="SPEC",
    help="cuda:0, sim:jetson-tx1, ... (see `tuner devices`). Default: a GPU, else sim:jetson-tx1.",
)

database_option = click.option(
    "--database",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    envvar="TUNER_DATABASE",
    help="Where results are kept. Default: tuner/tuner.db in the user's state directory.",
)

kernel_option = click.option(
    "--kernel",
    "kernel_files",
    type=click.Path(path_type=Path),
    metavar="FILE",
    multiple=True,
    help="A kernel.toml beside the catalogue; may be given several times.",
)


def finite(ctx: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    """Callback of an option: a range of click lets not-a-number through, and infinity."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a length of time", ctx, parameter)
    return value


def percent(ctx: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Callback of an option: ``5%``, ``5`` and ``5.0 %`` are 0.05."""
    if value is None:
        return None
    try:
        number = float(value.strip().removesuffix("%"))
    except ValueError:
        number = -1.0
    if not 0.0 <= number < float("inf"):
        raise click.BadParameter(f"{value!r} is not a percentage; write for example 5%", ctx, parameter)
    return number / 100.0
