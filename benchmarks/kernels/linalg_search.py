"""A short search of a kernel's space: the analytical front-runners first, then neighbours of the best."""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from linalg_operations import BATCH, Case

from tuner.compiler.compiler import Compiler
from tuner.devices.base import Device
from tuner.devices.cuda.direct import CompilingGpu
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import TunerError
from tuner.model.jobs import DeviceIdentity, DeviceLimits
from tuner.model.plan import Configuration, Plan, TunableValue
from tuner.search.candidates import PreparedWorkload, judge, prepare
from tuner.search.explaining import analytical_choice

TOGETHER = 12  # configurations compiled at a time: as many children as a compiler has


@dataclass
class Space:
    """The configurations of a case.

    Attributes:
        case: the row.
        item: all candidates.
        analytical: choice of the analytical model; None without one.
        tried: compiled, or refused by the compiler.
        why: there is no analytical choice.
    """

    case: Case
    item: PreparedWorkload
    analytical: Configuration | None = None
    tried: set[Configuration] = field(default_factory=set)
    why: str = ""

    @property
    def plans(self) -> Mapping[Configuration, Plan]:
        """Of the candidates and the default."""
        return self.item.plans


class Searcher:
    """Compiles for one GPU; may be used by several threads.

    Args:
        limits: of the GPU.
        compiler: for it.
        catalog: the kernels.
        batch: problems of a workload.
    """

    def __init__(
        self, limits: DeviceLimits, compiler: Compiler, catalog: Catalog, batch: int = BATCH
    ) -> None:
        self._limits, self._catalog, self._batch = limits, catalog, batch
        identity = DeviceIdentity("cuda:0", "", "", "", compiler.nvrtc_version, modelled=False)
        self._device = CompilingGpu(identity, limits, compiler)

    def opened(self, case: Case) -> tuple[Space, list[Configuration]]:
        """The space of a case, with what is measured first: default, analytical choice, its rivals.

        Of every text, such as that of an algorithm, the configuration nearest to the default is among them.

        Raises:
            TunerError: nothing is left of the space.
        """
        kernel = self._catalog.kernel(case.operation)
        workload = kernel.workload(case.sizes, batch=self._batch)
        device = cast("Device", self._device)
        (item,) = prepare([(kernel, workload)], device)
        space = Space(case, item)
        try:
            choice, known = analytical_choice(item, device)
            if choice is None:
                space.why = "analytical = false"
            else:
                space.analytical = choice.configuration
            rivals = [one.configuration for one in known.candidates if not one.declared]
        except TunerError as error:
            space.why, rivals = str(error), []
        first = [one for one in (item.default, space.analytical) if one is not None]
        return space, self.compiled(space, [*first, *rivals, *_of_texts(item)])

    def compiled(self, space: Space, configurations: Iterable[Configuration]) -> list[Configuration]:
        """Those that compile and are allowed; the default, wherever it compiles."""
        new = [c for c in dict.fromkeys(configurations) if c not in space.tried and c in space.plans]
        space.tried.update(new)
        plans = [space.plans[one] for one in new]
        left = []
        for plan, report in zip(plans, self._device.resources(plans), strict=True):
            verdict = judge(space.item, plan, report, self._limits)
            default = plan.configuration == space.item.default and verdict.candidate is not None
            if default or not verdict.dropped:
                left.append(plan.configuration)
        return left

    def more(self, space: Space, best: Iterable[Configuration], rng: random.Random) -> list[Configuration]:
        """The next to measure: those nearest to the best, in any order; none when all are known."""
        centres = [set(dict(one).items()) for one in best]
        pool = [one.configuration for one in space.item.candidates if one.configuration not in space.tried]
        rng.shuffle(pool)

        def distance(configuration: Configuration) -> int:
            values = set(dict(configuration).items())
            return min((len(values ^ centre) for centre in centres), default=0)

        return self.compiled(space, sorted(pool, key=distance)[:TOGETHER])


def _of_texts(item: PreparedWorkload) -> list[Configuration]:
    """Of every text that the default does not have, the candidate that is nearest to it."""
    default = set(dict(item.default).items())
    nearest: dict[tuple[str, TunableValue], Configuration] = {}
    candidates = [one.configuration for one in item.candidates]
    for one in sorted(candidates, key=lambda candidate: len(set(dict(candidate).items()) ^ default)):
        for name, value in dict(one).items():
            if isinstance(value, str) and (name, value) not in default:
                nearest.setdefault((name, value), one)
    return list(nearest.values())


def as_json(configuration: Configuration | None) -> dict[str, Any] | None:
    """A configuration for JSON."""
    return None if configuration is None else dict(configuration)
