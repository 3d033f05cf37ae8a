"""What ``tuner.apply`` takes for kernels that nobody tuned: the analytical answer, worked out once."""

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from fake_apply import Bench, FakeCompiler, fake_bench
from fake_cuda import LIMITS
from test_apply_choice import Tuned

from tuner.application import untuned
from tuner.application.calls import Application
from tuner.application.untuned import UntunedAnswers
from tuner.compiler.compiler import CompiledStage
from tuner.devices.base import Device
from tuner.devices.cuda import direct, probe
from tuner.devices.cuda.direct import DirectGpu
from tuner.devices.cuda.launches import Program
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import CompileError, CompilerUnavailableError, DeviceError
from tuner.model.plan import Plan, Resources, Stage, Workload
from tuner.search.candidates import prepare
from tuner.search.explaining import analytical_choice


class Counted:
    """Works answers out, and counts."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.asked: list[Workload] = []
        self._work_out = untuned.work_out
        patch.setattr(untuned, "work_out", self)

    def __call__(self, kernel: Any, workload: Workload, gpu: Any) -> Any:
        self.asked.append(workload)
        return self._work_out(kernel, workload, gpu)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    made = fake_bench(monkeypatch, tmp_path)
    monkeypatch.setattr(probe, "gpu_limits", lambda *_: replace(LIMITS, l2_bytes=64))
    again(made)
    return made


@pytest.fixture
def counted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Counted:
    del bench
    return Counted(monkeypatch)


def again(bench: Bench) -> None:
    """A new process."""
    answers = UntunedAnswers(bench.database.parent / "answers")
    bench.application = Application(bench.catalog, bench.database, untuned=answers)


def test_analytical_answer(bench: Bench) -> None:
    """The model's choice of all candidates is taken, and told with its rule; apply runs it."""
    chosen = bench.chosen("sums", bench.array(16, 64))
    assert chosen.origin == "analytical: by the rule 'server' of 4 candidates; nothing was measured"
    assert len(FakeCompiler.compiled) == 4  # those whose threads can fill the GPU
    kernel = bench.catalog.kernel("sums")
    with DirectGpu(bench.cp, 0).compiling() as gpu:
        device = cast("Device", gpu)
        (declared,) = prepare([(kernel, kernel.workload({"N": 64}, 16))], device)
        wanted, _ = analytical_choice(declared, device, everything=True)
    assert wanted is not None
    assert chosen.configuration == wanted.configuration
    x = bench.array(16, 64)
    assert np.array_equal(bench.apply("sums", x), np.cumsum(x, axis=1))
    assert bench.plan("sums", x).chosen == chosen


