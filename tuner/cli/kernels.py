"""``tuner kernels``: list the catalogue; check, expand, begin and add kernel files."""

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, cast

import click

from tuner.cli.kernel_check import check, configuration_text, extremes, listed
from tuner.cli.options import kernel_option
from tuner.cli.output import console, echo, json_option, write_json, write_whole
from tuner.model.errors import CompileError, InputError, KernelFileError

if TYPE_CHECKING:
    from rich.console import Console

    from tuner.kernel_files.draft_code import Ask
    from tuner.kernel_files.kernel_file import KernelFile
    from tuner.model.plan import TunableValue, Workload
    from tuner.system.untrusted.reading import TomlValue


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
    from tuner.kernel_files.catalog import Catalog
    from tuner.kernel_files.formulas import Location
    from tuner.kernel_files.pragmas.expansion import toml_text
    from tuner.kernel_files.short_files import default_name, read_pragma_file

    if not source.suffix and not source.exists() and len(source.parts) == 1:
        source = Catalog.load().kernel(str(source)).path
    expanded, _ = read_pragma_file(source)
    if output is None:
        echo(f"# kernel.toml\n{toml_text(expanded.document)}\n// {source.name}\n{expanded.text.rstrip()}")
    else:
        name = default_name(source, Location(str(source), "[kernel] name"))  # not that of the folder
        kernel = cast("dict[str, TomlValue]", expanded.document["kernel"])
        text = toml_text({**expanded.document, "kernel": {"name": name, **kernel}})
        targets = {output / "kernel.toml": text, output / source.name: expanded.text}
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
    for note in expanded.notes:
        echo(f"assumed: {note}", err=True)


