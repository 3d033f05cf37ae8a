"""Recorded spaces as files: what is written is read again, and what is no such file is refused in words."""

import contextlib
import gzip
import json
import math
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recorded_samples as samples
from hypothesis import given
from hypothesis import strategies as st

from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import InputError
from tuner.model.objective import Objective
from tuner.model.plan import Work
from tuner.model.registry import load
from tuner.model.trial import Energy, Flag, Measurement, Status, Trial, WorkloadResult
from tuner.recordings import checking
from tuner.recordings.files import RecordingFile, document, matching, open_recording, read, write
from tuner.recordings.values import RecordedSpace, search_of
from tuner.studies.comparison import play

Change = Callable[[dict[str, Any]], Any]

POSITIVE = st.floats(1e-9, 1e9)
AMOUNTS = st.floats(0.0, 1e9)
ENERGIES = st.builds(
    Energy,
    joules=POSITIVE,
    uncertainty_j=AMOUNTS,
    watts=POSITIVE,
    sensor=st.text(max_size=5),
    scope=st.just("gpu"),
    degrees=st.none() | POSITIVE,
    idle_watts=st.none() | st.floats(-1e3, 1e3),
    idle_uncertainty_w=AMOUNTS,
)
VALID = st.builds(
    Measurement,
    results=st.tuples(
        st.builds(WorkloadResult, st.just(Status.OK), POSITIVE, AMOUNTS, restore_s=st.just(0.0) | AMOUNTS)
    ),
    makespan_s=POSITIVE,
    makespan_spread_s=AMOUNTS,
    makespan_uncertainty_s=AMOUNTS,
    repeats=st.integers(1, 9),
    energy=st.none() | ENERGIES,
    rounds=st.integers(0, 10**6),
    window_s=AMOUNTS,
    clock_mhz=st.none() | POSITIVE,
    flags=st.lists(st.text(max_size=5).map(Flag.parse), max_size=2).map(tuple),
    modelled=st.booleans(),
    check_s=AMOUNTS,
    energy_total_j=AMOUNTS,
)
INVALID = st.builds(
    Measurement,
    results=st.tuples(
        st.builds(
            WorkloadResult,
            st.sampled_from([status for status in Status if status is not Status.OK]),
            detail=st.text(max_size=9),
        )
    ),
)


@given(
    results=st.lists(VALID | INVALID, min_size=3, max_size=3),
    clocks_mhz=st.sampled_from([(None,), (1980, 1200), (None, 900)]),
    launches=st.booleans(),
)
def test_what_is_written_is_read_again(
    tmp_path: Path, results: list[Measurement], clocks_mhz: tuple[int | None, ...], launches: bool
) -> None:
    """A space comes back equal: measurements with their uncertainties, failures, clocks, launches."""
    one = samples.space(samples.workload(launches=launches), results, clocks_mhz=clocks_mhz)

    assert samples.written(tmp_path / "a.zip", one).space(one.names) == one


def test_joint_spaces_and_spaces_without_limits_come_back(tmp_path: Path) -> None:
    """Workloads measured together keep their order; a space of an unknown GPU has no limits."""
    pair = (samples.workload(), samples.workload("fft:N=128", (64, 128)))
    trials = {
        Trial((a.configuration, b.configuration)): samples.measured(1e-3 * i + 1e-3, lanes=2)
        for i, (a, b) in enumerate((a, b) for a in pair[0].candidates for b in pair[1].candidates)
    }
    joint = replace(samples.space(), workloads=pair, trials=trials)
    bare = samples.space(samples.workload("x", launches=False), limits=None)

    assert read(samples.written(tmp_path / "a.zip", joint, bare).path) == [joint, bare]


def test_work_that_is_assumed_is_kept_as_such(tmp_path: Path) -> None:
    """What says that a kernel file states no work comes back, and is left out where every file states it."""
    stated = samples.workload()
    candidates = tuple(replace(c, work=Work(8.0, 0.0, assumed=True)) for c in stated.candidates)
    space = samples.space(replace(stated, candidates=candidates))

    assert samples.written(tmp_path / "a.zip", space).space(space.names) == space
    assert "assumed" in document(space)["workloads"][0]["work"]
    assert "assumed" not in document(samples.space(stated))["workloads"][0]["work"]


