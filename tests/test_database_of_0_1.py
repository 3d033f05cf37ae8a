"""A database that version 0.1.0 wrote is read as it is: runs, answers, queued jobs.

``data/tuner-0.1.db.gz`` was made by the commands of 0.1.0: ``tuner run`` of ``scan-lf:N=4 fft:N=4`` (energy,
four random trials on ``sim:jetson-tx1``) and of ``fft-large:N=16384`` (time, three on ``sim:h200``), and two
submissions to a daemon that was killed before it began.
"""

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tuner.cli.main import main
from tuner.database.jobs import Jobs
from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.model.jobs import JobSpec, JobState

WRITTEN = Path(__file__).parent / "data" / "tuner-0.1.db.gz"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "tuner.db"
    path.write_bytes(gzip.decompress(WRITTEN.read_bytes()))
    return path


def test_stored_answers_are_served_as_they_were(database: Path, tmp_path: Path) -> None:
    """The answer of 0.1.0 comes back with its configurations, time and joules; it was measured otherwise."""
    document = tmp_path / "best.json"
    asked = ["best", "scan-lf:N=4", "fft:N=4", "--device", "sim:jetson-tx1", "--no-daemon"]
    result = CliRunner().invoke(main, [*asked, "--database", str(database), "--json", str(document)])

    assert result.exit_code == 0, result.output
    assert "stale: another version of tuner measured it" in result.output
    best = json.loads(document.read_text())["best"]
    assert best["energy_j"] == pytest.approx(0.55737, rel=1e-4)
    assert best["time_s"] == pytest.approx(0.08191, rel=1e-3)
    assert {name: list(values.values()) for name, values in best["configurations"].items()} == {
        "scan-lf:N=4": [4, 64, 2, 0, 1, "direct", 1, 0],
        "fft:N=4": [4, 64, 4, "first", 0, 1, "none", 0],
    }


def test_configurations_with_values_that_have_no_meaning_now_are_understood(database: Path) -> None:
    """fft-large listed every tunable in 0.1.0; those that its form does not have are dropped now."""
    kernel = Catalog.load().kernel("fft-large")
    workload = kernel.workload({"N": 16384})
    with Store(database) as store:
        (run,) = store.answered(["fft-large:N=16384"], "time")
    assert run.answer is not None
    assert run.answer["best"] is not None
    (values,) = run.answer["best"]["configurations"].values()

    configuration = kernel.allowed(workload, values)

    assert configuration is not None
    kept = dict(configuration.items())
    assert kept.items() < values.items()
    assert kernel.plan(workload, configuration).stages


def test_queued_jobs_are_taken_over(database: Path) -> None:
    """Jobs that a daemon of 0.1.0 had queued are there with all that was asked for."""
    with Store(database) as store:
        jobs = Jobs(store.database).jobs()

    assert {job.id: job.state for job in jobs} == {1: JobState.QUEUED, 2: JobState.QUEUED}
    specs = {job.id: job.spec for job in jobs}
    assert specs[1] == JobSpec(
        ("tridiag-wm:N=64", "scan-lf:N=8"),
        "energy",
        "auto",
        device="sim:jetson-tx1",
        options={"energy_precision": 0.01, "max_slowdown": 0.05, "trial_timeout_s": 60.0},
    )
    assert specs[2].options["budget"] == 3
