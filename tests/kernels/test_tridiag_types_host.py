"""The tridiagonal kernels in double and complex numbers: as right as in float32, and lean as compiled."""

from collections.abc import Iterator
from pathlib import Path

import host_build
import numpy as np
import pytest
from tridiagonal_resources import check_resources
from tridiagonal_systems import BATCH, KERNELS, System, dominant, error, plans_of_type, solved, thomas

from tuner.kernel_files.kernel_file import KernelFile

WIDE = ("float64", "complex64")
ROUNDING = {"float64": 2**-53, "complex64": 2**-24}
SMALLEST = {"float64": 1e-300, "complex64": 1e-36}

every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=list(KERNELS))
needs_compiler = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


def magnitudes(system: System, dtype: str) -> Iterator[System]:
    """The system as it is, with its rows, and with its right side, near both ends of the range."""
    yield system
    for factor in (SMALLEST[dtype], 1 / SMALLEST[dtype]):
        yield {name: (array * factor).astype(dtype) for name, array in system.items()}
        yield {**system, "d": (system["d"] * factor).astype(dtype)}


@needs_compiler
@every_kernel
@pytest.mark.parametrize("dtype", WIDE)
def test_wide_numbers_are_solved_to_rounding(kernel: KernelFile, dtype: str) -> None:
    """At a margin of 0.05 and of any magnitude, double and complex systems err by 16 roundings of max |x|."""
    for n in (97, 1000):
        for k, plan in enumerate(plans_of_type(kernel, n, dtype)):
            for system in magnitudes(dominant(BATCH, n, dtype=dtype), dtype):
                x = solved(plan, system, host_build.ORDERS[k % len(host_build.ORDERS)])
                assert error(x, thomas(system)) <= 16 * ROUNDING[dtype], plan.label()


@needs_compiler
@every_kernel
@pytest.mark.parametrize("dtype", WIDE)
def test_a_broken_wide_system_changes_no_other(kernel: KernelFile, dtype: str) -> None:
    """A zero pivot, NaN and infinity stay in their system."""
    system = dominant(BATCH, 97, dtype=dtype)
    for plan in plans_of_type(kernel, 97, dtype):
        before = solved(plan, system)
        for name, value in (("b", 0), ("d", np.nan), ("a", np.inf)):
            broken = {key: array.copy() for key, array in system.items()}
            broken[name][1] = value
            after = solved(plan, broken)
            np.testing.assert_array_equal(
                np.delete(after, 1, axis=0), np.delete(before, 1, axis=0), plan.label()
            )


@every_kernel
@pytest.mark.parametrize(("architecture", "longest"), [("sm_53", 2048), ("sm_90", 4096)])
def test_wide_defaults_compile_lean(
    kernel: KernelFile, architecture: str, longest: int, cubins: Path
) -> None:
    """Defaults of double and complex numbers spill nothing, and take about what the kernel file declares.

    The rows of a longer system are as many as the registers of compute capability 5.3.
    """
    workloads = [kernel.workload({"N": n, "dtype": dtype}) for dtype in WIDE for n in (64, 1001, longest)]
    stages = [kernel.plan(workload, kernel.default(workload)).stages[0] for workload in workloads]
    check_resources(stages, architecture, cubins)
