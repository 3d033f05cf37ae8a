"""Functions of arrays as people have them: any axes, batch and type, in front of kernels of the catalogue.

Kernels take rows of a few types. What a caller has is brought into that form on the GPU, in the stream of the
call and by copies where it must be. A call whose arrays have that form already goes straight to the kernel.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

from tuner import application
from tuner.application.array_calls import borrowed_call
from tuner.application.borrowing import BorrowedArray, Value
from tuner.application.calls import Application
from tuner.application.keys import ALIGNED, Array, only_rows_apart
from tuner.application.running import ALLOCATES
from tuner.devices.cuda import probe
from tuner.model.elements import BFLOAT16
from tuner.model.errors import InputError


def process_application() -> Application:
    """The kernels of this process."""
    return application._application()  # noqa: SLF001 - of this room


@dataclass(frozen=True)
class Call:
    """A call on the GPU of its arrays, whose current stream is that of the call.

    Attributes:
        name: what messages begin with, e.g. ``tuner.linalg.qr``.
        cp: CuPy.
        returned: makes an array of CuPy, made in this call, one of the caller's library.
        device: number of the GPU.
        torch: PyTorch; None where no array is a tensor.
    """

    name: str
    cp: ModuleType
    returned: Callable[[Array], Any]
    device: int = 0
    torch: ModuleType | None = None

    def wrong(self, what: str) -> InputError:
        """An error of this call."""
        return InputError(f"{self.name}: {what}")

    def rows(self, array: Array, *, apart: bool) -> Array:
        """An array as rows that kernels take, (batch, N): itself where it is that, else a view or a copy.

        Args:
            array: of shape (..., N), with any strides.
            apart: whether the kernel takes rows that do not follow each other.
        """
        two = array if array.ndim == 2 else array.reshape(-1, array.shape[-1])  # noqa: PLR2004 - rows
        fits = two.flags.c_contiguous or (apart and only_rows_apart(two.shape, two.strides, two.itemsize))
        return two if fits and not two.data.ptr & ALIGNED else two.copy()

    @staticmethod
    def same(rows: Array, moved: Array, given: BorrowedArray, most: int = 2) -> bool:
        """True where rows, or planes, are an argument as it came.

        Args:
            rows: as a kernel takes them.
            moved: the argument as they were made of it, whatever its type was changed to.
            given: the argument.
            most: axes that the kernel takes.
        """
        array = given.array
        return bool(
            rows.data.ptr == array.data.ptr
            and rows.dtype == array.dtype
            and moved.ndim <= most
            and (moved.shape, moved.strides) == (array.shape, array.strides)
        )

    def axis(self, name: str, axis: object, ndim: int) -> int:
        """An axis counted from the first one.

        Raises:
            InputError: there is no such axis.
        """
        if isinstance(axis, (int, np.integer)) and not isinstance(axis, bool) and -ndim <= axis < ndim:
            return int(axis) % ndim
        raise self.wrong(f"{name} is {axis!r}; it must be a whole number from {-ndim} to {ndim - 1}")


@dataclass(frozen=True)
class Straight:
    """A result that is one run of a kernel.

    Attributes:
        kernel: in the catalogue.
        arrays: that it takes.
        sizes: what they do not tell.
        out: where it goes; None for a new array.
    """

    kernel: str
    arrays: tuple[Array, ...]
    sizes: Mapping[str, int | str] = field(default_factory=dict)
    out: Array | None = None

    def run(self) -> Array:
        """The result, in CuPy's current stream."""
        return process_application().apply(self.kernel, self.arrays, self.sizes, out=self.out)


@contextmanager
def called(name: str, given: Mapping[str, Value]) -> Iterator[tuple[Call, tuple[BorrowedArray, ...]]]:
    """The call and its arrays as CuPy's; their GPU and the stream of the call are current meanwhile.

    Args:
        name: of the function, as messages begin.
        given: arrays by the names that messages have.

    Raises:
        InputError: one is no array on a GPU, or on another one than the first; or a current stream is being
            captured.
        DeviceUnavailableError: there is no driver, or no CuPy.
        DeviceError: the GPU has no room for copies and results.
    """
    cp = probe.import_cupy(name)
    arrays = [(key, value, False) for key, value in given.items()]
    borrowed = borrowed_call(cp, name, arrays, (), None, refused=ALLOCATES)
    with borrowed.computing() as returned:
        call = Call(name, cp, returned, borrowed.device, borrowed.torch)
        first = next(iter(given))
        there = borrowed.arrays[0].array.data.device_id
        for key, other in zip(given, borrowed.arrays, strict=True):
            here = other.array.data.device_id
            if here != there:
                raise call.wrong(f"{key} is on GPU {here}; it must be on GPU {there} as {first} is")
        yield call, borrowed.arrays


