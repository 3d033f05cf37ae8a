"""Jobs whose device is not here."""

from pathlib import Path

from service_rig import DEVICE, OTHER, PEER, plays, working


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
