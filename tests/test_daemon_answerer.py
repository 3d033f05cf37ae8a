"""What is best: stored, worked out, of the nearest size, or the default; and nothing else is ever said."""

import itertools
import math
import random
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from statistics import NormalDist
from typing import Any, cast

import pytest
from answering_scene import (
    H200,
    TWIN,
    TX1,
    Answers,
    first_values,
    known,
    refresh,
    sample,
    shipped,
    store_run,
    trial,
)
from hypothesis import given
from hypothesis import strategies as st

from tuner.daemon.answers.answerer import LEAST_REPEATABILITY, sample_document
from tuner.daemon.answers.replies import AnswerIndex, question_of
from tuner.daemon.interface import MOST_WORKLOADS, NotNowError, Question
from tuner.daemon.settings import OnlineTable, Settings, TuningTable
from tuner.database import best_known
from tuner.database.answers import ANALYSIS_VERSION, SampleHistory, StoredAnswer, analytical_key
from tuner.database.best_known import ORIGINS
from tuner.database.ranking import NEAR_SIZE, AnswerQuery, allowed, named_point, own_point, rank_neighbours
from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import InputError, StoreError, UnknownNameError
from tuner.model.jobs import DeviceIdentity
from tuner.model.objective import COVERAGE
from tuner.model.plan import Configuration, TunableValue, Workload
from tuner.model.records import RunStatus
from tuner.model.run_document import (
    AnalyticalDocument,
    AnswerDocument,
    AnswerTrial,
    SampleDocument,
    run_conditions,
    run_document,
)
from tuner.model.trial import Status
from tuner.model.typed import UnfitError

# --- what is best: stored, worked out, of the nearest size, or the default; and nothing else is ever said


SCAN, FFT = "scan-lf:N=64", "fft:N=64"


def answerer(*devices: DeviceIdentity, **options: object) -> Answers:
    return Answers(shipped(), {device.spec: device for device in devices or (TX1,)}, **options)  # type: ignore[arg-type]


def analytical(name: str, device: DeviceIdentity = TX1, place: int = 3) -> dict[str, AnalyticalDocument]:
    kernel = shipped().kernel(name.partition(":")[0])
    values = first_values(name)[place]
    key = analytical_key(name, device, kernel.fingerprint, ANALYSIS_VERSION)
    return {key: {"configuration": dict(values), "rule": "embedded", "considered": 7, "reasons": []}}


def test_origins_come_in_their_order(store: Store) -> None:
    """The default gives way to the nearest size, that to the analytical answer, that to the stored one."""
    answers = answerer()
    question = Question((SCAN,))
    assert answers.reply(question).origin == "default"

    store_run(store, ["scan-lf:N=4"])
    store_run(store, ["scan-lf:N=32"])
    refresh(answers.answerer, store)
    nearest = answers.reply(question)
    assert nearest.origin == "nearest"
    assert "scan-lf:N=32" in nearest.workloads[SCAN].details
    assert nearest.run is None

    answers.answerer.remember(analytical(SCAN))
    worked_out = answers.reply(question)
    assert worked_out.origin == "analytical"
    assert worked_out.answer is None

    run = store_run(store, [SCAN], joules=2.0)
    refresh(answers.answerer, store, [SCAN])
    stored = answers.reply(question)
    assert (stored.origin, stored.run, stored.stale) == ("stored", run, ())
    assert stored.answer is not None
    assert stored.answer["best"]["energy_j"] == 2.0
    assert ORIGINS == ("stored", "predicted", "analytical", "nearest", "default")


def test_a_set_is_answered_as_a_whole_or_in_parts(store: Store) -> None:
    """Workloads tuned together are answered together; else each has its own, and the least origin is told."""
    answers = answerer()
    alone = store_run(store, [SCAN])
    refresh(answers.answerer, store)
    parts = answers.reply(Question((SCAN, FFT)))
    assert parts.origin == "default"
    assert [parts.workloads[name].origin for name in (SCAN, FFT)] == ["stored", "default"]
    assert parts.stale == (f"{SCAN} was tuned alone, is asked for with {FFT}",)
    assert (parts.run, parts.answer) == (None, None)
    assert "never tuned together" in parts.notices[-1]

    together = store_run(store, [FFT, SCAN])
    refresh(answers.answerer, store, [SCAN, FFT])
    whole = answers.reply(Question((SCAN, FFT)))
    assert (whole.origin, whole.run, whole.stale) == ("stored", together, ())
    assert answers.reply(Question((SCAN,))).run == alone


