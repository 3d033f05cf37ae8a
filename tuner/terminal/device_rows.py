"""The devices: power with its scale, clock, temperature, who else is there, and the job that runs."""

from collections.abc import Sequence
from typing import Any

from tuner.report.words import MODELLED, lasting, si
from tuner.terminal.listing import Column, Listing, Row, row
from tuner.terminal.sparkline import BIN_S, bins, sparkline, top
from tuner.terminal.state import Data, LiveState

_NARROW, _ROOMY = 100, 132  # characters
_SHORTEST, _MEDIUM, _LONGEST = 12, 24, 48  # intervals of the power that are drawn
_METERED = "as metered, sum of trials"
_LEAST = len(f"sim:jetson-tx1 {MODELLED}")


def device_listing(state: LiveState, width: int) -> Listing:
    """A row per device.

    Args:
        state: what the daemon has told.
        width: characters of a line.
    """
    count = _SHORTEST if width < _NARROW else _MEDIUM if width < _ROOMY else _LONGEST
    columns = (
        Column("device", least=_LEAST),
        Column("power", right=True),
        Column(f"last {lasting(count * BIN_S)}, up to"),
        Column("clock", right=True),
        Column("temp", right=True),
        Column("load", right=True, rank=2),
        Column("others", right=True),
        Column("job", right=True),
    )
    rows = tuple(
        _device(device, _newest(state, spec), _drawn(bins(state.power.get(spec, ()), count)))
        for spec, device in state.devices.items()
    )
    return Listing("devices", columns, rows, empty="the daemon has told of no device yet")


def _newest(state: LiveState, spec: str) -> Data:
    samples = state.power.get(spec)
    return samples[-1] if samples else {}


def _drawn(watts: Sequence[float | None]) -> str:
    """Power on a scale from zero, and where that ends; empty where none was measured."""
    highest = top(watts)
    return "" if highest is None else f"{sparkline(watts, highest)} {highest:g} W"


def _device(device: Data, sample: Data, drawn: str) -> Row:
    spec, job = str(device.get("spec")), device.get("job")
    modelled = f" {MODELLED}" if device.get("modelled") else ""
    watts, mhz, celsius = (sample.get(name) for name in ("watts", "clock_mhz", "temperature_c"))
    load, others = sample.get("load_percent"), sample.get("others")
    waits = "waits" if device.get("holds") else "none"
    cells = (
        f"{spec}{modelled}",
        si(watts, "W", 3),
        drawn,
        _rounded(mhz, "MHz"),
        _rounded(celsius, "°C"),
        _rounded(load, "%"),
        "–" if others is None else str(others),
        waits if job is None else f"job {job}",
    )
    values = (spec, watts, watts, mhz, celsius, load, others, job)
    return row(spec, cells, values, _details(device, sample), "bad" if sample.get("failure") else "")


def _rounded(value: Any, unit: str) -> str:  # noqa: ANN401 - what JSON has
    return "–" if value is None else f"{value:.0f} {unit}"


def _details(device: Data, sample: Data) -> str:
    """What there is no column for: why a clock or a job is held back, and what tuning has cost today."""
    parts = []
    if sample.get("failure"):
        parts.append(f"power: {sample['failure']}")
    elif sample.get("reading") == "trial":
        parts.append(f"power is the mean of the last trial, {MODELLED}")
    elif sample.get("watts") is None and device.get("modelled"):
        parts.append("power is modelled while a job runs")
    if sample.get("throttle_reasons"):
        parts.append(f"held back by {', '.join(map(str, sample['throttle_reasons']))}")
    if device.get("holds"):
        parts.append(str(device["holds"]))
    elif sample.get("others"):
        parts.append(f"processes of others: {sample['others']}")
    driver = f", driver {device['driver']}" if device.get("driver") else ""
    return "; ".join([*parts, _spent(device), f"{device.get('name', '')}{driver}"])


def _spent(device: Data) -> str:
    """Joules and seconds of today, with their limits."""
    joules, seconds = device.get("spent_today_j"), device.get("spent_today_s")
    of_j = f" of {si(device['budget_j'], 'J', 3)}" if device.get("budget_j") else ""
    of_s = f" of {lasting(device['budget_s'])}" if device.get("budget_s") else ""
    source = MODELLED if device.get("modelled") else _METERED
    return f"today {si(joules, 'J', 3)}{of_j} ({source}) in {lasting(seconds or 0.0)}{of_s} of measuring"
