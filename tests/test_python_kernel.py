"""``tuner.Kernel``: arguments, references, launches; functions by their content, folders of arrays."""
# ruff: noqa: ARG005 - functions of users take what they do not use

import functools
import itertools
import json
import operator
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from python_kernels import BLOCKS, VADD, N, arrays, vadd

from tuner import Kernel
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import EmptySpaceError, InputError
from tuner.model.expressions.callables import function_digest
from tuner.model.plan import Plan, Scalar, StructValue
from tuner.python.arguments import data_folder
from tuner.python.tuning import python_words


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


def test_parameters_called_as_words_of_python(tmp_path: Path) -> None:
    """``in`` is ``in_`` in expressions and functions, given in a list or by name."""
    source = """__global__ void twice(const float* in, float* out, int n) {
        int i = blockIdx.x * block_size_x + threadIdx.x;
        if (i < n) out[i] = 2 * in[i];
    }"""
    values = np.ones(64, "float32")
    for given in ([values, values, 64], {"in": values, "out": values, "n": 64}):
        kernel = Kernel(source, arguments=given, grid=2, reference=lambda in_: in_ * 2)
        file = kernel.kernel_file(tmp_path, {"block_size_x": [32]})
        assert plan_of(file, block_size_x=32).stages[0].arguments == ("in_", "out", Scalar("int32", 64))


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


def fills(c: Any, a: Any, b: Any) -> None:
    """Fills its copy of the output, as a kernel does."""
    c[:] = a + b


def in_order(x: Any, y: Any) -> Any:
    """Has names of its own."""
    return x + y


@pytest.mark.parametrize("reference", [fills, in_order, np.add, lambda *all_: all_[1] + all_[2]])
def test_references_are_called_as_they_ask_for_it(reference: Any, tmp_path: Path) -> None:
    """By name, in order with what is read, and with outputs that they fill."""
    given = arrays()
    vadd(arguments=given, reference=reference).kernel_file(tmp_path)

    np.testing.assert_array_equal(np.load(tmp_path / "expected-c.npy"), given["a"] + given["b"])
    assert not given["c"].any()


POINTS = """
#include "scale.cuh"
struct Params { int n; double factor; bool shifted; };
template <int block_size_x, typename T>
__global__ void scale(T* y, const float2* x, Params p, unsigned int m) {
    int i = blockIdx.x * block_size_x + threadIdx.x;
    if (i < p.n) y[i] = x[i].x * p.factor;
}
"""
PARAMS = np.dtype([("n", "i4"), ("factor", "f8"), ("shifted", "?")], align=True)


def points(params: Any, tmp_path: Path) -> Kernel:
    x = np.ones((N, 2), np.float32)
    return Kernel(
        POINTS,
        arguments=[np.zeros(N, np.float32), x, params, np.int32(3)],
        grid="ceil_div(4096, block_size_x)",
        tunables={"block_size_x": [64], "T": ["float"]},
        outputs=["y"],
        include_paths=[tmp_path],
        cooperative=True,
        work={"bytes": "12 * 4096", "operations": 4096},
        reference=lambda y, x, p: x[:, 0] * p["factor"],
    )


def test_structs_templates_and_folders_of_headers(tmp_path: Path) -> None:
    """A structured scalar is a struct; parameters of a template are filled in by name."""
    file = points(np.array((N, 2.5, True), PARAMS), tmp_path).kernel_file(tmp_path)
    plan = plan_of(file, block_size_x=64, T="float")
    (stage,) = plan.stages

    assert stage.entry == "scale<64, float>"
    assert stage.cooperative
    assert stage.source.include_paths == (str(tmp_path),)
    assert plan.work.bytes == 12 * N
    _, _, struct, m = stage.arguments
    assert m == Scalar("uint32", 3)
    assert isinstance(struct, StructValue)
    assert np.frombuffer(struct.bytes, PARAMS)[0].item() == (N, 2.5, True)
    np.testing.assert_array_equal(np.load(tmp_path / "expected-y.npy"), np.full(N, 2.5))


