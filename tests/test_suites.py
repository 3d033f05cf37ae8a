"""Which suites run: what differs from main, what is named, and all where nothing is known."""

import shutil
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest
from suites import SUITES, TESTS, changes, imports, left_out, with_helpers

ROOT = TESTS.parent
ALIASED = ("tuner.power", "tuner.policies")  # whose folders lie beside tuner/

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


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


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("left")
    git(folder, "init", "-b", "main", "--template=")
    commit(folder, "kernels/scan/scan.cu", "one")
    commit(folder, "tuner/model.py", "one")
    git(folder, "checkout", "-b", "branch")
    commit(folder, "tuner/model.py", "two")
    return folder


@pytest.fixture
def branch(left: Path, tmp_path: Path) -> Path:
    """A checkout on a branch that has changed nothing watched since it left main."""
    return Path(shutil.copytree(left, tmp_path, dirs_exist_ok=True))


@needs_git
def test_a_branch_runs_what_it_changed(branch: Path) -> None:
    """Other files do not count, nor does what main has got since."""
    git(branch, "checkout", "main")
    commit(branch, "kernels/scan/scan.cu", "two")
    git(branch, "checkout", "branch")
    assert left_out(branch, "auto").keys() == SUITES.keys()
    assert set(left_out(branch, "auto").values()) == {"nothing it is about differs from main"}
    write(branch, "tuner/pool/lanes.py", "new")
    assert SUITES.keys() - left_out(branch, "auto").keys() == {"pools"}


@needs_git
@pytest.mark.parametrize("how", ["committed", "edited", "new"])
def test_a_watched_file_that_differs_counts(branch: Path, how: str) -> None:
    """Whether it is committed, in the working tree only, or not yet known to git."""
    name = "kernels/scan/new.cu" if how == "new" else "kernels/scan/scan.cu"
    if how == "new":
        write(branch, name, "new")
    else:
        commit(branch, name, "changed")
    if how == "edited":
        git(branch, "branch", "-f", "main")
    if how != "new":
        commit(branch, "tuner/model.py", "three")
    if how == "edited":
        write(branch, name, "changed again")

    _, changed = changes(branch)
    assert changed is not None
    assert name in changed
    assert {"kernels", "pairs"} <= SUITES.keys() - left_out(branch, "auto").keys()


@pytest.mark.parametrize("name", ["kernels/scan/scan.cu", "tests/host/runtime.cpp", "tests/host_build.py"])
def test_what_runs_kernels_is_watched_like_kernels(name: str) -> None:
    """Their folders, and files beside them."""
    assert {"kernels", "pairs"} <= {one for one in SUITES if SUITES[one].differs([name])}


@needs_git
def test_on_main_the_last_commit_counts(branch: Path) -> None:
    """Main does not differ from itself: there it is the commit before that is asked."""
    git(branch, "checkout", "main")
    assert "pairs" in left_out(branch, "auto")
    commit(branch, "kernels/scan/scan.cu", "two")

    assert "pairs" not in left_out(branch, "auto")


@needs_git
def test_where_nothing_can_be_told_all_run(tmp_path: Path) -> None:
    """Outside of a checkout, and where no branch is called main."""
    assert left_out(tmp_path, "auto") == {}
    git(tmp_path, "init", "-b", "trunk")
    commit(tmp_path, "a", "a")

    assert left_out(tmp_path, "auto") == {}


def test_suites_are_chosen_by_name() -> None:
    """All, none, or those that are named; an unknown name is refused with the known ones."""
    assert left_out(ROOT, "all") == {}
    assert left_out(ROOT, "none").keys() == SUITES.keys()
    assert SUITES.keys() - left_out(ROOT, "pools,pragmas").keys() == {"pools", "pragmas"}
    with pytest.raises(ValueError, match="no suite is named pool; there are auto, all, none, kernels"):
        left_out(ROOT, "pool")


def test_every_process_of_a_run_knows_its_suites(pytestconfig: pytest.Config) -> None:
    """Also those that pytest-xdist starts: they have names of suites, or none."""
    assert set(pytestconfig.getoption("suites").split(",")) <= SUITES.keys() | {"none"}


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_watches_its_tests_and_their_helpers(name: str) -> None:
    """Every pattern finds files, which no other suite has; each file and each helper has the suite run."""
    suite = SUITES[name]
    assert [pattern for pattern in suite.files if not list(TESTS.glob(pattern))] == []
    assert [one for one in suite.about if not list(ROOT.glob(one))] == []
    others = {file for other in SUITES if other != name for file in SUITES[other].tests()}
    assert not others & set(suite.tests())
    for file in with_helpers(suite.tests()):
        assert suite.differs([file.relative_to(ROOT).as_posix()])


@pytest.mark.parametrize("name", SUITES)
def test_rooms_of_a_suite_are_those_that_it_imports(name: str) -> None:
    """Rooms that its files or helpers import are watched or passed through, and no others."""
    suite = SUITES[name]
    files = with_helpers([file for file in suite.tests() if not fnmatch(file.name, "*_gpu.py")])
    used = {
        module.replace(".", "/").removeprefix("tuner/" if module.startswith(ALIASED) else "")
        for file in files
        for module in imports(file)
        if module.startswith("tuner.")
    }
    stated = (*suite.about, *suite.through)
    assert {
        one
        for one in used
        if not any(f"{one}/".startswith(f"{room.removesuffix('.py')}/") for room in stated)
    } == set()
    assert {
        room for room in suite.through if not any(f"{one}/".startswith(f"{room}/") for one in used)
    } == set()
