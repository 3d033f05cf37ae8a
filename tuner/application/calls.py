"""Runs kernels on a caller's arrays; everything but the launch is done once and cached."""

import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tuner.application.advice import Advisor, Tally
from tuner.application.choice import Chosen, choose, given
from tuner.application.signature import (
    Array,
    Form,
    Stream,
    check_array,
    check_count,
    check_forms,
    checked_stream,
    is_flat,
    overlap,
    shape_of,
    taken,
    workload_for,
)
from tuner.config import KernelFile
from tuner.config.catalog import Catalog
from tuner.devices.cuda import probe
from tuner.devices.cuda.code import DirectGpu, enqueue
from tuner.devices.cuda.launches import Program
from tuner.errors import DeviceError, InputError
from tuner.model import Plan, TunableValue, Workload

_LOG = logging.getLogger(__name__)

_KEPT = 512  # calls worked out; the oldest goes first


@dataclass(frozen=True)
class ApplicationCall:
    """The arguments of a call; see ``tuner.apply``."""

    kernel: str
    arrays: Sequence[Array]
    configuration: Mapping[str, TunableValue] | None
    sizes: Mapping[str, int | str]

    @property
    def device(self) -> int:
        """The GPU of the first array."""
        return int(self.arrays[0].data.device_id)

    @property
    def forms(self) -> tuple[Form, ...]:
        """The forms of the arrays."""
        return tuple(Form(array.shape, array.dtype.name) for array in self.arrays)

    def key(self) -> tuple[object, ...]:
        """All that decides what a call does.

        Raises:
            InputError: configuration or sizes are not of a kind that can be compared.
        """
        try:
            settings = None if self.configuration is None else frozenset(self.configuration.items())
            # 60.0 equals 60 and is no size: what is refused once is refused always
            sizes = frozenset((name, type(value), value) for name, value in self.sizes.items())
        except (TypeError, AttributeError) as error:
            raise InputError(
                f"{self.kernel}: configuration maps tunables to values, and sizes are whole numbers or names"
                f" ({error})"
            ) from error
        forms = ((array.shape, array.dtype) for array in self.arrays)
        return self.kernel, self.device, *forms, settings, sizes


