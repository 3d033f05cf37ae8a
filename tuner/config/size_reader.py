"""Reads the sizes of a kernel file."""

from collections.abc import Callable, Mapping, Sequence

from tuner.config.problem_schema import ProblemTable, SizeRange
from tuner.kernel_files.formulas import Place
from tuner.kernel_files.sizes import SizeValues, count_combinations, is_text

MAX_WORKLOADS = 10_000  # commands list them all


def read_sizes(problem: ProblemTable, at: Callable[[str], Place]) -> dict[str, SizeValues]:
    """The values that workloads may take, by the names of the sizes.

    Raises:
        KernelFileError: a value stands twice or cannot be named, there are too many combinations, or what is
            optional is no size.
    """
    sizes: dict[str, SizeValues] = {
        name: range(given.first, given.last + 1) if isinstance(given, SizeRange) else tuple(given)
        for name, given in problem.sizes.items()
    }
    _check(sizes, problem.optional, at)
    return sizes


def _check(sizes: Mapping[str, SizeValues], optional: Sequence[str], at: Callable[[str], Place]) -> None:
    for name, values in sizes.items():
        if isinstance(values, range):
            continue  # as long as it may be
        if len(set(map(str, values))) < len(values):
            raise at(f"[problem.sizes] {name}").error("a value stands twice")
        unnamed = next((value for value in values if isinstance(value, str) and not is_text(value)), None)
        if unnamed is not None:
            raise at(f"[problem.sizes] {name}").error(
                f"no workload can name {unnamed!r}: a text is not empty, is printable, has no spaces"
                " around it, and neither ',' nor '='"
            )
    for name in optional:
        place = at("[problem] optional")
        if optional.count(name) > 1:
            raise place.error(f"{name} stands twice")
        if name not in sizes:
            choices = ", ".join(sizes) or "there is none"
            raise place.error(f"no size is called {name!r}; choose from {choices}")
        if isinstance(sizes[name], range):
            raise place.error(f"{name} is a range, which has no first choice; give it a list of values")
    combinations = count_combinations(sizes)
    if combinations > MAX_WORKLOADS:
        raise at("[problem.sizes]").error(
            f"{combinations} combinations of sizes, at most {MAX_WORKLOADS} are allowed"
        )
