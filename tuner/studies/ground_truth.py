"""Ground truths by exhaustive runs on a device, made once and kept in the database."""

import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import RunInterrupted
from tuner.model.objective import Objective
from tuner.model.plan import Progress
from tuner.model.records import Conditions, RunStatus, fingerprint
from tuner.model.run_document import RunDocument
from tuner.model.trial import Measurement, Trial
from tuner.model.version import VERSION
from tuner.search import session
from tuner.search.answer import SearchOutcome
from tuner.search.candidates import PreparedWorkload
from tuner.search.driver import Observer
from tuner.search.replaying import recorded_space
from tuner.search.request import Request, conditions_of, make_task, resolve
from tuner.search.setup import open_setup
from tuner.search.task import Task
from tuner.studies.comparison import Group
from tuner.studies.measured_spaces import Truth

_PACKAGES = ("numpy", "scipy")


def provenance() -> dict[str, Any]:
    """Date, command line, versions and the machine that the policies searched on."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": shlex.join(["tuner", *map(_relative, sys.argv[1:])]),
        "python": platform.python_version(),
        "packages": {"tuner": VERSION, **{name: metadata.version(name) for name in _PACKAGES}},
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
    }


def _relative(word: str) -> str:
    """An argument without the directories of the machine it was given on."""
    return f".../{Path(word).name}" if Path(word).is_absolute() else word


@dataclass(frozen=True)
class TruthProgress:
    """Receives the progress of measuring a ground truth.

    Attributes:
        compiled: told how many configurations are compiled.
        measured: told of every trial.
        warming: told of the warm-up.
    """

    compiled: Progress
    measured: Observer
    warming: Callable[[float, float], None]


Describe = Callable[[Task, Conditions, SearchOutcome, float], RunDocument]
"""Makes the stored answer of a run; the number is the seconds that enumerating and compiling took."""


def measured(
    group: Group,
    request: Request,
    device_spec: str | None,
    *,
    catalog: Catalog,
    store: Store,
    watch: TruthProgress,
    describe: Describe,
) -> Truth:
    """The exhaustive run of a group: the stored one if it is finished and was made under these conditions.

    Else it is made now; one that was stopped before goes on where it ended. It is the run that ``tuner run
    --policy exhaustive`` makes (for joules with ``--joules``: of all trials), and one made by that is taken.

    Args:
        group: the workloads.
        request: how to measure; its workloads and its policy are replaced.
        device_spec: where, as in ``--device``.
        catalog: the kernel files.
        store: the database.
        watch: hears how it goes.
        describe: makes the stored answer.

    Raises:
        RunInterrupted: by the user; the trials so far are stored.
    """
    joules = Objective(request.objective).needs_energy
    request = replace(request, workloads=group, policy="exhaustive", joules=joules)
    with open_setup(device_spec, request, watch.warming) as setup:
        pairs, _ = resolve(catalog, group, setup.device)
        conditions = conditions_of(request, pairs, setup.device, measuring=setup.measuring)
        begun_s = time.monotonic()
        task = make_task(request, pairs, setup.device, (), watch.compiled)
        prepare_s = time.monotonic() - begun_s
        run_id = finished(store, conditions)
        origin = f"run {run_id} of the database, measured before"
        if run_id is None:
            outcome = session.run_task(
                task,
                conditions,
                device=setup.device,
                measurer=setup.measurer,
                store=store,
                observer=watch.measured,
                resume=True,
                document=lambda outcome: describe(task, conditions, outcome, prepare_s),
            )
            run_id = finished(store, conditions)
            if outcome.status is RunStatus.INTERRUPTED or run_id is None:
                raise RunInterrupted("interrupted; the same command goes on with the ground truth from here")
            origin = f"run {run_id} of the database, measured now"
        identity, limits = setup.device.identity, setup.device.limits
        sensor = str(setup.measuring["sensor"] or "")
        prepared = task.compilation.resolve_all()
    trials = _of_space(prepared, store.trials(run_id, conditions.names))
    space = recorded_space(prepared, identity, limits, trials, sensor, {"run": run_id, **conditions.record()})
    return Truth(group, space, origin)


def finished(store: Store, conditions: Conditions) -> int | None:
    """The newest finished run under exactly these conditions."""
    wanted = fingerprint(conditions.record())
    runs = (run for run in store.history() if run.status is RunStatus.FINISHED)
    return next((run.id for run in runs if fingerprint(run.conditions) == wanted), None)


def _of_space(
    prepared: Sequence[PreparedWorkload], trials: Sequence[tuple[Trial, Measurement]]
) -> Mapping[Trial, Measurement]:
    """Trials of candidates only: a default that pruning drops is measured, but no policy may choose it."""
    candidates = [{c.configuration for c in item.candidates} for item in prepared]
    return {
        trial: measurement
        for trial, measurement in trials
        if all(c in known for c, known in zip(trial.configurations, candidates, strict=True))
    }
