"""``tuner kernels``: list the catalogue; check, expand and begin kernel files."""

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, cast

import click

from tuner.cli.options import kernel_option
from tuner.cli.output import console, echo, json_option, write_json, write_whole
from tuner.model.errors import ChildError, ChildTimeoutError, CompileError, InputError, KernelFileError
from tuner.system.processes import Child

if TYPE_CHECKING:
    from rich.console import Console

    from tuner.compiler.compiler import CompiledStage
    from tuner.kernel_files.cuda_source.arguments import Remark
    from tuner.kernel_files.drafting import Ask
    from tuner.kernel_files.kernel_file import KernelFile
    from tuner.model.plan import Buffer, Plan, Progress, Stage, TunableValue, Workload
    from tuner.space.space import Space
    from tuner.system.untrusted.reading import TomlValue


# --- The compiled part of ``tuner kernels check``: defaults, alternatives, and what does not compile.

Results = Mapping[str, "list[tuple[Stage, CompiledStage | CompileError]]"]
"""Architecture -> every launch with its code, or why there is none."""

Ends = dict[tuple[str, str], "tuple[int, Plan, Stage]"]
"""Stage and what it has most of -> how much, and where: the launches that code may be unfit for."""

MOST_ALTERNATIVES = 12
"""Values of a text tunable that are compiled: all where they are written out, a few where they are orders."""

MOST_ELEMENTS = 2**24
"""Elements of the arrays that a reference is tried on."""

TRIED_S = 30.0
"""The longest wait for it."""

MAX_NAMED = 4
"""Architectures that are listed even where they are all."""


def checked_plans(kernel: "KernelFile") -> "Iterator[Plan]":
    """The plans of the default configurations, and of the naive kernels that say what is right."""
    for workload in kernel.workloads():
        plan = kernel.plan(workload, kernel.default(workload))
        yield plan
        if plan.reference is not None:
            yield plan.reference


def compiled(kernel: "KernelFile", requested: tuple[str, ...]) -> Results:
    """The launches of the plans that are checked, each function of a source once, for each architecture."""
    from tuner.compiler.compiler import compiled_for, served_architectures

    stages: dict[tuple[str, str], Stage] = {}
    for plan in checked_plans(kernel):
        for stage in plan.stages:
            if stage.library is None:  # whose source is not here
                stages.setdefault((stage.source.path, stage.entry.partition("<")[0]), stage)
    for architecture in requested:
        if re.fullmatch(r"sm_\d+[af]?", architecture) is None:
            raise InputError(f"--arch {architecture}: no architecture; write it as in sm_90")
    served = served_architectures()
    unserved = [architecture for architecture in requested if architecture.rstrip("af") not in served]
    if served and unserved:
        raise InputError(f"--arch {unserved[0]}: NVRTC serves {' '.join(served)} here")
    to_compile = {
        architecture: [
            stage for stage in stages.values() if stage.min_architecture <= int(architecture[3:].rstrip("af"))
        ]
        for architecture in (requested or served)
    }
    with _progress(len(to_compile)) as progress:
        code = compiled_for(to_compile, progress)
    return {name: list(zip(to_compile[name], code[name], strict=True)) for name in to_compile}


@contextmanager
def _progress(total: int) -> Iterator["Progress"]:
    """A line on a terminal that says how many architectures are compiled."""
    from rich.progress import Progress as Display

    from tuner.report.layout import PlainConsole

    err = PlainConsole(stderr=True)
    with Display(console=err, transient=True, disable=not err.is_terminal) as display:
        task = display.add_task("compiling for architectures", total=total)
        yield lambda done, _: display.update(task, completed=done)


