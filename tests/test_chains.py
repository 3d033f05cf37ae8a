"""Chains in kernel files: steps written out, arrays swapped, views, an order between streams, libraries."""

import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from chain_samples import LU, LU_CODE, STENCIL, STENCIL_CODE, load, lu_plan, stencil_plan
from modelled import NoNvrtc

from tuner.devices.base import RunRecord
from tuner.devices.gpu_models import gpu_model
from tuner.devices.simulated.device import SimulatedDevice
from tuner.devices.simulated.time_model import library_work
from tuner.kernel_files.recipe import BETWEEN
from tuner.kernel_files.source_checks import unused_names
from tuner.model.errors import KernelFileError
from tuner.model.plan import BufferView, LibraryCall, Plan, Resources, Scalar
from tuner.model.trial import Status
from tuner.space.occupancy import bounds, own_resources


def arrays_of(plan: Plan) -> list[tuple[object, ...]]:
    """The arrays of each stage, in its order."""
    return [tuple(item for item in stage.arguments if isinstance(item, str)) for stage in plan.stages]


def stencil(folder: Path, *changes: tuple[str, str], steps: int = 4) -> Plan:
    """The stencil with another text."""
    text = STENCIL
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    kernel = load(folder, text, STENCIL_CODE)
    workload = kernel.workload({"N": 64, "S": steps})
    return kernel.plan(workload, kernel.default(workload))


def test_steps_are_written_out(tmp_path: Path) -> None:
    """Every step is a stage; scalars know its number, and what is alike is one text."""
    plan = stencil_plan(tmp_path, 65536, 3, block=256)
    assert [stage.arguments[3] for stage in plan.stages] == [Scalar("int32", step) for step in range(3)]
    assert {(stage.entry, stage.grid, stage.block) for stage in plan.stages} == {
        ("stencil", (256, 1, 1), (256, 1, 1))
    }


@pytest.mark.parametrize(
    ("steps", "arrays"),
    [
        (1, "uv"),
        (2, "ut tv"),
        (3, "uv vt tv"),
        (4, "ut tv vt tv"),
    ],
)
def test_an_input_is_kept_and_the_output_written_last(tmp_path: Path, steps: int, arrays: str) -> None:
    """Whatever the number of steps: where it is needed, an array more takes turns with the output."""
    plan = stencil_plan(tmp_path, 64, steps)
    names = {"u": "u", "v": "v", "t": "v" + BETWEEN}
    assert arrays_of(plan) == [tuple(names[letter] for letter in pair) for pair in arrays.split()]
    roles = {buffer.name: buffer.role for buffer in plan.buffers}
    assert roles == {"u": "in", "v": "out"} | ({"v" + BETWEEN: "scratch"} if steps > 1 else {})


@pytest.mark.parametrize(
    ("first", "second", "steps", "arrays"),
    [
        ("inout", "scratch", 4, "uv vu uv vu"),
        ("scratch", "out", 3, "uv vu uv"),
        ("inout", "inout", 3, "uv vu uv"),
        ("out", "inout", 2, "uv vu"),
    ],
)
def test_other_arrays_change_places(tmp_path: Path, first: str, second: str, steps: int, arrays: str) -> None:
    """On odd steps, and nothing is added."""
    roles = (('role = "in"', f'role = "{first}"'), ('role = "out"', f'role = "{second}"'))
    plan = stencil(tmp_path, *roles, steps=steps)
    assert arrays_of(plan) == [tuple(pair) for pair in arrays.split()]
    assert {buffer.name for buffer in plan.buffers} == {"u", "v"}