@pytest.mark.parametrize(
    ("dtype", "says"),
    [
        ([("n", "i4"), ("factor", "f8")], "its dtype needs align=True"),
        ([("n", "i4", 3)], "is no struct of numbers"),
        ([("z", "c8")], "is no struct of numbers"),
    ],
)
def test_other_structs_are_refused(dtype: Any, says: str, tmp_path: Path) -> None:
    """Fields are numbers, where C has them."""
    with pytest.raises(InputError, match=f"arguments: p: .*{says}"):
        points(np.zeros((), dtype), tmp_path)


def test_a_reference_may_be_an_expression(tmp_path: Path) -> None:
    """As in kernel files."""
    file = vadd(reference="a + b").kernel_file(tmp_path)

    assert file.problem.reference == (("c", "a + b"),)


def test_a_law_is_a_function_in_a_file(tmp_path: Path) -> None:
    """It judges answers where kernels run."""
    law = tmp_path / "laws.py"
    law.write_text("def residual(a, b, c, n, batch):\n    return abs(a + b - c).max()\n")
    file = vadd(check=f"{law}:residual", tolerance=1e-6).kernel_file(tmp_path)

    assert plan_of(file, block_size_x=64).problem.name == "law"
    with pytest.raises(InputError, match=r"^check: must be a text 'file.py:function'"):
        vadd(check=lambda a: 0.0)


def test_functions_may_be_in_headers_and_namespaces(tmp_path: Path) -> None:
    """The signature and the parameters of a template are found there."""
    templated = VADD.replace("__global__", "template <int block_size_x> __global__")
    (tmp_path / "v.cuh").write_text(f"namespace sums {{ {templated} }}")
    (tmp_path / "v.cu").write_text('#include "v.cuh"\n')
    file = vadd(source=tmp_path / "v.cu", name="sums::vadd").kernel_file(tmp_path)

    assert plan_of(file, block_size_x=64).stages[0].entry == "sums::vadd<64>"


def test_numbers_may_have_small_types(tmp_path: Path) -> None:
    """A Python number takes the type of its parameter, one that NumPy lacks too."""
    source = VADD.replace("int n", "nv_bfloat16 s, unsigned int n")
    given = arrays()
    given = {name: given[name] for name in "cab"} | {"s": 1.5, "n": np.int32(N)}
    file = vadd(source=source, arguments=given).kernel_file(tmp_path)
    scalars = plan_of(file, block_size_x=64).stages[0].arguments[3:]

    assert scalars == (Scalar("bfloat16", 1.5), Scalar("uint32", N))


def test_sources_may_be_files_with_headers(tmp_path: Path) -> None:
    """A path is read, with the headers beside it."""
    (tmp_path / "v.cu").write_text('#include "one.cuh"\n' + VADD)
    (tmp_path / "one.cuh").write_text("// nothing\n")

    assert vadd(source=tmp_path / "v.cu").source.headers == (("one.cuh", "// nothing\n"),)


