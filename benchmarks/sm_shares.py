"""Shares of the multiprocessors against stream priorities, for pairs of workloads that run together.

    python benchmarks/sm_shares.py [--device cuda:0] [--seconds 110] [--out FILE.json]

Each workload has the fastest of a few of its configurations alone. A pair is timed at all priorities of its
streams, and at splits of the multiprocessors: disjoint ones, and such where one workload has a share of those
that the other may all use. The splits that single windows show to be fastest are measured in turn with the
best priorities. The first third of the turns chooses among them; the others judge the chosen one, with a 95 %
interval of the ratio. No clock is set.
"""

import argparse
import math
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from provenance import provenance, save
from scipy import stats

from tuner.devices.base import Device
from tuner.devices.choice import open_device
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import InputError
from tuner.model.plan import Plan, Workload
from tuner.model.trial import Status
from tuner.space.occupancy import sm_unit

ROOT = Path(__file__).parents[1]
FILES = [
    *(ROOT / "examples" / name / "kernel.toml" for name in ("matmul", "convolution", "nbody", "transpose")),
    ROOT / "benchmarks" / "users" / "softmax.toml",
]
PAIRS = (
    ("scan-lf:N=1024", "matmul:N=1024"),
    ("softmax:N=16384,C=2048", "convolution:N=1024"),
    ("lud:N=1536", "hotspot:ROWS=6144,COLUMNS=6144"),
    ("transpose:N=8192", "nbody:N=16384"),
    ("particle-filter:N=8388608,H=1024,W=1024", "streamcluster:N=262144,DIM=256,K=10,CALLS=10"),
)
TRIED = 16  # configurations of a workload alone
LEVELS = 2  # of priority
ALONE_S, SCREEN_S, WINDOW_S = 0.02, 0.03, 0.15
FINALISTS = 4
LEAST_TURNS = 6

Setting = tuple[tuple[int, int], tuple[int, int]]
"""(priority, share in multiprocessors) of each workload; a share of 0 is what the other leaves."""


