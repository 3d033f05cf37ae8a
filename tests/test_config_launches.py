"""Launches of kernel files that only some devices take: resident grids, clusters, tensor maps."""

from pathlib import Path

import pytest
from kernel_texts import Load, loader, text_of

from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import KernelFileError
from tuner.model.plan import Configuration, Plan, Stage, TensorMap

TEXT = text_of("copy")


@pytest.fixture
def load(tmp_path: Path) -> Load:
    return loader("copy", tmp_path)


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


def test_tensor_maps_of_others_are_not_evaluated(load: Load) -> None:
    """A map that is impossible for a configuration harms no stage that does not take it."""
    kernel = load(TEXT.replace('"N * 2 // width"', '"N * 2 // (width - 1)"'))
    assert stage(kernel, "plain").arguments == ("x", "y")
    with pytest.raises(KernelFileError, match="division by zero"):
        stage(kernel, "boxes")
