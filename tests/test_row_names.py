"""Kernel files whose arrays have rows that lie apart: the names of expressions, and what is refused."""

import re
from pathlib import Path

import host_build
import numpy as np
import pytest

from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import InputError, KernelFileError
from tuner.model.plan import DENSE, RowLayout, StructValue

SCALE = """
[kernel]
name = "scale"
source = "scale.cu"
headers = ["catalogue:common"]
entry = "scale<{N}, {row_align}, {in_place}>"
[problem]
name = "unchecked"
batch = 4
[problem.sizes]
N = { from = 1, to = 64 }
[[argument]]
buffer = "x"
dtype = "float32"
shape = ["batch", "N"]
role = "in"
row_pitch = true
[[argument]]
buffer = "y"
dtype = "float32"
shape = ["batch", "N"]
role = "out"
row_pitch = true
in_place = "x"
[[argument]]
scalar = "layout"
fields = { x = "int64 = x_pitch", y = "int64 = y_pitch" }
[tunables]
P = [1, 2]
[constraints]
rules = ["P == 1 or row_align % 2 == 0"]
[launch]
grid = "batch"
block = "N"
"""

SOURCE = """
#include "row_layout.cuh"
template <int N, int aligned, bool in_place>
__global__ void scale(const float* __restrict__ x, float* __restrict__ y,
                      RowLayout<2, aligned, in_place> layout) {
    const float* const from = layout.source(x, y) + blockIdx.x * layout.pitch_of(0, N);
    y[blockIdx.x * layout.pitch_of(1, N) + threadIdx.x] = 2 * from[threadIdx.x];
}
"""


def kernel_of(folder: Path, text: str = SCALE) -> KernelFile:
    (folder / "scale.cu").write_text(SOURCE)
    (folder / "scale.toml").write_text(text)
    return load_kernel_file(folder / "scale.toml")


@pytest.mark.parametrize(
    ("layout", "entry", "pitches"),
    [
        (DENSE, "scale<12, 0, false>", [12, 12]),
        (RowLayout((("x", 16),)), "scale<12, 4, false>", [16, 12]),
        (RowLayout((("x", 64), ("y", 32))), "scale<12, 16, false>", [64, 32]),
        (RowLayout((("x", 0), ("y", 13))), "scale<12, 1, false>", [0, 13]),
        (RowLayout(in_place=True), "scale<12, 0, true>", [12, 12]),
        (RowLayout((("x", 14), ("y", 14)), in_place=True), "scale<12, 2, true>", [14, 14]),
    ],
)
def test_names_of_rows(tmp_path: Path, layout: RowLayout, entry: str, pitches: list[int]) -> None:
    """Pitches of contiguous arrays are the length of a row, and what divides all of them is the alignment."""
    kernel = kernel_of(tmp_path)
    workload = kernel.workload({"N": 12})
    (stage,) = kernel.plan(workload, kernel.default(workload), layout).stages
    struct = stage.arguments[-1]
    assert isinstance(struct, StructValue)
    assert (stage.entry, np.frombuffer(struct.bytes, np.int64).tolist()) == (entry, pitches)


def test_rules_of_rows(tmp_path: Path) -> None:
    """Rules hold for contiguous arrays in a space, and are asked again for others."""
    kernel = kernel_of(tmp_path)
    workload = kernel.workload({"N": 12})
    assert [one["P"] for one in kernel.space(workload)] == [1, 2]
    wide = kernel.space(workload)[1]
    assert kernel.broken_rule(workload, wide) is None
    assert kernel.broken_rule(workload, wide, RowLayout((("x", 16),))) is None
    assert kernel.broken_rule(workload, wide, RowLayout((("x", 15),))) == "P == 1 or row_align % 2 == 0"


@pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")
def test_a_kernel_with_row_layout(tmp_path: Path) -> None:
    """A user's kernel reads and writes rows where its layout says."""
    kernel = kernel_of(tmp_path)
    workload = kernel.workload({"N": 12})
    plan = kernel.plan(workload, kernel.default(workload), RowLayout((("x", 16), ("y", 13))))
    memory = {"x": np.arange(60, dtype=np.float32), "y": np.full(51, -1, np.float32)}
    host_build.run_plan(plan, memory)
    right = np.full((4, 13), -1, np.float32)
    right[:, :12] = 2 * np.arange(64, dtype=np.float32).reshape(4, 16)[:, :12]
    assert np.array_equal(memory["y"], right.reshape(-1)[:51])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('in_place = "x"', 'in_place = "z"'), "in_place: no in array is called 'z'; choose from x"),
        (('in_place = "x"', 'in_place = "y"'), "in_place: no in array is called 'y'; choose from x"),
        (('role = "in"\n', 'role = "in"\nin_place = "y"\n'), "only an out array takes the place of another"),
        (('dtype = "float32"', 'dtype = "float64"'), "in_place: x has another type or shape"),
        (
            ('shape = ["batch", "N"]', 'shape = ["batch"]'),
            'row_pitch: x needs a shape of rows, as ["batch", "N"]',
        ),
        (('shape = ["batch", "N"]', 'shape = ["N", "N"]'), "row_pitch: x needs a shape of rows"),
        (
            ('shape = ["batch", "N"]', 'shape = ["batch", "N * P"]'),
            "row_pitch: the length of a row depends on P; sizes alone may decide it",
        ),
        (("P = [1, 2]", "x_pitch = [1, 2]"), "x_pitch: the name is taken by [tunables]; choose another"),
    ],
)
def test_what_kernel_files_cannot_say(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    """A row pitch needs rows, and an output that takes the place of an input needs one that is alike."""
    with pytest.raises(KernelFileError, match=re.escape(words)):
        kernel_of(tmp_path, SCALE.replace(*change, 1))


def test_layouts_that_a_kernel_does_not_take(tmp_path: Path) -> None:
    """Rows that lie apart, and runs in place, need a kernel file that declares them."""
    kernel = kernel_of(
        tmp_path,
        SCALE.replace('row_pitch = true\nin_place = "x"\n', "")
        .replace("{row_align}, {in_place}", "{row_align}, false")
        .replace("y_pitch", "N"),
    )
    workload = kernel.workload({"N": 12})
    default = kernel.default(workload)
    with pytest.raises(InputError, match="rows of y must follow each other"):
        kernel.plan(workload, default, RowLayout((("y", 13),)))
    with pytest.raises(InputError, match="outputs must be arrays of their own"):
        kernel.plan(workload, default, RowLayout(in_place=True))
