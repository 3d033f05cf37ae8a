"""Power monitors of Jetson boards: fake ``/sys`` trees, samples, faults, and joules of an emulated chip.

TI's data sheet of the INA3221 (SBOS576, section 8.4.1) has it that with averaging over N conversions each new
one moves the register by (sample - average) / N: a first-order lag of N conversions, which is about the time
between two updates that a driver states.
"""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jetson_trees import BOARDS, build, rail_files, set_rail, write
from sampler_rigs import HandClock, openings
from tuner.power.base import PowerReading, PowerSampler, Reading, Response, Sample, SensorInfo
from tuner.power.energy.mean_power import mean_power
from tuner.power.energy.samples import SampleSeries
from tuner.power.response.models import Array
from tuner.power.sensors.jetson import monitor_readings, parse_line
from tuner.power.sensors.rails import BOARDS as RAIL_BOARDS
from tuner.power.sensors.rails import RailBoard, choices, distinct, is_connected, parts

from tuner.model.errors import PowerError, SensorUnavailableError

AGX_XAVIER_SUM = "GPU+CPU+SOC+CV+VDDRQ+SYS5V"
AGX_ORIN_SUM = "VDD_GPU_SOC+VDD_CPU_CV+VIN_SYS_5V0"
OFFERED = {
    "tx1": ["VDD_IN", "VDD_GPU", "VDD_CPU", "VDD_MUX", "VDD_5V_IO_SYS", "VDD_3V3_SYS"],
    "nano": ["POM_5V_IN", "POM_5V_GPU", "POM_5V_CPU"],
    "agx-xavier": ["GPU+CPU+SOC+CV+VDDRQ+SYS5V", "GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V"],
    "xavier-nx": ["VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"],
    "orin-nx": ["VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"],
    "agx-orin": [AGX_ORIN_SUM, "VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0", "VDDQ_VDD2_1V8AO"],
    "thor": ["VIN", "VDD_GPU", "VDD_CPU_SOC_MSS", "VIN_SYS_5V0"],
}


def lag(period_s: float, samples: int, *, averages: bool = True) -> Response:
    """What an average that moves by a part of each conversion is: what is left of the past after a period."""
    left = (1.0 - 1.0 / samples) ** samples
    capacitance_s = -period_s / math.log(left)
    return Response(
        "lag",
        capacitance_s=capacitance_s,
        capacitance_sigma_s=0.05 * capacitance_s,
        averages=averages,
    )


def numbers(response: Response) -> list[float]:
    """All numbers of a response."""
    return [value for value in asdict(response).values() if isinstance(value, float)]


def found(sysfs: Path, clock: Callable[[], float] | None = None, **options: Any) -> list[Reading]:
    options = {"responses": lambda _: None} | options
    result: list[Reading] = monitor_readings("GPU-0", sysfs=sysfs, now=clock or HandClock(), **options)
    return result


def reading(sysfs: Path, rail: str, clock: Callable[[], float] | None = None) -> Reading:
    return next(r for r in found(sysfs, clock) if r.name == f"ina3221:{rail}")


@pytest.fixture
def opened() -> Iterator[Callable[[Reading], PowerSampler]]:
    with openings() as start:
        yield start


def watch(sampler: PowerSampler, clock: HandClock, seconds: float) -> list[Sample]:
    """Poll as often as the sampler asks for."""
    samples = []
    end_s = clock.time_s + seconds
    while clock.time_s < end_s:
        clock.time_s = max(sampler.due_s, clock.time_s + 1e-4)
        samples += sampler.poll()
    return samples


@pytest.mark.parametrize("board", OFFERED)
def test_the_rails_of_a_board_best_first(tmp_path: Path, board: str) -> None:
    """Every connected rail of every chip once; NC and the sum of the shunts are no rails."""
    assert [r.name for r in found(build(tmp_path, board))] == [f"ina3221:{name}" for name in OFFERED[board]]


@pytest.mark.parametrize("board", OFFERED)
def test_every_rail_shows_its_watts(
    tmp_path: Path, board: str, opened: Callable[[Reading], PowerSampler]
) -> None:
    """Power of each rail, negative offsets included, in watts whatever the layout."""
    sysfs, clock = build(tmp_path, board), HandClock()
    for rail in [rail for monitor in BOARDS[board].monitors for rail in monitor.rails if rail.name != "NC"]:
        sampler = opened(reading(sysfs, rail.name, clock))
        samples = watch(sampler, clock, 1.5)

        assert samples
        for sample in samples:
            assert sample.value == pytest.approx(rail.milliwatts / 1000.0, abs=1.1e-3)
        assert sampler.info.scope.startswith(rail.name)


