"""CPU time of a short warm run on a simulated GPU, by phase: the interpreter, imports by package, the rest.

    python benchmarks/start_profile.py --json benchmarks/results/start-profile.json

Byte code is kept, as pip does, and a first run fills the caches. Times are CPU seconds of all processes that
are waited for: the median of all runs, and the shortest, which other work on the machine lengthens least.
Imports are timed by ``-X importtime``: of each module the shortest of all runs, without what it imports.
"""

import argparse
import dataclasses
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import timeit
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

from provenance import provenance, save

RUN = ("run", "scan-lf:N=1024", "--device", "sim:h200", "--budget", "2")
_IMPORT = re.compile(r"import time:\s+(\d+) \|\s+\d+ \| +(\S+)")
_COUNT = (
    "import sys, dataclasses; from tuner.cli.main import main; main(sys.argv[1:], standalone_mode=False);"
    " print(len({c for m in list(sys.modules.values()) for c in vars(m).values()"
    " if isinstance(c, type) and dataclasses.is_dataclass(c)}))"
)


def cpu_s(command: list[str], environment: dict[str, str]) -> float:
    """CPU seconds of a command and of what it waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def summary(times: list[float]) -> dict[str, float]:
    """Median and shortest of some times."""
    return {"median_s": round(median(times), 3), "shortest_s": round(min(times), 3)}


def imports(environment: dict[str, str], repeats: int) -> dict[str, Any]:
    """Seconds of imports by package, and of the heaviest modules."""
    shortest: dict[str, int] = {}
    command = [sys.executable, "-X", "importtime", "-m", "tuner", *RUN]
    for _ in range(repeats):
        ran = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        for microseconds, module in _IMPORT.findall(ran.stderr):
            shortest[module] = min(int(microseconds), shortest.get(module, sys.maxsize))
    packages: Counter[str] = Counter()
    for module, microseconds in shortest.items():
        package = module.partition(".")[0]
        packages["standard library" if package in sys.stdlib_module_names else package] += microseconds
    heaviest = sorted(shortest, key=lambda module: -shortest[module])[:20]
    return {
        "modules": len(shortest),
        "total_s": round(sum(shortest.values()) / 1e6, 3),
        "by_package_s": {name: round(one / 1e6, 4) for name, one in packages.most_common() if one > 1000},
        "heaviest_s": {module: round(shortest[module] / 1e6, 4) for module in heaviest},
    }


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
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment |= {"XDG_CACHE_HOME": folder, "XDG_STATE_HOME": folder}
        command = [sys.executable, "-m", "tuner", *RUN]
        cpu_s(command, environment)
        nothing = [cpu_s([sys.executable, "-c", ""], environment) for _ in range(options.repeats)]
        whole = [cpu_s(command, environment) for _ in range(options.repeats)]
        counted = subprocess.run(
            [sys.executable, "-c", _COUNT, *RUN], env=environment, check=True, capture_output=True, text=True
        )
        document = {
            "provenance": provenance(),
            "run": " ".join(("tuner", *RUN)),
            "whole": summary(whole),
            "interpreter": summary(nothing),
            "imports": imports(environment, options.repeats),
            "dataclasses": {"count": int(counted.stdout.split()[-1]), "each_s": dataclass_s()},
        }
    save(options.json, document)
    print(f"{document['run']}: {document['whole']}, interpreter {document['interpreter']}")
    print(f"imports {document['imports']['total_s']} s: {document['imports']['by_package_s']}")
    print(f"dataclasses: {document['dataclasses']}")


if __name__ == "__main__":
    main()
