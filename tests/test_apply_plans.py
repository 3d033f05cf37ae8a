"""``tuner.plan`` and calls that were seen before: what is run, refused, looked at again, given back."""

import gc
import os
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from fake_apply import Bench, FakeCompiler
from fake_cupy import CUDADriverError, DeviceArray, Kernel

from tuner.application.calls import Application
from tuner.model.errors import DeviceError, InputError, TunerError, UnknownNameError

# --- what it runs ---------------------------------------------------------------------------------


def test_bound_arrays(bench: Bench) -> None:
    """Without arguments it runs on its arrays, as they are by then, into its own output."""
    x = bench.array(3, 64)
    plan = bench.plan("sums", x)
    for number in range(3):
        x[...] = number
        y = plan()
        assert y is plan.out
        assert np.array_equal(y, np.cumsum(x, axis=1))
    assert bench.cp.kernels["sums"].runs == 3


def test_output_given(bench: Bench) -> None:
    """An output given with the arrays is written by runs that name no other."""
    x, y, other = (bench.array(3, 64) for _ in range(3))
    plan = bench.plan("sums", x, out=y)
    assert plan() is y
    y[...] = 0
    assert plan(out=other) is other
    assert np.array_equal(other, np.cumsum(x, axis=1))
    assert not y.any()
    assert plan() is y


def test_other_arrays(bench: Bench) -> None:
    """It runs on other arrays of the same form, and afterwards on its own again."""
    x, other, y = bench.array(3, 64), bench.array(3, 64) + np.float32(1), bench.array(3, 64)
    plan = bench.plan("sums", x)
    assert plan(other, out=y) is y
    assert np.array_equal(y, np.cumsum(other, axis=1))
    assert plan(other) is plan.out
    assert np.array_equal(plan.out, np.cumsum(other, axis=1))
    assert np.array_equal(plan(), np.cumsum(x, axis=1))


@pytest.mark.parametrize(
    ("sizes", "dtype"), [({}, "float32"), ({"dtype": "float64"}, "float64"), ({"dtype": "int32"}, "int32")]
)
def test_shapes(bench: Bench, sizes: dict[str, str], dtype: str) -> None:
    """A plan for a shape has the type of its sizes, or the default one, and is called with arrays."""
    plan = bench.plan("sums", (3, 64), form="exclusive", **sizes)
    assert plan.out is None
    with pytest.raises(InputError, match="it was planned for shapes; call it with arrays"):
        plan()
    x = bench.array(3, 64, dtype=dtype)
    y = plan(x)
    assert np.array_equal(y, np.cumsum(x, axis=1) - x)
    assert y is plan.out is plan(x)
    assert y is not None
    assert y.dtype == np.dtype(dtype)


def test_one_row(bench: Bench) -> None:
    """An array without its axis of the batch has an output without it."""
    assert bench.plan("sums", bench.array(64))().shape == (64,)
    assert bench.plan("sums", (64,))(bench.array(64)).shape == (64,)
    assert bench.plan("sums", (1, 64))(bench.array(1, 64)).shape == (1, 64)


def test_several_outputs_and_work_in_place(bench: Bench) -> None:
    """Results come in the order of the kernel file; arrays that are worked on in place are those bound."""
    a, weights, total = bench.array(3, 16), bench.array(8), bench.array(3, 8)
    plan = bench.plan("blend", a, weights, total)
    before = total.copy()
    results = plan()
    assert results[0] is total
    assert results[1:] == plan.out
    assert np.array_equal(total, before + weights * (a[:, :8] + a[:, 8:]))
    left, right = bench.array(3, 8), bench.array(3, 8)
    assert plan(out=(left, right))[1:] == (left, right)
    assert plan(a, weights, before.copy(), out=[left, right])[0] is not total


