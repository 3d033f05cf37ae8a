"""How the GPUs of a kind differ: groups, spreads, outliers, and what is printed."""

import argparse
import io
import json
import math
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from answering_scene import H200, known, store_run
from benchmark_scripts import ROOT, benchmark
from cli_process import tuner
from rich.console import Console

from tuner.database.answers import StoredAnswer
from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.model.jobs import DeviceIdentity
from tuner.model.trial import Trial
from tuner.report.lists import fleet_report
from tuner.search.request import SearchRequest
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
        known([SCAN], gpu(9), run=9, bound={"objective": "energy"}),
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


# --- the benchmarks of several GPUs: what they work out, and that they run on simulated devices ----


sys.path.append(str(ROOT / "benchmarks"))
neighbour = benchmark("neighbour_influence")
verification = benchmark("verification")


def windows(*energies_j: float) -> list[Any]:
    """Windows in the order of the benchmark."""
    order = neighbour.order_of(len(energies_j) // 2)
    return [neighbour.Window(on, joules, 1.0, 100.0) for on, joules in zip(order, energies_j, strict=True)]


def energy(window: Any) -> float:
    return float(window.energy_j)


def test_every_other_pair_begins_with_the_load() -> None:
    """A steady drift then cancels: of a load without influence, the mean difference is next to nothing."""
    assert neighbour.order_of(2) == [False, True, True, False]
    drift = windows(*(100.0 * 1.001**number for number in range(8)))
    assert abs(neighbour.influence(drift, energy).mean) < 1e-5


def test_the_interval_is_that_of_paired_differences() -> None:
    """A change of 2 ± 1 % in each of four pairs has Student's interval of three degrees of freedom."""
    found = neighbour.influence(windows(100.0, 101.0, 103.0, 100.0, 100.0, 101.0, 103.0, 100.0), energy)
    assert (found.mean, found.pairs) == (pytest.approx(0.02), 4)
    assert found.interval == pytest.approx(3.182 * 0.011547 / 2.0, rel=1e-3)
    assert found.beyond_chance
    assert neighbour.Change(0.01, 0.02, 4).beyond_chance is False
    assert math.isinf(neighbour.change([1.0], [2.0]).interval)


def test_the_control_is_of_idle_windows_beside_each_other() -> None:
    """Where two pairs meet with the neighbour idle both times, nothing should change."""
    found = neighbour.control(windows(1.0, 9.0, 9.0, 2.0, 3.0, 9.0, 9.0, 4.0, 5.0, 9.0), energy)
    assert (found.mean, found.pairs) == (pytest.approx((3.0 / 2.0 + 5.0 / 4.0) / 2.0 - 1.0), 2)
    assert neighbour.control(windows(1.0, 2.0, 3.0, 4.0), energy) is None


def ran(script: Any, monkeypatch: pytest.MonkeyPatch, out: Path, *words: str) -> dict[str, Any]:
    monkeypatch.setattr(sys, "argv", [script.__file__, *words, "--out", str(out)])
    script.main()
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def test_simulated_neighbours_do_not_disturb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models share nothing: times do not change, and joules within their noise; all is marked modelled."""
    words = ("--device", "sim:k40c", "--neighbour", "sim:k40c.2", "--pairs", "4", "--window", "0.5")
    names = ("--workload", "scan-lf:N=64", "--load", "scan-lf:N=64")
    found = ran(neighbour, monkeypatch, tmp_path / "out.json", *words, *names)
    assert found["modelled"] is True
    assert len(found["windows"]) == 8
    assert abs(found["change_by_load"]["energy"]["mean"]) < 0.02
    assert "date" in found["provenance"]


def test_one_gpu_has_no_neighbour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same GPU under both names is refused, with its UUID."""
    with pytest.raises(SystemExit, match="are the same GPU"):
        ran(neighbour, monkeypatch, tmp_path / "out.json", "--device", "sim:k40c", "--neighbour", "sim:k40c")


def document(policy: str, energy_j: float, tuning_j: float) -> dict[str, Any]:
    """What the benchmark reads of a run."""
    best = {
        "configurations": {"scan-lf:N=64": {"P": 4}},
        "clock_mhz": None,
        "time_s": 1.0,
        "energy_j": energy_j,
    }
    return {
        "policy": policy,
        "space": {"measured": 3},
        "wall_s": tuning_j / 100.0,
        "wall": {"windows_s": tuning_j / 200.0, "checks_s": 0.0},
        "tuning_energy_j": tuning_j,
        "tuning_energy_j_uncertainty": 1.0,
        "best": best,
        "modelled": True,
    }


def test_verifying_is_held_against_searching(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The search on the second GPU knows the first one's run, as the verification does."""
    asked: list[tuple[str, str, bool]] = []

    def tuned(folder: Path, database: Path, workload: str, device: str, *words: str) -> dict[str, Any]:
        del folder, workload
        for ending in ("", ".mirror"):
            Path(f"{database}{ending}").touch()
        asked.append((database.name, device, "--verify" in words))
        return document("verify", 1.0, 100.0) if "--verify" in words else document("auto", 1.0, 700.0)

    monkeypatch.setattr(verification, "tuned", tuned)
    options = argparse.Namespace(objective="energy", policy="auto", window=None)
    row = verification.compared(tmp_path, "scan-lf:N=64", ("cuda:0", "cuda:1"), options)
    assert asked == [
        ("known.db", "cuda:0", False),
        ("again.db", "cuda:1", False),
        ("known.db", "cuda:1", True),
    ]
    assert row["times_less"] == {"wall_s": 7.0, "gpu_s": 7.0, "energy_j": 7.0}
    assert verification.told(row).endswith("7.0 x fewer seconds in all; the same answer (modelled)")


def test_answers_take_turns(tmp_path: Path) -> None:
    """Two answers of a workload are compared on one GPU, by the ratio of their costs."""
    kernel = Catalog.load().kernel("scan-lf")
    found = list(islice(kernel.space(Catalog.load().workload("scan-lf:N=64")), 2))
    request = SearchRequest(workloads=("scan-lf:N=64",))
    turns = verification.contest(tmp_path, "sim:k40c", request, [Trial((one,)) for one in found])
    assert turns["same"] is False
    assert turns["ratio"] > 0.0
    assert turns["interval"] > 0.0
