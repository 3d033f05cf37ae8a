"""Output of commands: ``--json FILE`` (``-`` is standard output), and the console for tables."""

import io
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.model.errors import InputError
from tuner.system.untrusted.reading import escaped, plain

if TYPE_CHECKING:
    from rich.console import Console


WHOLE_LINES = 10_000
"""Characters of a line where nothing says how wide it may be: nothing is wrapped."""


def writable(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Callback of an option: refuse a target that cannot be written before the work is done, not after."""
    del ctx
    if value is None or value == "-":
        return value
    path, option = Path(value), f"{parameter.opts[0]} {value}"
    if path.is_dir():
        raise InputError(f"{option}: this is a directory; name a file, or - for standard output")
    if not path.parent.is_dir():
        raise InputError(f"{option}: the directory {path.parent} does not exist")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(f"{option}: not writable by this user")
    if not path.exists() or path.is_file():
        _try_to_write(path.parent, option)
    return value


def _try_to_write(folder: Path, option: str) -> None:
    """Make a file that has no name, or is gone at once: rights alone do not tell of a read-only disk.

    Raises:
        InputError: the folder takes none.
    """
    import tempfile

    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\n")
    except OSError as error:
        raise InputError(f"{option}: no file can be written to {folder}: {error.strerror}") from error


json_option = click.option(
    "--json",
    "json_path",
    metavar="FILE",
    callback=writable,
    help="Write the result as JSON to FILE; - is standard output (and then nothing else goes there).",
)

series_option = click.option(
    "--with-series",
    is_flag=True,
    help="With --json: also what the search saw of each trial, when it ended, joules spent and power.",
)


def write_json(path: str, document: object) -> None:
    """Write a document as JSON, whole or not at all.

    Args:
        path: a file, replaced atomically, or ``-`` for standard output.
        document: what to write; not-a-number and infinity are refused (JSON has neither).

    Raises:
        InputError: the file cannot be written.
    """
    text = escaped(json.dumps(document, indent=2, allow_nan=False)) + "\n"
    if path == "-":
        if sys.stdout is None:  # closed by who called
            raise InputError("--json -: there is no standard output; name a file")
        sys.stdout.write(text)
        sys.stdout.flush()  # what cannot be written is told before anything else is
        return
    write_whole(Path(path), text, f"--json {path}")


def write_whole(target: Path, text: str, subject: str) -> None:
    """Write a text as UTF-8, whole or not at all; a file that is there is replaced atomically.

    Args:
        target: a file, or a pipe or device.
        text: what to write.
        subject: what a message begins with.

    Raises:
        InputError: it cannot be written.
    """
    try:
        if target.exists() and not target.is_file():  # a pipe or a device: nothing to replace
            target.write_text(text, encoding="utf-8")
            return
    except OSError as error:
        raise InputError(f"{subject}: {error.strerror}") from error
    _replace(target, text, subject)


def _replace(target: Path, text: str, subject: str) -> None:
    import tempfile

    temporary: str | None = None
    try:
        with tempfile.NamedTemporaryFile(
            "w", dir=target.parent, prefix=f".{target.name[:99]}.", delete=False, encoding="utf-8"
        ) as stream:
            temporary = stream.name
            stream.write(text)
        mask = os.umask(0)
        os.umask(mask)
        # Temporary files are private; a result is not, but nobody else may change it.
        Path(temporary).chmod(0o644 & ~mask)
        Path(temporary).replace(target)
    except OSError as error:
        raise InputError(f"{subject}: {error.strerror}") from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def echo(text: object, *, err: bool = False) -> None:
    """Print lines for people, without control characters that a terminal would act on.

    Args:
        text: of one or more lines.
        err: to standard error.
    """
    stream = sys.stderr if err else sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")
    click.echo(plain(str(text)), err=err)


def console(json_path: str | None = None) -> "Console":
    """The console tables go to: standard output, or standard error when JSON has standard output.

    ``COLUMNS`` sets its width. Without it a terminal tells its own, and what is no terminal gets whole lines.
    What its encoding lacks is replaced: a table is not worth a traceback after the measuring is done.
    """
    from tuner.report.layout import PlainConsole

    stream = sys.stderr if json_path == "-" or sys.stdout is None else sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")
    terminal = stream is not None and stream.isatty()
    columns = _columns()
    width = columns if columns is not None or terminal else WHOLE_LINES
    others = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    return PlainConsole(
        file=stream, width=width, _environ=others
    )  # Rich fails at numbers of thousands of digits


def _columns() -> int | None:
    """The width that ``COLUMNS`` asks for; None where it is unset or no width."""
    text = os.environ.get("COLUMNS", "")
    if not text.isdecimal() or len(text) > len(str(WHOLE_LINES)):
        return None
    return min(int(text), WHOLE_LINES) or None
