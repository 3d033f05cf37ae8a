"""``tune_kernel`` and ``run_kernel`` from call to results, and what else scripts for Kernel Tuner use."""

import json
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from benchmark_scripts import ROOT, benchmark
from hypothesis import given
from hypothesis import strategies as st

from tuner import kernel_tuner
from tuner.devices.base import Check
from tuner.devices.choice import OpenedDevice
from tuner.devices.worker import WorkerDevice
from tuner.kernel_tuner import run_kernel, tune_kernel, tuning_call
from tuner.kernel_tuner.accuracy import AccuracyObserver, Tunable, TunablePrecision
from tuner.kernel_tuner.file_utils import store_metadata_file, store_output_file
from tuner.kernel_tuner.observers.ncu import NCUObserver
from tuner.kernel_tuner.observers.nvml import NVMLObserver
from tuner.kernel_tuner.observers.pmt import PMTObserver
from tuner.kernel_tuner.observers.tegra import TegraObserver
from tuner.kernel_tuner.translation import kernel_file_of, read_call
from tuner.kernel_tuner.trial_results import judge_of, read_cache
from tuner.kernel_tuner.util import get_best_config, get_config_string
from tuner.model.errors import (
    CompileError,
    DeviceError,
    DeviceUnavailableError,
    EmptySpaceError,
    InputError,
    UnsupportedError,
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


# --- What scripts for Kernel Tuner use beside its two functions, and the table of its examples.

SIZE = 256
SCRIPT_SOURCE = """
template <typename T> __global__ void scale(T *y, const T *x, int n) {
    int i = blockIdx.x * block_size_x + threadIdx.x;
    if (i < n) { y[i] = x[i] * (T)factor; }
}
"""
X = np.linspace(1, 2, SIZE)
SCRIPT_GIVEN: dict[str, Any] = {
    "kernel_name": "scale<type>",
    "kernel_source": SCRIPT_SOURCE,
    "problem_size": SIZE,
    "arguments": [np.zeros(SIZE, np.float32), X.astype(np.float32), np.int32(SIZE)],
    "tune_params": {"block_size_x": [64, 128], "factor": [2], "type": ["float"]},
    "device": "sim:h200",
    "quiet": True,
}


# --- observers -----------------------------------------------------------------------------------


def test_observers_add_what_is_measured_in_any_case(tmp_path: Path) -> None:
    """Under their own keys, which metrics and the objective may use; what nobody tells is left out."""
    observables = ["nvml_energy", "nvml_power", "core_freq", "temperature"]
    results, env = tune_kernel(
        **SCRIPT_GIVEN,
        observers=[NVMLObserver(observables, device=0), PMTObserver([("nvidia", 0)])],
        metrics={"kJ": lambda p: p["nvml_energy"] / 1000},
        objective="nvml_energy",
        objective_higher_is_better=False,
        cache=tmp_path / "cache",
    )
    for one in results:
        assert one["nvml_energy"] == one["nvidia_energy"] == one["energy"] == 1000 * one["kJ"]
        assert one["nvml_power"] == one["nvidia_power"] == one["power"]
        assert one["core_freq"] == one["clock_mhz"] > 0
        assert ("temperature" in one) == ("temperature_c" in one)
    assert env["best_config"]["energy"] == min(one["energy"] for one in results)
    again, _ = tune_kernel(**SCRIPT_GIVEN, observers=[TegraObserver(["core_freq"])], cache=tmp_path / "cache")
    assert all(one["core_freq"] == 1e6 * one["clock_mhz"] for one in again), "Hz, also of a cached result"
    store_output_file(tmp_path / "t4", again, SCRIPT_GIVEN["tune_params"])
    (clock,) = (
        one
        for one in json.loads((tmp_path / "t4.json").read_text())["results"][0]["measurements"]
        if one["name"] == "clock_mhz"
    )
    assert clock["unit"] == "MHz"


def test_an_objective_that_nobody_tells_is_warned_of() -> None:
    """A simulated GPU has no thermometer here, so that no configuration is the best."""
    observers = [NVMLObserver(["temperature"])]
    given = SCRIPT_GIVEN | {"objective": "temperature", "objective_higher_is_better": False}
    with pytest.warns(UserWarning, match="objective: sim:h200 does not tell temperature"):
        results, env = tune_kernel(**given, observers=observers)
    assert env["best_config"] is None
    assert all("time" in one for one in results)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NVMLObserver(["mem_freq"]), "NVMLObserver: 'mem_freq' is not supported; choose from nvml_"),
        (lambda: NVMLObserver(["core_freq"], save_all=True), "NVMLObserver: save_all"),
        (lambda: TegraObserver(["gpu_temp"]), "TegraObserver: 'gpu_temp'.*tegra_temp"),
        (lambda: PMTObserver([("nvidia", 0), "rapl"]), "PMTObserver: the meter 'rapl'.*'nvidia'"),
        (lambda: PMTObserver({"rocm": 0}), "the meter 'rocm'"),
        (lambda: NCUObserver(["dram__bytes.sum"]), "NCUObserver is not supported: hardware counters"),
    ],
)
def test_what_observers_lack_raises_with_its_name(make: Any, message: str) -> None:
    """Where the observer is made."""
    with pytest.raises(UnsupportedError, match=message):
        make()


