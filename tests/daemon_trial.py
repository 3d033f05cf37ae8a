"""One fault after the other on a daemon with work to do, and what each of them cost."""

import contextlib
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from daemon_breaking import FAULTS, OF_THE_PLAYED_GPU
from daemon_fault import FaultReport
from daemon_scene import MODELLED, PLAYED, Process, Scene

from tuner.client import Client
from tuner.model.errors import DaemonRefusedError, DaemonUnavailableError, TunerError

ANSWER_S = (
    15.0  # within which somebody who asks gets an answer; a socket that was removed is missed after five
)
GONE_S = 15.0  # within which what a killed daemon leaves has ended
_FIRST_S = 1.0  # from the first job to the fault at most: imports, first trials, confirmation
_ENDS_S = 180.0  # within which a job ends; what could not begin for a minute is tried again after another
_WORKLOAD = "scan-lf:N=4"
_MOST_TOLD = 5
_ENDED = ("finished", "failed", "cancelled")


@dataclass
class Outcome:
    """What a fault cost; all but the first three should be empty or zero.

    Attributes:
        fault: its kind.
        hit: it met what it is aimed at.
        seconds: from the first job of the round until all had ended; of its last fault.
        endings: how its jobs ended, by state.
        lost: trials, jobs, answers and their conditions that were seen stored, and are not any more.
        losses: the first of them, by table and key.
        twice: trials that a job measured twice.
        stuck: jobs that did not end.
        clock_set: a clock is not as it was found, or a journal entry is left.
        left: processes that should have ended: orphans and zombies.
        unanswered: why a request for the best configuration got no answer.
        died: the daemon died where it should not.
    """

    fault: str
    hit: bool = False
    seconds: float = 0.0
    endings: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    losses: list[str] = field(default_factory=list)
    twice: int = 0
    stuck: int = 0
    clock_set: bool = False
    left: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)
    died: bool = False

    @property
    def clean(self) -> bool:
        """True where it cost nothing."""
        numbers = (self.lost, self.twice, self.stuck, self.clock_set, self.died)
        return not (any(numbers) or self.left or self.unanswered)


