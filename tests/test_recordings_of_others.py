"""Spaces of other tuners: Kernel Tuner's caches, and NumPy archives made of them."""

import contextlib
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recorded_samples as samples
from hypothesis import given
from hypothesis import strategies as st

from tuner.model.errors import InputError
from tuner.model.trial import Status, Trial
from tuner.recordings.files import open_recording
from tuner.recordings.values import RecordedSpace


def opened(path: Path) -> RecordedSpace:
    recording = open_recording(path)
    (names,) = recording.names
    return recording.space(names)


# --- Kernel Tuner's caches -----------------------------------------------------------------------


def test_a_cache_is_a_space(tmp_path: Path) -> None:
    """Times are seconds, failures keep their name, and a mean is as sure as its repeats scatter."""
    one = opened(samples.cache_file(tmp_path / "cache.json"))
    (workload,) = one.workloads
    first, second, third = (one.trials[Trial((c.configuration,))] for c in workload.candidates)

    assert one.names == ("convolution_kernel",)
    assert one.identity.name == "NVIDIA A100"
    assert one.limits is None
    assert workload.tunables == {"block_size_x": (16, 32), "layout": ("row", "column")}
    assert workload.sizes == {"x": 4096, "y": 4096}
    assert not any(c.launches or c.work for c in workload.candidates)
    assert first.makespan_s == pytest.approx(2e-3)
    assert first.makespan_spread_s == pytest.approx(1e-3)
    assert first.makespan_uncertainty_s == pytest.approx(1e-3 / 3**0.5)
    assert first.window_s == pytest.approx(0.12)
    assert first.check_s == pytest.approx(0.01)
    assert second.makespan_s == pytest.approx(1e-3)
    assert third.status is Status.LAUNCH_ERROR
    assert third.results[0].detail == "RuntimeFailedConfig"


@pytest.mark.parametrize("cut", ["}}", "}", ",}}", ""])
def test_an_open_ending_is_closed(tmp_path: Path, cut: str) -> None:
    """A cache of a tuning that was stopped lacks its closing brackets, and may end with a comma."""
    path = samples.cache_file(tmp_path / "cache.json")
    text = path.read_text()
    path.write_text(
        text[: len(text) - 2] + "," * cut.startswith(",") + "}}"[: 2 - len(cut.strip(","))] + "\n"
    )

    assert len(opened(path).trials) == 3


def test_a_packed_cache_is_unpacked(tmp_path: Path) -> None:
    """Public caches are packed by gzip."""
    path = tmp_path / "cache.json.gz"
    path.write_bytes(gzip.compress(json.dumps(samples.cache()).encode()))

    assert len(opened(path).trials) == 3


