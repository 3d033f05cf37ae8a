"""``tuner kernels``: list the catalogue; check, expand and begin kernel files."""

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner.cli.options import kernel_option
from tuner.cli.output import console, echo, json_option, write_json, write_whole
from tuner.model.errors import CompileError, InputError, KernelFileError

if TYPE_CHECKING:
    from tuner.compiler.compiler import CompiledStage
    from tuner.kernel_files.catalog import Catalog
    from tuner.kernel_files.kernel_file import KernelFile
    from tuner.kernel_files.sizes import SizeValues
    from tuner.kernel_files.source_checks import Remark
    from tuner.model.plan import Buffer, Plan, Progress, Stage, Workload
    from tuner.space.space import Space


# --- The compiled part of ``tuner kernels check``: defaults, alternatives, and what does not compile.

Results = Mapping[str, "list[tuple[Stage, CompiledStage | CompileError]]"]
"""Architecture -> every launch with its code, or why there is none."""

Ends = dict[tuple[str, str], "tuple[int, Plan, Stage]"]
"""Stage and what it has most of -> how much, and where: the launches that code may be unfit for."""

MOST_ALTERNATIVES = 12
"""Values of a text tunable that are compiled: all where they are written out, a few where they are orders."""

MAX_NAMED = 4
"""Architectures that are listed even where they are all."""


def default_plan(kernel: "KernelFile", workload: "Workload") -> "Plan":
    """The plan of the default configuration of a workload."""
    return kernel.plan(workload, kernel.default(workload))


def checked_plans(kernel: "KernelFile") -> "Iterator[Plan]":
    """The plans of the default configurations, and of the naive kernels that say what is right."""
    for workload in kernel.workloads():
        plan = default_plan(kernel, workload)
        yield plan
        if plan.reference is not None:
            yield plan.reference


def compiled(kernel: "KernelFile", asked: tuple[str, ...]) -> Results:
    """The launches of the plans that are checked, each function of a source once, for each architecture."""
    from tuner.compiler.compiler import compiled_for, served_architectures

    stages: dict[tuple[str, str], Stage] = {}
    for plan in checked_plans(kernel):
        for stage in plan.stages:
            if not is_library(stage):
                stages.setdefault((stage.source.path, stage.entry.partition("<")[0]), stage)
    served = served_architectures()
    named = [one for one in asked if _known_architecture(one)]
    unserved = [one for one in named if one.rstrip("af") not in served]
    if served and unserved:
        raise InputError(f"--arch {unserved[0]}: NVRTC serves {' '.join(served)} here")
    wanted = {
        architecture: [
            stage for stage in stages.values() if stage.min_architecture <= int(architecture[3:].rstrip("af"))
        ]
        for architecture in (asked or served)
        if _known_architecture(architecture)
    }
    with _progress(len(wanted)) as progress:
        compiled = compiled_for(wanted, progress)
    return {one: list(zip(wanted[one], compiled[one], strict=True)) for one in wanted}


def _alternatives(kernel: "KernelFile") -> "list[Stage]":
    """The launches with each value of each text tunable, all others as by default where that is allowed.

    Of permutations, which are many, the first few.
    """
    workload = kernel.workloads()[0]
    default = kernel.default(workload)
    found: list[Stage] = []
    for name, values in kernel.tunables.items():
        for value in values[:MOST_ALTERNATIVES]:
            if isinstance(value, str) and default.get(name) != value:
                one = kernel.allowed(workload, {**default, name: value}) or next(
                    (other for other in kernel.space(workload) if other.get(name) == value), None
                )
                found += [] if one is None else kernel.launches(workload, one)
    return [stage for stage in dict.fromkeys(found) if not is_library(stage)]


def is_library(stage: "Stage") -> bool:
    """Return True if a stage calls code of a library, whose source is not here."""
    return getattr(stage, "library", None) is not None


def _known_architecture(architecture: str) -> bool:
    """True.

    Raises:
        InputError: it is not written as an architecture is.
    """
    import re

    if re.fullmatch(r"sm_\d+[af]?", architecture) is None:
        raise InputError(f"--arch {architecture}: no architecture; write it as in sm_90")
    return True


