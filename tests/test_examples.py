"""The examples are short, compile everywhere and, but for tensor cores, are right on the host.

So are the kernels of benchmarks/users, which are timed against other tuners.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import host_build
import numpy as np
import pytest
from compiled_stages import compiled_stages
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from pairwise import pairwise

from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.plan import Configuration, Plan, Workload
from tuner.problems.base import Deviation, agreement
from tuner.problems.lookup import problem_for

FOLDER = Path(__file__).parents[1] / "examples"
USERS = FOLDER.parent / "benchmarks" / "users"
KERNELS = {path.parent.name: load_kernel_file(path) for path in sorted(FOLDER.glob("*/kernel.toml"))}
OF_USERS = {
    f"users/{path.stem}": load_kernel_file(path)
    for path in sorted([*USERS.glob("*.toml"), USERS / "triad.cu"])
}
CONFIGURATIONS = {
    "convolution": 157,
    "histogram": 160,
    "matmul": 96,
    "nbody": 60,
    "pnpoly": 80,
    "reduction": 180,
    "spmv": 72,
    "stencil": 95,
    "transpose": 48,
    "vector-add": 48,
}
ARCHITECTURES = (53, 72, 87, 90)  # Jetson TX1, Xavier, Orin, Hopper
MAX_LINES = 40
HOST_THREADS = 2**16  # of a launch on the host, where each takes its turn
Arrays = Mapping[str, NDArray[Any]]


def lines(path: Path) -> int:
    return sum(bool(line.strip()) for line in path.read_text().splitlines())


def sample(kernel: KernelFile, workload: Workload, most_threads: int = 2**40) -> list[Plan]:
    """Plans that hold each value of each tunable, the default first, of those with few threads in all."""
    every = [kernel.plan(workload, configuration) for configuration in kernel.space(workload)]
    plans = {plan.configuration: plan for plan in every if threads(plan) <= most_threads}
    default = kernel.default(workload)
    first = [dict(default.items())] if default in plans else []
    chosen = pairwise([dict(configuration.items()) for configuration in plans], first=first, together=1)
    return [plans[Configuration(list(row.items()))] for row in chosen]


def threads(plan: Plan) -> int:
    return sum(stage.blocks * stage.threads_per_block for stage in plan.stages)


def smallest(kernel: KernelFile) -> Workload:
    return kernel.workload({name: values[-1] for name, values in kernel.sizes.items() if name != "dtype"})


def convolution(image: NDArray[Any], weights: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(
        np.einsum("yxij,ij->yx", sliding_window_view(image.astype(float), weights.shape), weights)
    )


def nbody(body: NDArray[Any]) -> NDArray[Any]:
    places, mass = body[:, :3].astype(float), body[:, 3].astype(float)
    apart = places[None] - places[:, None]
    return np.asarray(((mass / ((apart**2).sum(axis=2) + 0.01) ** 1.5)[..., None] * apart).sum(axis=1))


def softmax(x: NDArray[Any]) -> NDArray[Any]:
    powers = np.exp(x.astype(float))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def stencil(x: NDArray[Any]) -> NDArray[Any]:
    wide = np.pad(x.astype(float), 1)
    around = sum(np.roll(wide, step, axis) for axis in range(3) for step in (-1, 1))
    return np.asarray((0.4 * wide + 0.1 * around)[1:-1, 1:-1, 1:-1])


def spmv(offsets: NDArray[Any], columns: NDArray[Any], values: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return np.bincount(rows, values.astype(float) * x[columns], len(offsets) - 1)


BY_NAIVE_KERNELS: dict[str, Callable[..., Any]] = {
    "convolution": convolution,
    "nbody": nbody,
    "users/bgemm": lambda A, B: A.astype(float) @ B,
    "users/convolution": convolution,
    "users/matmul": lambda A, B: A.astype(float) @ B,
    "users/reduction": lambda x: x.sum(axis=1, dtype=float),
    "users/softmax": softmax,
    "users/spmv": spmv,
    "users/stencil": stencil,
}


def inputs_of(plan: Plan) -> dict[str, NDArray[Any]]:
    """Arrays as the kernel file wants them."""
    sizes = {**dict(plan.workload.sizes), "batch": plan.workload.batch}
    made = problem_for(plan.problem).inputs(np, np.random.default_rng(0), plan.buffers, sizes)
    return {name: np.asarray(array) for name, array in made.items()}


def judged(name: str, plan: Plan, inputs: Arrays, outputs: Arrays) -> Deviation:
    """Outputs against what the kernel file says is right; where that is a naive kernel, against NumPy."""
    if name in BY_NAIVE_KERNELS:
        (output,) = outputs.values()
        return agreement(BY_NAIVE_KERNELS[name](**inputs), output, plan.problem.tolerance, "out")
    sizes = {**dict(plan.workload.sizes), "batch": plan.workload.batch}
    return problem_for(plan.problem).residual(np, inputs, outputs, sizes)


def with_constants(plan: Plan, inputs: Arrays) -> Plan:
    """The plan with the values of its constant arrays in the source: the host has no way to set a symbol."""
    stages = []
    for stage in plan.stages:
        text = stage.source.text
        for name in re.findall(r"__constant__ \w+ (\w+)\[", text):
            values = ", ".join(f"{value:.9g}f" for value in inputs[name].ravel())
            text = re.sub(rf"(__constant__ \w+ {name}\[\w+(?: \* \w+)?\]);", rf"\1 = {{{values}}};", text)
        stages.append(replace(stage, source=replace(stage.source, text=text)))
    return replace(plan, stages=tuple(stages))


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_examples_are_short(name: str) -> None:
    """A source takes 40 lines at most, and its space has the size that the README says."""
    kernel = KERNELS[name]
    assert max(lines(path) for path in (FOLDER / name).glob("*.cu")) <= MAX_LINES
    assert lines(FOLDER / name / "kernel.toml") <= (15 if name == "vector-add" else 43)
    workload = kernel.workloads()[0]
    assert kernel.default(workload) in kernel.space(workload)
    assert len(kernel.space(workload)) == CONFIGURATIONS[name]


def test_every_example_is_listed() -> None:
    """The README and these tests know all examples."""
    text = (FOLDER / "README.md").read_text()
    assert set(CONFIGURATIONS) == set(KERNELS)
    for name, count in CONFIGURATIONS.items():
        assert re.search(rf"^\| \[{name}\]\({name}\) \|.*\| {count}\b", text, re.MULTILINE), name


@pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("name", [*CONFIGURATIONS, *OF_USERS])
def test_values_give_right_answers(name: str) -> None:
    """Each value of each tunable gives NumPy's answer without races, blocks not filled."""
    kernel = (KERNELS | OF_USERS)[name]
    plans = sample(kernel, smallest(kernel), HOST_THREADS)
    inputs = inputs_of(plans[0])
    plans = [with_constants(plan, inputs) for plan in plans]
    host_build.build_plans(plans, host_build.CHECKED)
    naive = plans[0].reference
    for plan in [*plans, *([] if naive is None else [with_constants(naive, inputs)])]:
        outputs = host_build.run_plan_on_host(plan, inputs, flags=host_build.CHECKED, order="shuffle")
        deviation = judged(name, plan, inputs, outputs)
        assert deviation.ok, f"{plan.label()}: {deviation}"


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_compiles_for_devices_old_and_new(name: str, cubins: Path) -> None:
    """The default compiles for every architecture, and each value of each tunable for one of them."""
    kernel = KERNELS[name]
    for workload in (kernel.workload({"N": kernel.sizes["N"][0]} | more) for more in variants(kernel)):
        default, *others = sample(kernel, workload)
        for place, architecture in enumerate(ARCHITECTURES):
            plans = [default, *others[place :: len(ARCHITECTURES)]]
            stages = [s for plan in plans for s in plan.stages if s.min_architecture <= architecture]
            assert len(compiled_stages(stages, f"sm_{architecture}", cubins)) == len(stages)


def variants(kernel: KernelFile) -> list[dict[str, int | str]]:
    return [{"dtype": str(value)} for value in kernel.sizes.get("dtype", ())] or [{}]
