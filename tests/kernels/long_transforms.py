"""Runs the passes of kernels/fft-large on the host at lengths too short for the kernel file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import host_build
import numpy as np
import numpy.typing as npt

from tuner.model.plan import Source
from tuner.problems.base import poison

Array = npt.NDArray[Any]

FOLDER = Path(__file__).parents[2] / "kernels" / "fft-large"
TENSOR_MAP = np.void(bytes(128))  # the host copies boxes without it
SEED = 7


@dataclass(frozen=True)
class Pass:
    """Points of a transform, transforms of a tile, points of a thread, largest radix."""

    M: int
    C: int
    P: int
    r: int

    @property
    def threads(self) -> int:
        return self.M * self.C // self.P

    def room(self, bytes_per_point: float) -> int:
        return int(self.M * self.C * bytes_per_point)

    def tiles(self, of: int) -> int:
        return of // (self.M * self.C)

    def __str__(self) -> str:
        return f"{self.C}, {self.P}, {self.r}"


@dataclass(frozen=True)
class Shape:
    """A transform too short for the kernel file, whose passes have all their parts nevertheless."""

    first: Pass
    last: Pass
    passes: int = 2

    @property
    def points(self) -> int:
        return int(self.first.M ** (self.passes - 1) * self.last.M)


def source(name: str) -> Source:
    return host_build.read_source(FOLDER / name, [FOLDER.parent / "common"])


def numbers(batch: int, N: int) -> Array:
    x = np.random.default_rng(N).standard_normal((batch, N, 2), np.float32).view(np.complex64)[..., 0]
    x.flags.writeable = False  # a kernel that writes its input fails
    return x


def poisoned(*shape: int) -> Array:
    y = np.empty(shape, np.complex64)
    poison(y)
    return y


def check(x: Array, y: Array, inverse: bool, what: object = "") -> None:
    """The largest relative L2 error of a row against NumPy's transform in complex128 is within the target."""
    reference = (np.fft.ifft if inverse else np.fft.fft)(x.astype(np.complex128))
    errors = np.linalg.norm(y - reference, axis=1) / np.linalg.norm(reference, axis=1)
    assert errors.max() <= 1e-7 * np.log2(x.shape[1]), what


def text(flag: bool) -> str:
    return str(flag).lower()


def in_passes(shape: Shape, x: Array, split: bool, inverse: bool, **how: Any) -> Array:
    first, last, N = shape.first, shape.last, shape.points
    between, y = poisoned(*x.shape), poisoned(*x.shape)
    code, half = source("passes.cu"), 2 if split else 1

    def columns(W: int, share: int, turn: int, swap: bool, of: Array) -> None:
        entry = f"columns<{first.M}, {W}, {first}, {share}, {turn}, {text(split)}, {text(swap)}, 1>"
        args = (first.tiles(x.size), first.threads, first.room(11 / half), [of, between])
        host_build.run(code, entry, *args, **how)

    columns(N // first.M, 1, last.C, inverse, x)
    if shape.passes == 3:
        columns(last.M * last.C, last.C, 1, False, between.copy())
    rows(shape, between, y, split, inverse, **how)
    return y


def rows(shape: Shape, between: Array, y: Array, split: bool, inverse: bool, **how: Any) -> None:
    between.flags.writeable = False
    last, groups = shape.last, shape.first.M if shape.passes == 3 else 1
    entry = f"rows<{shape.points}, {last.M}, {groups}, {last}, {text(split)}, {text(inverse)}, 1>"
    args = (last.tiles(y.size), last.threads, last.room(4.5 if split else 9), [between, y])
    host_build.run(source("passes.cu"), entry, *args, **how)


def by_copies(shape: Shape, x: Array, early: bool, inverse: bool, blocks: int, **how: Any) -> Array:
    first, last = shape.first, shape.last
    between, y = poisoned(*x.shape), poisoned(*x.shape)
    entry = f"columns_tma<{first.M}, {last.M}, {first}, {last.C}, {text(early)}, {text(inverse)}, 1>"
    room = first.room(13.5 if early else 11)
    args: list[Any] = [TENSOR_MAP, x, between, first.tiles(x.size)]
    host_build.run(source("tma.cu"), entry, blocks, first.threads, room, args, **how)
    rows(shape, between, y, False, inverse, **how)
    return y


def through_ring(
    shape: Shape, x: Array, form: str, ring_of: tuple[int, int], inverse: bool = False, **how: Any
) -> Array:
    """On the host the first block does all: what tickets wait for has been done, or the answer is wrong."""
    slots, lag = ring_of
    first, last, batch = shape.first, shape.last, len(x)
    ring, y, counters = poisoned(slots, shape.points), poisoned(*x.shape), np.zeros(1 + 2 * batch, np.uint32)
    name, mode = ("ring", "") if form == "ring" else ("ring_tma", f"{text(form == 'early')}, ")
    entry = f"{name}<{shape.points}, {first.M}, {first}, {last}, {mode}{text(inverse)}, 1>"
    args: list[Any] = [*[TENSOR_MAP] * (form != "ring"), x, ring, y, counters, batch, slots, lag]
    points = max(first.M * first.C, last.M * last.C)
    room = points * 27 // 2 if form == "early" else points * 11
    host_build.run(
        source(f"{name}.cu"), entry, 2, first.threads, room, args, order="shuffle", seed=SEED, **how
    )
    return y
