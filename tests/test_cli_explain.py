"""``tuner explain`` and ``tuner occupancy``: what the models say of kernels and launches."""

import json
import re
from pathlib import Path

import pytest
from cli_process import FAULTY, TX1, document, tuner

from tuner.devices.simulated import resources
from tuner.model.errors import CompilerUnavailableError
from tuner.search.explaining import explain

SCAN = "scan-lf:N=256"
RECORDED = ("--device", "replay:h200")


def test_the_candidates_stand_in_the_order_of_the_rule_with_the_reasons() -> None:
    """The screen has the numbers of each candidate, the rule, the choice and why not the runner-up."""
    result = tuner("explain", SCAN, *RECORDED)

    assert result.exit_code == 0, result.stderr
    for word in ("S", "P", "L", "r", "shuffle", "registers", "B_a", "W_SM", "bound by", "in flight"):
        assert word in result.stdout
    assert "server rule: 132 multiprocessors are more than 20" in result.stdout
    assert "chosen: P=16 L=32" in result.stdout
    assert "runner-up: " in result.stdout
    assert "236 candidates, as recorded" in result.stdout


def test_json_has_the_same_in_full() -> None:
    """The first candidate is the chosen one; every launch has what binds it."""
    found = document("explain", SCAN, *RECORDED)

    (workload,) = found["workloads"]
    first = workload["candidates"][0]
    assert found["device"]["name"] == "NVIDIA H200"
    assert workload["rule"] == "server"
    assert first["configuration"] == workload["configuration"]
    assert (first["P"], first["L"], first["shuffle"]) == (16, 32, True)
    assert first["launches"][0]["binding"] == ["blocks"]
    assert first["bytes_in_flight"] == 128 * 1024
    assert len(workload["candidates"]) == 10
    assert len(workload["reasons"]) == 3


def test_all_shows_every_candidate() -> None:
    """Ten are shown, or all."""
    found = document("explain", SCAN, *RECORDED, "--all")

    assert len(found["workloads"][0]["candidates"]) == found["workloads"][0]["considered"] == 236


def test_a_rule_can_be_asked_for() -> None:
    """The embedded rule on a large GPU, because the user wants it."""
    found = document("explain", SCAN, *RECORDED, "--rule", "embedded")

    workload = found["workloads"][0]
    assert (workload["rule"], workload["reasons"][0]) == ("embedded", "embedded rule: it was asked for")


def test_each_workload_is_explained_by_itself() -> None:
    """Spaces that were recorded one by one are explained together; several launches stand side by side."""
    result = tuner("explain", SCAN, "fft-large:N=8388608", *RECORDED)

    assert result.exit_code == 0, result.stderr
    assert "scan-lf:N=256\n" in result.stdout
    assert "fft-large:N=8388608\n" in result.stdout
    assert "16 + 16" in result.stdout


def test_a_simulated_gpu_compiles_and_says_for_what() -> None:
    """On the Jetson TX1 the guideline of the paper is in force; nothing runs."""
    found = document("explain", "scan-lf:N=4", *TX1)

    workload = found["workloads"][0]
    assert (workload["rule"], workload["architecture"]) == ("embedded", "sm_53")
    assert found["device"]["multiprocessors"] == 2
    assert workload["candidates"][0]["launches"][0]["registers_per_thread"] > 0


def test_what_nothing_was_compiled_of_is_not_said_to_be_recorded() -> None:
    """Where the model has no answer on a simulated GPU, no candidate is looked at."""
    result = tuner("explain", "lud:N=256", *TX1)

    assert re.search(r"\n0 of \d+ candidates, none compiled\n", result.stdout)
    assert "recorded" not in result.stdout


