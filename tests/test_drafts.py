"""Drafts of ``tuner kernels new`` against right launches, for sources as public projects have them."""

import re
from pathlib import Path
from typing import Any

import pytest
import tomllib
from click.testing import CliRunner

from tuner.cli.main import main
from tuner.compiler.compiler import compiled_for
from tuner.compiler.contract import misfit
from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.draft_code import Answer
from tuner.kernel_files.drafting import drafted as draft_of
from tuner.kernel_files.source_checks import unseen_guesses
from tuner.model.errors import CompileError, InputError
from tuner.model.plan import Plan, Scalar

FOLDER = Path(__file__).parent / "data" / "drafts"
LAUNCHES: dict[str, dict[str, Any]] = tomllib.loads((FOLDER / "launches.toml").read_text())
MOST_PLANS = 200
LEAST_RIGHT = 24


def drafted(folder: Path, name: str, kernel: str | None) -> Path:
    source = folder / f"{name}.cu"
    source.write_text((FOLDER / source.name).read_text())
    words = ["--kernel", kernel] if kernel else []
    result = CliRunner().invoke(main, ["kernels", "new", str(source), *words])
    assert result.exit_code == 0, result.output
    return source.with_suffix(".toml")


def with_sizes(text: str, wanted: dict[str, int]) -> str:
    """A kernel file with other sizes: those at which its parameters, or macros, have some values."""
    for parameter, value in wanted.items():
        found = re.search(rf'^{parameter} = "u?int(?:32|64) = (\w+)"', text, re.MULTILINE)
        name = found[1] if found else parameter
        text = re.sub(rf"^sizes\.{name} = \[\d+\]", f"sizes.{name} = [{value}]", text, flags=re.MULTILINE)
    return text