class OnGpu:
    """Stands for an array of CuPy on a GPU."""

    __cuda_array_interface__: ClassVar[dict[str, Any]] = {}
    shape = (N,)

    def __init__(self, number: int) -> None:
        self.number = number

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self.number)

    def get(self) -> Any:
        """The copy on the host."""
        return np.full(N, 2.0, np.float32)


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
    "infinite": ({"arguments": arrays() | {"n": float("inf")}}, "arguments: n: inf is not finite"),
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
    "none": (
        {"reference": lambda a, b: None},
        "the function returned None, and changed no output",
    ),
    "lossy": (
        {"arguments": arrays() | {"c": np.zeros(N, np.int32)}, "source": VADD.replace("float* c", "int* c")}
        | {"reference": lambda a, b: a + b},
        "reference: c is float32 with values that int32 does not hold",
    ),
    "complex": ({"reference": lambda a, b: a * 1j}, "reference: c is complex64; the output is float32"),
    "parameters": ({"reference": lambda x: x}, r"takes x; name its parameters.*\(c, a, b, n\).*\(a, b\)"),
    "several GPUs": (
        {"arguments": arrays() | {"a": OnGpu(0), "b": OnGpu(1)}},
        "several GPUs .a is on GPU 0, b is on GPU 1.; put them on one",
    ),
    "no list": ({"options": "-G"}, "options: must be a list of texts"),
    "no dict": ({"symbols": 3}, "symbols: must be a dict by names"),
    "no name": ({"name": 3}, "name must be the name of a function"),
    "bfloat16": (
        {"source": VADD.replace("float* a", "nv_bfloat16* a")},
        "a: arrays of bfloat16",
    ),
    "size": ({"sizes": {"n": 4}}, "sizes: n: is the name of an argument"),
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
    "grid name": ({"grid": "n // tile"}, "^kernel vadd: grid: expression .* unknown name 'tile'"),
    "value of a grid": ({"grid": "n - n"}, "^kernel vadd: grid: 'n - n' is 0"),
    "value of a default": ({"default": {"block_size_x": 7}}, "^kernel vadd: default: block_size_x: 7"),
    "tunable": ({"tunables": {"for": [1]}}, "^kernel vadd: tunables: 'for' is not a name"),
    "taken": ({"tunables": {"n": [1]}}, "^kernel vadd: tunables: n: the name is that of a number"),
    "scalar": ({"arguments": arrays() | {"n": "2 * M"}}, "^kernel vadd: arguments: n: expression"),
    "reference": ({"reference": "a + d"}, "^kernel vadd: reference: c: expression"),
    "symbol": ({"symbols": {"z": np.ones(3)}}, "^kernel vadd: symbols: z: source: no __constant__"),
    "rule": ({"restrictions": ["n >", "n"]}, "^kernel vadd: restrictions, expression 1"),
    "law": (
        {"check": "no/laws.py:law", "tolerance": 1.0},
        "^kernel vadd: check: .*no/laws.py: cannot",
    ),
    "law and reference": ({"check": "l.py:law", "reference": "a", "tolerance": 1.0}, "keep one of them"),
    "law alone": ({"check": "l.py:law"}, "^kernel vadd: check: needs tolerance"),
    "folder": ({"include_paths": ["/no/such"]}, "^kernel vadd: include_paths: no such folder: /no/such"),
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
    kernel = vadd(**changes)

    def use() -> None:
        file = kernel.kernel_file(tmp_path)
        (workload,) = file.workloads()
        file.plan(workload, file.default(workload))
        file.space(workload)

    with pytest.raises(InputError, match=says), python_words([kernel.label], kernel.symbols):
        use()


def test_a_space_without_configurations_names_the_restriction(tmp_path: Path) -> None:
    """The last restriction that removed something is in the message."""
    file = vadd(restrictions=lambda p: False).kernel_file(tmp_path)
    with pytest.raises(EmptySpaceError, match=re.escape("restrictions[0]")):
        file.space(file.workloads()[0])


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


@pytest.mark.parametrize(("array", "value"), [(OnGpu(3), 2.0), (OfTorch(), 3.0)])
def test_arrays_of_other_libraries_are_copied(array: Any, value: float, tmp_path: Path) -> None:
    """CuPy and PyTorch have ways of their own to the host."""
    vadd(arguments=arrays() | {"a": array}).kernel_file(tmp_path, BLOCKS)

    assert (np.load(tmp_path / "a.npy") == value).all()


@pytest.mark.parametrize(
    ("tunables", "words"),
    [
        ({"block_size_x": itertools.count(32, 32)}, "block_size_x: has more than 100,000 values"),
    ],
)
def test_tunables_that_cannot_be_listed(tunables: Any, words: str, tmp_path: Path) -> None:
    """Endless values end in a message, and so do tunables without names."""
    with pytest.raises(InputError, match=words):
        vadd().kernel_file(tmp_path, tunables)


# --- digests of functions -------------------------------------------------------------------------


LIMIT = 3
SCRIPT = """
import functools, json, operator, sys
from tuner.model.expressions.callables import function_digest
class Bound:
    def __init__(self, most): self.most = most
    def __call__(self, p): return p["x"] < self.most
    def held(self, p): return self(p)
allowed, bound = {"one", "two", "three"}, Bound(3)
print(json.dumps([function_digest(f) for f in (
    lambda p: p["x"] in {"a", "b", "c", "d"}, lambda p: p["x"] in allowed, lambda p: bound(p),
    bound, bound.held, functools.partial(operator.contains, allowed), lambda p, b=bound: b.held(p),
)]))
"""


