"""Spaces that other tuners recorded: one workload, its tunables, times; no launches, limits or roles.

Their joules are not read: they come without an uncertainty.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.errors import InputError
from tuner.interfaces import Candidate
from tuner.model import (
    Configuration,
    DeviceIdentity,
    Measurement,
    Status,
    Trial,
    TunableValue,
    WorkloadResult,
)
from tuner.recordings import checks
from tuner.recordings.values import RecordedSpace, RecordedWorkload
from tuner.space.launches import candidate

STATUS = {
    "ok": Status.OK,
    "CompilationFailedConfig": Status.COMPILE_ERROR,
    "RuntimeFailedConfig": Status.LAUNCH_ERROR,
    "InvalidConfig": Status.LAUNCH_ERROR,
    "ErrorConfig": Status.LAUNCH_ERROR,
    "other": Status.LAUNCH_ERROR,
}
_MS = 1e-3
_AXES = ("x", "y", "z")


class OneSpace:
    """A file that holds a single recorded space; used as ``RecordingFile`` is.

    Args:
        path: the file.
        space: what it holds.
    """

    def __init__(self, path: Path, space: RecordedSpace) -> None:
        self.path = path
        self._space = space

    @property
    def names(self) -> tuple[tuple[str, ...], ...]:
        """The names of the workloads of every space."""
        return (self._space.names,)

    def space(self, names: Sequence[str]) -> RecordedSpace:
        """The space of these workloads.

        Raises:
            InputError: it is another one.
        """
        if tuple(names) != self._space.names:
            known = " + ".join(self._space.names)
            raise InputError(f"{self.path}: no recorded space of {' + '.join(names)}; there is {known}")
        return self._space

    def sensor(self, names: Sequence[str]) -> str:
        """The reading that the joules of a space came from: none."""
        return self.space(names).sensor


def one_workload(
    *,
    name: str,
    kernel: str,
    device: str,
    sizes: Mapping[str, int | str],
    tunables: Mapping[str, tuple[TunableValue, ...]],
    rows: Iterable[tuple[tuple[TunableValue, ...], Measurement]],
    provenance: Mapping[str, Any],
) -> RecordedSpace:
    """The space of configurations (values in the order of the tunables) and what each gave.

    Raises:
        ValueError: a configuration is there twice, or there is none.
    """
    trials: dict[Trial, Measurement] = {}
    candidates: list[Candidate] = []
    for values, gave in rows:
        configuration = Configuration(tuple(zip(tunables, values, strict=True)))
        trial = Trial((configuration,))
        if trial in trials:
            raise ValueError(f"{configuration} is in it twice")
        trials[trial] = gave
        candidates.append(candidate(configuration, (), {}))
    if not trials:
        raise ValueError("no configuration is in it")
    workload = RecordedWorkload(
        name=re.sub(r"[+/\\\s]+", "_", name),
        kernel=kernel,
        family="",
        sizes=sizes,
        batch=1,
        fingerprint="",
        tunables=tunables,
        roles={},
        default=candidates[0].configuration,
        candidates=tuple(candidates),
    )
    identity = DeviceIdentity("", device, device, driver="", runtime="", modelled=False)
    return RecordedSpace((workload,), identity, None, trials, provenance=provenance)


def value_list(name: str, values: Any) -> tuple[TunableValue, ...]:  # noqa: ANN401 - any JSON value
    """The values of a tunable.

    Raises:
        ValueError: it is no list of different texts or numbers.
    """
    if not isinstance(values, list) or not values or not all(map(checks.VALUE.accepts, values)):
        raise ValueError(f"values of {name}: {checks.shown(values)}; expected a list of texts or numbers")
    if len(set(values)) < len(values):
        raise ValueError(f"values of {name}: {checks.shown(values)}; a value is in it twice")
    return tuple(values)


def axis_sizes(problem_size: Any) -> dict[str, int | str]:  # noqa: ANN401 - any JSON value
    """Problem sizes by axis; none where they are not stated as numbers."""
    listed = problem_size if isinstance(problem_size, list) else [problem_size]
    if not all(map(checks.COUNT.accepts, listed)):
        return {}
    return dict(zip(_AXES, listed, strict=False))


def measurement(
    status: str,
    time_ms: float | None = None,
    sigma_ms: float = 0.0,
    repeats: int = 0,
    *,
    window_ms: float = 0.0,
    check_ms: float = 0.0,
) -> Measurement:
    """A measurement by its times; the mean of several repeats is surer than one of them."""
    if time_ms is None:
        return Measurement((WorkloadResult(STATUS.get(status, Status.LAUNCH_ERROR), detail=status),))
    time_s, sigma_s = time_ms * _MS, sigma_ms * _MS
    return Measurement(
        results=(WorkloadResult(Status.OK, time_s, sigma_s),),
        makespan_s=time_s,
        makespan_spread_s=sigma_s,
        makespan_uncertainty_s=sigma_s / math.sqrt(max(1, repeats)),
        rounds=repeats,
        window_s=window_ms * _MS,
        check_s=check_ms * _MS,
    )
