"""What ``tune_kernel`` returns: results in order, the environment, and the cache file beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tuner.devices.base import Device
from tuner.expressions.callables import PythonExpression
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_tuner.cache import CacheFile, Row, Wanted, open_cache
from tuner.kernel_tuner.kernel import KernelCall, conditions_of
from tuner.kernel_tuner.listening import say
from tuner.kernel_tuner.parameters import PLACEHOLDER, Parameters, shown
from tuner.kernel_tuner.results import best_of, dropped_rows, environment, params_of, row_of
from tuner.kernel_tuner.tuning_call import TuningCall
from tuner.kernel_tuner.util import get_config_string
from tuner.model.errors import VerificationError
from tuner.model.plan import Configuration
from tuner.model.records import PROTOCOL
from tuner.search.tuning import TuningResult


def rows_of(call: TuningCall, space: Sequence[Configuration], result: TuningResult) -> list[Row]:
    """Results of all trials of a run, then of what was ruled out before it ran."""
    rows = [row_of(trial.configurations[0], m, call.metrics) for trial, m in result.outcome.trials]
    return rows + _dropped(call, space, rows, result)


def _dropped(
    call: TuningCall, space: Sequence[Configuration], rows: Sequence[Row], result: TuningResult
) -> list[Row]:
    """Results of what was ruled out; configurations that a limit has left are none."""
    (workload,) = result.document["workloads"]
    known = [{n: row[n] for n in call.kernel.tunables if n in row} for row in rows]
    known += [candidate["configuration"] for candidate in workload["candidates"]]
    found = dropped_rows(space, known, workload["compile_errors"])
    if call.verbose:
        for row in found:
            values = {name: row[name] for name in call.kernel.tunables if name in row}
            say(f"skipping config {shown(values)}, reason: {row['__error__']}")
    return found


# --- the cache file ------------------------------------------------------------------------------


def cache_of(call: TuningCall, device: Device, kernel: KernelFile) -> CacheFile | None:
    """The cache file of a call; None where it asks for none.

    Args:
        call: the call.
        device: its device.
        kernel: with all configurations of the call.

    Raises:
        InputError: it cannot be used.
    """
    if not call.cache:
        return None
    (workload,) = kernel.workloads()

    def is_allowed(row: Mapping[str, Any]) -> bool:
        """Hold a result against the parameters and the restrictions of this call."""
        values = {name: row.get(name, listed[0]) for name, listed in call.kernel.tunables.items()}
        return kernel.allowed(workload, values) is not None

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


# --- what is returned ----------------------------------------------------------------------------


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
    environment_ = environment(device.identity, call.kernel.options, wall_s) | {"best_config": best}
    if best is not None and not call.quiet:
        keys = [*_values(call, best), call.aim.key, *(call.metrics or {})]
        say(f"\nBEST PERFORMING CONFIGURATION FOR OBJECTIVE {call.aim.key}:")
        say(get_config_string(best, [*keys, "time"], {"time": "ms"}))
    return rows, environment_


def _values(call: TuningCall, row: Row) -> dict[str, Any]:
    return {name: row[name] for name in call.kernel.tunables if name in row}


def _place(call: TuningCall, row: Row) -> tuple[int, ...]:
    return tuple(
        values.index(row[name]) if row.get(name) in values else -1
        for name, values in call.kernel.tunables.items()
    )