def test_the_same_spaces_give_the_same_bytes(tmp_path: Path) -> None:
    """A file does not depend on when it was written."""
    first, second = (samples.written(tmp_path / name, samples.space()).path for name in ("a", "b"))

    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize(
    ("spaces", "says"),
    [
        ([samples.space(), samples.space()], "given twice"),
        ([samples.space(samples.workload("a+b"))], "has no +"),
        ([replace(samples.space(), trials={})], "no trial was recorded"),
        ([replace(samples.space(), workloads=(samples.workload(),) * 2)], "different names"),
        ([samples.space(samples.workload("\ud800:N=64"))], "different names that can be printed"),
    ],
)
def test_what_cannot_be_a_file_is_refused(tmp_path: Path, spaces: list[Any], says: str) -> None:
    """Nothing is written of spaces that could not be read again, and a file that was there stays."""
    path = tmp_path / "a.zip"
    path.write_text("before")

    with pytest.raises(InputError, match=says.replace("+", r"\+")):
        write(path, spaces)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def _set(*keys: Any) -> Change:
    """Sets what the keys but the last lead to, to the last."""

    def change(found: dict[str, Any]) -> None:
        *path, last, value = keys
        place: Any = found
        for key in path:
            place = place[key]
        place[last] = value

    return change


def _drop(*keys: Any) -> Change:
    def change(found: dict[str, Any]) -> None:
        place: Any = found
        for key in keys[:-1]:
            place = place[key]
        del place[keys[-1]]

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_set("format", "other"), "expected 'tuner-space' version 1"),
        (_set("version", 2), "version 2"),
        (_drop("version"), "version is missing"),
        (_drop("device", "uuid"), "device: uuid is missing"),
        (_set("device", "modelled", "no"), "expected true or false"),
        (_set("sensor", None), "sensor is None; expected text"),
        (_set("limits", "multiprocessors", -1), "limits: multiprocessors is -1"),
        (_set("limits", "compute_capability", [9]), "expected two whole numbers"),
        (_set("workloads", []), "expected at least one"),
        (_set("workloads", "scan"), "expected a list"),
        (_set("workloads", 0, "tunables", {}), "tunables is empty"),
        (_set("workloads", 0, "tunables", "L", [32, 32, 64, 128]), "expected different"),
        (_set("workloads", 0, "roles", "x", "M"), "none of the tunables"),
        (_set("workloads", 0, "name", "scan\x1b[31m:N=64"), "expected a text that can be printed"),
        (_set("workloads", 0, "kernel", ""), "expected a text that can be printed"),
        (_set("workloads", 0, "count", 10**12), "at most"),
        (_set("workloads", 0, "count", 0), "a whole number above zero"),
        (_set("workloads", 0, "configurations", "L", [32, 64]), "2 values for 3 rows"),
        (_set("workloads", 0, "configurations", "L", [32, 64, 96]), r"L\[2\] is 96; expected one of"),
        (_set("workloads", 0, "configurations", "L", [32, 64, 64]), "row 2 repeats"),
        (_set("workloads", 0, "stages", 0, "blocks", [1, 2, -3]), r"blocks\[2\] is -3"),
        (_set("workloads", 0, "work", "bytes", "all", "many"), "expected a finite number"),
        (_set("workloads", 0, "default", {}), "default has"),
        (_set("workloads", 0, "sizes", {"N": 1.5}), "sizes: N is 1.5; expected a text or a whole number"),
        (_set("trials", "count", 4), "3 values for 4 rows"),
        (_set("trials", "at", [[0, 1, 3]]), "expected a place from 0 to 2"),
        (_set("trials", "at", [[0, 1, -1]]), "expected a place from 0 to 2"),
        (_set("trials", "at", [[0, 1, 1]]), "row 2 repeats"),
        (_set("trials", "at", []), "0 and 1 of 1 workloads"),
        (_set("trials", "makespan_s", [1e-3, 0.0, 1e-3]), "above zero"),
        (_set("trials", "makespan_s", [1e-3, 10**400, 1e-3]), "expected a finite number"),
        (_set("trials", "makespan_s", [1e-3, None, 1e-3]), "although all workloads are ok"),
        (_set("trials", "results", 0, "time_s", {"all": None}), "although the status is ok"),
        (_set("trials", "results", 0, "status", {"all": "fine"}), "expected one of ok, compile-error"),
        (_set("trials", "flags", {"all": "x"}), "a list of texts"),
        (_set("trials", "energy", "watts", {"all": None}), "although there are joules"),
        (_set("trials", "energy", 7), "expected an object"),
        (_set("limits", "warp_size", 0), "expected a whole number above zero"),
        (_set("trials", "window_s", {"al": 1.0}), "all is missing"),
        (_set("trials", "makespan_s", math.nan), "NaN is not a number"),
    ],
)
def test_every_wrong_value_is_named(tmp_path: Path, change: Change, says: str) -> None:
    """A document with a wrong value is refused by the file, the key, and what would be right."""
    found = json.loads(json.dumps(document(samples.space())))
    change(found)
    path = _archive(tmp_path, json.dumps(found))

    with pytest.raises(InputError, match=rf"a.zip: scan-lf:N=64.json: .*{says}"):
        RecordingFile(path).space(("scan-lf:N=64",))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "3", '"x"', "[" * 100_000])
