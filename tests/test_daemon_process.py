"""The daemon as a process: from the command line, killed in the middle, stopped, reloaded."""

import asyncio
import contextlib
import json
import os
import re
import signal
import sqlite3
import stat
import subprocess
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from cli_process import COMMAND, PATIENCE_S, await_rows, document, rows, tuner
from daemon_machine import Machine, machine
from prepared_process import PreparedProcess

from tuner.cli.daemon_summary import sentences
from tuner.client import Use
from tuner.daemon import machine as gpus
from tuner.daemon import main
from tuner.daemon.http.server import ListeningSocket
from tuner.daemon.machine import GpuSurvey, driver_signs
from tuner.daemon.state import StartOptions, load_config
from tuner.database.storage import Storage
from tuner.devices.choice import find
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import DaemonRefusedError, InputError
from tuner.model.jobs import DeviceIdentity
from tuner.system.service_manager import ServiceManager

__all__ = ["machine"]  # a fixture

TWO = ("scan-lf:N=4", "fft:N=4")  # thousands of trials of few configurations
BUDGET = 120
ASKED = "scan-lf:N=4"


def trials(database: Path) -> list[str]:
    """Every trial that is stored, whatever run it is of."""
    with closing(sqlite3.connect(database)) as connection:
        return [trial for (trial,) in connection.execute("SELECT trial FROM trials")]


def test_from_the_first_question_to_the_stored_answer(machine: Machine) -> None:
    """Asked, ordered, followed, served: every call does its part."""
    settings = machine.settings.read_text()
    machine.settings.write_text(
        re.sub("^(refine|retune_stale) = true", r"\1 = false", settings, flags=re.MULTILINE)
    )
    daemon = machine.start()
    client = machine.client()
    before = client.best(ASKED)
    assert before.origin == "default"
    assert before.device["uuid"] == client.status()["devices"][0]["uuid"]
    client.used(Use((ASKED,), count=3.0))
    with pytest.raises(InputError, match="no-such-kernel"):
        client.submit("no-such-kernel:N=4")
    with pytest.raises(InputError, match="no job 7"):
        client.job(7)

    job = client.submit(ASKED, policy="random", budget=3, seed=1)
    assert (job.workloads, job.wanted_device, job.options["budget"]) == ((ASKED,), "", 3)
    paused = client.pause(job.id)
    assert paused.state == "paused"
    assert [one.id for one in client.jobs(("paused",))] == [job.id]
    events = client.follow(job.id)
    assert next(events).kind == "state"
    assert client.resume(job.id).state in ("queued", "running")
    told = list(events)

    assert told[-1].data["state"] == "finished"
    assert len({event.id for event in told if event.id}) == sum(1 for event in told if event.id)
    with pytest.raises(DaemonRefusedError, match="finished"):
        client.cancel(job.id)
    answer = client.best(ASKED)
    placed = answer.workloads[ASKED]
    assert (answer.origin, answer.stale, placed.fresh) == ("stored", (), True)
    assert len(placed.source) == 64
    batch = Catalog.load().workload(ASKED).batch
    other = client.best(f"{ASKED},batch={batch // 2}")
    assert other.stale != ()
    assert other.workloads[ASKED].fresh

    shown = document("best", ASKED, "--socket", machine.socket)
    assert (shown["run"], shown["origin"]) == (answer.run, "stored")
    assert document("jobs", str(job.id), "--socket", machine.socket)["state"] == "finished"
    assert document("follow", str(job.id), "--socket", machine.socket)["answer"]["run"] == answer.run
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(PATIENCE_S) == 0
    assert "Traceback" not in machine.log.read_text()


