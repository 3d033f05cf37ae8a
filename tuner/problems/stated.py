"""Problems of user kernels: no check, or right answers as expressions, functions, a naive kernel, a law."""

import hashlib
import importlib.machinery
import importlib.util
import inspect
import math
import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from types import CodeType, ModuleType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tuner.kernel_files.input_reader import array_header, array_of, file_sha256
from tuner.model.errors import ExpressionError, InputError, KernelFileError, UncheckableError
from tuner.model.expressions.array_expressions import ArrayExpression
from tuner.model.expressions.callables import Expression
from tuner.model.plan import Buffer, ProblemSpec, PythonFunction
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

# --- Problems of user kernels: an expression per output, agreement with another configuration, or no check.

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
                if not _stretches_rows(shapes[used], shapes[name]):
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


def _stretches_rows(shape: tuple[int, ...], onto: tuple[int, ...]) -> bool:
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


# --- Calls functions in Python files of the user: right answers, and laws that right answers obey.
#
# Only worker processes come here (and tests): what the user has written runs with the user's rights, and
# never in the process that searches or serves. A file is run only if it is the one that was looked at.

_MOST_WORDS = 500  # characters of a message of the user's
_TAKES_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def called(function: PythonFunction, values: Arrays) -> Any:  # noqa: ANN401 - whatever it returns
    """Call the function with those of the given values that it takes by name, and return its result.

    Raises:
        UncheckableError: the file cannot be run or is not what was looked at, the function asks for what
            there is not, or it raises.
    """
    loaded = function_of(function)
    arguments = _arguments(function, loaded, values)
    try:
        return loaded(**arguments)
    except BaseException as error:  # of the user's: he may leave, or interrupt himself
        raise UncheckableError(f"{function}: raised {error_text(error, function.path)}") from error


def numbers(spec: ProblemSpec, sizes: Sizes) -> dict[str, Any]:
    """The numbers that a function may take by name: sizes, and arguments that follow from them alone."""
    return {**{name: Expression(text).evaluate(sizes) for name, text in spec.scalars}, **sizes}


def find(function: PythonFunction, names: Sequence[str]) -> None:
    """Import the function, and compare what it takes with the names that it is called with.

    Raises:
        UncheckableError: as `called`.
    """
    _arguments(function, function_of(function), dict.fromkeys(names))


def function_of(function: PythonFunction) -> Callable[..., Any]:
    """The function itself; its file is run once for each of its contents.

    Raises:
        UncheckableError: the file cannot be run or is not what was looked at, or has no such function.
    """
    try:
        now = file_sha256(function.path)
    except InputError as error:
        raise UncheckableError(str(error)) from error
    if function.sha256 and now != function.sha256:
        raise UncheckableError(
            f"{function.path}: has changed since the kernel file was read; start the run again"
        )
    loaded = getattr(_module(function.path, now), function.name, None)
    if not callable(loaded):
        what = "has no function" if loaded is None else "is no function:"
        raise UncheckableError(f"{function.path}: {what} {function.name!r}")
    return loaded  # type: ignore[no-any-return]  # callable, as was just seen


