"""Tables and picture of large factorisations and of joules, from stored results."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmark_scripts import ROOT, benchmark


@pytest.fixture(scope="module")
def show() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks" / "kernels"))
        yield benchmark("kernels/linalg_large")


def document_of(*rows: dict[str, Any], **changes: Any) -> dict[str, Any]:
    gpu = {"name": "A GPU", "driver_version": "580.1"}
    provenance = {"gpus": [gpu], "date": "2026-11-23T10:00:00+00:00"}
    return {"provenance": provenance, "libraries": {"cuSOLVER": "12000"}, "rows": list(rows), **changes}


def timed(ms: float, tflops: float, **more: Any) -> dict[str, Any]:
    return {"us": 1e3 * ms, "spread_us": 2.0, "tflops": tflops, "graph": True, "error": 0.2, **more}


def large_row(n: int, peer_ms: float | None, own_ms: float) -> dict[str, Any]:
    """A row of linalg_large.py."""
    own = timed(own_ms, 3.0, configuration={"NB": 64, "ahead": 1})
    peer = None
    if peer_ms is not None:
        peer = timed(peer_ms, 2.0, form="64-bit", name="cuSOLVER getrf")
        peer["graph"] = False
        own["ratio"] = {"median": peer_ms / own_ms, "low": 1.1, "high": 1.3}
    met = None if peer_ms is None else peer_ms / own_ms >= 1.2
    row = {"operation": "getrf", "dtype": "float64", "n": n, "least": 1.2, "met": met}
    return {**row, "peer": peer, "gemm": timed(0.1, 50.0), "default": own, "analytical": None, "best": own}


def figure(value: float) -> dict[str, float]:
    return {"value": value, "half": 0.01 * value}


def energy_row(*, same: bool) -> dict[str, Any]:
    """A row of linalg_energy.py."""

    def one(joules: float, name: str, **configuration: int) -> dict[str, Any]:
        keys = ("gross_j", "net_j", "w", "gflops_per_w")
        found = {key: figure(joules * scale) for key, scale in zip(keys, (1, 0.5, 100, 10), strict=True)}
        return {**found, "us": 1e4, "name": name, "configuration": configuration, "net_gflops_per_w": None}

    row: dict[str, Any] = {"operation": "potrf", "dtype": "float32", "n": 1024, "default": None, "same": same}
    row |= {
        "peer": one(4.0, "cuSOLVER potrf"),
        "fastest": one(2.0, "a", NB=64),
        "thriftiest": one(1.5, "b", NB=128),
    }
    row |= {"gain": figure(2.5), "idle_w": figure(123.0), "notes": ["too-short: a window"]}
    return {**row, "counted": [{"device": "cuda:0", "scope": "gpu", "sensor": "nvml-power-ring"}]}


def test_tables_of_times_and_joules(show: Any, tmp_path: Path) -> None:
    """Both kinds of results are told apart, later files count, and the page keeps what stands around."""
    page = tmp_path / "page.md"
    page.write_text(f"before\n{'old'.join(show.LARGE)}{'old'.join(show.ENERGY)}after\n")
    documents = (
        document_of(large_row(1024, 2.0, 1.0), large_row(512, 2.0, 1.0), large_row(2048, None, 1.0)),
        document_of(large_row(1024, 1.1, 1.0)),
        document_of(energy_row(same=False), scope="gpu"),
    )
    paths = [tmp_path / f"{place}.json" for place in range(len(documents))]
    for path, document in zip(paths, documents, strict=True):
        path.write_text(json.dumps(document))
    assert show.main(["--show", *map(str, paths), "--docs", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "1 of 2 targets are met." in text
    rows = [line for line in text.splitlines() if line.startswith(("| getrf, ", "| potrf, "))]
    assert rows[0].startswith("| getrf, float64 | 1024 | 1.100 ± 0.002 | 1.000 ± 0.002 | – | 1.000 ± 0.002 |")
    assert rows[0].endswith("| 1.10 (1.10–1.30) | ≥ 1.2 × | **no** | – |")
    assert rows[1].startswith("| getrf, float64 | 2048 | – |")
    assert (
        "Counted: cuda:0, gpu, by nvml-power-ring. The idle GPU took 123 to 123 W.\ntoo-short: a window.\n"
        in text
    )
    assert rows[2:] == [
        "| potrf, float32 | 1024 | 4 ± 0.04 | – | 1.5 ± 0.01 | – | 2.5 ± 0.03 | – |",
    ]
    assert show.times_table([]) == show.joules_table([]) == show.UNMEASURED


def test_the_hybrid_scheme_has_a_column(show: Any) -> None:
    """With what computed on the CPU above the table."""
    hybrid = timed(4.0, 0.5, configuration={"NB": 128, "threads": 0}, of_peer=0.5, of_gpu_only=0.25)
    cpu = {"blas": "SciPy's BLAS (openblas 0.3)", "threads": 1}
    text = show.times_table([document_of({**large_row(1024, 2.0, 1.0), "hybrid": hybrid}, cpu=cpu)])
    assert "| yes | 0.50 |" in text
    assert "Hybrid: CPU, SciPy's BLAS (openblas 0.3), 1 thread.\n" in text
    energy = energy_row(same=True)
    found = show.joules_table([document_of({**energy, "hybrid": energy["thriftiest"]}, scope="gpu")])
    assert "| potrf, float32 | 1024 | 4 ± 0.04 | – | 2 ± 0.02 | 1.5 ± 0.01 |" in found


def test_the_net_ratio_has_the_intervals_of_both(show: Any) -> None:
    """Net operations for a joule by the library's; half-widths of 1 % each make one of 1.4 %."""
    row = energy_row(same=True)
    for name, net in (("peer", 20.0), ("fastest", 30.0)):
        row[name] = {**row[name], "net_gflops_per_w": figure(net)}
    text = show.joules_table([document_of(row, scope="gpu")])
    assert "| 2.5 ± 0.03 | 1.5 ± 0.02 |" in text


