"""GPU clocks through NVML: locked clocks, or application clocks where a board has only those."""

from collections.abc import Callable, Mapping
from typing import Any

from tuner.interfaces.power import ClockReading
from tuner.model.errors import ClockError

from ..clocks.actuator import Ruling, no_ruling
from .health import temperature_c, told
from .library import NvmlGpu, translated
from .reads import MILLI
from .setting import may_set, setting

CONTROL = "nvml"  # how journal entries name this control
_VOLTA = 5  # NVML's number of the first architecture whose clocks can be locked

# Bits of nvmlDeviceGetCurrentClocksEventReasons that hold a clock back. Left out are GpuIdle (0x1), normal
# between kernels, and ApplicationsClocksSetting (0x2), which a lock of our own raises too.
REASONS: tuple[tuple[int, str], ...] = (
    (0x004, "sw-power-cap"),
    (0x008, "hw-slowdown"),
    (0x010, "sync-boost"),
    (0x020, "sw-thermal-slowdown"),
    (0x040, "hw-thermal-slowdown"),
    (0x080, "hw-power-brake"),
    (0x100, "display-clock-setting"),
)


class NvmlActuator:
    """Implements ``ClockActuator`` over NVML.

    From Volta on the clock is locked. NVML tells no lock that was there before, so what is restored is "not
    locked", and then the administrator's baseline where there is one. On older boards application clocks
    are set; those can be read, and what was there is restored.

    Args:
        gpu: UUID (as CUDA names it) or NVML's index.
        library: path of libnvidia-ml.so.1, or None for the one the system loader finds.
        rules: what the administrator rules for a UUID.

    Raises:
        ClockError: no driver or no such GPU.
    """

    control = CONTROL

    def __init__(
        self,
        gpu: str | int,
        *,
        library: str | None = None,
        rules: Ruling = no_ruling,
    ) -> None:
        self._gpu = NvmlGpu.open(gpu, library, error=ClockError)
        self._rules = rules
        self._locks = not 0 < self._gpu.architecture() < _VOLTA
        self._clocks: tuple[int, ...] | None = None

    @property
    def gpu(self) -> str:
        """UUID of the GPU."""
        return self._gpu.uuid

    @property
    def name(self) -> str:
        """Product name of the GPU."""
        return self._gpu.name

    def permitted(self) -> bool:
        """See ``Actuator.permitted``: CAP_SYS_ADMIN, or application clocks that anybody may set."""
        if may_set():
            return True
        nvml = self._gpu.nvml
        if self._locks:
            return False
        api = nvml.NVML_RESTRICTED_API_SET_APPLICATION_CLOCKS
        restricted = self._optional(
            "who may set clocks", lambda: nvml.nvmlDeviceGetAPIRestriction(self._gpu.handle, api)
        )
        return bool(restricted == nvml.NVML_FEATURE_DISABLED)

    def listed(self) -> tuple[int, ...]:
        """See ``Actuator.listed``: at the highest memory clock; for application clocks at theirs."""
        if self._clocks is None:
            self._clocks = tuple(self._listed())
        return self._clocks

    def supported(self) -> tuple[int, ...]:
        """See ``Actuator.supported``."""
        return self._rules(self.gpu).allowed(self.listed())

    def read(self) -> ClockReading:
        """See ``Actuator.read``: the SM clock, the lowest of the power limits in force, and temperature."""
        nvml, handle = self._gpu.nvml, self._gpu.handle
        mhz = self._optional("the clock", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
        bits = self._optional(
            "throttle reasons",
            lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
            lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),  # its name before driver 535
        )
        reasons = tuple(name for bit, name in REASONS if (bits or 0) & bit)
        milliwatts = told(self._gpu, lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle))
        limit_w = milliwatts * MILLI if milliwatts else None
        celsius = temperature_c(self._gpu)
        return ClockReading(None if mhz is None else float(mhz), reasons, limit_w, temperature_c=celsius)

    def before(self) -> dict[str, Any]:
        """See ``Actuator.before``: which setting is used, and all that can be known of it."""
        if self._locks:
            baseline = self._rules(self.gpu).baseline_mhz
            return {"setting": "locked", "baseline_mhz": None if baseline is None else list(baseline)}
        present = self._applications()
        if present is None:
            raise ClockError(f"{self.name} tells no application clocks, so that they could not be restored")
        return {"setting": "application", "memory_mhz": present[0], "graphics_mhz": present[1]}

    def set(self, value: int) -> None:
        """See ``Actuator.set``."""
        nvml, handle = self._gpu.nvml, self._gpu.handle
        with setting(self._gpu, f"{self.name} cannot be set to {value} MHz", CONTROL):
            if self._locks:
                nvml.nvmlDeviceSetGpuLockedClocks(handle, value, value)
            else:
                memory_mhz = nvml.nvmlDeviceGetApplicationsClock(handle, nvml.NVML_CLOCK_MEM)
                nvml.nvmlDeviceSetApplicationsClocks(handle, memory_mhz, value)

    def restore(self, old: Mapping[str, Any], new: int) -> list[str]:
        """See ``Actuator.restore``."""
        match old:
            case {"setting": "locked", "baseline_mhz": None}:
                self._unlock(None)
                return []
            case {"setting": "locked", "baseline_mhz": [int(low), int(high)]}:
                self._unlock((low, high))
                return []
            case {"setting": "application", "memory_mhz": int(memory), "graphics_mhz": int(graphics)}:
                return self._reapply((memory, graphics), new)
        raise ClockError(f"what was set on {self.gpu} before is not understood: {dict(old)}")

    def reset(self) -> None:
        """See ``Actuator.reset``: unlocks and applies the baseline, or resets application clocks."""
        if self._locks:
            self._unlock(self._rules(self.gpu).baseline_mhz)
            return
        with setting(self._gpu, f"the application clocks of {self.gpu} could not be reset", CONTROL):
            self._gpu.nvml.nvmlDeviceResetApplicationsClocks(self._gpu.handle)

    def close(self) -> None:
        """Release NVML."""
        self._gpu.close()

    def _unlock(self, baseline_mhz: tuple[int, int] | None) -> None:
        nvml, handle = self._gpu.nvml, self._gpu.handle
        with setting(self._gpu, f"the clock lock of {self.gpu} could not be reset", CONTROL):
            nvml.nvmlDeviceResetGpuLockedClocks(handle)
        if baseline_mhz is not None:
            low, high = baseline_mhz
            with setting(
                self._gpu, f"the baseline of {low} to {high} MHz could not be locked on {self.gpu}", CONTROL
            ):
                nvml.nvmlDeviceSetGpuLockedClocks(handle, low, high)

    def _reapply(self, old: tuple[int, int], new_mhz: int) -> list[str]:
        """Set the application clocks (memory, graphics) that were there, unless they are not ours now."""
        present = self._applications()
        if present == old:
            return []
        if present != (old[0], new_mhz):
            return [f"application clocks are {present}, which is not what was set ({new_mhz} MHz): left so"]
        with setting(self._gpu, f"the application clocks of {self.gpu} could not be restored", CONTROL):
            self._gpu.nvml.nvmlDeviceSetApplicationsClocks(self._gpu.handle, *old)
        if self._applications() != old:
            raise ClockError(f"the application clocks of {self.gpu} did not become {old} again")
        return []

    def _applications(self) -> tuple[int, int] | None:
        """Application clocks for memory and graphics in MHz; None where there are none."""
        nvml = self._gpu.nvml
        memory, graphics = map(self._application, (nvml.NVML_CLOCK_MEM, nvml.NVML_CLOCK_GRAPHICS))
        return None if memory is None or graphics is None else (memory, graphics)

    def _application(self, kind: int) -> int | None:
        nvml, handle = self._gpu.nvml, self._gpu.handle
        return self._optional(
            "the application clocks", lambda: nvml.nvmlDeviceGetApplicationsClock(handle, kind)
        )

    def _listed(self) -> list[int]:
        """Graphics clocks that can be set; empty where none can."""
        nvml, handle = self._gpu.nvml, self._gpu.handle
        if not self._locks and self._applications() is None:
            return []
        try:
            memory_mhz = max(nvml.nvmlDeviceGetSupportedMemoryClocks(handle), default=None)
            if not self._locks:
                memory_mhz = nvml.nvmlDeviceGetApplicationsClock(handle, nvml.NVML_CLOCK_MEM)
            if memory_mhz is None:
                return []
            return list(nvml.nvmlDeviceGetSupportedGraphicsClocks(handle, memory_mhz))
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
            return []
        except nvml.NVMLError as error:
            raise ClockError(f"the clocks of {self.name} cannot be listed: {error}") from error

    def _optional(self, what: str, *reads: Callable[[], int]) -> int | None:
        """The first of ``reads`` that this GPU and driver have; None where they have none."""
        nvml = self._gpu.nvml
        with translated(ClockError, f"{what} of {self._gpu.uuid} cannot be read"):
            for read in reads:
                try:
                    return read()
                except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):  # noqa: PERF203 - two at most
                    continue
        return None
