"""From the arrays of a caller to a workload: checks of arrays and streams, and the sizes of a kernel.

Kernels take arrays as they are, or not at all.
"""

import itertools
import math
import reprlib
from collections.abc import Collection, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

from tuner.devices.cuda.lanes import stream_of
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.sizes import listed
from tuner.kernel_files.stage_recipe import BufferRecipe
from tuner.model.elements import element_dtype
from tuner.model.errors import InputError, KernelFileError
from tuner.model.plan import Buffer, Plan, Workload

# --- Arrays whose rows lie apart: what can be taken, and where two of them share memory.

Array: TypeAlias = Any
"""``cupy.ndarray``, which has no type information."""


def only_rows_apart(shape: Sequence[int], strides: Sequence[int], unit: int = 1) -> bool:
    """True when elements of a row follow each other and rows do not: as in ``x[:, :N]`` or ``x[::2]``.

    Args:
        shape: of an array that is not contiguous.
        strides: from one element to the next along each axis.
        unit: stride of neighbours: 1 where strides count elements, the bytes of one where they count bytes.
    """
    step = unit
    for extent, stride in zip(reversed(shape[1:]), reversed(strides[1:]), strict=True):
        if extent > 1 and stride != step:
            return False
        step *= extent
    return len(shape) > 1 and strides[0] >= 0 and strides[0] % unit == 0


def row_pitch(array: Array) -> int | None:
    """Elements from one row to the next; None for a contiguous array, where its shape tells."""
    return None if array.flags.c_contiguous else int(array.strides[0]) // int(array.itemsize)


def overlap(one: Array, other: Array) -> bool:
    """True when two arrays share memory; rows of one may lie between those of the other.

    Rows of two pitches count as overlapping where their ranges of memory do.
    """
    begin, other_begin = one.data.ptr, other.data.ptr
    if begin + _extent_bytes(one) <= other_begin or other_begin + _extent_bytes(other) <= begin:
        return False
    pitch = one.strides[0] if one.ndim > 1 else 0
    if other.ndim == 1 or pitch != other.strides[0] or pitch == 0:
        return True
    distance = (other_begin - begin) % pitch
    return bool(distance < _row_bytes(one) or distance + _row_bytes(other) > pitch)


def _row_bytes(array: Array) -> int:
    return int(math.prod(array.shape[1:]) * array.itemsize)


def _extent_bytes(array: Array) -> int:
    """Bytes from its beginning to the end of its last row."""
    if array.flags.c_contiguous:
        return int(array.nbytes)
    return int((array.shape[0] - 1) * array.strides[0]) + _row_bytes(array)


Stream: TypeAlias = Any
"""``cupy.cuda.Stream``, which has none either; of callers also PyTorch's, or with ``__cuda_stream__``."""

SEVERAL = (tuple, list)
"""Types of a group of arrays, and of a shape; ``tuple | list`` would be made anew in every call."""

ALIGNED = 15
"""Bits of an address that are zero: kernels load 16 bytes at a time."""


def check_array(kernel: str, name: str, array: Array, device: int | None) -> None:
    """Refuse a CuPy array that no kernel can be handed as it is; rows may lie apart.

    Args:
        kernel: what messages call the kernel.
        name: what they call the array.
        array: it.
        device: the GPU it must be on; None for any.

    Raises:
        InputError: the message names the array and what would be right.
    """
    here = array.data.device_id
    if device is not None and here != device:
        raise InputError(
            f"{kernel}: {name} is on GPU {here}; it must be on GPU {device} as the first array is"
        )
    if not array.flags.c_contiguous and not only_rows_apart(array.shape, array.strides, array.itemsize):
        raise InputError(
            f"{kernel}: {name} is not contiguous (strides {array.strides} of shape {array.shape});"
            " cupy.ascontiguousarray copies it to one that is, or a tensor's contiguous()"
        )
    check_alignment(kernel, name, array)


def check_alignment(kernel: str, name: str, array: Array) -> None:
    """Refuse an array that kernels cannot load from.

    Raises:
        InputError: it does not begin at a multiple of 16 bytes.
    """
    beyond = array.data.ptr & ALIGNED
    if beyond:
        raise InputError(
            f"{kernel}: {name} begins {beyond} bytes past a multiple of {ALIGNED + 1}; a copy of it does not"
        )


def examined(arrays: Sequence[Array]) -> tuple[list[object], list[int]]:
    """Return the properties that decide if a kernel can run on arrays, and their addresses, in one pass.

    Strides tell how an array lies in memory.

    Raises:
        AttributeError: one is no CuPy array.
    """
    forms: list[object] = []
    addresses: list[int] = []
    for array in arrays:
        data = array.data
        forms += (array.__class__, array.shape, array.strides, array.dtype, data.device_id)
        addresses.append(data.ptr)
    return forms, addresses


