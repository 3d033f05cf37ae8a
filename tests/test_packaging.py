"""The distribution: one import name, all data files, and a wheel that runs on its own."""

import hashlib
import os
import re
import runpy
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import distribution, version
from pathlib import Path

import pytest
from build_cache import BUILDS
from packaging.version import Version
from test_suites import git

from tuner.model.version import VERSION
from tuner.recordings.files import SHIPPED

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
FOR_BUILDING_ECHARTS = ("SHA256SUMS", "build.sh", "package-lock.json", "package.json", "selection.js")


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


OWN = VERSION.partition("+")[0]  # of the tree, which may be a checkout


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
    found = build / f"gpu_tuner-{OWN}-py3-none-any.whl"
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


def test_wheel_holds_all_that_is_read(wheel: Path) -> None:
    """Each file of the rooms is in it but what only developers need, and nothing of any other folder is."""
    rooms = {
        "tuner": "",
        "power": "power/",
        "policies": "policies/",
        "kernels": "kernels/",
        "systemd": "systemd/",
    }
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    there = {
        f"tuner/{below}{path.relative_to(ROOT / room).as_posix()}"
        for room, below in rooms.items()
        for path in (ROOT / room).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    echarts = {f"tuner/report/html/echarts/{name}" for name in FOR_BUILDING_ECHARTS}

    assert there - held == echarts
    assert held <= there


def test_wheel_holds_the_recordings(wheel: Path) -> None:
    """Every shipped recording is in the wheel, byte for byte."""
    archive = zipfile.ZipFile(wheel)
    for name in SHIPPED:
        inside = archive.read(f"tuner/recordings/{name}.zip")
        assert inside == (ROOT / "tuner" / "recordings" / f"{name}.zip").read_bytes()


PROJECT = """[project]
name = "gpu-tuner"
dynamic = ["version"]
[tool.setuptools]
packages = ["tuner.model"]
"""


@pytest.mark.parametrize(
    ("tag", "version"),
    [("", rf"{OWN}\+1\.g[0-9a-f]{{8}}"), (f"v{OWN}", OWN), ("v99.0", "")],
    ids=["commit", "tag", "wrong-tag"],
)
def test_wheel_of_a_commit_says_which(tag: str, version: str, tmp_path: Path) -> None:
    """File name and content have the version of the tag or commit; a tag that says another is refused."""
    file = tmp_path / "tuner/model/version.py"
    file.parent.mkdir(parents=True)
    shutil.copy(ROOT / "tuner/model/version.py", file)
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copy(ROOT / "setup.py", tmp_path)
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    tagging = [("tag", tag)] if tag else []
    for words in (("init", "--template="), ("add", "."), ("commit", "-m", "one"), *tagging):
        git(tmp_path, *words)
    file.write_text("not committed")
    outer = {name: value for name, value in os.environ.items() if "MAKE" not in name}  # of `make test`
    done = subprocess.run(
        ["make", "wheel", f"VENV={sys.prefix}"],
        cwd=tmp_path,
        env=outer,
        check=False,
        capture_output=True,
        text=True,
    )

    assert (done.returncode == 0) == bool(version), done.stderr
    if not version:
        assert f"has the tag v99.0, and tuner/model/version.py says {OWN}" in done.stderr
        return
    made = tmp_path / done.stdout.splitlines()[-1]
    found = re.fullmatch(rf"gpu_tuner-({version})-py3-none-any\.whl", made.name)
    assert found, made.name
    assert f'VERSION = "{found[1]}"' in zipfile.ZipFile(made).read("tuner/model/version.py").decode()


def test_a_checkout_says_which_commit_it_is_at(tmp_path: Path) -> None:
    """On a branch, packed, detached and in a worktree the version names the commit, without git."""
    file = tmp_path / "one/tuner/model/version.py"
    file.parent.mkdir(parents=True)
    shutil.copy(ROOT / "tuner/model/version.py", file)

    def told(checkout: Path) -> str:
        return str(runpy.run_path(str(checkout / "tuner/model/version.py"))["VERSION"])

    one, two = tmp_path / "one", tmp_path / "two"
    assert told(one) == OWN
    git(one, "init", "--template=")
    assert told(one) == f"{OWN}+dev"
    git(one, "add", ".")
    git(one, "commit", "-m", "one")
    commit = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"], cwd=one, check=True, capture_output=True, text=True
    ).stdout.strip()
    assert told(one) == f"{OWN}+dev.g{commit}"
    git(one, "worktree", "add", str(two))
    git(one, "pack-refs", "--all")
    assert told(one) == told(two) == f"{OWN}+dev.g{commit}"
    git(one, "checkout", "--detach")
    assert told(one) == f"{OWN}+dev.g{commit}"
    assert Version(OWN) < Version(told(one)) < Version(f"{OWN}+1.g{commit}")


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