def alternative_findings(kernel: "KernelFile", results: Results) -> "list[Remark]":
    """Errors of the compiler in the other values of tunables that are texts, for the newest architecture.

    All other tunables are as by default where that is allowed. Of permutations, which are many, the first few
    are compiled.
    """
    from tuner.compiler.compiler import compiled_for
    from tuner.kernel_files.cuda_source.arguments import Remark

    if not results:
        return []
    newest, number = _newest(results)
    workload = kernel.workloads()[0]
    default = kernel.default(workload)
    stages: dict[Stage, None] = {}
    for name, values in kernel.tunables.items():
        for value in values[:MOST_ALTERNATIVES]:
            if not isinstance(value, str) or default.get(name) == value:
                continue
            configuration = kernel.allowed(workload, {**default, name: value}) or next(
                (other for other in kernel.space(workload) if other.get(name) == value), None
            )
            if configuration is not None:
                stages |= dict.fromkeys(kernel.launches(workload, configuration))
    checked = {stage for stage, _ in results[newest]}
    others = [
        stage
        for stage in stages
        if stage.library is None and stage not in checked and stage.min_architecture <= number
    ]
    code = compiled_for({newest: others})[newest] if others else []
    return [
        Remark("error", f"{kernel.path}: does not compile for {newest}: {error}")
        for error in code
        if isinstance(error, CompileError)
    ]


def add_ends(ends: Ends, plan: "Plan", stages: "Iterable[Stage]") -> None:
    """Remember the launches with the largest blocks, the least shared memory and the widest clusters."""
    for stage in stages:
        sizes = {"threads": stage.threads_per_block, "shared": -stage.shared_bytes, "cluster": stage.cluster}
        for name, size in sizes.items():
            largest = ends.get((stage.name, name))
            if largest is None or size > largest[0]:
                ends[stage.name, name] = size, plan, stage


def end_findings(kernel: "KernelFile", results: Results, ends: Ends) -> "list[Remark]":
    """Warnings of launches at the ends that do not fit their code, by the newest architecture.

    Those that do not compile are left out of searches, as these are.
    """
    from tuner.compiler.compiler import compiled_for
    from tuner.compiler.contract import misfit
    from tuner.kernel_files.cuda_source.arguments import Remark

    if not results:
        return []
    newest, number = _newest(results)
    launches = [(plan, stage) for _, plan, stage in ends.values() if stage.min_architecture <= number]
    stages = list(dict.fromkeys(stage for _, stage in launches))
    code = dict(zip(stages, compiled_for({newest: stages})[newest], strict=True)) if stages else {}
    misfits: dict[str, Plan] = {}
    for plan, stage in launches:
        compiled = code[stage]
        if not isinstance(compiled, CompileError):
            misfits.setdefault(misfit(plan, stage, compiled), plan)
    return [
        Remark("warning", f"{kernel.path}: {text}; searches leave such out, as {plan.label()}")
        for text, plan in misfits.items()
        if text
    ]


def reference_findings(kernel: "KernelFile") -> "list[Remark]":
    """Remarks on a reference that makes no right answer, tried in a process of its own.

    It is tried at the smallest problem that the file lists. Where that is large, or its sizes are equal, so
    that an axis may be taken for another, it is tried at a problem that is not listed, too.
    """
    from tuner.kernel_files.cuda_source.arguments import Remark
    from tuner.problems.lookup import TRIED, tried

    if kernel.problem.name not in TRIED:
        return []
    smallest = min((_few(kernel, workload) for workload in kernel.workloads()), key=_elements)
    plans = [plan for plan in (smallest, _other_sizes(kernel, smallest)) if plan is not None]
    plans = [plan for plan in plans if _elements(plan) <= MOST_ELEMENTS]
    if not plans:
        return [Remark("note", "the reference was not tried: the smallest problem is large")]
    with Child("importlib:import_module", tried.__module__, name="the reference") as child:
        for plan in plans:
            sizes = {**dict(plan.workload.sizes), "batch": plan.workload.batch}
            try:
                trouble = str(
                    child.call(tried.__name__, plan.problem, plan.buffers, sizes, timeout_s=TRIED_S)
                )
            except ChildTimeoutError:
                return [Remark("note", f"the reference takes more than {TRIED_S:g} s at {plan.workload}")]
            except ChildError as error:
                return [Remark("warning", f"{kernel.path}: the reference was not tried: {error}")]
            if trouble:
                unlisted = "" if plan is smallest else ", which the file does not list"
                level = "warning" if unlisted or "ModuleNotFoundError" in trouble else "error"
                return [Remark(level, f"{kernel.path}: {trouble} (at {plan.workload}{unlisted})")]
    return []


