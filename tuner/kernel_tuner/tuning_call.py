"""A call of ``tune_kernel`` or ``run_kernel``: in the words of a run, run, its lines, and what it returns."""

import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from tuner.database.answer_lock import in_force
from tuner.database.ranking import AnswerQuery
from tuner.database.runs import Store
from tuner.devices.base import Device
from tuner.devices.choice import open_device
from tuner.devices.worker import WorkerDevice
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_tuner.call_arguments import (
    PLACEHOLDER,
    GivenArray,
    GivenScalar,
    NotComputed,
    Parameters,
    restored,
    save,
    shown,
)
from tuner.kernel_tuner.strategies import MappedSearch
from tuner.kernel_tuner.translation import KernelCall, conditions_of, kernel_file_of
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
from tuner.model.errors import (
    CompileError,
    DeviceError,
    EmptySpaceError,
    VerificationError,
)
from tuner.model.expressions.callables import PythonExpression
from tuner.model.plan import Configuration, Plan, Workload
from tuner.model.records import PROTOCOL, RunStatus
from tuner.model.trial import Status
from tuner.python.arguments import HostArray, data_folder
from tuner.search.answer import Outcome
from tuner.search.request import SearchRequest
from tuner.search.session import TrialEvent
from tuner.search.setup import MeasurementSetup, open_setup
from tuner.search.tuning import tune
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


# --- The running of calls.

_SEED = 0  # inputs are the caller's: no seed changes them


def tuned(call: TuningCall) -> tuple[list[Row], dict[str, Any]]:
    """Search, and return Kernel Tuner's pair: results, and what they were measured on.

    Raises:
        DeviceUnavailableError: the device cannot be opened.
        EmptySpaceError: the restrictions leave nothing, or nothing compiles.
        VerificationError: no configuration gave a right answer.
        KeyboardInterrupt: the user stopped it; what was measured is in the cache file.
    """
    with ExitStack() as stack:
        setup = stack.enter_context(open_setup(call.device_spec, call.request("", None)))
        paths = _saved(call.kernel, setup.device, stack)
        if not call.quiet:
            say(f"Using: {setup.device.identity.name}")
            if setup.device.identity.modelled:
                say(
                    "No work is stated: modelled times are lower bounds, by the compiled code and the arrays."
                )
        written = writable(call.kernel, call.judge)
        whole = kernel_file_of(call.kernel, paths, written)
        locked = _locked(call, whole, setup.device)
        if locked is not None:
            call = replace(call, kernel=only(call.kernel, locked), cache=None)
        cache = cache_of(call, setup.device, whole)
        kernel = kernel_file_of(without_known(call.kernel, cache), paths, written)
        try:
            (workload,) = kernel.workloads()
            space = kernel.space(workload)
        except EmptySpaceError:
            if cache is None or not cache.rows:
                raise
            return returned(call, setup.device, [], cache, 0.0)
        if call.verbose:
            say(f"Searchspace has {space.size} configurations after restrictions.")
        if space.is_sample and call.search.policy == "exhaustive":
            warnings.warn(
                f"strategy: brute_force would try about {space.size:,} configurations;"
                f" {len(space):,} drawn at random are tried",
                stacklevel=3,
            )
            call = replace(call, search=replace(call.search, policy="random"))
        kernel = _with_roles(call, kernel, workload, paths, setup.device)
        _verify(call, setup.device)
        listener = Listener(call, cache)
        outcome = _searched(call, kernel, workload, setup, listener, stack)
        rows = rows_of(call, space, outcome)
        wall_s = outcome.wall_s
        if outcome.status is RunStatus.INTERRUPTED:
            returned(call, setup.device, rows, cache, wall_s)
            raise KeyboardInterrupt
        return returned(call, setup.device, rows, cache, wall_s)


