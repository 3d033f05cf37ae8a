"""The borders of the project: device, power sampler, meter, clock control, policy.

Each is a few verbs wide and has a simulated implementation in the package. Nothing here imports an
implementation; ``tuner.registry`` finds those by name.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from tuner.errors import CompileError
from tuner.model import (
    Configuration,
    DeviceIdentity,
    DeviceLimits,
    Measurement,
    Plan,
    Resources,
    Status,
    Trial,
    WorkloadResult,
)

# --- devices -------------------------------------------------------------------------------------

Progress = Callable[[int, int], None]
"""Called with (done, total) while something long goes on."""


@dataclass(frozen=True)
class Check:
    """Outcome of one answer check.

    Attributes:
        status: ok, or what went wrong.
        detail: for people, e.g. ``error 3.1e-2 of the row's maximum, allowed 1e-6 (problem 17)``.
        seconds: how long the check took.
    """

    status: Status
    detail: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class RunRecord:
    """What a device reports of one measuring window. Times of the window are on the device's clock.

    Attributes:
        results: per workload, in the order of the plans.
        makespan_s: median time of a round; None when a workload failed.
        makespan_spread_s: half its 16-84 % range.
        makespan_uncertainty_s: standard uncertainty of the median, from blocks of the window.
        rounds: rounds completed in the window.
        start_s: begin of the window (``Device.now_s`` clock).
        end_s: end of the window.
        notes: what was not as it should be, e.g. ``no-graph: ...``; they become flags of the measurement.
    """

    results: tuple[WorkloadResult, ...]
    makespan_s: float | None = None
    makespan_spread_s: float = 0.0
    makespan_uncertainty_s: float = 0.0
    rounds: int = 0
    start_s: float = 0.0
    end_s: float = 0.0
    notes: tuple[str, ...] = ()


class Device(Protocol):
    """Where trials run."""

    @property
    def identity(self) -> DeviceIdentity:
        """What results are bound to."""

    @property
    def limits(self) -> DeviceLimits:
        """Inputs of the occupancy equations."""

    def resources(
        self, plans: Sequence[Plan], progress: Progress | None = None
    ) -> list[tuple[Resources, ...] | CompileError]:
        """Compile plans, in parallel and cached, without running them.

        Returns:
            For each plan the resources of its stages, or the error of the configuration that does not
            compile (returned, not raised: one bad configuration must not stop the others).
        """

    def check(self, plan: Plan, seed: int) -> Check:
        """Run a plan once on fresh random inputs and compare; never raises for the plan."""

    def run(self, plans: Sequence[Plan], window_s: float) -> RunRecord:
        """Run the plans together, round after round, for about ``window_s`` seconds.

        A round is every workload once, all started together on their own streams, ended when all have.
        Never raises for the plans: a failure is a status.
        """

    def free_memory_bytes(self) -> int:
        """Device memory that is free now (all of it on a simulated device)."""

    def now_s(self) -> float:
        """Time on the clock that windows and power samples are stamped with (monotonic or virtual)."""

    def resume_at(self, ended_s: float) -> None:
        """Go on where a killed run ended: a virtual clock is set forward, a real one needs nothing."""

    def close(self) -> None:
        """Release everything; the device is not used afterwards."""


# --- power ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SensorInfo:
    """What is known of a power reading.

    Attributes:
        name: e.g. ``nvml-energy-counter``.
        kind: ``counter`` gives joules since some origin, ``ring`` and ``stream`` give watts.
        scope: what it sees, e.g. ``gpu``, ``module``, ``VDD_GPU_SOC``.
        period_s: expected time between fresh samples.
        capacitance_s: C of equation (6) of the multi-kernel paper; 0 where no first-order lag was fitted.
        poll_interval_s: how often ``poll`` must be called to miss nothing; 0 when once afterwards will do.
        window_s: length of the running mean behind each sample, 0 for none known.
        capacitance_sigma_s: standard uncertainty of C.
        resolution: smallest step of a reading, in watts (joules for a counter).
    """

    name: str
    kind: Literal["counter", "ring", "stream"]
    scope: str
    period_s: float
    capacitance_s: float = 0.0
    poll_interval_s: float = 0.0
    window_s: float = 0.0
    capacitance_sigma_s: float = 0.0
    resolution: float = 0.0


@dataclass(frozen=True)
class Sample:
    """One fresh reading of a sensor.

    Attributes:
        time_s: time of the sensor's update.
        value: watts, or joules since some origin for a counter.
        time_sigma_s: standard uncertainty of ``time_s``.
    """

    time_s: float
    value: float
    time_sigma_s: float = 0.0


class PowerSampler(Protocol):
    """A source of fresh samples: each update of the sensor is reported once."""

    @property
    def info(self) -> SensorInfo:
        """What is known of this reading."""

    @property
    def due_s(self) -> float:
        """Time before which ``poll`` finds nothing, on the clock of the samples; 0 where that is unknown."""

    def poll(self) -> list[Sample]:
        """Samples that appeared since the last call, oldest first.

        Raises:
            PowerError: the sensor stopped answering.
        """

    def close(self) -> None:
        """Release the sensor."""


class PowerSource(Protocol):
    """The truth a simulated sensor looks at: power over time of a simulated device."""

    def now_s(self) -> float:
        """Present time of the simulated device."""

    def power_segments(self, since_s: float) -> Sequence[tuple[float, float, float]]:
        """(start, end, watts) pieces from ``since_s`` to now, in order, without gaps."""


@dataclass(frozen=True)
class ClockReading:
    """GPU clock and what holds it back: ``mhz`` is None where it cannot be read."""

    mhz: float | None
    throttle_reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class PowerReading:
    """Mean power over a window.

    Attributes:
        watts: mean corrected power.
        uncertainty_w: standard uncertainty of it (statistical and timing, not the sensor's gain, which is
            common to all trials).
        sensor: reading and method, e.g. ``nvml-energy-counter``.
        scope: what the sensor sees.
    """

    watts: float
    uncertainty_w: float
    sensor: str
    scope: str


class Recording(Protocol):
    """Samples being collected; asked for windows after it has ended."""

    def reading(self, start_s: float, end_s: float) -> PowerReading | None:
        """Mean power between two times; None when the sensor gave too little for an answer."""

    def clock(self, start_s: float, end_s: float) -> ClockReading:
        """Median clock and all throttle reasons seen between two times."""

    def joules(self) -> float:
        """Energy of the whole recording, best estimate; 0.0 without samples."""


class Meter(Protocol):
    """Sensor to joules: sampler, response model and integration."""

    @property
    def info(self) -> SensorInfo:
        """The reading in use."""

    def recording(self) -> AbstractContextManager[Recording]:
        """Collect samples while the block runs."""

    def close(self) -> None:
        """Release the sensor."""


class ClockControl(Protocol):
    """Reads, and when the user asked for it sets, the GPU clock."""

    def supported_mhz(self) -> tuple[int, ...]:
        """Clocks that can be locked, highest first; empty where none can."""

    def read(self) -> ClockReading:
        """Present clock and throttle reasons; never changes anything."""

    def locked(self, mhz: int) -> AbstractContextManager[None]:
        """Hold the GPU at ``mhz`` while the block runs and restore what was there, on every way out.

        Raises:
            ClockPermissionError: this process may not set clocks.
            ClockError: the clock is not supported, or could not be set or restored.
        """

    def close(self) -> None:
        """Restore if needed and release."""


# --- policies ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """A configuration a policy may choose, with what is known of it before any run.

    Attributes:
        configuration: values of the tunables.
        occupancy: equation (5); the smallest of its stages.
        threads_per_block: of the stage with that occupancy.
        blocks_per_sm: equation (1) for that stage.
        warps_per_sm: resident warps for that stage.
        elements_per_thread: the value of the tunable in that role, 0 where no tunable has it.
        resources: compiled (or declared) resources of its stages.
    """

    configuration: Configuration
    occupancy: float
    threads_per_block: int
    blocks_per_sm: int
    warps_per_sm: int
    elements_per_thread: int = 0
    resources: tuple[Resources, ...] = ()


@dataclass(frozen=True)
class Search:
    """Everything a policy is told, as plain values.

    Attributes:
        workloads: names, for messages.
        candidates: per workload, the configurations left after pruning, in the order of the space.
        defaults: per workload, the default configuration (the first candidate where it was pruned).
        clocks_mhz: clocks to choose from, highest first; empty means "as found" (``Trial.clock_mhz`` None).
        cost: the objective; infinity for a failed trial.
        seed: for policies that draw at random.
        prior: measurements that are known already.
    """

    workloads: tuple[str, ...]
    candidates: tuple[tuple[Candidate, ...], ...]
    defaults: tuple[Configuration, ...]
    clocks_mhz: tuple[int, ...]
    cost: Callable[[Measurement], float]
    seed: int = 0
    prior: Mapping[Trial, Measurement] = field(default_factory=dict)

    @property
    def clocks(self) -> tuple[int | None, ...]:
        """The clocks of trials: the choices, or a single None for "as found"."""
        return self.clocks_mhz or (None,)

    @property
    def size(self) -> int:
        """Trials in the pruned joint space."""
        total = len(self.clocks)
        for candidates in self.candidates:
            total *= len(candidates)
        return total


Policy = Callable[[Search], Generator[list[Trial], list[Measurement], Trial | None]]
"""A search strategy: a generator.

It yields a list of trials whose order does not matter (often just one), is sent their measurements in the
same order, and returns its best trial, or None when every trial failed. A trial asked for again is answered
from memory by the driver and costs nothing. It draws randomness only from ``Search.seed``, so that feeding
stored measurements into a fresh generator resumes a run.
"""
