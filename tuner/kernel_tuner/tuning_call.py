"""A call of ``tune_kernel``: in the words of a run, the lines it prints, and what it returns."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from tuner.devices.base import Device
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_tuner.call_arguments import PLACEHOLDER, Parameters, shown
from tuner.kernel_tuner.strategies import MappedSearch
from tuner.kernel_tuner.translation import KernelCall, conditions_of
from tuner.kernel_tuner.trial_results import (
    Aim,
    CacheFile,
    Judge,
    Metrics,
    Row,
    Wanted,
    best_of,
    dropped_rows,
    environment,
    open_cache,
    params_of,
    row_of,
)
from tuner.kernel_tuner.util import get_config_string
from tuner.model.errors import VerificationError
from tuner.model.expressions.callables import PythonExpression
from tuner.model.plan import Configuration
from tuner.model.records import PROTOCOL
from tuner.search.answer import Outcome
from tuner.search.request import SearchRequest
from tuner.search.session import TrialEvent
from tuner.system.untrusted.reading import plain

# --- What a call prints while it runs, and writes to its cache file.


class Listener:
    """Hears how a run comes on; see ``tuner.search.session.SearchListener``.

    Args:
        call: what is run.
        cache: gets every result at once; None for no cache file.
    """

    def __init__(self, call: "TuningCall", cache: CacheFile | None) -> None:
        self._call = call
        self._cache = cache

    def compiled(self, done: int, total: int) -> None:
        """Compiling is not told."""

    def told(self, sentence: str) -> None:
        """Ignore messages of policies: they are in the stored run."""

    def measured(self, event: TrialEvent) -> None:
        """A trial has ended: one line, and one entry of the cache file."""
        if event.confirming:
            return
        call, configuration = self._call, event.trial.configurations[0]
        row = row_of(configuration, event.measurement, call.metrics, call.judge)
        if self._cache is not None:
            self._cache.add(row)
        if not call.quiet:
            say(line(params_of(configuration), row, call.metrics))


def line(params: Row, row: Row, metrics: Metrics | None) -> str:
    """One result as Kernel Tuner prints it: parameters, time in ms, metrics."""
    if "__error__" in row:
        return f"{shown(params)}, {row['__error__']}: {row.get('error_detail', '')}".rstrip(": ")
    values = {name: f"{row[name]:.3f}" for name in metrics or {} if name in row}
    return shown({**params, "time": f"{row['time']:.3f}ms", **values})


def say(text: str) -> None:
    """Print to standard output, as Kernel Tuner does."""
    print(plain(text), flush=True)  # noqa: T201 - what its users expect


# --- The call as a run.

_WINDOW_S = 0.1  # of every trial where the best is judged by a metric: none may be cut short for its time


@dataclass(frozen=True)
class TuningCall:
    """A call of ``tune_kernel``, read and checked.

    Attributes:
        kernel: what it says of the kernel.
        search: how to search.
        aim: what is best.
        judge: which answers are right; None where nobody says.
        metrics: computed from every result.
        device_spec: see ``open_device``.
        cache: name of a cache file, or None.
        quiet: print nothing.
        verbose: print what was left out, too.
    """

    kernel: KernelCall
    search: MappedSearch
    aim: Aim
    judge: Judge | None
    metrics: Metrics | None
    device_spec: str | None
    cache: Any = None
    quiet: bool = False
    verbose: bool = False

    def request(self, workload: str, budget: int | None) -> SearchRequest:
        """The same in the words of a run.

        A search for energy spares trials their joules that cannot be the best; metrics and cache files need
        those, and so does a window that is as long as the sensor needs.
        """
        all_joules = self.aim.objective == "time" or self.metrics or self.cache
        return SearchRequest(
            workloads=(workload,),
            objective=self.aim.objective,
            policy=self.search.policy,
            budget=budget,
            time_limit_s=self.search.time_limit_s,
            window_s=_WINDOW_S if self.aim.is_metric and not self.aim.joules else None,
            seed=self.search.seed,
            joules=self.aim.joules and bool(all_joules),
        )


# --- What ``tune_kernel`` returns: results in order, the environment, and the cache file beside them.


def rows_of(call: TuningCall, space: Sequence[Configuration], outcome: Outcome) -> list[Row]:
    """Results of all trials of a run, then of what was ruled out before it ran."""
    rows = [row_of(trial.configurations[0], m, call.metrics, call.judge) for trial, m in outcome.trials]
    return rows + _dropped(call, space, rows, outcome)


def _dropped(
    call: TuningCall, space: Sequence[Configuration], rows: Sequence[Row], outcome: Outcome
) -> list[Row]:
    """Results of what was ruled out; configurations that a limit has left are none."""
    (workload,) = outcome.document["workloads"]
    known = [{n: row[n] for n in call.kernel.tunables if n in row} for row in rows]
    known += [candidate["configuration"] for candidate in workload["candidates"]]
    result = dropped_rows(space, known, workload["compile_errors"])
    if call.verbose:
        for row in result:
            values = {name: row[name] for name in call.kernel.tunables if name in row}
            say(f"skipping config {shown(values)}, reason: {row['__error__']}")
    return result


def cache_of(call: TuningCall, device: Device, kernel: KernelFile) -> CacheFile | None:
    """The cache file of a call; None where it asks for none.

    Raises:
        InputError: it cannot be used.
    """
    if not call.cache:
        return None
    (workload,) = kernel.workloads()

    def is_allowed(row: Row) -> bool:
        """Hold a result against the parameters and the restrictions of this call."""
        values = {name: row.get(name, listed[0]) for name, listed in call.kernel.tunables.items()}
        return kernel.allowed(workload, cast("Parameters", values)) is not None

    made_with = {
        **conditions_of(call.kernel),
        "answer": "none" if call.judge is None else call.judge.digest[:16],
        "driver": device.identity.driver,
        "CUDA": device.identity.runtime,
        "way of measuring": str(PROTOCOL),
    }
    return open_cache(
        call.cache,
        device_name=device.identity.name,
        kernel_name=call.kernel.name,
        problem_size=call.kernel.geometry.problem_size,
        tunables={n: values for n, values in call.kernel.tunables.items() if n != PLACEHOLDER},
        wanted=Wanted(made_with, call.aim, call.metrics, is_allowed),
    )


def without_known(kernel: KernelCall, cache: CacheFile | None) -> KernelCall:
    """The call without the configurations that a cache file has."""
    if cache is None or not cache.rows:
        return kernel
    known = frozenset(cache.rows)

    def is_new(params: Parameters) -> bool:
        return cache.key(params) not in known

    rule = PythonExpression(is_new, list(kernel.tunables), "not in the cache file")
    return replace(kernel, rules=(*kernel.rules, rule))


def only(kernel: KernelCall, configuration: Configuration) -> KernelCall:
    """The call with one configuration."""

    def is_it(params: Parameters) -> bool:
        return all(params[name] == value for name, value in configuration.items())

    rule = PythonExpression(is_it, list(kernel.tunables), "locked")
    return replace(kernel, rules=(*kernel.rules, rule))


def returned(
    call: TuningCall, device: Device, rows: list[Row], cache: CacheFile | None, wall_s: float
) -> tuple[list[Row], dict[str, Any]]:
    """Close the cache file, and pair all results with the environment and the best configuration.

    Raises:
        VerificationError: every result is a wrong answer.
    """
    fresh = {frozenset(params_of(_values(call, row)).items()) for row in rows}
    if cache is not None:
        rows = [
            *(row for row in cache.rows.values() if frozenset(_values(call, row).items()) not in fresh),
            *rows,
        ]
        cache.close(rows)
    if call.search.policy == "exhaustive":
        rows = sorted(rows, key=lambda row: _place(call, row))
    best = best_of(rows, call.aim)
    wrong = [row for row in rows if row.get("__error__") == "ErrorConfig"]
    if best is None and wrong and call.judge is not None:
        raise VerificationError(
            f"Kernel result verification failed for: {shown(_values(call, wrong[0]))}:"
            f" {wrong[0].get('error_detail', '')}; no configuration is right"
        )
    if best is None and any("time" in row and call.aim.key not in row for row in rows):
        warnings.warn(
            f"objective: {device.identity.spec} does not tell {call.aim.key}: no configuration is the best",
            stacklevel=4,
        )
    environment_ = environment(device.identity, call.kernel.options, wall_s) | {"best_config": best}
    if best is not None and not call.quiet:
        keys = [*_values(call, best), call.aim.key, *(call.metrics or {})]
        say(f"\nBEST PERFORMING CONFIGURATION FOR OBJECTIVE {call.aim.key}:")
        say(get_config_string(best, [*keys, "time"], {"time": "ms"}))
    return rows, environment_


def _values(call: TuningCall, row: Row) -> Row:
    return {name: row[name] for name in call.kernel.tunables if name in row}


def _place(call: TuningCall, row: Row) -> tuple[int, ...]:
    return tuple(
        values.index(row[name]) if row.get(name) in values else -1
        for name, values in call.kernel.tunables.items()
    )
