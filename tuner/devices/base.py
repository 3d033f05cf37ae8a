"""The border to devices, on which trials run."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tuner.model.errors import CompileError
from tuner.model.jobs import DeviceIdentity, DeviceLimits
from tuner.model.plan import Plan, Progress, Resources
from tuner.model.trial import Flag, Status, WorkloadResult


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
    """Result of one measuring window of a device. Times of the window are on the device's clock.

    Attributes:
        results: per workload, in the order of the plans.
        makespan_s: median time of a round; None when a workload failed.
        makespan_spread_s: half its 16-84 % range.
        makespan_uncertainty_s: standard uncertainty of the median, from blocks of the window.
        rounds: rounds completed in the window.
        start_s: begin of the window (``Device.now_s`` clock).
        end_s: end of the window.
        flags: what was not as it should be; they become flags of the measurement.
    """

    results: tuple[WorkloadResult, ...]
    makespan_s: float | None = None
    makespan_spread_s: float = 0.0
    makespan_uncertainty_s: float = 0.0
    rounds: int = 0
    start_s: float = 0.0
    end_s: float = 0.0
    flags: tuple[Flag, ...] = ()


class Device(Protocol):
    """Device that runs trials."""

    @property
    def identity(self) -> DeviceIdentity:
        """Identity that results are bound to."""

    @property
    def limits(self) -> DeviceLimits | None:
        """Inputs of the occupancy equations; None where a recording lacks them."""

    def resources(
        self, plans: Sequence[Plan], progress: Progress | None = None
    ) -> list[tuple[Resources, ...] | CompileError]:
        """Compile plans, in parallel and cached, without running them; may be called by several threads.

        Returns:
            For each plan the resources of its stages, or the error of the configuration that does not
            compile (returned, not raised: one bad configuration must not stop the others).
        """

    def check(self, plan: Plan, seed: int) -> Check:
        """Run a plan once on the random inputs of a seed and compare; never raises for the plan."""

    def run(self, plans: Sequence[Plan], window_s: float) -> RunRecord:
        """Run the plans together, round after round, for about ``window_s`` seconds.

        For 0 seconds a few rounds, one by one.
        A round is every workload once, all started together on their own streams, ended when all have.
        Never raises for the plans: a failure is a status.
        """

    def run_single(self, plans: Sequence[Plan], window_s: float) -> RunRecord:
        """Run single rounds for about ``window_s`` seconds, each behind a flush of the L2; else as ``run``.

        The window holds the flushes too, the times do not, and they are without what restores arrays.
        """

    def sm_units(self) -> tuple[int, int]:
        """Multiprocessors of a unit that shares are made of, and how many units there are.

        Raises:
            DeviceError: none can be shared out; the message says why.
        """

    def free_memory_bytes(self) -> int:
        """Device memory that is free now (all of it on a simulated device)."""

    def now_s(self) -> float:
        """Time on the clock that windows and power samples are stamped with (monotonic or virtual)."""

    def sleep(self, seconds: float) -> None:
        """Leave the GPU idle: a real one is only waited for, a virtual clock moves on."""

    def resume_at(self, ended_s: float) -> None:
        """Go on where a killed run ended: a virtual clock is set forward, a real one needs nothing."""

    def own_processes(self) -> int:
        """Return the number of own processes that compute on the device, by its driver or its model."""

    def abort(self) -> None:
        """Free the GPU at once, whatever runs on it; safe in a signal handler, and again."""

    def close(self) -> None:
        """Release everything; the device is not used afterwards."""


class SystemClock:
    """Time of a device that is no model: the system's monotonic clock, which all processes share."""

    now_s, sleep = staticmethod(time.monotonic), staticmethod(time.sleep)

    def resume_at(self, ended_s: float) -> None:
        """Change nothing: the monotonic clock goes its own way."""
