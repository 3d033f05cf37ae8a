# ruff: noqa: E501 - files stand on as few lines as they can be read on
"""CUDA files with tuning pragmas, each with the kernel.toml and the source that a person would write."""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.compiler.compiler import CompiledStage
from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import CompileError
from tuner.model.plan import Configuration, Stage

FIRST = """\
#pragma tuner problem(N = [1024])
#pragma tuner input x: float32[N]
#pragma tuner output y: float32[N]
#pragma tuner check y = 2 * x
"""
TOML = """\
[kernel]
source = "hand.cu"
entry = "{entry}"
[problem]
sizes = {{ N = [1024] }}
reference = {{ y = "2 * x" }}
[arguments]
x = "in float32[N]"
y = "out float32[N]"
N = "int32 = N"
{rest}"""


@dataclass(frozen=True)
class Pair:
    """A file with pragmas, and the same kernel by hand.

    Attributes:
        pragmas: the file with pragmas.
        source: by hand.
        entry: of the kernel file by hand.
        rest: its tables of tunables and launches.
        changed: whether the default is not what the file has without pragmas, as ``#pragma unroll 1``.
    """

    pragmas: str
    source: str
    entry: str
    rest: str
    changed: bool = False

    def files(self, folder: Path) -> tuple[KernelFile, KernelFile]:
        """Both as kernel files."""
        (folder / "k.cu").write_text(FIRST + self.pragmas)
        (folder / "hand.cu").write_text(self.source)
        (folder / "hand.toml").write_text(TOML.format(entry=self.entry, rest=self.rest))
        return load_kernel_file(folder / "k.cu"), load_kernel_file(folder / "hand.toml")


def configurations(kernel: KernelFile) -> Iterator[Configuration]:
    """All configurations of a kernel that its rules allow."""
    workload = kernel.workloads()[0]
    for row in itertools.product(*kernel.tunables.values()):
        found = kernel.allowed(workload, dict(zip(kernel.tunables, row, strict=True)))
        if found is not None:
            yield found


def stages_of(kernel: KernelFile, found: Sequence[Configuration]) -> list[Stage]:
    """The first launch of each configuration."""
    workload = kernel.workloads()[0]
    return [kernel.plan(workload, one).stages[0] for one in found]


def without_pragmas(text: str) -> str:
    """A source with empty lines for its tuning pragmas."""
    return re.sub(
        r"^[ \t]*#[ \t]*pragma[ \t]+(?:tuner|erange|range|kernel)\b(?:\\\n|[^\n])*",
        lambda match: "\n" * match[0].count("\n"),
        text,
        flags=re.MULTILINE,
    )


def blanked(stage: Stage, text: str) -> Stage:
    """A launch of the source without pragmas, no macro given."""
    return replace(stage, source=replace(stage.source, text=without_pragmas(text)), options=())


def numbered(text: str) -> dict[int, list[str]]:
    """The lines of a source by the numbers that ``#line`` gives them."""
    shown: dict[int, list[str]] = {}
    number = 0
    for one in text.split("\n"):
        number += 1
        if match := re.match(r"#line (\d+)", one):
            number = int(match[1]) - 1
        shown.setdefault(number, []).append(one)
    return shown


def cubins(results: Sequence[CompiledStage | CompileError]) -> list[bytes]:
    """The cubins; all must compile."""
    assert all(isinstance(one, CompiledStage) for one in results), [
        str(one) for one in results if not isinstance(one, CompiledStage)
    ][:1]
    return [one.cubin for one in results if isinstance(one, CompiledStage)]