def test_declared_resources_are_told_from_compiled_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without NVRTC a simulated GPU takes what kernel files declare, and says so."""
    monkeypatch.setattr(resources, "Compiler", without_nvrtc)
    (workload,) = explain(["faulty:N=256"], "sim:jetson-tx1", [FAULTY])["workloads"]

    assert (workload["architecture"], workload["resources"]) == ("", "as their kernel file declares")


def without_nvrtc(architecture: str) -> None:
    raise CompilerUnavailableError(f"no NVRTC compiles for {architecture}")


def test_a_recording_without_resources_has_no_answer_and_says_why(tmp_path: Path) -> None:
    """A space of another tuner knows neither limits nor launches: that is no error."""
    cache = tmp_path / "toy.json"
    cache.write_text(
        '{"device_name": "A GPU", "kernel_name": "toy", "problem_size": "64", "tune_params_keys": ["x"],'
        ' "tune_params": {"x": [1, 2]}, "objective": "time",'
        ' "cache": {"1": {"x": 1, "time": 2.0}, "2": {"x": 2, "time": 1.0}}}'
    )
    result = tuner("explain", "toy", "--device", f"replay:{cache}")

    assert result.exit_code == 0, result.stderr
    assert "no analytical answer: " in result.stdout
    assert "not known" in result.stdout


def test_a_kernel_file_of_the_user_needs_few_roles() -> None:
    """A kernel that names only its block size is explained by warps and blocks."""
    found = document("explain", "faulty:N=256", *TX1, "--kernel", FAULTY)

    first = found["workloads"][0]["candidates"][0]
    assert (first["S"], first["P"], first["r"]) == (None, None, None)
    assert first["L"] in (128, 256)


def test_nothing_left_is_the_users_to_mend(tmp_path: Path) -> None:
    """A kernel that no block of this GPU can run: exit code 2, and what dropped its configurations."""
    kernel = tmp_path / "kernel.toml"
    needing = 'shared_bytes = "0"\nmin_architecture = "90"'
    kernel.write_text(FAULTY.read_text().replace('shared_bytes = "0"', needing))
    (tmp_path / "faulty.cu").write_text(FAULTY.with_name("faulty.cu").read_text())

    result = tuner("explain", "faulty:N=256", *TX1, "--kernel", kernel)

    assert result.exit_code == 2
    assert "none of 6 configurations is left (6 × needs compute capability 9.0)" in result.stderr


# --- tuner occupancy -------------------------------------------------------------------------------


def test_the_numbers_and_the_limit_are_printed() -> None:
    """Blocks, warps, occupancy and what binds stand on the screen."""
    result = tuner("occupancy", *TX1, "--threads", "64", "--registers", "40")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "device         sim:jetson-tx1, compute capability 5.3",
        "blocks per SM  24 of 32",
        "warps per SM   48 of 64",
        "occupancy      75 %",
        "limited by     registers",
    ]


def test_limits_that_bind_together_are_all_printed() -> None:
    """A configuration that uses everything up says so."""
    result = tuner("occupancy", *TX1, "--threads", "64", "--registers", "32", "--shared-bytes", "2048")
    assert "occupancy      100 %" in result.stdout
    assert "limited by     blocks (with warps, registers, shared-memory)" in result.stdout


@pytest.mark.parametrize("to_file", [False, True])
def test_json_has_the_numbers(tmp_path: Path, to_file: bool) -> None:
    """The document holds what the screen shows; with "-" it alone is on standard output."""
    path = tmp_path / "occupancy.json"
    result = tuner(
        "occupancy",
        *TX1,
        "--threads",
        "96",
        "--shared-bytes",
        "5000",
        "--json",
        str(path) if to_file else "-",
    )
    assert result.exit_code == 0
    document = json.loads(path.read_text() if to_file else result.stdout)
    assert document == {
        "device": "sim:jetson-tx1",
        "threads_per_block": 96,
        "registers_per_thread": 0,
        "shared_bytes": 5000,
        "blocks_per_sm": 12,
        "warps_per_sm": 36,
        "occupancy": 0.5625,
        "limited_by": "shared-memory",
        "binding": ["shared-memory"],
    }
    assert "limited by     shared-memory" in (result.stdout if to_file else result.stderr)


def test_a_block_that_does_not_fit_is_an_answer() -> None:
    """No block fits: the command says what stops it, and that is no error."""
    result = tuner("occupancy", *TX1, "--threads", "2048")
    assert result.exit_code == 0
    assert "blocks per SM  0 of 32" in result.stdout
    assert "limited by     block-size: a block has at most 1024 threads" in result.stdout
    result = tuner("occupancy", *TX1, "--threads", "64", "--registers", "999")
    assert "limited by     registers: a thread has at most 255 registers" in result.stdout
