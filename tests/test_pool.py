"""A pool: who may measure, trials that are lost, and numbers of other GPUs as those of home."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from fake_pool import FACTS, IDENTITY, FakeWorker, FakeWorkers, facts, taking, trial

from tuner.measurement.base import ComparisonTarget, PlannedTrial, ReferenceTrial
from tuner.model.errors import DeviceUnavailableError, InputError, PoolLostError, UncheckableError
from tuner.model.objective import Objective
from tuner.model.trial import Measurement, Status, Trial, WorkloadResult
from tuner.pool.pool import HOME_BACK_S, Pool
from tuner.pool.worker import SetupOrder
from tuner.search.request import SearchRequest

DEFAULT = trial(100)
TRIALS = [trial(number) for number in range(1, 9)]


def opened(workers: FakeWorkers, preferred: Sequence[str] = (), *, home_back_s: float = HOME_BACK_S) -> Pool:
    order = SetupOrder("run", SearchRequest())
    pool = Pool(workers, order, lambda _: None, home_back_s=home_back_s)  # type: ignore[arg-type]  # a fake
    pool.open(preferred)
    return pool


def measured(pool: Pool, trials: Sequence[Trial] = TRIALS) -> list[tuple[Trial, Measurement]]:
    anchor = ReferenceTrial(DEFAULT, (), pool.at_home("measurer", "measure", DEFAULT, (), None))
    best = (DEFAULT, anchor.measurement)
    planned = (PlannedTrial(one, (), ComparisonTarget(Objective("time"), best, 1)) for one in trials)
    return list(pool.measure_all(planned, anchor))


def test_every_trial_is_measured_once() -> None:
    """All GPUs take part, and each trial is handed out once."""
    crew = [FakeWorker(facts(number)) for number in range(3)]
    ended = measured(opened(FakeWorkers(*crew)))
    assert sorted(one.configurations[0]["L"] for one, _ in ended) == list(range(1, 9))
    assert all(set(worker.measured) - {DEFAULT} for worker in crew)


def test_numbers_of_a_slower_gpu_are_those_of_home() -> None:
    """Times of a GPU that takes twice as long for the anchor are halved; GPU and ratio are noted."""
    crew = [FakeWorker(facts(0)), FakeWorker(facts(1), slowness=2.0)]
    ended = dict(measured(opened(FakeWorkers(*crew))))
    (one, *_) = [one for one in crew[1].measured if one != DEFAULT]
    assert ended[one].makespan_s == pytest.approx(one.configurations[0]["L"])
    gpu = ended[one].gpu
    assert gpu is not None
    assert (gpu.host, gpu.uuid, gpu.driver, gpu.ratio.time) == ("node", "GPU-1", "560.1", 0.5)
    assert not ended[crew[0].measured[-1]].scaled


def test_contest_is_in_the_units_of_the_gpu() -> None:
    """A trial on a GPU half as fast is held against twice the best time of home."""
    crew = [FakeWorker(facts(0)), FakeWorker(facts(1), slowness=2.0)]
    measured(opened(FakeWorkers(*crew)))
    target = crew[1].targets[-1]
    assert target is not None
    assert target.best is not None
    assert target.best[1].makespan_s == pytest.approx(200.0)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (facts(1, driver="550.2"), "driver 550.2, not 560.1"),
        (facts(1, name="H200"), "GPU H200, not H100"),
        (facts(1, runtime="13.0"), "CUDA 13.0, not 12.9"),
        (replace(facts(1), sensor="nvml"), "sensor nvml, not None"),
        (facts(0), "the same GPU (GPU-0)"),
        (DeviceUnavailableError("cuda:0: no driver"), "no driver"),
    ],
)
def test_worker_of_another_kind_is_refused(other: object, words: str) -> None:
    """Another driver or GPU, or the same GPU again, measures nothing, and the user is told why."""
    crew = [FakeWorker(facts(0)), FakeWorker(other)]  # type: ignore[arg-type]  # facts or an error
    pool = opened(FakeWorkers(*crew))
    assert pool.parallel == 1
    assert any(words in sentence for sentence in pool.crew.told)
    assert len(measured(pool)) == len(TRIALS)
    assert crew[1].measured == []


def test_simulated_gpus_may_be_alike() -> None:
    """Simulated devices have one UUID, and are as many as there are workers."""
    modelled = replace(FACTS, identity=replace(IDENTITY, uuid="sim:x", spec="sim:x", modelled=True))
    assert opened(FakeWorkers(FakeWorker(modelled), FakeWorker(modelled))).parallel == 2


def test_no_worker_can_measure() -> None:
    """Where all fail to open, the reason of the first is raised."""
    with pytest.raises(InputError, match="--window"):
        opened(FakeWorkers(FakeWorker(InputError("--window 0.1: too short"))))


def test_gpu_of_an_unfinished_run_becomes_home() -> None:
    """A run that is resumed is confirmed on the GPU that it is bound to, where that is in the pool."""
    crew = [FakeWorker(facts(number)) for number in range(3)]
    assert opened(FakeWorkers(*crew), ["GPU-9", "GPU-2"]).crew.home.known.identity.uuid == "GPU-2"


def test_trial_of_a_lost_worker_is_measured_by_another() -> None:
    """A worker that is lost costs no trial, and its replacement takes part."""
    workers = FakeWorkers(FakeWorker(facts(0)), FakeWorker(facts(1), dies_at=TRIALS[2]))
    born: list[FakeWorker] = []

    def replacement(dead: FakeWorker) -> FakeWorker:
        born.append(FakeWorker(dead.facts))
        return born[-1]

    workers.replacement = replacement
    ended = measured(opened(workers))
    assert sorted(one.configurations[0]["L"] for one, _ in ended) == list(range(1, 9))
    assert all(measurement.ok for _, measurement in ended)
    assert born[0].measured[0] == DEFAULT  # its anchor


def test_trial_that_kills_workers_is_given_up() -> None:
    """After three workers a trial has crashed; all others are measured."""
    workers = FakeWorkers(*(FakeWorker(facts(number), dies_at=TRIALS[2]) for number in range(2)))
    workers.replacement = lambda dead: replace(dead, measured=[], targets=[])
    ended = dict(measured(opened(workers)))
    assert ended.pop(TRIALS[2]).status is Status.CRASHED
    assert len(ended) == len(TRIALS) - 1


def test_gpu_that_fails_measures_no_more() -> None:
    """An error of another GPU than home costs that GPU, not the run."""
    broken = FakeWorker(facts(1))
    pool = opened(FakeWorkers(FakeWorker(facts(0)), broken))
    broken.fails = DeviceUnavailableError("fell off the bus")
    assert len(measured(pool)) == len(TRIALS)
    assert any("fell off the bus" in sentence for sentence in pool.crew.told)


def test_error_of_home_names_its_host() -> None:
    """A file that home's host lacks is told with host and path, and ends the run."""
    worker = FakeWorker(facts(0))
    pool = opened(FakeWorkers(worker))
    anchor = ReferenceTrial(DEFAULT, (), taking(100.0))
    worker.fails = UncheckableError("input of 'a': /data/a.npy: cannot be read: No such file or directory")
    told = "host node: input of 'a': /data/a.npy: cannot be read.*; files do not travel"
    with pytest.raises(UncheckableError, match=told):
        pool.at_home("measurer", "measure", DEFAULT, (), None)
    with pytest.raises(UncheckableError, match=told):
        list(pool.measure_all(iter([PlannedTrial(TRIALS[0], ())]), anchor))


