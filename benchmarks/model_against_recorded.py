"""The simulated H200's modelled times against recorded ones: rank correlation by kernel and size.

Nothing is compiled or run: the recordings hold registers and shared memory of every configuration, the model
gets these and the plan. Half of the sizes were used to fit the model's constants; the others are held out.

Most recorded spaces are flat: half of the configurations lie within 2 % of the fastest, at the limit of the
memory, where ranks are those of tenths of a percent. So there are three numbers for every space:

* Spearman's rank correlation over all configurations;
* the same over those that are more than 2 % slower than the fastest: four times the 0.5 % by which two
  windows of one trial may differ, and so beyond the noise;
* of all pairs whose recorded times differ by more than 2 %, the share that the model puts in the right order.

A kernel's number is the median over its sizes; beside it stands the correlation of all its sizes together, in
times relative to the fastest of their size.

    python benchmarks/model_against_recorded.py --out benchmarks/results/model-h200.json
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from provenance import command_line, provenance, save
from scipy.stats import spearmanr

import tuner
from tuner.devices.gpu_models import gpu_model
from tuner.devices.simulated.device import MODEL_VERSION
from tuner.devices.simulated.time_model import RoundModel
from tuner.kernel_files.catalog import Catalog
from tuner.model.plan import Resources
from tuner.model.trial import Trial
from tuner.recordings.files import RecordingFile
from tuner.recordings.values import RecordedSpace

RECORDINGS = Path(tuner.__file__).parent / "recordings" / "h200.zip"
BEYOND = 0.02  # relative difference that is beyond the noise
FITTED_SIZES = {64, 256, 1024, 4096, 2**14, 2**16, 2**18, 2**21}  # of N; the others are held out
PAIRS = 600  # configurations of a space of which all pairs are compared

_TIMES = ("modelled_s", "recorded_s")

Times = NDArray[np.float64]


@dataclass(frozen=True)
class Compared:
    """Modelled and recorded seconds of the configurations of one space."""

    kernel: str
    size: int
    modelled_s: Times
    recorded_s: Times

    @property
    def beyond(self) -> NDArray[np.bool_]:
        """Configurations that are slower than the fastest beyond the noise."""
        return np.asarray(self.recorded_s > (1 + BEYOND) * self.recorded_s.min())


def main() -> None:
    """Compare all recorded spaces of a single workload, print and write the rows."""
    parser = command_line(__doc__, must_save=True)
    parser.add_argument("--gpu", default="h200")
    options = parser.parse_args()
    catalog, archive = Catalog.load(), RecordingFile(RECORDINGS)
    spaces = [
        compared(archive.space(names), catalog, options.gpu) for names in archive.names if len(names) == 1
    ]
    kernels = list(dict.fromkeys(space.kernel for space in spaces))
    rows = [of_kernel([s for s in spaces if s.kernel == kernel]) for kernel in kernels]
    document = {"provenance": provenance(), "model": MODEL_VERSION, "kernels": rows}
    save(options.out, document)
    print("kernel        all: median (held out) together   beyond 2 %: median (held out)   pairs   error")
    for row in rows:
        print(
            f"{row['kernel']:12}  {row['all']:.2f} ({row['all_held_out']:.2f}) {row['together']:.2f}"
            f"    {row['beyond']:.2f} ({row['beyond_held_out']:.2f})"
            f"    {row['pairs_in_order']:.0%}    {row['median_error']:.1%}"
        )


def compared(space: RecordedSpace, catalog: Catalog, gpu: str) -> Compared:
    """Model what was recorded, by the recorded resources."""
    (workload,) = space.workloads
    kernel = catalog.kernel(workload.kernel)
    problem = replace(catalog.workload(workload.name), batch=workload.batch)
    simulated = gpu_model(gpu)
    model = RoundModel(simulated)
    pairs = []
    for candidate in workload.candidates:
        measurement = space.look(Trial((candidate.configuration,)))
        plan = kernel.plan(problem, candidate.configuration)
        taken = [
            Resources(launch.registers_per_thread, launch.shared_bytes - stage.shared_bytes)
            for launch, stage in zip(candidate.launches, plan.stages, strict=True)
        ]
        if measurement.makespan_s is None or model.misfit(plan, taken):
            continue
        modelled = model.round([plan], simulated.clocks_mhz[0])
        pairs.append((modelled.ends_s[0], measurement.makespan_s))
    modelled_s, recorded_s = np.array(pairs).T
    return Compared(workload.kernel, int(workload.sizes["N"]), modelled_s, recorded_s)


def of_kernel(spaces: list[Compared]) -> dict[str, Any]:
    """The numbers of a kernel and of each of its sizes."""
    sizes = [of_size(space) for space in spaces]
    held_out = [row for row in sizes if not row["fitted"]]
    together = [np.concatenate([getattr(s, k) / getattr(s, k).min() for s in spaces]) for k in _TIMES]
    return {
        "kernel": spaces[0].kernel,
        "all": _median(sizes, "all"),
        "all_held_out": _median(held_out, "all"),
        "together": float(spearmanr(*together).statistic),
        "beyond": _median(sizes, "beyond"),
        "beyond_held_out": _median(held_out, "beyond"),
        "pairs_in_order": _median(sizes, "pairs_in_order"),
        "median_error": _median(sizes, "median_error"),
        "sizes": sizes,
    }


def of_size(space: Compared) -> dict[str, Any]:
    """The numbers of one space."""
    beyond = space.beyond
    return {
        "N": space.size,
        "fitted": space.size in FITTED_SIZES,
        "configurations": len(beyond),
        "within_noise": float(1 - beyond.mean()),
        "all": float(spearmanr(space.modelled_s, space.recorded_s).statistic),
        "beyond": float(spearmanr(space.modelled_s[beyond], space.recorded_s[beyond]).statistic),
        "pairs_in_order": pairs_in_order(space),
        "median_error": float(np.median(np.abs(space.modelled_s / space.recorded_s - 1))),
        "modelled_best_above": float(
            space.recorded_s[space.modelled_s.argmin()] / space.recorded_s.min() - 1
        ),
    }


def pairs_in_order(space: Compared) -> float:
    """Of the pairs that differ beyond the noise, the share in the right order; of many, a sample."""
    count = len(space.recorded_s)
    drawn = np.random.default_rng(0).permutation(count)[:PAIRS]
    recorded, modelled = space.recorded_s[drawn], space.modelled_s[drawn]
    differ = recorded[:, None] > (1 + BEYOND) * recorded[None, :]
    return float((modelled[:, None] > modelled[None, :])[differ].mean())


def _median(rows: list[dict[str, Any]], key: str) -> float:
    return float(np.median([row[key] for row in rows]))


if __name__ == "__main__":
    main()
