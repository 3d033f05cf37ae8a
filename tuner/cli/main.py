"""The command line. Commands are imported when they are named, so that ``tuner --help`` is instant."""

import contextlib
import errno
import importlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click

from tuner.model.errors import RunInterrupted, TunerError
from tuner.model.version import VERSION
from tuner.system.signals import raised_as_interrupts
from tuner.system.untrusted.reading import PlainFormatter, plain, shortened

# --- Start and end of commands: import on use, orderly stop, flushed output.

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
        if args and args[0] not in self._table:
            import difflib

            near = _ELSEWHERE.get(args[0]) or next(
                iter(difflib.get_close_matches(args[0], self._table, n=1)), None
            )
            if near is not None:
                ctx.fail(f"No such command {args[0]!r}. Did you mean {near!r}?")
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


# --- The commands by name, and errors in plain words.

COMMANDS = {
    "run": "tuner.cli.run:run",
    "worker": "tuner.cli.run:worker",
    "sweep": "tuner.cli.studies:sweep",
    "train": "tuner.cli.studies:train",
    "explain": "tuner.cli.run:explain",
    "compare": "tuner.cli.studies:compare",
    "judge": "tuner.cli.gate:judge",
    "best": "tuner.cli.best:best",
    "gate": "tuner.cli.gate:gate",
    "lock": "tuner.cli.gate:lock",
    "daemon": "tuner.cli.daemon:daemon",
    "install-service": "tuner.cli.daemon:install_service",
    "start": "tuner.cli.daemon:start",
    "stop": "tuner.cli.daemon:stop",
    "token": "tuner.cli.token:token",
    "submit": "tuner.cli.jobs:submit",
    "jobs": "tuner.cli.jobs:jobs",
    "follow": "tuner.cli.jobs:follow",
    "open": "tuner.cli.remote:open_page",
    "top": "tuner.cli.remote:top",
    "cancel": "tuner.cli.jobs:cancel",
    "pause": "tuner.cli.jobs:pause",
    "resume": "tuner.cli.jobs:resume",
    "status": "tuner.cli.jobs:status",
    "history": "tuner.cli.history:history",
    "fleet": "tuner.cli.history:fleet",
    "show": "tuner.cli.history:show",
    "diff": "tuner.cli.history:diff",
    "report": "tuner.cli.history:report",
    "export": "tuner.cli.exchange:export",
    "import": "tuner.cli.exchange:import_",
    "db": "tuner.cli.db:db",
    "kernels": "tuner.cli.kernels:kernels",
    "devices": "tuner.cli.devices:devices",
    "occupancy": "tuner.cli.devices:occupancy",
    "power": "tuner.cli.power:power",
    "program": "tuner.cli.program:program",
    "clocks": "tuner.cli.devices:clocks",
    "completion": "tuner.cli.completion:completion",
    "doctor": "tuner.cli.devices:doctor",
}


def _failure(error: TunerError) -> click.ClickException:
    """An error of this package as click prints it: ``Error: ...`` and the error's exit code."""
    failure = click.ClickException(shortened(plain(str(error))))
    failure.exit_code = error.exit_code  # type: ignore[misc]  # click reads it from the instance
    return failure


@contextlib.contextmanager
def _plain_words() -> Iterator[None]:
    """Take control characters out of click's own messages, which quote the command line."""
    try:
        yield
    except click.ClickException as error:
        error.message = shortened(plain(error.message))  # type: ignore[misc]  # final, to who reads it
        raise


class MainGroup(LazyGroup):
    """The root group; turns this package's errors into messages and exit codes."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401 - click's own
    ) -> click.Context:
        """Read the options; ``--help`` and ``--version`` print already."""
        # NumPy reads this when it is imported. The matrices of a search are small: threads of OpenBLAS would
        # mostly spin while they wait for each other, which takes ten times the CPU time.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        # Pydantic would read the entry points of all installed packages for plugins of its own.
        os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
        try:
            with written(), _plain_words():
                return super().make_context(info_name, args, parent, **extra)
        except KeyboardInterrupt:
            sys.exit(RunInterrupted.exit_code)  # click would print "Aborted!", and give 1

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        try:
            with written(), _plain_words():
                return super().invoke(ctx)
        except TunerError as error:
            raise _failure(error) from error
        except KeyboardInterrupt:
            ctx.exit(RunInterrupted.exit_code)


@click.group(cls=MainGroup, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="tuner")
@click.option("-v", "--verbose", count=True, help="Log what happens to standard error; twice for debugging.")
def main(verbose: int) -> None:
    """Tune GPU kernels that run at the same time on one GPU, for time or energy."""
    import logging

    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    handler = logging.StreamHandler()
    handler.setFormatter(PlainFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