@dataclass(frozen=True)
class Turns:
    """Times of settings in turn, in s: one list per setting, in the order of the turns."""

    settings: list[Setting]
    times_s: list[list[float]]

    def change(self, number: int, begin: int) -> tuple[float, float]:
        """Change of the time of a setting against the first one, and half of its 95 % interval."""
        pairs = zip(self.times_s[number][begin:], self.times_s[0][begin:], strict=True)
        logs = [math.log(own / other) for own, other in pairs]
        half = stats.t.ppf(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
        return math.expm1(statistics.fmean(logs)), float(half)


def main() -> int:
    """Measure all pairs, print a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=110.0, help="for all of it, about")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    begun_s = time.monotonic()
    device = open_device(options.device).device
    catalog = Catalog.load(FILES)
    found = []
    for number, specs in enumerate(PAIRS):
        left_s = options.seconds - (time.monotonic() - begun_s)
        found.append(measured(device, catalog, specs, left_s / (len(PAIRS) - number)))
        print(told(found[-1]), flush=True)
    device.close()
    save(options.out, {"provenance": provenance(), "pairs": found})
    return 0


def measured(device: Device, catalog: Catalog, specs: Sequence[str], budget_s: float) -> dict[str, Any]:
    """One pair, within about so many seconds."""
    begun_s = time.monotonic()
    plans = [fastest(device, catalog, spec) for spec in specs]
    alone_s = [time_s(device, [plan], ALONE_S) for plan in plans]
    tuned_s = time.monotonic() - begun_s
    screened, refused, flags = {}, {}, set[str]()
    for setting in [*priorities(), *splits(device)]:
        record = device.run(placed(plans, setting), SCREEN_S)
        failed = next((one for one in record.results if one.status is not Status.OK), None)
        if failed is not None or record.makespan_s is None:
            refused[setting] = f"{failed.status.value}: {failed.detail}" if failed else "no time"
        else:
            screened[setting] = record.makespan_s
            flags |= {flag.kind.value for flag in record.flags}
    rival = min((one for one in priorities() if one in screened), key=screened.__getitem__)
    shared = sorted((one for one in screened if any(share for _, share in one)), key=screened.__getitem__)
    apart = [one for one in shared if 0 in (one[0][1], one[1][1])]
    chosen = list(dict.fromkeys([*apart[: FINALISTS // 2], *shared[:FINALISTS]]))[:FINALISTS]
    turns = in_turn(device, plans, [rival, *chosen], budget_s - (time.monotonic() - begun_s))
    third = max(2, len(turns.times_s[0]) // 3)
    ranked = sorted(range(1, len(chosen) + 1), key=lambda each: statistics.fmean(turns.times_s[each][:third]))
    best = ranked[0] if ranked else None
    change, half = (math.nan, math.nan) if best is None else turns.change(best, third)
    return {
        "workloads": list(specs),
        "configurations": [dict(plan.configuration) for plan in plans],
        "alone_s": alone_s,
        "equal_s": screened.get(((0, 0), (0, 0))),
        "rival": {
            "setting": rival,
            "screened_s": screened[rival],
            "mean_s": statistics.fmean(turns.times_s[0]),
        },
        "split": None
        if best is None
        else {"setting": turns.settings[best], "mean_s": statistics.fmean(turns.times_s[best][third:])},
        "change": change,
        "change_half_interval": half,
        "turns": len(turns.times_s[0]) - third,
        "finalists": [
            {"setting": one, "change": turns.change(number, third)} for number, one in enumerate(chosen, 1)
        ],
        "screened": [{"setting": one, "time_s": value} for one, value in screened.items()],
        "refused": [{"setting": one, "reason": reason} for one, reason in refused.items()],
        "flags": sorted(flags),
        "tuned_s": tuned_s,
        "wall_s": time.monotonic() - begun_s,
    }


def fastest(device: Device, catalog: Catalog, spec: str) -> Plan:
    """The plan of the fastest configuration alone, of the default and some drawn ones."""
    workload = catalog.workload(spec)
    kernel = catalog.kernel(workload.kernel)
    plans = drawn(kernel, workload)
    compiled = device.resources(plans)
    fit = [plan for plan, found in zip(plans, compiled, strict=True) if isinstance(found, tuple)]
    timed = sorted((time_s(device, [plan], ALONE_S), number) for number, plan in enumerate(fit))
    for own_s, number in timed:
        if own_s < math.inf and device.check(fit[number], 1).status is Status.OK:
            return fit[number]
    raise InputError(f"{spec}: no configuration runs")


def drawn(kernel: KernelFile, workload: Workload) -> list[Plan]:
    """The default and some others."""
    space = list(kernel.space(workload))
    default = kernel.default(workload)
    some = random.Random(0).sample(space, min(TRIED, len(space)))  # noqa: S311 - which are tried is no secret
    return [kernel.plan(workload, one) for one in dict.fromkeys([default, *some])]


def time_s(device: Device, plans: Sequence[Plan], window_s: float) -> float:
    """Time of a round; infinite where one fails."""
    record = device.run(plans, window_s)
    ok = all(one.status is Status.OK for one in record.results)
    return record.makespan_s if ok and record.makespan_s is not None else math.inf


def placed(plans: Sequence[Plan], setting: Setting) -> list[Plan]:
    """The plans at a setting."""
    return [
        replace(plan, stream_priority=priority, sm_share=share)
        for plan, (priority, share) in zip(plans, setting, strict=True)
    ]


def priorities() -> list[Setting]:
    """All priorities of two streams that differ in effect."""
    levels = range(LEVELS)
    return [((a, 0), (b, 0)) for a in levels for b in levels if 0 in (a, b)]


def splits(device: Device) -> list[Setting]:
    """Disjoint splits, and shares of multiprocessors that the other workload may all use."""
    if device.limits is None:
        raise InputError(f"{device.identity.spec} has what was recorded")
    unit, total = sm_unit(device.limits), device.limits.multiprocessors
    shares = [count * unit for count in range(2, total // unit, 2)]
    apart: list[Setting] = [((0, share), (0, 0)) for share in shares]
    apart += [((0, 0), (0, share)) for share in shares[-2:]]  # the odd multiprocessors on the other side
    within: list[Setting] = []
    for share in shares[len(shares) // 3 :: 2]:
        for a, b in ((0, 0), (1, 0), (0, 1)):
            within += [((a, share), (b, total)), ((a, total), (b, share))]
    return apart + within


def in_turn(device: Device, plans: Sequence[Plan], settings: list[Setting], budget_s: float) -> Turns:
    """Times of the settings, each once in every turn, in an order that is reversed from turn to turn."""
    times_s: list[list[float]] = [[] for _ in settings]
    begun_s = time.monotonic()
    turn = 0
    while turn < LEAST_TURNS or time.monotonic() - begun_s < budget_s:
        order = range(len(settings)) if turn % 2 == 0 else reversed(range(len(settings)))
        for number in order:
            times_s[number].append(time_s(device, placed(plans, settings[number]), WINDOW_S))
        turn += 1
    return Turns(settings, times_s)


def told(pair: dict[str, Any]) -> str:
    """One pair in a few lines."""
    first, second = pair["workloads"]
    lines = [
        f"{first} + {second}: alone {' + '.join(f'{1e3 * each:.4f}' for each in pair['alone_s'])} ms",
        f"  equal priorities {1e3 * (pair['equal_s'] or math.nan):.4f} ms",
        f"  best priorities {pair['rival']['setting']} {1e3 * pair['rival']['mean_s']:.4f} ms",
    ]
    if pair["split"] is not None:
        change = percent(pair["change"], pair["change_half_interval"])
        mean_ms = 1e3 * pair["split"]["mean_s"]
        lines.append(
            f"  best split {pair['split']['setting']} {mean_ms:.4f} ms: {change}, {pair['turns']} turns"
        )
    lines += [f"    {each['setting']}: {percent(*each['change'])}" for each in pair["finalists"]]
    refused = sorted({each["reason"] for each in pair["refused"]})
    lines += [f"  refused {len(pair['refused'])} settings: {reason}" for reason in refused[:3]]
    lines.append(f"  {pair['wall_s']:.1f} s, {pair['tuned_s']:.1f} s of them for configurations")
    return "\n".join(lines)


def percent(change: float, half: float) -> str:
    """A change with its interval."""
    return f"{100 * change:+.2f} ± {100 * half:.2f} %"


if __name__ == "__main__":
    raise SystemExit(main())
