"""Start and end of commands: import on use, orderly stop, flushed output."""

import contextlib
import difflib
import errno
import importlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click

from tuner.model.errors import RunInterrupted
from tuner.system.interrupts import raised_as_interrupts

_REFUSED = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # by what standard output leads to


_ELSEWHERE = {  # what users try -> what it is called
    "tune": "run",
    "check": "kernels check",
    "new": "kernels new",
    "init": "kernels new",
    "list": "kernels list",
}


class LazyGroup(click.Group):
    """A group whose commands are named in a table and imported on use.

    Args:
        table: command name -> ``module:attribute``.
        attributes: of ``click.Group``.
    """

    def __init__(self, *, table: Mapping[str, str], **attributes: Any) -> None:  # noqa: ANN401 - click's own
        super().__init__(**attributes)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        del ctx
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command, or None for an unknown name."""
        del ctx
        if cmd_name not in self._table:
            return None
        module, _, attribute = self._table[cmd_name].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{self._table[cmd_name]} is not a command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of the arguments; an unknown name is told with the nearest one."""
        meant = _ELSEWHERE.get(args[0]) if args else None
        near = [meant] if meant else difflib.get_close_matches(args[0], self._table, n=1) if args else []
        if near and args[0] not in self._table:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)


@contextlib.contextmanager
def written() -> Iterator[None]:
    """Flush the output of a command at the end; click handles a closed pipe.

    Raises:
        click.ClickException: the disk is full, or whatever else standard output leads to takes no more.
    """
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:
        # with the name of a file it is none of the standard ones
        if error.errno not in _REFUSED or error.filename is not None:
            raise
        _give_up()
        raise click.ClickException(f"the output cannot be written: {error.strerror}") from error


def _give_up() -> None:
    """Discard the rest of the output: Python would try to write it at the end, and fail again."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # of streams that are no files
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


@contextlib.contextmanager
def orderly_stop(told: str = "interrupted; trials that had ended are stored") -> Iterator[None]:
    """SIGTERM and SIGHUP end a command as Ctrl-C does: clocks restored, results kept, exit code 130.

    A signal that is ignored stays ignored: ``nohup tuner run`` outlives its terminal.

    Args:
        told: what has become of the work.
    """
    try:
        with raised_as_interrupts((signal.SIGTERM, signal.SIGHUP)):
            yield
    except KeyboardInterrupt as order:
        # no error of this package on its way: whoever goes on after an error must not go on after this
        raise RunInterrupted(told) from order
