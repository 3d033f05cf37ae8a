"""Kernel files: tunables with a condition, launches of some devices, and rows that lie apart."""

import re
from pathlib import Path
from typing import Any

import host_build
import numpy as np
import pytest
from click.testing import CliRunner
from kernel_texts import Load, loader, text_of

from tuner.cli.main import main
from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import ExpressionError, InputError, KernelFileError, UnknownNameError
from tuner.model.expressions.callables import Expression
from tuner.model.plan import DENSE, Configuration, Plan, RowLayout, Stage, StructValue, TensorMap

TEXT = text_of("forms")


@pytest.fixture
def load(tmp_path: Path) -> Load:
    return loader("forms", tmp_path)


def replaced(old: str, new: str) -> str:
    assert TEXT.count(old) == 1, old
    return TEXT.replace(old, new)


DEFAULT = "ring = 8\n"
WITH_LAG = replaced(DEFAULT, "ring = 8\nlag = 2\n")


def test_a_configuration_has_the_tunables_whose_conditions_are_true(load: Load) -> None:
    """Others are not in it; rules of a variant hold in it alone."""
    kernel = load(WITH_LAG)
    small, large = kernel.workloads()
    names = {" ".join(configuration) for configuration in kernel.space(large)}
    assert names == {"form P L", "form P L ring", "form P L ring lag", "form P"}
    assert {str(c["form"]) for c in kernel.space(small)} == {"plain", "cluster"}
    assert all(c["P"] in (1, 2) for c in kernel.space(large) if c["form"] == "cluster"), "L stands for 32 * P"
    assert kernel.conditions == {
        "L": "form != 'cluster'",
        "ring": "form == 'ring'",
        "lag": "(form == 'ring') and (ring == 8)",
    }
    assert kernel.rules == (
        "L * P <= 128",
        "slots > P (where form == 'ring')",
        "large (where form == 'ring')",
    )


def test_what_expressions_see(load: Load) -> None:
    """Otherwise stands for a tunable without a value; branches not taken are not looked at."""
    kernel = load(WITH_LAG)
    workload = kernel.workloads()[1]

    def launched(**values: Any) -> list[tuple[str, int]]:
        plan = kernel.plan(workload, Configuration(values))
        return [(stage.entry, stage.block[0]) for stage in plan.stages]

    cluster = Configuration([("form", "cluster"), ("P", 2)])
    assert launched(form="ring", P=1, L=64, ring=8, lag=2) == [("ring<16, 2>", 64), ("tail", 64)]
    assert launched(form="ring", P=1, L=64, ring=4) == [("ring<8, 0>", 64)]
    assert launched(form="cluster", P=2) == [("others<2>", 64)]
    assert [b.name for b in kernel.plan(workload, cluster).buffers] == ["x"]


def test_the_default_follows_the_conditions(load: Load) -> None:
    """Of tunables with a condition it takes the values where they have one, and asks for those it lacks."""
    kernel = load(WITH_LAG)
    small, large = kernel.workloads()
    assert dict(kernel.default(small)) == {"form": "plain", "P": 2, "L": 32}
    assert dict(kernel.default(large)) == {"form": "ring", "P": 2, "L": 32, "ring": 8, "lag": 2}
    kernel = load(TEXT)
    assert dict(kernel.default(small)) == {"form": "plain", "P": 2, "L": 32}
    with pytest.raises(KernelFileError) as error:
        kernel.default(large)
    assert f"{kernel.path}: [default]: a value is missing for lag, whose condition" in str(error.value)
    assert "\"(form == 'ring') and (ring == 8)\" is true at forms:N=4096" in str(error.value)


