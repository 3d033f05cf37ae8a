"""CPU time of a short warm run on a simulated GPU, by phase: the interpreter, imports by package, the rest.

    python benchmarks/start_profile.py --json benchmarks/results/start-profile.json

Byte code is kept, as pip does, and a first run fills the caches. Times are CPU seconds of all processes that
are waited for: the median of all runs, and the shortest, which other work on the machine lengthens least. Of
each module it is the shortest of all runs, without what it imports.
"""

import argparse
import dataclasses
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import timeit
from pathlib import Path
from statistics import median
from typing import Any

from provenance import provenance, save

RUN = ("run", "scan-lf:N=1024", "--device", "sim:h200", "--budget", "2")
_CHILD = """
import dataclasses, importlib.machinery, json, sys, time

spent, inside = {}, [0.0]

def timed(load):
    def exec_module(loader, module):
        inside.append(0.0)
        begun_s = time.thread_time()
        try:
            load(loader, module)
        finally:
            whole_s = time.thread_time() - begun_s
            spent[module.__name__] = whole_s - inside.pop()
            inside[-1] += whole_s
    return exec_module

for loader in (importlib.machinery.SourceFileLoader, importlib.machinery.ExtensionFileLoader):
    loader.exec_module = timed(loader.exec_module)
from tuner.cli.main import main
main(sys.argv[1:], standalone_mode=False)
members = [member for module in list(sys.modules.values()) for member in vars(module).values()]
classes = {member for member in members if isinstance(member, type) and dataclasses.is_dataclass(member)}
print(json.dumps([spent, len(classes)]))
"""


def cpu_s(command: list[str], environment: dict[str, str]) -> float:
    """CPU seconds of a command and of what it waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def summary(times: list[float]) -> dict[str, float]:
    """Median and shortest of some times."""
    return {"median_s": round(median(times), 3), "shortest_s": round(min(times), 3)}


def imports(environment: dict[str, str], repeats: int) -> tuple[dict[str, Any], int]:
    """CPU seconds of imports by package, and of the heaviest modules; and how many dataclasses there are."""
    shortest: dict[str, float] = {}
    command, classes = [sys.executable, "-c", _CHILD, *RUN], 0
    for _ in range(repeats):
        ran = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        spent, classes = json.loads(ran.stdout.splitlines()[-1])
        for module, seconds in spent.items():
            shortest[module] = min(seconds, shortest.get(module, seconds))
    packages = dict[str, float]()
    for module, seconds in shortest.items():
        package = module.partition(".")[0]
        package = "standard library" if package in sys.stdlib_module_names else package
        packages[package] = packages.get(package, 0.0) + seconds
    heaviest = sorted(shortest, key=lambda module: -shortest[module])[:20]
    found = {
        "modules": len(shortest),
        "total_s": round(sum(shortest.values()), 3),
        "by_package_s": {
            name: round(one, 4) for name, one in sorted(packages.items(), key=lambda pair: -pair[1])
        },
        "heaviest_s": {module: round(shortest[module], 4) for module in heaviest},
    }
    return found, classes


def dataclass_s() -> float:
    """CPU seconds that the decorator takes for a frozen dataclass of five fields."""

    def declared() -> type:
        @dataclasses.dataclass(frozen=True)
        class Value:
            """A value."""

            a: int
            b: int
            c: int
            d: int
            e: int = 0

        return Value

    return round(min(timeit.repeat(declared, timer=time.process_time, number=20, repeat=50)) / 20, 6)


def main() -> None:
    """Measure, print, and store as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment |= {"XDG_CACHE_HOME": folder, "XDG_STATE_HOME": folder}
        command = [sys.executable, "-m", "tuner", *RUN]
        cpu_s(command, environment)
        nothing = [cpu_s([sys.executable, "-c", ""], environment) for _ in range(options.repeats)]
        whole = [cpu_s(command, environment) for _ in range(options.repeats)]
        imported, classes = imports(environment, options.repeats)
        document = {
            "provenance": provenance(),
            "run": " ".join(("tuner", *RUN)),
            "whole": summary(whole),
            "interpreter": summary(nothing),
            "imports": imported,
            "dataclasses": {"count": classes, "each_s": dataclass_s()},
        }
    save(options.out, document)
    print(f"{document['run']}: {document['whole']}, interpreter {document['interpreter']}")
    print(f"imports {document['imports']['total_s']} s: {document['imports']['by_package_s']}")
    print(f"dataclasses: {document['dataclasses']}")


if __name__ == "__main__":
    main()
