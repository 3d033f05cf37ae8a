"""``tuner.apply`` beside a daemon: whose configuration is taken, what is counted, and what trouble costs."""

import inspect
import json
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_apply import GPU, Bench, fake_bench
from run_documents import answered, trial
from scripted_daemon import Request, ScriptedDaemon, answer, best, error

from tuner.application.calls import Application
from tuner.application.choice import Advisor
from tuner.client import Client
from tuner.database.runs import Store
from tuner.model.records import Conditions, RunStatus

HERE = {**vars(GPU), "uuid": "GPU-0", "spec": "cuda:3"}  # the daemon sees more GPUs than this process
TWO, FOUR, EIGHT = ({"P": P, "L": 32} for P in (2, 4, 8))
DEFAULT = {"P": 2, "L": 64}
PATIENCE_S = 60.0


class Beside:
    """An application over a fake GPU, and a daemon whose answers a test sets by objective."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path) -> None:
        kernels = folder / "kernels"
        kernels.mkdir()
        self.bench = fake_bench(patch, kernels)
        self.source = self.bench.catalog.kernel("sums").fingerprint
        self.daemon = ScriptedDaemon(folder / "s", self._script)
        self.status: Any = {"devices": [{"spec": "cuda:9", "uuid": "GPU-9"}, HERE]}
        self.best: dict[str, bytes | None] = {}
        self.uses: list[Any] = []
        self.told = threading.Event()
        self.timeouts_s: list[float] = []
        self.advisor = Advisor(self.connect, every_s=3600.0)
        self.bench.application = Application(self.bench.catalog, self.bench.database, self.advisor)

    def connect(self, timeout_s: float) -> Client:
        self.timeouts_s.append(timeout_s)
        return Client(self.daemon.path, timeout_s=self.patience_s or timeout_s)

    patience_s: float = 10.0  # of a test; None of the daemon's answers is slow

    def _script(self, request: Request) -> bytes | None:
        if request.path == "/v1/status":
            return answer(self.status)
        if request.path == "/v1/uses":
            self.uses += request.body["uses"]
            self.told.set()
            return b"HTTP/1.1 204 No Content\r\n\r\n"
        return self.best.get(request.query["objective"][0], error("not-now", "nothing known", 409))

    def says(
        self, objective: str, configuration: Any, origin: str = "stored", *, device: Any = HERE, **more: Any
    ) -> None:
        """Have the daemon answer."""
        placed = {
            "configuration": configuration,
            "origin": origin,
            "details": "run 7",
            "fresh": origin == "stored",
            "source": self.source,
            **more,
        }
        reply = best(origin=origin, device=device, objective=objective, workloads={"sums:N=64": placed})
        self.best[objective] = answer(reply)

    def stores(self, configuration: Any) -> None:
        """Have the database answer."""
        conditions = Conditions(
            workloads=(("sums:N=64", 16),),
            sources={"sums": self.source},
            device=GPU,
            objective="time",
            policy="greedy",
            seed=0,
            clocks="off",
            settings={},
        )
        with Store(self.bench.database) as store:
            document = answered(trial({"sums:N=64": configuration}))
            store.end(store.begin(conditions), RunStatus.FINISHED, document)

    def taken(self, batch: int = 16) -> dict[str, Any]:
        return dict(self.bench.chosen("sums", self.bench.array(batch, 64)).configuration)

    def launch(self, times: int = 1, batch: int = 16) -> None:
        x = self.bench.array(batch, 64)
        for _ in range(times):
            assert np.array_equal(self.bench.apply("sums", x), np.cumsum(x, axis=1))


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Beside]:
    made = Beside(monkeypatch, tmp_path)
    with made.daemon:
        yield made
        made.advisor.close()


# --- whose configuration is taken ---------------------------------------------------------------------


def test_the_daemons_stored_answer_comes_first(beside: Beside) -> None:
    """What the daemon has stored for time is taken before the database; it says so."""
    beside.stores(TWO)
    beside.says("time", FOUR)
    chosen = beside.bench.chosen("sums", beside.bench.array(16, 64))

    assert dict(chosen.configuration) == FOUR
    assert chosen.origin == "stored, says the daemon: run 7, for time"


def test_the_question(beside: Beside) -> None:
    """The GPU is asked for by the daemon's name for it, the batch as it is, and clocks as found."""
    beside.says("time", FOUR)
    beside.taken(batch=5)
    beside.launch(batch=5)

    asked = [request.query for request in beside.daemon.asked if request.path == "/v1/best"]
    assert asked[0] == {
        "workload": ["sums:N=64,batch=5"],
        "objective": ["time"],
        "device": ["cuda:3"],
        "clocks_as_found": ["true"],
        "count": ["0.0"],
    }
    assert asked[1] == {**asked[0], "count": ["1.0"]}
    assert max(beside.timeouts_s) <= 0.05