def test_a_member_that_is_no_document_is_refused(tmp_path: Path, text: str) -> None:
    """Text that is no JSON object of a space is refused by its name."""
    with pytest.raises(InputError, match=r"scan-lf:N=64\.json"):
        RecordingFile(_archive(tmp_path, text)).space(("scan-lf:N=64",))


@given(data=st.data())
def test_a_damaged_document_is_refused_or_read(tmp_path: Path, data: st.DataObject) -> None:
    """Whatever single value of a document is replaced, it is read or refused, never a traceback."""
    found = json.loads(json.dumps(document(samples.space())))
    samples.damage(found, data)
    path = _archive(tmp_path, json.dumps(found))

    with contextlib.suppress(InputError):
        assert RecordingFile(path).space(("scan-lf:N=64",)).trials


def _archive(folder: Path, text: str, name: str = "scan-lf:N=64.json") -> Path:
    path = folder / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, text)
    return path


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that unpacks to more than any space has is refused after so many bytes."""
    path = _archive(tmp_path, " " * 2**23)

    assert path.stat().st_size < 2**14
    with pytest.raises(InputError, match=r"8,388,\d+ bytes unpacked, .* at most 50 times"):
        RecordingFile(path)
    monkeypatch.setattr("tuner.system.untrusted.archives.ARCHIVE_RATIO_FROM", 2**24)
    with pytest.raises(InputError, match="Expecting value"):
        RecordingFile(path).space(("scan-lf:N=64",))


def test_rows_that_are_only_claimed_take_no_memory(tmp_path: Path) -> None:
    """A column held once may claim millions of rows: it is refused at the first repeated one."""
    found = json.loads(json.dumps(document(samples.space())))
    workload = found["workloads"][0]
    workload["count"] = checking.MAX_ROWS
    columns = [workload["configurations"], *workload["stages"], workload["work"]]
    for column in columns:
        column |= {name: {"all": v[0] if isinstance(v, list) else v["all"]} for name, v in column.items()}
    workload["stages"] *= 50
    path = _archive(tmp_path, json.dumps(found))

    tracemalloc.start()
    with pytest.raises(InputError, match="row 1 repeats"):
        RecordingFile(path).space(("scan-lf:N=64",))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < checking.MAX_ROWS  # one list of so many rows takes eight bytes a row


def test_a_workload_is_in_a_space_once(tmp_path: Path) -> None:
    """Two workloads of one name are refused: a trial stored by their names would lose one of them."""
    found = json.loads(json.dumps(document(samples.space())))
    found["workloads"] *= 2
    path = _archive(tmp_path, json.dumps(found), "scan-lf:N=64+scan-lf:N=64.json")

    with pytest.raises(InputError, match="a co-run holds a workload once"):
        RecordingFile(path).space(("scan-lf:N=64", "scan-lf:N=64"))


def test_a_file_that_was_replaced_since_it_was_opened_is_refused(tmp_path: Path) -> None:
    """Spaces are read when asked for: one that went meanwhile is named, as is a file that went."""
    opened = samples.written(tmp_path / "a.zip", samples.space())
    samples.written(opened.path, samples.space(samples.workload("scan-lf:N=128")))
    with pytest.raises(InputError, match=r"scan-lf:N=64\.json: cannot be read"):
        opened.space(("scan-lf:N=64",))
    opened.path.unlink()
    with pytest.raises(InputError, match=r"scan-lf:N=64\.json: cannot be read"):
        opened.space(("scan-lf:N=64",))


def test_two_may_write_a_file_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The draft of one process is not that of another: whoever ends last is read."""
    path = tmp_path / "a.zip"

    def interrupted() -> Iterator[RecordedSpace]:
        yield samples.space()
        with monkeypatch.context() as other:
            other.setattr("os.getpid", lambda: 1)
            write(path, [samples.space(), samples.space(samples.workload("scan-lf:N=128"))])
            assert len(read(path)) == 2

    write(path, interrupted())
    assert len(read(path)) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_a_name_with_spaces_is_found(tmp_path: Path) -> None:
    """Spaces count neither in the names of a file nor in those asked for."""
    opened = samples.written(tmp_path / "a.zip", samples.space(samples.workload("my scan:N=64")))

    assert matching(opened, ("my scan: N=64",)) == ("my scan:N=64",)


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    """A torn file, an empty archive, a member with flipped bytes and a wrong name are refused."""
    whole = samples.written(tmp_path / "whole.zip", samples.space()).path.read_bytes()
    torn = tmp_path / "torn.zip"
    torn.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"torn\.zip: not a file of recorded spaces"):
        open_recording(torn)

    flipped = tmp_path / "flipped.zip"
    flipped.write_bytes(whole[:200] + bytes(255 - byte for byte in whole[200:300]) + whole[300:])
    with pytest.raises(InputError, match=r"flipped\.zip: scan-lf:N=64.json: cannot be read"):
        RecordingFile(flipped).space(("scan-lf:N=64",))

    with zipfile.ZipFile(tmp_path / "empty.zip", "w"):
        pass
    with pytest.raises(InputError, match="no recorded space is in it"):
        RecordingFile(tmp_path / "empty.zip")

    wrong = _archive(tmp_path, json.dumps(document(samples.space())), "fft:N=64.json")
    with pytest.raises(InputError, match="which is not what its name says"):
        RecordingFile(wrong).space(("fft:N=64",))


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    """A missing file, a directory, and a space that was not recorded are named with the choices."""
    with pytest.raises(InputError, match="there is no such file; name a file of recorded spaces, or h200"):
        open_recording("h400")
    with pytest.raises(InputError, match="no recording is named"):
        open_recording("")
    with pytest.raises(InputError, match="is a directory"):
        open_recording(tmp_path)
    with pytest.raises(InputError, match=r"no recorded space of fft:N=2; there are scan-lf:N=64"):
        samples.written(tmp_path / "a.zip", samples.space()).space(("fft:N=2",))


