"""``tuner status``: how the daemon stands."""

import click

from tuner.cli.output import console, json_option, write_json
from tuner.cli.remote import client_of, socket_option


@click.command(short_help="Show how the daemon stands.")
@socket_option
@json_option
def status(*, socket: str | None, json_path: str | None) -> None:
    """Show how the daemon stands: its devices, what runs and waits, budgets, windows and troubles."""
    from tuner.report.served import show_status

    document = client_of(socket).status()
    if json_path is not None:
        write_json(json_path, document)
    show_status(document, console(json_path))
