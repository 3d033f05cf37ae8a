"""``tuner kernels expand``: the kernel file and the source that tuning pragmas mean."""

from pathlib import Path

import click

from tuner.cli.output import echo, write_whole
from tuner.model.errors import InputError


@click.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Write kernel.toml and the source there. Default: both are printed.",
)
@click.option("--force", is_flag=True, help="Replace files that are there.")
def expand(*, source: Path, output: Path | None, force: bool) -> None:
    """Show what the tuning pragmas of SOURCE, a CUDA C++ file, mean.

    That is a kernel file, and the source with its tunables as macros in the place of the pragmas. Written to
    a folder, the two are the same kernel without pragmas; headers and data files are not copied. SOURCE may
    be the name of a kernel of the catalogue, too.
    """
    from tuner.config.pragma_file import read_pragma_file
    from tuner.kernel_files.formulas import Place
    from tuner.kernel_files.short_files import default_name
    from tuner.pragmas.toml_text import toml_text

    source = _file_of(source)
    found, _ = read_pragma_file(source)
    if output is None:
        echo(f"# kernel.toml\n{toml_text(found.document)}\n// {source.name}\n{found.text.rstrip()}")
    else:
        name = {"name": default_name(source, Place(str(source), "[kernel] name"))}  # not that of the folder
        text = toml_text({**found.document, "kernel": name | found.document["kernel"]})
        targets = {output / "kernel.toml": text, output / source.name: found.text}
        for target in targets:
            if target.exists() and target.samefile(source):
                raise InputError(f"{target}: is the source itself; --output names another folder")
            if target.exists() and not force:
                raise InputError(f"{target}: is there already; --force replaces it")
        try:
            output.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise InputError(f"--output {output}: cannot be written: {e.strerror}") from e
        for target, content in targets.items():
            write_whole(target, content, f"{target}: cannot be written")
            echo(f"{target}: written")
    for note in found.notes:
        echo(f"assumed: {note}", err=True)


def _file_of(source: Path) -> Path:
    """The file itself, or that of a kernel with this name.

    Raises:
        UnknownNameError: there is neither.
    """
    from tuner.kernel_files.catalog import Catalog

    if source.suffix or source.exists() or len(source.parts) > 1:
        return source
    return Catalog.load().kernel(str(source)).path