def test_the_database_comes_before_guesses(beside: Beside) -> None:
    """What was measured here counts more than what the daemon works out or knows of other sizes."""
    beside.stores(TWO)
    beside.says("time", FOUR, "analytical")
    beside.says("energy", EIGHT)
    assert beside.taken() == TWO


def test_tuned_for_energy_comes_before_guesses(beside: Beside) -> None:
    """Without an answer for time that for energy is taken; without either, what is worked out."""
    beside.says("time", FOUR, "nearest")
    assert beside.taken() == FOUR
    beside.says("energy", EIGHT)
    assert beside.taken() == EIGHT


@pytest.mark.parametrize(
    "change",
    [
        {"fresh": False},
        {"source": "another"},
        {"device": {**HERE, "uuid": "GPU-5"}},
        {"device": {**HERE, "driver": "1"}},
        {"device": {**HERE, "runtime": "1"}},
        {"configuration": {"P": 4}},
        {"configuration": {"P": 3, "L": 32}},
        {"configuration": {"P": [4], "L": 32}},
        {"origin": "default"},
    ],
)
def test_what_is_not_taken(beside: Beside, change: dict[str, Any]) -> None:
    """Stale answers, those of another GPU or source, and what is no configuration here are as none."""
    beside.says(**{"objective": "time", "configuration": FOUR, **change})
    assert beside.taken() == DEFAULT


def test_rules_of_the_kernel_hold(beside: Beside) -> None:
    """A configuration that breaks a rule at this size is not taken."""
    placed = {"configuration": EIGHT, "origin": "nearest", "details": ""}
    beside.best["time"] = answer(best(origin="nearest", device=HERE, workloads={"sums:N=4": placed}))
    assert dict(beside.bench.chosen("sums", beside.bench.array(3, 4)).configuration) == DEFAULT


def test_given_configurations_are_asked_of_nobody(beside: Beside) -> None:
    """A caller who brings a configuration does not meet the daemon."""
    beside.bench.apply("sums", beside.bench.array(16, 64), configuration=FOUR)
    assert not beside.daemon.asked


# --- trouble ------------------------------------------------------------------------------------------


def test_no_daemon_no_word(beside: Beside, caplog: pytest.LogCaptureFixture) -> None:
    """Where no socket is, nothing is asked, said or counted."""
    caplog.set_level(logging.INFO)
    beside.daemon.stop()
    beside.stores(FOUR)
    assert beside.taken() == FOUR
    beside.launch()
    beside.advisor.tell()
    beside.daemon.start()
    assert not caplog.messages
    assert not beside.daemon.asked


Trouble = Callable[[Beside], None]


def silent(beside: Beside) -> None:
    beside.patience_s = 0.0  # the real time-out
    beside.best["time"] = None


def garbage(beside: Beside) -> None:
    beside.best["time"] = b"HTTP/1.1 200 OK\r\n\r\n<html>"


def failing(beside: Beside) -> None:
    beside.best["time"] = error("internal", "oh", 500)


def strange(beside: Beside) -> None:
    beside.status = {"devices": 3}


@pytest.mark.parametrize("trouble", [silent, garbage, failing, strange])
def test_trouble_costs_the_daemons_word_only(
    beside: Beside, caplog: pytest.LogCaptureFixture, trouble: Trouble
) -> None:
    """A daemon in trouble is said once, left alone for a while, and the choice is as without one."""
    caplog.set_level(logging.INFO)
    trouble(beside)
    beside.stores(FOUR)
    assert beside.taken() == FOUR
    assert beside.taken(batch=9) == FOUR
    beside.launch()

    (message,) = caplog.messages
    assert message.startswith("configurations are chosen without the daemon: ")
    paths = [request.path for request in beside.daemon.asked]  # a slow one may still be on its way
    assert len(paths) == len(set(paths))


