"""Answers for kernels that nobody tuned: those that their files state.

The rules of the analytical model are not asked: what they choose was measured against no default, and asking
them compiles many candidates.
"""

import logging
import threading

from tuner.application.choice import Chosen
from tuner.devices.cuda.direct import DirectGpu
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import KernelFileError
from tuner.model.plan import Workload
from tuner.search.candidates import TraitReader

_LOG = logging.getLogger(__name__)


class UntunedAnswers:
    """The first answer of a kernel file that a GPU can launch, by what the file declares."""

    def __init__(self) -> None:
        self._told = False
        self._lock = threading.Lock()

    def answer(self, kernel: KernelFile, workload: Workload, gpu: DirectGpu) -> Chosen | None:
        """The answer that the kernel file states; None where it states nothing that fits the GPU.

        The first question of a process is logged as a warning that tells how to tune.
        """
        self._tell(workload)
        try:
            stated = kernel.stated_answers(workload, gpu.identity.name)
            reader = TraitReader(kernel, workload, gpu.limits, 0.0, stated)
            fitting = (one for one in stated if reader.of(one).candidate is not None)
            found = next(fitting, None)
        except KernelFileError as error:
            _LOG.info("%s: no stated answer: %s", workload, error)
            return None
        if found is None:
            return None
        return Chosen(found, "stated by its kernel file; not measured on this GPU", unmeasured=True)

    def _tell(self, workload: Workload) -> None:
        with self._lock:
            level = logging.DEBUG if self._told else logging.WARNING
            self._told = True
        _LOG.log(
            level,
            "%s was not tuned on this GPU: its configuration is chosen without measuring;"
            " to measure: tuner run %s,batch=%d --objective time",
            *(workload, workload, workload.batch),
        )
