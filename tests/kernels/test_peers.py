"""What docs/lab/kernels/kernels.md says of peers is what was measured, of kernels as they are."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmark_scripts import benchmark, siblings_importable

from tuner.kernel_files.catalog import Catalog

ROOT = Path(__file__).parents[2]
RESULTS: dict[str, Any] = json.loads((ROOT / "benchmarks/results/peers-h200.json").read_text())
FAMILIES = sorted({str(row["family"]) for row in RESULTS["rows"]})


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with siblings_importable(monkeypatch):
        yield benchmark("kernels/peers")


def test_the_table_is_that_of_the_results(peers: Any) -> None:
    """The page holds the table that the stored results make."""
    page = (ROOT / "docs/lab/kernels/kernels.md").read_text()
    assert benchmark("headlines").marked("brief peers", peers.brief(RESULTS)) in page


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
    """A row's best peer is the fastest right one of its run, and what was tried is counted."""
    for row in RESULTS["rows"]:
        peers = [p for p in RESULTS["peers"] if (p["family"], p["n"]) == (row["family"], row["n"])]
        assert {p["run"] for p in peers} == {row["run"]}
        right = [p for p in peers if p["correct"] and p["peer"] != "bare"]
        best = min(right, key=lambda p: float(p["ms"]))
        assert (row["best_peer"], row["best_peer_form"]) == (best["peer"], best["form"])
        assert row["ratio"] == pytest.approx(best["ms"] / row["ms"])
        assert all(peer["forms_tried"] > 0 for peer in right)