@pytest.mark.parametrize(
    ("board", "rail", "step_w", "response"),
    [
        ("orin-nx", "VDD_IN", 0.04, lag(0.04, 16)),
        ("agx-orin", "VDD_GPU_SOC", 0.1, lag(0.04, 16)),
        ("nano", "POM_5V_IN", 0.04, Response("lag", capacitance_s=0.43, capacitance_sigma_s=0.129)),
        ("thor", "VIN", 0.02, Response("boxcar", window_s=0.05, averages=False)),
    ],
)
def test_period_step_and_response(
    tmp_path: Path, board: str, rail: str, step_w: float, response: Response
) -> None:
    """The driver tells period, means and shunt where it can; the rest is assumed, and marked so."""
    sampler = reading(build(tmp_path, board), rail).open()
    info = sampler.info
    sampler.close()

    assert info.kind == "stream"
    assert info.resolution == pytest.approx(step_w, rel=0.02)
    assert (info.response.kind, info.response.averages) == (response.kind, response.averages)
    assert numbers(info.response) == pytest.approx(numbers(response))
    assert info.response.origin == "assumed"


@pytest.mark.parametrize(
    ("interval_ms", "samples", "period_s", "response"),
    [
        (7, 1, 0.007, Response("boxcar", window_s=0.007 / 6.0, averages=False)),
        (1, 4, 0.005, lag(0.001, 4, averages=False)),  # looked at every 5 ms only
        (0, 1, 0.001, Response("boxcar", window_s=0.001 / 6.0, averages=False)),
        (422, 64, 0.422, lag(0.422, 64)),
        ("?", "?", 0.0066, Response("boxcar", window_s=0.0066, averages=False)),
    ],
)
def test_settings_of_the_driver(
    tmp_path: Path, interval_ms: object, samples: object, period_s: float, response: Response
) -> None:
    """A mean of few measurements, or one not looked at each time, need not show the mean of the load."""
    sysfs = build(tmp_path, "orin-nx")
    folder = rail_files(sysfs, "VDD_IN")[0].parent
    write(folder / "update_interval", interval_ms)
    write(folder / "samples", samples)

    sampler = reading(sysfs, "VDD_IN").open()
    info = sampler.info
    sampler.close()

    assert info.period_s == period_s
    assert (info.response.kind, info.response.averages) == (response.kind, response.averages)
    assert numbers(info.response) == pytest.approx(numbers(response))


