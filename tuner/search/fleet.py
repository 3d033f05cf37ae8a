"""How the GPUs of a kind differ: the answers of stored runs, held against each other.

Costs are compared that were measured on different days, so that a difference has both intervals and twice the
repeatability of a trial in its own. A spread is the difference between the two extremes: of many equal GPUs
these lie apart by chance, further than its interval tells. The gain of a GPU's power sensor, which may be
some percent off, is in no interval: a GPU that seems to need more joules may have a sensor that shows more.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.database.answers import StoredAnswer
from tuner.measurement.paired import ASSUMED_REPEATABILITY as ENERGY_REPEATABILITY
from tuner.measurement.race import ASSUMED_REPEATABILITY as TIME_REPEATABILITY
from tuner.model.errors import InputError, suggestion
from tuner.model.objective import COVERAGE

OUTLIER = 0.05
"""More joules than the other GPUs of its kind, from which a GPU is named."""


@dataclass(frozen=True)
class Amount:
    """A measured value.

    Attributes:
        value: in seconds or joules of a round.
        interval: half of its 95 % interval.
    """

    value: float
    interval: float


@dataclass(frozen=True)
class CostDifference:
    """By how much one cost is above another.

    Attributes:
        value: as a fraction.
        interval: half of its 95 % interval.
    """

    value: float
    interval: float


@dataclass(frozen=True)
class GpuAnswer:
    """The answer on one GPU.

    Attributes:
        uuid: of the GPU.
        device: as it was named where it was measured.
        host: of the GPU, or where its run was merged from; empty for this host.
        run: number of the run.
        at: when that ended, UTC, ISO 8601.
        verified: True where the answer of another GPU was verified; False where it was searched.
        refuted: a verification has found that it is not the best here.
        configurations: workload -> values.
        time: of a round.
        energy: of a round; None where it was not measured.
        default_energy: of the default; None where it was not measured.
    """

    uuid: str
    device: str
    host: str
    run: int
    at: str
    verified: bool
    refuted: bool
    configurations: Mapping[str, Mapping[str, Any]]
    time: Amount | None
    energy: Amount | None
    default_energy: Amount | None


@dataclass(frozen=True)
class Outlier:
    """A GPU that needs more joules than the others of its kind.

    Attributes:
        uuid: of the GPU.
        excess: over the median of the others, as a fraction.
        interval: half of its 95 % interval.
    """

    uuid: str
    excess: float
    interval: float


@dataclass(frozen=True)
class FleetGroup:
    """Answers of the GPUs of one kind for workloads that run together.

    Attributes:
        workloads: with their batches.
        objective: as stored.
        clocks: that could be chosen from.
        model: product name of the GPUs.
        driver: of them.
        modelled: no GPU ran.
        gpus: their answers, by UUID.
    """

    workloads: Mapping[str, int]
    objective: str
    clocks: str
    model: str
    driver: str
    modelled: bool
    gpus: tuple[GpuAnswer, ...]

    @property
    def time_spread(self) -> CostDifference | None:
        """The longest time above the shortest; None of fewer than two."""
        return _spread([gpu.time for gpu in self.gpus], TIME_REPEATABILITY)

    @property
    def energy_spread(self) -> CostDifference | None:
        """The most joules above the least; None of fewer than two."""
        return _spread([gpu.energy for gpu in self.gpus], ENERGY_REPEATABILITY)

    @property
    def outliers(self) -> tuple[Outlier, ...]:
        """GPUs that need at least ``OUTLIER`` more joules than the median of the others, beyond chance."""
        found = [self._against_others(gpu) for gpu in self.gpus]
        return tuple(
            one
            for one in found
            if one is not None and one.excess >= OUTLIER and one.excess - one.interval > 0.0
        )

    def _against_others(self, gpu: GpuAnswer) -> Outlier | None:
        others = [one.energy for one in self.gpus if one.uuid != gpu.uuid and one.energy is not None]
        if gpu.energy is None or not others:
            return None
        found = _difference(gpu.energy, _median(others), ENERGY_REPEATABILITY)
        return Outlier(gpu.uuid, found.value, found.interval)

    def document(self) -> dict[str, Any]:
        """As JSON has it; seconds and joules of a round, intervals half of 95 %."""
        return {
            "workloads": dict(self.workloads),
            "objective": self.objective,
            "clocks": self.clocks,
            "kind": {"model": self.model, "driver": self.driver},
            "modelled": self.modelled,
            "gpus": [_gpu_document(gpu) for gpu in self.gpus],
            **_spread_document("time_spread", self.time_spread),
            **_spread_document("energy_spread", self.energy_spread),
            "outliers": [vars(one) for one in self.outliers],
        }


def fleet(answers: Iterable[StoredAnswer], names: Sequence[str] = (), *, least: int = 2) -> list[FleetGroup]:
    """The answers of GPUs of one kind, by workloads and kind.

    Of a GPU's answers the newest finished one counts. Of several versions of a kernel's sources, and of
    ways of measuring, those of the newest run are taken.

    Args:
        answers: stored, in any order.
        names: workloads of which one at least must be among those that run together; empty for all.
        least: GPUs that a group must have.
    """
    groups: dict[tuple[object, ...], list[StoredAnswer]] = {}
    for answer in answers:
        if not answer.conditions["device"].get("recorded") and _wanted(answer, names):
            groups.setdefault(_kind(answer), []).append(answer)
    made = [_group(sorted(found, key=lambda one: -one.run)) for found in groups.values()]
    kept = [group for group in made if len(group.gpus) >= least]
    return sorted(
        kept, key=lambda group: (tuple(group.workloads), group.model, group.driver, group.objective)
    )


def check_names(answers: Sequence[StoredAnswer], names: Sequence[str]) -> None:
    """Refuse a workload that no answer is of.

    Raises:
        InputError: names the first such workload, and the nearest that is stored.
    """
    stored = sorted({name for answer in answers for name in answer.names})
    for name in names:
        if name not in stored:
            near = suggestion(name, stored)
            raise InputError(f"{name}: no answer of it is stored{near} (`tuner history` lists runs)")


def _wanted(answer: StoredAnswer, names: Sequence[str]) -> bool:
    return not names or not set(names).isdisjoint(answer.names)


def _kind(answer: StoredAnswer) -> tuple[object, ...]:
    device = answer.conditions["device"]
    return (
        tuple(sorted(answer.batches.items())),
        answer.objective,
        answer.conditions["clocks"],
        *(device.get(name) for name in ("name", "driver", "runtime", "modelled")),
    )


def _group(answers: Sequence[StoredAnswer]) -> FleetGroup:
    """The group of answers, the newest first."""
    newest = answers[0]
    alike = [one for one in answers if _measured(one) == _measured(newest)]
    chosen: dict[str, StoredAnswer] = {}
    for one in sorted(alike, key=lambda one: not one.finished):  # stable: the newest of each first
        chosen.setdefault(one.uuid, one)
    device = newest.conditions["device"]
    return FleetGroup(
        dict(sorted(newest.batches.items())),
        newest.objective,
        str(newest.conditions["clocks"]),
        str(device["name"]),
        str(device.get("driver", "")),
        bool(device["modelled"]),
        tuple(_gpu_answer(chosen[uuid]) for uuid in sorted(chosen)),
    )


def _measured(answer: StoredAnswer) -> tuple[Mapping[str, str], int | None]:
    """Sources, and the way of measuring."""
    return answer.conditions["sources"], answer.conditions.get("protocol")


def _gpu_answer(answer: StoredAnswer) -> GpuAnswer:
    best, default = answer.answer["best"], answer.answer.get("default")
    return GpuAnswer(
        answer.uuid,
        str(answer.conditions["device"].get("spec", "")),
        answer.host or answer.merged_from,
        answer.run,
        answer.at,
        bool(answer.answer.get("verification")),
        bool(answer.refuted),
        answer.configurations,
        _amount(best["time_s"], best.get("time_s_uncertainty")),
        _amount(best.get("energy_j"), best.get("energy_j_uncertainty")),
        None if default is None else _amount(default.get("energy_j"), default.get("energy_j_uncertainty")),
    )


def _amount(value: float | None, uncertainty: float | None) -> Amount | None:
    return Amount(float(value), COVERAGE * float(uncertainty or 0.0)) if value else None


def _median(amounts: Sequence[Amount]) -> Amount:
    """The median, with the interval of the mean of the one or two values in the middle."""
    ordered = sorted(amounts, key=lambda one: one.value)
    middle = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]
    interval = math.hypot(*(one.interval for one in middle)) / len(middle)
    return Amount(statistics.fmean(one.value for one in middle), interval)


def _spread(amounts: Sequence[Amount | None], repeatability: float) -> CostDifference | None:
    """The highest against the lowest; None of fewer than two."""
    ordered = sorted((one for one in amounts if one is not None), key=lambda one: one.value)
    return _difference(ordered[-1], ordered[0], repeatability) if len(ordered) > 1 else None


def _difference(more: Amount, less: Amount, repeatability: float) -> CostDifference:
    """One cost against another; each was measured once, with that relative standard deviation of repeats."""
    ratio = more.value / less.value
    parts = [one.interval / one.value for one in (more, less)]
    return CostDifference(ratio - 1.0, ratio * math.hypot(*parts, COVERAGE * math.sqrt(2.0) * repeatability))


def _spread_document(name: str, spread: CostDifference | None) -> dict[str, float | None]:
    return {
        name: None if spread is None else spread.value,
        f"{name}_interval": None if spread is None else spread.interval,
    }


def _gpu_document(gpu: GpuAnswer) -> dict[str, Any]:
    amounts = (
        ("time", "s", gpu.time),
        ("energy", "j", gpu.energy),
        ("default_energy", "j", gpu.default_energy),
    )
    numbers: dict[str, Any] = {}
    for name, unit, amount in amounts:
        numbers[f"{name}_{unit}"] = None if amount is None else amount.value
        numbers[f"{name}_interval_{unit}"] = None if amount is None else amount.interval
    return {
        "uuid": gpu.uuid,
        "device": gpu.device,
        "host": gpu.host,
        "run": gpu.run,
        "at": gpu.at,
        "verified": gpu.verified,
        "refuted": gpu.refuted,
        "configurations": {name: dict(values) for name, values in gpu.configurations.items()},
        **numbers,
    }
