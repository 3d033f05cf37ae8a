"""The benchmark of all blocks of large factorisations, on a fake GPU."""

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fake_cupy
import host_build
import numpy as np
import pytest
import rodinia_machine
from benchmark_scripts import ROOT, benchmark
from fake_cuda import LIMITS
from fake_linalg_large import HostLibraries, LargeFakeLibrary
from linalg_large import kernel_of
from test_linalg_peers import HostCompiler

N, PANEL_S = 40, 1e-5
on_host = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


@pytest.fixture(scope="module")
def blocks() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks" / "kernels"))
        yield benchmark("kernels/linalg_blocks")


@pytest.fixture
def measured(blocks: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Runs the script on a fake GPU whose kernels are computed on the host."""
    cp = rodinia_machine.ComputingCupy()
    cp.current_stream()
    library = LargeFakeLibrary(cp, 1e-3)
    made = blocks.LargeLibraries
    monkeypatch.setattr(fake_cupy, "__getattr__", lambda name: getattr(np, name), raising=False)
    monkeypatch.setattr("tuner.devices.cuda.code.GpuLibraries", HostLibraries)
    monkeypatch.setattr(blocks.probe, "open_cupy", lambda _: cp)
    monkeypatch.setattr(blocks.probe, "gpu_limits", lambda *_: LIMITS)
    monkeypatch.setattr(blocks, "Compiler", lambda _: HostCompiler(cp, PANEL_S))
    monkeypatch.setattr(blocks, "LargeLibraries", lambda _: made(cp, library, library))
    monkeypatch.setattr("linalg_contest._LEAD_BYTES", 1)
    monkeypatch.setattr("cold_timing.FLUSH_BYTES", 1)

    def run(*words: str) -> dict[str, Any]:
        out = tmp_path / "blocks.json"
        assert blocks.main(["--n", str(N), "--dtype", "float32", "--out", str(out), *words]) == 0
        found: dict[str, Any] = json.loads(out.read_text())
        return found

    return run


@on_host
def test_every_configuration_is_measured(measured: Any) -> None:
    """A space has the time of each configuration, that of its panels, and the default judged right."""
    (row,) = measured("--only", "potrf")["rows"]
    assert {one["configuration"]["width"] for one in row["measured"]} == {4, 8}
    assert all(one["ms"] > 0 for one in row["measured"])
    assert row["wrong"] == []
    assert row["default"]["correct"]
    steps = -(-N // 32)
    for one in row["panels"]:
        assert "NB" not in one["configuration"]
        assert one["ms"] == pytest.approx(1e3 * steps * PANEL_S)


def measured_row(n: int, best_block: int) -> dict[str, Any]:
    """A space of potrf whose time only depends on NB, and is least at a block."""
    tunables = itertools.product((64, 128, 256), (32, 64), (4, 8), (128,), (1,), (0,))
    names = ("NB", "IB", "width", "threads", "parts", "ahead")
    rows = [dict(zip(names, values, strict=True)) for values in tunables]
    measured = [{"configuration": one, "ms": 1.0 if one["NB"] == best_block else 2.0} for one in rows]
    return {"operation": "potrf", "dtype": "float32", "n": n, "measured": measured, "turns": []}


def test_choices_that_nobody_measured(
    blocks: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Phi is the harmonic mean of efficiencies; a rule did not see the order that it is judged at."""
    path = tmp_path / "blocks.json"
    rows = [measured_row(n, n // 8) for n in (512, 1024, 2048)]
    path.write_text(json.dumps({"rows": rows}))
    assert blocks.main(["--judge", str(path)]) == 0
    lines = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert [(line[0], line[4]) for line in lines[2:5]] == [
        ("| 512", "1.000"),
        ("| 1024", "1.000"),
        ("| 2048", "1.000"),
    ]
    efficiencies = [float(line[2]) for line in lines[2:4]]
    assert efficiencies == [1.0, 0.5]  # the default has NB = 64 at both


@pytest.mark.parametrize("name", ["potrf", "getrf", "geqrf"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_stated_answers_are_configurations(name: str, dtype: str) -> None:
    """At orders small and large, between powers of two, too."""
    kernel = kernel_of(name)
    for n in (*range(1, 300, 7), 511, 512, 1000, 1025, 3000, 4097, 6000, 8193, 12000, 16385, 20000, 32768):
        workload = kernel.workload({"n": n, "dtype": dtype})
        assert kernel.stated(workload) in kernel.space(workload), n


@on_host
def test_a_run_goes_on_where_it_was_cut_short(measured: Any) -> None:
    """What the time did not suffice for is named, and measured next time; what is there stays."""
    cut = measured("--only", "potrf", "--limit", "1e-9")
    assert [one["operation"] for one in cut["left_out"]] == ["potrf"]
    first = measured("--only", "potrf")
    again = measured("--only", "potrf")
    assert again["rows"] == first["rows"]
    assert len(again["runs"]) == 3
    assert again["left_out"] == []
