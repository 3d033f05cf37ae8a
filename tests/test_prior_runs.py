"""What a run learns from earlier runs in the database."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from tuning_runs import REQUEST, tune

from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.model.objective import Objective
from tuner.model.records import PROTOCOL
from tuner.recordings.files import write
from tuner.search import plan as knowledge_module
from tuner.search.plan import knowledge, plan_search
from tuner.search.replaying import stored_space
from tuner.search.request import SearchRequest
from tuner.search.setup import open_setup
from tuner.space.search_view import PriorRun

SHORT = replace(
    REQUEST, policy="analytical", objective="time"
)  # two trials: the default and the analytical answer
TX1, K40C, K20C = "sim:jetson-tx1", "sim:k40c", "sim:k20c"


class Begun:
    """A run that has begun, and may ask what it knows whenever it likes."""

    def __init__(self, store: Store, request: SearchRequest = SHORT, spec: str = TX1) -> None:
        with ExitStack() as stack:
            setup = stack.enter_context(open_setup(spec, request))
            self._plan = plan_search(request, Catalog.load(), setup)
            self._run = store.begin(self._plan.conditions)
        self._store = store

    def known(self) -> tuple[PriorRun, ...]:
        """What it knows."""
        return knowledge(self._plan, self._store, self._run, self._plan.request.objective)


def sizes(known: tuple[PriorRun, ...]) -> list[object]:
    """The N of what is known, in order."""
    return [one.sizes["N"] for one in known]


def of(size: int, **changed: object) -> SearchRequest:
    """A short run of one scan."""
    return replace(SHORT, workloads=(f"scan-lf:N={size}",), **changed)  # type: ignore[arg-type]


def test_other_sizes_on_this_gpu_are_known_newest_first(store: Store) -> None:
    """Runs of the kernel at other sizes come with every trial's configuration and cost; its own do not."""
    outcomes = [tune(of(size), store, spec=TX1) for size in (2, 4, 8)]

    known = Begun(store, of(4)).known()

    assert sizes(known) == [8, 2]
    expected = {
        trial.configurations[0]: Objective("time").cost(measurement)
        for trial, measurement in outcomes[2].trials
    }
    assert [configuration for configuration, _ in known[0].points] == sorted(
        expected, key=expected.__getitem__
    )
    assert known[0].workload == 0
    assert "Jetson TX1" in known[0].device