@contextmanager
def _progress(total: int) -> Iterator["Progress"]:
    """A line on a terminal that says how many architectures are compiled."""
    from rich.progress import Progress as Display

    from tuner.report.layout import PlainConsole

    err = PlainConsole(stderr=True)
    with Display(console=err, transient=True, disable=not err.is_terminal) as one:
        task = one.add_task("compiling for architectures", total=total)
        yield lambda done, _: one.update(task, completed=done)


def alternative_findings(kernel: "KernelFile", results: Results) -> "list[Remark]":
    """Errors of the compiler in the other values of tunables that are texts, for the newest architecture."""
    from tuner.compiler.compiler import compiled_for
    from tuner.kernel_files.source_checks import Remark

    if not results:
        return []
    newest, least = _newest(results)
    known = {stage for stage, _ in results[newest]}
    stages = [one for one in _alternatives(kernel) if one not in known and one.min_architecture <= least]
    found = compiled_for({newest: stages})[newest] if stages else []
    return [
        Remark("error", f"{kernel.path}: does not compile for {newest}: {one}")
        for one in found
        if isinstance(one, CompileError)
    ]


def add_ends(ends: Ends, plan: "Plan", stages: "Iterable[Stage]") -> None:
    """Remember the launches with the largest blocks, the least shared memory and the widest clusters."""
    for stage in stages:
        least_shared = -stage.shared_bytes
        sizes = {"threads": stage.threads_per_block, "shared": least_shared, "cluster": stage.cluster}
        for name, size in sizes.items():
            known = ends.get((stage.name, name))
            if known is None or size > known[0]:
                ends[stage.name, name] = size, plan, stage


def end_findings(kernel: "KernelFile", results: Results, ends: Ends) -> "list[Remark]":
    """Warnings of launches at the ends that do not fit their code, by the newest architecture.

    Those that do not compile are left out of searches, as these are.
    """
    from tuner.compiler.compiler import compiled_for
    from tuner.compiler.contract import misfit
    from tuner.kernel_files.source_checks import Remark

    if not results:
        return []
    newest, least = _newest(results)
    launches = [(plan, stage) for _, plan, stage in ends.values() if stage.min_architecture <= least]
    stages = list(dict.fromkeys(stage for _, stage in launches))
    code = dict(zip(stages, compiled_for({newest: stages})[newest], strict=True)) if stages else {}
    found: dict[str, Plan] = {}
    for plan, stage in launches:
        compiled = code[stage]
        if not isinstance(compiled, CompileError):
            found.setdefault(misfit(plan, stage, compiled), plan)
    return [
        Remark("warning", f"{kernel.path}: {text}; searches leave such out, as {plan.label()}")
        for text, plan in found.items()
        if text
    ]


def _newest(results: Results) -> tuple[str, int]:
    """The newest architecture, and its number."""
    numbers = {name: int(name[3:].rstrip("af")) for name in results}
    return max(numbers.items(), key=lambda item: item[1])


def compile_findings(kernel: "KernelFile", results: Results, *, asked: bool) -> "list[Remark]":
    """Errors of the compiler; only warnings where it compiles for others, and none was asked for."""
    from tuner.kernel_files.source_checks import Remark

    failed: dict[str, list[str]] = {}
    for architecture, rows in results.items():
        error = next((one for _, one in rows if isinstance(one, CompileError)), None)
        if error is not None:
            failed.setdefault(str(error), []).append(architecture)
    some = sum(map(len, failed.values())) < sum(bool(rows) for rows in results.values())
    level = "warning" if some and not asked else "error"
    hint = "; min_architecture of [launch] leaves devices out" if level == "warning" else ""
    return [
        Remark(level, f"{kernel.path}: does not compile for {named(architectures, results)}: {error}{hint}")
        for error, architectures in failed.items()
    ]


def named(architectures: "Sequence[str]", results: Results) -> str:
    """Architectures, those of a long list that leaves none out by its ends."""
    if len(architectures) > MAX_NAMED and len(architectures) == len(results):
        ends = f"{architectures[0]} to {architectures[-1]}"
        return f"all {len(architectures)} architectures of this NVRTC, {ends}"
    return " ".join(architectures)


# --- Values and configurations as the tables of ``tuner kernels`` show them.


def extremes(values: Iterable[Any]) -> str:
    """First and last of a list, as ``64..4096``; of none ``-``."""
    shown = [str(value) for value in values] or ["-"]
    return shown[0] if len(set(shown)) == 1 else f"{shown[0]}..{shown[-1]}"


