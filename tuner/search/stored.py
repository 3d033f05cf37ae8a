"""Stored runs as documents and as rows, and the kernels that they were made from."""

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import cast

from tuner.database.answer_lock import LockedAnswer, LockedWorkload, Quantity, driver_range
from tuner.database.answers import StoredAnswer, stored_answer
from tuner.database.ledger import Ledger
from tuner.database.runs import Store
from tuner.kernel_files.build_record import kernels_of
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import InputError
from tuner.model.jobs import DeviceIdentity
from tuner.model.objective import COVERAGE, PARETO, timing_of
from tuner.model.records import RunStatus, StoredRun, WorkloadName
from tuner.model.run_document import MergedFrom, RunDocument, RunRow, TrialDocument
from tuner.model.version import VERSION
from tuner.search.document import series_record, trial_document
from tuner.system.ownership import is_alive


def stored_document(store: Store, run: StoredRun, *, with_series: bool = False) -> RunDocument:
    """The document of a run with its number, its start and its trials.

    A run without an answer, such as one that is still measured, has the keys that its conditions and trials
    give; ``best`` is None.

    Args:
        store: that has it.
        run: which.
        with_series: its trials with what ``tuner.search.document`` adds.
    """
    names = [name for name, _ in run.conditions["workloads"]]
    trials: list[TrialDocument]
    if with_series:
        trials = [
            {
                "number": stored.number,
                **trial_document((stored.trial, stored.known), names),
                **series_record(stored.searched, stored.known, names, stored.ended_at),
            }
            for stored in store.stored_trials(run.id, names)
        ]
    else:
        trials = [trial_document(pair, names) for pair in store.best_known(run.id, names)]
    document = run.answer or _without_answer(run, failed=sum(trial["status"] != "ok" for trial in trials))
    return {
        **document,
        "run": run.id,
        "merged_from": origin_record(run),
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "sources": run.conditions["sources"],
        "settings": run.conditions["settings"],
        "trials": [_in_order(document, trial) for trial in trials],
    }


def _in_order(document: RunDocument, trial: TrialDocument) -> TrialDocument:
    """A trial with its tunables as its kernel declares them: stored trials have them sorted by name."""
    configurations = dict(trial["configurations"])
    for workload in document["workloads"]:
        trial_part = workload["best"] or workload["default"]
        if trial_part is not None:
            own = configurations[workload["name"]]
            order = [name for name in trial_part["configuration"] if name in own]
            order += [name for name in own if name not in order]
            configurations[workload["name"]] = {name: own[name] for name in order}
    return {**trial, "configurations": configurations}


def run_document(run: StoredRun, failed: int) -> RunDocument:
    """The document of a run with its number and its start, and without its trials."""
    document = run.answer or _without_answer(run, failed)
    return {
        **document,
        "run": run.id,
        "status": status_of(run),
        "merged_from": origin_record(run),
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "sources": run.conditions["sources"],
        "settings": run.conditions["settings"],
    }


def origin_record(run: StoredRun) -> MergedFrom | None:
    """Return the origin of a merged run; None for a run that was measured for this database."""
    return None if run.origin is None else cast("MergedFrom", asdict(run.origin))


def status_of(run: StoredRun) -> str:
    """The status of a run; ``killed`` where its process is gone."""
    killed = run.status is RunStatus.RUNNING and not is_alive(run.owner)
    return "killed" if killed else run.status.value


def _without_answer(run: StoredRun, failed: int) -> RunDocument:
    conditions = run.conditions
    device = conditions["device"]
    return {
        "status": status_of(run),
        "device": device,
        "modelled": device["modelled"],
        "recorded": device.get("recorded") or None,
        "objective": run.objective,
        "timing": timing_of(run.objective),
        "policy": conditions["policy"],
        "seed": conditions["seed"],
        "clocks": conditions["clocks"],
        "workloads": [
            {"name": name, "batch": batch, "space": {}, "best": None, "default": None}
            for name, batch in conditions["workloads"]
        ],
        "space": {"measured": run.trials, "failed": failed},
        "best": None,
        "default": None,
        "fastest": None,
        "notices": [],
    }


