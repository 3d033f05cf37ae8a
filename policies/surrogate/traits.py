"""Traits of configurations: what any kernel file tells of them without a run."""

import re
from collections.abc import Collection, Sequence

import numpy as np

from tuner.model.device import DeviceLimits
from tuner.model.plan import Configuration, TunableValue, tunable_names
from tuner.space.search_view import Candidate, StageLaunch

from .features import Floats

WARP = 32  # threads
FEW, MANY = 6.0, 8.0  # log2 of threads below and above which a block is small or large
MUCH = 4.0  # log2 of the work of a thread, against the least in the space, above which it is much
WIDE = 5.0  # log2 of the threads along x that read whole cache lines
TALL = 2.0  # log2 of the threads along y above which a block is tall
SHARED = 13.0  # log2 of the bytes of shared memory above which a block takes much
# Tunables as other tuners and users name them.
ALONG_X = ("block_size_x", "block_x", "block_size", "block_dim_x", "MDIMC")
ALONG_Y = ("block_size_y", "block_y", "block_dim_y", "NDIMC")
ALONG_Z = ("block_size_z", "block_z", "block_dim_z")
WORK = re.compile(
    r"((thread_)?tile(_size)?|(work|elements|items)_per_thread|coarsening)(_[xyz])?|wpt_?[xyzmn]?",
    re.IGNORECASE,
)
TILES = {"MWG": "MDIMC", "NWG": "NDIMC"}  # tile of a block -> threads that share it, as CLBlast names them
UNROLL = re.compile("unroll", re.IGNORECASE)
VECTOR = re.compile("vec|^vw[mn]?$", re.IGNORECASE)
NAMES = (
    "few threads",
    "many threads",
    "partial warp",
    "uneven threads",
    "work",
    "much work",
    "narrow block",
    "tall block",
    "vector",
    "unroll",
    "unfilled",
    "much shared memory",
    "work along x",
)


class TraitScale:
    """Traits of the configurations of a space, and of others on the same scale.

    What a space does not tell, or what is the same for all of it, is 0. Work of a thread is held against the
    least in the space: by the threads that are launched in all, or else by the product of tunables.

    Args:
        candidates: of a workload; they may have launches.
        configurations: of the same workload.
        limits: of the device; None where they are not known.

    Attributes:
        table: traits of the configurations, less their means, shape (configurations, traits).
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        configurations: Sequence[Configuration],
        limits: DeviceLimits | None,
    ) -> None:
        self._names = tunable_names(configurations)
        self._limits = limits
        stages = _stages(candidates, configurations)
        self._has_launches = bool(stages) and all(stages)
        self._least_work: float | None = None  # log2, of a thread
        table = self._raw(configurations, stages)
        self._mean = table.mean(axis=0)
        self._varies = np.ptp(table, axis=0) > 0.0
        self.table = self._scaled(table)

    def of(self, candidates: Sequence[Candidate]) -> Floats:
        """Traits of other candidates of the workload, shape (candidates, traits)."""
        configurations = [one.configuration for one in candidates]
        return self._scaled(self._raw(configurations, _stages(candidates, configurations)))

    def _scaled(self, table: Floats) -> Floats:
        return np.where(self._varies, table - self._mean, 0.0)

    def _raw(
        self, configurations: Sequence[Configuration], stages: Sequence[Sequence[StageLaunch]]
    ) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            found = _by_names(configurations, self._names)
            if self._has_launches:
                found |= _by_launches(stages, self._limits)
            work = np.log2(found.pop("work"))
            if self._least_work is None:
                self._least_work = float(np.min(work, initial=np.inf))
            found |= _of_threads(found.pop("threads")) | _of_work(work - self._least_work)
        return np.column_stack([np.nan_to_num(found[name], posinf=0.0, neginf=0.0) for name in NAMES])


def traits(
    candidates: Sequence[Candidate], configurations: Sequence[Configuration], limits: DeviceLimits | None
) -> Floats:
    """``TraitScale.table`` of some configurations."""
    return TraitScale(candidates, configurations, limits).table


def _stages(
    candidates: Sequence[Candidate], configurations: Sequence[Configuration]
) -> list[tuple[StageLaunch, ...]]:
    known = {one.configuration: one.launches for one in candidates}
    return [known.get(configuration, ()) for configuration in configurations]


def _by_names(configurations: Sequence[Configuration], names: Sequence[str]) -> dict[str, Floats]:
    """What the names of tunables tell; NaN where there are none."""
    nothing = np.full(len(configurations), np.nan)

    def product(chosen: Collection[str]) -> Floats:
        columns = [[_number(one.get(name)) for one in configurations] for name in names if name in chosen]
        return np.prod(columns, axis=0) if columns else nothing

    def matching(pattern: re.Pattern[str]) -> Floats:
        return product([name for name in names if pattern.search(name)])

    work = [name for name in names if WORK.fullmatch(name)]
    tiled = {*TILES, *TILES.values()} <= set(names)
    return {
        "threads": product((*ALONG_X, *ALONG_Y, *ALONG_Z)),
        "narrow block": np.maximum(0.0, WIDE - np.log2(product(ALONG_X))),
        "tall block": np.maximum(0.0, np.log2(product(ALONG_Y)) - TALL),
        "work": product([*TILES]) / product([*TILES.values()]) if tiled else product(work),
        "work along x": np.log2(product([name for name in work if name.lower().endswith("x")])),
        "vector": np.log2(matching(VECTOR)),
        "unroll": np.log2(matching(UNROLL)),
        "unfilled": nothing,
        "much shared memory": nothing,
    }


def _by_launches(stages: Sequence[Sequence[StageLaunch]], limits: DeviceLimits | None) -> dict[str, Floats]:
    """What the stages of each configuration tell; of several, the one of most threads counts."""
    main = [max(some, key=_launched) for some in stages]
    found = {
        "threads": np.array([float(one.threads_per_block) for one in main]),
        "work": 1.0 / np.array([float(sum(map(_launched, some))) for some in stages]),
        "much shared memory": np.maximum(0.0, np.log2([1.0 + one.shared_bytes for one in main]) - SHARED),
    }
    if limits is not None:  # halvings from twice what the device holds to what is launched
        held = float(limits.multiprocessors * limits.max_threads_per_sm)
        launched = np.array([np.inf if one.resident else float(_launched(one)) for one in main])
        found["unfilled"] = np.maximum(0.0, 1.0 + np.log2(held / launched))
    return found


def _of_threads(threads: Floats) -> dict[str, Floats]:
    """Traits of the size of blocks."""
    logs = np.log2(threads)
    return {
        "few threads": np.maximum(0.0, FEW - logs),
        "many threads": np.maximum(0.0, logs - MANY),
        "partial warp": 1.0 - threads / (WARP * np.ceil(threads / WARP)),
        "uneven threads": (logs % 1.0 != 0.0).astype(float),
    }


def _of_work(logs: Floats) -> dict[str, Floats]:
    """Traits of the work of a thread, in halvings of the least."""
    return {"work": np.minimum(logs, MUCH), "much work": np.maximum(0.0, logs - MUCH)}


def _launched(stage: StageLaunch) -> int:
    return stage.blocks * stage.threads_per_block


def _number(value: TunableValue | None) -> float:
    """A positive number as it is; 1 for anything else, such as False for "not unrolled"."""
    return float(value) if isinstance(value, (int, float)) and value > 0 else 1.0
