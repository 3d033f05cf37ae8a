"""What an answer check needs to know of a plan: its problem, what it is held against, how outputs are cut."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tuner.devices.cuda.answer_kernels import Rows
from tuner.devices.cuda.types import Array
from tuner.model.elements import BFLOAT16
from tuner.model.plan import Buffer, Plan, ProblemSpec, Workload
from tuner.problems import problem_for
from tuner.problems.arrays import CHUNK_ELEMENTS, to_host
from tuner.problems.base import Norm, Problem

OUTPUT_ROLES = ("out", "inout")
JudgedKey = tuple[Workload, int, ProblemSpec, tuple[Buffer, ...]]
"""Workload, seed, and the buffers that are read or written."""

_NARROW_ALLOWED = 8 * 2**-8  # of bfloat16: eight units of roundoff


def problem_of(plan: Plan) -> Problem:
    """The problem of a plan; with a tolerance for rounding to ``bfloat16``, which no array tells."""
    spec = plan.problem
    narrow = any(b.dtype == BFLOAT16 and b.role in OUTPUT_ROLES for b in plan.buffers)
    narrowed = replace(spec, tolerance=_NARROW_ALLOWED) if narrow and spec.tolerance is None else spec
    return problem_for(narrowed).at(sizes_of(plan))


def related_plans(plan: Plan) -> list[Plan]:
    """The plan, and those whose answers it is held against."""
    return [one for one in (plan, plan.baseline, plan.reference) if one is not None]


def judged_key(plan: Plan, seed: int) -> JudgedKey:
    """What answers have in common that are held against the same one."""
    judged = tuple(buffer for buffer in plan.buffers if buffer.role in ("in", "inout", "out"))
    return plan.workload, seed, plan.problem, judged


def judged_rows(problem: Problem, output: Array) -> Rows:
    """What has a scale of its own: problems, or chunks of whole problems as in ``agreement``."""
    size = output.size // len(output)
    if problem.norm(output) is Norm.ELEMENT:
        size *= max(1, CHUNK_ELEMENTS // max(1, size))
    return Rows(output.size, size)


def problems_in(rows: Rows, output: Array) -> int:
    """Problems in a row."""
    return rows.length // (output.size // len(output))


def axes_of(inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> int:
    """Axes of the arrays that hold problems: the most."""
    return max(array.ndim for array in (*inputs.values(), *outputs.values()))


def part_of(arrays: Mapping[str, Array], part: slice, axes: int) -> dict[str, Any]:
    """Some problems on the host; arrays with fewer axes hold no problems and come whole."""
    return {name: to_host(array[part] if array.ndim == axes else array) for name, array in arrays.items()}


def sizes_of(plan: Plan) -> dict[str, Any]:
    """The sizes of a workload, with ``batch``."""
    return {**dict(plan.workload.sizes), "batch": plan.workload.batch}
