"""``tuner kernels check``: everything about a kernel file that is known without running it."""

import itertools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner.cli.kernel_compiling import (
    Ends,
    Results,
    add_ends,
    alternative_findings,
    checked_plans,
    compile_findings,
    compiled,
    default_plan,
    end_findings,
    is_library,
    named,
)
from tuner.cli.kernel_words import configuration_text, extremes
from tuner.cli.output import console, echo, json_option, write_json
from tuner.model.errors import KernelFileError

if TYPE_CHECKING:
    from tuner.kernel_files.kernel_file import KernelFile
    from tuner.kernel_files.source_checks import Remark
    from tuner.model.plan import Buffer, Workload
    from tuner.space.space import Space


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
    from tuner.config.loading import load_kernel_file

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
    from tuner.config.assignment import constants

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
    """What does not compile, does not fit the signature, or is used by nothing.

    What holds for several instantiations of a template is told of the first.
    """
    from tuner.compiler.compiler import CompiledStage
    from tuner.compiler.contract import remarks
    from tuner.config.unused_names import overridden_macros, unused_macros, unused_names
    from tuner.kernel_files.source_checks import Remark

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
    from tuner.model.errors import CompileError

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
            raise condition.when.place.error(
                f"{name} has no value in any configuration of any size: {condition.when} is never true"
                " where the rules hold"
            )


def _checked(
    kernel: "KernelFile", workload: "Workload", space: "Space", valued: set[str], ends: Ends
) -> dict[str, Any]:
    """Facts of one workload over all its configurations; raises for the first that is wrong.

    ``valued`` gets the tunables that have a value in any of them, ``ends`` the launches at the ends.
    """
    from tuner.model.errors import InputError, KernelFileError
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
