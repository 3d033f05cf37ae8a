"""Analytical answers: worked out in a child of low priority, one at a time, and only what was asked for."""

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from answering_scene import H200, TX1, Answers, shipped

from tuner.daemon.answers.answerer import MOST_QUEUED, Analyst
from tuner.daemon.interface import Question
from tuner.database.ranking import allowed
from tuner.devices.gpu_models import stand_in
from tuner.kernel_files.catalog import Catalog
from tuner.model.run_document import AnalyticalDocument
from tuner.search.explaining import Explainer

SCAN = "scan-lf:N=4"
PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
def told_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child answers for the sources there are."""
    monkeypatch.setenv("TOLD_SOURCE", shipped().kernel("scan-lf").fingerprint)


class AnalysisNews:
    """What an analyst told, and when it did."""

    def __init__(self) -> None:
        self.documents: dict[str, AnalyticalDocument] = {}
        self.news = asyncio.Event()

    async def remember(self, key: str, document: AnalyticalDocument) -> None:
        """Keep it."""
        self.documents[key] = document
        self.news.set()


def analyst(heard: AnalysisNews, server: str = "Telling", **options: Any) -> Analyst:
    found: dict[str, Any] = {"catalog": shipped, "remember": heard.remember, **options}
    return Analyst(server=f"analysis_servers:{server}", **found)


async def working(analyst: Analyst, until: Callable[[], Awaitable[object]]) -> None:
    """Let an analyst work until something has happened."""
    task = asyncio.create_task(analyst.run())
    try:
        await asyncio.wait_for(until(), PATIENCE_S)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_the_next_question_gets_the_analytical_answer() -> None:
    """A question that gets a default has its compiles started; once they are done, the answer is another."""

    async def scene() -> None:
        heard = AnalysisNews()
        work = Analyst(shipped, heard.remember)
        answers = Answers(shipped(), {TX1.spec: TX1}, analyse=work.ask)
        question = Question((SCAN,))
        assert answers.reply(question).origin == "default"
        assert work.waiting == 1
        await working(work, heard.news.wait)
        answers.answerer.remember(heard.documents)
        reply = answers.reply(question)
        assert reply.origin == "analytical"
        values = reply.workloads[SCAN].configuration
        assert allowed(shipped().kernel("scan-lf"), shipped().workload(SCAN), values) is not None
        assert work.waiting == 0

    asyncio.run(scene())


def test_what_nobody_foresaw_ends_no_later_answer(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever one workload does to the analyst is logged, and the next one is worked out."""

    async def scene() -> None:
        heard = AnalysisNews()
        broken = ["scan-lf:N=4"]

        async def remember(key: str, document: AnalyticalDocument) -> None:
            if broken:
                raise RuntimeError(f"nobody foresaw {broken.pop()}")
            await heard.remember(key, document)

        work = analyst(heard, remember=remember)
        work.ask(SCAN, TX1)
        work.ask("scan-lf:N=8", TX1)
        await working(work, heard.news.wait)
        assert len(heard.documents) == 1

    asyncio.run(scene())
    assert "nobody foresaw scan-lf:N=4" in caplog.text