@pytest.fixture(scope="module")
def orin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One board for many examples: making files takes longer than reading them."""
    return build(tmp_path_factory.mktemp("board"), "orin-nx")


@given(currents=st.lists(st.sampled_from([1000, 1008, 1016]), min_size=6, max_size=16))
def test_updates_and_honest_repeats_are_samples(orin: Path, currents: list[int]) -> None:
    """Each update interval gives one sample, whether the value moved or not, and never two."""
    sysfs, clock = orin, HandClock()
    set_rail(sysfs, "VDD_IN", milliamperes=500)
    sampler = reading(sysfs, "VDD_IN", clock).open()
    values = []
    for current in currents:
        set_rail(sysfs, "VDD_IN", milliamperes=current)
        values += [sample.value for sample in watch(sampler, clock, 0.0399)]
    sampler.close()

    assert abs(len(values) - len(currents)) <= 1
    assert {round(value, 6) for value in values} <= {
        round(4.96 * current / 1000.0, 6) for current in currents
    }


def test_an_update_is_dated_between_two_looks(
    tmp_path: Path, opened: Callable[[Reading], PowerSampler]
) -> None:
    """Without averaging a change happened since the last look, a quarter of a period ago."""
    sysfs, clock = build(tmp_path, "orin-nx"), HandClock()
    write(rail_files(sysfs, "VDD_IN")[0].with_name("samples"), 1)
    sampler = opened(reading(sysfs, "VDD_IN", clock))
    clock.time_s += 0.01
    sampler.poll()
    set_rail(sysfs, "VDD_IN", milliamperes=2000)
    assert sampler.poll() == []
    clock.time_s += 0.01

    (sample,) = sampler.poll()

    assert sample.time_s == pytest.approx(100.015)
    assert sample.value == 9.92
    assert sample.time_sigma_s == pytest.approx(0.01 / 12.0**0.5)
    assert sampler.due_s == pytest.approx(100.03)


def test_time_that_goes_backwards_stops_nothing(
    tmp_path: Path, opened: Callable[[Reading], PowerSampler]
) -> None:
    """After a step of the clock to before the last look, samples go on at once, on the new time."""
    sysfs, clock = build(tmp_path, "orin-nx"), HandClock()
    sampler = opened(reading(sysfs, "VDD_IN", clock))
    clock.time_s = 10.0
    sampler.poll()

    samples = watch(sampler, clock, 0.5)

    assert len(samples) >= 10
    assert all(10.0 <= sample.time_s <= 10.6 for sample in samples)


def test_the_period_of_a_chip_that_tells_none_is_learnt(
    tmp_path: Path, opened: Callable[[Reading], PowerSampler]
) -> None:
    """That of its updates takes the place of the assumed one."""
    sysfs, clock = build(tmp_path, "thor"), HandClock()
    sampler = opened(reading(sysfs, "VIN", clock))
    for number in range(40):
        set_rail(sysfs, "VIN", milliamperes=1000 + number % 2)
        watch(sampler, clock, 0.1)

    assert sampler.info.period_s == pytest.approx(0.1, abs=0.021)


def test_a_chip_without_names_is_the_input(tmp_path: Path) -> None:
    """Releases without a label file keep the input of a Thor."""
    sysfs = build(tmp_path, "thor")
    (rail_files(sysfs, "VIN")[0].parent / "label").unlink()

    assert found(sysfs)[0].name == "ina3221:VIN"


def test_a_disabled_channel_leaves_the_others(
    tmp_path: Path, opened: Callable[[Reading], PowerSampler]
) -> None:
    """The sum is that of the channels that measure."""
    sysfs, clock = build(tmp_path, "agx-orin"), HandClock()
    write(rail_files(sysfs, "VDD_CPU_CV")[0].with_name("in2_enable"), 0)
    offered = found(sysfs, clock)

    assert offered[0].name == f"ina3221:{AGX_ORIN_SUM}".replace("+VDD_CPU_CV", "")
    assert watch(opened(offered[0]), clock, 0.2)


def test_a_sum_adds_rails_of_several_chips(tmp_path: Path, opened: Callable[[Reading], PowerSampler]) -> None:
    """The sum of all rails is their sum, and its scope says so."""
    sysfs, clock = build(tmp_path, "agx-xavier"), HandClock()
    sampler = opened(reading(sysfs, AGX_XAVIER_SUM, clock))
    total_w = 19.0 * (0.020 + 0.016 + 0.049 + 0.032) + 5.0 * 0.296

    (*_, last) = watch(sampler, clock, 2.0)

    assert last.value == pytest.approx(total_w)
    assert sampler.info.scope.endswith("SYS5V (sum of all rails)")
    assert sampler.info.resolution == pytest.approx(0.008 * (5 * 19.0**2 + 5.0**2) ** 0.5, rel=0.01)


def test_chips_may_call_their_rails_alike(tmp_path: Path) -> None:
    """A name that comes twice is numbered, so that each rail can be told."""
    sysfs = build(tmp_path, "agx-orin")
    label = rail_files(sysfs, "VDDQ_VDD2_1V8AO")[0].with_name("in2_label")
    write(label, "VDD_GPU_SOC")

    names = [r.name for r in found(sysfs)]

    assert names[1] == "ina3221:VDD_GPU_SOC+VDD_GPU_SOC#2"
    assert {"ina3221:VDD_GPU_SOC", "ina3221:VDD_GPU_SOC#2"} < set(names)


def reason(sysfs: Path) -> str:
    offered = found(sysfs)
    with pytest.raises(SensorUnavailableError) as caught:
        offered[0].open()
    return str(caught.value)


def test_other_machines_have_none(tmp_path: Path) -> None:
    """Without I2C, or with other chips, one reading says what was looked for and where."""
    (nothing,) = found(tmp_path)
    write(tmp_path / "bus/i2c/devices/0-0050/name", "spd5118")
    (tmp_path / "bus/i2c/devices/0-0051").mkdir()

    assert nothing.name == "ina3221"
    assert reason(tmp_path) == (
        f"no INA3221 or INA238 in {tmp_path}/bus/i2c/devices: this is no Jetson, or the driver is not loaded"
    )


def test_chips_without_rails_say_so(tmp_path: Path) -> None:
    """A chip all of whose channels are unconnected, or have no name, is no reading."""
    sysfs = build(tmp_path, "orin-nx")
    for label in rail_files(sysfs, "VDD_IN")[0].parent.glob("in*_label"):
        write(label, "NC")
    assert reason(sysfs) == f"no connected rail in {sysfs}/bus/i2c/devices/1-0040; is the driver bound?"
    for label in sysfs.glob("devices/platform/*/*/*/hwmon/hwmon*/in*_label"):
        label.unlink()
        label.mkdir()
    assert "in1_label: Is a directory" in reason(sysfs)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "holds '' instead of a number"),
        ("abc\n", "holds 'abc' instead of a number"),
        ("1.5\n", "holds '1.5' instead of a number"),
    ],
)
def test_what_is_no_number_is_told(tmp_path: Path, content: str, said: str) -> None:
    """A file that holds something else is named with what it holds."""
    sysfs = build(tmp_path, "orin-nx")
    current = rail_files(sysfs, "VDD_IN")[1]
    current.write_text(content)

    assert reason(sysfs) == f"{current_name(sysfs, current)}: {said}"


def current_name(sysfs: Path, file: Path) -> Path:
    """The file as the sampler names it: through the links of the bus."""
    device = next(parent for parent in file.parents if parent.name.endswith("-0040"))
    return sysfs / "bus/i2c/devices" / device.name / file.relative_to(device)


def test_a_file_that_may_not_be_read_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing permission comes with the file and the remedy; what was opened before it is closed."""
    sysfs = build(tmp_path, "orin-nx")
    before = len(list(Path("/proc/self/fd").iterdir()))
    real = os.open

    def refuse(path: str | Path, *args: Any, **options: Any) -> int:
        if str(path).endswith("curr1_input"):
            raise PermissionError(13, "Permission denied")
        return real(path, *args, **options)

    monkeypatch.setattr(os, "open", refuse)

    assert reason(sysfs).endswith(
        "curr1_input: Permission denied: let this user read it (chmod a+r), or run as root"
    )
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def refusing(monkeypatch: pytest.MonkeyPatch, error: OSError, times: int) -> None:
    """Let the next reads of the driver fail."""
    real, left = os.pread, [times]

    def read(file: int, count: int, offset: int) -> bytes:
        if left[0] > 0:
            left[0] -= 1
            raise error
        return real(file, count, offset)

    monkeypatch.setattr(os, "pread", read)


