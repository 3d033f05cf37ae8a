"""``tuner import`` and ``tuner export``: the formats of other tools, and of builds."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli.options import database_option
from tuner.cli.output import echo, writable, write_whole
from tuner.errors import InputError
from tuner.untrusted.files import read_bytes
from tuner.untrusted.json import load_json
from tuner.untrusted.limits import JSON_BYTES
from tuner.untrusted.text import plain

if TYPE_CHECKING:
    from tuner.exchange.exported_run import ExportedRun
    from tuner.exchange.files import ForeignFile

FORMATS = ("flags", "header", "json", "t4", "kernel-launcher")


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="PATH",
    help="Where to write it. Default: FILE.toml beside a T1 file, FILE.zip here for a recording.",
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def import_(*, file: Path, output: Path | None, force: bool) -> None:
    """Import FILE of another tuner: T1 input as a kernel file, T4 results and caches as recordings.

    What FILE is, its content tells. Texts of it are parsed, and never run.
    """
    from tuner.exchange.files import read_foreign

    found = read_foreign(file)
    stem = file.name.removesuffix(".gz").removesuffix(".json") or file.name
    target = output or (file.with_name(f"{stem}.toml") if found.space is None else Path(f"{stem}.zip"))
    if target.exists() and not force:
        raise InputError(f"{target}: is there already; --force replaces it, --output names another file")
    if found.space is not None and target.exists() and not target.is_file():
        raise InputError(f"{target}: is not a file; --output names another")
    try:
        lines = _import_kernel(found, file, target) if found.space is None else _import_space(found, target)
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror}") from error
    for line in lines:
        echo(line)


def _import_kernel(found: "ForeignFile", file: Path, target: Path) -> list[str]:
    from tuner.config.document import document_of_text
    from tuner.config.source_folder import read_text
    from tuner.exchange.t1 import kernel_of_t1, source_of_t1

    try:
        source = file.parent / source_of_t1(found.document)
        text = read_text(source, f"{file}: KernelSpecification.KernelFile")
        named = os.path.relpath(source.absolute(), target.absolute().parent)
        kernel = kernel_of_t1(found.document, text, named)
        document_of_text(file, kernel.toml)
    except ValueError as error:
        raise InputError(f"{file}: {error}") from error
    write_whole(target, kernel.toml, f"{target}: cannot be written")
    return [
        f"{target}: kernel {kernel.name}, from the T1 file {file}",
        *(f"  {note}" for note in kernel.notes),
        f"next: tuner kernels check {target}",
    ]


def _import_space(found: "ForeignFile", target: Path) -> list[str]:
    from tuner.recordings import write

    space = found.space
    if space is None:
        raise TypeError("not a recording")
    write(target, [space])
    failed = sum(not measurement.ok for measurement in space.trials.values())
    counted = f"{len(space.trials):,} trials, {failed:,} of them failed"
    lines = [f"{target}: {' + '.join(space.names)} on {space.identity.name}, from {found.kind}: {counted}"]
    if found.cut_off:
        lines.append("  its end was missing, as of a tuning that was stopped; what is there was read")
    lines.append(f"next: tuner run --device replay:{target}")
    return lines


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option(
    "--format",
    "kind",
    type=click.Choice(FORMATS),
    default="flags",
    show_default=True,
    help="flags and header are for builds, json is of Kernel Tuner, t4 of the autotuning community.",
)
@click.option("--output", metavar="FILE", callback=writable, help="Default: standard output.")
@database_option
def export(*, runs: tuple[str, ...], kind: str, output: str | None, database: Path | None) -> None:
    """Write the answer or the trials of each RUN for a build or another tool.

    RUN is a number of `tuner history`, a document of `tuner run --json`, or a recording. As a recording of
    this tuner, with launches and joules, `tuner db export` writes it.
    """
    text = _written([_run(name, database) for name in runs], kind)
    if output is None or output == "-":
        if sys.stdout is None:  # closed by who called
            raise InputError("there is no standard output; --output names a file")
        sys.stdout.write(plain(text))
        sys.stdout.flush()
        return
    write_whole(Path(output), text, f"--output {output}")


def _written(runs: "Sequence[ExportedRun]", kind: str) -> str:
    if kind in ("flags", "header"):
        from tuner.exchange import build_files

        return build_files.flags(runs) if kind == "flags" else build_files.header(runs)
    if kind == "kernel-launcher":
        from tuner.exchange.wisdom import wisdom

        return wisdom(runs)
    if kind == "json":
        from tuner.exchange.store_results import results_document

        return json.dumps(results_document(runs), indent=2, allow_nan=False) + "\n"
    from tuner.exchange.t4 import results_of

    if len(runs) > 1:
        raise InputError(f"--format t4: a file is of one run, {len(runs)} are named")
    return json.dumps(results_of(runs[0]), indent=2, allow_nan=False) + "\n"


def _run(name: str, database: Path | None) -> "ExportedRun":
    from tuner.cli.stored_runs import document_of
    from tuner.exchange.exported_run import run_of_document, run_of_space
    from tuner.recordings.opening import SHIPPED, matching, open_recording

    path = Path(name)
    if name in SHIPPED or (path.is_file() and not _is_document(path)):
        recording = open_recording(name if name in SHIPPED else path)
        return run_of_space(recording.space(matching(recording, ())))
    return run_of_document(document_of(name, database), name if path.is_file() else f"run {name}")


def _is_document(path: Path) -> bool:
    """Whether a file is a document of a run rather than a recording."""
    try:
        found = load_json(read_bytes(path, JSON_BYTES))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and "cache" not in found
