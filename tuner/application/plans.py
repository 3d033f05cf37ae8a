"""Kernels bound to their arrays: what ``tuner.plan`` returns."""

import threading
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from tuner.application.binding import LoadedKernel
from tuner.application.choice import Chosen
from tuner.application.running import KernelRunner
from tuner.application.signature import SEVERAL, Array, Stream, examined
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
        runner: KernelRunner,
        arrays: Sequence[Array] = (),
        outs: Sequence[Array] = (),
    ) -> None:
        self._cp = cp
        self._runner = runner
        self._loaded = loaded = runner.loaded
        self._graphs, self._lock = loaded.graphs(cp), threading.Lock()
        self._current, self._home = loaded.home.current, loaded.home.handle
        self._stream_of, self._device = cp.cuda.get_current_stream, loaded.device
        self._launch = runner.put
        self._arrays = tuple(arrays)
        self._outs = tuple(outs)
        self._forms = _forms(cp, loaded)
        self._scratch = loaded.allocated(cp, loaded.scratch)
        self._scratch_addresses = [array.data.ptr for array in self._scratch]
        self._bound: tuple[int, ...] = ()
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
        if not self._bound:
            raise InputError(f"{self}: it was planned for shapes; call it with arrays")
        if stream is None and self._current() == self._home:
            self._launch(self._graphs, self._lock, self._bound, self._stream_of(self._device).ptr)
        else:
            self._runner.launch(self._graphs, self._lock, self._bound, stream)
        return self._result

    def __repr__(self) -> str:
        loaded = self._loaded
        problem = f"{loaded.workload}, batch {loaded.workload.batch}"
        return f"<plan of {problem}, on GPU {loaded.device}: {loaded.chosen}>"

    def _bind(self) -> None:
        """Make runs without arguments ready."""
        given = (*self._arrays, *self._own())
        _, addresses = examined(given)
        self._runner.check_addresses(given, addresses)
        self._bound = (*addresses, *self._scratch_addresses)
        self._graphs.keep(self._bound)
        self._result = self._runner.results(given)

    def _run(
        self, arrays: Sequence[Array], out: Array | Sequence[Array] | None, stream: Stream | None
    ) -> Any:  # noqa: ANN401 - cupy.ndarray, which has no type information
        outs: Sequence[Array] = (
            (self._outs or self._own()) if out is None else out if isinstance(out, SEVERAL) else (out,)
        )
        given = (*(arrays or self._arrays), *outs)
        try:
            forms, addresses = examined(given)
        except AttributeError:  # no CuPy array: told below
            forms, addresses = [], []
        if forms != self._forms:
            self._loaded.check_inputs(self._cp, arrays or self._arrays)
            self._loaded.check_outputs(self._cp, outs)
        self._runner.check_addresses(given, addresses)
        addresses += self._scratch_addresses
        self._runner.launch(self._graphs, self._lock, tuple(addresses), stream)
        return self._runner.results(given)

    def _own(self) -> Sequence[Array]:
        """The plan's output: the one it was given, or one of its own that is made when first needed."""
        with self._lock:
            if not self._outs and self._loaded.outputs:
                with self._cp.cuda.Device(self._loaded.device):
                    self._outs = tuple(self._loaded.allocated(self._cp, self._loaded.outputs))
        return self._outs


def _forms(cp: ModuleType, loaded: LoadedKernel) -> list[object]:
    """What ``examined`` says of arrays as the kernel takes them."""
    arrays = (*loaded.inputs, *loaded.outputs)
    return [part for one in arrays for part in (cp.ndarray, one.shape, one.strides, one.dtype, loaded.device)]
