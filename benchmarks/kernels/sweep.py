"""Times every configuration of some workloads on this GPU, cold, and checks every answer.

python benchmarks/kernels/sweep.py scan-lf:N=512 fft:N=4096 [--elements 26] [--best 6] [--out sweep.json]
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

import answers
from cold_timing import Timer, median
from provenance import provenance

from tuner.compiler.compiler import Compiler
from tuner.devices.cuda import probe
from tuner.devices.cuda.code import CodeCache
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import CompileError, TunerError
from tuner.model.plan import Configuration, Plan, Workload


@dataclass
class Result:
    """One configuration, timed and checked; ``run`` launches it again on the arrays of its problem."""

    configuration: Configuration
    ms: float
    error: float
    run: Callable[[], None]
    trouble: str = ""
    resources: list[str] = field(default_factory=list)


class Bench:
    """The GPU, the compiler and the arrays of one problem after another."""

    def __init__(self) -> None:
        self.cp = probe.open_cupy(0)
        self.gpu_name = probe.gpu_name(self.cp, 0)
        self.limits = probe.gpu_limits(self.cp, 0)
        self.compiler = Compiler(self.limits.architecture)
        self.code = CodeCache(self.cp, self.compiler, self.limits)
        self.timer = Timer(self.cp)
        self.catalog = Catalog.load()
        self._scratches: dict[tuple[str, tuple[int, ...]], Any] = {}

    def sweep(
        self,
        kernel: KernelFile,
        workload: Workload,
        data: answers.Data,
        repeats: int,
        configurations: Sequence[Configuration] | None = None,
    ) -> list[Result]:
        """Every configuration that compiles without spills, fastest first; wrong answers at the end.

        ``configurations`` limits them to some of the kernel's space.
        """
        architecture = 10 * self.limits.compute_capability[0] + self.limits.compute_capability[1]
        chosen = kernel.space(workload) if configurations is None else configurations
        plans = [kernel.plan(workload, configuration) for configuration in chosen]
        plans = [p for p in plans if all(s.min_architecture <= architecture for s in p.stages)]
        compiled = iter(self.compiler.compile([stage for plan in plans for stage in plan.stages]))
        results = []
        for plan in plans:
            found = [next(compiled) for _ in plan.stages]
            if any(isinstance(item, CompileError) for item in found):
                first = next(item for item in found if isinstance(item, CompileError))
                results.append(_failed(plan, f"does not compile: {str(first)[:300]}"))
                continue
            taken = [item.resources for item in found if not isinstance(item, CompileError)]
            words = [f"{r.registers_per_thread} registers" for r in taken]
            if any(r.spill_bytes or r.local_bytes for r in taken):
                results.append(_failed(plan, "spills"))
                continue
            results.append(self._timed(plan, data, repeats, words))
        return sorted(results, key=lambda r: r.ms)

    def _timed(self, plan: Plan, data: answers.Data, repeats: int, words: list[str]) -> Result:
        try:
            run = self.launcher(plan, data)
            data.poison(self.cp)
            run()
            self.cp.cuda.runtime.deviceSynchronize()
        except (TunerError, self.cp.cuda.driver.CUDADriverError) as trouble:
            return _failed(plan, str(trouble))
        error = data.error(self.cp)
        if not error <= answers.allowed_error(data.family, data.n):
            return _failed(plan, f"wrong: error {error:.1e}", error)
        ms = median([self.timer.once(run) for _ in range(repeats)])
        return Result(plan.configuration, ms, error, run, resources=words)

    def launcher(self, plan: Plan, data: answers.Data) -> Callable[[], None]:
        """What runs a plan once on the arrays of ``data``, on the current stream."""
        names = iter(data.inputs)
        arrays: dict[str, Any] = {}
        for buffer in plan.buffers:
            if buffer.role == "in":
                arrays[buffer.name] = next(names)
            elif buffer.role == "out":
                arrays[buffer.name] = data.output
            else:
                arrays[buffer.name] = self._scratch(buffer.dtype, buffer.shape)
        launches = self.code.launches(plan, arrays)
        stream = self.cp.cuda.get_current_stream()

        def run(_kept: dict[str, Any] = arrays) -> None:  # launches hold addresses
            for launch in launches:
                launch.enqueue(stream)

        return run

    def _scratch(self, dtype: str, shape: tuple[int, ...]) -> Any:
        """Scratch arrays are shared by all configurations: one of each kind is alive at a time."""
        key = (dtype, shape)
        if key not in self._scratches:
            if len(self._scratches) > 4:
                self._scratches.clear()
            self._scratches[key] = self.cp.zeros(shape, dtype)
        return self._scratches[key]


def _failed(plan: Plan, trouble: str, error: float = float("inf")) -> Result:
    return Result(plan.configuration, float("inf"), error, lambda: None, trouble)


def main() -> None:
    """Sweep, print the best of each workload, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("workloads", nargs="+")
    parser.add_argument("--elements", type=int, default=26, help="log2 of the elements of a run")
    parser.add_argument("--best", type=int, default=6, help="configurations to print")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    bench = opened()
    document: dict[str, Any] = {"provenance": provenance(), "workloads": {}}
    for text in options.workloads:
        kernel, workload = _workload(bench, text, 2**options.elements)
        data = answers.make(bench.cp, kernel.family, int(dict(workload.sizes)["N"]), 2**options.elements)
        results = bench.sweep(kernel, workload, data, options.repeats)
        show(text, results, options.best)
        document["workloads"][text] = [
            {**dict(r.configuration), "ms": r.ms, "error": r.error, "trouble": r.trouble} for r in results
        ]
    if options.out is not None:
        options.out.write_text(json.dumps(document, indent=1) + "\n")


def opened() -> Bench:
    """The GPU, or a message and exit code 2 where there is none."""
    try:
        return Bench()
    except TunerError as error:
        print(f"{error}\nThis benchmark needs a CUDA GPU.", file=sys.stderr)
        sys.exit(2)


def show(text: str, results: Sequence[Result], best: int) -> None:
    """The fastest configurations and what failed."""
    good = [r for r in results if not r.trouble]
    print(f"{text}: {len(good)} of {len(results)} configurations run and answer right", flush=True)
    for r in [*good[:best], *good[best:][-1:]]:
        print(f"  {r.ms:8.4f} ms  error {r.error:.1e}  {r.configuration}  {', '.join(r.resources)}")
    troubles: dict[str, list[Result]] = {}
    for r in results:
        if r.trouble:
            troubles.setdefault(r.trouble.split(":")[0], []).append(r)
    for what, failed in troubles.items():
        print(f"  {len(failed)} x {what}, e.g. {failed[0].configuration}: {failed[0].trouble[:200]}")


def _workload(bench: Bench, text: str, elements: int) -> tuple[KernelFile, Workload]:
    name, _, sizes = text.partition(":")
    kernel = bench.catalog.kernel(name)
    pairs = dict(part.split("=") for part in sizes.split(","))
    return kernel, kernel.workload(pairs, batch=elements // int(pairs["N"]))


if __name__ == "__main__":
    main()
