"""Prints tables of kernels.md: long scans, transforms of any length, long tridiagonal systems, an H100.

python benchmarks/kernels/show_prefix_peers.py TABLE
"""

import argparse
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"
SHORT = 256  # lengths of one part of the table of transforms
LONG_SCAN = 2**24
REAL_KINDS = {
    "fft-real-long-h100": ("real-long", "real-long-back"),
    "fft-real-long-double-h100": ("double-real-long", "real-long-primes"),
}
BLUESTEIN = (10007, 65537)


def rows_of(name: str, kind: str | None = None) -> list[dict[str, Any]]:
    """The rows of a stored file; those of one kind, or of all."""
    rows = json.loads((RESULTS / f"{name}.json").read_text())["rows"]
    if kind is not None:
        return list(rows[kind])
    return [row for part in rows.values() for row in part] if isinstance(rows, dict) else list(rows)


def long_scan() -> Iterator[str]:
    """A row for each scan: time, part of a copy, ratio to CUB."""
    yield "| what | time | of a copy | × CUB | configuration |"
    yield "| --- | --- | --- | --- | --- |"
    segments = {row["name"]: row for row in rows_of("scan-segments-h200") if "segments" in row["name"]}
    whole = [row for row in rows_of("long-scan-peers-h200") if row["name"] not in segments]
    for row in (*whole, *segments.values()):
        time = f"{row['ms']:.4f} ± {row['spread_ms']:.4f} ms"
        yield (
            f"| {row['name']} | {time} | {100 * row['of_copy']:.1f} % | {row['ratio']:.2f}"
            f" | {row['configuration']} |"
        )


def fft_any() -> Iterator[str]:
    """A row for each range of lengths: how many are no slower than cuFFT, mean and least ratio."""
    yield "| lengths | count | ≥ 1.0 × cuFFT | geometric mean | least | of the default, mean |"
    yield "| --- | --- | --- | --- | --- | --- |"
    complex_rows = rows_of("fft-any-complex-h200")
    by_length = {
        "smooth, to 256": [row for row in complex_rows if row["N"] <= SHORT],
        "smooth, 320 to 2048": [row for row in complex_rows if SHORT < row["N"] <= 8 * SHORT],
        "smooth, above": [row for row in complex_rows if row["N"] > 8 * SHORT],
        "smooth, all": complex_rows,
        "primes, 17 to 4093": rows_of("fft-any-primes-h200", "primes"),
        "complex128, 30 to 5000": rows_of("fft-any-double-h200", "double"),
        "float64 to frequencies": rows_of("fft-any-double-real-h200", "double-real"),
        "float32 to frequencies": rows_of("fft-any-real-h200", "real"),
        "float32 back": rows_of("fft-any-real-back-h200", "real-back"),
    }
    for what, rows in by_length.items():
        yield f"| {what} | {_figures(rows)} |"


def fft_weakest() -> Iterator[str]:
    """Rows for each kind, untuned and searched: part of a copy, how many are no slower than cuFFT, ratios."""
    yield "| rows | count | | of a copy | ≥ 1.0 × cuFFT | geometric mean | least |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    kinds = {
        "complex128": "double",
        "float32 forward": "real",
        "float32 inverse": "real-back",
        "float64 forward": "double-real",
    }
    for what, kind in kinds.items():
        rows = rows_of("fft-any-weakest-h200", kind)
        for state, key in (("untuned before", "stated_ms"), ("searched", "ms")):
            ratios = [row["peer_ms"] / row[key] for row in rows]
            parts = sorted(row["copy_ms"] / row[key] for row in rows)
            yield (
                f"| {what} | {len(rows)} | {state} | {100 * parts[0]:.0f} … {100 * parts[-1]:.0f} %"
                f" | {sum(ratio >= 1 for ratio in ratios)} | {_mean(ratios):.2f} | {min(ratios):.2f} |"
            )


