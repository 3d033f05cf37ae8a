"""The benchmark against Rodinia: launches, arrays, judges and ratios, on a stand-in for its sources."""

import json
import shutil
import sys
from contextlib import nullcontext
from math import comb
from pathlib import Path
from typing import Any

import host_build
import pytest
import rodinia_machine
import rodinia_stand_in
from benchmark_scripts import ROOT, benchmark
from fake_cuda import LIMITS

SMALL = (
    "lud:N=64",
    "hotspot:ROWS=19,COLUMNS=37,STEPS=7",
    "streamcluster:N=300,DIM=5,K=3,CALLS=3",
    "particle-filter:N=1100,H=24,W=32",
)
CONTESTS = (
    *("lud", "hotspot", "streamcluster", "streamcluster-costs"),
    *("particlefilter-float", "particlefilter-naive"),
)
LAUNCHES = {  # of Rodinia's form with the fewest, e.g. blocks of 32 for N = 64, and of our default
    "lud": (4, 10),
    "hotspot": (2, 7),
    "streamcluster": (3, 6),
    "streamcluster-costs": (3, 3),
    "particlefilter-float": (4, 4),
    "particlefilter-naive": (1, 1),
}
OURS_S, THEIRS_S = 1e-3, 5e-3  # of a launch
on_host = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


@pytest.fixture(scope="module")
def peers() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks" / "kernels"))
        yield benchmark("kernels/rodinia_peers")


def measured(peers: Any, monkeypatch: pytest.MonkeyPatch, folder: Path, name: str) -> dict[str, Any]:
    """A contest on the fake machine, by the script."""
    cp = rodinia_machine.ComputingCupy()
    monkeypatch.setattr(peers.probe, "open_cupy", lambda _: cp)
    monkeypatch.setattr(peers.probe, "gpu_limits", lambda *_: LIMITS)
    monkeypatch.setattr(peers, "Compiler", lambda _: nullcontext(rodinia_machine.HostCompiler(cp, OURS_S)))
    monkeypatch.setattr(peers, "NvccCompiler", lambda *_: rodinia_machine.HostCompiler(cp, THEIRS_S))
    monkeypatch.setattr(peers, "_tuned", lambda *_: None)
    monkeypatch.setattr("cold_timing.FLUSH_BYTES", 1)
    out = folder / "rows.json"
    assert (
        peers.main([str(folder), "--only", name, "--rounds", "12", "--sizes", *SMALL, "--out", str(out)]) == 0
    )
    found: dict[str, Any] = json.loads(out.read_text())["contests"][0]
    return found


@on_host
@pytest.mark.parametrize("name", CONTESTS)
def test_all_forms_answer_right_and_are_timed(
    peers: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """Every form is launched so that its answer is right, and the ratio is that of the launches of both."""
    row = measured(peers, monkeypatch, rodinia_stand_in.write(tmp_path), name)
    assert all(one["right"] for one in row["rodinia"] + row["ours"]), row
    theirs, ours = LAUNCHES[name]
    ratio = row["ours"][0]["ratio"]
    assert ratio["low"] == ratio["median"] == ratio["high"]
    assert ratio["median"] == pytest.approx(theirs * THEIRS_S / (ours * OURS_S))
    assert len([one for one in row["rodinia"] if "ms" in one]) == 3


BROKEN = {
    "lud": ("AT(row, column) -= AT(row, k)", "AT(row, column) -= 1.01f * AT(row, k)"),
    "hotspot": ("(80 - t) / rz", "(79 - t) / rz"),
    "streamcluster": ("more < 0 ? more : -more", "more < 0 ? more : -1.01f * more"),
    "streamcluster-costs": ("switched[i] = more < 0", "switched[i] = more > 0"),
    "particlefilter-float": ("arrayX[i] = xj[i] + 1.0", "arrayX[i] = xj[i] + 1.1"),
    "particlefilter-naive": ("int found = 0", "int found = n / 2"),
}


@on_host
@pytest.mark.parametrize("name", CONTESTS)
def test_wrong_answers_win_nothing(
    peers: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """A kernel that computes something else is told as wrong, and no ratio is formed with it."""
    row = measured(peers, monkeypatch, rodinia_stand_in.write(tmp_path, BROKEN[name]), name)
    assert not any(one["right"] for one in row["rodinia"])
    assert row["fastest"] is None
    assert all(one["right"] and "ratio" not in one for one in row["ours"])


@on_host
@pytest.mark.parametrize(
    "changed",
    [
        ("objxy[2 * o + 1]", "objxy[2 * o]"),
        ("so_far += weights[i]", "so_far += weights[0]"),
        ("first + i / (double)N", "first + (i + 1) / (double)N"),
        ("xj[i] = arrayX[found]", "xj[i] = arrayX[i]"),
    ],
)
def test_each_step_of_a_frame_is_judged(
    peers: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, changed: tuple[str, str]
) -> None:
    """An error in any of the kernels of the particle filter is noticed."""
    row = measured(peers, monkeypatch, rodinia_stand_in.write(tmp_path, changed), "particlefilter-float")
    assert not any(one["right"] for one in row["rodinia"])


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_nvcc_compiles_what_is_launched(
    peers: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All kernels are found by the names that Rodinia's parameters give them; cubins need no nvcc again."""
    folder = rodinia_stand_in.write(tmp_path)
    command = [str(folder), "--build-only", "--cubins", str(tmp_path / "cubins"), "--only", "streamcluster"]
    command += ["particlefilter-float", "particlefilter-naive"]
    assert peers.main(command) == 0
    assert "particlefilter-naive: 4 forms" in capsys.readouterr().out
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "")
        assert peers.main(command) == 0


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (("double* yj, int N)", "double* yj, long N)"), "no kernel with Rodinia 3.1's parameters"),
        (("const int i", "const int"), "nvcc does not compile"),
    ],
)
def test_other_sources_are_refused(
    peers: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], changed: tuple[str, str], told: str
) -> None:
    """A kernel with other parameters, or that does not compile, is named; it is never launched."""
    folder = rodinia_stand_in.write(tmp_path, changed)
    command = [str(folder), "--build-only", "--cubins", str(tmp_path / "cubins"), "--only"]
    assert peers.main([*command, "particlefilter-naive"]) == 2
    assert told in (error := capsys.readouterr().err)
    assert "ex_particle_CUDA_naive_seq.cu" in error