def test_a_space_is_found_in_any_order_of_its_workloads(tmp_path: Path) -> None:
    """Names come in any order; without any the only or largest space is meant, or the choice is asked."""
    shipped = open_recording("h200")
    joint = matching(shipped, ())

    assert len(joint) == 4
    assert matching(shipped, tuple(reversed(joint))) == joint
    assert matching(shipped, ("scan-lf:N=512",)) == ("scan-lf:N=512",)
    with pytest.raises(InputError, match=r"scan-lf:N=3 was not recorded; there are scan-lf:N=64, "):
        matching(shipped, ("scan-lf:N=3",))
    two = samples.written(
        tmp_path / "a.zip", samples.space(), samples.space(samples.workload("scan-lf:N=128"))
    )
    with pytest.raises(InputError, match="name one of its workloads: scan-lf:N=64, N=128"):
        matching(two, ())


def test_a_trial_that_was_not_recorded_has_failed() -> None:
    """Looking one up gives a failed measurement that says so, for every workload."""
    one = samples.space()
    missing = one.look(Trial((one.workloads[0].candidates[0].configuration,), 1200))

    assert not missing.ok
    assert missing.results[0].detail == "not recorded"


def test_a_search_over_a_recorded_space_is_played() -> None:
    """``search_of`` tells a policy the candidates, and the whole space gives its best."""
    one = samples.space()
    search = search_of(one, Objective("energy").cost, seed=3)
    played = play(load("policy", "exhaustive"), search, one.look)

    assert search.size == len(played) == 3
    assert search.tunables == (one.workloads[0].tunables,)
    assert search.defaults == (one.workloads[0].default,)
    assert (search.device, search.limits, search.seed) == ("NVIDIA H200", samples.LIMITS, 3)
    assert min(played, key=lambda pair: search.cost(pair[1]))[0].configurations[0]["L"] == 128


