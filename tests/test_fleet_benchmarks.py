"""The benchmarks of several GPUs: what they work out, and that they run on simulated devices."""

import argparse
import json
import math
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from benchmark_scripts import ROOT, benchmark

from tuner.kernel_files.catalog import Catalog
from tuner.model.trial import Trial
from tuner.search.request import SearchRequest

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
