"""The running of calls: opens the device, finds out which arrays are written, searches, judges answers."""

import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tuner.database.answer_lock import in_force
from tuner.database.ranking import AnswerQuery
from tuner.database.runs import Store
from tuner.devices.base import Device
from tuner.devices.choice import open_device
from tuner.devices.worker import WorkerDevice
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_tuner.call_arguments import GivenArray, GivenScalar, NotComputed, restored, save
from tuner.kernel_tuner.translation import KernelCall, kernel_file_of
from tuner.kernel_tuner.trial_results import Judge, Row
from tuner.kernel_tuner.tuning_call import (
    Listener,
    TuningCall,
    cache_of,
    only,
    returned,
    rows_of,
    say,
    without_known,
)
from tuner.model.errors import CompileError, DeviceError, EmptySpaceError
from tuner.model.plan import Configuration, Plan, Workload
from tuner.model.records import RunStatus
from tuner.model.trial import Status
from tuner.python.arguments import HostArray, data_folder
from tuner.search.answer import Outcome
from tuner.search.setup import MeasurementSetup, open_setup
from tuner.search.tuning import tune

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
