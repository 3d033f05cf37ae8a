"""What the daemon wants measured of itself, and the counts of use that it goes by."""

import math
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from answering_scene import ENERGY, TX1, Answers, known, refresh, sample, shipped, store_run
from hypothesis import given
from hypothesis import strategies as st

from tuner.daemon.backlog.backlog import (
    ASSUMED_SAVING_J,
    BACK_OFF_S,
    ENDING_S,
    HALF_LIFE_DAYS,
    LEAST_SAVING,
    LONGEST_BACK_OFF_S,
    MOST_BACKED_OFF,
    MOST_CANDIDATES,
    MOST_QUESTIONS,
    SAMPLE_BACK_OFF_S,
    BackOff,
    CandidateJob,
    UseCounter,
    priority,
    saving_j,
)
from tuner.daemon.interface import Question
from tuner.daemon.settings import OnlineTable, SetTable, Settings
from tuner.database.answers import ANALYSIS_VERSION, analytical_key
from tuner.database.connection import Database
from tuner.database.ledger import Ledger
from tuner.database.runs import Store
from tuner.model.jobs import JobKind, JobSpec, Origin
from tuner.model.options import JOB_OPTIONS
from tuner.search.option_checks import job_options
from tuner.search.request import SearchRequest

# --- what the daemon wants measured of itself: what was never tuned, is stale, has drifted, or is used


SCAN, FFT = "scan-lf:N=64", "fft:N=64"
LATER = datetime.now(timezone.utc) + timedelta(days=2)


