"""``#pragma tuner tile``: accepted nests leave the same bits, others are refused with the reason."""

import ctypes
import itertools
import random
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from host_compile import COMPILER

from tuner.kernel_files.pragmas.expansion import Expansion, expansion
from tuner.model.errors import KernelFileError

# --- Nests of loops with tiles, run on the host with and without them: the results are to be the same bits.

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


# --- The laws.

# ruff: noqa: E501, ISC004 - a nest stands on as few lines as it can be read on


T = "#pragma tuner tile"
NESTS, CASES = 1_500, 60
ROWS = "for (int i = 0; i < n; ++i)\n for (int j = 0; j < m; ++j)"
LEGAL = {
    "one loop": f"{T} i values 4\nfor (int i = 0; i < n; ++i) a[i] += a[i - 1];",
    "outermost, carried scalar": (
        f"float t = 0;\n{T} i values 4\nfor (int i = 0; i < n; ++i) {{ t += b[i]; a[i] = t; }}"
    ),
    "outermost, counter changed": (
        f"{T} i values 4\nfor (int i = 0; i < n; ++i) {{ a[i] = b[i]; if (b[i] > 0.5f) i += 2; }}"
    ),
    "outermost, counter changed through a reference": (
        f"{T} i values 4\nfor (int i = 0; i < n; ++i) {{ int& r = i; a[r] = 1; if (b[r] > 0.5f) r += 3; }}"
    ),
    "outermost, bound changed": (
        f"int e = n;\n{T} i values 4\nfor (int i = 0; i < e; ++i) {{ a[i] = e; if (i == 2) e = m; }}"
    ),
    "outermost, continue and an inner break": (
        f"{T} i values 4\nfor (int i = 0; i < n; ++i) {{ if (b[i] > 0.7f) continue;"
        " for (int j = 0; j < m; ++j) { if (b[j] < 0.2f) break; a[i] += b[j]; } }"
    ),
    "outermost, return": (
        f"{T} i values 4\nfor (int i = 0; i < n; ++i) {{ if (b[i] > 0.9f) return; a[i] = 3; }}"
    ),
    "outermost, negative first against unsigned bound": (
        f"{T} i values 4\nfor (int i = -3; i < u; ++i) a[i] = 2;"
    ),
    "outermost, steps of blocks": (
        f"{T} i values 4\nfor (int i = threadIdx.x; i < n; i += blockDim.x * gridDim.x) a[i] = a[i + 1];"
    ),
    "outermost in a lambda": (
        f"auto f = [&] {{\n{T} i values 3\nfor (int i = 0; i < n; ++i) a[i] = i;\n}}; f();"
    ),
    "outermost under a condition without brackets": (
        f"if (n > 4)\n{T} i values 3\nfor (int i = 0; i < n; ++i) a[i] = i;\nelse a[0] = 7;"
    ),
    "inner loop, two dimensions": (f"{T} j values 4\n{ROWS} a[i * m + j] = b[j * n + i];"),
    "inner loop, factors turned": f"{T} j values 4\n{ROWS} a[j + m * i] = b[i];",
    "both loops": f"{T} i values 4\n{T} j values 4\n{ROWS} a[i * m + j] *= b[j * n + i];",
    "both loops, other order": f"{T} j values 4\n{T} i values 4\n{ROWS} a[i * m + j] *= b[j * n + i];",
    "sum over the inner loop": f"{T} j values 4\n{ROWS} a[i] += b[i * m + j];",
    "sum over the outer loop": f"{T} j values 4\n{ROWS} a[j] += b[i * m + j];",
    "sum over the outer loop, both tiled": f"{T} i values 4\n{T} j values 4\n{ROWS} a[j] += b[i * m + j];",
    "offset from the counter": f"{T} j values 4\n{ROWS} a[j + q - 1] += b[i];",
    "matrix product, three tiles": (
        f"{T} i values 4\n{T} j values 4\n{T} k values 4\n{ROWS}\n"
        "  for (int k = 0; k < 6; ++k) a[i * m + j] += b[i * 6 + k] * b[k * m + j];"
    ),
    "body with conditions and numbers of its own": (
        f"{T} j values 4\n{ROWS} {{ const float t = b[j]; float v = 1; if (t > 0.5f) v = fmaf(t, 2.0f, v);"
        " else v -= t; a[i * m + j] = v; }"
    ),
    "body with a loop of its own": (
        f"{T} j values 4\n{ROWS} {{ float t = 0; for (int k = 0; k < 5; k++) t += b[k * m + j];"
        " a[i * m + j] = t; }"
    ),
    "array of the function": (
        f"float t[16][32];\n{ROWS} t[i][j] = b[i + j];\n{T} j values 4\n{ROWS} t[i][j] += t[i][j] * b[i];\n"
        f"{ROWS} a[i * m + j] = t[i][j];"
    ),
    "long and size_t counters": (
        f"{T} j values 4\nfor (long long i = 0; i < w; ++i)\n for (size_t j = 0; j < s; ++j)"
        " a[i * s + j] = b[j];"
    ),
    "unsigned counter": (
        f"{T} j values 4\nfor (unsigned i = 0; i < n; ++i)\n for (unsigned j = 0; j < u; ++j) a[j] += b[i];"
    ),
    "unsigned counter from a difference": (
        f"{T} j values 4\nfor (int i = 0; i < 2; ++i)\n for (unsigned j = u - 1u; j < n; ++j) a[j] += b[i];"
    ),
    "steps in the inner loop": (
        f"{T} j values 4\nfor (int i = 0; i < n; i += 2)\n for (int j = 1; j <= m; j += 3) a[j] += b[i];"
    ),
    "comments and unroll pragmas between": (
        f"{T} j values 4\nfor (int i = 0; i < n; ++i) {{ // rows\n  /* columns */\n#pragma unroll\n"
        "  for (int j = 0; j < m /* all */; ++j) { a[j] += b[i]; } }"
    ),
    "a macro that is a number": f"#define ROWS (6)\n{T} j values 4\n{ROWS} a[i * 6 + j % 6] = 1;".replace(
        "a[i * 6 + j % 6] = 1", "a[j + ROWS] += b[i * ROWS]"
    ),
    "minimum as a bound": (
        f"{T} j values 4\nfor (int i = 0; i < n; ++i)\n for (int j = 0; j < min(m, 9); ++j) a[j] += b[i];"
    ),
    "one array alone, no restrict": f"{T} j values 4\n{ROWS} c[j] = c[j] * 0.5f + i;",
}


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
def test_legal_tiles_keep_every_bit(tmp_path: Path) -> None:
    """Thirty nests leave the same bits with tiles below, of and above their sizes."""
    found = [nest_of(kernel_with(body)) for body in LEGAL.values()]
    cases = [(nest, tiles) for nest in found for tiles in sizes_of(nest, (1, 3))]
    assert_same([*cases, *((nest, dict.fromkeys(nest.tunables, 64)) for nest in found)], tmp_path)
    assert all("tuner_" in nest.found.text for nest in found)