def listed(values: Iterable[Any]) -> str:
    """Values beside each other, booleans as TOML writes them."""
    return " ".join(str(value).lower() if isinstance(value, bool) else str(value) for value in values)


def configuration_text(values: dict[str, Any]) -> str:
    """A configuration, as ``P=2 L=64``."""
    return " ".join(f"{name}={listed([value])}" for name, value in values.items())


# --- ``tuner kernels check``: everything about a kernel file that is known without running it.

MAX_PLANS = 50_000
"""Configurations of a workload that are evaluated; of a larger space, some half a minute's worth."""


@click.command(short_help="Read, enumerate and compile a kernel file; run nothing.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--arch",
    "architectures",
    metavar="sm_NN",
    multiple=True,
    help="Compile for this architecture; may be given several times. Default: all that NVRTC serves here.",
)
@click.option("--no-compile", is_flag=True, help="Compile nothing; signatures are those of the source.")
@click.option("--strict", is_flag=True, help="Take warnings as errors.")
@json_option
def check(
    *, file: Path, architectures: tuple[str, ...], no_compile: bool, strict: bool, json_path: str | None
) -> None:
    """Validate FILE: read it, enumerate every size, evaluate every plan, compile the default.

    Arguments are compared with the signature of the kernel. Nothing is run.
    """
    from tuner.kernel_files.catalog import load_kernel_file

    kernel = load_kernel_file(file)
    spaces = {workload: kernel.space(workload) for workload in kernel.workloads()}
    results = {} if no_compile else compiled(kernel, architectures)
    found = _findings(kernel, results, asked=bool(architectures))
    notes = _notes(kernel, results, no_compile=no_compile)
    notes += [one.text for one in found if one.level == "note"]
    errors = _of_level(found, "error", strict=strict)
    valued: set[str] = set()
    ends: Ends = {}
    checked = {} if errors else spaces
    rows = [_checked(kernel, workload, space, valued, ends) for workload, space in checked.items()]
    found += end_findings(kernel, results, ends)
    errors = _of_level(found, "error", strict=strict)
    warnings = [] if strict else _of_level(found, "warning", strict=False)
    for line in warnings:
        echo(f"Warning: {line}", err=True)
    if not errors:
        _check_measured(kernel)
    notes += _partly_checked(spaces.values())
    if not errors and not _partly_checked(spaces.values()):
        check_conditions(kernel, valued)
    document = {"name": kernel.name, "path": str(kernel.path), "workloads": rows}
    document |= {"errors": errors, "warnings": warnings, "notes": notes, "compiled": _outcomes(results)}
    if json_path is not None:
        write_json(json_path, document)
    if errors:
        raise KernelFileError("\n".join(errors))
    _print_rows(rows, json_path)
    out = console(json_path)
    for line in [f"{file}: kernel {kernel.name} is well formed", *(f"{file}: {note}" for note in notes)]:
        out.print(line, highlight=False, soft_wrap=True, markup=False)
    out.print(f"next: {_next(kernel, file)}", highlight=False, soft_wrap=True, markup=False)


def _of_level(found: "list[Remark]", level: str, *, strict: bool) -> list[str]:
    """Texts of the remarks of a level; warnings are errors where they are to be taken so."""
    return [one.text for one in found if one.level == level or (strict and one.level == "warning")]


def _check_measured(kernel: "KernelFile") -> None:
    """Every row of measured answers is a configuration where its condition holds, at the ends of other sizes.

    Where it holds at no default batch, rows are checked whatever it says.
    """
    from tuner.kernel_files.kernel_file import constants

    measured = kernel.recipe.measured
    if measured is None:
        return
    others = {
        name: (values[0], values[-1]) if isinstance(values, range) else values
        for name, values in kernel.sizes.items()
        if name not in measured.sizes
    }
    for key in measured.rows:
        workloads = [
            kernel.workload(dict(zip((*measured.sizes, *others), (*key, *picked), strict=True)))
            for picked in itertools.product(*others.values())
        ]
        holding = [one for one in workloads if measured.hold(constants(kernel.recipe, one))]
        for workload in holding or workloads:
            for answer in measured.at(dict(workload.sizes), gpu=None):
                kernel.of_row(workload, answer)


