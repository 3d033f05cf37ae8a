"""The rule for large GPUs: bytes in flight, not occupancy.

The premises are those of "Performance Tuning for GPU-Embedded Systems", section IV-A (less communication,
enough parallelism to hide latency, much work per thread). On a GPU with fast memory and many multiprocessors
they weigh otherwise:

* Memory is the bound, and by Little's law a multiprocessor needs latency times bandwidth in flight: at some
  36 B/ns (4.8 TB/s over the 132 multiprocessors of an H200) and 0.7 us under load, 25 KiB read, and as much
  written. Blocks load at their beginning and store at their end, so that resident blocks have to hold twice
  that. More than enough gains nothing, and occupancy is no aim of its own: a few warps with many elements
  each have as much under way.
* Then small blocks: few warps wait at a barrier, and while one block computes others load.
* Of what is left, threads with few elements (their accesses lie close together) and little communication.

A problem that several blocks share (the large sizes of section IV-C) is bound by what passes between blocks
instead: fewest passes over memory, then as much of the problem on the chip as possible. Blocks that stay
fetch their next tile while they compute and need no other warps for that; a larger radix saves exchanges;
what dynamic shared memory is left holds tiles fetched ahead. Blocks that come and go need half of the warps.

The order of the first list was found on N = 128, 512 and 2048 of the single-kernel operations on an H200, the
second one with all its sizes in view: `benchmarks/analytical_phi.py` says what each criterion is worth.
"""

from .rating import CandidateRating, Facts, Key, RuleCriterion, launched, shared, warps

KIB = 1024
ENOUGH_BYTES = (
    96 * KIB
)  # in flight on a multiprocessor, twice latency times bandwidth; 96 to 128 KiB do the same
ENOUGH_WARPS = 0.5  # of those a multiprocessor holds: in the large FFTs, and where bytes are not known


def server_rule(facts: Facts) -> tuple[RuleCriterion, ...]:
    """The criteria of the server rule, the first one first."""
    return _SHARED_PROBLEM if facts.several_launches else _WHOLE_PROBLEMS


def _enough_in_flight(one: CandidateRating) -> Key:
    """Bytes as far as enough; warps where the work is not known."""
    if one.candidate.work is None:
        return _enough_warps(one)
    return (-min(one.bytes_in_flight, ENOUGH_BYTES),)


def _enough_warps(one: CandidateRating) -> Key:
    return (-min(one.warp_share, ENOUGH_WARPS),)


def _staying(one: CandidateRating) -> Key:
    return (0,) if one.stays else (1, *_enough_warps(one))


def _stays(one: CandidateRating) -> str:
    return f"blocks stay, {warps(one)}" if one.stays else f"blocks come and go, {warps(one)}"


def _bytes(one: CandidateRating) -> str:
    return f"{one.bytes_in_flight / KIB:.0f} KiB in flight"


def _in_flight(one: CandidateRating) -> str:
    return warps(one) if one.candidate.work is None else f"{_bytes(one)}, {warps(one)}"


def _threads(one: CandidateRating) -> str:
    return f"L {one.threads_per_block}"


_WHOLE_PROBLEMS = (
    RuleCriterion("enough in flight", _enough_in_flight, _in_flight),
    RuleCriterion("smaller blocks", lambda one: (one.threads_per_block,), _threads),
    RuleCriterion(
        "fewer elements per thread",
        lambda one: (one.candidate.elements_per_thread,),
        lambda one: f"P {one.candidate.elements_per_thread}",
    ),
    RuleCriterion("less shared memory", lambda one: (max(one.shared_bytes),), shared),
)

_SHARED_PROBLEM = (
    RuleCriterion(
        "fewer passes over memory",
        lambda one: (len(one.launches),),
        launched,
    ),
    RuleCriterion("more bytes in flight", lambda one: (-one.bytes_in_flight,), _bytes),
    RuleCriterion("persistent blocks, or half of the warps", _staying, _stays),
    RuleCriterion("a larger radix", lambda one: (-one.radix,), lambda one: f"r {one.radix}"),
    RuleCriterion("smaller blocks", lambda one: (0,) if one.stays else (one.threads_per_block,), _threads),
    RuleCriterion("more shared memory", lambda one: (-(sum(one.dynamic_shared_bytes) // KIB),), shared),
)
