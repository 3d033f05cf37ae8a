"""Kernels bound to their arrays: what ``tuner.plan`` returns."""

import threading
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from tuner.application.array_calls import BorrowedCall, borrowed_call, torch_stream
from tuner.application.borrowing import BorrowedArray, Value, own, torch_streams
from tuner.application.choice import Chosen
from tuner.application.keys import SEVERAL, Array, Stream, checked_stream, examined
from tuner.application.running import (
    ALLOCATES_OUTPUT_OF_PLAN,
    PLANS,
    KernelRunner,
    LoadedKernel,
    refuse_capture,
)
from tuner.model.errors import InputError
from tuner.model.plan import Workload


class KernelPlan:
    """A kernel at one problem, ready to run: code loaded, arguments packed, scratch allocated, tables filled.

    It holds its scratch arrays and tables, the arrays it is bound to and an output of its own until it is
    dropped. Threads may share it. Runs share the scratch arrays and the plan's own output, so that runs of
    one plan in several streams at the same time need a plan each, or an order between the streams. As with
    CuPy's arrays, memory is given back to the pool of the stream that was current when the plan was made.
    """

    def __init__(
        self,
        cp: ModuleType,
        runner: KernelRunner,
        arrays: Sequence[BorrowedArray] = (),
        outs: Sequence[BorrowedArray] = (),
        torch: ModuleType | None = None,
    ) -> None:
        self._cp = cp
        self._runner = runner
        self._loaded = loaded = runner.loaded
        self._graphs, self._lock = loaded.graphs(cp), threading.Lock()
        self._current, self._home = loaded.home.current, loaded.home.handle
        self._torch, self._device = torch, loaded.device
        self._stream_of = cp.cuda.get_current_stream
        self._torch_handle = None if torch is None else torch_streams(torch)
        stream = None if torch is None else torch_stream(cp, torch, loaded.device)
        refuse_capture(cp, loaded.kernel, stream, loaded.device, PLANS)
        self._launch = runner.put
        self._lent, self._lent_outs = tuple(arrays), tuple(outs)
        self._arrays = tuple(array.array for array in arrays)
        self._outs = tuple(out.array for out in outs)
        self._forms = _forms(cp, loaded)
        self._scratch = loaded.allocated(cp, loaded.scratch)
        self._tables = loaded.tabulated(cp)
        self._scratch_addresses = [*(array.data.ptr for array in self._scratch), *self._tables.addresses]
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
        shown = tuple(out.shown for out in self._lent_outs)
        return (shown if len(shown) > 1 else shown[0]) if shown else None

    def __call__(
        self,
        *arrays: Value,
        out: Value | Sequence[Value] | None = None,
        stream: Stream | None = None,
    ) -> Any:  # noqa: ANN401 - cupy.ndarray, which has no type information
        """Run the kernel and return its outputs; it may still run when this returns.

        Args:
            arrays: of the shapes and types planned for; none for the arrays that the plan is bound to.
            out: where to write to; None for the plan's own output, which the next run overwrites.
            stream: where to run; None for the current stream, PyTorch's where an array is a torch tensor.

        Raises:
            InputError: an argument cannot be used, or the plan is bound to no arrays and none are given.
            DeviceError: memory runs out, or the driver refuses the launch.
        """
        if arrays or out is not None:
            return self._run(arrays, out, stream)
        if not self._bound:
            raise InputError(f"{self}: it was planned for shapes; call it with arrays")
        handle = self._torch_handle
        if stream is None and self._current() == self._home:
            on = self._stream_of(self._device).ptr if handle is None else handle(self._device)
            self._launch(self._graphs, self._lock, self._bound, on)
        else:
            if stream is None and self._torch is not None:
                stream = torch_stream(self._cp, self._torch, self._device)
            self._runner.launch(self._graphs, self._lock, self._bound, stream)
        return self._result

    def __repr__(self) -> str:
        loaded = self._loaded
        problem = f"{loaded.workload}, batch {loaded.workload.batch}"
        return f"<plan of {problem}, on GPU {loaded.device}: {loaded.chosen}>"

    def _bind(self) -> None:
        """Make runs without arguments ready."""
        self._own()
        given = (*self._arrays, *self._outs)
        _, addresses = examined(given)
        self._runner.check_addresses(given, addresses)
        self._bound = (*addresses, *self._scratch_addresses)
        self._graphs.keep(self._bound)
        self._result = self._runner.results([one.shown for one in (*self._lent, *self._lent_outs)])

    def _run(
        self, arrays: Sequence[Value], out: Value | Sequence[Value] | None, stream: Stream | None
    ) -> Any:  # noqa: ANN401 - arrays of whatever library
        if self._torch is not None:
            return self._run_borrowed(arrays, out, stream)
        outs: Sequence[Value] = self._outs if out is None else out if isinstance(out, SEVERAL) else (out,)
        given = (*(arrays or self._arrays), *outs)
        try:
            forms, addresses = examined(given)
        except AttributeError:  # no CuPy array
            return self._run_borrowed(arrays, out, stream)
        if out is None and not outs and self._loaded.outputs:
            self._own(stream=stream)
            return self._run(arrays, None, stream)
        if forms != self._forms:
            self._loaded.check_inputs(arrays or self._arrays)
            self._loaded.check_outputs(outs)
        self._runner.check_addresses(given, addresses)
        addresses += self._scratch_addresses
        self._runner.launch(self._graphs, self._lock, tuple(addresses), stream)
        return self._runner.results(given)

    def _run_borrowed(
        self, arrays: Sequence[Value], out: Value | Sequence[Value] | None, stream: Stream | None
    ) -> Any:  # noqa: ANN401 - arrays of whatever library
        """Run on arrays of which one at least is another library's."""
        loaded, cp = self._loaded, self._cp
        values = arrays or [one.original for one in self._lent]
        loaded.check_count(len(values))
        outs = None if out is None else out if isinstance(out, SEVERAL) else (out,)
        shown = [one.shown for one in self._lent_outs] if outs is None else outs  # whose library counts, too
        named = [
            (made.name, value, place in loaded.results)
            for place, (made, value) in enumerate(zip(loaded.inputs, values, strict=True))
        ]
        call = borrowed_call(cp, loaded.kernel, named, shown, stream)
        loaded.check_inputs([array.array for array in call.arrays])
        targets = self._own(call) if outs is None else call.outputs(loaded, given=True)
        lent = (*call.arrays, *targets)
        given = [one.array for one in lent]
        _, addresses = examined(given)
        self._runner.check_addresses(given, addresses)
        addresses += self._scratch_addresses
        self._runner.launch(self._graphs, self._lock, tuple(addresses), call.stream)
        call.give_back()
        return self._runner.results([one.shown for one in lent])

    def _own(self, call: BorrowedCall | None = None, stream: Stream | None = None) -> Sequence[BorrowedArray]:
        """The plan's output: the one it was given, or one of its own that is made when first needed."""
        with self._lock, self._cp.cuda.Device(self._device):
            if not self._lent_outs and self._loaded.outputs:
                on = stream if call is None else call.stream
                on = None if on is None else checked_stream(self._cp, on, self._device)
                refuse_capture(self._cp, self._loaded.kernel, on, self._device, ALLOCATES_OUTPUT_OF_PLAN)
                if call is None:
                    self._lent_outs = own(self._loaded.allocated(self._cp, self._loaded.outputs))
                else:
                    self._lent_outs = tuple(call.outputs(self._loaded, given=False))
                self._outs = tuple(out.array for out in self._lent_outs)
        return self._lent_outs


def _forms(cp: ModuleType, loaded: LoadedKernel) -> list[object]:
    """Return the properties that ``examined`` gives for arrays as the kernel takes them."""
    arrays = (*loaded.inputs, *loaded.outputs)
    return [
        part
        for array in arrays
        for part in (cp.ndarray, array.shape, array.strides, array.dtype, loaded.device)
    ]
