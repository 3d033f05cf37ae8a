"""A pool: who may measure, trials that are lost, and numbers of other GPUs as those of home."""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import dask
import pytest
from click.testing import CliRunner
from fake_pool import FACTS, IDENTITY, FakeWorker, FakeWorkers, facts, taking, trial

from tuner.cli.main import main
from tuner.kernel_files.source_folder import PackageBuild, own_build
from tuner.measurement.base import ComparisonTarget, PlannedTrial, ReferenceTrial
from tuner.model.errors import (
    DeviceUnavailableError,
    InputError,
    PoolError,
    PoolLostError,
    UncheckableError,
    WorkerLostError,
)
from tuner.model.objective import Objective
from tuner.model.records import measurement_from, measurement_record
from tuner.model.trial import AnchorRatio, Energy, Measurement, PoolGpu, Status, Trial, WorkloadResult
from tuner.pool.places import PoolPlace, check_scheduler_address, parse_place
from tuner.pool.pool import HOME_BACK_S, Pool
from tuner.pool.scaling import measured_on, ratio_of, scaled
from tuner.pool.schedulers import allocated_gpus
from tuner.pool.worker import (
    SetupOrder,
    WorkOrder,
    ask_child,
    call_setup,
    dask_teardown,
    describe_setup,
    serve,
    stop_setup,
)
from tuner.pool.worker_calls import Workers, open_workers
from tuner.search.request import SearchRequest

DEFAULT = trial(100)
TRIALS = [trial(number) for number in range(1, 9)]


def opened(workers: FakeWorkers, preferred: Sequence[str] = (), *, home_back_s: float = HOME_BACK_S) -> Pool:
    order = SetupOrder("run", SearchRequest())
    pool = Pool(workers, order, lambda _: None, home_back_s=home_back_s)  # type: ignore[arg-type]  # a fake
    pool.open(preferred)
    return pool


def measured(
    pool: Pool, trials: Sequence[Trial] = TRIALS, *, rival: bool = True
) -> list[tuple[Trial, Measurement]]:
    anchor = ReferenceTrial(DEFAULT, (), pool.at_home("measurer", "measure", DEFAULT, (), None))
    best = (DEFAULT, anchor.measurement) if rival else None
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


def test_without_a_valid_trial_a_gpu_hears_of_the_objective() -> None:
    """It is told what for a trial is measured, whether there is one to hold it against or not."""
    crew = [FakeWorker(facts(0)), FakeWorker(facts(1))]
    measured(opened(FakeWorkers(*crew)), rival=False)
    assert [one.targets[-1] for one in crew] == [ComparisonTarget(Objective("time"), None, 1)] * 2


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


# --- workers that are frozen, calls that hang and schedulers that are silent: played, with Dask's answers


TOLD = {"nthreads": 1, "resources": {"GPU": 1}}


class PlayedTask:
    """A future of Dask that never ends."""

    cancelled = False

    def add_done_callback(self, _: Callable[[Any], None]) -> None:
        """It is never called."""

    def cancel(self) -> None:
        self.cancelled = True


