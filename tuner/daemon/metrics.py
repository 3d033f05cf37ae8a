"""The metrics that Prometheus scrapes: counters of events, and gauges of the present state."""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    ProcessCollector,
    generate_latest,
)

from tuner.daemon.jobs.shares import UserShare
from tuner.model.jobs import ACTIVE, JobState

# Around the promised 2 ms in the median and 10 ms at the 99th percentile; a client gives up after seconds.
_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 10.0)
_GPU = ("gpu",)
_USER = ("user",)
_HZ_PER_MHZ = 1e6


@dataclass(frozen=True)
class Gauges:
    """The values of the gauges at a scrape.

    Attributes:
        jobs: jobs that have not ended, by state; states that are missing have none.
        waiting: jobs that wait, those that wait for a window, budget or GPU included.
        fresh: stored answers that hold.
        stale: stored answers whose conditions have changed, served as stale.
        followers: subscriptions to a job's events.
        troubles: how many there are, by what they concern.
    """

    jobs: Mapping[JobState, int] = field(default_factory=dict)
    waiting: int = 0
    fresh: int = 0
    stale: int = 0
    followers: int = 0
    troubles: Mapping[str, int] = field(default_factory=dict)


class Metrics:
    """Counters since the start of the daemon; a GPU is named by its UUID, a simulated one by its spec.

    Args:
        version: of this package.
    """

    def __init__(self, version: str) -> None:
        self._registry = registry = _Registry()
        ProcessCollector(registry=registry)
        self._build = Gauge("tuner_build_info", "Version of the daemon.", ("version",), registry=registry)
        self._build.labels(version).set(1)
        self._gpu = Gauge(
            "tuner_gpu_info",
            "GPUs that are tuned on; figures of a modelled one are modelled.",
            ("gpu", "device", "name", "modelled"),
            registry=registry,
        )
        self._add_gpus(registry)
        self._add_jobs(registry)
        self._add_clients(registry)
        self._add_database(registry)

    def _add_gpus(self, registry: CollectorRegistry) -> None:
        self._trials = Counter(
            "tuner_trials_total", "Trials that were stored.", ("gpu", "status"), registry=registry
        )
        self._seconds = Counter(
            "tuner_tuning_seconds_total", "Time that measuring windows took.", _GPU, registry=registry
        )
        self._joules = Counter(
            "tuner_tuning_joules_total", "Energy that tuning took, as measured.", _GPU, registry=registry
        )
        self._saved = Counter(
            "tuner_expected_saved_joules_total",
            "Expected, not metered: uses that clients told of x (default - answer) joules; asking is none.",
            _GPU,
            registry=registry,
        )
        self._saved_within = Counter(
            "tuner_expected_saved_joules_uncertainty_total",
            "Half-width of the 95 % interval of the expected saving; those of the answers add up.",
            _GPU,
            registry=registry,
        )
        self._watts = Gauge(
            "tuner_gpu_power_watts", "Of the last trial; absent while no job runs.", _GPU, registry=registry
        )
        self._hertz = Gauge(
            "tuner_gpu_clock_hertz", "In the last trial; absent while no job runs.", _GPU, registry=registry
        )
        self._not_restored = Counter(
            "tuner_clock_restore_failures_total",
            "Clocks that could not be given back at once.",
            _GPU,
            registry=registry,
        )

    def _add_jobs(self, registry: CollectorRegistry) -> None:
        self._jobs = Gauge("tuner_jobs", "Jobs that have not ended.", ("state",), registry=registry)
        self._waiting = Gauge("tuner_queue_waiting", "Jobs that wait to be taken.", registry=registry)
        self._endings = Counter(
            "tuner_job_endings_total", "Ends of attempts at jobs.", ("status",), registry=registry
        )
        self._user_waiting = Gauge(
            "tuner_user_jobs_waiting", "Jobs of a user that are queued or paused.", _USER, registry=registry
        )
        self._user_seconds = Gauge(
            "tuner_user_device_seconds",
            "Of a user's jobs on devices; after an hour, a second counts half.",
            _USER,
            registry=registry,
        )
        self._store_errors = Counter(
            "tuner_store_errors_total", "Times the database could not be used.", registry=registry
        )

        self._troubles = Gauge(
            "tuner_troubles", "What is wrong, as status tells it.", ("subject",), registry=registry
        )

    def _add_clients(self, registry: CollectorRegistry) -> None:
        self._answers = Gauge("tuner_answers", "Stored answers.", ("state",), registry=registry)
        self._followers = Gauge(
            "tuner_followers", "Clients that follow a job or everything.", registry=registry
        )
        self._best = Counter(
            "tuner_best_requests_total",
            "Requests for the best configuration, by where the answer came from.",
            ("origin",),
            registry=registry,
        )
        self._requests = Histogram(
            "tuner_request_seconds",
            "From the head of a request to that of its answer.",
            ("route", "code"),
            buckets=_BUCKETS_S,
            registry=registry,
        )

    def _add_database(self, registry: CollectorRegistry) -> None:
        self._rows_checked = Counter(
            "tuner_database_rows_checked_total",
            "Rows of the database that were verified in both files while idle.",
            registry=registry,
        )
        self._rows_repaired = Counter(
            "tuner_database_rows_repaired_total",
            "Rows of the database that one file did not have soundly, and has again.",
            registry=registry,
        )
        self._rows_isolated = Gauge(
            "tuner_database_rows_isolated",
            "Rows that neither file of the database had soundly, kept aside.",
            registry=registry,
        )
        self._database_read = Gauge(
            "tuner_database_last_full_check_timestamp_seconds",
            "When all rows had been verified, Unix time; 0 before.",
            registry=registry,
        )

    def device(self, uuid: str, spec: str, name: str, *, modelled: bool) -> None:
        """Add a GPU; its counters begin at zero, so that rates of the first event are right."""
        self._gpu.labels(uuid, spec, name, "true" if modelled else "false").set(1)
        for counter in (self._seconds, self._joules, self._saved, self._saved_within, self._not_restored):
            counter.labels(uuid)
        self._trials.labels(uuid, "ok")

    def trial(self, uuid: str, status: str) -> None:
        """Count a stored trial, with the status of its worst workload."""
        self._trials.labels(uuid, status).inc()

    def spent(self, uuid: str, seconds: float, joules: float) -> None:
        """Count the cost of an attempt."""
        self._seconds.labels(uuid).inc(max(0.0, seconds))
        self._joules.labels(uuid).inc(max(0.0, joules))

    def saved(self, uuid: str, joules: float, uncertainty_j: float) -> None:
        """Count the expected saving of uses; a worse answer saves none."""
        self._saved.labels(uuid).inc(max(0.0, joules))
        self._saved_within.labels(uuid).inc(max(0.0, uncertainty_j))

    def sensed(self, uuid: str, watts: float | None, clock_mhz: float | None) -> None:
        """Set the readings of a trial; None for what was not read."""
        hertz = None if clock_mhz is None else clock_mhz * _HZ_PER_MHZ
        for gauge, value in ((self._watts, watts), (self._hertz, hertz)):
            if value is not None:
                gauge.labels(uuid).set(value)

    def idle(self, uuid: str) -> None:
        """Remove the readings of a GPU: no job runs there any more."""
        for gauge in (self._watts, self._hertz):
            with contextlib.suppress(KeyError):  # nothing was read
                gauge.remove(uuid)

    def clock_not_restored(self, uuid: str) -> None:
        """Count a clock that could not be restored."""
        self._not_restored.labels(uuid).inc()

    def ended(self, status: str) -> None:
        """Count the end of an attempt: ``AttemptResult.status``."""
        self._endings.labels(status).inc()

    def store_error(self) -> None:
        """Count a failure of the database."""
        self._store_errors.inc()

    def shares(self, shares: Iterable[UserShare]) -> None:
        """Set what users have; there are at most twenty rows."""
        self._user_waiting.clear()
        self._user_seconds.clear()
        for one in shares:
            self._user_waiting.labels(one.user).set(one.waiting)
            self._user_seconds.labels(one.user).set(one.device_s)

    def rows_checked(self, count: int) -> None:
        """Count rows that were verified."""
        self._rows_checked.inc(count)

    def rows_repaired(self, count: int) -> None:
        """Count rows that were put right."""
        self._rows_repaired.inc(count)

    def rows_isolated(self, count: int) -> None:
        """Set how many rows are kept aside."""
        self._rows_isolated.set(count)

    def database_read(self, at: float) -> None:
        """All rows have been verified now (Unix time)."""
        self._database_read.set(at)

    def best(self, origin: str) -> None:
        """Count an answer to a client: ``Reply.origin``, or ``stale``."""
        self._best.labels(origin).inc()

    def request(self, route: str, code: int, seconds: float) -> None:
        """Count a request.

        Args:
            route: template of the path, of which there are few, and never the path that a client sent.
            code: HTTP status.
            seconds: it took.
        """
        self._requests.labels(route, str(code)).observe(seconds)

    def render(self, gauges: Gauges) -> bytes:
        """All metrics, in the text format 0.0.4 of Prometheus."""
        for state in ACTIVE:
            self._jobs.labels(state.value).set(gauges.jobs.get(state, 0))
        self._waiting.set(gauges.waiting)
        self._answers.labels("fresh").set(gauges.fresh)
        self._answers.labels("stale").set(gauges.stale)
        self._followers.set(gauges.followers)
        self._troubles.clear()
        for subject, count in gauges.troubles.items():
            self._troubles.labels(subject).set(count)
        return generate_latest(self._registry)


class _Registry(CollectorRegistry):
    """Leaves out the times at which counters began, which double the series and are of no use here."""

    def collect(self) -> Iterable[Metric]:
        for family in super().collect():
            family.samples = [one for one in family.samples if not one.name.endswith("_created")]
            yield family