KERNEL = "__global__ void k(const float* __restrict__ x, float* __restrict__ y, int N) {"
PAIRS = {
    "macro": Pair(
        "#pragma tuner erange 64, 512, 2\n#define L 256\n#pragma tuner constraint L < 512\n"
        f"#pragma tuner launch grid(ceil_div(N, L)) block(L)\n{KERNEL}\n"
        "  int i = blockIdx.x * L + threadIdx.x;\n  if (i < N) y[i] = 2 * x[i];\n}\n",
        f"{KERNEL}\n  int i = blockIdx.x * L + threadIdx.x;\n  if (i < N) y[i] = 2 * x[i];\n}}\n",
        "k",
        "[tunables]\nL = [64, 128, 256, 512]\n[default]\nL = 256\n[constraints]\nrules = ['L < 512']\n"
        "[launch]\ngrid = 'ceil_div(N, L)'\nblock = 'L'\n",
    ),
    "macro that the source leaves room for": Pair(
        "#pragma tuner values 1, 2, 4\n#ifndef V\n#define V 2 // vectors\n#endif\n"
        f"#pragma tuner launch grid(ceil_div(N, 64 * V)) block(64)\n{KERNEL}\n  for (int v = 0; v < V; ++v)"
        " y[(blockIdx.x * V + v) * 64 + threadIdx.x] = 2 * x[(blockIdx.x * V + v) * 64 + threadIdx.x];\n}\n",
        f"{KERNEL}\n  for (int v = 0; v < V; ++v)"
        " y[(blockIdx.x * V + v) * 64 + threadIdx.x] = 2 * x[(blockIdx.x * V + v) * 64 + threadIdx.x];\n}\n",
        "k",
        "[tunables]\nV = [1, 2, 4]\n[default]\nV = 2\n"
        "[launch]\ngrid = 'ceil_div(N, 64 * V)'\nblock = 64\n",
    ),
    "constant and the paper's pragma": Pair(
        "#pragma range 1, 3, 1\nconstexpr int P = 2;\n#pragma erange 32, 64, 2\nconst unsigned L{32};\n".replace(
            "L{32}", "L = 32u"
        )
        + f"#pragma tuner launch grid(ceil_div(N, L * P)) block(L)\n{KERNEL}\n  for (int p = 0; p < P; ++p) {{\n"
        "    unsigned i = (blockIdx.x * P + p) * L + threadIdx.x;\n    if (i < N) y[i] = 2 * x[i];\n  }\n}\n",
        f"constexpr int P = A;\nconst unsigned L = B;\n{KERNEL}\n  for (int p = 0; p < P; ++p) {{\n"
        "    unsigned i = (blockIdx.x * P + p) * L + threadIdx.x;\n    if (i < N) y[i] = 2 * x[i];\n  }\n}\n",
        "k",
        "[tunables]\nA = [1, 2, 3]\nB = [32, 64]\n[default]\nA = 2\nB = 32\n"
        "[launch]\ngrid = 'ceil_div(N, B * A)'\nblock = 'B'\n",
    ),
    "template": Pair(
        "#pragma tuner values FAST: true, false\n#pragma tuner range P: 1, 2\n"
        "template <typename T, int P = 1, bool FAST = true>\n"
        "#pragma tuner launch grid(ceil_div(N, 64 * P)) block(64)\n"
        "__global__ void k(const T* x, T* y, int N) {\n  for (int p = 0; p < P; ++p) {\n"
        "    int i = (blockIdx.x * P + p) * 64 + threadIdx.x;\n"
        "    if (i < N) y[i] = FAST ? x[i] + x[i] : T(2) * x[i];\n  }\n}\n",
        "template <typename T, int P, bool FAST>\n"
        "__global__ void k(const T* x, T* y, int N) {\n  for (int p = 0; p < P; ++p) {\n"
        "    int i = (blockIdx.x * P + p) * 64 + threadIdx.x;\n"
        "    if (i < N) y[i] = FAST ? x[i] + x[i] : T(2) * x[i];\n  }\n}\n",
        "k<float, {P}, {FAST}>",
        "[tunables]\nFAST = [true, false]\nP = [1, 2]\n[default]\nFAST = true\nP = 1\n"
        "[launch]\ngrid = 'ceil_div(N, 64 * P)'\nblock = 64\n",
    ),
    "alternatives": Pair(
        f"#pragma tuner launch grid(ceil_div(N, 64)) block(64)\n{KERNEL}\n"
        "  int i = blockIdx.x * 64 + threadIdx.x;\n  if (i >= N) return;\n"
        "#pragma tuner select FORM\n#pragma tuner case sum\n  y[i] = x[i] + x[i];\n#pragma tuner case loop\n"
        "#pragma tuner values 1, 2\n  constexpr int R = 2;\n"
        "  float t = 0;\n  for (int r = 0; r < R; ++r) t += x[i];\n  y[i] = t;\n#pragma tuner end\n}\n",
        f"{KERNEL}\n  int i = blockIdx.x * 64 + threadIdx.x;\n  if (i >= N) return;\n#if LOOP\n  float t = 0;\n"
        "  for (int r = 0; r < R; ++r) t += x[i];\n  y[i] = t;\n#else\n  y[i] = x[i] + x[i];\n#endif\n}\n",
        "k",
        "[tunables]\nFORM = ['sum', 'loop']\nR = { values = [1, 2], when = \"FORM == 'loop'\", otherwise = 2 }\n"
        "[default]\nFORM = 'sum'\nR = 2\n"
        "[launch]\ngrid = 'ceil_div(N, 64)'\nblock = 64\n",
    ),
    "unrolled loop": Pair(
        f"#pragma tuner launch grid(ceil_div(N, 64)) block(64)\n{KERNEL}\n"
        "  int i = blockIdx.x * 64 + threadIdx.x;\n  float t = 0;\n"
        "#pragma tuner unroll U: values 1, 4\n  for (int r = 0; r < N; ++r) t = t * x[r] + 1;\n"
        "  if (i < N) y[i] = t;\n}\n",
        f"{KERNEL}\n  int i = blockIdx.x * 64 + threadIdx.x;\n  float t = 0;\n"
        "#pragma unroll U\n  for (int r = 0; r < N; ++r) t = t * x[r] + 1;\n  if (i < N) y[i] = t;\n}\n",
        "k",
        "[tunables]\nU = [1, 4]\n[default]\nU = 1\n[launch]\ngrid = 'ceil_div(N, 64)'\nblock = 64\n",
        changed=True,
    ),
    "tiles": Pair(
        f"#pragma tuner launch grid(1) block(1)\n{KERNEL}\n"
        "#pragma tuner tile S: i 4, 8\n  for (int i = 0; i < N; ++i) y[i] = x[i];\n"
        "#pragma tuner tile j values 4, 16\n  for (int i = 0; i < 8; ++i)\n"
        "    for (int j = 0; j < N; ++j) y[j] += x[i] * x[j];\n}\n",
        f"{KERNEL}\n  for (int i = 0; i < N;)\n    for (int t = i; i < N && i - t < S; ++i) y[i] = x[i];\n"
        "  for (long long t = 0; t < N; t += tile_j)\n    for (int i = 0; i < 8; ++i)\n"
        "      for (int j = t; j < N && j - t < tile_j; ++j) y[j] += x[i] * x[j];\n}\n",
        "k",
        "[tunables]\nS = [4, 8]\ntile_j = [4, 16]\n[default]\nS = 4\ntile_j = 4\n[launch]\ngrid = 1\nblock = 1\n",
        changed=True,
    ),
}  # fmt: skip
