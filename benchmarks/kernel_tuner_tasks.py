"""A kernel file's space in the terms of Kernel Tuner: the same source, configurations and launches."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import InputError
from tuner.model.plan import Configuration, Plan, Scalar, StructValue, TunableValue, Workload

LAYOUT_BYTES = 16
"""Of a ``RowLayout`` of two arrays, which nothing reads where rows follow each other."""

Label = int | float | str
"""A tunable's value as Kernel Tuner gets it: truth values as 0 and 1, as C++ and its users write them."""


@dataclass(frozen=True)
class Launch:
    """Blocks, threads and dynamic shared memory of one configuration."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int


@dataclass(frozen=True)
class Task:
    """What Kernel Tuner is asked to tune.

    Attributes:
        workload: name, as ``tuner run`` takes it.
        kernel: kernel name with template arguments; a tunable's name stands for its value.
        source: file of the translation unit.
        options: NVRTC options, with the folders of headers.
        tunables: name -> labels that occur.
        configurations: the legal ones, labels in the order of ``tunables``.
        launches: one per configuration.
        block_names: the tunables that are threads of a block in x, y, z, as far as there are any.
        arguments: of the function, in order: ``{"buffer", "dtype", "shape", "role"}`` or
            ``{"dtype", "value"}``.
    """

    workload: str
    kernel: str
    source: str
    options: tuple[str, ...]
    tunables: dict[str, tuple[Label, ...]]
    configurations: tuple[tuple[Label, ...], ...]
    launches: tuple[Launch, ...]
    block_names: tuple[str, ...]
    arguments: tuple[dict[str, Any], ...]

    def write(self, path: Path) -> Path:
        """Write it as JSON, for a process that knows nothing of ``tuner``."""
        path.write_text(json.dumps(asdict(self)))
        return path


@dataclass(frozen=True)
class ComparedSpace:
    """A task, and the same configurations in our words.

    Attributes:
        task: for Kernel Tuner.
        configurations: in the order of the task's.
    """

    task: Task
    configurations: tuple[Configuration, ...]

    def index(self, values: Mapping[str, TunableValue]) -> int:
        """The number of a configuration as ``tuner`` names it."""
        return self.configurations.index(Configuration(values))

    def index_of_row(self, row: Sequence[Label]) -> int:
        """The number of a configuration as Kernel Tuner names it."""
        return self.task.configurations.index(tuple(row))


@dataclass(frozen=True)
class Naming:
    """How a configuration is written into the name of a template's instance.

    Attributes:
        kernel: see ``Task``.
        labels: tunable -> value -> label.
    """

    kernel: str
    labels: Mapping[str, Mapping[TunableValue, Label]]

    def row(self, configuration: Configuration) -> tuple[Label, ...]:
        """The labels of a configuration, in the order of the tunables."""
        return tuple(self.labels[name][configuration[name]] for name in self.labels)


def space_of(kernel: KernelFile, workload: Workload, architecture: int) -> ComparedSpace:
    """The space of a workload on a device.

    Args:
        kernel: with one stage, and an entry that is a template with one argument for each tunable that
            matters to the code.
        workload: what is computed.
        architecture: compute capability times ten; configurations for newer devices are left out.

    Raises:
        InputError: the kernel file has something that Kernel Tuner has no words for.
    """
    plans = [kernel.plan(workload, configuration) for configuration in kernel.space(workload)]
    plans = [plan for plan in plans if all(s.min_architecture <= architecture for s in plan.stages)]
    stages = [plan.stages[0] for plan in plans]
    if any(len(plan.stages) != 1 or plan.stages[0].resident for plan in plans) or kernel.conditions:
        raise InputError(f"{workload}: only kernels of one launch, without conditions, can be compared")
    if len({(stage.source, stage.options, stage.arguments) for stage in stages}) != 1:
        raise InputError(f"{workload}: source, options and arguments must be those of all configurations")
    naming = name_of(plans, kernel.tunables)
    rows = tuple(naming.row(plan.configuration) for plan in plans)
    if len(set(rows)) != len(rows):
        raise InputError(f"{workload}: different configurations have the same labels")
    used = list(zip(*rows, strict=True))
    task = Task(
        workload=str(workload),
        kernel=naming.kernel,
        source=stages[0].source.path,
        options=(*stages[0].options, *(f"-I{folder}" for folder in header_folders(kernel))),
        tunables={
            name: tuple(label for label in labels.values() if label in column)
            for (name, labels), column in zip(naming.labels.items(), used, strict=True)
        },
        configurations=rows,
        launches=tuple(Launch(stage.grid, stage.block, stage.shared_bytes) for stage in stages),
        block_names=block_names([plan.configuration for plan in plans], [stage.block for stage in stages]),
        arguments=arguments_of(plans[0]),
    )
    return ComparedSpace(task, tuple(plan.configuration for plan in plans))


def name_of(plans: Sequence[Plan], tunables: Mapping[str, Sequence[TunableValue]]) -> Naming:
    """The instance's name with tunables in place of their values.

    A template argument that is a tunable's value becomes the tunable's name. One that only follows from a
    tunable (``bulk``, where ``store`` is ``"bulk"``) becomes its name too, and the tunable's labels are the
    arguments.

    Args:
        plans: of all configurations.
        tunables: the values of each, in the order of the kernel file, which the labels keep.

    Raises:
        InputError: an argument follows from no single tunable.
    """
    entry, _, arguments = plans[0].stages[0].entry.partition("<")
    rows = [plan.stages[0].entry.partition("<")[2].rstrip(">").split(", ") for plan in plans]
    names = list(plans[0].configuration)
    labels: dict[str, dict[TunableValue, Label]] = {
        name: {value: plain(value) for value in tunables[name] if value in occurring}
        for name in names
        for occurring in [{plan.configuration[name] for plan in plans}]
    }
    columns = list(zip(*rows, strict=True))
    behind = {place: one for place, column in enumerate(columns) if (one := _same(plans, names, column))}
    words = []
    for place, column in enumerate(columns):
        if len(set(column)) == 1:
            words.append(column[0])
            continue
        if place not in behind:
            free = [name for name in names if name not in behind.values()]
            name = _cause(plans, free, column)
            known = dict(_pairs(plans, name, column))
            labels[name] = {value: truth(known[value]) for value in labels[name]}
            behind[place] = name
        words.append(behind[place])
    return Naming(f"{entry}<{', '.join(words)}>" if arguments else entry, labels)


def _same(plans: Sequence[Plan], names: Sequence[str], column: Sequence[str]) -> str | None:
    """The tunable whose values stand in a place of the name."""
    fitting = (n for n in names if all(written(v) == word for v, word in _pairs(plans, n, column)))
    return next(fitting, None)


def _cause(plans: Sequence[Plan], names: Sequence[str], column: Sequence[str]) -> str:
    """The tunable from which a place of the name follows."""
    for name in names:
        pairs = set(_pairs(plans, name, column))
        if len(pairs) == len({value for value, _ in pairs}):
            return name
    raise InputError(f"the template argument {column[0]!r} follows from no tunable alone")


def _pairs(plans: Sequence[Plan], name: str, column: Sequence[str]) -> list[tuple[TunableValue, str]]:
    """What a tunable is, and what stands in a place of the name, in every plan."""
    return [(plan.configuration[name], word) for plan, word in zip(plans, column, strict=True)]


def plain(value: TunableValue) -> Label:
    """A value as Kernel Tuner gets it."""
    return int(value) if isinstance(value, bool) else value


def truth(word: str) -> Label:
    """A template argument as label: 0 and 1 for truth values, else the word."""
    return {"false": 0, "true": 1}.get(word, word)


def written(value: TunableValue) -> str:
    """A value as kernel files write it into names."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def block_names(
    configurations: Sequence[Configuration], blocks: Sequence[tuple[int, int, int]]
) -> tuple[str, ...]:
    """The tunables that are the threads of a block, one per axis that has more than one thread.

    Raises:
        InputError: an axis is no tunable's value.
    """
    chosen = []
    for axis, column in enumerate(zip(*blocks, strict=True)):
        if set(column) == {1}:
            continue
        name = next(
            (
                name
                for name in configurations[0]
                if all(c[name] == threads for c, threads in zip(configurations, column, strict=True))
            ),
            None,
        )
        if name is None or axis != len(chosen):
            raise InputError(f"the threads of a block along axis {axis} are no tunable's value")
        chosen.append(name)
    return tuple(chosen)


