"""Calls of ``tuner.apply`` that were seen before: what is looked at again, and what is not."""

import gc
import os
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from fake_apply import Bench
from fake_cupy import CUDADriverError, DeviceArray

from tuner.application.calls import Application
from tuner.model.errors import DeviceError, InputError, UnknownNameError


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


def test_contiguous_arrays_of_other_strides(bench: Bench) -> None:
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


def test_refused_launches(bench: Bench) -> None:
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
