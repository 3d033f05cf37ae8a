"""``tuner daemon``: tuning as a service."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from tuner.cli.options import NamedPath
from tuner.cli.output import echo

if TYPE_CHECKING:
    from tuner.daemon.state import StartOptions


@click.command(short_help="Tune as a service: answer at once, measure when the GPU is free.")
@click.option("--foreground", is_flag=True, help="Run here, until Ctrl-C or SIGTERM.")
@click.option(
    "--config",
    type=NamedPath(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Settings. Default: /etc/tuner/daemon.toml if it exists.",
)
@click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="SPEC",
    help="Tune on cuda:0, sim:jetson-tx1 ...; may be given several times. Default: those of the settings.",
)
@click.option(
    "--state",
    type=NamedPath(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Directory of the database. Default: that of the settings, else the user's state directory.",
)
@click.option(
    "--socket",
    type=NamedPath(dir_okay=False, path_type=Path),
    metavar="PATH",
    help="The socket. Default: that of systemd, else that of the settings, else the user's.",
)
@click.option(
    "--log-format",
    "log_format",
    type=click.Choice(["auto", "journal", "text", "json"]),
    default="auto",
    help="Format of the log on standard error. Default: journal if it goes there, else text.",
)
@click.option("--check", is_flag=True, help="Print the meaning of the settings, or their errors, and end.")
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
    free, and continues after a crash or a reboot where it was. `tuner install-service` sets it up under
    systemd.
    """
    if schema:
        from tuner.daemon.settings_file import schema as of_settings

        echo(json.dumps(of_settings(), indent=2))
        return
    from tuner.daemon.settings_file import wrong_device
    from tuner.daemon.start import run
    from tuner.daemon.state import StartOptions
    from tuner.model.errors import InputError

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
    """Print the meaning of settings.

    Raises:
        InputError: something is wrong in them; the message says where more may be found.
    """
    from tuner.cli.daemon_summary import sentences
    from tuner.model.errors import InputError

    told = False
    try:
        for sentence in sentences(choices):
            told = True
            echo(sentence)
    except InputError as error:
        if told or isinstance(error.__cause__, OSError):
            raise  # what is found while the meaning is told is found last, and whole; or there is no file
        raise InputError(f"{error}\nmore mistakes may show when these are mended") from error
