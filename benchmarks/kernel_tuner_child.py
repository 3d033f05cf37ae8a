"""One run of Kernel Tuner in a process of its own, as somebody who knows it well would start it.

Its CuPy backend needs two repairs, made here and nowhere else: it makes a UUID of the bytes that CuPy gives,
which end at the first zero byte ("bytes is not a 16-char string" on some GPUs), and it launches with dynamic
shared memory beyond 48 KiB without having asked for it, which CUDA refuses. PyTorch is hidden from it: it
would be imported, for seconds, only because it is installed. Its NVML observers are never used. Inputs and
the reference live on the GPU, so that a verified run compares there and copies nothing.

    python kernel_tuner_child.py TASK.json OUT.json [--strategy brute_force] [--budget 100] [--verify]
"""

import argparse
import importlib
import importlib.metadata
import json
import random
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

STARTED = time.time()
MAX_PLAIN_SHARED_BYTES = 48 * 1024  # beyond, CUDA wants to be asked
TOLERANCE = 1e-5  # of the largest element of the reference
UUID_BYTES = 16
FILTER = 17  # side of the filter of the convolution


def main() -> None:
    """Run it once and write what it found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("task", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--strategy", default="brute_force")
    parser.add_argument("--budget", type=int, help="max_fevals")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", choices=["cupy", "nvcuda"], default="cupy")
    parser.add_argument("--verify", action="store_true", help="check every answer on the GPU (CuPy only)")
    options = parser.parse_args()
    task = json.loads(options.task.read_text())
    sys.modules["torch"] = None  # type: ignore[assignment] # as where it is not installed
    import kernel_tuner  # noqa: PLC0415 - after the line above

    imported_s = time.time() - STARTED
    repair(options.backend)
    random.seed(options.seed)
    results, environment = tune(kernel_tuner, task, options)
    names = list(task["tunables"])
    document = {
        "version": importlib.metadata.version("kernel_tuner"),
        "imported_s": imported_s,
        "started": STARTED,
        "times_ms": {
            name: environment.get(f"total_{name}_time", 0.0)
            for name in ("framework", "strategy", "compile", "verification", "benchmark")
        },
        "results": [
            {
                "values": [one[name] for name in names],
                "time_ms": one.get("time") if "__error__" not in one else None,
                "timestamp": one["timestamp"],
            }
            for one in results
        ],
        "best": [environment["best_config"][name] for name in names],
    }
    options.out.write_text(json.dumps(document))


def tune(kernel_tuner: Any, task: dict[str, Any], options: argparse.Namespace) -> tuple[list[Any], Any]:
    """Call ``tune_kernel``."""
    import numpy as np  # noqa: PLC0415 - after PyTorch is hidden

    np.random.seed(options.seed)  # noqa: NPY002 - the strategies draw from numpy's global generator
    arguments = arguments_of(task, options)
    rows = {tuple(row): launch for row, launch in zip(task["configurations"], task["launches"], strict=True)}
    names = list(task["tunables"])

    def launch_of(values: dict[str, Any]) -> dict[str, Any]:
        return rows[tuple(values[name] for name in names)]

    shared = any(launch["shared_bytes"] for launch in task["launches"])
    strategy_options = {} if options.budget is None else {"max_fevals": options.budget}
    results, environment = kernel_tuner.tune_kernel(
        task["kernel"],
        Path(task["source"]).read_text(),
        lambda values: tuple(launch_of(values)["grid"]),
        arguments,
        task["tunables"],
        grid_div_x=1,
        grid_div_y=1,
        grid_div_z=1,
        restrictions=[constraint(names, rows)],
        verify=verification(task, arguments) if options.verify else None,
        lang=options.backend.upper(),
        smem_args={"size": lambda values: launch_of(values)["shared_bytes"]} if shared else None,
        compiler_options=list(task["options"]),
        defines={},  # the tunables are template arguments, not macros
        block_size_names=list(task["block_names"]),
        quiet=True,
        strategy=options.strategy,
        strategy_options=strategy_options,
        seed=options.seed,
    )
    return results, environment


def repair(backend: str) -> None:
    """Let Kernel Tuner's backend start on any GPU and launch with as much shared memory as there is."""
    if backend == "cupy":
        import cupy  # noqa: PLC0415 - only for this backend
        from kernel_tuner.backends.cupy import CupyFunctions  # noqa: PLC0415 - only for this backend

        runtime = cupy.cuda.runtime
        runtime.getDeviceProperties = with_whole_uuid(runtime.getDeviceProperties)
        allow_shared_memory(CupyFunctions, ask_cupy)
    else:
        from kernel_tuner.backends.nvcuda import CudaFunctions  # noqa: PLC0415 - only for this backend

        allow_shared_memory(CudaFunctions, ask_driver)


def with_whole_uuid(properties: Callable[[int], dict[str, Any]]) -> Callable[[int], dict[str, Any]]:
    """The device's properties, with all 16 bytes of its UUID: those after a zero byte are zero."""

    def whole(device: int) -> dict[str, Any]:
        found = properties(device)
        return {**found, "uuid": found["uuid"][:UUID_BYTES].ljust(UUID_BYTES, b"\0")}

    return whole


