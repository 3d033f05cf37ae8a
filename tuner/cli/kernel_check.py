"""``tuner kernels check``: everything about a kernel file that is known without running it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner.cli.kernel_words import configuration_text, extremes
from tuner.cli.output import console, echo, json_option, write_json
from tuner.errors import KernelFileError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tuner.compiler import CompiledStage
    from tuner.config import KernelFile
    from tuner.config.signature_check import Remark
    from tuner.errors import CompileError
    from tuner.interfaces import Progress
    from tuner.model import Buffer, Plan, Stage, Workload
    from tuner.space import Space

    Results = Mapping[str, list[tuple[Stage, CompiledStage | CompileError]]]

MAX_NAMED = 4
"""Architectures that are listed even where they are all."""

MAX_PLANS = 50_000
"""Configurations of a workload that are evaluated; of a larger space, some half a minute's worth."""


@click.command()
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
    from tuner.config import load_kernel_file

    kernel = load_kernel_file(file)
    spaces = {workload: kernel.space(workload) for workload in kernel.workloads()}
    results = {} if no_compile else _compiled(kernel, architectures)
    found = _findings(kernel, results, asked=bool(architectures))
    notes = _notes(kernel, results, no_compile=no_compile)
    errors = [one.text for one in found if one.level == "error" or strict]
    warnings = [one.text for one in found if one.text not in errors]
    for line in warnings:
        echo(f"Warning: {line}", err=True)
    valued: set[str] = set()
    checked = {} if errors else spaces
    rows = [_checked(kernel, workload, space, valued) for workload, space in checked.items()]
    sampled = any(len(space) > MAX_PLANS for space in spaces.values())
    if sampled:
        notes.append(f"of each larger space {MAX_PLANS:,} configurations, evenly spread, were evaluated")
    elif not errors:
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
    out.print(f"next: tuner run --kernel {file}", highlight=False, soft_wrap=True, markup=False)


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
            str(row["configurations"]),
            str(row["product"]),
            configuration_text(row["default"]),
            extremes(row["threads_per_block"]),
            extremes(row["launches"]),
        )
    console(json_path).print(table)


# --- signatures, names, compiling ------------------------------------------------------------------


def _default_plan(kernel: "KernelFile", workload: "Workload") -> "Plan":
    return kernel.plan(workload, kernel.default(workload))


def _compiled(kernel: "KernelFile", asked: tuple[str, ...]) -> "Results":
    """The launches of default configurations, each function of a source once, for each architecture."""
    from tuner.compiler.architectures import compiled_for, served_architectures

    stages: dict[tuple[str, str], Stage] = {}
    for workload in kernel.workloads():
        for stage in _default_plan(kernel, workload).stages:
            if not _is_library(stage):
                stages.setdefault((stage.source.path, stage.entry.partition("<")[0]), stage)
    wanted = {
        architecture: [
            stage for stage in stages.values() if stage.min_architecture <= int(architecture[3:].rstrip("af"))
        ]
        for architecture in (asked or served_architectures())
        if _known_architecture(architecture)
    }
    with _progress(len(wanted)) as progress:
        compiled = compiled_for(wanted, progress)
    return {one: list(zip(wanted[one], compiled[one], strict=True)) for one in wanted}


def _alternatives(kernel: "KernelFile") -> "list[Stage]":
    """The launches with each value of each text tunable, all others as by default where that is allowed."""
    workload = kernel.workloads()[0]
    default = kernel.default(workload)
    found = []
    for name, values in kernel.tunables.items():
        for value in values:
            if isinstance(value, str) and default.get(name) != value:
                one = kernel.allowed(workload, {**default, name: value}) or next(
                    (other for other in kernel.space(workload) if other.get(name) == value), None
                )
                found += [] if one is None else kernel.launches(workload, one)
    return [stage for stage in dict.fromkeys(found) if not _is_library(stage)]


def _is_library(stage: "Stage") -> bool:
    """Whether a library's code is called, of which no source is here."""
    return getattr(stage, "library", None) is not None


def _known_architecture(architecture: str) -> bool:
    """True.

    Raises:
        InputError: it is not written as an architecture is.
    """
    import re

    from tuner.errors import InputError

    if re.fullmatch(r"sm_\d+[af]?", architecture) is None:
        raise InputError(f"--arch {architecture}: no architecture; write it as in sm_90")
    return True


@contextmanager
def _progress(total: int) -> Iterator["Progress"]:
    """A line on a terminal that says how many architectures are compiled."""
    from rich.progress import Progress as Display

    from tuner.report.console import PlainConsole

    err = PlainConsole(stderr=True)
    with Display(console=err, transient=True, disable=not err.is_terminal) as one:
        task = one.add_task("compiling for architectures", total=total)
        yield lambda done, _: one.update(task, completed=done)


