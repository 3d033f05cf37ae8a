"""Power rails of a Jetson, from the kernel's monitors and from ``tegrastats``."""

import math
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tuner.model.errors import PowerError, SensorUnavailableError

from ..base import Reading, Response, Sample, SensorInfo
from .attributes import SysfsAttribute, read_number, read_text
from .changes import Freshness, check_answers, sound
from .rails import (
    ChildLines,
    LineTool,
    RailChoice,
    SharedLines,
    choices,
    distinct,
    is_connected,
    rail_readings,
    unavailable,
)

NAME = "ina3221"
SYSFS = "/sys"

_CHIP = re.compile(r"ina(3221x?|238)")
_MILLI = 1e-3
_THOUSAND = 1000  # milliwatts in a watt, and millivolts or milliamperes
_MICRO = 1e-6
_LOOKS = 4.0  # per period: an update is dated to an eighth of it, and each look is work for a small CPU
# 200 looks a second are a few percent of a small core; more would be seen in the power.
_SHORTEST_LOOK_S = 0.005
_UNKNOWN_LOOK_S = 0.02  # where the period is to be learnt
_LEAST_PERIOD_S = 0.001  # update_interval is whole milliseconds, and 0 for what is shorter than half of one
_MEANS = 4  # samples that make a mean of what a chip shows; of fewer most of the time is not seen
_HWMON, _IIO = "ina3221", "ina3221x"  # names of the chip's drivers; the second averages on every board
_TOLD = 0.05  # of C: the driver rounds, and the chip's own clock is a few percent off
_SEES = 0.9  # of the time between two looks, from where on the lag sees all of it
_GUESSED = 0.3  # of C, where neither interval nor number of conversions are told
_ALONE = "VIN"  # what a chip without names measures: the input of a Thor
_ASSUMED_S = {
    "ina3221x": 0.43,  # 64 means of 1.1 ms, or 512 of 0.14 ms, of six numbers: what device trees ask for
    "ina3221": 0.0066,  # one mean of 1.1 ms of six numbers: the chip's default
    "ina238": 0.05,  # 16 means of 1.05 ms of three numbers: the chip's default
}
_SHUNT_STEP_V = {"ina3221x": 40e-6, "ina3221": 40e-6, "ina238": 5e-6}  # data sheets
_SHUNT_OHM = 0.005  # what most modules have, where the driver does not say
_VOLTS = 5.0  # the same


@dataclass(frozen=True)
class MonitorChannel:
    """One rail of one chip.

    Attributes:
        rail: its name.
        files: milliwatts, or millivolts and milliamperes.
        period_s: between updates; assumed where ``samples`` is 0.
        samples: measurements a value is the mean of; 0 where neither they nor the period are told.
        step_w: smallest step of its power in watts.
        chip: its chip.
    """

    rail: str
    files: tuple[Path, ...]
    period_s: float
    samples: int
    step_w: float
    chip: str

    @property
    def lags(self) -> bool:
        """True where what is shown follows power as a lag does."""
        return self.chip == _IIO or (self.chip == _HWMON and self.samples >= _MEANS)


def monitor_readings(
    gpu: str | int,  # noqa: ARG001 - a Jetson has one
    *,
    responses: Callable[[str], Response | None],
    now: Callable[[], float] = time.monotonic,
    sysfs: str | Path = SYSFS,
) -> list[Reading]:
    """The rails of all power monitors, best first; one reading that says why where there are none."""
    chips = sorted(_chips(Path(sysfs)))
    if not chips:
        where = Path(sysfs) / "bus/i2c/devices"
        reason = f"no INA3221 or INA238 in {where}: this is no Jetson, or the driver is not loaded"
        return [unavailable(NAME, reason)]
    troubles: list[str] = []
    channels = [channel for folder, chip in chips for channel in _channels(folder, chip, troubles)]
    if not channels:
        folders = ", ".join(str(folder) for folder, _ in chips)
        reason = "; ".join(troubles) or f"no connected rail in {folders}; is the driver bound?"
        return [unavailable(NAME, reason)]
    names = distinct([channel.rail for channel in channels])
    named = {name: replace(channel, rail=name) for name, channel in zip(names, channels, strict=True)}
    return [
        Reading(f"{NAME}:{choice.name}", partial(RailFileSampler, choice, named, responses, now))
        for choice in choices(names)
    ]