# --- run_kernel without a GPU --------------------------------------------------------------------


def test_a_device_that_computes_nothing_gives_no_numbers() -> None:
    """What the kernel may write has no values, raises where they are asked for, and is no answer."""
    given = {
        name: SCRIPT_GIVEN[name] for name in ("kernel_name", "kernel_source", "problem_size", "arguments")
    }
    given |= {"params": {"block_size_x": 64, "factor": 2, "type": "float"}, "device": "sim:h200"}
    with pytest.warns(UserWarning, match="sim:h200 computes nothing: y come back without values"):
        y, x, n = run_kernel(**given)
    assert (x.tolist(), n) == (SCRIPT_GIVEN["arguments"][1].tolist(), SIZE)
    assert repr(y) == "NotComputed('sim:h200')"
    for use in (lambda: np.allclose(y, x), lambda: y + x, lambda: np.sum(y)):
        with pytest.raises(DeviceUnavailableError, match="run_kernel: sim:h200 computes nothing"):
            use()
    results, _ = tune_kernel(**SCRIPT_GIVEN, answer=[y, None, None])
    assert all("time" in one for one in results)
    with pytest.raises(CompileError, match="missing"):
        run_kernel(**given | {"kernel_source": SCRIPT_SOURCE.replace("factor", "missing")})


# --- arguments in several precisions -------------------------------------------------------------

PRECISIONS = {"block_size_x": [64, 128], "factor": [2], "type": ["half", "double"]}
HALF = "#include <cuda_fp16.h>\n#define half __half\n" + SCRIPT_SOURCE


def precise(device: str = "sim:h200") -> dict[str, Any]:
    """A call whose arrays are of half or double precision."""
    arrays = [TunablePrecision("type", np.zeros(SIZE)), TunablePrecision("type", X)]
    given = {"kernel_source": HALF, "arguments": [*arrays, np.int32(SIZE)], "tune_params": PRECISIONS}
    return SCRIPT_GIVEN | given | {"device": device}


def test_each_configuration_takes_its_own_array(tmp_path: Path) -> None:
    """In type, shape and file, as the parameter, the text or the function says."""
    small, large = np.zeros(4, np.float32), np.zeros((2, 8), np.int16)
    for key in ("type", lambda p: p["type"], "1 if type == 1 else 0"):
        call = read_call(
            "f", "__global__ void f(int *y) {}", SIZE, [Tunable(key, [small, large])], {"type": [0, 1]}
        )
        paths = {form.name: tmp_path / f"{form.name}.npy" for form in call.arrays[0].forms}
        for form in call.arrays[0].forms:
            np.save(paths[form.name], form.stored)
        kernel = kernel_file_of(call, paths, ["y"])
        (workload,) = kernel.workloads()
        arrays: tuple[np.ndarray[Any, Any], ...] = (small, large)
        for value, array in enumerate(arrays):
            (buffer,) = kernel.plan(workload, Configuration({"type": value})).buffers
            assert (buffer.name, buffer.dtype, buffer.shape) == ("y", array.dtype.name, array.shape)
            assert buffer.input is not None
            assert buffer.input.file is not None
            assert np.load(buffer.input.file.path).dtype == array.dtype