class Clock:
    """Seconds that a test moves on."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def answerer(settings: Settings | None = None, **options: Any) -> Answers:
    return Answers(shipped(), {TX1.spec: TX1}, settings, now=lambda: LATER, **options)


def the_one(answers: Answers) -> CandidateJob:
    (wanted,) = answers.backlog.candidates()
    return wanted


def test_what_was_asked_for_and_never_tuned_is_wanted() -> None:
    """A question without a stored answer asks for its search, as daemon.toml has it."""
    answers = answerer()
    answers.reply(
        Question((FFT, f"{SCAN},batch=7"), "energy", max_slowdown=0.05, clocks_as_found=True, count=3.0)
    )
    wanted = the_one(answers)
    assert wanted.origin is Origin.REQUEST
    assert wanted.spec.workloads == (FFT, f"{SCAN},batch=7")
    assert (wanted.spec.clocks, wanted.spec.device, wanted.spec.kind) == ("off", TX1.spec, JobKind.TUNE)
    assert wanted.spec.options["max_slowdown"] == 0.05
    assert set(wanted.spec.options) <= set(JOB_OPTIONS)
    assert wanted.worth_j == pytest.approx(3.0 * 2 * ASSUMED_SAVING_J * 0.099, rel=0.01)


def test_refining_and_tuning_again_can_be_turned_off(store: Store) -> None:
    """daemon.toml decides whether questions and stale answers lead to searches."""
    off = Settings(online=OnlineTable(refine=False, retune_stale=False, sample_every_hours=0))
    answers = answerer(off)
    store_run(store, [SCAN], replace(TX1, driver="model-1"))
    refresh(answers.answerer, store)
    answers.reply(Question((SCAN,)))
    answers.reply(Question((FFT,)))
    assert answers.backlog.candidates() == []


def test_stale_answers_are_wanted_by_what_they_save_and_how_often(store: Store) -> None:
    """Of two stale answers the one that saves more per day comes first; an unused one comes last."""
    old = replace(TX1, driver="model-1")
    store_run(store, [SCAN], old, bound=ENERGY, saves_j=0.1)
    store_run(store, [FFT], old, bound=ENERGY, saves_j=1.0)
    store_run(store, ["tridiag-wm:N=64"], old, bound=ENERGY, saves_j=100.0)
    answers = answerer()
    refresh(answers.answerer, store)
    answers.reply(Question((SCAN,), "energy", count=50.0))
    answers.reply(Question((FFT,), "energy", count=2.0))
    wanted = answers.backlog.candidates()
    assert [one.spec.workloads for one in wanted] == [(SCAN,), (FFT,), ("tridiag-wm:N=64",)]
    assert {one.origin for one in wanted} == {Origin.STALE}
    assert wanted[0].worth_j / wanted[1].worth_j == pytest.approx(2.5)
    assert wanted[2].worth_j == 0.0
    assert "driver was model-1, is model-2" in wanted[0].reason


def test_a_fresh_answer_is_sampled_when_it_is_used_and_old(store: Store) -> None:
    """Only served answers are measured again, only after so many hours, and exactly what is served."""
    run = store_run(store, [SCAN], place=2)
    answers = answerer()
    refresh(answers.answerer, store)
    assert answers.backlog.candidates() == []
    reply = answers.reply(Question((SCAN,)))
    wanted = the_one(answers)
    assert (wanted.origin, wanted.spec.kind) == (Origin.CHECK, JobKind.SAMPLE)
    again = answers.backlog.sample_task(wanted.spec)
    assert again is not None
    assert again == (
        run,
        {"configurations": {SCAN: reply.workloads[SCAN].configuration}, "clock_mhz": None},
    )

    document = answers.backlog.sampled(run, sample(1.0))
    assert document is not None
    assert document["verdict"] == "inside"
    assert answers.backlog.candidates() == []


def test_drift_is_confirmed_kept_and_searched_anew(store: Store) -> None:
    """A sample outside leads to another at once, that to a stale answer and a search; a restart knows it."""
    run = store_run(store, [SCAN], bound=ENERGY)
    answers = answerer()
    refresh(answers.answerer, store)
    question = Question((SCAN,), "energy", count=10.0)
    answers.reply(question)
    routine = the_one(answers)

    ledger = Ledger(store.database)
    first = answers.backlog.sampled(run, sample(1.2))
    assert first is not None
    ledger.add_sample(run, first)
    assert answers.reply(question).stale == ()
    doubted = the_one(answers)
    assert doubted.spec == routine.spec
    assert doubted.priority > routine.priority

    second = answers.backlog.sampled(run, sample(1.2))
    assert second is not None
    ledger.add_sample(run, second)
    restarted = answerer()
    refresh(restarted.answerer, store)
    for one in (answers, restarted):
        reply = one.reply(question)
        assert reply.origin == "stored"
        assert reply.stale[0].startswith("drifted: 1.2 ")
        wanted = the_one(one)
        assert (wanted.origin, wanted.spec.kind) == (Origin.DRIFT, JobKind.TUNE)
        assert one.backlog.sample_task(routine.spec) is None

    newer = store_run(store, [SCAN], bound=ENERGY, joules=1.2)
    refresh(answers.answerer, store, [SCAN])
    reply = answers.reply(question)
    assert (reply.run, reply.stale) == (newer, ())


def test_a_sample_of_an_answer_that_went_is_not_kept() -> None:
    """A run that is not served any more has no standing."""
    assert answerer().backlog.sampled(7, sample(1.0)) is None


def test_what_came_to_nothing_back_off() -> None:
    """An order that was tried is not wanted for some hours, until something that it depends on changes."""
    clock = Clock()
    answers = answerer(monotonic=clock)
    answers.reply(Question((FFT,)))
    order = the_one(answers).spec
    answers.backlog.tried(order)
    assert answers.backlog.candidates() == []
    clock.now_s += BACK_OFF_S + 1
    assert the_one(answers).spec == order
    answers.backlog.tried(order)
    answers.adopt(settings=Settings())
    assert the_one(answers).spec == order


def test_a_search_whose_result_is_read_is_left_alone() -> None:
    """Between its end and its result it is not wanted; a longer back-off stays as it is."""
    clock = Clock()
    answers = answerer(monotonic=clock)
    answers.reply(Question((FFT,)))
    order = the_one(answers).spec
    answers.backlog.ending(order)
    assert answers.backlog.candidates() == []
    clock.now_s += ENDING_S + 1
    assert the_one(answers).spec == order
    answers.backlog.tried(order)
    answers.backlog.ending(order)
    clock.now_s += ENDING_S + 1
    assert answers.backlog.candidates() == []


def test_a_sample_that_brings_nothing_is_not_wanted_over_and_over(store: Store) -> None:
    """An answer that is being measured again is not wanted again until it was, or some time has passed."""
    run = store_run(store, [SCAN], bound=ENERGY)
    clock = Clock()
    answers = answerer(monotonic=clock)
    refresh(answers.answerer, store)
    answers.reply(Question((SCAN,), "energy"))
    order = the_one(answers).spec
    assert answers.backlog.sample_task(order) is not None
    assert answers.backlog.candidates() == []
    clock.now_s += SAMPLE_BACK_OFF_S + 1
    assert the_one(answers).spec == order
    assert answers.backlog.sample_task(order) is not None
    answers.backlog.sampled(run, sample(1.2))
    assert the_one(answers).spec == order


def test_a_drift_does_not_wait_for_a_search_that_was_just_made(store: Store) -> None:
    """That the search was tried for another reason some minutes ago does not keep it from being made anew."""
    run = store_run(store, [SCAN], bound=ENERGY)
    answers = answerer()
    refresh(answers.answerer, store)
    answers.reply(Question((SCAN,), "energy"))
    for joules in (1.2, 1.2):
        answers.backlog.tried(
            JobSpec((SCAN,), "energy", device=TX1.spec, options=the_one(answers).spec.options)
        )
        answers.backlog.sampled(run, sample(joules))
    assert the_one(answers).origin is Origin.DRIFT


def test_a_set_of_the_file_is_searched_as_the_file_says() -> None:
    """What daemon.toml says of a set holds for searches that questions lead to."""
    keys = {"policy": "random", "clocks": "all", "runs_per_day": 5.0}
    answers = answerer(Settings.model_validate({"set": [{"name": "both", "workloads": (SCAN, FFT), **keys}]}))
    answers.reply(Question((FFT, SCAN)))
    order = the_one(answers).spec
    assert (order.policy, order.clocks, order.options["runs_per_day"]) == ("random", "all", 5.0)


def test_questions_that_cannot_be_asked_any_more_want_nothing() -> None:
    """Counts of a kernel or a device that is gone, or that are damaged, lead to no job."""
    answers = answerer()
    answers.reply(Question((FFT,)))
    answers.backlog.uses.restore({"[": 5.0, '{"workloads": ["gone:N=4"]}': 5.0, '{"workloads": 7}': 1.0})
    assert the_one(answers).spec.workloads == (FFT,)
    answers.adopt(identities={})
    assert answers.backlog.candidates() == []


def test_few_are_wanted_at_a_time() -> None:
    """However much is asked, the list stays short, and the most used is in it."""
    answers = answerer()
    for batch in range(1, 3 * MOST_CANDIDATES):
        answers.reply(Question((f"{SCAN},batch={batch}",), count=float(batch)))
    wanted = answers.backlog.candidates()
    assert len(wanted) == MOST_CANDIDATES
    assert wanted[0].spec.workloads == (f"{SCAN},batch={3 * MOST_CANDIDATES - 1}",)


def test_an_order_says_what_a_request_takes() -> None:
    """Every option of a wanted order is a field of a request that checks."""
    answers = answerer()
    answers.reply(Question((FFT,), "energy", max_slowdown=0.1))
    order: JobSpec = the_one(answers).spec
    SearchRequest(order.workloads, **job_options(order)).check()


@given(st.floats(0, 1e12), st.floats(0, 1e12))
def test_priority_rises_with_worth_and_stays_below_what_people_ask(one: float, other: float) -> None:
    """What saves more goes first, and nothing of the daemon's own goes before a client's job."""
    assert -1.0 <= priority(one) < 0.0
    if one < other:
        assert priority(one) <= priority(other)


def test_savings_are_joules_also_of_answers_for_time() -> None:
    """Seconds count with the measured power; an answer that ties with the default still saves a little."""
    energy = replace(known([SCAN], joules=1.0, saves_j=0.5), objective="energy")
    assert saving_j(energy) == pytest.approx(0.5)
    time = replace(energy, objective="time")
    assert saving_j(time) == pytest.approx(100.0 * 0.01)
    tied = replace(known([SCAN], joules=2.0, saves_j=0.0), objective="energy")
    assert saving_j(tied) == pytest.approx(LEAST_SAVING * 2.0)


def test_what_was_never_tuned_is_worth_what_its_kernel_saves() -> None:
    """The estimate is the mean of the same kernel's answers, else of all, else a documented number."""
    answers = answerer()
    found = [
        known(["scan-lf:N=4"], run=1, saves_j=1.0),
        known(["scan-lf:N=8"], run=2, saves_j=3.0),
        known(["tridiag-wm:N=64"], run=3, saves_j=5.0),
    ]
    answers.take(*(replace(one, objective="energy") for one in found))
    answers.reply(Question((SCAN,), "energy"))
    answers.reply(Question((FFT,), "energy"))
    worth = {one.spec.workloads[0]: one.worth_j for one in answers.backlog.candidates()}
    assert worth[SCAN] / worth[FFT] == pytest.approx(2.0 / 3.0)


