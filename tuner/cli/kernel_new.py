"""``tuner kernels new``: a first kernel file, from the signature of a kernel."""

import os
from pathlib import Path

import click

from tuner.cli.output import echo, write_whole
from tuner.model.errors import InputError


@click.command(short_help="Write a kernel file for a CUDA C++ file.")
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--kernel", metavar="NAME", help="Which __global__ function, where there are several.")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where to write it. Default: beside the source, under its name with .toml.",
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def new(*, source: Path, kernel: str | None, output: Path | None, force: bool) -> None:
    """Write a kernel file for SOURCE, a CUDA C++ file, from the signature of its kernel.

    What cannot be told from the source is guessed, and a comment says so.
    """
    from tuner.kernel_files.drafting import drafted
    from tuner.kernel_files.source_folder import read_text
    from tuner.pragmas.directives import has_pragmas

    if source.suffix == ".toml":
        raise InputError(
            f"{source}: is a kernel file; SOURCE is CUDA C++, such as {source.with_suffix('.cu')}"
        )
    target = output or source.with_suffix(".toml")
    if target.exists() and not force:
        raise InputError(f"{target}: is there already; --force replaces it, --output names another file")
    text = read_text(source, str(source))
    if has_pragmas(text):
        raise InputError(
            f"{source}: has tuning pragmas, and is a kernel file itself: `tuner kernels check {source}`;"
            " `tuner kernels expand` writes it as a kernel file"
        )
    draft = drafted(text, source, kernel)
    draft.source = os.path.relpath(source.absolute(), target.absolute().parent)
    write_whole(target, draft.toml(), f"{target}: cannot be written")
    echo(f"{target}: written from {draft.function.name} in {source}, line {draft.function.line}")
    for note in draft.notes:
        echo(f"  guessed: {note}")
    for missing in draft.missing:
        echo(f"  to fill in: {missing}")
    echo(f"next: look through it, then `tuner kernels check {target}`, then `tuner run --kernel {target}`")
