"""What the user states to be right: expressions over arrays, files, functions, a naive kernel, laws.

Kernel files are read, and their plans checked on a device of virtual time whose kernels are Python functions.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cuda import fake_device
from fake_cupy import DeviceArray, FakeCupy, Kernel

from tuner.devices.base import Check
from tuner.devices.cuda.device import CudaDevice
from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.elements import bfloat16_bits, bfloat16_values
from tuner.model.errors import ExpressionError, InputError, KernelFileError, UncheckableError
from tuner.model.expressions.array_expressions import ArrayExpression
from tuner.model.plan import Plan
from tuner.model.trial import Status
from tuner.problems.base import stated_values
from tuner.problems.lookup import problem_for

SEED = 3
N = 32
FILE = """
[kernel]
name = "rows"
source = "rows.cu"
entry = "rows<{{P}}>"

[problem]
{problem}
[problem.sizes]
N = [32]

{reference}

[[argument]]
buffer = "a"
dtype = "float32"
shape = ["N", "N"]
role = "in"

[[argument]]
buffer = "sums"
dtype = "float32"
shape = ["N"]
role = "out"

[tunables]
P = [1, 2]

[launch]
grid = 1
block = 32
"""
PYTHON = """
import numpy as np

def right(a, N):
    assert a.shape == (N, N)
    return a.astype(float).sum(axis=1)

def cut(a):
    return a[1:].sum(axis=1)

def none(a):
    a.sum()

def raises(a):
    raise RuntimeError("no data today")

def leaves(a):
    raise SystemExit(3)

def asks(a, weights):
    return a

def interrupts(a):
    raise KeyboardInterrupt("stop")

def floods(a):
    raise ValueError("x" * 10**6)

def generates(a):
    yield a

def odd(a):
    return {"get": {"a": 1}}

def several(a):
    return a.sum(axis=1), a.sum(axis=0)

def named(a, **others):
    return {"sums": a.sum(axis=1)}

def misnamed(a):
    return {"totals": a.sum(axis=1)}

def holed(a):
    return np.full(len(a), np.nan)

def complex_sums(a):
    return a.sum(axis=1) + 0j

def words(a):
    return ["many"] * len(a)

def residual(a, sums):
    return abs(sums - a.sum(axis=1)).max()

def residuals(a, sums, N):
    return {"sum": abs(sums - a.sum(axis=1)).max(), "total": abs(sums.sum() - a.sum()) / N}

def given(a, half, limit, threads=7, **others):
    assert (half, type(half), limit, threads) == (16, int, 0.25, 7), (half, limit, threads)
    return a.sum(axis=1)

def gauged(a, sums, half, limit):
    return abs(sums - a.sum(axis=1)).max() * (half == 16 and limit == 0.25)

def truth(a, sums):
    return bool(np.allclose(sums, a.sum(axis=1)))

def unsure(a, sums):
    if abs(sums - a.sum(axis=1)).max() > 1e-3:
        raise ValueError("not even near")
    return 0.0

