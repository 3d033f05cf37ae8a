"""The calls of the CUDA driver that CuPy lacks, and types for the parts of CuPy that are used.

Structures and numbers are those of ``cuda.h``; the CUDA Driver API describes the calls under "Occupancy",
"Tensor Map Object Management", "Event Management", "Module Management", "Memory Management" and "Green
Contexts".
"""

import ctypes
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from tuner.model.elements import element_dtype
from tuner.model.errors import DeviceError
from tuner.model.plan import TensorMap

_CLUSTER_DIMENSION = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
_RECORD_EXTERNAL = 1  # CU_EVENT_RECORD_EXTERNAL
_NODE_PRIORITY = 8  # CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY
_SM_RESOURCE = 1  # CU_DEV_RESOURCE_TYPE_SM
_DEFAULT_STREAM = 1  # CU_GREEN_CTX_DEFAULT_STREAM, which every green context must have
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_GREEN = "12.5"  # CUDA of the first driver that makes streams of green contexts
_NONE = 0  # no interleaving, no swizzling; zeros for what lies beyond the matrix

_MAP_BYTES = 128
_MAP_ALIGNMENT = 64
_TYPES = (
    *("uint8", "uint16", "uint32", "int32", "uint64", "int64"),
    *("float16", "float32", "float64", "bfloat16"),
)
"""Elements of tensor maps in the order of CUtensorMapDataType."""
_PROMOTIONS = {0: 0, 64: 1, 128: 2, 256: 3}  # CUtensorMapL2promotion


class DriverCallError(DeviceError):
    """The driver refused a call; the message holds its name for the reason."""


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute, whose union is as large as 16 words."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint * 16))


class _LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint),
    )


