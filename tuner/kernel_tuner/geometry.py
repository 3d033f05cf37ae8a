"""Blocks and grids as Kernel Tuner has them: the problem size by the product of its divisors, rounded up."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.kernel_tuner.parameters import Parameters, UserValue, called, evaluated, number
from tuner.model.errors import InputError
from tuner.model.plan import TunableValue

ProblemSize = Any
"""An int, a text, a function of the parameters, or up to three ints or texts."""

DEFAULT_NAMES = ("block_size_x", "block_size_y", "block_size_z")
MAX_BLOCK = (1024, 1024, 64)
MAX_THREADS = 1024  # of a block, on every GPU since compute capability 2.0
_DEFAULT_BLOCK = (256, 1, 1)
_AXES = "xyz"


@dataclass(frozen=True)
class LaunchRule:
    """What a launch's block and grid follow from.

    Attributes:
        problem_size: see ``ProblemSize``.
        divisors: ``grid_div_x``, ``grid_div_y`` and ``grid_div_z``; None for the block size of the axis.
        block_names: names of the parameters that are the block's extents.
    """

    problem_size: ProblemSize
    divisors: tuple[Any, Any, Any]
    block_names: tuple[str, str, str]

    def block(self, params: Parameters) -> tuple[int, int, int]:
        """Threads along x, y and z; 256, 1 and 1 where no parameter has the name."""
        x, y, z = (
            int(params.get(name, extent))
            for name, extent in zip(self.block_names, _DEFAULT_BLOCK, strict=True)
        )
        return x, y, z

    def grid(self, params: Parameters) -> tuple[int, int, int]:
        """Blocks along x, y and z.

        Raises:
            InputError: a size or a divisor has no value, or the grid holds no block.
        """
        sizes = sizes_of(self.problem_size, params)
        x, y, z = (self._blocks(axis, sizes[axis], params) for axis in range(3))
        return x, y, z

    def rules(self, tunables: Mapping[str, Sequence[TunableValue]]) -> list[str]:
        """Expressions that every configuration must satisfy so that its blocks can be launched."""
        terms = [
            name if name in tunables else str(extent)
            for name, extent in zip(self.block_names, _DEFAULT_BLOCK, strict=True)
        ]
        named = [term for term in terms if not term.isdigit()]
        bounds = [
            f"{name} <= {most}"
            for name, most in zip(self.block_names, MAX_BLOCK, strict=True)
            if name in named
        ]
        product = " * ".join(term for term in terms if term != "1")
        return [f"{product} <= {MAX_THREADS}", *bounds[2:]] if named else []

    def _blocks(self, axis: int, size: int, params: Parameters) -> int:
        argument = f"grid_div_{_AXES[axis]}"
        given = self.divisors[axis]
        divisor = params.get(self.block_names[axis], 1) if given is None else divided(given, params, argument)
        factor = number(divisor, argument)
        if factor == 0:
            raise InputError(f"{argument}: the divisor is 0 for {dict(params)}")
        blocks = math.ceil(float(size) / float(factor))
        if blocks < 1:
            raise InputError(
                f"problem_size: {size} by {argument} = {factor} gives {blocks} blocks for {dict(params)}"
            )
        return blocks


def divided(divisor: UserValue, params: Parameters, argument: str) -> float | int:
    """The product of a divisor: an int, a text (cut to a whole number), a function, or a list of these.

    Raises:
        InputError: it is something else, or has no value.
    """
    if isinstance(divisor, int | np.integer):
        return int(divisor)
    if callable(divisor):
        return number(called(divisor, argument, dict(params)), argument)
    if isinstance(divisor, str):
        return int(number(evaluated(divisor, params, argument), argument))
    if isinstance(divisor, Iterable):
        return math.prod(divided(one, params, argument) for one in divisor)
    raise InputError(
        f"{argument}: {divisor!r} is neither a whole number, a text, a function nor a list of these"
    )


def sizes_of(problem_size: ProblemSize, params: Parameters) -> tuple[int, int, int]:
    """The problem size along x, y and z; 1 along the axes that are left out.

    Raises:
        InputError: it is not what Kernel Tuner takes.
    """
    given = called(problem_size, "problem_size", dict(params)) if callable(problem_size) else problem_size
    if isinstance(given, str | int | np.integer):
        given = (given,)
    if not isinstance(given, Iterable) or len(axes := list(given)) not in (1, 2, 3):
        raise InputError(
            f"problem_size: {given!r} is neither a whole number, a text nor up to three of these"
        )
    x, y, z = (*(_size(axis, params) for axis in axes), 1, 1)[:3]
    return x, y, z


def _size(axis: UserValue, params: Parameters) -> int:
    if isinstance(axis, str):
        return int(number(evaluated(axis, params, "problem_size"), "problem_size"))
    if isinstance(axis, int | np.integer):
        return int(axis)
    raise InputError(f"problem_size: {axis!r} is neither a whole number nor a text")


def block_names(given: UserValue, tunables: Iterable[str]) -> tuple[str, str, str]:
    """The names of the block's extents: as given, or the default ones in whatever case they are written.

    Raises:
        InputError: they are no list of at most three names.
    """
    if given is None:
        spelled = {name.lower(): name for name in tunables}
        x, y, z = (spelled.get(name, name) for name in DEFAULT_NAMES)
        return x, y, z
    if not isinstance(given, list | tuple) or not all(isinstance(name, str) for name in given):
        raise InputError(f"block_size_names: must be a list of texts, not {given!r}")
    if len(given) > len(DEFAULT_NAMES):
        raise InputError(f"block_size_names: must hold at most three names, not {len(given)}")
    x, y, z = [*map(str, given), *DEFAULT_NAMES[len(given) :]]
    return x, y, z


def dynamic_shared_bytes(smem_args: UserValue) -> Callable[[Parameters], int]:
    """Bytes of dynamic shared memory by configuration, of ``smem_args``.

    Raises:
        InputError: it is no dict with ``size``.
    """
    if smem_args is None:
        return lambda _: 0
    if not isinstance(smem_args, Mapping) or set(smem_args) != {"size"}:
        raise InputError(f'smem_args: must be {{"size": BYTES}}, not {smem_args!r}')
    size = smem_args["size"]

    def size_of(params: Parameters) -> int:
        argument = "smem_args['size']"
        if callable(size):
            value = called(size, argument, dict(params))
        else:
            value = evaluated(size, params, argument) if isinstance(size, str) else size
        found = int(number(value, argument))
        if found < 0:
            raise InputError(f"{argument}: gives {found} bytes")
        return found

    return size_of