def test_killed_daemon_finishes_its_job(machine: Machine) -> None:
    """Submitted, killed with SIGKILL, started again: the job finishes in one run, no trial is repeated.

    Who follows it through the end of the daemon is told every event that is stored, once.

    Two small workloads and a budget stand in for the default set here, whose compilation takes minutes.
    """
    killed = machine.start()
    remote = ("--socket", machine.socket)
    submitted = tuner(
        "submit", *TWO, "--objective", "energy", "--policy", "random", "--budget", str(BUDGET), *remote
    )
    assert submitted.exit_code == 0, submitted.stderr
    events = machine.client().follow(1)
    assert next(events).kind == "state"
    await_rows(killed, machine.database, 20)
    killed.kill()
    killed.wait()
    kept = rows(machine.database)
    assert 20 <= kept < BUDGET

    machine.start()
    followed = tuner("follow", "1", *remote)
    numbers = [event.id for event in events if event.id]

    assert sorted(set(numbers)) == numbers
    assert followed.exit_code == 0, followed.stderr
    measured = trials(machine.database)
    assert len(set(measured)) == len(measured) == BUDGET
    assert rows(machine.database, "runs") == 1
    job = machine.client().job(1)
    assert (job.state, job.attempts, job.trials) == ("finished", 2, BUDGET)
    best = tuner("best", *TWO, "--objective", "energy", *remote)
    assert best.exit_code == 0, best.stderr
    assert "stored" in best.stdout
    assert "modelled" in best.stdout


def test_stopped_daemon_leaves_a_job_that_goes_on(machine: Machine) -> None:
    """SIGTERM, and another one: exit code 0, the job waits, its trials are stored, no process is left."""
    process = machine.start()
    job = machine.client().submit(*TWO, policy="random", budget=100_000)
    await_rows(process, machine.database, 5)
    process.terminate()
    process.terminate()

    assert process.wait(PATIENCE_S) == 0
    assert not machine.socket.exists()
    with closing(sqlite3.connect(machine.database)) as connection:
        state, reason = connection.execute("SELECT state, reason FROM jobs").fetchone()
        (status,) = connection.execute("SELECT status FROM runs").fetchone()
    assert (job.id, state, reason, status) == (1, "queued", "the daemon was stopped", "interrupted")


def test_signals_while_it_starts_are_heeded_in_order(machine: Machine) -> None:
    """SIGHUP before the daemon is ready ends nothing, and SIGTERM ends it in order, without a socket left."""
    process = machine.begin()
    machine.hear("STATUS=looking for GPUs")
    process.send_signal(signal.SIGHUP)
    machine.hear("READY=1")
    machine.hear("RELOADING=1")
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0
    process = machine.begin()
    machine.hear("STATUS=looking for GPUs")
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0

    assert not machine.socket.exists()


def test_a_daemon_stays_the_only_one_until_it_is_told_to_end(machine: Machine, tmp_path: Path) -> None:
    """A second one is refused, a lost socket made anew; a storm of signals ends it once, in order; in JSON.

    A state directory has one daemon: another ends at once, and says who is there. Where the socket's file is
    taken away, the daemon listens again, and nobody but its user may connect. However often SIGTERM comes, it
    ends in order. With --log-format json every line of its log is an object.
    """
    machine.words += ("--log-format", "json")
    process = machine.start()
    with (tmp_path / "second").open("w") as log:  # without a service manager, for which it would wait
        second = PreparedProcess(COMMAND[2], machine.words, {1: 1, 2: log.fileno()}, os.environ)
    machine.processes.insert(0, second)
    assert second.wait(PATIENCE_S) == 2
    assert f"another daemon works there (process {process.pid})" in (tmp_path / "second").read_text()
    assert machine.client().status()["pid"] == process.pid

    machine.socket.unlink()
    assert machine.answers()
    assert stat.S_IMODE(machine.socket.stat().st_mode) in (0o600, 0o660)

    while process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.001)
    assert process.returncode == 0
    lines = [json.loads(line) for line in machine.log.read_text().splitlines()]
    ready = f"ready: sim:jetson-tx1; listening at {machine.socket}, state in {machine.database.parent}"
    assert {ready, "stopping"} <= {line["message"] for line in lines}