def random_nest(numbers: random.Random) -> str:
    """Statements with tiles above a nest of up to three loops, many of which no tile may change."""
    counters = "ijk"[: numbers.choice((1, 2, 2, 3, 3))]
    types = {
        one: numbers.choice(("int", "int", "int", "unsigned", "long long", "size_t", "short"))
        for one in counters
    }
    limits = ("n", "m", "m", "q", "u", "5", "min(n, 4)", "w")
    bounds = {one: numbers.choice((*limits, *(["n - 1"] if types[one] == "int" else []))) for one in counters}
    wraps = (
        "unsigned" in types.values() or "u" in bounds.values()
    )  # negative numbers are far out of the arrays
    tiled = numbers.sample(counters, numbers.randint(1, len(counters)))
    lines = [f"{T} {one} values 2, 3" for one in tiled]
    for one in counters:
        first = numbers.choice(
            ("0", "0", "0", "0", "1", "q", *([] if wraps else ["-1", "threadIdx.x", "n - 2"]))
        )
        step = numbers.choice((f"++{one}", f"{one}++", f"{one} += 2", f"{one} += blockDim.x"))
        sign = numbers.choice(("<", "<", "<", "<="))
        lines.append(f"for ({types[one]} {one} = {first}; {one} {sign} {bounds[one]}; {step})")

    def index() -> str:
        one, other = numbers.choice(counters), numbers.choice(counters)
        return numbers.choice(
            (
                one,
                one,
                f"{one} + {numbers.choice(('1', 'q', 'n'))}",
                f"{one} {'+' if wraps else '-'} 1",
                f"{one} * {bounds[other]} + {other}",
                f"{one} * {bounds[other]} + {other}",
                f"{other} + {numbers.choice(('n', 'm', '7', 'q'))} * {one}",
                f"{one} + {other}",
                f"{one} * 2",
                f"{one} % 3",
                "q",
            )
        )

    same = index()

    def place() -> str:
        return same if numbers.random() < 0.8 else index()

    parts = []
    for _ in range(numbers.randint(1, 3)):
        array = numbers.choice("aaac")
        value = numbers.choice(
            (f"b[{index()}]", f"a[{place()}]", f"c[{place()}]", numbers.choice(counters), "t")
        )
        sign = numbers.choice(("=", "+=", "*=", "-="))
        parts.append(f"{array}[{place()}] {sign} {value} * 0.5f + {numbers.choice(counters)};")
    local = numbers.choice(("", "", f"float t = b[{index()}]; t += 0.5f;"))
    return "\n".join(["float t = 1;" if not local else "", *lines, f"{{ {local} {' '.join(parts)} }}"])


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
def test_random_nests_that_are_accepted_keep_every_bit(tmp_path: Path) -> None:
    """Of 1,500 random nests, those whose tiles are accepted leave the same bits; no other error occurs."""
    numbers = random.Random(18)  # noqa: S311 - nothing is secret
    accepted: list[Nest] = []
    for _ in range(NESTS):
        text = kernel_with(random_nest(numbers))
        try:
            accepted.append(nest_of(text))
        except KernelFileError as e:
            assert "#pragma tuner tile: " in str(e)  # noqa: PT017 - every refusal is about the tile
    several = [nest for nest in accepted if nest.text.count(T) > 1 or "long long tuner" in nest.found.text]
    assert len(several) > CASES
    cases = [(nest, tiles) for nest in several for tiles in numbers.sample(sizes_of(nest, (1, 2, 3, 5)), 1)]
    assert_same(cases[:CASES], tmp_path)


