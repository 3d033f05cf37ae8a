"""Forms on this GPU: arrays, graphs of their launches, answers, and times by turns."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
from cold_timing import Timer, median, outside_interval, spread
from rodinia_forms import Array, Form

from tuner.devices.cuda.code import CodeCache, StageCompiler
from tuner.devices.cuda.launches import Clearing, Launch, Step
from tuner.model.elements import element_dtype
from tuner.model.errors import DeviceError
from tuner.model.jobs import DeviceLimits
from tuner.model.plan import Buffer
from tuner.problems.base import Deviation

READ = ("in", "inout")
TRIED = 3  # runs of each form before the rounds
FINALISTS = 3  # forms of Rodinia that go into the rounds


@dataclass
class Result:
    """What became of a form.

    Attributes:
        form: as asked for.
        deviation: of its answer from the right one; None where it did not run.
        trouble: why it did not run, or empty.
        tried_ms: median of a few runs.
        times_ms: of the rounds.
    """

    form: Form
    deviation: Deviation | None = None
    trouble: str = ""
    tried_ms: float = inf
    times_ms: list[float] = field(default_factory=list)
    run: Callable[[], None] = lambda: None
    prepare: Callable[[], None] = lambda: None

    @property
    def right(self) -> bool:
        """It ran, and its answer is within what is allowed."""
        return self.deviation is not None and bool(self.deviation.ok)

    def half_ms(self, second: bool) -> list[float]:
        """The times that choose, or those that are reported."""
        middle = len(self.times_ms) // 2
        return self.times_ms[middle:] if second else self.times_ms[:middle]

    def row(self) -> dict[str, Any]:
        """For JSON."""
        row: dict[str, Any] = {"name": self.form.name}
        if self.form.plan.configuration:
            row["configuration"] = dict(self.form.plan.configuration)
        if self.deviation is not None:
            what = {"what": self.deviation.what, "error": self.deviation.error}
            row |= {**what, "allowed": self.deviation.allowed, "right": self.right}
        if self.trouble:
            return {**row, "trouble": self.trouble}
        row["tried_ms"] = self.tried_ms
        if self.times_ms:
            reported = self.half_ms(second=True)
            row |= {"ms": median(reported), "spread_ms": spread(reported), "rounds_ms": self.times_ms}
        return row


class Arena:
    """Runs forms of one contest; arrays of the same name, shape and contents are the same.

    Args:
        cp: CuPy.
        limits: of the GPU.
    """

    def __init__(self, cp: Any, limits: DeviceLimits) -> None:
        self._cp = cp
        self._limits = limits
        self._timer = Timer(cp)
        self._arrays: dict[tuple[object, ...], Any] = {}
        self._code: list[CodeCache] = []  # graphs need the functions, but do not keep them

    def tried(self, forms: Sequence[Form], compiler: StageCompiler) -> list[Result]:
        """Each form, checked once and timed a few times; those that fail say why."""
        code = CodeCache(self._cp, compiler, self._limits)
        self._code.append(code)
        return [self._tried(form, code) for form in forms]

    def _tried(self, form: Form, code: CodeCache) -> Result:
        result = Result(form)
        driver, runtime = self._cp.cuda.driver, self._cp.cuda.runtime
        try:
            arrays = {buffer.name: self._array(form, buffer, "") for buffer in form.plan.buffers}
            steps = code.launches(form.plan, arrays)
            timed = [step for step in steps if not form.timed or self._stage(form, step) in form.timed]
            result.prepare = self._preparation(form, arrays)
            self._poison(form, arrays)
            result.prepare()
            self._enqueued(form, steps, arrays, self._cp.cuda.get_current_stream())
            self._cp.cuda.runtime.deviceSynchronize()
            result.deviation = form.judge(
                {b.name: arrays[b.name].get() for b in form.plan.buffers if b.role not in {"in", "scratch"}}
            )
            result.run = self._graph(form, timed, arrays)
            result.tried_ms = median([self._timer.once(result.run, result.prepare) for _ in range(TRIED)])
        except (DeviceError, driver.CUDADriverError, runtime.CUDARuntimeError) as error:
            result.trouble = str(error)
        return result

    def rounds(self, results: Sequence[Result], count: int) -> None:
        """Times of all, by turns, cold; the order is drawn anew in every round."""
        names = [str(place) for place in range(len(results))]
        by_name = dict(zip(names, results, strict=True))
        times = self._timer.interleaved(
            {name: result.run for name, result in by_name.items()},
            count,
            {name: result.prepare for name, result in by_name.items()},
        )
        for name, result in by_name.items():
            result.times_ms = times[name]

    def _stage(self, form: Form, step: Step) -> str:
        return form.plan.stages[step.place].name if isinstance(step, Launch) else ""

    def _enqueued(self, form: Form, steps: Sequence[Step], arrays: Mapping[str, Any], stream: Any) -> None:
        for step in steps:
            for name in form.cleared:
                Clearing(arrays[name]).enqueue(stream)
            step.enqueue(stream)

    def _graph(self, form: Form, steps: Sequence[Step], arrays: Mapping[str, Any]) -> Callable[[], None]:
        """What launches all steps as one graph on the current stream."""
        stream = self._cp.cuda.Stream(non_blocking=True)
        stream.begin_capture()
        try:
            self._enqueued(form, steps, arrays, stream)
        except Exception:
            with suppress(self._cp.cuda.runtime.CUDARuntimeError):
                stream.end_capture()  # what cannot be captured spoils the capture, and no more
            raise
        graph = stream.end_capture()
        current = self._cp.cuda.get_current_stream
        graph.upload(current())
        return lambda: graph.launch(current())

    def _array(self, form: Form, buffer: Buffer, kind: str) -> Any:
        """The array of a buffer, filled with its input."""
        given = form.inputs[buffer.name] if buffer.role in READ else None
        key = (buffer.name, buffer.shape, buffer.dtype, id(given), kind)
        if key not in self._arrays:
            array = self._cp.empty(buffer.shape, element_dtype(buffer.dtype))
            if given is not None:
                self._cp.copyto(array, self._cp.asarray(np.ascontiguousarray(_fitting(given, buffer))))
            self._arrays[key] = array
        return self._arrays[key]

    def _preparation(self, form: Form, arrays: Mapping[str, Any]) -> Callable[[], None]:
        """Restores what a run changes; not timed."""
        changed = [buffer for buffer in form.plan.buffers if buffer.role == "inout"]
        pairs = [(arrays[buffer.name], self._array(form, buffer, "original")) for buffer in changed]

        def restore() -> None:
            for array, original in pairs:
                self._cp.copyto(array, original)

        return restore

    def _poison(self, form: Form, arrays: Mapping[str, Any]) -> None:
        for buffer in form.plan.buffers:
            if buffer.role not in READ:
                arrays[buffer.name].data.memset_async(0xFF, arrays[buffer.name].nbytes)


def _fitting(given: Array, buffer: Buffer) -> Array:
    """An input as its buffer has it.

    Raises:
        ValueError: it is of another type or size.
    """
    if given.dtype != element_dtype(buffer.dtype) or given.size != buffer.elements:
        raise ValueError(f"{buffer.name}: {given.dtype} {given.shape} for {buffer.dtype} {buffer.shape}")
    return given.reshape(buffer.shape)


def finalists(results: Sequence[Result]) -> list[Result]:
    """The fastest right ones."""
    return sorted((one for one in results if one.right), key=lambda one: one.tried_ms)[:FINALISTS]


def fastest(results: Sequence[Result]) -> Result:
    """By the first half of the rounds, of which nothing else is reported."""
    return min(results, key=lambda one: median(one.half_ms(second=False)))


def ratio(slow: Result, fast: Result) -> tuple[float, float, float]:
    """Median of the ratios of the rounds that are reported, and its 95 % interval."""
    pairs = zip(slow.half_ms(second=True), fast.half_ms(second=True), strict=True)
    ratios = sorted(one / other for one, other in pairs)
    edge = outside_interval(len(ratios))
    return median(ratios), ratios[edge], ratios[-1 - edge]