def header_folders(kernel: KernelFile) -> tuple[str, ...]:
    """Folders in which the source's headers lie."""
    headers = {name for stage in kernel.recipe.stages for name, _ in stage.source.headers}
    around = [kernel.path.parent, *sorted(kernel.path.parent.parent.iterdir())]
    return tuple(
        str(folder.resolve())
        for folder in around
        if folder.is_dir() and any((folder / header).is_file() for header in headers)
    )


def arguments_of(plan: Plan) -> tuple[dict[str, Any], ...]:
    """The function's arguments as plain values.

    Raises:
        InputError: one is a tensor map, or a struct other than a layout of rows of two arrays.
    """
    buffers = {buffer.name: buffer for buffer in plan.buffers}
    found: list[dict[str, Any]] = []
    for argument in plan.stages[0].arguments:
        if isinstance(argument, Scalar):
            found.append({"dtype": argument.dtype, "value": argument.value})
        elif isinstance(argument, StructValue) and len(argument.bytes) == LAYOUT_BYTES:
            found.append({"dtype": "complex128", "value": 0.0})
        elif isinstance(argument, str):
            one = buffers[argument]
            found.append({"buffer": one.name, "dtype": one.dtype, "shape": list(one.shape), "role": one.role})
        else:
            raise InputError("tensor maps and other structs cannot be passed by Kernel Tuner")
    return tuple(found)