ILLEGAL = {  # nest, and what the message says
    "writes the element of the next iteration": (f"{T} j values 4\n{ROWS} a[i + j] = b[j];", "order of writes to a"),
    "reads another column": (f"{T} j values 4\n{ROWS} a[j] = a[j + 1] + i;", "order of writes to a"),
    "row pitch is not the bound": (f"{T} i values 4\n{T} j values 4\n{ROWS} a[i * q + j] += b[j] * i;", "order of writes to a"),
    "columns begin at 1": (f"{T} i values 4\n{T} j values 4\nfor (int i = 0; i < n; ++i)\n for (int j = 1; j < m; ++j) a[i * m + j] = j;", "order of writes to a"),
    "columns include the bound": (f"{T} i values 4\n{T} j values 4\nfor (int i = 0; i < n; ++i)\n for (int j = 0; j <= m; ++j) a[i * m + j] = j;", "order of writes to a"),
    "rows wrap around": (f"{T} i values 4\n{T} j values 4\nfor (unsigned i = 0; i < n; ++i)\n for (int j = 0; j < m; ++j) a[i * m + j] = j;", "order of writes to a"),
    "pitch wraps around": (f"{T} i values 4\n{T} j values 4\nfor (int i = 0; i < n; ++i)\n for (int j = 0; j < u; ++j) a[i * u + j] = j;", "order of writes to a"),
    "one element for all": (f"{T} j values 4\n{ROWS} a[0] = a[0] * 2 + b[i + j];", "order of writes to a"),
    "scatter": (f"{T} j values 4\n{ROWS} a[int(b[j])] = i;", "may do more"),
    "index of the body": (f"{T} j values 4\n{ROWS} {{ int t = j / 2; a[t] = i; }}", "order of writes to a"),
    "product of counters": (f"{T} j values 4\n{ROWS} a[i * j] = j;", "order of writes to a"),
    "carried scalar": (f"float t = 0;\n{T} j values 4\n{ROWS} t += b[j];", "t is carried"),
    "scalar of the same name within": (f"float t = 0;\n{T} j values 4\n{ROWS} {{ {{ float t = 1; a[j] = t; }} t += b[j]; }}", "t has another meaning"),
    "break": (f"{T} i values 4\nfor (int i = 0; i < n; ++i) {{ if (b[i] > 0.5f) break; a[i] = 1; }}", "break in line"),
    "break of an inner loop": (f"{T} j values 4\n{ROWS} {{ if (b[j] > 0.5f) break; a[j] = i; }}", "break in line"),
    "goto": (f"{T} i values 4\nfor (int i = 0; i < n; ++i) {{ if (b[i] > 0.5f) goto out; }}\nout: a[0] = 1;", "goto"),
    "break in a macro": (f"#define STOP break\n{T} i values 4\nfor (int i = 0; i < n; ++i) {{ a[i] = 1; STOP; }}", "macro STOP leaves"),
    "break behind two macros": (f"#define OUT(x) if (x) break\n#define STOP(x) OUT(x)\n{T} i values 4\n" "for (int i = 0; i < n; ++i) { STOP(b[i] > 1); }", "macro STOP leaves"),
    "a macro of a header": (f"{T} i values 4\nfor (int i = 0; i < n; ++i) {{ STOP_NOW; }}", "STOP_NOW in line 15 may"),
    "bound that changes": (f"int e = m;\n{T} j values 4\nfor (int i = 0; i < n; ++i)\n for (int j = 0; j < e; ++j) {{ a[j] = 1; e = 3; }}", "e is carried"),
    "bound of the outer counter": (f"{T} j values 4\nfor (int i = 0; i < n; ++i)\n for (int j = 0; j < i; ++j) a[j] += 1;", "i in the bounds of j"),
    "bound that is called": (f"{T} i values 4\nfor (int i = 0; i < next(n); ++i) a[i] = 1;", "the bounds of i are not plain"),
    "bound in memory": (f"{T} i values 4\nfor (int i = 0; i < b[0]; ++i) a[i] = 1;", "the bounds of i are not plain"),
    "bound by a macro that does more": (f"#define LIMIT m++\n{T} i values 4\nfor (int i = 0; i < LIMIT; ++i) a[i] = 1;", "the bounds of i are not plain"),
    "bound is a reference": (f"int& e = m;\n{T} j values 4\nfor (int i = 0; i < n; ++i)\n for (int j = 0; j < e; ++j) a[j] = i;", "is not seen to be a number"),
    "bound is shared": (f"__shared__ int e;\n{T} j values 4\nfor (int i = 0; i < n; ++i)\n for (int j = 0; j < e; ++j) a[j] = i;", "is not seen to be a number"),
    "index through a reference into memory": (f"const int& e = n;\n{T} j values 4\n{ROWS} a[j + e] = b[i];", "is not seen to be a number"),
    "signed counter, unsigned bound": (f"{T} j values 4\nfor (int i = 0; i < n; ++i)\n for (int j = -2; j < u; ++j) a[j] = i;", "j has a sign and u none"),
    "macro that is a counter": (f"#define I i\n{T} j values 4\n{ROWS} a[I + j] = b[i];", "the macro I is more than a number"),
    "macro with two bodies": (f"#define W 3\n#undef W\n#define W i\n{T} j values 4\n{ROWS} a[W + j] = b[i];", "the macro W is more than a number"),
    "macro that writes": (f"#define SET(x) a[0] = x\n{T} j values 4\n{ROWS} {{ SET(j); }}", "the macro SET is more than a number"),
    "call": (f"{T} j values 4\n{ROWS} {{ __syncthreads(); a[j] = 1; }}", "may do more"),
    "atomic addition": (f"{T} j values 4\n{ROWS} atomicAdd(a, b[j]);", "may do more"),
    "may overlap": (f"{T} j values 4\n{ROWS} c[j] = b[j + i];", "c may overlap"),
    "pointer of the function": (f"float* p = c;\n{T} j values 4\n{ROWS} a[j] = p[i];", "where p leads to"),
    "pointer from a written array": (f"const float* p = a + 1;\n{T} j values 4\n{ROWS} a[j] = p[j];", "where p leads to"),
    "parameter that is assigned to": (f"c = a + 1;\n{T} j values 4\n{ROWS} a[j] = c[j];", "where c leads to"),
    "index and array changed places": (f"{T} j values 4\n{ROWS} a[j] = q[a];", "is no array"),
    "pointer followed": (f"{T} j values 4\n{ROWS} *(a + j) = i;", "it is not clear what is assigned to"),
    "array in the nest": (f"{T} j values 4\n{ROWS} {{ float t[2]; t[0] = j; a[j] = t[0]; }}", "only plain numbers"),
    "static in the nest": (f"{T} j values 4\n{ROWS} {{ static int t = 0; t += 1; a[j] = t; }}", "only plain numbers"),
    "type that is not known": (f"{T} j values 4\n{ROWS} {{ Guard g(b[j]); a[j] = i; }}", "no type of numbers"),
    "inline assembly": (f'{T} j values 4\n{ROWS} {{ asm volatile("" ::: "memory"); a[j] = 1; }}', "array elements only"),
    "while in the nest": (f"{T} j values 4\n{ROWS} {{ while (b[j] < 0) {{ a[j] = 1; }} }}", "array elements only"),
    "two loops side by side": (f"{T} j values 4\nfor (int i = 0; i < n; ++i) {{ for (int j = 0; j < m; ++j) a[j] = 1; a[i] = 2; }}", "no loop over j is perfectly nested"),
    "no such counter": (f"{T} z values 4\n{ROWS} a[j] = 1;", "no loop over z is perfectly nested below it"),
    "tiled twice": (f"{T} i values 4\n{T} B: i values 8\n{ROWS} a[j] = 1;", "tiled twice"),
    "the same counter twice": (f"{T} j values 4\nfor (int i = 0; i < n; ++i)\n for (int i = 0; i < m; ++i) a[i] = 1;", "two loops of the nest have the counter i"),
    "downwards": (f"{T} i values 4\nfor (int i = n; i > 0; --i) a[i] = 1;", "has not the form for"),
    "negative step": (f"{T} i values 4\nfor (int i = 0; i < n; i += -1) a[i] = 1;", "has not the form for"),
    "two counters": (f"{T} i values 4\nfor (int i = 0, j = 0; i < n; ++i) a[i] = j;", "has not the form for"),
    "counter from outside": (f"int i;\n{T} i values 4\nfor (i = 0; i < n; ++i) a[i] = 1;", "has not the form for"),
    "two conditions": (f"{T} i values 4\nfor (int i = 0; i < n && i < m; ++i) a[i] = 1;", "has not the form for"),
    "floating counter": (f"{T} i values 4\nfor (float i = 0; i < n; ++i) a[int(i)] = 1;", "has not the form for"),
    "no loop": (f"{T} i values 4\na[0] = 1;", "a for loop must stand below it"),
    "alternatives in the nest": (f"{T} j values 4\n{ROWS} {{\n#pragma tuner select F\n#pragma tuner case one\na[j] = 1;\n" "#pragma tuner case two\na[j] = 2;\n#pragma tuner end\n}", "#pragma tuner select stands in the nest"),
    "in a lambda": (f"auto f = [&](float* a) {{\n{T} j values 4\n{ROWS} a[j] = b[i];\n}};", "in lambdas only the outermost"),
    "a name that is taken": (f"int tile_i = 0;\n{T} i values 4\nfor (int i = 0; i < n; ++i) a[i] = 1;", "has the name tile_i"),
}  # fmt: skip


