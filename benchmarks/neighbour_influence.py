"""Whether load on one GPU changes the joules and times that are measured on another of the same host.

A fixed kernel runs on one GPU in windows of equal length, while its neighbour is idle or under a steady load.
Windows come in pairs of one of each, in the order idle-loaded, loaded-idle and so on, so that a steady drift
cancels. The difference of a pair is relative to its window with the idle neighbour; its mean has a 95 %
interval by Student's distribution. As a control, windows of two pairs that follow each other with the
neighbour idle both times are compared in the same way: that interval should hold zero.

No setting of a GPU is changed. On two GPUs with the defaults it takes some four minutes:

    python benchmarks/neighbour_influence.py --device cuda:0 --neighbour cuda:1 \
        --out benchmarks/results/neighbour-influence-h100.json
"""

import argparse
import contextlib
import math
import statistics
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provenance import provenance, save

from tuner.devices.base import Device
from tuner.devices.choice import open_device
from tuner.kernel_files.catalog import Catalog
from tuner.model.objective import COVERAGE
from tuner.model.plan import Plan
from tuner.model.trial import Measurement, Trial, student_factor
from tuner.search.request import SearchRequest
from tuner.search.setup import MeasurementSetup, open_setup

_LOAD_S = 0.25  # of one call: the load ends as soon as the call that runs
_LEAST_PAIRS = 2


@dataclass(frozen=True)
class Window:
    """A window on the GPU that is measured.

    Attributes:
        loaded: its neighbour was under load.
        energy_j: of a round.
        time_s: of a round.
        power_w: mean.
    """

    loaded: bool
    energy_j: float
    time_s: float
    power_w: float


@dataclass(frozen=True)
class Change:
    """A mean relative difference.

    Attributes:
        mean: as a fraction.
        interval: half of its 95 % interval.
        pairs: that it is the mean of.
    """

    mean: float
    interval: float
    pairs: int

    @property
    def beyond_chance(self) -> bool:
        """True where its interval does not hold zero."""
        return abs(self.mean) > self.interval


class NeighbourLoad:
    """A steady load on a GPU, in a thread. A context manager.

    Args:
        device: the GPU.
        plans: what it runs.
    """

    def __init__(self, device: Device, plans: Sequence[Plan]) -> None:
        self._device = device
        self._plans = plans
        self._wanted, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="load", daemon=True)
        self.failure = ""

    def __enter__(self) -> "NeighbourLoad":  # noqa: PYI034 - typing.Self needs Python 3.11
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ended.set()
        self._wanted.set()
        self._thread.join()

    def switch(self, *, on: bool) -> None:
        """Begin the load, or end it within a quarter of a second.

        Raises:
            RuntimeError: the load does not run.
        """
        if self.failure:
            raise RuntimeError(f"the neighbour's load does not run: {self.failure}")
        (self._wanted.set if on else self._wanted.clear)()

    def _work(self) -> None:
        while self._wanted.wait() and not self._ended.is_set() and not self.failure:
            results = self._device.run(self._plans, _LOAD_S).results
            self.failure = "; ".join(
                f"{one.status.value} {one.detail}" for one in results if one.time_s is None
            )


def order_of(pairs: int) -> list[bool]:
    """Whether the neighbour is under load, window by window: idle, loaded, loaded, idle, and so on."""
    return [loaded for number in range(pairs) for loaded in ((False, True), (True, False))[number % 2]]


def change(before: Sequence[float], after: Sequence[float]) -> Change:
    """The mean relative difference of pairs."""
    ratios = [later / earlier - 1.0 for earlier, later in zip(before, after, strict=True)]
    if len(ratios) < _LEAST_PAIRS:
        return Change(statistics.fmean(ratios), math.inf, len(ratios))
    spread = statistics.stdev(ratios) / math.sqrt(len(ratios))
    return Change(statistics.fmean(ratios), COVERAGE * student_factor(len(ratios) - 1) * spread, len(ratios))


def influence(windows: Sequence[Window], value: Callable[[Window], float]) -> Change:
    """Change of a value by the neighbour's load, from pairs of windows that follow each other."""
    pairs = [sorted(windows[i : i + 2], key=lambda one: one.loaded) for i in range(0, len(windows), 2)]
    return change([value(idle) for idle, _ in pairs], [value(loaded) for _, loaded in pairs])


def control(windows: Sequence[Window], value: Callable[[Window], float]) -> Change | None:
    """The same of windows that follow each other with the neighbour idle; None where there are too few."""
    inner = zip(windows[1:-1:2], windows[2::2], strict=True)
    alike = [(one, other) for one, other in inner if not one.loaded and not other.loaded]
    if len(alike) < _LEAST_PAIRS:
        return None
    return change([value(one) for one, _ in alike], [value(other) for _, other in alike])


