"""``tune_kernel`` and ``run_kernel`` from call to results, on a simulated device and a fake of a worker."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tuner import kernel_tuner
from tuner.devices.base import Check
from tuner.devices.choice import OpenedDevice
from tuner.devices.worker import WorkerDevice
from tuner.kernel_tuner import run_kernel, tune_kernel, tuning_call
from tuner.kernel_tuner.file_utils import store_metadata_file, store_output_file
from tuner.kernel_tuner.translation import kernel_file_of, read_call
from tuner.kernel_tuner.trial_results import judge_of, read_cache
from tuner.kernel_tuner.util import get_best_config, get_config_string
from tuner.model.errors import (
    DeviceError,
    EmptySpaceError,
    InputError,
    VerificationError,
)
from tuner.model.plan import Configuration, Plan
from tuner.model.trial import Status
from tuner.search import setup

N = 4096
SOURCE = """
__global__ void scale(float *y, const float *x, int n) {
    extern __shared__ float part[];
    int i = blockIdx.x * block_size_x + threadIdx.x;
    if (i < n) { y[i] = factor * x[i]; }
}
"""
ARGUMENTS = [np.zeros(N, np.float32), np.ones(N, np.float32), np.int32(N)]
GIVEN: dict[str, Any] = {
    "kernel_name": "scale",
    "kernel_source": SOURCE,
    "problem_size": N,
    "arguments": ARGUMENTS,
    "tune_params": {"block_size_x": [64, 128, 2048], "factor": [1, 2]},
    "device": "sim:h200",
    "quiet": True,
}


@pytest.fixture(autouse=True)
def _own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def values(results: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(one["block_size_x"], one["factor"]) for one in results]


def test_results_are_those_of_kernel_tuner(capsys: pytest.CaptureFixture[str]) -> None:
    """A dict per configuration in the order of the space; the best in the environment; one line each."""
    metrics = {"GB/s": lambda p: 8 * N / 1e6 / p["time"], "half": "time / 2"}
    given = GIVEN | {"quiet": False, "verbose": True, "metrics": metrics, "objective": "GB/s"}
    results, env = tune_kernel(**given)
    assert values(results) == [(64, 1), (64, 2), (128, 1), (128, 2)]
    for one in results:
        assert one["times"] == [one["time"]]
        assert one["half"] == one["time"] / 2
        assert {"compile_time", "verification_time", "benchmark_time", "timestamp"} <= set(one)
    assert env["best_config"] == max(results, key=lambda one: one["GB/s"])
    assert (env["device"], env["modelled"]) == ("sim:h200", True)
    json.dumps([results, env])
    printed = capsys.readouterr().out
    assert "Searchspace has 4 configurations after restrictions." in printed
    assert "block_size_x=64, factor=1, time=0." in printed
    assert "BEST PERFORMING CONFIGURATION FOR OBJECTIVE GB/s:" in printed


def test_the_example_of_the_page_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As it stands, but for the device and the size."""
    page = (Path(__file__).parents[1] / "docs" / "kernel-tuner.md").read_text()
    (code,) = (part.split("```")[0] for part in page.split("```python\n") if "answer=[a + b" in part)
    code = code.replace("n = 1_000_000", "n = 1_000").replace("answer=", 'device="sim:h200", answer=')
    (tmp_path / "example.py").write_text(code)
    runpy.run_path(str(tmp_path / "example.py"))
    assert capsys.readouterr().out.splitlines()[-1] in ("64", "128", "256", "512")


