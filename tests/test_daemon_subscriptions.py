"""Followers hear all that matters, and nobody who is slow or gone holds up the rest."""

import asyncio
from pathlib import Path

import pytest
from service_rig import PEER, plays, working

from tuner.daemon.interface import NoSuchJobError
from tuner.daemon.jobs.events import Subscriptions
from tuner.model.jobs import Event


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


@plays
async def test_all_states_are_told_to_a_follower_who_sleeps(tmp_path: Path) -> None:
    """Whoever takes no event for long still gets every change of state, in order, once."""
    async with working(tmp_path) as rig:
        first = await rig.submit(1.0)
        await rig.attempts.get()
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


@plays
async def test_an_ended_job_is_told_from_the_database(tmp_path: Path) -> None:
    """Events after a number, and then the end; also where there is none left."""
    async with working(tmp_path) as rig:
        job = await rig.submit()
        attempt = await rig.attempts.get()
        attempt.tell("told", {"sentence": "near"})
        attempt.end()
        everything = [one async for one in rig.service.events(job.id)]
        assert [one.kind for one in everything] == ["state", "state", "told", "state"]
        assert [one async for one in rig.service.events(job.id, everything[1].id or 0)] == everything[2:]
        assert [one async for one in rig.service.events(job.id, everything[-1].id or 0)] == []


@plays
async def test_who_leaves_is_forgotten(tmp_path: Path) -> None:
    """A client that vanishes leaves nothing behind, and an unknown job is an error."""
    async with working(tmp_path) as rig:
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
        job = await rig.submit()
        await rig.attempts.get()
        events = rig.service.events(job.id)
        await anext(events)
        rest = asyncio.create_task(_all(events))
    assert (await rest)[-1].data["reason"] == "the daemon was stopped"


async def _all(events: object) -> list[Event]:
    return [one async for one in events]  # type: ignore[attr-defined]  # of events
