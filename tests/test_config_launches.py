"""Launches of kernel files that only some devices take: resident grids, clusters, tensor maps."""

from collections.abc import Callable
from pathlib import Path

import pytest
from test_config import STRANGE

from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import InputError, KernelFileError
from tuner.model.plan import Configuration, Plan, Stage, TensorMap

TEXT = """
[kernel]
name = "copy"
source = "copy.cu"
[problem]
name = "consistent"
[problem.sizes]
N = { from = 16, to = 4096 }
[[argument]]
tensor_map = "boxes"
buffer = "x"
element = "{element}"
dims = ["N * 2 // width", "batch"]
box = ["min(N, 64) * 2 // width", "rows"]
promotion = "select(rows > 1, 256, 0)"
[[argument]]
buffer = "x"
dtype = "complex64"
shape = ["batch", "N"]
role = "in"
[[argument]]
buffer = "y"
dtype = "complex64"
shape = ["batch", "N"]
role = "out"
[[argument]]
buffer = "turn"
dtype = "uint32"
shape = [1]
role = "zeroed"
[tunables]
rows = [1, 8]
load = ["plain", "async", "boxes"]
B = [1, 4, 16]
[derived]
width = "select(rows > 1, 2, 1)"
element = "select(width == 2, 'float64', 'float32')"
[constraints]
spills = true
[[stage]]
name = "plain"
entry = "plain"
grid = "64"
block = 128
arguments = ["x", "y"]
when = "load == 'plain'"
[[stage]]
name = "async"
entry = "async"
grid = "64 * B"
block = 128
arguments = ["x", "y", "turn"]
when = "load == 'async'"
min_architecture = "select(B > 1, 0, 80)"
resident = "rows == 1"
cluster = "B"
[[stage]]
name = "boxes"
entry = "boxes"
grid = "64"
block = 128
arguments = ["boxes", "y"]
when = "load == 'boxes'"
min_architecture = 50
resident = true
[work]
bytes = "16 * N * batch"
operations = 0
"""

