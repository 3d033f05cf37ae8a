"""One function of a judgement, in a process of its own: a candidate, or the reference with its inputs.

A candidate's process holds no reference, no right answer and no clock that counts: nothing that it reads,
patches or keeps there helps it. It is no sandbox: what its user may do to the machine, it may do.
"""

import hashlib
import importlib
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice, starmap
from numbers import Number
from operator import attrgetter
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tuner.devices.cuda.probe import import_cupy
from tuner.model.elements import BFLOAT16, bfloat16_values
from tuner.model.errors import UncheckableError
from tuner.model.plan import PythonFunction
from tuner.problems.base import poison
from tuner.problems.stated import error_text, function_of

_T = TypeVar("_T")
INSIDE = "TUNER_JUDGED"
"""Set in the processes of functions that are judged: a judgement there would start more of them."""

_CALLED = "tuner.judge.reference"  # event of a reference that a candidate has called
_BUSY_BYTES, _BUSY_COPIES = 2**27, 10  # a millisecond of a large GPU, for which its stream is kept busy
_WATCHED = (
    *("time.time", "time.perf_counter", "time.perf_counter_ns", "time.monotonic", "time.process_time"),
    *("numpy.allclose", "numpy.isclose", "numpy.array_equal", "numpy.array", "numpy.copyto"),
    *("cupy.allclose", "cupy.asnumpy", "cupy.copyto", "cupy.cuda.Event", "cupy.cuda.get_elapsed_time"),
    *("cupy.cuda.runtime.deviceSynchronize", "cupy.cuda.runtime.eventElapsedTime"),
    *("torch.allclose", "torch.equal", "torch.cuda.synchronize", "torch.cuda.Event", "torch.Tensor.clone"),
    *("torch.cuda.Event.record", "torch.cuda.Event.elapsed_time", "torch._C._cuda_synchronize"),
)
# taken before a candidate is imported
_clock, _cpu_clock, _own_pid, _leave = time.perf_counter, time.process_time, os.getpid, os._exit


@dataclass(frozen=True)
class Values:
    """An array between two processes.

    Attributes:
        library: of the array: ``numpy``, ``cupy``, ``torch cuda`` or ``torch cpu``.
        dtype: name of its type there.
        array: on the host; of ``bfloat16`` the bits.
    """

    library: str
    dtype: str
    array: NDArray[Any]

    @property
    def numbers(self) -> NDArray[Any]:
        """Its elements in one row."""
        numbers: NDArray[Any] = bfloat16_values(self.array) if self.dtype == BFLOAT16 else self.array
        return numbers.reshape(-1)

    @property
    def form(self) -> str:
        """Library, type and shape, for people."""
        return f"{self.library} {self.dtype} {list(self.array.shape)}"


class Library(NamedTuple):
    """Operations of a library of arrays, taken before a candidate is imported."""

    name: str
    kind: type
    values: Callable[[Any], Values]
    array: Callable[[Values], Any]
    copy: Callable[[Any], Any]
    write: Callable[[Any, Any], Any]
    poison: Callable[[Any], Any]
    wait: Callable[[], Any]

    @property
    def on_gpu(self) -> bool:
        """True where calls return before they have ended."""
        return self.name in ("cupy", "torch cuda")


def _library(name: str) -> Library:
    if name.startswith("torch"):
        return _torch(name)
    xp: Any = np if name == "numpy" else import_cupy("tuner.judge")
    host = np.array if xp is np else partial(xp.asnumpy, order="A")
    return Library(
        name,
        xp.ndarray,
        lambda array: Values(name, str(array.dtype), host(array)),
        lambda values: xp.array(values.array),
        xp.array,
        xp.copyto,
        lambda array: poison(array.reshape(-1)),
        (lambda: None) if xp is np else xp.cuda.runtime.deviceSynchronize,
    )


