"""Trace files: what is written is read again and replayed at its pace, and what is wrong is named."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sampler_rigs import HandClock
from tuner.power.base import ClockReading, Reading, Response, Sample, SensorInfo
from tuner.power.sensors.recorded import ReplaySampler, TraceFile, reading

from tuner.model.errors import InputError, PowerError, SensorUnavailableError
from tuner.system.untrusted.reading import TRACE_SAMPLES

FINITE = st.floats(allow_nan=False, allow_infinity=False)
SIGMA = st.floats(0.0, 1e6)
TEXT = st.text(max_size=12)

TRACE = TraceFile(
    SensorInfo("nvml-power-ring", "ring", "gpu", 0.02, resolution=0.001),
    (Sample(0.5, 100.0, 0.001), Sample(0.52, 101.5, 0.001), Sample(0.54, -0.4)),
    marks=((0.5, "launch"), (0.53, 'second "phase"\n')),
    clocks=((0.5, ClockReading(1980.0, ("sw-power-cap",))), (0.6, ClockReading(None))),
    provenance={"host": "a", "driver": "580.1", "seconds": 3},
)


@st.composite
def traces(draw: st.DrawFn) -> TraceFile:
    response = Response(
        "lag", capacitance_s=draw(SIGMA), origin=draw(st.sampled_from(["assumed", "calibrated"]))
    )
    info = SensorInfo(
        draw(TEXT),
        draw(st.sampled_from(["counter", "ring", "stream"])),
        draw(TEXT),
        draw(SIGMA),
        response=response,
    )
    reading = st.builds(ClockReading, st.none() | FINITE, st.lists(TEXT, max_size=2).map(tuple))
    return TraceFile(
        info,
        tuple(draw(st.lists(st.builds(Sample, FINITE, FINITE, SIGMA), max_size=6))),
        tuple(draw(st.lists(st.tuples(FINITE, TEXT), max_size=3))),
        tuple(draw(st.lists(st.tuples(FINITE, reading), max_size=3))),
        draw(st.dictionaries(TEXT, TEXT | st.integers(-9, 9) | st.booleans() | st.none(), max_size=3)),
    )


@pytest.mark.parametrize("suffix", ["json", "csv"])
def test_an_older_trace_keeps_its_zeros(tmp_path: Path, suffix: str) -> None:
    """A file that does not say whether its rail may be off had zeros for readings."""
    path = tmp_path / f"trace.{suffix}"
    TRACE.write(path)
    path.write_text(path.read_text().replace(', "may_be_zero": false', ""))
    assert TraceFile.read(path).info.may_be_zero


@pytest.mark.parametrize("suffix", ["json", "csv", "CSV"])
@given(trace=traces())
@example(trace=TRACE)
@example(trace=replace(TRACE, marks=((0.0, ","),)))  # its JSON in a comment opens a quoted cell of CSV
def test_every_trace_survives(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, trace: TraceFile
) -> None:
    """Whatever the labels and numbers are, writing and reading is the identity."""
    path = tmp_path_factory.mktemp("trace") / f"trace.{suffix}"

    trace.write(path)

    assert TraceFile.read(path) == trace


@pytest.mark.parametrize("suffix", ["json", "csv"])
def test_every_truncation_is_refused(tmp_path: Path, suffix: str) -> None:
    """A file that lost its end is an input error that names the file; only the last line break may go."""
    path = tmp_path / f"trace.{suffix}"
    TRACE.write(path)
    whole = path.read_text()
    shortest_whole = len(whole) - (suffix == "json")

    for length in range(shortest_whole):
        path.write_text(whole[:length])
        with pytest.raises(InputError, match=path.name):
            TraceFile.read(path)


def changed(**changes: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(TRACE.to_json())
    return document | changes


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (changed(format="nvidia-smi"), "format: .*tuner-power-trace"),
        (changed(version=2), "version: .*1"),
        (changed(info={"name": "a", "kind": "ring", "period_s": 0.1}), "info.scope: "),
        (changed(info={**changed()["info"], "kind": "rings"}), "info.kind: .*'counter', 'ring' or 'stream'"),
        (changed(info={**changed()["info"], "scop": "gpu"}), "info.scop: Unexpected"),
        (changed(info={**changed()["info"], "response": {"kind": "rc"}}), "info.response.kind: .*'lag'"),
        (changed(samples=[[0.0, 1.0, 0.0], [0.1, "2", 0.0]]), r"samples\[1\]\[1\]: .*number"),
        (changed(samples=[[0.0, float("nan"), 0.0]]), r"samples\[0\]\[1\]: .*finite"),
        (changed(samples=[[0.0, 1.0, -1.0]]), r"samples\[0\]\[2\]: .*greater than or equal to 0"),
        (changed(samples=[[0.0, 1.0]]), r"samples\[0\]\[2\]: "),
        (changed(marks=[["a", 0.0]]), r"marks\[0\]\[0\]: "),
        (changed(extra=1), "extra: "),
        ([1, 2], "trace.json: "),
    ],
)
def test_a_wrong_key_is_named(tmp_path: Path, document: Any, message: str) -> None:
    """The complaint names the file, the key, and what would be right."""
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))

    with pytest.raises(InputError, match=message) as caught:
        TraceFile.read(path)

    assert str(path) in str(caught.value)


def test_many_wrong_keys_are_few_lines(tmp_path: Path) -> None:
    """A file that is wrong all over is not repeated line by line."""
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(changed(samples=[["a", "b", "c"]] * 100)))

    with pytest.raises(InputError, match="and 295 more") as caught:
        TraceFile.read(path)

    assert len(str(caught.value).splitlines()) == 6


HEAD = "\n".join(TRACE.to_csv().splitlines()[:5]) + "\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "columns time_s and watts or joules"),
        ("time,power\n1,2\n", "columns time_s and watts or joules"),
        ("time_s,watts\n0.1,100\n0.2,abc\n", "line 3: watts: 'abc'"),
        ("time_s,watts\n0.1,100\n0.2\n", "line 3: watts: ''"),
        ("time_s,watts\ninf,100\n", "line 2: time_s: 'inf'"),
        ("time_s,watts,time_sigma_s\n0.1,1,-1\n", "line 2: time_sigma_s: '-1'"),
        (HEAD + "# samples 2\ntime_s,watts\n0,1\n", "holds 1 samples, 2 announced"),
        (HEAD + "time_s,watts\n0,1\n", "None announced"),
        (HEAD + "# extra 2\n# samples 0\ntime_s,watts\n", "extra: "),
        (HEAD.replace('"kind": "ring"', '"kind": 3') + "# samples 0\ntime_s,watts\n", "info.kind: "),
        (HEAD.replace('"kind"', "kind") + "# samples 0\ntime_s,watts\n", "line 2: info: is no JSON"),
        (HEAD.replace("trace 1", "trace 7") + "# samples 0\ntime_s,watts\n", "version: "),
    ],
)
def test_a_wrong_table_is_named(tmp_path: Path, text: str, message: str) -> None:
    """A CSV is refused with its file and line, or the key of its head."""
    path = tmp_path / "trace.csv"
    path.write_text(text)

    with pytest.raises(InputError, match=message) as caught:
        TraceFile.read(path)

    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("header", "kind", "value"), [("watts", "stream", 100.0), ("joules", "counter", 100.0)]
)
def test_a_table_of_another_origin_can_be_read(tmp_path: Path, header: str, kind: str, value: float) -> None:
    """Two columns are enough; what the sensor saw is then not stated, and its period is the usual gap."""
    path = tmp_path / "meter.csv"
    path.write_text(
        f"phase,time_s,{header}\nidle,1.0,{value}\nidle, 1.1,{value}\nbusy,1.2,{value}\nbusy,1.9,{value}\n"
    )

    trace = TraceFile.read(path)

    assert (trace.info.name, trace.info.kind, trace.info.scope) == ("meter", kind, "not stated")
    assert trace.info.period_s == pytest.approx(0.1)
    assert trace.samples[1] == Sample(1.1, value)


@pytest.mark.parametrize(("name", "data"), [("a.json", b"\xff\xfe\x00"), ("a.csv", b"\x80")])
def test_a_binary_file_is_no_trace(tmp_path: Path, name: str, data: bytes) -> None:
    """Bytes that are no text are an input error as well."""
    (tmp_path / name).write_bytes(data)

    with pytest.raises(InputError, match="not text"):
        TraceFile.read(tmp_path / name)


@pytest.mark.parametrize(("name", "sample"), [("a.json", "["), ("a.csv", "\n")])
def test_a_trace_of_too_many_samples_is_not_read(tmp_path: Path, name: str, sample: str) -> None:
    """They are counted before anything is made of them; as many as are allowed have another fault."""
    for beyond in (0, 1):
        (tmp_path / name).write_text(sample * (TRACE_SAMPLES + beyond))
        with pytest.raises(InputError) as refused:
            TraceFile.read(tmp_path / name)
        assert ("more than 500,000 samples; cut it into parts" in str(refused.value)) == bool(beyond)


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    """Missing files and folders that cannot be written are input errors with the path and the reason."""
    with pytest.raises(InputError, match=r"nowhere\.json: cannot be read: No such file"):
        TraceFile.read(tmp_path / "nowhere.json")
    with pytest.raises(InputError, match="cannot be written: No such file"):
        TRACE.write(tmp_path / "nowhere" / "a.json")


@given(st.text(max_size=60) | st.text(max_size=60).map(lambda text: "# tuner-power-trace 1\n# " + text))
def test_garbage_is_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """No text raises anything but an input error."""
    folder = tmp_path_factory.mktemp("garbage")
    for name in ("a.json", "a.csv"):
        (folder / name).write_text(text)
        with pytest.raises(InputError):
            TraceFile.read(folder / name)


INFO = SensorInfo(
    "nvml-power-ring",
    "ring",
    "gpu",
    0.02,
    poll_interval_s=0.25,
    response=Response("lag", capacitance_s=0.017),
)


def trace(*times_s: float) -> TraceFile:
    return TraceFile(
        INFO, tuple(Sample(time_s, 100.0 + number, 0.001) for number, time_s in enumerate(times_s))
    )


def found(file: Path, clock: HandClock, **options: Any) -> Reading:
    offered: Reading = reading(file, now=clock, **options)
    return offered


def test_samples_come_when_their_time_has_come(tmp_path: Path) -> None:
    """The first sample is due at once, the others as long after it as they were recorded, each once."""
    path, clock = tmp_path / "trace.json", HandClock(50.0)
    trace(7.0, 7.02, 7.05).write(path)
    sampler = found(path, clock).open()

    assert sampler.due_s == 50.0
    assert sampler.poll() == [Sample(50.0, 100.0, 0.001)]
    assert sampler.poll() == []
    assert sampler.due_s == pytest.approx(50.02)
    clock.time_s = 51.0
    assert [(round(s.time_s, 6), s.value) for s in sampler.poll()] == [(50.02, 101.0), (50.05, 102.0)]
    sampler.close()


def test_a_replay_says_that_it_is_one(tmp_path: Path) -> None:
    """Name and scope tell what was recorded; the response is the recorded one."""
    path = tmp_path / "trace.csv"
    trace(0.0, 0.02).write(path)

    info = found(path, HandClock(0.0)).open().info

    assert (info.name, info.scope, info.kind) == ("replay:nvml-power-ring", "gpu", "ring")
    assert info.response == INFO.response
    assert (info.period_s, info.poll_interval_s) == (0.02, 0.005)


def test_the_end_is_told_after_the_last_sample() -> None:
    """A trace that is over is a sensor that stopped answering, once nothing is left to tell."""
    clock = HandClock(0.0)
    sampler = ReplaySampler(trace(3.0, 3.02), clock)
    clock.time_s = 10.0
    assert len(sampler.poll()) == 2

    with pytest.raises(PowerError, match="replay:nvml-power-ring: the trace has ended"):
        sampler.poll()


def test_the_last_period_is_no_end() -> None:
    """Between the last sample and the next that would be due nothing is wrong."""
    clock = HandClock(0.0)
    sampler = ReplaySampler(trace(3.0, 3.02), clock)
    clock.time_s = 0.03
    sampler.poll()
    clock.time_s = 0.06

    assert sampler.poll() == []
    assert sampler.due_s == pytest.approx(0.1)


@given(st.lists(st.floats(0.0, 10.0), min_size=1, max_size=20), st.lists(st.floats(0.0, 12.0), max_size=10))
def test_every_sample_comes_once_and_in_order(times_s: list[float], polls_s: list[float]) -> None:
    """However often it is polled, and though time ran backwards in the trace, nothing is lost or changed."""
    clock = HandClock(5.0)
    sampler = ReplaySampler(trace(*times_s), clock)
    values: list[float] = []
    for poll_s in [*sorted(polls_s), 10.0, 30.0]:
        clock.time_s = 5.0 + poll_s
        if len(values) < len(times_s):
            values += [sample.value for sample in sampler.poll()]

    assert values == [100.0 + number for number in range(len(times_s))]


def test_reasons_for_no_replay(tmp_path: Path) -> None:
    """An empty trace and a file that is none are told apart, each with what it is about."""
    clock, empty, broken = HandClock(0.0), tmp_path / "empty.json", tmp_path / "broken.json"
    trace().write(empty)
    broken.write_text("{")

    with pytest.raises(
        SensorUnavailableError, match=r"empty\.json: the trace of nvml-power-ring holds no samples"
    ):
        found(empty, clock).open()
    with pytest.raises(InputError, match=r"broken\.json: .*truncated"):
        found(broken, clock).open()
