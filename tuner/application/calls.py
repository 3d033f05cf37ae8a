"""Calls of ``tuner.apply``: everything but the launch is done once and cached."""

import logging
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from tuner.application.array_calls import BorrowedCall, borrowed_call
from tuner.application.borrowing import TensorForms, Value, own
from tuner.application.bound_kernels import KernelPlan
from tuner.application.call_keys import (
    ApplicationCall,
    Settings,
    asked_of,
    layout_of,
    replaced_place,
    seen_key,
)
from tuner.application.choice import (
    DEFAULT,
    Advisor,
    Chosen,
    LaunchCount,
    UntunedAnswers,
    choose,
    for_layout,
    given,
)
from tuner.application.keys import (
    ALIGNED,
    SEVERAL,
    Array,
    ArrayForm,
    Stream,
    check_array,
    check_count,
    check_forms,
    checked_shape,
    checked_stream,
    examined,
    taken,
    workload_for,
)
from tuner.application.running import (
    COMPILES,
    KernelRunner,
    LoadedKernel,
    TableCache,
    TensorRunner,
    loaded_kernel,
    refuse_capture,
)
from tuner.devices.cuda import probe
from tuner.devices.cuda.direct import DirectGpu
from tuner.devices.cuda.launches import HomeContext, Program
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import CompileError, DeviceError, InputError, TunerError
from tuner.model.plan import DENSE, Plan, RowLayout, Workload

_LOG = logging.getLogger(__name__)


class ConfigurationChooser:
    """Chooses the configurations of calls.

    Args:
        database: where tuned configurations are looked up.
        advisor: asks the daemon; None where there is to be none.
        untuned: answers for kernels that nobody tuned; None for their defaults.
    """

    def __init__(self, database: Path, advisor: Advisor | None, untuned: UntunedAnswers | None) -> None:
        self._database = database
        self._advisor = advisor
        self._untuned = untuned
        self._refused: set[tuple[object, ...]] = set()

    def choice(
        self,
        file: KernelFile,
        workload: Workload,
        layout: RowLayout,
        gpu: DirectGpu,
        asked: ApplicationCall,
        *,
        count: float,
    ) -> Chosen:
        """The configuration that is chosen for contiguous arrays, or the default where others need it.

        The default also stands in for what the GPU has refused (``refused``).

        Args:
            file: the kernel.
            workload: the kernel at its problem.
            layout: of the arrays.
            gpu: that they are on.
            asked: the call.
            count: uses that the daemon is told of; 0 where the choice is only looked at.

        Raises:
            InputError: the configuration of the call cannot be taken.
        """
        found = self._for_contiguous(file, workload, gpu, asked.configuration, count=count)
        if found.unmeasured and _place(workload, gpu, found) in self._refused:
            origin = f"{DEFAULT}, as the GPU refuses the answer; else {found.origin}"
            found = Chosen(file.default(workload), origin, known=False)
        return found if layout == DENSE else for_layout(file, workload, layout, found)

    def refused(
        self, file: KernelFile, workload: Workload, gpu: DirectGpu, found: Chosen, error: TunerError
    ) -> bool:
        """Choose the default from now on where the GPU refuses an answer that nobody measured on it.

        Returns:
            Whether there is another choice now: none is, where the configuration was given or measured, or
            is the default.
        """
        if not found.unmeasured or found.configuration == file.default(workload):
            return False
        self._refused.add(_place(workload, gpu, found))
        _LOG.warning("%s; the default is used instead of this answer (%s)", error, found.origin)
        return True

    def tally(self, asked: ApplicationCall, workload: Workload, gpu: DirectGpu) -> LaunchCount:
        """Return the launch counter; a configuration given by the caller is no use of an answer."""
        if self._advisor is None or asked.configuration is not None:
            return LaunchCount()
        return self._advisor.tally(workload, gpu.identity)

    def _for_contiguous(
        self, file: KernelFile, workload: Workload, gpu: DirectGpu, configuration: Settings, *, count: float
    ) -> Chosen:
        if isinstance(configuration, str):
            return Chosen(file.default(workload), DEFAULT)
        if configuration is not None:
            return given(file, workload, configuration)
        chosen = choose(file, workload, gpu.identity, self._database, self._advisor, count=count)
        if chosen.known or self._untuned is None:
            return chosen
        return self._untuned.answer(file, workload, gpu) or chosen


def _place(workload: Workload, gpu: DirectGpu, found: Chosen) -> tuple[object, ...]:
    """An answer on a GPU, whatever the batch."""
    return gpu.identity.uuid, str(workload), found.configuration


_Kept = TypeVar("_Kept")


