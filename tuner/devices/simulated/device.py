"""A modelled GPU behind the interface of real ones, in virtual time, with injected faults.

Time, sharing and power are those of ``time_model`` and ``resources``; every number is labelled as modelled
and none is a claim about a real GPU. Nothing is computed, so answers are taken to be right unless the device
is told to fail (``Faults``).
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from tuner.compiler.compiler import Compiler
from tuner.devices.base import Check, RunRecord
from tuner.devices.gpu_models import GpuModel, gpu_model
from tuner.devices.gpu_users import Occupant, is_present
from tuner.devices.simulated.resources import ModelResources
from tuner.devices.simulated.time_model import (
    Round,
    RoundModel,
    Timeline,
    Warming,
    active_watts,
    idle_watts,
    load_watts,
)
from tuner.model.errors import ClockError, CompileError, DeviceError, LaunchMisfitError
from tuner.model.jobs import DeviceIdentity, DeviceLimits
from tuner.model.plan import Plan, Progress, Resources
from tuner.model.trial import Status, WorkloadResult
from tuner.power.base import ClockReading
from tuner.space.occupancy import sm_unit

_NOT_RUNNING = (Status.LAUNCH_ERROR, Status.TIMEOUT, Status.CRASHED)


@dataclass(frozen=True)
class Faults:
    """A device that fails as told.

    ``compile-error`` appears when resources are asked for, ``wrong-answer`` in checks, and ``launch-error``,
    ``timeout`` and ``crashed`` in checks and runs.

    Attributes:
        single: status by kernel name, or a function of the plan; ok for what it does not name.
        joint: status of each plan of a run, given all of them; for failures that only co-running brings.
    """

    single: Mapping[str, Status] | Callable[[Plan], Status] = field(default_factory=dict)
    joint: Callable[[Sequence[Plan]], Sequence[Status]] | None = None

    def of(self, plan: Plan) -> Status:
        """The failure a plan has by itself, or ok."""
        if callable(self.single):
            return self.single(plan)
        return self.single.get(plan.workload.kernel, Status.OK)

    def in_run(self, plans: Sequence[Plan]) -> list[Status]:
        """Statuses of plans run together."""
        alone = [self.of(plan) for plan in plans]
        statuses = [status if status in _NOT_RUNNING else Status.OK for status in alone]
        if self.joint is not None:
            together = self.joint(plans)
            statuses = [a if a is not Status.OK else b for a, b in zip(statuses, together, strict=True)]
        return statuses


# --- A load above the power limit of a modelled GPU: a while over it, then at a lower clock.
#
# A power limit is held by a controller that looks at mean power, so that a load gets what it asks for until
# the clock is lowered, some 100 ms on an H200. Short windows see more watts than the limit, and other joules
# than long ones.

_LEAST_ROUNDS, _LEAST_LONG_ROUNDS = 5, 3  # as on a real GPU
_LONG_ROUND_S = 0.1


@dataclass(frozen=True)
class RoundsAtClock:
    """Rounds at one clock.

    Attributes:
        times_s: time of each plan in a round.
        watts: mean power.
        clock_mhz: the SM clock.
        count: how many.
    """

    times_s: Sequence[float]
    watts: float
    clock_mhz: int
    count: int = 0

    @staticmethod
    def of(modelled: Round, draws: Sequence[float], noise: float) -> "RoundsAtClock":
        """A modelled round with the noise of its trial.

        Args:
            modelled: without noise.
            draws: standard normal numbers, one per plan, and the last for the power.
            noise: relative standard deviation.
        """
        times = [end * (1.0 + noise * draw) for end, draw in zip(modelled.ends_s, draws, strict=False)]
        return RoundsAtClock(times, modelled.watts * (1.0 + noise * draws[-1]), modelled.clock_mhz)

    @property
    def round_s(self) -> float:
        """Time of a round."""
        return max(self.times_s)

    def lasting(self, seconds: float, least: int = 0) -> "RoundsAtClock":
        """As many as take about so long."""
        count = max(least, round(seconds / self.round_s))
        return RoundsAtClock(self.times_s, self.watts, self.clock_mhz, count)

    @property
    def least(self) -> int:
        """Rounds that a window has at least."""
        return _LEAST_LONG_ROUNDS if self.round_s >= _LONG_ROUND_S else _LEAST_ROUNDS


def window_of(
    free: RoundsAtClock, capped: RoundsAtClock, over_s: float, window_s: float
) -> tuple[RoundsAtClock, RoundsAtClock]:
    """The rounds of a window of about ``window_s`` seconds: those over the power limit, then the others.

    Args:
        free: a round at the clock that is set.
        capped: a round at the clock that respects the limit.
        over_s: how long the load gets what it asks for, of the window.
        window_s: length of the window.
    """
    if over_s <= 0 or free.clock_mhz == capped.clock_mhz:
        return free.lasting(0.0), capped.lasting(window_s, capped.least)
    first = free.lasting(min(over_s, window_s))
    left_s = window_s - first.count * first.round_s
    return first, capped.lasting(max(0.0, left_s), max(0, capped.least - first.count))


# --- The device, its clocks and its power limits.

MODEL_VERSION = "model-3"  # another number makes stored results of the model stale
_HOST_GAP_S = 0.005  # the GPU idles while the host prepares a check or a run
_WARM_UP_S, _WARM_PART = 0.05, 1 / 6  # of the window at most
_SCATTER = 1.3  # scatter of a round against that of a trial's median


class SimulatedDevice:
    """Implements ``Device`` and ``PowerSource`` (``tuner.devices``) by a model.

    Attributes:
        gpu: parameters of the modelled GPU.
        clock_mhz: SM clock: as set, or what the power limit left of it in the latest run.
        throttle_reasons: why it is below the clock set; empty when it is not.
    """

    def __init__(
        self,
        name: str,
        seed: int = 0,
        compiler: Compiler | None = None,
        *,
        faults: Faults | None = None,
        noise: float = 0.003,
        timeout_s: float = 60.0,
        warming: Warming | None = None,
    ) -> None:
        """Model a GPU.

        Args:
            name: one of ``gpus.gpu_names()``, with or without ``sim:``.
            seed: of the noise.
            compiler: for ``architecture``; opened when first needed if None.
            faults: failures to have.
            noise: relative standard deviation between trials; 0 makes the model exact.
            timeout_s: virtual seconds that a plan told to time out takes.
            warming: of a GPU that is idle at first and draws more as it warms; None for power that depends
                on the load alone. The temperature of a killed run is not restored.

        Raises:
            UnknownNameError: no such GPU.
        """
        self.gpu: GpuModel = gpu_model(name)
        self.clock_mhz: int = self.gpu.clocks_mhz[0]
        self.throttle_reasons: tuple[str, ...] = ()
        self._set_mhz = self.clock_mhz
        self._seed = seed
        self._faults = faults or Faults()
        self._noise = noise
        self._timeout_s = timeout_s
        self._resources = ModelResources(self.gpu.limits, compiler)
        self._timeline = Timeline(idle_watts(self.gpu, self._set_mhz), warming)
        self._model = RoundModel(self.gpu)
        self._occupant = Occupant(self.gpu.name)

    @property
    def identity(self) -> DeviceIdentity:
        """Identity that results are bound to: the GPU's name and the version of the model."""
        spec = f"sim:{self.gpu.name}"
        return DeviceIdentity(
            spec=spec,
            name=f"{self.gpu.product} (modelled)",
            uuid=spec,
            driver=MODEL_VERSION,
            runtime=self._resources.nvrtc_version,
            modelled=True,
        )

    @property
    def limits(self) -> DeviceLimits:
        """Inputs of the occupancy equations."""
        return self.gpu.limits

    @property
    def architecture(self) -> str:
        """Architecture that code is compiled for, e.g. ``sm_53``; ``sm_50`` for GPUs past NVRTC's reach."""
        return self._resources.architecture

    @property
    def temperature_c(self) -> float | None:
        """Temperature of the modelled chip; None where none is modelled."""
        return self._timeline.temperature_c

    @property
    def power_limit_w(self) -> float:
        """The power limit in force."""
        return self._model.limit_w

    @property
    def supported_limits_w(self) -> tuple[int, ...]:
        """Power limits that can be set, in whole watts, highest first; empty where none can."""
        least_w = self.gpu.power.least_limit_w
        return (
            () if least_w is None else tuple(range(int(self.gpu.power.limit_w), math.ceil(least_w) - 1, -1))
        )

    def set_power_limit_w(self, watts: int | None) -> None:
        """Set the power limit; None sets the default, which is the highest.

        Raises:
            ClockError: the GPU has no such limit.
        """
        if watts is not None and watts not in self.supported_limits_w:
            raise ClockError(f"sim:{self.gpu.name} has no power limit of {watts} W")
        self._model.limit_w = self.gpu.power.limit_w if watts is None else float(watts)

    @property
    def limit_scope(self) -> str:
        """The scope of its sensors, which all see the whole of its power."""
        return next((sensor.scope for sensor in self.gpu.sensors), "gpu")

    def set_clock_mhz(self, mhz: int | None) -> None:
        """Set the SM clock; None sets the default, which is the highest.

        Raises:
            ClockError: the GPU has no such clock.
        """
        chosen = self.gpu.clocks_mhz[0] if mhz is None else mhz
        if chosen not in self.gpu.clocks_mhz:
            clocks = ", ".join(map(str, self.gpu.clocks_mhz))
            raise ClockError(f"sim:{self.gpu.name} has no clock of {mhz} MHz; it has {clocks}")
        self._set_mhz = self.clock_mhz = chosen
        self.throttle_reasons = ()

    def resources(
        self, plans: Sequence[Plan], progress: Progress | None = None
    ) -> list[tuple[Resources, ...] | CompileError]:
        """Compile plans for the GPU's architecture; without NVRTC, what their files declare."""
        return [
            CompileError(f"{plan.label()}: told to fail")
            if self._faults.of(plan) is Status.COMPILE_ERROR
            else resources
            for plan, resources in zip(plans, self._resources.of(plans, progress), strict=True)
        ]

    def check(self, plan: Plan, seed: int) -> Check:  # noqa: ARG002 - nothing is computed from the inputs
        """Let the time of one run pass; right unless told otherwise."""
        self._occupant.enter()
        self.sleep(_HOST_GAP_S)
        result = self._unable(plan) or _injected(self._faults.of(plan))
        if result.status not in (Status.OK, Status.WRONG_ANSWER):
            return Check(result.status, result.detail, self._fail(result.status))
        modelled = self._model.round([plan], self._set_mhz)
        self._timeline.pass_time(modelled.ends_s[0], modelled.watts)
        return Check(result.status, result.detail, modelled.ends_s[0])

    def run(self, plans: Sequence[Plan], window_s: float) -> RunRecord:
        """Run rounds of the plans together for about ``window_s`` virtual seconds, after a warm-up.

        At least five rounds are run, three of rounds above 0.1 s.

        The median time of a round and its power carry noise that depends on the seed and the trial only, so
        a resumed run sees the same numbers.
        """
        failed = self._failed(plans)
        if failed is not None:
            return failed
        draws = self._draws(plans)
        modelled = (self._model.round_at(plans, self._set_mhz), self._model.round(plans, self._set_mhz))
        free, capped = (RoundsAtClock.of(each, draws, self._noise) for each in modelled)
        warm_s = max(min(_WARM_UP_S, _WARM_PART * window_s), capped.round_s)
        over, after = window_of(free, capped, self.gpu.power.hold_s - warm_s, window_s)
        last, most = after if after.count else over, max(over, after, key=lambda each: each.count)
        self.clock_mhz = last.clock_mhz
        self.throttle_reasons = ("sw-power-cap",) if self.clock_mhz < self._set_mhz else ()
        self._timeline.pass_time(warm_s, over.watts if over.count else after.watts)
        start = self.now_s()
        for rounds in (over, after):
            self._timeline.pass_time(rounds.count * rounds.round_s, rounds.watts)
        restored = [self._model.restore_s(plan, self.clock_mhz) for plan in plans]
        return self._recorded(most.times_s, restored, over.count + after.count, start)

    def run_single(self, plans: Sequence[Plan], window_s: float) -> RunRecord:
        """Run single rounds, each behind a flush of the L2, for about ``window_s`` virtual seconds.

        The flushes are part of the window. No power limit is reached: between rounds nothing is computed.
        """
        failed = self._failed(plans)
        if failed is not None:
            return failed
        draws = self._draws(plans, "single|")
        modelled = replace(
            self._model.round_at(plans, self._set_mhz), ends_s=self._model.single(plans, self._set_mhz)
        )
        rounds = RoundsAtClock.of(modelled, draws, self._noise)
        self.clock_mhz, self.throttle_reasons = self._set_mhz, ()
        start, each_s = self.now_s(), rounds.round_s + self._model.flush_s(self._set_mhz)
        count = max(rounds.least, round(window_s / each_s)) if window_s else _LEAST_LONG_ROUNDS
        self._timeline.pass_time(count * each_s, min(rounds.watts, self._model.limit_w))
        return self._recorded(rounds.times_s, [0.0] * len(plans), count, start)

    def _failed(self, plans: Sequence[Plan]) -> RunRecord | None:
        """The record of plans that do not run; None where they do."""
        self._occupant.enter()
        self.sleep(_HOST_GAP_S)
        results = self._failures(plans)
        failed = next((r.status for r in results if r.status is not Status.OK), None)
        if failed is None:
            return None
        start = self.now_s()
        self._fail(failed)
        return RunRecord(results=tuple(results), start_s=start, end_s=self.now_s())

    def _recorded(
        self, times_s: Sequence[float], restored_s: Sequence[float], rounds: int, start_s: float
    ) -> RunRecord:
        """The record of rounds that end now, by the median times of the plans."""
        makespan_s, spread = max(times_s), _SCATTER * self._noise
        return RunRecord(
            results=tuple(
                WorkloadResult(Status.OK, time_s, spread * time_s, restore_s=restore_s)
                for time_s, restore_s in zip(times_s, restored_s, strict=True)
            ),
            makespan_s=makespan_s,
            makespan_spread_s=spread * makespan_s,
            makespan_uncertainty_s=self._noise * makespan_s,
            rounds=rounds,
            start_s=start_s,
            end_s=self.now_s(),
        )

    def sm_units(self) -> tuple[int, int]:
        """Units of multiprocessors, as a driver would split them.

        Raises:
            DeviceError: it would split none of so old a GPU.
        """
        if not self.gpu.limits.reaches(60):
            raise DeviceError(f"{self.identity.spec} shares no multiprocessors out: GPUs do from 6.0 on")
        unit = sm_unit(self.gpu.limits)
        return unit, self.gpu.limits.multiprocessors // unit

    def pulse(self, pulses: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        """Play pulses of arithmetic at full rate, as far as the power limit goes."""
        self._occupant.enter()
        watts = load_watts(self.gpu, self._set_mhz, self._model.limit_w)
        played = []
        for busy_s, idle_s in pulses:
            begin_s = self.now_s()
            self._timeline.pass_time(busy_s, watts)
            played.append((begin_s, self.now_s()))
            self.sleep(idle_s)
        return played

    def free_memory_bytes(self) -> int:
        """All of the GPU's memory."""
        return self.gpu.limits.memory_bytes

    def now_s(self) -> float:
        """Virtual time; starts at 0 and moves only with what the device does."""
        return self._timeline.now_s

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass at idle power."""
        self._timeline.pass_time(seconds, idle_watts(self.gpu, self._set_mhz))

    def resume_at(self, ended_s: float) -> None:
        """Set virtual time forward: sensor ticks and noise follow it, so a resumed run needs it."""
        self.sleep(max(0.0, ended_s - self.now_s()))

    def power_segments(self, since_s: float) -> list[tuple[float, float, float]]:
        """(start, end, watts) pieces of true power from ``since_s`` to now, in order, without gaps.

        A window of rounds is one piece at its mean power. Before 0 the device was idle.
        """
        return self._timeline.since(since_s, idle_watts(self.gpu, self._set_mhz))

    def own_processes(self) -> int:
        """One, this process, where others can see it."""
        return int(is_present(self.identity.spec))

    def abort(self) -> None:
        """Do nothing: no hardware is held."""

    def close(self) -> None:
        """Close the compiler if it was opened here, and leave the GPU to others."""
        self._occupant.leave()
        self._resources.close()

    def _failures(self, plans: Sequence[Plan]) -> list[WorkloadResult]:
        """Status of each plan of a run, before any time is spent; a crash or a time-out takes all with it."""
        statuses = self._faults.in_run(plans)
        results = [
            self._unable(plan, sms) or _injected(status)
            for plan, status, sms in zip(plans, statuses, self._model.multiprocessors(plans), strict=True)
        ]
        fatal = next((r.status for r in results if r.status in (Status.CRASHED, Status.TIMEOUT)), None)
        if fatal is None:
            return results
        return [
            WorkloadResult(fatal, detail="lost with another workload") if r.status is Status.OK else r
            for r in results
        ]

    def _unable(self, plan: Plan, sms: int | None = None) -> WorkloadResult | None:
        """Return the failure of a plan that cannot be launched on so many SMs at all, or None."""
        resources = self.resources([plan])[0]
        if isinstance(resources, CompileError):
            fits = not isinstance(resources, LaunchMisfitError)
            status = Status.COMPILE_ERROR if fits else Status.LAUNCH_ERROR
            return WorkloadResult(status, detail=str(resources))
        misfit = self._model.misfit(plan, resources, self._resources.arithmetic(plan, self.gpu), sms)
        return WorkloadResult(Status.LAUNCH_ERROR, detail=f"{plan.label()}: {misfit}") if misfit else None

    def _fail(self, status: Status) -> float:
        """Let the time of a failed launch pass: none, or a kernel that runs until its time-out."""
        seconds = self._timeout_s if status is Status.TIMEOUT else 0.0
        self._timeline.pass_time(seconds, active_watts(self.gpu, self._set_mhz))
        return seconds

    def _draws(self, plans: Sequence[Plan], timing: str = "") -> list[float]:
        """Standard normal numbers that depend on seed, trial and timing only: one per plan and one more."""
        names = timing + "|".join(_key(plan) for plan in plans)
        key = f"{self._seed}|{self.gpu.name}|{self._set_mhz}|{names}"
        digest = hashlib.blake2b(key.encode(), digest_size=16).digest()
        generator = np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))
        return [float(draw) for draw in generator.standard_normal(len(plans) + 1)]


class SimulatedClocks:
    """Implements ``tuner.power.base.ClockControl`` of a simulated device."""

    def __init__(self, device: SimulatedDevice) -> None:
        self._device = device

    def supported_mhz(self) -> tuple[int, ...]:
        """Clocks that can be locked, highest first."""
        return self._device.gpu.clocks_mhz

    def read(self) -> ClockReading:
        """Present clock, throttle reasons, power limit and temperature."""
        device = self._device
        return ClockReading(
            float(device.clock_mhz),
            device.throttle_reasons,
            device.power_limit_w,
            device.limit_scope,
            device.temperature_c,
        )

    @contextmanager
    def locked(self, mhz: int) -> Iterator[None]:
        """Hold the device at ``mhz`` while the block runs; the default returns on every way out.

        Raises:
            ClockError: the device has no such clock.
        """
        if mhz not in self._device.gpu.clocks_mhz:
            choices = ", ".join(map(str, self._device.gpu.clocks_mhz)) or "none"
            raise ClockError(f"no clock of {mhz} MHz; choose from {choices}")
        try:
            self._device.set_clock_mhz(mhz)
            yield
        finally:
            self._device.set_clock_mhz(None)

    def close(self) -> None:
        """Nothing to release: ``locked`` restores."""


class SimulatedPowerLimits:
    """Implements ``tuner.power.base.PowerLimitControl`` of a simulated device.

    Raises:
        ClockError: it has no power limit that can be set.
    """

    def __init__(self, device: SimulatedDevice) -> None:
        if not device.supported_limits_w:
            raise ClockError("the power limit of this GPU cannot be set")
        self._device = device

    def supported_w(self) -> tuple[int, ...]:
        """Power limits that can be set, highest first."""
        return self._device.supported_limits_w

    def read_w(self) -> float:
        """The limit in force."""
        return self._device.power_limit_w

    @contextmanager
    def locked(self, watts: int) -> Iterator[None]:
        """Hold the device at a limit while the block runs; the default returns on every way out.

        Raises:
            ClockError: the device has no such limit.
        """
        try:
            self._device.set_power_limit_w(watts)
            yield
        finally:
            self._device.set_power_limit_w(None)

    def close(self) -> None:
        """Nothing is held."""


def _key(plan: Plan) -> str:
    """Return the text that fixes the random draws of a plan."""
    values = " ".join(f"{name}={value}" for name, value in plan.configuration.items())
    return f"{plan.workload};{plan.workload.batch};{values}"


def _injected(status: Status) -> WorkloadResult:
    return WorkloadResult(status, detail="" if status is Status.OK else "told to fail")