def _few(kernel: "KernelFile", workload: "Workload") -> "Plan":
    """The default of a workload, with a small batch where the file takes it."""
    with suppress(InputError):
        few = kernel.workload(dict(workload.sizes), min(workload.batch, 3))
        return kernel.plan(few, kernel.default(few))
    return kernel.plan(workload, kernel.default(workload))


def _elements(plan: "Plan") -> int:
    return sum(buffer.elements for buffer in plan.buffers)


def _other_sizes(kernel: "KernelFile", plan: "Plan") -> "Plan | None":
    """The default at a small problem with sizes that all differ; None where the file takes none."""
    from tuner.model.plan import Workload

    workload = plan.workload
    sizes = {name: value for name, value in workload.sizes if isinstance(value, int)}
    if plan.problem.files or any(buffer.input and buffer.input.file for buffer in plan.buffers):
        return None  # which have the shapes of listed problems
    factor = 1
    while _elements(plan) > factor * MOST_ELEMENTS and min(sizes.values(), default=0) >= 2 * factor:
        factor *= 2
    values: set[int] = set()
    for name, value in sizes.items():
        sizes[name] = value // factor
        while sizes[name] in values:
            sizes[name] *= 2
        values.add(sizes[name])
    other = Workload(workload.kernel, tuple({**dict(workload.sizes), **sizes}.items()), workload.batch)
    if other == workload:
        return None
    with suppress(InputError):
        return kernel.plan(other, kernel.default(other))
    return None


def _newest(results: Results) -> tuple[str, int]:
    """The newest architecture, and its number."""
    numbers = {name: int(name[3:].rstrip("af")) for name in results}
    return max(numbers.items(), key=lambda item: item[1])


def compile_findings(kernel: "KernelFile", results: Results, *, requested: bool) -> "list[Remark]":
    """Errors of the compiler; only warnings where it compiles for others, and none was requested."""
    from tuner.kernel_files.cuda_source.arguments import Remark

    failed: dict[str, list[str]] = {}
    for architecture, rows in results.items():
        error = next((code for _, code in rows if isinstance(code, CompileError)), None)
        if error is not None:
            failed.setdefault(str(error), []).append(architecture)
    some = sum(map(len, failed.values())) < sum(bool(rows) for rows in results.values())
    level = "warning" if some and not requested else "error"
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


def extremes(values: Iterable[object]) -> str:
    """First and last of a list, as ``64..4096``; of none ``-``."""
    shown = [str(value) for value in values] or ["-"]
    return shown[0] if len(set(shown)) == 1 else f"{shown[0]}..{shown[-1]}"


def listed(values: Iterable[object]) -> str:
    """Values beside each other, booleans as TOML writes them."""
    return " ".join(str(value).lower() if isinstance(value, bool) else str(value) for value in values)


def configuration_text(values: "Mapping[str, TunableValue]") -> str:
    """A configuration, as ``P=2 L=64``."""
    return " ".join(f"{name}={listed([value])}" for name, value in values.items())


# --- ``tuner kernels check``: everything about a kernel file that is known without running it.

MAX_PLANS = 50_000
"""Configurations of a workload that are evaluated; of a larger space, some half a minute's worth."""