@dataclass(frozen=True)
class _AllocatedArray:
    """An array that a call allocates."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class _Call:
    """A kernel at one problem and one configuration, on one GPU.

    Attributes:
        kernel: what messages call it.
        program: the kernel, loaded.
        inputs: names of the arrays that are handed over, in their order.
        outputs: arrays that the caller may provide.
        results: names of what is returned, in the order of the kernel file.
        scratch: further arrays, of this call alone.
        tally: counts its launches.
    """

    kernel: str
    program: Program
    inputs: tuple[str, ...]
    outputs: tuple[_AllocatedArray, ...]
    results: tuple[str, ...]
    scratch: tuple[_AllocatedArray, ...]
    tally: Tally


class Application:
    """Kernels of a catalogue on the GPUs of this process. May be used by several threads.

    Args:
        catalog: the kernels.
        database: where tuned configurations are looked up.
        advisor: asks the daemon; None where there is to be none.
    """

    def __init__(self, catalog: Catalog, database: Path, advisor: Advisor | None = None) -> None:
        self._catalog = catalog
        self._database = database
        self._advisor = advisor
        self._cp: ModuleType | None = None
        self._lock = threading.Lock()
        self._gpus: dict[int, DirectGpu] = {}
        self._calls: dict[tuple[object, ...], _Call] = {}

    def apply(
        self,
        asked: ApplicationCall,
        out: Array | Sequence[Array] | None = None,
        stream: Stream | None = None,
    ) -> Array | tuple[Array, ...]:
        """See ``tuner.apply``."""
        cp = self._checked(asked)
        with ExitStack() as stack:
            if cp.cuda.runtime.getDevice() != asked.device:
                stack.enter_context(cp.cuda.Device(asked.device))
            if stream is not None:
                stack.enter_context(checked_stream(stream, asked.device))
            key = asked.key()
            call = self._calls.get(key) or self._work_out(cp, key, asked)
            call.tally.count += 1
            return _run(cp, call, asked.arrays, out)

    def chosen(self, asked: ApplicationCall) -> Chosen:
        """See ``tuner.chosen``."""
        cp = self._checked(asked)
        asked.key()  # refuses what apply refuses
        with cp.cuda.Device(asked.device), self._lock:
            file = self._catalog.kernel(asked.kernel)
            workload = workload_for(file, asked.forms, asked.sizes)
            choice = self._choice(file, workload, self._gpu(cp, asked.device), asked.configuration, count=0.0)
            check_forms(file, asked.forms, file.plan(workload, choice.configuration))
            return choice

    def _checked(self, asked: ApplicationCall) -> ModuleType:
        """CuPy, when the arrays are such that kernels can run on them as they are."""
        if not isinstance(asked.kernel, str):
            raise InputError(f"kernel is {asked.kernel!r}; it must be the name of a kernel")
        file = self._catalog.kernel(asked.kernel)
        check_count(file, len(asked.arrays))
        if self._cp is None:
            self._cp = probe.import_cupy(f"tuner.apply({asked.kernel!r})")
        cp = self._cp
        for buffer, array in zip(taken(file), asked.arrays, strict=True):
            check_array(cp, file.name, buffer.name, array, asked.arrays[0])
        return cp

    def _work_out(self, cp: ModuleType, key: tuple[object, ...], asked: ApplicationCall) -> _Call:
        with self._lock:
            if key in self._calls:  # another thread was first
                return self._calls[key]
            file, forms = self._catalog.kernel(asked.kernel), asked.forms
            gpu = self._gpu(cp, asked.device)
            workload = workload_for(file, forms, asked.sizes)
            choice = self._choice(file, workload, gpu, asked.configuration, count=1.0)
            plan = file.plan(workload, choice.configuration)
            check_forms(file, forms, plan)
            _LOG.debug("%s, batch %d, %s: %s", workload, workload.batch, gpu.identity.spec, choice)
            call = _call(file, plan, forms, gpu.program(plan), self._tally(asked, workload, gpu))
            while len(self._calls) >= _KEPT:
                del self._calls[next(iter(self._calls))]
            self._calls[key] = call
            return call

    def _choice(
        self,
        file: KernelFile,
        workload: Workload,
        gpu: DirectGpu,
        configuration: Mapping[str, TunableValue] | None,
        *,
        count: float,
    ) -> Chosen:
        if configuration is not None:
            return given(file, workload, configuration)
        return choose(file, workload, gpu.identity, self._database, self._advisor, count=count)

    def _tally(self, asked: ApplicationCall, workload: Workload, gpu: DirectGpu) -> Tally:
        """What counts launches; a configuration of the caller is no use of an answer."""
        if self._advisor is None or asked.configuration is not None:
            return Tally()
        return self._advisor.tally(workload, gpu.identity)

    def _gpu(self, cp: ModuleType, device: int) -> DirectGpu:
        if device not in self._gpus:
            self._gpus[device] = DirectGpu(cp, device)
        return self._gpus[device]


def _call(file: KernelFile, plan: Plan, forms: Sequence[Form], program: Program, tally: Tally) -> _Call:
    flat = any(is_flat(recipe, form.shape) for recipe, form in zip(taken(file), forms, strict=True))
    recipes = {recipe.name: recipe for recipe in file.recipe.buffers}
    return _Call(
        kernel=file.name,
        program=program,
        inputs=tuple(buffer.name for buffer in taken(file)),
        outputs=tuple(
            _AllocatedArray(b.name, shape_of(recipes[b.name], b, flat=flat), np.dtype(b.dtype))
            for b in plan.buffers
            if b.role == "out"
        ),
        results=tuple(b.name for b in plan.buffers if b.role in ("out", "inout")),
        scratch=tuple(
            _AllocatedArray(b.name, b.shape, np.dtype(b.dtype))
            for b in plan.buffers
            if b.role in ("scratch", "zeroed")
        ),
        tally=tally,
    )


def _run(
    cp: ModuleType, call: _Call, arrays: Sequence[Array], out: Array | Sequence[Array] | None
) -> Array | tuple[Array, ...]:
    named = dict(zip(call.inputs, arrays, strict=True))
    try:
        if out is None:
            named |= {made.name: cp.empty(made.shape, made.dtype) for made in call.outputs}
        else:
            named |= _provided(cp, call, named, out)
        named |= {made.name: cp.empty(made.shape, made.dtype) for made in call.scratch}
    except cp.cuda.memory.OutOfMemoryError as error:
        raise DeviceError(f"{call.kernel}: output and scratch arrays do not fit: {error}") from error
    enqueue(cp, call.program.bound(named))
    results = tuple(named[name] for name in call.results)
    return results if len(results) > 1 else results[0]


def _provided(
    cp: ModuleType, call: _Call, inputs: Mapping[str, Array], out: Array | Sequence[Array]
) -> dict[str, Array]:
    """The caller's output arrays, when they can be written to."""
    arrays = tuple(out) if isinstance(out, tuple | list) else (out,)
    names = ", ".join(made.name for made in call.outputs)
    if len(arrays) != len(call.outputs):
        wanted = f"{len(call.outputs)} ({names})" if names else "none: the kernel works in place"
        raise InputError(f"{call.kernel}: out has {len(arrays)} arrays; it takes {wanted}")
    given = dict(inputs)
    for made, array in zip(call.outputs, arrays, strict=True):
        label = "out" if len(arrays) == 1 else f"out ({made.name})"
        check_array(cp, call.kernel, label, array, next(iter(inputs.values())))
        if array.shape != made.shape or array.dtype != made.dtype:
            form = Form(array.shape, array.dtype.name)
            raise InputError(
                f"{call.kernel}: {label} is {form}; it must be {Form(made.shape, made.dtype.name)}"
            )
        for name, other in given.items():
            if overlap(array, other):
                raise InputError(f"{call.kernel}: {label} overlaps {name}; it must be an array of its own")
        given[made.name] = array
    return {made.name: given[made.name] for made in call.outputs}