def test_nothing_is_looked_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs ask the application for nothing, allocate nothing, and a plan of seen forms compiles nothing."""
    x, y = bench.array(3, 64), bench.array(3, 64)
    plan = bench.plan("sums", x)
    assert FakeCompiler.compiled == ["sums<inclusive>"]
    bench.plan("sums", x)
    bench.apply("sums", x)
    assert FakeCompiler.compiled == ["sums<inclusive>"]
    monkeypatch.setattr(bench, "application", None)
    held = bench.cp.allocations
    for _ in range(3):
        plan()
        plan(x, out=y)
        plan(y)
    assert bench.cp.allocations == held


def test_configuration_and_names(bench: Bench) -> None:
    """A plan tells its problem, its GPU and its configuration, which can be given."""
    plan = bench.plan("sums", bench.array(4, 64), configuration={"P": 4, "L": 32})
    assert repr(plan) == "<plan of sums:N=64, batch 4, on GPU 0: P=4 L=32 (given)>"
    assert (str(plan.workload), plan.device, dict(plan.chosen.configuration)) == (
        "sums:N=64",
        0,
        {"P": 4, "L": 32},
    )
    plan()
    assert bench.cp.kernels["sums"].grids == {(2, 1, 1)}


def test_streams(bench: Bench) -> None:
    """A run is put into the stream that is named, else into the one that is current then."""
    plan, kernel = bench.plan("sums", bench.array(3, 64)), bench.cp.kernels["sums"]
    own, named = (bench.cp.cuda.Stream(non_blocking=True) for _ in range(2))
    with own:
        plan()
    plan(stream=named)
    assert kernel.streams == {own, named}
    plan()
    assert kernel.streams == {own, named, bench.cp.legacy}
    assert bench.cp.current == []


def test_gpu_of_the_arrays(bench: Bench) -> None:
    """A plan runs on the GPU of its arrays, or for shapes on the one that was current, whichever is now."""
    with bench.cp.cuda.Device(1):
        x, y = bench.array(3, 64), bench.array(3, 64)
        shaped = bench.plan("sums", (3, 64))
    bound = bench.plan("sums", x)
    assert (bound.device, shaped.device) == (1, 1)
    assert bound().gpu == shaped(x).gpu == 1
    assert bound(x, out=y) is y
    assert bench.cp.gpu == 0
    with pytest.raises(InputError, match="x is on GPU 0; it must be on GPU 1"):
        shaped(bench.array(3, 64))


# --- what it refuses ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda b: b.plan(None, b.array(3, 64)), InputError, "kernel is None; it must be the name of"),
        (lambda b: b.plan("sum", b.array(3, 64)), UnknownNameError, "unknown kernel 'sum'"),
        (lambda b: b.plan("sums"), InputError, "sums takes 1 array (x); 0 given: x missing"),
        (lambda b: b.plan("sums", (3, 64), (3, 64)), InputError, "sums takes 1 array (x); 2 given"),
        (lambda b: b.plan("sums", (3, 64.0)), InputError, "x is planned for (3, 64.0); a shape is whole"),
        (lambda b: b.plan("sums", [b.array(3, 64)]), InputError, "numbers, and arrays are given one by one"),
        (lambda b: b.plan("sums", (3, True)), InputError, "a shape is whole numbers"),
        (lambda b: b.plan("sums", (2, 3, 64)), InputError, "x has shape (2, 3, 64); it must be (batch, N)"),
        (lambda b: b.plan("sums", (3, 5000)), UnknownNameError, "sums has no N=5000"),
        (lambda b: b.plan("sums", (0, 64)), InputError, "batch is 0"),
        (lambda b: b.plan("sums", (3, 64), out=b.array(3, 64)), InputError, "a plan for shapes has no out"),
        (lambda b: b.plan("pair", b.array(3, 64), (3, 64)), InputError, "a plan is for arrays or for shapes"),
        (lambda b: b.plan("sums", b.array(64, 3).T), InputError, "x is not contiguous"),
        (lambda b: b.plan("sums", np.zeros((3, 64))), InputError, "x is a numpy.ndarray; it must be"),
        (lambda b: b.plan("sums", b.array(3, 64), form="up"), UnknownNameError, "no form=up"),
        (lambda b: b.plan("sums", b.array(3, 64), out=b.array(4, 64)), InputError, "out is float32 of shape"),
        (lambda b: b.plan("sums", b.array(3, 64), out=()), InputError, "out has 0 arrays; it takes 1 (y)"),
        (lambda b: b.plan("sums", b.array(3, 64), configuration={"P": 3, "L": 64}), TunerError, "P"),
    ],
)
def test_what_cannot_be_planned(bench: Bench, call: Any, kind: type[Exception], words: str) -> None:
    """What apply refuses is refused in the same words, and so are mixtures of arrays and shapes."""
    with pytest.raises(kind, match=re.escape(words)):
        call(bench)
    assert bench.cp.kernels["sums"].runs == 0


def test_overlap_when_bound(bench: Bench) -> None:
    """A plan is not made for an output that overlaps an input."""
    memory = bench.array(12, 64)
    with pytest.raises(InputError, match="out overlaps x; it must be an array of its own"):
        bench.plan("sums", memory[:3], out=memory[2:5])


@pytest.mark.parametrize(
    ("given", "out", "words"),
    [
        (
            lambda b: (b.array(4, 64),),
            None,
            "x is float32 of shape (4, 64); it must be float32 of",
        ),
        (
            lambda b: (b.array(3, 64, dtype="float64"),),
            None,
            "x is float64 of shape (3, 64); it must be",
        ),
        (lambda b: (b.array(6, 64)[::2],), None, "x is not contiguous"),
        (lambda b: (b.array(193)[1:].reshape(3, 64),), None, "x begins 4 bytes past a multiple of 16"),
        (lambda _b: (np.zeros((3, 64), np.float32),), None, "x is a numpy.ndarray; it must be an array"),
        (lambda _b: (None,), None, "x is a builtins.NoneType; it must be an array on a GPU"),
        (lambda b: (b.array(3, 64), b.array(3, 64)), None, "sums takes 1 array (x); 2 given"),
        (
            lambda _b: (),
            lambda b: b.array(4, 64),
            "out is float32 of shape (4, 64); it must be float32 of",
        ),
        (lambda _b: (), lambda b: b.array(64, 3).T, "out is not contiguous"),
        (lambda _b: (), lambda _b: (), "out has 0 arrays; it takes 1 (y)"),
        (lambda _b: (), lambda _b: 7, "out is a builtins.int; it must be an array on a GPU"),
    ],
)
def test_arrays_that_cannot_be_used(bench: Bench, given: Any, out: Any, words: str) -> None:
    """Arrays of another form are refused before anything runs, and the plan can be used afterwards."""
    x = bench.array(3, 64)
    for plan in (bench.plan("sums", x), bench.plan("sums", (3, 64))):
        if not given(bench) and plan.out is None:
            continue
        with pytest.raises(InputError, match=re.escape(words)):
            plan(*given(bench), out=None if out is None else out(bench))
        assert bench.cp.kernels["sums"].runs == 0
    assert np.array_equal(bench.plan("sums", x)(), np.cumsum(x, axis=1))


def test_overlap_and_streams_of_runs(bench: Bench) -> None:
    """Overlapping outputs and streams that are none are refused at each run."""
    memory = bench.array(12, 64)
    plan = bench.plan("sums", memory[:3])
    with pytest.raises(InputError, match="out overlaps x"):
        plan(out=memory[2:5])
    with pytest.raises(InputError, match="out overlaps x"):
        plan(plan.out)
    with bench.cp.cuda.Device(1):
        far = bench.cp.cuda.Stream(non_blocking=True)
    with pytest.raises(InputError, match="stream is on GPU 1; the arrays are on GPU 0"):
        plan(stream=far)
    with pytest.raises(InputError, match=re.escape("stream is a builtins.int")):
        plan(stream=7)
    assert bench.cp.kernels["sums"].runs == 0


def test_contiguous_arrays_of_other_strides(bench: Bench) -> None:
    """One row may have any stride between rows."""
    memory = bench.array(4, 64)
    plan = bench.plan("sums", memory[:1])
    assert np.array_equal(plan(memory[::4]), np.cumsum(memory[:1], axis=1))


def test_refused_launches(bench: Bench) -> None:
    """What the driver refuses is one of our errors; a later run works again."""
    x, kernel = bench.array(3, 64), bench.cp.kernels["sums"]
    plan = bench.plan("sums", x)
    seconds, kernel.seconds = kernel.seconds, -1.0
    for arguments in ((), (x,)):
        with pytest.raises(DeviceError, match="the GPU refuses the launch: CUDA_ERROR_LAUNCH") as caught:
            plan(*arguments)
        assert isinstance(caught.value.__cause__, CUDADriverError)
    kernel.seconds = seconds
    assert np.array_equal(plan(), np.cumsum(x, axis=1))


# --- memory and threads ---------------------------------------------------------------------------


def test_memory(bench: Bench) -> None:
    """A plan keeps its arrays alive, allocates scratch and output once, and gives all back when dropped."""
    before = bench.cp.allocated_bytes
    x = bench.array(3, 64)
    plan = bench.plan("sums", x)
    scratch = 3 * 2 * 4
    assert bench.cp.allocated_bytes == before + 2 * x.nbytes + scratch
    wanted = np.cumsum(x, axis=1)
    del x
    assert np.array_equal(plan(), wanted)
    gc.disable()  # no cycles: nothing has to be collected
    try:
        del plan
        assert bench.cp.allocated_bytes == before
    finally:
        gc.enable()
    shaped = bench.plan("sums", (3, 64))
    assert bench.cp.allocated_bytes == before + scratch
    del shaped
    assert bench.cp.allocated_bytes == before


def test_arrays_of_runs_are_not_kept(bench: Bench) -> None:
    """Arrays handed to a run are the caller's alone afterwards."""
    plan = bench.plan("sums", (3, 64))
    plan(bench.array(3, 64))
    held = bench.cp.allocated_bytes
    plan(bench.array(3, 64), out=bench.array(3, 64))
    assert bench.cp.allocated_bytes == held


