"""Recorded spaces as games: the same table of times for our policies and for Kernel Tuner's strategies."""

import hashlib
import itertools
import json
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tuner.model.errors import InputError
from tuner.model.objective import Objective
from tuner.model.plan import TunableValue
from tuner.model.records import WorkloadName
from tuner.model.trial import Status, Trial
from tuner.recordings.files import open_recording
from tuner.recordings.values import RecordedSpace

READABLE = (".npz", ".json", ".zip")
OBJECTIVE = Objective("time")
CLOCK = "clock_mhz"
MILLISECONDS = 1e3  # Kernel Tuner keeps times in ms
FAILURES = {Status.COMPILE_ERROR: "CompilationFailedConfig"}
OTHER_FAILURE = "RuntimeFailedConfig"


@dataclass(frozen=True)
class Game:
    """A recorded space to search, fastest configuration sought.

    Attributes:
        name: for tables.
        group: spaces of one group are averaged.
        space: what was recorded.
    """

    name: str
    group: str
    space: RecordedSpace

    @cached_property
    def tunables(self) -> dict[str, list[TunableValue]]:
        """Names and values as one kernel has them: only values that occur, in the order they are declared.

        With several workloads a name begins with the number of its workload.
        """
        found: dict[str, list[TunableValue]] = {}
        for lane, workload in enumerate(self.space.workloads):
            chosen = {trial.configurations[lane] for trial in self.space.trials}
            for name, values in workload.tunables.items():
                used = {configuration.get(name, values[0]) for configuration in chosen}
                found[self._named(lane, name)] = [value for value in values if value in used]
        if self.space.clocks_mhz:
            found[CLOCK] = list(self.space.clocks_mhz)
        return found

    def _named(self, lane: int, name: str) -> str:
        return name if len(self.space.workloads) == 1 else f"w{lane}_{name}"

    def values(self, trial: Trial) -> tuple[TunableValue, ...]:
        """The values of a trial in the order of ``tunables``; the first for a tunable that has none."""
        found = [
            configuration.get(name, workload.tunables[name][0])
            for configuration, workload in zip(trial.configurations, self.space.workloads, strict=True)
            for name in workload.tunables
        ]
        return (*found, trial.clock_mhz) if trial.clock_mhz is not None else tuple(found)

    @cached_property
    def times_s(self) -> dict[str, float]:
        """Key of every configuration, as Kernel Tuner spells it -> time; infinity where it failed."""
        return {
            key(self.values(trial)): OBJECTIVE.cost(measurement)
            for trial, measurement in self.space.trials.items()
        }

    @cached_property
    def optimum_s(self) -> float:
        """The shortest time; infinity where all failed."""
        return min(self.times_s.values(), default=math.inf)

    @cached_property
    def digest(self) -> str:
        """Differs when the tunables or the times do."""
        times = {name: f"{time_s:.9g}" for name, time_s in sorted(self.times_s.items())}
        return hashlib.sha256(json.dumps([self.tunables, times]).encode()).hexdigest()[:16]


def key(values: tuple[TunableValue, ...] | list[TunableValue]) -> str:
    """A configuration as a key of Kernel Tuner's cache files."""
    return ",".join(str(value) for value in values)


def kernel_tuner_cache(game: Game) -> dict[str, Any]:
    """A space as the document of a cache file that Kernel Tuner's simulation mode accepts."""
    names = list(game.tunables)
    entries = {}
    for trial, measurement in game.space.trials.items():
        values = game.values(trial)
        entry: dict[str, Any] = dict(zip(names, values, strict=True))
        cost_s = OBJECTIVE.cost(measurement)
        failure = FAILURES.get(measurement.status, OTHER_FAILURE)
        entry |= {"time": cost_s * MILLISECONDS} if math.isfinite(cost_s) else {"__error__": failure}
        entries[key(values)] = entry
    return {
        "device_name": game.space.identity.name,
        "kernel_name": game.name,
        "problem_size": [1],
        "tune_params_keys": names,
        "tune_params": game.tunables,
        "objective": "time",
        "cache": entries,  # last: Kernel Tuner tells a file that was closed by its three closing braces
    }


def games_of(where: str) -> list[Game]:
    """The spaces of a file, of all files of a folder, or the shipped ones (``h200``).

    Raises:
        InputError: there is nothing to read.
    """
    if where == "h200":
        return _shipped()
    path = Path(where)
    files = sorted(f for f in path.iterdir() if f.suffix in READABLE) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{path}: no recorded space in it; wanted files ending in {', '.join(READABLE)}")
    return list(itertools.chain.from_iterable(map(_of_file, files)))


def _shipped() -> list[Game]:
    recording = open_recording("h200")
    found = []
    for names in recording.names:
        kernel = WorkloadName.parse(names[0]).kernel if len(names) == 1 else "joint"
        found.append(Game(" + ".join(names), f"h200 {kernel}", recording.space(names)))
    return found


def _of_file(path: Path) -> list[Game]:
    recording = open_recording(str(path))
    group = path.stem.rpartition("_")[0] or path.stem
    if len(recording.names) == 1:
        return [Game(path.stem.replace("_", " "), group, recording.space(recording.names[0]))]
    return [
        Game(f"{path.stem} {' + '.join(names)}", path.stem, recording.space(names))
        for names in recording.names
    ]
