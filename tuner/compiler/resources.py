"""The resources of plans: each piece of code that their stages launch is compiled once."""

from collections.abc import Mapping, Sequence

from tuner.compiler.compiler import CompiledStage, Compiler
from tuner.errors import CompileError
from tuner.interfaces import Progress
from tuner.model import Plan, Resources, Stage

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
    answers: list[tuple[Resources, ...] | CompileError] = []
    for plan in plans:
        found = [_of_stage(stage, compiled) for stage in plan.stages]
        errors = [item for item in found if isinstance(item, CompileError)]
        if errors:
            error = CompileError(f"{plan.label()}: {errors[0]}")
            error.__cause__ = errors[0]
            answers.append(error)
        else:
            answers.append(tuple(item for item in found if not isinstance(item, CompileError)))
    return answers


def code_of(stage: Stage) -> tuple[object, ...]:
    """All of a stage that the compiler sees, and what its messages call it."""
    return stage.name, stage.source.sha256, stage.source.path, stage.entry, stage.options


def _of_stage(
    stage: Stage, compiled: Mapping[tuple[object, ...], CompiledStage | CompileError]
) -> Resources | CompileError:
    if stage.library is not None:
        return LIBRARY_RESOURCES
    found = compiled[code_of(stage)]
    return found if isinstance(found, CompileError) else found.resources
