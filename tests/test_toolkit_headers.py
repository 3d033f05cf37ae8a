"""Headers, CUDA's and those beside a source: found, compiled with, and named where they lack."""

import hashlib
import string
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tuner
from tuner.compiler.compiler import CompiledStage, Compiler
from tuner.compiler.nvrtc import Nvrtc, library_files
from tuner.compiler.nvrtc_backend import STAND_INS, ToolkitHeaders, explained, found_folders
from tuner.kernel_files.formulas import Location
from tuner.kernel_files.source_folder import SourceFolder
from tuner.model.errors import CompileError
from tuner.model.plan import Source, Stage
from tuner.system.untrusted.reading import load_toml

HALVES = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <mma.h>
using namespace nvcuda;
__global__ void f(const half* x, __nv_bfloat16* y, float* z) {
    y[0] = y[1] * y[2];
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
    wmma::fill_fragment(c, 0.0f);
    wmma::load_matrix_sync(a, x, 16);
    wmma::load_matrix_sync(b, x, 16);
    wmma::mma_sync(c, a, b, c);
    wmma::store_matrix_sync(z, c, 16, wmma::mem_row_major);
}
"""
GROUPS = """
#include <cooperative_groups.h>
#include <cub/cub.cuh>
typedef cub::BlockReduce<int, 32> Reduce;
__global__ void f(int* x) {
    __shared__ typename Reduce::TempStorage room;
    x[0] = Reduce(room).Sum(x[threadIdx.x]);
    cooperative_groups::this_grid().sync();
    x[1] = x[0];
}
"""
SYMBOLS = """
namespace ring { __constant__ float taps[4]; }
__device__ int unused[3];
extern "C" __constant__ double plain;
template <int N> __global__ void f(float* x) { x[0] = ring::taps[N]; }
"""


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    """A compiler whose every source is compiled anew, for the oldest GPUs that its sources serve."""
    with Compiler("sm_75", tmp_path_factory.mktemp("cubins"), jobs=1) as made:
        yield made


def stage(text: str, entry: str = "f", **given: object) -> Stage:
    source = Source("headers.cu", text, **{k: v for k, v in given.items() if k == "include_paths"})  # type: ignore[arg-type]  # a tuple
    symbols = tuple((str(name), "x") for name in given.get("symbols", ()))  # type: ignore[attr-defined]  # a tuple
    return Stage("only", source, entry, (), (1, 1, 1), (32, 1, 1), 0, (), symbols=symbols)


def compiled(compiler: Compiler, wanted: Stage) -> CompiledStage:
    (result,) = compiler.compile([wanted])
    assert isinstance(result, CompiledStage), result
    return result


def test_halves_and_tensor_cores(compiler: Compiler) -> None:
    """The headers of half precision and of tensor cores are found without an option."""
    assert compiled(compiler, stage(HALVES)).cubin


def test_groups_and_cub(cubins: Path) -> None:
    """Cooperative groups and cub's parts for kernels are found, those by its one header."""
    with Compiler("sm_90", cubins, jobs=1) as compiler:
        assert compiled(compiler, stage(GROUPS)).cubin


@pytest.mark.parametrize("architecture", [50, 80, 120])
def test_lowered_names_of_variables(architecture: int) -> None:
    """Variables are kept though nothing uses them, and the names they have in the cubin are told."""
    nvrtc = Nvrtc(str(library_files()[0]))
    options = (f"--gpu-architecture=sm_{architecture}",)
    output = nvrtc.compile("k.cu", SYMBOLS, (), "f<1>", options, ("ring::taps", "unused", "plain"))
    assert output.cubin is not None, output.log
    assert output.symbols == ("_ZN4ring4tapsE", "unused", "plain")
    assert all(name.encode() in output.cubin for name in output.symbols)


def test_symbols_of_the_cache(tmp_path: Path) -> None:
    """Names of variables come from the disk too, and code without them is another entry of the cache."""
    for _ in range(2):
        with Compiler("sm_90", tmp_path, jobs=1) as compiler:
            assert compiled(compiler, stage(SYMBOLS, "f<1>", symbols=["plain"])).symbols == ("plain",)
            assert compiled(compiler, stage(SYMBOLS, "f<1>")).symbols == ()


def test_variable_that_is_none(compiler: Compiler) -> None:
    """What the source does not declare is named."""
    (error,) = compiler.compile([stage(SYMBOLS, "f<1>", symbols=["plane"])])
    assert isinstance(error, CompileError)
    assert 'entry or symbol: error: identifier "plane" is undefined' in str(error)