def test_no_memory(bench: Bench) -> None:
    """Where scratch arrays or the output do not fit, the error is one of this package."""
    x = bench.array(3, 64)
    for room in (10, 100):
        bench.cp.memory_bytes = bench.cp.allocated_bytes + room
        with pytest.raises(DeviceError, match="sums: output and scratch arrays do not fit"):
            bench.plan("sums", x)


def test_new_thread(bench: Bench) -> None:
    """A thread in which nothing of CUDA was called yet can run a plan, and make one."""
    x = bench.array(3, 64)
    plan = bench.plan("sums", x)
    with ThreadPoolExecutor(1) as pool:
        assert np.array_equal(pool.submit(plan).result(timeout=60), np.cumsum(x, axis=1))
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(bench.plan, "pair", x, x).result(timeout=60).device == 0


def test_threads_share_a_plan(bench: Bench) -> None:
    """Threads with arrays of their own run one plan, each on its own arrays."""
    taken = bench.cp.cuda.driver.launchKernel

    def slowly(*given: int) -> None:
        """As the driver, which lets other threads run before it reads the arguments."""
        for _ in range(50):
            os.sched_yield()
        taken(*given)

    bench.cp.cuda.driver.launchKernel = slowly
    bench.cp.kernels["sums"] = Kernel(lambda *_: None, 1e-3)
    bench.cp.kernels["sums"].action = copied
    plan, before = bench.plan("sums", (3, 64)), sys.getswitchinterval()
    arrays = [bench.array(3, 64) + np.float32(number) for number in range(8)]
    outs, barrier = [bench.array(3, 64) for _ in arrays], threading.Barrier(8)

    def run(number: int) -> bool:
        barrier.wait(timeout=60)
        return all(np.array_equal(plan(arrays[number], out=outs[number]), arrays[number]) for _ in range(5))

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(run, range(8)))
    finally:
        sys.setswitchinterval(before)


