"""A CUDA kernel on the caller's arrays, as something that can be tuned."""

import itertools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tuner.kernel_files.catalog import kernel_of
from tuner.kernel_files.cuda_source.signatures import global_functions
from tuner.kernel_files.formulas import Location
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.short_files import filled_entry
from tuner.kernel_files.source_folder import SourceFolder
from tuner.model.errors import InputError
from tuner.model.expressions.callables import is_free_name
from tuner.model.plan import Source, TunableValue
from tuner.python.arguments import (
    ArrayArgument,
    HostArray,
    KernelArgument,
    StructValueArgument,
    ValueArgument,
    data_folder,
    entry_of,
    expected_outputs,
    gpu_of_arrays,
    on_host,
    read_arguments,
)
from tuner.python.triton import is_jitted, read_jitted

if TYPE_CHECKING:
    from tuner.application import TunedKernel

# --- What may be varied, and the names that expressions know: as callers write them, checked.

MOST_VALUES = 100_000  # of a tunable

Restrictions = str | Callable[..., Any] | Sequence[str | Callable[..., Any]]
"""Conditions on configurations: expressions, and functions of the configuration that return a boolean."""


@dataclass(frozen=True)
class SpaceDescription:
    """Search space: tunables, restrictions and the default.

    Attributes:
        tunables: name -> values.
        restrictions: conditions on configurations.
        default: the configuration to start from; empty for the first of the space.
    """

    tunables: Mapping[str, Sequence[TunableValue]]
    restrictions: Sequence[str | Callable[..., Any]] = ()
    default: Mapping[str, TunableValue] = field(default_factory=dict)


def restrictions_of(given: Restrictions | None) -> list[str | Callable[..., Any]]:
    """Restrictions as a list.

    Raises:
        InputError: one is neither an expression nor a function.
    """
    if given is None:
        return []
    rules: list[Any] = list(given) if isinstance(given, list | tuple) else [given]
    for i, rule in enumerate(rules):
        if not isinstance(rule, str) and not callable(rule):
            raise InputError(f"restrictions[{i}]: {rule!r} is neither an expression nor a function")
    return rules


def sizes_of(arguments: Sequence[KernelArgument], given: Mapping[str, int]) -> dict[str, int]:
    """The names that expressions know: whole numbers above zero among the arguments, and those given.

    Raises:
        InputError: one has the name of an argument, or is no whole number of at least 1.
    """
    numbers = {
        argument.name: argument.value
        for argument in arguments
        if isinstance(argument, ValueArgument) and type(argument.value) is int and argument.value > 0
    }
    taken = {argument.name for argument in arguments}
    for name, value in given.items():
        if name in taken:
            raise InputError(f"sizes: {name}: is the name of an argument; choose another")
        if not is_free_name(name) or type(plain_value(value)) is not int or value < 1:
            raise InputError(f"sizes: {name} = {value!r}: give a name and a whole number of at least 1")
    return numbers | {name: int(value) for name, value in given.items()}


def tunables_of(given: Mapping[str, Sequence[Any]]) -> dict[str, list[TunableValue]]:
    """Tunables and their values, each once.

    Raises:
        InputError: there are none, or a value is no number, boolean or text.
    """
    if not mapping_of("tunables", given):
        raise InputError(
            "tunables: none are given; write for example tunables={'block_size_x': [64, 128, 256]}"
        )
    values: dict[str, list[TunableValue]] = {}
    for name, choices in given.items():
        if isinstance(choices, str) or not hasattr(choices, "__iter__"):
            raise InputError(f"tunables: {name}: give a list of values, not {choices!r}")
        found = [plain_value(value) for value in itertools.islice(choices, MOST_VALUES + 1)]
        if len(found) > MOST_VALUES:  # perhaps without end
            raise InputError(f"tunables: {name}: has more than {MOST_VALUES:,} values")
        for value in found:
            if not isinstance(value, bool | int | float | str):
                raise InputError(f"tunables: {name}: {value!r} is no number, boolean or text")
        values[name] = list(dict.fromkeys(found))
    return values


def mapping_of(name: str, given: Any) -> dict[str, Any]:  # noqa: ANN401 - the caller's
    """A dict by names; empty for None.

    Raises:
        InputError: it is something else, or has a key that is no name.
    """
    if given is not None and not isinstance(given, Mapping):
        raise InputError(f"{name}: must be a dict by names, not {given!r}")
    for key in given or ():
        if not isinstance(key, str) or not key.isidentifier():
            raise InputError(f"{name}: {key!r} is not a name")
    return {} if given is None else dict(given)


