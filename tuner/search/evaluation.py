"""A policy played against known measurements: no device, no time, no store."""

from collections.abc import Callable

from tuner.interfaces import Policy, Search
from tuner.model import Measurement, Trial

STANDSTILL = 100_000  # lists in a row without a new trial; a search that asks so often goes in circles

Lookup = Callable[[Trial], Measurement]
"""What a trial gives; a trial that is not known gives a measurement that is not ok."""


def play(
    policy: Policy, search: Search, look: Lookup, budget: int | None = None
) -> list[tuple[Trial, Measurement]]:
    """Drive a policy's generator to its end, or until a budget is used up.

    A trial asked for again is answered from memory and costs nothing, as in a run.

    Args:
        policy: the strategy.
        search: what it is told.
        look: gives the measurement of a trial.
        budget: distinct trials at most; None for as many as the policy wants.

    Returns:
        The distinct trials in the order they were asked for, with what they gave.

    Raises:
        RuntimeError: the policy asked ``STANDSTILL`` times in a row for nothing new, and would never end.
    """
    known: dict[Trial, Measurement] = {}
    asked_in_vain = 0
    generator = policy(search)
    try:
        batch = next(generator)
        while asked_in_vain < STANDSTILL:
            before = len(known)
            for trial in batch:
                if trial not in known:
                    if budget is not None and len(known) >= budget:
                        return list(known.items())
                    known[trial] = look(trial)
            asked_in_vain = asked_in_vain + 1 if len(known) == before else 0
            batch = generator.send([known[trial] for trial in batch])
        raise RuntimeError(f"the policy asked {STANDSTILL:,} times in a row for no new trial")
    except StopIteration:
        return list(known.items())
    finally:
        generator.close()