@pytest.mark.parametrize(
    ("changes", "steps", "message"),
    [
        (
            (('"in"', '"inout"'), ('"out"', '"scratch"')),
            3,
            "the result lies in v, whose role is scratch, and u is the output; make the steps even in number",
        ),
        ((('swap = [["u", "v"]]', 'swap = [["v", "u"]]'),), 3, "the roles are out and in"),
        ((('role = "in"', 'role = "in"\nrestored = true'),), 2, "only an inout array is restored"),
        ((('swap = [["u", "v"]]', 'swap = [["u", "w"]]'),), 2, r"\[launch\] swap: no buffer is called 'w'"),
        ((('swap = [["u", "v"]]', 'swap = [["u", "v"], ["v", "u"]]'),), 2, "u stands twice"),
        ((('repeat = "S"', 'repeat = "S - 2"'),), 2, "it must be at least 1"),
        ((('repeat = "S"', "repeat = 1"), ('value = "step"', 'value = "stop"')), 2, "unknown name 'stop'"),
        ((('repeat = "S"', 'repeat = 3\nindex = "N"'),), 2, "the name is taken by"),
        ((('grid = "ceil_div(N, B)"', 'grid = "2 - step"'),), 4, r"it must be from 1 to .* \(in step 2 of"),
        ((('entry = "stencil"', 'entry = "stencil<{step}>"'),), 2, "unknown name 'step'"),
        (
            (
                (
                    'dtype = "float32"\nshape = ["batch", "N"]\nrole = "out"',
                    'dtype = "float64"\nshape = ["batch", "N"]\nrole = "out"',
                ),
            ),
            2,
            "must have the same type and shape",
        ),
        ((('repeat = "S"\n', ""),), 2, "index, swap and derived need repeat"),
    ],
)
def test_wrong_loops_are_refused(
    tmp_path: Path, changes: tuple[tuple[str, str], ...], steps: int, message: str
) -> None:
    """Each with the key and what would be right."""
    with pytest.raises(KernelFileError, match=message):
        stencil(tmp_path, *changes, steps=steps)


def test_a_run_has_no_end_of_launches(tmp_path: Path) -> None:
    """More than a graph should hold are refused."""
    with pytest.raises(KernelFileError, match="is 10001; a run has at most 10000 launches"):
        stencil_plan(tmp_path, 64, 10001)


def test_views_move_with_the_steps(tmp_path: Path) -> None:
    """The last step has nothing to its right and no stage for it."""
    plan = lu_plan(tmp_path, n=64, block=16)
    assert [stage.name for stage in plan.stages] == ["panel", "rows", "update"] * 3 + ["panel"]
    assert [stage.arguments[0] for stage in plan.stages if stage.name == "panel"] == [
        BufferView("A", k * 16 * 65) for k in range(4)
    ]
    assert [stage.grid for stage in plan.stages if stage.name == "update"] == [
        (1, 48, 1),
        (1, 32, 1),
        (1, 16, 1),
    ]
    assert [buffer.restored for buffer in plan.buffers] == [True]


def test_stages_of_libraries(tmp_path: Path) -> None:
    """Dimensions and matrices are evaluated in each step; where one is 0 there is no stage."""
    plan = lu_plan(tmp_path, n=64, block=32, by="library")
    assert [stage.name for stage in plan.stages] == ["panel", "rows", "update", "panel"]
    call = plan.stages[2].library
    assert call is not None
    assert (call.routine, call.dtype, call.m, call.n, call.k, call.alpha, call.beta) == (
        *("gemm", "float32", 32, 32, 32),
        *(-1.0, 1.0),
    )
    assert [(o.buffer, o.offset_elements, o.leading) for _, o in call.operands] == [
        ("A", 32, 64),
        ("A", 32 * 64, 64),
        ("A", 32 * 65, 64),
    ]
    assert plan.stages[2].buffers == {"A"}


def test_streams_wait_for_each_other(tmp_path: Path) -> None:
    """Predecessors become places among the plan's stages: of this step, or of the step before."""
    plan = lu_plan(tmp_path, n=64, block=16, by="library", beside=1)
    assert [(stage.name, stage.stream, stage.after) for stage in plan.stages][:6] == [
        ("panel", 0, ()),
        ("rows", 1, (0,)),
        ("update", 1, ()),
        ("panel", 0, (2,)),
        ("rows", 1, (3,)),
        ("update", 1, ()),
    ]


