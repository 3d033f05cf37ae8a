"""tegrastats: every form of its lines, lines that are no lines, and the child that prints them."""

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampler_rigs import collected, openings
from test_power_pipe import gone
from tuner.power.base import PowerSampler, Reading, Response
from tuner.power.sensors.jetson import parse_line, tegrastats_readings

from tuner.model.errors import PowerError, SensorUnavailableError

# Lines of seven kinds of boards, verbatim, from the tests of DataDog's agent (datadog-agent, check "jetson",
# Apache-2.0). Which board the last three are from is inferred from rails and memory.
TX1 = (
    "RAM 1179/3983MB (lfb 120x4MB) IRAM 0/252kB(lfb 252kB) CPU [1%@102,4%@102,0%@102,0%@102] EMC_FREQ "
    "7%@408 GR3D_FREQ 0%@76 APE 25 AO@42.5C CPU@37.5C GPU@39C PLL@37C Tdiode@42.75C PMIC@100C "
    "Tboard@42C thermal@38.5C VDD_IN 2532/2698 VDD_CPU 76/178 VDD_GPU 19/19"
)
TX2 = (
    "RAM 2344/7852MB (lfb 1154x4MB) SWAP 0/3926MB (cached 0MB) CPU "
    "[1%@345,off,off,1%@345,0%@345,2%@345] EMC_FREQ 4%@1600 GR3D_FREQ 0%@624 APE 150 PLL@37.5C "
    "MCPU@37.5C PMIC@100C Tboard@32C GPU@35C BCPU@37.5C thermal@36.5C Tdiode@34.25C VDD_SYS_GPU "
    "152/152 VDD_SYS_SOC 687/687 VDD_4V0_WIFI 0/0 VDD_IN 3056/3056 VDD_SYS_CPU 152/152 VDD_SYS_DDR "
    "883/883"
)
NANO = (
    "RAM 534/3964MB (lfb 98x4MB) SWAP 5/1982MB (cached 1MB) IRAM 0/252kB(lfb 252kB) CPU "
    "[16%@204,9%@204,0%@204,0%@204] EMC_FREQ 0%@204 GR3D_FREQ 0%@76 APE 25 PLL@34C CPU@36.5C PMIC@100C "
    "GPU@36C AO@39.5C thermal@36.25C POM_5V_IN 1022/1022 POM_5V_GPU 0/0 POM_5V_CPU 204/204"
)
AGX_XAVIER = (
    "RAM 721/31927MB (lfb 7291x4MB) SWAP 0/15963MB (cached 0MB) CPU "
    "[2%@1190,0%@1190,0%@1190,0%@1190,off,off,off,off] EMC_FREQ 0%@665 GR3D_FREQ 0%@318 APE 150 MTS fg "
    "0% bg 0% AO@37.5C GPU@37.5C Tdiode@40C PMIC@100C AUX@36C CPU@37.5C thermal@36.9C Tboard@37C GPU "
    "0/0 CPU 311/311 SOC 932/932 CV 0/0 VDDRQ 621/621 SYS5V 1482/1482"
)
XAVIER_NX = (
    "RAM 4412/7772MB (lfb 237x4MB) SWAP 139/3886MB (cached 2MB) CPU "
    "[9%@1190,6%@1190,6%@1190,5%@1190,4%@1190,8%@1267] EMC_FREQ 10%@1600 GR3D_FREQ 62%@306 APE 150 MTS "
    "fg 0% bg 0% AO@41.5C GPU@43C PMIC@100C AUX@41.5C CPU@43.5C thermal@42.55C VDD_IN 4067/4067 "
    "VDD_CPU_GPU_CV 738/738 VDD_SOC 1353/1353"
)
ORIN_NX = (
    "RAM 6334/15388MB (lfb 1770x4MB) SWAP 491/7694MB (cached 0MB) CPU "
    "[6%@729,9%@729,5%@729,16%@729,off,off,off,off] EMC_FREQ 0%@2133 GR3D_FREQ 0%@611 VIC_FREQ 729 APE "
    "174 CV0@45.812C CPU@47.937C SOC2@46.093C SOC0@46.968C CV1@46.406C GPU@45.875C tj@48.875C "
    "SOC1@48.875C CV2@45.75C VDD_IN 5299mW/5299mW VDD_CPU_GPU_CV 773mW/773mW VDD_SOC 1424mW/1424mW"
)
AGX_ORIN = (
    "RAM 29114/30697MB (lfb 3x4MB)    SWAP 4915/15348MB (cached 1MB) CPU "
    "[3%@729,4%@729,0%@729,1%@729,0%@2201,100%@2201,1%@2201,0%@2201,100%@2201,0%@2201,0%@2201,0%@2201] "
    "EMC_FREQ 1%@2133 GR3D_FREQ 0%@[305,305] NVENC      off  NVDEC    off NVJPG off NVJPG1    off      "
    "   VIC        off          OFA           off          NVDLA0    off       NVDLA1     off          "
    "PVA0_FREQ off         APE           174        cpu@53.062C soc2@48.25C soc0@48.843C  gpu@47.812C "
    "tj@53.062C soc1@48.968C    VDD_GPU_SOC 3205mW/3205mW VDD_CPU_CV 4405mW/4405mW VIN_SYS_5V0 "
    "4767mW/4767mW"
)
AGX_ORIN_USER = (
    "RAM 2448/62840MB (lfb 2x4MB) SWAP 0/31420MB (cached 0MB) CPU "
    "[0%@2201,0%@2201,0%@2201,0%@2201,0%@2201,0%@2201,0%@2201,0%@2201,0%@2201,0%@2201,0%@2201,0%@2201] "
    "GR3D_FREQ 0% cpu@42C soc2@37.843C soc0@39.187C gpu@37.75C tj@42C soc1@37.937C VDD_GPU_SOC "
    "4940mW/4940mW VDD_CPU_CV 988mW/988mW VIN_SYS_5V0 4442mW/4442mW"
)

