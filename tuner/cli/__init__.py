"""The command line. Commands are imported when they are named, so that ``tuner --help`` is instant."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import click

from tuner import __version__
from tuner.cli.lifecycle import LazyGroup, written
from tuner.model.errors import RunInterrupted, TunerError
from tuner.untrusted.text import PlainFormatter, plain, shortened

COMMANDS = {
    "run": "tuner.cli.run:run",
    "worker": "tuner.cli.worker:worker",
    "sweep": "tuner.cli.sweep:sweep",
    "train": "tuner.cli.train:train",
    "explain": "tuner.cli.explain:explain",
    "compare": "tuner.cli.studies:compare",
    "best": "tuner.cli.best:best",
    "daemon": "tuner.cli.daemon:daemon",
    "install-service": "tuner.cli.install_service:install_service",
    "start": "tuner.cli.service:start",
    "stop": "tuner.cli.service:stop",
    "submit": "tuner.cli.jobs:submit",
    "jobs": "tuner.cli.jobs:jobs",
    "follow": "tuner.cli.follow:follow",
    "open": "tuner.cli.open:open_page",
    "top": "tuner.cli.top:top",
    "cancel": "tuner.cli.jobs:cancel",
    "pause": "tuner.cli.jobs:pause",
    "resume": "tuner.cli.jobs:resume",
    "status": "tuner.cli.jobs:status",
    "history": "tuner.cli.history:history",
    "fleet": "tuner.cli.fleet:fleet",
    "show": "tuner.cli.stored:show",
    "diff": "tuner.cli.diff:diff",
    "report": "tuner.cli.report:report",
    "export": "tuner.cli.exchange:export",
    "import": "tuner.cli.exchange:import_",
    "db": "tuner.cli.db:db",
    "kernels": "tuner.cli.kernels:kernels",
    "devices": "tuner.cli.devices:devices",
    "occupancy": "tuner.cli.devices:occupancy",
    "power": "tuner.cli.power:power",
    "clocks": "tuner.cli.clocks:clocks",
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
@click.version_option(__version__, prog_name="tuner")
@click.option("-v", "--verbose", count=True, help="Log what happens to standard error; twice for debugging.")
def main(verbose: int) -> None:
    """Tune GPU kernels that run at the same time on one GPU, for time or energy."""
    import logging

    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    handler = logging.StreamHandler()
    handler.setFormatter(PlainFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
