"""A run in the form that every export starts from, and Kernel Tuner's results file."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tuner.kernel_files.build_record import build_record
from tuner.kernel_files.kernel_file import KernelFile, stored_configuration
from tuner.model.errors import InputError, suggestion
from tuner.model.plan import STREAM_PRIORITY, Configuration, TunableValue
from tuner.model.records import WorkloadName
from tuner.model.run_document import Expanded
from tuner.model.trial import Measurement, Status, Trial
from tuner.recordings import checks
from tuner.recordings.values import RecordedSpace
from tuner.system.untrusted.build_texts import define_words, is_plain_word, macro_value
from tuner.system.untrusted.compiler_options import check_options

# --- What builds a configuration, read from the record that a run has stored of it.


@dataclass(frozen=True)
class Build:
    """Build inputs of a configuration.

    Attributes:
        macros: what the compiler is told of the tunables.
        options: what else it is told.
        source: with pragmas the name of the source, of which ``tuner kernels expand`` writes the one that
            takes the macros; else None.
        entries: functions that are launched, with template arguments; none where that is not known.
        parameters: tunables that launches are told, as block sizes.
    """

    macros: Mapping[str, TunableValue]
    options: tuple[str, ...] = ()
    source: str | None = None
    entries: tuple[str, ...] = ()
    parameters: Mapping[str, TunableValue] = field(default_factory=dict)

    def words(self) -> list[str]:
        """Options of nvcc, each a word that is safe unquoted.

        Raises:
            InputError: one is not, or no kernel may have it: whoever wrote the record may name a program.
        """
        check_options(self.options)
        for option in self.options:
            if not is_plain_word(option) or "," in option:
                raise InputError(f"the option {option!r} is not safe in a command of a shell")
        return [*define_words(self.macros), *self.options]

    def pasted(self) -> str:
        """The options of nvcc as a shell reads them.

        Raises:
            InputError: one is not safe in a command.
        """
        return shlex.join(self.words())

    def launches(self) -> list[str]:
        """Return entries with template arguments, and launch parameters: ``f<4> with block=64``."""
        entries = [one for one in self.entries if "<" in one]
        told = ", ".join(f"{name}={macro_value(value)}" for name, value in self.parameters.items())
        if not told:
            return entries
        if not entries and len(self.entries) == 1:
            entries = list(self.entries)
        return [f"{entries[0]} with {told}"] if len(entries) == 1 else [*entries, f"each with {told}"]


def build_of(configuration: Mapping[str, TunableValue], record: Expanded | None) -> Build:
    """Return the build inputs of a configuration.

    Args:
        configuration: the values.
        record: as ``tuner.kernel_files.build_record.build_record`` makes it; None where all tunables are
            macros.

    Raises:
        ValueError: the record is none.
    """
    if record is None:
        launch = {name: value for name, value in configuration.items() if name == STREAM_PRIORITY}
        return Build({n: v for n, v in configuration.items() if n not in launch}, parameters=launch)
    where = "expanded"
    macros = checks.table(record, "macros", where)
    lists = {
        key: checks.one(record, key, where, checks.TEXTS) if key in record else ()
        for key in ("options", "entries", "parameters")
    }
    return Build(
        macros={name: checks.one(macros, name, "expanded macros", checks.TEXT) for name in macros},
        options=tuple(lists["options"]),
        source=None if record.get("source") is None else checks.one(record, "source", where, checks.NAME),
        entries=tuple(lists["entries"]),
        parameters={name: configuration[name] for name in lists["parameters"]},
    )


# --- A run to export, made of a document or a recording.

_MS = 1e3  # of a second


def milliseconds(time_s: float) -> float:
    """A time as other tools take it, to 15 digits, so that reading and writing it again changes nothing."""
    return float(f"{time_s * _MS:.15g}")


@dataclass(frozen=True)
class ExportedTrial:
    """One trial.

    Attributes:
        configurations: one per workload.
        status: of the first workload that failed, else ``ok``.
        detail: what went wrong, in words; empty where nothing did.
        time_s: of a round; None unless ok.
        energy_j: of a round; None where it was not measured.
        energy_uncertainty_j: its standard uncertainty.
        clock_mhz: the clock that was set; None for "as found".
        power_limit_w: the power limit that was set; None for "as found".
    """

    configurations: tuple[Configuration, ...]
    status: Status
    detail: str = ""
    time_s: float | None = None
    energy_j: float | None = None
    energy_uncertainty_j: float = 0.0
    clock_mhz: int | None = None
    power_limit_w: int | None = None

    def cost(self, objective: str) -> float | None:
        """The number an objective minimises, in SI units; None where it was not measured."""
        if objective == "time" or self.time_s is None or self.energy_j is None:
            return self.time_s if objective == "time" else None
        exponents = {"energy": 0, "edp": 1, "ed2p": 2, "pareto": 1}
        return self.energy_j * self.time_s ** exponents.get(objective, 0)


@dataclass(frozen=True)
class ExportedRun:
    """A run.

    Attributes:
        device: name of the GPU.
        objective: name of what was minimised.
        workloads: measured together.
        trials: in the order they were measured.
        best: the answer; None where there is none.
        problem_size: sizes that are numbers, of all workloads.
        expanded: per workload the record of the build of its answer, where it is known (``build_of``).
    """

    device: str
    objective: str
    workloads: tuple[str, ...]
    trials: tuple[ExportedTrial, ...]
    best: ExportedTrial | None
    problem_size: tuple[int, ...] = ()
    expanded: tuple[Expanded | None, ...] = ()

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the kernels, by workload."""
        return tuple(name.partition(":")[0] for name in self.workloads)

    def parameters(self, trial: ExportedTrial) -> dict[str, TunableValue]:
        """Values by tunable; by ``workload.tunable`` where several workloads were run together."""
        together = len(self.workloads) > 1
        return {
            f"{name}.{tunable}" if together else tunable: value
            for name, values in zip(self.workloads, trial.configurations, strict=True)
            for tunable, value in values.items()
        }

    def parameter_names(self) -> list[str]:
        """Names of ``parameters`` of all trials, in their order."""
        trials = [*self.trials, *([self.best] if self.best is not None else [])]
        return list(dict.fromkeys(name for trial in trials for name in self.parameters(trial)))

    def builds(self) -> tuple[Build, ...]:
        """Return the build inputs of the answer, per workload.

        Raises:
            InputError: the run has none, or the record of a build is none.
        """
        values = self.answer().configurations
        try:
            return tuple(map(build_of, values, self.expanded or (None,) * len(values)))
        except (ValueError, LookupError) as error:
            raise InputError(f"{' + '.join(self.workloads)}: no document of a run: {error}") from error

    def of_workload(self, name: str) -> "ExportedRun":
        """One of its workloads with its part of the answer; times and joules stay those of a round of all.

        Raises:
            InputError: no workload has this name.
        """
        if name not in self.workloads:
            near = suggestion(name, self.workloads)
            raise InputError(
                f"--workload {name}: is not in the run; choose from {', '.join(self.workloads)}{near}"
            )
        place = self.workloads.index(name)
        best = self.answer()
        return replace(
            self,
            workloads=(name,),
            trials=(),
            best=replace(best, configurations=(best.configurations[place],)),
            expanded=self.expanded[place : place + 1],
        )

    def answer(self) -> ExportedTrial:
        """The best trial.

        Raises:
            InputError: the run has none.
        """
        if self.best is None:
            raise InputError(
                f"{' + '.join(self.workloads)}: the run has no answer, so there is nothing to export"
            )
        return self.best