class PlayedScheduler:
    """A client of Dask and its scheduler, in a time of their own: every question takes a second.

    Attributes:
        now_s: the time.
        last_seen: heartbeats of the workers, by address.
        frozen: addresses whose heartbeats stay away, and who answer no call.
        silent: the scheduler gives no answer.
        restarted: addresses of the workers that were ordered to be started anew.
        builds: what workers of another package tell of themselves.
    """

    status = "running"
    id = "driver"

    def __init__(self, *addresses: str) -> None:
        self.now_s = 0.0
        self.last_seen = dict.fromkeys(addresses, 0.0)
        self.frozen: set[str] = set()
        self.silent = False
        self.tasks: list[PlayedTask] = []
        self.restarted: list[str] = []
        self.builds: dict[str, Any] = {}
        self.scheduler = self

    def identity(self, n_workers: int) -> dict[str, Any]:
        assert n_workers < 0
        for address in self.last_seen.keys() - self.frozen:
            self.last_seen[address] = self.now_s
        return {"workers": {one: {**TOLD, "last_seen": at} for one, at in self.last_seen.items()}}

    def sync(self, function: Callable[..., Any], *, callback_timeout: float, **words: Any) -> Any:
        if self.silent:
            self.now_s += callback_timeout
            raise TimeoutError
        self.now_s += 1.0
        return function(**words)

    def submit(self, *_: object, **__: object) -> PlayedTask:
        self.tasks.append(PlayedTask())
        return self.tasks[-1]

    def run(self, _: object, *, workers: list[str], on_error: str) -> dict[str, Any]:
        (address,) = workers
        if on_error == "ignore":  # what all are told
            return Future[dict[str, Any]]().result() if address in self.frozen else {}  # for ever
        return {address: self.builds.get(address, ("node", tuple(own_build())))}

    def restart_workers(self, workers: list[str], **_: object) -> None:
        self.restarted += workers


def leasing(*addresses: str) -> tuple[Workers, PlayedScheduler]:
    played = PlayedScheduler(*addresses)
    workers = Workers(played, clock=lambda: played.now_s)  # type: ignore[arg-type]  # a fake
    while len(workers.present) < len(addresses):
        workers.refresh()
    return workers, played


def given(workers: Workers, answer: "Future[Any]") -> Any:
    """What a call gives; looks are made without a pause."""
    while not answer.done():
        workers.refresh()
    return answer.result()


def test_frozen_worker_is_lost() -> None:
    """Who sends no heartbeat for a minute is lost with its calls, and once started anew."""
    workers, played = leasing("tls://a", "tls://b")
    played.frozen = {"tls://a"}
    begun_s = played.now_s
    answer, other = workers.submit(len, worker="tls://a"), workers.submit(len, worker="tls://b")
    with pytest.raises(WorkerLostError, match="tls://a is lost"):
        given(workers, answer)
    assert 60.0 <= played.now_s - begun_s <= 70.0
    assert not other.done()
    assert list(workers.present) == ["tls://b"]
    assert "has not answered for 60 s" in workers.left_out["tls://a"]
    workers.refresh()
    assert [task.cancelled for task in played.tasks] == [True, False]
    assert played.restarted == ["tls://a"]


def test_frozen_worker_of_others_is_left_alone() -> None:
    """A worker that this process never called measures for another run: it is left out, not killed."""
    workers, played = leasing("tls://a")
    played.frozen = {"tls://a"}
    for _ in range(90):
        workers.refresh()
    assert not workers.present
    assert played.restarted == []


def test_worker_that_thaws_is_there_again() -> None:
    """A heartbeat after the silence is enough."""
    workers, played = leasing("tls://a")
    played.frozen = {"tls://a"}
    while workers.present:
        workers.refresh()
    played.frozen = set()
    workers.refresh()
    assert list(workers.present) == ["tls://a"]


def test_a_driver_that_was_frozen_loses_nobody() -> None:
    """Time in which nobody looked counts neither as silence nor against a lease."""
    workers, played = leasing("tls://a")
    answer = workers.submit(len, worker="tls://a", lease_s=100.0)
    played.frozen = {"tls://a"}  # what it sends waits in the socket
    played.now_s += 3600.0
    workers.refresh()
    played.frozen = set()
    workers.refresh()
    assert not answer.done()
    assert list(workers.present) == ["tls://a"]


def test_call_that_hangs_is_lost_with_its_worker() -> None:
    """A call that outlasts its lease is lost, though its process sends heartbeats."""
    workers, played = leasing("tls://a")
    begun_s = played.now_s
    answer = workers.submit(len, worker="tls://a", lease_s=50.0)
    with pytest.raises(WorkerLostError, match="tls://a gave no answer in 50 s"):
        given(workers, answer)
    assert 50.0 <= played.now_s - begun_s <= 60.0
    assert played.restarted == ["tls://a"]


