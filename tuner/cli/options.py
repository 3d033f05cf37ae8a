"""Options that several commands share."""

import math
import os
from pathlib import Path

import click

from tuner.cli import completing


class NamedPath(click.Path):
    """A path with a name: the empty text, such as that of an unset variable, is not the working directory."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """The path."""
        if value == "":
            self.fail("is empty; name a path", param, ctx)
        return super().convert(value, param, ctx)


device_option = click.option(
    "--device",
    metavar="SPEC",
    shell_complete=completing.devices,
    help="cuda:0, sim:jetson-tx1, replay:h200 ... (`tuner devices`). Default: a GPU, else sim:jetson-tx1.",
)

sensor_option = click.option(
    "--sensor",
    metavar="NAME",
    help="The power reading to use (see `tuner power sensors`). Default: the best that answers.",
)

database_option = click.option(
    "--database",
    type=NamedPath(dir_okay=False, path_type=Path),
    metavar="FILE",
    envvar="TUNER_DATABASE",
    help="Where results are kept. Default: tuner/tuner.db in the user's state directory.",
)

kernel_option = click.option(
    "--kernel",
    "kernel_files",
    type=NamedPath(path_type=Path),
    metavar="FILE",
    multiple=True,
    help="A kernel.toml beside the catalogue; may be given several times.",
)


def finite(ctx: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    """Callback of an option: a range of click lets not-a-number through, and infinity."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a finite number", ctx, parameter)
    return value


def fraction(ctx: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Callback of an option: ``5%`` and ``0.05`` are 0.05; a bare ``5`` could be either and is neither."""
    if value is None:
        return None
    text = value.strip()
    try:
        number = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
    except ValueError:
        number = math.nan
    if not 0.0 <= number < math.inf or (number > 1.0 and not text.endswith("%")):
        raise click.BadParameter(f"{value!r} is not a share; write for example 5% or 0.05", ctx, parameter)
    return number
