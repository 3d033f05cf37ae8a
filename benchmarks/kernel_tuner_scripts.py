"""Kernel Tuner's example scripts with one import changed: which run, and what the others lack.

Every script runs in a process of its own, on copies of its files, with ``tuner.kernel_tuner`` in the place of
``kernel_tuner``. Nothing else of it changes, but that a call measures at most ``--most`` configurations of
its space, and that its device is ``--device`` where it names none. The scripts are not part of this project.

    git clone https://github.com/KernelTuner/kernel_tuner
    python benchmarks/kernel_tuner_scripts.py kernel_tuner/examples/cuda --out scripts.json
    python benchmarks/kernel_tuner_scripts.py SCRIPT.py --device cuda:0 --out gpu.json
    python benchmarks/kernel_tuner_scripts.py scripts.json gpu.json --docs PAGE --out both.json
"""

import argparse
import functools
import inspect
import json
import math
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from headlines import write_table
from provenance import command_line, provenance, save

Document = Mapping[str, Any]

IMPORTS = (
    (r"(?m)^(\s*)import kernel_tuner\s*$", r"\1import tuner.kernel_tuner as kernel_tuner"),
    (r"(?m)^(\s*from )kernel_tuner\b", r"\1tuner.kernel_tuner"),
)
RUNS, ITSELF, REFUSED = "runs", "skips itself", "refused"


def main() -> None:
    """Run scripts, or take a result, and print the table."""
    parser = command_line(__doc__)
    parser.add_argument("path", type=Path, help="a folder of scripts, one script, or a result to show")
    parser.add_argument("others", type=Path, nargs="*", help="results whose scripts ran elsewhere, too")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # in this process, as it is
    parser.add_argument("--device", default="sim:h200")
    parser.add_argument("--most", type=int, default=4, help="configurations that a call measures at most")
    parser.add_argument("--at-once", type=int, default=1, help="scripts that run at a time")
    parser.add_argument("--timeout", type=float, default=900, help="seconds of one script at most")
    parser.add_argument("--docs", type=Path, help="the page to write the table into")
    options = parser.parse_args()
    if options.here:
        save(options.out, run_here(options.path, options.device, options.most))
        return
    if options.path.suffix == ".json":
        document = json.loads(options.path.read_text("utf-8"))
        for other in options.others:
            ran_there(document, json.loads(other.read_text("utf-8")))
        if options.out is not None:
            save(options.out, document)
    else:
        paths = [options.path] if options.path.suffix == ".py" else sorted(options.path.glob("*.py"))
        with ThreadPoolExecutor(options.at_once) as pool:
            scripts = list(pool.map(lambda script: ran(script, options), paths))
        document = {"scripts": scripts, "device": options.device, "most": options.most}
        save(options.out, document | {"provenance": provenance()})
    if options.docs is not None:
        write_table(options.docs, "scripts", table(document))
    else:
        print(table(document))


# --- one script, in this process -----------------------------------------------------------------


def run_here(script: Path, device: str, most: int) -> Document:
    """Run a script; its calls, and how it ended."""
    from tuner import kernel_tuner  # noqa: PLC0415 - only where a script runs

    calls: list[Document] = []
    kernel_tuner.tune_kernel = watched(kernel_tuner.tune_kernel, calls, device, most)
    kernel_tuner.run_kernel = on_device(kernel_tuner.run_kernel, device)
    ended: Callable[[str], tuple[str, str]] = tested if "import pytest" in script.read_text() else called
    state, why = ended(str(script))
    return {"script": script.name, "state": state, "why": why, "calls": calls}


def called(script: str) -> tuple[str, str]:
    """Run a script by its name, and tell how it ended."""
    sys.argv = [script]
    try:
        runpy.run_path(script, run_name="__main__")
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a script may end by anything
        return REFUSED, told(error)
    return RUNS, ""


def tested(script: str) -> tuple[str, str]:
    """Run a script by pytest, and tell how it ended."""
    import pytest  # noqa: PLC0415 - only where a script is a test

    found: list[tuple[str, str]] = []

    class Plugin:
        """Notes what failed, and what was skipped."""

        def pytest_exception_interact(self, call: Any) -> None:
            found.append((REFUSED, told(call.excinfo.value)))

        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.skipped:
                found.append((ITSELF, report.longrepr[2].removeprefix("Skipped: ")))

    pytest.main(["-q", "-p", "no:cacheprovider", script], plugins=[Plugin()])
    return found[0] if found else (RUNS, "")


