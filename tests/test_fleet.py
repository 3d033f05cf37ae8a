"""How the GPUs of a kind differ: groups, spreads, outliers, and what is printed."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from answering_scene import H200, known, store_run
from cli_process import tuner
from rich.console import Console

from tuner.database.answers import StoredAnswer
from tuner.database.runs import Store
from tuner.model.jobs import DeviceIdentity
from tuner.report.lists import fleet_report
from tuner.search.verification import fleet

SCAN, FFT = "scan-lf:N=64", "fft:N=64"


def gpu(number: int, **changes: Any) -> DeviceIdentity:
    return replace(H200, spec=f"cuda:{number}", uuid=f"GPU-{number}", **changes)


def answers(*joules: float, **more: Any) -> list[StoredAnswer]:
    """Answers of as many GPUs of a kind."""
    return [
        known([SCAN], gpu(number), run=number + 1, joules=each, **more) for number, each in enumerate(joules)
    ]


def test_a_gpu_that_needs_more_joules_is_named() -> None:
    """From 5 % above the median of the others on, where that is more than chance."""
    (group,) = fleet(answers(1.0, 1.01, 1.08, 0.99))
    (outlier,) = group.outliers
    assert outlier.uuid == "GPU-2"
    assert outlier.excess == pytest.approx(0.08)
    assert outlier.interval == pytest.approx(1.08 * 1.96 * (2 * 0.001**2 + 2 * 0.005**2) ** 0.5, rel=1e-3)


def test_a_spread_is_of_the_extremes_with_their_interval() -> None:
    """Its interval has those of both, and the repeatability of times or joules twice."""
    (group,) = fleet(answers(1.0, 1.08, 0.99))
    time, energy = group.time_spread, group.energy_spread
    assert energy is not None
    assert energy.value == pytest.approx(1.08 / 0.99 - 1.0)
    assert energy.interval == pytest.approx(1.08 / 0.99 * 1.96 * (2 * 0.001**2 + 2 * 0.005**2) ** 0.5)
    assert time is not None
    assert time.value == 0.0
    assert 0.0 < time.interval < energy.interval
    assert group.document()["energy_spread_interval"] == energy.interval


def test_the_middle_of_an_even_number_is_the_mean_of_two() -> None:
    """Of three GPUs, one is held against the mean of the other two."""
    (group,) = fleet(answers(1.1, 1.0, 1.02))
    (outlier,) = group.outliers
    assert outlier.excess == pytest.approx(1.1 / 1.01 - 1.0)


@pytest.mark.parametrize(("joules", "unsure"), [((1.0, 1.04), 0.001), ((1.0, 1.06), 0.05)])
def test_less_or_chance_is_no_outlier(joules: tuple[float, ...], unsure: float) -> None:
    """Neither 4 %, however sure, nor 6 % that may be nothing."""
    (group,) = fleet(answers(*joules, unsure=unsure))
    assert group.outliers == ()


def test_kinds_and_questions_are_groups_of_their_own() -> None:
    """Another driver, model, workload, batch, objective or choice of clocks is not held against the rest."""
    alike = answers(1.0, 1.0)
    others = [
        known([SCAN], gpu(5, driver="1"), run=5),
        known([SCAN], gpu(6, name="NVIDIA L4"), run=6),
        known([FFT], gpu(7), run=7),
        known([f"{SCAN},batch=7"], gpu(8), run=8),
        known([SCAN], gpu(9), run=9, bound={"objective": "time"}),
        known([SCAN], gpu(10), run=10, bound={"clocks": "auto"}),
    ]
    (group,) = fleet([*alike, *others])
    assert [one.uuid for one in group.gpus] == ["GPU-0", "GPU-1"]
    assert len(fleet([*alike, *others], least=1)) == 7
    assert fleet(alike, [FFT]) == []


def test_the_newest_answer_of_the_newest_sources_counts() -> None:
    """An older answer of a GPU, and answers of a kernel as it was before, are left out."""
    before = known([SCAN], gpu(0), run=9, bound={"sources": {"scan-lf": "before"}})
    old, *_ = answers(3.0)
    new = [replace(one, run=one.run + 10) for one in answers(1.0, 1.0)]
    (group,) = fleet([before, old, *new])
    assert [one.run for one in group.gpus] == [11, 12]


def test_the_command_tells_spread_and_outliers(tmp_path: Path) -> None:
    """It works from the database, with --json too."""
    path = tmp_path / "tuner.db"
    with Store(path) as store:
        for number, joules in enumerate((1.0, 1.01, 1.2)):
            store_run(store, [SCAN], gpu(number), joules=joules)
    shown = tuner("fleet", "--database", path)
    assert shown.exit_code == 0
    assert "the GPUs differ in time by 0.0 ± 0.6 % and in energy by 20.0 ± 1.7 %" in shown.stdout
    assert "outlier: GPU-2 (this host cuda:2) needs 19.4" in shown.stdout
    (group,) = json.loads(tuner("fleet", SCAN, "--database", path, "--json", "-").stdout)["fleet"]
    assert group["kind"] == {"model": H200.name, "driver": H200.driver}
    assert [one["energy_j"] for one in group["gpus"]] == [1.0, 1.01, 1.2]
    assert group["gpus"][0]["energy_interval_j"] == pytest.approx(1.96 * 0.001)
    assert [one["uuid"] for one in group["outliers"]] == ["GPU-2"]


def test_the_command_tells_one_answer_from_a_workload_that_is_not_stored(tmp_path: Path) -> None:
    """The first is no error; the second may be a slip of the pen, and has the nearest name."""
    path = tmp_path / "tuner.db"
    with Store(path) as store:
        store_run(store, [FFT], gpu(0), joules=1.0)
    assert "has answers of two GPUs of a kind" in tuner("fleet", FFT, "--database", path).stdout
    wrong = tuner("fleet", "fft:N=6", "--database", path)
    assert wrong.exit_code == 2
    assert "fft:N=6: no answer of it is stored; did you mean 'fft:N=64'?" in wrong.stderr


def test_the_table_has_the_host_of_each_gpu() -> None:
    """A pool has told it, or it is where the run was merged from; else it is this host."""
    first, second, third = answers(1.0, 1.0, 1.0)
    hosts = (first, replace(second, merged_from="ssh:node7"), replace(third, host="node8"))
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(fleet_report(fleet(hosts), 100))
    rows = [line.split()[:4] for line in console.export_text().splitlines() if "GPU-" in line]
    assert rows == [
        ["GPU-0", "this", "host", "cuda:0"],
        ["GPU-1", "ssh:node7", "cuda:1", "2"],
        ["GPU-2", "node8", "cuda:2", "3"],
    ]
