"""What entering and leaving a region of ``tuner.energy`` takes of the calling thread, and joules by a log.

Many regions are entered and left, one after the other and after a pause, when the recording has ended and
begins anew; beside them stand waits for the GPU and nothing else. A region is asked for its energy once a
second, as a program would. The thread of the recording runs meanwhile, and its interruptions count.

Then CuPy's matrix products are the load: regions of 0.1 to 3 s and a training by Hugging Face's ``Trainer``
(torch and transformers) against an own log of NVML's counter, and the load until it is flat. The GPU is idle
otherwise.

    python benchmarks/energy_regions.py --device cuda:0 --out benchmarks/results/energy-regions-h200.json
"""

import math
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from provenance import command_line, provenance, save

import tuner
from tuner.devices.choice import identify
from tuner.joules import EnergyMeter, Region, TrainingCallback
from tuner.model.errors import TunerError

PAUSE_S = 1.0  # after which a recording has ended


class Times:
    """How long regions took to enter and to leave, in seconds."""

    def __init__(self) -> None:
        self.entering_s: list[float] = []
        self.leaving_s: list[float] = []

    def enter(self, meter: AbstractContextManager[Any]) -> None:
        """Enter a region."""
        begin_s = time.perf_counter()
        meter.__enter__()
        self.entering_s.append(time.perf_counter() - begin_s)

    def leave(self, meter: AbstractContextManager[Any]) -> None:
        """Leave it."""
        begin_s = time.perf_counter()
        meter.__exit__(None, None, None)
        self.leaving_s.append(time.perf_counter() - begin_s)

    def row(self) -> dict[str, float]:
        """Median, 99 % and maximum in microseconds."""
        found: dict[str, float] = {"regions": len(self.entering_s)}
        for what, seconds in (("entering", self.entering_s), ("leaving", self.leaving_s)):
            microseconds = 1e6 * np.array(seconds)
            found |= {
                f"{what}_median_us": float(np.median(microseconds)),
                f"{what}_99_us": float(np.percentile(microseconds, 99)),
                f"{what}_most_us": float(microseconds.max()),
            }
        return found


def one_by_one(meter: "EnergyMeter | BareWait", times: Times, count: int) -> None:
    """Regions one after the other, with a short pause, and one result a second."""
    asked_s = time.monotonic()
    for _ in range(count):
        times.enter(meter)
        times.leave(meter)
        time.sleep(0.0005)
        if time.monotonic() - asked_s > 1.0:
            with meter as region:
                time.sleep(0.001)
            region.result()
            asked_s = time.monotonic()


