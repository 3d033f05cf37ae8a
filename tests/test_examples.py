"""Kernels of users' kind in ``examples`` compile everywhere, and are right on the host."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import host_build
import numpy as np
import pytest
from example_references import REFERENCES
from host_build import CHECKED
from numpy.typing import NDArray
from pairwise import pairwise

from tuner.compiler import CompiledStage, Compiler
from tuner.config import KernelFile, load_kernel_file
from tuner.errors import CompilerUnavailableError
from tuner.model import Configuration, Plan
from tuner.problems import problem_for
from tuner.problems.base import agreement

FOLDER = Path(__file__).parents[1] / "examples"
KERNELS = {name: load_kernel_file(FOLDER / name / "kernel.toml") for name in REFERENCES}
ARCHITECTURES = (53, 72, 87, 90)  # Jetson TX1, Xavier, Orin, Hopper
FEW = 3  # problems of a batch on the host


def sample(kernel: KernelFile) -> list[Plan]:
    """Plans of the smallest problem: the default, and some that hold each value of each tunable."""
    sizes = kernel.workloads()[-1].sizes
    workload = kernel.workload(dict(sizes), min(FEW, kernel.workloads()[-1].batch))
    rows = [dict(configuration.items()) for configuration in kernel.space(workload)]
    default = dict(kernel.default(workload).items())
    chosen = pairwise(rows, first=[default], together=1)
    return [kernel.plan(workload, Configuration(list(row.items()))) for row in chosen]


def inputs_of(plan: Plan) -> dict[str, NDArray[Any]]:
    sizes = {**dict(plan.workload.sizes), "batch": plan.workload.batch}
    return problem_for(plan.problem).inputs(np, np.random.default_rng(0), plan.buffers, sizes)


def check_reference(name: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any], plan: Plan) -> None:
    """Hold outputs to NumPy's answer, within what the kernel file allows of two configurations."""
    right = REFERENCES[name](inputs)
    assert right.keys() == outputs.keys()
    for buffer, reference in right.items():
        scale = abs(reference).mean()
        allowed = (plan.problem.tolerance or 0.0) * scale
        error = abs(outputs[buffer] - reference).max()
        assert error <= allowed, f"{plan.label()}: {buffer} is {error:.2e} off, and {allowed:.2e} is allowed"


@pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("name", KERNELS)
def test_values_give_right_answers(name: str) -> None:
    """The default gives NumPy's answer, and each value of a tunable the default's, without races."""
    plans = sample(KERNELS[name])
    host_build.build_plans(plans, CHECKED)
    inputs = inputs_of(plans[0])
    problem = problem_for(plans[0].problem)
    sizes = {**dict(plans[0].workload.sizes), "batch": plans[0].workload.batch}
    reference = host_build.run_plan_on_host(plans[0], inputs, flags=CHECKED)
    check_reference(name, inputs, reference, plans[0])
    for plan in plans:
        outputs = host_build.run_plan_on_host(plan, inputs, flags=CHECKED, order="shuffle")
        deviations = [problem.compare(inputs, outputs, sizes)]
        if problem.needs_baseline:
            tolerance = plan.problem.tolerance
            deviations += [agreement(reference[name], outputs[name], tolerance, name) for name in reference]
        for deviation in deviations:
            assert deviation.ok, f"{plan.label()}: {deviation}"


@pytest.mark.parametrize("name", KERNELS)
def test_compiles_for_devices_old_and_new(name: str, cubins: Path) -> None:
    """The default and another configuration of the largest problem compile for every architecture."""
    kernel = KERNELS[name]
    workload = kernel.workloads()[0]
    space = list(kernel.space(workload))
    for place, architecture in enumerate(ARCHITECTURES):
        other = space[(2 * place + 1) * len(space) // (2 * len(ARCHITECTURES))]
        plans = [kernel.plan(workload, chosen) for chosen in (kernel.default(workload), other)]
        stages = [stage for plan in plans for stage in plan.stages if stage.min_architecture <= architecture]
        try:
            with Compiler(f"sm_{architecture}", cubins) as nvrtc:
                made = nvrtc.compile(stages)
        except CompilerUnavailableError as e:
            pytest.skip(str(e))
        failed = [str(result) for result in made if not isinstance(result, CompiledStage)]
        assert not failed, f"sm_{architecture}: {failed[0]}"
