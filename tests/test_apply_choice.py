"""Which configuration ``tuner.apply`` takes: given, stored or default, and how it says so."""

import logging
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_apply import GPU, Bench
from run_documents import answered, trial

from tuner.database.files import mirror_of
from tuner.database.integrity import checksums
from tuner.database.runs import Store
from tuner.model.errors import InputError, UnknownNameError
from tuner.model.jobs import DeviceIdentity
from tuner.model.plan import Configuration
from tuner.model.records import Conditions, RunStatus


class Tuned:
    """Stores answers of runs for the sums of rows of 64."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._hash = bench.catalog.kernel("sums").fingerprint

    def run(
        self,
        configuration: dict[str, Any],
        *,
        batch: int = 16,
        objective: str = "time",
        status: str = "finished",
        device: DeviceIdentity = GPU,
        clocks: str = "off",
        names: tuple[str, ...] = ("sums:N=64",),
        sources: dict[str, str] | None = None,
    ) -> int:
        conditions = Conditions(
            workloads=tuple((name, batch) for name in names),
            sources={"sums": self._hash} if sources is None else sources,
            device=device,
            objective=objective,
            policy="greedy",
            seed=0,
            clocks=clocks,
            settings={},
            asked=dict.fromkeys(names, 2 * batch),
        )
        with Store(self._bench.database) as store:
            number = store.begin(conditions)
            store.end(number, RunStatus(status), answered(trial(dict.fromkeys(names, configuration))))
        return number


@pytest.fixture
def tuned(bench: Bench) -> Tuned:
    return Tuned(bench)


def configuration(bench: Bench, batch: int = 16, **sizes: Any) -> dict[str, Any]:
    return dict(bench.chosen("sums", bench.array(batch, 64), **sizes).configuration)


ONE, TWO, FOUR = ({"P": P, "L": 32} for P in (1, 2, 4))
DEFAULT = {"P": 2, "L": 64}


def test_default(bench: Bench) -> None:
    """Where nothing is stored the kernel file's default is taken, and no database is made."""
    chosen = bench.chosen("sums", bench.array(16, 64))
    assert str(chosen) == "P=2 L=64 (default)"
    assert not bench.database.exists()