def run_once(kernel: KernelCall, device_spec: str | None) -> list[Any]:
    """Run the only configuration of a call once; where nothing computes, only compile it.

    Returns:
        The arguments after the run: arrays as NumPy's, scalars as they were given. ``NotComputed`` stands for
        the arrays that the kernel may write where nothing computes.

    Raises:
        CompileError: the source does not compile.
        DeviceError: it cannot be launched, or fails.
    """
    with ExitStack() as stack:
        device = stack.enter_context(closing(open_device(device_spec).device))
        paths = _saved(kernel, device, stack)
        written = writable(kernel, None)
        file = kernel_file_of(kernel, paths, written)
        (workload,) = file.workloads()
        plan = file.plan(workload, file.default(workload))
        if not isinstance(device, WorkerDevice):
            return _compiled_only(kernel, device, plan, written)
        check, arrays = device.outputs(plan, _SEED, [array.name for array in kernel.arrays])
    if check.status is not Status.OK:
        kind = CompileError if check.status is Status.COMPILE_ERROR else DeviceError
        raise kind(f"run_kernel: {kernel.name}: {check.status.value}: {check.detail}")
    return [
        argument.value
        if isinstance(argument, GivenScalar)
        else restored(argument.of(plan.configuration), arrays[argument.name])
        for argument in kernel.arguments
    ]


def _saved(kernel: KernelCall, device: Device, stack: ExitStack) -> dict[str, Path]:
    """Files of a call's arrays, as long as the stack is open; none for a device that computes nothing."""
    if not isinstance(device, WorkerDevice):
        return {}
    given = (*kernel.arrays, *kernel.constants)
    size = sum(form.stored.nbytes for one in given for form in one.forms)
    return save(given, stack.enter_context(data_folder(size)))


def _compiled_only(kernel: KernelCall, device: Device, plan: Plan, written: Sequence[str]) -> list[Any]:
    """The arguments of a run on a device that computes nothing."""
    (resources,) = device.resources([plan])
    if isinstance(resources, CompileError):
        raise resources
    spec = device.identity.spec
    warnings.warn(
        f"run_kernel: {spec} computes nothing: {', '.join(written)} come back without values, and are not"
        " checked as an answer",
        stacklevel=4,
    )
    return [
        argument.value
        if isinstance(argument, GivenScalar)
        else NotComputed(spec)
        if argument.name in written
        else argument.of(plan.configuration).array
        for argument in kernel.arguments
    ]


def writable(kernel: KernelCall, judge: Judge | None) -> tuple[str, ...]:
    """Names of the arrays that a kernel may write, as far as its source and the answer tell."""
    answered = set() if judge is None or judge.answer is None else set(judge.wanted)
    found = tuple(array.name for array in kernel.arrays if not array.const or array.name in answered)
    return found or tuple(array.name for array in kernel.arrays[-1:])


def _with_roles(
    call: TuningCall, kernel: KernelFile, workload: Workload, paths: Mapping[str, Path], device: Device
) -> KernelFile:
    """The kernel file with arrays that no run writes marked so: they are not filled anew for every window.

    One run of the first configuration tells which those are.
    """
    names = writable(call.kernel, call.judge)
    if not isinstance(device, WorkerDevice):
        return kernel
    values = kernel.default(workload)
    check, arrays = device.outputs(kernel.plan(workload, values), _SEED, names)
    if check.status is not Status.OK:
        return kernel
    answered = () if call.judge is None or call.judge.answer is None else call.judge.wanted
    written = [
        array.name
        for array in call.kernel.arrays
        if array.name in arrays and (array.name in answered or _changed(array.of(values), arrays[array.name]))
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
        device.verifier = partial(judge.check, device)
    elif not call.quiet:
        say(f"answers are not checked: {device.identity.spec} computes nothing")


def _locked(call: TuningCall, kernel: KernelFile, device: Device) -> Configuration | None:
    """The configuration of the lock file that is in force; None where it has none for this kernel and GPU."""
    lock = in_force()
    if lock is None:
        return None
    (workload,) = kernel.workloads()
    sources = {kernel.name: kernel.fingerprint}
    query = AnswerQuery(
        *((workload,), {kernel.name: kernel}, sources, call.aim.objective, device.identity),
        clocks_as_found=True,
        any_timing=True,
    )
    found, reasons = lock.served(query)
    for why in reasons:
        warnings.warn(why, stacklevel=4)
    if found is None:
        return None
    if not call.quiet:
        say(f"Locked: {found.answer.told}; nothing is searched")
    return found.configurations[str(workload)]


def _searched(  # noqa: PLR0917 - the parts of one run
    call: TuningCall,
    kernel: KernelFile,
    workload: Workload,
    setup: MeasurementSetup,
    listener: Listener,
    stack: ExitStack,
) -> Outcome:
    request = call.request(str(workload), call.search.budget_of(kernel.space(workload).size))
    request.check()
    store = stack.enter_context(Store())
    return tune(setup, request, Catalog({kernel.name: kernel}), store, listener, resume=False)
