"""Kernel Tuner's example scripts with Kernel Tuner, and with one import changed: best found, and wall time.

Every script runs twice in processes of its own, with Kernel Tuner's CuPy backend and with
``tuner.kernel_tuner``. A third process times the best of both in turn with CUDA events, with warm and with
cold L2. Value lists of more than ``--most`` configurations are thinned, the same for both. The scripts are
not part of this project.

    git clone https://github.com/KernelTuner/kernel_tuner
    python benchmarks/kernel_tuner_examples.py kernel_tuner/examples/cuda --out examples.json
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from provenance import provenance

CHILD = Path(__file__).resolve().with_name("kernel_tuner_examples_child.py")
WITHIN = 1.02  # times the best of Kernel Tuner: the target

SKIPPED: Mapping[str, str] = {
    r"kernel_tuner\.observers|observers\s*=": "uses observers",
    r"kernel_tuner\.energy": "uses Kernel Tuner's energy model",
    r"texmem_args": "uses texture references, which CUDA 12 does not have",
    r"lang\s*=\s*[\"']C[\"']": "tunes host code",
    r"kernelbuilder": "uses PythonKernel",
    r"import pycuda|from pycuda": "needs PyCUDA",
    r"import pytest": "is a test",
}

Document = dict[str, Any]


def main() -> None:
    """Run the scripts, print a table, write a document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path, help="Kernel Tuner's examples/cuda")
    parser.add_argument("--only", nargs="*", default=[], help="names of scripts, such as vector_add.py")
    parser.add_argument("--without", nargs="*", default=[], help="names of scripts to leave out")
    parser.add_argument("--most", type=int, default=32, help="configurations of a call at most")
    parser.add_argument("--limit", type=float, default=400, help="seconds after which no script is begun")
    parser.add_argument("--timeout", type=float, default=120, help="seconds of one run of a script at most")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    begun = time.monotonic()
    scripts: list[Document] = []
    for script in sorted(options.folder.glob("*.py")):
        if options.only and script.name not in options.only:
            continue
        why = reason(script, options.without)
        if not why and time.monotonic() - begun > options.limit:
            why = "no time was left"
        found = {"script": script.name, "skipped": why} if why else compared(script, options)
        scripts.append(found)
        print("\n".join(lines(found)), flush=True)
    document = {"scripts": scripts, **summary(scripts), "most": options.most, "provenance": provenance()}
    print(shown(document))
    if options.out is not None:
        options.out.write_text(json.dumps(document, indent=1))


def reason(script: Path, without: Sequence[str]) -> str:
    """Why a script is left out; empty where it is not."""
    if script.name in without:
        return "was to be left out"
    text = script.read_text()
    if "tune_kernel" not in text:
        return next((why for pattern, why in SKIPPED.items() if re.search(pattern, text)), "tunes nothing")
    return next((why for pattern, why in SKIPPED.items() if re.search(pattern, text)), "")


def compared(script: Path, options: argparse.Namespace) -> Document:
    """Both runs of a script, and the neutral times of what they chose."""
    with tempfile.TemporaryDirectory() as place:
        theirs = ran("kernel_tuner", script, Path(place), options)
        ours = ran("tuner", script, Path(place), options)
        pairs = list(zip(theirs["calls"], ours["calls"], strict=False))
        neutral: Document = {"calls": [], "error": ""}
        if any(a["best"] and b["best"] and a["best"] != b["best"] for a, b in pairs):
            neutral = ran("neutral", script, Path(place), options)
    times = [*neutral["calls"], *({} for _ in pairs)]
    return {
        "script": script.name,
        "kernel_tuner": {"error": theirs["error"], "wall_s": theirs["wall_s"]},
        "tuner": {"error": ours["error"], "wall_s": ours["wall_s"]},
        "neutral_error": neutral["error"],
        "calls": [call_of(a, b, c) for (a, b), c in zip(pairs, times, strict=False)],
    }