Load = Callable[[str], KernelFile]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Loads a kernel file beside its source."""
    (tmp_path / "copy.cu").write_text("// copy\n")

    def from_text(text: str) -> KernelFile:
        path = tmp_path / "kernel.toml"
        path.write_text(text)
        return load_kernel_file(path)

    return from_text


@pytest.fixture
def kernel(load: Load) -> KernelFile:
    """The kernel of the text above."""
    return load(TEXT)


def plan(kernel: KernelFile, load: str, rows: int = 1, B: int = 1, N: int = 64) -> Plan:
    workload = kernel.workload({"N": N}, batch=32)
    return kernel.plan(workload, Configuration((("rows", rows), ("load", load), ("B", B))))


def stage(kernel: KernelFile, load: str, rows: int = 1, B: int = 1, N: int = 64) -> Stage:
    (only,) = plan(kernel, load, rows, B, N).stages
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


def test_spills_are_a_choice_of_the_file(kernel: KernelFile, load: Load) -> None:
    """Spilling configurations are tried only where the file says so."""
    assert kernel.spills
    assert not load(TEXT.replace("spills = true", "")).spills


EVALUATING = [
    ("rows = [1, 8]", "rows = [1, 300]", "boxes", "box: 'rows' is 300; it must be from 1 to 256"),
    (
        '"min(N, 64) * 2 // width"',
        '"N % 7"',
        "boxes",
        "(boxes): a row of box takes 4 bytes; it must be a multiple of 16",
    ),
    (
        '"N * 2 // width"',
        '"N * 2 // width - 1"',
        "boxes",
        "(boxes): a row of dims takes 508 bytes; it must be a multiple of 16",
    ),
    ('width", "batch"]', 'width", "batch + 1"]', "boxes", "dims take 16896 bytes, and x has 16384"),
    ("rows > 1, 256, 0)", "rows > 1, 256, 32)", "boxes", "promotion: 'select(rows > 1, 256, 32)' is 32;"),
    ("'float64', 'float32'", "'float64', 'float'", "boxes", "element: 'float' is not one of uint8, uint16"),
    ("'float64', 'float32'", "'float64', 'complex64'", "boxes", "element: 'complex64' is not one of"),
    ('"64 * B"', '"66"', "async", "cluster: a grid of 66 blocks is not made of clusters of 4"),
    ('cluster = "B"', 'cluster = "8 * B"', "async", "cluster: '8 * B' is 32; it must be from 1 to 16"),
    ('"rows == 1"', '"load"', "async", "resident: 'load' is the text 'async', not a number"),
    ("select(B > 1, 0, 80)", "select(B > 1, -1, 80)", "async", "min_architecture: 'select(B > 1, -1, 80)'"),
]


@pytest.mark.parametrize(("old", "new", "taken", "trouble"), EVALUATING)
def test_mistakes_found_in_a_plan(load: Load, old: str, new: str, taken: str, trouble: str) -> None:
    """What CUDA would refuse, or what reaches beyond an array, is reported with key and values."""
    assert old in TEXT
    kernel = load(TEXT.replace(old, new))
    rows = kernel.tunables["rows"][1 if "300" in new else 0]
    with pytest.raises(KernelFileError) as error:
        plan(kernel, taken, int(rows), B=4)
    assert trouble in str(error.value)
    assert "(at copy:N=64 [" in str(error.value)


def test_tensor_maps_of_others_are_not_evaluated(load: Load) -> None:
    """A map that is impossible for a configuration harms no stage that does not take it."""
    kernel = load(TEXT.replace('"N * 2 // width"', '"N * 2 // (width - 1)"'))
    assert stage(kernel, "plain").arguments == ("x", "y")
    with pytest.raises(KernelFileError, match="division by zero"):
        stage(kernel, "boxes")


@pytest.mark.parametrize(
    ("old", "new", "trouble"),
    [
        (
            'buffer = "x"\nelement',
            'buffer = "z"\nelement',
            "1 (boxes) buffer: no buffer is called 'z'; choose",
        ),
        ('buffer = "x"\nelement', 'buffer = "boxes"\nelement', "no buffer is called 'boxes'"),
        ('"{element}"', '"float"', "1 (boxes) element: 'float' is not one of"),
        (
            'dims = ["N * 2 // width", "batch"]',
            'dims = ["N"]',
            "[[argument]] 1 dims: must be a list of at least 2",
        ),
        ('"batch"]\nbox', '"bath"]\nbox', "[[argument]] 1 (boxes) dims: expression 'bath': unknown name"),
        ("promotion", "promotoin", "[[argument]] 1 promotoin: unknown key; did you mean 'promotion'"),
        ('tensor_map = "boxes"', 'tensor_map = "x"', "(x): an argument of this name stands above"),
        ('resident = "rows == 1"', "resident = 1", "[[stage]] 2 resident: must be true or false or text"),
        ('role = "zeroed"', 'role = "zero"', "'zero' is not one of in, out, inout, scratch, zeroed"),
        ("spills = true", "spills = 1", "[constraints] spills: must be true or false"),
    ],
)
def test_mistakes_found_when_loading(load: Load, old: str, new: str, trouble: str) -> None:
    """A mistake is reported with the key and what would be right."""
    assert old in TEXT
    with pytest.raises(KernelFileError) as error:
        load(TEXT.replace(old, new))
    assert trouble in str(error.value)


@pytest.mark.parametrize("line", [i for i, text in enumerate(TEXT.splitlines()) if " = " in text])
def test_no_value_escapes_the_error_tree(load: Load, line: int) -> None:
    """Whatever value stands at whichever key, the file works or ends in an error of the package."""
    for strange in STRANGE:
        lines = TEXT.splitlines()
        lines[line] = f"{lines[line].partition(' = ')[0]} = {strange}"
        try:
            kernel = load("\n".join(lines))
            workload = kernel.workloads()[-1]
            for configuration in kernel.space(workload):
                kernel.plan(workload, configuration)
        except InputError as error:
            assert str(error)  # noqa: PT017 - some of these values are right
