"""Spaces that are too large to be listed: samples, neighbours, and searches over them."""

import tracemalloc
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from job_workshop import Workshop
from small_spaces import forms, large_space, sampled_forms
from tuner.policies.descent import Ranks

from tuner.cli.main import main
from tuner.daemon.jobs.specs import checked
from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog, load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import InputError
from tuner.model.expressions.callables import Expression
from tuner.model.jobs import JobSpec
from tuner.model.plan import Configuration
from tuner.model.trial import Measurement, Trial
from tuner.report.run_report import dropped_lines
from tuner.search.candidates import PreparedWorkload, as_declared, prepare
from tuner.search.job_messages import AttemptResult, EventWriter
from tuner.search.session import TrialEvent
from tuner.space.large_spaces import LISTED, SampledSpace, SpaceSampler, space_of
from tuner.space.search_view import Candidate
from tuner.space.space import Enumeration, Space, checked_values

LISTS = {
    "form": ("plain", "ring"),
    "a": (1, 2, 4, 8, 16),
    "b": (1, 2, 4, 8, 16),
    "c": (1, 2, 3, 4, 5, 6),
    "d": (1, 2, 3, 4, 5, 6),
}
RULES = ["a * b <= 16", "c + d == 6 or c * d == 12", "form == 'plain' or a > b"]


def sampler(width: int) -> SpaceSampler:
    """Of a space of 117 configurations, which keeps few rows of a partial product."""
    lists = {name: checked_values(name, values) for name, values in LISTS.items()}
    return SpaceSampler(Enumeration(lists, RULES, {}, {}, {}), width)


def test_every_configuration_is_drawn_as_often_as_others() -> None:
    """Drawn with few rows at a time: each configuration comes up, none much more often; sizes are right."""
    whole = Space.build(LISTS, RULES)
    one, draw = sampler(24), np.random.default_rng(1)
    samples = [one.sample(10, draw) for _ in range(300)]

    counts = Counter(tuple(row) for positions, _ in samples for row in positions.tolist())
    mean = 10 * len(samples) / len(whole)
    assert len(counts) == len(whole)
    assert all(0.4 * mean < count < 1.9 * mean for count in counts.values())
    assert np.mean([size for _, size in samples]) == pytest.approx(len(whole), rel=0.05)


def test_a_sample_is_of_the_space_and_begins_with_its_first() -> None:
    """All that is listed is allowed, in the order of the space, and so is its first configuration."""
    space = large_space()
    orders = [space.order(configuration) for configuration in space]

    assert orders == sorted(set(orders))
    assert all(space.allows(configuration) for configuration in space)
    assert str(space[0]) == "form=plain a=1 b=1 c=8 order=0,1,2"
    assert not space.allows({**space[0], "b": 2})
    assert not space.allows({**space[0], "slots": 2})
    assert not space.allows({**space[0], "b": 3})


def test_neighbours_are_those_of_a_listed_space() -> None:
    """Made on demand, they are what is found in the list: conditions give and take values in the same way."""
    space, sampled = forms(), sampled_forms()
    listed = Ranks([Candidate(configuration, 1.0, 32, 1, 1) for configuration in space], space.tunables)

    for configuration in space:
        made = sampled.neighbours(configuration)
        assert set(listed.neighbours(configuration)) <= set(made)
        assert all(one in space for one in made)


def test_a_forbidden_change_brings_another_tunable_of_its_rule_along() -> None:
    """Where b * c is tied, b changes with c, and with nothing else."""
    space = large_space()
    present = Configuration([("form", "plain"), ("a", 1), ("b", 2), ("c", 4), ("order", "0,1,2")])

    changed = [one for one in space.neighbours(present) if one["b"] != 2]

    assert [(one["b"], one["c"]) for one in changed] == [(1, 8), (4, 2), (8, 1)]
    assert all(one["a"] == 1 and one["order"] == "0,1,2" for one in changed)


def test_a_billion_combinations_are_drawn_from_within_bounded_memory() -> None:
    """Ten tunables of eight values, tied in pairs and all together: 100 MiB suffice."""
    names = "abcdefghij"
    rules = [Expression(f"{one} * {two} <= 64") for one, two in zip(names[::2], names[1::2], strict=True)]
    rules.append(Expression(f"{' + '.join(names)} <= 200"))
    tracemalloc.start()
    try:
        space = space_of({name: [1, 2, 4, 8, 16, 32, 64, 128] for name in names}, rules, {}, {}, {})
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert space.is_sample
    assert space.cartesian_size == 8**10
    assert space.size > 10**6
    assert peak_bytes < 100 * 2**20


