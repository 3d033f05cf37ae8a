"""The resources of plans: each piece of code is compiled once, and held against how it is launched."""

from collections.abc import Mapping, Sequence

from tuner.compiler.compiler import CompiledStage, Compiler
from tuner.compiler.contract import misfit
from tuner.devices.base import Progress
from tuner.model.errors import CompileError, LaunchMisfitError
from tuner.model.plan import Plan, Resources, Stage

LIBRARY_RESOURCES = Resources(0, compiled=False)
"""Of a stage that a library runs: what it takes is not known."""


def plan_resources(
    compiler: Compiler, plans: Sequence[Plan], progress: Progress | None = None
) -> list[tuple[Resources, ...] | CompileError]:
    """For each plan the resources of its stages, or the error that names it.

    Raises:
        CompilerUnavailableError: NVRTC itself fails.
    """
    wanted: dict[tuple[object, ...], Stage] = {}  # the steps of a chain launch the same code again and again
    for stage in (stage for plan in plans for stage in plan.stages if stage.library is None):
        wanted.setdefault(code_of(stage), stage)
    compiled = dict(zip(wanted, compiler.compile(list(wanted.values()), progress), strict=True))
    return [resources_of(plan, compiled) for plan in plans]


def resources_of(
    plan: Plan, compiled: Mapping[tuple[object, ...], CompiledStage | CompileError]
) -> tuple[Resources, ...] | CompileError:
    """The resources of a plan's stages, or why it does not compile or is not launched as its code asks.

    Args:
        plan: the plan.
        compiled: the code of each of its stages, by ``code_of``.
    """
    found = []
    checked = set()
    for stage in plan.stages:
        if stage.library is not None:
            found.append(LIBRARY_RESOURCES)
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
        found.append(item.resources)
    return tuple(found)


def code_of(stage: Stage) -> tuple[object, ...]:
    """All of a stage that the compiler sees, what its messages call it, and what is declared in its place."""
    code = stage.name, stage.source.sha256, stage.source.path, stage.entry, stage.options
    return *code, stage.symbols, stage.declared