class RailFileSampler:
    """Implements ``tuner.power.base.PowerSampler`` over the files of one rail, or of a sum of rails.

    Raises:
        SensorUnavailableError: a file cannot be read, or holds no number.
    """

    def __init__(
        self,
        choice: RailChoice,
        channels: dict[str, MonitorChannel],
        responses: Callable[[str], Response | None],
        now: Callable[[], float],
    ) -> None:
        chosen = [channels[rail] for rail in choice.rails]
        period_s = max(channel.period_s for channel in chosen)
        samples = min(channel.samples for channel in chosen)
        self._now = now
        self._fresh = Freshness(period_s, learn=samples == 0)
        self._lags = all(channel.lags for channel in chosen)
        looks = 1.0 if self._lags else _LOOKS  # a register that moves all the time is fresh at each look
        self._pause_s = max(period_s / looks, _SHORTEST_LOOK_S) if samples else _UNKNOWN_LOOK_S
        name = f"{NAME}:{choice.name}"
        self._info = SensorInfo(
            name=name,
            kind="stream",
            scope=choice.scope,
            period_s=period_s,
            poll_interval_s=self._pause_s,
            resolution=sum(channel.step_w**2 for channel in chosen) ** 0.5,
            response=responses(name) or _assumed(period_s, samples, self._pause_s, lags=self._lags),
            may_be_zero=not choice.is_total,
        )
        self._rails: list[list[SysfsAttribute]] = []
        self._looked_s = self.due_s = now()
        try:
            for channel in chosen:
                files: list[SysfsAttribute] = []
                self._rails.append(files)
                for path in channel.files:
                    files.append(SysfsAttribute(path))  # noqa: PERF401 - one by one: what was opened is closed below
            self.poll()
            watts = self._watts()
            if watts is not None:
                check_answers(self._info, [watts])
        except PowerError as error:
            self.close()
            raise SensorUnavailableError(str(error)) from error

    @property
    def info(self) -> SensorInfo:
        """Properties of this reading; a period that no file states is learned from the samples."""
        return replace(self._info, period_s=self._pause_s if self._lags else self._fresh.period_s)

    def poll(self) -> list[Sample]:
        """The latest update, if there was one since the last call.

        Raises:
            PowerError: a file cannot be read any more, or holds no number.
        """
        began_s = self._now()
        if self._looked_s <= began_s < self.due_s:  # a clock that went backwards must not keep us waiting
            return []
        self._looked_s, self.due_s = began_s, began_s + self._pause_s
        watts = self._watts()
        if watts is None:  # the chip was busy for a moment
            self.due_s = began_s + self._pause_s / _LOOKS
            return []
        middle_s = (began_s + self._now()) / 2.0
        sample = Sample(middle_s, watts) if self._lags else self._fresh.look(middle_s, watts)
        return sound(self._info, [sample] if sample else [])

    def close(self) -> None:
        """Close the files."""
        for files in self._rails:
            for file in files:
                file.close()

    def _watts(self) -> float | None:
        """Power of the rails from milliwatts, or millivolts and milliamperes; None while a chip is busy."""
        total_w = 0.0
        for files in self._rails:
            product = 1
            for file in files:
                number = file.read()
                if number is None:
                    return None
                product *= number
            total_w += product / _THOUSAND ** len(files)
        return total_w


