"""Stream priorities as a tunable of workloads that run together.

Blocks that wait are dispatched by the priority of their stream, so that of kernels which run at the same time
the urgent ones get free multiprocessors first (CUDA C++ Programming Guide, "Stream Priorities"). Alone, a
workload takes the same time at every priority: no kernel file has this tunable of its own.
"""

from dataclasses import replace

from tuner.config.formulas import Formula, Place
from tuner.config.kernel_file import KernelFile
from tuner.model.plan import STREAM_PRIORITY


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