def test_the_nearest_sizes_are_known_first(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many runs those of near sizes at near batches are taken, the nearest first, whatever is newer."""
    monkeypatch.setattr(knowledge_module, "RUNS", 2)
    for workload in ("scan-lf:N=16", "scan-lf:N=2", "scan-lf:N=4,batch=64"):
        tune(replace(SHORT, workloads=(workload,)), store, spec=TX1)

    assert sizes(Begun(store, of(8)).known()) == [16, 2]


def test_another_gpu_tells_of_the_same_workload_only(store: Store) -> None:
    """A size is carried over on one GPU, a GPU at one size; never both at once."""
    tune(of(4), store, spec=K40C)
    tune(of(8), store, spec=K40C)

    (known,) = Begun(store, of(4), K20C).known()

    assert known.sizes["N"] == 4
    assert "K40c" in known.device


def test_a_gpu_of_another_compute_capability_tells_nothing(store: Store) -> None:
    """What is best there is often slow here, and costs a search more trials than knowing nothing."""
    tune(of(4), store, spec=K40C)

    assert Begun(store, of(4), TX1).known() == ()


@pytest.mark.parametrize(
    "other",
    [
        of(8, objective="energy"),
        of(8, clocks="all"),
        replace(SHORT, workloads=("scan-ks:N=8",)),
        replace(SHORT, workloads=("scan-lf:N=8", "scan-lf:N=16")),
        of(8, budget=1),
    ],
    ids=["other objective", "other clocks", "other kernel", "a co-run", "unfinished"],
)
def test_what_is_not_comparable_is_not_known(store: Store, other: SearchRequest) -> None:
    """Costs of other objectives, clocks, kernels, co-runs and unfinished runs are left alone."""
    tune(other, store, spec=TX1)

    assert Begun(store, of(4)).known() == ()


def test_a_co_run_knows_what_its_workloads_cost_alone(store: Store) -> None:
    """Of the same workload on the same GPU; a run of one workload does not learn from itself."""
    tune(of(4), store, spec=TX1)
    together = replace(SHORT, workloads=("scan-lf:N=4", "fft:N=4"))

    (known,) = Begun(store, together).known()

    assert (known.workload, known.sizes["N"]) == (0, 4)
    assert "Jetson TX1" in known.device
    assert Begun(store, of(4)).known() == ()


def test_a_recording_does_not_hear_of_the_runs_it_was_made_of(store: Store, tmp_path: Path) -> None:
    """A replay learns from replays of other sizes, never from runs; nor does a run learn from a replay."""
    for size in (4, 8):
        tune(of(size), store, spec=TX1)
    spaces = [stored_space(store, Catalog.load(), run_id).space for run_id in (1, 2)]
    write(tmp_path / "scan.zip", spaces)
    replayed = f"replay:{tmp_path / 'scan.zip'}"
    again = [replace(one, provenance={**one.provenance, "date": "2000-01-01"}) for one in spaces]
    write(tmp_path / "again.zip", again)

    assert Begun(store, of(4), replayed).known() == ()

    tune(of(8), store, spec=replayed)
    tune(of(4), store, spec=f"replay:{tmp_path / 'again.zip'}")

    assert sizes(Begun(store, of(4), replayed).known()) == [8]
    assert [one.sizes["N"] for one in Begun(store, of(2)).known()] == [4, 8]


def test_replays_of_near_sizes_are_known_first(store: Store, tmp_path: Path) -> None:
    """Sizes that names leave out, as scans leave out their type, set no two sizes of a recording apart."""
    workloads = ("scan-lf:N=8", "scan-lf:N=16,batch=64", "scan-lf:N=2")
    requests = [replace(SHORT, workloads=(workload,)) for workload in workloads]
    for request in requests:
        tune(request, store, spec=TX1)
    spaces = [stored_space(store, Catalog.load(), run_id).space for run_id in (1, 2, 3)]
    write(tmp_path / "scan.zip", spaces)
    replayed = f"replay:{tmp_path / 'scan.zip'}"
    for size in (16, 2):
        tune(of(size), store, spec=replayed)

    assert sizes(Begun(store, of(8), replayed).known()) == [16, 2]


@pytest.mark.parametrize(
    ("was", "stored"),
    [
        ('"scan-lf":"', '"scan-lf":"0'),
        (f'"protocol":{PROTOCOL}', '"protocol":0'),
        ('"modelled":true', '"modelled":false'),
    ],
    ids=["sources", "protocol", "modelled"],
)
def test_what_was_measured_of_other_sources_or_otherwise_is_not_known(
    store: Store, was: str, stored: str
) -> None:
    """Runs of other sources, of an earlier way of measuring, or of a real GPU are left alone."""
    tune(of(8), store, spec=TX1)
    store.database.write(
        lambda change: change.execute("UPDATE runs SET conditions = replace(conditions, ?, ?)", (was, stored))
    )

    assert Begun(store, of(4)).known() == ()


def test_a_run_knows_what_it_knew_when_it_began(store: Store) -> None:
    """What finishes afterwards changes nothing: a resumed run goes the same way."""
    tune(of(2), store, spec=TX1)
    begun = Begun(store, of(4))
    before = begun.known()
    tune(of(8), store, spec=TX1)

    assert begun.known() == before
    assert sizes(before) == [2]
    assert sizes(Begun(store, of(4)).known()) == [8, 2]


def test_a_full_database_is_read_in_part(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest runs, and of each so many points from the cheapest on."""
    monkeypatch.setattr(knowledge_module, "RUNS", 1)
    monkeypatch.setattr(knowledge_module, "POINTS", 3)
    tune(of(2), store, spec=TX1)
    outcome = tune(of(8, policy="hill-climbing"), store, spec=TX1)

    (known,) = Begun(store, of(4)).known()

    costs = sorted(Objective("time").cost(measurement) for _, measurement in store.trials(2, ["scan-lf:N=8"]))
    assert len(outcome.trials) > 3
    assert [cost for _, cost in known.points] == [costs[i * len(costs) // 3] for i in range(3)]