class Bound:
    """Something that can be called, whose text has an address."""

    def __init__(self, most: int) -> None:
        self.most = most

    def __call__(self, p: dict[str, Any]) -> bool:
        return bool(p["x"] < self.most)


def capturing(value: Any) -> Callable[..., Any]:
    return lambda p: p["x"] in value


def calls_itself(p: dict[str, Any]) -> Any:
    return calls_itself(p)


def below(p: Any) -> Any:
    return p["x"] < LIMIT


def of_attribute(p: Any) -> Any:
    return p.LIMIT


def test_digests_are_the_same_in_another_process(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the seed of hashes and the addresses are."""
    exec(SCRIPT, {"__name__": "__main__"})  # noqa: S102 - a text of this file
    here = json.loads(capsys.readouterr().out)
    command = [sys.executable, "-c", SCRIPT]
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    there = subprocess.run(
        command, env=environment, cwd=Path(__file__).parent.parent, capture_output=True, check=True
    )

    assert json.loads(there.stdout) == here
    assert len(set(here)) == len(here)


LARGE = np.zeros(5000)
OTHER = np.where(np.arange(5000) == 2500, 1.0, 0.0)


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        (capturing({"a", "b"}), capturing({"b", "a"}), capturing({"a", "c"})),
        (capturing(LARGE), capturing(LARGE.copy()), capturing(OTHER)),
        (capturing([Bound(1)]), capturing([Bound(1)]), capturing([Bound(2)])),
        (Bound(1), Bound(1), Bound(2)),
        (functools.partial(below, 1), functools.partial(below, 1), functools.partial(below, 2)),
        (functools.partial(below), functools.partial(below), functools.partial(operator.lt)),
        (np.minimum, np.minimum, np.maximum),
        (functools.cache(below), functools.cache(below), functools.cache(calls_itself)),
        (calls_itself, calls_itself, below),
    ],
)
def test_what_is_captured_counts(one: Any, same: Any, other: Any) -> None:
    """Every element and attribute of it."""
    assert function_digest(one) == function_digest(same)
    assert function_digest(one) != function_digest(other)


def test_globals_that_a_function_names_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit beside a function decides what it returns; an attribute of that name is another thing."""
    before, attribute = function_digest(below), function_digest(of_attribute)
    monkeypatch.setitem(globals(), "LIMIT", 4)

    assert function_digest(below) != before
    assert function_digest(of_attribute) == attribute


# --- the folders that arrays are handed over in ---------------------------------------------------


HOUR_S = 3600


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for /dev/shm."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def aged(folder: Path) -> Path:
    os.utime(folder, (0, time.time() - HOUR_S))
    return folder


def left_over(memory: Path, name: str) -> Path:
    """A folder of a process that was killed."""
    folder = memory / name
    folder.mkdir()
    (folder / "a.npy").write_bytes(b"numbers")
    return aged(folder)


def test_a_folder_is_private_and_goes(memory: Path) -> None:
    """Nobody else reads it; nothing stays."""
    with data_folder(1, memory) as folder:
        assert folder.parent == memory
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "a.npy").write_bytes(b"numbers")
    assert not list(memory.iterdir())


def test_left_over_folders_go_and_others_stay(memory: Path) -> None:
    """Folders that a process holds, young ones, and those of other programs are left alone."""
    gone = left_over(memory, "tuner-arrays-killed")
    other = left_over(memory, "somebody-elses")
    young = memory / "tuner-arrays-young"
    young.mkdir()
    with data_folder(1, memory) as held:
        aged(held)
        with data_folder(1, memory):
            assert held.exists()
    assert not gone.exists()
    assert sorted(memory.iterdir()) == sorted([other, young])


def test_links_are_not_followed(memory: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What a link of such a name points to is not touched."""
    target = left_over(tmp_path_factory.mktemp("elsewhere"), "folder")
    (memory / "tuner-arrays-link").symlink_to(target)
    os.utime(memory / "tuner-arrays-link", (0, 0), follow_symlinks=False)
    with data_folder(1, memory):
        assert (target / "a.npy").exists()


def test_without_room_in_memory_the_disk_is_taken(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays that would fill the memory go to the folder for temporary files."""
    disk = memory / "disk"
    disk.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    with data_folder(2**62, memory) as folder:
        assert folder.parent == disk
