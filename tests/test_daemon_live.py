"""The stream of everything: the present first, then every change, also after an absence."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from service_rig import DEVICE, plays, working
from stored_trials import NAME, store_trials

from tuner.client.answer_values import PowerSample
from tuner.client.transport import messages
from tuner.daemon.power_watch import PowerChild, PowerWatch
from tuner.model.jobs import DeviceIdentity


def parsed(text: bytes) -> dict[str, Any]:
    """What an event says, and the place to go on from."""
    (message,) = messages(text.splitlines(keepends=True))
    assert message is not None
    found: dict[str, Any] = json.loads(message.data)
    assert found["kind"] == message.event
    return {**found, "place": message.id}


async def present(stream: AsyncIterator[bytes]) -> list[dict[str, Any]]:
    """What is told until the state of the last device, which ends the beginning."""
    told = []
    async for text in stream:
        told.append(parsed(text))
        if told[-1]["kind"] == "device":
            return told
    raise AssertionError("the stream ended")


async def following(stream: AsyncIterator[bytes], *kinds: str) -> dict[str, Any]:
    """The next event of one of the kinds."""
    async for text in stream:
        if (event := parsed(text))["kind"] in kinds:
            return event
    raise AssertionError("the stream ended")


@plays
async def test_a_follower_begins_with_the_present(tmp_path: Path) -> None:
    """First come the jobs, then the states of the daemon and its devices; a place says where to go on."""
    async with working(tmp_path) as rig:
        job = await rig.submit()
        await rig.attempts.get()
        stream = rig.service.follow()
        told = await present(stream)
        kinds = [event["kind"] for event in told]

        assert kinds == ["begin", "job", "present", "status", "device"]
        assert told[0]["data"]["resumed"] is False
        assert (told[1]["job"], told[1]["data"]["state"]) == (job.id, "running")
        assert told[2]["place"]
        assert told[4]["data"]["spec"] == DEVICE
        await stream.aclose()


@plays
async def test_changes_and_trials_are_told_with_places(tmp_path: Path) -> None:
    """A trial comes with what its attempt told of it, and the end of its job follows."""
    async with working(tmp_path) as rig:
        job = await rig.submit()
        attempt = await rig.attempts.get()
        stream = rig.service.follow()
        await present(stream)
        attempt.tell("trial", {"trial": 1, "energy_j": 0.5})
        trial = await following(stream, "trial")
        assert trial["place"]
        assert (trial["job"], trial["data"]) == (job.id, {"trial": 1, "energy_j": 0.5})
        attempt.end()
        ended = await following(stream, "job")
        assert ended["data"]["state"] == "finished"
        await stream.aclose()


@plays
async def test_who_was_away_gets_what_was_missed(tmp_path: Path) -> None:
    """After a lost connection the missed events come, once and in order, and no job again."""
    async with working(tmp_path) as rig:
        await rig.submit()
        attempt = await rig.attempts.get()
        stream = rig.service.follow()
        await present(stream)
        attempt.tell("trial", {"trial": 1})
        trial = await following(stream, "trial")
        await stream.aclose()
        attempt.tell("trial", {"trial": 2})
        attempt.tell("trial", {"trial": 3})
        again = rig.service.follow(trial["place"])
        told = await present(again)

        assert told[0]["data"]["resumed"] is True
        assert [one["data"]["trial"] for one in told if one["kind"] == "trial"] == [2, 3]
        assert not [one for one in told if one["kind"] == "job"]
        await again.aclose()


@plays
async def test_a_late_follower_is_told_the_trials_so_far(tmp_path: Path) -> None:
    """Trials of a job that runs are replayed from the database, contenders' repeats marked as such."""
    async with working(tmp_path) as rig:
        job = await rig.submit()
        await rig.attempts.get()
        run = store_trials(rig.storage.path, 3, job=job.id)
        stream = rig.service.follow("00000000-7")  # of the daemon before
        trials = [one["data"] for one in await present(stream) if one["kind"] == "trial"]

        assert [(one["trial"], one["repeat"], one["confirming"]) for one in trials] == [
            (1, 0, False),
            (1, 3, True),
            (2, 0, False),
            (3, 0, False),
        ]
        assert trials[0]["run"] == run
        assert trials[0]["configurations"][NAME]
        assert trials[1]["energy_j"] == trials[1]["cost"] == 0.9
        assert (trials[3]["status"], trials[3]["detail"]) == ("wrong-answer", "<b>off by 3</b>")
        assert trials[1]["energy_j_uncertainty"] > 0
        await stream.aclose()


