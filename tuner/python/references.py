"""Right answers from a function or from arrays of the caller's, held against the outputs."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from tuner.errors import InputError
from tuner.python.arguments import ArrayArgument, KernelArgument
from tuner.python.host_arrays import HostArray, is_array, on_host

Reference = Callable[..., Any] | Mapping[str, Any] | Sequence[Any] | str


def expected_outputs(
    reference: Any,  # noqa: ANN401 - what the caller gave
    arguments: Sequence[KernelArgument],
    outputs: Sequence[str],
) -> dict[str, HostArray | str]:
    """The right values of every output: arrays, or expressions as in ``[problem.reference]``.

    Args:
        reference: a function of the arguments (by name where its parameters have their names, else in order)
            that returns the outputs; or the outputs themselves. Outputs are one array, a tuple in the order
            of ``outputs``, or a dict by name; or expressions instead of arrays.
        arguments: of the kernel.
        outputs: names of the arrays that the kernel writes.

    Raises:
        InputError: the function raises, or an output is missing, or of another shape, or not finite.
    """
    if callable(reference):
        reference = _called(reference, arguments)
        if reference is None:
            raise InputError("reference: the function returned None; return the right outputs")
    found = _by_name(reference, outputs)
    arrays = {one.name: one for one in arguments if isinstance(one, ArrayArgument)}
    return {
        name: value if isinstance(value, str) else _checked(name, value, arrays[name])
        for name, value in found.items()
    }


def _called(function: Callable[..., Any], arguments: Sequence[KernelArgument]) -> Any:  # noqa: ANN401 - anything
    """The function's answer for copies of the arguments."""
    values = {
        one.name: one.values.copy() if isinstance(one, ArrayArgument) else one.value for one in arguments
    }
    parameters: Mapping[str, inspect.Parameter] = {}
    with suppress(TypeError, ValueError):  # of what is built in
        parameters = inspect.signature(function).parameters
    by_name = any(name in values for name in parameters)
    try:
        if not by_name:
            return function(*values.values())
        if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
            return function(**values)
        return function(**{name: values[name] for name in parameters if name in values})
    except Exception as error:  # a function of the user's may raise anything
        raise InputError(f"reference: the function raises {type(error).__name__}: {error}") from error


def _by_name(reference: Any, outputs: Sequence[str]) -> dict[str, Any]:  # noqa: ANN401 - same
    if isinstance(reference, Mapping):
        found = dict(reference)
    elif isinstance(reference, str) or is_array(reference):
        found = dict(zip(outputs, [reference], strict=False))
    elif isinstance(reference, list | tuple):
        found = dict(zip(outputs, reference, strict=False))
        if len(reference) > len(outputs):
            raise InputError(f"reference: {len(reference)} outputs for {len(outputs)}: {', '.join(outputs)}")
    else:
        raise InputError(
            f"reference: {type(reference).__name__} is neither an array, a tuple or dict of arrays, an"
            " expression, nor a function that returns one of these"
        )
    unknown = [name for name in found if name not in outputs]
    missing = [name for name in outputs if name not in found]
    if unknown:
        raise InputError(f"reference: {unknown[0]!r} is no output; the outputs are {', '.join(outputs)}")
    if missing:
        raise InputError(
            f"reference: nothing is said of the output {missing[0]!r}; name what the kernel writes, as"
            f" outputs={list(found) or outputs[:1]!r}, or return all of {', '.join(outputs)}"
        )
    return found


def _checked(name: str, value: Any, output: ArrayArgument) -> HostArray:  # noqa: ANN401 - same
    label = f"reference: {name}"
    array = on_host(np.asarray(value) if not is_array(value) else value, label)
    if array.shape != output.values.shape:
        raise InputError(f"{label} has the shape {array.shape}; the output has {output.values.shape}")
    given, wanted = array.dtype, output.values.dtype
    if given.kind == "c" and wanted.kind != "c":
        raise InputError(f"{label} is {given}; the output is {wanted}")
    with np.errstate(all="ignore"):
        converted = array.astype(wanted)
    if wanted.kind in "fc" and not np.isfinite(converted).all():
        raise InputError(f"{label} is not finite everywhere (NaN or infinity, in {wanted})")
    return np.ascontiguousarray(converted)