def test_objective_limit_batch_and_clocks_must_be_those_asked_for(store: Store) -> None:
    """Another objective or limit has another answer, another batch a stale one, and clocks can be refused."""
    answers = answerer(settings=Settings(tuning=TuningTable(clocks="all")))
    store_run(store, [SCAN], max_slowdown=0.05)
    clocked = store_run(store, [SCAN], bound={"clocks": "998,691"}, clock_mhz=691)
    refresh(answers.answerer, store)

    assert answers.reply(Question((SCAN,), "energy")).origin == "default"
    assert answers.reply(Question((SCAN,), "energy", max_slowdown=0.1)).origin == "default"
    assert answers.reply(Question((SCAN,), "energy", max_slowdown=0.05)).origin == "stored"
    lent = answers.reply(Question((SCAN,), clocks_as_found=True))
    assert (lent.origin, lent.clock_mhz, lent.run) == ("nearest", None, None)
    assert "tuned at 691 MHz" in lent.workloads[SCAN].details
    limited = answerer()
    limited.take(known([SCAN], power_limit_w=450))
    lent = limited.reply(Question((SCAN,), clocks_as_found=True))
    assert (lent.origin, lent.power_limit_w, lent.run) == ("nearest", None, None)
    assert "tuned at a power limit of 450 W" in lent.workloads[SCAN].details
    assert limited.reply(Question((SCAN,))).power_limit_w == 450
    reply = answers.reply(Question((SCAN,)))
    assert (reply.run, reply.clock_mhz, reply.stale) == (clocked, 691, ())
    batch = shipped().workload(SCAN).batch
    other = answers.reply(Question((f"{SCAN},batch={2 * batch}",)))
    assert other.origin == "stored"
    assert f"is asked for {2 * batch}" in other.stale[0]
    assert answers.reply(Question((f"{SCAN},batch=5",))).origin == "default"


def test_only_answers_of_this_model_of_gpu_are_served(store: Store) -> None:
    """Another GPU of the same model lends its answer, as stale; another model lends nothing."""
    answers = answerer(H200)
    store_run(store, [SCAN], TX1)
    refresh(answers.answerer, store)
    assert answers.reply(Question((SCAN,))).origin == "default"
    store_run(store, [SCAN], TWIN)
    refresh(answers.answerer, store)
    lent = answers.reply(Question((SCAN,)))
    assert lent.origin == "stored"
    assert lent.stale == ("GPU was GPU-2, is GPU-1",)
    own = store_run(store, [SCAN], replace(H200, driver="1.0"))
    refresh(answers.answerer, store)
    assert answers.reply(Question((SCAN,))).run == own


def test_values_that_are_not_allowed_any_more_are_not_served() -> None:
    """A stored configuration that the kernel file now forbids is passed over, alone and in a set."""
    broken = known([SCAN])
    values = {SCAN: {**broken.configurations[SCAN], "P": 3}}
    answers = answerer()
    answers.take(replace(broken, configurations=values))
    assert answers.reply(Question((SCAN,))).origin == "default"