def test_scheduler_that_is_frozen_is_lost() -> None:
    """A scheduler that gives no answer ends the run, and keeps nobody who closes."""
    workers, played = leasing("tls://a")
    played.silent, begun_s = True, played.now_s
    with pytest.raises(PoolLostError, match="does not answer any more"):
        workers.refresh()
    assert played.now_s - begun_s < 60.0
    played.frozen = {"tls://a"}
    workers.run_everywhere(print)


def test_closing_waits_for_nobody_that_is_frozen() -> None:
    """All are told to end; those that have not answered for three seconds are not waited for."""
    workers, played = leasing("tls://a", "tls://b")
    played.frozen, begun_s = {"tls://b"}, played.now_s
    workers.run_everywhere(print)
    assert played.now_s - begun_s < 10.0


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (("node7", ("0.1.9", 3, "")), r"host node7: it has tuner 0\.1\.9 \(content unknown, protocol 3\)"),
        (("node7", (*own_build()[:2], "0" * 64)), "host node7: it has tuner .*content 000000000000"),
        (ImportError("no module named 'tuner.kernel_files.source_folder'"), "it has an older tuner"),
        (AttributeError("no attribute"), "it has an older tuner"),
    ],
)
def test_worker_of_another_package_is_left_out(told: object, words: str) -> None:
    """Another version, or the same with other content, measures nothing; both are named with what to do."""
    played = PlayedScheduler("tls://a", "tls://b")
    played.builds = {"tls://a": told}
    workers = Workers(played)  # type: ignore[arg-type]  # a fake
    while not workers.present or not workers.left_out:
        workers.refresh()
    assert list(workers.present) == ["tls://b"]
    assert re.match(words, workers.left_out["tls://a"])
    assert "install the same package on both hosts" in workers.left_out["tls://a"]


# --- what --on may name, and what is refused before anything is started ----------------------------


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("local", PoolPlace("local")),
        ("local:4", PoolPlace("local", 4)),
        ("dask://node7:8786", PoolPlace("dask", host="node7", port=8786)),
        ("dask://[::1]:8786", PoolPlace("dask", host="::1", port=8786)),
        ("slurm", PoolPlace("slurm")),
    ],
)
def test_places(text: str, place: PoolPlace) -> None:
    """Each form of --on is read."""
    assert parse_place(text) == place


@pytest.mark.parametrize(
    "text",
    ["", "local:0", "local:-1", "local:x", "dask://node7", "dask://node7:99999", "tcp://a:1", "slurm:2"],
)
def test_other_places_are_refused(text: str) -> None:
    """Anything else is an error that names the option."""
    with pytest.raises(InputError, match="--on"):
        parse_place(text)


@pytest.mark.parametrize("host", ["192.0.2.7", "127.0.0.1", "localhost", "[::1]"])
def test_scheduler_needs_certificates(host: str) -> None:
    """Without certificates no scheduler is talked to, on this host neither: its other users reach it."""
    with pytest.raises(InputError, match=r"TLS is required.*ca-file"), open_workers(f"dask://{host}:8786"):
        pass


def test_worker_needs_certificates() -> None:
    """A worker connects with TLS only, and says which key of Dask's configuration is missing."""
    check_scheduler_address("tls://192.0.2.7:8786")
    for address in ("tcp://192.0.2.7:8786", "tcp://127.0.0.1:8786", "192.0.2.7:8786", "http://127.0.0.1:1"):
        with pytest.raises(InputError):
            check_scheduler_address(address)
    refused = CliRunner().invoke(main, ["worker", "tcp://localhost:8786"])
    assert refused.exit_code == 2
    assert "TLS is required" in refused.output
    assert "write tls://localhost:8786" in refused.output
    with (
        dask.config.set({"distributed.comm.tls": {"ca-file": "ca.pem"}}),
        pytest.raises(InputError, match=r"tuner worker: TLS is required.*worker\.cert"),
    ):
        serve("tls://127.0.0.1:8786")