def copied(x: Any, y: Any, _counters: Any, _exclusive: int) -> None:
    y[...] = x


def test_launches_are_counted(bench: Bench) -> None:
    """Runs of plans count as uses of the answer, as calls do."""
    x = bench.array(3, 64)
    plan = bench.plan("sums", x)
    bench.apply("sums", x)
    plan()
    plan(x)
    ((_, runner),) = bench.application._calls.items()
    assert runner.loaded.tally.count == 3


# --- Calls of ``tuner.apply`` that were seen before: what is looked at again, and what is not.


def test_seen_calls_check_nothing_twice(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of forms that were seen go to the launch, whatever their addresses and sizes by name are."""

    def never(*_: object) -> None:
        raise AssertionError

    calls: list[tuple[dict[str, Any], bool]] = [
        ({}, False),
        ({}, True),
        ({"form": "exclusive"}, False),
        ({"configuration": {"P": 4, "L": 32}}, True),
    ]

    def run() -> None:
        for settings, given in calls:
            x, y = bench.array(3, 64), bench.array(3, 64)
            found = bench.apply("sums", x, out=y if given else None, **settings)
            assert np.array_equal(found, np.cumsum(x, axis=1) - (x if "form" in settings else 0))

    run()
    monkeypatch.setattr(type(bench.application), "_runner", never)
    monkeypatch.setattr("tuner.application.running.check_array", never)
    run()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda _b, x, y: (x.astype("complex64"), y), "x has dtype complex64; it must be"),
        (lambda _b, x, y: (x.astype("float64"), y), "out is float32 of shape (3, 64); it must be float64"),
        (
            lambda b, _x, y: (b.array(4, 64), y),
            "out is float32 of shape (3, 64); it must be float32 of",
        ),
        (lambda b, _x, y: (b.array(6, 64)[::2], y), "x is not contiguous (128 elements from one row"),
        (lambda b, _x, y: (b.array(64, 3).T, y), "x is not contiguous"),
        (lambda b, _x, y: (b.array(193)[1:].reshape(3, 64), y), "x begins 4 bytes past a multiple of 16"),
        (lambda b, x, _y: (x, b.array(193)[1:].reshape(3, 64)), "out begins 4 bytes past a multiple of 16"),
        (lambda _b, x, y: (np.asarray(x), y), "x is a numpy.ndarray; it must be an array on a GPU"),
        (lambda _b, x, y: (x, np.asarray(y)), "out is a numpy.ndarray; it must be an array on a GPU"),
        (lambda _b, x, _y: (x, x), "out overlaps x; it must be an array of its own"),
        (lambda _b, x, _y: (x, ()), "out has 0 arrays; it takes 1 (y)"),
        (lambda _b, _x, y: (None, y), "x is a builtins.NoneType; it must be an array on a GPU"),
    ],
)
def test_what_changes_is_seen(bench: Bench, change: Any, words: str) -> None:
    """After a call with usable arrays, others are refused with the words of a first call."""
    x, y = bench.array(3, 64), bench.array(3, 64)
    bench.apply("sums", x, out=y)
    ran = bench.cp.kernels["sums"].runs
    for _ in range(2):
        array, out = change(bench, x, y)
        with pytest.raises(InputError, match=re.escape(words)):
            bench.apply("sums", array, out=out)
    assert bench.cp.kernels["sums"].runs == ran


def test_other_gpu(bench: Bench) -> None:
    """Arrays of another GPU are another call: it runs there, with code of its own."""
    x = bench.array(3, 64)
    bench.apply("sums", x)
    with bench.cp.cuda.Device(1):
        far, out = bench.array(3, 64), bench.array(3, 64)
    assert bench.apply("sums", far).gpu == 1
    assert bench.apply("sums", far).gpu == 1
    assert bench.cp.gpu == 0
    for _ in range(2):
        with pytest.raises(InputError, match="out is on GPU 1; it must be on GPU 0"):
            bench.apply("sums", x, out=out)


def test_contiguous_arrays_of_other_strides_cached(bench: Bench) -> None:
    """One row may have any stride between rows: it is contiguous, and a call of its own."""
    memory = bench.array(4, 64)
    for row in (memory[:1], memory[::4], memory[:1]):
        assert np.array_equal(bench.apply("sums", row), np.cumsum(row, axis=1))
    assert len(bench.application._calls) == 1


def test_sizes_keep_their_kind(bench: Bench) -> None:
    """What equals a size without being one stays refused, and unknown sizes too."""
    x = bench.array(3, 60)
    bench.apply("sums", x, N=60)
    for wrong in (60.0, "61", True):
        with pytest.raises((UnknownNameError, InputError)):
            bench.apply("sums", x, N=wrong)
    with pytest.raises(InputError, match="sizes are whole numbers or names"):
        bench.apply("sums", x, N=[60])
    with pytest.raises(InputError, match="configuration is 'best'; it must map tunables to"):
        bench.apply("sums", x, configuration="best")


def test_default_by_name(bench: Bench) -> None:
    """The kernel file's default can be asked for, and looks nothing up."""
    x = bench.array(3, 64)
    assert bench.chosen("sums", x, configuration="default").origin == "default"
    assert np.array_equal(bench.apply("sums", x, configuration="default"), np.cumsum(x, axis=1))


def test_arrays_are_not_kept(bench: Bench) -> None:
    """A call keeps neither inputs nor outputs, and a later one does not touch memory that was freed."""
    held = bench.cp.allocated_bytes
    for _ in range(3):
        x = bench.array(3, 64)
        bench.apply("sums", x)
        del x
        gc.collect()
        assert bench.cp.allocated_bytes == held


def test_memory_of_the_stream(bench: Bench) -> None:
    """Outputs and scratch arrays are taken while the stream that is named is the current one."""
    x, empty = bench.array(3, 64), bench.cp.empty
    current: list[list[Any]] = []

    def watched(shape: Any, dtype: Any = np.float64) -> DeviceArray:
        current.append(list(bench.cp.current))
        return empty(shape, dtype)

    bench.cp.empty = watched  # type: ignore[method-assign]
    named = bench.cp.cuda.Stream(non_blocking=True)
    for stream in (named, None):
        for _ in range(2):
            bench.apply("sums", x, stream=stream)
    assert current == [[named]] * 4 + [[]] * 4
    with pytest.raises(InputError, match=re.escape("stream is a builtins.int")):
        bench.apply("sums", x, stream=7)


def test_refused_launches_of_a_cached_call(bench: Bench) -> None:
    """What the driver refuses is one of our errors each time, and the next launch works again."""
    x, kernel = bench.array(3, 64), bench.cp.kernels["sums"]
    bench.apply("sums", x)
    seconds, kernel.seconds = kernel.seconds, -1.0
    for _ in range(2):
        with pytest.raises(DeviceError, match="the GPU refuses the launch: CUDA_ERROR_LAUNCH") as caught:
            bench.apply("sums", x)
        assert isinstance(caught.value.__cause__, CUDADriverError)
    kernel.seconds = seconds
    assert np.array_equal(bench.apply("sums", x), np.cumsum(x, axis=1))


def test_no_room_for_an_output(bench: Bench) -> None:
    """A seen call for whose output there is no memory says so; it works when there is some again."""
    x, room = bench.array(3, 64), bench.cp.memory_bytes
    bench.apply("sums", x)
    bench.cp.memory_bytes = bench.cp.allocated_bytes + 100
    with pytest.raises(DeviceError, match="sums: output and scratch arrays do not fit"):
        bench.apply("sums", x)
    bench.cp.memory_bytes = room
    bench.apply("sums", x)


def test_forms_kept_are_bounded(bench: Bench) -> None:
    """Forms that never repeat do not fill the memory."""
    bench.application = Application(bench.catalog, bench.database, kept=4)
    for batch in range(1, 20):
        bench.apply("sums", bench.array(batch, 64))
    assert len(bench.application._seen) == 4


def test_threads_run_what_is_theirs(bench: Bench) -> None:
    """Threads with arrays of their own, each new to the GPU, never run on those of another."""
    taken = bench.cp.cuda.driver.launchKernel

    def slowly(*given: int) -> None:
        """As the driver, which lets other threads run before it reads the arguments."""
        for _ in range(50):
            os.sched_yield()
        taken(*given)

    bench.cp.cuda.driver.launchKernel = slowly
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    bench.apply("sums", bench.array(3, 64))
    arrays = [bench.array(3, 64) + np.float32(number) for number in range(8)]
    outs = [bench.array(3, 64) for _ in arrays]
    barrier = threading.Barrier(8)

    def run(number: int) -> bool:
        barrier.wait(timeout=60)
        for _ in range(5):
            outs[number][...] = 0
            bench.apply("sums", arrays[number], out=outs[number])
            if not np.array_equal(outs[number], np.cumsum(arrays[number], axis=1)):
                return False
        return True

    try:
        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(run, range(8)))
    finally:
        sys.setswitchinterval(before)
