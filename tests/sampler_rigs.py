"""Every kind of power sampler over a fake of what it reads, in time that moves when told."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Literal

import powercap_trees
import pytest
from fake_nvml_state import UUID, PlayedClock, fake_nvml, lose, script, sensors_of_h200
from jetson_trees import build, rail_files, write
from power_source import Source
from tuner.power.base import PowerSampler, Reading, Response, Sample, SensorInfo
from tuner.power.nvml import power_readings as nvml
from tuner.power.sensors import hwmon, jetson, jtop, pipe, powercap, recorded
from tuner.power.sensors.recorded import TraceFile
from tuner.power.sensors.simulated import SimulatedSampler

from tuner.model import registry

WATTS = 400.0
PATIENCE_S = 60.0  # a bound for a broken machine


@dataclass
class Rig:
    """A sampler's world.

    Attributes:
        list_readings: its module's ``readings``, with the responses to use.
        name: of the reading that is looked at.
        now: its clock.
        advance: lets time pass, less than a period of the sensor at once.
        watts: what the sensor sees in the mean.
        kill: the sensor dies, or None where it cannot.
        period_s: time between its updates.
        empty: it answers with zeros from now on, or None where it cannot.
    """

    list_readings: Callable[[Callable[[str], Response | None]], list[Reading]]
    name: str
    now: Callable[[], float]
    advance: Callable[[float], None]
    watts: float
    kill: Callable[[], None] | None
    period_s: float
    empty: Callable[[], None] | None = None

    @property
    def step_s(self) -> float:
        """How much time passes at once: a twentieth of a period."""
        return self.period_s / 20.0

    def reading(self, responses: Callable[[str], Response | None] = lambda _: None) -> Reading:
        """The reading."""
        return next(found for found in self.list_readings(responses) if found.name == self.name)

    def watch(self, sampler: PowerSampler, duration_s: float, interval_s: float = 0.0) -> list[Sample]:
        """Poll a sampler for a while, after each step or as often as told."""
        samples: list[Sample] = []
        end_s, poll_s = self.now() + duration_s, self.now()
        while self.now() < end_s:
            self.advance(self.step_s)
            if self.now() >= poll_s:
                samples += sampler.poll()
                poll_s = self.now() + interval_s
        return samples


class HandClock:
    """A clock that moves when told."""

    def __init__(self, time_s: float = 100.0) -> None:
        self.time_s = time_s

    def __call__(self) -> float:
        return self.time_s


class FakeLines:
    """A tool's child: its lines come when the rig lets time pass."""

    def __init__(self, lines: list[tuple[float, str]], ended: list[str], *_: object) -> None:
        self._lines = lines
        self._ended = ended

    @property
    def end(self) -> str | None:
        return self._ended[0] if self._ended else None

    def since(self, count: int) -> tuple[int, list[tuple[float, str]]]:
        return len(self._lines), self._lines[count:]

    def wait(self, count: int, until_s: float) -> bool:
        del until_s
        return len(self._lines) > count or bool(self._ended)

    def close(self) -> None:
        """Nothing to end."""


@contextmanager
def openings() -> Iterator[Callable[[Reading], PowerSampler]]:
    """Opens readings; what it opened is closed in the end."""
    with ExitStack() as stack:
        yield lambda reading: stack.enter_context(closing(reading.open()))