@pytest.mark.parametrize(
    ("variables", "gpus"),
    [
        ({"SLURM_GPUS": "8"}, 8),
        ({"SLURM_GPUS": "h100:8"}, 8),
        ({"SLURM_GPUS_ON_NODE": "4", "SLURM_JOB_NUM_NODES": "3"}, 12),
        ({"SLURM_NTASKS": "2"}, 2),
    ],
)
def test_allocation_tells_its_gpus(variables: dict[str, str], gpus: int) -> None:
    """There are as many workers as the allocation has GPUs, as SLURM's variables say it."""
    assert allocated_gpus("slurm", {"SLURM_JOB_ID": "7", **variables}) == gpus


def test_slurm_needs_an_allocation_with_gpus() -> None:
    """Outside of an allocation, and in one without GPUs, the message says what to do."""
    with pytest.raises(InputError, match="sbatch or salloc"):
        allocated_gpus("slurm", {})
    with pytest.raises(InputError, match="--gpus"):
        allocated_gpus("slurm", {"SLURM_JOB_ID": "7"})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--on", "cloud"], "local, local:N, dask://HOST:PORT or slurm"),
        (["--on", "local:2", "--device", "replay:h200"], "leave --on out"),
        (["--on", "local:2", "--device", "cuda:1"], "leave --device out"),
        (["--on", "local", "--device", "sim:jetson-tx1"], "local:4"),
        (["--on", "local:2", "--allow-simulated"], "--device sim:NAME"),
        (["--on", "local:2", "--balance"], "--balance"),
    ],
)
def test_options_that_cannot_be_together(tmp_path: object, arguments: list[str], words: str) -> None:
    """What a pool cannot do is refused with exit code 2, before a worker is started."""
    command = ["run", "scan-lf:N=1024", "--database", f"{tmp_path}/a.db", *arguments]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 2
    assert words in result.output


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Dask the message says what to install."""
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match="pip install distributed cryptography"), open_workers("local:2"):
        pass


# --- numbers of one GPU of a pool as those of its home ---------------------------------------------


def measurement(time_s: float, joules: float, *, joules_u: float = 0.0, time_u: float = 0.0) -> Measurement:
    return Measurement(
        (WorkloadResult(Status.OK, time_s, 0.01 * time_s, restore_s=0.1 * time_s),),
        makespan_s=time_s,
        makespan_spread_s=0.01 * time_s,
        makespan_uncertainty_s=time_u,
        energy=Energy(joules, joules_u, joules / time_s, "counter", "gpu", idle_watts=40.0),
        window_s=0.5,
        energy_total_j=70.0,
    )


HOME, OTHER = measurement(1.0e-3, 0.30), measurement(1.25e-3, 0.36)


def test_ratio_makes_an_anchor_that_of_home() -> None:
    """The anchor of another GPU has the times, joules and watts of home's, once it is scaled."""
    found = scaled(OTHER, ratio_of(HOME, OTHER))
    assert found.makespan_s == pytest.approx(HOME.makespan_s)
    assert found.results[0].time_s == pytest.approx(HOME.results[0].time_s)
    assert found.results[0].restore_s == pytest.approx(HOME.results[0].restore_s)
    assert found.energy is not None
    assert HOME.energy is not None
    assert found.energy.joules == pytest.approx(HOME.energy.joules)
    assert found.energy.watts == pytest.approx(HOME.energy.watts)


def test_what_a_trial_cost_is_not_scaled() -> None:
    """Window and joules that a GPU spent stay as they were."""
    found = scaled(OTHER, ratio_of(HOME, OTHER))
    assert (found.window_s, found.energy_total_j) == (OTHER.window_s, OTHER.energy_total_j)


