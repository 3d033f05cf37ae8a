"""Groups of commands that are imported when they are named, so that ``tuner --help`` is instant."""

import importlib
from collections.abc import Mapping
from typing import Any

import click


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
