"""The benchmark of modelled embedded GPUs, and its table beside a recorded GPU."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmark_scripts import ROOT, benchmark
from linalg_large import kernel_of

from tuner.devices.simulated.time_model import stage_shares


@pytest.fixture(scope="module")
def modelled() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks" / "kernels"))
        yield benchmark("kernels/linalg_modelled")


@pytest.fixture
def show(modelled: Any) -> Any:
    del modelled
    return benchmark("kernels/show_linalg_modelled")


def test_rates_of_a_modelled_gpu(modelled: Any, tmp_path: Path) -> None:
    """A factorisation is slower than a product, which has the rate of its operations; both are labelled."""
    out = tmp_path / "modelled.json"
    words = ["--device", "sim:jetson-orin", "--only", "potrf", "--n", "256", "--configurations", "0"]
    assert modelled.main([*words, "--out", str(out)]) == 0
    document = json.loads(out.read_text())
    assert document["modelled"]
    product, factor = document["rows"]
    assert product["gflops"] == pytest.approx(2 * 256**3 / (product["ms"] * 1e6))
    assert 0 < factor["gflops"] < product["gflops"]
    assert factor["configuration"]["IB"] in {32, 64}


def test_only_modelled_devices(modelled: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A device that is none is refused before anything runs."""
    assert modelled.main(["--device", "sim:nothing"]) == 2
    assert "sim:nothing" in capsys.readouterr().err


def test_a_table_beside_a_recorded_gpu(show: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each row says whether its numbers are modelled or recorded; what is not there is a dash."""
    rows = [
        {"name": "TX1 (modelled)", "operation": name, "n": 512, "gflops": rate}
        for name, rate in (("gemm", 316), ("potrf", 150.25))
    ]
    given = tmp_path / "modelled.json"
    given.write_text(json.dumps({"modelled": True, "dtype": "float32", "rows": rows}))
    best = {"best": {"tflops": 2.5}, "gemm": {"tflops": 16.0}}
    large = tmp_path / "large.json"
    row = {"operation": "potrf", "dtype": "float32", "n": 1024, **best}
    provenance = {"gpus": [{"name": "H200", "driver_version": "580"}], "date": "2026-11-26"}
    libraries = {"cuBLAS": "1", "cuSOLVER": "2"}
    large.write_text(json.dumps({"provenance": provenance, "libraries": libraries, "rows": [row]}))
    assert show.main([str(given), "--recorded", str(large)]) == 0
    told = capsys.readouterr().out
    assert "| TX1 (modelled) | 512 | 316 | 150 | – | – |" in told
    (line,) = [one for one in told.splitlines() if "recorded" in one]
    assert line.endswith("recorded | 1024 | 16000 | 2500 | – | – |")


def test_results_of_other_scripts_are_refused(
    show: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file is named."""
    other = tmp_path / "other.json"
    other.write_text("{}")
    assert show.main([str(other)]) == 2
    assert "other.json: no result of linalg_modelled.py" in capsys.readouterr().err


def test_what_launches_of_a_panel_move() -> None:
    """A panel moves its own columns, and not the whole matrix."""
    kernel = kernel_of("potrf")
    workload = kernel.workload({"n": 1024, "dtype": "float32"}, 1)
    plan = kernel.plan(workload, kernel.default(workload))
    shares = [
        share for stage, share in zip(plan.stages, stage_shares(plan), strict=True) if stage.name == "panel"
    ]
    assert plan.stages[1].name == "panel"
    assert plan.stages[1].moved_bytes == 2 * 4 * 64 * 1024
    assert shares[-1].bytes == pytest.approx(shares[0].bytes * 64 / 1024)
    assert sum(share.bytes for share in shares) < 4 * 4 * 1024**2