def test_a_sensor_that_fails_in_use_is_a_power_error(
    tmp_path: Path, opened: Callable[[Reading], PowerSampler], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An I2C error names the file and the error; no exception of the system crosses the border."""
    clock = HandClock()
    sampler = opened(reading(build(tmp_path, "orin-nx"), "VDD_IN", clock))
    refusing(monkeypatch, OSError(121, "Remote I/O error"), 1)
    clock.time_s += 1.0

    with pytest.raises(PowerError, match="in1_input: Remote I/O error"):
        sampler.poll()


def test_a_busy_chip_is_asked_again(
    tmp_path: Path, opened: Callable[[Reading], PowerSampler], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that gave up waiting for the chip costs a look; one that always does is a power error."""
    clock = HandClock()
    sampler = opened(reading(build(tmp_path, "orin-nx"), "VDD_IN", clock))
    refusing(monkeypatch, BlockingIOError(11, "Resource temporarily unavailable"), 5)
    assert len(watch(sampler, clock, 0.5)) >= 9
    refusing(monkeypatch, BlockingIOError(11, "Resource temporarily unavailable"), 1000)

    with pytest.raises(PowerError, match="temporarily unavailable"):
        watch(sampler, clock, 1.0)


PERIOD_S = 0.1
VOLTS = 5.0
IDLE_W, BUSY_W = 5.0, 20.0


class Chip:
    """The current register of one channel; three take turns, so that a third of conversions is its own.

    Args:
        sysfs: tree with the file that it writes.
        samples: N of its average.
        watts: power of the load over time.
        noise: of one conversion, relative.
        seed: of the noise.
    """

    def __init__(
        self, sysfs: Path, samples: int, watts: Callable[[float], float], noise: float, seed: int
    ) -> None:
        self.time_s = 0.0
        self._watts, self._noise, self._samples = watts, noise, samples
        self._random = np.random.default_rng(seed)
        self._file = rail_files(sysfs, "VDD_IN")[1]
        self._done = self._shown = 0
        self._register = watts(0.0) / VOLTS

    def now(self) -> float:
        return self.time_s

    def pass_to(self, time_s: float) -> None:
        """Convert until a time, and show the register in the file, in steps of 1 mA."""
        step_s = PERIOD_S / self._samples
        while (self._done + 1) * step_s <= time_s:
            self._done += 1
            amperes = self._watts((self._done - 2.0 / 3.0) * step_s) / VOLTS
            amperes *= 1.0 + self._noise * self._random.standard_normal()
            self._register += (amperes - self._register) / self._samples
        self.time_s = time_s
        milliamperes = round(self._register * 1000.0)
        if milliamperes != self._shown:
            self._shown = milliamperes
            write(self._file, milliamperes)


def measured(sysfs: Path, samples: int, seed: int, busy_s: tuple[float, float]) -> tuple[float, float]:
    """Relative error of the mean power of a window, and the stated standard uncertainty."""
    monitor = rail_files(sysfs, "VDD_IN")[0].parent
    for name, value in (
        ("update_interval", round(PERIOD_S * 1e3)),
        ("samples", samples),
        ("in1_input", 5000),
    ):
        write(monitor / name, value)
    start_s, end_s = busy_s

    def watts(time_s: float) -> float:
        return BUSY_W if start_s <= time_s < end_s else IDLE_W

    chip = Chip(sysfs, samples, watts, noise=0.02, seed=seed)
    offered = monitor_readings(0, responses=lambda _: None, now=chip.now, sysfs=sysfs)
    with closing(offered[0].open()) as sampler:
        samples_seen = []
        while chip.time_s < end_s + 0.3:
            chip.pass_to(chip.time_s + PERIOD_S / 5.0)
            samples_seen += sampler.poll()
        found = mean_power(SampleSeries.of(samples_seen), start_s + 0.25, end_s, sampler.info)
    return found.watts / BUSY_W - 1.0, found.uncertainty_w / BUSY_W


@pytest.mark.parametrize("samples", [4, 128])
def test_windows_are_unbiased_and_covered(samples: int, tmp_path: Path) -> None:
    """The register still rises when a window begins, and equation (6) knows by how much."""
    random, sysfs = np.random.default_rng(samples), build(tmp_path, "orin-nx")
    found = [measured(sysfs, samples, seed, (1.0 + random.uniform(0.0, PERIOD_S), 3.0)) for seed in range(6)]
    errors, stated = np.array(found).T

    assert abs(errors.mean()) < 0.004
    assert np.mean(np.abs(errors) <= 1.96 * stated) >= 5 / 6
    assert stated.max() < 0.03


LAG = Response("lag", capacitance_s=PERIOD_S)
BLOCK = Response("boxcar", window_s=PERIOD_S)
LOW_W, HIGH_W = 2.0, 8.0
END_S = 3.25  # of the load, which begins at 0; the window begins 0.25 s later
WINDOW = 0.25, END_S


def power_at(times_s: Array, pulse_s: float, begin_s: float) -> Array:
    """A load that is on from 0 to its end, or pulses half of the time, the first time at a begin."""
    on = (times_s >= 0) & (times_s < END_S)
    if pulse_s:
        on &= ((times_s - begin_s) / pulse_s) % 2.0 < 1.0
    return np.where(on, HIGH_W, LOW_W)


def register(
    parts: int, pulse_s: float, begin_s: float, noise: float, random: np.random.Generator
) -> SampleSeries:
    """The register read once a period; each conversion is noisy, which hangs together in what is read."""
    step_s = PERIOD_S / parts
    times = np.arange(-1.0 + PERIOD_S * random.uniform(), END_S + 0.2, step_s)
    conversions = power_at(times, pulse_s, begin_s)
    conversions = conversions * (1.0 + noise * random.standard_normal(len(times)))
    average, shown = float(conversions[0]), []
    for conversion in conversions.tolist():
        average += (conversion - average) / parts
        shown.append(average)
    return SampleSeries(times[::parts], np.array(shown)[::parts], np.zeros(len(times[::parts])))


def read(
    response: Response, parts: int, pulse_s: float, *, noise: float = 0.0, seed: int = 0
) -> tuple[PowerReading, float]:
    """Mean power of the window, and the truth."""
    random = np.random.default_rng(seed)
    begin_s = pulse_s * random.uniform(0.0, 2.0)
    info = SensorInfo("monitor", "stream", "VDD_IN", PERIOD_S, response=response)
    samples = register(parts, pulse_s, begin_s, noise, random)
    found = mean_power(samples, *WINDOW, info, round_s=2.0 * pulse_s)
    times = np.linspace(*WINDOW, 3_001, dtype=np.float64)[:-1]
    return found, float(power_at(times, pulse_s, begin_s).mean())


@pytest.mark.parametrize("parts", [16, 1024])
def test_steady_power_is_right_while_the_register_still_rises(parts: int) -> None:
    """Equation (6) gives the mean of the window within 0.3 %; as a block mean it is short of it."""
    found, truth = read(LAG, parts, 0.0)
    block, _ = read(BLOCK, parts, 0.0)

    assert found.watts == pytest.approx(truth, rel=0.003)
    assert block.watts < truth - 2.0 * abs(found.watts - truth)


@pytest.mark.parametrize("pulse_s", [0.0, 0.037, 0.05, 0.083, 0.31])
def test_its_interval_covers(pulse_s: float) -> None:
    """Of steady and pulsing loads, with conversions that are noisy by 5 %, the interval holds the truth."""
    covered = []
    for seed in range(40):
        found, truth = read(LAG, 64, pulse_s, noise=0.05, seed=seed)
        covered.append(abs(found.watts - truth) <= 1.96 * found.uncertainty_w)

    assert np.mean(covered) >= 0.85


# --- Rails of Jetson boards: what their names say, and which of them energy is tuned by.

XAVIER = "GPU+CPU+SOC+CV+VDDRQ+SYS5V"
ORIN = "VDD_GPU_SOC+VDD_CPU_CV+VIN_SYS_5V0"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("VDD_IN", ("input",)),
        ("POM_5V_IN", ("input",)),
        ("VIN", ("input",)),
        ("vdd_in", ("input",)),
        ("VDD_IN#2", ("input",)),
        ("VDD_GPU", ("gpu",)),
        ("POM_5V_GPU", ("gpu",)),
        ("VDD_SYS_GPU", ("gpu",)),
        ("GPU", ("gpu",)),
        ("VDD_GPU_SOC", ("gpu", "soc")),
        ("VDD_CPU_GPU_CV", ("gpu", "cpu", "cv")),
        ("VDD_CPU_CV", ("cpu", "cv")),
        ("CPU", ("cpu",)),
        ("SOC", ("soc",)),
        ("VDD_SYS_SOC", ("soc",)),
        ("CV", ("cv",)),
        ("VDD_CPU_SOC_MSS", ("cpu", "soc", "memory")),
        ("VDDRQ", ("memory",)),
        ("VDDQ_VDD2_1V8AO", ("memory",)),
        ("VDD_SYS_DDR", ("memory",)),
        ("SYS5V", ("system",)),
        ("VIN_SYS_5V0", ("system",)),
        ("VDD_4V0_WIFI", ()),
        ("VDD_MUX", ()),
        ("VDD_GPU_IN", ("gpu",)),
        ("VDD_M2_IN", ()),
        ("VDD_5V_IN", ("input",)),
        ("GPU0_MEM_VDD", ("gpu", "memory")),
        ("", ()),
    ],
)
def test_a_name_says_what_hangs_on_the_rail(name: str, expected: tuple[str, ...]) -> None:
    """Rails that several parts share belong to all of them, and a supply of the board is not its input."""
    assert parts(name) == expected


