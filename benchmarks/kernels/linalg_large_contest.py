"""One row of linalg_large.py: cuSOLVER, kernel and product by turns; the hybrid scheme alone."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from linalg_contest import Machine, field_of, row_of
from linalg_forms import Form
from linalg_hybrid import HybridBegin, hybrid_begin, hybrid_found, hybrid_times
from linalg_large_libraries import LargeLibraries
from linalg_large_operations import LargeCase
from linalg_large_sets import LargeSets, drawn
from linalg_operations import Case
from linalg_rows import Contender, compared, timed
from linalg_search import Searcher, Space
from linalg_sets import HostArrays

from tuner.model.plan import Configuration


@dataclass(frozen=True)
class Opened:
    """What a row begins with.

    Attributes:
        space: of the kernel.
        first: configurations that are measured first.
        inputs: on the host.
        hybrid: the hybrid scheme; None where it is left out.
    """

    space: Space
    first: Sequence[Configuration]
    inputs: HostArrays
    hybrid: HybridBegin | None = None

    def on(self, cp: Any) -> LargeSets:
        """The arrays of the default configuration on the device."""
        given = {name: cp.asarray(host) for name, host in self.inputs.items()}
        return LargeSets(cp, self.space.plans[self.space.item.default], given)


def opened(searcher: Searcher, case: Case, *, hybrid: bool = False) -> Opened:
    """Compile what a row begins with, with the hybrid scheme where it is asked for, and draw its matrix.

    Raises:
        TunerError: nothing is left of the space.
    """
    space, first = searcher.opened(case)
    beside = hybrid_begin(searcher, case) if hybrid else None
    return Opened(space, first, drawn(space.plans[space.item.default]), beside)


def large_contest(
    machine: Machine, libraries: LargeLibraries, begin: Opened, budget_s: float, hybrid_s: float = 0.0
) -> dict[str, Any]:
    """A row: times and rates of all, the ratio to the library, and whether the target is met.

    Args:
        machine: the GPU.
        libraries: the peers.
        begin: what is compiled.
        budget_s: for the row, without the hybrid scheme.
        hybrid_s: for the search of the hybrid scheme.
    """
    begun_s = time.monotonic()
    space = begin.space
    sets = begin.on(machine.cp)
    gemm = product(machine, libraries.gemm(space.case, sets), sets)
    forms = libraries.factorizations(space.case, sets)
    field = field_of(machine, space, begin.first, sets, forms=forms, ends_s=begun_s + budget_s)
    ceiling = [] if gemm is None else [gemm]
    machine.rounds([*field.right_own, *field.right_peers, *ceiling], seed=space.case.n)
    row = row_of(space, field, sets)
    row |= compared(space, field.finalists, field.right_peers, 1, None)
    row["gemm"] = None if gemm is None else timed(gemm, 1)
    row["correct"] = row["correct"] and bool(field.right_peers)
    row["hybrid"] = None
    if begin.hybrid is not None:
        found = hybrid_found(machine, begin.hybrid, sets, hybrid_s)
        row["hybrid"] = _against(hybrid_times(machine, found), row)
        row["hybrid_tried"] = found.facts(sets.count)
    return {**rated(row), "seconds": round(time.monotonic() - begun_s, 2)}


def _against(hybrid: dict[str, Any] | None, row: dict[str, Any]) -> dict[str, Any] | None:
    """The hybrid scheme's figures with those of the others by its own: above 1 it is faster."""
    if hybrid is not None:
        for name, word in (("peer", "of_peer"), ("best", "of_gpu_only")):
            hybrid[word] = None if row[name] is None else row[name]["us"] / hybrid["us"]
    return hybrid


def product(machine: Machine, form: Form | None, sets: LargeSets) -> Contender | None:
    """The product of matrices as a contender; None where it does not run."""
    if form is None:
        return None

    def multiply(stream: Any, places: Sequence[int]) -> None:
        for place in places:
            form.call(place, stream.ptr)

    made = machine.timed(form.key, multiply, sets)
    made.form = form
    return None if made.trouble else made


def rated(row: dict[str, Any]) -> dict[str, Any]:
    """The row with TFlop/s beside its times; flops are LAPACK's leading terms, of gemm 2 n^3."""
    flops = LargeCase(row["operation"], row["n"], row["dtype"]).flops
    for name in ("peer", "default", "analytical", "best", "gemm", "hybrid"):
        if row[name] is not None:
            of = 2 * row["n"] ** 3 if name == "gemm" else flops
            row[name]["tflops"] = of / row[name]["us"] / 1e6
    return row
