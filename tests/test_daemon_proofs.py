"""The proofs of benchmarks/daemon_soak.py and fairness.py in small, and that they see what is not kept."""

import importlib
import os
import random
import sys
import tempfile
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from daemon_scene import ASKED_ONLY, MODELLED, Scene

from tuner.database.connection import Database
from tuner.database.jobs import Jobs
from tuner.model.jobs import JobSpec, JobState, Origin

BENCHMARKS = str(Path(__file__).parent.parent / "benchmarks")


@pytest.fixture(scope="module")
def proofs() -> SimpleNamespace:
    """The benchmarks' modules, which are scripts side by side."""
    path = sys.path[:]
    sys.path.insert(0, BENCHMARKS)
    modules: dict[str, ModuleType] = {name: importlib.import_module(f"daemon_{name}") for name in ("soak",)}
    modules["fairness"] = importlib.import_module("fairness")
    sys.path[:] = path
    return SimpleNamespace(**modules)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as three users")
def test_a_flood_lets_another_in(proofs: SimpleNamespace) -> None:
    """Behind a flood of jobs of the highest priority, another user's job starts with the next turn."""
    fairness = proofs.fairness
    seen, plan = (
        fairness.NeighbourRecord(),
        fairness.Plan(blocks=1, flood=30, requests=20, rate=100.0, budget=1),
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # other users enter
        with Scene(folder, devices=(MODELLED,), settings=ASKED_ONLY, bare=True) as scene:
            scene.start()
            waiting = fairness.flooded_block(scene, seen, plan, before=1)
            ended = scene.client().jobs(["finished", "failed"], limit=500)  # hundreds were cancelled

    first, second, *_ = sorted(ended, key=lambda job: job.started_at or "")
    assert (first.submitter, second.submitter) == (fairness.FLOODER, fairness.OTHER)
    assert waiting > 0
    assert (len(seen.best_s), seen.errors) == (20, 0)


def test_unfairness_is_seen(proofs: SimpleNamespace) -> None:
    """A job that starts late or never, and slow or failed answers, break what is required."""
    seen, judged = proofs.fairness.NeighbourRecord, proofs.fairness.judged
    calm = seen([0.01] * 100, [1.0])

    def kept(flooded: object) -> list[bool]:
        return list(judged(calm, flooded, [2.0, 1.0], {})["kept"].values())

    assert kept(seen([0.02] * 100, [2.0])) == [True, True]
    assert kept(seen([0.02] * 100, [2.1])) == [False, True]
    assert kept(seen([0.01] * 100, [None])) == [False, True]
    assert kept(seen([0.01] * 98 + [0.021] * 2, [0.0])) == [True, False]
    assert kept(seen([0.01] * 100, [0.0], 1)) == [True, False]


def test_a_minute_of_a_day(proofs: SimpleNamespace, tmp_path: Path) -> None:
    """What a day brings can be done without a failure, and time passes."""
    with Scene(tmp_path, devices=(MODELLED,), settings=proofs.soak.SETTINGS) as scene:
        day = proofs.soak.Day(scene, random.Random(0))  # noqa: S311 - no secrets
        scene.start()
        sizes = list(day.hours(1 / 60))
        status = scene.client().status()

    assert day.failed == {}
    assert day.done["best"] == proofs.soak.REQUESTS_A_MINUTE
    assert {"uses", "metrics", "half a request"} <= set(day.done)
    assert sizes[0]["zombies"] == 0
    assert sizes[0]["descriptors"] > 0
    assert scene.clocks.rising_s == 60.0
    assert status["queue"]


def test_a_few_clients_at_once(proofs: SimpleNamespace, tmp_path: Path) -> None:
    """All that they ask for is done, and the daemon withdraws none of its own jobs."""
    with Scene(tmp_path, devices=proofs.soak.DEVICES, settings="") as scene:
        scene.start()
        crowd = proofs.soak.Crowd(scene, clients=4, pause_s=0.5, seed=0)
        sizes = list(crowd.sizes(1, every_s=1.5))
        assert scene.stop() == 0
        own = proofs.soak.own_jobs(scene.database)

    assert crowd.failed == {}
    assert crowd.done["best"] > 0
    assert own["queued"] > 0
    assert len(sizes) == 2
    assert proofs.soak.growth(sizes, 0)["growth_bytes"] == sizes[1]["rss_bytes"] - sizes[0]["rss_bytes"]
    assert proofs.soak.few_withdrawn(own)


def test_withdrawn_jobs_break_the_promise(proofs: SimpleNamespace, tmp_path: Path) -> None:
    """What the daemon cancels counts, by reason; what a client cancels, and clients' own jobs, do not."""
    path = tmp_path / "tuner.db"
    with Database(path) as database:
        jobs = Jobs(database)
        for number, (origin, reason) in enumerate(
            (
                *[(Origin.REQUEST, "")] * 17,
                (Origin.REQUEST, "by user 7"),
                (Origin.CLIENT, "answered by run 3"),
                (Origin.STALE, "answered by run 4"),
                (Origin.REQUEST, "others are worth more now"),
            ),
            1,
        ):
            spec = JobSpec((f"fft:N={number}",), device="sim:k40c")
            jobs.add(spec, origin=origin)
            if reason:
                jobs.change(number, JobState.CANCELLED, reason=reason)
    own = proofs.soak.own_jobs(path)

    assert (own["queued"], own["answered"], own["withdrawn"]) == (20, 1, 1)
    assert own["withdrawn_because"] == {"others are worth more now": 1}
    assert own["states"] == {"queued": 17, "cancelled": 3}
    assert proofs.soak.few_withdrawn(own)
    assert not proofs.soak.few_withdrawn({**own, "withdrawn_share": 0.051})


def test_growth_counts_from_the_end_of_the_warm_up(proofs: SimpleNamespace) -> None:
    """What is taken in the first hours does not count; a zombie at any hour does."""
    rss = [70, 75, 76, 76, 78]
    hours = [
        {"hour": hour, "rss_bytes": size * 10**6, "descriptors": 17, "zombies": int(hour == 3)}
        for hour, size in enumerate(rss)
    ]

    assert proofs.soak.growth(hours, proofs.soak.WARM_UP_HOURS) == {
        "growth_bytes": 2 * 10**6,
        "growth_descriptors": 0,
        "zombies": 1,
    }
