"""The guideline for embedded GPUs of "Performance Tuning for GPU-Embedded Systems", section IV-A.

As printed: choose what reaches W_SM = W^max and B_a = B^max; if nothing does, the largest B_a with W_SM / W^max
from 60 to 100 %; if nothing does, the largest warp occupancy, and of several the largest P. In all of these a
larger radix is taken even when it lowers B_a. For large sizes (section IV-C) the number of kernels comes
first, then the guideline for each of them.

Where the text is silent or needs a reading:

* The radix stands before "both at their maximum", else it would never cost B_a: the FFT's (256, 4, 64) of
  Fig. 3(d) has radix 4 and 24 blocks where radix 2 has 64 warps and 32 blocks. It stands behind the 60 %:
  radix 8 would leave 50 % there. Below 60 % it comes first again ("in all previous steps").
* Equal B_a: more warps, then the larger P, as the last step says and as scan's P = 4 needs, where P = 2 fills
  the multiprocessor as well.
* Shuffles are not a rule of their own ("implicitly"): they show in registers, S, B_a and W_SM; where all of
  these are equal, less shared memory is less communication, the first of the paper's premises.
* Several kernels: the fuller ones do not make up for the emptiest, so numbers are compared from the
  smallest on.
"""

from collections.abc import Sequence

from .rating import Criterion, Rated, listed

ENOUGH_WARPS = 0.6  # of W^max: "keeps between [60% 100%]"


def guideline(rated: Sequence[Rated]) -> tuple[Criterion, ...]:
    """The criteria of the embedded rule for these candidates, the first one first."""
    radix_varies = len({one.radix for one in rated}) > 1
    radix = (Criterion("a larger radix", _radix, lambda one: f"r = {one.radix}"),) if radix_varies else ()
    return (
        Criterion("fewer kernels", _kernels, lambda one: f"{len(one.launches)} launches"),
        Criterion("at least 60 % of the warps", _enough, _warps),
        *radix,
        Criterion("all warps and all blocks", _both_at_maximum, lambda one: f"{_warps(one)}, {_blocks(one)}"),
        Criterion("more active blocks", _more_blocks, _blocks),
        Criterion("more warps", _more_warps, _warps),
        Criterion("more elements per thread", _elements, lambda one: f"P = {one.elements_per_thread}"),
        Criterion("less shared memory", _shared, lambda one: f"{one.shared_bytes} B a block"),
    )


def is_enough(one: Rated) -> bool:
    """Whether every kernel keeps at least 60 % of the warps."""
    return one.warp_share >= ENOUGH_WARPS


def _kernels(one: Rated) -> tuple[float, ...]:
    return (len(one.launches),)


def _enough(one: Rated) -> tuple[float, ...]:
    return (not is_enough(one),)


def _radix(one: Rated) -> tuple[float, ...]:
    return (-one.radix,)


def _both_at_maximum(one: Rated) -> tuple[float, ...]:
    full = one.warp_share >= 1 and min(one.B_a) >= one.limits.max_blocks_per_sm
    return (not full,)


def _more_blocks(one: Rated) -> tuple[float, ...]:
    """Below 60 % of the warps, blocks do not count."""
    return tuple(-blocks for blocks in sorted(one.B_a)) if is_enough(one) else ()


def _more_warps(one: Rated) -> tuple[float, ...]:
    return tuple(-warps for warps in sorted(one.W_SM))


def _elements(one: Rated) -> tuple[float, ...]:
    return (-one.elements_per_thread,)


def _shared(one: Rated) -> tuple[float, ...]:
    return (one.shared_bytes,)


def _warps(one: Rated) -> str:
    return f"W_SM = {listed(one.W_SM)} of {one.limits.max_warps_per_sm}"


def _blocks(one: Rated) -> str:
    return f"B_a = {listed(one.B_a)} of {one.limits.max_blocks_per_sm}"
