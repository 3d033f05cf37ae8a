"""A job's process from begin to end: what it stores, how it stops, and what is left of it."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import job_workshop
import pytest
from job_workshop import BOOT_PLAYED, PATIENCE_S, Workshop, gone, sampling, until

from tuner.database.runs import Store
from tuner.devices.gpu_users import VARIABLE, present
from tuner.kernel_files.source_folder import kernels_root
from tuner.model.records import RunStatus, measurement_from
from tuner.model.trial import Status
from tuner.search import job_process
from tuner.search.job_messages import AttemptResult, spec_json
from tuner.system import ownership
from tuner.system.ownership import owned_gpu


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    """A job of a few trials on a modelled GPU."""
    return Workshop(tmp_path)


@pytest.fixture
def played(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    """The same on a GPU in a worker, whose bursts can be held."""
    monkeypatch.setenv("HELD_GPU", str(workshop.folder))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(workshop.folder))
    monkeypatch.setattr(job_workshop, "BOOT", BOOT_PLAYED)
    workshop.job_spec = replace(workshop.job_spec, device="cuda:0")
    return workshop


@contextlib.contextmanager
def foreground() -> Iterator[None]:
    """Another process computes on the GPU."""
    enter = "from tuner.devices.gpu_users import Occupant; Occupant('jetson-tx1').enter()"
    code = f"{enter}; print(flush=True); input()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield
        process.kill()


def stored(workshop: Workshop) -> list[str]:
    """The trials of the job's run, in their order."""
    with Store(workshop.database) as store:
        return [str(trial) for trial, _ in store.trials(1, workshop.job_spec.workloads)]


def test_a_job_is_tuned_and_stored(workshop: Workshop) -> None:
    """An attempt tells its run, trials and answer, ends by the order's limit, and its run is the job's."""
    workshop.launch = job_workshop.fresh_interpreter
    result = workshop.attempt()

    assert (result.status, result.message, result.run) == ("limited", "", 1)
    assert workshop.told("run") == [{"run": 1, "resumed": 0}]
    searched = [event for event in workshop.told("trial") if not event["confirming"]]
    assert [event["number"] for event in searched] == [1, 2, 3, 4, 5]
    assert {(event["status"], event["unit"], event["expected"]) for event in searched} == {("ok", "s", 5)}
    assert workshop.told("compiled")[-1]["done"] == workshop.told("compiled")[-1]["total"]
    (run,) = workshop.runs()
    (answer,) = workshop.told("answer")
    assert run.answer is not None
    assert run.answer["best"] is not None
    assert answer["summary"]["best"]["configurations"] == run.answer["best"]["configurations"]
    assert (run.status, run.trials, workshop.job.run) == ("limited", 5, 1)
    assert result.seconds > 0
    assert result.joules == 0.0, "a search for time opens no meter"


def test_a_finished_job_needs_no_limit(workshop: Workshop) -> None:
    """A search that ends by itself has finished."""
    workshop.job_spec = replace(workshop.job_spec, policy="auto", options={})

    assert workshop.attempt().status == "finished"


def test_killed_in_a_burst_it_goes_on_where_it_was(played: Workshop) -> None:
    """SIGKILL of the process loses the burst and no trial; the next attempt measures none twice."""
    played.hold(4)

    async def killed() -> AttemptResult:
        process = await played.start()
        await played.held()
        os.kill(process.pid, signal.SIGKILL)
        return await process.result()

    first = asyncio.run(killed())
    (worker,) = played.workers()
    before = stored(played)
    played.let_go()
    second = played.attempt()

    assert (first.status, first.run) == ("crashed", 1)
    assert "SIGKILL" in first.message
    assert first.seconds > 0
    assert gone(worker)
    assert len(before) == 3
    assert played.told("run")[-1] == {"run": 1, "resumed": 3}
    assert second.status == "limited"
    assert stored(played)[:3] == before
    assert len(set(stored(played))) == 5 == len(stored(played))


def test_told_to_stop_it_leaves_the_gpu_and_its_run(played: Workshop) -> None:
    """SIGTERM in a burst that never ends: the worker is gone, trials are stored, the run goes on."""
    played.hold(3)

    async def stopped() -> AttemptResult:
        process = await played.start()
        await played.held()
        await process.stop(PATIENCE_S)
        return await process.result()

    result = asyncio.run(stopped())

    assert (result.status, result.message, result.run) == ("interrupted", "told to stop", 1)
    assert all(map(gone, played.workers()))
    (run,) = played.runs()
    assert (run.status, run.trials) == ("interrupted", 2)
    played.let_go()
    assert played.attempt().status == "limited"
    assert len(played.runs()) == 1


def test_told_to_stop_at_once_it_ends(workshop: Workshop) -> None:
    """SIGTERM before the process can heed it ends it just the same; a quick one may have begun its run."""

    async def stopped() -> AttemptResult:
        process = await workshop.start()
        await process.stop(PATIENCE_S)
        return await process.result()

    assert asyncio.run(stopped()).status == "interrupted"
    assert [run.status for run in workshop.runs()] in ([], [RunStatus.INTERRUPTED])