def test_errors_of_precisions_are_in_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer is wrong for them; a device that computes nothing tells none."""
    answer = [2 * X, None, None]
    observers = [AccuracyObserver("maximum error", "worst"), AccuracyObserver()]
    results, _ = tune_kernel(**precise(), answer=answer, observers=observers)
    assert all("time" in one and "worst" not in one for one in results)
    worker = WorkerDevice("cuda:0", target="served_outputs:OutputModel", args=("h200",))
    monkeypatch.setattr(setup, "open_device", lambda *_, **__: OpenedDevice(worker, ""))
    monkeypatch.setattr(setup, "open_clocks", lambda _: (None, "none"))
    results, env = tune_kernel(
        **precise("cuda:0"),
        answer=answer,
        observers=observers,
        objective="worst",
        objective_higher_is_better=False,
    )
    worst = {(one["block_size_x"], one["type"]): one["worst"] for one in results}
    assert worst[128, "double"] == 0 < worst[128, "half"] < 2e-3
    assert worst[64, "double"] == pytest.approx(1)
    assert all(0 <= one["error"] <= one["worst"] for one in results)
    assert env["best_config"]["type"] == "double"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tune_params": {"type": ["float", "bfloat16"]}}, "TunablePrecision: no array for 'bfloat16'.*half"),
        ({"arguments": [Tunable("size", [X]), X, np.int32(SIZE)]}, "Tunable: param_key: .*'size'"),
        ({"arguments": [Tunable("type", [])]}, r"arguments\[0\]: Tunable holds no array"),
        ({"arguments": [Tunable("type", {"float": "x"})]}, r"arguments\[0\]\['float'\]: str"),
        ({"arguments": [Tunable("type", [np.float32(1)])]}, r"arguments\[0\]\[0\]: Tunable of scalars"),
        ({"observers": [AccuracyObserver()]}, "answer: AccuracyObserver needs one"),
        ({"answer": [X[:9], None, None]}, r"answer\[0\]: 9 elements, .* 256"),
        ({"answer": [X.astype(np.float32), None, None]}, r"answer\[0\]: float32, .* float64"),
    ],
)
def test_arrays_that_cannot_be_chosen_raise_with_their_name(changed: dict[str, Any], message: str) -> None:
    """Before anything is measured."""
    with pytest.raises(InputError, match=message):
        tune_kernel(**precise() | changed)


def test_types_and_errors_have_names() -> None:
    """Those of Kernel Tuner."""
    assert [one.dtype.name for one in TunablePrecision("t", X, ["f16", "double"]).values()] == [
        *("float16", "float64")
    ]
    with pytest.raises(InputError, match="dtypes: 'quarter'"):
        TunablePrecision("t", X, ["quarter"])
    with pytest.raises(InputError, match="TunablePrecision: array: int is none"):
        TunablePrecision("t", 3)
    with pytest.raises(InputError, match="Tunable: arrays: must be a dict or a list, not 3"):
        Tunable("t", 3)
    with pytest.raises(InputError, match="no error 'distance'; choose from mse, rmse"):
        AccuracyObserver("distance")


@given(
    st.lists(st.floats(0.1, 10), min_size=1, max_size=9),
    st.lists(st.floats(0.1, 10), min_size=9, max_size=9),
)
def test_laws_of_errors(right: list[float], other: list[float]) -> None:
    """Nothing is an error of nothing; the mean is at most the root mean square, and that the largest."""
    a, b = np.array(right), np.array(other[: len(right)])

    def error(name: str, given: Any) -> float:
        return AccuracyObserver(name).error([a, None], [given, None])

    names = ("mse", "rmse", "nrmse", "rmsre", "rmsle", "mae", "mre", "male", "max", "max rel")
    assert all(error(name, a) == 0 for name in names)
    assert all(error(name, b) >= 0 for name in names)
    assert error("mae", b) <= error("rmse", b) * (1 + 1e-9)
    assert error("rmse", b) <= error("maximum error", b) * (1 + 1e-9)
    assert error("relative error", b) <= error("max rel", b) * (1 + 1e-9)
    assert AccuracyObserver(lambda x, y: len(x) - len(y)).error([a], [b]) == 0


# --- the scripts ---------------------------------------------------------------------------------

SCRIPTS = {
    "runs.py": """
