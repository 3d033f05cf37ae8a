"""Kernels of Triton on a real GPU: the same bits as by Triton's own launcher, for each specialisation."""

import importlib.util
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.devices.cuda.device import CudaDevice
from tuner.kernel_files.catalog import load_kernel_file
from tuner.model.plan import Configuration
from tuner.model.trial import Status
from tuner.python.kernel import Kernel

pytestmark = [pytest.mark.gpu, pytest.mark.triton]

DATA = Path(__file__).parent / "data/triton/kernels.py"
EXAMPLES = Path(__file__).parents[1] / "examples"
EXACT = 1e-30  # relative: no two numbers that differ are so close


@pytest.fixture(scope="module")
def kernels() -> Any:
    spec = importlib.util.spec_from_file_location("triton_kernels_of_tests", DATA)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def random(*shape: int, dtype: str = "float32") -> Any:
    import torch  # noqa: PLC0415 - of the marker

    generator = torch.Generator(device="cuda").manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, device="cuda").to(getattr(torch, dtype))


def zeros(*shape: int, dtype: str = "float32") -> Any:
    import torch  # noqa: PLC0415

    return torch.zeros(shape, device="cuda", dtype=getattr(torch, dtype))


def sums(n: int, scale: float, negate: bool, offset: int = 0) -> dict[str, Any]:
    x, y = random(n + offset)[offset:], random(n + 4)[4:]
    return {"out": zeros(n), "x": x, "y": y, "n": n, "scale": scale, "negate": negate}


def rows_of(count: int, cols: int) -> dict[str, Any]:
    return {"out": zeros(count, cols), "inp": random(count, cols), "cols": cols}


def product(m: int, n: int, k: int) -> dict[str, Any]:
    a, b = random(m, k, dtype="float16"), random(k, n, dtype="float16")
    return {"c": zeros(m, n, dtype="float16"), "a": a, "b": b, "M": m, "N": n, "K": k}


def tiles(n: int) -> dict[str, Any]:
    return {name: value for name, value in product(n, n, n).items() if name not in ("M", "K")}


def normed(count: int, cols: int, bias: bool) -> dict[str, Any]:
    given = {"out": zeros(count, cols), "inp": random(count, cols), "weight": random(cols)}
    return given | {"bias": random(cols, 1)[:, 0].contiguous() if bias else None, "cols": cols, "eps": 1e-6}


def counted(n: int) -> dict[str, Any]:
    import torch  # noqa: PLC0415

    values = (random(n).abs() * 20).to(torch.int32).clamp(max=63)
    return {"counts": zeros(64, dtype="int32"), "values": values, "n": n}