def test_a_cache_file_is_gone_on_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What it has is not measured again, also where a killed run has left it open."""
    cache = tmp_path / "cache"
    first, _ = tune_kernel(**GIVEN, restrictions=["block_size_x == 64"], cache=cache)
    path = cache.with_suffix(".json")
    path.write_text(path.read_text().removesuffix("}\n}") + ",")
    results, env = tune_kernel(**GIVEN | {"quiet": False}, cache=str(cache))
    assert values(results) == [(64, 1), (64, 2), (128, 1), (128, 2)]
    assert results[:2] == first
    assert "block_size_x=64, factor=1, time" not in capsys.readouterr().out.split("BEST")[0]
    stored = read_cache(path)
    assert list(stored["cache"]) == ["64,1", "64,2", "128,1", "128,2"]
    assert stored["tune_params_keys"] == ["block_size_x", "factor"]
    again, env = tune_kernel(**GIVEN, cache=path)
    assert (again, env["best_config"]) == (results, get_best_config(results, "time"))
    with pytest.raises(InputError, match=r"cache: .* of another kernel_name"):
        tune_kernel(**GIVEN | {"kernel_name": "other"}, cache=path)


def test_an_interrupted_call_keeps_what_it_has(tmp_path: Path) -> None:
    """Ctrl-C goes through; the cache file has what was measured."""
    seen: list[float] = []

    def interrupt(result: dict[str, Any]) -> float:
        seen.append(result["time"])
        if len(seen) == 2:
            raise KeyboardInterrupt
        return 1.0

    with pytest.raises(KeyboardInterrupt):
        tune_kernel(**GIVEN, metrics={"m": interrupt}, cache=tmp_path / "cache")
    assert 1 <= len(read_cache(tmp_path / "cache.json")["cache"]) <= 2


def test_a_space_that_restrictions_empty_is_an_error() -> None:
    """With the restriction that did it."""
    with pytest.raises(EmptySpaceError, match=r"restrictions\[0\]"):
        tune_kernel(**GIVEN, restrictions=lambda p: p["factor"] > 2)


def test_what_does_not_compile_is_in_the_results() -> None:
    """As Kernel Tuner's text, with the words of the compiler."""
    source = SOURCE.replace("factor *", "broken * ").replace(
        "extern", "#if factor == 2\nint broken = 2;\n#endif\nextern"
    )
    results, env = tune_kernel(**GIVEN | {"kernel_source": source}, restrictions="block_size_x == 64")
    (failed,) = (one for one in results if "__error__" in one)
    assert (failed["factor"], failed["__error__"]) == (1, "CompilationFailedConfig")
    assert "broken" in failed["error_detail"]
    assert env["best_config"]["factor"] == 2


def test_strategies_and_budgets() -> None:
    """A random sample measures as many as it may."""
    options = {"max_fevals": 2}
    results, _ = tune_kernel(**GIVEN, strategy="random_sample", strategy_options=options, seed=1)
    assert len([one for one in results if "time" in one]) == 2


def test_of_a_space_that_is_too_large_a_sample_is_tried() -> None:
    """As Kernel Tuner's brute force would take days; a warning says so."""
    large = {"block_size_x": [64], "factor": list(range(370)), "other": list(range(370))}
    with pytest.warns(UserWarning, match=r"brute_force would try about 140,000 configurations; [\d,]+ drawn"):
        results, _ = tune_kernel(**GIVEN | {"tune_params": large, "strategy_options": {"max_fevals": 2}})
    assert len([one for one in results if "time" in one]) == 2


def test_energy_needs_no_observer() -> None:
    """Joules are in the results where they are the objective."""
    results, env = tune_kernel(**GIVEN, objective="energy", restrictions="factor == 1")
    assert env["best_config"]["energy"] == min(one["energy"] for one in results if "energy" in one)