def test_a_search_in_vain_is_wanted_ever_more_seldom() -> None:
    """A run without a valid trial backs off, twice as long each time, in any order of its workloads."""
    clock = Clock()
    answers = answerer(monotonic=clock)
    answers.reply(Question((FFT, SCAN), count=1000.0))
    order = the_one(answers).spec
    back_off_s = []
    for _ in range(8):
        answers.backlog.tried(replace(order, workloads=tuple(reversed(order.workloads))))
        began_s = clock.now_s
        while not answers.backlog.candidates():
            clock.now_s += BACK_OFF_S / 2
            answers.reply(Question((FFT, SCAN), count=1000.0))
        back_off_s.append(clock.now_s - began_s)
    assert back_off_s[:3] == [BACK_OFF_S, 2 * BACK_OFF_S, 4 * BACK_OFF_S]
    assert back_off_s[-1] == LONGEST_BACK_OFF_S


def test_a_search_that_brought_an_answer_back_off_no_longer_than_once() -> None:
    """What doubles is only what comes to nothing."""
    clock = Clock()
    back_off = BackOff(clock)
    for in_vain in (True, True, False):
        back_off.tried("a", in_vain=in_vain)
    clock.now_s = BACK_OFF_S - 1.0
    assert "a" in back_off
    clock.now_s = BACK_OFF_S
    assert "a" not in back_off
    for number in range(2 * MOST_BACKED_OFF):
        back_off.tried(str(number), in_vain=True)
    assert "0" not in back_off
    assert str(2 * MOST_BACKED_OFF - 1) in back_off


