"""Ground truths by exhaustive runs on a device, made once and kept in the database."""

import os
import platform
import shlex
import sys
from dataclasses import replace
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import TypedDict

from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import RunInterrupted
from tuner.model.objective import Objective
from tuner.model.records import Conditions, RunStatus, fingerprint
from tuner.model.version import VERSION
from tuner.search.compilation import Compilation
from tuner.search.plan import plan_search
from tuner.search.replaying import recorded_space
from tuner.search.request import SearchRequest
from tuner.search.session import Session
from tuner.search.setup import open_setup
from tuner.search.tuning import RunListener
from tuner.studies.comparison import Group
from tuner.studies.measured_spaces import Truth

_PACKAGES = ("numpy", "scipy")


class Provenance(TypedDict, total=False):
    """Time, command and machine of a comparison."""

    date: str
    command: str
    python: str
    packages: dict[str, str]
    system: str


def provenance() -> Provenance:
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


def measured(
    group: Group,
    request: SearchRequest,
    device_spec: str | None,
    *,
    catalog: Catalog,
    store: Store,
    listener: RunListener,
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
        listener: is notified of the progress.

    Raises:
        RunInterrupted: by the user; the trials so far are stored.
    """
    joules = Objective(request.objective).needs_energy
    request = replace(request, workloads=group, policy="exhaustive", joules=joules)
    with open_setup(device_spec, request, listener.warming) as setup:
        plan = plan_search(request, catalog, setup)
        conditions = plan.conditions
        run_id = finished(store, conditions)
        origin = f"run {run_id} of the database, measured before"
        if run_id is None:
            outcome = Session(plan, setup, store, listener).run(resume=True)
            run_id = finished(store, conditions)
            if outcome.status is RunStatus.INTERRUPTED or run_id is None:
                raise RunInterrupted("interrupted; the same command goes on with the ground truth from here")
            origin = f"run {run_id} of the database, measured now"
        identity, limits = setup.device.identity, setup.device.limits
        sensor = str(setup.measuring["sensor"] or "")
        compilation = Compilation(plan.spaces(setup.device), setup.device, progress=listener.compiled)
        prepared = compilation.resolve_all()
    # a default that pruning drops is measured, but no policy may choose it
    candidates = [{c.configuration for c in workload.candidates} for workload in prepared]
    trials = {
        trial: measurement
        for trial, measurement in store.trials(run_id, conditions.names)
        if all(c in allowed for c, allowed in zip(trial.configurations, candidates, strict=True))
    }
    space = recorded_space(prepared, identity, limits, trials, sensor, {"run": run_id, **conditions.record()})
    return Truth(group, space, origin)


def finished(store: Store, conditions: Conditions) -> int | None:
    """The newest finished run under exactly these conditions."""
    same = fingerprint(conditions.record())
    runs = (run for run in store.history() if run.status is RunStatus.FINISHED)
    return next((run.id for run in runs if fingerprint(run.conditions) == same), None)
