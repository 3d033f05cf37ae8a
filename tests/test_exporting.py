"""From stored runs to a recorded space and back: the same trials, the same best."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import recorded_samples as samples
from cli_process import document, tuner
from tuning_runs import tune

from tuner.database.runs import Store
from tuner.devices.simulated.device import SimulatedDevice
from tuner.kernel_files.catalog import Catalog
from tuner.measurement.race import JouleBound, JouleBounds
from tuner.model.errors import InputError
from tuner.model.trial import Trial
from tuner.recordings.files import RecordingFile
from tuner.search.candidates import PreparedWorkload
from tuner.search.compilation import prepare_compiled
from tuner.search.replaying import covered, recorded_space, stored_space
from tuner.search.request import SearchRequest

GPU = "sim:k40c"
SPEC = "scan-lf:N=4"
WHOLE = SearchRequest(workloads=(SPEC,), policy="exhaustive", objective="time", seed=3)


@pytest.fixture
def catalog() -> Catalog:
    return Catalog.load()


@pytest.fixture
def item(catalog: Catalog) -> PreparedWorkload:
    device = SimulatedDevice(GPU)
    pairs = [(catalog.kernel("scan-lf"), catalog.workload(SPEC))]
    (found,) = prepare_compiled(pairs, device)
    device.close()
    return found


def test_a_space_has_what_was_tried(item: PreparedWorkload) -> None:
    """Candidates are the configurations of the trials, in the order of the space, with launches and work."""
    chosen = [item.candidates[2], item.candidates[0]]
    trials = [(Trial((c.configuration,)), samples.measured(1e-3)) for c in chosen]
    one = recorded_space([item], samples.GPU, samples.LIMITS, trials, "counter", {"date": "x"})

    assert one.workloads[0].candidates == (item.candidates[0], item.candidates[2])
    assert one.workloads[0].tunables == item.space.tunables
    assert one.workloads[0].default == item.default
    assert (one.sensor, one.provenance) == ("counter", {"date": "x"})
    assert list(one.trials) == [trial for trial, _ in trials]
    with pytest.raises(InputError, match="no trial was measured"):
        recorded_space([item], samples.GPU, samples.LIMITS, [])


def test_an_export_replays_to_the_fastest(tmp_path: Path) -> None:
    """A whole space, exported and replayed, has every trial again; its best is the fastest of the search."""
    db, out = tmp_path / "db", tmp_path / "a.zip"
    words = (SPEC, "--policy", "exhaustive", "--objective", "time", "--database", db)
    measured = document("run", *words, "--device", GPU)
    result = tuner("db", "export", "--database", db, "--output", out)
    replayed = document("run", *words, "--device", f"replay:{out}")

    assert "100 % of" in result.output
    assert f"replay:{out}" in result.output
    assert len(replayed["trials"]) == len(measured["trials"])
    assert replayed["best"]["configurations"] == measured["fastest"]["configurations"]
    assert replayed["modelled"] is True
    assert replayed["recorded"]
    assert replayed["workloads"][0]["best"]["rate"] > 0
    launches = RecordingFile(out).space((SPEC,)).workloads[0].candidates[0].launches
    assert launches[0].registers_per_thread > 0


def test_runs_of_the_same_conditions_are_joined(tmp_path: Path, catalog: Catalog) -> None:
    """Trials of an unfinished run and of another policy are one space; most repeats of a trial count."""
    with Store(tmp_path / "db") as store:
        tune(replace(WHOLE, policy="random", budget=3, joules=True), store, spec=GPU)
        unfinished = stored_space(store, catalog)
        tune(replace(WHOLE, objective="energy", joules=True), store, spec=GPU)
        tune(replace(WHOLE, workloads=("scan-lf:N=8",), budget=1), store, spec=GPU)
        joined = stored_space(store, catalog, 1)
        other = stored_space(store, catalog)

    assert unfinished.runs == (1,)
    assert len(unfinished.space.trials) == 3
    assert joined.runs == (2, 1)
    assert len(joined.space.trials) > 3
    assert joined.space.provenance["policies"] == ["exhaustive", "random"]
    assert all(measurement.energy is not None for measurement in joined.space.trials.values())
    assert other.space.names == ("scan-lf:N=8",)
    assert max(measurement.repeats for measurement in joined.space.trials.values()) > 1
    assert "100 % of 20" in covered(joined._replace(size=20))
    assert covered(unfinished) == "3 trials, 15 % of 20 after pruning"
    assert "3 trials, of a space that no finished run tells" in covered(unfinished._replace(size=None))


def test_trials_without_joules_hide_none_that_have_them(
    tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later run may spare trials their joules that an earlier one has measured."""
    monkeypatch.setattr(JouleBounds, "rules_out", lambda *_: JouleBound(9.0, 9.0, certain=False))
    request = replace(WHOLE, objective="energy", budget=8)
    with Store(tmp_path / "db") as store:
        tune(request, store, spec=GPU)
        spared = stored_space(store, catalog)
        tune(replace(request, joules=True), store, spec=GPU)
        tune(request, store, spec=GPU)
        joined = stored_space(store, catalog)

    (told,) = spared.notices
    without = [one for one in spared.space.trials.values() if one.energy is None]
    assert told.startswith(f"{len(without)} of {len(spared.space.trials)} trials have no joules")
    assert joined.notices == ()
    assert len(joined.runs) == 3
    assert all(measurement.energy is not None for measurement in joined.space.trials.values())


