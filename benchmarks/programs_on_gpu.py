"""``tuner program run`` on programs of PyTorch, tunables alone, against a log of the energy counter.

Two programs: ``train`` (a transformer encoder) and ``decode`` (a token at a time, with a cache of keys and
values). Each is tuned for joules over its batch by whole runs; clocks and limits stay as found. Beside it,
another process logs NVML's energy counter. Stated are, per batch, the joules of a sample or token that the
tuner says, and those of the log between the begin and the end of the same runs; and whether the batch that
was chosen takes the least by the log, within the stated intervals. Needs a CUDA GPU and PyTorch; some two
minutes each.

    python benchmarks/programs_on_gpu.py --out benchmarks/results/programs-h200.json
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from provenance import command_line, provenance, save

PROGRAMS = {"train": ("samples", (64, 16, 256)), "decode": ("tokens", (8, 1, 64, 16))}
TURNS = 4  # runs that hold the answer against the default
SAMPLES, STEPS = 16384, 200
LOGGED = """
import json, subprocess, sys, time
begin_s, (file, batch, *command) = time.monotonic(), sys.argv[1:]
code = subprocess.run(command).returncode
with open(file, "a") as log:
    log.write(json.dumps({"batch": int(batch), "begin_s": begin_s, "end_s": time.monotonic()}) + "\\n")
sys.exit(code)
"""  # runs a command, and logs when it began and ended


def train(torch: Any, batch: int) -> int:
    """Train on random sequences; returns how many."""
    layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, device="cuda", dropout=0.0)
    model = torch.nn.TransformerEncoder(layer, 4).to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    x = torch.randn(batch, 256, 1024, device="cuda", dtype=torch.bfloat16)
    for _ in range(SAMPLES // batch):
        optimizer.zero_grad(set_to_none=True)
        (model(x) - x).float().square().mean().backward()
        optimizer.step()
    return SAMPLES


def decode(torch: Any, batch: int) -> int:
    """Decode tokens one at a time, as a language model does; returns how many."""
    width, layers, heads, length = 4096, 12, 32, 2048
    half = {"device": "cuda", "dtype": torch.bfloat16}
    weights = [
        [torch.randn(width, n, **half) / 64 for n in (3 * width, width, 4 * width)] for _ in range(layers)
    ]
    down = [torch.randn(4 * width, width, **half) / 128 for _ in range(layers)]
    cache = torch.randn(2, layers, batch, heads, length, width // heads, **half)
    x = torch.randn(batch, width, **half)
    with torch.no_grad():
        for step in range(STEPS):
            seen = length // 2 + step % (length // 2)
            for k, (qkv, out, up) in enumerate(weights):
                q, key, value = (x @ qkv).view(batch, 3, heads, 1, -1).unbind(1)
                cache[0, k, :, :, seen : seen + 1], cache[1, k, :, :, seen : seen + 1] = key, value
                look = torch.nn.functional.scaled_dot_product_attention(
                    q, cache[0, k, :, :, : seen + 1], cache[1, k, :, :, : seen + 1]
                )
                x = torch.nn.functional.layer_norm(x + look.reshape(batch, width) @ out, (width,))
                x = torch.nn.functional.layer_norm(x + torch.relu(x @ up) @ down[k], (width,))
    return STEPS * batch


def run_program(name: str, batch: int) -> None:
    """Do a program's work, and print how much it was."""
    import torch  # noqa: PLC0415 - of the programs alone

    unit, _ = PROGRAMS[name]
    amount = {"train": train, "decode": decode}[name](torch, batch)
    torch.cuda.synchronize()
    print(f"{unit}={amount}")


def joules_between(ticks: Sequence[Any], begin_s: float, end_s: float) -> float:
    """Joules by the counter, which is linear between its ticks."""
    times, values = [tick.time_s for tick in ticks], [tick.joules for tick in ticks]
    return float(np.interp(end_s, times, values) - np.interp(begin_s, times, values))