@lru_cache(maxsize=16)
def _module(path: str, sha256: str) -> ModuleType:
    """The module of a file, run once for each of its contents."""
    name = f"tuner_reference_{sha256[:16]}"
    spec = importlib.util.spec_from_file_location(name, path, loader=_ReadLoader(name, path, sha256))
    if spec is None or spec.loader is None:
        raise UncheckableError(f"{path}: is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles of the user's look for it there
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        sys.modules.pop(name, None)
        raise UncheckableError(f"{path}: cannot be imported: {error_text(error, path)}") from error
    return module


class _ReadLoader(importlib.machinery.SourceFileLoader):
    """Compiles the bytes that were looked at: nothing is taken from a cache, and none is written."""

    def __init__(self, name: str, path: str, sha256: str) -> None:
        super().__init__(name, path)
        self._sha256 = sha256

    def get_code(self, fullname: str) -> CodeType | None:
        data = self.get_data(self.get_filename(fullname))
        if hashlib.sha256(data).hexdigest() != self._sha256:
            raise ImportError("it has changed while it was read")
        code: CodeType = self.source_to_code(data, self.get_filename(fullname))
        return code


def error_text(error: BaseException, path: str) -> str:
    """Return the type of an error, the beginning of its message, and its line."""
    try:
        words = str(error)
    except Exception:  # noqa: BLE001 - the user's own class
        words = "its message cannot be made"
    text = words if len(words) <= _MOST_WORDS else f"{words[:_MOST_WORDS]}..."
    return f"{type(error).__name__}: {text}{_line(error, path)}"


def _arguments(
    function: PythonFunction, loaded: Callable[..., Any], values: Mapping[str, Any]
) -> dict[str, Any]:
    try:
        parameters = inspect.signature(loaded).parameters.values()
    except (TypeError, ValueError):
        return dict(values)
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return dict(values)
    for parameter in parameters:
        by_name = parameter.kind in _TAKES_BY_NAME
        needed = parameter.default is inspect.Parameter.empty
        if (
            needed
            and (parameter.kind is inspect.Parameter.POSITIONAL_ONLY or by_name)
            and (not by_name or parameter.name not in values)
        ):
            raise UncheckableError(
                f"{function}: takes {parameter.name!r}, which is none of what it is called with by name: "
                f"{', '.join(values)} (numbers that depend on tunables are not passed: give it a default)"
            )
    return {p.name: values[p.name] for p in parameters if p.kind in _TAKES_BY_NAME and p.name in values}


def _line(error: BaseException, path: str) -> str:
    """Return the line of the user's file that raised an error, for messages."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f" (line {error.lineno})"
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    return "" if line is None else f" (line {line})"


_KINDS = "buifc"  # of NumPy's types, from narrow to wide


class StatedReference(Generic):
    """The right outputs are arrays that can be made from the inputs, once for all configurations."""

    judged_whole: ClassVar[bool] = True

    def reference(self, inputs: Arrays, outputs: Sequence[Buffer], sizes: Sizes) -> dict[str, NDArray[Any]]:
        """The right outputs on the host, in the types and shapes of the buffers.

        Args:
            inputs: arrays before the run, of the library that ``arrays`` names.
            outputs: the buffers of role ``out`` and ``inout``.
            sizes: of the workload, with ``batch``.

        Raises:
            UncheckableError: they cannot be made, or have other names, shapes or types than the outputs, or
                are not finite. The message says which.
        """
        results = self.made(inputs, outputs, sizes)
        return {
            buffer.name: _fitting(self.source(buffer.name), results[buffer.name], buffer)
            for buffer in outputs
        }

    @property
    def arrays(self) -> str:
        """The library of the arrays that ``reference`` takes: ``numpy`` or ``cupy``."""
        return "numpy"

    @abstractmethod
    def made(self, inputs: Arrays, outputs: Sequence[Buffer], sizes: Sizes) -> Arrays:
        """The right outputs by name, of whatever type and shape they come."""

    @abstractmethod
    def source(self, output: str) -> str:
        """Return the name of the reference of an output, for messages."""

    def residual(self, xp: Namespace, inputs: Arrays, outputs: Arrays, sizes: Sizes) -> Deviation:
        """Largest relative error of an element, on the host."""
        del xp
        buffers = [Buffer(name, str(array.dtype), array.shape, "out") for name, array in outputs.items()]
        if self.arrays == "numpy":
            inputs = {name: to_host(array) for name, array in inputs.items()}
        right = self.reference(inputs, buffers, sizes)
        return worst_of(
            [
                agreement(right[name], to_host(output), self.spec.tolerance, name)
                for name, output in outputs.items()
            ]
        )


class Expressions(StatedReference):
    """Outputs given as expressions over whole arrays, with sums, products of matrices and files."""

    def validate(self, buffers: Sequence[Buffer]) -> None:
        """See ``Problem.validate``."""
        super().validate(buffers)
        files = dict(self.spec.files)
        outputs = {buffer.name: buffer for buffer in buffers if buffer.role in ("out", "inout")}
        for name, text in self.spec.reference:
            expression = ArrayExpression(text)
            if name not in outputs or expression.names or len(expression.files) != 1 or text.count("(") != 1:
                continue
            file, output = files[expression.files[0]], outputs[name]
            try:
                header = array_header(file)
            except InputError as error:
                raise KernelFileError(f"[problem.reference] {name}: {error}") from error
            if not _stretches(header.shape, output.shape):
                raise KernelFileError(
                    f"[problem.reference] {name}: {file} is {header}, and the array is "
                    f"{output.dtype} {list(output.shape)}"
                )

    def made(self, inputs: Arrays, outputs: Sequence[Buffer], sizes: Sizes) -> Arrays:
        """See ``StatedReference.made``."""
        del outputs
        try:
            files = {name: array_of(file) for name, file in self.spec.files}
            return {
                name: ArrayExpression(text).evaluate({**sizes, **inputs}, files)
                for name, text in self.spec.reference
            }
        except InputError as error:
            raise UncheckableError(f"[problem.reference]: {error}") from error

    def source(self, output: str) -> str:
        """See ``StatedReference.source``."""
        return f"[problem.reference] {output}:"


class FunctionReference(StatedReference):
    """Outputs made by a function in a Python file."""

    @property
    def arrays(self) -> str:
        """See ``StatedReference.arrays``."""
        return "numpy" if self.spec.function is None else self.spec.function.arrays

    def made(self, inputs: Arrays, outputs: Sequence[Buffer], sizes: Sizes) -> Arrays:
        """See ``StatedReference.made``: one array, several in the order of the outputs, or a table."""
        names = [buffer.name for buffer in outputs]
        if self.spec.function is None:
            raise UncheckableError("[problem] reference_function: is needed")
        result = called(self.spec.function, {**numbers(self.spec, sizes), **inputs})
        if isinstance(result, Mapping):
            if set(result) != set(names):
                raise UncheckableError(
                    f"{self.source('')} returned {', '.join(map(str, result)) or 'nothing'}, "
                    f"and the outputs are {', '.join(names)}"
                )
            return {name: result[name] for name in names}
        values = list(result) if isinstance(result, tuple | list) and len(names) != 1 else [result]
        if isinstance(result, tuple) and len(names) == 1:
            values = list(result)
        if len(values) != len(names):
            raise UncheckableError(
                f"{self.source('')} returned {len(values)} array{'s' * (len(values) != 1)}, "
                f"and there are {len(names)} outputs: {', '.join(names)}"
            )
        return dict(zip(names, values, strict=True))

    def source(self, output: str) -> str:
        """See ``StatedReference.source``."""
        return f"[problem] reference_function = {str(self.spec.function)!r}:{f' {output}:' if output else ''}"


class NaiveKernel(Consistent):
    """Outputs of a naive kernel, run once by the device: all configurations must agree with them."""


class Law(Generic):
    """A function of the user's that gives one number, or several, which right answers keep small."""

    judged_whole: ClassVar[bool] = True

    @property
    def arrays(self) -> str:
        """The library of the arrays that ``residual`` takes: ``numpy`` or ``cupy``."""
        return "numpy" if self.spec.function is None else self.spec.function.arrays

    def allowed(self, output: Array) -> float:
        """Largest difference between two right answers that are taken as equal, without asking the law."""
        return self.rounding(output)

    def residual(self, xp: Namespace, inputs: Arrays, outputs: Arrays, sizes: Sizes) -> Deviation:
        """The number of the law that is largest; infinity where an output is not finite.

        An ``inout`` array is given as it is after the run; its values before are ``NAME_before``.

        Raises:
            UncheckableError: the function raises, or returns no number.
        """
        finite = Consistent(self.spec).residual(xp, inputs, outputs, sizes)
        return self.verdict(inputs, outputs, sizes) if finite.ok else finite

    def verdict(self, inputs: Arrays, outputs: Arrays, sizes: Sizes) -> Deviation:
        """The same of outputs that are finite.

        Raises:
            UncheckableError: the function raises, or returns no number.
        """
        if self.spec.function is None or self.spec.tolerance is None:
            raise UncheckableError("[problem] law: needs a function and a tolerance")
        before = {f"{name}_before" if name in outputs else name: array for name, array in inputs.items()}
        values = {**before, **outputs}
        if self.arrays == "numpy":
            values = {name: to_host(array) for name, array in values.items()}
        result = called(self.spec.function, {**numbers(self.spec, sizes), **values})
        found = result if isinstance(result, Mapping) else {self.spec.function.name: result}
        if not found:
            raise UncheckableError(f"[problem] law = {str(self.spec.function)!r}: returned nothing")
        return worst_of(
            [
                Deviation(self._number(name, value), self.spec.tolerance, str(name), 0)
                for name, value in found.items()
            ]
        )

    def _number(self, name: object, value: Any) -> float:  # noqa: ANN401 - whatever the user returns
        try:
            array = to_host(value)
        except Exception as error:  # whatever the user returns
            raise UncheckableError(
                f"[problem] law = {str(self.spec.function)!r}: {name} is {type(value).__name__}: {error}"
            ) from error
        if array.size != 1 or array.dtype.kind not in "iuf":
            what = "a truth value" if array.dtype.kind == "b" else f"{type(value).__name__}"
            raise UncheckableError(
                f"[problem] law = {str(self.spec.function)!r}: {name} is {what}; it must be a number, "
                "0 where the answer is right"
            )
        number = abs(float(array.reshape(-1)[0]))
        return min(math.inf, number)


def _stretches(shape: tuple[int, ...], onto: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, onto) == onto
    except ValueError:
        return False


def _fitting(source: str, value: Any, buffer: Buffer) -> NDArray[Any]:  # noqa: ANN401 - whatever was returned
    """A right output in the type and shape of its buffer."""
    if value is None:
        raise UncheckableError(f"{source} the result is None; return the array")
    try:
        array = to_host(value)
    except Exception as error:  # whatever the user returns
        raise UncheckableError(f"{source} the result is no array: {error}") from error
    dtype = value_dtype(buffer.dtype)
    if array.dtype.kind not in _KINDS:
        raise UncheckableError(f"{source} the result is {type(value).__name__} ({array.dtype}), not numbers")
    if not _stretches(array.shape, buffer.shape):
        raise UncheckableError(
            f"{source} the result has shape {list(array.shape)}, and {buffer.name} has {list(buffer.shape)}"
        )
    if _rank(array.dtype) > _rank(dtype):
        raise UncheckableError(
            f"{source} the result is {array.dtype}, and {buffer.name} is {dtype}; convert it, as with .astype"
        )
    with np.errstate(all="ignore"):
        fitted: NDArray[Any] = np.ascontiguousarray(np.broadcast_to(array, buffer.shape), dtype=dtype)
    for part in chunks(len(fitted), fitted[0].size):
        if dtype.kind in "fc" and not np.isfinite(fitted[part]).all():
            raise UncheckableError(f"{source} the result is not finite (NaN or infinity) in {dtype}")
    if dtype.kind in "iu" and not np.array_equal(fitted, np.broadcast_to(array, buffer.shape)):
        raise UncheckableError(
            f"{source} the result does not fit {dtype}: it is from {array.min()} to {array.max()}"
        )
    return fitted


def _rank(dtype: np.dtype[Any]) -> int:
    return {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}[dtype.kind]
