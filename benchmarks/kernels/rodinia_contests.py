"""Which of our kernels is held against which of Rodinia's, at which sizes, and how the two differ."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rodinia_forms import Form, Inputs, filter_float, filter_naive, hotspot, lud, streamcluster

from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.plan import Plan, Source


@dataclass(frozen=True)
class Contest:
    """Kernels of ours and of Rodinia that do the same.

    Attributes:
        workload: of our kernel.
        forms: makes those of Rodinia.
        source: key of ``FILES``.
        differs: what the two do not have in common, for the reader of a ratio.
        timed: stages of ours that are timed; all where empty.
    """

    workload: str
    forms: Callable[[Source, KernelFile, Plan, Inputs], Iterator[Form]]
    source: str
    differs: str
    timed: tuple[str, ...] = ()


_CLUSTERING = "streamcluster:N=65536,DIM=256,K=16"
_SUMS = "Rodinia's program copies 4.5 MB a call to the host and sums there: not timed"
CONTESTS = {
    "lud": Contest(
        "lud:N=4096", lud, "lud", "Rodinia's is compiled with -use_fast_math, as its Makefile has it"
    ),
    "hotspot": Contest(
        "hotspot:ROWS=8192,COLUMNS=8192",
        hotspot,
        "hotspot",
        "20 steps, the step of our kernel (Rodinia's own is unstable at this size); Rodinia's kernel"
        " multiplies by a literal in double",
    ),
    "streamcluster": Contest(
        _CLUSTERING,
        streamcluster,
        "streamcluster",
        f"10 calls; ours with the sums on the GPU, Rodinia's two memsets and kernel without. {_SUMS}",
    ),
    "streamcluster-costs": Contest(
        _CLUSTERING, streamcluster, "streamcluster", f"10 calls, both without the sums. {_SUMS}", ("costs",)
    ),
    "particlefilter-float": Contest(
        "particle-filter:N=100000,H=128,W=128",
        filter_float,
        "particlefilter-float",
        "one frame, both in double; other noise (Rodinia: LCG and Box-Muller); Rodinia's distribution is made"
        " by one thread, without a barrier after the blocks that it depends on (a race), and searched"
        " linearly; its frame is given to it contiguous",
    ),
    "particlefilter-naive": Contest(
        "particle-filter:N=100000,H=128,W=128",
        filter_naive,
        "particlefilter-naive",
        "the search alone, which is all that Rodinia's naive variant does on the GPU; both in double, on the"
        " same distribution",
        ("resample",),
    ),
}
