"""The benchmark against cuSOLVER's factorisations of one large matrix: calls, rows and targets on a fake."""

import json
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import fake_cupy
import host_build
import numpy as np
import pytest
import rodinia_machine
from benchmark_scripts import ROOT, benchmark
from fake_cuda import LIMITS
from fake_driver import FakeLibrary
from fake_linalg_large import HostLibraries, LargeFakeLibrary
from numpy.typing import NDArray
from test_linalg_peers import HostCompiler

from tuner.devices.cuda.driver import DriverCalls

N, OURS_S, THEIRS_S = 40, 1e-5, 3e-3
on_host = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


@pytest.fixture(scope="module")
def large() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks" / "kernels"))
        yield benchmark("kernels/linalg_large")


@pytest.fixture
def measured(large: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Runs the script on a fake GPU whose kernels are computed on the host."""
    cp = rodinia_machine.ComputingCupy()
    cp.current_stream()
    library = LargeFakeLibrary(cp, THEIRS_S)
    made = large.LargeLibraries
    monkeypatch.setattr(fake_cupy, "__getattr__", lambda name: getattr(np, name), raising=False)
    monkeypatch.setattr("tuner.devices.cuda.code.GpuLibraries", HostLibraries)
    monkeypatch.setattr(large.probe, "open_cupy", lambda _: cp)
    monkeypatch.setattr(large.probe, "gpu_limits", lambda *_: LIMITS)
    monkeypatch.setattr(large, "Compiler", lambda _: HostCompiler(cp, OURS_S))
    monkeypatch.setattr(large, "LargeLibraries", lambda _: made(cp, library, library))
    monkeypatch.setattr("linalg_contest.LEAST_S", 0.0)
    monkeypatch.setattr("linalg_contest._LEAD_BYTES", 1)
    monkeypatch.setattr("cold_timing.FLUSH_BYTES", 1)
    monkeypatch.setattr("linalg_contest.DriverCalls", lambda: DriverCalls(lambda: FakeLibrary(cp)))

    def run(*words: str, code: int = 0, **changes: Any) -> dict[str, Any]:
        for name, value in changes.items():
            setattr(library, name, value)
        out = tmp_path / "rows.json"
        assert large.main(["--n", str(N), "--budget", "1e-3", "--out", str(out), *words]) == code
        found: dict[str, Any] = json.loads(out.read_text())
        return found

    return run


@on_host
@pytest.mark.parametrize(
    ("operation", "dtype"), [("potrf", "float32"), ("getrf", "float64"), ("geqrf", "float32")]
)
def test_both_forms_answer_right_and_are_timed(measured: Any, operation: str, dtype: str) -> None:
    """The library gets its arguments in order, all answer right, and figures are those of the times."""
    found = measured("--only", operation, "--dtype", dtype)
    (row,) = found["rows"]
    assert [one["name"] for one in row["peers_tried"]] == [
        f"cuSOLVER {operation}",
        f"cuSOLVER {operation}, 64-bit",
    ]
    assert all(one["correct"] and one["graph"] for one in row["peers_tried"]), row["peers_tried"]
    assert (row["wrong"], row["correct"], row["peer"]["form"]) == ([], True, "")
    assert row["peer"]["us"] == pytest.approx(1e6 * THEIRS_S)
    assert row["gemm"]["us"] == pytest.approx(1e6 * THEIRS_S)
    assert row["gemm"]["tflops"] == pytest.approx(2 * N**3 / THEIRS_S / 1e12)
    share = {"potrf": 1 / 3, "getrf": 2 / 3, "geqrf": 4 / 3}[operation]
    assert row["peer"]["tflops"] == pytest.approx(share * N**3 / THEIRS_S / 1e12, rel=1e-3)
    for name in ("default", "best"):
        assert row[name]["ratio"]["median"] == pytest.approx(row["peer"]["us"] / row[name]["us"])
        assert row[name]["graph"]


@on_host
def test_the_better_form_is_the_peer(measured: Any) -> None:
    """Of two forms that answer right, the faster one counts."""
    (row,) = measured("--only", "getrf", "--dtype", "float32", slower=0.5)["rows"]
    assert row["peer"]["form"] == "64-bit"
    assert row["peer"]["us"] == pytest.approx(0.5e6 * THEIRS_S)


@on_host
def test_a_version_without_the_64_bit_form(measured: Any) -> None:
    """The classic form counts, and what is missing is named."""
    found = measured("--only", "potrf", "--dtype", "float64", lacking=True)
    (row,) = found["rows"]
    assert [one["name"] for one in row["peers_tried"]] == ["cuSOLVER potrf"]
    assert "is not in this version" in " ".join(found["missing"].values())


@on_host
def test_wrong_answers_of_the_library_win_nothing(measured: Any) -> None:
    """A library that answers wrong is no peer: no ratio, no target, and the row is not correct."""

    def off(answer: NDArray[Any]) -> NDArray[Any]:
        return 1.01 * answer

    (row,) = measured("--only", "geqrf", "--dtype", "float64", computed=off)["rows"]
    assert (row["peer"], row["met"], row["correct"]) == (None, None, False)
    assert "ratio" not in row["best"]


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(
    ("case", "least"),
    [
        (("getrf", 512, "float32"), None),
        (("getrf", 1024, "float32"), 1.2),
        (("getrf", 8192, "float64"), 1.2),
        (("getrf", 16384, "float64"), 1.05),
        (("geqrf", 256, "float64"), None),
        (("geqrf", 4096, "float32"), 1.05),
        (("geqrf", 16384, "float32"), 1.35),
        (("potrf", 4096, "float32"), 1.0),
        (("potrf", 8192, "float64"), 1.0),
    ],
)
def test_targets(case: tuple[str, int, str], least: float | None) -> None:
    """Each row has the target of its factorisation, order and type; some are only reported."""
    assert import_module("linalg_large").LargeCase(*case).target == least


def test_rows_that_do_not_fit_the_time_are_named(measured: Any) -> None:
    """What was left out is in the JSON."""
    found = measured("--only", "potrf", "--limit", "1e-9")
    assert found["left_out"] == [
        {"operation": "potrf", "n": N, "dtype": dtype} for dtype in ("float32", "float64")
    ]
