"""``kernel_tuner.observers.ncu``, which is not supported."""

from tuner.kernel_tuner.call_arguments import UserValue
from tuner.kernel_tuner.observers import Observer
from tuner.model.errors import UnsupportedError


class NCUObserver(Observer):
    """Not supported: it raises."""

    def __init__(self, metrics: UserValue = None, device: UserValue = 0) -> None:
        del metrics, device
        raise UnsupportedError(
            "NCUObserver is not supported: hardware counters are not read here; run the best configuration"
            " under Nsight Compute"
        )
