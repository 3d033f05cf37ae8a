"""Locks, and what is kept beside them, are for those who may write there, whatever the umask."""

import fcntl
import math
import os
import pwd
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest
from cli_process import SMALL, tuner
from policy_driver import candidate, play, result, search_over

from tuner.cli.output import write_json
from tuner.database.connection import Database
from tuner.database.files import locked, mirror_of
from tuner.model import registry
from tuner.model.errors import InputError
from tuner.model.trial import Measurement, Trial
from tuner.space.search_view import Policy
from tuner.system.ownership import (
    BoardTurns,
    StateLock,
    gpu_lock_file,
    identity_of,
    open_lock,
    open_result,
    owned_folder,
    owned_gpu,
    this_process,
    try_lock,
)
from tuner.system.service_manager import default_sockets


@pytest.fixture(params=[0, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    mask: int = request.param
    before = os.umask(mask)
    yield mask
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def of_database(folder: Path) -> Path:
    with locked(folder / "tuner.db", alone=True):
        return folder / "tuner.db.lock"


def of_gpu(folder: Path) -> Path:
    with owned_gpu(folder, "GPU-1"):
        return gpu_lock_file(folder, "GPU-1")


def of_board(folder: Path) -> Path:
    with BoardTurns(folder) as turns, turns.turn(alone=True):
        return folder / "board.lock"


def of_daemon(folder: Path) -> Path:
    StateLock(folder).close()
    return folder / "daemon.lock"


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("made", [of_database, of_gpu, of_board, of_daemon])
def test_strangers_cannot_open_a_lock(tmp_path: Path, made: Callable[[Path], Path]) -> None:
    """Who can open a file can lock it: new locks, and those that earlier versions left open, are 0600."""
    tmp_path.chmod(0o755)
    path = made(tmp_path)
    assert mode(path) == 0o600

    path.chmod(0o644)
    assert mode(made(tmp_path)) == 0o600


def test_a_folder_of_a_group_has_locks_of_the_group(tmp_path: Path) -> None:
    """Where a folder's group writes, it locks too."""
    tmp_path.chmod(0o2775)
    assert mode(of_database(tmp_path)) == 0o660


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_a_lock_in_a_folder_of_a_group_is_that_groups(tmp_path: Path) -> None:
    """A new file has its maker's own group, in which the other writers of the folder need not be."""
    tmp_path.chmod(0o770)
    os.chown(tmp_path, -1, 4242)
    os.close(open_lock(tmp_path / "lock"))
    found = (tmp_path / "lock").stat()
    assert (found.st_gid, stat.S_IMODE(found.st_mode)) == (4242, 0o660)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_a_lock_that_root_makes_is_the_folders(tmp_path: Path) -> None:
    """What root makes in a service's folder the service can open."""
    os.chown(tmp_path, 4711, 4712)
    os.close(open_lock(tmp_path / "a.lock"))
    status = (tmp_path / "a.lock").stat()
    assert (status.st_uid, status.st_gid) == (4711, 4712)


def test_a_lock_is_no_link(tmp_path: Path) -> None:
    """A link in the place of a lock is not followed."""
    (tmp_path / "a.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        open_lock(tmp_path / "a.lock")
    assert not (tmp_path / "elsewhere").exists()


def test_one_process_has_a_lock(tmp_path: Path) -> None:
    """A lock is taken once, or shared."""
    files = [open_lock(tmp_path / "a.lock") for _ in range(2)]
    try:
        assert [try_lock(file, tmp_path) for file in files] == [True, False]
        assert all(try_lock(file, tmp_path, fcntl.LOCK_SH) for file in files)
    finally:
        for file in files:
            os.close(file)


@pytest.mark.usefixtures("umask")
def test_a_database_is_its_users(tmp_path: Path) -> None:
    """New folders and files of results are for their user alone."""
    path = tmp_path / "state" / "new" / "tuner.db"
    with Database(path):
        kept = [file for file in path.parent.iterdir() if file.is_file()]
        assert {path, mirror_of(path)} <= set(kept)
        assert {mode(file) for file in kept} == {0o600}
    assert mode(path.parent) == mode(path.parent.parent) == 0o700


@pytest.mark.parametrize(("before", "after"), [(0o755, 0o700), (0o775, 0o770), (0o700, 0o700)])
def test_the_folder_of_results_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int, after: int
) -> None:
    """The user's own folder loses what strangers may do there; where its group writes, it keeps that."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "tuner"
    folder.mkdir()
    folder.chmod(before)
    Database().close()
    assert mode(folder) == after


def test_results_are_no_strangers_to_change(tmp_path: Path, umask: int) -> None:
    """A result may be read by whom the user lets, and changed by nobody else."""
    write_json(str(tmp_path / "a.json"), {})
    open_result(tmp_path / "a.zip", "wb").close()
    assert mode(tmp_path / "a.json") == mode(tmp_path / "a.zip") == 0o644 & ~umask


@pytest.mark.parametrize("loose", [0o775, 0o757, 0o777])
def test_a_runtime_folder_of_others_is_told(tmp_path: Path, loose: int) -> None:
    """Where others may have put a socket, nobody asks it in silence."""
    folder = tmp_path / "tuner"
    folder.mkdir()
    folder.chmod(loose)
    with pytest.raises(InputError, match=r"tuner is another user's, or others may write there.*--socket"):
        default_sockets({"XDG_RUNTIME_DIR": str(tmp_path)})


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_a_runtime_folder_of_another_user_is_told(tmp_path: Path) -> None:
    """A folder that another user has made is not used."""
    folder = tmp_path / "tuner"
    folder.mkdir(mode=0o755)
    os.chown(folder, 4711, 4711)
    with pytest.raises(InputError, match="unset XDG_RUNTIME_DIR"):
        default_sockets({"XDG_RUNTIME_DIR": str(tmp_path)})


# --- the restarted neighbourhood search ------------------------------------------------------------


GRID = [candidate(a=a, b=b) for a, b in product(range(8), range(8))]


@pytest.fixture(scope="module")
def local() -> Policy:
    loaded: Policy = registry.load("policy", "local")
    return loaded


def hill(trial: Trial) -> Measurement:
    """One minimum, at a = 5, b = 2, which single steps lead to from everywhere."""
    chosen = trial.configurations[0]
    return result(1.0 + abs(int(chosen["a"]) - 5) + abs(int(chosen["b"]) - 2), [1.0])


def trap(trial: Trial) -> Measurement:
    """A minimum at a = b = 0 from which no change of one tunable leads to the lower one at a = b = 7."""
    chosen = trial.configurations[0]
    a, b = int(chosen["a"]), int(chosen["b"])
    return result({(0, 0): 1.0, (7, 7): 0.5}.get((a, b), 2.0 + a + b), [1.0])


def test_the_default_comes_first_then_its_neighbours(local: Policy) -> None:
    """The first climb begins at the default; the next trials differ from it in one value."""
    search = search_over(GRID)

    trials = play(local, search, lambda _: result(1.0, [1.0]), 15).trials

    first = trials[0].configurations[0]
    assert first == search.defaults[0]
    for trial in trials[1:15]:
        changed = [name for name, value in trial.configurations[0].items() if value != first[name]]
        assert len(changed) == 1


@pytest.mark.parametrize("seed", range(5))
def test_a_single_minimum_is_found_within_the_first_climb(local: Policy, seed: int) -> None:
    """From the default to the minimum in less than half of the space, whatever the seed."""
    played = play(local, search_over(GRID, seed=seed), hill, 30)

    costs = [hill(trial).makespan_s for trial in played.trials]
    assert min(cost for cost in costs if cost is not None) == 1.0


def test_a_cheaper_neighbour_is_moved_to_at_once(local: Policy) -> None:
    """After a trial that is cheaper than all before it, the next one differs from it in a single tunable."""
    trials = [dict(t.configurations[0]) for t in play(local, search_over(GRID), hill, 30).trials]
    costs = [abs(int(t["a"]) - 5) + abs(int(t["b"]) - 2) for t in trials]

    first_climb = costs.index(0) + 1
    moved = [i for i in range(1, first_climb - 1) if costs[i] < min(costs[:i])]
    assert len(moved) > 1
    assert all(sum(trials[i][name] != trials[i + 1][name] for name in "ab") == 1 for i in moved)


def test_restarts_leave_a_local_minimum(local: Policy) -> None:
    """Random starts reach what no step leads to; the search ends by itself."""
    played = play(local, search_over(GRID), trap)

    assert played.ended
    assert played.best is not None
    assert dict(played.best.configurations[0]) == {"a": 7, "b": 7}


def test_nothing_better_ends_it_before_the_space_does(local: Policy) -> None:
    """Ten climbs in a row without a gain end the search: at most 29 trials each here, of 4,096."""
    played = play(local, search_over(GRID, GRID), lambda _: result(1.0, [1.0, 1.0]))

    assert played.ended
    assert len(played.trials) <= 11 * 29


def test_failures_are_no_place_to_begin(local: Policy) -> None:
    """Where nothing runs, it gives up after a hundred starts instead of walking from failure to failure."""
    space = [candidate(a=value) for value in range(1000)]

    played = play(local, search_over(space, space), lambda _: result(math.inf, [1.0, 1.0], [0]))

    assert played.ended
    assert played.best is None
    assert len(played.trials) == 100


# --- folders of a user: an account without a home directory gets a message -------------------------


VARIABLES = ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")


@pytest.mark.parametrize(
    "words",
    [
        ("history",),
        ("best", *SMALL),
        ("run", *SMALL),
        ("kernels", "list"),
        ("db", "path"),
        ("report",),
        ("doctor",),
    ],
    ids=" ".join,
)
def test_a_user_without_a_home_is_told(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """A user id without an account, as in a container, is told which variable to set."""

    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    result = tuner(*words)

    assert result.exit_code == 2
    assert "has no home directory: set HOME" in result.stderr


# --- temporary folders with an owner: which of them the next process removes -----------------------


PREFIX = "tuner-test-"


def left(name: str, owner: str | None) -> Path:
    """A folder as a killed process leaves it."""
    folder = Path(tempfile.gettempdir(), f"{PREFIX}{name}")
    (folder / "inner").mkdir(parents=True)
    if owner is not None:
        (folder / "owner").write_text(owner)
    return folder


def test_folders_of_dead_processes_are_removed_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who lives, who ran on another host, who has said nothing, and links keep what is theirs."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        was = identity_of(process.pid)
        process.kill()
    dead = left("dead", was)
    kept = [left("living", this_process()), left("unknown", None), left("elsewhere", "other-boot:1:1")]
    link = tmp_path / f"{PREFIX}link"
    link.symlink_to(left("target", None))
    other = tmp_path / "other"
    other.mkdir()

    with owned_folder(PREFIX) as folder:
        assert not dead.exists()
        assert all(one.is_dir() for one in (*kept, link, other))
        assert (Path(folder) / "owner").read_text() == this_process()
    assert not os.path.lexists(folder)