def test_text_sizes_must_be_the_same_for_a_neighbour(store: Store) -> None:
    """The inverse transform of another length lends its configuration to the inverse one only."""
    answers = answerer()
    store_run(store, ["fft-large:N=8192,direction=inverse"], place=0)
    refresh(answers.answerer, store)
    assert answers.reply(Question(("fft-large:N=16384",))).origin == "default"
    inverse = answers.reply(Question(("fft-large:N=16384,direction=inverse",)))
    kernel = shipped().kernel("fft-large")
    workload = shipped().workload("fft-large:N=16384,direction=inverse")
    lent = first_values("fft-large:N=8192,direction=inverse")[0]
    fits = kernel.broken_rule(workload, lent) is None
    assert inverse.origin == ("nearest" if fits else "default")


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (Question(("scam-lf:N=64",)), "unknown kernel 'scam-lf'"),
        (Question(("fft-large:N=65",)), "65"),
        (Question(("scan-lf:M=64",)), "unknown size 'M'"),
        (Question(()), "workload: name at least one"),
        (Question((SCAN, SCAN)), "named more than once"),
        (Question((SCAN,), "speed"), "unknown objective 'speed'"),
        (Question((SCAN,), "time", max_slowdown=0.1), "max_slowdown"),
        (Question((SCAN,), max_slowdown=math.nan), "max_slowdown"),
        (Question((SCAN,), count=math.nan), "count"),
        (Question((SCAN,), count=-1.0), "count"),
        (Question((SCAN,), device="cuda:7"), "'cuda:7' is not tuned here; choose from sim:jetson-tx1"),
        (Question(("x" * 10_000,)), "letters"),
        (Question(tuple(f"scan-lf:N=64,batch={n + 1}" for n in range(17))), "at most 16"),
    ],
)
def test_wrong_questions_are_refused_in_words(question: Question, words: str) -> None:
    """What cannot be answered is an input error that names the trouble, and is not counted."""
    answers = answerer()
    with pytest.raises(InputError, match=words):
        answers.reply(question)
    with pytest.raises(InputError, match=words):
        answers.answerer.key(question)
    assert answers.backlog.uses.take() == {}


def test_without_a_device_nothing_is_answered() -> None:
    """A daemon that found no GPU says so."""
    with pytest.raises(InputError, match="no GPU"):
        Answers(shipped(), {}).reply(Question((SCAN,)))


def without_default(folder: Path, *changes: tuple[str, str]) -> Catalog:
    """The scan kernel with its [default] and [measured] left out, and text changed."""
    root = shipped().kernel("scan-lf").path.parent.parent
    for name in ("scan-lf", "common"):
        shutil.copytree(root / name, folder / name)
    path = folder / "scan-lf" / "kernel.toml"
    text = re.sub(r"(?m)^\[(?:default|measured)\].*\n(?:(?!\[).*\n)*", "", path.read_text())
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    return Catalog.load(search_path=(folder,))


def test_a_kernel_without_a_default_gets_its_first(tmp_path: Path) -> None:
    """The first configuration that the rules allow is served where it is soon found."""
    catalog = without_default(
        tmp_path,
        ("shuffle = [true, false]", "shuffle = [true]"),
        ('store = ["direct", "bulk"]', 'store = ["direct"]'),
        ("blocks = [1, 2, 4, 8, 16, 32]", "blocks = [1]"),
        ("cap = [0, 256, 512, 768, 1024, 1536]", "cap = [0]"),
        ("L = [32, 64, 128,", "L = [128,"),
    )
    answers = Answers(catalog, {TX1.spec: TX1})
    reply = answers.reply(Question(("scan-lf:N=4",)))
    first = catalog.kernel("scan-lf").default(catalog.workload("scan-lf:N=4"))
    assert reply.origin == "default"
    assert Configuration(reply.workloads["scan-lf:N=4"].configuration) == first


def test_a_first_configuration_that_is_far_off_is_waited_for(tmp_path: Path) -> None:
    """Enumerating a space takes too long for a reply: the client is told to ask again, and gets it then."""
    catalog = without_default(tmp_path, ("rules = [", 'rules = [\n  "L >= 256",'))
    kernel = catalog.kernel("scan-lf")
    heard: list[str] = []
    answers = Answers(catalog, {TX1.spec: TX1}, analyse=lambda name, _device: heard.append(name))
    question = Question(("scan-lf:N=4",))
    with pytest.raises(NotNowError, match="names no default"):
        answers.reply(question)
    assert heard == ["scan-lf:N=4"]
    first = kernel.default(catalog.workload("scan-lf:N=4"))
    key = analytical_key("scan-lf:N=4", TX1, kernel.fingerprint, ANALYSIS_VERSION)
    answers.answerer.remember({key: {"configuration": None, "default": dict(first)}})
    assert Configuration(answers.reply(question).workloads["scan-lf:N=4"].configuration) == first


