"""A CUDA kernel on the caller's arrays, as something that can be tuned."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tuner.config import KernelFile
from tuner.config.formulas import Place
from tuner.config.kernel_file import kernel_of
from tuner.config.source_folder import SourceFolder
from tuner.errors import InputError
from tuner.expressions import is_free_name
from tuner.model import Source, TunableValue
from tuner.python.arguments import (
    ArrayArgument,
    KernelArgument,
    RecordArgument,
    ValueArgument,
    entry_of,
    read_arguments,
)
from tuner.python.host_arrays import HostArray, on_host
from tuner.python.references import expected_outputs

Extent = int | str | Callable[..., Any] | Sequence[int | str | Callable[..., Any]]
"""Blocks of a grid or threads of a block: a number, an expression, or a function of the configuration; up to
three of them. A function may return all three."""

Restrictions = str | Callable[..., Any] | Sequence[str | Callable[..., Any]]
"""Conditions on configurations: expressions, and functions of the configuration that return a boolean."""

_SOURCE = "source.cu"
_AXES = ("x", "y", "z")
_FILE_ENDINGS = (".cu", ".cuh", ".cpp", ".h")


@dataclass(frozen=True)
class SpaceDescription:
    """What may be varied.

    Attributes:
        tunables: name -> values.
        restrictions: conditions on configurations.
        default: the configuration to start from; None for the first of the space.
    """

    tunables: Mapping[str, Sequence[TunableValue]]
    restrictions: Sequence[str | Callable[..., Any]] = ()
    default: Mapping[str, TunableValue] | None = None


class Kernel:
    """A ``__global__`` function with the arguments that it is tuned on.

    Tunables reach the source as macros, or as template arguments where ``name`` has them in braces:
    ``"scan<{P}, {L}>"``. Whole numbers among the arguments are known to expressions by the name of their
    parameter, beside ``sizes``.

    Args:
        source: CUDA C++, or the path of a file; headers beside a file are found.
        name: of the function; may be left out where the source has only one.
        arguments: arrays (NumPy, CuPy, PyTorch, DLPack) and numbers, in the order of the parameters or as a
            dict by their names. Python numbers take the type of the parameter; NumPy's must have it. Text is
            an expression. Arrays are copied.
        grid: blocks of the launch.
        block: threads of a block; the tunables ``block_size_x``, ``block_size_y``, ``block_size_z`` if None.
        shared_bytes: dynamic shared memory of a block: a number, an expression or a function.
        tunables: name -> values; may be given to ``tune`` instead.
        restrictions: expressions and functions that are true for configurations that may be tried.
        default: the configuration that gains are stated against; the first of the space if None.
        reference: right outputs: a function of the arguments, arrays, or expressions as in kernel files; None
            to compare configurations with each other only.
        outputs: names of the arrays that the kernel writes completely, without reading them first. Other
            arrays that are no pointers to ``const`` are read and written: each window begins with the values
            given here.
        tolerance: allowed relative error of outputs; by their type if None.
        symbols: ``__constant__`` or ``__device__`` arrays of the source, by name.
        sizes: further names for expressions, beside the numbers among the arguments.
        options: of NVRTC, e.g. ``("--use_fast_math",)``.

    Attributes:
        name: what results call it, from the name of the function.
        entry: the name expression of the function.
        arguments: in the order of its parameters.
        outputs: names of the arrays that it writes.

    Raises:
        InputError: something cannot be used; the message names the argument.
    """

    def __init__(
        self,
        source: str | Path,
        name: str | None = None,
        *,
        arguments: Mapping[str, Any] | Sequence[Any],
        grid: Extent,
        block: Extent | None = None,
        shared_bytes: int | str | Callable[..., Any] = 0,
        tunables: Mapping[str, Sequence[Any]] | None = None,
        restrictions: Restrictions | None = None,
        default: Mapping[str, Any] | None = None,
        reference: Any = None,  # noqa: ANN401 - a function, arrays or expressions
        outputs: Sequence[str] | None = None,
        tolerance: float | None = None,
        symbols: Mapping[str, Any] | None = None,
        sizes: Mapping[str, int] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self.source = _source(source)
        self.entry = entry_of(self.source.text, name, "Kernel")
        self.name = re.sub(r"[^a-z0-9]+", "-", self.entry.partition("<")[0].lower()).strip("-") or "kernel"
        self.arguments: tuple[KernelArgument, ...] = read_arguments(arguments, self.source.text, self.entry)
        self._complete = _output_names(self.arguments, outputs)
        self.outputs = tuple(
            one.name
            for one in self.arguments
            if isinstance(one, ArrayArgument) and (one.name in self._complete or not one.const)
        )
        if not self.outputs:
            raise InputError(f"{self.name}: no array is written: every pointer is const; name outputs=[...]")
        self._grid, self._block, self._shared_bytes = grid, block, shared_bytes
        self._space = SpaceDescription(tunables or {}, restrictions_of(restrictions), default)
        self._expected = (
            {} if reference is None else expected_outputs(reference, self.arguments, self.outputs)
        )
        self._tolerance = tolerance
        self._symbols = {
            symbol: on_host(np.asarray(value) if np.isscalar(value) else value, f"symbols: {symbol}")
            for symbol, value in (symbols or {}).items()
        }
        self._sizes = _sizes(self.arguments, sizes or {})
        self._options = tuple(options)

    def __repr__(self) -> str:
        return f"Kernel({self.entry!r}, {len(self.arguments)} arguments)"

    @property
    def data_bytes(self) -> int:
        """Bytes of its arrays, of those it is checked with too."""
        own = [one.values.nbytes for one in self.arguments if isinstance(one, ArrayArgument)]
        expected = [value.nbytes for value in self._expected.values() if not isinstance(value, str)]
        return sum((*own, *expected, *(values.nbytes for values in self._symbols.values())))

    def kernel_file(
        self,
        folder: Path,
        tunables: Mapping[str, Sequence[Any]] | None = None,
        restrictions: Restrictions | None = None,
    ) -> KernelFile:
        """The kernel as the rest of this package knows kernels.

        Args:
            folder: its arrays are written there, as files that worker processes read.
            tunables: instead of its own; None for these.
            restrictions: beside its own.

        Raises:
            InputError: tunables, expressions or functions cannot be used; the message names them.
        """
        values = _tunables(self._space.tunables if tunables is None else tunables)
        rules = [*self._space.restrictions, *restrictions_of(restrictions)]
        functions: dict[str, Callable[..., Any]] = {}
        document = {
            "kernel": {
                "name": self.name,
                "family": "user",
                "source": _SOURCE,
                "entry": self.entry,
                "options": list(self._options),
            },
            "problem": self._problem(folder),
            "argument": [*(self._argument(one, folder) for one in self.arguments), *self._constants(folder)],
            "tunables": values,
            "constraints": {"rules": [rule for rule in rules if isinstance(rule, str)], "spills": True},
            "launch": self._launch(functions),
        }
        if self._space.default is not None:
            document["default"] = {name: _plain(value) for name, value in self._space.default.items()}
        return kernel_of(
            document,
            {_SOURCE: self.source},
            label=f"kernel {self.name}",
            functions=functions,
            restrictions=[rule for rule in rules if not isinstance(rule, str)],
            data=folder,
        )

    # --- the tables of a kernel file -------------------------------------------------------------

    def _problem(self, folder: Path) -> dict[str, Any]:
        problem: dict[str, Any] = {"sizes": {name: [value] for name, value in self._sizes.items()}}
        if self._tolerance is not None:
            problem["tolerance"] = float(self._tolerance)
        if self._expected:
            problem["reference"] = {
                name: value if isinstance(value, str) else _file(folder, f"expected-{name}", value)
                for name, value in self._expected.items()
            }
        return problem

    def _argument(self, one: KernelArgument, folder: Path) -> dict[str, Any]:
        if isinstance(one, ValueArgument):
            value = one.name if self._sizes.get(one.name) == one.value else one.value
            return {"scalar": one.name, "dtype": one.dtype, "value": value}
        if isinstance(one, RecordArgument):
            return {"scalar": one.name, "fields": one.fields}
        argument: dict[str, Any] = {
            "buffer": one.name,
            "dtype": one.values.dtype.name,
            "shape": list(one.values.shape),
        }
        if one.name in self._complete:
            return argument | {"role": "out"}
        role = "inout" if one.name in self.outputs else "in"
        return argument | {"role": role, "input": _file(folder, one.name, one.values)}

    def _constants(self, folder: Path) -> list[dict[str, Any]]:
        return [
            {
                "buffer": name,
                "dtype": values.dtype.name,
                "shape": list(values.shape),
                "role": "constant",
                "input": _file(folder, f"symbol-{name}", values),
            }
            for name, values in self._symbols.items()
        ]

    def _launch(self, functions: dict[str, Callable[..., Any]]) -> dict[str, Any]:
        launch = {"grid": _extent("grid", self._grid, functions)}
        if self._block is not None:
            launch["block"] = _extent("block", self._block, functions)
        if callable(self._shared_bytes):
            functions["shared_bytes"] = self._shared_bytes
            return launch | {"shared_bytes": "shared_bytes"}
        return launch | {"shared_bytes": self._shared_bytes}


def restrictions_of(given: Restrictions | None) -> list[str | Callable[..., Any]]:
    """Restrictions as a list.

    Raises:
        InputError: one is neither an expression nor a function.
    """
    if given is None:
        return []
    rules = [given] if isinstance(given, str) or callable(given) else list(given)
    for i, rule in enumerate(rules):
        if not isinstance(rule, str) and not callable(rule):
            raise InputError(f"restrictions[{i}]: {rule!r} is neither an expression nor a function")
    return rules


def _source(given: str | Path) -> Source:
    path = Path(given) if isinstance(given, Path) or str(given).endswith(_FILE_ENDINGS) else None
    if path is None:
        return Source("source", str(given))
    return SourceFolder(path.parent, [], Place(str(path), "source")).source(
        path.name, Place("Kernel", "source")
    )


def _output_names(arguments: Sequence[KernelArgument], outputs: Sequence[str] | None) -> tuple[str, ...]:
    if isinstance(outputs, str):
        outputs = [outputs]
    arrays = [one.name for one in arguments if isinstance(one, ArrayArgument)]
    for name in outputs or ():
        if name not in arrays:
            raise InputError(f"outputs: {name!r} is no array argument; choose from {', '.join(arrays)}")
    return tuple(outputs or ())


def _sizes(arguments: Sequence[KernelArgument], given: Mapping[str, int]) -> dict[str, int]:
    numbers = {
        one.name: one.value
        for one in arguments
        if isinstance(one, ValueArgument) and type(one.value) is int and one.value > 0
    }
    for name, value in given.items():
        if not is_free_name(name) or type(_plain(value)) is not int:
            raise InputError(f"sizes: {name} = {value!r}: give a name and a whole number")
    return numbers | {name: int(value) for name, value in given.items()}


def _tunables(given: Mapping[str, Sequence[Any]]) -> dict[str, list[TunableValue]]:
    if not given:
        raise InputError(
            "tunables: none are given; write for example tunables={'block_size_x': [64, 128, 256]}"
        )
    values: dict[str, list[TunableValue]] = {}
    for name, choices in given.items():
        if isinstance(choices, str) or not hasattr(choices, "__iter__"):
            raise InputError(f"tunables: {name}: give a list of values, not {choices!r}")
        values[name] = [_plain(value) for value in choices]
        for value in values[name]:
            if not isinstance(value, bool | int | float | str):
                raise InputError(f"tunables: {name}: {value!r} is no number, boolean or text")
    return values


def _plain(value: Any) -> Any:  # noqa: ANN401 - a number of Python or NumPy
    return value.item() if isinstance(value, np.generic) else value


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
        extent.append(f"{name}_{letter}" if callable(part) else _plain(part))
    if len(parts) > len(_AXES):
        raise InputError(f"{name}: has {len(parts)} axes; three at most")
    return extent


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


def _file(folder: Path, name: str, values: HostArray) -> str:
    """Write an array, and return what a kernel file says to have it read."""
    path = folder / f"{name}.npy"
    np.save(path, values, allow_pickle=False)
    return f'file("{path}")'