def test_streams_wait_for_earlier_steps(tmp_path: Path) -> None:
    """A predecessor may be one of several steps before; the first steps have none."""
    text = LU.replace('after = ["update@-1"]', 'after = ["update@-2"]')
    kernel = load(tmp_path, text, LU_CODE)
    workload = kernel.workload({"N": 64})
    plan = kernel.plan(workload, kernel.configuration(workload, {"B": 16, "by": "library", "beside": 1}))
    panels = [(place, stage.after) for place, stage in enumerate(plan.stages) if stage.name == "panel"]
    assert panels == [(0, ()), (3, ()), (6, (2,)), (9, (5,))]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('after = ["panel"]', 'after = ["panels"]', r"no stage above is called 'panels'"),
        ('after = ["update@-1"]', 'after = ["update"]', "update@-1 is the one of the step before"),
        ('after = ["update@-1"]', 'after = ["end@-1"]', "no stage of this loop is called so"),
        ('after = ["update@-1"]', 'after = ["end@-3"]', "end@-3: no stage of this loop is called so"),
        ('after = ["update@-1"]', 'after = ["update@-0"]', "no stage above is called 'update@-0'"),
        ('loop = "columns"\nentry = "rows"', 'entry = "rows"', "unknown name 'k'|do not follow each other"),
        ('loop = "columns"\nentry = "panel"', 'loop = "column"\nentry = "panel"', "did you mean 'columns'"),
        ('{ buffer = "A", offset = "k * B * (N + 1)" }, "n", "below"',
         '{ buffer = "A", offset = "k * N * N + 1" }, "n", "below"', "it must be from 0 to 4095"),
        ('{ buffer = "A", offset = "k * B * (N + 1)" }, "n", "below"',
         '{ buffer = "A", ofset = "k" }, "n", "below"', "item 1 ofset: unknown key; did you mean"),
        ('{ buffer = "A", offset = "k * B * (N + 1)" }, "n", "below"',
         '{ buffer = "n", offset = "k" }, "n", "below"', "no buffer is called 'n'; choose from A"),
        ('k = "B"\nalpha', "alpha", "gemm needs k"),
        ("alpha = -1", 'alpha = -1\nside = "left"', "gemm takes no side"),
        ('library = "gemm"', 'library = "gem"', "not one of gemm, syrk, trsm, fft"),
        ('library = "gemm"', 'library = "gemm"\nentry = "x"', "entry: unknown key"),
        ('c = { buffer = "A", offset = "(k + 1) * B * (N + 1)", ld = "N" }',
         'c = { buffer = "A", offset = "k * N * N", ld = "N" }', r"end at \d+; A has 4096 \(in step 1"),
        ('c = { buffer = "A", offset = "(k + 1) * B * (N + 1)", ld = "N" }',
         'c = { buffer = "A", ld = "B" }', "it must be from 48"),
        ('stream = "beside"\nafter', 'stream = "beside + 8"\nafter', "it must be from 0 to 7"),
        ("[loop.columns]", "[loop.more]\nrepeat = 2\n[loop.columns]", "more.: no stage is in this loop"),
        ("[loop.columns]\nrepeat", "[loop.columns]\nrepeats", r"\[loop.columns\] repeats: unknown key"),
    ],
)  # fmt: skip
def test_wrong_stages_are_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    """Each with the key and what would be right."""
    assert old in LU
    with pytest.raises(KernelFileError, match=message):
        plans_of(tmp_path, LU.replace(old, new))


def plans_of(folder: Path, text: str) -> list[Plan]:
    """The factorisation in both forms, by another text."""
    kernel = load(folder, text, LU_CODE)
    workload = kernel.workload({"N": 64})
    configurations = [{"B": 16, "by": by, "beside": 0} for by in ("own", "library")]
    return [kernel.plan(workload, kernel.configuration(workload, values)) for values in configurations]


def test_a_scalar_of_steps_outside_of_its_loop(tmp_path: Path) -> None:
    """Is refused when the file is read."""
    first = '[[stage]]\nname = "first"\nentry = "rows"\ngrid = 1\nblock = 1\narguments = ["A", "below"]\n'
    panel = '[[stage]]\nname = "panel"'
    text = LU.replace(panel, first + panel)
    with pytest.raises(KernelFileError, match="value depends on k, which numbers the steps"):
        load(tmp_path, text, LU_CODE)