def test_arrays_in_the_cache(
    bench: Bench, counted: Counted, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where all arrays fit into the GPU's cache the default is taken; nothing is compiled to choose."""
    size = 2 * 16 * 64 * 4 + 16 * 2 * 4
    for l2_bytes, origin in ((size, "default"), (size - 1, "analytical: by the rule")):
        monkeypatch.setattr(probe, "gpu_limits", lambda *_, fits=l2_bytes: replace(LIMITS, l2_bytes=fits))
        again(bench)
        assert bench.chosen("sums", bench.array(16, 64)).origin.startswith(origin)
    assert len(counted.asked) == 1
    assert caplog.text.count("was not tuned on this GPU") == 2  # once for each process


STATED = """[analytical]
P = 8
L = 64
[launch]
"""


def test_answers_that_kernel_files_state(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are taken for arrays in the cache, too, and nothing else is compiled; else the default is."""
    path = bench.database.parent / "sums.toml"
    path.write_text(path.read_text().replace("[launch]\n", STATED))
    bench.catalog = Catalog.load(search_path=[path.parent])
    limits = replace(LIMITS, l2_bytes=2**30)
    for registers_per_sm, origin in (
        (32, "default"),  # no block fits
        (limits.registers_per_sm, "analytical: by the rule 'stated' of 1 candidates; nothing was measured"),
    ):
        changed = replace(limits, registers_per_sm=registers_per_sm)
        monkeypatch.setattr(probe, "gpu_limits", lambda *_, known=changed: known)
        again(bench)
        FakeCompiler.compiled.clear()
        assert bench.chosen("sums", bench.array(16, 64)).origin == origin
        assert len(FakeCompiler.compiled) <= 1


@pytest.mark.parametrize(
    ("name", "origin"), [("A7 PCIe", "analytical: by the rule 'stated'"), ("A70", "default")]
)
def test_answers_that_were_measured_on_a_gpu(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str, origin: str
) -> None:
    """They are taken for arrays in the cache on a GPU of their name; on others the default is."""
    path = bench.database.parent / "sums.toml"
    path.write_text(path.read_text() + '[measured]\nfile = "best.csv"\n')
    (path.parent / "best.csv").write_text("N,gpu,P,L\n64,A7,8,64\n")
    bench.catalog = Catalog.load(search_path=[path.parent])
    monkeypatch.setattr(probe, "gpu_limits", lambda *_: replace(LIMITS, l2_bytes=2**30))
    monkeypatch.setattr(probe, "gpu_name", lambda *_: name)
    again(bench)
    assert bench.chosen("sums", bench.array(16, 64)).origin.startswith(origin)


class Spilling(FakeCompiler):
    """Spills registers, or does not compile within the time that there is."""

    in_time = True

    def compile(self, stages: Sequence[Stage], _: object = None) -> list[CompiledStage | CompileError]:
        """See ``FakeCompiler``."""
        made = super().compile(stages)
        if not self.in_time:
            return [CompileError("not compiled within 60 s") for _ in made]
        spills = Resources(32, spill_bytes=8, architecture="sm_90")
        return [replace(one, resources=spills) for one in made if isinstance(one, CompiledStage)]


def state(bench: Bench, *answers: str) -> None:
    """Have the kernel file state these analytical answers."""
    path = bench.database.parent / "sums.toml"
    tables = "".join(f"[[analytical]]\n{one}\n" for one in answers)
    path.write_text(path.read_text().replace("[launch]\n", f"{tables}[launch]\n"))
    bench.catalog = Catalog.load(search_path=[path.parent])
    again(bench)


@pytest.mark.parametrize(("in_time", "times"), [(True, 1), (False, 2)])
def test_that_nothing_fits_is_kept(
    bench: Bench, counted: Counted, monkeypatch: pytest.MonkeyPatch, in_time: bool, times: int
) -> None:
    """Later processes know that an answer spills; what did not compile, they compile again."""
    state(bench, "P = 8\nL = 64", "P = 4\nL = 64")
    monkeypatch.setattr(direct, "Compiler", Spilling)
    monkeypatch.setattr(Spilling, "in_time", in_time)
    for _ in range(2):
        again(bench)
        assert bench.chosen("sums", bench.array(16, 64)).origin == "default"
    assert len(counted.asked) == times


def test_later_answer_for_one_that_did_not_compile(
    bench: Bench, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It serves the process, and is not kept: the next tries the first answer again."""
    state(bench, "P = 8\nL = 64", "P = 4\nL = 64")
    failing = {"sums<inclusive>": 1}
    compile_all = FakeCompiler.compile

    def compile_most(compiler: FakeCompiler, stages: Sequence[Stage], _: object = None) -> Any:
        made = compile_all(compiler, stages)
        if failing.pop(stages[0].entry, 0):
            return [CompileError("not compiled within 60 s") for _ in made]
        return made

    monkeypatch.setattr(FakeCompiler, "compile", compile_most)
    found = []
    for _ in range(3):
        again(bench)
        found.append(bench.chosen("sums", bench.array(16, 64)).configuration["P"])
    assert found == [4, 8, 8]
    assert len(counted.asked) == 2


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
    """The default runs in the place of an analytical answer that cannot be loaded, which is told once."""
    state(bench, "P = 8\nL = 64")
    gpu = Refusing(monkeypatch, 8)
    x = bench.array(16, 64)
    assert bench.chosen("sums", x).configuration["P"] == 8  # nobody knows yet
    caplog.clear()
    assert np.array_equal(bench.apply("sums", x), np.cumsum(x, axis=1))
    chosen = bench.chosen("sums", x)
    assert (chosen.configuration["P"], chosen.known) == (2, False)
    assert chosen.origin.startswith(
        "default, as the GPU refuses the answer; else analytical: by the rule 'st"
    )
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


def test_once_for_a_process_and_on_the_disk(bench: Bench, counted: Counted) -> None:
    """Later calls, forms and processes find the answer; batches share that of the power of two below."""
    first = bench.chosen("sums", bench.array(16, 64))
    for shape in ((16, 64), (17, 64), (31, 64)):
        bench.apply("sums", bench.array(*shape))
        bench.plan("sums", shape)
    again(bench)
    assert bench.chosen("sums", bench.array(20, 64)) == first
    assert [workload.batch for workload in counted.asked] == [16]
    bench.chosen("sums", bench.array(32, 64))
    bench.chosen("sums", bench.array(16, 128))
    bench.chosen("sums", bench.array(16, 64), form="exclusive")
    assert [(str(one), one.batch) for one in counted.asked[1:]] == [
        ("sums:N=64", 32),
        ("sums:N=128", 16),
        ("sums:N=64,form=exclusive", 16),
    ]


@pytest.mark.parametrize("name", ["name", "uuid", "driver", "runtime"])
def test_bound_to_the_gpu_and_its_software(bench: Bench, counted: Counted, name: str) -> None:
    """An answer of another GPU, driver or NVRTC is worked out again."""
    kernel = bench.catalog.kernel("sums")
    workload = kernel.workload({"N": 64}, 16)
    answers = UntunedAnswers(bench.database.parent / "answers")

    gpu = DirectGpu(bench.cp, 0)
    for _ in range(2):
        answers.answer(kernel, workload, gpu)
    values: dict[str, Any] = {name: "another"}
    gpu.identity = replace(gpu.identity, **values)
    answers.answer(kernel, workload, gpu)
    assert len(counted.asked) == 2


def test_bound_to_the_source(bench: Bench, counted: Counted) -> None:
    """An answer of another source is worked out again."""
    bench.chosen("sums", bench.array(16, 64))
    (bench.database.parent / "k.cu").write_text("// another")
    bench.catalog = type(bench.catalog).load(search_path=[bench.database.parent])
    again(bench)
    bench.chosen("sums", bench.array(16, 64))
    assert len(counted.asked) == 2


def test_stored_answers_come_first(bench: Bench, counted: Counted) -> None:
    """What was tuned is taken without working anything out; the answer of another size is not."""
    Tuned(bench).run({"P": 4, "L": 32}, names=("sums:N=128",), batch=8)
    assert bench.chosen("sums", bench.array(16, 64)).origin.startswith("analytical")
    assert len(counted.asked) == 1
    Tuned(bench).run({"P": 4, "L": 32})
    again(bench)
    assert bench.chosen("sums", bench.array(16, 64)).origin.startswith("run ")
    for configuration in ("default", {"P": 1, "L": 32}):
        bench.apply("sums", bench.array(16, 2048), configuration=configuration)
    assert len(counted.asked) == 1


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


def test_no_answer(bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Where the model has none the default is taken, the reason is logged, and it is not asked again."""
    asked = []

    def fail(*given: object, **_: object) -> None:
        asked.append(given)
        raise CompilerUnavailableError("no NVRTC here")

    monkeypatch.setattr(untuned, "prepare", fail)
    with caplog.at_level(logging.INFO, logger="tuner"):
        for batch in (16, 17):
            assert bench.chosen("sums", bench.array(batch, 64)).origin == "default"
    assert [record.message for record in caplog.records if record.levelno == logging.INFO] == [
        "sums:N=64: no analytical answer: no NVRTC here"
    ]
    assert len(asked) == 1


def test_answer_that_a_rule_forbids(bench: Bench) -> None:
    """A batch that is no power of two need not allow the answer of one: the default is taken then."""
    kernel = bench.catalog.kernel("sums")
    workload = kernel.workload({"N": 2}, 16)
    answers = UntunedAnswers(bench.database.parent / "answers")
    gpu = DirectGpu(bench.cp, 0)
    assert answers.answer(kernel, workload, gpu) is not None
    for key, found in answers._known.items():
        assert found is not None
        answers._known[key] = replace(found, values={"P": 8, "L": 32})  # P <= N
    assert answers.answer(kernel, workload, gpu) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"answer": {"values": 3}}', '{"answer": {"rule": "a"}}'])
def test_damaged_files(bench: Bench, counted: Counted, text: str) -> None:
    """A file that cannot be read is worked out and written again."""
    chosen = bench.chosen("sums", bench.array(16, 64))
    (file,) = (bench.database.parent / "answers").iterdir()
    document = file.read_text()
    file.write_text(text)
    again(bench)
    assert bench.chosen("sums", bench.array(16, 64)) == chosen
    assert len(counted.asked) == 2
    assert json.loads(file.read_text()) == json.loads(document)
    assert json.loads(document)["batch"] == 16


def test_disk_that_takes_no_files(
    bench: Bench, counted: Counted, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without room on the disk the answer is kept in memory; nothing half written is left."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tuner.application.untuned.json.dump", full)
    with caplog.at_level(logging.INFO, logger="tuner"):
        for _ in range(2):
            assert bench.chosen("sums", bench.array(16, 64)).origin.startswith("analytical")
    assert "the analytical answer is not kept: [Errno 28]" in caplog.text
    assert list((bench.database.parent / "answers").iterdir()) == []
    assert len(counted.asked) == 1


def test_stated_answers_that_are_none(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Where a stated answer breaks a rule at some sizes, the default is taken, and the log says so."""
    path = bench.database.parent / "sums.toml"
    path.write_text(path.read_text().replace("[launch]\n", STATED))
    bench.catalog = Catalog.load(search_path=[path.parent])
    again(bench)
    with caplog.at_level(logging.INFO, logger="tuner"):
        assert bench.chosen("sums", bench.array(16, 4)).origin == "default"
    assert "breaks the rule" in caplog.text
