"""Arguments of Kernel Tuner's functions: what they are translated to, and which are refused by name."""

import importlib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from tuner import kernel_tuner
from tuner.kernel_files.cuda_source.signatures import parameters_of
from tuner.kernel_tuner import call_arguments, run_kernel, strategies, tune_kernel
from tuner.kernel_tuner.call_arguments import (
    PLACEHOLDER,
    GivenArray,
    compiler_options_of,
    macros_of,
    named_parameters,
    read_arguments,
    read_constants,
    read_sources,
    restored,
    split_includes,
    tunables_of,
    with_factors,
)
from tuner.kernel_tuner.strategies import search_of
from tuner.kernel_tuner.translation import LaunchRule, block_names, dynamic_shared_bytes, rules_of, sizes_of
from tuner.kernel_tuner.trial_results import Judge, aim_of, judge_of, with_metrics
from tuner.model.errors import InputError, UnsupportedError
from tuner.model.expressions.callables import Expression
from tuner.model.plan import TunableValue

SOURCE = "__global__ void scale(float *y, const float *x, int n) { y[0] = x[0] * n; }"
ARGUMENTS = [np.zeros(8, np.float32), np.ones(8, np.float32), np.int32(8)]

# --- problem_size, grid_div, block_size_names, smem_args -----------------------------------------


@pytest.mark.parametrize(
    ("problem_size", "expected"),
    [
        (100, (100, 1, 1)),
        (np.int32(7), (7, 1, 1)),
        ((8, "2 * n"), (8, 6, 1)),
        ("n", (3, 1, 1)),
        (lambda p: (p["n"], 2, 5), (3, 2, 5)),
    ],
)
def test_problem_sizes(problem_size: Any, expected: tuple[int, int, int]) -> None:
    """Numbers, texts, tuples and functions."""
    assert sizes_of(problem_size, {"n": 3}) == expected


@pytest.mark.parametrize("problem_size", [None, 2.5, (1, 2, 3, 4), (), (1.5,), "m", lambda p: p["m"]])
def test_wrong_problem_sizes_name_the_argument(problem_size: Any) -> None:
    """Also where a function raises."""
    with pytest.raises(InputError, match="problem_size"):
        sizes_of(problem_size, {"n": 3})


@pytest.mark.parametrize(
    ("divisors", "expected"),
    [
        ((None, None, None), (32, 50, 1)),
        ((["block_size_x", "tile"], [], None), (8, 100, 1)),
        (("block_size_x / 3", lambda p: p["tile"] / 3, None), (100, 75, 1)),
        (([32, "tile"], 7, [lambda _: 2]), (8, 15, 1)),
    ],
)
def test_grids_are_rounded_up(divisors: tuple[Any, Any, Any], expected: tuple[int, int, int]) -> None:
    """The problem size by the product of the divisors; texts are cut to whole numbers, functions are not."""
    geometry = LaunchRule((1000, 100), divisors, block_names(None, ()))
    assert geometry.grid({"block_size_x": 32, "block_size_y": 2, "tile": 4}) == expected


@pytest.mark.parametrize("divisor", [2.5, "missing", lambda _: 1 / 0, ["block_size_x - 32"]])
def test_wrong_divisors_name_the_argument(divisor: Any) -> None:
    """Also where the divisor is zero."""
    with pytest.raises(InputError, match="grid_div_y"):
        LaunchRule((8, 8), (None, divisor, None), block_names(None, ())).grid({"block_size_x": 32})


def test_blocks_have_kernel_tuners_defaults() -> None:
    """256 threads along x, but a divisor of 1, where no parameter has the name."""
    geometry = LaunchRule(512, (None, None, None), block_names(None, ()))
    assert (geometry.block({}), geometry.grid({})) == ((256, 1, 1), (512, 1, 1))
    assert geometry.rules({}) == []


def test_block_names_in_another_case_or_of_the_callers_own() -> None:
    """A block too large is a rule of the space, as for Kernel Tuner."""
    assert block_names(None, ["BLOCK_SIZE_Y"]) == ("block_size_x", "BLOCK_SIZE_Y", "block_size_z")
    names = block_names(["bx", "by"], ["bx", "bz"])
    assert names == ("bx", "by", "block_size_z")
    geometry = LaunchRule(1, (None, None, None), names)
    assert geometry.rules({"bx": (32,)}) == ["bx <= 1024"]
    assert geometry.rules({"bx": (32,), "by": (4,), "block_size_z": (1,)})[1:] == ["block_size_z <= 64"]