@pytest.mark.parametrize("name", ["NC", "nc", "", " ", "(null)"])
def test_unconnected_channels_are_no_rails(name: str) -> None:
    """A channel whose name says that nothing hangs on it is left out."""
    assert not is_connected(name)
    assert is_connected("VDD_IN")


@pytest.mark.parametrize(
    ("board", "first", "scope"),
    [
        ("tx1", "VDD_IN", "VDD_IN (total input)"),
        ("nano", "POM_5V_IN", "POM_5V_IN (total input)"),
        ("agx-xavier", XAVIER, f"{XAVIER.replace('+', ' + ')} (sum of all rails)"),
        ("xavier-nx", "VDD_IN", "VDD_IN (total input)"),
        ("orin-nx", "VDD_IN", "VDD_IN (total input)"),
        ("agx-orin", ORIN, f"{ORIN.replace('+', ' + ')} (sum that counts no rail twice)"),
        ("thor", "VIN", "VIN (total input)"),
    ],
)
def test_the_first_choice_of_each_board(board: str, first: str, scope: str) -> None:
    """The total input where there is one, else the sum of all rails, which has the DRAM too."""
    names = [rail.name for monitor in BOARDS[board].monitors for rail in monitor.rails]

    best = choices([name for name in names if is_connected(name)])[0]

    assert (best.name, best.scope) == (first, scope)


