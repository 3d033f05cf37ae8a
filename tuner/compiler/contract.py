"""Compiled plans: their resources, and what their code asks of its launches.

``tuner kernels check``, searches, simulated devices and GPUs all ask here. What depends on the device, as
the blocks it holds at a time does, is told by ``tuner.space.occupancy``.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from tuner.compiler.compiler import CompiledStage, Compiler
from tuner.compiler.cubin import demangled, read_cubin
from tuner.compiler.ptx import LaunchFacts, facts_in
from tuner.kernel_files.cuda_source.arguments import Remark, findings, signature_of
from tuner.model.elements import element_dtype
from tuner.model.errors import CompileError, LaunchMisfitError
from tuner.model.plan import Plan, Progress, Resources, Stage

_MOST_THREADS = re.compile(r"--maxntid[= ](\d+)")  # an option of ptxas, which PTX does not show


def remarks(plan: Plan, stage: Stage, compiled: CompiledStage | None) -> list[Remark]:
    """Return mismatches between a stage and the function it launches: first arguments, then the launch."""
    if compiled is not None:
        stage = stage.as_compiled(compiled.resources)
    facts = None if compiled is None else _facts(stage, compiled)
    name = None if compiled is None else demangled(compiled.lowered_name)
    listed = findings(plan, stage, signature_of(stage, name), None if facts is None else facts.parameters)
    if facts is not None:
        where = f"{stage.entry} ({PurePath(stage.source.path).name})"
        listed += [Remark("error", f"{where}: {text}") for text in _misfits(plan, stage, facts)]
    return listed


def misfit(plan: Plan, stage: Stage, compiled: CompiledStage) -> str:
    """Return the reason why a compiled stage cannot be launched as planned; empty if none is detected."""
    if _facts(stage, compiled) is None:
        return ""
    return next((remark.text for remark in remarks(plan, stage, compiled) if remark.level == "error"), "")


def _facts(stage: Stage, compiled: CompiledStage) -> LaunchFacts | None:
    """The launch requirements of code, by its PTX or else by the cubin; None if unknown."""
    if compiled.ptx or stage.source.language != "cubin" or not compiled.cubin:
        return facts_in(compiled.ptx, compiled.symbols)
    cubin = read_cubin(compiled.cubin)
    sizes = tuple(cubin.variables[symbol] for symbol in compiled.symbols)
    return cubin.entries[compiled.lowered_name].launch._replace(symbol_bytes=sizes)


def _misfits(plan: Plan, stage: Stage, facts: LaunchFacts) -> list[str]:
    options = _MOST_THREADS.search(" ".join(stage.options))
    most = facts.most_threads or (int(options[1]) if options else None)
    texts = []
    if facts.block is not None and stage.block != facts.block:
        texts.append(
            f"block {_axes(stage.block)}, and __block_size__ of the source says {_axes(facts.block)}"
        )
    elif most is not None and stage.threads_per_block > most:
        texts.append(
            f"{stage.threads_per_block} threads per block, and __launch_bounds__ of the source allows {most}"
        )
    if facts.counts_clusters:
        texts.append(
            "__block_size__ of the source has a cluster, so that its grid would count clusters;"
            " __cluster_dims__ states one"
        )
    if facts.dynamic_shared and stage.shared_bytes == 0:
        texts.append("the code uses extern __shared__ memory, and shared_bytes is 0")
    if facts.waits_for_grid and not stage.cooperative:
        texts.append(
            "the code waits for the whole grid, and the launch is not cooperative:"
            " cooperative = true would be right"
        )
    texts += _clusters(stage, facts.cluster)
    buffers = {buffer.name: buffer for buffer in plan.buffers}
    for (symbol, name), size in zip(stage.symbols, facts.symbol_bytes, strict=False):
        array = buffers[name]
        needed = array.elements * element_dtype(array.dtype).itemsize
        if 0 < size < needed:
            texts.append(
                f"the variable {symbol} has {size} bytes, and the argument {name} that fills it has {needed}"
                f" ({array.dtype} of shape {array.shape})"
            )
    return texts


def _clusters(stage: Stage, declared: tuple[int, ...] | None) -> list[str]:
    if declared is None and stage.cluster > 1:
        return [f"cluster is {stage.cluster}, and the source has no __cluster_dims__"]
    if declared is None or declared == (stage.cluster, 1, 1):
        return []
    right = (
        f"cluster = {declared[0]} would be right" if declared[1:] == (1, 1) else "clusters are along x only"
    )
    return [f"cluster is {stage.cluster}, and __cluster_dims__ of the source says {_axes(declared)}: {right}"]


def _axes(sizes: tuple[int, ...]) -> str:
    return " x ".join(map(str, sizes))


# --- The resources of plans: each piece of code is compiled once, and held against how it is launched.

LIBRARY_RESOURCES = Resources(0, compiled=False)
"""Of a stage that a library runs: what it takes is not known."""


def plan_resources(
    compiler: Compiler, plans: Sequence[Plan], progress: Progress | None = None
) -> list[tuple[Resources, ...] | CompileError]:
    """For each plan the resources of its stages, or the error that names it.

    Raises:
        CompilerUnavailableError: NVRTC itself fails.
    """
    by_code: dict[tuple[object, ...], Stage] = {}  # the steps of a chain launch the same code again and again
    for stage in (stage for plan in plans for stage in plan.stages if stage.library is None):
        by_code.setdefault(code_of(stage), stage)
    compiled = dict(zip(by_code, compiler.compile(list(by_code.values()), progress), strict=True))
    return [resources_of(plan, compiled) for plan in plans]


def resources_of(
    plan: Plan, compiled: Mapping[tuple[object, ...], CompiledStage | CompileError]
) -> tuple[Resources, ...] | CompileError:
    """The resources of a plan's stages, or why it does not compile or is not launched as its code asks."""
    resources = []
    checked = set()
    for stage in plan.stages:
        if stage.library is not None:
            resources.append(LIBRARY_RESOURCES)
            continue
        item = compiled[code_of(stage)]
        if isinstance(item, CompileError):
            error = CompileError(f"{plan.label()}: {item}")
            error.__cause__ = item
            return error
        launch = (stage.name, stage.entry, stage.block, stage.shared_bytes, stage.cluster, stage.cooperative)
        if launch not in checked:  # the steps of a chain differ in numbers only
            checked.add(launch)
            text = misfit(plan, stage, item)
            if text:
                return LaunchMisfitError(f"{plan.label()} {LaunchMisfitError.reason}: {text}")
        resources.append(item.resources)
    return tuple(resources)


def code_of(stage: Stage) -> tuple[object, ...]:
    """All of a stage that the compiler sees, what its messages call it, and what is declared in its place."""
    return stage.name, stage.source.path, *stage.code, stage.declared