class SmResource(ctypes.Structure):
    """CUdevResource of the type SM; what follows the counts is the driver's own."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("own", ctypes.c_ubyte * 92),
        ("multiprocessors", ctypes.c_uint),
        ("rest", ctypes.c_ubyte * 44),
    )


class DriverCalls:
    """The driver's library, opened with the first call.

    Args:
        open_library: gives the library; that of the system if not given.
    """

    def __init__(self, open_library: Callable[[], Any] = lambda: ctypes.CDLL("libcuda.so.1")) -> None:
        self._open_library = open_library
        self._library: Any = None

    def max_active_clusters(
        self, function: int, block: tuple[int, int, int], shared_bytes: int, cluster: int
    ) -> int:
        """Clusters of a function that are on the device at the same time.

        Args:
            function: the CUfunction, with its attributes set.
            block: threads in x, y, z.
            shared_bytes: dynamic shared memory of a block.
            cluster: blocks of a cluster, in x.

        Raises:
            DriverCallError: the function is not made for such clusters, or the driver knows none.
        """
        attribute = _Attribute(_CLUSTER_DIMENSION, 0, (ctypes.c_uint * 16)(cluster, 1, 1))
        config = _LaunchConfig((cluster, 1, 1), block, shared_bytes, None, ctypes.pointer(attribute), 1)
        count = ctypes.c_int()
        self._call(
            "cuOccupancyMaxActiveClusters",
            ctypes.byref(count),
            ctypes.c_void_p(function),
            ctypes.byref(config),
        )
        return count.value

    def tensor_map(self, address: int, tensor: TensorMap) -> "np.ndarray[Any, Any]":
        """A CUtensorMap of a contiguous matrix.

        Args:
            address: of the matrix on the device.
            tensor: rows, boxes and elements.

        Returns:
            An array of no axes and 128 bytes, aligned to 64: what CuPy passes to a kernel by value.

        Raises:
            DriverCallError: the matrix or its boxes are not of a form that the hardware copies.
        """
        size = element_dtype(tensor.element).itemsize
        room = np.zeros(_MAP_BYTES + _MAP_ALIGNMENT, np.uint8)
        begin = -room.ctypes.data % _MAP_ALIGNMENT
        encoded = room[begin : begin + _MAP_BYTES].view(f"V{_MAP_BYTES}").reshape(())
        try:
            self._call(
                "cuTensorMapEncodeTiled",
                ctypes.c_void_p(encoded.ctypes.data),
                ctypes.c_int(_TYPES.index(tensor.element)),
                ctypes.c_uint(len(tensor.dims)),
                ctypes.c_void_p(address),
                (ctypes.c_uint64 * 2)(*tensor.dims),
                (ctypes.c_uint64 * 1)(tensor.dims[0] * size),
                (ctypes.c_uint32 * 2)(*tensor.box),
                (ctypes.c_uint32 * 2)(1, 1),
                ctypes.c_int(_NONE),
                ctypes.c_int(_NONE),
                ctypes.c_int(_PROMOTIONS[tensor.promotion_bytes]),
                ctypes.c_int(_NONE),
            )
        except DriverCallError as error:
            raise DriverCallError(
                f"no tensor map of buffer {tensor.buffer!r} ({_product(tensor.dims)} elements of {size} bytes"
                f", boxes of {_product(tensor.box)}): {error}"
            ) from error
        return encoded

    def record_in_graph(self, event: int, stream: int) -> None:
        """Make the recording of an event a node of the graph that a stream is captured into.

        Every replay of the graph records it anew, and unlike one that only orders streams it can be timed.

        Raises:
            DriverCallError: the stream is in no capture.
        """
        self._call(
            "cuEventRecordWithFlags",
            ctypes.c_void_p(event),
            ctypes.c_void_p(stream),
            ctypes.c_uint(_RECORD_EXTERNAL),
        )

    def variable(self, module: int, name: str) -> tuple[int, int]:
        """Address and bytes of a ``__constant__`` or ``__device__`` variable.

        Args:
            module: the CUmodule.
            name: as the compiler lowered it.

        Raises:
            DriverCallError: the module has none of this name.
        """
        address, size = ctypes.c_uint64(), ctypes.c_size_t()
        self._call(
            "cuModuleGetGlobal_v2",
            ctypes.byref(address),
            ctypes.byref(size),
            ctypes.c_void_p(module),
            name.encode(),
        )
        return address.value, size.value

    def copy(self, to: int, source: int, size: int, stream: int) -> None:
        """Copy bytes on the device, in a stream's turn.

        Args:
            to: address that is written.
            source: address that is read.
            size: bytes.
            stream: the CUstream; 0 for the default one.

        Raises:
            DriverCallError: an address is none of the device.
        """
        self._call(
            "cuMemcpyDtoDAsync_v2",
            *(ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(size), ctypes.c_void_p(stream)),
        )

    def ready_graph(self, graph: int) -> int:
        """Make a graph ready to launch, each of its kernels at the priority that it was captured with.

        Returns:
            The CUgraphExec; to be destroyed.

        Raises:
            DriverCallError: the graph is none, or there is no memory for it.
        """
        ready = ctypes.c_void_p()
        self._call(
            "cuGraphInstantiateWithFlags",
            ctypes.byref(ready),
            ctypes.c_void_p(graph),
            ctypes.c_ulonglong(_NODE_PRIORITY),
        )
        return ready.value or 0

    def launch_graph(self, ready: int, stream: int) -> None:
        """Put a CUgraphExec into a stream."""
        self._call("cuGraphLaunch", ctypes.c_void_p(ready), ctypes.c_void_p(stream))

    def upload_graph(self, ready: int, stream: int) -> None:
        """Bring a CUgraphExec to the device, in a stream's turn."""
        self._call("cuGraphUpload", ctypes.c_void_p(ready), ctypes.c_void_p(stream))

    def destroy_graph(self, ready: int) -> None:
        """Free a CUgraphExec; where the driver is gone already, there is nothing to free."""
        with suppress(DriverCallError):
            self._call("cuGraphExecDestroy", ctypes.c_void_p(ready))

    def split_sms(self, unit: int) -> tuple[SmResource, ...]:
        """Split the multiprocessors of the current context's device.

        Args:
            unit: multiprocessors of a group; the driver rounds them up to what it can split by.

        Returns:
            As many groups as there are, and behind them what is left over.

        Raises:
            DriverCallError: the driver is too old, or splits no such device.
        """
        whole, left, count = SmResource(), SmResource(), ctypes.c_uint()
        self._call(
            "cuDeviceGetDevResource",
            *(ctypes.c_int(self._device()), ctypes.byref(whole), ctypes.c_int(_SM_RESOURCE)),
            since=_GREEN,
        )
        split = "cuDevSmResourceSplitByCount"
        asked = (ctypes.byref(whole), ctypes.byref(left), ctypes.c_uint(0), ctypes.c_uint(unit))
        self._call(split, None, ctypes.byref(count), asked[0], None, *asked[2:], since=_GREEN)
        groups = (SmResource * count.value)()
        self._call(split, groups, ctypes.byref(count), *asked, since=_GREEN)
        return (*groups[: count.value], left)

    def green_context(self, groups: Sequence[SmResource]) -> int:
        """Make a green context, whose streams run on some groups of multiprocessors only.

        Returns:
            The CUgreenCtx; to be destroyed.

        Raises:
            DriverCallError: the driver makes none.
        """
        described, context = ctypes.c_void_p(), ctypes.c_void_p()
        several = (SmResource * len(groups))(*groups)
        count = ctypes.c_uint(len(groups))
        self._call("cuDevResourceGenerateDesc", ctypes.byref(described), several, count, since=_GREEN)
        self._call(
            "cuGreenCtxCreate",
            *(ctypes.byref(context), described, ctypes.c_int(self._device()), ctypes.c_uint(_DEFAULT_STREAM)),
            since=_GREEN,
        )
        return context.value or 0

    def green_stream(self, context: int, priority: int) -> int:
        """Make a stream of a green context that waits for no default stream.

        Args:
            context: the CUgreenCtx.
            priority: as CUDA counts it, downwards from 0.

        Returns:
            The CUstream; to be destroyed.

        Raises:
            DriverCallError: the driver makes none.
        """
        stream = ctypes.c_void_p()
        self._call(
            "cuGreenCtxStreamCreate",
            *(ctypes.byref(stream), ctypes.c_void_p(context), ctypes.c_uint(_NON_BLOCKING)),
            ctypes.c_int(priority),
            since=_GREEN,
        )
        return stream.value or 0

    def destroy_green(self, context: int, streams: Sequence[int]) -> None:
        """Free a green context and its streams, as ``destroy_graph``."""
        for stream in streams:
            with suppress(DriverCallError):
                self._call("cuStreamDestroy_v2", ctypes.c_void_p(stream))
        with suppress(DriverCallError):
            self._call("cuGreenCtxDestroy", ctypes.c_void_p(context))

    def _device(self) -> int:
        device = ctypes.c_int()
        self._call("cuCtxGetDevice", ctypes.byref(device))
        return device.value

    def _call(self, name: str, *arguments: object, since: str = "12") -> None:
        if self._library is None:
            try:
                self._library = self._open_library()
            except OSError as error:
                raise DriverCallError(f"no NVIDIA driver ({error})") from error
        try:
            function = getattr(self._library, name)
        except AttributeError as error:
            raise DriverCallError(f"this driver has no {name}: it is older than CUDA {since}") from error
        code = function(*arguments)
        if code:
            raise DriverCallError(f"{name}: {self._reason(code)}")

    def _reason(self, code: int) -> str:
        name = ctypes.c_char_p()
        if self._library.cuGetErrorName(code, ctypes.byref(name)) or name.value is None:
            return f"error {code}"
        return name.value.decode()


