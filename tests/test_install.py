"""The wheel, with what it needs, in empty environments and in the image: `make test-install`."""

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
    (("best", "scan-lf:N=4", "--device", "sim:h200", "--database", "a.db"), "stored: run 1"),
)


@pytest.fixture(scope="module")
def wheel() -> Path:
    """That of the last commit."""
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


# --- the image, built and run without a GPU --------------------------------------------------------

RECIPE = ROOT / "Containerfile"
NAME = "tuner-test"  # of image, container and volume
ONCE = ("--rm", "--network", "none")
LOOKS = 100  # each takes a second or so


@functools.cache
def program() -> str:
    """Podman or docker; empty where none works."""
    for found in filter(None, map(shutil.which, ("podman", "docker"))):
        if subprocess.run([found, "info"], check=False, capture_output=True).returncode == 0:
            return found
    return ""


def engine(*words: str | Path, check: bool = True) -> str:
    done = subprocess.run([program(), *words], check=False, capture_output=True, text=True)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done.stdout if done.returncode == 0 else ""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image to build on: the one that ``TUNER_TEST_BASE`` names, else the Debian of this machine."""
    if not program():
        pytest.skip("neither podman nor docker works here")
    named = os.environ.get("TUNER_TEST_BASE")
    if named:
        yield named
        return
    debootstrap = shutil.which("debootstrap")
    if debootstrap is None or os.geteuid() != 0:
        pytest.skip("TUNER_TEST_BASE names no image to build on, and only root can make one, by debootstrap")
    root = tmp_path_factory.mktemp("base") / "root"
    system = Path("/etc/os-release").read_text()
    (release,) = re.findall(r"^VERSION_CODENAME=(\w+)$", system, re.MULTILINE)
    subprocess.run([debootstrap, "--variant=minbase", release, root], check=True, capture_output=True)
    trusted = os.environ.get("PIP_CERT")  # what pip trusts here it must trust there
    settings = ("--change", f"ENV PIP_CERT={trusted}") if trusted else ()
    if trusted:
        inside = root / trusted.lstrip("/")
        inside.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(trusted, inside)
    packed = root.with_suffix(".tar")
    subprocess.run(["tar", "-C", root, "-cf", packed, "."], check=True)
    shutil.rmtree(root)
    engine("import", *settings, packed, f"localhost/{NAME}-base")
    packed.unlink()
    yield f"localhost/{NAME}-base"
    engine("image", "rm", "--force", f"localhost/{NAME}-base")


@pytest.fixture(scope="module")
def image(base: str, wheel: Path) -> Iterator[str]:
    """The image, built as docs/howto/container.md says."""
    form = ("--format", "docker") if Path(program()).name == "podman" else ()
    words = ("--network", "host", "--build-arg", f"BASE={base}", "--tag", NAME, "--file", RECIPE)
    engine("build", *form, *words, wheel.parent)
    yield NAME
    engine("image", "rm", "--force", NAME)


@contextmanager
def daemon(image: str) -> Iterator[None]:
    """A container of it, once its health check succeeds; it must end well when it is stopped."""
    (check,) = re.findall(r"^HEALTHCHECK .* CMD (\[.*\])$", RECIPE.read_text(), re.MULTILINE)
    words = ("--network", "none", "--volume", f"{NAME}:/var/lib/tuner")
    engine("run", "--detach", "--name", NAME, *words, image)
    try:
        assert any(engine("exec", NAME, *json.loads(check), check=False) for _ in range(LOOKS))
        yield
        engine("stop", "--time", "20", NAME)
        assert engine("inspect", "--format", "{{.State.ExitCode}}", NAME).strip() == "0"
    finally:
        engine("rm", "--force", NAME)


def test_the_daemon_keeps_what_it_found(image: str) -> None:
    """A job of a container is answered by another one with the same volume."""
    workload = ("scan-lf:N=4", "--device", "sim:jetson-tx1")
    try:
        with daemon(image):
            followed = engine("exec", NAME, "tuner", "submit", *workload, "--budget", "3", "--follow")
            assert "job 1 finished" in followed
        with daemon(image):
            assert "stored: run 1" in engine("exec", NAME, "tuner", "best", *workload)
    finally:
        engine("volume", "rm", "--force", NAME)


def test_the_daemon_is_not_root(image: str) -> None:
    """It is the user whose number the page tells, and cannot write its own program."""
    assert engine("run", *ONCE, "--entrypoint", "id", image, "-u").strip() == "964"
    words = ("/opt/tuner", "-writable", "-not", "-type", "l")
    assert engine("run", *ONCE, "--entrypoint", "find", image, *words) == ""


def test_another_command_takes_the_place_of_the_daemon(image: str) -> None:
    """Words behind the image are those of `tuner`."""
    assert "scan-lf" in engine("run", *ONCE, image, "kernels", "list")
