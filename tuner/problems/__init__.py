"""Problems: random inputs, float64 references and whole-array checks of the catalogue's operations.

Everything takes the namespace of its arrays (``numpy`` or ``cupy``) and keeps temporaries small beside them.
Comparisons are written so that NaN fails.
"""

from tuner.expressions.expression import Expression
from tuner.model.errors import ExpressionError, KernelFileError, UnknownNameError
from tuner.model.plan import Plan, ProblemSpec
from tuner.problems.arrays import Draw, poison, sample_rows, take_rows, to_host, values_of
from tuner.problems.base import Deviation, Norm, Problem
from tuner.problems.convolution import FftConvolution
from tuner.problems.fft import Fft
from tuner.problems.generic import Consistent, Elementwise
from tuner.problems.input_values import stated_draw, stated_values
from tuner.problems.plane_fft import ColumnFft, PlaneFft
from tuner.problems.scans import Scan
from tuner.problems.segmented_scan import SegmentedScan
from tuner.problems.stated import Expressions, FunctionReference, Law, NaiveKernel, StatedReference
from tuner.problems.transforms import RealFft
from tuner.problems.tridiagonal import Tridiagonal
from tuner.problems.unchecked import UncheckedProblem

__all__ = [
    "NAMES",
    "ColumnFft",
    "Consistent",
    "Deviation",
    "Draw",
    "Expressions",
    "Fft",
    "FftConvolution",
    "FunctionReference",
    "Law",
    "NaiveKernel",
    "Norm",
    "PlaneFft",
    "Problem",
    "RealFft",
    "Scan",
    "SegmentedScan",
    "StatedReference",
    "Tridiagonal",
    "poison",
    "problem_for",
    "sample_rows",
    "stated_draw",
    "stated_values",
    "take_rows",
    "to_host",
    "validate_plan",
    "values_of",
]

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
    """Whether every expression of a reference is of the language of kernel files, without whole arrays."""
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
