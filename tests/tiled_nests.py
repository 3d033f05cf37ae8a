"""Nests of loops with tiles, run on the host with and without them: the results are to be the same bits."""

import ctypes
import itertools
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from host_compile import COMPILER

from tuner.kernel_files.pragmas.expansion import Expansion, expansion

PARAMETERS = (
    "float* __restrict__ a, const float* b, float* c, int n, int m, const int q, unsigned u,"
    " long long w, size_t s"
)
HEADER = f"""\
#pragma tuner problem(N = 1..64)
#pragma tuner check default
#pragma tuner inout a: float32[N]
#pragma tuner input b: float32[N]
#pragma tuner inout c: float32[N]
#pragma tuner value n: int32 = N
#pragma tuner value m: int32 = N
#pragma tuner value q: int32 = 2
#pragma tuner value u: uint32 = N
#pragma tuner value w: int64 = N
#pragma tuner value s: uint64 = N
#pragma tuner launch grid(1) block(1)
__global__ void k({PARAMETERS}) {{
"""
PRELUDE = """\
#include <cmath>
#include <cstddef>
#include <cstdint>
#define __global__
#define __device__
#define __shared__ static
#define __syncthreads()
struct Extent { unsigned x, y, z; };
static Extent threadIdx{1, 0, 0}, blockIdx{0, 0, 0}, blockDim{3, 1, 1}, gridDim{2, 1, 1};
template <class T> static T min(T x, T y) { return x < y ? x : y; }
"""
_LENGTH, _ORIGIN = 1 << 16, 1 << 15


@dataclass(frozen=True)
class Nest:
    """A kernel around a nest of loops.

    Attributes:
        text: with pragmas.
        found: what they mean.
    """

    text: str
    found: Expansion

    @property
    def plain(self) -> str:
        """The kernel without pragmas of tuning."""
        return "\n".join("" if "#pragma tuner" in line else line for line in self.text.splitlines())

    @property
    def tunables(self) -> list[str]:
        """Names of the tunables."""
        tables = self.found.document["tunables"]
        assert isinstance(tables, Mapping)
        return list(tables)


def kernel_with(body: str, before: str = "") -> str:
    """A file with one kernel of some statements, below what stands before it."""
    return f"{before}{HEADER}{body}\n}}\n"


def nest_of(text: str) -> Nest:
    """A file as what it means.

    Raises:
        KernelFileError: a tile is refused.
    """
    return Nest(text, expansion(Path("nest.cu"), text))


def sizes_of(nest: Nest, sizes: Sequence[int]) -> list[dict[str, int]]:
    """The tiles of a nest, each with some of the sizes."""
    names = nest.tunables
    return [dict(zip(names, row, strict=True)) for row in itertools.product(sizes, repeat=len(names))]


def build(cases: Sequence[tuple[Nest, Mapping[str, int]]], folder: Path) -> ctypes.CDLL:
    """A library with a function ``plainI`` and ``tiledI`` for every case."""
    assert COMPILER is not None
    parts = [PRELUDE]
    for number, (nest, tiles) in enumerate(cases):
        defines = "".join(f"#define {name} {value}\n" for name, value in tiles.items())
        undefines = "".join(f"#undef {name}\n" for name in tiles)
        parts += [
            f"namespace plain{number} {{\n{nest.plain}\n}}\n",
            f"{defines}namespace tiled{number} {{\n{nest.found.text}\n}}\n{undefines}",
        ]
        for kind in ("plain", "tiled"):
            names = "a, b, c, n, m, q, u, w, s"
            parts.append(f'extern "C" void {kind}_{number}({PARAMETERS}) {{ {kind}{number}::k({names}); }}\n')
    source, library = folder / "nests.cpp", folder / "nests.so"
    source.write_text("".join(parts))
    # Without -fwrapv, g++ 12 at -O1 took a nest in which -fsanitize finds nothing far out of its arrays.
    flags = ("-std=c++17", "-O1", "-fwrapv", "-w", "-shared", "-fPIC", "-ffp-contract=off")
    made = subprocess.run(
        [COMPILER, *flags, "-o", str(library), str(source)], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr[:2000]
    return ctypes.CDLL(str(library))


def results(
    library: ctypes.CDLL, function: str, values: Mapping[str, int], seed: int
) -> npt.NDArray[np.uint32]:
    """What a function leaves in its arrays; ``c`` overlaps ``b``, as nothing says that it does not."""
    numbers = np.random.default_rng(seed)
    arrays = [numbers.random(_LENGTH, dtype=np.float32) for _ in range(2)]
    address = [array.ctypes.data + 4 * _ORIGIN for array in arrays]
    pointers = [ctypes.c_void_p(one) for one in (address[0], address[1], address[1] + 4)]
    n, m = values["n"], values["m"]
    library[function](
        *pointers,
        *map(ctypes.c_int, (n, m, 2)),
        ctypes.c_uint(m),
        ctypes.c_longlong(n),
        ctypes.c_size_t(m),
    )
    return np.concatenate(arrays).view(np.uint32)


def assert_same(cases: Sequence[tuple[Nest, Mapping[str, int]]], folder: Path) -> None:
    """Every case leaves the same bits with tiles and without, for sizes below, at and above a tile."""
    library = build(cases, folder)
    for number, (nest, tiles) in enumerate(cases):
        for n, m in ((0, 3), (1, 1), (7, 5), (8, 13)):
            values = {"n": n, "m": m}
            plain = results(library, f"plain_{number}", values, number)
            tiled = results(library, f"tiled_{number}", values, number)
            assert np.array_equal(plain, tiled), f"{tiles} at {values} of\n{nest.text}\n{nest.found.text}"
