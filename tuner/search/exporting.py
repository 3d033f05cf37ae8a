"""From measured trials to a recorded space: the way back is ``recordings`` and ``devices.replay``."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tuner.errors import InputError
from tuner.interfaces import Candidate
from tuner.model import Configuration, DeviceIdentity, DeviceLimits, Measurement, Trial
from tuner.recordings import RecordedSpace, RecordedWorkload
from tuner.search.candidates import PreparedWorkload
from tuner.space.launches import candidate

Trials = Mapping[Trial, Measurement] | Iterable[tuple[Trial, Measurement]]


def recorded_space(  # noqa: PLR0917 - what a recording is made of
    prepared: Sequence[PreparedWorkload],
    identity: DeviceIdentity,
    limits: DeviceLimits | None,
    trials: Trials,
    sensor: str = "",
    provenance: Mapping[str, Any] | None = None,
) -> RecordedSpace:
    """What trials of prepared workloads gave, as a recorded space.

    Its candidates are the configurations that a trial had, in the order of the spaces, with what compiling
    told of them.

    Args:
        prepared: the workloads, in the order of the trials' configurations.
        identity: the GPU.
        limits: its occupancy inputs; None where they are not known.
        trials: what each gave; of a trial that is there twice, the last counts.
        sensor: reading the joules came from; empty where none were measured.
        provenance: date, command, versions.

    Raises:
        InputError: there is no trial.
    """
    measured = dict(trials.items() if isinstance(trials, Mapping) else trials)
    if not measured:
        raise InputError(f"{' + '.join(str(item.workload) for item in prepared)}: no trial was measured")
    return RecordedSpace(
        workloads=tuple(
            _workload(item, {trial.configurations[lane] for trial in measured})
            for lane, item in enumerate(prepared)
        ),
        identity=identity,
        limits=limits,
        trials=measured,
        sensor=sensor,
        provenance=dict(provenance or {}),
    )


def _workload(item: PreparedWorkload, tried: set[Configuration]) -> RecordedWorkload:
    return RecordedWorkload(
        name=str(item.workload),
        kernel=item.kernel.name,
        family=item.kernel.family,
        sizes=dict(item.workload.sizes),
        batch=item.workload.batch,
        fingerprint=item.kernel.fingerprint,
        tunables=item.space.tunables,
        roles=dict(item.kernel.roles),
        default=item.default,
        candidates=tuple(_candidates(item, tried)),
    )


def _candidates(item: PreparedWorkload, tried: set[Configuration]) -> list[Candidate]:
    """Candidates that were tried; a default that pruning dropped was tried, too, without being one."""
    known = {c.configuration: c for c in item.candidates}
    found = [known.get(c) or candidate(c, (), item.kernel.roles, work=item.plans[c].work) for c in tried]
    return sorted(found, key=lambda one: item.space.index(one.configuration))