def fft_long() -> Iterator[str]:
    """A row for each length: time, part of a copy, ratio to cuFFT, default."""
    yield "| N | type | time | of a copy | × cuFFT | of the default | configuration |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for row in rows_of("fft-long-h200"):
        time = f"{row['ms']:.4f} ± {row['spread_ms']:.4f} ms"
        yield (
            f"| {row['N']} | {row['dtype']} | {time} | {100 * row['copy_ms'] / row['ms']:.1f} %"
            f" | {row['ratio']:.2f} | {row['peer_ms'] / row['default_ms']:.2f} | {row['configuration']} |"
        )


def fft_real_long() -> Iterator[str]:
    """A row for each length and direction: time, part of a copy, ratio to cuFFT, of the stated answer too."""
    yield "| N | type | direction | time | of a copy | × cuFFT | of the stated answer | configuration |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    rows = rows_of("fft-real-long-h200")
    for row in rows:
        time = f"{row['ms']:.4f} ± {row['spread_ms']:.4f} ms"
        yield (
            f"| {row['N']} | {row['dtype']} | {row['direction']} | {time}"
            f" | {100 * row['copy_ms'] / row['ms']:.1f} % | {row['ratio']:.2f}"
            f" | {row['peer_ms'] / row['stated_ms']:.2f} | {row['configuration']} |"
        )
    best, stated = ([row["peer_ms"] / row[key] for row in rows] for key in ("ms", "stated_ms"))
    yield f"geometric mean {_mean(best):.2f}, of the stated answers {_mean(stated):.2f}"


def fft_planes() -> Iterator[str]:
    """A row for each plane, set of columns and convolution: time, part of a copy, ratio to cuFFT, default."""
    yield "| kernel | sizes | time | of a copy | × cuFFT | of the default | configuration |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for row in rows_of("fft-planes-h200"):
        sizes = ", ".join(str(row[name]) for name in ("M", "N", "W", "direction") if name in row)
        time = f"{row['ms']:.4f} ± {row['spread_ms']:.4f} ms"
        yield (
            f"| `{row['kernel']}` | {sizes} | {time} | {100 * row['copy_ms'] / row['ms']:.1f} %"
            f" | {row['ratio']:.2f} | {row['peer_ms'] / row['default_ms']:.2f} | {row['configuration']} |"
        )


