"""GPU clocks, power limits and power profiles through NVML, and what setting them takes."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import byref
from pathlib import Path
from typing import Any

from tuner.model.errors import ClockError, ClockPermissionError, ClockRefusedError

from ..base import POWER_LIMIT, POWER_PROFILE, ClockReading, SettingState, kind_of
from ..clocks.actuator import Ruling, no_ruling
from .library import MILLI, NvmlGpu, optional, temperature_c, translated

# --- What setting something through NVML takes: the capability, and errors that say who may.

_CAP_SYS_ADMIN = 1 << 21  # capabilities(7); the driver asks for it


def may_set() -> bool:
    """True where this process has what the driver asks for."""
    return bool(_capabilities() & _CAP_SYS_ADMIN)


@contextmanager
def setting(gpu: NvmlGpu, what: str, control: str) -> Iterator[None]:
    """Translate what NVML raises while it sets something, what was refused apart.

    Args:
        gpu: whose setting.
        what: failed, for people.
        control: names what is set.

    Raises:
        ClockRefusedError: it cannot be or may not be (``ClockPermissionError``); nothing was changed.
        ClockError: anything else.
    """
    nvml, kind = gpu.nvml, kind_of(control)
    try:
        yield
    except nvml.NVMLError_NoPermission as error:
        raise ClockPermissionError(
            f"this process may not set the {kind.name} of {gpu.name}: let an administrator start"
            " tuner-clockd.socket and put you into the group tuner-clocks, run as root (in a container also"
            f" with --cap-add SYS_ADMIN), or use {kind.option} off"
        ) from error
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound) as error:
        raise ClockRefusedError(
            f"{what}: this GPU or driver cannot do that; use {kind.option} off"
        ) from error
    except nvml.NVMLError as error:
        raise ClockError(f"{what}: {error}") from error


def _capabilities() -> int:
    """Effective capabilities of this process; 0 where the kernel does not tell."""
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        return int(status.partition("\nCapEff:")[2].split(maxsplit=1)[0], 16)
    except (OSError, ValueError, IndexError):
        return 0


# --- The clocks of a GPU, set and restored.

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


class _NvmlSetting(ABC):
    """A GPU with one setting that is changed through NVML; the part that all such actuators share.

    Args:
        gpu: UUID (as CUDA names it) or NVML's index.
        library: path of libnvidia-ml.so.1, or None for the one the system loader finds.
        rules: what the administrator rules for a UUID.

    Raises:
        ClockError: no driver or no such GPU.
    """

    control: str

    def __init__(self, gpu: str | int, *, library: str | None = None, rules: Ruling = no_ruling) -> None:
        self._gpu = NvmlGpu.open(gpu, library, error=ClockError)
        self._rules = rules

    @property
    def gpu(self) -> str:
        """UUID of the GPU."""
        return self._gpu.uuid

    @property
    def name(self) -> str:
        """Product name of the GPU."""
        return self._gpu.name

    def permitted(self) -> bool:
        """See ``Actuator.permitted``: CAP_SYS_ADMIN."""
        return may_set()

    @abstractmethod
    def listed(self) -> tuple[int, ...]:
        """See ``Actuator.listed``."""

    def supported(self) -> tuple[int, ...]:
        """See ``Actuator.supported``."""
        return self._rules(self.gpu).allowed(self.listed(), self.control)

    def close(self) -> None:
        """Release NVML."""
        self._gpu.close()


class NvmlActuator(_NvmlSetting):
    """Implements ``ClockActuator`` over NVML; opened as ``_NvmlSetting``.

    From Volta on the clock is locked. NVML tells no lock that was there before, so what is restored is "not
    locked", and then the administrator's baseline where there is one. On older boards application clocks
    are set; those can be read, and what was there is restored.
    """

    control = CONTROL

    def __init__(self, gpu: str | int, *, library: str | None = None, rules: Ruling = no_ruling) -> None:
        super().__init__(gpu, library=library, rules=rules)
        self._locks = not 0 < self._gpu.architecture() < _VOLTA
        self._clocks: tuple[int, ...] | None = None

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

    def read(self) -> ClockReading:
        """See ``ClockActuator.read``: SM clock, the lowest of the power limits in force, and temperature."""
        nvml, handle = self._gpu.nvml, self._gpu.handle
        mhz = self._optional("the clock", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
        bits = self._optional(
            "throttle reasons",
            lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
            lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),  # its name before driver 535
        )
        reasons = tuple(name for bit, name in REASONS if (bits or 0) & bit)
        milliwatts = optional(self._gpu, lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle))
        limit_w = milliwatts * MILLI if milliwatts else None
        celsius = temperature_c(self._gpu)
        return ClockReading(None if mhz is None else float(mhz), reasons, limit_w, temperature_c=celsius)

    def before(self) -> SettingState:
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

    def restore(self, old: SettingState, new: int) -> list[str]:
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


# --- A GPU's power limit through NVML. It is only ever lowered: below what is found there, and the default.

_SAME_W = 0.5  # a limit that is so near is the same
_ROUNDED = 0.01  # of a limit: drivers may round what is set by as much
_PER_W = 1000


class NvmlPowerLimitActuator(_NvmlSetting):
    """Implements ``Actuator`` over NVML's power management limit; its values are whole watts.

    What is restored is the limit that was there. One that is no longer the one that was set was changed by
    somebody else, and is left.
    """

    control = POWER_LIMIT
    _original_mw: int | None = None  # the limit before this actuator set one

    def listed(self) -> tuple[int, ...]:
        """See ``Actuator.listed``: the driver's range, but none above the default or the limit as found."""
        nvml = self._gpu.nvml
        try:
            return self._range(self._present_mw() if self._original_mw is None else self._original_mw)
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
            return ()
        except nvml.NVMLError as error:
            raise ClockError(f"the power limits of {self.name} cannot be listed: {error}") from error

    def read_w(self) -> float:
        """The limit that is set, in watts.

        Raises:
            ClockError: the GPU stopped answering.
        """
        with translated(ClockError, f"the power limit of {self.gpu} cannot be read"):
            return self._present_mw() * MILLI

    def default_w(self) -> float:
        """The driver's default, in watts.

        Raises:
            ClockError: the GPU stopped answering.
        """
        with translated(ClockError, f"the default power limit of {self.gpu} cannot be read"):
            return self._default_mw() * MILLI

    def before(self) -> SettingState:
        """See ``Actuator.before``: the limit in milliwatts."""
        with translated(ClockError, f"the power limit of {self.gpu} cannot be read"):
            self._original_mw = self._present_mw()
        return {"limit_mw": self._original_mw}

    def set(self, value: int) -> None:
        """See ``Actuator.set``; what it may be is looked at once more, as others may have changed it."""
        with translated(ClockRefusedError, f"the power limits of {self.gpu} cannot be listed"):
            present_mw = self._present_mw()
            original_mw = present_mw if self._original_mw is None else self._original_mw
            allowed = self._range(min(present_mw, original_mw))
        if value not in allowed:
            raise ClockRefusedError(
                f"the power limit of {self.name} is {present_mw * MILLI:g} W: it is not set to {value} W"
            )
        what = f"the power limit of {self.name} cannot be set to {value} W"
        with setting(self._gpu, what, self.control):
            self._gpu.nvml.nvmlDeviceSetPowerManagementLimit(self._gpu.handle, value * _PER_W)
        made_w = self.read_w()
        if not is_rounded(made_w, value):
            self._apply(present_mw)  # ``restore`` would take it for another's
            raise ClockError(f"{what}: the driver made it {made_w:g} W")

    def restore(self, old: SettingState, new: int) -> list[str]:
        """See ``Actuator.restore``."""
        match old:
            case {"limit_mw": int(before_mw)}:
                pass
            case _:
                raise ClockError(f"what was set on {self.gpu} before is not understood: {dict(old)}")
        with translated(ClockError, f"the power limit of {self.gpu} cannot be read"):
            present_mw = self._present_mw()
        present_w = present_mw * MILLI
        if present_mw == before_mw:
            return []
        if is_rounded(present_w, new):
            self._apply(before_mw)
            return []
        if _same(present_w, before_mw * MILLI):
            return []
        return [f"the power limit is {present_w:g} W, not the {new} W that were set: left so"]

    def reset(self) -> None:
        """See ``Actuator.reset``: the driver's default."""
        self._apply(round(self.default_w() * _PER_W))

    def _range(self, original_mw: int) -> tuple[int, ...]:
        """Whole watts that may be set where a limit was found, highest first."""
        least_mw, most_mw = self._gpu.nvml.nvmlDeviceGetPowerManagementLimitConstraints(self._gpu.handle)
        highest_mw = min(most_mw, self._default_mw(), original_mw)
        return tuple(range(math.floor(highest_mw / _PER_W), math.ceil(least_mw / _PER_W) - 1, -1))

    def _present_mw(self) -> int:
        return int(self._gpu.nvml.nvmlDeviceGetPowerManagementLimit(self._gpu.handle))

    def _default_mw(self) -> int:
        return int(self._gpu.nvml.nvmlDeviceGetPowerManagementDefaultLimit(self._gpu.handle))

    def _apply(self, milliwatts: int) -> None:
        """Give the GPU a limit that it had before, and see that it has it."""
        with setting(self._gpu, f"the power limit of {self.gpu} could not be restored", self.control):
            self._gpu.nvml.nvmlDeviceSetPowerManagementLimit(self._gpu.handle, milliwatts)
        present_w, target_w = self.read_w(), milliwatts * MILLI
        if not _same(present_w, target_w):
            raise ClockError(
                f"the power limit of {self.gpu} is {present_w:g} W, and not {target_w:g} W again"
            )


