"""``tuner.Client``: the daemon's client for programs."""

import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, TypeVar, cast

from tuner.client.answer_values import (
    HistoryRow,
    PowerDocument,
    ServedAnswer,
    Status,
    TrialPage,
    Use,
    read,
    read_event,
    read_job,
)
from tuner.client.transport import Address, Message, Transport, address, messages, target
from tuner.model.errors import DaemonError, DaemonUnavailableError, InputError
from tuner.model.jobs import ENDED, Event, Job
from tuner.model.run_document import Best, RunDocument, RunRow, SampleDocument, TrialDocument, run_document
from tuner.model.typed import UnfitError

_PAGE = 500  # trials in one answer of the daemon


class _Answers(TypedDict):
    answers: list[ServedAnswer]


class Archive:
    """Stored runs, their trials and samples, and answers; the errors are those of ``Client``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def runs(self, *workloads: str, limit: int = 100, before: int | None = None) -> list[RunRow]:
        """Runs, newest first.

        Args:
            workloads: only runs of exactly these together; none for any.
            limit: so many at most.
            before: only runs of a lower number.
        """
        query = {"workload": workloads, "limit": limit, "before": before}
        return self._rows(target("/v1/runs", query), "runs")

    def run(self, number: int) -> RunDocument:
        """The document of a run, without its trials."""
        try:
            return run_document(self._transport.ask("GET", f"/v1/runs/{number:d}"))
        except UnfitError as error:
            raise self._transport.misunderstood(str(error)) from error

    def trials(self, number: int) -> Iterator[TrialDocument]:
        """Trials of a run in their order, read as they are needed."""
        after: int | None = 0
        while after is not None:
            query = {"after": after, "limit": _PAGE}
            page = self._transport.get(TrialPage, target(f"/v1/runs/{number:d}/trials", query))
            yield from page["trials"]
            after = page["next"]

    def samples(self, number: int) -> list[SampleDocument]:
        """Return the results of measuring the answer of a run again, oldest first."""
        return self._rows(f"/v1/runs/{number:d}/samples", "samples")

    def answers(self, *, stale: bool | None = None) -> list[ServedAnswer]:
        """Answers that are served; with ``stale``, only those that are, or are not."""
        query = {"stale": None if stale is None else str(stale).lower()}
        return self._transport.get(_Answers, target("/v1/answers", query))["answers"]

    def history(self, *workloads: str, limit: int = 100, before: int | None = None) -> list[HistoryRow]:
        """Answers over time, newest first; arguments as of ``runs``."""
        query = {"workload": workloads, "limit": limit, "before": before}
        return self._rows(target("/v1/history", query), "history")

    def _rows(self, path: str, name: str) -> list[Any]:
        """Objects of a list; their keys are for whoever reads them."""
        answer = self._transport.ask("GET", path) or {}
        rows = answer.get(name)
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise self._transport.misunderstood(f"{answer!r:.120}")
        return rows


# --- Streams, through restarts of the daemon.

SILENCE_S = 45.0
"""Three of the daemon's signs of life, one every 15 s."""

_PAUSE_S = 0.1  # before the first attempt to find the daemon again ...
_LONGEST_PAUSE_S = 2.0  # ... and, doubling, at most


