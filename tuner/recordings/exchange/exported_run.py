"""A run in the form that every export starts from, and Kernel Tuner's results file."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tuner.kernel_files.build_record import build_record
from tuner.kernel_files.kernel_file import KernelFile, stored_configuration
from tuner.model.errors import InputError, suggestion
from tuner.model.objective import TIME_EXPONENT, described, timing_of
from tuner.model.options import BACK_TO_BACK
from tuner.model.plan import PLACE, Configuration, TunableValue
from tuner.model.records import WorkloadName
from tuner.model.run_document import Expanded
from tuner.model.trial import Measurement, Status, Trial
from tuner.recordings import checking
from tuner.recordings.checking import Fields
from tuner.system.untrusted.build_texts import define_words, is_plain_word, macro_value
from tuner.system.untrusted.compiler_options import check_options

if TYPE_CHECKING:
    from tuner.recordings.values import RecordedSpace

# --- What builds a configuration, read from the record that a run has stored of it.

_OF_TRITON = ("num_warps", "num_stages", "num_ctas", "maxnreg")  # that have names in ``triton.Config``


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
        config: what a ``triton.Config`` holds; None where that is not known, or no function is of Triton.
    """

    macros: Mapping[str, TunableValue]
    options: tuple[str, ...] = ()
    source: str | None = None
    entries: tuple[str, ...] = ()
    parameters: Mapping[str, TunableValue] = field(default_factory=dict)
    config: Mapping[str, TunableValue] | None = None

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

    def triton_config(self) -> str:
        """A call of ``triton.Config``; a text such as ``tl.float16`` is the type of this name."""
        told = {
            name: value
            if isinstance(value, str) and re.fullmatch(r"tl\.\w+", value, re.ASCII)
            else ascii(value)
            for name, value in (self.config or {}).items()
            if (name, value) != ("enable_fp_fusion", True)
        }
        constants = ", ".join(f'"{name}": {value}' for name, value in told.items() if name not in _OF_TRITON)
        options = "".join(f", {name}={value}" for name, value in told.items() if name in _OF_TRITON)
        return f"triton.Config({{{constants}}}{options})"

    def launches(self) -> list[str]:
        """Entries with template arguments or a ``triton.Config``, and parameters: ``f<4> with block=64``."""
        others = {name: value for name, value in self.parameters.items() if name not in (self.config or ())}
        parameters = ", ".join(f"{name}={macro_value(value)}" for name, value in others.items())
        if self.config is not None:
            told = ", ".join(filter(None, (self.triton_config(), parameters)))
            return [f"{' and '.join(self.entries)} with {told}"]
        entries = [entry for entry in self.entries if "<" in entry]
        if not parameters:
            return entries
        if not entries and len(self.entries) == 1:
            entries = list(self.entries)
        if len(entries) == 1:
            return [f"{entries[0]} with {parameters}"]
        return [*entries, f"each with {parameters}"]


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
        launch = {name: value for name, value in configuration.items() if name in PLACE}
        return Build({n: v for n, v in configuration.items() if n not in launch}, parameters=launch)
    fields = Fields(record, "expanded")
    macros = fields.fields("macros", "expanded macros")
    config = fields.fields("config", "expanded config") if "config" in fields else None
    if odd := [name for name in config or () if not name.isidentifier()]:
        raise ValueError(f"expanded config: {odd[0]!r} is no name of a parameter of Python")
    lists = {
        key: fields.value(key, checking.TEXTS) if key in fields else ()
        for key in ("options", "entries", "parameters")
    }
    return Build(
        macros={name: macros.value(name, checking.TEXT) for name in macros},
        options=tuple(lists["options"]),
        source=None if fields.get("source") is None else fields.value("source", checking.NAME),
        entries=tuple(lists["entries"]),
        parameters={name: configuration[name] for name in lists["parameters"]},
        config=None if config is None else {name: config.value(name, checking.VALUE) for name in config},
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
        return self.energy_j * self.time_s ** TIME_EXPONENT.get(objective, 0)  # a file may name any objective


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
        timing: of its times.
        sizes: of each workload, with those that its name leaves out where its kernel is here.
    """

    device: str
    objective: str
    workloads: tuple[str, ...]
    trials: tuple[ExportedTrial, ...]
    best: ExportedTrial | None
    problem_size: tuple[int, ...] = ()
    expanded: tuple[Expanded | None, ...] = ()
    timing: str = BACK_TO_BACK
    sizes: tuple[Mapping[str, str], ...] = ()

    @property
    def goal(self) -> str:
        """The objective, with the timing where it is not that of rounds back to back."""
        return described(self.objective, None, timing=self.timing)

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
        index = self.workloads.index(name)
        best = self.answer()
        return replace(
            self,
            workloads=(name,),
            trials=(),
            best=replace(best, configurations=(best.configurations[index],)),
            expanded=self.expanded[index : index + 1],
            sizes=self.sizes[index : index + 1],
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


def run_of_document(document: object, where: str) -> ExportedRun:
    """The run of a document of ``tuner run --json``.

    Args:
        document: the JSON value.
        where: what messages begin with.

    Raises:
        InputError: it is no such document; the message names the key.
    """
    try:
        fields = Fields(document, where)
        listed = [Fields(each, "workloads") for each in fields.entries("workloads")]
        workloads = tuple(workload.value("name", checking.NAME) for workload in listed)
        device = fields.fields("device", "device").value("name", checking.TEXT)
        if not workloads:
            raise ValueError(f"{where}: workloads is empty")  # noqa: TRY301 - worded below
        trials = [Fields(each, f"trials[{i}]") for i, each in enumerate(fields.get("trials") or [])]
        best = fields.get("best")
        return ExportedRun(
            device=device,
            objective=fields.value("objective", checking.NAME).split()[0],
            workloads=workloads,
            trials=tuple(_trial(trial, workloads) for trial in trials),
            best=None if best is None else _trial(Fields(best, "best"), workloads),
            problem_size=_sizes(workloads),
            expanded=tuple(workload.get("expanded") for workload in listed),
            timing=timing_of(fields.value("objective", checking.NAME)),
            sizes=tuple(dict(WorkloadName.parse(name).sizes) for name in workloads),
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
    unknown, builds, sizes = [], list(run.expanded), list(run.sizes)
    for i, (name, listed) in enumerate(zip(run.workloads, document["workloads"], strict=True)):
        kernel = kernels.get(run.kernels[i])
        if kernel is None or sources.get(kernel.name) != kernel.fingerprint:
            unknown.append(name)
            continue
        try:
            workload = kernel.workload(dict(WorkloadName.parse(name).sizes), listed.get("batch"))
            sizes[i] = {size: str(value) for size, value in workload.sizes}
            configurations = {
                values: stored_configuration(kernel, workload, values)
                for values in dict.fromkeys(trial.configurations[i] for trial in trials)
            }
            if run.best is not None:
                builds[i] = build_record(kernel, workload, configurations[run.best.configurations[i]])
        except InputError as error:
            raise InputError(
                f"{name}: a configuration of its run is none of the kernel, so nothing is exported: {error}"
            ) from error
    return replace(run, expanded=tuple(builds), sizes=tuple(sizes)), unknown


def _trial(record: Fields, workloads: Sequence[str]) -> ExportedTrial:
    configurations = record.fields("configurations", record.where)
    parts = record.get("workloads") or {}
    details = (str(part.get("detail", "")) for part in parts.values())
    energy = Fields({"energy_j": record.get("energy_j")}, record.where)  # earlier versions leave it out
    values = [configurations.fields(name, record.where) for name in workloads]
    return ExportedTrial(
        configurations=tuple(
            Configuration({name: each.value(name, checking.VALUE) for name in each}) for each in values
        ),
        status=Status(record.value("status", checking.STATUS)),
        detail=next(filter(None, details), ""),
        time_s=record.value("time_s", checking.POSITIVE, optional=True),
        energy_j=energy.value("energy_j", checking.AMOUNT, optional=True),
        energy_uncertainty_j=float(record.get("energy_j_uncertainty") or 0.0),
        clock_mhz=record.get("clock_mhz"),
        power_limit_w=record.get("power_limit_w"),
    )


def run_of_space(space: "RecordedSpace") -> ExportedRun:
    """A recorded space as a run, whose best trial is the fastest."""
    trials = tuple(_exported(trial, measurement) for trial, measurement in space.trials.items())
    costs = [(trial.cost("time"), i) for i, trial in enumerate(trials)]
    measured = [(cost, i) for cost, i in costs if cost is not None]
    sizes = [value for workload in space.workloads for value in workload.sizes.values()]
    return ExportedRun(
        device=space.identity.name,
        objective="time",
        workloads=space.names,
        trials=trials,
        best=trials[min(measured)[1]] if measured else None,
        problem_size=tuple(value for value in sizes if isinstance(value, int)),
        sizes=tuple({k: str(value) for k, value in one.sizes.items()} for one in space.workloads),
    )


def _exported(trial: Trial, measurement: Measurement) -> ExportedTrial:
    energy = measurement.energy
    return ExportedTrial(
        configurations=trial.configurations,
        status=measurement.status,
        detail=next((result.detail for result in measurement.results if result.detail), ""),
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
    goals = {run.goal for run in runs}
    if len(kernels) > 1 or len(goals) > 1:
        several = ", ".join(sorted(kernels if len(kernels) > 1 else goals))
        raise InputError(f"a results file is of one kernel and one objective; these runs have {several}")
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
    costs = [(cost, trial) for trial in trials if (cost := trial.cost(run.objective)) is not None]
    if not costs:
        raise InputError(
            f"{' + '.join(run.workloads)}: no trial has a valid {run.objective}; nothing to export"
        )
    best = min(cost for cost, _ in costs)
    return [
        {
            "device_name": device_word(run.device),
            "problem_size": "x".join(map(str, run.problem_size)),
            "tunable_parameters": run.parameters(trial),
            run.objective: milliseconds(cost) if run.objective == "time" else cost,
        }
        for cost, trial in sorted(costs, key=lambda pair: pair[0])
        if cost <= best * (1 + TOP)
    ]


def device_word(name: str) -> str:
    """A device as the file names it: every run of characters but letters and digits is one underscore."""
    return re.sub("[^0-9a-zA-Z]+", "_", name.strip())
