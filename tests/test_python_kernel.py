"""``tuner.Kernel``: arguments against the signature, references, launches, fingerprints."""
# ruff: noqa: ARG005 - functions of users take what they do not use

import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from python_kernels import BLOCKS, VADD, N, arrays, vadd

import tuner
from tuner.config import KernelFile
from tuner.errors import EmptySpaceError, InputError
from tuner.model import Plan, Scalar, StructValue


def plan_of(file: KernelFile, **values: Any) -> Plan:
    (workload,) = file.workloads()
    return file.plan(workload, file.configuration(workload, values))


def test_arguments_become_buffers_and_scalars(tmp_path: Path) -> None:
    """Arrays are files that the worker reads; numbers take the type of their parameter."""
    plan = plan_of(vadd().kernel_file(tmp_path), block_size_x=128)
    (stage,) = plan.stages

    assert stage.arguments == ("c", "a", "b", Scalar("int32", N))
    assert [(b.name, b.role, b.dtype, b.shape) for b in plan.buffers] == [
        ("c", "out", "float32", (N,)),
        ("a", "in", "float32", (N,)),
        ("b", "in", "float32", (N,)),
    ]
    assert stage.grid == (N // 128, 1, 1)
    assert stage.block == (128, 1, 1)
    assert "-Dblock_size_x=128" in stage.options
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), arrays()["a"])


def test_a_list_is_in_the_order_of_the_parameters(tmp_path: Path) -> None:
    """Names come from the signature."""
    file = vadd(arguments=list(arrays().values())).kernel_file(tmp_path)

    assert plan_of(file, block_size_x=64).stages[0].arguments == ("c", "a", "b", Scalar("int32", N))


def test_structs_and_parameters_called_as_words_of_python(tmp_path: Path) -> None:
    """A structured NumPy scalar is a struct by value; ``in`` is ``in_`` in expressions and functions."""
    source = """struct Step { float dt; int n; };
    __global__ void step(const float* in, float* out, Step s) {
        int i = blockIdx.x * L + threadIdx.x;
        if (i < s.n) out[i] = in[i] * s.dt;
    }"""
    step = np.array((0.5, 64), np.dtype([("dt", "f4"), ("n", "i4")]))
    for given in (step, step[()]):
        kernel = tuner.Kernel(
            source,
            arguments=[np.ones(64, "float32"), np.zeros(64, "float32"), given],
            grid="ceil_div(64, L)",
            block="L",
            reference=lambda in_, s: in_ * s["dt"],
        )
        file = kernel.kernel_file(tmp_path, {"L": [32]})
        workload = file.workload({})
        arguments = file.plan(workload, file.default(workload)).stages[0].arguments
        assert arguments[:2] == ("in_", "out")
        assert arguments[2] == StructValue((("dt", "float32"), ("n", "int32")), step.tobytes())
    pointer = np.zeros((), np.dtype([("next", "O")]))[()]
    with pytest.raises(InputError, match="s: field 'next' is object; a field must be a number"):
        tuner.Kernel(source, arguments=[np.ones(64, "float32"), np.zeros(64, "float32"), pointer], grid=2)


def test_pointers_to_const_are_read_others_read_and_written(tmp_path: Path) -> None:
    """Without ``outputs`` an array that may be written begins with the values that were given."""
    kernel = vadd(outputs=None)
    buffers = {b.name: b.role for b in plan_of(kernel.kernel_file(tmp_path), block_size_x=64).buffers}

    assert kernel.outputs == ("c",)
    assert buffers == {"c": "inout", "a": "in", "b": "in"}


