"""Joint spaces of which every trial's cost is known, for `joint_search.py`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from application_sets import FOUR
from joint_modelled import Modelled, ModelledBlockSizes, applications
from joint_recorded import SHIPPED, recorded_spaces

from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import InputError
from tuner.model.objective import Objective
from tuner.model.trial import Measurement, Trial
from tuner.space.search_view import PriorRun, Search

OBJECTIVES = ("time", "energy")
OTHER_FOUR = ("Lud", "MatrixMul", "HotSpot", "ParticleFilter")
THIRD_FOUR = ("StreamCluster", "MatrixMul", "HotSpot", "ParticleFilter")
BLOCK_SIZES = ("scan-ks:N=512", "fft:N=2048", "tridiag-lf:N=512", "scan-lf:N=4096")
OTHER_BLOCK_SIZES = ("tridiag-cr:N=256", "tridiag-pcr:N=128", "fft:N=128", "scan-lf:N=128")


class JointSpace(Protocol):
    """Several workloads whose trials can all be looked up."""

    @property
    def name(self) -> str:
        """For tables: workloads and device."""

    @property
    def label(self) -> str:
        """``modelled`` or ``recorded``."""

    def search(self, objective: Objective, seed: int) -> Search:
        """What a policy is told."""

    def look(self, trial: Trial, seed: int) -> Measurement:
        """What a trial gives; noise by the seed where the space is modelled."""

    def costs(self, objective: Objective) -> Mapping[Trial, float]:
        """The cost of every valid trial, without noise where that is known."""

    @property
    def kept_out(self) -> bool:
        """It was not looked at while constants were chosen."""

    def solo_bests(self, objective: Objective) -> Trial | None:
        """Every workload at its best alone; None where nobody measured that."""

    def alone(self, objective: Objective, search: Search, seed: int) -> tuple[PriorRun, ...]:
        """What configurations cost alone; none where nobody measured that."""


def spaces_of(recordings: Sequence[Path]) -> list[JointSpace]:
    """All spaces: constants were chosen on the first four, the others are kept out, one of every kind.

    Args:
        recordings: of applications that run together. Pairs are left out: they have a few trials only.

    Raises:
        InputError: one of them has no workloads together.
    """
    found: list[JointSpace] = [
        *recorded_spaces(SHIPPED),
        applications("sim:k40c", FOUR, clocks=True),
        applications("sim:h200", OTHER_FOUR),
        ModelledBlockSizes("h200", BLOCK_SIZES),
        Modelled("sim:k40c", ("scan-ks:N=4096", "tridiag-lf:N=1024"), Catalog.load(), kept_out=True),
        applications("sim:k20c", FOUR, kept_out=True),
        applications("sim:a100", THIRD_FOUR, kept_out=True),
        ModelledBlockSizes("k40c", OTHER_BLOCK_SIZES, kept_out=True),
    ]
    for path in recordings:
        together = [one for one in recorded_spaces(path, kept_out=True) if len(one.workloads) > 2]
        if not together:
            raise InputError(f"--recording {path}: it has no three or more workloads that ran together")
        found += together
    return found