def test_analytical_answers_of_other_sources_are_dropped() -> None:
    """Of changed sources, or another version of the model, nothing is kept."""
    answers = answerer()
    source = shipped().kernel("scan-lf").fingerprint
    now = analytical_key(SCAN, TX1, source, ANALYSIS_VERSION)
    old = analytical_key(SCAN, TX1, "0" * 64, ANALYSIS_VERSION)
    older = analytical_key(SCAN, TX1, source, ANALYSIS_VERSION - 1)
    answers.answerer.remember({key: {} for key in (now, old, older)})
    assert answers.answerer.forget_outdated() == {now}
    assert answers.answerer.forget_outdated() == {now}


def test_an_answer_of_an_unfinished_search_wants_the_rest(store: Store) -> None:
    """A run that a limit or a stop ended answers, and what was not tried yet is wanted."""
    for status, wanted in (("limited", 1), ("interrupted", 1), ("finished", 0)):
        store_run(store, [SCAN], status=status)
        answers = answerer(Settings(online=OnlineTable(sample_every_hours=0)))
        refresh(answers.answerer, store)
        reply = answers.reply(Question((SCAN,)))
        assert (reply.origin, reply.stale) == ("stored", ())
        assert len(answers.backlog.candidates()) == wanted


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({}, True),
        ({"workloads": ("fft:N=64,batch=2000000000", SCAN)}, False),
        ({"workloads": (f"{SCAN},dtype=float32", FFT)}, True),
        ({"objective": "energy", "max_slowdown": 0.05}, False),
        ({"devices": ("cuda:7",)}, False),
        ({"objective": "energy"}, False),
    ],
)
def test_only_a_set_that_asks_the_same_lends_its_policy(changes: dict[str, Any], same: bool) -> None:
    """A set is the question's where workloads, objective, limit and device mean the same."""
    group = SetTable(
        **{"name": "s", "workloads": (SCAN, FFT), "policy": "random", "clocks": "all", **changes}
    )
    answers = answerer(Settings(set=(group,)))
    answers.reply(Question((FFT, SCAN)))
    order = the_one(answers).spec
    assert (order.policy, order.clocks) == (("random", "all") if same else ("auto", "off"))