# --- the recording that is shipped ---------------------------------------------------------------


def test_the_shipped_recording_is_complete_and_small() -> None:
    """h200 holds 61 spaces of whole products without failures, with joules where a sensor is named."""
    shipped = open_recording("h200")

    assert len(shipped.names) >= 61
    assert shipped.path.stat().st_size < 2**20
    for names in (matching(shipped, ()), ("scan-ks:N=1024",), ("tridiag-pcr:N=64",)):
        one = shipped.space(names)
        assert one.identity.name == "NVIDIA H200"
        assert one.limits is not None
        assert all(measurement.ok for measurement in one.trials.values())
        assert len(one.trials) == math.prod(len(workload.candidates) for workload in one.workloads)
        share = sum(m.energy is not None for m in one.trials.values()) / len(one.trials)
        assert (share > 0.99) == bool(one.sensor)
        assert all(c.launches and c.work for workload in one.workloads for c in workload.candidates)


def test_the_shipped_spaces_of_an_h100_are_complete() -> None:
    """h100 holds whole products of scan, tridiagonal systems and FFT without failures."""
    shipped = open_recording("h100")

    assert {names[0].partition(":")[0] for names in shipped.names} == {
        *("scan-lf", "tridiag-pcr", "tridiag-wm", "fft", "fft-large")
    }
    for names in shipped.names:
        one = shipped.space(names)
        assert one.identity.name == "NVIDIA H100 80GB HBM3"
        assert all(measurement.ok for measurement in one.trials.values())
        assert len(one.trials) == one.provenance["size"] == len(one.workloads[0].candidates)


def test_the_shipped_recording_is_written_as_it_is(tmp_path: Path) -> None:
    """Reading a shipped space and writing it again gives the same document."""
    shipped = open_recording("h200")
    one = shipped.space(("fft:N=64",))
    write(tmp_path / "a.zip", [one])
    with zipfile.ZipFile(tmp_path / "a.zip") as ours, zipfile.ZipFile(shipped.path) as theirs:
        assert ours.read("fft:N=64.json") == theirs.read("fft:N=64.json")


def test_a_kernel_without_analytical_answer_is_recorded_as_one(tmp_path: Path) -> None:
    """Its roles are null in the file, and a search on the recording is told none."""
    first = samples.workload()
    one = RecordedSpace((replace(first, roles=None),), samples.GPU, samples.LIMITS, {})
    trials = {Trial((candidate.configuration,)): samples.measured(1.0) for candidate in first.candidates}
    write(tmp_path / "one.zip", [replace(one, trials=trials)])

    read = open_recording(tmp_path / "one.zip").space((first.name,))
    assert read.workloads[0].roles is None
    assert search_of(read, Objective("time").cost).roles == (None,)


@pytest.mark.parametrize("name", ["scan-lf:N=256", "tridiag-wm:N=512", "fft:N=1024", "fft-large:N=16384"])
def test_recorded_launches_are_those_of_the_kernels(name: str) -> None:
    """Where a kernel is what it was when it was recorded, its plans have the recorded geometry and work."""
    recorded = open_recording("h200").space((name,)).workloads[0]
    catalog = Catalog.load()
    kernel, workload = catalog.kernel(recorded.kernel), catalog.workload(name)
    if kernel.fingerprint != recorded.fingerprint:
        pytest.skip(f"{kernel.name} has changed since it was recorded")

    assert workload.batch == recorded.batch
    assert recorded.roles == kernel.rule_roles
    for found in recorded.candidates[:: max(1, len(recorded.candidates) // 20)]:
        plan = kernel.plan(workload, kernel.configuration(workload, found.configuration))
        geometry = [(stage.blocks, stage.threads_per_block, stage.resident) for stage in plan.stages]
        assert geometry == [(one.blocks, one.threads_per_block, one.resident) for one in found.launches]
        assert found.work == plan.work


# --- spaces of other tuners: Kernel Tuner's caches, and NumPy archives made of them ----------------


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