def _assumed(period_s: float, samples: int, pause_s: float, *, lags: bool) -> Response:
    """Return the assumed response: a lag, a mean over the period, or over the part of it for this rail."""
    if lags:
        part = 1.0 / samples if samples else 0.0
        capacitance_s = period_s * (-part / math.log(1.0 - part) if part else 1.0)
        sigma_s = (_TOLD if samples else _GUESSED) * capacitance_s
        sees_all = 2.0 * capacitance_s >= _SEES * pause_s
        return Response("lag", capacitance_s=capacitance_s, capacitance_sigma_s=sigma_s, averages=sees_all)
    if 0 < samples < _MEANS:
        # Voltage and current of up to three rails take turns: a sixth of the time is this current's.
        return Response("boxcar", window_s=period_s / 6.0, averages=False)
    return Response("boxcar", window_s=period_s, averages=samples > 0 and pause_s <= period_s)


# --- what is there -------------------------------------------------------------------------------


def _chips(sysfs: Path) -> Iterator[tuple[Path, str]]:
    """(I2C device, name of the chip) of every power monitor."""
    for file in (sysfs / "bus/i2c/devices").glob("*/name"):
        try:
            chip = read_text(file)
        except PowerError:
            continue
        if _CHIP.fullmatch(chip):
            yield file.parent, chip


def _channels(device: Path, chip: str, troubles: list[str]) -> Iterator[MonitorChannel]:
    """The connected rails of a chip; what keeps one from being found is added to ``troubles``."""
    for folder in sorted(device.glob("iio:device*")):
        yield from _named(folder, "rail_name_*", partial(_iio, chip), troubles)
    for folder in sorted(device.glob("hwmon/hwmon*")):
        yield from _named(folder, "in*_label", partial(_hwmon, chip), troubles)
        if any(folder.glob("in*_label")):
            continue
        yield from _named(folder, "label", partial(_hwmon, chip), troubles)  # a chip with one channel
        if not (folder / "label").exists() and (folder / "curr1_input").exists():
            yield _hwmon(chip, folder, "1", _ALONE)


def _named(
    folder: Path, pattern: str, make: Callable[[Path, str, str], MonitorChannel], troubles: list[str]
) -> Iterator[MonitorChannel]:
    """A channel for each connected rail that has files to read its power from."""
    for label in sorted(folder.glob(pattern)):
        digits = re.search(r"\d+", label.name)
        try:
            rail = read_text(label)
        except PowerError as error:
            troubles.append(str(error))
            continue
        number = digits[0] if digits else "1"
        if read_number(folder / f"in{number}_enable") == 0:
            troubles.append(f"{folder}: {rail} is disabled (in{number}_enable is 0)")
            continue
        channel = make(folder, number, rail)
        if is_connected(rail) and all(path.exists() for path in channel.files):
            yield channel


def _iio(chip: str, folder: Path, number: str, rail: str) -> MonitorChannel:
    """A channel of JetPack 4; neither period nor shunt are told."""
    volts = read_number(folder / f"in_voltage{number}_input")
    step_w = (volts * _MILLI if volts else _VOLTS) * _SHUNT_STEP_V[chip] / _SHUNT_OHM
    return MonitorChannel(rail, (folder / f"in_power{number}_input",), _ASSUMED_S[chip], 0, step_w, chip)


def _hwmon(chip: str, folder: Path, number: str, rail: str) -> MonitorChannel:
    """A channel of JetPack 5 and later; one that has no current is the sum of the shunt voltages, no rail."""
    millivolts, milliamperes = folder / f"in{number}_input", folder / f"curr{number}_input"
    interval_ms = read_number(folder / "update_interval")
    samples = read_number(folder / "samples") if interval_ms is not None else 0
    shunt = read_number(folder / f"shunt{number}_resistor")
    volts = read_number(millivolts)
    ampere_step = max(_SHUNT_STEP_V[chip] / (shunt * _MICRO if shunt else _SHUNT_OHM), _MILLI)
    return MonitorChannel(
        rail=rail,
        files=(millivolts, milliamperes),
        period_s=_ASSUMED_S[chip] if interval_ms is None else max(interval_ms * _MILLI, _LEAST_PERIOD_S),
        samples=samples if samples is not None else 1,
        step_w=abs(volts * _MILLI if volts else _VOLTS) * ampere_step,
        chip=chip,
    )


