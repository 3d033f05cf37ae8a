"""``tuner`` as a user calls it: in this process, or as a process of its own."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from prepared_process import PreparedProcess

from tuner.cli.main import main

COMMAND = (sys.executable, "-c", "from tuner.__main__ import main; main()")
PATIENCE_S = 120.0  # for what must come; never waited for in full unless something is broken
TX1 = ("--device", "sim:jetson-tx1")
SMALL = ("scan-lf:N=4", *TX1, "--objective", "energy")
FAULTY = Path(__file__).parent / "faulty" / "kernel.toml"


def tuner(*words: str | Path) -> Result:
    """Call the command in this process; an exception that is no message of it is raised here."""
    return CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False, prog_name="tuner")


def document(*words: str | Path) -> dict[str, Any]:
    """What the command writes to standard output with ``--json -``; it must end well."""
    result = tuner(*words, "--json", "-")
    assert result.exit_code == 0, result.stderr
    return dict(json.loads(result.stdout))


def begun(
    *words: str | Path,
    code: str = COMMAND[2],
    environment: Mapping[str, str] | None = None,
    joined: bool = False,
    output: int | None = None,
) -> subprocess.Popen[str]:
    """The command as a process of its own, whose outputs are pipes to here; its imports are done.

    Args:
        words: of the command.
        code: Python that calls it.
        environment: in place of this process's.
        joined: standard error goes where standard output goes.
        output: descriptor of its standard output in place of a pipe; stays open here.
    """
    (reads, writes), (errors, warns) = os.pipe(), os.pipe()
    descriptors = {1: writes if output is None else output, 2: writes if joined else warns}
    process = PreparedProcess(code, [*map(str, words)], descriptors, environment or os.environ)
    for descriptor in (writes, warns):
        os.close(descriptor)
    process.stdout, process.stderr = (os.fdopen(one, encoding="utf-8") for one in (reads, errors))
    return process


def rows(database: Path, table: str = "trials") -> int:
    """Rows of a table of a database that another process may be writing; 0 while there is none."""
    if not database.exists():
        return 0
    try:
        with closing(sqlite3.connect(database)) as connection:
            return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608
    except sqlite3.OperationalError:
        return 0


def await_rows(process: subprocess.Popen[str], database: Path, count: int) -> None:
    """Return when the process, which must be alive, has stored so many trials."""
    while rows(database) < count:
        try:
            process.wait(0.02)
        except subprocess.TimeoutExpired:
            continue
        raise AssertionError(f"it ended with {process.returncode}: {process.communicate()}")


def refused(db: Path, words: tuple[str | Path, ...], *says: str, code: int = 2) -> None:
    """The run ends with the code and a message that says all this, and stores nothing."""
    target = db.with_name("refused.json")
    result = tuner("run", "--database", db, "--json", target, *words)

    assert result.exit_code == code, result.output
    for part in says:
        assert part in " ".join(result.stderr.split())
    assert "Traceback" not in result.output
    assert result.stdout == ""
    assert not target.exists()
    assert rows(db, "runs") == 0
