"""A transformer block under torch.compile: kernels recorded, tuned by a sweep, measured against Inductor's.

``record``: a process compiles the block with its backward pass, and records every generated kernel.
``sweep``: ``tuner sweep`` tunes them. ``compile``: processes with cold caches, with Inductor's own
configurations and with the answers, in turn; seconds of the first step. ``step``: two of them in turn, steps
in a row between two events of the GPU; then, under PyTorch's profiler, ``kernels``. Ratios are answers by
Inductor's, with the 95 % interval of their mean over the turns (of logarithms, by t). Late parts get fewer
turns where time is short. Needs a CUDA GPU, and PyTorch 2.11 to 2.15 with its Triton.

    python benchmarks/inductor.py --out benchmarks/results/inductor-h200.json
"""

import argparse
import contextlib
import importlib
import math
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from provenance import command_line, provenance, save
from scipy.stats import t as student

DEFAULT, ANSWERS, RECORD = "default", "answers", "record"
OPTIONS = {
    "width": (2048, "of the model"),
    "heads": (16, "of the attention"),
    "batch": (4, "sequences"),
    "length": (1024, "of a sequence"),
    "budget": (16, "trials of a kernel"),
    "compiles": (2, "processes that compile, of each"),
    "turns": (20, "turns of steps"),
    "steps": (20, "steps of a turn"),
    "profiles": (8, "profiles"),
    "limit": (280, "seconds of all parts"),
}