def _sizes(workloads: Iterable[str]) -> tuple[int, ...]:
    parsed = [WorkloadName.parse(name).sizes for name in workloads]
    return tuple(int(value) for sizes in parsed for _, value in sizes if value.isdecimal())


def run_of_document(document: Any, where: str) -> ExportedRun:  # noqa: ANN401 - any JSON value
    """The run of a document of ``tuner run --json``.

    Args:
        document: the JSON value.
        where: what messages begin with.

    Raises:
        InputError: it is no such document; the message names the key.
    """
    try:
        workloads = tuple(
            checks.one(one, "name", "workloads", checks.NAME)
            for one in checks.objects(document, "workloads", where)
        )
        device = checks.one(checks.table(document, "device", where), "name", "device", checks.TEXT)
        if not workloads:
            raise ValueError(f"{where}: workloads is empty")  # noqa: TRY301 - worded below
        trials = document.get("trials") or []
        return ExportedRun(
            device=device,
            objective=checks.one(document, "objective", where, checks.NAME).split()[0],
            workloads=workloads,
            trials=tuple(_trial(one, workloads, f"trials[{i}]") for i, one in enumerate(trials)),
            best=None if document.get("best") is None else _trial(document["best"], workloads, "best"),
            problem_size=_sizes(workloads),
            expanded=tuple(one.get("expanded") for one in checks.objects(document, "workloads", where)),
        )
    except (ValueError, AttributeError, TypeError, LookupError) as error:
        raise InputError(f"{where}: no document of a run: {error}") from error


def held_against_kernels(
    run: ExportedRun, document: Mapping[str, Any], kernels: Mapping[str, KernelFile]
) -> tuple[ExportedRun, list[str]]:
    """A run whose configurations are those of its kernels, with the builds that these say.

    Args:
        run: of a document, which whoever wrote it may have changed.
        document: the document.
        kernels: those that are here, by name.

    Returns:
        The run, and its workloads of which no kernel is here as it was tuned: their values are not looked at.

    Raises:
        InputError: a configuration is none of its kernel; the message names the run's workload and the value.
    """
    sources = document.get("sources")
    sources = sources if isinstance(sources, Mapping) else {}
    trials = [*run.trials, *([] if run.best is None else [run.best])]
    unknown, builds = [], list(run.expanded)
    for place, (name, told) in enumerate(zip(run.workloads, document["workloads"], strict=True)):
        kernel = kernels.get(run.kernels[place])
        if kernel is None or sources.get(kernel.name) != kernel.fingerprint:
            unknown.append(name)
            continue
        try:
            workload = kernel.workload(dict(WorkloadName.parse(name).sizes), told.get("batch"))
            held = {
                values: stored_configuration(kernel, workload, values)
                for values in dict.fromkeys(trial.configurations[place] for trial in trials)
            }
            if run.best is not None:
                builds[place] = build_record(kernel, workload, held[run.best.configurations[place]])
        except InputError as error:
            raise InputError(
                f"{name}: a configuration of its run is none of the kernel, so nothing is exported: {error}"
            ) from error
    return replace(run, expanded=tuple(builds)), unknown