def test_reload_takes_over_good_settings_and_no_others(machine: Machine) -> None:
    """SIGHUP reads daemon.toml again; a broken one changes nothing, and status says what is wrong."""
    process = machine.start()
    good = machine.settings.read_text()
    machine.settings.write_text(f'{good}\n[[window]]\nstart = "0 22 * * *"\nhours = 8\n')
    process.send_signal(signal.SIGHUP)
    machine.hear("RELOADING=1")
    machine.hear("READY=1")
    assert machine.client().status()["windows"]["count"] == 1

    machine.settings.write_text(f"{good}\n[tunning]\n")
    process.send_signal(signal.SIGHUP)
    machine.hear("READY=1")
    status = machine.client().status()
    assert status["windows"]["count"] == 1
    assert any("tunning" in trouble for trouble in status["troubles"])


class SurveyedDaemon:
    """A daemon's process whose GPUs are found by a test."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        found: GpuSurvey | None = None,
        devices: tuple[str, ...] = (),
        *,
        managed: bool = False,
    ) -> None:
        self.wanted: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
        self.gpus = ["sim:jetson-tx1"]
        self.driver = "1"
        monkeypatch.setattr(gpus, "restore_and_find", self._ask)
        self.storage = Storage(folder / "tuner.db")
        self.listening = ListeningSocket(None, folder / "socket")
        options = StartOptions(folder / "daemon.toml", devices)
        options.config.write_text("")  # type: ignore[union-attr]  # named just now
        self.daemon = main.Daemon(
            options,
            load_config(options),
            found or self._ask(("sim:jetson-tx1", "sim:k40c")),
            storage=self.storage,
            listening=self.listening,
            manager=ServiceManager({"NOTIFY_SOCKET": str(folder / "manager")} if managed else {}),
        )

    def _ask(
        self, specs: Sequence[str], without: Sequence[str] = (), *, may_simulate: bool = False
    ) -> GpuSurvey:
        assert not may_simulate
        self.wanted.append((tuple(specs), tuple(without)))
        there = [spec for spec in specs or self.gpus if spec not in without]
        found = {spec: DeviceIdentity(spec, spec, spec, self.driver, "", modelled=True) for spec in there}
        return GpuSurvey(found, ("cuda:9: no such GPU",), ("GPU-set",))

    async def reload(self) -> None:
        await self.daemon._reload_files()
        await self.storage.close()
        self.listening.close()


def test_reload_asks_the_gpus_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGHUP asks who the GPUs are, but for those on which a job runs; a clock left set is counted."""
    devices = ("sim:jetson-tx1", "sim:k40c")
    asked = SurveyedDaemon(tmp_path, monkeypatch, devices=devices)
    asked.driver = "2"
    monkeypatch.setattr(asked.daemon._service, "runs", lambda device: device == "sim:k40c")
    asyncio.run(asked.reload())

    assert asked.wanted[1:] == [(devices, ("sim:k40c",))]
    state = asked.daemon._state
    assert {spec: one.driver for spec, one in state.identities.items()} == {
        "sim:jetson-tx1": "2",
        "sim:k40c": "1",
    }
    assert "cuda:9: no such GPU" in state.troubles["devices"]
    text = asked.daemon._service.metrics().decode()
    assert 'tuner_clock_restore_failures_total{gpu="GPU-set"} 2.0' in text


SIMULATED = GpuSurvey(
    {"sim:k40c": DeviceIdentity("sim:k40c", "sim:k40c", "sim:k40c", "1", "", modelled=True)},
    ("no GPU answers: sim:k40c stands in",),
    simulated=True,
)


