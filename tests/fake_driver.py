"""A libcuda that answers the calls CuPy lacks, for the kernels of a fake CuPy."""

import ctypes
from typing import Any

from fake_cupy import FakeCupy, Graph, Stream

INVALID_VALUE = 1
NOT_SUPPORTED = 801
ALIGNMENT = 16
LARGEST_BOX = 256
EXTERNAL = 1
BY_NODE_PRIORITY = 8


class FakeLibrary:
    """Checks what it is handed as the driver does; a tensor map made here holds its address and extents."""

    def __init__(self, cp: FakeCupy) -> None:
        self._cp = cp
        self.maps: list[dict[str, Any]] = []
        self.ready: dict[int, Graph] = {}
        self.unit, self.multiprocessors = 8, 132  # of a split, and in all; 0 where the driver splits none
        self.green: dict[int, int] = {}  # multiprocessors of contexts
        self.green_streams: dict[int, Stream] = {}

    def cuOccupancyMaxActiveClusters(self, count: Any, function: Any, config: Any) -> int:  # noqa: N802 - the driver's name
        asked, kernel = config._obj, self._cp.kernel_at(function.value)
        attribute = asked.attributes[0]
        assert (asked.attribute_count, attribute.id) == (1, 4)
        cluster = attribute.value[0]
        if cluster != kernel.cluster or list(attribute.value[1:3]) != [1, 1]:
            return INVALID_VALUE
        if cluster > 8 and kernel.attributes.get(14) != 1:
            return INVALID_VALUE
        assert list(asked.grid) == [cluster, 1, 1]
        assert asked.shared_bytes == kernel.attributes.get("shared", asked.shared_bytes)
        count._obj.value = kernel.clusters
        return 0

    def cuTensorMapEncodeTiled(  # noqa: N802, PLR0917 - the driver's name and arguments
        self,
        encoded: Any,
        kind: Any,
        rank: Any,
        address: Any,
        dims: Any,
        strides: Any,
        box: Any,
        steps: Any,
        *modes: Any,
    ) -> int:
        assert encoded.value % 64 == 0
        assert rank.value == len(dims) == len(box) == len(steps) == 2
        interleave, swizzle, promotion, fill = (mode.value for mode in modes)
        assert (interleave, swizzle, fill, list(steps)) == (0, 0, 0, [1, 1])
        size = {7: 4, 8: 8}[kind.value]
        assert strides[0] == dims[0] * size
        if address.value % ALIGNMENT or strides[0] % ALIGNMENT or box[0] * size % ALIGNMENT:
            return INVALID_VALUE
        if max(box) > LARGEST_BOX:
            return INVALID_VALUE
        content = (ctypes.c_uint64 * 16)(address.value, *dims, *box, promotion)
        ctypes.memmove(encoded.value, content, ctypes.sizeof(content))
        self.maps.append({"type": kind.value, "dims": list(dims), "box": list(box), "promotion": promotion})
        return 0

    def cuEventRecordWithFlags(self, event: Any, stream: Any, flags: Any) -> int:  # noqa: N802 - the driver's name
        if flags.value != EXTERNAL or self._cp.captured is None:
            return INVALID_VALUE
        self._cp.events[event.value].stamp(self._cp.streams[stream.value])
        return 0

    def cuGraphInstantiateWithFlags(self, ready: Any, graph: Any, flags: Any) -> int:  # noqa: N802 - the driver's name
        if flags.value != BY_NODE_PRIORITY:
            return INVALID_VALUE
        self.ready[graph.value] = next(one for one in self._cp.graphs if one.graph == graph.value)
        ready._obj.value = graph.value
        return 0

    def cuGraphUpload(self, ready: Any, stream: Any) -> int:  # noqa: N802 - the driver's name
        self.ready[ready.value].upload(self._cp.streams[stream.value])
        return 0

    def cuGraphLaunch(self, ready: Any, stream: Any) -> int:  # noqa: N802 - the driver's name
        self.ready[ready.value].launch(self._cp.streams[stream.value])
        return 0

    def cuGraphExecDestroy(self, ready: Any) -> int:  # noqa: N802 - the driver's name
        return 0 if self.ready.pop(ready.value, None) else INVALID_VALUE

    def cuCtxGetDevice(self, device: Any) -> int:  # noqa: N802 - the driver's name
        device._obj.value = self._cp.gpu
        return 0

    def cuDeviceGetDevResource(self, device: Any, resource: Any, kind: Any) -> int:  # noqa: N802 - the driver's name
        assert (device.value, kind.value, ctypes.sizeof(resource._obj)) == (self._cp.gpu, 1, 144)
        if not self.multiprocessors:
            return NOT_SUPPORTED
        resource._obj.type, resource._obj.multiprocessors = 1, self.multiprocessors
        return 0

    def cuDevSmResourceSplitByCount(  # noqa: N802, PLR0917 - the driver's name and arguments
        self, groups: Any, count: Any, whole: Any, left: Any, flags: Any, least: Any
    ) -> int:
        assert flags.value == 0
        size = -(-least.value // self.unit) * self.unit
        count._obj.value = most = whole._obj.multiprocessors // size
        if groups is not None:
            for number in range(most):
                groups[number].type, groups[number].multiprocessors = 1, size
            left._obj.type, left._obj.multiprocessors = 1, whole._obj.multiprocessors - most * size
        return 0

    def cuDevResourceGenerateDesc(self, described: Any, groups: Any, count: Any) -> int:  # noqa: N802 - the driver's name
        sizes = [groups[number].multiprocessors for number in range(count.value)]
        if not sizes or not all(sizes):
            return INVALID_VALUE
        described._obj.value = sum(sizes)
        return 0

    def cuGreenCtxCreate(self, context: Any, described: Any, device: Any, flags: Any) -> int:  # noqa: N802 - the driver's name
        assert (device.value, flags.value) == (self._cp.gpu, 1)
        context._obj.value = number = 1000 + len(self.green)
        self.green[number] = described.value
        return 0

    def cuGreenCtxStreamCreate(self, stream: Any, context: Any, flags: Any, priority: Any) -> int:  # noqa: N802 - the driver's name
        assert flags.value == 1
        made = Stream(self._cp, non_blocking=True, priority=priority.value)
        made.multiprocessors = self.green[context.value]
        self.green_streams[made.ptr] = made
        stream._obj.value = made.ptr
        return 0

    def cuStreamDestroy_v2(self, stream: Any) -> int:  # noqa: N802 - the driver's name
        return 0 if self.green_streams.pop(stream.value, None) else INVALID_VALUE

    def cuGreenCtxDestroy(self, context: Any) -> int:  # noqa: N802 - the driver's name
        return 0 if self.green.pop(context.value, None) else INVALID_VALUE

    def cuModuleGetGlobal_v2(self, address: Any, size: Any, module: Any, name: bytes) -> int:  # noqa: N802 - the driver's name
        symbol = self._cp.symbols.get((module.value, name.decode()))
        if symbol is None:
            return INVALID_VALUE
        address._obj.value, size._obj.value = symbol.ctypes.data, symbol.nbytes
        return 0

    def cuMemcpyDtoDAsync_v2(self, to: Any, source: Any, size: Any, stream: Any) -> int:  # noqa: N802 - the driver's name
        def copy() -> None:
            ctypes.memmove(to.value, source.value, size.value)

        if stream.value is None:
            copy()
        else:
            self._cp.streams[stream.value].do(copy)
        return 0

    def cuGetErrorName(self, code: int, name: Any) -> int:  # noqa: N802 - the driver's name
        names = {INVALID_VALUE: b"CUDA_ERROR_INVALID_VALUE", NOT_SUPPORTED: b"CUDA_ERROR_NOT_SUPPORTED"}
        if code not in names:
            return INVALID_VALUE
        name._obj.value = names[code]
        return 0
