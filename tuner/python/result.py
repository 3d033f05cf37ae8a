"""The result of a tuning run, as an object and as a picture."""

import io
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tuner.model.errors import InputError, UnknownNameError
from tuner.model.plan import Configuration, shown_values, without_place
from tuner.model.records import WorkloadName
from tuner.model.run_document import RunDocument
from tuner.recordings.exchange.exported_run import build_of
from tuner.system.ownership import open_result

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Group

    from tuner.application import TunedKernel
    from tuner.kernel_files.kernel_file import KernelFile
    from tuner.model.plan import TunableValue


_MS, _MJ = 1e3, 1e3


def search_figure(result: Any) -> "Figure":  # noqa: ANN401 - a Result, which imports this
    """Time of every valid trial in the order of measuring, joules below where they were measured.

    Raises:
        InputError: Matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise InputError(f"plot: Matplotlib cannot be imported ({error}): pip install matplotlib") from error
    trials = [trial for trial in result.trials if trial.time_s is not None]
    with_joules = [trial for trial in trials if trial.energy_j is not None]
    label = " (modelled)" if result.modelled else ""
    figure = Figure(figsize=(7, 3 if not with_joules else 5), layout="constrained")
    axes = figure.subplots(2 if with_joules else 1, 1, sharex=True, squeeze=False)[:, 0]
    _cost(axes[0], [t.number for t in trials], [_MS * t.time_s for t in trials], f"time, ms{label}")
    if with_joules:
        numbers = [trial.number for trial in with_joules]
        _cost(axes[1], numbers, [_MJ * t.energy_j for t in with_joules], f"energy, mJ{label}")
        spread = [2 * _MJ * (t.energy_uncertainty_j or 0.0) for t in with_joules]
        joules = [_MJ * t.energy_j for t in with_joules]
        axes[1].errorbar(numbers, joules, yerr=spread, fmt="none", ecolor="0.6", lw=0.8)
    axes[-1].set_xlabel("trial")
    axes[0].set_title(" + ".join(result.workloads), fontsize="medium")
    return figure


def _cost(axes: Any, numbers: list[int], costs: list[float], title: str) -> None:  # noqa: ANN401 - untyped
    lowest: list[float] = []
    for cost in costs:
        lowest.append(min(cost, lowest[-1] if lowest else cost))
    axes.plot(numbers, costs, ".", color="0.5", label="trial")
    axes.step(numbers, lowest, where="post", color="tab:blue", label="lowest so far")
    axes.set_ylabel(title)
    axes.legend(fontsize="small")


_WIDTH = 100  # characters of a report where there is no terminal
_LEAST_WIDTH = 40
_COLUMNS = (
    "number",
    "status",
    "time_s",
    "energy_j",
    "energy_uncertainty_j",
    "power_w",
    "clock_mhz",
    "power_limit_w",
)


@dataclass(frozen=True)
class TrialRow:
    """One trial.

    Attributes:
        number: in the order of measuring, from 1.
        configurations: values of the tunables by workload.
        status: ``ok``, or what failed.
        time_s: makespan of a round; None where it failed.
        time_uncertainty_s: its standard uncertainty.
        energy_j: joules of a round; None where none were measured.
        energy_uncertainty_j: their standard uncertainty.
        power_w: mean power.
        clock_mhz: the clock that was set; None for the clock as found.
        power_limit_w: the power limit that was set; None for that as found.
        detail: of a failure.
    """

    number: int
    configurations: Mapping[str, Mapping[str, "TunableValue"]]
    status: str
    time_s: float | None
    time_uncertainty_s: float | None
    energy_j: float | None
    energy_uncertainty_j: float | None
    power_w: float | None
    clock_mhz: int | None
    power_limit_w: int | None = None
    detail: str = ""

    @property
    def configuration(self) -> "Mapping[str, TunableValue]":
        """The values of the tunables; of several workloads, those of the first."""
        return next(iter(self.configurations.values()))


class Result:
    """Result of a tuning run.

    Args:
        document: of the run, as ``tuner run --json`` writes it.
        kernels: workload -> its kernel; None to find them by the files of the run, or in the catalogue.

    Attributes:
        document: see there; uncertainties in it are standard uncertainties.
    """

    def __init__(
        self, document: RunDocument, kernels: "Mapping[str, Callable[[], KernelFile]] | None" = None
    ) -> None:
        self.document = document.copy()
        self._kernels = {} if kernels is None else kernels
        self._applicable: TunedKernel | None = None

    # --- the answer ------------------------------------------------------------------------------

    @property
    def workloads(self) -> tuple[str, ...]:
        """Names of the workloads that were tuned together."""
        return tuple(workload["name"] for workload in self.document["workloads"])

    @property
    def configurations(self) -> "dict[str, dict[str, TunableValue]]":
        """The best configuration of every workload; empty where no trial was valid."""
        best = self.document["best"]
        return {} if best is None else {name: dict(best["configurations"][name]) for name in self.workloads}

    @property
    def best(self) -> "dict[str, TunableValue]":
        """The best configuration of the only workload.

        Raises:
            InputError: there are several workloads, or no trial was valid.
        """
        found = self.configurations
        if not found:
            when = "it was interrupted before a trial" if self.interrupted else "no trial"
            raise InputError(f"{when} was valid: there is no best configuration; see trials")
        if len(found) > 1:
            raise InputError(f"{len(found)} workloads were tuned: use configurations[{next(iter(found))!r}]")
        return next(iter(found.values()))

    @property
    def kernel(self) -> "TunedKernel":
        """The kernel of the only workload in its best configuration, as a function of arrays.

        Raises:
            InputError: there is no best configuration, or several workloads; or the kernel is not here as it
                was tuned.
        """
        if self._applicable is None:
            from tuner.application import TunedKernel  # noqa: PLC0415 - results are read without a GPU, too

            values = without_place(Configuration(self.best))
            (name,) = self.workloads
            file = self._kernels[name]() if name in self._kernels else self._found(name)
            parsed = WorkloadName.parse(name)
            workload = file.workload(dict(parsed.sizes), self.document["workloads"][0]["batch"])
            self._applicable = TunedKernel(file, workload, values)
        return self._applicable

    def applicable(self) -> "TunedKernel":
        """The kernel as ``tuner.apply`` takes it."""
        return self.kernel

    def _found(self, workload: str) -> "KernelFile":
        """The kernel of a workload of a document that was read."""
        from tuner.kernel_files.build_record import with_kernels_of  # noqa: PLC0415 - same
        from tuner.kernel_files.catalog import Catalog  # noqa: PLC0415 - same

        catalog, reasons = with_kernels_of(Catalog.load(), self.document, self.run)
        name = WorkloadName.parse(workload).kernel
        if name in reasons:
            raise InputError(f"{name}: is not here as it was tuned: {reasons[name]}")
        kernel = catalog.kernel(name)
        if (self.document.get("sources") or {}).get(name) != kernel.fingerprint:
            raise InputError(
                f"{name}: has changed since it was tuned ({kernel.path}); to launch it as it is now:"
                f" tuner.apply({str(kernel.path)!r}, ..., configuration=result.best)"
            )
        return kernel

    @property
    def time_s(self) -> float | None:
        """Makespan of a round in the best configuration, in seconds."""
        return self._of_best("time_s")

    @property
    def energy_j(self) -> float | None:
        """Joules of a round in the best configuration; None where none were measured."""
        return self._of_best("energy_j")

    @property
    def energy_uncertainty_j(self) -> float | None:
        """Standard uncertainty of ``energy_j``."""
        return self._of_best("energy_j_uncertainty")

    @property
    def clock_mhz(self) -> int | None:
        """The best GPU clock; None for the clock as found."""
        best = self.document["best"]
        return None if best is None else best["clock_mhz"]

    @property
    def power_limit_w(self) -> int | None:
        """The best power limit; None for that as found."""
        best = self.document["best"]
        return None if best is None else best.get("power_limit_w")

    @property
    def interrupted(self) -> bool:
        """True where Ctrl-C ended the search; the answer is what was known by then."""
        return bool(self.document["status"] == "interrupted")

    @property
    def modelled(self) -> bool:
        """True where a simulated device made the numbers: no GPU ran."""
        return bool(self.document["modelled"])

    @property
    def run(self) -> int | None:
        """Number of the run in the database, as ``tuner show`` takes it; None where it is not stored."""
        return self.document.get("run")

    def flags(self, workload: str | None = None) -> str:
        """The best configuration as options of a compiler: ``-Dblock_size_x=256``.

        Args:
            workload: which one, where several were tuned.

        Raises:
            InputError: there is no best configuration, several and none is named, or a value is not safe in a
                command of a shell.
            UnknownNameError: there is no such workload.
        """
        if workload is None:
            return build_of(self.best, self.document["workloads"][0].get("expanded")).pasted()
        if workload not in self.configurations:
            raise UnknownNameError(f"no workload {workload!r}; choose from {', '.join(self.workloads)}")
        record = self.document["workloads"][self.workloads.index(workload)].get("expanded")
        return build_of(self.configurations[workload], record).pasted()

    # --- the trials ------------------------------------------------------------------------------

    @property
    def trials(self) -> list[TrialRow]:
        """Every trial in the order of measuring."""
        return [_row(i, trial) for i, trial in enumerate(self.document.get("trials", ()), start=1)]

    def to_dict(self) -> dict[str, list[Any]]:
        """The trials as columns, ready for ``pandas.DataFrame``.

        Tunables are columns of their own, of several workloads as ``workload.tunable``; None stands for what
        a trial does not have.
        """
        rows = self.trials
        columns: dict[str, list[Any]] = {"number": [row.number for row in rows]}
        for workload in self.workloads:
            prefix = f"{workload}." if len(self.workloads) > 1 else ""
            names = dict.fromkeys(name for row in rows for name in row.configurations[workload])
            for name in names:
                columns[f"{prefix}{name}"] = [row.configurations[workload].get(name) for row in rows]
        return columns | {name: [getattr(row, name) for row in rows] for name in _COLUMNS[1:]}

    def plot(self) -> "Figure":
        """The trials in the order of measuring, and the lowest cost so far: a figure of Matplotlib.

        Raises:
            InputError: Matplotlib is not installed.
        """
        return search_figure(self)

    def save(self, path: str | Path) -> None:
        """Write the document as JSON, which ``tuner show`` reads.

        Raises:
            InputError: the file cannot be written.
        """
        try:
            with open_result(Path(path), "w") as file:
                file.write(json.dumps(self.document, indent=2, allow_nan=False) + "\n")
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from error

    # --- for people ------------------------------------------------------------------------------

    def report(self, width: int = _WIDTH, *, verbose: bool = False) -> str:
        """The report that ``tuner run`` prints, as text.

        Args:
            width: characters of a line, 40 at least.
            verbose: everything that is known.
        """
        from tuner.report.layout import PlainConsole  # noqa: PLC0415 - results need no terminal

        out = PlainConsole(file=io.StringIO(), width=max(width, _LEAST_WIDTH), color_system=None)
        with out.capture() as captured:
            out.print(self._rendered(width, verbose=verbose))
        return captured.get()

    def __str__(self) -> str:
        return self.report().rstrip("\n")

    def __repr__(self) -> str:
        if self.document["best"] is None:
            return f"Result({', '.join(self.workloads)}: no valid trial)"
        values = " + ".join(map(shown_values, self.configurations.values()))
        modelled = ", modelled" if self.modelled else ""
        return f"Result({', '.join(self.workloads)}: {values}, {_ms(self.time_s)}{modelled})"

    def __rich__(self) -> "Group":
        import shutil  # noqa: PLC0415 - only for terminals

        return self._rendered(shutil.get_terminal_size((_WIDTH, 24)).columns)

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: the page of ``tuner report`` in a frame, some 0.9 MB."""
        from tuner.report.html.report import notebook_frame  # noqa: PLC0415 - only in notebooks

        return notebook_frame(self.document)

    def _rendered(self, width: int, *, verbose: bool = False) -> "Group":
        from tuner.report.run_report import run_report  # noqa: PLC0415 - results need no terminal

        return run_report(self.document, width, verbose=verbose)

    def _of_best(self, key: Literal["time_s", "energy_j", "energy_j_uncertainty"]) -> float | None:
        best = self.document["best"]
        return None if best is None else best.get(key)


def _row(number: int, trial: Mapping[str, Any]) -> TrialRow:
    details = (result["detail"] for result in trial["workloads"].values())
    return TrialRow(
        number=number,
        configurations={name: dict(values) for name, values in trial["configurations"].items()},
        status=trial["status"],
        time_s=trial["time_s"],
        time_uncertainty_s=trial["time_s_uncertainty"],
        energy_j=trial["energy_j"],
        energy_uncertainty_j=trial["energy_j_uncertainty"],
        power_w=trial["power_w"],
        clock_mhz=trial["clock_mhz"],
        power_limit_w=trial.get("power_limit_w"),
        detail="; ".join(filter(None, details)) if trial["status"] != "ok" else "",
    )


def _ms(seconds: float | None) -> str:
    return "no time" if seconds is None or not math.isfinite(seconds) else f"{1e3 * seconds:.4g} ms"