limit = 3
"""


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[FakeCupy, CudaDevice]]:
    cp, device = fake_device(monkeypatch)
    for name in ("rows<1>", "rows<2>", "naive"):
        cp.kernels[name] = Kernel(sums, 1e-3)
    yield cp, device
    device.close()


def sums(a: DeviceArray, out: DeviceArray) -> None:
    out[...] = np.asarray(a).astype(float).sum(axis=1)


def wrong(a: DeviceArray, out: DeviceArray) -> None:
    sums(a, out)
    out[7] += 0.5


def unwritten(a: DeviceArray, out: DeviceArray) -> None:
    del a, out


def clobber(a: DeviceArray, out: DeviceArray) -> None:
    sums(a, out)
    a[...] = 0


def infinite(a: DeviceArray, out: DeviceArray) -> None:
    del a
    out[...] = np.inf


def half(a: DeviceArray, out: DeviceArray) -> None:
    out[:16] = np.asarray(a).astype(float).sum(axis=1)[:16]


def kernel(folder: Path, problem: str = "", reference: str = "") -> KernelFile:
    (folder / "rows.cu").write_text("")
    (folder / "reference.py").write_text(PYTHON)
    (folder / "kernel.toml").write_text(FILE.format(problem=problem, reference=reference))
    return load_kernel_file(folder / "kernel.toml")


def plans(kernel: KernelFile) -> list[Plan]:
    workload = kernel.workload({"N": N})
    return [kernel.plan(workload, configuration) for configuration in kernel.space(workload)]


def checked(fake: tuple[FakeCupy, CudaDevice], kernel: KernelFile, second: Callable[..., None]) -> Check:
    """The check of the second configuration, which does what is given; the first is right."""
    cp, device = fake
    first, other = plans(kernel)
    cp.kernels["rows<2>"].action = second
    check = device.check(first, SEED)
    assert check.status is Status.OK, check.detail
    return device.check(other, SEED)


LAW_OF_NUMBERS = 'law = "reference.py:gauged"\ntolerance = 1e-4'
FORMS = {
    "expression": ("", '[problem.reference]\nsums = "sum(a, 1)"'),
    "matmul": ("", '[problem.reference]\nsums = "matmul(a, where(max(a, axis=0) >= -1, 1.0, 0.0))"'),
    "function": ('reference_function = "reference.py:right"', ""),
    "dict": ('reference_function = "reference.py:named"', ""),
    "entry": ('reference_entry = "naive"', ""),
    "own launch": ('reference_entry = "naive"', '[reference_launch]\ngrid = "N"\nblock = 1'),
    "law": ('law = "reference.py:residual"\ntolerance = 1e-4', ""),
    "laws": ('law = "reference.py:residuals"\ntolerance = 1e-4', ""),
}


SCALARS = """
half = "int32 = N // 2"
limit = "float32 = 0.25"
threads = "int32 = 32 * P"
"""


@pytest.mark.parametrize("stated", ['reference_function = "reference.py:given"', LAW_OF_NUMBERS])
def test_functions_take_numbers_of_the_arguments(
    fake: tuple[FakeCupy, CudaDevice], tmp_path: Path, stated: str
) -> None:
    """Those that follow from the sizes are passed; those of tunables are not."""
    kernel(tmp_path, stated)
    file = tmp_path / "kernel.toml"
    head, _, tail = file.read_text().partition("[[argument]]")
    arrays = '[arguments]\na = "in float32[N, N]"\nsums = "out float32[N]"'
    file.write_text(f"{head}{arrays}{SCALARS}[tunables]{tail.partition('[tunables]')[2]}")
    taken = load_kernel_file(file)
    fake[0].kernels["rows<1>"].action = lambda a, out, *_: sums(a, out)

    assert checked(fake, taken, lambda a, out, *_: sums(a, out)).status is Status.OK


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("action", "words"), [(wrong, "allowed"), (unwritten, "output 'sums' was not written")]
)
def test_wrong_answers_are_found(
    fake: tuple[FakeCupy, CudaDevice], tmp_path: Path, form: str, action: Any, words: str
) -> None:
    """Each way to state what is right finds wrong and missing answers, and passes a right one."""
    stated = kernel(tmp_path, *FORMS[form])
    check = checked(fake, stated, action)
    assert check.status is Status.WRONG_ANSWER
    assert words in check.detail
    assert checked(fake, stated, sums).status is Status.OK
    fake[0].kernels["rows<1>"].action = action  # the first answer is not believed either
    assert fake[1].check(plans(stated)[0], SEED).status is Status.WRONG_ANSWER
    assert fake[1].check(plans(stated)[0], SEED + 1).status is Status.WRONG_ANSWER


def test_an_output_written_in_part(fake: tuple[FakeCupy, CudaDevice], tmp_path: Path) -> None:
    """Of an output that was written in part it is said how much is missing."""
    check = checked(fake, kernel(tmp_path, *FORMS["function"]), half)
    assert "output 'sums' was not written in 16 of 32 elements" in check.detail


def test_references_are_made_once(fake: tuple[FakeCupy, CudaDevice], tmp_path: Path) -> None:
    """A naive kernel runs once for all configurations, and is prepared before the first is checked."""
    first, other = plans(kernel(tmp_path, *FORMS["entry"]))
    fake[1].prepare(first, SEED)
    for plan in (first, other, first):
        assert fake[1].check(plan, SEED).status is Status.OK
    assert fake[0].kernels["naive"].runs == 1
    assert first.reference is not None
    assert first.reference.stages[0].grid == (1, 1, 1)


def test_a_law_may_allow_other_answers(fake: tuple[FakeCupy, CudaDevice], tmp_path: Path) -> None:
    """An answer that differs from the first is judged by the law; where that raises, the answer is wrong."""
    check = checked(fake, kernel(tmp_path, 'law = "reference.py:residual"\ntolerance = 1.0', ""), wrong)
    assert check.status is Status.OK
    check = checked(fake, kernel(tmp_path, 'law = "reference.py:unsure"\ntolerance = 0.1', ""), wrong)
    assert check.status is Status.WRONG_ANSWER
    assert "not even near" in check.detail


def test_a_file_says_what_is_right(fake: tuple[FakeCupy, CudaDevice], tmp_path: Path) -> None:
    """Inputs and right outputs may both come from files."""
    a = np.random.default_rng(0).random((N, N)).astype(np.float32)
    np.save(tmp_path / "a.npy", a)
    np.savez(tmp_path / "right.npz", sums=a.astype(float).sum(axis=1))
    stated = kernel(tmp_path, "", "[problem.reference]\nsums = \"file('right.npz', 'sums')\"")
    text = (
        (tmp_path / "kernel.toml")
        .read_text()
        .replace('role = "in"', 'role = "in"\ninput = \'file("a.npy")\'')
    )
    (tmp_path / "kernel.toml").write_text(text)
    stated = load_kernel_file(tmp_path / "kernel.toml")
    before = stated.fingerprint
    assert checked(fake, stated, sums).status is Status.OK
    assert checked(fake, stated, wrong).status is Status.WRONG_ANSWER
    np.save(tmp_path / "a.npy", 2 * a)
    with pytest.raises(UncheckableError, match=r"a\.npy: has changed since the kernel file was read"):
        fake[1].check(plans(stated)[0], SEED + 1)
    assert load_kernel_file(tmp_path / "kernel.toml").fingerprint != before


# --- references at fault -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cut", "the result has shape [31], and sums has [32]"),
        ("none", "the result is None; return the array"),
        ("raises", "raised RuntimeError: no data today (line 15)"),
        ("leaves", "raised SystemExit: 3"),
        ("interrupts", "raised KeyboardInterrupt: stop"),
        ("floods", "xxx... (line"),
        ("generates", "the result is generator (object), not numbers"),
        ("odd", "returned get, and the outputs are sums"),
        ("asks", "takes 'weights', which is none of what it is called with by name: N, batch, a"),
        ("several", "returned 2 arrays, and there are 1 outputs: sums"),
        ("misnamed", "returned totals, and the outputs are sums"),
        ("holed", "the result is not finite"),
        ("complex_sums", "the result is complex64, and sums is float32"),
        ("words", "not numbers"),
        ("absent", "has no function 'absent'"),
        ("limit", "is no function: 'limit'"),
    ],
)
def test_functions_at_fault(fake: tuple[FakeCupy, CudaDevice], tmp_path: Path, name: str, words: str) -> None:
    """A function that raises or returns what cannot be right is told as such: no configuration is blamed."""
    stated = kernel(tmp_path, f'reference_function = "reference.py:{name}"')
    with pytest.raises(UncheckableError, match=re.escape(words)) as caught:
        fake[1].check(plans(stated)[0], SEED)
    assert "reference.py" in str(caught.value)
    with pytest.raises(UncheckableError):
        fake[1].prepare(plans(stated)[0], SEED)


def test_a_file_of_functions_at_fault(fake: tuple[FakeCupy, CudaDevice], tmp_path: Path) -> None:
    """A Python file that cannot be imported, or has changed, is not run; nothing is imported to read it."""
    stated = kernel(tmp_path, 'reference_function = "reference.py:right"')
    (tmp_path / "reference.py").write_text("import no_such_module\n")
    with pytest.raises(UncheckableError, match="has changed since"):
        fake[1].check(plans(stated)[0], SEED)
    stated = load_kernel_file(tmp_path / "kernel.toml")  # is not run here
    with pytest.raises(UncheckableError, match=r"cannot be imported: ModuleNotFoundError: .* \(line 1\)"):
        fake[1].check(plans(stated)[0], SEED)
    (tmp_path / "reference.py").write_text("def right(a:\n")
    with pytest.raises(UncheckableError, match=r"SyntaxError"):
        fake[1].check(plans(load_kernel_file(tmp_path / "kernel.toml"))[0], SEED)


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (unwritten, "reference_entry 'naive': output 'sums' was not written"),
        (clobber, "reference_entry 'naive': wrote to buffer 'a'"),
        (infinite, "reference_entry 'naive': wrote NaN or infinity"),
    ],
)
def test_naive_kernels_at_fault(
    fake: tuple[FakeCupy, CudaDevice], tmp_path: Path, action: Any, words: str
) -> None:
    """A naive kernel that fails is told as such."""
    fake[0].kernels["naive"].action = action
    with pytest.raises(UncheckableError, match=re.escape(words)):
        fake[1].check(plans(kernel(tmp_path, *FORMS["entry"]))[0], SEED)
    fake[0].kernels["naive"] = Kernel(sums, -1.0)
    with pytest.raises(UncheckableError, match="too many resources"):
        fake[1].check(plans(kernel(tmp_path, *FORMS["entry"]))[0], SEED)


@pytest.mark.parametrize(
    ("law", "words"),
    [
        ("truth", "is a truth value; it must be a number"),
        ("raises", "no data today"),
        ("asks", "'weights'"),
        ("odd", "get is dict"),
    ],
)
def test_laws_at_fault(fake: tuple[FakeCupy, CudaDevice], tmp_path: Path, law: str, words: str) -> None:
    """A law that raises or gives no number at the first answer is at fault."""
    text = f'law = "reference.py:{law}"\ntolerance = 0.1'
    with pytest.raises(InputError, match=words):
        fake[1].check(plans(kernel(tmp_path, text))[0], SEED)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sum(a, 5)", "axis 5 is out of bounds"),
        ("sum(a, 1)[1:]", "is not allowed"),
        ("transpose(a)", "the result has shape [32, 32], and sums has [32]"),
        ("log(0 * sum(a, 1))", "the result is not finite"),
    ],
)
def test_expressions_at_fault(
    fake: tuple[FakeCupy, CudaDevice], tmp_path: Path, text: str, words: str
) -> None:
    """An expression without a result, or with one of another shape, is at fault."""
    with pytest.raises(InputError, match=re.escape(words)):
        fake[1].check(plans(kernel(tmp_path, "", f'[problem.reference]\nsums = "{text}"'))[0], SEED)


@pytest.mark.parametrize(
    ("problem", "reference", "words"),
    [
        ('law = "reference.py:residual"', "", "law needs tolerance"),
        ('law = "reference.py"\ntolerance = 1', "", "does not have the form"),
        ('reference_function = "gone.py:f"', "", "[problem] reference_function: "),
        ('reference_entry = "naive"\nreference_function = "reference.py:right"', "", "keep one of them"),
        ('name = "scan"\nreference_entry = "naive"', "", "leave name out"),
        ("", "[reference_launch]\ngrid = 1\nblock = 1", "reference_entry in [problem], which is missing"),
        ("", '[problem.reference]\nsums = "sum(b, 1)"', "unknown name 'b'"),
        ("", '[problem.reference]\nsums = "sun(a, 1)"', "did you mean 'sum'?"),
        ("", "[problem.reference]\nsums = 'file(\"gone.npy\")'", "[problem.reference] sums: "),
    ],
)
def test_files_that_are_refused(tmp_path: Path, problem: str, reference: str, words: str) -> None:
    """What cannot be a reference is refused when the file is read."""
    with pytest.raises(KernelFileError, match=re.escape(words)) as caught:
        kernel(tmp_path, problem, reference)
    assert "kernel.toml" in str(caught.value)


def test_a_reference_of_another_shape_is_refused_before_a_run(tmp_path: Path) -> None:
    """A file of right outputs is held against the array without a device."""
    np.save(tmp_path / "right.npy", np.zeros(N + 1))
    (plan, _) = plans(kernel(tmp_path, "", "[problem.reference]\nsums = 'file(\"right.npy\")'"))
    with pytest.raises(
        KernelFileError, match=r"right\.npy is float64 \[33\], and the array is float32 \[32\]"
    ):
        problem_for(plan.problem).validate(plan.buffers)


# --- NumPy, without a device ---------------------------------------------------------------------


@pytest.mark.parametrize("form", ["expression", "matmul", "function", "law"])
def test_every_kind_judges_arrays_of_numpy(tmp_path: Path, form: str) -> None:
    """Inputs, references and laws are the same on NumPy arrays, as tests on the host use them."""
    plan = plans(kernel(tmp_path, *FORMS[form]))[0]
    problem, sizes = problem_for(plan.problem), {"N": N, "batch": 1}
    inputs = problem.inputs(np, np.random.default_rng(0), plan.buffers, sizes)
    right = inputs["a"].sum(axis=1)
    assert problem.compare(inputs, {"sums": right}, sizes).ok
    assert not problem.compare(inputs, {"sums": right + 1}, sizes).ok
    assert not problem.residual(np, inputs, {"sums": np.where(right > 0, right, np.nan)}, sizes).ok


def test_stated_inputs_on_the_host(tmp_path: Path) -> None:
    """Problems take the inputs that a kernel file states; a tridiagonal system is none of them."""
    plan = plans(kernel(tmp_path))[0]
    a = replace(plan.buffers[0], input=None)
    text = (tmp_path / "kernel.toml").read_text().replace('role = "in"', 'role = "in"\ninput = "range()"')
    (tmp_path / "kernel.toml").write_text(text)
    stated = plans(load_kernel_file(tmp_path / "kernel.toml"))[0]
    assert stated.buffers[0] != a
    made = problem_for(stated.problem).inputs(np, np.random.default_rng(0), stated.buffers, {})["a"]
    assert (made == np.arange(N)).all()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("sqrt(x) + exp(0 * y)", [2.0, 3.0, 4.0]),
        ("sum(matmul(m, x))", 60.0),
        ("cumsum(y)", [1, 3, 6]),
        ("mean(y)", 2.0),
        ("min(y, 2) if x > 1 else 0", [0, 2, 2]),
        ("max(m, axis=0)", [2, 4, 4]),
        ("abs(-y) == y and not (y == 2)", [True, False, True]),
        ("transpose(m)", [[2, 2], [2, 4], [2, 4]]),
        ("(y > 1) + (y > 2)", [0, 1, 2]),
        ("y ** -1 * 6", [6.0, 3.0, 2.0]),
        ("7 // y % 3", [1, 0, 2]),
        ("m / sum(m, 1, keepdims=true) * 30", [[10.0, 10.0, 10.0], [6.0, 12.0, 12.0]]),
        ("m - min(m, axis=0, keepdims=true)", [[0, 0, 0], [0, 2, 2]]),
        ("m - max(m, axis=-1, keepdims=true)", [[0, 0, 0], [-2, 0, 0]]),
        ("mean(m, keepdims=true) + sum(m, axis=0, keepdims=false) * 0", [[16 / 6] * 3]),
        ("select(y > 1, y, 0)", [0, 2, 3]),
    ],
)
def test_array_expressions(text: str, value: Any) -> None:
    """Expressions over arrays are what NumPy makes of them, in 64 bits."""
    env = {
        "x": np.array([1, 4, 9], np.float32),
        "y": np.array([1, 2, 3], np.int8),
        "m": np.array([[2, 2, 2], [2, 4, 4]], np.uint8),
    }
    result = ArrayExpression(text).evaluate(env)
    assert result.tolist() == (value if text != "sum(matmul(m, x))" else 28.0 + 54.0)
    assert result.dtype in (np.float64, np.int64, np.bool_)


@pytest.mark.parametrize(
    "text",
    ["x.T", "x[0]", "open('f')", "sum(x, 0, 1)", "exp(x, axis=0)", "lambda: 0", "[1]", "f'{x}'", "sum", ""],
)
def test_no_other_language(text: str) -> None:
    """Attributes, indices, calls of anything else and statements are no expressions."""
    with pytest.raises(ExpressionError):
        ArrayExpression(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "m / sum(m, axis=1)",
            "shapes do not fit: m has [2, 3], and sum(m, axis=1) has [2]; keepdims=true keeps",
        ),
        ("x < sum(m, axis=1)", "x has [3], and sum(m, axis=1) has [2]; keepdims"),
        ("x and sum(m, axis=1)", "x has [3], and sum(m, axis=1) has [2]"),
        ("m if x > 1 else transpose(m)", "x > 1 has [3], m has [2, 3], and transpose(m) has [3, 2]"),
        ("max(x, sum(m, 1))", "x has [3], and sum(m, 1) has [2]"),
        ("matmul(m, m)", "shapes do not fit: m has [2, 3], and m has [2, 3]"),
        ("transpose(m, 0, 1, 2)", "axes don't match array"),
        ("sum(m, 5)", "axis 5 is out of bounds"),
        ("sum(m, keepdim=true)", "sum takes axis and keepdims beside its values, not keepdim"),
        ("cumsum(m, axis=1, keepdims=true)", "cumsum takes axis beside its values, not keepdims"),
        ("sqrt(m, axis=1)", "sqrt takes no names beside its values, not axis"),
        ("max(x, y, axis=0)", "axis of several arrays; give a single one"),
        ("sum(m, axis=0, keepdims=3)", "keepdims is true or false"),
        ("sum(m, axis=x)", "an axis is a whole number"),
        ("x > 0 ? x : 0", "select(a, b, c) stands for a ? b : c"),
        ("x > 0 && x < 1", "and, or, not stand for && || !"),
        ("!x", "and, or, not stand for && || !"),
        ("x = 3", "== compares"),
    ],
)
def test_what_is_wrong_with_an_array_expression(text: str, words: str) -> None:
    """Shapes that do not fit are all named, and what another language would write has its word here."""
    env = {"x": np.ones(3), "y": np.ones(3), "m": np.ones((2, 3))}
    with pytest.raises(ExpressionError, match=re.escape(words)):
        ArrayExpression(text).evaluate(env)


def test_values_of_the_host_are_made_once(
    fake: tuple[FakeCupy, CudaDevice], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is not read again for arrays that a run overwrites, nor for those it leaves alone."""
    np.save(tmp_path / "a.npy", np.ones((N, N), np.float32))
    np.save(tmp_path / "b.npy", np.ones(N, np.float32))
    kernel(tmp_path, 'reference_function = "reference.py:added"')
    (tmp_path / "reference.py").write_text("def added(a, sums):\n    return sums + a.sum(axis=1)\n")
    text = (tmp_path / "kernel.toml").read_text()
    text = text.replace('role = "in"', 'role = "in"\ninput = \'file("a.npy")\'')
    text = text.replace('role = "out"', 'role = "inout"\ninput = \'file("b.npy")\'')
    (tmp_path / "kernel.toml").write_text(text)
    read: list[str] = []
    made = stated_values

    def counted(buffer: Any, rng: Any) -> Any:
        read.append(buffer.name)
        return made(buffer, rng)

    monkeypatch.setattr("tuner.devices.cuda.arrays.stated_values", counted)
    for name in ("rows<1>", "rows<2>"):
        fake[0].kernels[name].action = lambda a, out: out.__iadd__(a.sum(axis=1))
    for plan in plans(load_kernel_file(tmp_path / "kernel.toml")):
        check = fake[1].check(plan, SEED)
        assert check.status is Status.OK, check.detail
        fake[1].run([plan], 0.01)
    assert sorted(read) == ["a", "sums"]