@pytest.mark.parametrize(
    ("size", "expected"), [(128, 128), ("4 * n", 12), (lambda p: p["n"] * 8, 24), (None, 0)]
)
def test_dynamic_shared_memory(size: Any, expected: int) -> None:
    """A number, a text or a function."""
    assert dynamic_shared_bytes(None if size is None else {"size": size})({"n": 3}) == expected


# --- tune_params, restrictions -------------------------------------------------------------------


def test_values_are_pythons_own() -> None:
    """NumPy's numbers and repeated values would be other configurations; no parameters are one."""
    given: dict[str, list[Any]] = {"n": list(np.arange(2)), "m": [np.int32(1), 1], "t": ["a", "b", "a"]}
    assert tunables_of(given) == {"n": (0, 1), "m": (1,), "t": ("a", "b")}
    assert tunables_of({}) == {PLACEHOLDER: (1,)}


def only_large(p: dict[str, Any]) -> bool:
    """A restriction that is a function."""
    return bool(p["bx"] > 32)


@pytest.mark.parametrize(
    "given",
    [
        ["bx > 32", "t == 1"],
        "bx > 32 and t == 1",
        lambda p: p["bx"] > 32 and p["t"] == 1,
        lambda bx, t: bx > 32 and t == 1,
        lambda *values: values == (64, 1),
        lambda **p: p["bx"] > 32 and p["t"] == 1,
        [(lambda bx: bx > 32, ["bx"]), "t==1"],
        [only_large, "t in (1, 3)"],
    ],
)
def test_restrictions_in_every_form(given: Any) -> None:
    """Texts, functions of a dict, of names, of values, and lists of these."""
    rules = rules_of(given, ["bx", "t"])
    allowed = [
        (bx, t) for bx in (32, 64) for t in (1, 2) if all(rule.evaluate({"bx": bx, "t": t}) for rule in rules)
    ]
    assert allowed == [(64, 1)]
    assert all(isinstance(rule, Expression) for rule in rules)


def test_a_restriction_that_raises_is_named() -> None:
    """With what it raised."""
    (rule,) = rules_of([lambda p: p["missing"]], ["bx"])
    with pytest.raises(InputError, match=r"restrictions\[0\].*KeyError: 'missing'"):
        rule.evaluate({"bx": 1})


# --- kernel_source, compiler_options, defines ----------------------------------------------------


