"""Kernels to apply to arrays of a fake CuPy, on two fake GPUs, with an empty database."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cuda import LIMITS
from fake_cupy import DeviceArray, FakeCupy, Kernel

from tuner.application.calls import Application, ApplicationCall
from tuner.application.choice import Chosen
from tuner.compiler import CompiledStage
from tuner.config.catalog import Catalog
from tuner.devices.cuda import code, probe
from tuner.errors import CompileError
from tuner.model import DeviceIdentity, Resources, Stage

GPU = DeviceIdentity("cuda:0", "Fake GPU", "GPU-0", "580.1", "12.9", modelled=False)

SUMS = """
[kernel]
name = "sums"
source = "k.cu"
entry = "sums<{form}>"
[problem]
name = "scan"
batch = "2**20 // N"
optional = ["form", "dtype"]
[problem.sizes]
N = { from = 2, to = 4096 }
form = ["inclusive", "exclusive"]
dtype = ["float32", "float64", "int32"]
[[argument]]
buffer = "x"
dtype = "{dtype}"
shape = ["batch", "N"]
role = "in"
[[argument]]
buffer = "y"
dtype = "{dtype}"
shape = ["batch", "N"]
role = "out"
[[argument]]
buffer = "counters"
dtype = "int32"
shape = ["batch", 2]
role = "zeroed"
[[argument]]
scalar = "exclusive"
dtype = "int32"
value = "select(form == 'exclusive', 1, 0)"
[tunables]
P = [1, 2, 4, 8]
L = [32, 64]
[constraints]
rules = ["P <= N"]
[default]
P = 2
L = 64
[launch]
grid = "ceil_div(batch * N, P * L)"
block = "L"
[work]
bytes = "8 * N * batch"
operations = "N * batch"
"""

BLEND = """
[kernel]
name = "blend"
source = "k.cu"
entry = "blend"
[problem]
name = "consistent"
batch = "16"
[problem.sizes]
N = [4, 8]
[[argument]]
buffer = "a"
dtype = "float32"
shape = ["batch", "2 * N"]
role = "in"
[[argument]]
buffer = "weights"
dtype = "float32"
shape = ["N"]
role = "in"
[[argument]]
buffer = "total"
dtype = "float32"
shape = ["batch", "N"]
role = "inout"
[[argument]]
buffer = "left"
dtype = "float32"
shape = ["batch", "N"]
role = "out"
[[argument]]
buffer = "right"
dtype = "float32"
shape = ["batch", "N"]
role = "out"
[tunables]
P = [1, 2]
[launch]
grid = "batch"
block = "N"
[work]
bytes = "N"
operations = "N"
"""

PAIR = (
    SUMS.replace('"sums"', '"pair"')
    .replace('"scan"', '"consistent"')
    .replace('buffer = "x"', 'buffer = "a"')
    .replace(
        '[[argument]]\nbuffer = "y"',
        '''[[argument]]
buffer = "b"
dtype = "{dtype}"
shape = ["batch", "N"]
role = "in"
[[argument]]
buffer = "y"''',
    )
)


def sums(x: DeviceArray, y: DeviceArray, counters: DeviceArray, exclusive: int) -> None:
    assert counters.sum() == 0
    counters += 1
    y[...] = np.cumsum(x, axis=-1) - (x if exclusive else 0)


def blend(
    a: DeviceArray, weights: DeviceArray, total: DeviceArray, left: DeviceArray, right: DeviceArray
) -> None:
    left[...], right[...] = np.split(a, 2, axis=-1)
    total += weights * (left + right)


class FakeCompiler:
    """Compiles an entry to a kernel of its name, whatever its template arguments; keeps what it compiled."""

    nvrtc_version = GPU.runtime
    compiled: list[str]

    def __init__(self, architecture: str) -> None:
        assert architecture == LIMITS.architecture

    def __enter__(self) -> "FakeCompiler":  # noqa: PYI034 - typing.Self needs Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def compile(self, stages: Sequence[Stage]) -> list[CompiledStage | CompileError]:
        FakeCompiler.compiled += [stage.entry for stage in stages]
        return [
            CompiledStage(b"cubin", stage.entry.split("<")[0], Resources(32, architecture="sm_90"), "")
            for stage in stages
        ]


class Bench:
    """An application over a fake CuPy, called as ``tuner.apply`` and ``tuner.chosen`` are."""

    def __init__(self, cp: FakeCupy, folder: Path) -> None:
        self.cp = cp
        self.database = folder / "tuner.db"
        self.catalog = Catalog.load(search_path=[folder])
        self.application = Application(self.catalog, self.database)

    def apply(
        self,
        kernel: str,
        *arrays: Any,
        out: Any = None,
        stream: Any = None,
        configuration: Any = None,
        **sizes: Any,
    ) -> Any:
        return self.application.apply(ApplicationCall(kernel, arrays, configuration, sizes), out, stream)

    def chosen(self, kernel: str, *arrays: Any, configuration: Any = None, **sizes: Any) -> Chosen:
        return self.application.chosen(ApplicationCall(kernel, arrays, configuration, sizes))

    def array(self, *shape: int, dtype: str = "float32") -> DeviceArray:
        made = self.cp.empty(shape, dtype)
        made[...] = np.arange(made.size).reshape(shape) % 7
        return made


def fake_bench(patch: pytest.MonkeyPatch, folder: Path) -> Bench:
    cp = FakeCupy({"sums": Kernel(sums, 1e-3), "blend": Kernel(blend, 1e-3)})
    FakeCompiler.compiled = []
    patch.setattr(code, "Compiler", FakeCompiler)
    patch.setattr(probe, "import_cupy", lambda _: cp)
    patch.setattr(probe, "gpu_limits", lambda *_: LIMITS)
    patch.setattr(probe, "gpu_name", lambda *_: GPU.name)
    patch.setattr(probe, "gpu_uuid", lambda index: replace(GPU, uuid=f"GPU-{index}").uuid)
    patch.setattr(probe, "driver_version", lambda _: GPU.driver)
    (folder / "k.cu").write_text("")
    (folder / "sums.toml").write_text(SUMS)
    (folder / "blend.toml").write_text(BLEND)
    (folder / "pair.toml").write_text(PAIR)
    return Bench(cp, folder)
