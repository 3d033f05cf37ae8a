"""Kernels bound to their arrays: what ``tuner.plan`` returns."""

import threading
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from tuner.application.binding import CallArray, LoadedKernel
from tuner.application.choice import Chosen
from tuner.application.running import KernelRunner
from tuner.application.signature import Array, Stream
from tuner.devices.cuda.packed import PackedRun
from tuner.errors import InputError
from tuner.model import Workload


class KernelPlan:
    """A kernel at one problem, ready to run: code loaded, arguments packed, scratch memory allocated.

    It holds its scratch arrays, the arrays it is bound to and an output of its own until it is dropped.
    Threads may share it. Runs share the scratch arrays and the plan's own output, so that runs of one plan in
    several streams at the same time need a plan each, or an order between the streams. As with CuPy's arrays,
    memory is given back to the pool of the stream that was current when the plan was made.
    """

    def __init__(
        self,
        cp: ModuleType,
        loaded: LoadedKernel,
        arrays: Sequence[Array] = (),
        outs: Sequence[Array] = (),
    ) -> None:
        self._cp = cp
        self._loaded = loaded
        self._runner = KernelRunner(cp, loaded)
        self._lock = threading.Lock()
        self._arrays = tuple(arrays)
        self._outs = tuple(outs)
        self._forms = tuple(_form(cp, loaded.device, one) for one in loaded.inputs)
        self._out_forms = tuple(_form(cp, loaded.device, one) for one in loaded.outputs)
        self._scratch = loaded.allocated(cp, loaded.scratch)
        self._scratch_addresses = [int(array.data.ptr) for array in self._scratch]
        self._other = loaded.packed(cp)
        self._bound: PackedRun | None = None
        self._result: Array | tuple[Array, ...] = ()
        if arrays:
            self._bind()

    @property
    def workload(self) -> Workload:
        """The kernel at its problem, with its batch."""
        return self._loaded.workload

    @property
    def chosen(self) -> Chosen:
        """The configuration, and its origin."""
        return self._loaded.chosen

    @property
    def device(self) -> int:
        """Number of the GPU it runs on."""
        return self._loaded.device

    @property
    def out(self) -> Any:  # noqa: ANN401 - cupy.ndarray, which has no type information
        """The output of runs that are given none; a tuple for several, None before the first is needed."""
        return (self._outs if len(self._outs) > 1 else self._outs[0]) if self._outs else None

    def __call__(
        self,
        *arrays: Array,
        out: Array | Sequence[Array] | None = None,
        stream: Stream | None = None,
    ) -> Any:  # noqa: ANN401 - cupy.ndarray, which has no type information
        """Run the kernel and return its outputs; it may still run when this returns.

        Args:
            arrays: of the shapes and types planned for; none for the arrays that the plan is bound to.
            out: where to write to; None for the plan's own output, which the next run overwrites.
            stream: where to run; None for CuPy's current stream.

        Raises:
            InputError: an argument cannot be used, or the plan is bound to no arrays and none are given.
            DeviceError: memory runs out, or the driver refuses the launch.
        """
        if arrays or out is not None:
            return self._run(arrays, out, stream)
        bound = self._bound
        if bound is None:
            raise InputError(f"{self}: it was planned for shapes; call it with arrays")
        self._runner.enqueue(bound, stream)  # nothing is written to it any more: no lock is needed
        return self._result

    def __repr__(self) -> str:
        loaded = self._loaded
        problem = f"{loaded.workload}, batch {loaded.workload.batch}"
        return f"<plan of {problem}, on GPU {loaded.device}: {loaded.chosen}>"

    def _bind(self) -> None:
        """Pack the arrays that runs without arguments take."""
        outs = self._outs or self._own()
        addresses = self._addresses(self._arrays, outs)
        self._bound = self._loaded.packed(self._cp)
        self._bound.point(addresses)
        self._result = self._results(self._arrays, outs)

    def _run(
        self, arrays: Sequence[Array], out: Array | Sequence[Array] | None, stream: Stream | None
    ) -> Array | tuple[Array, ...]:
        loaded, cp = self._loaded, self._cp
        if not arrays and self._bound is not None:
            arrays = self._arrays
        elif not _match(arrays, self._forms):
            loaded.check_inputs(cp, arrays)
        if out is None:
            outs: Sequence[Array] = self._outs or self._own()
        else:
            outs = out if isinstance(out, tuple | list) else (out,)
            if not _match(outs, self._out_forms):
                loaded.check_outputs(cp, outs)
        addresses = self._addresses(arrays, outs)
        with self._lock:
            self._other.point(addresses)
            self._runner.enqueue(self._other, stream)
        return self._results(arrays, outs)

    def _addresses(self, arrays: Sequence[Array], outs: Sequence[Array]) -> list[int]:
        addresses = [array.data.ptr for array in arrays]
        addresses += [array.data.ptr for array in outs]
        self._runner.check_addresses(addresses, arrays, outs)
        addresses += self._scratch_addresses
        return addresses

    def _own(self) -> Sequence[Array]:
        """The plan's own output, made when it is first needed."""
        with self._lock:
            if not self._outs and self._loaded.outputs:
                with self._cp.cuda.Device(self._loaded.device):
                    self._outs = tuple(self._loaded.allocated(self._cp, self._loaded.outputs))
        return self._outs

    def _results(self, arrays: Sequence[Array], outs: Sequence[Array]) -> Array | tuple[Array, ...]:
        given = (*arrays, *outs)
        places = self._loaded.results
        return given[places[0]] if len(places) == 1 else tuple(given[place] for place in places)


_ArrayForm = tuple[Any, tuple[int, ...], tuple[int, ...], "np.dtype[Any]", int]


def _form(cp: ModuleType, device: int, one: CallArray) -> _ArrayForm:
    return cp.ndarray, one.shape, one.strides, one.dtype, device


def _match(arrays: Sequence[Array], forms: Sequence[_ArrayForm]) -> bool:
    """True for arrays of just these forms; False for others, usable ones among them."""
    if len(arrays) != len(forms):
        return False
    for array, (kind, shape, strides, dtype, device) in zip(arrays, forms, strict=True):
        if not isinstance(array, kind) or array.shape != shape or array.strides != strides:
            return False
        if array.dtype != dtype or array.data.device_id != device:
            return False
    return True