def test_one_allowed_combination_among_many_is_found() -> None:
    """A rule over all tunables, which nothing can propagate, leaves one in 100,000: some are found."""
    names = "abcdefgh"
    sum_of = " + ".join(f"{place**3 + 1} * {name}" for place, name in enumerate(names, start=7))
    rule = Expression(f"({sum_of}) * 7919 % 100003 == 0")

    space = space_of({name: [3 * i * i + 1 for i in range(10)] for name in names}, [rule], {}, {}, {})

    assert len(space) > 0
    assert all(rule.evaluate(configuration) for configuration in space)


def test_where_nothing_is_found_the_message_says_what_helps() -> None:
    """Rules of which none can be propagated, and which contradict each other."""
    names = "abcdefgh"
    total = " + ".join(names)
    rules = [Expression(f"({total}) % 2 == {rest}") for rest in (0, 1)]
    with pytest.raises(InputError, match="state each rule over as few tunables as it needs"):
        space_of({name: list(range(10)) for name in names}, rules, {}, {}, {})


# --- searches ------------------------------------------------------------------------------------

FILE = """
kernel.source = "add.cu"
launch.grid = "ceil_div(N, threads * work)"
launch.block = "threads"
problem.sizes.N = [65536]
arguments = { a = "inout float32[N]", n = "int32 = N" }
resources.registers = "16 + work"

[tunables]
threads = [32, 64, 128, 256, 512]
work = [1, 2, 4, 8]
order = { permutation = ["x", "y", "z"] }
vector = [1, 2, 4]

[constraints]
rules = ["threads * work <= 1024", "work % vector == 0"]
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kernel file of 180 configurations, which is taken for too large: 20 are listed."""
    monkeypatch.setattr("tuner.kernel_files.kernel_file.space_of", partial(space_of, listed=30, drawn=20))
    (tmp_path / "add.cu").write_text(
        "__global__ void add(float* a, int n) { if (threadIdx.x < n) a[threadIdx.x] += work + vector; }"
    )
    (tmp_path / "kernel.toml").write_text(FILE)
    return tmp_path / "kernel.toml"


def ready(kernel: KernelFile) -> PreparedWorkload:
    """The workload of the kernel on a simulated device."""
    from tuner.devices.choice import open_device  # noqa: PLC0415 - only here

    device, _ = open_device("sim:h200", 0)
    try:
        (item,) = prepare([(kernel, kernel.workloads()[0])], device)
    finally:
        device.close()
    return item


def test_candidates_are_made_and_planned_when_they_are_asked_for(path: Path) -> None:
    """What is not listed has a plan, a candidate and its order of tunables; what is not allowed has none."""
    item = ready(load_kernel_file(path))
    assert item.source is not None
    large = item.source.as_told()
    made = [one for one in large.neighbours(item.default) if one.configuration not in item.space]
    other = made[0].configuration
    stored = Configuration(sorted(other.items()))

    assert large.size == item.space.size == item.size_after_pruning > len(item.candidates)
    assert large.candidate(stored) == made[0]
    assert large.candidate(Configuration({**other, "work": 8, "threads": 512})) is None
    assert item.plan(stored) is not None
    assert item.plan(Configuration({**other, "threads": 33})) is None
    (again, _) = as_declared([item], [(Trial((stored,)), Measurement(()))])[0]
    assert list(again.configurations[0]) == list(other)
    assert set(made) <= set(item.known_candidates)


@pytest.mark.usefixtures("_state")
def test_all_of_a_large_space_is_not_measured(path: Path) -> None:
    """The policy exhaustive is refused with the size, the limit and what to do instead."""
    options = ("--kernel", path, "--device", "sim:h200", "--objective", "time", "--policy", "exhaustive")
    result = CliRunner().invoke(main, ["run", *map(str, options)])
    assert result.exit_code == 2
    assert "and at most 131,072 are listed; choose auto, bayesian, greedy, local or random" in result.output


@pytest.fixture
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_the_first_configuration_is_found_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel without [default]: plans ask for the default again and again, the space is made once."""
    kernel = load_kernel_file(path)
    (workload,) = kernel.workloads()
    default = kernel.default(workload)
    monkeypatch.setattr(KernelFile, "space", None)
    assert kernel.default(workload) == default


# --- runs over a space of more configurations than are listed: jobs of the daemon, interrupted and resumed


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

    (line,) = dropped_lines(document, verbose=True)

    assert list(dropped_lines(document)) == []
    assert line == "left out: about 254,736 × excluded by constraints (of 884,736)"
