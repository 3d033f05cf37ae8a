"""What is best: stored, worked out, of the nearest size, or the default; and nothing else is ever said."""

import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from answering_scene import H200, TWIN, TX1, Answers, first_values, known, refresh, shipped, store_run
from hypothesis import given
from hypothesis import strategies as st

from tuner.daemon.answers.replies import AnswerIndex, question_of
from tuner.daemon.interface import NotNowError, Question
from tuner.daemon.settings import OnlineTable, Settings, TuningTable
from tuner.database.answers import ANALYSIS_VERSION, StoredAnswer, analytical_key
from tuner.database.best_known import ORIGINS
from tuner.database.ranking import allowed
from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import InputError, UnknownNameError
from tuner.model.jobs import DeviceIdentity
from tuner.model.plan import Configuration
from tuner.model.records import RunStatus
from tuner.model.run_document import AnalyticalDocument, run_conditions, run_document
from tuner.model.typed import UnfitError

SCAN, FFT = "scan-lf:N=64", "fft:N=64"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "tuner.db") as opened:
        yield opened


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

    assert answers.reply(Question((SCAN,), "time")).origin == "default"
    assert answers.reply(Question((SCAN,), max_slowdown=0.1)).origin == "default"
    assert answers.reply(Question((SCAN,), max_slowdown=0.05)).origin == "stored"
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
    """The scan kernel with its [default] left out, and text changed."""
    root = shipped().kernel("scan-lf").path.parent.parent
    for name in ("scan-lf", "common"):
        shutil.copytree(root / name, folder / name)
    path = folder / "scan-lf" / "kernel.toml"
    text = re.sub(r"\n\[default\][^\n]*\n(?:(?!\[)[^\n]*\n)*", "\n", path.read_text())
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
    alone = [(f"scan-lf:N=4,batch={batch}",) for batch in range(1, 50)]
    together = [tuple(f"scan-lf:N={2**k},batch={batch}" for k in range(2, 10)) for batch in range(1, 5)]
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


def test_the_answering_process_stays_light() -> None:
    """Nothing that answers imports SciPy, a compiler, or what opens devices."""
    code = (
        "import sys; import tuner.daemon.answers.answerer, tuner.daemon.answers.analysis,"
        " tuner.kernel_files.catalog; print(*sys.modules)"
    )
    names = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    heavy = {
        "scipy",
        "cupy",
        "tuner.search.request",
        "tuner.devices.choice",
        "tuner.devices.worker",
        "tuner.search.session",
        "tuner.search.explaining",
    }
    assert heavy.isdisjoint(names.split())


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
    with pytest.raises(UnknownNameError, match="choose from"):
        answerer(settings=Settings(online=OnlineTable())).reply(Question(("nope",)))