def is_rounded(present_w: float, watts: int) -> bool:
    """True for a limit that a driver may have made of one that was set."""
    return abs(present_w - watts) <= max(_SAME_W, _ROUNDED * watts)


def _same(limit_w: float, other_w: float) -> bool:
    return abs(limit_w - other_w) <= _SAME_W


# --- The power profile of a GPU: what the driver tunes by itself for a kind of work, since Blackwell.

_WORD_BITS = 32
_PROFILE = "NVML_POWER_PROFILE_"


class NvmlPowerProfileActuator(_NvmlSetting):
    """Implements ``Actuator`` over NVML's workload power profiles; its values are their IDs.

    Several programs may each request a profile, and the driver holds what they have in common. One that was
    requested before is left as it was; what is restored is that this one is not.
    """

    control = POWER_PROFILE
    sets_clocks = False

    def names(self) -> dict[str, int]:
        """See ``ProfileActuator.names``: such as ``max-q``; a new one is called by its ID."""
        constants = {
            value: name.removeprefix(_PROFILE).lower().replace("_", "-")
            for name, value in vars(self._gpu.nvml).items()
            if name.startswith(_PROFILE) and "OPERATION" not in name and name != f"{_PROFILE}MAX"
        }
        return {constants.get(number, str(number)): number for number in sorted(self.supported())}

    def why_not(self, name: str) -> str:  # noqa: ARG002 - as others
        """See ``ProfileActuator.why_not``."""
        return ""

    def listed(self) -> tuple[int, ...]:
        """See ``Actuator.listed``."""
        nvml = self._gpu.nvml
        info = nvml.c_nvmlWorkloadPowerProfileProfilesInfo_v1_t()
        try:
            nvml.nvmlDeviceWorkloadPowerProfileGetProfilesInfo(self._gpu.handle, byref(info))
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
            return ()
        except nvml.NVMLError as error:
            raise ClockError(f"the power profiles of {self.name} cannot be listed: {error}") from error
        return _bits(info.perfProfilesMask)

    def before(self) -> SettingState:
        """See ``Actuator.before``: the profiles that are requested."""
        return {"requested": list(self._requested())}

    def set(self, value: int) -> None:
        """See ``Actuator.set``."""
        with setting(self._gpu, f"{self.name} cannot be given the power profile {value}", self.control):
            self._gpu.nvml.nvmlDeviceWorkloadPowerProfileSetRequestedProfiles(
                self._gpu.handle, byref(self._mask(value))
            )

    def restore(self, old: SettingState, new: int) -> list[str]:
        """See ``Actuator.restore``."""
        match old:
            case {"requested": list(requested)}:
                if new not in requested:
                    self._clear(new)
                return []
        raise ClockError(f"what was set on {self.gpu} before is not understood: {dict(old)}")

    def reset(self) -> None:
        """See ``Actuator.reset``: no profile is requested any more."""
        self._clear(*self._requested())

    def _requested(self) -> tuple[int, ...]:
        nvml = self._gpu.nvml
        present = nvml.c_nvmlWorkloadPowerProfileCurrentProfiles_v1_t()
        with translated(ClockError, f"the power profiles of {self.gpu} cannot be read"):
            nvml.nvmlDeviceWorkloadPowerProfileGetCurrentProfiles(self._gpu.handle, byref(present))
        return _bits(present.requestedProfilesMask)

    def _clear(self, *numbers: int) -> None:
        """Request profiles no more, and see that they are not."""
        if not set(numbers) & set(self._requested()):
            return
        with setting(self._gpu, f"the power profile of {self.gpu} could not be given back", self.control):
            self._gpu.nvml.nvmlDeviceWorkloadPowerProfileClearRequestedProfiles(
                self._gpu.handle, byref(self._mask(*numbers))
            )
        if left := set(numbers) & set(self._requested()):
            raise ClockError(f"the power profile {min(left)} of {self.gpu} is still requested")

    def _mask(self, *numbers: int) -> Any:  # noqa: ANN401 - a structure of NVML
        request = self._gpu.nvml.c_nvmlWorkloadPowerProfileRequestedProfiles_v1_t()
        for number in numbers:
            request.requestedProfilesMask.mask[number // _WORD_BITS] |= 1 << number % _WORD_BITS
        return request


def _bits(mask: Any) -> tuple[int, ...]:  # noqa: ANN401 - a structure of NVML
    """Numbers of the bits that are set, lowest first."""
    return tuple(
        _WORD_BITS * place + bit
        for place, word in enumerate(mask.mask)
        for bit in range(_WORD_BITS)
        if word >> bit & 1
    )
