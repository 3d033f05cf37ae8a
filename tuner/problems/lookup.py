"""Problems by name: the one that a kernel file asks for, and the check of a plan against it."""

from tuner.model.errors import ExpressionError, KernelFileError, UnknownNameError
from tuner.model.expressions.callables import Expression
from tuner.model.plan import Plan, ProblemSpec
from tuner.problems.base import Problem
from tuner.problems.generic import Consistent, Elementwise, UncheckedProblem
from tuner.problems.scans import Scan, SegmentedScan
from tuner.problems.stated import Expressions, FunctionReference, Law, NaiveKernel
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
    judged = [buffer for buffer in plan.buffers if buffer.role not in ("scratch", "zeroed")]
    axes = max(len(buffer.shape) for buffer in judged)
    for buffer in judged:
        if len(buffer.shape) == axes and buffer.shape[0] < plan.workload.batch:
            raise KernelFileError(
                f"[[argument]] buffer = {buffer.name!r}: shape {list(buffer.shape)} holds {buffer.shape[0]}"
                f" problems and [problem] batch is {plan.workload.batch}; the first axis must be the batch"
            )