def test_sources_from_files_with_what_they_include(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of a list is compiled; the others, and quoted includes, are its headers."""
    (tmp_path / "main.cu").write_text('#include "part.cuh"\n#include "other.cu"\n__global__ void f() {}')
    (tmp_path / "part.cuh").write_text('#include "deep.h"\n')
    (tmp_path / "deep.h").write_text("// deep\n")
    (tmp_path / "other.cu").write_text("#pragma unroll loop_unroll_factor_1\nfor (;;) {}\n")
    monkeypatch.chdir(tmp_path)
    source = read_sources(["main.cu", "other.cu"], None).source({}, {"loop_unroll_factor_1": "0"})
    headers = dict(source.headers)
    assert set(headers) == {"part.cuh", "deep.h", "other.cu"}
    assert "unroll" not in headers["other.cu"]
    assert read_sources(tmp_path / "main.cu", None).text == source.text


def test_generated_sources_are_shared_where_they_are_the_same() -> None:
    """A generator is asked once per configuration."""
    asked: list[int] = []

    def generate(p: dict[str, int]) -> str:
        asked.append(p["n"])
        return f"__global__ void f() {{ int a[{p['n'] // 2}]; }}"

    sources = read_sources(generate, "CUDA")
    first, second, third = (sources.source({"n": n}, {}) for n in (4, 5, 6))
    assert first is second is not third
    assert sources.source({"n": 4}, {}) is first
    assert asked == [4, 5, 6]
    with pytest.raises(InputError, match="kernel_source: the function returned int"):
        read_sources(lambda _: 1, "CUDA").source({}, {})


def test_unroll_factors_are_constants() -> None:
    """``#pragma unroll`` takes no macro; a factor of 0 takes the pragma away."""
    text = "#pragma unroll loop_unroll_factor_0\nfor (;;) {}"
    assert with_factors(text, {"loop_unroll_factor_0": "4"}).startswith(
        "constexpr int loop_unroll_factor_0 = 4;"
    )
    assert with_factors(text, {"loop_unroll_factor_0": "0"}) == "\nfor (;;) {}"


def test_macros_and_options(tmp_path: Path) -> None:
    """Kernel Tuner's own, or those of ``defines``."""
    params: dict[str, TunableValue] = {"block_size_x": 32, "flag": True, "kind": "float"}
    macros = macros_of(None, params, (4, 5, 6), {"block_size_x": 32, "block_size_y": 1})
    assert macros == {
        "grid_size_x": "4",
        "grid_size_y": "5",
        "grid_size_z": "6",
        "block_size_x": "32",
        "block_size_y": "1",
        "flag": "1",
        "kind": "float",
        "kernel_tuner": "1",
    }
    given = {"N": 7, "HALF": "block_size_x / 2", "TWICE": lambda p: p["block_size_x"] * 2}
    assert macros_of(given, params, (1, 1, 1), {}) == {"N": "7", "HALF": "32 / 2", "TWICE": "64"}
    assert compiler_options_of(["-arch=sm_52", "-O3", "-use_fast_math"]) == ("-use_fast_math",)
    given_options = ["-I", str(tmp_path), f"-I{tmp_path}/missing", f"--include-path={tmp_path}", "-G"]
    assert split_includes(given_options) == ((str(tmp_path), str(tmp_path)), ("-G",))
    with pytest.raises(InputError, match="defines: 'a b'"):
        macros_of({"a b": 1}, params, (1, 1, 1), {})


# --- arguments, cmem_args, answer, atol, verify --------------------------------------------------


def test_arrays_of_any_kind() -> None:
    """CuPy's and PyTorch's are copied to the host, unknown types are bytes; the source tells names."""

    class OnGpu:
        __cuda_array_interface__: ClassVar[dict[str, Any]] = {}
        dtype, get = np.dtype("float32"), staticmethod(lambda: np.ones(2, np.float32))

    point = np.zeros(3, [("x", "f4"), ("y", "f4")])
    y, x, n = read_arguments([OnGpu(), point[::2], np.int32(1)], "scale", SOURCE)
    assert [(one.name, getattr(one, "const", None)) for one in (y, x, n)] == [
        *[("y", False), ("x", True), ("n", None)]
    ]
    assert isinstance(x, GivenArray)
    assert (x.stored.dtype.name, x.stored.size) == ("uint8", 16)
    assert restored(x, x.stored).dtype == point.dtype
    assert named_parameters(parameters_of(SOURCE, "scale"), 2) == [
        *[("argument0", False), ("argument1", False)]
    ]
    assert named_parameters(None, 1) == [("argument0", False)]
    empty = GivenArray("empty", np.zeros((0, 2)))
    assert (empty.stored.size, restored(empty, empty.stored).shape) == (1, (0, 2))
    (constant,) = read_constants({"d_filter": np.float32(2)})
    assert constant.array.shape == (1,)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (ARGUMENTS[:2], r"scale takes 3 \(y, x, n\), and 2 are given"),
        ([np.zeros(8, np.float64), *ARGUMENTS[1:]], "scale takes float32 as y, and float64 is given"),
        ([*ARGUMENTS[:2], np.float32(8)], "scale takes int32 as n, and float32 is given"),
        ([*ARGUMENTS[:2], ARGUMENTS[0]], "scale takes a value as n, and an array is given"),
        ([np.float32(1), *ARGUMENTS[1:]], "scale takes a pointer as y, and a scalar is given"),
    ],
)
def test_arguments_that_are_not_those_of_the_source_are_a_warning(arguments: list[Any], says: str) -> None:
    """As with Kernel Tuner: by #if, a source may have another signature."""
    with pytest.warns(UserWarning, match=says):
        read_arguments(arguments, "scale", SOURCE)


