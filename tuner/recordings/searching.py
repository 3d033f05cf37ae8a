"""A search over a recorded space."""

from collections.abc import Callable, Mapping, Sequence

from tuner.interfaces import Known, Payback, Search
from tuner.model import Configuration, Measurement, Trial
from tuner.recordings.values import RecordedSpace, RecordedWorkload


def _noiseless(_: Measurement) -> float:
    """No uncertainty is known."""
    return 0.0


def _silent(_: str) -> None:
    """Tells nobody."""


def search_of(
    space: RecordedSpace,
    cost: Callable[[Measurement], float],
    *,
    seed: int = 0,
    noise: Callable[[Measurement], float] = _noiseless,
    known: Sequence[Known] = (),
    payback: Payback | None = None,
    prior: Mapping[Trial, Measurement] | None = None,
    tell: Callable[[str], None] = _silent,
) -> Search:
    """What a policy is told of a recorded space; ``space.look`` answers its trials.

    Args:
        space: the space.
        cost: the objective; infinity for a failed trial.
        seed: for policies that draw at random.
        noise: relative standard uncertainty of a measurement's cost.
        known: what other runs measured of the workloads' kernels.
        payback: when another evaluation no longer pays; None where nobody said.
        prior: measurements that are known already.
        tell: takes a sentence for the user.
    """
    return Search(
        workloads=space.names,
        candidates=tuple(workload.candidates for workload in space.workloads),
        defaults=tuple(map(_default, space.workloads)),
        clocks_mhz=space.clocks_mhz,
        cost=cost,
        seed=seed,
        prior=prior or {},
        tunables=tuple(workload.tunables for workload in space.workloads),
        roles=tuple(workload.roles for workload in space.workloads),
        sizes=tuple(workload.sizes for workload in space.workloads),
        limits=space.limits,
        device=space.identity.name,
        noise=noise,
        known=tuple(known),
        payback=payback,
        tell=tell,
    )


def _default(workload: RecordedWorkload) -> Configuration:
    """The recorded default, or the first candidate where the default was not recorded."""
    found = {candidate.configuration for candidate in workload.candidates}
    return workload.default if workload.default in found else workload.candidates[0].configuration