Work = Callable[..., "Straight | Array"]
"""The work of a function, on its call, its arrays as they were borrowed, and its options."""


def perform(name: str, work: Work, given: Mapping[str, Value], *options: Any) -> Any:  # noqa: ANN401 - arrays
    """The result of a function, as an array of the caller's library.

    That a call goes straight to a kernel is kept for arrays of these forms.

    Args:
        name: of the function, as messages begin.
        work: what it does.
        given: arrays by name.
        options: of the function; those that cannot be compared are looked at in every call.

    Raises:
        TunerError: as ``called``, ``work`` and ``tuner.apply``.
    """
    known = process_application()
    values = tuple(given.values())
    found, _, key = known.look((name, *[(type(option), option) for option in options]), values)
    if found is not None:
        kernel, sizes = found
        return known.apply(kernel, values, sizes)
    with called(name, given) as (call, lent):
        result = work(call, *lent, *options)
        if isinstance(result, Straight):
            own = result.out is None and len(result.arrays) == len(lent)
            if own and all(one is other.array for one, other in zip(result.arrays, lent, strict=True)):
                known.keep(key, (result.kernel, result.sizes), call.torch)
        return _returned(call, array_of(result), lent)


def array_of(result: "Straight | Array") -> Array:
    """The array that a work comes to."""
    return result.run() if isinstance(result, Straight) else result


def _returned(call: Call, result: Array, lent: Sequence[BorrowedArray]) -> Value:
    """An array as the caller gets it: one of the arguments as it came."""
    for one in lent:
        if result is one.array:
            return one.shown
    if lent[0].dtype == BFLOAT16 and call.torch is not None:  # as what NumPy and PyTorch both have
        return call.returned(result.view(np.int16)).view(call.torch.bfloat16)
    return call.returned(result)


# --- Options, and places in messages.


def flag(call: Call, name: str, value: Any) -> bool:  # noqa: ANN401 - whatever callers have
    """Return True if an option is on.

    Raises:
        InputError: it is neither True nor False; a string would count as True.
    """
    if isinstance(value, (int, np.bool_, np.integer)) and value in {0, 1}:
        return bool(value)
    raise call.wrong(f"{name} is {value!r}; it must be True or False")


def refuse_errors(  # noqa: PLR0917 - of all measures
    call: Call, defect: Array, size: Array, limit: float, what: str, hint: str = ""
) -> None:
    """Wait for the GPU, and refuse backward errors ``defect / size`` that are too large, or NaN.

    Args:
        call: which call.
        defect: residuals of its problems, (...); there is no error where they are zero.
        size: what they are held to, (...).
        limit: the largest that is allowed.
        what: a problem, for the message: of which size.
        hint: what would be right, for its end.

    Raises:
        LinAlgError: the message names the first problem, its error, and how many there are.
    """
    errors = call.cp.where(defect == 0, defect, defect / size).get()
    values = errors.reshape(-1)
    failed = np.flatnonzero(~(values <= limit))
    if failed.size:
        first = int(failed[0])
        raise np.linalg.LinAlgError(
            f"{call.name}: {place(first, errors.shape)}{what}: backward error {values[first]:.2g}, more than"
            f" {limit:.2g} ({failed.size} of {values.size}){hint}"
        )


def place(index: int, lead: Sequence[int]) -> str:
    """A matrix of a batch for messages, e.g. ``matrix (3, 1): ``; nothing where there is only one."""
    if not lead:
        return ""
    at = tuple(int(one) for one in np.unravel_index(index, tuple(lead)))
    return f"matrix {at[0] if len(at) == 1 else at}: "
