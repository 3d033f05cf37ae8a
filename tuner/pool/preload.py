"""What Dask runs in a worker process of a pool when it begins and when it ends."""

import signal
from typing import Any

from tuner.kernel_files.package_build import own_build
from tuner.pool.worker import close_setup


def dask_setup(_worker: Any) -> None:  # noqa: ANN401 - Dask's
    """Leave Ctrl-C to the driver, whose terminal tells all its processes; note which package this is."""
    own_build()  # as it is on the disk while it is imported
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def dask_teardown(_worker: Any) -> None:  # noqa: ANN401 - Dask's
    """Give back GPU and clocks."""
    close_setup()