def names_of(plan: Plan, parameters: dict[str, int]) -> dict[str, object]:
    """Everything that a rule of ``launches.toml`` may name."""
    (stage,) = plan.stages
    named: dict[str, object] = {**parameters, "cdiv": lambda a, b: -(-a // b), "shared": stage.shared_bytes}
    named |= dict(zip(("gx", "gy", "gz"), stage.grid, strict=True))
    named |= dict(zip(("bx", "by", "bz"), stage.block, strict=True))
    return (
        named
        | {f"len_{buffer.name.removesuffix('_')}": buffer.elements for buffer in plan.buffers}
        | {f"len_{buffer.name}": buffer.elements for buffer in plan.buffers}
    )


def trouble(name: str, folder: Path) -> tuple[str, int]:
    """What is wrong with the draft of a source, empty if nothing is, and the guesses that it marks."""
    case = LAUNCHES[name]
    file = drafted(folder, name, case.get("kernel"))
    text = file.read_text()
    guesses = unseen_guesses(file).count(",") + bool(unseen_guesses(file))
    parameters = case.get("sizes", {})
    file.write_text(with_sizes(text, parameters))
    try:
        kernel = load_kernel_file(file)
        workload = kernel.workloads()[0]
        space = kernel.space(workload)
        default = kernel.default(workload)
    except InputError as error:
        return str(error), guesses
    shown = [space[i * len(space) // min(len(space), MOST_PLANS)] for i in range(min(len(space), MOST_PLANS))]
    for configuration in [default, *shown]:
        plan = kernel.plan(workload, configuration)
        scope = {**case.get("defaults", {}), **names_of(plan, parameters), **configuration}
        try:
            right = eval(case["right"], {"__builtins__": {}}, scope)  # noqa: S307 - of this repository
        except NameError as error:
            return str(error), guesses
        passed = {a for a in plan.stages[0].arguments if isinstance(a, Scalar)}
        if not right:
            return (
                f"{plan.label()}: grid {plan.stages[0].grid} block {plan.stages[0].block} {passed}",
                guesses,
            )
    plan = kernel.plan(workload, default)
    (code,) = compiled_for({"sm_90": plan.stages})["sm_90"]
    return (str(code) if isinstance(code, CompileError) else misfit(plan, plan.stages[0], code)), guesses


@pytest.fixture(scope="module")
def troubles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, int]]:
    folder = tmp_path_factory.mktemp("drafts")
    return {name: trouble(name, folder) for name in LAUNCHES}


def test_most_drafts_launch_rightly(troubles: dict[str, tuple[str, int]]) -> None:
    """Unedited, at other sizes than they state, in every configuration; the others say what they guess."""
    wrong = {name: text for name, (text, _) in troubles.items() if text}

    assert len(LAUNCHES) - len(wrong) >= LEAST_RIGHT, wrong
    assert [name for name in wrong if not troubles[name][1]] == []


TILED = """
__global__ void __launch_bounds__(TILE * TILE)
f(const float* A, const float* B, float* C, int M, int N, int K) {
    __shared__ float a[TILE][TILE], b[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int t = 0; t < (K + TILE - 1) / TILE; ++t) {
        int i = t * TILE + threadIdx.x, j = t * TILE + threadIdx.y;
        a[threadIdx.y][threadIdx.x] = row < M && i < K ? A[row * K + i] : 0;
        b[threadIdx.y][threadIdx.x] = j < K && col < N ? B[j * N + col] : 0;
        __syncthreads();
        for (int k = 0; k < TILE; ++k) sum += a[threadIdx.y][k] * b[k][threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = sum;
}"""
SQUARE = """
#define T 16
__global__ void f(const float* A, const float* B, float* C, int width) {
    __shared__ float a[T][T], b[T][T];
    int bx = blockIdx.x, by = blockIdx.y, tx = threadIdx.x, ty = threadIdx.y;
    int row = by * T + ty, col = bx * T + tx;
    float sum = 0;
    for (int p = 0; p < width / T; ++p) {
        a[ty][tx] = A[row * width + p * T + tx];
        b[ty][tx] = B[(p * T + ty) * width + col];
        __syncthreads();
        for (int k = 0; k < T; ++k) sum += a[ty][k] * b[k][tx];
        __syncthreads();
    }
    C[row * width + col] = sum;
}"""
HALO = """
__global__ void f(const double* in, double* out, int nx, int ny) {
    __shared__ double tile[BY + 1][BX];
    int x = blockIdx.x * BX + threadIdx.x, y = blockIdx.y * BY + threadIdx.y;
    if (x >= nx || y >= ny) return;
    tile[threadIdx.y][threadIdx.x] = in[y * nx + x];
    if (threadIdx.y < 1) tile[threadIdx.y + BY][threadIdx.x] = y + BY < ny ? in[(y + BY) * nx + x] : 0.0;
    __syncthreads();
    out[y * nx + x] = tile[threadIdx.y][threadIdx.x] + tile[threadIdx.y + 1][threadIdx.x];
}"""
TRANSPOSED = """
__global__ void f(const float* in, float* out, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) out[x * height + y] = in[y * width + x];
}"""
WARPS = """
template <int P>
__global__ void f(const float* x, float* y, int rows, int cols) {
    int row = blockIdx.x * P + threadIdx.x / 32;
    if (row < rows) for (int c = threadIdx.x % 32; c < cols; c += 32) atomicAdd(&y[row], x[row * cols + c]);
}"""


INNER = """
#define R 1
__global__ void f(const float* in, float* out, int nx, int ny, int nz) {
    int i = blockIdx.x * BX + threadIdx.x, j = blockIdx.y * BY + threadIdx.y;
    if (i < R || j < R || i >= nx - R || j >= ny - R) return;
    for (int k = 1; k < nz - 1; ++k) {
        int c = (k * ny + j) * nx + i;
        out[c] = in[c - nx * ny] + in[c - nx] + in[c - 1] + in[c + 1] + in[c + nx] + in[c + nx * ny];
    }
}"""
PAIRS = """
template <int block_size>
__global__ void f(const float* x, float* y, int n) {
    int i = blockIdx.x * block_size * 2 + threadIdx.x;
    if (i + block_size < n) y[i] = x[i] + x[i + block_size];
}"""
OUTPUTS = """
#define T 12
__global__ void f(const float* x, float* y, int n) {
    __shared__ float tile[T + 4];
    int o = blockIdx.x * T + threadIdx.x, i = o - 2;
    tile[threadIdx.x] = i >= 0 && i < n ? x[i] : 0;
    __syncthreads();
    if (threadIdx.x < T && o < n) y[o] = tile[threadIdx.x] + tile[threadIdx.x + 4];
}"""
SCOPES = """
__global__ void f(const float* p, const float* c, const float* s, float* y, int n, int k, int d) {
    int q = blockIdx.x * blockDim.x + threadIdx.x;
    if (q < n) {
        float norm = 0, best = 1e30f;
        for (int i = 0; i < d; ++i) norm += p[q * d + i];
        for (int i = 0; i < k; ++i) best = fminf(best, c[i * d] - norm);
        y[q] = best;
    }
    if (q < k) { int i = q; y[i] += s[i]; }
}"""
VECTOR = """
#include <vector>
template <int VEC>
__global__ void f(const float* x, float* y, int n) {
    int base = (blockIdx.x * blockDim.x + threadIdx.x) * VEC;
    for (int v = 0; v < VEC; ++v) if (base + v < n) y[base + v] = x[base + v];
}
int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 1 << 20;
    std::vector<float> h(n);
    float *x, *y;
    cudaMalloc(&x, h.size() * sizeof(float));
    cudaMalloc(&y, h.size() * sizeof(float));
    f<4><<<(h.size() + 1023) / 1024, 256>>>(x, y, (int)h.size());
}"""
LOST = """
__global__ void f(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
void run(Matrix m, float* x, float* y) { f<<<blocks_of(m.count()), threads_of(m)>>>(x, y, m.n() & ~3); }"""
CONSTANTS = """
constexpr int BM = 64, BN = 64;
#define BK 16
#define TM 4
__global__ void f(const float* A, const float* B, float* C, int M, int N, int K) {
    __shared__ float a[BM][BK], b[BK][BN];
    const int tid = threadIdx.y * blockDim.x + threadIdx.x, row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
    float acc[TM][TM] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int i = tid; i < BM * BK; i += 256) a[i / BK][i % BK] = A[(row0 + i / BK) * K + k0 + i % BK];
        for (int i = tid; i < BK * BN; i += 256) b[i / BN][i % BN] = B[(k0 + i / BN) * N + col0 + i % BN];
        __syncthreads();
        for (int k = 0; k < BK; ++k)
            for (int i = 0; i < TM; ++i)
                for (int j = 0; j < TM; ++j)
                    acc[i][j] += a[threadIdx.y * TM + i][k] * b[k][threadIdx.x * TM + j];
        __syncthreads();
    }
    for (int i = 0; i < TM; ++i)
        for (int j = 0; j < TM; ++j)
            C[(row0 + threadIdx.y * TM + i) * N + col0 + threadIdx.x * TM + j] = acc[i][j];
}
void run(float* A, float* B, float* C, int M, int N, int K) {
    f<<<dim3(N / BN, M / BM), dim3(BN / TM, BM / TM)>>>(A, B, C, M, N, K);
}"""
SORT = """
__global__ void f(int* d, int j, int k) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, p = i ^ j;
    if (p > i && (((i & k) == 0) == (d[i] > d[p]))) { int t = d[i]; d[i] = d[p]; d[p] = t; }
}
void sort(int* d, int n) {
    for (int k = 2; k <= n; k *= 2)
        for (int j = k / 2; j > 0; j /= 2) f<<<n / 256, 256>>>(d, j, k);
}"""
ALIASES = """
__global__ void f(const float* x, float* y, int rows, int n4) {
    const float4* in = reinterpret_cast<const float4*>(x + blockIdx.x * n4 * 4);
    float4* out = (float4*)y + blockIdx.x * n4;
    for (int i = threadIdx.x; i < n4; i += blockDim.x) out[i] = in[i];
}
void run(float* x, float* y, int rows, int cols) { f<<<rows, 128>>>(x, y, rows, cols / 4); }"""
PACKS = """
template <int VEC>
__global__ void f(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) for (int v = 0; v < VEC; ++v) y[i * VEC + v] = x[i * VEC + v];
}"""
CALLED = """
__global__ void f(const float* x, float* y, int n, float eps) {
    __shared__ float sums[32];
    const float* row = &x[blockIdx.x * n];
    float s = eps;
    for (int i = threadIdx.x; i < n; i += blockDim.x) { y[blockIdx.x * n + i] = row[i]; s += row[i]; }
    if ((threadIdx.x & 31) == 0) sums[threadIdx.x >> 5] = s;
    __syncthreads();
    if (threadIdx.x < 32) s = sums[threadIdx.x];
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[blockIdx.x * n + i] *= s;
}
void go(float* x, float* y, int rows, int n, float eps) { f<<<rows, 128>>>(x, y, n, eps); }
int main() { int rows = 64, n = 512; go(a, b, rows, n, 1e-5f); }"""
TYPED = """
template <typename T>
__global__ void f(const T* x, T* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n - 1) y[i] = x[i - 1] + x[i + 1];
}
template <typename T>
void go(const T* x, T* y, int n) { f<T><<<(n + 255) / 256, 256>>>(x, y, n); }
int main() { double *a, *b; go<double>(a, b, 1000); }"""
NUMBERED = """
#define T 64
__global__ void f(int* d, int j) {
    unsigned i = threadIdx.x + blockDim.x * blockIdx.x, p = i ^ j;
    if (p > i && d[i] > d[p]) { int t = d[i]; d[i] = d[p]; d[p] = t; }
}
void sort(int* d) { for (int j = 8; j > 0; j /= 2) f<<<16, T>>>(d, j); }"""
LEADING = """
#define BLOCK_SIZE 64
__device__ void swap(int& a, int& b) { int t = a; a = b; b = t; }
__global__ void f(int* d, const int* e, int n, int ld) {
    __shared__ int s[BLOCK_SIZE];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = e[ld];
    __syncthreads();
    if (i < n && s[threadIdx.x ^ 1]) swap(d[i], d[n - 1 - i]);
}
int main() { int k = 64, sms = 0; count(&sms); f<<<sms * 2, BLOCK_SIZE>>>(d, e, k, k); }"""
COUNTED = """
#define AT(i, j) ((i) * k + (j))
__global__ void f(const float* x, int* counts, int n, int k) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, best = 0;
    if (i >= n) return;
    for (int c = 1; c < k; ++c) if (x[AT(i, c)] > x[AT(i, best)]) best = c;
    atomicAdd(&counts[best], 1);
}
void go(float* x, int* c, int n, int k) { f<<<(n + 127) / 128, 128>>>(x, c, n, k); }
int main() { int n = 7, k = 5; int* q; cudaMallocManaged(&q, k * sizeof(int)); go(p, q, n, k); }"""
GUARDED = """
#include <vector>
__global__ void f(const float* a, float* b, int M, int N) {
    __shared__ float s[8][32];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) {
        int r = i / 32, c = i % 32;
        int y = blockIdx.y * 8, x = blockIdx.x * 32;
        if (y + r < M && x + c < N) s[r][c] = a[(y + r) * N + x + c];
    }
    __syncthreads();
    b[blockIdx.y * gridDim.x + blockIdx.x] = s[0][0];
}
int main() {
    const int M = 100, N = 200;
    std::vector<float> a(M * N), b(ceil_div(M, 8) * ceil_div(N, 32));
    float *x, *y;
    cudaMalloc(&y, b.size() * sizeof(float));
    f<<<dim3((N + 31) / 32, (M + 7) / 8), 64>>>(x, y, M, N);
}"""


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            CALLED,
            (
                *(
                    "sizes.N = [512]",
                    "sizes.ROWS = [64]",
                    'x = "in float32[ROWS, N]"',
                    'y = "out float32[ROWS, N]"',
                ),
                *('eps = "float32 = 1e-05"', "block_size_x = [32, 64, 128, 256]"),
            ),
        ),
        (TYPED, ("sizes.N = [1000]", 'x = "in float64[N]"', 'y = "inout float64[N]"  # GUESS: its border')),
        (NUMBERED, ("sizes.N = [1024]  # GUESS: 16 blocks", 'd = "restored int32[N]"', 'grid = "N // block')),
        (
            LEADING,
            (
                *(
                    'ld = "int32 = N"',
                    'd = "restored int32[N]"  # GUESS',
                    "# Fixed by the source: BLOCK_SIZE = 64.",
                ),
                'grid = "2 * SMS"',
            ),
        ),
        (COUNTED, ('x = "in float32[N, K]"', 'counts = "inout int32[K]"', "sizes.K = [5]")),
        (
            GUARDED,
            (
                'a = "in float32[M, N]"',
                'b = "out float32[ceil_div(M, 8), ceil_div(N, 32)]"',
                "block_size_x = [8, 16, 32, 64, 128]",
            ),
        ),
        (SCOPES, ('p = "in float32[N, D]"', 'c = "in float32[K, D]"', 's = "in float32[K]"')),
        (
            VECTOR,
            (
                "sizes.N = [1048576]",
                'x = "in float32[N]"',
                "VEC = [",
                'grid = "ceil_div(N, VEC * block_size_x)"',
            ),
        ),
        (
            LOST,
            (
                "sizes.N = [1048576]  # GUESS",
                'block = "block_size_x"  # GUESS',
                'grid = "ceil_div(N, block_size_x)"  # GUESS: blocks_of',
            ),
        ),
        (
            CONSTANTS,
            (
                *('A = "in float32[M, K]"', 'B = "in float32[K, N]"', 'C = "out float32[M, N]"'),
                "# Fixed by the source: BM = 64, BN = 64, BK = 16, TM = 4.",
            ),
        ),
        (
            SORT,
            ('d = "restored int32[N]"  # GUESS: in place', 'j = "int32 = 1"  # GUESS: the host launches in'),
        ),
        (ALIASES, ('x = "in float32[4 * N4 * ROWS]"', 'y = "out float32[4 * N4 * ROWS]"')),
        (
            PACKS,
            (
                'x = "in float32[N]"',
                'n = "int32 = N // VEC"  # GUESS',
                "VEC = [1, 2, 4, 8]",
                'rules = ["block_size_x <= 256", "N % VEC',
            ),
        ),
        (INNER, ('in_ = "in float32[NZ, NY, NX]"', 'grid = ["ceil_div(NX, BX)", "ceil_div(NY, BY)"]')),
        (PAIRS, ('block = "block_size"  # GUESS: of 2 * block_size', 'grid = "ceil_div(N, 2 * block_size)"')),
        (OUTPUTS, ('x = "in float32[N]"', 'block = "block_size_x"  # GUESS: there may be more threads')),
        (TILED, ('A = "in float32[M, K]"', 'B = "in float32[K, N]"', 'rules = ["TILE * TILE <= 1024"]')),
        (
            SQUARE,
            ('A = "in float32[N, N]"', 'grid = ["ceil_div(N, 16)", "ceil_div(N, 16)"]  # GUESS: no index'),
        ),
        (HALO, ('in_ = "in float64[NY, NX]"', 'grid = ["ceil_div(NX, BX)", "ceil_div(NY, BY)"]')),
        (TRANSPOSED, ('in_ = "in float32[HEIGHT, WIDTH]"', 'out = "out float32[WIDTH, HEIGHT]"')),
        (WARPS, ('block = "32 * P"', 'rules = ["32 * P <= 256"]', "P = [1, 2, 4, 8]")),
    ],
    ids=[
        *(
            "called",
            "typed",
            "numbered",
            "leading",
            "counted",
            "guarded",
            "scopes",
            "vector",
            "lost",
            "constants",
            "sort",
            "aliases",
            "packs",
        ),
        *("inner", "pairs", "outputs", "tiled", "square", "halo", "transposed", "warps"),
    ],
)
def test_arrays_and_blocks_follow_the_indices(text: str, lines: tuple[str, ...]) -> None:
    """The last axis is what rows are multiplied with; a bound that tunables state follows them."""
    known = re.findall(r"\b(?:thread|block)(Idx|Dim)\.([xyz])", text)
    kinds = {"Idx": ("tid", "ctaid"), "Dim": ("ntid",)}
    registers = {f"{kind}.{axis}" for what, axis in known for kind in kinds[what]}

    def ask(_: str, options: tuple[str, ...], *__: str) -> Answer:
        undefined = [
            name for name in ("TILE", "BX", "BY") if name in text and f"-D{name}" not in str(options)
        ]
        log = [f'a.cu(1): error: identifier "{name}" is undefined\n  {name} *\n  ^\n' for name in undefined]
        return Answer("".join(log), frozenset(registers), most_threads=256)

    made = draft_of(text, Path("a.cu"), ask=ask).toml()

    assert [line for line in lines if not re.search(rf"^{re.escape(line)}", made, re.MULTILINE)] == [], made


def test_every_source_of_the_corpus_has_its_launch() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.cu")) == sorted(LAUNCHES)
