"""Stream priorities as a tunable of workloads that run together.

Blocks that wait are dispatched by the priority of their stream, so that of kernels which run at the same time
the urgent ones get free multiprocessors first (CUDA C++ Programming Guide, "Stream Priorities"). Alone, a
workload takes the same time at every priority: no kernel file has this tunable of its own.
"""

from collections.abc import Mapping
from dataclasses import replace

from tuner.kernel_files.formulas import Formula, Place
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import InputError
from tuner.model.plan import STREAM_PRIORITY, Configuration, TunableValue, Workload, without_priority

_MOST_LEVELS = 6  # as of --stream-priorities


def with_stream_priorities(kernel: KernelFile, levels: int) -> KernelFile:
    """A kernel file whose configurations also have a stream priority, 0 by default.

    Args:
        kernel: the file; sources and fingerprint stay as they are.
        levels: priorities to choose from, 0 to ``levels`` - 1; the highest is the most urgent.

    Raises:
        KernelFileError: the file has something else of this name.
    """
    recipe = kernel.recipe
    place = Place(str(kernel.path), f"[tunables] {STREAM_PRIORITY}")
    if STREAM_PRIORITY in {*recipe.tunables, *recipe.derived, *recipe.sizes}:
        raise place.error("is the name of the tunable of --stream-priorities; choose another name")
    lowest = {STREAM_PRIORITY: Formula(place, 0, ())}
    tunables = {**recipe.tunables, STREAM_PRIORITY: tuple(range(levels))}
    priority = Formula(place, STREAM_PRIORITY, (STREAM_PRIORITY,))
    several = replace(
        recipe,
        tunables=tunables,
        default={**recipe.default, **lowest} if recipe.default else {},
        stated=tuple(replace(one, values={**one.values, **lowest}) for one in recipe.stated),
        measured=recipe.measured and replace(recipe.measured, further={STREAM_PRIORITY: 0}),
        stream_priority=priority,
    )
    return replace(kernel, recipe=several)


def stored_configuration(
    kernel: KernelFile, workload: Workload, values: Mapping[str, TunableValue]
) -> Configuration:
    """The values of a stored trial as the kernel file writes them, with a stream priority if they have one.

    Raises:
        InputError: they are no configuration of the workload; whoever wrote them had another kernel.
    """
    found = kernel.configuration(workload, without_priority(Configuration(values)))
    if STREAM_PRIORITY not in values:
        return found
    priority = values[STREAM_PRIORITY]
    if type(priority) is not int or not 0 <= priority < _MOST_LEVELS:
        raise InputError(
            f"configuration: {STREAM_PRIORITY} is {priority!r}; it must be 0 to {_MOST_LEVELS - 1}"
        )
    return Configuration({**found, STREAM_PRIORITY: priority})