class Trial:
    """Rounds of jobs and faults on one scene.

    Args:
        scene: with a daemon that runs.
        rng: decides everything that is random.
    """

    def __init__(self, scene: Scene, rng: random.Random) -> None:
        self._scene = scene
        self._rng = rng
        self._seen: dict[tuple[str, int, int], str] = {}

    def round(self, faults: Sequence[str]) -> list[Outcome]:
        """Submit jobs, break one thing after the other while they run, and look when all has ended.

        Returns:
            What each fault cost; what shows only in the end is put down to the last.
        """
        begun_s = time.monotonic()
        jobs = [self._submit(MODELLED)]
        outcomes = [Outcome(fault) for fault in faults]
        for outcome in outcomes:
            if outcome.fault in OF_THE_PLAYED_GPU:
                jobs.append(self._submit(PLAYED))
            elif not self._scene.client().jobs(("queued", "running")):
                jobs.append(self._submit(MODELLED))
            time.sleep(self._rng.uniform(0.0, _FIRST_S))  # the instant is the point
            if self._break(outcome).wiped:  # and all that was stored with it
                self._seen.clear()
                jobs = [self._submit(MODELLED)]
        self._await(jobs, outcomes[-1])
        self.look(outcomes[-1])
        outcomes[-1].seconds = time.monotonic() - begun_s
        self._scene.rest_gpu()
        return outcomes

    def _break(self, outcome: Outcome) -> FaultReport:
        """Have something go wrong and right again."""
        self._note()
        with FAULTS[outcome.fault](self._scene, self._rng) as told:
            outcome.hit = told.hit
            if not (told.fatal or told.silent):
                self._ask(outcome)
            self._note()
        self._up(outcome, fatal=told.fatal)
        self._ask(outcome)
        return told

    def _submit(self, device: str) -> int:
        """A search that is over within seconds; that of the played GPU sets its clocks."""
        own: dict[str, Any] = {"clocks": "all", "budget": 60}
        if device == PLAYED:
            own = {"clocks": "345:1980:105", "budget": 6, "window_s": 0.02}
        order: dict[str, Any] = {
            "objective": "energy",
            "policy": "random",
            "device": device,
            "priority": self._rng.random(),
            "seed": self._rng.randrange(2**31),
            "energy_precision": 0.2,
            **own,
        }
        numbers: list[int] = []

        def taken() -> bool:
            try:
                numbers.append(self._scene.client().submit(_WORKLOAD, **order).id)
            except (DaemonUnavailableError, DaemonRefusedError):  # no database, or no device: ask again
                return False
            return True

        if not self._scene.until(taken):
            raise RuntimeError(f"no job is taken: {self._scene.log.read_text()[-2000:]}")
        return numbers[0]

    def _note(self) -> None:
        """Remember what is stored: from now on it must stay so, also where it is damaged for the moment."""
        self._seen = {**self._scene.stored(), **self._seen}

    def _up(self, outcome: Outcome, *, fatal: bool) -> None:
        """Do what the service manager does: start it again when it has died."""
        scene = self._scene
        if scene.alive():
            return
        outcome.died = not fatal
        if not scene.until(self._all_gone, GONE_S):
            outcome.left += [f"{one.role} {one.state}" for one in scene.processes()]
            scene.sweep()
        scene.start()

    def _all_gone(self) -> bool:
        self._scene.bury()
        return not self._scene.processes()

    def _ask(self, outcome: Outcome) -> None:
        """Ask for the best configuration: it must be answered soon; a socket may have to be made again."""
        deadline_s = time.monotonic() + ANSWER_S
        while True:
            try:
                self._scene.client(ANSWER_S).best(_WORKLOAD, device=MODELLED)
            except TunerError as error:
                if time.monotonic() < deadline_s:
                    time.sleep(0.05)
                    continue
                outcome.unanswered.append(f"{type(error).__name__}: {error}")
            return

    def _await(self, jobs: list[int], outcome: Outcome) -> None:
        """Wait until all jobs have ended; those that do not are cancelled, which makes room for the next."""
        client = self._scene.client()
        states: dict[int, str] = {}

        def ended() -> bool:
            if not self._scene.alive():
                self._up(outcome, fatal=False)
            with contextlib.suppress(TunerError):
                states.update({number: _state(client, number) for number in jobs})
            return len(states) == len(jobs) and all(state in _ENDED for state in states.values())

        self._scene.until(ended, _ENDS_S)
        outcome.endings.update(states.values())
        stuck = [number for number in jobs if states.get(number) not in _ENDED]
        outcome.stuck = len(stuck)
        for number in stuck:
            with contextlib.suppress(TunerError):
                client.cancel(number)

    def look(self, outcome: Outcome, patience_s: float = GONE_S) -> None:
        """See what it cost, when nothing runs any more; whoever is to go has so long to do so."""
        scene = self._scene
        if not scene.until(lambda: not self._strays(), patience_s):
            outcome.left += [f"{one.role} {one.state}" for one in self._strays()]
        outcome.clock_set = not scene.until(lambda: not (scene.clock_set() or scene.journals()), patience_s)
        now = scene.stored()
        if self._lost(now):
            scene.put_right()  # damage that nobody has met yet is still there
            now = scene.stored()
        lost = self._lost(now)
        outcome.lost, outcome.losses = len(lost), [f"{key}: {now.get(key)}" for key in lost[:_MOST_TOLD]]
        outcome.twice = scene.twice()
        self._seen = dict(now)  # a loss is counted once

    def _lost(self, now: Mapping[tuple[str, int, int], str]) -> list[tuple[str, int, int]]:
        return [key for key, text in self._seen.items() if now.get(key) != text]

    def _strays(self) -> list[Process]:
        """Processes that nobody needs now; the daemon keeps one a while that looks at GPUs."""
        self._scene.bury()
        own = self._scene.pid
        others = [one for one in self._scene.processes() if one.pid != own]
        return [one for one in others if one.parent != own or one.state == "Z" or one.role != "other"]


def _state(client: Client, number: int) -> str:
    return client.job(number).state
