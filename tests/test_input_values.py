"""Inputs by generators and files: what they hold, what is refused, and which inputs joules are of."""

import os
import struct
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tuning_runs import CallbackListener, FormulaMeasurer

from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.formulas import Location
from tuner.kernel_files.input_reader import array_header, array_of, file_sha256, misfit, read_input
from tuner.model.errors import InputError, KernelFileError
from tuner.model.plan import Buffer, DataFile, InputSpec, Plan
from tuner.model.trial import Measurement, Trial
from tuner.problems.base import stated_draw, stated_values
from tuner.report.run_report import inputs
from tuner.search.request import SearchRequest
from tuner.search.setup import open_setup
from tuner.search.tuning import tune

LOCATION = Location("k.toml", "[[argument]] 1 (x) input")
few = settings(max_examples=25, deadline=None)


def made(text: str, dtype: str, shape: tuple[int, ...], folder: Path = Path(), seed: int = 0) -> Any:
    spec = read_input(LOCATION, text, ["N"], folder).evaluated({"N": 10}, dtype, shape)
    values = stated_values(Buffer("x", dtype, shape, "in", spec), np.random.default_rng(seed))
    assert values.dtype == dtype
    assert values.shape == shape
    return values


def refused(text: str, dtype: str = "int32", shape: tuple[int, ...] = (4,), folder: Path = Path()) -> str:
    with pytest.raises(KernelFileError) as caught:
        read_input(LOCATION, text, ["N"], folder).evaluated({"N": 10}, dtype, shape)
    assert str(caught.value).startswith("k.toml: [[argument]] 1 (x) input: ")
    return str(caught.value)


# --- generators ----------------------------------------------------------------------------------


@few
@given(rows=st.integers(1, 3), length=st.integers(1, 40), total=st.integers(0, 100), seed=st.integers(0, 99))
def test_row_pointers(rows: int, length: int, total: int, seed: int) -> None:
    """Row pointers begin at 0, never fall, and end at the number of elements."""
    offsets = made(f"csr_offsets({total})", "int32", (rows, length + 1), seed=seed)
    assert (offsets[:, 0] == 0).all()
    assert (offsets[:, -1] == total).all()
    assert (np.diff(offsets, axis=1) >= 0).all()
    assert (np.diff(offsets, axis=1).sum(axis=1) == total).all()


@few
@given(low=st.integers(-50, 50), spare=st.integers(0, 30), length=st.integers(1, 40), seed=st.integers(0, 99))
def test_unique_numbers(low: int, spare: int, length: int, seed: int) -> None:
    """Unique numbers are sorted, distinct and within their bounds, also where all of them are needed."""
    numbers = made(f"unique({low}, {low + length + spare})", "int32", (2, length), seed=seed)
    assert (np.diff(numbers, axis=1) > 0).all()
    assert numbers.min() >= low
    assert numbers.max() < low + length + spare


@few
@given(length=st.integers(1, 60), low=st.integers(-20, 20), width=st.integers(1, 20), seed=st.integers(0, 99))
def test_whole_numbers(length: int, low: int, width: int, seed: int) -> None:
    """Permutations have every index once, sorted numbers rise, ranges count, integers keep their bounds."""
    assert sorted(made("permutation()", "int64", (length,), seed=seed)) == list(range(length))
    assert made("range()", "int16", (2, length)).tolist() == [list(range(length))] * 2
    numbers = made(f"integers({low}, {low} + {width})", "int32", (length,), seed=seed)
    assert low <= numbers.min() <= numbers.max() < low + width
    risen = made(f"sorted(integers({low}, {low + width}))", "int32", (3, length), seed=seed)
    assert (np.diff(risen, axis=1) >= 0).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "float16"])
def test_reals(dtype: str) -> None:
    """Uniform values fill their bounds, normal ones have their mean and deviation, constants are constant."""
    uniform, normal = made("uniform(2, 6)", dtype, (5000,)), made("normal(3, 0.5)", dtype, (5000,))
    parts = np.concatenate([uniform.real, uniform.imag]) if dtype == "complex64" else uniform
    assert 2 <= parts.min() < 2.01
    assert 5.98 < parts.max() <= 6
    assert normal.real.astype(float).mean() == pytest.approx(3, abs=0.03)
    assert normal.real.astype(float).std() == pytest.approx(0.5, rel=0.05)
    assert (made("constant(0.5)", dtype, (3,)) == 0.5).all()


