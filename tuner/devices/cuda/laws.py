"""The laws of right answers, tested on complete arrays by the kernels of ``answers.cu``.

They are the ``residual`` of the problems. A problem or a type without a kernel is judged by its own
``residual`` in CuPy.
"""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from tuner.devices.cuda.answer_kernels import AnswerKernels, Rows, worst_row
from tuner.devices.cuda.types import Array
from tuner.problems.base import Deviation, Norm, Problem, worst_of
from tuner.problems.fft import FUNCTIONAL_SPREAD, Fft
from tuner.problems.generic import Consistent
from tuner.problems.scans import Scan
from tuner.problems.stated import Law, NaiveKernel
from tuner.problems.tridiagonal import Tridiagonal

_Arrays = Mapping[str, Array]
_Sizes = Mapping[str, Any]


class Laws:
    """Judges complete outputs by the laws of their problems.

    Args:
        cp: CuPy, with the device current.
        kernels: of answer checks.
    """

    def __init__(self, cp: ModuleType, kernels: AnswerKernels) -> None:
        self._cp = cp
        self._kernels = kernels
        self._known: dict[type[Problem], Callable[[Any, _Arrays, _Arrays, _Sizes], Deviation]] = {
            Scan: self._scan,
            Tridiagonal: self._tridiagonal,
            Fft: self._fft,
            Consistent: self._consistent,
            NaiveKernel: self._consistent,
            Law: self._law,
        }

    def judge(self, problem: Problem, inputs: _Arrays, outputs: _Arrays, sizes: _Sizes) -> Deviation:
        """The deviation of complete outputs, see ``Problem.residual``."""
        law = self._known.get(type(problem))
        if law is None:
            return problem.residual(self._cp, inputs, outputs, sizes)
        return law(problem, inputs, outputs, sizes)

    def _scan(self, problem: Scan, inputs: _Arrays, outputs: _Arrays, sizes: _Sizes) -> Deviation:
        (x,), (y,) = inputs.values(), outputs.values()
        forward_sum = (
            problem.word("operator", sizes) == "sum" and problem.word("direction", sizes) == "forward"
        )
        if not forward_sum or y.dtype.kind == "c":
            return problem.residual(self._cp, inputs, outputs, sizes)
        slot = self._kernels.sums_law(x, y, exclusive=problem.word("form", sizes) == "exclusive")
        what = (
            "residual of the sums by the row's largest sum"
            if y.dtype.kind == "f"
            else "wrong sums (residual)"
        )
        return self._found(slot, problem.allowed(y), what)

    def _tridiagonal(
        self, problem: Tridiagonal, inputs: _Arrays, outputs: _Arrays, sizes: _Sizes
    ) -> Deviation:
        a, b, c, d = inputs.values()
        (x,) = outputs.values()
        uneven = len({(array.dtype, array.shape) for array in (a, b, c, d, x)}) > 1
        if uneven or x.dtype.kind == "c" or problem.at(sizes).periodic:
            return problem.residual(self._cp, inputs, outputs, sizes)
        slot = self._kernels.system_law((a, b, c, d, x))
        return self._found(slot, problem.allowed(x), "backward error of the solution")

    def _fft(self, problem: Fft, inputs: _Arrays, outputs: _Arrays, sizes: _Sizes) -> Deviation:
        (x,), (y,) = inputs.values(), outputs.values()
        if x.dtype != y.dtype:
            return problem.residual(self._cp, inputs, outputs, sizes)
        phases, transformed, growth = problem.functional(x.shape[1], sizes)
        functional = (self._cp.asarray(phases), self._cp.asarray(transformed))
        slot = self._kernels.transform_law(x, y, functional, growth, FUNCTIONAL_SPREAD)
        what = "deviation of the transform from Parseval's law and a random functional"
        return self._found(slot, problem.allowed(y), what)

    def _consistent(self, problem: Consistent, inputs: _Arrays, outputs: _Arrays, sizes: _Sizes) -> Deviation:
        """An output differs from itself where it is not finite."""
        del problem, inputs, sizes
        deviations = []
        for name, output in outputs.items():
            length = output[0].size
            slot = self._kernels.compare(output, output, Rows(output.size, length), Norm.MAXIMUM)
            deviations.append(self._found(slot, 0.0, f"{name} finite"))
        return worst_of(deviations)

    def _law(self, problem: Law, inputs: _Arrays, outputs: _Arrays, sizes: _Sizes) -> Deviation:
        """The user's law, of outputs that are finite."""
        finite = self._consistent(Consistent(problem.spec), inputs, outputs, sizes)
        return problem.verdict(inputs, outputs, sizes) if finite.ok else finite

    def _found(self, slot: int, allowed: float, what: str) -> Deviation:
        error, row = worst_row(self._kernels.read()[slot])
        return Deviation(error, allowed, what, row)