def told(error: BaseException) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def on_device(function: Callable[..., Any], device: str) -> Callable[..., Any]:
    """A function with another default device."""
    return functools.wraps(function)(functools.partial(function, device=device))


def watched(
    tune_kernel: Callable[..., Any], calls: list[Document], device: str, most: int
) -> Callable[..., Any]:
    """``tune_kernel`` with a budget, whatever its strategy."""

    @functools.wraps(tune_kernel)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(tune_kernel).bind(*args, **{"device": device, **kwargs}).arguments
        given["strategy_options"] = {"max_fevals": most, **(given.get("strategy_options") or {})}
        begun = time.perf_counter()
        results, env = tune_kernel(**given)
        calls.append(
            {
                "kernel": given["kernel_name"],
                "combinations": math.prod(len(values) for values in given["tune_params"].values()),
                "results": len(results),
                "valid": sum("__error__" not in one for one in results),
                "wall_s": round(time.perf_counter() - begun, 1),
            }
        )
        return results, env

    return call


# --- all scripts ---------------------------------------------------------------------------------


def ran(script: Path, options: argparse.Namespace) -> Document:
    """Run a script in a process of its own, with its folder copied and its import changed."""
    with tempfile.TemporaryDirectory() as place:
        folder, out = Path(place, "scripts"), Path(place, "out.json")
        shutil.copytree(script.parent, folder)
        copy, text = folder / script.name, script.read_text("utf-8")
        for pattern, ours in IMPORTS:
            text = re.sub(pattern, ours, text)
        copy.write_text(text, "utf-8")
        words = ["--device", options.device, "--most", str(options.most), "--out", str(out)]
        command = [sys.executable, __file__, str(copy), "--here", *words]
        begun = time.monotonic()
        try:
            ended = subprocess.run(
                command,
                check=False,
                cwd=folder,
                env={**os.environ, "XDG_STATE_HOME": place},
                capture_output=True,
                text=True,
                timeout=options.timeout,
            )
            why = ended.stderr[-400:]
        except subprocess.TimeoutExpired:
            why = f"took more than {options.timeout:g} s"
        failed = {"script": script.name, "state": "failed", "why": why, "calls": []}
        found = json.loads(out.read_text()) if out.exists() else failed
    found["wall_s"] = round(time.monotonic() - begun, 1)
    print(f"{found['script']:36} {found['state']:13} {found['wall_s']:6} s  {found['why']}", flush=True)
    return dict(found)


def ran_there(document: dict[str, Any], other: Document) -> None:
    """Put scripts in the place of their refusals that ran on another device."""
    found = {
        one["script"]: one | {"device": other["device"]} for one in other["scripts"] if one["state"] == RUNS
    }
    document["scripts"] = [
        one if one["state"] == RUNS else found.get(one["script"], one) for one in document["scripts"]
    ]


def table(document: Document) -> str:
    """The scripts in Markdown: those that run, with the combinations of each call, and why others do not."""
    scripts = document["scripts"]
    running = [one for one in scripts if one["state"] == RUNS]
    share = f"{len(running)} of {len(scripts)} run on `{document['device']}`"
    elsewhere = [one for one in running if "device" in one]
    if elsewhere:
        share += f", {len(elsewhere)} of them on `{elsewhere[0]['device']}` alone"
    each = []
    for one in running:
        calls = ", ".join(f"{call['combinations']:,}" for call in one["calls"][:3])
        more = f" and {len(one['calls']) - 3} more calls" if len(one["calls"]) > 3 else ""
        each.append(f"`{one['script']}` {calls}{more}".rstrip())
    rows = [f"{share} (combinations of each call):", *(f"{text};" for text in each[:-1]), *each[-1:]]
    rows += ["", "| script | state | what is missing |", "| --- | --- | --- |"]
    for one in scripts:
        if one["state"] != RUNS:
            why = one["why"].replace("|", "\\|")
            rows.append(f"| `{one['script']}` | {one['state']} | {why} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
