"""What setting something through NVML takes: the capability, and errors that say who may."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tuner.model.errors import ClockError, ClockPermissionError, ClockRefusedError

from ..clocks.settings import kind_of
from .library import NvmlGpu

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
