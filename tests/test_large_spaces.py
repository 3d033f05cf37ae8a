"""Spaces that are too large to be listed: samples, neighbours, and searches over them."""

import tracemalloc
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from small_spaces import forms, large_space, sampled_forms
from tuner.policies.descent import Ranks

from tuner.cli.main import main
from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import InputError
from tuner.model.expressions.callables import Expression
from tuner.model.plan import Configuration
from tuner.model.trial import Measurement, Trial
from tuner.search.candidates import PreparedWorkload, as_declared, prepare
from tuner.space.enumeration import Enumeration, checked_values
from tuner.space.large_spaces import SpaceSampler, space_of
from tuner.space.search_view import Candidate
from tuner.space.space import Space

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
