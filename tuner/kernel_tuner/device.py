"""The device of a call: a GPU by number, or one by name; a model where there is no GPU, with a warning."""

import warnings

from tuner.devices.cuda.probe import driver_problem
from tuner.kernel_tuner.parameters import UserValue
from tuner.model.errors import InputError


def device_spec(device: UserValue) -> str | None:
    """What ``device`` means: None for the modelled device that stands in for a GPU.

    Args:
        device: number of a GPU, or a name such as ``cuda:1`` or ``sim:h200``.

    Raises:
        InputError: it is neither.
    """
    if isinstance(device, str) and device:
        return device
    if not isinstance(device, int) or isinstance(device, bool) or device < 0:
        raise InputError(f"device: must be the number of a GPU, or a name such as 'sim:h200', not {device!r}")
    why = driver_problem()
    if why is None:
        return f"cuda:{device}"
    warnings.warn(f"device: no GPU answers ({why}): every number is modelled", stacklevel=4)
    return None


def ignored_platform(platform: UserValue) -> None:
    """Say that a platform of OpenCL means nothing here."""
    if platform:
        warnings.warn(f"platform: {platform!r} is ignored: kernels are CUDA here", stacklevel=4)
