"""Forms in which cuFFT transforms batches."""

import ctypes
from dataclasses import dataclass
from typing import Any

from answers import Data
from peer import Calls, Peer
from vendor_library import VendorLibrary, address, launched

NAME = "cuFFT"
_C2C, _FORWARD = 0x29, -1
_PATIENT_JIT = 1  # NVFFT_PLAN_PROPERTY_INT64_PATIENT_JIT
_POINT = 8
_SHORT = 2**13  # up to here a transform takes one pass over memory, and chunks have little to gain
_SHORT_CALLS = ((1, 1), (2, 2), (4, 4))
_CALLS = (
    *((1, 1), (2, 1), (4, 1), (8, 1)),
    *((2, 2), (4, 2), (8, 2), (16, 2), (32, 2), (64, 2)),
    *((16, 3), (32, 3), (4, 4), (8, 4), (16, 4), (32, 4)),
)


@dataclass(frozen=True)
class Settings:
    """How a plan is made.

    Attributes:
        own_area: the caller gives the work area; otherwise the plan takes one.
        in_place: output over input.
        layout: strides are said, though they are the default ones.
        patient: the library may compile kernels for the plan.
    """

    own_area: bool = False
    in_place: bool = False
    layout: bool = False
    patient: bool = False

    def __str__(self) -> str:
        words = {
            "caller's work area": self.own_area,
            "in place": self.in_place,
            "advanced layout": self.layout,
            "patient JIT": self.patient,
        }
        return ", ".join(word for word, chosen in words.items() if chosen) or "default plan"


_SETTINGS = (
    Settings(),
    Settings(own_area=True),
    Settings(in_place=True),
    Settings(layout=True),
    Settings(patient=True),
    Settings(patient=True, in_place=True),
)


class CufftPeers:
    """The library that CuPy loads, by its C functions; ``failed`` holds what it refused."""

    def __init__(self, cp: Any) -> None:
        from cupy.cuda import cufft  # noqa: PLC0415 - loads the library that goes with CuPy's CUDA

        cufft.getVersion()
        self._cp, self._library = cp, VendorLibrary("libcufft", (12, 11))
        self.failed: dict[str, str] = {}

    @property
    def version(self) -> int:
        """Of the library, as it gives it."""
        number = ctypes.c_int()
        self._library.call("cufftGetVersion", ctypes.byref(number))
        return number.value

    def peers(self, data: Data) -> list[Peer]:
        """Every form that this version of the library runs."""
        forms = [(settings, Calls()) for settings in _SETTINGS]
        for numbers in _SHORT_CALLS if data.n <= _SHORT else _CALLS:
            if numbers[0] <= data.batch:
                ways = (Settings(), Settings(patient=True), Settings(in_place=True))
                forms += [(settings, Calls(*numbers)) for settings in ways]
        peers = []
        for settings, calls in forms:
            try:
                peers.append(self._peer(data, settings, calls))
            except RuntimeError as error:  # noqa: PERF203 - each form may be refused
                self.failed[f"{NAME}, {settings}, {calls}"] = str(error)
        return peers

    def _peer(self, data: Data, settings: Settings, calls: Calls) -> Peer:
        cp, (x,), y = self._cp, data.inputs, data.output
        source = y if settings.in_place else x
        count = data.batch // max(1, calls.chunks)
        plans = [_Plan(self._library, cp, (data.n, count), settings) for _ in range(calls.streams)]

        def launch(chunk: int, stream: int) -> None:
            plan = plans[chunk % calls.streams]
            if calls.chunks:
                plan.use(stream)
            plan.forward(source, y, chunk * count * data.n * _POINT)

        prepare = (lambda: cp.copyto(y, x)) if settings.in_place else None
        run = launched(cp, launch, calls)
        form = f"{settings}, {calls}"
        return Peer(NAME, form, run, lambda: y, prepare, keep=plans)


class _Plan:
    """A plan of ``shape[1]`` rows of ``shape[0]`` points, side by side; it lives as long as the object."""

    def __init__(self, library: VendorLibrary, cp: Any, shape: tuple[int, int], settings: Settings) -> None:
        self._library, self._handle, self._area = library, ctypes.c_int(), None
        library.call("cufftCreate", ctypes.byref(self._handle))
        if settings.patient:
            library.call("cufftSetPlanPropertyInt64", self._handle, _PATIENT_JIT, ctypes.c_longlong(1))
        if settings.own_area:
            library.call("cufftSetAutoAllocation", self._handle, 0)
        length, size = (ctypes.c_longlong * 1)(shape[0]), ctypes.c_size_t()
        sides = (length if settings.layout else None, ctypes.c_longlong(1), ctypes.c_longlong(shape[0]))
        last = (_C2C, ctypes.c_longlong(shape[1]), ctypes.byref(size))
        library.call("cufftMakePlanMany64", self._handle, 1, length, *sides, *sides, *last)
        if settings.own_area:
            self._area = cp.empty(max(size.value, 1), cp.uint8)
            library.call("cufftSetWorkArea", self._handle, address(self._area))

    def __del__(self) -> None:
        self._library.call("cufftDestroy", self._handle)

    def use(self, stream: int) -> None:
        """Run there from now on."""
        self._library.call("cufftSetStream", self._handle, ctypes.c_void_p(stream))

    def forward(self, x: Any, y: Any, offset_bytes: int) -> None:
        """Transform the plan's batch that begins so far into the arrays."""
        arrays = address(x, offset_bytes), address(y, offset_bytes)
        self._library.call("cufftExecC2C", self._handle, *arrays, _FORWARD)
