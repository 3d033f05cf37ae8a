"""One run of Kernel Tuner in a process of its own, as somebody who knows it well would start it.

Its CuPy backend needs two repairs, made here and nowhere else: it makes a UUID of the bytes that CuPy gives,
which end at the first zero byte ("bytes is not a 16-char string" on some GPUs), and it launches with dynamic
shared memory beyond 48 KiB without having asked for it, which CUDA refuses. PyTorch is hidden from it: it
would be imported, for seconds, only because it is installed. Its NVML observers are never used, and no answer
is checked.

    python kernel_tuner_child.py TASK-FOLDER OUT.json [--strategy brute_force] [--budget 100]
"""

import argparse
import json
import random
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from kernel_tuner_neutral import arrays, options_of

MAX_PLAIN_SHARED_BYTES = 48 * 1024  # beyond, CUDA wants to be asked
UUID_BYTES = 16


def main() -> None:
    """Run it once and write what it found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--strategy", default="brute_force")
    parser.add_argument("--budget", type=int, help="max_fevals")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    task = json.loads((options.folder / "task.json").read_text())
    sys.modules["torch"] = None  # type: ignore[assignment] # as where it is not installed
    import cupy  # noqa: PLC0415 - after the line above
    import kernel_tuner  # noqa: PLC0415 - likewise
    from kernel_tuner.backends.cupy import CupyFunctions  # noqa: PLC0415 - likewise

    runtime = cupy.cuda.runtime
    runtime.getDeviceProperties = with_whole_uuid(runtime.getDeviceProperties)
    allow_shared_memory(CupyFunctions)
    evaluations, chosen = tune(kernel_tuner, task, arrays(cupy, task, options.folder), options)
    options.out.write_text(json.dumps({"evaluations": evaluations, "chosen": chosen}))


def tune(
    kernel_tuner: Any, task: dict[str, Any], arguments: list[Any], options: argparse.Namespace
) -> tuple[int, int]:
    """Call ``tune_kernel``; how many configurations were evaluated, and the number of the best."""
    import numpy as np  # noqa: PLC0415 - after PyTorch is hidden

    random.seed(options.seed)
    np.random.seed(options.seed)  # noqa: NPY002 - the strategies draw from numpy's global generator
    names = list(task["tunables"])
    numbers = {tuple(row): number for number, row in enumerate(task["configurations"])}
    launches = task["launches"]

    def number_of(values: dict[str, Any]) -> int:
        return numbers[tuple(values[name] for name in names)]

    def macro(column: list[str]) -> Callable[[dict[str, Any]], str]:
        return lambda values: column[number_of(values)]

    shared = any(launch["shared_bytes"] for launch in launches)
    results, environment = kernel_tuner.tune_kernel(
        "TUNED_KERNEL",
        task["source"],
        lambda values: tuple(launches[number_of(values)]["grid"]),
        arguments,
        task["tunables"],
        grid_div_x=1,
        grid_div_y=1,
        grid_div_z=1,
        restrictions=[constraint(names, numbers)],
        lang="CUPY",
        smem_args={"size": lambda values: launches[number_of(values)]["shared_bytes"]} if shared else None,
        compiler_options=options_of(task, options.folder),
        defines={name: macro(column) for name, column in task["macros"].items()},
        block_size_names=list(task["block_names"]),
        quiet=True,
        strategy=options.strategy,
        strategy_options={} if options.budget is None else {"max_fevals": options.budget},
        seed=options.seed,
    )
    return len(results), number_of(environment["best_config"])


def constraint(names: list[str], rows: Collection[tuple[Any, ...]]) -> Any:
    """The configurations as one constraint that the solver prunes by, which costs less than formulas do."""
    from constraint import FunctionConstraint  # noqa: PLC0415 - comes with Kernel Tuner

    parts: dict[tuple[str, ...], set[tuple[Any, ...]]] = {}

    class Legal(FunctionConstraint):  # type: ignore[misc]
        def __call__(self, _variables: Any, _domains: Any, assigned: dict[str, Any], *_: Any) -> bool:
            known = tuple(filter(assigned.__contains__, names))
            if known not in parts:
                places = [names.index(name) for name in known]
                parts[known] = {tuple(row[place] for place in places) for row in rows}
            return tuple(assigned[name] for name in known) in parts[known]

        def __deepcopy__(self, _: Any) -> "Legal":
            return self  # restrictions are copied four times per run

    return Legal(lambda *values: values in rows)


def with_whole_uuid(properties: Callable[[int], dict[str, Any]]) -> Callable[[int], dict[str, Any]]:
    """The device's properties, with all 16 bytes of its UUID: those after a zero byte are zero."""

    def whole(device: int) -> dict[str, Any]:
        found = properties(device)
        return {**found, "uuid": found["uuid"][:UUID_BYTES].ljust(UUID_BYTES, b"\0")}

    return whole


def allow_shared_memory(backend: Any) -> None:
    """Have the backend ask for the dynamic shared memory of a configuration that needs more than 48 KiB."""
    plain = backend.copy_shared_memory_args

    def copy_shared_memory_args(self: Any, smem_args: dict[str, Any]) -> None:
        plain(self, smem_args)
        if smem_args["size"] > MAX_PLAIN_SHARED_BYTES:
            self.func.max_dynamic_shared_size_bytes = smem_args["size"]

    backend.copy_shared_memory_args = copy_shared_memory_args


if __name__ == "__main__":
    main()
