"""Who else is on a GPU, from the daemon's loop, too, and what the daemon reads of it."""

import asyncio
import importlib
import os
import queue
import signal
import threading
from collections.abc import Iterator
from inspect import signature
from pathlib import Path

import pytest
from fake_nvml_state import NOT_SUPPORTED, UUID, State, fake_nvml, follow_real_time, h200_at, users
from jetson_trees import BOARDS, build
from job_workshop import until
from tuner.power.clocks import devfreq

from tuner.daemon.machine import ContentionMonitor, PowerChild
from tuner.daemon.power_probe import PowerProbe
from tuner.devices.gpu_users import FREE, VARIABLE, Contention, ContentionProbe, Occupant, is_present, present
from tuner.devices.simulated.device import SimulatedDevice
from tuner.system.processes import Child


@pytest.fixture
def watcher(tmp_path: Path) -> Iterator[ContentionProbe]:
    """Looks at GPUs of a machine that is no Jetson."""
    watcher = ContentionProbe(devfreq=tmp_path / "devfreq")
    yield watcher
    watcher.close()


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where processes on simulated GPUs are seen."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "gpus"))
    return tmp_path / "gpus"


# --- NVML ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "ours", "busy"), [(0, 0, False), (1, 0, True), (1, 1, False), (3, 1, True)]
)
def test_processes_of_others_are_company(
    nvml: State, watcher: ContentionProbe, count: int, ours: int, *, busy: bool
) -> None:
    """One process more than ours is company."""
    nvml.process_count = count
    seen = watcher.look("cuda:0", UUID, ours)

    assert seen.busy == busy
    assert (f"{count - ours} process" in seen.reason) == busy


def test_some_may_not_count(nvml: State, tmp_path: Path) -> None:
    """As many others as are allowed are none."""
    watcher = ContentionProbe(others_allowed=2, devfreq=tmp_path)
    nvml.process_count = 3

    assert not watcher.look("cuda:0", UUID, 1).busy
    assert watcher.look("cuda:0", UUID, 0).busy
    watcher.close()


@pytest.mark.parametrize(("ours", "busy"), [(0, True), (1, False)])
def test_load_is_company_where_nothing_of_ours_runs(
    nvml: State, watcher: ContentionProbe, ours: int, *, busy: bool
) -> None:
    """Work that is no process NVML counts, as graphics, shows in the load; while we work that is ours."""
    nvml.load_percent = 40
    seen = watcher.look("cuda:0", UUID, ours)

    assert seen == (Contention(True, "it is loaded, and not by us", "40 %") if busy else FREE)
    nvml.load_percent = 9
    assert watcher.look("cuda:0", UUID, ours) == FREE


def test_what_cannot_be_asked_is_free_and_says_why(nvml: State, watcher: ContentionProbe) -> None:
    """A GPU that withholds both, and one that NVML does not know, are free as far as one can tell."""
    nvml.processes = nvml.load = NOT_SUPPORTED

    assert watcher.look("cuda:0", UUID, 0) == Contention(
        busy=False, reason="NVML tells neither its processes nor its load"
    )
    assert watcher.look("cuda:1", "GPU-other", 0).reason != ""
    nvml.processes = 0
    nvml.process_count = 1
    assert watcher.look("cuda:0", UUID, 0).busy


def test_nvml_is_opened_once(nvml: State, watcher: ContentionProbe) -> None:
    """Looks keep the GPU open, and the end of looking closes it."""
    assert nvml.uuid
    before = users()
    for _ in range(3):
        watcher.look("cuda:0", UUID, 0)
    assert users() == before + 1
    watcher.close()
    assert users() == before


# --- a Jetson ------------------------------------------------------------------------------------


@pytest.mark.parametrize("board", sorted(BOARDS))
def test_a_jetson_tells_its_load(tmp_path: Path, board: str) -> None:
    """Without NVML the driver's own figure counts, in thousandths, while nothing of ours runs."""
    sysfs = build(tmp_path, board)
    watcher = ContentionProbe(library=str(tmp_path / "no-nvml.so"), devfreq=sysfs / "class/devfreq")
    node = devfreq.find(sysfs / "class/devfreq")
    assert node is not None
    load = node / "device/load"

    assert "no-nvml" in watcher.look("cuda:0", "GPU-0", 0).reason
    load.write_text("250\n")
    assert watcher.look("cuda:0", "GPU-0", 0) == Contention(
        busy=True, reason="it is loaded, and not by us", load="25 %"
    )
    assert watcher.look("cuda:0", "GPU-0", 1) == FREE
    load.write_text("0\n")
    assert watcher.look("cuda:0", "GPU-0", 0) == FREE


# --- simulated GPUs ------------------------------------------------------------------------------


