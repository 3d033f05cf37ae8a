"""What cannot be written is said in one line."""

import contextlib
import errno
import os
import sys
from collections.abc import Iterator

import click

_REFUSED = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # by what standard output leads to


@contextlib.contextmanager
def written() -> Iterator[None]:
    """Have all that a command prints written when this ends; a reader that has gone is click's to handle.

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
    """Let what is left go nowhere: Python writes it at the end, and would complain again."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # of streams that are no files
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
