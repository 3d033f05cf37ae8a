"""The command line. Commands are imported when they are named, so that ``tuner --help`` is instant."""

import importlib

import click

from tuner.errors import Interrupted, TunerError

COMMANDS = {
    "run": "tuner.cli.run:run",
    "best": "tuner.cli.best:best",
    "history": "tuner.cli.history:history",
    "kernels": "tuner.cli.kernels:kernels",
    "devices": "tuner.cli.devices:devices",
    "occupancy": "tuner.cli.occupancy:occupancy",
}


def _failure(error: TunerError) -> click.ClickException:
    """An error of this package as click prints it: ``Error: ...`` and the error's exit code."""
    failure = click.ClickException(str(error))
    failure.exit_code = error.exit_code  # type: ignore[misc]  # click reads it from the instance
    return failure


class LazyGroup(click.Group):
    """A group whose commands are named in a table and imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command, or None for an unknown name."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{COMMANDS[cmd_name]} is not a command")
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; turn this package's errors into messages and exit codes."""
        try:
            return super().invoke(ctx)
        except TunerError as error:
            raise _failure(error) from error
        except KeyboardInterrupt:
            ctx.exit(Interrupted.exit_code)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tuner")
@click.option("-v", "--verbose", count=True, help="Log what happens to standard error; twice for debugging.")
def main(verbose: int) -> None:
    """Tune GPU kernels that run at the same time on one GPU, for time or energy."""
    import logging

    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")
