"""The launches of ``cluster_exchange.py``: shapes, pieces of the transform, and what they must leave.

A problem of N points is a matrix of N1 rows and N2 columns, which B blocks of a cluster share; see
``kernels/fft-large/cluster.cu``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.model.plan import (
    Buffer,
    Configuration,
    Plan,
    ProblemSpec,
    Scalar,
    Source,
    Stage,
    StageArgument,
    Work,
    Workload,
)

POINTS = 2**26  # of a launch, as in peers.py
SHARED_BYTES = 233472  # of a multiprocessor
SENDS = (1, 4)  # problems that are exchanged between two meetings
EXCHANGE, WHOLE = "+ exchange (", "+ arithmetic: fft-large"  # names of pieces
_KERNELS = Path(__file__).parents[2] / "kernels"

Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Shape:
    """A way to share problems.

    Attributes:
        n: points of a problem.
        n1: rows, which are points of a column.
        p: points of a thread, and the largest radix.
        b: blocks of a cluster.
        order: where the radix left over goes.
    """

    n: int
    n1: int
    p: int
    b: int
    order: str = "last"

    @property
    def n2(self) -> int:
        """Columns."""
        return self.n // self.n1

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.n // (self.b * self.p)

    @property
    def shared_bytes(self) -> int:
        """Of a block, as ``kernel.toml`` has it for scratch = 4."""
        points = self.n // self.b
        room = self.n1 // self.b * (self.n2 + self.n2 // 16 + 16)
        return 16 + 8 * room + 4 * (points + points // 8)

    @property
    def blocks(self) -> int:
        """Of a multiprocessor, for which the compiler is asked."""
        return max(1, min(16384 // (self.p * self.threads), SHARED_BYTES // (self.shared_bytes + 1024)))

    def __str__(self) -> str:
        """For tables."""
        blocks = f"clusters of {self.b} x {self.threads} threads"
        return f"N = {self.n}, {blocks}, {self.n1} x {self.n2}, P = {self.p}"


SHAPES = (
    *(Shape(2**k, 128, 16, b) for k in (14, 15) for b in (2, 4, 8, 16)),
    *(Shape(2**16, 256, 16, b) for b in (4, 8, 16)),
    *(Shape(2**17, 256, 32, b, "first") for b in (8, 16)),
    Shape(2**18, 512, 32, 16, "first"),
)
"""For each length, the columns of the best recorded answer, or of the one closest to it."""


@dataclass(frozen=True)
class Form:
    """How blocks send: bytes of a remote store, and whether bytes are counted (``st.async``)."""

    store_bytes: int
    counted: bool

    @property
    def flags(self) -> str:
        """As the kernels take them."""
        return f"{str(self.store_bytes == 16).lower()}, {str(self.counted).lower()}"

    def __str__(self) -> str:
        """For tables."""
        return f"{self.store_bytes} B, {'st.async' if self.counted else 'barrier'}"


FORMS = tuple(Form(*form) for form in product((8, 16), (False, True)))
RECORDED_FORM = Form(8, counted=True)  # that of all recorded answers that are clusters


@dataclass(frozen=True)
class Piece:
    """One launch over ``POINTS`` points.

    Attributes:
        name: for tables.
        plan: what is launched.
        places: y[places] = x of each problem; None for a whole transform.
    """

    name: str
    plan: Plan
    places: Places | None


def pieces(shape: Shape) -> Iterator[Piece]:
    """From loads and stores alone to the whole transform, each with one thing more than the one before."""
    copied, exchanged, shuffled = copied_places(shape), exchanged_places(shape), shuffled_places(shape)
    alone = _template(shape, "", "")
    yield Piece("load, store, no clusters", _launch(shape, f"apart<{alone}>", cluster=1), copied)
    for until, name, places in (
        ("copied", "load, store", copied),
        ("met", "+ two meetings", copied),
    ):
        entry = f"pieces<{_template(shape, f'Until::{until}', 'false, false')}>"
        yield Piece(name, _launch(shape, entry), places)
    for form in FORMS:
        entry = f"pieces<{_template(shape, 'Until::exchanged', form.flags)}>"
        yield Piece(f"{EXCHANGE}{form})", _launch(shape, entry), exchanged)
    entry = f"pieces<{_template(shape, 'Until::shuffled', RECORDED_FORM.flags)}>"
    yield Piece("+ exchanges in blocks", _launch(shape, entry), shuffled)
    whole = f"{shape.n}, {shape.n1}, {shape.p}, {shape.b}, {shape.p}, Order::{shape.order}, 4"
    entry = f"fft_cluster<{whole}, {RECORDED_FORM.flags}, false, {shape.blocks}>"
    yield Piece(WHOLE, _launch(shape, entry), None)


def exchange_alone(shape: Shape, form: Form, sends: int, rounds: int) -> Plan:
    """Exchanges of blocks that stay."""
    flags = f"{form.flags}, {sends}"
    arguments = ("y", Scalar("int32", rounds), Scalar("int32", 0))
    return _plan(shape, f"exchange_alone<{_template(shape, '', flags)}>", arguments, shape.b, resident=True)


def meet_alone(shape: Shape, rounds: int, *, in_order: bool) -> Plan:
    """Meetings of blocks that stay; ``in_order``: what was written before is seen behind."""
    flags = f"{shape.b}, {shape.threads}, {str(in_order).lower()}, {shape.blocks}"
    arguments = ("y", Scalar("int32", rounds))
    return _plan(shape, f"meet_alone<{flags}>", arguments, shape.b, resident=True)


def _template(shape: Shape, until: str, flags: str) -> str:
    order = f"Order::{shape.order}"
    parts = (str(shape.n), str(shape.n1), str(shape.p), str(shape.b), order, until, flags, str(shape.blocks))
    return ", ".join(part for part in parts if part)


def _launch(shape: Shape, entry: str, cluster: int | None = None) -> Plan:
    return _plan(shape, entry, ("x", "y"), shape.b if cluster is None else cluster, resident=False)


def _plan(
    shape: Shape, entry: str, arguments: tuple[StageArgument, ...], cluster: int, *, resident: bool
) -> Plan:
    batch = POINTS // shape.n
    stage = Stage(
        name=entry,
        source=source(),
        entry=entry,
        options=("--std=c++17",),
        grid=(batch * shape.b, 1, 1),
        block=(shape.threads, 1, 1),
        shared_bytes=shape.shared_bytes,
        arguments=arguments,
        min_architecture=90,
        resident=resident,
        cluster=cluster,
    )
    return Plan(
        Workload("cluster-exchange", (("N", shape.n),), batch),
        Configuration({"entry": entry}),
        (stage,),
        tuple(
            Buffer(name, "complex64", (batch, shape.n), role) for name, role in (("x", "in"), ("y", "out"))
        ),
        ProblemSpec("fft"),
        Work(16.0 * POINTS, 0.0),
    )


def source() -> Source:
    """``cluster_exchange.cu`` with the code of ``fft-large``."""
    path = Path(__file__).with_name("cluster_exchange.cu")
    folders = (_KERNELS / "fft-large", _KERNELS / "common")
    headers = [header for folder in folders for header in folder.glob("*.cuh")]
    headers.append(_KERNELS / "fft-large" / "cluster.cu")
    named = tuple(sorted((header.name, header.read_text()) for header in headers))
    return Source(path.name, path.read_text(), named)


# ---- where points of a problem go, as indices into y, for x in order ---------------------------------------


def copied_places(shape: Shape) -> Places:
    """A thread stores what it has loaded."""
    own, t, j = np.ogrid[: shape.b, : shape.threads, : shape.p]
    columns, rows = shape.n2 // shape.b, shape.n1 // shape.b
    row = t // columns + j * (shape.n1 // shape.p)
    loaded = row * shape.n2 + own * columns + t % columns
    stored = own * rows + t % rows + (t // rows + j * (shape.n2 // shape.p)) * shape.n1
    places = np.empty(shape.n, np.int64)
    places[loaded] = stored
    return places


def exchanged_places(shape: Shape) -> Places:
    """The matrix is transposed."""
    rows, columns = np.ogrid[: shape.n1, : shape.n2]
    return np.asarray(rows + columns * shape.n1).reshape(-1)


def shuffled_places(shape: Shape) -> Places:
    """Rows and columns change places, too, as Stockham's algorithm has it."""
    rows = _stockham_places(shape.n1, shape)[:, None]
    columns = _stockham_places(shape.n2, shape)[None, :]
    return np.asarray(rows + columns * shape.n1).reshape(-1)