import numpy
import kernel_tuner
from kernel_tuner.util import get_best_config

source = "__global__ void f(float *y) { y[threadIdx.x] = block_size_x; }"
values = [numpy.zeros(64, numpy.float32)]
results, _ = kernel_tuner.tune_kernel("f", source, 64, values, {"block_size_x": [16, 32, 48, 64]})
assert len(results) == 2
get_best_config(results, "time")
""",
    "lacks.py": "from kernel_tuner.energy import energy\n",
    "tests.py": """
import numpy
import pytest
from kernel_tuner import run_kernel

def test_f():
    source = "__global__ void f(float *y) { y[threadIdx.x] = 1; }"
    (y,) = run_kernel("f", source, 64, [numpy.zeros(64, numpy.float32)], {"block_size_x": 64})
    assert numpy.all(numpy.asarray(y) == 1)
""",
    "skips.py": "import pytest\n\ndef test_f():\n    pytest.skip('no such device')\n",
}


def test_scripts_run_with_one_import_changed(tmp_path: Path) -> None:
    """Each in a process of its own, with the budget that is asked for; what they lack is told."""
    folder = tmp_path / "cuda"
    folder.mkdir()
    for name, text in SCRIPTS.items():
        (folder / name).write_text(text)
    out, page = tmp_path / "out.json", tmp_path / "page.md"
    script = [sys.executable, str(ROOT / "benchmarks" / "kernel_tuner_scripts.py")]
    subprocess.run([*script, str(folder), "--most", "2", "--out", str(out)], check=True, capture_output=True)
    found = {one["script"]: one for one in json.loads(out.read_text())["scripts"]}
    assert {name: one["state"] for name, one in found.items()} == {
        "lacks.py": "refused",
        "runs.py": "runs",
        "skips.py": "skips itself",
        "tests.py": "refused",
    }
    assert [(one["valid"], one["combinations"]) for one in found["runs.py"]["calls"]] == [(2, 4)]
    assert found["lacks.py"]["why"] == "ModuleNotFoundError: No module named 'tuner.kernel_tuner.energy'"
    assert "run_kernel: sim:h200 computes nothing" in found["tests.py"]["why"]
    assert found["skips.py"]["why"] == "no such device"
    page.write_text("a\n<!-- scripts -->\nold\n<!-- end of scripts -->\nb\n")
    subprocess.run([*script, str(out), "--docs", str(page)], check=True)
    assert "\n1 of 4 run on `sim:h200`" in page.read_text()
    assert page.read_text().startswith("a\n")
    assert "old" not in page.read_text()


def test_the_page_has_the_stored_table() -> None:
    """docs/kernel-tuner.md shows the scripts as the stored result has them."""
    scripts = benchmark("kernel_tuner_scripts")
    document = json.loads((ROOT / "benchmarks" / "results" / "kernel-tuner-scripts.json").read_text())
    page = (ROOT / "docs" / "kernel-tuner.md").read_text()
    assert benchmark("headlines").marked("scripts", scripts.table(document)) in page
    assert len(document["scripts"]) == 33