def checked_shape(kernel: str, name: str, shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of an array that is not there yet.

    Raises:
        InputError: it holds something else than whole numbers.
    """
    if not all(type(extent) is int for extent in shape):
        raise InputError(
            f"{kernel}: {name} is planned for {reprlib.repr(shape)}; a shape is whole numbers, and arrays are"
            " given one by one"
        )
    return tuple(shape)


def checked_stream(cp: ModuleType, stream: Stream, device: int) -> Stream:
    """The stream as CuPy's, when it is one on this GPU: CuPy's, PyTorch's, or one of CUDA's stream protocol.

    Raises:
        InputError: it is not.
    """
    on, handle = getattr(stream, "device_id", -1), None
    if not hasattr(stream, "ptr") or not hasattr(stream, "__enter__"):
        if hasattr(stream, "cuda_stream") and hasattr(stream, "device"):  # PyTorch's
            on, handle = stream.device.index, stream.cuda_stream
        elif hasattr(stream, "__cuda_stream__"):
            _, handle = stream.__cuda_stream__()
        else:
            kind = type(stream)
            raise InputError(
                f"stream is a {kind.__module__}.{kind.__qualname__}; it must be a cupy.cuda.Stream,"
                " a torch.cuda.Stream, or have __cuda_stream__"
            )
    if on not in (-1, device):
        raise InputError(f"stream is on GPU {on}; the arrays are on GPU {device}")
    if handle is None:
        return stream
    with cp.cuda.Device(device):
        return stream_of(cp, handle)


class ArrayForm(NamedTuple):
    """The form of an array.

    Attributes:
        shape: of it.
        dtype: NumPy's name of its type, or empty where sizes and defaults decide it.
        pitch: elements from one row to the next; None for a contiguous array.
    """

    shape: tuple[int, ...]
    dtype: str
    pitch: int | None = None

    def __str__(self) -> str:
        apart = "" if self.pitch is None else f" with rows {self.pitch} elements apart"
        return f"{self.dtype} of shape {self.shape}{apart}".removeprefix(" of ")


_Given = tuple[BufferRecipe, ArrayForm]


def taken(kernel: KernelFile) -> tuple[BufferRecipe, ...]:
    """The arrays a caller hands over, in their order."""
    return tuple(buffer for buffer in kernel.recipe.buffers if buffer.role in ("in", "inout"))


def check_count(kernel: KernelFile, count: int) -> None:
    """Refuse too few and too many arrays.

    Raises:
        InputError: the message names those that are taken, and those that are missing.
    """
    names = [buffer.name for buffer in taken(kernel)]
    if not names:
        raise InputError(f"{kernel.name} takes no arrays, so its sizes are unknown; it cannot be applied")
    if count == len(names):
        return
    missing = f": {', '.join(names[count:])} missing" if count < len(names) else ""
    arrays = "array" if len(names) == 1 else "arrays"
    raise InputError(
        f"{kernel.name} takes {len(names)} {arrays} ({', '.join(names)}); {count} given{missing}"
    )


def workload_for(kernel: KernelFile, forms: Sequence[ArrayForm], sizes: Mapping[str, int | str]) -> Workload:
    """The kernel at the problem that arrays hold.

    An axis that is a size, or the batch, gives its value; a type follows from sizes, so that those not known
    yet are found by the type. An array without its axis of the batch is a batch of one.

    Args:
        kernel: the kernel.
        forms: of the arrays it takes, in their order.
        sizes: what the arrays do not tell.

    Raises:
        UnknownNameError: a size is unknown, missing, or not one of the kernel's.
        InputError: an array has another form than the kernel takes.
    """
    given = list(zip(taken(kernel), forms, strict=True))
    extents = {name: extent for name, extent in _extents(kernel, given).items() if name not in sizes}
    found = _by_formulas(kernel, given, {**extents, **sizes}) | extents
    if "batch" in sizes:
        raise InputError(f"{kernel.name}: batch is not given, it is an axis of the arrays")
    batch = found.pop("batch", None)
    known = {**found, **sizes}
    free = _unknown_types(kernel, known)
    first = {name: listed(kernel.sizes[name])[0] for name in free}
    try:
        env = dict(kernel.workload({**known, **first}, batch).sizes)
    except InputError as error:
        shown = ", ".join(f"{buffer.name}: {form}" for buffer, form in given)
        raise type(error)(f"{error} ({shown})") from error
    return kernel.workload({**known, **_types(kernel, given, env, free)}, batch)


def untold_sizes(kernel: KernelFile, workload: Workload) -> dict[str, int | str]:
    """The sizes of a workload that no axis and no type of an array tells."""
    buffers = taken(kernel)
    told = {axis.expression.text for buffer in buffers for axis in buffer.shape}
    told = told.union(*(buffer.dtype.names for buffer in buffers))
    return {name: value for name, value in workload.sizes if name not in told}


def check_forms(kernel: KernelFile, forms: Sequence[ArrayForm], plan: Plan) -> None:
    """Refuse arrays that are not as large as the plan's, which sizes decide alone where axes are formulas.

    Only a batch of one may lack its axis.

    Raises:
        InputError: the message names the array and the shape it must have.
    """
    buffers = {buffer.name: buffer for buffer in plan.buffers}
    for recipe, form in zip(taken(kernel), forms, strict=True):
        flat = is_flat(recipe, form.shape) and plan.workload.batch == 1
        expected = shape_of(recipe, buffers[recipe.name], flat=flat)
        if form.shape != expected:
            raise InputError(
                f"{kernel.name}: {recipe.name} has shape {form.shape}; for {plan.workload} and a batch of"
                f" {plan.workload.batch} it must be {expected}"
            )


def is_flat(recipe: BufferRecipe, shape: Sequence[int]) -> bool:
    """True where an array lacks its axis of the batch."""
    return _has_batch(recipe) and len(shape) == len(recipe.shape) - 1


def shape_of(recipe: BufferRecipe, buffer: Buffer, *, flat: bool) -> tuple[int, ...]:
    """Shape of an array for a buffer; without the axis of the batch where arrays are flat."""
    return buffer.shape[1:] if flat and _has_batch(recipe) else buffer.shape


def _has_batch(recipe: BufferRecipe) -> bool:
    return recipe.shape[0].expression.text == "batch"


def _extents(kernel: KernelFile, given: Sequence[_Given]) -> dict[str, int]:
    """Return the extents of named axes; the first array that has an axis decides."""
    result: dict[str, int] = {}
    for recipe, form in given:
        axes = [axis.expression.text for axis in recipe.shape]
        shape = (1, *form.shape) if is_flat(recipe, form.shape) else form.shape
        if len(shape) != len(axes):
            flat = f", or ({', '.join(axes[1:])}) for a batch of one" if _has_batch(recipe) else ""
            raise InputError(
                f"{kernel.name}: {recipe.name} has shape {form.shape}; it must be ({', '.join(axes)}){flat}"
            )
        for axis, extent in zip(axes, shape, strict=True):
            if axis == "batch" or axis in kernel.sizes:
                result.setdefault(axis, extent)
    return result


def _by_formulas(
    kernel: KernelFile, given: Sequence[_Given], known: Mapping[str, int | str]
) -> dict[str, int]:
    """Sizes that axes are by a formula: the only one unknown in it, where its value is the axis' extent."""
    env = {name: kernel.sizes[name][0] for name in kernel.optional} | dict(known)
    result: dict[str, int] = {}
    for recipe, form in given:
        shape = (1, *form.shape) if is_flat(recipe, form.shape) else form.shape
        for axis, extent in zip(recipe.shape, shape, strict=True):
            unknown = axis.expression.names - env.keys() - {"batch"}
            name = next(iter(unknown), "")
            if axis.expression.text == name or len(unknown) != 1 or name not in kernel.sizes:
                continue
            try:
                fits = axis.value({**env, name: extent, "batch": shape[0]}) == extent
            except KernelFileError:  # no result for this number
                continue
            if fits:
                result.setdefault(name, extent)
    return result


def _unknown_types(kernel: KernelFile, known: Collection[str]) -> list[str]:
    """Sizes that types of arrays depend on and that are not known yet."""
    names = frozenset[str]().union(*(recipe.dtype.names for recipe in taken(kernel)))
    return [name for name in kernel.sizes if name in names and name not in known]


def _types(
    kernel: KernelFile, given: Sequence[_Given], env: Mapping[str, int | str], free: Sequence[str]
) -> dict[str, int | str]:
    """Values of the free sizes at which the arrays have the types they have."""
    values = itertools.product(*(listed(kernel.sizes[name]) for name in free))
    candidates = [dict(zip(free, value, strict=True)) for value in values]
    for recipe, form in given:
        if not form.dtype:
            continue
        types = [recipe.dtype.fill({**env, **candidate}) for candidate in candidates]
        stated = recipe.dtype.names.isdisjoint(free)
        if stated and form.dtype == element_dtype(types[0]).name:
            continue  # arrays hold the bits of a bfloat16 as uint16
        if form.dtype not in types:
            shown = [element_dtype(dtype).name for dtype in types] if stated else types
            choice = " or ".join(dict.fromkeys(shown))
            raise InputError(f"{kernel.name}: {recipe.name} has dtype {form.dtype}; it must be {choice}")
        candidates = [c for c, dtype in zip(candidates, types, strict=True) if dtype == form.dtype]
    return candidates[0]
