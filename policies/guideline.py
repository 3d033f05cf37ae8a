"""The guideline for embedded GPUs of "Performance Tuning for GPU-Embedded Systems", section IV-A.

As printed: choose what reaches W_SM = W^max and B_a = B^max; if nothing does, the largest B_a with
W_SM / W^max from 60 to 100 %; if nothing does, the largest warp occupancy, and of several the largest P. In
all of these a larger radix is taken even when it lowers B_a. For large sizes (section IV-C) the number of
kernels comes first, then the guideline for each of them.

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

from .rating import CandidateRating, Facts, Key, RuleCriterion, launched, listed, shared, warps

ENOUGH_WARPS = 0.6  # of W^max: "keeps between [60% 100%]"


def guideline(facts: Facts) -> tuple[RuleCriterion, ...]:
    """The criteria of the embedded rule, the first one first."""
    radix = (RuleCriterion("a larger radix", lambda one: (-one.radix,), lambda one: f"r {one.radix}"),)
    return (
        RuleCriterion("fewer kernels", lambda one: (len(one.launches),), launched),
        RuleCriterion("at least 60 % of the warps", lambda one: (not is_enough(one),), warps),
        *(radix if facts.radix_varies else ()),
        RuleCriterion(
            "all warps and all blocks", _both_at_maximum, lambda one: f"{warps(one)}, {_blocks(one)}"
        ),
        RuleCriterion("more active blocks", _more_blocks, _blocks),
        RuleCriterion("more warps", lambda one: tuple(-W_SM for W_SM in sorted(one.W_SM)), warps),
        RuleCriterion(
            "more elements per thread",
            lambda one: (-one.candidate.elements_per_thread,),
            lambda one: f"P {one.candidate.elements_per_thread}",
        ),
        RuleCriterion(
            "less shared memory",
            lambda one: (max(one.shared_bytes),),
            shared,
        ),
    )


def is_enough(one: CandidateRating) -> bool:
    """Whether every kernel keeps at least 60 % of the warps."""
    return one.warp_share >= ENOUGH_WARPS


def _both_at_maximum(one: CandidateRating) -> Key:
    full = one.warp_share >= 1 and min(one.B_a) >= one.limits.max_blocks_per_sm
    return (not full,)


def _more_blocks(one: CandidateRating) -> Key:
    """Below 60 % of the warps, blocks do not count."""
    return tuple(-B_a for B_a in sorted(one.B_a)) if is_enough(one) else ()


def _blocks(one: CandidateRating) -> str:
    return f"B_a {listed(one.B_a)} of {one.limits.max_blocks_per_sm}"
