"""The process of a job, its handle and the launcher that forks it: lines, patience, orders, ends."""

import asyncio
import json
import math
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import job_workshop
import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_workshop import PATIENCE_S, Workshop, gone, sampling, until
from policy_driver import result

from tuner.database.connection import Database
from tuner.database.runs import RetryingStore, Store
from tuner.devices.gpu_users import Contention
from tuner.kernel_files.catalog import Catalog, ReadFolder
from tuner.model.errors import (
    ChildCrashedError,
    ClockError,
    DeviceError,
    StoreBusyError,
    StoreError,
    StoreFullError,
)
from tuner.model.jobs import JobKind, JobSpec
from tuner.model.plan import Configuration
from tuner.model.records import trial_record
from tuner.model.trial import Trial
from tuner.search import job_launcher, job_process
from tuner.search.job_launcher import Launcher
from tuner.search.job_messages import (
    AttemptResult,
    AttemptSpec,
    EventWriter,
    LineReader,
    parse_line,
    parse_result,
    parse_spec,
    result_line,
    spec_json,
)
from tuner.search.session import TrialEvent
from tuner.system.ownership import gpu_lock_file, owned_gpu
from tuner.system.signals import StopRequest


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    """A job of a few trials on a modelled GPU."""
    return Workshop(tmp_path)


@pytest.fixture
def stop() -> Iterator[StopRequest]:
    """Heeds SIGTERM in this process."""
    stop = StopRequest()
    with stop.handler_installed():
        stop.enable()
        yield stop
        stop.disable()


# --- lines ---------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=40)), st.lists(st.integers(1, 30), min_size=1))
def test_lines_are_cut_wherever_reads_end(parts: list[bytes], cuts: list[int]) -> None:
    """However a text is read in pieces, its lines are those of the text, without empty ones and long ones."""
    text = b"\n".join(parts) + b"\n"
    expected = [line for line in text.split(b"\n")[:-1] if line and len(line) <= 20]
    found: list[bytes] = []
    lines = LineReader(found.append, longest=20)
    place = 0
    while place < len(text):
        size = cuts[place % len(cuts)]
        lines.feed(text[place : place + size])
        place += size

    assert found == expected
    assert lines.dropped == sum(len(line) > 20 for line in text.split(b"\n"))


@given(
    st.builds(
        AttemptSpec,
        job=st.integers(1),
        job_spec=st.builds(
            JobSpec,
            workloads=st.lists(st.text(), min_size=1).map(tuple),
            kind=st.sampled_from(JobKind),
            options=st.dictionaries(st.text(), st.integers()),
        ),
        database=st.just(Path("/var/lib/tuner/tuner.db")),
        kernel_directories=st.lists(st.just(Path("/etc/tuner/kernels.d"))).map(tuple),
        below=st.sampled_from((Path("/"), Path("/srv"))),
        idle_test=st.booleans(),
        others_allowed=st.integers(0),
        sample=st.none() | st.dictionaries(st.text(), st.integers()),
    )
)
def test_a_spec_arrives_as_it_was_sent(spec: AttemptSpec) -> None:
    """What a process reads is what it was told."""
    assert parse_spec(spec_json(spec)) == spec


def test_a_result_arrives_as_it_was_sent() -> None:
    """What the daemon reads is how the process says it ended."""
    result = AttemptResult("busy", "why", 3, 1.5, 20.0, {"a": 1}, ("GPU-1",))
    told = parse_line(result_line(result))

    assert told is not None
    assert parse_result(told[1]) == result


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"status": "splendid"},
        {"status": "busy", "joules": "x"},
        {"status": "busy", "more": 1},
        {"status": "busy", "clocks_left": 1},
        {"status": []},
    ],
)
def test_what_is_no_result_is_none(data: dict[str, Any]) -> None:
    """A result that no process of ours writes is not taken for one."""
    assert parse_result(data) is None


@pytest.mark.parametrize("text", [b"", b"x", b"{}", b"[1]", b'["a"]', b'["a", 1]', b"[" * 100_000, b"\xff"])
def test_what_is_no_event_is_none(text: bytes) -> None:
    """Lines of others do no harm."""
    assert parse_line(text) is None