def after_pauses(meter: "EnergyMeter | BareWait", times: Times, count: int) -> None:
    """Regions that begin when the recording has ended, and the processor's caches hold other things."""
    for _ in range(max(5, count // 500)):
        time.sleep(PAUSE_S)
        times.enter(meter)
        times.leave(meter)


class BareWait:
    """Waits for the GPU at both ends, and nothing else: what a region cannot cost less than."""

    def __init__(self) -> None:
        import cupy  # noqa: PLC0415 - only where there is a GPU

        self._wait = cupy.cuda.runtime.deviceSynchronize

    def __enter__(self) -> Any:
        self._wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._wait()

    def result(self) -> None:
        """Have no energy."""


def print_row(rows: list[dict[str, Any]], device: str, pattern: str, times: Times) -> None:
    """Keep a row, and print it."""
    row = {"device": device, "pattern": pattern, **times.row()}
    rows.append(row)
    figures = [
        f"{row[f'{what}_{which}_us']:.1f} µs"
        for what in ("entering", "leaving")
        for which in ("median", "99")
    ]
    print(f"| {device} | {pattern} | {' | '.join(figures)} |", flush=True)


# --- joules against an own log of the counter.

LENGTHS_S, EACH = (0.1, 0.3, 1.0, 3.0), 10
STEPS, STEP_S, TOKENS = 200, 0.05, 512
POLL_S = 0.002
CALM_S = 0.5  # some ticks of the counter before and after a load


class CounterLog:
    """Ticks of NVML's energy counter: seconds and joules, each when its value was new.

    Args:
        uuid: of the GPU.
    """

    def __init__(self, uuid: str) -> None:
        import pynvml  # noqa: PLC0415 - only where there is a GPU

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        self._read: Callable[[], int] = lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        self._ticks: list[tuple[float, float]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        last = self._read()
        while not self._ended.wait(POLL_S):
            if (value := self._read()) != last:
                self._ticks.append((time.monotonic(), value / 1e3))
            last = value

    def joules(self, start_s: float, end_s: float) -> tuple[float, float]:
        """Between two times with an idle GPU around: of whole ticks, less idle energy; half its interval."""
        before = [tick for tick in self._ticks if start_s - CALM_S < tick[0] < start_s]
        (first_s, first_j), (begin_s, begin_j) = before[0], before[-1]
        last_s, last_j = next(tick for tick in self._ticks if tick[0] > end_s + 0.15)  # it is late by a tick
        idle_w = (begin_j - first_j) / (begin_s - first_s)
        return last_j - begin_j - idle_w * ((start_s - begin_s) + (last_s - end_s)), 2.0 * POLL_S * idle_w

    def close(self) -> None:
        """End the log."""
        self._ended.set()
        self._thread.join()


def matrix_products() -> Callable[[float], None]:
    """A load of so many seconds, which returns when it is enqueued."""
    import cupy  # noqa: PLC0415 - only where there is a GPU

    x = cupy.ones((4096, 4096), dtype=cupy.float32)
    y = x @ x
    cupy.cuda.Device().synchronize()
    begin_s = time.perf_counter()
    for _ in range(50):
        cupy.matmul(x, x, out=y)
    cupy.cuda.Device().synchronize()
    each_s = (time.perf_counter() - begin_s) / 50

    def load(seconds: float) -> None:
        for _ in range(max(1, round(seconds / each_s))):
            cupy.matmul(x, x, out=y)

    return load


def trained(callback: TrainingCallback) -> None:
    """Train a small model of random text with Hugging Face's ``Trainer``."""
    import torch  # noqa: PLC0415 - only where there is a GPU
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments  # noqa: PLC0415

    torch.manual_seed(1)
    model = GPT2LMHeadModel(GPT2Config(n_layer=6, vocab_size=8192, n_positions=TOKENS))
    texts = torch.randint(8192, (64, TOKENS))
    rows = [{"input_ids": text, "labels": text} for text in texts]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=16, max_steps=STEPS, report_to=[], save_strategy="no"
        )
        trainer = Trainer(model, arguments, train_dataset=rows, callbacks=[callback])
        trainer.train()


def compared(device: str) -> dict[str, Any]:
    """Regions and a training against the log, and the load until it is flat."""
    load, meter, log = matrix_products(), tuner.energy(device=device), CounterLog(identify(device).uuid)
    rows = []
    for wanted_s in sorted(LENGTHS_S * EACH):
        time.sleep(2.0 * CALM_S)
        begin_s = time.monotonic()
        with meter as region:
            load(wanted_s)
        end_s = time.monotonic()
        time.sleep(2.0 * CALM_S)
        rows.append(against(f"{wanted_s:g} s", region, log.joules(begin_s, end_s)))
    callback = TrainingCallback(meter)
    trained(callback)
    time.sleep(2.0 * CALM_S)
    if callback.train is not None:
        begin_s = time.monotonic() - (time.time() - callback.train.result().unix_s)
        logged = log.joules(begin_s, begin_s + callback.train.seconds)
        rows.append(against(f"training of {callback.train.count} steps", callback.train, logged))
    log.close()
    within = sum(row["within"] for row in rows)
    print(f"{within} of {len(rows)} within their interval", flush=True)
    flat = meter.steady(lambda: load(STEP_S))
    print(flat, flush=True)
    steps = [{"count": region.count, "each_j": region.result().each_j} for region in callback.steps]
    return {"against_log": rows, "steps": steps, "flat": str(flat)}


def against(name: str, region: Region, logged: tuple[float, float]) -> dict[str, Any]:
    """A region beside the log's joules."""
    half_j, (log_j, log_half_j) = 1.96 * region.uncertainty_j, logged
    print(f"{name}: {region.joules:.1f} ± {half_j:.1f} J, log {log_j:.1f} J {region.notes}", flush=True)
    within = abs(region.joules - log_j) <= math.hypot(half_j, log_half_j)
    return {"region": name, "joules": region.joules, "half_j": half_j, "log_j": log_j, "within": within}


def main() -> None:
    """Measure, print the table, write what was seen."""
    parser = command_line(__doc__)
    parser.add_argument("--regions", type=int, default=1000, help="of each pattern")
    parser.add_argument("--device", default="cuda:0", help="an idle GPU")
    options = parser.parse_args()
    try:
        meter = tuner.energy(device=options.device)
    except TunerError as error:
        parser.error(f"--device {error}")
    rows: list[dict[str, Any]] = []
    print("| device | regions | entering, median | 99 % | leaving, median | 99 % |")
    print("| --- | --- | --- | --- | --- | --- |")
    for device, pattern, play, entered in (
        ("deviceSynchronize", "one by one", one_by_one, BareWait()),
        (options.device, "one by one", one_by_one, meter),
        (options.device, "after a pause", after_pauses, meter),
    ):
        times = Times()
        play(entered, times, options.regions)
        print_row(rows, device, pattern, times)
    save(options.out, {"provenance": provenance(), "rows": rows, **compared(options.device)})


if __name__ == "__main__":
    main()