def measure(name: str, folder: Path, uuid: str, seconds: float) -> dict[str, Any]:
    """Tune a program, and hold its joules against the log."""
    from referee import counter_log  # noqa: PLC0415 - heavy, and a program runs this file too

    unit, batches = PROGRAMS[name]
    log, document = folder / f"{name}.log", folder / f"{name}.json"
    command = [
        *(sys.executable, "-c", 'from tuner.cli.main import main; main(prog_name="tuner")', "program", "run"),
        *("--device", uuid, "--tunable", f"batch={','.join(map(str, batches))}", "--policy", "exhaustive"),
        *("--metric", f"{unit}=([0-9]+)", "--per", unit, "--budget", str(len(batches) + TURNS)),
        *("--time-limit", str(seconds)),
        *("--database", str(folder / "tuner.db"), "--json", str(document), "--"),
        *(
            sys.executable,
            "-c",
            LOGGED,
            str(log),
            "{batch}",
            sys.executable,
            __file__,
            "--work",
            name,
            "{batch}",
        ),
    ]
    with counter_log(uuid) as end:
        time.sleep(0.5)  # ticks before the first run
        code = subprocess.run(command, check=False).returncode
        time.sleep(0.5)
        ticks = end()
    if not document.exists():
        return {"program": name, "trouble": f"tuner program run: exit code {code}"}
    found = json.loads(document.read_text())
    runs = [json.loads(line) for line in log.read_text().splitlines()][1:]  # the first is not counted
    rows = []
    for trial in found["trials"]:
        batch = next(iter(trial["configurations"].values()))["batch"]
        amount = {"train": SAMPLES, "decode": STEPS * batch}[name]
        own = [
            joules_between(ticks, run["begin_s"], run["end_s"]) / amount
            for run in runs
            if run["batch"] == batch
        ]
        half = 1.96 * trial["energy_j_uncertainty"]
        rows.append(
            {
                "batch": batch,
                "stated_j": trial["energy_j"],
                "stated_half_j": half,
                "log_j": float(np.mean(own)),
                "runs": len(own),
                "within": abs(trial["energy_j"] - float(np.mean(own))) <= half,
            }
        )
    best = next(iter(found["best"]["configurations"].values()))["batch"]
    least = min(rows, key=lambda row: row["log_j"])
    chosen = next(row for row in rows if row["batch"] == best)
    found_best = chosen["log_j"] - least["log_j"] <= chosen["stated_half_j"] + least["stated_half_j"]
    for row in rows:
        stated = f"{row['stated_j']:.4g} ± {row['stated_half_j']:.2g} J"
        print(f"{name} batch {row['batch']}: {stated}/{unit}, log {row['log_j']:.4g} J", flush=True)
    return {"program": name, "unit": unit, "chosen": best, "best_found": found_best, "rows": rows}


def main() -> None:
    """Tune both, print, write."""
    parser = command_line(__doc__)
    parser.add_argument("--only", nargs="*", choices=[*PROGRAMS], default=[*PROGRAMS])
    parser.add_argument("--seconds", type=float, default=120.0, help="of a program's search (%(default)s)")
    parser.add_argument("--work", nargs=2, metavar=("PROGRAM", "BATCH"), help="what the programs run")
    options = parser.parse_args()
    if options.work:
        run_program(options.work[0], int(options.work[1]))
        return
    import pynvml  # noqa: PLC0415 - not on a machine without a GPU

    pynvml.nvmlInit()
    place = int(os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0])
    uuid = str(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(place)))
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="programs-") as folder:
        for name in options.only:
            results.append(measure(name, Path(folder), uuid, options.seconds))
            within = [row["within"] for one in results for row in one.get("rows", ())]
            print(f"{sum(within)} of {len(within)} within their interval", flush=True)
            save(options.out, {"programs": results, "provenance": provenance()})


if __name__ == "__main__":
    main()