def test_a_callers_values(load: Load) -> None:
    """Values of tunables that have none are left out; one that is missing is named with its condition."""
    kernel = load(WITH_LAG)
    workload = kernel.workloads()[1]
    given: dict[str, Any] = {"form": "ring", "P": 1, "L": 32, "ring": 4}
    assert dict(kernel.configuration(workload, {**given, "lag": 7})) == given
    assert dict(kernel.configuration(workload, {"form": "cluster", "P": 1})) == {"form": "cluster", "P": 1}
    refused: list[tuple[dict[str, Any], str]] = [
        ({"form": "ring"}, "configuration: P missing; it names all of form, P"),
        (
            {"form": "plain", "P": 1},
            "L missing; with form=plain P=1 its condition \"form != 'cluster'\" is true",
        ),
        ({**given, "ring": 5}, "configuration: ring is 5; choose from 4, 8"),
        ({**given, "ring": 8}, "lag missing; with form=ring P=1 L=32 ring=8 its condition"),
        ({"form": "plain", "P": 4, "L": 64}, "breaks the rule 'L * P <= 128' at forms:N=4096"),
    ]
    for values, trouble in refused:
        with pytest.raises(InputError) as error:
            kernel.configuration(workload, values)
        assert trouble in str(error.value)
        assert kernel.allowed(workload, values) is None
    with pytest.raises(UnknownNameError, match=r"no tunable 'rin'; .* did you mean 'ring'"):
        kernel.configuration(workload, {**given, "rin": 5})


def test_a_default_against_a_variants_rule(load: Load) -> None:
    """The rule is quoted with the condition under which it holds."""
    kernel = load(WITH_LAG.replace('"slots > P", "large"', '"slots > 8 * P"'))
    with pytest.raises(KernelFileError) as error:
        kernel.default(kernel.workloads()[1])
    assert "[default]: form=ring P=2 L=32 ring=8 lag=2 breaks the rule" in str(error.value)
    assert "slots > 8 * P (where form == 'ring')" in str(error.value)


def test_check_tells_a_tunable_that_never_has_a_value(load: Load) -> None:
    """Rules and sizes may keep a condition from ever being true; a well-formed file passes."""
    path = str(load(WITH_LAG).path)
    passed = CliRunner().invoke(main, ["kernels", "check", path, "--no-compile"])
    assert passed.exit_code == 0, passed.output
    load(WITH_LAG.replace("N = [64, 4096]", "N = [64]"))
    failed = CliRunner().invoke(main, ["kernels", "check", path, "--no-compile"])
    assert failed.exit_code == 2
    assert "[variant.ring] when: ring has no value in any configuration of any size" in failed.output
    load(WITH_LAG.replace("N = [64, 4096]", "N = { from = 32, to = 64 }"))
    noted = CliRunner().invoke(main, ["kernels", "check", path, "--no-compile"])
    assert noted.exit_code == 0, noted.output
    assert "ring has no value at the problems above" in " ".join(noted.output.split())


def test_show_tells_the_conditions(load: Load) -> None:
    """A tunable is listed with where it has a value."""
    path = str(load(WITH_LAG).path)
    shown = CliRunner().invoke(main, ["kernels", "show", "forms", "--kernel", path])
    assert "tunable ring  4 8   (where form == 'ring')" in shown.output
    assert "form=ring P=2 L=32 ring=8 lag=2" in shown.output


def test_a_permutation_has_every_order_and_rules_ask_where_items_stand(load: Load) -> None:
    """The orders are texts, the given one first; index_of is the place of an item, from 0."""
    kernel = load(
        replaced("P = [1, 2, 4]", "P = [1, 2, 4]\norder = { permutation = [0, 1, 2] }")
        .replace('rules = ["L * P <= 128"]', """rules = ["L * P <= 128", "index_of(order, '0') < 2"]""")
        .replace("P = 2\n", "P = 2\norder = '0,2,1'\n")
    )
    workload = kernel.workloads()[0]

    assert kernel.tunables["order"] == ("0,1,2", "0,2,1", "1,0,2", "1,2,0", "2,0,1", "2,1,0")
    assert {one["order"] for one in kernel.space(workload)} == {"0,1,2", "0,2,1", "1,0,2", "2,0,1"}
    assert kernel.default(workload)["order"] == "0,2,1"