@plays
async def test_devices_are_told_of_again_when_they_change(tmp_path: Path) -> None:
    """A device that begins a job is told of although no event says so."""
    async with working(tmp_path) as rig:
        stream = rig.service.follow()
        await present(stream)
        job = await rig.submit()
        device = await following(stream, "device")

        assert device["data"]["job"] == job.id
        await stream.aclose()


@plays
async def test_the_end_of_the_daemon_ends_the_stream(tmp_path: Path) -> None:
    """Followers are not left waiting when the daemon stops."""
    async with working(tmp_path) as rig:
        stream = rig.service.follow()
        await present(stream)
        await rig.service.end()

        assert "power" not in [parsed(text)["kind"] async for text in stream]


class PlayedGpus(PowerChild):
    """Counts the samples that are taken of GPUs."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.read_once = asyncio.Event()
        self.closed = asyncio.Event()

    async def read(self, gpus: Mapping[str, tuple[str, str, str]]) -> Mapping[str, PowerSample]:
        self.reads += 1
        self.read_once.set()
        return {device: {"watts": 300.0, "processes": 3, "reading": "nvml"} for device in gpus}

    def close(self) -> None:
        self.closed.set()


@plays
async def test_power_is_sampled_only_while_somebody_watches(tmp_path: Path) -> None:
    """Without a watcher no GPU is read and nothing is open; samples tell users that are not ours."""
    del tmp_path
    gpus, told = PlayedGpus(), list[Mapping[str, Any]]()
    identity = DeviceIdentity("cuda:0", "NVIDIA H200", "GPU-1", "550", "12.9", modelled=False)
    watch = PowerWatch(lambda: {"cuda:0": identity}, lambda _: True, told.append, lambda: gpus)
    assert gpus.reads == 0
    document = await watch.now()
    (sample,) = document["devices"][0]["samples"]
    assert (sample["watts"], sample["processes"], sample["others"]) == (300.0, 3, 2)
    await gpus.closed.wait()
    assert not watch.watched
    gpus.read_once.clear()
    with watch.watching():
        await gpus.read_once.wait()
    watch.close()


@plays
async def test_a_simulated_device_shows_its_last_trial(tmp_path: Path) -> None:
    """While a job runs, power is that of its last trial, labelled as modelled; without one there is none."""
    async with working(tmp_path) as rig:
        idle = (await rig.service.power())["devices"][0]["samples"][-1]
        await rig.submit()
        attempt = await rig.attempts.get()
        stream = rig.service.follow(power=True)
        await present(stream)
        attempt.tell("trial", {"trial": 1, "watts": 7.5, "clock_mhz": 998.0})
        watts = None
        while watts is None:
            watts = (await following(stream, "power"))["data"]["watts"]

        assert (idle["watts"], idle["modelled"]) == (None, True)
        assert watts == 7.5
        await stream.aclose()


@plays
async def test_nobody_is_told_of_power_who_does_not_want_it(tmp_path: Path) -> None:
    """A follower without power hears none, although another one has it sampled."""
    async with working(tmp_path) as rig:
        with_power, without = rig.service.follow(power=True), rig.service.follow()
        await present(with_power)
        await present(without)
        await following(with_power, "power")
        job = await rig.submit()
        told = await following(without, "power", "job")

        assert (told["kind"], told["job"]) == ("job", job.id)
        await with_power.aclose()
        await without.aclose()