@pytest.mark.parametrize("board", RAIL_BOARDS, ids=lambda board: board.name)
@pytest.mark.parametrize("others", [(), ("CVB_ATX_12V", "CVB_ATX_3V3"), ("VDD_MUX", "VDD_5V_IO_SYS")])
def test_no_total_counts_a_rail_twice(board: RailBoard, others: tuple[str, ...]) -> None:
    """Of each board the first choice is its total, also beside the rails that it feeds and the carrier's."""
    for names in (board.total, (*board.inside, *board.total), (*others, *board.inside, *board.total)):
        best = choices(names)[0]
        assert best.rails == board.total
        assert choices([name.lower() for name in names])[0].name == best.name.lower()
        assert best.is_total
        assert not set(best.rails) & set(board.inside)
    assert board.source


def test_two_readings_of_an_agx_orin_agree() -> None:
    """Its memory is in the 5 V supply: old lines of tegrastats, which name it too, tell the same total."""
    line = (
        "VDD_GPU_SOC 4788mW/4788mW VDD_CPU_CV 798mW/798mW VIN_SYS_5V0 3842mW/3842mW"
        " VDDQ_VDD2_1V8AO 707mW/707mW"
    )
    for text in (line, line.rpartition(" VDDQ")[0]):
        rails = parse_line(text)
        assert sum(rails[name] for name in choices(list(rails))[0].rails) == pytest.approx(9.428)