def test_the_child_has_the_lowest_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own work goes before compiles that nobody waits for."""
    told: list[int] = []
    monkeypatch.setattr(os, "nice", told.append)
    Explainer()
    assert told == [19]


def test_no_gpu_is_opened_whose_model_is_known() -> None:
    """An H200 is stood in for by its model; a GPU that nobody knows is opened only when that is allowed."""
    assert stand_in(TX1) == "sim:jetson-tx1"
    assert stand_in(H200) == "sim:h200"
    unknown = replace(H200, name="NVIDIA Z900")
    assert stand_in(unknown) is None

    async def scene() -> None:
        heard = AnalysisNews()
        refused = analyst(heard, may_open=lambda _device: False)
        refused.ask(SCAN, unknown)
        assert refused.waiting == 0
        permitted = analyst(heard, may_open=lambda device: device == "cuda:0")
        permitted.ask(SCAN, unknown)
        permitted.ask(SCAN, H200)
        await working(permitted, permitted.quiet.wait)
        assert sorted(str(dict(document)["device"]) for document in heard.documents.values()) == [
            "cuda:0",
            "sim:h200",
        ]

    asyncio.run(scene())


def test_a_gpu_that_a_job_wants_is_left(tmp_path: Path) -> None:
    """The child that has opened a GPU ends when a job waits for that one; it is tried again after a while."""
    catalog = copied(tmp_path)
    os.mkfifo(tmp_path / "scan-lf" / "pid")  # whoever opens it waits for the other
    unknown = replace(H200, name="NVIDIA Z900")
    pids = []

    async def scene() -> None:
        heard = AnalysisNews()
        work = analyst(heard, "Hanging", catalog=lambda: catalog, may_open=lambda _device: True)
        work.ask(SCAN, unknown)

        async def left() -> None:
            pids.append(await asyncio.to_thread((tmp_path / "scan-lf" / "pid").read_text))
            work.leave("cuda:7")
            assert work.waiting == 1
            work.leave(unknown.spec)
            await work.quiet.wait()

        await working(work, left)
        assert heard.documents == {}
        work.ask(SCAN, unknown)
        assert work.waiting == 0, "it rests"

    asyncio.run(scene())
    assert not Path(f"/proc/{pids[0]}").exists()


def test_a_gpu_that_is_taken_meanwhile_is_not_opened() -> None:
    """What may be opened is asked again before it is: a job may have begun since the question came."""

    async def scene() -> None:
        heard = AnalysisNews()
        allowed = iter((True, False))
        work = analyst(heard, may_open=lambda _device: next(allowed))
        work.ask(SCAN, replace(H200, name="NVIDIA Z900"))
        assert work.waiting == 1
        await working(work, work.quiet.wait)
        assert heard.documents == {}

    asyncio.run(scene())


def test_what_is_on_its_way_or_too_much_is_not_queued() -> None:
    """A workload waits once, and no more than so many wait."""

    async def scene() -> None:
        work = analyst(AnalysisNews())
        for _ in range(3):
            work.ask(SCAN, TX1)
        assert work.waiting == 1
        work.ask("gone:N=4", TX1)
        assert work.waiting == 1
        for size in range(4, 4 + 2 * MOST_QUEUED):
            work.ask(f"scan-lf:N={size}", TX1)
        assert work.waiting == MOST_QUEUED

    asyncio.run(scene())


def test_what_failed_rests_for_a_while() -> None:
    """A workload without an answer is not tried again at once, but later."""

    async def scene() -> None:
        now_s = 0.0
        heard = AnalysisNews()
        work = analyst(heard, "Refusing", again_s=100.0, monotonic=lambda: now_s)
        work.ask(SCAN, TX1)
        await working(work, work.quiet.wait)
        assert heard.documents == {}
        work.ask(SCAN, TX1)
        assert work.waiting == 0
        now_s = 101.0
        work.ask(SCAN, TX1)
        assert work.waiting == 1

    asyncio.run(scene())


def copied(folder: Path) -> Catalog:
    """The scan kernel in a folder of its own."""
    root = shipped().kernel("scan-lf").path.parent.parent
    for name in ("scan-lf", "common"):
        shutil.copytree(root / name, folder / name)
    return Catalog.load(search_path=(folder,))


def test_a_child_that_hangs_is_killed(tmp_path: Path) -> None:
    """A time-out ends the child and is remembered; so does the end of the daemon, without waiting for it."""
    catalog = copied(tmp_path)
    pid_file = tmp_path / "scan-lf" / "pid"
    os.mkfifo(pid_file)  # whoever opens it waits for the other
    pids = []

    async def started() -> None:
        pids.append(await asyncio.to_thread(pid_file.read_text))

    async def scene() -> None:
        heard = AnalysisNews()
        short = analyst(heard, "Hanging", catalog=lambda: catalog, timeout_s=0.3)
        short.ask(SCAN, TX1)
        await working(short, short.quiet.wait)
        short.ask(SCAN, TX1)
        assert short.waiting == 0

        long = analyst(heard, "Hanging", catalog=lambda: catalog)
        long.ask(SCAN, TX1)
        await working(long, started)
        assert heard.documents == {}

    asyncio.run(scene())
    assert not Path(f"/proc/{pids[0]}").exists()


def test_an_answer_of_files_that_changed_meanwhile_is_not_kept(tmp_path: Path) -> None:
    """What was worked out of other sources than those asked for is dropped."""
    catalog = copied(tmp_path)

    async def scene() -> None:
        heard = AnalysisNews()
        work = analyst(heard, "Reading", catalog=lambda: catalog)
        work.ask(SCAN, TX1)
        path = tmp_path / "scan-lf" / "kernel.toml"
        path.write_text(path.read_text() + "\n# another\n")
        await working(work, work.quiet.wait)
        assert heard.documents == {}

    asyncio.run(scene())