class Application:
    """Kernels of a catalogue on the GPUs of this process. May be used by several threads.

    Args:
        catalog: the kernels.
        database: where tuned configurations are looked up.
        advisor: asks the daemon; None where there is to be none.
        untuned: answers for kernels that nobody tuned; None for their defaults.
        kept: calls worked out, and again forms of arrays that lead to them; the oldest goes first.
    """

    def __init__(
        self,
        catalog: Catalog,
        database: Path,
        advisor: Advisor | None = None,
        untuned: UntunedAnswers | None = None,
        *,
        kept: int = 512,
    ) -> None:
        self._kept = kept
        self._catalog = catalog
        self._answers = database, advisor, untuned
        self._chooser = ConfigurationChooser(database, advisor, untuned)
        self._cp: ModuleType | None = None
        self._lock = threading.Lock()
        self._gpus: dict[int, DirectGpu] = {}
        self._calls: dict[tuple[object, ...], KernelRunner] = {}
        self._tables = TableCache()
        self._seen: dict[tuple[object, ...], KernelRunner] = {}
        self._others: dict[tuple[object, ...], Any] = {}  # what ``look`` finds
        self._tensors: TensorForms | None = None  # once there was a tensor

    def beside(self, file: KernelFile) -> "Application":
        """The same with a further kernel, which overrides another one of its name."""
        return Application(self._catalog.with_kernels({file.name: file}), *self._answers, kept=self._kept)

    def apply(
        self,
        kernel: str,
        arrays: Sequence[Array],
        sizes: Mapping[str, int | str],
        *,
        out: Array | Sequence[Array] | None = None,
        stream: Stream | None = None,
        configuration: Settings = None,
    ) -> Array | tuple[Array, ...]:
        """See ``tuner.apply``."""
        outs = () if out is None else out if isinstance(out, SEVERAL) else (out,)
        given_arrays = (*arrays, *outs)
        key: tuple[object, ...] | None = None
        runner, tensors = None, self._tensors
        try:
            if tensors is not None and stream is None and arrays and arrays[0].__class__ is tensors.kind:
                forms, addresses = tensors.examined(given_arrays)
            else:
                forms, addresses = examined(given_arrays)
            replaced = replaced_place(addresses, len(outs)) if outs else None
            key = seen_key(kernel, (len(outs), replaced), forms, configuration, sizes)
            runner = self._seen.get(key)
        except (AttributeError, TypeError, RuntimeError):  # of another kind, or nothing that can be compared
            pass
        if runner is not None and (out is None or outs):
            return runner.run(given_arrays, addresses, stream)
        cp = self._cupy(kernel)
        if _foreign(cp, given_arrays):
            call = self._borrowed(cp, kernel, arrays, outs, stream)
            runner = self._found(cp, call.asked(configuration, sizes), call.stream)
            result = call.run(runner, given=out is not None)
            if call.torch is not None:
                self._tensors = tensors or TensorForms(call.torch)
                if key is not None:
                    self._note(key, TensorRunner(cp, call.torch, runner.loaded))
            return result
        runner = self._runner(kernel, arrays, outs, configuration, sizes, stream=stream)
        if out is not None:
            runner.loaded.check_outputs(outs)
        _, addresses = examined(given_arrays)
        if key is not None:
            self._note(key, runner)
        return runner.run(given_arrays, addresses, stream)

    def look(
        self, head: tuple[object, ...], arrays: Sequence[Value]
    ) -> tuple[Any, list[int], tuple[object, ...] | None]:
        """The result that was kept for a call on CuPy arrays or tensors, addresses, and the key for ``keep``.

        Args:
            head: what decides beside the arrays: their shapes, strides, types and GPU, and whether kernels
                can load from where they begin.
            arrays: of the call.
        """
        tensors = self._tensors
        try:
            if tensors is not None and arrays[0].__class__ is tensors.kind:
                forms, addresses = tensors.examined(arrays)
            else:
                forms, addresses = examined(arrays)
            key = (*head, *[not address & ALIGNED for address in addresses], *forms)
            return self._others.get(key), addresses, key
        except (AttributeError, TypeError, RuntimeError):  # of another kind, or nothing that can be compared
            return None, [], None

    def keep(self, key: tuple[object, ...] | None, found: object, torch: ModuleType | None) -> None:
        """Have ``look`` find something, of a key that it gave; from the first tensor on it looks at those."""
        if torch is not None:
            self._tensors = self._tensors or TensorForms(torch)
        if key is not None:
            with self._lock:
                self._keep(self._others, key, found)

    def loaded(self, cp: ModuleType, asked: ApplicationCall) -> tuple[LoadedKernel, Plan]:
        """A kernel in the configuration that is chosen for a call, and its plan."""
        loaded = self._found(cp, asked).loaded
        file = self._catalog.kernel(loaded.workload.kernel)
        return loaded, file.plan(loaded.workload, loaded.chosen.configuration)

    def program(self, cp: ModuleType, device: int, plan: Plan) -> Program:
        """A plan, compiled and loaded; one thread at a time, as the code cache has no lock of its own."""
        with self._lock:
            return self._gpu(cp, device).program(plan)

    def _note(self, key: tuple[object, ...], runner: KernelRunner) -> None:
        with self._lock:
            self._keep(self._seen, key, runner)

    def plan(
        self,
        kernel: str,
        arrays: Sequence[Array | tuple[int, ...]],
        sizes: Mapping[str, int | str],
        *,
        out: Array | Sequence[Array] | None = None,
        configuration: Settings = None,
    ) -> KernelPlan:
        """See ``tuner.plan``."""
        shapes = [array for array in arrays if isinstance(array, SEVERAL)]
        outs = () if out is None else tuple(out) if isinstance(out, SEVERAL) else (out,)
        cp = self._cupy(kernel, "plan")
        if not shapes and _foreign(cp, (*arrays, *outs)):
            call = self._borrowed(cp, kernel, arrays, outs, None)
            runner = self._found(cp, call.asked(configuration, sizes), call.stream)
            lent = call.outputs(runner.loaded, given=out is not None)
            with call.entered():
                return KernelPlan(cp, runner, call.arrays, lent, call.torch)
        if not shapes:
            runner = self._runner(kernel, arrays, outs, configuration, sizes, stream=None)
        elif len(shapes) < len(arrays):
            raise InputError(f"{kernel}: a plan is for arrays or for shapes, not for some of each")
        elif out is not None:
            raise InputError(f"{kernel}: a plan for shapes has no out; give it when the plan is called")
        else:
            runner = self._runner_for_shapes(cp, kernel, shapes, configuration, sizes)
        if out is not None:
            runner.loaded.check_outputs(outs)
        with cp.cuda.Device(runner.loaded.device):
            return KernelPlan(cp, runner, own(() if shapes else arrays), own(outs))

    def chosen(
        self,
        kernel: str,
        arrays: Sequence[Array],
        sizes: Mapping[str, int | str],
        *,
        configuration: Settings = None,
    ) -> Chosen:
        """See ``tuner.chosen``."""
        cp = self._cupy(kernel, "chosen")
        if _foreign(cp, arrays):
            asked = self._borrowed(cp, kernel, arrays, (), None).asked(configuration, sizes)
        else:
            self._check(kernel, arrays, ())
            asked = asked_of(kernel, own(arrays), (), configuration, sizes)
        asked.key()  # refuses what apply refuses
        with cp.cuda.Device(asked.device), self._lock:
            file = self._catalog.kernel(kernel)
            workload = self._workload(file, asked.forms, asked.sizes)
            file = self._catalog.kernel(workload.kernel)  # the one that takes these arrays
            layout = layout_of(file, asked)
            choice = self._chooser.choice(
                file, workload, layout, self._gpu(cp, asked.device), asked, count=0.0
            )
            check_forms(file, asked.forms, file.plan(workload, choice.configuration, layout))
            return choice

    def _runner(
        self,
        kernel: str,
        arrays: Sequence[Array],
        outs: Sequence[Array],
        configuration: Settings,
        sizes: Mapping[str, int | str],
        *,
        stream: Stream | None,
    ) -> KernelRunner:
        cp = self._cupy(kernel)
        self._check(kernel, arrays, outs)
        asked = asked_of(kernel, own(arrays), own(outs), configuration, sizes)
        return self._found(cp, asked, None if stream is None else checked_stream(cp, stream, asked.device))

    def _runner_for_shapes(
        self,
        cp: ModuleType,
        kernel: str,
        shapes: Sequence[Sequence[int]],
        configuration: Settings,
        sizes: Mapping[str, int | str],
    ) -> KernelRunner:
        file = self._catalog.kernel(kernel)
        check_count(file, len(shapes))
        forms = tuple(
            ArrayForm(checked_shape(file.name, buffer.name, shape), "")
            for buffer, shape in zip(taken(file), shapes, strict=True)
        )
        device = int(cp.cuda.runtime.getDevice())
        return self._found(cp, ApplicationCall(kernel, forms, device, configuration, sizes))

    def _found(self, cp: ModuleType, asked: ApplicationCall, stream: Stream | None = None) -> KernelRunner:
        """The kernel of a call, which is worked out unless the stream of the call is being captured."""
        key = asked.key()
        result = self._calls.get(key)
        if result is not None:
            return result
        with cp.cuda.Device(asked.device):
            refuse_capture(cp, asked.kernel, stream, asked.device, COMPILES)
            return self._work_out(cp, key, asked)

    def _cupy(self, kernel: str, function: str = "apply") -> ModuleType:
        """CuPy, for a kernel that there is; messages name the function of ``tuner`` that was called."""
        if not isinstance(kernel, str):
            raise InputError(f"kernel is {kernel!r}; it must be the name of a kernel")
        self._catalog.kernel(kernel)
        if self._cp is None:
            self._cp = probe.import_cupy(f"tuner.{function}({kernel!r})")
        return self._cp

    def _check(self, kernel: str, arrays: Sequence[Array], outs: Sequence[Array]) -> None:
        """Refuse CuPy arrays that no kernel can run on as they are."""
        file, device = self._catalog.kernel(kernel), None
        check_count(file, len(arrays))
        for buffer, array in zip(taken(file), arrays, strict=True):
            check_array(kernel, buffer.name, array, device)
            device = arrays[0].data.device_id
        for out in outs:
            check_array(kernel, "out", out, device)

    def _borrowed(
        self,
        cp: ModuleType,
        kernel: str,
        arrays: Sequence[Value],
        outs: Sequence[Value],
        stream: Stream | None,
    ) -> BorrowedCall:
        """A call on arrays of which one at least is another library's."""
        file = self._catalog.kernel(kernel)
        check_count(file, len(arrays))
        names = [buffer.name for buffer in taken(file)]
        written = [buffer.role == "inout" for buffer in taken(file)]
        call = borrowed_call(cp, kernel, list(zip(names, arrays, written, strict=True)), outs, stream)
        self._check(kernel, [array.array for array in call.arrays], [out.array for out in call.outs])
        return call

    def _workload(
        self, file: KernelFile, forms: Sequence[ArrayForm], sizes: Mapping[str, int | str]
    ) -> Workload:
        return self._catalog.workload_of(file, lambda one: workload_for(one, forms, sizes))

    def _work_out(self, cp: ModuleType, key: tuple[object, ...], asked: ApplicationCall) -> KernelRunner:
        with self._lock:
            if key in self._calls:  # another thread was first
                return self._calls[key]
            file, forms = self._catalog.kernel(asked.kernel), asked.forms
            home, gpu = HomeContext(cp, asked.device), self._gpu(cp, asked.device)
            workload = self._workload(file, forms, asked.sizes)
            file = self._catalog.kernel(workload.kernel)  # the one that takes these arrays
            layout = layout_of(file, asked)
            choice, plan, program = self._program(file, workload, layout, gpu, asked, count=1.0)
            loaded = loaded_kernel(
                file,
                plan,
                forms,
                choice,
                layout=layout,
                device=asked.device,
                program=program,
                home=home,
                tally=self._chooser.tally(asked, workload, gpu),
                cache=self._tables,
            )
            return self._keep(self._calls, key, KernelRunner(cp, loaded))

    def _program(
        self,
        file: KernelFile,
        workload: Workload,
        layout: RowLayout,
        gpu: DirectGpu,
        asked: ApplicationCall,
        *,
        count: float,
    ) -> tuple[Chosen, Plan, Program]:
        """The choice of a call, loaded; the default where the GPU refuses what nobody measured on it."""
        choice = self._chooser.choice(file, workload, layout, gpu, asked, count=count)
        plan = file.plan(workload, choice.configuration, layout)
        check_forms(file, asked.forms, plan)
        _LOG.debug("%s, batch %d, %s: %s", workload, workload.batch, gpu.identity.spec, choice)
        try:
            return choice, plan, gpu.program(plan)
        except (CompileError, DeviceError) as error:
            if not self._chooser.refused(file, workload, gpu, choice, error):
                raise
        return self._program(file, workload, layout, gpu, asked, count=0.0)

    def _keep(self, table: dict[tuple[object, ...], _Kept], key: tuple[object, ...], found: _Kept) -> _Kept:
        while len(table) >= self._kept:
            del table[next(iter(table))]
        table[key] = found
        return found

    def _gpu(self, cp: ModuleType, device: int) -> DirectGpu:
        if device not in self._gpus:
            self._gpus[device] = DirectGpu(cp, device)
        return self._gpus[device]


def _foreign(cp: ModuleType, arrays: Sequence[Value]) -> bool:
    return not all(isinstance(array, cp.ndarray) for array in arrays)
