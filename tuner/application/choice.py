"""Which configuration a kernel is run with: given, of the daemon, the best stored one, or the default."""

import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tuner.application.advice import Advisor
from tuner.client import Best
from tuner.config import KernelFile
from tuner.database import Store, StoredRun
from tuner.database.conditions import staleness
from tuner.errors import InputError, StoreError, UnknownNameError
from tuner.model import Configuration, DeviceIdentity, TunableValue, Workload
from tuner.system.names import suggestion

_LOG = logging.getLogger(__name__)

_SAME = ("uuid", "driver", "runtime")  # of a GPU: what the daemon measured with must be what is here


@dataclass(frozen=True)
class Chosen:
    """A configuration and where it comes from.

    Attributes:
        configuration: values of the kernel's tunables.
        origin: ``given``, ``default``, which stored run it is the answer of, or what the daemon says of it.
    """

    configuration: Configuration
    origin: str

    def __str__(self) -> str:
        return f"{self.configuration} ({self.origin})"


def given(kernel: KernelFile, workload: Workload, values: Mapping[str, TunableValue]) -> Chosen:
    """The caller's configuration.

    Raises:
        UnknownNameError: it names what is no tunable.
        InputError: it lacks a tunable, has a value that is not in the kernel file, or breaks a rule.
    """
    tunables = kernel.tunables
    for name in values:
        if name not in tunables:
            raise UnknownNameError(
                f"configuration: {kernel.name} has no tunable {name!r}; choose from {', '.join(tunables)}"
                f"{suggestion(str(name), tunables)}"
            )
    missing = [name for name in tunables if name not in values]
    if missing:
        raise InputError(
            f"configuration: {', '.join(missing)} missing; it names all of {', '.join(tunables)}"
        )
    for name, choices in tunables.items():
        if values[name] not in choices:
            listed = ", ".join(map(str, choices))
            raise InputError(f"configuration: {name} is {values[name]!r}; choose from {listed}")
    configuration = _configuration(kernel, values)
    rule = kernel.broken_rule(workload, configuration)
    if rule is not None:
        raise InputError(f"configuration: {configuration} breaks the rule {rule!r} at {workload}")
    return Chosen(configuration, "given")


def choose(
    kernel: KernelFile,
    workload: Workload,
    device: DeviceIdentity,
    database: Path,
    advisor: Advisor | None = None,
    *,
    count: float = 1.0,
) -> Chosen:
    """The best stored configuration for a GPU, else one that the daemon works out, else the file's default.

    What the daemon has stored for time comes first, then what the database has stored, then what the daemon
    has stored for energy, then what the daemon works out or knows of other sizes.

    Only runs of this workload alone count, and only fresh ones. Those tuned for time come first, then those
    whose batch is nearest by ratio, whose clocks were left as found, that finished, and the newest.

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
    answer = _best_stored(kernel, workload, device, database)
    if answer is not None:
        return Chosen(answer.configuration, answer.origin)
    if said is None or advisor is None:
        return Chosen(kernel.default(workload), "default")
    other = advisor.best(workload, device, "energy", count=0.0)
    return (
        (None if other is None else _served(other, kernel, workload, device))
        or _worked_out(said, kernel, workload)
        or Chosen(kernel.default(workload), "default")
    )


def _served(best: Best, kernel: KernelFile, workload: Workload, device: DeviceIdentity) -> Chosen | None:
    """What the daemon has stored; None where it is not fresh here, or no configuration of the kernel."""
    placed = best.workloads.get(str(workload))
    here = all(best.device.get(name) == getattr(device, name) for name in _SAME)
    if placed is None or not placed.fresh or not here or placed.source != kernel.fingerprint:
        return None
    return _said(best, kernel, workload)


def _worked_out(best: Best, kernel: KernelFile, workload: Workload) -> Chosen | None:
    """What the daemon takes to be good without having measured it."""
    return _said(best, kernel, workload) if best.origin in ("analytical", "nearest") else None


def _said(best: Best, kernel: KernelFile, workload: Workload) -> Chosen | None:
    placed = best.workloads.get(str(workload))
    if placed is None or not _fits(kernel, placed.configuration):
        return None
    configuration = _configuration(kernel, placed.configuration)
    if kernel.broken_rule(workload, configuration) is not None:
        return None
    return Chosen(configuration, f"{placed.origin}, says the daemon: {placed.details}, for {best.objective}")


def _best_stored(
    kernel: KernelFile, workload: Workload, device: DeviceIdentity, database: Path
) -> "_Answer | None":
    answers = [
        answer
        for answer in _stored(kernel, workload, device, database)
        if kernel.broken_rule(workload, answer.configuration) is None
    ]
    return min(answers, key=lambda answer: answer.rank, default=None)


@dataclass(frozen=True)
class _Answer:
    """A stored configuration; of several the one of the least rank is taken."""

    configuration: Configuration
    origin: str
    rank: tuple[bool, float, bool, bool]


def _stored(
    kernel: KernelFile, workload: Workload, device: DeviceIdentity, database: Path
) -> Iterator[_Answer]:
    """Fresh answers for this workload, newest first."""
    try:
        if not database.exists():
            return
        with Store(database) as store:
            runs = list(store.answered([str(workload)], None, device.uuid))
    except (StoreError, OSError) as error:
        _LOG.warning("no stored configuration is looked for: %s", error)
        return
    for run in runs:
        try:
            answer = _answer(run, kernel, workload, device)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            _LOG.warning("%s: run %d is skipped, its record is damaged (%r)", database, run.id, error)
            continue
        if answer is not None:
            yield answer


def _answer(run: StoredRun, kernel: KernelFile, workload: Workload, device: DeviceIdentity) -> _Answer | None:
    """The answer of a run; None where it has none, is stale or is no configuration of the kernel.

    What a damaged record raises is for the caller.
    """
    best = (run.answer or {}).get("best")
    sources = {kernel.name: kernel.fingerprint}
    if best is None or staleness(run.conditions, device=device, sources=sources, batches={}):
        return None
    name = str(workload)
    values = best["configurations"][name]
    if not _fits(kernel, values):
        return None
    batch = int(dict(run.conditions["workloads"])[name])  # the one that was measured
    distance = abs(math.log2(batch / workload.batch))
    return _Answer(
        _configuration(kernel, values),
        f"run {run.id} of {run.started_at}, for {run.objective} at a batch of {batch}",
        (run.objective != "time", distance, run.conditions["clocks"] != "off", run.status != "finished"),
    )


def _fits(kernel: KernelFile, values: Mapping[str, TunableValue]) -> bool:
    """True for a value of each tunable."""
    tunables = kernel.tunables
    return set(values) == set(tunables) and all(values[n] in choices for n, choices in tunables.items())


def _configuration(kernel: KernelFile, values: Mapping[str, TunableValue]) -> Configuration:
    """The values as the kernel file writes them: 8 where NumPy's 8 is given."""
    return Configuration(
        [(name, choices[choices.index(values[name])]) for name, choices in kernel.tunables.items()]
    )
