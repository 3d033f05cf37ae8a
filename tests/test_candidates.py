"""Steps 1-5 of Algorithm 1: enumerate, prune what cannot run, judge what compiles; batches that fit."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest
from cli_process import FAULTY
from hypothesis import given
from hypothesis import strategies as st
from modelled import NoNvrtc, device
from run_documents import answered

from tuner.compiler.compiler import CompiledStage
from tuner.devices.simulated.device import Faults, SimulatedDevice
from tuner.kernel_files.catalog import Catalog, load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import CompileError, EmptySpaceError, InputError, KernelFileError
from tuner.model.plan import LaunchDemands, Plan, Progress, Resources, Stage, Workload
from tuner.model.trial import Status, Trial
from tuner.report.run_report import warnings
from tuner.search.candidates import (
    DEFAULT_MIN_OCCUPANCY,
    PreparedWorkload,
    fit_batches,
    plan_bytes,
    prepare,
    rank_in,
)
from tuner.search.compilation import prepare_compiled
from tuner.search.explaining import analytical_choice
from tuner.search.plan import default_configuration

CATALOG = Catalog.load()
SCAN = CATALOG.kernel("scan-lf")
FFT = CATALOG.kernel("fft")


def pair(spec: str) -> tuple[KernelFile, Workload]:
    workload = CATALOG.workload(spec)
    return CATALOG.kernel(workload.kernel), workload


def one(
    spec: str = "scan-lf:N=256", gpu: str = "k40c", min_occupancy: float | None = None
) -> PreparedWorkload:
    (found,) = prepare_compiled([pair(spec)], device(gpu), min_occupancy)
    return found


def bytes_of(kernel: KernelFile, workload: Workload) -> int:
    return plan_bytes(kernel.plan(workload, kernel.default(workload)))


# --- pruning -------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpu", ["k20c", "k40c", "jetson-tx1", "h200"])
def test_candidates_are_those_above_the_threshold(gpu: str) -> None:
    """Everything kept reaches the threshold, nothing dropped by occupancy would have, and all is counted."""
    everything = one(gpu=gpu, min_occupancy=0.0)
    assert len(everything.candidates) + sum(everything.pruned.values()) == len(everything.space)
    for threshold in (0.4, 0.8, 1.0):
        kept = one(gpu=gpu, min_occupancy=threshold)
        expected = [c.configuration for c in everything.candidates if c.occupancy >= threshold]

        assert [c.configuration for c in kept.candidates] == expected, threshold
        assert len(kept.candidates) + sum(kept.pruned.values()) == len(kept.space), threshold


def test_candidates_keep_the_order_of_the_space() -> None:
    """Order belongs to the policy; what it gets is that of the space."""
    found = one()
    places = [found.space.index(candidate.configuration) for candidate in found.candidates]

    assert places == sorted(places)


def test_trials_that_tie_have_the_order_of_the_space() -> None:
    """At one configuration the clock as found comes first."""
    item = one(gpu="h200")
    trials = [Trial((candidate.configuration,), mhz) for candidate in item.candidates for mhz in (None, 990)]
    assert sorted(set(trials), key=rank_in([item])) == trials


def test_threshold_of_option_beats_file_beats_none() -> None:
    """--min-occupancy wins over the kernel file; without either nothing is left out."""
    assert one(min_occupancy=0.25).min_occupancy == 0.25
    assert one().min_occupancy == SCAN.min_occupancy
    faulty = load_kernel_file(FAULTY)  # states none
    (found,) = prepare_compiled([(faulty, faulty.workload({"N": 256}))], device("k40c"))
    assert found.min_occupancy == DEFAULT_MIN_OCCUPANCY == 0


def test_occupancy_is_that_of_its_own_numbers() -> None:
    """A candidate carries resident warps, blocks, threads and elements as equations (1) to (5) have them."""
    found = one()
    limits = device("k40c").limits
    for candidate in found.candidates:
        assert candidate.occupancy == pytest.approx(candidate.warps_per_sm / limits.max_warps_per_sm)
        warps = -(-candidate.threads_per_block // limits.warp_size)
        assert candidate.warps_per_sm == candidate.blocks_per_sm * warps
        assert candidate.threads_per_block == candidate.configuration["L"]
        assert candidate.elements_per_thread == candidate.configuration["P"]


def test_default_has_a_plan_even_where_it_is_pruned() -> None:
    """Gains are stated against the default, so it can be measured though it is no candidate."""
    for gpu, threshold in itertools.product(("k40c", "jetson-tx1"), (0.8, 1.0)):
        found = one("fft:N=256", gpu, min_occupancy=threshold)
        assert found.default in found.plans


def test_nothing_above_the_threshold_is_an_error() -> None:
    """A threshold that nothing reaches is named with the highest occupancy there is and what to lower."""
    with pytest.raises(
        EmptySpaceError, match=r"no configuration reaches .* 101%; the highest is at most 100%: lower"
    ):
        one(min_occupancy=1.01)


def broken_from(elements: int) -> Faults:
    """Plans with so many elements per thread or more do not compile."""

    def status(plan: Plan) -> Status:
        return Status.COMPILE_ERROR if int(plan.configuration["P"]) >= elements else Status.OK

    return Faults(status)


def test_configuration_that_does_not_compile_is_dropped_and_named() -> None:
    """One message for each, the others stay."""
    (found,) = prepare_compiled([pair("scan-lf:N=256")], device("k40c", faults=broken_from(16)))

    assert found.compile_errors
    assert found.pruned["does not compile"] == len(found.compile_errors)
    assert all(
        "told to fail" in message and "scan-lf:N=256 [P=" in message for message in found.compile_errors
    )
    assert {candidate.configuration["P"] for candidate in found.candidates} == {2, 4, 8}


def test_kernel_that_does_not_compile_is_an_error() -> None:
    """When nothing compiles the first error is in the message."""
    with pytest.raises(
        EmptySpaceError, match=r"none of \d+ configurations is left .*does not compile.*told to"
    ):
        prepare_compiled([pair("scan-lf:N=256")], device("k40c", faults=broken_from(2)))


def test_workloads_are_prepared_side_by_side() -> None:
    """Each workload gets its own resources, in the order asked."""
    both = prepare_compiled([pair("scan-lf:N=256"), pair("fft:N=256")], device("k40c"))

    assert [str(item.workload) for item in both] == ["scan-lf:N=256", "fft:N=256"]
    assert both[0].candidates == one("scan-lf:N=256").candidates
    assert both[1].candidates == one("fft:N=256").candidates


def test_nothing_is_compiled_to_enumerate() -> None:
    """Candidates are declared until somebody looks, with bounds that compiling only lowers."""

    class Uncompiling(SimulatedDevice):
        def resources(self, plans: Sequence[Plan], progress: Progress | None = None) -> NoReturn:
            raise AssertionError(f"{plans} compiled ({progress})")

    (declared,) = prepare([pair("fft:N=256")], Uncompiling("h200", 0, NoNvrtc()))
    found = {one.configuration: one for one in one("fft:N=256", "h200").candidates}

    assert all(candidate.declared for candidate in declared.candidates)
    assert declared.uncompiled == len(declared.candidates)
    assert {c.configuration for c in declared.candidates} >= found.keys()
    for candidate in declared.candidates:
        compiled = found.get(candidate.configuration)
        if compiled is not None:
            assert candidate.occupancy >= compiled.occupancy
            assert candidate.blocks_per_sm >= compiled.blocks_per_sm
            assert not compiled.declared


# --- batches -------------------------------------------------------------------------------------


@given(st.integers(20, 40))
def test_batches_fit_half_of_the_memory(exponent: int) -> None:
    """All arrays together take at most half of what is free, and the next larger power would not fit."""
    pairs = [pair("scan-lf:N=256"), pair("fft:N=1024")]
    free = 2**exponent
    fitted, notices = fit_batches(pairs, free)

    total = sum(bytes_of(kernel, w) for (kernel, _), w in zip(pairs, fitted, strict=True))
    assert total <= free // 2
    factors = {old.batch // new.batch for (_, old), new in zip(pairs, fitted, strict=True)}
    assert len(factors) == 1, "all shrink by the same power of two"
    (factor,) = factors
    assert factor & (factor - 1) == 0
    assert len(notices) == (0 if factor == 1 else 2)
    if factor > 1:
        doubled = [Workload(w.kernel, w.sizes, 2 * w.batch) for w in fitted]
        assert sum(bytes_of(k, w) for (k, _), w in zip(pairs, doubled, strict=True)) > free // 2


def test_a_batch_no_launch_can_have_is_an_error() -> None:
    """A batch beyond what a grid can hold is the user's mistake, and not one of the kernel file."""
    with pytest.raises(InputError, match=r"^scan-lf:N=16: a batch of 2147483648000 is too large: ") as error:
        fit_batches([pair("scan-lf:N=16,batch=2147483648000")], 2**30)
    assert not isinstance(error.value, KernelFileError)


def test_capped_batch_is_said() -> None:
    """A notice names the workload with its batch before and after."""
    fitted, notices = fit_batches([pair("scan-lf:N=256")], 2**28)

    assert fitted[0].batch == 2**16
    assert notices == ["scan-lf:N=256: batch capped from 262144 to 65536 (half of the free device memory)"]


def test_a_batch_that_was_asked_for_and_does_not_fit_is_a_warning() -> None:
    """The notice is none of those that a report keeps for the curious."""
    _, (notice,) = fit_batches([pair("scan-lf:N=256,batch=1000000")], 2**28)

    assert notice == (
        "scan-lf:N=256: measured with a batch of 62,500; arrays of 1,000,000 do not fit into half of the free"
        " device memory"
    )
    assert list(warnings(answered(None, ["a:N=1"], notices=[notice]))) == [notice]


def test_a_problem_that_never_fits_is_an_error() -> None:
    """When a single problem is too large, the message says how much there is."""
    with pytest.raises(InputError, match=r"scan-lf:N=4096: one problem .* does not fit .*choose smaller"):
        fit_batches([pair("scan-lf:N=4096,batch=3")], 1024)


# --- What is never tried: what the device cannot run, and what spills registers.

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
