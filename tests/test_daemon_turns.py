"""Nothing that one client asks for keeps the daemon from the others for long."""

import asyncio
from pathlib import Path

from service_rig import PEER, plays, working

from tuner.daemon.interface import Question

USES = 50


@plays
async def test_many_uses_let_others_in_between(tmp_path: Path) -> None:
    """Whoever is answered meanwhile waits for one use, not for all of a list."""
    async with working(tmp_path) as rig:
        questions = [Question((f"scan-lf:N={2 ** (1 + number % 8)}",)) for number in range(USES)]
        counting = asyncio.create_task(rig.service.used(questions, PEER))
        turns = 0
        while not counting.done():
            await asyncio.sleep(0)
            turns += 1

        assert turns >= USES
