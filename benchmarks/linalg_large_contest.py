"""One row of benchmarks/linalg_large.py: cuSOLVER, the kernel and a product of matrices by turns."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from linalg_contest import OWN_FINALISTS, PEER_FINALISTS, Machine, searched
from linalg_large_libraries import LargeLibraries
from linalg_large_operations import LargeCase
from linalg_large_sets import LargeSets, drawn
from linalg_operations import Case
from linalg_rows import Contender, compared, shown, timed
from linalg_search import Searcher, Space
from linalg_sets import HostArrays

from tuner.model import Configuration


@dataclass(frozen=True)
class Opened:
    """What a row begins with.

    Attributes:
        space: of the kernel.
        first: configurations that are measured first.
        inputs: on the host.
    """

    space: Space
    first: Sequence[Configuration]
    inputs: HostArrays


def opened(searcher: Searcher, case: Case) -> Opened:
    """Compile what a row begins with, and draw its matrix.

    Raises:
        TunerError: nothing is left of the space.
    """
    space, first = searcher.opened(case)
    return Opened(space, first, drawn(space.plans[space.item.default]))


@dataclass
class Field:
    """Who takes part in a row.

    Attributes:
        sets: the arrays.
        peers: the forms of cuSOLVER, each looked at.
        gemm: cuBLAS's product; None without cuBLAS.
        own: every configuration that was measured, unchecked but for the finalists.
        finalists: of these; each looked at.
    """

    sets: LargeSets
    peers: list[Contender]
    gemm: Contender | None
    own: list[Contender]
    finalists: list[Contender]

    @property
    def right_peers(self) -> list[Contender]:
        """The fastest forms of the library that answer right."""
        right = sorted((one for one in self.peers if one.right), key=lambda one: one.quick_ms)
        return right[:PEER_FINALISTS]

    @property
    def right_own(self) -> list[Contender]:
        """Finalists that answer right."""
        return [one for one in self.finalists if one.right]


def field_of(machine: Machine, libraries: LargeLibraries, begin: Opened, ends_s: float) -> Field:
    """Check and time everything that takes part a few times; search the kernel until ``ends_s``."""
    space, cp = begin.space, machine.cp
    given = {name: cp.asarray(host) for name, host in begin.inputs.items()}
    sets = LargeSets(cp, space.plans[space.item.default], given)
    peers = [machine.library(form, sets) for form in libraries.factorizations(space.case, sets)]
    product = libraries.gemm(space.case, sets)
    gemm = None
    if product is not None:

        def multiply(stream: Any, places: Sequence[int]) -> None:
            for place in places:
                product.call(place, stream.ptr)

        gemm = machine.timed(product.key, multiply, sets)
        gemm.form = product
    own = searched(machine, space, begin.first, sets, ends_s)
    named = [c for c in (space.item.default, space.analytical) if c is not None]
    best = sorted((one for one in own if isfinite(one.quick_ms)), key=lambda one: one.quick_ms)
    chosen = [*[one for one in best if one.configuration in named], *best[:OWN_FINALISTS]]
    finalists = list({one.name: one for one in chosen}.values())
    for one in finalists:
        machine.check(space, one, sets)
    return Field(sets, peers, gemm, own, finalists)


def large_contest(
    machine: Machine, libraries: LargeLibraries, begin: Opened, budget_s: float
) -> dict[str, Any]:
    """A row: times and rates of all, the ratio to the library, and whether the target is met."""
    begun_s = time.monotonic()
    space = begin.space
    field = field_of(machine, libraries, begin, begun_s + budget_s)
    gemm = field.gemm if field.gemm is not None and not field.gemm.trouble else None
    ceiling = [] if gemm is None else [gemm]
    machine.rounds([*field.right_own, *field.right_peers, *ceiling], seed=space.case.n)
    row: dict[str, Any] = {
        "operation": space.case.operation,
        "n": space.case.n,
        "dtype": space.case.dtype,
        "target": str(space.case.target),
        "least": space.case.target.least,
        "aim": space.case.target.aim,
        "configurations": {"measured": len(field.own), "candidates": len(space.item.candidates)},
        "peers_tried": [shown(one, 1) for one in field.peers],
        "wrong": [shown(one, 1) for one in field.finalists if not one.right],
        "no_analytical": space.why,
    }
    row |= compared(space, field.finalists, field.right_peers, 1, None)
    row["gemm"] = None if gemm is None or not gemm.times_ms else timed(gemm, 1)
    row["correct"] = row["correct"] and bool(field.right_peers)
    return {**rated(row), "seconds": round(time.monotonic() - begun_s, 2)}


def rated(row: dict[str, Any]) -> dict[str, Any]:
    """The row with TFlop/s beside its times; flops are LAPACK's leading terms, of gemm 2 n^3."""
    flops = LargeCase(row["operation"], row["n"], row["dtype"]).flops
    for name in ("peer", "default", "analytical", "best", "gemm"):
        if row[name] is not None:
            of = 2 * row["n"] ** 3 if name == "gemm" else flops
            row[name]["tflops"] = of / row[name]["us"] / 1e6
    return row