@pytest.mark.parametrize(("dtype", "digits"), [("float16", 11), ("float32", 24), ("float64", 53)])
def test_reals_hold_the_whole_numbers_of_their_digits(dtype: str, digits: int) -> None:
    """Up to the last power of two that all before it are exact beside; not one more."""
    assert made(f"integers(2**{digits}, 2**{digits} + 1)", dtype, (3,)).tolist() == [2.0**digits] * 3
    assert "exact in it" in refused(f"integers(0, 2**{digits} + 2)", dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("length", [1, 2, 40])
def test_dominant_matrices(dtype: str, length: int) -> None:
    """The diagonal is larger than the sum of the rest of its row, and of its column."""
    for matrix in made("dominant(-1, 1)", dtype, (3, length, length)):
        sizes = np.abs(matrix.astype(complex))
        assert (2 * sizes.diagonal() > sizes.sum(axis=1)).all()
        assert (2 * sizes.diagonal() > sizes.sum(axis=0)).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("bounds", ["-1, 1", "0, 3", "-3, 0"])
@pytest.mark.parametrize("length", [1, 2, 5, 100])
def test_definite_matrices(dtype: str, bounds: str, length: int) -> None:
    """The symmetric part has positive eigenvalues only, and the diagonal is no larger than it must be."""
    for matrix in made(f"definite({bounds})", dtype, (3, length, length)):
        wide = matrix.astype(complex)
        assert np.linalg.eigvalsh((wide + wide.conj().T) / 2).min() > 0
        if bounds == "-1, 1" and length == 100:
            assert abs(wide.diagonal()).max() < np.abs(wide).sum(axis=1).min()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("length", [1, 2, 40])
def test_spd_matrices(dtype: str, length: int) -> None:
    """Symmetric to the bit, full, and with the eigenvalues that are stated; each matrix another."""
    matrices = made("spd(100)", dtype, (3, length, length))
    assert (matrices == matrices.swapaxes(1, 2)).all()
    eigenvalues = np.linalg.eigvalsh(matrices.astype(np.float64))
    expected = np.sort(100.0 ** -np.linspace(0, 1, length))
    np.testing.assert_allclose(eigenvalues, np.broadcast_to(expected, eigenvalues.shape), atol=1e-6)
    if length > 1:
        assert (matrices != 0).all()
        assert (matrices[0] != matrices[1]).any()


def test_values_follow_the_seed() -> None:
    """The same seed makes the same values, another seed others."""
    first, again, other = (made("permutation()", "int32", (64,), seed=seed) for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


def test_what_a_device_draws() -> None:
    """A device draws uniform, normal, constant and whole values; the rest comes from the host."""

    def draw(kind: Any, *numbers: float, dtype: str = "float32") -> Any:
        return stated_draw(Buffer("x", dtype, (4,), "in", InputSpec(kind, numbers)))

    assert (draw("uniform", 1, 3).low, draw("uniform", 1, 3).width) == (1, 2)
    assert (draw("normal", 1, 3).low, draw("normal", 1, 3).width) == (1, 3)
    assert draw("integers", 0, 7, dtype="int32").kind == "whole"
    assert draw("integers", 0, 2**60, dtype="int64") is None
    assert draw("constant", 2).width == 0
    assert draw("constant", 2, dtype="complex64") is None
    assert draw("permutation", dtype="int32") is None


@pytest.mark.parametrize(
    ("text", "dtype", "words"),
    [
        ("uniform(0, 1)", "int32", "makes fractions, and the array is int32; integers(a, b)"),
        ("uniform(1, 1)", "float32", "the second bound is larger"),
        ("uniform(0, 1e6)", "float16", "do not fit float16"),
        ("normal(0, -1)", "float32", "the deviation -1 is below 0"),
        ("dominant(0, 1)", "int32", "makes fractions"),
        ("dominant(0, 1)", "float32", "dominant makes square matrices, and the array has the shape"),
        ("definite(0, 1)", "int32", "makes fractions"),
        ("definite(0, 1)", "float32", "definite makes square matrices, and the array has the shape"),
        ("spd(10)", "int32", "spd makes matrices of float16, float32 or float64, and the array is int32"),
        ("spd(0.5)", "float32", "a condition number is at least 1, and that of spd is 0.5"),
        ("spd(10)", "float32", "spd makes square matrices, and the array has the shape"),
        ("integers(0, 300)", "uint8", "values from 0 to 299 do not fit uint8"),
        ("integers(-1, 3)", "uint16", "do not fit uint16"),
        ("integers(5, 5)", "int32", "the second bound is left out"),
        ("integers(0, 2**24 + 2)", "float32", "exact in it are from -16777216 to 16777216"),
        ("integers(0, N / 4)", "int32", "is not a whole number"),
        ("unique(0, 3)", "int32", "unique(0, 3) has 3 numbers, and 4 different ones are needed"),
        ("csr_offsets(2 * M)", "int32", "unknown name 'M'"),
        ("csr_offsets(-1)", "int32", "at least 0"),
        ("constant(1.5)", "int32", "1.5 is a fraction"),
        ("constant(256)", "uint8", "do not fit uint8"),
        ("permutation(3)", "int32", "permutation takes no value"),
        ("integers(3)", "int32", "integers takes 2 values"),
        ("integer(0, 3)", "int32", "no generator is called 'integer'; did you mean 'integers'?"),
        ("sorted(sorted(sorted(sorted(sorted(sorted(range()))))))", "int32", "not a generator"),
        ("__import__('os').system('true')", "int32", "not a generator"),
        ("file('x', y)", "int32", "file takes a path"),
        ("3", "int32", "not a generator"),
        ("(", "int32", "not an expression"),
        ("file('there is none.npy')", "int32", "cannot be read"),
    ],
)
def test_inputs_that_are_refused(text: str, dtype: str, words: str) -> None:
    """What the array cannot hold, or is no generator, is refused with the reason."""
    assert words in refused(text, dtype)


def test_a_bool_takes_two_values() -> None:
    """Booleans are drawn as 0 and 1, and nothing beyond."""
    assert misfit("integers", (0, 2), "bool", (3,)) == ""
    assert misfit("integers", (0, 3), "bool", (3,)) != ""
    assert made("integers(0, 2)", "bool", (64,)).any()


# --- files ---------------------------------------------------------------------------------------


def test_files_are_taken_as_they_are(tmp_path: Path) -> None:
    """An array of a .npy is mapped, one of a .npz is found by its key; both by the hash of the file."""
    values = np.arange(12, dtype=np.int32).reshape(3, 4)
    np.save(tmp_path / "x.npy", values)
    np.savez(tmp_path / "x.npz", a=values, b=2 * values)
    for text, right in (('file("x.npy")', values), ('file("x.npz", "b")', 2 * values)):
        assert (made(text, "int32", (3, 4), tmp_path) == right).all()
    spec = read_input(LOCATION, "file('x.npy')", [], tmp_path).evaluated({}, "int32", (3, 4))
    assert spec.file is not None
    assert isinstance(array_of(spec.file), np.memmap)
    assert spec.file.sha256 == file_sha256(tmp_path / "x.npy")
    assert (made('sorted(file("x.npz", "b"))', "int32", (3, 4), tmp_path) == 2 * values).all()


def test_a_file_of_another_type_or_shape(tmp_path: Path) -> None:
    """Type and shape of a file are held against the array, and both are named."""
    np.savez(tmp_path / "x.npz", a=np.zeros((3, 4)))
    for dtype, shape in (("float32", (3, 4)), ("float64", (4, 3))):
        words = refused('file("x.npz", "a")', dtype, shape, tmp_path)
        assert f'x.npz ["a"] is float64 [3, 4], and the array is {dtype} {list(shape)}' in words


def test_broken_files(tmp_path: Path) -> None:
    """Pickles, truncated files, the order of Fortran, other bytes, missing keys and no arrays are refused."""
    np.save(tmp_path / "pickled.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "pickled.npz", a=np.array([{}], dtype=object))
    np.save(tmp_path / "columns.npy", np.zeros((3, 4), order="F"))
    np.save(tmp_path / "swapped.npy", np.zeros(4, ">i4"))
    np.save(tmp_path / "whole.npy", np.zeros(1000))
    (tmp_path / "short.npy").write_bytes((tmp_path / "whole.npy").read_bytes()[:-1])
    np.savez(tmp_path / "whole.npz", a=np.zeros(1000))
    (tmp_path / "short.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:-100])
    (tmp_path / "text.npy").write_text("not an array")
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "x.csv").write_text("1,2")
    for text, words in (
        ('file("pickled.npy")', "holds pickled Python objects, which are never read"),
        ('file("pickled.npz", "a")', "holds pickled Python objects"),
        ('file("columns.npy")', "in the order of Fortran"),
        ('file("swapped.npy")', "bytes are in the other order"),
        ('file("short.npy")', "is truncated: 8127 bytes, and its header asks for 8128"),
        ('file("short.npz", "a")', "short.npz: not a .npz file of NumPy, or a truncated one"),
        ('file("text.npy")', "not an array of NumPy"),
        ('file("empty.npy")', "not an array of NumPy"),
        ('file("whole.npz", "b")', "has no array 'b'; its keys are a"),
        ('file("whole.npz")', "needs a key; its keys are a"),
        ('file("whole.npy", "a")', "has one array and no keys"),
        ('file("x.csv")', "is not of NumPy"),
        ('file(".")', "is not a file"),
    ):
        assert words in refused(text, "float64", (1000,), tmp_path), text


@pytest.mark.parametrize("length", [3, 4])  # 3 before
def test_a_file_that_has_changed(tmp_path: Path, length: int) -> None:
    """What has another hash than when it was looked at is not used."""
    np.save(tmp_path / "x.npy", np.zeros(3))
    os.utime(tmp_path / "x.npy", (0.0, 0.0))
    seen = DataFile(str(tmp_path / "x.npy"), "", file_sha256(tmp_path / "x.npy"))
    assert str(array_header(seen)) == "float64 [3]"
    np.save(tmp_path / "x.npy", np.ones(length))
    with pytest.raises(InputError, match="has changed since the kernel file was read"):
        array_of(seen)


@pytest.mark.parametrize(
    "text",
    [
        "[",
        "'''",
        "-" * 9000 + "1",
        "\n\n  x\n y",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (True, 4)}",
    ],
)
def test_headers_that_cannot_be_parsed(tmp_path: Path, text: str) -> None:
    """Whatever stands in a header, the message names the file."""
    path = tmp_path / "x.npy"
    path.write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text.encode() + bytes(16))
    with pytest.raises(InputError, match=r"x\.npy: not an array of NumPy"):
        array_header(DataFile(str(path), ""))


def test_damaged_archives(tmp_path: Path) -> None:
    """Bytes that cannot be unpacked are told as such."""
    path = tmp_path / "x.npz"
    np.savez_compressed(path, x=np.zeros(10**4))
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo("x.npy").header_offset + 30 + len("x.npy") + 20
    damaged = bytearray(path.read_bytes())
    damaged[start : start + 40] = b"\xff" * 40
    path.write_bytes(damaged)
    with pytest.raises(InputError, match=r"x\.npz"):
        array_of(DataFile(str(path), "x"))


KERNEL = """
kernel = { name = "scaling", source = "scaling.cu", entry = "scale" }
problem.sizes.N = [65536]
problem.reference.y = "a * x + places"
[arguments]
y = "out float32[N]"
x = 'in float32[N] = file("own.npz", "x")'
places = 'in int32[N] = file("own.npz", "places")'
a = "in float32[N] = normal(0, 1)"
[tunables]
B = [64, 128, 256]
[launch]
grid = "ceil_div(N, B)"
block = "B"
"""
SOURCE = """__global__ void scale(float* y, const float* x, const int* places, const float* a) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < 65536) y[i] = a[i] * x[i] + places[i]; }"""


class ByInputs(FormulaMeasurer):
    """Takes less power with numbers of a file."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self._share, self.drawn = share, 0

    def measure(self, trial: Trial, plans: Sequence[Plan], target: Any = None) -> Measurement:
        """Places are those of the file in any case."""
        del trial, target
        by_name = {buffer.name: buffer.input for buffer in plans[0].buffers}
        assert by_name["places"] is not None
        self.drawn += by_name["x"] is None
        self.watts = 200.0 if by_name["x"] is None else 200.0 * self._share
        return self.measured([1e-3], 1e-3)


@pytest.mark.parametrize("share", [0.7, 1.0])
@pytest.mark.parametrize("objective", ["energy", "time"])
def test_joules_with_own_inputs_are_held_against_random_ones(
    tmp_path: Path, share: float, objective: str
) -> None:
    """A notice where they differ by more than the interval; the report names file and key of each input."""
    (tmp_path / "kernel.toml").write_text(KERNEL)
    (tmp_path / "scaling.cu").write_text(SOURCE)
    np.savez(tmp_path / "own.npz", x=np.zeros(65536, np.float32), places=np.arange(65536, dtype=np.int32))
    request = SearchRequest(workloads=("scaling:N=65536",), policy="exhaustive", objective=objective)
    measurer = ByInputs(share)
    with Store(tmp_path / "tuner.db") as store, open_setup("sim:h200", request) as setup:
        catalog = Catalog.load((tmp_path / "kernel.toml",))
        played = replace(setup, measurer=measurer)
        outcome = tune(played, request, catalog, store, CallbackListener(), resume=False)

    told = [one for one in outcome.notices if one.startswith("inputs: ")]
    differs = objective == "energy" and share < 1.0
    assert (len(told), measurer.drawn) == (differs, 3 * (objective == "energy"))
    assert all("with own.npz a round takes -30.0 ± " in one for one in told)
    (line,) = inputs(outcome.document)
    assert all(f'{name} file({tmp_path}/own.npz ["{name}"])' in line for name in ("x", "places"))
    assert "a normal(0, 1)" in line
