"""``tuner top``: the daemon in the terminal."""

import asyncio
import signal
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from tuner.cli.remote import socket_option, when_started
from tuner.model.errors import InputError

if TYPE_CHECKING:
    from tuner.terminal.view import TerminalView


@click.command(short_help="Show the daemon's devices, jobs, trials and answers in the terminal.")
@socket_option
def top(*, socket: str | None) -> None:
    """Show devices with their power, jobs, trials and answers of the daemon, until q.

    Jobs are cancelled, paused and resumed there, after a question; ? shows the keys. Power is sampled once a
    second meanwhile. Needs the extra `tui`. `tuner open` shows the same in a browser.
    """
    if find_spec("textual") is None:
        raise InputError("tuner top needs textual: pip install 'gpu-tuner[tui]'")
    if not is_terminal():
        raise InputError("tuner top needs a terminal; `tuner status` and `tuner jobs` print")
    client, _ = when_started(socket, lambda daemon: daemon.status())

    from tuner.terminal.event_reader import EventReader
    from tuner.terminal.view import TerminalView

    asyncio.run(_show(TerminalView(client, EventReader(client))))


async def _show(view: "TerminalView") -> None:
    """Show it until it is left; a signal that ends it leaves the terminal as q does."""
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, view.exit)
    await view.run_async()


def is_terminal() -> bool:
    """True where keys come from a terminal and the screen is one."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))