def test_the_documented_example(tmp_path: Path) -> None:
    """The factorisation of docs/kernel-keys.md is a well-formed chain in two streams."""
    page = (Path(__file__).parent.parent / "docs" / "kernel-keys.md").read_text()
    found = re.search(r"### An example\n.*?```toml\n(.*?)```", page, re.DOTALL)
    assert found is not None
    text = '[kernel]\nname = "lu"\nsource = "chain.cu"\n[problem.sizes]\nN = [64]\n' + found[1]
    kernel = load(tmp_path, text, "template <int N, int B> __global__ void panel(float* A, int below) {}")
    workload = kernel.workload({"N": 64})
    plan = kernel.plan(workload, kernel.configuration(workload, {"B": 32, "beside": 1}))
    assert [(stage.name, stage.stream, stage.after) for stage in plan.stages] == [
        ("panel", 0, ()),
        ("rows", 1, (0,)),
        ("update", 1, ()),
        ("panel", 0, (2,)),
    ]


def test_long_chains_cost_little(tmp_path: Path) -> None:
    """A thousand stages are evaluated in about 50 ms; the bound leaves room for a busy machine."""
    kernel = load(tmp_path, LU.replace("N = [64, 512]", "N = [5328]"), LU_CODE)
    workload = kernel.workload({"N": 5328})
    configuration = kernel.configuration(workload, {"B": 16, "by": "own", "beside": 0})
    best_s = 1.0
    for _ in range(3):
        begun_s = time.process_time()
        plan = kernel.plan(workload, configuration)
        best_s = min(best_s, time.process_time() - begun_s)
    assert len(plan.stages) == 997
    assert best_s < 0.15


# --- named expressions of a step -----------------------------------------------------------------

NAMED = """[loop.columns.derived]
left = "k * B"
right = "left + B"
rest = "N - right"
"""


def with_names(names: str = NAMED) -> str:
    """The factorisation, in terms of names."""
    text = LU.replace("N - (k + 1) * B", "rest").replace("(k + 1) * B", "right").replace("k * B", "left")
    return text.replace('[[stage]]\nname = "panel"', f'{names}[[stage]]\nname = "panel"')


def test_names_stand_for_their_expressions(tmp_path: Path) -> None:
    """In grids, conditions, offsets, scalars and calls of libraries: the plans are the same."""
    for plan, other in zip(plans_of(tmp_path, LU), plans_of(tmp_path, with_names()), strict=True):
        assert plan.stages == other.stages


def test_names_of_a_loop_call_those_of_the_file(tmp_path: Path) -> None:
    """With what changes from step to step, and with what does not."""
    text = with_names(NAMED.replace("k * B", "times(k)").replace("left + B", "times(2) + left - times(1)"))
    text = text.replace("[loop.columns]\n", '[derived]\n"times(x)" = "x * B"\n[loop.columns]\n')
    for plan, other in zip(plans_of(tmp_path, LU), plans_of(tmp_path, text), strict=True):
        assert plan.stages == other.stages


def test_names_of_the_only_launch(tmp_path: Path) -> None:
    """They follow the steps in blocks and shared bytes, too; what is the same in all is evaluated once."""
    names = (
        '[launch.derived]\nwidth = "min(B, N)"\nbytes = "4 * width * step"\nhalf = "width // (1 + step)"\n'
    )
    block = ('block = "B"\n', f'block = ["half", 1]\nshared_bytes = "bytes"\n{names}')
    plan = stencil(tmp_path, block, ('grid = "ceil_div(N, B)"', 'grid = "N // width"'))
    blocks = [(stage.block[0], stage.shared_bytes) for stage in plan.stages]
    assert blocks == [(32, 0), (16, 128), (10, 256), (8, 384)]
    assert plan.stages[1].grid == (2, 1, 1)
    assert plan.stages[1].grid is plan.stages[3].grid  # the two have the same arrays


def test_a_naive_kernel_knows_the_names_of_the_first_step(tmp_path: Path) -> None:
    """As it knows the number of the step."""
    text = STENCIL.replace("[problem.sizes]", '[problem]\nreference_entry = "naive"\n[problem.sizes]', 1)
    text = text.replace("[work]", '[launch.derived]\nlate = "step + 7"\n[work]')
    text = text.replace('value = "step"', 'value = "late"')
    kernel = load(tmp_path, text, STENCIL_CODE + STENCIL_CODE.replace("void stencil", "void naive"))
    workload = kernel.workload({"N": 64, "S": 3})
    reference = kernel.plan(workload, kernel.default(workload)).reference
    assert reference is not None
    assert reference.stages[0].arguments[3] == Scalar("int32", 7)