def test_worker_that_goes_while_home_measures_alone_is_told() -> None:
    """Who is lost with nothing to do is lost just the same, and so is who goes before the pool closes."""
    workers = FakeWorkers(*(FakeWorker(facts(number)) for number in range(3)))
    pool = opened(workers)
    for address, act in (
        ("tls://1", lambda: pool.at_home("measurer", "measure", DEFAULT, (), None)),
        ("tls://2", pool.close),
    ):
        workers.kill(address)
        act()
        assert pool.crew.told[-1] == f"pool: node cuda:{address[-1]} is lost"


def test_home_that_comes_back_goes_on() -> None:
    """A call to home is made again when a worker with its GPU is back, whose clock goes on where it was."""
    workers = FakeWorkers(FakeWorker(facts(0), dies_at=TRIALS[0]), FakeWorker(facts(1)))
    workers.replacement = lambda dead: FakeWorker(dead.facts)
    pool = opened(workers)
    pool.at_home("measurer", "measure", DEFAULT, (), None)
    pool.at_home("measurer", "measure", TRIALS[1], (), None)
    assert pool.at_home("measurer", "measure", TRIALS[0], (), None) == taking(1.0)
    (home,) = [one for address, one in workers.crew.items() if address == pool.crew.home.worker.address]
    assert home.clock_s == 2.0
    assert pool.crew.home.known.identity.uuid == "GPU-0"


def test_home_that_stays_away_ends_the_run() -> None:
    """Where home does not come back, the run is interrupted: no other GPU confirms for it."""
    workers = FakeWorkers(FakeWorker(facts(0), dies_at=TRIALS[0]), FakeWorker(facts(1)))
    pool = opened(workers, home_back_s=0.0)
    with pytest.raises(PoolLostError, match="cuda:0"):
        pool.at_home("measurer", "measure", TRIALS[0], (), None)


def test_scheduler_that_vanishes_ends_the_run() -> None:
    """A lost scheduler interrupts the run, while trials are spread and while contenders are confirmed."""
    workers = FakeWorkers(FakeWorker(facts(0)), FakeWorker(facts(1)))
    pool = opened(workers)
    anchor = ReferenceTrial(DEFAULT, (), taking(100.0))
    spread = pool.measure_all((PlannedTrial(one, ()) for one in TRIALS), anchor)
    next(spread)
    workers.scheduler_lost = True
    with pytest.raises(PoolLostError):
        list(spread)
    with pytest.raises(PoolLostError):
        pool.at_home("measurer", "measure", TRIALS[0], (), None)


def test_anchor_that_fails_refuses_the_gpu() -> None:
    """A GPU on which the default trial is no valid one measures nothing else."""
    crew = [FakeWorker(facts(0)), FakeWorker(facts(1), slowness=float("nan"))]
    failed = Measurement((WorkloadResult(Status.WRONG_ANSWER, detail="error 3e-2"),))
    crew[1].measure = lambda *_: failed  # type: ignore[method-assign]
    pool = opened(FakeWorkers(*crew))
    assert len(measured(pool)) == len(TRIALS)
    assert any("wrong-answer there: error 3e-2" in sentence for sentence in pool.crew.told)
