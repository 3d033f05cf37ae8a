"""The compiled part of ``tuner kernels check``: defaults, alternatives, and what does not compile."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuner.compiler.compiler import CompiledStage
    from tuner.devices.base import Progress
    from tuner.kernel_files.kernel_file import KernelFile
    from tuner.kernel_files.source_checks import Remark
    from tuner.model.errors import CompileError
    from tuner.model.plan import Plan, Stage, Workload


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
    from tuner.compiler.architectures import compiled_for, served_architectures
    from tuner.model.errors import InputError

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
    """Whether a library's code is called, of which no source is here."""
    return getattr(stage, "library", None) is not None


def _known_architecture(architecture: str) -> bool:
    """True.

    Raises:
        InputError: it is not written as an architecture is.
    """
    import re

    from tuner.model.errors import InputError

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


def alternative_findings(kernel: "KernelFile", results: Results) -> "list[Remark]":
    """Errors of the compiler in the other values of tunables that are texts, for the newest architecture."""
    from tuner.compiler.architectures import compiled_for
    from tuner.kernel_files.source_checks import Remark
    from tuner.model.errors import CompileError

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
    from tuner.compiler.architectures import compiled_for
    from tuner.compiler.contract import misfit
    from tuner.kernel_files.source_checks import Remark
    from tuner.model.errors import CompileError

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
    from tuner.model.errors import CompileError

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
