"""Prints the table of kernels.md of what untuned transforms of short rows take, by what was recorded.

python benchmarks/kernels/show_measured_rows.py
"""

import json
import math
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

from fft_length_cases import INPUT_BYTES
from measured_rows import Record, Size, configurations, records_by_gpu
from measured_shortlists import KERNELS, Transforms

from tuner.kernel_files.catalog import Catalog

RESULTS = Path(__file__).parents[1] / "results"
BEFORE = {  # further configurations of some lengths
    "fft-any": ("fft-any-complex-*", "fft-any-double-h*"),
    "fft-real": ("fft-any-real-*", "fft-any-double-real-*"),
}
LENGTHS = {  # what has every length
    "fft-any": ("fft-any-lengths-*", "fft-any-double-lengths-*"),
    "fft-real": ("fft-real-lengths-*", "fft-real-double-lengths-*"),
}
AFTER = {  # what was timed again
    "fft-any": ("fft-any-double-defaults-*", "fft-any-weakest-*"),
    "fft-real": ("fft-real-defaults-*", "fft-real-double-defaults-*", "fft-any-weakest-*"),
}


def main() -> None:
    """Print a row for each type, direction and GPU."""
    print(
        "| rows | GPU | lengths | default by the answer: mean | largest | of a copy: median | a tenth below |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, patterns in LENGTHS.items():
        before, paths, after = map(paths_of, (BEFORE[name], patterns, AFTER[name]))
        kind = KERNELS[name]
        every, all_times = records_by_gpu(kind, paths), records_by_gpu(kind, [*before, *paths, *after])
        for rows in sorted({key[1:] for record in every.values() for key in record}, key=str):
            for gpu, record in every.items():
                keys = sorted(key for key in record if key[1:] == rows)
                if keys:
                    copy_gb_s = max(copy_of(path) for path in paths if gpu.lower() in path.name)
                    print("|", " | ".join(row_of(kind, keys, gpu, all_times[gpu], copy_gb_s)), "|")


def paths_of(patterns: Iterable[str]) -> list[Path]:
    """Files of results."""
    return [path for pattern in patterns for path in sorted(RESULTS.glob(f"{pattern}.json"))]


def copy_of(path: Path) -> float:
    """GB/s of a copy when a file was recorded."""
    return float(json.loads(path.read_text())["provenance"]["copy_gb_s"])


def row_of(kind: Transforms, keys: list[Size], gpu: str, record: Record, copy_gb_s: float) -> Iterator[str]:
    """The cells of some lengths: by how much the default is slower, and how near to a copy answers are.

    Lengths whose default was not timed are left out.
    """
    kernel = Catalog.load().kernel(kind.kernel)
    slower, parts = [], []
    for key in keys:
        sizes = dict(zip(kind.names, key, strict=True))
        number_bytes = int("".join(filter(str.isdigit, str(key[1])))) // 8
        workload = kernel.workload(sizes, INPUT_BYTES // (number_bytes * int(key[0])))
        times = configurations(kernel, workload, record[key])
        default = [ms for one, ms in times.items() if kind.is_fallback(kernel, workload, one)]
        if default:
            answer = kernel.stated_answers(workload, gpu)[0]
            parts.append(kernel.plan(workload, answer).work.bytes / copy_gb_s / 1e6 / times[answer])
            slower.append(default[0] / times[answer])
    parts.sort()
    yield " ".join(map(str, keys[0][1:]))
    yield gpu
    yield str(len(parts))
    yield f"{math.exp(sum(map(math.log, slower)) / len(slower)):.3f}"
    yield f"{max(slower):.2f}"
    yield f"{100 * parts[len(parts) // 2]:.0f} %"
    yield f"{100 * parts[len(parts) // 10]:.0f} %"


if __name__ == "__main__":
    main()
