"""Runs the calls: opens the device, finds out which arrays are written, searches, and judges answers."""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tuner.config import KernelFile
from tuner.config.catalog import Catalog
from tuner.database import Store
from tuner.devices.worker import WorkerDevice, open_device
from tuner.errors import (
    CompileError,
    DeviceError,
    DeviceUnavailableError,
    EmptySpaceError,
    VerificationError,
)
from tuner.interfaces import Check, Device
from tuner.kernel_tuner.answers import Judge
from tuner.kernel_tuner.arguments import GivenArray, GivenScalar, HostArray, restored, save
from tuner.kernel_tuner.cache import CacheFile, Row, open_cache
from tuner.kernel_tuner.kernel import KernelCall, kernel_file_of
from tuner.kernel_tuner.listening import Listener, say
from tuner.kernel_tuner.objectives import Aim, Metrics
from tuner.kernel_tuner.parameters import PLACEHOLDER, Parameters, UserValue, shown
from tuner.kernel_tuner.restrictions import FunctionRule
from tuner.kernel_tuner.results import best_of, dropped_rows, environment, params_of, row_of
from tuner.kernel_tuner.strategies import MappedSearch
from tuner.model import Configuration, Plan, RunStatus, Status, Workload
from tuner.search.request import Request
from tuner.search.setup import MeasurementSetup, open_setup
from tuner.search.tuning import TuningResult, tune

_WINDOW_S = 0.1  # of every trial where the best is judged by a metric: none may be cut short for its time
_SEED = 0  # inputs are the caller's: no seed changes them


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

    def request(self, workload: str, budget: int | None) -> Request:
        """The same in the words of a run."""
        return Request(
            workloads=(workload,),
            objective=self.aim.objective,
            policy=self.search.policy,
            budget=budget,
            time_limit_s=self.search.time_limit_s,
            window_s=_WINDOW_S if self.aim.is_metric else None,
            seed=self.search.seed,
            joules=self.aim.joules and self.aim.objective == "time",
        )


def tuned(call: TuningCall) -> tuple[list[Row], dict[str, Any]]:
    """Search, and return Kernel Tuner's pair: results, and what they were measured on.

    Raises:
        DeviceUnavailableError: the device cannot be opened.
        EmptySpaceError: the restrictions leave nothing, or nothing compiles.
        VerificationError: no configuration gave a right answer.
        KeyboardInterrupt: the user stopped it; what was measured is in the cache file.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tuner-arguments-")))
        paths = save((*call.kernel.arrays, *call.kernel.constants), folder)
        setup = stack.enter_context(open_setup(call.device_spec, call.request("", None)))
        if not call.quiet:
            say(f"Using: {setup.device.identity.name}")
        cache = _cache(call, setup.device)
        kernel = kernel_file_of(_without_known(call.kernel, cache), paths, writable(call.kernel, call.judge))
        try:
            (workload,) = kernel.workloads()
            space = kernel.space(workload)
        except EmptySpaceError:
            if cache is None or not cache.rows:
                raise
            return _returned(call, setup.device, [], cache, 0.0)
        if call.verbose:
            say(f"Searchspace has {len(space)} configurations after restrictions.")
        kernel = _with_roles(call, kernel, workload, paths, setup.device)
        _verify(call, setup.device)
        listener = Listener(call.metrics, cache, quiet=call.quiet)
        result = _searched(call, kernel, workload, setup, listener, stack)
        rows = [_row(call, trial.configurations[0], m) for trial, m in result.outcome.trials]
        rows += _dropped(call, space, rows, result)
        wall_s = result.outcome.wall_s
        if result.outcome.status is RunStatus.INTERRUPTED:
            _returned(call, setup.device, rows, cache, wall_s)
            raise KeyboardInterrupt
        return _returned(call, setup.device, rows, cache, wall_s)


def run_once(kernel: KernelCall, device_spec: str | None) -> list[Any]:
    """Run the only configuration of a call once.

    Returns:
        The arguments after the run: arrays as NumPy's, scalars as they were given.

    Raises:
        DeviceUnavailableError: there is no GPU.
        CompileError: the source does not compile.
        DeviceError: it cannot be launched, or fails.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tuner-arguments-")))
        paths = save((*kernel.arrays, *kernel.constants), folder)
        device = stack.enter_context(closing(open_device(device_spec).device))
        if not isinstance(device, WorkerDevice):
            raise DeviceUnavailableError(
                f"run_kernel: {device.identity.spec} computes nothing; it needs a GPU"
            )
        file = kernel_file_of(kernel, paths, writable(kernel, None))
        (workload,) = file.workloads()
        plan = file.plan(workload, file.default(workload))
        check, arrays = device.outputs(plan, _SEED, [one.name for one in kernel.arrays])
    if check.status is not Status.OK:
        kind = CompileError if check.status is Status.COMPILE_ERROR else DeviceError
        raise kind(f"run_kernel: {kernel.name}: {check.status.value}: {check.detail}")
    return [
        one.value if isinstance(one, GivenScalar) else restored(one, arrays[one.name])
        for one in kernel.arguments
    ]


