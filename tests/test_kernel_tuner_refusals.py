"""Arguments of Kernel Tuner's functions that are refused here, each with its name."""

import importlib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner import kernel_tuner
from tuner.kernel_tuner import run_kernel, strategies, tune_kernel
from tuner.model.errors import InputError, UnsupportedError

# The parameters of Kernel Tuner 1.5 (kernel_tuner/interface.py), in its order, with its defaults.
SHARED_DEFAULTS: dict[str, Any] = {"grid_div_x": None, "grid_div_y": None, "grid_div_z": None}
TUNE_KERNEL: dict[str, Any] = {
    **dict.fromkeys(("kernel_name", "kernel_source", "problem_size", "arguments", "tune_params")),
    **SHARED_DEFAULTS,
    "restrictions": None,
    "answer": None,
    "atol": 1e-6,
    "verify": None,
    "verbose": False,
    "lang": None,
    "device": 0,
    "platform": 0,
    "smem_args": None,
    "cmem_args": None,
    "texmem_args": None,
    "compiler": None,
    "compiler_options": None,
    "defines": None,
    "log": None,
    "iterations": 7,
    "block_size_names": None,
    "quiet": False,
    "strategy": None,
    "strategy_options": None,
    "cache": None,
    "metrics": None,
    "simulation_mode": None,
    "parallel": None,
    "observers": None,
    "objective": None,
    "objective_higher_is_better": None,
    "objectives": None,
    "seed": None,
}
RUN_KERNEL: dict[str, Any] = {
    **dict.fromkeys(("kernel_name", "kernel_source", "problem_size", "arguments", "params")),
    **SHARED_DEFAULTS,
    "lang": None,
    "device": 0,
    "platform": 0,
    "smem_args": None,
    "cmem_args": None,
    "texmem_args": None,
    "compiler": None,
    "compiler_options": None,
    "defines": None,
    "block_size_names": None,
    "quiet": False,
    "log": None,
}
SOURCE = "__global__ void scale(float *y, const float *x, int n) { y[0] = x[0] * n; }"
ARGUMENTS = [np.zeros(8, np.float32), np.ones(8, np.float32), np.int32(8)]


def call(**changed: Any) -> Any:
    """A call that must fail before a device is opened."""
    given: dict[str, Any] = {"kernel_name": "scale", "kernel_source": SOURCE, "problem_size": 8}
    given |= {"arguments": ARGUMENTS, "tune_params": {"block_size_x": [32, 64]}, "device": "sim:h200"}
    return tune_kernel(**given | changed)


@pytest.mark.parametrize(("function", "expected"), [(tune_kernel, TUNE_KERNEL), (run_kernel, RUN_KERNEL)])
def test_parameters_are_those_of_kernel_tuner(function: Any, expected: Mapping[str, Any]) -> None:
    """Names, order and defaults."""
    found = inspect.signature(function).parameters
    assert list(found) == list(expected)
    for name, default in expected.items():
        assert found[name].default in (default, inspect.Parameter.empty), name


def test_python_kernels_are_refused_by_name() -> None:
    module = importlib.import_module("tuner.kernel_tuner.kernelbuilder")
    with pytest.raises(UnsupportedError, match=r"kernelbuilder\.PythonKernel.*tuner\.apply"):
        _ = module.PythonKernel


def test_the_page_names_every_argument_and_strategy() -> None:
    """Also what each key of a result is."""
    page = (Path(__file__).parents[1] / "docs" / "kernel-tuner.md").read_text()
    for name in (*TUNE_KERNEL, *RUN_KERNEL, *strategies.POLICIES, *strategies.SEVERAL_OBJECTIVES):
        assert f"`{name}`" in page, name
    for strategy, policy in strategies.POLICIES.items():
        (row,) = (line for line in page.splitlines() if line.startswith("|") and f"`{strategy}`" in line)
        assert f"policies.md#{policy}" in row, strategy


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"texmem_args": {"tex": ARGUMENTS[0]}}, "texmem_args"),
        ({"compiler": "gcc"}, "compiler: 'gcc'"),
        ({"simulation_mode": True}, "simulation_mode"),
        ({"observers": [print]}, "observers: print .*objective='energy'"),
        ({"observers": [object()]}, "observers: object is not supported"),
        ({"lang": "OpenCL"}, "lang: 'OpenCL'"),
        ({"kernel_source": "__kernel void f() {}"}, "lang: .*OpenCL"),
        ({"strategy": object()}, "strategy: object"),
        ({"strategy": "nsga2"}, "strategy: 'nsga2'"),
        ({"strategy": "pso", "strategy_options": {"popsize": 9}}, r"strategy_options\['popsize'\].*auto"),
        ({"objectives": {"time": False, "energy": False}}, "objectives: 2"),
        ({"objective": ["time", "energy"]}, "objective: 2"),
        ({"tune_params": {"nvml_gr_clock": [1000]}}, "nvml_gr_clock.*--clocks"),
        ({"tune_params": {"block_size_x": [None]}}, "block_size_x.*None"),
    ],
)
def test_what_is_missing_raises_with_its_name(changed: dict[str, Any], message: str) -> None:
    """As a NotImplementedError, too."""
    with pytest.raises(UnsupportedError, match=message) as caught:
        call(**changed)
    assert isinstance(caught.value, NotImplementedError)