LINES = {
    "tx1": TX1,
    "tx2": TX2,
    "nano": NANO,
    "agx-xavier": AGX_XAVIER,
    "xavier-nx": XAVIER_NX,
    "orin-nx": ORIN_NX,
    "agx-orin": AGX_ORIN,
    "agx-orin-user": AGX_ORIN_USER,
}


PATIENCE_S = 20.0  # a bound for a broken machine

RAILS_MW: dict[str, dict[str, int]] = {
    "tx1": {"VDD_IN": 2532, "VDD_CPU": 76, "VDD_GPU": 19},
    "tx2": {
        "VDD_SYS_GPU": 152,
        "VDD_SYS_SOC": 687,
        "VDD_4V0_WIFI": 0,
        "VDD_IN": 3056,
        "VDD_SYS_CPU": 152,
        "VDD_SYS_DDR": 883,
    },
    "nano": {"POM_5V_IN": 1022, "POM_5V_GPU": 0, "POM_5V_CPU": 204},
    "agx-xavier": {"GPU": 0, "CPU": 311, "SOC": 932, "CV": 0, "VDDRQ": 621, "SYS5V": 1482},
    "xavier-nx": {"VDD_IN": 4067, "VDD_CPU_GPU_CV": 738, "VDD_SOC": 1353},
    "orin-nx": {"VDD_IN": 5299, "VDD_CPU_GPU_CV": 773, "VDD_SOC": 1424},
    "agx-orin": {"VDD_GPU_SOC": 3205, "VDD_CPU_CV": 4405, "VIN_SYS_5V0": 4767},
    "agx-orin-user": {"VDD_GPU_SOC": 4940, "VDD_CPU_CV": 988, "VIN_SYS_5V0": 4442},
}


def milliwatts(text: str) -> dict[str, int]:
    return {name: round(watts * 1000) for name, watts in parse_line(text).items()}


# --- lines ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("board", LINES)
@pytest.mark.parametrize("date", ["", "11-21-2025 08:49:48 "])
def test_lines_of_boards_are_read(board: str, date: str) -> None:
    """Present power of every rail, after a date or without."""
    assert milliwatts(date + LINES[board]) == RAILS_MW[board]


