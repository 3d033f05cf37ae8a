"""The FFT kernel: right on the host in every order of its threads, and lean as compiled."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import host_build
import numpy as np
import numpy.typing as npt
import pytest

from tuner.compiler import Compiled, Compiler
from tuner.config import KernelFile, load_kernel_file
from tuner.errors import CompilerUnavailableError
from tuner.model import Configuration, Plan, Workload
from tuner.problems import poison, problem_for

KERNEL = load_kernel_file(Path(__file__).parent.parent / "kernels" / "fft" / "kernel.toml")
SIZES = [int(N) for N in KERNEL.sizes["N"]]
Arrays = dict[str, npt.NDArray[Any]]
SAMPLE = 4
ROUNDING = 2**-24
SEED = 4

needs_compiler = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


def odd_batch(N: int) -> int:
    """One problem more than two blocks of any configuration hold."""
    return 2 * max(2 * N, 512) // N + 1


def sample(kernel: KernelFile, workload: Workload) -> list[Configuration]:
    """The default and seeded random configurations that together use every value the space has."""
    space = list(kernel.space(workload))
    drawn = np.random.default_rng(SEED).choice(len(space), SAMPLE, replace=False)
    chosen = [kernel.default(workload), *(space[i] for i in drawn)]
    unseen = {item for c in space for item in c.items()} - {item for c in chosen for item in c.items()}
    while unseen:
        best = max(space, key=lambda c: len(unseen & set(c.items())))
        chosen.append(best)
        unseen -= set(best.items())
    return list(dict.fromkeys(chosen))


def plans(N: int, batch: int) -> list[Plan]:
    workload = KERNEL.workload({"N": N}, batch)
    return [KERNEL.plan(workload, configuration) for configuration in sample(KERNEL, workload)]


def signals(plan: Plan, seed: int) -> Arrays:
    problem = problem_for(plan.problem)
    x = problem.inputs(np, np.random.default_rng(seed), plan.buffers, dict(plan.workload.sizes))["x"]
    x.flags.writeable = False
    y = np.empty_like(x)
    poison(y)
    return {"x": x, "y": y}


def relative_error(arrays: Arrays) -> Any:
    """Relative L2 error of each row."""
    reference = np.fft.fft(arrays["x"].astype(np.complex128), axis=1)
    return np.linalg.norm(arrays["y"] - reference, axis=1) / np.linalg.norm(reference, axis=1)


@needs_compiler
@pytest.mark.parametrize("N", SIZES)
def test_transforms_are_right_to_rounding(N: int) -> None:
    """A sample of the space answers within six roundings, in every order, also in blocks not filled."""
    chosen = plans(N, odd_batch(N))
    host_build.build_plans(chosen)
    for plan in chosen:
        arrays = signals(plan, N)
        for order in host_build.ORDERS:
            poison(arrays["y"])
            host_build.run_plan(plan, arrays, order=order, seed=N)
            assert relative_error(arrays).max() < 6 * ROUNDING, (plan.label(), order)


@needs_compiler
@pytest.mark.parametrize("N", [64, 512, 4096])
def test_answers_pass_the_checks_of_their_problem(N: int) -> None:
    """What the kernel computes is accepted by both checks of the problem its file names."""
    workload = KERNEL.workload({"N": N}, 5)
    plan = KERNEL.plan(workload, KERNEL.default(workload))
    arrays = signals(plan, 1)
    host_build.run_plan(plan, arrays)
    problem = problem_for(plan.problem)
    inputs, outputs = {"x": arrays["x"]}, {"y": arrays["y"]}
    assert problem.compare(inputs, outputs, {"N": N}).ok
    assert problem.residual(np, inputs, outputs, {"N": N}).ok


@needs_compiler
@pytest.mark.parametrize("N", [64, 512])
def test_single_problem_leaves_the_rest_of_its_block_alone(N: int) -> None:
    """A batch of one is transformed by blocks made for several, and nothing else is read or written."""
    for plan in plans(N, 1):
        arrays = signals(plan, 2)
        host_build.run_plan(plan, arrays, order="reverse")
        assert relative_error(arrays).max() < 6 * ROUNDING, plan.label()


@needs_compiler
@pytest.mark.parametrize("N", [64, 1024])
def test_problems_do_not_touch_each_other(N: int) -> None:
    """A problem full of NaN leaves its neighbours in the same warp and block right."""
    for plan in plans(N, odd_batch(N)):
        arrays = signals(plan, 3)
        arrays["x"].flags.writeable = True
        arrays["x"][2] = np.nan
        host_build.run_plan(plan, arrays, order="shuffle", seed=1)
        errors = relative_error(arrays)
        assert np.isnan(errors[2])
        assert np.delete(errors, 2).max() < 6 * ROUNDING, plan.label()


@pytest.mark.parametrize("N", SIZES)
def test_space_is_one_to_search(N: int) -> None:
    """Every size has 30 to 60 configurations, the default one of them."""
    workload = KERNEL.workload({"N": N})
    assert 30 <= len(KERNEL.space(workload)) <= 60
    assert KERNEL.default(workload) in KERNEL.space(workload)


@pytest.fixture(params=["sm_53", "sm_90"])
def compiler(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Compiler]:
    try:
        made = Compiler(request.param, tmp_path, jobs=2)
    except CompilerUnavailableError as e:
        pytest.skip(str(e))
    with made:
        yield made


@pytest.mark.parametrize("N", [64, 4096])
def test_compiled_kernels_are_lean(compiler: Compiler, N: int) -> None:
    """A sample compiles without spills, within 48 KiB of shared memory, near the declared resources."""
    chosen = plans(N, 1)
    for plan, result in zip(chosen, compiler.compile([plan.stages[0] for plan in chosen]), strict=True):
        assert isinstance(result, Compiled), result
        made, declared = result.resources, plan.stages[0].declared
        assert declared is not None
        assert (made.spill_bytes, made.local_bytes) == (0, 0), plan.label()
        assert made.static_shared_bytes <= min(48 * 1024, declared.static_shared_bytes * 1.125), plan.label()
        assert made.registers_per_thread <= declared.registers_per_thread * 1.35, plan.label()
