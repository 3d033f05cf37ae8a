"""One ranking of stored answers: the command, ``tuner.apply`` and the daemon give the same answer."""

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from answering_scene import (
    H200,
    Answers,
    conditions,
    document,
    first_values,
    known,
    refresh,
    shipped,
    store_run,
)
from cli_process import tuner

from tuner.application.choice import choose
from tuner.daemon.interface import Question, Reply
from tuner.daemon.settings import Settings, TuningTable
from tuner.database.answers import analytical_key
from tuner.database.best_known import ORIGINS
from tuner.database.ledger import Ledger
from tuner.database.ranking import AnswerQuery, fills, rank_stored
from tuner.database.runs import Store
from tuner.devices.choice import identify
from tuner.devices.gpu_models import gpu_model
from tuner.kernel_files.catalog import Catalog
from tuner.model.jobs import DeviceIdentity
from tuner.model.objective import described
from tuner.model.plan import Configuration
from tuner.model.records import RunStatus
from tuner.model.run_document import AnalyticalDocument
from tuner.prediction.model import Accuracy, SelectionModel, TrainedDevice
from tuner.prediction.portfolio import portfolio_of
from tuner.prediction.training_set import TrainingSet
from tuner.report import run_report
from tuner.studies.training import model_key

NAMES = (
    *(f"scan-lf:N={n}" for n in (4, 16, 64, 1024)),
    *(f"fft:N={n}" for n in (64, 128)),
    "tridiag-wm:N=64",
)
ASKED = (*NAMES, "scan-ks:N=64", "scan-ks:N=512")  # the last two were trained, and never tuned
FACTORS = (1 / 64, 1 / 4, 1 / 2, 3 / 4, 1, 1, 1, 2, 3)
TX1 = "sim:jetson-tx1"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command reads the kernels once, and prints no tables of runs, whose documents are short here."""
    catalog = shipped()
    monkeypatch.setattr(Catalog, "load", lambda *_: catalog)
    monkeypatch.setattr(run_report, "run_report", lambda *_, **__: "")


@pytest.fixture(scope="module")
def here() -> DeviceIdentity:
    """The device of every question."""
    return identify(TX1)


def seeded(seed: int) -> random.Random:
    """Draws of a seed."""
    return random.Random(seed)  # noqa: S311 - nothing is kept secret by it


def spec(draw: random.Random, name: str) -> str:
    """A workload at some batch."""
    return f"{name},batch={max(1, int(draw.choice(FACTORS) * shipped().workload(name).batch))}"


class History:
    """A database of random runs, samples and analytical answers."""

    def __init__(self, path: Path, here: DeviceIdentity, draw: random.Random) -> None:
        self.path = path
        self._here = here
        self._draw = draw
        with Store(path) as store:
            for _ in range(90):
                self._run(store)
            for name in draw.sample(NAMES, 3):
                self._analysis(store, name)
            for kernel, objective in product(("tridiag-wm", "scan-ks"), ("time", "energy")):
                self._model(store, kernel, objective)

    def _run(self, store: Store) -> None:
        draw, here = self._draw, self._here
        names = [spec(draw, name) for name in draw.sample(NAMES, draw.choice((1, 1, 1, 2)))]
        device = draw.choice(
            (here, here, here, replace(here, driver="old"), replace(here, uuid="twin"), H200)
        )
        clock_mhz = draw.choice((None, None, 691))
        bound: dict[str, Any] = {"clocks": "off" if clock_mhz is None else "998,691"}
        bound["objective"] = draw.choice(("time", "time", "energy"))
        if draw.random() < 0.2:
            bound["sources"] = {name.partition(":")[0]: "old" for name in names}
        if draw.random() < 0.2:
            measured = conditions(names).workloads
            bound["asked"] = {name: 2 * batch for name, batch in measured}
        number = store_run(
            store,
            names,
            device,
            status=draw.choice((RunStatus.FINISHED, RunStatus.LIMITED)),
            bound=bound,
            place=draw.randrange(50),
            clock_mhz=clock_mhz,
            max_slowdown=0.05 if bound["objective"] == "energy" and draw.random() < 0.3 else None,
        )
        for _ in range(draw.choice((0, 0, 0, 1, 2))):
            Ledger(store.database).add_sample(number, {"verdict": "above", "told": "more"})

    def _analysis(self, store: Store, name: str) -> None:
        key = analytical_key(name, self._here, shipped().kernel(name.partition(":")[0]).fingerprint)
        values = dict(self._draw.choice(first_values(name)))
        found: AnalyticalDocument = {
            "configuration": values,
            "rule": "embedded",
            "considered": 7,
            "default": values,
        }
        Ledger(store.database).remember_analytical(key, found)

    def _model(self, store: Store, kernel: str, objective: str) -> None:
        """A model of a kernel that has learned from two inputs, on this GPU or on its twin."""
        names = [name for name in ASKED if name.startswith(f"{kernel}:")]
        data = TrainingSet.of(
            (dict(shipped().workload(name).sizes), values, cost, 0.0)
            for name in names
            for cost, values in enumerate(first_values(name)[:4], start=1)
        )
        portfolio = portfolio_of(data)
        model = SelectionModel(
            kernel=kernel,
            source=shipped().kernel(kernel).fingerprint,
            device=TrainedDevice.of(replace(self._here, uuid=self._draw.choice((self._here.uuid, "twin")))),
            objective=objective,
            method="g-adapt",
            date="2026-11-23T12:00:00+00:00",
            trials=data.trials,
            inputs=tuple(one.sizes for one in data.inputs),
            ranges=data.ranges(),
            accuracy=Accuracy.of([]),
            forest_accuracy=None,
            portfolio=portfolio,
            conditions=(None,) * len(portfolio.versions),
        )
        Ledger(store.database).remember_model(kernel, model_key(model), model.document())

    def daemon(self) -> Answers:
        """A daemon that knows this database."""
        answers = Answers(shipped(), {TX1: self._here}, Settings(tuning=TuningTable(clocks="all")))
        with Store(self.path) as store:
            refresh(answers.answerer, store)
            answers.answerer.remember(Ledger(store.database).analytical())
        return answers


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory, here: DeviceIdentity) -> History:
    return History(tmp_path_factory.mktemp("history") / "tuner.db", here, seeded(13))


def questions(draw: random.Random, count: int) -> Iterator[Question]:
    """Random questions: one to three workloads, batches, objectives, limits, clocks."""
    for _ in range(count):
        objective = draw.choice(("time", "energy"))
        yield Question(
            tuple(spec(draw, name) for name in draw.sample(ASKED, draw.choice((1, 1, 1, 2, 3)))),
            objective,
            TX1,
            draw.choice((None, None, 0.05)) if objective == "energy" else None,
            clocks_as_found=draw.random() < 0.5,
        )


def of_command(question: Question, database: Path) -> dict[str, Any] | None:
    """What ``tuner best`` writes; None where it ends with exit code 1."""
    limit = () if question.max_slowdown is None else ("--max-slowdown", str(question.max_slowdown))
    found = ("--clocks-as-found",) if question.clocks_as_found else ()
    words = ("best", *question.workloads, "--objective", question.objective, "--device", TX1, *limit, *found)
    result = tuner(*words, "--database", database, "--json", "-")
    assert result.exit_code in (0, 1), result.stderr
    return dict(json.loads(result.stdout)) if result.exit_code == 0 else None


def told(reply: Reply) -> dict[str, Any] | None:
    """What the command is to say of what the daemon says; None where every origin is the default."""
    keys = ("configuration", "origin", "details")
    placed = {name: {key: vars(part)[key] for key in keys} for name, part in reply.workloads.items()}
    if reply.origin == "stored" and reply.run is not None:
        values = {name: part["configuration"] for name, part in placed.items()}
        return {"run": reply.run, "stale": list(reply.stale), "configurations": values}
    if all(part["origin"] == "default" for part in placed.values()):
        return None
    return {"origin": reply.origin, "stale": list(reply.stale), "workloads": placed}


def said(found: dict[str, Any] | None) -> dict[str, Any] | None:
    """The same of what the command wrote."""
    if found is None:
        return None
    if found["run"] is not None:
        values = {"configurations": found["best"]["configurations"]}
        return {"run": found["run"], "stale": found["stale"], **values}
    keys = ("configuration", "origin", "details")
    placed = {name: {key: part[key] for key in keys} for name, part in found["workloads"].items()}
    return {"origin": found["origin"], "stale": found["stale"], "workloads": placed}


def test_command_and_daemon_give_the_same_answers(history: History) -> None:
    """Of 120 random questions over one random database: the same configurations, origins and reasons."""
    daemon = history.daemon()
    origins: Counter[tuple[str, bool]] = Counter()
    for question in questions(seeded(7), 120):
        reply = daemon.reply(question)
        assert said(of_command(question, history.path)) == told(reply), question
        origins[reply.origin, bool(reply.stale)] += 1
    assert {origin for origin, _ in origins} == set(ORIGINS)
    assert origins["stored", True]
    assert origins["stored", False]


def test_apply_and_daemon_give_the_same_answers(history: History, here: DeviceIdentity) -> None:
    """``tuner.apply`` takes what the daemon answers for time with clocks as found, but nothing stale."""
    daemon = history.daemon()
    compared: Counter[str] = Counter()
    for question in questions(seeded(8), 120):
        workload = shipped().workload(question.workloads[0])
        kernel = shipped().kernel(workload.kernel)
        chosen = choose(kernel, workload, here, history.path)
        name, asked = str(workload), Question(question.workloads[:1], "time", TX1, clocks_as_found=True)
        if chosen.origin.startswith("run "):  # for another objective where none is stored for time
            objective = chosen.origin.rpartition(", for ")[2].partition(" at a batch")[0]
            limit = 0.05 if objective == described("energy", 0.05) else None
            asked = replace(asked, objective=objective.split(" ")[0], max_slowdown=limit)
        part = daemon.reply(asked).workloads[name]
        if part.origin == "stored" and not part.fresh:
            assert str(daemon.reply(asked).run) not in chosen.origin.split(" ")[:2]
            continue
        if part.origin == "analytical":  # tuner.apply asks no rules: nothing was measured against the default
            assert chosen.origin == "default" or chosen.origin.startswith("nearest")
            continue
        assert chosen.configuration == Configuration(part.configuration), (asked, chosen)
        own = chosen.origin.partition(":")[0] if not chosen.origin.startswith("run ") else "stored"
        assert own == part.origin
        compared[own] += 1
    assert set(compared) == {*ORIGINS} - {"analytical"}
    assert compared.total() > 60


# --- the rule -------------------------------------------------------------------------------------


def runs_at(path: Path, here: DeviceIdentity, name: str, batches: Sequence[int]) -> list[int]:
    """Store runs of a workload at batches; returns their numbers."""
    with Store(path) as store:
        return [
            store_run(store, [f"{name},batch={batch}"], here, place=number, bound={"objective": "time"})
            for number, batch in enumerate(batches)
        ]


def test_the_nearer_of_two_batches_answers(tmp_path: Path, here: DeviceIdentity) -> None:
    """Asked for a batch of 4,100, both answer with the run at 4,000, not with the newer one at 100,000."""
    path = tmp_path / "tuner.db"
    near, _ = runs_at(path, here, "scan-lf:N=256", (4_000, 100_000))
    answers = Answers(shipped(), {TX1: here})
    with Store(path) as store:
        refresh(answers.answerer, store)
    question = Question(("scan-lf:N=256,batch=4100",), device=TX1)

    reply, found = answers.reply(question), of_command(question, path)
    assert (reply.origin, reply.run) == ("stored", near)
    assert found is not None
    assert found["run"] == near
    assert found["stale"] == list(reply.stale)


def test_a_far_batch_gives_way_to_the_default(tmp_path: Path, here: DeviceIdentity) -> None:
    """What was tuned for 64 transforms at a time is not taken for one of them: the default goes before."""
    path = tmp_path / "tuner.db"
    name = "fft-large:N=2^20".replace("2^20", str(2**20))
    runs_at(path, here, name, (64,))
    answers = Answers(shipped(), {TX1: here})
    with Store(path) as store:
        refresh(answers.answerer, store)
    for batch, origin in ((1, "default"), (31, "default"), (64, "stored"), (128, "stored"), (129, "default")):
        question = Question((f"{name},batch={batch}",), device=TX1)
        assert answers.reply(question).origin == origin
        assert (of_command(question, path) is None) == (origin == "default")

    workload = shipped().workload(f"{name},batch=1")
    key = analytical_key(name, here, shipped().kernel("fft-large").fingerprint)
    values = dict(shipped().kernel("fft-large").default(workload))
    answers.answerer.remember(
        {key: {"configuration": values, "rule": "embedded", "considered": 1, "default": values}}
    )
    assert answers.reply(Question((f"{name},batch=1",), device=TX1)).origin == "analytical"


def test_a_grid_that_fills_less_is_not_near() -> None:
    """Half the batch may leave half of the multiprocessors without a block; more than they hold is enough."""
    limits = gpu_model("h200").limits
    kernel = shipped().kernel("scan-lf")
    few, many = (shipped().workload(f"scan-lf:N=64,batch={batch}") for batch in (256, 2**20))
    configuration = kernel.default(many)
    blocks = kernel.launches(few, configuration)[0].blocks
    assert blocks < limits.multiprocessors

    half_few, half_many = (replace(one, batch=one.batch // 2) for one in (few, many))
    assert not fills(kernel, configuration, few, half_few, limits)
    assert fills(kernel, configuration, few, replace(few, batch=2 * few.batch), limits)
    assert fills(kernel, configuration, many, half_many, limits)
    assert fills(kernel, configuration, few, half_few, None)


def test_stored_answers_stand_in_their_order() -> None:
    """This GPU, fresh, the nearest batch, finished, the newest: in this order; far ones come last."""
    name = "scan-lf:N=64"
    workload = shipped().workload(f"{name},batch=1000")
    kernel = shipped().kernel("scan-lf")
    fresh = known([f"{name},batch=1000"], H200, run=1)
    stopped = replace(fresh, run=5, status=RunStatus.LIMITED)
    near = known([f"{name},batch=1500"], H200, run=6)
    nearer = known([f"{name},batch=900"], H200, run=2)
    old = known([f"{name},batch=1000"], replace(H200, driver="1"), run=7)
    twin = known([f"{name},batch=1000"], replace(H200, uuid="GPU-2"), run=8)
    far = known([f"{name},batch=10"], H200, run=9)
    elsewhere = known([f"{name},batch=1000"], replace(H200, name="NVIDIA K20"), run=10)
    order = [fresh, replace(fresh, run=0), stopped, nearer, near, old, twin, far]
    query = AnswerQuery((workload,), {"scan-lf": kernel}, {"scan-lf": kernel.fingerprint}, "time", H200)

    ranked = rank_stored(query, [*reversed(order), elsewhere])
    assert [one.answer.run for one in ranked] == [one.run for one in order]
    assert [one.near for one in ranked] == [True] * 7 + [False]
    assert not ranked[0].stale
    assert document([name])["best"]


@pytest.mark.parametrize("batches", [(1000, 10), (10, 1000), (10, 10), (1000, 1500)])
def test_of_workloads_together_every_batch_is_near(batches: tuple[int, int]) -> None:
    """One of two that was measured at a far batch makes the answer of both a far one."""
    names, kernels = ("scan-lf:N=64", "fft:N=64"), ("scan-lf", "fft")
    files = {name: shipped().kernel(name) for name in kernels}
    asked = tuple(shipped().workload(f"{name},batch=1000") for name in names)
    answer = known([f"{name},batch={batch}" for name, batch in zip(names, batches, strict=True)], H200)
    sources = {name: file.fingerprint for name, file in files.items()}

    (ranked,) = rank_stored(AnswerQuery(asked, files, sources, "time", H200), [answer])
    assert ranked.near == (10 not in batches)
