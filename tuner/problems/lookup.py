"""Problems by name: the one that a kernel file asks for, and the check of a plan against it."""

from collections.abc import Sequence

import numpy as np

from tuner.model.errors import ExpressionError, InputError, KernelFileError, UnknownNameError
from tuner.model.expressions.callables import Expression
from tuner.model.plan import OWN_ROLES, Buffer, Plan, ProblemSpec
from tuner.problems.base import Problem, Sizes, value_dtype, values_of
from tuner.problems.scans import Scan, SegmentedScan
from tuner.problems.stated import (
    Consistent,
    Elementwise,
    Expressions,
    FunctionReference,
    Law,
    NaiveKernel,
    StatedReference,
    UncheckedProblem,
    find,
    numbers,
)
from tuner.problems.transforms import ColumnFft, Fft, FftConvolution, PlaneFft, RealFft
from tuner.problems.tridiagonal import Tridiagonal

_PROBLEMS: dict[str, type[Problem]] = {
    "scan": Scan,
    "segmented-scan": SegmentedScan,
    "tridiagonal": Tridiagonal,
    "fft": Fft,
    "fft-real": RealFft,
    "fft-columns": ColumnFft,
    "fft-2d": PlaneFft,
    "fft-convolution": FftConvolution,
    "expression": Elementwise,
    "consistent": Consistent,
    "unchecked": UncheckedProblem,
}
_STATED: dict[str, type[Problem]] = {
    "function": FunctionReference,
    "entry": NaiveKernel,
    "law": Law,
}

NAMES = tuple(_PROBLEMS)
"""Names a kernel file may give under ``[problem]``."""


def problem_for(spec: ProblemSpec) -> Problem:
    """The problem a kernel file asks for.

    Raises:
        UnknownNameError: there is no problem of that name; the message lists those there are.
    """
    if spec.name == "expression" and not _is_elementwise(spec):
        return Expressions(spec)
    try:
        return (_PROBLEMS | _STATED)[spec.name](spec)
    except KeyError:
        raise UnknownNameError(f"unknown problem {spec.name!r}; choose from {', '.join(NAMES)}") from None


def _is_elementwise(spec: ProblemSpec) -> bool:
    """Return True if every expression of a reference is valid in kernel files, without whole arrays."""
    try:
        return all(Expression(text) for _, text in spec.reference)
    except ExpressionError:
        return False


def validate_plan(plan: Plan) -> None:
    """Check that a plan's buffers and words are its problem's, and hold as many problems as its batch.

    Raises:
        KernelFileError: they are not, or do not; the message names the key.
    """
    problem = problem_for(plan.problem)
    problem.validate(plan.buffers)
    for name in problem.words:
        problem.word(name, dict(plan.workload.sizes))
    if problem.needs_baseline or problem.judged_whole:
        return  # judged as a whole, whatever the shapes
    judged = [buffer for buffer in plan.buffers if buffer.role not in OWN_ROLES]
    axes = max(len(buffer.shape) for buffer in judged)
    for buffer in judged:
        if len(buffer.shape) == axes and buffer.shape[0] < plan.workload.batch:
            raise KernelFileError(
                f"[[argument]] buffer = {buffer.name!r}: shape {list(buffer.shape)} holds {buffer.shape[0]}"
                f" problems and [problem] batch is {plan.workload.batch}; the first axis must be the batch"
            )


TRIED = ("expression", "function", "law")
"""Problems whose right answers a reference of the user's makes without a device, or judges."""


def tried(spec: ProblemSpec, buffers: Sequence[Buffer], sizes: Sizes) -> str:
    """Try what is stated to be right on values as a run has them; only a child process may.

    A law, and a function of arrays of CuPy, is found and not called.

    Returns:
        Why it makes no right answer for these arrays; empty where it does.
    """
    problem = problem_for(spec)
    outputs = [buffer for buffer in buffers if buffer.role in ("out", "inout")]
    try:
        inputs = values_of(problem.inputs(np, np.random.default_rng(0), buffers, sizes), buffers)
        if spec.function is not None and (spec.name == "law" or spec.function.arrays == "cupy"):
            before = {f"{b.name}_before" for b in buffers if b.role == "inout" and spec.name == "law"}
            judged = [b.name for b in outputs if spec.name == "law"]
            find(spec.function, [*numbers(spec, sizes), *inputs, *before, *judged])
        elif isinstance(problem, StatedReference):
            problem.reference(inputs, outputs, sizes)
        else:
            zeros = {b.name: np.zeros(b.shape, value_dtype(b.dtype)) for b in outputs}
            problem.residual(np, inputs, zeros, sizes)
    except InputError as error:
        return str(error)
    return ""