@click.command(short_help="Write a kernel file for a file of CUDA C++ or Triton.")
@click.argument("source", type=click.Path(path_type=Path))
@click.option(
    "--kernel", metavar="NAME", help="Which __global__ or @triton.jit function, where there are several."
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where to write it. Default: beside the source, under its name with .toml.",
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def new(*, source: Path, kernel: str | None, output: Path | None, force: bool) -> None:
    """Write a kernel file for SOURCE, of CUDA C++ or (.py) of Triton, from the signature of its kernel.

    What cannot be told from the source is guessed, and a comment says so.
    """
    from tuner.kernel_files.cuda_source.tokens import has_pragmas
    from tuner.kernel_files.drafting import drafted
    from tuner.kernel_files.source_folder import read_source

    if source.is_dir():
        raise InputError(f"{source}: is a folder; SOURCE is a file of CUDA C++")
    if source.suffix == ".toml":
        raise InputError(
            f"{source}: is a kernel file; SOURCE is CUDA C++, such as {source.with_suffix('.cu')}"
        )
    target = output or source.with_suffix(".toml")
    if target.exists() and not force:
        raise InputError(f"{target}: is there already; --force replaces it, --output names another file")
    text = read_source(source, str(source))
    if has_pragmas(text):
        raise InputError(
            f"{source}: has tuning pragmas, and is a kernel file itself: `tuner kernels check {source}`;"
            " `tuner kernels expand` writes it as a kernel file"
        )
    with _asked(source, text) as ask:
        draft = drafted(text, source, kernel, ask=ask, beside=_beside(source))
    draft.source = os.path.relpath(source.absolute(), target.absolute().parent)
    write_whole(target, draft.toml(), f"{target}: cannot be written")
    echo(f"{target}: written from {draft.function.name} in {source}, line {draft.function.line}")
    for guess in draft.guesses:
        echo(f"  guessed: {guess}")
    if draft.fixed:
        echo(f"  fixed by the source, so not tuned: {', '.join(draft.fixed)} (the file says how they can be)")
    for missing in draft.missing:
        echo(f"  to fill in: {missing}")
    echo(f"next: look through it, then `tuner kernels check {target}`, then `tuner run --kernel {target}`")


DRAFT_S = 60.0
"""The longest that the compiler is asked about one draft."""


@contextmanager
def _asked(source: Path, text: str) -> "Iterator[Ask]":
    """The compiler as drafts ask it, for the newest architecture; nothing is told without NVRTC."""
    from tuner.compiler.compiler import Compiler
    from tuner.compiler.nvrtc_backend import served_architectures
    from tuner.compiler.ptx import facts_in
    from tuner.kernel_files.draft_code import Answer
    from tuner.kernel_files.formulas import Location
    from tuner.kernel_files.source_folder import SourceFolder
    from tuner.model.plan import Stage

    served = served_architectures()
    if not served:
        yield lambda *_: None
        return
    until_s, told = time.monotonic() + DRAFT_S, False
    location = Location(str(source), "[kernel] source")
    beside = SourceFolder(source.parent, [], location, {source.name: text}).source(source.name, location)
    with Compiler(served[-1]) as compiler:

        def ask(entry: str, options: tuple[str, ...], tail: str) -> Answer | None:
            nonlocal told
            compiler.timeout_s = until_s - time.monotonic()
            if compiler.timeout_s <= 0:
                if not told:
                    echo(f"compiling took {DRAFT_S:g} s: no more is asked of the compiler", err=True)
                told = True
                return None
            whole = replace(beside, text=text + tail) if tail else beside
            stage = Stage("draft", whole, entry, options, (1, 1, 1), (1, 1, 1), 0, ())
            (code,) = compiler.compile([stage])
            if isinstance(code, CompileError):
                return Answer(code.log or str(code))
            facts = facts_in(code.ptx)
            places = frozenset(re.findall(r"%(n?(?:tid|ctaid)\.[xyz])\b", code.ptx))
            if facts is None:
                return Answer("", places)
            return Answer("", places, facts.dynamic_shared, facts.most_threads, facts.waits_for_grid)

        yield ask


def _beside(source: Path) -> Iterator[str]:
    """Texts of the sources beside one, which may launch its kernels."""
    from tuner.kernel_files.source_folder import read_source

    for path in sorted(source.parent.iterdir()):
        if path.suffix in (".cu", ".cuh", ".h") and path.name != source.name:
            with suppress(InputError):
                yield read_source(path, str(path))


_system_option = click.option(
    "--system",
    is_flag=True,
    help="For all users and the service, in /etc/tuner/kernels.d. Default: for this user alone.",
)


@click.command(short_help="Have every command know the kernel of a file.")
@click.argument("file", required=False, type=click.Path(path_type=Path), metavar="[FILE]")
@click.option("--list", "listing", is_flag=True, help="List the files that were added; add none.")
@_system_option
def add(*, file: Path | None, listing: bool, system: bool) -> None:
    """Have every command, `tuner.apply` and the daemon know the kernel of FILE by its name.

    Only the path is kept: the file stays where it is, and its changes count. The daemon reads the file if
    its folder belongs to its user or root, and nobody else can write there.
    """
    from tuner.kernel_files.catalog import ADDED, SYSTEM_DIRECTORY, Catalog, load_kernel_file, user_directory
    from tuner.kernel_files.trust import usable_directories
    from tuner.system.untrusted.reading import plain_line
    from tuner.system.user_folders import make_folder

    if listing or file is None:
        if file is not None:
            raise InputError(f"--list: adds nothing; leave {file} out")
        if not listing:
            raise click.UsageError("Missing argument 'FILE'; --list shows those that were added.")
        _list_added()
        return
    kernel = load_kernel_file(file)
    target, folder = Path(os.path.normpath(file.absolute())), SYSTEM_DIRECTORY if system else user_directory()
    if (shown := plain_line(str(target)).strip()) != str(target):
        raise InputError(
            f"{shown}: the path has a line break, blanks at its end or bytes that are no UTF-8; move the file"
        )
    before = Catalog.load().kernels.get(kernel.name)
    place = folder / f"{kernel.name}{ADDED}"
    try:
        if system:
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        else:
            make_folder(folder)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made: {error.strerror}") from error
    write_whole(place, f"{target}\n", f"{place}: cannot be written")
    if before is not None and before.path != target:
        echo(f"{kernel.name}: takes the place of {before.path}", err=True)
    _, left_out = usable_directories([folder])
    if reason := left_out.get(folder) or left_out.get(target):
        echo(f"the daemon does not read it: {reason}", err=True)
    workload = kernel.example if ":" in kernel.example else kernel.name
    undo = f"tuner kernels remove {kernel.name}{' --system' if system else ''}"
    echo(f"{kernel.name}: {target}, as in `tuner run {workload}`; `{undo}` undoes it")


def _list_added() -> None:
    """Print name, file and state of each kernel that was added."""
    from tuner.kernel_files.catalog import SYSTEM_DIRECTORY, added_files, load_kernel_file, user_directory

    for folder in (SYSTEM_DIRECTORY, user_directory()):
        for name, path in added_files(folder).items():
            state = "" if path.exists() else " (gone)"
            try:
                kernel = None if state else load_kernel_file(path)
            except KernelFileError as error:
                kernel, state = None, f" ({error})"
            if kernel is not None and kernel.name != name:
                state = f" (its kernel is called {kernel.name} now)"
            echo(f"{name}: {path}{state}")


@click.command(short_help="Forget a kernel file that was added.")
@click.argument("name")
@_system_option
def remove(*, name: str, system: bool) -> None:
    """Forget the kernel file that was added as NAME; the file and its runs stay."""
    from tuner.kernel_files.catalog import ADDED, SYSTEM_DIRECTORY, added_files, user_directory
    from tuner.model.errors import suggestion

    folder = SYSTEM_DIRECTORY if system else user_directory()
    added = added_files(folder)
    if name not in added:
        names = ", ".join(added) or "none"
        raise InputError(f"{name}: was not added to {folder}; added there: {names}{suggestion(name, added)}")
    place = folder / f"{name}{ADDED}"
    try:
        place.unlink()
    except OSError as error:
        raise InputError(f"{place}: cannot be removed: {error.strerror}") from error
    echo(f"{name}: forgotten; {added[name]} stays as it is")


@click.group()
def kernels() -> None:
    """List, show, check, begin and add kernels and their files."""


for _command in (check, expand, new, add, remove):
    kernels.add_command(_command)


@kernels.command("list")
@kernel_option
@json_option
def list_(*, kernel_files: tuple[Path, ...], json_path: str | None) -> None:
    """List the kernels of the catalogue."""
    from tuner.kernel_files.catalog import Catalog
    from tuner.report.layout import ruled
    from tuner.report.rows import Column, Table

    catalog = Catalog.load(kernel_files)
    rows = [_summary(catalog.kernel(name)) for name in catalog.names]
    if json_path is not None:
        write_json(json_path, {"kernels": rows, "broken": [str(error) for error in catalog.broken]})
    columns: list[Column[_Summary]] = [
        Column("name", lambda row: row["name"]),
        Column("family", lambda row: row["family"]),
        Column("sizes", _sizes),
        Column("tunables", lambda row: " ".join(row["tunables"])),
        Column(
            "configurations",
            lambda row: extremes(sorted(size["configurations"] for size in row["workloads"])),
        ),
        Column("from", lambda row: row["origin"]),
    ]
    console(json_path).print(ruled(Table(columns, rows)))
    for error in catalog.broken:
        echo(f"Warning: {error}", err=True)


@kernels.command()
@click.argument("name")
@kernel_option
@json_option
def show(*, name: str, kernel_files: tuple[Path, ...], json_path: str | None) -> None:
    """Show everything about one kernel."""
    from tuner.kernel_files.catalog import Catalog

    alone, _, sizes = name.partition(":")
    if sizes:
        raise InputError(f"{name}: a kernel is shown with all its sizes; write {alone}")
    kernel = Catalog.load(kernel_files).kernel(name)
    summary = _summary(kernel)
    for row, workload in zip(summary["workloads"], kernel.workloads(), strict=True):
        row["default"] = dict(kernel.default(workload)) if row["configurations"] else None
    if json_path is not None:
        details = {
            "roles": dict(kernel.roles),
            "conditions": dict(kernel.conditions),
            "rules": list(kernel.rules),
            "spills": kernel.spills,
            "min_occupancy": kernel.min_occupancy,
            "problem": kernel.problem.name,
            "tolerance": kernel.problem.tolerance,
            "stages": list(kernel.stages),
        }
        write_json(json_path, {**summary, **details})
    _print_details(kernel, summary, console(json_path))


@kernels.command(short_help="Write the JSON Schema of kernel files, for editors.")
@click.argument("file", default="-")
@json_option
def schema(*, file: str, json_path: str | None) -> None:
    """Write the JSON Schema of kernel files to FILE (standard output without it), for editors."""
    from tuner.kernel_files.schema import json_schema

    write_json(json_path or file, json_schema())


class _WorkloadRow(TypedDict, total=False):
    """A workload of a kernel; ``default`` is shown with one kernel only."""

    workload: str
    batch: int
    configurations: int
    note: str
    default: "dict[str, TunableValue] | None"


class _Summary(TypedDict):
    name: str
    description: str
    family: str
    sizes: dict[str, list[int | str] | dict[str, int]]
    optional: list[str]
    tunables: "dict[str, list[TunableValue]]"
    workloads: list[_WorkloadRow]
    origin: str
    path: str


def _summary(kernel: "KernelFile") -> _Summary:
    from tuner.kernel_files.catalog import origin
    from tuner.kernel_files.reader import configuration_counts

    workloads = kernel.workloads()
    try:
        counts = configuration_counts(kernel, workloads)
    except InputError:  # of one of them: each says so itself
        counts = [0] * len(workloads)
    return {
        "name": kernel.name,
        "description": kernel.description,
        "family": kernel.family,
        "sizes": {
            name: {"from": values[0], "to": values[-1]} if isinstance(values, range) else list(values)
            for name, values in kernel.sizes.items()
        },
        "optional": list(kernel.optional),
        "tunables": {name: list(values) for name, values in kernel.tunables.items()},
        "workloads": [
            _workload_row(kernel, workload, count) for workload, count in zip(workloads, counts, strict=True)
        ],
        "origin": origin(kernel.path),
        "path": str(kernel.path),
    }


def _workload_row(kernel: "KernelFile", workload: "Workload", count: int) -> _WorkloadRow:
    """A workload and its number of configurations; a kernel whose rules fail does not end the list.

    Args:
        kernel: of the workload.
        workload: one of its sizes.
        count: configurations; 0 where they are still to be counted.
    """
    note = ""
    try:
        count = count or kernel.space(workload).size
    except InputError as error:
        note = str(error)
    return {"workload": str(workload), "batch": workload.batch, "configurations": count, "note": note}


def _print_details(kernel: "KernelFile", summary: _Summary, out: "Console") -> None:
    from rich.table import Table as Grid

    from tuner.report.layout import rendered, table_lines
    from tuner.report.rows import Column, Table

    roles = {tunable: role for role, tunable in kernel.roles.items()}
    occupancy = kernel.min_occupancy
    lines = [
        ("kernel", kernel.name),
        ("description", kernel.description),
        ("family", kernel.family),
        ("problem", kernel.problem.name),
        ("file", f"{kernel.path} ({summary['origin']})"),
        ("launches", ", ".join(kernel.stages)),
        ("sizes", _sizes(summary)),
        ("occupancy", "" if occupancy is None else f"at least {occupancy:.0%}"),
        ("spills", "allowed" if kernel.spills else ""),
    ]
    for name, values in kernel.tunables.items():
        role = f"   ({roles[name]})" if name in roles else ""
        where = f"   (where {kernel.conditions[name]})" if name in kernel.conditions else ""
        lines.append((f"tunable {name}", f"{listed(values)}{role}{where}"))
    lines += [("rule", rule) for rule in kernel.rules]
    facts = Grid.grid(padding=(0, 2))
    for line in lines:
        if line[1]:
            facts.add_row(*line)
    columns: list[Column[_WorkloadRow]] = [
        Column("workload", lambda row: row["workload"]),
        Column("batch", lambda row: row["batch"], number=True),
        Column("configurations", lambda row: row["configurations"], number=True),
    ]
    default = Column[_WorkloadRow](
        "default", lambda row: row["note"] if row["default"] is None else configuration_text(row["default"])
    )
    out.print(facts)
    out.print()
    out.print(rendered(table_lines(Table(columns, summary["workloads"], default), out.width)))


def _sizes(kernel: _Summary) -> str:
    """All sizes in a line, as ``N=2…8192 [dtype=float32|float64]``; those in brackets may be left out."""
    shown = []
    for name, values in kernel["sizes"].items():
        if isinstance(values, dict):
            choice = f"{values['from']}…{values['to']}"
        else:
            texts = [value for value in values if isinstance(value, str)]
            choice = "|".join(texts) if len(texts) == len(values) else extremes(values)
        shown.append(f"[{name}={choice}]" if name in kernel["optional"] else f"{name}={choice}")
    return " ".join(shown)
