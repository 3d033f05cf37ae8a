"""A door for users of Kernel Tuner: ``tune_kernel`` and ``run_kernel`` for CUDA, by one changed import.

    from tuner.kernel_tuner import tune_kernel, run_kernel

``docs/kernel-tuner.md`` lists every argument, the strategies, and what differs.
"""

from tuner.kernel_tuner import file_utils, strategies, util
from tuner.kernel_tuner.functions import create_device_targets, run_kernel, store_results, tune_kernel

__all__ = [
    "create_device_targets",
    "file_utils",
    "run_kernel",
    "store_results",
    "strategies",
    "tune_kernel",
    "util",
]