def plain_value(value: Any) -> Any:  # noqa: ANN401 - a number of Python or NumPy
    """Python's number for NumPy's; everything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def texts_of(name: str, given: Any) -> tuple[str, ...]:  # noqa: ANN401 - the caller's
    """A list of texts or paths, as texts.

    Raises:
        InputError: it is something else.
    """
    if not isinstance(given, list | tuple) or not all(isinstance(one, str | Path) for one in given):
        raise InputError(f"{name}: must be a list of texts, not {given!r}")
    return tuple(map(str, given))


def law_of(check: object) -> str | None:
    """The place of a law, with an absolute path.

    Raises:
        InputError: it is none.
    """
    if check is None:
        return None
    if not isinstance(check, str) or not re.fullmatch(r".+\.py:[A-Za-z_]\w*", check):
        raise InputError(
            f"check: must be a text 'file.py:function', not {check!r}: it is called in another process"
        )
    return str(Path(check).absolute())


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
    result: int | str = plain_value(given)
    if type(result) not in (int, str):
        raise InputError(
            f"{name}: {given!r} is neither a whole number, an expression such as 'ceil_div(n, 256)', nor a"
            " function of the configuration"
        )
    return result


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


_SOURCE = "source.cu"
_FILE_ENDINGS = (".cu", ".cuh", ".cpp", ".h")


class Kernel:
    """A ``__global__`` function with the arguments that it is tuned on.

    Tunables reach the source as macros, or as template arguments where ``name`` has them in braces:
    ``"scan<{P}, {L}>"``; without braces the parameters of a template are filled in
    by their names. Whole numbers among the arguments are known to expressions by the name of their parameter,
    beside ``sizes``.

    Args:
        source: CUDA C++, or the path of a file; headers beside a file are found. Or a function below
            ``@triton.jit``, perhaps below ``@triton.autotune``, whose configurations are then those that
            may be tried.
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
        reference: right outputs: a function of the arguments that returns them or fills them in place,
            arrays, or expressions as in kernel files; None to compare configurations with each other only.
        check: instead of a reference, ``"file.py:function"``, a law as in kernel files: it judges inputs and
            outputs in the process that runs kernels, and returns numbers that ``tolerance`` bounds.
        outputs: names of the arrays that the kernel writes completely, without reading them first. Other
            arrays that are no pointers to ``const`` are read and written: each window begins with the values
            given here.
        tolerance: allowed relative error of outputs; by their type if None.
        symbols: ``__constant__`` or ``__device__`` arrays of the source, by name.
        sizes: further names for expressions, beside the numbers among the arguments.
        options: of NVRTC, e.g. ``("--use_fast_math",)``.
        include_paths: folders where the compiler looks for further headers.
        cooperative: whether blocks wait for each other (``grid.sync()``), so that all must fit on the GPU;
            may be an expression.
        work: what a run does, for rates in reports: ``{"operations": "2 * n", "bytes": "12 * n"}``, as
            ``[work]`` of a kernel file.

    Attributes:
        name: what results call it, from the name of the function.
        entry: the name expression of the function.
        arguments: in the order of its parameters.
        outputs: names of the arrays that it writes.
        gpu: number of the GPU that its arrays are on; None where they are on the host.

    Raises:
        InputError: something cannot be used; the message names the argument.
    """

    def __init__(
        self,
        source: Any,  # noqa: ANN401 - a text, a path, or a function of Triton, which has no types
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
        check: str | None = None,
        outputs: Sequence[str] | None = None,
        tolerance: float | None = None,
        symbols: Mapping[str, Any] | None = None,
        sizes: Mapping[str, int] | None = None,
        options: Sequence[str] = (),
        include_paths: Sequence[str | Path] = (),
        cooperative: bool | str = False,
        work: Mapping[str, Any] | None = None,
    ) -> None:
        folders = texts_of("include_paths", include_paths)
        self._include_paths = tuple(str(Path(folder).absolute()) for folder in folders)
        self._jitted = read_jitted(source, name, arguments) if is_jitted(source) else None
        if self._jitted is None:
            self.source = _source(source, self._include_paths)
            texts = _all_text(self.source)
            self.entry = entry_of(texts, name, "Kernel")
            self.arguments: tuple[KernelArgument, ...] = read_arguments(arguments, texts, self.entry)
        else:
            self.source, self.arguments = self._jitted.source, self._jitted.arguments
            self.entry = self._jitted.function.name
            tunables = self._jitted.tunables if tunables is None else tunables
            restrictions = [*restrictions_of(restrictions), *self._jitted.rules(tunables)]
        self.name = re.sub(r"[^a-z0-9]+", "-", self.entry.partition("<")[0].lower()).strip("-") or "kernel"
        self.gpu = gpu_of_arrays(self.arguments)
        self._complete = _output_names(self.arguments, outputs)
        self.outputs = tuple(
            argument.name
            for argument in self.arguments
            if isinstance(argument, ArrayArgument) and (argument.name in self._complete or not argument.const)
        )
        if not self.outputs:
            raise InputError(f"{self.name}: no array is written: every pointer is const; name outputs=[...]")
        self._grid, self._block, self._shared_bytes = grid, block, shared_bytes
        stated = mapping_of("default", default)
        self._space = SpaceDescription(tunables or {}, restrictions_of(restrictions), stated)
        self._expected = expected_outputs(reference, self.arguments, self.outputs, self._complete)
        self._check, self._tolerance = law_of(check), tolerance
        self._symbols = {
            symbol: on_host(np.asarray(value) if np.isscalar(value) else value, f"symbols: {symbol}")
            for symbol, value in mapping_of("symbols", symbols).items()
        }
        self._sizes = sizes_of(self.arguments, mapping_of("sizes", sizes))
        self._options = texts_of("options", options)
        self._cooperative, self._work = cooperative, mapping_of("work", work)
        self._applicable: TunedKernel | None = None

    def __repr__(self) -> str:
        return f"Kernel({self.entry!r}, {len(self.arguments)} arguments)"

    @property
    def label(self) -> str:
        """Name of the kernel in messages."""
        return f"kernel {self.name}"

    @property
    def symbols(self) -> tuple[str, ...]:
        """Names of its ``__constant__`` and ``__device__`` variables that are filled."""
        return tuple(self._symbols)

    @property
    def data_bytes(self) -> int:
        """Bytes of its arrays, of those it is checked with too."""
        own = [argument.values.nbytes for argument in self.arguments if isinstance(argument, ArrayArgument)]
        expected = [value.nbytes for value in self._expected.values() if not isinstance(value, str)]
        return sum((*own, *expected, *(values.nbytes for values in self._symbols.values())))

    def kernel_file(
        self,
        folder: Path | None,
        tunables: Mapping[str, Sequence[Any]] | None = None,
        restrictions: Restrictions | None = None,
        name: str | None = None,
    ) -> KernelFile:
        """The kernel as the rest of this package knows kernels.

        Args:
            folder: its arrays are written there, as files that worker processes read; None for a kernel
                without them and what they are checked with, which others are handed.
            tunables: instead of its own; None for these.
            restrictions: beside its own.
            name: in the catalogue; None for its own.

        Raises:
            InputError: tunables, expressions or functions cannot be used; the message names them.
        """
        values = tunables_of(self._space.tunables if tunables is None else tunables)
        rules = [*self._space.restrictions, *restrictions_of(restrictions)]
        functions: dict[str, Callable[..., Any]] = {}
        document = self._document(folder, values, rules, functions)
        return kernel_of(
            document | {"kernel": document["kernel"] | {"name": name or self.name}},
            {_SOURCE: self.source},
            label=self.label,
            functions=functions,
            restrictions=[rule for rule in rules if not isinstance(rule, str)],
            data=folder,
        )

    def _document(
        self,
        folder: Path | None,
        values: Mapping[str, Sequence[Any]],
        rules: Sequence[str | Callable[..., Any]],
        functions: dict[str, Callable[..., Any]],
    ) -> dict[str, Any]:
        """The tables of a kernel file; functions of the launch are added to ``functions``."""
        launch = launch_table(self._grid, self._block, self._shared_bytes, functions)
        if self._cooperative is not False:
            launch["cooperative"] = self._cooperative
        document = {
            "kernel": {
                "name": self.name,
                "family": "user",
                "language": self.source.language,
                "source": _SOURCE,
                "entry": self._template(values, functions),
                "options": list(self._options),
                "include_paths": list(self._include_paths),
            },
            "problem": self._problem(folder),
            "argument": [
                *(self._argument(argument, folder) for argument in self.arguments),
                *self._constants(folder),
            ],
            "tunables": values,
            "constraints": {"rules": [rule for rule in rules if isinstance(rule, str)], "spills": True},
            "launch": launch,
        }
        if self._jitted is not None:
            document["derived"] = self._jitted.derived(values)
        if self._work:
            document["work"] = {name: plain_value(value) for name, value in self._work.items()}
        if self._space.default:
            document["default"] = {name: plain_value(value) for name, value in self._space.default.items()}
        return document

    def applicable(self) -> "TunedKernel":
        """The kernel as ``tuner.apply`` launches it, on other arrays of the same shapes."""
        from tuner.application import TunedKernel  # noqa: PLC0415 - tuning does not need it

        if self._applicable is None:
            with data_folder(self.data_bytes) as folder:
                fingerprint = self.kernel_file(folder).fingerprint
            file = replace(self.kernel_file(None), answers_of=fingerprint)
            (workload,) = file.workloads()
            self._applicable = TunedKernel(file, workload)
        return self._applicable

    # --- the tables of a kernel file -------------------------------------------------------------

    def _template(self, tunables: Collection[str], functions: Collection[str]) -> str:
        """The entry, with the parameters of a template filled in by their names where it has no braces."""
        if self._jitted is not None:
            return self.entry
        found = {one.name: one for one in global_functions(_all_text(self.source))}
        function = found.get(self.entry.rpartition("::")[2].strip())
        if "<" in self.entry or function is None:
            return self.entry
        filled = filled_entry(function, {*tunables, *self._sizes, *functions}, Location(self.label, "name"))
        return self.entry + filled.removeprefix(function.name)

    def _problem(self, folder: Path | None) -> dict[str, Any]:
        problem: dict[str, Any] = {"sizes": {name: [value] for name, value in self._sizes.items()}}
        if folder is None:
            return problem
        if self._tolerance is not None:
            problem["tolerance"] = plain_value(self._tolerance)
        if self._check is not None:
            problem["law"] = self._check
        if self._expected:
            problem["reference"] = {
                name: value if isinstance(value, str) else _file(folder, f"expected-{name}", value)
                for name, value in self._expected.items()
            }
        return problem

    def _argument(self, one: KernelArgument, folder: Path | None) -> dict[str, Any]:
        if isinstance(one, StructValueArgument):
            return {"scalar": one.name, "fields": dict(one.fields)}
        if isinstance(one, ValueArgument):
            value = one.name if self._sizes.get(one.name) == one.value else one.value
            return {"scalar": one.name, "dtype": one.dtype, "value": value}
        argument: dict[str, Any] = {
            "buffer": one.name,
            "dtype": one.dtype,
            "shape": list(one.values.shape),
        }
        if one.name in self._complete:
            cleared = self._jitted is not None and one.name in self._jitted.cleared
            return argument | {"role": "out"} | ({"input": "constant(0)"} if cleared else {})
        role = "inout" if one.name in self.outputs else "in"
        if role == "inout" and self._jitted is not None and one.name in self._jitted.restored:
            argument["restored"] = True
        return argument | {"role": role} | _input(folder, one.name, one.values)

    def _constants(self, folder: Path | None) -> list[dict[str, Any]]:
        return [
            {
                "buffer": name,
                "dtype": values.dtype.name,
                "shape": list(values.shape),
                "role": "constant",
                **_input(folder, f"symbol-{name}", values),
            }
            for name, values in self._symbols.items()
        ]


def _source(given: str | Path, include_paths: tuple[str, ...]) -> Source:
    path = Path(given) if isinstance(given, Path) or str(given).endswith(_FILE_ENDINGS) else None
    if path is None:
        return Source("source", str(given))
    folder = SourceFolder(path.parent, [], Location(str(path), "source"))
    folder.include_paths = include_paths
    return folder.source(path.name, Location("Kernel", "source"))


def _all_text(source: Source) -> str:
    return "\n".join([source.text, *(text for _, text in source.headers)])


def _output_names(arguments: Sequence[KernelArgument], outputs: Sequence[str] | None) -> tuple[str, ...]:
    if isinstance(outputs, str):
        outputs = [outputs]
    if not isinstance(outputs, list | tuple | None):
        raise InputError(f"outputs: must be a list of names, not {outputs!r}")
    arrays = [argument.name for argument in arguments if isinstance(argument, ArrayArgument)]
    for name in outputs or ():
        if name not in arrays:
            raise InputError(f"outputs: {name!r} is no array argument; choose from {', '.join(arrays)}")
    return tuple(outputs or ())


def _input(folder: Path | None, name: str, values: HostArray) -> dict[str, Any]:
    """Return what an argument says of its values; nothing where these are not written."""
    return {} if folder is None else {"input": _file(folder, name, values)}


def _file(folder: Path, name: str, values: HostArray) -> str:
    """Write an array, and return what a kernel file says to have it read."""
    path = folder / f"{name}.npy"
    np.save(path, values, allow_pickle=False)
    return f'file("{path}")'
