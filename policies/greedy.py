"""Algorithms 1-4 of "Multi-Kernel Auto-Tuning on GPUs: Performance and Energy-Aware Optimization".

`greedy` reads like Algorithm 4, of which the others are cases, and says where the paper contradicts itself.
"""

import logging
from collections.abc import Generator, Iterable, Sequence

from tuner.interfaces import Search
from tuner.model import Configuration, Measurement, Trial

from .descent import Attempt, at_clocks, by_own_time, first_minimum, first_valid, with_kernel
from .memory import Memory
from .ordering import Order

logger = logging.getLogger(__name__)

Descent = Generator[list[Trial], list[Measurement], Trial]
"""A part of the search: yields trials, is sent their measurements, returns the trial it ends at."""


def greedy(search: Search) -> Attempt:
    """Descend from the best potential and stop at the first worsening (section III).

    Algorithm 4 is run: the clock, then kernel by kernel, and back to the clock when a distribution (the
    paper's word for a block size) has changed. Without clocks to choose from there is one frequency, "as
    found", and it is Algorithm 3; with one workload they are Algorithms 2 and 1. Costs are those of the whole
    round: its makespan (Algorithm 3), its energy (Algorithm 4), or what another objective makes of the two.

    Where the paper contradicts itself or is silent:

    * Order of D and F: steps 5 and 2 sort "in non-decreasing order", yet D[0] is "the best potential" and the
      frequency is lowered to fmin = F[last]. Both descend here. Equal occupancy is ordered by larger block
      first, as the StreamCluster rows of Table IV need; `Order` says what breaks further ties.
    * End of D: Algorithm 2, step 21 returns when D ends without a worsening; the text goes on to the
      remaining frequencies whenever the distribution is not the one they were tried with. The text is
      followed: only so do the 7 (K20c) and 6 (K40c) trials of section IV-A for StreamCluster come out.
    * "goto step 4" resets f but not i_f: the descent goes on over the clocks below the one reached.
    * Algorithm 3, step 11 names steps 6-15 of Algorithm 1, which has 12: steps 6-12 are run, from D[0].
    * Algorithm 3, step 12 never commits what kernel 0 found (i > 0), and Algorithm 4, step 15 jumps before it
      assigns. Findings of all kernels are committed, and a changed distribution of any kernel restarts: the
      text says so, and Algorithm 2 has no kernel but 0.
    * Termination: a descent that starts again at D[0] may stop earlier than before, at a higher cost. The
      paper would commit it, so that sets of configurations can follow each other in a circle and end the
      search with kernels untried; here what costs more than the present set is not committed. The search ends
      when a full pass changes nothing, or when a set comes back at the same clock (equal costs; logged).
    * Result: Algorithm 4, step 17 returns D[last]; here it is the cheapest trial of all measured, never worse
      than the D[id-1] that Algorithm 1 returns.
    * Order of kernels: Algorithm 4 sorts by energy, which no sensor separates in a co-run. Each kernel is
      given a share in proportion to its own time, so that both algorithms sort by own time; Algorithm 3 once
      (step 9), Algorithm 4 after every descent of the clock (step 12).
    * A single candidate is never run by Algorithm 1 (step 6); here it is, once: its cost is asked for.
    * Failed runs are skipped and compared with nothing. Where D[0] fails at every clock, the best of
      ``Search.prior`` is the start, or else the next candidates of the kernels that fail.
    * Tunables beside the block size: see `_tune_kernel`.

    Returns:
        The cheapest trial measured, or None when all failed.
    """
    if search.size == 0:
        return None
    memory = Memory(search)
    orders = [Order(candidates) for candidates in search.candidates]  # step 1
    delta = yield from first_valid(memory, orders, search)
    if delta is None:
        return None
    kernels: list[int] = []
    committed: set[Trial] = set()
    while True:
        delta = yield from _lower_clock(memory, delta, search.clocks)  # steps 4-11 of Algorithm 4
        if search.clocks_mhz or not kernels:
            kernels = by_own_time(memory, delta)  # step 9 of Algorithm 3, 12 of Algorithm 4
        committed.add(delta)
        found = yield from _tune_kernels(memory, orders, kernels, delta)
        if found == delta:
            return memory.best
        if found in committed:
            names = "; ".join(
                f"{w} [{c}]" for w, c in zip(search.workloads, found.configurations, strict=True)
            )
            logger.info("greedy ends: this set of configurations came back: %s", names)
            return memory.best
        delta = found


def _lower_clock(memory: Memory, delta: Trial, clocks: Sequence[int | None]) -> Descent:
    """Steps 4-10 of Algorithms 2 and 4, from the present clock on."""
    remaining = clocks[clocks.index(delta.clock_mhz) :]
    return (yield from first_minimum(memory, at_clocks(memory, delta, remaining))) or delta


def _tune_kernels(memory: Memory, orders: Sequence[Order], kernels: Sequence[int], delta: Trial) -> Descent:
    """Steps 10-13 of Algorithm 3, 13-16 of Algorithm 4: one pass, cut short when a distribution changes."""
    for i in kernels:
        present = delta.configurations[i]
        delta = yield from _tune_kernel(memory, orders[i], i, delta)
        if not orders[i].same_distribution(present, delta.configurations[i]):
            break
    return delta


def _tune_kernel(memory: Memory, order: Order, i: int, delta: Trial) -> Descent:
    """Steps 6-12 of Algorithm 1 (12-21 of Algorithm 2) for kernel ``i``, all else as in ``delta``.

    The paper tunes the block size alone. With more tunables, D still has one entry per block size, each
    represented by its variant nearest to the present one: a list of all variants would stop at the first
    step between two that have little in common, and measuring all variants of a block size would cost most
    of the space. Nearest is first by the work of a block, then, if that leads nowhere, by the tunables kept.
    Within the distribution found, the other tunables are descended along one by one, from the present value
    to larger ones and, if that leads nowhere, to smaller ones. With one candidate per block size, which is
    the paper's case, both vectors D are the same and there is nothing else to descend along.
    """
    present = delta.configurations[i]
    vectors = (order.distributions(present), order.distributions(present, same_work=False))
    delta = yield from _along(memory, vectors, i, delta)
    for tunable in order.tunables:
        line = order.line(delta.configurations[i], tunable)
        here = line.index(delta.configurations[i])
        delta = yield from _along(memory, (line[here::-1], line[here:]), i, delta)
    return delta


def _along(memory: Memory, lines: Iterable[Sequence[Configuration]], i: int, delta: Trial) -> Descent:
    """Descend along the first line for kernel ``i`` that leads to another trial which is not costlier."""
    for line in lines:
        found = yield from first_minimum(memory, with_kernel(delta, i, line))
        if found not in (None, delta) and memory.measured_cost(found) <= memory.measured_cost(delta):
            return found
    return delta
