"""When the pairwise tier runs by itself: where the kernels or their host machine are not main's."""

import shutil
import subprocess
from pathlib import Path

import pytest
from kernel_changes import kernels_changed

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def commit(folder: Path, name: str, text: str) -> None:
    write(folder, name, text)
    git(folder, "add", ".")
    git(folder, "commit", "-m", name)


@pytest.fixture
def branch(tmp_path: Path) -> Path:
    """A checkout on a branch that has changed nothing watched since it left main."""
    git(tmp_path, "init", "-b", "main")
    commit(tmp_path, "kernels/scan/scan.cu", "one")
    commit(tmp_path, "tuner/model.py", "one")
    git(tmp_path, "checkout", "-b", "branch")
    commit(tmp_path, "tuner/model.py", "two")
    return tmp_path


def test_a_branch_that_leaves_them_alone_changes_nothing(branch: Path) -> None:
    """Other files do not count, nor does what main has got since."""
    git(branch, "checkout", "main")
    commit(branch, "kernels/scan/scan.cu", "two")
    git(branch, "checkout", "branch")

    assert not kernels_changed(branch)


@pytest.mark.parametrize("name", ["kernels/scan/scan.cu", "tests/host/runtime.cpp", "tests/host_build.py"])
@pytest.mark.parametrize("how", ["committed", "edited", "new"])
def test_a_watched_file_that_differs_counts(branch: Path, name: str, how: str) -> None:
    """Whether it is committed, in the working tree only, or not yet known to git."""
    if how == "committed":
        commit(branch, name, "changed")
        commit(branch, "tuner/model.py", "three")
    elif how == "edited":
        commit(branch, name, "changed")
        git(branch, "branch", "-f", "main")
        commit(branch, "tuner/model.py", "three")
        write(branch, name, "changed again")
    else:
        write(branch, name + ".cpp" if name.endswith(".cpp") else name, "new")

    assert kernels_changed(branch)


def test_on_main_the_last_commit_counts(branch: Path) -> None:
    """Main does not differ from itself: there it is the commit before that is asked."""
    git(branch, "checkout", "main")
    assert not kernels_changed(branch)
    commit(branch, "kernels/scan/scan.cu", "two")

    assert kernels_changed(branch)


def test_where_nothing_can_be_told_they_may_have_changed(tmp_path: Path) -> None:
    """Outside of a checkout, and where no branch is called main."""
    assert kernels_changed(tmp_path)
    git(tmp_path, "init", "-b", "trunk")
    commit(tmp_path, "a", "a")

    assert kernels_changed(tmp_path)