def test_index_of_names_what_is_no_item() -> None:
    """An item that the text has not is an error, on one value and on many."""
    wanted = Expression("index_of(order, 'k')")
    assert wanted.evaluate({"order": "i,k"}) == 1
    for order in ("i,j", np.array(["i,k", "i,j"])):
        with pytest.raises(ExpressionError, match="index_of: 'k' is no item of 'i,j'"):
            wanted.evaluate({"order": order})


# --- Launches of kernel files that only some devices take: resident grids, clusters, tensor maps.

LAUNCHES = text_of("copy")


@pytest.fixture
def load_launches(tmp_path: Path) -> Load:
    return loader("copy", tmp_path)


@pytest.fixture
def kernel(load_launches: Load) -> KernelFile:
    """The kernel of the text above."""
    return load_launches(LAUNCHES)


def plan(kernel: KernelFile, load_launches: str, rows: int = 1, B: int = 1, N: int = 64) -> Plan:
    workload = kernel.workload({"N": N}, batch=32)
    return kernel.plan(workload, Configuration((("rows", rows), ("load", load_launches), ("B", B))))


def stage(kernel: KernelFile, load_launches: str, rows: int = 1, B: int = 1, N: int = 64) -> Stage:
    (only,) = plan(kernel, load_launches, rows, B, N).stages
    return only


def test_launches_are_plain_unless_said(kernel: KernelFile) -> None:
    """Any device takes a launch that states nothing; its whole grid is started, without clusters."""
    plain = stage(kernel, "plain")
    assert (plain.min_architecture, plain.resident, plain.cluster) == (0, False, 1)
    assert plain.arguments == ("x", "y")


def test_launch_keys_are_expressions(kernel: KernelFile) -> None:
    """Capability, residence and clusters may depend on the configuration."""
    assert stage(kernel, "async").min_architecture == 80
    assert stage(kernel, "async", rows=1).resident is True
    assert stage(kernel, "async", rows=8).resident is False
    assert stage(kernel, "async", B=16).cluster == 16


def test_clusters_and_tensor_maps_need_their_capability(kernel: KernelFile) -> None:
    """What came with 9.0 needs it, whatever the file states."""
    assert stage(kernel, "async", B=4).min_architecture == 90
    assert stage(kernel, "boxes").min_architecture == 90


def test_tensor_maps_are_evaluated(kernel: KernelFile) -> None:
    """Elements, rows and boxes follow from the values; the array may stand below its map."""
    assert stage(kernel, "boxes").arguments == (TensorMap("x", "float32", (128, 32), (128, 1), 0), "y")
    assert stage(kernel, "boxes", rows=8).arguments[0] == TensorMap("x", "float64", (64, 32), (64, 8), 256)


def test_zeroed_is_a_role(kernel: KernelFile) -> None:
    """An array set to zero before a run is neither input nor output."""
    assert plan(kernel, "async").buffers[-1].role == "zeroed"


def test_spills_are_a_choice_of_the_file(kernel: KernelFile, load_launches: Load) -> None:
    """Spilling configurations are tried only where the file says so."""
    assert kernel.spills
    assert not load_launches(LAUNCHES.replace("spills = true", "")).spills


def test_tensor_maps_of_others_are_not_evaluated(load_launches: Load) -> None:
    """A map that is impossible for a configuration harms no stage that does not take it."""
    kernel = load_launches(LAUNCHES.replace('"N * 2 // width"', '"N * 2 // (width - 1)"'))
    assert stage(kernel, "plain").arguments == ("x", "y")
    with pytest.raises(KernelFileError, match="division by zero"):
        stage(kernel, "boxes")


# --- Kernel files whose arrays have rows that lie apart: the names of expressions, and what is refused.

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