def test_who_does_not_stop_is_killed(played: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its grace a process that is deaf to SIGTERM is killed, with what it started in its session."""
    started = played.folder / "started"
    deaf = "import signal, subprocess, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    whole = f"open('pid', 'w').write(str(os.getpid())); os.rename('pid', {str(started)!r})"
    inner = f"import os, time; os.chdir({str(played.folder)!r}); {whole}; time.sleep(600)"
    script = f"{deaf}; subprocess.Popen([sys.executable, '-c', {inner!r}]).wait()"
    monkeypatch.setattr(job_workshop, "BOOT", script)

    async def killed() -> AttemptResult:
        process = await played.start()
        await until(started.exists)
        await process.stop(0.0)
        return await process.result()

    assert asyncio.run(killed()).status == "interrupted"
    assert gone(int(started.read_text()))


def test_a_killed_worker_costs_one_trial(played: Workshop) -> None:
    """The worker dies in a burst: that trial has crashed, the job goes on with another worker."""
    played.hold(2)

    async def whole() -> AttemptResult:
        process = await played.start()
        await played.held()
        (worker,) = played.workers()
        played.let_go()
        os.kill(worker, signal.SIGKILL)
        return await process.result()

    assert asyncio.run(whole()).status == "limited"
    with Store(played.database) as store:
        found = [measurement.status for _, measurement in store.trials(1, played.job_spec.workloads)]
    assert found.count(Status.CRASHED) == 1
    assert found.count(Status.OK) == 4
    assert len(played.workers()) == 2


def test_it_dies_with_the_daemon(played: Workshop) -> None:
    """SIGKILL of who started it ends the job's process and its worker, in a burst that never ends."""
    played.hold(1)
    spec = played.spec()
    code = (
        "import asyncio, sys; from pathlib import Path;"
        " from tuner.search import job_launcher, job_messages;"
        " import job_workshop; job_workshop.BOOT = job_workshop.BOOT_PLAYED\n"
        "async def main():\n"
        "    spec = job_messages.parse_spec(sys.argv[1])\n"
        "    launch = job_workshop.fresh_interpreter\n"
        "    process = await job_launcher.start(spec, lambda *_: None, launch)\n"
        "    print(process.pid, flush=True)\n"
        "    await process.result()\n"
        "asyncio.run(main())"
    )
    path = os.pathsep.join(sys.path)
    with subprocess.Popen(
        [sys.executable, "-c", code, spec_json(spec)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    ) as daemon:
        assert daemon.stdout is not None
        pid = int(daemon.stdout.readline())
        asyncio.run(played.held())
        daemon.kill()

    assert gone(pid)
    assert all(map(gone, played.workers()))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"workloads": ("no-such:N=4",)}, "unknown kernel"),
        ({"policy": "no-such"}, "unknown policy"),
        ({"clocks": "12:13"}, "12"),
        ({"options": {"no_such": 1}}, "unknown option 'no_such'"),
        ({"options": {"sensor": "no-such"}}, "no-such"),
    ],
)
def test_what_cannot_be_is_refused(workshop: Workshop, change: dict[str, object], says: str) -> None:
    """An order that will never work ends refused, says why, and stores no run."""
    workshop.job_spec = replace(workshop.job_spec, **change)  # type: ignore[arg-type]
    result = workshop.here()

    assert result.status == "refused"
    assert says in result.message
    assert workshop.runs() == []