class Pauses:
    """Waits for a daemon that went away, longer each time, up to a limit in all.

    Args:
        patience_s: longest time without a word of the daemon.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._pause_s = _PAUSE_S
        self._heard_s = time.monotonic()

    def heard(self) -> None:
        """Note a word of the daemon."""
        self._pause_s = _PAUSE_S
        self._heard_s = time.monotonic()

    def wait(self, trouble: Exception) -> None:
        """Wait before the next attempt.

        Raises:
            Exception: the trouble, where it has lasted too long.
        """
        if time.monotonic() - self._heard_s + self._pause_s > self._patience_s:
            raise trouble
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)


def _event(message: Message, transport: Transport) -> Event:
    try:
        return read_event(message.data)
    except ValueError as error:
        raise transport.misunderstood(f"the event {message.data!r:.120}: {error}") from error


# --- The client.

_Value = TypeVar("_Value")

DEFAULT_TIMEOUT_S = 10.0  # the daemon answers within milliseconds; its database may wait for a slow disk
DEFAULT_PATIENCE_S = 60.0  # a service manager starts a daemon that fell over within seconds
_WORKLOAD = re.compile(r"[!-~]+")  # of any kernel at any size


class _Jobs(TypedDict):
    jobs: list[Any]


class Client:
    """Talks to the daemon over its socket. May be used by several threads.

    Every call raises ``DaemonUnavailableError`` where no daemon answers in time or this user may not use its
    socket, ``InputError`` where the daemon says that what was asked for is wrong, ``DaemonRefusedError``
    where it does not do it now, and ``DaemonError`` where it failed or gave an answer that makes no sense.

    Args:
        socket: path of the daemon's socket, or ``http://127.0.0.1:PORT`` where it has a port; None for
            ``$TUNER_SOCKET``, else the user's own daemon if it is there, else the system's.
        token_file: over TCP, whose content proves who asks; None for ``$TUNER_TOKEN_FILE``.
        timeout_s: for an answer to arrive whole.
        patience_s: how long ``follow`` and ``watch`` wait for a daemon that went away.

    Raises:
        InputError: ``socket`` is a URL that cannot be used.

    Attributes:
        archive: stored runs and answers.
    """

    def __init__(
        self,
        socket: str | Path | None = None,
        *,
        token_file: Path | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        patience_s: float = DEFAULT_PATIENCE_S,
    ) -> None:
        self._transport = Transport(address(socket), token_file, timeout_s)
        self._patience_s = patience_s
        self.archive = Archive(self._transport)

    @property
    def transport(self) -> Transport:
        """Transport that sends the requests."""
        return self._transport

    @property
    def address(self) -> Address:
        """The address of the daemon."""
        return self._transport.address

    def status(self) -> Status:
        """State of the daemon: devices, queue, budgets and windows."""
        return self._transport.get(Status, "/v1/status")

    def power(self) -> PowerDocument:
        """The newest samples of power, clock and users of each device; see docs/daemon-api.md."""
        return cast("PowerDocument", self._transport.ask("GET", "/v1/power") or {})

    def watch(
        self, *, power: bool = False, away: Callable[[DaemonUnavailableError], None] | None = None
    ) -> Iterator[Event]:
        """Yield what is so now and then everything that happens, without an end.

        A daemon that goes away is looked for again, for ``patience_s`` at most; an event of the kind
        ``begin`` says whether what was told before still counts (``resumed``).

        Args:
            power: sample the power of the devices meanwhile, and tell of it.
            away: called with the reason, each time that the daemon is not found; with it, the daemon is
                looked for without an end. What it raises ends the watching.

        Raises:
            DaemonUnavailableError: the daemon stays away.
        """
        path = f"/v1/events{'?power=true' if power else ''}"
        pauses, position = Pauses(self._patience_s if away is None else math.inf), ""
        while True:
            headers = {"Accept": "text/event-stream", **({"Last-Event-ID": position} if position else {})}
            try:
                for message in messages(self._transport.stream(path, headers, SILENCE_S)):
                    pauses.heard()
                    if message is not None:
                        position = message.id or position
                        yield _event(message, self._transport)
                        pauses.heard()  # a caller may have taken its time
                trouble = DaemonUnavailableError(f"the daemon at {self.address} ended its stream")
            except DaemonUnavailableError as error:
                trouble = error
            if away is not None:
                away(trouble)
            pauses.wait(trouble)

    def savings(self) -> dict[str, tuple[float, float]]:
        """Joules that uses of answers are expected to have saved since the daemon's start, by GPU.

        Returns:
            UUID, of a simulated GPU its spec, -> joules and half of their 95 % interval.
        """
        lines = self._transport.text("/metrics").splitlines()
        saved = dict(_metric("tuner_expected_saved_joules_total", lines))
        within = dict(_metric("tuner_expected_saved_joules_uncertainty_total", lines))
        return {gpu: (joules, within.get(gpu, 0.0)) for gpu, joules in saved.items()}

    def best(
        self,
        *workloads: str,
        objective: str = "time",
        device: str = "",
        max_slowdown: float | None = None,
        clocks_as_found: bool = False,
        timing: str | None = None,
        count: float | None = None,
    ) -> Best:
        """The best configurations known now of workloads that run together; never waits for a measurement.

        Args:
            workloads: e.g. ``"scan-lf:N=1024"``.
            objective: ``time``, ``energy``, ``edp``, ``ed2p`` or ``pareto``.
            device: empty for the daemon's first.
            max_slowdown: as a fraction of the fastest's time; None for no limit.
            clocks_as_found: take only answers that set no GPU clock.
            timing: ``back-to-back`` or ``single``; None for the former, or what there is with a notice.
            count: uses of the answer to tell the daemon of. With None, being asked counts as one for what is
                tuned first, and as none for what is saved.
        """
        query = {
            "workload": _named(workloads),
            "objective": objective,
            "device": device or None,
            "max_slowdown": max_slowdown,
            "clocks_as_found": "true" if clocks_as_found else None,
            "timing": timing,
            "count": count,
        }
        return self._read(partial(read, Best), self._transport.ask("GET", target("/v1/best", query)))

    def used(self, *uses: Use) -> None:
        """Report how often configurations were used; the daemon tunes the most used first."""
        self._transport.ask("POST", "/v1/uses", {"uses": [asdict(use) for use in uses]})

    def submit(
        self,
        *workloads: str,
        objective: str | None = None,
        policy: str | None = None,
        clocks: str | None = None,
        device: str = "",
        priority: float = 0.0,
        **options: float | str | None,
    ) -> Job:
        """Queue a search; it is stored when this returns.

        Args:
            workloads: that run together.
            objective: ``time``, ``energy``, ``edp``, ``ed2p`` or ``pareto``; None for the daemon's default,
                as are policy and clocks.
            policy: the search strategy.
            clocks: GPU clocks to search: ``off``, ``all``, a list or a range in MHz.
            device: ``cuda:N``, or a GPU of a kind, ``kind:NVIDIA H200``; empty for any device of the daemon.
            priority: of one's own jobs that may run, the highest goes first; between users it counts as far
                as the daemon's settings say.
            options: those of ``tuner run``, by their names in ``tuner.model.options``: ``budget=100``; those
                that are None are left to the daemon.
        """
        order = {
            "workloads": _named(workloads),
            "objective": objective,
            "policy": policy,
            "clocks": clocks,
            "device": device or None,
            "priority": priority,
            "options": {name: value for name, value in options.items() if value is not None} or None,
        }
        body = {name: value for name, value in order.items() if value is not None}
        return self._read(read_job, self._transport.ask("POST", "/v1/jobs", body))

    def jobs(self, states: Sequence[str] = (), limit: int = 100, before: int | None = None) -> list[Job]:
        """Jobs, newest first.

        Args:
            states: only jobs in one of them.
            limit: so many at most.
            before: only jobs of a lower number.
        """
        query = {"state": states, "limit": limit, "before": before}
        listed = self._transport.get(_Jobs, target("/v1/jobs", query))
        return [self._read(read_job, job) for job in listed["jobs"]]

    def job(self, number: int) -> Job:
        """One job."""
        return self._read(read_job, self._transport.ask("GET", f"/v1/jobs/{number:d}"))

    def cancel(self, number: int) -> Job:
        """End a job; its measurements stay stored."""
        return self._read(read_job, self._transport.ask("POST", f"/v1/jobs/{number:d}/cancel"))

    def pause(self, number: int) -> Job:
        """Stop a job until it is resumed."""
        return self._read(read_job, self._transport.ask("POST", f"/v1/jobs/{number:d}/pause"))

    def resume(self, number: int) -> Job:
        """Queue a paused job again; it continues where it was."""
        return self._read(read_job, self._transport.ask("POST", f"/v1/jobs/{number:d}/resume"))

    def follow(self, number: int, after: int = 0) -> Iterator[Event]:
        """Yield the stored and the new events of a job, until the job ends.

        A daemon that goes away is looked for again, for ``patience_s`` at most; no stored event is missed
        or told twice.

        Args:
            number: of the job.
            after: leave out stored events up to this one.

        Raises:
            DaemonUnavailableError: the daemon stays away.
        """
        path, pauses, ended = f"/v1/jobs/{number:d}/events", Pauses(self._patience_s), False
        while True:
            heard, headers = False, {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
            try:
                for message in messages(self._transport.stream(path, headers, SILENCE_S)):
                    pauses.heard()
                    if message is not None:
                        event = _event(message, self._transport)
                        after, heard = event.id or after, True
                        yield event
                        ended = event.kind == "state" and event.data.get("state") in ENDED
                    pauses.heard()  # a caller may have taken its time
                # cut off by a restart, the stream may lack the last events of a job that has ended since
                if ended or (not heard and self.job(number).ended):
                    return
                trouble: DaemonError = self._transport.misunderstood("a stream of events ends before its job")
            except DaemonUnavailableError as error:
                trouble = error
            pauses.wait(trouble)

    def _read(self, reader: Callable[[object], _Value], document: object) -> _Value:
        try:
            return reader(document)
        except ValueError as error:
            raise self._transport.misunderstood(str(error)) from error


def _named(workloads: Sequence[object]) -> list[str]:
    """Workloads as the daemon takes them.

    Raises:
        InputError: one cannot be the name of any.
    """
    named: list[str] = []
    for spec in workloads:
        if not isinstance(spec, str) or not _WORKLOAD.fullmatch(spec):
            raise InputError(
                f"workload {spec!r:.120}: write a kernel and its sizes in ASCII without spaces, e.g."
                " 'scan-lf:N=1024', each as an argument of its own"
            )
        named.append(spec)
    return named


def _metric(name: str, lines: Sequence[str]) -> Iterator[tuple[str, float]]:
    """GPU and value of each line of a metric in Prometheus' format."""
    form = re.compile(rf'{name}\{{gpu="([^"]*)"\}} ([0-9.eE+-]+)')
    for match in filter(None, map(form.fullmatch, lines)):
        yield match[1], float(match[2])