@pytest.mark.parametrize("case", ILLEGAL)
def test_tiles_that_are_not_proved_are_refused(case: str) -> None:
    """The message has the line of the pragma and says what is in the way."""
    body, why = ILLEGAL[case]
    text = kernel_with(body)
    line = max(number for number, one in enumerate(text.splitlines(), 1) if one.startswith(T))
    with pytest.raises(KernelFileError, match=re.escape(why)) as refused:
        nest_of(text)
    assert re.match(
        rf"nest\.cu, line ({line}|{line - 1}), column 1: #pragma tuner tile: ", str(refused.value)
    )


@pytest.mark.parametrize(
    ("before", "body", "why"),
    [
        ("struct half { float v; };\n", f"{T} j values 4\n{ROWS} {{ half t = 1; a[j] = i; }}", "only plain numbers"),
        ("__device__ float fabsf(float);\n", f"{T} j values 4\n{ROWS} a[j] = fabsf(b[i]);", "may do more"),
        ("#define fabsf(x) (a[0] = (x))\n", f"{T} j values 4\n{ROWS} a[j] = fabsf(b[i]);", "the macro fabsf is"),
        ("__device__ int e;\n", f"{T} j values 4\n{ROWS} a[j + e] = b[i];", "is not seen to be a number"),
        ("__device__ float g[9];\n", f"{T} j values 4\n{ROWS} {{ g[j] = b[i]; a[j] = 1; }}", "where g leads to"),
        ("using real = int*;\n", f"{T} j values 4\n{ROWS} {{ real t = 0; a[j] = 1; }}", "only plain numbers"),
    ],
)  # fmt: skip
def test_names_of_the_file_are_looked_up(before: str, body: str, why: str) -> None:
    """A name is what the file makes of it, not what it usually is."""
    with pytest.raises(KernelFileError, match=re.escape(why)):
        nest_of(kernel_with(body, before))


def test_extern_shared_arrays_and_moved_pointers_may_overlap() -> None:
    """All ``extern __shared__`` arrays are one; a parameter may be changed through a reference to it."""
    shared = f"extern __shared__ float e[];\n{T} j values 4\n{ROWS} e[j] = b[j];"
    with pytest.raises(KernelFileError, match="where e leads to"):
        nest_of(kernel_with(shared))
    moves = "__device__ void move(const float*& p, const float* q) { p = q; }\n"
    with pytest.raises(KernelFileError, match=r"where [ab] leads to"):
        nest_of(kernel_with(f"move(b, a + 1);\n{T} j values 4\n{ROWS} a[j] = b[j];", moves))
