"""The wheel, with what it needs, in empty environments: `make test-install`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.network

ROOT = Path(__file__).parent.parent
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
X86, ARM, JETPACK_6 = "x86_64-manylinux_2_28", "aarch64-manylinux_2_28", "aarch64-manylinux_2_35"
COMMANDS = (  # and what they print
    (("--version",), "tuner, version"),
    (("daemon", "--help"), "--foreground"),
    (("kernels", "list"), "scan-lf"),
    (("run", "scan-lf:N=4", "--device", "sim:h200", "--budget", "3", "--database", "a.db"), "modelled"),
    (("best", "scan-lf:N=4", "--device", "sim:h200", "--database", "a.db"), "stored on"),
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of the last commit; tests are skipped where the package index does not answer."""
    asked = ("pip", "download", "--quiet", "--no-deps", "--dest", tmp_path_factory.mktemp("index"), "click")
    if subprocess.run([sys.executable, "-m", *asked], check=False, capture_output=True).returncode:
        pytest.skip("the package index does not answer")
    subprocess.run(["make", "wheel", f"VENV={sys.prefix}"], cwd=ROOT, check=True, capture_output=True)
    (made,) = (ROOT / "dist").glob("gpu_tuner-*.whl")
    return made


def python(version: str) -> str:
    """An interpreter of this version; the test is skipped where none is."""
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for found in (shutil.which(f"python{version}"), *map(str, pyenv)):
        if (
            found
            and subprocess.run([found, "-c", "import ensurepip"], check=False, capture_output=True).returncode
            == 0
        ):
            return found
    pytest.skip(f"Python {version} is not here")


@pytest.mark.parametrize("version", PYTHONS)
def test_an_empty_environment_gets_all_it_needs(version: str, wheel: Path, tmp_path: Path) -> None:
    """Installed as `gpu-tuner[cuda12]`, commands run where no checkout is on the path."""
    hidden = ("PYTHON", "VIRTUAL_ENV", "XDG_")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    clean["HOME"] = str(tmp_path)

    def printed(*words: str | Path) -> str:
        done = subprocess.run(words, cwd=tmp_path, env=clean, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    subprocess.run([python(version), "-m", "venv", tmp_path / "env"], check=True)
    bin_ = tmp_path / "env/bin"
    install = ("install", "--quiet", "--no-compile", "--only-binary=:all:", f"{wheel}[cuda12]")
    subprocess.run([bin_ / "python", "-m", "pip", *install], cwd=tmp_path, check=True)

    origin = printed(bin_ / "python", "-c", "import cupy, pynvml, tuner; print(tuner.__file__)")
    assert Path(origin).is_relative_to(tmp_path / "env")
    assert printed(bin_ / "tuner", "--version").split()[-1] == wheel.name.split("-")[1]
    for words, shown in COMMANDS:
        assert shown in printed(bin_ / "tuner", *words)


@pytest.mark.parametrize(
    ("version", "platform", "extra"),
    [
        *((version, platform, "cuda12") for version in PYTHONS for platform in (X86, ARM)),
        *((version, platform, "cuda13") for version in PYTHONS for platform in (X86, ARM)),
        ("3.10", JETPACK_6, "jetson"),
        ("3.10", JETPACK_6, "jetson,dask,hybrid,plot,train,tui"),
    ],
)
def test_each_dependency_has_a_wheel(version: str, platform: str, extra: str, wheel: Path) -> None:
    """What an extra needs on another Python or processor is to be had without a compiler."""
    pytest.importorskip("uv")
    target = ("--python-version", version, "--python-platform", platform, "--only-binary", ":all:")
    done = subprocess.run(
        [sys.executable, "-m", "uv", "pip", "compile", *target, "--quiet", "-"],
        input=f"gpu-tuner[{extra}] @ {wheel.as_uri()}",
        cwd=wheel.parent,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "nvidia-cuda-nvrtc" in done.stdout
