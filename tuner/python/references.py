"""Right answers from a function or from arrays of the caller's, held against the outputs."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tuner.model.errors import InputError
from tuner.python.arguments import ArrayArgument, KernelArgument
from tuner.python.host_arrays import HostArray, is_array, on_host

Reference = Callable[..., Any] | Mapping[str, Any] | Sequence[Any] | str


def expected_outputs(
    reference: Any,  # noqa: ANN401 - what the caller gave
    arguments: Sequence[KernelArgument],
    outputs: Sequence[str],
    complete: Sequence[str] = (),
) -> dict[str, HostArray | str]:
    """The right values of every output: arrays, or expressions as in ``[problem.reference]``.

    Args:
        reference: a function that returns the outputs, or returns nothing and writes its copies of them; or
            the outputs themselves. It is called with arguments by name where its parameters have their names,
            else with all of them, or with those that are read, in order. Outputs are one array, a tuple in
            the order of ``outputs``, or a dict by name; or expressions instead of arrays. None for nothing.
        arguments: of the kernel.
        outputs: names of the arrays that the kernel writes.
        complete: those that it writes without reading them.

    Raises:
        InputError: the function raises, or an output is missing, or of another shape, or not finite.
    """
    if reference is None:
        return {}
    if callable(reference):
        reference = _called(reference, arguments, outputs, complete)
    found = _by_name(reference, outputs)
    arrays = {one.name: one for one in arguments if isinstance(one, ArrayArgument)}
    return {
        name: value if isinstance(value, str) else _checked(name, value, arrays[name])
        for name, value in found.items()
    }


def _called(
    function: Callable[..., Any],
    arguments: Sequence[KernelArgument],
    outputs: Sequence[str],
    complete: Sequence[str],
) -> Any:  # noqa: ANN401 - anything
    """The function's answer for copies of the arguments; these copies, where it returns nothing."""
    given = {one.name: one.values if isinstance(one, ArrayArgument) else one.value for one in arguments}
    values = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in given.items()}
    arrays = [one.name for one in arguments if isinstance(one, ArrayArgument)]
    in_order = (
        list(given),
        [name for name in arrays if name not in outputs],
        [name for name in arrays if name not in complete],
        [name for name in given if name not in outputs],
    )
    args, named = _call(function, values, in_order)
    try:
        result = function(*args, **named)
    except Exception as error:  # a function of the user's may raise anything
        raise InputError(f"reference: the function raises {type(error).__name__}: {error}") from error
    if result is not None:
        return result
    if all(np.array_equal(values[name], given[name]) for name in outputs):
        raise InputError(
            "reference: the function returned None, and changed no output in place; return the right outputs"
        )
    return {name: values[name] for name in outputs}


def _call(
    function: Callable[..., Any], values: Mapping[str, Any], in_order: Sequence[Sequence[str]]
) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of a call: by name where the parameters are the kernel's, else as many as it has, in order.

    Raises:
        InputError: the function has other parameters, and another number of them.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # built in
        return [values[name] for name in in_order[1]], {}
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters):
        return [], dict(values)
    kinds = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY
    needed = [
        one for one in parameters if one.default is inspect.Parameter.empty and one.kind is not kinds[0]
    ]
    if needed and all(one.name in values and one.kind not in kinds for one in needed):
        return [], {one.name: values[one.name] for one in parameters if one.name in values}
    if not needed and any(one.kind is kinds[0] for one in parameters):
        return list(values.values()), {}
    for names in in_order:
        if len(names) == len(needed) and not any(one.name in values for one in needed):
            return [values[name] for name in names], {}
    raise InputError(
        f"reference: the function takes {', '.join(one.name for one in needed) or 'nothing'}; name its"
        f" parameters as those of the kernel ({', '.join(values)}), or let it take all, or the arrays that"
        f" are read ({', '.join(in_order[1]) or 'none'}), in order"
    )


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
    if array.size == output.values.size == 1:
        array = array.reshape(output.values.shape)
    if array.shape != output.values.shape:
        raise InputError(f"{label} has the shape {array.shape}; the output has {output.values.shape}")
    given, wanted = array.dtype, output.values.dtype
    if given.kind not in "biufc" or (given.kind == "c" and wanted.kind != "c"):
        raise InputError(f"{label} is {given}; the output is {wanted}")
    with np.errstate(all="ignore"):
        converted = array.astype(wanted)
    if wanted.kind in "biu" and not np.array_equal(converted, array):
        raise InputError(f"{label} is {given} with values that {wanted} does not hold")
    if wanted.kind in "fc" and not np.isfinite(converted).all():
        raise InputError(f"{label} is not finite everywhere (NaN or infinity, in {wanted})")
    return np.ascontiguousarray(converted)