def _stockham_places(n: int, shape: Shape) -> Places:
    """Where the exchanges between the stages of n points take each of them (``block_fft.cuh``)."""
    places = np.arange(n)
    done = 1
    for radix in radices(n, shape.p, shape.order)[:-1]:
        q, butterfly = np.divmod(places, n // radix)
        places = butterfly // done * done * radix + butterfly % done + q * done
        done *= radix
    return places


def radices(n: int, most: int, order: str) -> list[int]:
    """Of the stages, as ``Ordered`` of ``block_fft.cuh`` has them for the orders first and last."""
    full, left = divmod(n.bit_length() - 1, most.bit_length() - 1)
    rest = [2**left] if left else []
    return [*rest, *[most] * full] if order == "first" else [*[most] * full, *rest]


def is_right(cp: Any, piece: Piece, x: Any, y: Any) -> bool:
    """Whether a piece left what it must; a transform within the error that the kernel's target allows."""
    if piece.places is not None:
        return bool((y[:, cp.asarray(piece.places)] == x).all())
    right = cp.fft.fft(x[::64].astype(cp.complex128), axis=1)
    errors = cp.linalg.norm(y[::64] - right, axis=1) / cp.linalg.norm(right, axis=1)
    return bool(errors.max() <= 1e-7 * (x.shape[1].bit_length() - 1))


def has_exchanged(cp: Any, shape: Shape, clusters: int, y: Any) -> bool:
    """Whether every cluster left the row and the column of each point in its place."""
    left = y.reshape(-1)[: clusters * shape.n].reshape(clusters, shape.n1, shape.n2)
    rows, columns = cp.arange(shape.n1, dtype="float32")[:, None], cp.arange(shape.n2, dtype="float32")
    return bool((left.real == rows).all() and (left.imag == columns).all())