def _partly_checked(spaces: "Iterable[Space]") -> list[str]:
    """Notes where not every configuration was evaluated."""
    notes = []
    drawn = [len(space) for space in spaces if space.is_sample]
    if drawn:
        notes.append(
            f"of each space that is too large to be listed {max(drawn):,} configurations, drawn at random,"
            " were evaluated, and the number of all is estimated to two digits"
        )
    if any(len(space) > MAX_PLANS for space in spaces):
        notes.append(f"of each larger space {MAX_PLANS:,} configurations, evenly spread, were evaluated")
    return notes


def _next(kernel: "KernelFile", file: Path) -> str:
    """The command that tunes the kernel: at its first size, in the middle of sizes that are ranges."""
    from tuner.kernel_files.sizes import middle

    sizes = {name: values for name, values in kernel.sizes.items() if name not in kernel.optional}
    if not any(isinstance(values, range) for values in sizes.values()):
        return f"tuner run --kernel {file}"
    picked = ",".join(
        f"{name}={middle(values) if isinstance(values, range) else values[0]}"
        for name, values in sizes.items()
    )
    return f"tuner run {file}:{picked}"


def _print_rows(rows: list[dict[str, Any]], json_path: str | None) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ("workload", "batch", "configurations", "of", "default", "threads", "launches"):
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(
            row["workload"],
            str(row["batch"]),
            f"{'about ' if row['estimated'] else ''}{row['configurations']}",
            str(row["product"]),
            configuration_text(row["default"]),
            extremes(row["threads_per_block"]),
            extremes(row["launches"]),
        )
    console(json_path).print(table)


# --- signatures, names, compiling ------------------------------------------------------------------


def _findings(kernel: "KernelFile", results: Results, *, asked: bool) -> "list[Remark]":
    """Return remarks on code that does not compile, does not fit the signature, or is not used.

    What holds for several instantiations of a template is told of the first.
    """
    from tuner.compiler.compiler import CompiledStage
    from tuner.compiler.contract import remarks
    from tuner.kernel_files.source_checks import Remark, overridden_macros, unused_macros, unused_names

    code = {stage: one for rows in results.values() for stage, one in rows if isinstance(one, CompiledStage)}
    found = compile_findings(kernel, results, asked=asked)
    found += alternative_findings(kernel, results)
    for plan in checked_plans(kernel):
        for stage in {stage.entry: stage for stage in plan.stages}.values():  # steps differ in numbers only
            if not is_library(stage):
                found += _of_file(kernel, remarks(plan, stage, code.get(stage)))
    for workload in kernel.workloads():
        macros = unused_macros(default_plan(kernel, workload))
        found += [Remark("warning", f"{kernel.path}: {text}") for text in macros]
    found += [Remark("warning", f"{kernel.path}: {text}") for text in unused_names(kernel.recipe)]
    found += [Remark("error", f"{kernel.path}: {text}") for text in overridden_macros(kernel.recipe)]
    once: dict[str, Remark] = {}
    for one in found:
        once.setdefault(re.sub(r"<[^()]*>", "<>", one.text), one)
    return list(once.values())


def _of_file(kernel: "KernelFile", found: "list[Remark]") -> "list[Remark]":
    """Remarks with the name of the file; notes are told below it anyway."""
    return [one if one.level == "note" else one._replace(text=f"{kernel.path}: {one.text}") for one in found]


def _notes(kernel: "KernelFile", results: Results, *, no_compile: bool) -> list[str]:

    good = [
        a for a, rows in results.items() if rows and not any(isinstance(o, CompileError) for _, o in rows)
    ]
    notes = [f"the default compiles for {named(good, results)}"] if good else []
    if not results and not no_compile:
        notes.append(
            "nothing was compiled: there is no NVRTC here (the package nvidia-cuda-nvrtc-cu12 has it)"
        )
    left_out = [architecture for architecture, rows in results.items() if not rows]
    if left_out:
        notes.append(f"min_architecture leaves out {' '.join(left_out)}")
    if kernel.problem.name == "consistent":
        notes.append(
            "answers are only compared with each other, as there is no reference;"
            f" {'#pragma tuner check' if kernel.source_to_expand else '[problem.reference]'}"
            " would hold them against right ones"
        )
    return notes