def test_names_of_rails_and_zones_may_clash() -> None:
    """On an AGX Xavier ``GPU@37.5C`` is a zone, ``GPU 0/0`` a rail, and ``CPU [...]`` neither."""
    rails = parse_line(AGX_XAVIER)

    assert rails["CPU"] == pytest.approx(0.311)
    assert len(rails) == 6


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("VDD_GPU -392mW/-392mW VIN 22931mW/22800mW", {"VDD_GPU": -392, "VIN": 22931}),
        ("VDD_IN 5299mW/5300mW/9999mW VDD_SOC 1/2/3", {"VDD_IN": 5299, "VDD_SOC": 1}),
        ("NC 0mW/0mW VDDQ_VDD2_1V8AO 1091mW/1091mW NC 0mW/0mW", {"VDDQ_VDD2_1V8AO": 1091}),
        ("VDD_IN 1/1 VDD_IN 2/2", {"VDD_IN": 1, "VDD_IN#2": 2}),
        ("VDD_IN   7mW/8mW\r", {"VDD_IN": 7}),
        ("VDD_IN 7mW / 8mW", {}),
        ("VDD_IN 7", {}),
        ("VDD_IN 7mW/", {}),
        ("RAM 721/3983MB APE 25 VDD_IN 2532 VDD_GPU 19", {"VDD_IN": 2532, "VDD_GPU": 19}),
        ("RAM 721/319", {}),
        ("SWAP 0/15", {}),
        ("IRAM 0/25", {}),
        ("VDD_IN 99999999999999999999/1", {}),
        ("VDD_IN ١٢/١٢", {}),  # digits, but not of a sensor
        ("", {}),
    ],
)
def test_forms_of_rails(text: str, expected: dict[str, int]) -> None:
    """With unit or without, two values or three, negative, repeated; what is cut short is left out."""
    assert milliwatts(text) == expected


@given(st.sampled_from(sorted(LINES)), st.integers(0, 1000))
def test_a_truncated_line_says_no_more_than_a_whole_one(board: str, length: int) -> None:
    """What is left of a line that lost its end is true, as far as it goes."""
    whole, part = parse_line(LINES[board]), parse_line(LINES[board][:length])

    assert part.items() <= whole.items()


@given(st.sampled_from(sorted(LINES)), st.integers(0, 1000))
def test_a_line_that_lost_its_beginning_has_no_other_powers(board: str, start: int) -> None:
    """A tail of a line has powers of the line only, the first under a cut name at worst."""
    whole, part = parse_line(LINES[board]), parse_line(LINES[board][start:])

    for name, watts in part.items():
        assert any(known.endswith(name) and watts == value for known, value in whole.items())


WORDS = [
    word for line in LINES.values() for word in re.sub(r"\S+ -?\d+(mW)?/\d+(mW)?(?!\S)", "", line).split()
]


@given(st.lists(st.sampled_from(WORDS), max_size=30))
def test_nothing_else_is_taken_for_a_power(words: list[str]) -> None:
    """Whatever order temperatures, clocks, loads and sizes come in, no rail comes out of them."""
    assert parse_line(" ".join(words)) == {}


@given(
    st.text(max_size=80) | st.sampled_from(sorted(LINES)).flatmap(lambda b: st.permutations(LINES[b][:60]))
)
def test_garbage_is_a_line_too(text: str | list[str]) -> None:
    """No text makes the parser fail, and no rail has more than nine digits of milliwatts."""
    assert all(abs(watts) < 1e6 for watts in parse_line("".join(text)).values())


# --- the child -----------------------------------------------------------------------------------

Fake = Callable[[str], Path]


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    def write(body: str) -> Path:
        binary = tmp_path / "tegrastats"
        binary.write_text(f"#!/bin/sh\n{body}\n")
        binary.chmod(0o755)
        return binary

    return write


def printing(*lines: str) -> str:
    """A script that prints these lines at once, and then nothing until it is ended."""
    return "cat <<'END'\n" + "\n".join(lines) + "\nEND\nexec sleep 1000"


def found(binary: Path | str, **options: Any) -> list[Reading]:
    ticks = itertools.count()
    options = {"now": lambda: next(ticks) * 0.1, "responses": lambda _: None} | options
    result: list[Reading] = tegrastats_readings(0, binary=binary, **options)
    return result


