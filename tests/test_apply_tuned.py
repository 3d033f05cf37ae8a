"""``tuner.apply`` of files, of kernels of programs and of results: what was tuned is what is launched."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_apply import Bench, FakeCompiler, fake_bench
from fake_cupy import DeviceArray, Kernel

import tuner
from tuner.model.errors import InputError
from tuner.python.result import Result

SOURCE = """extern "C" __global__ void scale(const float* x, float* y, int n) {
  int i = blockIdx.x * WIDTH + threadIdx.x;
  if (i < n) y[i] = 2.0f * x[i];
}
"""
FILE = """[kernel]
source = "scale.cu"
[problem]
sizes.N = [256, 512]
[problem.reference]
y = "2 * x"
[arguments]
x = "in float32[N]"
y = "out float32[N]"
n = "int32 = N"
[tunables]
WIDTH = [32, 64, 128]
[default]
WIDTH = 32
[launch]
grid = "ceil_div(N, WIDTH)"
block = "WIDTH"
"""


def scale(x: DeviceArray, y: DeviceArray, n: int) -> None:
    assert n == x.size
    y[...] = 2 * x


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    made = fake_bench(monkeypatch, tmp_path)
    made.cp.kernels["scale"] = Kernel(scale, 1e-3)
    return made


def program() -> tuner.Kernel:
    x = np.arange(256, dtype=np.float32)
    return tuner.Kernel(
        SOURCE,
        arguments=[x, np.zeros_like(x), 256],
        outputs=["y"],
        grid="ceil_div(n, WIDTH)",
        block="WIDTH",
        tunables={"WIDTH": [32, 64, 128]},
        default={"WIDTH": 128},
    )


def tuned(what: Any, tmp_path: Path, **options: Any) -> Result:
    return tuner.tune(what, device="sim:h200", database=tmp_path / "runs.db", progress=False, **options)


def is_double(y: Any, x: DeviceArray) -> bool:
    return bool(np.array_equal(y, 2 * x))


def test_a_result_launches_its_answer(bench: Bench, tmp_path: Path) -> None:
    """Called, applied and planned it runs the configuration that was found, whatever is stored."""
    result, x = tuned(program(), tmp_path), bench.array(256)
    assert result.best["WIDTH"] != 128
    for y in (result.kernel(x), tuner.apply(result, x), tuner.plan(result, x)()):
        assert is_double(y, x)
    assert dict(tuner.chosen(result, x).configuration) == result.best
    assert dict(tuner.chosen(result, x, configuration={"WIDTH": 64}).configuration) == {"WIDTH": 64}
    assert FakeCompiler.compiled == ["scale"]
    y = bench.array(256)
    assert result.kernel(x, out=y) is y


def test_a_program_is_launched_by_the_answers_to_it(bench: Bench, tmp_path: Path) -> None:
    """The kernel without its data has the fingerprint of its runs; other shapes are refused."""
    kernel, x = program(), bench.array(256)
    result = tuned(kernel, tmp_path)
    assert kernel.applicable().file.fingerprint == result.document["sources"]["scale"]
    assert is_double(tuner.apply(kernel, x, configuration="default"), x)
    for call in (tuner.apply, tuner.plan, tuner.chosen):
        with pytest.raises(InputError, match=r"x has shape \(64,\); .* it must be \(256,\)"):
            call(kernel, bench.array(64), configuration="default")


def test_a_file_is_launched_at_any_of_its_sizes(bench: Bench, tmp_path: Path) -> None:
    """By its path, and by the result of tuning it, from its document too."""
    path = tmp_path / "scale.toml"
    (tmp_path / "scale.cu").write_text(SOURCE)
    path.write_text(FILE)
    result = tuned("scale:N=256", tmp_path, kernel_files=[path])
    read = Result(json.loads(json.dumps(result.document)))
    for n in (256, 512):
        x = bench.array(n)
        for what in (path, str(path), result, read):
            assert is_double(tuner.apply(what, x, configuration=None if what is read else {"WIDTH": 64}), x)
        assert dict(tuner.chosen(read, x).configuration) == result.best

    path.write_text(FILE.replace('"2 * x"', '"2.0 * x"'))
    with pytest.raises(InputError, match=r"scale: has changed since it was tuned \(.*scale.toml\)"):
        tuner.apply(Result(result.document), x)
    path.unlink()
    with pytest.raises(InputError, match=r"scale: .*the file of run 1, .*scale.toml, is gone"):
        tuner.apply(Result(result.document), x)


@pytest.mark.parametrize("what", [3, None, tuner.Kernel, ["scale"]])
def test_what_is_no_kernel_is_refused(bench: Bench, what: Any) -> None:
    """The message says what would be one."""
    with pytest.raises(InputError, match=r"it must be the name of a kernel, a kernel file, a tuner\.Kernel"):
        tuner.apply(what, bench.array(256))


def test_a_result_without_one_answer_is_refused(bench: Bench, tmp_path: Path) -> None:
    """Of several workloads; and of a program that is not this one."""
    pair = tuned(["scan-lf:N=4", "fft:N=4"], tmp_path, budget=1)
    with pytest.raises(InputError, match="2 workloads were tuned"):
        tuner.apply(pair, bench.array(4))
    alone = tuned(program(), tmp_path, budget=1)
    with pytest.raises(InputError, match="as it came from a Python program"):
        tuner.apply(Result(alone.document), bench.array(256))