def test_a_simulated_gpu_shows_who_is_on_it(gpus: Path) -> None:
    """A process is seen from its first run on a simulated GPU until it closes it, on that GPU alone."""
    device = SimulatedDevice("jetson-tx1")

    assert not is_present("jetson-tx1")
    device.pulse([(0.1, 0.1)])
    assert is_present("sim:jetson-tx1")
    assert not is_present("k40c")
    assert ContentionProbe().look("sim:jetson-tx1", "sim:jetson-tx1", 0).busy
    assert ContentionProbe().look("sim:jetson-tx1", "sim:jetson-tx1", 1) == FREE
    device.close()
    assert present("jetson-tx1") == []
    assert list((gpus / "jetson-tx1").iterdir()) == []


def test_a_process_with_two_devices_is_one(gpus: Path) -> None:
    """Processes are counted, and not what they have open; the last to leave takes the process away."""
    del gpus
    first, second = Occupant("k40c"), Occupant("k40c")
    first.enter()
    second.enter()
    first.enter()

    assert len(present("k40c")) == 1
    first.leave()
    assert len(present("k40c")) == 1
    second.leave()
    second.leave()
    assert present("k40c") == []


def test_the_dead_are_not_present(gpus: Path) -> None:
    """What a killed process left behind is not counted, and removed; no more is what is no identity."""
    folder = gpus / "k40c"
    folder.mkdir(parents=True)
    (folder / "1-2").write_text("another-boot:1:2")
    (folder / "1-3").write_text("")

    assert present("k40c") == []
    assert list(folder.iterdir()) == []


def test_nobody_is_seen_unless_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the variable nothing is written, and a folder that cannot be written stops nobody."""
    monkeypatch.delenv(VARIABLE, raising=False)
    Occupant("k40c").enter()
    assert present("k40c") == []
    (tmp_path / "file").touch()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "file"))
    Occupant("k40c").enter()
    assert present("k40c") == []


def test_a_recording_has_no_company(watcher: ContentionProbe) -> None:
    """Nothing runs on what was recorded."""
    assert watcher.look("replay:h200", "GPU-0", 0) == FREE


# --- in the daemon -------------------------------------------------------------------------------


PROBE = "contention_probes:Played"
PATIENCE_S = 60.0  # for an answer; never waited for in full unless something is broken


def looked(uuid: str, *ours: int, answer_s: float = PATIENCE_S) -> list[Contention]:
    """What looks at a GPU of this UUID give, one after another."""

    async def look() -> list[Contention]:
        guests = ContentionMonitor(
            {"cuda:0": uuid}, others_allowed=2, busy_percent=5.0, answer_s=answer_s, probe=PROBE
        )
        try:
            return [await guests.look("cuda:0", count) for count in ours]
        finally:
            guests.close()

    return asyncio.run(look())


def test_real_gpus_are_asked_in_a_child(caplog: pytest.LogCaptureFixture) -> None:
    """The child gets the UUID and the rules; what it cannot tell is logged once."""
    seen = looked("GPU-0", 1, 0, 0)

    assert [presence.busy for presence in seen] == [True, False, False]
    assert {presence.reason for presence in seen} == {"cuda:0 GPU-0 (2, 5.0)"}
    assert [record.message for record in caplog.records] == [
        "cuda:0: counts as free of others: cuda:0 GPU-0 (2, 5.0)"
    ]


@pytest.mark.parametrize(
    ("uuid", "busy", "says"),
    [
        ("hangs", True, "the driver does not answer: gpu users: no answer within"),
        ("dies", True, "was killed by SIGABRT"),
        ("raises", False, "it cannot be asked: AttributeError: no such function"),
    ],
)
def test_a_driver_that_does_not_answer_counts_as_busy(uuid: str, *, busy: bool, says: str) -> None:
    """Where a driver hangs or kills its child nothing could be measured; who lacks a function is free."""
    (seen,) = looked(uuid, 0, answer_s=0.3 if uuid == "hangs" else PATIENCE_S)

    assert seen.busy == busy
    assert says in seen.reason


def test_a_look_that_nobody_awaits_any_more_is_not_made_twice(tmp_path: Path) -> None:
    """Who loses patience with a slow driver leaves its answer to the next: it is asked once."""
    driver = tmp_path / "driver"
    os.mkfifo(driver)  # whoever opens it waits for the other

    async def look() -> Contention:
        guests = ContentionMonitor({"cuda:0": str(driver)}, answer_s=PATIENCE_S, probe=PROBE)
        try:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(guests.look("cuda:0", 0), 0.01)
            next_one = asyncio.create_task(guests.look("cuda:0", 0))
            await asyncio.sleep(0)
            await asyncio.to_thread(driver.write_text, "wakes up, once")
            return await next_one
        finally:
            guests.close()

    assert asyncio.run(look()) == Contention(busy=False, reason=f"cuda:0 {driver} (0, 10.0)")


def test_the_loop_does_not_wait_for_the_end_of_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is in a driver may take seconds to die: that is awaited elsewhere."""
    ended: queue.Queue[threading.Thread] = queue.Queue()
    close = Child.close

    def slowly(self: Child, grace_s: float = 2.0) -> None:
        close(self, grace_s)
        ended.put(threading.current_thread())

    monkeypatch.setattr(Child, "close", slowly)

    async def look() -> None:
        guests = ContentionMonitor({"cuda:0": "GPU-1"}, probe=PROBE)
        await guests.look("cuda:0", 0)
        guests.close()

    asyncio.run(look())
    ender = ended.get(timeout=30.0)
    assert ender is not threading.main_thread()
    assert ender.daemon  # and holds up no end of the process