def _trial(record: Any, workloads: Sequence[str], where: str) -> ExportedTrial:  # noqa: ANN401 - any JSON value
    configurations = checks.table(record, "configurations", where)
    parts = record.get("workloads") or {}
    details = (str(part.get("detail", "")) for part in parts.values())
    energy_j = checks.one(
        {"energy_j": record.get("energy_j")}, "energy_j", where, checks.AMOUNT, optional=True
    )
    return ExportedTrial(
        configurations=tuple(_configuration(configurations, name, where) for name in workloads),
        status=Status(checks.one(record, "status", where, checks.STATUS)),
        detail=next(filter(None, details), ""),
        time_s=checks.one(record, "time_s", where, checks.POSITIVE, optional=True),
        energy_j=energy_j,
        energy_uncertainty_j=float(record.get("energy_j_uncertainty") or 0.0),
        clock_mhz=record.get("clock_mhz"),
        power_limit_w=record.get("power_limit_w"),
    )


def _configuration(configurations: Mapping[str, Any], name: str, where: str) -> Configuration:
    values = checks.table(configurations, name, where)
    return Configuration({tunable: checks.one(values, tunable, where, checks.VALUE) for tunable in values})


def run_of_space(space: RecordedSpace) -> ExportedRun:
    """A recorded space as a run, whose best trial is the fastest."""
    trials = tuple(_exported(trial, measurement) for trial, measurement in space.trials.items())
    costs = [(one.cost("time"), i) for i, one in enumerate(trials)]
    known = [(cost, i) for cost, i in costs if cost is not None]
    sizes = [value for workload in space.workloads for value in workload.sizes.values()]
    return ExportedRun(
        device=space.identity.name,
        objective="time",
        workloads=space.names,
        trials=trials,
        best=trials[min(known)[1]] if known else None,
        problem_size=tuple(value for value in sizes if isinstance(value, int)),
    )


def _exported(trial: Trial, measurement: Measurement) -> ExportedTrial:
    energy = measurement.energy
    return ExportedTrial(
        configurations=trial.configurations,
        status=measurement.status,
        detail=next((one.detail for one in measurement.results if one.detail), ""),
        time_s=measurement.makespan_s,
        energy_j=None if energy is None else energy.joules,
        energy_uncertainty_j=0.0 if energy is None else energy.uncertainty_j,
        clock_mhz=trial.clock_mhz,
        power_limit_w=trial.power_limit_w,
    )


# --- Kernel Tuner's results file (``store_results``, version 1.0), which its applications select from.

TOP = 0.03
"""Relative distance from the best within which configurations are kept."""


def results_document(runs: Sequence[ExportedRun]) -> dict[str, Any]:
    """The JSON value of the file.

    Args:
        runs: of one kernel and objective.

    Raises:
        InputError: the runs are of different kernels or objectives, or nothing valid was measured.
    """
    kernels = {" + ".join(run.kernels) for run in runs}
    objectives = {run.objective for run in runs}
    if len(kernels) > 1 or len(objectives) > 1:
        found = ", ".join(sorted(kernels if len(kernels) > 1 else objectives))
        raise InputError(f"a results file is of one kernel and one objective; these runs have {found}")
    data = [row for run in runs for row in _rows(run)]
    return {
        "version_number": "1.0",
        "kernel_name": kernels.pop(),
        "objective": objectives.pop(),
        "objective_higher_is_better": False,
        "tunable_parameters": list(dict.fromkeys(name for run in runs for name in run.parameter_names())),
        "data": data,
    }


def _rows(run: ExportedRun) -> list[dict[str, float | str | dict[str, TunableValue]]]:
    trials = [*run.trials, *([] if run.best is None or run.trials else [run.best])]
    costs = [(cost, one) for one in trials if (cost := one.cost(run.objective)) is not None]
    if not costs:
        raise InputError(
            f"{' + '.join(run.workloads)}: no trial has a valid {run.objective}; nothing to export"
        )
    best = min(cost for cost, _ in costs)
    return [
        {
            "device_name": device_word(run.device),
            "problem_size": "x".join(map(str, run.problem_size)),
            "tunable_parameters": run.parameters(one),
            run.objective: milliseconds(cost) if run.objective == "time" else cost,
        }
        for cost, one in sorted(costs, key=lambda pair: pair[0])
        if cost <= best * (1 + TOP)
    ]


def device_word(name: str) -> str:
    """A device as the file names it: every run of characters but letters and digits is one underscore."""
    return re.sub("[^0-9a-zA-Z]+", "_", name.strip())