def test_uncertainties_of_both_anchors_are_in_a_trial() -> None:
    """A trial has the ratio's uncertainty beside its own: both anchors', and how they repeat."""
    ratio = ratio_of(measurement(1.0, 1.0, joules_u=0.03, time_u=0.003), measurement(1.0, 1.0, time_u=0.004))
    assert ratio.time_uncertainty == pytest.approx((0.005**2 + 2 * 0.002**2) ** 0.5)
    assert ratio.energy_uncertainty == pytest.approx((0.03**2 + 2 * 0.004**2) ** 0.5)
    found = scaled(measurement(2.0, 5.0), ratio)
    assert found.energy is not None
    assert found.makespan_uncertainty_s == pytest.approx(2.0 * ratio.time_uncertainty)
    assert found.energy.uncertainty_j == pytest.approx(5.0 * ratio.energy_uncertainty)


def test_inverse_ratio_leads_back() -> None:
    """Home's numbers as another GPU's, and back, are home's."""
    ratio = AnchorRatio(0.8, 0.0, 0.9, 0.0)
    assert scaled(scaled(HOME, ratio.inverse), ratio).makespan_s == pytest.approx(HOME.makespan_s)


def test_anchor_without_an_energy_scales_times_alone() -> None:
    """Where no joules are measured, only times have a ratio."""
    ratio = ratio_of(replace(HOME, energy=None), replace(OTHER, energy=None))
    assert ratio.time == pytest.approx(0.8)
    assert ratio.energy == 1.0


def test_record_keeps_the_gpu_of_a_trial() -> None:
    """Host, GPU, driver and ratio are in the record of a measurement; without a pool nothing is."""
    gpu = PoolGpu("node7", "GPU-1", "560.1", ratio_of(HOME, OTHER))
    noted = measured_on(OTHER, gpu)
    assert noted.scaled
    assert measurement_record(noted)["gpu"]["host"] == "node7"
    assert measurement_from(measurement_record(noted)) == noted
    assert "gpu" not in measurement_record(OTHER)
    assert not replace(OTHER, gpu=PoolGpu("node7", "GPU-1", "560.1")).scaled


# --- what a worker of a pool holds, in this process: one setup, of one run at a time ---------------


FIRST, SECOND = (
    SetupOrder(name, SearchRequest(objective="time"), "sim:jetson-tx1") for name in ("first", "second")
)


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """This process is no worker afterwards."""
    yield
    dask_teardown(None)


def test_worker_measures_for_one_run_at_a_time() -> None:
    """A worker that another living run has is refused; that of a run that has died is taken over."""
    describe_setup(FIRST, ())
    with pytest.raises(PoolError, match="another run"):
        describe_setup(SECOND, ("first", "second"))
    assert describe_setup(SECOND, ("second",)).value.identity.spec == "sim:jetson-tx1"
    with pytest.raises(PoolError, match="another run"):
        call_setup(FIRST, "device", "now_s")


@pytest.mark.parametrize(
    "build", [PackageBuild("0.1.9", 3, ""), own_build()._replace(content="0" * 64), None]
)
def test_worker_refuses_a_driver_of_another_package(build: PackageBuild | None) -> None:
    """A driver of other content, or that tells none, has nothing measured; both builds are named."""
    order = replace(FIRST)
    vars(order).pop("build") if build is None else vars(order).update(build=build)
    order_of_sweep = WorkOrder("sweep")
    vars(order_of_sweep).update(build=build)
    for call in (
        lambda: describe_setup(order, ()),
        lambda: call_setup(order, "device", "now_s"),
        lambda: ask_child(order_of_sweep, (), ("pathlib:Path", "/"), "joinpath", "a"),
    ):
        with pytest.raises(PoolError, match=r"it has .*, and this is .*install the same package") as refused:
            call()
        assert str(build or "an older tuner") in str(refused.value)
        assert str(own_build()) in str(refused.value)


def test_setup_that_was_given_back_is_opened_again() -> None:
    """A call opens the setup anew, where it was closed; its virtual clock goes on."""
    before = call_setup(FIRST, "device", "sleep", 5.0)
    stop_setup("second")  # of another run: nothing happens
    assert call_setup(FIRST, "device", "now_s").setup == before.setup
    stop_setup("first")
    after = call_setup(FIRST, "device", "now_s")
    assert after.setup == before.setup + 1
    assert after.value >= before.totals.now_s >= 5.0
