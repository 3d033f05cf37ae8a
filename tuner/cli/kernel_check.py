"""``tuner kernels check``: everything about a kernel file that is known without running it."""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import click

from tuner.cli.output import console, echo, json_option, write_json
from tuner.model.errors import ChildError, ChildTimeoutError, CompileError, InputError, KernelFileError
from tuner.system.processes import Child

if TYPE_CHECKING:
    from tuner.compiler.compiler import CompiledStage
    from tuner.kernel_files.cuda_source.arguments import Remark
    from tuner.kernel_files.kernel_file import KernelFile
    from tuner.model.plan import Buffer, Plan, Progress, Stage, TunableValue, Workload
    from tuner.space.space import Space

Results = Mapping[str, "list[tuple[Stage, CompiledStage | CompileError]]"]
"""Architecture -> every launch with its code, or why there is none."""

Ends = dict[tuple[str, str], "tuple[int, Plan, Stage]"]
"""Stage and what it has most of -> how much, and where: the launches that code may be unfit for."""

MOST_ALTERNATIVES = 12
"""Values of a text tunable that are compiled: all where they are written out, a few where they are orders."""

MOST_ELEMENTS = 2**24
"""Elements of the arrays that a reference is tried on."""

MOST_IN_DOUBT = 2**26
"""The same where it has failed on smaller arrays that the file does not list."""

TRIED_S = 30.0
"""The longest wait for it."""

MAX_NAMED = 4
"""Architectures that are listed even where they are all."""

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
    from tuner.report.layout import rendered, table_lines
    from tuner.report.rows import Column, Table

    kernel = load_kernel_file(file)
    spaces = {workload: kernel.space(workload) for workload in kernel.workloads()}
    results = {} if no_compile else compiled(kernel, architectures)
    remarks = _remarks(kernel, results, requested=bool(architectures))
    notes = _notes(kernel, results, no_compile=no_compile)
    notes += [remark.text for remark in remarks if remark.level == "note"]
    notes += filter(None, [unseen_guesses(file)])
    valued: set[str] = set()
    ends: Ends = {}
    rows: list[_CheckedWorkload] = []
    if not _of_level(kernel, remarks, "error", strict=strict):
        rows = [_checked(kernel, workload, space, valued, ends) for workload, space in spaces.items()]
        tried = reference_findings(kernel)
        notes += [remark.text for remark in tried if remark.level == "note"]
        remarks += [*end_findings(results, ends), *tried]
    errors = _of_level(kernel, remarks, "error", strict=strict)
    warnings = [] if strict else _of_level(kernel, remarks, "warning", strict=False)
    for line in warnings:
        echo(f"Warning: {line}", err=True)
    partly = _partly_checked(spaces.values())
    notes += partly
    if not errors:
        _check_measured(kernel)
        if not partly:
            notes += check_conditions(kernel, valued)
    if json_path is not None:
        document = {"name": kernel.name, "path": str(kernel.path), "workloads": rows}
        document |= {"errors": errors, "warnings": warnings, "notes": notes}
        write_json(json_path, document | {"compiled": list(_outcomes(results))})
    if errors:
        raise KernelFileError("\n".join(errors))
    columns: list[Column[_CheckedWorkload]] = [
        Column("workload", lambda row: row["workload"]),
        Column("batch", lambda row: row["batch"], number=True, rank=1),
        Column(
            "configurations",
            lambda row: f"{'about ' if row['estimated'] else ''}{row['configurations']:,}",
            number=True,
        ),
        Column("of", lambda row: row["product"], number=True, rank=3),
        Column("threads", lambda row: extremes(row["threads_per_block"]), number=True),
        Column("launches", lambda row: extremes(row["launches"]), number=True, rank=2),
    ]
    default = Column[_CheckedWorkload]("default", lambda row: configuration_text(row["default"]))
    out = console(json_path)
    out.print(rendered(table_lines(Table(columns, rows, default), out.width)))
    but = f"; {len(warnings)} warning{'s' if len(warnings) > 1 else ''} above" if warnings else ""
    for line in [f"{file}: kernel {kernel.name} is well formed{but}", *(f"{file}: {note}" for note in notes)]:
        out.print(line, soft_wrap=True)
    out.print(f"next: {_next(kernel, file)}", soft_wrap=True)


def _of_level(kernel: "KernelFile", remarks: "list[Remark]", level: str, *, strict: bool) -> list[str]:
    """The remarks of a level, behind the name of the file; warnings are errors where they are to be so."""
    levels = (level, "warning") if strict else (level,)
    return [f"{kernel.path}: {one.text}" for one in remarks if one.level in levels]


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
    device = _simulated(kernel)
    if not any(isinstance(values, range) for values in sizes.values()):
        return f"tuner run --kernel {file}{device}"
    picked = ",".join(
        f"{name}={middle(values) if isinstance(values, range) else values[0]}"
        for name, values in sizes.items()
    )
    return f"tuner run {file}:{picked}{device}"


def _simulated(kernel: "KernelFile") -> str:
    """The option that names a simulated GPU, where there is none and what stands in is too old for Triton."""
    from tuner.devices.cuda.probe import driver_problem
    from tuner.devices.gpu_models import serving
    from tuner.kernel_files.build_record import TRITON, compilers_of
    from tuner.kernel_files.triton_stage import LEAST_ARCHITECTURE

    if TRITON not in compilers_of(kernel) or driver_problem() is None:
        return ""
    return f" --device {serving(divmod(LEAST_ARCHITECTURE, 10))}"


# --- Signatures, names, compiling.