def test_a_folder_without_the_files_is_refused(
    peers: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names what is missing and where it is to be had."""
    shutil.rmtree(rodinia_stand_in.write(tmp_path) / "cuda/lud")
    assert peers.main([str(tmp_path), "--only", "lud", "hotspot"]) == 2
    error = capsys.readouterr().err
    assert "no lud/cuda/lud_kernel.cu" in error
    assert "hotspot.cu" not in error
    assert "https://github.com/yuhc/gpu-rodinia" in error


def test_without_nvcc_it_is_said(
    peers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message says what to install, or how to compile elsewhere."""
    monkeypatch.setenv("PATH", "")
    folder = rodinia_stand_in.write(tmp_path)
    command = ["--build-only", "--cubins", str(tmp_path / "cubins"), "--only", "streamcluster"]
    assert peers.main([str(folder), *command]) == 2
    assert "nvcc is not on the path" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{", "[]", '{"best": null}'])
def test_known_results_must_be_results(
    peers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    """Another file is named, before anything is measured."""
    monkeypatch.setattr(peers.probe, "open_cupy", lambda _: None)
    monkeypatch.setattr(peers.probe, "gpu_limits", lambda *_: LIMITS)
    known = tmp_path / "known.json"
    known.write_text(text)
    assert peers.main([str(rodinia_stand_in.write(tmp_path)), "--known", str(known)]) == 2
    assert f"--known {known}" in capsys.readouterr().err


def test_known_and_analytical_configurations_are_ours(
    peers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best comes from the file, the analytical one from a run, and nothing is searched."""
    kernel, workload = peers.resolved(peers.Catalog.load(), "lud:N=64")
    best = {"B": 32, "C": 64, "R": 4, "Q": 2, "FUSE": 1}
    other = {"B": 32, "C": 32, "R": 4, "Q": 4, "FUSE": 0}
    known = tmp_path / "known.json"
    known.write_text(json.dumps({"best": {"configurations": {"lud:N=64": best}}}))
    asked = []

    def tuned(name: str, *options: str) -> dict[str, Any]:
        asked.append((name, *options))
        default = dict(kernel.default(workload))
        return {"trials": [{"configurations": {name: one}} for one in (default, other)]}

    monkeypatch.setattr(peers, "_tuned", tuned)
    choices = peers.Choices([known], 10.0)
    found = {what: dict(one) for what, one in choices.of(kernel, workload).items()}
    assert found == {"analytical": other, "best known": best}
    assert choices.of(kernel, workload)
    assert asked == [("lud:N=64", "--policy", "analytical")]


@pytest.mark.parametrize("count", [6, 11, 16, 50])
def test_intervals_cover_the_median(peers: Any, count: int) -> None:
    """The interval covers 95 % by the binomial distribution, and the next narrower one does not."""
    edge = sys.modules[peers.ratio.__module__].outside_interval(count)
    sides = [2 * sum(comb(count, k) for k in range(left_out + 1)) / 2**count for left_out in (edge, edge + 1)]
    assert sides[0] <= 0.05 < sides[1]