@pytest.mark.parametrize(
    "launch",
    [
        {"grid": lambda p: -(-p["n"] // p["block_size_x"])},
        {"grid": lambda n, block_size_x: (n // block_size_x, 1)},
        {"grid": ["ceil_div(n, block_size_x)", lambda p: 1], "block": lambda p: (p["block_size_x"], 1, 1)},
        {"grid": ("n // block_size_x",), "block": "block_size_x"},
    ],
)
def test_launches_may_be_functions(launch: dict[str, Any], tmp_path: Path) -> None:
    """A number, an expression, or a function of a dict or of names; one axis or all."""
    (stage,) = plan_of(vadd(**launch).kernel_file(tmp_path), block_size_x=64).stages

    assert (stage.grid, stage.block) == ((N // 64, 1, 1), (64, 1, 1))


@pytest.mark.parametrize(
    "restrictions",
    [
        "block_size_x > 64",
        lambda p: p["block_size_x"] > 64,
        ["block_size_x > 64", lambda block_size_x, n: block_size_x < n],
    ],
)
def test_restrictions_are_expressions_or_functions(restrictions: Any, tmp_path: Path) -> None:
    """What they forbid is in no space."""
    file = vadd().kernel_file(tmp_path, restrictions=restrictions)
    (workload,) = file.workloads()

    assert [c["block_size_x"] for c in file.space(workload)] == [128, 256]


def test_the_fingerprint_follows_code_and_data_not_the_place(tmp_path: Path) -> None:
    """Equal kernels are equal in another folder and process; other functions, values or code are not."""

    def fingerprint(name: str, **changes: Any) -> str:
        folder = tmp_path / name
        folder.mkdir()
        return vadd(**changes).kernel_file(folder).fingerprint

    first = fingerprint("first", restrictions=lambda p: p["block_size_x"] > 64)
    assert fingerprint("again", restrictions=lambda p: p["block_size_x"] > 64) == first
    assert fingerprint("bound", restrictions=lambda p: p["block_size_x"] > 128) != first
    assert fingerprint("values", arguments=arrays() | {"a": np.ones(N, np.float32)}) != fingerprint("none")
    assert fingerprint("code", source=VADD + "\n") != fingerprint("same")


def test_a_reference_is_called_once_with_what_it_asks_for(tmp_path: Path) -> None:
    """A function takes arguments by name or in order; what it returns is what answers are held against."""
    calls = []

    def by_name(b: Any, a: Any) -> Any:
        calls.append(1)
        b += a  # its own copy
        return b

    wanted = arrays()["a"] + arrays()["b"]
    for place, reference in enumerate((by_name, lambda *all_: all_[1] + all_[2], {"c": wanted}, wanted)):
        folder = tmp_path / str(place)
        folder.mkdir()
        vadd(reference=reference).kernel_file(folder)
        np.testing.assert_array_equal(np.load(folder / "expected-c.npy"), wanted)
    assert calls == [1]


def test_a_reference_may_be_an_expression(tmp_path: Path) -> None:
    """As in kernel files."""
    file = vadd(reference="a + b").kernel_file(tmp_path)

    assert file.problem.reference == (("c", "a + b"),)


def test_sources_may_be_files_with_headers(tmp_path: Path) -> None:
    """A path is read, with the headers beside it."""
    (tmp_path / "v.cu").write_text('#include "one.cuh"\n' + VADD)
    (tmp_path / "one.cuh").write_text("// nothing\n")

    assert vadd(source=tmp_path / "v.cu").source.headers == (("one.cuh", "// nothing\n"),)


def _raises(*_: Any) -> Any:
    raise RuntimeError("no idea")


F64 = np.zeros(N)
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "dtype": (
        {"arguments": arrays() | {"a": F64}},
        r"a: the array is float64.*const float\* a.*float32",
    ),
    "scalar type": ({"arguments": arrays() | {"n": np.int64(N)}}, r"arguments: n: int64 .*give numpy.int32"),
    "fraction": ({"arguments": arrays() | {"n": 1.5}}, "arguments: n: 1.5 is no whole number"),
    "too large": ({"arguments": arrays() | {"n": 2**40}}, "does not fit int32"),
    "number for an array": (
        {"arguments": arrays() | {"a": 1.0}},
        r"a: const float\* a is a pointer",
    ),
    "array for a number": ({"arguments": arrays() | {"n": F64}}, "arguments: n: int n is passed by value"),
    "count": ({"arguments": [1, 2]}, r"vadd takes 4 \(c, a, b, n\), and 2 are given"),
    "name": ({"arguments": arrays() | {"n": 1, "m": 2} | {}}, "vadd takes 4"),
    "unknown": ({"arguments": {"c": F64, "a": F64, "b": F64, "m": 1}}, "no parameter 'm'"),
    "objects": ({"arguments": arrays() | {"a": np.array([None])}}, "array of Python objects"),
    "output": ({"outputs": ["d"]}, "outputs: 'd' is no array argument"),
    "function": ({"source": "int x;"}, "no __global__ function"),
    "functions": ({"source": VADD + VADD.replace("vadd", "other")}, "2 __global__ functions: vadd, other"),
    "raises": ({"reference": _raises}, "reference: the function raises RuntimeError: no idea"),
    "none": ({"reference": lambda a, b: None}, "reference: the function returned None"),
    "shape": ({"reference": lambda a, b: a[:3]}, r"reference: c has the shape \(3,\)"),
    "not finite": ({"reference": lambda a, b: a * np.nan}, "reference: c is not finite"),
    "too many": ({"reference": (F64, F64)}, "reference: 2 outputs for 1: c"),
    "other": ({"reference": {"x": F64}}, "reference: 'x' is no output"),
    "restriction": ({"restrictions": [3]}, r"restrictions\[0\]: 3 is neither"),
}


@pytest.mark.parametrize(("changes", "says"), BAD.values(), ids=BAD.keys())
def test_bad_kernels_are_refused(changes: dict[str, Any], says: str) -> None:
    """The message names the argument and what would be right."""
    with pytest.raises(InputError, match=says):
        vadd(**changes)


BAD_SPACES: dict[str, tuple[dict[str, Any], str]] = {
    "grid name": ({"grid": "n // tile"}, "unknown name 'tile'"),
    "grid parameter": ({"grid": lambda tile, n: tile * n}, "a parameter 'tile'"),
    "no tunables": ({"tunables": {}}, "tunables: none are given"),
    "no list": ({"tunables": {"block_size_x": 64}}, "tunables: block_size_x: give a list"),
    "value": ({"tunables": {"block_size_x": [[64]]}}, "is no number, boolean or text"),
    "default": ({"default": {"block_size_x": 7}}, "7"),
    "raises": ({"restrictions": lambda p: p["nothing"]}, r"restrictions\[0\] raises KeyError"),
    "no value": ({"restrictions": lambda p: None}, r"restrictions\[0\] returns NoneType"),
}


@pytest.mark.parametrize(("changes", "says"), BAD_SPACES.values(), ids=BAD_SPACES.keys())
def test_bad_spaces_are_refused(changes: dict[str, Any], says: str, tmp_path: Path) -> None:
    """Names, values and functions that cannot be used are told when the space is made."""

    def use() -> None:
        file = vadd(**changes).kernel_file(tmp_path)
        (workload,) = file.workloads()
        file.plan(workload, file.default(workload))
        file.space(workload)

    with pytest.raises(InputError, match=says):
        use()


def test_a_space_without_configurations_names_the_restriction(tmp_path: Path) -> None:
    """The last restriction that removed something is in the message."""
    file = vadd(restrictions=lambda p: False).kernel_file(tmp_path)
    with pytest.raises(EmptySpaceError, match=re.escape("restrictions[0]")):
        file.space(file.workloads()[0])


class OnGpu:
    """Stands for an array of CuPy."""

    __cuda_array_interface__: ClassVar[dict[str, Any]] = {}
    shape = (N,)

    def get(self) -> Any:
        """The copy on the host."""
        return np.full(N, 2.0, np.float32)


class OfTorch:
    """Stands for an array of PyTorch."""

    shape = (N,)

    def __array__(self) -> Any:
        raise AssertionError("a tensor of a GPU refuses this")

    def detach(self) -> "OfTorch":
        """The same without gradients."""
        return self

    cpu = detach

    def numpy(self) -> Any:
        """The copy on the host."""
        return np.full(N, 3.0, np.float32)


@pytest.mark.parametrize(("array", "value"), [(OnGpu(), 2.0), (OfTorch(), 3.0)])
def test_arrays_of_other_libraries_are_copied(array: Any, value: float, tmp_path: Path) -> None:
    """CuPy and PyTorch have ways of their own to the host."""
    vadd(arguments=arrays() | {"a": array}).kernel_file(tmp_path, BLOCKS)

    assert (np.load(tmp_path / "a.npy") == value).all()
