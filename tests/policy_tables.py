"""Replays the paths of Algorithms 1-4 from tables worked out by hand.

A table holds the costs of exactly those trials that the algorithm may run, in the order it runs them: a trial
outside of the table is a KeyError. A row is (block size of each kernel, clock if there is one).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from policy_driver import play, result, search_over

from tuner.model import registry
from tuner.model.plan import Configuration
from tuner.model.trial import Measurement, Trial
from tuner.space.search_view import Candidate

FAILED = math.inf
K20C = (758, 705, 666, 640, 614)
K40C = (875, 810, 745, 666)

Row = tuple[int, ...]
Table = dict[Row, float]


def row(trial: Trial) -> Row:
    """The row of a trial."""
    sizes = tuple(int(configuration["L"]) for configuration in trial.configurations)
    return sizes if trial.clock_mhz is None else (*sizes, trial.clock_mhz)


def replay(
    table: Table,
    *spaces: Sequence[Candidate],
    clocks: Sequence[int] = (),
    own_s: Sequence[float] | Mapping[Row, Sequence[float]] | None = None,
    guilty: Mapping[Row, Sequence[int]] | None = None,
    defaults: Row = (),
) -> tuple[list[Row], Row | None]:
    """Play a table to the greedy policy: the rows it ran, and its answer.

    Unless given: own times are equal, all kernels fail in a failed trial, defaults are the largest blocks.
    """

    def measure(trial: Trial) -> Measurement:
        key = row(trial)
        own = own_s[key] if isinstance(own_s, Mapping) else own_s or [1.0] * len(spaces)
        failed = (guilty or {}).get(key, range(len(spaces))) if table[key] == FAILED else ()
        return result(table[key], own, failed)

    search = search_over(*spaces, clocks=clocks)
    if defaults:
        search = replace(search, defaults=tuple(Configuration({"L": size}) for size in defaults))
    played = play(registry.load("policy", "greedy"), search, measure)
    assert all(len(batch) == 1 for batch in played.batches)
    return [row(trial) for trial in played.trials], None if played.best is None else row(played.best)