# --- Power rails of a Jetson from the lines of ``tegrastats``.
#
# Of each rail a line shows the present power and an average over a time that is not told; the average is
# never used. Forms of the lines differ between boards and JetPack releases::
#
#     RAM 534/3964MB (lfb 98x4MB) ... GR3D_FREQ 0%@76 ... GPU@36C ... POM_5V_IN 1022/1022 POM_5V_GPU 0/0
#     11-21-2025 08:49:48 RAM ... GR3D_FREQ 14%@[407,407] ... gpu@69.125C ... VDD_GPU_SOC 3150mW/2971mW

BINARY = "tegrastats"
FALLBACK = "/usr/bin/tegrastats"  # where JetPack puts it, for a service with a short PATH
# Ten lines a second cost a few percent of a small core, and more would be repeats on old boards.
INTERVAL_S = 0.1
# To the first line; it comes after one interval and what a busy board needs to start a process.
_PATIENCE_S = 3.0

_MILLIWATTS = 1000.0  # in a watt; dividing leaves the decimals as they were printed
_MEMORIES = ("RAM", "SWAP", "IRAM")  # "RAM 721/31927MB", which cut short looks like a rail
_RAIL = re.compile(
    r"(?<!\S)([A-Z][A-Z0-9_.+-]*) (-?\d{1,9})(?:mW)?/-?\d{1,9}(?:mW)?(?:/-?\d{1,9}(?:mW)?)?(?!\S)",
    re.ASCII | re.IGNORECASE,
)
_SINGLE = re.compile(  # of JetPack 2 and 3; other blocks, such as "APE 25", have one number too
    r"(?<!\S)((?:VDD|POM|VIN)[A-Z0-9_.+-]*) (-?\d{1,9})(?:mW)?(?= [A-Z]|$)", re.ASCII | re.IGNORECASE
)


def parse_line(text: str) -> Mapping[str, float]:
    """Present power of each connected rail of a line in watts; an offset may make less than 0 of nothing.

    Any text is a line; what is missing, cut short or garbled is left out.
    """
    text = " ".join(text.split())  # newer releases pad columns with spaces
    rails = [(match[1], int(match[2]) / _MILLIWATTS) for match in _RAIL.finditer(text)]
    if not rails:
        rails = [(match[1], int(match[2]) / _MILLIWATTS) for match in _singles(text)]
    rails = [(name, watts) for name, watts in rails if name.upper() not in _MEMORIES and is_connected(name)]
    return dict(zip(distinct([name for name, _ in rails]), (watts for _, watts in rails), strict=True))


def _singles(text: str) -> list[re.Match[str]]:
    """Rails with one number; none where the only one ends the line, which may have been cut there."""
    matches = list(_SINGLE.finditer(text))
    return matches if any(match.end() < len(text) for match in matches) else []


def tegrastats_readings(
    gpu: str | int,  # noqa: ARG001 - a Jetson has one
    *,
    responses: Callable[[str], Response | None],
    now: Callable[[], float] = time.monotonic,
    binary: str | Path | None = None,
    interval_s: float = INTERVAL_S,
) -> list[Reading]:
    """The rails ``tegrastats`` prints, best first; one reading that says why where there are none.

    Where there is a binary it runs for a line or two, to learn the names of the rails.

    Args:
        gpu: not used.
        responses: calibrated response by the name of a reading.
        now: clock of the samples, in seconds.
        binary: path of the binary; None for the one on PATH, or in /usr/bin.
        interval_s: time between lines, in seconds.
    """
    program = shutil.which(binary or BINARY) or (shutil.which(FALLBACK) if binary is None else None)
    if program is None:
        reason = f"{binary or BINARY} is not here or cannot be run; it comes with JetPack, on Jetson boards"
        return [unavailable(BINARY, reason)]
    command = [str(Path(program).absolute()), "--interval", str(max(round(interval_s * 1000.0), 1))]
    tool = LineTool(
        BINARY,
        SharedLines(partial(ChildLines, command, now)),
        parse_line,
        interval_s,
        _PATIENCE_S + interval_s,
        "some releases show them to root only, and a container needs the host's /sys",
    )
    return rail_readings(tool, responses)