def test_pages_without_a_place_and_results_without_rows_are_refused(
    show: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is written to the page, and nothing is drawn."""
    page, results = tmp_path / "page.md", tmp_path / "rows.json"
    page.write_text("nothing\n")
    results.write_text(json.dumps(document_of()))
    assert show.main(["--show", str(results), "--docs", str(page), "--plot", str(tmp_path / "a.svg")]) == 2
    assert page.read_text() == "nothing\n"
    assert not (tmp_path / "a.svg").exists()
    told = capsys.readouterr()
    assert told.out.count("Not measured yet.") == 2
    assert "needs the lines <!-- brief linalg large --> and" in told.err
    assert "no row of linalg_large.py to draw" in told.err


def test_the_page_shows_the_stored_results(show: Any) -> None:
    """The tables of the page are those of the files, or it says that there are none."""
    results = ROOT / "benchmarks" / "results"
    stored = sorted((*results.glob("linalg-large-*.json"), *results.glob("linalg-energy-*.json")))
    documents = [json.loads(path.read_text()) for path in stored]
    page = (ROOT / "docs/lab/kernels/linear-algebra.md").read_text()
    for lines, table in ((show.LARGE, show.times_table), (show.ENERGY, show.joules_table)):
        assert table(documents).join(lines) in page


def test_the_picture_has_a_line_of_each(show: Any, tmp_path: Path) -> None:
    """The kernel, cuSOLVER and gemm over the order; the same results give the same file."""
    pytest.importorskip("matplotlib")
    rows = document_of(large_row(1024, 2.0, 1.0), large_row(2048, 3.0, 1.0))
    first, second = tmp_path / "a.svg", tmp_path / "b.svg"
    assert show.picture([rows], first)
    assert show.picture([rows], second)
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes().startswith(b"<?xml")
