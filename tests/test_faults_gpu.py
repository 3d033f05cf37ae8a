"""Candidates that hang, crash or answer wrongly beside good ones, on a real GPU."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gpu

FAULTY = Path(__file__).parent / "faulty" / "kernel.toml"
ENDS = {0: "ok", 1: "crashed", 2: "wrong-answer", 3: "wrong-answer", 4: "timeout"}


def tuner(*words: str, folder: Path) -> tuple[dict[str, Any], str]:
    """Run `tuner run` in a process of its own and return its document and its tables."""
    outcome = subprocess.run(
        [
            *(sys.executable, "-c", "from tuner.__main__ import main; main()", "run", *words),
            *("--device", "cuda:0", "--objective", "time", "--trial-timeout", "5"),
            *("--kernel", str(FAULTY), "--database", folder / "tuner.db", "--json", folder / "run.json"),
        ],
        check=False,
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    return json.loads((folder / "run.json").read_text()), outcome.stdout


def test_every_fault_costs_one_trial(tmp_path: Path) -> None:
    """Each way to fail is told apart, the run goes on, and the answer is a good configuration."""
    document, tables = tuner("faulty:N=256", "--policy", "exhaustive", "--verbose", folder=tmp_path)
    ends = {trial["configurations"]["faulty:N=256"]["mode"]: trial["status"] for trial in document["trials"]}

    assert ends == ENDS
    assert document["best"]["configurations"]["faulty:N=256"]["mode"] == 0
    for mode in (1, 2, 3, 4):
        assert f"mode={mode}]" in tables


def test_faults_beside_a_good_workload(tmp_path: Path) -> None:
    """In a co-run the guilty workload is named, its partner is not, and both get an answer."""
    words = ("scan-lf:N=64", "faulty:N=256", "--policy", "random", "--budget", "25")
    document, _ = tuner(*words, folder=tmp_path)
    failed = [trial for trial in document["trials"] if trial["status"] != "ok"]

    assert failed
    for trial in failed:
        assert trial["status"] == ENDS[trial["configurations"]["faulty:N=256"]["mode"]]
    assert all(trial["workloads"]["scan-lf:N=64"]["status"] == "ok" for trial in failed)
    assert document["best"]["status"] == "ok"