# --- telling -------------------------------------------------------------------------------------


def test_a_full_pipe_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events that nobody reads are lost after one wait; what follows a torn line is whole again."""
    monkeypatch.setattr("tuner.search.job_messages._WAIT_S", 0.01)
    reading, writing = os.pipe()
    writer = EventWriter(writing, "time")
    for _ in range(200):
        writer.told("x" * 1500)
    found: list[bytes] = []
    lines = LineReader(found.append)
    while len(data := os.read(reading, 65_536)) == 65_536:
        lines.feed(data)
    lines.feed(data)
    writer.run(7, 0)
    writer.end(AttemptResult("finished"))
    while data := os.read(reading, 65_536):
        lines.feed(data)
    os.close(reading)
    events = [told for told in map(parse_line, found) if told is not None]

    assert 30 < len(events) < 50
    assert len(events) >= len(found) - 1
    assert [kind for kind, _ in events[-2:]] == ["run", "result"]


def test_a_daemon_that_is_gone_holds_nothing_up() -> None:
    """With nobody at the other end, events go nowhere."""
    reading, writing = os.pipe()
    os.close(reading)
    writer = EventWriter(writing, "energy")
    writer.told("x")
    writer.end(AttemptResult("finished"))

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(writing, b"x")


def test_trials_stand_beside_what_is_compiled_by_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """A count that was held back is told with the next trial at the latest."""
    monkeypatch.setattr("tuner.search.job_messages._COMPILED_EVERY_S", math.inf)
    reading, writing = os.pipe()
    writer = EventWriter(writing, "energy")
    trial = Trial((Configuration({"P": 1}),))
    writer.compiled(1, 1)
    for done in (1, 5, 9):
        writer.compiled(done, 9)
        writer.measured(TrialEvent(trial, result(0.5, [0.5]), 0.5, 0.5, done, None, 3.0))
    writer.close()
    with os.fdopen(reading, "rb") as pipe:
        events = [told for told in map(parse_line, pipe.read().splitlines()) if told is not None]

    compiled = 0
    for kind, data in events:
        compiled = data["done"] if kind == "compiled" else compiled
        assert kind != "trial" or data["number"] == compiled
    assert [kind for kind, _ in events].count("trial") == 3


# --- the handle ----------------------------------------------------------------------------------


def behave(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Let the job's process do this with its pipe ``p`` instead."""
    monkeypatch.setattr(job_workshop, "BOOT", f"import os, sys, time; p = int(sys.argv[1]); {code}")


FINISHED = json.dumps(result_line(AttemptResult("finished")).decode())


@pytest.mark.parametrize(
    ("code", "status", "says"),
    [
        ("sys.exit(3)", "crashed", "exited with status 3 without a result"),
        ("os.abort()", "crashed", "was killed by SIGABRT without a result"),
        (f"os.write(p, {FINISHED}.encode())", "finished", ""),
        (f"os.write(p, b'\\xff\\n[[[\\n' + {FINISHED}.encode())", "finished", ""),
        ("os.write(p, b'[\"result\", {}]\\n')", "crashed", "without a result"),
    ],
)
def test_how_a_process_ended_is_told(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, code: str, status: str, says: str
) -> None:
    """A process ends as it says, whatever else it writes; one that says nothing has crashed."""
    behave(monkeypatch, code)
    result = workshop.attempt()

    assert result.status == status
    assert says in result.message


