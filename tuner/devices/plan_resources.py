"""Resources of plans from a compiler that compiles stages."""

from collections.abc import Sequence

from tuner.compiler import Compiler
from tuner.errors import CompileError
from tuner.interfaces import Progress
from tuner.model import Plan, Resources


def plan_resources(
    compiler: Compiler, plans: Sequence[Plan], progress: Progress | None = None
) -> list[tuple[Resources, ...] | CompileError]:
    """For each plan the resources of its stages, or the error that names it.

    Raises:
        CompilerUnavailableError: NVRTC itself fails.
    """
    compiled = iter(compiler.compile([stage for plan in plans for stage in plan.stages], progress))
    answers: list[tuple[Resources, ...] | CompileError] = []
    for plan in plans:
        found = [next(compiled) for _ in plan.stages]
        errors = [item for item in found if isinstance(item, CompileError)]
        if errors:
            error = CompileError(f"{plan.label()}: {errors[0]}")
            error.__cause__ = errors[0]
            answers.append(error)
        else:
            answers.append(tuple(item.resources for item in found if not isinstance(item, CompileError)))
    return answers
