"""The image of the Containerfile, built and run by buildah without a GPU: `make test-image` as root."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RECIPE = ROOT / "Containerfile"
CHROOT = ("--isolation", "chroot")  # needs no cgroups, so that it works in a container, too
NAME = "localhost/tuner-test"
LOOKS = 100  # each takes a second or so


def why_not() -> str:
    """Why no image can be built here; empty where nothing speaks against it."""
    if os.geteuid() != 0 or shutil.which("buildah") is None:
        return "images are built by root, with buildah"
    if not os.environ.get("TUNER_TEST_BASE") and shutil.which("debootstrap") is None:
        return "there is nothing to build on: name an image in TUNER_TEST_BASE, or install debootstrap"
    return ""


pytestmark = [pytest.mark.network, pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")]


def buildah(*words: str | Path) -> str:
    done = subprocess.run(["buildah", *words], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The image that ``TUNER_TEST_BASE`` names, else one of the Debian of this machine."""
    named = os.environ.get("TUNER_TEST_BASE")
    if named:
        yield named
        return
    root = tmp_path_factory.mktemp("base") / "root"
    system = Path("/etc/os-release").read_text()
    (release,) = re.findall(r"^VERSION_CODENAME=(\w+)$", system, re.MULTILINE)
    subprocess.run(["debootstrap", "--variant=minbase", release, root], check=True, capture_output=True)
    made = buildah("from", "scratch")
    if "PIP_CERT" in os.environ:  # what pip trusts here it must trust there
        shutil.copy(os.environ["PIP_CERT"], root / "etc/pip.pem")
        buildah("config", "--env", "PIP_CERT=/etc/pip.pem", made)
    buildah("copy", "--quiet", made, root, "/")
    shutil.rmtree(root)
    buildah("commit", "--quiet", "--rm", made, f"{NAME}-base")
    yield f"{NAME}-base"
    buildah("rmi", f"{NAME}-base")


@pytest.fixture(scope="module")
def container(base: str) -> Iterator[str]:
    """A container of the image, which is built as docs/howto/container.md says."""
    subprocess.run(["make", "wheel", f"VENV={sys.prefix}"], cwd=ROOT, check=True, capture_output=True)
    words = ("--format", "docker", "--build-arg", f"BASE={base}", "--tag", NAME, "--file", RECIPE)
    buildah("build", *CHROOT, *words, ROOT / "dist")
    made = buildah("from", "--pull-never", NAME)
    yield made
    buildah("rm", made)
    buildah("rmi", NAME)


@pytest.fixture(scope="module")
def recipe() -> dict[str, list[str]]:
    """Commands of the Containerfile, by the words that they stand behind."""
    found = re.findall(r"^(\w+) .*?(\[.*\])$", RECIPE.read_text(), re.MULTILINE)
    return {word: json.loads(line) for word, line in found}


def test_the_daemon_answers(container: str, recipe: dict[str, list[str]]) -> None:
    """It starts by the command of the image, passes its health check, tunes, and ends when it is told."""
    run = ("run", *CHROOT, container, "--")
    words = ["buildah", *run, *recipe["ENTRYPOINT"], *recipe["CMD"]]
    workload = ("scan-lf:N=4", "--device", "sim:jetson-tx1")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as daemon:
        check = ["buildah", *run, *recipe["HEALTHCHECK"]]
        asked = (subprocess.run(check, check=False, capture_output=True) for _ in range(LOOKS))
        assert any(done.returncode == 0 for done in asked), daemon.communicate()[0]
        followed = buildah(*run, "tuner", "submit", *workload, "--budget", "3", "--follow")
        assert "job 1 finished" in followed
        assert "stored: run 1" in buildah(*run, "tuner", "best", *workload)
        buildah(*run, "tuner", "stop")
        assert daemon.wait() == 0


def test_the_daemon_is_not_root(container: str) -> None:
    """It is the user whose number the page tells, and cannot write its own program."""
    run = ("run", *CHROOT, container, "--")
    assert buildah(*run, "id", "-u") == "964"
    assert buildah(*run, "find", "/opt/tuner", "-writable", "-not", "-type", "l") == ""
