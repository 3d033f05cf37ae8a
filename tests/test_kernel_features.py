"""Kernel files that state what CUDA kernels have: variables, structs, typed scalars, set-up, headers."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_texts import FOLDER, Load, loader, text_of

from tuner.kernel_files.cuda_source.tokens import declared_symbols, texture_line
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.elements import bfloat16_bits, bfloat16_values, struct_bytes
from tuner.model.errors import KernelFileError
from tuner.model.plan import Plan, Scalar, Source, StructValue
from tuner.space.occupancy import own_stages

CODE = (FOLDER / "sources" / "filter" / "filter.cu").read_text()
TEXT = text_of("filter")
STAGES = """
[[stage]]
name = "prepare"
entry = "prepare"
grid = 1
block = 32
arguments = ["x", "y"]
setup = true
[[stage]]
name = "filter"
entry = "filter"
grid = "N // L"
block = "L"
cooperative = "L > 32"
arguments = ["x", "y"]
"""
STAGED = TEXT.replace('entry = "filter"\n', "", 1).split("[launch]", maxsplit=1)[0] + STAGES
SCALAR = '[[argument]]\nscalar = "a"\n'


@pytest.fixture
def load(tmp_path: Path) -> Load:
    return loader("filter", tmp_path)


def plan_of(kernel: KernelFile, sizes: Mapping[str, int | str] | None = None, **values: Any) -> Plan:
    workload = kernel.workload({"N": 64, "dtype": "float32", **(sizes or {})})
    return kernel.plan(workload, kernel.configuration(workload, {"L": 32, **values}))


# --- variables of the source ---------------------------------------------------------------------


def test_symbols(load: Load) -> None:
    """A constant array is an input of the plan, a variable of the stage, and no parameter."""
    plan = plan_of(load(TEXT))
    assert [(b.name, b.role) for b in plan.buffers] == [("x", "in"), ("y", "out"), ("weights", "in")]
    assert plan.stages[0].arguments == ("x", "y")
    assert plan.stages[0].symbols == (("weights", "weights"),)
    assert (plan.stages[0].grid, plan.stages[0].block) == ((2, 2, 3), (16, 2, 1))


def test_symbol_of_another_name(load: Load) -> None:
    """The variable may have another name than the array, and be in a namespace."""
    text = TEXT.replace('role = "constant"', 'role = "constant"\nsymbol = "ring::taps"')
    assert plan_of(load(text)).stages[0].symbols == (("ring::taps", "weights"),)


def test_declared_symbols() -> None:
    """Variables are told from functions and comments, with their qualifiers, arrays and initial values."""
    assert declared_symbols(Source("k.cu", CODE)) == ("weights", "other", "table", "taps")


def test_symbol_as_a_parameter(load: Load) -> None:
    """A stage cannot be given a variable."""
    words = "weights has the role constant: it is the variable weights of the source"
    with pytest.raises(KernelFileError, match=words):
        load(STAGED.replace('["x", "y"]', '["x", "weights"]'))


def test_textures_of_sources(load: Load, tmp_path: Path) -> None:
    """A source that takes texture objects is refused with the line, one that only mentions them is not."""
    assert texture_line("// cudaTextureObject_t\n/* texture<float> */") == 0
    load(TEXT)
    (tmp_path / "textured.cu").write_text("\n__global__ void filter(cudaTextureObject_t t) {}\n")
    with pytest.raises(KernelFileError, match=r"textured\.cu, line 2: texture objects are not supported"):
        load(TEXT.replace("filter.cu", "textured.cu"))


# --- values --------------------------------------------------------------------------------------


def test_structs(load: Load) -> None:
    """A struct has the bytes that C gives it."""
    fields = 'flag = "bool = true", x = "float32 = 1.5", n = "int64 = N", z = "complex64 = 2"'
    fields += ', h = "float16 = 0.5"'
    plan = plan_of(load(f'{TEXT}\n[[argument]]\nscalar = "p"\nfields = {{ {fields} }}\n'))
    value = plan.stages[0].arguments[-1]
    assert isinstance(value, StructValue)
    assert value.fields[2] == ("n", "int64")
    assert value.bytes == struct.pack("@?fq2fe6x", True, 1.5, 64, 2.0, 0.0, 0.5)


def test_layout_of_complex_numbers() -> None:
    """Complex numbers are aligned to both their parts, as float2 and double2 are."""
    assert len(struct_bytes([Scalar("int32", 1), Scalar("complex64", 1.0)])) == 16
    assert len(struct_bytes([Scalar("int8", 1), Scalar("complex128", 1.0), Scalar("int8", 1)])) == 48
    dtype = np.dtype([("a", "i1"), ("b", "f8"), ("c", "i2")], align=True)
    assert (
        len(struct_bytes([Scalar("int8", 1), Scalar("float64", 1.0), Scalar("int16", 1)])) == dtype.itemsize
    )


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ('fields = { n = "int32" }', """'int32' does not have the form "TYPE = EXPRESSION\""""),
        ('fields = { n = "int = 1" }', "[[argument]] 4 (a) fields.n: 'int' is not one of"),
        ('fields = { n = "int8 = 128" }', "fields.n: '128' is 128; it must be from -128 to 127"),
        ('fields = { n = "int32 = M" }', "fields.n: expression 'M': unknown name 'M'"),
        ("fields = {}", "fields: "),
        ('fields = { n = "int32 = 1" }\nvalue = 1', "unknown key"),
        ('dtype = "float16"\nvalue = 1e5', "value: '100000.0' is 100000.0, which is beyond float16"),
        ('dtype = "bfloat16"\nvalue = 1e39', "which is beyond bfloat16"),
        ('dtype = "{dtype}x"\nvalue = 1', "dtype: 'float32x' is not one of"),
    ],
)
def test_wrong_values(load: Load, argument: str, words: str) -> None:
    """A wrong field or value names its place and what would be right."""
    with pytest.raises(KernelFileError) as error:
        plan_of(load(f"{TEXT}{SCALAR}{argument}\n"))
    assert words in str(error.value)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_types_by_sizes(load: Load, dtype: str) -> None:
    """The type of a scalar may follow from sizes and tunables."""
    text = TEXT + SCALAR + 'dtype = "{dtype}"\nvalue = 1.5\n'
    assert plan_of(load(text), {"dtype": dtype}).stages[0].arguments[-1] == Scalar(dtype, 1.5)