@pytest.mark.parametrize("form", ["function", "expression", "consistent"])
def test_bfloat16(fake: tuple[FakeCupy, CudaDevice], tmp_path: Path, form: str) -> None:
    """Arrays of bfloat16 hold bits; inputs, references and comparisons work with their numbers."""
    kernel(tmp_path, *FORMS.get(form, ("", "")))
    text = (tmp_path / "kernel.toml").read_text().replace("float32", "bfloat16")
    (tmp_path / "kernel.toml").write_text(text)

    def narrow(wrong: float) -> Callable[..., None]:
        def action(a: DeviceArray, out: DeviceArray) -> None:
            assert a.dtype == out.dtype == np.uint16
            totals = bfloat16_values(np.asarray(a)).astype(float).sum(axis=1)
            totals[5] += wrong
            out[...] = bfloat16_bits(totals)

        return action

    for name in ("rows<1>", "rows<2>"):
        fake[0].kernels[name].action = narrow(0.0)
    first, other = plans(load_kernel_file(tmp_path / "kernel.toml"))
    for plan in (first, other):
        check = fake[1].check(plan, SEED)
        assert check.status is Status.OK, check.detail
    fake[0].kernels["rows<2>"].action = narrow(1.0)
    check = fake[1].check(other, SEED)
    assert check.status is Status.WRONG_ANSWER, check.detail
    fake[0].kernels["rows<2>"].action = unwritten
    assert "was not written" in fake[1].check(other, SEED).detail


def test_what_checks_cannot_find_is_said(tmp_path: Path) -> None:
    """Without a reference it is said that answers are only compared with each other."""
    assert "only compared with each other" in plans(kernel(tmp_path))[0].problem.caution
    assert not any(plans(kernel(tmp_path, *form))[0].problem.caution for form in FORMS.values())


def test_python_files_leave_nothing_beside_them(fake: tuple[FakeCupy, CudaDevice], tmp_path: Path) -> None:
    """What is run is what was looked at: no cache of Python is read or written."""
    assert checked(fake, kernel(tmp_path, *FORMS["function"]), sums).status is Status.OK
    assert not (tmp_path / "__pycache__").exists()


def test_references_too_large_for_memory() -> None:
    """An array that no machine holds is a mistake of the expression."""
    huge = np.broadcast_to(np.float32(1), (2**24, 2**24))
    with pytest.raises(ExpressionError, match="needs too much memory"):
        ArrayExpression("a + 1").evaluate({"a": huge})