def test_answers_are_judged_as_by_kernel_tuner() -> None:
    """``numpy.allclose`` with ``atol``, or the caller's own function with or without ``atol``."""
    arguments = read_arguments(ARGUMENTS, "scale", SOURCE)
    right: dict[str, Any] = {"y": np.full(8, 2, np.float32)}
    wrong: dict[str, Any] = {"y": np.full(8, 2.1, np.float32)}
    judge = judge_of(arguments, [np.full(8, 2.0), None, None], 1e-6, None)
    assert isinstance(judge, Judge)
    assert judge.wanted == ("y",)
    assert judge.wrong(judge.outputs(right, {})) == ""
    assert "answer[0]: element 0 of y is 2.0999" in judge.wrong(judge.outputs(wrong, {}))
    seen: list[Any] = []

    def verify(answer: Any, outputs: Any, atol: float) -> bool:
        seen.append((answer, outputs, atol))
        return bool(outputs[0][0] == 2)

    own = judge_of(arguments, None, 0.5, verify)
    assert own is not None
    assert own.wanted == ("y", "x")
    assert own.wrong(own.outputs(right | {"x": ARGUMENTS[1]}, {})) == ""
    assert seen[0][2] == 0.5
    assert seen[0][1][2] is None
    plain = judge_of(
        arguments, [np.float32(16), None, None], 1e-6, lambda answer, out: answer[0] == out[0].sum()
    )
    assert plain is not None
    assert plain.wrong(plain.outputs(right, {})) == ""
    assert plain.wrong(plain.outputs(wrong, {})) == "verify returned False"
    assert judge_of(arguments, None, 1e-6, None) is None


# --- strategy, objective, metrics, device --------------------------------------------------------


def test_every_strategy_has_a_policy() -> None:
    """All names of Kernel Tuner 1.5 are known; those for several objectives are refused."""
    names = (
        *("brute_force", "random_sample", "minimize", "basinhopping", "diff_evo", "genetic_algorithm"),
        *("greedy_mls", "ordered_greedy_mls", "greedy_ils", "dual_annealing", "mls", "pso", "skopt"),
        *("simulated_annealing", "firefly_algorithm", "bayes_opt", "pyatf_strategies", "hybrid_vndx"),
        "adaptive_tabu_greywolf",
    )
    assert set(names) == set(strategies.POLICIES)
    assert search_of(None, None, None).policy == "exhaustive"
    assert strategies.minimize == "minimize"
    given = search_of("pso", {"max_fevals": 9, "time_limit": 2, "seed": 3}, None)
    assert (given.policy, given.budget_of(100), given.time_limit_s, given.seed) == ("auto", 9, 2.0, 3)
    assert search_of("random_sample", None, 5).budget_of(100) == 10
    with pytest.raises(AttributeError):
        _ = strategies.missing


def test_objectives_and_metrics() -> None:
    """A metric is searched for by time, or by energy where it needs joules; more may be better."""
    metrics: dict[str, Any] = {"GFLOP/s": lambda p: 1 / p["time"], "twice": "time * 2", "again": "twice + 1"}
    row = with_metrics({"time": 0.5}, metrics)
    assert row == {"time": 0.5, "GFLOP/s": 2.0, "twice": 1.0, "again": 2.0}
    aim = aim_of("GFLOP/s", None, None, metrics)
    assert (aim.objective, aim.higher, aim.is_metric, aim.cost(row)) == ("time", True, True, -2.0)
    assert aim.cost({"__error__": "InvalidConfig"}) == float("inf")
    assert aim_of(None, None, {"energy": False}, None).joules
    efficient = aim_of("GFLOPS/W", None, None, {"GFLOPS/W": lambda p: 1 / p["energy"]})
    assert (efficient.objective, efficient.joules) == ("energy", True)
    with pytest.raises(InputError, match=r"metrics\['bad'\].*ZeroDivisionError"):
        with_metrics({"time": 0.5}, {"bad": lambda _: 1 / 0})


def test_devices_by_number_and_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is this tuner's; a number is a GPU, or a model with a warning where there is none."""
    monkeypatch.setattr(call_arguments, "driver_problem", lambda: None)
    assert (call_arguments.device_spec("sim:h200"), call_arguments.device_spec(1)) == ("sim:h200", "cuda:1")
    monkeypatch.setattr(call_arguments, "driver_problem", lambda: "no driver")
    with pytest.warns(UserWarning, match="no driver"):
        assert call_arguments.device_spec(0) is None


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
