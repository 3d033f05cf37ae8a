"""Spaces made by hand: recorded ones with the time of every trial, and one whose tunables have conditions."""

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

from tuner.model.expressions.callables import Expression
from tuner.model.jobs import DeviceIdentity
from tuner.model.plan import Configuration, TunableValue, Work
from tuner.model.trial import Energy, Measurement, Status, Trial, WorkloadResult
from tuner.recordings.values import RecordedSpace, RecordedWorkload
from tuner.space.large_spaces import SampledSpace, space_of
from tuner.space.search_view import Candidate, LargeSpace, Search
from tuner.space.space import Condition, Space

DEVICE = DeviceIdentity(
    spec="replay:hand", name="Made by hand", uuid="0", driver="1", runtime="1", modelled=False
)


def workload(name: str, count: int) -> RecordedWorkload:
    """A workload whose tunable P has the values 1 to ``count``; a run handles a million units."""
    values = tuple(range(1, count + 1))
    kernel, _, sizes = name.partition(":")
    candidates = tuple(
        Candidate(
            Configuration({"P": value}), 1.0, 128, 8, 32, value, work=Work(0.0, 0.0, 0.0, 1e6, "MData/s")
        )
        for value in values
    )
    return RecordedWorkload(
        name=name,
        kernel=kernel,
        family="",
        sizes=dict([sizes.split("=")]) if sizes else {},
        batch=1,
        fingerprint="",
        tunables={"P": values},
        roles={},
        default=candidates[0].configuration if candidates else Configuration({}),
        candidates=candidates,
    )


def space(names: Sequence[str], times_s: Sequence[float | None], *, joules: float = 0.0) -> RecordedSpace:
    """A space of workloads with as many configurations each; None is a failed trial.

    Args:
        names: of the workloads.
        times_s: makespans, the last workload changing fastest.
        joules: energy of a second; 0 where none was recorded.
    """
    count = round(len(times_s) ** (1 / len(names)))
    workloads = tuple(workload(name, count) for name in names)
    chosen = product(*(one.candidates for one in workloads))
    trials = {
        Trial(tuple(candidate.configuration for candidate in combination)): measurement(
            time_s, len(names), joules
        )
        for combination, time_s in zip(chosen, times_s, strict=True)
    }
    return RecordedSpace(workloads, DEVICE, None, trials)


def measurement(time_s: float | None, workloads: int, joules: float) -> Measurement:
    if time_s is None:
        return Measurement(tuple(WorkloadResult(Status.CRASHED, detail="it fell") for _ in range(workloads)))
    energy = Energy(joules * time_s, 0.01 * joules * time_s, joules, "meter", "gpu") if joules else None
    return Measurement(
        tuple(WorkloadResult(Status.OK, time_s) for _ in range(workloads)), time_s, energy=energy
    )


FORM_TUNABLES: dict[str, list[TunableValue]] = {
    "form": ["plain", "ring", "tree"],
    "L": [64, 128, 256],
    "slots": [2, 4, 8],
    "lag": [1, 2, 3],
    "radix": [2, 4],
    "how": ["shuffle", "shared"],
}
FORM_RULES = [Expression("form != 'ring' or slots > lag"), Expression("form != 'tree' or L < 256")]
FORM_CONDITIONS = {
    "slots": Condition(Expression("form == 'ring'")),
    "lag": Condition(Expression("form == 'ring'")),
    "radix": Condition(Expression("form != 'ring'"), Expression("2")),
    "how": Condition(Expression("form == 'tree' and radix == 4")),
}


def forms() -> Space:
    """A kernel of three forms: slots and lag are of one of them, the radix of two, L is of all."""
    return Space.build(FORM_TUNABLES, FORM_RULES, conditions=FORM_CONDITIONS)


def sampled_forms() -> SampledSpace:
    """The same as if it were too large to be listed."""
    found = space_of(FORM_TUNABLES, FORM_RULES, {}, {}, FORM_CONDITIONS, listed=8, drawn=8)
    assert isinstance(found, SampledSpace)
    return found


def large_space(drawn: int = 40) -> SampledSpace:
    """A space of some 200 configurations, of which so many are listed."""
    found = space_of(
        {
            "form": ["plain", "ring"],
            **{name: [1, 2, 4, 8] for name in "abc"},
            "slots": [2, 4],
            "order": ["0,1,2", "1,0,2", "2,1,0"],
        },
        [Expression("a * b <= 16"), Expression("b * c == 8"), Expression("form == 'plain' or slots >= a")],
        {},
        {},
        {"slots": Condition(Expression("form == 'ring'"))},
        listed=50,
        drawn=drawn,
    )
    assert isinstance(found, SampledSpace)
    return found


def large_search(space: SampledSpace, **told: Any) -> Search:
    """A search over a space of which a sample is listed; its candidates are made on demand."""

    def made(configuration: Configuration) -> Candidate:
        return Candidate(configuration, 1.0, 32 * int(configuration["a"]), 1, int(configuration["a"]))

    def candidate(configuration: Configuration) -> Candidate | None:
        return made(configuration) if space.allows(configuration) else None

    return Search(
        workloads=("kernel0",),
        candidates=(tuple(map(made, space)),),
        defaults=(space[0],),
        clocks_mhz=(),
        cost=lambda one: math.inf if one.makespan_s is None else one.makespan_s,
        tunables=(space.tunables,),
        large_spaces=(LargeSpace(space.size, lambda one: [*map(made, space.neighbours(one))], candidate),),
        **told,
    )


def recorded_forms() -> RecordedSpace:
    """The same as a recording: every configuration took a second."""
    configurations = list(forms())
    one = RecordedWorkload(
        name="forms:N=64",
        kernel="forms",
        family="",
        sizes={"N": 64},
        batch=1,
        fingerprint="",
        tunables=forms().tunables,
        roles={},
        default=configurations[0],
        candidates=tuple(Candidate(configuration, 0.0, 0, 0, 0) for configuration in configurations),
    )
    trials = {Trial((configuration,)): measurement(1.0, 1, 0.0) for configuration in configurations}
    return RecordedSpace((one,), DEVICE, None, trials)
