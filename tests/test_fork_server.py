"""The launcher: attempts that are forked from one process, and what becomes of them when it ends."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from job_workshop import PATIENCE_S, Workshop, gone

from tuner.kernel_files.catalog import Catalog, ReadFolder
from tuner.model.errors import ChildCrashedError
from tuner.search import job_launcher
from tuner.search.job_launcher import Launcher

_T = TypeVar("_T")


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    """A job of a few trials on a modelled GPU."""
    return Workshop(tmp_path)


def with_launcher(work: Callable[[Launcher], Coroutine[Any, Any, _T]]) -> _T:
    """Do something with a launcher that is closed afterwards."""

    async def whole() -> _T:
        launcher = Launcher()
        try:
            return await asyncio.wait_for(work(launcher), PATIENCE_S)
        finally:
            await launcher.close()

    return asyncio.run(whole())


def test_attempts_are_forks_of_one_process(workshop: Workshop) -> None:
    """Two attempts are two processes of one launcher; they measure and store as fresh interpreters do."""

    async def twice(launcher: Launcher) -> list[job_launcher.AttemptProcess]:
        processes = []
        for _ in range(2):
            process = await job_launcher.start(workshop.spec(), workshop.tell, launcher.launch)
            result = await process.result()
            assert (result.status, result.message) == ("limited", "")
            processes.append(process)
        return processes

    first, second = with_launcher(twice)

    assert first.pid != second.pid
    assert workshop.told("run")[0] == {"run": 1, "resumed": 0}
    assert [run.trials for run in workshop.runs()] == [5]


def test_a_killed_attempt_is_told(workshop: Workshop) -> None:
    """The end of a fork by a signal reaches the daemon."""

    async def killed(launcher: Launcher) -> str:
        spec = replace(workshop.spec(), job=7)  # which waits for nobody: it is killed at once
        process = await job_launcher.start(spec, workshop.tell, launcher.launch)
        os.kill(process.pid, signal.SIGKILL)
        return (await process.result()).message

    assert "SIGKILL" in with_launcher(killed)


def test_a_launcher_that_ends_is_started_anew(workshop: Workshop) -> None:
    """SIGKILL of the launcher ends its attempts as crashed, and the next attempt has another launcher."""

    async def whole(launcher: Launcher) -> tuple[int, str, str]:
        process = await job_launcher.start(workshop.spec(), workshop.tell, launcher.launch)
        assert launcher._process is not None
        os.kill(launcher._process.pid, signal.SIGKILL)
        first = await process.result()
        again = await job_launcher.start(workshop.spec(), workshop.tell, launcher.launch)
        return process.pid, first.status, (await again.result()).status

    pid, first, second = with_launcher(whole)

    assert gone(pid)
    assert (first, second) == ("crashed", "limited")


def test_a_launcher_that_cannot_start_is_told(monkeypatch: pytest.MonkeyPatch, workshop: Workshop) -> None:
    """A launcher that ends before it forks is tried twice, and is an error of a child process."""
    monkeypatch.setattr(job_launcher, "_FORK_SERVER", "raise SystemExit(3)")

    async def started(launcher: Launcher) -> None:
        await job_launcher.start(workshop.spec(), workshop.tell, launcher.launch)

    with pytest.raises(ChildCrashedError, match=r"has ended|Broken pipe"):
        with_launcher(started)


def test_a_folder_that_was_read_is_read_again_when_it_changes(tmp_path: Path) -> None:
    """A catalogue takes the kernels of a folder that was read before, until a file of it has changed."""
    source = Path(__file__).parent.parent / "examples" / "vector-add"
    folder = tmp_path / "vector-add"
    folder.mkdir()
    for file in source.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    known = ReadFolder.read(tmp_path)
    (name,) = known.kernels

    assert Catalog.load(search_path=[tmp_path], cached=[known]).kernels[name] is known.kernels[name]
    kernel = folder / "kernel.toml"
    kernel.write_text(kernel.read_text() + "\n# changed\n")
    assert not known.is_current
    changed = Catalog.load(search_path=[tmp_path], cached=[known]).kernels[name]
    assert changed.fingerprint != known.kernels[name].fingerprint