@pytest.mark.parametrize("function", [kernel_tuner.store_results, kernel_tuner.create_device_targets])
def test_functions_that_are_missing_say_what_to_use(function: Any) -> None:
    """Both have a counterpart in ``tuner export``."""
    with pytest.raises(UnsupportedError, match=f"{function.__name__}.*tuner export"):
        function("file", "kernel")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kernel_name": ""}, "kernel_name"),
        ({"kernel_source": "missing.cu"}, "kernel_source: missing.cu"),
        ({"kernel_source": lambda _: SOURCE}, "kernel_source: .*lang"),
        ({"kernel_source": [SOURCE, SOURCE]}, "kernel_source: .*files"),
        ({"kernel_source": 7}, "kernel_source: int"),
        ({"arguments": ARGUMENTS[0]}, "arguments: must be a list"),
        ({"arguments": [1.5]}, r"arguments\[0\]: float"),
        ({"arguments": [np.array([None])]}, r"arguments\[0\]: .*objects"),
        ({"tune_params": [1]}, "tune_params: must be a dict"),
        ({"tune_params": {"time": [1]}}, "'time'"),
        ({"tune_params": {"block_size_x": []}}, "block_size_x.*empty"),
        ({"tune_params": {"block_size_x": 32}}, "block_size_x.*list"),
        ({"restrictions": ["block_size > 1"]}, r"restrictions\[0\].*'block_size'"),
        ({"restrictions": ["__import__('os')"]}, r"restrictions\[0\].*__import__"),
        ({"restrictions": [7]}, r"restrictions\[0\]"),
        ({"answer": [None]}, "answer: must be a list of 3"),
        ({"answer": [np.zeros(3), None, None]}, r"answer\[0\]: 3 elements"),
        ({"answer": [None, None, np.int32(1)]}, r"answer\[2\].*scalar"),
        ({"verify": 7}, "verify"),
        ({"atol": -1}, "atol"),
        ({"smem_args": {"bytes": 1}}, "smem_args"),
        ({"cmem_args": [1]}, "cmem_args"),
        ({"cmem_args": {"a b": ARGUMENTS[0]}}, r"cmem_args\['a b'\]"),
        ({"compiler_options": "-use_fast_math"}, "compiler_options"),
        ({"defines": [1]}, "defines"),
        ({"block_size_names": "x"}, "block_size_names"),
        ({"block_size_names": ["a", "b", "c", "d"]}, "block_size_names: .*three"),
        ({"iterations": 0}, "iterations"),
        ({"strategy": "greedy_isl"}, "greedy_ils"),
        ({"strategy_options": {"max_fevals": 0}}, "max_fevals"),
        ({"strategy_options": {"time_limit": "1"}}, "time_limit"),
        ({"seed": -1}, "seed"),
        ({"metrics": ["time"]}, "metrics: must be a dict"),
        ({"metrics": {"m": "time +"}}, r"metrics\['m'\]"),
        ({"objective": "nvml_energy"}, "objective: 'nvml_energy'"),
        ({"objective": "m", "metrics": {"m": "time"}}, "objective_higher_is_better"),
        ({"objective_higher_is_better": True}, "objective_higher_is_better"),
        ({"observers": print}, "observers: must be a list"),
        ({"objectives": ["time"]}, "objectives: must be a dict"),
        ({"device": -1}, "device"),
    ],
)
def test_what_cannot_be_raises_with_its_name(changed: dict[str, Any], message: str) -> None:
    """As a ValueError, before a device is opened."""
    with pytest.raises(InputError, match=message) as caught:
        call(**changed)
    assert not isinstance(caught.value, UnsupportedError)


def test_platforms_are_ignored_with_a_warning() -> None:
    """They are OpenCL's."""
    with pytest.warns(UserWarning, match="platform"), pytest.raises(InputError, match="atol"):
        call(platform=1, atol=None)