def test_a_kernel_that_has_changed_is_exported_without_launches(tmp_path: Path) -> None:
    """The database alone gives configurations and times; what it does not know is said."""
    with Store(tmp_path / "db") as store:
        tune(replace(WHOLE, budget=4), store, spec=GPU)
        stored = stored_space(store, Catalog({}))
    (workload,) = stored.space.workloads

    assert "unknown here; --kernel names its file" in stored.notices[0]
    assert workload.name == SPEC
    assert dict(workload.sizes) == {"N": 4}
    assert len(workload.candidates) == len(stored.space.trials) == 4
    assert not any(c.launches for c in workload.candidates)
    out = samples.written(tmp_path / "a.zip", stored.space)
    assert out.space((SPEC,)).trials.keys() == stored.space.trials.keys()


def test_what_cannot_be_exported_is_said(tmp_path: Path) -> None:
    """An empty database, an unknown run, a replay, and a file that cannot be one are refused."""
    db, out = tmp_path / "db", tmp_path / "a.zip"
    Store(db).close()

    def refused(*words: str | Path) -> str:
        result = tuner("db", "export", "--database", db, *words)
        assert result.exit_code == 2
        return " ".join(result.stderr.split())

    assert "nothing is stored, so there is nothing to export" in refused()
    samples.written(out, samples.space())
    tuner("run", "--database", db, "--device", f"replay:{out}", "--objective", "time")
    assert "only replays of recordings are stored" in refused()
    assert "it replayed a recording" in refused("--run", "1")
    assert "there is no such run; tuner history" in refused("--run", "9")
    assert "a recording is no text" in refused("--output", "-")
    assert "a recording is no text" in refused("--out", "-"), "the option of version 0.1"
    assert "does not exist" in refused("--output", tmp_path / "no" / "a.zip")


def test_the_path_of_the_database_is_told(tmp_path: Path) -> None:
    """``tuner db path`` prints the file that results are kept in, and nothing else."""
    assert tuner("db", "path", "--database", tmp_path / "x").output.strip() == str(tmp_path / "x")
    assert tuner("db", "path").output.strip().endswith("tuner.db")


# --- the shipped recording at the command line ----------------------------------------------------


@pytest.mark.parametrize("policy", ["exhaustive", "greedy"])
def test_the_shipped_recording_works_out_of_the_box(tmp_path: Path, policy: str) -> None:
    """Without workloads the joint space is searched; every number is labelled as recorded."""
    path = tmp_path / "run.json"
    db = ("--database", tmp_path / "db")
    words = ("--device", "replay:h200", "--policy", policy, "--budget", "60")
    result = tuner("run", *db, *words, "--json", path)
    found = json.loads(path.read_text())
    shown = " ".join(result.stdout.split())

    assert result.exit_code == 0, result.output
    assert found["recorded"] == found["device"]["recorded"] == "2026-11-21"
    assert found["modelled"] is False
    assert len(found["workloads"]) == 4
    assert found["best"]["energy_j"] > found["best"]["energy_j_uncertainty"] > 0
    assert "recorded (2026-11-21): nothing ran now" in shown
    assert "W clock as found recorded" in shown or "MHz as found recorded" in shown
    assert "workloads (recorded)" in shown
    assert "trials (recorded; " in tuner("show", *db).stdout
    stored = tuner("best", *db, "--device", "replay:h200", *[w["name"] for w in found["workloads"]])
    assert stored.exit_code == 0
    assert "recorded (2026-11-21): nothing ran now" in " ".join(stored.stdout.split())
    assert "workloads (recorded)" in stored.stdout
    assert "stale" not in stored.stdout
    (row,) = document("history", *db)["runs"]
    assert row["recorded"] == "2026-11-21"
    assert "(recorded)" in tuner("history", *db).stdout


def test_one_recorded_workload_is_tuned_for_time(tmp_path: Path) -> None:
    """A workload of the recording is searched in virtual time, to the best of its recorded trials."""
    words = ("--objective", "time", "--policy", "exhaustive", "--database", tmp_path / "db")
    found = document("run", "--device", "replay:h200", "tridiag-wm:N=4096", *words)
    times = [trial["time_s"] for trial in found["trials"]]

    assert len(times) == found["space"]["size"] == 104
    assert found["best"]["time_s"] == min(times)
    assert found["wall"]["windows_s"] > found["wall_s"]


def test_a_recording_without_joules_names_those_that_have_them(tmp_path: Path) -> None:
    """Energy is refused where only times were recorded, with the workloads it was recorded for."""
    result = tuner(
        "run",
        "--database",
        tmp_path / "db",
        "--device",
        "replay:h200",
        "--objective",
        "energy",
        "scan-lf:N=512",
    )
    said = " ".join(result.stderr.split())

    assert result.exit_code == 2
    assert "no joules were recorded of scan-lf:N=512" in said
    assert "scan-lf:N=1024; scan-ks:N=1024;" in said
    assert "use --objective time" in said