@click.command(short_help="Read, enumerate and compile a kernel file; run no kernel.")
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

    Arguments are compared with the signature of the kernel. The reference is tried on a small problem, in a
    process of its own; no kernel is run.
    """
    from tuner.kernel_files.catalog import load_kernel_file
    from tuner.kernel_files.source_checks import unseen_guesses
    from tuner.report.layout import ruled
    from tuner.report.rows import Column, Table

    kernel = load_kernel_file(file)
    spaces = {workload: kernel.space(workload) for workload in kernel.workloads()}
    results = {} if no_compile else compiled(kernel, architectures)
    remarks = _remarks(kernel, results, requested=bool(architectures))
    notes = _notes(kernel, results, no_compile=no_compile)
    notes += [remark.text for remark in remarks if remark.level == "note"]
    notes += filter(None, [unseen_guesses(file)])
    errors = _of_level(remarks, "error", strict=strict)
    valued: set[str] = set()
    ends: Ends = {}
    checked = {} if errors else spaces
    rows = [_checked(kernel, workload, space, valued, ends) for workload, space in checked.items()]
    remarks += end_findings(kernel, results, ends)
    tried = [] if errors else reference_findings(kernel)
    notes += [remark.text for remark in tried if remark.level == "note"]
    remarks += tried
    errors = _of_level(remarks, "error", strict=strict)
    warnings = [] if strict else _of_level(remarks, "warning", strict=False)
    for line in warnings:
        echo(f"Warning: {line}", err=True)
    partly = _partly_checked(spaces.values())
    notes += partly
    if not errors:
        _check_measured(kernel)
        if not partly:
            check_conditions(kernel, valued)
    if json_path is not None:
        document = {"name": kernel.name, "path": str(kernel.path), "workloads": rows}
        document |= {"errors": errors, "warnings": warnings, "notes": notes}
        write_json(json_path, document | {"compiled": list(_outcomes(results))})
    if errors:
        raise KernelFileError("\n".join(errors))
    columns: list[Column[_CheckedWorkload]] = [
        Column("workload", lambda row: row["workload"]),
        Column("batch", lambda row: str(row["batch"])),
        Column(
            "configurations", lambda row: f"{'about ' if row['estimated'] else ''}{row['configurations']}"
        ),
        Column("of", lambda row: str(row["product"])),
        Column("default", lambda row: configuration_text(row["default"])),
        Column("threads", lambda row: extremes(row["threads_per_block"])),
        Column("launches", lambda row: extremes(row["launches"])),
    ]
    out = console(json_path)
    out.print(ruled(Table(columns, rows)))
    but = f"; {len(warnings)} warning{'s' if len(warnings) > 1 else ''} above" if warnings else ""
    for line in [f"{file}: kernel {kernel.name} is well formed{but}", *(f"{file}: {note}" for note in notes)]:
        out.print(line, soft_wrap=True)
    out.print(f"next: {_next(kernel, file)}", soft_wrap=True)


def _of_level(remarks: "list[Remark]", level: str, *, strict: bool) -> list[str]:
    """Texts of the remarks of a level; warnings are errors where they are to be taken so."""
    return [one.text for one in remarks if one.level == level or (strict and one.level == "warning")]


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


# --- signatures, names, compiling ------------------------------------------------------------------


def _remarks(kernel: "KernelFile", results: Results, *, requested: bool) -> "list[Remark]":
    """Return remarks on code that does not compile, does not fit the signature, or is not used.

    What holds for several instantiations of a template is told of the first.
    """
    from tuner.compiler.compiler import CompiledStage
    from tuner.compiler.contract import remarks
    from tuner.kernel_files.cuda_source.arguments import Remark
    from tuner.kernel_files.source_checks import overridden_macros, unset_macros, unused_macros, unused_names

    code = {stage: one for rows in results.values() for stage, one in rows if isinstance(one, CompiledStage)}
    found = compile_findings(kernel, results, requested=requested)
    found += alternative_findings(kernel, results)
    for plan in checked_plans(kernel):
        for stage in {stage.entry: stage for stage in plan.stages}.values():  # steps differ in numbers only
            for level, text in remarks(plan, stage, code.get(stage)) if stage.library is None else ():
                # notes are printed below the name of the file anyway
                found.append(Remark(level, text if level == "note" else f"{kernel.path}: {text}"))
    for workload in kernel.workloads():
        macros = unused_macros(kernel.plan(workload, kernel.default(workload)))
        found += [Remark("warning", f"{kernel.path}: {text}") for text in macros]
    found += [Remark("warning", f"{kernel.path}: {text}") for text in unused_names(kernel.recipe)]
    found += [Remark("error", f"{kernel.path}: {text}") for text in overridden_macros(kernel.recipe)]
    found += [Remark("warning", f"{kernel.path}: {text}") for text in unset_macros(kernel.recipe)]
    once: dict[str, Remark] = {}
    for remark in found:
        once.setdefault(re.sub(r"<[^()]*>", "<>", remark.text), remark)
    return list(once.values())


def _notes(kernel: "KernelFile", results: Results, *, no_compile: bool) -> list[str]:
    good = [
        architecture
        for architecture, rows in results.items()
        if rows and not any(isinstance(code, CompileError) for _, code in rows)
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


def _outcomes(results: Results) -> Iterator[object]:
    """Each compiled launch as JSON has it."""
    for architecture, rows in results.items():
        for stage, code in rows:
            error = str(code) if isinstance(code, CompileError) else None
            registers = None if isinstance(code, CompileError) else code.resources.registers_per_thread
            yield {
                "architecture": architecture,
                "stage": stage.name,
                "registers": registers,
                "error": error,
            }


# --- plans -----------------------------------------------------------------------------------------


def check_conditions(kernel: "KernelFile", valued: set[str]) -> None:
    """Raises for a tunable that has no value in any configuration of any size."""
    for name, condition in kernel.recipe.conditions.items():
        if name not in valued:
            raise condition.when.location.error(
                f"{name} has no value in any configuration of any size: {condition.when} is never true"
                " where the rules hold"
            )


class _CheckedWorkload(TypedDict):
    workload: str
    batch: int
    configurations: int
    estimated: bool
    product: int
    default: "dict[str, TunableValue]"
    analytical: "list[dict[str, TunableValue]]"
    threads_per_block: list[int]
    launches: list[int]


def _checked(
    kernel: "KernelFile", workload: "Workload", space: "Space", valued: set[str], ends: Ends
) -> _CheckedWorkload:
    """Facts of one workload over all its configurations; raises for the first that is wrong.

    ``valued`` gets the tunables that have a value in any of them, ``ends`` the launches at the ends.
    """
    from tuner.problems.lookup import validate_plan

    threads: set[int] = set()
    launches: set[int] = set()
    validated: set[tuple[Buffer, ...]] = set()
    count = min(len(space), MAX_PLANS)
    for configuration in (space[i * len(space) // count] for i in range(count)):
        plan = kernel.plan(workload, configuration)
        valued.update(configuration)
        if plan.buffers not in validated:
            validated.add(plan.buffers)
            try:
                validate_plan(plan)
            except InputError as error:
                raise KernelFileError(f"{kernel.path}: {error} (at {plan.label()})") from error
        own = [stage for stage in plan.stages if stage.library is None]
        threads |= {stage.threads_per_block for stage in own}
        add_ends(ends, plan, {stage.name: stage for stage in own}.values())
        launches.add(len(plan.stages))
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
    for missing in draft.missing:
        echo(f"  to fill in: {missing}")
    echo(f"next: look through it, then `tuner kernels check {target}`, then `tuner run --kernel {target}`")


@contextmanager
def _asked(source: Path, text: str) -> "Iterator[Ask]":
    """The compiler as drafts ask it, for the newest architecture; nothing is told without NVRTC."""
    from tuner.compiler.compiler import Compiler, served_architectures
    from tuner.compiler.ptx import facts_in
    from tuner.kernel_files.drafting import Answer
    from tuner.kernel_files.formulas import Location
    from tuner.kernel_files.source_folder import SourceFolder
    from tuner.model.plan import Stage

    served = served_architectures()
    if not served:
        yield lambda *_: None
        return
    location = Location(str(source), "[kernel] source")
    beside = SourceFolder(source.parent, [], location, {source.name: text}).source(source.name, location)
    with Compiler(served[-1]) as compiler:

        def ask(entry: str, options: tuple[str, ...], tail: str) -> Answer:
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

    from tuner.report.layout import ruled
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
        Column("batch", lambda row: str(row["batch"])),
        Column("configurations", lambda row: str(row["configurations"])),
        Column(
            "default",
            lambda row: row["note"] if row["default"] is None else configuration_text(row["default"]),
        ),
    ]
    out.print(facts)
    out.print()
    out.print(ruled(Table(columns, summary["workloads"])))


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
