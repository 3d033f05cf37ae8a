"""From a recorded space to a ready task: what ``candidates`` and ``measure`` do on a GPU, without one."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tuner.devices.replay import ReplayDevice
from tuner.kernel_files.catalog import Catalog
from tuner.measurement.base import Contest
from tuner.model.errors import EmptySpaceError, InputError
from tuner.model.plan import Configuration, Plan, ProblemSpec, TunableValue, Work, Workload
from tuner.model.trial import Measurement, Trial
from tuner.model.workload_name import WorkloadName
from tuner.recordings.checks import AMOUNT
from tuner.recordings.opening import RecordedSpaces
from tuner.recordings.values import RecordedKernel, RecordedSpace, RecordedWorkload
from tuner.search.candidates import PreparedWorkload
from tuner.space.space import Space

_NO_WORK = Work(bytes=0.0, operations=0.0)
_RECORDED = ProblemSpec("recorded")


class ReplayMeasurer:
    """Implements ``Measurer`` by a recording: no window is repeated, and nothing warms up.

    Args:
        device: whose recording.
    """

    def __init__(self, device: ReplayDevice) -> None:
        self._replay = device
        self._replayed_s = 0.0

    @property
    def windows_s(self) -> float:
        """Length of all recorded windows so far."""
        return self._replayed_s

    @property
    def notices(self) -> tuple[str, ...]:
        """There are none."""
        return ()

    def measure(
        self,
        trial: Trial,
        plans: Sequence[Plan],  # noqa: ARG002 - nothing runs
        contest: Contest | None = None,  # noqa: ARG002 - a recorded window is as long as it is
    ) -> Measurement:
        """What the trial gave."""
        measurement = self._replay.measurement(trial)
        self._replayed_s += measurement.window_s
        return measurement

    def measure_idle(self, clock_mhz: int | None) -> float:  # noqa: ARG002 - idle power is part of a recording
        """Nothing is measured."""
        return 0.0

    def with_idle(
        self,
        measurement: Measurement,
        clock_mhz: int | None,  # noqa: ARG002 - as recorded at any clock
    ) -> Measurement:
        """The measurement as it was recorded."""
        return measurement

    def spent(self) -> None:
        """Joules are those of the recorded trials."""

    def recall(self, trials: Sequence[tuple[Trial, Measurement]], workloads: Sequence[Workload]) -> None:
        """Nothing need be known of what a killed run looked up."""

    def close(self) -> None:
        """Nothing is held."""


def pairs(space: RecordedSpace) -> list[tuple[RecordedKernel, Workload]]:
    """Kernels and workloads of a space, as ``request.resolve`` gives them of the catalogue."""
    return [(kernel_of(workload), workload_of(workload)) for workload in space.workloads]


def kernel_of(recorded: RecordedWorkload) -> RecordedKernel:
    """What a recording tells of a kernel."""
    return RecordedKernel(
        name=workload_of(recorded).kernel,
        family=recorded.family,
        roles=recorded.roles or {},
        rule_roles=recorded.roles,
        fingerprint=recorded.fingerprint,
    )


def workload_of(recorded: RecordedWorkload) -> Workload:
    """The workload, whose text is the name it was recorded under; sizes that are not in it are implied."""
    sizes = tuple(recorded.sizes.items())
    told = WorkloadName.parse(recorded.name).sizes
    implied = tuple(name for name, value in sizes if (name, str(value)) not in told)
    named = Workload(recorded.kernel, sizes, recorded.batch, implied)
    if str(named) == recorded.name:
        return named
    return Workload(recorded.name, sizes, recorded.batch, tuple(recorded.sizes))


def prepared(space: RecordedSpace, min_occupancy: float | None = None) -> list[PreparedWorkload]:
    """The workloads of a space, ready to be tuned: their candidates are the configurations recorded.

    Args:
        space: what was recorded.
        min_occupancy: threshold of equation (5), 0 to 1; None for all that was recorded.

    Raises:
        EmptySpaceError: no configuration reaches the threshold.
    """
    return [_prepared(workload, min_occupancy or 0.0) for workload in space.workloads]


def _prepared(recorded: RecordedWorkload, min_occupancy: float) -> PreparedWorkload:
    kept = tuple(c for c in recorded.candidates if c.occupancy >= min_occupancy)
    if not kept:
        raise EmptySpaceError(
            f"{recorded.name}: no recorded configuration reaches an occupancy of {min_occupancy:.0%};"
            " lower --min-occupancy, or leave it out"
        )
    workload = workload_of(recorded)
    left_out = len(recorded.candidates) - len(kept)
    return PreparedWorkload(
        workload=workload,
        kernel=kernel_of(recorded),
        space=space_of([c.configuration for c in recorded.candidates], recorded.tunables),
        plans={
            c.configuration: Plan(workload, c.configuration, (), (), _RECORDED, c.work or _NO_WORK)
            for c in recorded.candidates
        },
        candidates=kept,
        default=recorded.default,
        min_occupancy=min_occupancy,
        pruned={"occupancy, as recorded": left_out} if left_out else {},
        compile_errors=(),
    )


def space_of(
    configurations: Sequence[Configuration], tunables: Mapping[str, tuple[TunableValue, ...]]
) -> Space:
    """The configurations as a space, in the order of the value lists."""
    places = {name: {value: i for i, value in enumerate(values)} for name, values in tunables.items()}
    rows = sorted(
        tuple(place[configuration[name]] if name in configuration else -1 for name, place in places.items())
        for configuration in configurations
    )
    return Space(tunables, [np.array(column) for column in zip(*rows, strict=True)])


def changed(space: RecordedSpace, catalog: Catalog) -> list[str]:
    """A notice for every kernel whose file or sources are not those recorded."""
    notices = []
    for recorded in space.workloads:
        present = catalog.kernels.get(recorded.kernel)
        if present is not None and recorded.fingerprint not in ("", present.fingerprint):
            notices.append(
                f"{recorded.name}: {recorded.kernel} has changed since it was recorded:"
                " these are times of the code as it was then"
            )
    return notices


def measured_as(space: RecordedSpace) -> dict[str, Any]:
    """How the trials of a space were measured: the window (the longest, in seconds) and the sensor."""
    longest_s = max((measurement.window_s for measurement in space.trials.values()), default=0.0)
    wanted_s = space.provenance.get("window_s")  # by its maker's words; anything may stand there
    return {
        "window_s": float(wanted_s or 0) if AMOUNT.accepts(wanted_s) else longest_s,
        "sensor": space.sensor or None,
    }


def require_clocks(space: RecordedSpace, clocks: str) -> None:
    """Refuse clocks as found where every trial was recorded at a clock that was set.

    Raises:
        InputError: the message names the clocks.
    """
    if clocks == "off" and all(trial.clock_mhz is not None for trial in space.trials):
        recorded = ", ".join(map(str, space.clocks_mhz))
        raise InputError(f"--clocks off: trials were recorded at {recorded} MHz only; use --clocks all")


def require_power_limits(space: RecordedSpace, power_limits: str) -> None:
    """Refuse power limits as found where every trial was recorded at one that was set.

    Raises:
        InputError: the message names the limits.
    """
    if power_limits == "off" and all(trial.power_limit_w is not None for trial in space.trials):
        recorded = ", ".join(map(str, space.power_limits_w))
        raise InputError(
            f"--power-limits off: trials were recorded at {recorded} W only; use --power-limits all"
        )


def require_joules(space: RecordedSpace, recording: RecordedSpaces, objective: str) -> None:
    """Refuse an objective that needs joules where none were recorded.

    Raises:
        InputError: the message names the spaces of the file that have joules.
    """
    if has_joules(space):
        return
    others = [" ".join(names) for names in recording.names if recording.sensor(names)]
    have = f"; joules were recorded of: {'; '.join(others)}" if others else ", nor of any space of the file"
    raise InputError(
        f"--objective {objective}: no joules were recorded of {' + '.join(space.names)}{have};"
        " use --objective time"
    )


def has_joules(space: RecordedSpace) -> bool:
    """True where some trial has an energy."""
    return any(measurement.energy is not None for measurement in space.trials.values())
