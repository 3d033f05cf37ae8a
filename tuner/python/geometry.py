"""Grids and blocks: numbers and expressions, or functions of the configuration."""

from collections.abc import Callable, Sequence
from typing import Any

from tuner.model.errors import InputError
from tuner.python.values import plain_value

Extent = int | str | Callable[..., Any] | Sequence[int | str | Callable[..., Any]]
"""Blocks of a grid or threads of a block: a number, an expression, or a function of the configuration; up to
three of them. A function may return all three."""

_AXES = ("x", "y", "z")


def launch_table(
    grid: Extent,
    block: Extent | None,
    shared_bytes: int | str | Callable[..., Any],
    functions: dict[str, Callable[..., Any]],
) -> dict[str, Any]:
    """The table ``[launch]`` of a kernel.

    Args:
        grid: blocks along the axes.
        block: threads of a block along the axes; None for the tunables ``block_size_x`` and so on.
        shared_bytes: dynamic shared memory of a block.
        functions: those among them are added here, by the names that the table has for them.

    Raises:
        InputError: one is neither a number, an expression nor a function, or has four axes.
    """
    launch: dict[str, Any] = {"grid": _extent("grid", grid, functions)}
    if block is not None:
        launch["block"] = _extent("block", block, functions)
    if callable(shared_bytes):
        functions["shared_bytes"] = shared_bytes
        return launch | {"shared_bytes": "shared_bytes"}
    return launch | {"shared_bytes": plain_value(shared_bytes)}


def _extent(name: str, given: Extent, functions: dict[str, Callable[..., Any]]) -> list[int | str]:
    """An extent as a kernel file has it; functions become derived names."""
    if callable(given):
        for axis, letter in enumerate(_AXES):
            functions[f"{name}_{letter}"] = _AxisFunction(given, axis)
        return [f"{name}_{letter}" for letter in _AXES]
    parts = list(given) if isinstance(given, list | tuple) else [given]
    extent: list[int | str] = []
    for letter, part in zip(_AXES, parts, strict=False):
        if callable(part):
            functions[f"{name}_{letter}"] = part
        extent.append(f"{name}_{letter}" if callable(part) else _axis(name, part))
    if len(parts) > len(_AXES):
        raise InputError(f"{name}: has {len(parts)} axes; three at most")
    return extent


def _axis(name: str, given: Any) -> int | str:  # noqa: ANN401 - the caller's
    found: int | str = plain_value(given)
    if type(found) not in (int, str):
        raise InputError(
            f"{name}: {given!r} is neither a whole number, an expression such as 'ceil_div(n, 256)', nor a"
            " function of the configuration"
        )
    return found


class _AxisFunction:
    """One axis of a function that returns one number, or up to three."""

    def __init__(self, function: Callable[..., Any], axis: int) -> None:
        self.__wrapped__ = function  # whose signature and code count
        self._axis = axis

    def __call__(self, *args: Any, **names: Any) -> Any:  # noqa: ANN401 - the function's
        extents = self.__wrapped__(*args, **names)
        if not isinstance(extents, list | tuple):
            extents = (extents,)
        return extents[self._axis] if self._axis < len(extents) else 1