def test_loops_name_their_own(tmp_path: Path) -> None:
    """One name may mean something else in another loop."""
    loops = """[loop.first]
repeat = 2
[loop.first.derived]
value = "step + 10"
[loop.second]
repeat = 2
[loop.second.derived]
value = "step + 20"
"""
    stages = "".join(
        f'[[stage]]\nname = "{name}"\nloop = "{name}"\nentry = "stencil"\ngrid = 1\nblock = "B"\n'
        for name in ("first", "second")
    )
    launch = STENCIL[STENCIL.index("[launch]") : STENCIL.index("[work]")]
    text = STENCIL.replace(launch, loops + stages).replace('value = "step"', 'value = "value"')
    text = text.replace('entry = "stencil"\n[problem', "[problem")
    kernel = load(tmp_path, text, STENCIL_CODE)
    workload = kernel.workload({"N": 64, "S": 1})
    plan = kernel.plan(workload, kernel.default(workload))
    assert [stage.arguments[3] for stage in plan.stages] == [Scalar("int32", n) for n in (10, 11, 20, 21)]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rest =", "B =", r"\[loop.columns.derived\] B: the name is taken by \[tunables\]; choose another"),
        ("rest =", "k =", r"\[loop.columns.derived\] k: the name is taken by the index of \[loop.columns\]"),
        ("rest =", "if =", r"\[loop.columns.derived\] if: this name is a word of the expression language"),
        ("rest =", '"a b" =', r"\[loop.columns.derived\] a b: .* does not have the form"),
        ('"k * B"', "[1]", r"\[loop.columns.derived\] left: must be "),
        ('"k * B"', '"k * C"', r"\[loop.columns.derived\] left: expression 'k \* C': unknown name 'C'"),
        ('"k * B"', '"right - B"', "derived. left: expression 'right - B': right stands below"),
        ('"k * B"', '"left + B"', r"left: expression 'left \+ B': left is this name itself"),
        ('"k * B"', '"k * B // (2 - k)"', r"derived\] left: .*zero.* \(in step 2 of \[loop.columns\]"),
        ('"k * B"', '"(k + 1) * 1e200 * B * 1e200"', r"derived\] left: .*finite.* \(in step 0"),
        ('repeat = "N // B"', 'repeat = "rest"', r"\[loop.columns\] repeat: .* unknown name 'rest'"),
        ('entry = "rows"', 'entry = "rows<{rest}>"', "entry: expression 'rest': unknown name 'rest'"),
        ("[loop.columns]\n", "[derived]\nrest = 1\n[loop.columns]\n", r"derived\] rest: .* by \[derived\]"),
    ],
)  # fmt: skip
def test_wrong_names_are_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    """Each with the table, the name and what would be right."""
    text = with_names()
    assert old in text
    with pytest.raises(KernelFileError, match=message):
        plans_of(tmp_path, text.replace(old, new))


def test_a_named_scalar_outside_of_its_loop(tmp_path: Path) -> None:
    """Is refused when the file is read."""
    first = '[[stage]]\nname = "first"\nentry = "rows"\ngrid = 1\nblock = 1\narguments = ["A", "below"]\n'
    with pytest.raises(
        KernelFileError, match="value depends on left, which belongs to a loop that this stage"
    ):
        load(tmp_path, with_names(NAMED + first), LU_CODE)


def test_names_that_nothing_uses_are_told(tmp_path: Path) -> None:
    """Also those that only such names use."""
    idle = NAMED + 'twice = "2 * rest"\nthrice = "twice + beside"\n'
    found = unused_names(load(tmp_path, with_names(idle), LU_CODE).recipe)
    assert [line.partition(":")[0] for line in found] == [
        "[loop.columns.derived] twice",
        "[loop.columns.derived] thrice",
    ]
    assert unused_names(load(tmp_path, with_names(), LU_CODE).recipe) == []


