"""Runs over a space of more configurations than are listed: jobs of the daemon, interrupted and resumed."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from job_workshop import Workshop

from tuner.daemon.jobs.specs import checked
from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.model.jobs import JobSpec
from tuner.model.trial import Trial
from tuner.report.run_report import dropped_lines
from tuner.search.job_messages import AttemptResult, EventWriter
from tuner.search.session import TrialEvent
from tuner.space.large_spaces import LISTED, SampledSpace, space_of
from tuner.space.space import Space

DEVICE = "sim:jetson-tx1"
KERNEL = """
kernel.source = "add.cu"
launch.grid = "ceil_div(N, threads * work)"
launch.block = "threads"
problem.sizes.N = [65536]
arguments = { x = "inout float32[N]", n = "int32 = N" }
resources.registers = "16 + work"

[tunables]
threads = [32, 64, 128, 256, 512, 1024]
work = [1, 2, 4, 8]
vector = [1, 2, 4]
order = { permutation = ["x", "y", "z"] }
a = [0, 1, 2, 3, 4, 5, 6, 7]
b = [0, 1, 2, 3, 4, 5, 6, 7]
c = [0, 1, 2, 3, 4, 5, 6, 7]
form = ["plain", "ring"]
slots = { values = [2, 4, 8], when = "form == 'ring'" }

[constraints]
rules = ["threads * work <= 4096", "work % vector == 0"]
"""
SOURCE = "__global__ void add(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] += work + vector; }"
JOB = JobSpec(("add:N=65536",), "time", "bayesian", device=DEVICE, options={"budget": 12, "window_s": 0.02})

Tell = Callable[[EventWriter, TrialEvent], None]


class _Killed(BaseException):
    """Stands for the end of a process: nothing is tidied."""


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of kernels with one of 626,688 configurations, 60 of which are listed."""
    monkeypatch.setattr("tuner.kernel_files.kernel_file.space_of", partial(space_of, drawn=60))
    folder = tmp_path / "kernels"
    (folder / "add").mkdir(parents=True, mode=0o755)
    (folder / "add/add.cu").write_text(SOURCE)
    (folder / "add/kernel.toml").write_text(KERNEL)
    for path in (tmp_path, folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


def attempt(folder: Path, kernels: Path, workshop: Workshop | None = None) -> tuple[Workshop, AttemptResult]:
    """An attempt at the job; a first one in a folder of its own."""
    if workshop is None:
        folder.mkdir()
        workshop = Workshop(folder, JOB)
    return workshop, workshop.here(kernel_directories=(kernels,), below=kernels.parent)


def space_in(kernels: Path) -> Space:
    """The space of the job's workload."""
    kernel = Catalog.load(search_path=(kernels,)).kernel("add")
    return kernel.space(kernel.workloads()[0])


def trials(workshop: Workshop) -> list[Trial]:
    """The trials of the job's run, in their order."""
    with Store(workshop.database) as store:
        return [trial for trial, _ in store.trials(1, JOB.workloads)]


def test_a_job_over_a_large_space_is_accepted(kernels: Path) -> None:
    """The daemon takes the job as it is; its space is a sample of more than are listed of any."""
    space = space_in(kernels)

    assert checked(JOB, Catalog.load(search_path=(kernels,)), (DEVICE,)) == JOB
    assert isinstance(space, SampledSpace)
    assert len(space) < 100 < LISTED < space.size


def test_an_interrupted_job_goes_on_to_the_same_trials(
    kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off among neighbours that were made on demand, it measures what it would have, none twice."""
    whole, ended = attempt(tmp_path / "whole", kernels)
    told: Tell = EventWriter.measured

    def kill(events: EventWriter, event: TrialEvent) -> None:
        told(events, event)
        if event.number == 9:
            raise _Killed

    with monkeypatch.context() as patched:
        patched.setattr(EventWriter, "measured", kill)
        cut, crashed = attempt(tmp_path / "cut", kernels)
    kept = trials(cut)
    _, resumed = attempt(tmp_path / "cut", kernels, cut)

    assert (ended.status, crashed.status, resumed.status) == ("limited", "crashed", "limited")
    assert len(kept) == 9
    assert trials(cut) == trials(whole)
    assert len(set(trials(cut))) == 12
    listed = set(space_in(kernels))
    assert any(trial.configurations[0] not in listed for trial in kept)


def test_what_rules_exclude_of_a_large_space_is_told_as_an_estimate() -> None:
    """The size of a space that is not listed is estimated, and so is what is left out of it."""
    space = {"cartesian": 884_736, "size": 630_000, "listed": 61, "dropped": {}}
    document: Any = {"space": space, "workloads": [{"name": "add:N=65536", "space": space}]}

    (line,) = dropped_lines(document)

    assert line == "left out: about 254,736 × excluded by constraints (of 884,736)"
