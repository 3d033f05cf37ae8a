"""Stages that cuBLAS and cuFFT run, which CuPy finds and loads, and those of LAPACK on the host."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from tuner.devices.cuda.cublas import WORKSPACE_BYTES, Cublas
from tuner.devices.cuda.host_lapack import HostLapack
from tuner.devices.cuda.launches import LaunchRefusedError, LibraryLaunch, LibraryStage, Program
from tuner.devices.cuda.types import Array, Stream
from tuner.model.chains import LibraryCall
from tuner.model.trial import Flag, Status

# cufft.h
_TRANSFORM = {"complex64": 0x29, "complex128": 0x69}
_FORWARD, _INVERSE = -1, 1


def workspaces(program: Program) -> dict[str, int]:
    """Arrays that the calls of a program work in where they are among its arrays: bytes by name.

    Calls that share none may run at the same time, whatever streams they are in.
    """
    called = [one for one in program.stages if isinstance(one, LibraryStage)]
    sides = {one.side for one in called if one.call.routine != "fft" and not one.call.on_host}
    return {workspace_name(side): WORKSPACE_BYTES for side in sorted(sides)}


def workspace_name(side: int) -> str:
    """Name of the array that calls in a stream of the workload work in; no kernel file has it."""
    return f"cuBLAS workspace {side}"


@dataclass(frozen=True)
class _Matrix:
    """What cuFFT takes of an array: its pointer."""

    data: Any


class GpuLibraries:
    """Makes calls ready; implements ``tuner.devices.cuda.launches.Libraries``.

    Args:
        cp: CuPy, with the device current whenever a method is called.
    """

    def __init__(self, cp: ModuleType) -> None:
        self._cp = cp
        self._blas: Cublas | None = None
        self._lapack: HostLapack | None = None
        self._transforms: dict[tuple[object, ...], Any] = {}

    def flags(self, calls: Iterable[LibraryCall]) -> tuple[Flag, ...]:
        """What should be told of how calls run on the host."""
        found = (self._on_host().flag(call) for call in calls if call.on_host)
        return tuple(dict.fromkeys(flag for flag in found if flag is not None))

    def bound(self, call: LibraryCall, arrays: Mapping[str, Array], side: int) -> LibraryLaunch:
        """A call on some arrays.

        Args:
            call: what is computed.
            arrays: by name, those of ``workspaces`` or not among them.
            side: the stream of the workload it runs in; transforms of two streams share no workspace.

        Raises:
            LaunchRefusedError: the library is not installed, or does not have the threads of the CPU.
        """
        pointers = {
            letter: arrays[one.buffer].data + one.offset_elements * arrays[one.buffer].dtype.itemsize
            for letter, one in call.operands
        }
        addresses = {letter: int(pointer.ptr) for letter, pointer in pointers.items()}
        try:
            if call.routine == "fft":
                run = self._transform(call, pointers, side)
            elif call.on_host:
                run = self._on_host().action(call, addresses)
            else:
                self._blas = self._blas or Cublas(self._cp)
                workspace = arrays.get(workspace_name(side))
                place = None if workspace is None else int(workspace.data.ptr)
                run = self._blas.action(call, addresses, place)
        except ImportError as error:
            name = "cuFFT" if call.routine == "fft" else "cuBLAS"
            raise LaunchRefusedError(
                Status.LAUNCH_ERROR,
                f"{call.routine}: CuPy finds no {name} ({error}); install it, as with pip install"
                f" nvidia-{name.lower()}-cu12",
            ) from error
        return LibraryLaunch(call, run, tuple(addresses.values()), side)

    def _on_host(self) -> HostLapack:
        self._lapack = self._lapack or HostLapack(self._cp)
        return self._lapack

    def _transform(
        self, call: LibraryCall, pointers: Mapping[str, Any], side: int
    ) -> Callable[[Stream | None], None]:
        key = (call.dtype, call.n, call.m, side)
        plan = self._transforms.get(key)
        if plan is None:
            plan = self._cp.cuda.cufft.Plan1d(call.n, _TRANSFORM[call.dtype], call.m)
            self._transforms[key] = plan
        given, made = _Matrix(pointers["a"]), _Matrix(pointers["c"])
        direction = _INVERSE if call.inverse else _FORWARD

        def run(stream: Stream | None) -> None:
            if stream is None:
                plan.fft(given, made, direction)
            else:
                with stream:
                    plan.fft(given, made, direction)

        return run