def test_own_headers_come_first(compiler: Compiler, tmp_path: Path) -> None:
    """Folders of the kernel file are looked into, before those of CUDA; a header may come later."""
    text = '#include <cuda_fp16.h>\n#include "own.h"\n__global__ void f(int* x) { x[0] = OWN; }'
    wanted = stage(text, include_paths=(str(tmp_path),))
    (error,) = compiler.compile([wanted])
    assert 'cannot open source file "own.h"; include_paths in [kernel] names folders of headers' in str(error)
    (tmp_path / "own.h").write_text("#define OWN FROM_HALF\n")
    (tmp_path / "cuda_fp16.h").write_text("#define FROM_HALF 7\n")
    assert compiled(compiler, wanted).cubin


def touch(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path.parent


def test_where_headers_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wheels come before toolkits, those of another major version of CUDA are left out."""
    site, toolkit = tmp_path / "site" / "nvidia", tmp_path / "toolkit" / "include"
    touch(site / "__init__.py")
    twelve = touch(
        site / "cuda_runtime" / "include" / "cuda_runtime_api.h", "#define CUDART_VERSION  12090\n"
    )
    parts = touch(site / "cuda_cccl" / "include" / "cub" / "version.cuh").parent
    thirteen = touch(site / "cu13" / "include" / "cuda_runtime_api.h", "#define CUDART_VERSION 13000\n")
    touch(thirteen / "cccl" / "cub" / "version.cuh")
    touch(toolkit / "cuda_runtime_api.h", "#define CUDART_VERSION 12040\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("CUDA_HOME", str(toolkit.parent))

    def found(major: int) -> list[Path]:
        return [path for path in found_folders(major) if path.is_relative_to(tmp_path)]

    assert found(12) == [twelve, toolkit, parts]
    assert found(13) == [thirteen, thirteen / "cccl"]


def test_stamps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other headers make another key of what includes them, and of nothing else."""
    header = touch(tmp_path / "include" / "cuda_runtime_api.h", "#define CUDART_VERSION 12040\n")
    monkeypatch.setattr("tuner.compiler.nvrtc_backend._wheels", list)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    including = Source("a.cu", "#  include <cuda_fp16.h>\n")
    alone = Source("b.cu", '#include "b.cuh"\n', (("b.cuh", ""),))
    first = ToolkitHeaders("12.9")
    assert f"--include-path={header}" in first.options(including)
    assert (first.options(alone), first.stamps(alone)) == ((), ())
    before = first.stamps(including)
    touch(header / "cuda_runtime_api.h", "#define CUDART_VERSION 12041\n")
    assert ToolkitHeaders("12.9").stamps(including) != before


@pytest.mark.parametrize(
    ("version", "header", "words"),
    [
        ("12.9", "cuda_fp16.h", "; pip install nvidia-cuda-runtime-cu12 brings it"),
        ("13.0", "mma.h", "; pip install nvidia-cuda-runtime brings it"),
        ("12.9", "crt/mma.h", "; pip install nvidia-cuda-nvcc-cu12 brings it"),
        ("13.1", "cub/cub.cuh", "; pip install nvidia-cuda-cccl brings it"),
        ("12.9", "nv/target", "; pip install nvidia-cuda-cccl-cu12 brings it"),
        (
            "12.9",
            "vector",
            "; <vector> is for the host, device code has nothing of it; kernels have arrays of a",
        ),
        ("12.9", "sys/time.h", "; <sys/time.h> is for the host"),
        (
            "12.9",
            "mdspan",
            "; <cuda/std/...> stands for the C++ standard library in kernels, and code of the",
        ),
        ("12.9", "stdint.h", "; [kernel] system_headers = false leaves out"),
        ("12.9", "cutlass/gemm.h", "; include_paths in [kernel] names folders of headers"),
    ],
)
def test_what_brings_a_header(version: str, header: str, words: str) -> None:
    """An error says what has the header that it misses."""
    error = (
        f'k.cu(1): catastrophic error: could not open source file "{header}" (no directories in search list)'
    )
    assert explained(error, stage(""), version).startswith(error + words)
    assert explained("k.cu(1): error: expected a ';'", stage(""), version).endswith("';'")


USES = load_toml((Path(__file__).parent / "data" / "headers.toml").read_text())
OWN = next(names for names, row in USES.items() if "using namespace std" in row.get("before", ""))


def using(names: str, standard: int = 17, *, system_headers: bool = True) -> Stage:
    """A kernel with all that a row of the table uses."""
    row = USES[names]
    includes = "".join(f"#include <{name}>\n" for name in names.split())
    body = f"void f(int* x, float y, double z, int n) {{\n{row['use']}\n}}"
    made = stage(f"{includes}{row.get('before', '')}\n__global__ {body}")
    source = replace(made.source, system_headers=system_headers)
    return replace(made, source=source, options=(f"--std=c++{max(standard, row.get('since', 11))}",))


def test_headers_of_c_and_cpp(cubins: Path) -> None:
    """What device code uses of the usual headers compiles: their stand-ins have it."""
    with Compiler("sm_90", cubins) as compiler:
        results = compiler.compile([using(names) for names in USES])
    failed = {names: str(r) for names, r in zip(USES, results, strict=True) if isinstance(r, CompileError)}
    assert not failed
    assert {name for names in USES for name in names.split()} >= {
        path.name for path in STAND_INS.iterdir()
    } - {
        "inttypes.h",
        "stdarg.h",
    }


@pytest.mark.parametrize("architecture", ["sm_53", "sm_72"])
def test_stand_ins_for_older_devices(cubins: Path, architecture: str) -> None:
    """Whatever C++ standard the options name."""
    with Compiler(architecture, cubins) as compiler:
        for result in compiler.compile([using(OWN, standard) for standard in (11, 14, 20)]):
            assert isinstance(result, CompiledStage), result


def test_stand_ins_can_be_left_out(compiler: Compiler) -> None:
    """A kernel that brings its own has its own."""
    (error,) = compiler.compile([using("cstdint", system_headers=False)])
    assert "system_headers = false leaves out what stands in for it" in str(error)


def test_stand_ins_change_no_hash_of_a_source() -> None:
    """Stored answers stay fresh; a source without stand-ins is another one, and so is its cached code."""
    source = Source("a.cu", "#include <cstdint>\n")
    without = replace(source, system_headers=False)
    assert source.sha256 == hashlib.sha256(source.text.encode()).hexdigest() != without.sha256
    headers = ToolkitHeaders("12.9")
    assert set(headers.stamps(source)) > set(headers.stamps(without))


def test_own_headers_come_before_stand_ins(compiler: Compiler, tmp_path: Path) -> None:
    """Folders of the kernel file have the first word."""
    (tmp_path / "stdint.h").write_text("#define OWN 7\n")
    text = "#include <stdint.h>\n__global__ void f(int* x) { x[0] = OWN; }"
    assert compiled(compiler, stage(text, include_paths=(str(tmp_path),))).cubin


@pytest.mark.parametrize(
    ("body", "options"),
    [
        ("x[0] = INFINITY + M_PI + INT_MAX + FLT_MAX; uint32_t a = 3; x[1] = a + isnan(NAN);", ()),
        ("x[0] = sqrt(2) + pow(2, 3) + fmax(x[1], 2.0);", ()),
        (
            "std::size_t at = 1; x[0] = std::max(x[at], std::sin(x[2])) + std::numeric_limits<float>::max();",
            (),
        ),
        ("assert(no_such_name); x[0] = T + F(3) + SET;", ("-DT=128", "-DF(a)=a", "-DSET", "-DNDEBUG")),
        (
            "x[0] = A" + "".join(f" + {name}" for name in string.ascii_uppercase),
            [f"-D{name}=1" for name in string.ascii_uppercase],
        ),
    ],
)
def test_what_nvcc_gives_unasked(compiler: Compiler, body: str, options: Sequence[str]) -> None:
    """A source has it at its second try, and macros in front of it where NVRTC's header has their names."""
    wanted = replace(stage(f"__global__ void f(float* x) {{ {body}; }}"), options=tuple(options))
    assert compiled(compiler, wanted).cubin


@pytest.mark.parametrize(
    ("lines", "options", "words"),
    [
        (["", "x[0] = UNKNOWN;"], (), 'headers.cu(2): error: identifier "UNKNOWN" is undefined'),
        (
            ["#include <cstdio>", 'fopen("a", "b");'],
            (),
            "fopen is for the host, device code has none, whatever line 1 includes",
        ),
        (
            ["#include <stdlib.h>", "x[0] = rand();"],
            (),
            '(2): error: identifier "rand" is undefined; rand is for the host',
        ),
        (["#include <algorithm>", "std::sort(x, x + 3);"], (), "sort is for the host"),
        (["", "std::vector<int> v;"], (), "vector is for the host, device code has none; code of the host"),
        (
            ["#include <cub/cub.cuh>", "x[0] = T;"],
            ("-DT=3", "-DBLOCK=4"),
            "macros reach headers: give the tunable or size T another name",
        ),
        (
            ["#include <cmath>", "x[0] = round;"],
            ("-Dround=4", "-DBLOCK=3"),
            "give the tunable or size round another name",
        ),
    ],
)
def test_why_a_name_is_not_there(
    compiler: Compiler, lines: list[str], options: tuple[str, ...], words: str
) -> None:
    """An error says why a name is not there, and where the header stands that has it elsewhere."""
    text = f"{lines[0]}\n__global__ void f(int* x) {{ {lines[1]} }}\n"
    (error,) = compiler.compile([replace(stage(text), options=options)])
    assert words in str(error)


def test_libcupp_that_is_missing() -> None:
    """What stands on it is told with the line that includes it."""
    error = f'{STAND_INS}/tuple(3): catastrophic error: cannot open source file "cuda/std/tuple"'
    words = explained(error, stage("\n#include <tuple>\n"), "12.9")
    assert words.startswith(
        "headers.cu(2): error: <tuple> stands on libcu++, and its cuda/std/tuple is not here; pip"
    )


CODE = '#include "inc/util.h"\n__global__ void f(float* x) { x[0] = SUB + OWN; }\n'
FILES = {
    "k.cu": CODE,
    "own.h": "#define OWN 1\n",
    "inc/util.h": '#include "../own.h"\n#include "sub.hpp"\n',
    "inc/sub.hpp": "#define SUB 2\n",
    "unused.h": "#error\n",
}


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def read(folder: Path, *include_paths: str) -> Source:
    location = Location("k.toml", "[kernel] source")
    sources = SourceFolder(folder, [], location)
    sources.include(include_paths, location)
    return sources.source("k.cu", location)


def test_they_are_found_from_header_to_header(tmp_path: Path) -> None:
    """Each has its path as its name, and every other name leads to that; what nobody includes is left out."""
    assert dict(read(written(tmp_path, FILES)).headers) == {
        "inc/util.h": FILES["inc/util.h"],
        "inc/sub.hpp": FILES["inc/sub.hpp"],
        "own.h": FILES["own.h"],
        "../own.h": '#include "own.h"\n',
        "sub.hpp": '#include "inc/sub.hpp"\n',
    }


def test_one_that_changes_changes_the_source(tmp_path: Path) -> None:
    """However deep it is included."""
    before = read(written(tmp_path, FILES)).sha256
    (tmp_path / "inc" / "sub.hpp").write_text("#define SUB 3\n")
    assert read(tmp_path).sha256 != before


def test_include_paths_that_have_them_keep_them(tmp_path: Path) -> None:
    """They are files for the compiler then, and hashed with their folder, as before."""
    assert read(written(tmp_path, FILES), ".").headers == ()


@pytest.mark.parametrize(
    "files",
    [
        {"inc/util.h": '#include "own.h"\n', "inc/own.h": "", "k.cu": f'#include "own.h"\n{CODE}'},
        {"own.h": "//" + "x" * 2**20},
        {"inc/sub.hpp": '#include "../../gone.h"\n'},
        {"inc/sub.hpp": "".join(f'#include "{i}.h"\n' for i in range(1001))}
        | {f"inc/{i}.h": "" for i in range(1001)},
    ],
)
def test_what_cannot_be_taken_is_left_out(tmp_path: Path, files: dict[str, str]) -> None:
    """One name for two files, headers that are too large or too many, and paths out of the folder.

    They may be for the host; the compiler says what it does not find.
    """
    assert read(written(tmp_path, FILES | files)).headers == ()


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    """A source may include what lies in its folder, and nothing else."""
    folder = written(tmp_path / "kernel", FILES)
    (folder / "own.h").unlink()
    (tmp_path / "secret.h").write_text("secret")
    (folder / "own.h").symlink_to(tmp_path / "secret.h")
    assert all("secret" not in text for _, text in read(folder).headers)


def test_python_finds_them_too(tmp_path: Path) -> None:
    """Beside the path of a source."""
    path = written(tmp_path, FILES) / "k.cu"
    kernel = tuner.Kernel(path, arguments={"x": np.zeros(4, np.float32)}, grid=1, block=64)
    assert dict(kernel.source.headers)["own.h"] == FILES["own.h"]
