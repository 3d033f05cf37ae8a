"""``tuner run --balance``: solo times of workloads, and the command that tunes them balanced."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from tuner.cli.db import reading
from tuner.cli.lifecycle import orderly_stop
from tuner.cli.output import console, echo, write_json

if TYPE_CHECKING:
    from tuner.search.request import Request


_ITS_OWN = ("balance", "json_path", "kernel_files")  # options that the proposed command has not, or anew


def show_balance(
    request: "Request",
    device_spec: str | None,
    database: Path | None,
    *,
    json_path: str | None,
    allow_simulated: bool,
) -> None:
    """Measure, and print solo times with the command that uses what is proposed.

    Args:
        request: what the user asked for.
        device_spec: see ``open_device``.
        database: as named; only read, for the best known configurations.
        json_path: where the result goes as JSON; None for nowhere.
        allow_simulated: see ``open_device``.

    Raises:
        InputError: a lone workload, a recording, or a request that cannot be.
        DeviceError: a workload failed.
    """
    from tuner.database.connection import holds_something
    from tuner.kernel_files.catalog import Catalog
    from tuner.report.balance import balance_lines
    from tuner.report.layout import rendered
    from tuner.search.setup import open_setup
    from tuner.search.together import balance, balance_document

    request.check()
    catalog = Catalog.load(request.kernel_files)
    timed = replace(
        request,
        objective="time",
        max_slowdown=None,
        clocks="off",
        power_limits="off",
        joules=False,
        sensor=None,
        scope="gpu",
    )
    stored = database is None or holds_something(database)  # what is missing is made by the run to come
    with (
        orderly_stop(),
        reading(database) if stored else nullcontext() as store,
        open_setup(device_spec, timed, allow_simulated=allow_simulated) as setup,
    ):
        found = balance(setup, request, catalog, store, lambda text: echo(text, err=True))
        document = balance_document(setup, found)
    command = shlex.join(["tuner", "run", *found.specs, *_options(request.kernel_files)])
    for notice in found.notices:
        echo(f"notice: {notice}", err=True)
    if json_path is not None:
        write_json(json_path, document | {"command": command})
    out = console(json_path)
    out.print(rendered(list(balance_lines(document, command, out.width))))


def _options(kernel_files: Sequence[Path]) -> Iterator[str]:
    """The options of this command as they were given."""
    for file in kernel_files:
        yield from ("--kernel", str(file))
    ctx = click.get_current_context()
    for parameter in ctx.command.params:
        name = parameter.name or ""
        given = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if not isinstance(parameter, click.Option) or not given or name in _ITS_OWN:
            continue
        yield parameter.opts[0]
        if not parameter.is_flag:
            yield str(ctx.params[name])
