"""Problems of user kernels: an expression per output, agreement with another configuration, or no check."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tuner.model.errors import ExpressionError, KernelFileError, UncheckableError
from tuner.model.expressions.callables import Expression
from tuner.model.plan import Buffer
from tuner.problems.base import (
    Array,
    Arrays,
    Deviation,
    Draw,
    Namespace,
    Norm,
    Problem,
    Sizes,
    agreement,
    allowed_difference,
    chunks,
    sweep,
    to_host,
    value_dtype,
    worst_of,
)

INTEGERS = 16
"""Integer inputs are uniform in 0 ... INTEGERS - 1: small enough for sums, and indices of small tables."""

_CHUNKS_AT_A_TIME = 4  # some 60 MB each


class Generic(Problem):
    """Problem without a law of its own: values by dtype, compared element by element."""

    def validate(self, buffers: Sequence[Buffer]) -> None:
        """See ``Problem.validate``."""
        if not any(buffer.role in ("out", "inout") for buffer in buffers):
            raise KernelFileError(
                "[[argument]]: no buffer has role 'out' or 'inout', so nothing can be checked"
            )

    def draws(self, buffers: Sequence[Buffer]) -> dict[str, Draw]:
        """Parts of numbers in [-1, 1), integers in 0 ... 15, booleans either way."""
        kinds = {b.name: value_dtype(b.dtype).kind for b in buffers if b.role in ("in", "inout")}
        return {
            name: Draw() if kind in "fc" else Draw("whole", 0, 2 if kind == "b" else INTEGERS)
            for name, kind in kinds.items()
        }

    def norm(self, output: Array) -> Norm:
        """See ``Problem.norm``."""
        del output
        return Norm.ELEMENT

    def rounding(self, output: Array) -> float:
        """See ``Problem.rounding``."""
        return allowed_difference(output, None)

    def compare(self, inputs_rows: Arrays, outputs_rows: Arrays, sizes: Sizes) -> Deviation:
        """See ``residual``: what judges complete arrays judges rows."""
        return self.residual(np, inputs_rows, outputs_rows, sizes)


class Elementwise(Generic):
    """Outputs given as expressions over the input buffers and the sizes, evaluated element by element.

    Reals are evaluated in float64, integers in int64. The error of an element is relative to the larger of
    its reference and the mean magnitude around it.
    """

    def validate(self, buffers: Sequence[Buffer]) -> None:
        """See ``Problem.validate``."""
        outputs = {buffer.name for buffer in buffers if buffer.role in ("out", "inout")}
        stated = {name for name, _ in self.spec.reference}
        if outputs != stated:
            raise KernelFileError(
                f"[problem.reference] must state every output once: it states {sorted(stated)}, "
                f"and the outputs are {sorted(outputs)}"
            )
        shapes = {buffer.name: buffer.shape for buffer in buffers}
        read = {buffer.name for buffer in buffers if buffer.role in ("in", "inout")}
        for name, text in self.spec.reference:
            for used in sorted(read & Expression(text).names):
                if not _stretches(shapes[used], shapes[name]):
                    raise KernelFileError(
                        f"[problem.reference] {name}: {used!r} of shape {list(shapes[used])} cannot be taken "
                        f"element by element with {name!r} of shape {list(shapes[name])}"
                    )

    def residual(self, xp: Namespace, inputs: Arrays, outputs: Arrays, sizes: Sizes) -> Deviation:
        """Largest relative error of an element over all outputs, brought to the host chunk by chunk."""
        del xp
        return worst_of(
            [self._judge(name, text, inputs, outputs[name], sizes) for name, text in self.spec.reference]
        )

    def _judge(self, name: str, text: str, inputs: Arrays, output: Array, sizes: Sizes) -> Deviation:
        expression = Expression(text)

        def on_host(part: slice) -> tuple[slice, Arrays, NDArray[Any]]:
            rows = {
                key: to_host(value[part] if value.ndim == output.ndim else value)
                for key, value in inputs.items()
                if key in expression.names
            }
            return part, rows, to_host(output[part])

        def judged(piece: tuple[slice, Arrays, NDArray[Any]]) -> Deviation:
            part, rows, answer = piece
            try:
                with np.errstate(all="ignore"):
                    reference = np.broadcast_to(expression.evaluate({**sizes, **rows}), answer.shape)
            except (ExpressionError, ValueError) as error:
                raise UncheckableError(f"[problem.reference] {name}: {error}") from error
            deviation = agreement(reference, answer, self.spec.tolerance, name)
            return replace(deviation, row=part.start + deviation.row)

        parts = list(chunks(len(output), output[0].size))
        deviations: list[Deviation] = []
        with ThreadPoolExecutor(_CHUNKS_AT_A_TIME) as pool:  # NumPy computes without Python's lock
            for start in range(0, len(parts), _CHUNKS_AT_A_TIME):
                pieces = map(on_host, parts[start : start + _CHUNKS_AT_A_TIME])
                deviations += pool.map(judged, pieces)
        return worst_of(deviations)


def _stretches(shape: tuple[int, ...], onto: tuple[int, ...]) -> bool:
    """True when an input of some shape goes with every row of an output: as rows, or the same for all."""
    axes = len(onto) - len(shape)
    if axes < 0 or (axes == 0 and shape[:1] != onto[:1]):
        return False
    return all(length in (1, other) for length, other in zip(shape, onto[axes:], strict=True))


class Consistent(Generic):
    """No reference of its own: outputs must agree with the default configuration's on the same inputs.

    ``compare`` and ``residual`` only tell that real and complex outputs are finite; ``agreement``
    judges.
    """

    needs_baseline: ClassVar[bool] = True

    def residual(self, xp: Namespace, inputs: Arrays, outputs: Arrays, sizes: Sizes) -> Deviation:
        """Zero when every output is finite, infinity where one is not."""
        del inputs, sizes

        def errors(output: Array) -> Array:
            return abs(output * 0).reshape(len(output), -1).max(axis=1)

        return worst_of(
            [
                sweep(xp, (output,), errors, allowed=0.0, what=f"{name} finite")
                for name, output in outputs.items()
            ]
        )


class UncheckedProblem(Generic):
    """Answers are not compared, as configurations may compute different things, or the caller judges them.

    A run that writes outside of its arrays fails all the same.
    """

    judged: ClassVar[bool] = False

    def validate(self, buffers: Sequence[Buffer]) -> None:
        """See ``Problem.validate``: all buffers are taken."""

    def residual(self, xp: Namespace, inputs: Arrays, outputs: Arrays, sizes: Sizes) -> Deviation:
        """See ``Problem.residual``."""
        del xp, inputs, outputs, sizes
        return Deviation(0.0, 0.0, "not compared", 0)
