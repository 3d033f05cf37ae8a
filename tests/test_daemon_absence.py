"""Jobs whose device is not here, and a database that is not here at the start."""

import asyncio
from pathlib import Path

import pytest
from service_rig import DEVICE, OTHER, PEER, Rig, play, plays, settings, working


@plays
async def test_a_job_whose_device_is_not_here_says_so(tmp_path: Path) -> None:
    """Also after it was resumed; the status tells it, and the job goes on when the device is back."""
    async with working(tmp_path, devices=(DEVICE, OTHER)) as rig:
        await rig.submit(device=OTHER)
        await rig.attempts.get()
        job, paused = await rig.submit(device=OTHER), await rig.submit(device=OTHER)
        await rig.service.pause(paused.id, PEER)
    absent = f"device {OTHER} is not here"
    async with working(tmp_path) as rig:
        assert (await rig.service.job(job.id)).reason == absent
        assert (
            f"jobs: 2 wait for device {OTHER}, which is not here" in (await rig.service.status())["troubles"]
        )
        assert (await rig.service.resume(paused.id, PEER)).reason == absent
        assert (
            f"jobs: 3 wait for device {OTHER}, which is not here" in (await rig.service.status())["troubles"]
        )
    async with working(tmp_path, devices=(DEVICE, OTHER)) as rig:
        assert not (await rig.service.status())["troubles"]
        for _ in range(3):
            (await rig.attempts.get()).end()
        assert (await rig.told(job.id))[-3:] == [("queued", ""), ("running", ""), ("finished", "")]


def test_why_no_job_is_done_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The database is tried again and again; the log has its trouble once, and jobs are done in the end."""

    async def test() -> None:
        rig = Rig(tmp_path, settings())
        rig.storage.broken = "full"
        await rig.service.begin()
        await asyncio.sleep(10.0)
        rig.storage.broken = ""
        await asyncio.sleep(5.0)
        assert (await rig.submit()).id == 1
        await rig.service.end()

    play(test())
    assert caplog.text.count("no job is done: full") == 1
