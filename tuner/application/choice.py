"""Chooses the configuration of a kernel: the caller's, the daemon's, the best stored one, or the default."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.application.advice import Advisor
from tuner.client.values import Best
from tuner.database.answers import StoredAnswer
from tuner.database.best_known import DatabaseSource, best_of_part
from tuner.database.ranking import AnswerQuery, passed_over, served_answer
from tuner.database.runs import Store
from tuner.devices.gpus import limits_of
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.device import DeviceIdentity
from tuner.model.errors import InputError, KernelFileError, StoreError
from tuner.model.plan import Configuration, TunableValue, Workload
from tuner.model.row_layout import RowLayout

_LOG = logging.getLogger(__name__)

DEFAULT = "default"
"""Asks for the kernel file's default, and is its origin."""
GIVEN = "given"
"""Origin of a configuration of the caller."""

_WORKED_OUT = ("predicted", "analytical", "nearest")  # origins of answers that were not measured
_SAME = ("uuid", "driver", "runtime")  # of a GPU: what the daemon measured with must be what is here


@dataclass(frozen=True)
class Chosen:
    """A configuration and where it comes from.

    Attributes:
        configuration: values of the kernel's tunables.
        origin: ``given``, ``default``, which stored run it is the answer of, or what the daemon says of it.
        known: False for a default or the answer of another size, taken for want of a better one.
        unmeasured: an answer that nobody measured on this GPU for this workload.
    """

    configuration: Configuration
    origin: str
    known: bool = True
    unmeasured: bool = False

    def __str__(self) -> str:
        return f"{self.configuration} ({self.origin})"


def given(kernel: KernelFile, workload: Workload, values: Mapping[str, TunableValue]) -> Chosen:
    """The caller's configuration.

    Raises:
        UnknownNameError: it names what is no tunable.
        InputError: it lacks a tunable, has a value that is not in the kernel file, or breaks a rule.
    """
    return Chosen(kernel.configuration(workload, values), GIVEN)


def for_layout(kernel: KernelFile, workload: Workload, layout: RowLayout, found: Chosen) -> Chosen:
    """A configuration chosen for contiguous arrays, or the default where a rule forbids it for others.

    Raises:
        InputError: the caller gave it, or the default is forbidden as well.
    """
    broken = kernel.broken_rule(workload, found.configuration, layout)
    if broken is None:
        return found
    default = kernel.default(workload)
    if found.origin == GIVEN or kernel.broken_rule(workload, default, layout) is not None:
        raise InputError(
            f"configuration: {found.configuration} breaks the rule {broken!r} at {workload} for rows that lie"
            " apart; it is allowed for contiguous arrays"
        )
    return Chosen(default, f"{DEFAULT}, as rows lie apart; else {found.origin}", known=False)


def choose(
    kernel: KernelFile,
    workload: Workload,
    device: DeviceIdentity,
    database: Path,
    advisor: Advisor | None = None,
    *,
    count: float = 1.0,
) -> Chosen:
    """The best known configuration of a workload alone, with clocks as found.

    What the daemon has stored for time comes first, then what the database has stored for time, then for
    other objectives, then what the daemon has stored for energy, then what a trained model predicts, then
    the analytical answer of either, then what they know of other sizes. Of each the first by
    ``tuner.database.ranking`` is taken; stored answers that are stale for more than their batch are left out.

    Args:
        kernel: the kernel.
        workload: the kernel at its problem.
        device: the GPU.
        database: where runs are stored; it need not exist.
        advisor: knows what the daemon says; None where nobody is asked.
        count: uses that the daemon is told of; 0 where the choice is only looked at.

    Raises:
        KernelFileError: nothing is stored and the default breaks a rule.
    """
    said = None if advisor is None else advisor.best(workload, device, "time", count=count)
    if said is not None and (chosen := _served(said, kernel, workload, device)) is not None:
        return chosen
    stored, lent = _of_database(kernel, workload, device, database)
    if stored is not None:
        return stored
    if said is not None and advisor is not None:
        other = advisor.best(workload, device, "energy", count=0.0)
        chosen = None if other is None else _served(other, kernel, workload, device)
        found = [one for one in (chosen, _worked_out(said, kernel, workload), lent) if one is not None]
        lent = next((one for one in found if one.known), found[0] if found else None)
    return lent or Chosen(kernel.default(workload), DEFAULT, known=False)


def _served(best: Best, kernel: KernelFile, workload: Workload, device: DeviceIdentity) -> Chosen | None:
    """What the daemon has stored; None where it is not fresh here, or no configuration of the kernel."""
    placed = best.workloads.get(str(workload))
    here = all(best.device.get(name) == getattr(device, name) for name in _SAME)
    if placed is None or not placed.fresh or not here or placed.source != kernel.fingerprint:
        return None
    return _said(best, kernel, workload)


def _worked_out(best: Best, kernel: KernelFile, workload: Workload) -> Chosen | None:
    """What the daemon takes to be good without having measured it."""
    return _said(best, kernel, workload) if best.origin in _WORKED_OUT else None


def _said(best: Best, kernel: KernelFile, workload: Workload) -> Chosen | None:
    placed = best.workloads.get(str(workload))
    configuration = None if placed is None else kernel.allowed(workload, placed.configuration)
    if placed is None or configuration is None:
        return None
    origin = f"{placed.origin}, says the daemon: {placed.details}, for {best.objective}"
    unmeasured = placed.origin in _WORKED_OUT
    return Chosen(configuration, origin, known=placed.origin != "nearest", unmeasured=unmeasured)


def _of_database(
    kernel: KernelFile, workload: Workload, device: DeviceIdentity, database: Path
) -> tuple[Chosen | None, Chosen | None]:
    """What the database has stored, and without that what it knows of other sizes or of the model."""
    query = AnswerQuery(
        workloads=(workload,),
        kernels={kernel.name: kernel},
        sources={kernel.name: kernel.fingerprint},
        objective="time",
        device=device,
        limits=limits_of(device),
        clocks_as_found=True,
    )
    try:
        if not database.exists():
            return None, None
        with Store(database) as store:
            source = DatabaseSource(store)
            answers = source.of_set([str(workload)])
            stored = _stored(query, answers)
            for why in passed_over(replace(query, objective=""), answers, None) if stored is None else ():
                _LOG.warning("%s", why)
            return stored, None if stored is not None else _lent(query, source)
    except (StoreError, OSError) as error:
        _LOG.warning("stored configurations are not used: %s", error)
        return None, None


def _stored(query: AnswerQuery, answers: Sequence[StoredAnswer]) -> Chosen | None:
    for objective in (query.objective, ""):
        found = served_answer(replace(query, objective=objective), answers, fresh=True)
        if found is not None:
            ((name, batch),) = found.answer.batches.items()
            origin = f"{found.answer.told}, for {found.answer.objective} at a batch of {batch}"
            return Chosen(found.configurations[name], origin)
    return None


def _lent(query: AnswerQuery, source: DatabaseSource) -> Chosen | None:
    (workload,) = query.workloads
    try:
        part = best_of_part(query, workload, source)
    except KernelFileError:  # of the default, which the daemon may know a way around
        return None
    if part is None or part.origin == "default":
        return None
    known = part.origin in ("predicted", "analytical")
    return Chosen(part.configuration, f"{part.origin}: {part.details}", known=known, unmeasured=True)
