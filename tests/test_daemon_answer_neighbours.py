"""Which sizes are near to another one, and how much is looked at for a reply."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from answering_scene import TX1, Answers, known, shipped
from hypothesis import given
from hypothesis import strategies as st

from tuner.daemon.interface import MOST_WORKLOADS, Question
from tuner.daemon.settings import Settings, TuningTable
from tuner.database import best_known
from tuner.database.answers import StoredAnswer
from tuner.database.ranking import NEAR_SIZE, AnswerQuery, allowed, named_point, own_point, rank_neighbours
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.plan import Configuration, TunableValue, Workload

SCAN = "scan-lf:N=64"


def answerer(*answers: StoredAnswer) -> Answers:
    found = Answers(shipped(), {TX1.spec: TX1}, Settings(tuning=TuningTable(clocks="all")))
    found.take(*answers)
    return found


def query(name: str, batch: int | None = None) -> AnswerQuery:
    kernel = shipped().kernel(name.partition(":")[0])
    workload = shipped().workload(name if batch is None else f"{name},batch={batch}")
    kernels, sources = {kernel.name: kernel}, {kernel.name: kernel.fingerprint}
    return AnswerQuery((workload,), kernels, sources, "energy", TX1)


def tuned(name: str, run: int) -> StoredAnswer:
    """An answer for one scan that has a place among sizes, whatever its configuration is."""
    made = known([SCAN], run=run)
    batch = shipped().workload(name).batch
    return replace(made, batches={name: batch}, configurations={name: {}})


SIZES = [2**k for k in range(1, 14)]


@given(st.lists(st.sampled_from(SIZES), unique=True), st.sampled_from(SIZES), st.integers(1, 5))
def test_the_nearest_have_the_least_ratios(known_sizes: list[int], asked: int, most: int) -> None:
    """Of many sizes those with the smallest ratio come first, the size itself never, and far ones say so."""
    kernel = shipped().kernel("scan-lf")
    answers = [tuned(f"scan-lf:N={size}", run) for run, size in enumerate(known_sizes)]
    places = [(named_point(kernel, answer.names[0]), answer) for answer in answers]
    ranked = rank_neighbours(
        query(f"scan-lf:N={asked}"), [(place, one) for place, one in places if place], most
    )
    found = [int(one.answer.names[0].partition("=")[2]) for one in ranked]
    apart = [abs(math.log2(size / asked)) for size in found]
    others = [abs(math.log2(size / asked)) for size in known_sizes if size not in found and size != asked]
    assert len(found) == min(most, len(set(known_sizes) - {asked}))
    assert apart == sorted(apart)
    assert not others or not apart or min(others) >= max(apart)
    assert [one.near for one in ranked] == [2**one <= NEAR_SIZE for one in apart]


def test_a_size_is_the_same_asked_for_or_stored() -> None:
    """What a workload's name says, with what it leaves out, are its sizes; a size that is gone is nowhere."""
    for kernel in shipped().kernels.values():
        for workload in kernel.workloads()[:5]:
            assert named_point(kernel, str(workload)) == own_point(kernel, workload)
    assert named_point(shipped().kernel("scan-lf"), "scan-lf:M=4") is None


def test_a_lent_answer_says_at_which_clock_it_was_tuned() -> None:
    """Of a neighbour, or of a workload alone, the reply sets no clock: it says which one was set, if any."""
    near = replace(known(["scan-lf:N=32"]), clock_mhz=691)
    for answers, asked in (
        (answerer(near), (SCAN,)),
        (answerer(replace(known([SCAN]), clock_mhz=691)), (SCAN, "fft:N=64")),
    ):
        reply = answers.reply(Question(asked))
        assert reply.clock_mhz is None
        assert ", tuned at 691 MHz" in reply.workloads[SCAN].details


def test_a_lent_answer_is_rather_one_without_a_clock() -> None:
    """Of two answers for the same, one with clocks as found fits a reply that sets none, however old."""
    for name, asked in (("scan-lf:N=32", (SCAN,)), (SCAN, (SCAN, "fft:N=64"))):
        found, clocked = known([name], run=1), known([name], run=2)
        conditions: Any = {**clocked.conditions, "clocks": "691,998"}
        answers = answerer(found, replace(clocked, clock_mhz=691, conditions=conditions))
        details = answers.reply(Question(asked)).workloads[SCAN].details
        assert "run 1 of" in details
        assert "MHz" not in details


def test_few_configurations_are_tried_for_a_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many neighbours there are, and workloads are named, the rules are looked at a few times."""
    names = [str(workload) for workload in shipped().kernel("scan-lf").workloads()]
    tuned, asked = names[: len(names) // 2], names[len(names) // 2 :]
    answers = answerer(
        *(replace(known([name], run=run), configurations={name: {"P": -1}}) for run, name in enumerate(tuned))
    )
    tried = []

    def counted(
        kernel: KernelFile, workload: Workload, values: Mapping[str, TunableValue]
    ) -> Configuration | None:
        tried.append(workload)
        return allowed(kernel, workload, values)

    monkeypatch.setattr(best_known, "allowed", counted)
    for count in (1, 4, MOST_WORKLOADS):
        tried.clear()
        answers.reply(Question(tuple(asked[:count])))
        assert 0 < len(tried) <= min(best_known.NEIGHBOURS * count, best_known.MOST_TRIED)