def test_what_is_not_known_is_analysed_until_it_is() -> None:
    """Each question without an analytical answer asks for one, again from a kept reply; then no more."""
    heard: list[tuple[str, str]] = []
    answers = answerer(analyse=lambda name, device: heard.append((name, device.spec)))
    for _ in range(2):
        answers.reply(Question((f"{SCAN},batch=7",)))
    assert heard == [(SCAN, TX1.spec)] * 2
    answers.answerer.remember(analytical(SCAN))
    answers.reply(Question((SCAN,)))
    assert len(heard) == 2


def test_a_model_that_has_no_answer_is_not_asked_again() -> None:
    """A workload that was worked out without a result keeps its default, and asks for nothing."""
    heard: list[str] = []
    answers = answerer(analyse=lambda name, _device: heard.append(name))
    ((key, found),) = analytical(SCAN).items()
    answers.answerer.remember({key: {**found, "configuration": None}})
    assert answers.reply(Question((SCAN,))).origin == "default"
    assert heard == []


def test_memory_is_bounded_whatever_is_asked() -> None:
    """Many questions and analytical answers leave no more behind than the limits, the newest of them."""
    answers = answerer(limits={"most_prepared": 20, "most_analytical": 5})
    alone: list[tuple[str, ...]] = [(f"scan-lf:N=4,batch={batch}",) for batch in range(1, 50)]
    together: list[tuple[str, ...]] = [
        tuple(f"scan-lf:N={2**k},batch={batch}" for k in range(2, 10)) for batch in range(1, 5)
    ]
    for asked, most in ((alone, 20), (together, 2)):
        kept = [(names, answers.reply(Question(names))) for names in [*asked, *asked[-most:]]]
        newest = [reply for names, reply in reversed(kept) if answers.reply(Question(names)) is reply]
        assert len(newest) == 2 * most  # each of them was asked for twice
    answers.answerer.remember({f"key {n}": {} for n in range(5)})
    answers.answerer.remember({f"more {n}": {} for n in range(3)})
    assert list(answers.answerer.snapshot.predictions) == ["key 3", "key 4", "more 0", "more 1", "more 2"]


def test_a_damaged_record_hides_no_other(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """A run whose answer cannot be read is logged and passed over."""
    good = store_run(store, [SCAN])
    bad = store_run(store, [SCAN])
    store.end(bad, RunStatus.FINISHED, {"best": {"configurations": []}})
    answers = answerer()
    refresh(answers.answerer, store)
    assert answers.reply(Question((SCAN,))).run == good
    assert f"run {bad} is not understood" in caplog.text


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("conditions", ("sources",), None),
        ("conditions", ("workloads", 0, 1), 10**400),
        ("answer", ("best", "energy_j"), "1"),
        ("answer", ("default", "energy_j"), 10**400),
        ("answer", ("best", "time_s"), []),
        ("answer", ("repeatability",), 1),
        ("answer", ("repeatability", "time_interval"), "1"),
    ],
)
def test_what_cannot_be_calculated_with_is_a_damaged_record(
    store: Store, part: str, key: tuple[Any, ...], value: object
) -> None:
    """What is read of a database is refused where it comes in, before anything is asked of it."""
    store_run(store, [SCAN], repeats=0.01)
    (run,) = store.history()
    check: Callable[[object], object] = run_conditions if part == "conditions" else run_document
    whole: Any = getattr(run, part)
    assert check(whole) is whole
    document: Any = whole
    for step in key[:-1]:
        document = document[step]
    document[key[-1]] = value
    with pytest.raises(UnfitError, match=f"{key[0]}|batch"):
        check(whole)


# --- laws ----------------------------------------------------------------------------------------

NAMES = ("scan-lf:N=4", "scan-lf:N=64", "scan-lf:N=2048", "fft:N=64", "tridiag-wm:N=64")


