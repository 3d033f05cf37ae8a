"""The walk-through of docs/input-adaptive.md, with the driver's calls on the host and on a GPU."""

import re
import site
from pathlib import Path

import pytest
from input_adaptive_example import EXAMPLE, SIZES, multiplied


def cuda_include() -> Path:
    """The folder of ``cuda.h``: of a toolkit, or of a wheel."""
    folders = [Path("/usr/local/cuda/include"), *map(Path, site.getsitepackages())]
    found = [
        header
        for folder in folders
        for header in [*folder.glob("cuda.h"), *folder.glob("nvidia/*/include/cuda.h")]
    ]
    assert found, f"there is no cuda.h in {folders}"
    return found[0].parent


def test_the_program_launches_what_the_selector_picks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names, blocks and threads are those of the version; all rows are covered."""
    told = multiplied(monkeypatch, tmp_path, "sim:h200", "sm_90", Path(__file__).parent / "host_driver")
    assert told.count("largest relative error") == len(SIZES) // 2


@pytest.mark.gpu
def test_the_program_multiplies_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cubins of the versions run, and are right."""
    from tuner.devices.cuda.device import CudaDevice  # noqa: PLC0415 - needs CuPy

    device = CudaDevice(0)
    major, minor = device.limits.compute_capability
    device.close()
    told = multiplied(
        monkeypatch, tmp_path, "cuda:0", f"sm_{major}{minor}", cuda_include(), "-l:libcuda.so.1"
    )
    assert told.count("largest relative error") == len(SIZES) // 2


def test_the_page_shows_the_example() -> None:
    """The kernel of the page is that of the example."""
    page = (EXAMPLE.parents[1] / "docs/input-adaptive.md").read_text()
    shown = re.findall(r"```cuda\n(.*?)```", page, re.DOTALL)
    assert (EXAMPLE / "mvmul.cu").read_text() in shown
