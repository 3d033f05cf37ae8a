"""Documents for tests of pages: odd runs, and names that are markup."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from report_documents import RECORDED, TX1, run_document, run_trial

Record = Any

MARKUP = "</script><script>document.title='pwned'</script><img src=x onerror=\"document.title='pwned'\">"
RIGHT_TO_LEFT = "\u0645\u0631\u062d\u0628\u0627\u202eabc"
LONG = "k" * 200
SERIES = [{"times_s": [0.0, 0.1, 0.2], "watts": [600.0, 650.0, 640.0]}]


def ordinary(*names: str, tunables: Mapping[str, Any] | None = None, **more: Any) -> Record:
    """Twelve trials of some workloads: two tunables in full, one failure, contenders and a tie."""
    names = names or ("scan:N=64",)
    trials = []
    for place in range(12):
        values = {
            "P": 2 ** (place % 4),
            "load": ("direct", "staged", "bulk")[place // 4],
            "wide": place % 2 == 0,
        }
        values |= tunables or {}
        failed = place == 11
        time_s = None if failed else 1e-3 * (1 + (place * 7 % 12) / 10)
        trials.append(
            run_trial(
                dict.fromkeys(names, values),
                time_s,
                None if failed else 0.5 * (1 + (place * 5 % 11) / 20),
                status="timeout" if failed else "ok",
                detail="ran for 60 s" if failed else "",
                number=place + 1,
                bursts=3 if place in (0, 1) else 1,
                confirmed=place in (0, 1),
                searched={"time_s": time_s, "energy_j": 0.5},
                ended_s=2.0 * place,
                spent_j=100.0 + place,
                power_series=SERIES if place in (0, 1) else [],
            )
        )
    return run_document(
        trials, default=1, fastest=0, **{"contenders": [1, 2], "tied": [1], "started_at": None, **more}
    )


def complete() -> Record:
    """A co-run with all that has a panel: curves over clocks and power limits, one after another."""
    found = ordinary("scan:N=64", "fft:N=2")
    for trial in found["trials"]:
        trial |= {"clock_mhz": 1980, "power_limit_w": 700}
    alone = {"time_s": 5e-4, "time_s_uncertainty": 1e-6, "energy_j": 0.3, "energy_j_uncertainty": 1e-3}
    both = {**alone, "time_s": 1e-3, "energy_j": 0.6}
    return {
        **found,
        "clock_curve": [_point(mhz, mhz / 1980, "clock_mhz") for mhz in (1980, 1500, 1200)],
        "clock_curve_of": found["best"]["configurations"],
        "power_limit_curve": [_point(watts, watts / 700, "power_limit_w") for watts in (700, 500)],
        "one_after_another": {
            "repeats": 2,
            "together": both,
            "in_turn": both,
            "workloads": dict.fromkeys(("scan:N=64", "fft:N=2"), alone),
            "time_change": -0.1,
            "time_change_interval": 0.01,
            "energy_change": -0.2,
            "energy_change_interval": 0.02,
        },
    }


def _point(setting: int, share: float, key: str) -> Record:
    """A point of a curve; the second lowest of the clocks is modelled."""
    first = share == 1.0
    return {
        "clock_mhz": 1980,
        "power_limit_w": 700,
        "clock_seen_mhz": 1980.0,
        key: setting,
        "kind": "modelled" if setting == 1500 else "measured",
        "time_s": 1e-3 / share,
        "time_s_uncertainty": 1e-6,
        "time_ratio": 1 / share,
        "time_ratio_interval": 0.0 if first else 0.01,
        "joules": 0.5 * share,
        "joules_uncertainty": 1e-3,
        "joules_ratio": share,
        "joules_ratio_interval": 0.0 if first else 0.01,
        "saving_per_slowdown": None if first else 0.8,
    }


def odd_runs() -> Iterator[tuple[str, Record]]:
    """Runs that a report must not stumble over, with what is odd."""
    yield "modelled", ordinary(device=TX1)
    yield "recorded", ordinary(device=RECORDED)
    yield "eight workloads", ordinary(*(f"k{place}:N=64" for place in range(8)))
    yield "long names", ordinary(f"{LONG}:N=1", f"other-{LONG}:N=1")
    yield (
        "markup",
        ordinary(
            MARKUP, tunables={MARKUP: MARKUP}, notices=[MARKUP, RIGHT_TO_LEFT], settings={MARKUP: MARKUP}
        ),
    )
    yield "right to left", ordinary(RIGHT_TO_LEFT)
    yield "of time alone", _without_joules()
    yield "interrupted", ordinary(status="interrupted", best=None)
    failed = [run_trial({"scan:N=64": {"P": 1}}, None, status="crashed", detail=MARKUP)]
    yield "all failed", run_document(failed, best=None, status="failed")
    yield "empty", _empty()
    yield "of an earlier version", _earlier()
    yield "one trial", run_document([run_trial({"scan:N=64": {}}, 1e-3, 0.5)], default=0, fastest=0)


def _without_joules() -> Record:
    trials = [run_trial({"scan:N=64": {"P": place}}, 1e-3 * (1 + place)) for place in range(3)]
    return run_document(trials, objective="time", default=1, fastest=0)


def _empty() -> Record:
    found = run_document([run_trial({"scan:N=64": {}}, None)], best=None, status="running")
    return {**found, "trials": [], "space": {"measured": 0, "failed": 0}, "least_energy": None}


def _earlier() -> Record:
    """A run as a version before series, contenders and recordings has stored it."""
    found = copy.deepcopy(ordinary())
    for key in ("contenders", "tied", "recorded", "one_after_another", "settings", "repeatability", "wall"):
        found.pop(key, None)
    for trial in found["trials"]:
        for key in ("confirmed", "searched", "ended_s", "spent_j", "power_series", "bursts", "flags"):
            trial.pop(key, None)
    return found
