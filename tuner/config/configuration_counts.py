"""How many configurations a kernel has at each of its sizes."""

from collections.abc import Sequence

from tuner.config.assignment import constants
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.plan import Workload
from tuner.space.counting import count_configurations


def configuration_counts(kernel: KernelFile, workloads: Sequence[Workload]) -> list[int]:
    """The lengths of the spaces of workloads, counted together; no space is made.

    Args:
        kernel: of all workloads.
        workloads: at least one.

    Returns:
        A count for each; 0 where the rules allow nothing.

    Raises:
        InputError: a rule has no result, the rules allow nothing at all, or too much is left.
    """
    recipe = kernel.recipe
    return count_configurations(
        recipe.tunables,
        [rule.expression for rule in recipe.rules],
        [constants(recipe, workload) for workload in workloads],
        {name: formula.expression for name, formula in recipe.derived.items()},
        {name: one.condition for name, one in recipe.conditions.items()},
    )
