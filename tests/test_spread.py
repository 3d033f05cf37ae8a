"""A run whose lists of trials are measured by a pool, which ends them in an order of its own."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tuning_runs import CallbackListener

from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.measurement.base import Measurer, PlannedTrial, ReferenceTrial
from tuner.model.records import RunStatus
from tuner.model.trial import Measurement, Trial
from tuner.search.answer import Outcome
from tuner.search.plan import plan_search
from tuner.search.request import SearchRequest
from tuner.search.session import Session
from tuner.search.setup import open_setup

REQUEST = SearchRequest(workloads=("scan-lf:N=4",), policy="exhaustive", objective="time", seed=3)


class BackwardPool:
    """Measures all trials of a list on one device, the last one first, and one of them twice."""

    parallel = 2

    def __init__(self, measurer: Measurer) -> None:
        self._measurer = measurer
        self.lists = 0

    def prepare(self, reference: PlannedTrial) -> None:
        """There is one device."""

    def measure_all(
        self, trials: Iterator[PlannedTrial], reference: ReferenceTrial
    ) -> Iterator[tuple[Trial, Measurement]]:
        """As ``TrialPool``."""
        assert reference.measurement.ok
        self.lists += 1
        planned = list(trials)
        for one in reversed(planned):
            yield one.trial, self._measurer.measure(one.trial, one.plans, one.target)
        for one in planned[:1]:  # a worker that was given up answers after all
            yield one.trial, self._measurer.measure(one.trial, one.plans, one.target)


def searched(request: SearchRequest, database: Path, *, spread: bool) -> tuple[Outcome, list[Trial]]:
    with Store(database) as store, open_setup("sim:k40c", request) as setup:
        pool = BackwardPool(setup.measurer)
        plan = plan_search(request, Catalog.load(), setup)
        outcome = Session(
            plan, replace(setup, pool=pool if spread else None), store, CallbackListener()
        ).run()
        assert (pool.lists > 0) == spread
        assert outcome.run is not None
        return outcome, [trial for trial, _ in store.trials(outcome.run, plan.conditions.names)]


def test_each_trial_is_stored_once_in_the_order_of_its_end(tmp_path: Path) -> None:
    """All trials of the space are stored once, however they end; the default trial is the first."""
    alone, in_order = searched(REQUEST, tmp_path / "alone.db", spread=False)
    outcome, stored = searched(REQUEST, tmp_path / "pool.db", spread=True)
    assert outcome.status is RunStatus.FINISHED
    assert stored != in_order
    assert stored[0] == in_order[0]
    assert len(stored) == len(set(stored))
    assert set(stored) == set(in_order)
    assert alone.answer is not None
    assert outcome.answer is not None


def test_budget_ends_a_list(tmp_path: Path) -> None:
    """A budget is kept to the trial, also where trials are handed out ahead."""
    outcome, stored = searched(replace(REQUEST, budget=5), tmp_path / "pool.db", spread=True)
    assert outcome.status is RunStatus.LIMITED
    assert len(stored) == 5