def plans_of(catalog: Catalog, spec: str) -> tuple[Trial, list[Plan]]:
    """The default of a workload as a trial with its plan."""
    workload = catalog.workload(spec)
    kernel = catalog.kernel(workload.kernel)
    default = kernel.default(workload)
    return Trial((default,)), [kernel.plan(workload, default)]


@contextlib.contextmanager
def opened(options: argparse.Namespace, catalog: Catalog) -> Iterator[tuple[MeasurementSetup, NeighbourLoad]]:
    """Both GPUs, ready.

    Raises:
        SystemExit: they are one GPU.
    """
    request = SearchRequest(workloads=(options.workload,), objective="energy", window_s=options.window)
    with open_setup(options.device, request) as setup:
        neighbour = open_device(options.neighbour).device
        with contextlib.closing(neighbour):
            own, other = setup.device.identity, neighbour.identity
            if own.uuid == other.uuid:
                raise SystemExit(f"{own.spec} and {other.spec} are the same GPU ({own.uuid}); name another")
            _, plans = plans_of(catalog, options.load)
            with NeighbourLoad(neighbour, plans) as load:
                yield setup, load


def measured(setup: MeasurementSetup, load: NeighbourLoad, options: argparse.Namespace) -> list[Window]:
    """All windows, after one that warms up and does not count."""
    trial, plans = plans_of(Catalog.load(), options.workload)
    setup.measurer.measure(trial, plans)
    windows = []
    for loaded in order_of(options.pairs):
        load.switch(on=loaded)
        setup.device.sleep(options.settle)
        windows.append(_window(setup.measurer.measure(trial, plans), loaded=loaded))
        load.switch(on=False)
    return windows


def _window(measurement: Measurement, *, loaded: bool) -> Window:
    energy, time_s = measurement.energy, measurement.makespan_s
    if energy is None or time_s is None:
        raise SystemExit(f"the kernel gave no joules: {', '.join(map(str, measurement.flags))}")
    return Window(loaded, energy.joules, time_s, energy.watts)


def document(setup: MeasurementSetup, neighbour: str, windows: Sequence[Window]) -> dict[str, Any]:
    """What was measured: windows, and changes as fractions with half of their 95 % intervals."""
    values = {"energy": "energy_j", "time": "time_s", "power": "power_w"}
    changes, controls = {}, {}
    for name, field in values.items():
        changes[name] = vars(influence(windows, lambda one, field=field: getattr(one, field)))  # type: ignore[misc]  # bound at once
        null = control(windows, lambda one, field=field: getattr(one, field))  # type: ignore[misc]  # bound at once
        controls[name] = None if null is None else vars(null)
    identity = setup.device.identity
    return {
        "device": {"spec": identity.spec, "name": identity.name, "driver": identity.driver},
        "neighbour": neighbour,
        "modelled": identity.modelled,
        "sensor": setup.sensor,
        "change_by_load": changes,
        "control": controls,
        "windows": [vars(one) for one in windows],
    }


def told(found: dict[str, Any]) -> Iterator[str]:
    """The result in sentences."""
    marked = " (modelled)" if found["modelled"] else ""
    for name in ("energy", "time", "power"):
        one, null = Change(**found["change_by_load"][name]), found["control"][name]
        held = "beyond chance" if one.beyond_chance else "which may be chance"
        null_words = "none" if null is None else f"{100 * null['mean']:+.2f} ± {100 * null['interval']:.2f} %"
        yield (
            f"{name} with a loaded neighbour: {100 * one.mean:+.2f} ± {100 * one.interval:.2f} %{marked},"
            f" {held} ({one.pairs} pairs; control: {null_words})"
        )


def main() -> None:
    """Measure, print the changes, and write all of it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda:0", help="the GPU that is measured")
    parser.add_argument("--neighbour", default="cuda:1", help="the GPU that is idle or loaded")
    parser.add_argument("--workload", default="fft:N=1024", help="what is measured, with its default")
    parser.add_argument("--load", default="fft:N=1024", help="what the neighbour runs")
    parser.add_argument("--pairs", type=int, default=16)
    parser.add_argument("--window", type=float, default=2.0, help="seconds of a window")
    parser.add_argument("--settle", type=float, default=2.0, help="seconds before a window")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.pairs < _LEAST_PAIRS:
        parser.error(f"--pairs {options.pairs}: an interval needs {_LEAST_PAIRS} at least")
    with opened(options, Catalog.load()) as (setup, load):
        found = document(setup, options.neighbour, measured(setup, load, options))
    for sentence in told(found):
        print(sentence)
    if options.out is not None:
        settings = {
            name: getattr(options, name) for name in ("workload", "load", "pairs", "window", "settle")
        }
        whole = {"provenance": provenance(), "settings": settings, **found}
        save(options.out, whole)


if __name__ == "__main__":
    main()
