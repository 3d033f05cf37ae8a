"""``tuner daemon``: tuning as a service."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from tuner.cli.options import NamedPath

if TYPE_CHECKING:
    from tuner.daemon.state import StartOptions


@click.command(short_help="Tune as a service: answer at once, measure when the GPU is free.")
@click.option("--foreground", is_flag=True, help="Run here, until Ctrl-C or SIGTERM.")
@click.option(
    "--config",
    type=NamedPath(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Settings. Default: /etc/tuner/daemon.toml where it is there.",
)
@click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="SPEC",
    help="Tune on cuda:0, sim:jetson-tx1 ...; may be given several times. Default: as the settings say.",
)
@click.option(
    "--state",
    type=NamedPath(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where results are kept. Default: as the settings say, else the user's state directory.",
)
@click.option(
    "--socket",
    type=NamedPath(dir_okay=False, path_type=Path),
    metavar="PATH",
    help="Where to listen. Default: what systemd passes, else as the settings say, else the user's.",
)
@click.option(
    "--log-format",
    "log_format",
    type=click.Choice(["auto", "journal", "text", "json"]),
    default="auto",
    help="Of the log on standard error. Default: the journal where it goes there, else text.",
)
@click.option("--check", is_flag=True, help="Say what the settings mean and what is wrong in them, and end.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of the settings, and end.")
def daemon(
    *,
    foreground: bool,
    config: Path | None,
    devices: tuple[str, ...],
    state: Path | None,
    socket: Path | None,
    log_format: Literal["auto", "journal", "text", "json"],
    check: bool,
    schema: bool,
) -> None:
    """Tune as a service.

    The daemon answers `tuner best` at once, tunes what `tuner submit` and daemon.toml name when the GPU is
    free, and goes on after a crash or a reboot where it was. `tuner install-service` has systemd run it.
    """
    if schema:
        from tuner.daemon.settings.file import schema as of_settings

        click.echo(json.dumps(of_settings(), indent=2))
        return
    from tuner.daemon.process.main import run
    from tuner.daemon.settings.file import wrong_device
    from tuner.daemon.state import StartOptions
    from tuner.errors import InputError

    unknown = [f"--device: {wrong}" for wrong in map(wrong_device, devices) if wrong]
    if unknown:
        raise InputError("\n".join(unknown))
    choices = StartOptions(config, devices, state, socket)
    if check:
        _check(choices)
        return
    if not foreground and "NOTIFY_SOCKET" not in os.environ:
        raise click.UsageError(
            "say --foreground to run it here; `tuner install-service` makes a service of it"
        )
    sys.exit(run(choices, log_format))


def _check(choices: "StartOptions") -> None:
    """Say what settings mean.

    Raises:
        InputError: something is wrong in them; the message says where more may be found.
    """
    from tuner.cli.daemon_summary import sentences
    from tuner.errors import InputError

    told = False
    try:
        for sentence in sentences(choices):
            told = True
            click.echo(sentence)
    except InputError as error:
        if told:  # what is found while the meaning is told is found last, and whole
            raise
        raise InputError(f"{error}\nfurther checks wait for these") from error