def _outcomes(results: Results) -> list[dict[str, Any]]:
    from tuner.compiler.compiler import CompiledStage

    return [
        {"architecture": architecture, "stage": stage.name}
        | (
            {"registers": one.resources.registers_per_thread, "error": None}
            if isinstance(one, CompiledStage)
            else {"registers": None, "error": str(one)}
        )
        for architecture, rows in results.items()
        for stage, one in rows
    ]


# --- plans -----------------------------------------------------------------------------------------


def check_conditions(kernel: "KernelFile", valued: set[str]) -> None:
    """Raises for a tunable that has no value in any configuration of any size."""
    for name, condition in kernel.recipe.conditions.items():
        if name not in valued:
            raise condition.when.location.error(
                f"{name} has no value in any configuration of any size: {condition.when} is never true"
                " where the rules hold"
            )


def _checked(
    kernel: "KernelFile", workload: "Workload", space: "Space", valued: set[str], ends: Ends
) -> dict[str, Any]:
    """Facts of one workload over all its configurations; raises for the first that is wrong.

    ``valued`` gets the tunables that have a value in any of them, ``ends`` the launches at the ends.
    """
    from tuner.problems.lookup import validate_plan

    threads: set[int] = set()
    launches: set[int] = set()
    known: set[tuple[Buffer, ...]] = set()
    count = min(len(space), MAX_PLANS)
    for configuration in (space[i * len(space) // count] for i in range(count)):
        plan = kernel.plan(workload, configuration)
        valued.update(configuration)
        stages = plan.stages
        if plan.buffers not in known:
            known.add(plan.buffers)
            try:
                validate_plan(plan)
            except InputError as error:
                raise KernelFileError(f"{kernel.path}: {error} (at {plan.label()})") from error
        own = [stage for stage in stages if stage.library is None]
        threads |= {stage.threads_per_block for stage in own}
        add_ends(ends, plan, {stage.name: stage for stage in own}.values())
        launches.add(len(stages))
    return {
        "workload": str(workload),
        "batch": workload.batch,
        "configurations": space.size,
        "estimated": space.is_sample,
        "product": space.cartesian_size,
        "default": dict(kernel.default(workload)),
        "analytical": [dict(one) for one in kernel.stated_answers(workload, gpu="")],
        "threads_per_block": sorted(threads),
        "launches": sorted(launches),
    }


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
    from tuner.kernel_files.formulas import Location
    from tuner.kernel_files.pragmas.expansion import toml_text
    from tuner.kernel_files.short_files import default_name, read_pragma_file

    source = _file_of(source)
    found, _ = read_pragma_file(source)
    if output is None:
        echo(f"# kernel.toml\n{toml_text(found.document)}\n// {source.name}\n{found.text.rstrip()}")
    else:
        name = {
            "name": default_name(source, Location(str(source), "[kernel] name"))
        }  # not that of the folder
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
    from tuner.kernel_files.pragmas.directives import has_pragmas
    from tuner.kernel_files.source_folder import read_text

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


@click.group()
def kernels() -> None:
    """List, show, check and begin kernels and their files."""


kernels.add_command(check)
kernels.add_command(expand)
kernels.add_command(new)


@kernels.command("list")
@kernel_option
@json_option
def list_(*, kernel_files: tuple[Path, ...], json_path: str | None) -> None:
    """List the kernels of the catalogue."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from tuner.kernel_files.catalog import Catalog

    catalog = Catalog.load(kernel_files)
    rows = [_summary(catalog.kernel(name)) for name in catalog.names]
    if json_path is not None:
        write_json(json_path, {"kernels": rows, "broken": [str(error) for error in catalog.broken]})
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ("name", "family", "sizes", "tunables", "configurations", "from"):
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(
            row["name"],
            row["family"],
            Text(_sizes(row["sizes"], row["optional"])),
            " ".join(row["tunables"]),
            extremes(sorted(size["configurations"] for size in row["workloads"])),
            row["origin"],
        )
    console(json_path).print(table)
    _warn(catalog)


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
    document = _details(kernel)
    if json_path is not None:
        write_json(json_path, document)
    _print_details(document, json_path)


@kernels.command(short_help="Write the JSON Schema of kernel files, for editors.")
@click.argument("file", default="-")
@json_option
def schema(*, file: str, json_path: str | None) -> None:
    """Write the JSON Schema of kernel files to FILE (standard output without it), for editors."""
    from tuner.kernel_files.schema import json_schema

    write_json(json_path or file, json_schema())


def _summary(kernel: "KernelFile") -> dict[str, Any]:
    from tuner.kernel_files.catalog import origin

    return {
        "name": kernel.name,
        "description": kernel.description,
        "family": kernel.family,
        "sizes": {name: _values(values) for name, values in kernel.sizes.items()},
        "optional": list(kernel.optional),
        "tunables": {name: list(values) for name, values in kernel.tunables.items()},
        "workloads": _workloads(kernel),
        "origin": origin(kernel.path),
        "path": str(kernel.path),
    }


def _workloads(kernel: "KernelFile") -> list[dict[str, Any]]:
    """The workloads of a kernel, each with its number of configurations."""
    from tuner.kernel_files.reader import configuration_counts

    workloads = kernel.workloads()
    try:
        counts = configuration_counts(kernel, workloads)
    except InputError:  # of one of them: each says so itself
        counts = [0] * len(workloads)
    return [_size(kernel, workload, count) for workload, count in zip(workloads, counts, strict=True)]


def _size(kernel: "KernelFile", workload: "Workload", count: int) -> dict[str, Any]:
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


def _details(kernel: "KernelFile") -> dict[str, Any]:
    summary = _summary(kernel)
    for row, workload in zip(summary["workloads"], kernel.workloads(), strict=True):
        row["default"] = dict(kernel.default(workload)) if row["configurations"] else None
    return summary | {
        "roles": dict(kernel.roles),
        "conditions": dict(kernel.conditions),
        "rules": list(kernel.rules),
        "spills": kernel.spills,
        "min_occupancy": kernel.min_occupancy,
        "problem": kernel.problem.name,
        "tolerance": kernel.problem.tolerance,
        "stages": list(kernel.stages),
    }


def _print_details(document: dict[str, Any], json_path: str | None) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    facts = Table.grid(padding=(0, 2))
    played = {tunable: role for role, tunable in document["roles"].items()}
    occupancy = document["min_occupancy"]
    lines = [
        ("kernel", document["name"]),
        ("description", document["description"]),
        ("family", document["family"]),
        ("problem", document["problem"]),
        ("file", f"{document['path']} ({document['origin']})"),
        ("launches", ", ".join(document["stages"])),
        ("sizes", _sizes(document["sizes"], document["optional"])),
        ("occupancy", "" if occupancy is None else f"at least {occupancy:.0%}"),
        ("spills", "allowed" if document["spills"] else ""),
    ]
    for name, values in document["tunables"].items():
        role = f"   ({played[name]})" if name in played else ""
        condition = document["conditions"].get(name)
        where = "" if condition is None else f"   (where {condition})"
        lines.append((f"tunable {name}", f"{listed(values)}{role}{where}"))
    lines += [("rule", rule) for rule in document["rules"]]
    for key, value in lines:
        if value:
            facts.add_row(Text(key), Text(value))
    sizes = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ("workload", "batch", "configurations", "default"):
        sizes.add_column(title, overflow="fold")
    for row in document["workloads"]:
        default = row["note"] if row["default"] is None else configuration_text(row["default"])
        sizes.add_row(row["workload"], str(row["batch"]), str(row["configurations"]), Text(default))
    out = console(json_path)
    out.print(facts)
    out.print()
    out.print(sizes)


def _warn(catalog: "Catalog") -> None:
    for error in catalog.broken:
        echo(f"Warning: {error}", err=True)


def _values(values: "SizeValues") -> list[int | str] | dict[str, int]:
    """The values of a size as the kernel file writes them."""
    return {"from": values[0], "to": values[-1]} if isinstance(values, range) else list(values)


def _sizes(sizes: dict[str, Any], optional: list[str]) -> str:
    """All sizes in a line, as ``N=2…8192 [dtype=float32|float64]``; those in brackets may be left out."""
    shown = []
    for name, values in sizes.items():
        if isinstance(values, dict):
            choice = f"{values['from']}…{values['to']}"
        else:
            choice = "|".join(values) if all(isinstance(value, str) for value in values) else extremes(values)
        shown.append(f"[{name}={choice}]" if name in optional else f"{name}={choice}")
    return " ".join(shown)