def _product(extents: tuple[int, int]) -> str:
    return " x ".join(map(str, extents))


# --- Protocols for the parts of CuPy that the CUDA device uses, since CuPy has no type information.


class CudaEvent(Protocol):
    """A point in a stream; with timing, its time can be told from another's."""

    ptr: int

    def record(self, stream: "Stream") -> None:
        """Put the event into a stream."""

    def synchronize(self) -> None:
        """Wait until the device has passed it."""


class Graph(Protocol):
    """Launches captured once and replayed with one call."""

    graph: int
    graphExec: int  # noqa: N815 - CuPy's name

    def launch(self, stream: "Stream") -> None:
        """Replay into a stream."""

    def upload(self, stream: "Stream") -> None:
        """Bring it to the device."""


class Stream(Protocol):
    """A queue of the device."""

    ptr: int

    def __enter__(self) -> object:
        """Make it CuPy's current one."""

    def __exit__(self, *error: object) -> None:
        """Make the one before the current one again."""

    def wait_event(self, event: CudaEvent) -> None:
        """Hold back later work until the event has passed."""

    def begin_capture(self) -> None:
        """Record what follows instead of running it."""

    def end_capture(self) -> Graph:
        """Return the recorded graph, ready to replay."""

    def synchronize(self) -> None:
        """Wait until everything in it is done."""


class Array(Protocol):
    """A device array; ``data`` is what a kernel is given."""

    data: Any
    dtype: Any
    nbytes: int
    ndim: int
    real: Any
    shape: tuple[int, ...]
    size: int

    def __len__(self) -> int:
        """Extent of the first axis."""

    def get(self) -> Any:  # noqa: ANN401 - a NumPy array of whatever dtype
        """A copy on the host."""

    def reshape(self, *shape: int) -> "Array":
        """The same elements in another shape."""

    def __getitem__(self, key: Any) -> Any:  # noqa: ANN401 - an array again
        """Part of it."""

    def __setitem__(self, key: Any, value: Any) -> None:  # noqa: ANN401 - whatever NumPy takes
        """Write a part."""


class CudaFunction(Protocol):
    """A ``__global__`` function loaded onto the device."""

    ptr: int

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: Sequence[object],
        shared_mem: int,
        stream: Stream | None,
        *,
        enable_cooperative_groups: bool = False,
    ) -> None:
        """Put one launch into a stream, None for the current one."""