def _alternative_findings(kernel: "KernelFile", results: "Results") -> "list[Remark]":
    """Errors of the compiler in the other values of tunables that are texts, for the newest architecture."""
    from tuner.compiler.architectures import compiled_for
    from tuner.config.signature_check import Remark
    from tuner.errors import CompileError

    if not results:
        return []
    newest = max(results, key=lambda name: int(name[3:].rstrip("af")))
    known = {stage for stage, _ in results[newest]}
    least = int(newest[3:].rstrip("af"))
    stages = [one for one in _alternatives(kernel) if one not in known and one.min_architecture <= least]
    found = compiled_for({newest: stages})[newest] if stages else []
    return [
        Remark("error", f"{kernel.path}: does not compile for {newest}: {one}")
        for one in found
        if isinstance(one, CompileError)
    ]


def _findings(kernel: "KernelFile", results: "Results", *, asked: bool) -> "list[Remark]":
    """What does not compile, does not fit the signature, or is used by nothing; each text once."""
    from tuner.compiler import CompiledStage
    from tuner.compiler.architectures import demangled
    from tuner.config.signature_check import Remark, findings, signature_of
    from tuner.config.unused_names import overridden_macros, unused_macros, unused_names

    names = {
        stage: demangled(one.lowered_name)
        for rows in results.values()
        for stage, one in rows
        if isinstance(one, CompiledStage)
    }
    found = _compile_findings(kernel, results, asked=asked)
    found += _alternative_findings(kernel, results)
    for workload in kernel.workloads():
        plan = _default_plan(kernel, workload)
        for stage in plan.stages:
            parameters = None if _is_library(stage) else signature_of(stage, names.get(stage))
            if parameters is not None:
                found += findings(kernel.path, plan, stage, parameters)
        found += [Remark("warning", f"{kernel.path}: {text}") for text in unused_macros(plan)]
    found += [Remark("warning", f"{kernel.path}: {text}") for text in unused_names(kernel.recipe)]
    found += [Remark("error", f"{kernel.path}: {text}") for text in overridden_macros(kernel.recipe)]
    return list(dict.fromkeys(found))


def _compile_findings(kernel: "KernelFile", results: "Results", *, asked: bool) -> "list[Remark]":
    """Errors of the compiler; only warnings where it compiles for others, and none was asked for."""
    from tuner.config.signature_check import Remark
    from tuner.errors import CompileError

    failed: dict[str, list[str]] = {}
    for architecture, rows in results.items():
        error = next((one for _, one in rows if isinstance(one, CompileError)), None)
        if error is not None:
            failed.setdefault(str(error), []).append(architecture)
    some = sum(map(len, failed.values())) < sum(bool(rows) for rows in results.values())
    level = "warning" if some and not asked else "error"
    hint = "; min_architecture of [launch] leaves devices out" if level == "warning" else ""
    return [
        Remark(level, f"{kernel.path}: does not compile for {_named(architectures, results)}: {error}{hint}")
        for error, architectures in failed.items()
    ]


def _named(architectures: "Sequence[str]", results: "Results") -> str:
    """Architectures, those of a long list that leaves none out by its ends."""
    if len(architectures) > MAX_NAMED and len(architectures) == len(results):
        ends = f"{architectures[0]} to {architectures[-1]}"
        return f"all {len(architectures)} architectures of this NVRTC, {ends}"
    return " ".join(architectures)


def _notes(kernel: "KernelFile", results: "Results", *, no_compile: bool) -> list[str]:
    from tuner.errors import CompileError

    good = [
        a for a, rows in results.items() if rows and not any(isinstance(o, CompileError) for _, o in rows)
    ]
    notes = [f"the default compiles for {_named(good, results)}"] if good else []
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
            " [problem.reference] would hold them against right ones"
        )
    return notes


def _outcomes(results: "Results") -> list[dict[str, Any]]:
    from tuner.compiler import CompiledStage

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
            raise condition.when.place.error(
                f"{name} has no value in any configuration of any size: {condition.when} is never true"
                " where the rules hold"
            )


def _checked(kernel: "KernelFile", workload: "Workload", space: "Space", valued: set[str]) -> dict[str, Any]:
    """Facts of one workload over all its configurations; raises for the first that is wrong.

    ``valued`` gets the tunables that have a value in any of them.
    """
    from tuner.errors import InputError, KernelFileError
    from tuner.problems import validate_plan

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
        threads |= {stage.threads_per_block for stage in stages if stage.library is None}
        launches.add(len(stages))
    return {
        "workload": str(workload),
        "batch": workload.batch,
        "configurations": len(space),
        "product": space.cartesian_size,
        "default": dict(kernel.default(workload)),
        "threads_per_block": sorted(threads),
        "launches": sorted(launches),
    }
