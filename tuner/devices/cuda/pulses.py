"""A square wave of power on the GPU: a kernel that loads every multiprocessor for a while, then nothing."""

import time
from collections.abc import Callable, Sequence
from types import ModuleType

from tuner.devices.cuda.code import CodeCache
from tuner.devices.cuda.launches import LaunchRefusedError, Step
from tuner.devices.cuda.types import CudaEvent, Stream
from tuner.model.arguments import Scalar
from tuner.model.errors import DeviceError
from tuner.model.plan import Configuration, Plan, ProblemSpec, Source, Stage, Work, Workload

_THREADS = 256
_MORE_THAN_FIT = 2**20  # blocks; the resident grid is cut to what the GPU holds at a time
_LONGEST_S = 1.0  # of one launch: a GPU with a display kills kernels that run for seconds


class PulsePlayer:
    """Plays pulses of full load; see ``tuner.devices.base.LoadSource``.

    Args:
        cp: CuPy, with the device current.
        code: loads the kernel.
        now: monotonic clock, in seconds.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        cp: ModuleType,
        code: CodeCache,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cp = cp
        self._code = code
        self._now = now
        self._sleep = sleep
        self._source = _source()
        self._stream: Stream = cp.cuda.Stream(non_blocking=True)
        # waited for asleep: a spinning host would draw power that a module's sensor sees
        self._ended: CudaEvent = cp.cuda.Event(block=True)

    def play(self, pulses: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        """Play (busy, idle) durations and return the busy times as the host saw them, to some 50 us.

        Raises:
            DeviceError: the load cannot be compiled or launched.
        """
        self._run(1e-6)  # what loading the kernel takes is no part of a pulse
        played = []
        for busy_s, idle_s in pulses:
            begin_s = self._now()
            self._run(busy_s)
            end_s = self._now()
            played.append((begin_s, end_s))
            self._sleep(max(0.0, end_s + idle_s - self._now()))
        return played

    def _run(self, busy_s: float) -> None:
        left_s = busy_s
        try:
            while left_s > 0.0:
                for step in self._launch(min(left_s, _LONGEST_S)):
                    step.enqueue(self._stream)
                left_s -= _LONGEST_S
            self._ended.record(self._stream)
            self._ended.synchronize()
        except (
            LaunchRefusedError,
            self._cp.cuda.driver.CUDADriverError,
            self._cp.cuda.runtime.CUDARuntimeError,
        ) as error:
            raise DeviceError(f"the GPU cannot be loaded for a calibration: {error}") from error

    def _launch(self, busy_s: float) -> tuple[Step, ...]:
        stage = Stage(
            name="load",
            source=self._source,
            entry="load",
            options=(),
            grid=(_MORE_THAN_FIT, 1, 1),
            block=(_THREADS, 1, 1),
            shared_bytes=0,
            arguments=(Scalar("uint64", round(busy_s * 1e9)),),
            resident=True,
        )
        plan = Plan(
            Workload("load", (), 1),
            Configuration(()),
            (stage,),
            (),
            ProblemSpec("consistent"),
            Work(0.0, 0.0),
        )
        return self._code.launches(plan, {})


def _source() -> Source:
    from tuner.config.shipped import kernels_root  # noqa: PLC0415 - reading kernel files takes long to import

    path = kernels_root() / "common" / "load.cu"
    return Source(str(path), path.read_text(encoding="utf-8"))
