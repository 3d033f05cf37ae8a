"""``tuner db check``, ``repair`` and ``isolated``: row by row, and nothing is changed by looking."""

import json
import os
import resource
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from answering_scene import conditions, document
from cli_process import tuner

from tuner.database.connection import Database
from tuner.database.files import mirror_of
from tuner.database.integrity.checksums import Examination, RowRepair
from tuner.database.runs import Store
from tuner.model.errors import InputError
from tuner.model.records import RunStatus
from tuner.recordings.files import write
from tuner.report.lists import sentences

NAMES = ("scan-lf:N=4",)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with three runs, in the files alone."""
    path = tmp_path / "tuner.db"
    with closing(Store(path)) as store:
        for place in range(3):
            store.end(store.begin(conditions(NAMES)), RunStatus.FINISHED, document(NAMES, place=place))
    return path


def change(path: Path, old: bytes, new: bytes) -> None:
    """Replace one text of a file, which stays readable."""
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))


DAMAGES: tuple[tuple[str, Callable[[Path], None]], ...] = (
    ("text", lambda path: change(path, b'"r":', b'"q":')),
    ("no text", lambda path: change(path, b'"protocol"', b'"prot\xffcol"')),
)


@pytest.mark.parametrize("damage", [one for _, one in DAMAGES], ids=[name for name, _ in DAMAGES])
def test_a_row_is_taken_from_the_mirror(path: Path, damage: Callable[[Path], None]) -> None:
    """The check names it, changes nothing and ends with 1; the repair says where it took it from."""
    whole = tuner("db", "check", "--database", path)
    assert (whole.exit_code, "whole" in whole.stdout) == (0, True)
    damage(path)
    before = path.read_bytes()

    checked = tuner("db", "check", "--database", path)
    assert checked.exit_code == 1
    assert "taken from the mirror" in checked.stdout
    assert "tuner db repair" in checked.stderr
    assert path.read_bytes() == before
    shown = json.loads(tuner("db", "check", "--database", path, "--json", "-").stdout)
    assert [repair["table"] for repair in shown["repaired"]] == ["runs"]
    assert not shown["whole"]

    repaired = tuner("db", "repair", "--database", path)
    assert repaired.exit_code == 0
    assert "taken from the mirror" in repaired.stdout
    assert tuner("db", "check", "--database", path).exit_code == 0
    assert len(json.loads(tuner("history", "--database", path, "--json", "-").stdout)["runs"]) == 3


def test_a_row_that_neither_has_is_kept_aside(path: Path, tmp_path: Path) -> None:
    """It is listed and can be exported; the other rows are served."""
    for file in (path, mirror_of(path)):
        change(file, b'"r":', b'"q":')
    checked = tuner("db", "check", "--database", path)
    assert checked.exit_code == 1
    assert "kept aside" in checked.stdout

    assert tuner("db", "repair", "--database", path).exit_code == 0
    listed = tuner("db", "isolated", "--database", path, "--output", tmp_path / "aside.json")
    (row,) = json.loads((tmp_path / "aside.json").read_text())["isolated"]

    assert f"runs {row['key'][0]}: " in listed.stdout
    assert '"q":' in row["database"]["answer"]
    assert row["mirror"] == row["database"]
    assert len(json.loads(tuner("history", "--database", path, "--json", "-").stdout)["runs"]) == 2


def test_a_repair_that_fails_ends_as_the_check_does(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where no mirror can be written, as on a full disk, the repair calls nothing whole."""
    mirror_of(path).unlink()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, hard))
    try:
        assert path.stat().st_size > 40_000
        repaired = tuner("db", "repair", "--database", path)
        checked = tuner("db", "check", "--database", path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert repaired.exit_code == checked.exit_code == 1
    assert repaired.stdout == checked.stdout
    assert "mirror are whole" not in repaired.stdout
    assert "tuner db repair" in checked.stderr
    assert "tuner db repair" not in repaired.stderr  # which has just failed
    assert "nothing can be stored" in caplog.text
    again = json.loads(tuner("db", "repair", "--database", path, "--json", "-").stdout)
    assert (again["whole"], again["left"]["whole"]) == (False, True)


def test_nothing_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a database there is nothing to look at, and none is made."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    assert "nothing to check" in tuner("db", "check").stdout
    assert "nothing to repair" in tuner("db", "repair").stdout
    assert "no row is kept aside" in tuner("db", "isolated").stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "says"),
    [("copy", "is there already, and is no database"), ("export", "is there already, and is no recording")],
)
def test_a_file_of_another_kind_is_not_replaced(path: Path, tmp_path: Path, command: str, says: str) -> None:
    """A slip of the pen costs no source."""
    source = tmp_path / "my.cu"
    source.write_text("__global__ void k() {}")
    refused = tuner("db", command, "--output", source, "--database", path)

    assert refused.exit_code == 2
    assert f"--output {source}: {says}" in refused.stderr
    assert source.read_text() == "__global__ void k() {}"


@pytest.mark.parametrize("command", ["copy", "export"])
def test_a_device_is_not_replaced(path: Path, tmp_path: Path, command: str) -> None:
    """A pipe or a device such as /dev/null stays what it is, for root too."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    result = tuner("db", command, "--output", pipe, "--database", path)

    assert result.exit_code == 2
    assert pipe.is_fifo()


def test_a_recording_replaces_no_device(tmp_path: Path) -> None:
    """Whoever writes it: the message names the path."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="pipe: is a device or a pipe; name a file"):
        write(pipe, [])
    assert pipe.is_fifo()


def test_an_earlier_copy_is_replaced(path: Path, tmp_path: Path) -> None:
    """As of a host that others merge from again and again."""
    words = ("db", "copy", "--output", tmp_path / "copy.db", "--database", path)

    assert [tuner(*words).exit_code for _ in range(2)] == [0, 0]


def test_many_rows_are_summed_up() -> None:
    """Five rows of a table are named one by one; of more, how many there were."""
    repairs = tuple(RowRepair("trials", (1, number), "mirror") for number in range(1, 1201))
    few = (RowRepair("runs", (7,), "backup of 2026-01-31"), RowRepair("runs", (8,), "database"))

    assert sentences(Examination(9, repairs + few)) == [
        "trials: 1,200 rows, from 1, 1 to 1, 1200, taken from the mirror",
        "runs 7: taken from the backup of 2026-01-31",
        "runs 8: taken from the database",
    ]


def test_the_repair_tells_what_opening_has_put_right(path: Path) -> None:
    """Opening a database heals it already, and that is said too."""
    path.write_bytes(path.read_bytes()[:5000])
    found: list[Examination] = []
    with Database(path, found.append) as database:
        assert database.examine().whole

    assert [one.whole for one in found] == [False]