@pytest.fixture
def opened() -> Iterator[Callable[[Reading], PowerSampler]]:
    with openings() as start:
        yield start


@pytest.mark.parametrize(
    ("line", "names"),
    [
        (NANO, ["POM_5V_IN", "POM_5V_GPU", "POM_5V_CPU"]),
        (XAVIER_NX, ["VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"]),
        (AGX_ORIN, ["VDD_GPU_SOC+VDD_CPU_CV+VIN_SYS_5V0", "VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"]),
    ],
)
def test_rails_are_offered_best_first(fake: Fake, line: str, names: list[str]) -> None:
    """One line tells the rails: the total input first, else their sum, then what the GPU hangs on."""
    assert [reading.name for reading in found(fake(printing(line)))] == [f"tegrastats:{n}" for n in names]


def test_each_line_is_a_sample(fake: Fake, opened: Callable[[Reading], PowerSampler]) -> None:
    """Present power in watts, changed or not, on the clock of the reader; the average is never used."""
    powers = [5000, 5100, 5100, 5200, 5200]
    lines = [re.sub("VDD_IN 5299mW/5299mW", f"VDD_IN {mw}mW/1mW", ORIN_NX) for mw in powers]
    sampler = opened(found(fake(printing(*lines)))[0])

    samples = collected(sampler, 4)

    assert [sample.value for sample in samples] == [5.1, 5.1, 5.2, 5.2]
    gaps_s = [b.time_s - a.time_s for a, b in itertools.pairwise(samples)]
    assert gaps_s == pytest.approx([0.1, 0.1, 0.1], abs=0.051)
    assert sampler.info.scope == "VDD_IN (total input)"
    assert (sampler.info.kind, sampler.info.period_s) == ("stream", 0.1)
    assert sampler.info.resolution == pytest.approx(0.04)
    assert sampler.info.response == Response("boxcar", window_s=0.1, averages=False)


def test_a_sum_is_named_as_such(fake: Fake, opened: Callable[[Reading], PowerSampler]) -> None:
    """Rails that are added up are named in reading and scope, and their steps add up too."""
    reading = found(fake(printing(*[AGX_XAVIER, AGX_XAVIER.replace("SOC 932", "SOC 1000")] * 2)))[0]
    sampler = opened(reading)

    samples = collected(sampler, 2)

    assert reading.name == "tegrastats:GPU+CPU+SOC+CV+VDDRQ+SYS5V"
    assert sampler.info.scope == "GPU + CPU + SOC + CV + VDDRQ + SYS5V (sum of all rails)"
    assert [sample.value for sample in samples[:2]] == pytest.approx([3.414, 3.346])
    assert sampler.info.resolution == pytest.approx(0.04 * 6**0.5)


def test_a_calibrated_response_is_used(fake: Fake, opened: Callable[[Reading], PowerSampler]) -> None:
    """What was fitted on this board replaces what is assumed, by the reading's name."""
    fitted = Response("lag", capacitance_s=0.2, origin="calibrated")
    known = {"tegrastats:VDD_IN": fitted}

    first, second, *_ = found(fake(printing(ORIN_NX)), responses=known.get)

    assert opened(first).info.response == fitted
    assert opened(second).info.response.origin == "assumed"