def own_kernels(workshop: Workshop) -> Path:
    """A folder with a kernel called mine, which only this user can change."""
    own = workshop.folder / "config/tuner/kernels.d"
    for name in ("scan-lf", "common"):
        shutil.copytree(kernels_root() / name, own / name)
    file = own / "scan-lf/kernel.toml"
    file.write_text(file.read_text().replace('name = "scan-lf"', 'name = "mine"'))
    for path in (workshop.folder, *workshop.folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return own


def test_only_named_directories_are_searched(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel of the user's own folder is none of the daemon's; one of a folder in the errand is."""
    own = own_kernels(workshop)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(workshop.folder / "config"))
    workshop.job_spec = replace(workshop.job_spec, workloads=("mine:N=4",))

    assert workshop.here().status == "refused"
    assert workshop.here(kernel_directories=(own,), below=workshop.folder).status == "limited"


@pytest.mark.parametrize("at", ["config", "config/tuner/kernels.d/scan-lf/kernel.toml"])
def test_kernels_that_others_can_change_by_now_are_refused(workshop: Workshop, at: str) -> None:
    """What was trusted when the daemon looked is looked at again before it is read."""
    own = own_kernels(workshop)
    (workshop.folder / at).chmod(0o777)
    workshop.job_spec = replace(workshop.job_spec, workloads=("mine:N=4",))
    result = workshop.here(kernel_directories=(own,), below=workshop.folder)

    assert result.status == "refused"
    assert f"{workshop.folder / at}: can be written by others" in result.message
    assert workshop.runs() == []


def test_a_clock_that_is_left_set_is_told(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """At its end an attempt that may set clocks looks for those that could not be given back."""
    monkeypatch.setattr(job_process, "restore_stale_clocks", lambda: ["GPU-1"])
    workshop.job_spec = replace(workshop.job_spec, device="cuda:99")
    assert workshop.here().clocks_left == ()
    workshop.job_spec = replace(workshop.job_spec, clocks="all")
    assert workshop.here().clocks_left == ("GPU-1",)


def test_a_jobs_log_is_quiet(workshop: Workshop, caplog: pytest.LogCaptureFixture) -> None:
    """A job's process tells of trials through its pipe: a service's log has no line per trial."""
    with caplog.at_level("INFO"):
        assert workshop.here().status == "limited"
    assert [one.getMessage() for one in caplog.records if one.levelname == "INFO"] == []


def test_stopped_while_it_confirms_it_ends_as_if_never_stopped(played: Workshop) -> None:
    """SIGTERM while contenders are measured again: no trial is repeated, the answer has fresh repeats."""
    played.job_spec = replace(played.job_spec, options={**played.job_spec.options, "budget": 3})
    (played.folder / "other").mkdir()
    assert Workshop(played.folder / "other", played.job_spec).attempt().status == "limited"
    bursts = (played.folder / "bursts").stat().st_size
    played.hold(2 * bursts - 4)  # the last nine, or more, are of the confirmation

    async def stopped() -> AttemptResult:
        process = await played.start()
        await played.held()
        await process.stop(PATIENCE_S)
        return await process.result()

    first = asyncio.run(stopped())
    before = stored(played)
    assert played.told("trial")[-1]["confirming"]
    played.events.clear()
    played.let_go()
    second = played.attempt()

    assert (first.status, second.status) == ("interrupted", "limited")
    assert stored(played) == before
    assert len(before) == 3
    assert all(event["confirming"] for event in played.told("trial"))
    (run,) = played.runs()
    assert run.status == "limited"
    assert run.answer is not None
    assert run.answer["best"] is not None
    assert run.answer["best"]["bursts"] >= 3


def test_a_gpu_has_one_owner(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another process tunes the GPU, an attempt is unavailable, and stores no run."""
    monkeypatch.setattr(ownership, "GPU_LOCK_WAIT_S", 0.1)
    with owned_gpu(workshop.folder, "sim:jetson-tx1"):
        result = workshop.here()

    assert result.status == "unavailable"
    assert f"process {os.getpid()} tunes this GPU" in result.message
    assert workshop.runs() == []
    assert workshop.here().status == "limited"


def test_others_on_the_gpu_come_first(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """With another process on the GPU nothing is measured; once it has gone, the job goes on."""
    monkeypatch.setenv(VARIABLE, str(workshop.folder / "gpus"))
    with foreground():
        result = workshop.here()

    assert result.status == "busy"
    assert "1 process of others" in result.message
    assert workshop.told("trial") == []
    assert workshop.here().status == "limited"
    assert present("jetson-tx1") == []


def test_others_may_be_allowed(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others that do not count, and an idle test that is off, stop nothing."""
    monkeypatch.setenv(VARIABLE, str(workshop.folder / "gpus"))
    with foreground():
        assert workshop.attempt().status == "busy"
        assert workshop.here(others_allowed=1).status == "limited"
        assert workshop.here(idle_test=False).status == "limited"


def test_a_sample_is_measured_and_nothing_else(workshop: Workshop) -> None:
    """Measured again, a trial gives what it gave, by three repeats or more; no run is made of it."""
    workshop.job_spec = replace(workshop.job_spec, objective="energy", options={"budget": 2})
    workshop.here()
    with Store(workshop.database) as store:
        trial, before = store.best_known(1, workshop.job_spec.workloads)[0]
    record = {"configurations": {"scan-lf:N=4": dict(trial.configurations[0])}, "clock_mhz": None}
    workshop.job_spec = sampling(workshop.job_spec)
    result = workshop.attempt(sample=record)

    assert (result.status, result.message, result.run) == ("finished", "", None)
    assert result.sample is not None
    again = measurement_from(result.sample)
    assert 3 <= again.repeats <= 5
    assert again.makespan_s == pytest.approx(before.makespan_s, rel=0.02)
    assert again.energy is not None
    assert again.energy.idle_watts is not None
    assert len(workshop.runs()) == 1


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (None, "nothing is named"),
        (
            {"configurations": {"scan-lf:N=4": {"P": 2, "L": 32}}, "clock_mhz": 998},
            "998 MHz, which may not be set",
        ),
    ],
)
def test_a_sample_that_cannot_be_is_refused(
    workshop: Workshop, record: dict[str, object] | None, says: str
) -> None:
    """A sample of nothing is refused, and so is one at a clock that nobody allowed to set."""
    workshop.job_spec = sampling(workshop.job_spec)
    result = workshop.here(sample=record)

    assert result.status == "refused"
    assert says in result.message
