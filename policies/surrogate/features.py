"""Features of configurations: ranks, traits, and beliefs about their costs."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.model.jobs import DeviceLimits
from tuner.model.plan import Configuration, TunableValue, tunable_names
from tuner.space.search_view import Candidate, StageLaunch

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Singles = NDArray[np.float32]


@dataclass(frozen=True)
class EncodedTunable:
    """One tunable that varies.

    Attributes:
        name: of the tunable.
        ranks: rank by value: numbers by size, texts as first met, last None where some have no value.
        parts: features of every rank, one array of shape (values, features) per length scale.
    """

    name: str
    ranks: Mapping[TunableValue | None, int]
    parts: tuple[Floats, ...]


@dataclass(frozen=True)
class Encoding:
    """Encoding of configurations of one workload as rows of numbers.

    Attributes:
        tunables: those that vary.
    """

    tunables: tuple[EncodedTunable, ...]

    @property
    def groups(self) -> Integers:
        """Per feature, its place among the length scales: the features of a part share one."""
        widths = [part.shape[1] for tunable in self.tunables for part in tunable.parts]
        return np.repeat(np.arange(len(widths)), widths)

    def codes(self, configurations: Sequence[Configuration]) -> Integers:
        """Ranks of the values, shape (configurations, tunables)."""
        rows = [configuration.as_dict() for configuration in configurations]
        columns = [[t.ranks[values.get(t.name)] for values in rows] for t in self.tunables]
        return np.array(columns, dtype=np.int64).reshape(len(self.tunables), len(configurations)).T

    def features(self, codes: Integers) -> Floats:
        """Features of ranks, shape (configurations, features)."""
        columns = [part[codes[:, i]] for i, tunable in enumerate(self.tunables) for part in tunable.parts]
        return np.hstack(columns) if columns else np.zeros((len(codes), 0))


def encoding(
    configurations: Sequence[Configuration], lists: Mapping[str, Sequence[TunableValue]] | None = None
) -> Encoding:
    """The encoding of a space: tunables that are constant over it, or that repeat another, are left out.

    Args:
        configurations: all that will be encoded, or a sample of them.
        lists: values by tunable, of which others than those of the sample will be encoded; None where there
            are no others.
    """
    tunables: list[EncodedTunable] = []
    partitions: set[bytes] = set()
    rows = [configuration.as_dict() for configuration in configurations]
    for name in tunable_names(configurations):
        values = [row.get(name) for row in rows]
        others = () if lists is None else (*lists.get(name, ()), None)
        numbers = {value: i for i, value in enumerate(dict.fromkeys([*values, *others]))}
        partition = np.array([numbers[value] for value in values], dtype=np.int32).tobytes()
        if len(numbers) > 1 and partition not in partitions:
            partitions.add(partition)
            tunables.append(_tunable(name, list(numbers)))
    return Encoding(tuple(tunables))


def _tunable(name: str, listed: list[TunableValue | None]) -> EncodedTunable:
    """Features of a tunable's values.

    Two texts are one apart, whichever they are; permutations are the further apart the more their items have
    moved. Numbers lie evenly between 0 and 1 in the order of their size: most are powers of two. Where they
    are not, what divides evenly often matters more than what is large, and how often 2 divides a number is a
    part of its own.

    Where a tunable has no value, it is equally far from all its values, so that only those that both of two
    configurations have are compared. Numbers then lie on half a circle around it: on a line none could.
    """
    values = [value for value in listed if value is not None]
    texts = [value for value in values if isinstance(value, str)]
    positions = item_positions(texts) if len(texts) == len(values) else None
    if positions is not None:
        parts: tuple[Floats, ...] = (positions,)
    elif texts:
        parts = (np.eye(len(values)) / np.sqrt(2.0),)
    else:
        values = sorted(values, key=float)
        parts = (np.linspace(0.0, 1.0, len(values))[:, None],)
        halvings = _halvings(values)
        if halvings is not None:
            parts += (halvings[:, None],)
    ranks: dict[TunableValue | None, int] = {value: rank for rank, value in enumerate(values)}
    if len(values) < len(listed):
        ranks[None] = len(values)
        parts = tuple(_with_none(part) for part in parts)
    return EncodedTunable(name, ranks, parts)


def _with_none(part: Floats) -> Floats:
    """Features of values, and behind them those of no value, at one distance from all."""
    if part.shape[1] > 1:  # texts lie on a sphere around their mean, permutations around that of all orders
        return np.vstack([part, np.full(part.shape[1], part.mean())])
    angles = np.pi * part[:, 0]
    circle = -0.5 * np.column_stack([np.cos(angles), np.sin(angles)])  # the ends are one apart
    return np.vstack([circle, np.zeros(2)])


def item_positions(values: Sequence[str]) -> Floats | None:
    """Return the position of each item in permutations, shape (values, items); None if the texts are none.

    Permutations are texts of the same different items between commas. Their distance is that of Spearman,
    the root of the sum over items of the squared moves, and 1 between a permutation and its reverse.
    """
    listed = [value.split(",") for value in values]
    items = sorted(listed[0]) if listed else []
    if len(items) < 2 or len(set(items)) < len(items) or any(sorted(order) != items for order in listed):  # noqa: PLR2004 - an order
        return None
    count = len(items)
    furthest = np.sqrt(count * (count**2 - 1) / 3.0)  # of a reversed order
    places = np.array([[order.index(item) for item in items] for order in listed], dtype=float)
    return np.asarray(places / furthest)


def _halvings(values: Sequence[TunableValue]) -> Floats | None:
    """Return the scaled number of times that 2 divides each number, 0 to 1; None if the size says as much."""
    if any(isinstance(value, bool) or value != int(value) or int(value) <= 0 for value in values):
        return None
    whole = [int(value) for value in values]
    lowest_bits = [value & -value for value in whole]
    if lowest_bits == whole or max(lowest_bits) == 1:
        return None
    exponents = np.log2(np.array(lowest_bits, dtype=float))
    return np.asarray(exponents / exponents.max())


def latin(codes: Integers, measured: Integers, count: int, draw: np.random.Generator) -> list[int]:
    """Rows that between them meet as many values of every tunable as so many rows can.

    A Latin hypercube has one point in each of its slices of every axis; constraints leave few of its points
    legal. So slices are filled greedily: the next row is the one that meets most slices that none before it
    met; of equals, one in slices that few met; of equals, any.

    Args:
        codes: ranks of the values of every legal configuration, shape (n, tunables).
        measured: ranks of what is measured anyway, shape (k, tunables): met, never returned.
        count: rows wanted.
        draw: source of randomness.

    Returns:
        At most ``count`` different rows.
    """
    tunables = codes.shape[1]
    everything = np.vstack([codes, measured])
    values = everything.max(axis=0, initial=0) + 1
    slices = everything * np.minimum(values, count + len(measured)) // values
    columns = np.arange(tunables)
    met = np.zeros((tunables, int(slices.max(initial=0)) + 1))
    for row in slices[len(codes) :]:
        met[columns, row] += 1
    slices = slices[: len(codes)]
    free = ~(codes[:, None, :] == measured[None, :, :]).all(axis=2).any(axis=1) if len(measured) else None
    free = np.ones(len(codes), dtype=bool) if free is None else free
    chance = draw.random(len(codes))
    chosen: list[int] = []
    while len(chosen) < count and free.any():
        times = met[columns, slices]
        order = np.lexsort((chance, times.sum(axis=1), -(times == 0).sum(axis=1)))
        row = int(order[free[order]][0])
        free[row] = False
        met[columns, slices[row]] += 1
        chosen.append(row)
    return chosen


# --- Traits of configurations: what any kernel file tells of them without a run.

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
        configurations = [candidate.configuration for candidate in candidates]
        return self._scaled(self._raw(configurations, _stages(candidates, configurations)))

    def _scaled(self, table: Floats) -> Floats:
        return np.where(self._varies, table - self._mean, 0.0)

    def _raw(
        self, configurations: Sequence[Configuration], stages: Sequence[Sequence[StageLaunch]]
    ) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            columns = _by_names(configurations, self._names)
            if self._has_launches:
                columns |= _by_launches(stages, self._limits)
            work = np.log2(columns.pop("work"))
            if self._least_work is None:
                self._least_work = float(np.min(work, initial=np.inf))
            columns |= _of_threads(columns.pop("threads")) | _of_work(work - self._least_work)
        return np.column_stack([np.nan_to_num(columns[name], posinf=0.0, neginf=0.0) for name in NAMES])


def _stages(
    candidates: Sequence[Candidate], configurations: Sequence[Configuration]
) -> list[tuple[StageLaunch, ...]]:
    launches = {candidate.configuration: candidate.launches for candidate in candidates}
    return [launches.get(configuration, ()) for configuration in configurations]


def _by_names(configurations: Sequence[Configuration], names: Sequence[str]) -> dict[str, Floats]:
    """Return the traits by the names of tunables; NaN where there are none."""
    nothing = np.full(len(configurations), np.nan)
    rows = [configuration.as_dict() for configuration in configurations]

    def product(chosen: Collection[str]) -> Floats:
        columns = [[_number(values.get(name)) for values in rows] for name in names if name in chosen]
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
    """Return the traits by the stages of each configuration; of several, the one of most threads counts."""
    main = [max(launches, key=_launched) for launches in stages]
    columns = {
        "threads": np.array([float(stage.threads_per_block) for stage in main]),
        "work": 1.0 / np.array([float(sum(map(_launched, launches))) for launches in stages]),
        "much shared memory": np.maximum(0.0, np.log2([1.0 + stage.shared_bytes for stage in main]) - SHARED),
    }
    if limits is not None:  # halvings from twice what the device holds to what is launched
        capacity = float(limits.multiprocessors * limits.max_threads_per_sm)
        launched = np.array([np.inf if stage.resident else float(_launched(stage)) for stage in main])
        columns["unfilled"] = np.maximum(0.0, 1.0 + np.log2(capacity / launched))
    return columns


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


# --- What traits of configurations are believed to cost before anything is measured.
#
# Recorded spaces of other kernels tell: ``benchmarks/trait_beliefs.py`` regresses the responses of each on
# its traits. What is believed of a coefficient is its mean over families of kernels, and doubted is its
# deviation.

FILE = Path(__file__).with_name("beliefs.json")


@dataclass(frozen=True)
class Beliefs:
    """Coefficients of traits in standardised responses: normal, and independent.

    Attributes:
        mean: shape (traits,).
        variance: shape (traits,).
        scale: usual standard deviation of a space's bent log costs.
    """

    mean: Floats
    variance: Floats
    scale: float


@cache
def beliefs() -> Beliefs:
    """Those that are shipped."""
    return beliefs_of(json.loads(FILE.read_text()))


def beliefs_of(document: Mapping[str, Any]) -> Beliefs:
    """Those of a document as `FILE` holds it."""
    rows = [document["traits"][name] for name in NAMES]
    means, deviations = ([row[key] for row in rows] for key in ("mean", "deviation"))
    return Beliefs(np.array(means), np.array(deviations) ** 2, float(document["scale"]))