def test_simulated_gpus_cost_no_child(gpus: Path) -> None:
    """They are files, which cannot hang."""
    del gpus
    occupant = Occupant("k40c")
    occupant.enter()

    async def look() -> tuple[Contention, Contention]:
        guests = ContentionMonitor({}, probe="none:Such")
        return await guests.look("sim:k40c", 0), await guests.look("sim:k40c", 1)

    busy, free = asyncio.run(look())
    occupant.leave()
    assert busy.busy
    assert not free.busy


def test_an_unused_child_goes() -> None:
    """When nobody has looked for a while the driver is let go of; the next look opens it again."""

    async def look() -> list[str]:
        guests = ContentionMonitor({"cuda:0": "pid"}, probe=PROBE, unused_s=0.0)
        pids = []
        for _ in range(2):
            pids.append((await guests.look("cuda:0", 0)).reason)
            await until(lambda: not Path(f"/proc/{pids[-1]}").exists())
        return pids

    assert len(set(asyncio.run(look()))) == 2


# --- What the daemon reads of GPUs for those who watch, on a fake NVML.

GPUS = {"cuda:0": (UUID, "580", "NVIDIA H200")}


@pytest.fixture
def nvml(tmp_path: Path) -> Iterator[State]:
    with h200_at(tmp_path, 250.0) as state:
        follow_real_time(state)
        state.millijoules = 1
        yield state


def test_a_sample_has_power_clock_temperature_and_users(nvml: State) -> None:
    """All that a GPU tells is read at once, and nothing is set."""
    nvml.process_count, nvml.temperature_c, nvml.load_percent = 3, 54, 80
    probe = PowerProbe()
    first = probe.read(GPUS)["cuda:0"]
    second = probe.read(GPUS)["cuda:0"]
    while second["watts"] is None:
        second = probe.read(GPUS)["cuda:0"]
    probe.close()

    for sample in (first, second):
        assert (sample["processes"], sample["temperature_c"], sample["load_percent"]) == (3, 54.0, 80.0)
        assert sample["clock_mhz"] == nvml.clock_mhz
        assert sample["failure"] == ""
    assert second["watts"] == pytest.approx(250.0, rel=0.2)
    assert (second["reading"] or "").startswith("nvml")
    assert (nvml.sets, nvml.resets, nvml.limit_sets) == (0, 0, 0)


def test_a_gpu_that_cannot_be_read_says_why(nvml: State) -> None:
    """One that is unknown has a reason, and the others are read all the same."""
    del nvml
    probe = PowerProbe()
    samples = probe.read({**GPUS, "cuda:1": ("GPU-none", "580", "lost")})
    probe.close()

    assert samples["cuda:0"]["failure"] == ""
    assert any(word in (samples["cuda:1"]["failure"] or "") for word in ("GPU-none", "lost"))


def test_the_child_is_asked_again_after_it_died() -> None:
    """A driver that takes the child with it costs one sample; the next one has a child of its own."""

    async def read() -> set[str]:
        child = PowerChild("contention_probes:PlayedPower")
        pids = []
        try:
            for _ in range(2):
                pids.append(str((await child.read(GPUS))["cuda:0"]["reading"]))
                os.kill(int(pids[-1]), signal.SIGKILL)
                await asyncio.to_thread(os.waitid, os.P_PID, int(pids[-1]), os.WEXITED | os.WNOWAIT)
        finally:
            child.close()
        return set(pids)

    assert len(asyncio.run(read())) == 2
    module, _, name = signature(PowerChild).parameters["probe"].default.partition(":")
    assert getattr(importlib.import_module(module), name) is PowerProbe


def test_without_a_power_sensor_the_rest_is_told(tmp_path: Path) -> None:
    """Where no reading of power answers, clock, temperature and users are told all the same, with why."""
    with fake_nvml(tmp_path) as state:
        state.process_count = 2
        probe = PowerProbe()
        sample = probe.read(GPUS)["cuda:0"]
        probe.close()

    assert sample["processes"] == 2
    assert "no power reading of NVIDIA H200 can be used" in (sample["failure"] or "")