def test_a_flood_is_endured(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that writes without end holds nobody up, and is stopped as any other."""
    behave(
        monkeypatch,
        '\nos.write(p, b\'["told", {"sentence": "x"}]\\n\')\nwhile True: os.write(p, b\'x\' * 4096)',
    )

    async def flooded() -> AttemptResult:
        process = await workshop.start()
        await until(lambda: workshop.told("told") != [])
        await process.stop(0.0)
        return await process.result()

    assert asyncio.run(flooded()).status == "interrupted"


def test_who_gives_no_sign_of_life_is_ended(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that hangs is killed after its time, and has crashed."""
    monkeypatch.setattr(job_launcher, "_SILENCE_S", 0.1)
    behave(monkeypatch, "time.sleep(600)")
    result = workshop.attempt()

    assert (result.status, result.message) == ("crashed", "no sign of life for 0 s; it was killed")


def test_a_listener_that_fails_ends_no_job(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """What raises while it hears of an event is logged, and the job goes on."""

    def tell(kind: str, data: object) -> None:
        raise ValueError(kind, data)

    monkeypatch.setattr(workshop, "tell", tell)
    behave(monkeypatch, f"os.write(p, b'[\"told\", {{}}]\\n' + {FINISHED}.encode())")

    assert workshop.attempt().status == "finished"


def descriptors() -> int:
    """How many this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def test_no_descriptor_is_left(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an attempt the daemon holds what it held before, also where no process could be started."""
    behave(monkeypatch, "pass")
    workshop.launch = job_workshop.fresh_interpreter

    async def twice() -> tuple[int, int, int]:
        await (await workshop.start()).result()
        before = descriptors()
        await (await workshop.start()).result()
        after = descriptors()
        monkeypatch.setattr(sys, "executable", "/no/such/python")
        with pytest.raises(ChildCrashedError, match="cannot be started"):
            await workshop.start()
        return before, after, descriptors()

    before, after, last = asyncio.run(twice())
    assert before == after == last


# --- stopping ------------------------------------------------------------------------------------


def test_an_order_to_stop_is_raised_once(stop: StopRequest) -> None:
    """The first SIGTERM interrupts, the second does not disturb the clearing up."""
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)

    assert stop.received
    with pytest.raises(KeyboardInterrupt):
        stop.check()


def test_an_order_waits_for_what_is_being_stored(stop: StopRequest) -> None:
    """SIGTERM inside a held block is raised at its end; the GPU is freed at once."""
    freed: list[bool] = []
    stop.on_signal = lambda: freed.append(True)

    def store() -> None:
        with stop.deferred():
            signal.raise_signal(signal.SIGTERM)
            freed.append(False)

    with pytest.raises(KeyboardInterrupt):
        store()
    assert freed == [True, False]


def test_an_order_that_came_too_early_is_raised_later() -> None:
    """SIGTERM between the start of a process and its first line of work is not lost."""
    stop = StopRequest()
    with stop.handler_installed():
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            stop.enable()


# --- patience ------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [StoreBusyError, StoreFullError])
def test_a_trial_is_stored_in_the_end(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, error: type[StoreError]
) -> None:
    """A disk that is full, or a file that is locked, for a while costs no trial."""
    failures = iter([True, True, False, True, False])
    real = Store.add

    def add(self: Store, *args: Any) -> None:
        if next(failures, False):
            raise error("not now")
        real(self, *args)

    monkeypatch.setattr(Store, "add", add)
    monkeypatch.setattr("tuner.database.runs._FIRST_WAIT_S", 0.001)

    assert workshop.here().status == "limited"
    assert workshop.runs()[0].trials == 5


def test_patience_has_an_end(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that stays full ends the attempt as one to be tried again; its run is resumed then."""
    monkeypatch.setattr("tuner.database.runs.RETRY_S", 0.01)
    with monkeypatch.context() as patch:
        patch.setattr(Store, "add", lambda *_: (_ for _ in ()).throw(StoreFullError("the disk is full")))
        result = workshop.here()

    assert (result.status, result.message) == ("unavailable", "the disk is full")
    assert workshop.here().run == result.run
    assert workshop.runs()[0].trials == 5


def test_an_order_to_stop_ends_patience(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, stop: StopRequest
) -> None:
    """SIGTERM while a trial waits for room: it is tried once more, and the attempt ends."""
    tries: list[int] = []

    def confirm(_: Store, number: int, __: object) -> None:
        tries.append(number)
        if len(tries) == 1:
            raise StoreBusyError("not now")

    monkeypatch.setattr(Store, "confirm", confirm)
    monkeypatch.setattr("time.sleep", lambda _: signal.raise_signal(signal.SIGTERM))
    with Database(workshop.database) as database:
        store = RetryingStore(
            database, job=1, stop=stop, workloads=1, begun=lambda *_: None, ending=lambda: None
        )
        with pytest.raises(KeyboardInterrupt):
            store.confirm(7, {})
    assert tries == [7, 7]


# --- ownership -----------------------------------------------------------------------------------


def test_a_gpu_is_owned_by_one(tmp_path: Path) -> None:
    """Two cannot own a GPU at once, two GPUs have an owner each, and an owner that leaves is followed."""
    with owned_gpu(tmp_path, "GPU-1"):
        with owned_gpu(tmp_path, "GPU-2"):
            pass
        with (
            pytest.raises(DeviceError, match=f"process {os.getpid()} tunes this GPU"),
            owned_gpu(tmp_path, "GPU-1", wait_s=0.0),
        ):
            pass
    with owned_gpu(tmp_path, "GPU-1", wait_s=0.0):
        pass


def test_a_dying_owner_is_waited_for(tmp_path: Path) -> None:
    """Who leaves while another waits is followed at once."""
    first = owned_gpu(tmp_path, "GPU-1")
    first.__enter__()
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        first.__exit__(None, None, None)

    with owned_gpu(tmp_path, "GPU-1", sleep=wait):
        assert len(waits) == 1


def test_a_name_of_a_gpu_is_no_path(tmp_path: Path) -> None:
    """Whatever a GPU calls itself, its lock is in the folder."""
    assert gpu_lock_file(tmp_path, "../MIG-a/1/0").parent == tmp_path


# --- giving way ----------------------------------------------------------------------------------


class Coming:
    """Others come onto the GPU before the n-th look."""

    def __init__(self, look: int) -> None:
        self.left = look

    def look(self, device: str, uuid: str, ours: int) -> Contention:
        assert (device, uuid, ours) == ("sim:jetson-tx1", "sim:jetson-tx1", 0)
        self.left -= 1
        return Contention(busy=self.left <= 0, reason="somebody" if self.left <= 0 else "")


@pytest.mark.parametrize(("look", "trials"), [(1, 0), (2, 0), (3, 1), (12, 5)])
def test_what_was_measured_in_company_is_not_stored(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, look: int, trials: int
) -> None:
    """A burst with others on the GPU before or after it is lost, those before it are not; the run goes on."""
    with monkeypatch.context() as patch:
        patch.setattr(job_process, "ContentionProbe", lambda _: Coming(look))
        result = workshop.here()

    assert (result.status, result.message, result.run) == ("busy", "somebody", 1)
    assert (workshop.runs()[0].status, workshop.runs()[0].trials) == ("interrupted", trials)
    assert workshop.here().status == "limited"
    assert workshop.runs()[0].trials == 5


def test_a_sample_gives_way_too(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A burst of a sample with others on the GPU ends the attempt as busy, without a sample."""
    workshop.here()
    with Store(workshop.database) as store:
        trial, _ = store.trials(1, workshop.job_spec.workloads)[0]
    workshop.job_spec = sampling(workshop.job_spec)
    monkeypatch.setattr(job_process, "ContentionProbe", lambda _: Coming(3))
    record = trial_record(trial, workshop.job_spec.workloads)
    result = workshop.here(sample=record)

    assert (result.status, result.sample) == ("busy", None)


# --- what goes wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    [
        (DeviceError("the GPU is lost"), "unavailable", "the GPU is lost"),
        (ClockError("no clock"), "unavailable", "no clock"),
        (ValueError("a bug"), "crashed", "ValueError: a bug"),
    ],
)
def test_errors_say_what_becomes_of_the_job(
    workshop: Workshop,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    case: tuple[Exception, str, str],
) -> None:
    """What may pass is tried again, what nobody expected has crashed and leaves its trace in the log."""
    error, status, says = case

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("tuner.measurement.measurer.TrialMeasurer.measure", fail)
    result = workshop.here()

    assert (result.status, result.message) == (status, says)
    assert any(record.exc_info for record in caplog.records) == (status == "crashed")
    assert workshop.runs()[0].status == "failed"


