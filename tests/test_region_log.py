"""What is told of regions: CSV files, functions, Prometheus, and the callbacks of trainers."""

import csv
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_process import PATIENCE_S, begun
from prometheus_client import CollectorRegistry, generate_latest

import tuner
from tuner.joules import RegionEnergy, TrainingCallback, energy_meter, prometheus
from tuner.joules import recording as process
from tuner.model.errors import InputError

SIM = "sim:h200"


@pytest.fixture(autouse=True)
def own_sources(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Recordings that end with the test."""
    registry = process.SourceRegistry()
    monkeypatch.setattr(process, "REGISTRY", registry)
    yield
    registry.close()


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_file_has_a_row_for_each_part(tmp_path: Path) -> None:
    """Regions of two meters, of two GPUs and of one that failed stand in one file, with the failure."""
    path = tmp_path / "joules.csv"
    meter = tuner.energy(device=[SIM, "sim:a100"], log=path)
    with meter('a, "b"') as region:
        region.count = 3
    meter.flush()
    again = tuner.energy(device=SIM, log=[str(path), lambda _: again.flush()])  # waits for nobody
    with pytest.raises(ZeroDivisionError), again("step"):
        raise ZeroDivisionError
    again.flush()

    found = rows(path)
    assert [(row["region"], row["device"], row["count"]) for row in found] == [
        ('a, "b"', SIM, "3"),
        ('a, "b"', "sim:a100", "3"),
        ("step", SIM, ""),
    ]
    assert [float(row["joules"]) for row in found[:2]] == [part.joules for part in region.parts]
    assert "failed: it ended with ZeroDivisionError" in found[2]["notes"]
    assert found[0]["began"].endswith("+00:00")
    assert {row["modelled"] for row in found} == {"True"}


def test_the_last_regions_of_a_program_are_told(tmp_path: Path) -> None:
    """Also those of its children, and although nobody asks for them."""
    path = tmp_path / "joules.csv"
    program = f"""
import os, tuner
meter = tuner.energy(device={SIM!r}, log={str(path)!r})
with meter("parent"): pass
child = os.fork()
with meter("child" if child == 0 else "last"): pass
if child == 0:
    meter.flush()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    with begun(code=program) as process:
        assert (*process.communicate(timeout=PATIENCE_S), process.returncode) == ("", "", 0)
    assert sorted(row["region"] for row in rows(path)) == ["child", "last", "parent"]


def test_who_fails_when_told_hinders_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """The others are told, in the order of the ends; the failure is a warning."""
    told: list[str] = []

    def fail(energy: RegionEnergy) -> None:
        raise OSError(f"no room for {energy.name}")

    meter = tuner.energy(device=SIM, log=[fail, lambda energy: told.append(energy.name)])
    with caplog.at_level(logging.WARNING), meter("outer"), meter("inner"):
        pass
    with caplog.at_level(logging.WARNING):
        meter.flush()
    assert told == ["inner", "outer"]
    assert "OSError: no room for inner" in caplog.text


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("joules.parquet", r"joules.parquet'?: rows are written as CSV; choose a name that ends in .csv"),
        ("nowhere/joules.csv", "No such file or directory.*name a file that can be written"),
        ("other.csv", "holds something else than a log of regions"),
        ("bytes.csv", "name a file that can be written"),
        (3, "log=3: give the name of a CSV file, a function"),
        ([], r"log=\[\]: give the name"),
        (["a.csv", None], "give the name of a CSV file"),
    ],
)
def test_what_is_no_log_is_told(
    log: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is measured, and files of others stay as they are."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\n")
    with pytest.raises(InputError, match=words):
        tuner.energy(device=SIM, log=log)
    assert (tmp_path / "other.csv").read_text() == "a,b\n1,2\n"


def test_prometheus_has_histogram_counter_and_gauge() -> None:
    """By region, device and scope; two meters share one, and a second on a registry is refused."""
    registry = CollectorRegistry()
    log = prometheus(registry, buckets_j=[1, 1e3])
    for _ in range(2):
        meter = tuner.energy(device=SIM, log=log)
        with meter("step") as region:
            pass
        meter.flush()
    labels = {"region": "step", "device": SIM, "scope": "gpu"}
    value = registry.get_sample_value
    assert value("tuner_region_joules_count", labels) == 2
    assert value("tuner_region_joules_bucket", {**labels, "le": "1000.0"}) == 2
    assert (value("tuner_region_seconds_total", labels) or 0.0) - region.seconds > 0
    assert b"# TYPE tuner_region_watts gauge" in generate_latest(registry)
    for wrong in ((registry, [1, 2]), (CollectorRegistry(), ["much"]), (CollectorRegistry(), [2, 1])):
        with pytest.raises(InputError, match="share one prometheus"):
            prometheus(*wrong)


# --- callbacks of trainers, called as the libraries do.


def check(*, fails: bool) -> None:
    if fails:
        raise RuntimeError("CUDA out of memory")