def _torch(name: str) -> Library:
    """PyTorch by the methods of its class: those of one tensor may be hidden by its attributes."""
    torch: Any = importlib.import_module("torch")
    tensor, place = torch.Tensor, name.split()[1]
    cpu, view, detach, flat, clone = tensor.cpu, tensor.view, tensor.detach, tensor.contiguous, tensor.clone
    numpy, copy, fill, to, resolved = tensor.numpy, tensor.copy_, tensor.fill_, tensor.to, torch.resolve_conj
    if place == "cuda":
        torch.cuda.init()

    def values(array: Any) -> Values:  # noqa: ANN401 - a tensor
        host, bits = flat(cpu(resolved(detach(array)))), array.dtype is torch.bfloat16
        found = numpy(view(host, torch.int16)).view(np.uint16) if bits else numpy(host)
        return Values(f"torch {array.device.type}", str(array.dtype).removeprefix("torch."), np.array(found))

    def array(values: Values) -> Any:  # noqa: ANN401 - a tensor
        bits = values.dtype == BFLOAT16
        host = torch.from_numpy(np.array(values.array.view(np.int16) if bits else values.array))
        return to(view(host, torch.bfloat16) if bits else host, place)

    return Library(
        name,
        tensor,
        values,
        array,
        lambda array: clone(detach(array)),
        copy,
        lambda array: fill(view(view(flat(array), -1), torch.uint8), 0xFF),
        torch._C._cuda_synchronize if place == "cuda" else lambda: None,  # noqa: SLF001 - behind what is patched
    )


def _library_of(value: object) -> str | None:
    """The library of an input that is an array."""
    if isinstance(value, np.ndarray):
        return "numpy"
    package = type(value).__module__.partition(".")[0]
    if package == "torch" and hasattr(value, "device"):
        return f"torch {value.device.type}"
    return "cupy" if package == "cupy" and hasattr(value, "shape") else None


def code_digests(code: CodeType, name: str) -> Iterator[str]:
    """Tell the functions of a name in a code object by their instructions, wherever they were compiled."""
    if code.co_name == name:
        yield hashlib.sha256(code.co_code + repr(code.co_names).encode()).hexdigest()
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from code_digests(inner, name)


def _trap(*_args: object, **_named: object) -> None:
    import sys  # noqa: PLC0415 - this runs with the globals of the user's file

    sys.audit("tuner.judge.reference")
    raise RuntimeError("the reference is not for candidates")


def _watched() -> dict[str, object]:
    """All that no honest candidate replaces, as it is now: names of libraries, and this code."""
    found: dict[str, object] = {}
    for name in _WATCHED:
        package, _, rest = name.partition(".")
        with suppress(AttributeError, KeyError):
            found[name] = attrgetter(rest)(sys.modules[package])
    for owner in (sys.modules[__name__], sys.modules["tuner.system.processes"], JudgedFunction):
        found |= {f"{owner.__name__}.{name}": value for name, value in vars(owner).items() if callable(value)}
    return found