def no_board(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has no rails, no tegrastats, no jtop and no calibrations, whatever it is."""
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    monkeypatch.setattr("tuner.devices.sensors.SYSTEM_FILE", folder / "none.json")
    places = {
        "ina3221": ("jetson.monitor_readings", "sysfs"),
        "tegrastats": ("jetson.tegrastats_readings", "binary"),
        "jtop": ("jtop.readings", "socket"),
    }
    for name, (place, option) in places.items():
        listed = partial(registry.load("readings", name), **{option: folder / "none"})
        monkeypatch.setattr(f"tuner.power.sensors.{place}", listed)


def collected(sampler: PowerSampler, count: int) -> list[Sample]:
    """Samples of a sampler in real time, until there are enough."""
    until_s = time.monotonic() + PATIENCE_S
    samples: list[Sample] = []
    while len(samples) < count:
        assert time.monotonic() < until_s, samples
        samples += sampler.poll()
    return samples


@contextmanager
def nvml_rig(name: str, folder: Path) -> Iterator[Rig]:
    """An H200."""
    with fake_nvml(folder) as state:
        script(state, (0.0, WATTS))
        sensors_of_h200(state, noise_w=2.0)
        clock = PlayedClock(state)

        def empty() -> None:
            if "counter" in name:
                state.counter_sensor.stopped_us = state.time_us
            else:
                script(state, (0.0, 0.0))
                sensors_of_h200(state, noise_w=0.0)

        yield Rig(
            lambda responses: nvml.readings(UUID, responses=responses, now=clock, wall=clock.wall),
            name,
            clock,
            clock.advance,
            WATTS,
            lambda: lose(state),
            0.02 if "ring" in name else 0.1,
            empty,
        )


@contextmanager
def ina3221_rig(folder: Path) -> Iterator[Rig]:
    """The power monitor of an Orin NX, whose input draws 0.99 or 1.01 A at 5 V."""
    sysfs, clock = build(folder, "orin-nx"), HandClock()
    voltage, current = rail_files(sysfs, "VDD_IN")
    shown, drawn = [0], [1]

    def advance(seconds: float) -> None:
        clock.time_s += seconds
        milliamperes = drawn[0] * (990 + 20 * (int(clock.time_s / 0.04) % 2))
        if shown[0] != milliamperes:
            shown[0] = milliamperes
            write(current, str(milliamperes))

    def empty() -> None:
        drawn[0] = 0
        advance(0.0)

    def kill() -> None:
        for file in (voltage, current):
            write(file, "?")

    yield Rig(
        lambda responses: jetson.monitor_readings(0, responses=responses, now=clock, sysfs=sysfs),
        "ina3221:VDD_IN",
        clock,
        advance,
        int(voltage.read_text()) / 1000.0,
        kill,
        0.04,
        empty,
    )


@contextmanager
def hwmon_rig(folder: Path) -> Iterator[Rig]:
    """The power meter of an AMD GPU, which draws 399 or 401 W."""
    clock, chip = HandClock(), folder / "class/hwmon/hwmon0"
    (chip / "device").mkdir(parents=True)
    (chip / "name").write_text("amdgpu")
    file, shown = chip / "power1_average", [""]

    def show(text: str) -> None:
        if len(shown[0]) != 1 and shown[0] != text:
            shown[0] = text
            file.write_text(text)

    def advance(seconds: float) -> None:
        clock.time_s += seconds
        show(str(399_000_000 + 2_000_000 * (int(clock.time_s / 0.05) % 2)))

    yield Rig(
        lambda responses: hwmon.readings(0, responses=responses, now=clock, sysfs=folder),
        "hwmon:amdgpu-device",
        clock,
        advance,
        WATTS,
        lambda: show("?"),
        0.05,
        lambda: show("0"),
    )


@contextmanager
def powercap_rig(folder: Path) -> Iterator[Rig]:
    """The package of a host."""
    sysfs, clock = powercap_trees.build(folder, dram=False), HandClock()

    def advance(seconds: float) -> None:
        clock.time_s += seconds

    watts = {"package-0": WATTS}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(powercap, "SysfsAttribute", powercap_trees.played(watts, clock))
        yield Rig(
            lambda responses: powercap.readings(0, responses=responses, now=clock, sysfs=sysfs),
            "powercap:package",
            clock,
            advance,
            WATTS,
            lambda: rmtree(sysfs / "class"),
            0.02,
            lambda: watts.update({"package-0": 0.0}),
        )


@contextmanager
def tool_rig(module: str, folder: Path, line: Callable[[int], str]) -> Iterator[Rig]:
    """A tool that prints rails twice (jtop) or ten times (tegrastats) a second."""
    clock, lines, ended = HandClock(), [(99.9, line(4980))], list[str]()
    interval_s, drawn = 0.5 if module == "jtop" else 0.1, [1]
    binary = folder / "tegrastats"
    binary.touch(0o755)
    socket = folder / "jtop.sock"
    socket.touch()
    (folder / "jtop").mkdir()
    (folder / "jtop/__init__.py").touch()

    def advance(seconds: float) -> None:
        clock.time_s += seconds
        if not ended and clock.time_s - lines[-1][0] >= interval_s:
            lines.append((clock.time_s, line(drawn[0] * (4980 + 40 * (len(lines) % 2)))))

    def kill() -> None:
        ended.append("ended with 1")
        lines.clear()  # another child has none

    def empty() -> None:
        drawn[0] = 0
        lines[:] = [(clock.time_s, line(0))] * len(lines)

    listed = {
        "tegrastats": partial(jetson.tegrastats_readings, 0, binary=binary, now=clock),
        "jtop": partial(jtop.readings, 0, socket=socket, path=[str(folder)], now=clock),
    }[module]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            {"tegrastats": jetson, "jtop": jtop}[module], "ChildLines", partial(FakeLines, lines, ended)
        )
        yield Rig(
            lambda responses: listed(responses=responses),
            f"{module}:VDD_IN",
            clock,
            advance,
            5.0,
            kill,
            interval_s,
            empty,
        )


@contextmanager
def pipe_rig(folder: Path) -> Iterator[Rig]:
    """A meter that writes 399 or 401 W twenty times a second, each line with its time."""
    clock, path, file = HandClock(), folder / "meter", folder / "lines"
    file.touch()
    path.symlink_to(file)
    written, drawn, alive = [99.9], [1], [True]

    def advance(seconds: float) -> None:
        clock.time_s += seconds
        while alive[0] and clock.time_s - written[0] >= 0.05:
            written[0] += 0.05
            watts = drawn[0] * (399 + 2 * (round(written[0] / 0.05) % 2))
            with file.open("a") as log:
                log.write(f"{written[0]},{watts}\n")

    def now() -> float:
        advance(0.01 if opening else 0.0)
        return clock.time_s

    opening: list[bool] = []
    name = f"pipe:{path}"

    def opened(responses: Callable[[str], Response | None]) -> PowerSampler:
        opening.append(True)
        try:
            return pipe.reading(str(path), responses, now, patience_s=0.5).open()
        finally:
            opening.clear()

    yield Rig(
        lambda responses: [Reading(name, lambda: opened(responses))],
        name,
        clock,
        advance,
        WATTS,
        lambda: alive.__setitem__(0, False),
        0.05,
        lambda: drawn.__setitem__(0, 0),
    )


@contextmanager
def replay_rig(folder: Path) -> Iterator[Rig]:
    """Ten seconds of a recorded ring."""
    clock, file = HandClock(), folder / "trace.json"
    info = SensorInfo("nvml-power-ring", "ring", "gpu", period_s=0.02, poll_interval_s=0.25)
    TraceFile(info, tuple(Sample(5.0 + 0.02 * n, WATTS + n % 2) for n in range(500))).write(file)

    def advance(seconds: float) -> None:
        clock.time_s += seconds

    yield Rig(
        lambda responses: [recorded.reading(file, responses, clock)],
        "replay",
        clock,
        advance,
        WATTS,
        lambda: advance(60.0),
        0.02,
    )


@contextmanager
def simulated_rig(kind: Literal["counter", "stream", "ring"], folder: Path) -> Iterator[Rig]:
    """A simulated counter or stream, which cannot die."""
    del folder
    source = Source()
    source.draw(1.0, WATTS)

    def opened(response: Response | None) -> PowerSampler:
        sampler: PowerSampler = SimulatedSampler(source, kind, period_s=0.02, response=response)
        return sampler

    name = f"simulated-{kind}"
    yield Rig(
        lambda responses: [Reading(name, lambda: opened(responses(name)))],
        name,
        source.now_s,
        lambda seconds: source.draw(seconds, WATTS),
        WATTS,
        None,
        0.02,
    )


def tegrastats_line(milliwatts: int) -> str:
    return f"RAM 1/2MB (lfb 1x4MB) GR3D_FREQ 0%@76 gpu@47C VDD_IN {milliwatts}mW/5000mW VDD_SOC 1424mW/1424mW"


def jtop_line(milliwatts: int) -> str:
    return json.dumps({"rails": {"VDD_SOC": 1424}, "total": milliwatts, "total_name": "VDD_IN"})


NVML: Sequence[str] = (
    *("nvml-energy-counter", "nvml-power-ring", "nvml-power-instant"),
    *("nvml-power-average", "nvml-power-usage"),
)
RIGS: dict[str, Callable[[Path], AbstractContextManager[Rig]]] = {
    **{name: partial(nvml_rig, name) for name in NVML},
    "ina3221": ina3221_rig,
    "tegrastats": lambda folder: tool_rig("tegrastats", folder, tegrastats_line),
    "jtop": lambda folder: tool_rig("jtop", folder, jtop_line),
    "powercap": powercap_rig,
    "hwmon": hwmon_rig,
    "pipe": pipe_rig,
    "replay": replay_rig,
    "simulated-counter": partial(simulated_rig, "counter"),
    "simulated-stream": partial(simulated_rig, "stream"),
    "simulated-ring": partial(simulated_rig, "ring"),
}