def _remarks(kernel: "KernelFile", results: Results, *, requested: bool) -> "list[Remark]":
    """Return remarks on code that does not compile, does not fit the signature, or is not used.

    What holds for several instantiations of a template is told of the first.
    """
    from tuner.compiler.compiler import CompiledStage
    from tuner.compiler.contract import remarks
    from tuner.kernel_files.cuda_source.arguments import Remark
    from tuner.kernel_files.source_checks import overridden_macros, unset_macros, unused_macros, unused_names

    code = {stage: one for rows in results.values() for stage, one in rows if isinstance(one, CompiledStage)}
    found = compile_findings(results, requested=requested)
    found += alternative_findings(kernel, results)
    for plan in checked_plans(kernel):
        for stage in {stage.entry: stage for stage in plan.stages}.values():  # steps differ in numbers only
            found += remarks(plan, stage, code.get(stage)) if stage.library is None else []
    plans = (kernel.plan(workload, kernel.default(workload)) for workload in kernel.workloads())
    unused = [text for plan in plans for text in unused_macros(plan)]
    unused += [*unused_names(kernel.recipe), *unset_macros(kernel.recipe)]
    found += [Remark("warning", text) for text in unused]
    found += [Remark("error", text) for text in overridden_macros(kernel.recipe)]
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


# --- Plans.


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


def check_conditions(kernel: "KernelFile", valued: set[str]) -> list[str]:
    """Notes on tunables without a value at all problems that were looked at, where there are others.

    Raises:
        KernelFileError: a tunable has no value, and there are no other problems.
    """
    recipe = kernel.recipe
    formulas = [
        *(one.when.expression for one in recipe.conditions.values()),
        *(rule.expression for rule in recipe.rules),
    ]
    formulas += [formula.expression for formula in recipe.derived.values()]
    ranges = any(isinstance(values, range) for values in kernel.sizes.values())
    without = {name: one.when for name, one in recipe.conditions.items() if name not in valued}
    if ranges or any("batch" in one.names for one in formulas):
        return [
            f"{name} has no value at the problems above: {when} is false" for name, when in without.items()
        ]
    for name, when in without.items():
        raise when.location.error(
            f"{name} has no value in any configuration of any size: {when} is never true where the rules hold"
        )
    return []


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


# --- The compiled part: defaults, alternatives, ends, and what does not compile.


def checked_plans(kernel: "KernelFile") -> "Iterator[Plan]":
    """The plans of the default configurations, and of the naive kernels that say what is right."""
    for workload in kernel.workloads():
        plan = kernel.plan(workload, kernel.default(workload))
        yield plan
        if plan.reference is not None:
            yield plan.reference


_WITHOUT_TRITON = "sm_101"  # LLVM of Triton 3.4 to 3.9 aborts; sm_110 is the same GPU by its later name


def compiled(kernel: "KernelFile", requested: tuple[str, ...]) -> Results:
    """The launches of the plans that are checked, each function of a source once, for each architecture."""
    from tuner.compiler.compiler import compiled_for
    from tuner.compiler.nvrtc_backend import served_architectures

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
            stage
            for stage in stages.values()
            if stage.min_architecture <= int(architecture[3:].rstrip("af"))
            and (stage.source.language, architecture) != ("triton", _WITHOUT_TRITON)
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
        Remark("error", f"does not compile for {newest}: {error}")
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


def end_findings(results: Results, ends: Ends) -> "list[Remark]":
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
        Remark("warning", f"{text}; searches leave such out, as {plan.label()}")
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
    remarks: list[Remark] = []
    with Child("importlib:import_module", tried.__module__, name="the reference") as child:
        for plan in plans:
            sizes = {**dict(plan.workload.sizes), "batch": plan.workload.batch}
            try:
                trouble = str(
                    child.call(tried.__name__, plan.problem, plan.buffers, sizes, timeout_s=TRIED_S)
                )
            except ChildTimeoutError:
                return [
                    *remarks,
                    Remark("note", f"the reference takes more than {TRIED_S:g} s at {plan.workload}"),
                ]
            except ChildError as error:
                trouble = str(error)
            if not trouble:
                continue
            unlisted = "" if plan is smallest else ", which the file does not list"
            level = "warning" if unlisted or "ModuleNotFoundError" in trouble else "error"
            remarks = [Remark(level, f"{trouble} (at {plan.workload}{unlisted})")]
            if smallest in plans or _elements(smallest) > MOST_IN_DOUBT:
                break
            plans.append(smallest)  # large, but the other may be none that the reference is for
    return remarks


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


def compile_findings(results: Results, *, requested: bool) -> "list[Remark]":
    """Errors of the compiler; only warnings where it compiles for others, and none was requested."""
    from tuner.kernel_files.cuda_source.arguments import Remark

    failed: dict[str, list[str]] = {}
    first: dict[str, CompileError] = {}
    for architecture, rows in results.items():
        error = next((code for _, code in rows if isinstance(code, CompileError)), None)
        if error is not None:
            alike = str(error).replace(architecture, "")
            first.setdefault(alike, error)
            failed.setdefault(alike, []).append(architecture)
    some = sum(map(len, failed.values())) < sum(bool(rows) for rows in results.values())
    level = "warning" if some and not requested else "error"
    hint = "; min_architecture of [launch] leaves devices out" if level == "warning" else ""
    return [
        Remark(level, f"does not compile for {named(architectures, results)}: {first[alike]}{hint}")
        for alike, architectures in failed.items()
    ]


def named(architectures: "Sequence[str]", results: Results) -> str:
    """Architectures, those of a long list that leaves none out by its ends."""
    if len(architectures) > MAX_NAMED and len(architectures) == len(results):
        ends = f"{architectures[0]} to {architectures[-1]}"
        return f"all {len(architectures)} architectures of this NVRTC, {ends}"
    return " ".join(architectures)
