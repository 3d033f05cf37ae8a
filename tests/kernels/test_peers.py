"""What docs/lab/kernels/kernels.md says of peers is what was measured, of kernels as they are."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tuner.kernel_files.catalog import Catalog

ROOT = Path(__file__).parents[2]
RESULTS: dict[str, Any] = json.loads((ROOT / "benchmarks/results/peers-h200.json").read_text())
FAMILIES = sorted({str(row["family"]) for row in RESULTS["rows"]})


@pytest.fixture(scope="module")
def show_peers() -> ModuleType:
    spec = importlib.util.spec_from_file_location("show_peers", ROOT / "benchmarks/kernels/show_peers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_those_of_the_results(show_peers: ModuleType) -> None:
    """The page holds the brief table that the stored results make; the long ones have a line a row."""
    page = (ROOT / "docs/lab/kernels/kernels.md").read_text()
    begin, end = (mark.format("brief ") for mark in show_peers.MARKS)
    assert begin + show_peers.brief(RESULTS) + end in page
    assert show_peers.tables(RESULTS).count(" **no** |") == sum(not row["met"] for row in RESULTS["rows"])


@pytest.mark.parametrize("family", FAMILIES)
def test_the_fastest_configurations_can_still_be_chosen(family: str) -> None:
    """Every configuration a table names is in the space of its kernel."""
    catalog = Catalog.load()
    for row in (row for row in RESULTS["rows"] if row["family"] == family):
        kernel = catalog.kernel(row["kernel"])
        workload = kernel.workload({"N": row["n"]})
        assert kernel.configuration(workload, row["configuration"]) in kernel.space(workload)


def test_every_size_of_every_family_was_measured() -> None:
    """The targets are for every N, so every N has a row of every kernel of its family."""
    wanted = {
        **{kernel: range(6, 14) for kernel in ("scan-lf", "scan-ks", "fft")},
        **{f"tridiag-{method}": range(6, 13) for method in ("cr", "pcr", "lf", "wm")},
        "fft-large": range(14, 24),
    }
    measured = {(row["kernel"], row["n"]) for row in RESULTS["rows"]}
    assert measured == {(kernel, 2**log) for kernel, logs in wanted.items() for log in logs}
    assert all(row["correct"] for row in RESULTS["rows"])


def test_ratios_are_of_times_of_one_run() -> None:
    """A row's best peer is the fastest right one of its run, and all forms of it are on record."""
    for row in RESULTS["rows"]:
        peers = [p for p in RESULTS["peers"] if (p["family"], p["n"]) == (row["family"], row["n"])]
        assert {p["run"] for p in peers} == {row["run"]}
        right = [p for p in peers if p["correct"] and p["peer"] != "bare"]
        best = min(right, key=lambda p: float(p["ms"]))
        assert (row["best_peer"], row["best_peer_form"]) == (best["peer"], best["form"])
        assert row["ratio"] == pytest.approx(best["ms"] / row["ms"])
        for peer in right:
            assert any(tried["form"] in {peer["form"], ""} for tried in peer["tried"])