def test_what_is_wanted_is_worked_out_in_pieces() -> None:
    """Some workloads at a time, until nothing is left; what is wanted then is the same as at once."""
    at_once, in_pieces = answerer(), answerer()
    for answers in (at_once, in_pieces):
        for batch in range(1, MOST_CANDIDATES):
            answers.reply(Question((f"{SCAN},batch={batch}", FFT), count=float(batch)))
    pieces = 0
    while in_pieces.backlog.work_out():
        pieces += 1
    assert MOST_CANDIDATES / 8 < pieces < MOST_CANDIDATES
    assert [one.spec for one in in_pieces.backlog.candidates()] == [
        one.spec for one in at_once.backlog.candidates()
    ]


# --- counts of use: they fade, they survive the daemon, and their table stays small ---------------


DAY_S = 86_400.0


def test_a_steady_use_is_told_per_day() -> None:
    """Ten uses a day, every hour, over many weeks are told as ten a day."""
    clock = Clock()
    uses = UseCounter(monotonic=clock)
    for _ in range(24 * 120):
        clock.now_s += DAY_S / 24
        uses.add("a", 10 / 24)
    assert uses.per_day()["a"] == pytest.approx(10.0, rel=0.01)


def test_what_is_used_no_more_fades_and_goes() -> None:
    """A count halves with its half-life, and what is next to nothing is forgotten."""
    clock = Clock()
    uses = UseCounter(monotonic=clock)
    uses.add("a", 8.0)
    before = uses.per_day()["a"]
    clock.now_s += HALF_LIFE_DAYS * DAY_S
    assert uses.per_day()["a"] == pytest.approx(before / 2)
    clock.now_s += 100 * HALF_LIFE_DAYS * DAY_S
    assert uses.per_day() == {}


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.floats(0, 1e9),
            st.floats(0, 30 * DAY_S),
            st.sampled_from(["", "take", "used", "fail"]),
        ),
        max_size=20,
    )
)
def test_the_disk_has_what_the_memory_has(steps: list[tuple[str, float, float, str]]) -> None:
    """Changes that were taken, less those put back, sum up to the counts; a new process goes on from them."""
    clock = Clock()
    uses = UseCounter(monotonic=clock)
    disk: dict[str, float] = {}
    for key, count, passed_s, flush in [*steps, ("a", 0.0, 0.0, "take")]:
        clock.now_s += passed_s
        uses.add(key, count)
        if not flush:
            continue
        changes = uses.take(used_only=flush == "used")
        if flush == "used":
            known = disk.get(key, 0.0) + changes.get(key, 0.0)
            assert known == pytest.approx(uses.per_day().get(key, 0.0) * HALF_LIFE_DAYS / math.log(2.0))
        if flush == "fail":
            uses.put_back(changes)
            continue
        for name, change in changes.items():
            disk[name] = disk.get(name, 0.0) + change
    told = uses.per_day()
    again = UseCounter(disk, monotonic=Clock()).per_day()
    for key in disk.keys() | told.keys():
        assert again.get(key, 0.0) == pytest.approx(told.get(key, 0.0), abs=1e-5)


def test_the_least_used_makes_room() -> None:
    """The table does not grow; what is used often stays in it whatever else is asked once."""
    uses = UseCounter(monotonic=Clock())
    uses.add("often", 100.0)
    for number in range(MOST_QUESTIONS + 100):
        uses.add(f"once {number}", 1.0)
    assert len(uses) == MOST_QUESTIONS
    assert next(iter(uses.per_day())) == "often"


def test_damaged_counts_are_not_taken_over() -> None:
    """What is no number on the disk counts nothing; what is negative by rounding is corrected there."""
    uses = UseCounter({"a": math.nan, "b": math.inf, "c": -1e-9, "d": 2.0}, monotonic=Clock())
    assert list(uses.per_day()) == ["d"]
    assert uses.take() == {"c": 1e-9}


def test_what_has_faded_leaves_no_row_behind(tmp_path: Path) -> None:
    """Whatever clients have asked over the years, the table on the disk is as small as that in memory."""
    clock = Clock()
    uses = UseCounter(monotonic=clock)
    with Database(tmp_path / "tuner.db") as database:
        ledger = Ledger(database)
        for number in range(50):
            uses.add(f"question {number}", 1.0)
            ledger.add_uses(uses.take())
            clock.now_s += 3 * HALF_LIFE_DAYS * DAY_S
        ledger.add_uses(uses.take())
        assert len(ledger.uses()) == len(uses) < 5