def test_a_rail_that_is_fed_by_another_is_in_no_sum() -> None:
    """Also where a rail of the board is missing, so that nobody knows its total."""
    assert choices(["VDD_CPU_CV", "VIN_SYS_5V0", "VDDQ_VDD2_1V8AO"])[0].name == "VDD_CPU_CV+VIN_SYS_5V0"


def test_a_board_without_input_offers_the_sum() -> None:
    """All rails together are named as the sum they are, before what the GPU hangs on."""
    names = ["GPU", "CPU", "SOC"]

    assert [choice.name for choice in choices(names)] == ["GPU+CPU+SOC", "GPU", "CPU", "SOC"]
    assert choices(names)[0].scope == "GPU + CPU + SOC (sum of all rails)"


def test_an_input_is_not_added_to_what_hangs_on_it() -> None:
    """Where a rail is the input of the others no sum is offered: it would count power twice."""
    found = choices(["VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"])

    assert [choice.name for choice in found] == ["VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"]


def test_several_gpu_rails_are_added() -> None:
    """A GPU that hangs on two rails is their sum, and each can still be had alone."""
    found = choices(["VDD_GPU0", "VDD_GPU1", "VDD_CPU"])

    assert found[1].name == "VDD_GPU0+VDD_GPU1"
    assert found[1].scope == "VDD_GPU0 (gpu) + VDD_GPU1 (gpu)"
    assert {"VDD_GPU0", "VDD_GPU1", "VDD_CPU"} < {choice.name for choice in found}


def test_unknown_rails_are_offered_as_their_sum_first() -> None:
    """Names that say nothing leave the sum as the only thing the GPU is surely in."""
    assert [choice.name for choice in choices(["A", "B"])] == ["A+B", "A", "B"]


@given(st.lists(st.text(max_size=8), max_size=6))
def test_every_rail_can_be_chosen_once(names: list[str]) -> None:
    """Whatever rails are called, each can be read alone; no choice and no name comes twice."""
    unique = distinct(names)
    found = choices(unique)

    assert len(set(unique)) == len(names)
    assert {(name,) for name in unique} <= {choice.rails for choice in found}
    assert len({choice.rails for choice in found}) == len(found)


def test_a_name_that_comes_twice_is_numbered() -> None:
    """Two chips may call their rails alike."""
    assert distinct(["VDD_IN", "VDD_IN", "A", "VDD_IN"]) == ["VDD_IN", "VDD_IN#2", "A", "VDD_IN#3"]
