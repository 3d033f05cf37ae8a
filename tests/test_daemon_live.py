"""Followers: the stream of everything and of one job, and the feed behind them."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from service_rig import DEVICE, PEER, Rig, plays, working, works
from stored_trials import NAME, store_trials

from tuner.client.answer_values import PowerSample
from tuner.client.transport import messages
from tuner.daemon.interface import NoSuchJobError
from tuner.daemon.jobs.events import EventFeed, Subscriptions
from tuner.daemon.machine import PowerChild, PowerWatch
from tuner.model.jobs import DeviceIdentity, Event

# --- the stream of everything: the present first, then every change, also after an absence --------


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


@works()
async def test_a_follower_begins_with_the_present(rig: Rig) -> None:
    """First come the jobs, then the states of the daemon and its devices; a place says where to go on."""
    job, _ = await rig.begun()
    stream = rig.service.follow()
    told = await present(stream)
    kinds = [event["kind"] for event in told]

    assert kinds == ["begin", "job", "present", "status", "device"]
    assert told[0]["data"]["resumed"] is False
    assert (told[1]["job"], told[1]["data"]["state"]) == (job.id, "running")
    assert told[2]["place"]
    assert told[4]["data"]["spec"] == DEVICE
    await stream.aclose()


@works()
async def test_changes_and_trials_are_told_with_places(rig: Rig) -> None:
    """A trial comes with what its attempt told of it, and the end of its job follows."""
    job, attempt = await rig.begun()
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


@works()
async def test_who_was_away_gets_what_was_missed(rig: Rig) -> None:
    """After a lost connection the missed events come, once and in order, and no job again."""
    _, attempt = await rig.begun()
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


@works()
async def test_a_late_follower_is_told_the_trials_so_far(rig: Rig) -> None:
    """Trials of a job that runs are replayed from the database, contenders' repeats marked as such."""
    job, _ = await rig.begun()
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
    assert (trials[1]["energy_j"], trials[1]["cost"]) == (0.9, 0.01)
    assert (trials[3]["status"], trials[3]["detail"]) == ("wrong-answer", "<b>off by 3</b>")
    assert trials[1]["energy_j_uncertainty"] > 0
    await stream.aclose()


@works()
async def test_devices_are_told_of_again_when_they_change(rig: Rig) -> None:
    """A device that begins a job is told of although no event says so."""
    stream = rig.service.follow()
    await present(stream)
    job = await rig.submit()
    device = await following(stream, "device")

    assert device["data"]["job"] == job.id
    await stream.aclose()


@works()
async def test_the_end_of_the_daemon_ends_the_stream(rig: Rig) -> None:
    """Followers are not left waiting when the daemon stops."""
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


@works()
async def test_a_simulated_device_shows_its_last_trial(rig: Rig) -> None:
    """While a job runs, power is that of its last trial, labelled as modelled; without one there is none."""
    idle = (await rig.service.power())["devices"][0]["samples"][-1]
    _, attempt = await rig.begun()
    stream = rig.service.follow(power=True)
    await present(stream)
    attempt.tell("trial", {"trial": 1, "watts": 7.5, "clock_mhz": 998.0})
    watts = None
    while watts is None:
        watts = (await following(stream, "power"))["data"]["watts"]

    assert (idle["watts"], idle["modelled"]) == (None, True)
    assert watts == 7.5
    await stream.aclose()


@works()
async def test_nobody_is_told_of_power_who_does_not_want_it(rig: Rig) -> None:
    """A follower without power hears none, although another one has it sampled."""
    with_power, without = rig.service.follow(power=True), rig.service.follow()
    await present(with_power)
    await present(without)
    await following(with_power, "power")
    job = await rig.submit()
    told = await following(without, "power", "job")

    assert (told["kind"], told["job"]) == ("job", job.id)
    await with_power.aclose()
    await without.aclose()


# --- followers hear all that matters, and nobody who is slow or gone holds up the rest ------------


def event(number: int | None, kind: str = "state") -> Event:
    return Event(kind, "2026-01-01T00:00:00+00:00", 1, {"state": "queued", "reason": ""}, number)


def test_slow_follower_loses_progress_and_knows_when_to_read_again() -> None:
    """Progress beyond a bound is dropped; stored events beyond one are to be read from the database."""

    async def check() -> None:
        subscriptions = Subscriptions()
        subscription = subscriptions.subscribe(1)
        for _ in range(10_000):
            subscriptions.publish(event(None, "trial"))
        progress, behind, _ = await subscription.take()
        assert 0 < len(progress) < 1000
        assert not behind
        for number in range(1, 10_000):
            subscriptions.publish(event(number))
        stored, behind, _ = await subscription.take()
        assert behind
        assert [one.id for one in stored] == list(range(1, len(stored) + 1))

    asyncio.run(check())