def block(width: int, heads: int) -> Any:
    """A block with rotary positions, RMS norms and a gated MLP, and a loss of its result."""
    torch = importlib.import_module("torch")
    nn, functional = torch.nn, torch.nn.functional

    def turned(x: Any, at: Any) -> Any:
        even, odd = x.transpose(1, 2).float().chunk(2, -1)
        parts = even * at.cos() - odd * at.sin(), even * at.sin() + odd * at.cos()
        return torch.cat(parts, -1).to(x.dtype)

    class Block(nn.Module):  # type: ignore[misc]  # a class of the module that was imported
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = (nn.Parameter(torch.ones(width)) for _ in range(2))
            self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 6 * width, bias=False), nn.Linear(3 * width, width)
            self.last = nn.LayerNorm(width)

        def forward(self, x: Any) -> Any:
            batch, length, _ = x.shape
            each = width // heads
            place = torch.arange(length, device=x.device, dtype=torch.float32)[:, None]
            at = place * 10000 ** (-torch.arange(each // 2, device=x.device) * 2 / each)
            normed = functional.rms_norm(x, (width,), self.first)
            q, k, v = self.qkv(normed).view(batch, length, 3, heads, each).unbind(2)
            q, k, v = turned(q, at), turned(k, at), v.transpose(1, 2)
            seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
            x = x + self.out(seen.reshape(batch, length, width))
            gate, value = self.up(functional.rms_norm(x, (width,), self.second)).chunk(2, -1)
            return self.last(x + self.down(functional.silu(gate) * value)).float().square().mean()

    return Block()


class Model:
    """The compiled block with its inputs; a step is forward and backward."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.torch = torch = importlib.import_module("torch")
        torch.manual_seed(0)
        made = block(options.width, options.heads).to("cuda", torch.bfloat16)
        shape = options.batch, options.length, options.width
        self.x = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        self.weights = list(made.parameters())
        self.compiled = torch.compile(made)
        torch.mm(self.x[0], self.x[0].T)  # what cuBLAS needs once
        torch.cuda.synchronize()

    def step(self) -> float:
        """One step; the loss."""
        for one in self.weights:
            one.grad = None
        loss = self.compiled(self.x)
        loss.backward()
        return loss

    def timed(self, steps: int) -> float:
        """Milliseconds of a step, of some in a row."""
        first, last = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.step()
        first.record()
        for _ in range(steps):
            self.step()
        last.record()
        self.torch.cuda.synchronize()
        return first.elapsed_time(last) / steps

    def by_kernel(self, steps: int) -> dict[str, list[float]]:
        """Microseconds of the GPU and launches in a step, by the name of the kernel."""
        profiler = self.torch.profiler
        self.step()
        self.torch.cuda.synchronize()
        with profiler.profile(activities=[profiler.ProfilerActivity.CUDA]) as seen:
            for _ in range(steps):
                self.step()
            self.torch.cuda.synchronize()
        rows = [(one.key, one.self_device_time_total, one.count) for one in seen.key_averages()]
        return {name: [us / steps, count / steps] for name, us, count in rows if us > 0}


def child(mode: str, options: argparse.Namespace, folder: Path, pipe: Any) -> None:
    """Compile one model; then answer each question, the name of a method and a number of steps."""
    os.environ |= {"TORCHINDUCTOR_CACHE_DIR": str(folder), "TRITON_CACHE_DIR": str(folder / "triton")}
    installed: Any = None
    if mode != DEFAULT:
        told = f"record:{options.folder}" if mode == RECORD else "lookup"
        own = {"database": options.database, "budget": options.budget}
        installed = importlib.import_module("tuner.inductor").install(told, **own)
    model = Model(options)
    begin = time.perf_counter()
    loss = float(model.step())
    model.torch.cuda.synchronize()
    found = {"kernels": installed.kernels, "lookup_s": installed.lookup_s} if installed else {}
    took = {"compile_s": time.perf_counter() - begin, "loss": loss}
    pipe.send(took | {"torch": str(model.torch.__version__)} | found)
    while True:
        method, steps = pipe.recv()
        pipe.send(getattr(model, method)(steps))


class Child:
    """A process with a model, in caches of its own."""

    def __init__(self, mode: str, options: argparse.Namespace, folder: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=child, args=(mode, options, folder, theirs))
        self._process.start()
        theirs.close()
        self.start = self._read()

    def ask(self, method: str, steps: int) -> Any:
        """Return figures of some steps."""
        self._pipe.send((method, steps))
        return self._read()

    def _read(self) -> Any:
        try:
            if not self._pipe.poll(150):
                raise SystemExit("inductor.py: a process has said nothing for 150 s")
            return self._pipe.recv()
        except EOFError:
            self._process.join()
            raise SystemExit(f"inductor.py: a process ended by itself, {self._process.exitcode}") from None

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()


def ratio(above: Sequence[float], below: Sequence[float]) -> dict[str, float]:
    """The mean ratio of two series that took turns, with its 95 % interval."""
    logarithms = [math.log(a / b) for a, b in zip(above, below, strict=True) if a > 0 and b > 0]
    mean, half = statistics.fmean(logarithms or [math.nan]), math.inf
    if len(logarithms) > 1:
        deviation = statistics.stdev(logarithms) / math.sqrt(len(logarithms))
        half = float(student.ppf(0.975, len(logarithms) - 1)) * deviation
    return {"ratio": math.exp(mean), "low": math.exp(mean - half), "high": math.exp(mean + half)}


def sweep(options: argparse.Namespace, left_s: float) -> dict[str, Any]:
    """Tune what was recorded, in the time that is left for it."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "tuner", "sweep", str(options.folder / "sweep.toml"), "--on", "local"]
    process = subprocess.Popen([*command, "--database", str(options.database)], stdout=sys.stderr)
    for wait_s, end in ((left_s, signal.SIGINT), (30, signal.SIGKILL), (5, signal.SIGKILL)):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(wait_s)
            break
        process.send_signal(end)
    return {"seconds": time.perf_counter() - begin, "exit_code": process.poll()}


def measured(options: argparse.Namespace, folder: Path, document: dict[str, Any]) -> None:
    """Fill a document with all parts."""
    end = time.perf_counter() + options.limit

    def left_s() -> float:
        return end - time.perf_counter()

    recording = Child(RECORD, options, folder / "caches-record")
    recording.close()
    document["record"] = recording.start
    one_s = options.limit - left_s()
    document["sweep"] = sweep(options, max(20.0, left_s() - 2.5 * one_s - 45))
    starts: dict[str, list[dict[str, Any]]] = {DEFAULT: [], ANSWERS: []}
    times: dict[str, list[float]] = {DEFAULT: [], ANSWERS: []}
    seen: dict[str, list[dict[str, list[float]]]] = {DEFAULT: [], ANSWERS: []}
    document |= {"compile": starts, "step_ms": times, "seen": seen}
    with contextlib.ExitStack() as stack:
        children: dict[str, Child] = {}
        for turn in range(options.compiles):
            if turn and left_s() < 2 * one_s + 40:
                break
            for mode in turns(turn):
                if mode in children:
                    children.pop(mode).close()
                children[mode] = Child(mode, options, folder / f"caches-{mode}-{turn}")
                stack.callback(children[mode].close)
                starts[mode].append(children[mode].start)
        for turn in range(options.turns):
            for mode in turns(turn) if turn < 3 or left_s() > 15 else ():
                times[mode].append(children[mode].ask("timed", options.steps))
        for turn in range(options.profiles):
            for mode in turns(turn) if turn < 3 or left_s() > 5 else ():
                seen[mode].append(children[mode].ask("by_kernel", 5))
    document["step"] = ratio(times[ANSWERS], times[DEFAULT])
    document["kernels"] = _by_kernel(document.pop("seen"))


def turns(turn: int) -> tuple[str, str]:
    """Both, in changing order."""
    return (DEFAULT, ANSWERS) if turn % 2 == 0 else (ANSWERS, DEFAULT)


def _by_kernel(seen: dict[str, list[dict[str, list[float]]]]) -> list[dict[str, Any]]:
    rows = []
    for name in seen[DEFAULT][0]:
        us = {mode: [one.get(name, [0.0, 0.0])[0] for one in turns] for mode, turns in seen.items()}
        row = {"kernel": name, "launches": seen[DEFAULT][0][name][1], "generated": name.startswith("triton_")}
        row |= {f"{mode}_us": statistics.median(values) for mode, values in us.items()}
        rows.append(row | ratio(us[ANSWERS], us[DEFAULT]))
    return sorted(rows, key=lambda row: -row[f"{DEFAULT}_us"])


def table(document: dict[str, Any]) -> str:
    """Figures for people."""
    own, found = document["compile"], document["compile"][ANSWERS][-1]
    lines = ["| kernel | launches a step | Inductor's | answers | ratio, 95 % interval |", f"|{' --- |' * 5}"]
    for row in [*document["kernels"], {"kernel": "step", "launches": 1} | document["step"]]:
        took = [row.get(f"{mode}_us") or 1e3 * statistics.median(document["step_ms"][mode]) for mode in own]
        within = f"{row['ratio']:.4f} ({row['low']:.4f} to {row['high']:.4f})"
        told = f"{row['kernel'][:60]} | {row['launches']:.0f} | {took[0]:.1f} µs | {took[1]:.1f} µs"
        lines += [f"| {told} | {within} |"]
    states = list(found["kernels"].values())
    told = ", ".join(f"{states.count(one)} {one}" for one in sorted(set(states)))
    lines += [
        "",
        f"{len(states)} kernels looked up in {1e3 * found['lookup_s']:.1f} ms, at no launch: {told}",
    ]
    for mode in own:
        compiled_s = statistics.median(one["compile_s"] for one in own[mode])
        lines += [f"{mode}: compiled cold in {compiled_s:.1f} s, loss {own[mode][-1]['loss']:.5f}"]
    return "\n".join(lines)


def main() -> int:
    """Measure, print, and store."""
    parser = command_line(__doc__)
    for name, (value, about) in OPTIONS.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"{about}; {value} unless stated")
    options = parser.parse_args()
    try:
        problem = "" if importlib.import_module("torch").cuda.is_available() else "PyTorch sees none"
    except ImportError as error:
        problem = str(error)
    if problem:
        print(f"This benchmark needs a CUDA GPU, and PyTorch with torch.compile: {problem}", file=sys.stderr)
        return 2
    document = {"provenance": provenance(), "options": {name: getattr(options, name) for name in OPTIONS}}
    try:
        with tempfile.TemporaryDirectory(prefix="inductor-", ignore_cleanup_errors=True) as name:
            options.folder, options.database = Path(name) / "records", Path(name) / "answers.db"
            measured(options, Path(name), document)
    finally:
        save(options.out, document)  # what there is
    print(table(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