@st.composite
def runs(draw: st.DrawFn, number: int) -> object:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True))
    batch = draw(st.sampled_from(["", ",batch=64"]))
    sources = {name.partition(":")[0]: "old" for name in names} if draw(st.booleans()) else None
    clock = draw(st.sampled_from([None, 691]))
    bound: dict[str, object] = {"clocks": "off" if clock is None else "998,691"}
    if sources is not None:
        bound["sources"] = sources
    device = draw(st.sampled_from([H200, TWIN, TX1, replace(H200, driver="1.0")]))
    found = known(
        [name + batch for name in names],
        device,
        run=number,
        bound=bound,
        place=draw(st.integers(0, 40)),
        clock_mhz=clock,
    )
    return replace(found, status=draw(st.sampled_from([RunStatus.FINISHED, RunStatus.INTERRUPTED])))


histories = st.integers(0, 8).flatmap(lambda n: st.tuples(*(runs(number) for number in range(1, n + 1))))
questions = st.builds(
    Question,
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True).map(tuple),
    st.sampled_from(["energy", "time"]),
    st.sampled_from(["", "cuda:1", "sim:jetson-tx1"]),
    clocks_as_found=st.booleans(),
)


@given(histories, questions, st.booleans())
def test_every_reply_keeps_the_laws(
    history: tuple[StoredAnswer, ...], question: Question, worked_out: bool
) -> None:
    """Configurations are allowed, the origin is the least, only stored answers are stale, keys go around."""
    answers = answerer(H200, TWIN, TX1)
    if worked_out:
        answers.answerer.remember(analytical("scan-lf:N=64", H200))
    answers.answerer.take(AnswerIndex.of(history, answers.answerer.snapshot.stale))
    reply = answers.reply(question)

    origins = {part.origin for part in reply.workloads.values()}
    assert reply.origin == max(origins, key=ORIGINS.index)
    assert set(reply.workloads) == set(question.workloads)
    for name, part in reply.workloads.items():
        workload = shipped().workload(name)
        assert allowed(shipped().kernel(workload.kernel), workload, part.configuration) is not None
    if "stored" not in origins:
        assert not reply.stale
    assert (reply.run is None) == (reply.answer is None)
    if reply.clock_mhz is not None:
        assert reply.run is not None
        assert not question.clocks_as_found
    key = answers.answerer.key(question)
    assert answers.answerer.key(question_of(key)) == key
    assert answers.reply(question) == reply


def test_unknown_names_stay_unknown_names() -> None:
    """A kernel that is not there is told apart from other wrong input, with the catalogue's choices."""
    with pytest.raises(UnknownNameError, match="unknown kernel 'nope'"):
        answerer(settings=Settings(online=OnlineTable())).reply(Question(("nope",)))


# --- which sizes are near to another one, and how much is looked at for a reply -------------------


def clocked_answers(*answers: StoredAnswer) -> Answers:
    found = Answers(shipped(), {TX1.spec: TX1}, Settings(tuning=TuningTable(clocks="all")))
    found.take(*answers)
    return found


def query(name: str, batch: int | None = None) -> AnswerQuery:
    kernel = shipped().kernel(name.partition(":")[0])
    workload = shipped().workload(name if batch is None else f"{name},batch={batch}")
    kernels, sources = {kernel.name: kernel}, {kernel.name: kernel.fingerprint}
    return AnswerQuery((workload,), kernels, sources, "time", TX1)


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
        (clocked_answers(near), (SCAN,)),
        (clocked_answers(replace(known([SCAN]), clock_mhz=691)), (SCAN, "fft:N=64")),
    ):
        reply = answers.reply(Question(asked))
        assert reply.clock_mhz is None
        assert ", tuned at 691 MHz" in reply.workloads[SCAN].details