def writable(kernel: KernelCall, judge: Judge | None) -> tuple[str, ...]:
    """Names of the arrays that a kernel may write, as far as its source and the answer tell."""
    answered = set() if judge is None or judge.answer is None else set(judge.wanted)
    found = tuple(one.name for one in kernel.arrays if not one.const or one.name in answered)
    return found or tuple(one.name for one in kernel.arrays[-1:])


def _with_roles(
    call: TuningCall, kernel: KernelFile, workload: Workload, paths: Mapping[str, Path], device: Device
) -> KernelFile:
    """The kernel file with arrays that no run writes marked so: they are not filled anew for every window.

    One run of the first configuration tells which those are.
    """
    names = writable(call.kernel, call.judge)
    if not isinstance(device, WorkerDevice):
        return kernel
    check, arrays = device.outputs(kernel.plan(workload, kernel.default(workload)), _SEED, names)
    if check.status is not Status.OK:
        return kernel
    answered = () if call.judge is None or call.judge.answer is None else call.judge.wanted
    written = [
        one.name
        for one in call.kernel.arrays
        if one.name in arrays and (one.name in answered or _changed(one, arrays[one.name]))
    ]
    if not written or len(written) == len(names):
        return kernel
    found = kernel_file_of(call.kernel, paths, written)
    return replace(kernel, recipe=replace(kernel.recipe, buffers=found.recipe.buffers))


def _changed(given: GivenArray, array: HostArray) -> bool:
    before, after = given.stored.reshape(-1).view(np.uint8), array.reshape(-1).view(np.uint8)
    return not np.array_equal(before, after)


def _verify(call: TuningCall, device: Device) -> None:
    """Have every configuration judged by what the caller says of answers."""
    judge = call.judge
    if judge is None:
        return
    if isinstance(device, WorkerDevice):

        def verified(plan: Plan, seed: int) -> Check:
            return judge.check(device, plan, seed)

        device.verifier = verified
    elif not call.quiet:
        say(f"answers are not checked: {device.identity.spec} computes nothing")


def _searched(  # noqa: PLR0917 - the parts of one run
    call: TuningCall,
    kernel: KernelFile,
    workload: Workload,
    setup: MeasurementSetup,
    listener: Listener,
    stack: ExitStack,
) -> TuningResult:
    request = call.request(str(workload), call.search.budget_of(len(kernel.space(workload))))
    request.check()
    store = stack.enter_context(Store())
    return tune(setup, request, Catalog({kernel.name: kernel}), store, listener, resume=False)


def _row(call: TuningCall, configuration: Configuration, measurement: UserValue) -> Row:
    return row_of(configuration, measurement, call.metrics)


def _dropped(
    call: TuningCall, space: Sequence[Configuration], rows: Sequence[Row], result: TuningResult
) -> list[Row]:
    """Results of what was ruled out before it ran; those left by a limit are none."""
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


def _cache(call: TuningCall, device: Device) -> CacheFile | None:
    if not call.cache:
        return None
    return open_cache(
        call.cache,
        device_name=device.identity.name,
        kernel_name=call.kernel.name,
        problem_size=call.kernel.geometry.problem_size,
        tunables={n: values for n, values in call.kernel.tunables.items() if n != PLACEHOLDER},
        objective=call.aim.key,
    )


def _without_known(kernel: KernelCall, cache: CacheFile | None) -> KernelCall:
    """The call without the configurations that a cache file has."""
    if cache is None or not cache.rows:
        return kernel
    known = frozenset(cache.rows)

    def is_new(env: Parameters) -> bool:
        return cache.key(env) not in known

    rule = FunctionRule(frozenset(kernel.tunables), "not in the cache file", is_new)
    return replace(kernel, rules=(*kernel.rules, rule))


# --- what is returned ----------------------------------------------------------------------------


def _returned(
    call: TuningCall, device: Device, rows: list[Row], cache: CacheFile | None, wall_s: float
) -> tuple[list[Row], dict[str, Any]]:
    """Results in order, closed cache, environment with the best configuration."""
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
        say(shown({key: best[key] for key in dict.fromkeys(keys)}))
    return rows, environment_


def _values(call: TuningCall, row: Row) -> dict[str, Any]:
    return {name: row[name] for name in call.kernel.tunables if name in row}


def _place(call: TuningCall, row: Row) -> tuple[int, ...]:
    return tuple(
        values.index(row[name]) if row.get(name) in values else -1
        for name, values in call.kernel.tunables.items()
    )