def test_gpu_that_came_later_has_the_daemon_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU that is found after the start, by SIGHUP, has systemd start the daemon again."""
    asked = SurveyedDaemon(tmp_path, monkeypatch, SIMULATED, managed=True)
    asyncio.run(asked.reload())

    assert asked.daemon._stop.is_set()
    assert asked.daemon._code == 75
    assert list(asked.daemon._state.identities) == ["sim:k40c"]


def test_gpu_that_came_later_is_told_where_nobody_starts_the_daemon_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a service manager the daemon stays, and says what to do; what has no queue is no device."""
    asked = SurveyedDaemon(tmp_path, monkeypatch, SIMULATED)
    asyncio.run(asked.reload())

    assert not asked.daemon._stop.is_set()
    state = asked.daemon._state
    assert list(state.identities) == ["sim:k40c"]
    assert state.troubles["GPUs"] == [
        "sim:jetson-tx1: found after the start: start the daemon again to tune there"
    ]
    # nothing is wrong with a machine without a GPU
    assert state.notices == ("no GPU answers: sim:k40c stands in",)
    assert state.troubles["devices"] == ["cuda:9: no such GPU"]


@pytest.mark.parametrize(("found", "again"), [(SIMULATED, True), (None, False)])
def test_driver_that_comes_later_has_the_daemon_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: GpuSurvey | None, *, again: bool
) -> None:
    """More of a driver than at the start is reason enough while something stands in: sandboxes hide GPUs."""
    asked = SurveyedDaemon(tmp_path, monkeypatch, found, managed=True)
    asked.gpus = []
    monkeypatch.setattr(gpus, "driver_signs", lambda: frozenset({"195 nvidia"}))
    asyncio.run(asked.daemon._handle_changes())
    asyncio.run(asked.reload())

    assert asked.daemon._stop.is_set() == again


def test_signs_of_a_driver_are_files_and_kinds_of_devices(tmp_path: Path) -> None:
    """What /proc/devices and /dev have of NVIDIA are signs; what others put there is none."""
    (tmp_path / "devices").write_text("Character devices:\n  1 mem\n195 nvidia-frontend\n")
    (tmp_path / "nvidia0").touch()
    (tmp_path / "null").touch()

    assert {"195 nvidia-frontend", "nvidia0"} == driver_signs(tmp_path / "devices", tmp_path) - driver_signs(
        tmp_path, tmp_path / "devices"
    )


def test_pings_do_not_wait_for_the_main_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service manager hears that all is well while a driver is asked; not of a database that hangs."""
    asked = SurveyedDaemon(tmp_path, monkeypatch)
    daemon = asked.daemon
    let = threading.Event()

    async def scene() -> None:
        daemon._analysing = asyncio.create_task(asyncio.sleep(PATIENCE_S))
        assert daemon.alive
        monkeypatch.setattr(main, "_DATABASE_S", 0.0)
        begun = threading.Event()

        def hang(_: object) -> None:
            begun.set()
            assert let.wait(PATIENCE_S)

        hanging = asyncio.create_task(asked.storage.run(hang))
        await asyncio.to_thread(begun.wait, PATIENCE_S)
        assert not daemon.alive
        let.set()
        await hanging
        monkeypatch.setattr(main, "_DATABASE_S", 60.0)
        assert daemon.alive
        daemon._analysing.cancel()
        await asyncio.wait({daemon._analysing})
        assert not daemon.alive
        await asked.storage.close()
        asked.listening.close()

    asyncio.run(scene())


def test_idle_daemon_is_small(machine: Machine) -> None:
    """A daemon that has answered takes less than 106 MB of memory, 8 of them for the catalogue's kernels."""
    machine.prepared = False
    process = machine.start()
    machine.client().best("scan-lf:N=1024")
    status = Path(f"/proc/{process.pid}/status").read_text()
    (resident,) = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")]

    assert int(resident) * 1024 < 106e6


