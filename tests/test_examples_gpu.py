"""Each value of each tunable of the examples on a real GPU, held to the reference of its kernel file."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pairwise import pairwise

from tuner.devices.cuda.device import CudaDevice
from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.plan import Configuration, Plan
from tuner.model.trial import Status

pytestmark = pytest.mark.gpu

FOLDER = Path(__file__).parents[1] / "examples"
NAMES = sorted(path.parent.name for path in FOLDER.glob("*/kernel.toml"))
SEED = 0


@pytest.fixture(scope="module")
def device() -> Iterator[CudaDevice]:
    gpu = CudaDevice(0)
    yield gpu
    gpu.close()


def sample(kernel: KernelFile, more: dict[str, int | str]) -> list[Plan]:
    workload = kernel.workload({"N": kernel.sizes["N"][1]} | more)
    rows = [dict(configuration.items()) for configuration in kernel.space(workload)]
    chosen = pairwise(rows, first=[dict(kernel.default(workload).items())], together=1)
    return [kernel.plan(workload, Configuration(list(row.items()))) for row in chosen]


@pytest.mark.parametrize("name", [*NAMES, "matmul,float16"])
def test_values_answer_rightly(name: str, device: CudaDevice) -> None:
    """The default agrees with the reference, and every value of a tunable does, too."""
    folder, _, dtype = name.partition(",")
    kernel = load_kernel_file(FOLDER / folder / "kernel.toml")
    plans = sample(kernel, {"dtype": dtype} if dtype else {})
    device.prepare(plans[0], SEED)
    for plan in plans:
        check = device.check(plan, SEED)
        assert check.status is Status.OK, f"{plan.label()}: {check.detail}"