BLOCKS = {"BLOCK": [256, 1024], "num_warps": [1, 4, 8]}
CASES: dict[str, tuple[str, Any, Any, Mapping[str, list[Any]], list[str]]] = {
    **{
        f"sum of {n}, {scale}, {negate}": (
            *("scaled_sum", lambda n=n, scale=scale, negate=negate: sums(n, scale, negate)),
            *(lambda meta: ((meta["n"] + meta["BLOCK"] - 1) // meta["BLOCK"],), BLOCKS, ["out"]),
        )
        for n, scale, negate in ((1, 1.0, True), (16, 0.5, False), (1000, 16.0, True), (4097, -3.25, False))
    },
    **{
        f"softmax of {cols}": (
            *("softmax", lambda cols=cols: rows_of(33, cols), lambda _: (33,)),
            *({"BLOCK": [1024, 2048], "num_warps": [2, 8], "num_stages": [1, 3]}, ["out"]),
        )
        for cols in (1, 1000, 1024)
    },
    **{
        f"product of {m} x {n} x {k}": (
            *("matmul", lambda m=m, n=n, k=k: product(m, n, k)),
            lambda meta: (-(-meta["M"] // meta["TILE_M"]), -(-meta["N"] // meta["TILE_N"])),
            {
                "TILE_M": [64, 128],
                "TILE_N": [64],
                "TILE_K": [32],
                "num_warps": [4],
                "num_stages": [2, 4],
                "num_ctas": [1],
            },
            ["c"],
        )
        for m, n, k in ((256, 256, 256), (130, 70, 33))
    },
    **{
        f"norm of {cols}{' with a bias' * bias}": (
            *("rms_norm", lambda cols=cols, bias=bias: normed(17, cols, bias), lambda _: (17,)),
            *({"BLOCK": [256, 1024], "num_warps": [4]}, ["out"]),
        )
        for cols, bias in ((1000, True), (4096, False))
    },
    "histogram": (
        *("histogram", lambda: counted(10_000), lambda meta: (-(-meta["n"] // meta["BLOCK"]),)),
        *({"BLOCK": [256], "num_warps": [1, 4], "maxnreg": [0, 32]}, []),
    ),
    "descriptors in scratch memory": (
        "gathered_rows",
        lambda: {"out": zeros(64, 128), "table": random(64, 128), "rows": 3, "ROWS": 64, "COLS": 128},
        *(lambda _: (4,), {"num_warps": [4]}, ["out"]),
    ),
    "warps that load for others": (
        *("warps_apart", lambda: tiles(128)),
        *(lambda meta: (128 // meta["BLOCK"],), {"BLOCK": [64, 128], "num_warps": [4]}, ["c"]),
    ),
    "constants alone": (
        "unmarked",
        lambda: {"out": zeros(64, dtype="int32")},
        lambda _: (1,),
        {"BLOCK": [32, 64]},
        [],
    ),
}


def by_triton(function: Any, given: dict[str, Any], grid: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Copies of the arrays after a launch by Triton."""
    import torch  # noqa: PLC0415
    import triton  # noqa: PLC0415

    triton.set_allocator(lambda size, _align, _stream: torch.empty(size, device="cuda", dtype=torch.int8))
    copies = {name: value.clone() if hasattr(value, "clone") else value for name, value in given.items()}
    options = {name: value for name, value in values.items() if (name, value) != ("maxnreg", 0)}
    function[grid({**given, **values})](**copies, **options, enable_fp_fusion=True)
    torch.cuda.synchronize()
    return copies


def made(
    function: Any,
    given: dict[str, Any],
    grid: Any,
    values: Mapping[str, Any],
    outputs: list[str],
    **more: Any,
) -> Kernel:
    return Kernel(
        function,
        arguments=given,
        grid=grid,
        tunables={key: [value] for key, value in values.items()},
        outputs=outputs,
        tolerance=EXACT,
        **more,
    )


def status(device: CudaDevice, kernel: Kernel, folder: Path, values: Mapping[str, Any]) -> tuple[Status, str]:
    file = kernel.kernel_file(folder)
    (workload,) = file.workloads()
    plan = file.plan(workload, Configuration(values))
    device.prepare(plan, 0)
    check = device.check(plan, 0)
    return check.status, check.detail


@pytest.mark.parametrize("case", sorted(CASES))
def test_the_bits_are_those_of_tritons_launcher(
    case: str, device: CudaDevice, kernels: Any, tmp_path: Path
) -> None:
    """Each configuration writes what Triton's own launcher writes for the same arrays."""
    name, arguments, grid, tunables, outputs = CASES[case]
    function = getattr(kernels, name)
    for number, combination in enumerate(itertools.product(*tunables.values())):
        values = dict(zip(tunables, combination, strict=True))
        given = arguments()
        right = by_triton(function, given, grid, values)
        written = outputs or made(function, given, grid, values, outputs).outputs
        kernel = made(
            *(function, given, grid, values, outputs),
            reference={key: right[key].cpu().numpy() for key in written},
        )
        folder = tmp_path / str(number)
        folder.mkdir()
        found, detail = status(device, kernel, folder, values)
        assert found is Status.OK, (values, detail)


def test_one_bit_is_seen(device: CudaDevice, kernels: Any, tmp_path: Path) -> None:
    """The comparison above tells numbers apart that differ in their last bit."""
    given, values = sums(1000, 0.5, negate=False), {"BLOCK": 256, "num_warps": 4}
    right = by_triton(kernels.scaled_sum, given, lambda _: (4,), values)["out"].cpu().numpy()
    right[999] = np.nextafter(right[999], np.float32(100))
    kernel = made(kernels.scaled_sum, given, 4, values, ["out"], reference=right)

    assert status(device, kernel, tmp_path, values)[0] is Status.WRONG_ANSWER


@pytest.mark.parametrize("name", ["attention", "fused_moe", "matmul", "rms-norm", "softmax"])
def test_examples_answer_rightly(name: str, device: CudaDevice) -> None:
    """All configurations of the examples at their smallest size agree with their references."""
    kernel = load_kernel_file(EXAMPLES / f"triton/{name}.toml")
    workload = kernel.workload({size: values[-1] for size, values in kernel.sizes.items()})
    default = kernel.plan(workload, kernel.default(workload))
    device.prepare(default, 0)
    tried = 0
    for configuration in itertools.islice(kernel.space(workload), 0, None, 7):
        plan = kernel.plan(workload, configuration)
        check = device.check(plan, 0)
        assert check.status in {Status.OK, Status.COMPILE_ERROR, Status.LAUNCH_ERROR}, check.detail
        tried += check.status is Status.OK
    assert tried
