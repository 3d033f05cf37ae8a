"""Runs with trials in a database, written without a device."""

from pathlib import Path

from answering_scene import conditions, document, first_values

from tuner.database.connection import Database
from tuner.database.ledger import Ledger
from tuner.database.runs import Store
from tuner.model.records import RunStatus
from tuner.model.run_document import SampleDocument
from tuner.model.trial import Energy, Measurement, Status, Trial, WorkloadResult

NAME = "scan-lf:N=4"


def measured(joules: float, *, status: Status = Status.OK, repeats: int = 1, detail: str = "") -> Measurement:
    """One workload that took 10 ms."""
    ok = status is Status.OK
    return Measurement(
        results=(WorkloadResult(status, 0.01 if ok else None, detail=detail),),
        makespan_s=0.01 if ok else None,
        makespan_uncertainty_s=1e-5,
        repeats=repeats,
        energy=Energy(joules, 0.01 * joules, 100 * joules, "simulated", "gpu") if ok else None,
        modelled=True,
    )


def store_trials(path: Path, count: int, *, job: int | None = None, ended: bool = False) -> int:
    """Store a run whose first trial was confirmed and whose last has failed; returns its number."""
    with Store(path, job=job) as store:
        run = store.begin(conditions([NAME]))
        for number, configuration in enumerate(first_values(NAME)[:count], start=1):
            failed = measured(0.0, status=Status.WRONG_ANSWER, detail="<b>off by 3</b>")
            measurement = failed if number == count else measured(1.0 / number)
            store.add(run, number, Trial((configuration,)), measurement, [NAME])
        store.confirm(run, {1: measured(0.9, repeats=3)})
        if ended:
            store.end(run, RunStatus.FINISHED, document([NAME]))
    return run


def store_sample(path: Path, run: int, verdict: str) -> None:
    """Store what measuring the answer of a run again has given."""
    document: SampleDocument = {
        "verdict": verdict,
        "told": f"it is {verdict}",
        "cost": 1.2,
        "expected": 1.0,
        "interval": 0.1,
        "unit": "J",
    }
    with Database(path) as database:
        Ledger(database).add_sample(run, document)
