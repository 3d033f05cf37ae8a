"""The kernels of the catalogue that are one CUDA file with pragmas, and the same written by hand.

``tests/kernels/hand_written`` has a kernel file for each. The source beside it is that of the catalogue with
the few lines changed that its pragmas stand for, so that the same values must compile to the same code.
"""

import atexit
import functools
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import host_build
import numpy as np
from host_build import CHECKED, Barrier, HostRunError, Order
from numpy.typing import NDArray
from pairwise import pairwise

from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.plan import Configuration, Plan, TunableValue, Workload
from tuner.problems.lookup import problem_for

CATALOGUE = Path(__file__).parents[2] / "kernels"
HAND_WRITTEN = Path(__file__).parent / "hand_written"
KERNELS = {path.parent.name: load_kernel_file(path) for path in sorted(CATALOGUE.glob("*/kernel.cu"))}

_UNROLLED = {"#pragma tuner unroll U: values 1, 4": "#pragma unroll U"}
_BY_HAND: Mapping[str, Mapping[str, str]] = {  # lines of a source -> what stands there instead
    "transpose-naive": {
        f"#define BLOCK_{axis} 16": f"#ifndef BLOCK_{axis}\n#define BLOCK_{axis} 16\n#endif" for axis in "XY"
    },
    "mvmul": _UNROLLED,
    "scalar-product": _UNROLLED,
    "convolution-columns": {
        "#pragma tuner select ORDER": "",
        "#pragma tuner case strided": "#if !WINDOW",
        "#pragma tuner case window": "#else",
        "#pragma tuner end": "#endif",
    },
}

BOUNDS = ("blocks",)  # of registers alone: the same code, word for word

Sizes = Mapping[str, int | str]
SMALL: Mapping[str, tuple[Sizes, ...]] = {  # sizes for the host: blocks and vectors not filled, and filled
    "convolution-columns": ({"H": 43, "W": 29, "R": 4}, {"H": 16, "W": 33, "R": 8}),
    "convolution-rows": ({"H": 11, "W": 75, "R": 4}, {"H": 8, "W": 70, "R": 16}),
    "matmul-split-k": ({"M": 37, "N": 21, "K": 45}, {"M": 12, "N": 20, "K": 516}),
    "mvmul": ({"H": 67, "W": 45}, {"H": 5, "W": 92}, {"H": 3, "W": 4100}),
    "reduction": ({"N": 1}, {"N": 1027}, {"N": 8300}),
    "scalar-product": ({"P": 5, "L": 131}, {"P": 131, "L": 12}, {"P": 3, "L": 16388}),
    "transpose": ({"H": 35, "W": 70}, {"H": 68, "W": 36}),
    "transpose-naive": ({"H": 35, "W": 71},),
}


@functools.cache
def by_hand(name: str) -> KernelFile:
    """The kernel as a hand-written kernel file."""
    folder = _folder() / name
    shutil.copytree(CATALOGUE / name, folder)
    shutil.copy(HAND_WRITTEN / f"{name}.toml", folder / "kernel.toml")
    source = folder / "kernel.cu"
    changes = _BY_HAND.get(name, {})
    lines = source.read_text().splitlines()
    if set(changes) - set(lines):
        raise AssertionError(f"{source}: there is no line {set(changes) - set(lines)}")
    kept = (changes.get(line, "" if "#pragma tuner" in line else line) for line in lines)
    source.write_text("\n".join(kept) + "\n")
    return load_kernel_file(folder / "kernel.toml")


@functools.cache
def _folder() -> Path:
    folder = tempfile.mkdtemp(prefix="hand-written-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def sample(
    kernel: KernelFile, workload: Workload, together: int = 1, left_out: Sequence[str] = ()
) -> list[Plan]:
    """Plans that hold each value, or each pair of values, of the tunables; the default first.

    Args:
        kernel: of which.
        workload: at which sizes.
        together: see ``pairwise``.
        left_out: tunables whose values do not count.
    """

    def counted(row: Mapping[str, TunableValue]) -> dict[str, TunableValue]:
        return {name: value for name, value in row.items() if name not in left_out}

    default = dict(kernel.default(workload).items())
    whole = {frozenset(counted(default).items()): default}
    rows = [dict(configuration.items()) for configuration in kernel.space(workload)]
    for row in rows:
        whole.setdefault(frozenset(counted(row).items()), row)
    chosen = pairwise(list(map(counted, rows)), first=[counted(default)], together=together)
    found = (whole[frozenset(row.items())] for row in chosen)
    return [kernel.plan(workload, Configuration(list(row.items()))) for row in found]


def small_plans(kernel: KernelFile, together: int = 1) -> list[Plan]:
    """``sample`` at each of the small sizes."""
    return [plan for sizes in SMALL[kernel.name] for plan in sample(kernel, kernel.workload(sizes), together)]


def inputs_of(plan: Plan) -> dict[str, NDArray[Any]]:
    """Arrays as the kernel file wants them; constant ones depend on nothing but their shape."""
    made = problem_for(plan.problem).inputs(np, np.random.default_rng(0), plan.buffers, sizes_of(plan))
    inputs = {name: np.asarray(array) for name, array in made.items()}
    for _, name in plan.stages[0].symbols:
        inputs[name] = np.random.default_rng(1).uniform(-1, 1, inputs[name].shape).astype(np.float32)
    return inputs


def sizes_of(plan: Plan) -> dict[str, int | str]:
    """The sizes and the batch."""
    return {**dict(plan.workload.sizes), "batch": plan.workload.batch}


def ready(plan: Plan) -> Plan:
    """The plan with its constant arrays in the source: the host has no way to set a symbol."""
    inputs = inputs_of(plan)
    stages = []
    for stage in plan.stages:
        text = stage.source.text
        for symbol, name in stage.symbols:
            values = ", ".join(f"{value:.9g}f" for value in inputs[name].ravel())
            text = re.sub(rf"(__constant__ float {symbol}\[.*\]);", rf"\1 = {{{values}}};", text)
        stages.append(replace(stage, source=replace(stage.source, text=text)))
    return replace(plan, stages=tuple(stages))


def check_answer(
    plan: Plan, flags: Sequence[str], order: Order = "shuffle", without: Barrier | None = None
) -> None:
    """Runs a plan that is ready on random inputs and holds the answer to the kernel file's reference.

    Raises:
        AssertionError: it is wrong, or a rule of the machine was broken.
    """
    inputs = inputs_of(plan)
    outputs = host_build.run_plan_on_host(plan, inputs, flags=flags, order=order, without=without)
    deviation = problem_for(plan.problem).residual(np, inputs, outputs, sizes_of(plan))
    assert deviation.ok, f"{plan.label()}, {order}: {deviation}"


def barriers_not_missed(plans: Sequence[Plan]) -> set[tuple[str, int, str]]:
    """Barriers of the sources that no plan comes to, or that none answers wrong without."""
    stages = [stage for plan in plans for stage in plan.stages]
    left = {barrier.place for stage in stages for barrier in host_build.barriers_of(stage.source)}
    for plan in plans:
        if not left:
            break
        check_answer(plan, CHECKED)  # comes to its barriers
        for barrier in host_build.barriers_reached(plan):
            if barrier.place in left and is_missed(plan, barrier):
                left.remove(barrier.place)
    return left


def is_missed(plan: Plan, barrier: Barrier) -> bool:
    try:
        check_answer(plan, CHECKED, "forward", without=barrier)
    except (AssertionError, HostRunError):
        return True
    return False