def run_row(run: StoredRun) -> RunRow:
    """A run in a list: what it measured, where, and its best trial; None without an answer."""
    conditions = run.conditions
    return {
        "run": run.id,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "status": status_of(run),
        "workloads": [name for name, _ in conditions["workloads"]],
        "device": conditions["device"]["spec"],
        "modelled": conditions["device"]["modelled"],
        "recorded": conditions["device"].get("recorded") or None,
        "objective": run.objective,
        "policy": conditions["policy"],
        "clocks": conditions["clocks"],
        "trials": run.trials,
        "merged_from": origin_record(run),
        "best": None if run.answer is None else run.answer["best"],
    }


def lockable(
    store: Store, catalog: Catalog, device: DeviceIdentity
) -> tuple[list[LockedAnswer], list[tuple[LockedAnswer, str]]]:
    """The stored answers that a lock file may hold for a device, and others of it with why they may not.

    Of several to one question the newest of a finished run. A kernel that the catalogue has not, as one of a
    Python program, is taken to be what it was when it was tuned: its content key says later whether it is.

    Args:
        store: the database.
        catalog: with the present kernels.
        device: whose answers are taken.
    """
    found, stale = list[LockedAnswer](), list[tuple[LockedAnswer, str]]()
    ledger, runs = Ledger(store.database), store.all_answered()
    answers = [one for run in runs if (one := stored_answer(run, ledger.samples(run.id))) is not None]
    for answer in sorted(answers, key=lambda one: (not one.finished, -one.run)):
        if not answer.on(device) or answer.objective.startswith(PARETO):  # a front is no one answer
            continue
        locked = _locked(answer)
        if any(locked.excludes(other) for other in found):
            continue
        before = answer.conditions["sources"]
        sources = {
            name: catalog.kernel(name).fingerprint if name in catalog.kernels else before.get(name, "")
            for name in answer.kernels
        }
        here = replace(device, uuid=answer.uuid)  # any GPU of the kind
        if reasons := answer.reasons(here, sources, {}):
            stale.append((locked, f"{answer.told}: {'; '.join(reasons)}"))
            continue
        found.append(locked)
    return found, [pair for pair in stale if not any(pair[0].excludes(one) for one in found)]


def _locked(answer: StoredAnswer) -> LockedAnswer:
    best = answer.answer["best"]
    time_s, joules = best.get("time_s") or 0.0, best.get("energy_j")
    sources = answer.conditions["sources"]
    half_j = COVERAGE * (best.get("energy_j_uncertainty") or 0.0)
    return LockedAnswer(
        workload=tuple(
            LockedWorkload(
                name, batch, sources[WorkloadName.parse(name).kernel], {**answer.configurations[name]}
            )
            for name, batch in answer.batches.items()
        ),
        gpu=answer.conditions["device"]["name"],
        driver=driver_range(answer.conditions["device"]["driver"]),
        objective=answer.objective,
        time=Quantity.of(time_s, COVERAGE * (best.get("time_s_uncertainty") or 0.0)),
        measured=answer.at[:10],
        tuner=VERSION,
        energy=None if joules is None else Quantity.of(joules, half_j),
        clock_mhz=answer.clock_mhz,
        power_limit_w=answer.power_limit_w,
        modelled=answer.conditions["device"]["modelled"],
    )


def with_stored_kernels(catalog: Catalog, specs: Iterable[str], store: Store | None) -> Catalog:
    """A catalogue with the kernels of workloads that it lacks, from the files of the newest runs of them.

    Raises:
        InputError: a run had one from a file that cannot be read any more; the message says why.
    """
    missing = {WorkloadName.parse(spec).kernel for spec in specs}
    missing = {name for name in missing if name not in catalog.kernels}
    told: dict[str, str] = {}
    for run in store.all_answered() if missing and store is not None else ():
        found, reasons = kernels_of(None if run.origin else run.answer, run.id)
        for name in missing & reasons.keys():  # an older run may have a file that is still there
            reason = f"{name} is unknown here: {reasons[name]}; `tuner show {run.id}` shows what it found"
            told.setdefault(name, reason)
        catalog = catalog.with_kernels({name: found[name] for name in missing & found.keys()})
        missing -= found.keys()
        if not missing:
            break
    for name in sorted(missing & told.keys()):
        raise InputError(told[name])
    return catalog
