"""What scripts for Kernel Tuner use beside its two functions, and the table of its examples."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmark_scripts import ROOT, benchmark
from hypothesis import given
from hypothesis import strategies as st

from tuner.devices.choice import OpenedDevice
from tuner.devices.worker import WorkerDevice
from tuner.kernel_tuner import run_kernel, tune_kernel
from tuner.kernel_tuner.accuracy import AccuracyObserver, Tunable, TunablePrecision
from tuner.kernel_tuner.file_utils import store_output_file
from tuner.kernel_tuner.observers.ncu import NCUObserver
from tuner.kernel_tuner.observers.nvml import NVMLObserver
from tuner.kernel_tuner.observers.pmt import PMTObserver
from tuner.kernel_tuner.observers.tegra import TegraObserver
from tuner.kernel_tuner.translation import kernel_file_of, read_call
from tuner.model.errors import CompileError, DeviceUnavailableError, InputError, UnsupportedError
from tuner.model.plan import Configuration
from tuner.search import setup

N = 256
SOURCE = """
template <typename T> __global__ void scale(T *y, const T *x, int n) {
    int i = blockIdx.x * block_size_x + threadIdx.x;
    if (i < n) { y[i] = x[i] * (T)factor; }
}
"""
X = np.linspace(1, 2, N)
GIVEN: dict[str, Any] = {
    "kernel_name": "scale<type>",
    "kernel_source": SOURCE,
    "problem_size": N,
    "arguments": [np.zeros(N, np.float32), X.astype(np.float32), np.int32(N)],
    "tune_params": {"block_size_x": [64, 128], "factor": [2], "type": ["float"]},
    "device": "sim:h200",
    "quiet": True,
}


@pytest.fixture(autouse=True)
def _own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


# --- observers -----------------------------------------------------------------------------------


def test_observers_add_what_is_measured_in_any_case(tmp_path: Path) -> None:
    """Under their own keys, which metrics and the objective may use; what nobody tells is left out."""
    observables = ["nvml_energy", "nvml_power", "core_freq", "temperature"]
    results, env = tune_kernel(
        **GIVEN,
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
    again, _ = tune_kernel(**GIVEN, observers=[TegraObserver(["core_freq"])], cache=tmp_path / "cache")
    assert all(one["core_freq"] == 1e6 * one["clock_mhz"] for one in again), "Hz, also of a cached result"
    store_output_file(tmp_path / "t4", again, GIVEN["tune_params"])
    (clock,) = (
        one
        for one in json.loads((tmp_path / "t4.json").read_text())["results"][0]["measurements"]
        if one["name"] == "clock_mhz"
    )
    assert clock["unit"] == "MHz"


def test_an_objective_that_nobody_tells_is_warned_of() -> None:
    """A simulated GPU has no thermometer here, so that no configuration is the best."""
    observers = [NVMLObserver(["temperature"])]
    given = GIVEN | {"objective": "temperature", "objective_higher_is_better": False}
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
    given = {name: GIVEN[name] for name in ("kernel_name", "kernel_source", "problem_size", "arguments")}
    given |= {"params": {"block_size_x": 64, "factor": 2, "type": "float"}, "device": "sim:h200"}
    with pytest.warns(UserWarning, match="sim:h200 computes nothing: y come back without values"):
        y, x, n = run_kernel(**given)
    assert (x.tolist(), n) == (GIVEN["arguments"][1].tolist(), N)
    assert repr(y) == "NotComputed('sim:h200')"
    for use in (lambda: np.allclose(y, x), lambda: y + x, lambda: np.sum(y)):
        with pytest.raises(DeviceUnavailableError, match="run_kernel: sim:h200 computes nothing"):
            use()
    results, _ = tune_kernel(**GIVEN, answer=[y, None, None])
    assert all("time" in one for one in results)
    with pytest.raises(CompileError, match="missing"):
        run_kernel(**given | {"kernel_source": SOURCE.replace("factor", "missing")})


# --- arguments in several precisions -------------------------------------------------------------

PRECISIONS = {"block_size_x": [64, 128], "factor": [2], "type": ["half", "double"]}
HALF = "#include <cuda_fp16.h>\n#define half __half\n" + SOURCE


def precise(device: str = "sim:h200") -> dict[str, Any]:
    """A call whose arrays are of half or double precision."""
    arrays = [TunablePrecision("type", np.zeros(N)), TunablePrecision("type", X)]
    given = {"kernel_source": HALF, "arguments": [*arrays, np.int32(N)], "tune_params": PRECISIONS}
    return GIVEN | given | {"device": device}


def test_each_configuration_takes_its_own_array(tmp_path: Path) -> None:
    """In type, shape and file, as the parameter, the text or the function says."""
    small, large = np.zeros(4, np.float32), np.zeros((2, 8), np.int16)
    for key in ("type", lambda p: p["type"], "1 if type == 1 else 0"):
        call = read_call(
            "f", "__global__ void f(int *y) {}", N, [Tunable(key, [small, large])], {"type": [0, 1]}
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
        ({"arguments": [Tunable("size", [X]), X, np.int32(N)]}, "Tunable: param_key: .*'size'"),
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
