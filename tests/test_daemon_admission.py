"""What holds a device up: what is told of it, and what is remembered."""

import asyncio
from dataclasses import replace
from pathlib import Path

from service_rig import LOADED, plays, settings, working


@plays
async def test_load_is_told_once(tmp_path: Path) -> None:
    """Each look finds another figure: the status has it, the job's reason and its events do not."""
    async with working(tmp_path) as rig:
        rig.presence = LOADED
        job = await rig.submit()
        for percent in range(20, 30):
            rig.presence = replace(LOADED, load=f"{percent} %")
            looks = rig.looks
            await asyncio.sleep(3.0)  # some looks
            assert rig.looks > looks + 1
        assert (await rig.service.job(job.id)).reason == "the GPU is busy: it is loaded, and not by us"
        assert await rig.storage.run(lambda books: len(books.jobs.events(job.id))) == 2
        (device,) = (await rig.service.status())["devices"]
        assert device["holds"] == "the GPU is busy: it is loaded, and not by us (29 %)"


@plays
async def test_a_wall_clock_that_was_wrong_forgets_no_spending(tmp_path: Path) -> None:
    """Spending belongs to its day: after a leap ahead and back, also over a restart, the day's is known."""
    thrifty = settings(budget={"seconds_per_day": 5.0})
    async with working(tmp_path, thrifty) as rig:
        rig.wait(days=2)
        await rig.submit()
        attempt = await rig.attempts.get()
        attempt.spent = (6.0, 1.0)
        await attempt.stopped.wait()
        rig.wait(days=1)
        attempt = await rig.attempts.get()
        rig.wait(days=-1)
        await attempt.stopped.wait()
    async with working(tmp_path, thrifty) as rig:
        rig.wait(days=2)
        (device,) = (await rig.service.status())["devices"]
        assert device["spent_today_s"] == 6.0
