"""Every benchmark can be asked what it does, and its smallest case runs, on a machine without a GPU."""

import ast
import ctypes
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from benchmark_scripts import ROOT, siblings_importable

FOLDER = ROOT / "benchmarks"
RESULTS = FOLDER / "results"
SCRIPTS = {
    str(path.relative_to(FOLDER).with_suffix("")): path
    for path in sorted(FOLDER.rglob("*.py"))
    if "__main__" in path.read_text("utf-8")
}
SMALLEST = {
    "apply_calls": ["--show", str(RESULTS / "apply-calls-h200.json")],
    "backups": ["--trials", "0", "--kills", "6"],
    "compare": ["--again", str(RESULTS / "compare-h200.json")],
    "co_run_pays": ["--show", str(RESULTS / "co-run-pays-h200.json")],
    "cold_timing": ["scan-lf:N=64", "fft:N=64", "--device", "sim:h200", "--most", "3"],
    "energy_region_intervals": ["--runs", "1"],
    "headlines": [],
    "kernel_tuner_wall": ["--only", "triad", "vector-add"],
    "kernels/tridiagonal_errors": ["--sizes", "16", "--types", "float32"],
    "kernels/peers": ["--show", str(RESULTS / "peers-h200.json")],
    "show_results": [],
    "ties": ["fft-real:N=4", "--again", "1"],
    "warm_profile": [f"now={ROOT / 'tests/data/stacks.txt'}"],
    "window_scatter": ["--runs", "20"],
}
FOR_A_GPU = (
    "fft_random_lengths",
    *("kernels/fft_lengths", "kernels/linalg_large", "kernels/linalg_peers", "kernels/linalg_tall"),
    *("kernels/long_scan_peers", "kernels/peers", "kernels/tridiag_large", "kernels/untuned_choice"),
)
ELSEWHERE = {  # played in small by a test of their own
    "daemon_faults": "test_daemon_faults",
    "daemon_soak": "test_daemon_proofs",
    "upgrade_kills": "test_systemd_upgrade",
    "damage": "test_damage",
    "energy_intervals": "test_power_intervals",
    "examples": "test_examples_python",
    "fairness": "test_daemon_proofs",
    "gate_verdicts": "test_gate",
    "hostile_files": "test_hostile_files",
    "kernel_tuner_scripts": "test_kernel_tuner_runs",
    "kill_clocks": "test_clock_kills",
    "neighbour_influence": "test_fleet",
    "referee": "test_power_ticks",
    "search": "test_search_benchmark",
    "search_replay": "test_search_benchmark",
    "sensor_models": "test_power_identify",
    "shipped_report": "test_html_report",
    "verification": "test_fleet",
}
BY_HAND = {  # their smallest case takes longer than a test may, or asks for a GPU and a process of its own
    *("applications", "default_set", "energy_regions", "input_adaptive", "kernel_tuner_child"),
    *("kernel_tuner_loop", "kernel_tuner_neutral", "merging", "model_against_recorded"),
    *("plot_recording", "pool_efficiency", "pool_kills", "racing", "record_spaces", "sm_shares"),
    *("sweep_overhead", "trait_beliefs"),
    *("inductor", "programs", "programs_on_gpu", "triton_kernels"),
}


def started(path: Path, words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> int | str | None:
    """The exit code of a script, in this process."""
    monkeypatch.setattr(sys, "argv", [str(path), *words])
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.delitem(sys.modules, path.stem, raising=False)  # a helper of tests may have its name
    with siblings_importable(monkeypatch):
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as end:
            return end.code
    return 0


@pytest.mark.parametrize("name", SCRIPTS)
def test_help_says_what_a_script_does(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its first line is that of the script's docstring."""
    assert started(SCRIPTS[name], ["--help"], monkeypatch) == 0
    about = ast.get_docstring(ast.parse(SCRIPTS[name].read_text("utf-8"))) or ""
    assert about.partition("\n")[0] in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", SMALLEST)
def test_the_smallest_case_runs(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends well, and prints a table."""
    assert not started(SCRIPTS[name], SMALLEST[name], monkeypatch)
    assert len(capsys.readouterr().out.splitlines()) >= 3


def has_driver() -> bool:
    """Whether a GPU might be found."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


@pytest.mark.skipif(has_driver(), reason="would measure")
@pytest.mark.parametrize("name", FOR_A_GPU)
def test_without_a_gpu_a_script_says_so(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The exit code is 2, and nothing is written."""
    out = tmp_path / "rows.json"
    assert started(SCRIPTS[name], ["--out", str(out)], monkeypatch) == 2
    assert "This benchmark needs a CUDA GPU." in capsys.readouterr().err
    assert not out.exists()


def test_each_script_has_its_place() -> None:
    """It runs here, in a test of its own, or by hand."""
    named = {*SMALLEST, *FOR_A_GPU, *ELSEWHERE, *BY_HAND}
    assert named == set(SCRIPTS)
    assert all((ROOT / "tests" / f"{test}.py").exists() for test in ELSEWHERE.values())