def test_broken_lines_are_passed_over(fake: Fake, opened: Callable[[Reading], PowerSampler]) -> None:
    """A line that is cut short gives no sample of the rails it lost, and does no harm."""
    broken = [ORIN_NX[:-40], "\x1b[0m\x01garbage VDD_IN", ORIN_NX[: len(ORIN_NX) // 2]]
    changed = ORIN_NX.replace("VDD_SOC 1424", "VDD_SOC 1500")
    readings_of = found(fake(printing(ORIN_NX, *broken, changed)))
    soc = opened(next(r for r in readings_of if r.name == "tegrastats:VDD_SOC"))

    assert [sample.value for sample in collected(soc, 1)] == [1.5]


def test_rails_share_one_process(
    tmp_path: Path, fake: Fake, opened: Callable[[Reading], PowerSampler]
) -> None:
    """However many rails are read, one tegrastats runs, with its interval, and the last to close ends it."""
    log = tmp_path / "starts"
    binary = fake(f'echo "$$ $*" >> {log}\n' + printing(ORIN_NX))
    offered = found(binary, interval_s=0.25)
    before = len(log.read_text().splitlines())
    first, second = opened(offered[0]), opened(offered[1])

    runs = [line.split() for line in log.read_text().splitlines()[before:]]

    assert [run[1:] for run in runs] == [["--interval", "250"]]
    first.close()
    assert second.poll() == []
    second.close()
    gone(int(runs[0][0]))


def test_the_process_of_the_listing_is_ended(tmp_path: Path, fake: Fake) -> None:
    """Learning the names of the rails leaves nothing running."""
    log = tmp_path / "starts"

    found(fake(f"echo $$ >> {log}\n" + printing(ORIN_NX)))

    gone(int(log.read_text()))


def reason(binary: Path | str) -> str:
    (reading,) = found(binary, interval_s=0.001)
    assert reading.name == "tegrastats"
    with pytest.raises(SensorUnavailableError) as caught:
        reading.open()
    return str(caught.value)


def test_a_missing_binary_is_told() -> None:
    """Without the binary, as on any machine that is no Jetson, there is one reading that says so."""
    assert reason("/no/such/tegrastats") == (
        "/no/such/tegrastats is not here or cannot be run; it comes with JetPack, on Jetson boards"
    )


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "echo 'tegrastats: must be run as root' >&2; exit 1",
            "exit status 1, saying: tegrastats: must be run",
        ),
        ("exit 0", "tegrastats ended with exit status 0"),
        ("kill -11 $$", "was ended by SIGSEGV"),
        (f"echo '{ORIN_NX.partition(' VDD_IN')[0]}'; exit 0", "ended with exit status 0, saying: RAM"),
    ],
)
def test_a_binary_that_ends_says_why(fake: Fake, body: str, said: str) -> None:
    """What it printed last, on either stream, is the reason."""
    assert said in reason(fake(body))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("exec sleep 1000", "tegrastats prints nothing within"),
        (
            printing(ORIN_NX.partition(" VDD_IN")[0]),
            "names no power rails .*root.*it prints: RAM 6334/15388MB",
        ),
    ],
)
def test_a_silent_binary_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, fake: Fake, body: str, said: str
) -> None:
    """Where no rail comes in time the reason is that, with what came instead and what may help."""
    monkeypatch.setattr("tuner.power.sensors.jetson._PATIENCE_S", 0.3)

    assert re.search(said, reason(fake(body)))


def test_a_rail_that_vanishes_cannot_be_opened(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fake: Fake
) -> None:
    """A rail that was there when rails were listed and is not now is unavailable."""
    monkeypatch.setattr("tuner.power.sensors.jetson._PATIENCE_S", 0.3)
    second = tmp_path / "second"
    switch = f"if [ -e {second} ]; then {printing(NANO)}\nfi\ntouch {second}\n" + printing(ORIN_NX)
    offered = found(fake(switch))

    with pytest.raises(SensorUnavailableError, match="names no power rails"):
        offered[0].open()


def test_a_process_that_dies_in_use_is_a_power_error(
    fake: Fake, tmp_path: Path, opened: Callable[[Reading], PowerSampler]
) -> None:
    """Its last samples are still given; then polling says what happened."""
    go = tmp_path / "go"
    line = ORIN_NX.replace("VDD_IN 5299", "VDD_IN 6000")
    body = f"echo '{ORIN_NX}'\nuntil [ -e {go} ]; do sleep 0.01; done\necho '{line}'\nexit 7"
    go.touch()
    offered = found(fake(body))
    go.unlink()
    sampler = opened(offered[0])
    go.touch()

    assert [sample.value for sample in collected(sampler, 1)] == [6.0]
    said = r"tegrastats:VDD_IN: tegrastats ended with exit status 7, saying: RAM"
    with pytest.raises(PowerError, match=said):
        collected(sampler, 1)