def test_launches_of_a_call(tmp_path: Path) -> None:
    """Macros, template arguments, shared memory and the grid of every configuration."""
    call = read_call(
        "scale<factor>",
        "template <int F> " + SOURCE,
        lambda p: (N, p["factor"]),
        ARGUMENTS,
        {"block_size_x": [32], "factor": [1, 2]},
        grid_div=(None, [], None),
        smem_args={"size": "block_size_x * 4"},
        cmem_args=None,
        compiler_options=["-use_fast_math"],
    )
    paths = {one.name: tmp_path / f"{one.name}.npy" for one in call.arrays}
    for one in call.arrays:
        np.save(paths[one.name], one.stored)
    kernel = kernel_file_of(call, paths, ["y"])
    (workload,) = kernel.workloads()
    plan = kernel.plan(workload, Configuration({"block_size_x": 32, "factor": 2}))
    (stage,) = plan.stages
    assert (stage.entry, stage.grid, stage.block) == ("scale<2>", (N // 32, 2, 1), (32, 1, 1))
    assert stage.shared_bytes == 128
    assert {"-Dfactor=2", "-Dgrid_size_x=128", "-Dkernel_tuner=1", "-use_fast_math"} <= set(stage.options)
    assert [(buffer.name, buffer.role) for buffer in plan.buffers] == [("y", "inout"), ("x", "in")]
    assert plan.problem.name == "unchecked"


def test_scripts_find_what_they_import(tmp_path: Path) -> None:
    """The functions of ``util`` and ``file_utils`` that examples use, and names of strategies."""
    rows: list[dict[str, Any]] = [
        {"a": 1, "time": 2.0, "times": [2.0]},
        {"a": 2, "__error__": "InvalidConfig"},
        {"a": 3, "time": 1.0},
    ]
    assert kernel_tuner.util.get_best_config(rows, "time")["a"] == 3
    assert get_best_config(rows, "time", True)["a"] == 1
    with pytest.raises(InputError, match="objective"):
        get_best_config(rows, "energy")
    assert get_config_string(rows[0], ["a", "time"], {"time": "ms"}) == "a=1, time=2.000ms"
    store_output_file(tmp_path / "out" / "results", rows, {"a": [1, 2, 3]})
    store_metadata_file(tmp_path / "meta.json")
    written = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [one["invalidity"] for one in written["results"]] == ["correct", "constraints", "correct"]
    assert written["results"][0]["measurements"] == [{"name": "time", "value": 2.0, "unit": "ms"}]
    assert kernel_tuner.strategies.minimize == "minimize"


# --- what needs a GPU, on a device that answers as told ------------------------------------------


class FakeWorker(WorkerDevice):
    """Leaves twice the inputs in ``y``, unless told to fail."""

    def __init__(self, status: Status = Status.OK) -> None:
        self.status, self.asked = status, 0

    def outputs(self, plan: Any, seed: int, names: Any) -> tuple[Check, dict[str, Any]]:
        """See ``WorkerDevice.outputs``."""
        del plan, seed
        self.asked += 1
        arrays = {"y": np.full(N, 2, np.float32), "x": np.ones(N, np.float32)}
        return Check(self.status, "told"), {name: arrays[name] for name in names}

    def close(self) -> None:
        """Nothing is open."""


def test_run_kernel_returns_all_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays as the run left them, scalars as they were; a failure raises."""
    given = {name: GIVEN[name] for name in ("kernel_name", "kernel_source", "problem_size", "arguments")}
    given |= {"params": {"block_size_x": 64, "factor": 2}, "device": "cuda:0"}
    worker = FakeWorker()
    monkeypatch.setattr(tuning_call, "open_device", lambda _: SimpleNamespace(device=worker))
    y, x, n = run_kernel(**given)
    assert (y.tolist(), x.tolist(), n) == ([2.0] * N, [1.0] * N, N)
    worker.status = Status.CRASHED
    with pytest.raises(DeviceError, match="scale: crashed: told"):
        run_kernel(**given)


def test_a_worker_tells_which_arrays_are_written_and_which_answers_are_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Arrays that one run leaves alone are loaded once; a wrong answer fails its configuration alone."""
    target = "served_outputs:OutputModel"
    worker = WorkerDevice("cuda:0", target=target, args=("h200",))
    monkeypatch.setattr(setup, "open_device", lambda *_, **__: OpenedDevice(worker, ""))
    monkeypatch.setattr(setup, "open_clocks", lambda _: (None, "none"))
    roles: list[tuple[str, str]] = []
    check = worker.check

    def watched(plan: Plan, seed: int) -> Check:
        roles[:] = [(buffer.name, buffer.role) for buffer in plan.buffers]
        return check(plan, seed)

    monkeypatch.setattr(worker, "check", watched)
    source = SOURCE.replace("const ", "")
    given = GIVEN | {"kernel_source": source, "restrictions": "factor == 2", "device": "cuda:0"}
    results, env = tune_kernel(**given, answer=[np.full(N, 2, np.float32), None, None])
    assert [one.get("__error__") for one in results] == ["ErrorConfig", None]
    assert results[0]["error_detail"].startswith("answer[0]: element 0 of y is 3.0, not 2.0")
    assert env["best_config"]["block_size_x"] == 128
    assert roles == [("y", "inout"), ("x", "in")]
    worker = WorkerDevice("cuda:0", target=target, args=("h200",))
    with pytest.raises(VerificationError, match="block_size_x=64, factor=2: verify returned False"):
        tune_kernel(**given, verify=lambda answer, outputs: answer is not None and outputs[0][0] > 9)


def test_answers_are_judged_in_this_process() -> None:
    """A configuration is wrong by its outputs, or by how its run ended."""
    arguments = read_call("scale", SOURCE, N, ARGUMENTS, {}).arguments
    judge = judge_of(arguments, [np.full(N, 2, np.float32), None, None], 1e-6, None)
    other = judge_of(arguments, [np.full(N, 3, np.float32), None, None], 1e-6, None)
    assert judge is not None
    assert other is not None
    plan: Any = SimpleNamespace(configuration=Configuration({}))
    assert judge.check(FakeWorker(), plan, 1).status is Status.OK
    assert other.check(FakeWorker(), plan, 1).status is Status.WRONG_ANSWER
    assert judge.check(FakeWorker(Status.TIMEOUT), plan, 1).status is Status.TIMEOUT


def test_only_wrong_answers_raise_as_kernel_tuner_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A RuntimeError that names the configuration."""
    wrong = {"block_size_x": 64, "factor": 1, "__error__": "ErrorConfig", "error_detail": "answer[0]: ..."}
    monkeypatch.setattr(tuning_call, "rows_of", lambda *_: [wrong])
    with pytest.raises(
        VerificationError, match=r"verification failed for: block_size_x=64.*answer\[0\]"
    ) as caught:
        tune_kernel(**GIVEN, answer=[ARGUMENTS[0], None, None], restrictions="block_size_x == 64")
    assert isinstance(caught.value, RuntimeError)
