"""What is never tried: what the device cannot run, and what spills registers."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from modelled import NoNvrtc

from tuner.compiler.compiler import CompiledStage
from tuner.devices.simulated.device import SimulatedDevice
from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import CompileError, EmptySpaceError
from tuner.model.plan import LaunchDemands, Progress, Resources, Stage
from tuner.model.trial import Status
from tuner.search.candidates import PreparedWorkload, prepare
from tuner.search.compilation import prepare_compiled
from tuner.search.explaining import analytical_choice
from tuner.search.plan import default_configuration

TEXT = """
[kernel]
name = "copy"
source = "copy.cu"
entry = "copy<{P}, {load}>"
[[argument]]
buffer = "x"
dtype = "float32"
shape = ["batch", 4096]
role = "inout"
[tunables]
P = [4, 16, 64]
load = ["boxes", "async", "plain"]
[default]
P = 16
load = "plain"
[launch]
grid = 64
block = 128
min_architecture = "select(load == 'async', 80, select(load == 'boxes', 90, 0))"
[work]
bytes = "32768 * batch"
operations = 0
[occupancy]
min = 0.1
"""


class Compiler(NoNvrtc):
    """Gives 16 elements or more 32 bytes of local memory, and 64 elements spills as well."""

    def compile(
        self, stages: Sequence[Stage], progress: Progress | None = None
    ) -> list[CompiledStage | CompileError]:
        """Resources by the entry alone."""
        del progress
        return [CompiledStage(b"", stage.entry, self.resources(stage.entry), "") for stage in stages]

    def resources(self, entry: str) -> Resources:
        P = int(entry.removeprefix("copy<").partition(",")[0])
        return Resources(32, spill_bytes=8 * (P > 32), local_bytes=32 * (P > 8))


class Asking(Compiler):
    """Needs more threads and shared memory the more elements there are."""

    def resources(self, entry: str) -> Resources:
        P = int(entry.removeprefix("copy<").partition(",")[0])
        return Resources(32, demands=LaunchDemands(threads=16 * P, shared_bytes=4096 * P))


def kernel_of(folder: Path, text: str = TEXT) -> KernelFile:
    (folder / "copy.cu").write_text("// copy\n")
    path = folder / "kernel.toml"
    path.write_text(text)
    return load_kernel_file(path)


def prepared(kernel: KernelFile, gpu: str = "h200") -> PreparedWorkload:
    device = SimulatedDevice(gpu, compiler=Compiler())
    (found,) = prepare_compiled([(kernel, kernel.workload({}))], device)
    return found


@pytest.mark.parametrize(
    ("gpu", "left", "pruned"),
    [
        ("h200", {"boxes", "async", "plain"}, {}),
        ("a100", {"async", "plain"}, {"needs compute capability 9.0": 3}),
        (
            "k40c",
            {"plain"},
            {"needs compute capability 9.0": 3, "needs compute capability 8.0": 3},
        ),
    ],
)
def test_what_the_device_cannot_run_is_left_out(
    tmp_path: Path, gpu: str, left: set[str], pruned: dict[str, int]
) -> None:
    """A configuration that needs another compute capability is counted and never compiled."""
    found = prepared(kernel_of(tmp_path), gpu)
    assert {configuration["load"] for configuration in found.plans} == left
    needs = {reason: count for reason, count in found.pruned.items() if reason.startswith("needs")}
    assert needs == pruned


def test_the_oldest_gpus_run_what_is_compiled_for_the_oldest_architecture(tmp_path: Path) -> None:
    """Modelled GPUs before 5.0 get the code of 5.0, so a need for it leaves nothing out."""
    text = TEXT.replace("90, 0))", "90, 50))")
    assert {c["load"] for c in prepared(kernel_of(tmp_path, text), "k40c").plans} == {"plain"}


def test_nothing_that_runs_here_is_an_error(tmp_path: Path) -> None:
    """Where every configuration needs another device, the message says which."""
    text = TEXT.replace('"select(load', '"90 + select(load')
    words = (
        r"none of 9 configurations is left \(3 × needs compute .*; --device sim:h200 models a GPU that has it"
    )
    with pytest.raises(EmptySpaceError, match=words):
        prepared(kernel_of(tmp_path, text), "a100")


def test_what_spills_is_left_out(tmp_path: Path) -> None:
    """Spills and other local memory are counted apart; what has neither stays."""
    found = prepared(kernel_of(tmp_path))
    assert {candidate.configuration["P"] for candidate in found.candidates} == {4}
    assert found.pruned == {"spills registers": 3, "uses local memory": 3}
    assert {configuration["P"] for configuration in found.spilling} == {16, 64}


def test_what_only_compiling_knows_decides(tmp_path: Path) -> None:
    """Threads and shared memory of the code count, and rule out what no device holds."""
    kernel = kernel_of(tmp_path)
    device = SimulatedDevice("h200", compiler=Asking())
    (found,) = prepare_compiled([(kernel, kernel.workload({}))], device)
    assert found.pruned == {"cannot be launched (shared-memory)": 3}
    launched = {(each.threads_per_block, each.launches[0].shared_bytes) for each in found.candidates}
    assert launched == {(16 * P, 4096 * P) for P in (4, 16)}


def test_a_default_that_spills_is_still_measured(tmp_path: Path) -> None:
    """Gains are stated against it, so it has a plan though it is no candidate."""
    found = prepared(kernel_of(tmp_path))
    assert found.default in found.spilling
    assert default_configuration(found) == found.default


def test_a_default_the_device_cannot_run_gives_way(tmp_path: Path) -> None:
    """The first candidate stands for a default that needs another device."""
    found = prepared(kernel_of(tmp_path, TEXT.replace('load = "plain"', 'load = "boxes"')), "a100")
    assert found.default not in found.plans
    assert default_configuration(found) == found.candidates[0].configuration


ANSWERS = """[[analytical]]
P = 4
load = "boxes"
[[analytical]]
P = 16
load = "async"
[[analytical]]
P = 4
load = "async"
[launch]
"""


@pytest.mark.parametrize(("gpu", "answer"), [("h200", (4, "boxes")), ("a100", (4, "async")), ("k40c", None)])
def test_stated_answers_by_what_a_device_can_run(
    tmp_path: Path, gpu: str, answer: tuple[int, str] | None
) -> None:
    """The first that the device can run without spills is the answer: of an A100 the second spills."""
    kernel = kernel_of(tmp_path, TEXT.replace("[launch]\n", ANSWERS))
    device = SimulatedDevice(gpu, compiler=Compiler())
    (declared,) = prepare([(kernel, kernel.workload({}))], device)
    choice, known = analytical_choice(declared, device)
    assert choice is not None
    if answer is None:
        assert choice.rule == "embedded"
        assert not any(one.stated for one in known.candidates)
    else:
        assert (choice.rule, *choice.configuration.values()) == ("stated", *answer)


def test_a_kernel_file_may_allow_spills(tmp_path: Path) -> None:
    """With spills = true all are tried, and which ones spill is still known."""
    text = TEXT.replace("[default]", "[constraints]\nspills = true\n[default]")
    found = prepared(kernel_of(tmp_path, text))
    assert {candidate.configuration["P"] for candidate in found.candidates} == {4, 16, 64}
    assert {configuration["P"] for configuration in found.spilling} == {16, 64}
    assert not found.pruned


def test_where_all_spill_the_message_says_how_to_go_on(tmp_path: Path) -> None:
    """An empty space names the reason and the key that lets them be tried."""
    text = TEXT.replace("[4, 16, 64]", "[16, 64]")
    with pytest.raises(EmptySpaceError, match=r"3 × uses local memory.*spills = true under \[constraints\]"):
        prepared(kernel_of(tmp_path, text))


def test_a_simulated_device_refuses_what_it_cannot_run(tmp_path: Path) -> None:
    """A plan for a later device is a launch error, not a time."""
    kernel = kernel_of(tmp_path)
    workload = kernel.workload({})
    plan = kernel.plan(workload, kernel.space(workload)[0])
    device = SimulatedDevice("a100", compiler=Compiler())
    assert device.check(plan, 0).status is Status.LAUNCH_ERROR
    assert "needs compute capability 9.0" in device.check(plan, 0).detail