def allow_shared_memory(backend: Any, ask: Callable[[Any, int], None]) -> None:
    """Have a backend ask for the dynamic shared memory of a configuration that needs more than 48 KiB."""
    plain = backend.copy_shared_memory_args

    def copy_shared_memory_args(self: Any, smem_args: dict[str, Any]) -> None:
        plain(self, smem_args)
        if smem_args["size"] > MAX_PLAIN_SHARED_BYTES:
            ask(self.func, smem_args["size"])

    backend.copy_shared_memory_args = copy_shared_memory_args


def ask_cupy(function: Any, size: int) -> None:
    """For a function of CuPy."""
    function.max_dynamic_shared_size_bytes = size


def ask_driver(function: Any, size: int) -> None:
    """For a function of cuda-python."""
    from cuda.bindings import driver  # noqa: PLC0415 - only for this backend

    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    (error,) = driver.cuFuncSetAttribute(function, attribute, size)
    if error:
        raise RuntimeError(f"cuFuncSetAttribute: {error}")


class Legal:
    """Which values, of some or all of the tunables, belong to a configuration.

    Args:
        names: the tunables, in the order of a configuration's values.
        rows: the configurations.
    """

    def __init__(self, names: Iterable[str], rows: Iterable[tuple[Any, ...]]) -> None:
        self._names, self._rows = tuple(names), tuple(rows)
        self._parts: dict[tuple[str, ...], frozenset[tuple[Any, ...]]] = {}

    def allows(self, assigned: dict[str, Any]) -> bool:
        """Whether a configuration has these values."""
        names = tuple(name for name in self._names if name in assigned)
        if names not in self._parts:
            places = [self._names.index(name) for name in names]
            self._parts[names] = frozenset(tuple(row[place] for place in places) for row in self._rows)
        return tuple(assigned[name] for name in names) in self._parts[names]


def constraint(names: Iterable[str], rows: Iterable[tuple[Any, ...]]) -> Any:
    """The configurations as a constraint that its solver prunes by, which costs less than formulas do."""
    from constraint import FunctionConstraint  # noqa: PLC0415 - comes with Kernel Tuner

    legal = Legal(names, rows)

    class Allowed(FunctionConstraint):  # type: ignore[misc]
        def __call__(self, _variables: Any, _domains: Any, assignments: Any, *_: Any) -> bool:
            return legal.allows(assignments)

        def __deepcopy__(self, _: Any) -> "Allowed":
            return self  # restrictions are copied four times per run

    return Allowed(legal)


def arguments_of(task: dict[str, Any], options: argparse.Namespace) -> list[Any]:
    """Random inputs in [-1, 1), outputs, scalars; the arrays on the GPU for the CuPy backend."""
    import numpy as np  # noqa: PLC0415 - after PyTorch is hidden

    xp: Any = np
    if options.backend == "cupy":
        xp = importlib.import_module("cupy")
    rng = np.random.default_rng(options.seed)
    found: list[Any] = []
    for argument in task["arguments"]:
        if "value" in argument:
            found.append(np.dtype(argument["dtype"]).type(argument["value"]))
        elif argument["role"] == "in":
            values = rng.random(argument["shape"], dtype=argument["dtype"])
            values *= 2
            values -= 1
            found.append(xp.asarray(values))
        else:
            found.append(xp.empty(argument["shape"], argument["dtype"]))
    return found


def verification(task: dict[str, Any], arguments: list[Any]) -> Callable[..., bool]:
    """A ``verify`` that compares complete outputs on the GPU; nothing poisons them in between."""
    import cupy  # noqa: PLC0415 - only for this backend

    place = next(i for i, one in enumerate(task["arguments"]) if one.get("role") == "out")
    inputs = [
        one for one, described in zip(arguments, task["arguments"], strict=True) if "buffer" in described
    ]
    right = reference(cupy, task["workload"].partition(":")[0], inputs[:-1]).reshape(-1)
    allowed = TOLERANCE * float(abs(right).max())

    def verify(_answer: Any, results: list[Any]) -> bool:
        return float(abs(results[place].reshape(-1) - right).max()) <= allowed  # never for NaN

    return verify


def reference(cp: Any, kernel: str, inputs: list[Any]) -> Any:
    """What the kernels compute, in float64, rounded to float32."""
    if kernel.startswith("scan"):
        return cp.cumsum(inputs[0], axis=1, dtype="float64").astype("float32")
    if kernel == "matmul":
        return (inputs[0].astype("float64") @ inputs[1].astype("float64")).astype("float32")
    image, weights = inputs[0].astype("float64"), inputs[1].astype("float64")
    side = image.shape[0] - FILTER + 1
    total = cp.zeros((side, side))
    for i in range(FILTER):
        for j in range(FILTER):
            total += image[i : i + side, j : j + side] * weights[i, j]
    return total.astype("float32")


if __name__ == "__main__":
    main()