def test_a_lent_answer_is_rather_one_without_a_clock() -> None:
    """Of two answers for the same, one with clocks as found fits a reply that sets none, however old."""
    for name, asked in (("scan-lf:N=32", (SCAN,)), (SCAN, (SCAN, "fft:N=64"))):
        found, clocked = known([name], run=1), known([name], run=2)
        conditions: Any = {**clocked.conditions, "clocks": "691,998"}
        answers = clocked_answers(found, replace(clocked, clock_mhz=691, conditions=conditions))
        details = answers.reply(Question(asked)).workloads[SCAN].details
        assert "run 1 of" in details
        assert "MHz" not in details


def test_few_configurations_are_tried_for_a_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many neighbours there are, and workloads are named, the rules are looked at a few times."""
    names = [str(workload) for workload in shipped().kernel("scan-lf").workloads()]
    tuned, asked = names[: len(names) // 2], names[len(names) // 2 :]
    answers = clocked_answers(
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


# --- measuring served answers again: what is chance, what is drift, and how rarely one is taken for another


NOW = datetime(2026, 1, 10, tzinfo=timezone.utc)
VERDICTS = ("inside", "above", "below", "failed", "void")


def judged(
    joules: float, *, unsure: float = 0.001, repeats: float | None = 0.01, **how: object
) -> SampleDocument:
    """The document of a sample of an answer of 1 J."""
    answer = known([SCAN], unsure=0.001, repeats=repeats).answer
    return sample_document("energy", answer, sample(joules, unsure=unsure, **how), NOW)  # type: ignore[arg-type]


def test_the_interval_is_the_joint_one() -> None:
    """Both uncertainties and the repeatability add in squares; inside is up to it, outside is beyond."""
    joint = math.hypot(COVERAGE * 0.001, COVERAGE * 0.001, 0.01)
    assert judged(1.0)["interval"] == pytest.approx(joint, rel=1e-6)
    assert judged(1.0 + 0.99 * joint)["verdict"] == "inside"
    assert judged(1.0 + 1.01 * joint)["verdict"] == "above"
    assert judged(1.0 - 1.01 * joint)["verdict"] == "below"


def test_repeating_is_never_taken_to_be_exact() -> None:
    """Where a run learnt nothing of its repeatability, or minutes of calm, what a GPU shows is assumed."""
    for repeats in (None, 0.0):
        assert judged(1.0, unsure=0.0, repeats=repeats)["interval"] == pytest.approx(
            COVERAGE * math.hypot(LEAST_REPEATABILITY, 0.001)
        )


def test_time_and_products_are_compared_in_their_own_unit() -> None:
    """Of an answer for time it is seconds that count; of a product, both with their exponents."""
    best = cast("AnswerTrial", trial({}, joules=2.0, time_s=0.01))
    answer: AnswerDocument = {"best": best, "repeatability": None}
    slow = sample(2.0, time_s=0.011)
    assert sample_document("energy", answer, slow, NOW)["verdict"] == "inside"
    time = sample_document("time", answer, slow, NOW)
    assert (time["verdict"], time["unit"], time["expected"]) == ("above", "s", 0.01)
    product = sample_document("ed2p within 5.00% of the fastest", answer, slow, NOW)
    assert product["verdict"] == "above"
    assert product["cost"] == pytest.approx(2.0 * 0.011**2)


def test_what_was_throttled_does_not_count() -> None:
    """A sample of another clock says nothing of the answer."""
    document = judged(3.0, flags=("throttled: thermal",))
    assert document["verdict"] == "void"
    after = SampleHistory(verdict="above").after(document)
    assert after.doubted
    assert not after.drifted


def test_an_answer_that_fails_has_drifted() -> None:
    """A configuration that gives wrong answers now is stale after a second try, and says so."""
    found = SampleHistory.of([judged(1.0, status=Status.WRONG_ANSWER)] * 2)
    assert found.drifted == "drifted: it ends with wrong-answer now"


def test_what_is_no_measurement_is_a_damaged_record() -> None:
    """A sample that cannot be read is an error of the store, not a verdict."""
    with pytest.raises(StoreError):
        sample_document("energy", known([SCAN]).answer, {"results": []}, NOW)


@given(st.lists(st.sampled_from(VERDICTS)))
def test_only_two_in_a_row_on_one_side_are_drift(verdicts: list[str]) -> None:
    """Void samples apart, an answer has drifted once the same doubt came twice running, and stays so."""
    found = SampleHistory.of(
        {"at": "2026-01-02T00:00:00+00:00", "verdict": verdict, "told": "x"} for verdict in verdicts
    )
    counted = [verdict for verdict in verdicts if verdict != "void"]
    assert bool(found.drifted) == any(one == other != "inside" for one, other in itertools.pairwise(counted))
    assert not (found.drifted and found.doubted)


def test_samples_are_due_by_age_and_at_once_in_doubt() -> None:
    """An answer is measured again after so many hours, at once after a doubt, never once it has drifted."""
    ended = (NOW - timedelta(hours=23)).isoformat()
    assert not SampleHistory().due(ended, NOW, 24.0)
    assert SampleHistory().due(ended, NOW + timedelta(hours=1), 24.0)
    assert not SampleHistory().due(ended, NOW + timedelta(days=99), 0.0)
    assert SampleHistory(at=NOW.isoformat(), verdict="above").due(ended, NOW, 24.0)
    assert not SampleHistory(at=NOW.isoformat(), verdict="inside").due(ended, NOW, 24.0)
    assert not SampleHistory(drifted="drifted: x", verdict="above").due(ended, NOW, 24.0)


def test_a_clock_that_was_wrong_hides_no_answer_from_sampling() -> None:
    """A sample that seems to come from the future, or from no time at all, is not waited for."""
    assert SampleHistory(at=(NOW + timedelta(days=3000)).isoformat()).due("", NOW, 24.0)
    assert SampleHistory().due("yesterday", NOW, 24.0)


def test_chance_is_rarely_taken_for_drift() -> None:
    r"""False alarms stay below what the two-in-a-row rule allows by the theory of normal noise.

    Both samples are held against one stored value, so that its error is common to them: the differences have
    the correlation u0^2 / (u0^2 + u1^2 + r^2). An answer has at least three repeats of a sample's noise, so
    that u0^2 <= u1^2 / 3, and the correlation is at most 1/4. Each sample is outside with 5 %; both on the
    same side with 2 P(X > 1.96, Y > 1.96) of two normal variables of that correlation, 0.42 %.
    """
    noise, again, tries = 0.006, 0.005, 8000
    normal, step = NormalDist(), 0.001
    places = (COVERAGE + step * (number + 0.5) for number in range(6000))
    both = sum(normal.pdf(x) * normal.cdf((0.25 * x - COVERAGE) / math.sqrt(1 - 0.25**2)) for x in places)
    bound = 2.0 * step * both
    assert bound == pytest.approx(0.0042, abs=0.0005)
    draw = random.Random(20260110)  # noqa: S311 - noise, no secret
    own = noise / math.sqrt(3)
    alarms = first = 0
    record = sample(1.0, unsure=noise)
    for _ in range(tries):
        answer: AnswerDocument = {
            "best": cast("AnswerTrial", trial({}, joules=1.0 + draw.gauss(0, own), unsure=own)),
            "repeatability": {"energy_interval": COVERAGE * again, "time_interval": 0.0},
        }
        found = SampleHistory()
        for _ in range(2):
            measured = 1.0 + draw.gauss(0, again) + draw.gauss(0, noise)
            record["energy"] |= {"joules": measured, "uncertainty_j": noise * measured}
            found = found.after(sample_document("energy", answer, record, NOW))
            if not found.doubted:
                break
            first += 1
        alarms += bool(found.drifted)
    assert 0.03 * tries < first < 0.07 * tries  # the noise is what the intervals say
    assert alarms < tries * bound + 3.0 * math.sqrt(tries * bound)


def test_a_drift_beyond_the_interval_is_found_by_two_samples() -> None:
    """A cost that rises by three joint intervals is drift after two samples, with both numbers in words."""
    found = SampleHistory.of([judged(1.05), judged(1.05)])
    assert found.drifted.startswith("drifted: 1.05 ± 0.0021 J on 2026-01-10, was 1 ± 0.002 J")
    assert found.drifted.endswith("(modelled)")
