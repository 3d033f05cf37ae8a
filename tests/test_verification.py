"""An answer of another GPU of the kind is verified in place of a search."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from answering_scene import H200, TWIN, TX1, Answers, refresh, shipped, store_run
from service_rig import FINISHED, WORKLOAD, Rig, plays, settings, working
from tuning_runs import CallbackListener, FormulaMeasurer

from tuner.daemon.backlog.backlog import CandidateJob
from tuner.daemon.interface import Question
from tuner.daemon.jobs.specs import spec_key, topic, verifies, verifying
from tuner.database.answers import stored_answer
from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.measurement.base import ComparisonTarget
from tuner.model.jobs import DeviceIdentity, JobSpec, Origin
from tuner.model.plan import Plan
from tuner.model.records import RunStatus
from tuner.model.trial import Measurement, Trial
from tuner.search.answer import Outcome
from tuner.search.request import SearchRequest
from tuner.search.setup import open_setup
from tuner.search.tuning import tune
from tuner.search.verification import NOTHING_TO_VERIFY, POLICY

FIRST, SECOND = "sim:k40c", "sim:k40c.2"
SEARCH = SearchRequest(workloads=("scan-lf:N=4",), objective="energy", policy="random")
VERIFY = replace(SEARCH, verify=True)
WIDE, AS_DEFAULT = 512, 256  # threads of a block


class PlayedGpu(FormulaMeasurer):
    """Measures by a formula: blocks of one width take the least.

    Args:
        best: threads of such a block.
    """

    window_s = 1.0

    def __init__(self, best: int) -> None:
        super().__init__()
        self._best = best

    def measure(
        self, trial: Trial, plans: Sequence[Plan], target: ComparisonTarget | None = None
    ) -> Measurement:
        del plans, target
        (one,) = trial.configurations
        time_s = 1e-3 * (2.0 - (one["L"] == self._best) + int(one["r"]) / 100 + int(one["S"]) / 1000)
        return replace(self.measured([time_s], time_s), energy_total_j=self.watts)


def tuned(
    request: SearchRequest, store: Store, device: str, best: int, *, resume: bool = False
) -> tuple[Outcome, PlayedGpu]:
    gpu = PlayedGpu(best)
    with open_setup(device, request) as setup:
        found = tune(
            replace(setup, measurer=gpu), request, Catalog.load(), store, CallbackListener(), resume=resume
        )
    return found, gpu


def as_json(found: Outcome) -> Any:
    """The document, of which every key is there."""
    return found.document


def test_an_answer_that_holds_is_an_answer_of_this_gpu(store: Store) -> None:
    """Default, answer and rival are measured twice, in place of a space, and the run is fresh here."""
    searched, whole = tuned(SEARCH, store, FIRST, WIDE)
    verified, few = tuned(VERIFY, store, SECOND, WIDE)
    document, before = as_json(verified), as_json(searched)
    assert document["policy"] == POLICY
    assert document["best"]["configurations"] == before["best"]["configurations"]
    for name, values in before["best"]["configurations"].items():
        assert list(document["best"]["configurations"][name]) == list(values)
    told = document["verification"]
    assert (told["held"], told["run"], told["gpu"]) == (True, searched.run, FIRST)
    assert verified.told == [told["told"]]
    assert len(document["trials"]) == 3
    assert all(trial["bursts"] == 2 for trial in document["trials"])
    assert few.windows_s * 4 < whole.windows_s

    run = store.run(verified.run or 0)
    assert run is not None
    answer = stored_answer(run)
    assert answer is not None
    assert (answer.uuid, answer.status) == (SECOND, RunStatus.FINISHED)
    sources = {"scan-lf": Catalog.load().kernel("scan-lf").fingerprint}
    device = DeviceIdentity(**run.conditions["device"])
    assert answer.reasons(device, sources, dict(run.conditions["workloads"])) == []


def test_an_answer_that_does_not_hold_is_refuted(store: Store) -> None:
    """Where the default or a rival clearly costs less, the run says so, and its answer is stale for it."""
    tuned(SEARCH, store, FIRST, WIDE)
    verified, _ = tuned(VERIFY, store, SECOND, AS_DEFAULT)
    told = as_json(verified)["verification"]
    assert told["held"] is False
    assert told["told"].startswith("refuted: the answer of ")
    assert "is not the best here: it costs" in told["told"]
    assert "more than the default; a search is needed" in told["told"]
    assert told["ratio"] - told["ratio_interval"] > 1.0
    run = store.run(verified.run or 0)
    assert run is not None
    answer = stored_answer(run)
    assert answer is not None
    assert answer.refuted == told["told"]


def test_without_such_an_answer_it_is_a_search(store: Store) -> None:
    """An answer of this very GPU, or of a run that was limited, is none to verify; that is told."""
    tuned(SEARCH, store, FIRST, WIDE)
    tuned(replace(SEARCH, budget=3, seed=7), store, SECOND, WIDE)
    for device in (FIRST, SECOND):
        with Store(store.path.with_name(f"{device}.db")) as other:
            found, _ = tuned(replace(VERIFY, budget=3), other, device, WIDE)
        assert found.told[0] == NOTHING_TO_VERIFY
        assert found.document["policy"] == "random"
        assert found.document["verification"] is None


# --- in the daemon -----------------------------------------------------------------------------------


def wanted(store: Store, **bound: Any) -> CandidateJob:
    """What the daemon wants of the twin of an H200 that has an answer."""
    store_run(store, ["scan-lf:N=64"], H200, **bound)
    answers = Answers(shipped(), {TWIN.spec: TWIN})
    refresh(answers.answerer, store)
    answers.reply(Question(("scan-lf:N=64",)))
    (found,) = answers.backlog.candidates()
    return found


def test_the_answer_of_a_twin_is_verified(store: Store) -> None:
    """What is stale for its GPU alone is verified, not searched."""
    found = wanted(store)
    assert verifies(found.spec)
    assert (found.origin, found.spec.device) == (Origin.STALE, TWIN.spec)


@pytest.mark.parametrize(
    "bound",
    [
        {"bound": {"device": replace(H200, driver="550.1")}},
        {"bound": {"sources": {"scan-lf": "another"}}},
        {"bound": {"clocks": "auto"}},
        {"status": "limited"},
    ],
)
def test_what_is_stale_for_more_is_searched(store: Store, bound: dict[str, Any]) -> None:
    """Another driver, source or choice of clocks, or a search that was limited, is none to verify."""
    changed = bound.get("bound", {}).pop("device", H200)
    store_run(store, ["scan-lf:N=64"], changed, **bound)
    answers = Answers(shipped(), {TWIN.spec: TWIN})
    refresh(answers.answerer, store)
    answers.reply(Question(("scan-lf:N=64",)))
    (found,) = answers.backlog.candidates()
    assert not verifies(found.spec)


def test_what_was_refuted_here_is_searched(store: Store) -> None:
    """A verification that failed leads to a search, and not to another verification."""
    store_run(store, ["scan-lf:N=64"], H200)
    run = store_run(store, ["scan-lf:N=64"], TWIN)
    stored = store.run(run)
    assert stored is not None
    verification = {"held": False, "told": "verified: the answer of GPU-1 is not the best here"}
    answer: Any = {**(stored.answer or {}), "verification": verification}
    store.end(run, RunStatus.FINISHED, answer)
    answers = Answers(shipped(), {TWIN.spec: TWIN})
    refresh(answers.answerer, store)
    assert answers.reply(Question(("scan-lf:N=64",))).stale == (verification["told"],)
    (found,) = answers.backlog.candidates()
    assert not verifies(found.spec)
    assert found.reason == verification["told"]


def test_a_verification_answers_what_the_search_would() -> None:
    """Neither a set nor a question has both queued; in other ways they are two jobs."""
    spec = JobSpec(("scan-lf:N=64",), device=TX1.spec)
    assert spec_key(verifying(spec)) == spec_key(spec)
    assert topic(verifying(spec)) == topic(spec)
    assert verifying(spec) != spec


@plays
async def test_a_set_is_searched_on_one_gpu_and_verified_on_the_others(tmp_path: Path) -> None:
    """When the first GPU of a kind has the answer, the others verify it, all at once."""
    devices = ("cuda:0", "cuda:1", "cuda:2")
    group = {"name": "one", "workloads": (WORKLOAD,), "policy": "random"}
    async with working(tmp_path, settings(set=(group,)), devices=devices, kind="NVIDIA H200") as rig:
        first = await rig.attempts.get()
        assert not verifies(first.spec.job_spec)
        assert len(await rig.service.jobs()) == 1
        await ended(rig, first)
        others = [await rig.attempts.get(), await rig.attempts.get()]
        assert all(verifies(one.spec.job_spec) for one in others)
        assert {one.spec.job_spec.device for one in (first, *others)} == set(devices)


async def ended(rig: Rig, attempt: Any) -> None:
    """Let an attempt end with a stored answer."""
    identity = rig.state.identities[attempt.spec.job_spec.device]
    run = await rig.storage.run(lambda books: store_run(books.store, [WORKLOAD], identity))
    attempt.end(replace(FINISHED, run=run))