def test_a_cache_of_one_configuration_is_a_space(tmp_path: Path) -> None:
    """A single configuration is a space, too."""
    entry = {"1": {"a": 1, "time": 0.5}}
    path = samples.cache_file(
        tmp_path / "c.json",
        tune_params_keys=["a"],
        tune_params={"a": [1]},
        problem_size="callable",
        cache=entry,
    )

    one = opened(path)
    assert len(one.trials) == 1
    assert one.workloads[0].sizes == {}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"device_name": None}, "device_name is None; expected text"),
        ({"kernel_name": 3}, "kernel_name is 3"),
        ({"tune_params": []}, "tune_params is .*; expected an object"),
        ({"tune_params_keys": ["block_size_x"]}, "expected the names of tune_params"),
        ({"tune_params": {"block_size_x": [], "layout": ["row"]}}, "values of block_size_x"),
        ({"tune_params": {"block_size_x": [16, 16], "layout": ["row"]}}, "a value is in it twice"),
        ({"cache": {}}, "no configuration is in it"),
        ({"cache": [1]}, "cache is .*; expected an object"),
        ({"cache": {"a": {"block_size_x": 16}}}, "layout is missing"),
        (
            {"cache": {"a": {"block_size_x": 48, "layout": "row", "time": 1}}},
            "which tune_params does not list",
        ),
        ({"cache": {"a": {"block_size_x": 16, "layout": "row", "time": -1}}}, "milliseconds above zero"),
        (
            {"cache": {"a": {"block_size_x": 16, "layout": "row", "time": "Odd"}}},
            "or CompilationFailedConfig",
        ),
        (
            {"cache": {"a": {"block_size_x": 16, "layout": "row", "time": float("nan")}}},
            "time is nan; expected milliseconds above zero",
        ),
        ({"cache": {"a": {"block_size_x": 16, "layout": "row", "times": ["x"]}}}, "times is"),
    ],
)
def test_a_wrong_cache_is_refused(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    """What is wrong in a cache is named with the file and the entry."""
    with pytest.raises(InputError, match=rf"cache\.json: .*{says}"):
        open_recording(samples.cache_file(tmp_path / "cache.json", **changes))


@pytest.mark.parametrize(
    "wrong",
    [
        3,
        {"block_size_x": 16},
        {"block_size_x": 48, "layout": "row", "time": 1},
        {"block_size_x": 16, "layout": "row", "time": 0.0},
        {"block_size_x": 16, "layout": "row", "time": 1e999},
        {"block_size_x": 32, "layout": "row", "time": 2.0},
    ],
    ids=str,
)
def test_one_bad_entry_is_left_out_and_named(
    tmp_path: Path, wrong: object, caplog: pytest.LogCaptureFixture
) -> None:
    """The others are a recording; an entry whose configuration another one has is wrong, too."""
    good = {"block_size_x": 32, "layout": "row", "time": 1.0, "m": float("nan")}
    recording = open_recording(samples.cache_file(tmp_path / "c.json", cache={"good": good, "bad": wrong}))
    (names,) = recording.names
    (gave,) = recording.space(names).trials.values()
    assert gave.makespan_s == 1e-3
    assert "c.json: left out: cache['bad']" in caplog.text


@pytest.mark.parametrize("content", [b"", b"hello", b"[1, 2]", b"\xff\xfe", b"\x1f\x8b\x08torn", b"null"])
def test_any_other_file_is_refused(tmp_path: Path, content: bytes) -> None:
    """A file of another kind is refused by its name."""
    path = tmp_path / "thing"
    path.write_bytes(content)

    with pytest.raises(InputError, match="thing: "):
        open_recording(path)


@given(data=st.data())
def test_damaged_documents_are_refused_or_read(tmp_path: Path, data: st.DataObject) -> None:
    """Whatever single value of a cache, or of an archive's words, is replaced: read or refused in words."""
    words, meta = samples.cache(), json.loads(json.dumps(META))
    samples.damage(words, data)
    samples.damage(meta, data)

    with contextlib.suppress(InputError):
        assert opened(samples.cache_file(tmp_path / "a.json", **words)).trials
    with contextlib.suppress(InputError):
        assert opened(npz(tmp_path / "a.npz", meta=meta)).trials


def test_a_packed_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What unpacks to more than any space has is refused."""
    path = tmp_path / "cache.json.gz"
    path.write_bytes(gzip.compress(b" " * 2**23))

    with pytest.raises(InputError, match="at most 50 times is read"):
        open_recording(path)
    monkeypatch.setattr("tuner.system.untrusted.archives.ARCHIVE_BYTES", 2**16)
    with pytest.raises(InputError, match="64 KiB"):
        open_recording(path)


# --- NumPy archives ------------------------------------------------------------------------------

META = {
    "space": "convolution_A100",
    "kernel": "convolution_kernel",
    "device": "NVIDIA A100",
    "problem_size": [4096, 4096],
    "names": ["x", "layout"],
    "values": [[16, 32], ["row", "column"]],
    "status_codes": ["ok", "CompilationFailedConfig", "InvalidConfig"],
}


def npz(path: Path, meta: object = None, **arrays: Any) -> Path:
    """An archive of three configurations, the last of which failed; None leaves an array out."""
    stored = {
        "meta": np.array(meta if isinstance(meta, str) else json.dumps(meta or META)),
        "idx": np.array([[0, 0], [1, 0], [1, 1]], dtype=np.uint8),
        "time_ms": np.array([2.0, 1.0, np.nan]),
        "time_sd_ms": np.array([0.1, np.nan, np.nan], dtype=np.float32),
        "status": np.array([0, 0, 1], dtype=np.uint8),
        "bench_ms": np.array([120.0, 100.0, np.nan], dtype=np.float32),
        **arrays,
    }
    np.savez(path, **{name: array for name, array in stored.items() if array is not None})
    return path


def test_an_npz_is_a_space(tmp_path: Path) -> None:
    """Its name is that of the space; not-a-number is a failure with its status."""
    one = opened(npz(tmp_path / "a.npz"))
    first, second, third = one.trials.values()

    assert one.names == ("convolution_A100",)
    assert one.workloads[0].kernel == "convolution_kernel"
    assert one.workloads[0].tunables == {"x": (16, 32), "layout": ("row", "column")}
    assert first.makespan_s == pytest.approx(2e-3)
    assert first.makespan_uncertainty_s == pytest.approx(1e-4)
    assert first.window_s == pytest.approx(0.12)
    assert second.makespan_uncertainty_s == 0.0
    assert third.status is Status.COMPILE_ERROR


def test_an_npz_need_not_be_called_so(tmp_path: Path) -> None:
    """The kind of a file is told by what is in it, and side arrays may be missing."""
    path = npz(tmp_path / "a.npz", time_sd_ms=None, bench_ms=None).rename(tmp_path / "a")

    assert len(opened(path).trials) == 3


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"meta": "{"}, "Expecting property name"),
        ({"meta": META | {"names": ["x", "x"]}}, "expected different texts"),
        ({"meta": META | {"names": ["x"]}}, "a list of values for every name"),
        ({"meta": META | {"device": 1}}, "device is 1"),
        ({"meta": META | {"values": [[16, 32], []]}}, "values of layout"),
        ({"meta": META | {"status_codes": "ok"}}, "status_codes as a list"),
        ({"idx": None}, "idx is missing; expected arrays meta, idx, time_ms, status"),
        ({"idx": np.array([[0, 0], [1, 0], [2, 1]])}, "positions of x go from 0 to 2; it has 2 values"),
        ({"idx": np.array([[0, 0], [1, 0], [1, 0]])}, "x=32 layout=row is in it twice"),
        ({"idx": np.array([0, 1, 2])}, r"expected whole numbers, rows × 2"),
        ({"idx": np.zeros((0, 2), dtype=int), "time_ms": None}, "time_ms is missing"),
        ({"time_ms": np.array([1.0, 2.0])}, "expected 3 numbers"),
        ({"time_ms": np.array(["a", "b", "c"])}, "expected 3 numbers"),
        ({"time_ms": np.array([1.0, -1.0, np.nan])}, r"time_ms\[1\] is -1.0"),
        ({"time_ms": np.array([1.0, np.nan, np.nan])}, r"time_ms\[1\] is nan and its status ok"),
        ({"status": np.array([0, 0, 7])}, r"status\[2\] is 7"),
        ({"status": np.array([0, 0, 0])}, r"time_ms\[2\] is nan"),
        ({"idx": np.array([[None, None]] * 3, dtype=object)}, "pickle"),
    ],
)
def test_a_wrong_npz_is_refused(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    """What is wrong in an archive is named with the file and the array; nothing in it is executed."""
    with pytest.raises(InputError, match=rf"a\.npz: .*{says}"):
        open_recording(npz(tmp_path / "a.npz", **changes))


def test_a_large_or_torn_npz_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An array beyond any space is not read, and neither is a torn file."""
    path = npz(tmp_path / "a.npz")
    torn = tmp_path / "torn.npz"
    torn.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(InputError, match=r"torn\.npz: "):
        open_recording(torn)

    monkeypatch.setattr("tuner.system.untrusted.archives.ARCHIVE_BYTES", path.stat().st_size - 1)
    with pytest.raises(InputError, match="is larger than"):
        open_recording(path)