def test_stored(bench: Bench, tuned: Tuned) -> None:
    """A stored answer is taken, and told with its run, objective and batch."""
    number = tuned.run(FOUR)
    chosen = bench.chosen("sums", bench.array(16, 64))
    assert chosen.configuration == Configuration(FOUR)
    assert not chosen.unmeasured
    assert re.fullmatch(
        rf"run {number} of \d{{4}}-\d\d-\d\dT[\d:.+]+, for time at a batch of 16", chosen.origin
    )
    bench.apply("sums", bench.array(16, 64))
    assert bench.cp.kernels["sums"].grids == {(16 * 64 // (4 * 32), 1, 1)}


def test_other_workloads_do_not_answer(bench: Bench, tuned: Tuned) -> None:
    """Answers of far sizes, and of runs with other kernels beside this one, are not taken."""
    tuned.run(FOUR, names=("sums:N=1024",))
    tuned.run(FOUR, names=("sums:N=64", "fft:N=64"))
    tuned.run(FOUR, names=("sums:N=64,form=exclusive",))
    assert configuration(bench) == {"P": 2, "L": 64}
    assert configuration(bench, form="exclusive") == FOUR


def test_near_size(bench: Bench, tuned: Tuned) -> None:
    """Without an answer of this size that of a near one is taken, at as large a share of the file's batch."""
    number = tuned.run(FOUR, names=("sums:N=128",), batch=8)
    chosen = bench.chosen("sums", bench.array(16, 64))
    assert chosen.configuration == Configuration(FOUR)
    assert chosen.origin.startswith(f"nearest: the answer for sums:N=128, run {number} of")
    assert chosen.unmeasured
    assert configuration(bench, 64) == {"P": 2, "L": 64}


@pytest.mark.parametrize(
    "stale",
    [
        {"device": replace(GPU, uuid="GPU-7")},
        {"device": replace(GPU, driver="570.0")},
        {"device": replace(GPU, runtime="13.0")},
        {"sources": {"sums": "another"}},
    ],
)
def test_stale_answers_are_not_taken(bench: Bench, tuned: Tuned, stale: dict[str, Any]) -> None:
    """An answer of another GPU, driver, CUDA or source is as none."""
    tuned.run(FOUR, **stale)
    assert configuration(bench) == {"P": 2, "L": 64}


def test_answers_that_do_not_fit_are_not_taken(bench: Bench, tuned: Tuned) -> None:
    """An answer that is no configuration of the kernel, and one without a best trial, are as none."""
    for odd in ({"P": 3, "L": 32}, {"P": 4}, {"P": 4, "L": 32, "Q": 1}):
        tuned.run(odd)
    with Store(bench.database) as store:
        store.end(tuned.run(FOUR), RunStatus.FINISHED, answered(None, ["sums:N=64"]))
    assert configuration(bench) == {"P": 2, "L": 64}


def test_nearest_batch(bench: Bench, tuned: Tuned) -> None:
    """Of several answers the one whose batch is nearest by ratio is taken; the default before a far one."""
    tuned.run(FOUR, batch=256)
    tuned.run(TWO, batch=16)
    tuned.run(ONE, batch=1)
    wanted = {1: ONE, 8: TWO, 32: TWO, 33: DEFAULT, 200: FOUR, 513: DEFAULT}
    assert {batch: configuration(bench, batch) for batch in wanted} == wanted


@pytest.mark.parametrize(
    ("worse", "better"),
    [
        ({"objective": "energy"}, {"batch": 32}),
        ({"clocks": "1980,1500"}, {}),
        ({"status": "interrupted"}, {}),
    ],
)
def test_better_answers(bench: Bench, tuned: Tuned, worse: dict[str, Any], better: dict[str, Any]) -> None:
    """Tuned for time, with clocks as found, in a finished run: in this order one answer is before another."""
    tuned.run(TWO, **worse)
    assert configuration(bench) == TWO
    tuned.run(FOUR, **better)
    tuned.run(TWO, **worse)
    assert configuration(bench) == FOUR


def test_newest_of_equals(bench: Bench, tuned: Tuned) -> None:
    """Of two answers for the same the newer one is taken."""
    tuned.run(TWO)
    tuned.run(FOUR)
    assert configuration(bench) == FOUR


def test_database_that_cannot_be_read(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """A damaged database costs the tuned configuration, with a warning, and not the call."""
    bench.database.write_text("no database " * 100)
    x = bench.array(16, 64)
    assert np.array_equal(bench.apply("sums", x), np.cumsum(x, axis=1))
    (warning,) = (r for r in caplog.records if r.levelno == logging.WARNING)
    assert "stored configurations are not used" in warning.getMessage()
    assert "not a database" in warning.getMessage()


def test_database_that_may_not_be_seen(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A folder that may not be searched costs the tuned configuration, with a warning, and not the call."""

    def denied(_: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tuner.application.choice.Path.exists", denied)
    assert configuration(bench) == {"P": 2, "L": 64}
    (warning,) = caplog.messages
    assert "stored configurations are not used: [Errno 13]" in warning


@pytest.mark.parametrize(
    "damage",
    [
        """answer = '{"best": {}}'""",
        """answer = '{"best": 3}'""",
        """answer = '{"best": {"configurations": {}}}'""",
        """answer = '{"best": {"configurations": {"sums:N=64": null}}}'""",
        """conditions = replace(conditions, '[["sums:N=64",256]]', '[["sums:N=64",0]]')""",
        """conditions = replace(conditions, '[["sums:N=64",256]]', '[["sums:N=64",1e999]]')""",
        """conditions = replace(conditions, '"clocks"', '"o-clocks"')""",
        """conditions = '{"device": 3}'""",
    ],
)
def test_runs_that_are_not_understood_are_skipped(
    bench: Bench, tuned: Tuned, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    """A run that no version of this program wrote is left out with a warning; the others answer."""
    number = tuned.run(TWO, batch=256)
    for path in (bench.database, mirror_of(bench.database)):
        with closing(sqlite3.connect(path)) as connection, connection:
            checksums.teach(connection)
            changed = connection.execute(f"UPDATE runs SET {damage}")  # noqa: S608 - the text above
            assert changed.rowcount == 1
            checksums.checksum_all(connection)
    tuned.run(FOUR, batch=128)
    assert configuration(bench, 256) == FOUR
    (warning,) = caplog.messages
    assert f"run {number} is not understood and is left as it is" in warning


def test_given(bench: Bench, tuned: Tuned) -> None:
    """A configuration of the caller is taken before any stored one, in any order and of NumPy's numbers."""
    tuned.run(TWO)
    asked = {"L": np.int64(32), "P": np.int32(8)}
    chosen = bench.chosen("sums", bench.array(16, 64), configuration=asked)
    assert str(chosen) == "P=8 L=32 (given)"
    assert {type(value) for value in chosen.configuration.values()} == {int}
    for _ in range(2):
        bench.apply("sums", bench.array(16, 64), configuration=asked)
    assert bench.cp.kernels["sums"].grids == {(4, 1, 1)}


@pytest.mark.parametrize(
    ("asked", "kind", "words"),
    [
        ({"P": 8}, InputError, "configuration: L missing; it names all of P, L"),
        ({"P": 8, "L": 32, "R": 1}, UnknownNameError, "sums has no tunable 'R'; choose from P, L"),
        ({"P": 3, "L": 32}, InputError, "configuration: P is 3; choose from 1, 2, 4, 8"),
        ({"P": "8", "L": 32}, InputError, "configuration: P is '8'; choose from 1, 2, 4, 8"),
        ({"P": 8, "L": 32}, InputError, "configuration: P=8 L=32 breaks the rule 'P <= N' at sums:N=4"),
        ([8, 32], InputError, "configuration maps tunables to values"),
        ({"P": [8], "L": 32}, InputError, "configuration maps tunables to values"),
    ],
)
def test_configurations_that_cannot_be(bench: Bench, asked: Any, kind: type[Exception], words: str) -> None:
    """A configuration that is no configuration of the kernel, or that its rules forbid, is refused."""
    with pytest.raises(kind, match=re.escape(words)):
        bench.apply("sums", bench.array(3, 4), configuration=asked)
    with pytest.raises(kind, match=re.escape(words)):
        bench.chosen("sums", bench.array(3, 4), configuration=asked)
    assert bench.cp.kernels["sums"].runs == 0
