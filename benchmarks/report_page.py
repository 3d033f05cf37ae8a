"""How large the report of a run of many trials is, and how soon a browser has drawn it.

    python benchmarks/report_page.py [--trials 50000] [--browser /usr/bin/chromium] [--out FILE.json]

The run is made up: numbers and configurations at random, so that little repeats that compression could use.
Targets: 2 MB, and 5 s until every chart is drawn. Without a browser only the size is told.
"""

import argparse
import json
import random
import shutil
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tuner.report.html.report import run_page

Record = dict[str, Any]

TARGET_MB, TARGET_S = 2.0, 5.0
TUNABLES: dict[str, tuple[Any, ...]] = {
    "P": (2, 4, 8, 16, 32),
    "L": (32, 64, 128, 256, 512, 1024),
    "r": (1, 2, 4, 8, 16),
    "S": (0, 8, 16, 32, 64, 128, 256, 512, 1024),
    "shuffle": (False, True),
    "load": ("direct", "transpose", "staged"),
    "store": ("direct", "transpose", "bulk"),
    "blocks": (0, 1, 2, 4, 8, 16),
    "cap": (0, 32, 64, 128),
}
CLOCKS = tuple(range(1980, 1000, -75))


def trial(number: int, chance: random.Random, workload: str) -> Record:
    """A trial with all that a stored one has."""
    time_s = chance.lognormvariate(-6.0, 0.6)
    energy_j = time_s * chance.uniform(300.0, 700.0)
    return {
        "number": number,
        "configurations": {workload: {name: chance.choice(values) for name, values in TUNABLES.items()}},
        "clock_mhz": chance.choice(CLOCKS),
        "power_limit_w": None,
        "status": "ok" if chance.random() < 0.99 else "timeout",
        "time_s": time_s,
        "time_s_uncertainty": time_s * chance.uniform(1e-4, 1e-2),
        "energy_j": energy_j,
        "energy_j_uncertainty": energy_j * chance.uniform(1e-3, 1e-2),
        "power_w": energy_j / time_s * chance.uniform(0.99, 1.01),
        "clock_seen_mhz": None,
        "bursts": 1,
        "confirmed": False,
        "flags": ["unsteady: mean round +1.4% from the median"] if chance.random() < 0.1 else [],
        "workloads": {workload: {"status": "ok", "time_s": time_s, "detail": ""}},
        "ended_s": number * 1.2 + chance.random(),
        "spent_j": chance.uniform(50.0, 900.0),
        "power_series": [],
    }


def run_of(count: int) -> Record:
    """The document of a run of so many trials."""
    chance, workload = random.Random(1), "made-up:N=1024"  # noqa: S311 - no secret
    trials = [trial(number, chance, workload) for number in range(1, count + 1)]
    valid = [one for one in trials if one["status"] == "ok"]
    best = min(valid, key=lambda one: float(one["energy_j"]))
    part = {"configuration": best["configurations"][workload], "time_s": best["time_s"]}
    part |= {"energy_share_j": None, "rate": None}
    return {
        "run": 1,
        "status": "finished",
        "device": {"spec": "cuda:0", "name": "made up", "uuid": "GPU-1", "driver": "1", "runtime": "13.0"},
        "modelled": True,
        "recorded": None,
        "objective": "energy",
        "policy": "random",
        "seed": 1,
        "clocks": "auto",
        "workloads": [{"name": workload, "batch": 1, "space": {}, "best": part, "default": part}],
        "space": {"measured": count, "failed": count - len(valid)},
        "best": best,
        "default": trials[0],
        "fastest": min(valid, key=lambda one: float(one["time_s"])),
        "notices": [],
        "wall_s": 60.0,
        "trials": trials,
    }


def ready_s(page: Path, browser: str) -> tuple[float, list[str]]:
    """Seconds until every chart is drawn, and what the browser complained of."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - the size is told without

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser)
        shown = chromium.new_page()
        told: list[str] = []
        shown.on("console", lambda message: told.append(message.text))
        shown.on("pageerror", lambda error: told.append(str(error)))
        begun = time.monotonic()
        shown.goto(page.as_uri())
        shown.wait_for_selector("html[data-ready]", timeout=120_000)
        lasted = time.monotonic() - begun
        chromium.close()
    return lasted, told


def main() -> None:
    """Make the page, and show it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trials", type=int, default=50_000)
    parser.add_argument("--browser", default=shutil.which("chromium"))
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    document = run_of(asked.trials)
    begun = time.monotonic()
    text = run_page(document, datetime(2026, 1, 1, tzinfo=timezone.utc))
    found: Record = {
        "trials": asked.trials,
        "made_in_s": round(time.monotonic() - begun, 2),
        "megabytes": round(len(text.encode()) / 1e6, 3),
    }
    made = f"made in {found['made_in_s']} s"
    print(f"{asked.trials:,} trials: {found['megabytes']} MB (target {TARGET_MB} MB), {made}")
    if asked.browser:
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "report.html"
            page.write_text(text, encoding="utf-8")
            times = [ready_s(page, asked.browser) for _ in range(3)]
        found["ready_s"] = sorted(round(lasted, 2) for lasted, _ in times)
        found["messages"] = [text for _, told in times for text in told]
        said = found["messages"] or "none"
        print(f"drawn after {found['ready_s']} s (target {TARGET_S} s); messages: {said}")
    if asked.out is not None:
        asked.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
