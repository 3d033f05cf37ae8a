"""``tuner doctor``: what stands between this machine and measurements one can trust."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli.options import database_option
from tuner.cli.output import console, json_option, write_json

if TYPE_CHECKING:
    from tuner.doctor import Finding

_STYLES = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "bold red"}
_MUST_BE_MENDED = 1


@click.command(short_help="Examine the machine for what hampers good measurements.")
@database_option
@json_option
def doctor(*, database: Path | None, json_path: str | None) -> None:
    """Examine driver, packages, sensors, clocks, GPU and host; nothing is set, and no GPU is given work.

    Each finding is ok, a note, a warning (measurements are possible, and less trustworthy) or an error.
    The exit code is 1 when there is an error, else 0.
    """
    from tuner.doctor import Surroundings, examine, worst

    around = Surroundings() if database is None else Surroundings(database=database)
    found = list(examine(around))
    if json_path is not None:
        write_json(json_path, {"worst": worst(found), "findings": [asdict(finding) for finding in found]})
    _show(found, json_path)
    if worst(found) == "error":
        sys.exit(_MUST_BE_MENDED)


def _show(found: "list[Finding]", json_path: str | None) -> None:
    from rich.text import Text

    from tuner.doctor import counts

    out = console(json_path)
    for finding in found:
        line = Text(f"{finding.severity:<8}", style=_STYLES[finding.severity])
        line.append(f"{finding.check}: {finding.text}", style="default")
        out.print(line, soft_wrap=True, highlight=False)
        if finding.remedy:
            out.print(f"{'':8}-> {finding.remedy}", markup=False, highlight=False, soft_wrap=True)
    out.print(counts(found), markup=False, highlight=False)
