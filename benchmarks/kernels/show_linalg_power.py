"""The results of linalg_power.py as a picture: power over time of each scheme, joules in the legend.

python benchmarks/kernels/show_linalg_power.py power.json --plot power.svg
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from show_linalg import origin

from tuner.model.units import si, with_uncertainty

Document = dict[str, Any]

_COLOURS = {"gpu-only": "#1f77b4", "hybrid": "#e08e0b", "cusolver": "#c0392b", "gemm": "#9aa5b1"}
_WORDS = {"gpu-only": "GPU-only", "cusolver": "cuSOLVER"}


def main(words: Sequence[str] | None = None) -> int:
    """Print a line for each scheme, and draw where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("result", type=Path)
    parser.add_argument("--plot", type=Path, metavar="FILE.svg")
    options = parser.parse_args(words)
    document = json.loads(options.result.read_text())
    for name, scheme in document["schemes"].items():
        print(line(name, scheme))
    if options.plot is not None:
        picture(document, options.plot)
    return 0


def line(name: str, scheme: Mapping[str, Any]) -> str:
    """A scheme in one line: joules of a run and how long it takes."""
    counted = " + ".join(f"{part['scope']} by {part['sensor']}" for part in scheme["counted"])
    what = scheme["form"] or " ".join(f"{key}={value}" for key, value in scheme["configuration"].items())
    return (
        f"{label(name, scheme)}, net {_figure(scheme['net_joules'], 'J')}, mean {scheme['mean_w']:.0f} W"
        f" ({counted}; {scheme['runs']} runs; {what})"
    )


def label(name: str, scheme: Mapping[str, Any]) -> str:
    """A scheme in the legend."""
    rate = scheme["gflops_per_w"]
    return (
        f"{_WORDS.get(name, name)}: {_figure(scheme['joules'], 'J')} in {si(scheme['seconds'], 's')},"
        f" {rate['value']:.3g} ± {rate['half']:.1g} Gflop/s/W"
    )


def _figure(found: Mapping[str, float], unit: str) -> str:
    return with_uncertainty(found["value"], found["half"], unit)


def uncounted(document: Document) -> str:
    """A sentence where the CPU computes and its joules are not counted; else nothing."""
    hybrid = document["schemes"].get("hybrid")
    if hybrid is None or any(part["scope"] != "gpu" for part in hybrid["counted"]):
        return ""
    return "joules of the CPU, which factors the panels of hybrid, are not counted (--scope gpu+cpu)"


def picture(document: Document, path: Path) -> None:
    """Draw watts of the GPU over time; the same result gives the same file."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "linalg"
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the back end is chosen

    figure, axes = plt.subplots(figsize=(9.0, 4.8), layout="constrained")
    for name, scheme in document["schemes"].items():
        axes.plot(scheme["times_s"], scheme["watts"], lw=1.2, color=_COLOURS[name], label=label(name, scheme))
    sensors = sorted({scheme["curve"]["sensor"] for scheme in document["schemes"].values()})
    scopes = sorted({part["scope"] for scheme in document["schemes"].values() for part in scheme["counted"]})
    note = uncounted(document)
    axes.set(
        xlabel="time since the first run began (s)",
        ylabel=f"power of the GPU (W, {', '.join(sensors)})",
        title=f"{document['operation']}, {document['dtype']}, n = {document['n']}; a run after another\n"
        f"{origin(document)}",
    )
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    title = f"of a run, {' + '.join(scopes)}, ± 95 %" + (f"\n{note}" if note else "")
    figure.legend(
        loc="outside lower left",
        fontsize="small",
        frameon=False,
        title=title,
        title_fontsize="x-small",
        alignment="left",
    )
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    sys.exit(main())
