"""The walk-through of docs/input-adaptive.md, with the driver's calls on the host and on a GPU."""

import re
import shutil
import site
import subprocess
from pathlib import Path

import pytest
from cli_process import tuner

EXAMPLE = Path(__file__).parents[1] / "examples/input-adaptive"
SIZES = ("16", "10000", "777", "3141", "9999", "33", "1", "1")


def run(folder: Path, *words: str) -> str:
    """A command in a folder; what it printed."""
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def called(*words: str) -> str:
    """The command in this process, from its folder; what it printed."""
    result = tuner(*words)
    assert result.exit_code == 0, f"{words}: {result.output}"
    return result.stdout


def multiplied(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    device: str,
    architecture: str,
    include: Path,
    *libraries: str,
) -> str:
    """Train, export header and cubins, build the program and run it; what it printed.

    Args:
        monkeypatch: changes to the folder.
        folder: where all that happens.
        device: as of ``--device``.
        architecture: of the cubins.
        include: folder of ``cuda.h``.
        libraries: what the program is linked with.
    """
    for file in EXAMPLE.iterdir():
        shutil.copy(file, folder)
    monkeypatch.chdir(folder)
    database = ("--database", "walk.db")
    called(
        *("train", "mvmul.cu", "--inputs", "H=2^4..2^14, W=2^4..2^14"),
        *("--limit", "H * W <= 2**22", "--count", "5", "--device", device, *database),
    )
    sizes = ("mvmul.cu:H=777,W=3141", "--objective", "time", "--device", device)
    assert "predicted" in called("best", *sizes, *database)
    called(
        *("export", "mvmul", "--format", "c-selector", "--kernel", "mvmul.cu"),
        *("--cubins", "build", "--arch", architecture, "--output", "mvmul.h", *database),
    )
    run(folder, "g++", "-Wall", "-Werror", "-O2", f"-I{include}", "-o", "main", "main.cpp", *libraries)
    return run(folder, "./main", *SIZES)


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
    """The pragmas and the head of the page's kernel are those of the example."""
    page = (EXAMPLE.parents[1] / "docs/input-adaptive.md").read_text()
    (shown,) = re.findall(r"```cuda\n(.*?)```", page, re.DOTALL)
    assert (EXAMPLE / "mvmul.cu").read_text().startswith(shown)
    assert "__global__" in shown
