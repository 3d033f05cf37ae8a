"""What the analytical rules give on recorded spaces, without one measurement of their own.

Phi is the harmonic mean over problem sizes of the best recorded time by that of the chosen configuration
("Performance Tuning for GPU-Embedded Systems", section VI). Both rules are asked on every space. Then the
constants of the server rule are moved, and ties broken otherwise, to show how much hangs on them.

    python benchmarks/analytical_phi.py --out benchmarks/results/analytical-phi-h200.json
"""

import argparse
import importlib
import json
import math
import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.policies.analytical import choose

from tuner.model.plan import Configuration
from tuner.recordings.files import open_recording
from tuner.recordings.values import RecordedWorkload

SEEN = frozenset({128, 512, 2048, 2**15, 2**17, 2**21})  # sizes the server rule was derived on
ENOUGH_KIB = (64, 80, 96, 112, 128, 144, 192)
ENOUGH_WARPS = (0.25, 0.375, 0.5, 0.625, 0.75)
RULES = ("embedded", "server")
KIB = 1024


@dataclass(frozen=True)
class Space:
    """One recorded workload: its candidates, and each one's share of the best speed."""

    workload: RecordedWorkload
    limits: Any
    efficiency: dict[Configuration, float]

    @property
    def size(self) -> int:
        """N."""
        return int(self.workload.sizes["N"])


def spaces_of(recording: Any) -> list[Space]:
    """The spaces of single workloads that ran well somewhere."""
    found = []
    for names in recording.names:
        space = recording.space(names)
        if len(names) != 1 or space.limits is None:
            continue
        times = {t.configurations[0]: m.makespan_s or math.inf for t, m in space.trials.items()}
        best = min(times.values())
        efficiency = {configuration: best / time_s for configuration, time_s in times.items()}
        found.append(Space(space.workloads[0], space.limits, efficiency))
    return found


def phi(efficiencies: Iterable[float]) -> float | None:
    """Harmonic mean; None of nothing."""
    inverse = [1 / one if one else math.inf for one in efficiencies]
    return len(inverse) / sum(inverse) if inverse else None


def chosen(space: Space, rule: str) -> tuple[float, Configuration, float]:
    """Efficiency of the rule's choice, the choice, and the milliseconds it took."""
    begun_s = time.perf_counter()
    choice = choose(space.workload.candidates, space.limits, space.workload.roles, rule=rule)
    took_ms = 1000 * (time.perf_counter() - begun_s)
    return space.efficiency[choice.configuration], choice.configuration, took_ms


def result_of(spaces: list[Space], rule: str) -> dict[str, Any]:
    """Phi of a rule on the spaces of one kernel, over all sizes, those seen, and the others."""
    picks = {space.size: chosen(space, rule) for space in spaces}
    return {
        "phi": phi(e for e, _, _ in picks.values()),
        "phi_seen": phi(e for size, (e, _, _) in picks.items() if size in SEEN),
        "phi_others": phi(e for size, (e, _, _) in picks.items() if size not in SEEN),
        "efficiency": {size: e for size, (e, _, _) in picks.items()},
        "configuration": {size: dict(configuration) for size, (_, configuration, _) in picks.items()},
        "median_ms": statistics.median(took_ms for _, _, took_ms in picks.values()),
    }


def moved(kernels: dict[str, list[Space]], place: str, value: Any) -> dict[str, Any]:
    """Phi of the server rule with something else at ``module:attribute``."""
    name, _, attribute = place.partition(":")
    module = importlib.import_module(f"tuner.policies.{name}")
    before = getattr(module, attribute)
    setattr(module, attribute, value)
    try:
        return {
            kernel: phi(chosen(space, "server")[0] for space in spaces) for kernel, spaces in kernels.items()
        }
    finally:
        setattr(module, attribute, before)


def variants(kernels: dict[str, list[Space]]) -> dict[str, dict[str, Any]]:
    """The server rule with each of its constants moved, and with ties broken by the order of the space."""
    return {
        "bytes in flight (KiB)": {
            str(kib): moved(kernels, "analytical:ENOUGH_BYTES", kib * KIB) for kib in ENOUGH_KIB
        },
        "share of the warps": {
            str(share): moved(kernels, "analytical:ENOUGH_WARPS_SERVER", share) for share in ENOUGH_WARPS
        },
        "choice among equals": {
            "first": moved(kernels, "front_runners:_from_the_middle", lambda _, numbers: list(numbers))
        },
        "a criterion": dict(shortened(kernels)),
    }


def shortened(kernels: dict[str, list[Space]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The server rule without one of its criteria, each in turn, on the kernels it is asked about."""
    module = importlib.import_module("tuner.policies.analytical")
    large = {kernel: spaces for kernel, spaces in kernels.items() if several_launches(spaces)}
    small = {kernel: spaces for kernel, spaces in kernels.items() if kernel not in large}
    for attribute, label, asked in (
        ("_WHOLE_PROBLEMS", "whole", small),
        ("_SHARED_PROBLEM", "shared", large),
    ):
        criteria = getattr(module, attribute)
        for one in criteria:
            left = tuple(other for other in criteria if other is not one)
            yield f"{label}: no {one.name}", moved(asked, f"analytical:{attribute}", left)


def several_launches(spaces: list[Space]) -> bool:
    """Whether problems of these spaces are shared by blocks."""
    return any(len(one.launches) > 1 for space in spaces for one in space.workload.candidates)


def show(document: dict[str, Any]) -> None:
    """Print the tables."""
    titles = ("sizes", "embedded", "server", "seen", "others", "worst")
    print(f"{'kernel':12}" + "".join(f"{title:>10}" for title in titles))
    for kernel, rules in document["kernels"].items():
        server = rules["server"]
        numbers = (rules["embedded"]["phi"], server["phi"], server["phi_seen"], server["phi_others"])
        shown = [*numbers, min(server["efficiency"].values())]
        cells = [str(len(server["efficiency"])), *("-" if one is None else f"{one:.3f}" for one in shown)]
        print(f"{kernel:12}" + "".join(f"{cell:>10}" for cell in cells))
    for what, rows in document["moved"].items():
        print(f"\nserver rule, {what} moved:")
        print(" " * 44 + "".join(f"{kernel:>12}" for kernel in document["kernels"]))
        for value, row in rows.items():
            cells = (f"{row[kernel]:.3f}" if kernel in row else "" for kernel in document["kernels"])
            print(f"{value:>44}" + "".join(f"{cell:>12}" for cell in cells))


def main() -> None:
    """Compute, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recording", default="h200", help="h200, or a file of recorded spaces")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    kernels: dict[str, list[Space]] = {}
    for space in spaces_of(open_recording(arguments.recording)):
        kernels.setdefault(space.workload.kernel, []).append(space)
    document = {
        "recording": arguments.recording,
        "seen_sizes": sorted(SEEN),
        "kernels": {
            kernel: {rule: result_of(spaces, rule) for rule in RULES} for kernel, spaces in kernels.items()
        },
        "moved": variants(kernels),
    }
    show(document)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
