"""The distribution: one import name, all data files, and a wheel that runs on its own."""

import hashlib
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import distribution, version
from pathlib import Path

import pytest
from build_cache import BUILDS

from tuner.model.version import VERSION
from tuner.recordings.files import SHIPPED

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent


def test_one_top_level_name() -> None:
    """kernels/, power/ and policies/ must not become top-level imports: PyPI has projects of those names."""
    assert (distribution("gpu-tuner").read_text("top_level.txt") or "").split() == ["tuner"]


def test_every_package_folder_is_listed() -> None:
    """The explicit package list holds every folder with Python files."""
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    plain = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "tuner").rglob("*.py")}
    mapped = {
        ".".join(("tuner", *path.parent.relative_to(ROOT).parts))
        for folder in ("power", "policies")
        for path in (ROOT / folder).rglob("*.py")
    }
    found = plain | mapped | {"tuner.kernels", "tuner.systemd"}

    assert found == listed


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the tree as it is; built once for every content."""
    build = tmp_path_factory.mktemp("wheel")
    tree = build / "tree"
    left_out = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info")
    shutil.copytree(ROOT, tree, ignore=left_out)  # a build in place would pack modules of earlier builds, too
    key = f"wheel-{contents(tree)}"
    with BUILDS.making(key):
        packed = BUILDS.load(key)
        if packed is None:
            packed = built(build, tree).read_bytes()
            BUILDS.store(key, packed)
    found = build / f"gpu_tuner-{VERSION}-py3-none-any.whl"
    found.write_bytes(packed)
    return found


def contents(tree: Path) -> str:
    """A hash of all files of a folder, by their names, and of what builds them."""
    found = hashlib.sha256(f"{sys.version} {version('pip')}".encode())
    for path in sorted(tree.rglob("*")):
        if path.is_file():
            found.update(f"{path.relative_to(tree)} {path.stat().st_size}\n".encode() + path.read_bytes())
    return found.hexdigest()


def built(build: Path, tree: Path) -> Path:
    """Build the wheel of a tree, so that nothing is left beside it."""
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", build, tree],
        check=True,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "TMPDIR": str(build)},
    )
    return next(build.glob("gpu_tuner-*.whl"))


def test_wheel_holds_the_kernels(wheel: Path) -> None:
    """Every kernel file and source of the catalogue is in the wheel, and no test is."""
    names = set(zipfile.ZipFile(wheel).namelist())
    data = {
        f"tuner/{path.relative_to(ROOT)}"
        for path in (ROOT / "kernels").rglob("*")
        if path.suffix in {".cu", ".cuh", ".py", ".toml"}
    }

    assert len(data) >= 6
    assert data <= names
    assert not [name for name in names if "tests" in name.split("/")]


def test_wheel_holds_the_recordings(wheel: Path) -> None:
    """Every shipped recording is in the wheel, byte for byte."""
    archive = zipfile.ZipFile(wheel)
    for name in SHIPPED:
        inside = archive.read(f"tuner/recordings/{name}.zip")
        assert inside == (ROOT / "tuner" / "recordings" / f"{name}.zip").read_bytes()


def test_wheel_runs_from_a_fresh_environment(wheel: Path, tmp_path: Path) -> None:
    """Installed from the wheel, outside the checkout, `tuner run` tunes on the simulated device."""
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--python", python),
            *("install", "--quiet", "--no-compile", "--no-deps", wheel),
        ],
        check=True,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    # The dependencies come from this environment, appended to the search path; tuner itself must not.
    site = tmp_path / "env" / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    (site / "dependencies.pth").write_text(str(Path(pytest.__file__).parent.parent) + "\n")
    outcome = subprocess.run(
        [
            *(python, "-c", "from tuner.cli.main import main; main()"),
            *("run", "scan-lf:N=4", "--device", "sim:jetson-tx1", "--policy", "random", "--budget", "3"),
            *("--database", tmp_path / "tuner.db", "--json", tmp_path / "run.json"),
        ],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )

    assert outcome.returncode == 0, outcome.stderr
    assert "modelled" in outcome.stdout
    origin = subprocess.run(
        [python, "-c", "import tuner; print(tuner.__file__)"],
        check=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert origin.stdout.startswith(str(site))