@pytest.mark.parametrize("status", [{}, {"devices": []}, {"devices": [{"spec": "cuda:0", "uuid": "GPU-9"}]}])
def test_a_daemon_without_this_gpu(beside: Beside, caplog: pytest.LogCaptureFixture, status: Any) -> None:
    """A daemon that tunes other GPUs is not asked about this one, and that is no trouble."""
    caplog.set_level(logging.INFO)
    beside.status = status
    beside.stores(FOUR)
    beside.launch()

    assert beside.taken() == FOUR
    assert {request.path for request in beside.daemon.asked} == {"/v1/status"}
    assert not caplog.messages


# --- uses ---------------------------------------------------------------------------------------------


def test_uses_are_told_once(beside: Beside) -> None:
    """Launches are told together, once, less the one that the question told; nothing new is not told."""
    beside.says("time", FOUR)
    beside.launch(5)
    beside.launch(2, batch=3)
    beside.launch(1, batch=7)
    beside.advisor.tell()
    beside.advisor.tell()

    use = {"objective": "time", "device": "cuda:3", "max_slowdown": None, "clocks_as_found": True}
    assert beside.uses == [
        {"workloads": ["sums:N=64,batch=16"], "count": 4.0, **use},
        {"workloads": ["sums:N=64,batch=3"], "count": 1.0, **use},
    ]
    beside.launch(3)
    beside.advisor.tell()
    assert [one["count"] for one in beside.uses[2:]] == [3.0]


def test_uses_that_are_not_heard_are_told_again(beside: Beside) -> None:
    """A daemon that is away when uses are told hears of them when it is back."""
    beside.says("time", FOUR)
    beside.launch(4)
    beside.daemon.stop()
    beside.advisor.tell()
    beside.daemon.start()
    beside.advisor.tell()
    assert [one["count"] for one in beside.uses] == [3.0]


def test_uses_of_given_configurations_are_not_told(beside: Beside) -> None:
    """What a caller brings is no use of an answer."""
    beside.says("time", FOUR)
    for _ in range(3):
        beside.bench.apply("sums", beside.bench.array(16, 64), configuration=TWO)
    beside.advisor.tell()
    assert not beside.uses


def test_uses_are_told_in_the_background(beside: Beside) -> None:
    """A thread tells uses now and then, without a call of anybody."""
    advisor = Advisor(lambda _: Client(beside.daemon.path), every_s=0.01)
    beside.bench.application = Application(beside.bench.catalog, beside.bench.database, advisor)
    beside.says("time", FOUR)
    beside.launch(2)
    assert beside.told.wait(PATIENCE_S)
    advisor.close()
    assert sum(one["count"] for one in beside.uses) == 1.0


def test_many_uses_travel_in_several_requests(beside: Beside) -> None:
    """One request has no more uses than the daemon takes."""
    beside.advisor = Advisor(beside.connect, every_s=3600.0, at_once=8)
    beside.bench.application = Application(beside.bench.catalog, beside.bench.database, beside.advisor)
    beside.says("time", FOUR)
    for batch in range(1, 21):
        beside.bench.apply("sums", beside.bench.array(batch, 64))
        beside.bench.apply("sums", beside.bench.array(batch, 64))
    beside.advisor.tell()

    requests = [request for request in beside.daemon.asked if request.path == "/v1/uses"]
    assert [len(request.body["uses"]) for request in requests] == [8, 8, 4]
    schema = json.loads((Path(__file__).parent.parent / "docs" / "openapi.json").read_text())
    taken = schema["components"]["schemas"]["UseReports"]["properties"]["uses"]["maxItems"]
    assert inspect.signature(Advisor).parameters["at_once"].default == taken


def test_a_fork_tells_nothing_of_its_parent(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses that were counted before a fork are the parent's to tell."""
    beside.says("time", FOUR)
    beside.launch(3)
    with monkeypatch.context() as patch:
        patch.setattr("tuner.application.choice.os.getpid", lambda: -5)
        beside.advisor.tell()
        assert not beside.uses
    beside.advisor.tell()
    assert len(beside.uses) == 1


def test_without_an_advisor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An application that has none to ask works as before there were daemons."""
    bench: Bench = fake_bench(monkeypatch, tmp_path)
    assert dict(bench.chosen("sums", bench.array(16, 64)).configuration) == DEFAULT