class JudgedFunction:
    """The server of a process that holds one function.

    Args:
        function: the candidate, or the reference.
        inputs: of the reference's process, the function that makes inputs.
        library: of a candidate's process, the library of its arrays.
        reference: of a candidate's process, the reference and the digest of its code, which must not run.
        folder: for files that a candidate writes, unless it names another.

    Raises:
        UncheckableError: a function cannot be loaded.
    """

    def __init__(
        self,
        function: PythonFunction,
        inputs: PythonFunction | None = None,
        library: str = "numpy",
        reference: tuple[PythonFunction, str] | None = None,
        folder: str = "",
    ) -> None:
        os.environ[INSIDE] = str(function)
        sys.path[:0] = [str(Path(one.path).parent) for one in (function, inputs) if one is not None]
        self._name, self._path, self._pid = str(function), function.path, _own_pid()
        self._library = _library(library)
        self._sets: list[list[Any]] = []
        self._pristine: list[list[Any]] = []
        self._writes: tuple[int, ...] = ()
        self._buffers: dict[str, list[Any]] = {}
        self._kept: list[tuple[list[Any], list[Any]]] = []
        self._spare: list[Any] = []
        self._busy: Any = None
        self._events: list[str] = []
        self._before = _watched()
        shared = reference is not None and reference[0].path == function.path
        if reference is not None:
            self._listen(*reference, allowed=int(shared))
        if folder:
            os.chdir(folder)
        self._function = function_of(function)
        self._inputs = None if inputs is None else function_of(inputs)
        theirs = function_of(reference[0]) if shared and reference is not None else None
        if isinstance(theirs, FunctionType) and not theirs.__closure__:
            theirs.__code__ = _trap.__code__

    def _listen(self, reference: PythonFunction, digest: str, *, allowed: int) -> None:
        """Note who calls the reference, or runs its file once more; such a hook cannot be taken away."""
        events, left = self._events, [allowed]

        def hook(event: str, args: tuple[Any, ...]) -> None:
            if event == _CALLED:
                events.append(f"calls the reference {reference.name!r}")
            elif event == "exec" and isinstance(args[0], CodeType):
                left[0] -= digest in code_digests(args[0], reference.name)
                if left[0] < 0:
                    events.append(f"imports the reference {reference.name!r}")

        sys.addaudithook(hook)

    def settings(self) -> dict[str, Any]:
        """Names in the file of the inputs that a judgement heeds."""
        module = vars(sys.modules[getattr(self._inputs, "__module__", __name__)])
        return {name: module.get(name) for name in ("sizes", "writes", "tolerance")}

    def make(
        self, seed: int, count: int, size: tuple[object, ...], writes: tuple[int, ...]
    ) -> tuple[str, list[list[Any]]]:
        """Make and take the arguments of so many calls; the library of their arrays comes with them.

        Raises:
            UncheckableError: the function raises, or gives no arrays of one library, or none to write.
        """
        sets = [self._made(seed, index, size) for index in range(count)]
        libraries = {name for one in sets for value in one if (name := _library_of(value))}
        if len(libraries) != 1:
            raise UncheckableError(
                f"inputs: give arguments with arrays of one library, NumPy, CuPy or PyTorch, not of"
                f" {' and '.join(sorted(libraries)) or 'none'}"
            )
        if self._library.name not in libraries:
            self._library = _library(libraries.pop())
        made = [self._crossing(one) for one in sets]
        for one in made:
            for position in writes:
                if not (position < len(one) and isinstance(one[position], Values)):
                    raise UncheckableError(f"writes: argument {position} of inputs is no array")
        self.load(made, writes)
        return self._library.name, made

    def _made(self, seed: int, index: int, size: tuple[object, ...]) -> list[Any]:
        rng = np.random.default_rng([seed, index])
        number = int(rng.integers(2**32))
        for package, path in (("random", "seed"), ("numpy", "random.seed"), ("cupy", "random.seed")):
            if package in sys.modules:
                attrgetter(path)(sys.modules[package])(number)
        if "torch" in sys.modules:
            sys.modules["torch"].manual_seed(number)
        given = self._attempt(self._inputs, rng, *size)
        return list(given) if isinstance(given, tuple | list) else [given]

    def load(self, sets: Sequence[Sequence[Any]], writes: tuple[int, ...]) -> None:
        """Take the arguments of calls; those at the positions in ``writes`` are restored before each."""
        own, self._writes = self._library, writes
        self._sets = [[own.array(v) if isinstance(v, Values) else v for v in one] for one in sets]
        self._pristine = [[own.copy(one[position]) for position in writes] for one in self._sets]

    def call(self, index: int) -> None:
        """Call once, with arguments at the same addresses as any before of their form.

        On a GPU they are still on their way when the function is called, and its outputs are copied at its
        return: a stream that waits for nothing finds old inputs, and comes too late. Memory that it may get
        for outputs is poisoned.
        """
        own, arguments = self._library, list(self._sets[index])
        for position, before in zip(self._writes, self._pristine[index], strict=True):
            arguments[position] = before
        is_array = [type(value) is own.kind for value in arguments]
        form = repr([own.values(v).form if a else v for v, a in zip(arguments, is_array, strict=True)])
        if form not in self._buffers:
            self._buffers[form] = [own.copy(v) if a else v for v, a in zip(arguments, is_array, strict=True)]
        buffers = self._buffers[form]
        for spare in self._spare:
            own.poison(spare)
        self._spare.clear()
        if own.on_gpu:
            for buffer, array in zip(buffers, is_array, strict=True):
                if array:
                    own.poison(buffer)
            if self._busy is None:
                self._busy = own.array(Values(own.name, "uint8", np.zeros((2, _BUSY_BYTES), np.uint8)))
            own.wait()
            for _ in range(_BUSY_COPIES):
                own.write(self._busy[0], self._busy[1])
        for buffer, value, array in zip(buffers, arguments, is_array, strict=True):
            if array:
                own.write(buffer, value)
        self._keep(self._attempt(self._function, *buffers), buffers)

    def touch(self, first: int, stop: int) -> None:
        """Read some sets: no cache of the hardware tells them from others."""
        for one in self._sets[first:stop]:
            for value in one:
                self._copy(value)
        self._library.wait()

    def run(self, first: int, stop: int, count: int) -> float:
        """Call back to back, going round some sets; done when the whole GPU is.

        Returns:
            Seconds by a clock of this process, on the host that of its CPU time, which nobody else makes
            longer: to be compared with others of it.
        """
        sets, function, writes, write = (
            self._sets[first:stop],
            self._function,
            self._writes,
            self._library.write,
        )

        def restored(arguments: list[Any], before: list[Any]) -> object:
            for position, value in zip(writes, before, strict=True):
                write(arguments[position], value)
            return function(*arguments)

        if writes:
            turns = cycle(zip(sets, self._pristine[first:stop], strict=True))
            calls = starmap(restored, islice(self._own(turns), count))
        else:  # no frame above the function knows how many calls are left
            calls = starmap(function, islice(self._own(cycle(sets)), count))
        clock = _clock if self._library.on_gpu else _cpu_clock
        begun = clock()
        (result,) = self._attempt(deque, calls, 1)
        self._keep(result, sets[(count - 1) % len(sets)])
        return clock() - begun

    def _own(self, turns: Iterator[_T]) -> Iterator[_T]:
        """Go on in this process alone: copies that a function forks would fork at each call that is left."""
        for turn in turns:
            if _own_pid() != self._pid:
                _leave(0)
            yield turn

    def kept(self) -> list[tuple[list[Values], list[Any]]]:
        """Outputs and arguments of the last call, of each call or run since this was asked."""
        kept, self._kept = self._kept, []
        found = [(self._crossing(outputs), self._crossing(arguments)) for outputs, arguments in kept]
        self._spare = [value for value in (kept[-1][0] if kept else ()) if type(value) is self._library.kind]
        return found

    def events(self) -> list[str]:
        """All that the function, or its file, has done that no honest one does."""
        now = _watched()
        replaced = [name for name, value in self._before.items() if now.get(name) is not value]
        return [*dict.fromkeys(self._events), *(f"replaces {name}" for name in replaced)]

    def _attempt(self, function: Any, *arguments: Any) -> Any:  # noqa: ANN401 - the user's, or a caller of it
        try:
            return function(*arguments)
        except BaseException as error:  # of the user's: it may leave, or interrupt itself
            raise UncheckableError(f"{self._name}: raised {error_text(error, self._path)}") from error
        finally:
            if _own_pid() != self._pid:
                _leave(0)  # a copy that the function has forked must not answer

    def _keep(self, result: object, arguments: list[Any]) -> None:
        """Copy the outputs of a call at once: what it returns, or what it may write where that is None."""
        outputs = list(result) if isinstance(result, tuple | list) else [result]
        if result is None and self._writes:
            outputs = [arguments[position] for position in self._writes]
        for output in outputs:
            on_host = type(output) is np.ndarray or isinstance(output, np.generic | Number)
            if not (type(output) is self._library.kind or on_host) or getattr(output, "dtype", "") == "O":
                raise UncheckableError(
                    f"{self._name}: returns {type(output).__qualname__}: give plain arrays, computed at the"
                    " return, or name the arguments that are written: writes = (0,)"
                )
        self._kept.append(([self._copy(output) for output in outputs], arguments))
        self._library.wait()

    def _copy(self, value: Any) -> Any:  # noqa: ANN401 - an array or a number
        return self._library.copy(value) if type(value) is self._library.kind else np.array(value)

    def _crossing(self, values: Sequence[Any]) -> list[Any]:
        """Arrays as values; all else as it is."""
        own = self._library
        return [
            own.values(v)
            if isinstance(v, own.kind)
            else Values("numpy", str(v.dtype), v)
            if type(v) is np.ndarray
            else v
            for v in values
        ]
