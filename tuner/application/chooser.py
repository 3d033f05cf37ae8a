"""Which configuration a call takes, and what counts its use."""

import logging
from pathlib import Path

from tuner.application.advice import Advisor, LaunchCount
from tuner.application.call_keys import ApplicationCall, Settings
from tuner.application.choice import DEFAULT, Chosen, choose, for_layout, given
from tuner.application.untuned import UntunedAnswers
from tuner.devices.cuda.direct import DirectGpu
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import TunerError
from tuner.model.plan import Workload
from tuner.model.row_layout import DENSE, RowLayout

_LOG = logging.getLogger(__name__)


class ConfigurationChooser:
    """Chooses the configurations of calls.

    Args:
        database: where tuned configurations are looked up.
        advisor: asks the daemon; None where there is to be none.
        untuned: answers for kernels that nobody tuned; None for their defaults.
    """

    def __init__(self, database: Path, advisor: Advisor | None, untuned: UntunedAnswers | None) -> None:
        self._database = database
        self._advisor = advisor
        self._untuned = untuned
        self._refused: set[tuple[object, ...]] = set()

    def choice(
        self,
        file: KernelFile,
        workload: Workload,
        layout: RowLayout,
        gpu: DirectGpu,
        asked: ApplicationCall,
        *,
        count: float,
    ) -> Chosen:
        """The configuration that is chosen for contiguous arrays, or the default where others need it.

        The default also stands in for what the GPU has refused (``refused``).

        Args:
            file: the kernel.
            workload: the kernel at its problem.
            layout: of the arrays.
            gpu: that they are on.
            asked: the call.
            count: uses that the daemon is told of; 0 where the choice is only looked at.

        Raises:
            InputError: the configuration of the call cannot be taken.
        """
        found = self._for_contiguous(file, workload, gpu, asked.configuration, count=count)
        if found.unmeasured and _place(workload, gpu, found) in self._refused:
            origin = f"{DEFAULT}, as the GPU refuses the answer; else {found.origin}"
            found = Chosen(file.default(workload), origin, known=False)
        return found if layout == DENSE else for_layout(file, workload, layout, found)

    def refused(
        self, file: KernelFile, workload: Workload, gpu: DirectGpu, found: Chosen, error: TunerError
    ) -> bool:
        """Choose the default from now on where the GPU refuses an answer that nobody measured on it.

        Returns:
            Whether there is another choice now: none is, where the configuration was given or measured, or
            is the default.
        """
        if not found.unmeasured or found.configuration == file.default(workload):
            return False
        self._refused.add(_place(workload, gpu, found))
        _LOG.warning("%s; the default is used instead of this answer (%s)", error, found.origin)
        return True

    def tally(self, asked: ApplicationCall, workload: Workload, gpu: DirectGpu) -> LaunchCount:
        """What counts launches; a configuration of the caller is no use of an answer."""
        if self._advisor is None or asked.configuration is not None:
            return LaunchCount()
        return self._advisor.tally(workload, gpu.identity)

    def _for_contiguous(
        self, file: KernelFile, workload: Workload, gpu: DirectGpu, configuration: Settings, *, count: float
    ) -> Chosen:
        if isinstance(configuration, str):
            return Chosen(file.default(workload), DEFAULT)
        if configuration is not None:
            return given(file, workload, configuration)
        chosen = choose(file, workload, gpu.identity, self._database, self._advisor, count=count)
        if chosen.known or self._untuned is None:
            return chosen
        return self._untuned.answer(file, workload, gpu) or chosen


def _place(workload: Workload, gpu: DirectGpu, found: Chosen) -> tuple[object, ...]:
    """An answer on a GPU, whatever the batch."""
    return gpu.identity.uuid, str(workload), found.configuration
