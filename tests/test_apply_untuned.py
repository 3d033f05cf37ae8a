"""What ``tuner.apply`` takes for kernels that nobody tuned: what their files state, else their defaults."""

import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from fake_apply import GPU, Bench, FakeCompiler, fake_bench
from fake_cuda import LIMITS
from test_apply_choice import Tuned

from tuner.application.calls import Application
from tuner.application.choice import UntunedAnswers
from tuner.database.answers import analytical_key
from tuner.database.connection import Database
from tuner.database.ledger import Ledger
from tuner.devices.cuda import probe
from tuner.devices.cuda.direct import DirectGpu
from tuner.devices.cuda.launches import Program
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import DeviceError
from tuner.model.plan import Plan
from tuner.model.run_document import AnalyticalDocument
from tuner.model.trial import Status
from tuner.recordings.files import open_recording


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    made = fake_bench(monkeypatch, tmp_path)
    again(made)
    return made


def again(bench: Bench) -> None:
    """A new process."""
    bench.application = Application(bench.catalog, bench.database, untuned=UntunedAnswers())


@pytest.mark.parametrize("recording", ["h100", "h200"])
def test_untuned_calls_are_near_the_best_that_was_recorded(recording: str) -> None:
    """On each recorded space, what is taken untuned takes at most 7 % longer than the best of all."""
    catalog, answers, far = Catalog.load(), UntunedAnswers(), {}
    archive = open_recording(recording)
    for names in archive.names:
        if len(names) > 1:
            continue
        space = archive.space(names)
        (workload,) = space.workloads
        times = {
            trial.configurations[0]: measured.makespan_s
            for trial, measured in space.trials.items()
            if measured.status is Status.OK and measured.makespan_s is not None
        }
        kernel = catalog.kernel(workload.kernel)
        gpu = cast("DirectGpu", SimpleNamespace(identity=space.identity, limits=space.limits))
        asked = kernel.workload(dict(workload.sizes), workload.batch)
        found = answers.answer(kernel, asked, gpu)
        configuration = kernel.default(asked) if found is None else found.configuration
        if configuration not in times:
            assert names[0].startswith("fft-large:")  # recorded with other tunables
            continue
        if times[configuration] > 1.07 * min(times.values()):
            far[names[0]] = times[configuration] / min(times.values())
    assert not far


@pytest.mark.parametrize("stated", [False, True])
def test_one_configuration_is_compiled(bench: Bench, stated: bool) -> None:
    """The first call of a kernel that nobody tuned compiles what it runs, and nothing to choose it."""
    if stated:
        state(bench, "P = 8\nL = 64", "P = 4\nL = 64")
    FakeCompiler.compiled.clear()
    x = bench.array(16, 64)
    assert np.array_equal(bench.apply("sums", x), np.cumsum(x, axis=1))
    assert len(FakeCompiler.compiled) == 1


def test_answers_of_the_models_rules(bench: Bench) -> None:
    """What the rules chose for ``tuner best`` was measured against no default, which is taken before it."""
    key = analytical_key("sums:N=64", GPU, bench.catalog.kernel("sums").fingerprint)
    document = AnalyticalDocument(
        configuration={"P": 4, "L": 32}, default={"P": 2, "L": 64}, rule="server", considered=8
    )
    with Database(bench.database) as database:
        Ledger(database).remember_analytical(key, document)
    assert bench.chosen("sums", bench.array(16, 64)).origin == "default"


STATED = """[analytical]
P = 8
L = 64
[launch]
"""


