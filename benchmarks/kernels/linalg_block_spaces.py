"""A space of linalg_blocks.py: opened, and every configuration of it measured."""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from linalg_contest import Machine
from linalg_large_sets import LargeSets, drawn
from linalg_operations import Case
from linalg_rows import Contender, compared, shown
from linalg_search import Space, as_json
from linalg_sets import HostArrays

from tuner.model.plan import Configuration

FINALISTS = 4
_NEAR = 1.25  # times the fastest: who may go by turns
_PANEL = "panel"  # name of the stage
_NO_PANEL = ("NB", "parts", "ahead")  # tunables that panels alone do not depend on


class OutOfTimeError(RuntimeError):
    """The time ended before all of a space was measured."""


@dataclass(frozen=True)
class OpenedSpace:
    """A space with its matrix.

    Attributes:
        space: of the kernel.
        configurations: that compile, without spills.
        inputs: on the host.
    """

    space: Space
    configurations: Sequence[Configuration]
    inputs: HostArrays


class BlockSpaces:
    """Measures spaces.

    Args:
        machine: the GPU.
        rng: of the order of configurations.
        ends_s: on the monotonic clock.
    """

    def __init__(self, machine: Machine, rng: random.Random, ends_s: float) -> None:
        self._machine, self._rng, self._ends_s = machine, rng, ends_s

    def opened(self, case: Case) -> OpenedSpace:
        """Compile all of a space, and draw its matrix.

        Raises:
            TunerError: nothing is left of the space.
        """
        searcher = self._machine.searcher
        space, first = searcher.opened(case)
        rest = searcher.compiled(space, [one.configuration for one in space.item.candidates])
        return OpenedSpace(space, [*first, *rest], drawn(space.plans[space.item.default]))

    def measured(self, opened: OpenedSpace, budget_s: float) -> dict[str, Any]:
        """Times of all configurations, and of the panels alone.

        Raises:
            OutOfTimeError: the time ends before.
        """
        del budget_s
        begun_s = time.monotonic()
        machine, space = self._machine, opened.space
        given = {name: machine.cp.asarray(host) for name, host in opened.inputs.items()}
        sets = LargeSets(machine.cp, space.plans[space.item.default], given)
        order = list(opened.configurations)
        self._rng.shuffle(order)
        own, panels = self._each(space, order, sets)
        best = sorted((one for one in own if isfinite(one.quick_ms)), key=_quick_ms)
        default = [one for one in best if one.configuration == space.item.default]
        chosen = {one.name: one for one in [*default, *best[:FINALISTS]]}.values()
        finalists = [one for one in chosen if one.quick_ms <= _NEAR * best[0].quick_ms]
        for one in finalists:
            machine.check(space, one, sets)
        machine.rounds([one for one in finalists if one.right], seed=space.case.n)
        return {
            **vars(space.case),
            "measured": [_values(one) for one in own],
            "panels": panels,
            **compared(space, finalists, [], 1, None),
            "turns": [_values(one) for one in finalists],
            "wrong": [shown(one, 1) for one in finalists if not one.right],
            "seconds": round(time.monotonic() - begun_s, 2),
        }

    def _each(
        self, space: Space, order: Sequence[Configuration], sets: LargeSets
    ) -> tuple[list[Contender], list[dict[str, Any]]]:
        """Configurations one after another; a form of panels with the first that has it."""
        own: list[Contender] = []
        panels: dict[Configuration, dict[str, Any]] = {}
        for configuration in order:
            if time.monotonic() >= self._ends_s:
                raise OutOfTimeError(f"only {len(own)} of {len(order)} configurations in time")
            own.append(self._machine.kernel(space, configuration, sets))
            form = Configuration({k: v for k, v in configuration.items() if k not in _NO_PANEL})
            if form not in panels and not own[-1].trouble:
                ms = self._panels_ms(space, configuration, sets)
                panels[form] = {"configuration": as_json(form), "ms": ms}
        return own, list(panels.values())

    def _panels_ms(self, space: Space, configuration: Configuration, sets: LargeSets) -> float | None:
        """Time of the panels one behind the other, of a matrix that nothing updates."""
        plan = space.plans[configuration]
        program = self._machine.code.program(plan)
        own = sets.of(plan)
        steps = [one for one in program.stages if one.name == _PANEL]
        bound = [one.bound(own.arrays[0], program.driver) for one in steps]

        def enqueue(stream: Any, places: Sequence[int]) -> None:
            del places
            for step in bound:
                step.enqueue(stream)

        found = self._machine.timed(f"panels of {configuration}", enqueue, own).quick_ms
        return found if isfinite(found) else None


def _values(one: Contender) -> dict[str, Any]:
    """A configuration with its milliseconds: of three runs, and of all turns that it had."""
    row: dict[str, Any] = {"configuration": as_json(one.configuration)}
    if one.trouble:
        return {**row, "trouble": one.trouble}
    return {**row, "ms": one.quick_ms, **({"turns_ms": list(one.times_ms)} if one.times_ms else {})}


def _quick_ms(contender: Contender) -> float:
    return contender.quick_ms