@works()
async def test_all_states_are_told_to_a_follower_who_sleeps(rig: Rig) -> None:
    """Whoever takes no event for long still gets every change of state, in order, once."""
    first, _ = await rig.begun(1.0)
    job = await rig.submit()
    events = rig.service.events(job.id)
    await anext(events)
    for _ in range(130):
        await rig.service.pause(job.id, PEER)
        await rig.service.resume(job.id, PEER)
    await rig.service.cancel(job.id, PEER)
    states = [one.data["state"] async for one in events]
    assert states == ["paused", "queued"] * 130 + ["cancelled"]
    assert first.id != job.id


@works()
async def test_an_ended_job_is_told_from_the_database(rig: Rig) -> None:
    """Events after a number, and then the end; also where there is none left."""
    job, attempt = await rig.begun()
    attempt.tell("told", {"sentence": "near"})
    attempt.end()
    everything = [one async for one in rig.service.events(job.id)]
    assert [one.kind for one in everything] == ["state", "state", "told", "state"]
    assert [one async for one in rig.service.events(job.id, everything[1].id or 0)] == everything[2:]
    assert [one async for one in rig.service.events(job.id, everything[-1].id or 0)] == []


@works()
async def test_who_leaves_is_forgotten(rig: Rig) -> None:
    """A client that vanishes leaves nothing behind, and an unknown job is an error."""
    job = await rig.submit()
    events = rig.service.events(job.id)
    await anext(events)
    assert (await rig.service.status())["followers"] == 1
    await events.aclose()  # type: ignore[attr-defined]  # it is a generator
    assert (await rig.service.status())["followers"] == 0
    with pytest.raises(NoSuchJobError, match="no job 99"):
        await anext(rig.service.events(99))
    assert (await rig.service.status())["followers"] == 0


@plays
async def test_streams_end_with_the_daemon(tmp_path: Path) -> None:
    """Whoever follows a job when the daemon ends gets the end of his stream."""
    async with working(tmp_path) as rig:
        job, _ = await rig.begun()
        events = rig.service.events(job.id)
        await anext(events)
        rest = asyncio.create_task(_all(events))
    assert (await rest)[-1].data["reason"] == "the daemon was stopped"


async def _all(events: object) -> list[Event]:
    return [one async for one in events]  # type: ignore[attr-defined]  # of events


# --- the feed: one order, bounded memory, and who comes back misses nothing that is kept ----------


TRIAL = Event.now("trial", {"text": "x" * 100})
POWER = Event.now("power", TRIAL.data)


def numbers(feed: EventFeed, after: int) -> list[int | None]:
    found = feed.since(after)
    assert found is not None
    return [event.id for event in found]


def test_who_comes_back_gets_what_was_missed() -> None:
    """Events after a place are there in order, and none where nothing was missed."""
    feed = EventFeed()
    for _ in range(5):
        feed.publish(TRIAL)

    assert numbers(feed, 2) == [3, 4, 5]
    assert numbers(feed, 5) == []
    assert feed.number(feed.place(3)) == 3


def test_memory_is_bounded_and_a_gap_is_seen() -> None:
    """Old events make room; from a place before them, or one that never was, the feed cannot go on."""
    feed = EventFeed(kept_bytes=10_000)
    for number in range(1, 1001):
        feed.publish(Event.now("trial", {"text": "x" * (number % 300), "number": number}))
        missed = feed.since(max(0, number - 10)) or []
        assert [parsed(one.text)["data"]["number"] for one in missed] == [one.id for one in missed]

    assert 0 < len(numbers(feed, 990)) <= 10
    assert feed.since(1) is None
    assert feed.since(1001) is None
    feed.publish(Event.now("trial", {"text": "x" * 10_000}))  # more than there is room for
    assert (feed.since(1000), numbers(feed, 1001)) == (None, [])
    feed.publish(TRIAL)
    assert [parsed(one.text)["data"] for one in feed.since(1001) or ()] == [TRIAL.data]


def test_places_of_another_daemon_are_none() -> None:
    """A place of the daemon before, or text that is no place, is told from one of this feed."""
    feed = EventFeed()
    feed.publish(TRIAL)

    assert [feed.number(place) for place in ("00000000-1", "", feed.instance, f"{feed.instance}-x")] == [
        None
    ] * 4


def test_what_passes_is_not_kept_and_costs_nothing_where_nobody_follows() -> None:
    """Events that a later one replaces have no number, and are not even encoded without a follower."""
    feed = EventFeed()
    feed.publish(Event.now("power", {"text": object}), keep=False)
    follower = feed.follow()
    feed.publish(POWER, keep=False)

    assert feed.last == 0
    assert [event.id for event in asyncio.run(follower.take())[0]] == [None]


def test_a_slow_follower_holds_up_nobody_and_learns_of_it() -> None:
    """The buffer of a follower that does not read is bounded; it is then told to begin again."""
    feed = EventFeed()
    slow, other = feed.follow(), feed.follow()
    for _ in range(5000):
        feed.publish(TRIAL)
    events, behind, _ = asyncio.run(slow.take())

    assert behind
    assert len(events) < 1000
    assert feed.count == 2
    feed.leave(other)
    assert feed.count == 1