def test_signals_are_afterwards_what_they_were() -> None:
    """Who heeds SIGTERM for a while leaves it as it was: what is started later must end by it."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    with StopRequest().handler_installed():
        assert signal.getsignal(signal.SIGTERM) != before[0]

    assert [signal.getsignal(number) for number in numbers] == before


# --- The launcher: attempts that are forked from one process, and what becomes of them when it ends.

_T = TypeVar("_T")


def with_launcher(work: Callable[[Launcher], Coroutine[Any, Any, _T]]) -> _T:
    """Do something with a launcher that is closed afterwards."""

    async def whole() -> _T:
        launcher = Launcher()
        try:
            return await asyncio.wait_for(work(launcher), PATIENCE_S)
        finally:
            await launcher.close()

    return asyncio.run(whole())


def test_attempts_are_forks_of_one_process(workshop: Workshop) -> None:
    """Two attempts are two processes of one launcher; they measure and store as fresh interpreters do."""

    async def twice(launcher: Launcher) -> list[job_launcher.AttemptProcess]:
        processes = []
        for _ in range(2):
            process = await job_launcher.start(workshop.spec(), workshop.tell, launcher.launch)
            result = await process.result()
            assert (result.status, result.message) == ("limited", "")
            processes.append(process)
        return processes

    first, second = with_launcher(twice)

    assert first.pid != second.pid
    assert workshop.told("run")[0] == {"run": 1, "resumed": 0}
    assert [run.trials for run in workshop.runs()] == [5]


def test_a_killed_attempt_is_told(workshop: Workshop) -> None:
    """The end of a fork by a signal reaches the daemon."""

    async def killed(launcher: Launcher) -> str:
        spec = replace(workshop.spec(), job=7)  # which waits for nobody: it is killed at once
        process = await job_launcher.start(spec, workshop.tell, launcher.launch)
        os.kill(process.pid, signal.SIGKILL)
        return (await process.result()).message

    assert "SIGKILL" in with_launcher(killed)


def test_a_launcher_that_ends_is_started_anew(workshop: Workshop) -> None:
    """SIGKILL of the launcher ends its attempts as crashed, and the next attempt has another launcher."""

    async def whole(launcher: Launcher) -> tuple[int, str, str]:
        process = await job_launcher.start(workshop.spec(), workshop.tell, launcher.launch)
        assert launcher._process is not None
        os.kill(launcher._process.pid, signal.SIGKILL)
        first = await process.result()
        again = await job_launcher.start(workshop.spec(), workshop.tell, launcher.launch)
        return process.pid, first.status, (await again.result()).status

    pid, first, second = with_launcher(whole)

    assert gone(pid)
    assert (first, second) == ("crashed", "limited")


def test_a_launcher_that_cannot_start_is_told(monkeypatch: pytest.MonkeyPatch, workshop: Workshop) -> None:
    """A launcher that ends before it forks is tried twice, and is an error of a child process."""
    monkeypatch.setattr(job_launcher, "_FORK_SERVER", "raise SystemExit(3)")

    async def started(launcher: Launcher) -> None:
        await job_launcher.start(workshop.spec(), workshop.tell, launcher.launch)

    with pytest.raises(ChildCrashedError, match=r"has ended|Broken pipe"):
        with_launcher(started)


def test_a_folder_that_was_read_is_read_again_when_it_changes(tmp_path: Path) -> None:
    """A catalogue takes the kernels of a folder that was read before, until a file of it has changed."""
    source = Path(__file__).parent.parent / "examples" / "vector-add"
    folder = tmp_path / "vector-add"
    folder.mkdir()
    for file in source.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    known = ReadFolder.read(tmp_path)
    (name,) = known.kernels

    assert Catalog.load(search_path=[tmp_path], cached=[known]).kernels[name] is known.kernels[name]
    kernel = folder / "kernel.toml"
    kernel.write_text(kernel.read_text() + "\n# changed\n")
    assert not known.is_current
    changed = Catalog.load(search_path=[tmp_path], cached=[known]).kernels[name]
    assert changed.fingerprint != known.kernels[name].fingerprint