# --- modelled devices ----------------------------------------------------------------------------


def run_modelled(*plans: Plan) -> RunRecord:
    """A window of the plans on a modelled H200."""
    sim = SimulatedDevice("h200", compiler=NoNvrtc(), noise=0.0)
    return sim.run(plans, 0.1)


def test_chains_take_the_sum_of_their_steps(tmp_path: Path) -> None:
    """A thousand steps are as fast to model as they are alike."""
    one, many = (run_modelled(stencil_plan(tmp_path, 1048576, steps)).makespan_s for steps in (1, 500))
    assert one is not None
    assert many is not None
    assert many / one == pytest.approx(500, rel=0.05)


def test_libraries_are_modelled_by_their_dimensions(tmp_path: Path) -> None:
    """Bytes and operations follow from m, n and k; copies that restore arrays are told."""
    plan = lu_plan(tmp_path, n=512, block=32, by="library")
    result = run_modelled(plan).results[0]
    assert result.status is Status.OK
    assert result.time_s is not None
    assert 1e-4 < result.time_s < 1e-1
    assert 0 < result.restore_s < result.time_s
    assert run_modelled(plan, stencil_plan(tmp_path, 65536, 3)).makespan_s is not None
    call = LibraryCall("gemm", "float32", (), m=128, n=64, k=32, beta=1.0)
    work = library_work(call)
    assert (work.operations, work.bytes, work.tiles) == (
        2 * 128 * 64 * 32,
        4 * (128 * 32 + 32 * 64 + 2 * 128 * 64),
        2,
    )
    assert library_work(replace(call, routine="syrk", n=128)).operations == 128 * 129 * 32
    assert library_work(replace(call, routine="trsm")).operations == 128 * 128 * 64
    assert library_work(replace(call, routine="fft", dtype="complex64")).operations == 5 * 128 * 64 * 6


def test_candidates_are_of_kernels_not_of_launches(tmp_path: Path) -> None:
    """Each kernel once, at its largest grid; a plan of libraries alone is not pruned."""
    own, library = lu_plan(tmp_path, n=512, block=16), lu_plan(tmp_path, n=512, block=16, by="library")
    limits = gpu_model("h200").limits
    assert [launch.blocks for launch in bounds(limits, own)] == [1, 8, 8 * 496]
    assert [launch.blocks for launch in bounds(limits, library)] == [1]
    alone = replace(library, stages=library.stages[1:3])
    assert [launch.occupancy for launch in bounds(limits, alone)] == [1.0]
    resources = tuple(Resources(number) for number in range(len(own.stages)))
    assert [one.registers_per_thread for one in own_resources(own, resources)] == [0, 1, 2]


def test_a_naive_kernel_is_no_chain(tmp_path: Path) -> None:
    """It computes all steps in one launch, where the number of a step is 0."""
    text = STENCIL.replace("[problem.sizes]", '[problem]\nreference_entry = "naive"\n[problem.sizes]', 1)
    text = text.replace("[work]", "[reference_launch]\ngrid = 1\nblock = 1\n[work]")
    kernel = load(tmp_path, text, STENCIL_CODE + STENCIL_CODE.replace("void stencil", "void naive"))
    workload = kernel.workload({"N": 64, "S": 3})
    plan = kernel.plan(workload, kernel.default(workload))
    assert plan.reference is not None
    assert [(stage.entry, stage.arguments) for stage in plan.reference.stages] == [
        ("naive", ("u", "v", Scalar("int32", 64), Scalar("int32", 0)))
    ]
    assert [buffer.name for buffer in plan.reference.buffers] == ["u", "v"]


def test_the_default_plan_is_evaluated_once(tmp_path: Path) -> None:
    """Plans that are judged by it share it."""
    kernel = load(tmp_path, LU, LU_CODE)
    workload = kernel.workload({"N": 64})
    one, other = (
        kernel.plan(workload, kernel.configuration(workload, {"B": 32, "by": by, "beside": 0}))
        for by in ("own", "library")
    )
    assert one.baseline is other.baseline
    assert one.baseline is not None
    assert one.baseline.configuration == kernel.default(workload)