def test_check_says_what_would_be_done(machine: Machine) -> None:
    """--check reads the settings, says what follows from them, and starts nothing."""
    machine.settings.write_text(
        '[[set]]\nname = "pair"\nworkloads = ["scan-lf:N=4", "fft:N=4"]\nobjective = "energy"\n'
        "max_slowdown = 0.05\n"
        '[budget]\njoules_per_day = 5e4\n[[window]]\nstart = "0 22 * * *"\nhours = 8\n'
    )
    result = tuner("daemon", "--check", "--config", machine.settings, "--device", "sim:k40c")

    assert result.exit_code == 0, result.stderr
    limit = "at most 5 % slower than the fastest"
    assert f"scan-lf:N=4 fft:N=4 for energy, {limit} by auto, clocks off, on sim:k40c" in result.stdout
    assert "budget: 50000 J of measuring a day and GPU" in result.stdout
    assert "window: '0 22 * * *' for 8 h" in result.stdout
    assert not machine.database.exists()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "defaults: time by auto, clocks off, energy to ± 1 % (95 %)"),
        ("", "clients may choose clocks: off, no others"),
        ('[tuning]\nclocks = "all"', "clients may choose clocks: off and all, no others"),
        ("[tuning]\nclient_clocks = true", "clients may choose clocks: any"),
        ('[service]\nsocket = "/run/a.sock"', "socket: /run/a.sock"),
        ('[service]\ngroup = "no-such-group"', "group: no-such-group is not on this machine"),
        ("", "TCP: off"),
        ("[tcp]\nport = 8750", "TCP: port 8750 of the loopback, with the tokens of `tuner token list`"),
        ("[online]\nsample_every_hours = 0", "answers in use are measured again: never"),
        ('[[set]]\nname = "a"\nworkloads = ["scan-lf:N=4"]', "clocks off, on every GPU found"),
        ('[[set]]\nname = "a"\nworkloads = ["scan-lf:N=4"]\ndevices = ["cuda:1"]', "clocks off, on cuda:1"),
    ],
)
def test_check_says_of_every_setting_what_it_means(tmp_path: Path, text: str, sentence: str) -> None:
    """Who may ask, what is searched how and where, and what follows from questions: all of it is told."""
    path = tmp_path / "daemon.toml"
    path.write_text(f"{text}\n[kernels]\ndirectories = []\n")

    assert sentence in "\n".join(sentences(StartOptions(config=path)))


def test_check_refuses_a_set_of_unknown_workloads(machine: Machine) -> None:
    """--check names the set and what would be right."""
    machine.settings.write_text('[[set]]\nname = "pair"\nworkloads = ["scam-lf:N=4"]\n')
    result = tuner("daemon", "--check", "--config", machine.settings)

    assert result.exit_code == 2
    assert "set pair: unknown kernel 'scam-lf'" in result.stderr
    assert "did you mean 'scan-lf'" in result.stderr


def test_schema_is_printed() -> None:
    """--schema is the JSON Schema of daemon.toml."""
    result = tuner("daemon", "--schema")

    assert result.exit_code == 0
    assert "window" in json.loads(result.stdout)["properties"]


def test_daemon_does_not_go_to_the_background() -> None:
    """Without a service manager, --foreground must be said."""
    result = tuner("daemon")

    assert result.exit_code == 2
    assert "tuner install-service" in result.stderr


def test_a_socket_below_a_file_is_explained(tmp_path: Path) -> None:
    """Where a file stands in the way of a directory, it is named."""
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(InputError, match=f"cannot listen on {file}/socket: {file} is no directory"):
        ListeningSocket(None, file / "socket")


def test_a_gpu_of_two_names_is_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of names of one UUID the first is tuned on, and the message names both."""
    uuids = {"cuda:0": "GPU-a", "cuda:1": "GPU-b", "cuda:2": "GPU-a"}

    def played(spec: str) -> DeviceIdentity:
        return DeviceIdentity(spec, "NVIDIA H200", uuids[spec], "580", "", modelled=False)

    monkeypatch.setattr("tuner.devices.choice.identify", played)
    found, missing = find(("cuda:0", "cuda:1", "cuda:2"))
    assert list(found) == ["cuda:0", "cuda:1"]
    assert missing == {"cuda:2": "is the same GPU as cuda:0 (GPU-a), which is tuned on once"}


def test_a_device_that_cannot_be_used_is_named_once() -> None:
    """The reason does not begin with the name that it is told with."""
    _, missing = find(("cuda:9999", "sim:nope"))

    assert missing.keys() == {"cuda:9999", "sim:nope"}
    assert not any(why.startswith(spec) for spec, why in missing.items())