class HuggingFace:
    """Calls the events of a training as ``transformers.Trainer`` does."""

    def __init__(self, callback: Any) -> None:
        self.callback = callback

    def event(self, name: str) -> None:
        state = SimpleNamespace(global_step=0)
        assert getattr(self.callback, name)(object(), state, object(), model=None, optimizer=None) is None

    def train(self, steps: int, *, evaluated: tuple[int, ...] = (), fails: bool = False) -> None:
        for name in ("on_init_end", "on_train_begin", "on_epoch_begin"):
            self.event(name)
        for step in range(steps):
            self.event("on_step_begin")
            check(fails=fails and step == steps - 1)
            self.event("on_pre_optimizer_step")
            self.event("on_step_end")
            if step in evaluated:
                self.event("on_prediction_step")
                self.event("on_evaluate")
        self.event("on_epoch_end")
        self.event("on_train_end")


class LightningCallback:
    """Base class that Lightning's trainer insists on: it has every event, and they do nothing."""

    def setup(self, *_: object, **__: object) -> None:
        """Do nothing."""

    teardown = on_train_start = on_train_batch_start = on_before_zero_grad = on_exception = on_train_end = (
        setup
    )

    def state_dict(self) -> dict[str, object]:
        return {}


class Both(TrainingCallback, LightningCallback):
    """As ``docs/regions.md`` says."""


class Lightning(HuggingFace):
    """The same as ``lightning.pytorch.Trainer`` does."""

    def __init__(self, callback: Any) -> None:
        super().__init__(callback)
        assert isinstance(callback, LightningCallback)
        assert callback.state_dict() == {}

    def event(self, name: str, *arguments: object, **options: object) -> None:
        getattr(self.callback, name)(object(), object(), *arguments, **options)

    def train(self, steps: int, *, evaluated: tuple[int, ...] = (), fails: bool = False) -> None:
        self.event("setup", stage="fit")
        self.event("on_train_start")
        try:
            for step in range(steps):
                self.event("on_train_batch_start", {}, step)
                check(fails=fails and step == steps - 1)
                self.event("on_before_zero_grad", object())
                self.event("on_train_batch_end", None, {}, step)
                if step in evaluated:
                    self.event("on_validation_start")
        except RuntimeError as error:
            self.event("on_exception", error)
            raise
        self.event("on_train_end")
        self.event("teardown", stage="fit")


TRAINERS = pytest.mark.parametrize("trainer", [HuggingFace, Lightning])


@contextmanager
def every_step() -> Iterator[None]:
    """Steps are long enough for regions of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(energy_meter, "LEAST_S", 0.0)
        yield


@TRAINERS
def test_steps_of_a_training_are_counted(trainer: type[HuggingFace]) -> None:
    """Short steps share a region, which counts once it is a second long; long ones have their own."""
    told: list[RegionEnergy] = []
    callback = Both(tuner.energy(device=SIM, log=told.append))
    assert str(callback) == "no training yet"
    trainer(callback).train(5)
    assert callback.train is not None
    assert (callback.train.count, len(callback.steps)) == (5, 0)
    assert str(callback).splitlines()[1].endswith("for each of 5")
    with every_step():
        trainer(callback).train(3, evaluated=(0, 1))
    assert [region.count for region in callback.steps] == [1, 1, 1]
    callback.flush()
    assert [energy.name for energy in told] == ["train", "steps", "steps", "steps", "train"]


@TRAINERS
def test_steps_around_an_evaluation_are_left_out(trainer: type[HuggingFace]) -> None:
    """A region of steps holds nothing else; the training has all steps."""
    callback = Both(tuner.energy(device=SIM))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(energy_meter, "LEAST_S", math.inf)
        trainer(callback).train(4, evaluated=(1, 3))
    assert not callback.steps
    assert callback.train is not None
    assert callback.train.count == 4


@TRAINERS
def test_a_training_that_failed_hinders_no_other(trainer: type[HuggingFace]) -> None:
    """Its steps and windows do not stay open; Lightning's trainer says what it ended with."""
    meter = tuner.energy(device=SIM)
    callback = Both(meter)
    with pytest.raises(RuntimeError):
        trainer(callback).train(2, fails=True)
    failed = callback.train
    trainer(callback).train(3)
    assert failed is not None
    assert callback.train is not None
    assert callback.train.count == 3
    if trainer is Lightning:  # Hugging Face's does not say so
        assert failed.notes[-1] == "failed: it ended with RuntimeError"
    else:
        assert failed.cancelled
    assert all(not source.recording._open for source in meter._sources)


def test_a_callback_has_no_other_attributes() -> None:
    """Copies and checks of a trainer do not take an event for something else."""
    with pytest.raises(AttributeError, match="no attribute 'model'"):
        _ = TrainingCallback(tuner.energy(device=SIM)).model
    HuggingFace(TrainingCallback(tuner.energy(device=SIM))).event("on_train_end")
