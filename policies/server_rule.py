"""The rule for large GPUs: bytes in flight, not occupancy.

The premises are those of "Performance Tuning for GPU-Embedded Systems", section IV-A (less communication,
enough parallelism to hide latency, much work per thread). On a GPU with fast memory and many multiprocessors
they weigh otherwise:

* Memory is the bound, and by Little's law a multiprocessor needs latency times bandwidth in flight: at some
  36 B/ns (4.8 TB/s over the 132 multiprocessors of an H200) and 0.7 us under load, 25 KiB read, and as much
  written. Blocks load at their beginning and store at their end, so that resident blocks have to hold a
  multiple of that. More than enough gains nothing.
* Half of the warps are parallelism enough once each has several accesses under way.
* Then small blocks: few warps wait at a barrier, and while one block computes others load.

A problem that several blocks share (the large sizes of section IV-C) is bound by what passes between blocks
instead: fewest passes over memory, then as much of the problem on the chip as possible. Blocks that stay
fetch their next tile while they compute and need no other warps for that; a larger radix saves exchanges;
what shared memory is left holds tiles fetched ahead.
"""

from .rating import Criterion, Facts, Key, Rated, launched, shared, warps

KIB = 1024
ENOUGH_BYTES = (
    96 * KIB
)  # in flight on a multiprocessor, twice latency times bandwidth; 96 to 128 KiB do the same
ENOUGH_WARPS = 0.5  # of those a multiprocessor holds


def server_rule(facts: Facts) -> tuple[Criterion, ...]:
    """The criteria of the server rule, the first one first."""
    return _SHARED_PROBLEM if facts.several_launches else _WHOLE_PROBLEMS


def _enough_bytes(one: Rated) -> Key:
    return (-min(one.bytes_in_flight, ENOUGH_BYTES),)


def _enough_warps(one: Rated) -> Key:
    return (-min(one.warp_share, ENOUGH_WARPS),)


def _bytes(one: Rated) -> str:
    return f"{one.bytes_in_flight / KIB:.0f} KiB in flight"


def _threads(one: Rated) -> str:
    return f"L {one.threads_per_block}"


_WHOLE_PROBLEMS = (
    Criterion("enough bytes in flight", _enough_bytes, _bytes),
    Criterion("half of the warps", _enough_warps, warps),
    Criterion("smaller blocks", lambda one: (one.threads_per_block,), _threads),
    Criterion(
        "fewer elements per thread",
        lambda one: (one.candidate.elements_per_thread,),
        lambda one: f"P {one.candidate.elements_per_thread}",
    ),
    Criterion("less shared memory", lambda one: (max(one.shared_bytes),), shared),
    Criterion("fewer steps", lambda one: (one.steps,), lambda one: f"{one.steps:g} steps"),
)

_SHARED_PROBLEM = (
    Criterion(
        "fewer passes over memory",
        lambda one: (len(one.launches),),
        launched,
    ),
    Criterion("more bytes in flight", lambda one: (-one.bytes_in_flight,), _bytes),
    Criterion(
        "blocks that stay",
        lambda one: (not one.stays,),
        lambda one: "blocks stay" if one.stays else "blocks come and go",
    ),
    Criterion("half of the warps", lambda one: () if one.stays else _enough_warps(one), warps),
    Criterion("a larger radix", lambda one: (-one.radix,), lambda one: f"r {one.radix}"),
    Criterion("smaller blocks", lambda one: () if one.stays else (one.threads_per_block,), _threads),
    Criterion("more shared memory", lambda one: (-sum(one.shared_bytes),), shared),
)