def on_h100() -> Iterator[str]:
    """A row for each group of problems: how many are no slower than the peer, ratios, part of a copy."""
    scans, systems = rows_of("long-scan-peers-h100"), rows_of("tridiag-large-h100")
    whole = "form=whole"
    complex_rows = rows_of("fft-long-h100", "long")
    double_rows = rows_of("fft-long-double-h100", "double-long")
    real_rows = [row for file, kinds in REAL_KINDS.items() for kind in kinds for row in rows_of(file, kind)]
    bluestein = [row for row in real_rows if row["N"] in BLUESTEIN]
    by_passes = [row for row in real_rows if row["N"] not in BLUESTEIN]
    sums = [
        row
        for row in scans
        if row["name"].startswith("inclusive sum, float32, N") and "by" not in row["name"]
    ]
    groups = {
        "scans of a row, float32, 2^20 … 2^23": [row for row in sums if row["N"] < LONG_SCAN],
        "scans of a row, float32, 2^24 … 2^30": [row for row in sums if row["N"] >= LONG_SCAN],
        "other types, operators and forms": [
            row for row in scans if row not in sums and "by" not in row["name"] and "recur" not in row["name"]
        ],
        "recurrences": [row for row in scans if "recurrence" in row["name"]],
        "segments by flags": [row for row in scans if "by flags" in row["name"]],
        "segments by offsets": [row for row in scans if "by offsets" in row["name"]],
        "systems of float64 and complex64, N ≤ 4096": [row for row in systems if "-wm" in row["name"]],
        "long systems": [row for row in systems if "-large" in row["name"]],
        "long systems, periodic or with several right sides": rows_of("tridiag-sides-h100"),
        "complex rows of 6 … 8000 numbers, of 2, 3, 5 and 7": rows_of("fft-any-complex-h100", "complex"),
        "complex rows of primes, 17 … 4093": rows_of("fft-any-primes-h100", "primes"),
        "complex128, rows of 30 … 6000": rows_of("fft-any-double-h100", "double"),
        "real rows of 30 … 6000 to frequencies": rows_of("fft-any-real-h100", "real"),
        "real rows of 30 … 6000 back": rows_of("fft-any-real-back-h100", "real-back"),
        "complex rows of 8748 … 20736": [row for row in complex_rows if whole in row["configuration"]],
        "complex rows of 44100 … 2^24": [row for row in complex_rows if whole not in row["configuration"]],
        "complex128, rows of 8748 … 2^24": double_rows,
        "complex rows of 10007 … 2^24 - 3, by Bluestein": rows_of("fft-long-double-h100", "long-primes"),
        "real rows of 8748 … 20020, both ways": [row for row in by_passes if whole in row["configuration"]],
        "real rows of 19683 … 2^24, both ways": [
            row for row in by_passes if whole not in row["configuration"]
        ],
        "real rows of 10007 and 65537, by Bluestein": bluestein,
        **{
            f"`{kind}`": rows_of("fft-planes-h100", kind)
            for kind in ("fft-2d", "fft-columns", "fft-convolution")
        },
    }
    yield "| what | count | ≥ 1.0 × the peer | geometric mean | least | of a copy, or bare kernel |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for what, rows in groups.items():
        ratios, parts = [row["ratio"] for row in rows], sorted(map(_of_copy, rows))
        yield (
            f"| {what} | {len(rows)} | {sum(ratio >= 1 for ratio in ratios)} | {_mean(ratios):.2f}"
            f" | {min(ratios):.2f} | {100 * parts[0]:.0f} … {100 * parts[-1]:.0f} % |"
        )


def _of_copy(row: Mapping[str, Any]) -> float:
    """The time that a copy, or a kernel which moves the same bytes, takes of a row's."""
    part = row.get("of_copy") or row.get("of_bare")
    return float(row["copy_ms"] / row["ms"] if part is None else part)


def _figures(rows: Sequence[Mapping[str, Any]]) -> str:
    ratios = [row["ratio"] for row in rows]
    defaults = [row["peer_ms"] / row["default_ms"] for row in rows]
    part = sum(ratio >= 1 for ratio in ratios)
    return f"{len(rows)} | {part} | {_mean(ratios):.2f} | {min(ratios):.2f} | {_mean(defaults):.2f}"


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def tridiagonal(name: str, part: str = "") -> Iterator[str]:
    """A row for each system whose name has a part: time, part of bare memory traffic, ratio to cuSPARSE."""
    yield "| systems | time | of bare | × cuSPARSE | the stated answer | configuration |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for row in (row for row in rows_of(name) if part in row["name"]):
        time = f"{row['ms']:.4f} ± {row['spread_ms']:.4f} ms"
        yield (
            f"| {row['name']} | {time} | {100 * row['of_bare']:.1f} % | {row['ratio']:.2f}"
            f" | {row['stated_ms']:.4f} ms | {row['configuration']} |"
        )


TABLES = {
    "long-scan": long_scan,
    "fft-any": fft_any,
    "fft-weakest": fft_weakest,
    "fft-long": fft_long,
    "fft-real-long": fft_real_long,
    "fft-planes": fft_planes,
    "tridiag-large": partial(tridiagonal, "tridiag-large-h200"),
    "tridiag-periodic": partial(tridiagonal, "tridiag-sides-h200", "periodic"),
    "tridiag-several": partial(tridiagonal, "tridiag-several-h200"),
    "h100": on_h100,
}


def main() -> None:
    """Print one of the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("table", choices=TABLES)
    print("\n".join(TABLES[parser.parse_args().table]()))


if __name__ == "__main__":
    main()