def test_bfloat16() -> None:
    """A bfloat16 is the upper half of a float32, rounded to even; NaN stays NaN."""
    given = np.array([1.0, -2.5, 1 + 2**-8, 1 + 3 * 2**-8, 3e38, np.inf, np.nan, 1e-40], np.float32)
    values = bfloat16_values(bfloat16_bits(given))
    assert values[:4].tolist() == [1.0, -2.5, 1.0, 1.015625]
    assert np.isinf(values[5])
    assert np.isnan(values[6])
    assert np.allclose(values[[4, 7]], given[[4, 7]], rtol=2**-6)


def test_arrays_of_bfloat16(load: Load) -> None:
    """Arrays of every role may be of bfloat16."""
    narrow = load(TEXT.replace('dtype = "float32"\nshape = ["N"]', 'dtype = "bfloat16"\nshape = ["N"]', 1))
    assert "bfloat16" in {buffer.dtype for buffer in plan_of(narrow).buffers}
    scratch = '[[argument]]\nbuffer = "tmp"\ndtype = "bfloat16"\nshape = ["N"]\nrole = "scratch"\n'
    assert plan_of(load(TEXT + scratch)).buffers[-1].dtype == "bfloat16"


# --- stages --------------------------------------------------------------------------------------


def test_setup_and_cooperative_stages(load: Load) -> None:
    """A set-up stage is no part of a run, and has no say in the occupancy of a plan."""
    plan = plan_of(load(STAGED), L=64)
    assert [stage.setup for stage in plan.stages] == [True, False]
    assert [stage.cooperative for stage in plan.stages] == [False, True]
    assert not plan_of(load(STAGED), L=32).stages[1].cooperative
    assert plan.timed == own_stages(plan) == (1,)
    assert [stage.symbols for stage in plan.stages] == [(("weights", "weights"),)] * 2


def test_only_setup(load: Load) -> None:
    """Some stage must be left for runs."""
    with pytest.raises(KernelFileError, match=r"\[\[stage\]\] setup: no stage is left that runs launch"):
        plan_of(load(STAGED.replace("cooperative", 'setup = true\nwhen = "true"\ncooperative')))


# --- headers -------------------------------------------------------------------------------------


def test_include_paths(load: Load, tmp_path: Path) -> None:
    """Folders to include from are part of the source, and their content of the kernel's fingerprint."""
    (tmp_path / "include" / "deep").mkdir(parents=True)
    header = tmp_path / "include" / "deep" / "a.h"
    header.write_text("#define A 1\n")
    text = TEXT.replace('entry = "filter"', 'entry = "filter"\ninclude_paths = ["include"]', 1)
    first, plain = load(text), load(TEXT)
    assert plan_of(first).stages[0].source.include_paths == (str(tmp_path / "include"),)
    assert plan_of(plain).stages[0].source.include_paths == ()
    header.write_text("#define A 2\n")
    second = load(text)
    assert len({first.fingerprint, second.fingerprint, plain.fingerprint}) == 3


def test_missing_include_path(load: Load) -> None:
    """A folder that is not there is named."""
    with pytest.raises(KernelFileError, match=r"\[kernel\] include_paths: no such folder: .*nowhere"):
        load(TEXT.replace('entry = "filter"', 'entry = "filter"\ninclude_paths = ["nowhere"]', 1))


@pytest.mark.parametrize(("folder", "words"), [("/proc", "holds no headers"), (".", "more than 3 files")])
def test_folders_that_are_no_includes(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, words: str
) -> None:
    """Folders without end are refused before they are read."""
    monkeypatch.setattr("tuner.kernel_files.source_folder.MOST_INCLUDED_FILES", 3)
    for number in range(4):
        (tmp_path / f"{number}.h").touch()
    text = f'entry = "filter"\ninclude_paths = ["{folder}"]'
    with pytest.raises(KernelFileError, match=rf"\[kernel\] include_paths: .*{words}"):
        load(TEXT.replace('entry = "filter"', text, 1))