def call_of(theirs: Document, ours: Document, times: Document) -> Document:
    """One call of ``tune_kernel`` in both runs."""
    return {
        "kernel": theirs["kernel"],
        **{
            name: {key: one[key] for key in ("results", "valid", "wall_s", "best", "best_ms")}
            for name, one in (("kernel_tuner", theirs), ("tuner", ours))
        },
        "same_best": theirs["best"] == ours["best"],
        "warm_ratio": ratio(theirs, ours, times.get("warm_ms")),
        "cold_ratio": ratio(theirs, ours, times.get("cold_ms")),
        "times": times,
    }


def ratio(theirs: Document, ours: Document, ms: Sequence[float] | None) -> float | None:
    """Time of our best by that of Kernel Tuner's; None where it is not known."""
    if theirs["best"] is not None and theirs["best"] == ours["best"]:
        return 1.0
    return None if ms is None else ms[1] / ms[0]


def ran(mode: str, script: Path, place: Path, options: argparse.Namespace) -> Document:
    """A run of a copy of the script's folder; its output goes to a file, whose end is told if it fails."""
    folder = place / mode
    shutil.copytree(script.parent, folder)
    out, log = place / f"{mode}.json", place / f"{mode}.log"
    found = [str(place / f"{name}.json") for name in ("kernel_tuner", "tuner")]
    command = [
        sys.executable,
        str(CHILD),
        mode,
        str(folder / script.name),
        str(out),
        "--most",
        str(options.most),
    ]
    if mode == "neutral":
        command += ["--found", *found]
    begun = time.monotonic()
    error = ""
    with log.open("w") as output:
        try:
            subprocess.run(
                command, check=False, cwd=folder, stdout=output, stderr=output, timeout=options.timeout
            )
        except subprocess.TimeoutExpired:
            error = f"took more than {options.timeout:g} s"
    document: Document = json.loads(out.read_text()) if out.exists() else {"calls": [], "error": ""}
    document["error"] = error or document["error"] or ("" if out.exists() else log.read_text()[-400:])
    return {**document, "wall_s": time.monotonic() - begun}


def summary(scripts: Sequence[Document]) -> Document:
    """How many scripts ran, and how many calls found a best within 2 %."""
    ran_ = [one for one in scripts if "calls" in one]
    calls = [call for one in ran_ for call in one["calls"]]
    within = [call for call in calls if call["warm_ratio"] is not None and call["warm_ratio"] <= WITHIN]
    cold = [call for call in calls if call["cold_ratio"] is not None and call["cold_ratio"] <= WITHIN]
    return {
        "scripts_run": len(ran_),
        "scripts_skipped": len(scripts) - len(ran_),
        "calls": len(calls),
        "calls_within_2_percent_warm": len(within),
        "calls_within_2_percent_cold": len(cold),
    }


def lines(one: Document) -> list[str]:
    """A script in lines of a table."""
    if "skipped" in one:
        return [f"{one['script']:32} skipped: {one['skipped']}"]
    told = [f"{one['script']:32} walls {one['kernel_tuner']['wall_s']:.1f} s, {one['tuner']['wall_s']:.1f} s"]
    told += [f"    {name}: {one[name]['error']}" for name in ("kernel_tuner", "tuner") if one[name]["error"]]
    told += [f"    neutral: {one['neutral_error']}"] if one["neutral_error"] else []
    for call in one["calls"]:
        theirs, ours = call["kernel_tuner"], call["tuner"]
        valid = [f"{one['valid']}/{one['results']}" for one in (theirs, ours)]
        told.append(
            f"    {call['kernel']:28} {' and '.join(valid)} valid,"
            f" {theirs['wall_s']:.1f} s and {ours['wall_s']:.1f} s, ours/theirs"
            f" warm {_ratio(call['warm_ratio'])} cold {_ratio(call['cold_ratio'])}"
        )
        told.append(f"        {theirs['best']} | {ours['best']}")
    return told


def shown(document: Document) -> str:
    """The last lines."""
    return (
        f"{document['scripts_run']} scripts run, {document['scripts_skipped']} skipped;"
        f" of {document['calls']} calls {document['calls_within_2_percent_warm']} within 2 % (warm),"
        f" {document['calls_within_2_percent_cold']} within 2 % (cold)"
    )


def _ratio(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    main()
