"""What is told of a trial that has ended."""

from collections.abc import Callable
from dataclasses import dataclass

from tuner.model.trial import Measurement, Trial


@dataclass(frozen=True)
class TrialEvent:
    """Told to the observer after every trial.

    Attributes:
        trial: what was run.
        measurement: what it gave.
        cost: in the unit of what is searched for just now; infinity for a failed trial, and where it was not
            measured.
        best_cost: lowest cost so far, infinity while there is none.
        number: trials measured so far, this one included.
        expected: how many there will be at most (budget or size of the space); None where a descent decides.
        joules: spent by the run so far.
        confirming: True while contenders for the answer are measured again.
        names: of the workloads, in the order of the trial's configurations.
        place: number of the trial in its run; of a repeat, that of the trial that is measured again.
        repeat: of a contender's repeats, from 1; 0 for what the search measures.
        gpus: GPUs that measure trials just now.
        objective: name of what is searched for just now: under a slowdown limit, time comes first.
        label: what the numbers are: ``modelled``, ``recorded``, both, or empty where they were measured now.
    """

    trial: Trial
    measurement: Measurement
    cost: float
    best_cost: float
    number: int
    expected: int | None
    joules: float
    confirming: bool = False
    names: tuple[str, ...] = ()
    place: int = 0
    repeat: int = 0
    objective: str = ""
    label: str = ""
    gpus: int = 1


Observer = Callable[[TrialEvent], None]
"""Hears of every trial."""