def test_answers_that_kernel_files_state(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first that the GPU can launch is taken; without one the default is."""
    path = bench.database.parent / "sums.toml"
    path.write_text(path.read_text().replace("[launch]\n", STATED))
    bench.catalog = Catalog.load(search_path=[path.parent])
    for most, origin in (
        (32, "default"),  # no block fits
        (LIMITS.max_threads_per_block, "stated by its kernel file; not measured on this GPU"),
    ):
        changed = replace(LIMITS, max_threads_per_block=most)
        monkeypatch.setattr(probe, "gpu_limits", lambda *_, known=changed: known)
        again(bench)
        assert bench.chosen("sums", bench.array(16, 64)).origin == origin


@pytest.mark.parametrize(("name", "origin"), [("A7 PCIe", "stated by its"), ("A70", "default")])
def test_answers_that_were_measured_on_a_gpu(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str, origin: str
) -> None:
    """They are taken on a GPU of their name; on others the default is."""
    path = bench.database.parent / "sums.toml"
    path.write_text(path.read_text() + '[measured]\nfile = "best.csv"\n')
    (path.parent / "best.csv").write_text("N,gpu,P,L\n64,A7,8,64\n")
    bench.catalog = Catalog.load(search_path=[path.parent])
    monkeypatch.setattr(probe, "gpu_name", lambda *_: name)
    again(bench)
    assert bench.chosen("sums", bench.array(16, 64)).origin.startswith(origin)


def state(bench: Bench, *answers: str) -> None:
    """Have the kernel file state these analytical answers."""
    path = bench.database.parent / "sums.toml"
    tables = "".join(f"[[analytical]]\n{one}\n" for one in answers)
    path.write_text(path.read_text().replace("[launch]\n", f"{tables}[launch]\n"))
    bench.catalog = Catalog.load(search_path=[path.parent])
    again(bench)


class Refusing:
    """A GPU that refuses plans with some P, and counts what it is asked for."""

    def __init__(self, patch: pytest.MonkeyPatch, *refused: int) -> None:
        self.asked: list[int] = []
        program = DirectGpu.program

        def fake(gpu: DirectGpu, plan: Plan) -> Program:
            P = int(plan.configuration["P"])
            self.asked.append(P)
            if P in refused:
                raise DeviceError(f"{plan.label()}: stage sums: no cluster of 16 blocks fits on the device")
            return program(gpu, plan)

        patch.setattr(DirectGpu, "program", fake)


def test_answer_that_the_gpu_refuses(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The default runs in the place of a stated answer that cannot be loaded, which is told once."""
    state(bench, "P = 8\nL = 64")
    gpu = Refusing(monkeypatch, 8)
    x = bench.array(16, 64)
    assert bench.chosen("sums", x).configuration["P"] == 8  # nobody knows yet
    caplog.clear()
    assert np.array_equal(bench.apply("sums", x), np.cumsum(x, axis=1))
    chosen = bench.chosen("sums", x)
    assert (chosen.configuration["P"], chosen.known) == (2, False)
    assert chosen.origin.startswith("default, as the GPU refuses the answer; else stated by its kernel file")
    assert bench.plan("sums", x).chosen == chosen
    bench.apply("sums", bench.array(32, 64))
    assert gpu.asked == [8, 2, 2]
    (message,) = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert "P=8 L=64" in message
    assert "no cluster of 16 blocks fits on the device; the default is used instead of this" in message


def test_configurations_that_must_be_loaded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was given or measured is refused with the reason, and so is the default."""
    state(bench, "P = 8\nL = 64")
    Refusing(monkeypatch, 2, 4, 8)
    x = bench.array(16, 64)
    for configuration in ({"P": 8, "L": 64}, "default", None):
        with pytest.raises(DeviceError, match="P=8" if isinstance(configuration, dict) else "P=2"):
            bench.apply("sums", x, configuration=configuration)
    Tuned(bench).run({"P": 4, "L": 32})
    again(bench)
    with pytest.raises(DeviceError, match="P=4"):
        bench.apply("sums", x)


def test_stored_answers_come_first(bench: Bench) -> None:
    """What was tuned is taken before what is stated, and that before the answer of another size."""
    state(bench, "P = 8\nL = 64")
    Tuned(bench).run({"P": 4, "L": 32}, names=("sums:N=128",), batch=8)
    assert bench.chosen("sums", bench.array(16, 64)).origin.startswith("stated")
    Tuned(bench).run({"P": 4, "L": 32})
    again(bench)
    assert bench.chosen("sums", bench.array(16, 64)).origin.startswith("run ")


def test_told_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """The first time in a process a warning says what happens and how to tune; later no more than DEBUG."""
    with caplog.at_level(logging.INFO, logger="tuner"):
        for batch in (16, 32, 48):
            bench.apply("sums", bench.array(batch, 64))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.message == (
        "sums:N=64 was not tuned on this GPU: its configuration is chosen without measuring;"
        " to measure: tuner run sums:N=64,batch=16 --objective time"
    )


def test_stated_answers_that_are_none(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Where a stated answer breaks a rule at some sizes, the default is taken, and the log says so."""
    path = bench.database.parent / "sums.toml"
    path.write_text(path.read_text().replace("[launch]\n", STATED))
    bench.catalog = Catalog.load(search_path=[path.parent])
    again(bench)
    with caplog.at_level(logging.INFO, logger="tuner"):
        assert bench.chosen("sums", bench.array(16, 4)).origin == "default"
    assert "breaks the rule" in caplog.text
