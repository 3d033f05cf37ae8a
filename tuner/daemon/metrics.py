"""The metrics that Prometheus scrapes: counters of events, and gauges of the present state."""

import contextlib
from collections import Counter as Counts
from collections.abc import Collection, Iterable, Mapping
from functools import partial

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    ProcessCollector,
    generate_latest,
)

from tuner.client.answer_values import UserDocument
from tuner.model.jobs import ACTIVE, Job, JobState

# Around the promised 2 ms in the median and 10 ms at the 99th percentile; a client gives up after seconds.
_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 10.0)
_HZ_PER_MHZ = 1e6


class Metrics:
    """Counters since the start of the daemon; a GPU is named by its UUID, a simulated one by its spec.

    Attributes:
        trials: by GPU and status of the worst workload.
        not_restored: clocks, by GPU.
        endings: of attempts, by ``AttemptResult.status``.
        best: answers to clients, by ``Reply.origin``, or ``stale``.
        database_read: Unix time.
    """

    def __init__(self, version: str) -> None:
        self._registry = registry = _Registry()
        ProcessCollector(registry=registry)
        build = Gauge("tuner_build_info", "Version of the daemon.", ("version",), registry=registry)
        build.labels(version).set(1)

        # --- GPUs
        self._gpu = Gauge(
            "tuner_gpu_info",
            "GPUs that are tuned on; figures of a modelled one are modelled.",
            ("gpu", "device", "name", "modelled"),
            registry=registry,
        )
        self.trials = Counter(
            "tuner_trials_total", "Trials that were stored.", ("gpu", "status"), registry=registry
        )
        counter_of_gpu = partial(Counter, labelnames=("gpu",), registry=registry)
        self._seconds = counter_of_gpu("tuner_tuning_seconds_total", "Time that measuring windows took.")
        self._joules = counter_of_gpu("tuner_tuning_joules_total", "Energy that tuning took, as measured.")
        self._saved = counter_of_gpu(
            "tuner_expected_saved_joules_total",
            "Expected, not metered: uses that clients told of x (default - answer) joules; asking is none.",
        )
        self._saved_within = counter_of_gpu(
            "tuner_expected_saved_joules_uncertainty_total",
            "Half-width of the 95 % interval of the expected saving; those of the answers add up.",
        )
        self.not_restored = counter_of_gpu(
            "tuner_clock_restore_failures_total", "Clocks that could not be given back at once."
        )
        gauge_of_gpu = partial(Gauge, labelnames=("gpu",), registry=registry)
        self._watts = gauge_of_gpu("tuner_gpu_power_watts", "Of the last trial; absent while no job runs.")
        self._hertz = gauge_of_gpu("tuner_gpu_clock_hertz", "In the last trial; absent while no job runs.")

        # --- jobs
        self._jobs = Gauge("tuner_jobs", "Jobs that have not ended.", ("state",), registry=registry)
        self._waiting = Gauge("tuner_queue_waiting", "Jobs that wait to be taken.", registry=registry)
        self.endings = Counter(
            "tuner_job_endings_total", "Ends of attempts at jobs.", ("status",), registry=registry
        )
        for status in ("crashed", "refused"):  # from 0, as an increase to the first is none to Prometheus
            self.endings.labels(status)
        gauge_of_user = partial(Gauge, labelnames=("user",), registry=registry)
        self._user_waiting = gauge_of_user(
            "tuner_user_jobs_waiting", "Jobs of a user that are queued or paused."
        )
        self._user_seconds = gauge_of_user(
            "tuner_user_device_seconds", "Of a user's jobs on devices; after an hour, a second counts half."
        )
        self._troubles = Gauge(
            "tuner_troubles", "What is wrong, as status tells it.", ("subject",), registry=registry
        )

        # --- clients
        self._token_ends = Gauge(
            "tuner_token_expiry_timestamp_seconds",
            "When the newest token of a name ends, Unix time; absent for one that does not.",
            ("token",),
            registry=registry,
        )
        self._answers = Gauge("tuner_answers", "Stored answers.", ("state",), registry=registry)
        self._followers = Gauge(
            "tuner_followers", "Clients that follow a job or everything.", registry=registry
        )
        self.best = Counter(
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

        # --- the database
        self.store_errors = Counter(
            "tuner_store_errors_total", "Times the database could not be used.", registry=registry
        )
        self.rows_checked = Counter(
            "tuner_database_rows_checked_total",
            "Rows of the database that were verified in both files while idle.",
            registry=registry,
        )
        self.rows_repaired = Counter(
            "tuner_database_rows_repaired_total",
            "Rows of the database that one file did not have soundly, and has again.",
            registry=registry,
        )
        self.rows_isolated = Gauge(
            "tuner_database_rows_isolated",
            "Rows that neither file of the database had soundly, kept aside.",
            registry=registry,
        )
        self.database_read = Gauge(
            "tuner_database_last_full_check_timestamp_seconds",
            "When all rows had been verified, Unix time; 0 before.",
            registry=registry,
        )

    def device(self, uuid: str, spec: str, name: str, *, modelled: bool) -> None:
        """Add a GPU; its counters begin at zero, so that rates of the first event are right.

        That of joules begins with the first ones: where times alone are measured there are none.
        """
        self._gpu.labels(uuid, spec, name, "true" if modelled else "false").set(1)
        for counter in (self._seconds, self._saved, self._saved_within, self.not_restored):
            counter.labels(uuid)
        self.trials.labels(uuid, "ok")

    def spent(self, uuid: str, seconds: float, joules: float) -> None:
        """Count the cost of an attempt."""
        self._seconds.labels(uuid).inc(max(0.0, seconds))
        if joules > 0:
            self._joules.labels(uuid).inc(joules)

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

    def shares(self, shares: Iterable[UserDocument]) -> None:
        """Set what users have; there are at most twenty rows."""
        self._user_waiting.clear()
        self._user_seconds.clear()
        for share in shares:
            self._user_waiting.labels(share["name"]).set(share["waiting"])
            self._user_seconds.labels(share["name"]).set(share["used_lately_s"])

    def request(self, route: str, code: int, seconds: float) -> None:
        """Count a request.

        Args:
            route: template of the path, of which there are few, and never the path that a client sent.
            code: HTTP status.
            seconds: it took.
        """
        self._requests.labels(route, str(code)).observe(seconds)

    def render(
        self,
        jobs: Iterable[Job] = (),
        *,
        fresh: int = 0,
        stale: int = 0,
        followers: int = 0,
        troubles: Mapping[str, Collection[str]] | None = None,
        token_ends_s: Mapping[str, float] | None = None,
    ) -> bytes:
        """All metrics, in the text format 0.0.4 of Prometheus.

        Args:
            jobs: that have not ended.
            fresh: stored answers that hold.
            stale: stored answers whose conditions have changed, served as stale.
            followers: subscriptions to jobs and to everything.
            troubles: by what they concern; empty texts are none.
            token_ends_s: Unix times, by the names of tokens that end.
        """
        counts = Counts(job.state for job in jobs)
        for state in ACTIVE:
            self._jobs.labels(state.value).set(counts[state])
        self._waiting.set(counts[JobState.QUEUED])
        self._answers.labels("fresh").set(fresh)
        self._answers.labels("stale").set(stale)
        self._followers.set(followers)
        self._troubles.clear()
        for subject, sentences in (troubles or {}).items():
            self._troubles.labels(subject).set(sum(map(bool, sentences)))
        self._token_ends.clear()
        for token, ends_s in (token_ends_s or {}).items():
            self._token_ends.labels(token).set(ends_s)
        return generate_latest(self._registry)


class _Registry(CollectorRegistry):
    """Leaves out the times at which counters began, which double the series and are of no use here."""

    def collect(self) -> Iterable[Metric]:
        for family in super().collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family
